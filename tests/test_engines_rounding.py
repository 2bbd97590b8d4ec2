"""engines/rounding.py: weights rounded to bfloat16 with a fixed dither, in the engine's copy."""

import json

import pytest
import torch
from helpers import loaded, off_the_grid, ulp

from engines.model import dithered_weights, inference, matrices_of, whole_tensors
from engines.rounding import PERIOD, dithered
from trainer.policy import Policy


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_a_step_of_a_tenth_of_an_ulp_changes_a_tenth_of_the_weights(fraction, sign):
    """Makes impossible: a rounding with a bias, towards 0 or to the nearest; a change by more than one ulp."""
    start = torch.empty(PERIOD).uniform_(1.1, 1.9, generator=torch.Generator().manual_seed(0)) / 64
    start = start.mul_(torch.tensor([1.0, -1.0]).repeat(PERIOD // 2)).bfloat16().float()  # ulp(start) is 2^-13
    moved = start + sign * fraction * ulp(start)
    rounded = dithered(moved, "w").float()
    changed = rounded != start
    assert changed.float().mean() == pytest.approx(fraction, abs=3e-3)
    assert torch.equal(rounded[changed], (start + sign * ulp(start))[changed])
    assert ((rounded - moved) / ulp(start)).mean().abs() < 3e-3
    assert (moved.bfloat16() != start).float().mean() in (0, 1) or fraction == 0.5  # the nearest: none or all


def test_bfloat16_numbers_stay_and_each_weight_changes_once():
    """Makes impossible: an engine that differs before the first step; a weight that flips back and forth on its way."""
    numbers = torch.tensor([0.0, -0.0, 1.0, -0.02, 3e-39, 1e38, float("inf"), -float("inf")]).bfloat16()
    assert torch.equal(dithered(numbers.float(), "w"), numbers) and dithered(torch.tensor([torch.nan]), "w").isnan()
    way = torch.linspace(0.5, 0.5 + 2**-8, 1000)  # one ulp of bfloat16
    steps = torch.stack([dithered(w.expand(64), "w").float() for w in way])
    assert ((steps.diff(dim=0) != 0).sum(0) == 1).all() and (steps.diff(dim=0) >= 0).all()


def test_the_dither_depends_on_name_and_position_only():
    """Makes impossible: equal dither in all weights, a draw of its own at each sync, a dither that depends on shape."""
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(dithered(weight, "a"), dithered(weight, "a"))
    assert torch.equal(dithered(weight, "a").flatten(), dithered(weight.flatten(), "a"))
    assert torch.equal(dithered(weight.T, "a"), dithered(weight.T.contiguous(), "a"))
    assert not torch.equal(dithered(weight, "a"), dithered(weight, "b"))
    long = torch.full((2 * PERIOD + 3,), 0.3)
    assert torch.equal(dithered(long, "a")[PERIOD:], dithered(long, "a")[: PERIOD + 3])  # it repeats


def test_shards_round_as_the_whole_weight(two_ranks):
    """Makes impossible: an engine whose weights depend on the number of ranks. The second one has no row of 1."""
    assert [json.loads((two_ranks / f"shards{i}.json").read_text()) for i in range(2)] == [[True, False]] * 2


def test_the_torch_engine_in_bfloat16_decodes_with_dithered_weights_and_gives_the_own_back():
    """Makes impossible: an engine that does not see a step; float32 weights that are lost after an exception."""
    policy = off_the_grid(Policy(loaded()[0]))
    model, rounded = policy.model, dict(whole_tensors(policy.model, torch.bfloat16))
    own = dict(model.named_parameters())
    with pytest.raises(RuntimeError), inference(model, "bfloat16"):
        for module, names in matrices_of(model):
            assert all(torch.equal(getattr(module, key), rounded[name]) for key, name in names.items())
            break
        raise RuntimeError
    assert all(p is own[name] and p.dtype == torch.float32 for name, p in model.named_parameters())
    with dithered_weights(model):
        assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.lm_head.weight.dtype == torch.float32
