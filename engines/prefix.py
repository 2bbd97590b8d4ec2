"""Attention of N rows to the one copy of their prompt, for rollout.py's TorchEngine (section 4.2.4).

At every decoding step the queries of a group attend to one copy of the prompt's keys as a matrix product,
[N·heads, D] x [D, L]. N copies would be N vector products, and each would read L·D numbers again. The softmax runs
over prompt and response together, so the result is exact (Hydragen, 2402.05099).

    name               meaning
    G, R               prompts in a wave, rows decoding now: the decoder's lines, which are rollouts that differ so far
    M                  the most rows of any prompt
    L, T               prompt tokens (longest of the wave, left-padded), response tokens so far
    Hq, Hk, D          query heads, key heads, head width
    g                  query heads for each key head, Hq / Hk (grouped queries)
    prefix             the prompts' keys and values, [G, Hk, L, D] per layer
    response cache     keys and values of the rows, [R, Hk, T, D] per layer
"""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


@dataclass
class Prefix:
    """The prompts' keys and values, once, and which prompt each decoding row belongs to.

    To attend as one matrix, every group takes M slots; a group with fewer rows leaves some empty.
    """

    keys: list[Tensor]  # [G, Hk, L, D] per layer
    values: list[Tensor]  # the same
    padding: Tensor | None  # (G, L) bool, on the left; None: all prompts are equally long
    group: Tensor  # (R,) which prompt a row belongs to, ascending
    slots: Tensor | None  # (R,) a row's slot, of G·M; None: every group has M rows, and a row's slot is its number
    m: int  # M

    @staticmethod
    def of(cache: DynamicCache, lengths: Tensor) -> "Prefix":
        """One row per prompt; `follow` makes more."""
        layers: list[Any] = list(cache.layers)
        keys, values = [x.keys for x in layers], [x.values for x in layers]
        column = torch.arange(keys[0].shape[2], device=lengths.device)
        padding = column < len(column) - lengths[:, None]
        prefix = Prefix(keys, values, padding if padding.any() else None, torch.empty(0), None, 0)
        prefix._place(torch.arange(len(lengths), device=lengths.device))
        return prefix

    def follow(self, rows: Tensor) -> None:
        """Keep these rows, ascending, each any number of times; prompts without rows leave."""
        alive, group = torch.unique(self.group[rows], return_inverse=True)
        if len(alive) < len(self.keys[0]):
            self.keys = [k[alive] for k in self.keys]
            self.values = [v[alive] for v in self.values]
            self.padding = None if self.padding is None else self.padding[alive]
        self._place(group)

    def _place(self, group: Tensor) -> None:
        counts = torch.bincount(group, minlength=len(self.keys[0]))
        first = counts.cumsum(0) - counts
        self.group, self.m = group, int(counts.max())
        within = torch.arange(len(group), device=group.device) - first[group]
        self.slots = None if bool((counts == self.m).all()) else group * self.m + within

    def grouped(self, q: Tensor) -> Tensor:
        """[R, Hk, g, D] -> [G, Hk, M·g, D]: the rows of a group side by side, as one matrix."""
        _, hk, g, d = q.shape
        if self.slots is not None:
            q = q.new_zeros(len(self.keys[0]) * self.m, hk, g, d).index_copy_(0, self.slots, q)
        return q.view(-1, self.m, hk, g, d).transpose(1, 2).reshape(-1, hk, self.m * g, d)

    def ungrouped(self, x: Tensor, g: int) -> Tensor:
        """[G, Hk, M·g, X] -> [R, Hk, g, X], the inverse of `grouped`."""
        groups, hk, _, width = x.shape
        x = x.view(groups, hk, self.m, g, width).transpose(1, 2).reshape(-1, hk, g, width)
        return x if self.slots is None else x[self.slots]


def shared_prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    shared_prefix: Prefix | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """softmax([q·K_prefix, q·K_response] · scaling) [V_prefix; V_response], the prefix read once per group.

    query: [R, Hq, 1, D]; key, value: the response cache, [R, Hk, T, D]; returns [R, 1, Hq, D].
    Padding, sliding windows, soft caps and grouped queries are handled; what else a model asks of its
    attention (sinks, position biases) raises ValueError, and the engine takes the other path.
    """
    if shared_prefix is None:
        raise ValueError("this model does not hand keyword arguments to its attention")
    if extras := [name for name in ("s_aux", "position_bias") if kwargs.get(name) is not None]:
        raise ValueError(f"shared-prefix attention has no {', '.join(extras)}")
    layer: Any = module.layer_idx
    prefix_key, prefix_value = shared_prefix.keys[layer], shared_prefix.values[layer]
    (rows, hq, _, d), hk, t, length = query.shape, key.shape[1], key.shape[2], prefix_key.shape[2]
    g = hq // hk
    query = query.reshape(rows, hk, g, d) * (scaling if scaling is not None else d**-0.5)

    to_prefix = shared_prefix.grouped(query) @ prefix_key.transpose(-1, -2)  # [G, Hk, M·g, L]
    to_response = query @ key.transpose(-1, -2)  # [R, Hk, g, T]
    if softcap is not None:
        to_prefix, to_response = (softcap * torch.tanh(s / softcap) for s in (to_prefix, to_response))

    hidden = shared_prefix.padding
    if sliding_window is not None:  # prompt position j is in column L - length + j, the query at length + T - 1
        old = torch.arange(length, device=query.device) <= length + t - 1 - sliding_window
        hidden = old[None] if hidden is None else hidden | old
        old = torch.arange(t, device=query.device) <= t - 1 - sliding_window
        to_response = to_response.masked_fill(old, -torch.inf)
    if hidden is not None:
        to_prefix = to_prefix.masked_fill(hidden[:, None, None, :], -torch.inf)

    scores = torch.cat([to_prefix, shared_prefix.grouped(to_response)], dim=-1)  # [G, Hk, M·g, L + T]
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    from_prefix = shared_prefix.ungrouped(weights[..., :length] @ prefix_value, g)  # [R, Hk, g, D]
    from_response = shared_prefix.ungrouped(weights[..., length:], g) @ value
    return (from_prefix + from_response).reshape(rows, 1, hq, -1), None


ALL_ATTENTION_FUNCTIONS.register("shared_prefix", shared_prefix_attention)


@contextmanager
def attention(model: PreTrainedModel, name: str):
    """The model with another attention function, and the first one again afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
