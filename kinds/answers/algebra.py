r"""Algebra compares the values of two expressions, as trees of tree.py.

Two expressions are equal if they have the same variables and the same values at some points, `_points`. Rational
values are exact, others have DIGITS digits. e, i and \pi are constants; x(y) is a product; in an expression, 30^\circ
is \pi/6.

    expressions         points
    without variables   one
    with variables      four, in two of which all coordinates are negative
    x! \binom{x}{2}      eight with whole coordinates. Points where one expression has no value are left out, but the
                        answer needs one at half of those where the gold is not 0. If only the answer has these
                        functions, it may have no other, whose values repeat at whole points
    \lfloor x \rfloor    the four, two with whole coordinates, and one just below
    \sqrt{x}            the four, and for each variable one in which only it is negative. Points where an expression
                        is not real may be left out, so \sqrt{xy} is \sqrt{x}\sqrt{y}, but \sqrt{x^2} is not x. A
                        logarithm or i forbids this: \ln \sqrt{xy} has its complex values

Values have bounds, since 9^{9^{9^9}} would never end: MAX_FRACTION_BITS for fractions, MAX_REAL_BITS for all others.
"""

import functools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mpmath import mp

from kinds.answers.tree import Node

MAX_FRACTION_BITS = 20_000  # of an exact numerator or denominator
MAX_REAL_BITS = 1_000  # of another number, before or after the point
DIGITS = 400  # of another number: enough to tell 2^MAX_REAL_BITS from 2^MAX_REAL_BITS + 1
LARGEST = 3_000  # of a factorial or binomial
# The scales of the points. Near 0 a term such as +0.5 counts, far from 0 a term such as x^9 does.
POINT_SCALES = [Fraction(4), Fraction(1, 9), Fraction(-1), Fraction(-3)]
MAX_FLIPS = 8  # of variables that are negative alone
OF_WHOLE = {"!", "binom"}  # functions of whole numbers
WHOLE_STEPS = (1, 2, 4, 7, 12, 13, 15, 17)  # odd and even values, and each order of two variables, are among the points
TOLERANCE = Fraction(1, 10**6)  # relative, between a decimal and a number in another notation

Value = Any  # Fraction, or a number of mpmath


def _small(value: Value) -> int:
    if not (isinstance(value, Fraction) and value.denominator == 1 and 0 <= value <= LARGEST):
        raise ArithmeticError("not a small natural number")
    return int(value)


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > 2 * MAX_FRACTION_BITS:
            raise ArithmeticError("too long")
        return base ** int(exponent)
    return mp.power(_real(base), _real(exponent))


# The functions of a `call`. Those of _EXACT give a fraction if all arguments are fractions, else a number of mpmath.
# Those that only _REAL has always give a number of mpmath.
_EXACT: dict[str, Callable[..., Value]] = {
    "+": operator.add, "*": operator.mul, "of": operator.mul, "/": operator.truediv, "neg": operator.neg, "abs": abs,
    "^": _power,
    "root": lambda value, degree: _power(value, 1 / degree), "!": lambda value: Fraction(math.factorial(_small(value))),
    "binom": lambda n, k: Fraction(math.comb(_small(n), _small(k))),
    "floor": lambda value: Fraction(math.floor(value)), "ceil": lambda value: Fraction(math.ceil(value)),
}  # fmt: skip
_REAL: dict[str, Callable[..., Value]] = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc, "arcsin": mp.asin,
    "arccos": mp.acos, "arctan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "ln": mp.ln, "exp": mp.exp,
    "log": lambda value, base=10: mp.ln(value) / mp.ln(base), "°": lambda value: value * mp.pi / 180,
    "floor": mp.floor, "ceil": mp.ceil,
}  # fmt: skip
_CONSTANTS = {"e": lambda: +mp.e, "π": lambda: +mp.pi, "i": lambda: mp.mpc(0, 1)}


def variables(node: Node) -> frozenset[str]:
    """Return the variables of a node."""
    if node.kind == "letter":
        return frozenset() if node.value in _CONSTANTS else frozenset([node.value])
    return frozenset().union(*map(variables, node.parts)) if node.kind == "call" else frozenset()


def has_decimal(node: Node) -> bool:
    """Has an expression a decimal?"""
    return node.kind == "decimal" or (node.kind == "call" and any(map(has_decimal, node.parts)))


def rational(node: Node) -> Fraction | None:
    r"""Return the value of a plain number: 5, -0.5, 1/2, 50%, 6\times10^{23}; None for anything else.

    It takes little time for any node, so it may run in any process.
    """
    if node.kind in ("number", "decimal"):
        return node.value
    if node.kind != "call" or node.value not in ("neg", "/", "*", "^", "+") or len(node.parts) > 3:
        return None
    values = [value for value in map(rational, node.parts) if value is not None]
    whole = node.value != "^" or (values[1:] and values[1].denominator == 1 and abs(values[1]) <= 1_000)
    try:
        return _operate(node.value, values) if len(values) == len(node.parts) and whole else None
    except ArithmeticError:
        return None


def _evaluate(node: Node, point: dict[str, Value]) -> Value:
    """Return the value of an expression, given its variables; ArithmeticError or ValueError if it has none."""
    if node.kind in ("number", "decimal"):
        return node.value
    if node.kind == "letter" and node.value in _CONSTANTS:
        return _CONSTANTS[node.value]()
    if node.kind == "letter" and node.value != "∞":
        return point[node.value]
    if node.kind != "call":
        raise ValueError(f"a {node.kind} has no value")
    return _operate(node.value, [_evaluate(part, point) for part in node.parts])


def _operate(operation: str, values: list[Value]) -> Value:
    """Apply an operation of a `call`."""
    if operation in ("+", "*"):
        return functools.reduce(functools.partial(_apply, _EXACT[operation]), values)
    exact = operation in _EXACT and (operation not in _REAL or all(isinstance(v, Fraction) for v in values))
    function = (_EXACT if exact else _REAL).get(operation)
    if function is None:
        raise ValueError(f"{operation} has no value")
    return _apply(function, *values, real=not exact)


def _apply(function: Callable[..., Value], *values: Value, real: bool = False) -> Value:
    """Apply a function to fractions, or to numbers of mpmath if one value is no fraction."""
    exact = not real and all(isinstance(value, Fraction) for value in values)
    return _bounded(function(*(values if exact else map(_real, values))))


def _real(value: Value) -> Any:
    """Return a fraction as a number of mpmath."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _bounded(value: Value) -> Value:
    """Raise ArithmeticError for a value that is not finite, or beyond the bounds."""
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_FRACTION_BITS:
            raise ArithmeticError("too long")
    elif not mp.isfinite(value) or (value and abs(mp.mag(value)) > MAX_REAL_BITS):
        raise ArithmeticError("too large or too small")
    return value


def equal(gold: Node, answer: Node) -> bool:
    """Have two expressions the same values? Within TOLERANCE if one has a decimal and the other has none.

    At a point where only one of them has a value they differ, except at whole points. If they have variables, both need
    values at two points: real ones, if points where they are not real were left out.
    """
    if variables(gold) != variables(answer):
        return False
    share = TOLERANCE * (has_decimal(gold) != has_decimal(answer))
    of_gold, of_answer = functions_of(gold), functions_of(answer)
    functions = of_gold | of_answer
    whole = bool(of_gold & OF_WHOLE) or bool(
        of_answer & OF_WHOLE and of_answer <= OF_WHOLE | {"+", "neg", "*", "/", "of"}
    )
    roots = "root" in of_gold & of_answer and not functions & {"ln", "log", "i"}
    compared = real = left_out = without = 0
    with mp.workdps(DIGITS):
        points = _points(variables(gold), functions, whole)
        for point in points:
            a, b = _value_or_none(gold, point), _value_or_none(answer, point)
            if a is None or b is None:
                if a is not b and not whole:
                    return False
                without += b is None and bool(a)  # a binomial is 0 where its factorials have no value
                continue
            is_real = not (isinstance(a, mp.mpc) or isinstance(b, mp.mpc))
            if not _close(a, b, share):
                if is_real or not roots:
                    return False
                left_out += 1
                continue
            compared, real = compared + 1, real + is_real
    least = min(2, len(points))
    return compared >= max(least, without) and (real >= least or not left_out)


def is_undefined(expression: Node, variable: Node, point: Node) -> bool:
    """Has an expression of one variable no value at this point, which is a plain number?"""
    value = rational(point)
    if value is None or variables(expression) != {variable.value}:
        return False
    with mp.workdps(DIGITS):
        return _value_or_none(expression, {variable.value: value}) is None


def last_place(node: Node) -> Fraction:
    r"""Return the place value of the last digit of 3.46, 3.46\% and 3.46 \times 10^5; 0 without a decimal point."""
    if node.kind == "decimal":
        return Fraction(10) ** int(-node.parts[0].value)
    if node.kind != "call" or node.value not in ("neg", "*", "/") or len(node.parts) > 2:
        return Fraction(0)
    first, *others = node.parts
    factor = abs(rational(others[0]) or Fraction(0)) if others else Fraction(1)
    if not factor or any(map(has_decimal, others)):
        return Fraction(0)
    return last_place(first) / factor if node.value == "/" else last_place(first) * factor


def has_three_digits(node: Node) -> bool:
    """Has a number a decimal point, and at least three digits?"""
    return 0 < 100 * last_place(node) <= abs(rational(node) or Fraction(0))


def rounds(rounded: Node, exact: Node) -> bool:
    """Is a decimal, such as 3.46, the rounded value of an expression without variables?"""
    distance, center = last_place(rounded) / 2, rational(rounded)
    if not distance or center is None or variables(exact):
        return False
    with mp.workdps(DIGITS):
        value = _value_or_none(exact, {})
        if value is None or isinstance(value, mp.mpc):
            return False
        is_exact = isinstance(value, Fraction)
        return bool(abs(value - center) <= distance if is_exact else abs(value - _real(center)) <= _real(distance))


def proportional(gold: Node, answer: Node) -> bool:
    """Is one expression of several variables a multiple of the other? Then both are 0 at the same points."""
    if variables(gold) != variables(answer) or len(variables(gold)) < 2:
        return False
    ratios = []
    with mp.workdps(DIGITS):
        for point in _sample_points(variables(gold)):
            a, b = _value_or_none(gold, point), _value_or_none(answer, point)
            if not a or not b:
                return False
            ratios.append(_apply(operator.truediv, a, b))
        return all(_close(ratios[0], ratio) for ratio in ratios[1:])


def functions_of(node: Node) -> frozenset[str]:
    """Return the operations of a node that are applied to variables, such as root, and i."""
    if node == Node("letter", "i"):
        return frozenset(["i"])
    own = {node.value} if node.kind == "call" and variables(node) else ()
    return frozenset(own).union(*map(functions_of, node.parts)) if node.kind == "call" else frozenset()


def _points(names: frozenset[str], functions: frozenset[str], whole: bool) -> list[dict[str, Value]]:
    """Return the points at which two expressions are compared, only whole ones if `whole`: see the table above."""
    whole_points = [{name: Fraction(3 + place * step % 19) for place, name in enumerate(sorted(names), 1)}
                    for step in WHOLE_STEPS]  # fmt: skip
    if whole:
        return whole_points
    points = _sample_points(names)
    if functions & {"floor", "ceil"}:
        below = {name: value - Fraction(1, 997) for name, value in whole_points[2].items()}
        points += [*whole_points[:2], below]
    if "root" in functions:
        points += [{**points[0], name: -points[0][name]} for name in sorted(names)[:MAX_FLIPS] if len(names) > 1]
    return points


def _sample_points(names: frozenset[str]) -> list[dict[str, Value]]:
    """Return points whose coordinates are not whole, and different for each variable."""
    return [{name: scale * Fraction(2 * ((79 * place + 47 * row) % 97) + 5, 22)
             for place, name in enumerate(sorted(names), 1)}
            for row, scale in enumerate(POINT_SCALES if names else POINT_SCALES[:1])]  # fmt: skip


def _close(a: Value, b: Value, share: Fraction = Fraction(0)) -> bool:
    """Is b equal to a, or within a share of it if a is not whole?"""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b or (a.denominator != 1 and abs(a - b) <= share * abs(a))
    a, b, least = _real(a), _real(b), mp.mpf(10) ** (20 - DIGITS)
    whole = abs(a - mp.nint(mp.re(a))) < least
    return max(abs(a), abs(b)) < least or abs(a - b) <= (least if whole or not share else _real(share)) * abs(a)


def _value_or_none(node: Node, point: dict[str, Value]) -> Value:
    """Return the value of an expression, None if it has none within the bounds."""
    try:
        return _bounded(_evaluate(node, point))
    except (ArithmeticError, ValueError, TypeError):  # TypeError: complex numbers have no order
        return None
