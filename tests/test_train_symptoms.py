"""train.py: runs that teach nothing. Each names its mistake in one line, and continues to its last step."""

import json
from dataclasses import replace

import torch
from helpers import TINY, drawn, lines, run

from trainer.rollouts import FAILED
from trainer.run import Progress, step_metrics, warnings_of
from trainer.settings import Config

PROBLEM = (TINY / "train.jsonl").read_text().splitlines()[0]


def said_by(capsys, flag: str) -> list[str]:
    """The lines with this flag's name that a run printed."""
    return [line for line in capsys.readouterr().out.splitlines() if flag in line]


def nothing_trained(folder) -> bool:
    """Whether a run reached its end, step 2, without an update."""
    rows = lines(folder / "run/metrics.jsonl")
    return [row["step"] for row in rows] == [0, 1, 2] and not any("loss" in row for row in rows)


def test_every_response_is_truncated(tmp_path, capsys):
    """Makes impossible: a limit that is too short for any answer, unnoticed or blamed on the problems."""
    run(tmp_path, max_response_tokens=3, eval_every=0)
    warnings = said_by(capsys, "--max_response_tokens")
    assert len(warnings) == 2 and warnings[0].startswith("step 1") and nothing_trained(tmp_path)


def test_every_reward_is_0(tmp_path, capsys):
    """Makes impossible: a night of steps whose responses are all wrong, and no hint at samples.jsonl."""
    other = json.loads(PROBLEM) | {"reference": {"numbers": [73, 97], "target": 73 * 97}}
    (tmp_path / "wrong.jsonl").write_text((json.dumps(other) + "\n") * 16)
    run(tmp_path, data=tmp_path / "wrong.jsonl", eval_every=0)
    warnings = said_by(capsys, "--prompts_per_step")
    assert len(warnings) == 2 and all("samples.jsonl" in line for line in warnings) and nothing_trained(tmp_path)


def test_the_cause_is_what_all_responses_share():
    """Makes impossible: problems that are too easy, unnoticed; a judge that fails, taken for wrong answers."""
    _, step = drawn(2, 4)
    all_of_them = torch.ones(2, 4, dtype=torch.bool)

    def said(correct, reason) -> str:
        changed = replace(step, correct=correct, reward=correct.double(), reason=torch.full((2, 4), reason))
        return " ".join(warnings_of(step_metrics(Progress(), changed), changed, Config(prompts_per_step=2)))

    right, wrong, failed = (said(*x) for x in ((all_of_them, 0), (~all_of_them, 1), (~all_of_them, FAILED[0])))
    assert "--data" in right and "samples.jsonl" not in right
    assert "samples.jsonl" in wrong and "--data" not in wrong
    assert "--verify_timeout" in failed and "samples.jsonl" not in failed
    all_of_them[:, 0] = False
    assert said(all_of_them, 0) == ""


def test_right_and_wrong_responses_earn_the_same(tmp_path, capsys, forget_kinds):
    """Makes impossible: updates without a signal, because a reward function gives correct responses a reward of 0."""
    function = "lambda response, reference: (0.0, len(set(response)) % 2 == 0)"
    (tmp_path / "rewards.py").write_text(f"KINDS = {{'mine': {function}}}")
    (tmp_path / "mine.jsonl").write_text((json.dumps(json.loads(PROBLEM) | {"kind": "mine"}) + "\n") * 16)
    mine = {"data": tmp_path / "mine.jsonl", "rewards": tmp_path / "rewards.py"}
    rows = run(tmp_path, **mine, rollouts_per_prompt=32, eval_every=0, kl_coef=0)
    warnings = [line for line in said_by(capsys, "--rewards") if line.startswith("step")]
    assert len(warnings) == 2
    assert all(row["prompts"] >= 4 and row["updates_skipped"] == 0 and row["grad_norm"] == 0 for row in rows[1:])
