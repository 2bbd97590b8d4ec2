"""BroRL, section 4.2.1: problems, and the rule-based rewards that make them verifiable.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The paper names five families of problems and no rule of their rewards: the rules are ours. Each is applied to text,
never a model's opinion: R_c = 1 for a correct response, R_w = 0 for the rest.
A Problem is (prompt, kind, reference); the Verdict on a response to it is (reward, reason).

    kind         reference                           the answer is
    countdown    {"numbers": [int, ...],             the response, or the last <answer>...</answer> in it: one
                  "target": int}                     expression of value `target` over exactly these numbers
    math         str: an answer, LaTeX or plain      the last balanced \boxed{...}: the same number, list, tuple,
                                                     interval, matrix, expression, equation, option or text
    science      str: a short answer, or an option   the last balanced \boxed{...}, with its unit
    ifeval       {"instruction_id_list": [str, ...], the response: the share of these instructions that it follows
                  "kwargs": [{...}, ...]}
    logic        {"dataset": str, "entry": {...}}    the last <answer>...</answer>, as Reasoning Gym's data set of that
                                                     name scores it for its entry
    code         {"inputs": [...], "outputs": [...]} the last ```python block, or a response without fences that is
                                                     one (a line begins with import, def, print(): a program that
                                                     prints each output for its input. Texts, or lists of lines
                 the same with "fn_name": str        ...: a function, or a method of a class Solution, that returns
                                                     each output. Inputs are lists of arguments, both may be JSON text
    your own     what JSON can hold                  what your function says: `load_rewards`

    reason       reward    meaning
    correct      1         the answer is right
    wrong        0         the answer was read, and it is another one
    unparsed     0         there is an answer, and it is not of the kind's form
    no_answer    0         there is no answer: nothing was written, no box, no program
    partial      between   some parts of the answer are right
    timeout      0         the judging took too long
    crashed      0         the judging process died
                           (the last three: kinds with parts, or with a worker process)

Rules of all kinds but your own. What stands before the last </think>, or behind a <think> that nothing closes, is not
an answer. A form that is not listed is "unparsed" and is never rescued by a number elsewhere: with N = 512 rollouts a
lenient rule will be found and then trained on. Numbers are compared exactly, as fractions; a decimal may stand for a
number that is not whole, to a relative 1e-6.

Model text is hostile. In this process it meets string methods, patterns that cannot backtrack (verdict.forward refuses
all others), and numbers of at most 1,000 digits. All else meets a clock in a worker process: LaTeX, algebra, programs,
the scorers of Reasoning Gym, and your own function.

Countdown stands here in full, as the example of a kind. The others, where problems come from, and the sandbox that the
workers are (verifiers/sandbox.py) are in verifiers/: each kind's file opens with the table of its rules.
Simplified: whether a countdown target can be reached is not checked. Each kind's file says its own.
"""

import math
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from verifiers import rounds
from verifiers.code import check_code, converse_code, find_code, settle_code
from verifiers.data import check_prompt, read_file, read_sources, read_spec, solution_of
from verifiers.ifeval import check_ifeval, find_ifeval, settle_ifeval
from verifiers.jobs import Call
from verifiers.logic import check_logic, deliberate_logic, find_logic, settle_logic
from verifiers.math import check_math, deliberate_math, find_math, settle_math, unboxed
from verifiers.own import NotAReward, check_own, converse_own, load, reward_files
from verifiers.rounds import failures
from verifiers.sandbox import WeakSandbox
from verifiers.science import check_science, deliberate_science, settle_science
from verifiers.verdict import (
    CORRECT,
    CRASHED,
    MAX_ANSWER,
    NO_ANSWER,
    REASONS,
    UNPARSED,
    WRONG,
    Problem,
    Solved,
    Verdict,
    after_thinking,
    forward,
    shown,
)

__all__ = ["KINDS", "REASONS", "NotAReward", "Problem", "Solved", "Verdict", "WeakSandbox", "check_countdown",
           "failures", "find_code", "load_data", "load_problems", "load_rewards", "read_spec", "reward_files",
           "solution_of", "verify", "verify_batch"]  # fmt: skip

# ---------------------------------------------------------------------------- a kind in full: countdown

_PLAIN_OPERATORS = str.maketrans("×÷−", "*/-")
# A number has no leading zero, so that "05" is two tokens and cannot parse. Any other character is a token of its own.
_TOKEN = forward(r"0|[1-9][0-9]*+|\S")
_DIGITS = frozenset("0123456789")
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2}

MAX_NUMBERS = 32
MAX_NUMBER = 10**9


def check_countdown(reference: Any) -> tuple[list[int], int]:
    """Return (the numbers in ascending order, the target); ValueError unless the reference is as in the table."""
    if not isinstance(reference, dict) or reference.keys() != {"numbers", "target"}:
        raise ValueError(f'a countdown reference is {{"numbers": [...], "target": ...}}, got {shown(reference)}')
    numbers, target = reference["numbers"], reference["target"]
    if not isinstance(numbers, list) or not 1 <= len(numbers) <= MAX_NUMBERS:
        raise ValueError(f"countdown `numbers` must be a list of 1 to {MAX_NUMBERS}, got {shown(numbers)}")
    for number in numbers:
        if type(number) is not int or not 0 <= number < MAX_NUMBER:
            raise ValueError(f"countdown `numbers` must be integers from 0 to {MAX_NUMBER - 1}, got {shown(number)}")
    if type(target) is not int:
        raise ValueError(f"countdown `target` must be an integer, got {shown(target)}")
    return sorted(numbers), target


def settle_countdown(answer: str, gold: tuple[list[int], int]) -> Verdict:
    """Is the answer an expression over exactly the given numbers, each used once, with the target as its value?

    Form: whole numbers, + - * / (or − × ÷) between two values, parentheses, spaces. The classic rules hold: no sign
    before a value, no digits joined into new numbers, no powers, no implied products. An expression answers, an
    equation only states: "3*8 = 24" is unparsed. So is any prose around the expression outside of <answer> tags.
    Steps may be negative or fractional. A division by zero is a well-formed expression without a value: wrong.
    """
    numbers, target = gold
    if not answer:
        return NO_ANSWER
    postfix = _parse_expression(answer)
    if postfix is None:
        return UNPARSED
    # Before the value, which is thereby only ever computed over the few numbers of the problem.
    if sorted(item for item in postfix if type(item) is int) != numbers:
        return WRONG
    return CORRECT if _value(postfix) == target else WRONG


def find_countdown(response: str) -> str | None:
    text = after_thinking(response)
    if text is None:
        return None
    before, closed, _ = text.rpartition("</answer>")
    _, opened, tagged = before.rpartition("<answer>")
    return (tagged if closed and opened else text).strip()


def _parse_expression(text: str) -> list[int | str] | None:
    """Dijkstra's shunting yard: the expression in postfix order, or None where it is not one. No recursion."""
    if len(text) > MAX_ANSWER:
        return None
    postfix, pending, value_next = [], [], True
    for token in _TOKEN.findall(text.translate(_PLAIN_OPERATORS)):
        if value_next:
            if token[0] in _DIGITS:
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
        elif token != "(" and token in _PRECEDENCE:
            while pending and _PRECEDENCE[pending[-1]] >= _PRECEDENCE[token]:
                postfix.append(pending.pop())
            pending.append(token)
            value_next = True
        else:
            return None
    if value_next or "(" in pending:
        return None
    return postfix + pending[::-1]


def _divide(a: int | Fraction, b: int | Fraction) -> Fraction:
    return Fraction(a) / b


_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide}


def _value(postfix: list[int | str]) -> int | Fraction | None:
    """The exact value of a postfix expression, None if it divides by zero."""
    stack = []
    for item in postfix:
        if type(item) is int:
            stack.append(item)
        else:
            right, left = stack.pop(), stack.pop()
            if item == "/" and right == 0:
                return None
            stack.append(_APPLY[str(item)](left, right))
    return stack[0]


# --------------------------------------------------------------------------------------- all kinds


class Family(NamedTuple):
    """What a kind is made of: three functions, and a fourth, `deliberate` or `converse`, where a worker must decide.

    check       reference -> gold, what `settle` compares with; ValueError with a sentence if the reference is broken
    find        response -> the text in it that is judged, or None if there is none: that is "no_answer". Equal texts
                for the same problem are judged once, so it should leave out what does not count
    settle      (text, gold) -> the verdict, or None where a worker must decide. In the trainer's process: string
                methods and `forward` patterns only, nothing of the text is executed, and no number grows without bound
    deliberate  (text, reference) -> the verdict, for kinds that ask a worker. A module-level function, which takes what
                JSON can say, and imports `packages` itself when called. Its worker imports its module
    packages    what `deliberate` needs: imported in the worker beforehand
    evaluates   `deliberate` may run the text as code (`eval`): each call gets a fresh process, and a weak sandbox is
                refused as for code
    converse    (text, gold, all_or_nothing) -> for kinds whose job is no such call: a generator that yields a job for a
                worker, is sent its outcome, and returns the verdict
    """

    check: Callable[[Any], Any]
    find: Callable[[str], str | None]
    settle: Callable[[str, Any], Verdict | None]
    deliberate: Callable[[str, Any], Verdict] | None = None
    packages: tuple[str, ...] = ()
    evaluates: bool = False
    converse: Callable[[str, Any, bool], rounds.Conversation] | None = None


KINDS = {
    "countdown": Family(check_countdown, find_countdown, settle_countdown),
    "math": Family(check_math, find_math, settle_math, deliberate_math, ("math_verify",)),
    "science": Family(check_science, find_math, settle_science, deliberate_science, ("math_verify",)),
    "ifeval": Family(check_ifeval, find_ifeval, settle_ifeval),
    "logic": Family(check_logic, find_logic, settle_logic, deliberate_logic, ("reasoning_gym",), evaluates=True),
    "code": Family(check_code, find_code, settle_code, converse=converse_code),
}


def load_rewards(paths: Iterable[str | Path]) -> list[str]:
    """Add the kinds of these files to KINDS, and give their absolute paths: what another process, or a resumed run,
    needs to load them again.

    A file of one's own is Python with a function (response, reference) -> reward, and a line that names its kind:

        KINDS = {"my_kind": my_function}

    verifiers/own.py says what the function may return, how to check references too, and where it runs.
    Raises FileNotFoundError where there is no file; ValueError for one that cannot be imported, names no kind or one
    that exists already, or whose function does not take a response and a reference.
    """
    loaded = [str(Path(path).resolve()) for path in paths]
    for path in loaded:
        families = {}
        for kind, checked in load(path).items():
            converse = partial(converse_own, path, kind)
            # A file may be loaded again, changed or not.
            if kind in KINDS and getattr(KINDS[kind].converse, "args", None) != converse.args:
                raise ValueError(f"{path}: there is a kind {kind} already, choose another name than {', '.join(KINDS)}")
            families[kind] = Family(
                partial(check_own, path, kind, checked), str, lambda text, gold: None, converse=converse
            )
        KINDS.update(families)
    return loaded


# ---------------------------------------------------------------------------------------- verdicts


def verify(kind: str, response: str, reference: Any, **options: Any) -> Verdict:
    """The reward of one response: a batch of one, with the options of `verify_batch`.

    Never raises on what a model wrote, whatever the text.
    Raises ValueError on the caller's mistakes: an unknown kind, a broken reference, a response that is no text, a
    reward function of one's own that returns no reward.
    """
    _check_kind(kind)
    _check_response(response)
    KINDS[kind].check(reference)
    return verify_batch([(kind, response, reference)], **options)[0]


def verify_batch(
    items: Iterable[tuple[str, str, Any]],
    workers: int | None = None,
    timeout_s: float = 10.0,
    *,
    all_or_nothing: bool = False,
    allow_weak_sandbox: bool = False,
) -> list[Verdict]:
    """`verify` for many (kind, response, reference), in order. N rollouts repeat themselves: each distinct answer is
    judged once.

    Two items are the same if their kind and answer are equal and their reference is the same object, so hand in
    one reference per problem, as `load_problems` gives it. What can be settled here is; the rest goes to worker
    processes, which are started when first needed and kept: `workers` of them (None: one per core), each taking at
    most `timeout_s` seconds for one answer, all tests of a program together. `all_or_nothing`: what is right in part
    (tests passed, instructions followed, a score below 1) is wrong. `allow_weak_sandbox`: run model code even where
    the walls of verifiers/sandbox.py are low.
    Raises ValueError as `verify` does, with the position of the item; WeakSandbox where code may not be run.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"`workers` must be a positive integer, or None for a default, got {shown(workers)}")
    if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < math.inf:
        raise ValueError(f"`timeout_s` must be a positive number of seconds, got {timeout_s}")
    if not isinstance(items, Iterable):
        raise ValueError(f"`items` must be a list of (kind, response, reference), got {shown(items)}")

    # The list keeps every reference alive: the id of one that is gone could return on another.
    items = list(items)
    golds: dict[Any, Any] = {}
    judged: dict[Any, Verdict] = {}
    open_: dict[Any, rounds.Conversation] = {}
    keys = []
    for position, item in enumerate(items):
        kind, response, reference = _checked(position, item, golds)
        family, problem = KINDS[kind], (kind, id(reference))
        answer = family.find(response)
        key = problem, answer
        keys.append(key)
        if answer is None:
            judged[key] = NO_ANSWER
        elif key not in judged and key not in open_:
            verdict = family.settle(answer, golds[problem])
            if verdict is None:
                open_[key] = _conversation(family, answer, golds[problem], reference, all_or_nothing)
            else:
                judged[key] = verdict
    if open_:
        judged |= rounds.hold(open_, timeout_s, workers, allow_weak_sandbox)
    verdicts = [judged[key] for key in keys]
    return [WRONG if all_or_nothing and verdict.reason == "partial" else verdict for verdict in verdicts]


def _checked(position: int, item: Any, golds: dict[Any, Any]) -> tuple[str, str, Any]:
    """An item of a batch, with its reference's gold in `golds`; ValueError with its position where it is broken."""
    try:
        if not isinstance(item, (tuple, list)) or len(item) != 3:
            raise ValueError(f"must be (kind, response, reference), got {shown(item)}")
        kind, response, reference = item
        _check_kind(kind)
        _check_response(response)
        if (kind, id(reference)) not in golds:
            golds[kind, id(reference)] = KINDS[kind].check(reference)
    except ValueError as error:
        raise ValueError(f"item {position}: {error}") from None
    return kind, response, reference


def _check_kind(kind: Any) -> None:
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown kind {shown(kind)}: use one of {', '.join(KINDS)}, or name its file by --rewards")


def _check_response(response: Any) -> None:
    if not isinstance(response, str):
        raise ValueError(f"a response must be text, got {type(response).__name__}: decode its tokens first")


def _conversation(family: Family, answer: str, gold: Any, reference: Any, all_or_nothing: bool) -> rounds.Conversation:
    """The family's own, or one call of its `deliberate`. What that gives is checked: it has met the model's text."""
    if family.converse is not None:
        return (yield from family.converse(answer, gold, all_or_nothing))
    assert family.deliberate is not None, "a kind whose `settle` gives None has one of the two"
    function = f"{family.deliberate.__module__}:{family.deliberate.__name__}"
    outcome = yield Call(function, [answer, reference], family.packages, family.evaluates)
    if outcome.status != "ok":
        return Verdict(0.0, outcome.status)
    match outcome.value:
        case [int() | float() as reward, str() as reason] if 0 <= reward <= 1 and reason in REASONS:
            return Verdict(float(reward), reason)
    return CRASHED


# --------------------------------------------------------------------------------------- problems


def load_problems(path: str | Path) -> list[Problem]:
    """Read problems from JSON lines, in UTF-8: {"prompt": ..., "kind": ..., "reference": ...} and no other key but,
    for a `Solved` one, "solution": a response that is right.

    A prompt is text, or a list of chat messages {"role": ..., "content": ...}. Every reference is checked here, so
    that a broken one stops a run before it starts, instead of costing it rewards.
    Raises ValueError with the path and the line number for a broken line, ValueError if there is no problem in the
    file, FileNotFoundError if there is no file.
    """
    return read_file(Path(path), check_problem)


def load_data(specs: list[str], seed: int = 0) -> list[Problem]:
    """The problems of one epoch over several sources, FILE.jsonl, hf:NAME or gym:NAME, each with an optional :WEIGHT
    (the table that opens verifiers/data.py).

    Without weights: the sources one after the other. With weights every source is shuffled by `seed`, and then drawn
    from such that every stretch of the epoch holds the sources as they are weighted. An epoch is as long as it takes
    to see every problem once; smaller sources come round again meanwhile, reshuffled. Call it with another seed for
    another epoch. Every reference is checked, and so is every gold answer: one that the verifier would not accept
    from a policy is reported here, with its row, before a run starts.
    """
    return read_sources(specs, seed, check_problem)


def check_problem(problem: Problem) -> None:
    """ValueError for a broken prompt, kind or reference, or for a gold answer that the verifier would not accept."""
    check_prompt(problem.prompt)
    _check_kind(problem.kind)
    family = KINDS[problem.kind]
    gold = family.check(problem.reference)
    if problem.kind in ("math", "science"):
        answer = family.find(f"\\boxed{{{unboxed(problem.reference)}}}")
        verdict = NO_ANSWER if answer is None else family.settle(answer, gold)
        if verdict != CORRECT:
            called = verdict.reason if verdict else "open"
            raise ValueError(f"a response that gives this gold answer would be {called}: {shown(problem.reference)}")
