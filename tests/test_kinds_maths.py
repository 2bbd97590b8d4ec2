r"""kinds/maths.py with kinds/answers/: answers that are the gold, and answers that are not.

Where math differs from math-verify 0.9.0 on purpose:

    gold           answer                 here       there      because
    5              3=5                    wrong      right      every side that is no name is claimed
    50             50%, and back          wrong      right      percent is part of the value: 50% is 0.5
    1e-7           2e-7                   wrong      right      decimals are compared relatively, to 1e-6
    1/2^99         1/2^98                 wrong      right      fractions are exact
    10 cm          10 m                   wrong      right      two units must agree; one may be missing
    9.8            9.8 m/s^2              right      wrong      a unit may follow as plain text
    2000           2\,000                 right      wrong      a thin space may separate thousands
    6.02e23        6.02 \times 10^{23}    right      wrong      e is an exponent there, not Euler's number
    x=1,y=2        x=2,y=1                wrong      right      names that both sides give must go with their values
    (1,2)          \{1,2\}                wrong      right      a set is no point; a bare 1,2 may be one
    R^2-r^2        0                      wrong      right      R and r, \Delta and \delta, x' and x are not the same
    \sqrt{2}       \sqrt{2}t              wrong      right      a lone letter after an expression is no unit
    12             a sentence with 12     unparsed   right      the whole box is read, and nothing outside of it
    \ln(xy)        \ln x+\ln y            wrong      right      equal for positive x, y only: negative values count
    2x+4y=3        y=3/4-x/2              right      right      equations of several variables may be multiples
"""

import random
import re
from pathlib import Path

import pytest
from answer_forms import LOOKS, RIGHT_MATH, RIGHT_SCIENCE, SCIENCE_UNITS, UNITS, WRONG_MATH, WRONG_SCIENCE
from judging import REFEREES, costs_at_most, judged, pairs, reason
from wrong_answers import golds, wrong_answers

from kinds import maths
from kinds.boxes import last_box
from kinds.maths import judge_in_worker, judge_math
from kinds.science import judge_science
from verify import verify

SAME_NUMBER = pairs(r"""
1/2  |  0.5  |  .5  |  0.50  |  +0.5  |  1/2  |  2/4  |  \frac{1}{2}  |  \frac12  |  \frac 1 2  |  \frac1{2}
1/2  |  \frac{1}2  |  \dfrac{1}{2}  |  \tfrac12  |  \frac{-1}{-2}  |  -\frac{-1}{2}  |  50%  |  50\%  |  50 \%
1/2  |  $\frac12$  |  5e-1  |  5E-1  |  5 \times 10^{-1}  |  0.05*10^1  |  100/2%  |  1÷2  |  0.5  |  50.0%
0  |  -0  |  0.000  |  0/7  ;  5  |  5.  |  05  ;  -5  |  −5  |  - 5
-3/4  |  -0.75  |  \frac{-3}{4}  |  \frac{3}{-4}  |  -\frac34  ;  1000  |  1,000  |  1{,}000  |  1\,000  |  1,\!000
1,000  |  1e3  ;  1234567.5  |  1,234,567.5  ;  1234567  |  1\,234\,567  ;  1000/3  |  1,000/3  |  \frac{1,000}{3}
602000000000000000000000  |  6.02e23
6.02e23  |  6.02 \times 10^{23}  |  6.02\cdot10^{23}  |  6.02 × 10^23  |  60.2E+22  ;  1e-7  |  0.0000001
1e1000  |  10e999  ;  200%  |  2  ;  0.1  |  1/10
123456789012345678901234567890  |  123456789012345678901234567890.0
""")


@pytest.mark.parametrize(("gold", "answer"), SAME_NUMBER)
def test_math_correct(gold, answer):
    """Makes impossible: one number in two notations taken for two numbers, in either order."""
    assert reason("math", f"Therefore \\boxed{{{answer}}}.", gold) == "correct"
    assert reason("math", f"Therefore \\boxed{{{gold}}}.", answer) == "correct"


OTHER_NUMBER = pairs("""
1e-7  |  2e-7  |  0  ;  1e-1000  |  0  ;  50  |  50%  ;  50%  |  50  ;  1/3  |  0.33333  ;  0.1  |  0.100001
5  |  5 or 6  |  5;6  |  1,00  |  1+1  |  (6)  |  \\{6\\}  |  5^2  |  10^{9^9}  |  1\\times10^{1001}
9007199254740993  |  9007199254740992  ;  1e23  |  99999999999999991611392  ;  5  |  -5  |  5e1  ;  1/2  |  2/1  |  12
12  |  1/2  ;  1000  |  1.000  ;  10  |  1e10  ;  6.02e23  |  6.02e22
123456789012345678901234567890  |  123456789012345678901234567891
""")


@pytest.mark.parametrize(("gold", "answer"), OTHER_NUMBER)
def test_math_wrong(gold, answer):
    """Makes impossible: two numbers taken for one, by floats, by tolerances, or by a reading that drops a digit."""
    assert reason("math", f"\\boxed{{{answer}}}", gold) == "wrong"


NO_ANSWERS = r"""
1 2  |  5 6  |  4 \boxed{5}  |  \frac{1}{0}  |  1/0  |  0/0  |  -  |  $  |  $$  |  .  |  %  |  {  }
1e1001  |  1e-1001  |  1e999999999  |  0e999999999
9**9**9  |  3!!  |  --6  |  1.2.3  |  6,  |  ,6  |  2^3^4  |  0x  |  1^5  |  +-5  |  5+  |  *5
(5  |  5)  |  (5]]
"""
NO_ANSWERS = [*filter(None, re.split(r"  \|  |\n", NO_ANSWERS)), "", " ", "5\x00 6", "[" * 17 + "5" + "]" * 17]


@pytest.mark.parametrize("answer", [*NO_ANSWERS, ",".join("5" * 65)])
def test_math_unparsed(answer):
    """Makes impossible: a box that is no answer rescued by a number inside it or before it."""
    assert reason("math", f"The answer is 5. \\boxed{{5}}. Rather, \\boxed{{{answer}}} = 5", "5") == "unparsed"


def paid(kind, gold, answer):
    """Would this box be paid? Judged in this process, as a worker does it."""
    box = last_box(f"So the answer is \\boxed{{{answer}}}.")
    return box is not None and (box.strip() == gold or judge_in_worker(box, gold, kind == "science") is True)


RIGHT = [("math", *case) for case in RIGHT_MATH] + [("science", *case) for case in RIGHT_SCIENCE]
WRONG = [("math", *case) for case in WRONG_MATH] + [("science", *case) for case in WRONG_SCIENCE]


@pytest.mark.parametrize("looks", [["{}"], LOOKS], ids=["plain", "looks"])
def test_tables_of_forms(looks):
    """Makes impossible: one of 1,000 forms, written by hand, that changes its verdict unseen, alone or with a look."""
    draw = random.Random(0)
    for cases, right in ((RIGHT, True), (WRONG, False)):
        for kind, gold, answer in cases:
            ends = answer.rstrip("} ")[-1:] in ("", *"*。.\\")  # a look may close what this leaves open
            written = answer if ends else draw.choice(looks).format(answer)
            assert paid(kind, gold, written) == right, (kind, gold, written)
    assert len(RIGHT) > 600 and len(WRONG) > 450


def test_every_name_of_a_unit():
    """Makes impossible: a unit under another name refused, another unit paid for it."""
    for kind, table, space in (("math", UNITS, ""), ("science", SCIENCE_UNITS, " ")):
        for at, (first, *names) in enumerate(table):
            gold, other = f"7{space}{first}", f"7{space}{table[at - 1][0]}"
            assert [name for name in names if not paid(kind, gold, f"7{space}{name}")] == [], gold
            assert not paid(kind, gold, other), (gold, other)


def test_the_tables_of_the_page():
    """Makes impossible: an example in docs/problems.md that the code judges differently."""
    page = (Path(__file__).parent.parent / "docs" / "problems.md").read_text()
    [section] = [part for part in page.split("\n## ") if part.startswith("How are math and science answers read?")]
    seen = {True: 0, False: 0}
    for kind, part in zip(("math", "science"), section.partition("Kind `science` accepts")[::2], strict=True):
        for row in re.findall(r"^\| (`.*`.*)\|$", part, re.MULTILINE):
            cells = [re.findall(r"(?:^|, )`([^`]+)`", cell.strip()) for cell in row.split(" | ")]
            [gold], right, wrong, _ = cells
            for expected, answers in ((True, right), (False, wrong)):
                seen[expected] += len(answers)
                assert [answer for answer in answers if paid(kind, gold, answer) != expected] == [], gold
    assert min(seen.values()) > 35


def test_a_list_of_golds():
    """Makes impossible: a second right gold refused, or a wrong answer paid because there are two."""
    golds = ["40", "40\\%", "\\sqrt{1600}"]
    for answer, expected in (("40", "correct"), ("40 percent", "correct"), ("2\\cdot 20", "correct"), ("4", "wrong"),
                             ("40, 40\\%", "wrong"), ("(40", "unparsed"), ("\\sqrt{1601}", "wrong")):  # fmt: skip
        assert reason("math", f"\\boxed{{{answer}}}", golds) == expected
        assert maths.judge_in_worker(answer, golds) is {"correct": True, "wrong": False, "unparsed": None}[expected]
    assert verify("math", maths.solution_math(golds), golds).correct
    for broken in ([], ["40", 40], ["40", ""], [["40"]]):
        with pytest.raises(ValueError, match="math"):
            maths.KIND.check(broken)


def test_only_algebra_needs_a_worker():
    """Makes impossible: a batch of plain numbers that waits for processes."""
    for gold, answer in pairs(r"""
    70000  |  \$70,000  |  70,000 \text{ miles}  |  7  |  1/2  |  x = 70,000  |  7 \times 10^4  |  Evelyn
    \text{(C)}  |  C  |  (D)  ;  1,2  |  2, 1  |  x=1 \text{ or } x=2  ;  5\text{ cm}  |  5 cm  |  5 \text{ m}  |  5.0
    \begin{pmatrix} 1/2 \\ 0 \end{pmatrix}  |  \begin{pmatrix} 0.5 \\ 0 \end{pmatrix}  ;  3:5  |  3 : 5
    """):
        assert judge_math(answer, gold) in (True, False)
        assert judge_science(answer, gold) in (True, False)


def test_math_gold_accepts_itself():
    """Makes impossible: a problem whose own answer is refused, which no response can solve."""
    texts = sorted({gold for gold, _ in RIGHT_MATH + WRONG_MATH} | {*golds()})
    assert judged("math", [(gold, gold) for gold in texts]) == ["correct"] * len(texts)


def test_no_wrong_answer_is_paid():
    """Makes impossible: an answer that hedges, or has unread text, rewarded because it contains the right answer."""
    items = wrong_answers()
    assert len(golds()) > 300 and len(items) > 40_000
    paid = []
    for gold, how, answer in items[:: 1 if REFEREES else 9]:
        box = last_box(f"\\boxed{{{answer}}}")
        if box is not None and box.strip() != gold and judge_in_worker(box, gold):
            paid.append((gold, how, answer))
    assert paid == []


RESPONSES = [
    ("so $\\boxed{28}$%", "28\\%", "correct"), ("so \\boxed{28} percent", "28\\%", "correct"),
    ("so $x=\\boxed{5}$, and thus $y=\\boxed{7}$", "7", "correct"), ("\\boxed{1} and \\boxed{2} cats", "1,2", "wrong"),
    ("**Final Answer**\n\\boxed{004}", "4", "correct"), ("\\boxed{\\text{I think it is } 5}", "5", "wrong"),
    ("\\boxed{5}\x00", "5", "correct"), ("$\\boxed{x = -5,\\ p = \\frac{14}{3}}$", "-5, 14/3", "correct"),
    ("\\boxed{AB=4, CD=5}", "4,5", "correct"), ("\\boxed{-793 < a < 10}", "(-793,10)", "correct"),
    ("\\boxed{f(2) < f(1) < f(4)}", "f(2) < f(1) < f(4)", "correct"), ("\\boxed{e^(2x)}", "e^{2x}", "correct"),
    ("\\boxed{e^{-\\frac{x^2}{2}}}", "e^{-0.5x^2}", "correct"), ("\\boxed{e^{2x}}", "e^{x^2}", "wrong"),
]  # fmt: skip


@pytest.mark.parametrize(("response", "gold", "expected"), RESPONSES)
def test_math_responses(response, gold, expected):
    """Makes impossible: the right box read wrongly, because of the text around it or the number of boxes."""
    assert verify("math", response, gold).reason == expected


HOSTILE = [
    "9^{9^{9^{9}}}", "(10^{9})!", "9^9^9", "9^(9^9)", "x^{x^{x^{x}}}", "2^{(9^{9})}", "((3!)!)!", "(9!+9)!",
    "(9999\\cdot9999)!", "\\binom{99999999}{49999999}", "10^{10^{10}}", "2^{99999}", "\\boxed{(10^9)!}", "9**9**9**9",
    "1e99999999", "\\sqrt{" * 40 + "2" + "}" * 40, "(" * 450 + "1" + ")" * 450, "{" * 480 + "}" * 480, "x" * 1001,
    "1+" * 300 + "1", "\x00" * 900, "\\frac{" * 100, "\\begin{pmatrix}" * 30, "1," * 400 + "1", "\\pm" * 200 + "1",
    "\\text{" * 90, "=" * 500, "\ud800", "٣" * 400,
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE)
def test_math_hostile_answers_earn_nothing(answer):
    """Makes impossible: seconds of algebra on a tower of powers, a huge factorial or deep nesting."""
    golds = "5", "\\sqrt{5}", "1,2", "x>5", "\\text{(C)}", "Evelyn"
    assert not any(judge_in_worker(answer, gold) for gold in golds)
    assert costs_at_most(20, lambda: [judge_in_worker(answer, gold) for gold in golds])  # 0.4 here


PIECES = r"""
5 \boxed{ \frac \sqrt { } \{ \} ( ) [ ] , ; = < \pm \text{ 1 23 0 . / + - * ^ _ x f(x) \pi \infty % $ ! | \ e cm m/s A
(C) \begin{pmatrix} \end{pmatrix} & \\ \left ٣ 10^ million ² ½ \sin \ln \binom \lfloor \rfloor ' \approx : °
"""
PIECES = [*PIECES.split(), "9" * 30, "\\le ", "\\cup ", "\\in ", "\\text{ cm}", " and ", " ", "\n", "\x00", "\ud800"]


@pytest.mark.parametrize("texts", [4_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_math_and_science_never_raise(texts):
    """Makes impossible: an exception on an odd mix of LaTeX, which would count as a crash of the worker."""
    rng = random.Random(0)
    references = [
        "5",
        "\\frac12",
        "(1,2]",
        "\\{1,2\\}",
        "1,2",
        "x^2+1",
        "\\text{(C)}",
        "Evelyn",
        "204_5",
        "x>5",
        "5 cm",
    ]
    references += ["1\\pm\\sqrt2", "50\\%", "x-2y=3", "\\emptyset", "x=1,y=2"]
    seen = set()
    for _ in range(texts):
        answer, gold = "".join(rng.choices(PIECES, k=rng.randint(0, 14))), rng.choice(references)
        answer = rng.choice(["", "", gold]) + answer
        seen.add(judge_in_worker(answer, gold))
        judge_math(answer, gold)
        judge_science(answer, gold)
        last_box(answer)
    assert seen == {None, True, False}
