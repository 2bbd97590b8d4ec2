"""tools/noise_law.py: the estimate by enumeration, the law by hand."""

import itertools

import pytest
import torch
from scipy import stats

from tools.noise_law import FEW, best_n, kept_share, noise_at_equal_cost, ratio_of

RIGHT = torch.tensor([1.0, 0, 0], dtype=torch.float64)


def prompt_case(p, seed):
    """A softmax over three answers, the first one right: probabilities, scores ∇log π(y), ∇p."""
    g = torch.Generator().manual_seed(seed)
    rest = torch.rand(2, generator=g, dtype=torch.float64)
    pi = torch.cat([torch.tensor([p], dtype=torch.float64), (1 - p) * rest / rest.sum()])
    scale = torch.rand(3, generator=g, dtype=torch.float64) + 0.5  # of each weight, another for each prompt
    score = (torch.eye(3, dtype=torch.float64) - pi) * scale
    return pi, score, pi[0] * score[0]


def expected_gram(cases, n):
    """E of the inner products of all half-groups, by enumeration of every half's 3^n draws."""
    halves = torch.cartesian_prod(*[torch.arange(3)] * n)
    first, second = [], []  # moments of h: E h, E|h|²
    for pi, score, _ in cases:
        chance, right = pi[halves].prod(-1), (halves == 0).double()
        h = torch.einsum("gi,gij->gj", right - right.mean(-1, keepdim=True), score[halves]) / (n - 1)
        first.append(chance @ h)
        second.append(chance @ h.square().sum(-1))
    mean = torch.stack(first).repeat_interleave(2, 0)
    gram = mean @ mean.T  # halves are independent of each other
    gram.diagonal()[:] = torch.stack(second).repeat_interleave(2)
    return gram


CASES = [prompt_case(p, seed) for seed, p in enumerate((0.5, 0.02, 0.8, 0.1, 0.3, 0.9, 0.05, 0.6))]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_estimate_is_right_by_enumeration(n):
    """Makes impossible: halves with a biased baseline, a pair of one prompt among pairs of two, n for n - 1."""
    g = torch.stack([slope for *_, slope in CASES])
    mean2 = sum(float(g[x] @ g[y]) for x, y in itertools.permutations(range(8), 2)) / 56
    variance = []  # of a half-group's gradient, by the formula in the head of the file
    for pi, score, slope in CASES:
        centred, size, g2 = RIGHT - pi[0], score.square().sum(-1), slope.square().sum()
        within = (pi * centred.square() * size).sum() - g2
        variance.append(within / n + (g2 + pi[0] * (1 - pi[0]) * (pi * size).sum()) / (n * (n - 1)))
    want = float((n - 1) * torch.stack(variance).mean()) / (float(g.square().sum(-1).mean()) - mean2)
    found = ratio_of(expected_gram(CASES, n), [2 * n] * 8, [])
    assert found.middle == pytest.approx(want, rel=1e-12) and found[3:] == (True, 8, 8)


def simulated_groups(ratio, sizes, seed):
    """The inner products of half-groups with V_b = 6 and this V_w / V_b, of normal gradients. sizes: N of each."""
    g = torch.Generator().manual_seed(seed)
    own, n = torch.randn(len(sizes), 1, 6, generator=g) + 1, torch.tensor(sizes)[:, None, None] / 2
    h = own + (ratio / n).sqrt() * torch.randn(len(sizes), 2, 6, generator=g)
    h = h.view(-1, 6).double()
    return h @ h.T


def test_dropped_groups_count_as_zero():
    """Makes impossible: means or a jackknife over kept prompts only, since a small N keeps few."""
    gram = simulated_groups(20, [16] * 10, 0)
    padded = torch.zeros(30, 30, dtype=torch.float64)
    padded[:20, :20] = gram
    found, want = ratio_of(gram, [16] * 10, [16] * 5), ratio_of(padded, [16] * 15, [])
    assert found[:3] == pytest.approx(want[:3], rel=1e-9) and (found.prompts, found.informative) == (15, 10)


@pytest.mark.parametrize(("ratio", "cost"), [(20, 0), (20, 16), (0.5, 3), (6000, 0)])
def test_best_n_has_the_least_noise(ratio, cost):
    """Makes impossible: a formula for N* that does not minimise the noise at equal cost."""
    best = best_n(ratio, cost)
    at = [noise_at_equal_cost(best * x, ratio, cost) for x in (0.98, 1, 1.02) if best * x > 1]
    assert at[1] == min(at)
    # 512 x (1 + 20/511) over 5.47 x (1 + 20/4.47): by hand
    assert noise_at_equal_cost(512, 20) / noise_at_equal_cost(best_n(20), 20) == pytest.approx(17.77, abs=0.02)


@pytest.mark.parametrize("ratio", [5.0, 200.0])
def test_the_interval_holds_the_known_ratio(ratio):
    """Makes impossible: an interval that is too narrow, or a bias by groups of two sizes: 100 simulated samples."""
    held, sizes = 0, [16] * 60 + [64] * 60
    for seed in range(100):
        found = ratio_of(simulated_groups(ratio, sizes, seed), sizes, [])
        held += found.low <= ratio * 31 / 32 and ratio * 7 / 8 <= found.high  # V_w is (n - 1) / n of the simulated one
    assert held >= 85


def test_without_a_measurement_the_usual_ratios_remain():
    """Makes impossible: certainty without a measurement; a bound of V_b that is taken for an estimate."""
    few = FEW - 1
    unknown = ratio_of(torch.zeros(0, 0), [], []), ratio_of(simulated_groups(20, [16] * few, 0), [16] * few, [16] * 90)
    equal_halves = ratio_of(torch.ones(20, 20), [16] * 10, [])  # no V_w
    for ratio in (*unknown, equal_halves):
        assert not ratio.measured and ratio[:3] == pytest.approx((4, 100, 2500))
    found = ratio_of(simulated_groups(1e6, [16] * 100, 0), [16] * 100, [])  # V_b may be 0: its estimate is below 0
    assert found.measured and found.middle == found.high == pytest.approx(1e9) and 10 < found.low < 1000


@pytest.mark.parametrize(("never", "always"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.2), (0.0, 1.0)])
def test_the_share_of_kept_prompts_is_near_the_truth(never, always):
    """Makes impossible: prompts that are never solved taken for rarely solved ones, or the reverse."""
    p = torch.tensor(stats.beta.rvs(0.8, 5, size=400, random_state=0))
    p[: int(400 * never)] = 0
    p[400 - int(400 * always) :] = 1
    correct = torch.binomial(torch.full_like(p, 64), p, generator=torch.Generator().manual_seed(0))
    for size in (16, 64, 128, 300, 512):
        assert kept_share(correct.long().tolist(), 64, size) == pytest.approx(
            float((1 - p**size - (1 - p) ** size).mean()), abs=0.05
        )
