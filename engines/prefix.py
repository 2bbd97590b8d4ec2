"""Decode many rollouts with one copy of each prompt, for rollout.py's TorchEngine (section 4.2.4).

At every step the queries of a group attend to one copy of the prompt's keys in one matrix product,
[M·g, D] x [D, L]. With a copy per rollout this would be M·g vector products, and each would read the L·D numbers
again. One softmax runs over prompt and response together, so the result is exact (Hydragen, 2402.05099).

Rollouts whose tokens are equal share one row until they differ: each distinct prefix is computed once.

    name         meaning
    prefix       a prompt and the first tokens of a response
    P            prompts whose rollouts decode together
    K            rows: the distinct prefixes that are decoding
    M            largest number of rows of one prompt
    L, T         prompt tokens (the longest prompt; shorter ones are padded on the left), response tokens
    Hq, Hk, D    query heads, key heads, head width
    g            query heads per key head, Hq / Hk
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engines.model import cache_argument, experts_in_one_weight, inference


class PrefixDecoder:
    """The keys and values of K rows, and one decoding step for all of them.

    prompt_keys, prompt_values   [P, Hk, L, D] per layer, one copy per prompt
    keys, values                 [K, Hk, max_new_tokens, D] per layer; the first T columns are filled
    prompt_of_row                (K,) ascending
    slot_of_row                  (K,) the position of a row among the P·M positions of a grouped product
    """

    def __init__(self, model: PreTrainedModel, prompts: list[list[int]], max_new_tokens: int):
        """Compute each prompt once. Afterwards `logits` (P, V) has the logits after the prompts."""
        self.model, self.capacity, self.t = model, max_new_tokens, 0
        longest, device = max(map(len, prompts)), model.device
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        padding = torch.arange(longest, device=device) < longest - self.lengths[:, None]  # (P, L)
        prompt_cache = DynamicCache()  # without a config it keeps all keys, in sliding layers too
        out = model(
            input_ids=tokens,
            attention_mask=(~padding).long(),
            position_ids=((~padding).long().cumsum(-1) - 1).clamp(min=0),
            logits_to_keep=1,
            **{cache_argument(model): prompt_cache},
        )
        self.logits = out.logits[:, -1]
        layers: list[Any] = list(prompt_cache.layers)
        self.prompt_keys, self.prompt_values = [x.keys for x in layers], [x.values for x in layers]
        self.padding = padding if padding.any() else None
        self.keys: dict[int, Tensor] = {}  # by layer; empty before the first step
        self.values: dict[int, Tensor] = {}
        self._assign_slots(torch.arange(len(prompts), device=device))

    def advance(self, row_of_rollout: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Append a token to every rollout. row_of_rollout: (rollouts,); token: (rollouts,) the new token of each one.

        A row splits if its rollouts have different tokens, and is dropped if it has none. Returns the new row of each
        rollout, (rollouts,), and the next logits (K, V).
        """
        vocabulary = self.logits.shape[-1]
        # ascending by row, then by token
        distinct, row_of_rollout = torch.unique(row_of_rollout * vocabulary + token, return_inverse=True)
        parent = distinct // vocabulary
        if len(parent) != len(self.prompt_of_row) or bool((parent.diff() != 1).any()):
            self._select(parent)
        tokens, positions = distinct % vocabulary, self.lengths[self.prompt_of_row] + self.t  # (K,)
        self.t += 1
        with _using_attention(self.model, "shared_prompt"):  # transformers hands `decoder` on to this attention
            out = self.model(input_ids=tokens[:, None], position_ids=positions[:, None], use_cache=False, decoder=self)
        return row_of_rollout, out.logits[:, -1]

    def _select(self, parent: Tensor) -> None:
        """Let row i continue the former row parent[i] (ascending). Drop the prompts that have no rows."""
        remaining, prompt_of_row = torch.unique(self.prompt_of_row[parent], return_inverse=True)
        if len(remaining) < len(self.lengths):
            self.prompt_keys = [x[remaining] for x in self.prompt_keys]
            self.prompt_values = [x[remaining] for x in self.prompt_values]
            self.lengths = self.lengths[remaining]
            self.padding = None if self.padding is None else self.padding[remaining]
        self._assign_slots(prompt_of_row)
        for stored in (self.keys, self.values):
            for layer, old in stored.items():  # fewer rows than before need no new memory
                new = old if len(parent) <= len(old) else old.new_empty(len(parent), *old.shape[1:])
                new[: len(parent), :, : self.t] = old[parent, :, : self.t]
                stored[layer] = new[: len(parent)]

    def _assign_slots(self, prompt_of_row: Tensor) -> None:
        """Set `prompt_of_row`, M and `slot_of_row`: the rows of prompt i get the slots i·M, i·M + 1, ..."""
        counts = torch.zeros_like(self.lengths)  # rows of each prompt
        counts.scatter_add_(0, prompt_of_row, torch.ones_like(prompt_of_row))
        self.prompt_of_row, self.m = prompt_of_row, int(counts.max())
        earlier = counts.cumsum(0) - counts  # rows of earlier prompts
        rows = torch.arange(len(prompt_of_row), device=prompt_of_row.device)
        self.slot_of_row = prompt_of_row * self.m + rows - earlier[prompt_of_row]

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store a new key and value [K, Hk, 1, D] of a layer; return all of the responses, [K, Hk, T, D]."""
        for stored, new in ((self.keys, key), (self.values, value)):
            if layer not in stored:
                rows, heads, _, width = new.shape
                stored[layer] = new.new_empty(rows, heads, self.capacity, width)
            stored[layer][:, :, self.t - 1] = new[:, :, 0]
        return self.keys[layer][:, :, : self.t], self.values[layer][:, :, : self.t]

    def by_prompt(self, x: Tensor) -> Tensor:
        """Reorder [K, Hk, g, X] to [P, Hk, M·g, X]: one matrix per prompt. Empty slots hold 0."""
        _, heads, g, width = x.shape
        x = x.new_zeros(len(self.lengths) * self.m, heads, g, width).index_copy_(0, self.slot_of_row, x)
        return x.view(-1, self.m, heads, g, width).transpose(1, 2).reshape(-1, heads, self.m * g, width)

    def by_row(self, x: Tensor, g: int) -> Tensor:
        """Reorder [P, Hk, M·g, X] to [K, Hk, g, X], the inverse of `by_prompt`."""
        _, heads, _, width = x.shape
        return x.view(-1, heads, self.m, g, width).transpose(1, 2).reshape(-1, heads, g, width)[self.slot_of_row]


def shared_prompt_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    decoder: PrefixDecoder,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs,  # not used: `check_attention` refuses a model that needs them
) -> tuple[Tensor, None]:
    """Compute softmax([q·K_prompt, q·K_response] · scaling) [V_prompt; V_response]. Reads each prompt once.

    query: [K, Hq, 1, D]; key, value: [K, Hk, 1, D], of the new token; returns [K, 1, Hq, D]. Raises ValueError for a
    mask: transformers makes none for a function of this name, so the model adds its own (Doge, from its values). It can
    be zero now, where `check_attention` finds no difference, and not after training.
    """
    if attention_mask is not None:
        raise ValueError("its attention adds a mask of its own")
    layer: Any = module.layer_idx
    (rows, hq, _, d), hk = query.shape, key.shape[1]
    prompt_key, prompt_value = decoder.prompt_keys[layer], decoder.prompt_values[layer]
    key, value = decoder.append(layer, key, value)
    length, t, g = prompt_key.shape[2], key.shape[2], hq // hk
    query = query.reshape(rows, hk, g, d) * (scaling if scaling is not None else d**-0.5)

    to_prompt = decoder.by_prompt(query) @ prompt_key.transpose(-1, -2)  # [P, Hk, M·g, L]
    to_response = query @ key.transpose(-1, -2)  # [K, Hk, g, T]
    if softcap is not None:
        to_prompt, to_response = (softcap * torch.tanh(x / softcap) for x in (to_prompt, to_response))

    hidden = decoder.padding  # (P, L)
    if sliding_window is not None:  # the query's column is L + T - 1
        old = torch.arange(length + t, device=query.device) <= length + t - 1 - sliding_window
        hidden = old[None, :length] if hidden is None else hidden | old[:length]
        to_response = to_response.masked_fill(old[length:], -torch.inf)
    if hidden is not None:
        to_prompt = to_prompt.masked_fill(hidden[:, None, None, :], -torch.inf)

    scores = torch.cat([to_prompt, decoder.by_prompt(to_response)], dim=-1)  # [P, Hk, M·g, L + T]
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    from_prompt = decoder.by_row(weights[..., :length] @ prompt_value, g)  # [K, Hk, g, D]
    from_response = decoder.by_row(weights[..., length:], g) @ value
    return (from_prompt + from_response).reshape(rows, 1, hq, -1), None


ALL_ATTENTION_FUNCTIONS.register("shared_prompt", shared_prompt_attention)


@contextmanager
def _using_attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Give the model another attention function; restore its own afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def check_attention(model: PreTrainedModel) -> None:
    """Raise ValueError unless PrefixDecoder computes the logits of a plain forward pass of this model.

    Two rows of one prompt and one row of a shorter prompt decode three tokens each.
    """
    vocabulary = model.config.get_text_config().vocab_size
    tokens = torch.randint(vocabulary, (2, 9), generator=torch.Generator().manual_seed(0)).to(model.device)
    prompts, ends = [tokens[0, :6].tolist(), tokens[1, :4].tolist()], tokens[[0, 1, 0], 6:]
    sequences = [torch.tensor([prompts[i] + end.tolist()]) for i, end in zip((0, 0, 1), ends, strict=True)]
    advice = "nor with vLLM, which cannot load its experts" if experts_in_one_weight(model) else "use --engine vllm"
    refusal = f"{type(model).__name__} cannot decode with --engine torch, {advice}"
    try:
        with inference(model, "float32"):
            decoder, logits = PrefixDecoder(model, prompts, 3), []
            row_of_rollout = torch.tensor([0, 0, 1], device=model.device)
            for t in range(3):
                row_of_rollout, distinct = decoder.advance(row_of_rollout, ends[:, t])
                logits.append(distinct[row_of_rollout])  # (3, V)
            want = torch.stack([model(input_ids=x.to(model.device)).logits[0, -3:] for x in sequences], 1)  # [3, 3, V]
    except Exception as cause:  # the code of another model may fail in any way
        raise ValueError(f"{refusal}: {cause}") from cause
    error = float((torch.stack(logits) - want).abs().max() / want.abs().max())
    if not error < (1e-3 if model.dtype == torch.float32 else 5e-2):
        raise ValueError(f"{refusal}: its logits differ from a plain forward pass by {error:.0e} of their size")
