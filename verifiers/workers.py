"""Answers that a worker of the sandbox must judge: the job of each, and the verdict that its outcome is."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from sandbox.jobs import Call, Outcome, Program
from sandbox.pool import run
from verifiers.verdict import CRASHED, REASONS, Kind, Verdict, failures

LOG = logging.getLogger(__name__)
Work = tuple[Call | Program, Callable[[Outcome], Verdict]]


def work_for(kind: Kind, text: str, gold: Any, reference: Any, all_or_nothing: bool) -> Work:
    """The job that judges a text, and the function that reads its outcome."""
    if kind.job is not None:
        return kind.job(text, gold, all_or_nothing)
    judge = kind.judge_in_worker
    assert judge is not None, "a kind whose `judge_inline` gives None has `judge_in_worker` or `job`"
    return Call(f"{judge.__module__}:{judge.__name__}", [text, reference], kind.packages, kind.evaluates), read_verdict


def read_verdict(outcome: Outcome) -> Verdict:
    """A verdict from a process that has met the model's text: anything else counts as crashed."""
    if outcome.status != "ok":
        return Verdict(0.0, outcome.status)
    match outcome.value:
        case [int() | float() as reward, str() as reason] if 0 <= reward <= 1 and reason in REASONS:
            return Verdict(float(reward), reason)
    return CRASHED


def judge_in_workers(
    pending: dict[Any, tuple], timeout_s: float, workers: int | None, allow_weak: bool
) -> dict[Any, Verdict]:
    """The verdict of each pending answer, the arguments of `work_for`. Its key begins with the name of its kind."""
    verdicts: dict[Any, Verdict] = {}
    keys, works = list(pending), [work_for(*arguments) for arguments in pending.values()]
    # Closed at once where a reader raises, so that the pool is free again.
    with contextlib.closing(run([job for job, _ in works], timeout_s, workers, allow_weak)) as outcomes:
        for index, outcome in outcomes:
            key, (_, read) = keys[index], works[index]
            if outcome.status != "ok" and key[0] not in failures:
                failures[key[0]] = f"kind {key[0]}: the judging of a response {_what_happened(outcome, timeout_s)}"
                LOG.warning("%s: %s", failures[key[0]], outcome.status)
            verdicts[key] = read(outcome)
    return verdicts


def _what_happened(outcome: Outcome, timeout_s: float) -> str:
    if outcome.status == "timeout":
        return f"took more than {timeout_s:g} s (--verify_timeout)"
    return f"raised {outcome.value}" if outcome.value else "ended its process"
