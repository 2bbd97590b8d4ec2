"""95% intervals of a mean (Student) and of the difference of two means (Welch)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats


def interval(x) -> tuple[float, float]:
    """Return the mean of x, (n,), and half of its 95% t-interval, t s / √n; nan for one number."""
    n = len(x)
    half = stats.t.ppf(0.975, n - 1) * np.std(x, ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return float(np.mean(x)), float(half)


def with_interval(x, form: str = ".3f") -> str:
    """Format `interval`; one number stands alone."""
    mean, half = interval(x)
    return f"{mean:{form}}" + (f" ± {half:{form}}" if len(x) > 1 else "")


class Welch(NamedTuple):
    """A difference of two means, its 95% interval, and the smallest true difference with 80% power.

    The last three are nan if a mean has one number only.
    """

    difference: float
    low: float
    high: float
    detects: float

    @property
    def word(self) -> str:
        """`undecided` if the interval includes 0, or if there is none."""
        return "higher" if self.low > 0 else "lower" if self.high < 0 else "undecided"


def welch(a, b) -> Welch:
    """Compare the means of a, (n_a,), and b, (n_b,), with Welch's test, which allows for two variances.

    The interval is d ± t s with s² = s_a² / n_a + s_b² / n_b, and t the quantile at 0.975 for Welch's degrees of
    freedom. A true difference of (t_0.975 + t_0.8) s is found with a probability of 80%. This is the usual
    approximation. With eight numbers in each mean the probability is 79%, with three it is 70%, for equal variances.
    """
    d = float(np.mean(a) - np.mean(b))
    if min(len(a), len(b)) < 2:
        return Welch(d, math.nan, math.nan, math.nan)
    variances = [float(np.var(x, ddof=1)) / len(x) for x in (a, b)]  # of the two means
    s = math.sqrt(sum(variances))
    if not s:
        return Welch(d, d, d, 0.0)
    degrees = s**4 / sum(v**2 / (len(x) - 1) for v, x in zip(variances, (a, b), strict=True))
    t, t_power = stats.t.ppf(0.975, degrees), stats.t.ppf(0.8, degrees)
    return Welch(d, float(d - t * s), float(d + t * s), float((t + t_power) * s))
