r"""A library that reads and compares answers of math and science. It knows nothing of this project.

In goes the text of an answer, as a model or a data set writes it: the content of a \boxed{...}, in LaTeX or plain. Out
comes whether two such texts are the same answer.

    compare(r"0.5", r"\frac{1}{2}")              True
    compare(r"x=5", r"5")                        True: x is a name for 5
    compare(r"2, 1", r"1, 2")                    True: a list has no order
    compare(r"10 m", r"10 cm")                   False
    compare(r"50", r"50\%")                      False
    compare(r"--5", r"5")                        None: no rule of the grammar reads the answer
    compare(r"\sqrt{8}", r"2\sqrt{2}", algebra=False)    ALGEBRA: comparing needs algebra, whose time has no small bound

    compare(r"8.314", r"8.31", science=True)     True: the gold, with three digits or more, rounds the answer
    compare(r"b", r"\text{(B)}", science=True)   True: an option
    best([None, ALGEBRA, False])                 ALGEBRA: the verdict on an answer that several golds were compared with

    read(r"x = 5 \text{ cm}").tree               chain (letter x, quantity cm (number 5)): see tree.py
    read(r"--5").tree                            None: unreadable, but it may still be the gold's own text
    read(r"(5")                                  None: it can be no answer, and no gold either

Each text has at most MAX_LENGTH characters, and reading takes time linear in them, so `read`, and `compare` with
algebra=False, may run in any process. Nothing raises on any text.

    text -> lexer.py -> tokens -> grammar.py -> a tree of tree.py -> comparison.py, algebra.py -> a verdict

The files, in reading order:

    verdicts.py      are two texts the same answer? And formulas of chemistry, which are compared as texts
    comparison.py    are two trees the same answer?
    unknowns.py      the x of x = 5, and the interval that x > 5 says about it
    algebra.py       the values of two expressions

    grammar.py       the grammar from the top down: answers, equations, quantities. It says which file has which rule
    words.py         answers that are words, labels, conditions
    options.py       A) and C. 5 m/s
    lists.py         lists, and what is in brackets
    expressions.py   sums, products, powers, functions, letters
    numbers.py       numbers, currencies, percent
    units.py         units
    nouns.py         what is counted, directions, and the words that change a value
    clause_ends.py   where a clause ends

    cursor.py        the place in the tokens
    tree.py          the nodes of a tree
    lexer.py         text as tokens
    tables.py        the signs and the units, and how to add one

The names below are the door: files outside of this folder import nothing else of it. The files inside import nothing of
this project, except kinds/patterns.py: its patterns cannot backtrack, so they are safe for text that a model wrote.
"""

from kinds.answers.grammar import read
from kinds.answers.lexer import MAX_LENGTH
from kinds.answers.verdicts import ALGEBRA, best, compare

__all__ = ["ALGEBRA", "MAX_LENGTH", "best", "compare", "read"]
