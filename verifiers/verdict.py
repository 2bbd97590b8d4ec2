"""What every kind of problem takes and gives, and the few functions that kinds share."""

import re
from collections.abc import Callable
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


class Kind(NamedTuple):
    """What a kind of problem is made of. A new kind needs the first three, and a worker if `judge_inline` cannot tell.

    check            reference -> gold, what the response is compared with; ValueError with a sentence where the
                     reference is broken
    find             response -> the text in it that is judged, or None if there is none: that is "no_answer". Equal
                     texts for the same problem are judged once, so leave out what does not count
    judge_inline     (text, gold) -> the verdict, or None where a worker must judge. In the trainer's process: string
                     methods and `forward` patterns only, nothing of the text is executed, no number grows without bound
    judge_in_worker  (text, reference) -> the verdict, in a worker of the sandbox. A module-level function that takes
                     what JSON can hold; its worker imports its module
    packages         what `judge_in_worker` imports: its worker does so before the text is there
    evaluates        `judge_in_worker` may run the text as code (`eval`): each call gets a fresh process, and a weak
                     sandbox is refused as for code
    job              (text, gold, all_or_nothing) -> (job, read) in place of `judge_in_worker`: a Call or a Program of
                     sandbox/jobs.py, and the function that makes the verdict of its Outcome
    solution         reference -> a response that is right, or None if none is known. A problem is refused at its start
                     if this response is not correct
    file             the user's file that this kind comes from
    """

    check: Callable[[Any], Any]
    find: Callable[[str], str | None]
    judge_inline: Callable[[str, Any], Verdict | None]
    judge_in_worker: Callable[[str, Any], Verdict] | None = None
    packages: tuple[str, ...] = ()
    evaluates: bool = False
    job: Callable[[str, Any, bool], tuple[Any, Callable[[Any], Verdict]]] | None = None
    solution: Callable[[Any], str | None] = lambda reference: None
    file: str | None = None


class NotAReward(ValueError):
    """What a user's function returned. The message names the function's kind and file, and what it may return."""


failures: dict[str, str] = {}  # kind -> why its first call crashed or was out of time
reward_files: dict[str, list[str]] = {}  # of each loaded file: itself, and what it imports from beside it

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


_ESCAPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_PIECE = re.compile(rf"\)(?P<times>[*+]|\{{[0-9,]*\}})\+|{_ESCAPED.pattern}|.", re.DOTALL)
FORWARD: list[re.Pattern[str]] = []  # all that `forward` compiled
_REPEATED = re.compile(r"(?:[*+]|\{[0-9]*,[0-9]*\})([+?]?)")


def forward(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern for text that a model wrote. It cannot backtrack into a repetition: each is possessive, as in
    `a*+`. ValueError where one is not. So no text takes a time that grows exponentially.
    """
    marks = _REPEATED.findall(_ESCAPED.sub("x", pattern))
    if any(mark != "+" for mark in marks):
        raise ValueError(f"each repetition of a pattern for a model's text must be possessive, *+ or ++: {pattern}")
    FORWARD.append(re.compile(atomic(pattern), flags))
    return FORWARD[-1]


def atomic(pattern: str) -> str:
    """Each `(...)*+` as `(?>(...)*)`, which means the same. Python 3.11.2 reads `(?:a|bc)*+` past a b without c."""
    pieces: list[str] = []
    opened: list[int] = []
    for match in _PIECE.finditer(pattern):
        piece = match[0]
        if piece == "(":
            opened.append(len(pieces))
        elif piece.startswith(")"):
            start = opened.pop()
            if match["times"]:
                pieces[start], piece = "(?>(", f"){match['times']})"
        pieces.append(piece)
    return "".join(pieces)


def shown(value: Any) -> str:
    """The value as an error message shows it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
