r"""kinds/science.py: answers with units, formulas and options."""

from judging import judged, pairs

SCIENCE_SAME = pairs(r"""
9.8 m/s^2  |  9.8 \, \text{m/s}^2  ;  8.31 J/(mol K)  |  8.314 \text{ J mol}^{-1}\text{K}^{-1}  ;  5 km  |  5
2.5e-3 mol  |  0.0025 mol  ;  25 °C  |  25 ^\circ C  ;  25 ^{\circ}C  |  25 degrees Celsius
B  |  (B)  |  b  |  \text{B}  ;  (C)  |  C  ;  CO_2  |  CO2  ;  CO2  |  \text{CO}_2  |  \mathrm{CO_2}  |  \ce{CO2}
H_2O  |  H₂O  ;  Fe^{3+}  |  \text{Fe}^{3+}  ;  sp^3  |  sp^{3}
1.67 \times 10^{-27} kg  |  1.67e-27 kg  |  1.6726e-27  ;  3 Ω  |  3 \Omega  ;  72\%  |  0.72
\frac{1}{2} m v^2  |  0.5mv^2  ;  E = mc^2  |  E=mc^{2}  ;  the mitochondria  |  mitochondria
5 kg m/s  |  5 kg·m/s  ;  (b)  |  B  ;  5.6 \times 10^{-3} mol/L  |  5.6 \times 10^{-3} \, \mathrm{mol\,L^{-1}}
10⁻³  |  0.001  ;  CH3COOH  |  \text{CH}_3\text{COOH}  ;  Na+  |  \text{Na}^+
B  |  B. Nitrogen  |  (B) 12 m/s  |  \text{B. }12 m/s  |  B: 12 m/s
2-methylpropane  |  \text{2-Methylpropane}  ;  \frac{GMm}{r^2}  |  G\frac{m M}{r^{2}}
""")

SCIENCE_DIFFERENT = pairs(r"""
9.8 \text{ m/s}^2  |  9.81 m/s^2  ;  8.31  |  8.32  |  8.3  ;  5 km  |  5000  |  5000 m  ;  1 kJ  |  1000 J
25 °C  |  298.15 K  ;  B  |  C  |  12  ;  CO2  |  CO  ;  1.67 \times 10^{-27} kg  |  1.67e-26 kg
50 N  |  50 \text{ N}\cdot\text{m}  ;  72\%  |  72  ;  5 \text{ mol}  |  5 \text{ mmol}  ;  A  |  A and B
water  |  heavy water
B  |  B. C.  |  B or C  |  B. not C  |  B, C  |  A. 12 m/s  |  B. 12 or 13  |  B, 12
2-methylpropane  |  3-methylpropane  ;  Fe^{3+}  |  Fe^{2+}
""")


def test_science_answers():
    """Makes impossible: equal units taken for different ones, different ones for equal, or a formula misread."""
    cases = SCIENCE_SAME + SCIENCE_DIFFERENT
    expected = [True] * len(SCIENCE_SAME) + [False] * len(SCIENCE_DIFFERENT)
    got = [reason == "correct" for reason in judged("science", cases)]
    assert [case for case, a, b in zip(cases, expected, got, strict=True) if a != b] == []


def test_a_gold_in_a_box_is_what_the_box_holds():
    """Makes impossible: a data set whose golds are boxed refused, or a sentence around the box taken for the answer."""
    half, gravity = r"So the answer is $\boxed{\frac{1}{2}}$.", r"\boxed{9.8\ \text{m/s}^2}"
    assert judged("math", [(half, "0.5"), (half, "2")]) == ["correct", "wrong"]
    assert judged("science", [(gravity, "9.8 m/s^2"), (gravity, "9.8 m/s")]) == ["correct", "wrong"]


def test_golds_beyond_floats():
    """Makes impossible: an exception in the trainer, where a gold's exponent is beyond a float's."""
    cases = [("1.00e500", "5"), ("1.00e500", "1.001e500"), ("1.00e-400", "1.01e-400")]
    assert judged("science", cases) == ["wrong", "correct", "wrong"]
