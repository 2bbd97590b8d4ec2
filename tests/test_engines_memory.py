"""engines/memory.py: sizes by hand, and the estimate of a row against the memory of a real decoder."""

import pytest
from small_models import PROMPTS, make

from engines.memory import bytes_per_row, cache_bytes_per_token
from engines.prefix import PrefixDecoder
from rollout import Request, Sampling, TorchEngine


def test_bytes_by_hand():
    """Makes impossible: a cache without its values or layers, a prompt counted N times or not at all.

    Two layers, four heads, two key heads of width 8, hidden 32, 13 tokens, float32; prompts of 10, responses of 5.
    """
    token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, key heads, width, bytes
    assert cache_bytes_per_token(make(), 4) == token and cache_bytes_per_token(make(), 2) == token / 2
    prompt = 10 * (token + 12 * 32 * 4)
    row = 5 * (token * 1.5 + 12) + 3 * 4 * 15 * 4 + 6 * 13 * 4
    assert bytes_per_row(make(), 512, 10, 5) == pytest.approx(row + prompt / 512)
    assert bytes_per_row(make(), 1, 10, 5) == pytest.approx(row + prompt)


@pytest.mark.parametrize("n", [3, 40])
def test_a_batch_holds_no_more_than_estimated(n, monkeypatch):
    """Makes impossible: response caches alone that are larger than the estimate for all, during a split or after it."""
    most, select = [0], PrefixDecoder._select

    def size(tensors):
        return sum({x.data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values())

    def watched(self, parent):
        before = [*self.keys.values(), *self.values.values()]
        layer = size(list(self.keys.values())[:1])  # a split copies one layer of keys or values at a time
        select(self, parent)
        after = [*self.keys.values(), *self.values.values()]
        most.append(max(size(before), size(after)) + layer)

    model = make()
    engine = TorchEngine(model)
    monkeypatch.setattr(PrefixDecoder, "_select", watched)
    list(engine.generate([Request(p, n, i) for i, p in enumerate(PROMPTS)], Sampling(12)))
    estimated = len(PROMPTS) * n * bytes_per_row(model, n, max(map(len, PROMPTS)), 12)
    assert estimated / 4 < max(most) < estimated
