r"""The tree of an answer: its nodes, which the rules of the grammar return, and the functions that make them.

Equal trees are equal answers. comparison.py finds the other equal ones.

    kind      value                         parts
    number    a Fraction                    the groups of 1,234 as numbers, else none    5, 0.\overline{3}
    decimal   a Fraction                    the number of its decimals                   0.5, 2.50
    rounded   -                             a number of a gold that may be rounded       the gold 8.31, in science
    letter    its name                      -                                            x, F_{n-1}, \alpha', e, π, ∞
    call      + * / ^ neg root ! abs sin    the arguments                                x+1, \sqrt{2}
    base      the base of its digits        the digits as one number                     204_5
    quantity  its unit: see units.py        the number of units, and words behind them   5 cm, 8 eggs, 6 m/s east
    measure   -                             quantities in falling units                  3 hours 5 minutes
    words     their letters                 -                                            Evelyn, June 20
    spelled   its letters                   the letters as a product                     HCN, red, mgh, but xy is a call
    option    its letter                    its text                                     C. 5 m/s, in science
    ratio     -                             the terms                                    3:5
    tuple     its brackets                  the items                                    (1,2), [0,1)
    list      "", "and", "or" or "{}"       the items                                    1,2 and unions; 1 or 2; \{1,2\}
    chain     its relations                 the sides; without a name the first is empty x=5, 1<x<2, \approx 3.46
    family    the letter of any integer     what it is in                                k\pi, k \in \mathbb{Z}
    matrix    "", or "|" of a determinant   the rows, as tuples                          \begin{pmatrix}1\\2 ...
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from kinds.answers.lexer import Broken, Unreadable


class Node(NamedTuple):
    """A part of an answer: see the table above."""

    kind: str
    value: Any = ""
    parts: tuple[Any, ...] = ()


def call(operation: str, *parts: Node) -> Node:
    return Node("call", operation, parts)


def number(value: Any) -> Node:
    return Node("number", Fraction(value))


NO_NAME = Node("")
NOTHING = Node("words", "∅")
INFINITY = Node("letter", "∞")
REALS = Node("tuple", "()", (call("neg", INFINITY), INFINITY))


def signed(sign: str, value: Node) -> Node:
    if sign == "-" and value.kind == "matrix":
        return scaled(number(-1), value)
    return value if sign == "+" else call("neg" if sign == "-" else sign, value)


def quotient(above: Node, below: Node) -> Node:
    if below == number(0):
        raise Broken("1/0")
    return call("/", above, below)


def scaled(factor: Node, matrix: Node) -> Node:
    r"""Multiply every entry: -\begin{pmatrix} 1 \\ 2 \end{pmatrix}. A determinant has no entries."""
    if matrix.value:
        raise Unreadable("2|A|")
    rows = [row._replace(parts=tuple(call("*", factor, entry) for entry in row.parts)) for row in matrix.parts]
    return matrix._replace(parts=tuple(rows))


def renamed(node: Node, old: str, new: str) -> Node:
    """Write a letter as another one, everywhere in a node."""
    if node.kind == "letter":
        return node._replace(value=new) if node.value == old else node
    return node._replace(parts=tuple(renamed(part, old, new) for part in node.parts))


def mentions(node: Node, letter: str) -> bool:
    return renamed(node, letter, "") != node


def list_of(parts: Sequence[Node]) -> Node:
    """A list of the parts. One part alone is no list."""
    return parts[0] if len(parts) == 1 else Node("list", "", flat(parts))


def flat(parts: Sequence[Node]) -> tuple[Node, ...]:
    r"""Return the parts, with the items of each list without braces in its place: 1,\pm 2."""
    loose = [part.parts if part.kind == "list" and part.value != "{}" else (part,) for part in parts]
    return tuple(one for some in loose for one in some)


def measured(node: Node) -> tuple[Any, Node]:
    """Return the unit and the value. The unit is None if there is none."""
    return (node.value, node.parts[0]) if node.kind == "quantity" else (None, node)
