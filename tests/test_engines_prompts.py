"""engines/prompts.py: a prompt is read once for all its waves, and never again by weights that are gone."""

import pytest
import torch
from small_models import CONFIGS, PROMPTS, full_logprobs, make
from test_rollout import Watch

from engines.prompts import Prompts, apart
from rollout import TorchEngine

ROOM = 2**30


def keeping(model, room=ROOM, **settings) -> TorchEngine:
    engine = TorchEngine(model, **settings)
    engine.prompts.room = room
    return engine


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shared", [None, False])
def test_a_kept_prompt_is_as_one_that_is_read(name, shared):
    """Mistake: another prompt's keys, a padding that queries attend to, positions that count it; a prompt read twice.

    Waves of all prompts, of some of them in another order, and of some beside one that is new; on either path.
    """
    model = make(name)
    engine, fresh = keeping(model, shared_prefix=shared), TorchEngine(model, shared_prefix=shared)
    watch, sampling = Watch(model), {"max_new_tokens": 8, "stop_token_ids": [0]}
    new = [5, 4, 3, 2, 1, 2, 3]
    for wave, computed in ((PROMPTS, 4 * 9), (PROMPTS[::-2], 0), ([*PROMPTS[1:3], new], 7), ([new], 0)):
        seeds, before = [sum(prompt) for prompt in wave], watch.prompt_tokens
        own = engine.generate(wave, 20, seed=seeds, **sampling)
        assert watch.prompt_tokens - before == computed
        for ours, theirs in zip(own, fresh.generate(wave, 20, seed=seeds, **sampling), strict=True):
            assert ours.responses == theirs.responses
            for a, b in zip(ours.logprobs, theirs.logprobs, strict=True):
                assert a == pytest.approx(b, abs=1e-5)


@pytest.mark.parametrize("forget", ["sync", "sleep", "wake", "another model"])
def test_no_prompt_outlives_its_weights(forget):
    """Mistake: rollouts that continue a prompt as the weights of the step before read it.

    The weights change in place, as an optimizer changes them, or another model's come.
    """
    model, other = make(seed=0), make(seed=1)
    engine, watch = keeping(model), Watch(model)
    engine.generate(PROMPTS, 4, max_new_tokens=5, seed=1)
    if forget == "another model":
        engine.sync(other)
    else:
        model.load_state_dict(other.state_dict())
        engine.sync(model) if forget == "sync" else getattr(engine, forget)()
    assert engine.prompts.used == 0 and not engine.prompts.kept
    before = watch.prompt_tokens
    for group in engine.generate(PROMPTS, 4, max_new_tokens=5, seed=1):
        for response, logprobs in zip(group.responses, group.logprobs, strict=True):
            assert logprobs == pytest.approx(full_logprobs(other, group.prompt, response), abs=1e-5)
    assert watch.prompt_tokens > before


def test_nothing_is_kept_unless_asked():
    """Mistake: an engine whose user changes weights between two calls, without a word, and gets the old prompts."""
    model, other = make(seed=0), make(seed=1)
    engine = TorchEngine(model)
    engine.generate([[3, 4]], 4, max_new_tokens=5, seed=1)
    assert not engine.prompts.kept
    model.load_state_dict(other.state_dict())
    (group,) = engine.generate([[3, 4]], 4, max_new_tokens=5, seed=1)
    assert group.logprobs[0] == pytest.approx(full_logprobs(other, [3, 4], group.responses[0]), abs=1e-5)


def test_no_more_is_kept_than_there_is_room_for():
    """Mistake: a step's prompts beside a wave that was planned to fill the memory; a view that holds a whole wave."""
    model = make()
    engine = TorchEngine(model)
    sizes = [one.bytes for one in apart(*engine._prefill(PROMPTS))]
    for one in apart(*engine._prefill(PROMPTS)):
        assert all(x.untyped_storage().nbytes() == x.nbytes for x in (*one.keys, *one.values, one.logits))
    longest = max(map(len, PROMPTS))
    assert keeping(model).prompts.bytes_of(model, 1, longest) == max(sizes)
    room = sizes[0] + sizes[1]
    engine.prompts.room = room
    for _ in range(2):
        for group in engine.generate(PROMPTS, 3, max_new_tokens=4, stop_token_ids=[], seed=2):
            want = full_logprobs(model, group.prompt, group.responses[0])
            assert group.logprobs[0] == pytest.approx(want, abs=1e-5)
        assert 0 < engine.prompts.used == sum(one.bytes for one in engine.prompts.kept.values()) <= room
    whole = TorchEngine(model, memory_gib=2**-12)
    rows, _ = whole._wave_size(1000, longest, 5)
    whole.prompts.room = 2**17  # half of it
    assert whole._wave_size(1000, longest, 5)[0] == pytest.approx(rows / 2, abs=1)
    assert whole.wave_bytes(1000, 1000, longest, 5) == pytest.approx(2**18, rel=0.05)


def test_without_room_what_is_read_is_handed_on():
    """Mistake: another cache than the forward pass left, where nothing is kept: a fixed N must not change."""
    read = (object(), torch.ones(1), torch.ones(1))
    assert Prompts().read([[1]], lambda prompts: read) is read
