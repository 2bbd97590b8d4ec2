"""Questions of verify.py and logic.py to the worker processes of sandbox.py, and the one pool of them.

What has to run text that a model wrote is a conversation: a generator that yields jobs, is sent their outcomes, and
returns a verdict. A kind with one question has one call; a program's check takes several (asserts.py).
"""

import atexit
import contextlib
import json
import os
import threading
from collections.abc import Generator
from typing import Any

from verifiers.sandbox import Call, Outcome, Pool, Program, default_workers
from verifiers.verdict import Verdict

Conversation = Generator[Call | Program, Outcome, Verdict]

# What a worker imports before its walls go up, and may call: modules, and below them the files of a user's rewards.
MODULES = ["verifiers.math", "verifiers.science", "verifiers.logic", "verifiers.asserts", "verifiers.own"]

NO_WORKERS = (
    "this system cannot start the worker processes that judge programs, algebra, Reasoning Gym's answers and rewards "
    "of your own: use Linux, or macOS, where most walls of the sandbox are missing"
)


def hold(
    conversations: dict[Any, Conversation], timeout_s: float, workers: int | None, allow_weak: bool
) -> dict[Any, Verdict]:
    """All conversations in rounds: what each wants to know next goes to the pool, and what two want to know once.

    `timeout_s` is for all of a conversation, but the check of a program that used it up still gets half a second.
    """
    verdicts: dict[Any, Verdict] = {}
    left = dict.fromkeys(conversations, timeout_s)
    waiting = {key: next(conversation) for key, conversation in conversations.items()}
    with _lock:
        pool = _the_pool(workers, allow_weak)
        while waiting:
            askers: dict[Any, list] = {}
            for key, job in waiting.items():
                same = json.dumps([job.function, job.args]) if isinstance(job, Call) else id(job)
                askers.setdefault(same, []).append(key)
            groups = list(askers.values())
            jobs, waiting = [waiting[group[0]] for group in groups], {}
            least = [min(0.5, timeout_s) if isinstance(job, Call) else 0.0 for job in jobs]
            limits = [max(low, *(left[key] for key in group)) for low, group in zip(least, groups, strict=True)]
            # Closed at once where a conversation raises, so that the pool is free again.
            with contextlib.closing(pool.run(jobs, limits)) as outcomes:
                for index, outcome in outcomes:
                    for key in groups[index]:
                        left[key] -= outcome.seconds
                        try:
                            waiting[key] = conversations[key].send(outcome)
                        except StopIteration as stop:
                            verdicts[key] = stop.value
    return verdicts


def ask(calls: list[Call], timeout_s: float) -> list[Outcome]:
    """The outcomes of calls that belong to no conversation, in order."""
    if not calls:
        return []
    with _lock:
        outcomes = dict(_the_pool(None, False).run(calls, timeout_s))
    return [outcomes[index] for index in range(len(calls))]


def preload(path: str, wanted: bool = True) -> None:
    """A user's file, new or changed: every worker from now on has imported it, or no more if it is not `wanted`."""
    with _lock:
        MODULES[:] = [module for module in MODULES if module != path] + [path] * wanted
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
        _pool = Pool(modules=MODULES)
        atexit.register(_pool.close)
    _pool.workers, _pool.allow_weak = workers or default_workers(), allow_weak
    return _pool


def _forget_the_pool() -> None:
    """A fork of this process makes a pool of its own, whatever another thread was doing with this one."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_the_pool)
