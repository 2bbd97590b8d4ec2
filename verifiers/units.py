"""verifiers/science.py: what unit does a text name? A product of powers of units, as a factor times base units.

known     the base units, what is derived from them by definition, and metric prefixes: m/s^2, km h^{-1}, miles per
          hour, square meters. Two of them are compared by dimension and converted exactly
a word    apples, ways: a unit that is compared with nothing
none      whatever changes the number that it stands behind (dozen, squared, percent), and lone letters
"""

import functools
import re
from fractions import Fraction
from typing import NamedTuple

UPRIGHT = re.compile(r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}")


class Unit(NamedTuple):
    """1 of this unit is `scale` of the base units in `dimension`, (name, power) by name; or it is only a word."""

    dimension: tuple[tuple[str, int], ...]
    known: bool
    scale: Fraction = Fraction(1)


_BASE_UNITS = frozenset(
    re.findall(r"\S+", "m kg s A K mol cd rad degree celsius $ euro pound yuan bit antemeridiem postmeridiem")
)
# Exact by definition (SI 2019; the international inch, pound, calorie and atmosphere).
_DERIVED = {
    "g": "0.001 kg", "t": "1000 kg", "N": "kg m s^-2", "J": "N m", "W": "J s^-1", "Pa": "N m^-2", "Hz": "s^-1",
    "C": "A s", "V": "J C^-1", "Ω": "V A^-1", "F": "C V^-1", "T": "kg A^-1 s^-2", "Wb": "T m^2", "H": "Wb A^-1",
    "S": "A V^-1", "L": "0.001 m^3", "l": "L", "M": "mol L^-1", "eV": "1.602176634e-19 J", "cal": "4.184 J",
    "min": "60 s", "h": "3600 s", "hr": "h", "day": "86400 s", "week": "7 day", "year": "365.25 day", "yr": "year",
    "atm": "101325 Pa", "bar": "100000 Pa", "mmHg": "torr", "torr": "101325/760 Pa", "Torr": "torr",
    "Å": "1e-10 m", "in": "0.0254 m", "inch": "in", "ft": "12 in", "foot": "ft", "feet": "ft", "yd": "3 ft",
    "yard": "yd", "mi": "5280 ft", "mile": "mi", "lb": "0.45359237 kg", "Wh": "3600 J", "kph": "km h^-1",
    "mph": "mi h^-1", "ml": "mL", "cc": "cm^3", "sec": "s", "byte": "8 bit", "Bq": "s^-1", "Gy": "J kg^-1",
    "meter": "m", "metre": "m", "second": "s", "minute": "min", "hour": "h", "gram": "g", "tonne": "t",
    "newton": "N", "joule": "J", "watt": "W", "pascal": "Pa", "hertz": "Hz", "coulomb": "C", "volt": "V", "ohm": "Ω",
    "farad": "F", "tesla": "T", "weber": "Wb", "henry": "H", "liter": "L", "litre": "L", "mole": "mol",
    "kelvin": "K", "radian": "rad", "ampere": "A", "amp": "A", "calorie": "cal", "electronvolt": "eV", "angstrom": "Å",
    "atmosphere": "atm", "deg": "degree", "°": "degree", "dollar": "$", "cent": "0.01 $", "RMB": "yuan",
}  # fmt: skip
_PREFIXES = {"f": "1e-15", "p": "1e-12", "n": "1e-9", "μ": "1e-6", "u": "1e-6", "m": "0.001", "c": "0.01", "d": "0.1",
             "k": "1000", "M": "1e6", "G": "1e9", "T": "1e12", "femto": "1e-15", "pico": "1e-12", "nano": "1e-9",
             "micro": "1e-6", "milli": "0.001", "centi": "0.01", "deci": "0.1", "kilo": "1000", "mega": "1e6",
             "giga": "1e9", "tera": "1e12"}  # fmt: skip
_PREFIXED = frozenset(
    re.findall(
        r"\S+",
        "m s g N J W Pa Hz C V Ω F T Wb H L l M eV cal bar mol A K meter metre second gram newton joule watt pascal "
        "hertz coulomb volt ohm farad liter litre mole electronvolt calorie Wh bit byte Bq Gy",
    )
)
_UNIT_TOKEN = re.compile(r"\^\s*\{?\s*(-?[0-9])\s*\}?|([A-Za-zμΩÅ$]+)|([/()])|[\s*.]+")


# Words behind a number that change it.
_NO_UNIT = re.compile(
    r"(?:sin|cos|tan|log|sqrt|exp|times|over|plus|minus|pi|x|and|or|not|mod|choose|factorial|squared|cubed|dozen|half|"
    r"halves|thirds?|fourths?|quarters?|fifths?|tenths?|hundredths?|thousandths?|more|less|percent)\b"
)


@functools.lru_cache(maxsize=4096)
def read_unit(text: str) -> Unit | None:
    r"""The unit that a text names: m/s^2, \text{ cm}^2, km h^{-1}, miles per hour, square meters. None if it is none.

    Words that are no unit here (apples, ways) are a unit that is compared with nothing. Temperatures in °C and °F are
    units of their own, as their zero is another one. Degrees are never radians.
    """
    plain = UPRIGHT.sub(r" \1 ", text).replace("\\cdot", " ").replace("\\Omega", "Ω")
    plain = re.sub(r"\\mu\s*", "μ", plain)
    plain = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r"\1/(\2)", plain)
    plain = re.sub(r"\bdegrees?\s*(?:C\b|celsius)", "celsius", plain, flags=re.IGNORECASE)
    plain = re.sub(r"\b(?:square|sq\.?)\s+([a-z]+)|([a-z]+)\s+squared", r"\1\2^2", plain)
    plain = re.sub(r"\bcubic\s+([a-z]+)|([a-z]+)\s+cubed", r"\1\2^3", plain)
    plain = re.sub(r"\bper\b", "/", plain)
    unit = _known_unit(plain)
    beside = UPRIGHT.sub("", text)
    # A lone letter beside upright words is a factor: 5\text{ cm}x.
    if unit is not None or (beside != text and re.search(r"(?<![A-Za-z])[A-Za-z]\s*$", beside)):
        return unit
    words = plain.strip().casefold()
    worded = re.fullmatch(r"[a-z'()-]{3,}(?:[\s,]+[a-z'()-]+)*\.?(?:\s*\^\s*\{?[23]\}?)?", words) is not None
    set_upright = beside != text and words and not re.search(r"[0-9=<>\\]", plain + beside)
    if (worded or set_upright) and not _NO_UNIT.match(words):
        return Unit(((words, 1),), known=False)
    return None


def _known_unit(text: str) -> Unit | None:
    """A product of units of the tables. What follows a "/" is all below it: J/mol K is J/(mol K)."""
    factors: list[tuple[Unit, int]] = []
    below, at = 1, 0
    for match in _UNIT_TOKEN.finditer(text):
        if match.start() != at:
            return None
        at = match.end()
        power, name, mark = match.groups()
        if name:
            unit = _named_unit(name)
            if unit is None:
                return None
            factors.append((unit, below))
        elif power:
            if not factors:
                return None
            last, times = factors[-1]
            factors[-1] = last, times * int(power)
        elif mark == "/":
            below = -1
    if at != len(text) or not factors:
        return None
    scale, powers = Fraction(1), dict[str, int]()
    for unit, times in factors:
        scale *= unit.scale**times
        for base, count in unit.dimension:
            powers[base] = powers.get(base, 0) + count * times
    return Unit(tuple(sorted(item for item in powers.items() if item[1])), True, scale)


def _named_unit(name: str) -> Unit | None:
    for spelled in (name, name.casefold()) if len(name) > 3 else (name,):
        endings = ("", "s", "es") if len(name) > 3 else ("",)
        for singular in (spelled.removesuffix(ending) for ending in endings):
            if singular in _BASE_UNITS:
                return Unit(((singular, 1),), True)
            if singular in _DERIVED:
                derived = _DERIVED[singular]
                factor, _, rest = (derived if derived[0].isdigit() else f"1 {derived}").partition(" ")
                return _times(factor, _known_unit(rest))
            for prefix, factor in _PREFIXES.items():
                if singular.startswith(prefix) and singular[len(prefix) :] in _PREFIXED:
                    return _times(factor, _named_unit(singular[len(prefix) :]))
    return None


def _times(factor: str, unit: Unit | None) -> Unit | None:
    return unit and unit._replace(scale=unit.scale * Fraction(factor))
