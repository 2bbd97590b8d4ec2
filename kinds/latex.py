r"""Kind "math": reads a text, LaTeX or plain, completely into a `Form`. From the outside in: lists and unions, \pm,
relations, brackets, then what has no parts: numbers, units, options, words, expressions.

`_TIDY` rewrites different LaTeX for the same drawing. An answer has at most MAX_ANSWER characters. Some
patterns here can backtrack: a model's text meets them in a worker, within the time limit.
"""

import functools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from kinds.algebra import LETTERS, TOKEN, read_expression
from kinds.patterns import forward
from kinds.units import read_unit
from verify import MAX_ANSWER

MAX_PARTS, MAX_DEPTH, MAX_EXPONENT = 64, 16, 1_000


class Form(NamedTuple):
    r"""An answer as it was read. `text` is canonical: equal texts are equal answers.

    kind         value                   mark
    number       Fraction, or infinity   its unit
    expression   Expression              its unit          2\pi, x^2+1
    words        -                                         Evelyn
    option       its letter              the option's text (C), (C) 12
    tuple        (Form, ...)             the brackets      (1,2), [0,1), a matrix and its rows
    list         (Form, ...)             "" or "{}"        1,2 and {1,2}, x<1 or x>3, unions: any order
    equation     (Form, ...)             the relations     2+3=5: the sides
    relation     (left, right)           its sign          y\ge x
    other        -                                         no form of these: only the same text is equal
    """

    kind: str
    text: str
    value: Any = None
    mark: Any = ""
    name: str = ""  # x, of x=5
    raw: str = ""


_DRAWN = str.maketrans({"−": "-", "–": "-", "×": r"\times ", "÷": "/", "·": r"\cdot ", "⋅": r"\cdot ", "π": r"\pi ",
                        "∞": r"\infty ", "√": r"\sqrt ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ", "µ": "μ",
                        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "′": "'", "℃": "°C", "½": r"\frac{1}{2}",
                        "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∅": r"\emptyset "})  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_NAMES = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|ln|log|exp|pi|sqrt"
_TIDY: list[tuple[re.Pattern[str], Any]] = [(re.compile(pattern), new) for pattern, new in [
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: f"^{{{found[0].translate(_RAISED)}}}"),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle)(?![A-Za-z])\.?", ""),
    (r"(?<=[0-9])(?:\{,\}|,\\! ?|\\,)(?=[0-9]{3}(?![0-9]))", ""),
    (r"(?:(?<!\\)\\[,;:!> ]|[\s~]|\\(?:q?quad|enspace|thinspace)(?![A-Za-z]))+", " "),
    (r"\\\\\[[0-9.]+ ?[a-z]{2}\]", r"\\\\\\\\"),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\var(epsilon|theta|phi|rho)(?![A-Za-z])", r"\\\1"),
    (r"\\(?:hat|vec|mathbf|boldsymbol|bm)\s*\{\s*(?:\\mathbf\s*\{)?\s*([A-Za-z])\s*\}{1,2}", r"\1_{\\vec}"),
    (r"\\mathrm\s*\{\s*([ei])\s*\}", r"\1"),
    (r"\\(?:math(?:rm|bf|it|sf)|text(?:bf|it|rm|normal)|mbox|operatorname\*?)(?=\s*\{)", r"\\text"),
    (r"\\frac\s*\{\s*\\text\s*\{([^{}]*)\}\s*\}\s*\{\s*\\text\s*\{([^{}]*)\}((?:\^\{?[0-9]\}?)?)\s*\}",
     r"\\text{\1/\2}\3"),
    (rf"\\text\s*\{{\s*({_NAMES})\s*\}}|(?<![A-Za-z\\])({_NAMES})(?![A-Za-z])", r"\\\1\2 "),
    (r"\{\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*\}", r"\\binom{\1}{\2}"),
    (r"(\\frac|\\binom)\s*([0-9A-Za-z])\s*(?=[0-9A-Za-z{\\])", r"\1{\2}"),
    (r"(\\(?:frac|binom)\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}"),
    (r"(?<![0-9.}])([0-9]+)\s*(\\frac\{[0-9]+\}\{[0-9]+\})", r"(\1+\2)"), (r"\\prime(?![A-Za-z])", "'"),
    (r"\^\s*(?:\{\s*('+)\s*\}|(?='))", r"\1"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", "°"),
    (r"\\%|\\text\s*\{\s*(?:\\?%|percent)\s*\}|(?<=[0-9])\s*percent\b", "%"),
    (r",?\s*\\text\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z{ ]),?\s+(?:and|or)\s+(?![^{}]*\})", ","),
    (r"\\(le|ge|ne)q(?:slant)?(?![A-Za-z])", r"\\\1 "),
    (r"<=", r"\\le "), (r">=", r"\\ge "), (r"!=", r"\\ne "), (r"\\lt(?![A-Za-z])", "<"), (r"\\gt(?![A-Za-z])", ">"),
    (r"\\[lr]vert(?![A-Za-z])|\\[lr]?Vert(?![A-Za-z])", "|"), (r"\\mid(?![A-Za-z])", "|"),
    (r"^(\s*(?:\\text\s*\{)?\s*)([A-J])\)", r"\1(\2)"), (r"\\langle(?![A-Za-z])", "("), (r"\\rangle(?![A-Za-z])", ")"),
    (r"^\s*(?:\\text\s*\{)?\s*(?:[Tt]here (?:is|are) )?[Nn]o solutions?[\s.]*\}?\s*$", r"\\{\\}"),
    (r"\\(?:emptyset|varnothing)(?![A-Za-z])", r"\\{\\}"),
    (r"[\s,]*\(\s*([A-Za-z]\s*\\in\s*\\mathbb\s*\{?\s*[NZQ]\s*\}?)\s*\)\s*$", r",\1"),
    (r"(?<=\S)\s*\\text\s*\{\s*for all (?:real )?\}\s*[A-Za-z](?:\s*\\in\s*\\mathbb\s*\{?R\}?)?\s*$", ""),
    (r"(?<![0-9A-Za-z.}])\+\s*\\infty", r"\\infty"),
]]  # fmt: skip
_OPENS = frozenset(["(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil"])
_CLOSES = frozenset([")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil"])
FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
RELATIONS = frozenset(["=", r"\ne", r"\approx", r"\in", *FLIPPED])


@functools.lru_cache(maxsize=4096)  # one gold is read for each of N rollouts
def read_math(text: str) -> Form | None:
    """Read a text; None if it is empty, too long, too deep, or its brackets do not balance."""
    if len(text) > MAX_ANSWER:
        return None
    text = text.translate(_DRAWN)
    text = (text if r"\begin" in text else text.replace(r"\\", "\\")).strip()
    text = re.sub(r"(?<!\\)\$([^$]*)(?<!\\)\$", r" \1 ", text).strip()
    for opened, closed in ((r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(opened) and text.endswith(closed):
            text = text[2:-2].strip()
    for pattern, new in _TIDY:
        text = pattern.sub(new, text)
    depths = [depth for _, depth in _depths(text)]
    balanced = depths and min(depths) >= 0 and max(depths) <= MAX_DEPTH and depths[-1] == 0
    return _read(text) if balanced and text.strip(" .") else None


def _depths(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield each token with the number of brackets that are open after it."""
    depth = 0
    for match in TOKEN.finditer(text):
        depth += (match[0] in _OPENS) - (match[0] in _CLOSES)
        yield match, depth


def _read(text: str) -> Form:
    text = re.sub(r"^\s*(?:=|\\approx(?![A-Za-z]))(?!\s*[=\\])", "", text).strip()
    text = text[:-1].strip() if text.endswith(".") and not text.endswith("..") else text
    while (inner := re.sub(r"^\\f?boxed\s*(?=\{)", "", text)).startswith("{") and _spans(inner):
        text = inner[1:-1].strip()
    text = re.sub(r"^\\text\s*\{\s*([-+0-9.][^{}]*)\}$", r"\1", text).strip()
    form = _read_parts(text) if text else None
    return (form or Form("other", canonical(text)))._replace(raw=text)


def _read_parts(text: str) -> Form | None:
    if NUMBER.fullmatch(text):
        value = read_number(text)
        return value if value is None else Form("number", canonical(text), value)
    for separators in ({";"}, {","}, {r"\cup"}):
        parts = split(text, separators)[0]
        if len(parts) > 1:
            # Semicolons separate points: p=5,q=2; p=7,q=2.
            grouped = separators == {";"} and any(len(split(part, {","})[0]) > 1 for part in parts)
            return _list(text, [f"({part})" for part in parts] if grouped else parts)
    if _EITHER.search(text):
        both = (re.sub(r"\\pm", a, re.sub(r"\\mp", b, text)) for a, b in ("+-", "-+"))
        return _list(text, [one.removeprefix("+") for one in both])
    sides, signs = split(text, RELATIONS)
    if signs:
        return _relation(text, sides, signs)
    return _bracketed(text) or _leaf(text)


def split(text: str, separators: Any) -> tuple[list[str], list[str]]:
    """Split at separators outside of all brackets. Returns the parts, and the separators."""
    found = [match for match, depth in _depths(text) if depth == 0 and match[0] in separators]
    starts, ends = [0, *(match.end() for match in found)], [*(match.start() for match in found), len(text)]
    return [text[a:b].strip() for a, b in zip(starts, ends, strict=True)], [match[0] for match in found]


def _spans(text: str) -> bool:
    """Does the first bracket close with the last token?"""
    return next((match.end() == len(text) for match, depth in _depths(text) if depth == 0), False)


def _all_read(parts: list[str]) -> tuple[Form, ...] | None:
    forms = tuple(map(_read, parts)) if len(parts) <= MAX_PARTS and all(parts) else ()
    return forms if forms and all(form.kind != "other" for form in forms) else None


def _list(text: str, parts: list[str], mark: str = "") -> Form | None:
    read = _all_read(parts)
    if read is None:
        return None
    forms: list[Form] = []
    for form in read:
        forms += form.value if form.kind == "list" and not form.mark else [form]
    names = [form.name for form in forms]
    period = len(set(names))
    if all(names) and 1 < period < len(names) and names == (names[:period] * len(names))[: len(names)]:
        # x=1,y=2 or x=3,y=4 is two points, (1,2) and (3,4).
        groups = [sorted(forms[at : at + period], key=lambda form: form.name) for at in range(0, len(forms), period)]
        forms = [Form("tuple", ",".join(form.text for form in group), tuple(group), "()") for group in groups]
    return Form("list", canonical(text), tuple(forms), mark)


_EITHER = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_BARE = rf"(?:[A-Za-z]|{'|'.join(re.escape(name) + '(?![A-Za-z])' for name in sorted(LETTERS))})"
_SUBSCRIPT = r"(?:\s*_\s*(?:\{[^{}]*\}|[A-Za-z0-9]))?'*"
_NAME = re.compile(
    rf"{_BARE}{_SUBSCRIPT}|[fghpqFGHPQST]{_SUBSCRIPT}\s*\(\s*[A-Za-z0-9](?:\s*,\s*[A-Za-z0-9])*\s*\)"
    rf"|(?:\\(?:angle|triangle|overline|widehat)\s*)?\{{?\s*[A-Z]{{1,4}}\s*\}}?|\|[A-Z]{{2}}\||\(\s*[a-z](?:\s*,\s*[a-z])+\s*\)"
    r"|[a-z](?:\s*\+?\s*[a-z]){1,3}|\\frac\s*\{[A-Z]{2}\}\s*\{[A-Z]{2}\}"
)
_SUM = re.compile(r"[a-z](?:\s*\+?\s*[a-z])+")  # names a number, but may be half of an equation


def _side(text: str) -> Form:
    r"""Read a side of an equation. A name stands for the answer: x, f(x), S_n, \angle ABC, (x,y), m+n."""
    if _NAME.fullmatch(text) and text not in ("e", "i"):
        return Form("name", canonical(text), read_expression(text), raw=text)
    return _read(text)


def _relation(text: str, sides: list[str], signs: list[str]) -> Form | None:
    if not all(sides) or len(sides) > MAX_PARTS:
        return None
    forms = tuple(map(_side, sides))
    names = [form for form in forms if form.kind == "name"]
    if any(form.kind == "other" for form in forms):
        return None
    if set(signs) <= {"=", r"\approx"} or (signs == [r"\in"] and forms[0].kind == "name"):
        name = forms[0].text if forms[0].kind == "name" and not _SUM.fullmatch(sides[0]) else ""
        return Form("equation", canonical(text), forms, tuple(signs), name)
    if len(names) == 1 and all(sign in FLIPPED for sign in signs):
        interval = _interval(sides, signs, names[0].raw)
        if interval is not None:
            return interval._replace(name=names[0].text, text=canonical(text))
    return Form("relation", canonical(text), forms, signs[0]) if len(sides) == 2 and signs != [r"\in"] else None


def _interval(sides: list[str], signs: list[str], name: str) -> Form | None:
    """Read x>5 and 5<x as (5,∞), 1<x≤2 as (1,2]."""
    if signs[0] in (">", r"\ge"):
        sides, signs = sides[::-1], [FLIPPED[sign] for sign in signs[::-1]]
    if not set(signs) <= {"<", r"\le"}:
        return None
    if len(sides) == 2:
        left = sides[0] == name
        sides, signs = ([r"-\infty", *sides], ["<", *signs]) if left else ([*sides, r"\infty"], [*signs, "<"])
    if len(sides) != 3 or sides[1] != name:
        return None
    brackets = ("[" if signs[0] == r"\le" else "(") + ("]" if signs[1] == r"\le" else ")")
    return _tuple("", [sides[0], sides[2]], brackets)


_MATRIX = re.compile(r"\\begin\{([pb]matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.DOTALL)


def _bracketed(text: str) -> Form | None:
    if text[0] in "([" and text[-1] in ")]" and _spans(text):
        inner, mark = text[1:-1].strip(), text[0] + text[-1]
        parts = max((split(inner, {sign})[0] for sign in ";,"), key=len)
        if len(parts) > 1:
            return _tuple(text, parts, mark)
        return _read(inner) if mark == "()" and inner and not _OPTION.fullmatch(text) else None
    if text.startswith(r"\{") and text.endswith(r"\}") and _spans(text):
        inner = text[2:-2].strip()
        such = re.fullmatch(r"([A-Za-z])(?:\s*\\in\s*\\mathbb\s*\{?R\}?)?\s*[|:](.*)", inner)
        if such:
            condition = _read(such[2])
            return condition if condition.name == such[1] else None
        return _list(text, split(inner, {","})[0], "{}") if inner else Form("list", canonical(text), (), "{}")
    matrix = _MATRIX.fullmatch(text)
    if matrix and r"\begin" not in matrix[2]:
        rows = [[cell.strip() for cell in row.split("&")] for row in matrix[2].split(r"\\") if row.strip()]
        if all(len(row) == 1 for row in rows):
            return _tuple(text, [row[0] for row in rows], "column")
        read = [_tuple("", row, "row") for row in rows]
        return None if None in read else Form("tuple", canonical(text), tuple(read), "matrix")
    if re.fullmatch(r"\\mathbb\s*\{?\s*R\s*\}?", text):
        return _tuple(text, [r"-\infty", r"\infty"], "()")
    return Form("words", canonical(text)) if re.fullmatch(r"\\mathbb\s*\{?\s*[A-Z]\s*\}?", text) else None


def _tuple(text: str, parts: list[str], mark: str) -> Form | None:
    forms = _all_read(parts)
    if forms is None:
        return None
    return Form("tuple", canonical(text) or mark[0] + ",".join(form.text for form in forms) + mark[-1], forms, mark)


# (C), C, C., Option C; (C) 12
_OPTION = re.compile(r"(?:(?:[Oo]ption |[Cc]hoice )?(?:\(([A-J])\)|([A-J])\.?)|\(?([A-J])[).:]\s+(\S.*))", re.DOTALL)
_UPRIGHT = re.compile(r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
# \text{ cm}^2, °, or plain: cm^2, m/s, \mu m
_UNIT = forward(
    r"(?<=[0-9}\])a-z!%])((?:\s*+(?:(?:\\cdot|/)\s*+)?\\text\s*+\{(?:[^{}]|\{[^{}]*+\})*+\}"
    r"(?:\s*+\^\s*+(?:\{\s*+-?[0-9]\s*+\}|-?[0-9]))?)++|(?<=[0-9])\s*+°"
    r"|(?<=[0-9}])\s++(?:\\mu|\\Omega|\\cdot|[A-Za-zμΩÅ°])(?:\\cdot|[A-Za-z0-9μΩÅ°^/*(){} -])*+)$"
)
_MILLIONS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MAGNITUDE = re.compile(rf"([-+0-9.,]*[0-9])\s*((?:\\text\s*\{{\s*)?)({'|'.join(_MILLIONS)})\b(.*)")
_MONEY = re.compile(r"(?:\\?\$|[€£¥])\s*(?=[0-9.])")


def _leaf(text: str) -> Form | None:
    if text in (r"\infty", r"-\infty"):
        return Form("number", text, math.inf if text == r"\infty" else -math.inf)
    plain = _UPRIGHT.sub(r"\1", text).strip()
    option = _OPTION.fullmatch(plain)
    if option:
        return Form("option", canonical(text), option[1] or option[2] or option[3], canonical(option[4] or ""))
    ratio = text.split(":")
    if len(ratio) > 1 and all(NUMBER.fullmatch(part.strip()) for part in ratio):
        return _read("/".join(ratio)) if len(ratio) == 2 else _tuple(text, ratio, "::")
    before, unit = _split_unit(_MAGNITUDE.sub(_multiplied, text))
    value = read_number(before)
    if value is not None:
        return Form("number", canonical(text), value, unit)
    if words_of(text) and (plain != text or re.search(r"[^\W\d_]{4}", plain)):
        return Form("words", canonical(text))
    expression = read_expression(before)
    return expression and Form("expression", canonical(text), expression, unit)


def _multiplied(found: re.Match[str]) -> str:
    """Write 5 million dollars as a power of ten with its unit."""
    number, opened, word, rest = found.groups()
    rest = rest if not opened else rest[1:] if rest.startswith("}") else opened + rest
    return f"{number}*10^{{{_MILLIONS[word]}}}{rest}"


def _split_unit(text: str) -> tuple[str, str]:
    """Return the text before a unit, and the unit or "". A money sign is a unit; so is a known word after a number."""
    money, found = _MONEY.match(text), _UNIT.search(text)
    if money:
        return text[money.end() :], {"€": "euro", "£": "pound", "¥": "yen"}.get(money[0].strip(), "dollar")
    if not found or not found.start() or read_unit(found[1]) is None:
        return text, ""
    before, unit = text[: found.start()].strip(), found[1].strip()
    upright, number = unit.startswith(("\\", "/")), NUMBER.fullmatch(before)
    # After an expression, plain letters are factors unless they make one unit's name: 2\sqrt{3} cm.
    return (before, unit) if upright or number or re.fullmatch("[A-Za-z]{2,}", unit) else (text, "")


def canonical(text: str) -> str:
    """Return the tokens without invisible differences, such as spaces and braces around one token."""
    text = " ".join(TOKEN.findall(_UPRIGHT.sub(r" \1 ", text)))
    text = re.sub(r"\{ (\S+) \}", r"\1", text)
    return re.sub(r"\\begin { [pb]matrix }", r"\\begin{matrix}", text)


def words_of(text: str) -> str:
    """Return the words of a text that has only words, without articles and the case; else ""."""
    plain = _UPRIGHT.sub(r" \1 ", text).strip().removesuffix(".")
    words = plain.split()
    if not all(re.fullmatch(r"[^\W_]+(?:['’-][^\W_]+)*", word) for word in words):
        return ""
    return " ".join(word for word in words if len(words) == 1 or word not in ("a", "an", "the", "The")).casefold()


# ---------------------------------------------------------------------------------------------- numbers

_GROUPED = r"(?:[1-9][0-9]{0,2}+(?:(?:,[0-9]{3})++|(?:\ [0-9]{3})++)|[0-9]++)"  # 1000 1,000 1 000
_ARGUMENT = rf"(?:\{{\s*+[+-]?\s*+{_GROUPED}\s*+\}}|[0-9])"  # of \frac: {12}, or one bare digit
NUMBER = forward(
    rf"""(?P<sign>[+-]?)\s*+
    (?: (?:(?P<mixed>[0-9]++)\s*+)?\\[dt]?frac\s*+(?P<top>{_ARGUMENT})\s*+(?P<bottom>{_ARGUMENT})
      | (?:(?P<plain_mixed>[0-9]++)\ ++)?(?P<over>{_GROUPED})\s*+/\s*+(?P<under>{_GROUPED})
      | (?=\.?[0-9])(?P<whole>{_GROUPED})?
        (?:\.(?P<decimals>[0-9]*+)(?:\\overline\s*+\{{(?P<again>[0-9]++)\}})?)?
        (?: [eE](?P<e>[+-]?[0-9]++)
          | \s*+(?:\*|x|\\times|\\cdot)\s*+10\s*+\^\s*+(?P<power>[+-]?[0-9]++|\{{\s*+[+-]?[0-9]++\s*+\}}) )?
    )
    \s*+(?P<percent>\\?%)?""",
    re.VERBOSE,
)


def read_number(text: str) -> Fraction | None:
    """Return the exact value of one number, None for anything else. x/0 is no number."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    over, under = match["top"] or match["over"], match["bottom"] or match["under"]
    if over:
        if not (below := _integer(under)):
            return None
        value = _integer(match["mixed"] or match["plain_mixed"] or "0") + Fraction(_integer(over), below)
    else:
        decimals, again = match["decimals"] or "", match["again"] or ""
        digits, exponent = (match["whole"] or "") + decimals, _integer(match["e"] or match["power"] or "0")
        # Without the bound, 1e999999999 would be computed to its last digit.
        if not digits + again or abs(exponent) > MAX_EXPONENT:
            return None
        repeated = Fraction(int(again), 10 ** len(again) - 1) if again else 0
        value = (_integer(digits or "0") + repeated) * Fraction(10) ** (exponent - len(decimals))
    value = -value if match["sign"] == "-" else value
    return value / 100 if match["percent"] else value


def _integer(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text))
