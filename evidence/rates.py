"""The arms at other learning rates and batches: does the rate decide, or N?"""

import json
from pathlib import Path

import numpy as np

from evidence.report import header, line, shown
from evidence.runs import at, found, load, read, seed_of, seeds_of, write

Recipe = tuple[int, int, float]  # N, prompts a step, learning rate


def by_recipe(out: Path | None, pattern: str, path: Path) -> tuple[dict[Recipe, list[list[dict]]], list[dict]]:
    """Runs by N, prompts a step and learning rate, and the rows of all of them, which `path` has without runs."""
    table = load(path) if not out else []
    for (*_, seed), folder in found(out, pattern):
        config = json.loads((folder / "config.json").read_text())
        who = {"N": config["rollouts_per_prompt"], "B": config["prompts_per_step"],
               "learning_rate": config["learning_rate"], "seed": seed_of(seed)}  # fmt: skip
        table += [who | r for r in read(folder)]
    return seeds_of(table, "N", "B", "learning_rate"), table


def regimes(out: Path | None, here: Path) -> None:
    """regimes.csv: every arm that was continued from the compact saturated policy."""
    runs, table = by_recipe(out, "*-compact-seed*", here / "regimes.csv")
    if not table:
        return
    write(here / "regimes.csv", table)
    samples = min(r[-1]["samples"] for group in runs.values() for r in group)
    print(f"\nfrom Q_pos {table[0]['q_pos']:.4f}: after {samples:,} samples, and on average over the second half")
    header("N", "B", "learning rate", "seeds", "steps", "CPU minutes", "Q_pos", "Q_pos, second half", "pass@16",
           "pass@1024", "answers that fell")  # fmt: skip
    for n, b, rate in sorted(runs):
        group = runs[n, b, rate]
        cells = [shown([at(r, "samples", samples, name) for r in group]) for name in ("q_pos", "pass@16", "pass@1024")]
        grid = np.linspace(samples / 2, samples, 50)
        half = shown([float(np.mean([at(r, "samples", x, "q_pos") for x in grid])) for r in group])
        steps, minutes = (np.mean([at(r, "samples", samples, x) for r in group]) for x in ("step", "cpu_seconds"))
        fell = shown([at(r, "samples", samples, "fell") for r in group], ".3f")
        line(n, f"{b:,}", f"{rate:.2g}", len(group), f"{steps:.0f}", f"{minutes / 60:.1f}", cells[0], half, *cells[1:],
             fell)  # fmt: skip
    went_on(runs, samples)


def went_on(runs: dict[Recipe, list[list[dict]]], samples: int) -> None:
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
