r"""Brackets: points, intervals, sets, matrices, absolute values, and parentheses that only group.

    bracket = opening items closing                             (x+1)     (1,2)     [0,1)     |x|     \lfloor x \rfloor
    set     = "\{" items "\}" | "\{" letter bar clause "\}"     \{1,2\}     \{x : x > 1\}
    bar     = ":" | "|" | "\mid"
    matrix  = "\begin" clause {("&" | "\\") clause} "\end"      \begin{pmatrix} 1 \\ 2 \end{pmatrix}

To add a bracket, add its pair to BRACKETS in signs.py. lists.py has items, clauses.py has clause.
"""

from kinds.math.cursor import Cursor
from kinds.math.lexer import END, Broken, Unreadable
from kinds.math.lists import both_signs, read_items
from kinds.math.nodes import NOTHING, REALS, Node, call, list_of
from kinds.math.signs import BRACKETS, MATRICES


def read_bracket(cursor: Cursor) -> Node:
    r"""(x+1)    (1,2)    [0,1)    {x}    |x|    \lfloor x \rfloor."""
    opening = cursor.take()
    closings, function = BRACKETS[opening]
    items, closing = _inside(cursor, closings, opening == "|")
    if function and len(items) == 1:
        return call(function, *items)
    if function:
        raise Unreadable("|1,2|")
    if opening != "{":
        items = _split_groups(items)
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


def _split_groups(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """In brackets, 10,100 is two numbers."""
    return items[0].parts if len(items) == 1 and items[0].kind == "number" and items[0].parts else items


def read_set(cursor: Cursor) -> Node:
    r"""\{1,2\}    \{\}    \{x : x > 1\}, which is x > 1."""
    cursor.take(r"\{")
    if cursor.takes(r"\}"):
        return NOTHING
    items, closing = _inside(cursor, (r"\}", "|", r"\mid", ":"), True)
    if closing == r"\}":
        return Node("list", "{}", list_of(both_signs(_split_groups(items)), keep=True).parts)
    (condition, *more), _ = _inside(cursor, (r"\}",), True)
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
