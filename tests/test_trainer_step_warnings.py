"""trainer/step_warnings.py: the sentences about a step that went wrong, and none about others."""

import dataclasses

import pytest
import torch
from helpers import outcomes

import loss as L
from trainer.metrics import step_metrics
from trainer.progress import Progress
from trainer.settings import Config
from trainer.step_warnings import waited_for_judge, warnings_of
from verify import REASONS

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
    (outcomes([[0, 0]] * 2, [[0.5, 0.0]] * 2), {}, 2, ["--rewards"]),
])  # fmt: skip
def test_a_step_warns_about_what_went_wrong(table, updates, sentences, cause):
    """Makes impossible: a run that learns nothing, silently, or for another cause than it says; a warning in every
    step, which hides the real ones.
    """
    metrics = step_metrics(Progress(), table, L.informative(table.correct)) | updates
    found = warnings_of(metrics, table, Config(prompts_per_step=2, updates_per_step=8, precision="bfloat16"))
    assert len(found) == sentences and [name for name in CAUSES if name in " ".join(found)] == cause


def test_a_step_that_waits_for_its_judge_says_so():
    """Makes impossible: a step of minutes whose cause, slow rewards on a busy machine, no line names."""
    assert waited_for_judge({"judge": 40.0, "wait_for_judge": 9.0}, 100.0) == []
    assert waited_for_judge({"judge": 0.9, "wait_for_judge": 0.9}, 1.0) == []
    assert waited_for_judge({}, 100.0) == []
    [sentence] = waited_for_judge({"judge": 170.4, "wait_for_judge": 165.0}, 180.0)
    assert "165 of 180 seconds" in sentence and "170" in sentence
