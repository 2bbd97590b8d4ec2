"""The numbers of a line of metrics.jsonl, and the sentences about them."""

import math

import pytest
import torch
from accelerate import Accelerator
from helpers import loaded, rollouts

import train
from rollout import Group
from trainer.batch import Batch
from trainer.metrics import SOLVED, Answers, UpdateMetrics, of_step, score, score_sources, solved, too_few
from trainer.policy import Policy
from trainer.progress import Progress
from trainer.rollouts import Outcomes, Rolled, StepRollouts
from trainer.settings import Config
from verify import Problem, Verdict


def test_the_largest_gradient_norm_is_the_largest(monkeypatch):
    """Makes impossible: grad_norm_max as the last norm of a step, or the smallest."""
    groups, advantages = rollouts(4)
    policy, accelerator, norms = Policy(loaded()[0]), Accelerator(cpu=True), iter([2.0, 5.0, 0.5, 2.5])
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp, batch.mini_batch = batch.engine_logp, torch.arange(len(batch)) % 4
    monkeypatch.setattr(accelerator, "clip_grad_norm_", lambda parameters, most: next(norms))
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=4)
    optimizer, progress = torch.optim.SGD(policy.parameters(), lr=0.0), Progress()
    metrics = train.update(policy, optimizer, batch, c, accelerator, progress)
    assert metrics["grad_norm_max"] == 5.0 and metrics["grad_norm"] == 2.5
    assert progress.norms == [2.0, 5.0, 0.5, 2.5]


def test_a_steps_first_metrics_by_hand():
    """Makes impossible: means over kept groups only; a reason without its kind; a kind's counts from another's rows."""
    made = StepRollouts([Problem("p", "math", "1"), Problem("q", "code", {})], [[1], [1]])
    for i, (kind, reasons) in enumerate(
        (("math", ("correct", "wrong", "correct", "timeout")), ("code", ("wrong",) * 4))
    ):
        group = Group([1], [[2], [2, 3], [2, 3, 4], [2]], [[0.0]] * 4, ["stop", "length", "stop", "stop"])
        verdicts = [Verdict(1.0 if reason == "correct" else 0.25, reason) for reason in reasons]
        rolled = Rolled(Problem("p", kind, "1"), group, ["a"] * 4, verdicts)
        outcomes = Outcomes.of([rolled], 1, 4, Accelerator(cpu=True))
        made.add([i], [rolled], outcomes)
        assert Answers.of(outcomes) == (4, [[2], [0]][i], [7 / 4], [1], [[2.5 / 4], [0.25]][i], [[1 + 3], [0]][i])
    assert of_step(made, 1, 1) == {
        "prompts": 1, "pass_rate": 0.5, "rounds": 2, "surplus": 1, "reward": 3.5 / 8, "correct": 2 / 8,
        "response_tokens": 14 / 8, "truncated": 2 / 8, "reason/correct": 2, "reason/wrong": 5, "reason/timeout": 1,
        "reason/math/correct": 2, "reason/math/wrong": 1, "reason/math/timeout": 1, "reason/code/wrong": 4,
        "rollouts/math": 4, "reward/math": 2.5 / 4, "rollouts/code": 4, "reward/code": 1 / 4,
    } | {f"solved/{share}": {"none": 0.5, "to_50%": 0.5}.get(share, 0) for share in SOLVED}  # fmt: skip


def test_how_much_of_a_group_is_correct():
    """Makes impossible: a group in another quarter."""
    correct = torch.arange(4) < torch.arange(5)[:, None]  # none, one, ... all of four
    assert solved(correct) == {share: share != "below_100%" for share in SOLVED}
    correct = torch.arange(8) < torch.tensor([[1], [2], [7], [7], [8]])
    assert {share: x for share, x in solved(correct).items() if x} == {"to_25%": 2, "below_100%": 2, "all": 1}


def test_a_step_with_too_few_prompts_names_its_verdicts():
    """Makes impossible: "0 were informative, not 8; going on with these", and not a word on what the policy said."""
    some = too_few({"prompts": 1, "reason/correct": 2, "reason/wrong": 6, "reason/math/wrong": 6}, 16, 4)
    assert some == (
        "of 16 prompts 1 were informative (some rollouts correct, some not), not 4; going on with these. Verdicts: "
        "2 correct, 6 wrong; samples.jsonl has some of the responses"
    )
    assert "; nothing is trained in this step. " in too_few({"prompts": 0, "reason/wrong": 8}, 16, 4)


def test_sums_and_extremes_over_a_step_by_hand():
    """Makes impossible: a mean over micro-batches, a loss over tokens, a norm of an update that had none."""
    tally, one = UpdateMetrics(Accelerator(cpu=True)), torch.tensor
    tally.micro_batch(one(0.5), {"ratio": one(6.0), "ratio_max": one(1.5), "ratio_min": one(0.5)})
    tally.micro_batch(one(0.25), {"ratio": one(4.0), "ratio_max": one(1.25), "ratio_min": one(0.25)})
    tally.update(2.0, False, True)
    tally.update(math.nan, False, False)
    tally.update(30.0, True, True)
    found = tally.result(10, 1e-4)
    assert found.pop("loss") == pytest.approx(0.25)
    assert found == {
        "ratio": 1.0, "ratio_max": 1.5, "ratio_min": 0.25, "grad_norm": 16.0, "grad_norm_max": 30.0,
        "updates_skipped": 1, "spikes": 1, "tokens": 10, "learning_rate": 1e-4,
    }  # fmt: skip


def test_rows_by_source_by_hand():
    """Makes impossible: a mean in which a benchmark of 5,000 problems drowns one of 30; problems in another's row.

    Two problems with 4 and 2 of 4 correct: 3/4 ± 1/4. Three with 0, 1, 2: 1/4 ± 1/4 / sqrt(3). Mean: 1/2.
    """
    answers = Answers(
        4, [4, 2, 0, 1, 2], [10.0, 20.0, 1.0, 2.0, 6.0], [0, 1, 0, 0, 3], [1.0, 0.5, 0.0, 0.25, 0.5], [40, 30, 0, 2, 9]
    )
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
