r"""BroRL, section 4.2: problems, and the rule-based rewards that make them verifiable.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The reward is a rule applied to text, never a model's opinion: R_c = 1 for a correct response, R_w = 0 for the rest.

    kind         reference                           the answer is
    countdown    {"numbers": [int, ...],             the response, or the last <answer>...</answer> in it: one
                  "target": int}                     expression of value `target` over exactly these numbers
    math         str: one number, LaTeX or plain     the last balanced \boxed{...}: one number equal to the reference
    code         {"inputs": [...], "outputs": [...]} the last ```python block: a program that prints each output for its
                                                     input. Texts, or lists of lines
                 the same with "fn_name": str        ...: a function, or a method of a class Solution, that returns
                                                     each output. Inputs are lists of arguments, both may be JSON text
                 {"assert_test": str,                ...: a function of that name that passes the asserts
                  "entry_point": str}

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

import ast
import atexit
import bisect
import builtins
import json
import math
import operator
import os
import random
import re
import threading
from collections.abc import Callable, Generator, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from sandbox import Call, Outcome, Pool, Program, Test, Tested, decode, encode

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
CRASHED = Verdict(0.0, "crashed")
REASONS = ("correct", "wrong", "partial", "no_answer", "unparsed", "timeout", "crashed")

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


# --------------------------------------------------------------------------------------------- code

MAX_SOURCE = 200_000
# Of a check whose calls depend on what earlier calls returned: each round finds out what is called next.
MAX_ROUNDS = 8
MAX_CALLS = 1_000

_FENCE = re.compile(r"```[ \t]*(python3?|py)?[ \t]*\r?\n", re.IGNORECASE)
_FENCE_END = re.compile(r"^[ \t]*```", re.MULTILINE)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")
_NUMERAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
FLOAT_TOLERANCE = 1e-6


class Code(NamedTuple):
    """The gold of "code". Only `tests` reaches the process of the answer; `accepted` and `check` never do.

    accepted    per test: the lines of tokens that a program should print, or the values that a function may return
    check       for assert-style references, which have no tests of that kind: their source, or None
    """

    tests: list[Test]
    accepted: list[list]
    check: str | None
    entry_point: str | None


def check_code(reference: Any) -> Code:
    """Return the tests; ValueError unless the reference has one of the shapes of the table, and can be run as such."""
    keys = set(reference) if isinstance(reference, dict) else set()
    if keys == {"assert_test", "entry_point"}:
        check, entry_point = reference["assert_test"], reference["entry_point"]
        if not isinstance(check, str) or not isinstance(entry_point, str) or not entry_point.isidentifier():
            raise ValueError("a code reference's `assert_test` is source text and its `entry_point` a function's name")
        read_check(check, entry_point)
        return Code([], [], check, entry_point)
    if not keys or not {"inputs", "outputs"} <= keys <= {"inputs", "outputs", "fn_name"}:
        raise ValueError(
            'a code reference is {"inputs": [...], "outputs": [...]}, for functions with "fn_name", or '
            f'{{"assert_test": text, "entry_point": name}}; got {_shown(reference)}'
        )
    inputs, outputs, name = reference["inputs"], reference["outputs"], reference.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not 1 <= len(inputs) == len(outputs):
        raise ValueError("a code reference has as many `outputs` as `inputs`, as two lists, and at least one of each")
    if not name:
        tests = [_joined(given, "inputs") for given in inputs]
        return Code(tests, [_token_lines(_joined(output, "outputs")) for output in outputs], None, None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"`fn_name` must be a function's name, got {_shown(name)}")
    tests = [{"fn_name": name, "args": [encode(value) for value in _arguments(given)]} for given in inputs]
    return Code(tests, [_accepted_values(output) for output in outputs], None, name)


def _joined(text: Any, name: str) -> str:
    """Standard input or output, given as text or as a list of lines."""
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "\n".join(text)
    if not isinstance(text, str):
        raise ValueError(f"each of a program's `{name}` is text or a list of lines, got {_shown(text)}")
    return text


def _arguments(given: Any) -> list:
    """A function's arguments: a list, its JSON, or (LeetCode) one JSON value a line for each argument."""
    if isinstance(given, str):
        values = _json_or_none(given)
        if values is None:
            values = [[_json_or_none(line)] for line in given.strip().split("\n")]
            if [None] in values and "null" not in given:
                raise ValueError(f"a function's input is a JSON list of arguments, got {_shown(given)}")
            return [_with_integer_keys(value) for [value] in values]
        given = values if isinstance(values, list) else [values]
    if not isinstance(given, list):
        raise ValueError(f"a function's input is a JSON list of arguments, got {_shown(given)}")
    return [_with_integer_keys(value) for value in given]


def _with_integer_keys(value: Any) -> Any:
    """JSON has no integer keys; where all keys look like integers, they were."""
    if isinstance(value, dict) and value and all(re.fullmatch(r"-?[0-9]{1,18}", key) for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def _accepted_values(output: Any) -> list:
    """What a function may return: the value; parsed, if it is JSON text; the one in it, if it is a list of one."""
    values = [output]
    if isinstance(output, str):
        parsed = _json_or_none(output)
        values += [parsed] if parsed is not None or output.strip() == "null" else []
    return values + [value[0] for value in values if isinstance(value, list) and len(value) == 1]


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def find_code(response: str) -> str | None:
    """The last closed ```python block, or where none is marked so, the last closed block without a mark."""
    text = _after_thinking(response)
    ends = [match.start() for match in _FENCE_END.finditer(text)]
    fences = list(_FENCE.finditer(text))
    for fence in reversed(fences):
        if fence[1]:
            at = bisect.bisect_left(ends, fence.end())
            # A fence that closes in the middle of a line is met as well.
            end = ends[at] if at < len(ends) else text.rfind("```", fence.end())
            if end >= 0:
                return text[fence.end() : end]
    if any(fence[1] for fence in fences):
        return None
    # Without marks, opening and closing fences take turns.
    turns = [end for end in ends if not text.startswith("````", text.index("```", end))]
    if len(turns) < 2:
        return None
    opening, closing = turns[(len(turns) // 2) * 2 - 2 :][:2]
    start = _FENCE.match(text, text.index("```", opening))
    return text[start.end() : closing] if start and start.end() <= closing else None


def settle_code(source: str, gold: Code) -> Verdict | None:
    """Never right without being run."""
    if not source.strip():
        return NO_ANSWER
    return UNPARSED if len(source) > MAX_SOURCE else None


def converse_code(source: str, gold: Code, all_or_nothing: bool) -> Generator[Call | Program, Outcome, Verdict]:
    """Run the program on each test and compare here: the reward is the fraction of tests passed.

    A program passes by what it prints, if it then ends without an error; a function by what it returns. With
    `all_or_nothing` the reward is 1 or 0, and the first failure ends the testing.
    """
    if gold.check is not None:
        return (yield from _converse_check(source, gold, all_or_nothing))

    def go_on(index: int, tested: Tested) -> bool:
        return tested.status != "unparsed" and not (all_or_nothing and not _passes(gold, index, tested))

    outcome = yield Program(source, gold.tests, go_on=go_on)
    if outcome.status != "ok":
        return Verdict(0.0, outcome.status)
    passed = sum(_passes(gold, index, tested) for index, tested in enumerate(outcome.value))
    return _code_verdict(passed, len(gold.tests), {tested.status for tested in outcome.value}, all_or_nothing)


def _code_verdict(passed: int, total: int, statuses: set[str], all_or_nothing: bool) -> Verdict:
    if passed == total:
        return CORRECT
    if passed and not all_or_nothing:
        return Verdict(passed / total, "partial")
    return Verdict(0.0, next((status for status in ("unparsed", "timeout", "crashed") if status in statuses), "wrong"))


def _passes(gold: Code, index: int, tested: Tested) -> bool:
    if tested.status != "ok":
        return False
    if gold.entry_point is None:
        return _same_output(_token_lines(tested.value), gold.accepted[index])
    value = _json_or_none(tested.value)
    return any(_same_value(value, accepted) for accepted in gold.accepted[index])


def _token_lines(text: str) -> list[list[str]]:
    """How a judge reads output: lines of words, whatever stands between them; no empty lines."""
    return [words for line in text.split("\n") if (words := line.split())]


def _same_output(lines: list[list[str]], expected: list[list[str]]) -> bool:
    return len(lines) == len(expected) and all(
        len(words) == len(others) and all(map(_same_word, words, others))
        for words, others in zip(lines, expected, strict=True)
    )


def _same_word(word: str, expected: str) -> bool:
    """The same text; where a float is expected, any numeral of about the same value."""
    if word == expected:
        return True
    if not _FLOAT.fullmatch(expected) or not _NUMERAL.fullmatch(word):
        return False
    return _close(float(word), float(expected))


def _close(value: float, expected: float) -> bool:
    try:
        return math.isclose(value, expected, rel_tol=FLOAT_TOLERANCE, abs_tol=FLOAT_TOLERANCE)
    except OverflowError:
        return False


def _same_value(value: Any, expected: Any) -> bool:
    """Is an encoded value equal as JSON sees it: a tuple is a list, keys are text? Floats about equal where a float is
    expected. Only looks where something is expected, and puts nothing into sets: their hashes can be made to collide.
    """
    tag, content = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", value)
    if isinstance(expected, list):
        return (
            tag in ("", "tuple")
            and isinstance(content, list)
            and len(content) == len(expected)
            and all(map(_same_value, content, expected))
        )
    if isinstance(expected, dict):
        return tag == "dict" and _same_items(content, expected)
    if tag == "hex" and isinstance(content, str) and re.fullmatch("-?0x[0-9a-f]+", content):
        tag, content = "", int(content, 16)
    if tag or isinstance(content, list | dict):
        return False
    if isinstance(expected, float) and isinstance(content, int | float):
        return _close(content, expected) or (content != content and expected != expected)
    return content == expected


def _same_items(pairs: Any, expected: dict[str, Any]) -> bool:
    if not isinstance(pairs, list) or len(pairs) != len(expected):
        return False
    named = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], list | dict):
            return False
        named[pair[0] if isinstance(pair[0], str) else json.dumps(pair[0])] = pair[1]
    return named.keys() == expected.keys() and all(_same_value(named[key], expected[key]) for key in expected)


# Assert-style checks
#
# The text of such a check holds the expected values, so it never runs where the answer does. It runs in a worker of its
# own (`referee`), where `candidate` only looks up what the answer returned for these arguments. What it does not find
# there it reports, the answer is run on it, and the check runs again: twice in all, unless a call's arguments depend
# on what another call returned.


def read_check(check: str, entry_point: str) -> list[tuple[ast.stmt, bool]]:
    """The statements of a check in order, each with whether it is a test: those with an assert in them are.

    The body of `def check(candidate)` is taken apart, so that each of its asserts counts; a call of `check` is left
    out, and functions named test_... without arguments are called. ValueError for a check that this cannot do.
    """
    try:
        tree = ast.parse(check)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"`assert_test` is not Python: {_shown(str(error))}") from None
    statements: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            for argument in node.args.args:
                statements += ast.parse(f"{argument.arg} = {entry_point}").body
            statements += node.body
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not node.args.args:
            statements += [node, *ast.parse(f"{node.name}()").body]
        elif not _calls(node, "check") and not (isinstance(node, ast.ImportFrom) and node.module == "solution"):
            statements.append(node)
    functions = {node.name for node in statements if isinstance(node, ast.FunctionDef)}
    tests = [(node, _is_test(node, functions)) for node in statements]
    _refuse_check(statements, tests, entry_point)
    return tests


def _calls(node: ast.stmt, name: str) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name


def _is_test(node: ast.stmt, functions: set[str]) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return False
    return any(isinstance(part, ast.Assert) for part in ast.walk(node)) or any(_calls(node, name) for name in functions)


def _refuse_check(statements: list[ast.stmt], tests: list[tuple[ast.stmt, bool]], entry_point: str) -> None:
    if not any(is_test for _, is_test in tests):
        raise ValueError("`assert_test` asserts nothing: write asserts, alone or in `def check(candidate)`")
    parts = [part for node in statements for part in ast.walk(node)]
    if any(isinstance(node, ast.Return) for node in statements):
        raise ValueError("`assert_test` returns in the middle of its check: it cannot be taken apart into tests")
    if any(_hands_over_a_function(part, entry_point) for part in parts):
        raise ValueError("`assert_test` hands a function to the answer: only plain values reach its process")
    known = {entry_point, *dir(builtins), "__name__"}
    for part in parts:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            known.add(part.id)
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            known.add(part.name)
        elif isinstance(part, ast.arg):
            known.add(part.arg)
        elif isinstance(part, ast.ExceptHandler) and part.name:
            known.add(part.name)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            known.update((alias.asname or alias.name).partition(".")[0] for alias in part.names)
    unknown = {part.id for part in parts if isinstance(part, ast.Name)} - known
    if unknown and "*" not in known:
        raise ValueError(
            f"`assert_test` uses {', '.join(sorted(unknown))}, which only the answer could define: then the answer "
            "would decide whether it is right. Write the definition into the check"
        )


def _hands_over_a_function(part: ast.AST, entry_point: str) -> bool:
    called = part.func.id if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) else None
    return called in (entry_point, "candidate") and any(isinstance(argument, ast.Lambda) for argument in part.args)


class _Unknown(BaseException):
    """A call that the answer has not been run on yet. Not an Exception: a check may catch those."""


class _Enough(BaseException):
    """More unknown calls than one round takes."""


def referee(check: str, entry_point: str, known: list[list]) -> dict[str, Any]:
    """Run a check against known results (arguments, [status, value as JSON]), in a worker. What it `needs` to know, or
    if that is nothing, how many of its tests passed. Each test stands alone: one that fails does not end the rest."""
    results, needs = dict(known), {}

    def candidate(*args: Any, **kwargs: Any) -> Any:
        key = json.dumps([[encode(value) for value in args], {name: encode(value) for name, value in kwargs.items()}])
        if key not in results:
            needs[key] = None
            if len(needs) >= MAX_CALLS:
                raise _Enough
            raise _Unknown
        status, value = results[key]
        if status == "ok":
            return decode(json.loads(value))
        error = getattr(builtins, value or "", None)
        raise error if isinstance(error, type) and issubclass(error, Exception) else Exception(value)

    names = {"__name__": "check", entry_point: candidate, "_Unknown": _Unknown}
    random.seed(0)
    passed = []
    for node, is_test in read_check(check, entry_point):
        # Only where something is still unknown are the asserts of a loop made to go on without it.
        ok = False
        try:
            module = ast.fix_missing_locations(ast.Module([_Patient().visit(node)], []))
            exec(compile(module, "check", "exec"), names)
            ok = True
        except _Enough:
            break
        except (Exception, _Unknown, SystemExit):
            pass
        if is_test:
            passed.append(ok)
    return {"passed": sum(passed), "total": len(passed), "needs": list(needs)}


class _Patient(ast.NodeTransformer):
    """Lets a block go on after a statement whose value is unknown, so that one round finds as many calls as it can."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [self.wrap(statement) for statement in block])
        return node

    def wrap(self, statement: ast.stmt) -> ast.stmt:
        if not isinstance(statement, ast.Assert | ast.Assign | ast.Expr):
            return statement
        unknown = ast.ExceptHandler(ast.Name("_Unknown", ast.Load()), None, [ast.Pass()])
        return ast.Try([statement], [unknown], [], [])


def _converse_check(source: str, gold: Code, all_or_nothing: bool) -> Generator[Call | Program, Outcome, Verdict]:
    known: dict[str, list] = {}
    statuses: set[str] = set()
    for _ in range(MAX_ROUNDS):
        outcome = yield Call("referee", [gold.check, gold.entry_point, list(known.items())], evaluates=True)
        if outcome.status != "ok":
            return Verdict(0.0, outcome.status)
        needs = outcome.value["needs"]
        if not needs:
            return _code_verdict(outcome.value["passed"], outcome.value["total"], statuses, all_or_nothing)
        if "timeout" in statuses:
            # Its time is up: what it has not been run on, it has not answered.
            known |= {need: ["timeout", None] for need in needs}
            continue
        calls = [dict(zip(("args", "kwargs"), json.loads(need), strict=True)) for need in needs]
        tests = [{"fn_name": gold.entry_point} | call for call in calls]
        outcome = yield Program(source, tests, go_on=lambda _, tested: tested.status != "unparsed")
        if outcome.status != "ok":
            return Verdict(0.0, outcome.status)
        statuses |= {tested.status for tested in outcome.value}
        if "unparsed" in statuses:
            return UNPARSED
        known |= {need: list(tested) for need, tested in zip(needs, outcome.value, strict=True)}
    return Verdict(0.0, "timeout")


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
    "code": Family(check_code, find_code, settle_code, converse=converse_code),
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
    processes (sandbox.py), which are started when first needed and kept: `workers` of them (None: one per core), each
    taking at most `timeout_s` seconds for one answer, all tests of a program together. `all_or_nothing`: code is
    rewarded only if it passes every test. `allow_weak_sandbox`: run model code even where sandbox.py's walls are low.
    Raises ValueError as `verify` does, with the position of the item; WeakSandbox where code may not be run.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"`workers` must be a positive integer, or None for a default, got {_shown(workers)}")
    if not 0 < timeout_s < math.inf:
        raise ValueError(f"`timeout_s` must be a positive number of seconds, got {timeout_s}")

    # The list keeps every reference alive: the id of one that is gone could return on another.
    items = list(items)
    golds, judged, open_, keys = {}, {}, {}, []
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
        keys.append(key)
        if key not in judged:
            judged[key] = NO_ANSWER if answer is None else KINDS[kind].settle(answer, golds[problem])
            if judged[key] is None:
                open_[key] = _conversation(KINDS[kind], answer, golds[problem], reference, all_or_nothing)
    if open_:
        with _pool_lock:
            judged |= _converse_all(open_, _the_pool(workers, allow_weak_sandbox), timeout_s)
    return [judged[key] for key in keys]


Conversation = Generator[Call | Program, Outcome, Verdict]


def _conversation(family: Family, answer: str, gold: Any, reference: Any, all_or_nothing: bool) -> Conversation:
    if family.converse is not None:
        return family.converse(answer, gold, all_or_nothing)
    return _deliberation(family, answer, reference)


def _deliberation(family: Family, answer: str, reference: Any) -> Conversation:
    """One call of the family's `deliberate`. What it gives is checked: it has met the model's text."""
    outcome = yield Call(family.deliberate.__name__, [answer, reference], family.packages, family.evaluates)
    if outcome.status != "ok":
        return Verdict(0.0, outcome.status)
    match outcome.value:
        case [int() | float() as reward, str() as reason] if 0 <= reward <= 1 and reason in REASONS:
            return Verdict(float(reward), reason)
    return CRASHED


def _converse_all(conversations: dict[Any, Conversation], pool: Pool, timeout_s: float) -> dict[Any, Verdict]:
    """All conversations in rounds: what each wants to know next goes to the pool, and what two want to know once."""
    verdicts: dict[Any, Verdict] = {}
    waiting = {key: next(conversation) for key, conversation in conversations.items()}
    while waiting:
        askers: dict[Any, list] = {}
        for key, job in waiting.items():
            same = json.dumps([job.function, job.args]) if isinstance(job, Call) else id(job)
            askers.setdefault(same, []).append(key)
        groups = list(askers.values())
        jobs, waiting = [waiting[group[0]] for group in groups], {}
        for index, outcome in pool.run(jobs, timeout_s):
            for key in groups[index]:
                try:
                    waiting[key] = conversations[key].send(outcome)
                except StopIteration as stop:
                    verdicts[key] = stop.value
    return verdicts


_pool: Pool | None = None
_pool_lock = threading.Lock()


def _the_pool(workers: int | None, allow_weak: bool) -> Pool:
    """The one pool of this process, made when first needed. A fork of the process makes its own."""
    global _pool
    if _pool is not None and _pool.owner == os.getpid() and workers in (None, _pool.workers):
        _pool.allow_weak = allow_weak
        return _pool
    if _pool is not None:
        _pool.close()
    _pool = Pool(workers, allow_weak)
    atexit.register(_pool.close)
    return _pool


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
