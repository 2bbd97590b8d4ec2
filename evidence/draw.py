"""Draw the pictures of the pages and print their tables, from the CSVs in this folder.

    python -m evidence.draw                      every picture and every table
    python -m evidence.draw --only law price     some of them

A row of a CSV is a checkpoint of a run: its step, its samples and processor seconds so far, its scores. A run is its
rows in the order of steps. A group is the runs of one arm, one for each seed.

Tables compare arms at the same samples (or time): where the shortest run ends, by linear interpolation. ± is a 95%
interval over seeds, t s / sqrt(n), with t of n - 1 degrees of freedom. In pictures a line is the mean over seeds, a
band is their range, and the colour is N. A page can show a table below the line <!-- table: NAME -->: the tests
compare it with this file.
"""

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from scipy import stats

import sim
from bench.which_n import noise_at_equal_cost

EVIDENCE = Path(__file__).resolve().parent
COLOURS = {16: "tab:blue", 64: "tab:cyan", 512: "tab:orange"}
ARMS: dict[str, dict[str, Any]] = {
    "prorl": {"label": "N = 16, B = 128", "color": "tab:blue"},
    "brorl": {"label": "N = 512, B = 32", "color": "tab:orange"},
    "batch": {"label": "N = 16, B = 1,024", "color": "tab:blue", "lw": 3},
}
WORLDS = {"compact": "prompts of 9 tokens", "long": "prompts of 128 tokens"}
PROBLEMS = 128  # held-out problems of real_model.csv

Row = dict[str, Any]
Group = list[list[Row]]


# -------------------------------------------------------------------------------------------- rows, runs and groups


def load(name: str) -> list[Row]:
    """Read a CSV. Numbers become int or float."""
    with (EVIDENCE / f"{name}.csv").open() as file:
        return [{column: number(x) for column, x in row.items()} for row in csv.DictReader(file)]


def number(x: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(x)
        except ValueError:
            continue
    return x


def by(rows: list[Row], *names: str) -> dict[tuple, list[Row]]:
    """Collect rows by the values of some columns, in the order of the file."""
    chosen = defaultdict(list)
    for row in rows:
        chosen[tuple(row[name] for name in names)].append(row)
    return chosen


def groups_of(rows: list[Row], *names: str) -> dict[tuple, Group]:
    """Collect the runs of each arm. `names` are the columns that name an arm."""
    groups = defaultdict(list)
    for (*arm, _), run in by(rows, *names, "seed").items():
        groups[tuple(arm)].append(run)
    return groups


def at(run: list[Row], axis: str, where: float, score: str) -> float:
    """Return a score where the run had spent `where`, by linear interpolation; nan after its end."""
    return float(np.interp(where, [r[axis] for r in run], [r[score] for r in run], right=math.nan))


def shortest(groups: Iterable[Group], axis: str) -> float:
    """Return the end of the shortest run."""
    return min(run[-1][axis] for group in groups for run in group)


def interval(x: list[float]) -> tuple[float, float]:
    """Return the mean and half of its 95% interval, nan for one seed."""
    n = len(x)
    half = stats.t.ppf(0.975, n - 1) * np.std(x, ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return float(np.mean(x)), float(half)


def shown(x: list[float], form: str = ".3f") -> str:
    """Format `interval`; for one seed only its value."""
    mean, half = interval(x)
    return f"{mean:{form}}" + (f" ± {half:{form}}" if len(x) > 1 else "")


def time_to(run: list[Row], target: float) -> float:
    """Return the seconds of the first evaluation with this Q_pos, or of the last evaluation if no other has it."""
    return next((row["cpu_seconds"] for row in run if row["q_pos"] >= target), run[-1]["cpu_seconds"])


def measured_ratio(rows: list[Row]) -> float:
    """V_w / V_b over all measurements of all runs of law.csv."""
    measured = [row for row in rows if row["between"] != ""]
    return sum(row["within"] for row in measured) / sum(row["between"] for row in measured)


def at_best_rates(rows: list[Row]) -> list[Row]:
    """Keep the runs of price.csv with the best rate of their world and N.

    The best rate has the highest pass@1 at the end with seed 0; if two are level, the evaluation before it decides.
    """
    kept = []
    for own in by(rows, "world", "N").values():
        rates = by([row for row in own if row["seed"] == 0], "rate")
        best = max(rates, key=lambda rate: [row["pass@1"] for row in reversed(rates[rate])])
        kept += [row for row in own if (row["rate"],) == best]
    return kept


# ----------------------------------------------------------------------------------------------------------- tables


class Table(NamedTuple):
    """A table with a row for each arm. Arms with other values in the columns `apart` have another limit."""

    csv: str
    apart: tuple[str, ...]
    arm: tuple[str, ...]
    scores: tuple[str, ...]
    axis: str = "samples"
    keep: Callable[[list[Row]], list[Row]] = list


def only(column: str, *values: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [row for row in rows if row[column] in values]


TABLES = {
    "figure1": Table("figure1", ("world",), ("arm",), ("q_pos", "pass@64"), keep=only("arm", *ARMS)),
    "controls": Table("controls", (), ("arm",), ("q_pos", "pass@64", "fell")),
    "default_runs": Table("default_runs", ("recipe", "engine", "N"), (), ("pass@1", "pass@4", "pass@16", "pass@64")),
    "law": Table("law", (), ("N", "B", "rate"), ("q_pos",)),
    "objective": Table("objective", ("where",), ("advantage", "N"), ("q_pos", "pass@64", "pass@1024", "fell")),
    "price": Table("price", ("world",), ("N", "rate"), ("pass@1", "pass@16"), "cpu_seconds", at_best_rates),
    "real_plateau": Table("real_plateau", (), ("arm", "N", "B"), ("pass@1", "right", "wrong"), "cpu_seconds",
                          only("arm", "batch", "brorl", "brorl_cool", "prorl")),
    "regimes": Table("regimes", (), ("N", "B", "learning_rate"), ("q_pos", "pass@64", "fell")),
    "sweep_n": Table("sweep_n", (), ("N", "B"), ("q_pos", "pass@64"), keep=only("held", "sweep")),
    "sweep_n_steps": Table("sweep_n", (), ("N", "B"), ("q_pos", "pass@64"), "step", only("held", "steps")),
}  # fmt: skip


def table(name: str) -> str:
    """Make a Markdown table: the arms at the end of the shortest run, mean ± 95% interval over seeds."""
    if name == "hard":
        lines = hard_times(load("hard"))
        lines.insert(1, ["---"] * len(lines[0]))
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    t = TABLES[name]
    heads = [*t.apart, *t.arm, "seeds", f"after {t.axis}", *t.scores]
    lines = [heads, ["---"] * len(heads)]
    for world, rows in by(t.keep(load(t.csv)), *t.apart).items():
        groups = groups_of(rows, *t.arm)
        limit = shortest(groups.values(), t.axis)
        for arm, group in sorted(groups.items(), key=lambda x: [(isinstance(name, str), name) for name in x[0]]):
            cells = [shown([at(run, t.axis, limit, score) for run in group]) for score in t.scores]
            lines.append([*map(str, (*world, *arm, len(group))), f"{limit:,.0f}", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


HARD = {"16": {"color": "tab:blue"}, "64": {"color": "tab:cyan"}, "512": {"color": "tab:orange"},
        "512:64": {"color": "tab:red", "ls": "--"}}  # fmt: skip
TARGETS, SECONDS = (0.01, 0.05), (2, 5, 10, 20, 50, 100)
SCORES = {"q_pos": "Q_pos of held-out hard problems", "q_pos_ordinary": "Q_pos of ordinary held-out problems"}


def hard_times(rows: list[Row]) -> list[list[str]]:
    """Make the lines of the table `hard`: seconds to each target, and the ratio to those of N = 512, seed by seed.

    Both are geometric means over seeds, with a 95% t-interval of the logarithm.
    """
    lines = [["B", "arm", "rate", "seeds", *(f"seconds to {q:g}, over those of 512" for q in TARGETS)]]
    for (b,), own in by([row for row in rows if not row["tuning"]], "B").items():
        runs = by(own, "arm", "seed")
        for (arm,), its in by(own, "arm").items():
            cells = []
            for q in TARGETS:
                logs = {seed: math.log(time_to(run, q)) for (name, seed), run in runs.items() if name == arm}
                wide = {seed: math.log(time_to(run, q)) for (name, seed), run in runs.items() if name == 512}
                both = [logs[seed] - wide[seed] for seed in logs.keys() & wide.keys()]
                cells.append(around(list(logs.values())) + (f", {around(both, '.2f')}" if both and arm != 512 else ""))
            lines.append([str(b), str(arm), f"{its[0]['rate']:g}", str(len(logs)), *cells])
    return lines


def around(logs: list[float], form: str = ".1f") -> str:
    """Format a geometric mean and its 95% interval."""
    mean, half = interval(logs)
    ends = f" ({math.exp(mean - half):{form}} to {math.exp(mean + half):{form}})" if len(logs) > 1 else ""
    return f"{math.exp(mean):{form}}{ends}"


# --------------------------------------------------------------------------------------------------------- pictures


def panels(rows: int, columns: int, width: float, height: float, title: str = "") -> tuple[Figure, np.ndarray]:
    """Make a figure. Returns it and its axes, (rows, columns)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False)


def finish(axis: Axes, title: str, x: str = "samples") -> None:
    axis.set(
        title=title.replace("q_pos", "Q_pos"),
        xlabel={"samples": "samples generated", "cpu_seconds": "processor minutes", "q_pos": "Q_pos"}.get(x, x),
    )
    if x == "samples":
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.grid(alpha=0.3)


def along(group: Group, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Return 60 points up to the end of the shortest run, and each seed's `y` there, (seeds, points)."""
    grid = np.linspace(group[0][0][x], shortest([group], x), 60)
    return grid / (60 if x == "cpu_seconds" else 1), np.array(
        [[at(run, x, point, y) for point in grid] for run in group]
    )


def curve(axis: Axes, group: Group, x: str, y: str, label: str, **style) -> None:
    """Plot the mean over the seeds of an arm, and a band for their range."""
    grid, seeds = along(group, x, y)
    (drawn,) = axis.plot(grid, seeds.mean(0), label=f"{label}, {len(group)} seed{'s' * (len(group) > 1)}", **style)
    axis.fill_between(grid, seeds.min(0), seeds.max(0), color=drawn.get_color(), alpha=0.15, linewidth=0)


def figure1(path: Path) -> None:
    """Draw the run that saturated the policy with N = 16, and the three arms from its end."""
    groups = groups_of(load("figure1"), "world", "arm")
    figure, axes = panels(2, 4, 18, 8, "N = 16 to the plateau, then each recipe by the paper's rule")
    for panes, (world, prompts) in zip(axes, WORLDS.items(), strict=True):
        for score in ("q_pos", "pass@64"):
            dashes = "-" if score == "q_pos" else ":"
            curve(panes[0], groups[world, "saturate"], "samples", score, score, color="black", ls=dashes)
        shows = (("samples", "q_pos"), ("cpu_seconds", "q_pos"), ("samples", "pass@64"))
        for axis, (x, score) in zip(panes[1:], shows, strict=True):
            for arm, look in ARMS.items():
                curve(axis, groups[world, arm], x, score, **look)
            finish(axis, f"from the plateau: held-out {score}", x)
        finish(panes[0], f"{prompts}: N = 16 to the plateau")
        panes[0].legend()
        panes[1].legend()
    figure.savefig(path, dpi=110)


def figure3(path: Path) -> None:
    """Draw sim.py's picture from the rows of its CSV."""
    curves = []
    for (seed, n), rows in by(load("figure3"), "seed", "N").items():
        values = {panel: np.array([[row[panel] for row in rows]]) for panel in sim.PANELS}
        curves.append(sim.Curves(seed, (n,), np.array([row["step"] for row in rows]), values))
    sim.plot_figure3(path, curves, "three seeds, mean and range")


def default_runs(path: Path) -> None:
    """Draw the two recipes and the two engines from the embedded policy."""
    figure, axes = panels(1, 2, 11, 4.2, "Both recipes from the embedded policy, which is not saturated")
    for (n, engine, recipe), group in groups_of(load("default_runs"), "N", "engine", "recipe").items():
        for axis, score in zip(axes[0], ("pass@1", "pass@64"), strict=True):
            dashes = "-" if engine == "torch" else "--"
            curve(axis, group, "samples", score, f"N = {n} ({recipe}, {engine})", color=COLOURS[n], ls=dashes)
            finish(axis, f"held-out {score}")
            axis.legend()
    figure.savefig(path, dpi=110)


def law(path: Path) -> None:
    """Draw Q_pos by N for each rate, and the law's noise at equal samples with the measured V_w / V_b."""
    rows = load("law")
    ratio, ns = measured_ratio(rows), sorted({row["N"] for row in rows})
    figure, ((left, right),) = panels(1, 2, 11, 4.2)
    for ((rate,), own), color in zip(sorted(by(rows, "rate").items()), ("gray", "black", "tab:pink"), strict=True):
        ends = {n: [row["q_pos"] for row in seeds] for (n,), seeds in sorted(by(own, "N").items())}
        left.plot(list(ends), [np.mean(x) for x in ends.values()], "o-", color=color, label=f"learning rate {rate:g}")
        low, high = ([end(x) for x in ends.values()] for end in (min, max))
        left.fill_between(list(ends), low, high, color=color, alpha=0.15, linewidth=0)
    left.set(title="held-out Q_pos after 81,920 samples", xlabel="N")
    left.legend()
    grid = np.geomspace(2, 512, 100)
    right.plot(grid, [noise_at_equal_cost(n, ratio) / noise_at_equal_cost(16, ratio) for n in grid], color="black")
    right.set(title=f"the law: noise over that of N = 16, V_w / V_b = {ratio:.2g}", xlabel="N", yscale="log")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks(ns, [str(n) for n in ns])
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def objective(path: Path) -> None:
    """Draw pass@1 and pass@64 over time, and one against the other, for each --advantage and N."""
    dashes = {"mean_centred": "-", "group_std": ":", "group_mean": "--"}
    figure, axes = panels(1, 3, 15, 5, "From a policy near its plateau, by --advantage and N")
    for (kind, n), group in groups_of(only("where", "near")(load("objective")), "advantage", "N").items():
        look = {"color": COLOURS.get(n, "black"), "ls": dashes[kind]}
        for axis, score in zip(axes[0, :2], ("q_pos", "pass@64"), strict=True):
            curve(axis, group, "cpu_seconds", score, f"{kind}, N = {n}", **look)
            finish(axis, f"held-out {score}", "cpu_seconds")
        way = [along(group, "samples", score)[1].mean(0) for score in ("q_pos", "pass@64")]
        axes[0, 2].plot(*way, **look)
        axes[0, 2].plot(way[0][-1], way[1][-1], "o", color=look["color"])
    axes[0, 2].set(ylabel="pass@64")
    finish(axes[0, 2], "both scores: a dot is the end of an arm", "q_pos")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)


def price(path: Path) -> None:
    """Draw pass@1 after equal time against the noise of a step at equal time, predicted with V_w / V_b along a run."""
    predicted = by(load("price_predicted"), "world", "N")
    figure, axes = panels(1, 4, 16, 4, "Expensive and cheap prompts: less noise predicted, more learned? 95% intervals")
    for axis, ((world,), rows) in zip(axes[0], by(at_best_rates(load("price")), "world").items(), strict=True):
        groups = groups_of(rows, "N")
        limit = shortest(groups.values(), "cpu_seconds")
        for (n,), group in groups.items():
            noise = predicted[world, n][0]["noise_time_along"]
            score, half = interval([at(run, "cpu_seconds", limit, "pass@1") for run in group])
            axis.errorbar(noise, score, half, fmt="ko", capsize=2)
            axis.annotate(f"{n}", (noise, score), (5, 5), textcoords="offset points")
        axis.set(ylabel="pass@1")
        finish(axis, f"{world}: {limit:.0f} s, {len(group)} seed(s)", "predicted noise, over that of the best N")
    figure.savefig(path, dpi=110)


def real_model(path: Path) -> None:
    """Draw SmolLM2's scores against samples and against time, with 95% intervals over the held-out problems."""
    figure, axes = panels(1, 2, 11, 4.2, "SmolLM2-135M-Instruct: the largest of six numbers")
    t = stats.t.ppf(0.975, PROBLEMS - 1)
    for (n, b, seed), run in by(load("real_model"), "N", "B", "seed").items():
        minutes = np.cumsum([row["cpu_seconds"] or 0 for row in run]) / 60
        scored = [i for i, row in enumerate(run) if row["eval/pass@1"] != ""]
        score, error = ([run[i][name] for i in scored] for name in ("eval/pass@1", "eval/pass@1_se"))
        for axis, x in zip(axes[0], (np.array([row["samples"] for row in run]), minutes), strict=True):
            axis.errorbar([x[i] for i in scored], score, t * np.array(error), color=COLOURS[n], capsize=2, marker="o",
                          ls="--" if seed else "-", label=f"N = {n}, B = {b}, seed {seed}")  # fmt: skip
    finish(axes[0, 0], "held-out pass@1")
    finish(axes[0, 1], "held-out pass@1", "cpu_seconds")
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)


def real_plateau(path: Path) -> None:
    """Draw SmolLM2's score and the length of its answers, to the plateau of N = 16 and in four arms from there."""
    groups = groups_of(load("real_plateau"), "arm", "N", "B")
    spent = shortest([groups["saturate", 16, 8]], "cpu_seconds")
    dashes = {"brorl_cool": "-.", "batch": "--"}
    figure, axes = panels(1, 2, 12, 4.6, "SmolLM2-135M on arithmetic: N = 16 to its plateau, and four arms from there")
    for (arm, n, b), group in groups.items():
        begin = 0 if arm == "saturate" else spent
        later = [[row | {"cpu_seconds": row["cpu_seconds"] + begin} for row in run] for run in group]
        color = COLOURS[n] if begin else "black"
        for axis, score in zip(axes[0], ("pass@1", "tokens"), strict=True):
            curve(axis, later, "cpu_seconds", score, f"{arm}: N = {n}, B = {b}", color=color, ls=dashes.get(arm, "-"))
    finish(axes[0, 0], "held-out pass@1", "cpu_seconds")
    finish(axes[0, 1], "tokens of an answer", "cpu_seconds")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def steps(run: list[Row], grid: np.ndarray, score: str) -> np.ndarray:
    """Return a score at these processor seconds: that of the last evaluation, as rollouts change no weights."""
    before = np.searchsorted([row["cpu_seconds"] for row in run], grid, side="right") - 1
    return np.array([row[score] for row in run])[before]


def hard(path: Path) -> None:
    """Draw Q_pos of the hard and of the ordinary held-out problems over processor time, each arm at its best rate."""
    rows = [row for row in load("hard") if not row["tuning"]]
    sizes = list(dict.fromkeys(row["B"] for row in rows))
    title = "Hard problems, prompts of 124 tokens: mean over seeds and range. A run that has ended keeps its last score"
    figure, axes = panels(len(sizes), 2, 12, 4.6 * len(sizes), title)
    for (b, arm), group in groups_of(rows, "B", "arm").items():
        look = HARD[str(arm)]
        ordinary = [[row for row in run if row["q_pos_ordinary"] != ""] for run in group]
        for axis, runs, score in zip(axes[sizes.index(b)], (group, ordinary), SCORES, strict=True):
            grid = np.geomspace(SECONDS[0], max(run[-1]["cpu_seconds"] for run in runs), 200)
            seeds = np.array([steps(run, grid, score) for run in runs])
            axis.plot(grid, seeds.mean(0), label=f"N = {arm}".replace(":", ", trained on "), **look)
            axis.fill_between(grid, seeds.min(0), seeds.max(0), color=look["color"], alpha=0.15, linewidth=0)
    for axis, score, b in zip(axes.flat, [*SCORES] * len(sizes), np.repeat(sizes, 2), strict=True):
        axis.set(xscale="log", yscale="log" if score == "q_pos" else "linear")
        axis.set_xticks(SECONDS, [str(x) for x in SECONDS])
        axis.minorticks_off()
        finish(axis, f"B = {b}: {SCORES[score]}", "processor seconds")
        for q in TARGETS if score == "q_pos" else ():
            axis.axhline(q, color="gray", lw=0.8)
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)


PICTURES = (figure1, figure3, default_runs, law, objective, price, real_model, real_plateau, hard)


def main(argv: list[str] | None = None) -> None:
    pictures = {picture.__name__: picture for picture in PICTURES}
    names = list(dict.fromkeys([*pictures, *TABLES]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some of them (default: all)")
    args = parser.parse_args(argv)
    for name in args.only:
        if name in TABLES:
            print(f"<!-- table: {name} -->\n{table(name)}")
        if name in pictures:
            pictures[name](EVIDENCE / f"{name}.png")
            print(f"wrote {EVIDENCE / name}.png\n")


if __name__ == "__main__":
    main()
