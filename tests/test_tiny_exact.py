"""tiny/exact.py: the probabilities of all answers, and Figure 3's panels of a run."""

import csv
import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TINY, few_problems, trained
from transformers import AutoModelForCausalLM

from tiny import exact
from tiny.answers import answers_of
from tiny.exact import AnswerLogProbs, log_probs
from tiny.make import make_tokenizer
from trainer.problems import load_problems
from verify import Problem

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tiny():
    """The tiny policy, its tokenizer, and the held-out problems."""
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    assert policy.share_prompts
    return policy, tokenizer, load_problems(TINY / "test.jsonl")


@pytest.mark.parametrize("long", [False, True])
def test_log_probs_equal_a_plain_forward_pass_in_float64(tiny, long):
    """Makes impossible: a lost stop token, a prompt's token counted, a prompt mixed up, a problem without answers."""
    policy, tokenizer, problems = tiny
    front = "".join(f"{p.prompt}{answers_of(p)[0]}, " for p in problems[-7:]) if long else ""
    problems = [p._replace(prompt=front + p.prompt) for p in problems[:5]]
    problems.insert(2, Problem(problems[0].prompt, "countdown", {"numbers": [1, 1], "target": 50}))
    plain = AutoModelForCausalLM.from_pretrained(str(TINY / "policy"), dtype=torch.float64)
    scores = log_probs(policy, tokenizer, problems)
    assert scores.problem_count == len(problems) == 6
    for i, problem in enumerate(problems):
        ours = scores.logp[scores.problem_index == i]
        texts, prompt = answers_of(problem), tokenizer(problem.prompt).input_ids
        assert ours.dtype == torch.float64 and ours.shape == (len(texts),)
        if texts:
            tokens = torch.tensor([prompt + tokenizer(text + "<eos>").input_ids for text in texts])
            with torch.no_grad():
                logp = plain(input_ids=tokens).logits[:, len(prompt) - 1 : -1].log_softmax(-1)
            theirs = logp.gather(-1, tokens[:, len(prompt) :, None]).sum((1, 2))
            torch.testing.assert_close(ours, theirs, atol=1e-4 if long else 2e-5, rtol=0)


def known(*problems: list[float]) -> AnswerLogProbs:
    return AnswerLogProbs.of([torch.tensor(p, dtype=torch.float64).log() for p in problems])


def test_metrics_by_hand():
    """Makes impossible: a drop with the wrong sign, a fall counted by problem, a problem without answers left out."""
    start, now = known([0.1, 0.2], [0.3], []), known([0.15, 0.05], [0.3], [])
    found = exact.measures(now, start)
    assert found["q_pos"] == pytest.approx((0.2 + 0.3) / 3)
    assert found["pass@2"] == pytest.approx((1 - 0.8**2 + 1 - 0.7**2 + 0) / 3)
    assert found["fell"] == found["improved"] == pytest.approx(1 / 3)  # the third is a tie, as all are at the start
    assert exact.measures(start, start)["improved"] == exact.measures(start, start)["fell"] == 0
    assert found["worst_drop"] == pytest.approx(0.05 - 0.2)
    assert exact.measures(known([0.3], [0.2]), known([0.1], [0.1]))["worst_drop"] == pytest.approx(0.1)  # all rose
    assert exact.measures(known([0.75, 0.25 + 1e-9]), known([0.5, 0.5]))["pass@2"] == 1  # Q_pos rounds above 1


def test_missed_answers_by_enumeration(capsys):
    """Makes impossible: a power of the wrong probability, the drawn answers summed, a mean over answers."""
    p = [0.5, 0.2]
    policy = known(p, [], [1.0])
    chance = [*p, 0.3]  # and a wrong answer
    expected = sum(
        math.prod(chance[i] for i in draws) * sum(x for i, x in enumerate(p) if i not in draws)
        for draws in itertools.product(range(3), repeat=4)
    )
    assert policy.missed(4) == pytest.approx(expected / 3)
    assert policy.missed(0) == pytest.approx(policy.q_pos.mean().item())
    exact.main(["--problems", "3"])
    names, numbers = (line.split() for line in capsys.readouterr().out.splitlines()[1:3])
    row = {name: float(x) for name, x in zip(names, numbers, strict=True)}
    assert row["q_pos"] > row["missed@16"] > row["missed@512"] > 0


def test_a_split_has_rarely_solved_and_solved_problems(tmp_path):
    """Makes impossible: a band with an end that is wrong, problems in another order than their scores."""
    problems = [Problem(f"{i}=", "countdown", {"numbers": [1, 2], "target": i}) for i in range(6)]
    q_pos = torch.tensor([0.0004, 0.0006, 0.019, 0.021, 0.51, 0.49])
    exact.write_rare_and_solved(problems, q_pos, tmp_path / "files")
    found = [load_problems(tmp_path / f"files/{name}.jsonl") for name in ("rare", "solved")]
    assert found == [problems[1:3], problems[4:5]]
    with pytest.raises(ValueError, match=r"rare\.jsonl"):
        exact.write_rare_and_solved(problems, torch.ones(6), tmp_path / "none")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two steps of train.py, and a checkpoint after each."""
    changes = {"rollouts_per_prompt": 16, "prompts_per_step": 8, "learning_rate": 3e-4}
    return trained(tmp_path_factory.mktemp("exact"), "run", eval_data=few_problems("test", 24), **changes)


def rows_of(run: Path) -> list[dict]:
    with (run / "exact.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_run_gets_a_row_for_each_checkpoint(run, tmp_path, monkeypatch):
    """Makes impossible: another checkpoint's weights, another step's samples, the rows of deleted checkpoints lost."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    later = copy / "checkpoints/step_00000002"
    later.rename(copy / "later")
    exact.main([str(copy)])
    before = rows_of(copy)
    shutil.rmtree(copy / "checkpoints/step_00000001")
    (copy / "later").rename(later)
    exact.main([str(copy)])
    rows, logged = rows_of(copy), [json.loads(x) for x in (copy / "metrics.jsonl").read_text().splitlines()]
    assert len(before) == 2 and rows[:2] == before and [int(row["step"]) for row in rows] == [0, 1, 2]
    assert [int(row["samples"]) for row in rows] == [row["samples"] for row in logged]
    problems = load_problems(json.loads((run / "config.json").read_text())["eval_data"][0])
    start, end = (log_probs(*exact.load_policy(str(model)), problems) for model in (TINY / "policy", run / "model"))
    for row, now in ((rows[0], start), (rows[2], end)):
        for name, value in exact.measures(now, start).items():
            assert float(row[name]) == pytest.approx(value, rel=1e-6, abs=1e-9), name
    assert rows[1]["q_pos"] != rows[2]["q_pos"] != rows[0]["q_pos"] and float(rows[1]["fell"]) > 0
    monkeypatch.setattr(exact, "log_probs", lambda *_: pytest.fail("scored again"))
    exact.main([str(copy)])
    assert rows_of(copy) == rows
    with pytest.raises(ValueError, match="delete it to score 1"):  # no mean over other problems in the same file
        exact.main([str(copy), "--problems", "1"])
    assert rows_of(copy) == rows


@pytest.mark.slow
def test_the_plateau_is_the_level_end_of_its_curve(tiny):
    """Makes impossible: other weights than the curve's; a policy that N = 16 still improves by 0.005 per quarter."""
    with (TINY / "plateau/curve.csv").open() as file:
        rows = [{name: float(x) for name, x in row.items()} for row in csv.DictReader(file)]
    samples, q_pos = ([row[name] for row in rows] for name in ("samples", "q_pos"))
    assert abs(q_pos[-1] - np.interp(0.75 * samples[-1], samples, q_pos)) < 0.005
    now = log_probs(*exact.load_policy(str(TINY / "plateau")), tiny[2])
    assert now.q_pos.mean().item() == pytest.approx(q_pos[-1], abs=1e-5)


def test_a_policy_whose_answers_cannot_be_listed_is_refused(tiny, monkeypatch):
    """Makes impossible: a sum that misses the other spellings, or the other ends, of an answer."""
    policy, _, problems = tiny
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["12"])
    with pytest.raises(ValueError, match="'12'"):
        log_probs(policy, tokenizer, problems[:1])
    settings = policy.model.generation_config
    monkeypatch.setattr(settings, "eos_token_id", [settings.eos_token_id, settings.eos_token_id + 3])
    with pytest.raises(ValueError, match="eos_token_id"):
        log_probs(policy, make_tokenizer(), problems[:1])
