"""What the tests of verify.py and kinds/ share.

BRORL_REFEREES=1 makes the tests mandatory that need reasoning-gym, langdetect or datasets; else they are skipped where
the package is missing.
"""

import functools
import gc
import importlib.util
import json
import os
import re
import sys
import time

import pytest

from verify import verify, verify_batch

REFEREES = os.environ.get("BRORL_REFEREES") == "1"
THREE = {"numbers": [2, 3, 4], "target": 20}


def needs(package):
    missing = importlib.util.find_spec(package) is None and not REFEREES
    return pytest.mark.skipif(missing, reason=f"needs {package}; BRORL_REFEREES=1 makes it mandatory")


def pairs(table):
    """(gold, answer) of each answer in a table like: gold  |  answer  |  another answer  ;  gold  |  answer"""
    rows = [[cell.strip() for cell in row.split("  |  ")] for row in re.split(r"  ;  |\n", table.strip())]
    return [(gold, answer) for gold, *answers in rows for answer in answers]


def reason(kind, response, reference):
    verdict = verify(kind, response, reference)
    assert verdict.correct == (verdict.reason == "correct") == (verdict.reward == 1.0)
    assert verdict.correct or verdict.reward == 0.0
    return verdict.reason


def judged(kind, cases):
    """The reasons for boxed answers, all in one batch: most of the algebra is done by one pair of workers."""
    verdicts = verify_batch(
        [(kind, f"The answer is $\\boxed{{{answer}}}$.", gold) for gold, answer in cases], workers=2
    )
    return [verdict.reason for verdict in verdicts]


def gym(name, size):
    return [json.loads(entry) for entry in made(name, size)]


@functools.cache
def made(name, size):
    import reasoning_gym

    return [json.dumps(entry) for entry in reasoning_gym.create_dataset(name, size=size, seed=3)]


def instruction(name, kwargs):
    return {"instruction_id_list": [name], "kwargs": [kwargs]}


def seconds(work) -> float:
    """The processor time of this thread for a call. The garbage collector can take a second of a long test process."""
    gc.disable()
    try:
        start = time.thread_time()
        work()
        return time.thread_time() - start
    finally:
        gc.enable()


def count():
    for _ in range(100_000):
        pass


def costs_at_most(millions: float, work) -> bool:
    """Whether a call takes no longer than an empty loop of so many million turns, which is timed beside it: a slow or a
    busy machine slows both. A second and a third try follow a result of up to ten times that; none finds what another
    one left in the caches of kinds/.
    """
    for _ in range(3):
        for name in [name for name in sys.modules if name.startswith("kinds.")]:
            for cached in vars(sys.modules[name]).values():
                if hasattr(cached, "cache_clear") and not isinstance(cached, type):
                    cached.cache_clear()
        before, spent, after = map(seconds, (count, work, count))
        share = spent / (10 * millions * max(before, after))
        if share <= 1 or share > 10:
            break
    return share <= 1
