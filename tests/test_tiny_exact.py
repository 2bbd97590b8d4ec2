"""tiny/answers.py and tiny/exact.py: all answers of a problem, their probabilities, and Figure 3's panels of a run."""

import csv
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from rooms import ROOT, TINY, some_problems, trained
from transformers import AutoModelForCausalLM

from tiny import exact
from tiny.answers import answers, answers_of
from tiny.exact import Knowledge, log_probs
from tiny.make import make_tokenizer
from verify import Problem, load_problems, verify

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tiny():
    """The embedded policy, its tokenizer, and the held-out problems."""
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    assert policy.share_prompts
    return policy, tokenizer, load_problems(TINY / "test.jsonl")


# ------------------------------------------------------------------------------------------ all answers


def by_fractions(text: str) -> Fraction | None:
    """Python's own parser and precedence, over fractions."""
    try:
        return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize(
    "numbers", [[7], [0], [3, 8], [0, 4], [5, 5], [12, 3], [2, 3, 6], [0, 0, 5], [1, 1, 7], [9, 10, 90], [2, 3, 4, 6]]
)
def test_answers_are_those_of_a_plain_loop(numbers):
    """Makes impossible: a lost order or operator, a wrong precedence, a division by zero that counts, a repeat."""
    values = {}
    for order in set(itertools.permutations(numbers)):
        for operators in itertools.product("+-*/", repeat=len(numbers) - 1):
            text = "".join(f"{x}{o}" for x, o in zip(order, (*operators, ""), strict=True))
            values[text] = by_fractions(text)
    reached = {int(x) for x in values.values() if x is not None and x.denominator == 1}
    for target in [*sorted(reached), max(reached) + 1, 10**400, -(10**400)]:
        assert answers(numbers, target) == sorted(text for text, value in values.items() if value == target)


@pytest.mark.parametrize("numbers, target", [([2, 4], 2), ([2, 4], 6), ([1, 2, 3], 6), ([0, 2, 4], 2), ([2, 2, 4], 4)])
def test_answers_are_all_that_the_verifier_accepts(numbers, target):
    """Makes impossible: a string of these characters that is rewarded and not summed, or summed and not rewarded."""
    characters = [*dict.fromkeys(map(str, numbers)), *"+-*/"]
    strings = ("".join(x) for x in itertools.product(characters, repeat=2 * len(numbers) - 1))
    reference = {"numbers": numbers, "target": target}
    accepted = sorted(x for x in strings if verify("countdown", x, reference).reason == "correct")
    assert answers(numbers, target) == accepted != []


def test_answers_are_exact_beyond_the_precision_of_floats():
    """Makes impossible: a·b + 1 taken for a·b - 1, which are one float for such numbers."""
    a, b = 999_999_937, 999_999_929
    assert float(a * b + 1) == float(a * b - 1)
    assert answers([1, a, b], a * b + 1) == sorted([f"1+{a}*{b}", f"1+{b}*{a}", f"{a}*{b}+1", f"{b}*{a}+1"])
    assert answers([1, a, b], a * b - 1) == sorted([f"{a}*{b}-1", f"{b}*{a}-1"])


# ----------------------------------------------------------------------------------- their probabilities


@pytest.mark.parametrize("examples, temperature", [(0, 1.0), (0, 0.7), (7, 1.0)])
def test_log_probs_equal_a_plain_forward_pass_in_float64(tiny, examples, temperature):
    """Makes impossible: a lost stop token, a prompt's token counted, a temperature forgotten, a prompt mixed up."""
    policy, tokenizer, problems = tiny
    front = "".join(f"{p.prompt}{answers_of(p)[0]}, " for p in problems[-examples:]) if examples else ""
    problems = [p._replace(prompt=front + p.prompt) for p in problems[:5]]
    impossible = Problem(problems[0].prompt, "countdown", {"numbers": [1, 1], "target": 50})
    problems.insert(2, impossible)
    plain = AutoModelForCausalLM.from_pretrained(str(TINY / "policy"), dtype=torch.float64)
    for problem, ours in zip(problems, log_probs(policy, tokenizer, problems, temperature), strict=True):
        texts, prompt = answers_of(problem), tokenizer(problem.prompt).input_ids
        assert ours.dtype == torch.float64 and ours.shape == (len(texts),)
        if problem is impossible:
            assert not texts
            continue
        tokens = torch.tensor([prompt + tokenizer(text + "<eos>").input_ids for text in texts])
        with torch.no_grad():
            logits = plain(input_ids=tokens).logits[:, len(prompt) - 1 : -1] / temperature
        theirs = logits.log_softmax(-1).gather(-1, tokens[:, len(prompt) :, None]).sum((1, 2))
        torch.testing.assert_close(ours, theirs, atol=1e-4 if examples else 2e-5, rtol=0)


def test_the_check_sees_a_sum_that_is_off(tiny):
    """Makes impossible: a --check that agrees with everything."""
    policy, tokenizer, problems = tiny
    problems = problems[:32]
    now = Knowledge.of(log_probs(policy, tokenizer, problems))
    found = exact.check(policy, tokenizer, problems, now, 1.0, 128)
    assert abs(found["z"]) < 4 and found["sampled"] == 32 * 128 and found["left_out"] == 0
    assert found["left_out_at_most"] == 3 / (32 * 128)
    off = now._replace(logp=now.logp + math.log(1.5))
    assert exact.check(policy, tokenizer, problems, off, 1.0, 128)["z"] < -4


# -------------------------------------------------------------------------------------------- by hand


def known(*problems: list[float]) -> Knowledge:
    return Knowledge.of([torch.tensor(p, dtype=torch.float64).log() for p in problems])


def test_metrics_by_hand():
    """Makes impossible: a drop with the wrong sign, a fall counted by problem, weights of the wrong policy."""
    start, now = known([0.1, 0.2], [0.3], []), known([0.15, 0.05], [0.3], [])
    found = exact.metrics(now, start)
    assert found["q_pos"] == pytest.approx((0.2 + 0.3) / 3)
    assert found["pass@2"] == pytest.approx((1 - 0.8**2 + 1 - 0.7**2 + 0) / 3)
    assert found["pass@1024"] == pytest.approx(2 / 3)
    assert found["below"] == pytest.approx(1 / 3)
    h = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found["in_use"] == pytest.approx((math.exp(h) + 1) / 2)  # of the problems that have an answer
    assert found["fell"] == found["improved"] == pytest.approx(1 / 3)  # the third is a tie, as all are at the start
    assert exact.metrics(start, start)["improved"] == exact.metrics(start, start)["fell"] == 0
    assert found["worst_drop"] == pytest.approx(0.05 - 0.2)
    assert found["problems_fell"] == pytest.approx(1 / 3)
    assert found["log_ratio"] == pytest.approx((math.log(1.5) / 3 + 2 * math.log(0.25) / 3 + 0) / 2)
    assert found["log_ratio_median"] == pytest.approx(0)
    assert exact.metrics(known([0.3], [0.2]), known([0.1], [0.1]))["worst_drop"] == pytest.approx(0.1)  # all rose


def test_masses_at_the_ends_of_floats():
    """Makes impossible: nan where a policy gave up a problem, Q_pos = exp(-2000), or where Q_pos rounds above 1."""
    assert exact.metrics(known([0.75, 0.25 + 1e-9]), known([0.5, 0.5]))["pass@2"] == 1
    now = Knowledge(torch.tensor([-2000.0, -2000.0, 0.0], dtype=torch.float64), torch.tensor([0, 0, 1]), 2)
    assert now.q_pos.tolist() == [0, 1] and now.in_use.tolist() == pytest.approx([2, 1])
    assert all(math.isfinite(x) for x in exact.metrics(now, now).values())


# --------------------------------------------------------------------------------------------- on a run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two steps of train.py, and a checkpoint after each."""
    folder = tmp_path_factory.mktemp("exact")
    held_out = some_problems(folder / "test.jsonl", 24)
    return trained(folder, "run", eval_data=held_out, rollouts_per_prompt=16, prompts_per_step=8, learning_rate=3e-4)


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def rows_of(run: Path) -> list[dict]:
    with (run / "exact.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_run_gets_a_row_a_checkpoint(run):
    """Makes impossible: a checkpoint's weights not loaded, a row with another step's samples, a start that moved."""
    command = [sys.executable, "-m", "tiny.exact", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows, logged = rows_of(run), [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert [int(r["step"]) for r in rows] == [0, 1, 2] and (run / "exact.png").stat().st_size > 10_000
    assert [int(r["samples"]) for r in rows] == [r["samples"] for r in logged]

    problems = load_problems(json.loads((run / "config.json").read_text())["eval_data"][0])
    start, end = (
        Knowledge.of(log_probs(*exact.load_policy(str(model)), problems)) for model in (TINY / "policy", run / "model")
    )
    for row, now in ((rows[0], start), (rows[2], end)):
        for name, value in exact.metrics(now, start).items():
            assert float(row[name]) == pytest.approx(value, rel=1e-6, abs=1e-9), name
    assert float(rows[0]["fell"]) == float(rows[0]["worst_drop"]) == 0
    assert rows[1]["q_pos"] != rows[2]["q_pos"] != rows[0]["q_pos"] and float(rows[1]["fell"]) > 0


@pytest.mark.slow
def test_a_second_call_computes_only_what_is_new(run, monkeypatch, capsys):
    """Makes impossible: rows of checkpoints that the run has deleted since lost, or everything scored again."""
    later = run / "checkpoints/step_00000002"
    later.rename(run / "later")
    exact.main([str(run)])
    before = rows_of(run)
    assert [r["step"] for r in before] == ["0", "1"]
    shutil.rmtree(run / "checkpoints/step_00000001")
    (run / "later").rename(later)
    exact.main([str(run)])
    after = rows_of(run)
    assert after[:2] == before and [r["step"] for r in after] == ["0", "1", "2"]
    monkeypatch.setattr(exact, "log_probs", lambda *_: pytest.fail("scored again"))
    exact.main([str(run)])
    assert rows_of(run) == after and "samples" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_without_checkpoints_is_scored_by_its_model(run):
    """Makes impossible: a run whose checkpoints were deleted left unscored, or its model taken for another step."""
    exact.main([str(run)])
    rows = rows_of(run)
    (run / "exact.csv").unlink()
    shutil.rmtree(run / "checkpoints")
    exact.main([str(run)])
    assert rows_of(run) == [rows[0], rows[2]]


# ------------------------------------------------------------------------------------------- wrong uses


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["nowhere"], "nowhere"),
        (["nowhere", "--model", "x"], "--model"),
        (["nowhere", "--check"], "--check"),
        (["--temperature", "0"], "--temperature"),
        (["--check", "--samples", "0"], "--samples"),
        (["--model", str(TINY)], "config.json"),
        (["--data", "chat.jsonl"], "chat"),
        (["--data", "math.jsonl"], "kind math"),
        (["--data", "long.jsonl"], "8 numbers"),
    ],
)
def test_wrong_uses_are_named(arguments, sentence, tmp_path, monkeypatch, capsys):
    """Makes impossible: a traceback, or a number, where a sentence is due."""
    monkeypatch.chdir(tmp_path)
    two = {"numbers": [1, 2], "target": 3}
    files = {
        "chat": {"prompt": [{"role": "user", "content": "12:3="}], "kind": "countdown", "reference": two},
        "math": {"prompt": "1+1=", "kind": "math", "reference": "2"},
        "long": {"prompt": "1:1=", "kind": "countdown", "reference": {"numbers": [1] * 8, "target": 8}},
    }
    for name, row in files.items():
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(SystemExit) as stop:
        exact.main(arguments)
    assert sentence in f"{stop.value} {capsys.readouterr().err}"


def test_a_policy_whose_answers_cannot_be_listed_is_refused(tiny):
    """Makes impossible: a mass that misses the other spellings, or the other ends, of an answer."""
    policy, _, problems = tiny
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["12"])
    with pytest.raises(ValueError, match=r"a token per character; this one also has '12'"):
        log_probs(policy, tokenizer, problems[:1])
    settings = policy.model.generation_config
    own = settings.eos_token_id
    settings.eos_token_id = [own, own + 3]
    try:
        with pytest.raises(ValueError, match="any of 2 tokens"):
            log_probs(policy, make_tokenizer(), problems[:1])
    finally:
        settings.eos_token_id = own
