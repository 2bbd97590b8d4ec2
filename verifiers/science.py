r"""Kind "science": a short answer with its unit, a formula, or an option. (verify.py, section 4.2)

    accepted as the same                                not the same
    all that math accepts
    9.8 m/s^2 and 9.8 \text{ m s}^{-2}; 1 kJ and 1000 J  9.8 m and 9.8 s; 20 °C and 68 °F
    8.314 for the gold 8.31 (three digits or more)      8.32 or 8.3 for it
    b, (b), B for the option B                          another option
    CO_2, \ce{CO2}, \text{CO}_2, CO2                    Fe^{3+} and Fe^{2+}

Temperatures in different scales are different: they are not converted.
The sources of the rules: the answers of SCP-116K and GPQA.
"""

from typing import Any

from verifiers.latex import read_math
from verifiers.math import Gold, deliberate_math, settle_math, unboxed
from verifiers.verdict import MAX_ANSWER, Verdict, forward, refuse_number, shown

_CHEMISTRY = forward(r"\\ce\s*+\{([^{}]*+)\}")
_LOWER_OPTION = forward(r"\(?[a-e][).]?")


def check_science(reference: Any) -> Gold:
    """Return the reference with its reading; ValueError unless it is the text of one short answer."""
    text = _formula(unboxed(reference)) if isinstance(reference, str) else ""
    form = read_math(text)
    refuse_number("science", reference)
    if form is None:
        raise ValueError(
            "a science reference is the text of one short answer or an option letter, such as 9.8 m/s^2, 2.5e-3 mol, B "
            f"or nitrogen, of at most {MAX_ANSWER} characters; got {shown(reference)}"
        )
    return Gold(text, form)


def settle_science(answer: str, gold: Gold) -> Verdict | None:
    """`settle_math`, by the rules above."""
    return settle_math(_formula(answer), gold, science=True)


def deliberate_science(answer: str, reference: str) -> Verdict:
    """`deliberate_math`, by the rules above. In a worker."""
    return deliberate_math(_formula(answer), _formula(unboxed(reference)), science=True)


def _formula(text: str) -> str:
    text = text.strip()
    if len(text) > MAX_ANSWER:
        return text
    return text.upper() if _LOWER_OPTION.fullmatch(text) else _CHEMISTRY.sub(r"\1", text)
