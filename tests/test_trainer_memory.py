"""The memory that a run will need, estimated before it starts."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType
from helpers import loaded, run

from rollout import TorchEngine
from trainer import progress
from trainer.checks import resolve
from trainer.memory import memory_estimate, memory_line, memory_now
from trainer.policy import Policy
from trainer.progress import peak_gib
from trainer.settings import Config


def test_a_run_that_may_not_fit_is_warned_and_goes_on(tmp_path, monkeypatch, capsys):
    """Mistake: an estimate that ends a run which would have fitted, or that says nothing of one which will not fit."""
    monkeypatch.setattr("trainer.start.memory_now", lambda device: (1.0, 2**-10))
    run(tmp_path, max_steps=1, eval_every=0)
    said = " ".join(capsys.readouterr().out.split())
    assert "WARNING: only 1 MiB are free" in said and "docs/training.md" in said
    assert "WARNING" not in memory_line({"held now": 9.0, "optimizer": 1.0}, 2.0)


def test_the_memory_estimate_by_parts(monkeypatch):
    """Mistake: a part forgotten, counted twice, or not divided among processes that share it."""
    policy, engine = Policy(loaded()[0]), TorchEngine(loaded()[0])
    alone = SimpleNamespace(num_processes=1, device=torch.device("cpu"), distributed_type=DistributedType.NO,
                            autocast=nullcontext)  # fmt: skip
    parallel = SimpleNamespace(**alone.__dict__ | {"num_processes": 4, "distributed_type": DistributedType.MULTI_CPU})
    sharded = SimpleNamespace(**alone.__dict__ | {"num_processes": 4, "distributed_type": DistributedType.FSDP})

    def estimate(accelerator=alone, **changes):
        c = Config(**changes)
        resolve(c)
        return memory_estimate(c, policy, engine, 9, accelerator)

    weights = 4 * sum(p.numel() for p in policy.parameters()) / 2**30
    plain, four = estimate(), estimate(sharded)
    assert plain["optimizer"] == pytest.approx(2 * weights) and plain["reference"] == plain["gradients"] == weights
    assert estimate(kl_coef=0.0)["reference"] == 0
    assert four["optimizer"] == pytest.approx(weights / 2) and four["gradients"] == weights / 4
    assert estimate(parallel)["gradients"] == 2 * weights
    assert four["rollouts"] == pytest.approx(plain["rollouts"] / 4)
    monkeypatch.setattr("trainer.memory.memory_now", lambda device: (0.0, 1.0))
    gpu = SimpleNamespace(**alone.__dict__ | {"device": torch.device("cuda")})
    assert estimate(gpu, kl_coef=0.0)["rollouts"] < estimate(gpu)["rollouts"] < plain["rollouts"]  # rows of a Batch
    two, one = (estimate(max_tokens_per_micro_batch=x)["activations"] for x in (16384, 8192))
    assert one == pytest.approx(two / 2)
    assert estimate(gradient_checkpointing=True)["activations"] < plain["activations"]


def test_a_sleeping_engine_is_not_held(monkeypatch):
    """Mistake: torch's counter asked what a GPU holds. It has what vLLM gave back when it fell asleep.

    A GPU of 80 GiB as torch describes it: vLLM takes 40, torch counts them until the process ends.
    """
    gpu = torch.device("cuda")
    in_use = iter([20, 60, 25, 30])
    monkeypatch.setattr(progress, "most_in_use", 0.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ((80 - next(in_use)) * 2**30, 80 * 2**30))
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 60 * 2**30)
    assert memory_now(gpu) == (20, 60)
    assert [peak_gib(gpu) for _ in range(3)] == [60, 60, 60]  # awake, asleep, updating
