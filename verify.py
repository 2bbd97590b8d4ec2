"""BroRL, section 4.2.1: problems, and the rule-based rewards that make them verifiable.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The paper names five families of problems and no rule of their rewards: the rules are ours. Each is applied to text,
never a model's opinion: R_c = 1 for a correct response, R_w = 0 for a wrong one.
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
    code         {"inputs": [...], "outputs": [...]} the last ```python block, or a response without fences in which a
                                                     line begins a program (`import`, `def`, ...): it prints each output
                                                     for its input. Texts, or lists of lines
    code         the same with "fn_name": str        the same block: a function, or a method of a class Solution, that
                                                     returns each output. Inputs are lists of arguments; both may be
                                                     JSON text
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

Rules of all kinds but your own. Text before the last </think>, or after a <think> that nothing closes, is no answer. A
form that is not listed is "unparsed", and no number elsewhere rescues it: with N = 512 rollouts the policy will find a
lenient rule and train on it. Numbers are compared exactly, as fractions; a decimal equals a number that is not whole
if the two are within 1e-6, relative.

Model text is hostile. In this process only string methods touch it, patterns that cannot backtrack (verdict.forward
refuses all others), and numbers of at most 1,000 digits. All else meets a clock in a worker process of sandbox/: LaTeX,
algebra, programs, the scorers of Reasoning Gym, and your own function.

Countdown stands here in full, as the example of a kind. The other kinds, and where problems come from, are in
verifiers/: each kind's file opens with the table of its rules.
Simplified: whether a countdown target can be reached is not checked. Each kind's file lists its own simplifications.
"""

import importlib
import operator
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from sandbox import WeakSandbox
from verifiers.data import check_prompt, read_file, read_sources, read_spec
from verifiers.verdict import (
    CORRECT,
    MAX_ANSWER,
    NO_ANSWER,
    REASONS,
    UNPARSED,
    WRONG,
    Kind,
    NotAReward,
    Problem,
    Solved,
    Verdict,
    after_thinking,
    failures,
    forward,
    reward_files,
    shown,
)

__all__ = ["KINDS", "REASONS", "Kind", "NotAReward", "Problem", "Solved", "Verdict", "WeakSandbox", "failures",
           "load_data", "load_problems", "load_rewards", "read_spec", "reward_files", "solution_of", "verify",
           "verify_batch"]  # fmt: skip

# ---------------------------------------------------------------------------- a kind in full: countdown

_PLAIN_OPERATORS = str.maketrans("×÷−", "*/-")
# A number has no leading zero, so that "05" is two tokens and cannot parse. Any other character is one token.
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


def judge_countdown(answer: str, gold: tuple[list[int], int]) -> Verdict:
    """Is the answer an expression over exactly the problem's numbers, each used once, with the target as its value?

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
    # Checked before the value, so that a value is computed over the few numbers of the problem only.
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

# Name -> the kind, or the module whose KIND it is. The module is imported when a problem has this kind.
KINDS: dict[str, Kind | str] = {
    "countdown": Kind(check_countdown, find_countdown, judge_countdown),
    "math": "verifiers.math",
    "science": "verifiers.science",
    "ifeval": "verifiers.ifeval",
    "logic": "verifiers.logic",
    "code": "verifiers.code",
}


def kind_of(name: Any) -> Kind:
    """The kind of this name; ValueError with the names that there are."""
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"unknown kind {shown(name)}: use one of {', '.join(KINDS)}, or name its file by --rewards")
    kind = KINDS[name]
    return importlib.import_module(kind).KIND if isinstance(kind, str) else kind


def load_rewards(paths: list[str] | list[Path]) -> list[str]:
    """Add the kinds of these files to KINDS. Returns the files' absolute paths, for other processes and resumed runs.

    Each is Python with a function (response, reference) -> reward, and a line that names its kind:

        KINDS = {"my_kind": my_function}

    verifiers/custom.py says what the function may return, how to check references too, and where it runs.
    Raises FileNotFoundError where there is no file; ValueError for a file that cannot be imported, names no kind, or
    names one that exists already.
    """
    if not paths:
        return []
    from verifiers.custom import load

    loaded = [str(Path(path).resolve()) for path in paths]
    for path in loaded:
        kinds = load(path)
        for name in kinds:
            # A file may be loaded again, changed or not.
            if name in KINDS and kind_of(name).file != path:
                raise ValueError(f"{path}: there is a kind {name} already, choose another name than {', '.join(KINDS)}")
        KINDS.update(kinds)
    return loaded


# ---------------------------------------------------------------------------------------- verdicts


def verify(kind: str, response: str, reference: Any, **options: Any) -> Verdict:
    """The reward of one response: a batch of one, with the options of `verify_batch`.

    Never raises on what a model wrote, whatever the text. Raises ValueError on the caller's mistakes: an unknown kind,
    a broken reference, a response that is no text, a reward function of your own that returns no reward.
    """
    return verify_batch([(kind, response, reference)], **options)[0]


def verify_batch(
    items: Iterable[tuple[str, str, Any]],
    workers: int | None = None,
    timeout_s: float = 10.0,
    *,
    all_or_nothing: bool = False,
    allow_weak_sandbox: bool = False,
) -> list[Verdict]:
    """`verify` for many (kind, response, reference), in order.

    N rollouts repeat themselves. Items with equal kind and answer and the same reference object are judged once, so
    hand in one reference per problem, as `load_problems` gives it. What this process cannot judge goes to worker
    processes, which are started when first needed and kept: `workers` of them (None: one per core), each taking at
    most `timeout_s` seconds for one answer, all tests of a program together. `all_or_nothing`: what is right in part
    (tests passed, instructions followed, a score below 1) is wrong. `allow_weak_sandbox`: run model code even where
    the walls of sandbox/ are low.
    Raises ValueError as `verify` does, with the position of the item; WeakSandbox where code may not be run.
    """
    items = list(items)  # keeps every reference alive: the id of a dead object could return on another
    golds: dict[Any, Any] = {}
    judged: dict[Any, Verdict] = {}
    pending: dict[Any, tuple] = {}
    keys = []
    for position, (name, response, reference) in enumerate(items):
        try:
            kind = kind_of(name)
            if (name, id(reference)) not in golds:
                golds[name, id(reference)] = kind.check(reference)
            if not isinstance(response, str):
                raise ValueError(f"a response must be text, got {shown(response)}: decode its tokens first")
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
        answer, gold = kind.find(response), golds[name, id(reference)]
        key = name, id(reference), answer
        keys.append(key)
        if answer is None:
            judged[key] = NO_ANSWER
        elif key not in judged and key not in pending:
            verdict = kind.judge_inline(answer, gold)
            if verdict is None:
                pending[key] = kind, answer, gold, reference, all_or_nothing
            else:
                judged[key] = verdict
    if pending:
        from verifiers.workers import judge_in_workers

        judged |= judge_in_workers(pending, timeout_s, workers, allow_weak_sandbox)
    verdicts = [judged[key] for key in keys]
    return [WRONG if all_or_nothing and verdict.reason == "partial" else verdict for verdict in verdicts]


# --------------------------------------------------------------------------------------- problems


def load_problems(path: str | Path) -> list[Problem]:
    """Read problems from JSON lines, in UTF-8: {"prompt": ..., "kind": ..., "reference": ...} and no other key but,
    for a `Solved` one, "solution": a response that is right. A prompt is text, or a list of chat messages
    {"role": ..., "content": ...}.

    Every problem is checked, so that a broken one stops a run before it starts.
    Raises ValueError with the path and the line number for a broken line, ValueError if there is no problem in the
    file, FileNotFoundError if there is no file.
    """
    return read_file(Path(path), check_problems)


def load_data(specs: list[str], seed: int = 0) -> list[Problem]:
    """The problems of one epoch over several sources, FILE.jsonl, hf:NAME or gym:NAME, each with an optional :WEIGHT
    (the table that opens verifiers/data.py).

    Without weights: the sources one after the other. With weights every source is shuffled by `seed`, and then drawn
    from such that every stretch of the epoch holds the sources as they are weighted. An epoch is as long as it takes
    to see every problem once; smaller sources come round again meanwhile, reshuffled. Call it with another seed for
    another epoch.
    """
    return read_sources(specs, seed, check_problems)


def check_problems(problems: list[Problem]) -> dict[int, str]:
    """Position -> what is broken: a prompt, a kind, a reference, or a gold answer that its own rule would refuse."""
    broken: dict[int, str] = {}
    verdicts: dict[Any, Verdict | None] = {}
    pending: dict[Any, tuple] = {}
    for position, problem in enumerate(problems):
        try:
            check_prompt(problem.prompt)
            kind = kind_of(problem.kind)
            gold, solution = kind.check(problem.reference), kind.solution(problem.reference)
        except ValueError as error:
            broken[position] = str(error)
            continue
        if solution is not None:
            answer, key = kind.find(solution), (problem.kind, position, solution)
            verdicts[key] = NO_ANSWER if answer is None else kind.judge_inline(answer, gold)
            if verdicts[key] is None:
                # No model wrote this text, so it needs neither a process of its own nor high walls.
                pending[key] = kind._replace(evaluates=False), answer, gold, problem.reference, True
    if pending:
        from verifiers.workers import judge_in_workers

        verdicts |= judge_in_workers(pending, 60.0, None, False)
    for (_, position, solution), verdict in verdicts.items():
        if verdict and verdict != CORRECT:
            broken[position] = f"a response with the gold answer would be {verdict.reason}: {shown(solution)}"
    return dict(sorted(broken.items()))


def solution_of(problem: Problem) -> str | None:
    """A response that is right: the problem's solution, else its gold answer where the kind reads one alone."""
    return problem.solution if isinstance(problem, Solved) else kind_of(problem.kind).solution(problem.reference)


from typing import NamedTuple as _N


class Response(_N):
    text: str
    n_tokens: int = 0
    truncated: bool = False


_vb = verify_batch


class V3(_N):
    reward: float
    correct: bool
    reason: str


Verdict = V3


def verify_batch(items, workers=None, timeout_s=10.0, *, allow_weak_sandbox=False):
    return [
        V3(v.reward, v.reason == "correct", v.reason)
        for v in _vb(
            [(k, getattr(r, "text", r), ref) for k, r, ref in items],
            workers,
            timeout_s,
            allow_weak_sandbox=allow_weak_sandbox,
        )
    ]
