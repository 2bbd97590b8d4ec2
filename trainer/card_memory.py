"""The memory that a run needs on each of its cards, for out_of_memory.py and `python -m tools.fit`.

`count_update` counts an update in one process from the model's config: train.py's operations run on fake tensors, which
have a shape and no memory. Every allocation is counted; each response is computed with its prompt. A test compares the
count with the memory of a real process, in float32. A CPU makes a float32 copy of the output head, which a GPU does not
need; the count has it. The optimizer takes one weight at a time on a GPU too (trainer/start.py).

`needs_by_layout` adds DDP, FSDP2 and --offload by formulas. They were not measured on GPUs; a test counts the start of
FSDP2 on two processes.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import AutoModelForCausalLM, PretrainedConfig

from trainer.adapters import add_adapters, trainable
from trainer.autocast import dither_under_autocast
from trainer.clock import GIB
from trainer.offload import allocate_moments
from trainer.policy import MAX_LOGITS, Policy, chunked_logprobs, recompute_layers
from trainer.settings import Config

ROW = 1024  # tokens of a row in the count: memory is proportional to the tokens, however long a row is


class Allocations(TorchDispatchMode):
    """Counts the bytes of all storages that exist, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.add, result)
        return result

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address not in self.seen:
            self.seen.add(address)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self.remove, address, size)

    def remove(self, address: int, size: int) -> None:
        self.seen.discard(address)
        self.live -= size


@dataclass
class Count:
    """Bytes in one process. The gradients take as much as the trained weights, and so does the reference."""

    weights: int
    trained: int  # of the weights: all of them, or the adapters of --lora_rank
    largest: int  # the largest trained weight
    moments: int
    score: int  # peak of stage 6 beyond weights, moments and reference
    backward: int  # peak of an update beyond these three: gradients, activations, rounded weights
    optimizer_step: int  # its peak beyond them: gradients, temporary tensors of one weight

    @property
    def update(self) -> int:
        return max(self.backward, self.optimizer_step)


def count_update(
    model_config: PretrainedConfig, tokens: int, bfloat16: bool = True, checkpointing: bool = False, lora_rank: int = 0
) -> Count:
    """Count a step's stages 6 and 7 with micro-batches of `tokens` tokens, two for each update."""
    allocations = Allocations()
    # transformers searches the position ids for packed rows. It cannot read fake ones, and these rows are not packed.
    not_packed = mock.patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None)
    # `dithered` works on pieces of 4 MiB, thousands for a large model, and leaves one tensor of this size.
    in_one_piece = mock.patch("engines.rounding.round_part", lambda weight, name, first: weight.bfloat16())
    with FakeTensorMode(), not_packed, in_one_piece, allocations:
        dtype = torch.bfloat16 if lora_rank and bfloat16 else torch.float32
        model = AutoModelForCausalLM.from_config(model_config, dtype=dtype)
        if lora_rank:
            add_adapters(model, lora_rank, 1.0, dtype)
        weights = sum(p.nbytes for p in model.parameters())
        sizes = [p.nbytes for p in trainable(model)]
        policy = Policy(model).train(checkpointing)
        if bfloat16:
            dither_under_autocast(model)
        if checkpointing:
            recompute_layers(model)
        before = allocations.live
        optimizer = torch.optim.AdamW(trainable(policy), foreach=False)
        allocate_moments(optimizer)
        static = allocations.peak = allocations.live
        row = min(ROW, tokens)
        responses = torch.zeros(tokens // row, row - 1, dtype=torch.long)
        prompt, length, of = torch.zeros(1, 1).long(), torch.ones(1).long(), torch.zeros(len(responses)).long()

        def total() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                hidden = policy.in_whole_rows(prompt, length, of, responses).flatten(0, 1)
                head = model.get_output_embeddings()
                bias, name = getattr(head, "bias", None), getattr(head, "dithered_names", {}).get("weight")
                logp, _ = chunked_logprobs(hidden, head.weight, responses.flatten(), 1.0, bias, name=name)
                return logp.sum()

        with torch.no_grad():
            total()
        score, allocations.peak = allocations.peak - static, allocations.live
        total().backward()
        allocations.peak = allocations.live
        total().backward()  # a later micro-batch of the update: all gradients exist beside its activations
        backward, allocations.peak = allocations.peak - static, allocations.live
        optimizer.step()
    return Count(weights, sum(sizes), max(sizes), static - before, score, backward, allocations.peak - static)


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
    one = next(iter(counts.values()))
    text = model_config.get_text_config()
    head = text.vocab_size * text.hidden_size
    ends = head * (1 if text.tie_word_embeddings else 2)
    layer = (one.weights // 4 - ends) / text.num_hidden_layers
    found = {}
    for layout, shares in ((ONE, 1), (DDP, 1), (FSDP2, ranks)):  # ranks that share the weights
        if layout == FSDP2 and (one.trained < one.weights or offload):
            continue
        update = {key: float(x.update) for key, x in counts.items()}
        score = {key: float(x.score) for key, x in counts.items()}
        if layout == FSDP2:
            shared = one.weights / shares + 8 * (ends + layer) + 2 * max(head, layer) + 8 * MAX_LOGITS
            update = score = {key: shared + slope[key[1]] * key[0] for key in counts}
        if offload:
            kept = one.trained if layout == DDP else 0
            score = {key: x.score + x.trained + kept for key, x in counts.items()}
            update = {key: max(x.backward, x.optimizer_step + 2 * x.largest, score[key]) for key, x in counts.items()}
        whole = 4 * max(ends, layer) if layout == FSDP2 else 0
        stays = 0 if offload else 1 / shares
        found[layout] = Needs(
            weights=one.weights / shares / GIB, gradients=one.trained / shares / GIB,
            moments=stays * one.moments / GIB, reference=stays * one.trained / GIB,
            start=((one.weights + one.trained) / shares + whole) / GIB,
            activations=1000 * slope[False] / GIB, checkpointed=1000 * slope[True] / GIB,
            engine=(one.weights - one.trained if one.trained < one.weights else one.weights / 2) / GIB,
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
