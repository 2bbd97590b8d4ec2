r"""Units: which letters behind a value are its unit, and which unit.

No unit is converted into another, except degrees and radians (comparison.py).

A unit is the set of its factors with their powers: m/s^2, m s^{-2}, \frac{m}{s^2} and meters per second squared are
{(m, 1), (s, -2)}. Two units are equal if these sets are. tables.py has the names of units.

    unit         = powered_unit {["*" | "/" | "per" | "a"] powered_unit}      N m   m/s^2   J/mol K is J/(mol K)
    powered_unit = [square] (symbol | inner_unit | "\frac" inner_unit inner_unit) [power]   m   (mol K)   \frac{m}{s^2}
    inner_unit   = "(" unit ")" | "{" unit "}"
    square       = "square" | "sq" | "cubic" | "cu"                           square meters   sq. ft.   cubic cm
    power        = ["^"] ["-"] digit | "squared" | "cubed"                    cm^2   s^{-1}   cm2   seconds squared

The hard question of the grammar is whether letters behind a value are its unit or a factor: 5 m, 5 cm, 5x, 5 m/s.
`starts_unit` answers it, by the table STARTS_UNIT for all but a few forms. A unit is looked for at most MAX_TAIL tokens
ahead, and a variable as many back, so the time of the whole grammar is linear in the text.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import kinds.answers.tables as tables
from kinds.answers.clause_ends import ends_clause
from kinds.answers.cursor import Cursor
from kinds.answers.lexer import END, Token, Unreadable, tokens
from kinds.answers.nouns import noun_of, without_direction, words_of

Powers = frozenset[tuple[str, int]]
Unit = Powers | str  # a text is a counted noun
PICOMETER: Powers = frozenset([("pm", 1)])
DEGREES: Powers = frozenset([("°", 1)])
RADIANS: Powers = frozenset([("rad", 1)])
MAX_TAIL = 24


def _symbols() -> dict[str, str]:
    """Return name -> symbol: km and kilometer -> km, ft and foot and feet -> ft. Names have no plural's s."""
    found: dict[str, str] = {}
    for symbol, names in tables.SI.items():
        for prefix, long_prefix in tables.PREFIXES.items():
            shorts = [prefix + name for name in (symbol, *names.split()) if len(name) < 3]
            longs = [long_prefix + name for name in names.split() if len(name) > 2]
            micro = ["u" + symbol] if prefix == "μ" else []  # uF
            found |= dict.fromkeys([prefix + symbol, *shorts, *longs, *micro], prefix + symbol)
    found |= {"Kg": "kg", "KG": "kg", "Km": "km"}  # no other unit has these symbols
    for symbol, names in tables.OTHER.items():  # after SI: a dB is no tenth of a byte
        found |= dict.fromkeys([symbol, *names.split()], symbol)
    return found


SYMBOLS = _symbols()


def symbol_of(name: str) -> str | None:
    """Return the symbol of a unit's name, or of its plural: ft for feet; None for an unknown word."""
    for spelling in (name, name.lower() if len(name) > 2 else name):
        for singular in (spelling, spelling.removesuffix("s") if len(spelling) > 2 else spelling):
            if singular in SYMBOLS:
                return SYMBOLS[singular]
    return None


# What letters behind a value are -> what makes them a unit or a noun, and no factor. "apart": a space stands before
# them; "numeric": the value has no variable; "science": the answer is one of science. The tuple has all that is needed.
STARTS_UNIT = {
    "upright": (),  # 5\text{ m}    8\text{ eggs}    5\ \Omega    9.8 \frac{\text{m}}{\text{s}^2}
    "name": ("apart",),  # 5 cm    9 kg m
    "noun": ("apart",),  # 8 eggs. 5 xyz is a product
    "quotient": ("apart", "numeric"),  # 5 m/s^2. x m/s is a product
    "letter": ("apart", "numeric", "science"),  # 5 m. In math it is a product, as 5x is
}
_AFTER_NUMBER = (*tables.PERCENT, *tables.POWERS_OF_TEN, "per")
_UNSPACED = ("cm", "mm", "km", "kg", "ft", "mph", *tables.ORDINALS)  # 5cm and 5th; 2mg may be a product


def starts_unit(cursor: Cursor, numeric: bool) -> bool:
    """Does a unit or a counted noun follow a value? `numeric`: the value has no variable."""
    kind, text, spaced = cursor.now
    clock = text in ("AM", "PM") or (text in ("am", "pm") and cursor.ahead(-2).text == ":")  # 3 PM    3:00pm
    if text in _AFTER_NUMBER or (kind == "word" and len(text) > 1) or (clock and cursor.before.kind == "number"):
        return True
    apart = spaced or text in _UNSPACED or (cursor.science and (cursor.before.kind == "number" or kind == "sign"))
    weight = text == "mg" and kind == "run" and not numeric  # \mu mg has a weight, no milligram
    variable = kind == "run" and (not apart or (len(text) == 1 and not numeric))  # 5x, x m
    if text in ("e", "i") or weight or variable or (kind == "word" and _was_variable(cursor, text)):
        return False
    found = tail(cursor)
    if not found or (not numeric and cursor.ahead(len(found)).text in tables.RELATIONS):  # \mathrm{\Delta H} = 5
        return False
    facts = {"apart": apart, "numeric": numeric, "science": cursor.science}
    form = _form_of(without_direction(without_bracket(found), False)[0])
    return form in STARTS_UNIT and all(facts[need] for need in STARTS_UNIT[form])


def _was_variable(cursor: Cursor, letter: str) -> bool:
    r"""Does this upright letter stand shortly before, in the clause: the last t of \mathrm{3t^2 + 7t}?"""
    for at in range(cursor.at - 1, max(-1, cursor.at - 1 - MAX_TAIL), -1):
        text = cursor.tokens[at].text
        if text == letter or (ends_clause(cursor, at) and text not in (")", "}")):
            return text == letter
    return False


def _form_of(found: Sequence[Token]) -> str:
    """Return the key of STARTS_UNIT for some words and signs, "" if they are no unit and no noun."""
    runs = [token.text for token in found if token.kind == "run"]
    if unit_of(found) is None:
        long = max(map(len, runs), default=4) > 3 or found[0].text in tables.ORDINALS
        noun = noun_of(found) or _unit_and_words(found)
        return ("noun" if runs else "upright") if noun and long else ""
    if any(len(run) == 1 and run.isascii() for run in runs):
        return "quotient" if any(token.text == "/" for token in found) else "letter"
    return "name" if runs else "upright"


def tail(cursor: Cursor) -> list[Token] | None:
    """The rest of the clause, if it has only words and the signs of units: cm^2, m/(s K), cups of tea; or None."""
    nested = 0
    for end in range(cursor.at, min(cursor.at + MAX_TAIL, len(cursor.tokens))):
        token = cursor.tokens[end]
        if not nested and (ends_clause(cursor, end) or is_smaller(None, cursor.tokens, end)):
            return cursor.tokens[cursor.at : end]
        nested += (token.text in ("(", "{")) - (token.text in (")", "}"))
        power = token.kind == "number" and token.text.isdecimal() and len(token.text) == 1
        if nested < 0 or not (power or token.kind in ("run", "word") or token.text in tables.IN_UNITS):
            return None
    return None


def is_smaller(unit: Unit | None, found: Sequence[Token], at: int) -> bool:
    """Does a number of the next smaller unit follow? `unit` is the unit before it, None if it is the token before."""
    if found[at].kind != "number" or at == 0 or isinstance(unit, str):
        return False
    powers = unit or {(symbol_of(found[at - 1].text), 1)}
    smaller = [tables.SMALLER[name] for name, power in powers if name in tables.SMALLER and power == 1]
    return len(smaller) == len(powers) == 1 and symbol_of(found[at + 1].text) == smaller[0]


def without_bracket(found: list[Token]) -> list[Token]:
    """Write N (to the right) as N to the right, but J/(mol K) stays."""
    opened = [at for at, token in enumerate(found) if token.text == "("]
    if len(opened) != 1 or opened[0] == 0 or found[-1].text != ")":
        return found
    before, inside = found[: opened[0]], found[opened[0] + 1 : -1]
    words = all(token.kind in ("run", "word") for token in (before[-1], *inside))
    return [*before, *inside] if words and unit_of(found) is None else found


def unit_of(found: Sequence[Token]) -> Powers | None:
    """Return the unit that these tokens write, None if they write none."""
    if any(one.text == "per" and two.text == "cent" for one, two in pairwise(found)):  # 98 dollars per cent
        return None
    cursor = _unit_cursor(found)
    try:
        powers = read_unit(cursor)
    except Unreadable:
        return None
    if cursor.now != END or any(abs(powers[name]) > 1 for name in tables.NO_POWERS):  # no dollars squared
        return None
    return frozenset((name, power) for name, power in powers.items() if power) or None


def _unit_and_words(found: Sequence[Token]) -> tuple[Powers, str] | None:
    """Return the unit before a noun, and the noun: cm and "long", lb and "apples", but nothing of miles per trip."""
    for end in range(len(found) - 1, 0, -1):
        if (unit := unit_of(found[:end])) is not None:
            price = {name for name, _ in unit} <= tables.CURRENCIES
            compound = sum(letter.isupper() for token in found[end:] for letter in token.text) > 1
            of = [Token("word", "of")] if compound and found[end].text != "of" else []  # g CO2 is g of CO2
            noun = noun_of([*of, *found[end:]]) and (price or found[end].text != "per")
            return (unit, words_of(found[end:])) if noun else None
    return None


def unit_around(before: str, after: Sequence[Token]) -> tuple[Unit | None, str]:
    r"""Return the unit of a value, None if it has none, and other words. `before` is a currency, ° or "".

    \$29    \$29 per hour    \$29 dollars    \$70,000 profit    5 cm    8 eggs. Unreadable for any other words.
    """
    alone = frozenset([(before, 1)]) if before else None
    if not after:
        return alone, ""
    joined = alone and after[0].text in ("/", "per")
    unit = unit_of([Token("word", before), *after] if joined else after)
    if unit is not None:
        if alone and not joined and unit != alone:
            raise Unreadable("two units")
        return unit, ""
    noun = noun_of(after)
    both = _unit_and_words(after) if not alone else (alone, words_of(after)) if noun else None
    if before == "°" or not (both or noun):
        raise Unreadable(after[0].text)
    return both or (noun, "")


def _unit_cursor(found: Sequence[Token]) -> Cursor:
    r"""Join the names that have several tokens: \mu m, k\Omega, ° C. Drop the full stop of sq. ft."""
    merged: list[Token] = []
    for token, before in zip(found, [END, *found], strict=False):
        text = {r"\mu": "μ", r"\Omega": "Ω"}.get(token.text, token.text)
        last = merged[-1].text if merged else ""
        name = tables.JOINED.get(f"{last} {text}")
        if last == "μ" or (text == "Ω" and last in tables.PREFIXES and last):
            name = last + text
        elif symbol_of(last) == "°" and text.casefold() in tables.SCALES_OF_HEAT:
            name = tables.SCALES_OF_HEAT[text.casefold()]
        if name:
            merged[-1] = Token("word", name, merged[-1].spaced)
        elif token.text != "." or before.kind not in ("run", "word"):  # no full stop of an abbreviation: sq. ft.
            merged.append(token._replace(text=text))
    return Cursor(merged)


def _takes_text(cursor: Cursor, *texts: str) -> bool:
    """Take one of these words or signs, if it comes next."""
    is_next = cursor.now.text in texts
    cursor.at += is_next
    return is_next


def read_unit(cursor: Cursor) -> Counter[str]:
    """N m    m/s^2    miles per hour. Everything after a slash is below it."""
    powers, sign = _read_powered_unit(cursor), 1
    while cursor.now != END and cursor.now.text not in (")", "}"):
        if _takes_text(cursor, "/", "per", "a", "an"):
            sign = -1
        elif not _takes_text(cursor, "*") and cursor.now.text == "-" and cursor.ahead(1).kind == "word":  # N-m
            cursor.take()
        for name, power in _read_powered_unit(cursor, first=False).items():
            powers[name] += sign * power
    return powers


def _read_powered_unit(cursor: Cursor, first: bool = True) -> Counter[str]:
    times = 2 if _takes_text(cursor, "square", "sq") else 3 if _takes_text(cursor, "cubic", "cu") else 1
    if _takes_text(cursor, r"\frac"):
        powers = _read_inner_unit(cursor)
        powers.subtract(_read_inner_unit(cursor))
    else:
        powers = _read_inner_unit(cursor) if cursor.now.text in ("(", "{") else _read_symbol(cursor)
    times *= _read_power(cursor, first)
    return Counter({name: times * power for name, power in powers.items()})


def _read_inner_unit(cursor: Cursor) -> Counter[str]:
    closing = {"(": ")", "{": "}"}.get(cursor.take())
    powers = read_unit(cursor)
    if closing is None or not _takes_text(cursor, closing):
        raise Unreadable("no group")
    return powers


def _read_symbol(cursor: Cursor) -> Counter[str]:
    """feet, which is ft    mph, which is mi/h    newton-meters."""
    text = cursor.take()
    symbol = None if text in tables.COMPOUND else symbol_of(text)
    written = tables.COMPOUND.get(text) or (text.replace("-", " ") if "-" in text else "")
    if symbol is None and written:
        return read_unit(_unit_cursor(tokens(written)))
    if symbol is None:
        raise Unreadable(text)
    return Counter({symbol: 1})


def _read_power(cursor: Cursor, first: bool) -> int:
    """^2    ^{-1}    squared    cm2    m s-1. Nothing is the power 1. s-1 alone may be a difference."""
    if cursor.now.text in ("squared", "cubed"):
        return 2 if cursor.take() == "squared" else 3
    if _takes_text(cursor, "^"):
        braces = _takes_text(cursor, "{")
        power = _read_signed_digit(cursor)
        if braces and not _takes_text(cursor, "}"):
            raise Unreadable("no closing brace")
        return power
    written = "".join("" if token.spaced else token.text for token in (cursor.now, cursor.ahead(1)))
    attached = written[:1] in ("2", "3") or (written in ("-1", "-2", "-3") and not first)
    return _read_signed_digit(cursor) if attached else 1


def _read_signed_digit(cursor: Cursor) -> int:
    sign, digit = -1 if _takes_text(cursor, "-") else 1, cursor.take()
    if not re.fullmatch("[1-9]", digit):
        raise Unreadable(digit)
    return sign * int(digit)
