"""Intervals, and rank correlations with theirs."""

import math

import numpy as np
from scipy import stats


def interval(x: list[float]) -> tuple[float, float]:
    """Mean, and half of its 95% interval: t s / sqrt(n), t with n - 1 degrees of freedom. nan from one seed."""
    n = len(x)
    half = stats.t.ppf(0.975, n - 1) * np.std(x, ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return float(np.mean(x)), float(half)


def shown(x: list[float], form: str = ".4f") -> str:
    mean, half = interval(x)
    return f"{mean:{form}} ± {half:{form}}" if len(x) > 1 else f"{mean:{form}}"


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation; nan where either is constant."""
    return stats.spearmanr(x, y).statistic if np.ptp(x) > 0 and np.ptp(y) > 0 else math.nan


def partial(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> float:
    """Spearman's correlation of x and y that is left when both are freed of `given`, by ranks."""
    xy, xg, yg = spearman(x, y), spearman(x, given), spearman(y, given)
    return (xy - xg * yg) / np.sqrt((1 - xg**2) * (1 - yg**2))


def bootstrap(statistic, columns, clusters: list[np.ndarray], times: int, rng) -> tuple[float, float, float]:
    """The statistic of these columns, and its 95% interval from drawing whole clusters of rows again."""
    drawn = [np.concatenate([clusters[i] for i in rng.integers(len(clusters), size=len(clusters))])
             for _ in range(times)]  # fmt: skip
    low, high = np.nanpercentile([statistic(*(x[i] for x in columns)) for i in drawn], [2.5, 97.5])
    return float(statistic(*columns)), float(low), float(high)


def between(estimate: tuple[float, float, float]) -> str:
    return f"{estimate[0]:.2f} ({estimate[1]:.2f} to {estimate[2]:.2f})"
