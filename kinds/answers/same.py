r"""Are two trees the same answer? `same` is the whole question; the dict _SAME has a function for each kind of node.

A gold may have a name: the x of x=5. An answer may then leave it out, or give the same one. unknowns.py knows names,
algebra.py compares values, units.py units.
"""

import re
from collections.abc import Sequence

from kinds.answers.algebra import equal, proportional, variables
from kinds.answers.tables import RELATIONS, SPELLED_NUMBERS
from kinds.answers.tree import Node, call, measured, number
from kinds.answers.units import DEGREES, same_unit
from kinds.answers.unknowns import NO_NAME, interval, is_equation, may_name, owns

_OF_X = frozenset([*"rstuvxyz", r"\theta"])  # the variable of an antiderivative


def same(gold: Node, answer: Node, name: Node = NO_NAME) -> bool:
    """Are two trees the same answer? The gold may have a name: x, if it is the 5 of x=5."""
    if gold == answer:
        return True
    if is_equation(gold):
        return _same_as_equation(gold, answer)
    if is_equation(answer):
        return _claims(gold, answer, name)
    if gold.kind == "number" and (word := _letters(answer)) in SPELLED_NUMBERS:
        return gold.value == SPELLED_NUMBERS[word]
    (gold_name, gold), (answer_name, answer) = interval(gold), interval(answer)
    if len({name, gold_name, answer_name} - {NO_NAME}) > 1:  # x>5 is not y>5
        return False
    if {gold.kind, answer.kind} == {"list", "tuple"} and {gold_name, answer_name} != {NO_NAME}:  # 1<x<2 is not 1,2
        return False
    kind = next((kind for kind in _SAME if kind in (gold.kind, answer.kind)), "")
    return _SAME.get(kind, _same_quantities)(gold, answer, name)


def _same_parts(golds: Sequence[Node], answers: Sequence[Node]) -> bool:
    return len(golds) == len(answers) and all(map(same, golds, answers))


def _same_as_equation(gold: Node, answer: Node) -> bool:
    """Is the answer the same equation, or 5 for the gold x=5?"""
    if is_equation(answer) and (_same_relations(gold, answer) or _same_curve(gold, answer)):
        return True
    return owns(gold.parts[0]) and same(gold.parts[-1], answer, gold.parts[0])


def _same_relations(gold: Node, answer: Node, name: Node = NO_NAME) -> bool:
    """Have two relations the same sides, in the same or the reversed order? x+y<9 and 9>x+y."""
    if gold.kind != answer.kind:
        return False
    turned = tuple(RELATIONS[relation] for relation in answer.value[::-1])
    if gold.value == turned and _same_parts(gold.parts, answer.parts[::-1]):
        return True
    return gold.value == answer.value and _same_parts(gold.parts, answer.parts)


def _same_curve(gold: Node, answer: Node) -> bool:
    """Is one equation of several variables a multiple of the other: 2x+4y=6 and y=(3-x)/2?"""
    if not gold.value == answer.value == ("=",):
        return False
    a, b = (call("+", left, call("neg", right)) for left, right in (gold.parts, answer.parts))
    return proportional(a, b)


def _claims(gold: Node, answer: Node, name: Node) -> bool:
    r"""Is every side of the answer's equation the gold, or a name for it? In x \in A only x may be the name."""
    answer = _sorted_names(answer, name)
    if answer.value == (r"\in",):
        return may_name(answer.parts[0], gold, name) and same(gold, answer.parts[1])
    sides = [side for side in answer.parts if not may_name(side, gold, name)]
    return bool(sides) and all(same(gold, side) for side in sides)


def _sorted_names(answer: Node, name: Node) -> Node:
    """Write (y,x)=(7,3) as (x,y)=(3,7): in the order of the gold's name, or by the alphabet."""
    unknowns = [part.value for part in answer.parts[0].parts if part.kind == "letter"]
    if answer.parts[0].kind != "tuple" or len({*unknowns}) < len(answer.parts[0].parts):
        return answer
    order = _order(unknowns, name)
    if not all(len(side.parts) == len({*unknowns}) for side in answer.parts) or not {*unknowns} <= {*order}:
        return answer
    places = sorted(range(len(unknowns)), key=lambda at: order.index(unknowns[at]))
    sides = (side._replace(parts=tuple(side.parts[at] for at in places)) for side in answer.parts)
    return answer._replace(parts=tuple(sides))


def _order(unknowns: list[str], name: Node) -> list[str]:
    r"""Return unknowns in the order of the gold's name, or of a point: a,b    x,y. Greek letters, as r,\theta, stay."""
    if name.kind == "tuple":
        return [part.value for part in name.parts]
    return unknowns if any(unknown.startswith("\\") for unknown in unknowns) else sorted(unknowns)


def _same_items(gold: Node, answer: Node, name: Node) -> bool:
    """Compare tuples in order, lists in any order. A list with commas, or x=1 and y=2, may stand for a point."""
    gold, answer = _split_groups(gold, answer), _split_groups(answer, gold)
    node_kinds = {gold.kind, answer.kind}
    if node_kinds == {"list", "tuple"}:
        gold, answer = _as_point(gold, name), _as_point(answer, name)
    marks = {gold.value, answer.value}
    if node_kinds == {"tuple"} or (node_kinds == {"list", "tuple"} and marks == {"", "()"}):
        return (len(marks) == 1 or "" in marks) and _same_parts(gold.parts, answer.parts)
    if marks == {"", "[]"} and len(gold.parts) > 2:  # a list in brackets, since an interval has two ends
        return _same_parts(gold.parts, answer.parts)
    if "list" not in node_kinds:
        return False
    if "and" in marks and len(marks) > 1 and any(interval(part)[0] != NO_NAME for part in gold.parts + answer.parts):
        return False  # x<1 and x>3 is no union
    golds, answers = ([*node.parts] if node.kind == "list" else [node] for node in (gold, answer))
    names, answer_names = _names_in_order(golds), _names_in_order(answers)
    if {*names} != {*answer_names} or len({*names}) < len(names):
        loose = marks <= {"", "and", "or"} and (names or gold.value == "") and (answer_names or answer.value == "")
        return bool(loose) and _same_parts(golds, answers)
    for part in golds:
        match = next((at for at, other in enumerate(answers) if same(part, other)), None)
        if match is None:
            return False
        answers.pop(match)
    return not answers


def _split_groups(node: Node, other: Node) -> Node:
    """Read 100,200 as two numbers if the other answer has two. 10,200 is always one, and so is 100,000."""
    groups = node.parts if node.kind == "number" and other.kind in ("list", "tuple") else ()
    split = 0 < len(groups) == len(other.parts) and all(group.value >= 100 for group in groups)
    return Node("list", "", groups) if split else node


def _as_point(node: Node, name: Node) -> Node:
    """Order y=2,x=1 and "y=2 and x=1" as the name (x,y) says, or by the alphabet. Other lists keep their order."""
    unknowns = _names_in_order([*node.parts]) if node.kind == "list" and node.value in ("", "and") else []
    if not unknowns:
        names_given = [part.parts[0] for part in node.parts if node.kind == "list" and is_equation(part)]
        point = not names_given or len({*names_given}) == len(node.parts)  # x=1, x=2 and x=1,2 are none
        return node if point else node._replace(value="or")
    order = _order(unknowns, name)
    if len({*unknowns}) < len(unknowns) or not {*unknowns} <= {*order}:
        return node._replace(value="")
    return Node("list", "", tuple(part for _, part in sorted(zip(map(order.index, unknowns), node.parts, strict=True))))


def _names_in_order(parts: list[Node]) -> list[str]:
    """Return the names that order a list, as in x=1,y=2. In x_1=1,x_2=2 both are values of x, in any order."""
    sides = [part.parts[0] if is_equation(part) else interval(part)[0] for part in parts]
    unknowns = [str(side.value).partition("_")[0] if side.kind == "letter" else "" for side in sides]
    return unknowns if all(unknowns) and len({*unknowns}) > 1 else []


def _same_matrices(gold: Node, answer: Node, name: Node) -> bool:
    """Compare the rows; a matrix of one row or column may be written as a tuple."""
    if gold.kind == answer.kind:
        return gold.value == answer.value and _same_parts(gold.parts, answer.parts)
    a, b = (_as_tuple(node) for node in (gold, answer))
    return a.kind == b.kind == "tuple" and _same_parts(a.parts, b.parts)


def _as_tuple(node: Node) -> Node:
    if node.kind == "call" and node.value == "binom":
        return Node("tuple", "()", node.parts)
    if node.kind != "matrix" or node.value:
        return node
    entries = tuple(entry for row in node.parts for entry in row.parts)
    return Node("tuple", "()", entries) if len(entries) == max(len(node.parts), len(node.parts[0].parts)) else node


def _same_spelling(gold: Node, answer: Node, name: Node) -> bool:
    """Compare texts of letters in their order, such as HCN. Letter case counts, except in a word: red and Red."""
    a, b = gold.value if gold.kind == "spelled" else "", _spelling(answer)
    if a and b:
        word = (a.islower() or (a.istitle() and len(a) > 2)) and re.search("[aeiou]", a.lower() if len(a) > 2 else a[0])
        yes = a.casefold() in ("yes", "no", "odd") and a != "NO"
        cases = (a.lower(), a.upper(), a.title())
        return a == b or (yes and a.casefold() == b.casefold()) or bool(word and b in cases)
    products = (Node("call", "*", node.parts) if node.kind == "spelled" else node for node in (gold, answer))
    return same(*products)


def _same_words(gold: Node, answer: Node, name: Node) -> bool:
    a, b = _letters(gold), _letters(answer)
    return a == b and len(a) > 1  # R is not \text{r}


def _letters(node: Node) -> str:
    """Return the letters of words, or of a product of letters: odd is o times d times d."""
    if node.kind == "words":
        return str(node.value)
    return _spelling(node).casefold()


def _spelling(node: Node) -> str:
    """Return the letters of a product of letters, "" for another node."""
    parts = node.parts if node.kind == "spelled" or (node.kind == "call" and node.value == "*") else (node,)
    return "".join(part.value for part in parts) if all(part.kind == "letter" for part in parts) else ""


def _same_options(gold: Node, answer: Node, name: Node) -> bool:
    """Compare the letters of C. 5 m/s and C, and the texts too if both have one."""
    letters = [node.value if node.kind in ("option", "letter") else None for node in (gold, answer)]
    texts = gold.parts and answer.parts
    return letters[0] == letters[1] and (not texts or same(gold.parts[0], answer.parts[0]))


def _same_ratios(gold: Node, answer: Node, name: Node) -> bool:
    if gold.kind != answer.kind:
        return False
    zeros = [[measured(part)[1] == number(0) for part in node.parts] for node in (gold, answer)]
    return zeros[0] == zeros[1] and _same_parts(gold.parts, answer.parts)


def _same_quantities(gold: Node, answer: Node, name: Node) -> bool:
    """Compare the values, the units and the directions of two expressions."""
    (gold_unit, gold_value), (answer_unit, value) = measured(gold), measured(answer)
    aims = [node.parts[1] for node in (gold, answer) if node.kind == "quantity" and len(node.parts) > 1]
    if not same_unit(gold_unit, answer_unit) or (len(aims) > 1 and aims[0] != aims[1]):
        return False
    if {gold_unit, answer_unit} == {DEGREES, None}:
        degrees, plain = (gold_value, value) if gold_unit else (value, gold_value)
        if _has_pi(plain):  # 90^\circ and \pi/2. A gold of 36\pi degrees may be answered without them
            return equal(call("°", degrees), plain) or (gold_unit == DEGREES and equal(gold_value, value))
    value = _with_constant(gold_value, value)
    return gold_value == value or equal(gold_value, value)


def _has_pi(node: Node) -> bool:
    return node == Node("letter", "π") or any(map(_has_pi, node.parts))


def _with_constant(gold: Node, answer: Node) -> Node:
    """Write x^2 + c and x^2 + K as x^2 + C, if the gold ends so and has one variable."""
    last, constant = answer.parts[-1:], Node("letter", "C")
    ends = gold.value == answer.value == "+" and gold.parts[-1] == constant and last[0].value in ("c", "K", "k")
    others = variables(gold) - {"C"}
    in_x = len(others) == 1 and others < _OF_X
    if not ends or last[0].value in variables(gold) or "C" in variables(answer) or not in_x:
        return answer
    rest = answer._replace(parts=answer.parts[:-1])
    return answer if variables(last[0]) & variables(rest) else answer._replace(parts=(*rest.parts, constant))


# The first kind in this order that one of the two nodes has gives the function. Of all other kinds it is the last one.
_SAME = {
    "spelled": _same_spelling,
    "option": _same_options,
    "words": _same_words,
    "matrix": _same_matrices,
    "list": _same_items,
    "tuple": _same_items,
    "chain": _same_relations,
    "ratio": _same_ratios,
}
