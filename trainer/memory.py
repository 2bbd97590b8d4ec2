"""What a run will hold in memory at its peak, estimated before it starts (train.py's start, docs/training.md).

A run that will not fit ends at once, with the largest part and the setting that makes it smaller.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor

import loss as L
from rollout import Engine
from trainer.policy import SHARE_FROM, Policy
from trainer.report import size
from trainer.settings import Config


class Memory(NamedTuple):
    """GiB of one process, by part; what it may hold at most beside them in each stage; what its machine has left."""

    always: dict[str, float]
    rolling_out: dict[str, float]
    updating: dict[str, float]
    left: float  # for what is not there yet, and for this process alone
    keeps: bool  # a CPU's allocator keeps what the one stage freed beside what the other needs

    @property
    def peak(self) -> float:
        stages = [sum(self.rolling_out.values()), sum(self.updating.values())]
        return sum(self.always.values()) + (sum(stages) if self.keeps else max(stages))

    def check(self) -> None:
        """Raises ValueError, with the setting to change, if the run will not fit."""
        if self.peak - self.always["held now"] <= self.left:
            return
        stage = max(self.rolling_out, self.updating, key=lambda stage: sum(stage.values()))
        parts = {name: gib for name, gib in (self.always | stage).items() if name in FIXES}
        largest = max(parts, key=lambda name: parts[name])
        needed = self.peak - self.always["held now"]
        raise ValueError(
            f"out of memory to come: the run needs about {size(needed * 2**30)} a process beside what it has, "
            f"and {size(self.left * 2**30)} are free. The largest part is the {largest} "
            f"({size(parts[largest] * 2**30)}): {FIXES[largest]}"
        )

    def __str__(self) -> str:
        def listed(parts: dict[str, float]) -> str:
            return ", ".join(f"{name} {size(gib * 2**30)}" for name, gib in parts.items() if gib >= 2**-10)

        stages = {"": self.always, "while rolling out: ": self.rolling_out, "while updating: ": self.updating}
        parts = "; ".join(stage + listed(x) for stage, x in stages.items() if listed(x))
        return f"about {size(self.peak * 2**30)} a process at the most ({parts})"


FEWER = "lower --rollouts_per_prompt, --prompts_per_step or --max_response_tokens, or start more processes"
FIXES = {
    "optimizer": "start more processes under FSDP2, which divides it",
    "reference": "--kl_coef 0 does without, FSDP2 divides it over processes",
    "gradients": "start more processes under FSDP2, which divides them",
    "gradient buckets": "start the processes under FSDP2, which has none",
    "gathered weights": "--mixed_precision bf16 halves them",
    "activations": "lower --max_tokens_per_micro_batch, or set --gradient_checkpointing",
    "logits": "lower --max_tokens_per_micro_batch",
    "rollouts": FEWER,
    "padded rollouts": FEWER,
    "decoding": "lower --engine_memory_gib, or for vLLM on a GPU --gpu_memory_utilization",
}


def memory_estimate(config: Config, policy: Policy, engine: Engine, prompt_tokens: int, accelerator) -> Memory:
    """What a run will hold at its peak. Made before anything but model and engine is there."""
    processes, device = accelerator.num_processes, accelerator.device
    sharded = processes if accelerator.distributed_type == DistributedType.FSDP else 1
    length, budget = config.max_response_tokens, config.max_tokens_per_micro_batch
    own = math.ceil(config.rollouts_per_prompt / processes)  # rollouts of a prompt that a process has
    rollouts = config.prompts_per_step * config.rollouts_per_prompt / processes
    groups = rollouts / own
    whole = prompt_tokens + length
    computed = length + prompt_tokens * min(1, groups * config.parts_of_a_prompt / rollouts)
    shared = policy.shares and whole >= SHARE_FROM[config.share_prefix] * computed
    tokens = min(budget, rollouts / config.updates_per_step * (computed if shared else whole))
    weights = 4 * sum(p.numel() for p in policy.parameters())
    settings = policy.model.config.get_text_config()
    layers, kept = settings.num_hidden_layers, activation_bytes(policy, accelerator)
    layer = kept / layers  # of one: so much again for its gradients, on the way back
    if config.gradient_checkpointing:  # the input of every layer, and the inside of one
        kept = layer + 4 * layers * settings.hidden_size
    logits = min(L.MAX_LOGITS, tokens * settings.vocab_size)
    gathered = gathered_bytes(policy, 4 if accelerator.mixed_precision == "no" else 2)
    decoding = engine.wave_bytes(math.ceil(groups), own, prompt_tokens, length)
    padded = 8 * whole + (8 + 4 * (config.kl_coef > 0)) * length  # a row of trainer/batch.py
    so_far, left = memory_now(device)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes)) if device.type == "cpu" else 1
    gib = 2**30
    return Memory(
        {"held now": so_far / gib, "optimizer": 2 * weights / sharded / gib,
         "reference": (config.kl_coef > 0) * weights / sharded / gib,
         "gradient buckets": (processes > sharded) * weights / gib,  # DDP's, which stay when gradients go
         "rollouts": (device.type == "cpu") * rollouts * (16 * prompt_tokens + 100 * length + 500) / gib},
        {"decoding": decoding / gib},
        {"gradients": weights / sharded / gib,
         "gathered weights": (sharded > 1) * gathered / gib,
         "activations": tokens * (kept + layer) / gib,
         "logits": 8 * logits / gib,
         "padded rollouts": (device.type != "cpu") * rollouts * padded / gib},
        (left / here + weights * (1 - 1 / sharded)) / gib,
        device.type == "cpu",
    )  # fmt: skip


def activation_bytes(policy: Policy, accelerator: Accelerator) -> float:
    """Bytes that a forward pass keeps for the backward pass, a token: counted on two short ones of this very model."""
    counted, device = [], next(policy.parameters()).device
    for width in (64, 128):
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(x: Tensor, kept=kept) -> Tensor:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
            return x

        lengths = torch.tensor([2], device=device), torch.tensor([width - 2], device=device)
        with accelerator.autocast(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = policy(torch.ones(1, width, dtype=torch.long, device=device), *lengths, 1.0)
        counted.append(sum(storage.nbytes() for storage in kept.values()))
        del out
    return (counted[1] - counted[0]) / 64


def gathered_bytes(policy: Policy, bytes: int) -> float:
    """What FSDP2 holds whole for a while, at so many bytes a weight in the forward pass.

    Of what stands outside the layers: the weights and their gradient. Of the layers: one at work, the next one, the
    gradient of the first, and the float32 copy of it that is added up over the processes.
    """
    layers = [m for m in policy.modules() if type(m).__name__ in (policy._no_split_modules or ())]
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    outside = sum(p.numel() for p in policy.parameters()) - sum(sizes)
    return outside * bytes * 2 + max(sizes, default=0) * (3 * bytes + 4)


def memory_now(device: torch.device) -> tuple[int, int]:
    """Bytes that this process holds and that its device, or a CPU's machine, has left. Unknown: (0, a huge number).

    Of a GPU: bytes in use, by whatever process.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what torch has freed and keeps is free for it, and taken by what the GPU says
        left, whole = torch.cuda.mem_get_info(device)
        return whole - left, left  # torch's own counters would have a sleeping vLLM's memory in them
    try:
        lines = (x for path in ("/proc/self/status", "/proc/meminfo") for x in Path(path).read_text().splitlines())
        facts = dict(line.split(":", 1) for line in lines)
        held, left = (int(facts[name].split()[0]) * 1024 for name in ("VmRSS", "MemAvailable"))
        group = Path("/sys/fs/cgroup")
        if (group / "memory.max").exists() and (limit := (group / "memory.max").read_text().strip()) != "max":
            used = int((group / "memory.current").read_text())
            cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
            left = min(left, int(limit) - used + int(cached))  # of files that were read, which the kernel gives back
        return held, left
    except (OSError, KeyError, ValueError):
        return 0, 2**60


most_in_use = 0.0  # GiB of a GPU, at the calls of `peak_gib`


def peak_gib(device: torch.device) -> float:
    """The most GiB that were held so far: by this process; of a GPU in use by whatever process, when this was called.

    On a GPU it has to be called where the most is taken: before the engine sleeps, and after the updates. What torch
    frees stays taken until vLLM sleeps or wakes, so a stage's end shows the most of it. torch's own counters would not
    do: memory that vLLM gave back when it fell asleep is still in them.
    """
    global most_in_use
    if device.type == "cuda":
        left, whole = torch.cuda.mem_get_info(device)
        most_in_use = max(most_in_use, (whole - left) / 2**30)
        return most_in_use
    try:
        import resource
    except ModuleNotFoundError:
        return 0.0  # Windows has no such counter
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30
