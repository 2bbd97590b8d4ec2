"""What the tests of verify.py and kinds/ share.

BRORL_REFEREES=1 makes the tests mandatory that need reasoning-gym, langdetect or datasets; else they are skipped where
the package is missing.
"""

import importlib.util
import json
import os
import re

import pytest

from verify import verify, verify_batch

THREE = {"numbers": [2, 3, 4], "target": 20}


def needs(package):
    missing = importlib.util.find_spec(package) is None and os.environ.get("BRORL_REFEREES") != "1"
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
    import reasoning_gym

    return [json.loads(json.dumps(entry)) for entry in reasoning_gym.create_dataset(name, size=size, seed=3)]


def instruction(name, kwargs):
    return {"instruction_id_list": [name], "kwargs": [kwargs]}
