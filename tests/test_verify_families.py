r"""verify.py: math, science, ifeval, logic, and where problems come from. (test_verify.py has the rest.)

Where math differs from math-verify 0.9.0 on purpose:

    gold           answer                 here       there      because
    5              3=5                    wrong      right      every side that is no name is claimed
    11             x=5+5+1=7=11           wrong      right      the same: its last side alone would be a way to hedge
    50             50%, and back          wrong      right      percent is part of the value: 50% is 0.5
    1e-7           2e-7                   wrong      right      decimals are compared relatively, to 1e-6
    1/2^99         1/2^98                 wrong      right      values are compared to 20 digits, relatively
    10 cm          10 m                   wrong      right      two units that are known must agree; one may be missing
    10 cm          0.1 m                  right      wrong      and they are converted, exactly
    9.8            9.8 m/s^2              right      wrong      a unit may stand plain behind a number
    2000           2\,000                 right      wrong      thousands may be set with a thin space
    6.02e23        6.02 \times 10^{23}    right      wrong      e is an exponent there, not Euler's number
    0.\overline{3} 1/3                    right      wrong      read as the fraction that it is
    x=1,y=2        x=2,y=1                wrong      right      names that both sides give must go with their values
    (1,2)          \{1,2\}                wrong      right      a set is no point; a bare 1,2 may be one
    1-1/e          1+1/e                  wrong      right*     (* expected so in its tests)
    1<=|z|<=3/2    the union of two       wrong      right      an inequality is read for a name, not solved
    (3/5,8/3]      (0.6,2.6667]           wrong      right**    (** at the precision its test sets)
    1,2            \boxed{1} dogs,        wrong      right      boxes are one list only where a comma, "and" or "or"
                   \boxed{2} cats                               ties them; else the last one is the answer
    R^2-r^2        0                      wrong      right      R and r, \Delta and \delta, x' and x are not the same
    \gcd(a,b)      1                      unparsed   right      the gcd of letters is not 1
    \sqrt{2}       \sqrt{2}t              wrong      right      a lone letter behind an expression is no unit
    12             a sentence with 12     unparsed   right      nothing outside of the box, and no part of it, is read

Where ifeval differs from google-research's instruction_following_eval on purpose:

    missing or unknown arguments    an error at load; there, missing ones are drawn at random
    keywords, markers, splitters    taken literally; there they are regular expressions
    language not detectable         not followed; there it counts as followed ("!!!" would be any language)
    keywords:letter_frequency       any character, as the prompts ask (#, !); there, one that is no letter is redrawn
    number_words                    \w+, as there up to nltk 3.9; from 3.10 on vowel signs do not end a word of Hindi
    number_sentences                punkt's rules without its trained table of spellings, which tells "J. Smith" from
                                    "A. Summary". On 1,068 responses of three models to the prompts of IFEval: the same
                                    count in 98.2%, at most one off in 99.3%
    capital_word_frequency          words cut as nltk's word_tokenize does, but for 'TIS (16 of 6,000 texts differ)
    length                          beyond a million characters nothing is followed

BRORL_REFEREES=1 makes the tests mandatory that need reasoning-gym, langdetect or datasets; else they are skipped where
the package is missing.
"""

import importlib.util
import json
import logging
import os
import random
import re
import time
from pathlib import Path

import pytest

import verify as module
from verify import (
    HUB,
    INSTRUCTIONS,
    KINDS,
    Problem,
    check_ifeval,
    check_math,
    deliberate_logic,
    deliberate_math,
    deliberate_science,
    follow_instructions,
    load_data,
    load_problems,
    map_rows,
    read_math,
    read_spec,
    read_unit,
    verify,
    verify_batch,
)


def needs(package):
    missing = importlib.util.find_spec(package) is None and os.environ.get("BRORL_REFEREES") != "1"
    return pytest.mark.skipif(missing, reason=f"needs {package}; BRORL_REFEREES=1 makes it mandatory")


def pairs(text):
    return [tuple(part.strip() for part in line.split("  |  ")) for line in text.strip().split("\n")]


def judged(kind, cases):
    """The reasons for boxed answers, all in one batch: most of the algebra is done by one pair of workers."""
    verdicts = verify_batch(
        [(kind, f"The answer is $\\boxed{{{answer}}}$.", gold) for gold, answer in cases], workers=2
    )
    return [verdict.reason for verdict in verdicts]


# --------------------------------------------------------------------------------------------- math

SAME = pairs(r"""
\frac{1}{2}  |  0.5
\frac{1}{3}  |  0.333333
\frac13  |  0.3333333333
50\%  |  \frac12
5  |  x=5
5  |  5=x
5  |  x=y=5
5  |  2+3=5
5  |  5=5
\frac{1}{2^{99}}  |  2^{-99}
6.02e23  |  6.02 \times 10^{23}
2000  |  2\,000
2000  |  2{,}000
2000  |  2,000
2000  |  2 000
9.8  |  9.8 m/s^2
9.8 \text{ m/s}^2  |  9.8
3\frac{1}{2}  |  \frac72
3\frac{1}{2}  |  3.5
-3\frac{1}{2}  |  -3.5
(1,2)  |  (1, 2)
[0,1)  |  [0, 1)
\{1,2,3\}  |  \{3,2,1\}
1,2,3  |  3, 1, 2
1,2  |  1 \text{ and } 2
1,2  |  x=1 \text{ or } x=2
x=1,y=2  |  y=2,x=1
x=1,y=2  |  (1,2)
x=1,y=2  |  1,2
(1,2)  |  x=1, y=2
(3,-4)  |  (x,y)=(3,-4)
\text{(C)}  |  C
C  |  \text{(C)}
C  |  (C) 12
C  |  \textbf{(C)}\ 12
\text{Evelyn}  |  Evelyn
\text{Evelyn}  |  evelyn.
Yes  |  \text{yes}
90^\circ  |  90
90  |  90^{\circ}
90^\circ  |  90 \text{ degrees}
\$5.50  |  5.5
18.90  |  \$18.90
5  |  5 \text{ dollars}
15\mbox{ cm}^2  |  15
15  |  15 \text{ cm}^2
15 \text{ cm}  |  0.15 \text{ m}
2\sqrt{3}  |  \sqrt{12}
2\sqrt{3}  |  3.4641016
\frac{\sqrt{2}}{2}  |  \frac{1}{\sqrt{2}}
\sqrt{2}  |  1.414213562
x^2+2x+1  |  (x+1)^2
y=2x+3  |  2x+3
y = 2x + 3  |  y=3+2x
2x+3  |  y=2x+3
2x+3y=6  |  y=2-\frac{2}{3}x
x-2y+z-1=0  |  -x+2y-z+1=0
x > 5  |  (5,\infty)
(5,\infty)  |  x > 5
[-2,7]  |  -2 \le x \le 7
(-\infty,1)\cup(3,\infty)  |  x<1 \text{ or } x>3
(-\infty,1)\cup(3,\infty)  |  (3,\infty)\cup(-\infty,1)
\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}  |  \begin{bmatrix}1&2\\3&4\end{bmatrix}
\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}  |  \begin{pmatrix} -\frac13 \\ \frac23 \\ \frac{5}{3} \end{pmatrix}
1 \pm \sqrt{19}  |  1 - \sqrt{19}, 1 + \sqrt{19}
\pm 2  |  2,-2
204_5  |  204_{5}
204_5  |  204
\frac{9}{4}\pi  |  \frac94\pi
\frac{9\pi}{4}  |  \frac94\pi
2^{2018}  |  2^{2018}
2^{2018}  |  4^{1009}
2016!  |  2016!
0  |  0.0
3+4i  |  4i+3
e^{i\pi/3}  |  \frac{1}{2}+\frac{\sqrt{3}}{2}i
\tan^2(y)+1  |  \sec^2(y)
7:32  |  \frac{7}{32}
1:2  |  2:4
\emptyset  |  \varnothing
\mathbb{R}  |  (-\infty,\infty)
0.\overline{3}  |  \frac13
11,111,111,100  |  11,\! 111,\! 111,\! 100
12  |  \boxed{12}
(-\infty, -4)\cup(-4, 0)  |  (-\infty,-4) \cup (-4, 0)
p - q  |  -q+p
\frac{x+2}{7}  |  \frac{x}{7}+\frac{2}{7}
11\sqrt2  |  11\sqrt{2}
2  |  2 \text{ h}
10  |  10 apples
5000000  |  5 million
6 - 5i  |  6-5i
\dfrac{3}{2}  |  3/2
-\frac{3}{4}  |  \frac{-3}{4}
-\frac{3}{4}  |  \frac{3}{-4}
x=\frac{1}{2}  |  \frac12
f(x)=x^2  |  x^2
\text{June 20}  |  June 20
5:30  |  5:30
\frac{3}{2}\text{ or }\frac12  |  \frac12, \frac32
24 \text{ cm}  |  24
\log_2 8  |  3
\binom{5}{2}  |  10
10  |  \binom{5}{2}
10  |  \frac{5!}{2!3!}
1.5\times 10^3  |  1500
0.5  |  .5
004  |  4
2 \sin b \cos a  |  2\cos a\sin b
k \geq 2  |  k\ge 2
3^{1/3}  |  \sqrt[3]{3}
n^2+n  |  n(n+1)
\frac{n(n+1)}{2}  |  \frac{n^2+n}{2}
(2n)!  |  (2n)!
2^{n}-1  |  2^n - 1
2^{n+1}  |  2\cdot 2^n
\lfloor n/2\rfloor  |  \lfloor \frac{n}{2} \rfloor
\{x \mid x > 3\}  |  \{x \mid x>3\}
5\text{ or }6  |  6,5
(1,2),(3,4)  |  (3,4),(1,2)
\{-1\}\cup[0,7)  |  [0,7)\cup\{-1\}
100000  |  10^5
10^5  |  100000
1,000,000  |  10^6
1.0  |  1
3.5  |  3,5
\frac{1}{2}, \frac{1}{3}  |  \frac13,\frac12
x \neq 3  |  x\ne3
a=4,-8,-10  |  -10,-8,4
\frac{t}{m}  |  \frac{1}{m} t
\frac{c}{\sqrt{2}}  |  \frac{1}{\sqrt{2}}c
ab+bc+ca  |  ab + bc + ac
\frac{dx}{dt} = kx - a  |  \frac{d x}{d t}=k x-a
x' + \frac{r}{V}x - rc = 0  |  x^{\prime}+\frac{r}{V} x-r c=0
E_1, E_2  |  E_{2},E_{1}
\frac{q_0}{\sqrt{2LC}}  |  \frac{q_{0}}{\sqrt{2 C L}}
A e^{-E_a/RT}  |  A e^{-\frac{E_a}{RT}}
\frac{Q}{4\pi\varepsilon_0 R_\odot^2}  |  \frac{1}{4\pi\epsilon_0}\frac{Q}{R_{\odot}^{2}}
2^{2^n}-1  |  2^{2^{n}} - 1
\frac{(n-1)!}{k!} \frac{n}{(n-k)!}  |  \frac{n!}{k!(n-k)!}
\binom{n}{2}  |  \frac{n!}{2!(n-2)!}
120  |  {10 \choose 3}
2+3i  |  2 + 3\mathrm{i}
2\mathbf{i}+3\mathbf{j}  |  2\hat{i}+3\hat{j}
\frac{\sqrt{6}-\sqrt{2}}{4}  |  \sin 15^\circ
\tan(15^\circ)  |  2-\sqrt{3}
\arctan(2)  |  \operatorname{arctan} 2
\frac{\pi}{2}  |  pi/2
5\sqrt{2}  |  5*sqrt(2)
0,111  |  0.111
\frac{4}{33}  |  0.121212\ldots
\frac{1}{3}  |  0.333...
0.\dot{3}  |  \frac{1}{3}
2\frac12  |  2½
10^{23}  |  10²³
3:45 \text{ p.m.}  |  3:45 PM
3:45  |  3:45 \text{ PM}
2:3  |  2 \text{ to } 3
2B_{16}  |  \text{2B}_{16}
4321_5  |  4321_{\text{five}}
x \ge 3  |  \{x \mid x \ge 3\}
\{x|-2\leq x < 1\}  |  [-2,1)
\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  \langle 1, 2 \rangle
\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}  |  \begin{bmatrix} 1 & 0 \\[4pt] 0 & 1 \end{bmatrix}
3,5  |  x_1 = 5, x_2 = 3
x_1=3, x_2=5  |  x_2=5, x_1=3
A,C,D  |  ACD
ACD  |  A \text{, } C \text{ and } D
\text{(A)}  |  A)
\text{(A)}  |  \text{Option A}
\infty  |  \text{infinity}
\text{No solution}  |  \text{There is no solution}
\text{no solution}  |  \emptyset
f(x)=x  |  f(x)=x \text{ for all } x\in\mathbb{R}
x = k\pi, k \in \mathbb{Z}  |  x = k\pi \quad (k \in \mathbb{Z})
p \equiv 1 \pmod 4  |  p\equiv 1\ (\text{mod } 4)
5  |  m+n = 2+3 = 5
2\pi  |  2\pi \text{ cm}
2\sqrt{3}  |  2\sqrt{3} cm
(1,2),(3,4)  |  x=3,y=4 \quad \text{or} \quad x=1,y=2
11z^{17}(5+11z^{17})  |  11z^17(11z^17+5)
58 square units  |  58
9.81 m/s^2  |  9.81\ \frac{\text{m}}{\text{s}^2}
""")

DIFFERENT = pairs(r"""
\frac{1}{3}  |  0.33
3.14  |  \pi
50\%  |  50
50  |  50\%
5  |  3=5
5  |  2+2=5
1e-7  |  2e-7
\frac{1}{2^{99}}  |  \frac{1}{2^{98}}
10^{-7}  |  10^{-8}
9.8 m/s^2  |  9.8 \text{ m/s}
\frac32  |  3\frac{1}{2}
(1,2)  |  (2,1)
(1,2)  |  [1,2]
[0,1)  |  (0,1]
1,2,3  |  1,2
1,2  |  1,2,3
x=1,y=2  |  x=2,y=1
x=1,y=2  |  2,1
C  |  (B)
C  |  12
\text{Evelyn}  |  Carla
\text{even}  |  odd
Yes  |  No
15 \text{ cm}  |  15 \text{ m}
x^2+2x+1  |  x^2+2x
x-2y+z-1=0  |  x-2y+z+1=0
(5,\infty)  |  x \ge 5
(-\infty,1)\cup(3,\infty)  |  (3,\infty)
\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}  |  \begin{pmatrix}1 & 3 \\ 2 & 4\end{pmatrix}
\pm 2  |  2
204_5  |  54
204_5  |  204_{6}
2^{2018}  |  2^{2017}
2016!  |  2015!
-1  |  1
i  |  -i
3+4i  |  3-4i
12:00  |  1:00
32349  |  32, 349
5x  |  5
5  |  5x
2  |  2h
5  |  5 million
-\infty  |  \infty
A  |  a
(a+5)(b+2)  |  (+5)(b+2)
(1,2),(3,4)  |  (3,4)
5  |  5.0000001
3x+2  |  3x+3
\frac{1}{x}  |  \frac{1}{x+1}
|x|  |  x
\sqrt{x^2}  |  x
\sin(2x)  |  \sin x \cos x
x^2-y^2  |  (x-y)^2
2^{100}  |  2^{100}+1
\frac{1}{10^{30}}  |  \frac{1}{10^{31}}
10^{-40}  |  0
\sqrt{2}  |  \sqrt{2}+10^{-15}
\pi  |  3.1416
\pi  |  \frac{22}{7}
e  |  2.718
x \ge 5  |  x \le 5
x<1  |  x>1
y=2x+3  |  y=3x+2
2x+3y=6  |  2x+3y=7
(0,1)  |  (0,1.5)
(1,2,3)  |  (1,2)
\text{increasing}  |  \text{not increasing}
A  |  (B)
100  |  1,00
12  |  1,2
\{1,2\}  |  (1,2)
(3,1)  |  1,3
5  |  5=x=6
5  |  x \ne 5
5  |  x>5
5  |  \text{about } 5
7  |  3+5
\frac{63}{400}  |  \frac{64}{400}
f(x)  |  f(y)
F_{n-1}  |  F_{n-2}
1 \text{ hour}  |  1 \text{ min}
A  |  \text{(A) or (B)}
A  |  (A) and (B)
A  |  (A), (B)
A  |  A. B. C.
A  |  \text{not (A)}
5  |  5 dozen
5  |  5 \text{ dozen}
5  |  5 \text{ squared}
5  |  5 hundred
5  |  5 squared
5  |  5 or so
5  |  \text{more than } 5
0.5  |  \frac{1}{2} \text{ or } \frac{1}{3}
\text{even}  |  \text{even or odd}
R^2-r^2  |  0
\frac{a}{A}  |  1
\gcd(a,b)  |  1
f'(x)  |  f(x)
x_1  |  x
2  |  2\pi \text{ cm}
\sqrt{2}  |  \sqrt{2}t
\frac{1}{2}  |  \frac{1}{2}h
3:45 PM  |  3:45 AM
\frac{1}{2}  |  \sin 30
1,1,2  |  1,2
x_1=3, x_2=5  |  x_1=5, x_2=3
\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  \begin{pmatrix} 1 & 2 \end{pmatrix}
A,C,D  |  AC
\text{no solution}  |  \text{no real solutions}
k\pi, k \in \mathbb{Z}  |  2k\pi, k \in \mathbb{Z}
-3,0  |  -3
5  |  5\text{ cm}x
45^\circ  |  45^{\circ}x
(1,2),(3,4)  |  x=1,y=2 \text{ or } x=3,y=5
x=1,y=2 \text{ or } x=3,y=4  |  x=5,y=6 \text{ or } x=7,y=8
x=1,y=2 \text{ or } x=3,y=4  |  y=1,x=2 \text{ or } y=3,x=4
5  |  m+n = 2+4 = 5
0.\overline{12}  |  0.1222...
""")


def test_math_answers_that_are_the_gold():
    """Mistake: a right answer refused for its shape. AIME, AMC, MATH, Minerva and OlympiadBench have all of these."""
    wrong = [(case, reason) for case, reason in zip(SAME, judged("math", SAME), strict=True) if reason != "correct"]
    assert not wrong and len(SAME) > 120


def test_math_answers_that_are_not():
    """Mistake: a reward for a number that is only near, for another unit, another order, or a part of the answer."""
    right = [(case, reason) for case, reason in zip(DIFFERENT, judged("math", DIFFERENT), strict=True)
             if reason not in ("wrong", "unparsed")]  # fmt: skip
    assert not right and len(DIFFERENT) > 60


def test_math_gold_accepts_itself():
    """Mistake: a problem whose own answer is refused, so that no response to it can be right."""
    golds = sorted({gold for gold, _ in SAME + DIFFERENT})
    assert judged("math", [(gold, gold) for gold in golds]) == ["correct"] * len(golds)


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("so $\\boxed{28}$%", "28\\%", "correct"),
        ("so \\boxed{28} percent", "28\\%", "correct"),
        ("so \\boxed{28}", "28\\%", "wrong"),
        ("\\[\\boxed{(1, 2)}, \\boxed{(2, 1)}\\]", "(2,1),(1,2)", "correct"),
        ("\\(\\boxed{1}\\) and \\(\\boxed{-2}\\).", "-2,1", "correct"),
        ("\\boxed{1} no no \\boxed{2}", "1,2", "wrong"),
        ("so $x = \\boxed{2}$ and $y = \\boxed{3}$", "(2,3)", "correct"),
        ("so $x=\\boxed{5}$, and thus $y=\\boxed{7}$", "7", "correct"),
        ("\\boxed{1} dogs and \\boxed{2} cats", "1,2", "wrong"),
        ("The last three digits are \\boxed{004}.\n\n**Final Answer**\n\\boxed{004}", "4", "correct"),
        ("<think>\\boxed{5}</think> The answer is 5.", "5", "no_answer"),
        ("<think>\\boxed{4}</think> \\boxed{5}", "5", "correct"),
        ("\\boxed{\\text{I think it is } 5}", "5", "unparsed"),
        ("\\boxed{5}\x00", "5", "correct"),
        ("\\boxed{\\boxed{\\frac12}}", "0.5", "correct"),
        (
            "\\boxed{\n\\begin{pmatrix} 0 & 3 \\\\ 0 & -1 \\end{pmatrix}}.",
            "\\begin{pmatrix}0&3\\\\0&-1\\end{pmatrix}",
            "correct",
        ),
        ("$\\boxed{x = -5,\\ p = \\frac{14}{3}}$", "-5, 14/3", "correct"),
        ("\\boxed{12 \\text{ and } 13}", "12\\text{ and }13", "correct"),
        ("\\boxed{p = 5, q = 2; p = 7, q = 2}", "(5,2),(7,2)", "correct"),
        ("\\boxed{(4, 0, 6), (0, -2, 6)}", "(0;-2;6),(4;0;6)", "correct"),
        ("\\boxed{AB=4, CD=5}", "4,5", "correct"),
        ("\\boxed{7:32}", "S_{MBCN}:S=7:32", "correct"),
        ("\\boxed{-793 < a < 10}", "(-793,10)", "correct"),
        ("\\boxed{\\frac{NO}{BO}=\\frac{1}{\\sqrt{6}}}", "\\frac{1}{\\sqrt{6}}", "correct"),
        ("\\boxed{f(2) < f(1) < f(4)}", "f(2) < f(1) < f(4)", "correct"),
        ("\\boxed{19, 46, \\text{ and } 82}", "19, 46, and 82", "correct"),
        ("\\boxed{=5}", "5", "correct"),
        ("\\boxed{e^{-\\frac{x^2}{2}}}", "e^{-0.5x^2}", "correct"),
        ("\\boxed{C e^{(x^2)}}", "Ce^{x^2}", "correct"),
        ("\\boxed{e^(2x)}", "e^{2x}", "correct"),
        ("\\boxed{e^{2x}}", "e^{x^2}", "wrong"),
        ("\\boxed{\\approx 5}", "5", "correct"),
        ("\\boxed{500}", "5 hundred", "correct"),
        ("\\boxed{\\text{5 million dollars}}", "5000000", "correct"),
    ],
)
def test_math_responses(response, gold, expected):
    """Mistake: the right box read wrongly, because of what stands around it or how many there are."""
    assert verify("math", response, gold).reason == expected


@pytest.mark.parametrize(
    "answer",
    [
        "9^{9^{9^{9}}}",
        "(10^{9})!",
        "9^9^9",
        "9^(9^9)",
        "x^{x^{x^{x}}}",
        "2^{(9^{9})}",
        "((3!)!)!",
        "(9!+9)!",
        "(9999\\cdot9999)!",
        "\\binom{99999999}{49999999}",
        "10^{10^{10}}",
        "2^{99999}",
        "\\boxed{(10^9)!}",
        "9**9**9**9",
        "1e99999999",
        "\\sqrt{" * 40 + "2" + "}" * 40,
        "(" * 450 + "1" + ")" * 450,
        "{" * 480 + "}" * 480,
        "x" * 1001,
        "1+" * 300 + "1",
        "\x00" * 900,
        "\\frac{" * 100,
        "\\begin{pmatrix}" * 30,
        "1," * 400 + "1",
        "\\pm" * 200 + "1",
        "\\text{" * 90,
        "=" * 500,
        "\ud800",
        "٣" * 400,
    ],
)
def test_math_hostile_answers_never_reach_a_worker(answer):
    """Mistake: algebra tried on a tower, a huge factorial or deep nesting, which no alarm ends."""
    start = time.process_time()
    for gold in ("5", "\\sqrt{5}", "1,2", "x>5", "\\text{(C)}", "Evelyn", "(1,2)"):
        verdict = module.settle_math(answer, check_math(gold))
        assert verdict is not None and verdict.reward == 0.0
    assert time.process_time() - start < 2


def test_math_huge_response():
    """Mistake: 10 MB of braces or boxes scanned more than once."""
    start = time.process_time()
    for text in ("\\boxed{" * 1_500_000, "{" * 10_000_000, "\\boxed{5}, " * 900_000, "\\boxed{5}" + " " * 10_000_000):
        verify("math", text, "6")
    assert time.process_time() - start < 20


def test_clearly_other_constants_take_no_worker():
    """Mistake: an approximate value that tells two equal constants apart, or algebra for every wrong root."""
    for gold, answer in SAME + SCIENCE_SAME:
        verdict = module.settle_math(answer, check_math(gold), science=True)
        assert verdict is None or verdict.reason == "correct" or (gold, answer) in SCIENCE_SAME, (gold, answer)
    others = [
        ("2\\sqrt{3}", "3\\sqrt{2}"),
        ("\\frac{\\pi}{4}", "\\frac{\\pi}{3}"),
        ("5", "\\sqrt{26}"),
        ("1,2", "1,\\sqrt2"),
    ]
    for gold, answer in others:
        assert module.settle_math(answer, check_math(gold)) == (0.0, "wrong")
    # Equal ones, terms that cancel, and what has no one reading: only algebra can tell.
    for answer in (
        "\\sqrt{4}",
        "\\sqrt{2}-\\sqrt{2}+2",
        "2/1\\cdot1",
        "10^{20}+2-10^{20}",
        "\\log_2 4",
        "2\\frac{0}{5}\\pi",
    ):
        assert module.settle_math(answer, check_math("2")) is None, answer


PIECES = [
    "\\boxed{",
    "\\frac",
    "\\sqrt",
    "{",
    "}",
    "\\{",
    "\\}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    "=",
    "<",
    "\\le ",
    "\\pm",
]
PIECES += ["\\text{", "1", "23", "0", "9" * 30, ".", "/", "+", "-", "*", "^", "_", "x", "f(x)", "\\pi", "\\infty", "%"]
PIECES += ["$", "\\cup ", "\\in ", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "\\left", "e", " ", "cm", "m/s"]
PIECES += ["\\text{ cm}", " and ", "A", "(C)", "!", "|", "\\", "\n", "\x00", "٣", "\ud800", "10^", "million", "²", "½"]


def test_math_and_science_never_raise():
    """Mistake: an exception on some odd mix of LaTeX, which stops a run of thousands of steps."""
    rng = random.Random(0)
    golds = ["5", "\\frac12", "(1,2]", "\\{1,2\\}", "1,2", "x^2+1", "\\text{(C)}", "Evelyn", "204_5", "x>5", "5 cm"]
    golds += ["\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "1\\pm\\sqrt2", "50\\%", "x-2y=3", "\\emptyset", "x=1,y=2"]
    golds = [check_math(gold) for gold in golds]
    seen = set()
    for _ in range(20_000):
        answer, gold = "".join(rng.choices(PIECES, k=rng.randint(0, 14))), rng.choice(golds)
        for settle in (module.settle_math, module.settle_science):
            verdict = settle(answer, gold)
            seen.add(verdict and verdict.reason)
        module.find_math(answer)
    assert seen == {None, "correct", "wrong", "unparsed"}


@needs("math_verify")
def test_math_deliberation_never_raises():
    """Mistake: an exception of sympy's or math-verify's that is counted as a crash of the worker."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    rng, done = random.Random(1), 0
    while done < 150:
        answer = "".join(rng.choices(PIECES, k=rng.randint(1, 8)))
        gold = rng.choice(["\\sqrt5", "x^2+1", "(1,2]", "x-2y=3", "1,\\sqrt2", "\\frac{\\pi}{2}"])
        if module.settle_math(answer, check_math(gold)) is None:
            reward, reason = deliberate_math(answer, gold)
            assert (reward == 1.0) == (reason == "correct")
            deliberate_science(answer, gold)
            done += 1


# ------------------------------------------------------------------------------------------ science

SCIENCE_SAME = pairs(r"""
9.8 m/s^2  |  9.8 \, \text{m/s}^2
9.8 m/s^2  |  9.8 \frac{m}{s^2}
8.31 J/(mol K)  |  8.314 \text{ J mol}^{-1}\text{K}^{-1}
5 km  |  5000 m
5 km  |  5
36 km/h  |  10 m/s
1.5 eV  |  2.403264951e-19 J
1 atm  |  101325 Pa
2.5 \times 10^{-3} mol  |  2.5 mmol
2.5e-3 mol  |  0.0025 mol
25 °C  |  25 ^\circ C
25 ^{\circ}C  |  25 degrees Celsius
B  |  (B)
B  |  b
B  |  \text{B}
B  |  B. Nitrogen
B  |  \textbf{(B) } 12
(C)  |  C
nitrogen  |  Nitrogen
nitrogen  |  \text{nitrogen}
CO_2  |  CO2
CO2  |  \text{CO}_2
CO2  |  \mathrm{CO_2}
CO2  |  \ce{CO2}
H_2O  |  H₂O
NaCl  |  \text{NaCl}
Fe^{3+}  |  \text{Fe}^{3+}
sp^3  |  sp^{3}
1.67 \times 10^{-27} kg  |  1.67e-27 kg
1.67 \times 10^{-27} kg  |  1.6726e-27
1.67 \times 10^{-27} kg  |  1.67 \times 10^{-24} g
3 Ω  |  3 \Omega
3 \Omega  |  3 ohms
20 \mu m  |  2e-5 m
20 \text{ μm}  |  0.02 mm
100 nm  |  100 \text{ nm}
50 J  |  50 N m
5.0 L  |  5000 mL
3.0 M  |  3.0 mol/L
72\%  |  0.72
2\pi \sqrt{L/g}  |  2\pi\sqrt{\frac{L}{g}}
\frac{mv^2}{r}  |  m v^2/r
\frac{1}{2} m v^2  |  0.5mv^2
F = ma  |  ma
E = mc^2  |  E=mc^{2}
the mitochondria  |  mitochondria
increases  |  \text{increases}
-285.8 kJ/mol  |  -285.8 \text{ kJ/mol}
0.05 s  |  50 ms
1.2 \times 10^5 Pa  |  120 kPa
True  |  true
60 mph  |  60 miles per hour
12 hours  |  720 minutes
5 kg m/s  |  5 kg·m/s
10^{-3}  |  0.001
2  |  2.0
n = 2  |  2
4 \times 10^{-7} m  |  400 nm
(b)  |  B
B. 5 m  |  \text{Option (B)}
5.6 \times 10^{-3} mol/L  |  5.6 \times 10^{-3} \, \mathrm{mol\,L^{-1}}
2.0 × 10⁸ m/s  |  2 \times 10^8
10⁻³  |  0.001
500 nm  |  5000 \text{ \AA}
25 ℃  |  25 °C
\pi/3 rad  |  \frac{\pi}{3}
1.0 atm  |  760 mmHg
CH3COOH  |  \text{CH}_3\text{COOH}
Na+  |  \text{Na}^+
sp3  |  \text{sp}^{3}
2-methylpropane  |  \text{2-Methylpropane}
\frac{GMm}{r^2}  |  G\frac{m M}{r^{2}}
""")

SCIENCE_DIFFERENT = pairs(r"""
9.8 \text{ m/s}^2  |  9.81 m/s^2
8.31  |  8.32
8.31  |  8.3
5 km  |  5000
25 °C  |  298.15 K
B  |  C
B  |  12
nitrogen  |  oxygen
CO2  |  CO
1.67 \times 10^{-27} kg  |  1.67e-26 kg
50 N  |  50 \text{ N}\cdot\text{m}
72\%  |  72
increases  |  decreases
-285.8 kJ/mol  |  285.8 kJ/mol
5 \text{ mol}  |  5 \text{ mmol}
3.0 \times 10^8 m/s  |  3.0 \times 10^8 m
101 kPa  |  101 Pa
A  |  A and B
water  |  heavy water
2-methylpropane  |  3-methylpropane
Fe^{3+}  |  Fe^{2+}
2^3  |  23
R-r  |  0
""")


def test_science_answers():
    """Mistake: equal units taken for different ones, or different ones for equal; a formula judged by how it is set."""
    cases = SCIENCE_SAME + SCIENCE_DIFFERENT
    expected = [True] * len(SCIENCE_SAME) + [False] * len(SCIENCE_DIFFERENT)
    got = [reason == "correct" for reason in judged("science", cases)]
    assert [case for case, a, b in zip(cases, expected, got, strict=True) if a != b] == []


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("m/s^2", "m s^{-2}"),
        ("N", "kg m/s^2"),
        ("\\text{km}/\\text{h}", "kph"),
        ("square meters", "m^2"),
        ("miles per hour", "mph"),
        ("J/(mol K)", "J mol^{-1} K^{-1}"),
        ("cubic centimeters", "mL"),
        ("\\mu m", "micrometers"),
    ],
)
def test_units(text, same):
    """Mistake: one unit in two notations read as two."""
    assert read_unit(text) is not None and read_unit(text) == read_unit(same)


def test_unknown_units():
    """Mistake: variables or functions taken for units, so that 5x would answer for 5."""
    for text in ("x", "ab", "sin x", "x^2", "", "+m", "=cm"):
        assert read_unit(text) is None, text
    assert not read_unit("apples").known


# ------------------------------------------------------------------------------------------- ifeval

FOLLOWED = [
    ("keywords:existence", {"keywords": ["apple", "Pear"]}, "An APPLE and a pearl.", "An apple."),
    ("keywords:existence", {"keywords": ["c++"]}, "I like C++.", "I like cc."),
    ("keywords:frequency", {"keyword": "ha", "frequency": 3, "relation": "at least"}, "ha HA haha", "ha ha"),
    ("keywords:frequency", {"keyword": "ha", "frequency": 2, "relation": "less than"}, "ha", "haha"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "concatenate", "A Cat."),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": "at least"}, "eE", "e"),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 1, "let_relation": "less than"}, "a", "#a"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "at least"},
        "One two. One! Two?",
        "One. Two",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "Mr. Smith met Dr. No.",
        "One. Two.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", "a\n***\n***\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "it's me", "it is"),
    ("length_constraints:number_words", {"num_words": 2, "relation": "less than"}, "one", "one two"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
        'a\n\n"So, b',
        "a\n\nb so",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "So"},
        "so",
        "a\n\nso",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a] [b\n]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. me", "PS me"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S me", "P.S. me"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n  - b", "* a\n** b"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "*\n* a", "* a\n* b"),
    ("detectable_format:constrained_response", {}, "Well: My answer is yes.", "My answer is Yes."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", "* * and *a"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2",
        "Section 1 SECTION 2",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{'a': 1}"),
    ("detectable_format:title", {}, "<<a title>>\nb", "<< >>\n<<a"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:two_responses", {}, "******a******b", "a******b******c"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say Hi."}, "  say hi. Hi!", "Hi! Say hi."),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So. "the end."', "The end. Bye"),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": "at least"},
        "DON'T PANIC",
        "PANIC now",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 5, "capital_relation": "at least"},
        "I CANNOT—‘GO’ A*",
        "I CANNOT go. A-B",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        "The COVID-19",
        "A **BOLD**",
    ),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
    ("startend:quotation", {}, ' "a" ', '"a'),
]
IN_LANGUAGES = [
    (
        "language:response_language",
        {"language": "de"},
        "Das ist ein ganz gewöhnlicher deutscher Satz.",
        "This is plain English text.",
    ),
    ("language:response_language", {"language": "en"}, "This is plain English text, and more of it.", "!!! 123"),
    (
        "change_case:english_capital",
        {},
        "THIS IS ALL WRITTEN IN CAPITAL LETTERS.",
        "This is not all in capital letters.",
    ),
    (
        "change_case:english_lowercase",
        {},
        "this is all written in small letters.",
        "das ist alles klein geschrieben, auf deutsch.",
    ),
]


def instruction(name, kwargs):
    return {"instruction_id_list": [name], "kwargs": [kwargs]}


@pytest.mark.parametrize(("name", "kwargs", "good", "bad"), FOLLOWED)
def test_instruction(name, kwargs, good, bad):
    """Mistake: an instruction that is followed by what it forbids, or not by what it asks for."""
    assert verify("ifeval", good, instruction(name, kwargs)).reason == "correct"
    assert verify("ifeval", bad, instruction(name, kwargs)).reason == "wrong"
    # Public data sets give every argument a place, null where it has none, and some keep numbers as floats then.
    given = {key: None for key in module._ARGUMENT_FORMS}
    given |= {key: float(value) if isinstance(value, int) else value for key, value in kwargs.items()}
    [(_, taken)] = check_ifeval(instruction(name, given))
    assert taken == kwargs and all(type(taken[key]) is type(kwargs[key]) for key in kwargs)


@needs("langdetect")
@pytest.mark.parametrize(("name", "kwargs", "good", "bad"), IN_LANGUAGES)
def test_instruction_about_language(name, kwargs, good, bad):
    """Mistake: a language that changes from call to call, or that symbols without one count as."""
    for _ in range(3):
        assert verify("ifeval", good, instruction(name, kwargs)).reason == "correct"
        assert verify("ifeval", bad, instruction(name, kwargs)).reason == "wrong"


def test_every_instruction_is_tested():
    """Mistake: one of the 25 that nothing here ever runs."""
    assert {name for name, *_ in FOLLOWED + IN_LANGUAGES} == set(INSTRUCTIONS) and len(INSTRUCTIONS) == 25


def test_ifeval_reward_is_the_mean_over_instructions():
    """Mistake: all-or-nothing where the recipe's reward is the share, or thinking that is judged."""
    reference = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, None]}
    assert verify("ifeval", "a, b", reference) == (0.0, "wrong")
    assert verify("ifeval", "a b", reference) == (0.5, "partial")
    assert verify("ifeval", '"a b"', reference) == (1.0, "correct")
    assert verify("ifeval", '<think>a, b</think>\n\n"a b"', reference) == (1.0, "correct")
    assert verify("ifeval", "<think>a b</think>\n ", reference) == (0.0, "no_answer")


def test_loose_is_one_of_eight_forms():
    """Mistake: an evaluation that reports strict numbers as loose ones."""
    gold = check_ifeval(instruction("startend:quotation", {}))
    for text, expected in [
        ('Sure:\n"a"', True), ('"a"\nBye', True), ('Sure:\n"a"\nBye', True), ('**"a"**', True), ('Sure:\n*"a"*', True),
        ('"a', False), ('Sure\nSure:\n"a"', False),
    ]:  # fmt: skip
        assert follow_instructions(text, gold, loose=True) == [expected], text
        assert follow_instructions(text, gold) == [False]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({}, "an ifeval reference is"),
        ({"instruction_id_list": [], "kwargs": []}, "as many `kwargs`"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "as many `kwargs`"),
        (instruction("punctuation:no_commas", {}), "unknown instruction"),
        (instruction("punctuation:no_comma", {"keyword": "a"}), "takes no arguments"),
        (instruction("keywords:frequency", {"keyword": "a", "frequency": 2}), "missing ones are not filled in"),
        (instruction("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": None}), "not filled in"),
        (instruction("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "at most"}), "`relation`"),
        (instruction("keywords:frequency", {"keyword": "a", "frequency": "2", "relation": "at least"}), "`frequency`"),
        (instruction("keywords:frequency", {"keyword": "a", "frequency": -1, "relation": "at least"}), "`frequency`"),
        (instruction("keywords:existence", {"keywords": "apple"}), "`keywords`"),
        (instruction("keywords:existence", {"keywords": []}), "`keywords`"),
        (
            instruction("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}),
            "`letter`",
        ),
        (
            instruction(
                "length_constraints:nth_paragraph_first_word",
                {"num_paragraphs": 2, "nth_paragraph": 0, "first_word": "a"},
            ),
            "from 1 on",
        ),
    ],
)
def test_broken_ifeval_reference(reference, message):
    """Mistake: a missing argument filled in, so that a prompt is judged by what it never asked for."""
    with pytest.raises(ValueError, match=message):
        verify("ifeval", "a", reference)


@needs("langdetect")
def test_unknown_language():
    """Mistake: a language that nothing can ever be detected as."""
    with pytest.raises(ValueError, match="`language` must be one of"):
        verify("ifeval", "a", instruction("language:response_language", {"language": "xx"}))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One.", 1),
        ("One. Two.", 2),
        ("One", 1),
        ("", 0),
        ("Wait... what?", 1),
        ("Wait... What?", 1),
        ("Wait... The end?", 2),
        ('He said "Go." She went.', 2),
        ("It is 3.5 cm. Yes!", 2),
        ("At 5 p.m. we left.", 1),
        ("J. R. R. Tolkien wrote.", 1),
        ("See www.a.com now. Bye", 2),
        ("1. One.\n2. Two.", 4),
        ("What?! No!", 2),
        ("U.S. Army. The U.S. The end.", 3),
        ("A. Brief\nB. 16 of them", 3),
        ("George W. Bush spoke at 9 a.m. The end.", 2),
        ("Put it in brackets, i.e. <<a>>. P.S. Remember.", 4),
        ("*One. Two.*", 3),
        ('"Go!"</li> She went.', 2),
        ('He said "Go!"', 1),
        ('["One.", "Two."]', 2),
        ("1. **one** 2. two", 2),
        ("A. Ⓐ.", 2),
        ("a\n\nb", 1),
    ],
)
def test_sentences(text, count):
    """Mistake: abbreviations, initials, decimals and ellipses counted as the ends of sentences."""
    assert module._count_sentences(text) == count


HOSTILE = [
    "[" * 900_000,
    "<<" * 450_000,
    "*" * 900_000,
    "* \n" * 300_000,
    "\n" * 900_000,
    "!" * 900_000,
    " . " * 300_000,
]
HOSTILE += [
    "a" * 900_000,
    "A " * 450_000,
    "p." * 450_000,
    "Section" * 120_000,
    "[" * 900_000 + "]",
    "\x00" * 10_000_000,
]
HOSTILE += [
    "***" * 300_000,
    '"' * 900_000,
    "{" * 900_000,
    "[" * 900_000,
    "\u2028" * 900_000,
    "-" * 900_000,
    "' " * 400_000,
]


@pytest.mark.parametrize("index", range(len(HOSTILE)))
def test_ifeval_is_linear(index):
    """Mistake: a pattern that takes the square of the response's length, in the trainer's own process."""
    for name, kwargs, *_ in FOLLOWED:
        gold = check_ifeval(instruction(name, kwargs))
        start = time.process_time()
        follow_instructions(HOSTILE[index], gold)
        assert time.process_time() - start < 3, name


@needs("langdetect")
def test_ifeval_never_raises():
    """Mistake: an exception on odd text, in one of 25 tests."""
    rng = random.Random(2)
    golds = [check_ifeval(instruction(name, kwargs)) for name, kwargs, *_ in FOLLOWED]
    golds += [check_ifeval(instruction(name, kwargs)) for name, kwargs, *_ in IN_LANGUAGES] * 2
    pieces = [
        "*",
        "**",
        "***",
        "******",
        "\n",
        "\n\n",
        "<<",
        ">>",
        "[",
        "]",
        '"',
        "'",
        ".",
        "...",
        "!",
        "a",
        "The ",
        "ß",
    ]
    pieces += ["P.S.", "Section 1", "- ", "{", "}", "1", "\x00", "\ud800", "İ", "</think>", "٣", "Mr. ", "\u2028", ","]
    for _ in range(10_000):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 12)))
        results = follow_instructions(text, rng.choice(golds), loose=rng.random() < 0.3)
        assert all(type(result) is bool for result in results)


# -------------------------------------------------------------------------------------------- logic


def gym(name, size):
    import reasoning_gym

    return [json.loads(json.dumps(entry)) for entry in reasoning_gym.create_dataset(name, size=size, seed=3)]


def entry_of(name):
    return gym(name, 1)[0]


@needs("reasoning_gym")
@pytest.mark.parametrize("name", ["number_sorting", "chain_sum", "countdown", "rearc", "spell_backward", "n_queens"])
def test_logic_accepts_the_entrys_own_answer(name):
    """Mistake: an entry that went through JSON and is scored as another one: grids of tuples became lists."""
    entry = entry_of(name)
    assert deliberate_logic(entry["answer"], {"dataset": name, "entry": entry}) == [1.0, "correct"]
    reward, reason = deliberate_logic("nonsense", {"dataset": name, "entry": entry})
    assert reward < 1 and reason in ("wrong", "partial", "unparsed")


@needs("reasoning_gym")
def test_logic_through_the_workers():
    """Mistake: an answer taken from outside of its tags, or a scorer that evaluates it in the trainer."""
    entry = entry_of("chain_sum")
    reference = {"dataset": "chain_sum", "entry": entry}
    responses = [f"<answer> {entry['answer']} </answer>", entry["answer"], "<answer></answer>", "<answer>x</answer>"]
    responses += [f"<answer>{entry['answer']}</answer></think>", "<answer>" + "9" * 100_001 + "</answer>"]
    verdicts = verify_batch([("logic", response, reference) for response in responses], workers=1, timeout_s=30.0)
    assert [verdict.reason for verdict in verdicts[:3]] == ["correct", "no_answer", "no_answer"]
    assert verdicts[3].reward < 0.5
    assert [verdict.reason for verdict in verdicts[4:]] == ["no_answer", "unparsed"]


@needs("reasoning_gym")
def test_logic_binary_or_continuous():
    """Mistake: half a solution paid in full, or not at all, against what the run asks for."""
    entry = entry_of("game_of_life")
    rows = json.loads(entry["answer"])
    rows[0][0] = 1 - rows[0][0]
    reference = {"dataset": "game_of_life", "entry": entry}
    items = [("logic", f"<answer>{answer}</answer>", reference) for answer in (entry["answer"], json.dumps(rows))]
    right, near = verify_batch(items, workers=1, timeout_s=30.0)
    assert right == (1.0, "correct") and near.reason == "partial" and 0 < near.reward < 1
    assert verify_batch(items, workers=1, timeout_s=30.0, all_or_nothing=True) == [right, (0.0, "wrong")]


@needs("reasoning_gym")
def test_logic_empty_answer_that_is_right():
    """Mistake: an entry whose answer is empty, because everything cancels, that no response can solve."""
    entry = next(entry for entry in gym("ab", 60) if not entry["answer"])
    reference = {"dataset": "ab", "entry": entry}
    assert verify("logic", "<answer></answer>", reference, workers=1, timeout_s=30.0) == (1.0, "correct")
    assert verify("logic", "nothing", reference, workers=1, timeout_s=30.0) == (0.0, "no_answer")


@needs("reasoning_gym")
def test_logic_names_without_the_import():
    """Mistake: a data set of the package, in this version or a later one, that is taken for unknown."""
    import reasoning_gym

    assert module._gym_names() == set(reasoning_gym.factory.DATASETS)


SELF_SCORING = [
    """__import__('os').write(3, b'{"value": [1.0, "correct"]}\\n') or __import__('os')._exit(0)""",
    """exec('import os; os.write(3, b"1")')""",
    "().__class__.__base__.__subclasses__()",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    "(exec)(input())",
    "sqrt('__import__(1)')",
    "'\\x5f\\x5fimport'",
    "ｅxec(1)",
    "(lambda: 0)()",
    "__import__(chr(111))",
    "exec(1)!",
    "f'{exec(1)}'",
    "lambdify(x, x)",
    "sympify(1)",
    "breakpoint()",
]


@pytest.mark.parametrize("dataset", module.EVALUATED)
def test_logic_answer_that_would_score_itself(dataset):
    """Mistake: an answer that is run where its score is computed, and writes down a score of its own."""
    for answer in SELF_SCORING:
        assert module.settle_logic(answer, {"dataset": dataset}) == (0.0, "unparsed"), answer
    # Those whose scorers only compare text are not restricted.
    assert module.settle_logic("exec(1)", {"dataset": "chain_sum"}) is None


@needs("reasoning_gym")
@pytest.mark.parametrize("dataset", module.EVALUATED)
def test_logic_form_takes_every_honest_answer(dataset):
    """Mistake: a form so narrow that the data set's own answers are not of it."""
    import reasoning_gym

    for entry in reasoning_gym.create_dataset(dataset, size=30, seed=5):
        verdict = module.settle_logic(entry["answer"], {"dataset": dataset})
        # Where sympy found no answer, the set has the question for one.
        assert verdict == ((0.0, "unparsed") if "Integral" in entry["answer"] else None), entry["answer"]


@needs("reasoning_gym")
def test_logic_every_scorer_that_evaluates_is_known():
    """Mistake: a later version of the package with a tenth scorer that evaluates answers."""
    import reasoning_gym

    folder = Path(reasoning_gym.__file__).parent
    calls = re.compile(r"(?<![\w.])(?:eval|exec)\(\s*answer|parse_expr\(\s*answer|sympify\(\s*answer")
    found = {path.stem for path in folder.rglob("*.py") if calls.search(path.read_text())}
    assert found <= set(module.EVALUATED), found - set(module.EVALUATED)


@needs("reasoning_gym")
def test_logic_hostile_answer():
    """Mistake: a scorer's eval that hangs the run on a tower of powers."""
    entry = entry_of("countdown")
    items = [("logic", "<answer>9**9**9**9</answer>", {"dataset": "countdown", "entry": entry})]
    assert verify_batch(items, workers=1, timeout_s=3.0)[0].reward < 0.5


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({}, "a logic reference is"),
        ({"dataset": "Chain Sum", "entry": {}}, "data set's name"),
        ({"dataset": "chain_sum", "entry": {}}, "question, answer and metadata"),
        (
            {"dataset": "chain_sum", "entry": {"question": "", "answer": "", "metadata": {"source_dataset": "x"}}},
            "must be of",
        ),
        ({"dataset": "chain_sum", "entry": {"question": "", "answer": 2, "metadata": {}}}, "is text, or null, got 2"),
        pytest.param(
            {"dataset": "chain_sums", "entry": {"question": "", "answer": "2", "metadata": {}}},
            "no data set chain_sums. There are .*chain_sum, ",
            marks=needs("reasoning_gym"),
        ),
    ],
)
def test_broken_logic_reference(reference, message):
    """Mistake: an entry without the metadata that its scorer needs, found out in the middle of a run."""
    with pytest.raises(ValueError, match=message):
        verify("logic", "<answer>1</answer>", reference)


def test_optional_packages_are_named(monkeypatch, tmp_path):
    """Mistake: an ImportError from the depths, or a missing package found out at step 1."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("datasets", "reasoning_gym", "langdetect"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    module._gym_names.cache_clear()
    entry = {"question": "1+1", "answer": "2", "metadata": {}}
    with pytest.raises(ValueError, match="pip install reasoning-gym"):
        verify("logic", "a", {"dataset": "chain_sum", "entry": entry})
    with pytest.raises(ValueError, match="pip install langdetect"):
        verify("ifeval", "a", instruction("change_case:english_capital", {}))
    with pytest.raises(ValueError, match="pip install datasets"):
        load_data(["hf:aime24"])
    with pytest.raises(ValueError, match="pip install reasoning-gym"):
        load_data(["gym:chain_sum"])


# -------------------------------------------------------------------------------- where problems come from

STDIN_TESTS = {"inputs": ["1\n"], "outputs": ["2\n"]}
CALL_TESTS = {"fn_name": "f", "inputs": [[1]], "outputs": [2]}
ROWS = {
    "deepscaler": {"problem": "1+1?", "answer": "2", "solution": "It is \\boxed{2}."},
    "eurus_code": {
        "data_source": "taco", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "ability": "code", "reward_model": {"style": "rule", "ground_truth": json.dumps(STDIN_TESTS)},
        "extra_info": {"split": "train", "index": 0},
    },
    "scp_116k": {
        "domain": "Physics", "problem": "g?", "matched_solution": "9.8 m/s^2", "o1_solution": "...",
        "is_o1_solution_same_with_matched_solution": True,
    },
    "nemotron_if": {
        "input": [{"role": "user", "content": "No commas."}], "output": "",
        "args": {"instruction_id_list": ["punctuation:no_comma"], "instruction_kwargs": [None]},
    },
    "gpqa": {
        "Record ID": "rec0", "Question": "Which?", "Correct Answer": "this\n", "Incorrect Answer 1": "that",
        "Incorrect Answer 2": "these", "Incorrect Answer 3": "those", "Subdomain": "Chemistry (general)",
    },
    "amc_validation": {"id": 0, "problem": "1+1?", "answer": 0.0, "url": "https://artofproblemsolving.com"},
    "aime24": {"id": 60, "problem": "1+1?", "solution": "...", "answer": "204", "url": "", "year": "2024"},
    "aime25": {"problem": "1+1?", "answer": "70", "id": "0"},
    "amc": {"id": 0, "question": "1+1?", "answer": "27.0", "url": ""},
    "math": {"problem": "1+1?", "level": "Level 1", "type": "Algebra", "solution": "So $\\boxed{\\frac{1}{2}}.$"},
    "math_500": {"problem": "1?", "solution": "", "answer": "\\left( 3, \\frac{\\pi}{2} \\right)", "unique_id": "x"},
    "minerva": {"question": "c?", "answer": "2.45e6"},
    "olympiadbench": {"question": "1?", "final_answer": ["$\\frac{1}{2}$", "3"], "is_multiple_answer": True},
    "apps": {"problem_id": 0, "question": "q", "input_output": json.dumps(STDIN_TESTS), "starter_code": ""},
    "taco": {"question": "q", "input_output": json.dumps(CALL_TESTS), "starter_code": "def f(x):"},
    "code_contests": {
        "name": "a", "description": "q", "public_tests": {"input": ["1\n"], "output": ["2\n"]},
        "private_tests": {"input": [], "output": []}, "generated_tests": {"input": ["2\n"], "output": ["3\n"]},
        "source": 2, "time_limit": {"seconds": 2, "nanos": 0}, "input_file": "", "output_file": "",
    },
    "codeforces": {
        "title": "A", "description": "q", "input_format": "n", "output_format": "m", "note": None,
        "examples": [{"input": "1\n", "output": "2\n"}], "official_tests": [{"input": "1\n", "output": "2\n"}],
        "generated_checker": None, "input_mode": "stdio", "interaction_format": None, "executable": True,
        "official_tests_complete": True, "time_limit": 2.0, "memory_limit": 256.0,
    },
    "humaneval": {
        "task_id": "HumanEval/0", "prompt": "import math\n\ndef g(x):\n    return x - 1\n\ndef f(x):\n    \"Add.\"\n",
        "canonical_solution": "    return x + 1\n", "entry_point": "f",
        "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert g(candidate(1)) == math.floor(1.5)\n",
    },
    "ifeval": {
        "key": 1, "prompt": "No commas.", "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{"num_words": None, "relation": None}],
    },
}  # fmt: skip
RIGHT = {"math": "\\boxed{%s}", "science": "\\boxed{%s}", "ifeval": "No comma"}
PROGRAM = "```python\nprint(int(input()) + 1)\n```"
FUNCTION = "```python\ndef f(x):\n    return x + 1\n```"


@pytest.mark.parametrize("name", HUB)
def test_rows_of_public_data_sets(name):
    """Mistake: a column that is not there, a gold answer in a shape the verifier refuses, tests lost on the way."""
    [problem] = map_rows(name, [ROWS[name]], HUB[name][3])
    kind, reference = problem.kind, problem.reference
    if kind == "code":
        response = PROGRAM if "fn_name" not in reference and "assert_test" not in reference else FUNCTION
        verdict = verify(kind, response, reference, allow_weak_sandbox=True)
    else:
        verdict = verify(kind, RIGHT[kind].replace("%s", str(reference)), reference)
    assert verdict == (1.0, "correct")
    text = problem.prompt if isinstance(problem.prompt, str) else problem.prompt[-1]["content"]
    if kind in ("math", "science"):
        assert text.endswith(" within \\boxed{}.")
    elif name not in ("eurus_code", "ifeval", "nemotron_if"):
        assert "```python" in text


def test_golds_of_the_mappings():
    """Mistake: the gold read from the wrong column, or one of several answers."""
    golds = {name: map_rows(name, [ROWS[name]], HUB[name][3])[0].reference for name in ("math", "olympiadbench", "amc")}
    assert golds == {"math": "\\frac{1}{2}", "olympiadbench": "$\\frac{1}{2}$, 3", "amc": "27.0"}
    assert verify("math", "\\boxed{27}", golds["amc"]).reason == "correct"
    assert map_rows("x", [ROWS["amc_validation"]], HUB["amc_validation"][3])[0].reference == "0.0"
    tests = map_rows("x", [ROWS["code_contests"]], HUB["code_contests"][3])[0].reference
    assert tests == {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "3\n"]}


def test_options_of_a_choice():
    """Mistake: a right option that always has the same letter, or another one at the next start."""
    rows = [ROWS["gpqa"] | {"Question": f"Which {i}?"} for i in range(40)]
    problems = map_rows("hf:gpqa", rows, HUB["gpqa"][3])
    assert {problem.reference for problem in problems} == set("ABCD")
    assert problems == map_rows("hf:gpqa", rows, HUB["gpqa"][3])
    for problem in problems:
        assert f"({problem.reference}) this\n" in problem.prompt and problem.prompt.count("\n(") == 4


def test_arguments_of_eurus():
    """Mistake: a function of one list called with its elements, because other sets write all arguments as one list."""
    tests = {"fn_name": "f", "inputs": ["[1, 2]", '[3]\n"a"', [[4], 5]], "outputs": ["3", "[3]", 9]}
    row = ROWS["eurus_code"] | {"reward_model": {"ground_truth": json.dumps(tests)}}
    [problem] = map_rows("x", [row], HUB["eurus_code"][3])
    assert problem.reference == tests | {"inputs": [[[1, 2]], [[3], "a"], [[4], 5]]}


def test_rows_that_are_no_problem():
    """Mistake: mathematics among the code, worked solutions as golds, problems with a checker judged by equality."""
    assert HUB["eurus_code"][3](ROWS["eurus_code"] | {"ability": "math"}) is None
    assert HUB["scp_116k"][3](ROWS["scp_116k"] | {"matched_solution": "First,\nwe see that " + "x" * 100}) is None
    for unfit in ({"generated_checker": "import sys"}, {"interaction_format": "Ask."}, {"executable": False}):
        assert HUB["codeforces"][3](ROWS["codeforces"] | unfit) is None
    assert HUB["apps"][3](ROWS["apps"] | {"input_output": ""}) is None
    assert HUB["code_contests"][3](ROWS["code_contests"] | {"input_file": "input.txt"}) is None


def test_refused_rows_are_reported(caplog):
    """Mistake: rows that vanish in silence, or one bad gold that stops 40,000 good ones."""
    good, bad = ROWS["deepscaler"], ROWS["deepscaler"] | {"answer": "1/0"}
    with caplog.at_level(logging.WARNING):
        assert len(map_rows("hf:x", [good] * 30 + [bad], HUB["deepscaler"][3])) == 30
    assert "hf:x, row 30" in caplog.text and "'1/0'" in caplog.text
    with pytest.raises(ValueError, match=r"hf:x, row 1"):
        map_rows("hf:x", [good, bad], HUB["deepscaler"][3])
    with pytest.raises(ValueError, match="holds no problem"):
        map_rows("hf:x", [], HUB["deepscaler"][3])


def test_a_file_with_a_gold_that_refuses_itself(tmp_path, monkeypatch):
    """Mistake: a gold answer in a file that no response could give, found out by a reward that never comes."""
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": "a", "kind": "math", "reference": "12"}))
    assert len(load_problems(path)) == 1
    strict = KINDS["math"]._replace(settle=lambda answer, gold: module.WRONG)
    monkeypatch.setitem(module.KINDS, "math", strict)
    with pytest.raises(ValueError, match=r"line 1: a response that gives this gold answer would be wrong: '12'"):
        load_problems(path)


@needs("reasoning_gym")
def test_a_file_with_an_entry_that_cannot_be_solved(tmp_path):
    """Mistake: a Reasoning Gym entry without its metadata, or with another answer, found out by rewards of 0."""
    path, entry, other = tmp_path / "p.jsonl", entry_of("countdown"), entry_of("mini_sudoku")

    def load(*entries):
        problems = [module.gym_problem(entry["metadata"]["source_dataset"], entry) for entry in entries]
        path.write_text("\n" + "\n".join(json.dumps(problem._asdict()) for problem in problems))
        return load_problems(path)

    assert len(load(entry, other)) == 2
    with pytest.raises(ValueError, match=r"p.jsonl, line 3: the entry's own answer is scored 0.0\d*: '1 \+ 1'"):
        load(other, entry | {"answer": "1 + 1"})
    with pytest.raises(ValueError, match="line 2: the entry's own answer makes the scorer fail, as where metadata is"):
        load(other | {"metadata": {"source_dataset": "mini_sudoku"}}, entry)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("a.jsonl", ("a.jsonl", None)), ("a.jsonl:0.4", ("a.jsonl", 0.4)), ("hf:aime24", ("hf:aime24", None)),
     ("hf:aime24=saved/x:2", ("hf:aime24=saved/x", 2.0)), ("gym:chain_sum*50:.1", ("gym:chain_sum*50", 0.1)),
     ("dir:with:colons", ("dir:with:colons", None))],
)  # fmt: skip
def test_specs(spec, expected):
    """Mistake: a path cut at a colon, or a weight taken for a part of it."""
    assert read_spec(spec) == expected


def write(path, name, count):
    lines = [json.dumps({"prompt": f"{name}{i}", "kind": "math", "reference": str(i)}) for i in range(count)]
    path.write_text("\n".join(lines))
    return str(path)


def test_an_epoch_keeps_the_weights(tmp_path):
    """Mistake: weights that hold only on average, a source that ends early, or a problem that an epoch never sees."""
    a, b = write(tmp_path / "a.jsonl", "a", 90), write(tmp_path / "b.jsonl", "b", 10)
    assert [problem.prompt for problem in load_data([a, b])] == [f"a{i}" for i in range(90)] + [
        f"b{i}" for i in range(10)
    ]
    epoch = load_data([f"{a}:0.75", f"{b}:0.25"], seed=1)
    assert len(epoch) == 120 and len({problem.prompt for problem in epoch}) == 100
    for start in range(0, 120, 8):
        assert 1 <= sum(problem.prompt[0] == "b" for problem in epoch[start : start + 8]) <= 3
    assert epoch == load_data([f"{a}:3", f"{b}:1"], seed=1) != load_data([f"{a}:3", f"{b}:1"], seed=2)
    with pytest.raises(ValueError, match="to all sources or to none"):
        load_data([a, f"{b}:1"])
    with pytest.raises(ValueError, match="above 0"):
        load_data([f"{a}:0"])
    with pytest.raises(ValueError, match="too far from the sources' sizes"):
        load_data([f"{a}:0.00001", f"{b}:1"])


def test_unknown_sources(tmp_path):
    """Mistake: a misspelt name that is looked for on the network, or as a file."""
    with pytest.raises(ValueError, match=r"hf:aime.*deepscaler"):
        load_data(["hf:aime"])
    with pytest.raises(FileNotFoundError, match="no problems at"):
        load_data([str(tmp_path / "nowhere.jsonl")])


@needs("datasets")
def test_a_local_copy_of_a_data_set(tmp_path, monkeypatch):
    """Mistake: a mapping that works on dicts and not on what the package datasets hands out."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in HUB:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.jsonl").write_text("\n".join([json.dumps(ROWS[name])] * 12))
        problems = load_data([f"hf:{name}={folder}"])
        assert len(problems) == 12 and problems[0] == map_rows(name, [ROWS[name]], HUB[name][3])[0]
    with pytest.raises(FileNotFoundError, match="no local copy"):
        load_data([f"hf:ifeval={tmp_path / 'nowhere'}"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"hf:ifeval could not be read from .*empty \(\w+: "):
        load_data([f"hf:ifeval={tmp_path / 'empty'}"])


@needs("datasets")
def test_where_data_sets_are_read_from(tmp_path, monkeypatch):
    """Mistake: a data set that is a script, which the package no longer runs, or a traceback where no network is."""
    import datasets

    (tmp_path / "test.jsonl").write_text("\n".join([json.dumps(ROWS["apps"])] * 3))
    asked = []
    original = datasets.load_dataset

    def load_dataset(*args, **kwargs):
        asked.append((args, dict(kwargs)))
        if "data_files" not in kwargs:
            raise ConnectionError("no network")
        kwargs["data_files"] = {"test": str(tmp_path / "test.jsonl")}
        return original("json", **kwargs)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert [len(load_data([f"hf:{name}"])) for name in ("apps", "taco")] == [3, 3]
    assert [args for args, _ in asked] == [("json",), ("parquet",)]
    assert asked[0][1]["data_files"] == {"test": "hf://datasets/codeparrot/apps/test.jsonl"}
    with pytest.raises(
        ValueError, match=r"hf:gpqa .*Idavidrein/gpqa: hf:gpqa=PATH reads .*ConnectionError: no network"
    ):
        load_data(["hf:gpqa"])


@needs("reasoning_gym")
def test_generated_entries(tmp_path):
    """Mistake: entries that change between runs with one seed, or that cannot be written to a file and read again."""
    problems = load_data(["gym:chain_sum*5"], seed=1)
    assert len(problems) == 5 and problems == load_data(["gym:chain_sum*5"], seed=1) != load_data(
        ["gym:chain_sum*5"], seed=2
    )
    assert "<answer>" in problems[0].prompt and problems[0].kind == "logic"
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps(problem._asdict()) for problem in problems))
    assert load_problems(path) == problems
    with pytest.raises(ValueError, match="no data set of Reasoning Gym"):
        load_data(["gym:chain_sums"])
    with pytest.raises(ValueError, match="gym:composite makes no entries with its default settings"):
        load_data(["gym:composite*3"])


@needs("reasoning_gym")
def test_generated_entries_without_a_form_are_left_out(caplog):
    """Mistake: a question whose only known answer is the question itself, asked at every epoch and never rewarded."""
    with caplog.at_level(logging.WARNING):
        problems = load_data(["gym:intermediate_integration*12"], seed=7)
    assert 0 < len(problems) < 12 and "gym:intermediate_integration, entry" in caplog.text
    assert not any("Integral" in problem.reference["entry"]["answer"] for problem in problems)


def test_families_are_complete():
    """Mistake: a kind in the dispatch whose pieces do not fit together."""
    for kind in ("math", "science", "ifeval", "logic"):
        family = KINDS[kind]
        assert family.find("") is None
        if family.deliberate:
            assert getattr(module, family.deliberate.__name__) is family.deliberate and family.packages
    assert read_math("x" * 1001) is None and isinstance(Problem("a", "math", "1"), tuple)


@pytest.mark.parametrize(
    ("kind", "reference", "right", "wrong"),
    [
        ("math", r"\boxed{12}", "12", "13"),
        ("math", r"So the answer is $\boxed{\frac{1}{2}}$.", "0.5", "2"),
        ("math", r"\boxed{2} and \boxed{3}", "3,2", "3"),
        ("science", r"\boxed{9.8\ \text{m/s}^2}", "9.8 m/s^2", "9.8 m/s"),
    ],
)
def test_a_gold_in_a_box_is_what_the_box_holds(kind, reference, right, wrong):
    """Mistake: a data set whose golds are boxed refused, or a sentence around the box taken for the answer."""
    assert verify(kind, rf"\boxed{{{right}}}", reference).reason == "correct"
    assert verify(kind, rf"\boxed{{{wrong}}}", reference).reason == "wrong"
