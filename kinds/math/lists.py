r"""Lists: several clauses with commas, "and" or "or" between them, and the two values of ±.

    items = clause {("," | ";" | "and" | "or") clause}              1, 2    19, 46, and 82    x=1 or x=2    1 \pm 2

x=1,y=2 or x=3,y=4 is a list of two points.
"""

from itertools import pairwise

from kinds.math.cursor import Cursor
from kinds.math.lexer import Unreadable
from kinds.math.nodes import Node, list_of, signed

MAX_ITEMS = 64


def read_items(cursor: Cursor) -> tuple[Node, ...]:
    """1, 2    19, 46, and 82    x=1 or x=2. A list with a word is one item, and no point."""
    clauses, word, starts = [cursor.read_clause()], "", [0]
    while cursor.sees(",", ";", "and", "or"):
        comma = cursor.takes(",", ";")
        word = cursor.take() if cursor.sees("or") or (cursor.sees("and") and word != "or") else word
        if not comma and word == "or":
            starts.append(len(clauses))
        cursor.takes("and", "or")
        clauses.append(cursor.read_clause())
        if len(clauses) > MAX_ITEMS:
            raise Unreadable("too many items")
    clauses = _as_points(clauses, starts) if len(starts) > 1 else clauses
    return (Node("list", word, list_of(both_signs(tuple(clauses))).parts),) if word else tuple(clauses)


def _as_points(clauses: list[Node], starts: list[int]) -> list[Node]:
    """Make points of x=1,y=2 or x=3,y=4: of the clauses between two words "or", if they name the same unknowns."""
    groups = [clauses[start:end] for start, end in pairwise([*starts, len(clauses)])]
    names = [[str(part.parts[0].value) for part in group if part.kind == "chain"] for group in groups]
    same = all(
        len({*one}) == len(group) > 1 and {*one} == {*names[0]} for one, group in zip(names, groups, strict=True)
    )
    if not same:
        return clauses
    return [Node("tuple", "()", tuple(sorted(group, key=lambda part: str(part.parts[0].value)))) for group in groups]


def both_signs(parts: tuple[Node, ...]) -> tuple[Node, ...]:
    r"""Write each part with \pm as a list of two: first with the upper signs, then with the lower ones."""
    return tuple(
        Node("list", "or", list_of((_with_sign(part, 0), _with_sign(part, 1))).parts) if _has_two_signs(part) else part
        for part in parts
    )


def _has_two_signs(node: Node) -> bool:
    return (node.kind == "call" and node.value in (r"\pm", r"\mp")) or any(map(_has_two_signs, node.parts))


def _with_sign(node: Node, which: int) -> Node:
    r"""Return the node with the upper (0) or the lower (1) sign of each \pm and \mp."""
    if node.kind == "call" and node.value in (r"\pm", r"\mp"):
        return signed("+-+"[which + (node.value == r"\mp")], _with_sign(node.parts[0], which))
    return node._replace(parts=tuple(_with_sign(part, which) for part in node.parts))
