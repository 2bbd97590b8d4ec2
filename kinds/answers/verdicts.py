r"""The verdict on two texts: are they the same answer? `compare` reads both and compares their trees.

Science also compares formulas of chemistry by their letters: CO_2     \text{Fe}^{3+}     sp^3     ^{14}_6 C
2H_2 + O_2 \to 2H_2O.
"""

from collections.abc import Iterable
from typing import Any

from kinds.answers.algebra import has_three_digits, rational
from kinds.answers.comparison import same
from kinds.answers.grammar import read
from kinds.answers.lexer import tokens
from kinds.answers.options import letter_of_option
from kinds.answers.tree import Node
from kinds.answers.unknowns import is_equation, is_named
from kinds.patterns import forward

ALGEBRA = "algebra"  # the verdict on two texts that only algebra can compare
_FORMULA = forward(r"\[?[A-Z][A-Za-z0-9()\[\]+*-]*+|sp[0-9d]*+")
_CHARGE = forward(r"\^(?=[0-9]?[+-])")
_SIGN_FIRST = forward(r"\^([+-])([0-9])(?![0-9])")  # Fe^{+3}
_ONE = forward(r"\^1(?=[+-])")  # Na^{1+}
_NUCLIDE = forward(r"(?:_([0-9]++))?\^([0-9]++)(?:_([0-9]++))?([A-Z][a-z]?)")  # ^{14}_6 C
_REACTION = forward(r"[A-Za-z0-9()+^_-]++\\to[A-Za-z0-9()+^_-]++")  # 2H_2 + O_2 -> 2H_2O
_STATE = forward(r"\((?:g|l|s|aq)\)|_")


def compare(answer: str, gold: str, science: bool = False, algebra: bool = True) -> Any:
    """Are two texts the same answer? None if the answer cannot be read; ALGEBRA if that is needed and not allowed.

    Science compares formulas by their letters, options without case, and numbers to the gold's digits. A right answer
    may have a letter that science reads as a unit, so it is also right if it is right as math.
    """
    if not science:
        return _compare(answer, gold, algebra)
    readings = read(gold, True), read(answer, True)
    readable = all(readings)
    if readable and _formula_of(gold) and _formula_of(gold) == _formula_of(answer):
        return True
    trees = [reading.tree for reading in readings if reading and reading.tree]
    if len(trees) == 2 and letter_of_option(trees[0]) and letter_of_option(trees[0]) == letter_of_option(trees[1]):
        return same(*(tree._replace(value=tree.value.upper()) for tree in trees))
    return best(_compare(answer, gold, algebra, as_science=way, gold_may_round=True) for way in (True, False))


def _compare(answer: str, gold: str, algebra: bool, *, as_science: bool = False, gold_may_round: bool = False) -> Any:
    """Compare as math does. `as_science`: read as science, where the m of 5 m is a unit."""
    if answer == gold:
        return True
    of_gold, of_answer = read(gold, as_science), read(answer, as_science)
    if of_gold is None or of_answer is None:
        return None
    if of_gold.text == of_answer.text:
        return True
    if of_gold.tree is None or of_answer.tree is None:
        return None if of_answer.tree is None else False
    if not algebra and not (_is_plain(of_gold.tree) and _is_plain(of_answer.tree)):
        return ALGEBRA
    return same(_rounded(of_gold.tree) if gold_may_round else of_gold.tree, of_answer.tree)


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


def _rounded(gold: Node) -> Node:
    """Mark the numbers of a gold of three digits or more. With a decimal point they may round an answer's number."""
    if gold.kind in ("quantity", "list", "tuple"):
        return gold._replace(parts=tuple(map(_rounded, gold.parts)))
    if is_equation(gold) and is_named(gold):
        return gold._replace(parts=(gold.parts[0], *map(_rounded, gold.parts[1:])))
    whole = gold.kind == "number" and not gold.parts and abs(gold.value) >= 100
    return Node("rounded", "", (gold,)) if whole or has_three_digits(gold) else gold


def _formula_of(text: str) -> str:
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
