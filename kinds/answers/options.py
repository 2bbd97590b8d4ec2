r"""Options: the letter that answers a multiple-choice question, with or without the text of the option.

    option    = ["("] letter (")" | "." | ":" | "-" | "(") [clause | any tokens]     A)     (C) 5 m/s     C: nitrogen

The text may name no second option and no doubt: B. C.     B. not C     B. 12 or 13     B. is wrong are unreadable.
"""

import re

from kinds.answers.cursor import Cursor
from kinds.answers.lexer import END, Broken, Token, Unreadable, canonical
from kinds.answers.nouns import DOUBTS
from kinds.answers.tree import NOTHING, Node

_SAY_OF_IT = ("not", "is", "isn't", "was", "wasn't")  # text that starts so is about the option: B: not this one


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
    text = cursor.tokens[cursor.at : -1]
    doubts = any(token.text in ("or", r"\boxed") or token.text.casefold() in DOUBTS for token in text)
    doubts = doubts or text[0].text.casefold() in _SAY_OF_IT
    padded = [END, END, *text, END]
    if doubts or any(_is_option(*padded[at - 2 : at + 2]) for at in range(2, len(padded) - 1)):
        raise Unreadable("B. C.    B. not C")
    words = Node("words", canonical(text))
    try:
        content = cursor.read_clause()
    except Unreadable as error:
        if isinstance(error, Broken):
            raise
        content = words
    if cursor.now != END or content == NOTHING:
        content, cursor.at = words, len(cursor.tokens) - 1
    return Node("option", letter, (content,))


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


def letter_of_option(node: Node) -> str:
    """Return the letter of an option: B for b, (B) and B. 12 m/s. A small f, g, h or i is a symbol of physics."""
    known = node.kind == "option" or (node.kind == "letter" and re.fullmatch("[A-Ja-e]", node.value))
    return node.value.upper() if known else ""
