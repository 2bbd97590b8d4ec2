"""Make the runs of an experiment, several at a time, and append their rows to a CSV. A stopped experiment continues."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

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


def make_missing(
    out: Path, planned: list[tuple[str, float, int]], columns: tuple[str, ...],
    make: Callable[[str, float, int], list[dict]],
) -> None:  # fmt: skip
    """Append the rows of every planned run that `out` does not have, each as soon as it ends.

    planned: (arm, learning rate, seed) of each run. make: makes one run in a process of its own, and returns its rows.
    """
    done = {(row["arm"], float(row["rate"]), int(row["seed"])) for row in rows_of(out)}
    missing = [run for run in planned if run not in done]
    with ThreadPoolExecutor(JOBS) as pool:
        runs = [pool.submit(make, *run) for run in missing]
        for run in tqdm(as_completed(runs), total=len(missing), unit="run"):
            append(out, columns, run.result())
