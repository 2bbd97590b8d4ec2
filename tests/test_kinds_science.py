r"""kinds/science.py, units.py: answers with units, formulas and options."""

import pytest
from judging import judged, pairs, reason

from kinds.units import read_unit
from verify import verify

SCIENCE_SAME = pairs(r"""
9.8 m/s^2  |  9.8 \, \text{m/s}^2
8.31 J/(mol K)  |  8.314 \text{ J mol}^{-1}\text{K}^{-1}
5 km  |  5
2.5e-3 mol  |  0.0025 mol
25 °C  |  25 ^\circ C
25 ^{\circ}C  |  25 degrees Celsius
B  |  (B)  |  b  |  \text{B}
(C)  |  C
nitrogen  |  Nitrogen  |  \text{nitrogen}
CO_2  |  CO2
CO2  |  \text{CO}_2  |  \mathrm{CO_2}  |  \ce{CO2}
H_2O  |  H₂O
NaCl  |  \text{NaCl}
Fe^{3+}  |  \text{Fe}^{3+}
sp^3  |  sp^{3}
1.67 \times 10^{-27} kg  |  1.67e-27 kg  |  1.6726e-27
3 Ω  |  3 \Omega
3 \Omega  |  3 ohms
100 nm  |  100 \text{ nm}
72\%  |  0.72
2\pi \sqrt{L/g}  |  2\pi\sqrt{\frac{L}{g}}
\frac{mv^2}{r}  |  m v^2/r
\frac{1}{2} m v^2  |  0.5mv^2
F = ma  |  ma
E = mc^2  |  E=mc^{2}
the mitochondria  |  mitochondria
increases  |  \text{increases}
-285.8 kJ/mol  |  -285.8 \text{ kJ/mol}
True  |  true
5 kg m/s  |  5 kg·m/s
10^{-3}  |  0.001
2  |  2.0
n = 2  |  2
(b)  |  B
B. 5 m  |  \text{Option (B)}
5.6 \times 10^{-3} mol/L  |  5.6 \times 10^{-3} \, \mathrm{mol\,L^{-1}}
2.0 × 10⁸ m/s  |  2 \times 10^8
10⁻³  |  0.001
25 ℃  |  25 °C
\pi/3 rad  |  \frac{\pi}{3}
CH3COOH  |  \text{CH}_3\text{COOH}
Na+  |  \text{Na}^+
sp3  |  \text{sp}^{3}
2-methylpropane  |  \text{2-Methylpropane}
\frac{GMm}{r^2}  |  G\frac{m M}{r^{2}}
""")

SCIENCE_DIFFERENT = pairs(r"""
9.8 \text{ m/s}^2  |  9.81 m/s^2
8.31  |  8.32  |  8.3
5 km  |  5000  |  5000 m
1 kJ  |  1000 J
B  |  B. Nitrogen
25 °C  |  298.15 K
B  |  C  |  12
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
        ("\\text{km}/\\text{h}", "km per hour"),
        ("square meters", "m^2"),
        ("miles per hour", "mi/h"),
        ("J/(mol K)", "J mol^{-1} K^{-1}"),
        ("cubic centimeters", "cm^3"),
        ("\\mu m", "micrometers"),
        ("dollars", "dollar"),
    ],
)
def test_units(text, same):
    """Mistake: one unit in two notations read as two."""
    assert read_unit(text) is not None and read_unit(text) == read_unit(same)


def test_unknown_units():
    """Mistake: variables, functions or words that change a number taken for units, so that 5x would answer for 5."""
    for text in ("x", "ab", "sin x", "x^2", "", "+m", "=cm", "dozen", "more or less", "thousand", "cm^2^2", "m//s"):
        assert read_unit(text) is None, text
    assert read_unit("flurbs") == ()


@pytest.mark.parametrize(
    ("kind", "reference", "right", "wrong"),
    [
        ("math", r"\boxed{12}", "12", "13"),
        ("math", r"So the answer is $\boxed{\frac{1}{2}}$.", "0.5", "2"),
        ("math", r"\boxed{2,3}", "3,2", "3"),
        ("science", r"\boxed{9.8\ \text{m/s}^2}", "9.8 m/s^2", "9.8 m/s"),
    ],
)
def test_a_gold_in_a_box_is_what_the_box_holds(kind, reference, right, wrong):
    """Mistake: a data set whose golds are boxed refused, or a sentence around the box taken for the answer."""
    assert verify(kind, rf"\boxed{{{right}}}", reference).reason == "correct"
    assert verify(kind, rf"\boxed{{{wrong}}}", reference).reason == "wrong"


def test_golds_beyond_floats():
    """Mistake: an exception in the trainer, where a gold's exponent is beyond a float's."""
    for gold, answer, expected in (
        ("1.00e500", "5", "wrong"),
        ("1.00e-400", "1", "wrong"),
        ("1.00e500", "1.001e500", "correct"),
        ("1.00e-400", "1.01e-400", "wrong"),
    ):
        assert reason("science", f"\\boxed{{{answer}}}", gold) == expected
