"""Which flags help after an out-of-memory error, by the count of update_memory.py (docs/memory.md)."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from transformers import AutoConfig

from trainer.card_memory import FSDP2, Needs, largest_share, layout_of, needs_of_run
from trainer.clock import GIB, Clock, peak
from trainer.launch import fsdp_requested
from trainer.settings import Config
from trainer.update_memory import Count, count_update

LORA_RANK = 16  # the --lora_rank of docs/memory.md
# Messages of torch (GPU, CPU) and of vLLM, whose kinds of errors are also those of other mistakes
LACKS = re.compile(r"out of memory|can't allocate memory|less than desired GPU memory utilization")
LACKS_CACHE = re.compile(r"No available memory for the cache|KV\s+cache is needed")  # vLLM's share is too small


@contextmanager
def advising(config: Config, accelerator: Accelerator, clock: Clock | None = None) -> Iterator[None]:
    """Add a note to an out-of-memory error: the phase, the peak before it, and the flags that save most there.

    clock: of the run, which knows the phase. Without it the run is starting.
    """
    try:
        yield
    except Exception as failure:
        lacks_cache = bool(LACKS_CACHE.search(str(failure)))
        said = isinstance(failure, RuntimeError | ValueError) and (lacks_cache or LACKS.search(str(failure)))
        if said or isinstance(failure, torch.OutOfMemoryError | MemoryError):
            print("out of memory: counting which flags help may take a minute ...", file=sys.stderr, flush=True)
            phase, where = (clock.phase, f"{clock.phase} of step {clock.step}") if clock else ("start", "start")
            failure.add_note(advice(config, accelerator, phase, where, lacks_cache))
        raise


def advice(config: Config, accelerator: Accelerator, phase: str, where: str, lacks_cache: bool) -> str:
    """Return the text of the note. lacks_cache: vLLM's share is too small for its weights or for one response."""
    device = accelerator.device
    card_gib = torch.cuda.get_device_properties(device).total_memory / GIB if device.type == "cuda" else 0.0
    taken = ", ".join(f"{x:.2f} GiB {name}" for name, x in peak(device).items())
    of_card = f", of {card_gib:.1f}" if card_gib else ""
    lines = [f"Out of memory in phase {where}. The peak before it: {taken}{of_card}"]
    if lacks_cache and not card_gib:
        lines.append("vLLM's cache is too small: raise the variable VLLM_CPU_KVCACHE_SPACE (in GiB; 2 by default)")
        return "\n".join(lines)
    try:
        found = savings(config, accelerator, phase, card_gib, lacks_cache)[:3]
    except Exception as unknown:  # the count may not know this model, and the first error must be seen
        lines.append(f"docs/memory.md has the flags that save memory. They cannot be counted here: {unknown!r:.200}")
        return "\n".join(lines)
    if not found:
        lines.append("By our count, no flag of docs/memory.md saves memory here")
    elif lacks_cache:
        lines.append("vLLM's share is too small. By our count, these flags give it more or make room for it:")
    else:
        lines.append("By our count, these flags save most here (docs/memory.md):")
    return "\n".join([*lines, *(f"  {flag:40}{gib:8.2f} GiB" for flag, gib in found)])


def savings(
    config: Config, accelerator: Accelerator, phase: str, card_gib: float, lacks_cache: bool
) -> list[tuple[str, float]]:
    """Return (flag, GiB that it saves in this phase), the largest saving first, of the flags that are not on.

    card_gib: 0 on a CPU. With `lacks_cache` a larger share of vLLM comes first, if there is room for it.
    """
    model_config, ranks = AutoConfig.from_pretrained(config.model), accelerator.num_processes
    layout = layout_of(fsdp_requested(), ranks)
    in_trainer = phase in ("score", "update")  # vLLM sleeps

    @functools.cache
    def count(tokens: int, checkpointing: bool, lora_rank: int) -> Count:
        return count_update(model_config, tokens, config.precision == "bfloat16", checkpointing, lora_rank)

    def needed(changed: Config) -> float:
        needs = needs_of_run(changed, model_config, layout, ranks, count)
        taken = needs.in_phase(phase, changed.max_tokens_per_micro_batch, changed.gradient_checkpointing)
        return taken if in_trainer else max(taken, needs.held() + share_gib(changed, needs, card_gib))

    changes: dict[str, dict[str, Any]] = {}
    if layout != FSDP2 and not config.lora_rank:
        changes[f"--lora_rank {LORA_RANK} (in a new run)"] = {"lora_rank": LORA_RANK, "offload": False}
        if card_gib and not config.offload:
            changes["--offload"] = {"offload": True}
    half = config.max_tokens_per_micro_batch // 2
    if in_trainer and half:
        changes[f"--max_tokens_per_micro_batch {half}"] = {"max_tokens_per_micro_batch": half}
    if phase == "update" and not config.gradient_checkpointing:
        changes["--gradient_checkpointing"] = {"gradient_checkpointing": True}
    found, share = [], config.gpu_memory_utilization
    if card_gib and not in_trainer:
        fits = largest_share(needs_of_run(config, model_config, layout, ranks, count), card_gib)
        less = round(min(fits, share - 0.1), 2)
        if lacks_cache and fits > share:
            found.append((f"--gpu_memory_utilization {fits:g}", (fits - share) * card_gib))
        elif not lacks_cache and less > 0:
            changes[f"--gpu_memory_utilization {less:g}"] = {"gpu_memory_utilization": less}
    before = needed(config)
    saved = [(flag, before - needed(replace(config, **change))) for flag, change in changes.items()]
    return found + sorted([x for x in saved if x[1] > 0], key=lambda x: -x[1])


def share_gib(config: Config, needs: Needs, card_gib: float) -> float:
    """Return the engine's share of a GPU: of the card with vLLM, else of what is free. On a CPU: 0."""
    free = max(0.0, card_gib - needs.held())
    return config.gpu_memory_utilization * (card_gib if config.engine == "vllm" else free)
