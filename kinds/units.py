"""Kind "math" and "science": the unit that a text names, as powers of unit names. Units are not converted."""

import functools
import re

_PREFIXES = {"femto": "f", "pico": "p", "nano": "n", "micro": "μ", "milli": "m", "centi": "c", "deci": "d", "kilo": "k",
             "mega": "M", "giga": "G", "tera": "T", "": ""}  # fmt: skip
# symbol=name=name. The first ones take prefixes. The last two lines are counted things, for answers such as "5 ways".
_METRIC = (
    "m=meter=metre g=gram s=second=sec A=ampere=amp K=kelvin mol=mole N=newton J=joule W=watt Pa=pascal Hz=hertz "
    "C=coulomb V=volt Ω=ohm F=farad T=tesla Wb=weber H=henry L=liter=litre=l M=molar eV=electronvolt cal=calorie bar "
    "Wh bit byte=B Bq=becquerel Gy=gray"
)
_PLAIN = (
    "min=minute h=hour=hr day week month year=yr rad=radian atm=atmosphere mmHg=torr=Torr Å=angstrom in=inch=inches "
    "ft=foot=feet yd=yard mi=mile lb=pound oz=ounce gal=gallon t=tonne=ton unit °=degree=deg celsius=°C fahrenheit=°F "
    "dollar=USD cent euro yen mph kph rpm ppm way person=people child=children student point time integer number "
    "solution apple ball book car coin cookie game marble page pair step square triangle team player revolution turn"
)
# A gold may have other words after its number, but none of these, which change it.
_CHANGES = re.compile(
    r"(?i:dozens?|hundreds?|thousands?|[mbtr]+illions?|hal(?:f|ves)|thirds?|fourths?|quarters?|fifths?|tenths?|hundredths?"
    r"|squared|cubed|more|less|fewer|percent|plus|minus|over|times|and|or|not|[ap]m|about|mod|choose|factorial|to|by|so)"
)
_TOKEN = re.compile(r"\^\s*\{?\s*(-?[0-9])\s*\}?|(°\s?[CF]\b|[A-Za-zμΩÅ°]+)|([/()])|[\s*]+")


@functools.cache
def _known() -> dict[str, str]:
    """Return each name of a unit -> its symbol."""
    names = {name: entry.partition("=")[0] for entry in _PLAIN.split() for name in entry.split("=")}
    for entry in _METRIC.split():
        symbol, *words = entry.split("=")
        for prefix, short in _PREFIXES.items():
            names |= {short + symbol: short + symbol} | {prefix + word: short + symbol for word in words}
            names |= {f"u{symbol}": f"μ{symbol}", **({f"{short}l": f"{short}L"} if symbol == "L" else {})}
    plurals = {f"{name}s": symbol for name, symbol in names.items() if len(name) > 2}
    return plurals | names | {f"{name}es": symbol for name, symbol in names.items() if name.endswith("h")}


@functools.lru_cache(maxsize=4096)
def read_unit(text: str) -> tuple[tuple[str, int], ...] | None:
    """Return the powers of a known unit: m/s^2, km h^{-1}, miles per hour, square meters; () for other words; None."""
    plain = (
        re.sub(r"\\text\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r" \1 ", text).replace(r"\cdot", " ").replace(r"\Omega", "Ω")
    )
    plain = re.sub(r"\\mu\s*", "μ", plain).strip()
    plain = re.sub(r"\b(?:degrees?|°)\s*(?:C\b|[Cc]elsius)", "celsius", plain)
    plain = re.sub(r"\b(?:square|sq)\s+([A-Za-z]+)", r"\1^2", plain)
    plain = re.sub(r"\bcubic\s+([A-Za-z]+)", r"\1^3", plain)
    powers = _powers(re.sub(r"\bper\b", "/", plain))
    if powers is not None:
        return powers
    words = re.fullmatch(r"[A-Za-z]{3,}(?: [A-Za-z]{3,})*", plain)
    return () if words and not any(map(_CHANGES.fullmatch, plain.split())) else None


def _powers(text: str) -> tuple[tuple[str, int], ...] | None:
    """Return the powers in a product of known units. Everything after a "/" is below it: J/mol K is J/(mol K)."""
    known = _known()
    factors: list[list] = []
    below, at, raised = 1, 0, False
    for match in _TOKEN.finditer(text):
        power, name, mark = match.groups()
        if match.start() != at or (power and (raised or not factors)) or (mark == "/" and below < 0):
            return None
        at, raised = match.end(), bool(power)
        if name:
            symbol = known.get(name.replace(" ", "")) or (known.get(name.casefold()) if len(name) > 3 else None)
            if symbol is None:
                return None
            factors.append([symbol, below])
        elif power:
            factors[-1][1] *= int(power)
        elif mark == "/":
            below = -1
    total: dict[str, int] = {}
    for symbol, power in factors:
        total[symbol] = total.get(symbol, 0) + power
    return tuple(sorted(total.items())) if factors and at == len(text) else None
