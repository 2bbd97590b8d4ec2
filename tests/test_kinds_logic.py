"""kinds/logic.py: Reasoning Gym's scorers, and answers that would score themselves."""

import json
import math
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from judging import gym, needs

from kinds.logic import EVALUATED, judge_logic, score
from trainer.problems import check, gym_problem
from verify import verify, verify_batch


@needs("reasoning_gym")
def test_logic_through_the_workers():
    """Makes impossible: an answer taken from outside of its tags, or a scorer that evaluates it in the trainer; half a
    solution paid in full, or not at all.
    """
    [chain], [life] = gym("chain_sum", 1), gym("game_of_life", 1)
    rows = json.loads(life["answer"])
    rows[0][0] = 1 - rows[0][0]
    cases = [
        ("chain_sum", f"<answer> {chain['answer']} </answer>", "correct"),
        ("chain_sum", chain["answer"], "no_answer"),
        ("chain_sum", "<answer></answer>", "unparsed"),
        ("chain_sum", f"<answer>{chain['answer']}</answer></think>", "no_answer"),
        ("chain_sum", "<answer>" + "9" * 100_001 + "</answer>", "unparsed"),
        ("game_of_life", f"<answer>{life['answer']}</answer>", "correct"),
        ("game_of_life", f"<answer>{json.dumps(rows)}</answer>", "partial"),
    ]
    entries = {"chain_sum": chain, "game_of_life": life}
    items = [("logic", response, {"dataset": name, "entry": entries[name]}) for name, response, _ in cases]
    verdicts = verify_batch(items, workers=1, timeout_s=30.0)
    assert [verdict.reason for verdict in verdicts] == [reason for *_, reason in cases]
    assert verdicts[-2].reward == 1 and 0 < verdicts[-1].reward < 1


SELF_SCORING = [
    """__import__('os').write(3, b'{"value": [1.0, "correct"]}\\n') or __import__('os')._exit(0)""",
    "().__class__.__base__.__subclasses__()", "(exec)(input())", "sqrt('__import__(1)')", "'\\x5f\\x5fimport'",
    "ｅxec(1)", "__import__(chr(111))", "f'{exec(1)}'", "lambdify(x, x)", "2breakpoint()", "x2y(1)",
]  # fmt: skip


@pytest.mark.parametrize("dataset", EVALUATED)
def test_logic_answer_that_would_score_itself(dataset):
    """Makes impossible: an answer that is run where its score is computed, and writes down a score of its own."""
    for answer in SELF_SCORING:
        assert judge_logic(answer, {"dataset": dataset, "entry": {"answer": "1"}}) is None, answer
    # Those whose scorers only compare text are not restricted.
    assert judge_logic("exec(1)", {"dataset": "chain_sum", "entry": {"answer": "1"}}).evaluates


@needs("reasoning_gym")
@pytest.mark.parametrize("dataset", EVALUATED)
def test_logic_form_takes_every_honest_answer(dataset):
    """Makes impossible: a form so narrow that the data set's own answers are not of it."""
    import reasoning_gym

    for entry in reasoning_gym.create_dataset(dataset, size=10, seed=5):
        job = judge_logic(entry["answer"], {"dataset": dataset, "entry": entry})
        # Where sympy found no answer, the set has the question for one.
        assert (job is None) == ("Integral" in entry["answer"]), entry["answer"]


@needs("reasoning_gym")
def test_logic_every_scorer_that_evaluates_is_known():
    """Makes impossible: a later version of the package with a tenth scorer that evaluates answers."""
    import reasoning_gym

    folder = Path(reasoning_gym.__file__).parent
    calls = re.compile(r"(?<![\w.])(?:eval|exec)\(\s*answer|parse_expr\(\s*answer|sympify\(\s*answer")
    found = {path.stem for path in folder.rglob("*.py") if calls.search(path.read_text())}
    assert found <= set(EVALUATED), found - set(EVALUATED)


ENTRY = {"question": "", "answer": "2", "metadata": {}}


@pytest.mark.parametrize(
    "reference",
    [
        {}, {"dataset": 3, "entry": ENTRY}, {"dataset": "chain_sum", "entry": {}},
        {"dataset": "chain_sum", "entry": ENTRY | {"metadata": {"source_dataset": "x"}}},
        {"dataset": "chain_sum", "entry": ENTRY | {"answer": 2}},
    ],
)  # fmt: skip
def test_broken_logic_reference(reference):
    """Makes impossible: an entry without the metadata that its scorer needs, found in the middle of a run."""
    with pytest.raises(ValueError, match="logic"):
        verify("logic", "<answer>1</answer>", reference)


@pytest.mark.parametrize("dataset", ["complex_arithmetic", "chain_sum"])
@pytest.mark.parametrize("answer", ["nan", "nan+nanj", "-NaN j", "inf-infj"])
def test_logic_no_number_is_the_answer(dataset, answer):
    """Makes impossible: NaN is right on every entry, as no comparison with it is true; a gold of "" is never solved."""
    assert judge_logic(answer, {"dataset": dataset, "entry": {"answer": "1"}}) is None
    assert judge_logic("", {"dataset": "ab", "entry": {"answer": ""}}) is not None


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.5, 1j, "1", None])
def test_logic_a_score_that_is_no_reward_is_wrong(monkeypatch, value):
    """Makes impossible: a scorer's NaN, infinity or complex number cut to a reward of 1."""
    monkeypatch.setattr("kinds.logic._scorer", lambda dataset: lambda answer, entry: value)
    assert score("x", {"dataset": "chain_sum", "entry": {"answer": "1"}}) == 0.0


@pytest.mark.parametrize("error", [FileNotFoundError, ImportError])
def test_logic_an_error_of_the_environment_is_no_verdict(monkeypatch, error):
    """Makes impossible: a data file that the worker cannot open, and every answer of the data set called unparsed."""
    monkeypatch.setattr("kinds.logic._scorer", lambda dataset: Mock(side_effect=error))
    with pytest.raises(error):
        score("x", {"dataset": "chain_sum", "entry": {"answer": "1"}})


@needs("reasoning_gym")
def test_logic_every_data_set_accepts_its_own_answers():
    """Makes impossible: data sets whose files the workers cannot read: all their answers were unparsed; an entry that
    went through JSON and is scored as another one: grids of tuples became lists.
    """
    import reasoning_gym

    problems = []
    for name in sorted(reasoning_gym.factory.DATASETS):
        try:
            problems += [gym_problem(name, entry) for entry in gym(name, 2)]
        except Exception as error:
            assert name in ("composite",), (name, error)
    assert len({problem.reference["dataset"] for problem in problems}) >= 100
    refused = {problems[at].reference["dataset"]: why for at, why in check(problems).items()}
    assert refused.keys() <= {"intermediate_integration"}, refused
