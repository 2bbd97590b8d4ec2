"""The style of the pictures of trainer/, tools/ and lab/bugs.py: panels, axes, legends."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import EngFormatter

# The colour-blind tell these colours apart (Okabe and Ito, 2008)
STYLE: Any = {
    "axes.prop_cycle": cycler(color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]),
    "axes.grid": True, "grid.alpha": 0.3, "axes.titlesize": "medium", "figure.titlesize": "medium",
    "figure.titleweight": "bold", "font.size": 11, "figure.dpi": 110,
}  # fmt: skip


def panels(rows: int, columns: int, title: str, size: tuple[float, float] = (5.2, 3.9)) -> tuple[Figure, np.ndarray]:
    """Make a figure. size: of a panel, in inches. Returns it and its axes, (rows, columns)."""
    with rc_context(STYLE):
        figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
        figure.suptitle(title)
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def label_axis(axis: Axes, title: str, x: str = "samples generated") -> None:
    """Give an axis its title, and the name and unit of x. Counts of samples are written 200k or 1M."""
    axis.set(title=title, xlabel=x)
    if x.startswith("samples"):
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def common_legend(figure: Figure) -> None:
    """Put one legend below all panels. It has the label of every line once."""
    found: dict[str, Artist] = {}
    for axis in figure.axes:
        found |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend([*found.values()], [*found], loc="outside lower center", ncols=3, frameon=False)
