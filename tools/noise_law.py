"""Which N has the least noise in the same time? The theory behind tools/which_n.py and docs/which_n.md.

N rollouts of a prompt estimate the gradient of p, its probability of a correct response. N changes the noise of this
estimate, not its mean. If a step rolls out B prompts N times each, the trace of its covariance is

    noise(N, B) ≈ (V_b + V_w / (N - 1)) / B

    name here   symbol       meaning
    mean2       |ḡ|²         g_x = ∇p_x of prompt x, ḡ its mean over prompts
    between     V_b          E|g_x|² - |ḡ|²: how much prompts differ
    within      V_w          how much the rollouts of a prompt differ: the variance of (R - p) ∇log π(y), mean over x
    ratio       V_w / V_b    measured as V_b / V_w with its standard error (jackknife over prompts)
    kept        K_N          P(0 < #correct < N), mean over prompts: the share of informative prompts
    seconds     t(N)         seconds of a step, divided by the prompts that it draws

In the same time a small N takes more steps. The mean of their gradients has the noise

    noise(N, B) x seconds of a step = (V_b + V_w / (N - 1)) t(N)

So N is chosen for a fixed B. Before a measurement V_w / V_b is taken to be 4 to 2,500 (`belief`): a prior.

Two halves of a group, n rollouts each with their own mean as the baseline, give two independent, unbiased estimates:

    h = 1/(n - 1) Σ_i (R_i - R̄_h) ∇log π(y_i),   E[h] = g_x,   E[h_0 · h_1] = |g_x|²,   E|h_0 - h_1|² / 2 = Var(h)

Var(h) = V_w / n + (|g_x|² + p(1-p) E|∇log π|²) / (n (n - 1)). The law omits the second term, about 1/N of the first. A
group that dynamic sampling drops has h_0 = h_1 = 0 and counts as 0. The law is about the advantages before whitening
and clipping, and about the policy as it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import brorl

FEW = 8  # V_b is not estimated from fewer informative prompts
CLOSE = 1.25  # times the least noise: another N has at most 20% less
RATIOS = np.geomspace(1, 1e5, 501)  # V_w / V_b that are considered
USUAL, SPREAD = 100.0, 5.0  # before a measurement: log-normal, 95% from 4 to 2,500

# ------------------------------------------------------------------------------------------------------------ the law


def best_n(ratio: float, cost: float = 0.0) -> float:
    """N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b): the N with the least noise at equal cost B (c_p + N c_r).

    As in two-stage cluster sampling. cost: c_p / c_r, the cost of a prompt in rollouts; 0 if only samples count.
    """
    return 1 + math.sqrt((1 + cost) * ratio)


def noise_at_equal_cost(n: float, ratio: float, cost: float = 0.0) -> float:
    """(V_b + V_w / (N - 1)) (c_p + N c_r), in units of V_b c_r. Only quotients of two values have a meaning."""
    return (1 + ratio / (n - 1)) * (cost + n)


def noise_at_equal_time(n, ratio, seconds):
    """(V_b + V_w / (N - 1)) t(N), in units of V_b. Takes numbers or arrays. Only quotients have a meaning."""
    return (1 + ratio / (n - 1)) * seconds


def kept_share(correct: Sequence[int], n: int, size: int) -> float:
    """Estimate K_N for N = size from the number of correct rollouts among n, for each prompt.

    Up to N = n the estimate is unbiased: 1 - C(c_x, N) / C(n, N) - C(n - c_x, N) / C(n, N). Beyond, the gain of
    each doubling of N is a constant fraction of the gain before it, as for a Beta distribution of p.
    """

    def unbiased(size: int) -> float:
        pass_at = brorl.pass_at_k_estimate
        return statistics.fmean(pass_at(n, c, size) + pass_at(n, n - c, size) - 1 for c in correct)

    if size <= n:
        return unbiased(size)
    quarter, half, whole = (unbiased(n // x) for x in (4, 2, 1))
    r = min(max((whole - half) / max(half - quarter, 1e-9), 0.0), 0.95)
    return min(1.0, whole + (whole - half) * r * (1 - r ** math.log2(size / n)) / (1 - r))


# --------------------------------------------------------------------------------------------- the estimate of V_w, V_b


class Variances(NamedTuple):
    """Means over all prompts, dropped ones included."""

    within: Any  # V_w
    between: Any  # V_b
    mean2: Any  # |ḡ|²


def by_prompt(gram: Tensor) -> Tensor:
    """(3, M), by prompt x: h_0 · h_1, the mean of |h_0|² and |h_1|², and Σ_y h̄_x · h̄_y over the other prompts y."""
    m = len(gram) // 2
    pairs = gram.double().view(m, 2, m, 2)
    own = pairs.diagonal(dim1=0, dim2=2)  # (2, 2, M): the four products of a prompt's halves
    return torch.stack([own[0, 1], (own[0, 0] + own[1, 1]) / 2, (pairs.sum((1, 2, 3)) - own.sum((0, 1))) / 4])


def variances(sums: Tensor, prompts: int, n: int) -> Variances:
    """Compute V_w, V_b and |ḡ|² from the sums of `by_prompt` over prompts. sums: (3, ...)."""
    g2, squares, mean2 = sums[0] / prompts, sums[1] / prompts, sums[2] / (prompts * max(prompts - 1, 1))
    return Variances((n - 1) * (squares - g2), g2 - mean2, mean2)


def estimate(gram: Tensor, prompts: int, n: int) -> Variances:
    """Estimate V_w, V_b and |ḡ|², all but V_w without bias, from inner products of half-groups with n rollouts.

    gram: (2M, 2M), of the half-groups 2x and 2x + 1 of each of M prompts. prompts: M and the dropped prompts.
    """
    return Variances(*(float(x) for x in variances(by_prompt(gram).sum(1), prompts, n)))


class Ratio(NamedTuple):
    """The estimate of V_b / V_w, and its standard error."""

    inverse: float
    error: float


def ratio_of(gram: Tensor, prompts: int, n: int) -> Ratio | None:
    """Estimate V_b / V_w, with the arguments of `estimate`. None for few prompts, or if V_w is not positive.

    Standard errors of V_b and V_w: sqrt((P - 1) / P Σ_x (v_x - v̄)²), where v_x is the estimate without prompt x.
    """
    m, found, each = len(gram) // 2, estimate(gram, prompts, n), by_prompt(gram)
    if m < FEW or found.within <= 0:
        return None
    total = each.sum(1, keepdim=True)
    without = total - each * torch.tensor([[1.0], [1.0], [2.0]])  # a product of two prompts is in two of the sums
    without = torch.cat([without, total.expand(-1, prompts - m)], 1)  # (3, P)
    within, between, _ = (math.sqrt((prompts - 1) * x.var(correction=0)) for x in variances(without, prompts - 1, n))
    inverse = found.between / found.within
    return Ratio(inverse, max(math.hypot(between, inverse * within) / found.within, 1e-9))


# ------------------------------------------------------------------------------------------------------ the best guess


def belief(ratio: Ratio | None) -> np.ndarray:
    """The probability of each of RATIOS: a log-normal around the usual V_w / V_b, times the measurement's likelihood.

    The measured V_b / V_w is normal around the true one. A sample without a measurement leaves the usual values.
    """
    log = -(np.log(RATIOS / USUAL) ** 2) / (2 * math.log(SPREAD) ** 2)
    if ratio:
        log = log - ((1 / RATIOS - ratio.inverse) / ratio.error) ** 2 / 2
    weight = np.exp(log - log.max())
    return weight / weight.sum()


class Guess(NamedTuple):
    """The best guess, how sure it is, and V_w / V_b with a 95% interval."""

    n: int
    sure: float  # probability that no other N has over 20% less noise in the same time
    ratio: float
    ratio_low: float
    ratio_high: float


def guess(seconds: dict[int, float], ratio: Ratio | None) -> Guess:
    """Choose the N whose noise in the same time is expected to be nearest to the least. seconds: N -> t(N)."""
    sizes, weight = [*seconds], belief(ratio)
    noise = np.array([noise_at_equal_time(n, RATIOS, t) for n, t in seconds.items()])  # (sizes, RATIOS)
    excess = noise / noise.min(0)
    chosen = int(np.argmin(excess @ weight))
    ratios = (float(RATIOS[np.argmax(weight.cumsum() > x)]) for x in (0.5, 0.025, 0.975))
    return Guess(sizes[chosen], float(weight[excess[chosen] <= CLOSE].sum()), *ratios)
