r"""The tree of an answer: its nodes, which the rules of the grammar return, and the functions that make them.

Equal trees are equal answers. comparison.py finds the other equal ones.

    kind      value                         parts
    number    a Fraction                    the groups of 1,234 as numbers, else none    5, 0.\overline{3}
    decimal   a Fraction                    the number of its decimals                   0.5, 2.50
    rounded   -                             a number of a gold that may be rounded       the gold 8.31, in science
    letter    its name                      -                                            x, F_{n-1}, \alpha', e, π, ∞
    call      + * / ^ neg root ! abs sin    the arguments                                x+1, \sqrt{2}
    call      of                            two factors, the second in brackets          f(x), also x(x+1)
    base      the base of its digits        the digits as one number                     204_5
    quantity  its unit: see units.py        the number of units, and words behind them   5 cm, 8 eggs, 6 m/s east
    measure   -                             quantities in falling units                  3 hours 5 minutes
    words     their letters                 -                                            Evelyn, June 20
    spelled   its letters                   the letters as a product                     HCN, red, mgh, but xy is a call
    option    its letter                    its text                                     C. 5 m/s, in science
    ratio     -                             the terms                                    3:5
    tuple     its brackets                  the items                                    (1,2), [0,1)
    list      "", "and", "or", "{}" or "∪"  the items                                    1,2    1 or 2    A \cup B
    chain     its relations                 the sides; without a name the first is empty x=5, 1<x<2, \approx 3.46
    family    the letter of any integer     what it is in, and NOTHING if "for all"      k\pi, k \in \mathbb{Z}
    matrix    "", or "|" of a determinant   the rows, as tuples                          \begin{pmatrix}1\\2 ...
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from kinds.answers.lexer import Broken, Unreadable
from kinds.patterns import forward

_POINT = forward("[A-Z](?:_.++)?'*+")  # P, P_1, P'


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


def product(factors: list[Node]) -> Node:
    """Several factors are a product. P(1,2) is the point (1,2) with its name, but C(7,2) is a binomial coefficient."""
    if [factor.kind for factor in factors] == ["letter", "tuple"] and _POINT.fullmatch(factors[0].value):
        name, point = factors
        whole = [part.value for part in point.parts if part.kind == "number" and not part.parts]
        chosen = point.value == "()" and len(whole) == len(point.parts) == 2 and whole[0] >= whole[1]
        return call("binom", *point.parts) if chosen and name.value == "C" else point
    if factors[0].kind != "letter" and any(factor.kind == "words" for factor in factors[1:]):
        raise Unreadable("-2 (double root)")
    matrices = [factor for factor in factors if factor.kind == "matrix"]
    if len(factors) > 1 and matrices:
        if len(matrices) > 1:
            raise Unreadable("a product of matrices")
        return scaled(product([factor for factor in factors if factor.kind != "matrix"]), matrices[0])
    return factors[0] if len(factors) == 1 else call("*", *factors)


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
