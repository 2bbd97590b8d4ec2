"""engines/decoders.py: which of the two ways to decode a model gets. That both are right: test_rollout.py."""

import pytest
from small_models import CONFIGS, make

from engines import prefix
from engines.decoders import CopyDecoder, SharedDecoder
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
