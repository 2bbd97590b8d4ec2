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

reader.py reads a lone letter after a number as a unit here: 5 m. A right answer may be a formula with such a letter, so
an answer is also right if it is right as math: 2mg and 2gm.

The sources of the rules: the answers of SCP-116K and GPQA.
"""

import re
from fractions import Fraction
from typing import Any

from kinds import maths
from kinds.algebra import rational
from kinds.lexer import tokens
from kinds.patterns import forward
from kinds.reader import Node, read

_FORMULA = forward(r"\[?[A-Z][A-Za-z0-9()\[\]+*-]*+|sp[0-9d]*+")
_CHARGE = forward(r"\^(?=[0-9]?[+-])")
_SIGN_FIRST = forward(r"\^([+-])([0-9])(?![0-9])")  # Fe^{+3}
_ONE = forward(r"\^1(?=[+-])")  # Na^{1+}
_NUCLIDE = forward(r"(?:_([0-9]++))?\^([0-9]++)(?:_([0-9]++))?([A-Z][a-z]?)")  # ^{14}_6 C
_REACTION = forward(r"[A-Za-z0-9()+^_-]++\\to[A-Za-z0-9()+^_-]++")  # 2H_2 + O_2 -> 2H_2O
_STATE = forward(r"\((?:g|l|s|aq)\)|_")
_DECIMAL = forward(r"[^0-9]{0,4}+([0-9,]*+\.[0-9]++)")


def judge_science(answer: str, reference: str | list[str]) -> Any:
    """Judge as math does, with the rules above."""
    return maths.judge(answer, reference, compare, "kinds.science:judge_in_worker")


def judge_in_worker(answer: str, golds: str | list[str]) -> bool | None:
    """Compare an answer with each gold, with algebra."""
    return maths.best(compare(answer, gold) for gold in maths.golds_of(golds))


def compare(answer: str, gold: str, algebra: bool = True) -> Any:
    """Compare formulas by their letters, options without case, numbers to the gold's digits, the rest as math does."""
    form, expected = read(answer, True), read(gold, True)
    if form and expected and _formula(gold) and _formula(gold) == _formula(answer):
        return True
    trees = (expected.tree, form.tree) if form and expected and form.tree and expected.tree else None
    if trees and _option(trees[0]) and _option(trees[0]) == _option(trees[1]):
        return maths.same(_capital(trees[0]), _capital(trees[1]))
    if trees and _rounds_to(*trees, gold):
        return True
    # The two kinds differ only in how they read runs of letters. Without runs, as in 5\text{ m}, one reading is enough.
    alike = form and expected and not any(token.kind == "run" for text in (answer, gold) for token in tokens(text))
    return maths.best(
        maths.compare(answer, gold, algebra, science) for science in ((True,) if alike else (True, False))
    )


def _formula(text: str) -> str:
    r"""Return a chemical formula on one line, "" for other text: Fe3+ for \text{Fe}^{3+}, sp3 for sp^3."""
    line = "".join(token.text for token in tokens(text) if token.text not in ("{", "}", r"\ce"))
    line = _SIGN_FIRST.sub(r"^\2\1", _ONE.sub("^", line))
    if nuclide := _NUCLIDE.fullmatch(line):
        return f"{nuclide[2]}_{nuclide[1] or nuclide[3] or ''}{nuclide[4]}"
    if _REACTION.fullmatch(line):
        return _STATE.sub("", line)
    line = line.replace("_", "")
    line = line.replace("^", "") if line.startswith("sp") else _CHARGE.sub("", line)
    return line if _FORMULA.fullmatch(line) else ""


def _option(node: Node) -> str:
    """Return the letter of an option: B for b, (B) and B. 12 m/s. A small f, g, h or i is a symbol of physics."""
    known = node.kind == "option" or (node.kind == "letter" and re.fullmatch("[A-Ja-e]", node.value))
    return node.value.upper() if known else ""


def _capital(node: Node) -> Node:
    return node._replace(value=node.value.upper())


def _rounds_to(gold: Node, answer: Node, text: str) -> bool:
    """Does the gold, with three digits or more, round the answer's number, and are their units the same?"""
    (gold_unit, gold), (unit, answer) = maths.measured(gold), maths.measured(answer)
    expected, value, decimal = rational(gold), rational(answer), _DECIMAL.match(text)
    if value is None or answer.value == "+" or not expected or not decimal or not maths.agree(gold_unit, unit):
        return False
    digits = decimal[1].replace(".", "").replace(",", "").lstrip("0")
    last_digit = abs(expected) / int(digits or 1)
    return len(digits) >= 3 and abs(value - expected) <= last_digit / Fraction(2)


KIND = maths.KIND._replace(judge=judge_science, check=lambda gold: maths.check_text("science", gold))
