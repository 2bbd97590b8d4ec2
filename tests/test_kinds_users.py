"""kinds/users.py: a user's file of rewards, right, broken and hostile."""

import contextlib
import json
import re
import textwrap
from pathlib import Path

import pytest

from kinds import users
from kinds.users import load_rewards, reward_files
from sandbox import worker as sandbox_worker
from trainer.problems import load_problems
from verify import KINDS, JudgeFailed, NotAReward, Response, verify, verify_batch

pytestmark = pytest.mark.usefixtures("forget_kinds")  # every test starts with our own kinds only


def file(tmp_path, text, name="my_rewards.py"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path


def test_what_a_function_may_return(tmp_path):
    """Makes impossible: True that is no 1, half a reward that is not "partial", or a lost correctness."""
    load_rewards([file(tmp_path, """
        from fractions import Fraction
        import numpy
        VALUES = {"true": True, "false": False, "half": 0.5, "one": 1, "third": Fraction(1, 3),
                  "numpy": numpy.float32(0.25), "numpy_true": numpy.bool_(True), "none": None, "penalty": -0.5,
                  "above": 1.5, "shaped": (0.3, True), "shaped_wrong": (0.0, numpy.bool_(False)), "late": (-1, True)}
        KINDS = {"lookup": lambda response, reference: VALUES[response]}
    """)])  # fmt: skip
    expected = {
        "true": (1.0, True, "correct"), "false": (0.0, False, "wrong"), "half": (0.5, False, "partial"),
        "one": (1.0, True, "correct"), "third": (1 / 3, False, "partial"), "numpy": (0.25, False, "partial"),
        "numpy_true": (1.0, True, "correct"), "none": (0.0, False, "unparsed"), "penalty": (-0.5, False, "wrong"),
        "above": (1.5, False, "partial"), "shaped": (0.3, True, "correct"), "shaped_wrong": (0.0, False, "wrong"),
        "late": (-1.0, True, "correct"),
    }  # fmt: skip
    assert verify_batch([("lookup", name, None) for name in expected]) == list(expected.values())


NO_REWARDS = [
    "float('nan')", "-(10**400)", "'1'", "[1]", "(1,)", "(1, True, 'nice')", "b'1'",
    "(0.5, 'no')", "(0.5, float('nan'))", "(0.5, 1)", "(0.5, None)", "(0.5, [])", "('0.5', True)", "(None, True)",
]  # fmt: skip


def test_no_reward(tmp_path):
    """Makes impossible: a value that is no reward counted as 0 in silence."""
    load_rewards([file(tmp_path, "KINDS = {'odd': lambda response, reference: eval(response)}")])
    for value in NO_REWARDS:
        with pytest.raises(NotAReward, match="odd"):
            verify("odd", value, "x")
    # The workers are free again for the next batch.
    assert verify("odd", "1", "x") == (1.0, True, "correct")


def test_a_function_that_asks_for_the_length(tmp_path):
    """Makes impossible: a penalty with another response's length, or equal texts of two lengths judged once."""
    load_rewards([file(tmp_path, """
        def long(response, reference, n_tokens):
            return n_tokens / 10, True
        def cut(response, reference, truncated=None, n_tokens=None):
            return (-1, False) if truncated else (n_tokens, True)
        KINDS = {"long": long, "cut": cut, "plain": lambda response, reference: 1}
    """)])  # fmt: skip
    responses = [Response("a", 5, True), Response("a", 7, False), Response("a", 5, False), "a"]
    rewards = {kind: [verdict.reward for verdict in verify_batch([(kind, response, None) for response in responses])]
               for kind in ("long", "cut", "plain")}  # fmt: skip
    assert rewards == {"long": [0.5, 0.7, 0.5, 0.0], "cut": [-1.0, 7.0, 5.0, 0.0], "plain": [1.0] * 4}


LENGTH_PENALTY_OF_THE_PAGE = [
    ("\\boxed{5}", 0, 1.0, True), ("\\boxed{5}", 4_096, 0.75, True), ("\\boxed{5}", 8_192, 0.5, True),
    ("\\boxed{5}", 9_000, 0.5, True), ("\\boxed{4}", 10, 0.0, False),
]  # fmt: skip


def test_the_length_penalty_of_the_page(tmp_path):
    """Makes impossible: ProRLv2's length penalty with another formula."""
    page = (Path(__file__).parent.parent / "docs" / "problems.md").read_text()
    [block] = [x for x in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def cosine_length(" in x]
    load_rewards([file(tmp_path, block)])
    for text, n_tokens, reward, correct in LENGTH_PENALTY_OF_THE_PAGE:
        verdict = verify("cosine_length", Response(text, n_tokens), "5")
        assert verdict.reward == pytest.approx(reward) and verdict.correct is correct


def test_an_error_of_the_environment_ends_the_run(tmp_path):
    """Makes impossible: a file or package that the worker cannot open counted as a wrong answer."""
    secret = tmp_path / "words.txt"
    secret.write_text("yes")
    load_rewards([file(tmp_path, f"""
        def reads(response, reference):
            return response in open({str(secret)!r}).read()
        def imports(response, reference):
            import nowhere_to_be_found
        KINDS = {{"reads": reads, "imports": imports, "late": lambda a, b: (_ for _ in ()).throw(TimeoutError())}}
    """)])  # fmt: skip
    for kind, error in (("reads", "PermissionError"), ("imports", "ModuleNotFoundError")):
        with pytest.raises(JudgeFailed, match=rf"kind {kind} .*{error}"):
            verify(kind, "yes", None)
    assert verify("late", "yes", None).reason == "crashed"


def test_a_function_that_fails(tmp_path):
    """Makes impossible: a bug, a loop or an exit in a user's function that stops the run."""
    load_rewards([file(tmp_path, """
        import os, sys
        def judge(response, reference):
            if response == "raises":
                return 1 / 0
            if response == "exits":
                sys.exit(0)
            if response == "dies":
                os._exit(0)
            while response == "hangs":
                pass
            return 1
        KINDS = {"failing": judge}
    """)])  # fmt: skip
    names = ["fine", "raises", "exits", "dies", "hangs", "also fine"]
    reasons = ["correct", "crashed", "crashed", "crashed", "timeout", "correct"]

    def judged(timeout_s):
        items = [("failing", name, 0) for name in names]
        return [verdict.reason for verdict in verify_batch(items, workers=2, timeout_s=timeout_s)]

    assert any(judged(timeout_s) == reasons for timeout_s in (1, 5, 25))  # 25 on a busy machine


def test_one_process_judges_many_responses(tmp_path, monkeypatch):
    """Makes impossible: a fork for each distinct response, or for each that the function raises an exception on: on a
    busy machine a step of 2,560 responses waited minutes for them.
    """
    load_rewards([file(tmp_path, """
        KINDS = {"number": lambda response, reference: float(response) / 100}
    """)])  # fmt: skip
    forks, send = [], sandbox_worker.Worker._send

    def counted(worker, request, fds):
        forks.append(request["how"]) if "how" in request else None
        send(worker, request, fds)

    monkeypatch.setattr(sandbox_worker.Worker, "_send", counted)
    texts = [str(i) if i % 3 else f"no number {i}" for i in range(60)]
    verdicts = verify_batch([("number", text, 3) for text in texts], workers=1)
    assert [verdict.reward for verdict in verdicts] == [i / 100 if i % 3 else 0.0 for i in range(60)]
    assert {verdict.reason for verdict in verdicts[::3]} == {"crashed"}
    assert len(forks) <= 2  # a second one if a busy machine ends the first


def test_nothing_of_one_call_is_left_for_the_next(tmp_path):
    """Makes impossible: a response that changes what judges it, and with it the rewards of all responses after it,
    where the file asks for fresh processes.
    """
    load_rewards([file(tmp_path, """
        FRESH_PROCESS = True
        SEEN = []
        KINDS = {"first": lambda response, reference: SEEN.append(response) or SEEN == [response]}
    """)])  # fmt: skip
    assert [verdict.reward for verdict in verify_batch([("first", text, 3) for text in "abc"], workers=1)] == [1.0] * 3


def test_files_and_neighbours(tmp_path):
    """Makes impossible: workers that cannot import from the file's folder, or that keep the file's old functions."""
    (tmp_path / "my_words.py").write_text("GOOD = {'yes'}")
    path = file(tmp_path, "from my_words import GOOD\nKINDS = {'word': lambda response, reference: response in GOOD}")
    other = file(tmp_path, "KINDS = {'other': (lambda a, b: a == b, lambda b: len(b))}", "other.py")
    assert load_rewards([path, str(other)]) == [str(path.resolve()), str(other.resolve())]
    assert reward_files[str(path)] == sorted([str(tmp_path / "my_words.py"), str(path)])
    assert verify("word", "yes", None) == verify("other", "x", "x") == (1.0, True, "correct")
    path.write_text("KINDS = {'word': lambda response, reference: response == 'no'}")
    load_rewards([path])
    assert [verify("word", word, None).reward for word in ("yes", "no")] == [0.0, 1.0]
    with pytest.raises(ValueError, match=r"the check of kind other.*TypeError"):
        verify("other", "x", 3)
    with pytest.raises(ValueError, match="kind word"):
        verify("word", "x", {1, 2})


@pytest.mark.parametrize("refuse", ["raise ValueError('no number')", "import os; os._exit(0)", "while True: pass"])
def test_a_check_of_references(tmp_path, monkeypatch, refuse):
    """Makes impossible: a broken reference found out by rewards of 0; a check that hangs the run, or ends it."""
    load_rewards([file(tmp_path, f"""
        def check(reference):
            if not isinstance(reference, int):
                {refuse}
        KINDS = {{"length": (lambda response, reference: len(response) == reference, check)}}
    """)])  # fmt: skip
    assert verify("length", "abc", 3).reason == "correct"
    monkeypatch.setattr(users, "CHECK_S", 0.5)
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "a", "kind": "length", "reference": "3"}))
    with pytest.raises(ValueError, match=r"p.jsonl, line 1: .*length"):
        load_problems(tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    "text",
    [
        "x = 1", "KINDS = {}", "KINDS = ['a']", "KINDS = {'a b': print}", "KINDS = {'math': lambda a, b: 1}",
        "KINDS = {'mine': 1}", "KINDS = {'mine': lambda a, b: 1}\nFRESH_PROCESS = 1",
        "\nimport nowhere_to_be_found", "def f(:", "raise SystemExit(3)",
        "import os\nos._exit(0)", "while True: pass",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(tmp_path, monkeypatch, text):
    """Makes impossible: a broken file that ends the run with rc 0, hangs it or fails at step 1, or replaces a kind."""
    kinds = set(KINDS)
    if "while" in text:
        monkeypatch.setattr(sandbox_worker, "START_S", 1.0)
    with pytest.raises(ValueError, match=r"my_rewards\.py"):
        load_rewards([file(tmp_path, text)])
    assert set(KINDS) == kinds


def test_a_file_that_only_the_trainer_can_import(tmp_path, monkeypatch):
    """Makes impossible: a path that is right for the trainer and wrong for the workers, found at step 1."""
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("yes")
    text = "WORDS = open({}).read()\nKINDS = {{'word': lambda response, reference: response in WORDS}}"
    with pytest.raises(ValueError, match="my_rewards"):
        load_rewards([file(tmp_path, text.format("'words.txt'"))])
    assert "word" not in KINDS
    assert verify("math", r"\boxed{y+x}", "x+y") == (1.0, True, "correct")
    load_rewards([file(tmp_path, text.format(f"{str(tmp_path / 'words.txt')!r}"))])
    assert verify("word", "yes", None) == (1.0, True, "correct")


def test_a_file_that_prints_a_lot(tmp_path):
    """Makes impossible: a start that hangs, or blames something else, because a file prints when it is imported."""
    loud = "import sys, warnings\nsys.stderr.write('progress\\n' * 100_000)\nwarnings.warn('old')\n"
    load_rewards([file(tmp_path, loud + "KINDS = {'loud': lambda response, reference: 0.5}")])
    assert verify("loud", "text", None) == (0.5, False, "partial")
    with pytest.raises(ValueError, match=r"my_rewards\.py cannot be imported .*: KeyError: 'key' .*, line 4\)"):
        load_rewards([file(tmp_path, loud + "{}['key']")])


TERMINAL = "\x1b]0;owned\x07\x1b[2J\x9b31m\rstep 9: all is well\nstep 10\u202e"


def test_no_text_reaches_the_terminal_as_a_command(tmp_path, caplog):
    """Makes impossible: a response that clears the screen or forges a line of the log by an exception's text."""
    load_rewards([file(tmp_path, """
        class Odd:
            def __init__(self, text):
                self.text = text
            def __repr__(self):
                return self.text
        def raises(response, reference):
            raise RuntimeError(response)
        def imports(response, reference):
            raise ImportError(response)
        def check(reference):
            raise ValueError(reference)
        KINDS = {"raises": raises, "imports": imports, "odd": lambda response, reference: Odd(response),
                 "checks": (raises, check)}
    """)])  # fmt: skip
    said = []
    for kind, exception in (("raises", None), ("imports", JudgeFailed), ("odd", NotAReward), ("checks", ValueError)):
        with pytest.raises(exception) if exception else contextlib.nullcontext() as caught:
            assert verify(kind, TERMINAL, TERMINAL).reason == "crashed"
        said.append(str(caught.value) if caught else "")
    with pytest.raises(ValueError) as caught:
        load_rewards([file(tmp_path, f"raise RuntimeError({TERMINAL!r})", "at_import.py")])
    [logged] = caplog.messages
    for text in (logged, *said[1:], str(caught.value)):
        assert text.isprintable() and "all is well" in text and "x1b" in text


def test_no_file(tmp_path):
    """Makes impossible: a misspelt path that is passed over, or a file that takes the kind of another file."""
    for path in (tmp_path / "nowhere.py", file(tmp_path, "KINDS = {}", "rewards.txt")):
        with pytest.raises(FileNotFoundError):
            load_rewards([path])
    load_rewards([file(tmp_path, "KINDS = {'mine': lambda a, b: 1}")])
    with pytest.raises(ValueError, match="mine"):
        load_rewards([file(tmp_path, "KINDS = {'mine': lambda a, b: 0}", "again.py")])
