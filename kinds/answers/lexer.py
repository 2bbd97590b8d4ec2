r"""The lexer cuts the text of an answer into tokens.

One pattern, TOKEN, finds the next token, and DECORATION skips what changes only the look: spaces, fonts,
sizes, colours, \left, \displaystyle, $. So every rule of the grammar sees one spelling of each sign.

    text                                         tokens
    \left( \tfrac12,\ 5\text{ cm} \right)        (   \frac   12   ,   5   cm (a word)   )
    \mathbf{5}   \textcolor{red}{5}   ５         {   5   }   (the braces of a font are a group)
    1,234   1{,}234   1\,234   1 234             one number: every group has three digits, no space after a comma
    1, 234   1,23   1,234,5                      several numbers with commas between them
    xy   \text{xy}   \sin x   sin x              a run xy   a word xy   \sin and a run x   \sin and a run x

A `run` has the letters that stand together in a formula: xy is x times y. A `word` is upright, as in \text{cm}: it is a
unit, a name or prose.

tables.py has the other spellings of a sign. To add a command that only changes the look, add it to DECORATION. The time
is linear in the text: each character is looked at a bounded number of times.
"""

import functools
import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from kinds.answers.tables import CHARACTERS, COMMANDS, SPELLINGS
from kinds.patterns import EXPONENT, forward

MAX_LENGTH = 1_000  # characters of an answer, also with its Unicode characters written in LaTeX
MAX_WRAPS = 8  # braces around a whole answer


class Unreadable(ValueError):
    """No rule of the grammar reads this text. It may still be the gold's own text."""


class Broken(Unreadable):
    """The text cannot be an answer: a bracket is not closed, or a number has no value, such as 1/0 or 1e999999999."""


class Token(NamedTuple):
    r"""A `number`, a `run` of letters (xy), an upright `word` (\text{cm}), a `sign` (+, \frac), or the `end`."""

    kind: str
    text: str
    spaced: bool = False  # does a space stand before it?


END = Token("end", "")

_SIGN = {other: sign for sign, others in SPELLINGS.items() for other in others.split()}
_CHARACTER: dict[int, str | int] = {ord(one): latex for ones, latex in CHARACTERS.items() for one in ones}
_CHARACTER |= {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # full-width letters, digits and signs
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "₀₁₂₃₄₅₆₇₈₉"
_ON_THE_LINE = str.maketrans(_RAISED + _LOWERED, "0123456789+-0123456789")

DECORATION = forward(
    r"(?:\s|~|\\[,;:!>()\[\] ]|\\\Z|\$|\{\}|\\(?:left|right)(?![A-Za-z])\s*+\.?"
    r"|\\(?:[bB]igg?[lr]?|displaystyle|textstyle|scriptstyle|limits|q?quad|tiny|small|normalsize|[lL]arge|[hH]uge"
    r"|LARGE|bf|rm|it|tt|sf|mathbf|mathit|mathsf|mathtt|mathcal|boldsymbol|bm|pmb|underline|mathstrut)(?![A-Za-z])"
    r"|\\mathrm\s++(?=[A-Za-z])|\\(?:color|textcolor|colorbox|[hv]?phantom|[hv]space)\*?\s*+\{[^{}]*+\})*+"
)
# The patterns of numbers. There may be groups of three digits, with one of these marks or a comma between them. A comma
# with one digit more behind the last group, as in 1,234,5, shows a list.
_GROUP_MARK = r",\\!\ ?|\{,\}|\{\\[,!:;]\}|\\text\{,\}|\\[,!:;]|\\?\ |~"
_GROUPED = rf"[1-9][0-9]{{0,2}}+(?:(?:{_GROUP_MARK}|,)[0-9]{{3}}(?![0-9]))++(?!,[0-9])"
_REMOVED_FROM_NUMBERS = forward(_GROUP_MARK)  # the plain commas stay: 1,234 may be two numbers
# 1,234   1{,}234   1\,234   12   0.5   1.5e3   .5
_NUMBER = rf"(?:(?<![0-9],){_GROUPED}|[0-9]++)(?:\.[0-9]++|\.(?=[eE][+-]?[0-9]))?{EXPONENT}|\.[0-9]++{EXPONENT}"
_LETTER = rf"[^\W\d_{_RAISED}{_LOWERED}]"  # of any script
# Vowels and tones are marks in Hebrew, Arabic, Devanagari, Thai and the scripts between them.
_MARKS = "".join(chr(code) for code in range(0x591, 0xE80) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
_MARKED = rf"(?=[\u0590-\u0e7f]){_LETTER}(?:{_LETTER}|[{_MARKS}])*+"
_LETTERS = rf"{_MARKED}|[A-Za-z](?:\.[A-Za-z](?![A-Za-z]))++\.?|{_LETTER}{{3,}}+'s(?!{_LETTER})|{_LETTER}++"
# The kinds of pieces, tried in this order. Each is a group of one pattern.
_PIECES = {
    "number": _NUMBER,
    # \text{ and \mathrm{: the letters up to the closing brace are upright
    "upright": r"\\(?:text(?:bf|it|rm|normal|sf|tt|up|md)?|mbox|mathrm|operatorname\*?|emph)\s*+\{",
    "degrees": r"\^\s*+(?:\{\s*+\\circ\s*+\}|\\circ(?![A-Za-z]))|\\(?:deg(?:rees?)?|textdegree)(?![A-Za-z])",
    "primes": r"\^\s*+(?:\{\s*+(?:\\prime|'|\s)++\}|\\prime(?![A-Za-z]))",
    "raised": r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++[⁺⁻]?|[⁺⁻]",
    "lowered": r"[₀₁₂₃₄₅₆₇₈₉]++",
    "set": r"\\mathbb\s*+(?:\{\s*+[A-Z]\s*+\}|[A-Z])",
    # \begin{pmatrix}   \begin{array}{cc}
    "matrix": r"\\(?:begin|end)\s*+\{[a-zA-Z]++\}(?:(?<=begin\{array\})\s*+\{[^{}]*+\})?",
    "row": r"\\\\(?:\[[0-9.]++[a-z]{2}\])?",  # \\ and \\[2pt]
    "command": r"\\[A-Za-z]++|\\.|\*\*|<=|>=|!=|->|\{:\}|\.\.\.",
    "letters": _LETTERS,  # x   cm   p.m.   Evelyn's
    "sign": r"\S",
}
_IN_TEXT = _PIECES | {"letters": rf"(?:{_LETTERS})(?:'{_LETTER}|-{_LETTER}{{2,}}+)*+"}  # Evelyn's   non-zero
TOKEN, TOKEN_IN_TEXT = (
    forward("|".join(f"(?P<{name}>{pattern})" for name, pattern in pieces.items())) for pieces in (_PIECES, _IN_TEXT)
)
_SPACES = frozenset(" \t\n~$!,;:")  # the last character of a space, such as \, and \quad in front of a token


@functools.lru_cache(maxsize=256)  # the rules of science read a text more than once
def tokens(text: str) -> tuple[Token, ...]:
    """Cut a text into tokens. Broken if its braces do not balance, or if it is too long."""
    text = _plain(text) if len(text) <= MAX_LENGTH else text
    if len(text) > MAX_LENGTH:  # one ⅓ is \frac{1}{3}
        raise Broken("too long")
    found: list[Token] = []
    opened = [(False, "")]  # one pair for each open brace: (its letters are upright, the token of its closing brace)
    at = _skip_decoration(text, 0)
    while at < len(text):
        upright = opened[-1][0]
        match = (TOKEN_IN_TEXT if upright else TOKEN).match(text, at)
        if match is None:
            raise Broken(text[at:])
        kind, piece, spaced = str(match.lastgroup), match[0], at > 0 and text[at - 1] in _SPACES
        at = _skip_decoration(text, match.end())
        if kind == "upright":
            opened.append((True, ""))
        elif piece == "{":
            opened.append((upright, "}"))
            found.append(Token("sign", "{", spaced))
        elif piece == "}":
            _, closing = opened.pop()
            if not opened:
                raise Broken("}")
            found += [Token("sign", closing)] if closing else []
        else:
            found += _tokens_of(kind, piece, upright, spaced)
    if len(opened) > 1:
        raise Broken("{")
    return tuple(_trimmed(found))


def _trimmed(found: list[Token]) -> list[Token]:
    r"""Drop the last full stop, and braces around everything: {5}, \boxed{5.}."""
    for _ in range(MAX_WRAPS):
        last = [token.text for token in found[-2:]]
        if last[-1:] == ["."] and last != [".", "."]:
            found = found[:-1]
        start = 1 if found and found[0].text in (r"\boxed", r"\fbox") else 0
        depths = [*accumulate((token.text == "{") - (token.text == "}") for token in found[start:])]
        if len(depths) < 2 or 0 in depths[:-1] or depths[-1]:  # the brace that opens first does not close last
            break
        found = found[start + 1 : -1]
    return found


# Other spellings of a longer text: a part of it, which is quick to look for, the pattern, and what stands for it.
_REWRITES = (
    ("{.}", forward(r"(?<=[0-9])\{\.\}(?=[0-9])"), "."),  # 0{.}5
    ('"', forward(r'"([^"]*+)"'), r"\1"),  # \text{"Evelyn"}, but not the inches of 12"
    (r"\SI", forward(r"\\SI\s*+\{([^{}]*+)\}\s*+\{"), r"\1\\text{ "),  # \SI{6.0}{m/s}
    (r"\qty", forward(r"\\qty\s*+\{([^{}]*+)\}\s*+\{"), r"\1\\text{ "),
    # (1A3)_{16}    1A3_{\text{sixteen}}: 1A3_{16}, which is compared as text.
    (")_{", forward(r"\(([0-9A-F]++)\)(?=_\{\s*+(?:16|\(16\)|\\text\{\s*+(?:sixteen|hex)\s*+\})\s*+\})"), r"\1"),
    (r"\not", forward(r"\\not\s*+="), r"\\ne "),
    ("math", forward(r"\\([ij])math(?![A-Za-z])"), r" \1"),  # the \imath of \hat{\imath}
    (r"\forall", forward(r"\\forall(?![A-Za-z])"), r"\\text{for all }"),
    ("_{", forward(r"(?<=[0-9A-F])_\{\s*+(?:\(16\)|\\text\{\s*+(?:sixteen|hex)\s*+\})\s*+\}"), "_{16}"),
)


def _plain(text: str) -> str:
    r"""Write characters in LaTeX, digits of every script as 0 to 9, and \\frac as \frac. Remove Markdown's **bold**."""
    if not text.isascii():
        text = text.translate(_CHARACTER)
        text = "".join(str(unicodedata.decimal(letter)) if letter.isdecimal() else letter for letter in text)
    text = text.strip()
    text = text if r"\begin" in text else text.replace(r"\\", "\\")  # all backslashes are doubled, as in JSON
    for part, pattern, written in _REWRITES:
        text = pattern.sub(written, text) if part in text else text
    bold = text.startswith("**") and text.rstrip(". ").endswith("**")
    return text.rstrip(". ")[2:-2] if bold else text


def _skip_decoration(text: str, at: int) -> int:
    match = DECORATION.match(text, at)
    return match.end() if match else at


def _tokens_of(kind: str, piece: str, upright: bool, spaced: bool) -> list[Token]:
    """Return the tokens of one piece of text. `kind` is the name of its group in TOKEN."""
    if kind == "number":
        return [Token("number", _REMOVED_FROM_NUMBERS.sub("", piece), spaced)]
    if kind in ("raised", "lowered"):  # 10⁻³ is 10^-3, x₁ is x_1
        written = piece.translate(_ON_THE_LINE)
        if written[-1] in "+-":  # the charge of SO₄²⁻
            digits = [Token("number", written[:-1])] if written[:-1].isdecimal() else []
            return [Token("sign", "^"), Token("sign", "{"), *digits, Token("sign", written[-1]), Token("sign", "}")]
        signs = ["^" if kind == "raised" else "_", *written.rstrip("0123456789")]
        return [*(Token("sign", sign) for sign in signs), Token("number", written.lstrip("+-"))]
    if kind == "primes":
        return [Token("sign", "'")] * max(piece.count("prime"), piece.count("'"), 1)
    if kind == "letters" and piece in COMMANDS:
        return [Token("sign", _SIGN.get("\\" + piece, "\\" + piece), spaced)]
    if kind == "letters" and piece not in ("and", "or"):
        # A word of another script is one noun, no product of letters: 5个, 5 км.
        other = "\u0400" <= piece[0] <= "\u1fff" or "\u3000" <= piece[0] <= "\uffdc"
        word = upright or other or piece in ("pH", "pOH", "pKa", "pKb", "pKw")
        letters = piece.replace(".", "").upper() if "." in piece else piece  # p.m. is PM
        return [Token("word" if word else "run", letters, spaced)]
    if kind == "set" and piece.strip("{} ")[-1] in "EP":  # \mathbb{P}(A) is P(A)
        return [Token("run", piece.strip("{} ")[-1], spaced)]
    text = {"degrees": "°", "row": r"\\", "set": r"\mathbb" + piece.strip("{} ")[-1]}.get(kind, piece)
    if kind == "matrix":  # \begin {array}{c} is \begin{array}
        text = "".join(piece.partition("}")[:2]).replace(" ", "")
    return [Token("sign", _SIGN.get(text, text), spaced)]


# Not those of a_{nb}, since a_nb is a_n times b.
_LONE_BRACES = forward(r"(?<!_ )\{ ([^\s{}]++) \}|\{ ([0-9]++|[^\s{}]) \}")


def canonical(found: Sequence[Token]) -> str:
    """Return the tokens as text, without braces around one token. Two unreadable answers are equal if these texts are.

    Letter case counts in short words only: R is not r.
    """
    text = " ".join(t.text.casefold() if t.kind in ("run", "word") and len(t.text) > 3 else t.text for t in found)
    return _LONE_BRACES.sub(r"\1\2", text)
