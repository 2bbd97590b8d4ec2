r"""Quantities: a value with its currency, its unit or what it counts, and its direction.

    quantity = words | [currency] value [scale] [percent] [unit [direction] | noun]
                                                                    5 cm   \$5   50\%   8 eggs   6 m/s east
    value    = sum ["\choose" sum | "\over" sum]                    5    {5 \choose 2}    {1 \over 2}

words.py has words. numbers.py has currency, scale and percent. units.py has unit, vocabulary.py has noun and direction.
lookahead.py decides where the value ends.
"""

from collections.abc import Sequence

from kinds.math.cursor import Cursor
from kinds.math.expressions import read_sum
from kinds.math.lexer import Token, Unreadable
from kinds.math.lookahead import tail
from kinds.math.nodes import Node, call, quotient
from kinds.math.numbers import read_currency, read_percent, read_scale
from kinds.math.units import CURRENCIES, Powers, Unit, unit_of
from kinds.math.vocabulary import ORDINALS, noun_of, without_direction
from kinds.math.words import read_words


def read_quantity(cursor: Cursor) -> Node:
    r"""Evelyn    5 cm    \$5    50\%    8 eggs    5 million dollars."""
    if words := read_words(cursor):
        return words
    outer, cursor.currency = cursor.currency, ""
    read_currency(cursor)
    value, degrees = _without_degrees(read_percent(cursor, read_scale(cursor, _read_value(cursor))))
    after = tail(cursor)
    if after is None or (degrees and cursor.currency):
        raise Unreadable(cursor.now.text)
    cursor.at += len(after)
    after, direction = without_direction(after, degrees)
    if after and ((after[0].text in ORDINALS and after[0].spaced) or (not cursor.science and after[0].text == "M")):
        raise Unreadable("5 th    5 M, which may be millions")
    unit = _unit_around("°" if degrees else cursor.currency, after)
    cursor.currency = outer
    aimed = (Node("words", direction),) if direction else ()
    return Node("quantity", unit, (value, *aimed)) if unit else value


def _read_value(cursor: Cursor) -> Node:
    r"""A sum    {5 \choose 2}    {1 \over 2}."""
    value = read_sum(cursor)
    if cursor.takes(r"\choose"):
        return call("binom", value, read_sum(cursor))
    return quotient(value, read_sum(cursor)) if cursor.takes(r"\over") else value


def _without_degrees(value: Node) -> tuple[Node, bool]:
    r"""Is the value a number of degrees? -2\sqrt{3}^\circ has -2\sqrt{3} of them."""
    if value.kind == "call" and value.value == "°":
        return value.parts[0], True
    if value.kind == "call" and value.value in ("neg", "*"):
        last, degrees = _without_degrees(value.parts[-1])
        return value._replace(parts=(*value.parts[:-1], last)), degrees
    return value, False


def _unit_around(before: str, after: Sequence[Token]) -> Unit | None:
    r"""Return the unit of a value, None if it has none. `before` is a currency, ° or "", `after` its words.

    \$29    \$29 per hour    \$29 dollars    \$70,000 profit    5 cm    8 eggs. Unreadable for any other words.
    """
    alone = frozenset([(before, 1)]) if before else None
    if not after:
        return alone
    joined = alone and after[0].text in ("/", "per")
    unit = unit_of([Token("word", before), *after] if joined else after)
    if unit is not None:
        if alone and not joined and unit != alone:
            raise Unreadable("two units")
        return unit
    noun = noun_of(after)
    if not noun or before == "°":
        raise Unreadable(after[0].text)
    return alone or _unit_with_noun(after) or noun


def _unit_with_noun(found: Sequence[Token]) -> Powers | None:
    """Return the unit before a noun: cm of cm long, lb of pounds of apples, but none of miles per trip."""
    for end in range(len(found) - 1, 0, -1):
        unit = unit_of(found[:end])
        if unit is not None:
            price = {name for name, _ in unit} <= CURRENCIES
            return unit if price or found[end].text != "per" else None
    return None
