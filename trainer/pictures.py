"""Pictures: the style of all that trainer/, tools/ and lab/bugs.py draw, and curves.png, drawn at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
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


def draw_curves(rows: list[dict], path: Path, title: str) -> None:
    """Draw pass@k, reward, entropy, KL, clipping and gradient norm over the samples. rows: of metrics.jsonl."""
    scores = [key for key in rows[0] if key.startswith("eval/pass@") and not key.endswith("_se")]
    shown = {  # title of a panel -> what is normal, and the metrics
        "held-out pass@k; band: 2 standard errors of pass@1": ("pass@1 rises", scores),
        "reward; pass rate of dynamic sampling": ("reward rises; pass rate stays above 0", ["reward", "pass_rate"]),
        "entropy (nats per token)": ("falls slowly, stays above 0", ["entropy"]),
        "KL (nats per token)": ("kl_ref grows until a reset; engine_kl stays near 0", ["kl_ref", "engine_kl"]),
        "share of tokens clipped": ("a few percent at most", ["clip_high_fraction", "clip_low_fraction"]),
        "gradient norm before clipping": ("no jumps by a factor of 10", ["grad_norm"]),
    }
    figure, axes = panels(3, 2, title)
    for axis, (panel, (normal, keys)) in zip(axes.flat, shown.items(), strict=True):
        for key in keys:
            points = [(row["samples"], row[key], row.get(f"{key}_se", 0)) for row in rows if key in row]
            if points:
                x, y, se = zip(*points, strict=True)
                axis.plot(x, y, lw=1.5, label=key.removeprefix("eval/"))
                low, high = ([a + sign * s for a, s in zip(y, se, strict=True)] for sign in (-2, 2))
                axis.fill_between(x, low, high, alpha=0.2)
        label_axis(axis, f"{panel}\n{f'normal: {normal}' if axis.lines else 'no data'}")
        if not axis.lines:
            axis.set_axis_off()
        elif len(axis.lines) > 1:
            axis.legend(frameon=False, fontsize="small")
    figure.savefig(path)
