"""The report of an experiment: a table of its arms, each prediction beside its measurement, the picture.

Two arms are compared at the end of the shorter one, by linear interpolation between evaluations. "undecided": the 95%
Welch interval includes 0 (for a ratio: the interval of the logarithms), or an arm has one seed.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tools.experiment_plan import Arms, Row, counted, runs_of, tuning_runs, value_of
from tools.intervals import welch, with_interval
from tools.markdown import table
from trainer.pictures import common_legend, label_axis, panels

WORDS = {"q_pos": "pass@1", "processor_seconds": "processor seconds"}  # of columns, in a picture


def score_at(run: list[Row], column: str, where: float, score: str) -> float:
    """Interpolate a score linearly to the point where `column` is `where`; nan after the run's end."""
    scored = [row for row in run if row[score] != ""]
    return float(np.interp(where, [r[column] for r in scored], [r[score] for r in scored], right=math.nan))


def end_of(runs: list[list[Row]], column: str) -> float:
    """Return the value of `column` at the end of the shortest run."""
    return min(run[-1][column] for run in runs)


def measured(arms: Arms, prediction: dict) -> str:
    """Return the difference or ratio that a prediction is about, its interval, and what these seeds detect."""
    (a, b, score), column, ratio = prediction["compare"], prediction["at"], prediction.get("ratio", False)
    if a not in arms or b not in arms:
        return "not measured yet"
    where = end_of(arms[a] + arms[b], column)
    scores_a, scores_b = ([score_at(run, column, where, score) for run in arms[arm]] for arm in (a, b))
    test = welch(np.log(scores_a), np.log(scores_b)) if ratio else welch(scores_a, scores_b)
    difference, low, high, detects = (math.exp(x) if ratio else x for x in test)
    form = ".3f" if ratio else "+.4f"
    words = f"{a} {'/' if ratio else '-'} {b} in {score} at {where:,.0f} {column}: {difference:{form}}"
    inside = "inside" if prediction["between"][0] <= difference <= prediction["between"][1] else "outside"
    if math.isnan(low):
        return f"{words}, one seed, {test.word}, {inside} the prediction"
    least = f"{'a ratio' if ratio else 'a difference'} of {detects:{form}} is detected with 80% power"
    return f"{words} (95%: {low:{form}} to {high:{form}}), {test.word}, {inside} the prediction; {least}"


def report(plan: dict, rows: list[Row]) -> str:
    """Return Markdown: the arms at equal samples, the scores of tuning, each prediction beside its measurement."""
    every_run, arms = runs_of(rows), counted(plan, rows)
    text = f"{plan['question']}\n\n"
    if arms:
        limit = end_of([run for runs in arms.values() for run in runs], "samples")
        starts = [run[0] for runs in arms.values() for run in runs]
        lines = [["start", "", "", "0", *(f"{np.mean([row[x] for row in starts]):.4f}" for x in plan["scores"])]]
        for arm, runs in arms.items():
            cells = [with_interval([score_at(run, "samples", limit, x) for run in runs], ".4f") for x in plan["scores"]]
            lines.append([arm, str(value_of(plan, every_run, arm)), str(len(runs)), f"{limit:,.0f}", *cells])
        text += table(["arm", "value", "seeds", "samples", *plan["scores"]], lines) + "\n"
    for arm in plan["arms"]:
        ended = [key for key in tuning_runs(plan, arm) if key in every_run]
        tried = [f"{every_run[key][-1][plan['tuning']['by']]:.4f} with {key[1]}" for key in ended]
        if tried:
            text += f"\n{arm}: tuning gave {', '.join(tried)}"
    for x in plan["predictions"]:
        text += f"\n\n{x['claim']} Predicted: {x['between'][0]:g} to {x['between'][1]:g}.\n  {measured(arms, x)}"
    return text + "\n"


def draw(plan: dict, rows: list[Row], path: Path) -> None:
    """Draw a panel for each pair (x, y), a curve for each arm: the mean over its seeds, and a band for their range."""
    plan = plan | plan.get("picture", {})
    labels = plan.get("curves", {arm: arm for arm in plan["arms"]})
    arms = {labels[arm]: runs for arm, runs in counted(plan, rows).items() if arm in labels}
    columns = 2 if len(plan["panels"]) == 4 else len(plan["panels"])
    figure, axes = panels(len(plan["panels"]) // columns, columns, plan["question"])
    for axis, (x, y) in zip(axes.flat, plan["panels"], strict=True):
        for label, runs in arms.items():
            grid = np.linspace(max(run[0][x] for run in runs), end_of(runs, x), 60)
            curves = np.array([[score_at(run, x, point, y) for point in grid] for run in runs])  # (seeds, points)
            (line,) = axis.plot(grid, curves.mean(0), label=f"{label}, seeds: {len(runs)}")
            axis.fill_between(grid, curves.min(0), curves.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
        label_axis(axis, f"{WORDS.get(y, y)} at equal {WORDS.get(x, x)}", WORDS.get(x, x))
    common_legend(figure)
    figure.savefig(path)
