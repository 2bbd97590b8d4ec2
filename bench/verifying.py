"""How fast answers are judged, beside math-verify called on one answer after the other."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import random
import statistics

import verify as judge
from bench.common import machine, seconds

# A right answer in the spellings that models use for it, by the kind of answer.
RIGHT = [
    lambda a, b: [f"{a}", f"{a}.0", f" {a} ", f"\\text{{{a}}}", f"+{a}"],
    lambda a, b: [f"\\frac{{{a}}}{{{b}}}", f"\\dfrac{{{a}}}{{{b}}}", f"{a}/{b}", f"\\frac{{{2 * a}}}{{{2 * b}}}"],
    lambda a, b: [f"{a}\\sqrt{{{b}}}", f"{a} \\sqrt {{{b}}}", f"\\sqrt{{{a * a * b}}}", f"{a}{b}^{{1/2}}"],
    lambda a, b: [f"({a}, {b})", f"({a},{b})", f"\\left({a}, {b}\\right)"],
    lambda a, b: [f"[{a}, {a + b})", f"\\left[{a}, {a + b}\\right)"],
    lambda a, b: [f"x^2+{a}x+{b}", f"x^2 + {a}x + {b}", f"{b} + {a}x + x^2", f"x(x+{a})+{b}"],
    lambda a, b: [f"\\{{{a}, {a + b}\\}}", f"\\{{{a + b}, {a}\\}}"],
]
SHARE_OF_KINDS = [50, 15, 12, 8, 4, 7, 4]
# How often a problem's k-th wrong answer comes, as in many samples of one model: some are common, most are rare.
WRONG_ANSWERS = 60
TRUNCATED = 0.05


def math_answers(seed: int, problems: int, n: int) -> list[tuple[str, str, str]]:
    """Per problem: a rate of right answers, evenly between 0 and 1, in a few spellings; wrong ones by Zipf's law."""
    rng, items = random.Random(seed), []
    for _ in range(problems):
        spell = rng.choices(RIGHT, SHARE_OF_KINDS)[0]
        a, b = rng.randint(2, 400), rng.choice([2, 3, 5, 7, 11, 13])
        right, rate = spell(a, b), rng.random()
        gold = right[0]
        wrong = [spell(max(1, a + rng.randint(-30, 30)), b + rng.choice([0, 1, 2])) for _ in range(WRONG_ANSWERS)]
        for _ in range(n):
            spellings = right if rng.random() < rate else rng.choices(wrong, [1 / k for k in range(1, 61)])[0]
            box = f"\\boxed{{{rng.choices(spellings, [1 / k for k in range(1, len(spellings) + 1)])[0]}}}"
            thought = f"<think>{rng.random()} {'so we try the next case, and then ' * 60}</think> The answer is "
            items.append(("math", thought + ("" if rng.random() < TRUNCATED else box), gold))
    return items


def plain_math_verify(items: list[tuple[str, str, str]]) -> int:
    import math_verify

    return sum(math_verify.verify(math_verify.parse(f"${gold}$"), math_verify.parse(text)) for _, text, gold in items)


def programs(count: int, tests: int) -> list[tuple[str, str, dict]]:
    """Distinct short programs, of which half are right."""
    reference = {"inputs": [f"{k}\n1 2 3\n" for k in range(tests)], "outputs": [f"{k + 6}\n" for k in range(tests)]}
    source = "import sys\nk, *xs = map(int, sys.stdin.read().split())\nprint(sum(xs) + k + {})"
    return [("code", f"```python\n{source.format(f'{k} * {k % 2}')}\n```", reference) for k in range(count)]


def verify(args: argparse.Namespace) -> None:
    """Print math answers/s, with and without duplicates removed, beside math-verify; tests of programs/s."""
    if importlib.util.find_spec("math_verify") is None:
        raise ValueError("the plain way needs the package math-verify: pip install math-verify==0.9.0")
    print(machine())
    first = math_answers(0, args.problems, args.samples)
    judge.verify_batch([("math", "\\boxed{y+x}", "x+y")], workers=args.workers)
    sample = random.Random(0).sample(first, args.plain)
    rates, single_rates, plain_rates = [], [], []
    for number in range(args.turns):
        items = math_answers(number, args.problems, args.samples)
        rates.append(len(items) / seconds(functools.partial(judge.verify_batch, items, args.workers)))
        # A reference object of its own for each answer: no two answers are judged together.
        apart = [(kind, text, (gold + " ")[:-1]) for kind, text, gold in items]
        single_rates.append(len(items) / seconds(functools.partial(judge.verify_batch, apart, args.workers)))
        plain_rates.append(len(sample) / seconds(lambda: plain_math_verify(sample)))
    distinct = len({(gold, text.rpartition("</think>")[2]) for _, text, gold in first})
    ours, single, plain = statistics.median(rates), statistics.median(single_rates), max(plain_rates)
    print(f"math, {args.problems} problems x {args.samples} answers, {distinct:,} of them distinct:")
    print(f"  verify_batch           {ours:8,.0f} answers/s median, {max(rates):,.0f} best")
    print(f"  each answer judged     {single:8,.0f} answers/s median, {max(single_rates):,.0f} best")
    print(f"  math-verify in a loop  {plain:8,.1f} answers/s best of {len(plain_rates)} x {args.plain}")
    print(f"  ratios                 {ours / plain:8,.0f}x, {single / plain:,.0f}x (our median, its best)")
    code = programs(args.programs, args.tests)
    runs = [seconds(lambda: judge.verify_batch(code, timeout_s=60)) for _ in range(args.turns)]
    tests = args.programs * args.tests
    print(
        f"code, {args.programs} programs x {args.tests} tests, best of {args.turns}: {tests / min(runs):,.0f} tests/s"
    )
