r"""Golds in the shapes of AIME, MATH, Minerva and OlympiadBench, and wrong answers made from them.

A wrong answer is the gold with a tail, a head, a changed digit, a flipped sign, bracket or relation, or without a part
of a list. `EQUAL` lists those that are right after all.
"""

import re

GOLDS = r"""
5  |  12  |  33  |  204  |  540  |  809  |  -9  |  -31  |  1000  |  10080  |  2500  |  65536  |  1,000,000  |  13,440
0.25  |  3.5  |  -0.75  |  12.5  |  0.0625  |  5.50  |  1234567.5  |  0.3333333  |  2.718281828  |  10.08333333
\frac{1}{2}  |  \frac{3}{4}  |  \frac{13}{6}  |  -\frac{35}{9}  |  \frac{243}{625}  |  \dfrac{9}{19}  |  \tfrac{5}{8}
\frac{1}{1024}  |  \frac49  |  \frac34  |  3/4  |  25/36  |  -3/8  |  \frac{4}{33}  |  3\frac{1}{2}  |  5\frac{3}{4}
50\%  |  28\%  |  12.5\%  |  0.\overline{36}  |  0.\overline{3}  |  6.02e23  |  6.02\times10^{23}  |  3 \times 10^{8}
1.6 \times 10^{-19}  |  4.5e33  |  10^{23}  |  2^{2018}  |  3^{100}  |  2^{99}-1  |  2016!  |  \frac{1}{2004!}  |  5!
\frac{1}{2^{98}}  |  \frac{1}{2^{99}}  |  10^{-40}  |  \binom{10}{5}  |  \binom{2n}{n}  |  \frac{10!}{3!4!}
2^{1009}+3  |  \sqrt{5}  |  \sqrt{13}  |  2\sqrt{3}  |  5\sqrt{2}  |  \frac{\sqrt{3}}{2}  |  \frac{\sqrt{2}}{2}
3+2\sqrt{2}  |  \frac{1+\sqrt{5}}{2}  |  \frac{3-\sqrt{17}}{4}  |  \sqrt[3]{3}  |  \sqrt[3]{25}  |  3^{1/3}
-\sqrt{6}  |  \sqrt{2}+\sqrt{3}  |  \sqrt{\frac{2}{3}}  |  \sqrt{5+2\sqrt{6}}  |  2\sqrt[4]{8}  |  4\sqrt{3}-5
\frac{2\sqrt{5}}{5}  |  10\sqrt{10}  |  8\sqrt3  |  \pi  |  2\pi  |  \frac{\pi}{2}  |  \frac{9}{4}\pi  |  36\pi
\frac{4}{3}\pi  |  \pi^2  |  8-2\pi  |  \frac{\pi^2}{6}  |  16\pi-8\sqrt{3}  |  e  |  e^{2}  |  e^{300}
\frac{1}{e}  |  e-2  |  \ln 2  |  \ln 3  |  \log_2 3  |  \frac{\ln 2}{3}  |  3+4i  |  3-4i  |  -2i  |  5i
\frac{1}{2}+\frac{\sqrt{3}}{2}i  |  e^{i\pi/3}  |  6-5i  |  \sin 15^\circ  |  \cos 40^\circ  |  \arctan 2
\tan^2(y)+5  |  \cos(2x)  |  \sin^2 x  |  2\cos a\sin b  |  \frac{\sin x}{x}  |  \sec x  |  \arcsin\frac{1}{3}
x^2+2x+5  |  (x+3)^2  |  n^2+n  |  n(n+3)  |  2n+5  |  \frac{n(n+5)}{2}  |  2^{n+5}  |  3\cdot 2^n  |  2^n-5  |  n!
\frac{x+2}{9}  |  \frac{5}{x}  |  \frac{x^2-5}{x+3}  |  -x^3+4x  |  x^4-3x^2+9  |  (a+5)(b+2)  |  ab+bc+ca  |  a^2-b^2
\sqrt{x^2+3}  |  |x-3|  |  2|x|  |  \lfloor n/3\rfloor  |  \lceil \frac{n}{3} \rceil  |  e^{-x^2}  |  x e^{x}
C e^{3x}  |  \ln x  |  \ln(x+3)  |  \frac{x^3}{3}  |  x\ln x-x  |  \frac{n!}{k!(n-k)!}  |  (n-3)!  |  F_{n+3}  |  a_n
k+3  |  p-5  |  \frac{q_0}{\sqrt{2LC}}  |  \frac{GMm}{r^2}  |  \frac{1}{2} m v^2  |  mg\sin\theta  |  A e^{-E_a/RT}
\frac{\omega}{s^2+\omega^2}  |  R^2-r^2  |  \rho g h  |  \frac{t}{m}  |  \frac{a}{b+c}  |  \theta  |  2\theta  |  x=5
x=-3  |  y=\frac{3}{4}  |  n=12  |  f(x)=x^2  |  f(x)=3x-5  |  f(n)=n+3  |  S_n=n^2+3  |  a_n=2^n+5  |  P(x)=x^2-5
y=2x+3  |  y=-\frac{1}{2}x+5  |  2x+3y=6  |  x-2y+z-5=0  |  x^2+y^2=25  |  (x-3)^2+y^2=9  |  y^2=4x  |  xy=9  |  x=3y
\frac{x^2}{9}+\frac{y^2}{4}=3  |  x' + \frac{r}{V}x - rc = 0  |  \frac{dx}{dt} = kx - a  |  E=mc^2  |  a+b=c
x^2-5x+6=0  |  (1,2)  |  (3,-4)  |  (-2,5)  |  (0,3,5)  |  (\frac{1}{2},-3)  |  (2\sqrt{3},5)  |  (5, \frac{\pi}{4})
(a,b)  |  (2a,3b)  |  (1,2),(3,4)  |  (3,5),(5,3)  |  (0,0),(4,8)  |  (-3,2),(3,2)  |  (2,3,5),(3,2,5)
(x,y)=(3,-4)  |  (a,b,c)=(3,4,5)  |  (0,1)  |  [0,1]  |  [0,1)  |  (5,\infty)  |  (-\infty,3]  |  [-2,9]  |  (-793,10)
(\frac{1}{3},4]  |  [-\sqrt{3},\sqrt{3}]  |  (-\infty,1)\cup(3,\infty)  |  (-\infty,-3]\cup[3,\infty)
(-5,-3)\cup(3,5)  |  \{-3\}\cup[0,9)  |  [3,5]\cup\{9\}  |  (0,\infty)  |  x>5  |  x<-3  |  x\ge 9
x \le \frac{3}{4}  |  -2 \le x \le 9  |  -793<a<10  |  0<x<3  |  3\leq k<9  |  k \geq 3  |  a>-5
x<3 \text{ or } x>9  |  x\le -3 \text{ or } x\ge 5  |  y\ge x  |  x+y<9  |  x \ne 5  |  x \neq 3,5  |  a<b<c
ab\le 9  |  \{3,5\}  |  \{3,5,9\}  |  \{-3,0,5\}  |  \{3\}  |  \{2,3,5,9\}  |  \{\frac{1}{2},3\}  |  \{\sqrt{3},5\}
\{0,5\}  |  3,5  |  3,5,9  |  -3,5  |  5,\frac{1}{3}  |  2\sqrt{3},5  |  3,4,5,6  |  -5,0,5
\frac{1}{2},\frac{5}{3}  |  9, 13, 33  |  3\text{ or }5  |  \frac{3}{2}\text{ or }\frac{5}{2}  |  3 \text{ and } 5
x=3,y=5  |  x=3, y=5, z=9  |  x=3 \text{ or } x=5  |  a=4,-8,-10  |  x_1=3, x_2=5  |  x=3,y=4 \text{ or } x=4,y=3
\pm 3  |  \pm\sqrt{5}  |  3\pm\sqrt{5}  |  5 \pm \sqrt{19}  |  \pm 3i  |  \frac{3\pm\sqrt{5}}{2}  |  x=\pm 5
k\pi, k \in \mathbb{Z}  |  x = k\pi, k \in \mathbb{Z}  |  p \equiv 3 \pmod 4  |  3k+5, k\in\mathbb{N}
\begin{pmatrix}3 & 5 \\ 9 & 4\end{pmatrix}  |  \begin{pmatrix} 3 \\ 5 \end{pmatrix}
\begin{bmatrix}3 & -5\end{bmatrix}  |  \begin{pmatrix} 3 & 0 \\ 0 & 3 \end{pmatrix}
\begin{pmatrix} 3 \\ 5 \\ 9 \end{pmatrix}  |  \begin{pmatrix} a & b \\ c & d \end{pmatrix}  |  \text{Evelyn}
Evelyn  |  \text{even}  |  \text{odd}  |  \text{Yes}  |  \text{No}  |  \text{increasing}  |  \text{June 20}
\text{circle}  |  \text{Friday}  |  \text{neither}  |  \text{the blue team}  |  \text{not increasing}
\text{ellipse}  |  \text{A and B}  |  \text{hyperbola}  |  \text{(C)}  |  \text{(A)}  |  C  |  (B)  |  \textbf{(D)}
\textbf{(C)}\ 12  |  A,C,D  |  \text{B}  |  \text{E}  |  90^\circ  |  45^\circ  |  60^{\circ}  |  15\mbox{ cm}^2
15 \text{ cm}  |  9.8 \text{ m/s}^2  |  40 \text{ miles}  |  58 \text{ square units}  |  \$5.50  |  \$32{,}348
12 \text{ hours}  |  3 \text{ dollars}  |  120 \text{ degrees}  |  5\pi \text{ cm}  |  9.81 m/s^2  |  2 \text{ apples}
\infty  |  -\infty  |  \emptyset  |  \text{no solution}  |  \mathbb{R}  |  7:32  |  3:5  |  204_5  |  2B_{16}
\text{5 million}  |  5:9
"""

TAILS = [", 7", " or 7", "=7", r"\approx 7", "x", "^2", "!", r"\pm 1", r"\%", "+C", "i", r" \text{ or } 7", " and 7",
    "; 7", "/7", ".7", ":7", r"\to 7", r"\Rightarrow 7", " 7", r"\ 7", r"\quad 7", r"\\ 7", "(7)", r"\{7\}", "?",
    r"\equiv 7", r"\sim 7", r"\ne 7", "<7", r"\le 7", r"\in\{7\}", r"\cup\{7\}", r"\text{ dozen}",
    r"\text{ thousand}", " or so", r"\text{ or more}", "'", "_1", r"\cdot 2", r"\boxed{7}", "^{-1}", "e7",
    r"\text{, maybe}", r"\mp 1", "-7", "+7i", r"\text{ (or 7)}", r"\sqrt{2}", r"\pi", "...", r"\ldots", r"\infty",
    " mod 7", r"\pmod 7", "$7$", "|", r"\dots 7", r", \ldots", r"\text{ squared}", r"\circ", "#", "*2", "**2", "&7",
    r"\neq 7", r"=\pi", "~7", r"\oplus 7", r"\text{ for } 7", r"\text{ for all } 7", r"\text{ where } x=7",
    r" \text{ if } x > 7", r"=\frac{7}{2}"]  # fmt: skip
HEADS = ["7, ", "7=", r"\pm ", r"\text{not }", "1/", r"\ln ", "7 or ", "-", "7+", "2", r"\sqrt ", r"\text{about }",
    "x=7=", r"7\approx ", "7; ", r"\ne ", r"\neg ", "<", r"\le ", r"\text{more than }", "not ", r"2\cdot ", "i", "x",
    r"7\to ", r"\text{7 or }", r"\boxed{7}, ", r"7\text{ and }", "7:", "7<", r"\frac{1}{2}", r"\sin ", r"x\ne ", "7|",
    r"\text{All except }", r"\lim ", "n=7, ", "7 ", r"y=7 \text{ or } ", r"\pi=", "2e=", "2i=", "+7+", r"\log ",
    r"\text{non-}", "anti", r"\overline", "x+", "n=7=", r"\mathbb{R}\setminus ", r"7\ge ", "|7|, "]  # fmt: skip

_FLIPS = [("<", ">"), (">", "<"), (r"\le ", r"\ge "), (r"\ge ", r"\le "), (r"\leq", r"\geq"), (r"\geq", r"\leq"),
          ("+", "-"), ("-", "+"), ("=", r"\ne ")]  # fmt: skip

# Gold -> the changes that leave it right: both sides are equal, 0 times anything is 0, a set has no order.
_OF_ZERO = {f"tail {tail}" for tail in (r"\%", "/7", ":7", r"\text{ thousand}", r"\cdot 2", "e7", "*2")}
EQUAL: dict[str, set[str]] = {
    "3.5": {r"tail =\frac{7}{2}"},
    "0.3333333": {"tail ...", r"tail \ldots"},  # 1/3, within the tolerance between a decimal and another notation
    "10.08333333": {"tail ...", r"tail \ldots"},
    r"3\frac{1}{2}": {r"tail =\frac{7}{2}"},
    r"\pi": {r"tail =\pi", r"head \pi="},
    "x-2y+z-5=0": _OF_ZERO,
    r"x' + \frac{r}{V}x - rc = 0": _OF_ZERO,
    "x^2-5x+6=0": _OF_ZERO,
    "0<x<3": {"head -", r"head \pm ", r"head \sqrt ", r"head 2\cdot ", r"head \sin "},
    r"\pm 3i": {"tail ^{-1}"},
    r"\frac{3\pm\sqrt{5}}{2}": {"tail ^{-1}", "head 1/"},
    r"x=\pm 5": {"head -"},
}


def golds():
    return [gold for gold in re.split(r"  \|  |\n", GOLDS) if gold.strip()]


def changed(gold):
    """(How it was changed, the wrong answer), of one gold."""
    for tail in TAILS:
        yield f"tail {tail}", gold + tail
    for head in HEADS:
        yield f"head {head}", head + gold
    for match in re.finditer("[0-9]", gold):
        for step in (1, 5):
            yield "digit", gold[: match.start()] + str((int(match[0]) + step) % 10) + gold[match.end() :]
    for old, new in _FLIPS:
        for match in re.finditer(re.escape(old), gold):
            yield f"flip {old}", gold[: match.start()] + new + gold[match.end() :]
    if gold[0] in "([" and gold[-1] in ")]":
        yield "bracket", {"(": "[", "[": "("}[gold[0]] + gold[1:]
        yield "bracket", gold[:-1] + {")": "]", "]": ")"}[gold[-1]]
    if gold.count(",") and "(" not in gold:
        for cut in (gold.rpartition(",")[0], gold.partition(",")[2]):
            yield "part", cut


def wrong_answers():
    """(Gold, how it was changed, wrong answer) of all golds."""
    return [(gold, how, answer) for gold in golds() for how, answer in changed(gold) if how not in EQUAL.get(gold, ())]
