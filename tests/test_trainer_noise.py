"""trainer/noise.py: its estimator by enumeration, its gradients by a loop, and what a run says of them."""

import itertools
import math
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from helpers import ROOT, lines, loaded, run

from rollout import TorchEngine
from trainer import noise
from trainer.noise import Noise, Variances, best_n, conclusion, estimate, noise_at_equal_cost, standard_errors
from trainer.policy import Policy
from trainer.rollouts import Outcomes, Rolled, TrainingGroups
from trainer.settings import Config
from verify import Verdict, load_problems

RIGHT = torch.tensor([1.0, 0, 0], dtype=torch.float64)


def prompt_case(p, seed):
    """A softmax over three answers, the first one right: probabilities, scores ∇log π(y), ∇p."""
    g = torch.Generator().manual_seed(seed)
    rest = torch.rand(2, generator=g, dtype=torch.float64)
    pi = torch.cat([torch.tensor([p], dtype=torch.float64), (1 - p) * rest / rest.sum()])
    scale = torch.rand(3, generator=g, dtype=torch.float64) + 0.5  # weights that not all prompts move alike
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


CASES = [prompt_case(p, seed) for seed, p in enumerate((0.5, 0.02, 0.8))]


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_estimates_are_unbiased_by_enumeration(n):
    """Makes impossible: halves with a biased baseline, a pair of one prompt among pairs of two, n for n - 1."""
    found = estimate(expected_gram(CASES, n), prompts=3, n=n)
    g = torch.stack([slope for *_, slope in CASES])
    mean2 = sum(float(g[x] @ g[y]) for x, y in itertools.permutations(range(3), 2)) / 6
    assert found.mean2 == pytest.approx(mean2, rel=1e-12)
    assert found.between == pytest.approx(float(g.square().sum(-1).mean()) - mean2, rel=1e-12)
    variance = []  # of a half-group's gradient, by the formula in the head of the file
    for pi, score, slope in CASES:
        centred, size, g2 = RIGHT - pi[0], score.square().sum(-1), slope.square().sum()
        within = (pi * centred.square() * size).sum() - g2
        variance.append(within / n + (g2 + pi[0] * (1 - pi[0]) * (pi * size).sum()) / (n * (n - 1)))
    assert found.within == pytest.approx(float((n - 1) * torch.stack(variance).mean()), rel=1e-12)


def test_within_is_the_variance_of_a_rollout():
    """Makes impossible: V_w of another scale than one rollout's: where p = ½ it is V_w + 2 |g|² / n."""
    pi, score, slope = prompt_case(0.5, 0)
    centred = RIGHT - pi[0]
    want = float((pi * centred.square() * score.square().sum(-1)).sum() - slope.square().sum())
    found = estimate(expected_gram([(pi, score, slope)] * 2, 10), prompts=2, n=10).within
    assert found == pytest.approx(want + 2 * float(slope.square().sum()) / 10, rel=1e-9)


def test_dropped_groups_count_as_zero():
    """Makes impossible: means over kept prompts only, of which a small N keeps few."""
    gram = expected_gram(CASES, 3)
    padded = torch.zeros(10, 10, dtype=torch.float64)
    padded[:6, :6] = gram
    for f in (estimate, standard_errors):
        for got, want in zip(f(gram, 5, 3), f(padded, 5, 3), strict=True):
            assert got == pytest.approx(want, rel=1e-9)


def test_standard_errors_are_what_the_estimates_vary_by():
    """Makes impossible: a standard error that is another size: 300 samples of 40 prompts each."""
    g = torch.Generator().manual_seed(0)
    found, errors = [], []
    for _ in range(300):
        own = torch.randn(40, 1, 6, generator=g) + 1
        h = (own + 0.5 * torch.randn(40, 2, 6, generator=g)).view(80, 6).double()
        found.append(estimate(h @ h.T, 50, 4))
        errors.append(standard_errors(h @ h.T, 50, 4))
    spread, said = torch.tensor(found).std(0), torch.tensor(errors).mean(0)
    for got, want in zip(said.tolist()[:2], spread.tolist()[:2], strict=True):
        assert 0.8 * want < got < 1.4 * want  # the ten that were dropped are drawn anew in the one, not in the other


@pytest.mark.parametrize(("ratio", "cost"), [(20, 0), (20, 16), (0.5, 3), (6000, 0)])
def test_best_n_has_the_least_noise(ratio, cost):
    """Makes impossible: a formula for N* that is not where noise at equal cost is least."""
    best = best_n(ratio, cost)
    at = [noise_at_equal_cost(best * x, ratio, cost) for x in (0.98, 1, 1.02) if best * x > 1]
    assert at[1] == min(at)
    # 512 x (1 + 20/511) over 5.47 x (1 + 20/4.47): by hand
    assert noise_at_equal_cost(512, 20) / noise_at_equal_cost(best_n(20), 20) == pytest.approx(17.77, abs=0.02)


# ------------------------------------------------------------------------------------------------------ its gradients


def kept_groups(m=3, n=13):
    """Real groups of the embedded policy with verdicts of both kinds, and the policy."""
    model, tokenizer = loaded()
    problems = load_problems(ROOT / "tiny/train.jsonl")[:m]
    groups = TorchEngine(model).generate([tokenizer(p.prompt).input_ids for p in problems], n, max_new_tokens=8)
    rolled = []
    for place, (p, group) in enumerate(zip(problems, groups, strict=True)):
        middle = sorted(group.responses)[n // 2]  # as good a rule as any: it depends on the first tokens
        right = [response >= middle for response in group.responses]
        verdicts = [Verdict(float(r), "correct" if r else "wrong") for r in right]
        rolled.append(Rolled(p, group, ["?"] * n, verdicts, place))
    outcomes = Outcomes.of(rolled, m, n, Accelerator(cpu=True))
    return Policy(model), TrainingGroups([g.prompt for g in groups], outcomes, rolled)


@pytest.mark.parametrize("budget", [32768, 40])
def test_gradients_of_half_groups_are_those_of_a_loop(budget):
    """Makes impossible: a row in the wrong half, a lost one, an odd one that counts, a lost temperature."""
    policy, kept = kept_groups()
    config = Config(rollouts_per_prompt=13, temperature=1.3, max_tokens_per_micro_batch=budget, mini_batches="rollouts")
    one = Noise(policy, config, Accelerator(cpu=True))
    halves = one.halves(kept, 3)
    got = torch.stack([one.gradient(policy, halves, rows) for rows in halves.mini_batches(6)])
    want = []
    for rolled in kept.rolled:
        for half in (0, 1):
            rows = range(half, 12, 2)
            rewards = [verdict.reward for verdict in rolled.verdicts]
            mean = sum(rewards[i] for i in rows) / 6
            total = 0
            for i in rows:
                tokens = torch.tensor([rolled.group.prompt + rolled.group.responses[i]])
                logits = policy.model(tokens).logits[0] / 1.3
                start = len(rolled.group.prompt)
                logp = logits[start - 1 : -1].log_softmax(-1).gather(-1, tokens[0, start:, None]).sum()
                total = total + (rewards[i] - mean) / 5 * logp
            slope = torch.autograd.grad(total, list(policy.parameters()), allow_unused=True)
            want.append(torch.cat([x.flatten() for x in slope if x is not None]))
    want = torch.stack(want)
    assert want.norm(dim=1).min() > 0.1
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    assert all(p.grad is None for p in policy.parameters()) and len(kept.rolled) == 3


def test_some_coordinates_tell_the_ratio_of_all():
    """Makes impossible: coordinates of a few layers only, or products that shrink with their number."""
    policy, kept = kept_groups(8, 64)
    config = Config(rollouts_per_prompt=64, temperature=1.0, max_tokens_per_micro_batch=32768, mini_batches="rollouts")
    found = []
    for most in (noise.MOST, 2**14):
        with mock.patch.object(noise, "MOST", most):
            one = Noise(policy, config, Accelerator(cpu=True))
            found.append(one.measure(policy, policy, kept, 1.0, 1))
    assert sum(len(at) for at, _ in one.at) < 0.15 * sum(p.numel() for p in policy.parameters())
    for name in ("noise/within", "noise/between"):
        assert found[1][name] == pytest.approx(found[0][name], rel=0.15)


# ---------------------------------------------------------------------------------------------------------- in a run


def test_a_run_measures_and_trains_as_without(tmp_path):
    """Makes impossible: a measurement that moves a weight, a draw or a gradient; one that is left out when due."""
    with_it = run(tmp_path / "with", log_noise=2, max_steps=3)
    without = run(tmp_path / "without", log_noise=0, max_steps=3)
    assert [row["step"] for row in with_it if "noise/within" in row] == [1, 3]
    assert [{k: x for k, x in row.items() if not k.startswith("noise/")} for row in with_it] == without
    timing = lines(tmp_path / "with/run/timing.jsonl")
    assert all(row["prompt_cost"] > 0 for row in timing) and "noise" in timing[0] and "noise" not in timing[1]


def test_what_a_prompt_costs_by_hand():
    """Makes impossible: a prompt that is read by every rollout but counted as if once, or the reverse."""
    config = Config(rollouts_per_prompt=10, updates_per_step=4, mini_batches="rollouts", share_prefix="on")
    cost = Noise.prompt_cost
    one = SimpleNamespace(config=config, shares=True)
    # roll_out: 20 of 20 + 10·2 tokens are the prompt's; update: 4·20 of 80 + 20
    assert cost(one, {"roll_out": 1.0}, [[0] * 20], 2.0) == pytest.approx(0.5 / (0.5 / 10))
    assert cost(one, {"update": 1.0}, [[0] * 20], 2.0) == pytest.approx(0.8 / (0.2 / 10))
    assert cost(one, {"roll_out": 1.0, "update": 2.0}, [[0] * 20], 2.0) == pytest.approx(2.1 / (0.9 / 10))
    one.shares = False
    assert cost(one, {"roll_out": 1.0, "update": 2.0}, [[0] * 20], 2.0) == pytest.approx(0.5 / (2.5 / 10))


def look(within, between, error):
    found = Variances(within, between, 1.0)._asdict()
    errors = {"noise/within_se": 0.0, "noise/between_se": error}
    return {f"noise/{k}": x for k, x in found.items()} | errors | {"noise/prompts": 16}


def test_the_conclusion_by_hand():
    """Makes impossible: a conclusion of other numbers than the logs', or one that no look supports."""
    assert conclusion([{"step": 0}], [], 512) == ""
    step = {"prompts": 16, "pass_rate": 0.5}
    said = conclusion([step | look(18, 1.5, 0.1), step | look(22, 0.5, 0.1), step], [{"prompt_cost": 0.0}], 512)
    # w = 20, b = 1 ± 0.0707: 20 / 1.14 and 20 / 0.859; N* = 5.5; 32 prompts x 512 / 5
    assert "V_w / V_b = 20 times that between them (18 to 23; 2 steps x 16 prompts)" in said
    assert "the least at N = 5, with 3,277 prompts rolled out in place of 32; N = 512 has 18 times as much" in said
    broken = look(math.nan, math.nan, math.nan)
    assert conclusion([step | look(18, 1.5, 0.1), step | broken, step | look(22, 0.5, 0.1)], [], 512) in said
    unsure = conclusion([step | look(20, 1.0, 0.7)], [], 512)  # 20 / 2.4; 1 + sqrt(8.3)
    assert "at least V_w / V_b = 8.3 times" in unsure and "the least at N = 4 or more" in unsure
    for nothing in (look(20, -1.0, 0.1), look(-1.0, 1.0, 0.1), look(0.0, 0.0, 0.0), look(20, 0.0, 0.0)):
        assert "Not seen in 1 step x 16 prompts" in conclusion([step | nothing], [], 512)
    assert "N = 4 has as little" in conclusion([step | look(9, 1, 0.1)], [], 4)
    dear = conclusion([step | look(20_000, 10, 0.1)], [{"prompt_cost": 123.4}], 512)
    assert "= 2,000 times" in dear and "as 120 rollouts" in dear and "e+" not in dear
