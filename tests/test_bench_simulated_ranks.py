"""bench/simulated_ranks.py: what it computes, by hand and at the paper's N."""

import pytest
import torch

from bench.simulated_ranks import decoded, owners, simulated


def test_the_engine_by_hand():
    """Makes impossible: rollouts that decode faster than the engine, or than one rollout can.

    At 100 tokens/s, 60 for one: 100 and 300 tokens share until 2 s; the last 200 take 200/60 s more.
    """
    rates = {"at_once": 2, "rank": 100.0, "each": 60.0}
    assert decoded(torch.tensor([100, 300]), **rates) == pytest.approx(2 + 200 / 60)
    assert decoded(torch.tensor([100, 300, 60]), **rates) == pytest.approx(2 + 60 / 50 + 140 / 60)


def test_a_wide_group_makes_the_ranks_even():
    """Makes impossible: a rule of requests_of_rank that gives one rank many more tokens, or another rank no prompt."""
    assert torch.bincount(owners(5, 512, 64).flatten()).tolist() == [40] * 64
    ((generation, update, uneven),) = simulated(64, "brorl", 1)
    assert uneven < 1.06 and generation < 700 and update < 850
