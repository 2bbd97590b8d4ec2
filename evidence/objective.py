"""Objective x N: each --advantage with N = 16, 64 and 512. The rows 16:512 are of commit 8e4a065: waves of 16 to 512.

From one policy near its plateau (`near`), from the embedded one (`start`), and from the first on those problems only of
which it solves 0.1% to 5% (`hard`, scored on these problems; the others on the held-out ones).
"""

import json
import math
from pathlib import Path

import numpy as np

from evidence.hard import elsewhere
from evidence.report import COLOURS, header, line, panels, save
from evidence.runs import at, by, first_at, found, furthest, load, read, seeds_of, write

KINDS = {"mean_centred": "-", "group_std": ":", "group_mean": "--"}
WHERE = {"near": "From a policy near its plateau, scored on held-out problems",
         "start": "From the embedded policy, scored on held-out problems",
         "hard": "Trained and scored on problems that a policy near its plateau rarely solves"}  # fmt: skip
LEVELS = {"near": (0.539, 0.544, 0.554), "start": (0.25, 0.3, 0.35, 0.37, 0.4), "hard": (0.21, 0.31, 0.41, 0.5)}
SHOWN = "q_pos", "pass@4", "pass@16", "pass@64", "pass@1024"
Group = list[list[dict]]


def objective(out: Path | None, here: Path) -> None:
    """objective.csv: a row a checkpoint. For each place to begin its tables, and a picture; objective_elsewhere.csv."""
    table = load(here / "objective.csv")
    if out:
        table = rows_of(out) + [row for row in table if ":" in str(row["N"])]
    if not table:
        return
    write(here / "objective.csv", table)
    for (where,), rows in by(table, "where").items():
        told(where, in_order(seeds_of(rows, "advantage", "N")), here)
    elsewhere(out, here / "objective_elsewhere.csv", "objective_hard-*-seed*")


def rows_of(out: Path) -> list[dict]:
    table = []
    runs = [(parts[0].removeprefix("objective").removeprefix("_") or "near", folder)
            for parts, folder in found(out, "objective*-*-seed*")]  # fmt: skip
    runs += [("start", folder) for _, folder in found(out, "near")]  # the run that made the policy `near`
    for where, folder in runs:
        config = json.loads((folder / "config.json").read_text())
        who = {"where": where, "advantage": config.get("advantage", "mean_centred"),
               "N": config["rollouts_per_prompt"], "seed": config["seed"]}  # fmt: skip
        table += [who | row for row in read(folder)]
    return sorted(table, key=lambda row: list(WHERE).index(row["where"]))


def in_order(groups: dict[tuple, Group]) -> dict[tuple, Group]:
    """By kind, then by N, waves last."""

    def place(who: tuple) -> tuple:
        kind, n = who
        return list(KINDS).index(kind), ":" in str(n), int(str(n).rpartition(":")[2])

    return {who: groups[who] for who in sorted(groups, key=place)}


def told(where: str, groups: dict[tuple, Group], here: Path) -> None:
    """Tables at equal samples, time, Q_pos and breadth, and of the arms' last checkpoints; and the picture."""
    every = [rows for group in groups.values() for rows in group]
    start, samples = every[0][0], min(rows[-1]["samples"] for rows in every)
    seconds = min(rows[-1]["cpu_seconds"] for rows in every)
    print(f"\n{WHERE[where]}: Q_pos {start['q_pos']:.4f}, " + ", ".join(f"{x} {start[x]:.4f}" for x in SHOWN[1:]))
    for axis, spent, label in (
        ("samples", samples, f"after {samples:,} samples"),
        ("cpu_seconds", seconds, f"after {seconds:,.0f} CPU seconds"),
    ):
        heads(f"{where}, {label}")
        for (kind, n), group in groups.items():
            row_at(kind, n, group, axis, spent)
    heads(f"{where}, the last checkpoint of the seeds that went furthest")
    for (kind, n), group in groups.items():
        group = furthest(group)
        row_at(kind, n, group, "samples", min(rows[-1]["samples"] for rows in group))
    print_where(groups, "q_pos", LEVELS[where], (*SHOWN[2:], "fell"))
    print_where(groups, "pass@64", (0.8, 0.83, 0.86, 0.9, 0.93), ("q_pos", "pass@4", "pass@1024", "fell"))
    draw(groups, WHERE[where], here / f"objective{'' if where == 'near' else '_' + where}.png")


def heads(title: str) -> None:
    print(f"\n{title}")
    header("--advantage", "N", "seeds", "steps", "samples", "CPU minutes", *SHOWN, "answers that fell")


def row_at(kind: str, n: str | int, group: Group, axis: str, where: float) -> None:
    """A line of a table: what the seeds had done and scored by then."""
    spent = [np.mean([at(r, axis, where, x) for r in group]) for x in ("step", "samples", "cpu_seconds")]
    cells = [ranged([at(r, axis, where, x) for r in group]) for x in (*SHOWN, "fell")]
    line(kind, n, len(group), f"{spent[0]:.0f}", f"{spent[1]:,.0f}", f"{spent[2] / 60:.1f}", *cells)


def print_where(groups: dict[tuple, Group], reached: str, levels: tuple[float, ...], names: tuple[str, ...]) -> None:
    """Other scores where each run's `reached` first comes to some levels; a run that never does is not in the row."""
    print(f"\nwhere {reached} first reaches a level")
    header(reached, "--advantage", "N", "seeds that reach it", "samples", "CPU minutes", *names)
    for level in levels:
        for (kind, n), group in groups.items():
            where = [(rows, x) for rows in group if not math.isnan(x := first_at(rows, reached, level, "samples"))]
            if where:
                minutes = np.mean([at(rows, "samples", x, "cpu_seconds") for rows, x in where]) / 60
                cells = [ranged([at(rows, "samples", x, name) for rows, x in where]) for name in names]
                spent = f"{np.mean([x for _, x in where]):,.0f}", f"{minutes:.1f}"
                line(f"{level:.3f}", kind, n, len(where), *spent, *cells)


def ranged(x: list[float]) -> str:
    """Mean, and the lowest and highest seed: of two seeds an interval would say nothing."""
    return f"{np.mean(x):.3f} ({min(x):.3f} to {max(x):.3f})" if len(x) > 1 else f"{x[0]:.3f}"


def draw(groups: dict[tuple, Group], title: str, path: Path) -> None:
    """pass@1 and pass@64 over time; and the dial between the two."""
    figure, axes = panels(1, 3, 15, 4.6)
    for (kind, n), group in groups.items():
        looks = {"color": COLOURS.get(n, "black"), "ls": KINDS[kind], "lw": 1.4}
        grid = np.linspace(0, min(rows[-1]["cpu_seconds"] for rows in group), 40)
        for axis, name in zip(axes[0], ("q_pos", "pass@64"), strict=False):
            lines = np.array([[at(rows, "cpu_seconds", x, name) for x in grid] for rows in group])
            axis.plot(grid / 60, lines.mean(0), **looks, label=f"{kind}, N = {n}")
            axis.fill_between(grid / 60, lines.min(0), lines.max(0), color=looks["color"], alpha=0.12)
        steps = np.linspace(0, min(rows[-1]["samples"] for rows in group), 40)
        way = [np.mean([[at(r, "samples", x, y) for x in steps] for r in group], 0) for y in ("q_pos", "pass@64")]
        axes[0, 2].plot(*way, **looks, alpha=0.6)
        axes[0, 2].plot(way[0][-1], way[1][-1], "o", color=looks["color"])
        if kind == "group_mean":
            above = 6 if ":" in str(n) else -12
            axes[0, 2].annotate(
                f"N = {n}", (way[0][-1], way[1][-1]), (0, above), fontsize=8, textcoords="offset points"
            )
    for axis, name in zip(axes[0], ("Q_pos (pass@1)", "pass@64"), strict=False):
        axis.set(title=f"{name}, exact", xlabel="CPU minutes")
    axes[0, 2].set(title="both: a line is an arm's way, a point its end", xlabel="Q_pos", ylabel="pass@64")
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=5)
    save(figure, path, f"{title}, by objective and N. Means over seeds, band: their range")
