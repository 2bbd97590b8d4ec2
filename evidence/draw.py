"""Every picture of the pages, from the CSVs in evidence/.

    python -m evidence.draw                        all of them
    python -m evidence.draw --only heat controls   some

In all pictures the colour is N, the width is prompts a step, the dashes are the learning rate or what is named beside
them. heat.png and theorem1.png need the CSVs that evidence/tables.py makes. figure3.png and sweep.png are sim.py's,
curves.png is a run's own. docs/which_n.md says whose length.png and law_simulated.png are.
"""

import itertools
from pathlib import Path
from statistics import fmean

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from bench.which_n import noise_at_equal_cost
from evidence.rows import ARMS, HELD, WHERE, WORLDS, Group, at, by, load, seeds_of
from evidence.statistics import between, interval
from evidence.tables import HELD_AXES, call, measured_ratio, results, scored, shortest

COLOURS = {16: "tab:blue", 64: "tab:cyan", 128: "tab:green", 256: "tab:olive", 512: "tab:orange", 1024: "tab:red",
           2048: "tab:purple"}  # fmt: skip
RATES = {1e-4: "-", 3.5e-5: "--", 1e-5: ":"}  # dashes
PRICED = ("tiny-short", "tiny-long", "smollm-short", "smollm-long")  # worlds of price.csv
RECIPES = {"prorl": (16, 128), "brorl": (512, 32), "batch": (16, 1024)}  # N and prompts a step of ARMS


def look(n: int, b: int) -> dict:
    """Colour and width of a line."""
    return {"color": COLOURS.get(n, "gray"), "lw": 2.4 if b >= 1024 else 1.2}


def panels(rows: int, columns: int, width: float, height: float, **more):
    """A figure, and its axes (rows, columns)."""
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **more)


def finish(axis, title: str, x: str = "samples") -> None:
    axis.set(title=title, xlabel={"samples": "samples generated", "cpu_seconds": "CPU minutes"}[x])
    if x == "samples":
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.grid(alpha=0.3)


def save(figure: Figure, path: Path, title: str = "") -> None:
    if title:
        figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")


def each_seed(axis, group: Group, x: str, y: str, label: str, **style) -> None:
    for i, run in enumerate(group):
        axis.plot([r[x] for r in run], [r[y] for r in run], label=None if i else label, **style)


def along(group: Group, x: str, y: str, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Points up to where the shortest seed ends, and each seed's `y` there, (seeds, points)."""
    grid = np.linspace(0, shortest([group], x), points)
    return grid / (60 if x == "cpu_seconds" else 1), np.array(
        [[at(rows, x, where, y) for where in grid] for rows in group]
    )


def mean(axis, group: Group, x: str, y: str, label: str, points: int = 60, band: float = 0.2, **style) -> None:
    """Mean over seeds; a band for their range."""
    grid, lines = along(group, x, y, points)
    axis.plot(grid, lines.mean(0), label=label, **style)
    if band:
        axis.fill_between(grid, lines.min(0), lines.max(0), color=style["color"], alpha=band)


def three_arms(
    csvs: Path, path: Path, title: str, shows: list[tuple[str, str, str]], width: float, legend: int, at_50=""
):
    """A row of panels for each length of prompt. shows: x, y and title of a panel."""
    groups = seeds_of([r | {"improved": 100 * r["improved"]} for r in load(csvs / "figure1.csv")], "world", "arm")
    figure, axes = panels(len(WORLDS), len(shows), width, 4.2 * len(WORLDS))
    for panes, (world, prompts) in zip(axes, WORLDS.items(), strict=True):
        for axis, (x, y, name) in zip(panes, shows, strict=True):
            for arm, (n, b) in RECIPES.items():
                mean(axis, groups[world, arm], x, y, f"{ARMS[arm]}, {len(groups[world, arm])} seed(s)", **look(n, b))
            finish(axis, name, x)
        if at_50:
            panes[1].axhline(50, color="gray", ls=":", label=at_50)
        panes[0].set_ylabel(prompts)
        panes[legend].legend(fontsize=8)
    save(figure, path, title)


def figure1(csvs: Path) -> None:
    title = "From a policy saturated with N = 16, each recipe by the paper's rule. Mean over seeds, band: their range"
    q_pos = "held-out Q_pos, exact"
    shows = [("samples", "q_pos", q_pos), ("cpu_seconds", "q_pos", q_pos), ("samples", "pass@64", "held-out pass@64"),
             ("samples", "correct", "share correct in training")]  # fmt: skip
    three_arms(csvs, csvs / "figure1.png", title, shows, 18, 3)


def shrinkage(csvs: Path) -> None:
    title = "Figure 3's panels on a transformer, summed over all answers of 512 held-out problems"
    shows = [("samples", "q_pos", "correct mass"), ("samples", "improved", "% of answers above their start"),
             ("samples", "worst_drop", "worst drop of an answer")]  # fmt: skip
    three_arms(csvs, csvs / "shrinkage.png", title, shows, 14, 1, "weights moved at random: 47% to 57%")


def plateau(csvs: Path) -> None:
    """The curve at whose end all arms start, and the arms behind it on the same axes."""
    groups = seeds_of(load(csvs / "figure1.csv"), "world", "arm")
    figure, axes = panels(1, len(WORLDS), 7 * len(WORLDS), 4.4)
    for axis, world in zip(axes[0], WORLDS, strict=True):
        start = groups[world, "saturate"]
        for y, name, color in (("q_pos", "Q_pos", "black"), ("pass@64", "pass@64", "gray")):
            label = f"{name}, N = 16, B = 128, to the plateau"
            each_seed(axis, start, "samples", y, label, marker=".", ms=5, color=color)
        for arm, (n, b) in RECIPES.items():
            behind = [
                [r | {"samples": start[0][-1]["samples"] + r["samples"]} for r in run] for run in groups[world, arm]
            ]
            each_seed(axis, behind, "samples", "q_pos", f"Q_pos, {ARMS[arm]}, {len(behind)} seed(s)", **look(n, b))
        finish(axis, WORLDS[world])
        axis.set_ylim(0.1, 1.02)
        axis.legend(fontsize=8)
    title = "The plateau: held-out scores of the run that saturated the policy, and the arms that go on from it"
    save(figure, csvs / "plateau.png", title)


CHANGES = {  # of the controls: words, and dashes
    "": ("", "-"), "mixed": (", mini-batches and refill of N = 512", ":"),
    "few": (", prompts and rate of N = 512", (0, (1, 3))),
    "alike": (", mini-batches and refill of N = 16", ":"),
    "moments": (", old moments", "--"), "warmup": (", warm-up", "-."),
}  # fmt: skip


def controls(csvs: Path) -> None:
    groups = seeds_of(load(csvs / "controls.csv"), "arm")
    figure, axes = panels(1, 2, 14, 4.8)
    for arm, (change, (words, dashes)) in itertools.product(ARMS, CHANGES.items()):
        group = groups.get((f"{arm}_{change}" if change else arm,), [])
        for axis, score in zip(axes[0], ("q_pos", "pass@64") if group else (), strict=False):
            label = f"{ARMS[arm]}{words}, {len(group)} seed(s)"
            mean(axis, group, "samples", score, label, band=0, ls=dashes, **look(*RECIPES[arm]))
            finish(axis, "Q_pos, exact" if score == "q_pos" else score)
    axes[0, 1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, csvs / "controls.png", "The arms with one thing changed at a time. Means of seeds")


def heat(csvs: Path) -> None:
    figure, axes = panels(1, 1, 6.5, 4.4)
    axis = axes[0, 0]
    for (n,), rows in sorted(by(load(csvs / "heat.csv"), "N").items()):
        axis.plot([r["heat"] for r in rows], [r["q_pos"] for r in rows], "o", color=COLOURS[n], label=f"N = {n:,}")
    axis.set(xscale="log", xlabel="η / sqrt(B)", ylabel="held-out Q_pos, mean over the second half")
    axis.axhline(load(csvs / "regimes.csv")[0]["q_pos"], color="gray", lw=1, ls="--", label="start")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save(figure, csvs / "heat.png", "An arm a point: the hotter the step, the lower it ends")


def sweep(csvs: Path) -> None:
    every = seeds_of(load(csvs / "sweep_n.csv"), "held", "N")
    units = {"samples": "samples", "step": "steps", "cpu_seconds": "CPU seconds"}
    figure, axes = panels(len(HELD), 2, 11, 4.2 * len(HELD))
    for panes, (held, title) in zip(axes, HELD.items(), strict=True):
        groups = dict(sorted((n, group) for (kind, n), group in every.items() if kind == held))
        for axis, name in zip(panes, ("q_pos", "pass@64"), strict=True):
            for x in HELD_AXES[held]:
                limit = shortest(groups.values(), x)
                points = [interval([at(r, x, limit, name) for r in group]) for group in groups.values()]
                axis.errorbar(list(groups), *zip(*points, strict=True), marker="o", ms=4, capsize=3,
                              label=f"after {limit:,.0f} {units[x]}")  # fmt: skip
            axis.axhline(groups[16][0][0][name], color="gray", ls=":", label="the saturated policy")
            axis.set_xscale("log", base=2)
            axis.set_xticks(list(groups), [str(n) for n in groups])
            axis.set(title="Q_pos, exact" if name == "q_pos" else name, xlabel=f"N, with {title}")
            axis.grid(alpha=0.3)
        panes[0].legend(fontsize=8)
    save(figure, csvs / "sweep_n.png")


def hard(csvs: Path) -> None:
    """Up to what all arms spent; a line a seed."""
    groups = sorted(seeds_of(load(csvs / "hard.csv"), "N", "B", "learning_rate").items())
    samples = shortest((group for _, group in groups), "samples")
    figure, axes = panels(1, 3, 15, 4.4)
    for (n, b, rate), group in groups:
        some = [[r for r in run if r["samples"] <= 1.1 * samples] for run in group]
        for axis, x, y in zip(axes[0], ("samples", "samples", "q_pos"), ("q_pos", "pass@64", "pass@256"), strict=True):
            each_seed(axis, some, x, y, f"N = {n}, B = {b:,}, η = {rate:.2g}", ls=RATES[rate], **look(n, b))
    finish(axes[0, 0], "Q_pos, exact")
    finish(axes[0, 1], "pass@64")
    axes[0, 2].grid(alpha=0.3)
    axes[0, 2].set(title="pass@256 at the same Q_pos", xlabel="Q_pos, exact")
    axes[0, 0].legend(fontsize=8)
    title = "Trained and scored on problems that the saturated policy solves 0.1% to 5% of the time; a line is a seed"
    save(figure, csvs / "hard.png", title)


def objective(csvs: Path) -> None:
    """pass@1 and pass@64 over time, and one against the other: a picture for each place to begin."""
    dashes = {"mean_centred": "-", "group_std": ":", "group_mean": "--"}

    def order(arm) -> tuple:  # by --advantage, then by N, those that grew in waves (16:512) last
        (kind, n), _ = arm
        return list(dashes).index(kind), ":" in str(n), int(str(n).rpartition(":")[2])

    for (where,), rows in by(load(csvs / "objective.csv"), "where").items():
        figure, axes = panels(1, 3, 15, 4.6)
        for (kind, n), group in sorted(seeds_of(rows, "advantage", "N").items(), key=order):
            looks = {"color": COLOURS.get(n, "black"), "ls": dashes[kind], "lw": 1.4}
            for axis, name in zip(axes[0, :2], ("q_pos", "pass@64"), strict=True):
                mean(axis, group, "cpu_seconds", name, f"{kind}, N = {n}", 40, 0.12, **looks)
            way = [along(group, "samples", y, 40)[1].mean(0) for y in ("q_pos", "pass@64")]
            axes[0, 2].plot(*way, **looks, alpha=0.6)
            axes[0, 2].plot(way[0][-1], way[1][-1], "o", color=looks["color"])
            if kind == "group_mean":
                above = 6 if ":" in str(n) else -12
                place = {"fontsize": 8, "textcoords": "offset points"}
                axes[0, 2].annotate(f"N = {n}", (way[0][-1], way[1][-1]), (0, above), **place)
        finish(axes[0, 0], "Q_pos (pass@1), exact", "cpu_seconds")
        finish(axes[0, 1], "pass@64, exact", "cpu_seconds")
        axes[0, 2].set(title="both: a line is an arm's way, a point its end", xlabel="Q_pos", ylabel="pass@64")
        axes[0, 2].grid(alpha=0.3)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=5)
        name = f"objective{'' if where == 'near' else '_' + where}.png"
        save(figure, csvs / name, f"{WHERE[where]}, by objective and N. Means over seeds, band: their range")


def theorem1(csvs: Path) -> None:
    ranks = [r for r in load(csvs / "theorem1_null.csv") if r["predicted_by"] == "tree"]
    groups = by(load(csvs / "theorem1.csv"), "from", "arm")
    figure, axes = panels(1, len(ranks), 4.2 * len(ranks), 4, sharex=True, sharey=True)
    for axis, rank in zip(axes[0], ranks, strict=True):
        where, arm = rank["from"], rank["arm"]
        rows = groups[where, arm]
        axis.scatter([r["tree/total"] for r in rows], [r["change"] for r in rows], s=4, alpha=0.4,
                     color=look(*RECIPES[arm])["color"])  # fmt: skip
        axis.axhline(0, color="gray", lw=0.8)
        axis.axvline(0, color="gray", lw=0.8)
        estimate = between(tuple(rank[f"rank_correlation{end}"] for end in ("", "_low", "_high")))
        axis.set(
            title=f"N = {RECIPES[arm][0]}, from the {where}{' policy' * (where == 'saturated')}\n"
            f"rank correlation {estimate}; of q(1-q): {rank['of_q(1-q)']:.2f}",
            xlabel="Theorem 1 along the tree (without η/N)",
            ylabel="ΔQ_pos of the step, exact",
        )
        axis.title.set_fontsize(9)
        axis.set_xscale("symlog", linthresh=1e-4)
        axis.set_yscale("symlog", linthresh=1e-3)
        axis.set_xticks([-0.01, -0.001, 0, 0.001, 0.01, 0.1])
    save(figure, csvs / "theorem1.png")


def default_runs(csvs: Path) -> None:
    groups = seeds_of(load(csvs / "default_runs.csv"), "N", "engine", "recipe")
    figure, axes = panels(1, 2, 11, 4.2)
    for (n, engine, recipe), group in sorted(groups.items()):
        style = {"color": COLOURS[n], "ls": "-" if engine == "torch" else "--", "marker": "o", "ms": 3}
        for axis, score in zip(axes[0], ("pass@1", "pass@64"), strict=True):
            each_seed(axis, group, "samples", score, f"N = {n} ({recipe}, {engine}), {len(group)} seeds", **style)
            finish(axis, f"held-out {score}")
            axis.legend()
    title = "The tiny policy from its start, which is not saturated: each line is a run"
    save(figure, csvs / "default_runs.png", title)


def real_model(csvs: Path) -> None:
    figure, axes = panels(1, 2, 11, 4.2, sharey=True)
    left, right = axes[0]
    for (n, b, seed), rows in by(scored(load(csvs / "real_model.csv")), "N", "B", "seed").items():
        y, errors = ([row[name] for row in rows] for name in ("eval/pass@1", "eval/pass@1_se"))
        style = {"color": COLOURS[n], "ls": "-" if seed == 0 else "--", "ms": 3, "capsize": 2, "marker": "o"}
        label = f"N = {n}, {b} prompts a step, seed {seed}"
        left.errorbar([row["samples"] for row in rows], y, errors, label=label, **style)
        right.errorbar([row["seconds"] / 60 for row in rows], y, errors, **style)
    finish(left, "held-out pass@1, ± s.e. over problems")
    left.set(xlabel="samples drawn", ylim=(0, None))
    right.set(title="the same over time", xlabel="processor minutes, evaluations not counted")
    left.legend()
    right.grid(alpha=0.3)
    save(figure, csvs / "real_model.png", "SmolLM2-135M-Instruct, the largest of six numbers")


def law(csvs: Path) -> None:
    """Q_pos by N, a line a rate; and the law's noise at equal samples with the V_w / V_b that the runs measured."""
    rows = load(csvs / "law.csv")
    ratio, ns = measured_ratio(rows), sorted({row["N"] for row in rows})
    figure, ((left, right),) = panels(1, 2, 11, 4.2)
    for ((rate,), group), color in zip(sorted(by(rows, "rate").items()), ("gray", "black", "tab:pink"), strict=True):
        ends = {n: [row["q_pos"] for row in rows_of] for (n,), rows_of in by(group, "N").items()}
        left.plot(list(ends), [np.mean(x) for x in ends.values()], marker="o", color=color,
                  label=f"learning rate {rate:g}")  # fmt: skip
        low, high = ([end(x) for x in ends.values()] for end in (min, max))
        left.fill_between(list(ends), low, high, color=color, alpha=0.2)
    left.set(title="held-out Q_pos after 81,920 samples", xlabel="N", xscale="log")
    left.legend()
    n = np.geomspace(2, 512, 100)
    right.plot(n, [noise_at_equal_cost(x, ratio) / noise_at_equal_cost(16, ratio) for x in n], color="black")
    right.set(title=f"the law: noise over that of N = 16, V_w / V_b = {ratio:.2g}", xlabel="N", xscale="log",
              yscale="log")  # fmt: skip
    for axis in (left, right):
        axis.set_xticks(ns, [str(x) for x in ns])
        axis.grid(alpha=0.3)
    save(figure, csvs / "law.png")


def price(csvs: Path) -> None:
    """Noise predicted, over the least of the world; the rise of the score, over the largest of the world."""
    rows, predicted = load(csvs / "price.csv"), load(csvs / "price_predicted.csv")
    figure, ((time, samples),) = panels(1, 2, 12, 4.8)
    styles = zip(PRICED, ("tab:blue", "tab:red", "tab:cyan", "tab:orange"), "osDv", strict=True)
    for world, color, marker in styles:
        if not (own := [row for row in rows if row["world"] == world]):
            continue
        found, start = results(world, rows, predicted)[0], own[0]["pass@1"]
        for axis, by_what in ((time, "time"), (samples, "samples")):
            scores = [getattr(x, f"at_{by_what}") for x in found]
            most = max(fmean(x) for x in scores) - start
            noise = [x.predicted[f"noise_{by_what}_along"] for x in found]
            rise = [[(y - start) / most for y in x] for x in scores]
            error = [interval(x)[1] if len(x) > 2 else 0.0 for x in rise]
            label = f"{world} (a prompt costs {found[0].predicted['prompt_cost']:.0f} rollouts)"
            axis.errorbar(noise, [fmean(x) for x in rise], error, fmt=marker, color=color, label=label, capsize=2)
            for x, place, y in zip(found, noise, rise, strict=True):
                axis.annotate(f" {x.n}", (place, fmean(y)), color=color, fontsize=9)
    countdown(csvs, samples)
    for axis, by_what in ((time, "time"), (samples, "samples")):
        axis.set(xscale="log", xlabel="noise of a step, predicted, over the least of the world",
                 ylabel="rise of pass@1, over the largest of the world", title=f"at equal {by_what}")  # fmt: skip
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    save(figure, csvs / "price.png", "Less noise predicted, more learned? A point is an N, its number beside it")


def countdown(csvs: Path, axis) -> None:
    """law.csv: the embedded policy, each N at its best rate."""
    rows = load(csvs / "law.csv")
    ratio, start = measured_ratio(rows), 0.192
    best = {n: max(fmean(r["q_pos"] for r in x) for x in by(of_n, "rate").values()) - start
            for (n,), of_n in by(rows, "N").items()}  # fmt: skip
    noise = {n: noise_at_equal_cost(n, ratio) for n in best}
    places = [noise[n] / min(noise.values()) for n in best]
    rise = [x / max(best.values()) for x in best.values()]
    axis.plot(places, rise, "k^", label="countdown, the embedded policy")
    for n, x, y in zip(best, places, rise, strict=True):
        axis.annotate(f" {n}", (x, y), fontsize=9)


def real_plateau(csvs: Path) -> None:
    """Score against time, and against the length of answers, of the run to the plateau and of the arms behind it."""
    rows = load(csvs / "real_plateau.csv")
    figure, ((scores, lengths),) = panels(1, 2, 12, 4.6)
    way = [row for row in rows if row["arm"] == "saturate"]
    spent = way[-1]["cpu_seconds"]
    groups = {arm: list(by(own, "seed").values()) for (arm,), own in by(rows, "arm").items() if arm != "saturate"}
    styles = {"prorl": "-", "brorl": "-", "brorl_cool": "-.", "batch": "--"}
    for axis, what in ((scores, "pass@1"), (lengths, "tokens")):
        minutes = [row["cpu_seconds"] / 60 for row in way]
        axis.plot(minutes, [row[what] for row in way], "k.-", label="N = 16, to the plateau")
        for arm, group in groups.items():
            n, b = group[0][0]["N"], group[0][0]["B"]
            times = np.linspace(0, min(run[-1]["cpu_seconds"] for run in group), 9)
            values = np.array([[at(run, "cpu_seconds", x, what) for x in times] for run in group])
            style = look(n, 0) | {"ls": styles[arm]}
            label = f"{arm}: N = {n}, B = {b}, {len(group)} seed" + "s" * (len(group) > 1)
            axis.plot((spent + times) / 60, values.mean(0), label=label, **style)
            if len(group) > 1:
                axis.fill_between((spent + times) / 60, values.min(0), values.max(0), color=style["color"], alpha=0.12)
        axis.set(xlabel="processor minutes", ylabel=f"held-out {what}")
        axis.grid(alpha=0.3)
    lengths.set_ylabel("mean tokens of an answer")
    scores.legend(fontsize=8)
    save(
        figure,
        csvs / "real_plateau.png",
        "SmolLM2-135M at the plateau of N = 16, and ways to go on. Band: range over seeds",
    )


PICTURES = (figure1, shrinkage, plateau, controls, heat, sweep, hard, objective, theorem1, default_runs, real_model,
            law, price, real_plateau)  # fmt: skip

if __name__ == "__main__":
    call(__doc__, PICTURES)
