r"""BroRL, section 4.2.1: the reward R_τ of a response τ to a problem x, by a rule.

    R_τ = judge(answer(τ), reference_x)    1: the answer is right; 0: it is wrong; between them: partial credit
    correct_τ                              R_τ = 1; a kind of your own may define it

In the symbols of section 2, R_c = 1 and R_w = 0. The advantages of section 3.1 use R_τ; its dynamic sampling counts
correct_τ, and brorl.py estimates pass@k (section 2) from the same count.

The paper trains on five families of problems: math, code, science, IFEval and Reasoning Gym (`logic` here). It does not
state the rules of their rewards. The rules here are ours. They are programs; none of them is a model. countdown, a task
of figure 4, is a kind of its own.

    kind         reference                           answer                               judged in
    countdown    {"numbers": [...], "target": n}     the last <answer>, or the response   this process
    math         a gold as LaTeX, or a list of them  the last \boxed{...}                 this process, or a worker
    science      as math, with a unit; an option     the last \boxed{...}                 this process, or a worker
    ifeval       {"instruction_id_list", "kwargs"}   the response                         this process
    logic        {"dataset", "entry"}                the last <answer>...</answer>        a fresh process of a worker
    code         {"inputs", "outputs", "fn_name"}    the last ```python block             a fresh process for each test
    your own     any JSON                            the response, with its thinking      a worker

    reason       R_τ         meaning
    correct      1           the answer is right. Your own kind may call another reward correct
    wrong        0           the answer was read, and is not right. Your own kind may pay less than 0
    partial      above 0     the answer is right in part
    no_answer    0           the response is empty, or has no box, tag or program
    unparsed     0           the kind cannot read the answer
    timeout      0           judging took too long
    crashed      0           the judging process raised an exception, or died

A timeout, a crash and None earn 0. If your own kind pays less than 0 for a wrong answer, the policy can gain by text
that cannot be read. Let your function pay the low reward for such text too, and make it end in time for any text.

**Strict rules.** For the kinds of the table the answer comes after the last </think>, and a response with an open
<think> has none. If the prompt opened it, put <think> before the response, as trainer/rollouts.py does. A rule reads
the whole answer or none of it: with N = 512 rollouts a policy can find a gap in a lenient rule, and train on it.

**A model's text is hostile.** `judge` runs in the trainer's process, so it must end quickly for any text. It may use
methods of str, the patterns of kinds/patterns.py, which cannot backtrack, and parsers of at most MAX_ANSWER characters.
For everything else it returns a job, which a worker of sandbox/ runs within a time limit.

This file has the types, the kind countdown in full, and the functions that judge. kinds/ has one file for each other
kind; trainer/problems.py reads problems. Simplified: nothing checks that a countdown problem can be solved.
"""

import ast
import importlib
import logging
import operator
import re
from collections.abc import Callable, Iterable
from contextlib import closing
from fractions import Fraction
from typing import Any, NamedTuple

from sandbox import pool
from sandbox.jobs import Call, Ended, Program
from sandbox.messages import printable

LOG = logging.getLogger(__name__)

REASONS = ("correct", "wrong", "partial", "no_answer", "unparsed", "timeout", "crashed")
MAX_ANSWER = 1_000  # characters: a longer answer is not read as an expression. kinds/answers/ has its own limit
MAX_REWARD = 1e9


class Problem(NamedTuple):
    """A prompt (text, or chat messages), the kind of its rule, and the reference of that rule: the table above."""

    prompt: str | list[dict[str, str]]
    kind: str
    reference: Any


class Response(NamedTuple):
    """A response, its number of tokens, and whether the length limit cut it."""

    text: str
    n_tokens: int = 0
    truncated: bool = False


Item = tuple[str, str | Response, Any]  # the kind, the response, the reference


class Verdict(NamedTuple):
    """The reward, whether the response is correct, and one of REASONS."""

    reward: float
    correct: bool
    reason: str


def shown(value: Any) -> str:
    """Return a value as text for an error message: at most 200 characters, none of them a control. Never raises."""
    try:
        text = printable(repr(value))
    except (RecursionError, ValueError):  # nested too deeply; a whole number of more than 4,300 digits
        text = f"a {type(value).__name__} that Python cannot print"
    return text if len(text) <= 200 else text[:200] + "..."


def after_thinking(response: str) -> str | None:
    """Return the text after the last </think>; None if it is empty, or if a <think> is open in it."""
    text = response.rpartition("</think>")[2].strip()
    return text if text and "<think>" not in text else None


def last_tag(response: str) -> str | None:
    """Return the text in the last <answer>...</answer>, None if there is none."""
    before, closed, _ = (after_thinking(response) or "").rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    return answer.strip() if opened and closed else None


class Kind(NamedTuple):
    """A kind of problem.

    judge      (answer, reference, *extra) -> one of
                   True or False        reward 1 or 0
                   a number             the reward; correct only if it is exactly 1, so 2 is "partial"
                   (reward, correct)    for any other reward of a right answer: (2, True)
                   None                 the answer cannot be read
                   a job                of sandbox/jobs.py: a worker finds one of the above
    answer     response -> the text to judge, or None
    check      raises ValueError for a broken reference
    solution   reference -> a right response, or None. If the judge rejects it, the problem is broken
    extra      the fields of `Response` that `judge` takes after the reference
    file       the user's file of this kind
    """

    judge: Callable[..., Any]
    answer: Callable[[str], str | None] = after_thinking
    check: Callable[[Any], Any] = lambda reference: None
    solution: Callable[[Any], str | None] = lambda reference: None
    extra: tuple[str, ...] = ()
    file: str | None = None


# ---------------------------------------------------------------------------- a kind in full: countdown

_SIGNS = str.maketrans("×÷−", "*/-")
_CHARACTERS = re.compile(r"[0-9+*/() \n-]*+")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def judge_countdown(answer: str, reference: dict[str, Any]) -> bool | None:
    """Return True if the answer uses each of the problem's numbers exactly once and equals the target.

    False if it does not, or divides by zero. None if the text is more than whole numbers joined by + - * / (or − × ÷),
    parentheses and spaces. Values on the way may be negative or fractions.
    """
    tree = _parse_expression(answer)
    if tree is None:
        return None
    numbers: list[Any] = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    try:
        # Compare the numbers first: they bound the depth of the tree and the size of its value.
        return sorted(numbers) == sorted(reference["numbers"]) and _evaluate(tree) == reference["target"]
    except ZeroDivisionError:
        return False


def _parse_expression(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression, None if the text is not an expression."""
    if len(text) > MAX_ANSWER or not _CHARACTERS.fullmatch(text := text.translate(_SIGNS)):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        return None
    nodes = (ast.BinOp, ast.Constant, *_OPERATORS.keys())  # no sign, power, call or tuple
    return tree if all(isinstance(node, nodes) for node in ast.walk(tree)) else None


def _evaluate(tree: Any) -> Fraction:
    """Return the exact value of a syntax tree. Raises ZeroDivisionError."""
    if not isinstance(tree, ast.BinOp):
        return Fraction(tree.value)
    return _OPERATORS[type(tree.op)](_evaluate(tree.left), _evaluate(tree.right))


def value_of(expression: str) -> Fraction | None:
    """Return the exact value of a countdown expression, None if it does not parse or divides by zero."""
    tree = _parse_expression(expression)
    try:
        return None if tree is None else _evaluate(tree)
    except ZeroDivisionError:
        return None


def check_countdown(reference: Any) -> None:
    """Raise ValueError unless the reference has 1 to 32 whole numbers below 10^9 and a whole target."""
    if not (
        isinstance(reference, dict)
        and reference.keys() == {"numbers", "target"}
        and isinstance(reference["numbers"], list)
        and 1 <= len(reference["numbers"]) <= 32
        and all(type(number) is int and 0 <= number < 10**9 for number in reference["numbers"])
        and type(reference["target"]) is int
    ):
        form = '{"numbers": [1 to 32 whole numbers from 0 to 999999999], "target": a whole number}'
        raise ValueError(f"a countdown reference is {form}, got {shown(reference)}")


def countdown_answer(response: str) -> str | None:
    """Return the text in the last <answer>...</answer>, or else the response."""
    return last_tag(response) or after_thinking(response)


# ---------------------------------------------------------------------------------- all kinds, and verdicts

# Name -> the kind, or its module. A module defines KIND, and is imported at the first problem of its kind.
KINDS: dict[str, Kind | str] = {
    "countdown": Kind(judge_countdown, countdown_answer, check_countdown),
    "math": "kinds.maths",
    "science": "kinds.science",
    "ifeval": "kinds.ifeval",
    "logic": "kinds.logic",
    "code": "kinds.code",
}


def kind_of(name: Any) -> Kind:
    """Return the kind of this name. Raises ValueError with the known names."""
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"unknown kind {shown(name)}: use one of {', '.join(KINDS)}, or name its file by --rewards")
    kind = KINDS[name]
    return importlib.import_module(kind).KIND if isinstance(kind, str) else kind


class JudgeFailed(RuntimeError):
    """A judge raised OSError or ImportError: this machine is at fault, not the answer, so the run must end."""


class NotAReward(ValueError):
    """A user's function returned a value that is no reward."""


failures: dict[str, str] = {}  # kind -> the sentence about its first crash or timeout


def verify(kind: str, response: str | Response, reference: Any, **options: Any) -> Verdict:
    """Return the verdict on one response: a batch of one, with the options of `verify_batch`."""
    return verify_batch([(kind, response, reference)], **options)[0]


def verify_batch(
    items: Iterable[Item], workers: int | None = None, timeout_s: float = 10.0, *, allow_weak_sandbox: bool = False
) -> list[Verdict]:
    """Return the verdict of each item, in order. No text of a model makes a kind of the table above raise.

    The N rollouts of a prompt repeat answers: equal answers are judged once if their references are the same object.
    Jobs go to `workers` processes (None: by the number of cores); each job may take `timeout_s`. With
    `allow_weak_sandbox` model code runs even where this machine cannot isolate it completely. Raises
        ValueError     for a broken item, with its position
        NotAReward     if a user's function returns something else than a reward
        JudgeFailed    if a judge lacks a file or a package
        WeakSandbox    if this machine cannot isolate model code
        CannotStart    for a job if no worker process can start, as on another system than Linux
    """
    items = list(items)  # keeps the references alive: a new object can get the id of a dead one
    checked: set[tuple[str, int]] = set()  # references, as (kind, id)
    verdicts: dict[tuple, Verdict] = {}
    jobs: dict[tuple, Call | Program] = {}
    keys = []
    for position, (name, response, reference) in enumerate(items):
        response = response if isinstance(response, Response) else Response(response)
        try:
            kind = kind_of(name)
            if (name, id(reference)) not in checked:
                kind.check(reference)
                checked.add((name, id(reference)))
            if not isinstance(response.text, str):
                raise ValueError(f"a response is text, got {shown(response.text)}: decode its tokens first")
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
        answer = kind.answer(response.text)
        extra = [getattr(response, field) for field in kind.extra]
        key = (name, id(reference), answer, *extra)
        keys.append(key)
        if key in verdicts or key in jobs:
            continue
        if answer is None:
            verdicts[key] = Verdict(0.0, False, "no_answer")
            continue
        value = kind.judge(answer, reference, *extra)
        if isinstance(value, Call | Program):
            jobs[key] = value
        else:
            verdicts[key] = verdict_of(value)
    verdicts |= run_jobs(jobs, workers, timeout_s, allow_weak_sandbox)
    return [verdicts[key] for key in keys]


def verdict_of(value: Any) -> Verdict:
    """Return the verdict for a judge's value. Raises ValueError if the value is no reward."""
    if value is None:
        return Verdict(0.0, False, "unparsed")
    pair = isinstance(value, tuple | list) and len(value) == 2
    reward, correct = value if pair else (value, value == 1)  # True == 1
    if not isinstance(reward, int | float) or not isinstance(correct, bool) or not abs(reward) <= MAX_REWARD:
        form = f"a number of at most {MAX_REWARD:g} in size, (number, True or False) or None"
        raise ValueError(f"a judge returns {form}, got {shown(value)}")
    if correct:
        return Verdict(float(reward), True, "correct")
    return Verdict(float(reward), False, "partial" if reward > 0 else "wrong")


# ------------------------------------------------------------------------------- jobs in worker processes


def run_jobs(
    jobs: dict[tuple, Call | Program], workers: int | None, timeout_s: float, allow_weak_sandbox: bool
) -> dict[tuple, Verdict]:
    """Run jobs in the workers of sandbox/, and return the verdict of each. A key starts with the name of its kind."""
    keys, verdicts = list(jobs), {}
    if not jobs:
        return {}
    # `closing` frees the pool if `verdict_of_outcome` raises.
    with closing(pool.run(jobs.values(), timeout_s, workers, allow_weak_sandbox)) as outcomes:
        for index, outcome in outcomes:
            verdicts[keys[index]] = verdict_of_outcome(outcome, keys[index][0], timeout_s)
    return verdicts


def verdict_of_outcome(outcome: Ended, name: str, timeout_s: float) -> Verdict:
    """Return the verdict for a job's outcome. The process that ran it read a model's text, and may send anything."""
    if outcome.status == "environment":
        raise JudgeFailed(
            f"kind {name} cannot be judged on this machine: {outcome.value}. A judge reads only Python's packages, "
            "and may not use the network"
        )
    if outcome.status == "ok":
        try:
            return verdict_of(outcome.value)
        except (TypeError, ValueError) as error:
            if file := kind_of(name).file:
                raise NotAReward(f"the reward of kind {name} ({file}): {error}") from None
            return Verdict(0.0, False, "crashed")
    if name not in failures:
        why = f"raised {outcome.value}" if outcome.value else "ended its process"
        why = f"took more than {timeout_s:g} s (--verify_timeout)" if outcome.status == "timeout" else why
        failures[name] = f"kind {name}: judging a response {why}"
        LOG.warning(failures[name])
    return Verdict(0.0, False, outcome.status)
