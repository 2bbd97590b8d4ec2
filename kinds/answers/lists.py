r"""Lists, and the brackets around them: points, intervals, sets, matrices, absolute values, and mere parentheses.

    items   = clause {("," | ";" | "and" | "or") clause} [parameter]    1, 2    19, 46, and 82    x=1 or x=2    1 \pm 2
    bracket = opening items closing                                 (x+1)    (1,2)    [0,1)    |x|    \lfloor x \rfloor
    set     = "\{" items "\}" | "\{" letter bar clause "\}"         \{1,2\}     \{x : x > 1\}
            | "\{" clause bar letter "\in" "\mathbb{Z}" "\}"         \{k\pi : k \in \mathbb{Z}\}
    bar     = ":" | "|" | "\mid"
    matrix  = "\begin" clause {("&" | "\\") clause} "\end"          \begin{pmatrix} 1 \\ 2 \end{pmatrix}

x=1,y=2 or x=3,y=4 is a list of two points. BRACKETS in tables.py has the brackets, grammar.py the rule clause,
clause_ends.py the rule parameter.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from kinds.answers.algebra import rational
from kinds.answers.clause_ends import find_parameter, starts_condition
from kinds.answers.cursor import Cursor
from kinds.answers.lexer import END, Broken, Unreadable
from kinds.answers.tables import BRACKETS, MATRICES
from kinds.answers.tree import INFINITY, NOTHING, REALS, Node, call, flat, list_of, mentions, signed

MAX_ITEMS = 64


def read_items(cursor: Cursor) -> tuple[Node, ...]:
    """1, 2    19, 46, and 82    x=1 or x=2. A list with a word is one item, and no point."""
    clauses, word, starts = [cursor.read_clause()], "", [0]
    while cursor.sees(",", ";", "and", "or") and not is_parameter(find_parameter(cursor, cursor.at)[0], clauses):
        comma = cursor.takes(",", ";")
        word = cursor.take() if cursor.sees("or") or (cursor.sees("and") and word != "or") else word
        if not comma and word == "or":
            starts.append(len(clauses))
        cursor.takes("and", "or")
        clauses.append(cursor.read_clause())
        if len(clauses) > MAX_ITEMS:
            raise Unreadable("too many items")
    clauses = _as_points(clauses, starts) if len(starts) > 1 else clauses
    for_all = starts_condition(cursor, cursor.at + cursor.sees(",", ";"))
    letter, length = find_parameter(cursor, cursor.at)
    cursor.at += length
    items = (Node("list", word, list_of(both_signs(clauses)).parts),) if word else tuple(clauses)
    family = _family(letter, items) if letter else NOTHING
    return (family._replace(parts=(*family.parts, NOTHING) if for_all else family.parts),) if letter else items


def _family(letter: str, items: Sequence[Node]) -> Node:
    if not is_parameter(letter, items):
        raise Unreadable("5 (k \\in \\mathbb{Z})")
    return Node("family", letter, (list_of(both_signs(items)),))


def is_parameter(letter: str, items: Sequence[Node]) -> bool:
    r"""Is this the k of x = 2k\pi? In x > 2, x \in \mathbb{Z} the letter is the unknown."""
    parts = [part for item in items for part in (item.parts if item.kind == "list" else (item,)) if letter]
    chains = [part for part in parts if part.kind == "chain" and mentions(part, letter)]
    unknown = any({*chain.value} != {"="} or chain.parts[0] == Node("letter", letter) for chain in chains)
    return not unknown and any(mentions(part, letter) for part in parts)


def _as_points(clauses: list[Node], starts: list[int]) -> list[Node]:
    """Make points of x=1,y=2 or x=3,y=4: of the clauses between two words "or", if they name the same unknowns."""
    groups = [clauses[start:end] for start, end in pairwise([*starts, len(clauses)])]
    names = [[str(part.parts[0].value) for part in group if part.kind == "chain"] for group in groups]
    pairs = zip(names, groups, strict=True)
    if not all(len({*one}) == len(group) > 1 and {*one} == {*names[0]} for one, group in pairs):
        return clauses
    return [Node("tuple", "()", tuple(sorted(group, key=lambda part: str(part.parts[0].value)))) for group in groups]


def both_signs(parts: Sequence[Node]) -> tuple[Node, ...]:
    r"""Write each part with \pm as a list of two: first with the upper signs, then with the lower ones."""
    pairs = [(_with_sign(part, 0), _with_sign(part, 1)) for part in parts]
    return tuple(one if one == two else Node("list", "or", flat((one, two))) for one, two in pairs)


def _with_sign(node: Node, which: int) -> Node:
    r"""Return the node with the upper (0) or the lower (1) sign of each \pm and \mp."""
    if node.kind == "call" and node.value in (r"\pm", r"\mp"):
        return signed("+-+"[which + (node.value == r"\mp")], _with_sign(node.parts[0], which))
    return node._replace(parts=tuple(_with_sign(part, which) for part in node.parts))


def read_bracket(cursor: Cursor) -> Node:
    opening = cursor.take()
    closings, function = BRACKETS[opening]
    items, closing = _inside(cursor, closings, opening == "|")
    if function:
        if len(items) > 1 or closing != closings[0]:
            raise Unreadable("|1,2|")
        return call(function, *items)
    if opening != "{":
        items = _split_number(items)
        if len(items) > 1:
            return Node("tuple", opening + closing, items)
        if closing != closings[0]:
            raise Unreadable("(5]")
    return list_of(items)


def _inside(cursor: Cursor, closings: tuple[str, ...], no_bar_or_ratio: bool) -> tuple[tuple[Node, ...], str]:
    """The items up to a closing bracket, and that bracket."""
    outer, cursor.no_bar_or_ratio = cursor.no_bar_or_ratio, no_bar_or_ratio
    items = read_items(cursor)
    cursor.no_bar_or_ratio = outer
    if cursor.now == END:
        raise Broken(f"no {closings[0]}")
    return items, cursor.take(*closings)


def _split_number(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """In brackets, 10,100 is two numbers."""
    return items[0].parts if len(items) == 1 and items[0].kind == "number" and items[0].parts else items


def read_set(cursor: Cursor) -> Node:
    r"""\{1,2\}    \{\}    \{x : x > 1\}, which is x > 1."""
    cursor.take(r"\{")
    if cursor.takes(r"\}"):
        return NOTHING
    items, closing = _inside(cursor, (r"\}", "|", r"\mid", ":"), True)
    if closing == r"\}":
        return Node("list", "{}", flat(both_signs(_split_number(items))))
    (condition, *more), _ = _inside(cursor, (r"\}",), True)
    whole = condition.kind == "chain" and condition.parts[1:] == (Node("letter", r"\mathbbZ"),)
    if whole and len(items) == 1 and items[0].kind != "letter" and condition.parts[0].kind == "letter" and not more:
        return _family(condition.parts[0].value, items)  # \{k\pi : k \in \mathbb{Z}\}
    named = len(items) == 1 and (items[0].kind == "letter" or items[0].parts[1:] == (REALS,))  # x, x \in \mathbb{R}
    clauses = condition.parts if condition.kind == "list" else [condition]
    if not named or more or any(clause.kind != "chain" for clause in clauses):
        raise Unreadable("no condition")
    return condition


def read_matrix(cursor: Cursor, name: str) -> Node:
    r"""a & b \\ c & d \end{pmatrix}. The rows; a last \\ ends no row."""
    if name not in MATRICES:
        raise Unreadable(name)
    end, rows = rf"\end{{{name}}}", [[cursor.read_clause()]]
    while not cursor.takes(end):
        if cursor.take("&", r"\\") == "&":
            rows[-1].append(cursor.read_clause())
        elif not cursor.sees(end):
            rows.append([cursor.read_clause()])
    return Node("matrix", "|" * (name == "vmatrix"), tuple(Node("tuple", "", tuple(row)) for row in rows))


def union(parts: Sequence[Node]) -> Node:
    return list_of(parts)._replace(value="∪") if len(parts) > 1 else parts[0]


def without(node: Node, points: Node) -> Node:
    r"""\mathbb{R} \setminus \{2\} is (-\infty,2) \cup (2,\infty)."""
    if (node.kind, len(node.parts), points.kind, points.value) != ("tuple", 2, "list", "{}"):
        raise Unreadable(r"\setminus")
    ends = [node.parts[0], *sorted(points.parts, key=_place), node.parts[1]]
    if any(_place(one) >= _place(two) for one, two in pairwise(ends)):
        raise Unreadable("a point outside")
    marks = [node.value[0] + ")", *["()"] * (len(points.parts) - 1), "(" + node.value[1]]
    return union([Node("tuple", mark, pair) for mark, pair in zip(marks, pairwise(ends), strict=True)])


def _place(node: Node) -> Fraction | float:
    """Return the value of a plain number or of an infinite end; Unreadable for any other node."""
    if node in REALS.parts:
        return math.inf if node == INFINITY else -math.inf
    if (value := rational(node)) is None:
        raise Unreadable("no plain number")
    return value
