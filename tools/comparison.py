"""The arms of an experiment side by side: the table, each prediction beside its measurement, the picture.

Two arms are compared at the end of the shorter one, by linear interpolation between evaluations. "undecided": the 95%
Welch interval includes 0 (for a ratio: the interval of the logarithms), or an arm has one seed.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tools.intervals import welch, with_interval
from tools.markdown import table
from tools.plans import Groups, Row, counted, runs_of, trials, value_of
from trainer.pictures import common_legend, finish, panels


def at(run: list[Row], column: str, where: float, score: str) -> float:
    """A score where the run had spent `where`, by linear interpolation; nan after its end."""
    some = [row for row in run if row[score] != ""]
    return float(np.interp(where, [r[column] for r in some], [r[score] for r in some], right=math.nan))


def end_of(runs: list[list[Row]], column: str) -> float:
    """Where the shortest run ends."""
    return min(run[-1][column] for run in runs)


def compared(groups: Groups, x: dict) -> str:
    """Compare the arms of a prediction: the measured difference or ratio, and what these seeds detect."""
    (a, b, score), column, ratio = x["compare"], x["at"], x.get("ratio", False)
    if a not in groups or b not in groups:
        return "not measured yet"
    where = end_of(groups[a] + groups[b], column)
    own, other = ([at(run, column, where, score) for run in groups[arm]] for arm in (a, b))
    w = welch(np.log(own), np.log(other)) if ratio else welch(own, other)
    difference, low, high, detects = (math.exp(y) if ratio else y for y in w)
    form = ".3f" if ratio else "+.4f"
    words = f"{a} {'/' if ratio else '-'} {b} in {score} at {where:,.0f} {column}: {difference:{form}}"
    inside = "inside" if x["between"][0] <= difference <= x["between"][1] else "outside"
    if math.isnan(low):
        return f"{words}, one seed, {w.word}, {inside} the prediction"
    least = f"{'a ratio' if ratio else 'a difference'} of {detects:{form}} is detected with 80% power"
    return f"{words} (95%: {low:{form}} to {high:{form}}), {w.word}, {inside} the prediction; {least}"


def report(plan: dict, rows: list[Row]) -> str:
    """Markdown: the arms at equal samples, what tuning tried, and each prediction beside its measurement."""
    runs, groups = runs_of(rows), counted(plan, rows)
    text = f"{plan['question']}\n\n"
    if groups:
        limit = end_of([run for group in groups.values() for run in group], "samples")
        lines = []
        for arm, group in groups.items():
            cells = [with_interval([at(run, "samples", limit, x) for run in group], ".4f") for x in plan["scores"]]
            lines.append([arm, str(value_of(plan, runs, arm)), str(len(group)), f"{limit:,.0f}", *cells])
        text += table(["arm", "value", "seeds", "samples", *plan["scores"]], lines) + "\n"
    for arm in plan["arms"]:
        tried = {key[1]: runs[key][-1][plan["tuning"]["by"]] for key in trials(plan, arm) if key in runs}
        if tried:
            text += f"\n{arm}: tuning gave " + ", ".join(f"{score:.4f} with {x}" for x, score in tried.items())
    for x in plan["predictions"]:
        text += f"\n\n{x['claim']} Predicted: {x['between'][0]:g} to {x['between'][1]:g}.\n  {compared(groups, x)}"
    return text + "\n"


def draw(plan: dict, rows: list[Row], path: Path) -> None:
    """A panel for each pair (x, y), a curve for each arm: the mean over its seeds, and a band for their range."""
    columns = 2 if len(plan["panels"]) == 4 else len(plan["panels"])
    figure, axes = panels(len(plan["panels"]) // columns, columns, plan["question"])
    for axis, (x, y) in zip(axes.flat, plan["panels"], strict=True):
        for arm, group in counted(plan, rows).items():
            grid = np.linspace(max(run[0][x] for run in group), end_of(group, x), 60)
            seeds = np.array([[at(run, x, point, y) for point in grid] for run in group])  # (seeds, points)
            (line,) = axis.plot(grid, seeds.mean(0), label=f"{arm}, seeds: {len(group)}")
            axis.fill_between(grid, seeds.min(0), seeds.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
        finish(axis, f"{y} at equal {x}", x)
    common_legend(figure)
    figure.savefig(path)
