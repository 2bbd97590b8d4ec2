r"""Kind "math": is what stands in the last box the same as the gold answer? (verify.py, section 4.2)

    accepted as the same                                not the same
    \frac12, 1/2, 0.5, 50%                              50 for 50%; 0.33333 for 1/3 (relative 1e-6)
    1,000 and 1000; 6.02e23 and 6.02\times10^{23}       1e-7 and 2e-7
    x=5, f(x)=5, 5=5 for 5                              3=5 for 5: every side that is no name must be right
    1,2 and 2,1; {1,2}; 1\pm2 and -1,3                  (1,2) and (2,1); (1,2) and \{1,2\}; [0,1) and [0,1]
    x>5 and (5,\infty); unions in any order
    10 cm, 0.1 m, and 10 without a unit                 10 cm and 10 m
    (C), C., C) 12 for \text{(C)}                       another option; two of them
    x(x+1) and x^2+x; \sqrt8 and 2\sqrt2                R and r; x' and x; \gcd(a,b) and 1
    Letter case, articles and end marks of words        a sentence around the answer

    unparsed     the box holds no such form: it is too long, unbalanced, a tower of powers, prose for a number
    no_answer    there is no closed box behind the thinking

The trainer's process judges two answers: the gold's text, and a number where the gold is a number. A worker reads the
others, within the time limit.

The sources of the rules: the answers of AIME, AMC, MATH, Minerva and OlympiadBench; tests/test_verifiers_math.py lists
where math-verify 0.9.0 decides otherwise, and why.
Simplified: inequalities are read for one variable, not solved; degrees are radians only in a sine or its like.

Reading order: the kind's four functions, which text is the answer, when two forms are the same.
latex.py says what a text means, numerals.py reads numbers, algebra.py does what takes sympy.
"""

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from verifiers.algebra import algebra
from verifiers.latex import OPTION, TOLERANCE, Form, read_math, read_quantity, words_of
from verifiers.numerals import NUMBER
from verifiers.units import Unit, read_unit
from verifiers.verdict import CORRECT, MAX_ANSWER, UNPARSED, WRONG, Kind, Verdict, after_thinking, forward, shown


class Gold(NamedTuple):
    """A gold answer as it is written, and as it reads."""

    text: str
    form: Form


def check_math(reference: Any) -> Gold:
    """Return the reference with its reading; ValueError unless it is text that `read_math` reads."""
    text = unboxed(reference).strip() if isinstance(reference, str) else ""
    form = read_math(text)
    if form is None:
        raise ValueError(
            'a math reference is the text of one answer in quotes, such as "12", "\\frac{1}{2}", "(1,2]", "x^2+1" or '
            f'"\\text{{(C)}}", of at most {MAX_ANSWER} characters; got {shown(reference)}'
        )
    return Gold(text, form)


def unboxed(reference: str) -> str:
    """A gold answer that comes in a box, or in a sentence with one, is what the box holds."""
    return last_box(reference) or reference


def find_math(response: str) -> str | None:
    """What stands in the last balanced box, joined with the boxes that an "and" or a comma ties to it."""
    text = after_thinking(response)
    return None if text is None else last_box(text)


def judge_math_inline(answer: str, gold: Gold, science: bool = False) -> Verdict | None:
    """The verdict on the gold's text, and on a number where the gold is a number. None for the rest: a worker reads it.

    NUMBER is the only pattern that meets the text, and it cannot backtrack.
    """
    answer = answer.strip()
    if answer == gold.text:
        return CORRECT
    if len(answer) > MAX_ANSWER:
        return UNPARSED
    if gold.form.kind != "number" or not NUMBER.fullmatch(answer):
        return None
    number = read_quantity(answer)
    if number is None:  # without a value, such as 1/0
        return UNPARSED
    return CORRECT if same_answer(gold.form, number, undecided, science) else WRONG


def judge_math_in_worker(answer: str, reference: str, science: bool = False) -> Verdict:
    """Is the answer the gold, by the rules above? In a worker: no length of text and no algebra is safe elsewhere."""
    gold, form = check_math(reference).form, read_math(answer)
    if form is None:
        return UNPARSED
    try:
        same = same_answer(gold, form, undecided, science)
        if same is None:
            same = same_answer(gold, form, algebra, science)
    except ArithmeticError:
        return UNPARSED
    if same:
        return CORRECT
    return UNPARSED if form.kind == "text" and gold.kind not in ("text", "option", "list") else WRONG


def solution_math(reference: str) -> str:
    """A response that is right."""
    return f"\\boxed{{{unboxed(reference)}}}"


KIND = Kind(
    check_math, find_math, judge_math_inline, judge_math_in_worker, packages=("math_verify",), solution=solution_math
)

# The paper's longest response, 16,384 tokens, is below 100,000 characters: only runaway text is cut at this length.
MAX_BOX_DISTANCE = 1_000_000
# Escaped braces and LaTeX's line break \\ are passed over, unless the break is a \boxed with its backslash doubled.
_BRACE = forward(r"(?P<box>\\(?:boxed|fbox)\s*+\{)|\\[{}]|\\\\(?!boxed)|(?P<open>\{)|(?P<close>\})")
_JOINED = forward(
    r"(?:[\s$.]|\\[()\[\],;]|\\q?quad)*+(?:,|;|\\text\s*+\{\s*+,?\s*+(?:and|or)\s*+\}|\b(?:and|or)\b|\s)++"
    r"(?:[\s$]|\\[()\[\],;]|\\q?quad)*+(?:[A-Za-z][A-Za-z0-9_{}']*+\s*+=\s*+)?"
)
_PERCENT_BEHIND = forward(r"[\s$]{0,8}+(?:\\?%|(?:percent|pct)\b)")


def last_box(text: str) -> str | None:
    r"""What stands in the \boxed{...} that closes last, braces balanced; None if there is none.

    Of nested boxes that is the outer one. A box that is never closed, as in a truncated response, is no box.
    Boxes tied together by commas, "and" or "or" are one list: naming several answers is no way to hedge.
    Only the last MAX_BOX_DISTANCE characters are read.
    """
    text = text[-MAX_BOX_DISTANCE:]
    first = text.find("box")
    if first < 0:
        return None
    opened: list[tuple[int, int] | None] = []
    boxes: list[tuple[int, int, int]] = []  # where \boxed starts, its text starts, and that ends
    for match in _BRACE.finditer(text, max(first - 3, 0)):
        brace = match.lastgroup
        if brace == "box":
            opened.append((match.start(), match.end()))
        elif brace == "open":
            opened.append(None)
        elif brace == "close" and opened:
            box = opened.pop()
            if box is not None:
                while boxes and boxes[-1][0] > box[0]:
                    boxes.pop()
                boxes.append((*box, match.start()))
    if not boxes:
        return None
    start, inner, end = boxes.pop()
    answer = text[inner:end]
    if _PERCENT_BEHIND.match(text, end + 1):
        answer += "\\%"
    # A tie is short, so that its pattern is never tried on a long text.
    while boxes and start - boxes[-1][2] < 60 and _JOINED.fullmatch(text, boxes[-1][2] + 1, start):
        if len(answer) > MAX_ANSWER:
            break
        start, inner, end = boxes.pop()
        answer = f"{text[inner:end]}, {answer}"
    return answer


Judge = Callable[[Form, Form], bool | None]


def undecided(gold: Form, answer: Form) -> None:
    """The judge that stands in for algebra: most answers are decided by what does not take it."""


def same_answer(gold: Form, answer: Form, judge: Judge, science: bool) -> bool | None:
    """Is the answer the gold? `judge` is asked where it takes algebra; its None is handed on.

    A list has no order, but names in its place where both sides have them (x=1,y=2); tuples, intervals and matrices
    have both order and brackets. A unit that is missing is understood.
    """
    if gold.text == answer.text and gold.mark == answer.mark:
        return True
    if gold.kind == "chain":
        gold = gold.value[-1]
    picked = _picked(gold), _picked(answer)
    if all(picked):
        return picked[0] == picked[1]
    if answer.kind == "chain":
        return _all(same_answer(gold, side, judge, science) for side in answer.value)
    if gold.kind == "text":
        return gold.value == words_of(answer.text)
    if gold.kind == "option":
        option = OPTION.fullmatch(answer.text.upper() if science else answer.text)
        return option is not None and answer.kind != "list" and gold.value == (option[1] or option[2])
    if "list" in (gold.kind, answer.kind):
        return _same_lists(gold, answer, judge, science)
    if gold.kind == answer.kind == "tuple":
        # A column and a point are both vectors; a row is a tuple in a matrix.
        if {gold.mark, answer.mark} not in ({gold.mark}, {"matrix", "()"}) or len(gold.value) != len(answer.value):
            return False
        return _all(same_answer(*pair, judge, science) for pair in zip(gold.value, answer.value, strict=True))
    if gold.kind == answer.kind == "number":
        # 2h is a product as likely as two hours: a lone letter that is not upright is a unit only beside a unit.
        if not science and "" in (gold.mark, answer.mark) and len(gold.mark + answer.mark) == 1:
            return False
        return _same_numbers(gold, answer, science)
    if "base" in (gold.kind, answer.kind):
        bases = {form.mark for form in (gold, answer) if form.kind == "base"}
        digits = [form.value if form.kind == "base" else form.text for form in (gold, answer)]
        return len(bases) == 1 and digits[0] == digits[1]
    if answer.kind in ("text", "option") or {gold.kind, answer.kind} <= {"number", "tuple"}:
        return False
    if science and gold.text.translate(_INDICES) == answer.text.translate(_INDICES):
        return True
    if science and re.match(r"[A-Z[]|sp[0-9^]", gold.text) and _flat(gold) == _flat(answer):
        return True
    return judge(gold, answer) if _comparable(gold.mark, answer.mark) else False


def _flat(form: Form) -> str:
    """A chemical formula without how it is set."""
    return re.sub(r"\\text|[_^{} ]", "", form.text + form.mark)


def _picked(form: Form) -> str:
    """The letters of two or more options, A,C,D or ACD."""
    if form.kind == "list" and all(part.kind == "option" for part in form.value):
        return "".join(sorted({part.value for part in form.value}))
    return "".join(sorted(form.text)) if re.fullmatch("[A-J]{2,}", form.text) else ""


def _same_lists(gold: Form, answer: Form, judge: Judge, science: bool) -> bool | None:
    golds, answers = ((form.value if form.kind in ("list", "tuple") else (form,)) for form in (gold, answer))
    if not golds or not answers:  # no solution: algebra would call a true statement, such as 0<1, its equal
        return golds == answers
    if "expression" in (gold.kind, answer.kind) or "relation" in (gold.kind, answer.kind):
        return judge(gold, answer)
    # 1000,99 and 1,22 are decimals where the other is a number: a list could not be right. 3,0 is no decimal.
    if "number" in (gold.kind, answer.kind) and re.fullmatch(
        r"-?[0-9]+,[0-9]*[1-9]", (gold.text, answer.text)[gold.kind == "number"]
    ):
        a, b = (read_quantity(form.text.replace(",", ".")) if form.kind == "list" else form for form in (gold, answer))
        return a is not None and b is not None and _same_numbers(a, b, science)
    names = [[form.name for form in forms] for forms in (golds, answers)]
    # x_1=2, x_2=3 are two values of one name.
    stems = [{name.partition("_")[0] for name in some} for some in names]
    distinct = [len(some) == len(forms) > 1 and all(some) for some, forms in zip(stems, (golds, answers), strict=True)]
    if set(names[0]) == set(names[1]) and len(set(names[0])) == len(golds) == len(answers) > 1:
        answers = tuple(answers[names[1].index(name)] for name in names[0])
    elif "tuple" not in (gold.kind, answer.kind) and distinct[0] == distinct[1]:
        # Values that the gold repeats are not a set: 1,1,2 is not 1,2.
        if len({form.text for form in golds}) < len(golds) != len(answers) and not gold.mark:
            return False
        matches = [[same_answer(left, right, judge, science) for right in answers] for left in golds]
        return _all(_any(line) for line in [*matches, *zip(*matches, strict=True)])
    elif "tuple" in (gold.kind, answer.kind) and (answer.mark not in ("", "()") or gold.mark not in ("", "()")):
        return False
    if len(golds) != len(answers):
        return False
    return _all(same_answer(*pair, judge, science) for pair in zip(golds, answers, strict=True))


def _all(values: Iterable[bool | None]) -> bool | None:
    values = list(values)
    return False if False in values else None if None in values else True


def _any(values: Iterable[bool | None]) -> bool | None:
    values = list(values)
    return True if True in values else None if None in values else False


def _same_numbers(gold: Form, answer: Form, science: bool) -> bool:
    a, b = gold.value, answer.value
    if gold.mark and answer.mark:
        left, right = read_unit(gold.mark), read_unit(answer.mark)
        if left is not None and right is not None:
            if not _same_dimension(left, right):
                return False
            if left.known and right.known:
                a, b = a * left.scale, b * right.scale
    if a == b or math.inf in (abs(a), abs(b)) or not (gold.rounded or answer.rounded):
        return a == b
    if science and gold.rounded and _rounds_to(b, a, gold):
        return True
    return gold.value.denominator != 1 and abs(a - b) <= TOLERANCE * abs(a)


def _comparable(gold: str, answer: str) -> bool:
    """Could quantities in these units be equal? Only numbers are converted: 2\\pi cm is not 20\\pi mm."""
    left, right = read_unit(gold) if gold else None, read_unit(answer) if answer else None
    return left is None or right is None or _same_dimension(left, right)


def _same_dimension(left: Unit, right: Unit) -> bool:
    """cm and m; of two words any (children, kids); a unit and a word with that unit in it (cm tall), not flurbs."""
    if left.known and right.known:
        return left.dimension == right.dimension
    if not (left.known or right.known):
        return True
    known, word = (left, right) if left.known else (right, left)
    named = [read_unit(part) for part in word.dimension[0][0].split()]
    return any(unit is not None and unit.known and unit.dimension == known.dimension for unit in named)


_INDICES = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789", "_{}")


def _rounds_to(value: Fraction, gold: Fraction, form: Form) -> bool:
    """Is the gold this value, rounded to the gold's three or more digits?"""
    digits = re.match(r"-?[0-9,]*\.[0-9]*", form.text)
    figures = len(digits[0].replace(",", "").replace(".", "").lstrip("-0")) if digits else 0
    if figures < 3 or not gold:
        return False
    exponent = math.floor(math.log10(abs(gold.numerator)) - math.log10(gold.denominator))  # a float ends at 1e308
    step = Fraction(10) ** (exponent - figures + 1)
    return abs(value - gold) <= step / 2
