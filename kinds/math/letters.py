r"""Letters, and names that are more than one letter.

    letter      = (sign | first letter of a run) ["_" subscript] {"'"} [derivative] [composition]
                                                             x     \alpha     the x of xy     x_1     y'
    subscript   = letter | group                             F_{n-1}     v_max     the B of k_BT
    derivative  = "^" "{" "(" number ")" "}"                 f^{(3)}
    composition = "\circ" letter                             f\circ g
    name        = tokens up to "=" that write a known name   v(t) =     P(A\cap B) =     [H^+] =     \lim_{x\to 2} f =

To add a letter such as \alpha, add it to GREEK in signs.py. A group is a token, or tokens in braces (cursor.py).
"""

import re

from kinds.math.cursor import Cursor
from kinds.math.lookahead import MAX_TAIL
from kinds.math.nodes import Node

_LIMITS = (r"\lim", r"\sum", r"\prod", r"\int")  # they start a name: \lim_{x\to 2} f(x) = 5
# v of v(t), but f(x) is a product for this grammar, and unknowns.py knows that f is a function.
_OF_LETTERS = (*"nvxyrsuBIUJEK", r"\rho", r"\psi", r"\phi", r"\tau", r"\sigma")
_NAMES = r"P\([A-Z'\\a-z ]*(?:\\cap|\\cup|\||\\mid)[A-Z'\\a-z ]*\)|(?:[a-zA-Z]|\\[a-z]+)\((?:[a-zA-Z]|[0-9]+)\)"
_NAMES_BY_BRACKET = {"[": r"\[[A-Z][A-Za-z0-9_]*(\^?[0-9]?[+-])?\]", "|": r"\|[A-Z](\\c[au]p[A-Z])+\|"}


def read_letter(cursor: Cursor) -> Node:
    r"""x    x_1    F_{n-1}    \alpha'. It cuts the first letter off a run: xy^2 is x times y^2."""
    name = cursor.take() if cursor.now.kind == "sign" else cursor.take_character()
    name = {r"\pi": "π", r"\infty": "∞"}.get(name, name)
    if cursor.takes("_"):
        name += "_" + _read_subscript(cursor)
    while cursor.takes("'"):
        name += "'"
    if cursor.science and name[0].isupper() and cursor.takes("°"):  # \Delta H^\circ    E^\circ_{cell}
        name += "°"
        name += "_" + _read_subscript(cursor) if cursor.takes("_") else ""
    return Node("letter", name + _read_derivative(cursor, name) + _read_composition(cursor, name))


def _read_subscript(cursor: Cursor) -> str:
    """1    n    {n-1}    max. k_BT is k_B times T, and v_max is read as v_{max} for its vowel."""
    kind, text, _ = cursor.now
    if kind != "run" or len(text) == 1 or (len(text) > 2 and text.islower() and re.search("[aeiou]", text)):
        return cursor.take_group()
    return cursor.take_character()


def _read_derivative(cursor: Cursor, name: str) -> str:
    """The (3) of f^{(3)}."""
    mark = [cursor.ahead(distance).text for distance in (0, 1, 2, 4, 5)] == ["^", "{", "(", ")", "}"]
    if not mark or name not in ("f", "g", "h", "y"):
        return ""
    cursor.at += 6
    return "^" + cursor.tokens[cursor.at - 3].text


def _read_composition(cursor: Cursor, name: str) -> str:
    r"""The \circ g of f\circ g."""
    if not (cursor.sees(r"\circ") and name.isalpha() and re.fullmatch("[a-zA-Z]", cursor.ahead(1).text)):
        return ""
    cursor.take()
    return "∘" + cursor.take()


def read_name(cursor: Cursor) -> Node | None:
    r"""v(t) =    P(A\cap B) =    [H^+] =    \lim_{x\to 2} f(x) =: a name that is no product, up to the next "="."""
    text, following = cursor.now.text, cursor.ahead(1).text
    if not (text in _LIMITS or text in ("[", "|") or (following == "(" and (text in _OF_LETTERS or text == "P"))):
        return None
    end, nested = cursor.at, 0
    while end < min(cursor.at + MAX_TAIL, len(cursor.tokens) - 1) and (nested or cursor.tokens[end].text != "="):
        nested += (cursor.tokens[end].text in ("{", "(", "[")) - (cursor.tokens[end].text in ("}", ")", "]"))
        end += 1
    found = [token.text for token in cursor.tokens[cursor.at : end]]
    name = "".join(part for part in found if part not in ("{", "}", r"\ce"))
    pattern = _NAMES_BY_BRACKET.get(text, _NAMES)
    if cursor.tokens[end].text != "=" or not (text in _LIMITS or re.fullmatch(pattern, name)):
        return None
    cursor.at = end
    return Node("letter", name)
