r"""Kind "science": a short answer with its unit, a formula, or an option. (verify.py, section 4.2.1)

    accepted as the same                                 not the same
    all that math accepts
    9.8 m/s^2, 9.8 \frac{m}{s^2}, 9.8 \text{ m s}^{-2}   9.8 m and 9.8 s; 1 kJ and 1000 J; 20 °C and 68 °F
    120 V and 120 volts; 10 \Omega and 10 ohms; 10       100 V for 120 V
    8.314 for the gold 8.31 (three digits or more)       8.32 or 8.3 for it
    b, (b), B, B. 12 m/s for the option B                another option; B or C
    CO_2, \ce{CO2}, \text{CO}_2, CO2                     Fe^{3+} and Fe^{2+}
    pH = 7 for 7; 1.5e3 and 1.5 × 10³

reader.py reads a lone letter after a number as a unit here: 5 m. A right answer may be a formula with such a letter, so
an answer is also right if it is right as math: 2mg and 2gm.

The sources of the rules: the answers of SCP-116K and GPQA.
"""

import re
from fractions import Fraction
from typing import Any

from kinds import maths
from kinds.algebra import rational
from kinds.patterns import forward
from kinds.reader import Node, read

_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_LOWER_OPTION = forward(r"\(?[a-e][).]?")
_OPTION = forward(r"\(?[A-J][).]?")
_CHEMISTRY = forward(r"\\(?:ce|text|mathrm)\b|[_^{} ]")  # says nothing in a chemical formula
_FORMULA = forward(r"[A-Z]|sp[0-9]")
_DECIMAL = forward(r"[^0-9]{0,4}+([0-9,]*+\.[0-9]++)")


def judge_science(answer: str, reference: str | list[str]) -> Any:
    """Judge as math does, with the rules above."""
    return maths.judge(answer, reference, compare, "kinds.science:judge_in_worker")


def judge_in_worker(answer: str, golds: list[str]) -> bool | None:
    """Compare an answer with each gold, with algebra."""
    return maths.best(compare(answer, gold) for gold in golds)


def compare(answer: str, gold: str, algebra: bool = True) -> Any:
    """Compare formulas by their letters, options without case, numbers to the gold's digits, the rest as math does."""
    if _OPTION.fullmatch(gold) or _LOWER_OPTION.fullmatch(gold):
        answer, gold = (text.upper() if _LOWER_OPTION.fullmatch(text) else text for text in (answer, gold))
    formulas = [_CHEMISTRY.sub("", text.translate(_SUBSCRIPTS)) for text in (answer, gold)]
    if _FORMULA.match(formulas[1]) and formulas[0] == formulas[1]:
        return True
    form, expected = read(answer, True), read(gold, True)
    if form and form.tree and expected and expected.tree and _rounds(expected.tree, form.tree, gold):
        return True
    return maths.best(maths.compare(answer, gold, algebra, science) for science in (True, False))


def _rounds(gold: Node, answer: Node, text: str) -> bool:
    """Does the gold, with three digits or more, round the answer's number, and are their units the same?"""
    (gold_unit, gold), (unit, answer) = maths.measured(gold), maths.measured(answer)
    expected, value, decimal = rational(gold), rational(answer), _DECIMAL.match(text)
    if value is None or not expected or not decimal or not maths.agree(gold_unit, unit):
        return False
    digits = re.sub(r"[.,]", "", decimal[1]).lstrip("0")
    last_digit = abs(expected) / int(digits or 1)
    return len(digits) >= 3 and abs(value - expected) <= last_digit / Fraction(2)


KIND = maths.KIND._replace(judge=judge_science, check=lambda gold: maths.check_text("science", gold))
