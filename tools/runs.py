"""Make the runs of an experiment, several at a time, and append their rows to a CSV. A stopped experiment continues."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
JOBS = 2  # runs at the same time
# Their share of the processor; vLLM must not bind the runs to the same cores
ENVIRONMENT = {
    "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // JOBS)), "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip


def rows_of(out: Path) -> list[dict[str, str]]:
    """The rows of a CSV; none if it does not exist yet."""
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def append(out: Path, columns: tuple[str, ...], rows: list[dict]) -> None:
    """Append rows to a CSV. A new one gets a header."""
    new = not out.exists()
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def make_missing(out: Path, planned: list[tuple], columns: tuple[str, ...], make: Callable[..., list[dict]]) -> None:
    """Append the rows of every planned run that `out` does not have, each as soon as it ends.

    planned: the first cells of each run's rows, which name it. make: makes one run, called with these cells, in a
    process of its own, and returns its rows.
    """
    done = {tuple([*row.values()][: len(planned[0])]) for row in rows_of(out)}
    missing = [run for run in planned if tuple(map(str, run)) not in done]
    with ThreadPoolExecutor(JOBS) as pool:
        runs = [pool.submit(make, *run) for run in missing]
        for run in tqdm(as_completed(runs), total=len(missing), unit="run"):
            append(out, columns, run.result())


def train(settings: dict[str, object], folder: Path) -> list[dict]:
    """Run train.py in `folder` with these settings. Returns its metrics and timings, one dictionary for each step."""
    given = settings | {"output_dir": folder, "name": "run"}
    command = [sys.executable, "train.py", *(word for name, x in given.items() for word in (f"--{name}", str(x)))]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"this run failed: {given}\n{done.stderr[-3000:]}")
    metrics, timing = (
        [json.loads(line) for line in (folder / "run" / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "timing.jsonl")
    )
    return [seconds | row for row, seconds in zip(metrics, timing, strict=True)]
