r"""The grammar, from the top: `read` makes a tree of a text, by the rules of the files below.

Recursive descent. The head of each file shows its rules. The rule NAME is the function read_NAME, or skip_NAME if it
leaves nothing in the tree. In a rule {x} is any number of x, [x] is x or nothing, and words in quotes are tokens.

    whole = [heading] (option | items)

    file              rules, from the outside in                            examples
    options.py        option                                                C. 5 m/s     (only in science)
    lists.py          items                                                 1, 2     x=1 or x=2     1 \pm 2
    clauses.py        clause, cases, side, union, ratio                     1 < x \le 2     [0,1) \cup \{5\}     3:5
    quantities.py     quantity, value                                       8 eggs     \$5     5 cm
    expressions.py    sum, term, product, divisor, factor, exponent, atom   2x^2 - \sqrt{3}/5
                      command, function, argument                           \frac12     \sin 2x
    brackets.py       bracket, set, matrix                                  (1,2)     [0,1)     \{1,2\}     |x|
    letters.py        letter, name                                          F_{n-1}     v(t)
    numbers.py        numeral, base, ordinal, currency, scale, percent      1,234     3\frac{1}{2}     204_5     50\%
    words.py          words, label, heading, condition                      Evelyn     \text{Area} =
    units.py          unit                                                  m/s^2     miles per hour

Below these are cursor.py (the place in the tokens), lookahead.py (where a clause, a factor or a unit starts or ends),
nodes.py (the tree) and lexer.py (the tokens). signs.py, units.py and vocabulary.py have the tables. To add a rule, add
a line to the head of its file, and a function.

Rules read every token, or the answer is unreadable (`Reading.tree` is None): no second answer hides behind the first.
Labels, headings, conditions and the th of 5th are read too, but the tree has nothing of them; words that could change
the value are unreadable there. An unreadable answer is right only as the gold's own text.

Ambiguous text is unreadable too: 1/2x, 1/2/3, --5, 2^3^4. So are 0x, 1^2, 1! and 2!. They are 0, 1, 1 and 2, but nobody
writes these numbers so: the text behind the number is a slip, or an attempt to be paid for any tail.

The time is linear in the text. No rule goes back, except that a label puts its words back if no "=" or ":" follows.
"""

import functools
import re
from typing import NamedTuple

from kinds.math.clauses import read_clause
from kinds.math.cursor import Cursor
from kinds.math.lexer import END, Broken, Unreadable, canonical, tokens
from kinds.math.lists import both_signs, read_items
from kinds.math.nodes import Node, list_of
from kinds.math.options import read_option, starts_option
from kinds.math.words import skip_heading

MAX_LENGTH = 1_000  # characters of an answer


class Reading(NamedTuple):
    """An answer as it was read: its tree, None if it is unreadable, and its tokens as text."""

    tree: Node | None
    text: str


@functools.lru_cache(maxsize=4096)  # one gold is read for each of N rollouts
def read(text: str, science: bool = False) -> Reading | None:
    """Read a text; None if it is empty, too long or too deep, or if it can be no answer."""
    try:
        found = tokens(text) if len(text) <= MAX_LENGTH else ()
        tree = _read_whole(Cursor(found, read_clause, science)) if found else None
    except Broken:
        return None
    except Unreadable:
        tree = None
    return Reading(tree, canonical(found)) if found else None


def _read_whole(cursor: Cursor) -> Node:
    """One answer, and nothing after it."""
    skip_heading(cursor)
    tree = read_option(cursor) if starts_option(cursor) else _read_answer(cursor)
    if cursor.sees(")", "]", r"\}"):
        raise Broken(cursor.now.text)
    if cursor.now != END:
        raise Unreadable(cursor.now.text)
    return tree


def _read_answer(cursor: Cursor) -> Node:
    """Items as a list, or as one node. Letters alone, such as HCN, may be a word, a formula or a product."""
    only_letters = all(token.kind in ("run", "word") for token in cursor.tokens[:-1])
    tree = list_of(both_signs(read_items(cursor)))
    if only_letters and tree.kind == "call" and tree.value == "*" and not _is_product(tree):
        return Node("spelled", "".join(part.value for part in tree.parts), tree.parts)
    return tree


def _is_product(node: Node) -> bool:
    """Is a text of letters a product, which may have another order: ab, xyz, mn? Then it is no word and no formula."""
    letters = "".join(part.value for part in node.parts)
    return re.fullmatch("[abc]{2,3}|[xyz]{2,3}|[bckmnrtxz]{2,3}", letters) is not None
