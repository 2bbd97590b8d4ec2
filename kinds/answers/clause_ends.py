r"""Where a clause ends: before a sign such as a comma, or before one of these.

    approximation = "(" "\approx" side ")" | "or" "approximately" side                     2\sqrt{3} (\approx 3.46)
    parameter     = ["," | ";"] ["("] ["where" | "with" | "for"] ["all"] (letter is_integer | "integers" letter) [")"]
    is_integer    = "\in" ("\mathbb{Z}" | "Z") | "is" ("an" | "any") "integer"             k\pi, k \in \mathbb{Z}
    condition, of words.py                                                                 2x \text{ for all real } x
    the "to" of a ratio                                                                    3 \text{ to } 5

These functions look at the tokens of a cursor from a place on, and take none.
"""

from kinds.answers.cursor import Cursor
from kinds.answers.tables import APPROX, APPROXIMATELY, BRACKETS, RELATIONS

_ENDS = {",", ";", ":", "and", "or", "&", r"\\", r"\}", r"\mid", r"\cup", r"\setminus", r"\choose", r"\over",
         *RELATIONS, *(closing for closings, _ in BRACKETS.values() for closing in closings)}  # fmt: skip

_ALL = ("all", "any", "every", "each")
_IS_INTEGER = ([r"\in", r"\mathbbZ"], [r"\in", "Z"], ["is", "an", "integer"], ["is", "any", "integer"])


def ends_clause(cursor: Cursor, at: int) -> bool:
    """Does a clause end before the token at this place?"""
    kind, text, _ = cursor.tokens[at]
    sign = kind == "sign" and (text in _ENDS or text.startswith(r"\end"))
    word = starts_condition(cursor, at) or starts_to(cursor, at)
    return kind == "end" or sign or word or approximation_length(cursor, at) > 0 or find_parameter(cursor, at)[1] > 0


def starts_condition(cursor: Cursor, at: int) -> bool:
    r"""\text{for all real } x."""
    return cursor.tokens[at].text == "for" and cursor.tokens[at + 1].text in _ALL


def approximation_length(cursor: Cursor, at: int) -> int:
    r"""Return the number of tokens before the value in (\approx 3.46) and \text{or approximately } 3.46, else 0."""
    if cursor.tokens[at].text in ("(", "or") and cursor.tokens[at + 1].text in APPROXIMATELY:
        return 2 + (cursor.tokens[at + 2].text == ".")
    return int(cursor.tokens[at].text == APPROX)


def find_parameter(cursor: Cursor, at: int) -> tuple[str, int]:
    r"""Return k and the number of tokens of (k \in \mathbb{Z}) or ", where k is an integer"; "" and 0 if none."""
    if cursor.tokens[at].text not in (",", ";", "(", "where", "with", "for"):
        return "", 0
    texts = [token.text for token in cursor.tokens[at : at + 8]] + [""] * 8
    start = int(texts[0] in (",", ";"))
    bracket = texts[start] == "("
    start += bracket
    start += texts[start] in ("where", "with", "for")
    start += texts[start] in _ALL
    before = texts[start] in ("integer", "integers")  # for all integers k
    start += before
    letter = texts[start]
    for after in [[]] if before else _IS_INTEGER:
        end = start + 1 + len(after)
        if len(letter) == 1 and letter.isalpha() and texts[start + 1 : end] == after:
            closed = not bracket or texts[end] == ")"
            end += bracket
            return (letter, end) if closed and texts[end] in ("", ")", "]", "}", r"\}") else ("", 0)
    return "", 0


def starts_to(cursor: Cursor, at: int) -> bool:
    r"""The "to" of the ratio 3 \text{ to } 5."""
    return cursor.tokens[at].text == "to" and cursor.tokens[at - 1].kind == cursor.tokens[at + 1].kind == "number"
