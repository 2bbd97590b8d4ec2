"""trainer/rollouts.py: stages 2 and 3, the share of each rank, the outcomes of all ranks."""

import pytest
import torch
from accelerate import Accelerator
from helpers import drawn

from rollout import Group
from trainer.exits import Refusal
from trainer.outcomes import Outcomes
from trainer.rollouts import requests_of_rank, rollouts_of
from verify import REASONS, Problem, verify


@pytest.mark.parametrize("n, world", [(8, 1), (8, 3), (512, 64), (2, 5), (1, 4), (3, 3)])
def test_every_rollout_is_drawn_by_exactly_one_rank(n, world):
    """Makes impossible: a rollout that two ranks draw, or none; a rank without work while others have much."""
    prompts = [[1], [2, 3], [4], [5], [6]]
    seeds = [10, 20, 30, 40, 50]
    shares = [requests_of_rank(prompts, n, seeds, rank, world) for rank in range(world)]
    found = sorted((p, r.first + k) for share in shares for p, r in share for k in range(r.n))
    assert found == [(p, k) for p in range(5) for k in range(n)]
    assert all(r.prompt == prompts[p] and r.seed == seeds[p] for share in shares for p, r in share)
    counts = [sum(r.n for _, r in share) for share in shares]
    assert max(counts) - min(counts) <= (1 if n < world else 5)


def test_a_group_becomes_rollouts_with_its_own_tokens():
    """Makes impossible: a response with the log-probs, the number or the end of another one."""
    responses, logprobs = [[1], [2, 3], [4, 4, 4]], [[-0.1], [-0.2, -0.3], [-0.4, -0.5, -0.6]]
    group = Group.of([5, 6], responses, logprobs, ["stop", "stop", "length"])
    made = list(rollouts_of(group, Problem("?", "math", "1"), prompt_index=7, first=4))
    assert [(r.prompt_index, r.number, r.truncated) for r in made] == [(7, 4, False), (7, 5, False), (7, 6, True)]
    for r, tokens, logp in zip(made, responses, logprobs, strict=True):
        assert r.prompt.tolist() == [5, 6] and r.response.tolist() == tokens
        assert r.engine_logp.tolist() == pytest.approx(logp)


def test_outcomes_hold_every_rollout_at_its_place():
    """Makes impossible: a reward at another prompt or number; a wrong correct flag, reason or length; a second round
    that overwrites the first.
    """
    rollouts, outcomes = drawn(4, 6, limit=8)
    assert outcomes.reward.shape == (4, 6) and outcomes.rounds == 1 and outcomes.kinds == ["countdown"] * 4
    for r in rollouts:
        at = r.prompt_index, r.number
        assert outcomes.reward[at] == r.verdict.reward and outcomes.correct[at] == r.verdict.correct
        assert REASONS[outcomes.reason[at]] == r.verdict.reason
        assert outcomes.length[at] == len(r.response) and outcomes.truncated[at] == r.truncated
        assert r.verdict == verify(r.problem.kind, r.text, r.problem.reference)
    assert outcomes.truncated.any() and not outcomes.truncated.all()
    _, more = drawn(2, 6, seed=1)
    both = Outcomes.empty(6).followed_by(outcomes).followed_by(more)
    assert len(both) == len(both.kinds) == 6 and both.rounds == 2
    assert torch.equal(both.reward, torch.cat([outcomes.reward, more.reward]))


@pytest.mark.parametrize("fault", ["missing", "twice"])
def test_a_rollout_that_is_missing_or_comes_twice_ends_the_run(fault):
    """Makes impossible: a missing rollout that counts as correct with reward 0, because 0 is the first reason."""
    rollouts, _ = drawn(2, 4)
    problems = [rollouts[0].problem, rollouts[-1].problem]
    rollouts = rollouts[:5] + rollouts[6:] if fault == "missing" else [*rollouts, rollouts[5]]
    with pytest.raises(Refusal, match=rf"rollout 1 of prompt 1 {0 if fault == 'missing' else 2} times.*1 of 8"):
        Outcomes.of(rollouts, 0, problems, 4, Accelerator(cpu=True))
