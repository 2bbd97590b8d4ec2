"""How hot is a step? Held-out Q_pos against η / sqrt(B), over all arms from the compact saturated policy.

A step is as long as η, and the noise of its direction is sqrt((V_b + V_w / (N - 1)) / B) (trainer/noise.py): what a
run's weights jitter by. Near the plateau V_w / V_b is so small (noise.csv) that η / sqrt(B) says nearly the same.
"""

from pathlib import Path

import numpy as np
from scipy import stats

from evidence.report import COLOURS, header, line, panels, save
from evidence.runs import at, load, seeds_of, write
from evidence.theorem1 import partial

SWEPT_RATE = 3.5e-5  # of sweep_n.csv, which has no column for it


def heat(_: Path | None, here: Path) -> None:
    """heat.csv, heat.png: an arm a row, of regimes.csv and sweep_n.csv; Q_pos over the second half of its samples."""
    regimes = seeds_of(load(here / "regimes.csv"), "N", "B", "learning_rate")
    swept = seeds_of([r for r in load(here / "sweep_n.csv") if r["held"] == "sweep"], "N", "B")
    arms = {
        **regimes,
        **{(n, b, SWEPT_RATE): group for (n, b), group in swept.items() if (n, b, SWEPT_RATE) not in regimes},
    }
    if not arms:
        return
    rows = []
    for (n, b, rate), group in sorted(arms.items()):
        samples = min(r[-1]["samples"] for r in group)
        grid = np.linspace(samples / 2, samples, 50)
        q_pos = float(np.mean([at(r, "samples", x, "q_pos") for r in group for x in grid]))
        rows.append({"N": n, "B": b, "learning_rate": rate, "seeds": len(group), "heat": rate / b**0.5, "q_pos": q_pos})
    write(here / "heat.csv", rows)
    ends = [r["q_pos"] for r in rows]
    near = [r for r in load(here / "noise.csv") if r["how"] == "enumerated" and "near" in r["policy"]]
    ratio = near[0]["within"] / near[0]["between"] if near else 0.0
    known = {
        "η / sqrt(B)": [r["heat"] for r in rows],
        f"η sqrt((1 + {ratio:.1f} / (N - 1)) / B)": [r["heat"] * (1 + ratio / (r["N"] - 1)) ** 0.5 for r in rows],
        "η": [r["learning_rate"] for r in rows],
        "1 / B": [1 / r["B"] for r in rows],
        "N": [r["N"] for r in rows],
    }
    print(f"\nrank correlation of Q_pos over {len(rows)} arms; 95% by drawing arms anew")
    header("with", "rank correlation", "interval")
    draw = np.random.default_rng(0)
    for name, x in known.items():
        pairs = np.array([x, ends])
        chosen = [draw.integers(len(rows), size=len(rows)) for _ in range(2000)]
        again = [found for i in chosen if not np.isnan(found := correlation(*pairs[:, i]))]
        low, high = np.percentile(again, [2.5, 97.5]) if again else (np.nan, np.nan)
        line(name, f"{correlation(*pairs):.2f}", f"{low:.2f} to {high:.2f}")
    of_heat, of_n, scores = (np.array(x) for x in (known["η / sqrt(B)"], known["N"], ends))
    print(f"given N, η / sqrt(B): {left(of_heat, scores, of_n):.2f}; given that, N: {left(of_n, scores, of_heat):.2f}")
    figure, axes = panels(1, 1, 6.5, 4.4)
    axis = axes[0, 0]
    for n in sorted({r["N"] for r in rows}):
        own = [r for r in rows if r["N"] == n]
        axis.plot(
            [r["heat"] for r in own], [r["q_pos"] for r in own], "o", color=COLOURS.get(n, "gray"), label=f"N = {n:,}"
        )
    axis.set(xscale="log", xlabel="η / sqrt(B)", ylabel="held-out Q_pos, mean over the second half")
    axis.axhline(next(iter(arms.values()))[0][0]["q_pos"], color="gray", lw=1, ls="--", label="start")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save(figure, here / "heat.png", "An arm a point: the hotter the step, the lower it ends")


def left(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Partial rank correlation; nan where `given` says all there is to say of either."""
    told = [correlation(one, given) for one in (x, y)]
    return partial(x, y, given) if all(one**2 < 1 for one in told) else np.nan


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation; nan where either is all the same."""
    return float(stats.spearmanr(x, y)[0]) if np.ptp(x) > 0 and np.ptp(y) > 0 else np.nan
