r"""Unknowns: which side of an equation or an inequality is only a name, in which order, and what it is a name for.

    x = 5, f(2) = 5, AB = 5, \Delta H = 5     the first side is a name for 5
    2x = 5, x^2 = 5, 3 = 5                    both sides are values: an equation, or a wrong claim
    x > 5, 5 < x, 1 < x \le 2                 x is a name for an interval

`is_name` and `is_unknown` say whether a side is a name, `may_name` whether it may name this gold, `interval` what an
inequality says about its unknown. `as_point` and `sorted_names` put values into the order of their names.
"""

import re
from collections.abc import Sequence

from kinds.answers.algebra import variables
from kinds.answers.tables import APPROX, INEQUALITIES, OPERATORS, RELATIONS, TRIGONOMETRIC
from kinds.answers.tree import INFINITY, NO_NAME, Node, call, measured, mentions, number
from kinds.patterns import forward

_MARK = forward(r"_[0-9]$|\^[0-9]$|∘[a-zA-Z]$|'++$")  # of a function: f_2, f^3, f'
_NUMBERED = forward(r"_[0-9](?:,[0-9])?$")  # x_1 and x_{1,2} are values of x
_FUNCTION_LETTERS = (*"fghpquvABCDEFGHLMNPQRSTVW", *OPERATORS, r"\phi", r"\psi", r"\tau", r"\sigma", r"\rho")


def is_equation(node: Node) -> bool:
    r"""x=5, 2+3=5, x \in [0,1)."""
    return node.kind == "chain" and (
        set(node.value) <= {"=", APPROX} or (node.value == (r"\in",) and is_unknown(node.parts[0]))
    )


def is_unknown(side: Node) -> bool:
    r"""Is this side the name of an unknown, as in x=5, f(x)=x^2 and x \in [0,1)? In xy=9 and a+b=0 it is not."""
    return is_name(side) and side.value not in ("+", "/", "abs", *TRIGONOMETRIC)


def is_named(equation: Node) -> bool:
    r"""Is the first side the name of the last one? In e=1/2 and i=3 the letters e and i are names too."""
    first, last = equation.parts[0], equation.parts[-1]
    return is_unknown(first) or is_constant_as_name(first, last)


def is_constant_as_name(side: Node, value: Node) -> bool:
    """Is a side of an equation e or i alone, and has the value no such letter?"""
    return side.kind == "letter" and side.value in ("e", "i") and not mentions(value, side.value)


def is_name(side: Node) -> bool:
    r"""Is a side of an equation a name, not a value of its own? These are names; 2x, x^2, xy and \sqrt{x} are not.

    x    f(2)    P(A)    \cos A    |AB|    AB    AB^2    \Delta H    m\angle A    dy/dx    m+n    (x,y)    a:b
    """
    if side.kind == "letter":
        return side.value not in ("e", "i", "π", "∞")
    if side.kind in ("tuple", "ratio") or side.value in ("+", "/", "abs", *TRIGONOMETRIC):
        positive = [part.parts[0] if part.value == "neg" else part for part in side.parts[1:]]  # x-y, but not -x
        return all(map(is_name, [*side.parts[:1], *positive]))
    return _is_function(side) or (side.value == "*" and _is_one_symbol(side.parts))


def _is_function(side: Node) -> bool:
    r"""f(x), P(2), F(x,y), f'(0), f^{-1}(2), f_2(x), f^{(3)}(0), (f\circ g)(x), \gcd(12,18), \det A, but not fx."""
    if side.value == "*" and side.parts[0].value in OPERATORS:
        return len(side.parts) == 2
    if side.value != "of":
        return False
    first, inside = side.parts
    if first.value == "^" and first.parts[1] == call("neg", number(1)):
        first = first.parts[0]
    closed = inside.kind != "tuple" or inside.value == "()"  # not f(1,2]
    name = str(first.value) if first.kind == "letter" and closed else ""
    name = _MARK.sub("", name)
    return name in _FUNCTION_LETTERS or (len(name) > 1 and name.isalpha())


def _is_one_symbol(factors: Sequence[Node]) -> bool:
    r"""Do several letters write one symbol: AB of a segment, its square AB^2, \Delta H, dx, m\angle A?"""
    power = factors[-1]
    if power.value == "^" and power.parts[1] == number(2) and str(power.parts[0].value)[0].isupper():
        factors = [*factors[:-1], power.parts[0]]
    if any(factor.kind != "letter" for factor in factors):
        return False
    first, *rest = (factor.value for factor in factors)
    segment = all("A" <= letter[0] <= "Z" for letter in (first, *rest))
    change = first.partition("_")[0] in ("d", r"\Delta", r"\delta")  # \Delta_f H
    acid = first == "p" and rest[0].startswith("K")  # pK_a
    return segment or (len(rest) == 1 and (change or acid or (first == "m" and r"\angle" in rest[0])))


def may_name(side: Node, gold: Node, name: Node) -> bool:
    """May this side of the answer's equation be a name for the gold? x may, of 5 and of 2n. A second answer may not.

    `name` is the gold's own name. In n=2n, where the gold is 2n, in x=y and in A=(C) both sides are answers.
    """
    if name != NO_NAME or gold.kind in ("words", "letter"):
        letters = [re.sub(r"\([a-z]\)$", "", node.value) for node in (side, name) if node.kind == "letter"]  # v of v(t)
        pair = len(letters) == 2 and letters[1] in (letters[0], _NUMBERED.sub("", letters[0]))
        return side == name or pair or _is_graph(side, name) or _is_graph(name, side)
    if is_constant_as_name(side, gold):
        return True
    if not is_name(side) or (side.kind == "tuple" and gold.kind not in ("tuple", "list", "matrix")):
        return False
    own = variables(Node("call", "*", gold.parts) if gold.kind == "spelled" else measured(gold)[1])
    if side.kind == "letter":
        return not own & variables(side)
    if _is_derivative(side) and side.parts[1].parts[1].value in own:  # dy/dx = 2x
        return True
    if not own or _is_function(side):
        return True
    symbol = side.value in ("*", "abs", *TRIGONOMETRIC) or (side.value == "/" and side.parts[0].value == "*")
    return symbol and not own & variables(side)  # |F|    dv/dt    \Delta E


def _is_graph(side: Node, other: Node) -> bool:
    """Is this f(x), g(t) or h(x), and the other one y, y(x) or f?"""
    function = _is_function(side) and side.parts[0].value in ("f", "g", "h")
    return function and other.kind == "letter" and other.value in ("y", "y(x)", side.parts[0].value)


def _is_derivative(side: Node) -> bool:
    r"""\frac{dy}{dx}."""
    changes = [part.parts for part in side.parts if part.value == "*" and len(part.parts) == 2]
    return side.value == "/" and len(changes) == 2 and all(first == Node("letter", "d") for first, _ in changes)


def sorted_names(answer: Node, name: Node) -> Node:
    """Write (y,x)=(7,3) as (x,y)=(3,7): in the order of the gold's name, or by the alphabet."""
    letters = [part.value for part in answer.parts[0].parts if part.kind == "letter"]
    if answer.parts[0].kind != "tuple" or len({*letters}) < len(answer.parts[0].parts):
        return answer
    order = _order(letters, name)
    if not all(len(side.parts) == len({*letters}) for side in answer.parts) or not {*letters} <= {*order}:
        return answer
    places = sorted(range(len(letters)), key=lambda at: order.index(letters[at]))
    sides = (side._replace(parts=tuple(side.parts[at] for at in places)) for side in answer.parts)
    return answer._replace(parts=tuple(sides))


def as_point(node: Node, name: Node) -> Node:
    """Order y=2,x=1 and "y=2 and x=1" as the name (x,y) says, or by the alphabet. Other lists keep their order."""
    letters = names_in_order([*node.parts]) if node.kind == "list" and node.value in ("", "and") else []
    if not letters:
        names_given = [part.parts[0] for part in node.parts if node.kind == "list" and is_equation(part)]
        point = not names_given or len({*names_given}) == len(node.parts)  # x=1, x=2 and x=1,2 are none
        return node if point else node._replace(value="or")
    order = _order(letters, name)
    if len({*letters}) < len(letters) or not {*letters} <= {*order}:
        return node._replace(value="")
    return Node("list", "", tuple(part for _, part in sorted(zip(map(order.index, letters), node.parts, strict=True))))


def names_in_order(parts: list[Node]) -> list[str]:
    """Return the names that order a list, as in x=1,y=2. In x_1=1,x_2=2 both are values of x, in any order."""
    sides = [part.parts[0] if is_equation(part) else interval(part)[0] for part in parts]
    letters = [str(side.value).partition("_")[0] if side.kind == "letter" else "" for side in sides]
    return letters if all(letters) and len({*letters}) > 1 else []


def _order(letters: list[str], name: Node) -> list[str]:
    r"""Return letters in the order of the gold's name, or of a point: a,b    x,y. Greek letters, as r,\theta, stay."""
    if name.kind == "tuple":
        return [part.value for part in name.parts]
    return letters if any(unknown.startswith("\\") for unknown in letters) else sorted(letters)


def interval(node: Node) -> tuple[Node, Node]:
    r"""Return x and (5,\infty) of x>5 and 5<x, x and (1,2] of 1<x\le 2; no name and the node of other nodes.

    x\ne 2 is x and (-\infty,2) \cup (2,\infty), and |x|<2 is x and (-2,2).
    """
    if node.kind == "chain" and len(node.parts) == 2 and "abs" in (node.parts[0].value, node.parts[1].value):
        return _of_distance(node)
    if node.kind == "list" and node.value == "and" and len(node.parts) == 2:
        return _intersection(*map(interval, node.parts)) or (NO_NAME, node)
    if node.kind != "chain" or not (set(node.value) <= {*INEQUALITIES} or node.value == (r"\ne",)):
        return NO_NAME, node
    sides, relations = node.parts, node.value
    named = [side for side in sides if is_unknown(side)]
    if len(named) != 1:
        return NO_NAME, node
    [name] = named
    if relations == (r"\ne",):
        point = sides[sides[0] == name]
        below, above = (Node("tuple", "()", ends) for ends in ((call("neg", INFINITY), point), (point, INFINITY)))
        return name, Node("list", "", (below, above))
    if relations[0] in (">", r"\ge"):
        sides, relations = sides[::-1], tuple(RELATIONS[relation] for relation in relations[::-1])
    if len(sides) == 2 and sides[0] == name:
        sides, relations = (call("neg", INFINITY), *sides), ("<", *relations)
    elif len(sides) == 2:
        sides, relations = (*sides, INFINITY), (*relations, "<")
    if len(sides) != 3 or sides[1] != name or not set(relations) <= {"<", r"\le"}:
        return NO_NAME, node
    return name, _between(relations, sides[0], sides[2])


def _of_distance(node: Node) -> tuple[Node, Node]:
    """Return x and (-2,2) of |x|<2 and 2>|x|, x and two intervals of |x|>2; no name and the node of other nodes."""
    [relation], (side, limit) = node.value, node.parts
    if side.value != "abs":
        relation, side, limit = RELATIONS[relation], limit, side
    [name] = side.parts
    if name.kind != "letter" or not is_unknown(name) or limit.value == "abs" or variables(name) & variables(limit):
        return NO_NAME, node
    below, above = call("neg", limit), limit
    if relation in ("<", r"\le"):
        return name, _between((relation, relation), below, above)
    far = "<" if relation == ">" else r"\le"
    parts = _between(("<", far), call("neg", INFINITY), below), _between((far, "<"), above, INFINITY)
    return (name, Node("list", "", parts)) if relation in (">", r"\ge") else (NO_NAME, node)


def _between(relations: Sequence[str], first: Node, last: Node) -> Node:
    """Return the interval of first < x < last."""
    brackets = ("[" if relations[0] == r"\le" else "(") + ("]" if relations[1] == r"\le" else ")")
    return Node("tuple", brackets, (first, last))


def _intersection(first: tuple[Node, Node], second: tuple[Node, Node]) -> tuple[Node, Node] | None:
    """Return x and (-2,3) of x>-2 and x<3. Of x<-2 and x>3 it is (3,-2), which is nobody's gold."""
    (name, below), (other, above) = first, second
    if name == NO_NAME or name != other or not below.kind == above.kind == "tuple":
        return None
    if below.parts[1] == INFINITY:
        below, above = above, below
    if below.parts[0] != call("neg", INFINITY) or above.parts[1] != INFINITY:
        return None
    return name, Node("tuple", above.value[0] + below.value[1], (above.parts[0], below.parts[1]))
