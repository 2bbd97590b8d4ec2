"""The numbers of a line of metrics.jsonl, and the sentences about them."""

import math

import pytest
import torch
from accelerate import Accelerator
from helpers import loaded, rollouts

import train
from rollout import Group
from trainer.answers import SOLVED, Rolled
from trainer.batch import Batch
from trainer.metrics import UpdateMetrics, of_step, too_few
from trainer.policy import Policy
from trainer.progress import Progress
from trainer.rollouts import Outcomes, StepRollouts
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


def drawn(groups=2) -> StepRollouts:
    """Groups of 4, one after the other all wrong and half correct; of one process."""
    made = StepRollouts([Problem("p", "math", "1")] * groups, [[1]] * groups)
    for i in range(groups):
        verdicts = [Verdict(1.0, "correct") if i % 2 and j < 2 else Verdict(0.125, "wrong") for j in range(4)]
        group = Group([1], [[2] * 5] * 4, [[0.0] * 5] * 4, ["stop"] * 3 + ["length"] * (i == 0) + ["stop"] * (i > 0))
        one = Rolled(Problem("p", "math", "1"), group, ["a"] * 4, verdicts)
        made.add([i], [one], Outcomes.of([one], 1, 4, Accelerator(cpu=True)))
    return made


def test_a_steps_first_metrics_by_hand():
    """Makes impossible: means over kept groups only, or over prompts where they are over rollouts."""
    metrics = of_step(drawn(), 1, 2)
    assert metrics["prompts"] == 1 and metrics["pass_rate"] == 0.5
    assert (metrics["rounds"], metrics["surplus"]) == (2, 0) and of_step(drawn(groups=3), 1, 2)["surplus"] == 1
    assert (metrics["reward"], metrics["correct"], metrics["response_tokens"]) == (2.75 / 8, 2 / 8, 5)
    assert metrics["truncated"] == 1 / 8
    assert [metrics[f"solved/{part}"] for part in SOLVED] == [0.5, 0, 0.5, 0, 0, 0]
    assert metrics["rollouts/math"] == 8 and metrics["reward/math"] == 2.75 / 8 and metrics["reason/wrong"] == 6


def test_a_step_with_too_few_prompts_names_its_verdicts():
    """Makes impossible: "0 were informative, not 8; going on with these", and not a word on what the policy said."""
    some = too_few(of_step(drawn(), 1, 16), 16, 4)
    assert some == (
        "of 16 prompts 1 were informative (some rollouts correct, some not), not 4; going on with these. Verdicts: "
        "2 correct, 6 wrong; samples.jsonl has some of the responses"
    )
    none = too_few(of_step(drawn(groups=1), 0, 16), 16, 4)
    assert "of 16 prompts 0 were informative" in none and "; nothing is trained in this step. " in none


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
