"""tools/vllm_speed.py: both ways to repeat a call, with an engine of the test."""

import time
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import rollout
from rollout import Group, Request, Sampling
from tools import vllm_speed
from tools.vllm_speed import RepeatedCall, compare_ways, measure_vllm, unseeded
from trainer.process import Refusal


class Drawing:
    """An engine whose tokens come from torch's generator, unless a request has a seed."""

    def generate(self, requests, sampling):
        for i, request in enumerate(requests):
            seed = rollout.sampling_params(request.n, request.seed, sampling).seed
            drawing = torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
            tokens = torch.randint(9, (request.n, 4), generator=drawing).tolist()
            yield i, Group.of(list(request.prompt), tokens, [[0.0] * 4] * request.n, ["length"] * request.n)


def test_both_ways_are_timed_and_repeat(monkeypatch):
    """Makes impossible: a rate in rollouts, two ways that are one, a way that is said to repeat and does not."""
    monkeypatch.setattr(vllm_speed, "sampling_params", lambda n, seed, sampling: SimpleNamespace(seed=seed))
    clock, before = iter(range(100)), rollout.sampling_params
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    requests, sampling = [Request([1], 3, 5), Request([2], 3, 6)], Sampling(4)
    assert compare_ways(Drawing(), requests, sampling, 2) == [3, 24.0, 24.0, 1.0, "yes", "yes"]
    seeded, free = (RepeatedCall(Drawing(), requests, sampling, x) for x in (vllm_speed.sampling_params, unseeded))
    assert seeded() == free() == 24 and seeded.drawn != free.drawn
    with mock.patch.object(torch, "manual_seed"):
        seeded()
        free()
    assert seeded.repeats() == "yes" and free.repeats() == "no" and rollout.sampling_params is before


def test_a_folder_without_a_model_is_refused(tmp_path):
    """Makes impossible: a traceback of transformers, which takes the folder for a name of the hub."""
    with pytest.raises(Refusal, match=f"tools.random_model {tmp_path}"):
        measure_vllm(tmp_path, "tiny")
