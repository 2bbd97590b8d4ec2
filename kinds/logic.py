"""Kind "logic": an entry of Reasoning Gym, by the scorer of its data set. (verify.py, section 4.2.1)

    the answer   the text in the last <answer>...</answer>
    reward       the scorer's: correct at 1, wrong at 0, partial between. A score that is no number in [0, 1] is wrong
    unparsed     the scorer fails on it; it is empty, or longer than MAX_SCORED; it has a nan or inf that the entry's
                 answer has not; or it lacks the form of its data set in FORMS

Some scorers hand the answer to `eval`, or to sympy, which does the same. So a fresh process scores each answer, and for
these scorers the answer must have a form that reaches no function of Python's (EVALUATED).

Other scorers pay for wrong answers: they read the first number of a text, or skip what they cannot read. A policy with
many rollouts finds this. So for these data sets

    FORMS            the whole answer must have the form that the question asks for
    SAME_COUNT       the answer must have as many parts as the entry's answer
    ONLY_GOLD        is correct only if it is the entry's answer, apart from space and capital letters
    CHECKS           our check in kinds/checks.py replaces the scorer
    ALL_OR_NOTHING   only the full score counts
    REFUSED          no check can tell right from wrong: ValueError when the problems are loaded

And for every data set: a partial score is 0 if the answer has the entry's answer inside it. Many scorers pay the share
of the right characters, so an answer that lists all candidates would earn a part on every problem.

The source: reasoning-gym 0.1.25. tests/test_kinds_logic.py attacks every data set of it.
"""

import functools
import importlib.util
import re
from collections.abc import Callable
from typing import Any

from kinds.checks import CHECKS
from kinds.patterns import NUMBER, forward
from sandbox.jobs import Call
from verify import Kind, last_tag, shown

MAX_SCORED = 100_000  # characters of an answer
REFUSED = {"propositional_logic": "its scorer accepts a premise that is repeated, such as (P ∨ P), as the conclusion"}


def check_logic(reference: Any) -> None:
    """Raise ValueError unless the reference names a data set of Reasoning Gym and has an entry of it."""
    name, entry = (reference.get(key) for key in ("dataset", "entry")) if isinstance(reference, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(entry, dict) or len(reference) != 2:
        raise ValueError(f'a logic reference is {{"dataset": name, "entry": {{...}}}}, got {shown(reference)}')
    if name in REFUSED:
        raise ValueError(f"the logic data set {name} cannot be trained on: {REFUSED[name]}")
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
_TIME = r"[0-9]++:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]++)?)?"
_ROLE = r"[A-Za-z]++ is an? [A-Za-z]++"
_MOVE = r"Move disk [0-9]++ from Peg [0-9]++ to Peg [0-9]++"
_TURN = r"(?:[BDFLRU]w?|[EMSXYZ])'?[1-9]?"  # the scorer skips a turn of another form
FORMS = EVALUATED | {
    name: forward(pattern, re.ASCII)
    for name, pattern in {
        "fraction_simplification": r"\$?(?:\\d?frac\{[0-9]++\}\{[0-9]++\}|[0-9]++/[0-9]++)\$?",  # $\frac{2}{3}$ or 2/3
        "kakurasu": r"[01\s]*+",  # 1 1 0 0 on each line
        "knights_knaves": rf"{_ROLE}(?:(?:,|\.|\s|and(?=\s))++{_ROLE})*+\.?",  # Joe is an angel, and Zoe is a devil
        "number_format": rf"{NUMBER}|[+-]?[0-9]{{1,3}}+(?:,[0-9]{{3}})++(?:\.[0-9]++)?",  # 592,641,317.986 or 5.9e+08
        "polynomial_equations": rf'(?:{NUMBER}(?:\s*+,\s*+{NUMBER})*+)?|""',  # -0.04, 0.0; "" if there is no solution
        "pool_matrix": r"[0-9\s.-]*+",  # numbers on each line
        "quantum_lock": r"[A-Ca-c](?:(?:\s|,|→|->)++[A-Ca-c])*+",  # A → B → C
        "rubiks_cube": rf"{_TURN}(?:\s++{_TURN})*+",  # U B' R2
        "rush_hour": r"[A-Z][+-][0-9](?:\s++[A-Z][+-][0-9])*+",  # F+1 K+1
        "sokoban": r"[LURD]++",  # LDURRUDL
        "time_intervals": rf"{_TIME}|[0-9]++(?: days?(?:, {_TIME})?)?",  # 03:22:03 or 67 days, 01:04:00
        "tower_of_hanoi": rf"{_MOVE}(?:\s++{_MOVE})*+",
    }.items()
}
# Data set -> the mark to count. Their scorers skip a second pair, or take the last of two values for one name.
SAME_COUNT = {"advanced_geometry": ",", "cryptarithm": "=", "knights_knaves": " is "}
# Their scorers pay in full for some texts with more, or other, than the answer.
ONLY_GOLD = ("figlet_font", "game_of_life", "game_of_life_halting", "letter_jumble", "survo", "word_sorting")
# Their scorers pay a part for one text on all problems: an empty board (game_of_life: 0.97 on average), any board
# (sudoku), a usual number (rectangle_count), any time (time_intervals: 0.47), zeros (polynomial_equations). Or for the
# number itself instead of its prime factors, for the right stickers of an untouched cube, and for invented words that
# change one letter at a time.
ALL_OR_NOTHING = (
    "game_of_life", "mini_sudoku", "polynomial_equations", "prime_factorization", "rectangle_count", "rubiks_cube",
    "sudoku", "time_intervals", "word_ladder",
)  # fmt: skip
# Every comparison with NaN is false, so a scorer that looks for an error finds none: min(1.0, nan) is 1.0.
_NOT_FINITE = forward(r"(?<![a-z])(?:nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)


def judge_logic(answer: str, reference: dict[str, Any]) -> Call | None:
    """Return the job that scores the answer, unless no scorer may see it."""
    gold, name = reference["entry"]["answer"] or "", reference["dataset"]
    if (gold and not answer) or len(answer) > MAX_SCORED or (name in FORMS and not FORMS[name].fullmatch(answer)):
        return None
    if name in SAME_COUNT and answer.count(SAME_COUNT[name]) != gold.count(SAME_COUNT[name]):
        return None
    if _NOT_FINITE.search(answer) and not _NOT_FINITE.search(gold):
        return None
    return Call("kinds.logic:score", [answer, reference], ("reasoning_gym",), evaluates=True)


def solution_logic(reference: dict[str, Any]) -> str | None:
    """Return a response with the entry's answer."""
    answer = reference["entry"]["answer"]
    return None if answer is None else f"<answer>{answer}</answer>"


# ------------------------------------------------------------------------------------------- in a worker


def score(answer: str, reference: dict[str, Any]) -> float | None:
    """Return the score of our check or of the data set's own scorer, None if it fails on the answer."""
    name, entry = reference["dataset"], reference["entry"]
    if name in ("arc_agi", "rearc"):
        # These two compare with grids made of tuples, which JSON made lists.
        entry = entry | {"metadata": {key: _as_tuples(value) for key, value in entry["metadata"].items()}}
    try:
        value = CHECKS[name](answer, entry) if name in CHECKS else _scorer(name)(answer=answer, entry=entry)
    except (OSError, ImportError):
        raise  # this machine is to blame
    except Exception:
        return None
    gold = (entry["answer"] or "").strip()
    if name in ALL_OR_NOTHING and value != 1:
        return 0.0
    if name in ONLY_GOLD and value == 1 and _squeezed(answer) != _squeezed(gold):
        return 0.0
    # NaN is in no interval; a complex number cannot be compared.
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        return 0.0
    # A longer path that is valid may have the shortest one in it.
    if value < 1 and gold and gold.lower() in answer.lower() and name != "shortest_path":
        return 0.0
    return float(value)


def _squeezed(text: str) -> str:
    return "".join(text.lower().split())


@functools.cache
def _scorer(dataset: str) -> Callable:
    import reasoning_gym

    return reasoning_gym.get_score_answer_fn(dataset)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


KIND = Kind(judge_logic, answer=last_tag, check=check_logic, solution=solution_logic)
