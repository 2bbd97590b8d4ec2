"""Every table of the pages that is not a CSV itself.

    python -m evidence.tables                       all of them
    python -m evidence.tables --only figure1 law    some

Q_pos and pass@k are exact (tiny/exact.py). ± is a 95% interval over seeds (statistics.py), a range in brackets the
lowest and the highest seed. Time is processor seconds of the training process without evaluation. "At equal samples"
and "at equal time" are where the shortest run ends, by linear interpolation.
Three CSVs are made from others here: heat, hard_equal_q_pos, theorem1_null.
"""

import argparse
import itertools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.which_n import best_n, noise_at_equal_cost
from evidence.rows import (
    ARMS,
    EVIDENCE,
    HELD,
    PLACES,
    TERMS,
    WHERE,
    WORLDS,
    Group,
    at,
    by,
    first_at,
    load,
    seeds_of,
    write,
)
from evidence.statistics import between, bootstrap, partial, shown, spearman

KS = ("pass@16", "pass@64", "pass@256", "pass@1024")


def header(*names: str) -> None:
    line(*names)
    print("|" + "---|" * len(names))


def line(*cells) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


def shortest(groups, axis: str) -> float:
    """What every run of these groups has spent."""
    return min(rows[-1][axis] for group in groups for rows in group)


def ranged(x: list[float]) -> str:
    """Mean, and the lowest and highest seed: of two seeds an interval would say nothing."""
    return f"{np.mean(x):.3f} ({min(x):.3f} to {max(x):.3f})" if len(x) > 1 else f"{x[0]:.3f}"


def compare(title: str, groups: dict, axis: str, names, form=shown, limit=None, more=None, each_end=False) -> None:
    """A row per arm: what its seeds had spent and scored at a limit along the axis.

    limit: the end of the shortest run of all arms, or of each arm (each_end). more: columns, a function of a run.
    """
    limit, more = limit or shortest(groups.values(), axis), more or {}
    print(f"\n{title}, at its own end" if each_end else f"\n{title}: after {limit:,.0f} {axis}")
    header("arm", "seeds", "steps", "samples", "CPU minutes", *names, *more)
    for who, group in groups.items():
        where = shortest([group], axis) if each_end else limit
        columns = {x: [at(r, axis, where, x) for r in group] for x in ("step", "samples", "cpu_seconds", *names)}
        step, samples, seconds = (np.mean(columns[x]) for x in ("step", "samples", "cpu_seconds"))
        cells = [form(columns[x]) for x in names] + [form([f(r) for r in group]) for f in more.values()]
        line(", ".join(map(str, who)), len(group), f"{step:.0f}", f"{samples:,.0f}", f"{seconds / 60:.1f}", *cells)


def levels_reached(groups: dict, reached: str, levels, names) -> list[dict]:
    """A row a seed and level: other scores where its `reached` first comes there; none for a seed that never does."""
    found = []
    for rows in itertools.chain(*groups.values()):
        who = dict(itertools.takewhile(lambda column: column[0] != "step", rows[0].items()))
        for level in levels:
            if not math.isnan(where := first_at(rows, reached, level, "samples")):
                scores = {name: at(rows, "samples", where, name) for name in names}
                found.append(who | {reached: level, "samples": where} | scores)
    return found


def figure1(csvs: Path) -> None:
    """Figure 1 and table 1: the runs that saturated the policy, and the three arms from there."""
    groups = seeds_of(load(csvs / "figure1.csv"), "world", "arm")
    print("\nthe saturating runs: how much Q_pos gained over the last of their samples")
    header("prompts", "samples", "Q_pos", "pass@64", "gained over the last quarter", "over the last half")
    for world, name in WORLDS.items():
        (rows,) = groups[world, "saturate"]
        end = rows[-1]
        gains = [end["q_pos"] - at(rows, "samples", share * end["samples"], "q_pos") for share in (0.75, 0.5)]
        line(name, f"{end['samples']:,}", f"{end['q_pos']:.4f}", f"{end['pass@64']:.4f}", *(f"{x:+.4f}" for x in gains))
    for world, axis in itertools.product(WORLDS, ("samples", "cpu_seconds")):
        arms = {(name,): groups[world, arm] for arm, name in ARMS.items()}
        compare(WORLDS[world], arms, axis, ("q_pos", "pass@16", "pass@64", "pass@1024", "fell", "worst_drop"))


def regimes(csvs: Path) -> None:
    """Other learning rates and batches from the compact saturated policy."""
    groups = dict(sorted(seeds_of(load(csvs / "regimes.csv"), "N", "B", "learning_rate").items()))
    samples = shortest(groups.values(), "samples")
    half = {"Q_pos, second half": lambda run: second_half(run, samples)}
    compare("N, B, learning rate", groups, "samples", ("q_pos", "pass@16", "pass@1024", "fell"), more=half)


def second_half(run: list[dict], samples: float) -> float:
    """Mean Q_pos over the second half of so many samples."""
    return float(np.mean([at(run, "samples", x, "q_pos") for x in np.linspace(samples / 2, samples, 50)]))


def heat(csvs: Path) -> None:
    """heat.csv: an arm a row, of regimes.csv and of the sweep at 3.5e-5; what its Q_pos goes with."""
    groups = seeds_of(load(csvs / "regimes.csv"), "N", "B", "learning_rate")
    swept = [r | {"learning_rate": 3.5e-5} for r in load(csvs / "sweep_n.csv") if r["held"] == "sweep"]
    groups = seeds_of(swept, "N", "B", "learning_rate") | groups
    rows = []
    for (n, b, rate), group in sorted(groups.items()):
        q_pos = float(np.mean([second_half(r, shortest([group], "samples")) for r in group]))
        rows.append({"N": n, "B": b, "learning_rate": rate, "seeds": len(group), "heat": rate / b**0.5, "q_pos": q_pos})
    write(csvs / "heat.csv", rows)
    (near,) = [r for r in load(csvs / "noise.csv") if r["how"] == "enumerated" and "near" in r["policy"]]
    ratio = near["within"] / near["between"]
    n, b, rate, hot, ends = (np.array([r[x] for r in rows]) for x in ("N", "B", "learning_rate", "heat", "q_pos"))
    known = {"η / sqrt(B)": hot, f"η sqrt((1 + {ratio:.1f} / (N - 1)) / B)": hot * (1 + ratio / (n - 1)) ** 0.5,
             "η": rate, "1 / B": 1 / b, "N": n}  # fmt: skip
    print(f"\nrank correlation of Q_pos over {len(rows)} arms; 95% by drawing arms again")
    header("with", "rank correlation")
    rng = np.random.default_rng(0)
    for name, x in known.items():
        line(name, between(bootstrap(spearman, (x, ends), list(np.arange(len(rows))[:, None]), 2000, rng)))
    print(f"given N, η / sqrt(B): {partial(hot, ends, n):.2f}; given that, N: {partial(n, ends, hot):.2f}")


def controls(csvs: Path) -> None:
    """The arms again from another policy, with one thing changed at a time."""
    groups = seeds_of(load(csvs / "controls.csv"), "arm")
    early = max(rows[1]["samples"] for group in groups.values() for rows in group)
    lowest = {"lowest Q_pos": lambda run: min(r["q_pos"] for r in run)}
    compare("arm and change", groups, "samples", ["q_pos"], limit=early)
    compare("arm and change", groups, "samples", ("q_pos", "pass@64", "fell"), more=lowest)


def table2(csvs: Path) -> None:
    """Table 2: what dynamic sampling keeps, how fast samples come, and how many rollouts of a group are correct."""
    print("\nfirst step, and mean of all steps; samples are those of whole steps a CPU second")
    names = ["pass_rate", *(f"solved_{x}" for x in ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all"))]
    header("prompts", "arm", *names, "samples/s", "of them trained on")
    steps_of = by(load(csvs / "table2.csv"), "world", "arm")
    for world, arm in itertools.product(WORLDS, ARMS):
        steps = steps_of[world, arm]
        first = [r for r in steps if r["step"] == 1]  # of one and the same policy
        shares = [[np.mean([r[name] for r in rows]) for rows in (first, steps)] for name in names]
        speed = np.array([r["samples_per_cpu_second"] for r in steps])
        trained = speed * [r["pass_rate"] for r in steps]
        line(WORLDS[world], ARMS[arm], *(f"{x:.1%}, {y:.1%}" for x, y in shares), f"{speed.mean():,.0f}",
             f"{trained.mean():,.0f}")  # fmt: skip


# With 32 prompts a step the cheapest N has hardly begun at equal samples or time.
HELD_AXES = {"sweep": ("samples", "step", "cpu_seconds"), "steps": ("step",)}


def sweep(csvs: Path) -> None:
    """Appendix A: N from 16 to 2,048 with the same rollouts a step, and with the same prompts a step."""
    groups = dict(sorted(seeds_of(load(csvs / "sweep_n.csv"), "held", "N", "B").items()))
    for held, axes in HELD_AXES.items():
        some = {(n, b): group for (kind, n, b), group in groups.items() if kind == held}
        for axis in axes:
            compare(HELD[held], some, axis, ("q_pos", "pass@64"))


def hard(csvs: Path) -> None:
    """Problems that the saturated policy rarely solves; hard_equal_q_pos.csv: a row where a seed reaches a level."""
    groups = dict(sorted(seeds_of(load(csvs / "hard.csv"), "N", "B", "learning_rate").items()))
    compare("hard problems", groups, "samples", ("q_pos", *KS, "fell"))
    last = {who: furthest(group) for who, group in groups.items()}
    compare("the seed that went furthest", last, "samples", ("q_pos", *KS, "fell"), each_end=True)
    levels = levels_reached(groups, "q_pos", (0.3, 0.5, 0.65, 0.75), ("fell", "pass@64", "pass@1024"))
    write(csvs / "hard_equal_q_pos.csv", levels)


def objective(csvs: Path) -> None:
    """Each --advantage with each N: at equal samples and time, at the end, at the same pass@1 and the same breadth."""
    shows = ("q_pos", "pass@4", "pass@16", "pass@64", "pass@1024", "fell")
    q_pos = {"near": (0.539, 0.544, 0.554), "start": (0.25, 0.3, 0.35, 0.37, 0.4), "hard": (0.21, 0.31, 0.41, 0.5)}
    for (where,), rows in by(load(csvs / "objective.csv"), "where").items():
        groups = seeds_of(rows, "advantage", "N")
        for axis in ("samples", "cpu_seconds"):
            compare(WHERE[where], groups, axis, shows, ranged)
        last = {who: furthest(group) for who, group in groups.items()}
        compare("the seeds that went furthest", last, "samples", shows, ranged, each_end=True)
        for reached, levels in (("q_pos", q_pos[where]), ("pass@64", (0.8, 0.83, 0.86, 0.9, 0.93))):
            names = [name for name in ("cpu_seconds", *shows) if name != reached]
            found = levels_reached(groups, reached, levels, names)
            print(f"\nwhere {reached} first reaches a level")
            header(reached, "--advantage", "N", "seeds that reach it", "samples", *names)
            for (level, kind, n), seeds in sorted(by(found, reached, "advantage", "N").items(), key=lambda x: x[0][0]):
                cells = [ranged([r[name] for r in seeds]) for name in names]
                line(level, kind, n, len(seeds), f"{np.mean([r['samples'] for r in seeds]):,.0f}", *cells)


def furthest(group: Group) -> Group:
    """The seeds that went as far as any did."""
    end = max(rows[-1]["samples"] for rows in group)
    return [rows for rows in group if rows[-1]["samples"] > 0.9 * end]


def theorem1(csvs: Path) -> None:
    """theorem1_null.csv: rank correlation of Theorem 1's sum, of its null q(1-q), and of the sum given the null."""
    print("\nTheorem 1's sum beside the exact change of Q_pos")
    header("from", "arm", "predicted by", "mean ΔQ_pos, exact", "estimated", "Q_pos rose", "sum positive",
           "coupling of all terms")  # fmt: skip
    summary, groups = [], by(load(csvs / "theorem1.csv"), "from", "arm")
    for (where, arm), place in itertools.product(
        sorted(groups, key=lambda x: (x[0] != "start", x[1] != "prorl")), PLACES
    ):
        rows = groups[where, arm]
        names = ("step", "change", "estimated_change", "q(1-q)", f"{place}/total")
        step, change, estimated, null, total = (np.array([r[x] for r in rows]) for x in names)
        steps = [np.flatnonzero(step == s) for s in np.unique(step)]  # groups of a step share its update
        summary.append({"from": where, "arm": arm, "predicted_by": place, "groups": len(rows)})
        for name, statistic, columns in (("rank_correlation", spearman, (total, change)),
                                         ("of_q(1-q)", spearman, (null, change)),
                                         ("given_q(1-q)", partial, (total, change, null))):  # fmt: skip
            ends = bootstrap(statistic, columns, steps, RESAMPLED, np.random.default_rng(0))
            summary[-1] |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
        terms = np.abs([[r[f"{place}/{x}"] for x in TERMS] for r in rows])
        line(where, arm, place, f"{change.mean():+.4f}", f"{estimated.mean():+.4f}", f"{(change > 0).mean():.1%}",
             f"{(total > 0).mean():.1%}", f"{terms[:, 2].sum() / terms.sum():.2%}")  # fmt: skip
    write(csvs / "theorem1_null.csv", summary)


RESAMPLED = 1000  # times, for an interval


def default_runs(csvs: Path) -> None:
    """The two recipes, and the two engines, from the embedded policy."""
    names = ("pass@1", "pass@4", "pass@16", "pass@64")
    print("\nthe two recipes; ± is half the range of the seeds")
    header("recipe", "N", "engine", "steps", "samples generated", *names)
    for (n, engine, recipe), group in sorted(
        seeds_of(load(csvs / "default_runs.csv"), "N", "engine", "recipe").items()
    ):
        for end, when in ((0, "start"), (-1, "end")):
            rows = [run[end] for run in group]
            columns = [[r[name] for r in rows] for name in names]
            line(f"{recipe}, {when}", n, engine, rows[0]["step"], f"{np.mean([r['samples'] for r in rows]):,.0f}",
                 *(f"{np.mean(x):.3f} ± {(max(x) - min(x)) / 2:.3f}" for x in columns))  # fmt: skip


def real_model(csvs: Path) -> None:
    """A real chat model with N = 16 and 512."""
    print("\na real model, on the largest of six numbers")
    header("N", "B", "seed", "step", "samples drawn", "pass@1 ± s.e.", "pass@4", "processor seconds")
    for r in scored(load(csvs / "real_model.csv")):
        line(r["N"], r["B"], r["seed"], r["step"], f"{r['samples']:,}", f"{r['eval/pass@1']:.3f} ± "
             f"{r['eval/pass@1_se']:.3f}", f"{r['eval/pass@4']:.3f}", f"{r['seconds']:,.0f}")  # fmt: skip


def scored(rows: list[dict]) -> list[dict]:
    """The evaluated steps of real_model.csv, with the processor seconds that each run had spent by then."""
    found = []
    for run in by(rows, "N", "B", "seed").values():
        spent = itertools.accumulate(row["cpu_seconds"] or 0.0 for row in run)
        found += [row | {"seconds": x} for row, x in zip(run, spent, strict=True) if row["eval/pass@1"] != ""]
    return found


def law(csvs: Path) -> None:
    """Which N learns most from as many samples, and the noise that the law foretells."""
    rows = load(csvs / "law.csv")
    ratio, groups = measured_ratio(rows), by(rows, "N", "B", "rate")
    rates = sorted({r["rate"] for r in rows})
    print(f"\nV_w / V_b = {ratio:.1f}, N* = {best_n(ratio):.1f}")
    header("N", "B", *(f"Q_pos at {rate:g} (± 95%)" for rate in rates), "the law's noise over N = 16's")
    for n, b in by(rows, "N", "B"):
        cells = [shown([r["q_pos"] for r in groups[n, b, rate]], ".3f") for rate in rates]
        line(n, b, *cells, f"{noise_at_equal_cost(n, ratio) / noise_at_equal_cost(16, ratio):.2g}")


def measured_ratio(rows: list[dict]) -> float:
    """V_w / V_b over all measurements of all runs of law.csv."""
    measured = [row for row in rows if row["between"] != ""]
    return sum(row["within"] for row in measured) / sum(row["between"] for row in measured)


def noise(csvs: Path) -> None:
    """--log_noise beside enumeration; ± is the standard error of the mean of several estimates."""
    header("policy", "", "V_w", "V_b", "V_w / V_b", "N*")
    for (policy, how, n), rows in by(load(csvs / "noise.csv"), "policy", "how", "N").items():
        columns = [np.array([row[name] for row in rows]) for name in ("within", "between")]
        cells = [f"{x.mean():.1f} ± {x.std(ddof=1) / len(x) ** 0.5:.2g}" if n else f"{x.mean():.1f}" for x in columns]
        ratio = columns[0].mean() / columns[1].mean()
        line(policy, f"N = {n}" if n else how, *cells, f"{ratio:.1f}", f"{best_n(ratio):.1f}")


class Result(NamedTuple):
    """One N of a world of price.csv, at its best rate: the scores of its seeds after equal time and equal samples."""

    n: int
    rate: float
    at_time: list[float]
    at_samples: list[float]
    breadth: list[float]  # pass@16 at equal time
    predicted: dict  # the row of price_predicted.csv


def results(world: str, rows: list[dict], predicted: list[dict]) -> tuple[list[Result], dict[str, float]]:
    """Return the results of a world by N, and the least processor seconds and samples that any of its runs spent."""
    rows = [row for row in rows if row["world"] == world]
    rates = {n: best_rate(of_n) for (n,), of_n in by(rows, "N").items()}
    arms = {n: list(by([row for row in rows if (row["N"], row["rate"]) == (n, rate)], "seed").values())
            for n, rate in rates.items()}  # fmt: skip
    spent = {axis: min(run[-1][axis] for runs in arms.values() for run in runs) for axis in ("cpu_seconds", "samples")}

    def scores(n: int, axis: str, name: str = "pass@1") -> list[float]:
        return [at(run, axis, spent[axis], name) for run in arms[n]]

    found = [
        Result(row["N"], rates[row["N"]], scores(row["N"], "cpu_seconds"), scores(row["N"], "samples"),
               scores(row["N"], "cpu_seconds", "pass@16"), row)
        for row in predicted if row["world"] == world and row["N"] in rates
    ]  # fmt: skip
    return found, spent


def best_rate(rows: list[dict]) -> float:
    """The rate of the highest pass@1 at the end, with seed 0; where that is level, at the evaluation before it."""
    arms = by([row for row in rows if row["seed"] == 0], "rate")
    return max(arms.values(), key=lambda arm: [row["pass@1"] for row in reversed(arm)])[0]["rate"]


def price(csvs: Path) -> None:
    """price.csv: expensive and cheap prompts, the predicted noise of each N and the scores of its runs."""
    rows, predicted = load(csvs / "price.csv"), load(csvs / "price_predicted.csv")
    for world in dict.fromkeys(row["world"] for row in rows):
        found, spent = results(world, rows, predicted)
        one = found[0].predicted
        print(f"\n{world}: a prompt costs {one['prompt_cost']:.0f} rollouts, V_w / V_b is {one['ratio_start']:.0f} at "
              f"the start and {one['ratio_along']:.0f} along a run. Equal time: {spent['cpu_seconds']:.0f} s, equal "
              f"samples: {spent['samples']:,.0f}\n")  # fmt: skip
        header("N", "B", "best rate", "seeds", "noise at equal time: start", "along", "pass@1", "pass@16",
               "noise at equal samples: along", "pass@1")  # fmt: skip
        for x in found:
            noise = [f"{x.predicted[f'noise_{y}']:.2f}" for y in ("time_start", "time_along", "samples_along")]
            line(x.n, x.predicted["B"], f"{x.rate:g}", len(x.at_time), *noise[:2], shown(x.at_time, ".3f"),
                 shown(x.breadth, ".3f"), noise[2], shown(x.at_samples, ".3f"))  # fmt: skip


def real_plateau(csvs: Path) -> None:
    """real_plateau.csv: the real model to the plateau of N = 16, and the four arms that start there."""
    rows = load(csvs / "real_plateau.csv")
    print("\nN = 16 to its plateau: held-out pass@1 of a policy, and how much of it came last\n")
    header("learning rate", "samples", "pass@1", "the last half gained", "the last quarter", "pass@16", "tokens")
    way = [row for row in rows if row["arm"] == "saturate"]
    start, end = way[0], way[-1]
    before = [at(way, "samples", end["samples"] * share, "pass@1") for share in (1 / 2, 3 / 4)]
    line(f"{end['rate']:g}", f"{end['samples']:,}", f"{start['pass@1']:.3f} to {end['pass@1']:.3f}",
         *(f"{end['pass@1'] - x:+.3f}" for x in before), f"{start['pass@16']:.3f} to {end['pass@16']:.3f}",
         f"{start['tokens']:.1f} to {end['tokens']:.1f}")  # fmt: skip
    groups = {arm: list(by(own, "seed").values()) for (arm,), own in by(rows, "arm").items() if arm != "saturate"}
    least = min(run[-1]["cpu_seconds"] for group in groups.values() for run in group)
    print(f"\nThe arms from there, after {least:.0f} s each\n")
    header("arm", "N", "B", "seeds", "pass@1", "tokens of right answers", "of wrong ones", "pass@1 per token")
    names = ("pass@1", "right", "wrong", "tokens")
    for arm, group in ({"start": [[end]]} | groups).items():
        found = {name: [at(run, "cpu_seconds", least, name) for run in group] for name in names}
        each = [x / y for x, y in zip(found["pass@1"], found["tokens"], strict=True)]
        line(arm, group[0][0]["N"], group[0][0]["B"], len(group), shown(found["pass@1"], ".3f"),
             shown(found["right"], ".1f"), shown(found["wrong"], ".1f"), shown(each, ".4f"))  # fmt: skip


TABLES = (figure1, regimes, heat, controls, table2, sweep, hard, objective, theorem1, default_runs,
          real_model, law, noise, price, real_plateau)  # fmt: skip


def call(about: str, parts) -> None:
    """The command line of this file and of draw.py: each part takes the folder of the CSVs."""
    named = {part.__name__: part for part in parts}
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=named, default=named, help="some of them (default: all)")
    parser.add_argument("--csvs", type=Path, default=EVIDENCE, help="the folder of the CSVs (default: evidence/)")
    args = parser.parse_args()
    for name in args.only:
        named[name](args.csvs)


if __name__ == "__main__":
    call(__doc__, TABLES)
