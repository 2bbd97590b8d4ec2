"""What the benchmarks share: the machine, clocks, and their own command in another process."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent
POLICY = str(ROOT / "tiny/policy")


def machine() -> str:
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}, "
        f"python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} torch thread(s)"
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def quiet(args: argparse.Namespace) -> None:
    """No bars of transformers; as many torch threads as asked for, or all cores."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))


def again(name: str, way: str, args: argparse.Namespace, flags: Iterable[str], file: object = "") -> subprocess.Popen:
    """`python -m bench NAME` one way, in another process: the peak memory is that way's. Errors go to the terminal."""
    command = [sys.executable, "-m", "bench", name, "--way", way, "--file", str(file)]
    command += [f"--{flag}={getattr(args, flag)}" for flag in flags if getattr(args, flag) is not None]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen) -> str:
    """The last line that the process prints. Ends the program if it fails."""
    said, _ = process.communicate()
    if process.returncode:
        sys.exit(f"a process of the benchmark ended with status {process.returncode}")
    return said.splitlines()[-1]
