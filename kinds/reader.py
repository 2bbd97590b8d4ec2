r"""Kind "math" and "science", part 3 of 4: the reader makes a tree of the tokens of an answer.

Recursive descent: each rule of the grammar is one method of `Parser`, in the order below, with examples. `term` reads
products and divisors. heading, words, exponent, subscript, numeral, letter and argument have docstrings, but no line
here. {x} is any number of x, [x] is x or nothing, words in quotes are tokens.

    whole     = answer | option
    option    = letter ("." | ":" | ")" | "-") (clause | any)      C. 5 m/s     only in science; no second option
    answer    = clause {("," | ";" | "and" | "or") clause}         1, 2     x=1 or x=2
    clause    = {label} side {relation side} [condition]           x=5     1 < x \le 2     Total = 5
              | "\begin{cases}" clause {"\\" clause} "\end{cases}"
    side      = name | union                                       P(A\cap B) =     [H^+] =     \lim_{x\to 2} f(x) =
    label     = words ("=" | ":") | words "is"                     \text{Area} =     Answer:     \text{The area is } 5
    condition = "for" ("all" | "any" | "every" | "each") words     2x \text{ for all real } x
    union     = ratio {"\cup" ratio} ["\setminus" ratio]           [0,1) \cup \{5\}     \mathbb{R} \setminus \{2\}
    ratio     = quantity {(":" | "to") quantity}                   3:5     7:32     3 \text{ to } 5
    quantity  = words | [currency] sum ["\choose" sum] [scale] [percent] [unit]
                                                                   Evelyn   5 cm   \$5   50\%   8 eggs   5 million
    sum       = [sign] term {sign term}                            1 - x     -2 \pm \sqrt{3}
    term      = product ["/" divisor {"*" factor}]                 2x\sqrt{3}/5     3/4 * 10^5     no 1/2/3, no 1/2x
    product   = factor {["*"] factor}                              2x\sqrt{3}     2 * 3
    divisor   = factor | letter {factor}                           the bc of a/bc
    factor    = base ["_" subscript] ["!"] ["^" exponent] ["°"]    x^2     n!     204_5     30^\circ
    base      = numeral | letter | bracket | set | command
    bracket   = opening answer closing                             (x+1)     [0,1)     |x|     BRACKETS has the pairs
    set       = "\{" answer "\}" | "\{" letter ":" clause "\}"     \{1,2\}     \{x : x > 1\}
    command   = function | "\frac" argument argument | "\sqrt" ["[" answer "]"] argument | matrix | ...
    function  = "\sin" ["^" exponent] (bracket | factor {factor})  \sin x     \sin^2 (x+1)     \log_2 8
    matrix    = "\begin" clause {("&" | "\\") clause} "\end"       \begin{pmatrix} 1 \\ 2 \end{pmatrix}

An example:

    text      x = 2\sqrt{3}\text{ cm}
    tokens    x   =   2   \sqrt   {   3   }   cm, a word
    tree      chain = (letter x, quantity {(cm, 1)} (call * (number 2, call root (number 3, number 2))))

units.py has the grammar of units. Rules read every token, or the answer is unreadable (`Form.tree` is None): no second
answer hides behind the first. Labels, headings, conditions and the th of 5th are read too, but the tree has nothing of
them; words that could change the value are unreadable there. An unreadable answer is right only as the gold's own text.

Ambiguous text is unreadable too: 1/2x, 1/2/3, --5, 2^3^4. So are 0x, 1^2, 1! and 2!. They are 0, 1, 1 and 2, but nobody
writes these numbers so: the text behind the number is a slip, or an attempt to be paid for any tail.

The tree has nodes of these kinds. Equal trees are equal answers; maths.py and algebra.py find the other equal ones.

    kind      value                         parts
    number    a Fraction                    the groups of 1,234 as numbers, else none    5, 0.\overline{3}
    decimal   a Fraction                    -                                            0.5
    letter    its name                      -                                            x, F_{n-1}, \alpha', e, π, ∞
    call      + * / ^ neg root ! abs sin    the arguments                                x+1, \sqrt{2}
    base      the base of its digits        the digits as one number                     204_5
    quantity  its unit: see units.py        the number of units, and its direction       5 cm, 8 eggs, 6 m/s east
    words     their letters                 -                                            Evelyn, June 20
    spelled   its letters                   the letters as a product                     HCN, red, mgh, but xy is a call
    option    its letter                    its text                                     C. 5 m/s, in science
    ratio     -                             the terms                                    3:5
    tuple     its brackets                  the items                                    (1,2), [0,1)
    list      "", "and", "or" or "{}"       the items                                    1,2 and unions; 1 or 2; \{1,2\}
    chain     its relations                 the sides                                    x=5, 1<x<2
    matrix    "", or "|" of a determinant   the rows, as tuples                          \begin{pmatrix}1\\2 ...

A lone letter of a formula, as in 5 m, is a variable in kind math and a unit in kind science. In both kinds it is a unit
if it is upright (5\text{ m}) or has a slash (5 m/s). A longer name after a space is a unit too (5 cm).

To add                        add
a bracket                     its pair to BRACKETS; a pair with a function also needs the function, see below
a relation                    it to RELATIONS
a letter such as \alpha       it to GREEK; if it marks the next letter, as \vec does, to MARKED
a function such as \sin       its name to FUNCTIONS in lexer.py, and its value to _EXACT or _REAL in algebra.py
a Unicode character           its LaTeX to _CHARACTERS in lexer.py
another spelling of a sign    it to SPELLINGS in lexer.py
a rule                        its line to the grammar above, and its method

The time is linear in the text. No rule goes back, except that a label puts its words back if no "=" or ":" follows.
A unit is looked for at most MAX_TAIL tokens ahead.
"""

import functools
import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from kinds import units
from kinds.lexer import FUNCTIONS, Broken, Token, Unreadable, canonical, tokens
from kinds.patterns import forward
from verify import MAX_ANSWER

MAX_ITEMS, MAX_DEPTH, MAX_EXPONENT, MAX_TAIL = 64, 16, 1_000, 24


class Node(NamedTuple):
    """A part of an answer: see the table above."""

    kind: str
    value: Any = ""
    parts: tuple[Any, ...] = ()


class Form(NamedTuple):
    """An answer as it was read: its tree, None if it is unreadable, and its tokens as text."""

    tree: Node | None
    text: str


@functools.lru_cache(maxsize=4096)  # one gold is read for each of N rollouts
def read(text: str, science: bool = False) -> Form | None:
    """Read a text; None if it is empty, too long or too deep, or if it can be no answer."""
    try:
        found = tokens(text) if len(text) <= MAX_ANSWER else ()
        tree = Parser(found, science).whole() if found else None
    except Broken:
        return None
    except Unreadable:
        tree = None
    return Form(tree, canonical(found)) if found else None


# ------------------------------------------------------------------------------- the tables of the grammar

# Relation -> the same relation read from the right, "" if it cannot be turned: A \in B is not B \in A.
RELATIONS = {"=": "=", r"\ne": r"\ne", r"\in": "", "<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
SIGNS = ("+", "-", r"\pm", r"\mp")
# Opening bracket -> its closing brackets and its function. The first closing bracket belongs to it: (5). The others may
# only close an interval: (0,5]. The function is a name of algebra.py, as |x| is abs(x), or "" for brackets that group.
BRACKETS = {
    "(": ((")", "]"), ""), "[": (("]", ")"), ""), "{": (("}",), ""), "|": (("|",), "abs"),
    r"\lfloor": ((r"\rfloor",), "floor"), r"\lceil": ((r"\rceil",), "ceil"),
}  # fmt: skip
MATRICES = ("pmatrix", "bmatrix", "matrix", "smallmatrix", "array", "vmatrix")
GREEK = r"""\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \rho \sigma \tau \phi
    \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Phi \Psi \Omega \hbar \ell"""
OPERATORS = (r"\gcd", r"\lcm", r"\max", r"\min", r"\det", r"\dim", r"\Pr")  # only as a name: \gcd(12,18) = 6
LETTERS = (*GREEK.split(), *OPERATORS, r"\pi", r"\infty", r"\mathbbZ", r"\mathbbN", r"\mathbbQ", r"\mathbbC")
# A letter with a mark is one letter: \vec{a}, \angle ABC.
MARKED = (
    r"\overline",
    r"\angle",
    r"\triangle",
    r"\vec",
    r"\hat",
    r"\widehat",
    r"\overrightarrow",
    r"\tilde",
    r"\dot",
    r"\ddot",
)
BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
         "twelve": 12, "sixteen": 16}  # fmt: skip
ARTICLES = ("a", "an", "the")
_LIMITS = (r"\lim", r"\sum", r"\prod", r"\int")  # they start a name: \lim_{x\to 2} f(x) = 5
# v of v(t), but f(x) is a product for the reader, and maths.py knows that f is a function.
_OF_LETTERS = (*"nvxyrsuBIUJEK", r"\rho", r"\psi", r"\phi", r"\tau", r"\sigma")
_NAMES = r"P\([A-Z'\\a-z ]*(?:\\cap|\\cup|\||\\mid)[A-Z'\\a-z ]*\)|(?:[a-zA-Z]|\\[a-z]+)\((?:[a-zA-Z]|[0-9]+)\)"
ORDINALS = ("th", "st", "nd", "rd")

_STARTS_FACTOR = (r"\frac", r"\sqrt", r"\root", r"\binom", "√", *MARKED, *("\\" + name for name in FUNCTIONS),
                  *(opening for opening in BRACKETS if opening != "|"))  # fmt: skip
_ENDS_CLAUSE = {",", ";", ":", "and", "or", "&", r"\\", r"\}", r"\mid", r"\cup", r"\setminus", r"\choose", r"\over",
                *RELATIONS, *(closing for closings, _ in BRACKETS.values() for closing in closings)}  # fmt: skip
# Signs that may stand in a unit, and those of them that may start one.
_IN_UNITS = {
    "/",
    "*",
    "^",
    "°",
    "-",
    ".",
    "(",
    ")",
    "{",
    "}",
    r"\frac",
    r"\mu",
    r"\Omega",
    "Å",
    r"\$",
    "€",
    "£",
    "¥",
    "¢",
}
_STARTS_UNIT = (r"\frac", r"\Omega", r"\mu", "Å", "¢", "(")
_AFTER_NUMBER = (*units.PERCENT, *units.NUMBER_WORDS, "per")
_UNSPACED = ("cm", "mm", "km", "kg", "ft", "mph", *ORDINALS)  # 5cm and 5th; 2mg may be a product
_TWO_INTEGERS = forward(r"(?:\{[0-9]++\}|[0-9]){2}(?![0-9])")  # after \frac, in 3\frac{1}{2}
_END = Token("end", "")


# -------------------------------------------------------------------------------------------- the parser


class Parser:
    """Reads tokens from left to right. Each rule takes its own tokens, or raises Unreadable."""

    def __init__(self, found: Sequence[Token], science: bool = False) -> None:
        self.tokens, self.at, self.depth = [*found, _END], 0, 0
        self.science = science
        # A lone 1! or 2! is unreadable, see the top. With another factorial it is a usual factor: \frac{5!}{2!3!}.
        self.has_factorial = any(
            sign.text == "!" and base.kind in ("number", "run") and base.text not in ("0", "1", "2")
            for base, sign in pairwise(self.tokens)
        )
        self.no_bar_or_ratio = False  # in |x| and {x | x > 1}, the next bar opens nothing
        self.currency = ""  # of the quantity that is being read: \$ stands before the number

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, distance: int) -> Token:
        place = self.at + distance
        return self.tokens[place] if place < len(self.tokens) else _END

    def sees(self, *signs: str) -> bool:
        token = self.tokens[self.at]
        return token.text in signs and token.kind == "sign"

    def take(self, *signs: str) -> str:
        """Take one token; with signs, one of these."""
        if self.now == _END or (signs and not self.sees(*signs)):
            raise Unreadable(self.now.text)
        self.at += 1
        return self.tokens[self.at - 1].text

    def takes(self, *signs: str) -> bool:
        """Take one of these signs, if it comes next."""
        is_next = self.sees(*signs)
        self.at += is_next
        return is_next

    # ---- an answer, from the outside in

    def whole(self) -> Node:
        """One answer, and nothing after it."""
        self.heading()
        if not self.starts_option():
            spelled = all(token.kind in ("run", "word") for token in self.tokens[:-1])
            tree = _list(_both_signs(self.answer()))
            if spelled and tree.kind == "call" and tree.value == "*" and not _is_product(tree):
                tree = Node("spelled", "".join(part.value for part in tree.parts), tree.parts)
        else:
            tree = self.option()
        if self.sees(")", "]", r"\}"):
            raise Broken(self.now.text)
        if self.now != _END:
            raise Unreadable(self.now.text)
        return tree

    def starts_option(self) -> bool:
        """A)    and in science also C. 5 m/s    C: nitrogen    (C) 5 m/s."""
        bracketed = self.sees("(")
        letter, mark, text = (self.ahead(bracketed + distance) for distance in range(3))
        small = self.science and mark.text == ")"  # b)
        if not re.fullmatch("[A-Ja-e]" if small else "[A-J]", letter.text):
            return False
        if text == _END:
            return mark.text == ")" and not bracketed
        if mark.text in ("-", "(") and text.kind in ("run", "word") and len(text.text) > 3:  # B - increases
            return self.science and not bracketed
        return self.science and mark.text in ((")",) if bracketed else (")", ".", ":"))

    def option(self) -> Node:
        """The letter of an option, and its text if there is one. The text gives no second answer."""
        self.takes("(")
        letter = self.take()
        self.take()
        if self.now == _END:
            return Node("letter", letter)
        if _names_another(self.tokens[self.at : -1]):
            raise Unreadable("B. C.    B. not C")
        return Node("option", letter, (self.option_text(),))

    def option_text(self) -> Node:
        """A clause, or else the tokens up to the end as words."""
        words = Node("words", canonical(self.tokens[self.at : -1]))
        try:
            text = self.clause()
        except Broken:
            raise
        except Unreadable:
            text = NOTHING
        if self.now == _END and text != NOTHING:
            return text
        self.at = len(self.tokens) - 1
        return words

    def answer(self) -> tuple[Node, ...]:
        """1, 2    19, 46, and 82    x=1 or x=2. A list with a word is one item, and no point."""
        clauses, word, groups = [self.clause()], "", [0]
        while self.sees(",", ";", "and", "or"):
            comma = self.takes(",", ";")
            word = self.take() if self.sees("or") or (self.sees("and") and word != "or") else word
            if not comma and word == "or":
                groups.append(len(clauses))
            self.takes("and", "or")
            clauses.append(self.clause())
            if len(clauses) > MAX_ITEMS:
                raise Unreadable("too many items")
        clauses = _points(clauses, groups) if len(groups) > 1 else clauses
        return (Node("list", word, _list(_both_signs(tuple(clauses))).parts),) if word else tuple(clauses)

    def clause(self) -> Node:
        r"""x=5    1 < x \le 2."""
        if self.takes(r"\begin{cases}"):
            return self.cases()
        self.label()
        self.heading()
        sides, relations = [self.named() or self.union()], []
        while self.sees(*RELATIONS):
            relations.append(self.take())
            sides.append(self.named() or self.union())
        self.condition()
        return Node("chain", tuple(relations), tuple(sides)) if relations else sides[0]

    def cases(self) -> Node:
        r"""x=3 \\ y=7 \end{cases}, which is x=3 and y=7."""
        clauses = [self.clause()]
        while not self.takes(r"\end{cases}"):
            self.take(r"\\", ",")
            clauses.append(self.clause())
        return Node("list", "and", tuple(clauses))

    def named(self) -> Node | None:
        r"""v(t) =    P(A\cap B) =    [H^+] =    \lim_{x\to 2} f(x) =: a name that is no product, up to the next "="."""
        text, following = self.now.text, self.ahead(1).text
        if not (text in _LIMITS or text in ("[", "|") or (following == "(" and (text in _OF_LETTERS or text == "P"))):
            return None
        end, nested = self.at, 0
        while end < min(self.at + MAX_TAIL, len(self.tokens) - 1) and (nested or self.tokens[end].text != "="):
            nested += (self.tokens[end].text in ("{", "(", "[")) - (self.tokens[end].text in ("}", ")", "]"))
            end += 1
        found = [token.text for token in self.tokens[self.at : end]]
        name = "".join(part for part in found if part not in ("{", "}", r"\ce"))
        pattern = {"[": r"\[[A-Z][A-Za-z0-9_]*(\^?[0-9]?[+-])?\]", "|": r"\|[A-Z](\\c[au]p[A-Z])+\|"}.get(text, _NAMES)
        if self.tokens[end].text != "=" or not (text in _LIMITS or re.fullmatch(pattern, name)):
            return None
        self.at = end
        return Node("letter", name)

    def label(self) -> None:
        r"""\text{Area} =    Answer:    say nothing, unless a word can change a value, as in \text{not } x = 5."""
        while self.takes_label():  # boys : girls = 3:4
            pass
        self.sentence()

    def takes_label(self) -> bool:
        """Take one label. Without it, put the words back."""
        start = self.at
        if self.words() is None:
            return False
        found = [token for token in self.tokens[start : self.at] if token.text.casefold() not in ARTICLES]
        plain = all(token.kind == "word" or token.text.istitle() for token in found)  # Area, not abcd
        taken = plain and units.noun_of(found, label=True) != "" and self.takes("=", ":")
        self.at = self.at if taken else start
        return taken

    def sentence(self) -> None:
        r"""\text{The answer is } 5    \text{Tom has } 5 \text{ eggs}: the words up to the verb are a label."""
        end = self.at
        while self.tokens[end].kind == "word" and end < self.at + units.MAX_WORDS + 2:
            end += 1
            verb = self.tokens[end - 1].text in ("is", "are", "has", "equals", "pays", "costs", "needs", "gets")
            if verb and self.tokens[end].kind in ("number", "sign") and self.tokens[end].text not in ("=", ":"):
                words = [token for token in self.tokens[self.at : end - 1] if token.text.casefold() not in ARTICLES]
                self.at = end if units.noun_of(words, label=True) else self.at
                return

    def heading(self) -> None:
        """The answer is 5    Option B    pH 7: say nothing."""
        if [self.ahead(distance).text.casefold() for distance in range(3)] == ["the", "answer", "is"]:
            self.at += 3
        option = self.now.text in ("Option", "option", "Choice", "choice") and self.ahead(1) != _END
        if option or (self.now.text in ("pH", "pOH") and self.ahead(1).kind == "number"):
            self.take()

    def condition(self) -> None:
        r"""f(x)=2x \text{ for all real } x: says nothing. But "for all but one x" says something."""
        if self.starts_condition(self.at):
            self.at += 2
            while self.now.kind in ("run", "word"):
                word = self.take().casefold()
                if len(word) > 1 and word != "positive" and units.changes_value(word):
                    raise Unreadable(word)

    def starts_condition(self, at: int) -> bool:
        return self.tokens[at].text == "for" and self.tokens[at + 1].text in ("all", "any", "every", "each")

    def ends_clause(self, at: int) -> bool:
        kind, text, _ = self.tokens[at]
        sign = kind == "sign" and (text in _ENDS_CLAUSE or text.startswith(r"\end"))
        return kind == "end" or sign or self.starts_condition(at) or self.starts_to(at)

    def union(self) -> Node:
        r"""[0,1) \cup \{5\}    \mathbb{R} \setminus \{2\}."""
        parts = [self.ratio()]
        while self.takes(r"\cup"):
            parts.append(self.ratio())
        if self.takes(r"\setminus"):
            return _without(_list(tuple(parts)), self.ratio())
        return _list(tuple(parts))

    def ratio(self) -> Node:
        r"""3:5    7:32    3 \text{ to } 5."""
        parts = [self.quantity()]
        while not self.no_bar_or_ratio and (self.takes(":") or self.takes_to()):
            parts.append(self.quantity())
        if len(parts) > 1 and parts[-1].value == units.unit_of([Token("word", "pm")]):  # 3:00 pm has no picometers
            parts[-1] = Node("quantity", "pm", parts[-1].parts)
        return Node("ratio", "", tuple(parts)) if len(parts) > 1 else parts[0]

    def takes_to(self) -> bool:
        is_next = self.starts_to(self.at)
        self.at += is_next
        return is_next

    def starts_to(self, at: int) -> bool:
        return self.tokens[at].text == "to" and self.tokens[at - 1].kind == self.tokens[at + 1].kind == "number"

    # ---- a number with its unit

    def quantity(self) -> Node:
        r"""Evelyn    5 cm    \$5    50\%    8 eggs    5 million dollars."""
        if words := self.words():
            return words
        outer, self.currency = self.currency, ""
        self.take_currency()
        value, degrees = _without_degrees(self.percent(self.scaled(self.stacked())))
        after = self.tail()
        if after is None or (degrees and self.currency):
            raise Unreadable(self.now.text)
        self.at += len(after)
        after, direction = units.without_direction(after, degrees)
        if after and ((after[0].text in ORDINALS and after[0].spaced) or (not self.science and after[0].text == "M")):
            raise Unreadable("5 th    5 M, which may be millions")
        unit = units.unit_around("°" if degrees else self.currency, after)
        self.currency = outer
        aimed = (Node("words", direction),) if direction else ()
        return Node("quantity", unit, (value, *aimed)) if unit else value

    def stacked(self) -> Node:
        r"""A sum    {5 \choose 2}    {1 \over 2}."""
        value = self.sum()
        if self.takes(r"\choose"):
            return call("binom", value, self.sum())
        return _quotient(value, self.sum()) if self.takes(r"\over") else value

    def scaled(self, value: Node) -> Node:
        """The million of 5 million."""
        while self.now.text in units.NUMBER_WORDS:
            value = call("*", value, number(10 ** units.NUMBER_WORDS[self.take()]))
        return value

    def percent(self, value: Node) -> Node:
        """The % of 50%, percent or per cent. 7 + 50% is unreadable."""
        words = 1 if self.now.text in units.PERCENT else 2 * (self.now.text == "per" and self.ahead(1).text == "cent")
        if words and value.value == "+":
            raise Unreadable("7 + 50%")
        self.at += words
        return call("/", value, number(100)) if words else value

    def take_currency(self) -> None:
        r"""\$5    USD 5    \$130 - \$60, with one currency."""
        self.at += self.now.text == "US" and self.ahead(1).text == r"\$"  # US\$5
        currency = units.SYMBOLS.get(self.now.text, "")
        if (
            currency in units.CURRENCIES
            and self.ahead(1).kind in ("number", "sign")
            and self.currency in ("", currency)
        ):
            self.currency = currency
            self.take()

    def words(self) -> Node | None:
        r"""\text{June 20}    Evelyn: nothing but words up to the end of the clause. xy is a product of letters."""
        if self.now.kind not in ("run", "word"):
            return None
        end = self.at
        while not self.ends_clause(end) and self.tokens[end].kind in ("run", "word", "number"):
            end += 1
        found = self.tokens[self.at : end]
        long = any(len(token.text) > {"word": 1, "run": 3}.get(token.kind, 99) for token in found)
        short = len(found) == 1 and found[0].text.casefold() in ("yes", "no", "odd")  # Yes is yes
        if short and found[0].kind == "run" and not found[0].text.islower() and len(self.tokens) == 2:
            return None  # NO and No: maths.py compares their letters
        price = units.SYMBOLS.get(self.now.text) in units.CURRENCIES and self.ahead(1).kind == "number"  # USD 5
        if not self.ends_clause(end) or not (long or short) or price:
            return None
        self.at = end
        texts = [token.text.casefold().removesuffix("'s") for token in found]
        return Node("words", "".join(text for text in texts if len(texts) == 1 or text not in ARTICLES))

    def tail(self) -> list[Token] | None:
        """The rest of the clause, if it has only words and the signs of units: cm^2, m/(s K), cups of tea; or None."""
        nested = 0
        for end in range(self.at, min(self.at + MAX_TAIL, len(self.tokens))):
            token = self.tokens[end]
            if not nested and self.ends_clause(end):
                return self.tokens[self.at : end]
            nested += (token.text in ("(", "{")) - (token.text in (")", "}"))
            power = token.kind == "number" and token.text.isdecimal() and len(token.text) == 1
            if nested < 0 or not (power or token.kind in ("run", "word") or token.text in _IN_UNITS):
                return None
        return None

    def starts_unit(self, numeric: bool) -> bool:
        r"""Does a unit or a counted noun follow a value? `numeric`: the value has no variable.

        upright     5\text{ m}    8\text{ eggs}    5\ \Omega    9.8 \frac{\text{m}}{\text{s}^2}
        long        5 cm    8 eggs after a space    5cm, 5th. But 5 xyz is a product
        a letter    5 m/s^2, and in science also 5 m. But 5x, 2 x y and x m are products
        """
        kind, text, spaced = self.now
        if text in _AFTER_NUMBER or (kind == "word" and len(text) > 1):
            return True
        after_number = self.tokens[self.at - 1].kind == "number"
        apart = spaced or text in _UNSPACED or (self.science and (after_number or kind == "sign"))
        if text == "mg" and kind == "run" and not numeric:  # \mu mg has a weight, no milligram
            return False
        if text in ("e", "i") or (kind == "run" and not (apart and (numeric or len(text) > 1))):
            return False
        if kind == "word" and self.was_variable(text):
            return False
        tail = self.tail()
        if not tail or (not numeric and self.ahead(len(tail)).text in RELATIONS):  # \mathrm{\Delta H} = 5
            return False
        tail, _ = units.without_direction(tail, False)
        runs = [token.text for token in tail if token.kind == "run"]
        if not runs:  # all letters are upright
            return units.unit_of(tail) is not None or units.noun_of(tail) != ""
        return apart and self.is_unit_of_runs(tail, runs, numeric)

    def was_variable(self, letter: str) -> bool:
        r"""Does this upright letter stand earlier in the clause: the last t of \mathrm{3t^2 + 7t}?"""
        for at in range(self.at - 1, -1, -1):
            text = self.tokens[at].text
            if text == letter or (self.ends_clause(at) and text not in (")", "}")):
                return text == letter
        return False

    def is_unit_of_runs(self, tail: list[Token], runs: list[str], numeric: bool) -> bool:
        """Are the letters of a formula a unit or a noun: m/s, cm, eggs? `runs` has the runs of the tail."""
        is_unit, is_noun = units.unit_of(tail) is not None, units.noun_of(tail) != ""
        if is_unit and any(len(run) == 1 and run.isascii() for run in runs):  # a lone letter
            return numeric and (self.science or any(token.text == "/" for token in tail))
        return is_unit or (is_noun and (max(map(len, runs)) > 3 or tail[0].text in ORDINALS))

    # ---- an expression

    def sum(self) -> Node:
        r"""1 - x    -2 \pm \sqrt{3}."""
        terms = [_signed(self.take() if self.sees(*SIGNS) else "+", self.term())]
        while self.sees(*SIGNS):
            sign, negative = self.take(), self.now.spaced and self.takes("-")  # 14 + -1i
            terms.append(_signed(sign, _signed("-" if negative else "+", self.term())))
        return terms[0] if len(terms) == 1 else call("+", *terms)

    def term(self) -> Node:
        r"""2x\sqrt{3}/5. There is at most one slash, and a/bc is a/(bc). 1/2x and x2 are unreadable."""
        factors, divided = [self.factor()], False
        numeric = True
        while True:
            numeric = numeric and _is_numeric(factors[-1])
            cross = self.now.text in ("x", "X") and self.tokens[self.at - 1].kind == self.ahead(1).kind == "number"
            if self.sees("*") or cross:  # 3 x 10^8
                self.take()
                factors.append(self.factor())
            elif not divided and self.sees("/") and not self.starts_price():
                self.take()
                letter, below, divided = self.at_letter(), [self.factor()], True
                while letter and self.starts_factor(False):
                    below.append(self.factor())
                factors = [_quotient(_product(factors), _product(below))]
            elif not divided and self.starts_factor(numeric):
                factors.append(self.factor())
            else:
                return _product(factors)

    def starts_price(self) -> bool:
        r"""Does a unit follow the slash: \$5/\text{hour}, \$5/month? \$5/x is a quotient."""
        kind, text, _ = self.ahead(1)
        return kind == "word" or (self.currency != "" and len(text) > 1 and units.symbol_of(text) is not None)

    def at_letter(self) -> bool:
        return self.now.kind == "run" or (self.now.kind == "word" and len(self.now.text) == 1) or self.sees(*LETTERS)

    def starts_factor(self, numeric: bool) -> bool:
        if self.now.kind == "number":
            return self.tokens[self.at - 1].text == "!"  # 3!4!
        if self.starts_to(self.at):
            return False
        if self.at_letter() or (numeric and self.sees(*_STARTS_UNIT)):
            return not self.starts_unit(numeric)
        if self.sees(*_STARTS_FACTOR):
            return True
        return self.sees("|") and not self.no_bar_or_ratio

    def factor(self) -> Node:
        r"""x^2    n!    204_5    30^\circ."""
        self.take_currency()
        base = self.base()
        plain = base.kind == "number" and not base.parts
        if plain and ((base.value == 0 and self.starts_factor(True)) or (self.sees("^") and base.value in (0, 1))):
            raise Unreadable("0x, 1^2: see the top of this file")
        if base.kind == "number" and (name := self.numeral_base()):
            base = _in_base(base, name)
        if self.sees("!") and (self.has_factorial or not (plain and base.value in (0, 1, 2))):
            self.take()
            base = call("!", base)
        self.ordinal()
        if base.kind == "tuple" and self.sees("^") and self.ahead(1).text == "T":  # (1,2)^T is a column
            self.at += 2
            return Node("matrix", "", tuple(Node("tuple", "", (part,)) for part in base.parts))
        if self.takes("^"):
            base = _power(base, self.exponent())
        if self.sees("°") and self.ahead(1).text.casefold() not in units.SCALES_OF_HEAT:
            self.take()
            base = call("°", base)
        elif self.sees("^", "!", "_", "'"):
            raise Unreadable("2^3^4, 5!!, 1!")
        return base

    def numeral_base(self) -> str:
        r"""204_5    204 \text{ base } 5    204 in base 5    204 (base 5). Nothing if no base follows."""
        if self.takes("_"):
            return self.subscript()
        bracketed = self.sees("(")
        place = bracketed + (self.ahead(bracketed).text == "in")
        if self.ahead(place).text != "base" or self.ahead(place + 1) == _END:
            return ""
        self.at += place + 1
        name = self.take()
        if bracketed:
            self.take(")")
        return name

    def ordinal(self) -> None:
        r"""5^{\text{th}}: the th says nothing."""
        braces = self.ahead(1).text == "{"
        if self.sees("^") and self.ahead(1 + braces).text in ORDINALS and self.ahead(1 + braces).kind == "word":
            self.at += 2 + 2 * braces

    def exponent(self) -> Node:
        """2    -1    {n+1}    (2x)."""
        return _signed(self.take() if self.sees("+", "-") else "+", self.base())

    def base(self) -> Node:
        """A number, letter, bracket, set, function, command or matrix."""
        if self.now.kind == "number":
            return self.numeral()
        if self.at_letter():
            return self.letter()
        if self.now.kind == "word" and self.ahead(1).text == "(" and units.noun_of([self.now]):
            return Node("letter", self.take())  # \text{Var}(X)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Broken("too deep")
        if self.sees(r"\{"):
            base = self.set()
        elif self.sees(*BRACKETS):
            base = self.bracket()
        else:
            base = self.command(self.take())
        self.depth -= 1
        return base

    def numeral(self) -> Node:
        r"""12    1,234    0.5    6.02e23    3\frac{1}{2}    3 1/2    0.1\overline{6}."""
        text = self.take()
        if self.ahead(1).text in (r"\overline", r"\dot") and self.takes("."):
            text += "."
        if "." in text and self.takes(r"\overline", r"\dot"):
            return _repeating(text, self.subscript())
        if self.now.text in ("repeating", "recurring") and re.fullmatch(r"[0-9]*\.[0-9]", text):  # one digit
            self.take()
            return _repeating(text[:-1], text[-1])
        if abs(int(text.lower().partition("e")[2] or 0)) > MAX_EXPONENT:  # 1e999999999 would be computed
            raise Broken("too large")
        if text.isdecimal():
            return number(int(text) + self.mixed())
        value = Fraction(text.replace(",", ""))
        groups = [] if "." in text or ",0" in text else text.split(",")
        return Node("decimal" if "." in text else "number", value, tuple(map(number, groups[1:] and groups)))

    def mixed(self) -> Fraction | int:
        r"""The \frac{1}{2} of 3\frac{1}{2} and the 1/2 of 3 1/2, after a whole number; else 0."""
        if not self.sees(r"\frac") and self.now.kind != "number":
            return 0
        ahead = [self.ahead(distance) for distance in range(7)]
        if self.sees(r"\frac") and _TWO_INTEGERS.match("".join(token.text for token in ahead[1:])):
            above, below = (part.value for part in self.command(self.take()).parts)
            return above / below
        above, slash, below = ahead[:3]
        if above.spaced and above.text.isdecimal() and slash.text == "/" and below.text.isdecimal():
            self.at += 3
            if int(below.text) == 0:
                raise Broken("1/0")
            return Fraction(int(above.text), int(below.text))
        return 0

    def letter(self) -> Node:
        r"""x    x_1    F_{n-1}    \alpha'. It cuts the first letter off a run: xy^2 is x times y^2."""
        kind, text, _ = self.now
        name = text if kind == "sign" else text[0]
        if name == text:
            self.take()
        else:
            self.tokens[self.at] = Token(kind, text[1:])
        name = {r"\pi": "π", r"\infty": "∞"}.get(name, name)
        if self.takes("_"):
            name += "_" + self.index()
        while self.takes("'"):
            name += "'"
        if self.science and name[0].isupper() and self.takes("°"):  # \Delta H^\circ    E^\circ_{cell}
            name += "°"
            name += "_" + self.index() if self.takes("_") else ""
        return Node("letter", name + self.derivative(name) + self.composition(name))

    def derivative(self, name: str) -> str:
        """The (3) of f^{(3)}."""
        mark = [self.ahead(distance).text for distance in (0, 1, 2, 4, 5)] == ["^", "{", "(", ")", "}"]
        if not mark or name not in ("f", "g", "h", "y"):
            return ""
        self.at += 6
        return "^" + self.tokens[self.at - 3].text

    def composition(self, name: str) -> str:
        r"""The \circ g of f\circ g."""
        if not (self.sees(r"\circ") and name.isalpha() and re.fullmatch("[a-zA-Z]", self.ahead(1).text)):
            return ""
        self.take()
        return "∘" + self.take()

    def index(self) -> str:
        """1    n    {n-1}    max. k_BT is k_B times T, and so v_max is read as v_{max} for its vowel."""
        kind, text, _ = self.now
        if kind != "run" or len(text) == 1 or (len(text) > 2 and text.islower() and re.search("[aeiou]", text)):
            return self.subscript()
        self.tokens[self.at] = Token(kind, text[1:])
        return text[0]

    def subscript(self) -> str:
        """The text of a subscript: 1    n    {n-1}    (2)."""
        if not self.sees("{", "("):
            return self.take()
        start, nested = self.at, 0
        while nested or self.at == start:
            nested += self.sees("{", "(") - self.sees("}", ")")
            self.take()
        return "".join(token.text for token in self.tokens[start : self.at] if token.text not in ("{", "}")).strip("()")

    def bracket(self) -> Node:
        r"""(x+1)    (1,2)    [0,1)    {x}    |x|    \lfloor x \rfloor."""
        opening = self.take()
        closings, function = BRACKETS[opening]
        items, closing = self.inside(closings, opening == "|")
        if function and len(items) == 1:
            return call(function, *items)
        if function:
            raise Unreadable("|1,2|")
        if opening != "{":
            items = _groups(items)
            if len(items) > 1:
                return Node("tuple", opening + closing, items)
            if closing != closings[0]:
                raise Unreadable("(5]")
        return _list(items)

    def inside(self, closings: tuple[str, ...], no_bar_or_ratio: bool) -> tuple[tuple[Node, ...], str]:
        """The answer up to a closing bracket, and that bracket."""
        outer, self.no_bar_or_ratio = self.no_bar_or_ratio, no_bar_or_ratio
        items = self.answer()
        self.no_bar_or_ratio = outer
        if self.now == _END:
            raise Broken(f"no {closings[0]}")
        return items, self.take(*closings)

    def set(self) -> Node:
        r"""\{1,2\}    \{\}    \{x : x > 1\}, which is x > 1."""
        self.take(r"\{")
        if self.takes(r"\}"):
            return NOTHING
        items, closing = self.inside((r"\}", "|", r"\mid", ":"), True)
        if closing == r"\}":
            return Node("list", "{}", _list(_both_signs(_groups(items)), keep=True).parts)
        (condition, *more), _ = self.inside((r"\}",), True)
        named = len(items) == 1 and (items[0].kind == "letter" or items[0].parts[1:] == (REALS,))  # x, x \in \mathbb{R}
        chains = [condition] if condition.kind == "chain" else condition.parts
        if (
            not named
            or more
            or any(chain.kind != "chain" for chain in chains)
            or condition.kind not in ("chain", "list")
        ):
            raise Unreadable("no condition")
        return condition

    def command(self, name: str) -> Node:
        r"""\frac{1}{2}    \sqrt[3]{x}    \binom{n}{k}    \angle ABC    \begin{pmatrix} ..."""
        if name[1:] in FUNCTIONS:
            return self.function(name[1:])
        if name == r"\frac":
            return _quotient(self.argument(), self.argument())
        if name == r"\sqrt":
            degree = self.bracket() if self.sees("[") else number(2)
            return call("root", self.argument(digit=False), degree)
        if name == r"\root":  # \root 3\of 4
            degree, _ = self.argument(), self.take(r"\of")
            return call("root", self.argument(digit=False), degree)
        if name == "√":  # √12 is no \sqrt12
            return call("root", self.base(), number(2))
        if name == r"\binom":
            return call("binom", self.argument(), self.argument())
        if name.startswith(r"\begin"):
            return self.matrix(name[7:-1])
        if name in (r"\boxed", r"\fbox") and self.sees("{"):
            return self.bracket()
        if name in MARKED and (letters := self.subscript()).isalpha():
            return Node("letter", f"{name} {letters}")
        if name in (r"\emptyset", r"\mathbbR"):
            return NOTHING if name == r"\emptyset" else REALS
        raise Unreadable(name)

    def argument(self, digit: bool = True) -> Node:
        r"""Of \frac, \sqrt and \log_: a bracket, a letter or a digit. \frac12 cuts 12 in two; \sqrt12 is unreadable."""
        kind, text, _ = self.now
        if kind == "number" and len(text) > 1:
            if not digit or not text.isdecimal():
                raise Unreadable(text)
            self.tokens[self.at] = Token(kind, text[1:])
            return number(text[0])
        return number(self.take()) if kind == "number" and text.isdecimal() else self.base()

    def function(self, name: str) -> Node:
        r"""\sin x    \sin^2 x    \log_2 8. \sin 2x\cos y is a product of two; \sin x/2 is unreadable."""
        base = self.argument() if name == "log" and self.takes("_") else number(10)
        power = self.exponent() if self.takes("^") else None
        if power == call("neg", number(1)):
            name, power = "arc" + name, None
        if self.sees("(", "[", "{", "|"):
            inside = self.bracket()
            if inside.kind == "quantity" and inside.value == frozenset([("°", 1)]):
                inside = call("°", *inside.parts)
        else:
            factors = [self.factor()]
            while self.starts_factor(False) and not self.sees("(", "[", "{") and self.now.text[1:] not in FUNCTIONS:
                factors.append(self.factor())
            inside = _product(factors)
            if self.sees("/"):
                raise Unreadable(r"\sin x/2")
        if inside.kind == "quantity" and inside.value == units.unit_of([Token("word", "°")]):  # \sin(40^\circ)
            inside = call("°", *inside.parts)
        result = call("log", inside, base) if name in ("log", "lg") else call(name, inside)
        return call("^", result, power) if power else result

    def matrix(self, name: str) -> Node:
        r"""a & b \\ c & d \end{pmatrix}. The rows; a last \\ ends no row."""
        if name not in MATRICES:
            raise Unreadable(name)
        end, rows = rf"\end{{{name}}}", [[self.clause()]]
        while not self.takes(end):
            if self.take("&", r"\\") == "&":
                rows[-1].append(self.clause())
            elif not self.sees(end):
                rows.append([self.clause()])
        return Node("matrix", "|" * (name == "vmatrix"), tuple(Node("tuple", "", tuple(row)) for row in rows))


def _names_another(text: Sequence[Token]) -> bool:
    """Does the text of an option name a second one, or doubt the first? B. C.    B. 5 (C)    B. 5 D    B. 12 or 13."""
    doubts = any(token.text in ("or", r"\boxed") or token.text.casefold() in units.DOUBTS for token in text)
    padded = [_END, _END, *text, _END]
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
    if before == _END:  # E = mc^2
        return after.text not in ("=", "_", "^", "(", "<", ">")
    operator = before.text in ("+", "-", "*", "/", "^", "_", "=", "<", ">") and first != _END
    return not operator or (len(first.text) > 3 and first.text.isalpha())  # Answer = B


# ------------------------------------------------------------------------------------------ building nodes


def call(operation: str, *parts: Node) -> Node:
    return Node("call", operation, parts)


def number(value: Any) -> Node:
    return Node("number", Fraction(value))


NOTHING = Node("words", "∅")
INFINITY = Node("letter", "∞")
REALS = Node("tuple", "()", (call("neg", INFINITY), INFINITY))


def _list(parts: tuple[Node, ...], keep: bool = False) -> Node:
    r"""A list of the parts. A list in it gives its parts: 1,\pm 2. One part alone is no list, unless it is kept."""
    flat = (one for part in parts for one in (part.parts if _is_loose(part) else (part,)))
    return parts[0] if len(parts) == 1 and not keep else Node("list", "", tuple(flat))


def _is_loose(node: Node) -> bool:
    """Is it a list without braces?"""
    return node.kind == "list" and node.value != "{}"


def _points(clauses: list[Node], starts: list[int]) -> list[Node]:
    """Make points of x=1,y=2 or x=3,y=4: of the clauses between two words "or", if they name the same unknowns."""
    groups = [clauses[start:end] for start, end in pairwise([*starts, len(clauses)])]
    names = [[str(part.parts[0].value) for part in group if part.kind == "chain"] for group in groups]
    same = all(
        len({*one}) == len(group) > 1 and {*one} == {*names[0]} for one, group in zip(names, groups, strict=True)
    )
    if not same:
        return clauses
    return [Node("tuple", "()", tuple(sorted(group, key=lambda part: str(part.parts[0].value)))) for group in groups]


def _both_signs(parts: tuple[Node, ...]) -> tuple[Node, ...]:
    r"""Write each part with \pm as a list of two: first with the upper signs, then with the lower ones."""
    return tuple(
        Node("list", "or", _list((_with_sign(part, 0), _with_sign(part, 1))).parts) if _has_two_signs(part) else part
        for part in parts
    )


def _has_two_signs(node: Node) -> bool:
    return (node.kind == "call" and node.value in (r"\pm", r"\mp")) or any(map(_has_two_signs, node.parts))


def _groups(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """In brackets, 10,100 is two numbers."""
    return items[0].parts if len(items) == 1 and items[0].kind == "number" and items[0].parts else items


def _without(node: Node, points: Node) -> Node:
    r"""\mathbb{R} \setminus \{2\} is (-\infty,2) \cup (2,\infty)."""
    interval = node == REALS or (node.kind == "tuple" and node.value in ("()", "[]", "(]", "[)"))
    if not interval or len(node.parts) != 2 or (points.kind, points.value) != ("list", "{}"):
        raise Unreadable(r"\setminus")
    inside = sorted(points.parts, key=_literal)
    first, last = node.parts
    if node != REALS and not _literal(first) < _literal(inside[0]) <= _literal(inside[-1]) < _literal(last):
        raise Unreadable("a point outside")
    ends = pairwise((first, *inside, last))
    marks = [node.value[0] + ")", *["()"] * (len(inside) - 1), "(" + node.value[1]]
    return Node("list", "", tuple(Node("tuple", mark, pair) for mark, pair in zip(marks, ends, strict=True)))


def _literal(node: Node) -> Fraction:
    """Return the value of 2, 0.5, -2 or 1/2; Unreadable for any other node."""
    if node.kind in ("number", "decimal"):
        return node.value
    if node.kind == "call" and node.value == "neg":
        return -_literal(node.parts[0])
    if node.kind == "call" and node.value == "/" and _literal(node.parts[1]):
        return _literal(node.parts[0]) / _literal(node.parts[1])
    raise Unreadable("no plain number")


def _with_sign(node: Node, which: int) -> Node:
    r"""Return the node with the upper (0) or the lower (1) sign of each \pm and \mp."""
    if node.kind == "call" and node.value in (r"\pm", r"\mp"):
        return _signed("+-+"[which + (node.value == r"\mp")], _with_sign(node.parts[0], which))
    return node._replace(parts=tuple(_with_sign(part, which) for part in node.parts))


def _signed(sign: str, value: Node) -> Node:
    return value if sign == "+" else call("neg" if sign == "-" else sign, value)


def _product(factors: list[Node]) -> Node:
    """Several factors are a product. P(1,2) is the point (1,2) with its name."""
    if [factor.kind for factor in factors] == ["letter", "tuple"] and re.fullmatch("[A-Z](_.+)?'*", factors[0].value):
        return factors[1]
    return factors[0] if len(factors) == 1 else call("*", *factors)


def _is_product(node: Node) -> bool:
    """Is a text of letters a product, which may have another order: ab, xyz, mn? Then it is no word and no formula."""
    letters = "".join(part.value for part in node.parts)
    return re.fullmatch("[abc]{2,3}|[xyz]{2,3}|[bckmnrtxz]{2,3}", letters) is not None


def _quotient(above: Node, below: Node) -> Node:
    if below == number(0):
        raise Broken("1/0")
    return call("/", above, below)


def _power(base: Node, exponent: Node) -> Node:
    size = exponent.parts[0] if exponent.value == "neg" else exponent
    if base == number(10) and size.kind == "number" and size.value > MAX_EXPONENT:
        raise Broken("too large")
    return call("^", base, exponent)


def _is_numeric(node: Node) -> bool:
    r"""Is it free of variables: 12, 10^{-3}, 2\sqrt{3}, \pi?"""
    return node.value in ("π", "e") if node.kind == "letter" else all(map(_is_numeric, node.parts))


def _in_base(digits: Node, name: str) -> Node:
    """204_5, 52_{eight}. Base ten is left out."""
    name = name.casefold().removeprefix("base")
    base = BASES.get(name) or (int(name) if name.isdecimal() and len(name) < 4 else 0)
    if base < 2 or digits.parts:
        raise Unreadable(name)
    return digits if base == 10 else Node("base", base, (digits,))


def _repeating(before: str, again: str) -> Node:
    r"""0.1\overline{6} is 1/6."""
    if not again.isdecimal() or len(again) > 50 or not before.replace(".", "", 1).isdecimal():
        raise Unreadable(again)
    scale = 10 ** len(before.partition(".")[2])
    return number(Fraction(before + "0") + Fraction(int(again), scale * (10 ** len(again) - 1)))


def _without_degrees(value: Node) -> tuple[Node, bool]:
    r"""Is the value a number of degrees? -2\sqrt{3}^\circ has -2\sqrt{3} of them."""
    if value.kind == "call" and value.value == "°":
        return value.parts[0], True
    if value.kind == "call" and value.value in ("neg", "*"):
        last, degrees = _without_degrees(value.parts[-1])
        return value._replace(parts=(*value.parts[:-1], last)), degrees
    return value, False
