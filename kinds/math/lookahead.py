r"""What comes next? These functions look at tokens and take none: where a clause ends, where a unit or a factor starts.

The hard question of the grammar is whether letters behind a value are its unit or a factor: 5 m, 5 cm, 5x, 5 m/s. A
lone letter of a formula, as in 5 m, is a variable in math and a unit in science. In both it is a unit if it is upright
(5\text{ m}) or has a slash (5 m/s). A longer name after a space is a unit too (5 cm). `starts_unit` has the rule.

A unit is looked for at most MAX_TAIL tokens ahead, so the time of the whole grammar is linear in the text.
"""

from kinds.math.cursor import Cursor
from kinds.math.lexer import Token
from kinds.math.signs import BRACKETS, FUNCTIONS, LETTERS, MARKED, RELATIONS
from kinds.math.units import symbol_of, unit_of
from kinds.math.vocabulary import NUMBER_WORDS, ORDINALS, PERCENT, noun_of, without_direction

MAX_TAIL = 24

_ENDS_CLAUSE = {",", ";", ":", "and", "or", "&", r"\\", r"\}", r"\mid", r"\cup", r"\setminus", r"\choose", r"\over",
                *RELATIONS, *(closing for closings, _ in BRACKETS.values() for closing in closings)}  # fmt: skip
_STARTS_FACTOR = (r"\frac", r"\sqrt", r"\root", r"\binom", "√", *MARKED, *("\\" + name for name in FUNCTIONS),
                  *(opening for opening in BRACKETS if opening != "|"))  # fmt: skip
# Signs that may stand in a unit, and those of them that may start one.
_IN_UNITS = {"/", "*", "^", "°", "-", ".", "(", ")", "{", "}", r"\frac", r"\mu", r"\Omega", "Å", r"\$", "€", "£", "¥",
             "¢"}  # fmt: skip
_STARTS_UNIT = (r"\frac", r"\Omega", r"\mu", "Å", "¢", "(")
_AFTER_NUMBER = (*PERCENT, *NUMBER_WORDS, "per")
_UNSPACED = ("cm", "mm", "km", "kg", "ft", "mph", *ORDINALS)  # 5cm and 5th; 2mg may be a product


# ------------------------------------------------------------------------------------------ clauses


def ends_clause(cursor: Cursor, at: int) -> bool:
    """Does a clause end before the token at this place?"""
    kind, text, _ = cursor.tokens[at]
    sign = kind == "sign" and (text in _ENDS_CLAUSE or text.startswith(r"\end"))
    return kind == "end" or sign or starts_condition(cursor, at) or starts_to(cursor, at)


def starts_condition(cursor: Cursor, at: int) -> bool:
    r"""\text{for all real } x."""
    return cursor.tokens[at].text == "for" and cursor.tokens[at + 1].text in ("all", "any", "every", "each")


def starts_to(cursor: Cursor, at: int) -> bool:
    r"""The "to" of the ratio 3 \text{ to } 5."""
    return cursor.tokens[at].text == "to" and cursor.tokens[at - 1].kind == cursor.tokens[at + 1].kind == "number"


# ------------------------------------------------------------------------------------------ factors


def starts_factor(cursor: Cursor, numeric: bool) -> bool:
    """Does another factor of a product follow? `numeric`: the product has no variable so far."""
    if cursor.now.kind == "number":
        return cursor.before.text == "!"  # 3!4!
    if starts_to(cursor, cursor.at):
        return False
    if starts_letter(cursor) or (numeric and cursor.sees(*_STARTS_UNIT)):
        return not starts_unit(cursor, numeric)
    if cursor.sees(*_STARTS_FACTOR):
        return True
    return cursor.sees("|") and not cursor.no_bar_or_ratio


def starts_letter(cursor: Cursor) -> bool:
    r"""A run such as xy, an upright x, or a sign such as \alpha."""
    kind, text, _ = cursor.now
    return kind == "run" or (kind == "word" and len(text) == 1) or cursor.sees(*LETTERS)


def starts_price(cursor: Cursor) -> bool:
    r"""Does a unit follow the slash: \$5/\text{hour}, \$5/month? \$5/x is a quotient."""
    kind, text, _ = cursor.ahead(1)
    return kind == "word" or (cursor.currency != "" and len(text) > 1 and symbol_of(text) is not None)


# -------------------------------------------------------------------------------------------- units


def tail(cursor: Cursor) -> list[Token] | None:
    """The rest of the clause, if it has only words and the signs of units: cm^2, m/(s K), cups of tea; or None."""
    nested = 0
    for end in range(cursor.at, min(cursor.at + MAX_TAIL, len(cursor.tokens))):
        token = cursor.tokens[end]
        if not nested and ends_clause(cursor, end):
            return cursor.tokens[cursor.at : end]
        nested += (token.text in ("(", "{")) - (token.text in (")", "}"))
        power = token.kind == "number" and token.text.isdecimal() and len(token.text) == 1
        if nested < 0 or not (power or token.kind in ("run", "word") or token.text in _IN_UNITS):
            return None
    return None


def starts_unit(cursor: Cursor, numeric: bool) -> bool:
    r"""Does a unit or a counted noun follow a value? `numeric`: the value has no variable.

    upright     5\text{ m}    8\text{ eggs}    5\ \Omega    9.8 \frac{\text{m}}{\text{s}^2}
    long        5 cm    8 eggs after a space    5cm, 5th. But 5 xyz is a product
    a letter    5 m/s^2, and in science also 5 m. But 5x, 2 x y and x m are products
    """
    kind, text, spaced = cursor.now
    if text in _AFTER_NUMBER or (kind == "word" and len(text) > 1):
        return True
    after_number = cursor.before.kind == "number"
    apart = spaced or text in _UNSPACED or (cursor.science and (after_number or kind == "sign"))
    if text == "mg" and kind == "run" and not numeric:  # \mu mg has a weight, no milligram
        return False
    if text in ("e", "i") or (kind == "run" and not (apart and (numeric or len(text) > 1))):
        return False
    if kind == "word" and _was_variable(cursor, text):
        return False
    found = tail(cursor)
    if not found or (not numeric and cursor.ahead(len(found)).text in RELATIONS):  # \mathrm{\Delta H} = 5
        return False
    found, _ = without_direction(found, False)
    runs = [token.text for token in found if token.kind == "run"]
    if not runs:  # all letters are upright
        return unit_of(found) is not None or noun_of(found) != ""
    return apart and _is_unit_of_runs(cursor, found, runs, numeric)


def _was_variable(cursor: Cursor, letter: str) -> bool:
    r"""Does this upright letter stand earlier in the clause: the last t of \mathrm{3t^2 + 7t}?"""
    for at in range(cursor.at - 1, -1, -1):
        text = cursor.tokens[at].text
        if text == letter or (ends_clause(cursor, at) and text not in (")", "}")):
            return text == letter
    return False


def _is_unit_of_runs(cursor: Cursor, found: list[Token], runs: list[str], numeric: bool) -> bool:
    """Are the letters of a formula a unit or a noun: m/s, cm, eggs? `runs` has the runs of the tail that was found."""
    is_unit, is_noun = unit_of(found) is not None, noun_of(found) != ""
    if is_unit and any(len(run) == 1 and run.isascii() for run in runs):  # a lone letter
        return numeric and (cursor.science or any(token.text == "/" for token in found))
    return is_unit or (is_noun and (max(map(len, runs)) > 3 or found[0].text in ORDINALS))
