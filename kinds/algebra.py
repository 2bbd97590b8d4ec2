r"""Kind "math": reads an expression completely, and compares the values of two.

Recursive descent reads the tokens. A token that no rule takes makes the text unreadable, so no token is skipped.
Ambiguous text is unreadable too: 1/2x, 1/2/3, --5, 2^3^4. So are 0x and 1^2, which hide 0 and 1.

Two expressions are equal if they have the same variables and the same values at four points, two of them negative.
Rational values are exact, others have DIGITS digits. e and i are constants; x(y) is a product. Simplified: factorials,
binomials, absolute values and degrees are not read.
Values have bounds, since 9^{9^{9^9}} would never end: BITS of a fraction, SIZE of any other number.
"""

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from mpmath import mp

BITS = 20_000  # of an exact numerator or denominator
SIZE = 1_000  # bits of another number, before or after the point
DIGITS = 400  # of another number: enough to tell 2^SIZE from 2^SIZE + 1
DEPTH = 40
# The scales of the points. Near 0 a term such as +0.5 counts, far from 0 a term such as x^9 does.
SCALES = [Fraction(4), Fraction(1, 9), Fraction(-1), Fraction(-3)]
TOLERANCE = Fraction(1, 10**6)  # relative, between a decimal and a number in another notation

Value = Any  # Fraction, or a number of mpmath
Code = Callable[[dict[str, Value]], Value]  # variable -> value, to the value of an expression

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega hbar ell"
)
# A variable with its subscript and primes: x, x_1, F_{n-1}, \alpha'.
LETTER = (
    rf"(?:[A-Za-z]|\\(?:{'|'.join(GREEK.split())})(?![A-Za-z]))"
    r"(?:\s*_\s*(?:\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z0-9]))?(?:\s*')*"
)
TOKEN = re.compile(rf"{LETTER}|\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]*)?|\.[0-9]+|\S", re.DOTALL)
FUNCTIONS = {
    r"\sin": mp.sin, r"\cos": mp.cos, r"\tan": mp.tan, r"\cot": mp.cot, r"\sec": mp.sec, r"\csc": mp.csc,
    r"\arcsin": mp.asin, r"\arccos": mp.acos, r"\arctan": mp.atan, r"\ln": mp.ln, r"\exp": mp.exp,
    r"\log": lambda value, base: mp.ln(value) / mp.ln(base),
}  # fmt: skip
_GROUPS = {"(": ")", "[": "]", "{": "}"}


class Unreadable(ValueError):
    """The text is no expression by these rules."""


class Expression(NamedTuple):
    """The value of an expression for given variables, their names, and whether it has a decimal."""

    code: Code
    names: frozenset[str] = frozenset()
    rounded: bool = False


def constant(value: Value, rounded: bool = False) -> Expression:
    """Return a number as an expression."""
    return Expression(lambda point: value, frozenset(), rounded)


def read_expression(text: str) -> Expression | None:
    """Read a whole text as an expression, None if it is none."""
    reader = _Reader(TOKEN.findall(text))
    try:
        code = reader.sum()
    except (Unreadable, RecursionError):
        return None
    return None if reader.next else Expression(code, frozenset(reader.names), "." in text)


class _Reader:
    """Recursive descent over tokens. `next` is the token to read, "" at the end."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.depth = [*tokens, ""][::-1], 0
        self.names: set[str] = set()

    @property
    def next(self) -> str:
        return self.tokens[-1]

    def take(self, wanted: str = "") -> str:
        if not self.next or (wanted and self.next != wanted):
            raise Unreadable(self.next)
        return self.tokens.pop()

    def sum(self) -> Code:
        """[+-] product {+- product}."""
        self.depth += 1
        if self.depth > DEPTH:
            raise Unreadable("too deep")
        total = self.signed(self.product)
        while self.next in ("+", "-"):
            total = _apply(operator.add if self.take() == "+" else operator.sub, total, self.product())
        self.depth -= 1
        return total

    def signed(self, read: Callable[[], Code]) -> Code:
        negative = self.next in ("+", "-") and self.take() == "-"
        return _apply(operator.neg, read()) if negative else read()

    def product(self) -> Code:
        r"""factor {[\cdot] factor}, with at most one slash: a/bc is a/(bc)."""
        total, divided = self.factor(), False
        while True:
            if self.next in ("*", "\\cdot", "\\times"):
                self.take()
                total = _apply(operator.mul, total, self.factor())
            elif self.next in ("/", "\\div") and not divided:
                self.take()
                divided, letter, below = True, self.is_letter(), self.factor()
                while letter and self.starts_factor():
                    below = _apply(operator.mul, below, self.factor())
                total = _apply(operator.truediv, total, below)
            elif self.starts_factor() and not divided:
                total = _apply(operator.mul, total, self.factor())
            else:
                return total

    def is_letter(self) -> bool:
        return bool(re.fullmatch(LETTER, self.next))

    def starts_factor(self) -> bool:
        """Does a factor follow? No number does: x2 and 1 2 are unreadable."""
        named = self.next in FUNCTIONS or self.next in ("\\frac", "\\sqrt", "\\pi")
        return named or self.next in _GROUPS or self.is_letter()

    def factor(self) -> Code:
        """A base with at most one power."""
        first, base = self.next, self.base()
        if (first == "0" and self.starts_factor()) or (first in ("0", "1") and self.next == "^"):
            raise Unreadable("0x, 1^2")
        if self.next == "^":
            self.take()
            base = _apply(_power, base, self.signed(self.base))
        if self.next == "^":
            raise Unreadable("2^3^4")
        return base

    def base(self) -> Code:
        """A group, variable, number, function, root or fraction."""
        if self.next in _GROUPS:
            return self.group()
        if self.is_letter():
            return self.letter()
        token = self.take()
        if re.match(r"\.?[0-9]", token):
            return constant(Fraction(token.rstrip("."))).code
        if token in FUNCTIONS:
            return self.function(token)
        if token == "\\pi":
            return lambda point: +mp.pi
        if token == "\\sqrt":
            degree = self.group() if self.next == "[" else constant(Fraction(2)).code
            return _apply(lambda value, degree: _power(value, 1 / degree), self.argument(), degree)
        if token == "\\frac":
            return _apply(operator.truediv, self.argument(), self.argument())
        raise Unreadable(token)

    def group(self) -> Code:
        """( ), [ ] or { }."""
        closing = _GROUPS[self.take()]
        inside = self.sum()
        self.take(closing)
        return inside

    def letter(self) -> Code:
        name = re.sub(r"[{}\s]", "", self.take())
        if name == "e":
            return lambda point: +mp.e
        self.names.add(name)
        return lambda point: point[name]

    def argument(self) -> Code:
        r"""The argument of \frac or \sqrt: a group, or one digit or letter."""
        if self.next in ("{", "(") or re.fullmatch(r"[0-9]|\\pi", self.next) or self.is_letter():
            return self.base()
        raise Unreadable(self.next)

    def function(self, name: str) -> Code:
        r"""\sin x, \sin^2 x, \log_2 8; \sin 2x\cos y is a product of two."""
        base, power = constant(Fraction(10)).code, None
        if name == "\\log" and self.next == "_":
            self.take()
            base = self.argument()
        if self.next == "^":
            self.take()
            power = self.signed(self.base)
        inside, grouped = (self.group(), True) if self.next in _GROUPS else (self.factor(), False)
        while not grouped and self.starts_factor() and self.next not in FUNCTIONS and self.next not in _GROUPS:
            inside = _apply(operator.mul, inside, self.factor())
        if not grouped and self.next == "/":
            raise Unreadable("\\sin x/2")
        result = _apply(FUNCTIONS[name], *([inside, base] if name == "\\log" else [inside]))
        return _apply(_power, result, power) if power else result


# ------------------------------------------------------------------------------------------------ values


def _real(value: Value) -> Any:
    """Return a fraction as a number of mpmath."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _apply(function: Callable[..., Value], *codes: Code) -> Code:
    """Apply a function to fractions, or to numbers of mpmath if one value is no fraction."""

    def code(point: dict[str, Value]) -> Value:
        values = [code(point) for code in codes]
        exact = all(isinstance(value, Fraction) for value in values)
        return _bounded(function(*(values if exact else map(_real, values))))

    return code


def _bounded(value: Value) -> Value:
    """Raise ArithmeticError for a value that is not finite, or beyond the bounds."""
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > BITS:
            raise ArithmeticError("too long")
    elif not mp.isfinite(value) or (value and abs(mp.mag(value)) > SIZE):
        raise ArithmeticError("too large or too small")
    return value


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > 2 * BITS:
            raise ArithmeticError("too long")
        return base ** int(exponent)
    return mp.power(_real(base), _real(exponent))


# -------------------------------------------------------------------------------------------- comparison


def equal(gold: Expression, answer: Expression) -> bool:
    """Have two expressions the same values? Within TOLERANCE if one has a decimal and the other has none.

    They are compared where one has a value. With variables this must be so at two points or more.
    """
    if gold.names != answer.names:
        return False
    share = TOLERANCE * (gold.rounded != answer.rounded)
    scales, found = SCALES if gold.names - {"i"} else SCALES[:1], 0
    with mp.workdps(DIGITS):
        for at, scale in enumerate(scales):
            # Values that are not whole, different for each variable.
            point = {name: scale * Fraction(2 * ((79 * number + 47 * at) % 97) + 5, 22)
                     for number, name in enumerate(sorted(gold.names), 1)} | {"i": mp.mpc(0, 1)}  # fmt: skip
            a, b = _value(gold.code, point), _value(answer.code, point)
            if (a is None) != (b is None) or (a is not None and not close(a, b, share)):
                return False
            found += a is not None
    return found >= min(2, len(scales))


def close(a: Value, b: Value, share: Fraction = Fraction(0)) -> bool:
    """Is b equal to a, or within a share of it if a is not whole?"""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b or (a.denominator != 1 and abs(a - b) <= share * abs(a))
    a, b, least = _real(a), _real(b), mp.mpf(10) ** (20 - DIGITS)
    whole = abs(a - mp.nint(mp.re(a))) < least
    return max(abs(a), abs(b)) < least or abs(a - b) <= (least if whole or not share else _real(share)) * abs(a)


def _value(code: Code, point: dict[str, Value]) -> Value:
    """Return the value of an expression, None if it has none within the bounds."""
    try:
        return _bounded(code(point))
    except (ArithmeticError, ValueError, TypeError):  # TypeError: complex numbers have no order
        return None
