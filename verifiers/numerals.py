r"""verifiers/math.py: what number does a text say? One number, plain or LaTeX, as an exact fraction.

1000  1,000  1 000  1{,}000      thousands in groups of three (latex.py takes out what LaTeX puts between them)
0.5  .5  5.  0.\overline{3}      decimals, also repeating ones
3/4  \frac{3}{4}  \frac34        fractions of integers
1 1/2  1\frac{1}{2}              mixed numbers: one and a half
6.02e23  6.02 \times 10^{23}     powers of ten, up to MAX_EXPONENT either way
50%                              one half, and never 50
-5  +5                           each with an optional sign
"""

import re
from fractions import Fraction

from verifiers.verdict import forward

MAX_EXPONENT = 1_000

_GROUPED = r"(?:[1-9][0-9]{0,2}+(?:(?:,[0-9]{3})++|(?:\ [0-9]{3})++)|[0-9]++)"  # 1000 1,000 1 000
_ARGUMENT = rf"(?:\{{\s*+[+-]?\s*+{_GROUPED}\s*+\}}|[0-9])"  # of \frac: {12}, or one bare digit
NUMBER = forward(
    rf"""(?P<sign>[+-]?)\s*+
    (?: (?:(?P<mixed>[0-9]++)\s*+)?\\frac\s*+(?P<top>{_ARGUMENT})\s*+(?P<bottom>{_ARGUMENT})
      | (?:(?P<plain_mixed>[0-9]++)\ ++)?(?P<over>{_GROUPED})\s*+/\s*+(?P<under>{_GROUPED})
      | (?P<lone>10)\s*+\^\s*+(?P<lone_power>[+-]?[0-9]|\{{\s*+[+-]?[0-9]++\s*+\}})
      | (?P<whole>{_GROUPED})?(?:(?P<point>\.)(?P<decimals>[0-9]*+)(?:\\overline\s*+\{{(?P<again>[0-9]++)\}})?)?
        (?: [eE](?P<e>[+-]?[0-9]++)
          | \s*+(?:\*|x|\\times|\\cdot)\s*+10\s*+\^\s*+(?P<power>[+-]?[0-9]++|\{{\s*+[+-]?[0-9]++\s*+\}}) )?
    )
    \s*+(?P<percent>%)?""",
    re.VERBOSE,
)


def read_number(text: str) -> Fraction | None:
    """The exact value of one number, or None if the text is anything else. x/0 is no number."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    over, under = match["top"] or match["over"], match["bottom"] or match["under"]
    value = _ratio(match["mixed"] or match["plain_mixed"] or "0", over, under) if over else _decimal(match)
    if value is None:
        return None
    if match["sign"] == "-":
        value = -value
    return value / 100 if match["percent"] else value


def _ratio(whole: str, over: str, under: str) -> Fraction | None:
    denominator = _integer(under)
    return _integer(whole) + Fraction(_integer(over), denominator) if denominator else None


def _decimal(match: re.Match[str]) -> Fraction | None:
    decimals, again = match["decimals"] or "", match["again"] or ""
    digits = (match["lone"] and "1") or (match["whole"] or "") + decimals
    exponent = _integer(match["e"] or match["power"] or match["lone_power"] or "0")
    # Without the bound, 1e999999999 would be computed to its last digit.
    if not digits + again or abs(exponent) > MAX_EXPONENT:
        return None
    repeated = Fraction(int(again), 10 ** len(again) - 1) if again else 0
    return (_integer(digits or "0") + repeated) * Fraction(10) ** (exponent - len(decimals))


def _integer(text: str) -> int:
    return int(re.sub(r"[^0-9-]", "", text))
