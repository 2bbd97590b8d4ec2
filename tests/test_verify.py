"""verify.py: countdown's literal verdicts, random input, hostile text, the caller's mistakes, batches."""

import ast
import importlib
import itertools
import random
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from judging import THREE, costs_at_most, instruction, reason, seconds
from test_kinds_ifeval import FOLLOWED

from kinds.answers import read
from kinds.patterns import COMPILED, forward
from sandbox import pool
from sandbox.jobs import Call, Ended
from sandbox.worker import Worker
from verify import KINDS, MAX_ANSWER, REASONS, Kind, kind_of, shown, verify, verify_batch

ROOT = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------------------------------- countdown


COUNTDOWN_CORRECT = [
    ([2, 3, 4], 20, "(2+3)*4", " ( 2 + 3 ) * 4\n", "4*(3+2)", "((2+3))*(4)", "(((((2)+3)*4)))", "(2+3)×4",
     "Let me see. <answer>(2+3)*4</answer>", "<answer>1+1</answer> no: <answer> (2+3)*4 </answer> done",
     "<answer>\n(2+3)*4\n</answer>", "<think>2*3*4 = 24, too much</think>(2+3)*4",
     "<think>a</think>b</think> <answer>(2+3)*4</answer>"),
    ([2, 3, 4], 3, "2+4−3"), ([2, 7, 14], 1, "14÷(7*2)"), ([7], 7, "7", "(7)"), ([2, 4, 8], 4, "8/(4/2)"),
    ([3, 3, 8, 8], 24, "8/(3-8/3)"), ([1, 2, 3], -4, "1-2-3"),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "target", "response"), [(n, t, r) for n, t, *rs in COUNTDOWN_CORRECT for r in rs])
def test_countdown_correct(numbers, target, response):
    """Makes impossible: a right expression refused, which teaches the policy away from the answer."""
    assert reason("countdown", response, {"numbers": numbers, "target": target}) == "correct"


COUNTDOWN_WRONG = [
    ([2, 3, 4], 20, "2+3*4", "2*3*4", "(2+3)*4+2", "5*4", "20", "<answer>(2+3)*4</answer><answer>2+3+4</answer>",
     "<answer>(2+3)*4</answer></think>2+3+4"),
    ([2, 3, 4], 5, "2+3"), ([2, 3], 23, "23"), ([2, 3, 3], 5, "2+3"), ([2, 3], 8, "2+3+3"), ([2, 3], 5, "1+4"),
    ([2, 2, 3], 8, "2+3+3"), ([12, 3], 6, "1+2+3"), ([7], 8, "7"), ([1, 3], 0, "1/3"), ([1, 0], 0, "1/0"),
    ([1, 0, 5], 0, "5/(1/0)"), ([49, 49], 1, "1"), ([1, 3, 3, 3], 1, "1/3+3/3-3"),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "target", "response"), [(n, t, r) for n, t, *rs in COUNTDOWN_WRONG for r in rs])
def test_countdown_wrong(numbers, target, response):
    """Makes impossible: a reward for another value, another set of numbers, joined digits, or a division by zero."""
    assert reason("countdown", response, {"numbers": numbers, "target": target}) == "wrong"


UNPARSED = """
(2+3)*4 = 20  |  The answer is (2+3)*4  |  (2+3)*4.  |  (2+3)*4 or 2*3*4  |  $(2+3)*4$  |  -2+3*4  |  4*-(2-3)
2--3*4  |  (2+3)**4  |  (2+3)^4  |  (2+3)//4  |  (2+3)%4  |  (2+3)4  |  4(2+3)  |  2 3 4  |  2+  |  ()  |  ((2+3)*4
(2+3]*4  |  [2+3]*4  |  02+3*4  |  2.0+3*4  |  2e0+3*4  |  2_0+3  |  0x2+3*4  |  ٢+3*4  |  ２+3*4  |  ²+3*4
2+3*4#  |  int('20')  |  <answer>(2+3)*4  |  (2+3)*4</answer>  |  <answer></answer>  |  \\boxed{(2+3)*4}  |  2+3*4\x00
"""


@pytest.mark.parametrize("response", [*filter(None, re.split(r"  \|  |\n", UNPARSED)), "(2+3)*4\n\n(2+3)*4"])
def test_countdown_unparsed(response):
    """Makes impossible: a lenient reader, whose gaps a policy with many rollouts finds and then lives on."""
    assert reason("countdown", response, THREE) == "unparsed"


@pytest.mark.parametrize("response", ["", " \n\t", "(2+3)*4</think>", "\u00a0"])
def test_countdown_no_answer(response):
    """Makes impossible: an empty answer counted as an attempt, or an answer taken out of the thinking."""
    assert reason("countdown", response, THREE) == "no_answer"


def test_countdown_length_cap():
    """Makes impossible: an answer at the cap refused, or a longer one parsed."""
    assert reason("countdown", "(2+3)" + " " * (MAX_ANSWER - 7) + "*4", THREE) == "correct"
    assert reason("countdown", "(2+3)" + " " * (MAX_ANSWER - 6) + "*4", THREE) == "unparsed"


def random_expression(rng, numbers):
    """A random tree over the numbers in order, with some parentheses."""
    if len(numbers) == 1:
        return str(numbers[0])
    cut = rng.randrange(1, len(numbers))
    left, right = random_expression(rng, numbers[:cut]), random_expression(rng, numbers[cut:])
    text = f"{left}{rng.choice('+-*/')}{right}"
    return f"({text})" if rng.random() < 0.5 else text


def value_by_python(text):
    """The value by Python's own parser and precedence, over fractions; None if it divides by zero."""
    try:
        return eval(re.sub("[0-9]+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None


def test_countdown_agrees_with_python():
    """Makes impossible: a slip in exactness or in the order of the operators that no hand-written case shows."""
    rng = random.Random(0)
    seen = {"correct": 0, "wrong": 0}
    for _ in range(2000):
        numbers = [rng.randint(0, 12) for _ in range(rng.randint(1, 6))]
        text = random_expression(rng, numbers)
        value = value_by_python(text)
        rng.shuffle(numbers)
        whole = value is not None and value.denominator == 1
        target = int(value) if whole else rng.randint(0, 3)
        expected = "correct" if whole else "wrong"
        seen[expected] += 1
        assert reason("countdown", text, {"numbers": numbers, "target": target}) == expected, text
        assert reason("countdown", text, {"numbers": numbers, "target": target + 1}) == "wrong", text
        assert reason("countdown", text, {"numbers": [*numbers, 1], "target": target}) == "wrong", text
    assert min(seen.values()) > 300


# ----------------------------------------------------------------------------------- hostile responses

HOSTILE = {
    "digits": "9" * 10_000_000,
    "parentheses": "(" * 100_000 + "2" + ")" * 100_000,
    "short deep parentheses": "(" * 499 + "2" + ")" * 499,
    "operators": "2+" * 200_000 + "2",
    "braces": "\\boxed" + "{" * 400_000,
    "boxes": "\\boxed{" * 60_000,
    "nested boxes": "\\boxed{" * 60_000 + "2" + "}" * 60_000,
    "backslashes": "\\" * 400_000 + "boxed{2}}",
    "answers": "<answer>" * 50_000 + "</answer>" * 50_000,
    "thoughts": "</think>" * 50_000,
    "boxed exponent": "\\boxed{1e999999999}",
    "boxed groups": "\\boxed{1" + ",000" * 249 + "x}",
    "boxed fraction": "\\boxed{" + "9" * 499 + "/" + "9" * 498 + "1}",
    "fence": "```" + " " * 400_000,
}


@pytest.mark.parametrize("kind", ["countdown", "math", "code"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_judged_in_linear_time(kind, name):
    """Makes impossible: an exception, a quadratic scan or a giant number that one response stops a whole run with."""

    def judge():
        if kind == "code":
            kind_of(kind).answer(HOSTILE[name])
        else:
            reference = {"countdown": {"numbers": [2, 2], "target": 4}, "math": "12345"}[kind]
            assert reason(kind, HOSTILE[name], reference) != "correct"

    assert costs_at_most(2 + 50e-6 * len(HOSTILE[name]), judge)  # 50 turns for a character; the most here is 6


TEXTS = r"""
1 0 9 . ~ , ; : + - * / ^ _ = < > ! % $ & | ' \ { } ( ) [ ] \{ \} \, \\ x e A \text{m} ^2 \text{s}^2 ^{2}
\frac \frac{1}{2} \sqrt{ \pi \infty \le \pm \cdot \left( \overline{3} \dots ^\circ \boxed{ \mathbb{R} million
\text{ ``` <answer> </answer> </think> *a* ...
"""
FRAGMENTS = [*TEXTS.split(), " ", "\n", "\\text{ m}", "\\cup ", " and ", "for all ", "sin ", "12:30 pm"]
FRAGMENTS += ["```python\n", "def x("]
REFERENCES = {
    "countdown": THREE, "math": "\\frac{1}{2}", "science": "9.8 m/s^2", "code": {"inputs": [""], "outputs": ["1"]},
    "logic": {"dataset": "countdown", "entry": {"answer": "1"}},
}  # fmt: skip


@pytest.mark.parametrize("share", [0.05, pytest.param(1.0, marks=pytest.mark.slow)])
def test_no_answer_holds_up_the_trainer(share):
    """Makes impossible: a pattern that takes 2^n steps for n units behind a number, where no clock can stop it."""
    names, arguments, *_ = zip(*FOLLOWED, strict=True)
    followed = {"instruction_id_list": [*names], "kwargs": [*arguments]}
    references = [*REFERENCES.items(), ("ifeval", followed)]
    wraps = {"countdown": "{}", "code": "```python\n{}\n```", "logic": "<answer>{}</answer>", "ifeval": "{}"}

    def judge(case):
        kind, reference, text = case
        answer = kind_of(kind).answer(wraps.get(kind, "\\boxed{{3{} 1}}").format(text))
        if answer is not None:
            kind_of(kind).judge(answer, reference)

    rng = random.Random(8)
    pairs = [a + b for a, b in itertools.product(FRAGMENTS, FRAGMENTS) if rng.random() < share]
    for times in (12, 24, 150):  # 2^24 steps are found before 2^150 hang
        cases = [(kind, reference, pair * times) for pair in pairs for kind, reference in references]
        slowest = max(cases, key=lambda case: seconds(lambda: judge(case)))
        assert costs_at_most(20, lambda case=slowest: judge(case)), slowest  # 1 here


@pytest.mark.parametrize("share", [0.05, pytest.param(1.0, marks=pytest.mark.slow)])
def test_no_answer_is_slow_to_read(share):
    """Makes impossible: an answer that costs a worker its whole time limit."""
    rng = random.Random(7)
    pairs = [pair for pair in itertools.product(FRAGMENTS, FRAGMENTS) if rng.random() < share]
    answers = [answer[:1000] for a, b in pairs for answer in ("3" + (a + b) * 40 + " 1", a * 999 + b)]
    slowest = max(answers, key=lambda answer: seconds(lambda: read(answer)))
    assert costs_at_most(20, lambda: read(slowest)), slowest  # 1 here


def patterns_given_to_re(code):
    """The patterns of the calls of `re` in a program's text. Each one must be written in its call."""
    patterns = []
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and re.fullmatch(r"re\.(?!escape)[a-z]+", ast.unparse(call.func)):
            given = call.args[0]
            for pattern in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
                assert isinstance(pattern, ast.Constant), f"compile it by `forward`: {ast.unparse(call)}"
                patterns.append(pattern.value)
    return patterns


def test_patterns_in_the_trainer_cannot_backtrack():
    """Makes impossible: a new pattern for a model's text with a repetition that gives back what it took."""
    modules = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "kinds").rglob("*.py")]
    assert len(modules) > 20
    for module in {".".join(name.parts) for name in modules} - {"kinds.patterns"}:
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, re.Pattern):
                assert value in COMPILED, f"{module}.{name}"
    for file in (ROOT / "kinds").rglob("*.py"):
        for pattern in patterns_given_to_re(file.read_text()) if file.name != "patterns.py" else ():
            assert forward(pattern), file
    assert patterns_given_to_re('re.sub("a+" if x else "b", "", text)') == ["a+", "b"]
    for pattern in ("a+", "(?:a|b)*", "a{2,}", "a+?", "[+*]++a*"):
        with pytest.raises(ValueError, match="possessive"):
            forward(pattern)


def test_patterns_of_single_answers_do_not_stay():
    """Makes impossible: a trainer that grows with every judged answer, whose words are part of a pattern."""
    before = len(COMPILED)
    for i in range(2000):
        forward(f"word{i}")
    re.purge()
    assert len(COMPILED) <= before


def test_a_thought_is_no_answer():
    """Makes impossible: a reward for the box of a thought that was cut off before its </think>."""
    for kind, response in (
        ("math", "<think> so \\boxed{\\frac12}"),
        ("math", "\\boxed{4}</think> <think> so \\boxed{\\frac12}"),
        ("science", "<think> \\boxed{9.8 m/s^2}"),
        ("countdown", "<think>(2+3)*4"),
        ("code", "<think>\n```python\nprint(1)\n```"),
    ):
        assert reason(kind, response, REFERENCES[kind]) == "no_answer"
    assert reason("ifeval", "<think> hm", instruction("punctuation:no_comma", {})) == "no_answer"
    assert reason("math", "<think> so \\boxed{4} </think> \\boxed{\\frac12}", "\\frac{1}{2}") == "correct"


REPLY_WORDS = '[ ] { } , : "value" "error" "environment" 1 0.5 -1 1e999 NaN true null "x" "\\ud800" \x00 \xff'
REPLIES = [
    b"[" * 100_000,
    b'{"value": ' + b"9" * 5000 + b"}",
    b'{"error": ' + b"[" * 980 + b"]" * 980 + b"}",
    b"3",
    b"[]",
]
REPLIES += [b'{"value": ' + b"[" * n + b"]" * n + b"}" for n in (1, 2, 400, 900, 950, 980)]
REPLIES += [b'{"value": ' + b'{"a":' * n + b"1" + b"}" * n + b"}" for n in (1, 400, 980)]


def test_no_reply_of_a_worker_raises(monkeypatch):
    """Makes impossible: a reply that a model's text forged, and that ends the run where the trainer reads it."""
    rng = random.Random(4)
    words = [word.encode("latin-1") for word in REPLY_WORDS.split(" ")]
    forged = [b'{"value": ' + b"".join(rng.choices(words, k=rng.randint(1, 6))) + b"}" for _ in range(1_000)]
    forged += [b"".join(rng.choices(words, k=rng.randint(0, 8))) for _ in range(1_000)]

    def outcomes(jobs, *_):
        for index, _ in enumerate(jobs):
            worker = Worker.__new__(Worker)  # no keeper: only the reading of a reply
            here, there = socket.socketpair()
            with here, there:
                there.sendall(reply + b"\n")
                # A thread reads it, as in the pool: its stack is short, so it can read deeper values than this one.
                read = threads.submit(worker._ask, here, b"", time.monotonic() + 60)
                yield index, read.result() or Ended("crashed")

    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(pool, "run", outcomes)
    monkeypatch.setitem(KINDS, "probe", Kind(lambda answer, reference: Call("nowhere:judge", [])))
    rewards = set()
    for reply in REPLIES + forged:  # noqa: B007, `outcomes` sends it
        verdict = verify("probe", "x", None)
        rewards.add(verdict.reason)
        assert verdict.reason in REASONS and verdict.correct == (verdict.reason == "correct")
    assert rewards >= {"correct", "partial", "wrong", "unparsed", "crashed"}


# --------------------------------------------------------------------------------- the caller's mistakes


BROKEN = [("math", "\\boxed{2}", gold) for gold in (2, None, "", "(1", "1/0", "1e1001", "9" * (MAX_ANSWER + 1))]
BROKEN += [("math", "\\boxed{2}", golds) for golds in ([], ["2", 2], ["2", "1/0"], ["2", ["3"]], ["2", "\frac12"])]
# JSON turns \frac, \theta, \boxed and \neq into control characters if they have one backslash.
BROKEN += [("math", "1", gold) for gold in ("\frac{1}{2}", "\theta", "\boxed{5}", "x\neq 5", "\\boxed{}")]
BROKEN += [("countdown", "1", reference) for reference in ("24", [], {"numbers": [1]}, THREE | {"ops": "+"})]
BROKEN += [("countdown", "1", {"numbers": numbers, "target": 1})
           for numbers in ([], [1] * 33, "12", [1, 2.0], [1, True], [1, -2], [10**9])]  # fmt: skip
BROKEN += [("countdown", "1", THREE | {"target": target}) for target in (1.0, True, None)]
BROKEN += [(kind, "\\boxed{2}", "2") for kind in ("mathematics", "", None, ["math"])]
BROKEN += [("math", response, "2") for response in (None, b"\\boxed{2}", [1, 2])]


@pytest.mark.parametrize("item", BROKEN)
def test_a_broken_item_is_named(item):
    """Makes impossible: a misspelt kind, a gold that does not parse, or tokens, that score 0 or 1 for a whole run."""
    with pytest.raises(ValueError, match="item 1"):
        verify_batch([("math", "", "2"), item])


def test_any_value_is_shown():
    """Makes impossible: a message about a broken value that raises another exception."""
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, {"a": deep}, 10**5000, "\ud800\x1b", float("nan")):
        assert len(shown(value)) <= 203 and shown(value).isascii() and "\x1b" not in shown(value)


# ------------------------------------------------------------------------------------------ batches


def test_batch_equals_one_by_one_in_order():
    """Makes impossible: verdicts in another order, or different from `verify`, once duplicates are removed."""
    rng = random.Random(5)
    countdown = [{"numbers": [2, 3, 4], "target": target} for target in (20, 14, 24, 9)]
    texts = ["(2+3)*4", "2+3*4", "2*3*4", "2+3+4", "2+3", "", "?", "\\boxed{20}", "\\boxed{14.0}", "\\boxed{x}"]
    items = [
        ("countdown", rng.choice(texts), rng.choice(countdown))
        if rng.random() < 0.5
        else ("math", rng.choice(texts), rng.choice(["20", "14"]))
        for _ in range(500)
    ]
    verdicts = verify_batch(items)
    assert verdicts == [verify(*item) for item in items]
    assert {verdict.reason for verdict in verdicts} == {"correct", "wrong", "unparsed", "no_answer"}
    assert verify_batch(iter(items)) == verdicts
    assert verify_batch([]) == []


def test_batch_does_not_mix_problems():
    """Makes impossible: one problem's verdict given to another, whose response is the same text."""
    # Each reference is gone from this generator once it is handed out: its id must not return on a later one.
    targets = random.Random(6).choices([20, 21], k=1000)
    items = (("countdown", "(2+3)*4", {"numbers": [2, 3, 4], "target": target}) for target in targets)
    expected = ["correct" if target == 20 else "wrong" for target in targets]
    assert [verdict.reason for verdict in verify_batch(items)] == expected
    same_text = [("math", "\\boxed{5}", "5"), ("math", "\\boxed{5}", "6"), ("countdown", "\\boxed{5}", THREE)]
    assert [verdict.reason for verdict in verify_batch(same_text)] == ["correct", "wrong", "unparsed"]


def test_batch_judges_each_distinct_response_once(monkeypatch):
    """Makes impossible: an answer judged once per rollout instead of once per distinct answer."""
    calls, math = [], kind_of("math")
    counting = math._replace(check=lambda reference: calls.append("check") or math.check(reference),
                             judge=lambda *args: calls.append("judge") or math.judge(*args))  # fmt: skip
    monkeypatch.setitem(KINDS, "math", counting)
    verify_batch([("math", response, "5") for response in ["\\boxed{5}", "\\boxed{6}"] * 256])
    assert sorted(calls) == ["check", "judge", "judge"]


def test_another_system_than_linux(monkeypatch):
    """Makes impossible: a traceback about fork, where no worker can start; countdown refused with the rest."""
    monkeypatch.setattr(sys, "platform", "win32")
    assert reason("countdown", "(2+3)*4", THREE) == "correct"
    with pytest.raises(RuntimeError, match="Linux"):
        verify("code", "```python\nprint(1)\n```", REFERENCES["code"], allow_weak_sandbox=True)


def test_what_judging_countdown_imports():
    """Makes impossible: torch, or every kind with its packages, loaded by whoever judges one."""
    code = """if True:
        import sys, verify
        assert verify.verify("countdown", "4*5", {"numbers": [4, 5], "target": 20}).reward == 1
        ours = ("verify", "kinds", "sandbox", "torch")
        print(*sorted(name for name in sys.modules if name.partition(".")[0] in ours))
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    sandbox = ["sandbox", *(f"sandbox.{name}" for name in ("jobs", "messages", "pool", "values", "worker"))]
    assert done.stdout.split() == [*sandbox, "verify"]
