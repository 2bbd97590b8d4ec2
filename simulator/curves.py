"""The curves that sim.py's runs give: what they hold, their CSV, and the tables that sim.py prints.

Section 4.1's figure is K curves, one for each N, of M recorded steps; with several seeds, a mean and a band.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Theorem 1 as the paper states it, at every recorded step: printed as means, and not in the CSV, whose columns stay.
THEOREM_1 = ("mood", "sampled_correct", "sampled_incorrect", "unsampled_coupling")


class Curves(NamedTuple):
    """What one seed gave for each of K values of N."""

    seed: int
    rollouts: tuple[int, ...]  # (K,) the N's, a row each
    steps: np.ndarray  # (M,) the steps recorded: values before that many updates
    values: dict[str, np.ndarray]  # name -> (K, M)


def steps_to_record(steps: int, dense: int) -> np.ndarray:
    """Every step up to `dense`, and from there on 20 a decade, which a logarithmic axis shows evenly."""
    every = np.arange(min(steps, dense) + 1)
    if steps <= dense:
        return every
    decades = np.log10(steps / dense)
    beyond = np.geomspace(dense, steps, max(2, round(20 * decades))).round().astype(int)
    return np.union1d(every, beyond)


def by_rollouts(curves: list[Curves]) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """N -> (steps, name -> (seeds, M)), in ascending N."""
    found: dict[int, list[tuple[np.ndarray, dict[str, np.ndarray]]]] = {}
    for c in curves:
        for k, n in enumerate(c.rollouts):
            found.setdefault(n, []).append((c.steps, {name: v[k] for name, v in c.values.items()}))
    return {
        n: (runs[0][0], {name: np.stack([values[name] for _, values in runs]) for name in runs[0][1]})
        for n, runs in sorted(found.items())
    }


def table(curves: list[Curves], at_step: int | None = None) -> str:
    """The panels' values at one step, or at each curve's last; mean over seeds, ± half their range."""
    lines = [f"{'N':>7} {'step':>8} {'samples':>11} {'correct mass':>16} {'% improved':>14} {'worst drop':>21}"]
    for n, (steps, values) in by_rollouts(curves).items():
        at = len(steps) - 1 if at_step is None else int(np.searchsorted(steps, at_step))

        def cell(name, form, values=values, at=at):
            x = values[name][:, at]
            return f"{x.mean():{form}}" + (f" ± {np.ptp(x) / 2:{form.lstrip('+')}}" if len(x) > 1 else "")

        lines.append(
            f"{n:>7,} {steps[at]:>8,} {n * steps[at]:>11,} {cell('correct_mass', '.4f'):>16} "
            f"{cell('percent_improved', '.2f'):>14} {cell('worst_drop', '+.1e'):>21}"
        )
    return "\n".join(lines)


def table_at_equal_samples(curves: list[Curves], samples: int) -> str:
    """Correct mass / % improved after the same number of samples, mean over seeds, and which N leads in what.

    Between two recorded steps the values are interpolated; "-" and no verdict where a budget is not one step of N.
    """
    budgets = [samples // 4**i for i in (3, 2, 1, 0)]
    runs = by_rollouts(curves)
    at = {
        name: {n: np.interp(budgets, n * steps, values[name].mean(0)) for n, (steps, values) in runs.items()}
        for name in ("correct_mass", "percent_improved", "worst_drop")
    }
    lines = [f"{'N':>7}" + "".join(f"{f'{budget:,} samples':>22}" for budget in budgets)]
    for n in runs:
        triples = zip(budgets, at["correct_mass"][n], at["percent_improved"][n], strict=True)
        cells = (f"{mass:.4f} / {improved:.2f} %" if budget >= n else "-" for budget, mass, improved in triples)
        lines.append(f"{n:>7,}" + "".join(f"{cell:>22}" for cell in cells))
    for i, budget in enumerate(budgets):
        stepped = [n for n in runs if n <= budget]
        if len(stepped) < 2:
            continue
        mass, improved, drop = (stepped[int(np.argmax([value[n][i] for n in stepped]))] for value in at.values())
        leaders = f"most mass N = {mass:,}, most improved N = {improved:,}, least worst drop N = {drop:,}"
        lines.append(f"After {budget:,} samples: {leaders}.")
    return "\n".join(lines)


def theorem_1(curves: list[Curves]) -> str:
    """S_R and Theorem 1's three terms over η, means over steps and seeds; and how often their sum is negative."""
    titles = ("S_R", "drawn correct", "drawn incorrect", "undrawn", "sum")
    lines = [f"{'N':>7}" + "".join(f"{title:>17}" for title in titles) + f"{'sum below 0':>14}"]
    for n, (_, values) in by_rollouts(curves).items():
        mood, *terms = (values[name] for name in THEOREM_1)
        total = np.sum(terms, axis=0)
        cells = "".join(f"{x.mean():>17.1e}" for x in (mood, *terms, total))
        lines.append(f"{n:>7,}{cells}{(total < 0).mean():>14.1%}")
    return "\n".join(lines)


def write_csv(path: Path, curves: list[Curves], every: int, dense: int) -> None:
    """One row a seed, N and recorded step; up to step `dense` only each `every`-th, to keep the file small."""
    names = [name for name in curves[0].values if name not in THEOREM_1]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["seed", "N", "step", "samples", *names])
        for c in curves:
            for k, n in enumerate(c.rollouts):
                for at, step in enumerate(c.steps.tolist()):
                    if step % every == 0 or step > dense or step == c.steps[-1]:
                        row = [f"{float(c.values[name][k, at]):.6g}" for name in names]
                        writer.writerow([c.seed, n, step, n * step, *row])
