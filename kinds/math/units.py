r"""Units and currencies. No unit is converted into another.

A unit is the set of its factors with their powers: m/s^2, m s^{-2}, \frac{m}{s^2} and meters per second squared are
{(m, 1), (s, -2)}. Two units are equal if these sets are. Its grammar is one class, `_UnitReader`:

    unit    = factor {["*" | "/" | "per" | "a"] factor}               N m   m/s^2   J/mol K is J/(mol K)
    factor  = [square] (name | group | "\frac" group group) [power]   m   (mol K)   \frac{m}{s^2}
    group   = "(" unit ")" | "{" unit "}"
    square  = "square" | "sq" | "cubic" | "cu"                        square meters   sq. ft.   cubic cm
    power   = ["^"] integer | "squared" | "cubed"                     cm^2   s^{-1}   cm2   seconds squared

To add a unit, add one entry to SI (it takes prefixes), OTHER or COMPOUND: its symbol, and its other names without the
plural's s.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from kinds.math.lexer import END, Token, Unreadable, tokens
from kinds.math.vocabulary import is_full_stop

Powers = frozenset[tuple[str, int]]
Unit = Powers | str  # a text is a counted noun

PREFIXES = {"": "", "f": "femto", "p": "pico", "n": "nano", "μ": "micro", "m": "milli", "c": "centi", "d": "deci",
            "h": "hecto", "k": "kilo", "M": "mega", "G": "giga", "T": "tera"}  # fmt: skip
# Symbol -> its other names. A symbol is case-sensitive (mW, MW), a longer name is not.
SI = {
    "m": "meter metre", "g": "gram gramme gm", "s": "second sec", "A": "ampere amp", "K": "kelvin", "mol": "mole",
    "cd": "candela", "N": "newton", "J": "joule", "W": "watt", "Pa": "pascal", "Hz": "hertz", "C": "coulomb",
    "V": "volt", "Ω": "ohm", "F": "farad", "T": "tesla", "Wb": "weber", "H": "henry", "S": "siemens", "Bq": "becquerel",
    "Gy": "gray", "Sv": "sievert", "lm": "lumen", "lx": "lux", "L": "l liter litre",
    "eV": "electronvolt electron-volt",
    "cal": "calorie", "bar": "", "B": "byte", "bit": "",
}  # fmt: skip
OTHER = {
    "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile", "acre": "", "ha": "hectare", "lb": "pound",
    "oz": "ounce", "ton": "", "t": "tonne", "gal": "gallon", "qt": "quart", "pt": "pint", "cup": "", "tsp": "teaspoon",
    "tbsp": "tablespoon", "min": "minute", "h": "hr hour", "day": "d", "week": "wk", "month": "mo",
    "year": "yr", "°": "degree deg", "celsius": "", "fahrenheit": "", "rad": "radian", "sr": "steradian",
    "rev": "revolution", "kΩ": "kilohm", "MΩ": "megohm", "atm": "atmosphere", "mmHg": "", "torr": "", "ly": "",
    "Å": "angstrom", "u": "amu", "D": "debye", "dB": "decibel", "G": "gauss", "ppm": "", "ppb": "", "knot": "kn",
    "unit": "", "dollar": r"USD \$", "cent": "¢", "euro": "EUR €", "GBP": "£", "yuan": "元 RMB CNY", "yen": "¥ JPY",
    "rupee": "₹ INR", "hp": "horsepower HP Hp", "μm": "micron",
}  # fmt: skip
# Names of a product of other units.
COMPOUND = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "kmph": "km/h", "kWh": "kW h", "Wh": "W h", "rpm": "rev/min",
            "psi": "lb/in^2", "cc": "cm^3", "molar": "mol/L", "Nm": "N m", "kNm": "kN m", "Ns": "N s"}  # fmt: skip
COMPOUND |= {prefix + "M": f"{prefix}mol/L" for prefix in ("", "m", "μ", "n")}  # 0.1 M

# Names of two tokens.
SCALES_OF_HEAT = {"c": "celsius", "celsius": "celsius", "f": "fahrenheit", "fahrenheit": "fahrenheit"}  # after °
JOINED = {"mm Hg": "mmHg", "light years": "ly", "light year": "ly", "US dollars": "dollar", "US dollar": "dollar",
          "electron volts": "eV", "electron volt": "eV"}  # fmt: skip

CURRENCIES = {"dollar", "cent", "euro", "GBP", "yuan", "yen", "rupee"}
NO_POWERS = {*CURRENCIES, "acre", "ha", "lb", "oz", "ton", "gal", "qt", "pt", "cup", "tsp", "tbsp", "knot", "dB", "hp",
             "ppm", "ppb"}  # fmt: skip
DEGREES: Powers = frozenset([("°", 1)])


def _symbols() -> dict[str, str]:
    """Return name -> symbol: km and kilometer -> km, ft and foot and feet -> ft. Names have no plural's s."""
    found: dict[str, str] = {}
    for symbol, names in SI.items():
        for prefix, long_prefix in PREFIXES.items():
            shorts = [prefix + name for name in (symbol, *names.split()) if len(name) < 3]
            longs = [long_prefix + name for name in names.split() if len(name) > 2]
            micro = ["u" + symbol] if prefix == "μ" else []  # uF
            found |= dict.fromkeys([prefix + symbol, *shorts, *longs, *micro], prefix + symbol)
    found |= {"Kg": "kg", "KG": "kg", "Km": "km"}  # no other unit has these symbols
    for symbol, names in OTHER.items():  # after SI: a dB is no tenth of a byte
        found |= dict.fromkeys([symbol, *names.split()], symbol)
    return found


SYMBOLS = _symbols()


def symbol_of(name: str) -> str | None:
    """Return the symbol of a unit's name, or of its plural: ft for feet; None for an unknown word."""
    for spelling in (name, name.lower() if len(name) > 2 else name):
        for singular in (spelling, spelling.removesuffix("s") if len(spelling) > 2 else spelling):
            if singular in SYMBOLS:
                return SYMBOLS[singular]
    return None


def unit_of(found: Sequence[Token]) -> Powers | None:
    """Return the unit that these tokens write, None if they write none."""
    if any(one.text == "per" and two.text == "cent" for one, two in pairwise(found)):  # 98 dollars per cent
        return None
    reader = _UnitReader(found)
    try:
        powers = reader.unit()
    except Unreadable:
        return None
    if reader.rest or any(abs(powers[name]) > 1 for name in NO_POWERS):  # no dollars squared, no gallons squared
        return None
    return frozenset((name, power) for name, power in powers.items() if power) or None


class _UnitReader:
    """Reads the grammar above by recursive descent. `rest` has the tokens that are not read yet."""

    def __init__(self, found: Sequence[Token]) -> None:
        self.rest = _merged(found)

    def sees(self, *texts: str) -> bool:
        return bool(self.rest) and self.rest[0].text in texts

    def take(self) -> str:
        if not self.rest:
            raise Unreadable("the unit ends too early")
        return self.rest.pop(0).text

    def takes(self, *texts: str) -> bool:
        return self.sees(*texts) and bool(self.take())

    def unit(self) -> Counter[str]:
        """N m    m/s^2    miles per hour. Everything after a slash is below it."""
        powers, sign = self.factor(first=True), 1
        while self.rest and not self.sees(")", "}"):
            if self.takes("/", "per", "a", "an"):
                sign = -1
            elif self.sees("-") and [token.kind for token in self.rest[1:2]] == ["word"]:  # N-m
                self.take()
            else:
                self.takes("*")
            for name, power in self.factor(first=False).items():
                powers[name] += sign * power
        return powers

    def factor(self, first: bool) -> Counter[str]:
        r"""m    square meters    cm^2    s^{-1}    (mol K)    \frac{m}{s^2}."""
        times = 2 if self.takes("square", "sq") else 3 if self.takes("cubic", "cu") else 1
        if self.takes(r"\frac"):
            powers = self.group()
            powers.subtract(self.group())
        else:
            powers = self.group() if self.sees("(", "{") else self.name()
        times *= self.power(first)
        return Counter({name: times * power for name, power in powers.items()})

    def group(self) -> Counter[str]:
        """(mol K)    {mol K}."""
        closing = {"(": ")", "{": "}"}.get(self.take())
        powers = self.unit()
        if closing is None or not self.takes(closing):
            raise Unreadable("no group")
        return powers

    def name(self) -> Counter[str]:
        """feet, which is ft    mph, which is mi/h."""
        text = self.take()
        if text in COMPOUND:
            return _UnitReader(tokens(COMPOUND[text])).unit()
        symbol = symbol_of(text)
        if symbol is None and "-" in text:  # newton-meters
            return _UnitReader(tokens(text.replace("-", " "))).unit()
        if symbol is None:
            raise Unreadable(text)
        return Counter({symbol: 1})

    def power(self, first: bool) -> int:
        """^2    ^{-1}    squared    cm2    m s-1. Nothing is the power 1. s-1 alone may be a difference."""
        if self.takes("squared"):
            return 2
        if self.takes("cubed"):
            return 3
        if self.takes("^"):
            braces = self.takes("{")
            power = self.integer()
            if braces and not self.takes("}"):
                raise Unreadable("no closing brace")
            return power
        written = "".join("" if token.spaced else token.text for token in self.rest[:2])
        return self.integer() if written[:1] in ("2", "3") or (written in ("-1", "-2", "-3") and not first) else 1

    def integer(self) -> int:
        sign, digit = -1 if self.takes("-") else 1, self.take()
        if not re.fullmatch("[1-9]", digit):
            raise Unreadable(digit)
        return sign * int(digit)


def _merged(found: Sequence[Token]) -> list[Token]:
    r"""Join the names that have several tokens: \mu m, k\Omega, ° C. Drop the full stop of sq. ft."""
    merged: list[Token] = []
    for token, before in zip(found, [END, *found], strict=False):
        text = {r"\mu": "μ", r"\Omega": "Ω"}.get(token.text, token.text)
        last = merged[-1].text if merged else ""
        name = JOINED.get(f"{last} {text}")
        if last == "μ" or (text == "Ω" and last in PREFIXES and last):
            name = last + text
        elif symbol_of(last) == "°" and text.casefold() in SCALES_OF_HEAT:
            name = SCALES_OF_HEAT[text.casefold()]
        if name:
            merged[-1] = Token("word", name, merged[-1].spaced)
        elif not is_full_stop(token, before):
            merged.append(token._replace(text=text))
    return merged


def same_unit(gold: Unit | None, answer: Unit | None) -> bool:
    """May two answers have these units? One of them may be missing, and a price may say per what.

    cm and cm    cm and none    5 cents per ounce and 5 cents
    """
    if gold is None or answer is None:
        return True
    if gold == answer or isinstance(gold, str) or isinstance(answer, str):
        return gold == answer
    more, less = (gold, answer) if len(gold) > len(answer) else (answer, gold)
    return less < more and {name for name, _ in less} <= CURRENCIES and all(power < 0 for _, power in more - less)
