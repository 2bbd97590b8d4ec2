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
from verifiers.math import Gold, find_math, judge_math_in_worker, judge_math_inline, solution_math, unboxed
from verifiers.verdict import MAX_ANSWER, Kind, Verdict, forward, shown

_CHEMISTRY = forward(r"\\ce\s*+\{([^{}]*+)\}")
_LOWER_OPTION = forward(r"\(?[a-e][).]?")


def check_science(reference: Any) -> Gold:
    """Return the reference with its reading; ValueError unless it is the text of one short answer."""
    text = _formula(unboxed(reference)) if isinstance(reference, str) else ""
    form = read_math(text)
    if form is None:
        raise ValueError(
            'a science reference is the text of one short answer in quotes, such as "9.8 m/s^2", "2.5e-3 mol", "B" or '
            f'"nitrogen", of at most {MAX_ANSWER} characters; got {shown(reference)}'
        )
    return Gold(text, form)


def judge_science_inline(answer: str, gold: Gold) -> Verdict | None:
    """`judge_math_inline`, by the rules above."""
    return judge_math_inline(_formula(answer), gold, science=True)


def judge_science_in_worker(answer: str, reference: str) -> Verdict:
    """`judge_math_in_worker`, by the rules above. In a worker."""
    return judge_math_in_worker(_formula(answer), _formula(unboxed(reference)), science=True)


def _formula(text: str) -> str:
    text = text.strip()
    if len(text) > MAX_ANSWER:
        return text
    return text.upper() if _LOWER_OPTION.fullmatch(text) else _CHEMISTRY.sub(r"\1", text)


KIND = Kind(
    check_science,
    find_math,
    judge_science_inline,
    judge_science_in_worker,
    packages=("math_verify",),
    solution=solution_math,
)
