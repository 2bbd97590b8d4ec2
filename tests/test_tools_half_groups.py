"""tools/half_groups.py: gradients of half-groups against a loop, and from some of their coordinates."""

import itertools
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, judged, loaded, sampled

from tools import half_groups
from tools.half_groups import Gradients
from trainer.outcomes import Outcomes
from trainer.policy import Policy
from trainer.problems import load_problems
from trainer.settings import Config


def groups_of(m=3, n=13):
    """The tiny policy, and of each of m prompts its rollouts, some right and some wrong, and their rewards."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:m]
    groups = sampled(model, [tokenizer(p.prompt).input_ids for p in problems], n)
    middle = [sorted(group.responses)[n // 2] for group in groups]  # an arbitrary rule
    rollouts = judged(groups, problems, lambda p, response: response >= middle[p])
    rewards = Outcomes.of(rollouts, 0, problems, n, Accelerator(cpu=True)).reward
    return Policy(model), [([r for r in rollouts if r.prompt_index == p], rewards[p]) for p in range(m)]


def gradients_of(policy, **settings):
    """`Gradients` on one process, without a run."""
    return Gradients(Config(**settings), Accelerator(cpu=True), SimpleNamespace(policy=policy, wrapped=policy))


@pytest.mark.parametrize("budget", [32768, 40])
@pytest.mark.parametrize("share_prompts", [False, True])
def test_gradients_of_half_groups_are_those_of_a_loop(budget, share_prompts):
    """Makes impossible: a rollout in the wrong half, a lost one, an odd one that counts, a lost temperature."""
    policy, groups = groups_of()
    policy.share_prompts = share_prompts
    gradients = gradients_of(policy, temperature=1.3, max_tokens_per_micro_batch=budget)
    found = torch.cat([gradients.halves(*group) for group in groups])
    want = []
    for (rollouts, _), half in itertools.product(groups, (0, 1)):
        rows = [r for r in rollouts if r.number < 12 and r.number % 2 == half]
        mean, total = sum(r.verdict.reward for r in rows) / 6, 0
        for r in rows:
            tokens = torch.cat([r.prompt, r.response])[None].long()
            logits = policy.model(tokens).logits[0] / 1.3
            begin = len(r.prompt)
            logp = logits[begin - 1 : -1].log_softmax(-1).gather(-1, tokens[0, begin:, None]).sum()
            total = total + (r.verdict.reward - mean) / 5 * logp
        slope = torch.autograd.grad(total, list(policy.parameters()), allow_unused=True)
        want.append(torch.cat([x.flatten() for x in slope if x is not None]))
    want = torch.stack(want)
    assert want.norm(dim=1).min() > 0.1
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-4)
    assert all(p.grad is None for p in policy.parameters())


def test_some_coordinates_give_the_products_of_all():
    """Makes impossible: coordinates of a few layers only, or products that shrink with their number."""
    policy, groups = groups_of(8, 64)
    found = []
    for most in (half_groups.MOST_COORDINATES, 2**14):
        with mock.patch.object(half_groups, "MOST_COORDINATES", most):
            gradients = gradients_of(policy, temperature=1.0)
        found.append(torch.cat([gradients.halves(*group) for group in groups]))
    assert len(found[1][0]) < 0.15 * sum(p.numel() for p in policy.parameters())
    squares = [x.square().sum().item() for x in found]
    assert squares[1] == pytest.approx(squares[0], rel=0.15)
