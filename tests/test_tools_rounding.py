"""tools/rounding.py: the share of a movement that a rounded copy shows."""

import pytest
import torch

from engines.rounding import dithered
from tools import rounding


def test_the_share_of_a_movement_by_hand():
    """Makes impossible: a share of 1 for a copy that stays at the start, or a share of the weights."""
    policy = torch.nn.Linear(1000, 1000, bias=False)
    with torch.no_grad():
        policy.weight.fill_(1.0)
    start = {"weight": policy.weight.detach().clone()}
    with torch.no_grad():
        policy.weight += 2**-10  # an eighth of the distance to the next bfloat16 number
    assert rounding.share_seen(policy, start, rounding.nearest) == 0
    assert rounding.share_seen(policy, start, dithered) == pytest.approx(1, abs=0.01)
    assert rounding.share_seen(policy, start, None) == pytest.approx(1)
