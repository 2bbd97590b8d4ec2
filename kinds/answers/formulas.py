r"""Formulas of chemistry, which science compares by their letters.

CO_2     \text{Fe}^{3+}     sp^3     ^{14}_6 C     2H_2 + O_2 \to 2H_2O
"""

from kinds.answers.lexer import tokens
from kinds.patterns import forward

_FORMULA = forward(r"\[?[A-Z][A-Za-z0-9()\[\]+*-]*+|sp[0-9d]*+")
_CHARGE = forward(r"\^(?=[0-9]?[+-])")
_SIGN_FIRST = forward(r"\^([+-])([0-9])(?![0-9])")  # Fe^{+3}
_ONE = forward(r"\^1(?=[+-])")  # Na^{1+}
_NUCLIDE = forward(r"(?:_([0-9]++))?\^([0-9]++)(?:_([0-9]++))?([A-Z][a-z]?)")  # ^{14}_6 C
_REACTION = forward(r"[A-Za-z0-9()+^_-]++\\to[A-Za-z0-9()+^_-]++")  # 2H_2 + O_2 -> 2H_2O
_STATE = forward(r"\((?:g|l|s|aq)\)|_")


def formula_of(text: str) -> str:
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
