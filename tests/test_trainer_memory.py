"""The memory that a run will need, estimated before it starts."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType
from helpers import loaded, run

from rollout import TorchEngine
from trainer.checks import resolve
from trainer.memory import activation_bytes, memory_estimate
from trainer.policy import Policy
from trainer.settings import Config


def test_a_run_that_cannot_fit_is_refused_with_the_setting_to_change(tmp_path, monkeypatch):
    """Makes impossible: an out-of-memory error after an hour that the first second could have foreseen."""
    monkeypatch.setattr("trainer.memory.memory_now", lambda device: (2**30, 2**20))
    with pytest.raises(
        ValueError, match=r"beside what it has, and 1 MiB are free. The largest part is the \w+ .*: .*lower"
    ):
        run(tmp_path, max_tokens_per_micro_batch=10**9, rollouts_per_prompt=4096)
    assert not (tmp_path / "run").exists()


def test_the_memory_estimate_by_parts():
    """Makes impossible: a part forgotten, counted twice, or not divided among processes that share it."""
    policy, engine = Policy(loaded()[0]), TorchEngine(loaded()[0])
    alone = SimpleNamespace(num_processes=1, device=torch.device("cpu"), distributed_type=DistributedType.NO,
                            autocast=nullcontext)  # fmt: skip
    sharded = SimpleNamespace(**alone.__dict__ | {"num_processes": 4, "distributed_type": DistributedType.FSDP})

    def estimate(accelerator=alone, **changes):
        c = Config(**changes)
        resolve(c)
        return memory_estimate(c, policy, engine, 9, accelerator)

    weights = 4 * sum(p.numel() for p in policy.parameters()) / 2**30
    plain, four = estimate(), estimate(sharded)
    assert plain.always["optimizer"] == pytest.approx(2 * weights) and plain.always["reference"] == weights
    assert estimate(kl_coef=0.0).always["reference"] == 0
    assert four.always["optimizer"] == pytest.approx(weights / 2) and four.updating["gradients"] == weights / 4
    assert four.always["rollouts"] == pytest.approx(plain.always["rollouts"] / 4)
    two, one = (estimate(max_tokens_per_micro_batch=x).updating["activations"] for x in (16384, 8192))
    assert one == pytest.approx(two / 2)
    assert estimate(gradient_checkpointing=True).updating["activations"] < plain.updating["activations"]
    stages = [sum(plain.rolling_out.values()), sum(plain.updating.values())]
    assert plain.peak == sum(plain.always.values()) + sum(stages)
    assert plain._replace(keeps=False).peak == sum(plain.always.values()) + max(stages)


def test_a_way_back_holds_a_layers_gradients_too():
    """Makes impossible: activations without the gradients of the layer that is on its way back.

    The embedded policy has two layers of 64: a token's gradients take half of what its two layers keep.
    """
    alone = SimpleNamespace(num_processes=1, device=torch.device("cpu"), distributed_type=DistributedType.NO,
                            autocast=nullcontext)  # fmt: skip
    policy, engine = Policy(loaded()[0]), TorchEngine(loaded()[0])
    kept = activation_bytes(policy, alone)
    for checkpointing, bytes in ((False, kept + kept / 2), (True, kept / 2 + 4 * 2 * 64 + kept / 2)):
        c = Config(max_tokens_per_micro_batch=1000, gradient_checkpointing=checkpointing)
        resolve(c)
        estimate = memory_estimate(c, policy, engine, 9, alone)
        assert estimate.updating["activations"] == pytest.approx(1000 * bytes / 2**30, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "processes", "local", "gib"),
    [("cpu", 1, None, 8), ("cpu", 4, None, 2), ("cpu", 4, "2", 4), ("cuda", 4, "4", 8)],
)
def test_processes_of_one_machine_share_what_it_has_left(monkeypatch, kind, processes, local, gib):
    """Makes impossible: processes that each count on all of a machine's memory; a GPU divided among its neighbours."""
    monkeypatch.setattr("trainer.memory.memory_now", lambda device: (0, 8 * 2**30))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    accelerator = SimpleNamespace(num_processes=processes, device=torch.device(kind), autocast=nullcontext,
                                  distributed_type=DistributedType.NO)  # fmt: skip
    resolve(c := Config())
    estimate = memory_estimate(c, Policy(loaded()[0]), TorchEngine(loaded()[0]), 9, accelerator)
    assert estimate.left == gib


def test_bfloat16_keeps_fewer_bytes(bf16):
    """Makes impossible: activations counted in another precision than they will have, and a run refused for it."""
    policy = Policy(loaded()[0])
    whole = activation_bytes(policy, SimpleNamespace(autocast=nullcontext))
    assert 0.4 * whole < activation_bytes(policy, bf16) < 0.8 * whole
