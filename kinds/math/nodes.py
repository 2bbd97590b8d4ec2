r"""The tree of an answer, which the grammar makes and comparison.py compares. Equal trees are equal answers.

    kind      value                         parts
    number    a Fraction                    the groups of 1,234 as numbers, else none    5, 0.\overline{3}
    decimal   a Fraction                    -                                            0.5
    letter    its name                      -                                            x, F_{n-1}, \alpha', e, π, ∞
    call      + * / ^ neg root ! abs sin    the arguments                                x+1, \sqrt{2}
    base      the base of its digits        the digits as one number                     204_5
    quantity  its unit: see units.py        the number of units, and its direction       5 cm, 8 eggs, 6 m/s east
    words     their letters                 -                                            Evelyn, June 20
    spelled   its letters                   the letters as a product                     HCN, red, mgh, but xy is a call
    option    its letter                    its text                                     C. 5 m/s, in science
    ratio     -                             the terms                                    3:5
    tuple     its brackets                  the items                                    (1,2), [0,1)
    list      "", "and", "or" or "{}"       the items                                    1,2 and unions; 1 or 2; \{1,2\}
    chain     its relations                 the sides                                    x=5, 1<x<2
    matrix    "", or "|" of a determinant   the rows, as tuples                          \begin{pmatrix}1\\2 ...

An example: x = 2\sqrt{3}\text{ cm} is

    chain = (letter x, quantity {(cm, 1)} (call * (number 2, call root (number 3, number 2))))
"""

from fractions import Fraction
from typing import Any, NamedTuple

from kinds.math.lexer import Broken


class Node(NamedTuple):
    """A part of an answer: see the table above."""

    kind: str
    value: Any = ""
    parts: tuple[Any, ...] = ()


def call(operation: str, *parts: Node) -> Node:
    return Node("call", operation, parts)


def number(value: Any) -> Node:
    return Node("number", Fraction(value))


NOTHING = Node("words", "∅")
INFINITY = Node("letter", "∞")
REALS = Node("tuple", "()", (call("neg", INFINITY), INFINITY))


def signed(sign: str, value: Node) -> Node:
    return value if sign == "+" else call("neg" if sign == "-" else sign, value)


def quotient(above: Node, below: Node) -> Node:
    if below == number(0):
        raise Broken("1/0")
    return call("/", above, below)


def list_of(parts: tuple[Node, ...], keep: bool = False) -> Node:
    r"""A list of the parts. A list in it gives its parts: 1,\pm 2. One part alone is no list, unless it is kept."""
    flat = (one for part in parts for one in (part.parts if _is_loose(part) else (part,)))
    return parts[0] if len(parts) == 1 and not keep else Node("list", "", tuple(flat))


def _is_loose(node: Node) -> bool:
    """Is it a list without braces?"""
    return node.kind == "list" and node.value != "{}"


def measured(node: Node) -> tuple[Any, Node]:
    """Return the unit and the value. The unit is None if there is none."""
    return (node.value, node.parts[0]) if node.kind == "quantity" else (None, node)
