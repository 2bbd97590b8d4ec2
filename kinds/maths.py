r"""Kind "math": is the text in the last box the same answer as the gold? (verify.py, section 4.2.1)

    accepted as the same                                not the same
    \frac12, 1/2, 0.5, 50%                              50 for 50%; 0.33333 for 1/3 (relative 1e-6)
    1,000 and 1000; 6.02e23 and 6.02\times10^{23}       1, 000 and 1000; 1e-7 and 2e-7
    x=5, f(x)=5, Total = 5, 2+3=5 for 5                 3=5 and x^2=5 for 5; y=5 for x=5; n=2n for 2n
    1,2 and 2,1; {1,2}; 1\pm2 and -1,3                  (1,2) and (2,1); (1,2) and \{1,2\}; [0,1) and [0,1]
    x>5 and (5,\infty); unions in any order             1,2,2 and 1,2
    10 cm, 10 centimeters, and 10 without a unit        10 cm and 10 m; 10 cm and 0.1 m
    \$8, 8 dollars, 8 eggs, 8 cm for 8                  8 dozen, about 8, 8 or 9; 8 cents for \$8
    28\%, 28 percent                                    28 for 28\%
    (C), C., C) for \text{(C)}                          (C) 12, two options
    x(x+1) and x^2+x; \sqrt8 and 2\sqrt2                R and r; x' and x; 2\pi x, 2\pi+C and 2\pi
    y=2x+3 and 2x-y+3=0                                 204 and 54 for 204_5
    Matrices and vectors, entry by entry                a row and a column
    Letter case, articles and the last full stop        any other word; moT for Tom, ACB for ABC
    y=2,x=1 and x=1 and y=2 for (1,2)                   y=1,x=2; x=1 or y=2

A reference may be a list of golds. An answer is right if it is the same as one of them.

Reading order: the kind, the last box, `same`. lexer.py, units.py and reader.py read a text into a tree; algebra.py
compares the values of two expressions.
The sources of the rules: the answers of AIME, AMC, MATH, Minerva and OlympiadBench; tests/test_kinds_maths.py lists
where math-verify 0.9.0 decides otherwise, and why.
Simplified: nothing is solved, and units are not converted. Sums, integrals, congruences and everything else that
reader.py cannot read is equal only as text.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kinds.algebra import equal, names, proportional, rational
from kinds.lexer import TRIGONOMETRIC
from kinds.patterns import forward
from kinds.reader import BASES, INFINITY, OPERATORS, RELATIONS, Node, call, number, read
from kinds.units import Unit, same_unit
from sandbox.jobs import Call
from verify import MAX_ANSWER, Kind, after_thinking, shown

# JSON reads the first two characters of \frac, \boxed, \theta, \right and \neq as one control character.
_LOST_BACKSLASH = forward(r"[\x00-\x09\x0b-\x1f]|\n(?:eq|u|abla)\b")
_EMPTY_BOX = forward(r"\\(?:boxed|fbox)\s*+\{\s*+\}")
ALGEBRA = "algebra"  # the verdict on two texts that only a worker may compare


def judge_math(answer: str, reference: str | list[str]) -> Any:
    """Is the answer a gold? True or False, None for no form of an answer, or the job that finds out.

    Only algebra needs a worker, since its time has no small bound. Everything else is compared here.
    """
    return judge(answer, reference, compare, "kinds.maths:judge_in_worker")


def judge(answer: str, reference: str | list[str], compare: Callable[..., Any], job: str) -> Any:
    """Compare an answer with each gold, in this process as far as no algebra is needed."""
    golds = [unboxed(gold).strip() for gold in golds_of(reference)]
    verdict = best(compare(answer.strip(), gold, algebra=False) for gold in golds)
    return Call(job, [answer.strip(), golds], ("mpmath",)) if verdict == ALGEBRA else verdict


def judge_in_worker(answer: str, golds: str | list[str]) -> bool | None:
    """Compare an answer with each gold, with algebra."""
    return best(compare(answer, gold) for gold in golds_of(golds))


def golds_of(reference: str | list[str]) -> list[str]:
    """Return the golds of a reference, any of which is right."""
    return reference if isinstance(reference, list) else [reference]


def best(verdicts: Iterable[Any]) -> Any:
    """Return the first of True, ALGEBRA and False that is among the verdicts, else None. Stop at True."""
    others = set()
    for verdict in verdicts:
        if verdict is True:
            return True
        others.add(verdict)
    return ALGEBRA if ALGEBRA in others else False if False in others else None


def compare(answer: str, gold: str, algebra: bool = True, science: bool = False) -> Any:
    """Are two texts the same answer? None if the answer cannot be read; ALGEBRA if that is needed and not allowed."""
    if answer == gold:
        return True
    form, expected = read(answer, science), read(gold, science)
    if form is None or expected is None:
        return None
    if form.text == expected.text:
        return True
    if form.tree is None or expected.tree is None:
        return None if form.tree is None else False
    if not algebra and not (_is_plain(form.tree) and _is_plain(expected.tree)):
        return ALGEBRA
    return same(expected.tree, form.tree)


def _is_plain(node: Node) -> bool:
    """Can this tree be compared without algebra? Then its expressions are single letters or rational numbers."""
    return rational(node) is not None if node.kind == "call" else all(map(_is_plain, node.parts))


def check_text(kind: str, reference: Any) -> None:
    """Raise ValueError unless the reference is the text of one answer whose brackets balance, or a list of such."""
    if isinstance(reference, list) and reference:
        for gold in reference:
            if isinstance(gold, list):
                raise ValueError(f"a list of golds of kind {kind} has only texts, got a list in it: {shown(reference)}")
            check_text(kind, gold)
        return
    text = unboxed(reference).rstrip() if isinstance(reference, str) else ""
    if lost := _LOST_BACKSLASH.search(text):
        raise ValueError(
            f"JSON has read a backslash of a {kind} reference as {lost[0][0]!r}: write every backslash twice, as in "
            rf'"\\frac{{1}}{{2}}"; got {shown(reference)}'
        )
    if read(text, False) is None or _EMPTY_BOX.search(text):
        raise ValueError(
            rf'a {kind} reference is the text of one answer in quotes, such as "12", "\\frac{{1}}{{2}}", "(1,2]", '
            rf'"9.8 m/s^2" or "\\text{{(C)}}" in JSON, of at most {MAX_ANSWER} characters, or a list of such texts of '
            f"which any is right; got {shown(reference)}"
        )


def unboxed(reference: str) -> str:
    """Return the gold in a box, if a gold comes in one."""
    return last_box(reference) or reference


def solution(reference: str | list[str]) -> str:
    """Return a response that is right: the first gold in a box."""
    return f"\\boxed{{{unboxed(golds_of(reference)[0])}}}"


# --------------------------------------------------------------------------------------------- the box

# The paper's longest response, 16,384 tokens, has fewer than 100,000 characters. Only a loop is cut here.
MAX_BOX_DISTANCE = 1_000_000
# Escaped braces and LaTeX's line break \\ are skipped, but not a \boxed whose backslash is doubled.
_BRACE = forward(r"(?P<box>\\(?:boxed|fbox)\s*+\{)|\\[{}]|\\\\(?!boxed)|(?P<open>\{)|(?P<close>\})")
_PERCENT = forward(r"[\s$]{0,8}+(?:\\?%|percent\b)")


def last_box(text: str) -> str | None:
    r"""Return the text in the \boxed{...} that closes last, braces balanced; None if there is none.

    In nested boxes this is the outer one. A box without its closing brace does not count. A percent sign right behind
    the box is added to its text.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("box")
    opened: list[int] = []  # the start of the text in each open brace; 0 without \\boxed
    last: tuple[int, int] | None = None  # where the text of the box that closed last starts and ends
    for match in _BRACE.finditer(text, max(first - 3, 0)) if first >= 0 else ():
        brace = match.lastgroup
        if brace in ("box", "open"):
            opened.append(match.end() if brace == "box" else 0)
        elif brace == "close" and opened and (start := opened.pop()):
            last = start, match.start()
    if last is None:
        return None
    return text[slice(*last)] + ("\\%" if _PERCENT.match(text, last[1] + 1) else "")


def last_box_of(response: str) -> str | None:
    return last_box(after_thinking(response) or "")


KIND = Kind(judge_math, answer=last_box_of, check=lambda gold: check_text("math", gold), solution=solution)


# ------------------------------------------------------------------------------------------- two trees

INEQUALITIES = ("<", ">", r"\le", r"\ge")
_SPELLED = {"zero": 0, "one": 1, **BASES}
DEGREES = frozenset([("°", 1)])
_NO_NAME = Node("")
_OF_X = frozenset([*"rstuvxyz", r"\theta"])  # the variable of an antiderivative
_FUNCTION_LETTERS = (r"\phi", r"\psi", r"\tau", r"\sigma", r"\rho")


def same(gold: Node, answer: Node, name: Node = _NO_NAME) -> bool:
    """Are two trees the same answer? The gold may have a name: x, if it is the 5 of x=5."""
    if gold == answer:
        return True
    if _is_equation(gold):
        return _same_as_equation(gold, answer)
    if _is_equation(answer):
        return _claims(gold, answer, name)
    if gold.kind == "number" and (word := _letters(answer)) in _SPELLED:
        return gold.value == _SPELLED[word]
    if "spelled" in (gold.kind, answer.kind):
        return _same_spelling(gold, answer)
    (gold_name, gold), (answer_name, answer) = _interval(gold), _interval(answer)
    if len({name, gold_name, answer_name} - {_NO_NAME}) > 1:  # x>5 is not y>5
        return False
    if {gold.kind, answer.kind} == {"list", "tuple"} and {gold_name, answer_name} != {_NO_NAME}:  # 1<x<2 is not 1,2
        return False
    return _same_kind(gold, answer, name)


def _same_as_equation(gold: Node, answer: Node) -> bool:
    """Is the answer the same equation, or 5 for the gold x=5?"""
    own = gold.parts[0] if _owns(gold.parts[0]) else None
    alike = _is_equation(answer) and (_same_sides(gold, answer) or _same_curve(gold, answer))
    return alike or (own is not None and same(gold.parts[-1], answer, own))


def _same_kind(gold: Node, answer: Node, name: Node) -> bool:
    """Compare two nodes that are no equations by the rule for their kinds."""
    node_kinds = {gold.kind, answer.kind}
    if "option" in node_kinds:
        return _same_options(gold, answer)
    if "words" in node_kinds:
        a, b = _letters(gold), _letters(answer)
        return a == b and len(a) > 1  # R is not \text{r}
    if "matrix" in node_kinds:
        return _same_matrices(gold, answer)
    if node_kinds & {"list", "tuple"}:
        return _same_items(gold, answer, name)
    if node_kinds == {"chain"}:  # x+y<9 and 9>x+y
        return _same_sides(gold, answer)
    if node_kinds == {"ratio"}:
        zeros = [[measured(part)[1] == number(0) for part in node.parts] for node in (gold, answer)]
        return zeros[0] == zeros[1] and _same_parts(gold.parts, answer.parts)
    return _same_quantities(gold, answer)


def _same_spelling(gold: Node, answer: Node) -> bool:
    """Compare texts of letters in their order, such as HCN. Letter case counts, except in a word: red and Red."""
    a, b = gold.value if gold.kind == "spelled" else "", _spelling(answer)
    if a and b:
        word = (a.islower() or (a.istitle() and len(a) > 2)) and re.search("[aeiou]", a.lower() if len(a) > 2 else a[0])
        yes = a.casefold() in ("yes", "no", "odd") and a != "NO"
        cases = (a.lower(), a.upper(), a.title())
        return a == b or (yes and a.casefold() == b.casefold()) or bool(word and b in cases)
    products = (Node("call", "*", node.parts) if node.kind == "spelled" else node for node in (gold, answer))
    return same(*products)


def _same_quantities(gold: Node, answer: Node) -> bool:
    """Compare the values, the units and the directions of two expressions."""
    (gold_unit, gold_value), (answer_unit, value) = measured(gold), measured(answer)
    aims = [node.parts[1] for node in (gold, answer) if node.kind == "quantity" and len(node.parts) > 1]
    if not agree(gold_unit, answer_unit) or (len(aims) > 1 and aims[0] != aims[1]):
        return False
    if {gold_unit, answer_unit} == {DEGREES, None} and _has_pi(value if gold_unit else gold_value):
        # \pi/6 is no number of degrees, but a gold of 36\pi degrees may be answered without them
        return _same_angle(gold, answer) or (gold_unit == DEGREES and equal(gold_value, value))
    value = _with_constant(gold_value, value)
    return gold_value == value or equal(gold_value, value)


def _with_constant(gold: Node, answer: Node) -> Node:
    """Write x^2 + c and x^2 + K as x^2 + C, if the gold ends so and has one variable."""
    last, constant = answer.parts[-1:], Node("letter", "C")
    ends = gold.value == answer.value == "+" and gold.parts[-1] == constant and last[0].value in ("c", "K", "k")
    others = names(gold) - {"C"}
    if not ends or last[0].value in names(gold) or "C" in names(answer) or not (len(others) == 1 and others < _OF_X):
        return answer
    rest = answer._replace(parts=answer.parts[:-1])
    return answer if names(last[0]) & names(rest) else answer._replace(parts=(*rest.parts, constant))


def _same_angle(gold: Node, answer: Node) -> bool:
    r"""Is one answer in degrees and the other a multiple of \pi: 90^\circ and \pi/2?"""
    values = {unit: value for unit, value in (measured(gold), measured(answer))}
    if values.keys() != {DEGREES, None}:
        return False
    return _has_pi(values[None]) and equal(call("°", values[DEGREES]), values[None])


def _has_pi(node: Node) -> bool:
    return node == Node("letter", "π") or any(map(_has_pi, node.parts))


def agree(gold: Unit | None, answer: Unit | None) -> bool:
    """May two answers have these units? One of them may be missing."""
    return gold is None or answer is None or same_unit(gold, answer)


def _is_equation(node: Node) -> bool:
    r"""x=5, 2+3=5, x \in [0,1)."""
    return node.kind == "chain" and (set(node.value) == {"="} or (node.value == (r"\in",) and _owns(node.parts[0])))


def _is_name(side: Node) -> bool:
    r"""Is a side of an equation a name, not a value of its own? These are names; 2x, x^2, xy and \sqrt{x} are not.

    x    f(2)    P(A)    \cos A    |AB|    AB    \Delta H    m\angle A    dy/dx    m+n    (x,y)    a:b
    """
    if side.kind == "letter":
        return side.value not in ("e", "i", "π", "∞")
    if side.kind in ("tuple", "ratio") or side.value in ("+", "/", "abs", *TRIGONOMETRIC):
        parts = [*side.parts[:1], *(_without_minus(part) for part in side.parts[1:])]  # x-y, but not -x
        return all(map(_is_name, parts))
    return side.value == "*" and (_is_function(side.parts) or _is_one_symbol(side.parts))


def _is_function(factors: Sequence[Node]) -> bool:
    r"""f(x), P(2), F(x,y), f'(0), f^{-1}(2), f_2(x), f^{(3)}(0), (f\circ g)(x), \phi(10), \gcd(12,18)."""
    first = factors[0]
    if first.value == "^" and first.parts[1] == call("neg", number(1)):
        first = first.parts[0]
    name = str(first.value) if first.kind == "letter" and len(factors) == 2 else ""
    name = re.sub(r"_[0-9]$|\^[0-9]$|∘[a-zA-Z]$|'+$", "", name)
    return name in (*"fghpquvABCDEFGHLMNPQRSTVW", *OPERATORS, *_FUNCTION_LETTERS) or (len(name) > 1 and name.isalpha())


def _without_minus(node: Node) -> Node:
    return node.parts[0] if node.value == "neg" else node


def _is_one_symbol(factors: Sequence[Node]) -> bool:
    r"""Do several letters write one symbol: AB of a segment, \Delta H, dx, m\angle A?"""
    if any(factor.kind != "letter" for factor in factors):
        return False
    first, *rest = (factor.value for factor in factors)
    segment = all("A" <= letter[0] <= "Z" for letter in (first, *rest))
    change = first.partition("_")[0] in ("d", r"\Delta", r"\delta")  # \Delta_f H
    acid = first == "p" and rest[0].startswith("K")  # pK_a
    return segment or (len(rest) == 1 and (change or acid or (first == "m" and r"\angle" in rest[0])))


def _owns(side: Node) -> bool:
    r"""Is this side the name of an unknown, as in x=5, f(x)=x^2 and x \in [0,1)? In xy=9 and a+b=0 it is not."""
    return _is_name(side) and side.value not in ("+", "/", "abs", *TRIGONOMETRIC)


def _claims(gold: Node, answer: Node, name: Node) -> bool:
    r"""Is every side of the answer's equation the gold, or a name for it? In x \in A only x may be the name."""
    answer = _sorted_names(answer, name)
    if answer.value == (r"\in",):
        return _may_name(answer.parts[0], gold, name) and same(gold, answer.parts[1])
    sides = [side for side in answer.parts if not _may_name(side, gold, name)]
    return bool(sides) and all(same(gold, side) for side in sides)


def _alphabetic(unknowns: list[str]) -> list[str]:
    r"""Return unknowns in the order of a point: a,b    x,y. With a Greek letter, as in r,\theta, they stay."""
    return unknowns if any(name.startswith("\\") for name in unknowns) else sorted(unknowns)


def _sorted_names(answer: Node, name: Node) -> Node:
    """Write (y,x)=(7,3) as (x,y)=(3,7): in the order of the gold's name, or by the alphabet."""
    unknowns = [part.value for part in answer.parts[0].parts if part.kind == "letter"]
    if answer.parts[0].kind != "tuple" or len({*unknowns}) < len(answer.parts[0].parts):
        return answer
    order = [part.value for part in name.parts] if name.kind == "tuple" else _alphabetic(unknowns)
    if not all(len(side.parts) == len({*unknowns}) for side in answer.parts) or not {*unknowns} <= {*order}:
        return answer
    places = sorted(range(len(unknowns)), key=lambda at: order.index(unknowns[at]))
    sides = (side._replace(parts=tuple(side.parts[at] for at in places)) for side in answer.parts)
    return answer._replace(parts=tuple(sides))


def _may_name(side: Node, gold: Node, name: Node) -> bool:
    """May this side of the answer's equation be a name for the gold? x may, of 5 and of 2n. A second answer may not.

    In n=2n, where the gold is 2n, in x=y and in A=(C) both sides are answers.
    """
    if name != _NO_NAME or gold.kind in ("words", "letter"):
        return side == name or (name.kind == side.kind == "letter" and _function(name) == _function(side))
    if not _is_name(side) or (side.kind == "tuple" and gold.kind not in ("tuple", "list", "matrix")):
        return False
    variables = names(Node("call", "*", gold.parts) if gold.kind == "spelled" else measured(gold)[1])
    if side.kind == "letter":
        return not variables & names(side)
    if not variables or (side.value == "*" and _is_function(side.parts)):
        return True
    symbol = side.value in ("*", "abs", *TRIGONOMETRIC) or (side.value == "/" and side.parts[0].value == "*")
    return symbol and not variables & names(side)  # |F|    dv/dt    \Delta E


def _function(name: Node) -> str:
    """Return v for v(t)."""
    return re.sub(r"\([a-z]\)$", "", name.value)


def _interval(node: Node) -> tuple[Node, Node]:
    r"""Return x and (5,\infty) of x>5 and 5<x, x and (1,2] of 1<x\le 2; no name and the node of other nodes.

    x\ne 2 is x and (-\infty,2) \cup (2,\infty).
    """
    if node.kind == "list" and node.value == "and" and len(node.parts) == 2:
        return _both(*map(_interval, node.parts)) or (_NO_NAME, node)
    if node.kind != "chain" or not (set(node.value) <= {*INEQUALITIES} or node.value == (r"\ne",)):
        return _NO_NAME, node
    sides, signs = node.parts, node.value
    named = [side for side in sides if _owns(side)]
    if len(named) != 1:
        return _NO_NAME, node
    [name] = named
    if signs == (r"\ne",):
        point = sides[sides[0] == name]
        below, above = (Node("tuple", "()", ends) for ends in ((call("neg", INFINITY), point), (point, INFINITY)))
        return name, Node("list", "", (below, above))
    if signs[0] in (">", r"\ge"):
        sides, signs = sides[::-1], tuple(RELATIONS[sign] for sign in signs[::-1])
    if len(sides) == 2 and sides[0] == name:
        sides, signs = (call("neg", INFINITY), *sides), ("<", *signs)
    elif len(sides) == 2:
        sides, signs = (*sides, INFINITY), (*signs, "<")
    if len(sides) != 3 or sides[1] != name or not set(signs) <= {"<", r"\le"}:
        return _NO_NAME, node
    brackets = ("[" if signs[0] == r"\le" else "(") + ("]" if signs[1] == r"\le" else ")")
    return name, Node("tuple", brackets, (sides[0], sides[2]))


def _both(first: tuple[Node, Node], second: tuple[Node, Node]) -> tuple[Node, Node] | None:
    """Return x and (-2,3) of x>-2 and x<3. Of x<-2 and x>3 it is (3,-2), which is nobody's gold."""
    (name, below), (other, above) = first, second
    if name == _NO_NAME or name != other or not below.kind == above.kind == "tuple":
        return None
    if below.parts[1] == INFINITY:
        below, above = above, below
    if below.parts[0] != call("neg", INFINITY) or above.parts[1] != INFINITY:
        return None
    return name, Node("tuple", above.value[0] + below.value[1], (above.parts[0], below.parts[1]))


def _same_sides(gold: Node, answer: Node) -> bool:
    """Have two equations, or two relations, the same sides, in the same or the reversed order?"""
    turned = tuple(RELATIONS[sign] for sign in answer.value[::-1])
    if gold.value == turned and _same_parts(gold.parts, answer.parts[::-1]):
        return True
    return gold.value == answer.value and _same_parts(gold.parts, answer.parts)


def _same_curve(gold: Node, answer: Node) -> bool:
    """Is one equation of several variables a multiple of the other: 2x+4y=6 and y=(3-x)/2?"""
    if not gold.value == answer.value == ("=",):
        return False
    a, b = (call("+", left, call("neg", right)) for left, right in (gold.parts, answer.parts))
    return proportional(a, b)


def _same_parts(golds: Sequence[Node], answers: Sequence[Node]) -> bool:
    return len(golds) == len(answers) and all(map(same, golds, answers))


def _same_items(gold: Node, answer: Node, name: Node = _NO_NAME) -> bool:
    """Compare tuples in order, lists in any order. A list with commas, or x=1 and y=2, may stand for a point."""
    gold, answer = _split(gold, answer), _split(answer, gold)
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
    if "and" in marks and len(marks) > 1 and any(_interval(part)[0] != _NO_NAME for part in gold.parts + answer.parts):
        return False  # x<1 and x>3 is no union
    golds, answers = ([*node.parts] if node.kind == "list" else [node] for node in (gold, answer))
    names, answer_names = _unknowns(golds), _unknowns(answers)
    if {*names} != {*answer_names} or len({*names}) < len(names):
        loose = marks <= {"", "and", "or"} and (names or gold.value == "") and (answer_names or answer.value == "")
        return bool(loose) and _same_parts(golds, answers)
    for part in golds:
        match = next((at for at, other in enumerate(answers) if same(part, other)), None)
        if match is None:
            return False
        answers.pop(match)
    return not answers


def _as_point(node: Node, name: Node) -> Node:
    """Order y=2,x=1 and "y=2 and x=1" as the name (x,y) says, or by the alphabet. Other lists keep their order."""
    unknowns = _unknowns([*node.parts]) if node.kind == "list" and node.value in ("", "and") else []
    if not unknowns:
        names_given = [part.parts[0] for part in node.parts if node.kind == "list" and _is_equation(part)]
        point = not names_given or len({*names_given}) == len(node.parts)  # x=1, x=2 and x=1,2 are none
        return node if point else node._replace(value="or")
    order = [part.value for part in name.parts] if name.kind == "tuple" else _alphabetic(unknowns)
    if len({*unknowns}) == len(unknowns) and {*unknowns} <= {*order}:
        parts = [part for _, part in sorted(zip(map(order.index, unknowns), node.parts, strict=True))]
    else:
        parts = [*node.parts]
    return Node("list", "", tuple(parts))


def _same_options(gold: Node, answer: Node) -> bool:
    """Compare the letters of C. 5 m/s and C, and the texts too if both have one."""
    letters = [node.value if node.kind in ("option", "letter") else None for node in (gold, answer)]
    texts = gold.parts and answer.parts
    return letters[0] == letters[1] and (not texts or same(gold.parts[0], answer.parts[0]))


def _split(node: Node, other: Node) -> Node:
    """Read 100,200 as two numbers if the other answer has two. 10,200 is always one, and so is 100,000."""
    two = (
        node.kind == "number" and node.parts and other.kind in ("list", "tuple") and len(node.parts) == len(other.parts)
    )
    return Node("list", "", node.parts) if two and all(part.value >= 100 for part in node.parts) else node


def _unknowns(parts: list[Node]) -> list[str]:
    """Return the names that order a list, as in x=1,y=2. In x_1=1,x_2=2 both are values of x, in any order."""
    sides = [part.parts[0] if _is_equation(part) else _interval(part)[0] for part in parts]
    unknowns = [str(side.value).partition("_")[0] if side.kind == "letter" else "" for side in sides]
    return unknowns if all(unknowns) and len({*unknowns}) > 1 else []


def _same_matrices(gold: Node, answer: Node) -> bool:
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


def _letters(node: Node) -> str:
    """Return the letters of words, or of a product of letters: odd is o times d times d."""
    if node.kind == "words":
        return str(node.value)
    return _spelling(node).casefold()


def _spelling(node: Node) -> str:
    """Return the letters of a product of letters, "" for another node."""
    parts = node.parts if node.kind == "spelled" or (node.kind == "call" and node.value == "*") else (node,)
    return "".join(part.value for part in parts) if all(part.kind == "letter" for part in parts) else ""


def measured(node: Node) -> tuple[Any, Node]:
    """Return the unit and the value."""
    return (node.value, node.parts[0]) if node.kind == "quantity" else (None, node)
