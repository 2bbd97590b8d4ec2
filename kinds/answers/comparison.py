r"""Are two texts the same answer? `compare` reads and compares them as math, `compare_science` as science too."""

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from kinds.answers.algebra import rational
from kinds.answers.grammar import read
from kinds.answers.lexer import FIRST_DECIMAL, tokens
from kinds.answers.same import same
from kinds.answers.tree import Node, measured
from kinds.answers.units import same_unit
from kinds.patterns import forward

ALGEBRA = "algebra"  # the verdict on two texts that only algebra can compare


def compare(answer: str, gold: str, algebra: bool = True, science: bool = False) -> Any:
    """Are two texts the same answer? None if the answer cannot be read; ALGEBRA if that is needed and not allowed.

    `science` changes only how letters are read: a lone letter after a number is a unit.
    """
    if answer == gold:
        return True
    got, expected = read(answer, science), read(gold, science)
    if got is None or expected is None:
        return None
    if got.text == expected.text:
        return True
    if got.tree is None or expected.tree is None:
        return None if got.tree is None else False
    if not algebra and not (_is_plain(got.tree) and _is_plain(expected.tree)):
        return ALGEBRA
    return same(expected.tree, got.tree)


def best(verdicts: Iterable[Any]) -> Any:
    """Return the first of True, ALGEBRA and False that is among the verdicts, else None. Stop at True."""
    others = set()
    for verdict in verdicts:
        if verdict is True:
            return True
        others.add(verdict)
    return ALGEBRA if ALGEBRA in others else False if False in others else None


def _is_plain(node: Node) -> bool:
    """Can this tree be compared without algebra? Then its expressions are single letters or rational numbers."""
    return rational(node) is not None if node.kind == "call" else all(map(_is_plain, node.parts))


_FORMULA = forward(r"\[?[A-Z][A-Za-z0-9()\[\]+*-]*+|sp[0-9d]*+")
_CHARGE = forward(r"\^(?=[0-9]?[+-])")
_SIGN_FIRST = forward(r"\^([+-])([0-9])(?![0-9])")  # Fe^{+3}
_ONE = forward(r"\^1(?=[+-])")  # Na^{1+}
_NUCLIDE = forward(r"(?:_([0-9]++))?\^([0-9]++)(?:_([0-9]++))?([A-Z][a-z]?)")  # ^{14}_6 C
_REACTION = forward(r"[A-Za-z0-9()+^_-]++\\to[A-Za-z0-9()+^_-]++")  # 2H_2 + O_2 -> 2H_2O
_STATE = forward(r"\((?:g|l|s|aq)\)|_")


def compare_science(answer: str, gold: str, algebra: bool = True) -> Any:
    """Compare formulas by their letters, options without case, numbers to the gold's digits, the rest as math does.

    A right answer may have a letter that this reading takes for a unit, so it is also right if it is right as math.
    """
    got, expected = read(answer, True), read(gold, True)
    if got and expected and _formula(gold) and _formula(gold) == _formula(answer):
        return True
    trees = (expected.tree, got.tree) if got and expected and got.tree and expected.tree else None
    if trees and _option(trees[0]) and _option(trees[0]) == _option(trees[1]):
        return same(*(tree._replace(value=tree.value.upper()) for tree in trees))
    if trees and _rounds_to(*trees, gold):
        return True
    # The two readings differ only in runs of letters. Without runs, as in 5\text{ m}, one reading is enough.
    alike = got and expected and not any(token.kind == "run" for text in (answer, gold) for token in tokens(text))
    return best(compare(answer, gold, algebra, science) for science in ((True,) if alike else (True, False)))


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


def _rounds_to(gold: Node, answer: Node, text: str) -> bool:
    """Does the gold, with three digits or more, round the answer's number, and are their units the same?"""
    (gold_unit, gold), (unit, answer) = measured(gold), measured(answer)
    expected, value, decimal = rational(gold), rational(answer), FIRST_DECIMAL.match(text)
    if value is None or answer.value == "+" or not expected or not decimal or not same_unit(gold_unit, unit):
        return False
    digits = decimal[1].replace(".", "").replace(",", "").lstrip("0")
    last_digit = abs(expected) / int(digits or 1)
    return len(digits) >= 3 and abs(value - expected) <= last_digit / Fraction(2)
