"""Every answer of a countdown problem, written down: what lets tiny/exact.py sum Q_pos where others sample it.

n numbers have up to n! 4^(n-1) strings `a.b.c.d`, a dot being one of + - * /: 1,536 for the four digits of tiny/'s
problems. MAX_NUMBERS limits n.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np

from verify import Problem, check_countdown

OPERATORS = "+-*/"
MAX_NUMBERS = 7  # 7! 4^6 = 20 million strings a problem: three seconds
AT_ONCE = 2**20  # values computed together


@functools.lru_cache(maxsize=64)
def _orders(numbers: tuple[int, ...]) -> np.ndarray:
    """The distinct orders of the numbers, (M, n) float64."""
    return np.array(sorted(set(itertools.permutations(numbers))), dtype=float)


def answers(numbers: list[int], target: int) -> list[str]:
    """Every plain expression `a.b.c...` with this value: each number once, + - * /, usual precedence; sorted.

    The result is exact. Floats only choose the candidates: a sum of terms is off by less than 1e-12 of the sum of
    their absolute values, so no answer is missed, and of what is that near `_value` decides with fractions. A
    division by zero has no value. Raises ValueError for what is no countdown problem or has too many strings.
    """
    check_countdown({"numbers": numbers, "target": target})
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(
            f"a problem of {len(numbers)} numbers has too many expressions to write down: give it up to {MAX_NUMBERS}"
        )
    if abs(target) > math.prod(max(x, 1) for x in numbers) + sum(numbers):
        return []
    orders = _orders(tuple(numbers))
    patterns = np.array(list(itertools.product(range(4), repeat=len(numbers) - 1)), dtype=int)  # (K, n - 1)
    found = set()
    for some in np.array_split(patterns, math.ceil(len(patterns) * len(orders) / AT_ONCE)):
        for i, j in np.argwhere(_near(orders, some, target)):
            order, pattern = orders[j].astype(int).tolist(), some[i].tolist()
            if _value(order, pattern) == target:
                found.add("".join(f"{x}{OPERATORS[o]}" for x, o in zip(order, pattern, strict=False)) + f"{order[-1]}")
    return sorted(found)


def _near(orders: np.ndarray, patterns: np.ndarray, target: int) -> np.ndarray:
    """Which (pattern, order) has about the target as its value: (K, M) bool from (K, n - 1) and (M, n)."""
    shape = len(patterns), len(orders)
    total, size, term = np.zeros(shape), np.zeros(shape), np.broadcast_to(orders[:, 0], shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        for pattern, number in zip(patterns.T, orders.T[1:], strict=True):
            operator = pattern[:, None]
            ends = operator < OPERATORS.index("*")  # + and - end a term and begin another
            total, size = total + np.where(ends, term, 0), size + np.where(ends, np.abs(term), 0)
            signed = np.where(operator == OPERATORS.index("-"), -number, number)
            within = np.where(operator == OPERATORS.index("*"), term * number, term / number)
            term = np.where(ends, signed, within)
        return np.abs(total + term - target) <= 1e-12 * (size + np.abs(term) + abs(target))


def _value(numbers: list[int], operators: list[int]) -> Fraction | None:
    """The exact value of an expression, None if it divides by zero."""
    total, term = Fraction(0), Fraction(numbers[0])
    for operator, number in zip(operators, numbers[1:], strict=True):
        match OPERATORS[operator]:
            case "*":
                term *= number
            case "/" if number == 0:
                return None
            case "/":
                term /= number
            case sign:
                total, term = total + term, Fraction(number if sign == "+" else -number)
    return total + term


def answers_of(problem: Problem) -> list[str]:
    """`answers` of a problem as train.py loads it. Raises ValueError for one of another kind."""
    if problem.kind != "countdown":
        raise ValueError(f"a problem of kind {problem.kind}: only countdown answers can all be written down")
    return answers(problem.reference["numbers"], problem.reference["target"])
