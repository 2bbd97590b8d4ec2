"""Regular expressions for text that a model wrote: they cannot backtrack, so this process may run them.

NUMBER and DECIMAL are parts of patterns: numbers as programs print them. The numbers of math answers have groups of
digits and no sign, and kinds/answers/lexer.py has their pattern.
"""

import re
from weakref import WeakSet

DECIMAL = r"[+-]?(?:[0-9]++\.[0-9]*+|\.[0-9]++)"  # -0.5   .5   3.
EXPONENT = r"(?:[eE][+-]?[0-9]++)?"
NUMBER = rf"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++){EXPONENT}"  # 3   -0.5   1.5e3

_ESCAPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_PIECE = re.compile(rf"\)(?P<times>[*+]|\{{[0-9,]*\}})\+|{_ESCAPED.pattern}|.", re.DOTALL)
COMPILED: WeakSet[re.Pattern[str]] = WeakSet()  # the patterns that `forward` has compiled, as long as they are used
_REPEATED = re.compile(r"(?:[*+]|\{[0-9]*,[0-9]*\})([+?]?)")


def forward(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern for a model's text; ValueError unless every repetition is possessive, as in `a*+`.

    Such a pattern cannot backtrack into a repetition, so no text takes exponential time.
    """
    marks = _REPEATED.findall(_ESCAPED.sub("x", pattern))
    if any(mark != "+" for mark in marks):
        raise ValueError(f"each repetition of a pattern for a model's text must be possessive, *+ or ++: {pattern}")
    compiled = re.compile(atomic(pattern), flags)
    COMPILED.add(compiled)
    return compiled


def atomic(pattern: str) -> str:
    """Write each `(...)*+` as the equivalent `(?>(...)*)`: Python 3.11.2 reads `(?:a|bc)*+` past a b without c."""
    pieces: list[str] = []
    opened: list[int] = []
    for match in _PIECE.finditer(pattern):
        piece = match[0]
        if piece == "(":
            opened.append(len(pieces))
        elif piece.startswith(")"):
            start = opened.pop()
            if match["times"]:
                pieces[start], piece = "(?>(", f"){match['times']})"
        pieces.append(piece)
    return "".join(pieces)
