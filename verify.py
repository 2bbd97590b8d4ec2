r"""BroRL, section 4.2.1: problems with verifiable answers, and the rules that reward a response.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The paper trains on five families of problems: math, code, science, IFEval and Reasoning Gym. It does not state the
rules of their rewards. The rules here are ours, and no rule asks a model.

    name here    meaning
    Problem      a prompt, the kind of its rule, and the reference that the rule compares a response with
    Verdict      (reward, correct, reason) of one response
    reward       R of section 3.1, for the advantages: R_c = 1 for a correct response, R_w = 0 for a wrong one, a share
                 for partial credit. A rule of your own may return any number
    correct      True or False, for dynamic sampling and pass@k

    kind         reference                           answer                               judged in
    countdown    {"numbers": [...], "target": n}     the last <answer>, or the response   this process
    math         a number or formula, as LaTeX       the last \boxed{...}                 this process, or a worker
    science      the same, a unit, or an option      the last \boxed{...}                 a worker
    ifeval       {"instruction_id_list", "kwargs"}   the response                         this process
    logic        {"dataset", "entry"}                the last <answer>...</answer>        a fresh worker
    code         {"inputs", "outputs", "fn_name"}    the last ```python block             a fresh worker for each test
    your own     any JSON                            the response, with its thinking      a fresh worker

    reason       reward     meaning
    correct      1          the answer is right
    wrong        0          the answer is another one
    partial      between    some parts of the answer are right
    unparsed     0          the answer does not have the form that its kind reads
    no_answer    0          the response is empty, or has no box, tag or program
    timeout      0          judging took too long
    crashed      0          the judging process died

**The rule of a reward.** The answer comes after the last </think>. A response with an open <think> has no answer. The
rule reads the whole answer or none of it. With N = 512 rollouts a policy finds every gap of a lenient rule and trains
on it. Numbers are compared exactly, as fractions.

**A kind is one function**, `judge(answer, reference)`, and the process that runs it (`Kind`). A model's text is
hostile. This process uses only methods of str, patterns that cannot backtrack, and a parser for at most 1,000
characters. Everything else runs in a worker process of sandbox/, with a time limit.

**Math has three steps** (kinds/maths.py).
1. Find the last box whose braces balance.
2. Read all of it into a form: a value, an equation, an inequality, a tuple or interval, a list or set, or words. A text
   that cannot be read completely earns 0, unless it is the gold's own text.
3. Compare the two forms. Numbers are fractions. Expressions are equal if their values at four points are. Tuples and
   intervals agree part by part and in their brackets, lists in any order, words in their letters. Each side of an
   equation must equal the gold or name it, as in x = 5 or f(x) = 5: so 3 = 5 is wrong for 5. A decimal may differ from
   a fraction or a root by 1e-6, relative. A unit may follow a number, but a different unit is wrong.

This file has the types, the kind countdown in full, and the functions that judge and load. kinds/ has one file for each
other kind. Simplified: a countdown problem may have no solution.
"""

import ast
import importlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from sandbox import WeakSandbox as WeakSandbox
from sandbox.jobs import Call, Program

REASONS = ("correct", "wrong", "partial", "no_answer", "unparsed", "timeout", "crashed")
HERE, WORKER, ALONE = "here", "worker", "alone"
MAX_ANSWER = 1_000  # characters of an answer that Python's int() or parser reads: more than any honest answer has


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


def after_thinking(response: str) -> str | None:
    """Return the text after the last </think>; None if it is empty, or if a <think> is open in it."""
    text = response.rpartition("</think>")[2].strip()
    return None if "<think>" in text else text or None


def last_tag(response: str) -> str | None:
    """Return the text in the last <answer>...</answer>, None if there is none."""
    before, closed, _ = (after_thinking(response) or "").rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    return answer.strip() if opened and closed else None


class Kind(NamedTuple):
    """A kind of problem.

    judge      (answer, reference) -> the reward, which is correct at 1; or (reward, correct); or None for an answer
               that it cannot read. A judge that runs HERE may return a job of sandbox/jobs.py: its result is then used
    where      the process that runs `judge`: HERE, this one; WORKER, a worker; ALONE, a fresh worker, for a judge that
               may run the model's text as code
    answer     response -> the text to judge, or None. Equal answers to one problem are judged once
    check      raises ValueError for a broken reference
    solution   reference -> a right response, or None. A problem whose rule refuses this response is broken
    asks       the fields of `Response` that `judge` takes after the reference
    file       the user's file of this kind
    """

    judge: Callable[..., Any]
    where: str = HERE
    answer: Callable[[str], str | None] = after_thinking
    check: Callable[[Any], Any] = lambda reference: None
    solution: Callable[[Any], str | None] = lambda reference: None
    asks: tuple[str, ...] = ()
    file: str | None = None


# ---------------------------------------------------------------------------- a kind in full: countdown

_SIGNS = str.maketrans("×÷−", "*/-")
_CHARACTERS = re.compile(r"[0-9+*/() \n-]*")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def judge_countdown(answer: str, reference: dict[str, Any]) -> bool | None:
    """Is the answer an expression that uses exactly the problem's numbers, each once, and has the target as its value?

    It may have whole numbers, + - * / (or − × ÷) between two values, parentheses and spaces. A sign before a value, a
    power, an equation or prose makes it unparsed. Values on the way may be negative or fractions. A division by zero
    has no value.
    """
    tree = _parse_expression(answer)
    if tree is None:
        return None
    numbers: list[Any] = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    try:
        # Compare the numbers first: they bound the depth of the tree and the size of its value.
        return sorted(numbers) == sorted(reference["numbers"]) and _value(tree) == reference["target"]
    except ZeroDivisionError:
        return False


def _parse_expression(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression, None if the text is none."""
    if len(text) > MAX_ANSWER or not _CHARACTERS.fullmatch(text := text.translate(_SIGNS)):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        return None
    nodes = (ast.BinOp, ast.Constant, *_OPERATORS)  # no sign, power, call or tuple
    return tree if all(isinstance(node, nodes) for node in ast.walk(tree)) else None


def _value(tree: Any) -> Fraction:
    """Return the exact value of a syntax tree. Raises ZeroDivisionError."""
    if not isinstance(tree, ast.BinOp):
        return Fraction(tree.value)
    return _OPERATORS[type(tree.op)](_value(tree.left), _value(tree.right))


def value_of(expression: str) -> Fraction | None:
    """Return the exact value of a countdown expression, None if it does not parse or divides by zero."""
    tree = _parse_expression(expression)
    try:
        return None if tree is None else _value(tree)
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

# Name -> the kind, or the module that defines it as KIND and is imported when a problem has this kind.
KINDS: dict[str, Kind | str] = {
    "countdown": Kind(judge_countdown, HERE, countdown_answer, check_countdown),
    "math": "kinds.maths",
    "science": "kinds.science",
    "ifeval": "kinds.ifeval",
    "logic": "kinds.logic",
    "code": "kinds.code",
}


def verify(kind: str, response: str | Response, reference: Any, **options: Any) -> Verdict:
    """Return the verdict on one response: a batch of one, with the options of `verify_batch`."""
    return verify_batch([(kind, response, reference)], **options)[0]


def verify_batch(
    items: Iterable[Item], workers: int | None = None, timeout_s: float = 10.0, *, allow_weak_sandbox: bool = False
) -> list[Verdict]:
    """Return the verdict of each item, in order. No text of a model makes it raise.

    The N rollouts of a prompt repeat answers: equal answers to the same reference object are judged once. Jobs go to
    `workers` processes (None: one per core), each within `timeout_s`. `allow_weak_sandbox` also runs model code on a
    machine without all walls. Raises ValueError with the position of a broken item, JudgeFailed, and WeakSandbox if
    this machine lacks walls that model code needs.
    """
    items = list(items)  # keeps the references alive: a new object can get the id of a dead one
    checked: set[tuple[str, int]] = set()
    judged: dict[tuple, Verdict] = {}
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
        answer, asked = kind.answer(response.text), [getattr(response, field) for field in kind.asks]
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
    """Return the judge's value, or the job that computes it in a worker."""
    if kind.where == HERE:
        return kind.judge(answer, reference, *asked)
    function = f"{kind.judge.__module__}:{kind.judge.__name__}"
    return Call(function, [answer, reference, *asked], evaluates=kind.where == ALONE)


def verdict_of(value: Any) -> Verdict:
    """Return the verdict for a judge's value; TypeError or ValueError if the value is no reward."""
    if value is None:
        return Verdict(0.0, False, "unparsed")
    reward, correct = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value == 1)
    if not isinstance(reward, int | float) or not isinstance(correct, bool) or not math.isfinite(reward):
        raise ValueError(f"a judge returns a number, (number, True or False) or None, got {shown(value)}")
    return Verdict(float(reward), correct, "correct" if correct else "partial" if reward > 0 else "wrong")


# ------------------------------------------------------------------------ problems, and rewards of your own


def load_problems(path: str | Path) -> list[Problem]:
    """Read problems from JSON lines in UTF-8: {"prompt": ..., "kind": ..., "reference": ...} on each line.

    A prompt is text, or a list of chat messages {"role": ..., "content": ...}. Every problem is checked.
    Raises FileNotFoundError; ValueError with the path and the line number for a broken line, or if there is no problem.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no problems at {path}: name a file of JSON lines, with a weight as FILE.jsonl:0.5")
    problems: dict[int, Problem] = {}
    # Split bytes: lines of text would also end at U+2028, which JSON allows inside a string.
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        try:
            if line.strip():
                record = json.loads(line.decode("utf-8"))
                if not isinstance(record, dict) or record.keys() != set(Problem._fields):
                    raise ValueError(f"a problem is an object with {', '.join(Problem._fields)}, got {shown(record)}")
                problems[number] = Problem(**record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: {error}. Write one JSON object a line, in UTF-8") from None
    from kinds.sources import check

    for position, sentence in check(list(problems.values())).items():
        raise ValueError(f"{path}, line {list(problems)[position]}: {sentence}")
    if not problems:
        raise ValueError(f"{path} has no problem: write one JSON object a line")
    return list(problems.values())


def load_data(specs: list[str], seed: int = 0) -> list[Problem]:
    """Return the problems of one epoch over sources, FILE.jsonl, hf:NAME or gym:NAME, each with an optional :WEIGHT.

    kinds/sources.py has the rules. Another seed gives another order of an epoch with weights.
    """
    from kinds import sources

    return sources.load_data(specs, seed)


def load_rewards(paths: list[str] | list[Path]) -> list[str]:
    """Add the kinds of these Python files to KINDS, and return the absolute paths.

    A file has functions (response, reference) -> reward, and a line that names them: KINDS = {"my_kind": my_function}.
    kinds/users.py has the rules. Raises FileNotFoundError, or ValueError for a file that cannot be used.
    """
    from kinds import users

    loaded = [str(Path(path).resolve()) for path in paths]
    for path in loaded:
        kinds, reward_files[path] = users.load(path)
        others = {name for name, kind in KINDS.items() if isinstance(kind, str) or kind.file != path}
        if taken := others & kinds.keys():
            raise ValueError(f"{path}: choose another name for {', '.join(taken)} than {', '.join(KINDS)}")
        KINDS.update(kinds)  # a file may be loaded again
    return loaded


# ------------------------------------------------------------------------------------------- names and errors

reward_files: dict[str, list[str]] = {}  # path of each loaded file -> itself and the files that it imports
failures: dict[str, str] = {}  # kind -> why its first call crashed or took too long


class JudgeFailed(RuntimeError):
    """A judge cannot open a file or module on this machine. The run must end, since no answer is to blame."""


class NotAReward(ValueError):
    """A user's function returned a value that is no reward."""


def kind_of(name: Any) -> Kind:
    """Return the kind of this name. Raises ValueError with the known names."""
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"unknown kind {shown(name)}: use one of {', '.join(KINDS)}, or name its file by --rewards")
    kind = KINDS[name]
    return importlib.import_module(kind).KIND if isinstance(kind, str) else kind


def shown(value: Any) -> str:
    """Return a value as text for an error message, cut to 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def read_spec(spec: str) -> tuple[str, float | None]:
    """Return ("SOURCE", weight) of "SOURCE:WEIGHT", and None for a missing weight."""
    source, colon, last = spec.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*\.?[0-9]+", last):
        return spec, None
    if float(last) <= 0:
        raise ValueError(f"the weight in {spec} must be above 0")
    return source, float(last)
