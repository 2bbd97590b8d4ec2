r"""verifiers/math.py: what does an answer say? LaTeX or plain text, read into a `Form`.

What is drawn alike is read alike: _TIDY and _DRAWN list what is rewritten before anything is read. Then, from the
outside in: lists, unions, \pm, relations, brackets, and what has no parts: numbers with units, options, words, bases.
An answer has at most MAX_ANSWER characters, MAX_DEPTH brackets in each other and MAX_PARTS parts. Some patterns here
can backtrack: a model's text meets them in a worker, within the time limit.
"""

import functools
import math
import re
from fractions import Fraction
from typing import Any, NamedTuple

from verifiers.numerals import NUMBER, read_number
from verifiers.units import UPRIGHT, read_unit
from verifiers.verdict import MAX_ANSWER, forward

MAX_DEPTH = 16
MAX_PARTS = 64

# A decimal stands for a number that is not whole if they agree to this share of it: 0.333333 for 1/3.
TOLERANCE = Fraction(1, 10**6)


class Form(NamedTuple):
    r"""A math answer as it was read.

    kind         value                  mark
    number       Fraction, or infinity  its unit
    expression   -                      its unit        2\pi, x^2+1, \sqrt{5}
    text         its words                              Evelyn
    option       its letter                             \text{(C)}
    base         its digits             the base        204_5
    tuple        (Form, ...)            the brackets    (1,2), [0,1), a matrix and its rows
    list         (Form, ...)            "" or "{}"      1,2 and {1,2}, x<1 or x>3, unions: the order does not count
    chain        (Form, ...)            -               2+3=5: all of them are claimed
    relation     -                      -               x-2y=3, y\ge x
    """

    kind: str
    text: str
    value: Any = None
    mark: str = ""
    name: str = ""  # x, of x=5
    source: str = ""  # x=5
    rounded: bool = False  # written as a decimal


_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_FUNCTION = "sin|cos|tan|cot|arcsin|arccos|arctan|ln|log|exp|pi"
# What is drawn alike. In this order; `text` is at most MAX_ANSWER long, so none of these can take long.
_TIDY: list[tuple[re.Pattern[str], Any]] = [(re.compile(pattern), new) for pattern, new in [
    (r"[\s\u00a0]+", " "),
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: f"^{{{found[0].translate(_RAISED)}}}"),
    (r"\\var(epsilon|theta|phi|rho)(?![A-Za-z])", r"\\\1"),
    (r"\\AA(?![A-Za-z])", "Å"),
    (r"\\\\\[[0-9.]+ ?[a-z]{2}\]", r"\\\\\\\\"),
    (r"\\prime(?![A-Za-z])", "'"),
    (r"\^\s*(?:\{\s*('[' ]*)\}|(?='))", r"\1"),
    (r"\\f?boxed\s*\{([^{}]*)\}", r"\1"),
    (r"\\(?:left|right|middle|[bB]igg?[lr]?|displaystyle|textstyle|limits|rm|bf|it)(?![A-Za-z])|\\right\.", ""),
    (r"(?<=[0-9])(?:\{,\}|,\\! ?|\\,)(?=[0-9]{3}(?![0-9]))", ""),
    (r"(?:(?<!\\)\\[,;:> !]|[\s~]|\\q?quad(?=x)|\\(?:q?quad|enspace|thinspace)(?![A-Za-z]))+", " "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\{\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*\}", r"\\binom{\1}{\2}"),
    (r"\\(?:mathbf|boldsymbol|bm)\s*\{\s*([A-Za-z])\s*\}|\\(?:hat|vec)\s*\{\s*([ijk])\s*\}", r"\1\2"),
    (r"\\(?:math(?:rm|bf|it|sf|tt|cal)|text(?:bf|it|rm|sf|tt|normal|up)|mbox|hbox|emph|operatorname\*?|boldsymbol)"
     r"(?=\s*\{)", r"\\text"),
    (r"\\\$|\\[()]|\\\[|\\\]|\$|[€£¥₹]|\\(?:pounds|euro)(?![A-Za-z])", ""),
    (r"\\%|\\text\s*\{\s*\\?(?:%|percent(?:age)?|pct)\s*\}|(?<=[0-9}])\s*\b(?:percent(?:age)?|pct)\b", "%"),
    (r"\\text\s*\{\s*(hundred|thousand|million|billion|trillion)\b", r" \1 \\text{"),
    (r"\\text\s*\{\s*\}", ""),
    (r"(?<=\S)[\s,]*(?:(?:\\text\s*\{\s*,?\s*|\b)for (?:all|any|every|each)\b|\\forall(?![A-Za-z]))[^=;]*$", ""),
    (r"(?<=[^\s,({])[\s,]*(\()?\s*(?:\\text\s*\{\s*(?:for|where|with)\s*\}\s*)?"
     r"([A-Za-z])\s*\\in\s*\\(?:mathbb|Bbb)\s*\{?\s*([NZQ])\s*\}?(?(1)\s*\))\s*$", r", \2\\in\\mathbb{\3}"),
    (rf"\\text\s*\{{\s*({_FUNCTION})\s*\}}|(?<![A-Za-z\\])({_FUNCTION})(?![A-Za-z])", r"\\\1\2 "),
    (r"\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\text\s*\{\s*infinity\s*\}|\binfinity\b", r"\\infty "),
    (r"\\text\s*\{([ei])\}", r"\1"),
    (r"(\.[0-9]{0,12}?)([0-9]{1,8}?)\2+(?:\.{3}|…|\\[lc]?dots)", r"\1\\overline{\2}"),
    (r"(?<=[0-9.])\\(?:dot|bar)\s*\{", r"\\overline{"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?(?![A-Za-z])|°", r"\\text{ degree}"),
    (r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s*\^\s*\{?[0-9]\}?)?)\s*([({])?\s*([0-9.]+)\s*\\text\{ degree\}(?(2)\s*[)}])",
     r"\1(\\frac{\3\\pi}{180})"),
    (r"(?<=[0-9])\s*(?:\\text\s*\{\s*to\s*\}|to)\s*(?=[0-9])", ":"),
    (r"(?i)^\s*(?:\\text\s*\{)?\s*(?:there (?:is|are|exists?) )?(?:no solutions?|(?:the )?empty set)[\s.}]*$",
     r"\\{\\}"),
    (r"^(\s*(?:\\text\s*\{\s*)?)(?:[Oo]ption|[Cc]hoice)\s+(?=\(?[A-J]\b)", r"\1"),
    (r"^(\s*(?:\\text\s*\{\s*)?)([A-J])\)", r"\1(\2)"),
    (r"\\pmod\s*([0-9A-Za-z])|\(\s*(?:\\b?mod|\\text\s*\{\s*mod\s*\}|mod)\s*([0-9A-Za-z]+)\s*\)", r"\\pmod{\1\2}"),
    (r"\\text\s*\{\s*(?:,?\s*and|,?\s*or|,)\s*\}|,?\s*(?:(?<![A-Za-z])|(?<=\W))\b(?:and|or)\b(?=\s|\()|(?<=\))or(?=\()",
     ","),
    (r"\\leq(?:slant)?(?![A-Za-z])|<=|≤", r"\\le "),
    (r"\\geq(?:slant)?(?![A-Za-z])|>=|≥", r"\\ge "),
    (r"\\neq?(?![A-Za-z])|!=|≠", r"\\ne "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:approx|simeq|sim)(?![A-Za-z])|≈", r"\\approx "),
    (r"\\(?:emptyset|varnothing)(?![A-Za-z])|∅", r"\\{\\}"),
    (r"\\langle(?![A-Za-z])", "("),
    (r"\\rangle(?![A-Za-z])", ")"),
    (r"\\l[vV]ert(?![A-Za-z])|\\r[vV]ert(?![A-Za-z])|\\[vm]id(?![A-Za-z])", "|"),
    (r"\\(?:mathbb|Bbb)\s*\{?\s*R\s*\}?|ℝ", r"(-\\infty,\\infty)"),
    (r"(?<![0-9A-Za-z.}])\+\s*\\infty", r"\\infty"),
]]  # fmt: skip
_DRAWN = str.maketrans({"−": "-", "–": "-", "×": "\\times ", "÷": "/", "·": "\\cdot ", "⋅": "\\cdot ", "π": "\\pi ",
                        "∞": "\\infty ", "√": "\\sqrt ", "±": "\\pm ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ",
                        "µ": "μ", "\u2009": " ", "\u202f": " ", "′": "'",
                        "℃": "°C", "½": "\\frac{1}{2}", "¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}"})  # fmt: skip
SYMBOL = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENS = frozenset(["(", "[", "{", "\\{", "\\begin", "\\lfloor", "\\lceil"])
_CLOSES = frozenset([")", "]", "}", "\\}", "\\end", "\\rfloor", "\\rceil"])
_RELATIONS = frozenset(["=", "<", ">", "\\le", "\\ge", "\\ne", "\\approx", "\\in", "\\equiv"])
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


@functools.lru_cache(maxsize=4096)  # one gold answer is read for each of N rollouts
def read_math(text: str) -> Form | None:
    """The answer that a text is; None if there is none, or it is too long, too deep or not balanced."""
    if len(text) > MAX_ANSWER:
        return None
    text = text.translate(_DRAWN)
    if "\\begin" not in text:
        text = text.replace("\\\\", "\\")
    for pattern, new in _TIDY:
        text = pattern.sub(new, text)
    depth = deepest = 0
    for symbol in SYMBOL.findall(text):
        depth += (symbol in _OPENS) - (symbol in _CLOSES)
        deepest = max(deepest, depth)
        if depth < 0:
            return None
    return _read(text) if depth == 0 and deepest <= MAX_DEPTH else None


def _read(text: str) -> Form | None:
    text = re.sub(r"^(?:\s*(?:=|\\approx(?![A-Za-z])|[,;:]))+", "", text).strip(" ,;:").rstrip(". ")
    while text.startswith("{") and _spans(text):
        text = text[1:-1].strip(" ")
    upright = UPRIGHT.fullmatch(text)
    if upright and re.match(r"\s*[-+]?[0-9.]", upright[1]):
        text = upright[1].strip()
    if not text:
        return None
    number = read_quantity(text)
    # A number without a value, such as 1/0 or 1e999999999, is nothing else either.
    if number is not None or NUMBER.fullmatch(text):
        return number
    parts, found = _split(text, {";"})
    if found:
        grouped = [f"({part})" if len(parts) <= MAX_PARTS and _split(part, {","})[1] else part for part in parts]
        return _list(text, grouped)
    for separators in ({","}, {"\\cup"}):
        parts, found = _split(text, separators)
        if found:
            return _list(text, parts)
    if _EITHER.search(text):
        return _list(text, [_with_sign(text, 0), _with_sign(text, 1)])
    sides, relations = _split(text, _RELATIONS)
    if relations:
        return _relation(text, sides, relations)
    return _bracketed(text) or _leaf(text)


def _with_sign(text: str, place: int) -> str:
    signs = {"\\pm": "+-", "\\mp": "-+"}
    return _EITHER.sub(lambda sign: signs[sign[0]][place], text).removeprefix("+")


def _split(text: str, separators: frozenset[str] | set[str]) -> tuple[list[str], list[str]]:
    """The pieces between separators that stand outside of all brackets, and those separators."""
    pieces, found, depth, start, at = [], [], 0, 0, 0
    for symbol in SYMBOL.findall(text):
        depth += (symbol in _OPENS) - (symbol in _CLOSES)
        if depth == 0 and symbol in separators:
            pieces.append(text[start:at])
            found.append(symbol)
            start = at + len(symbol)
        at += len(symbol)
    return [*pieces, text[start:]], found


def _spans(text: str) -> bool:
    """Does the first bracket close with the last symbol?"""
    depth, symbols = 0, SYMBOL.findall(text)
    for position, symbol in enumerate(symbols, 1):
        depth += (symbol in _OPENS) - (symbol in _CLOSES)
        if depth == 0:
            return position == len(symbols) and position > 1
    return False


def _list(text: str, parts: list[str], mark: str = "") -> Form | None:
    if len(parts) > MAX_PARTS:
        return None
    forms = []
    for part in parts:
        form = _read(part)
        if form is None:
            if part.strip(" ."):
                return None
        elif form.kind == "list" and not form.mark:
            forms += form.value
        else:
            forms.append(form)
    names = [form.name for form in forms]
    period = len(set(names))
    if all(names) and 1 < period < len(names) and names == (names[:period] * len(names))[: len(names)]:
        # x=1,y=2 or x=3,y=4 is two points, (1,2) and (3,4).
        groups = [sorted(forms[at : at + period], key=lambda form: form.name) for at in range(0, len(forms), period)]
        forms = [Form("tuple", f"({','.join(form.text for form in group)})", tuple(group), "()") for group in groups]
    return forms[0] if len(forms) == 1 and not mark else Form("list", _key(text), tuple(forms), mark)


_EITHER = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_ARGUMENTS = re.compile(r"(?<=[A-Za-z}'])\([^()]*\)|_\{[^{}]*\}|_[A-Za-z0-9]|'")
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
_NAME = re.compile(r"(?=.*[A-Za-z])(?:\\?[A-Za-z]|\\[|]|[|(){}, :])+")


def _is_name(text: str) -> bool:
    r"""x, f(x), S_n, \angle ABC, |AB|, (p,q), \frac{NO}{BO}: what can be asked for, with no number or sign in it."""
    return "\\infty" not in text and _NAME.fullmatch(_ARGUMENTS.sub("", text).strip()) is not None


def _relation(text: str, sides: list[str], relations: list[str]) -> Form | None:
    if all(relation in ("=", "\\approx", "\\in") for relation in relations):
        name = _key(sides[0]) if _is_name(sides[0]) else ""
        # What is asked for may be an expression, if more than its value follows: m+n=2+3=5.
        question = sides[0] if len(sides) > 2 and _VARIABLE.search(sides[0]) else None
        stated = [side for side in sides if not (_is_name(side) or side is question)]
        if "\\approx" in relations:
            exact = [side for side in sides[: relations.index("\\approx") + 1] if not _is_name(side)]
            stated = exact or stated
        if not name and len(sides) == 2 and len(stated) == 2 and _VARIABLE.search(UPRIGHT.sub("", text)):
            return Form("relation", _key(text))
        read = [_read(side) for side in (stated or sides[-1:])[: MAX_PARTS + 1]]
        forms = [form for form in read if form is not None]
        if len(forms) < len(read) or len(forms) > MAX_PARTS:
            return None
        if len(forms) > 1:
            return Form("chain", _key(text), tuple(forms), name=name)
        return forms[0]._replace(name=name, source=_key(text))
    names = [side for side in sides if _is_name(side)]
    if len(names) == 1 and all(relation in _FLIPPED for relation in relations):
        interval = _interval(sides, relations, names[0])
        if interval is not None:
            return interval._replace(name=_key(names[0]), source=_key(text))
    return Form("relation", _key(text))


def _interval(sides: list[str], relations: list[str], name: str) -> Form | None:
    """x>5 and 5<x as (5,∞), 1<x≤2 as (1,2]."""
    if len(sides) == 2:
        bound = sides[1] if sides[0] == name else sides[0]
        relation = relations[0] if sides[0] == name else _FLIPPED[relations[0]]
        low, high = (bound, "\\infty") if relation in (">", "\\ge") else ("-\\infty", bound)
        opens = "[" if relation == "\\ge" else "("
        closes = "]" if relation == "\\le" else ")"
    elif len(sides) == 3 and sides[1] == name and len({relation in ("<", "\\le") for relation in relations}) == 1:
        low, high = sides[0], sides[2]
        if relations[0] in (">", "\\ge"):
            low, high, relations = high, low, relations[::-1]
        opens = "[" if relations[0] in ("\\le", "\\ge") else "("
        closes = "]" if relations[1] in ("\\le", "\\ge") else ")"
    else:
        return None
    return _bracketed(f"{opens}{low.strip()},{high.strip()}{closes}")


_MATRIX = re.compile(r"\\begin\{(?:[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{[A-Za-z]+\}", re.DOTALL)


def _bracketed(text: str) -> Form | None:
    opened, closed = text[0], text[-1]
    if opened in "([" and closed in ")]" and _spans(text):
        inner = text[1:-1].strip()
        for separators in ({";"}, {","}):
            parts, found = _split(inner, separators)
            if found:
                return _tuple(text, parts, opened + closed)
        return _bracketed(inner) if inner.startswith("\\begin") else _read(inner) if opened + closed == "()" else None
    if text.startswith("\\{") and text.endswith("\\}") and _spans(text):
        inner = text[2:-2].strip()
        such = re.fullmatch(r"([^|:]*)([|:]?)(.*)", inner)
        head, mark, condition = such.groups() if such else (inner, "", "")
        if mark:
            return _read(condition) if _is_name(head.partition("\\in")[0]) else None
        return _list(text, _split(inner, {";"} if ";" in inner else {","})[0], "{}")
    matrix = _MATRIX.fullmatch(text)
    if matrix and "\\begin" not in matrix[1]:
        rows = [row for row in _split(matrix[1], {"\\\\"})[0] if row.strip()]
        return _tuple(text, [f"({row.replace('&', ',')})" if "&" in row else row for row in rows], "matrix")
    return None


def _tuple(text: str, parts: list[str], mark: str) -> Form | None:
    forms = [_read(part) for part in parts[: MAX_PARTS + 1]]
    return None if None in forms or len(forms) > MAX_PARTS else Form("tuple", _key(text), tuple(forms), mark)


_MAGNITUDES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MAGNITUDE = re.compile(r"(hundred|thousand|million|billion|trillion)\b")
_BASE = re.compile(r"([0-9A-Za-z]*[0-9][0-9A-Za-z]*)\s*_\s*(?:\{\s*([0-9A-Za-z]+)\s*\}|([0-9]+))")
_BASES = ["", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_CLOCK = re.compile(r"([0-9]{1,2})\s*:\s*([0-9]{2})\s*([AaPp])\.?\s?[Mm]\.?")
_PLAIN_UNIT = re.compile(r"(?<=[0-9}i])\s+([A-Za-z]{2}[A-Za-z/^0-9 ]*)$")
# With what the option says behind it, but not with another option.
OPTION = re.compile(r"\(([A-J])\)(?!.*\([A-J]\)).*|([A-J])(?:[).:](?!.*\b[A-J][).:]).*)?")
_UNIT_BEHIND = forward(
    r"((?:\s*+(?:(?:\\cdot|/)\s*+)?\\text\s*+\{(?:[^{}]|\{[^{}]*+\})*+\}"
    r"(?:\s*+\^\s*+(?:\{\s*+-?[0-9]++\s*+\}|-?[0-9]))?)++)\s*+$"
)


def read_quantity(text: str) -> Form | None:
    """A number, alone or with a unit behind it."""
    read = read_number(text)
    if read is not None:
        return Form("number", _key(text), read, rounded="." in text)
    if text in ("\\infty", "-\\infty"):
        return Form("number", text, math.inf if text == "\\infty" else -math.inf)
    match = NUMBER.match(text)
    if match is None:
        return None
    unit = text[match.end() :].strip() if match.end() else ""
    magnitude = _MAGNITUDE.match(unit)
    if magnitude:
        text = f"{text[: match.end()].strip()}*10^{{{_MAGNITUDES[magnitude[1]]}}}{unit[magnitude.end() :]}"
        return read_quantity(text)
    if not unit or unit[0] in "+-*,;=<>(^_" or read_unit(unit) is None:
        return None
    read = read_number(text[: match.end()].strip())
    return None if read is None else Form("number", _key(text), read, unit, rounded="." in match[0])


def _leaf(text: str) -> Form | None:
    words = UPRIGHT.sub(r"\1", text).strip()
    base = _BASE.fullmatch(words)
    if base:
        named = base[2] or base[3]
        return Form("base", _key(text), base[1], str(_BASES.index(named)) if named in _BASES else named)
    clock = _CLOCK.fullmatch(words)
    if clock:
        half = {"a": "antemeridiem", "p": "postmeridiem"}[clock[3].lower()]
        return Form("expression", f"{clock[1]}:{clock[2]}", mark=f"\\text{{{half}}}")
    option = OPTION.fullmatch(words)
    if option and (option[1] or len(words) == 1 or words[1:2] in ").:"):
        return Form("option", _key(text), option[1] or option[2])
    plain = re.sub(r"[\s'’\"“”.,:;!?()/-]+", " ", words).strip()
    # Three letters and less are a product, such as abc, unless they stand upright.
    worded = words != text or re.search(r"[^\W\d_]{4}", words) or plain.casefold() in ("yes", "no", "odd")
    if worded and re.fullmatch(r"[^\W\d_]+(?: [^\W\d_]+)*", plain):
        return Form("text", _key(text), words_of(text))
    # A sentence, or 2-methylpropane.
    sentence = len(re.findall(r"[^\W\d_]{2,}", words)) > 2 or re.match(r"[0-9]+-[^\W\d_]{4}", words)
    if worded and sentence and not re.search(r"[\\+*^=]", words):
        return Form("text", _key(text), words_of(text))
    unit = _UNIT_BEHIND.search(text) or _PLAIN_UNIT.search(text)
    if unit and unit[1].strip() and unit.start() and read_unit(unit[1]):
        form = _read(text[: unit.start()])
        return form._replace(mark=unit[1].strip()) if form and form.kind in ("number", "expression") else form
    return Form("expression", _key(text), rounded=re.search(r"[0-9]\.[0-9]", text) is not None)


def _key(text: str) -> str:
    """The text without what does not show: equal keys are equal answers."""
    text = re.sub(r"_\s*(\\text\s*\{[^{}]*\}|\\[A-Za-z]+)", r"_{\1}", text)
    text = UPRIGHT.sub(r" \1 ", text)
    text = re.sub(r"(?<![A-Za-z\\])\\(frac|binom|sqrt(?:\[[0-9]\])?)\s*([0-9])(?![0-9.])", r"\\\1{\2}", text)
    text = re.sub(r"(\\(?:frac|binom)\{[0-9A-Za-z]+\})\s*([0-9A-Za-z])", r"\1{\2}", text)
    text = re.sub(r"([_^])\s*([0-9](?![0-9.])|[A-Za-z](?![A-Za-z0-9]))", r"\1{\2}", text)
    text = re.sub(r"\s+", " ", text).strip(" .")
    text = re.sub(r"(?<![A-Za-z])([A-Za-z]) (?=[A-Za-z](?![A-Za-z]))", r"\1", text)
    return re.sub(r" (?![A-Za-z0-9])|(?<![A-Za-z0-9]) |(?<=[0-9]) (?=[A-Za-z])|(?<=[A-Za-z]) (?=[0-9])", "", text)


def words_of(text: str) -> str:
    words = re.findall(r"[^\W_]+", UPRIGHT.sub(r" \1 ", text).casefold())
    return " ".join(word for word in words if word not in ("a", "an", "the") or len(words) == 1)
