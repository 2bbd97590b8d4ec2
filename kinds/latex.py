r"""Kind "math": reads a text, LaTeX or plain, completely into a `Form`. From the outside in: lists and unions, \pm,
relations, brackets, then numbers, units, options, words and expressions.

`_TIDY` rewrites different LaTeX for the same drawing. An answer has at most MAX_ANSWER characters. Some patterns here
can backtrack: a model's text meets them in a worker, within the time limit.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from kinds.algebra import LETTER, TOKEN, constant, read_expression
from kinds.patterns import forward
from verify import MAX_ANSWER

MAX_PARTS, MAX_DEPTH, MAX_EXPONENT = 64, 16, 1_000


class Form(NamedTuple):
    r"""An answer as it was read. `text` is canonical: equal texts are equal answers.

    kind         value                   mark
    value        Expression              its unit          5, 2\pi, x^2+1
    words        their letters           -                 Evelyn, (C); none for \infty, \mathbb{Z} and \{\}
    tuple        (Form, ...)             the brackets      (1,2), [0,1)
    list         (Form, ...)             "" or "{}"        1,2 and {1,2}, x<1 or x>3, unions: any order
    equation     (Form, ...)             the relations     2+3=5: the sides
    name         Expression              -                 x, f(x): a side of an equation
    relation     (left, right)           its sign          y\ge x
    other        -                                         no form of these: only the same text is equal
    """

    kind: str
    text: str
    value: Any = None
    mark: Any = ""
    name: str = ""  # x, of x=5


_DRAWN = str.maketrans({"−": "-", "–": "-", "×": r"\times ", "÷": "/", "·": r"\cdot ", "⋅": r"\cdot ", "π": r"\pi ",
                        "∞": r"\infty ", "√": r"\sqrt ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ", "µ": "μ",
                        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "′": "'", "½": r"\frac{1}{2}", "≤": r"\le ",
                        "≥": r"\ge ", "≠": r"\ne ", "∅": r"\emptyset "})  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_NAMES = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|ln|log|exp|pi|sqrt"
_TIDY: list[tuple[re.Pattern[str], Any]] = [(re.compile(pattern), new) for pattern, new in [
    (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: f"^{{{found[0].translate(_RAISED)}}}"),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle)(?![A-Za-z])\.?", ""),
    (r"(?<=[0-9])(?:\{,\}|,\\! ?|\\,)(?=[0-9]{3}(?![0-9]))", ""),
    (r"(?:(?<!\\)\\[,;:!> ]|[\s~]|\\q?quad(?![A-Za-z]))+", " "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\var(epsilon|theta|phi|rho)(?![A-Za-z])", r"\\\1"),
    (r"\\(?:math(?:rm|bf|it|sf)|text(?:bf|it|rm|normal)|mbox|operatorname\*?)(?=\s*\{)", r"\\text"),
    (rf"\\text\s*\{{\s*({_NAMES})\s*\}}|(?<![A-Za-z\\])({_NAMES})(?![A-Za-z])", r"\\\1\2 "),
    (r"(\\frac)\s*([0-9A-Za-z])\s*(?=[0-9A-Za-z{\\])", r"\1{\2}"),
    (r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}"),
    (r"(?<![0-9.}])([0-9]+)\s*(\\frac\{[0-9]+\}\{[0-9]+\})", r"(\1+\2)"),
    (r"\^\s*(?:\{\s*(?:\\prime|')\s*\}|\\prime(?![A-Za-z]))", "'"),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", "°"), (r"\\%", "%"),
    (r",?\s*\\text\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z{ ]),?\s+(?:and|or)\s+(?![^{}]*\})", ","),
    (r"\\(le|ge|ne)q(?:slant)?(?![A-Za-z])", r"\\\1 "), (r"<=", r"\\le "), (r">=", r"\\ge "),
    (r"\\lt(?![A-Za-z])", "<"), (r"\\gt(?![A-Za-z])", ">"), (r"\\(sin|cos|tan)\s*\^\s*\{\s*-1\s*\}", r"\\arc\1 "),
    (r"^(\s*(?:\\text\s*\{)?\s*)([A-J])\)", r"\1(\2)"), (r"\\emptyset|\\varnothing", r"\\{\\}"),
    (r"\\langle(?![A-Za-z])", "("), (r"\\rangle(?![A-Za-z])", ")"), (r"\{[pb]matrix\}", "{matrix}"),
    (r"^\s*\\mathbb\s*\{?\s*R\s*\}?\s*$", r"(-\\infty,\\infty)"), (r"(?<![0-9A-Za-z.}])\+\s*\\infty", r"\\infty"),
]]  # fmt: skip
_OPENS = frozenset(["(", "[", "{", r"\{", r"\begin"])
_CLOSES = frozenset([")", "]", "}", r"\}", r"\end"])
FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_RELATIONS = frozenset(["=", r"\ne", r"\in", *FLIPPED])
_UPRIGHT = re.compile(r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}")


@functools.lru_cache(maxsize=4096)  # one gold is read for each of N rollouts
def read_math(text: str) -> Form | None:
    """Read a text; None if it is empty, too long, too deep, or its brackets do not balance."""
    if len(text) > MAX_ANSWER:
        return None
    text = text.translate(_DRAWN)
    text = text if r"\begin" in text else text.replace(r"\\", "\\")
    text = re.sub(r"(?<!\\)\$([^$]*)(?<!\\)\$|^\\\((.*)\\\)$", r" \1\2 ", text).strip()
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


def canonical(text: str) -> str:
    """Return the tokens without invisible differences, such as spaces and braces around one token."""
    text = " ".join(TOKEN.findall(_UPRIGHT.sub(r" \1 ", text)))
    return re.sub(r"\{ ?([^\s{}]+) ?\}", r"\1", text)


def _read(text: str) -> Form:
    text = text.strip()
    text = text[:-1].strip() if text.endswith(".") and not text.endswith("..") else text
    while (inner := re.sub(r"^\\f?boxed\s*(?=\{)", "", text)).startswith("{") and _spans(inner):
        text = inner[1:-1].strip()
    text = re.sub(r"^\\text\s*\{\s*([-+0-9.][^{}]*)\}$", r"\1", text).strip()
    return (_read_parts(text) if text else None) or Form("other", canonical(text))


def _read_parts(text: str) -> Form | None:
    for separators in ({",", ";"}, {r"\cup"}):
        parts = split(text, separators)[0]
        if len(parts) > 1 and not NUMBER.fullmatch(text):
            return _parts("list", text, parts)
    if re.search(r"\\(?:pm|mp)(?![A-Za-z])", text):
        both = [text.replace("\\pm", a).replace("\\mp", b).removeprefix("+") for a, b in ("+-", "-+")]
        return _parts("list", text, both)
    sides, signs = split(text, _RELATIONS)
    return _relation(text, sides, signs) if signs else _bracketed(text) or _leaf(text)


def split(text: str, separators: Any) -> tuple[list[str], list[str]]:
    """Split at separators outside of all brackets. Returns the parts, and the separators."""
    found = [match for match, depth in _depths(text) if depth == 0 and match[0] in separators]
    starts, ends = [0, *(match.end() for match in found)], [*(match.start() for match in found), len(text)]
    return [text[a:b].strip() for a, b in zip(starts, ends, strict=True)], [match[0] for match in found]


def _spans(text: str) -> bool:
    """Does the first bracket close with the last token?"""
    return next((match.end() == len(text) for match, depth in _depths(text) if depth == 0), False)


def _parts(kind: str, text: str, parts: list[str], mark: str = "") -> Form | None:
    """Read a list or tuple, None if a part is unreadable. A list in a list, such as 1,\\pm 2, gives its parts."""
    forms = tuple(map(_read, parts)) if len(parts) <= MAX_PARTS and all(parts) else ()
    if not forms or any(form.kind == "other" for form in forms):
        return None
    if kind == "list":
        forms = tuple(
            one for form in forms for one in (form.value if (form.kind, form.mark) == ("list", "") else [form])
        )
    return Form(kind, canonical(text), forms, mark)


# A side of an equation that may stand for the answer: x, f(x), \angle ABC, (x,y)
_NAME = re.compile(
    rf"{LETTER}|[fghpqFGHPQST](?:_[A-Za-z0-9])?\s*\(\s*[A-Za-z0-9](?:\s*,\s*[A-Za-z0-9])*\s*\)"
    r"|(?:\\(?:angle|triangle|overline)\s*)?\{?\s*[A-Z]{1,4}\s*\}?|\(\s*[a-z](?:\s*,\s*[a-z])+\s*\)"
)


def _relation(text: str, sides: list[str], signs: list[str]) -> Form | None:
    if not all(sides) or len(sides) > MAX_PARTS:
        return None
    named = [_NAME.fullmatch(side) and side not in ("e", "i") for side in sides]
    forms = tuple(Form("name", canonical(side), read_expression(side)) if name else _read(side)
                  for side, name in zip(sides, named, strict=True))  # fmt: skip
    names = [at for at, form in enumerate(forms) if form.kind == "name"]
    if any(form.kind == "other" for form in forms):
        return None
    if set(signs) == {"="} or (signs == [r"\in"] and names == [0]):
        return Form("equation", canonical(text), forms, tuple(signs), forms[0].text if names[:1] == [0] else "")
    if len(names) == 1 and all(sign in FLIPPED for sign in signs):
        interval = _interval(sides, signs, sides[names[0]])
        if interval is not None:
            return interval._replace(name=forms[names[0]].text, text=canonical(text))
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
    return _parts("tuple", "", [sides[0], sides[2]], brackets)


def _bracketed(text: str) -> Form | None:
    if text[0] in "([" and text[-1] in ")]" and _spans(text):
        inner, mark = text[1:-1].strip(), text[0] + text[-1]
        parts = split(inner, {",", ";"})[0]
        if len(parts) > 1:
            return _parts("tuple", text, parts, mark)
        return _read(inner) if mark == "()" and inner and not _OPTION.fullmatch(text) else None
    if text.startswith(r"\{") and text.endswith(r"\}") and _spans(text) and (inner := text[2:-2].strip()):
        return _parts("list", text, split(inner, {","})[0], "{}")
    return None


_OPTION = re.compile(r"(?:[Oo]ption |[Cc]hoice )?(?:\(([A-J])\)|([A-J])\.?)")  # (C), C, C., Option C


def _leaf(text: str) -> Form | None:
    if re.fullmatch(r"-?\\infty|\\mathbb ?\{? ?[A-Z] ?\}?|\\\{ ?\\\}", text):
        return Form("words", canonical(text))
    plain = _UPRIGHT.sub(r"\1", text).strip().removesuffix(".")
    option = _OPTION.fullmatch(plain)
    if option:
        return Form("words", canonical(text), option[1] or option[2])
    before, unit = _split_unit(text)
    number = read_number(before)
    if number is not None:
        return Form("value", canonical(text), constant(number, "." in before), unit)
    words = re.findall(r"[^\W_]+(?:['’-][^\W_]+)*|\S", plain)
    if all(word[0].isalnum() for word in words) and (plain != text or re.search(r"[^\W\d_]{4}", plain)):
        named = [word for word in words if len(words) == 1 or word.casefold() not in ("a", "an", "the")]
        return Form("words", canonical(text), "".join(named).casefold())
    expression = read_expression(before)
    return expression and Form("value", canonical(text), expression, unit)


# ------------------------------------------------------------------------------------------------ units

_WITH_PREFIX = "m g s A K mol N J W Pa Hz C V Ω F T Wb H L M eV cal bar"
_OTHER = (
    "min h hr hour day week month year second rad atm mmHg Å in inch inches ft feet mi mile lb pound ° celsius mph "
    "meter kilometer centimeter gram kilogram unit dollar cent way people student point apple ohm"
)
_UNITS = {prefix + unit for prefix in ["", *"nμmckMG"] for unit in _WITH_PREFIX.split()} | {*_OTHER.split()}
_FACTOR = forward(r"[\s*·]*+(/?)[\s(]*+(°|[A-Za-zμΩÅ]++)(?:\s*+\^\s*+\{?\s*+(-?[0-9])\s*+\}?)?[\s)]*+")
# \text{ cm}^2, °, or plain: cm^2, m/s, \mu m
_UNIT = forward(
    r"(?<=[0-9}\])a-z!%])((?:\s*+(?:(?:\\cdot|/)\s*+)?\\text\s*+\{(?:[^{}]|\{[^{}]*+\})*+\}"
    r"(?:\s*+\^\s*+(?:\{\s*+-?[0-9]\s*+\}|-?[0-9]))?)++|(?<=[0-9])\s*+°\s*+C?"
    r"|(?<=[0-9}])\s++(?:\\mu|\\Omega|\\cdot(?!s)|[A-Za-zμΩÅ°])(?:\\cdot(?!s)|[A-Za-z0-9μΩÅ°^/*(){} -])*+)$"
)


@functools.lru_cache(maxsize=4096)
def read_unit(text: str) -> frozenset[tuple[str, int]] | None:
    """Return the powers of each unit: m/s^2, km h^{-1}, miles per hour, square meters; None for an unknown word.

    Everything after a "/" is below it: J/mol K is J/(mol K).
    """
    for pattern, new in ((_UPRIGHT, r" \1 "), (r"\\cdot(?!s)", " "), (r"\\Omega", "Ω"), (r"\\mu\s*", "μ"),
                         (r"\bper\b", "/"), (r"(?:degrees?|°) ?(?:C\b|[Cc]elsius)", "celsius"), ("degrees?", "°"),
                         (r"\bsquare ([A-Za-z]+)", r"\1^2"), (r"\bcubic ([A-Za-z]+)", r"\1^3")):  # fmt: skip
        text = re.sub(pattern, new, text)
    powers: Counter[str] = Counter()
    at, sign = 0, 1
    while match := _FACTOR.match(text, at):
        over, name, power = match.groups()
        name = name if name in _UNITS or len(name) < 3 else name.removesuffix("s")
        if name not in _UNITS or (over and sign < 0):
            return None
        at, sign = match.end(), -1 if over else sign
        powers[name] += sign * int(power or 1)
    return frozenset(powers.items()) if powers and at == len(text) else None


def _split_unit(text: str) -> tuple[str, str]:
    r"""Return the text before a unit, and the unit or "": \$5, 5 cm, 2\sqrt{3}\text{ cm}."""
    if re.match(r"\\?\$\s*[0-9.]", text):
        return text.lstrip("\\$ "), "dollar"
    found = _UNIT.search(text)
    if not found or not found.start() or read_unit(found[1]) is None:
        return text, ""
    before, unit = text[: found.start()].strip(), found[1].strip()
    # Plain letters may be factors, unless they make a unit's longer name: 2\sqrt{3} cm.
    upright, one_name = unit.startswith(("\\text", "/")), re.fullmatch("[A-Za-z]{2,}", unit)
    letters = re.fullmatch(r"[A-Za-zμΩ](?: [A-Za-zμΩ])*", unit)
    return (before, unit) if upright or one_name or (NUMBER.fullmatch(before) and not letters) else (text, "")


# ---------------------------------------------------------------------------------------------- numbers

_GROUPED = r"(?:[1-9][0-9]{0,2}+(?:(?:,[0-9]{3})++|(?:\ [0-9]{3})++)|[0-9]++)"  # 1000 1,000 1 000
_ARGUMENT = rf"(?:\{{\s*+[+-]?\s*+{_GROUPED}\s*+\}}|[0-9])"  # of \frac: {12}, or one bare digit
NUMBER = forward(
    rf"""(?P<sign>[+-]?)\s*+
    (?: \\[dt]?frac\s*+(?P<top>{_ARGUMENT})\s*+(?P<bottom>{_ARGUMENT})
      | (?P<over>{_GROUPED})\s*+/\s*+(?P<under>{_GROUPED})
      | (?=\.?[0-9])(?P<whole>{_GROUPED})?(?:\.(?P<decimals>[0-9]*+))?
        (?:[eE](?P<e>[+-]?[0-9]++) | \s*+(?:\*|\\times|\\cdot)\s*+10\s*+\^\s*+(?P<power>[0-9]|\{{[+-]?[0-9]++\}}))?
    )\s*+(?P<percent>\\?%)?""",
    re.VERBOSE,
)


def read_number(text: str) -> Fraction | None:
    """Return the exact value of one number, None for anything else. x/0 is no number."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    over, under = match["top"] or match["over"], match["bottom"] or match["under"]
    decimals, exponent = match["decimals"] or "", _integer(match["e"] or match["power"] or "0")
    # Without the bound, 1e999999999 would be computed to its last digit.
    if abs(exponent) > MAX_EXPONENT or (under and _integer(under) == 0):
        return None
    if over:
        value = Fraction(_integer(over), _integer(under))
    else:
        value = _integer((match["whole"] or "0") + decimals) * Fraction(10) ** (exponent - len(decimals))
    return (-value if match["sign"] == "-" else value) / (100 if match["percent"] else 1)


def _integer(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text))
