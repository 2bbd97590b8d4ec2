r"""The grammar, from the top: `read` makes a tree of a text, by the rules of this file and of the files below.

Recursive descent. The head of each file shows its rules. The rule NAME is the function read_NAME, or skip_NAME if it
leaves nothing in the tree. A rule takes its own tokens, or raises Unreadable. {x} is any number of x, [x] is x or
nothing, words in quotes are tokens. starts_NAME only looks. The function of the rule above reads a rule without one.

    whole    = [heading] (option | items)
    clause   = {label} [heading] ["\approx"] side {relation side | approximation} [condition]
                                                                      x=5     1 < x \le 2     Total = 5     \approx 3.46
             | cases
    cases    = "\begin{cases}" clause {("\\" | ",") clause} "\end{cases}"
    side     = tokens up to "=" that write a name | union             v(t) =     P(A\cap B) =     \lim_{x\to 2} f =
    union    = ratio {"\cup" ratio} ["\setminus" ratio]               [0,1) \cup \{5\}     \mathbb{R} \setminus \{2\}
    ratio    = quantity {(":" | "to") quantity}                       3:5     7:32     3 \text{ to } 5
    quantity = words | [currency] value [scale] [percent] [unit [words] | noun]
             | quantity ["and" | ","] quantity of the next smaller unit
                                                                      5 cm   \$5   50\%   6 m/s east   5 h 30 min
    value    = sum ["\choose" sum | "\over" sum]                      5    {5 \choose 2}    {1 \over 2}

    words.py         words, label, sentence, heading, condition
    options.py       option
    expressions.py   sum, term, product, divisor, factor, exponent, atom, command, function, argument, letter,
                     subscript
    lists.py         items, bracket, set, matrix
    numbers.py       numeral, mixed, integer, digit, base, ordinal, currency, scale, percent
    units.py         unit, powered_unit, inner_unit, square, power
    nouns.py         noun, which has no rule: any words that cannot change a value
    clause_ends.py   approximation, parameter

cursor.py has the cursor, which every rule gets and moves, and tree.py the nodes of the tree. To add a rule, add a line
to the head of its file, and a function.

Rules read every token, or the answer is unreadable (`Reading.tree` is None): no second answer hides behind the first.
Labels, headings, conditions and the th of 5th are read too, but the tree has nothing of them; words that could change
the value are unreadable there. An unreadable answer is right only as the gold's own text.

Ambiguous text is unreadable too: 1/2x, 1/2/3, --5, 2^3^4. So are 0x, 1^2, 1! and 2!. They are 0, 1, 1 and 2, but nobody
writes these numbers so: the text behind the number is a slip, or an attempt to be paid for any tail.

The time is linear in the text. No rule goes back, except that a label puts its words back if no "=" or ":" follows.
"""

import functools
from typing import NamedTuple

from kinds.answers.clause_ends import approximation_length, find_parameter, starts_to
from kinds.answers.cursor import Cursor
from kinds.answers.expressions import read_sum
from kinds.answers.lexer import END, MAX_LENGTH, Broken, Unreadable, canonical, tokens
from kinds.answers.lists import both_signs, is_parameter, read_items, union, without
from kinds.answers.nouns import without_direction, words_of
from kinds.answers.numbers import read_currency, read_percent, read_scale
from kinds.answers.options import read_option, starts_option
from kinds.answers.tables import APPROX, ORDINALS, RELATIONS
from kinds.answers.tree import NO_NAME, Node, call, list_of, quotient
from kinds.answers.units import PICOMETER, is_smaller, tail, unit_around, without_bracket
from kinds.answers.words import read_words, skip_condition, skip_heading, skip_label
from kinds.patterns import forward

MAX_NAME = 24  # tokens of a name such as P(A\cap B)
_LIMITS = (r"\lim", r"\sum", r"\prod", r"\int")  # they start a name: \lim_{x\to 2} f(x) = 5
# v of v(t), but f(x) is a product for this grammar, and unknowns.py knows that f is a function.
_OF_LETTERS = (*"nvxyrsuBIUJEK", r"\rho", r"\psi", r"\phi", r"\tau", r"\sigma")
_EVENTS = r"[A-Z'\\a-z ]"
_JOINED = r"\\(?:cap|cup|mid)"
_PROBABILITY = rf"P\((?:{_EVENTS}*+\|{_EVENTS}*+|(?:(?!{_JOINED}){_EVENTS})*+{_JOINED}{_EVENTS}*+)\)"
_NAME = forward(rf"{_PROBABILITY}|(?:[a-zA-Z]|\\[a-z]++)\((?:[a-zA-Z]|[0-9]++)\)")
_NAME_BY_BRACKET = {
    "[": forward(r"\[[A-Z][A-Za-z0-9_]*+(?:\^?[0-9]?[+-])?\]"),
    "|": forward(r"\|[A-Z](?:\\c[au]p[A-Z])++\|"),
}
# These letters are no word and no formula, so they are a product, which may have another order: ab, xyz, mgh, nRT.
_REORDERED = forward("[abc]{2,3}+|[xyz]{2,3}+|[b-df-hj-np-tv-xz][B-Zb-df-hj-np-tv-xz]++")


class Reading(NamedTuple):
    """An answer as it was read: its tree, None if it is unreadable, and its tokens as text."""

    tree: Node | None
    text: str


def read(text: str, science: bool = False) -> Reading | None:
    """Read a text; None if it is empty, too long or too deep, or if it can be no answer."""
    return _read(text, science) if len(text) <= MAX_LENGTH else None


@functools.lru_cache(maxsize=100)  # one gold is read for many answers. 100 of the longest texts take about 50 MB
def _read(text: str, science: bool) -> Reading | None:
    try:
        found = tokens(text)
        tree = _read_whole(Cursor(found, read_clause, science)) if found else None
    except Broken:
        return None
    except Unreadable:
        tree = None
    return Reading(tree, canonical(found)) if found else None


def _read_whole(cursor: Cursor) -> Node:
    """One answer, and nothing after it. Letters alone, such as HCN, may be a word, a formula or a product."""
    only_letters = all(token.kind in ("run", "word") for token in cursor.tokens[:-1])
    skip_heading(cursor)
    tree = read_option(cursor) if starts_option(cursor) else list_of(both_signs(read_items(cursor)))
    if cursor.sees(")", "]", r"\}"):
        raise Broken(cursor.now.text)
    if cursor.now != END:
        raise Unreadable(cursor.now.text)
    letters = "".join(part.value for part in tree.parts) if only_letters and tree.value == "*" else ""
    return tree if not letters or _REORDERED.fullmatch(letters) else Node("spelled", letters, tree.parts)


def read_clause(cursor: Cursor) -> Node:
    if cursor.takes(r"\begin{cases}"):
        return _read_cases(cursor)
    skip_label(cursor)
    skip_heading(cursor)
    sides, relations = [NO_NAME if cursor.sees(APPROX) and not cursor.depth else _read_side(cursor)], []
    while (length := approximation_length(cursor, cursor.at)) or cursor.sees(*RELATIONS):
        bracket = cursor.sees("(")
        relations.append(APPROX if length else cursor.now.text)
        cursor.at += length or 1
        sides.append(_read_side(cursor))
        if bracket:
            cursor.take(")")
    clause = Node("chain", tuple(relations), tuple(sides)) if relations else sides[0]
    if not is_parameter(find_parameter(cursor, cursor.at)[0], [clause]):  # `read_items` reads it
        skip_condition(cursor, function=relations == ["="] and sides[0].kind == "call")
    return clause


def _read_cases(cursor: Cursor) -> Node:
    r"""x=3 \\ y=7 \end{cases}, which is x=3 and y=7."""
    clauses = [read_clause(cursor)]
    while not cursor.takes(r"\end{cases}"):
        cursor.take(r"\\", ",")
        clauses.append(read_clause(cursor))
    return Node("list", "and", tuple(clauses))


def _read_side(cursor: Cursor) -> Node:
    r"""v(t) =    P(A\cap B) =    [H^+] =    \lim_{x\to 2} f(x) =: a name that is no product, up to "=". Or a union."""
    text, following = cursor.now.text, cursor.ahead(1).text
    if text in _LIMITS or text in ("[", "|") or (following == "(" and (text in _OF_LETTERS or text == "P")):
        end, nested = cursor.at, 0
        while end < min(cursor.at + MAX_NAME, len(cursor.tokens) - 1) and (nested or cursor.tokens[end].text != "="):
            nested += (cursor.tokens[end].text in ("{", "(", "[")) - (cursor.tokens[end].text in ("}", ")", "]"))
            end += 1
        found = [token.text for token in cursor.tokens[cursor.at : end]]
        name = "".join(part for part in found if part not in ("{", "}", r"\ce"))
        known = text in _LIMITS or _NAME_BY_BRACKET.get(text, _NAME).fullmatch(name)
        if known and cursor.tokens[end].text == "=":
            cursor.at = end
            return Node("letter", name)
    return _read_union(cursor)


def _read_union(cursor: Cursor) -> Node:
    parts = [_read_ratio(cursor)]
    while cursor.takes(r"\cup"):
        parts.append(_read_ratio(cursor))
    if cursor.takes(r"\setminus"):
        return without(union(parts), _read_ratio(cursor))
    return union(parts)


def _read_ratio(cursor: Cursor) -> Node:
    parts = [read_quantity(cursor)]
    while not cursor.no_bar_or_ratio and (cursor.sees(":") or starts_to(cursor, cursor.at)):
        cursor.take()
        parts.append(read_quantity(cursor))
    return Node("ratio", "", tuple(parts)) if len(parts) > 1 else parts[0]


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
    after, direction = without_direction(without_bracket(after), degrees)
    if after and ((after[0].text in ORDINALS and after[0].spaced) or (not cursor.science and after[0].text == "M")):
        raise Unreadable("5 th    5 M, which may be millions")
    unit, noun = unit_around("°" if degrees else cursor.currency, after)
    cursor.currency = outer
    unit = "pm" if unit == PICOMETER and not cursor.science else unit  # 3 pm
    said = (Node("words", words_of(direction) or noun),) if direction or noun else ()
    quantity = Node("quantity", unit, (value, *said)) if unit else value
    joint = cursor.sees("and", ",")
    if not said and is_smaller(unit, cursor.tokens, cursor.at + joint):  # 3 hours and 5 minutes
        cursor.at += joint
        smaller = read_quantity(cursor)
        return Node("measure", "", (quantity, *(smaller.parts if smaller.kind == "measure" else [smaller])))
    return quantity


def _read_value(cursor: Cursor) -> Node:
    value = read_sum(cursor)
    if cursor.takes(r"\choose"):
        return call("binom", value, read_sum(cursor))
    return quotient(value, read_sum(cursor)) if cursor.takes(r"\over") else value


def _without_degrees(value: Node) -> tuple[Node, bool]:
    r"""Is the value a number of degrees? -2\sqrt{3}^\circ has -2\sqrt{3} of them."""
    if value.kind == "call" and value.value == "°":
        return value.parts[0], True
    if value.kind == "call" and value.value in ("neg", "*", "of"):
        last, degrees = _without_degrees(value.parts[-1])
        return value._replace(parts=(*value.parts[:-1], last)), degrees
    return value, False
