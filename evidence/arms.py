"""Figure 1, table 1 and section 4.2.2: three arms from one saturated policy, over samples and over CPU time."""

from pathlib import Path

import numpy as np
from matplotlib.ticker import EngFormatter

from evidence import ttest
from evidence.report import LOOKS, curves, header, line, look, over_samples, panels, save, shown
from evidence.runs import ARMS, AXES, WORLDS, at, crossing, finished, found, load, read, seed_of, seeds_of, write

Group = list[list[dict]]  # the runs of an arm, one a seed


def figure1(out: Path | None, here: Path) -> None:
    """figure1.csv and .png, plateau.png, shrinkage.png: the saturating runs, and the arms that go on from them."""
    table = rows_of_arms(out) if out else load(here / "figure1.csv")
    if not table:
        return
    write(here / "figure1.csv", table)
    groups = seeds_of(table, "world", "arm")
    runs = {w: {arm: groups[w, arm] for arm in ARMS if (w, arm) in groups} for w in WORLDS}
    plateau({w: groups[w, "saturate"][0] for w in WORLDS if (w, "saturate") in groups}, runs, here)
    runs = {w: arms for w, arms in runs.items() if arms}
    for world, arms in runs.items():
        print_arms(world, arms)
    if runs:
        draw_scores(runs, here / "figure1.png")
        draw_figure_3(runs, here / "shrinkage.png")


def rows_of_arms(out: Path) -> list[dict]:
    table = []
    for world in WORLDS:
        if finished(out, f"saturate-{world}"):
            table += [{"world": world, "arm": "saturate", "seed": 0} | r for r in read(out / f"saturate-{world}")]
    for (arm, world, seed), folder in found(out, "*-*-seed*"):
        if arm in ARMS and world in WORLDS:
            table += [{"world": world, "arm": arm, "seed": seed_of(seed)} | r for r in read(folder)]
    return table


def print_arms(world: str, arms: dict[str, Group]) -> None:
    """At equal samples and at equal time; and where one arm overtakes another."""
    start = next(iter(arms.values()))[0][0]
    samples = min(r[-1]["samples"] for group in arms.values() for r in group)
    seconds = min(r[-1]["cpu_seconds"] for group in arms.values() for r in group)
    print(f"\n{WORLDS[world]}; the saturated policy: Q_pos {start['q_pos']:.4f}, pass@64 {start['pass@64']:.4f}")
    names = "q_pos", "pass@16", "pass@64", "pass@1024"
    header("arm", "seeds", "steps", "samples", "CPU minutes", "Q_pos", *names[1:], "answers that fell", "worst drop")
    for axis, where, label in (("samples", samples, "equal samples"), ("cpu_seconds", seconds, "equal time")):
        for arm, group in arms.items():
            cells = [shown([at(r, axis, where, name) for r in group]) for name in names]
            cells += [shown([at(r, axis, where, name) for r in group], ".3f") for name in ("fell", "worst_drop")]
            spent = [f"{np.mean([at(r, axis, where, name) for r in group]):,.0f}" for name in ("step", "samples")]
            minutes = np.mean([at(r, axis, where, "cpu_seconds") for r in group]) / 60
            line(f"{label}: {ARMS[arm]}", len(group), *spent, f"{minutes:.1f}", *cells)
    for axis, unit in AXES:
        for arm in [a for a in ("brorl", "batch") if a in arms and "prorl" in arms]:
            print(f"{ARMS[arm]} against {ARMS['prorl']}: {crossing(arms[arm], arms['prorl'], axis, unit)}")


def draw_scores(runs: dict[str, dict[str, Group]], path: Path) -> None:
    figure, axes = panels(len(runs), 4, 18, 4.2 * len(runs))
    shows = [
        ("q_pos", "samples", 1, "held-out Q_pos, exact"),
        ("q_pos", "cpu_seconds", 60, "held-out Q_pos, exact"),
        ("pass@64", "samples", 1, "held-out pass@64"),
        ("correct", "samples", 1, "share correct in training"),
    ]
    for panes, (world, arms) in zip(axes, runs.items(), strict=True):
        for axis, (name, x, unit, title) in zip(panes, shows, strict=True):
            curves(axis, arms, x, unit, lambda r, name=name: r[name])
            axis.set(title=title, xlabel="samples generated" if x == "samples" else "CPU minutes")
            if x == "samples":
                axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        panes[0].set_ylabel(WORLDS[world])
        panes[-1].legend(fontsize=8)
    title = "From a policy saturated with N = 16, each recipe by the paper's rule. Mean over seeds, band: their range"
    save(figure, path, title)


def draw_figure_3(runs: dict[str, dict[str, Group]], path: Path) -> None:
    figure, axes = panels(len(runs), 3, 14, 4.2 * len(runs))
    shows = [
        ("correct mass", lambda r: r["q_pos"]),
        ("% of answers above their start", lambda r: 100 * r["improved"]),
        ("worst drop of an answer", lambda r: r["worst_drop"]),
    ]
    for panes, (world, arms) in zip(axes, runs.items(), strict=True):
        for axis, (title, value) in zip(panes, shows, strict=True):
            curves(axis, arms, "samples", 1, value)
            over_samples(axis, title)
        panes[1].axhline(50, color="gray", ls=":", label="weights moved at random: 47% to 57%")
        panes[0].set_ylabel(WORLDS[world])
        panes[1].legend(fontsize=8)
    save(figure, path, "Figure 3's panels on a transformer, summed over all answers of 512 held-out problems")


def plateau(saturating: dict[str, list[dict]], runs: dict[str, dict[str, Group]], here: Path) -> None:
    """The curve that all arms start from the end of, and the arms behind it on the same axes."""
    if not saturating:
        return
    figure, axes = panels(1, len(saturating), 7 * len(saturating), 4.4)
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
                label = f"Q_pos, {ARMS[name]}, {len(group)} seed(s)" if run is group[0] else None
                axis.plot([end["samples"] + r["samples"] for r in run], [r["q_pos"] for r in run], label=label,
                          **look(*LOOKS[name]))  # fmt: skip
        over_samples(axis, WORLDS[world])
        axis.set_ylim(0.1, 1.02)
        axis.legend(fontsize=8)
    title = "The plateau: held-out scores of the run that saturated the policy, and the arms that go on from it"
    save(figure, here / "plateau.png", title)


def t_tests(out: Path | None, here: Path) -> None:
    """ttest.csv: ttest.py of the first arm and each other, from the sampled evaluation at the end of the runs."""
    table = load(here / "ttest.csv") if not out else []
    for (arm, world, seed), folder in found(out, "*-*-seed*"):
        first = folder.parent / f"prorl-{world}-{seed}"
        if arm not in ARMS or arm == "prorl" or world not in WORLDS or not finished(first.parent, first.name):
            continue
        a, b = ttest.read(first, None), ttest.read(folder, None)
        who = {"world": world, "a": "prorl", "b": arm, "seed": seed_of(seed), "responses": a["k"]}
        table.append(who | ttest.compare(a, b)._asdict())
    if not table:
        return
    write(here / "ttest.csv", table)
    header("prompts", "B", "seed", "problems", "pass@1 of N = 16, B = 128", "of B", "Δ (95%)", "t", "p, two-tailed")
    for r in table:
        line(WORLDS[r["world"]], ARMS[r["b"]], r["seed"], r["instances"], f"{r['mean_a']:.4f}", f"{r['mean_b']:.4f}",
             f"{r['delta']:+.4f} ({r['low']:+.4f} to {r['high']:+.4f})", f"{r['t']:.2f}",
             f"{r['p_two_tailed']:.2g}")  # fmt: skip
