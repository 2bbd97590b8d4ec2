"""Kind "logic": an entry of Reasoning Gym, by the scorer of its data set. (verify.py, section 4.2)

    the answer   what stands in the last <answer>...</answer>
    reward       the scorer's: correct at 1, wrong at 0, partial between. A score that is no number in [0, 1] is wrong
    unparsed     the scorer fails on it; it is longer than MAX_SOLUTION; it has a nan or inf that the entry's answer has
                 not; or it is not of the form that EVALUATED allows, where the data set's scorer would evaluate it
    no_answer    no tags, or nothing in them (unless that is the entry's answer)

Nine scorers hand the answer to `eval`, or to sympy, which does the same: all scorers run in worker processes only, one
process to an answer. The source: reasoning-gym 0.1.25.
"""

import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox.jobs import Call
from sandbox.pool import run
from verifiers.verdict import NO_ANSWER, UNPARSED, Kind, Problem, Verdict, after_thinking, forward, graded, shown

MAX_SOLUTION = 100_000


def check_logic(reference: Any) -> dict[str, Any]:
    """Return the reference; ValueError unless it names a data set of Reasoning Gym and holds an entry of it."""
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
    return reference


@functools.cache
def gym_names() -> frozenset[str]:
    """The data sets of the installed Reasoning Gym, read off its source: to import it takes seconds and memory."""
    spec = importlib.util.find_spec("reasoning_gym")
    folder = Path(spec.origin if spec and spec.origin else "").parent
    named = re.compile(r"""^(?:DATASET_NAME = |register_dataset\(\s*)["'](\w+)["']""", re.MULTILINE)
    return frozenset(name for path in folder.rglob("*.py") for name in named.findall(path.read_text("utf-8")))


def find_logic(response: str) -> str | None:
    """What stands in the last <answer>...</answer>."""
    before, closed, _ = (after_thinking(response) or "").rpartition("</answer>")
    _, opened, answer = before.rpartition("<answer>")
    return answer.strip() if closed and opened else None


# Nine scorers hand the answer to `eval`, or to sympy, which does the same. It runs where the score is computed: text
# that reaches a function of Python's could score itself. So for these an answer is of a form that reaches none.
_ARITHMETIC = forward(r"(?:[0-9\s+/().-]|\*(?!\s*+\*))*+", re.ASCII)
_LISTS = forward(r"[0-9A-Z_\s,\[\]()'\"+.-]*+", re.ASCII)
_ALGEBRA = forward(r"[0-9A-Za-z_\s+*/^(),.-]*+", re.ASCII)
_WORD = forward("[A-Za-z_][0-9A-Za-z_]*+")
# That scorer takes spaces out and i for j, so that "n a n" is a NaN to it: there an answer has none of their letters.
_COMPLEX = forward(r"[0-9\s()eEij.+*-]*+", re.ASCII)
EVALUATED = {
    "complex_arithmetic": _COMPLEX,
    **dict.fromkeys(("countdown", "puzzle24"), _ARITHMETIC),
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LISTS),
    **dict.fromkeys(("simple_integration", "intermediate_integration", "polynomial_multiplication"), _ALGEBRA),
}
# Without Integral: the scorers differentiate, so that an integral would solve itself by being written down again.
_ALGEBRA_NAME = forward(
    r"[A-Za-z](?:_?[0-9]++)?|(?:a|arc)?(?:sin|cos|tan|sec|csc|cot)h?|exp|log|ln|sqrt|cbrt|abs|Abs|sign|erf[ci]?|Ei|Si|Ci|pi|Rational"
)


# Every comparison with NaN is false, so that a scorer which looks for an error finds none: min(1.0, nan) is 1.0.
_NOT_FINITE = forward(r"(?<![a-z])(?:nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)


def judge_logic_inline(answer: str, gold: dict[str, Any]) -> Verdict | None:
    """Only what no scorer need see, or none may. The rest is for a worker."""
    if not answer and gold["entry"]["answer"] != "":
        return NO_ANSWER
    if len(answer) > MAX_SOLUTION or not _harmless(answer, EVALUATED.get(gold["dataset"])):
        return UNPARSED
    return UNPARSED if _NOT_FINITE.search(answer) and not _NOT_FINITE.search(gold["entry"]["answer"] or "") else None


def _harmless(answer: str, form: re.Pattern[str] | None) -> bool:
    if form is None:
        return True
    names = _WORD.findall(answer) if form is _ALGEBRA else []
    return form.fullmatch(answer) is not None and all(map(_ALGEBRA_NAME.fullmatch, names))


def judge_logic_in_worker(answer: str, reference: dict[str, Any]) -> Verdict:
    """The score that the data set's own scorer gives: correct at 1, wrong at 0, partial between."""
    try:
        reward = _score(answer, reference)
    except Exception:
        # Some scorers raise on what they cannot read.
        return UNPARSED
    return graded(reward)


def solution_logic(reference: dict[str, Any]) -> str | None:
    """A response with the entry's answer."""
    answer = reference["entry"]["answer"]
    return None if answer is None else f"<answer>{answer}</answer>"


KIND = Kind(
    check_logic,
    find_logic,
    judge_logic_inline,
    judge_logic_in_worker,
    packages=("reasoning_gym",),
    evaluates=True,
    solution=solution_logic,
)


def _score(answer: str, reference: dict[str, Any]) -> float:
    entry = reference["entry"]
    if reference["dataset"] in ("arc_agi", "rearc"):
        # These two compare with grids made of tuples, which JSON made lists.
        entry = entry | {"metadata": {key: _as_tuples(value) for key, value in entry["metadata"].items()}}
    score = _scorer(reference["dataset"])(answer=answer, entry=entry)
    # NaN is in no interval; a complex number cannot be compared.
    return float(score) if isinstance(score, int | float) and 0 <= score <= 1 else 0.0


@functools.cache
def _scorer(dataset: str) -> Callable:
    import reasoning_gym

    return reasoning_gym.get_score_answer_fn(dataset)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


CONSTANTS = ("", "0", "1", "2", "-1", "nan", "inf", "True", "False", "True False", "Yes", "No", "None", "A", "[]", "{}")
ENTRIES = 20  # that the constants are scored on
SCORING_S = 60.0  # to score all constants on one of them


def constants_correct(reference: dict[str, Any]) -> list[bool]:
    """Which constants the entry's scorer takes for correct. In a worker."""
    return [
        judge_logic_inline(c, reference) is None and judge_logic_in_worker(c, reference).reward == 1 for c in CONSTANTS
    ]


def free_rewards(problems: Sequence[Problem]) -> str:
    """A sentence where a constant is correct more often than is fair, or nothing.

    The fair share is that of the most common answer among the entries' answers: what the best honest constant earns.
    """
    some = [problem.reference for problem in problems[:ENTRIES]]
    calls = [Call("verifiers.logic:constants_correct", [reference], ("reasoning_gym",)) for reference in some]
    found = [outcome.value for _, outcome in run(calls, SCORING_S) if outcome.status == "ok"]
    if not found:
        return ""
    [(_, fair)] = Counter(str(reference["entry"]["answer"]) for reference in some).most_common(1)
    most, constant = max((sum(column), c) for c, column in zip(CONSTANTS, zip(*found, strict=True), strict=True))
    if most <= fair:
        return ""
    return f"the answer {constant!r} is correct on {most} of {len(some)} entries, the best fair constant on {fair}"
