"""tiny/answers.py: all expressions and all answers, against Python's own parser and the verifier."""

import itertools

import pytest

from tiny.answers import answers_of
from verify import Problem, verify


@pytest.mark.parametrize(
    "numbers, target", [([7], 7), ([12, 3], 4), ([2, 4], 6), ([1, 2, 3], 6), ([0, 2, 4], 2), ([2, 2, 4], 4)]
)
def test_answers_are_all_that_the_verifier_accepts(numbers, target):
    """Makes impossible: a string of these characters that is rewarded and not summed, or summed and not rewarded."""
    characters = [*dict.fromkeys(map(str, numbers)), *"+-*/"]
    strings = ("".join(x) for x in itertools.product(characters, repeat=2 * len(numbers) - 1))
    reference = {"numbers": numbers, "target": target}
    accepted = sorted(x for x in strings if verify("countdown", x, reference).reason == "correct")
    assert answers_of(Problem("", "countdown", reference)) == accepted != []


@pytest.mark.parametrize("problem", [Problem("1+1=", "math", "2"),
                                     Problem("", "countdown", {"numbers": [1] * 6, "target": 6})])  # fmt: skip
def test_a_problem_whose_answers_cannot_be_listed_is_refused(problem):
    """Makes impossible: a sum over some of the answers that passes for Q_pos."""
    with pytest.raises(ValueError):
        answers_of(problem)
