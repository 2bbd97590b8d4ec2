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

# Alike in all pictures: colour is N, width is prompts a step, dashes are the learning rate.
COLOURS = {16: "tab:blue", 64: "tab:cyan", 128: "tab:green", 256: "tab:olive", 512: "tab:orange", 1024: "tab:red",
           2048: "tab:purple"}  # fmt: skip
STYLES = {1e-4: "-", 3.5e-5: "--", 1e-5: ":"}
LOOKS = {"prorl": (16, 128), "brorl": (512, 32), "batch": (16, 1024)}  # N and prompts a step of ARMS


def look(n: int, b: int) -> dict:
    """Colour and width of a line."""
    return {"color": COLOURS.get(n, "gray"), "lw": 2.4 if b >= 1024 else 1.2}


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
        grid = np.linspace(0, min(rows[-1][x] for rows in group), 60)
        lines = np.array([np.interp(grid, [r[x] for r in rows], [value(r) for r in rows]) for rows in group])
        drawn = look(*LOOKS[arm])
        axis.plot(grid / unit, lines.mean(0), **drawn, label=f"{ARMS[arm]}, {len(group)} seed(s)")
        axis.fill_between(grid / unit, lines.min(0), lines.max(0), color=drawn["color"], alpha=0.2)
    axis.grid(alpha=0.3)


def recipes(axis, runs: dict[tuple, list[list[dict]]], x: str, y: str) -> None:
    """A line a seed: `runs` as by `rates.by_recipe`."""
    for who in sorted(runs):
        n, b, rate = who
        for rows in runs[who]:
            label = f"N = {n}, B = {b:,}, η = {rate:.2g}" if rows is runs[who][0] else None
            axis.plot([r[x] for r in rows], [r[y] for r in rows], label=label, ls=STYLES.get(rate, "-."), **look(n, b))
    axis.grid(alpha=0.3)
