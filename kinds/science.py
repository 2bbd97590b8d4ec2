r"""Kind "science": a short answer with its unit, a formula, or an option. (verify.py, section 4.2.1)

    accepted as the same                                 not the same
    all that math accepts
    9.8 m/s^2 and 9.8 \text{ m s}^{-2}; 9.8              9.8 m and 9.8 s; 1 kJ and 1000 J; 20 °C and 68 °F
    8.314 for the gold 8.31 (three digits or more)       8.32 or 8.3 for it
    b, (b), B for the option B                           another option
    CO_2, \ce{CO2}, \text{CO}_2, CO2                     Fe^{3+} and Fe^{2+}

The sources of the rules: the answers of SCP-116K and GPQA.
"""

import re
from typing import Any

from kinds import maths
from kinds.latex import NUMBER, read_number
from kinds.patterns import forward
from sandbox.jobs import Call
from verify import MAX_ANSWER

_INDICES = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_LOWER_OPTION = forward(r"\(?[a-e][).]?")
_CHEMISTRY = forward(r"\\(?:ce|text|mathrm)\b|[_^{} ]")
_LETTER_UNIT = forward(r"(?<=[0-9]) ([A-Za-zμΩ](?: [A-Za-zμΩ])*+)$")


def judge_science(answer: str, reference: str) -> Any:
    """Judge as math does, with the rules above."""
    answer, gold = _plain(answer), _plain(maths.unboxed(reference))
    if answer == gold:
        return True
    if len(answer) > MAX_ANSWER:
        return None
    return Call("kinds.science:judge_in_worker", [answer, gold], ("mpmath",))


def _plain(text: str) -> str:
    """Write an option in capitals, and lone letters after a number upright: 5 N is no product here."""
    text = text.strip().translate(_INDICES)
    if len(text) > MAX_ANSWER:
        return text
    return text.upper() if _LOWER_OPTION.fullmatch(text) else _LETTER_UNIT.sub(r"\\text{ \1}", text)


def judge_in_worker(answer: str, gold: str) -> bool | None:
    """Compare two formulas by their letters, and other answers as math does."""
    formulas = [_CHEMISTRY.sub("", text) for text in (answer, gold)]
    if re.match(r"[A-Z]|sp[0-9]", formulas[1]) and formulas[0] == formulas[1]:
        return True
    return maths.judge_in_worker(_rounded(answer, gold), gold)


def _rounded(answer: str, gold: str) -> str:
    """Put the gold's number into the answer, if the gold rounds the answer's number to three digits or more."""
    number, exact = NUMBER.match(answer), NUMBER.match(gold)
    value, expected = (read_number(match[0]) if match else None for match in (number, exact))
    if not number or not exact or not exact["decimals"] or value is None or not expected:
        return answer
    digits = ((exact["whole"] or "") + exact["decimals"]).replace(",", "").lstrip("0")
    step = abs(expected) / int(digits)  # of the gold's last digit
    return exact[0] + answer[number.end() :] if len(digits) >= 3 and abs(value - expected) <= step / 2 else answer


KIND = maths.KIND._replace(judge=judge_science, check=lambda gold: maths.check_text("science", gold))
