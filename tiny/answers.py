"""All expressions over a countdown problem's numbers. Its answers are those whose value is the target.

An expression is `a.b.c.d`: each number once, a dot is one of + - * /, no parentheses. n numbers have up to
n! 4^(n-1) expressions: 1,536 for the four digits of tiny/'s problems. verify.py computes their values.
"""

import functools
import itertools
from fractions import Fraction

from verify import Problem, value_of

OPERATORS = "+-*/"
MAX_NUMBERS = 5  # 5! 4^4 = 30,720 expressions take about half a second


def expressions(numbers: tuple[int, ...]) -> dict[str, int | Fraction | None]:
    """Return expression -> exact value, None if it divides by zero, in the order of numbers, then of operators."""
    found: dict[str, int | Fraction | None] = {}
    for order in sorted(set(itertools.permutations(numbers))):
        for operators in itertools.product(OPERATORS, repeat=len(numbers) - 1):
            text = "".join(f"{number}{sign}" for number, sign in zip(order, (*operators, ""), strict=True))
            found[text] = value_of(text)
    return found


@functools.cache
def _by_value(numbers: tuple[int, ...]) -> dict[int | Fraction | None, list[str]]:
    found: dict[int | Fraction | None, list[str]] = {}
    for text, value in expressions(numbers).items():
        found.setdefault(value, []).append(text)
    return {value: sorted(texts) for value, texts in found.items() if value is not None and value.denominator == 1}


def answers_of(problem: Problem) -> list[str]:
    """Return every answer of a countdown problem without parentheses or spaces, sorted.

    Raises ValueError for another kind, or too many numbers.
    """
    if problem.kind != "countdown":
        raise ValueError(f"kind {problem.kind} has no list of all answers: use countdown problems")
    numbers, target = problem.reference["numbers"], problem.reference["target"]
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(f"{len(numbers)} numbers have too many expressions: use problems of at most {MAX_NUMBERS}")
    return _by_value(tuple(sorted(numbers))).get(target, [])
