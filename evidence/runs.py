"""The runs of experiments.py and the CSVs beside this file, as rows: which are finished, and what they scored when.

A row is a checkpoint: its step, the samples and CPU seconds spent up to it, and its exact scores. `rows` of a run are
in the order of its steps; a `group` is the runs of one arm, one a seed.
"""

import csv
import itertools
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
ARMS = {"prorl": "N = 16, B = 128", "brorl": "N = 512, B = 32", "batch": "N = 16, B = 1,024"}
WORLDS = {"compact": "prompts of 9 tokens", "long": "prompts of 128 tokens"}
SCORES = ("q_pos", "pass@4", "pass@16", "pass@64", "pass@256", "pass@1024", "below", "in_use", "fell", "improved",
          "worst_drop")  # fmt: skip
AXES = ("samples", "samples"), ("cpu_seconds", "CPU seconds")


def lines(path: Path) -> list[dict]:
    rows = path.read_text().splitlines(keepends=True)
    return [json.loads(row) for row in rows if row.endswith("\n")]  # the last may be half written


def read(folder: Path) -> list[dict]:
    """A run's exact scores, each with the CPU seconds and the training metrics up to its step."""
    seconds, total = {0: 0.0}, 0.0
    for row in lines(folder / "timing.jsonl"):
        total += row.get("cpu_seconds", math.nan)
        seconds[row["step"]] = total
    metrics = {row["step"]: row for row in lines(folder / "metrics.jsonl")}
    rows = []
    for row in load(folder / "exact.csv"):
        step = int(float(row["step"]))
        now = {"step": step, "samples": int(float(row["samples"])), "cpu_seconds": round(seconds[step], 1)}
        rows.append(now | {name: float(row[name]) for name in SCORES})
        rows[-1] |= {name: metrics[step].get(name, math.nan) for name in ("response_tokens", "correct")}
    return rows


def finished(out: Path, name: str) -> bool:
    """Is the run at its end, and its last step scored?"""
    folder = out / name
    if not (folder / "model").is_dir() or not (folder / "exact.csv").exists():
        return False
    scored = [int(float(row["step"])) for row in csv.DictReader((folder / "exact.csv").open())]
    return lines(folder / "metrics.jsonl")[-1]["step"] in scored


def found(out: Path | None, pattern: str) -> list[tuple[list[str], Path]]:
    """Finished runs by the parts of their names, NAME-WHERE-seedS; none without a folder of runs."""
    folders = sorted(path for path in out.glob(pattern) if finished(out, path.name)) if out else []
    return [(folder.name.split("-"), folder) for folder in folders]


def seed_of(part: str) -> int:
    """Of seed3: 3."""
    return int(part.removeprefix("seed"))


# ------------------------------------------------------------------------------------------------ CSVs


def write(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows)
    print(f"wrote {path.name}: {len(rows)} rows")


def load(path: Path) -> list[dict]:
    """The rows of a CSV that `write` wrote; none if there is none."""
    rows = [numbers(row) for row in csv.DictReader(path.open())] if path.exists() else []
    for row in rows:
        if "fell" in row and "improved" not in row:  # scored before ties were told apart: only the start has any
            row["improved"] = 1 - row["fell"] if row.get("step", row.get("amount")) else 0
    return rows


def numbers(row: dict[str, str]) -> dict:
    """A row of a CSV; whole numbers as such."""
    return {name: number(x) for name, x in row.items()}


def number(x: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(x)
        except ValueError:
            continue
    return x


# ------------------------------------------------------------------------------------------------ choosing rows


def by(rows: list[dict], *names: str) -> dict[tuple, list[dict]]:
    """Rows by the values of these columns, in the order in which they come."""
    chosen = defaultdict(list)
    for row in rows:
        chosen[tuple(row[name] for name in names)].append(row)
    return chosen


def seeds_of(rows: list[dict], *names: str) -> dict[tuple, list[list[dict]]]:
    """The runs, one a seed, by the values of these columns."""
    groups = defaultdict(list)
    for (*who, _), run in by(rows, *names, "seed").items():
        groups[tuple(who)].append(run)
    return groups


def at(rows: list[dict], axis: str, where: float, name: str) -> float:
    """A score where the run had spent so much, by linear interpolation; nan beyond its end."""
    return float(np.interp(where, [r[axis] for r in rows], [r[name] for r in rows], right=math.nan))


def first_at(rows: list[dict], axis: str, where: float, name: str) -> float:
    """`name` where `axis`, which need not rise all along, first reaches `where`; nan if it never does."""
    for before, now in itertools.pairwise(rows):
        if before[axis] < where <= now[axis]:
            return before[name] + (now[name] - before[name]) * (where - before[axis]) / (now[axis] - before[axis])
    return math.nan


def furthest(group: list[list[dict]]) -> list[list[dict]]:
    """The seeds that went as far as any did."""
    end = max(rows[-1]["samples"] for rows in group)
    return [rows for rows in group if rows[-1]["samples"] > 0.9 * end]


def crossing(group: list[list[dict]], other: list[list[dict]], axis: str, unit: str, name="q_pos") -> str:
    """From where on the mean score of one arm is above another's, up to what both have spent."""
    end = min(rows[-1][axis] for rows in [*group, *other])
    grid = np.linspace(0, end, 400)[1:]
    ahead = [np.mean([[at(rows, axis, x, name) for x in grid] for rows in arm], axis=0) for arm in (group, other)]
    above = ahead[0] > ahead[1]
    seeds = f"means of {len(group)} and {len(other)} seeds"
    if not above[-1]:
        return f"below at {end:,.0f} {unit}, above on {above.mean():.0%} of the way there ({seeds})"
    below = np.flatnonzero(~above)
    since = grid[below[-1] + 1] if len(below) else 0
    return f"above from {since:,.0f} {unit} on, to the end at {end:,.0f} ({seeds})"
