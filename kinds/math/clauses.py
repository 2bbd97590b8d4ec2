r"""Clauses: one answer of a list, with its relations, its label and its condition. Unions and ratios.

    clause = {label} [heading] side {relation side} [condition]     x=5     1 < x \le 2     Total = 5
           | cases
    cases  = "\begin{cases}" clause {("\\" | ",") clause} "\end{cases}"
    side   = name | union                                           P(A\cap B) =     [0,1) \cup \{5\}
    union  = ratio {"\cup" ratio} ["\setminus" ratio]               [0,1) \cup \{5\}     \mathbb{R} \setminus \{2\}
    ratio  = quantity {(":" | "to") quantity}                       3:5     7:32     3 \text{ to } 5

RELATIONS in signs.py has the relations. words.py has label, heading and condition, letters.py has name, quantities.py
has quantity.
"""

from fractions import Fraction
from itertools import pairwise

from kinds.math.cursor import Cursor
from kinds.math.letters import read_name
from kinds.math.lexer import Unreadable
from kinds.math.lookahead import starts_to
from kinds.math.nodes import REALS, Node, list_of
from kinds.math.quantities import read_quantity
from kinds.math.signs import RELATIONS
from kinds.math.words import skip_condition, skip_heading, skip_label

_PICOMETERS = frozenset([("pm", 1)])


def read_clause(cursor: Cursor) -> Node:
    r"""x=5    1 < x \le 2."""
    if cursor.takes(r"\begin{cases}"):
        return _read_cases(cursor)
    skip_label(cursor)
    skip_heading(cursor)
    sides, relations = [_read_side(cursor)], []
    while cursor.sees(*RELATIONS):
        relations.append(cursor.take())
        sides.append(_read_side(cursor))
    skip_condition(cursor)
    return Node("chain", tuple(relations), tuple(sides)) if relations else sides[0]


def _read_cases(cursor: Cursor) -> Node:
    r"""x=3 \\ y=7 \end{cases}, which is x=3 and y=7."""
    clauses = [read_clause(cursor)]
    while not cursor.takes(r"\end{cases}"):
        cursor.take(r"\\", ",")
        clauses.append(read_clause(cursor))
    return Node("list", "and", tuple(clauses))


def _read_side(cursor: Cursor) -> Node:
    return read_name(cursor) or _read_union(cursor)


def _read_union(cursor: Cursor) -> Node:
    r"""[0,1) \cup \{5\}    \mathbb{R} \setminus \{2\}."""
    parts = [_read_ratio(cursor)]
    while cursor.takes(r"\cup"):
        parts.append(_read_ratio(cursor))
    if cursor.takes(r"\setminus"):
        return _without(list_of(tuple(parts)), _read_ratio(cursor))
    return list_of(tuple(parts))


def _without(node: Node, points: Node) -> Node:
    r"""\mathbb{R} \setminus \{2\} is (-\infty,2) \cup (2,\infty)."""
    interval = node == REALS or (node.kind == "tuple" and node.value in ("()", "[]", "(]", "[)"))
    if not interval or len(node.parts) != 2 or (points.kind, points.value) != ("list", "{}"):
        raise Unreadable(r"\setminus")
    inside = sorted(points.parts, key=_literal)
    first, last = node.parts
    if node != REALS and not _literal(first) < _literal(inside[0]) <= _literal(inside[-1]) < _literal(last):
        raise Unreadable("a point outside")
    ends = pairwise((first, *inside, last))
    marks = [node.value[0] + ")", *["()"] * (len(inside) - 1), "(" + node.value[1]]
    return Node("list", "", tuple(Node("tuple", mark, pair) for mark, pair in zip(marks, ends, strict=True)))


def _literal(node: Node) -> Fraction:
    """Return the value of 2, 0.5, -2 or 1/2; Unreadable for any other node."""
    if node.kind in ("number", "decimal"):
        return node.value
    if node.kind == "call" and node.value == "neg":
        return -_literal(node.parts[0])
    if node.kind == "call" and node.value == "/" and _literal(node.parts[1]):
        return _literal(node.parts[0]) / _literal(node.parts[1])
    raise Unreadable("no plain number")


def _read_ratio(cursor: Cursor) -> Node:
    r"""3:5    7:32    3 \text{ to } 5."""
    parts = [read_quantity(cursor)]
    while not cursor.no_bar_or_ratio and (cursor.takes(":") or _takes_to(cursor)):
        parts.append(read_quantity(cursor))
    if len(parts) > 1 and parts[-1].value == _PICOMETERS:  # 3:00 pm
        parts[-1] = Node("quantity", "pm", parts[-1].parts)
    return Node("ratio", "", tuple(parts)) if len(parts) > 1 else parts[0]


def _takes_to(cursor: Cursor) -> bool:
    is_next = starts_to(cursor, cursor.at)
    cursor.at += is_next
    return is_next
