"""engines/decoders.py: which of the two ways to decode a model gets. That both are right: test_rollout.py."""

import pytest
from small_models import CONFIGS, PROMPTS, make

from engines import prefix
from engines.decoders import CopyDecoder, ResponseLayer, SharedDecoder, row_bytes
from rollout import TorchEngine


def test_which_models_share_their_prefix():
    """Makes impossible: the fast path given up unnoticed where it works, or taken where it does not."""
    shared = {name: TorchEngine(make(name)).decoder is SharedDecoder for name in CONFIGS}
    assert shared == {name: name != "bloom, ALiBi" for name in CONFIGS}
    with pytest.raises(ValueError, match="cannot share its prefix"):
        TorchEngine(make("bloom, ALiBi"), shared_prefix=True)


def test_the_self_check_sees_a_wrong_attention(monkeypatch):
    """Makes impossible: a shared-prefix path that is wrong on some model and used all the same."""
    right = prefix.shared_prefix_attention

    def wrong(*args, **kwargs):
        out, weights = right(*args, **kwargs)
        return out * 1.05, weights

    monkeypatch.setitem(prefix.ALL_ATTENTION_FUNCTIONS._global_mapping, "shared_prefix", wrong)
    engine = TorchEngine(make())
    assert engine.decoder is CopyDecoder and engine.why_copied


def test_bytes_of_a_row_by_hand():
    """Makes impossible: a cache without its values or layers, a prompt counted N times or not at all.

    Two layers, four heads, two key heads of width 8, hidden 32, 13 tokens, float32; prompts of 10, responses of 5.
    """
    token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, key heads, width, bytes
    prompt = 10 * (token + 12 * 32 * 4)
    row = 5 * (token * 1.5 + 12) + 3 * 4 * 15 * 4 + 6 * 13 * 4
    assert row_bytes(make(), False, 512, 10, 5) == pytest.approx(row + prompt / 512)
    assert row_bytes(make(), True, 512, 10, 5) == pytest.approx(row + prompt / 512 + 10 * token)


def test_rows_of_a_wave():
    """Makes impossible: no row at all where memory is short, or waves beyond the CPU's caches where it is not."""
    engine = TorchEngine(make(), memory_gib=2**-30)
    rows, row = engine._wave_size(40, 9, 5)
    assert rows == 1
    engine.memory_gib = 10.5 * row / 2**30
    assert engine._wave_size(40, 9, 5) == (10, row)
    engine.memory_gib = 64
    assert engine._wave_size(40, 9, 5) == (engine.order_rows, row)


@pytest.mark.parametrize("n", [3, 40])
def test_a_wave_holds_no_more_than_it_says(n, monkeypatch):
    """Makes impossible: response caches alone that are larger than the whole estimate, while lines part or after it."""
    held: dict[ResponseLayer, int] = {}
    most, select = [0], ResponseLayer.batch_select_indices

    def listen(self, indices):
        before = [x for x in (self.keys, self.values) if x is not None]
        select(self, indices)
        after = [x for x in (self.keys, self.values) if x is not None]
        held[self] = sum(x.untyped_storage().nbytes() for x in after)
        old = {x.data_ptr(): x.untyped_storage().nbytes() for x in before}
        most.append(sum(held.values()) + sum(old.values()) * (not {x.data_ptr() for x in after} & old.keys()))

    engine = TorchEngine(make())
    monkeypatch.setattr(ResponseLayer, "batch_select_indices", listen)
    engine.generate(PROMPTS, n, max_new_tokens=12, stop_token_ids=[])
    said = engine.wave_bytes(len(PROMPTS), n, max(map(len, PROMPTS)), 12)
    assert len(held) == 2 and said / 4 < max(most) < said
