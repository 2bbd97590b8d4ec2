"""What a program does to its own process before it imports torch: `prepare`. Importing this file has no effect."""

from __future__ import annotations

import os
import signal
import sys


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
        signal.signal(signal.SIGINT, stop)  # until `explained` of exits.py begins


def stop(*_) -> None:
    """Answer Ctrl-C during the seconds of the imports. An exception there would print a traceback, or get lost."""
    print("\nstopped", file=sys.stderr, flush=True)
    os._exit(130)
