"""Which N has the least noise? The law of docs/which_n.md, and the estimate of its one unknown, V_w / V_b.

tools/which_n.py and lab/3_loop.py use it; docs/n.html has a copy in JavaScript, which a test compares. It does not
know the trainer.

N rollouts of a prompt estimate the gradient of p, its probability of a correct response. N changes the noise of this
estimate, not its mean. If a step rolls out B prompts N times each, the trace of its covariance is

    noise(N, B) ≈ (V_b + V_w / (N - 1)) / B

    V_b          E|g_x|² - |E g_x|², g_x = ∇p_x of prompt x: how much prompts differ
    V_w          how much the rollouts of a prompt differ: the variance of (R - p) ∇log π(y), mean over x
    V_w / V_b    `Ratio`: its interval is the inverse of that of V_b / V_w, since V_b may be estimated as 0 or less
    K_N          `kept_share`: P(0 < #correct < N), mean over prompts: the share of informative prompts
    t(N)         seconds of a step, divided by the prompts that it draws

In the same time a small N takes more steps. The mean of their gradients has the noise

    noise(N, B) x seconds of a step = (V_b + V_w / (N - 1)) t(N)

So N is chosen for a fixed B. Before a measurement V_w / V_b is taken to be 4 to 2,500 (`USUAL`, `SPREAD`): a prior.

Two halves of a group, n rollouts each with their own mean as the baseline, give two independent, unbiased estimates:

    h = 1/(n - 1) Σ_i (R_i - R̄_h) ∇log π(y_i),   E[h] = g_x,   E[h_0 · h_1] = |g_x|²,   E|h_0 - h_1|² / 2 = Var(h)

Var(h) = V_w / n + (|g_x|² + p(1-p) E|∇log π|²) / (n (n - 1)). The law writes V_w in place of the bracket, which changes
the second term, about 1/N of the first. A group that dynamic sampling drops has h_0 = h_1 = 0 and counts as 0. The law
is about the advantages before whitening and clipping, and about the policy as it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import brorl

FEW = 8  # V_b is not estimated from fewer informative prompts
USUAL, SPREAD = 100.0, 5.0  # V_w / V_b before a measurement: log-normal, 95% from 4 to 2,500


def best_n(ratio: float, cost: float = 0.0) -> float:
    """N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b): the N with the least noise at equal cost B (c_p + N c_r).

    As in two-stage cluster sampling. cost: c_p / c_r, the cost of a prompt in rollouts; 0 if only samples count.
    """
    return 1 + math.sqrt((1 + cost) * ratio)


def noise_at_equal_cost(n: float, ratio: float, cost: float = 0.0) -> float:
    """(V_b + V_w / (N - 1)) (c_p + N c_r), in units of V_b c_r. Only quotients of two values have a meaning."""
    return noise_at_equal_time(n, ratio, cost + n)


def noise_at_equal_time(n, ratio, seconds):
    """(V_b + V_w / (N - 1)) t(N), in units of V_b. Takes numbers or arrays. Only quotients have a meaning."""
    return (1 + ratio / (n - 1)) * seconds


def kept_share(correct: Sequence[int], n: int, k: int) -> float:
    """Estimate K_N for N = k from the number c_x of correct rollouts among n, for each prompt x.

    Up to k = n the estimate is unbiased: 1 - C(c_x, k) / C(n, k) - C(n - c_x, k) / C(n, k). Beyond, for docs/n.html
    alone, the gain of each doubling of k is a constant fraction of the gain before it, as for a Beta distribution of p.
    """

    def unbiased(k: int) -> float:
        pass_at = brorl.pass_at_k_estimate
        return statistics.fmean(pass_at(n, c, k) + pass_at(n, n - c, k) - 1 for c in correct)

    if k <= n:
        return unbiased(k)
    quarter, half, whole = (unbiased(n // x) for x in (4, 2, 1))
    r = min(max((whole - half) / max(half - quarter, 1e-9), 0.0), 0.95)
    return min(1.0, whole + (whole - half) * r * (1 - r ** math.log2(k / n)) / (1 - r))


class Ratio(NamedTuple):
    """The estimate of V_w / V_b with its 95% interval; the prior if it was not measured. All three are positive."""

    low: float
    middle: float
    high: float
    measured: bool
    prompts: int
    informative: int


def ratio_of(gram: Tensor, kept_n: list[int], dropped_n: list[int]) -> Ratio:
    """Estimate V_w / V_b from half-groups. A prompt weighs as much as its rollouts.

    gram: (2M, 2M) inner products of the half-groups 2x and 2x + 1 of each informative prompt x. kept_n,
    dropped_n: N of each informative, of each other prompt. V_b has no bias; that of V_w is explained at the top of this
    file. The interval is that of V_b / V_w, by a jackknife over prompts, inverted. Each end is at most 1e9.
    """
    prompts, m = len(kept_n) + len(dropped_n), len(kept_n)
    unknown = Ratio(USUAL / SPREAD**2, USUAL, USUAL * SPREAD**2, False, prompts, m)
    if m < FEW:
        return unknown
    pairs, (w, rest) = gram.double().view(m, 2, m, 2), (torch.tensor(x).double() for x in (kept_n, dropped_n))
    halves = pairs.diagonal(dim1=0, dim2=2)  # (2, 2, M): the four products of a prompt's halves
    product, squares = halves[0, 1], (halves[0, 0] + halves[1, 1]) / 2  # E = |g_x|²; |h|²
    means = pairs.sum((1, 3)) / 4  # (M, M): the products of two prompts' means of both halves
    within = (w // 2 - 1) * (squares - product)

    def inverse(weight, weight2, within, product, cross):
        """V_b / V_w from sums over prompts: of w, w², w V_w, w |g_x|² and w_x w_y g_x · g_y."""
        return (product / weight - cross / (weight**2 - weight2)) / (within / weight)

    everyone, own = torch.cat([w, rest]), w * (means @ w) - w.square() * means.diagonal()
    sums = everyone.sum(), everyone.square().sum(), w @ within, w @ product, own.sum()
    of_each = [w, w.square(), w * within, w * product, 2 * own]  # a product of two prompts is lost with either
    of_rest = [rest, rest.square(), *(torch.zeros_like(rest) for _ in range(3))]
    without = inverse(*(s - torch.cat([x, y]) for s, x, y in zip(sums, of_each, of_rest, strict=True)))
    if sums[2] <= 0:
        return unknown
    estimate, error = float(inverse(*sums)), math.sqrt((prompts - 1) * float(without.var(correction=0)))
    low, middle, high = (1 / max(x, 1e-9) for x in (estimate + 1.96 * error, estimate, estimate - 1.96 * error))
    return Ratio(low, middle, high, True, prompts, m)
