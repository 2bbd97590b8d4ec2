r"""Words: an answer that is words, the letter of an option, and the words around an answer that say nothing.

    words     = word {word | number}                            Evelyn     \text{June 20}     \text{no solution}
    option    = ["("] letter (")" | "." | ":" | "-" | "(") [clause | any tokens]     A)     (C) 5 m/s     C: nitrogen
    label     = words ("=" | ":") | sentence                    \text{Area} =     Answer:
    sentence  = words ("is" | "are" | "has" | ...)              \text{The area is } 5
    heading   = "the" "answer" "is" | "Option" | "pH"           The answer is 5     Option B     pH 7
    condition = [","] "for" ("all" | "any" | "every" | "each") words ["\in" set]
                                                                 2x \text{ for all real } x     \forall x \in \mathbb{R}

A label, a heading and a condition leave nothing in the tree. If a word in them can change a value, as in
\text{not } x = 5, the rule does not take them, and the answer is unreadable. The text of an option may name no second
option and no doubt: B. C.     B. not C     B. 12 or 13 are unreadable.
"""

import re

from kinds.answers.lexer import END, Broken, Token, Unreadable, canonical
from kinds.answers.tables import ARTICLES, CURRENCIES, DOUBTS, SETS
from kinds.answers.tree import NOTHING, REALS, Cursor, Node
from kinds.answers.units import MAX_WORDS, SYMBOLS, changes_value, noun_of

# Words for a set. Real solutions are missing: an equation may have others.
_SETS: dict[str, Node] = {
    **dict.fromkeys(("nosolution", "therearenosolution", "thereisnosolution", "nosolutionexists", "emptyset"), NOTHING),
    **dict.fromkeys(("allrealnumbers", "allreals", "realnumbers", "anyrealnumber", "everyrealnumber", "allreal",
                     "allrealx", "setofallrealnumbers", "setofrealnumbers", "allrealnumbersx", "allrealvalues",
                     "allrealvaluesofx", "xisanyrealnumber", "xcanbeanyrealnumber"), REALS),
}  # fmt: skip
_VERBS = ("is", "are", "has", "equals", "pays", "costs", "needs", "gets")


def read_words(cursor: Cursor) -> Node | None:
    r"""\text{June 20}    Evelyn: nothing but words up to the end of the clause. xy is a product of letters."""
    if cursor.now.kind not in ("run", "word"):
        return None
    end = cursor.at
    while not cursor.ends_clause(end) and cursor.tokens[end].kind in ("run", "word", "number"):
        end += 1
    found = cursor.tokens[cursor.at : end]
    long = any(len(token.text) > {"word": 1, "run": 3}.get(token.kind, 99) for token in found)
    short = len(found) == 1 and found[0].text.casefold() in ("yes", "no", "odd")  # Yes is yes
    if short and found[0].kind == "run" and not found[0].text.islower() and len(cursor.tokens) == 2:
        return None  # NO and No: comparison.py compares their letters
    price = SYMBOLS.get(cursor.now.text) in CURRENCIES and cursor.ahead(1).kind == "number"  # USD 5
    if not cursor.ends_clause(end) or not (long or short) or price:
        return None
    cursor.at = end
    texts = [token.text.casefold().removesuffix("'s") for token in found]
    text = re.sub("solutions$", "solution", "".join(text for text in texts if len(texts) == 1 or text not in ARTICLES))
    return _SETS.get(text, Node("words", text))


def skip_label(cursor: Cursor) -> None:
    r"""\text{Area} =    boys : girls = 3:4    \text{The answer is } 5. Without a label, put the words back."""
    start = cursor.at
    while read_words(cursor):
        found = [token for token in cursor.tokens[start : cursor.at] if token.text.casefold() not in ARTICLES]
        plain = all(token.kind == "word" or token.text.istitle() for token in found)  # Area, not abcd
        if not (plain and noun_of(found, label=True) and cursor.takes("=", ":")):
            break
        start = cursor.at
    cursor.at = start
    _skip_sentence(cursor)


def _skip_sentence(cursor: Cursor) -> None:
    r"""\text{The answer is } 5    \text{Tom has } 5 \text{ eggs}: the words up to the verb are a label."""
    end = cursor.at
    while cursor.tokens[end].kind == "word" and end < cursor.at + MAX_WORDS + 2:
        end += 1
        verb, after = cursor.tokens[end - 1].text in _VERBS, cursor.tokens[end]
        if verb and after.kind in ("number", "sign") and after.text not in ("=", ":"):
            words = [token for token in cursor.tokens[cursor.at : end - 1] if token.text.casefold() not in ARTICLES]
            cursor.at = end if noun_of(words, label=True) else cursor.at
            return


def skip_heading(cursor: Cursor) -> None:
    if [cursor.ahead(distance).text.casefold() for distance in range(3)] == ["the", "answer", "is"]:
        cursor.at += 3
    option = cursor.now.text in ("Option", "option", "Choice", "choice") and cursor.ahead(1) != END
    if option or (cursor.now.text in ("pH", "pOH") and cursor.ahead(1).kind == "number"):
        cursor.take()


def skip_condition(cursor: Cursor, function: bool = False) -> None:
    r"""2x \text{ for all real } x, or 2x, \forall x \in \mathbb{R}. But "for all but one x" says something."""
    mark, letter, *rest = (cursor.ahead(distance).text for distance in range(4))
    if function and mark in (",", "for") and len(letter) == 1 and rest == [r"\in", r"\mathbbR"]:  # f(x)=2x, x \in R
        cursor.at += 4
    comma = cursor.sees(",") and cursor.at + 2 < len(cursor.tokens)
    if cursor.starts_condition(cursor.at + comma):
        cursor.at += 2 + comma
        while cursor.now.kind in ("run", "word"):
            word = cursor.take().casefold()
            if len(word) > 1 and word != "positive" and changes_value(word):
                raise Unreadable(word)
        if cursor.takes(r"\in"):
            cursor.take(*SETS)


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
    padded = [END, END, *text, END]
    if doubts or any(_is_option(*padded[at - 2 : at + 2]) for at in range(2, len(padded) - 1)):
        raise Unreadable("B. C.    B. not C")
    words = Node("words", canonical(text))
    try:
        read = cursor.read_clause()
    except Unreadable as error:
        if isinstance(error, Broken):
            raise
        read = words
    if cursor.now != END or read == NOTHING:
        read, cursor.at = words, len(cursor.tokens) - 1
    return Node("option", letter, (read,))


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
