"""Rows of the CSVs beside this file: reading, writing, choosing.

A row is a checkpoint: its step, the samples and processor seconds spent up to it, its exact scores. A run is its rows
in the order of steps. A group is the runs of one arm, one per seed.
"""

import csv
import itertools
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "evidence"
ARMS = {"prorl": "N = 16, B = 128", "brorl": "N = 512, B = 32", "batch": "N = 16, B = 1,024"}
WORLDS = {"compact": "prompts of 9 tokens", "long": "prompts of 128 tokens"}
HELD = {"sweep": "16,384 rollouts trained on a step", "steps": "32 prompts trained on a step"}
TERMS = ("sampled_correct", "sampled_incorrect", "unsampled_coupling")  # of Theorem 1
WHERE = {"near": "From a policy near its plateau, scored on held-out problems",
         "start": "From the embedded policy, scored on held-out problems",
         "hard": "Trained and scored on problems that a policy near its plateau rarely solves"}  # fmt: skip
PLACES = ("first_token", "tree")  # where its sum is taken

Run = list[dict]
Group = list[Run]


def write(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows)
    print(f"wrote {path.name}: {len(rows)} rows")


def load(path: Path) -> list[dict]:
    """The rows of a CSV; numbers as numbers."""
    with path.open() as file:
        return [{name: number(x) for name, x in row.items()} for row in csv.DictReader(file)]


def number(x: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(x)
        except ValueError:
            continue
    return x


def by(rows: list[dict], *names: str) -> dict[tuple, list[dict]]:
    """Rows by the values of these columns, in the order in which they come."""
    chosen = defaultdict(list)
    for row in rows:
        chosen[tuple(row[name] for name in names)].append(row)
    return chosen


def seeds_of(rows: list[dict], *names: str) -> dict[tuple, Group]:
    """Groups by the values of these columns."""
    groups = defaultdict(list)
    for (*who, _), run in by(rows, *names, "seed").items():
        groups[tuple(who)].append(run)
    return groups


def at(rows: Run, axis: str, where: float, name: str) -> float:
    """A score where the run had spent so much, by linear interpolation; nan beyond its end."""
    return float(np.interp(where, [r[axis] for r in rows], [r[name] for r in rows], right=math.nan))


def first_at(rows: Run, axis: str, where: float, name: str) -> float:
    """`name` where `axis`, which need not rise all along, first reaches `where`; nan if it never does."""
    for before, now in itertools.pairwise(rows):
        if before[axis] < where <= now[axis]:
            return before[name] + (now[name] - before[name]) * (where - before[axis]) / (now[axis] - before[axis])
    return math.nan
