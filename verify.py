r"""BroRL, section 4.2: problems, and the rule-based rewards that make them verifiable.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
The reward is a rule applied to text, never a model's opinion: R_c = 1 for a correct response, R_w = 0 for the rest.

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
                 {"assert_test": str,                ...: a function of that name that passes the asserts
                  "entry_point": str}

    reason       reward    meaning
    correct      1         the answer is right
    wrong        0         the answer was read, and it is another one
    unparsed     0         there is an answer, and it is not of the kind's form
    no_answer    0         there is no answer: nothing was written, no box, no program
    partial      between   some parts of the answer are right
    timeout      0         the judging took too long
    crashed      0         the judging process died
                           (the last three: kinds with parts, or with a worker process)

Rules of all kinds. What stands before the last </think> is not an answer. A form that is not listed is "unparsed"
and is never rescued by a number elsewhere: with N = 512 rollouts a lenient rule will be found and then trained on.
Numbers are compared exactly, as fractions; a decimal may stand for a number that is not whole, to a relative 1e-6.
Model text is hostile. In this process every scan of it is linear, an answer has a greatest length, and nothing of it
reaches `eval`, unbounded recursion, or arithmetic that could grow without bound. What takes more than that, which is
algebra, programs and the scorers of Reasoning Gym, goes on in the worker processes of sandbox.py.

Simplified: inequalities are read for one variable, not solved; degrees are radians only in a sine or its like;
temperatures in different scales are different; whether a countdown target can be reached is not checked. Each section
says its own.

Reading order: the verdict, one section per kind, the dispatch, batches, loading.
"""

import ast
import atexit
import bisect
import builtins
import dataclasses
import functools
import importlib.util
import io
import itertools
import json
import logging
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

from sandbox import Call, Outcome, Pool, Program, Result, Test, decode, default_workers, encode

LOG = logging.getLogger(__name__)

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
MAX_DEPTH = 16
MAX_PARTS = 64
# A decimal stands for a number that is not whole if they agree to this share of it: 0.333333 for 1/3.
TOLERANCE = Fraction(1, 10**6)

_GROUPED = r"(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:\ [0-9]{3})+)|[0-9]+)"  # 1000 1,000 1 000
_ARGUMENT = rf"(?:\{{\s*[+-]?\s*{_GROUPED}\s*\}}|[0-9])"  # of \frac: {12}, or one bare digit
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s*
    (?: (?:(?P<mixed>[0-9]+)\s*)?\\frac\s*(?P<top>{_ARGUMENT})\s*(?P<bottom>{_ARGUMENT})
      | (?:(?P<plain_mixed>[0-9]+)\ +)?(?P<over>{_GROUPED})\s*/\s*(?P<under>{_GROUPED})
      | (?P<lone>10)\s*\^\s*(?P<lone_power>[+-]?[0-9]|\{{\s*[+-]?[0-9]+\s*\}})
      | (?P<whole>{_GROUPED})?(?:(?P<point>\.)(?P<decimals>[0-9]*)(?:\\overline\s*\{{(?P<again>[0-9]+)\}})?)?
        (?: [eE](?P<e>[+-]?[0-9]+)
          | \s*(?:\*|x|\\times|\\cdot)\s*10\s*\^\s*(?P<power>[+-]?[0-9]+|\{{\s*[+-]?[0-9]+\s*\}}) )?
    )
    \s*(?P<percent>%)?""",
    re.VERBOSE,
)
# Escaped braces and LaTeX's line break \\ are passed over, unless the break is a \boxed with its backslash doubled.
_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\[{}]|\\\\(?!boxed)|(?P<open>\{)|(?P<close>\})")
_JOINED = re.compile(r"(?:[\s$.]|\\[()\[\],;]|\\q?quad)*(?:,|;|\\text\s*\{\s*,?\s*(?:and|or)\s*\}|,?\s*\b(?:and|or)\b)+"
                     r"(?:[\s$]|\\[()\[\],;]|\\q?quad)*(?:[A-Za-z][A-Za-z0-9_{}']*\s*=\s*)?")  # fmt: skip
_PERCENT_BEHIND = re.compile(r"[\s$]{0,8}(?:\\?%|(?:percent|pct)\b)")


class Form(NamedTuple):
    r"""A math answer as it was read.

    kind         value                  mark
    number       Fraction, or infinity  its unit
    expression   -                      its unit        2\pi, x^2+1, \sqrt{5}
    text         its words                              Evelyn
    option       its letter                             \text{(C)}
    base         its digits             the base        204_5
    tuple        (Form, ...)            the brackets    (1,2), [0,1), a matrix and its rows
    list         (Form, ...)            "" or "{}"      1,2 and {1,2}, x<1 or x>3, unions: the order does not count
    chain        (Form, ...)            -               2+3=5: all of them are claimed
    relation     -                      -               x-2y=3, y\ge x
    """

    kind: str
    text: str
    value: Any = None
    mark: str = ""
    name: str = ""  # x, of x=5
    source: str = ""  # x=5
    rounded: bool = False  # written as a decimal


def check_math(reference: Any) -> Form:
    """Return the reference as it reads; ValueError unless it is text that `read_math` reads."""
    gold = read_math(_unboxed(reference)) if isinstance(reference, str) else None
    if gold is None:
        raise ValueError(
            "a math reference is the text of one answer, such as 12, \\frac{1}{2}, (1,2], x^2+1 or \\text{(C)}, "
            f"of at most {MAX_ANSWER} characters; got {_shown(reference)}"
        )
    return gold


def _unboxed(reference: str) -> str:
    """A gold answer that comes in a box, or in a sentence with one, is what the box holds."""
    return _last_box(reference) or reference


def find_math(response: str) -> str | None:
    """What stands in the last balanced box, joined with the boxes that an "and" or a comma ties to it."""
    return _last_box(_after_thinking(response))


def settle_math(answer: str, gold: Form, science: bool = False) -> Verdict | None:
    r"""Is the answer the gold? None where that takes algebra. The rules, for all that follows:

    Forms   What is drawn alike is read alike: spacing, \left, \dfrac, \mathrm, $, a full stop. x=5 and f(x)=5 answer
            for 5, 5=5 does, 3=5 does not: every side that is no name must be right. 50% is 0.5 and never 50.
            3\frac12 is 7/2. A list has no order, and names instead of one where both sides have them; tuples,
            intervals and matrices have both order and brackets. \pm is two answers. x>5 is (5,\infty).
    Numbers Exact fractions. A decimal may stand for a number that is not whole: see TOLERANCE, which is relative.
    Units   One that is missing is understood. Two that are known must be of one dimension, and are converted.
    Text    Letter case, articles and end marks do not count. An option is its letter: C, (C), C. and (C) 12.
    """
    form = read_math(answer)
    if form is None:
        return UNPARSED
    same = _same(gold, form, _undecided, science)
    if same is None:
        return None if _tame(form.text) else UNPARSED
    return CORRECT if same else _wrong(gold, form)


def deliberate_math(answer: str, reference: str) -> list:
    """`settle_math`, with algebra where it takes algebra. In a worker: math-verify can hang on what a model wrote."""
    return _deliberate(answer, reference, False)


def _deliberate(answer: str, reference: str, science: bool) -> list:
    gold, form = check_math(reference), read_math(answer)
    try:
        same = form is not None and _same(gold, form, _algebra, science)
    except ArithmeticError:
        return list(UNPARSED)
    return list(CORRECT if same else _wrong(gold, form))


def _wrong(gold: Form, answer: Form) -> Verdict:
    return UNPARSED if answer.kind == "text" and gold.kind not in ("text", "option", "list") else WRONG


_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_FUNCTION = "sin|cos|tan|cot|arcsin|arccos|arctan|ln|log|exp|pi"
# What is drawn alike. In this order; `text` is at most MAX_ANSWER long, so none of these can take long.
_TIDY = [(re.compile(pattern), new) for pattern, new in [
    (r"[\s\u00a0]+", " "),
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: f"^{{{found[0].translate(_RAISED)}}}"),
    (r"\\var(epsilon|theta|phi|rho)(?![A-Za-z])", r"\\\1"),
    (r"\\AA(?![A-Za-z])", "Å"),
    (r"\\\\\[[0-9.]+ ?[a-z]{2}\]", r"\\\\\\\\"),
    (r"\\prime(?![A-Za-z])", "'"),
    (r"\^\s*(?:\{\s*('[' ]*)\}|(?='))", r"\1"),
    (r"\\f?boxed\s*\{([^{}]*)\}", r"\1"),
    (r"\\(?:left|right|middle|[bB]igg?[lr]?|displaystyle|textstyle|limits|rm|bf|it)(?![A-Za-z])|\\right\.", ""),
    (r"(?<=[0-9])(?:\{,\}|,\\! ?|\\,)(?=[0-9]{3}(?![0-9]))", ""),
    (r"(?<!\\)\\[,;:> !]|~|\\q?quad(?=x)|\\(?:q?quad|enspace|thinspace)(?![A-Za-z])", " "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\{\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*\}", r"\\binom{\1}{\2}"),
    (r"\\(?:mathbf|boldsymbol|bm)\s*\{\s*([A-Za-z])\s*\}|\\(?:hat|vec)\s*\{\s*([ijk])\s*\}", r"\1\2"),
    (r"\\(?:math(?:rm|bf|it|sf|tt|cal)|text(?:bf|it|rm|sf|tt|normal|up)|mbox|hbox|emph|operatorname\*?|boldsymbol)"
     r"(?=\s*\{)", r"\\text"),
    (r"\\\$|\\[()]|\\\[|\\\]|\$|[€£¥₹]|\\(?:pounds|euro)(?![A-Za-z])", ""),
    (r"\\%|\\text\s*\{\s*\\?(?:%|percent(?:age)?|pct)\s*\}|(?<=[0-9}])\s*\b(?:percent(?:age)?|pct)\b", "%"),
    (r"\\text\s*\{\s*(hundred|thousand|million|billion|trillion)\b", r" \1 \\text{"),
    (r"\\text\s*\{\s*\}", ""),
    (r"(?<=\S)[\s,]*(?:(?:\\text\s*\{\s*,?\s*|\b)for (?:all|any|every|each)\b|\\forall(?![A-Za-z]))[^=;]*$", ""),
    (r"(?<=[^\s,({])[\s,]*(\()?\s*(?:\\text\s*\{\s*(?:for|where|with)\s*\}\s*)?"
     r"([A-Za-z])\s*\\in\s*\\(?:mathbb|Bbb)\s*\{?\s*([NZQ])\s*\}?(?(1)\s*\))\s*$", r", \2\\in\\mathbb{\3}"),
    (rf"\\text\s*\{{\s*({_FUNCTION})\s*\}}|(?<![A-Za-z\\])({_FUNCTION})(?![A-Za-z])", r"\\\1\2 "),
    (r"\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\text\s*\{\s*infinity\s*\}|\binfinity\b", r"\\infty "),
    (r"\\text\s*\{([ei])\}", r"\1"),
    (r"(\.[0-9]{0,12}?)([0-9]{1,8}?)\2+(?:\.{3}|…|\\[lc]?dots)", r"\1\\overline{\2}"),
    (r"(?<=[0-9.])\\(?:dot|bar)\s*\{", r"\\overline{"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?(?![A-Za-z])|°", r"\\text{ degree}"),
    (r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s*\^\s*\{?[0-9]\}?)?)\s*([({])?\s*([0-9.]+)\s*\\text\{ degree\}(?(2)\s*[)}])",
     r"\1(\\frac{\3\\pi}{180})"),
    (r"(?<=[0-9])\s*(?:\\text\s*\{\s*to\s*\}|to)\s*(?=[0-9])", ":"),
    (r"(?i)^\s*(?:\\text\s*\{)?\s*(?:there (?:is|are|exists?) )?(?:no solutions?|(?:the )?empty set)[\s.}]*$",
     r"\\{\\}"),
    (r"^(\s*(?:\\text\s*\{\s*)?)(?:[Oo]ption|[Cc]hoice)\s+(?=\(?[A-J]\b)", r"\1"),
    (r"^(\s*(?:\\text\s*\{\s*)?)([A-J])\)", r"\1(\2)"),
    (r"\\pmod\s*([0-9A-Za-z])|\(\s*(?:\\b?mod|\\text\s*\{\s*mod\s*\}|mod)\s*([0-9A-Za-z]+)\s*\)", r"\\pmod{\1\2}"),
    (r"\\text\s*\{\s*(?:,?\s*and|,?\s*or|,)\s*\}|,?\s*(?:(?<![A-Za-z])|(?<=\W))\b(?:and|or)\b(?=\s|\()|(?<=\))or(?=\()",
     ","),
    (r"\\leq(?:slant)?(?![A-Za-z])|<=|≤", r"\\le "),
    (r"\\geq(?:slant)?(?![A-Za-z])|>=|≥", r"\\ge "),
    (r"\\neq?(?![A-Za-z])|!=|≠", r"\\ne "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:approx|simeq|sim)(?![A-Za-z])|≈", r"\\approx "),
    (r"\\(?:emptyset|varnothing)(?![A-Za-z])|∅", r"\\{\\}"),
    (r"\\langle(?![A-Za-z])", "("),
    (r"\\rangle(?![A-Za-z])", ")"),
    (r"\\l[vV]ert(?![A-Za-z])|\\r[vV]ert(?![A-Za-z])|\\[vm]id(?![A-Za-z])", "|"),
    (r"\\(?:mathbb|Bbb)\s*\{?\s*R\s*\}?|ℝ", r"(-\\infty,\\infty)"),
    (r"(?<![0-9A-Za-z.}])\+\s*\\infty", r"\\infty"),
]]  # fmt: skip
_DRAWN = str.maketrans({"−": "-", "–": "-", "×": "\\times ", "÷": "/", "·": "\\cdot ", "⋅": "\\cdot ", "π": "\\pi ",
                        "∞": "\\infty ", "√": "\\sqrt ", "±": "\\pm ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ",
                        "µ": "μ", "\u2009": " ", "\u202f": " ", "′": "'",
                        "℃": "°C", "½": "\\frac{1}{2}", "¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}"})  # fmt: skip
_SYMBOL = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENS = frozenset(["(", "[", "{", "\\{", "\\begin", "\\lfloor", "\\lceil"])
_CLOSES = frozenset([")", "]", "}", "\\}", "\\end", "\\rfloor", "\\rceil"])
_RELATIONS = frozenset(["=", "<", ">", "\\le", "\\ge", "\\ne", "\\approx", "\\in", "\\equiv"])
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


def read_math(text: str) -> Form | None:
    """The answer that a text is; None if there is none, or it is too long, too deep or not balanced."""
    if len(text) > MAX_ANSWER:
        return None
    text = text.translate(_DRAWN)
    if "\\begin" not in text:
        text = text.replace("\\\\", "\\")
    for pattern, new in _TIDY:
        text = pattern.sub(new, text)
    depth = deepest = 0
    for symbol in _SYMBOL.findall(text):
        depth += (symbol in _OPENS) - (symbol in _CLOSES)
        deepest = max(deepest, depth)
        if depth < 0:
            return None
    return _read(text) if depth == 0 and deepest <= MAX_DEPTH else None


def _read(text: str) -> Form | None:
    text = re.sub(r"^(?:\s*(?:=|\\approx(?![A-Za-z])|[,;:]))+", "", text).strip(" ,;:").rstrip(". ")
    while text.startswith("{") and _spans(text):
        text = text[1:-1].strip(" ")
    upright = _UPRIGHT.fullmatch(text)
    if upright and re.match(r"\s*[-+]?[0-9.]", upright[1]):
        text = upright[1].strip()
    if not text:
        return None
    number = _quantity(text)
    # A number without a value, such as 1/0 or 1e999999999, is nothing else either.
    if number is not None or _NUMBER.fullmatch(text):
        return number
    parts, found = _split(text, {";"})
    if found:
        grouped = [f"({part})" if len(parts) <= MAX_PARTS and _split(part, {","})[1] else part for part in parts]
        return _list(text, grouped)
    for separators in ({","}, {"\\cup"}):
        parts, found = _split(text, separators)
        if found:
            return _list(text, parts)
    if _EITHER.search(text):
        signs = {"\\pm": "+-", "\\mp": "-+"}
        both = [_EITHER.sub(lambda sign, i=i: signs[sign[0]][i], text).removeprefix("+") for i in (0, 1)]
        return _list(text, both)
    sides, relations = _split(text, _RELATIONS)
    if relations:
        return _relation(text, sides, relations)
    return _bracketed(text) or _leaf(text)


def _split(text: str, separators: frozenset[str] | set[str]) -> tuple[list[str], list[str]]:
    """The pieces between separators that stand outside of all brackets, and those separators."""
    pieces, found, depth, start, at = [], [], 0, 0, 0
    for symbol in _SYMBOL.findall(text):
        depth += (symbol in _OPENS) - (symbol in _CLOSES)
        if depth == 0 and symbol in separators:
            pieces.append(text[start:at])
            found.append(symbol)
            start = at + len(symbol)
        at += len(symbol)
    return [*pieces, text[start:]], found


def _spans(text: str) -> bool:
    """Does the first bracket close with the last symbol?"""
    depth, symbols = 0, _SYMBOL.findall(text)
    for position, symbol in enumerate(symbols, 1):
        depth += (symbol in _OPENS) - (symbol in _CLOSES)
        if depth == 0:
            return position == len(symbols) and position > 1
    return False


def _list(text: str, parts: list[str], mark: str = "") -> Form | None:
    if len(parts) > MAX_PARTS:
        return None
    forms = []
    for part in parts:
        form = _read(part)
        if form is None:
            if part.strip(" ."):
                return None
        elif form.kind == "list" and not form.mark:
            forms += form.value
        else:
            forms.append(form)
    names = [form.name for form in forms]
    period = len(set(names))
    if all(names) and 1 < period < len(names) and names == (names[:period] * len(names))[: len(names)]:
        # x=1,y=2 or x=3,y=4 is two points, (1,2) and (3,4).
        groups = [sorted(forms[at : at + period], key=lambda form: form.name) for at in range(0, len(forms), period)]
        forms = [Form("tuple", f"({','.join(form.text for form in group)})", tuple(group), "()") for group in groups]
    return forms[0] if len(forms) == 1 and not mark else Form("list", _key(text), tuple(forms), mark)


_EITHER = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_ARGUMENTS = re.compile(r"(?<=[A-Za-z}'])\([^()]*\)|_\{[^{}]*\}|_[A-Za-z0-9]|'")
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
_NAME = re.compile(r"(?=.*[A-Za-z])(?:\\?[A-Za-z]|\\[|]|[|(){}, :])+")


def _is_name(text: str) -> bool:
    r"""x, f(x), S_n, \angle ABC, |AB|, (p,q), \frac{NO}{BO}: what can be asked for, with no number or sign in it."""
    return _NAME.fullmatch(_ARGUMENTS.sub("", text).strip()) is not None


def _relation(text: str, sides: list[str], relations: list[str]) -> Form | None:
    if all(relation in ("=", "\\approx", "\\in") for relation in relations):
        name = _key(sides[0]) if _is_name(sides[0]) else ""
        # What is asked for may be an expression, if more than its value follows: m+n=2+3=5.
        asked = sides[0] if len(sides) > 2 and _VARIABLE.search(sides[0]) else None
        stated = [side for side in sides if not (_is_name(side) or side is asked)]
        if "\\approx" in relations:
            exact = [side for side in sides[: relations.index("\\approx") + 1] if not _is_name(side)]
            stated = exact or stated
        if not name and len(sides) == 2 and len(stated) == 2 and _VARIABLE.search(_UPRIGHT.sub("", text)):
            return Form("relation", _key(text))
        forms = [_read(side) for side in (stated or sides[-1:])[: MAX_PARTS + 1]]
        if None in forms or len(forms) > MAX_PARTS:
            return None
        if len(forms) > 1:
            return Form("chain", _key(text), tuple(forms), name=name)
        return forms[0]._replace(name=name, source=_key(text))
    names = [side for side in sides if _is_name(side)]
    if len(names) == 1 and all(relation in _FLIPPED for relation in relations):
        interval = _interval(sides, relations, names[0])
        if interval is not None:
            return interval._replace(name=_key(names[0]), source=_key(text))
    return Form("relation", _key(text))


def _interval(sides: list[str], relations: list[str], name: str) -> Form | None:
    """x>5 and 5<x as (5,∞), 1<x≤2 as (1,2]."""
    if len(sides) == 2:
        bound = sides[1] if sides[0] == name else sides[0]
        relation = relations[0] if sides[0] == name else _FLIPPED[relations[0]]
        low, high = (bound, "\\infty") if relation in (">", "\\ge") else ("-\\infty", bound)
        opens = "[" if relation == "\\ge" else "("
        closes = "]" if relation == "\\le" else ")"
    elif len(sides) == 3 and sides[1] == name and len({relation in ("<", "\\le") for relation in relations}) == 1:
        low, high = sides[0], sides[2]
        if relations[0] in (">", "\\ge"):
            low, high, relations = high, low, relations[::-1]
        opens = "[" if relations[0] in ("\\le", "\\ge") else "("
        closes = "]" if relations[1] in ("\\le", "\\ge") else ")"
    else:
        return None
    return _bracketed(f"{opens}{low.strip()},{high.strip()}{closes}")


_MATRIX = re.compile(r"\\begin\{(?:[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{[A-Za-z]+\}", re.DOTALL)


def _bracketed(text: str) -> Form | None:
    opened, closed = text[0], text[-1]
    if opened in "([" and closed in ")]" and _spans(text):
        inner = text[1:-1].strip()
        for separators in ({";"}, {","}):
            parts, found = _split(inner, separators)
            if found:
                return _tuple(text, parts, opened + closed)
        return _bracketed(inner) if inner.startswith("\\begin") else _read(inner) if opened + closed == "()" else None
    if text.startswith("\\{") and text.endswith("\\}") and _spans(text):
        inner = text[2:-2].strip()
        head, mark, condition = re.fullmatch(r"([^|:]*)([|:]?)(.*)", inner).groups()
        if mark:
            return _read(condition) if _is_name(head.partition("\\in")[0]) else None
        return _list(text, _split(inner, {";"} if ";" in inner else {","})[0], "{}")
    matrix = _MATRIX.fullmatch(text)
    if matrix and "\\begin" not in matrix[1]:
        rows = [row for row in _split(matrix[1], {"\\\\"})[0] if row.strip()]
        return _tuple(text, [f"({row.replace('&', ',')})" if "&" in row else row for row in rows], "matrix")
    return None


def _tuple(text: str, parts: list[str], mark: str) -> Form | None:
    forms = [_read(part) for part in parts[: MAX_PARTS + 1]]
    return None if None in forms or len(forms) > MAX_PARTS else Form("tuple", _key(text), tuple(forms), mark)


_UPRIGHT = re.compile(r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_MAGNITUDES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MAGNITUDE = re.compile(r"(hundred|thousand|million|billion|trillion)\b")
_BASE = re.compile(r"([0-9A-Za-z]*[0-9][0-9A-Za-z]*)\s*_\s*(?:\{\s*([0-9A-Za-z]+)\s*\}|([0-9]+))")
_BASES = ["", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_CLOCK = re.compile(r"([0-9]{1,2})\s*:\s*([0-9]{2})\s*([AaPp])\.?\s?[Mm]\.?")
_PLAIN_UNIT = re.compile(r"(?<=[0-9}i])\s+([A-Za-z]{2}[A-Za-z/^0-9 ]*)$")
# With what the option says behind it, but not with another option.
_OPTION = re.compile(r"\(([A-J])\)(?!.*\([A-J]\)).*|([A-J])(?:[).:](?!.*\b[A-J][).:]).*)?")
_UNIT_BEHIND = re.compile(
    r"((?:\s*(?:\\cdot|/)?\s*\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}(?:\s*\^\s*(?:\{\s*-?[0-9]+\s*\}|-?[0-9]))?)+)\s*$"
)


def _quantity(text: str) -> Form | None:
    """A number, alone or with a unit behind it."""
    read = read_number(text)
    if read is not None:
        return Form("number", _key(text), read, rounded="." in text)
    if text in ("\\infty", "-\\infty"):
        return Form("number", text, math.inf if text == "\\infty" else -math.inf)
    match = _NUMBER.match(text)
    unit = text[match.end() :].strip() if match and match.end() else ""
    magnitude = _MAGNITUDE.match(unit)
    if magnitude:
        text = f"{text[: match.end()].strip()}*10^{{{_MAGNITUDES[magnitude[1]]}}}{unit[magnitude.end() :]}"
        return _quantity(text)
    if not unit or unit[0] in "+-*,;=<>(^_" or read_unit(unit) is None:
        return None
    read = read_number(text[: match.end()].strip())
    return None if read is None else Form("number", _key(text), read, unit, rounded="." in match[0])


def _leaf(text: str) -> Form | None:
    words = _UPRIGHT.sub(r"\1", text).strip()
    base = _BASE.fullmatch(words)
    if base:
        named = base[2] or base[3]
        return Form("base", _key(text), base[1], str(_BASES.index(named)) if named in _BASES else named)
    clock = _CLOCK.fullmatch(words)
    if clock:
        half = {"a": "antemeridiem", "p": "postmeridiem"}[clock[3].lower()]
        return Form("expression", f"{clock[1]}:{clock[2]}", mark=f"\\text{{{half}}}")
    option = _OPTION.fullmatch(words)
    if option and (option[1] or len(words) == 1 or words[1:2] in ").:"):
        return Form("option", _key(text), option[1] or option[2])
    plain = re.sub(r"[\s'’\"“”.,:;!?()/-]+", " ", words).strip()
    # Three letters and less are a product, such as abc, unless they stand upright.
    worded = words != text or re.search(r"[^\W\d_]{4}", words) or plain.casefold() in ("yes", "no", "odd")
    if worded and re.fullmatch(r"[^\W\d_]+(?: [^\W\d_]+)*", plain):
        return Form("text", _key(text), _words(text))
    # A sentence, or 2-methylpropane.
    sentence = len(re.findall(r"[^\W\d_]{2,}", words)) > 2 or re.match(r"[0-9]+-[^\W\d_]{4}", words)
    if worded and sentence and not re.search(r"[\\+*^=]", words):
        return Form("text", _key(text), _words(text))
    unit = _UNIT_BEHIND.search(text) or _PLAIN_UNIT.search(text)
    if unit and unit[1].strip() and unit.start() and read_unit(unit[1]):
        form = _read(text[: unit.start()])
        return form._replace(mark=unit[1].strip()) if form and form.kind in ("number", "expression") else form
    return Form("expression", _key(text), rounded=re.search(r"[0-9]\.[0-9]", text) is not None)


def _key(text: str) -> str:
    """The text without what does not show: equal keys are equal answers."""
    text = re.sub(r"_\s*(\\text\s*\{[^{}]*\}|\\[A-Za-z]+)", r"_{\1}", text)
    text = _UPRIGHT.sub(r" \1 ", text)
    text = re.sub(r"(?<![A-Za-z\\])\\(frac|binom|sqrt(?:\[[0-9]\])?)\s*([0-9])(?![0-9.])", r"\\\1{\2}", text)
    text = re.sub(r"(\\(?:frac|binom)\{[0-9A-Za-z]+\})\s*([0-9A-Za-z])", r"\1{\2}", text)
    text = re.sub(r"([_^])\s*([0-9](?![0-9.])|[A-Za-z](?![A-Za-z0-9]))", r"\1{\2}", text)
    text = re.sub(r"\s+", " ", text).strip(" .")
    text = re.sub(r"(?<![A-Za-z])([A-Za-z]) (?=[A-Za-z](?![A-Za-z]))", r"\1", text)
    return re.sub(r" (?![A-Za-z0-9])|(?<![A-Za-z0-9]) |(?<=[0-9]) (?=[A-Za-z])|(?<=[A-Za-z]) (?=[0-9])", "", text)


def _words(text: str) -> str:
    words = re.findall(r"[^\W_]+", _UPRIGHT.sub(r" \1 ", text).casefold())
    return " ".join(word for word in words if word not in ("a", "an", "the") or len(words) == 1)


def read_number(text: str) -> Fraction | None:
    r"""The exact value of one number, plain or LaTeX, or None if the text is anything else.

    Integers, decimals (0.5, .5, 5., 0.\overline{3}), fractions of integers (3/4, \frac{3}{4}, and \frac34 of two
    digits), mixed numbers (1 1/2, 1\frac{1}{2}: one and a half), scientific notation (6.02e23, 6.02 \times 10^{23})
    with |exponent| <= 1,000, each with an optional sign and with thousands in groups of three. Percent is part of the
    value: 50% = 0.5 = 1/2, and 50 is not 50%. x/0 is no number.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    over, under = match["top"] or match["over"], match["bottom"] or match["under"]
    value = _ratio(match["mixed"] or match["plain_mixed"] or "0", over, under) if over else _decimal(match)
    if value is None:
        return None
    if match["sign"] == "-":
        value = -value
    return value / 100 if match["percent"] else value


def _ratio(whole: str, over: str, under: str) -> Fraction | None:
    denominator = _integer(under)
    return _integer(whole) + Fraction(_integer(over), denominator) if denominator else None


def _decimal(match: re.Match[str]) -> Fraction | None:
    decimals, again = match["decimals"] or "", match["again"] or ""
    digits = (match["lone"] and "1") or (match["whole"] or "") + decimals
    exponent = _integer(match["e"] or match["power"] or match["lone_power"] or "0")
    # Without the bound, 1e999999999 would be computed to its last digit.
    if not digits + again or abs(exponent) > MAX_EXPONENT:
        return None
    repeated = Fraction(int(again), 10 ** len(again) - 1) if again else 0
    return (_integer(digits or "0") + repeated) * Fraction(10) ** (exponent - len(decimals))


def _integer(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text))


def _undecided(gold: Form, answer: Form) -> bool | None:
    """False for two constants that are clearly apart, which saves most of the algebra. It cannot tell any equal."""
    a, b = _approximate(gold), _approximate(answer)
    return False if a is not None and b is not None and abs(a - b) > 1e-4 * max(abs(a), abs(b)) else None


_CONSTANT = re.compile(r"\\(?:frac|sqrt|pi|cdot|times)(?![A-Za-z])|[0-9]+(?:\.[0-9]+)?|[-+*^(){}]")
_MIXED = re.compile(r"[0-9]\\frac|sqrt[0-9]{2}")


def _approximate(form: Form) -> float | None:
    """The value of a constant of numbers, \\pi, roots, fractions and small powers; None for all else."""
    if form.mark or form.kind not in ("number", "expression") or _MIXED.search(form.text) or not _tame(form.text):
        return None
    try:
        if form.kind == "number":
            return float(form.value)
        tokens = _CONSTANT.findall(form.text)[::-1]
        value = _sum(tokens) if sum(map(len, tokens)) == len(form.text) else None
        return value if not tokens and isinstance(value, float) and math.isfinite(value) else None
    except (ValueError, IndexError, ArithmeticError):
        return None


def _sum(tokens: list[str]) -> float:
    value = _product(tokens)
    while tokens and tokens[-1] in ("+", "-"):
        term = _product(tokens) if tokens.pop() == "+" else -_product(tokens)
        # Where two terms cancel, what is left of a float says nothing.
        if abs(value + term) < 1e-6 * abs(term):
            raise ValueError
        value += term
    return value


def _product(tokens: list[str]) -> float:
    if tokens[-1] in ("+", "-"):
        return -_product(tokens) if tokens.pop() == "-" else _product(tokens)
    value = _power(tokens)
    while tokens and tokens[-1] not in ("+", "-", ")", "}"):
        if tokens[-1] in ("*", "\\cdot", "\\times"):
            tokens.pop()
        value *= _power(tokens)
    return value


def _power(tokens: list[str]) -> float:
    token = tokens.pop()
    if token == "\\frac":
        over, under = _group(tokens), _group(tokens)
        value = over / under
    elif token == "\\sqrt":
        value = math.sqrt(_group(tokens))
    elif token == "\\pi":
        value = math.pi
    else:
        value = _closed(token, tokens) if token in ("(", "{") else float(token)
    if tokens and tokens[-1] == "^":
        tokens.pop()
        exponent = _group(tokens)
        if abs(exponent) > 1000 or (value < 0 and not exponent.is_integer()):
            raise ValueError
        value **= exponent
    return value


def _group(tokens: list[str]) -> float:
    """An argument: {...}, or one digit."""
    token = tokens.pop()
    if token != "{" and len(token) > 1:
        raise ValueError
    return _closed(token, tokens) if token == "{" else float(token)


def _closed(opened: str, tokens: list[str]) -> float:
    value = _sum(tokens)
    if tokens.pop() != {"(": ")", "{": "}"}[opened]:
        raise ValueError
    return value


Judge = Callable[[Form, Form], bool | None]


def _same(gold: Form, answer: Form, judge: Judge, science: bool) -> bool | None:
    """Is the answer the gold? `judge` is asked where it takes algebra; its None is handed on."""
    if gold.text == answer.text and gold.mark == answer.mark:
        return True
    if gold.kind == "chain":
        gold = gold.value[-1]
    picked = _picked(gold), _picked(answer)
    if all(picked):
        return picked[0] == picked[1]
    if answer.kind == "chain":
        return _all(_same(gold, side, judge, science) for side in answer.value)
    if gold.kind == "text":
        return gold.value == _words(answer.text)
    if gold.kind == "option":
        option = _OPTION.fullmatch(answer.text.upper() if science else answer.text)
        return option is not None and answer.kind != "list" and gold.value == (option[1] or option[2])
    if "list" in (gold.kind, answer.kind):
        return _same_lists(gold, answer, judge, science)
    if gold.kind == answer.kind == "tuple":
        # A column and a point are both vectors; a row is a tuple in a matrix.
        if {gold.mark, answer.mark} not in ({gold.mark}, {"matrix", "()"}) or len(gold.value) != len(answer.value):
            return False
        return _all(_same(*pair, judge, science) for pair in zip(gold.value, answer.value, strict=True))
    if gold.kind == answer.kind == "number":
        # 2h is a product as likely as two hours: a lone letter that is not upright is a unit only beside a unit.
        if not science and "" in (gold.mark, answer.mark) and len(gold.mark + answer.mark) == 1:
            return False
        return _same_numbers(gold, answer, science)
    if "base" in (gold.kind, answer.kind):
        bases = {form.mark for form in (gold, answer) if form.kind == "base"}
        digits = [form.value if form.kind == "base" else form.text for form in (gold, answer)]
        return len(bases) == 1 and digits[0] == digits[1]
    if answer.kind in ("text", "option") or {gold.kind, answer.kind} <= {"number", "tuple"}:
        return False
    if science and gold.text.translate(_INDICES) == answer.text.translate(_INDICES):
        return True
    if science and re.match(r"[A-Z[]|sp[0-9^]", gold.text) and _flat(gold) == _flat(answer):
        return True
    return judge(gold, answer) if _comparable(gold.mark, answer.mark) else False


def _flat(form: Form) -> str:
    """A chemical formula without how it is set."""
    return re.sub(r"\\text|[_^{} ]", "", form.text + form.mark)


def _picked(form: Form) -> str:
    """The letters of two or more options, A,C,D or ACD."""
    if form.kind == "list" and all(part.kind == "option" for part in form.value):
        return "".join(sorted({part.value for part in form.value}))
    return "".join(sorted(form.text)) if re.fullmatch("[A-J]{2,}", form.text) else ""


def _same_lists(gold: Form, answer: Form, judge: Judge, science: bool) -> bool | None:
    golds, answers = ((form.value if form.kind in ("list", "tuple") else (form,)) for form in (gold, answer))
    if "expression" in (gold.kind, answer.kind) or "relation" in (gold.kind, answer.kind):
        return judge(gold, answer)
    # 1000,99 and 1,22 are decimals where the other is a number: a list could not be right. 3,0 is no decimal.
    if "number" in (gold.kind, answer.kind) and re.fullmatch(
        r"-?[0-9]+,[0-9]*[1-9]", (gold.text, answer.text)[gold.kind == "number"]
    ):
        gold, answer = (
            _quantity(form.text.replace(",", ".")) if form.kind == "list" else form for form in (gold, answer)
        )
        return _same_numbers(gold, answer, science)
    names = [[form.name for form in forms] for forms in (golds, answers)]
    # x_1=2, x_2=3 are two values of one name.
    stems = [{name.partition("_")[0] for name in some} for some in names]
    distinct = [len(some) == len(forms) > 1 and all(some) for some, forms in zip(stems, (golds, answers), strict=True)]
    if set(names[0]) == set(names[1]) and len(set(names[0])) == len(golds) == len(answers) > 1:
        answers = tuple(answers[names[1].index(name)] for name in names[0])
    elif "tuple" not in (gold.kind, answer.kind) and distinct[0] == distinct[1]:
        # Values that the gold repeats are not a set: 1,1,2 is not 1,2.
        if len({form.text for form in golds}) < len(golds) != len(answers) and not gold.mark:
            return False
        matches = [[_same(one, other, judge, science) for other in answers] for one in golds]
        return _all(_any(line) for line in [*matches, *zip(*matches, strict=True)]) if matches else not answers
    elif "tuple" in (gold.kind, answer.kind) and (answer.mark not in ("", "()") or gold.mark not in ("", "()")):
        return False
    if len(golds) != len(answers):
        return False
    return _all(_same(*pair, judge, science) for pair in zip(golds, answers, strict=True))


def _all(values: Iterable[bool | None]) -> bool | None:
    values = list(values)
    return False if False in values else None if None in values else True


def _any(values: Iterable[bool | None]) -> bool | None:
    values = list(values)
    return True if True in values else None if None in values else False


def _same_numbers(gold: Form, answer: Form, science: bool) -> bool:
    a, b = gold.value, answer.value
    if gold.mark and answer.mark:
        units = read_unit(gold.mark), read_unit(answer.mark)
        if None not in units and all(unit.known for unit in units):
            if units[0].dimension != units[1].dimension:
                return False
            a, b = a * units[0].scale, b * units[1].scale
    if a == b or math.inf in (abs(a), abs(b)) or not (gold.rounded or answer.rounded):
        return a == b
    if science and gold.rounded and _rounds_to(b, a, gold):
        return True
    return gold.value.denominator != 1 and abs(a - b) <= TOLERANCE * abs(a)


def _comparable(gold: str, answer: str) -> bool:
    """Could quantities in these units be equal? Only numbers are converted: 2\\pi cm is not 20\\pi mm here."""
    units = read_unit(gold) if gold else None, read_unit(answer) if answer else None
    return None in units or not all(unit.known for unit in units) or units[0][:2] == units[1][:2]


_HUGE = re.compile(
    r"[^ -~\u0370-\u03ff]|(?<![_^0-9])[0-9]+ [0-9]|[0-9]{5}\s*!|[)}\]!]\s*!|[0-9]{400}|(?<![A-Za-z])[eE][+-]?[0-9]{4}"
    r"|\*\*|\^\s*[{(]?\s*[-+]?\s*[0-9]{5}|\\(?:gcd|lcm)[^A-Za-z]*[A-Za-z]|\\binom[^A-Za-z]*[0-9]{5}"
)
_SMALL_FACTORIAL = re.compile(r"\([0-9]{0,2}[A-Za-z]?(?:[-+][0-9]{0,2}[A-Za-z]?)?\)!(?!\s*!)")  # (n-1)!
MAX_ALGEBRA = 400


def _tame(text: str) -> bool:
    """May algebra be tried? Not on towers of powers, huge exponents and factorials, long text: they can hang. Nor on
    numbers side by side, which would be multiplied, on letters that no LaTeX has, and on the gcd of letters, which
    would be 1."""
    return len(text) <= MAX_ALGEBRA and not _HUGE.search(_SMALL_FACTORIAL.sub("n!", text)) and not _is_tower(text)


def _is_tower(text: str) -> bool:
    """Is there a power in an exponent, other than of a variable? e^{x^2} is none, 9^{9^9} and x^{x^{x^2}} are."""
    opened, height, before, raised, was_raised = [], 0, "", False, False
    for symbol in _SYMBOL.findall(text.replace(" ", "")):
        if symbol == "^":
            if was_raised or height > 1 or (height == 1 and not before.isalpha()):
                return True
            raised, was_raised = True, False
        elif symbol in ("{", "("):
            opened.append(raised)
            height += raised
            raised = was_raised = False
        else:
            was_raised = raised
            if symbol in ("}", ")") and opened:
                was_raised = opened.pop()
                height -= was_raised
            raised = False
        before = symbol
    return False


def _algebra(gold: Form, answer: Form) -> bool:
    """Are two expressions or relations equal? By their values where they have any, else as math-verify sees it.

    Raises ArithmeticError if the answer cannot be read. Only in a worker.
    """
    related = "relation" in (gold.kind, answer.kind)
    left, right = _parsed(gold, related), _parsed(answer, related)
    if right is None:
        raise ArithmeticError("unreadable")
    if left is None:
        return False
    same = _agree(left, right, gold.rounded or answer.rounded)
    if same is None:
        import math_verify

        same = math_verify.verify(left, right, allow_set_relation_comp=True, timeout_seconds=None)
    if not same and gold.name != answer.name and gold.name and answer.name:
        same = _agree(_parsed(gold, True), _parsed(answer, True), False)
    return bool(same)


_SYMBOLS = re.compile(
    r"(\\(?:[a-z]*(?:alpha|beta|gamma|delta|theta|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|chi|psi|omega)|eta|hbar|ell"
    r"|Gamma(?!\s*\()|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega)(?![A-Za-z])|[A-Za-z])"
    r"((?:_\{[^{}]*\})?'*)|\\[A-Za-z]+"
)


def _plain_symbol(match: re.Match[str]) -> str:
    """x_{1}, R, \\Delta, x' under names that math-verify keeps apart: it takes R for r, x' for x and no E_1."""
    symbol, behind = match[1], match[2]
    if not symbol or (symbol.islower() and not behind):
        return match[0]
    return "v_{" + "".join(letter if letter.islower() else str(ord(letter)) for letter in symbol + behind) + "}"


def _parsed(form: Form, related: bool) -> Any:
    """The form as a sympy object, which must never be shown: its repr can hang. None if math-verify cannot read it."""
    import math_verify

    text = form.source if form.source and related else form.text
    if not _tame(text):
        raise ArithmeticError("too large")
    # It warns that its alarms are off: here the worker's deadline stands in for them.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    config = math_verify.LatexExtractionConfig()
    # Units are cut off here already: its own rules for them take the h of \frac{1}{2}h for hours.
    rules = dataclasses.replace(config.normalization_config, units=False, boxed="none")
    config = dataclasses.replace(config, normalization_config=rules)
    text = _SYMBOLS.sub(_plain_symbol, text)
    found = math_verify.parse(f"${text}$", [config], fallback_mode="no_fallback", parsing_timeout=None)
    return found[0] if found else None


def _agree(left: Any, right: Any, rounded: bool) -> bool | None:
    """Do two sympy objects agree at points of both signs for their variables? None where that cannot tell.

    Expressions agree if their values do, to 20 digits of 30, or to TOLERANCE if one of them is written as a decimal.
    Equations and inequalities agree if what they compare with 0 differs by a constant factor, negative if they point
    in opposite directions.
    """
    import sympy

    try:
        if isinstance(left, sympy.core.relational.Relational) and isinstance(right, sympy.core.relational.Relational):
            turned = left.reversed.rel_op == right.rel_op
            if left.rel_op != right.rel_op and not turned:
                return False
            a, b = left.lhs - left.rhs, right.lhs - right.rhs
            ratios = _values(a / b, a / b)
            if ratios is None:
                return None
            firsts = [ratio for ratio, _ in ratios]
            constant = all(abs(ratio - firsts[0]) <= abs(firsts[0]) * 1e-20 for ratio in firsts) and firsts[0] != 0
            if left.rel_op in ("==", "!="):
                return bool(constant)
            return bool(constant and (firsts[0] > 0) == (left.rel_op == right.rel_op))
        if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
            return None
        if not rounded and left.doit().is_Rational and right.doit().is_Rational:
            return bool(left.doit() == right.doit())
        values = _values(left, right)
        if values is None:
            return None
        share = float(TOLERANCE) if rounded and not left.is_Integer else 1e-20
        agree = [abs(a - b) <= share * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-100 for a, b in values]
        return bool(agree[0]) if len({bool(one) for one in agree}) == 1 else None if agree[0] else False
    # sympy's answers to what has no value or no order, a set among numbers say: math-verify decides then.
    except (TypeError, ValueError, AttributeError, NotImplementedError, RecursionError, ArithmeticError):
        return None


def _values(left: Any, right: Any) -> list | None:
    """Both values at four points of the variables, two of them negative; at one if there are none. None if without."""
    import sympy

    symbols, values = sorted(left.free_symbols | right.free_symbols, key=str), []
    for step in (1, 2, -1, -2):
        point = {
            symbol: sympy.I
            if symbol.name == "i"
            else sympy.Rational((7919 * i + 104729 * step) % 97 + 3, (11 + i) * step)
            for i, symbol in enumerate(symbols, 1)
        }
        pair = tuple(sympy.N(side.doit().subs(point), 30, maxn=200) for side in (left, right))
        if not all(value.is_number and value.is_finite for value in pair):
            return None
        values.append(pair)
        if not symbols:
            break
    return values


def _last_box(text: str) -> str | None:
    r"""What stands in the \boxed{...} that closes last, braces balanced; None if there is none.

    Of nested boxes that is the outer one. A box that is never closed, as in a truncated response, is no box.
    Boxes tied together by commas, "and" or "or" are one list: naming several answers is no way to hedge.
    Only the last MAX_BOX_DISTANCE characters are read.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("box")
    if first < 0:
        return None
    opened, boxes = [], []
    for match in _BRACE.finditer(text, max(first - 3, 0)):
        brace = match.lastgroup
        if brace == "box":
            opened.append((match.start(), match.end()))
        elif brace == "open":
            opened.append(None)
        elif brace == "close" and opened:
            start = opened.pop()
            if start is not None:
                while boxes and boxes[-1][0] > start[0]:
                    boxes.pop()
                boxes.append((*start, match.start()))
    if not boxes:
        return None
    start, inner, end = boxes.pop()
    answer = text[inner:end]
    if _PERCENT_BEHIND.match(text, end + 1):
        answer += "\\%"
    # A tie is short, so that its pattern is never tried on a long text.
    while boxes and start - boxes[-1][2] < 60 and _JOINED.fullmatch(text, boxes[-1][2] + 1, start):
        if len(answer) > MAX_ANSWER:
            break
        start, inner, end = boxes.pop()
        answer = f"{text[inner:end]}, {answer}"
    return answer


# ------------------------------------------------------------------------------------------ science


def check_science(reference: Any) -> Form:
    """Return the reference as it reads; ValueError unless it is the text of one short answer."""
    gold = read_math(_formula(_unboxed(reference))) if isinstance(reference, str) else None
    if gold is None:
        raise ValueError(
            "a science reference is the text of one short answer or an option letter, such as 9.8 m/s^2, 2.5e-3 mol, B "
            f"or nitrogen, of at most {MAX_ANSWER} characters; got {_shown(reference)}"
        )
    return gold


def settle_science(answer: str, gold: Form) -> Verdict | None:
    r"""The rules of `settle_math`, and three more.

    A number that rounds to a decimal gold of three or more digits is right: 8.314 for 8.31, not 8.32 and not 8.3.
    An option's letter case does not count. How a formula is set does not: CO_2, \ce{CO2}, \text{CO}_2 and CO2.
    """
    return settle_math(_formula(answer), gold, science=True)


def deliberate_science(answer: str, reference: str) -> list:
    """`settle_science`, with algebra where it takes algebra. In a worker."""
    return _deliberate(_formula(answer), _formula(_unboxed(reference)), True)


_CHEMISTRY = re.compile(r"\\ce\s*\{([^{}]*)\}")
_LOWER_OPTION = re.compile(r"\s*\(?[a-e][).]?\s*")
_INDICES = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789", "_{}")


def _formula(text: str) -> str:
    if len(text) > MAX_ANSWER:
        return text
    return text.upper() if _LOWER_OPTION.fullmatch(text) else _CHEMISTRY.sub(r"\1", text)


def _rounds_to(value: Fraction, gold: Fraction, form: Form) -> bool:
    """Is the gold this value, rounded to the gold's own three or more digits?"""
    digits = re.match(r"-?[0-9,]*\.[0-9]*", form.text)
    figures = len(digits[0].replace(",", "").replace(".", "").lstrip("-0")) if digits else 0
    if figures < 3 or not gold:
        return False
    exponent = math.floor(math.log10(abs(gold)))
    step = Fraction(10) ** (exponent - figures + 1)
    return abs(value - gold) <= step / 2


class Unit(NamedTuple):
    """1 of this unit is `scale` of the base units in `dimension`, (name, power) by name; or it is only a word."""

    dimension: tuple[tuple[str, int], ...]
    known: bool
    scale: Fraction = Fraction(1)


_BASE_UNITS = frozenset(
    re.findall(r"\S+", "m kg s A K mol cd rad degree celsius $ euro pound yuan bit antemeridiem postmeridiem")
)
# Exact by definition (SI 2019; the international inch, pound, calorie and atmosphere).
_DERIVED = {
    "g": "0.001 kg", "t": "1000 kg", "N": "kg m s^-2", "J": "N m", "W": "J s^-1", "Pa": "N m^-2", "Hz": "s^-1",
    "C": "A s", "V": "J C^-1", "Ω": "V A^-1", "F": "C V^-1", "T": "kg A^-1 s^-2", "Wb": "T m^2", "H": "Wb A^-1",
    "S": "A V^-1", "L": "0.001 m^3", "l": "L", "M": "mol L^-1", "eV": "1.602176634e-19 J", "cal": "4.184 J",
    "min": "60 s", "h": "3600 s", "hr": "h", "day": "86400 s", "week": "7 day", "year": "365.25 day", "yr": "year",
    "atm": "101325 Pa", "bar": "100000 Pa", "mmHg": "torr", "torr": "101325/760 Pa", "Torr": "torr",
    "Å": "1e-10 m", "in": "0.0254 m", "inch": "in", "ft": "12 in", "foot": "ft", "feet": "ft", "yd": "3 ft",
    "yard": "yd", "mi": "5280 ft", "mile": "mi", "lb": "0.45359237 kg", "Wh": "3600 J", "kph": "km h^-1",
    "mph": "mi h^-1", "ml": "mL", "cc": "cm^3", "sec": "s", "byte": "8 bit", "Bq": "s^-1", "Gy": "J kg^-1",
    "meter": "m", "metre": "m", "second": "s", "minute": "min", "hour": "h", "gram": "g", "tonne": "t",
    "newton": "N", "joule": "J", "watt": "W", "pascal": "Pa", "hertz": "Hz", "coulomb": "C", "volt": "V", "ohm": "Ω",
    "farad": "F", "tesla": "T", "weber": "Wb", "henry": "H", "liter": "L", "litre": "L", "mole": "mol",
    "kelvin": "K", "radian": "rad", "ampere": "A", "amp": "A", "calorie": "cal", "electronvolt": "eV", "angstrom": "Å",
    "atmosphere": "atm", "deg": "degree", "°": "degree", "dollar": "$", "cent": "0.01 $", "RMB": "yuan",
}  # fmt: skip
_PREFIXES = {"f": "1e-15", "p": "1e-12", "n": "1e-9", "μ": "1e-6", "u": "1e-6", "m": "0.001", "c": "0.01", "d": "0.1",
             "k": "1000", "M": "1e6", "G": "1e9", "T": "1e12", "femto": "1e-15", "pico": "1e-12", "nano": "1e-9",
             "micro": "1e-6", "milli": "0.001", "centi": "0.01", "deci": "0.1", "kilo": "1000", "mega": "1e6",
             "giga": "1e9", "tera": "1e12"}  # fmt: skip
_PREFIXED = frozenset(
    re.findall(
        r"\S+",
        "m s g N J W Pa Hz C V Ω F T Wb H L l M eV cal bar mol A K meter metre second gram newton joule watt pascal "
        "hertz coulomb volt ohm farad liter litre mole electronvolt calorie Wh bit byte Bq Gy",
    )
)
_UNIT_TOKEN = re.compile(r"\^\s*\{?\s*(-?[0-9])\s*\}?|([A-Za-zμΩÅ$]+)|([/()])|[\s*.]+")


# Words behind a number that change it.
_NO_UNIT = re.compile(
    r"(?:sin|cos|tan|log|sqrt|exp|times|over|plus|minus|pi|x|and|or|not|mod|choose|factorial|squared|cubed|dozen|half|"
    r"halves|thirds?|fourths?|quarters?|fifths?|tenths?|hundredths?|thousandths?|more|less|percent)\b"
)


@functools.lru_cache(maxsize=4096)
def read_unit(text: str) -> Unit | None:
    r"""The unit that a text names: m/s^2, \text{ cm}^2, km h^{-1}, miles per hour, square meters. None if it is none.

    Words that are no unit here (apples, ways) are a unit that is compared with nothing. Temperatures in °C and °F are
    units of their own, as their zero is another one. Degrees are never radians.
    """
    plain = _UPRIGHT.sub(r" \1 ", text).replace("\\cdot", " ").replace("\\Omega", "Ω")
    plain = re.sub(r"\\mu\s*", "μ", plain)
    plain = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r"\1/(\2)", plain)
    plain = re.sub(r"\bdegrees?\s*(?:C\b|celsius)", "celsius", plain, flags=re.IGNORECASE)
    plain = re.sub(r"\b(?:square|sq\.?)\s+([a-z]+)|([a-z]+)\s+squared", r"\1\2^2", plain)
    plain = re.sub(r"\bcubic\s+([a-z]+)|([a-z]+)\s+cubed", r"\1\2^3", plain)
    plain = re.sub(r"\bper\b", "/", plain)
    unit = _known_unit(plain)
    beside = _UPRIGHT.sub("", text)
    # A lone letter beside upright words is a factor: 5\text{ cm}x.
    if unit is not None or (beside != text and re.search(r"(?<![A-Za-z])[A-Za-z]\s*$", beside)):
        return unit
    words = plain.strip().casefold()
    worded = re.fullmatch(r"[a-z'()-]{3,}(?:[\s,]+[a-z'()-]+)*\.?(?:\s*\^\s*\{?[23]\}?)?", words) is not None
    set_upright = beside != text and words and not re.search(r"[0-9=<>\\]", plain + beside)
    if (worded or set_upright) and not _NO_UNIT.match(words):
        return Unit(((words, 1),), known=False)
    return None


def _known_unit(text: str) -> Unit | None:
    """A product of units of the tables. What follows a "/" is all below it: J/mol K is J/(mol K)."""
    factors, below, at = [], 1, 0
    for match in _UNIT_TOKEN.finditer(text):
        if match.start() != at:
            return None
        at = match.end()
        power, name, mark = match.groups()
        if name:
            factors.append([_named_unit(name), below])
            if factors[-1][0] is None:
                return None
        elif power:
            if not factors:
                return None
            factors[-1][1] *= int(power)
        elif mark == "/":
            below = -1
    if at != len(text) or not factors:
        return None
    scale, powers = Fraction(1), {}
    for unit, power in factors:
        scale *= unit.scale**power
        for base, count in unit.dimension:
            powers[base] = powers.get(base, 0) + count * power
    return Unit(tuple(sorted(item for item in powers.items() if item[1])), True, scale)


def _named_unit(name: str) -> Unit | None:
    for spelled in (name, name.casefold()) if len(name) > 3 else (name,):
        for singular in (
            (spelled, spelled.removesuffix("s"), spelled.removesuffix("es")) if len(name) > 3 else (spelled,)
        ):
            if singular in _BASE_UNITS:
                return Unit(((singular, 1),), True)
            if singular in _DERIVED:
                factor, _, rest = f"1 {_DERIVED[singular]}".removeprefix(
                    "1 " * _DERIVED[singular][0].isdigit()
                ).partition(" ")
                known = _known_unit(rest)
                return known._replace(scale=known.scale * Fraction(factor))
            for prefix, factor in _PREFIXES.items():
                if singular.startswith(prefix) and singular[len(prefix) :] in _PREFIXED:
                    known = _named_unit(singular[len(prefix) :])
                    return known._replace(scale=known.scale * Fraction(factor))
    return None


# --------------------------------------------------------------------------------------------- code

# Simplified: a problem with several right outputs needs a checker of its own and is not known here; a program cannot
# write files; arguments and results are plain data, so that trees and linked lists of the class Solution sets are not.

MAX_SOURCE = 200_000
# Of a check whose calls depend on what earlier calls returned: each round finds out what is called next.
MAX_ROUNDS = 8
MAX_CALLS = 1_000

_FENCE = re.compile(r"```[ \t]*(?:(python3?|py)(?:[ \t][^\n`]*)?)?\r?\n", re.IGNORECASE)
_FENCE_END = re.compile(r"^[ \t]*```", re.MULTILINE)
_PROGRAM_LINE = re.compile(r"^(?:from [\w.]+ import |import \w|def \w+\(|class \w+[:(]|print\()", re.MULTILINE)
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
    """The last closed ```python block, or where none is marked so, the last closed block without a mark. A response
    without any fence is a program where a line of it starts like one."""
    text = _after_thinking(response)
    if "```" not in text:
        return text if _PROGRAM_LINE.search(text) else None
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

    def keep(index: int, tested: Result) -> Result:
        return Result(tested.status, _passes(gold, index, tested))

    def go_on(tested: Result) -> bool:
        return tested.status != "unparsed" and (tested.value or not all_or_nothing)

    outcome = yield Program(source, gold.tests, keep=keep, go_on=go_on)
    if outcome.status != "ok":
        return Verdict(0.0, outcome.status)
    passed = sum(tested.value for tested in outcome.value)
    return _code_verdict(passed, len(gold.tests), {tested.status for tested in outcome.value}, all_or_nothing)


def _code_verdict(passed: int, total: int, statuses: set[str], all_or_nothing: bool) -> Verdict:
    if passed == total:
        return CORRECT
    if passed and not all_or_nothing:
        return Verdict(passed / total, "partial")
    return Verdict(0.0, next((status for status in ("unparsed", "timeout", "crashed") if status in statuses), "wrong"))


def _passes(gold: Code, index: int, tested: Result) -> bool:
    if tested.status != "ok":
        return False
    if (size := len(tested.value)) > 65_536 and size > 16 * len(str(gold.accepted[index])):  # long to read, and wrong
        return False
    if gold.entry_point is None:
        return _same_output(tested.value, gold.accepted[index])
    value = _json_or_none(tested.value)
    return any(_same_value(value, accepted) for accepted in gold.accepted[index])


def _token_lines(text: str) -> list[list[str]]:
    """How a judge reads output: lines of words, whatever stands between them; no empty lines."""
    return [words for line in text.split("\n") if (words := line.split())]


def _same_output(output: str, expected: list[list[str]]) -> bool:
    """Does the output read as these lines? No more of it is taken apart than is expected."""
    lines = (line for line in io.StringIO(output) if not line.isspace())
    for words in expected:
        got = next(lines, "").split(None, len(words))
        if len(got) != len(words) or not all(map(_same_word, got, words)):
            return False
    return next(lines, None) is None


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
    results, needs, unknown_calls = dict(known), {}, itertools.count(1)

    def candidate(*args: Any, **kwargs: Any) -> Any:
        key = json.dumps([[encode(value) for value in args], {name: encode(value) for name, value in kwargs.items()}])
        if key not in results:
            needs[key] = None
            raise _Unknown if next(unknown_calls) < MAX_CALLS else _Enough
        status, value = results[key]
        if status == "ok":
            return decode(json.loads(value))
        error = getattr(builtins, value or "", None)
        raise error if isinstance(error, type) and issubclass(error, Exception) else Exception(value)

    names = {"__name__": "check", entry_point: candidate, "_Unknown": _Unknown, "_needs": needs}
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


# In a round with unknown values nothing counts but what it finds: neither do the exceptions that follow from them.
_PATIENT = """
try: ...
except _Unknown: pass
except Exception:
    if not _needs: raise
"""


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
        [patient] = ast.parse(_PATIENT).body
        patient.body = [statement]
        return patient


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
        outcome = yield Program(source, tests, go_on=lambda tested: tested.status != "unparsed")
        if outcome.status != "ok":
            return Verdict(0.0, outcome.status)
        statuses |= {tested.status for tested in outcome.value}
        if "unparsed" in statuses:
            return UNPARSED
        known |= {need: list(tested) for need, tested in zip(needs, outcome.value, strict=True)}
    return Verdict(0.0, "timeout")


# ------------------------------------------------------------------------------------------- ifeval

# The paper's longest response is below 100,000 characters: beyond this is runaway text, which follows nothing.
MAX_FOLLOWED = 1_000_000
# langdetect itself reads at most 10,000 characters of a text, after it has looked for addresses in all of it.
MAX_DETECTED = 20_000


def check_ifeval(reference: Any) -> list[tuple[Callable[..., bool], dict[str, Any]]]:
    """Return the tests and their arguments; ValueError unless every id is known and has exactly its arguments.

    `kwargs` holds an object per id; arguments that are null count as not given, as in the public data sets.
    """
    if not isinstance(reference, dict) or reference.keys() != {"instruction_id_list", "kwargs"}:
        raise ValueError(
            f'an ifeval reference is {{"instruction_id_list": [...], "kwargs": [...]}}, got {_shown(reference)}'
        )
    ids, kwargs = reference["instruction_id_list"], reference["kwargs"]
    if not isinstance(ids, list) or not isinstance(kwargs, list) or not 1 <= len(ids) == len(kwargs):
        raise ValueError(
            "ifeval needs as many `kwargs` as ids in `instruction_id_list`, as two lists, and at least one"
        )
    gold = []
    for name, given in zip(ids, kwargs, strict=True):
        if not isinstance(name, str) or name not in INSTRUCTIONS:
            raise ValueError(f"unknown instruction {_shown(name)}: use one of {', '.join(INSTRUCTIONS)}")
        if not isinstance(given, dict | None):
            raise ValueError(f"the kwargs of {name} are an object, got {_shown(given)}")
        # Tables with empty places keep whole numbers as floats.
        given = {key: int(value) if isinstance(value, float) and value.is_integer() else value
                 for key, value in (given or {}).items() if value is not None}  # fmt: skip
        follows, *expected = INSTRUCTIONS[name]
        if given.keys() != set(expected):
            wanted = ", ".join(expected) or "no arguments"
            raise ValueError(f"{name} takes {wanted}, got {_shown(given)}: missing ones are not filled in")
        for key, value in given.items():
            asked, is_right = _ARGUMENT_FORMS[key]
            if not is_right(value):
                raise ValueError(f"`{key}` of {name} must be {asked}, got {_shown(value)}")
        if follows in (_is_language, _is_capital, _is_lowercase):
            _check_langdetect(given.get("language", "en"))
        gold.append((follows, given))
    return gold


def find_ifeval(response: str) -> str | None:
    """What follows the thinking: all of it."""
    text = _after_thinking(response)
    return (text if len(text) == len(response) else text.strip()) if text.strip() else None


def settle_ifeval(answer: str, gold: list[tuple[Callable[..., bool], dict[str, Any]]]) -> Verdict:
    """The share of the instructions that are followed, in the strict sense: the response as it stands."""
    reward = sum(follow_instructions(answer, gold)) / len(gold)
    return Verdict(reward, "correct" if reward == 1 else "partial" if reward else "wrong")


def follow_instructions(
    text: str, gold: list[tuple[Callable[..., bool], dict[str, Any]]], loose: bool = False
) -> list[bool]:
    """Per instruction, is it followed? `loose`: by the text or one of seven more forms of it, for evaluation.

    These are the text without its first line, its last line, or both, and all four without asterisks.
    """
    if len(text) > MAX_FOLLOWED:
        return [False] * len(gold)
    forms = [text]
    if loose:
        lines = text.split("\n")
        forms += ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
        forms += [form.replace("*", "") for form in forms]
    return [any(form.strip() and follows(form, **given) for form in forms) for follows, given in gold]


def _compare(count: int, relation: str, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _has_keywords(text: str, keywords: list[str]) -> bool:
    return all(re.search(re.escape(word), text, re.IGNORECASE) for word in keywords)


def _has_keyword_often(text: str, keyword: str, frequency: int, relation: str) -> bool:
    found = re.findall(re.escape(keyword.strip()), text, re.IGNORECASE)
    return _compare(len(found), relation, frequency)


def _has_no_words(text: str, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


def _has_letter_often(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compare(text.lower().count(letter.lower()), let_relation, let_frequency)


def _language_of(text: str) -> str | None:
    import langdetect

    langdetect.DetectorFactory.seed = 0
    try:
        return langdetect.detect(text[:MAX_DETECTED])
    except langdetect.LangDetectException:
        return None


def _check_langdetect(language: str) -> None:
    try:
        from langdetect import detector_factory
    except ImportError:
        raise ValueError(
            "instructions about the language need the package langdetect: pip install langdetect"
        ) from None
    detector_factory.init_factory()
    known = detector_factory._factory.get_lang_list()
    if language not in known:
        raise ValueError(f"`language` must be one of {', '.join(sorted(known))}, got {_shown(language)}")


def _is_language(text: str, language: str) -> bool:
    return _language_of(text) == language


def _is_capital(text: str) -> bool:
    return text.isupper() and _language_of(text) == "en"


def _is_lowercase(text: str) -> bool:
    return text.islower() and _language_of(text) == "en"


# Of punkt's English tables, what is met outside of the newspapers that they were made from. Some letters are in them.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms dr prof st sr jr gen col lt sen rep reps adm maj messrs inc ltd co cos corp bros ave vs ok yr ft mg "
        "ct jan feb aug sep sept oct nov dec tues wed fri ala ariz calif colo conn fla ga ill kan ky mich minn nev "
        "okla ore pa tenn va vt wash wis ph.d a.m p.m a.d u.s u.k u.n u.s.a d.c l.a n.y n.j n.c "
        "c d e f g h j k l m n p r s t v w",
    )
)
_STARTERS = frozenset(
    re.findall(
        r"\S+",
        "the he it they i this these there if but however so since when while in both some many most even despite "
        "although though under among according yet nor thus moreover meanwhile nevertheless nonetheless instead indeed "
        "similarly here please your her whether therefore finally furthermore unfortunately thank yes",
    )
)
_ASIDE = r"""?!)";}\]*:@'({\["""
_LAST_END = re.compile(rf".*[.!?](?=$|[{_ASIDE}])", re.DOTALL)
_WORD_START = re.compile(r"\w*")


def _count_sentences(text: str) -> int:
    """Sentences, in the way of nltk's punkt, without its trained table of spellings. See the tests for the difference.

    A sentence ends with the last . ! or ? of a word that white space or a mark like * follows; what is left of the word
    begins the next one, unless it only closes quotes or brackets. "1." at the start of a list item is a sentence.
    """
    words, count, rest = text.split(), 0, ""
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        end = _LAST_END.match(word)
        rest = word[end.end() :] if end else word
        if end and _ends_sentence(end[0], rest or after):
            count, rest = count + 1, rest.lstrip("\"')]}")
    return count + bool(rest)


def _ends_sentence(word: str, after: str) -> bool:
    """Does the mark behind a word end a sentence before that other word?"""
    if word[-1] != ".":
        return True
    stem, small, capital = re.split(rf"[{_ASIDE}]", word[:-1])[-1].lower(), after[:1].islower(), after[:1].isupper()
    if stem.endswith(".") or stem.rpartition("-")[2] in _ABBREVIATIONS:
        return capital and len(stem) > 1 and _WORD_START.match(after)[0].lower() in _STARTERS
    return not (small and (stem.isdigit() or (len(stem) == 1 and stem.isalpha())))


def _has_sentences(text: str, relation: str, num_sentences: int) -> bool:
    return _compare(_count_sentences(text), relation, num_sentences)


def _has_paragraphs(text: str, num_paragraphs: int) -> bool:
    parts = [part.strip() for part in text.split("***")]
    if not all(parts[1:-1]):
        return False
    return sum(map(bool, parts)) == num_paragraphs


def _has_words(text: str, relation: str, num_words: int) -> bool:
    return _compare(sum(1 for _ in re.finditer(r"\w+", text)), relation, num_words)


def _has_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = text.split("\n\n")
    filled = sum(1 for paragraph in paragraphs if paragraph.strip())
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1) if nth_paragraph <= filled else []
    if not words:
        return False
    first = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return filled == num_paragraphs and first.lower() == first_word.lower()


def _has_placeholders(text: str, num_placeholders: int) -> bool:
    count = 0
    for line in text.split("\n"):
        start = line.find("[")
        while start >= 0 and (end := line.find("]", start)) >= 0:
            count += 1
            start = line.find("[", end)
    return count >= num_placeholders


def _has_postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    pattern = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker, re.escape(marker.lower()))
    return re.search(pattern, text.lower()) is not None


def _has_bullets(text: str, num_bullets: int) -> bool:
    count, taken = 0, False
    for line in [line.lstrip() for line in text.split("\n")]:
        if not taken:
            count += line.startswith("*") and line[1:2] != "*"
        count += line.startswith("-")
        # A lone asterisk is the mark of the line below it.
        taken = not taken and line == "*"
    return count - taken == num_bullets


def _has_choice(text: str) -> bool:
    return any(f"My answer is {choice}." in text for choice in ("yes", "no", "maybe"))


def _has_highlights(text: str, num_highlights: int) -> bool:
    found = re.findall(r"\*([^\n*]*)\*", text) + re.findall(r"\*\*([^\n*]*)\*\*", text)
    return sum(1 for inner in found if inner.strip()) >= num_highlights


def _has_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    found = re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)
    return len(found) >= num_sections


def _is_json(text: str) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str) -> bool:
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def _is_two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


def _repeats_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _ends_with(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


_BETWEEN_WORDS = re.compile(
    r"[\s;@#$%&?!()\[\]{}<>\"*–—“”‘’„«»`]+|\.{2,}|--+|[:,](?![0-9])|''"
    r"|(?i:(?<=\w)(?='(?:s|m|d|ll|re|ve)\b)|(?<=\w)(?=n't\b)"
    r"|(?<=\bcan)(?=not\b)|(?<=\b(?:gon|wan))(?=na\b)|(?<=\bgot)(?=ta\b)|(?<=\b(?:gim|lem))(?=me\b))"
)


def _has_capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """Words as nltk's word_tokenize cuts them: DON'T and CANNOT are two, COVID-19 one, A*B two."""
    return _compare(sum(word.isupper() for word in _BETWEEN_WORDS.split(text)), capital_relation, capital_frequency)


def _has_no_comma(text: str) -> bool:
    return "," not in text


def _is_quoted(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


# id -> (is it followed?, its arguments)
INSTRUCTIONS: dict[str, tuple] = {
    "keywords:existence": (_has_keywords, "keywords"),
    "keywords:frequency": (_has_keyword_often, "keyword", "frequency", "relation"),
    "keywords:forbidden_words": (_has_no_words, "forbidden_words"),
    "keywords:letter_frequency": (_has_letter_often, "letter", "let_frequency", "let_relation"),
    "language:response_language": (_is_language, "language"),
    "length_constraints:number_sentences": (_has_sentences, "num_sentences", "relation"),
    "length_constraints:number_paragraphs": (_has_paragraphs, "num_paragraphs"),
    "length_constraints:number_words": (_has_words, "num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": (_has_first_word, "num_paragraphs", "nth_paragraph", "first_word"),
    "detectable_content:number_placeholders": (_has_placeholders, "num_placeholders"),
    "detectable_content:postscript": (_has_postscript, "postscript_marker"),
    "detectable_format:number_bullet_lists": (_has_bullets, "num_bullets"),
    "detectable_format:constrained_response": (_has_choice,),
    "detectable_format:number_highlighted_sections": (_has_highlights, "num_highlights"),
    "detectable_format:multiple_sections": (_has_sections, "section_spliter", "num_sections"),
    "detectable_format:json_format": (_is_json,),
    "detectable_format:title": (_has_title,),
    "combination:two_responses": (_is_two_responses,),
    "combination:repeat_prompt": (_repeats_prompt, "prompt_to_repeat"),
    "startend:end_checker": (_ends_with, "end_phrase"),
    "change_case:capital_word_frequency": (_has_capital_words, "capital_frequency", "capital_relation"),
    "change_case:english_capital": (_is_capital,),
    "change_case:english_lowercase": (_is_lowercase,),
    "punctuation:no_comma": (_has_no_comma,),
    "startend:quotation": (_is_quoted,),
}


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word.strip() for word in value)


_COUNT = ("a whole number from 0 on", lambda value: type(value) is int and value >= 0)
_PLACE = ("a whole number from 1 on", lambda value: type(value) is int and value >= 1)
_TEXT = ("text", lambda value: isinstance(value, str) and bool(value.strip()))
_RELATION = ('"less than" or "at least"', lambda value: value in ("less than", "at least"))
_WORDS = ("a list of words", _is_words)
_ARGUMENT_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(["frequency", "let_frequency", "capital_frequency", "num_sentences", "num_paragraphs"], _COUNT),
    **dict.fromkeys(["num_words", "num_placeholders", "num_bullets", "num_highlights", "num_sections"], _COUNT),
    **dict.fromkeys(["keyword", "language", "first_word", "postscript_marker", "section_spliter"], _TEXT),
    **dict.fromkeys(["prompt_to_repeat", "end_phrase"], _TEXT),
    **dict.fromkeys(["relation", "let_relation", "capital_relation"], _RELATION),
    **dict.fromkeys(["keywords", "forbidden_words"], _WORDS),
    "letter": ("one character", lambda value: isinstance(value, str) and len(value.strip()) == 1),
    "nth_paragraph": _PLACE,
}


# -------------------------------------------------------------------------------------------- logic

MAX_SOLUTION = 100_000


def check_logic(reference: Any) -> dict[str, Any]:
    """Return the reference; ValueError unless it names a data set of Reasoning Gym and holds an entry of it."""
    if not isinstance(reference, dict) or reference.keys() != {"dataset", "entry"}:
        raise ValueError(f'a logic reference is {{"dataset": name, "entry": {{...}}}}, got {_shown(reference)}')
    name, entry = reference["dataset"], reference["entry"]
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(f"logic's `dataset` is a data set's name in Reasoning Gym, got {_shown(name)}")
    if not isinstance(entry, dict) or not {"question", "answer", "metadata"} <= entry.keys():
        raise ValueError(f"logic's `entry` has question, answer and metadata, got {_shown(entry)}")
    if not isinstance(entry["answer"], str | None):
        raise ValueError(f"the `answer` of a logic `entry` is text, or null, got {_shown(entry['answer'])}")
    if not isinstance(entry["metadata"], dict) or entry["metadata"].get("source_dataset", name) != name:
        raise ValueError(f"logic's `entry` must be of {name}: {_shown(entry['metadata'])}")
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ValueError("logic problems need the package reasoning-gym: pip install reasoning-gym")
    if name not in _gym_names():
        raise ValueError(f"Reasoning Gym has no data set {name}. There are {', '.join(sorted(_gym_names()))}")
    return reference


@functools.cache
def _gym_names() -> frozenset[str]:
    """The data sets of the installed Reasoning Gym, read off its source: to import it takes seconds and memory."""
    folder = Path(importlib.util.find_spec("reasoning_gym").origin).parent
    named = re.compile(r"""^(?:DATASET_NAME = |register_dataset\(\s*)["'](\w+)["']""", re.MULTILINE)
    return frozenset(name for path in folder.rglob("*.py") for name in named.findall(path.read_text("utf-8")))


def find_logic(response: str) -> str | None:
    """What stands in the last <answer>...</answer>."""
    before, closed, _ = _after_thinking(response).rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    return answer.strip() if closed and opened else None


# Nine scorers hand the answer to `eval`, or to sympy, which does the same. It runs where the score is computed: text
# that reaches a function of Python's could score itself. So for these an answer is of a form that reaches none.
_ARITHMETIC = re.compile(r"(?:[0-9\s+/().-]|\*(?!\s*\*))*", re.ASCII)
_LISTS = re.compile(r"[0-9A-Z_\s,\[\]()'\"+.-]*", re.ASCII)
_ALGEBRA = re.compile(r"[0-9A-Za-z_\s+*/^(),.-]*", re.ASCII)
EVALUATED = {
    **dict.fromkeys(("countdown", "puzzle24"), _ARITHMETIC),
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LISTS),
    **dict.fromkeys(("simple_integration", "intermediate_integration", "polynomial_multiplication"), _ALGEBRA),
}
# Without Integral: the scorers differentiate, so that an integral would solve itself by being written down again.
_ALGEBRA_NAME = re.compile(
    r"[A-Za-z](?:_?[0-9]+)?|(?:a|arc)?(?:sin|cos|tan|sec|csc|cot)h?|exp|log|ln|sqrt|cbrt|abs|Abs|sign|erf[ci]?|Ei|Si|Ci|pi|Rational"
)


def settle_logic(answer: str, gold: dict[str, Any]) -> Verdict | None:
    """Only what no scorer need see, or none may. The rest is for a worker."""
    if not answer and gold["entry"]["answer"] != "":
        return NO_ANSWER
    return None if len(answer) <= MAX_SOLUTION and _harmless(answer, EVALUATED.get(gold["dataset"])) else UNPARSED


def _harmless(answer: str, form: re.Pattern[str] | None) -> bool:
    if form is None:
        return True
    names = re.findall("[A-Za-z_][0-9A-Za-z_]*", answer) if form is _ALGEBRA else []
    return form.fullmatch(answer) is not None and all(map(_ALGEBRA_NAME.fullmatch, names))


def deliberate_logic(answer: str, reference: dict[str, Any]) -> list:
    """The score that the data set's own scorer gives: correct at 1, wrong at 0, partial between."""
    try:
        reward = _score(answer, reference)
    except Exception:
        # Some scorers raise on what they cannot read.
        return list(UNPARSED)
    return [reward, "correct" if reward == 1 else "partial" if reward else "wrong"]


def doubt_logic(reference: dict[str, Any]) -> str:
    """Why the entry's own answer would not be rewarded, or nothing. In a worker."""
    answer = reference["entry"]["answer"]
    if answer is None:
        return ""
    if settle_logic(answer.strip(), reference) is not None:
        return "is of a form that is not scored"
    try:
        reward = _score(answer.strip(), reference)
    except Exception as error:
        return f"makes the scorer fail, as where metadata is missing ({type(error).__name__}: {error})"
    return "" if reward == 1 else f"is scored {reward}"


def _score(answer: str, reference: dict[str, Any]) -> float:
    import reasoning_gym

    score, entry = reasoning_gym.get_score_answer_fn(reference["dataset"]), reference["entry"]
    if reference["dataset"] in ("arc_agi", "rearc"):
        # These two compare with grids made of tuples, which JSON made lists.
        entry = entry | {"metadata": {key: _as_tuples(value) for key, value in entry["metadata"].items()}}
    return min(max(float(score(answer=answer, entry=entry)), 0.0), 1.0)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


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
    "math": Family(check_math, find_math, settle_math, deliberate_math, ("math_verify",)),
    "science": Family(check_science, find_math, settle_science, deliberate_science, ("math_verify",)),
    "ifeval": Family(check_ifeval, find_ifeval, settle_ifeval),
    "logic": Family(check_logic, find_logic, settle_logic, deliberate_logic, ("reasoning_gym",), evaluates=True),
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
    taking at most `timeout_s` seconds for one answer, all tests of a program together. `all_or_nothing`: what is right
    in part (tests passed, instructions followed, a score below 1) is wrong. `allow_weak_sandbox`: run model code even
    where sandbox.py's walls are low.
    Raises ValueError as `verify` does, with the position of the item; WeakSandbox where code may not be run.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"`workers` must be a positive integer, or None for a default, got {_shown(workers)}")
    if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < math.inf:
        raise ValueError(f"`timeout_s` must be a positive number of seconds, got {timeout_s}")

    # The list keeps every reference alive: the id of one that is gone could return on another.
    if not isinstance(items, Iterable):
        raise ValueError(f"`items` must be a list of (kind, response, reference), got {_shown(items)}")
    items = list(items)
    golds, judged, open_, keys = {}, {}, {}, []
    for position, item in enumerate(items):
        try:
            if not isinstance(item, (tuple, list)) or len(item) != 3:
                raise ValueError(f"must be (kind, response, reference), got {_shown(item)}")
            kind, response, reference = item
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
    verdicts = [judged[key] for key in keys]
    return [WRONG if all_or_nothing and verdict.reason == "partial" else verdict for verdict in verdicts]


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
    """All conversations in rounds: what each wants to know next goes to the pool, and what two want to know once.

    `timeout_s` is for all of a conversation, but the check of a program that used it up still gets half a second.
    """
    verdicts: dict[Any, Verdict] = {}
    left = dict.fromkeys(conversations, timeout_s)
    waiting = {key: next(conversation) for key, conversation in conversations.items()}
    while waiting:
        askers: dict[Any, list] = {}
        for key, job in waiting.items():
            same = json.dumps([job.function, job.args]) if isinstance(job, Call) else id(job)
            askers.setdefault(same, []).append(key)
        groups = list(askers.values())
        jobs, waiting = [waiting[group[0]] for group in groups], {}
        least = [min(0.5, timeout_s) if isinstance(job, Call) else 0.0 for job in jobs]
        limits = [max(shortest, *(left[key] for key in group)) for shortest, group in zip(least, groups, strict=True)]
        for index, outcome in pool.run(jobs, limits):
            for key in groups[index]:
                left[key] -= outcome.seconds
                try:
                    waiting[key] = conversations[key].send(outcome)
                except StopIteration as stop:
                    verdicts[key] = stop.value
    return verdicts


_pool: Pool | None = None
_pool_lock = threading.Lock()


def _the_pool(workers: int | None, allow_weak: bool) -> Pool:
    """The one pool of this process, made when first needed, and from then on as large as asked for."""
    global _pool
    if _pool is None:
        _pool = Pool()
        atexit.register(_pool.close)
    _pool.workers, _pool.allow_weak = workers or default_workers(), allow_weak
    return _pool


def _forget_the_pool() -> None:
    """A fork of this process makes a pool of its own, whatever another thread was doing with this one."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_the_pool)


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
        raise FileNotFoundError(
            f"no problems at {path}: it must be a file of JSON lines, one problem a "
            "line; a weight is written behind it as a number, FILE.jsonl:0.5"
        )
    problems, numbers = [], []
    # Split as bytes: text lines would also end at U+2028, which JSON allows inside a string.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                problems.append(_read_problem(line))
                numbers.append(number)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    if not problems:
        raise ValueError(f"{path} holds no problem: write one JSON object a line")
    for position, doubt in sorted(_doubts(problems).items()):
        raise ValueError(f"{path}, line {numbers[position]}: {doubt}")
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
    _check_problem(problem)
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


def load_data(specs: list[str], seed: int = 0) -> list[Problem]:
    """The problems of one epoch over several sources, in an order that keeps their weights.

        path.jsonl             a file of problems, see `load_problems`
        hf:NAME                one of HUB, through the package datasets; hf:NAME=PATH reads a local copy of it
        gym:NAME, gym:NAME*N   N (1,000) entries of a data set of Reasoning Gym, generated with `seed`
        SOURCE:WEIGHT          its share of the epoch, in relation to the others' weights; for all sources or for none

    Without weights: the sources one after the other. With weights every source is shuffled by `seed`, and then drawn
    from such that every stretch of the epoch holds the sources as they are weighted. An epoch is as long as it takes
    to see every problem once; smaller sources come round again meanwhile, reshuffled. Call it with another seed for
    another epoch. Every reference is checked, and so is every gold answer: one that the verifier would not accept
    from a policy is reported here, with its row, before a run starts.
    """
    sources, weights = [], []
    for spec in specs:
        source, weight = read_spec(spec)
        sources.append(_load_source(source, seed))
        weights.append(weight)
    if len({weight is None for weight in weights}) > 1:
        raise ValueError(f"give a weight to all sources or to none: {' '.join(specs)}")
    if not sources or weights[0] is None:
        return [problem for problems in sources for problem in problems]
    return _mix(sources, weights, seed)


def read_spec(spec: str) -> tuple[str, float | None]:
    """("SOURCE", weight), or None for the weight where "SOURCE:WEIGHT" has none."""
    source, colon, last = spec.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*\.?[0-9]+", last):
        return spec, None
    if float(last) <= 0:
        raise ValueError(f"the weight in {spec} must be above 0")
    return source, float(last)


def _mix(sources: list[list[Problem]], weights: list[float], seed: int) -> list[Problem]:
    total, rng = sum(weights), random.Random(seed)
    length = math.ceil(max(len(problems) * total / weight for problems, weight in zip(sources, weights, strict=True)))
    if length > MAX_REPEATS * sum(map(len, sources)):
        raise ValueError(
            f"an epoch with these weights has {length} problems: the weights are too far from the sources' sizes. Give "
            "more to the source that is large for its weight, or cut it down"
        )
    drawn, decks, epoch = [0] * len(sources), [[] for _ in sources], []
    for position in range(1, length + 1):
        # The source that is furthest behind its share.
        due = max(range(len(sources)), key=lambda i: position * weights[i] / total - drawn[i])
        if not decks[due]:
            decks[due] = rng.sample(sources[due], len(sources[due]))
        epoch.append(decks[due].pop())
        drawn[due] += 1
    return epoch


MAX_REPEATS = 100


def _load_source(source: str, seed: int) -> list[Problem]:
    kind, _, name = source.partition(":")
    if kind == "gym":
        return _load_gym(name, seed)
    if kind == "hf":
        return _load_hub(name)
    return load_problems(source)


def _load_gym(name: str, seed: int) -> list[Problem]:
    try:
        import reasoning_gym
    except ImportError:
        raise ValueError(f"gym:{name} needs the package reasoning-gym: pip install reasoning-gym") from None
    name, _, size = name.partition("*")
    if name not in reasoning_gym.factory.DATASETS or not re.fullmatch(r"[1-9][0-9]*|", size):
        known = ", ".join(sorted(reasoning_gym.factory.DATASETS))
        raise ValueError(f"gym:{name} is no data set of Reasoning Gym, with an optional *NUMBER. There are {known}")
    try:
        entries = list(reasoning_gym.create_dataset(name, size=int(size or 1000), seed=seed))
    except Exception as error:
        raise ValueError(f"gym:{name} makes no entries with its default settings: {error}") from None
    problems = [gym_problem(name, json.loads(json.dumps(entry, default=str))) for entry in entries]
    doubts = _doubts(problems)
    for position, doubt in sorted(doubts.items()):
        LOG.warning("left out: gym:%s, entry %d: %s", name, position, doubt)
    if len(doubts) == len(problems):
        raise ValueError(f"gym:{name}: the data set's scorer accepts no answer of its own: {doubts[0]}")
    return [problem for position, problem in enumerate(problems) if position not in doubts]


def gym_problem(dataset: str, entry: dict[str, Any]) -> Problem:
    return Problem(f"{entry['question']}\n{ANSWER_SUFFIX}", "logic", {"dataset": dataset, "entry": entry})


MATH_SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."
OPTION_SUFFIX = "Please reason step by step, and put the letter of the right option within \\boxed{}."
ANSWER_SUFFIX = "Think it through step by step, and give your final answer between <answer> and </answer>."
PROGRAM_SUFFIX = "Write a Python program that reads standard input and prints to standard output, in a ```python block."
FUNCTION_SUFFIX = "Write it in Python, complete with its imports, in a ```python block."


def _is_filled(value: Any) -> bool:
    return value not in (None, []) and bool(str(value).strip())


def _text(row: dict, *names: str) -> str:
    """The first of these columns that is filled, as text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        if _is_filled(value):
            return str(value)
    raise ValueError(f"no {' or '.join(names)} in a row with {', '.join(map(str, row))}")


def math_row(row: dict) -> Problem:
    """DeepScaleR, AIME, AMC, MATH, Minerva, OlympiadBench: `answer`, or the last box of the `solution`."""
    question = _text(row, "problem", "question")
    if any(_is_filled(row.get(name)) for name in ("answer", "final_answer")):
        gold = _text(row, "answer", "final_answer").strip()
        gold = gold[1:-1] if re.fullmatch(r"\$[^$]*\$", gold) else gold
    else:
        gold = _last_box(_text(row, "solution")) or ""
    return Problem(f"{question}\n{MATH_SUFFIX}", "math", gold)


def science_row(row: dict) -> Problem | None:
    """SCP-116K: the last box of `matched_solution`, or all of it where it is short. None for the worked solutions,
    whose answer only a reader could find."""
    solution = _text(row, "answer", "extract_solution", "matched_solution").strip()
    gold = _last_box(solution) or re.sub(
        r"^(?:the )?(?:final )?answer(?: is)?\s*:?\s*", "", solution, flags=re.IGNORECASE
    )
    if len(gold) > 100 or "\n" in gold:
        return None
    return Problem(f"{_text(row, 'problem')}\n{MATH_SUFFIX}", "science", gold)


def gpqa_row(row: dict) -> Problem:
    """GPQA: the right option among three wrong ones, in an order that depends on the question alone."""
    question, right = _text(row, "Question").strip(), _text(row, "Correct Answer").strip()
    options = [right, *(_text(row, f"Incorrect Answer {number}").strip() for number in (1, 2, 3))]
    random.Random(question).shuffle(options)
    listed = "\n".join(f"({letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
    return Problem(f"{question}\n\n{listed}\n{OPTION_SUFFIX}", "science", "ABCD"[options.index(right)])


def ifeval_row(row: dict) -> Problem:
    """IFEval, with its `prompt`; Llama-Nemotron, with its messages in `input` and its instructions in `args`."""
    given = row.get("args") or row
    given = json.loads(given) if isinstance(given, str) else given
    kwargs = given.get("kwargs") or given.get("instruction_kwargs")
    kwargs = [json.loads(one) if isinstance(one, str) else one for one in kwargs or []]
    prompt = row.get("prompt") or row.get("input")
    if isinstance(prompt, list):
        prompt = [{"role": message["role"], "content": message["content"]} for message in prompt]
    return Problem(prompt, "ifeval", {"instruction_id_list": given.get("instruction_id_list"), "kwargs": kwargs})


def tests_row(row: dict) -> Problem | None:
    """APPS and TACO: `question` and `input_output`. None for a problem without tests."""
    reference = json.loads(row["input_output"] or "{}")
    if not reference.get("inputs"):
        return None
    starter = row.get("starter_code") or ""
    function = reference.get("fn_name")
    suffix = f"{FUNCTION_SUFFIX}\n{starter}" if function else PROGRAM_SUFFIX
    reference = {name: reference[name] for name in ("inputs", "outputs", "fn_name") if reference.get(name)}
    return Problem(f"{_text(row, 'question')}\n{suffix}", "code", reference)


def eurus_row(row: dict) -> Problem | None:
    """Eurus-2-RL: `prompt` as messages, tests in `reward_model`. None for its mathematics.

    A function's arguments stand one on a line, each as JSON, so that "[1, 2]" is one argument here.
    """
    if row.get("ability") != "code":
        return None
    reference = json.loads(row["reward_model"]["ground_truth"])
    reference = {name: reference[name] for name in ("inputs", "outputs", "fn_name") if reference.get(name)}
    if "fn_name" in reference:
        reference["inputs"] = [
            [json.loads(line) for line in given.split("\n")] if isinstance(given, str) else given
            for given in reference["inputs"]
        ]
    messages = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
    return Problem(messages, "code", reference)


def contests_row(row: dict) -> Problem | None:
    """CodeContests: `description`, and the tests of three columns. None for a problem that reads from a file."""
    if row.get("input_file"):
        return None
    inputs, outputs = [], []
    for name in ("public_tests", "private_tests", "generated_tests"):
        inputs += (row.get(name) or {}).get("input") or []
        outputs += (row.get(name) or {}).get("output") or []
    if not inputs:
        return None
    return Problem(f"{_text(row, 'description')}\n{PROGRAM_SUFFIX}", "code", {"inputs": inputs, "outputs": outputs})


def codeforces_row(row: dict) -> Problem | None:
    """open-r1/codeforces: the statement in parts, and `official_tests`. None where a checker, a dialogue or a file is
    asked for, or where no known solution passes."""
    if row.get("generated_checker") or row.get("interaction_format") or row.get("input_mode", "stdio") != "stdio":
        return None
    if row.get("executable") is False:
        return None
    tests = row.get("official_tests") or row.get("examples") or []
    if not tests:
        return None
    parts = {"title": "", "description": "", "input_format": "Input\n", "output_format": "Output\n", "note": "Note\n"}
    statement = "\n\n".join(head + row[name] for name, head in parts.items() if row.get(name))
    shown = "\n\n".join(f"Input:\n{one['input']}\nOutput:\n{one['output']}" for one in row.get("examples") or [])
    reference = {"inputs": [one["input"] for one in tests], "outputs": [one["output"] for one in tests]}
    return Problem(f"{statement}\n\n{shown}\n{PROGRAM_SUFFIX}", "code", reference)


def humaneval_row(row: dict) -> Problem:
    """HumanEval: the function's head in `prompt`, `check(candidate)` in `test`, which may use what the prompt defines
    above that head."""
    above = row["prompt"].partition(f"def {row['entry_point']}(")[0]
    reference = {"assert_test": f"{above}\n{row['test']}", "entry_point": row["entry_point"]}
    return Problem(f"Complete this function. {FUNCTION_SUFFIX}\n\n{row['prompt']}", "code", reference)


# name -> (data set on the hub, its configuration, its split, row -> problem, or None for a row that is none). Where the
# data set is a loading script, which the package datasets no longer runs: the files of the split in place of its name.
# The first four are the paper's training sets, with `gym:` for Reasoning Gym; the rest are what it evaluates on.
HUB: dict[str, tuple[str, str | None, str, Callable[[dict], Problem | None]]] = {
    "deepscaler": ("agentica-org/DeepScaleR-Preview-Dataset", None, "train", math_row),
    "eurus_code": ("PRIME-RL/Eurus-2-RL-Data", None, "train", eurus_row),
    "scp_116k": ("EricLu/SCP-116K", None, "train", science_row),
    "nemotron_if": ("nvidia/Llama-Nemotron-Post-Training-Dataset", "RL", "instruction_following", ifeval_row),
    "aime24": ("HuggingFaceH4/aime_2024", None, "train", math_row),
    "aime25": ("math-ai/aime25", None, "test", math_row),
    "amc": ("math-ai/amc23", None, "test", math_row),
    "amc_validation": ("AI-MO/aimo-validation-amc", None, "train", math_row),
    "math": ("DigitalLearningGmbH/MATH-lighteval", None, "test", math_row),
    "math_500": ("HuggingFaceH4/MATH-500", None, "test", math_row),
    "minerva": ("math-ai/minervamath", None, "test", math_row),
    "olympiadbench": ("math-ai/olympiadbench", None, "test", math_row),
    "gpqa": ("Idavidrein/gpqa", "gpqa_diamond", "train", gpqa_row),
    "apps": ("hf://datasets/codeparrot/apps/test.jsonl", None, "test", tests_row),
    "taco": ("hf://datasets/BAAI/TACO/ALL/test-*.parquet", None, "test", tests_row),
    "code_contests": ("deepmind/code_contests", None, "test", contests_row),
    "codeforces": ("open-r1/codeforces", None, "test", codeforces_row),
    "humaneval": ("openai/openai_humaneval", None, "test", humaneval_row),
    "ifeval": ("google/IFEval", None, "train", ifeval_row),
}


def _load_hub(name: str) -> list[Problem]:
    name, _, copy = name.partition("=")
    if name not in HUB:
        raise ValueError(f"unknown data set hf:{name}: use one of {', '.join(HUB)}")
    path, config, split, mapping = HUB[name]
    try:
        import datasets
    except ImportError:
        raise ValueError(f"hf:{name} needs the package datasets: pip install datasets") from None
    if copy and not Path(copy).exists():
        raise FileNotFoundError(f"no local copy of hf:{name} at {copy}")
    try:
        if copy and (Path(copy) / "dataset_info.json").exists():
            rows = datasets.load_from_disk(copy)
        elif copy:
            rows = datasets.load_dataset(copy, split="train")
        elif path.startswith("hf://"):
            rows = datasets.load_dataset(
                Path(path).suffix[1:].replace("jsonl", "json"), data_files={split: path}, split=split
            )
        else:
            rows = datasets.load_dataset(path, config, split=split)
    except Exception as error:
        where = copy or f"{path}: hf:{name}=PATH reads a local copy, where there is no network or no right to it"
        raise ValueError(f"hf:{name} could not be read from {where} ({type(error).__name__}: {error})") from None
    return map_rows(f"hf:{name}", rows, mapping)


def map_rows(where: str, rows: Iterable[dict], mapping: Callable[[dict], Problem | None]) -> list[Problem]:
    """The problems of a data set's rows, without those that are none for their mapping.

    A row that is broken, or whose gold answer the verifier would not accept, is reported with its number and left out:
    public data sets have some. ValueError if that is more than one row in ten: then it is the mapping that is wrong.
    """
    problems, refused, number = [], [], -1
    for number, row in enumerate(rows):
        try:
            problem = mapping(row)
            if problem is not None:
                _check_problem(problem)
                problems.append(problem)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            refused.append(f"{where}, row {number}: {type(error).__name__}: {error}")
    if len(refused) * 10 > number + 1 or not problems:
        raise ValueError(refused[0] if refused else f"{where} holds no problem")
    for sentence in refused:
        LOG.warning("left out: %s", sentence)
    return problems


GOLD_TIMEOUT_S = 60.0


def _check_problem(problem: Problem) -> None:
    """Prompt, kind, reference; and a gold answer must be right where it is one."""
    _check_prompt(problem.prompt)
    _check_kind(problem.kind)
    family = KINDS[problem.kind]
    gold = family.check(problem.reference)
    if problem.kind in ("math", "science"):
        answer = family.find(f"\\boxed{{{_unboxed(problem.reference)}}}")
        verdict = NO_ANSWER if answer is None else family.settle(answer, gold)
        if verdict != CORRECT:
            called = verdict.reason if verdict else "open"
            raise ValueError(f"a response that gives this gold answer would be {called}: {_shown(problem.reference)}")


def _doubts(problems: list[Problem]) -> dict[int, str]:
    """Position -> what is wrong with a logic problem's own answer: only the workers can score it."""
    positions = [position for position, problem in enumerate(problems) if problem.kind == "logic"]
    if not positions:
        return {}
    jobs = [Call("doubt_logic", [problems[position].reference], ("reasoning_gym",)) for position in positions]
    doubts = {}
    with _pool_lock:
        for index, outcome in _the_pool(None, False).run(jobs, GOLD_TIMEOUT_S):
            doubt = outcome.value if outcome.status == "ok" else f"ends in a {outcome.status}"
            if doubt:
                answer = problems[positions[index]].reference["entry"]["answer"]
                doubts[positions[index]] = f"the entry's own answer {doubt}: {_shown(answer)}"
    return doubts
