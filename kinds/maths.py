r"""Kind "math": is the text in the last box the same answer as the gold? (verify.py, section 4.2.1)

    accepted as the same                                not the same
    \frac12, 1/2, 0.5, 50%                              50 for 50%; 0.33333 for 1/3 (relative 1e-6)
    1,000 and 1000; 6.02e23 and 6.02\times10^{23}       1e-7 and 2e-7
    x=5, f(x)=5, 2+3=5 for 5                            3=5 for 5; y=5 for x=5; n=2n for 2n
    1,2 and 2,1; {1,2}; 1\pm2 and -1,3                  (1,2) and (2,1); (1,2) and \{1,2\}; [0,1) and [0,1]
    x>5 and (5,\infty); unions in any order             1,2,2 and 1,2
    10 cm, and 10 without a unit                        10 cm and 10 m; 10 cm and 0.1 m
    \sqrt{2} \approx 1.414 for \sqrt{2}                 1.414; \sqrt{2} \approx 7
    (C), C., C) for \text{(C)}                          (C) 12, two options
    x(x+1) and x^2+x; \sqrt8 and 2\sqrt2                R and r; x' and x; 2\pi x, 2\pi+C and 2\pi
    Letter case, articles and the last full stop        any other word

Reading order: the kind, the last box, `same`. latex.py reads a text into a form, algebra.py compares expressions.
The sources of the rules: the answers of AIME, AMC, MATH, Minerva and OlympiadBench; tests/test_kinds_maths.py lists
where math-verify 0.9.0 decides otherwise, and why.
Simplified: no units are converted and no inequality is solved. Number bases and clock times are equal only as texts.
"""

import math
import re
from fractions import Fraction
from typing import Any

from kinds.algebra import TOLERANCE, Expression, equal, minus, near, proportional
from kinds.latex import FLIPPED, NUMBER, Form, read_math, read_number, words_of
from kinds.patterns import forward
from kinds.units import read_unit
from sandbox.jobs import Call
from verify import MAX_ANSWER, Kind, after_thinking, shown


def judge_math(answer: str, reference: str) -> Any:
    """Is the answer the gold? True or False, None for no form of an answer, or the job that finds out."""
    return judge_text(answer, unboxed(reference))


def judge_text(answer: str, gold: str, science: bool = False) -> Any:
    """Judge the gold's own text and two numbers here. A worker reads everything else."""
    answer, gold = answer.strip(), gold.strip()
    if answer == gold:
        return True
    if len(answer) > MAX_ANSWER:
        return None
    if NUMBER.fullmatch(gold) and NUMBER.fullmatch(answer):
        value = read_number(answer)
        return None if value is None else same_numbers(read_number(gold), value, gold, answer, science)
    return Call("kinds.maths:judge_in_worker", [answer, gold, science], ("mpmath",))


def judge_in_worker(answer: str, gold: str, science: bool) -> bool | None:
    """Read both texts and compare. Text of any length and algebra can take long."""
    if science and re.match(r"[A-Z]|sp[0-9^]", gold) and _flat(gold) == _flat(answer):
        return True
    read, form = read_math(gold), read_math(answer)
    if read is None or form is None:
        return None
    prose = form.kind == "words" and read.kind in ("number", "expression")
    return same(read, form, science) or (None if form.kind == "other" or prose else False)


def _flat(text: str) -> str:
    """Write a chemical formula in one line: CO2."""
    return re.sub(r"\\(?:text|mathrm)|[_^{} ]", "", text)


def check_text(kind: str, reference: Any) -> None:
    """Raise ValueError unless the reference is the text of one answer whose brackets balance."""
    text = unboxed(reference) if isinstance(reference, str) else ""
    if read_math(text) is None or (NUMBER.fullmatch(text.strip()) and read_number(text.strip()) is None):
        raise ValueError(
            f'a {kind} reference is the text of one answer in quotes, such as "12", "\\frac{{1}}{{2}}", "(1,2]", '
            f'"9.8 m/s^2" or "\\text{{(C)}}", of at most {MAX_ANSWER} characters; got {shown(reference)}'
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
_JOINED = forward(r"(?:[\s$.]|\\[()\[\],;]|\\q?quad)*+(?:,|;|\\text\s*+\{\s*+,?\s*+(?:and|or)\s*+\}|\b(?:and|or)\b)"
                  r"(?:[\s$]|\\[()\[\],;]|\\q?quad)*+")  # fmt: skip


def last_box(text: str) -> str | None:
    r"""Return the text in the \boxed{...} that closes last, braces balanced; None if there is none.

    Of nested boxes this is the outer one. A box that never closes is no box. A box that a comma, "and" or "or" ties to
    the box before it is half of a list: both together are no answer, since a list belongs in one box.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("box")
    opened: list[tuple[int, int] | None] = []
    boxes: list[tuple[int, int, int]] = []  # start of \boxed, start and end of its text
    for match in _BRACE.finditer(text, max(first - 3, 0)) if first >= 0 else ():
        brace = match.lastgroup
        if brace == "box":
            opened.append((match.start(), match.end()))
        elif brace == "open":
            opened.append(None)
        elif brace == "close" and opened and (box := opened.pop()) is not None:
            while boxes and boxes[-1][0] > box[0]:
                boxes.pop()
            boxes.append((*box, match.start()))
    if not boxes:
        return None
    start, inner, end = boxes[-1]
    # A tie is short, so its pattern never meets a long text.
    tied = len(boxes) > 1 and start - boxes[-2][2] < 60 and _JOINED.fullmatch(text, boxes[-2][2] + 1, start)
    answer = f"{text[boxes[-2][1] : boxes[-2][2]]}, {text[inner:end]}" if tied else text[inner:end]
    return answer + "\\%" if _PERCENT.match(text, end + 1) else answer


def last_box_of(response: str) -> str | None:
    return last_box(after_thinking(response) or "")


KIND = Kind(judge_math, answer=last_box_of, check=lambda gold: check_text("math", gold), solution=solution)


# ----------------------------------------------------------------------------------------- in a worker


def same(gold: Form, answer: Form, science: bool = False) -> bool:
    """Are two forms the same answer?"""
    if gold.text == answer.text:
        return True
    if gold.kind == "equation":
        if answer.kind == "equation" and proportional(_difference(gold), _difference(answer), 0):
            return True
        return gold.name != "" and same(gold.value[-1]._replace(name=gold.name), answer, science)
    if answer.kind == "equation":
        return _claims(gold, answer, science)
    if gold.name and answer.name and gold.name != answer.name:
        return False
    if "words" in (gold.kind, answer.kind):
        return bool(words_of(gold.raw)) and words_of(gold.raw) == words_of(answer.raw)
    if "option" in (gold.kind, answer.kind):
        return gold.kind == answer.kind and gold.value == answer.value and answer.mark in ("", gold.mark)
    if "list" in (gold.kind, answer.kind):
        return _same_lists(gold, answer, science)
    if gold.kind == answer.kind == "tuple":
        # A column and a point are both vectors.
        alike = gold.mark == answer.mark or {gold.mark, answer.mark} == {"column", "()"}
        return alike and _same_parts(gold.value, answer.value, science)
    if gold.kind == answer.kind == "relation":
        flips = gold.mark != answer.mark
        signed = gold.mark in FLIPPED and answer.mark == (FLIPPED[gold.mark] if flips else gold.mark)
        return (signed or not flips) and proportional(_difference(gold), _difference(answer), signed * (1 - 2 * flips))
    if not (_has_value(gold) and _has_value(answer) and _same_units(gold, answer, science)):
        return False
    if gold.kind == answer.kind == "number":
        return same_numbers(gold.value, answer.value, gold.raw, answer.raw, science)
    return equal(_expression(gold), _expression(answer))


def same_numbers(gold: Any, answer: Any, gold_text: str, text: str, science: bool) -> bool:
    """Are two numbers equal? One decimal beside another notation may be rounded, to TOLERANCE."""
    if gold == answer or math.inf in (abs(gold), abs(answer)):
        return gold == answer
    if science and "." in gold_text and _rounds_to(answer, gold, gold_text):
        return True
    one_decimal = ("." in gold_text) != ("." in text)
    return one_decimal and gold.denominator != 1 and abs(gold - answer) <= TOLERANCE * abs(gold)


def _rounds_to(value: Fraction, gold: Fraction, text: str) -> bool:
    """Is the gold this value, rounded to the gold's three or more digits?"""
    digits = NUMBER.match(text)
    figures = (digits["whole"] or "") + (digits["decimals"] or "") if digits else ""
    count = len(figures.replace(",", "").replace(" ", "").lstrip("0"))
    if count < 3 or not gold:
        return False
    exponent = math.floor(math.log10(abs(gold.numerator)) - math.log10(gold.denominator))  # a float ends at 1e308
    return abs(value - gold) <= Fraction(10) ** (exponent - count + 1) / 2


def _same_units(gold: Form, answer: Form, science: bool) -> bool:
    """Have both the same known unit, or one of them none? A lone letter after a number may be a factor."""
    if gold.mark and answer.mark:
        return bool(read_unit(answer.mark)) and read_unit(gold.mark) == read_unit(answer.mark)
    mark = gold.mark or answer.mark
    factors = not science and re.fullmatch(r"[A-Za-zμΩ](?: [A-Za-zμΩ])*", mark)
    return not mark or (not factors and (not answer.mark or bool(read_unit(mark))))


def _has_value(form: Form) -> bool:
    return form.kind in ("number", "expression", "name") and form.value is not None


def _expression(form: Form) -> Expression:
    if isinstance(form.value, Expression):
        return form.value
    return Expression(lambda point: form.value, frozenset(), "." in form.raw)


def _difference(form: Form) -> Expression | None:
    """Return left - right of an equation or relation with two sides, which it compares with 0; None for others."""
    sides = [side for side in form.value if _has_value(side)]
    return (
        minus(*map(_expression, sides)) if len(sides) == len(form.value) == 2 and form.mark != ("\\approx",) else None
    )


def _same_parts(golds: tuple[Form, ...], answers: tuple[Form, ...], science: bool) -> bool:
    return len(golds) == len(answers) and all(same(*pair, science) for pair in zip(golds, answers, strict=True))


def _same_lists(gold: Form, answer: Form, science: bool) -> bool:
    """Is each part of the one list a part of the other, each once? A list without a mark may stand for a point."""
    kinds, marks = {gold.kind, answer.kind}, {gold.mark, answer.mark}
    if kinds == {"list", "tuple"} and marks == {"", "()"}:
        return _same_parts(gold.value, answer.value, science)
    if _names_parts(gold) != _names_parts(answer):
        return kinds == {"list"} and marks == {""} and _same_parts(gold.value, answer.value, science)
    golds, answers = ([*form.value] if form.kind == "list" else [form] for form in (gold, answer))
    for part in golds:
        found = next((at for at, other in enumerate(answers) if same(part, other, science)), None)
        if found is None:
            return False
        answers.pop(found)
    return not answers


def _names_parts(form: Form) -> bool:
    """Is it a list like x=1,y=2, whose names order it? x_1=1,x_2=2 are the values of one name."""
    stems = [part.name.partition(" _")[0] for part in form.value] if form.kind == "list" else []
    return len(set(stems)) == len(stems) > 1 and all(stems)


def _claims(gold: Form, answer: Form, science: bool) -> bool:
    """Is every side of the answer's equation the gold, or a name for it?"""
    stated = False
    for sign, side in zip(("", *answer.mark), answer.value, strict=True):
        if side.kind == "name" and _may_name(side, gold):
            continue
        if not same(gold._replace(name=""), side, science) and not (sign == "\\approx" and _approximates(gold, side)):
            return False
        stated = True
    return stated


def _may_name(side: Form, gold: Form) -> bool:
    """Can a name be no other answer than the gold? n can be one for 2n, and x for y."""
    if gold.name or gold.kind != "expression":
        return side.text == gold.name or not gold.name
    names, others = side.value.names if side.value else frozenset(), gold.value.names
    return "(" in side.text or not (names & others or gold.raw.isalpha() or (others and len(names) > 1))


def _approximates(gold: Form, side: Form) -> bool:
    """Is a decimal with three or more digits the gold's value, rounded?"""
    found = re.fullmatch(r"-?([0-9]*)\.([0-9]+)", side.raw)
    if not found or len((found[1] + found[2]).lstrip("0")) < 3 or gold.kind not in ("number", "expression"):
        return False
    return near(_expression(gold), side.value, Fraction(1, 10 ** len(found[2])))
