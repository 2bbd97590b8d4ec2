"""tools/speed.py: ratios by hand, small versions of every part, the table."""

import time

import pytest
import torch

from tools.speed import PARTS, Speeds, compare, plain_log_probs
from trainer.policy import chunked_logprobs

SMALL = {
    "rollout": {"samples": 32, "length": 2, "most_at_once": 16},
    "hand_over": {"n": 16, "length": 8},
    "shared_prompt": {"n": 6, "prompt_tokens": 8},
}


def test_the_ratio_is_the_median_of_turns_by_hand(monkeypatch):
    """Makes impossible: a ratio of two medians, of times in place of rates, or ways that do not take turns."""
    clock, order = [0.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def way(name, seconds, done):
        def work():
            order.append(name)
            clock[0] += seconds.pop(0)
            return done

        return work

    row = compare("x", "things/s", 3, way("ours", [1, 2, 8], 16), way("plain", [2, 8, 8], 8))
    # ours 16, 8, 2 things/s; plain 4, 1, 1: ratios 4, 8, 2
    assert order == ["ours", "plain"] * 3
    assert row == Speeds("x", 8, 1, "things/s", 4)


@pytest.mark.parametrize("part", SMALL)
def test_a_part_compares_with_the_plain_way(part):
    """Makes impossible: a part that fails, or a row without one of its ways."""
    rows = list(PARTS[part](turns=1, **SMALL[part]))
    assert rows
    for row in rows:
        assert row.first > 0 and row.second > 0 and row.ratio > 0, row


def test_both_ways_have_equal_log_probs():
    """Makes impossible: a plain way that computes something else."""
    hidden, weight, targets = torch.randn(8, 4), torch.randn(50, 4), torch.randint(50, (8,))
    torch.testing.assert_close(chunked_logprobs(hidden, weight, targets)[0], plain_log_probs(hidden, weight, targets))
