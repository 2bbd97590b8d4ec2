"""trainer/progress.py: the order of the problems, the seeds of the rollouts, the counts of a run."""

import itertools

import pytest
import torch
from helpers import outcomes

from trainer.progress import Progress, seed_of
from trainer.settings import Config
from verify import Problem

PROBLEMS = [Problem(str(i), "math", "1") for i in range(7)]


def taken(progress, count, seed=0):
    return [problem.prompt for problem in progress.next_problems(PROBLEMS, count, seed)[0]]


def test_every_problem_comes_once_per_epoch():
    """Makes impossible: a problem that is skipped or comes twice in an epoch; an order that depends on the rounds."""
    progress, whole = Progress(), []
    for _ in range(3):
        progress.next_step()
        whole += taken(progress, 7)
    assert all(sorted(whole[i : i + 7]) == sorted(x.prompt for x in PROBLEMS) for i in (0, 7, 14))
    assert whole[:7] != whole[7:14]
    progress = Progress()
    assert [x for count in (3, 1, 2, 1) for x in taken(progress, count)] == whole[:7] and progress.position == 7
    assert (
        taken(Progress(position=5, position_of_step=5), 2) == whole[5:7] and taken(Progress(), 7, seed=1) != whole[:7]
    )


def test_the_limits_that_a_run_has_reached():
    """Makes impossible: a second job of a run whose hours are spent, and a message that names another limit."""
    config = Config(max_steps=None, max_hours=2.0, max_samples=500)
    assert Progress(step=9, samples=499, seconds=7199).reached(config) == []
    assert Progress(step=9, samples=10, seconds=7200).reached(config) == ["max_hours"]
    assert Progress(samples=500, seconds=9000).reached(config) == ["max_hours", "max_samples"]


def test_a_step_never_draws_a_problem_twice():
    """Makes impossible: one step that trains on a problem as two groups, also across the border of two epochs; an
    endless search if a step asks for more problems than there are.
    """
    for start in range(7):
        progress = Progress(position=start, position_of_step=start)
        assert len({*taken(progress, 3), *taken(progress, 4)}) == 7
        assert (
            len({*[PROBLEMS[0]._replace(prompt=x) for x in taken(Progress(position=start, position_of_step=start), 5)]})
            == 5
        )
        with pytest.raises(ValueError, match="1 more of 7"):
            progress.next_problems(PROBLEMS, 1, 0)
        progress.next_step()
        assert len({*taken(progress, 7)}) == 7


def test_seeds_follow_from_step_and_position():
    """Makes impossible: equal rollouts of a prompt in two epochs, or seeds that depend on the rounds of a step."""
    one, other = Progress(step=3), Progress(step=3)
    first = one.next_problems(PROBLEMS, 4, 0)[1] + one.next_problems(PROBLEMS, 3, 0)[1]
    assert first == other.next_problems(PROBLEMS, 7, 0)[1] and len(set(first)) == 7
    later = Progress(step=3, position=7, position_of_step=7)
    assert not set(first) & set(later.next_problems(PROBLEMS, 7, 0)[1])


def test_the_end_of_a_step_is_counted():
    """Makes impossible: samples that leave out dropped prompts; a streak that survives a good step."""
    progress = Progress(tried=10.0, informative=5.0, unjudged=2)
    progress.end_step(outcomes([[1, 0], [1, 1], [0, 0]]), torch.tensor([True, False, False]), 12.5)
    assert (progress.samples, progress.tried, progress.informative) == (6, 11.0, 5.0)
    assert (progress.unjudged, progress.seconds) == (0, 12.5)
    failed = outcomes([[0, 0]], judged=False)
    progress.end_step(
        outcomes([[1, 0]]).followed_by(failed), torch.tensor([True, False]), 12.8
    )  # a last round of one slow prompt
    assert progress.unjudged == 0
    progress.end_step(failed, torch.tensor([False]), 13.0)
    assert progress.unjudged == 1


def test_seeds_differ_and_fit_the_engines():
    """Makes impossible: two prompts, steps or runs with equal random numbers; a seed that vLLM refuses."""
    seeds = {seed_of("rollouts", *parts) for parts in itertools.product(range(5), range(5), range(40))}
    assert len(seeds) == 1000 and max(seeds) < 2**62 and seed_of("rollouts", 1, 23) != seed_of("rollouts", 12, 3)
    assert seed_of("evaluation", 1234, 5) != seed_of("mini-batches", 1234, 5)  # two uses with the same numbers
