"""What every verifier of verify.py takes and gives, and the few functions that they share."""

import re
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """A prompt (text, or chat messages) and what its responses are checked against: the tables that open verify.py."""

    prompt: str | list[dict[str, str]]
    kind: str
    reference: Any


class Solved(Problem):
    """A problem that comes with a response that is right, for `--examples`. As a tuple it is the problem itself."""

    solution: str = ""

    def __new__(cls, prompt: str | list[dict[str, str]], kind: str, reference: Any, solution: str = "") -> "Solved":
        problem = super().__new__(cls, prompt, kind, reference)
        problem.solution = solution
        return problem


class Verdict(NamedTuple):
    """The reward in [0, 1], and one of REASONS: verify.py says what they mean. They are counted at every step."""

    reward: float
    reason: str


CORRECT = Verdict(1.0, "correct")
WRONG = Verdict(0.0, "wrong")
NO_ANSWER = Verdict(0.0, "no_answer")
UNPARSED = Verdict(0.0, "unparsed")
CRASHED = Verdict(0.0, "crashed")
REASONS = ("correct", "wrong", "partial", "no_answer", "unparsed", "timeout", "crashed")

# In characters. Below the 4,300 digits at which Python's int() refuses, and far above any honest answer.
MAX_ANSWER = 1_000


def graded(reward: float) -> Verdict:
    """The verdict of a score: correct at 1, wrong at 0, partial between."""
    return Verdict(reward, "correct" if reward == 1 else "partial" if reward else "wrong")


def after_thinking(response: str) -> str | None:
    """What is judged: the text behind the last </think>. None where a <think> is still open: a thought is no answer."""
    text = response.rpartition("</think>")[2]
    return None if "<think>" in text else text


_ESCAPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]", re.DOTALL)
_REPEATED = re.compile(r"(?:[*+]|\{[0-9]*,[0-9]*\})([+?]?)")


def forward(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern for text that a model wrote. It cannot backtrack into a repetition: each is possessive, as in
    `a*+`. ValueError where one is not. So no text takes a time that grows exponentially.
    """
    marks = _REPEATED.findall(_ESCAPED.sub("x", pattern))
    if any(mark != "+" for mark in marks):
        raise ValueError(f"each repetition of a pattern for a model's text must be possessive, *+ or ++: {pattern}")
    return re.compile(pattern, flags)


def shown(value: Any) -> str:
    """The value as an error message shows it, cut to a readable length."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= 200 else text[:200] + "..."


def refuse_number(kind: str, reference: Any) -> None:
    """ValueError for a number where the reference is text: the quotes are forgotten easily."""
    if isinstance(reference, int | float):
        raise ValueError(f'a {kind} reference is text: write {reference} in quotes, "reference": "{reference}"')
