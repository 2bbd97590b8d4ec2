"""The C library's calls of the kernel, for walls.py, rights.py, seccomp.py and landlock.py."""

import ctypes
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)


def prctl(*arguments: Any) -> int:
    """Call the kernel's prctl with five whole words: ctypes alone would set half of each."""
    words = [*arguments, *[0] * (5 - len(arguments))]
    return libc.prctl(*(word if isinstance(word, bytes) else ctypes.c_ulong(word) for word in words))
