"""The evidence of docs/evidence.md: tables and figures of the runs that experiments.py made.

    python figures/evidence.py                    of runs/evidence, whatever of it is finished; writes beside this file
    python figures/evidence.py --from_csv         the same from the CSVs beside this file, without any run
    python figures/evidence.py --only controls    some parts: figure1 ttest regimes hard table2 sweep controls
                                                  equal_q_pos theorem1 coupling

    figure1.csv, .png     the arms from the saturated policy, over samples and over CPU time       figure 1, table 1
    plateau.png           the runs that saturated it, and how little of them the arms are          (of figure1.csv)
    shrinkage.png         figure 3's three panels for the arms                                     section 4.1
    equal_q_pos.csv       answers that fell, at the same Q_pos, beside a null that learns nothing
    regimes.csv, .png     the same arms at other learning rates and batches
    hard.csv, .png        training on problems that the saturated policy hardly ever solves, scored on the same
    hard_elsewhere.csv    what that training left of the held-out problems
    table2.csv, .png      dynamic sampling's pass rate, samples/s, correct counts, along training  table 2
    sweep_n.csv, .png     N = 16 ... 2048 with as many samples a step, and with as many prompts    appendix A
    ttest.csv             paired t-tests between the arms of figure1                               section 4.2.2
    controls.csv, .png    the arms with equal mini-batches, with the old AdamW moments, with a warm-up; null.csv, with
                          weights that moved at random
    theorem1.csv, .png    Theorem 1's prediction beside the change of Q_pos, a row a group, with the null q(1-q)
    coupling.csv          how far train.py's guesses at undrawn tokens are from the exact coupling

Q_pos and pass@k are exact (tiny/exact.py). An interval is mean ± t s / sqrt(seeds), t of 97.5% with seeds - 1 degrees
of freedom: 4.3 for three seeds. Time is CPU seconds of the training process, one core, without evaluation: several runs
went on at once. "At equal time" is where the first run of a world had spent all its samples, by linear interpolation.
"At the same Q_pos" is the mean over a run's checkpoints within 0.01 of it. Crossings are of means.
Every arm starts from one saturated policy, those of controls.csv from another near its plateau: what a third would give
is not in the intervals. The compact saturating run has no CPU seconds before step 564; a t-test compares runs at their
own ends.
"""

import argparse
import csv
import itertools
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import ttest
from matplotlib.ticker import EngFormatter
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tiny")]

import exact
from transformers.utils import logging

logging.disable_progress_bar()  # of loading models
OUT = HERE.parent / "runs" / "evidence"
ARMS = {"prorl": ("N = 16, B = 128", "tab:blue"), "brorl": ("N = 512, B = 32", "tab:orange"),
        "batch": ("N = 16, B = 1,024", "tab:green")}  # fmt: skip
CHANGED = {  # the runs of experiments.py's controls: arm, and what is changed
    "prorl": ("prorl", ""), "prorl_mixed": ("prorl", "mini-batches and refill of N = 512"),
    "prorl_few": ("prorl", "prompts and rate of N = 512"),
    "prorl_moments": ("prorl", "old moments"), "prorl_warmup": ("prorl", "warm-up"),
    "brorl": ("brorl", ""), "brorl_alike": ("brorl", "mini-batches and refill of N = 16"),
    "brorl_moments": ("brorl", "old moments"), "brorl_warmup": ("brorl", "warm-up"),
    "batch": ("batch", ""), "batch_moments": ("batch", "old moments"), "batch_warmup": ("batch", "warm-up"),
}  # fmt: skip
LOOKS = {"": "-", "alike": ":", "mixed": ":", "few": (0, (1, 3)), "moments": "--", "warmup": "-."}
WORLDS = {"compact": "prompts of 9 tokens", "long": "prompts of 128 tokens"}
SCORES = ("q_pos", "pass@4", "pass@16", "pass@64", "pass@256", "pass@1024", "below", "in_use", "fell", "improved",
          "worst_drop")  # fmt: skip
TERMS = ("sampled_correct", "sampled_incorrect", "unsampled_coupling")
AXES = ("samples", "samples"), ("cpu_seconds", "CPU seconds")
SOLVED = ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all")


# ------------------------------------------------------------------------------------------------ reading


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


def found(out: Path, pattern: str) -> list[tuple[list[str], Path]]:
    """Finished runs by the parts of their names, NAME-WHERE-seedS."""
    folders = sorted(path for path in out.glob(pattern) if finished(out, path.name))
    return [(folder.name.split("-"), folder) for folder in folders]


def interval(x: list[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval; nan from one seed."""
    x = np.array(x)
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return x.mean(), half


def at(rows: list[dict], axis: str, where: float, name: str) -> float:
    """A score where the run had spent so much, by linear interpolation; nan beyond its end."""
    return float(np.interp(where, [r[axis] for r in rows], [r[name] for r in rows], right=math.nan))


def write(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows)
    print(f"wrote {path.name}: {len(rows)} rows")


def numbers(row: dict[str, str]) -> dict:
    """A row of a CSV; whole numbers as such."""

    def number(x: str):
        try:
            return int(x)
        except ValueError:
            try:
                return float(x)
            except ValueError:
                return x

    return {name: number(x) for name, x in row.items()}


def load(path: Path) -> list[dict]:
    """The rows of a CSV that `write` wrote; none if there is none."""
    rows = [numbers(row) for row in csv.DictReader(path.open())] if path.exists() else []
    for row in rows:
        if "fell" in row and "improved" not in row:  # scored before ties were told apart: only the start has any
            row["improved"] = 1 - row["fell"] if row.get("step", row.get("amount")) else 0
    return rows


def by(rows: list[dict], *names: str) -> dict:
    """Rows by the values of these columns, in the order in which they come."""
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def seeds_of(rows: list[dict], *names: str) -> dict[tuple, list[list[dict]]]:
    """The runs, one a seed, by the values of these columns."""
    found = defaultdict(list)
    for (*who, _), run in by(rows, *names, "seed").items():
        found[tuple(who)].append(run)
    return found


def shown(x: list[float], form: str = ".4f") -> str:
    mean, half = interval(x)
    return f"{mean:{form}} ± {half:{form}}" if len(x) > 1 else f"{mean:{form}}"


def header(*names: str) -> None:
    line(*names)
    print("|" + "---|" * len(names))


def line(*cells) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


# ------------------------------------------------------------------------------------------------ figure 1, table 1


def figure1(out: Path | None, here: Path) -> None:
    if out:
        table = []
        for world in WORLDS:
            if finished(out, f"saturate-{world}"):
                table += [{"world": world, "arm": "saturate", "seed": 0} | r for r in read(out / f"saturate-{world}")]
        for (arm, world, seed), folder in found(out, "*-*-seed*"):
            if arm in ARMS and world in WORLDS:
                who = {"world": world, "arm": arm, "seed": int(seed.removeprefix("seed"))}
                table += [who | r for r in read(folder)]
    else:
        table = load(here / "figure1.csv")
    if not table:
        return
    write(here / "figure1.csv", table)
    found_runs = seeds_of(table, "world", "arm")
    runs = {w: {arm: found_runs[w, arm] for arm in ARMS if (w, arm) in found_runs} for w in WORLDS}
    worlds = [w for w in WORLDS if runs[w]]
    plateau({w: found_runs[w, "saturate"][0] for w in WORLDS if (w, "saturate") in found_runs}, runs, here)
    for world in worlds:
        arms = runs[world]
        start = next(iter(arms.values()))[0][0]
        samples = min(r[-1]["samples"] for group in arms.values() for r in group)
        seconds = min(r[-1]["cpu_seconds"] for group in arms.values() for r in group)
        print(f"\n{WORLDS[world]}; the saturated policy: Q_pos {start['q_pos']:.4f}, pass@64 {start['pass@64']:.4f}")
        header("arm", "seeds", "steps", "samples", "CPU minutes", "Q_pos", "pass@16", "pass@64", "pass@1024",
               "answers that fell", "worst drop")  # fmt: skip
        for axis, where, label in (("samples", samples, "equal samples"), ("cpu_seconds", seconds, "equal time")):
            for arm, group in arms.items():
                names = "q_pos", "pass@16", "pass@64", "pass@1024"
                cells = [shown([at(r, axis, where, name) for r in group]) for name in names]
                cells += [shown([at(r, axis, where, "fell") for r in group], ".3f")]
                cells += [shown([at(r, axis, where, "worst_drop") for r in group], ".3f")]
                spent = [f"{np.mean([at(r, axis, where, name) for r in group]):,.0f}" for name in ("step", "samples")]
                minutes = np.mean([at(r, axis, where, "cpu_seconds") for r in group]) / 60
                line(f"{label}: {ARMS[arm][0]}", len(group), *spent, f"{minutes:.1f}", *cells)
        for axis, unit in AXES:
            for arm in [a for a in ("brorl", "batch") if a in arms and "prorl" in arms]:
                print(f"{ARMS[arm][0]} against {ARMS['prorl'][0]}: {crossing(arms[arm], arms['prorl'], axis, unit)}")
    if not worlds:
        return
    figure, axes = plt.subplots(len(worlds), 4, figsize=(18, 4.2 * len(worlds)), layout="constrained", squeeze=False)
    for panes, world in zip(axes, worlds, strict=True):
        panels = [("q_pos", "samples", 1, "samples generated"), ("q_pos", "cpu_seconds", 60, "CPU minutes")]
        panels += [(name, "samples", 1, "samples generated") for name in ("pass@64", "correct")]
        for axis, (name, x, unit, label) in zip(panes, panels, strict=True):
            curves(axis, runs[world], x, unit, lambda r, name=name: r[name])
            title = {"q_pos": "held-out Q_pos, exact", "correct": "share correct in training"}.get(
                name, f"held-out {name}"
            )
            axis.set(title=title, xlabel=label)
            if unit == 1:
                axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        panes[0].set_ylabel(WORLDS[world])
        panes[-1].legend(fontsize=8)
    figure.suptitle(
        "From a policy saturated with N = 16, each recipe by the paper's rule. Mean over seeds, band: their range"
    )
    figure.savefig(here / "figure1.png", dpi=110)
    plt.close(figure)

    figure, axes = plt.subplots(len(worlds), 3, figsize=(14, 4.2 * len(worlds)), layout="constrained", squeeze=False)
    for panes, world in zip(axes, worlds, strict=True):
        panels = [
            ("correct mass", lambda r: r["q_pos"]),
            ("% of answers above their start", lambda r: 100 * r["improved"]),
            ("worst drop of an answer", lambda r: r["worst_drop"]),
        ]
        for axis, (title, value) in zip(panes, panels, strict=True):
            curves(axis, runs[world], "samples", 1, value)
            axis.set(title=title, xlabel="samples generated")
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        panes[1].axhline(50, color="gray", ls=":", label="weights moved at random: 47% to 57%")
        panes[0].set_ylabel(WORLDS[world])
        panes[1].legend(fontsize=8)
    figure.suptitle("Figure 3's panels on a transformer, summed over all answers of 512 held-out problems")
    figure.savefig(here / "shrinkage.png", dpi=110)
    plt.close(figure)


def plateau(saturating: dict[str, list[dict]], runs: dict[str, dict], here: Path) -> None:
    """The curve that all arms start from the end of, and the arms behind it on the same axes."""
    if not saturating:
        return
    figure, axes = plt.subplots(1, len(saturating), figsize=(7 * len(saturating), 4.4), layout="constrained",
                                squeeze=False)  # fmt: skip
    print("\nthe saturating runs: how much Q_pos gained over the last of their samples")
    header("prompts", "samples", "Q_pos", "pass@64", "gained over the last quarter", "over the last half",
           "an arm's samples", "of these")  # fmt: skip
    for axis, (world, rows) in zip(axes[0], saturating.items(), strict=True):
        end = rows[-1]
        gains = [end["q_pos"] - at(rows, "samples", share * end["samples"], "q_pos") for share in (0.75, 0.5)]
        spent = [r[-1]["samples"] for group in runs[world].values() for r in group]
        arm = (f"{min(spent):,}", f"{min(spent) / end['samples']:.0%}") if spent else ("", "")
        line(WORLDS[world], f"{end['samples']:,}", f"{end['q_pos']:.4f}", f"{end['pass@64']:.4f}",
             *(f"{x:+.4f}" for x in gains), *arm)  # fmt: skip
        for name, color in (("q_pos", "black"), ("pass@64", "gray")):
            axis.plot([r["samples"] for r in rows], [r[name] for r in rows], ".-", ms=5, color=color,
                      label=f"{'Q_pos' if name == 'q_pos' else name}, N = 16, B = 128, to the plateau")  # fmt: skip
        for name, group in runs[world].items():
            for run in group:
                label = f"Q_pos, {ARMS[name][0]}, {len(group)} seed(s)" if run is group[0] else None
                axis.plot([end["samples"] + r["samples"] for r in run], [r["q_pos"] for r in run], lw=0.8,
                          color=ARMS[name][1], label=label)  # fmt: skip
        axis.set(title=WORLDS[world], xlabel="samples generated", ylim=(0.1, 1.02))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(
        "The plateau: held-out scores of the run that saturated the policy, and the arms that go on from it"
    )
    figure.savefig(here / "plateau.png", dpi=110)
    plt.close(figure)


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


def curves(axis, arms: dict[str, list[list[dict]]], x: str, unit: float, value) -> None:
    """Mean and range over seeds, a line an arm."""
    for arm, group in arms.items():
        label, color = ARMS[arm]
        grid = np.linspace(0, min(rows[-1][x] for rows in group), 60)
        lines = np.array([np.interp(grid, [r[x] for r in rows], [value(r) for r in rows]) for rows in group])
        axis.plot(grid / unit, lines.mean(0), color=color, label=f"{label}, {len(group)} seed(s)")
        axis.fill_between(grid / unit, lines.min(0), lines.max(0), color=color, alpha=0.2)
    axis.grid(alpha=0.3)


# ------------------------------------------------------------------------------------------------ regimes


COLORS = {(16, 128): "blue", (16, 1024): "green", (512, 32): "orange", (512, 128): "red"}
STYLES = {1e-4: "-", 3.5e-5: "--", 1e-5: ":"}


def by_recipe(out: Path | None, pattern: str, path: Path) -> tuple[dict, list[dict]]:
    """Runs by N, prompts a step and learning rate, and the rows of all of them, which `path` has without runs."""
    table = load(path) if not out else []
    for (*_, seed), folder in found(out, pattern) if out else []:
        config = json.loads((folder / "config.json").read_text())
        who = {"N": config["rollouts_per_prompt"], "B": config["prompts_per_step"],
               "learning_rate": config["learning_rate"], "seed": int(seed.removeprefix("seed"))}  # fmt: skip
        table += [who | r for r in read(folder)]
    return seeds_of(table, "N", "B", "learning_rate"), table


def regimes(out: Path | None, here: Path) -> None:
    """Every arm that was continued from the compact saturated policy, by N, prompts a step and learning rate."""
    runs, table = by_recipe(out, "*-compact-seed*", here / "regimes.csv")
    if not table:
        return
    write(here / "regimes.csv", table)
    samples = min(r[-1]["samples"] for group in runs.values() for r in group)
    print(f"\nfrom Q_pos {table[0]['q_pos']:.4f}: after {samples:,} samples, and on average over the second half")
    header("N", "B", "learning rate", "seeds", "steps", "CPU minutes", "Q_pos", "Q_pos, second half", "pass@16",
           "pass@1024", "answers that fell")  # fmt: skip
    figure, axes = plt.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
    for who in sorted(runs):
        group, (n, b, rate) = runs[who], who
        cells = [shown([at(r, "samples", samples, name) for r in group]) for name in ("q_pos", "pass@16", "pass@1024")]
        grid = np.linspace(samples / 2, samples, 50)
        half = shown([np.mean([at(r, "samples", x, "q_pos") for x in grid]) for r in group])
        steps, minutes = (np.mean([at(r, "samples", samples, x) for r in group]) for x in ("step", "cpu_seconds"))
        fell = shown([at(r, "samples", samples, "fell") for r in group], ".3f")
        line(n, f"{b:,}", f"{rate:.2g}", len(group), f"{steps:.0f}", f"{minutes / 60:.1f}", cells[0], half, *cells[1:],
             fell)  # fmt: skip
        for axis, name in zip(axes, ("q_pos", "pass@64"), strict=True):
            for rows in group:
                label = f"N = {n}, B = {b:,}, η = {rate:.2g}" if rows is group[0] else None
                look = {"color": f"tab:{COLORS.get((n, b), 'gray')}", "ls": STYLES.get(rate, "-."), "lw": 1}
                axis.plot([r["samples"] for r in rows], [r[name] for r in rows], label=label, **look)
    for axis, name in zip(axes, ("Q_pos, exact", "pass@64"), strict=True):
        axis.set(title=name, xlabel="samples generated")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
    went_on(runs, samples)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.suptitle("Other learning rates and batches, from the saturated policy; a line is a seed")
    figure.savefig(here / "regimes.png", dpi=110)
    plt.close(figure)


def went_on(runs: dict, samples: int) -> None:
    """Of the runs that spent far more than all did: the table at equal samples and at equal time, a row a run."""
    further = [(who, rows) for who in sorted(runs) for rows in runs[who] if rows[-1]["samples"] > 1.5 * samples]
    if not further:
        return
    samples, seconds = (min(rows[-1][x] for _, rows in further) for x in ("samples", "cpu_seconds"))
    print(f"\nthose that went on: {samples:,} samples, or {seconds / 60:.1f} CPU minutes")
    names = "pass@16", "pass@64", "pass@256", "pass@1024", "fell"
    header("", "N", "B", "learning rate", "samples", "CPU minutes", "Q_pos", "its mean over the last third", *names)
    budgets = ("samples", samples, "equal samples"), ("cpu_seconds", seconds, "equal time"), ("step", None, "its end")
    for x, most, label in budgets:
        for (n, b, rate), rows in further:
            limit = most or rows[-1][x]
            spent, minutes = (at(rows, x, limit, name) for name in ("samples", "cpu_seconds"))
            mean = np.mean([at(rows, "samples", s, "q_pos") for s in np.linspace(spent * 2 / 3, spent, 50)])
            line(label, n, f"{b:,}", f"{rate:.2g}", f"{spent:,.0f}", f"{minutes / 60:.1f}",
                 f"{at(rows, x, limit, 'q_pos'):.4f}", f"{mean:.4f}",
                 *(f"{at(rows, x, limit, name):.4f}" for name in names))  # fmt: skip


# ------------------------------------------------------------------------------------------------ hard problems


def hard(out: Path | None, here: Path) -> None:
    """Problems of which 16 rollouts mostly show no answer: pass@k over samples, and at the same Q_pos."""
    runs, table = by_recipe(out, "hard-*-seed*", here / "hard.csv")
    if not table:
        return
    write(here / "hard.csv", table)
    elsewhere(out, here)
    every = [r for group in runs.values() for r in group]
    samples = min(r[-1]["samples"] for r in every)
    level = 0.95 * min(max(x["q_pos"] for x in r) for r in every)  # a Q_pos that all of them reached
    names = "pass@16", "pass@64", "pass@256", "pass@1024"
    start = every[0][0]
    print(f"\nhard problems; the saturated policy: Q_pos {start['q_pos']:.4f}, "
          + ", ".join(f"{name} {start[name]:.4f}" for name in names))  # fmt: skip
    header("", "N", "B", "learning rate", "seeds", "CPU minutes", "samples", "Q_pos", *names, "answers that fell")
    for what in ("samples", "q_pos"):
        for who in sorted(runs):
            group, (n, b, rate) = runs[who], who
            where = [samples if what == "samples" else first_at(r, "q_pos", level, "samples") for r in group]
            spent = [np.mean([at(r, "samples", x, "cpu_seconds") for r, x in zip(group, where, strict=True)]) / 60,
                     np.mean(where)]  # fmt: skip
            cells = [shown([at(r, "samples", x, name) for r, x in zip(group, where, strict=True)])
                     for name in ("q_pos", *names, "fell")]  # fmt: skip
            line(f"equal {'samples' if what == 'samples' else 'Q_pos'}", n, b, f"{rate:.2g}", len(group),
                 f"{spent[0]:.1f}", f"{spent[1]:,.0f}", *cells)  # fmt: skip
    at_levels(runs, here)
    went_on(runs, samples)
    narrow, wide = (sorted(who for who in runs if (who[0] > 16) == x) for x in (False, True))
    for one, other in itertools.product(wide, narrow):
        who = [f"N = {n}, B = {b}, η = {rate:.2g}" for n, b, rate in (one, other)]
        for name in ("q_pos", "pass@16", "pass@64", "pass@256"):
            told = {
                crossing(choose(runs[one]), choose(runs[other]), *x, name) for x in AXES for choose in (list, furthest)
            }
            print(f"{name} of {who[0]} against {who[1]}: " + "; ".join(sorted(told)))
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    panels = ("samples", "q_pos"), ("samples", "pass@64"), ("q_pos", "pass@256")
    for axis, (x, y) in zip(axes, panels, strict=True):
        for n, b, rate in sorted(runs):
            for rows in runs[n, b, rate]:
                label = f"N = {n}, B = {b:,}, η = {rate:.2g}" if rows is runs[n, b, rate][0] else None
                look = {"color": f"tab:{COLORS.get((n, b), 'gray')}", "ls": STYLES.get(rate, "-."), "lw": 1}
                axis.plot([r[x] for r in rows], [r[y] for r in rows], label=label, **look)
        axis.set(
            xlabel="samples generated" if x == "samples" else "Q_pos, exact", title=y if "@" in y else "Q_pos, exact"
        )
        axis.grid(alpha=0.3)
        if x == "samples":
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes[0].legend(fontsize=8)
    axes[2].set_title("pass@256 at the same Q_pos")
    figure.suptitle(
        "Trained and scored on problems that the saturated policy solves 0.1% to 5% of the time; a line is a seed"
    )
    figure.savefig(here / "hard.png", dpi=110)
    plt.close(figure)


def at_levels(runs: dict, here: Path) -> None:
    """A row a seed: what had fallen, and what was left of breadth, where its Q_pos first reached some levels."""
    table = []
    for (n, b, rate), group in sorted(runs.items()):
        for rows in group:
            for level in (0.3, 0.5, 0.65, 0.75):
                if math.isnan(where := first_at(rows, "q_pos", level, "samples")):
                    continue
                who = {"N": n, "B": b, "learning_rate": rate, "seed": rows[0]["seed"], "q_pos": level, "samples": where}
                table.append(
                    who | {name: at(rows, "samples", where, name) for name in ("fell", "pass@64", "pass@1024")}
                )
    if not table:
        return
    write(here / "hard_equal_q_pos.csv", table)
    print("\nhard problems at the same Q_pos, a number a seed")
    header("Q_pos", "N", "B", "learning rate", "samples", "answers that fell", "pass@64", "pass@1024")
    for (level, n, b, rate), rows in sorted(by(table, "q_pos", "N", "B", "learning_rate").items()):
        cells = [" / ".join(f"{r[name]:.3f}" for r in rows) for name in ("fell", "pass@64", "pass@1024")]
        line(level, n, b, f"{rate:.2g}", " / ".join(f"{r['samples']:,.0f}" for r in rows), *cells)


def elsewhere(out: Path | None, here: Path) -> None:
    """What training on hard problems alone left of the 512 held-out ones, of all kinds."""
    table = load(here / "hard_elsewhere.csv") if not out else []
    problems = exact.load_data([str(HERE.parent / "tiny" / "test.jsonl")]) if out else []
    for (_, arm, seed), folder in found(out, "hard-*-seed*") if out else []:
        knows = exact.Knowledge.of(exact.log_probs(*exact.load_policy(str(folder / "model")), problems))
        scores = exact.metrics(knows, knows)
        who = {"arm": arm, "seed": int(seed.removeprefix("seed")), "samples": read(folder)[-1]["samples"]}
        table.append(who | {name: scores[name] for name in ("q_pos", "pass@16", "pass@64", "pass@1024")})
    if not table:
        return
    write(here / "hard_elsewhere.csv", table)
    header(*table[0])
    for row in table:
        line(*(f"{x:.4f}" if isinstance(x, float) else f"{x:,}" if isinstance(x, int) else x for x in row.values()))


def furthest(group: list[list[dict]]) -> list[list[dict]]:
    """The seeds that went as far as any did."""
    end = max(rows[-1]["samples"] for rows in group)
    return [rows for rows in group if rows[-1]["samples"] > 0.9 * end]


def first_at(rows: list[dict], axis: str, where: float, name: str) -> float:
    """`name` where `axis`, which need not rise all along, first reaches `where`; nan if it never does."""
    for before, now in itertools.pairwise(rows):
        if before[axis] < where <= now[axis]:
            return before[name] + (now[name] - before[name]) * (where - before[axis]) / (now[axis] - before[axis])
    return math.nan


# ------------------------------------------------------------------------------------------------ table 2


def table2(out: Path | None, here: Path) -> None:
    """A row a step of every arm; printed: means over the run, and what dynamic sampling kept in the first step."""
    table = load(here / "table2.csv") if not out else []
    for (arm, world, seed), folder in found(out, "*-*-seed*") if out else []:
        if arm not in ARMS or world not in WORLDS:
            continue
        seconds = {row["step"]: row.get("cpu_seconds", math.nan) for row in lines(folder / "timing.jsonl")}
        before = 0
        for row in lines(folder / "metrics.jsonl")[1:]:
            drawn, before = row["samples"] - before, row["samples"]
            table.append({"world": world, "arm": arm, "seed": int(seed.removeprefix("seed")), "step": row["step"],
                          "samples": row["samples"], "pass_rate": row["pass_rate"],
                          "samples_per_cpu_second": drawn / seconds[row["step"]]}
                         | {f"solved_{part}": row[f"solved/{part}"] for part in SOLVED})  # fmt: skip
    if not table:
        return
    write(here / "table2.csv", table)
    print("\nof the groups, how many had so large a share of correct rollouts: first step, and mean of all steps")
    header("prompts", "arm", "kept by dynamic sampling: first step", "all steps", "samples/s of CPU, whole step",
           "of them trained on",
           "none correct", "0-25%", "25-50%", "50-75%", "75-100%", "all")  # fmt: skip
    worlds = [w for w in WORLDS if any(r["world"] == w for r in table)]
    figure, axes = plt.subplots(len(worlds), 3, figsize=(14, 4.2 * len(worlds)), layout="constrained", squeeze=False)
    for panes, world in zip(axes, worlds, strict=True):
        bars = {}
        for arm in (a for a in ARMS if any(r["world"] == world and r["arm"] == a for r in table)):
            steps = [r for r in table if r["world"] == world and r["arm"] == arm]
            means = {k: np.mean([r[k] for r in steps]) for k in steps[0] if k not in ("world", "arm")}
            bars[arm] = [means[f"solved_{part}"] for part in SOLVED]
            trained = np.mean([r["pass_rate"] * r["samples_per_cpu_second"] for r in steps])
            first = [r for r in steps if r["step"] == 1]  # of one and the same policy
            cells = [f"{np.mean([r[f'solved_{part}'] for r in first]):.1%}, {x:.1%}"
                     for part, x in zip(SOLVED, bars[arm], strict=True)]  # fmt: skip
            line(WORLDS[world], ARMS[arm][0], f"{np.mean([r['pass_rate'] for r in first]):.1%}",
                 f"{means['pass_rate']:.1%}", f"{means['samples_per_cpu_second']:,.0f}", f"{trained:,.0f}",
                 *cells)  # fmt: skip
            for seed in sorted({r["seed"] for r in steps}):
                one = [r for r in steps if r["seed"] == seed]
                label = ARMS[arm][0] if seed == steps[0]["seed"] else None
                for axis, name in zip(panes, ("pass_rate", "samples_per_cpu_second"), strict=False):
                    x, y = ([r[key] for r in one] for key in ("samples", name))
                    axis.plot(x, y, color=ARMS[arm][1], lw=0.8, label=label)
        for i, (arm, values) in enumerate(bars.items()):
            panes[2].bar(np.arange(len(SOLVED)) + 0.27 * (i - 1), values, 0.25, color=ARMS[arm][1], label=ARMS[arm][0])
        panes[2].set_xticks(range(len(SOLVED)), ["none", "0-25%", "25-50%", "50-75%", "75-100%", "all"])
        titles = "kept by dynamic sampling", "samples / CPU second, whole step", "share of a group correct"
        for axis, title in zip(panes, titles, strict=True):
            axis.set(title=f"{title} · {WORLDS[world]}")
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
        for axis in panes[:2]:
            axis.set_ylim(0)
            axis.set_xlabel("samples generated")
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.savefig(here / "table2.png", dpi=110)
    plt.close(figure)


# ------------------------------------------------------------------------------------------------ appendix A


def sweep(out: Path | None, here: Path) -> None:
    """N with the same samples a step, so fewer prompts; and with the same 32 prompts a step, so more samples."""
    table, prompts = load(here / "sweep_n.csv") if not out else [], {}
    for (kind, n, seed), folder in found(out, "s*-*-seed*") if out else []:
        if kind in ("sweep", "steps"):
            b = json.loads((folder / "config.json").read_text())["prompts_per_step"]
            who = {"held": kind, "N": int(n), "B": b, "seed": int(seed.removeprefix("seed"))}
            table += [who | r for r in read(folder)]
    if not table:
        return
    write(here / "sweep_n.csv", sorted(table, key=lambda r: (r["N"], r["B"], r["held"], r["seed"], r["step"])))
    runs = {"sweep": {}, "steps": {}}
    for (kind, n, b), group in seeds_of(table, "held", "N", "B").items():
        runs[kind][n], prompts[kind, n] = group, b
    kinds = [kind for kind in runs if runs[kind]]
    figure, axes = plt.subplots(len(kinds), 2, figsize=(11, 4.2 * len(kinds)), layout="constrained", squeeze=False)
    for panes, kind in zip(axes, kinds, strict=True):
        every = [r for group in runs[kind].values() for r in group]
        limits = {x: min(r[-1][x] for r in every) for x in ("samples", "step", "cpu_seconds")}
        labels = {"samples": f"{limits['samples']:,} samples", "step": f"{limits['step']} steps",
                  "cpu_seconds": f"{limits['cpu_seconds']:.0f} CPU seconds"}  # fmt: skip
        if kind == "steps":  # at the cheapest N's samples or time, the others have hardly begun
            labels = {"step": labels["step"]}
        cells = {(n, x, name): shown([at(r, x, limits[x], name) for r in runs[kind][n]])
                 for n in runs[kind] for x in labels for name in ("q_pos", "pass@64")}  # fmt: skip
        held = "16,384 rollouts trained on a step" if kind == "sweep" else "32 prompts trained on a step"
        print(f"\n{held}; from Q_pos {every[0][0]['q_pos']:.4f}, pass@64 {every[0][0]['pass@64']:.4f}")
        header("N", "B", "seeds", "samples in all", "CPU minutes in all",
               *(f"{name} after {label}" for label in labels.values() for name in ("Q_pos", "pass@64")))  # fmt: skip
        for n in sorted(runs[kind]):
            spent = [np.mean([r[-1][x] for r in runs[kind][n]]) for x in ("samples", "cpu_seconds")]
            line(n, f"{prompts[kind, n]:,}", len(runs[kind][n]), f"{spent[0]:,.0f}",
                 f"{spent[1] / 60:.1f}",
                 *(cells[n, x, name] for x in labels for name in ("q_pos", "pass@64")))  # fmt: skip
        for axis, name in zip(panes, ("q_pos", "pass@64"), strict=True):
            for x, label in labels.items():
                points = [interval([at(r, x, limits[x], name) for r in runs[kind][n]]) for n in sorted(runs[kind])]
                mean, half = np.array(points).T
                axis.errorbar(sorted(runs[kind]), mean, half, marker="o", ms=4, capsize=3, label=f"after {label}")
            axis.axhline(every[0][0][name], color="gray", ls=":", label="the saturated policy")
            axis.set_xscale("log", base=2)
            axis.set_xticks(sorted(runs[kind]), [str(n) for n in sorted(runs[kind])])
            axis.set(title=f"{'Q_pos, exact' if name == 'q_pos' else name}", xlabel=f"N, with {held}")
            axis.grid(alpha=0.3)
        panes[0].legend(fontsize=8)
    figure.savefig(here / "sweep_n.png", dpi=110)
    plt.close(figure)


# ------------------------------------------------------------------------------------------------ section 4.2.2


def t_tests(out: Path | None, here: Path) -> None:
    """ttest.py of the first arm and each other, from the sampled evaluation at the end of the runs."""
    table = load(here / "ttest.csv") if not out else []
    for (arm, world, seed), folder in found(out, "*-*-seed*") if out else []:
        first = out / f"prorl-{world}-{seed}"
        if arm not in ARMS or arm == "prorl" or world not in WORLDS or not finished(out, first.name):
            continue
        a, b = ttest.read(first, None), ttest.read(folder, None)
        ttest.check(a, b)
        test = ttest.paired_t_test(*(torch.tensor(x["correct"], dtype=torch.float64) / x["k"] for x in (a, b)))
        who = {"world": world, "a": "prorl", "b": arm, "seed": int(seed.removeprefix("seed")), "responses": a["k"]}
        table.append(who | test._asdict())
    if not table:
        return
    write(here / "ttest.csv", table)
    header("prompts", "B", "seed", "problems", "pass@1 of N = 16, B = 128", "of B", "Δ (95%)", "t", "p, two-tailed")
    for r in table:
        line(WORLDS[r["world"]], ARMS[r["b"]][0], r["seed"], r["instances"], f"{r['mean_a']:.4f}", f"{r['mean_b']:.4f}",
             f"{r['delta']:+.4f} ({r['low']:+.4f} to {r['high']:+.4f})", f"{r['t']:.2f}",
             f"{r['p_two_tailed']:.2g}")  # fmt: skip


# ------------------------------------------------------------------------------------------------ what else differs


def controls(out: Path | None, here: Path) -> None:
    """The arms again from another policy near its plateau, with one thing changed at a time; and the null."""
    table = load(here / "controls.csv") if not out else []
    for (_, arm, seed), folder in found(out, "control-*-seed*") if out else []:
        table += [{"arm": arm, "seed": int(seed.removeprefix("seed"))} | r for r in read(folder)]
    null = load((out or here) / "null.csv")
    if null:
        write(here / "null.csv", null)
    if not table:
        return
    write(here / "controls.csv", table)
    runs = {who: group for (who,), group in seeds_of(table, "arm").items()}
    runs = {name: runs[name] for name in CHANGED if name in runs}
    samples = min(r[-1]["samples"] for group in runs.values() for r in group)
    start = table[0]
    print(f"\nanother policy, near its plateau, compact: Q_pos {start['q_pos']:.4f}, pass@64 {start['pass@64']:.4f}")
    early = max(rows[1]["samples"] for group in runs.values() for rows in group)
    header("arm", "changed", "seeds", f"Q_pos after {early:,} samples", "lowest Q_pos",
           f"Q_pos after {samples:,} samples", "pass@64", "answers that fell")  # fmt: skip
    figure, axes = plt.subplots(1, 2, figsize=(14, 4.8), layout="constrained")
    for name, group in runs.items():
        arm, change = CHANGED[name]
        lowest = shown([min(r["q_pos"] for r in rows) for rows in group])
        cells = [shown([at(rows, "samples", samples, score) for rows in group]) for score in ("q_pos", "pass@64")]
        fell = shown([at(rows, "samples", samples, "fell") for rows in group], ".3f")
        first = shown([at(rows, "samples", early, "q_pos") for rows in group])
        line(ARMS[arm][0], change or "nothing", len(group), first, lowest, *cells, fell)
        for axis, score in zip(axes, ("q_pos", "pass@64"), strict=True):
            grid = np.linspace(0, min(rows[-1]["samples"] for rows in group), 60)
            mean = np.mean([[at(rows, "samples", x, score) for x in grid] for rows in group], axis=0)
            label = f"{ARMS[arm][0]}{', ' if change else ''}{change}, {len(group)} seed(s)"
            axis.plot(grid, mean, color=ARMS[arm][1], ls=LOOKS[name.partition("_")[2]], label=label)
            axis.set(title="Q_pos, exact" if score == "q_pos" else score, xlabel="samples generated")
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle("The arms with one thing changed at a time. Means of seeds")
    figure.savefig(here / "controls.png", dpi=110)
    plt.close(figure)


def equal_q_pos(_, here: Path) -> None:
    """How many answers fell where two arms, and weights that moved at random, have the same Q_pos. Of the CSVs."""
    arms = seeds_of(load(here / "figure1.csv"), "world", "arm").items()
    runs = [({"from": f"figure1, {world}", "arm": arm}, group) for (world, arm), group in arms]
    arms = seeds_of(load(here / "controls.csv"), "arm").items()
    runs += [({"from": "controls", "arm": arm}, group) for (arm,), group in arms]
    runs, table = [(who, group) for who, group in runs if who["arm"] in ARMS], []
    if null := load(here / "null.csv"):
        moved = by([r for r in null if r["amount"]], "seed")
        runs.append(({"from": "controls", "arm": "null"}, list(moved.values())))
    for who, group in runs:
        for level in (0.44, 0.46, 0.48, 0.50, 0.52, 0.54, 0.56, 0.58):
            near = [[r for r in rows if abs(r["q_pos"] - level) <= 0.01 and r["fell"]] for rows in group]
            if not (near := [rows for rows in near if rows]):
                continue
            means = {name: [np.mean([r[name] for r in rows]) for rows in near] for name in ("fell", "pass@64")}
            table.append(who | {"q_pos": level, "seeds": len(near), "checkpoints": sum(map(len, near))}
                         | {name: float(np.mean(x)) for name, x in means.items()}
                         | {f"{name}_lowest": float(min(x)) for name, x in means.items()}
                         | {f"{name}_highest": float(max(x)) for name, x in means.items()})  # fmt: skip
    if not table:
        return
    write(here / "equal_q_pos.csv", table)
    print("\nat the same Q_pos (checkpoints within 0.01): answers that fell, lowest and highest seed; pass@64")
    header("from", "Q_pos", "arm", "seeds", "checkpoints", "answers that fell", "pass@64")
    for r in sorted(table, key=lambda r: (r["from"], r["q_pos"])):
        name = ARMS[r["arm"]][0] if r["arm"] in ARMS else "moved at random"
        line(r["from"], f"{r['q_pos']:.2f}", name, r["seeds"], r["checkpoints"],
             f"{r['fell']:.2f} ({r['fell_lowest']:.2f} to {r['fell_highest']:.2f})", f"{r['pass@64']:.3f}")  # fmt: skip


# ------------------------------------------------------------------------------------------------ Theorem 1


def theorem1(out: Path | None, here: Path) -> None:
    """Theorem 1's sum beside the exact change of Q_pos; and beside it the null q(1-q), which knows no theorem."""
    table = load(here / "theorem1.csv") if not out else []
    for (_, arm, where), folder in found(out, "theorem-*-*") if out else []:
        for row in csv.DictReader((folder / "mass_balance.csv").open()):  # exact_probe.py's
            table.append({"arm": arm, "from": where} | {k: float(v) for k, v in row.items()})
    if not table:
        return
    for row in table:  # a CSV may have them already
        row.setdefault("q(1-q)", row["q_pos"] * (1 - row["q_pos"]))
        for where in ("first_token", "tree"):
            row.setdefault(f"{where}/total", sum(row[f"{where}/{x}"] for x in TERMS))
    write(here / "theorem1.csv", table)
    print()
    header("from", "N", "groups", "mean ΔQ_pos, exact", "estimated", "Q_pos rose", "predicted by", "sign right",
           "right where it rose / fell", "rank correlation (95%, over steps)", "of q(1-q)",
           "of the sum, given q(1-q)", "coupling of all terms")  # fmt: skip
    kinds = sorted({(r["from"], r["arm"]) for r in table}, key=lambda x: (x[0] != "start", x[1] != "prorl"))
    figure, axes = plt.subplots(1, len(kinds), figsize=(4.2 * len(kinds), 4), layout="constrained", squeeze=False,
                                sharex=True, sharey=True)  # fmt: skip
    summary = []
    for axis, (where, arm) in zip(axes[0], kinds, strict=True):
        rows = [r for r in table if (r["from"], r["arm"]) == (where, arm)]
        change, null = (np.array([r[name] for r in rows]) for name in ("change", "q(1-q)"))
        steps = np.array([r["step"] for r in rows])
        rose, rank = change > 0, {}
        for level in ("first_token", "tree"):
            total = np.array([r[f"{level}/total"] for r in rows])
            right = (total > 0) == rose
            terms = np.abs([[r[f"{level}/{x}"] for x in TERMS] for r in rows])
            found_here = {
                "rank_correlation": interval_over_steps(steps, spearman, total, change),
                "of_q(1-q)": interval_over_steps(steps, spearman, null, change),
                "given_q(1-q)": interval_over_steps(steps, partial, total, change, null),
            }
            rank[level] = said(found_here["rank_correlation"])
            summary.append({"from": where, "arm": arm, "predicted_by": level, "groups": len(rows)}
                           | {f"{k}{end}": x for k, v in found_here.items()
                              for end, x in zip(("", "_low", "_high"), v, strict=True)})  # fmt: skip
            line(where, ARMS[arm][0].split(",")[0].removeprefix("N = "), len(rows), f"{change.mean():+.4f}",
                 f"{np.mean([r['estimated_change'] for r in rows]):+.4f}", f"{rose.mean():.1%}",
                 level.replace("_", " "), f"{right.mean():.1%}",
                 f"{right[rose].mean():.0%} / {right[~rose].mean():.0%}", *map(said, found_here.values()),
                 f"{terms[:, 2].sum() / terms.sum():.1%}")  # fmt: skip
        axis.scatter([r["tree/total"] for r in rows], change, s=4, alpha=0.4, color=ARMS[arm][1])
        axis.axhline(0, color="gray", lw=0.8)
        axis.axvline(0, color="gray", lw=0.8)
        title = f"{ARMS[arm][0].split(',')[0]}, from the {where}" + " policy" * (where == "saturated")
        axis.set(
            title=f"{title}\nrank correlation {rank['tree']}; of q(1-q): {spearman(null, change):.2f}",
            xlabel="Theorem 1 along the tree (without η/N)",
            ylabel="ΔQ_pos of the step, exact",
        )
        axis.title.set_fontsize(9)
        axis.set_xscale("symlog", linthresh=1e-4)
        axis.set_yscale("symlog", linthresh=1e-3)
        axis.set_xticks([-0.01, -0.001, 0, 0.001, 0.01, 0.1])
    write(here / "theorem1_null.csv", summary)
    figure.savefig(here / "theorem1.png", dpi=110)
    plt.close(figure)


def coupling(out: Path | None, here: Path) -> None:
    """How far each guess at the value of undrawn tokens takes the unsampled coupling from its exact value."""
    table = load(here / "coupling.csv") if not out else []
    for (_, arm, where), folder in found(out, "theorem-*-*") if out else []:
        rows = [numbers(row) for row in csv.DictReader((folder / "mass_balance.csv").open())]  # exact_probe.py's
        guesses = [name.split("/") for name in rows[0] if "/coupling_undrawn_" in name]
        for level, guess in guesses:
            exactly, guessed = (np.array([r[f"{level}/{x}"] for r in rows]) for x in ("unsampled_coupling", guess))
            table.append({"from": where, "arm": arm, "at": level, "undrawn": guess.removeprefix("coupling_undrawn_"),
                          "groups": len(rows), "exact_mean": exactly.mean(), "guessed_mean": guessed.mean(),
                          "exact_size": np.abs(exactly).mean(), "error": np.abs(guessed - exactly).mean(),
                          "negative_exact": (exactly < 0).mean(), "negative_guessed": (guessed < 0).mean(),
                          "rank_correlation": spearman(guessed, exactly)})  # fmt: skip
    if not table:
        return
    table.sort(key=lambda r: (r["from"] != "start", list(ARMS).index(r["arm"])))
    write(here / "coupling.csv", table)
    print("\nthe unsampled coupling, with each guess at the value of a token that nobody drew")
    header("from", "N", "at", "undrawn", "groups", "mean, exact", "mean, guessed", "mean error / mean size",
           "negative, exact", "guessed", "rank correlation")  # fmt: skip
    for r in table:
        line(r["from"], ARMS[r["arm"]][0].split(",")[0].removeprefix("N = "), r["at"].replace("_", " "), r["undrawn"],
             r["groups"], f"{r['exact_mean']:.1e}", f"{r['guessed_mean']:.1e}", f"{r['error'] / r['exact_size']:.2f}",
             f"{r['negative_exact']:.0%}", f"{r['negative_guessed']:.0%}", f"{r['rank_correlation']:.2f}")  # fmt: skip


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(stats.spearmanr(x, y).statistic)


def partial(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman's correlation of x and y that is left when both are freed of `given`, by ranks."""
    xy, xg, yg = spearman(x, y), spearman(x, given), spearman(y, given)
    return (xy - xg * yg) / math.sqrt((1 - xg**2) * (1 - yg**2))


def interval_over_steps(steps: np.ndarray, statistic, *columns: np.ndarray) -> tuple[float, float, float]:
    """The statistic, with a bootstrap interval of 95% over steps: groups of a step share its update."""
    rng, members = np.random.default_rng(0), [np.flatnonzero(steps == s) for s in np.unique(steps)]
    drawn = [np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))]) for _ in range(1000)]
    low, high = np.percentile([statistic(*(x[i] for x in columns)) for i in drawn], [2.5, 97.5])
    return statistic(*columns), float(low), float(high)


def said(found_here: tuple[float, float, float]) -> str:
    return f"{found_here[0]:.2f} ({found_here[1]:.2f} to {found_here[2]:.2f})"


PARTS = {"figure1": figure1, "ttest": t_tests, "regimes": regimes, "hard": hard, "table2": table2, "sweep": sweep,
         "controls": controls, "equal_q_pos": equal_q_pos, "theorem1": theorem1,
         "coupling": coupling}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=OUT, help="what experiments.py wrote (default: runs/evidence)")
    parser.add_argument(
        "--from_csv", action="store_true", help="no runs: tables and figures anew from the CSVs at --out"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts (default: all)")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="where tables and figures go (default: beside this file)"
    )
    args = parser.parse_args()
    if args.from_csv:
        if not list(args.out.glob("*.csv")):
            parser.exit(2, f"evidence.py: no CSVs at {args.out}: name the folder that has them with --out\n")
    elif not args.runs.is_dir():
        parser.exit(2, f"evidence.py: no runs at {args.runs}: make them with python figures/experiments.py, or see "
                    "what ours came to with --from_csv\n")  # fmt: skip
    elif not any(finished(args.runs, folder.name) for folder in args.runs.iterdir()):
        parser.exit(2, f"evidence.py: no run at {args.runs} is finished: python figures/experiments.py --list\n")
    args.out.mkdir(parents=True, exist_ok=True)
    runs = [] if args.from_csv else [folder.name for folder in sorted(args.runs.glob("*-*")) if folder.is_dir()]
    if left_out := [name for name in runs if not finished(args.runs, name)]:
        print(f"left out, not at their end or not scored yet: {', '.join(left_out)}")
    for part in args.only:
        PARTS[part](None if args.from_csv else args.runs, args.out)


if __name__ == "__main__":
    main()
