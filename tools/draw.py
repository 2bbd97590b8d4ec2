"""Draw the pictures of the pages and print their tables, from the CSVs in docs/evidence/.

    python -m tools.draw

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
from scipy import special, stats

import sim
from tools import noise_law
from trainer.pictures import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, common_legend, finish, legend_below, panels

EVIDENCE = Path(__file__).resolve().parent.parent / "docs" / "evidence"
ARMS: dict[str, dict[str, Any]] = {
    "prorl": {"label": "N = 16, B = 128", "color": sim.colour_of(16)},
    "brorl": {"label": "N = 512, B = 32", "color": sim.colour_of(512)},
    "batch": {"label": "N = 16, B = 1,024", "color": sim.colour_of(16), "lw": 3},
}
AXES = {"samples": "samples generated", "cpu_seconds": "processor minutes"}  # column: name and unit
WORLDS = {"compact": "prompts of 9 tokens", "long": "prompts of 128 tokens"}

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


def with_interval(x: list[float], form: str = ".3f") -> str:
    """Format `interval`; for one seed only its value."""
    mean, half = interval(x)
    return f"{mean:{form}}" + (f" ± {half:{form}}" if len(x) > 1 else "")


def time_to(run: list[Row], target: float) -> float:
    """Return the seconds of the first evaluation with this Q_pos, or of the last evaluation if no other has it."""
    return next((row["cpu_seconds"] for row in run if row["q_pos"] >= target), run[-1]["cpu_seconds"])


def at_best_rates(rows: list[Row]) -> list[Row]:
    """Keep the runs of prompt_cost.csv with the best rate of their world and N.

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
    "plateau": Table("plateau", ("world",), ("arm",), ("q_pos", "pass@64"), keep=only("arm", *ARMS)),
    "one_setting_changed": Table("one_setting_changed", (), ("arm",), ("q_pos", "pass@64", "fell")),
    "noise_law_runs": Table("noise_law_runs", (), ("N", "B", "rate"), ("q_pos",)),
    "advantages": Table("advantages", ("where",), ("advantage", "N"), ("q_pos", "pass@64", "pass@1024", "fell")),
    "prompt_cost": Table("prompt_cost", ("world",), ("N", "rate"), ("pass@1", "pass@16"), "cpu_seconds", at_best_rates),
    "smollm_plateau": Table("smollm_plateau", (), ("arm", "N", "B"), ("pass@1", "right", "wrong"), "cpu_seconds",
                          only("arm", "batch", "brorl", "brorl_cool", "prorl")),
    "rate_and_batch": Table("rate_and_batch", (), ("N", "B", "learning_rate"), ("q_pos", "pass@64", "fell")),
    "n_16_to_2048": Table("n_16_to_2048", (), ("N", "B"), ("q_pos", "pass@64"), keep=only("held", "sweep")),
    "n_16_to_2048_steps": Table("n_16_to_2048", (), ("N", "B"), ("q_pos", "pass@64"), "step", only("held", "steps")),
}  # fmt: skip


def table(name: str) -> str:
    """Make a Markdown table."""
    heads, *lines = SPECIAL[name](load(name)) if name in SPECIAL else compared(TABLES[name])
    return "".join(f"| {' | '.join(line)} |\n" for line in [heads, ["---"] * len(heads), *lines])


def compared(t: Table) -> list[list[str]]:
    """Make the lines of a table: the arms at the end of the shortest run, mean ± 95% interval over seeds."""
    lines = [[*t.apart, *t.arm, "seeds", f"after {t.axis}", *t.scores]]
    for world, rows in by(t.keep(load(t.csv)), *t.apart).items():
        groups = groups_of(rows, *t.arm)
        limit = shortest(groups.values(), t.axis)
        for arm, group in sorted(groups.items(), key=lambda x: [(isinstance(name, str), name) for name in x[0]]):
            cells = [with_interval([at(run, t.axis, limit, score) for run in group]) for score in t.scores]
            lines.append([*map(str, (*world, *arm, len(group))), f"{limit:,.0f}", *cells])
    return lines


TARGETS, SECONDS = (0.01, 0.05), (2, 5, 10, 20, 50, 100)


def hard_times(rows: list[Row]) -> list[list[str]]:
    """Make the lines of the table `hard_prompts`: seconds to each target, and their ratio to the seconds of N = 512.

    The ratio is taken seed by seed.
    Both are geometric means over seeds, with a 95% t-interval of the logarithm.
    """
    heads = [(f"seconds to {q:g}", "over those of N = 512") for q in TARGETS]
    lines = [["B", "N", "rate", "seeds", *(head for pair in heads for head in pair)]]
    for (b,), own in by([row for row in rows if not row["tuning"]], "B").items():
        runs = by(own, "arm", "seed")
        for (arm,), its in by(own, "arm").items():
            cells = []
            for q in TARGETS:
                logs = {seed: math.log(time_to(run, q)) for (name, seed), run in runs.items() if name == arm}
                wide = {seed: math.log(time_to(run, q)) for (name, seed), run in runs.items() if name == 512}
                both = [logs[seed] - wide[seed] for seed in logs.keys() & wide.keys()]
                cells += [around([*logs.values()]), around(both, ".2f") if both and arm != 512 else ""]
            name = str(arm).replace(":", ", trained on ")
            lines.append([str(b), name, f"{its[0]['rate']:g}", str(len(logs)), *cells])
    return lines


ROUNDING = ("nearest", "engine_only", "dithered", "float32")  # the arms of rounding.csv


def rounded(rows: list[Row]) -> list[list[str]]:
    """Make the lines of the table `rounding`: the last step of each arm, and its pass@1 less the start's.

    Mean over seeds with a 95% t-interval.
    """
    scores = {"share_seen": ".3f", "engine_kl": ".1e", "tis_capped_fraction": ".4f", "kl_ref": ".4f"}
    lines = [["learning rate", "arm", "seeds", *scores, "pass@1", "gain"]]
    for (rate,), own in sorted(by(rows, "rate").items()):
        for (arm,), runs in sorted(groups_of(own, "arm").items(), key=lambda x: ROUNDING.index(x[0][0])):
            cells = [with_interval([run[-1][score] for run in runs], form) for score, form in scores.items()]
            last = [run[-1]["eval/pass@1"] for run in runs]
            gain = [run[-1]["eval/pass@1"] - run[0]["eval/pass@1"] for run in runs]
            lines.append([f"{rate:g}", arm, str(len(runs)), *cells, with_interval(last), with_interval(gain)])
    return lines


ADAPTERS = ("full", "rank 16", "rank 1")  # the arms of lora.csv


def adapters(rows: list[Row]) -> list[list[str]]:
    """Make the lines of the table `lora`: held-out pass@1 of each arm and rate after half and all of its samples.

    Mean over seeds with a 95% t-interval. kl_ref: the range over the seeds of a run's highest value.
    """
    middle, last = sorted({row["step"] for row in rows if row["eval/pass@1"] != ""})[-2:]
    lines = [["arm", "learning rate", "seeds", f"pass@1 after {middle} steps", f"after {last}", "highest kl_ref"]]
    for (arm, rate), runs in groups_of(rows, "arm", "rate").items():
        cells = [with_interval([run[step]["eval/pass@1"] for run in runs]) for step in (middle, last)]
        highest = sorted(max(row["kl_ref"] for row in run[1:]) for run in runs)
        ends = [highest[0], highest[-1]][: len(runs)]
        lines.append([arm, f"{rate:g}", str(len(runs)), *cells, " to ".join(f"{x:.2g}" for x in ends)])
    return [lines[0], *sorted(lines[1:], key=lambda line: (ADAPTERS.index(line[0]), float(line[1])))]


MODELS = {"embedded": "tiny policy", "smollm": "SmolLM2-135M"}  # models of recipes.csv


def by_recipe(rows: list[Row]) -> list[list[str]]:
    """Make the lines of the table `recipes`: the start, and the last evaluation of each recipe."""
    counts, scores = ("samples", "trained", "seconds"), ("pass@1", "pass@4", "pass@64")
    lines = [["model", "N", "B", "seeds", "steps", "samples drawn", "trained on", "seconds", *scores]]

    def numbers(group: Group, where: int) -> list[str]:
        found = [run[where] for run in group]
        known = [score for score in scores if found[0][score] != ""]  # SmolLM2 has no pass@64
        cells = {score: with_interval([row[score] for row in found]) for score in known}
        return [*(f"{np.mean([row[x] for row in found]):,.0f}" for x in counts), *(cells.get(x, "") for x in scores)]

    for (model,), own in by(rows, "model").items():
        groups = sorted(groups_of(own, "N", "B").items(), reverse=True)
        lines.append([MODELS[model], "start", "", "", "0", *numbers([groups[0][1][0]], 0)])
        for (n, b), group in groups:
            arm = [MODELS[model], str(n), str(b), str(len(group)), str(group[0][-1]["step"])]
            lines.append([*arm, *numbers(group, -1)])
    return lines


def predicted_seconds(rows: list[Row]) -> list[list[str]]:
    """Make the lines of the table `step_seconds`: predicted and measured seconds of a step, and their ratio."""
    sizes = sorted({row["n"] for row in rows})
    lines = [["model", "prompt tokens", *(f"N = {n}" for n in sizes)]]
    for (model, tokens), own in by(rows, "model", "prompt_tokens").items():
        found = {row["n"]: f"{row['predicted']:.3g} / {row['measured']:.3g} ({row['ratio']:.2f})" for row in own}
        lines.append([str(model), str(tokens), *(found.get(n, "not measured") for n in sizes)])
    return lines


def around(logs: list[float], form: str = ".1f") -> str:
    """Format a geometric mean and its 95% interval."""
    mean, half = interval(logs)
    ends = f" ({math.exp(mean - half):{form}} to {math.exp(mean + half):{form}})" if len(logs) > 1 else ""
    return f"{math.exp(mean):{form}}{ends}"


SPECIAL: dict[str, Callable[[list[Row]], list[list[str]]]] = {
    "hard_prompts": hard_times, "rounding": rounded, "lora": adapters, "recipes": by_recipe,
    "step_seconds": predicted_seconds,
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------- pictures


def curve(axis: Axes, group: Group, x: str, y: str, label: str, **style) -> None:
    """Plot an arm up to the end of its shortest run: the mean over its seeds, and a band for their range."""
    grid = np.linspace(group[0][0][x], shortest([group], x), 60)
    seeds = np.array([[at(run, x, point, y) for point in grid] for run in group])  # (seeds, points)
    points = grid / 60 if x == "cpu_seconds" else grid
    (drawn,) = axis.plot(points, seeds.mean(0), label=f"{label}, {len(group)} seed{'s' * (len(group) > 1)}", **style)
    axis.fill_between(points, seeds.min(0), seeds.max(0), color=drawn.get_color(), alpha=0.15, linewidth=0)


def plateau(path: Path) -> None:
    """Draw the run that saturated the policy with N = 16, and the three arms from its end."""
    groups = groups_of(load("plateau"), "world", "arm")
    figure, axes = panels(4, 2, "N = 16 to the plateau, then each recipe by the paper's rule")
    for panes, (world, prompts) in zip(axes.T, WORLDS.items(), strict=True):
        for score, dashes in (("q_pos", "-"), ("pass@64", ":")):
            label = score.replace("q_pos", "Q_pos")
            curve(panes[0], groups[world, "saturate"], "samples", score, label, color="black", ls=dashes)
        finish(panes[0], f"{prompts}\nN = 16 to the plateau", AXES["samples"])
        legend_below(panes[0])
        shows = (("samples", "q_pos"), ("cpu_seconds", "q_pos"), ("samples", "pass@64"))
        for axis, (x, score) in zip(panes[1:], shows, strict=True):
            for arm, look in ARMS.items():
                curve(axis, groups[world, arm], x, score, **look)
            finish(axis, f"from the plateau: held-out {score}".replace("q_pos", "Q_pos"), AXES[x])
        legend_below(panes[-1], columns=2)
    figure.savefig(path)


def figure3(path: Path) -> None:
    """Draw sim.py's picture from the rows of its CSV."""
    curves = []
    for (seed, n), rows in by(load("figure3"), "seed", "N").items():
        values = {panel: np.array([[row[panel] for row in rows]]) for panel in sim.PANELS}
        curves.append(sim.Curves(seed, (n,), np.array([row["step"] for row in rows]), values))
    sim.plot_figure3(path, curves, "three seeds, mean and range")


def smollm_plateau(path: Path) -> None:
    """Draw SmolLM2's score and the length of its answers, to the plateau of N = 16 and in four arms from there."""
    groups = groups_of(load("smollm_plateau"), "arm", "N", "B")
    spent = shortest([groups["saturate", 16, 8]], "cpu_seconds")
    looks = {  # arm -> label and dashes
        "saturate": ("to the plateau, N = 16, B = 8", "-"), "prorl": ("N = 16, B = 8, η = 2e-5", "-"),
        "batch": ("N = 16, B = 64, η = 5.7e-5", "--"), "brorl": ("N = 512, B = 2, η = 5.7e-5", "-"),
        "brorl_cool": ("N = 512, B = 2, η = 2e-5", "-."),
    }  # fmt: skip
    figure, axes = panels(1, 2, "SmolLM2-135M on arithmetic: N = 16 to its plateau, and four arms from there")
    for (arm, n, _), group in groups.items():
        begin, (label, dashes) = 0 if arm == "saturate" else spent, looks[arm]
        later = [[row | {"cpu_seconds": row["cpu_seconds"] + begin} for row in run] for run in group]
        color = sim.colour_of(n) if begin else "black"
        for axis, score in zip(axes[0], ("pass@1", "tokens"), strict=True):
            curve(axis, later, "cpu_seconds", score, label, color=color, ls=dashes)
    finish(axes[0, 0], "held-out pass@1", AXES["cpu_seconds"])
    finish(axes[0, 1], "tokens of an answer", AXES["cpu_seconds"])
    common_legend(figure, columns=2)
    figure.savefig(path)


def hard_prompts(path: Path) -> None:
    """Draw Q_pos of the hard held-out problems over processor time, for each B, each arm at its best rate.

    Between two evaluations the curve has the score of the earlier one, because rollouts change no weights.
    """
    rows = [row for row in load("hard_prompts") if not row["tuning"]]
    title = "Hard problems, prompts of 124 tokens: mean and range. A run that has ended keeps its score"
    figure, (axes,) = panels(1, 2, title)
    for axis, ((b,), own) in zip(axes, by(rows, "B").items(), strict=True):
        for (arm,), group in groups_of(own, "arm").items():
            look = {"color": sim.colour_of(arm), "ls": "-"} if isinstance(arm, int) else {"color": PURPLE, "ls": "--"}
            grid = np.geomspace(SECONDS[0], max(run[-1]["cpu_seconds"] for run in group), 200)
            before = [np.searchsorted([row["cpu_seconds"] for row in run], grid, side="right") - 1 for run in group]
            seeds = np.array([[run[i]["q_pos"] for i in which] for run, which in zip(group, before, strict=True)])
            axis.plot(grid, seeds.mean(0), label=f"N = {arm}".replace(":", ", trained on "), **look)
            axis.fill_between(grid, seeds.min(0), seeds.max(0), color=look["color"], alpha=0.15, linewidth=0)
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(SECONDS, [str(x) for x in SECONDS])
        axis.minorticks_off()
        for q in TARGETS:
            axis.axhline(q, color="gray", lw=0.8)
        finish(axis, f"B = {b}: Q_pos of held-out hard problems", "processor seconds")
    common_legend(figure, columns=4)
    figure.savefig(path)


CASES = {  # worlds of prompt_cost_predicted.csv
    "tiny-short": ("tiny, 16 tokens", BLUE), "tiny-long": ("tiny, 512 tokens", SKY),
    "smollm-short": ("SmolLM2, 30 tokens", VERMILLION), "smollm-long": ("SmolLM2, 480 tokens", ORANGE),
}  # fmt: skip


def noise_over_n(path: Path) -> None:
    """Draw the noise law over N at equal time for four measured tasks, and predicted over measured seconds of steps."""
    title = "The law for four measured tasks, and the seconds that the tool predicts"
    figure, (axes,) = panels(1, 2, title, size=(5.4, 4.2))
    sizes = np.geomspace(2, 1024, 200)
    for (world,), rows in by(load("prompt_cost_predicted"), "world").items():
        label, colour = CASES[world]
        cost, ratio = rows[0]["prompt_cost"], rows[0]["ratio_start"]
        noise = noise_law.noise_at_equal_time(sizes, ratio, cost + sizes)
        label += f": prompt = {cost:.0f} rollouts, V_w / V_b = {ratio:,.0f}"
        axes[0].plot(sizes, noise / noise.min(), color=colour, label=label)
    axes[0].set(xscale="log", yscale="log", ylim=(0.95, 30))
    axes[0].set_xticks((2, 4, 16, 64, 256, 1024), ("2", "4", "16", "64", "256", "1024"))
    axes[0].set_yticks((1, 2, 5, 10, 20), ("1", "2", "5", "10", "20"))
    axes[0].minorticks_off()
    legend_below(axes[0], columns=1)
    finish(axes[0], "noise of the mean gradient in equal time, least = 1", "rollouts per prompt N")
    for (model, tokens), rows in by(load("step_seconds"), "model", "prompt_tokens").items():
        points = [row["measured"] for row in rows], [row["ratio"] for row in rows]
        axes[1].plot(*points, "o-", label=f"{model}, {tokens} tokens", alpha=0.8)
    axes[1].axhspan(0.75, 1.33, color=GREEN, alpha=0.12, lw=0)
    axes[1].axhline(1, color="tab:gray", lw=0.8, ls="--")
    axes[1].set(xscale="log", yscale="log", ylim=(0.4, 2.5))
    axes[1].set_yticks((0.5, 0.75, 1, 1.33, 2), ("0.5", "0.75", "1", "1.33", "2"))
    axes[1].minorticks_off()
    legend_below(axes[1], columns=2)
    finish(axes[1], "predicted / measured seconds, N = 4, 16, 64, 256", "measured seconds of a step")
    figure.savefig(path)


def informative(p: np.ndarray, n: float) -> np.ndarray:
    """Return 1 - p^N - (1-p)^N, the probability that dynamic sampling keeps a group: 0 < #correct < N."""
    return 1 - p**n - (1 - p) ** n


def informative_share(a: float, b: float, n: np.ndarray) -> np.ndarray:
    """Return the mean of `informative` over a Beta(a, b) distribution of p."""

    def moment(a: float, b: float) -> np.ndarray:  # E[p^N]
        return np.exp(special.betaln(a + n, b) - special.betaln(a, b))

    return 1 - moment(a, b) - moment(b, a)


def what_n_reaches(path: Path) -> None:
    """Draw panel 2 of docs/n.html without its slider: which groups are informative, and which share of a data set."""
    title = "Computed: which groups of N rollouts have right and wrong ones, 1 - p^N - (1 - p)^N?"
    figure, (axes,) = panels(1, 2, title)
    p, sizes = special.expit(np.linspace(-8, 8, 321)), np.geomspace(2, 1024, 100)
    for n in (2, 16, 64, 512):
        axes[0].plot(p, informative(p, n), label=f"N = {n}", color=sim.colour_of(n))
    ticks = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    axes[0].set_xscale("logit")
    axes[0].set_xticks(ticks, [str(x) for x in ticks])
    axes[0].minorticks_off()
    legend_below(axes[0])
    finish(axes[0], "probability that a group is informative", "pass rate p of the prompt")
    for name, (a, b), dashes in (
        ("uniform pass rates", (1, 1), "-"),
        ("hard: Beta(0.3, 3), mean 0.09", (0.3, 3), "--"),
    ):
        axes[1].plot(sizes, informative_share(a, b, sizes), label=name, color="black", ls=dashes)
    axes[1].set(xscale="log", ylim=(0, 1.03))
    axes[1].set_xticks((2, 4, 16, 64, 256, 1024), ("2", "4", "16", "64", "256", "1024"))
    axes[1].minorticks_off()
    legend_below(axes[1])
    finish(axes[1], "share of a data set's prompts that are informative", "rollouts per prompt N")
    figure.savefig(path)


PICTURES = (plateau, figure3, smollm_plateau, hard_prompts, noise_over_n, what_n_reaches)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name in (*TABLES, *SPECIAL):
        print(f"<!-- table: {name} -->\n{table(name)}")
    for picture in PICTURES:
        path = EVIDENCE / f"{picture.__name__}.png"
        picture(path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
