"""A step's rollouts as tensors: what belongs to what, mini-batches, micro-batches, scores."""

import pytest
import torch
from helpers import CPU, batch_of, loaded, random_groups, rollouts

import loss as L
from rollout import Group
from trainer.batch import Batch
from trainer.policy import Policy
from trainer.rollouts import Rolled, TrainingGroups
from verify import Problem, Verdict


def test_group_advantages_meet_their_own_tokens():
    """Makes impossible: rollouts paired with another group's advantage on the way into the batch."""
    groups, _ = rollouts(5)
    rewards = torch.rand(5, 6)
    batch = Batch.of(groups, L.group_advantages(rewards), torch.device("cpu"))
    for s, (i, j) in enumerate((i, j) for i in range(5) for j in range(6)):
        whole = groups[i].prompt + groups[i].responses[j]
        assert batch.tokens[s, : len(whole)].tolist() == whole
        assert batch.advantages[s] == rewards[i, j] - rewards[i].mean()
        assert batch.engine_logp[s, : len(groups[i].responses[j])].tolist() == pytest.approx(groups[i].logprobs[j])


def test_the_trainer_scores_what_the_engine_sampled():
    """Makes impossible: a temperature, mask or position in which trainer and engine differ; EOS = PAD included."""
    groups, advantages = rollouts()
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    logp, entropy = batch.score(Policy(loaded()[0]), 3.0, budget=500)
    inside = batch.inside(torch.arange(len(batch)))
    assert len(batch.response_lengths.unique()) > 2
    torch.testing.assert_close(logp[inside], batch.engine_logp[inside], atol=2e-5, rtol=0)
    assert entropy / inside.sum() == pytest.approx(-logp[inside].mean().item(), rel=0.2)


def test_micro_batches_keep_to_their_budget_and_lose_nothing():
    """Makes impossible: a micro-batch beyond its budget, a rollout trained on twice or not at all."""
    groups, advantages = rollouts()
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    rows = torch.randperm(len(batch))[:50]
    parts = batch.micro_batches(rows, 100)
    assert sorted(torch.cat(parts).tolist()) == sorted(rows.tolist())
    for part in parts:
        assert len(part) * (batch.prompt_lengths + batch.response_lengths)[part].max() <= 100
    assert [len(p) for p in batch.micro_batches(rows, 1)] == [1] * 50


def test_micro_batches_count_a_prompt_once():
    """Makes impossible: a part beyond its budget, a rollout twice or not at all, a prompt in more parts than needed."""
    batch = batch_of(random_groups([(30, 40), (30, 40)]))
    batch.share = True
    rows = torch.randperm(80, generator=torch.Generator().manual_seed(0))[:70]
    for budget in range(70, 130, 5):
        parts = batch.micro_batches(rows, budget)
        assert sorted(torch.cat(parts).tolist()) == sorted(rows.tolist())
        for part in parts:
            assert 30 * len(batch.prompts[part].unique()) + batch.response_lengths[part].sum() <= budget
        assert sum(len(batch.prompts[part].unique()) for part in parts) <= len(parts) + 1  # at most one has both
    assert len(batch.micro_batches(rows, 1)) == 70
    assert batch.micro_batches(rows[:0], 100) == []


def test_how_much_sharing_saves_by_hand():
    """Makes impossible: sharing where it costs more than it saves. Two prompts of 4 tokens, 4 responses of 2 each.

    Plain: 8 · 6 = 48 tokens. Shared, in 2 mini-batches: 2 · 2 · 4 + 8 · 2 = 32, in 1: 24. In 8, nothing is saved.
    """
    batch = batch_of([Group([1, 2, 3, 4], [[5, 6]] * 4, [[0.0] * 2] * 4, ["stop"] * 4)] * 2)
    assert [batch.saving(u) for u in (1, 2, 8)] == [2.0, 1.5, 1.0]
    assert Batch.of([], torch.zeros(0), CPU).saving(1) == 0


def test_a_batch_is_what_this_process_drew_of_what_was_kept():
    """Mistake: a response under another prompt, log-prob, advantage or mini-batch; the rollouts of another process."""
    n = 6
    prompts, rolled = [[1000 + i] * (2 + i) for i in range(3)], []
    for place, first, count in ((0, 0, 6), (2, 3, 2)):  # parts of a group, none of group 1
        rows = range(place * n + first, place * n + first + count)
        responses = [[100 + row] * (1 + row % 4) for row in rows]
        logprobs = [[-row / 8] * len(r) for row, r in zip(rows, responses, strict=True)]
        group = Group(prompts[place], responses, logprobs, ["stop"] * count)
        rolled.append(
            Rolled(Problem("", "math", "1"), group, [""] * count, [Verdict(0.0, "wrong")] * count, place, first)
        )
    advantages, numbers = torch.arange(18.0).view(3, n), torch.arange(18).view(3, n) % 4
    batch = TrainingGroups(prompts, None, rolled).batch(advantages, numbers, torch.device("cpu"))
    kept = [*range(6), 15, 16]
    assert batch.advantages.tolist() == kept and batch.mini_batch.tolist() == [row % 4 for row in kept]
    assert batch.prompts.tolist() == [0] * 6 + [1] * 2
    for i, row in enumerate(kept):
        whole = prompts[row // n] + [100 + row] * (1 + row % 4)
        assert batch.tokens[i].tolist() == whole + [0] * (batch.tokens.shape[1] - len(whole))
        assert batch.engine_logp[i, : 1 + row % 4].tolist() == [-row / 8] * (1 + row % 4)
    nothing = TrainingGroups([], None, []).batch(advantages, numbers, torch.device("cpu"))
    assert len(nothing) == 0 and all(len(rows) == 0 for rows in nothing.mini_batches(4))
