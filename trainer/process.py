"""How a program begins and ends. Importing this file has no effect, and does not import torch.

`prepare` sets what torch reads when it is imported. At the end a mistake of the user is a sentence, anything else a
traceback; each has an exit code.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sandbox.messages import printable
from verify import JudgeFailed, NotAReward


def prepare() -> None:
    """Set the environment variables that torch reads when it is imported, and answer Ctrl-C until the imports end.

    A program calls it before it imports torch. A variable that the user has set stays as it is.
    """
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show ± or π shows ? in its place
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Waiting OpenMP threads sleep. If they spin, any other load slows a run down several times.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # GPU memory in segments that can grow: micro-batches of many widths leave gaps between fixed ones.
    if os.path.exists("/dev/nvidiactl"):
        os.environ.setdefault("PYTORCH_ALLOC_CONF", os.getenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)  # until `explained` begins


def stop(*_) -> None:
    """Answer Ctrl-C during the seconds of the imports. An exception there would print a traceback, or get lost."""
    print("\nstopped", file=sys.stderr, flush=True)
    os._exit(130)


class Refusal(ValueError):
    """A mistake of the user: the message is a sentence with the fix. Any other exception shows its traceback."""


@contextmanager
def refusing(prefix: str = "") -> Iterator[None]:
    """Turn a ValueError or OSError about a user's file, model or problem into a Refusal."""
    try:
        yield
    except Refusal:
        raise
    except (ValueError, OSError) as mistake:
        raise Refusal(" ".join([f"{prefix}{mistake}", *getattr(mistake, "__notes__", [])])) from mistake


@contextmanager
def explained(code: int, after_interrupt: str = "") -> Iterator[None]:
    """Print a refusal, or that the user stopped the program, without a traceback. Ends the process.

    code: exit code of a refusal: 2 before a run has begun, 1 later. Ctrl-C ends with 130, any other exception with 1.
    """
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (Refusal, JudgeFailed, NotAReward) as refusal:
        leave_with(refusal, code)
    except KeyboardInterrupt:
        leave(130, f"\nstopped{after_interrupt and f'; {after_interrupt}'}")
    except Exception as failure:
        if isinstance(failure, OSError) and failure.errno == errno.ENOSPC:
            leave(1, f"the disk is full: make room{after_interrupt and f'; {after_interrupt}'} ({failure})")
        leave(1, traceback.format_exc())  # on every rank


def leave_with(refusal: Exception, code: int) -> NoReturn:
    """Print a refusal on rank 0. The other ranks wait 5 seconds, so that a launcher ends them before they repeat it."""
    if rank := int(os.environ.get("RANK", 0)):
        time.sleep(5)
    text = "\n".join([f"process {rank}: {refusal}" if rank else str(refusal), *getattr(refusal, "__notes__", [])])
    if sys.stderr.isatty():  # a terminal would break the lines within words
        lines = (textwrap.wrap(x, 80, break_long_words=False, break_on_hyphens=False) for x in text.split("\n"))
        text = "\n".join("\n".join(line) for line in lines)
    leave(code, text)


def leave(code: int, text: str) -> NoReturn:
    """End this process without the destructors of an engine, which may wait for other ranks."""
    sys.stdout.flush()
    # The text may quote a model, a data set or an exception.
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
    os._exit(code)
