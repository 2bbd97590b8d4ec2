r"""BroRL, section 4.2: problems, and the rule-based rewards that make them verifiable.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The reward is a rule applied to text, never a model's opinion: R_c = 1 for a correct response, R_w = 0 for the rest.

    kind         reference                           the answer is
    countdown    {"numbers": [int, ...],             the response, or the last <answer>...</answer> in it: one
                  "target": int}                     expression of value `target` over exactly these numbers
    math         str: one number, LaTeX or plain     the last balanced \boxed{...}: one number equal to the reference

    reason       reward    meaning
    correct      1         the answer is right
    wrong        0         the answer was read, and it is another one
    unparsed     0         there is an answer, and it is not of the kind's form
    no_answer    0         there is no answer: nothing was written, or no box
    partial      between   some parts of the answer are right
    timeout      0         the judging took too long
    crashed      0         the judging process died
                           (the last three: kinds with parts, or with a process of their own; none above gives them)

Rules of both kinds. What stands before the last </think> is not an answer. A form that is not listed is "unparsed"
and is never rescued by a number elsewhere: with N = 512 rollouts a lenient rule will be found and then trained on.
All comparison is exact, over integers and fractions. Model text is hostile: every scan of it is linear, an answer
has a greatest length, and nothing of it reaches `eval`, recursion, or arithmetic that could grow without bound.

Simplified: "math" knows single numbers only (no sets, intervals, units, variables or mixed numbers); whether a
countdown target can be reached is not checked.

Reading order: the verdict, one section per kind, the dispatch, batches, loading.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Generator, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from sandbox import Call, Outcome, Pool, Program

# ---------------------------------------------------------------------------- problems and verdicts


class Problem(NamedTuple):
    """A prompt (text, or chat messages) and what its responses are checked against (see the table above)."""

    prompt: str | list[dict[str, str]]
    kind: str
    reference: Any


class Verdict(NamedTuple):
    """The reward in [0, 1], and one of the reasons of the table above: they are counted at every step."""

    reward: float
    reason: str


CORRECT = Verdict(1.0, "correct")
WRONG = Verdict(0.0, "wrong")
NO_ANSWER = Verdict(0.0, "no_answer")
UNPARSED = Verdict(0.0, "unparsed")

# In characters. Below the 4,300 digits at which Python's int() refuses, and far above any honest answer.
MAX_ANSWER = 1_000

_PLAIN_OPERATORS = str.maketrans("×÷−", "*/-")


def _after_thinking(response: str) -> str:
    return response.rpartition("</think>")[2]


# ---------------------------------------------------------------------------------------- countdown

# A number has no leading zero, so that "05" is two tokens and cannot parse. Any other character is a token of its own.
_TOKEN = re.compile(r"0|[1-9][0-9]*|\S")
_DIGITS = frozenset("0123456789")
_PRECEDENCE = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2}

MAX_NUMBERS = 32
MAX_NUMBER = 10**9


def check_countdown(reference: Any) -> tuple[list[int], int]:
    """Return (the numbers in ascending order, the target); ValueError unless the reference is as in the table."""
    if not isinstance(reference, dict) or reference.keys() != {"numbers", "target"}:
        raise ValueError(f'a countdown reference is {{"numbers": [...], "target": ...}}, got {_shown(reference)}')
    numbers, target = reference["numbers"], reference["target"]
    if not isinstance(numbers, list) or not 1 <= len(numbers) <= MAX_NUMBERS:
        raise ValueError(f"countdown `numbers` must be a list of 1 to {MAX_NUMBERS}, got {_shown(numbers)}")
    for number in numbers:
        if type(number) is not int or not 0 <= number < MAX_NUMBER:
            raise ValueError(f"countdown `numbers` must be integers from 0 to {MAX_NUMBER - 1}, got {_shown(number)}")
    if type(target) is not int:
        raise ValueError(f"countdown `target` must be an integer, got {_shown(target)}")
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


def find_countdown(response: str) -> str:
    text = _after_thinking(response)
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
            stack.append(_APPLY[item](left, right))
    return stack[0]


# --------------------------------------------------------------------------------------------- math

MAX_EXPONENT = 1_000
# The paper's longest response, 16,384 tokens, is below 100,000 characters: only runaway text is cut at this length.
MAX_BOX_DISTANCE = 1_000_000

_GROUPED = r"(?:[0-9]{1,3}(?:(?:,|\{,\}|,\\!|\\,)[0-9]{3})+|[0-9]+)"  # 1000 1,000 1{,}000 1,\!000 1\,000
_ARGUMENT = rf"(?:\{{\s*[+-]?\s*{_GROUPED}\s*\}}|[0-9])"  # of \frac: {12}, or one bare digit
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s*
    (?: \\[dtc]?frac\s*(?P<top>{_ARGUMENT})\s*(?P<bottom>{_ARGUMENT})
      | (?P<over>{_GROUPED})\s*/\s*(?P<under>{_GROUPED})
      | (?P<whole>{_GROUPED})?(?:\.(?P<decimals>[0-9]*))?
        (?: [eE](?P<e>[+-]?[0-9]+)
          | \s*(?:\*|\\times|\\cdot)\s*10\s*\^\s*(?P<power>[+-]?[0-9]+|\{{\s*[+-]?[0-9]+\s*\}}) )?
    )
    \s*(?P<percent>\\?%)?""",
    re.VERBOSE,
)
# Escaped braces and LaTeX's line break \\ are passed over, unless the break is a \boxed with its backslash doubled.
_BRACE = re.compile(r"(?P<box>\\boxed\s*\{)|\\[{}]|\\\\(?!boxed)|(?P<open>\{)|(?P<close>\})")


def check_math(reference: Any) -> Fraction:
    """Return the number that the reference names; ValueError unless it is text that `read_number` reads."""
    gold = read_number(reference) if isinstance(reference, str) else None
    if gold is None:
        raise ValueError(
            "a math reference is text naming one number, such as 12, -3/4, \\frac{1}{2}, 0.5, 1,000, 50% or 6.02e23, "
            f"without a box; got {_shown(reference)}"
        )
    return gold


def find_math(response: str) -> str | None:
    """What stands in the last balanced box."""
    return _last_box(_after_thinking(response))


def settle_math(answer: str, gold: Fraction) -> Verdict | None:
    """Is the answer exactly the gold number, in whatever form? See `read_number`."""
    number = read_number(answer)
    if number is None:
        return UNPARSED
    return CORRECT if number == gold else WRONG


def read_number(text: str) -> Fraction | None:
    r"""The exact value of one number, plain or LaTeX, or None if the text is anything else.

    Integers, decimals (0.5, .5, 5.), fractions of integers (3/4, \frac{3}{4}, \dfrac, \tfrac, and \frac34 of two
    digits), scientific notation (6.02e23, 6.02 \times 10^{23}) with |exponent| <= 1,000, each with an optional sign,
    with thousands in groups of three, and inside $...$ or not. Percent is part of the value: 50% = 0.5 = 1/2, and
    50 is not 50%. A mixed number is refused, as 1\frac{1}{2} also reads as a product. So is x/0.
    """
    text = text.strip()
    if len(text) > MAX_ANSWER:
        return None
    text = text.translate(_PLAIN_OPERATORS)
    if text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    over, under = match["top"] or match["over"], match["bottom"] or match["under"]
    value = _ratio(over, under) if over else _decimal(match)
    if value is None:
        return None
    if match["sign"] == "-":
        value = -value
    return value / 100 if match["percent"] else value


def _ratio(over: str, under: str) -> Fraction | None:
    denominator = _integer(under)
    return Fraction(_integer(over), denominator) if denominator else None


def _decimal(match: re.Match[str]) -> Fraction | None:
    decimals = match["decimals"] or ""
    digits = (match["whole"] or "") + decimals
    exponent = _integer(match["e"] or match["power"] or "0")
    # Without the bound, 1e999999999 would be computed to its last digit.
    if not digits or abs(exponent) > MAX_EXPONENT:
        return None
    return Fraction(_integer(digits)) * Fraction(10) ** (exponent - len(decimals))


def _integer(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text))


def _last_box(text: str) -> str | None:
    r"""What stands in the \boxed{...} that closes last, braces balanced; None if there is none.

    Of nested boxes that is the outer one. A box that is never closed, as in a truncated response, is no box.
    Only the last MAX_BOX_DISTANCE characters are read.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("\\boxed")
    if first < 0:
        return None
    opened, box = [], None
    for match in _BRACE.finditer(text, first):
        brace = match.lastgroup
        if brace == "box":
            opened.append(match.end())
        elif brace == "open":
            opened.append(None)
        elif brace == "close" and opened:
            start = opened.pop()
            if start is not None:
                box = start, match.start()
    return None if box is None else text[slice(*box)]


# ------------------------------------------------------------------------------------- the dispatch


class Family(NamedTuple):
    """What a kind is made of: four functions, of which the last two are for kinds that the parent cannot settle alone.

    check       reference -> gold, what `settle` compares with; ValueError with a sentence if the reference is broken
    find        response -> the text in it that is judged, or None if there is none: that is "no_answer". Equal texts
                for the same problem are judged once, so it should leave out what does not count
    settle      (text, gold) -> the verdict, or None where a worker must decide. In the trainer's process: its time is
                linear in the text, nothing of the text is executed, and no number grows without bound
    deliberate  (text, reference) -> [reward, reason], where `settle` gave None. In a worker of sandbox.py, which has
                imported `packages` before its walls went up: a module-level function of this file, that takes and
                gives what JSON can say, and imports those packages itself when called
    packages    the names of the packages that `deliberate` needs
    evaluates   `deliberate` may run the text as code (`eval`): each call gets a fresh process, and a weak sandbox is
                refused as for code
    converse    for kinds that need more than one call: (text, gold, all_or_nothing) -> a generator that yields jobs,
                is sent their outcomes, and returns the verdict
    """

    check: Callable[[Any], Any]
    find: Callable[[str], str | None]
    settle: Callable[[str, Any], Verdict | None]
    deliberate: Callable[[str, Any], list] | None = None
    packages: tuple[str, ...] = ()
    evaluates: bool = False
    converse: Callable[[str, Any, bool], Generator[Call | Program, Outcome, Verdict]] | None = None


KINDS = {
    "countdown": Family(check_countdown, find_countdown, settle_countdown),
    "math": Family(check_math, find_math, settle_math),
}


def verify(kind: str, response: str, reference: Any, **options: Any) -> Verdict:
    """The reward of one response: a batch of one, with the options of `verify_batch`.

    Never raises on what a model wrote, whatever the text.
    Raises ValueError on the caller's mistakes: an unknown kind, a broken reference, a response that is no text.
    """
    _check_kind(kind)
    _check_response(response)
    KINDS[kind].check(reference)
    return verify_batch([(kind, response, reference)], **options)[0]


def _check_kind(kind: Any) -> None:
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"unknown kind {_shown(kind)}: use one of {', '.join(KINDS)}")


def _check_response(response: Any) -> None:
    if not isinstance(response, str):
        raise ValueError(f"a response must be text, got {type(response).__name__}: decode its tokens first")


def _shown(value: Any) -> str:
    """The value as an error message shows it, cut to a readable length."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= 200 else text[:200] + "..."


# ------------------------------------------------------------------------------------------ batches


def verify_batch(
    items: Iterable[tuple[str, str, Any]], workers: int | None = None, timeout_s: float = 10.0
) -> list[Verdict]:
    """`verify` for many (kind, response, reference), in order. N rollouts repeat themselves: each distinct one is
    judged once.

    Two items are the same if their kind and answer are equal and their reference is the same object, so hand in
    one reference per problem, as `load_problems` gives it. `workers` and `timeout_s` are for kinds judged in worker
    processes: how many, and the seconds one judgement may take.
    Raises ValueError as `verify` does, with the position of the item.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"`workers` must be a positive integer, or None for a default, got {_shown(workers)}")
    if not 0 < timeout_s < math.inf:
        raise ValueError(f"`timeout_s` must be a positive number of seconds, got {timeout_s}")

    # The list keeps every reference alive: the id of one that is gone could return on another.
    items = list(items)
    golds, judged, keys = {}, {}, []
    for position, (kind, response, reference) in enumerate(items):
        try:
            _check_kind(kind)
            _check_response(response)
            problem = kind, id(reference)
            if problem not in golds:
                golds[problem] = KINDS[kind].check(reference)
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
        answer = KINDS[kind].find(response)
        key = problem, answer
        if key not in judged:
            judged[key] = NO_ANSWER if answer is None else KINDS[kind].settle(answer, golds[problem])
        keys.append(key)
    return [judged[key] for key in keys]


# ------------------------------------------------------------------------------------------ loading


def load_problems(path: str | Path) -> list[Problem]:
    """Read problems from JSON lines, in UTF-8: {"prompt": ..., "kind": ..., "reference": ...} and no other key.

    A prompt is text, or a list of chat messages {"role": ..., "content": ...}. Blank lines are skipped, but count.
    Every reference is checked here, so that a broken one stops a run before it starts, instead of costing it rewards.
    Raises ValueError with the path and the line number for a broken line, ValueError if there is no problem in the
    file, FileNotFoundError if there is no file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no problems at {path}: it must be a file of JSON lines, one problem a line")
    problems = []
    # Split as bytes: text lines would also end at U+2028, which JSON allows inside a string.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                problems.append(_read_problem(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    if not problems:
        raise ValueError(f"{path} holds no problem: write one JSON object a line")
    return problems


def _read_problem(line: bytes) -> Problem:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a line of JSON ({error}): write one whole object a line") from None
    if not isinstance(record, dict):
        raise ValueError(f"a problem is a JSON object, got {_shown(record)}")
    for name in Problem._fields:
        if name not in record:
            raise ValueError(f"`{name}` is missing: a problem has {', '.join(Problem._fields)}")
    unknown = [name for name in record if name not in Problem._fields]
    if unknown:
        raise ValueError(f"unknown keys {_shown(unknown)}: a problem has {', '.join(Problem._fields)} and no other")

    problem = Problem(**record)
    _check_prompt(problem.prompt)
    _check_kind(problem.kind)
    KINDS[problem.kind].check(problem.reference)
    return problem


def _check_prompt(prompt: Any) -> None:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ValueError("`prompt` is empty")
        return
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"`prompt` must be text or a list of chat messages, got {_shown(prompt)}")
    for message in prompt:
        if (
            not isinstance(message, dict)
            or message.keys() != {"role", "content"}
            or not all(isinstance(text, str) for text in message.values())
        ):
            raise ValueError(f'a chat message is {{"role": text, "content": text}}, got {_shown(message)}')
