"""What rollout.py's TorchEngine keeps of the prompts that it read, for their next wave (trainer/waves.py).

A prompt that is rolled out in waves is decoded several times in a step, by the same weights: its keys, values and last
logits are the same every time. They are kept until `forget`, which the engine calls whenever the weights may change.
Shapes: the head of engines/prefix.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from engines.memory import token_bytes

Read = tuple[DynamicCache, Tensor, Tensor]  # a wave's cache, lengths (G,), last logits (G, V): TorchEngine._prefill's


class Kept(NamedTuple):
    """One prompt's."""

    keys: list[Tensor]  # [Hk, L, D] a layer, without padding
    values: list[Tensor]  # the same
    logits: Tensor  # (V,)

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (*self.keys, *self.values, self.logits))


class Prompts:
    """The prompts that were read since `forget`, as many as fit.

    room: bytes that they may take; 0: none is kept. With several processes it stays 0: which of them decodes a prompt's
    next wave is chance, and a kept prompt's log-probs differ by a rounding from one that is read among others.
    """

    def __init__(self, room: int = 0):
        self.room = room
        self.forget()

    def forget(self) -> None:
        """The weights may change now."""
        self.kept: dict[tuple[int, ...], Kept] = {}
        self.used = 0

    def read(self, prompts: list[list[int]], prefill: Callable[[list[list[int]]], Read]) -> Read:
        """What `prefill` returns for these prompts; it is asked for those only that are not kept."""
        new = [prompt for prompt in prompts if tuple(prompt) not in self.kept]
        if not self.room or not prompts:
            return prefill(prompts)
        read = prefill(new) if new else None
        found = dict(zip(map(tuple, new), apart(*read), strict=True)) if read else {}
        if read is None or len(new) < len(prompts):
            own = [self.kept.get(tuple(prompt)) or found[tuple(prompt)] for prompt in prompts]
            read = together(own)
        for prompt, one in found.items():
            if self.used + one.bytes <= self.room:
                self.used += one.bytes
                self.kept[prompt] = one
        return read

    def bytes_of(self, model: PreTrainedModel, prompts: int, prompt_tokens: int) -> int:
        """What so many of them take at most."""
        logits = model.config.get_text_config().vocab_size * model.dtype.itemsize
        return min(self.room, prompts * (prompt_tokens * token_bytes(model) + logits))


def apart(cache: DynamicCache, lengths: Tensor, logits: Tensor) -> list[Kept]:
    """Each prompt's own, copied: a view would hold the whole wave's."""
    layers: list[Any] = list(cache.layers)
    return [
        Kept(
            [layer.keys[i, :, -length:].clone() for layer in layers],
            [layer.values[i, :, -length:].clone() for layer in layers],
            logits[i].clone(),
        )
        for i, length in enumerate(lengths.tolist())
    ]


def together(prompts: list[Kept]) -> Read:
    """As `prefill` returns it: left-padded to the longest, here by zeros, which no query attends to."""
    sizes = [one.keys[0].shape[1] for one in prompts]
    longest, cache = max(sizes), DynamicCache()

    def stacked(tensors: list[Tensor]) -> Tensor:
        return torch.stack([pad(x, (0, 0, longest - x.shape[1], 0)) for x in tensors])

    for i in range(len(prompts[0].keys)):
        cache.update(stacked([one.keys[i] for one in prompts]), stacked([one.values[i] for one in prompts]), i)
    logits = torch.stack([one.logits for one in prompts])
    return cache, torch.tensor(sizes, device=logits.device), logits
