"""Kind "logic": an entry of Reasoning Gym, by the scorer of its data set. (verify.py, section 4.2)

    the answer   what stands in the last <answer>...</answer>
    reward       the scorer's: correct at 1, wrong at 0, partial between. A score that is no number in [0, 1] is wrong
    unparsed     the scorer fails on it; it is longer than MAX_SOLUTION; it has a nan or inf that the entry's answer has
                 not; or the data set's scorer would evaluate it and it is not of the form that EVALUATED allows
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

from verifiers.jobs import Call
from verifiers.rounds import ask
from verifiers.verdict import NO_ANSWER, UNPARSED, Problem, Verdict, after_thinking, forward, graded, shown

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
EVALUATED = {
    **dict.fromkeys(("countdown", "puzzle24"), _ARITHMETIC),
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _LISTS),
    **dict.fromkeys(("simple_integration", "intermediate_integration", "polynomial_multiplication"), _ALGEBRA),
}
# Without Integral: the scorers differentiate, so that an integral would solve itself by being written down again.
_ALGEBRA_NAME = forward(
    r"[A-Za-z](?:_?[0-9]++)?|(?:a|arc)?(?:sin|cos|tan|sec|csc|cot)h?|exp|log|ln|sqrt|cbrt|abs|Abs|sign|erf[ci]?|Ei|Si|Ci|pi|Rational"
)


# Every comparison with NaN is false, so that a scorer which looks for an error finds none: min(1.0, nan) is 1.0.
_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)


def settle_logic(answer: str, gold: dict[str, Any]) -> Verdict | None:
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


def deliberate_logic(answer: str, reference: dict[str, Any]) -> Verdict:
    """The score that the data set's own scorer gives: correct at 1, wrong at 0, partial between."""
    try:
        reward = _score(answer, reference)
    except Exception:
        # Some scorers raise on what they cannot read.
        return UNPARSED
    return graded(reward)


def doubt_logic(reference: dict[str, Any]) -> str:
    """Why the entry's own answer would not be rewarded, or nothing. In a worker."""
    answer = reference["entry"]["answer"]
    if answer is None:
        return ""
    if settle_logic(answer.strip(), reference) is not None:
        return "is of a form that is not scored"
    try:
        reward = _score(answer.strip(), reference)
    except Exception as error:
        return f"makes the scorer fail, as where metadata is missing ({type(error).__name__}: {error})"
    return "" if reward == 1 else f"is scored {reward}"


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


GOLD_TIMEOUT_S = 60.0


def doubts(problems: Sequence[Problem]) -> dict[int, str]:
    """Position -> what is wrong with a logic problem's own answer: only the workers can score it."""
    positions = [position for position, problem in enumerate(problems) if problem.kind == "logic"]
    if not positions:
        return {}
    calls = [Call("verifiers.logic:doubt_logic", [problems[at].reference], ("reasoning_gym",)) for at in positions]
    doubted = {}
    for position, outcome in zip(positions, ask(calls, GOLD_TIMEOUT_S), strict=True):
        doubt = outcome.value if outcome.status == "ok" else f"ends in a {outcome.status}"
        if doubt:
            answer = problems[position].reference["entry"]["answer"]
            doubted[position] = f"the entry's own answer {doubt}: {shown(answer)}"
    return doubted


CONSTANTS = ("", "0", "1", "2", "-1", "nan", "inf", "True", "False", "True False", "Yes", "No", "None", "A", "[]", "{}")
ENTRIES = 20  # that the constants are scored on


def constants_correct(reference: dict[str, Any]) -> list[bool]:
    """Which constants the entry's scorer takes for correct. In a worker."""
    return [settle_logic(c, reference) is None and deliberate_logic(c, reference).reward == 1 for c in CONSTANTS]


def free_rewards(problems: Sequence[Problem]) -> str:
    """A sentence where a constant is correct more often than is fair, or nothing.

    The fair share is the share of the most common answer among the entries' own: what the best honest constant has.
    """
    some = [problem.reference for problem in problems[:ENTRIES]]
    calls = [Call("verifiers.logic:constants_correct", [reference], ("reasoning_gym",)) for reference in some]
    found = [outcome.value for outcome in ask(calls, GOLD_TIMEOUT_S) if outcome.status == "ok"]
    if not found:
        return ""
    [(_, fair)] = Counter(str(reference["entry"]["answer"]) for reference in some).most_common(1)
    most, constant = max((sum(column), c) for c, column in zip(CONSTANTS, zip(*found, strict=True), strict=True))
    if most <= fair:
        return ""
    return f"the answer {constant!r} is correct on {most} of {len(some)} entries, the best fair constant on {fair}"
