"""engines/prefix.py: attention to one shared prompt, against attention over prompt and response in one piece."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache

from engines.prefix import Prefix, shared_prefix_attention


def layer(number=0):
    module = torch.nn.Module()
    module.layer_idx = number
    return module


def test_every_row_attends_to_its_own_prompt():
    """Makes impossible: a row under another group's prompt, after groups of unequal size and after rows have left.

    Two query heads on each of two key heads; three prompts of 5, 2 and 4 tokens, padded on the left.
    """
    torch.manual_seed(0)
    lengths, group = torch.tensor([5, 2, 4]), torch.tensor([0, 0, 0, 1, 2, 2])
    keys, values = torch.randn(2, 3, 2, 5, 8)
    cache = DynamicCache()
    cache.update(keys, values, 0)
    prefix = Prefix.of(cache, lengths)
    prefix.follow(group)
    q, k, v = torch.randn(6, 4, 1, 8), torch.randn(6, 2, 3, 8), torch.randn(6, 2, 3, 8)
    for rows in (torch.arange(6), torch.tensor([0, 2, 4, 5]), torch.tensor([2, 3])):  # of those that are left
        if len(rows) < len(group):
            prefix.follow(rows)
            q, k, v, group = q[rows], k[rows], v[rows], group[rows]
        got, _ = shared_prefix_attention(layer(), q, k, v, None, shared_prefix=prefix)
        for r, g in enumerate(group.tolist()):
            columns = slice(5 - lengths[g], None)
            whole = (torch.cat([x[g, :, columns], y[r]], 1)[None] for x, y in ((keys, k), (values, v)))
            want = scaled_dot_product_attention(q[r : r + 1], *whole, enable_gqa=True)
            torch.testing.assert_close(got[r], want[0].transpose(0, 1))


@pytest.mark.parametrize("name", ["s_aux", "position_bias"])
def test_attention_refuses_what_it_does_not_compute(name):
    """Makes impossible: attention sinks or position biases silently left out of the shared path."""
    x = torch.zeros(1, 1, 1, 4)
    prefix = Prefix([x], [x], None, torch.tensor([0]), None, 1)
    module = layer()
    shared_prefix_attention(module, x, x, x, None, shared_prefix=prefix)
    with pytest.raises(ValueError, match=name):
        shared_prefix_attention(module, x, x, x, None, shared_prefix=prefix, **{name: x})
    with pytest.raises(ValueError, match="keyword arguments"):
        shared_prefix_attention(module, x, x, x, None)


def test_attention_scales_by_the_head_width_by_default():
    """Makes impossible: no scale at all for a model that leaves it to its attention."""
    torch.manual_seed(0)
    q, k, v, pk, pv = (torch.randn(1, 1, n, 4) for n in (1, 2, 2, 3, 3))
    prefix = Prefix([pk], [pv], None, torch.tensor([0]), None, 1)
    module = layer()
    for scaling in (None, 0.3):
        got, _ = shared_prefix_attention(module, q, k, v, None, scaling=scaling, shared_prefix=prefix)
        keys, values = torch.cat([pk, k], 2), torch.cat([pv, v], 2)
        want = scaled_dot_product_attention(q, keys, values, scale=scaling)
        torch.testing.assert_close(got, want.transpose(1, 2))
