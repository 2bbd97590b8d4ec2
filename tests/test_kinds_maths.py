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
from answer_forms import RIGHT_MATH, RIGHT_SCIENCE, WRONG_MATH, WRONG_SCIENCE, right_answers, wrong_forms
from judging import REFEREES, costs_at_most, judged, pairs, reason
from wrong_answers import golds, wrong_answers

from kinds import maths
from kinds.maths import MAX_BOX_DISTANCE, judge_in_worker, judge_math, last_box
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
5  |  5 or 6  |  5;6  |  1,00  |  1+1  |  (6)  |  \\{6\\}  |  5^2  |  10^{9^9}
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
1e1001  |  1e-1001  |  1e999999999  |  0e999999999  |  1\times10^{1001}
9**9**9  |  3!!  |  --6  |  1.2.3  |  6,  |  ,6  |  2^3^4  |  0x  |  1^5  |  +-5  |  5+  |  *5
(5  |  5)  |  (5]]
"""
NO_ANSWERS = [*filter(None, re.split(r"  \|  |\n", NO_ANSWERS)), "", " ", "5\x00 6", "[" * 17 + "5" + "]" * 17]


@pytest.mark.parametrize("answer", [*NO_ANSWERS, ",".join("5" * 65)])
def test_math_unparsed(answer):
    """Makes impossible: a box that is no answer rescued by a number inside it or before it."""
    assert reason("math", f"The answer is 5. \\boxed{{5}}. Rather, \\boxed{{{answer}}} = 5", "5") == "unparsed"


BOXES = {  # with the gold 5
    "correct": [
        "\\boxed{5}", "\\boxed {5}", "\\boxed\n{ 5 }", "\\\\boxed{5}", "\\\\boxed{4} \\\\boxed{5}",
        "\\\\\\boxed{4} \\\\\\boxed{5}", "\\boxed{4} \\\\{\\boxed{5}", "$$\\boxed{5}$$", "\\boxed{4} no, \\boxed{5}",
        "\\boxed{5} no, \\boxed{4", "{ \\boxed{5}", "} \\boxed{5} }", "\\{ \\boxed{5}", "\\text{so \\boxed{5}}",
        "\\boxed{5} {}", "\\boxed{\\boxed{5}}", "\\fbox{5}", "\\boxed{4}. Or so I thought: \\boxed{5}",
        "\\boxed{4 \\boxed{5}", "<think>\\boxed{4}</think>\\boxed{5}", "<think>\\boxed{4</think>\\boxed{5}",
        "\\boxed{\\frac{5}{1}}",
    ],
    "wrong": [
        "\\boxed{5} no, \\boxed{4}", "\\boxed{5}, \\boxed{4}", "\\boxed{5} no no \\boxed{5,4}", "\\boxed{5}\\%",
    ],
    "unparsed": [
        "\\boxed{4 \\boxed{5}}", "\\boxed{5\\}}", "\\boxed{5} \\boxed{\\{4}", "\\boxed{}",
    ],
    "no_answer": [
        "\\boxed{5}</think>", "\\boxed{5}</think> It is 5.", "", "5", "The answer is 5.", "\\boxed 5", "\\boxed{5",
        "\\boxed5}", "boxed{5}", "\\Boxed{5}", "\\boxed\\{5\\}", "\\boxed{\\frac{5}{1}",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("response", "expected"), [(box, says) for says, boxes in BOXES.items() for box in boxes])
def test_math_box(response, expected):
    """Makes impossible: the wrong box read, a half-written one read, or a number taken from outside of any box."""
    assert reason("math", response, "5") == expected


def test_math_box_distance():
    """Makes impossible: a cut that loses the box of an honest response, or runaway text scanned in full."""
    assert reason("math", "\\boxed{5}" + "." * (MAX_BOX_DISTANCE - 9), "5") == "correct"
    assert reason("math", "\\boxed{5}" + "." * MAX_BOX_DISTANCE, "5") == "no_answer"


SAME = pairs(r"""
\dfrac{14}{3}  |  14/3  ;  \left(3, \frac{\pi}{2}\right)  |  (3, \pi/2)
\$18.90  |  18.90 \text{ dollars}  |  \$18.9
\left( -\infty, -1 \right] \cup [5, \infty)  |  x \le -1 \text{ or } x \ge 5
y = -x^4 + 2x^2 + x + 1  |  -x^4+2x^2+x+1  ;  8.7e8  |  8.7 \times 10^8  |  870000000  |  8.7 \times 10^{8} \text{ m}
I_0 e^{-kx}  |  I_0 \exp(-kx)  |  I_{0}e^{-k x}  ;  \frac{m}{M+m} g  |  \frac{mg}{m+M}
\arcsin{10 \theta}  |  \sin^{-1}(10\theta)  ;  \frac12 \ln 2  |  \ln\sqrt{2}  |  \frac{\ln 2}{2}  |  \frac{\ln(2)}{2}
2^{1/3}  |  \sqrt[3]{2}  ;  m \in (0, 1)  |  0<m<1  ;  2\sqrt{5}  |  \sqrt{20}
\frac{3\sqrt{3}}{4}  |  \frac{3}{4}\sqrt{3}  |  3\sqrt{3}/4  ;  36\pi  |  36\pi\text{ square inches}
(x+2)(x-3)  |  x^2-x-6  |  (x - 3)(x + 2)  ;  \cos 2x  |  1-2\sin^2 x  |  2\cos^2(x)-1
\frac{1}{x^2-1}  |  \frac{1}{(x-1)(x+1)}  ;  a_n = 2^n - 1  |  2^n-1  ;  \text{even}  |  \textbf{Even}
\frac{\pi}{6}, \frac{5\pi}{6}  |  x = \frac{\pi}{6}, \frac{5\pi}{6}  |  x=\frac{\pi}{6} \text{ and } x=\frac{5\pi}{6}
\{1,2,3\}  |  \left\{1, 2, 3\right\}  |  \{3,2,1\}  ;  n=2,3  |  2, 3  ;  -1 < x < 5  |  (-1,5)
(-1,5)  |  x \in (-1, 5)  ;  \sqrt{\frac{2GM}{R}}  |  \sqrt{2GM/R}  |  \left(\frac{2GM}{R}\right)^{1/2}
1.6\times 10^{-19} \text{ C}  |  1.6 \times 10^{-19}  ;  2,3,5  |  2, 3, \text{ and } 5
-\frac{1}{2}  |  -1/2  |  -\left(\frac{1}{2}\right)  ;  \ln(x+1)  |  \ln (1+x)  |  \log_e(x+1)
\tan^{-1}(2)  |  \arctan 2  ;  2^{10}  |  1024  ;  5 \text{ or } -5  |  \pm 5
5  |  x=5  |  5=x  |  x=y=5  |  2+3=5  |  5=5  |  5 \text{ dollars}
2000  |  2\,000  |  2{,}000  |  2,000  |  2 000  ;  9.8  |  9.8 m/s^2  ;  3\frac{1}{2}  |  \frac72  |  3.5
1,2,3  |  3, 1, 2  ;  1,2  |  1 \text{ and } 2  |  x=1 \text{ or } x=2  ;  x=1,y=2  |  y=2,x=1  |  (1,2)  |  1,2
(3,-4)  |  (x,y)=(3,-4)  ;  C  |  \text{(C)}  ;  \text{Evelyn}  |  Evelyn  |  evelyn.  ;  Yes  |  \text{yes}
90^\circ  |  90  |  90 \text{ degrees}  ;  \$5.50  |  5.5  ;  15\mbox{ cm}^2  |  15
2\sqrt{3}  |  \sqrt{12}  |  3.4641016  |  2\sqrt{3} cm  ;  \sqrt{2}  |  1.414213562  ;  x^2+2x+1  |  (x+1)^2
y = 2x + 3  |  y=3+2x  ;  2x+3  |  y=2x+3  ;  x > 5  |  (5,\infty)  ;  [-2,7]  |  -2 \le x \le 7
(-\infty,1)\cup(3,\infty)  |  x<1 \text{ or } x>3  |  (3,\infty)\cup(-\infty,1)
1 \pm \sqrt{19}  |  1 - \sqrt{19}, 1 + \sqrt{19}  ;  \pm 2  |  2,-2  ;  3+4i  |  4i+3
e^{i\pi/3}  |  \frac{1}{2}+\frac{\sqrt{3}}{2}i  ;  \emptyset  |  \varnothing  ;  \mathbb{R}  |  (-\infty,\infty)
11,111,111,100  |  11,\! 111,\! 111,\! 100  ;  10  |  10 apples  ;  f(x)=x^2  |  x^2  ;  \text{June 20}  |  June 20
\frac{3}{2}\text{ or }\frac12  |  \frac12, \frac32  ;  \{x \mid x > 3\}  |  \{x \mid x>3\}
(1,2),(3,4)  |  (3,4),(1,2)  ;  a=4,-8,-10  |  -10,-8,4
x' + \frac{r}{V}x - rc = 0  |  x^{\prime}+\frac{r}{V} x-r c=0  ;  E_1, E_2  |  E_{2},E_{1}
A e^{-E_a/RT}  |  A e^{-\frac{E_a}{RT}}
\frac{Q}{4\pi\varepsilon_0 R_\odot^2}  |  \frac{1}{4\pi\epsilon_0}\frac{Q}{R_{\odot}^{2}}  ;  2+3i  |  2 + 3\mathrm{i}
2\frac12  |  2½  ;  10^{23}  |  10²³  ;  3,5  |  x_1 = 5, x_2 = 3  ;  x_1=3, x_2=5  |  x_2=5, x_1=3
\text{(A)}  |  A)  |  \text{Option A}  ;  2\pi  |  2\pi \text{ cm}  |  A=2\pi  |  C=2\cdot\pi
11z^{17}(5+11z^{17})  |  11z^17(11z^17+5)
$\frac{1}{2}$, $3$  |  3, \frac12  |  $3$ and $\frac{1}{2}$  |  \(3, 0.5\)  ;  f(x)=2x+3  |  2x+3  |  f(x)=3+2x
""")

DIFFERENT = pairs(r"""
\frac{1}{3}  |  0.33  ;  3.14  |  \pi
5  |  3=5  |  2+2=5  |  5x  |  5 million  |  5.0000001  |  5=x=6  |  x \ne 5  |  x>5  |  \text{about } 5  |  5 dozen  |  5 \text{ dozen}  |  5 \text{ squared}  |  5 hundred  |  5 squared  |  5 or so  |  \text{more than } 5  |  5\text{ cm}x  |  m+n = 2+4 = 5  |  5x=5  |  x+1=5  |  5 \text{ for all } 7  |  5, \ldots  |  5...  |  5'  |  5 \approx 5.1  |  5 \sim 7  |  \neg 5  |  \overline 5  |  \text{All except }5  |  5\text{, maybe}  |  5\text{ thousand}  |  1/2/0.1  |  10/2x  |  --5  |  5^1^1
n^2+n  |  2n+1=n^2+n  |  n=n^2+n  |  n^2+n=7  ;  2\pi  |  \pi=2\pi  |  2\pi+C  |  2\pi i
3+4i  |  7=3+4i  |  i=3+4i  |  3-4i  ;  \frac{1}{2004!}  |  \frac{1}{2004!}x  ;  10^{23}  |  10^{23}+C
f(x)=x^2  |  \text{not }f(x)=x^2  |  g(x)=x^2  |  x=x^2  ;  -793<a<10  |  -793<n<10  |  -793\le a<10
4\sqrt{3}  |  4\sqrt{3}\approx 7  |  4\sqrt{3}\approx 6.9  |  4\sqrt{3}\approx 6.94  ;  x=5  |  y=5  ;  y  |  x=y
\text{(C)}  |  A=(C)  ;  R  |  \text{r}  ;  11z^{17}  |  11z^{17}+0.5  ;  3  |  3 \cdots
\text{(C)}  |  (C) 12  |  (C)x  |  (C)!  ;  1,2  |  1,2,2  |  1,2,3  ;  204_5  |  204  |  54  |  204_{6}
1  |  1^2  |  1!  ;  \frac{1}{2^{99}}  |  \frac{1}{2^{98}}  ;  9.8 m/s^2  |  9.8 \text{ m/s}
(1,2)  |  (2,1)  |  [1,2]  ;  [0,1)  |  (0,1]  ;  1,2,3  |  1,2  ;  x=1,y=2  |  x=2,y=1  |  2,1  ;  C  |  (B)  |  12
\text{Evelyn}  |  Carla  ;  \text{even}  |  odd  |  \text{even or odd}  ;  x-2y+z-1=0  |  x-2y+z+1=0
(5,\infty)  |  x \ge 5  ;  (-\infty,1)\cup(3,\infty)  |  (3,\infty)
\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}  |  \begin{pmatrix}1 & 3 \\ 2 & 4\end{pmatrix}  ;  \pm 2  |  2
2  |  2h  |  2\pi \text{ cm}
A  |  a  |  (B)  |  \text{(A) or (B)}  |  (A) and (B)  |  (A), (B)  |  A. B. C.  |  \text{not (A)}
(a+5)(b+2)  |  (+5)(b+2)  ;  (1,2),(3,4)  |  (3,4)  |  x=1,y=2 \text{ or } x=3,y=5  ;  \sqrt{x^2}  |  x
\sin(2x)  |  \sin x \cos x  ;  2^{100}  |  2^{100}+1  ;  \sqrt{2}  |  \sqrt{2}+10^{-15}  |  \sqrt{2}t
\pi  |  3.1416  |  \frac{22}{7}  ;  x \ge 5  |  x \le 5  ;  12  |  1,2  ;  \{1,2\}  |  (1,2)
0.5  |  \frac{1}{2} \text{ or } \frac{1}{3}  ;  R^2-r^2  |  0  ;  \gcd(a,b)  |  1
\frac{1}{2}  |  \frac{1}{2}h  |  \sin 30  ;  x_1=3, x_2=5  |  x_1=5, x_2=3
\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  \begin{pmatrix} 1 & 2 \end{pmatrix}
\text{no solution}  |  \text{no real solutions}  ;  k\pi, k \in \mathbb{Z}  |  2k\pi, k \in \mathbb{Z}  ;  -3,0  |  -3
x=1,y=2 \text{ or } x=3,y=4  |  x=5,y=6 \text{ or } x=7,y=8  |  y=1,x=2 \text{ or } y=3,x=4
""")


# One quantity in the forms of models: currencies, units, counted nouns, fonts, labels, other characters.
FORMS = pairs(r"""
70000  |  \$70,000  |  $70,000$  |  \$70,000.00  |  70,000\text{ dollars per year}  |  \text{\$}70000  |  USD 70000  |  €70000
70000  |  130,000 - 60,000 = \$70,000  |  \text{Profit} = 70,000  |  \text{Answer: } 70{,}000  |  ７００００
8  |  8 \text{ eggs}  |  8 years old  |  8\text{ cups of tea}  |  8 \text{ zeros}  |  8 yuan  |  8 元  |  \text{8 apples}  |  8cm
8  |  \boldsymbol{8}  |  {\color{blue}{8}}  |  \textcolor{red}{8}  |  \Large{8}  |  \mathbf{\text{8}}  |  **8**  |  {\bf 8}  |  8。
8  |  AB = 8  |  P(X=2)=8  |  a+b+c=8  |  |AB| = 8  |  \cos A = 8  |  8_{10}  |  f(x) = 8  |  4!/3
8 \text{ inches}  |  8 \text{ in}  |  8 inch  |  8  ;  8\text{ cm}^2  |  8 \text{ square centimeters}  |  8 \text{ sq. cm}  |  8 cm^2
60\text{ mph}  |  60 \text{ miles per hour}  |  60 mi/h  ;  5.4 \text{ cents}  |  5.4\text{ cents per ounce}
28\%  |  28 percent  |  \text{28 percent}  |  28 pct  |  28 per cent  |  28％  ;  \$5 \text{ million}  |  5 \text{ million dollars}  |  5000000
\frac{270}7\text{ degrees}  |  \frac{270}{7}^\circ  |  \left(\frac{270}{7}\right)^\circ  |  38\frac{4}{7}^\circ  ;  2.5  |  2 1/2
204_5  |  204_{five}  |  (204)_5  |  204_{(5)}  ;  \frac{10!}{3!4!}  |  25200  ;  \frac13  |  0.\overline{3}  ;  120  |  5!  |  \binom{10}{3}
3\times 10^8  |  3 x 10^8  |  3*10**8  ;  14-i  |  14.0 + -1.0i  ;  Yes  |  yes  ;  No  |  no  ;  Odd  |  odd  ;  5  |  \text{USD 5}  ;  2x  |  f(x)=2x \text{ for all real } x
100,200  |  200, 100  |  100200  ;  (10,100)  |  (10, 100)  ;  12,600  |  12600  ;  15,000, 20,000  |  15000, 20000
\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}  |  \begin{bmatrix} 0.5 \\ 3 \\ \end{bmatrix}  |  (\frac12,3)  |  \left(\begin{array}{c} \frac12 \\ 3 \end{array}\right)
2x+4y-3=0  |  y=-\frac{1}{2}x+\frac{3}{4}  |  4x+8y-6=0  ;  [1,\infty)  |  \{x \mid x \ge 1\}  ;  (2,3)  |  P(2,3)
""")
NO_FORMS = pairs(r"""
5  |  \text{not } x = 5  |  \text{more than } x = 5  |  \text{base 7: } 5  |  5 \text{ eggs or } 7  |  5 thirty  |  \$5 \text{ K}  |  5 \text{ x}  |  5 per cent
5  |  5 \text{ dollars squared}  |  5 \text{ USD}^2  |  5 \text{ square dollars}
5  |  \text{yes } 5  |  USD 6  ;  \text{no}  |  on  |  yes  ;  5  |  (x,y)=5  |  x^2=5  |  -x=5  |  5\text{ feet } 7 \text{ inches}  |  5:30  |  \{x \mid 5\}  |  5^\circ 30'  |  5 \text{ millionths}  |  2mg
12,600 \text{ cm}  |  12, 600  ;  \$32,348  |  348, 32  ;  x=1,000  |  1, 0  ;  1,500 \text{ people}  |  1, 500  |  1,501
8\text{ dollars}  |  8 \text{ cents}  ;  1,2  |  1<x<2  ;  8  |  8 万  |  8万元  ;  8 \text{ cm}^2  |  8 \text{ cm}  |  8 \text{ cubic cm}  ;  28\%  |  28  |  28 \text{ dollars}
12:00  |  1:00  |  12:05  |  12:00\%  |  12:00 \text{ thousand}  ;  48\%  |  48\%\text{ per cent}  ;  7.5  |  7 + 50\%  |  7+50\text{ per cent}  ;  1:2:3  |  1:4:9  ;  204_5  |  204_6  ;  xy=9  |  9  ;  2x+4y-3=0  |  2x+4y-3  |  2x+4y+3=0
""")


def test_math_forms():
    """Makes impossible: a right answer refused for the form in which models write it, or a wrong one paid for it."""
    assert [case for case, reason in zip(FORMS, judged("math", FORMS), strict=True) if reason != "correct"] == []
    assert [case for case, reason in zip(NO_FORMS, judged("math", NO_FORMS), strict=True) if reason == "correct"] == []


def paid(kind, gold, answer):
    """Would this box be paid? Judged in this process, as a worker does it."""
    box = last_box(f"So the answer is \\boxed{{{answer}}}.")
    return box is not None and (box.strip() == gold or judge_in_worker(box, gold, kind == "science") is True)


RIGHT = [("math", *case) for case in RIGHT_MATH] + [("science", *case) for case in RIGHT_SCIENCE]
WRONG = [("math", *case) for case in WRONG_MATH] + [("science", *case) for case in WRONG_SCIENCE]


def test_tables_of_forms():
    """Makes impossible: one of 1,200 forms, written by hand, that changes its verdict unseen."""
    assert [case for case in RIGHT if not paid(*case)] == []
    assert [case for case in WRONG if paid(*case)] == []
    assert len(RIGHT) > 800 and len(WRONG) > 350


def test_the_tables_of_the_page():
    """Makes impossible: an example in docs/problems.md that the code judges differently."""
    page = (Path(__file__).parent.parent / "docs" / "problems.md").read_text()
    seen = {True: 0, False: 0}
    for kind, part in zip(("math", "science"), page.partition("Kind `science` accepts")[::2], strict=True):
        for row in re.findall(r"^\| (`.*`.*)\|$", part.partition("\n## Data sets")[0], re.MULTILINE):
            cells = [re.findall(r"(?:^|, )`([^`]+)`", cell.strip()) for cell in row.split(" | ")]
            if len(cells) != 4:  # another table
                continue
            [gold], right, wrong, _ = cells
            for expected, answers in ((True, right), (False, wrong)):
                seen[expected] += len(answers)
                assert [answer for answer in answers if paid(kind, gold, answer) != expected] == [], gold
    assert min(seen.values()) > 35


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 11))]


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_in_other_forms(seed):
    """Makes impossible: a policy that must learn the notation of the judge, since right answers are refused."""
    cases = list(right_answers(seed))
    assert len(cases) >= 2_500 and [case for case in cases if not paid(*case)] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_in_those_forms(seed):
    """Makes impossible: a form read so leniently that another value, a hedge or another unit is paid with it."""
    cases = list(wrong_forms(seed))
    assert len(cases) >= 2_500 and [case for case in cases if paid(*case)] == []


def test_a_list_of_golds():
    """Makes impossible: a second right gold refused, or a wrong answer paid because there are two."""
    golds = ["40", "40\\%", "\\sqrt{1600}"]
    for answer, expected in (("40", "correct"), ("40 percent", "correct"), ("2\\cdot 20", "correct"), ("4", "wrong"),
                             ("40, 40\\%", "wrong"), ("(40", "unparsed"), ("\\sqrt{1601}", "wrong")):  # fmt: skip
        assert reason("math", f"\\boxed{{{answer}}}", golds) == expected
        assert maths.judge_in_worker(answer, golds) is {"correct": True, "wrong": False, "unparsed": None}[expected]
    assert verify("math", maths.solution(golds), golds).correct
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


def test_math_answers_that_are_the_gold():
    """Makes impossible: a right answer refused for its notation. AIME, MATH, Minerva and OlympiadBench have these."""
    wrong = [(case, reason) for case, reason in zip(SAME, judged("math", SAME), strict=True) if reason != "correct"]
    assert not wrong and len(SAME) > 90


def test_math_answers_that_are_not():
    """Makes impossible: a reward for a number that is only near, another unit, another order, or half of a list."""
    right = [(case, reason) for case, reason in zip(DIFFERENT, judged("math", DIFFERENT), strict=True)
             if reason not in ("wrong", "unparsed")]  # fmt: skip
    assert not right and len(DIFFERENT) > 60


def test_math_gold_accepts_itself():
    """Makes impossible: a problem whose own answer is refused, which no response can solve."""
    texts = sorted({gold for gold, _ in SAME + DIFFERENT} | {*golds()})
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
