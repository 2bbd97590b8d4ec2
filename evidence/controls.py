"""What else differs between the arms: each changed by itself from another policy near its plateau, and the null."""

from pathlib import Path

import numpy as np

from evidence.report import LOOKS, header, line, look, over_samples, panels, save, shown
from evidence.runs import ARMS, at, by, found, load, read, seed_of, seeds_of, write

CHANGED = {  # the runs of experiments.py's controls: arm, and what is changed
    "prorl": ("prorl", ""), "prorl_mixed": ("prorl", "mini-batches and refill of N = 512"),
    "prorl_few": ("prorl", "prompts and rate of N = 512"),
    "prorl_moments": ("prorl", "old moments"), "prorl_warmup": ("prorl", "warm-up"),
    "brorl": ("brorl", ""), "brorl_alike": ("brorl", "mini-batches and refill of N = 16"),
    "brorl_moments": ("brorl", "old moments"), "brorl_warmup": ("brorl", "warm-up"),
    "batch": ("batch", ""), "batch_moments": ("batch", "old moments"), "batch_warmup": ("batch", "warm-up"),
}  # fmt: skip
DASHES = {"": "-", "alike": ":", "mixed": ":", "few": (0, (1, 3)), "moments": "--", "warmup": "-."}
LEVELS = (0.44, 0.46, 0.48, 0.50, 0.52, 0.54, 0.56, 0.58)  # of Q_pos, at which arms are compared


def controls(out: Path | None, here: Path) -> None:
    """controls.csv, .png: the arms again with one thing changed at a time; null.csv is carried along."""
    table = load(here / "controls.csv") if not out else []
    for (_, arm, seed), folder in found(out, "control-*-seed*"):
        table += [{"arm": arm, "seed": seed_of(seed)} | r for r in read(folder)]
    null = load((out or here) / "null.csv")
    if null:
        write(here / "null.csv", null)
    if not table:
        return
    write(here / "controls.csv", table)
    groups = {who: group for (who,), group in seeds_of(table, "arm").items()}
    groups = {name: groups[name] for name in CHANGED if name in groups}
    samples = min(r[-1]["samples"] for group in groups.values() for r in group)
    early = max(rows[1]["samples"] for group in groups.values() for rows in group)
    start = table[0]
    print(f"\nanother policy, near its plateau, compact: Q_pos {start['q_pos']:.4f}, pass@64 {start['pass@64']:.4f}")
    header("arm", "changed", "seeds", f"Q_pos after {early:,} samples", "lowest Q_pos",
           f"Q_pos after {samples:,} samples", "pass@64", "answers that fell")  # fmt: skip
    figure, axes = panels(1, 2, 14, 4.8)
    for name, group in groups.items():
        arm, change = CHANGED[name]
        lowest = shown([min(r["q_pos"] for r in rows) for rows in group])
        cells = [shown([at(rows, "samples", samples, score) for rows in group]) for score in ("q_pos", "pass@64")]
        fell = shown([at(rows, "samples", samples, "fell") for rows in group], ".3f")
        first = shown([at(rows, "samples", early, "q_pos") for rows in group])
        line(ARMS[arm], change or "nothing", len(group), first, lowest, *cells, fell)
        for axis, score in zip(axes[0], ("q_pos", "pass@64"), strict=True):
            grid = np.linspace(0, min(rows[-1]["samples"] for rows in group), 60)
            mean = np.mean([[at(rows, "samples", x, score) for x in grid] for rows in group], axis=0)
            label = f"{ARMS[arm]}{', ' if change else ''}{change}, {len(group)} seed(s)"
            axis.plot(grid, mean, **look(*LOOKS[arm]), ls=DASHES[name.partition("_")[2]], label=label)
            over_samples(axis, "Q_pos, exact" if score == "q_pos" else score)
    axes[0, 1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, here / "controls.png", "The arms with one thing changed at a time. Means of seeds")


def equal_q_pos(_, here: Path) -> None:
    """equal_q_pos.csv: answers that fell where two arms, or weights moved at random, have one Q_pos. Of the CSVs."""
    arms = seeds_of(load(here / "figure1.csv"), "world", "arm").items()
    runs = [({"from": f"figure1, {world}", "arm": arm}, group) for (world, arm), group in arms]
    more = seeds_of(load(here / "controls.csv"), "arm").items()
    runs += [({"from": "controls", "arm": arm}, group) for (arm,), group in more]
    runs = [(who, group) for who, group in runs if who["arm"] in ARMS]
    if null := load(here / "null.csv"):
        moved = by([r for r in null if r["amount"]], "seed")
        runs.append(({"from": "controls", "arm": "null"}, list(moved.values())))
    table = [who | found_at for who, group in runs for level in LEVELS if (found_at := near(group, level))]
    if not table:
        return
    write(here / "equal_q_pos.csv", table)
    print("\nat the same Q_pos (checkpoints within 0.01): answers that fell, lowest and highest seed; pass@64")
    header("from", "Q_pos", "arm", "seeds", "checkpoints", "answers that fell", "pass@64")
    for r in sorted(table, key=lambda r: (r["from"], r["q_pos"])):
        name = ARMS.get(r["arm"], "moved at random")
        line(r["from"], f"{r['q_pos']:.2f}", name, r["seeds"], r["checkpoints"],
             f"{r['fell']:.2f} ({r['fell_lowest']:.2f} to {r['fell_highest']:.2f})", f"{r['pass@64']:.3f}")  # fmt: skip


def near(group: list[list[dict]], level: float) -> dict:
    """Means over an arm's checkpoints within 0.01 of a Q_pos, every seed counting the same; nothing if it has none."""
    chosen = [[r for r in rows if abs(r["q_pos"] - level) <= 0.01 and r["fell"]] for rows in group]
    if not (chosen := [rows for rows in chosen if rows]):
        return {}
    means = {name: [np.mean([r[name] for r in rows]) for rows in chosen] for name in ("fell", "pass@64")}
    result = {"q_pos": level, "seeds": len(chosen), "checkpoints": sum(map(len, chosen))}
    for of, which in (("", np.mean), ("_lowest", min), ("_highest", max)):
        result |= {f"{name}{of}": float(which(x)) for name, x in means.items()}
    return result
