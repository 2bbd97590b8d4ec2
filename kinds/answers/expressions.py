r"""Expressions: sums, products, powers, functions and letters.

    sum      = [sign] term {sign term}                              1 - x     -2 \pm \sqrt{3}
    term     = product ["/" divisor {"*" factor}]                   2x\sqrt{3}/5     3/4 * 10^5     no 1/2/3, no 1/2x
    product  = factor {["*"] factor}                                2x\sqrt{3}     2 * 3     3 x 10^8
    divisor  = factor | letter {factor}                             the bc of a/bc
    factor   = [currency] atom [base] ["!"] [ordinal] ["^" exponent] ["°"]      x^2     n!     204_5     30^\circ
    exponent = [sign] atom                                          2     -1     {n+1}
    atom     = numeral | letter | bracket | set | command           12     x     (x+1)     \{1,2\}     \sqrt{2}
    command  = function | "\frac" argument argument | "\sqrt" ["[" items "]"] argument | "\binom" argument argument
             | "\root" argument "\of" argument | "√" atom | mark braced | "\boxed" bracket | matrix | "\emptyset"
             | "\mathbb{R}"
    function = "\sin" ["_" argument] ["^" exponent] (bracket | factor {factor})     \sin x     \sin^2 (x+1)     \log_2 8
    argument = digit | atom                                         the 1 and the 2 of \frac12

    letter    = (sign | first letter of a run) ["_" subscript] {"'"} ["^" "{" "(" number ")" "}"] ["\circ" letter]
                                                                    x     \alpha     the x of xy     f^{(3)}
    subscript = letter | braced                                     F_{n-1}     v_max     the B of k_BT

numbers.py has numeral, base, ordinal, currency and braced, lists.py has items, bracket, set and matrix. A function such
as \sin is an entry of FUNCTIONS in tables.py. A command with arguments of its own, such as \binom, is two lines in
`_read_command`.
"""

import re

from kinds.answers.clause_ends import approximation_length, find_parameter, starts_to
from kinds.answers.cursor import Cursor
from kinds.answers.lexer import Unreadable
from kinds.answers.lists import read_bracket, read_matrix, read_set
from kinds.answers.nouns import noun_of
from kinds.answers.numbers import read_base, read_currency, read_digit, read_numeral, skip_ordinal
from kinds.answers.tables import BRACKETS, FUNCTIONS, LETTERS, MARKED, MATRICES, SCALES_OF_HEAT
from kinds.answers.tree import NOTHING, REALS, Node, call, number, product, quotient, signed
from kinds.answers.units import DEGREES, starts_unit, symbol_of

_MATRICES = tuple(rf"\begin{{{name}}}" for name in MATRICES)
_STARTS_FACTOR = (r"\frac", r"\sqrt", r"\root", r"\binom", "√", *MARKED, *("\\" + name for name in FUNCTIONS),
                  *(opening for opening in BRACKETS if opening != "|"), *_MATRICES)  # fmt: skip
_SIGNS_OF_UNITS = (r"\frac", r"\Omega", r"\mu", "Å", "¢", "(")
_PLUS_MINUS = ("+", "-", r"\pm", r"\mp")


def read_sum(cursor: Cursor) -> Node:
    terms = [signed(cursor.take() if cursor.sees(*_PLUS_MINUS) else "+", read_term(cursor))]
    while cursor.sees(*_PLUS_MINUS):
        sign, negative = cursor.take(), cursor.now.spaced and cursor.takes("-")  # 14 + -1i
        terms.append(signed(sign, signed("-" if negative else "+", read_term(cursor))))
    return terms[0] if len(terms) == 1 else call("+", *terms)


def read_term(cursor: Cursor) -> Node:
    r"""2x\sqrt{3}/5    3/4 * 10^5. There is at most one slash, and 1/2x is unreadable."""
    above, (kind, unit, _) = _read_product(cursor), cursor.ahead(1)
    price = kind == "word" or (cursor.currency and len(unit) > 1 and symbol_of(unit))  # \$5/month. \$5/x is a quotient
    if not cursor.sees("/") or price:
        return above
    cursor.take()
    factors = [quotient(above, _read_divisor(cursor))]
    while _takes_times(cursor):
        factors.append(read_factor(cursor))
    return product(factors)


def _read_product(cursor: Cursor) -> Node:
    r"""2x\sqrt{3}    2 * 3    f(x), which is f of x. A number may not follow without a sign: x2 is unreadable."""
    factors = [read_factor(cursor)]
    numeric, applied = _is_numeric(factors[0]), cursor.sees("(", "[")
    while _takes_times(cursor) or _starts_factor(cursor, numeric):
        factors.append(read_factor(cursor))
        numeric = numeric and _is_numeric(factors[-1])
    value = product(factors)
    return value._replace(value="of") if applied and len(factors) == 2 and value.value == "*" else value


def _read_divisor(cursor: Cursor) -> Node:
    """The 5 of 2x/5. After a letter everything is below the slash: a/bc is a/(bc)."""
    letter, factors = _starts_letter(cursor), [read_factor(cursor)]
    while letter and _starts_factor(cursor, False):
        factors.append(read_factor(cursor))
    return product(factors)


def _takes_times(cursor: Cursor) -> bool:
    """Take a sign of multiplication, or the x of 3 x 10^8, between two numbers."""
    cross = cursor.now.text in ("x", "X") and cursor.before.kind == cursor.ahead(1).kind == "number"
    cursor.at += cross
    return cross or cursor.takes("*")


def _is_numeric(node: Node) -> bool:
    r"""Is it free of variables: 12, 10^{-3}, 2\sqrt{3}, \pi?"""
    return node.value in ("π", "e") if node.kind == "letter" else all(map(_is_numeric, node.parts))


def read_factor(cursor: Cursor) -> Node:
    read_currency(cursor)
    value = read_atom(cursor)
    plain = value.kind == "number" and not value.parts
    zero_or_one = plain and value.value in (0, 1)
    if (plain and value.value == 0 and _starts_factor(cursor, True)) or (cursor.sees("^") and zero_or_one):
        raise Unreadable("0x, 1^2: see grammar.py")
    if value.kind == "number":
        value = read_base(cursor, value)
    if cursor.sees("!") and (cursor.has_factorial or not (plain and value.value in (0, 1, 2))):
        cursor.take()
        value = call("!", value)
    skip_ordinal(cursor)
    if value.kind == "tuple" and cursor.sees("^") and cursor.ahead(1).text == "T":  # (1,2)^T is a column
        cursor.at += 2
        return Node("matrix", "", tuple(Node("tuple", "", (part,)) for part in value.parts))
    if cursor.takes("^"):
        value = call("^", value, _read_exponent(cursor))
    if cursor.sees("°") and cursor.ahead(1).text.casefold() not in SCALES_OF_HEAT:
        cursor.take()
        value = call("°", value)
    elif cursor.sees("^", "!", "_", "'"):
        raise Unreadable("2^3^4, 5!!, 1!")
    return value


def _starts_factor(cursor: Cursor, numeric: bool) -> bool:
    """Does another factor of a product follow? `numeric`: the product has no variable so far."""
    if cursor.now.kind == "number":
        return cursor.before.text == "!"  # 3!4!
    if starts_to(cursor, cursor.at) or approximation_length(cursor, cursor.at) or find_parameter(cursor, cursor.at)[1]:
        return False
    if _starts_letter(cursor) or (numeric and cursor.sees(*_SIGNS_OF_UNITS)):
        return not starts_unit(cursor, numeric)
    return cursor.sees(*_STARTS_FACTOR) or (cursor.sees("|") and not cursor.no_bar_or_ratio)


def _starts_letter(cursor: Cursor) -> bool:
    r"""A run such as xy, an upright x, or a sign such as \alpha."""
    kind, text, _ = cursor.now
    return kind == "run" or (kind == "word" and len(text) == 1) or cursor.sees(*LETTERS)


def _read_exponent(cursor: Cursor) -> Node:
    return signed(cursor.take() if cursor.sees("+", "-") else "+", read_atom(cursor))


def read_atom(cursor: Cursor) -> Node:
    if cursor.now.kind == "number" or (cursor.sees(".") and cursor.ahead(1).text == r"\overline"):
        return read_numeral(cursor)
    if _starts_letter(cursor):
        return _read_letter(cursor)
    if cursor.now.kind == "word" and cursor.ahead(1).text == "(" and noun_of([cursor.now]):
        return Node("letter", cursor.take())  # \text{Var}(X)
    cursor.enter()
    rule = read_set if cursor.sees(r"\{") else read_bracket if cursor.sees(*BRACKETS) else _read_command
    node = rule(cursor)
    cursor.depth -= 1
    return node


def _read_letter(cursor: Cursor) -> Node:
    r"""x    x_1    F_{n-1}    \alpha'. It cuts the first letter off a run: xy^2 is x times y^2."""
    name = cursor.take() if cursor.now.kind == "sign" else cursor.take_character()
    name = {r"\pi": "π", r"\infty": "∞", "μ": r"\mu", "Ω": r"\Omega"}.get(name, name)
    if cursor.takes("_"):
        name += "_" + _read_subscript(cursor)
    while cursor.takes("'"):
        name += "'"
    if cursor.science and name[0].isupper() and cursor.takes("°"):  # \Delta H^\circ    E^\circ_{cell}
        name += "°"
        name += "_" + _read_subscript(cursor) if cursor.takes("_") else ""
    alphabetic = name.isalpha()
    following = [cursor.ahead(distance).text for distance in range(6)] if name in ("f", "g", "h", "y") else []
    if following[:3] + following[4:] == ["^", "{", "(", ")", "}"]:  # f^{(3)}
        cursor.at += 6
        name += "^" + following[3]
    if alphabetic and cursor.sees(r"\circ") and re.fullmatch("[a-zA-Z]", cursor.ahead(1).text):  # f\circ g
        cursor.take()
        name += "∘" + cursor.take()
    return Node("letter", name)


def _read_subscript(cursor: Cursor) -> str:
    """1    n    {n-1}    max. k_BT is k_B times T, and v_max is read as v_{max} for its vowel."""
    kind, text, _ = cursor.now
    if kind != "run" or len(text) == 1 or (len(text) > 2 and text.islower() and re.search("[aeiou]", text)):
        return cursor.take_group()
    return cursor.take_character()


def _read_command(cursor: Cursor) -> Node:
    name = cursor.take()
    if name[1:] in FUNCTIONS:
        return _read_function(cursor, name[1:])
    if name == r"\frac":
        return quotient(_read_argument(cursor), _read_argument(cursor))
    if name == r"\sqrt":
        degree = read_bracket(cursor) if cursor.sees("[") else number(2)
        return call("root", _read_argument(cursor, digit=False), degree)
    if name == r"\root":  # \root 3\of 4
        degree, _ = _read_argument(cursor), cursor.take(r"\of")
        return call("root", _read_argument(cursor, digit=False), degree)
    if name == "√":  # √12 is no \sqrt12
        return call("root", read_atom(cursor), number(2))
    if name == r"\binom":
        return call("binom", _read_argument(cursor), _read_argument(cursor))
    if name.startswith(r"\begin"):
        return read_matrix(cursor, name[7:-1])
    if name in (r"\boxed", r"\fbox") and cursor.sees("{"):
        return read_bracket(cursor)
    if name in MARKED and (letters := cursor.take_group()).isalpha():
        vector = name in (r"\hat", r"\vec") and letters in ("i", "j", "k")  # the same as \mathbf{i}
        return Node("letter", letters if vector else f"{name} {letters}")
    if name in (r"\emptyset", r"\mathbbR"):
        return NOTHING if name == r"\emptyset" else REALS
    raise Unreadable(name)


def _read_argument(cursor: Cursor, digit: bool = True) -> Node:
    r"""Of \frac, \sqrt and \log_: a bracket, a letter or a digit. \frac12 cuts 12 in two; \sqrt12 is unreadable."""
    if cursor.now.kind == "number":
        return number(read_digit(cursor, alone=not digit))
    return read_atom(cursor)


def _read_function(cursor: Cursor, name: str) -> Node:
    r"""\sin x    \sin^2 x    \log_2 8. \sin 2x\cos y is a product of two; \sin x/2 is unreadable."""
    base = _read_argument(cursor) if name == "log" and cursor.takes("_") else number(10)
    power = _read_exponent(cursor) if cursor.takes("^") else None
    if power == call("neg", number(1)):
        name, power = "arc" + name, None
    if cursor.sees("(", "[", "{", "|"):
        inside = read_bracket(cursor)
    else:
        factors = [read_factor(cursor)]
        while _starts_factor(cursor, False) and not cursor.sees("(", "[", "{") and cursor.now.text[1:] not in FUNCTIONS:
            factors.append(read_factor(cursor))
        inside = product(factors)
        if cursor.sees("/"):
            raise Unreadable(r"\sin x/2")
    if inside.kind == "quantity" and inside.value == DEGREES:  # \sin(40^\circ)
        inside = call("°", *inside.parts)
    result = call("log", inside, base) if name in ("log", "lg") else call(name, inside)
    return call("^", result, power) if power else result
