"""engines/vllm.py, what needs no vLLM. With the real one: test_engines_vllm.py."""

import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from small_models import make

from engines.protocol import EngineError, Group
from engines.vllm import config_folder, keep_threads
from engines.vllm_requests import Requests, group_of, seeded


def test_a_seed_sets_every_generator_and_gives_them_back():
    """Makes impossible: a run with vLLM that does not repeat itself, as its seeds come from any of the three."""

    def draw():
        return random.random(), numpy.random.rand(), torch.rand(1).item()

    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    with seeded(7):
        first = draw()
    after = draw()
    with seeded(7):
        assert draw() == first
    with seeded(2**62 + 8):
        assert all(a != b for a, b in zip(draw(), first, strict=True))
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    assert draw() == after


def test_threads_and_their_setter_come_back(monkeypatch):
    """Makes impossible: a trainer on one thread because an engine took the others, and the way back, away."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    setter(2)
    with pytest.raises(RuntimeError), keep_threads():
        setter(1)
        monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
        raise RuntimeError
    assert torch.set_num_threads is setter and torch.get_num_threads() == 2
    setter(threads)


def test_only_whole_rollouts_of_vllm_are_taken():
    """Makes impossible: an aborted rollout, a group that lost some, or log-probs of other tokens, in a Group."""

    def answer(reason="stop", logprobs=(-1.0, -2.0), count=2):
        output = SimpleNamespace(token_ids=(5, 0), finish_reason=reason, logprobs=SimpleNamespace(logprobs=logprobs))
        return SimpleNamespace(outputs=[output] * count)

    group = Group([3], [[5, 0]] * 2, [[-1.0, -2.0]] * 2, ["stop"] * 2)
    assert group_of([3], answer(), 2) == group
    assert group_of([3], answer(count=1), 2) == group, "greedy: one stands for all"
    for broken in (answer("abort"), answer(None), answer(logprobs=(-1.0,)), answer(count=3)):
        with pytest.raises(EngineError):
            group_of([3], broken, 2)


def test_the_config_has_one_folder(tmp_path):
    """Makes impossible: compiling the same model again at every start; one folder for two models."""
    first, again, other = (config_folder(make(x).config, str(tmp_path)) for x in (
        "qwen2, grouped heads, tied", "qwen2, grouped heads, tied", "llama, one key head"))  # fmt: skip
    assert first == again != other and {str(x) for x in (tmp_path / "brorl").iterdir()} == {first, other}


def test_every_engine_step_has_noise_of_its_own():
    """Makes impossible: a sampler of vLLM that ignores a rollout's seed and draws the same noise at every step."""
    scheduler = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=1))
    engine = SimpleNamespace(vllm_config=scheduler, step=lambda: torch.rand(1).item())

    def drawn(seed):
        requests = Requests(SimpleNamespace(llm_engine=engine), {})
        requests.seed = seed
        return [requests._step() for _ in range(3)]

    assert drawn(5) == drawn(5) and len({*drawn(5), *drawn(99)}) == 6
