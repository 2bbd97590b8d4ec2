"""verifiers/math.py: are two expressions equal? By sympy and math-verify, which can hang on what a model wrote.

    tame         may algebra be tried on this text at all?
    algebra      are they equal? In a worker only

sympy's objects are never shown: their repr can hang.
"""

import dataclasses
import functools
import logging
import re
from typing import Any

from verifiers.latex import SYMBOL, TOLERANCE, Form

_HUGE = re.compile(
    r"[^ -~\u0370-\u03ff]|(?<![_^0-9])[0-9]+ [0-9]|[0-9]{5}\s*!|[)}\]!]\s*!|[0-9]{400}|(?<![A-Za-z])[eE][+-]?[0-9]{4}"
    r"|\*\*|\^\s*[{(]?\s*[-+]?\s*[0-9]{5}|\\(?:gcd|lcm)[^A-Za-z]*[A-Za-z]|\\binom[^A-Za-z]*[0-9]{5}"
)
_SMALL_FACTORIAL = re.compile(r"\([0-9]{0,2}[A-Za-z]?(?:[-+][0-9]{0,2}[A-Za-z]?)?\)!(?!\s*!)")  # (n-1)!
MAX_ALGEBRA = 400


def tame(text: str) -> bool:
    """May algebra be tried? Not on towers of powers, huge exponents and factorials, long text: they can hang. Nor on
    numbers side by side, which would be multiplied, on letters that no LaTeX has, and on the gcd of letters, which
    would be 1."""
    return len(text) <= MAX_ALGEBRA and not _HUGE.search(_SMALL_FACTORIAL.sub("n!", text)) and not _is_tower(text)


def _is_tower(text: str) -> bool:
    """Is there a power in an exponent, other than of a variable? e^{x^2} is none, 9^{9^9} and x^{x^{x^2}} are."""
    opened, height, before, raised, was_raised = [], 0, "", False, False
    for symbol in SYMBOL.findall(text.replace(" ", "")):
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


def algebra(gold: Form, answer: Form) -> bool:
    """Are two expressions or relations equal? By their values where they have any, else as math-verify sees it.

    Raises ArithmeticError if the answer cannot be read.
    """
    related = "relation" in (gold.kind, answer.kind)
    left, right = _parsed(gold, related), _parsed(answer, related)
    if right is None and answer.kind == "number" and getattr(left, "is_irrational", False):
        return False  # a repeating decimal, which math-verify does not read
    if right is None or type(right).__name__ in ("BooleanTrue", "BooleanFalse"):  # 0<1 states nothing of the gold
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


@functools.lru_cache(maxsize=64)  # one gold answer is read for each of N rollouts
def _parsed(form: Form, related: bool) -> Any:
    """The form as a sympy object. None if math-verify cannot read it."""
    import math_verify

    text = form.source if form.source and related else form.text
    if not tame(text):
        raise ArithmeticError("too large")
    # It warns that its alarms are off: the worker's deadline stands in for them.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    config = math_verify.LatexExtractionConfig()
    # Units are cut off already: math-verify's rules for them take the h of \frac{1}{2}h for hours.
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
        return bool(agree[0]) if len({bool(same) for same in agree}) == 1 else None if agree[0] else False
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
