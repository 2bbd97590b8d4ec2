"""Kind "logic": an entry of Reasoning Gym, by the scorer of its data set. (verify.py, section 4.2.1)

    the answer   the text in the last <answer>...</answer>
    reward       the scorer's: correct at 1, wrong at 0, partial between. A score that is no number in [0, 1] is wrong
    unparsed     the scorer fails on it; it is empty, or longer than MAX_SOLUTION; it has a nan or inf that the entry's
                 answer has not; or it lacks the form of EVALUATED for a scorer that would evaluate it

Nine scorers hand the answer to `eval`, or to sympy, which does the same. So a fresh process scores each answer, and
such an answer must have a form that reaches no function of Python's. The source: reasoning-gym 0.1.25.
"""

import functools
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinds.patterns import forward
from sandbox.jobs import Call
from verify import Kind, last_tag, shown

MAX_SOLUTION = 100_000


def check_logic(reference: Any) -> None:
    """Raise ValueError unless the reference names a data set of Reasoning Gym and has an entry of it."""
    if not isinstance(reference, dict) or reference.keys() != {"dataset", "entry"}:
        raise ValueError(f'a logic reference is {{"dataset": name, "entry": {{...}}}}, got {shown(reference)}')
    name, entry = reference["dataset"], reference["entry"]
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(f"logic's `dataset` is a data set's name in Reasoning Gym, got {shown(name)}")
    if not isinstance(entry, dict) or not {"question", "answer", "metadata"} <= entry.keys():
        raise ValueError(f"logic's `entry` has question, answer and metadata, got {shown(entry)}")
    if not isinstance(entry["answer"], str | None):
        raise ValueError(f"the `answer` of a logic `entry` is text, or null, got {shown(entry['answer'])}")
    if not isinstance(entry["metadata"], dict) or entry["metadata"].get("source_dataset", name) != name:
        raise ValueError(f"logic's `entry` must be of {name}: {shown(entry['metadata'])}")
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ValueError("logic problems need the package reasoning-gym: pip install reasoning-gym")
    if name not in gym_names():
        raise ValueError(f"Reasoning Gym has no data set {name}. There are {', '.join(sorted(gym_names()))}")


@functools.cache
def gym_names() -> frozenset[str]:
    """Return the data sets of the installed Reasoning Gym, from its source: importing it takes seconds and memory."""
    spec = importlib.util.find_spec("reasoning_gym")
    folder = Path(spec.origin if spec and spec.origin else "").parent
    named = re.compile(r"""^(?:DATASET_NAME = |register_dataset\(\s*)["'](\w+)["']""", re.MULTILINE)
    return frozenset(name for path in folder.rglob("*.py") for name in named.findall(path.read_text("utf-8")))


_ARITHMETIC = forward(r"(?:[0-9\s+/().-]|\*(?!\s*+\*))*+", re.ASCII)
_LISTS = forward(r"[0-9A-Z_\s,\[\]()'\"+.-]*+", re.ASCII)
_ALGEBRA = forward(r"[0-9A-Za-z_\s+*/^(),.-]*+", re.ASCII)
_WORD = forward("[A-Za-z_][0-9A-Za-z_]*+")
# That scorer removes spaces and reads i as j, so "n a n" would be a NaN: these letters are not allowed.
_COMPLEX = forward(r"[0-9\s()eEij.+*-]*+", re.ASCII)
EVALUATED = {
    "complex_arithmetic": _COMPLEX,
    **dict.fromkeys(("countdown", "puzzle24"), _ARITHMETIC),
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LISTS),
    **dict.fromkeys(("simple_integration", "intermediate_integration", "polynomial_multiplication"), _ALGEBRA),
}
# Without Integral: the scorers differentiate, so the problem's own integral would be a right answer.
_ALGEBRA_NAME = forward(
    r"[A-Za-z](?:_?[0-9]++)?|(?:a|arc)?(?:sin|cos|tan|sec|csc|cot)h?|exp|log|ln|sqrt|cbrt|abs|Abs|sign|erf[ci]?|Ei|Si|Ci|pi|Rational"
)


# Every comparison with NaN is false, so a scorer that looks for an error finds none: min(1.0, nan) is 1.0.
_NOT_FINITE = forward(r"(?<![a-z])(?:nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)


def judge_logic(answer: str, reference: dict[str, Any]) -> Call | None:
    """Return the job that scores the answer, unless no scorer may see it."""
    gold, form = reference["entry"]["answer"] or "", EVALUATED.get(reference["dataset"])
    if (gold and not answer) or len(answer) > MAX_SOLUTION or not _harmless(answer, form):
        return None
    if _NOT_FINITE.search(answer) and not _NOT_FINITE.search(gold):
        return None
    return Call("kinds.logic:score", [answer, reference], ("reasoning_gym",), evaluates=True)


def _harmless(answer: str, form: re.Pattern[str] | None) -> bool:
    if form is None:
        return True
    names = _WORD.findall(answer) if form is _ALGEBRA else []
    return form.fullmatch(answer) is not None and all(map(_ALGEBRA_NAME.fullmatch, names))


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
