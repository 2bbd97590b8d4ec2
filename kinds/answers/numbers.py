r"""Numbers, and what stands right beside a number: its base, the th of 5th, a currency, million, percent.

    numeral  = number [mixed | ("\overline" | "\dot") braced | "repeating" | "\ldots"]
                                                                               12   1,234   0.1\overline{6}    0.333...
    mixed    = "\frac" integer integer | number "/" number                     the 1/2 of 3\frac{1}{2} and 3 1/2
    integer  = "{" number "}" | digit
    digit    = one digit of a number                                           the 1 and the 2 of \frac12
    base     = "_" braced | ["("] ["in"] "base" (number | word) [")"]          204_5     204 in base 5
    ordinal  = "^" "th"                                                        5^{\text{th}}
    currency = "\$" | "USD" | ...                                              \$5     USD 5
    scale    = "hundred" | "thousand" | "million" | ...                        5 million
    percent  = "%" | "percent" | "per" "cent"                                  50\%

A number is one token, with its groups of three digits, its point and its exponent: see lexer.py. `braced` is one
token, or tokens in braces (`Cursor.take_group`).
"""

from fractions import Fraction

from kinds.answers.cursor import Cursor
from kinds.answers.lexer import END, Broken, Unreadable
from kinds.answers.tables import CURRENCIES, ORDINALS, PERCENT, POWERS_OF_TEN, SPELLED_NUMBERS
from kinds.answers.tree import Node, call, number
from kinds.answers.units import SYMBOLS
from kinds.patterns import forward

MAX_EXPONENT = 1_000  # of a power of ten: 1e999999999 would be computed
_TWO_INTEGERS = forward(r"(?:\{[0-9]++\}|[0-9]){2}(?![0-9])")  # after \frac, in 3\frac{1}{2}


def read_numeral(cursor: Cursor) -> Node:
    r"""12    1,234    0.5    6.02e23    3\frac{1}{2}    3 1/2    0.1\overline{6}."""
    text = "0" if cursor.sees(".") else cursor.take()  # .\overline{7}
    if cursor.ahead(1).text in (r"\overline", r"\dot") and cursor.takes("."):
        text += "."
    if "." in text and cursor.takes(r"\overline", r"\dot"):
        return _repeating(text, cursor.take_group())
    if cursor.now.text in ("repeating", "recurring") and text[-2:-1] == "." and "," not in text:  # one digit
        cursor.take()
        return _repeating(text[:-1], text[-1])
    if "." in text and cursor.takes(r"\ldots"):
        return _repeating(*_period(text))
    if abs(int(text.lower().partition("e")[2] or 0)) > MAX_EXPONENT:
        raise Broken("too large")
    if text.isdecimal():
        return number(int(text) + _read_mixed(cursor))
    value = Fraction(text.replace(",", ""))
    if "." in text:
        digits, _, exponent = text.lower().partition("e")
        return Node("decimal", value, (number(len(digits.partition(".")[2]) - int(exponent or 0)),))
    groups = [] if ",0" in text else text.split(",")
    return Node("number", value, tuple(map(number, groups[1:] and groups)))


def _period(text: str) -> tuple[str, str]:
    r"""Return 0.1 and 6 of 0.1666\ldots, 0. and 12 of 0.1212\ldots: one digit three times, or all decimals twice."""
    whole, _, decimals = text.partition(".")
    if decimals[-3:] == decimals[-1] * 3:
        return f"{whole}.{decimals.rstrip(decimals[-1])}", decimals[-1]
    half = decimals[: len(decimals) // 2]
    if len(half) < 2 or half * 2 != decimals:
        raise Unreadable(text)
    return f"{whole}.", half


def _repeating(before: str, again: str) -> Node:
    r"""0.1\overline{6} is 1/6."""
    if not again.isdecimal() or len(again) > 50 or not before.replace(".", "", 1).isdecimal():
        raise Unreadable(again)
    scale = 10 ** len(before.partition(".")[2])
    return number(Fraction(before + "0") + Fraction(int(again), scale * (10 ** len(again) - 1)))


def _read_mixed(cursor: Cursor) -> Fraction | int:
    r"""The \frac{1}{2} of 3\frac{1}{2} and the 1/2 of 3 1/2, after a whole number; else 0."""
    if cursor.sees(r"\frac"):
        if not _TWO_INTEGERS.match("".join(cursor.ahead(distance).text for distance in range(1, 7))):
            return 0
        cursor.take()
        above, below = _read_integer(cursor), _read_integer(cursor)
    else:
        first, slash, second = (cursor.ahead(distance) for distance in range(3))
        if not (first.spaced and first.text.isdecimal() and slash.text == "/" and second.text.isdecimal()):
            return 0
        cursor.at += 3
        above, below = int(first.text), int(second.text)
    if below == 0:
        raise Broken("1/0")
    return Fraction(above, below)


def _read_integer(cursor: Cursor) -> int:
    if not cursor.takes("{"):
        return read_digit(cursor)
    cursor.enter()
    value = int(cursor.take())
    cursor.depth -= 1
    cursor.take("}")
    return value


def read_digit(cursor: Cursor, alone: bool = False) -> int:
    r"""The 1 of \frac12, which cuts 12 in two. `alone`: the number must have one digit only, as after \sqrt."""
    text = cursor.now.text
    if len(text) > 1 and (alone or not text.isdecimal()):
        raise Unreadable(text)
    return int(cursor.take_character())


def read_base(cursor: Cursor, digits: Node) -> Node:
    r"""204_5    204 \text{ base } 5    204 in base 5    204 (base 5). Digits without a base, or in base ten, stay."""
    if cursor.takes("_"):
        name = cursor.take_group()
    else:
        bracketed = cursor.sees("(")
        place = bracketed + (cursor.ahead(bracketed).text == "in")
        if cursor.ahead(place).text != "base" or cursor.ahead(place + 1) == END:
            return digits
        cursor.at += place + 1
        name = cursor.take()
        if bracketed:
            cursor.take(")")
    if not name:
        return digits
    name = name.casefold().removeprefix("base")
    base = SPELLED_NUMBERS.get(name) or (int(name) if name.isdecimal() and len(name) < 4 else 0)
    if base < 2 or digits.parts:
        raise Unreadable(name)
    return digits if base == 10 else Node("base", base, (digits,))


def skip_ordinal(cursor: Cursor) -> None:
    r"""5^{\text{th}}: the th says nothing."""
    braces = cursor.ahead(1).text == "{"
    ending = cursor.ahead(1 + braces)
    if cursor.sees("^") and ending.text in ORDINALS and ending.kind == "word":
        cursor.at += 2 + 2 * braces


def read_currency(cursor: Cursor) -> None:
    r"""\$5    USD 5    \$130 - \$60, with one currency. The cursor remembers it, since its number comes after it."""
    cursor.at += cursor.now.text == "US" and cursor.ahead(1).text == r"\$"  # US\$5
    currency = SYMBOLS.get(cursor.now.text, "")
    number_follows = cursor.ahead(1).kind in ("number", "sign")
    if currency in CURRENCIES and number_follows and cursor.currency in ("", currency):
        cursor.currency = currency
        cursor.take()


def read_scale(cursor: Cursor, value: Node) -> Node:
    while cursor.now.text in POWERS_OF_TEN:
        value = call("*", value, number(10 ** POWERS_OF_TEN[cursor.take()]))
    return value


def read_percent(cursor: Cursor, value: Node) -> Node:
    """The % of 50%, percent or per cent. 7 + 50% is unreadable."""
    per_cent = cursor.now.text == "per" and cursor.ahead(1).text == "cent"
    if not per_cent and cursor.now.text not in PERCENT:
        return value
    if value.value == "+":
        raise Unreadable("7 + 50%")
    cursor.at += 1 + per_cent
    return call("/", value, number(100))
