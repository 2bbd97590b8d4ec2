r"""Options of a multiple-choice question: their letter, and in science their text.

    option = ["("] letter (")" | "." | ":" | "-" | "(") [text]     A)     (C) 5 m/s     C. 5 m/s     C: nitrogen
    text   = clause | any tokens

The text may name no second option and no doubt: B. C.     B. not C     B. 12 or 13 are unreadable.
"""

import re
from collections.abc import Sequence

from kinds.math.clauses import read_clause
from kinds.math.cursor import Cursor
from kinds.math.lexer import END, Broken, Token, Unreadable, canonical
from kinds.math.nodes import NOTHING, Node
from kinds.math.vocabulary import DOUBTS


def starts_option(cursor: Cursor) -> bool:
    """A)    and in science also C. 5 m/s    C: nitrogen    (C) 5 m/s."""
    bracketed = cursor.sees("(")
    letter, mark, text = (cursor.ahead(bracketed + distance) for distance in range(3))
    small = cursor.science and mark.text == ")"  # b)
    if not re.fullmatch("[A-Ja-e]" if small else "[A-J]", letter.text):
        return False
    if text == END:
        return mark.text == ")" and not bracketed
    if mark.text in ("-", "(") and text.kind in ("run", "word") and len(text.text) > 3:  # B - increases
        return cursor.science and not bracketed
    return cursor.science and mark.text in ((")",) if bracketed else (")", ".", ":"))


def read_option(cursor: Cursor) -> Node:
    """The letter of an option, and its text if there is one. The text gives no second answer."""
    cursor.takes("(")
    letter = cursor.take()
    cursor.take()
    if cursor.now == END:
        return Node("letter", letter)
    if _names_another(cursor.tokens[cursor.at : -1]):
        raise Unreadable("B. C.    B. not C")
    return Node("option", letter, (_read_text(cursor),))


def _read_text(cursor: Cursor) -> Node:
    """A clause, or else the tokens up to the end as words."""
    words = Node("words", canonical(cursor.tokens[cursor.at : -1]))
    try:
        text = read_clause(cursor)
    except Broken:
        raise
    except Unreadable:
        text = NOTHING
    if cursor.now == END and text != NOTHING:
        return text
    cursor.at = len(cursor.tokens) - 1
    return words


def _names_another(text: Sequence[Token]) -> bool:
    """Does the text of an option name a second one, or doubt the first? B. C.    B. 5 (C)    B. 5 D    B. 12 or 13."""
    doubts = any(token.text in ("or", r"\boxed") or token.text.casefold() in DOUBTS for token in text)
    padded = [END, END, *text, END]
    return doubts or any(_is_option(*padded[at - 2 : at + 2]) for at in range(2, len(padded) - 1))


def _is_option(first: Token, before: Token, letter: Token, after: Token) -> bool:
    """Is a letter in the text of an option another option? It may be a unit or a variable: 5 A    E = mc^2    P(A)."""
    alone = before.kind in ("end", "word") or len(before.text) > 1 or (before.text == "(" and first.kind != "run")
    if re.fullmatch("[b-e]", letter.text):
        return alone and before.kind != "number" and not before.text.startswith("\\") and after.text in ("", ")")
    if not re.fullmatch("[A-HJ]", letter.text):
        return False
    if before.kind == "number" or (before.text == "}" and first.kind == "number"):  # 5 A, but B and D are no units
        return letter.text in ("B", "D", "E") or after.text in (")", ".", ":")
    if before.text == "(":  # P(A)
        return letter.spaced or not (first.kind == "run" or first.text.startswith("\\"))
    if before.text == "{":  # \frac{A}{2}
        return not (first.text.startswith("\\") or first.text in ("^", "_", "}"))
    if before == END:  # E = mc^2
        return after.text not in ("=", "_", "^", "(", "<", ">")
    operator = before.text in ("+", "-", "*", "/", "^", "_", "=", "<", ">") and first != END
    return not operator or (len(first.text) > 3 and first.text.isalpha())  # Answer = B
