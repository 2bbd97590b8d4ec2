"""Problems that the saturated policy hardly ever solves: what training on them alone gives, and costs elsewhere."""

import itertools
import math
from pathlib import Path

import numpy as np

from evidence.rates import Recipe, by_recipe, went_on
from evidence.report import header, line, over_samples, panels, recipes, save, shown
from evidence.runs import AXES, ROOT, at, by, crossing, first_at, found, furthest, load, read, seed_of, write

KS = "pass@16", "pass@64", "pass@256", "pass@1024"
LEVELS = 0.3, 0.5, 0.65, 0.75  # of Q_pos, at which the arms are compared on their way up


def hard(out: Path | None, here: Path) -> None:
    """hard.csv, .png, hard_equal_q_pos.csv, hard_elsewhere.csv: pass@k over samples, and at the same Q_pos."""
    runs, table = by_recipe(out, "hard-*-seed*", here / "hard.csv")
    if not table:
        return
    write(here / "hard.csv", table)
    elsewhere(out, here / "hard_elsewhere.csv", "hard-*-seed*")
    every = [r for group in runs.values() for r in group]
    samples = min(r[-1]["samples"] for r in every)
    start = every[0][0]
    print(f"\nhard problems; the saturated policy: Q_pos {start['q_pos']:.4f}, "
          + ", ".join(f"{name} {start[name]:.4f}" for name in KS))  # fmt: skip
    header("", "N", "B", "learning rate", "seeds", "CPU minutes", "samples", "Q_pos", *KS, "answers that fell")
    level = 0.95 * min(max(x["q_pos"] for x in r) for r in every)  # a Q_pos that all of them reached
    print_at("equal samples", runs, lambda r: samples)
    print_at("equal Q_pos", runs, lambda r: first_at(r, "q_pos", level, "samples"))
    at_levels(runs, here)
    went_on(runs, samples)
    print_crossings(runs)
    common = {who: [[x for x in r if x["samples"] <= 1.1 * samples] for r in group] for who, group in runs.items()}
    draw(common, here / "hard.png")


def print_at(label: str, runs: dict[Recipe, list[list[dict]]], spent_by) -> None:
    """A row an arm, where each of its runs had spent what `spent_by` says."""
    for n, b, rate in sorted(runs):
        group = runs[n, b, rate]
        where = [spent_by(r) for r in group]
        minutes = np.mean([at(r, "samples", x, "cpu_seconds") for r, x in zip(group, where, strict=True)]) / 60
        cells = [shown([at(r, "samples", x, name) for r, x in zip(group, where, strict=True)])
                 for name in ("q_pos", *KS, "fell")]  # fmt: skip
        line(label, n, b, f"{rate:.2g}", len(group), f"{minutes:.1f}", f"{np.mean(where):,.0f}", *cells)


def print_crossings(runs: dict[Recipe, list[list[dict]]]) -> None:
    narrow, wide = (sorted(who for who in runs if (who[0] > 16) == x) for x in (False, True))
    for one, other in itertools.product(wide, narrow):
        who = [f"N = {n}, B = {b}, η = {rate:.2g}" for n, b, rate in (one, other)]
        for name in ("q_pos", "pass@16", "pass@64", "pass@256"):
            told = {
                crossing(choose(runs[one]), choose(runs[other]), *x, name) for x in AXES for choose in (list, furthest)
            }
            print(f"{name} of {who[0]} against {who[1]}: " + "; ".join(sorted(told)))


def draw(runs: dict[Recipe, list[list[dict]]], path: Path) -> None:
    figure, axes = panels(1, 3, 15, 4.4)
    shows = ("samples", "q_pos", "Q_pos, exact"), ("samples", "pass@64", "pass@64"), ("q_pos", "pass@256", "pass@256")
    for axis, (x, y, title) in zip(axes[0], shows, strict=True):
        recipes(axis, runs, x, y)
        if x == "samples":
            over_samples(axis, title)
    axes[0, 2].set(title="pass@256 at the same Q_pos", xlabel="Q_pos, exact")
    axes[0, 0].legend(fontsize=8)
    title = "Trained and scored on problems that the saturated policy solves 0.1% to 5% of the time; a line is a seed"
    save(figure, path, title)


def at_levels(runs: dict[Recipe, list[list[dict]]], here: Path) -> None:
    """A row a seed: what had fallen, and what was left of breadth, where its Q_pos first reached some levels."""
    table = []
    for (n, b, rate), group in sorted(runs.items()):
        for rows in group:
            for level in LEVELS:
                if math.isnan(where := first_at(rows, "q_pos", level, "samples")):
                    continue
                who = {"N": n, "B": b, "learning_rate": rate, "seed": rows[0]["seed"], "q_pos": level, "samples": where}
                scores = {name: at(rows, "samples", where, name) for name in ("fell", "pass@64", "pass@1024")}
                table.append(who | scores)
    if not table:
        return
    write(here / "hard_equal_q_pos.csv", table)
    print("\nhard problems at the same Q_pos, a number a seed")
    header("Q_pos", "N", "B", "learning rate", "samples", "answers that fell", "pass@64", "pass@1024")
    for (level, n, b, rate), rows in sorted(by(table, "q_pos", "N", "B", "learning_rate").items()):
        cells = [" / ".join(f"{r[name]:.3f}" for r in rows) for name in ("fell", "pass@64", "pass@1024")]
        line(level, n, b, f"{rate:.2g}", " / ".join(f"{r['samples']:,.0f}" for r in rows), *cells)


def elsewhere(out: Path | None, path: Path, pattern: str) -> None:
    """What training on hard problems alone left of the 512 held-out ones, of all kinds: a CSV, and a table of it."""
    table = score_elsewhere(out, pattern) if out else load(path)
    if not table:
        return
    write(path, table)
    header(*table[0])
    for row in table:
        line(*(f"{x:.4f}" if isinstance(x, float) else f"{x:,}" if isinstance(x, int) else x for x in row.values()))


def score_elsewhere(out: Path, pattern: str) -> list[dict]:
    from transformers.utils import logging  # here: no CSV needs the models, and they take seconds to import

    from tiny import exact
    from verify import load_data

    logging.disable_progress_bar()  # of loading the models
    table, problems = [], load_data([str(ROOT / "tiny" / "test.jsonl")])
    for (_, arm, seed), folder in found(out, pattern):
        knows = exact.Knowledge.of(exact.log_probs(*exact.load_policy(str(folder / "model")), problems))
        scores = exact.metrics(knows, knows)
        who = {"arm": arm, "seed": seed_of(seed), "samples": read(folder)[-1]["samples"]}
        table.append(who | {name: scores[name] for name in ("q_pos", "pass@16", "pass@64", "pass@1024")})
    return table
