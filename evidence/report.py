"""How draw.py's parts print their tables and draw their pictures: intervals, rows in Markdown, panels, colours."""

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from scipy import stats

from evidence.runs import ARMS

COLORS = {(16, 128): "blue", (16, 1024): "green", (512, 32): "orange", (512, 128): "red"}
STYLES = {1e-4: "-", 3.5e-5: "--", 1e-5: ":"}


def interval(x: list[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval; nan from one seed."""
    some = np.array(x)
    n, half = len(some), math.nan
    if n > 1:
        half = stats.t.ppf(0.975, n - 1) * some.std(ddof=1) / math.sqrt(n)
    return some.mean(), half


def shown(x: list[float], form: str = ".4f") -> str:
    mean, half = interval(x)
    return f"{mean:{form}} ± {half:{form}}" if len(x) > 1 else f"{mean:{form}}"


def header(*names: str) -> None:
    line(*names)
    print("|" + "---|" * len(names))


def line(*cells) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


def panels(rows: int, columns: int, width: float, height: float, **more):
    """A figure, and its axes (rows, columns)."""
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **more)


def over_samples(axis, title: str) -> None:
    axis.set(title=title, xlabel="samples generated")
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.grid(alpha=0.3)


def save(figure: Figure, path: Path, title: str = "") -> None:
    if title:
        figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def curves(axis, arms: dict[str, list[list[dict]]], x: str, unit: float, value) -> None:
    """Mean and range over seeds, a line an arm."""
    for arm, group in arms.items():
        label, color = ARMS[arm]
        grid = np.linspace(0, min(rows[-1][x] for rows in group), 60)
        lines = np.array([np.interp(grid, [r[x] for r in rows], [value(r) for r in rows]) for rows in group])
        axis.plot(grid / unit, lines.mean(0), color=color, label=f"{label}, {len(group)} seed(s)")
        axis.fill_between(grid / unit, lines.min(0), lines.max(0), color=color, alpha=0.2)
    axis.grid(alpha=0.3)


def recipes(axis, runs: dict[tuple, list[list[dict]]], x: str, y: str) -> None:
    """A line a seed, coloured by N and prompts a step, dashed by learning rate: `runs` as by `rates.by_recipe`."""
    for who in sorted(runs):
        n, b, rate = who
        for rows in runs[who]:
            label = f"N = {n}, B = {b:,}, η = {rate:.2g}" if rows is runs[who][0] else None
            color, style = f"tab:{COLORS.get((n, b), 'gray')}", STYLES.get(rate, "-.")
            axis.plot([r[x] for r in rows], [r[y] for r in rows], label=label, color=color, ls=style, lw=1)
    axis.grid(alpha=0.3)
