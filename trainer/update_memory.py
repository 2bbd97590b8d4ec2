"""The memory of an update, counted from the model's config: train.py's operations run on fake tensors.

A fake tensor has a shape and no memory. Every allocation is counted; each response is computed with its prompt.
A test compares the count with the memory of a real process, in float32. A CPU makes a
float32 copy of the output head, which a GPU does not need; the count has it. The optimizer takes one weight at a time
on a GPU too (trainer/start.py). card_memory.py works out from it what a run needs on a card.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import AutoModelForCausalLM, PretrainedConfig

from trainer.adapters import add_adapters, trainable
from trainer.autocast import dither_under_autocast
from trainer.offload import allocate_moments
from trainer.policy import Policy, recompute_layers

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
        prompt, length, prompt_of = torch.zeros(1, 1).long(), torch.ones(1).long(), torch.zeros(len(responses)).long()

        def total() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                hidden = policy.in_whole_rows(prompt, length, prompt_of, responses).flatten(0, 1)
                logp, _ = policy.log_probs_of(hidden, responses.flatten(), 1.0)
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
