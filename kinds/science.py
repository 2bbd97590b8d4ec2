r"""Kind "science": a short answer with its unit, a formula, or an option. (verify.py, section 4.2.1)

    accepted as the same                                 not the same
    all that math accepts
    9.8 m/s^2 and 9.8 \text{ m s}^{-2}; 9.8              9.8 m and 9.8 s; 1 kJ and 1000 J; 20 °C and 68 °F
    8.314 for the gold 8.31 (three digits or more)       8.32 or 8.3 for it
    b, (b), B for the option B                           another option
    CO_2, \ce{CO2}, \text{CO}_2, CO2                     Fe^{3+} and Fe^{2+}

The sources of the rules: the answers of SCP-116K and GPQA.
"""

from typing import Any

from kinds.maths import check_text, judge_text, last_box_of, solution, unboxed
from kinds.patterns import forward
from verify import MAX_ANSWER, Kind

_CHEMISTRY = forward(r"\\ce\s*+\{([^{}]*+)\}")
_INDICES = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_LOWER_OPTION = forward(r"\(?[a-e][).]?")


def formula(text: str) -> str:
    """Write an option in capitals, and a formula without \\ce."""
    text = text.strip().translate(_INDICES)
    if len(text) > MAX_ANSWER:
        return text
    return text.upper() if _LOWER_OPTION.fullmatch(text) else _CHEMISTRY.sub(r"\1", text)


def check_science(reference: Any) -> None:
    """Raise ValueError unless the reference is the text of one short answer."""
    check_text("science", formula(unboxed(reference)) if isinstance(reference, str) else reference)


def judge_science(answer: str, reference: str) -> Any:
    """Judge as math does, with the rules above."""
    return judge_text(formula(answer), formula(unboxed(reference)), science=True)


KIND = Kind(judge_science, answer=last_box_of, check=check_science, solution=solution)
