r"""Kind "science": a short answer with its unit, a formula, or an option. (verify.py, section 4.2.1)

    accepted as the same                                 not the same
    all that math accepts
    9.8 m/s^2, 9.8 \frac{m}{s^2}, 9.8 \text{ m s}^{-2}   9.8 m and 9.8 s; 1 kJ and 1000 J; 20 °C and 68 °F
    120 V and 120 volts; 10 \Omega and 10 ohms; 10       100 V for 120 V
    8.314 for the gold 8.31 (three digits or more)       8.32 or 8.3 for it
    b, (b), B, B. 12 m/s, B. I and II for the option B   another option; B or C; B. 5 (C)
    6 m/s, 6 m/s east                                    6 m/s west for 6 m/s east
    CO_2, \ce{CO2}, \text{CO}_2, CO2; Fe^{+3}, Fe³⁺      Fe^{3+} and Fe^{2+}; HCN and HNC
    pH = 7 for 7; 1.5e3 and 1.5 × 10³

A lone letter after a number is a unit here: 5 m. A right answer may be a formula with such a letter, so an answer is
also right if it is right as math: 2mg and 2gm. `kinds.answers.compare` has these rules.

The sources of the rules: the answers of SCP-116K and GPQA.
"""

from typing import Any

from kinds import maths


def judge_science(answer: str, reference: str | list[str]) -> Any:
    """Judge as math does, with the rules above."""
    return maths.judge_math(answer, reference, science=True)


KIND = maths.KIND._replace(judge=judge_science, check=lambda gold: maths.check_golds("science", gold))
