"""An evaluation's scores, by source (appendix D)."""

import math

import pytest
import torch

from rollout import Group
from trainer.answers import SOLVED, Answers, Rolled, score, score_sources, solved
from verify import Problem, Verdict


def test_rows_by_source_by_hand():
    """Makes impossible: a mean in which a benchmark of 5,000 problems drowns one of 30; problems in another's row.

    Two problems with 4 and 2 of 4 correct: 3/4 ± 1/4. Three with 0, 1, 2: 1/4 ± 1/4 / sqrt(3). Mean: 1/2.
    """
    answers = Answers(4, [4, 2, 0, 1, 2], [10.0, 20.0, 1.0, 2.0, 6.0], [0, 1, 0, 0, 3], [1.0, 0.5, 0.0, 0.25, 0.5])
    rows = score_sources(answers, {"a": 2, "b": 3})
    assert list(rows) == ["a", "b", "mean of 2"]
    assert [row["problems"] for row in rows.values()] == [2, 3, 5]
    assert [row["pass@1"] for row in rows.values()] == pytest.approx([0.75, 0.25, 0.5])
    errors = [math.sqrt(0.125 / 2), 0.25 / math.sqrt(3)]
    assert [row["pass@1_se"] for row in rows.values()] == pytest.approx([*errors, math.hypot(*errors) / 2])
    assert [row["pass@4"] for row in rows.values()] == pytest.approx([1, 2 / 3, 5 / 6])
    assert [row["response_tokens"] for row in rows.values()] == pytest.approx([15, 3, 9])
    assert [row["truncated"] for row in rows.values()] == pytest.approx([1 / 8, 3 / 12, 3 / 16])
    assert score(answers)["pass@1"] == pytest.approx(9 / 20)  # a run's own metric: every problem the same
    (only,) = score_sources(answers, {"all": 5}).values()
    assert only == score(answers) | {"problems": 5}


def test_a_groups_counts_by_hand():
    """Makes impossible: a group in another quarter of `solved`, a reason without its kind, a shaped reward's."""
    group = Group([1], [[2], [2, 3], [2, 3, 4], [2]], [[0.0]] * 4, ["stop", "length", "stop", "stop"])

    def rolled(*reasons):
        verdicts = [Verdict(1.0 if reason == "correct" else 0.25, reason) for reason in reasons]
        return Rolled(Problem("p", "math", "1"), group, ["a"] * 4, verdicts)

    two = rolled("correct", "wrong", "correct", "timeout")
    assert two.rewards == [1.0, 0.25, 1.0, 0.25] and two.correct.tolist() == [True, False, True, False]
    assert two.counts() == {
        "rollouts": 4, "correct": 2, "response_tokens": 7, "truncated": 1,
        "rollouts/math": 4, "reason/correct": 2, "reason/wrong": 1, "reason/timeout": 1,
        "reason/math/correct": 2, "reason/math/wrong": 1, "reason/math/timeout": 1,
    }  # fmt: skip
    correct = torch.arange(4) < torch.arange(5)[:, None]  # none, one, ... all of four
    assert solved(correct) == {f"solved/{part}": 1 for part in SOLVED if part != "below_100%"}
    correct = torch.arange(8) < torch.tensor([[1], [2], [7], [7], [8]])
    assert solved(correct) == {"solved/to_25%": 2, "solved/below_100%": 2, "solved/all": 1}
