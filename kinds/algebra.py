r"""Kind "math": reads an expression completely, and compares the values of two.

An expression is read by recursive descent over its tokens. A token that no rule takes makes it unreadable, so nothing in
an answer is passed over. Ambiguous text is unreadable too: 1/2x, 1/2/3, --5, 3!!, 2^3^4.

Two expressions are equal if they name the same variables and agree at four points, two of them negative, to 50 digits,
and at the first point to 380. Rational values are exact. e and i are the constants; f(x) is a function, x(y) a product.
Values have bounds, since 9^{9^{9^9}} would never end: BITS of a fraction, SIZE of any other number.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

BITS = 20_000  # of an exact numerator or denominator: 2016! has 19,000
SIZE = 300  # decimal digits before or after the point
DEPTH = 40
TOLERANCE = Fraction(1, 10**6)  # relative, of a decimal beside a number that is none

Value = Any  # Fraction, or a number of mpmath
Code = Callable[[dict[str, Value]], Value]
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]*)?|\.[0-9]+|\S", re.DOTALL)

_ELEMENTARY = "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln exp"
FUNCTIONS = frozenset(f"\\{name}" for name in [*_ELEMENTARY.split(), "log", "lg"])
_INVERSE = {"\\sin": "\\arcsin", "\\cos": "\\arccos", "\\tan": "\\arctan"}
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi chi psi omega"
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega hbar ell nabla partial"
LETTERS = frozenset(f"\\{name}" for name in f"{_GREEK} {_CAPITALS}".split())
_GROUPS = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "|": "|"}


class Unreadable(ValueError):
    """The text is no expression by these rules."""


class Expression(NamedTuple):
    """An expression: its value for given variables, their names, and whether it has a decimal."""

    code: Code
    names: frozenset[str]
    rounded: bool


def read_expression(text: str) -> Expression | None:
    """Read a whole text as an expression, None if it is none."""
    reader = _Reader(TOKEN.findall(text))
    try:
        code = reader.sum()
    except (Unreadable, RecursionError):
        return None
    return None if reader.next else Expression(code, frozenset(reader.names), reader.rounded)


class _Reader:
    """Recursive descent. `next` is the token to read, "" at the end."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth, self.bars = tokens, 0, 0, 0
        self.names: set[str] = set()
        self.rounded = False

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        """Take the next token, one of `wanted` if given."""
        token = self.next
        if not token or (wanted and token not in wanted):
            raise Unreadable(token)
        self.at += 1
        return token

    def sum(self) -> Code:
        """[+-] product {+- product}."""
        self.depth += 1
        if self.depth > DEPTH:
            raise Unreadable("too deep")
        negative = self.take() == "-" if self.next in ("+", "-") else False
        total = self.product()
        if negative:
            total = _apply(operator.neg, total)
        while self.next in ("+", "-"):
            total = _apply(operator.add if self.take() == "+" else operator.sub, total, self.product())
        self.depth -= 1
        return total

    def product(self) -> Code:
        """factor {[\\cdot] factor}, with at most one slash: a/bc is a/(bc)."""
        total, divided = self.factor(), False
        while True:
            if self.next in ("*", "\\cdot", "\\times"):
                self.take()
                total = _apply(operator.mul, total, self.factor())
            elif self.next in ("/", "\\div"):
                if divided:
                    raise Unreadable("a/b/c")
                self.take()
                letter, below, divided = self.is_letter(), self.factor(), True
                while self.starts_factor():
                    if not letter:
                        raise Unreadable("1/2x")
                    below = _apply(operator.mul, below, self.factor())
                total = _apply(_divide, total, below)
            elif self.starts_factor():
                if divided or (self.next[0] in "0123456789." and self.tokens[self.at - 1] != "!"):
                    raise Unreadable("numbers beside each other")
                total = _apply(operator.mul, total, self.factor())
            else:
                return total

    def is_letter(self) -> bool:
        return (self.next.isalpha() and self.next.isascii()) or self.next in LETTERS or self.next == "\\vec"

    def starts_factor(self) -> bool:
        token = self.next
        if token == "|":
            return not self.bars
        named = ("\\frac", "\\sqrt", "\\binom", "\\pi", "\\infty")
        return token[:1] in tuple("0123456789.") or self.is_letter() or token in _GROUPS or token in FUNCTIONS or (
            token in named
        )  # fmt: skip

    def factor(self) -> Code:
        """A base, with ! and a power."""
        plain = self.next in _GROUPS or self.next[:1] in tuple("0123456789") or self.is_letter()
        base = self.base()
        if self.next == "!" and plain:
            self.take()
            base = _apply(_factorial, base)
        if self.next in ("%", "°"):
            part = Fraction(1, 100) if self.take() == "%" else None
            base = _apply(lambda value: value * part if part else value * _mp().pi / 180, base)
        elif self.next == "^":
            self.take()
            base = _apply(_power, base, self.exponent())
        if self.next in ("!", "^", "'", "%", "°", "_"):
            raise Unreadable(self.next)
        return base

    def exponent(self) -> Code:
        if self.next in ("-", "+"):
            negative = self.take() == "-"
            power = self.base()
            return _apply(operator.neg, power) if negative else power
        return self.base()

    def base(self) -> Code:
        token = self.next
        if token[:1] in tuple("0123456789."):
            return self.number()
        if token in _GROUPS:
            return self.group()
        if self.is_letter():
            return self.letter()
        self.take()
        if token in FUNCTIONS:
            return self.function(token)
        if token == "\\pi":
            return lambda point: _mp().pi
        if token == "\\sqrt":
            degree = self.group() if self.next == "[" else None
            inside = self.argument()
            return _apply(_root, inside, degree) if degree else _apply(lambda value: _mp().sqrt(_real(value)), inside)
        if token in ("\\frac", "\\binom"):
            return _apply(_divide if token == "\\frac" else _binomial, self.argument(), self.argument())
        raise Unreadable(token)

    def number(self) -> Code:
        token = self.take()
        self.rounded |= "." in token
        value = Fraction(token.rstrip(".") or "x")
        # 3\frac{1}{2} is three and a half.
        mixed = re.match(r"\\frac \{ ([0-9]+) \} \{ ([0-9]+) \}", " ".join(self.tokens[self.at : self.at + 7]))
        if mixed and value.denominator == 1 and int(mixed[2]):
            self.at += 7
            value += Fraction(int(mixed[1]), int(mixed[2]))
        return lambda point: value

    def group(self) -> Code:
        """( ), [ ], { }, | |, floor and ceiling."""
        opened = self.take()
        self.bars += opened == "|"
        inside = self.sum()
        self.take(_GROUPS[opened])
        self.bars -= opened == "|"
        changes = {"|": abs, "\\lfloor": _floor, "\\lceil": lambda value: -_floor(-value)}
        return _apply(changes[opened], inside) if opened in changes else inside

    def letter(self) -> Code:
        """A variable with its subscript and primes, e or i, or f(...)."""
        name = self.take()
        if name == "\\vec":
            self.take("{")
            name += self.take()
            self.take("}")
        if self.next == "_":
            self.take()
            name += "_" + (self.raw_group() if self.next == "{" else self.take())
        while self.next == "'":
            name += self.take()
        if name == "e":
            return lambda point: _mp().e
        if name.rstrip("'") == "f" and self.next == "(":
            # Any function that is not linear: f(2x) is not 2f(x).
            number = sum(map(ord, name))
            return _apply(lambda value: _mp().sin(number * _real(value)) + number, self.group())
        self.names.add(name)
        return lambda point: point[name]

    def raw_group(self) -> str:
        start = self.at
        self.take("{")
        while self.take() != "}":
            if self.next == "{":
                raise Unreadable("nested subscript")
        return "".join(self.tokens[start + 1 : self.at - 1])

    def argument(self) -> Code:
        """The argument of \\frac or \\sqrt: a group, or one digit or letter."""
        if self.next in ("{", "("):
            return self.group()
        if len(self.next) == 1 and self.next.isdigit():
            return self.number()
        if self.is_letter() or self.next == "\\pi":
            return self.base()
        raise Unreadable(self.next)

    def function(self, name: str) -> Code:
        """\\sin x, \\sin^2 x, \\sin^{-1} x, \\log_2 8, \\sin 2x\\cos y."""
        base, power = None, None
        if name == "\\log" and self.next == "_":
            self.take()
            base = self.group() if self.next == "{" else self.number() if self.next.isdigit() else self.letter()
        if self.next == "^":
            self.take()
            start, power = self.at, self.exponent()
            if "".join(self.tokens[start : self.at]) in ("{-1}", "-1"):
                name, power = _INVERSE.get(name, "\\none"), None
        if self.next in ("(", "{", "|", "["):
            inside = self.group()
        else:
            inside = self.factor()
            while self.starts_factor() and self.next not in FUNCTIONS and self.next not in _GROUPS:
                if self.next[0] in "0123456789.":
                    raise Unreadable("numbers beside each other")
                inside = _apply(operator.mul, inside, self.factor())
            if self.next == "/":
                raise Unreadable("\\sin x/2")
        result = _apply(_logarithm, inside, base) if base else _apply(lambda value: _call(name, value), inside)
        return _apply(_power, result, power) if power else result


def _apply(function: Callable[..., Value], *codes: Code) -> Code:
    return lambda point: _bounded(function(*_alike(code(point) for code in codes)))


def _alike(values: Iterator[Value]) -> list[Value]:
    values = list(values)
    return values if all(isinstance(value, Fraction) for value in values) else [_real(value) for value in values]


def _mp() -> Any:
    from mpmath import mp

    return mp


def _real(value: Value) -> Any:
    """Return a fraction as a number of mpmath."""
    return _mp().mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _bounded(value: Value) -> Value:
    """Raise ArithmeticError for a value without end, or beyond the bounds."""
    if isinstance(value, int):
        value = Fraction(value)
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > BITS:
            raise ArithmeticError("too long")
        return value
    if not _mp().isfinite(value) or abs(_mp().mag(value) if value else 0) > SIZE * 3.3:
        raise ArithmeticError("too large or too small")
    return value


def _divide(a: Value, b: Value) -> Value:
    return a / b


def _is_whole(value: Value) -> bool:
    return isinstance(value, Fraction) and value.denominator == 1


def _power(base: Value, exponent: Value) -> Value:
    # `_alike` has made both exact or none: whole exponents of other bases are made whole again.
    if isinstance(base, Fraction) and _is_whole(exponent):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent) > 2 * BITS:
            raise ArithmeticError("too long")
        return base ** int(exponent)
    base, exponent = _real(base), _real(exponent)
    if base and abs(exponent * _mp().log(base)) > SIZE * 2.4:
        raise ArithmeticError("too large")
    return _mp().power(base, exponent)


def _root(value: Value, degree: Value) -> Value:
    """The real root where there is one."""
    value, degree = _real(value), _real(degree)
    if degree % 2 == 1 and not _mp().im(value) and _mp().re(value) < 0:
        return -_mp().root(-value, int(degree))
    return _power(value, 1 / degree)


def _factorial(value: Value) -> Value:
    if _is_whole(value) and 0 <= value <= 2_100:
        return Fraction(math.factorial(int(value)))
    if _is_whole(value) or abs(value) > 150:
        raise ArithmeticError("too large")
    return _mp().gamma(_real(value) + 1)


def _binomial(n: Value, k: Value) -> Value:
    if _is_whole(n) and _is_whole(k) and 0 <= k <= n <= 10_000:
        return Fraction(math.comb(int(n), int(k)))
    if max(abs(n), abs(k)) > 150:
        raise ArithmeticError("too large")
    return _mp().binomial(_real(n), _real(k))


def _floor(value: Value) -> Value:
    if not isinstance(value, Fraction) and (_mp().im(value) or abs(value - _mp().nint(value)) < 1e-40):
        raise ArithmeticError("undecided")
    return Fraction(math.floor(value) if isinstance(value, Fraction) else int(_mp().floor(_mp().re(value))))


def _logarithm(value: Value, base: Value) -> Value:
    return _mp().log(_real(value)) / _mp().log(_real(base))


def _call(name: str, value: Value) -> Value:
    value = _real(value)
    if abs(value) > (600 if name in ("\\exp", "\\sinh", "\\cosh") else 10**30):
        raise ArithmeticError("too large")
    if name in ("\\ln", "\\log", "\\lg"):
        return _mp().log(value) / (1 if name == "\\ln" else _mp().log(10))
    return getattr(_mp(), name.removeprefix("\\").replace("arc", "a"))(value)


# -------------------------------------------------------------------------------------------- comparison


def _points(names: frozenset[str], steps: tuple[int, ...] = (1, 2, -1, -2)) -> Iterator[dict[str, Value]]:
    """Four points of the variables, two of them negative, none of them whole; one without variables. i is i."""
    for step in steps if names - {"i"} else steps[:1]:
        yield {
            name: _mp().mpc(0, 1) if name == "i" else Fraction(2 * ((7919 * i + 104729 * step) % 97) + 5, 4 * (11 + i) * step)
            for i, name in enumerate(sorted(names), 1)
        }


def _value(code: Code, point: dict[str, Value]) -> Value:
    try:
        return _bounded(code(point))
    except (ArithmeticError, ValueError, TypeError):  # mpmath's words for no value, no order
        return None


def _close(a: Value, b: Value, digits: int, share: Fraction | None) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b if share is None or a.denominator == 1 else abs(a - b) <= share * abs(a)
    a, b = _real(a), _real(b)
    if max(abs(a), abs(b)) < _mp().mpf(10) ** (20 - digits):
        return True
    whole = abs(a - _mp().nint(_mp().re(a))) < _mp().mpf(10) ** (20 - digits)
    return abs(a - b) <= (_real(share) if share and not whole else _mp().mpf(10) ** (20 - digits)) * abs(a)


def equal(gold: Expression, answer: Expression) -> bool:
    """Have two expressions the same values? Within TOLERANCE if one of them has a decimal and the other has none."""
    share = TOLERANCE if gold.rounded != answer.rounded else None
    return gold.names == answer.names and _agree(
        gold.names, lambda a, b, digits: _close(a, b, digits, share), gold, answer
    )


def _agree(names: frozenset[str], close: Callable[[Value, Value, int], bool], a: Expression, b: Expression) -> bool:
    for digits, steps in ((70, (1, 2, -1, -2)), (400, (1,))):
        with _mp().workdps(digits):
            valued = 0
            for point in _points(names, steps):
                left, right = _value(a.code, point), _value(b.code, point)
                if (left is None) != (right is None) or (left is not None and not close(left, right, digits)):
                    return False
                valued += left is not None
            if valued < (2 if len(steps) > 1 and names - {"i"} else 1):
                return False
    return True


def minus(left: Expression, right: Expression) -> Expression:
    code = _apply(operator.sub, left.code, right.code)
    return Expression(code, left.names | right.names, left.rounded or right.rounded)


def near(expression: Expression, value: Fraction, distance: Fraction) -> bool:
    """Is the expression a number within a distance of the value?"""
    exact = None if expression.names else _value(expression.code, {})
    return exact is not None and bool(abs(_real(exact) - _real(value)) <= _real(distance))


def proportional(gold: Expression | None, answer: Expression | None, sign: int) -> bool:
    """Is gold = c * answer with a constant c, of the given sign unless that is 0?"""
    if gold is None or answer is None or gold.names != answer.names or not gold.names - {"i"}:
        return False
    ratio: list[Value] = []

    def close(a: Value, b: Value, digits: int) -> bool:
        if not a or not b:
            return False
        ratio.append(_divide(*_alike(iter((a, b)))))
        return _close(ratio[0], ratio[-1], 70, None)

    agree = _agree(gold.names, close, gold, answer)
    return agree and (sign == 0 or bool(_mp().re(_real(ratio[0])) * sign > 0))
