r"""Kind "math": is the text in the last box the same answer as the gold? (verify.py, section 4.2.1)

    accepted as the same                                not the same
    \frac12, 1/2, 0.5, 50%                              50 for 50%; 0.33333 for 1/3 (relative 1e-6)
    1,000 and 1000; 6.02e23 and 6.02\times10^{23}       1e-7 and 2e-7
    x=5, f(x)=5, 2+3=5 for 5                            3=5 for 5; y=5 for x=5; n=2n for 2n
    1,2 and 2,1; {1,2}; 1\pm2 and -1,3                  (1,2) and (2,1); (1,2) and \{1,2\}; [0,1) and [0,1]
    x>5 and (5,\infty); unions in any order             1,2,2 and 1,2
    10 cm, and 10 without a unit                        10 cm and 10 m; 10 cm and 0.1 m
    (C), C., C) for \text{(C)}                          (C) 12, two options
    x(x+1) and x^2+x; \sqrt8 and 2\sqrt2                R and r; x' and x; 2\pi x, 2\pi+C and 2\pi
    Letter case, articles and the last full stop        any other word

Reading order: the kind, the last box, `same`. latex.py reads a text into a form, algebra.py compares expressions.
The sources of the rules: the answers of AIME, AMC, MATH, Minerva and OlympiadBench; tests/test_kinds_maths.py lists
where math-verify 0.9.0 decides otherwise, and why.
Simplified: nothing is solved, and units are not converted. Equal only as texts: matrices, factorials, binomials, |x|,
\approx, number bases, clock times, ratios, repeating decimals and unknown units.
"""

from collections.abc import Sequence
from typing import Any

from kinds.algebra import TOLERANCE, Expression, close, equal
from kinds.latex import FLIPPED, NUMBER, Form, read_math, read_number, read_unit
from kinds.patterns import forward
from sandbox.jobs import Call
from verify import MAX_ANSWER, Kind, after_thinking, shown

# JSON reads the first two characters of \frac, \boxed, \theta, \right and \neq as one control character.
_LOST_BACKSLASH = forward(r"[\x00-\x09\x0b-\x1f]|\n(?:eq|u|abla)\b")
_EMPTY_BOX = forward(r"\\(?:boxed|fbox)\s*+\{\s*+\}")


def judge_math(answer: str, reference: str) -> Any:
    """Is the answer the gold? True or False, None for no form of an answer, or the job that finds out.

    The gold's own text and two numbers are judged here. A worker reads everything else.
    """
    answer, gold = answer.strip(), unboxed(reference).strip()
    if answer == gold:
        return True
    if len(answer) > MAX_ANSWER:
        return None
    if NUMBER.fullmatch(gold) and NUMBER.fullmatch(answer):
        value, expected = read_number(answer), read_number(gold)
        share = TOLERANCE * (("." in gold) != ("." in answer))
        return None if value is None else close(expected, value, share)
    return Call("kinds.maths:judge_in_worker", [answer, gold], ("mpmath",))


def judge_in_worker(answer: str, gold: str) -> bool | None:
    """Read both texts and compare. Text of any length and algebra can take long."""
    read, form = read_math(gold), read_math(answer)
    if read is None or form is None:
        return None
    return same(read, form) or (None if form.kind == "other" else False)


def check_text(kind: str, reference: Any) -> None:
    """Raise ValueError unless the reference is the text of one answer whose brackets balance."""
    text = unboxed(reference).rstrip() if isinstance(reference, str) else ""
    if found := _LOST_BACKSLASH.search(text):
        raise ValueError(
            f"JSON has read a backslash of a {kind} reference as {found[0][0]!r}: write every backslash twice, as in "
            rf'"\\frac{{1}}{{2}}"; got {shown(reference)}'
        )
    number = NUMBER.fullmatch(text.strip())
    if read_math(text) is None or _EMPTY_BOX.search(text) or (number and read_number(number[0]) is None):
        raise ValueError(
            rf'a {kind} reference is the text of one answer in quotes, such as "12", "\\frac{{1}}{{2}}", "(1,2]", '
            rf'"9.8 m/s^2" or "\\text{{(C)}}" in JSON, of at most {MAX_ANSWER} characters; got {shown(reference)}'
        )


def unboxed(reference: str) -> str:
    """Return the gold in a box, if a gold comes in one."""
    return last_box(reference) or reference


def solution(reference: str) -> str:
    """Return a response that is right."""
    return f"\\boxed{{{unboxed(reference)}}}"


# --------------------------------------------------------------------------------------------- the box

# The paper's longest response, 16,384 tokens, has fewer than 100,000 characters. Only a loop is cut here.
MAX_BOX_DISTANCE = 1_000_000
# Escaped braces and LaTeX's line break \\ are skipped, but not a \boxed whose backslash is doubled.
_BRACE = forward(r"(?P<box>\\(?:boxed|fbox)\s*+\{)|\\[{}]|\\\\(?!boxed)|(?P<open>\{)|(?P<close>\})")
_PERCENT = forward(r"[\s$]{0,8}+(?:\\?%|percent\b)")


def last_box(text: str) -> str | None:
    r"""Return the text in the \boxed{...} that closes last, braces balanced; None if there is none.

    In nested boxes this is the outer one. A box without its closing brace does not count.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("box")
    opened: list[int] = []  # the start of the text in each open brace; 0 without \\boxed
    found: tuple[int, int] | None = None
    for match in _BRACE.finditer(text, max(first - 3, 0)) if first >= 0 else ():
        brace = match.lastgroup
        if brace in ("box", "open"):
            opened.append(match.end() if brace == "box" else 0)
        elif brace == "close" and opened and (start := opened.pop()):
            found = start, match.start()
    if found is None:
        return None
    return text[slice(*found)] + ("\\%" if _PERCENT.match(text, found[1] + 1) else "")


def last_box_of(response: str) -> str | None:
    return last_box(after_thinking(response) or "")


KIND = Kind(judge_math, answer=last_box_of, check=lambda gold: check_text("math", gold), solution=solution)


# ----------------------------------------------------------------------------------------- in a worker


def same(gold: Form, answer: Form) -> bool:
    """Are two forms the same answer?"""
    kinds = {gold.kind, answer.kind}
    if gold.text == answer.text:
        return True
    if gold.kind == "equation":
        alike = kinds == {"equation"} and _same_sides(gold, answer)
        return alike or (gold.name != "" and same(gold.value[-1]._replace(name=gold.name), answer))
    if answer.kind == "equation":
        return _claims(gold, answer)
    if gold.name and answer.name and gold.name != answer.name:
        return False
    if "words" in kinds:
        a, b = (
            form.value if form.kind == "words" else form.text.replace(" ", "").casefold() for form in (gold, answer)
        )
        return bool(a) and a == b and (kinds == {"words"} or len(a) > 1)  # R is not \text{r}
    if "list" in kinds:
        return _same_lists(gold, answer)
    if kinds == {"tuple"}:
        return gold.mark == answer.mark and _same_parts(gold.value, answer.value)
    if kinds == {"relation"}:
        return _same_sides(gold, answer)
    if not isinstance(gold.value, Expression) or not isinstance(answer.value, Expression):
        return False
    units = {read_unit(form.mark) for form in (gold, answer) if form.mark}
    return len(units) <= 1 and equal(gold.value, answer.value)


def _same_sides(gold: Form, answer: Form) -> bool:
    """Have two equations, or two relations, the same sides, in the same or the reversed order?"""
    if gold.mark == FLIPPED.get(answer.mark, answer.mark) and _same_parts(gold.value, answer.value[::-1]):
        return True
    return gold.mark == answer.mark and _same_parts(gold.value, answer.value)


def _same_parts(golds: Sequence[Form], answers: Sequence[Form]) -> bool:
    return len(golds) == len(answers) and all(map(same, golds, answers))


def _same_lists(gold: Form, answer: Form) -> bool:
    """Is each part of the one list a part of the other, each once? A list without a mark may stand for a point."""
    kinds, marks = {gold.kind, answer.kind}, {gold.mark, answer.mark}
    if kinds == {"list", "tuple"} and marks == {"", "()"}:
        return _same_parts(gold.value, answer.value)
    golds, answers = ([*form.value] if form.kind == "list" else [form] for form in (gold, answer))
    names = _names(golds)
    if {*names} != {*_names(answers)} or len({*names}) < len(names):
        return marks == {""} and _same_parts(golds, answers)
    for part in golds:
        found = next((at for at, other in enumerate(answers) if same(part, other)), None)
        if found is None:
            return False
        answers.pop(found)
    return not answers


def _names(parts: list[Form]) -> list[str]:
    """Return the names that order a list, as in x=1,y=2. In x_1=1,x_2=2 both are values of x, in any order."""
    names = [part.name.partition("_")[0].strip() for part in parts]
    return names if all(names) and len({*names}) > 1 else []


def _claims(gold: Form, answer: Form) -> bool:
    """Is every side of the answer's equation the gold, or a name for it?"""
    sides = [side for side in answer.value if side.kind != "name" or not _may_name(side, gold)]
    return bool(sides) and all(same(gold._replace(name=""), side) for side in sides)


def _may_name(side: Form, gold: Form) -> bool:
    """Can the name only stand for the gold? Then it is no second answer, as n is for 2n, x for y or A for (C)."""
    if gold.name or gold.kind == "words":
        return side.text == gold.name
    names, others = side.value.names if side.value else frozenset(), gold.value.names if gold.kind == "value" else ()
    return not others or "(" in side.text or not (names & others or gold.text.isalpha() or len(names) > 1)
