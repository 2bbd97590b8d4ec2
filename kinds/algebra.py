r"""Kind "math": reads an expression completely, and compares the values of two.

Recursive descent reads the tokens. A token that no rule takes makes the text unreadable, so no part is skipped.
Ambiguous text is unreadable too: 1/2x, 1/2/3, --5, 3!!, 2^3^4; so are 0x, 1^2 and 2!, which hide 0, 1 and 2.

Two expressions are equal if they have the same variables and agree at four points, two of them negative, to 50 digits,
and at the first point to 380. Rational values are exact. e and i are constants; x(y) is a product.
Values have bounds, since 9^{9^{9^9}} would never end: BITS of a fraction, SIZE of any other number.
"""

import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

BITS = 20_000  # of an exact numerator or denominator: 2016! has 19,000
SIZE = 1_000  # bits of another number, before or after the point
DEPTH = 40
TOLERANCE = Fraction(1, 10**6)  # relative, between a decimal and a number in another notation

Value = Any  # Fraction, or a number of mpmath
Code = Callable[[dict[str, Value]], Value]  # variable -> value, to the value of an expression
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]*)?|\.[0-9]+|\S", re.DOTALL)


def _commands(names: str) -> frozenset[str]:
    return frozenset(f"\\{name}" for name in names.split())


FUNCTIONS = _commands("sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log exp")
LETTERS = _commands(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega hbar ell"
)
_COMMANDS = _commands("frac binom sqrt pi")
_GROUPS = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "|": "|"}


class Unreadable(ValueError):
    """The text is no expression by these rules."""


class Expression(NamedTuple):
    """The value of an expression for given variables, their names, and whether it has a decimal."""

    code: Code
    names: frozenset[str] = frozenset()
    rounded: bool = False


def read_expression(text: str) -> Expression | None:
    """Read a whole text as an expression, None if it is none."""
    reader = _Reader(TOKEN.findall(text))
    try:
        code = reader.sum()
    except (Unreadable, RecursionError):
        return None
    return None if reader.next else Expression(code, frozenset(reader.names), reader.rounded)


class _Reader:
    """Recursive descent over tokens. `next` is the token to read, "" at the end."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.depth, self.bars, self.rounded = [*tokens, ""][::-1], 0, 0, False
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
        return bool(re.fullmatch("[A-Za-z]", self.next)) or self.next in LETTERS

    def is_number(self) -> bool:
        return bool(re.match(r"[0-9]|\.[0-9]", self.next))

    def starts_factor(self) -> bool:
        """Does a factor follow? No number does: x2 and 1 2 are unreadable."""
        opens = self.next in _GROUPS and not (self.next == "|" and self.bars)
        return opens or self.is_letter() or self.next in FUNCTIONS or self.next in _COMMANDS

    def factor(self) -> Code:
        """A base with a factorial, a percent sign or degrees, then a power."""
        first, left, plain = self.next, len(self.tokens), self.is_letter() or self.is_number() or self.next in _GROUPS
        base = self.base()
        hides = {
            "0": self.starts_factor() or self.next in ("^", "%", "!"),
            "1": self.next in ("^", "!"),
            "2": self.next == "!",
        }
        if len(self.tokens) == left - 1 and hides.get(first) and (self.next != "!" or self.depth == 1):
            raise Unreadable("0x, 1^2, 2!")
        if self.next == "!" and plain:
            self.take()
            base = _apply(_factorial, base)
            if self.is_number():  # 2!3!
                return _apply(operator.mul, base, self.factor())
        elif self.next in ("%", "°"):
            share = _constant(Fraction(1, 100)) if self.take() == "%" else _apply(lambda pi: pi / 180, _pi)
            base = _apply(operator.mul, base, share)
        if self.next == "^":
            self.take()
            base = _apply(_power, base, self.signed(self.base))
        if self.next in ("!", "^", "'", "%", "°", "_"):
            raise Unreadable(self.next)
        return base

    def base(self) -> Code:
        if self.next in _GROUPS:
            return self.group()
        if self.is_letter():
            return self.letter()
        token = self.take()
        if re.match(r"[0-9]|\.[0-9]", token):
            self.rounded |= "." in token
            return _constant(Fraction(token.rstrip(".")))
        if token in FUNCTIONS:
            return self.function(token)
        if token == "\\pi":
            return _pi
        if token == "\\sqrt":
            degree = self.group() if self.next == "[" else _constant(Fraction(2))
            return _apply(_root, self.argument(), degree)
        if token in _COMMANDS:
            return _apply(operator.truediv if token == "\\frac" else _binomial, self.argument(), self.argument())
        raise Unreadable(token)

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
        """e, or a variable with its subscript and primes."""
        name = self.take()
        if self.next == "_":
            name += self.take() + self.take()
            while name.count("{") > name.count("}"):
                name += self.take()
            name = name.replace("{", "").replace("}", "")
        while self.next == "'":
            name += self.take()
        if name == "e":
            return lambda point: +_mp().e
        self.names.add(name)
        return lambda point: point[name]

    def argument(self) -> Code:
        r"""The argument of \frac or \sqrt: a group, or one digit or letter."""
        if self.next in ("{", "(") or re.fullmatch(r"[0-9]|\\pi", self.next) or self.is_letter():
            return self.base()
        raise Unreadable(self.next)

    def function(self, name: str) -> Code:
        r"""\sin x, \sin^2 x, \sin^{-1} x, \log_2 8; \sin 2x\cos y is a product of two."""
        base, power = _constant(Fraction(10)), None
        if name == "\\log" and self.next == "_":
            self.take()
            base = self.argument()
        if self.next == "^":
            self.take()
            inverse = "".join(self.tokens[:-6:-1]).startswith("{-1}")
            power = self.signed(self.base)
            name, power = (name.replace("\\", "\\arc"), None) if inverse else (name, power)
        if name not in FUNCTIONS:
            raise Unreadable(name)
        inside, grouped = (self.group(), True) if self.next in _GROUPS else (self.factor(), False)
        while not grouped and self.starts_factor() and self.next not in FUNCTIONS and self.next not in _GROUPS:
            inside = _apply(operator.mul, inside, self.factor())
        if not grouped and self.next == "/":
            raise Unreadable("\\sin x/2")
        result = _apply(lambda value, base: _call(name, value, base), inside, base)
        return _apply(_power, result, power) if power else result


# ------------------------------------------------------------------------------------------------ values


def _mp() -> Any:
    from mpmath import mp

    return mp


def _constant(value: Fraction) -> Code:
    return lambda point: value


def _pi(point: dict[str, Value]) -> Value:
    return +_mp().pi


def _real(value: Value) -> Any:
    """Return a fraction as a number of mpmath."""
    return _mp().mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


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
    elif not _mp().isfinite(value) or (value and abs(_mp().mag(value)) > SIZE):
        raise ArithmeticError("too large or too small")
    return value


def _is_whole(*values: Value) -> bool:
    return all(isinstance(value, Fraction) and value.denominator == 1 for value in values)


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and _is_whole(exponent):
        if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > 2 * BITS:
            raise ArithmeticError("too long")
        return base ** int(exponent)
    base, exponent = _real(base), _real(exponent)
    if base and abs(exponent * _mp().log(base)) > SIZE:
        raise ArithmeticError("too large")
    return _mp().power(base, exponent)


def _root(value: Value, degree: Value) -> Value:
    """Return the real root if there is one."""
    value, degree = _real(value), _real(degree)
    if degree % 2 == 1 and not _mp().im(value) and _mp().re(value) < 0:
        return -_power(-value, 1 / degree)
    return _power(value, 1 / degree)


def _factorial(value: Value) -> Value:
    if _is_whole(value) and 0 <= value <= 2_100:
        return Fraction(math.factorial(int(value)))
    if _is_whole(value) or abs(value) > 150:
        raise ArithmeticError("too large")
    return _mp().gamma(_real(value) + 1)


def _binomial(n: Value, k: Value) -> Value:
    if _is_whole(n, k) and 0 <= k <= n <= 10_000:
        return Fraction(math.comb(int(n), int(k)))
    return _factorial(n) / (_real(_factorial(k)) * _real(_factorial(n - k)))


def _floor(value: Value) -> Value:
    if not isinstance(value, Fraction):
        raise ArithmeticError("undecided")
    return Fraction(math.floor(value))


def _call(name: str, value: Value, base: Value) -> Value:
    value = _real(value)
    if abs(value) > SIZE and name != "\\ln" and name != "\\log":
        raise ArithmeticError("too large")
    if name == "\\log":
        return _mp().log(value) / _mp().log(_real(base))
    return getattr(_mp(), name[1:].replace("arc", "a"))(value)


# -------------------------------------------------------------------------------------------- comparison


def equal(gold: Expression, answer: Expression) -> bool:
    """Have two expressions the same values? Within TOLERANCE if one has a decimal and the other has none."""
    share = TOLERANCE if gold.rounded != answer.rounded else None
    return _agree(gold, answer, lambda a, b, digits: _close(a, b, digits, share))


def minus(left: Expression, right: Expression) -> Expression:
    code = _apply(operator.sub, left.code, right.code)
    return Expression(code, left.names | right.names, left.rounded or right.rounded)


def near(expression: Expression, value: Fraction, distance: Fraction) -> bool:
    """Is the expression a number within a distance of the value?"""
    exact = None if expression.names else _value(expression.code, {})
    return exact is not None and bool(abs(_real(exact) - _real(value)) <= _real(distance))


def proportional(gold: Expression | None, answer: Expression | None, sign: int) -> bool:
    """Is gold = c * answer with a constant c, of the given sign unless that is 0?"""
    if gold is None or answer is None or not gold.names - {"i"}:
        return False
    ratios: list[Value] = []

    def close(a: Value, b: Value, digits: int) -> bool:
        ratios.append(_real(a) / _real(b) if a and b else math.nan)
        return bool(a and b) and _close(ratios[0], ratios[-1], 70, None)

    return _agree(gold, answer, close) and (sign == 0 or bool(_mp().re(ratios[0]) * sign > 0))


def _agree(gold: Expression, answer: Expression, close: Callable[[Value, Value, int], bool]) -> bool:
    """Are the values close at all points that have some? First cheaply at four points, then at one with more digits."""
    if gold.names != answer.names:
        return False
    variables = bool(gold.names - {"i"})
    for digits, scales in ((70, (1, 4, -1, -3)), (400, (1,))):
        found = 0
        with _mp().workdps(digits):
            for scale in scales if variables else (1,):
                point = {name: _at(number, scale) for number, name in enumerate(sorted(gold.names), 1)}
                point |= {"i": _mp().mpc(0, 1)}
                a, b = _value(gold.code, point), _value(answer.code, point)
                if (a is None) != (b is None) or (a is not None and not close(a, b, digits)):
                    return False
                found += a is not None
        if found < (2 if variables and len(scales) > 1 else 1):
            return False
    return True


def _at(number: int, scale: int) -> Fraction:
    """Return a value for a variable that is not whole."""
    return Fraction(2 * ((79 * number + 47 * abs(scale)) % 97) + 5, 22) * scale


def _value(code: Code, point: dict[str, Value]) -> Value:
    try:
        return _bounded(code(point))
    except (ArithmeticError, ValueError, TypeError):  # no value, or no order for complex numbers
        return None


def _close(a: Value, b: Value, digits: int, share: Fraction | None) -> bool:
    """Is b equal to a, or within a share of it if a is not whole?"""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b if share is None or a.denominator == 1 else abs(a - b) <= share * abs(a)
    a, b, small = _real(a), _real(b), _mp().mpf(10) ** (20 - digits)
    whole = abs(a - _mp().nint(_mp().re(a))) < small
    return max(abs(a), abs(b)) < small or abs(a - b) <= (small if share is None or whole else _real(share)) * abs(a)
