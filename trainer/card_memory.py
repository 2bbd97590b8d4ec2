"""The memory of a run on each of its cards, for out_of_memory.py and `python -m tools.fit`.

update_memory.py counts an update in one process; formulas add DDP, FSDP2 and --offload (`needs_by_layout`). They were
not measured on GPUs; a test counts the start of FSDP2 on two processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from transformers import PretrainedConfig

from trainer.clock import GIB
from trainer.policy import MAX_LOGITS
from trainer.settings import Config
from trainer.update_memory import Count

RESERVE_GIB = 3.0  # CUDA context, NCCL, fragmentation: an allowance, not measured
# CUDA graphs, which vLLM keeps while it sleeps: an allowance, not measured here. vLLM's developers report 0.9 GiB in
# use on a GPU of 80 GB while a model of 2.3 GiB sleeps, with the CUDA context.
GRAPHS_GIB = 1.0
ONE, DDP, FSDP2 = "one card", "DDP", "FSDP2"  # layouts: one copy of the weights, one on each card, or shares


@dataclass
class Needs:
    """GiB of a run on each card: on one card, with DDP, or with FSDP2."""

    weights: float
    gradients: float
    moments: float  # that stay on the card: none with --offload
    reference: float  # the weights of its own that stay on the card: none with --offload
    start: float  # peak before the moments are allocated: weights, reference, and with FSDP2 a module that is whole
    activations: float  # per 1,000 tokens of a micro-batch
    checkpointed: float  # the same with --gradient_checkpointing
    engine: float  # vLLM's weights in bfloat16
    update: dict[tuple[int, bool], float]  # (tokens, checkpointing) -> peak of stages 6 and 7 beyond what stays
    score: dict[tuple[int, bool], float]  # the same of stage 6 alone; with FSDP2 there is no count of it
    keeps_gradients: bool = False  # DDP's buckets are the gradients, and stay

    def held(self) -> float:
        """What stays on the card during the rollouts."""
        return self.weights + self.moments + self.reference + self.keeps_gradients * self.gradients

    def peak(self, tokens: int, checkpointing: bool) -> float:
        """The most that the trainer takes, while it scores or updates."""
        return self.weights + self.moments + self.reference + self.update[tokens, checkpointing]

    def in_phase(self, phase: str, tokens: int, checkpointing: bool) -> float:
        """The most that the trainer takes in a phase of the clock, without the engine."""
        if phase == "start":
            return self.start
        if phase == "score":
            return self.weights + self.moments + self.reference + self.score[tokens, checkpointing]
        return self.peak(tokens, checkpointing) if phase == "update" else self.held()


def needs_by_layout(
    model_config: PretrainedConfig, counts: dict[tuple[int, bool], Count], offload: bool = False, ranks: int = 8
) -> dict[str, Needs]:
    """Return layout -> memory. counts: (tokens, checkpointing) -> count, of one --lora_rank. ranks: of FSDP2.

    With `offload` moments and reference are on the card for a while: the moments of one weight in the optimizer step,
    the reference in stage 6, where DDP keeps the memory of the gradients too.

    FSDP2 divides weights, gradients, moments and reference. It gathers the embedding, the head and one layer at a time,
    and their gradients, in float32; one of them is rounded to bfloat16, and two chunks of logits exist at the same
    time. At the start, the embedding and the head, or one layer, are whole beside the parts. FSDP2 needs counts of two
    sizes.
    """
    slope = {
        on: growth_per_token({t: x.update for (t, is_on), x in counts.items() if is_on == on}) for on in (False, True)
    }
    count = next(iter(counts.values()))
    text_config = model_config.get_text_config()
    head = text_config.vocab_size * text_config.hidden_size
    ends = head * (1 if text_config.tie_word_embeddings else 2)
    layer = (count.weights // 4 - ends) / text_config.num_hidden_layers
    found = {}
    for layout, parts in ((ONE, 1), (DDP, 1), (FSDP2, ranks)):  # parts that the weights are divided into
        if layout == FSDP2 and (count.trained < count.weights or offload):
            continue
        update = {key: float(x.update) for key, x in counts.items()}
        score = {key: float(x.score) for key, x in counts.items()}
        if layout == FSDP2:
            shared = count.weights / parts + 8 * (ends + layer) + 2 * max(head, layer) + 8 * MAX_LOGITS
            update = score = {key: shared + slope[key[1]] * key[0] for key in counts}
        if offload:
            buckets = count.trained if layout == DDP else 0
            score = {key: x.score + x.trained + buckets for key, x in counts.items()}
            update = {key: max(x.backward, x.optimizer_step + 2 * x.largest, score[key]) for key, x in counts.items()}
        whole = 4 * max(ends, layer) if layout == FSDP2 else 0
        stays = 0 if offload else 1 / parts
        found[layout] = Needs(
            weights=count.weights / parts / GIB, gradients=count.trained / parts / GIB,
            moments=stays * count.moments / GIB, reference=stays * count.trained / GIB,
            start=((count.weights + count.trained) / parts + whole) / GIB,
            activations=1000 * slope[False] / GIB, checkpointed=1000 * slope[True] / GIB,
            engine=(count.weights - count.trained if count.trained < count.weights else count.weights / 2) / GIB,
            update={key: x / GIB for key, x in update.items()}, score={key: x / GIB for key, x in score.items()},
            keeps_gradients=layout == DDP,
        )  # fmt: skip
    return found


def growth_per_token(peaks: dict[int, int]) -> float:
    """The growth of a peak with the tokens of a micro-batch, from its two largest sizes; nan without two of them."""
    sizes = sorted(peaks, reverse=True)
    return (peaks[sizes[0]] - peaks[sizes[1]]) / (sizes[0] - sizes[1]) if len(sizes) > 1 else math.nan


def needs_of_run(
    config: Config, model_config: PretrainedConfig, layout: str, ranks: int, count: Callable[..., Count]
) -> Needs:
    """The memory of a run on one of its cards. count: of (tokens, checkpointing, lora_rank)."""
    tokens, on = config.max_tokens_per_micro_batch, config.gradient_checkpointing
    sizes = (tokens, tokens // 2) if layout == FSDP2 else (tokens,)
    counts = {(size, on): count(size, on, config.lora_rank) for size in sizes}
    needs = needs_by_layout(model_config, counts, config.offload, ranks)[layout]
    if config.kl_coef:
        return needs
    return replace(needs, reference=0.0, start=needs.start - needs.gradients)  # there is no reference policy


def layout_of(sharded: bool, processes: int) -> str:
    """The layout of a run with so many processes: ONE, DDP or FSDP2."""
    return FSDP2 if sharded else DDP if processes > 1 else ONE


def room_gib(card_gib: float) -> float:
    """What a card has for trainer and engine."""
    return card_gib - RESERVE_GIB - GRAPHS_GIB


def largest_share(needs: Needs, card_gib: float) -> float:
    """The largest --gpu_memory_utilization that leaves room for what stays during the rollouts, in steps of 0.05."""
    return int(20 * (room_gib(card_gib) - needs.held()) / card_gib) / 20
