"""tiny/answers.py: all expressions and all answers, against Python's own parser and the verifier."""

import itertools
import re
from fractions import Fraction

import pytest

from tiny.answers import answers, answers_of
from verify import Problem, verify


def by_python(text: str) -> Fraction | None:
    """The value by Python's own parser and precedence, over fractions."""
    try:
        return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize("numbers", [[7], [0], [3, 8], [0, 4], [5, 5], [12, 3], [0, 0, 5], [9, 10, 90], [2, 3, 4, 6]])
def test_answers_are_those_of_a_plain_loop(numbers):
    """Makes impossible: a lost order or operator, a wrong precedence, a division by zero that counts, a repeat."""
    values = {}
    for order in set(itertools.permutations(numbers)):
        for operators in itertools.product("+-*/", repeat=len(numbers) - 1):
            text = "".join(f"{x}{o}" for x, o in zip(order, (*operators, ""), strict=True))
            values[text] = by_python(text)
    reached = {int(x) for x in values.values() if x is not None and x.denominator == 1}
    for target in [*sorted(reached), max(reached) + 1]:
        assert answers(numbers, target) == sorted(text for text, value in values.items() if value == target)


@pytest.mark.parametrize("numbers, target", [([2, 4], 2), ([2, 4], 6), ([1, 2, 3], 6), ([0, 2, 4], 2), ([2, 2, 4], 4)])
def test_answers_are_all_that_the_verifier_accepts(numbers, target):
    """Makes impossible: a string of these characters that is rewarded and not summed, or summed and not rewarded."""
    characters = [*dict.fromkeys(map(str, numbers)), *"+-*/"]
    strings = ("".join(x) for x in itertools.product(characters, repeat=2 * len(numbers) - 1))
    reference = {"numbers": numbers, "target": target}
    accepted = sorted(x for x in strings if verify("countdown", x, reference).reason == "correct")
    assert answers(numbers, target) == accepted != []


@pytest.mark.parametrize("problem", [Problem("1+1=", "math", "2"),
                                     Problem("", "countdown", {"numbers": [1] * 6, "target": 6})])  # fmt: skip
def test_a_problem_whose_answers_cannot_be_listed_is_refused(problem):
    """Makes impossible: a sum over some of the answers that passes for Q_pos."""
    with pytest.raises(ValueError):
        answers_of(problem)
