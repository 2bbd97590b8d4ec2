"""Questions of verify.py and logic.py to the worker processes of sandbox.py, and the one pool of them.

What has to run text that a model wrote is a conversation: a generator that yields one job, is sent its outcome, and
returns a verdict.
"""

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Generator
from typing import Any

from verifiers.sandbox import Call, Outcome, Pool, Program, default_workers
from verifiers.verdict import Verdict

LOG = logging.getLogger(__name__)
Conversation = Generator[Call | Program, Outcome, Verdict]

failures: dict[str, str] = {}  # kind -> why the first call of it crashed or was out of time

NO_WORKERS = (
    "this system cannot start the worker processes that judge LaTeX, programs, Reasoning Gym's answers and rewards "
    "of your own: use Linux, or macOS, where most walls of the sandbox are missing"
)


def hold(
    conversations: dict[Any, Conversation], timeout_s: float, workers: int | None, allow_weak: bool
) -> dict[Any, Verdict]:
    """The verdict of each conversation. Its key begins with (kind, reference): the log names the kind."""
    verdicts: dict[Any, Verdict] = {}
    keys, jobs = list(conversations), [next(conversation) for conversation in conversations.values()]
    # Closed at once where a conversation raises, so that the pool is free again.
    with _lock, contextlib.closing(_the_pool(workers, allow_weak).run(jobs, timeout_s)) as outcomes:
        for index, outcome in outcomes:
            kind = keys[index][0][0]
            if outcome.status != "ok" and kind not in failures:
                failures[kind] = f"kind {kind}: the judging of a response {_what_happened(outcome, timeout_s)}"
                LOG.warning("%s: %s", failures[kind], outcome.status)
            try:
                conversations[keys[index]].send(outcome)
            except StopIteration as stop:
                verdicts[keys[index]] = stop.value
    return verdicts


def _what_happened(outcome: Outcome, timeout_s: float) -> str:
    if outcome.status == "timeout":
        return f"took more than {timeout_s:g} s (--verify_timeout)"
    return f"raised {outcome.value}" if outcome.value else "ended its process"


def ask(calls: list[Call], timeout_s: float) -> list[Outcome]:
    """The outcomes of calls that belong to no conversation, in order."""
    if not calls:
        return []
    with _lock:
        outcomes = dict(_the_pool(None, False).run(calls, timeout_s))
    return [outcomes[index] for index in range(len(calls))]


def restart() -> None:
    """The workers are started anew when next needed: they import a user's file as it is then."""
    with _lock:
        if _pool is not None:
            _pool.close()


_pool: Pool | None = None
_lock = threading.Lock()


def _the_pool(workers: int | None, allow_weak: bool) -> Pool:
    """The one pool of this process, made when first needed, and from then on as large as asked for."""
    global _pool
    if _pool is None:
        if not hasattr(os, "fork"):
            raise RuntimeError(NO_WORKERS)
        _pool = Pool()
        atexit.register(_pool.close)
    _pool.workers, _pool.allow_weak = workers or default_workers(), allow_weak
    return _pool


def _forget_the_pool() -> None:
    """A fork of this process makes a pool of its own, whatever another thread was doing with this one."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_the_pool)
