"""trainer/metrics.py: the numbers of a step and the scores of an evaluation."""

import math

import pytest
import torch
from helpers import outcomes

import brorl
import loss as L
from trainer.metrics import score_sources, scores_of, step_metrics
from trainer.progress import Progress


def test_metrics_of_a_step_by_hand():
    """Makes impossible: a metric over the kept prompts alone; numbers of one kind that include another kind."""
    table = outcomes([[1, 0], [1, 1], [0, 0]], [[1.0, 0.5], [1.0, 1.0], [0.0, 0.0]], ["math", "code", "math"])
    got = step_metrics(Progress(step=4, samples=99), table, L.informative(table.correct))
    assert got == {
        "step": 4, "samples": 99, "prompts": 1, "pass_rate": pytest.approx(1 / 3), "rounds": 2,
        "reward": pytest.approx(3.5 / 6), "correct": pytest.approx(0.5), "response_tokens": 2.5, "truncated": 0.0,
        "reason/correct": 3, "reason/wrong": 3, "reward/code": 1.0, "rollouts/code": 2,
        "reward/math": pytest.approx(1.5 / 4), "rollouts/math": 4,
    }  # fmt: skip


def test_scores_by_hand():
    """Makes impossible: a standard error over responses; "any of the first k" in place of the unbiased estimate."""
    correct = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    got = scores_of(correct, torch.full((3, 4), 7), torch.zeros(3, 4, dtype=torch.bool))
    assert got["pass@1"] == pytest.approx(0.5) and got["pass@1_se"] == pytest.approx(0.5 / math.sqrt(3))
    assert got["pass@4"] == pytest.approx(2 / 3) and "pass@16" not in got and got["response_tokens"] == 7
    many = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) < 0.05
    got = scores_of(many, torch.ones(5, 64), torch.zeros(5, 64))
    want = [brorl.pass_at_k_estimate(64, int(c), 16) for c in many.sum(-1)]
    assert got["pass@16"] == pytest.approx(sum(want) / 5)


def test_a_mean_over_a_source_with_one_problem_has_no_standard_error():
    """Makes impossible: an error of 0 for one problem, and a mean's error that is too small because of it."""
    table = outcomes([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]])
    scores = score_sources(table, {"one": 1, "two": 2})
    assert "pass@1_se" not in scores["one"] and "pass@1_se" not in scores["mean of 2"]
    assert scores["two"]["pass@1_se"] == pytest.approx(0.375) and scores["mean of 2"]["pass@1"] == pytest.approx(0.6875)
