r"""Are two trees the same answer? `same` is the whole question.

The dict _SAME has a function for some kinds of node, and all others are compared as quantities. A gold may have a name:
the x of x=5. An answer may then leave it out, or give the same one. unknowns.py knows names, algebra.py compares
values, units.py units.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import kinds.answers.unknowns as unknowns
from kinds.answers.algebra import (
    equal,
    has_decimal,
    has_three_digits,
    is_undefined,
    last_place,
    proportional,
    rational,
    rounds,
    variables,
)
from kinds.answers.tables import APPROX, CURRENCIES, RELATIONS, SPELLED_NUMBERS
from kinds.answers.tree import NO_NAME, Node, call, measured, mentions, number, renamed
from kinds.answers.units import DEGREES, RADIANS

_OF_X = frozenset([*"rstuvxyz", r"\theta"])  # the variable of an antiderivative


def same(gold: Node, answer: Node, name: Node = NO_NAME) -> bool:
    """Are two trees the same answer? The gold may have a name: x, if it is the 5 of x=5."""
    if gold == answer:
        return True
    if "family" in (gold.kind, answer.kind):
        return _same_families(gold, answer, name)
    if answer.kind == "list" and answer.value == "or" and gold.kind != "list":
        return len({*answer.parts}) == len(answer.parts) and all(same(gold, part, name) for part in answer.parts)
    if answer.kind == "list" and answer.value == "" and gold.kind in ("call", "chain") and _has_domain(answer):
        return same(gold, answer.parts[0], name)
    if unknowns.is_equation(gold):
        return _same_as_equation(gold, answer)
    if unknowns.is_equation(answer):
        return _claims(gold, answer, name)
    if gold.kind == "number" and (word := _letters(answer)) in SPELLED_NUMBERS:
        return gold.value == SPELLED_NUMBERS[word]
    (gold_name, gold), (answer_name, answer) = unknowns.interval(gold), unknowns.interval(answer)
    if len({name, gold_name, answer_name} - {NO_NAME}) > 1:  # x>5 is not y>5
        return False
    if {gold.kind, answer.kind} == {"list", "tuple"} and {gold_name, answer_name} != {NO_NAME}:  # 1<x<2 is not 1,2
        return False
    kind = next((kind for kind in _SAME if kind in (gold.kind, answer.kind)), "")
    return _SAME.get(kind, _same_quantities)(gold, answer, name)


def _has_domain(answer: Node) -> bool:
    r"""Does \frac{1}{x-1}, x \ne 1 only add where the expression has no value?"""
    expression, *conditions = answer.parts
    expression = expression.parts[-1] if expression.kind == "chain" else expression
    return expression.kind == "call" and all(
        condition.value == (r"\ne",) and is_undefined(expression, *condition.parts) for condition in conditions
    )


def _same_parts(golds: Sequence[Node], answers: Sequence[Node]) -> bool:
    return len(golds) == len(answers) and all(map(same, golds, answers))


def _same_as_equation(gold: Node, answer: Node) -> bool:
    """Is the answer the same equation, or 5 for the gold x=5? 2x+4y=6 and y=(3-x)/2 are one equation."""
    if unknowns.is_equation(answer):
        if _same_relations(gold, answer):
            return True
        differences = [call("+", node.parts[0], call("neg", node.parts[1])) for node in (gold, answer)]
        if gold.value == answer.value == ("=",) and proportional(*differences):
            return True
    if APPROX in gold.value and not unknowns.is_named(gold):  # 2\sqrt{3} \approx 3.46
        return any(same(side, answer) for side in gold.parts if side != NO_NAME)
    return unknowns.is_named(gold) and same(gold.parts[-1], answer, gold.parts[0])


def _same_relations(gold: Node, answer: Node, name: Node = NO_NAME) -> bool:
    """Have two relations the same sides, in the same or the reversed order? x+y<9 and 9>x+y."""
    if gold.kind != answer.kind:
        return False
    turned = tuple(RELATIONS[relation] for relation in answer.value[::-1])
    if gold.value == turned and _same_parts(gold.parts, answer.parts[::-1]):
        return True
    return gold.value == answer.value and _same_parts(gold.parts, answer.parts)


def _claims(gold: Node, answer: Node, name: Node) -> bool:
    r"""Is every side of the answer's equation the gold, or a name for it? In x \in A only x may be the name."""
    answer = unknowns.sorted_names(answer, name)
    if answer.value == (r"\in",):
        return unknowns.may_name(answer.parts[0], gold, name) and same(gold, answer.parts[1])
    sides = [side for side in answer.parts if side != NO_NAME and not unknowns.may_name(side, gold, name)]
    if APPROX in answer.value:
        rounded = answer.parts[answer.value.index(APPROX) + 1 :]
        return _approximates(gold, [side for side in sides if side not in rounded], rounded)
    return bool(sides) and all(same(gold, side) for side in sides)


def _approximates(gold: Node, exact: Sequence[Node], rounded: Sequence[Node]) -> bool:
    r"""2\sqrt{3} \approx 3.46: is each side the rounded side before it, and is the exact or the rounded one the gold?

    Without an exact side, as in x \approx 3.46, the gold must have a decimal point, or three digits in science: about
    5.0 may be 4.96.
    """
    steps = [*((side, rounded[0]) for side in exact), *pairwise(rounded)]
    if not all(same(side, after) or _rounds_to(after, side) for side, after in steps):
        return False
    if exact and all(same(gold, side) for side in exact):
        return True
    value = measured(gold)[1]
    decimal = value.kind == "rounded" or (has_three_digits(value) if exact else last_place(value) != 0)
    return decimal and same(gold, rounded[-1])


def _rounds_to(rounded: Node, exact: Node) -> bool:
    return _same_units(rounded, exact) and rounds(measured(rounded)[1], measured(exact)[1])


def _same_families(gold: Node, answer: Node, name: Node) -> bool:
    r"""Compare k\pi, k \in \mathbb{Z} with n\pi, n \in \mathbb{Z}. The answer may only leave out "for all"."""
    if answer.kind != "family":
        return len(gold.parts) > 1 and same(gold.parts[0], answer, name)
    inside = answer.parts[0]
    if gold.kind == "family":
        if gold.value != answer.value and mentions(inside, gold.value):
            return False
        gold, inside = gold.parts[0], renamed(inside, answer.value, gold.value)
    return same(gold, inside, name)


def _same_items(gold: Node, answer: Node, name: Node) -> bool:
    """Compare tuples in order, lists in any order. A list with commas, or x=1 and y=2, may stand for a point."""
    gold, answer = _split_groups(gold, answer), _split_groups(answer, gold)
    if "list" not in (gold.kind, answer.kind):
        gold, answer = _as_tuple(gold), _as_tuple(answer)
    node_kinds = {gold.kind, answer.kind}
    if node_kinds == {"list", "tuple"}:
        gold, answer = unknowns.as_point(gold, name), unknowns.as_point(answer, name)
    marks = {gold.value, answer.value}
    if node_kinds == {"tuple"} or (node_kinds == {"list", "tuple"} and marks == {"", "()"}):
        return (len(marks) == 1 or "" in marks) and _same_parts(gold.parts, answer.parts)
    if marks == {"", "[]"} and len(gold.parts) > 2:  # a list in brackets, since an interval has two ends
        return _same_parts(gold.parts, answer.parts)
    if "list" not in node_kinds:
        return False
    if (gold.value, answer.value) == ("", "∪") and all(map(_is_point, gold.parts)):
        return False
    parts = gold.parts + answer.parts
    if "and" in marks and len(marks) > 1 and {unknowns.interval(part)[0] for part in parts} - {NO_NAME}:
        return False  # x<1 and x>3 is no union
    golds, answers = ([*node.parts] if node.kind == "list" else [node] for node in (gold, answer))
    names, answer_names = unknowns.names_in_order(golds), unknowns.names_in_order(answers)
    if {*names} != {*answer_names} or len({*names}) < len(names):
        loose = marks <= {"", "and", "or"} and (names or gold.value == "") and (answer_names or answer.value == "")
        return bool(loose) and _same_parts(golds, answers)
    for part in golds:
        match = next((at for at, other in enumerate(answers) if same(part, other)), None)
        if match is None:
            return False
        answers.pop(match)
    return not answers


def _is_point(node: Node) -> bool:
    r"""Is (1,2) a point? It may be an interval too, but (1,\infty) and (1,2] are only intervals."""
    return node.kind == "tuple" and node.value == "()" and not any(mentions(part, "∞") for part in node.parts)


def _split_groups(node: Node, other: Node) -> Node:
    """Read 100,200 as two numbers if the other answer has two. 10,200 is always one, and so is 100,000."""
    groups = node.parts if node.kind == "number" and other.kind in ("list", "tuple") else ()
    split = 0 < len(groups) == len(other.parts) and all(group.value >= 100 for group in groups)
    return Node("list", "", groups) if split else node


def _same_matrices(gold: Node, answer: Node, _: Node) -> bool:
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


def _same_spelling(gold: Node, answer: Node, _: Node) -> bool:
    """Compare texts of letters in their order, such as HCN. Letter case counts, except in a word: red and Red."""
    a, b = gold.value if gold.kind == "spelled" else "", _spelling(answer)
    if a and b:
        word = (a.islower() or (a.istitle() and len(a) > 2)) and re.search("[aeiou]", a.lower() if len(a) > 2 else a[0])
        yes = a.casefold() in ("yes", "no", "odd") and a != "NO"
        cases = (a.lower(), a.upper(), a.title())
        return a == b or (yes and a.casefold() == b.casefold()) or bool(word and b in cases)
    products = (Node("call", "*", node.parts) if node.kind == "spelled" else node for node in (gold, answer))
    return same(*products)


def _same_words(gold: Node, answer: Node, _: Node) -> bool:
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


def _same_options(gold: Node, answer: Node, _: Node) -> bool:
    """Compare the letters of C. 5 m/s and C, and the texts too if both have one."""
    letters = [node.value if node.kind in ("option", "letter") else None for node in (gold, answer)]
    texts = gold.parts and answer.parts
    return letters[0] == letters[1] and (not texts or same(gold.parts[0], answer.parts[0]))


def _same_ratios(gold: Node, answer: Node, _: Node) -> bool:
    gold, answer = _as_time(gold, answer), _as_time(answer, gold)
    if gold.kind != answer.kind:
        return False
    zeros = [[measured(part)[1] == number(0) for part in node.parts] for node in (gold, answer)]
    return zeros[0] == zeros[1] and _same_parts(gold.parts, answer.parts)


def _as_time(node: Node, other: Node) -> Node:
    """Write 3 p.m. as 3:00 p.m. if the other answer is such a time."""
    hour = node.kind == "quantity" and node.value in ("am", "pm") and other.kind == "ratio"
    return Node("ratio", "", (node.parts[0], node._replace(parts=(number(0),)))) if hour else node


def _same_quantities(gold: Node, answer: Node, _: Node) -> bool:
    """Compare the values, the units and the words of two expressions."""
    (gold_unit, gold_value), (answer_unit, value) = measured(gold), measured(answer)
    if {gold_unit, answer_unit} == {DEGREES, RADIANS} and len(gold.parts) == len(answer.parts) == 1:
        degrees, radians = (gold_value, value) if gold_unit == DEGREES else (value, gold_value)
        return equal(call("°", degrees), radians)
    if not _same_units(gold, answer):
        return False
    if gold_value.kind == "rounded":
        [gold_value] = gold_value.parts
        # 25\pi for 78.5, but not \sin 0.00987 for 0.00987
        exact = not has_decimal(value) or rational(value) is not None
        if exact and value.value != "+" and rounds(gold_value, value):
            return True
    if {gold_unit, answer_unit} == {DEGREES, None}:
        degrees, plain = (gold_value, value) if gold_unit else (value, gold_value)
        if _has_pi(plain):  # 90^\circ and \pi/2. A gold of 36\pi degrees may be answered without them
            return equal(call("°", degrees), plain) or (gold_unit == DEGREES and equal(gold_value, value))
    value = _with_constant(gold_value, value)
    return gold_value == value or equal(gold_value, value)


def _same_units(gold: Node, answer: Node) -> bool:
    """May two quantities have these units and the words behind them? One may leave them out; a price may say per what.

    cm and cm    cm and none    5 cents per ounce and 5 cents
    """
    words = [node.parts[1] for node in (gold, answer) if node.kind == "quantity" and len(node.parts) > 1]
    units = [node.value for node in (gold, answer) if node.kind == "quantity"]
    if len({*words}) > 1 or len({*units}) < 2:
        return len({*words}) < 2
    less, more = sorted(units, key=len)
    if isinstance(less, str) or isinstance(more, str):
        return False
    return less < more and {name for name, _ in less} <= CURRENCIES and all(power < 0 for _, power in more - less)


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


# The first kind in this order that one of the two nodes has gives the function; without one it is _same_quantities.
_SAME = {
    "spelled": _same_spelling,
    "option": _same_options,
    "words": _same_words,
    "matrix": _same_matrices,
    "list": _same_items,
    "tuple": _same_items,
    "chain": _same_relations,
    "ratio": _same_ratios,
    "measure": _same_ratios,
}
