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

import re
from typing import Any

from verifiers.latex import Form, read_math
from verifiers.math import deliberate_with, settle_math, unboxed
from verifiers.verdict import MAX_ANSWER, Verdict, refuse_number, shown

_CHEMISTRY = re.compile(r"\\ce\s*\{([^{}]*)\}")
_LOWER_OPTION = re.compile(r"\s*\(?[a-e][).]?\s*")


def check_science(reference: Any) -> Form:
    """Return the reference as it reads; ValueError unless it is the text of one short answer."""
    gold = read_math(_formula(unboxed(reference))) if isinstance(reference, str) else None
    refuse_number("science", reference)
    if gold is None:
        raise ValueError(
            "a science reference is the text of one short answer or an option letter, such as 9.8 m/s^2, 2.5e-3 mol, B "
            f"or nitrogen, of at most {MAX_ANSWER} characters; got {shown(reference)}"
        )
    return gold


def settle_science(answer: str, gold: Form) -> Verdict | None:
    """`settle_math`, by the rules above."""
    return settle_math(_formula(answer), gold, science=True)


def deliberate_science(answer: str, reference: str) -> Verdict:
    """`settle_science`, with algebra where it takes algebra. In a worker."""
    return deliberate_with(_formula(answer), _formula(unboxed(reference)), True)


def _formula(text: str) -> str:
    if len(text) > MAX_ANSWER:
        return text
    return text.upper() if _LOWER_OPTION.fullmatch(text) else _CHEMISTRY.sub(r"\1", text)
