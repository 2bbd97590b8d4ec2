"""Kind "logic": an entry of Reasoning Gym, by the scorer of its data set. (verify.py, section 4.2.1)

    the answer   the text in the last <answer>...</answer>
    reward       the scorer's: correct at 1, wrong at 0, partial between. A score that is no number in [0, 1] is wrong
    unparsed     the scorer fails on it; it is empty, or longer than MAX_SOLUTION; it has a nan or inf that the entry's
                 answer has not; or it lacks the form of EVALUATED for a scorer that would evaluate it

Some scorers hand the answer to `eval`, or to sympy, which does the same. So a fresh process scores each answer, and for
these scorers the answer must have a form that reaches no function of Python's. The source: reasoning-gym 0.1.25.
"""

import functools
import importlib.util
import re
from collections.abc import Callable
from typing import Any

from kinds.patterns import forward
from sandbox.jobs import Call
from verify import Kind, last_tag, shown

MAX_SOLUTION = 100_000


def check_logic(reference: Any) -> None:
    """Raise ValueError unless the reference names a data set of Reasoning Gym and has an entry of it."""
    name, entry = (reference.get(key) for key in ("dataset", "entry")) if isinstance(reference, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(entry, dict) or len(reference) != 2:
        raise ValueError(f'a logic reference is {{"dataset": name, "entry": {{...}}}}, got {shown(reference)}')
    metadata = entry.get("metadata")
    if not {"question", "answer"} <= entry.keys() or not isinstance(metadata, dict):
        raise ValueError(f"logic's `entry` has question, answer and metadata, got {shown(entry)}")
    if not isinstance(entry["answer"], str | None) or metadata.get("source_dataset", name) != name:
        raise ValueError(f"logic's `entry` is one of {name}, with an answer that is text or null: {shown(entry)}")
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ValueError("logic problems need the package reasoning-gym: pip install reasoning-gym")


# Characters that reach no function of Python's. Complex numbers: that scorer removes spaces and reads i as j, so
# "n a n" would be a NaN, and its letters are not allowed.
_ARITHMETIC = forward(r"(?:[0-9\s+/().-]|\*(?!\s*+\*))*+", re.ASCII)
_COMPLEX = forward(r"[0-9\s()eEij.+*-]*+", re.ASCII)
_LISTS = forward(r"[0-9A-Z_\s,\[\]()'\"+.-]*+", re.ASCII)
# Without Integral: the scorers differentiate, so the problem's own integral would be a right answer.
_ALGEBRA = forward(
    r"(?:[0-9\s+*/^(),.-]|(?<![A-Za-z_])(?:[A-Za-z](?:_?[0-9]++)?|(?:a|arc)?(?:sin|cos|tan|sec|csc|cot)h?|exp|log|ln"
    r"|sqrt|cbrt|abs|Abs|sign|erf[ci]?|Ei|Si|Ci|pi|Rational)(?![0-9A-Za-z_]))*+",
    re.ASCII,
)
EVALUATED = {
    "complex_arithmetic": _COMPLEX,
    **dict.fromkeys(("countdown", "puzzle24"), _ARITHMETIC),
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LISTS),
    **dict.fromkeys(("simple_integration", "intermediate_integration", "polynomial_multiplication"), _ALGEBRA),
}
# Every comparison with NaN is false, so a scorer that looks for an error finds none: min(1.0, nan) is 1.0.
_NOT_FINITE = forward(r"(?<![a-z])(?:nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)


def judge_logic(answer: str, reference: dict[str, Any]) -> Call | None:
    """Return the job that scores the answer, unless no scorer may see it."""
    gold, form = reference["entry"]["answer"] or "", EVALUATED.get(reference["dataset"])
    if (gold and not answer) or len(answer) > MAX_SOLUTION or (form and not form.fullmatch(answer)):
        return None
    if _NOT_FINITE.search(answer) and not _NOT_FINITE.search(gold):
        return None
    return Call("kinds.logic:score", [answer, reference], ("reasoning_gym",), evaluates=True)


def solution_logic(reference: dict[str, Any]) -> str | None:
    """Return a response with the entry's answer."""
    answer = reference["entry"]["answer"]
    return None if answer is None else f"<answer>{answer}</answer>"


KIND = Kind(judge_logic, answer=last_tag, check=check_logic, solution=solution_logic)


# ------------------------------------------------------------------------------------------- in a worker


def score(answer: str, reference: dict[str, Any]) -> float | None:
    """Return the score of the data set's own scorer, None if it fails on the answer."""
    entry = reference["entry"]
    if reference["dataset"] in ("arc_agi", "rearc"):
        # These two compare with grids made of tuples, which JSON made lists.
        entry = entry | {"metadata": {key: _as_tuples(value) for key, value in entry["metadata"].items()}}
    scorer = _scorer(reference["dataset"])
    try:
        value = scorer(answer=answer, entry=entry)
    except (OSError, ImportError):
        raise  # this machine is to blame
    except Exception:
        return None
    # NaN is in no interval; a complex number cannot be compared.
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else 0.0


@functools.cache
def _scorer(dataset: str) -> Callable:
    import reasoning_gym

    return reasoning_gym.get_score_answer_fn(dataset)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
