"""The memory that a run will need, estimated before it starts."""

import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType
from helpers import ROOT, loaded, run

from rollout import TorchEngine
from trainer import memory
from trainer.checks import resolve
from trainer.memory import activation_bytes, memory_estimate, memory_now, peak_gib
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
                            autocast=nullcontext, mixed_precision="no")  # fmt: skip
    parallel = SimpleNamespace(**alone.__dict__ | {"num_processes": 4, "distributed_type": DistributedType.MULTI_CPU})
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
    assert (
        plain.always["gradient buckets"] == four.always["gradient buckets"] == plain.updating["gathered weights"] == 0
    )
    assert estimate(parallel).always["gradient buckets"] == estimate(parallel).updating["gradients"] == weights
    assert estimate(parallel).updating["gathered weights"] == 0
    layer = 4 * sum(p.numel() for p in policy.model.model.layers[0].parameters()) / 2**30
    outside = weights - 2 * layer  # the embedding, which is the head, and the last norm
    assert four.updating["gathered weights"] == pytest.approx(2 * outside + 4 * layer)
    assert estimate(sharded, kl_coef=0.0).updating["gathered weights"] == pytest.approx(2 * outside + 4 * layer)
    half = SimpleNamespace(**sharded.__dict__ | {"mixed_precision": "bf16"})
    assert estimate(half).updating["gathered weights"] == pytest.approx(2 * outside / 2 + 2.5 * layer)
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
                            autocast=nullcontext, mixed_precision="no")  # fmt: skip
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
    """Makes impossible: processes that each count on all of a machine's memory; a GPU divided among its neighbours.

    A step's padded rollouts lie on the GPU: tokens, and the log-probs of engine, old policy and reference.
    """
    monkeypatch.setattr("trainer.memory.memory_now", lambda device: (0, 8 * 2**30))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    accelerator = SimpleNamespace(num_processes=processes, device=torch.device(kind), autocast=nullcontext,
                                  distributed_type=DistributedType.NO, mixed_precision="no")  # fmt: skip
    resolve(c := Config())
    estimate = memory_estimate(c, Policy(loaded()[0]), TorchEngine(loaded()[0]), 9, accelerator)
    assert estimate.left == gib
    rows = c.prompts_per_step * c.rollouts_per_prompt / processes
    padded = rows * (8 * (9 + c.max_response_tokens) + 4 * 3 * c.max_response_tokens) / 2**30
    assert estimate.updating["padded rollouts"] == pytest.approx((kind == "cuda") * padded)
    assert (estimate.always["rollouts"] > 0) == (kind == "cpu")


def test_bfloat16_keeps_fewer_bytes(bf16):
    """Makes impossible: activations counted in another precision than they will have, and a run refused for it."""
    policy = Policy(loaded()[0])
    whole = activation_bytes(policy, SimpleNamespace(autocast=nullcontext))
    assert 0.4 * whole < activation_bytes(policy, bf16) < 0.8 * whole


def test_a_sleeping_engine_is_not_held(monkeypatch):
    """Mistake: torch's counter asked what a GPU holds. It has what vLLM gave back when it fell asleep.

    A GPU of 80 GiB as torch describes it: vLLM takes 40, torch counts them until the process ends.
    """
    gpu, seen = torch.device("cuda"), []
    in_use = iter([20, 60, 25, 30])
    monkeypatch.setattr(memory, "most_in_use", 0.0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: seen.append("emptied"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: ((80 - next(in_use)) * 2**30, 80 * 2**30))
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 60 * 2**30)
    assert memory_now(gpu) == (20 * 2**30, 60 * 2**30) and seen == ["emptied"]
    assert [peak_gib(gpu) for _ in range(3)] == [60, 60, 60] and seen == ["emptied"]  # awake, asleep, updating


@pytest.mark.parametrize(
    ("gpu", "own", "seen"),
    [
        (True, {}, "expandable_segments:True"),
        (False, {}, "None"),
        (True, {"PYTORCH_ALLOC_CONF": "backend:native"}, "backend:native"),
        (True, {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, "backend:native"),
    ],
)
def test_a_gpus_memory_grows_in_segments_unless_a_user_says_otherwise(tmp_path, gpu, own, seen):
    """Mistake: torch imported before the setting; a user's word under its older name overruled by ours."""
    told = "import os; print(os.environ.get('PYTORCH_ALLOC_CONF'), flush=True); os._exit(0)"
    there = f"import os; real = os.path.exists; os.path.exists = lambda x: {gpu} if 'nvidia' in str(x) else real(x)"
    (tmp_path / "torch.py").write_text(told)
    (tmp_path / "sitecustomize.py").write_text(there)  # Python runs it first
    names = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}
    environment = {k: v for k, v in os.environ.items() if k not in names} | {"PYTHONPATH": str(tmp_path)} | own
    command = [sys.executable, ROOT / "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == seen + "\n", done.stderr
