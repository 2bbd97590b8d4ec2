"""trainer/metrics.py: the numbers of a step and of an evaluation, and warnings."""

import dataclasses
import math

import pytest
import torch
from helpers import outcomes

import brorl
import loss as L
from trainer.metrics import score_sources, scores_of, step_metrics, waited_for_judge, warnings_of
from trainer.progress import Progress
from trainer.settings import Config
from verify import REASONS


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


MIXED, TIMED_OUT = [[1, 0]] * 2, outcomes([[0, 0]] * 2, judged=False)
UNREAD = dataclasses.replace(outcomes([[0, 0]] * 2), reason=torch.full((2, 2), REASONS.index("unparsed")))
CAUSES = (
    "be read",
    "--max_response_tokens",
    "samples.jsonl",
    "--data",
    "--rewards",
    "--verify_timeout",
    "--max_engine_kl",
    "gradient",
)


@pytest.mark.parametrize("table, updates, sentences, cause", [
    (outcomes(MIXED), {}, 0, []), (outcomes([[1, 0], [1, 1]]), {}, 1, []),
    (outcomes(MIXED), {"updates_skipped": 2.0}, 1, ["gradient"]), (outcomes(MIXED), {"engine_kl": 2e-3}, 0, []),
    (outcomes(MIXED), {"engine_kl": 0.02}, 1, ["--max_response_tokens", "--max_engine_kl"]),
    (outcomes(MIXED, truncated=True), {}, 1, ["--max_response_tokens"]), (outcomes([[1, 1]] * 2), {}, 2, ["--data"]),
    (outcomes([[0, 0]] * 2), {}, 2, ["samples.jsonl"]), (TIMED_OUT, {}, 2, ["--verify_timeout"]),
    (outcomes(MIXED, [[0.0, 0.0]] * 2), {}, 1, ["--rewards"]), (UNREAD, {}, 2, ["be read", "--rewards"]),
])  # fmt: skip
def test_a_step_warns_about_what_went_wrong(table, updates, sentences, cause):
    """Makes impossible: a run that learns nothing, silently, or for another cause than it says; a warning in every
    step, which hides the real ones.
    """
    metrics = step_metrics(Progress(), table, L.informative(table.correct)) | updates
    found = warnings_of(metrics, table, Config(prompts_per_step=2, updates_per_step=8, precision="bfloat16"))
    assert len(found) == sentences and [name for name in CAUSES if name in " ".join(found)] == cause


def test_a_step_with_few_informative_prompts_is_named():
    """Makes impossible: a step of 1 informative prompt that moves the weights like one of 32, without a word."""
    for kept, few in ((1, True), (2, False)):
        table = outcomes([[1, 0]] * kept + [[1, 1]] * (8 - kept))
        metrics = step_metrics(Progress(), table, L.informative(table.correct))
        (sentence,) = warnings_of(metrics, table, Config(prompts_per_step=8, updates_per_step=8))
        assert ("noisier" in sentence) == few


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


def test_a_step_that_waits_for_its_judge_says_so():
    """Makes impossible: a step of minutes whose cause, slow rewards on a busy machine, no line names."""
    assert waited_for_judge({"judge": 40.0, "wait_for_judge": 9.0}, 100.0) == []
    assert waited_for_judge({"judge": 0.9, "wait_for_judge": 0.9}, 1.0) == []
    assert waited_for_judge({}, 100.0) == []
    [sentence] = waited_for_judge({"judge": 170.4, "wait_for_judge": 165.0}, 180.0)
    assert "165 of 180 seconds" in sentence and "170" in sentence


def test_the_engine_that_runs_is_no_remedy():
    """Makes impossible: the advice to use the torch engine in a run that uses it."""
    for engine, named in (("torch", False), ("vllm", True)):
        config = dataclasses.replace(Config(), engine=engine, prompts_per_step=1)
        metrics = {"prompts": 1, "engine_kl": 0.5}
        assert any("--engine torch" in sentence for sentence in warnings_of(metrics, outcomes(MIXED), config)) == named
