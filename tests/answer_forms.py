r"""Right answers in the forms that models write, and wrong ones made from right ones: two generators, and tables.

The generators yield (kind, gold, answer). They draw from the shapes of GSM8K, MATH, AIME and SCP-116K, with a seed. The
tables at the end were written by hand.
"""

import random
import re
from fractions import Fraction

from judging import pairs
from wrong_answers import HEADS, TAILS

# The same text inside of what only changes its look or gives it a name.
LOOKS = [
    "{}", "{}", "{}", " {} ", "{}.", "${}$", r"\({}\)", r"\displaystyle {}", r"\ {}\ ", r"\mathbf{{{}}}", r"{{{}}}",
    r"\boldsymbol{{{}}}", r"\boxed{{{}}}", r"\textcolor{{blue}}{{{}}}", r"{{\color{{red}} {}}}", r"\large {}", r"\,{}\,",
    r"\mathrm{{{}}}", "\n{}\n", r"$${}$$", r"\quad {}", r"\underline{{{}}}", r"\bf {}",
]  # fmt: skip
NAMES = ["x = {}", "{} = n", r"\text{{Total}} = {}", r"\text{{Answer: }} {}", "f(3) = {}", r"\text{{Total cost}} = {}",
         "AB = {}", "S_{{10}} = {}", "m+n = {}", r"\angle ABC = {}", r"P(A) = {}", "Area = {}", "a_5={}"]  # fmt: skip
NOUNS = ["eggs", "apples", "people", "students", "years old", "cups of tea", "ways", "red marbles", "pages", "trips",
         "children", "books", "minutes", "miles", "square units", "cents", "weeks", "pieces of candy"]  # fmt: skip
# One unit under several names. The first is the gold's.
UNITS = [
    [r"\text{ inches}", r"\text{ in}", r"\text{ inch}", r"\text{ in.}", " inches", r"\mathrm{~in}", r"\,\text{in}"],
    [r"\text{ feet}", r"\text{ ft}", r"\text{ foot}", " ft", " feet", r"\,\mathrm{ft}"],
    [r"\text{ cm}^2", r"\text{ square centimeters}", r"\text{ sq cm}", r"\text{ cm}^{2}", " cm^2", r"\ \mathrm{cm}^2",
     r"\text{ cm²}", r"\text{ square cm}"],
    [r"\mbox{ inches}^2", r"\text{ in}^2", r"\text{ square inches}", r"\text{ sq. in.}", " square inches"],
    [r"\text{ square units}", r"\text{ units}^2", r"\text{ sq units}", " square units"],
    [r"\text{ hours}", r"\text{ hr}", r"\text{ h}", r"\text{ hrs}", " hours"],
    [r"\text{ minutes}", r"\text{ min}", r"\text{ mins}", " minutes"],
    [r"\text{ mph}", r"\text{ miles per hour}", r"\text{ mi/h}", " mph", r"\text{ miles/hour}", r"\ \text{mi/hr}"],
    [r"\text{ km/h}", r"\text{ km per hour}", r"\frac{\text{km}}{\text{h}}", r"\text{ kilometers per hour}", " km/h",
     r"\text{ kph}"],
    [r"\text{ meters}", r"\text{ m}", r"\,\mathrm{m}", r"\text{ metres}", " meters"],
    [r"\text{ pounds}", r"\text{ lb}", r"\text{ lbs}", " pounds"],
    [r"\text{ dollars}", r"\text{ USD}", " dollars", r"\text{ dollar}"],
    [r"^\circ", r"^{\circ}", "°", r"\text{ degrees}", r"\degree", " degrees", r"^\circ "],
    [r"\text{ m/s}", r"\text{ meters per second}", r"\frac{\text{m}}{\text{s}}", " m/s", r"\mathrm{~m/s}"],
    [r"\text{ cubic feet}", r"\text{ ft}^3", r"\text{ cu ft}", r"\text{ feet}^3", " cubic feet"],
    [r"\text{ grams}", r"\text{ g}", r"\,\mathrm{g}", " grams"],
    [r"\text{ liters}", r"\text{ L}", r"\text{ litres}", " liters"],
]  # fmt: skip
SCIENCE_UNITS = [
    ["m/s^2", r"\text{ m/s}^2", r"\frac{m}{s^2}", r"\text{ m s}^{-2}", r"\,\mathrm{m\,s^{-2}}", "m s^-2", "m/s²",
     r"\frac{\text{m}}{\text{s}^2}", "meters per second squared", r"\mathrm{m}/\mathrm{s}^2", "m·s⁻²",
     r"\text{m}\cdot\text{s}^{-2}", "m/s/s", "m/s**2"],
    ["ohms", r"\Omega", "Ω", r"\text{ ohm}", r"\text{ }\Omega", r"\,\Omega", r"\text{Ω}", r"\mathrm{\Omega}"],
    ["V", "volts", r"\text{ V}", r"\mathrm{V}", "volt", r"\,\text{volts}"],
    ["kg", "kilograms", r"\text{ kg}", r"\mathrm{~kg}", "kilogram"],
    ["J/(mol K)", r"\text{ J mol}^{-1}\text{ K}^{-1}", r"\frac{J}{mol \cdot K}", "J/mol/K", "J mol^{-1} K^{-1}",
     r"\mathrm{J\cdot mol^{-1}\cdot K^{-1}}", "J/(mol·K)", r"\text{ J/(mol}\cdot\text{K)}"],
    ["kJ/mol", r"\text{ kJ/mol}", r"\text{ kJ mol}^{-1}", "kJ mol⁻¹", "kilojoules per mole", r"\frac{\text{kJ}}{\text{mol}}"],
    ["mol/L", "M", r"\text{ M}", r"\text{ mol L}^{-1}", "mol·L⁻¹", r"\,\mathrm{mol/L}", "moles per liter"],
    ["nm", r"\text{ nm}", "nanometers", r"\mathrm{nm}", "nanometres"],
    [r"\mu\text{m}", "μm", "µm", r"\mu m", "micrometers", r"\,\mu\mathrm{m}", "um", r"\text{ μm}"],
    ["N", r"\text{ N}", "newtons", r"\,\mathrm{N}", "Newtons"],
    ["N/C", r"\text{ N/C}", r"\frac{N}{C}", "N C^{-1}", "newtons per coulomb", r"\mathrm{N\,C^{-1}}"],
    ["°C", r"^\circ C", r"^\circ\text{C}", "degrees Celsius", r"\,^{\circ}\mathrm{C}", "celsius"],
    ["g/cm^3", r"\text{ g/cm}^3", "g cm^{-3}", r"\frac{g}{cm^3}", "g/cm³", "grams per cubic centimeter"],
    ["MeV", r"\text{ MeV}", r"\,\mathrm{MeV}"],
    ["Hz", r"\text{ Hz}", "hertz", r"\mathrm{Hz}"],
    ["W/m^2", r"\text{ W/m}^2", "W m^{-2}", r"\frac{W}{m^2}", r"\mathrm{W\,m^{-2}}", "W·m⁻²", "watts per square meter"],
    ["kg m/s", r"\text{ kg}\cdot\text{m/s}", "kg·m/s", r"\mathrm{kg\cdot m\cdot s^{-1}}", r"\frac{kg\cdot m}{s}"],
    ["T", r"\text{ T}", "tesla", r"\mathrm{T}"], ["A", r"\text{ A}", "amperes", "amps", r"\,\mathrm{A}"],
    ["s", r"\text{ s}", "seconds", r"\text{ sec}", r"\mathrm{s}"], ["K", r"\text{ K}", "kelvin", r"\mathrm{K}"],
    ["atm", r"\text{ atm}", "atmospheres"], ["mL", r"\text{ mL}", "ml", "milliliters", r"\mathrm{mL}"],
    ["eV", r"\text{ eV}", r"\mathrm{eV}"], ["k\\Omega", "kΩ", r"\text{ k}\Omega", "kilohms"],
    ["rad/s", r"\text{ rad/s}", "rad s^{-1}", "radians per second", r"\frac{rad}{s}"],
]  # fmt: skip
CHEMISTRY = ["H_2SO_4", "CO_2", "NH_4^+", "Fe^{3+}", "Ca(OH)_2", "CH_3COOH", "SO_4^{2-}", "C_6H_{12}O_6"]


def grouped(rng: random.Random, value: int) -> str:
    text = f"{value:,}"
    return rng.choice([str(value), text, text.replace(",", "{,}"), text.replace(",", r"\,"), text.replace(",", r",\!"),
                       text.replace(",", r"\ "), text.replace(",", "~"), text.replace(",", " ")])  # fmt: skip


def look(rng: random.Random, text: str) -> str:
    return rng.choice([form for form in LOOKS if form != "{}." or not text.rstrip("} ").endswith(".")]).format(text)


def fraction(rng: random.Random, value: Fraction) -> str:
    a, b = abs(value.numerator), value.denominator
    forms = [rf"\frac{{{a}}}{{{b}}}", rf"\dfrac{{{a}}}{{{b}}}", rf"\tfrac{{{a}}}{{{b}}}", f"{a}/{b}", rf"\frac {{{a}}} {{{b}}}",
             rf"\cfrac{{{a}}}{{{b}}}", rf"\left(\frac{{{a}}}{{{b}}}\right)", f"({a})/({b})", f"{{{a}}}/{{{b}}}",
             rf"\frac{{{2 * a}}}{{{2 * b}}}", f"{a} / {b}", rf"{a} \div {b}", rf"\frac{{\text{{{a}}}}}{{\text{{{b}}}}}"]  # fmt: skip
    if max(a, b) < 10:
        forms += [rf"\frac{a}{b}", rf"\frac{a}{{{b}}}", rf"\tfrac{a}{b}"]
    if a > b > 1:
        forms += [rf"{a // b}\frac{{{a % b}}}{{{b}}}", f"{a // b} {a % b}/{b}", rf"{a // b} \tfrac{{{a % b}}}{{{b}}}"]
    text = rng.choice(forms)
    if value < 0:
        text = "-" + text if not text[0].isdigit() or "frac" not in text else rf"-\frac{{{a}}}{{{b}}}"
        text = rng.choice(
            [text, rf"\frac{{-{a}}}{{{b}}}", rf"-\frac{{{a}}}{{{b}}}", rf"\frac{{{a}}}{{-{b}}}", f"-{a}/{b}"]
        )
    return text


def terms(rng: random.Random, parts: list[str]) -> str:
    """A sum of signed terms, in any order."""
    parts = rng.sample(parts, len(parts))
    text = (rng.choice(["", " "])).join(part if part[0] == "-" else "+" + part for part in parts).strip()
    return text.removeprefix("+")


def integers(rng):
    value = rng.choice([rng.randint(2, 99), rng.randint(100, 999), rng.randint(1000, 99999), rng.randint(10**5, 10**7)])
    text = grouped(rng, value)
    noun, money = rng.choice(NOUNS), f"{value:,}"
    forms = [
        text, text, rf"\${text}", rf"\${text}.00", rf"{text} \text{{ dollars}}", f"{text} dollars", f"${money}", f"USD {money}",
        rf"\text{{\${money}}}", rf"{text} \text{{ {noun}}}", rf"{text} \text{{{noun}}}", f"{value} {noun}", f"{value}.0",
        rf"\text{{{money} {noun}}}", rf"\text{{{money}}}", rf"{text}\ \mathrm{{{noun.replace(' ', '~')}}}", f"+{value}",
        rng.choice(NAMES).format(text), rng.choice(NAMES).format(rf"\${text}"), f"{value - 7} + 7 = {text}", rf"{value}_{{10}}",
        rf"{value - 1} + 1", rf"{text} \, \text{{{noun}}}", rf"\${text} \text{{ per week}}",
        rf"\${text}\text{{ profit}}", rf"{text}\$", "".join(chr(ord(c) + 0xFEE0) for c in str(value)), f"€{money}",
        rf"\$ {text}", rf"\mathdollar {text}", rf"{text}\text{{ units}}", rf"{text}^{{\text{{th}}}}", f"{value}th",
        rf"{value} \text{{ ({noun})}}", rf"{value} \, ({noun})",
    ]  # fmt: skip
    gold = rng.choice([str(value), money, rf"\${money}", rf"\${value}"])
    answer = rng.choice(forms)
    if gold[0] == "\\":  # a gold in dollars
        answer = rng.choice([text, rf"\${text}", rf"\${text}.00", rf"{text} \text{{ dollars}}", f"{text} dollars", f"${money}",
                             rng.choice(NAMES).format(rf"\${text}"), rf"\text{{\${money}}}", f"USD {money}",
                             rf"\${text} \text{{ dollars}}"])  # fmt: skip
    return gold, answer


def decimals(rng):
    value = rng.choice(
        [f"{rng.randint(0, 99)}.{rng.randint(1, 99):02}", f"{rng.randint(1000, 99999)}.{rng.randint(1, 99):02}"]
    )
    exact = Fraction(value)
    whole, _, part = value.partition(".")
    forms = [value, f"{int(whole):,}.{part}", value + "0", rf"\${value}", fraction(rng, exact), rng.choice(NAMES).format(value),
             rf"{value} \text{{ dollars}}", rf"{float(value) * 100:.0f}\%", value.removeprefix("0"), rf"{value}\text{{ kg}}"]  # fmt: skip
    return value, rng.choice(forms)


def units(rng):
    names = rng.choice(UNITS)
    value = rng.choice([str(rng.randint(2, 999)), f"{rng.randint(1000, 99999):,}", rf"{rng.randint(2, 9)}\sqrt{{{rng.choice([2, 3, 5])}}}",
                        rf"{rng.randint(2, 99)}\pi", f"{rng.randint(1, 99)}.5", r"\frac{7}{3}"])  # fmt: skip
    unit = rng.choice(names)
    if not value[-1].isdigit():
        unit = rng.choice([name for name in names if name[0] == "\\" or len(name.split()[0]) > 1] or names)
    answer = value + unit
    answer = rng.choice([answer, answer, value, rng.choice(NAMES).format(answer)])
    return value + names[0], answer


def percents(rng):
    value = rng.choice([str(rng.randint(1, 300)), f"{rng.randint(1, 99)}.5"])
    forms = [rf"{value}\%", f"{value}%", f"{value} percent", rf"{value} \text{{ percent}}", rf"\text{{{value} percent}}", rf"{value} \%",
             str(float(Fraction(value) / 100)), rf"{value}\text{{\%}}", f"{value} per cent", rf"{value}\,\%", rf"x = {value}\%",
             rf"\frac{{{value}}}{{100}}", rf"{value}\% \text{{ of students}}"]  # fmt: skip
    return rf"{value}\%", rng.choice(forms)


def fractions(rng):
    value = Fraction(rng.choice([-1, 1, 1]) * rng.randint(1, 60), rng.randint(2, 40))
    if value.denominator == 1:
        value += Fraction(1, 2)
    a, b = value.numerator, value.denominator
    gold = rng.choice([rf"\frac{{{a}}}{{{b}}}", rf"\dfrac{{{a}}}{{{b}}}", f"{a}/{b}"])
    forms = [fraction(rng, value)] * 3 + [rng.choice(NAMES).format(fraction(rng, value))]
    if b in (2, 4, 5, 8, 10, 20, 25, 40):
        forms += [str(float(value))]
    return gold, rng.choice(forms)


def roots(rng):
    a, b, c = rng.randint(2, 12), rng.choice([2, 3, 5, 6, 7]), rng.choice([1, 1, 13, 17])
    forms = [rf"{a}\sqrt{{{b}}}", rf"{a}\sqrt{b}", rf"{a} \sqrt{{{b}}}", rf"{a}\cdot\sqrt{{{b}}}", f"{a}*sqrt({b})", f"{a}√{b}",
             rf"\sqrt{{{a * a * b}}}", rf"\sqrt{{{b}}}\cdot {a}", f"{a} sqrt({b})", rf"{a}({b})^{{1/2}}", rf"{a}\times\sqrt{{{b}}}",
             rf"{a}\,\sqrt{{\,{b}\,}}", rf"\sqrt{b} \times {a}"]  # fmt: skip
    if c == 1:
        return rf"{a}\sqrt{{{b}}}", rng.choice([*forms, rng.choice(NAMES).format(forms[0])])
    text = rng.choice(forms[:6])
    forms = [rf"\frac{{{text}}}{{{c}}}", rf"\frac{{{a}}}{{{c}}}\sqrt{{{b}}}", rf"\frac{{{a}}}{{{c}}} \cdot \sqrt{{{b}}}", rf"({text})/{c}",
             rf"\dfrac{{{a}\sqrt{{{b}}}}}{{{c}}}", rf"{a}\sqrt{{{b}}}/{c}"]  # fmt: skip
    return rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}", rng.choice(forms)


def multiples_of_pi(rng):
    a, b = rng.randint(2, 50), rng.choice([1, 1, 2, 3, 4, 6])
    if b == 1:
        forms = [rf"{a}\pi", rf"{a} \pi", f"{a}π", f"{a}pi", rf"{a} \cdot \pi", rf"{a}\times\pi", rf"\pi \cdot {a}", rf"{a}*\pi",
                 rf"{a}\pi\text{{ cm}}^2", rf"A = {a}\pi", rf"{a}\pi \text{{ square units}}", rf"{a}{{\pi}}", rf"\pi({a})"]  # fmt: skip
        return rf"{a}\pi", rng.choice(forms)
    forms = [rf"\frac{{{a}\pi}}{{{b}}}", rf"\frac{{{a}}}{{{b}}}\pi", rf"{a}\pi/{b}", rf"\dfrac{{{a} \pi}}{{{b}}}", f"{a}π/{b}",
             rf"\frac{{{a}}}{{{b}}} \cdot \pi", rf"\theta = \frac{{{a}\pi}}{{{b}}}"]  # fmt: skip
    return rf"\frac{{{a}\pi}}{{{b}}}", rng.choice(forms)


def items(rng, count):
    return [rng.choice([str(rng.randint(2, 99)), str(rng.randint(-20, -2)), rf"\frac{{{rng.randint(1, 9)}}}{{{rng.choice([2, 4, 7])}}}",
                        rf"{rng.randint(2, 9)}\sqrt{{3}}", rf"\frac{{\pi}}{{{rng.randint(2, 9)}}}"]) for _ in range(count)]  # fmt: skip


def distinct(rng, count):
    found = items(rng, count)
    return found if len({*found}) == count else distinct(rng, count)


def points(rng):
    parts = items(rng, rng.choice([2, 2, 3]))
    inner, spaced = ",".join(parts), ", ".join(parts)
    letters, column, wide = ",".join("xyz"[: len(parts)]), r" \\ ".join(parts), r",\ ".join(parts)
    forms = [f"({inner})", f"({spaced})", rf"\left({spaced}\right)", rf"({letters}) = ({spaced})", rf"\big({inner}\big)",
             rf"\left( {inner} \right)", f"({wide})", rf"({inner.replace('frac', 'dfrac')})", f"（{inner}）",
             ", ".join(f"{name}={part}" for name, part in zip("xyz", parts, strict=False)), rf"(\,{inner}\,)", rf"\{{({inner})\}}",
             rf"\langle {inner} \rangle", rf"\begin{{pmatrix}} {column} \end{{pmatrix}}", f"P({inner})",
             rf"x={parts[0]}, y={parts[1]}" if len(parts) == 2 else f"({spaced})", rf"({letters})=({inner})"]  # fmt: skip
    return f"({inner})", rng.choice(forms)


def sets(rng):
    parts = distinct(rng, rng.choice([2, 3, 4]))
    mixed = rng.sample(parts, len(parts))
    comma, last = ", ".join(mixed), ", ".join(mixed[:-1])
    forms = [comma, ",".join(mixed), rf"\{{{comma}\}}", rf"\left\{{{comma}\right\}}", rf"{last}, \text{{ and }} {mixed[-1]}",
             rf"{last} \text{{ and }} {mixed[-1]}", rf"{last} and {mixed[-1]}", rf"{last} \text{{ or }} {mixed[-1]}", rf"x = {comma}",
             r" \text{ or } ".join(f"x = {part}" for part in mixed), ", ".join(f"x_{i}={part}" for i, part in enumerate(mixed, 1)),
             rf"x \in \{{{comma}\}}", "; ".join(mixed), rf"{last},\, {mixed[-1]}", rf"\lbrace {comma} \rbrace", ", ".join(f"${p}$" for p in mixed),
             r" \quad \text{or} \quad ".join(f"x={part}" for part in mixed)]  # fmt: skip
    return rng.choice([",".join(parts), ", ".join(parts), rf"\{{{','.join(parts)}\}}"]), rng.choice(forms)


def intervals(rng):
    a, b = sorted(rng.sample(range(-30, 60), 2))
    left, right = rng.choice("(["), rng.choice(")]")
    below, above = {"(": "<", "[": r"\le"}[left], {")": "<", "]": r"\le"}[right]
    shape = rng.random()
    if shape < 0.3:
        signs = {"<": "<", r"\le": rng.choice([r"\leq", "≤", r"\leqslant", "<="])}
        gold = rng.choice([f"{left}{a},{b}{right}", rf"{a} {below} x {above} {b}"])
        forms = [f"{left}{a}, {b}{right}", rf"\left{left}{a},{b}\right{right}", f"{a} {signs[below]} x {signs[above]} {b}",
                 rf"x \in {left}{a},{b}{right}", rf"\{{x \mid {a} {below} x {above} {b}\}}", rf"\{{ x : {a} {below} x {above} {b} \}}",
                 rf"\{{x \in \mathbb{{R}} \mid {a} {below} x {above} {b}\}}"]  # fmt: skip
        return gold, rng.choice(forms)
    if shape < 0.6:
        more = {"(": ">", "[": r"\ge"}[left]
        gold = rng.choice([rf"{left}{a},\infty)", f"x {more} {a}"])
        forms = [rf"{left}{a}, \infty)", rf"{left}{a},+\infty)", rf"x {more} {a}", f"{a} {below} x", rf"x \in {left}{a}, \infty)",
                 rf"\left{left}{a}, \infty\right)", f"{left}{a}, ∞)", rf"\{{x \mid x {more} {a}\}}"]  # fmt: skip
        return gold, rng.choice(forms)
    close, start = {"<": ")", r"\le": "]"}[above], {"<": "(", r"\le": "["}[below]
    gold = rng.choice(
        [rf"(-\infty,{a}{close}\cup{start}{b},\infty)", rf"x {above} {a} \text{{ or }} x {_more(below)} {b}"]
    )
    forms = [rf"(-\infty, {a}{close} \cup {start}{b}, \infty)", rf"{start}{b},\infty)\cup(-\infty,{a}{close}", f"x {above} {a} or x {_more(below)} {b}",
             rf"x \in (-\infty,{a}{close} \cup {start}{b},\infty)", rf"\left(-\infty,{a}\right{close} \cup \left{start}{b},\infty\right)",
             rf"x {above} {a} \text{{ or }} x {_more(below)} {b}", rf"x \in (-\infty, {a}{close} ∪ {start}{b}, +\infty)"]  # fmt: skip
    return gold, rng.choice(forms)


def _more(sign):
    return {"<": ">", r"\le": r"\ge"}[sign]


def polynomials(rng):
    name = rng.choice("xtnyz")
    a, b, c = rng.choice([1, 2, 3, 5, -1, -4]), rng.choice([1, 2, -3, 7, -1]), rng.randint(1, 20) * rng.choice([1, -1])
    power = rng.choice([2, 3, 4])

    def term(k, letters):
        return {1: letters, -1: "-" + letters}.get(k, f"{k}{letters}")

    gold = terms(random.Random(0), [term(a, f"{name}^{power}"), term(b, name), str(c)])
    parts = [rng.choice([term(a, f"{name}^{power}"), term(a, f"{name}^{{{power}}}")]), term(b, name), str(c)]
    text = terms(rng, parts)
    other = "y" if name != "y" else "w"
    forms = [text, text, f"f({name}) = {text}", f"{other} = {text}", f"({text})", rf"\left({text}\right)", text.replace("^", "**"),
             f"p({name})={text}", text.replace(name, f" {name}"), rf"-({terms(rng, [term(-a, f'{name}^{power}'), term(-b, name), str(-c)])})"]  # fmt: skip
    return gold, rng.choice(forms)


def products(rng):
    name = rng.choice("xab")
    a, b = rng.sample([n for n in range(-9, 10) if n], 2)
    one, two = (f"({name}{n:+})" for n in (a, b))
    s, p = a + b, a * b
    middle = "" if s == 0 else f"{'+' if s > 0 else '-'}{abs(s) if abs(s) > 1 else ''}{name}"
    expanded = f"{name}^2{middle}{p:+}"
    forms = [one + two, two + one, f"{one} {two}", rf"{one}\cdot {two}", f"{one}*{two}", expanded, rf"\left({one[1:-1]}\right)\left({two[1:-1]}\right)",
             expanded.replace("^2", "^{2}")]  # fmt: skip
    return rng.choice([one + two, expanded]), rng.choice(forms)


def complexes(rng):
    a, b = rng.randint(1, 20) * rng.choice([1, -1]), rng.randint(2, 20) * rng.choice([1, -1])
    forms = [f"{a}{b:+}i", f"{b}i{a:+}", f"{a} {'+' if b > 0 else '-'} {abs(b)}i", f"{a}{b:+} i", rf"{a}{b:+}\mathrm{{i}}", rf"z = {a}{b:+}i",
             rf"({a}{b:+}i)", rf"{a}{b:+}\cdot i", f"{a}.0{b:+}.0i", rf"{a}{b:+}\,i", rf"{a}{'+' if b > 0 else '-'}i\cdot {abs(b)}"]  # fmt: skip
    return f"{a}{b:+}i", rng.choice(forms)


def matrices(rng):
    rows = [[rng.choice([str(rng.randint(-9, 9)), "1/2", r"\frac{2}{3}", "x"]) for _ in range(2)] for _ in range(2)]
    if rng.random() < 0.5:
        rows = [[row[0]] for row in rows] + [["5"]]

    def write(name, cell=lambda text: text, end="", line=r" \\ ", after=""):
        return (
            rf"\begin{{{name}}}{after}"
            + line.join(" & ".join(map(cell, row)) for row in rows)
            + end
            + rf"\end{{{name}}}"
        )

    forms = [write("pmatrix"), write("bmatrix"), write("pmatrix", end=r" \\ "), write("pmatrix", line=r"\\"), r"\left(" + write("matrix") + r"\right)",
             r"\left[" + write("array", after="{" + "c" * len(rows[0]) + "}") + r"\right]", write("bmatrix", line="\\\\\n"), "A = " + write("pmatrix"),
             write("pmatrix", lambda text: {"1/2": r"\frac12", r"\frac{2}{3}": "2/3"}.get(text, text)),
             r"\mathbf{v} = " + write("pmatrix", lambda text: {"1/2": "0.5"}.get(text, text)), write("pmatrix", lambda text: f"{{{text}}}")]  # fmt: skip
    return write("pmatrix", end=rng.choice([" ", ""])), rng.choice(forms)


def bases(rng):
    base = rng.choice([2, 3, 5, 8])
    digits = str(rng.randint(1, base - 1)) + "".join(str(rng.randint(0, base - 1)) for _ in range(3))
    word = {2: "two", 3: "three", 5: "five", 8: "eight"}[base]
    forms = [f"{digits}_{base}", f"{digits}_{{{base}}}", f"({digits})_{base}", rf"{digits}_{{\text{{{word}}}}}", f"{digits}_{{{word}}}",
             f"{digits}_{{({base})}}", rf"{digits}_\text{{{word}}}", rf"({digits})_{{{base}}}", f"x = {digits}_{base}",
             rf"{digits}_{{\text{{{base}}}}}", rf"{digits}_{{\mathrm{{{word}}}}}", f"{digits}{'₀₁₂₃₄₅₆₇₈'[base]}", rf"{digits} \text{{ base }} {base}",
             rf"{digits} \text{{ (base {base})}}"]  # fmt: skip
    return rng.choice([f"{digits}_{base}", f"{digits}_{{{base}}}"]), rng.choice(forms)


def scientific(rng):
    m, e = f"{rng.randint(1, 9)}.{rng.randint(1, 99)}", rng.choice([3, 5, 8, 12, 23, -3, -6, -19])
    raised = "".join(dict(zip("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", strict=True))[c] for c in str(e))
    forms = [rf"{m} \times 10^{{{e}}}", rf"{m}\times10^{{{e}}}", f"{m}e{e}", f"{m}E{e}", rf"{m} \cdot 10^{{{e}}}", f"{m} × 10{raised}", f"{m}*10^{e}" if e > 0 else f"{m}*10^({e})",
             f"{m} x 10^{{{e}}}", rf"{m}0 \times 10^{{{e}}}", f"{m}×10^{e}" if e > 0 else f"{m}×10^{{{e}}}", f"{m} * 10**{e}", rf"{m} \ast 10^{{{e}}}",
             f"{m} x 10^{e}", f"{m} · 10^{{{e}}}"]  # fmt: skip
    if 0 < e < 9:
        forms += [f"{float(m) * 10**e:,.0f}"] if (Fraction(m) * 10**e).denominator == 1 else []
    return rng.choice(forms[:3]), rng.choice(forms)


def plus_minus(rng):
    a, b = rng.randint(1, 20), rng.choice([2, 3, 5, 7])
    forms = [rf"{a} \pm \sqrt{{{b}}}", rf"{a}\pm\sqrt{b}", rf"{a}+\sqrt{{{b}}}, {a}-\sqrt{{{b}}}", rf"{a}-\sqrt{b} \text{{ and }} {a}+\sqrt{b}", f"{a} ± √{b}",
             rf"x = {a} \pm \sqrt{{{b}}}", rf"x = {a} + \sqrt{{{b}}} \text{{ or }} x = {a} - \sqrt{{{b}}}", rf"\{{{a}-\sqrt{{{b}}}, {a}+\sqrt{{{b}}}\}}"]  # fmt: skip
    return rng.choice([forms[0], forms[2]]), rng.choice(forms)


def words(rng):
    word = rng.choice(
        [
            "Evelyn",
            "even",
            "odd",
            "ellipse",
            "Friday",
            "Yes",
            "No",
            "hyperbola",
            "increasing",
            "blue team",
            "none of the above",
        ]
    )
    forms = [word, rf"\text{{{word}}}", rf"\text{{{word.lower()}}}", rf"\textbf{{{word}}}", rf"\mathrm{{{word}}}", rf"\text{{ {word} }}", 
             word.upper(), rf"\text{{\textbf{{{word}}}}}", rf"\textit{{{word}}}", rf"\text{{the {word}}}", rf"\mathbf{{\text{{{word}}}}}", f"$\\text{{{word}}}$"]  # fmt: skip
    return rf"\text{{{word}}}", rng.choice(forms)


def options(rng):
    letter = rng.choice("ABCDE")
    forms = [letter, f"({letter})", rf"\text{{({letter})}}", rf"\textbf{{({letter})}}", rf"\textbf{{({letter}) }}", rf"\mathrm{{{letter}}}", f"{letter})", f"{letter})",
             rf"\text{{{letter}}}", rf"\textbf{{{letter}}}", f"Option {letter}", rf"\text{{Option {letter}}}", f"[{letter}]", rf"\text{{Answer: {letter}}}",
             rf"\mathbf{{({letter})}}", rf"\text{{ ({letter}) }}", rf"\boxed{{{letter}}}", rf"\text{{Choice ({letter})}}"]  # fmt: skip
    return rng.choice([letter, rf"\text{{({letter})}}", rf"({letter})", rf"\textbf{{({letter})}}"]), rng.choice(forms)


def times_and_ratios(rng):
    if rng.random() < 0.5:
        a, b = rng.randint(1, 12), rng.choice([0, 5, 15, 30, 45])
        gold = f"{a}:{b:02}" + rng.choice(["", r"\text{ p.m.}", r" \text{ PM}"])
        after = (
            ""
            if gold[-1].isdigit()
            else rng.choice(["", r"\text{ p.m.}", r" \text{ pm}", " PM", r"\text{ PM}", " p.m."])
        )
        return gold, rng.choice(
            [
                f"{a}:{b:02}{after}",
                f"{a}{{:}}{b:02}{after}",
                rf"\text{{{a}:{b:02}}}" if not after else f"{a}:{b:02}{after}",
            ]
        )
    a, b = rng.sample(range(2, 40), 2)
    forms = [
        f"{a}:{b}",
        f"{a} : {b}",
        rf"{a}\colon {b}",
        rf"{a} \text{{ to }} {b}",
        f"{a}：{b}",
        rf"a:b = {a}:{b}",
        rf"\text{{boys : girls}} = {a}:{b}",
    ]
    return f"{a}:{b}", rng.choice(forms)


def lines(rng):
    m, c = rng.choice([2, 3, -2, 5]), rng.choice([1, -4, 7])
    forms = [f"y={m}x{c:+}", f"y = {m}x {c:+}", f"{m}x - y {c:+} = 0", f"y = {c}{m:+}x", f"{m}x{c:+}", f"y - {m}x = {c}" if m > 0 else f"y {-m:+}x = {c}",
             rf"\text{{y = {m}x {c:+}}}", f"{m}x{c:+}=y"]  # fmt: skip
    return f"y={m}x{c:+}", rng.choice(forms)


def powers_and_logs(rng):
    a, b = rng.choice([2, 3, 5]), rng.randint(6, 9)
    return rng.choice([
        (rf"{a}^{{{b}}}", rng.choice([str(a**b), f"{a}^{b}", f"{a}**{b}", rf"{a}^{{{b}}}", rf"{a} ^ {{{b}}}", f"{a**b:,}"])),
        (rf"\log_{{{a}}} {b}", rng.choice([rf"\log_{a}({b})", rf"\log_{a}{{{b}}}", rf"\frac{{\ln {b}}}{{\ln {a}}}", rf"\frac{{\log {b}}}{{\log {a}}}"])),
        (rf"\ln {b}", rng.choice([rf"\ln({b})", rf"\ln{{{b}}}", rf"\log_e {b}", rf"\ln\left({b}\right)", f"ln({b})", f"ln {b}"])),
        (rf"e^{{{b}}}", rng.choice([f"e^{b}", rf"\exp({b})", rf"\mathrm{{e}}^{{{b}}}", rf"{{e}}^{{{b}}}", f"e**{b}"])),
        (rf"\binom{{{b + 3}}}{{{a}}}", rng.choice([rf"\dbinom{{{b + 3}}}{{{a}}}", rf"\tbinom{{{b + 3}}}{{{a}}}", rf"{{{b + 3} \choose {a}}}",
                                                   rf"\frac{{{b + 3}!}}{{{a}!\cdot {b + 3 - a}!}}"])),
        (rf"{b}!", rng.choice([f"{b}!", rf"{b} !"])),
    ])  # fmt: skip


MATH = [integers, integers, integers, decimals, units, units, percents, fractions, fractions, roots, multiples_of_pi, points, points, sets, sets, intervals,
        polynomials, products, complexes, matrices, bases, scientific, plus_minus, words, options, times_and_ratios, lines, powers_and_logs]  # fmt: skip


def quantities(rng):
    names = rng.choice(SCIENCE_UNITS)
    value = rng.choice(
        [f"{rng.randint(1, 999)}", f"{rng.randint(1, 99)}.{rng.randint(1, 99)}", f"{rng.randint(1000, 99999):,}"]
    )
    m, e = f"{rng.randint(1, 9)}.{rng.randint(1, 99):02}", rng.choice([-6, -3, 4, 8])
    if rng.random() < 0.4:
        raised = "".join(dict(zip("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", strict=True))[c] for c in str(e))
        written = [
            rf"{m} \times 10^{{{e}}}",
            f"{m}e{e}",
            f"{m} × 10{raised}",
            rf"{m}\cdot 10^{{{e}}}",
            f"{m} x 10^{e}",
            f"{m}E{e}",
            rf"{m}\times10^{{{e}}}",
        ]
    else:
        written = [value, value.replace(",", ""), value.replace(",", "{,}"), value.replace(",", r"\,")]
    gold_unit, unit = names[0], rng.choice(names)
    space = rng.choice([" ", " ", r"\ ", r"\,", "~"])
    names_of = [
        r"v = {}",
        r"\Delta H = {}",
        r"E = {}",
        r"{}",
        r"{}",
        r"{}",
        r"{}",
        r"\text{{Force}} = {}",
        r"T_1 = {}",
        r"\lambda={}",
        r"x = {}",
    ]
    answer = rng.choice(names_of).format(rng.choice(written) + space + unit)
    if rng.random() < 0.1:
        answer = rng.choice(written)
    return written[0] + rng.choice([" ", r"\ "]) + gold_unit, answer


def bare_science(rng):
    value = rng.choice([f"{rng.randint(1, 14)}", f"{rng.randint(1, 14)}.{rng.randint(1, 99)}"])
    unit = rng.choice(rng.choice(SCIENCE_UNITS))
    return value, rng.choice([f"pH = {value}", rf"\text{{pH}} = {value}", rf"\mathrm{{pH}} = {value}", f"n = {value}", f"{value} {unit}", rf"\text{{{value}}}", f"${value}$",
                              rf"\gamma = {value}", rf"K_{{eq}} = {value}", f"{value}0" if "." in value else value, rf"\text{{pH }} = {value}", f"pH: {value}"])  # fmt: skip


def chemistry(rng):
    gold = rng.choice(CHEMISTRY)
    plain = gold.replace("_", "").replace("{", "").replace("}", "")
    forms = [gold, rf"\ce{{{plain}}}", rf"\text{{{gold}}}", rf"\mathrm{{{gold}}}", plain.replace("^", "") if "^" not in gold else gold,
             gold.replace("_2", "_{2}").replace("_3", "_{3}").replace("_4", "_{4}"), gold.replace("_2", "₂") if "_" in gold and "^" not in gold else gold, f"${gold}$"]  # fmt: skip
    return gold, rng.choice(forms)


def science_options(rng):
    gold, answer = options(rng)
    letter = next(c for c in gold if c in "ABCDE" and gold[gold.index(c) - 1 : gold.index(c)] != "\\")
    text = rng.choice(
        [
            "5 m/s",
            "nitrogen",
            r"12\ \Omega",
            r"\text{the mitochondria}",
            "3.5 \\times 10^{4} J",
            "Newton's third law",
            r"x^2+1",
            "increases",
        ]
    )
    longer = [
        f"{letter}. {text}",
        f"({letter}) {text}",
        f"{letter}) {text}",
        f"{letter}: {text}",
        rf"\text{{{letter}. }}{text}",
        rf"\textbf{{({letter})}} {text}",
    ]
    return gold, rng.choice([answer, letter.lower(), f"({letter.lower()})", *longer])


SCIENCE = [
    quantities,
    quantities,
    quantities,
    quantities,
    bare_science,
    chemistry,
    science_options,
    scientific,
    roots,
    fractions,
]


def right_answers(seed=0, count=2_500, looks=True):
    """(kind, gold, answer): two of math, then one of science. The answer is right."""
    rng = random.Random(seed)
    for number in range(count):
        kind, shapes = (("science", SCIENCE), ("math", MATH), ("math", MATH))[number % 3]
        gold, answer = rng.choice(shapes)(rng)
        yield kind, gold, look(rng, answer) if looks else answer


def twin(rng, kind):
    """A gold, and an answer that a lenient reader takes for it."""
    n, big, k = rng.randint(2, 99), rng.randint(1001, 99998), rng.randint(2, 9)
    comma = f"{big:,}"
    one, two = rng.sample(range(len(SCIENCE_UNITS if kind == "science" else UNITS)), 2)
    names, others = ((SCIENCE_UNITS if kind == "science" else UNITS)[at] for at in (one, two))
    unit = ({"science": " "}.get(kind, "")) + rng.choice(names)
    other = ({"science": " "}.get(kind, "")) + rng.choice(others)
    a, b = rng.sample(range(2, 40), 2)
    parts = distinct(rng, 3)
    cases = [
        (f"{n}{unit}", f"{n}{other}"), (f"{n}{unit}", f"{n + k}{unit}"), (f"{n}{unit}", f"{n}000{unit}"), (f"{n}{unit}", f"0.{n}{unit}"),
        (comma, comma.replace(",", ", ")), (comma, ", ".join(comma.split(",")[::-1])), (rf"\${comma}", ", ".join(comma.split(",")[::-1])),
        (comma, comma.replace(",", ".")), (comma, str(big + 1)), (rf"x={comma}", comma.replace(",", ", ")), (rf"{n}\%", str(n)), (str(n), rf"{n}\%"),
        (rf"{n}\%", rf"0.{n}\%"), (rf"{n}\%", rf"{n} \text{{ dollars}}"), (rf"\${n}", rf"{n} \text{{ cents}}"), (rf"{n}\text{{ cents}}", rf"\${n}"),
        (rf"\${n}", rf"{n} \text{{ euros}}"), (str(n), rf"{n} \text{{ thousand}}"), (str(n), rf"{n} \text{{ dozen}}"), (str(n), rf"\text{{about }} {n}"),
        (str(n), rf"{n} \text{{ or }} {n + k}"), (str(n), rf"\frac{{1}}{{{n}}}"), (str(n), f"{n}x"), (str(n), rf"{n}^\circ {k}'"), (str(n), f"{n}:{10 + k}"),
        (f"({a},{b})", f"({b},{a})"), (f"({a},{b})", rf"\{{{a},{b}\}}"), (f"({a},{b})", f"[{a},{b}]"), (f"[{a},{a + b})", f"({a},{a + b})"),
        (f"[{a},{a + b})", rf"{a} < x < {a + b}"), (f"x > {a}", rf"x \ge {a}"), (f"({a},{b},{n})", f"({a},{b})"), (f"{a}:{b}", f"{b}:{a}"),
        (f"{a}, {b}", f"{a}"), (f"{a}, {b}", f"{a}, {b}, {a + b}"), (rf"\{{{a},{b}\}}", rf"\{{{a}\}}"), (rf"{a}, {b}", rf"{a}, {a}"),
        (",".join(parts), ",".join(parts[:2])), (rf"{a} \pm \sqrt{{3}}", rf"{a} + \sqrt{{3}}"), (rf"{a}\sqrt{{{k}}}", rf"{a}\sqrt{{{k + 1}}}"),
        (rf"{a}\sqrt{{3}}", rf"\sqrt{{{3 * a}}}"), (rf"{a}\pi", f"{3.14 * a:.2f}"), (rf"{a}\pi", f"{a}"), (r"\frac{1}{3}", "0.33"), (r"\frac{2}{3}", "0.667"),
        (f"{a}_5".replace("5", "6"), f"{a}_7"), (f"{a}_8", f"{a}"), (f"x={a}", f"y={a}"), (f"x={a}, y={b}", f"x={b}, y={a}"), (f"{a}", f"x^2 = {a}"),
        (f"{a}", f"x^2+y^2={a}"), (f"{a}", f"{b} = {a}"), (f"{a}", rf"2x = {a}"), (f"{a}+{b}i", f"{b}+{a}i"), (f"{a}+{b}i", f"{a}-{b}i"),
        (rf"\begin{{pmatrix}} {a} \\ {b} \end{{pmatrix}}", rf"\begin{{pmatrix}} {b} \\ {a} \end{{pmatrix}}"),
        (rf"\begin{{pmatrix}} {a} \\ {b} \end{{pmatrix}}", rf"\begin{{pmatrix}} {a} & {b} \end{{pmatrix}}"),
        (rf"\begin{{pmatrix}} {a} & {b} \\ 1 & 2 \end{{pmatrix}}", rf"\begin{{pmatrix}} {a} & 1 \\ {b} & 2 \end{{pmatrix}}"),
        (rf"{k}.5 \times 10^{{{k}}}", rf"{k}.5 \times 10^{{{k + 1}}}"), (f"{k}.5e-{k}", f"{k}.5e{k}"), (r"\text{Evelyn}", r"\text{not Evelyn}"),
        (r"\text{Evelyn}", "Carla"), (r"\text{(B)}", "(C)"), (r"\text{(B)}", r"\text{(B) or (C)}"), ("B", "A, B"), ("B", r"\text{B and C}"), (f"x^2+{a}", f"x^2-{a}"),
        (f"x^2+{a}x", f"x^2+{a}"), (f"y=2x+{a}", f"y=2x-{a}"), (f"{a}", rf"{a} \text{{ feet }} {b} \text{{ inches}}"), (f"{a}", rf"{a} \frac{{1}}{{2}}"),
        (f"{a}", rf"\text{{not }} {a}"), (f"{a}", rf"{a} \approx {b}"), (f"{a}", rf"{a} \pm {k}"), (f"{a}", rf"{a}!" if a > 2 else "7"), (f"{a}", rf"-{a}"),
    ]  # fmt: skip
    if kind == "science":
        cases = cases[:4] * 3 + cases[-20:] + [
            (f"{n} J", f"{n} kJ"), (f"{n} kJ", f"{n}000 J"), (f"{n} °C", f"{n} K"), (f"{n} °C", rf"{n}^\circ\text{{F}}"), (f"{n} m/s", f"{n} m/s^2"), (f"{n} N", f"{n} N m"),
            (f"{n} mol", f"{n} mmol"), (f"{n}.25 V", f"{n}.26 V"), ("CO_2", "CO"), ("Fe^{3+}", "Fe^{2+}"), ("B", "C. 5 m/s"), ("B", "b or c"), ("B", r"\text{not B}"), (f"{n} m", f"{n} s"),
            (f"{n} MW", f"{n} mW"), (f"{n} J/mol", f"{n} J mol"), (f"{n} m s^{{-1}}", f"{n} m s"), ("SO_4^{2-}", "SO_3^{2-}"), (f"pH = {k}", f"pH = {k + 1}"), (f"{n} eV", f"{n} MeV"),
        ]  # fmt: skip
    return rng.choice(cases)


# A name before "=" may have these before it: \sin x = 5 answers 5.
OF_A_NAME = {r"\sin ", r"\lim ", r"\ln ", r"\log ", r"\overline", "x+", "anti"}
# After a unit these are a power of it, and a gold without a unit accepts any. After a name they make another name.
OF_A_NUMBER = {"^2", "^{-1}", "**2", r"\text{ squared}", "i", "x", "'", "_1", "+C"}


def wrong_forms(seed=0, count=2_500):
    """(kind, gold, answer): a right answer with text before or after it that makes it wrong, or a twin."""
    rng = random.Random(seed)
    for kind, gold, answer in right_answers(seed + 1, count, looks=False):
        how = rng.random()
        option = re.fullmatch(r"(?:\\text(?:bf)?\{)?\(?[A-E]\)?\}?", gold)  # nothing compares the text of an option
        if how > 0.7 or option or answer.endswith("= 0") or ":" in answer:  # 0 times 7 is 0
            gold, wrong = twin(rng, kind)
        elif how > 0.35:
            wrong = answer + rng.choice([tail for tail in TAILS if answer[-1].isdigit() or tail not in OF_A_NUMBER])
        else:
            but = OF_A_NAME if "=" in answer else set()
            if re.match(r"\\frac|1(?!\d)", answer):  # \sqrt\frac{4}{4} is \frac{4}{4}, and 1/1 is 1
                but = but | {r"\sqrt ", "1/"}
            if answer[0] == "0":  # 0 < x is -0 < x
                but = but | {"-"}
            wrong = rng.choice([head for head in HEADS if head not in but]) + answer
        if (wrong == "x" + answer and "=" in answer) or (wrong == "7=" + answer and "7" in gold):  # may be right
            wrong = "not " + answer
        if gold == "7" or (kind == "science" and wrong == answer + ".7"):  # 7=7, and 275,000.7 for 2.75e5: right
            gold, wrong = twin(rng, kind)
        yield kind, gold, look(rng, wrong) if rng.random() < 0.3 else wrong


# Answers that people and models write. gold  |  answer  |  another answer
RIGHT_MATH = pairs(r"""
\binom{n}{k+2}  |  \frac{n!}{(k+2)!(n-k-2)!}  ;  \binom{n-1}{k+1}  |  \frac{(n-1)!}{(k+1)!(n-k-2)!}
\binom{n-2}{k}  |  \frac{(n-2)!}{k!(n-k-2)!}  ;  \binom{n-3}{r}  |  \frac{(n-3)!}{r!(n-r-3)!}
n/2  |  \frac{(n/2)!}{(n/2-1)!}  ;  n(n-1)(n-2)(n-3)(n-4)  |  \frac{n!}{(n-5)!}
2\sqrt3  |  2\sqrt{3} \approx 3.46  |  x = 2\sqrt3\ (\approx 3.464)  |  2\sqrt3 \text{ or approximately } 3.46  ;  3.46  |  x \approx 3.46  |  \approx 3.46
2\sqrt3 \approx 3.46  |  2\sqrt3  |  3.46  ;  \frac12  |  \frac12 \text{ or } 0.5  |  0.5 \text{ or } 50\%
f(x)=2x  |  f(x) \equiv 2x  |  y=2x  |  f(x)=2x, \forall x \in \mathbb{R}  ;  2x  |  \frac{dy}{dx}=2x
\text{no solution}  |  \text{No solutions}  |  \emptyset  ;  \mathbb{R}  |  \text{all real numbers}  ;  x \ne 2  |  x\not=2
5  |  5 \text{ more apples}  |  5 \text{ positive integers}  ;  3 \text{ g}  |  3 \text{ g of CO2}  |  3 \text{ g CO}_2  ;  55  |  \text{Power} = 55
\begin{pmatrix} 1/2 \\ 1 \end{pmatrix}  |  \frac12\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  -\begin{pmatrix} -1/2 \\ -1 \end{pmatrix}
k\pi, k \in \mathbb{Z}  |  n\pi \ (n \in \mathbb{Z})  |  x = m\pi \text{ where } m \text{ is an integer}  |  \{k\pi : k \in \mathbb{Z}\}  ;  2k\pi  |  2k\pi, k \in \mathbb{Z}
(-2,2)  |  |x|<2  ;  2\omega\mu  |  2ωμ  ;  \langle 1,2 \rangle  |  ⟨1,2⟩  ;  3\mathbf{i}-\mathbf{j}  |  3\hat{i}-\hat{j}  |  3\hat{\imath}-\hat{\jmath}
3:00 \text{ PM}  |  3 \text{ p.m.}  |  3:00pm  |  3 \text{ pm}  ;  3 \text{ hours } 5 \text{ minutes}  |  3 \text{ hours and } 5 \text{ minutes}  |  3 hours, 5 minutes
\frac13  |  0.333\ldots  |  .\overline{3}  ;  \frac{4}{33}  |  0.1212…  ;  21  |  C(7,2)  |  \text{twenty-one}  ;  11  |  \text{eleven}
5  |  5个苹果  |  5元  |  5 руб.  |  5 км  |  5 ชั่วโมง  |  5 ₽  ;  5元  |  5
2t^4+7t+11  |  \mathrm{11 +2 t^4 +7 t}  |  \mathrm{y = 2t^{4}+11+7t}  ;  5\text{ m}, 6\text{ m}  |  5\text{ m}, 6\text{ m}
1A3_{16}  |  (1A3)_{16}  |  1A3_{\text{sixteen}}  |  (1A3)_{\text{sixteen}}  |  1A3_{(16)}
Tom  |  tom  |  Tom  |  \text{Tom}  ;  red  |  Red  |  RED  ;  xy  |  yx  |  x \cdot y  ;  ab  |  ba  ;  abc  |  cab  ;  ABC  |  ABC
(3,7)  |  y=7, x=3  |  (y,x)=(7,3)  |  (a,b)=(3,7)  |  a=3,b=7  |  b=7,a=3  |  \begin{cases}x=3\\y=7\end{cases}  |  x=3 \text{ and } y=7
(x,y)=(3,7)  |  (y,x)=(7,3)  |  y=7,x=3
(-2,3)  |  x>-2\text{ and }x<3  |  -2<x\land x<3  |  x<3 \text{ and } x>-2
12  |  12^{\text{th}}  |  \text{twelve}  |  \pounds12  |  \euro12  |  \text{The answer is }12  |  \text{Tom has 12 apples}  |  \text{Minimum value is }12  |  \text{Remainder}=12  |  \text{GCD}(24,36)=12
12  |  f^{-1}(3)=12  |  f'(2)=12  |  f''(0)=12  |  f_2(1)=12  |  f^{(3)}(0)=12  |  (f\circ g)(2)=12  |  |x-y|=12  |  m-n=12  |  P(A\cap B)=12  |  \lim_{x\to2}f(x)=12  |  \sum_{k=1}^n a_k=12  |  \int_0^1 f(x)\,dx=12
28\%  |  \text{Percentage}=28\%
7  |  \text{seven}  |  seven
\sin 40^\circ  |  \sin(40^\circ)  |  \sin{40^\circ}  |  \sin\left(40^\circ\right)  ;  \frac{\sqrt3}{2}  |  \sin(60^\circ)
(1,2),(3,-4)  |  x=1,y=2 \text{ or } x=3,y=-4  |  x=3,y=-4 \text{ or } y=2,x=1
\frac{x^2}{2}+C  |  \frac{x^2}{2}+c  |  \frac{x^2}{2}+K
\begin{pmatrix}3\\-7\end{pmatrix}  |  (3,-7)^T  |  \begin{pmatrix}3\cr-7\end{pmatrix}
70,000  |  70{\,}000  |  70\text{,}000  |  US\$70,000  ;  0.5  |  0{.}5  |  \nicefrac12  |  \sfrac12  |  1⁄2  ;  \frac13  |  0.\dot3  |  0.\dot{3}
72^\circ  |  72\textdegree  ;  Evelyn  |  \text{"Evelyn"}  |  “Evelyn”  ;  2\sqrt2  |  2\surd2  ;  \sqrt[3]{4}  |  \root 3\of 4
a_nb  |  a_n b  |  ba_n  ;  v_{max}  |  v_max
3:4  |  3∶4  ;  \frac{1}{2}  |  1⁄2  |  \nicefrac{1}{2}  |  \sfrac{1}{2}
72^\circ  |  72\textdegree  |  \measuredangle A = 72^\circ
4  |  f^{-1}(5)=4  |  f'(2)=4  |  f''(0) = 4  |  \varphi(n) = 4  |  v(2) = 4  |  \pounds 4  |  \euro 4
\frac{x-3}{2}  |  f^{-1}(x)=\frac{x-3}{2}  |  f'(x)=\frac{x-3}{2}  ;  10\text{ cents}  |  10¢  |  10\text{¢}
2x  |  2x \text{ for all real } x  |  2x \text{ for all positive integers } x  |  2x \text{ for every } x
x \neq 2  |  (-\infty,2)\cup(2,\infty)  |  \mathbb{R}\setminus\{2\}  |  2 \ne x  |  \{x \mid x \ne 2\}
5 \text{ hp}  |  5\text{ HP}  |  5 \text{ horsepower}  ;  5 \text{ kg}  |  5\text{ Kg}  |  5 \text{ KG}
\frac{1}{3}  |  0.3\text{ repeating}  |  0.\overline{3}  ;  \frac{1}{6}  |  0.1\overline{6}
\frac{3}{4}  |  0.75  |  .75  |  \frac{3}{4}\text{ cup}  |  \frac34\text{ of a mile}  |  \dfrac{3}{4}\, \text{cups}
12  |  12\text{ cm}^{2}.  |  \left(12\right)  |  12 \text{ sq. units}  |  \text{Answer} = 12  |  \text{The answer: } 12  |  12 \text{ per day}  |  12\text{ gallons of water}  |  12\,\text{m}^3
12  |  12 hours  |  x \, = \, 12  |  n=12 \text{ students}  |  12 \text{ days}  |  12\text{ nickels}  |  \text{12}  |  \mathtt{12}  |  \textit{12}
12  |  \bm{12}  |  \mathrm{12\,cm}  |  \mathrm{12cm}  |  12 \mathrm{cm}  |  12 \text{ \(cm\)}  |  {12}\text{ cm}  |  \$12/\text{hour}  |  \$ 12 \text{ each}
(-\infty,3)  |  x<3  |  (-∞,3)  |  \left(-\infty,3\right)  |  x \in (-\infty, 3)  |  3 > x  |  \{x \mid x < 3\}  |  \{x: x<3\}  |  (-\infty, 3.0)
\begin{pmatrix} 1 \\ 2 \end{pmatrix}  |  \begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}  |  \begin{bmatrix}1\\2\end{bmatrix}  |  \left[\begin{array}{r}1\\2\end{array}\right]  |  \left( \begin{matrix} 1 \\ 2 \end{matrix} \right)  |  \langle 1, 2\rangle
\frac{\pi}{6}  |  30^\circ  |  \pi/6  |  \theta = \frac{\pi}{6}  |  \frac{\pi}{6} \text{ radians}  |  \frac{\pi}{6}\text{ rad}
\text{(C)}  |  \mathbf{C}  |  (\text{C})  |  (\mathbf{C})  |  \boxed{\text{C}}  |  \text{Choice C}  |  \text{option C}
3\frac{1}{2}  |  3.5  |  \frac{7}{2}  |  7/2  |  3 \frac12  |  3\tfrac{1}{2}  |  3 1/2  |  3 + \frac{1}{2}
3:00  |  3:00 \text{ PM}  |  \text{3:00}  |  3{:}00
4:3  |  4 : 3  |  4 \text{ to } 3
-2,3  |  x \in \{-2, 3\}  |  x=-2,\; 3  |  \boxed{-2}, \boxed{3}  |  -2 and 3  |  -2\text{ or }3
\log_2 3  |  \frac{\ln 3}{\ln 2}  |  \log_{2}(3)  |  \frac{\log 3}{\log 2}  |  \frac{1}{\log_3 2}
x^2+y^2=25  |  y^2 + x^2 = 25  |  x^2+y^2-25=0  |  25=x^2+y^2
6  |  3!  |  |{-6}|  |  \lfloor 6.5 \rfloor  |  ⌊6.5⌋  |  ⌈5.5⌉  |  2 \times 3 = 6  |  |-6|  |  \sqrt{36}  |  6.0  |  6.00
(2,3)  |  x=2, y=3  |  (x,y)=(2,3)  |  \left(2,3\right)  |  \{(2,3)\}  |  x=2 \text{ and } y=3  |  (2;3)  |  2, 3  |  A(2,3)
\frac{a}{b}  |  a/b  |  a \div b
[2,5)  |  2\le x<5  |  [2, 5)  |  x\in[2,5)  |  2\leqslant x < 5
10  |  \$10  |  \$10.00  |  \mathbf{\$10}  |  10\text{ USD}  |  \text{\$}10.00  |  \textdollar10  |  10\,\$  |  \text{10 dollars}
48  |  48 \text{ slices}  |  8+40=48  |  48.  |  x=48  |  48\text{ pieces of pizza}
16  |  16 \text{ lbs}  |  16 \text{ pounds}  |  16 lbs  |  16\text{ lb.}
990  |  \$990  |  \$ 990  |  990 \text{ dollars per month}  |  \$990\text{ per month}  |  \$990/month  |  \$990 \text{ a month}
27  |  27 \text{ apples left}  |  27 \text{ remaining apples}  |  27 \text{ apples remaining}
5  |  5 \text{ days}  |  5 \text{ times}  |  \text{5 times}  |  5\text{ zeros}
18  |  \boxed{18}  |  \boxed{\$18}  |  \text{Total: } 18  |  \text{Total: } \$18  |  Total: 18  |  \textbf{Total: }18  |  \text{Cost: \$18}  |  \text{Cost} = \$18
\frac{1}{4}  |  1/4  |  0.25  |  25\%  |  \frac{1}{4}\text{ of the cake}  |  \text{1/4}  |  {1 \over 4}  |  \frac{25}{100}  |  1 / 4
1/2  |  \frac{1}{2}  |  \text{½}  |  ½  |  .5
2,3,5  |  2, 3, 5  |  \{2,3,5\}  |  2, 3 \text{ and } 5  |  5,3,2  |  (2,3,5)  |  [2,3,5]  |  2 \text{, } 3 \text{, } 5  |  \text{2, 3, and 5}
x \in [-2,7]  |  [-2,7]  |  -2 \leq x \leq 7  |  [-2, 7]
2516_8  |  2516_{8}  |  (2516)_8  |  2516 \text{ in base } 8
\text{infinitely many}  |  \text{Infinitely many}  |  infinitely many
(3, \frac{\pi}{2})  |  (3, \pi/2)  |  \left( 3, \frac{\pi}{2} \right)  |  (3,90^\circ)  |  r=3, \theta=\frac{\pi}{2}
\cot x  |  \frac{\cos x}{\sin x}  |  \frac{1}{\tan x}  |  \cot(x)  |  \cot{x}
120^\circ  |  120  |  120°  |  120^{\circ}  |  120\degree  |  120\text{°}  |  \angle A = 120^\circ  |  120 \text{ deg}
e^{-2}  |  \frac{1}{e^2}  |  \exp(-2)
50  |  50 \text{ km/h}  |  50 km/h  |  50\text{ kph}  |  50 \frac{\text{km}}{\text{h}}  |  50\text{ miles}/\text{hour}  |  50\ \mathrm{mi}
\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}  |  \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}  |  \left[\begin{array}{cc} 1 & 0 \\ 0 & 1 \end{array}\right]  |  \begin{pmatrix}1&0\\0&1\end{pmatrix}  |  \left(\begin{smallmatrix}1&0\\0&1\end{smallmatrix}\right)  |  \begin{pmatrix} 1 & 0 \\[4pt] 0 & 1 \end{pmatrix}
57  |  57\\  |  \[57\]  |  \(57\)  |  57\;  |  \text{$57}  |  57 \hspace{1mm} \text{cm}  |  \boldsymbol{57}
57  |  ５７  |  \text{57}  |  \mbox{57}  |  \rm{57}  |  {\bf 57}  |  \mathsf{57}  |  {\large 57}  |  \colorbox{yellow}{57}
57  |  \text{\textbf{57}}  |  57\text{ in total}  |  57 total  |  \underline{\underline{57}}  |  \fbox{57}  |  \boxed{\boxed{57}}  |  57~\text{cm}  |  +57
57  |  57\phantom{0}  |  57 \quad
|x-3|  |  |3-x|  |  \left|x-3\right|  |  \lvert x-3 \rvert
15\text{ mph}  |  15 mph  |  15 miles per hour  |  15 \text{ mi/hr}  |  15 \text{ mi/h}  |  15\text{ miles}/\text{hour}  |  15\text{ miles an hour}
9\text{ sq ft}  |  9 \text{ ft}^2  |  9 square feet  |  9 \text{ square foot}  |  9 ft^2  |  9 sq. ft.  |  9 \text{ sq. feet}
\$1{,}200  |  1200  |  \$1200  |  1,200 dollars  |  \$1,200.00  |  1.2 \text{ thousand dollars}
\arcsin{10 \theta}  |  \sin^{-1}(10\theta)  ;  \frac12 \ln 2  |  \ln\sqrt{2}  |  \frac{\ln 2}{2}  |  \frac{\ln(2)}{2}
(x+2)(x-3)  |  x^2-x-6  |  (x - 3)(x + 2)  ;  \cos 2x  |  1-2\sin^2 x  |  2\cos^2(x)-1
\tan^{-1}(2)  |  \arctan 2  ;  2^{10}  |  1024  ;  5 \text{ or } -5  |  \pm 5
1,2,3  |  3, 1, 2  ;  1,2  |  1 \text{ and } 2  |  x=1 \text{ or } x=2  ;  x=1,y=2  |  y=2,x=1  |  (1,2)  |  1,2
e^{i\pi/3}  |  \frac{1}{2}+\frac{\sqrt{3}}{2}i  ;  \emptyset  |  \varnothing  ;  \mathbb{R}  |  (-\infty,\infty)
11,111,111,100  |  11,\! 111,\! 111,\! 100  ;  10  |  10 apples  ;  f(x)=x^2  |  x^2  ;  \text{June 20}  |  June 20
x' + \frac{r}{V}x - rc = 0  |  x^{\prime}+\frac{r}{V} x-r c=0  ;  E_1, E_2  |  E_{2},E_{1}
A e^{-E_a/RT}  |  A e^{-\frac{E_a}{RT}}
\frac{Q}{4\pi\varepsilon_0 R_\odot^2}  |  \frac{1}{4\pi\epsilon_0}\frac{Q}{R_{\odot}^{2}}  ;  2+3i  |  2 + 3\mathrm{i}
70000  |  \$70,000  |  $70,000$  |  \$70,000.00  |  70,000\text{ dollars per year}  |  \text{\$}70000  |  USD 70000  |  €70000
70000  |  130,000 - 60,000 = \$70,000  |  \text{Profit} = 70,000  |  \text{Answer: } 70{,}000  |  ７００００
8  |  8 \text{ eggs}  |  8 years old  |  8\text{ cups of tea}  |  8 \text{ zeros}  |  8 yuan  |  8 元  |  \text{8 apples}  |  8cm
8  |  \boldsymbol{8}  |  {\color{blue}{8}}  |  \textcolor{red}{8}  |  \Large{8}  |  \mathbf{\text{8}}  |  **8**  |  {\bf 8}  |  8。
8  |  AB = 8  |  AB^2 = 8  |  P(X=2)=8  |  a+b+c=8  |  |AB| = 8  |  \cos A = 8  |  8_{10}  |  f(x) = 8  |  4!/3
8 \text{ inches}  |  8 \text{ in}  |  8 inch  |  8  ;  8\text{ cm}^2  |  8 \text{ square centimeters}  |  8 \text{ sq. cm}  |  8 cm^2
60\text{ mph}  |  60 \text{ miles per hour}  |  60 mi/h  ;  5.4 \text{ cents}  |  5.4\text{ cents per ounce}
28\%  |  28 percent  |  \text{28 percent}  |  28 pct  |  28 per cent  |  28％  ;  \$5 \text{ million}  |  5 \text{ million dollars}  |  5000000
204_5  |  204_{five}  |  (204)_5  |  204_{(5)}  ;  \frac{10!}{3!4!}  |  25200  ;  \frac13  |  0.\overline{3}  ;  120  |  5!  |  \binom{10}{3}
3\times 10^8  |  3 x 10^8  |  3*10**8  ;  14-i  |  14.0 + -1.0i  ;  Yes  |  yes  ;  No  |  no  ;  Odd  |  odd  ;  5  |  \text{USD 5}  ;  2x  |  f(x)=2x \text{ for all real } x
100,200  |  200, 100  |  100200  ;  (10,100)  |  (10, 100)  ;  12,600  |  12600  ;  15,000, 20,000  |  15000, 20000
\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}  |  \begin{bmatrix} 0.5 \\ 3 \\ \end{bmatrix}  |  (\frac12,3)  |  \left(\begin{array}{c} \frac12 \\ 3 \end{array}\right)
2x+4y-3=0  |  y=-\frac{1}{2}x+\frac{3}{4}  |  4x+8y-6=0  ;  [1,\infty)  |  \{x \mid x \ge 1\}  ;  (2,3)  |  P(2,3)
5  |  f^{-1}(2)=5  |  (f\circ g)(x)=5  |  \gcd(12,18)=5  |  \det A=5  |  A_1B_1=5  |  \text{Var}(X)=5  |  E[X]=5  ;  a(b+c)  |  (b+c)\cdot a
(1,2)\cup(3,4)  |  (3,4)\cup(1,2)  |  1<x<2\text{ or }3<x<4  |  (1,2),(3,4)  ;  (0,36)\setminus\{9\}  |  (0,9)\cup(9,36)
(-\infty,1),(2,\infty)  |  (-\infty,1)\cup(2,\infty)
\frac12  |  e=0.5  ;  e=\frac12  |  \frac12  |  e=0.5  ;  3  |  i=3  ;  e=2  |  2  ;  5  |  e = 2+3 = 5
x=1 \text{ or } x=2  |  x_1=1,x_2=2  ;  x=1\pm\sqrt2  |  x_1=1+\sqrt2, x_2=1-\sqrt2  |  x_{1,2}=1\pm\sqrt2
\frac14  |  \mathbb{P}(A)=\frac14  ;  5  |  \mathbb{E}[X]=5  |  \mathbb{E}(X)=5
n\cdot n!  |  n!\cdot n  ;  \binom{2n}{n}  |  \frac{(2n)!}{(n!)^2}  ;  \frac{n(n+1)}{2}  |  \binom{n+1}{2}  ;  \binom{n}{k}  |  \frac{n!}{k!(n-k)!}  ;  \frac{(n+2)!}{n!}  |  (n+1)(n+2)  ;  n(n-1)  |  \frac{n!}{(n-2)!}  ;  \frac{1}{n+1}\binom{2n}{n}  |  \frac{(2n)!}{n!(n+1)!}  ;  (n-3)!  |  \frac{(n-2)!}{n-2}
x\sqrt{x}  |  \sqrt{x^3}  ;  \sqrt{ab}  |  \sqrt a\sqrt b  ;  \sqrt{2gh}  |  \sqrt{2g}\sqrt{h}  ;  36x\sqrt{35x}  |  36\sqrt{35x^3}  ;  2x\sqrt{2x}  |  \sqrt{8x^3}  ;  \sqrt{x-100}+1  |  1+\sqrt{x-100}  ;  \sqrt{\frac{a}{b}}  |  \frac{\sqrt a}{\sqrt b}
lw  |  wl  ;  pq  |  qp  ;  mgh  |  mhg  ;  nRT  |  RTn  ;  60^\circ  |  \frac{\pi}{3}\text{ rad}  ;  \frac{\pi}{3}\text{ rad}  |  60^\circ
k\pi, k\in\mathbb{Z}  |  k\pi \text{ for all integers } k  |  n\pi, \forall n \in \mathbb{Z}  ;  x=k\pi, k\in\mathbb{Z}  |  x = k\pi \text{ for any integer } k
2x \text{ for all integers } x  |  2x  ;  f(n)=2n \text{ for all } n \in \mathbb{Z}  |  f(n)=2n  |  2n  ;  2x  |  2x \text{ for all integers } x  ;  5  |  5 \text{ for all integers } n
10^{2024}-1  |  -1+10^{2024}  ;  \frac{10^{2024}-1}{9}  |  \frac{1}{9}(10^{2024}-1)  ;  2024!  |  2024\cdot 2023!  ;  \binom{2024}{1012}  |  \frac{2024!}{(1012!)^2}
\frac{1}{x-1}  |  \frac{1}{x-1}, x\neq 1  |  \frac{1}{x-1}, \quad x \ne 1  |  f(x)=\frac{1}{x-1}, x\ne1  ;  f(x)=\frac{1}{x-1}  |  f(x)=\frac{1}{x-1}, x\ne 1  |  \frac{1}{x-1}, x\ne 1
\frac{1}{x(x-1)}  |  \frac{1}{x(x-1)}, x\ne 0, x\ne 1
""")
RIGHT_SCIENCE = pairs(r"""
8.81 J  |  E \approx 8.81 \text{ J}  |  E = 8.814 J  ;  8.81, 3.22  |  8.814, 3.221  ;  (8.81, 3.22)  |  (8.814, 3.221)  ;  78.5  |  25\pi  |  25\pi \approx 78.54
A  |  A. P(A)  |  A. \frac{B}{2}  |  A. 5 C  |  A. F = BIL  |  A. a b c  |  A. \text{a red ball}  |  A. e^{-x}  |  A. C_2H_6  |  A. \text{ATP and NADPH}  |  A: it increases  |  A. 5 d
k_BT  |  k_B T  |  k_{B}T  |  k_{\text{B}}T  |  Tk_B  |  k_{\mathrm B}T  ;  m_ec^2  |  m_e c^2  |  m_{e}c^2  ;  \mu_kmg  |  \mu_k mg  |  \mu_k m g
1.10 \text{ V}  |  E^\circ_{\text{cell}}=1.10 \text{ V}  |  E_{\text{cell}}^\circ=1.10\text{ V}  ;  -285.8 \text{ kJ/mol}  |  \Delta H^\circ_f=-285.8 kJ/mol  |  \Delta G^{\circ}_{\text{rxn}}=-285.8\text{ kJ/mol}  |  \Delta_f H^\circ=-285.8
3t+1  |  v(t)=3t+1  |  x(t)=3t+1  |  \rho(r)=3t+1  |  \Delta E=3t+1  |  |B|=3t+1  |  |\vec F|=3t+1  |  \dot x=3t+1  ;  3kx  |  \frac{dv}{dt}=3kx
4.76  |  pKa=4.76  |  pK_a=4.76
A  |  A. \ce{H2O}  |  A. I and II  |  \text{A. I and II only}  |  A. 5 and 6  |  A. 1, 2, 3  |  A. Na^+  |  A. \text{sp}^3  |  \text{(A) I, II and III}  |  A - increases  |  A \text{ (increases)}  |  a)  |  A. 5 A  |  A. E = mc^2
SO_4^{2-}  |  SO₄²⁻  |  \ce{SO4^2-}  ;  Na^+  |  Na⁺  |  Na^{1+}  ;  Fe^{3+}  |  Fe^{+3}  |  Fe³⁺  ;  ^{14}_{6}C  |  \ce{^{14}_{6}C}  |  {}_6^{14}\mathrm{C}
20 \text{ N}\cdot\text{m}  |  20 Nm  |  20\text{ N-m}  |  20\text{ newton-meters}  ;  5 \mu\text{m}  |  5 \text{ microns}  ;  5 \text{ eV}  |  5 \text{ electron-volts}
6.0\text{ m/s}  |  6.0\text{ m/s to the right}  |  6.0\text{ m/s east}  |  \SI{6.0}{m/s}  |  \qty{6.0}{m/s}  ;  30^\circ  |  30^\circ\text{ above the horizontal}
red  |  Red  |  RED  ;  ice  |  Ice  ;  ma  |  F = ma  ;  NO  |  NO  |  \ce{NO}  ;  No  |  no  |  NO
5 m/s  |  5 \frac{m}{s}  |  5\ \text{m}\,\text{s}^{-1}  |  5 m s^{-1}  |  5 meters/second  |  5 m/sec  |  v = 5\ \mathrm{m/s}  |  5.0 m/s  |  5 m\cdot s^{-1}
5.0 \times 10^{14} Hz  |  5.0e14 Hz  |  5 × 10^14 Hz  |  5.0\cdot10^{14}\ \text{Hz}  |  f = 5.0 \times 10^{14}\,\mathrm{Hz}  |  5.0*10^{14} hertz
2H_2 + O_2 \rightarrow 2H_2O  |  2H_2+O_2 \to 2H_2O  |  2 H_2 + O_2 → 2 H_2O
10\ \Omega  |  10 ohms  |  10 Ω  |  10 Ω  |  10\,\Omega  |  R = 10\ \Omega  |  10 ohm  |  10\text{ }\Omega
6.63 \times 10^{-34} J s  |  6.63e-34 J·s  |  6.626 \times 10^{-34}\ \text{J}\cdot\text{s}  |  6.63\times10^{-34}\,\mathrm{J\,s}  |  6.63 × 10⁻³⁴ J s
3  |  \text{3 moles}  |  3 mol  |  n = 3  |  pH = 3  |  \text{pH} = 3.0  |  3.0
B  |  B. 12 m/s  |  (B) 12 m/s  |  \textbf{B}  |  b  |  \text{(b)}  |  \text{Option B}  |  B: 12  |  \text{B) } 12
3.0 \times 10^8 m/s  |  3.0e8 m/s  |  3.00 \times 10^{8}\,\text{m/s}  |  3 × 10^8 m/s  |  c = 3.0 \times 10^{8}\ \mathrm{m\,s^{-1}}  |  3.0 x 10^8 m/s  |  300000000 m/s  |  3.0·10⁸ m/s  |  (3.0 \times 10^8) m/s
4.5 g  |  4.5 grams  |  4.5\,\text{g}  |  4.50 g  |  m = 4.5 g  |  4.5 g NaCl  |  4.5\text{ g of NaCl}
25 cm^3  |  25\text{ cm}^3  |  25 cubic centimeters  |  25 cm³  |  25 cc  |  V = 25\ \mathrm{cm^3}
Mg(OH)_2  |  \text{Mg(OH)}_2  |  \ce{Mg(OH)2}  |  Mg(OH)2  |  \mathrm{Mg(OH)_2}
0.5 mol/L  |  0.5 M  |  0.50 mol/L  |  0.5\ \text{mol}/\text{L}  |  0.5 mol L^-1  |  0.5 mol·L⁻¹  |  0.5 moles per liter  |  [A] = 0.5 M
4.0 × 10^{-7} m  |  4.0e-7 m  |  4.0 \times 10^{-7}\text{ m}  |  400 \times 10^{-9} m  |  \lambda = 4.0 \times 10^{-7}\ \mathrm{m}
x = v_0 t + \frac{1}{2}at^2  |  v_0 t + \frac{1}{2} a t^2  |  x = v_0t+0.5at^2
A  |  a  |  (A)  |  \text{A}  |  A)  |  (a)  |  A: it increases  |  (A) It increases  |  A. It increases because T rises
B  |  B. It does not change
""")
WRONG_MATH = pairs(r"""
5  |  5\text{ Millionen}  |  5 Prozent  |  5 Dutzend  |  5 pour cent  |  5 тысяч рублей  |  5\text{만}  |  5 triệu  |  5\text{ألف}  |  5\text{ஆயிரம்}
\frac{x+2}{9}  |  \frac{x+2}{9}!  ;  x/10  |  (x/10)!  ;  n/2  |  \frac{(n/2)!}{(n/2-2)!}
5  |  5 \text{ grand}  |  5 \text{ bps}  |  5 \text{ squares}  |  5 \text{ short}  |  5 \text{ off}  |  5 \text{ hecto}
2\sqrt3  |  2\sqrt3 \approx 3.56  |  3\sqrt3 \approx 3.46  |  x \approx 3.46  ;  5  |  \approx 5.0  |  5 (\approx 7)  |  5 \text{ or } 5  ;  3  |  \pi \approx 3  ;  6.92  |  2 (\approx 3.46)
2x  |  \frac{dx}{dy}=2x  ;  f(x)=2x  |  f(x)=2x \text{ for all } x \in \{1\}  ;  \mathbb{R}  |  \text{all real numbers except 2}  ;  5  |  5 \text{ more}  |  5 \text{ more than 3}  ;  3 \text{ g of CO2}  |  3 \text{ g of H2O}
k\pi, k \in \mathbb{Z}  |  k\pi  |  n\pi, k \in \mathbb{Z}  |  k\pi, k \in \mathbb{N}  ;  x>2  |  x>2, x \in \mathbb{Z}  ;  5  |  5 (k \in \mathbb{Z})  ;  (-2,2)  |  |x| \le 2  ;  (-x,x)  |  |x|<x
3:00 PM  |  3 a.m.  |  3:30pm  ;  3 \text{ hours } 5 \text{ minutes}  |  5 \text{ hours } 3 \text{ minutes}  |  3, 5  ;  \frac13  |  0.33\ldots  ;  21  |  C(7,3)  |  \text{twenty-two}
5 \text{ dollars gained}  |  5 \text{ dollars lost}  ;  5  |  f(1,2] = 5
A+B+C  |  A+B+c  ;  x+C  |  x+b  ;  12  |  \text{Twice it is }12  |  \text{Bob has }12, \text{Tom has }13  |  \text{The sum is not }12
Tom  |  moT  ;  Ben  |  neB  ;  one  |  eon  ;  ABC  |  ACB  ;  red  |  der  ;  AB  |  BA  ;  No  |  on
(3,7)  |  y=3, x=7  |  (b,a)=(3,7)  |  x=3\text{ or }y=7  |  x=3,x=7  |  (y,x)=(3,7)  |  \begin{cases}x=7\\y=3\end{cases}
(-\infty,-2)\cup(3,\infty)  |  x<-2\text{ and }x>3  |  \{x\mid x<-2\text{ and }x>3\}
\frac{\pi}{6}  |  \frac{\pi}{6}^\circ  |  \frac{\pi}{6}\text{ degrees}
12  |  12 \text{ lakhs}  |  12 \text{ crores}  |  12 \text{ mn}  |  12 \text{ bn}  |  12 \text{ M}  |  12 \text{ myriad}  |  12 \text{ sevenths}  |  12 \text{ itself}  |  12 \text{ negated}  |  12 \text{ reversed}
12  |  12 \text{ complement}  |  12 \text{ conjugate}  |  12 \text{ transpose}  |  12 \text{ quadruple}  |  12 \text{ exponent}  |  12 \text{ est.}  |  12 \text{ estimated}  |  12 \text{ ish}  |  12 \text{ etc.}  |  12 \text{ others}
12  |  12 \text{ onwards}  |  12 \text{ higher}  |  12 \text{ lower}  |  12 \text{ undefined}  |  12 \text{ NaN}  |  12 \text{ nope}  |  12 \text{ infinite}  |  12 \text{ th}  |  12 \text{ st}  |  12 \text{ remainder}
12  |  \text{The answer is not }12  |  \text{The answer is about 12}  |  \text{The answer is }13  |  \text{Tom has 12 apples or 13}  |  (f\circ g)(2)=13  |  f^2=12  |  \text{twenty}
12  |  -f(x)=12  |  \int_0^1 x\,dx=12=13  |  \text{half}=12  |  \sin(12^\circ)
\begin{pmatrix}3\\-7\end{pmatrix}  |  (-7,3)^T  ;  10\text{ cents}  |  11¢  |  10€
204_5  |  204_{\text{base 6}}  ;  a_nb  |  a_{nb}  |  a_b n  ;  (0,9)\cup(9,36)  |  (0,36)\setminus\{8\}  |  [0,36)\setminus\{9\}  |  (0,36)\setminus\{40\}
(-2,3)  |  x=-2,3  ;  3:4  |  4∶3  ;  \frac{1}{2}  |  2⁄1  |  \nicefrac{2}{1}  ;  72^\circ  |  71\textdegree
(-\infty,-2)\cup(3,\infty)  |  x<-2 \text{ and } x>3  ;  4  |  f^{2}(5)=4  |  x'(2)=4
5  |  5 \text{ for all but one } x  |  5 \text{ for all but finitely many } n  |  5 \text{ for any wrong } x  |  |5,5|
5  |  5 \text{ isn't}  |  5 \text{ wasn't right}  |  5 \text{ cannot}  |  5 \text{ unlikely}  |  5 \text{ repeating}
5  |  5 \text{ recurring}  |  5 \text{ binary}  |  5 \text{ octal}  |  5 \text{ hex}  |  5 \text{ hexadecimal}  |  5 \text{ minimum}
5  |  5 \text{ maximum}  |  5 \text{ upwards}  |  5 \text{ gross}  |  5 \text{ bn}  |  5 \text{ mn}  |  5 \text{ myriad}  |  5 \text{ myriads}
5  |  5 \text{ per mille}  |  5 \text{ permille}  |  5 \text{ (approx)}  |  5 \text{ (approx.)}  |  5 \text{ (about)}  |  5 \text{ (max)}
5  |  5 \text{ gallon squared}  |  5 \text{ gal}^2  |  5 \text{ square acres}  |  5 \text{ cups cubed}  |  5 \text{ dollars squared}
x>5  |  x>5 \text{ for all negative } x
(x,y)=(2,3)  |  y=2, x=3  |  x=3, y=2  ;  x \ne 2  |  2  |  x \ne 3  |  (-\infty,2)  |  y \ne 2  |  (-\infty,2]\cup(2,\infty)
\frac{1}{3}  |  0.3  |  0.33 \text{ repeating} x  |  3 \text{ repeating}  ;  5 \text{ kg}  |  5 \text{ mg}  |  5 \text{ HP}
5  |  5 \text{ hundred}  |  5 dozen  |  5 \text{ and a half}  |  5\frac{1}{2}  |  5 \text{ squared}  |  5^\circ 7'  |  5, 7  |  5 \text{ or } 7
5  |  5 \approx 7  |  7=5  |  \text{not } 5  |  5 \pm 1  |  5x  |  5!  |  5:7  |  5\%
5  |  5 \text{ percent}  |  5 \text{ million}  |  5K  |  5M  |  5k  |  5 \text{ k}  |  5e  |  5i
5  |  5 \text{ feet } 7 \text{ inches}  |  5 \text{ ft } 7 \text{ in}  |  5 hours 30 minutes  |  5 \text{ hours and } 30 \text{ minutes}  |  5 \text{ (or 7)}  |  5\ (7)  |  5 \text{ to } 7  |  5-7
5  |  5–7  |  5 \text{ out of } 7  |  5 \text{ of } 7  |  \text{between 5 and 7}  |  5 \text{ fewer than } 7  |  5 \text{ plus } 7  |  5 \text{ tenths}  |  5\text{ thirds}
5  |  \sqrt5  |  \log 5  |  \text{five or six}  |  (5,5)  |  5,5  |  [5,5]  |  \{5,7\}  |  \text{at least } 5
5  |  \text{at most 5}  |  \text{more than 5}  |  5 \text{ or more}  |  5+  |  \text{5+}  |  \ge 5  |  x^2 = 5  |  2x = 5
5  |  x = 5 = 6  |  4=5  |  5 \to 7  |  5 \Rightarrow 7  |  5 \equiv 1 \pmod 2  |  5 \pmod{7}  |  5 \bmod 7  |  \overline{5}
5  |  \bar 5  |  \underbrace{5}_{7}  |  \cancel{5} 7  |  \text{5 and 7}  |  5 \text{ each, or } 10  |  5 \text{ if } x=7  |  5 \text{ times } 2  |  5 \text{ doubled}
5  |  \text{twice } 5  |  \text{half of } 5  |  5\text{ less } 1  |  5 \text{ score}  |  5 \text{ lakh}  |  5 万  |  5 \text{ trillion}  |  0.5
5  |  \begin{pmatrix} 5 & 7 \end{pmatrix}  |  |5-7|  |  \lfloor 5.5 \rfloor + 1  |  ⌈5.5⌉  |  P(5)  |  f(5)  |  f(x)=5x  |  \angle 5  |  \text{Evelyn: 5, Carla: 7}
5  |  5 \text{ eggs, } 7 \text{ apples}  |  5 \text{ eggs and } 7  |  5;7  |  5 \mid 7  |  5|7  |  5\cup 7  |  5 \in \{5,7\}  |  x \in \{5,7\}
5  |  x \in \{5\} \cup \{7\}  |  5 \setminus \{7\}  |  \mathbb{R} \setminus \{5\}  |  \emptyset
\$5  |  \$5, \$7  |  -\$5  |  \$0.05  |  £5  |  5 \text{ pounds}
60\text{ mph}  |  60 \text{ km/h}  |  60 \text{ miles}  |  60 \text{ hours}  |  60 \text{ m/s}  |  60 \text{ mi/s}
[0,1)  |  (0,1)  |  [0,1]  |  (0,1]  |  0<x<1  |  0 \le x \le 1  |  [0,1) \cup \{2\}  |  [0,2)  |  x \ge 0
\text{(C)}  |  (D)  |  \text{(C) or (D)}  |  C, D  |  \text{not C}  |  c  |  (CD)  |  \text{neither}  |  C+1
12,600  |  12, 600  |  12.600  |  600, 12  |  12600.5  |  126,00  |  1260
\text{Evelyn}  |  \text{Evelyn and Carla}  |  \text{not Evelyn}  |  \text{Evelyn or Carla}  |  Carla  |  \text{Evelyn?}  |  \text{Ev}  |  \text{Evelyn, Carla}
\begin{pmatrix} 1 & 2 \\ 3 & 4\end{pmatrix}  |  \begin{pmatrix} 1 & 3 \\ 2 & 4\end{pmatrix}  |  \begin{vmatrix} 1 & 2 \\ 3 & 4\end{vmatrix}  |  1,2,3,4  |  (1,2,3,4)  |  \begin{pmatrix} 1 & 2 & 3 & 4\end{pmatrix}  |  \begin{pmatrix} 1 & 2 \\ 3 & 5\end{pmatrix}
3:00 \text{ p.m.}  |  3:00 \text{ a.m.}  |  3:00 AM  |  4:00 PM
90^\circ  |  \pi  |  90 \pi  |  90\%  |  90^\circ \text{C}  |  91^\circ
A \in B  |  B \in A  ;  a<b<c  |  c<b<a  |  a<c<b
5  |  3=5  |  2+2=5  |  5x  |  5 million  |  5.0000001  |  5=x=6  |  x \ne 5  |  x>5  |  \text{about } 5  |  5 dozen  |  5 \text{ dozen}  |  5 \text{ squared}  |  5 hundred  |  5 squared  |  5 or so  |  \text{more than } 5  |  5\text{ cm}x  |  m+n = 2+4 = 5  |  5x=5  |  x+1=5  |  5 \text{ for all } 7  |  5, \ldots  |  5...  |  5'  |  5 \approx 5.1  |  5 \sim 7  |  \neg 5  |  \overline 5  |  \text{All except }5  |  5\text{, maybe}  |  5\text{ thousand}  |  1/2/0.1  |  10/2x  |  --5  |  5^1^1
\text{(C)}  |  A=(C)  ;  R  |  \text{r}  ;  11z^{17}  |  11z^{17}+0.5  ;  3  |  3 \cdots
\text{(C)}  |  (C) 12  |  (C)x  |  (C)!  ;  1,2  |  1,2,2  |  1,2,3  ;  204_5  |  204  |  54  |  204_{6}
\text{Evelyn}  |  Carla  ;  \text{even}  |  odd  |  \text{even or odd}  ;  x-2y+z-1=0  |  x-2y+z+1=0
\sin(2x)  |  \sin x \cos x  ;  2^{100}  |  2^{100}+1  ;  \sqrt{2}  |  \sqrt{2}+10^{-15}  |  \sqrt{2}t
0.5  |  \frac{1}{2} \text{ or } \frac{1}{3}  ;  R^2-r^2  |  0  ;  \gcd(a,b)  |  1
\text{no solution}  |  \text{no real solutions}  ;  k\pi, k \in \mathbb{Z}  |  2k\pi, k \in \mathbb{Z}  ;  -3,0  |  -3
x=1,y=2 \text{ or } x=3,y=4  |  x=5,y=6 \text{ or } x=7,y=8  |  y=1,x=2 \text{ or } y=3,x=4
5  |  \text{not } x = 5  |  \text{more than } x = 5  |  \text{base 7: } 5  |  5 \text{ eggs or } 7  |  5 thirty  |  \$5 \text{ K}  |  5 \text{ x}  |  5 per cent
5  |  \text{yes } 5  |  USD 6  ;  \text{no}  |  on  |  yes  ;  5  |  (x,y)=5  |  x^2=5  |  -x=5  |  5\text{ feet } 7 \text{ inches}  |  5:30  |  \{x \mid 5\}  |  5^\circ 30'  |  5 \text{ millionths}  |  2mg
8\text{ dollars}  |  8 \text{ cents}  ;  1,2  |  1<x<2  ;  8  |  8 万  |  8万元  ;  8 \text{ cm}^2  |  8 \text{ cm}  |  8 \text{ cubic cm}  ;  28\%  |  28  |  28 \text{ dollars}
12:00  |  1:00  |  12:05  |  12:00\%  |  12:00 \text{ thousand}  ;  48\%  |  48\%\text{ per cent}  ;  7.5  |  7 + 50\%  |  7+50\text{ per cent}  ;  1:2:3  |  1:4:9  ;  204_5  |  204_6  ;  xy=9  |  9  ;  2x+4y-3=0  |  2x+4y-3  |  2x+4y+3=0
6  |  A\cdot 2=6  |  P\cdot 3=6  |  u\sqrt{2}=6  |  uv=6  |  Ax=6  |  hx=6, vt=6  |  q n!=6
7  |  7 \text{ elevenths}  |  7 \text{ twentieths}  |  7 ninetieths  |  7 \text{ fifteenth}  |  7 \text{ (unsure)}
(1,2),(3,4)  |  (1,2)\cup(3,4)
2e  |  e=2e  ;  3+4i  |  i=3+4i  ;  e  |  e=2  ;  a  |  e=a  ;  0.5  |  e=0.6  ;  e=2  |  x=2
x_1=1,x_2=2  |  x_2=1,x_1=2  ;  x=1  |  y_1=1
\frac{n!}{2}  |  \frac{n!}{3}  ;  n!  |  (n-1)!  ;  \binom{n}{k}  |  \binom{n}{k+1}  |  \frac{n!}{k!}  ;  \binom{n}{2}  |  \frac{n^2}{2}  ;  n!  |  (-1)^n n!  ;  2n  |  2n+\binom{n}{2}(1-(-1)^{2n})  |  2n+n!\sin(\pi n)
|x|\sqrt{y}  |  x\sqrt{y}  ;  \sqrt{x^2y}  |  x\sqrt{y}  ;  \sqrt{x^2}  |  x  ;  |x|  |  (\sqrt{x})^2  ;  x\sqrt{x}  |  -\sqrt{x^3}  |  x\sqrt{-x}  ;  \ln(xy)  |  \ln x+\ln y  ;  \sqrt{ab}  |  \sqrt{a}+\sqrt{b}
\lfloor x\rfloor  |  \lceil x\rceil-1  |  \lfloor x+0.02\rfloor  ;  red  |  der  ;  AB  |  BA  ;  60^\circ  |  60\text{ rad}  |  \frac{\pi}{4}\text{ rad}
k\pi, k\in\mathbb{Z}  |  k\pi \text{ for all } k  |  2k\pi \text{ for all integers } k  |  n\pi \text{ for all integers } k  |  k\pi
10^{2024}-1  |  10^{2024}+1  |  10^{2024}  ;  3^{1012}  |  \sqrt{3^{2024}+1}  ;  2024!  |  2024!+1  ;  5  |  10^{99999999}  |  \frac{1}{10^{1001}}
\frac{1}{x-1}  |  \frac{1}{x-1}, x\neq 2  |  \frac{1}{x-2}, x\ne 2  |  \frac{1}{x-1}, 2  |  \frac{1}{x-1}, y\ne 1  |  \frac{1}{x-1}, x=1  ;  5  |  5, x\ne 1
""")
WRONG_SCIENCE = pairs(r"""
3.27 N to the right  |  3.271 N to the left  ;  9.87e-3  |  \sin 9.87e-3  ;  35.0 kJ released  |  35.0 \text{ kJ absorbed}
A  |  A. 5 {B}  |  A. 5 (b)  |  A. \text{Answer} = B  |  A. answer is b  |  A. \text{Actually, C}  |  A. \mathbf{B}  |  A. \text{m} (B)  |  A. (b)  |  A. b  |  A. Answer: B  |  A. 5, B  |  A. 5; (D)
HCN  |  HNC  |  CHN  ;  NO  |  No  |  ON  ;  Co  |  oC  |  CO  ;  Cs  |  sC  ;  AB  |  BA  ;  red  |  der  ;  gas  |  sag  ;  up  |  pu  ;  DNA  |  AND
A  |  A. 5 B  |  A. 5 \quad \text{Answer: B}  |  A. 5 (C)  |  A. (B) 5  |  A. [B]  |  A. \{B\}  |  A. b  |  A. \to B  |  A. = B  |  A. +B  |  A. \text{5 (C)}  |  A. \text{C)}  |  A. (C)  |  (A) 5, (C) 6
A  |  A. 5 or 6  |  A. I and B  |  B. I and II  |  A. \ce{H2O} (B)  |  b)  |  A - B  |  A. H2O, B. CO2  |  A. not I, but B
k_BT  |  k_{BT}  |  k_T B  ;  Fe^{3+}  |  Fe^{+2}  |  Fe^{-3}  ;  SO_4^{2-}  |  SO₄²⁺  |  SO₃²⁻  ;  ^{14}_{6}C  |  ^{14}_{7}C  |  ^{13}_{6}C  |  ^{6}_{14}C
2H_2+O_2\rightarrow2H_2O  |  \ce{2H2 + O2 -> H2O}  |  2H_2O\to2H_2+O_2
20 \text{ N}\cdot\text{m}  |  20 nm  |  20 N  ;  6.0\text{ m/s east}  |  6.0\text{ m/s west}  ;  6.0\text{ m/s}  |  \SI{6.0}{m}  |  6.0\text{ m to the right}
30^\circ\text{ above the horizontal}  |  30^\circ\text{ below the horizontal}
5 \text{ microns}  |  5 \text{ nm}  ;  3kx  |  \frac{dv}{dt}=4kx
5 m/s  |  5 m  |  5 m/s^2  |  5 km/s  |  5 s/m  |  5 m s  |  5 mm/s  |  6 m/s  |  50 m/s
B  |  C  |  A. 5 m/s  |  (C) 5  |  BC  |  B or C  |  \text{not B}  |  B, C  |  B. or C.
10 \Omega  |  10 k\Omega  |  10 V  |  100 \Omega  |  10 \Omega m  |  1 \Omega
8.31  |  8.3  |  8.32  |  8.4  |  83.1  |  8.31\%  |  8.31 \times 10^2
7  |  pH = 8  |  pH 7 or 8  |  pOH = 7, pH=8
25 °C  |  25 K  |  25 °F  |  298 K  |  26 °C
5 mW  |  5 MW  |  5 W
5 kJ  |  5000 J  |  5 J  |  5 kJ/mol  |  5 kj/s
9.8 \text{ m/s}^2  |  9.81 m/s^2  ;  5 km  |  5000  |  5000 m  ;  5 \text{ mol}  |  5 \text{ mmol}  ;  72\%  |  72
25 °C  |  298.15 K  ;  CO2  |  CO  ;  1.67 \times 10^{-27} kg  |  1.67e-26 kg  ;  50 N  |  50 \text{ N}\cdot\text{m}
B  |  12  |  B. C.  |  B. not C  |  A. 12 m/s  |  B. 12 or 13  |  B, 12  ;  A  |  A and B  ;  1 kJ  |  1000 J
water  |  heavy water  ;  2-methylpropane  |  3-methylpropane  ;  Fe^{3+}  |  Fe^{2+}
B  |  B: not this one  |  B. is excluded
""")
