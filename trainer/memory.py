"""What a run will hold in memory at its peak, estimated before it starts (docs/training.md)."""

import math
from pathlib import Path

import torch
from accelerate.utils import DistributedType

import loss as L
from rollout import Engine
from trainer.policy import SHARE_FROM, Policy
from trainer.report import size
from trainer.settings import Config


def memory_estimate(config: Config, policy: Policy, engine: Engine, prompt_tokens: int, accelerator) -> dict:
    """GiB of one process at the peak, by part. Made before anything but model and engine is there."""
    processes, checkpointing = accelerator.num_processes, config.gradient_checkpointing
    sharded = processes if accelerator.distributed_type == DistributedType.FSDP else 1
    length, n = config.max_response_tokens, math.ceil(config.rollouts_per_prompt / processes)  # of a prompt, here
    rollouts = config.prompts_per_step * config.rollouts_per_prompt / processes
    computed = length + prompt_tokens * min(
        1, config.mini_batches_of_a_prompt / n
    )  # a rollout's tokens, with shared prompts
    shared = policy.shares and prompt_tokens + length >= SHARE_FROM[config.share_prefix] * computed
    update = rollouts / config.updates_per_step * (computed if shared else prompt_tokens + length)
    tokens = min(config.max_tokens_per_micro_batch, update)
    weights = 4 * sum(p.numel() for p in policy.parameters())
    settings, kept = policy.model.config.get_text_config(), activation_bytes(policy, accelerator)
    layer = kept / settings.num_hidden_layers  # of one layer: as much again for its gradients, in the backward pass
    kept = layer + 4 * settings.num_hidden_layers * settings.hidden_size if checkpointing else kept
    parts = {
        "held now": memory_now(accelerator.device)[0] * 2**30,
        "optimizer": 2 * weights / sharded, "reference": (config.kl_coef > 0) * weights / sharded,
        "gradients": weights / sharded + (processes > sharded) * weights,  # DDP's buckets hold them once more
        "activations": tokens * (kept + layer), "logits": 8 * min(L.MAX_LOGITS, tokens * settings.vocab_size),
        "rollouts": rollouts * (16 * prompt_tokens + 100 * length + 500),
        "decoding": engine.wave_bytes(math.ceil(rollouts / n), n, prompt_tokens, length),
    }  # fmt: skip
    if accelerator.device.type == "cuda":  # there the engine sleeps during updates, and rollouts are rows of a Batch
        updating = parts["gradients"] + parts["activations"] + parts["logits"]
        rows = rollouts * (8 * prompt_tokens + (16 + 4 * (config.kl_coef > 0)) * length)
        parts |= {"rollouts": rows, "decoding": max(0, parts["decoding"] - updating)}
    return {name: bytes / 2**30 for name, bytes in parts.items()}


def memory_line(parts: dict[str, float], free: float) -> str:
    """The estimate in words, with a warning where the GiB that are `free` do not suffice."""
    listed = ", ".join(f"{name} {size(gib * 2**30)}" for name, gib in parts.items() if gib >= 2**-10)
    peak = sum(parts.values())
    warning = f". WARNING: only {size(free * 2**30)} are free. docs/training.md says what makes each part smaller"
    return f"about {size(peak * 2**30)} a process at the most ({listed})" + warning * (peak - parts["held now"] > free)


def activation_bytes(policy: Policy, accelerator) -> float:
    """Bytes that a forward pass keeps for the backward pass, a token: counted on two short ones of this very model."""
    counted, device = [], next(policy.parameters()).device
    for width in (64, 128):
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(x: torch.Tensor, kept=kept) -> torch.Tensor:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
            return x

        tokens = torch.ones(1, width, dtype=torch.long, device=device)
        with accelerator.autocast(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = policy(tokens, tokens[0, :1] * 2, tokens[0, :1] * (width - 2), 1.0)
        counted.append(sum(storage.nbytes() for storage in kept.values()))
        del out
    return (counted[1] - counted[0]) / 64


def memory_now(device: torch.device) -> tuple[float, float]:
    """GiB that a GPU, or this process of a CPU, holds, and that are free there. Unknown: 0 and infinity."""
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        return (whole - free) / 2**30, free / 2**30
    try:
        lines = (x for path in ("/proc/self/status", "/proc/meminfo") for x in Path(path).read_text().splitlines())
        facts = dict(line.split(":", 1) for line in lines)
    except OSError:
        return 0.0, math.inf
    return int(facts["VmRSS"].split()[0]) / 2**20, int(facts["MemAvailable"].split()[0]) / 2**20
