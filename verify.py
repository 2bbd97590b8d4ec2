r"""BroRL, section 4.2.1: problems, and the rule-based rewards that make them verifiable.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The paper names five families of problems and no rule of their rewards. These rules are ours, and ask no model.

    Problem    a prompt, the kind of its rule, and the reference that its rule compares responses with
    Verdict    (reward, correct, reason) of one response
    reward     goes to the advantages: R_c = 1 for a correct response, R_w = 0 for a wrong one, a share for partial
               credit; any number from a rule of your own
    correct    goes to dynamic sampling and pass@k

    kind        reference                            answer                                judged
    countdown   {"numbers": [...], "target": n}      the last <answer>, or the response    here
    math        an answer, LaTeX or plain            the last \boxed{...}                  here if a number, else worker
    science     with a unit, or an option            the last \boxed{...}                  the same
    ifeval      {"instruction_id_list", "kwargs"}    the response                          here
    logic       {"dataset", "entry"}                 the last <answer>...</answer>         alone
    code        {"inputs", "outputs", ["fn_name"]}   the last ```python block              each test alone
    your own    any JSON                             the response, with its thinking       alone

    reason      reward    meaning
    correct     1         the answer is right
    wrong       0         the answer was read, and it is another one
    partial     between   some parts of the answer are right
    unparsed    0         the answer does not have the form of its kind
    no_answer   0         nothing is written, or the box or the program is missing
    timeout     0         judging took too long
    crashed     0         the judging process died

**The rule of a reward.** Text before the last </think> is no answer, and neither is text after an open <think>. A form
outside the rules of its kind is unparsed: with N = 512 rollouts a policy finds every gap of a lenient rule and trains
on it. Numbers are compared exactly, as fractions.

**A kind is one function**, `judge(answer, reference)`, and the place that runs it: `Kind`. A model's text is hostile.
In this process it meets string methods, patterns that cannot backtrack and numbers of at most 1,000 digits. In a worker
process of sandbox/ a time limit ends everything else.

**Math in three steps** (kinds/maths.py). 1. Find the last box whose braces balance. 2. Read all of it into a form:
number, expression, equation, interval, tuple, list, matrix, option or words. Every side of an equation, every part of a
list and every word must be accounted for. A box that cannot be read completely earns 0. 3. Compare it with the gold's
form: numbers as fractions, expressions by their values at points of both signs, lists part by part in any order, tuples
and intervals with their brackets, words by their letters. In an equation each side must equal the gold or be a name,
such as x or f(x): 3 = 5 is wrong for 5. A decimal equals a fraction or a root within 1e-6, relative. A unit may follow,
but not another one than the gold's.

Countdown is below in full. The other kinds are in kinds/, one file each.
Simplified: nothing checks that a countdown target can be reached.
"""

import importlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from sandbox import WeakSandbox
from sandbox.jobs import Call, Program

__all__ = ["BUILT_IN", "KINDS", "REASONS", "JudgeFailed", "Kind", "NotAReward", "Problem", "Response", "Verdict",
           "WeakSandbox", "failures", "load_data", "load_problems", "load_rewards", "read_spec", "reward_files",
           "verify", "verify_batch"]  # fmt: skip

REASONS = ("correct", "wrong", "partial", "no_answer", "unparsed", "timeout", "crashed")
HERE, WORKER, ALONE = "here", "worker", "alone"
MAX_ANSWER = 1_000  # characters: fewer than the 4,300 digits that Python's int() reads, more than any honest answer


class Problem(NamedTuple):
    """A prompt (text, or chat messages), the kind of its rule, and its reference: the tables above."""

    prompt: str | list[dict[str, str]]
    kind: str
    reference: Any


class Response(NamedTuple):
    """A response, with its length and whether the limit cut it, for rewards that depend on them."""

    text: str
    n_tokens: int = 0
    truncated: bool = False


class Verdict(NamedTuple):
    """The reward, whether the response is correct, and one of REASONS."""

    reward: float
    correct: bool
    reason: str


class JudgeFailed(RuntimeError):
    """A judge met a missing or closed file or module. No answer is to blame, so the run must end."""


class NotAReward(ValueError):
    """A user's function returned something else than a reward."""


def after_thinking(response: str) -> str | None:
    """Return the text after the last </think>; None if a <think> is still open or nothing is written."""
    text = response.rpartition("</think>")[2].strip()
    return None if "<think>" in text else text or None


class Kind(NamedTuple):
    """A kind of problem.

    judge      (answer, reference) -> a number, which is correct at 1; or (number, correct); or None if it cannot read
               the answer. A judge that runs here may return a job of sandbox/jobs.py instead, whose value is then used
    where      HERE in this process; WORKER in a worker process; ALONE in a fresh one, as it may run the model's text
    answer     response -> the text to judge, None if there is none. Equal texts of a problem are judged once
    check      raises ValueError if a reference is broken
    solution   reference -> a response that is right, None if unknown. A problem is broken if its rule refuses this one
    asks       the fields of `Response` that `judge` takes after the reference: "n_tokens", "truncated"
    imports    packages that a worker imports before it judges
    file       the user's file of this kind
    """

    judge: Callable[..., Any]
    where: str = HERE
    answer: Callable[[str], str | None] = after_thinking
    check: Callable[[Any], Any] = lambda reference: None
    solution: Callable[[Any], str | None] = lambda reference: None
    asks: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    file: str | None = None


def shown(value: Any) -> str:
    """Return the value as an error message shows it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def last_tag(response: str) -> str | None:
    """Return the text in the last <answer>...</answer>, None if there is none."""
    before, closed, _ = (after_thinking(response) or "").rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    return answer.strip() if opened and closed else None


# ---------------------------------------------------------------------------- a kind in full: countdown

_PLAIN_OPERATORS = str.maketrans("×÷−", "*/-")
_TOKEN = re.compile(r"0|[1-9][0-9]*+|\S")  # "05" is two tokens and does not parse
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2}
_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": lambda a, b: Fraction(a) / b}


def judge_countdown(answer: str, reference: dict[str, Any]) -> bool | None:
    """Is the answer one expression over exactly the problem's numbers, each used once, with the target as its value?

    Form: whole numbers, + - * / (or − × ÷) between two values, parentheses, spaces. No sign before a value, no joined
    digits, no powers, no equation, no prose. Steps may be negative or fractional. A division by zero has no value.
    """
    postfix = _parse_expression(answer)
    if postfix is None:
        return None
    # Compare the numbers first: then a value has only the few numbers of the problem.
    return sorted(item for item in postfix if type(item) is int) == sorted(reference["numbers"]) and (
        _value(postfix) == reference["target"]
    )


def _parse_expression(text: str) -> list[int | str] | None:
    """Return the expression in postfix order (Dijkstra's shunting yard, no recursion), None if it is none."""
    if len(text) > MAX_ANSWER:
        return None
    postfix: list[int | str] = []
    pending: list[str] = []
    value_next = True
    for token in _TOKEN.findall(text.translate(_PLAIN_OPERATORS)):
        if value_next:
            if token[0] in "0123456789":
                postfix.append(int(token))
                value_next = False
            elif token == "(":
                pending.append(token)
            else:
                return None
        elif token == ")":
            while pending and pending[-1] != "(":
                postfix.append(pending.pop())
            if not pending:
                return None
            pending.pop()
        elif token in _APPLY:
            while pending and _PRECEDENCE[pending[-1]] >= _PRECEDENCE[token]:
                postfix.append(pending.pop())
            pending.append(token)
            value_next = True
        else:
            return None
    return None if value_next or "(" in pending else [*postfix, *reversed(pending)]


def _value(postfix: list[int | str]) -> int | Fraction | None:
    """Return the exact value of a postfix expression, None if it divides by zero."""
    stack: list[Any] = []
    for item in postfix:
        if isinstance(item, int):
            stack.append(item)
        else:
            right, left = stack.pop(), stack.pop()
            if item == "/" and right == 0:
                return None
            stack.append(_APPLY[item](left, right))
    return stack[0]


def value_of(expression: str) -> int | Fraction | None:
    """Return the exact value of a countdown expression, None if it does not parse or divides by zero."""
    postfix = _parse_expression(expression)
    return None if postfix is None else _value(postfix)


def check_countdown(reference: Any) -> None:
    """Raise ValueError unless the reference has 1 to 32 whole numbers below 10^9 and a whole target."""
    numbers = reference.get("numbers") if isinstance(reference, dict) and len(reference) == 2 else None
    if not isinstance(numbers, list) or not 1 <= len(numbers) <= 32 or type(reference.get("target")) is not int or (
        not all(type(number) is int and 0 <= number < 10**9 for number in numbers)
    ):  # fmt: skip
        raise ValueError(
            'a countdown reference is {"numbers": [1 to 32 whole numbers from 0 to 999999999], "target": a whole '
            f"number}}, got {shown(reference)}"
        )


def countdown_answer(response: str) -> str | None:
    tagged = last_tag(response)
    return (after_thinking(response) if tagged is None else tagged) or None


# ----------------------------------------------------------------------------------------------- kinds

# Name -> the kind, or the module whose KIND it is. The module is imported when a problem has this kind.
KINDS: dict[str, Kind | str] = {
    "countdown": Kind(judge_countdown, HERE, countdown_answer, check_countdown),
    "math": "kinds.maths",
    "science": "kinds.science",
    "ifeval": "kinds.ifeval",
    "logic": "kinds.logic",
    "code": "kinds.code",
}
BUILT_IN = frozenset(KINDS)
reward_files: dict[str, list[str]] = {}  # path of each loaded file -> itself and the files that it imports
failures: dict[str, str] = {}  # kind -> why its first call crashed or took too long


def kind_of(name: Any) -> Kind:
    """Return the kind of this name; ValueError with the known names."""
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"unknown kind {shown(name)}: use one of {', '.join(KINDS)}, or name its file by --rewards")
    kind = KINDS[name]
    return importlib.import_module(kind).KIND if isinstance(kind, str) else kind


def load_rewards(paths: list[str] | list[Path]) -> list[str]:
    """Add the kinds of these Python files to KINDS. Returns the absolute paths, for other processes and resumed runs.

    A file has functions (response, reference) -> reward, and a line that names them: KINDS = {"my_kind": my_function}.
    kinds/users.py has the rules. Raises FileNotFoundError, or ValueError for a file that cannot be used.
    """
    from kinds import users

    loaded = [str(Path(path).resolve()) for path in paths]
    for path in loaded:
        kinds, reward_files[path] = users.load(path)
        for name in kinds:
            known = KINDS.get(name)  # a file may be loaded again, changed or not
            if known is not None and (isinstance(known, str) or known.file != path):
                raise ValueError(f"{path}: there is a kind {name} already, choose another name than {', '.join(KINDS)}")
        KINDS.update(kinds)
    return loaded


# ---------------------------------------------------------------------------------------------- verdicts


def verdict_of(value: Any) -> Verdict:
    """Return the verdict for a judge's value; TypeError or ValueError if the value is no reward."""
    if value is None:
        return Verdict(0.0, False, "unparsed")
    reward, correct = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value == 1)
    if not isinstance(reward, int | float) or not isinstance(correct, bool) or not math.isfinite(reward):
        raise ValueError(f"a judge returns a number, (number, True or False) or None, got {shown(value)}")
    return Verdict(float(reward), correct, "correct" if correct else "partial" if reward > 0 else "wrong")


def verify(kind: str, response: str | Response, reference: Any, **options: Any) -> Verdict:
    """Return the verdict on one response: a batch of one, with the options of `verify_batch`."""
    return verify_batch([(kind, response, reference)], **options)[0]


def verify_batch(
    items: Iterable[tuple[str, str | Response, Any]],
    workers: int | None = None,
    timeout_s: float = 10.0,
    *,
    allow_weak_sandbox: bool = False,
) -> list[Verdict]:
    """Return the verdicts of many (kind, response, reference), in order. It never raises on a model's text.

    N rollouts repeat themselves: equal answers to the same reference object are judged once. Jobs go to `workers`
    processes (None: one per core), each within `timeout_s`. `allow_weak_sandbox` runs model code behind low walls too.
    Raises ValueError with the position of an item that is broken, JudgeFailed if a judge cannot work on this machine,
    WeakSandbox if its walls are too low for model code.
    """
    items = list(items)  # keeps every reference alive: the id of a dead object can return
    checked: set[tuple[str, int]] = set()
    judged: dict[tuple, Verdict] = {}
    jobs: dict[tuple, Call | Program] = {}
    keys = []
    for position, (name, response, reference) in enumerate(items):
        try:
            kind = kind_of(name)
            if (name, id(reference)) not in checked:
                kind.check(reference)
                checked.add((name, id(reference)))
            text, *_ = response = response if isinstance(response, Response) else Response(response)
            if not isinstance(text, str):
                raise ValueError(f"a response is text, got {shown(text)}: decode its tokens first")
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
        answer, asked = kind.answer(text), [getattr(response, field) for field in kind.asks]
        keys.append(key := (name, id(reference), answer, *asked))
        if answer is None:
            judged[key] = Verdict(0.0, False, "no_answer")
        elif key not in judged and key not in jobs:
            value = ask(kind, answer, reference, asked)
            if isinstance(value, Call | Program):
                jobs[key] = value
            else:
                judged[key] = verdict_of(value)
    if jobs:
        from kinds.workers import run

        judged |= run(jobs, workers, timeout_s, allow_weak_sandbox)
    return [judged[key] for key in keys]


def ask(kind: Kind, answer: str, reference: Any, asked: list) -> Any:
    """Return the judge's value, or the job that will have it."""
    if kind.where == HERE:
        return kind.judge(answer, reference, *asked)
    function = f"{kind.judge.__module__}:{kind.judge.__name__}"
    return Call(function, [answer, reference, *asked], kind.imports, evaluates=kind.where == ALONE)


# ---------------------------------------------------------------------------------------------- problems


def load_problems(path: str | Path) -> list[Problem]:
    """Read problems from JSON lines in UTF-8, one {"prompt": ..., "kind": ..., "reference": ...} a line.

    A prompt is text, or a list of chat messages {"role": ..., "content": ...}. Every problem is checked.
    Raises FileNotFoundError; ValueError with the path and the line number for a broken line, or if there is no problem.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"no problems at {path}: name a file of JSON lines; its weight follows as FILE.jsonl:0.5"
        )
    problems: dict[int, Problem] = {}
    # Split as bytes: text lines would also end at U+2028, which JSON allows inside a string.
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        try:
            if line.strip():
                record = json.loads(line.decode("utf-8"))
                if not isinstance(record, dict) or record.keys() != set(Problem._fields):
                    raise ValueError(f"a problem is an object with {', '.join(Problem._fields)}, got {shown(record)}")
                problems[number] = Problem(**record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: {error}. Write one JSON object a line, in UTF-8") from None
    if not problems:
        raise ValueError(f"{path} has no problem: write one JSON object a line")
    from kinds.sources import check

    for position, sentence in check(list(problems.values())).items():
        raise ValueError(f"{path}, line {list(problems)[position]}: {sentence}")
    return list(problems.values())


def load_data(specs: list[str], seed: int = 0) -> list[Problem]:
    """Return the problems of one epoch over sources, FILE.jsonl, hf:NAME or gym:NAME, each with an optional :WEIGHT.

    Without weights the sources follow each other. With weights each source is shuffled by `seed`, and every stretch of
    the epoch has the sources in these shares (kinds/sources.py). Use another seed for another epoch.
    """
    from kinds import sources

    return sources.load_data(specs, seed)


def read_spec(spec: str) -> tuple[str, float | None]:
    """Return ("SOURCE", weight) of "SOURCE:WEIGHT", and None for a missing weight."""
    source, colon, last = spec.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*\.?[0-9]+", last):
        return spec, None
    if float(last) <= 0:
        raise ValueError(f"the weight in {spec} must be above 0")
    return source, float(last)
