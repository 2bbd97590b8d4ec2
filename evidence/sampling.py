"""Table 2, what dynamic sampling keeps and how fast samples come; and appendix A, N from 16 to 2,048."""

import json
import math
from pathlib import Path

import numpy as np

from evidence.report import header, interval, line, panels, save, shown
from evidence.runs import ARMS, WORLDS, at, found, lines, load, read, seed_of, seeds_of, write

SOLVED = ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all")
SHARES = ("none", "0-25%", "25-50%", "50-75%", "75-100%", "all")  # the same, as a reader wants them
HELD = {"sweep": "16,384 rollouts trained on a step", "steps": "32 prompts trained on a step"}

# ------------------------------------------------------------------------------------------------ table 2


def table2(out: Path | None, here: Path) -> None:
    """table2.csv: a row a step of every arm; printed are means over the run, and the first step."""
    table = steps_of(out) if out else load(here / "table2.csv")
    if not table:
        return
    write(here / "table2.csv", table)
    print("\nof the groups, how many had so large a share of correct rollouts: first step, and mean of all steps")
    header("prompts", "arm", "kept by dynamic sampling: first step", "all steps", "samples/s of CPU, whole step",
           "of them trained on", "none correct", *SHARES[1:])  # fmt: skip
    worlds = [w for w in WORLDS if any(r["world"] == w for r in table)]
    for world in worlds:
        arms = {arm: [r for r in table if r["world"] == world and r["arm"] == arm] for arm in ARMS}
        arms = {arm: steps for arm, steps in arms.items() if steps}
        for arm, steps in arms.items():
            print_solved(world, arm, steps)


def steps_of(out: Path) -> list[dict]:
    table = []
    for (arm, world, seed), folder in found(out, "*-*-seed*"):
        if arm not in ARMS or world not in WORLDS:
            continue
        seconds = {row["step"]: row.get("cpu_seconds", math.nan) for row in lines(folder / "timing.jsonl")}
        before = 0
        for row in lines(folder / "metrics.jsonl")[1:]:
            drawn, before = row["samples"] - before, row["samples"]
            table.append({"world": world, "arm": arm, "seed": seed_of(seed), "step": row["step"],
                          "samples": row["samples"], "pass_rate": row["pass_rate"],
                          "samples_per_cpu_second": drawn / seconds[row["step"]]}
                         | {f"solved_{part}": row[f"solved/{part}"] for part in SOLVED})  # fmt: skip
    return table


def mean(steps: list[dict], name: str) -> float:
    return np.mean([r[name] for r in steps])


def print_solved(world: str, arm: str, steps: list[dict]) -> None:
    trained = np.mean([r["pass_rate"] * r["samples_per_cpu_second"] for r in steps])
    first = [r for r in steps if r["step"] == 1]  # of one and the same policy
    cells = [f"{mean(first, f'solved_{part}'):.1%}, {mean(steps, f'solved_{part}'):.1%}" for part in SOLVED]
    line(WORLDS[world], ARMS[arm], f"{mean(first, 'pass_rate'):.1%}", f"{mean(steps, 'pass_rate'):.1%}",
         f"{mean(steps, 'samples_per_cpu_second'):,.0f}", f"{trained:,.0f}", *cells)  # fmt: skip


# ------------------------------------------------------------------------------------------------ appendix A


def sweep(out: Path | None, here: Path) -> None:
    """sweep_n.csv, .png: N with the same samples a step, so fewer prompts; and with the same 32 prompts a step."""
    table = load(here / "sweep_n.csv") if not out else []
    for (kind, n, seed), folder in found(out, "s*-*-seed*"):
        if kind in HELD:
            b = json.loads((folder / "config.json").read_text())["prompts_per_step"]
            table += [{"held": kind, "N": int(n), "B": b, "seed": seed_of(seed)} | r for r in read(folder)]
    if not table:
        return
    write(here / "sweep_n.csv", sorted(table, key=lambda r: (r["N"], r["B"], r["held"], r["seed"], r["step"])))
    runs: dict[str, dict[tuple[int, int], list[list[dict]]]] = {kind: {} for kind in HELD}
    for (kind, n, b), group in seeds_of(table, "held", "N", "B").items():
        runs[kind][n, b] = group
    runs = {kind: dict(sorted(groups.items())) for kind, groups in runs.items() if groups}
    figure, axes = panels(len(runs), 2, 11, 4.2 * len(runs))
    for panes, (kind, groups) in zip(axes, runs.items(), strict=True):
        every = [r for group in groups.values() for r in group]
        limits = {x: min(r[-1][x] for r in every) for x in ("samples", "step", "cpu_seconds")}
        labels = {"samples": f"{limits['samples']:,} samples", "step": f"{limits['step']} steps",
                  "cpu_seconds": f"{limits['cpu_seconds']:.0f} CPU seconds"}  # fmt: skip
        if kind == "steps":  # at the cheapest N's samples or time, the others have hardly begun
            labels = {"step": labels["step"]}
        print_sweep(HELD[kind], groups, limits, labels)
        draw_sweep(panes, HELD[kind], groups, limits, labels)
    save(figure, here / "sweep_n.png")


def print_sweep(held: str, groups: dict, limits: dict, labels: dict[str, str]) -> None:
    start = next(iter(groups.values()))[0][0]
    print(f"\n{held}; from Q_pos {start['q_pos']:.4f}, pass@64 {start['pass@64']:.4f}")
    header("N", "B", "seeds", "samples in all", "CPU minutes in all",
           *(f"{name} after {label}" for label in labels.values() for name in ("Q_pos", "pass@64")))  # fmt: skip
    for (n, b), group in groups.items():
        samples, seconds = (np.mean([r[-1][x] for r in group]) for x in ("samples", "cpu_seconds"))
        scores = [shown([at(r, x, limits[x], name) for r in group]) for x in labels for name in ("q_pos", "pass@64")]
        line(n, f"{b:,}", len(group), f"{samples:,.0f}", f"{seconds / 60:.1f}", *scores)


def draw_sweep(panes, held: str, groups: dict, limits: dict, labels: dict[str, str]) -> None:
    start, ns = next(iter(groups.values()))[0][0], [n for n, _ in groups]
    for axis, name in zip(panes, ("q_pos", "pass@64"), strict=True):
        for x, label in labels.items():
            points = [interval([at(r, x, limits[x], name) for r in group]) for group in groups.values()]
            middle, half = np.array(points).T
            axis.errorbar(ns, middle, half, marker="o", ms=4, capsize=3, label=f"after {label}")
        axis.axhline(start[name], color="gray", ls=":", label="the saturated policy")
        axis.set_xscale("log", base=2)
        axis.set_xticks(ns, [str(n) for n in ns])
        axis.set(title=f"{'Q_pos, exact' if name == 'q_pos' else name}", xlabel=f"N, with {held}")
        axis.grid(alpha=0.3)
    panes[0].legend(fontsize=8)
