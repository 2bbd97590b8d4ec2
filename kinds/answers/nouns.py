r"""The words behind a value: what it counts, and a direction.

A noun is any words that cannot change the value (5 eggs, 8 years old, 3 cups of tea), so 5 dozen, 8 万 and 5 K have
none. A direction is "to the right" in 6 m/s to the right. Words behind a unit stay in the tree: two answers that both
have some must have the same, so 5 kJ released is not 5 kJ absorbed.
"""

import unicodedata
from collections.abc import Sequence

import kinds.answers.tables as tables
from kinds.answers.lexer import END, Token
from kinds.patterns import forward

MAX_WORDS = 6  # of a counted noun
_FOREIGN = forward(tables.FOREIGN)
_SUBSTANCE = forward(r"(?:[A-Z][a-z]?[0-9]{0,2}+)++")  # the CO2 of 3 g of CO2


def noun_of(found: Sequence[Token], label: bool = False) -> str:
    """Return the words of a counted noun, or of a label, in the singular. "" if a word may change a value.

    eggs    cups of tea    Minimum value, which is only a label
    """
    words: list[str] = []
    found = found[1:-1] if [token.text for token in (*found[:1], *found[-1:])] == ["(", ")"] else found
    found = _with_substance(found)
    for before, token, after in zip([END, *found], found, [*found[1:], END], strict=False):
        word = "per" if token.text == "/" and words else token.text.casefold()
        letters = token.kind in ("run", "word") and (len(word) > 1 or word == "a" or not word.isascii())
        if token.text in tables.MODIFIERS and not label and after.kind in ("run", "word") and after.text != "than":
            continue  # 5 more apples
        if token.text != "." or before.kind not in ("run", "word"):
            changing = word in tables.BOUNDS or changes_value(word) or (not words and word in tables.COUNTED_POWERS)
            if not (letters or word == "per") or (changing and not (label and word in tables.IN_LABELS)):
                return ""
            words.append(word.removesuffix("s").removesuffix("e"))
    noun = "".join(words)
    starts = found[0].text.casefold() != "the" if found else False  # 5 of the eggs, but not 5 the second
    return noun if starts and len(words) <= MAX_WORDS and (label or "percent" not in noun) else ""  # 48% per cent


def _with_substance(found: Sequence[Token]) -> Sequence[Token]:
    """Write the CO2 of "g of CO2" as one word."""
    start = next((at for at, token in enumerate(found, 1) if token.text == "of"), len(found))
    formula = "".join(token.text for token in found[start:] if token.text not in ("_", "{", "}"))
    return [*found[:start], Token("word", formula)] if _SUBSTANCE.fullmatch(formula) else found


def changes_value(word: str) -> bool:
    """Can this word change a value? dozen, non-zero, eighteen, Millionen, 万, and every word of an unknown script."""
    known = tables.CHANGES & {word, *word.split("-")} or word.endswith(tables.CHANGING_ENDS) or _FOREIGN.search(word)
    return bool(known) or not (word.isascii() or {_script(letter) for letter in word} <= tables.SCRIPTS)


def _script(letter: str) -> str:
    """LATIN, CYRILLIC, CJK, ... Signs, such as the hyphen of a word, count as LATIN."""
    return unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else "LATIN"


def words_of(found: Sequence[Token]) -> str:
    """Return the words behind a unit without those that say nothing: right for "to the right"."""
    words = [token.text.casefold() for token in found if token.text.casefold() not in tables.FILLERS]
    return "".join(word.removesuffix("s").removesuffix("e").removesuffix("ward") for word in words)


def without_direction(found: list[Token], degrees: bool) -> tuple[list[Token], list[Token]]:
    """Cut off the direction of a quantity: m/s to the right, m/s east, ° above the horizontal."""
    start = len(found)
    while start and found[start - 1].text.casefold() in tables.AIMING:
        start -= 1
    aims = {token.text.casefold() for token in found[start:]} & tables.AIMS
    return (found[:start], found[start:]) if (start or degrees) and aims else (found, [])
