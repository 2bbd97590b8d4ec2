r"""Words: an answer that is words, and the words around an answer that say nothing.

    words     = word {word | number}                            Evelyn     \text{June 20}     \text{no solution}
    label     = words ("=" | ":") | sentence                    \text{Area} =     Answer:
    sentence  = words ("is" | "are" | "has" | ...)              \text{The area is } 5
    heading   = "the" "answer" "is" | "Option" | "pH"           The answer is 5     Option B     pH 7
    condition = [","] "for" ("all" | "any" | "every" | "each") words ["\in" set]
                                                                 2x \text{ for all real } x     \forall x \in \mathbb{R}

A label, a heading and a condition leave nothing in the tree. If a word in them can change a value, as in
\text{not } x = 5, the rule does not take them, and the answer is unreadable.
"""

import re

from kinds.answers.clause_ends import ends_clause, starts_condition
from kinds.answers.cursor import Cursor
from kinds.answers.lexer import END, Unreadable
from kinds.answers.nouns import ARTICLES, MAX_WORDS, changes_value, noun_of
from kinds.answers.tables import CURRENCIES, SETS
from kinds.answers.tree import NOTHING, REALS, Node
from kinds.answers.units import SYMBOLS

# Real solutions are missing: an equation may have others.
_WORDS_FOR_SETS: dict[str, Node] = {
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
    while not ends_clause(cursor, end) and cursor.tokens[end].kind in ("run", "word", "number"):
        end += 1
    found = cursor.tokens[cursor.at : end]
    long = any(len(token.text) > {"word": 1, "run": 3}.get(token.kind, 99) for token in found)
    short = len(found) == 1 and found[0].text.casefold() in ("yes", "no", "odd")  # Yes is yes
    if short and found[0].kind == "run" and not found[0].text.islower() and len(cursor.tokens) == 2:
        return None  # NO and No: comparison.py compares their letters
    price = SYMBOLS.get(cursor.now.text) in CURRENCIES and cursor.ahead(1).kind == "number"  # USD 5
    if not ends_clause(cursor, end) or not (long or short) or price:
        return None
    cursor.at = end
    texts = [token.text.casefold().removesuffix("'s") for token in found]
    text = re.sub("solutions$", "solution", "".join(text for text in texts if len(texts) == 1 or text not in ARTICLES))
    return _WORDS_FOR_SETS.get(text, Node("words", text))


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
    if starts_condition(cursor, cursor.at + comma):
        cursor.at += 2 + comma
        while cursor.now.kind in ("run", "word"):
            word = cursor.take().casefold()
            if len(word) > 1 and word != "positive" and changes_value(word):
                raise Unreadable(word)
        if cursor.takes(r"\in"):
            cursor.take(*SETS)
