"""verifiers/custom.py, verify.load_rewards: a user's file of rewards, right, broken and hostile."""

import json
import logging
import textwrap
import time

import pytest

from sandbox import worker
from verifiers import custom
from verify import KINDS, load_problems, load_rewards, reward_files, verify, verify_batch

pytestmark = pytest.mark.usefixtures("forget_kinds")  # every test starts with our own kinds only


def file(tmp_path, text, name="my_rewards.py"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path


def test_what_a_function_may_return(tmp_path):
    """Mistake: True that is no 1, half a reward that is no "partial", a verdict that loses its reason on the way."""
    load_rewards([file(tmp_path, """
        from fractions import Fraction
        import numpy
        from verify import Verdict
        VALUES = {"true": True, "false": False, "half": 0.5, "one": 1, "third": Fraction(1, 3),
                  "numpy": numpy.float32(0.25), "numpy_true": numpy.bool_(True), "verdict": Verdict(0.0, "unparsed"),
                  "partial": Verdict(0.75, "partial")}
        KINDS = {"lookup": lambda response, reference: VALUES[response]}
    """)])  # fmt: skip
    expected = {"true": (1.0, "correct"), "false": (0.0, "wrong"), "half": (0.5, "partial"), "one": (1.0, "correct"),
                "third": (1 / 3, "partial"), "numpy": (0.25, "partial"), "numpy_true": (1.0, "correct"),
                "verdict": (0.0, "unparsed"), "partial": (0.75, "partial")}  # fmt: skip
    items = [("lookup", name, None) for name in expected]
    assert verify_batch(items) == list(expected.values())
    strict = [value if value[0] == 1 or value[1] == "unparsed" else (0.0, "wrong") for value in expected.values()]
    assert verify_batch(items, all_or_nothing=True) == strict


@pytest.mark.parametrize(
    "value",
    ["1.5", "-0.1", "float('nan')", "None", "'1'", "[1]", "(0.5, 'correct')", "(1.0, 'wrong')", "(1, 'nice')", "(1,)"],
)
def test_no_reward(tmp_path, value):
    """Mistake: a reward beyond [0, 1] or none at all that is trained on, or counted as 0 in silence."""
    load_rewards([file(tmp_path, f"KINDS = {{'odd': lambda response, reference: {value} if response else 1}}")])
    with pytest.raises(ValueError, match=r"the reward of kind odd \(.*my_rewards.py\) returned .* from 0 to 1"):
        verify("odd", "text", "x")
    # The workers are free again for the next batch.
    assert verify("odd", "", "x") == (1.0, "correct")


def test_a_function_that_fails(tmp_path, caplog):
    """Mistake: a bug, a loop or an exit in a user's function that stops the run, costs the others their time, or is
    never seen."""
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
            if response == "writes":
                open("REACHED", "w")
            return 1
        KINDS = {"failing": judge}
    """.replace("REACHED", str(tmp_path / "reached")))])  # fmt: skip
    names = ["fine", "raises", "exits", "dies", "hangs", "writes", "also fine"]
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        verdicts = verify_batch([("failing", name, 0) for name in names] * 2, workers=2, timeout_s=2.0)
    assert time.monotonic() - start < 30
    assert [verdict.reason for verdict in verdicts[:7]] == [
        "correct", "crashed", "crashed", "crashed", "timeout", "crashed", "correct"
    ]  # fmt: skip
    assert verdicts[7:] == verdicts[:7]
    assert not (tmp_path / "reached").exists()
    assert len(caplog.messages) == 1 and "kind failing: the judging of a response " in caplog.text


def test_the_first_exception_is_shown(tmp_path, caplog):
    """Mistake: rewards of 0 for hours, and no word on the bug in the function that gives them."""
    load_rewards([file(tmp_path, "KINDS = {'raises': lambda response, reference: 1 / 0}")])
    assert verify_batch([("raises", text, None) for text in "ab"]) == [(0.0, "crashed")] * 2
    assert caplog.messages == [
        "kind raises: the judging of a response raised ZeroDivisionError: division by zero (my_rewards.py, line 1): "
        "crashed"
    ]


def test_nothing_of_one_call_is_left_for_the_next(tmp_path):
    """Mistake: a response that changes what judges it, and with it the rewards of all responses after it."""
    load_rewards([file(tmp_path, """
        SEEN = []
        KINDS = {"first": lambda response, reference: SEEN.append(response) or SEEN == [response]}
    """)])  # fmt: skip
    assert [verdict.reward for verdict in verify_batch([("first", text, 3) for text in "abc"], workers=1)] == [1.0] * 3


def test_a_helper_beside_the_file_is_named(tmp_path):
    """Mistake: a run that cannot tell that a module beside its rewards was edited."""
    (tmp_path / "my_helper.py").write_text("GOOD = 1")
    [path] = load_rewards([file(tmp_path, "import json, my_helper\nKINDS = {'mine': lambda a, b: my_helper.GOOD}")])
    assert reward_files[path] == [str(tmp_path / "my_helper.py"), path]


def test_files_and_neighbours(tmp_path):
    """Mistake: workers that do not find what the file imports from beside it, or still know what it was before."""
    (tmp_path / "my_words.py").write_text("GOOD = {'yes'}")
    path = file(tmp_path, "from my_words import GOOD\nKINDS = {'word': lambda response, reference: response in GOOD}")
    other = file(tmp_path, "KINDS = {'other': (lambda a, b: a == b, lambda b: len(b))}", "other.py")
    assert load_rewards([path, str(other)]) == [str(path.resolve()), str(other.resolve())]
    assert verify("word", "yes", None) == verify("other", "x", "x") == (1.0, "correct")
    path.write_text("KINDS = {'word': lambda response, reference: response == 'no'}")
    load_rewards([path])
    assert [verify("word", word, None).reward for word in ("yes", "no")] == [0.0, 1.0]
    with pytest.raises(ValueError, match="the check of kind other raised TypeError"):
        verify("other", "x", 3)
    with pytest.raises(ValueError, match="a reference of kind word must be what JSON can hold"):
        verify("word", "x", {1, 2})


def test_a_check_of_references(tmp_path):
    """Mistake: a broken reference found out by rewards of 0, in the middle of a run."""
    load_rewards([file(tmp_path, """
        def check(reference):
            if not isinstance(reference, int):
                raise ValueError("a length is a whole number")
        KINDS = {"length": (lambda response, reference: len(response) == reference, check)}
    """)])  # fmt: skip
    assert verify("length", "abc", 3).reason == "correct"
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "a", "kind": "length", "reference": "3"}))
    with pytest.raises(ValueError, match=r"p.jsonl, line 1: a length is a whole number"):
        load_problems(tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    ("check", "message"), [("while True: pass", "took more than"), ("import os; os._exit(0)", "ended its process")]
)
def test_a_check_that_hangs_or_exits(tmp_path, monkeypatch, check, message):
    """Mistake: a check of references that hangs the run, or ends it with rc 0 and no word."""
    load_rewards([file(tmp_path, f"def check(reference):\n    {check}\nKINDS = {{'odd': (lambda a, b: 1, check)}}")])
    monkeypatch.setattr(custom, "CHECK_S", 0.5)
    with pytest.raises(ValueError, match=f"the check of kind odd {message}"):
        verify("odd", "x", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"my_rewards.py: it names no kind: end it with a line like KINDS = "),
        ("KINDS = {}", "names no kind"),
        ("KINDS = ['a']", "names no kind"),
        ("KINDS = {'a b': print}", "a kind's name is letters, digits and _, got 'a b'"),
        ("KINDS = {'math': lambda a, b: 1}", "there is a kind math already, choose another name than countdown, math"),
        ("KINDS = {'mine': 1}", "the reward of kind mine must be a function, got 1"),
        ("\nimport nowhere_to_be_found", r"cannot be imported .*: ModuleNotFoundError: No module .*, line 2\)"),
        ("def f(:", r"cannot be imported .*: SyntaxError: .*, line 1\)"),
        ("raise SystemExit(3)", "cannot be imported .*: SystemExit: 3"),
        ("import os\nos._exit(0)", "cannot be imported .*: its process ended"),
        ("while True: pass", "cannot be imported .*: it gave no answer in time"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, monkeypatch, text, message):
    """Mistake: a file that ends the run with rc 0, hangs it, or is found out at step 1; or our kind replaced."""
    if "while" in text:
        monkeypatch.setattr(worker, "START_S", 3.0)
    with pytest.raises(ValueError, match=message):
        load_rewards([file(tmp_path, text)])
    assert list(KINDS) == ["countdown", "math", "science", "ifeval", "logic", "code"]


def test_a_file_that_only_the_trainer_can_import(tmp_path, monkeypatch):
    """Mistake: a path that is right where the run was started, and wrong in the workers, found out at step 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("yes")
    text = "WORDS = open({}).read()\nKINDS = {{'word': lambda response, reference: response in WORDS}}"
    with pytest.raises(ValueError, match=r"cannot be imported .*FileNotFoundError.*words.txt"):
        load_rewards([file(tmp_path, text.format("'words.txt'"))])
    assert "word" not in KINDS
    assert verify("math", r"\boxed{y+x}", "x+y") == (1.0, "correct")
    load_rewards([file(tmp_path, text.format("__file__.replace('my_rewards.py', 'words.txt')"))])
    assert verify("word", "yes", None) == (1.0, "correct")


def test_no_file(tmp_path):
    """Mistake: a misspelt path that is passed over."""
    with pytest.raises(FileNotFoundError, match=r"no rewards at .*nowhere.py"):
        load_rewards([tmp_path / "nowhere.py"])
    with pytest.raises(ValueError, match=r"its name must end with \.py"):
        load_rewards([file(tmp_path, "KINDS = {}", "rewards.txt")])
    load_rewards([file(tmp_path, "KINDS = {'mine': lambda a, b: 1}")])
    with pytest.raises(ValueError, match="there is a kind mine already"):
        load_rewards([file(tmp_path, "KINDS = {'mine': lambda a, b: 0}", "again.py")])
