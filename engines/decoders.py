"""The two ways in which rollout.py's TorchEngine decodes, and the check that decides between them (section 4.2.4).

    SharedDecoder   every line attends to one copy of its prompt (engines/prefix.py)
    CopyDecoder     every line has a copy of its prompt's cache: for a model whose attention cannot be replaced

A decoder is made from the prompts' cache and holds U lines, at first one per prompt. Rows with the same tokens so far
are one line: a distinct prefix is computed once. `step` takes the lines' last tokens and returns the next logits;
`follow` lets lines part or end.
Beside the weights a row holds keys and values of its response, the scores of one layer's attention, the logits of one
step, and its share of the prompt (`row_bytes`). Shapes and symbols: the head of engines/prefix.py; its R is U here.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from engines.prefix import Prefix, attention

COMPACT_BELOW = 0.85  # idle lines, whose rows have all ended, leave once this share of the lines or less is not idle


class SharedDecoder:
    """Lines that attend to one copy of their prompt."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache, lengths: Tensor, capacity: int):
        self.model = model
        self.prefix = Prefix.of(cache, lengths)
        self.cache = Cache(layers=[ResponseLayer(capacity) for _ in cache.layers])
        self.position = lengths

    def step(self, tokens: Tensor) -> Tensor:
        """The next token's logits, (U, V), after `tokens` (U,)."""
        with attention(self.model, "shared_prefix"):
            out = self.model(
                input_ids=tokens[:, None],
                position_ids=self.position[:, None],
                past_key_values=self.cache,
                use_cache=True,
                shared_prefix=self.prefix,
            )
        self.position = self.position + 1
        return out.logits[:, -1]

    def follow(self, parent: Tensor) -> None:
        """Line i continues the former line parent[i]. `parent` ascends; a line may stand there twice, or not at all."""
        self.prefix.follow(parent)
        self.cache.batch_select_indices(parent)
        self.position = self.position[parent]


class CopyDecoder:
    """Lines that each hold a copy of their prompt's cache: for any model, at the price of U copies."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache, lengths: Tensor, capacity: int):
        self.model, self.position = model, lengths
        self.cache, longest = DynamicCache(), cache.get_seq_length()
        layers: list[Any] = list(cache.layers)
        for i, layer in enumerate(layers):
            self.cache.update(layer.keys, layer.values, i)
        column = torch.arange(longest + capacity, device=lengths.device)
        self.mask = (column >= longest - self.position[:, None]).long()

    def step(self, tokens: Tensor) -> Tensor:
        out = self.model(
            input_ids=tokens[:, None],
            position_ids=self.position[:, None],
            attention_mask=self.mask[:, : self.cache.get_seq_length() + 1],
            past_key_values=self.cache,
            use_cache=True,
        )
        self.position = self.position + 1
        return out.logits[:, -1]

    def follow(self, parent: Tensor) -> None:
        self.cache.batch_select_indices(parent)
        self.position, self.mask = self.position[parent], self.mask[parent]


def advance(decoder: SharedDecoder | CopyDecoder, line: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """Rows on these lines sampled these tokens, (R,) each. Returns each row's line (R,) and each line's token (U,).

    Rows of one line with different tokens part. Lines without rows stay, idle, until lines part or few are left.
    """
    size = int(token.max()) + 1
    distinct, now = torch.unique(line * size + token, return_inverse=True)  # ascending, by line and then by token
    parent, token, lines = distinct // size, distinct % size, len(decoder.position)
    if len(parent) <= COMPACT_BELOW * lines or bool((parent.diff() == 0).any()):
        decoder.follow(parent)
        return now, token
    return parent[now], token.new_zeros(lines).index_copy(0, parent, token)


@torch.no_grad()
def why_not_shared(model: PreTrainedModel, prefill: Callable) -> str | None:
    """None if shared-prefix decoding equals a plain forward pass on this model, else what the difference is.

    Three rows of two prompts of different lengths take three tokens each. prefill: TorchEngine's.
    """
    if not getattr(model, "_can_set_attn_implementation", lambda: True)():
        return "its attention cannot be replaced"
    was_training, vocabulary = model.training, model.config.get_text_config().vocab_size
    tokens = torch.randint(vocabulary, (2, 9), generator=torch.Generator().manual_seed(0)).to(model.device)
    prompts, ends = [tokens[0, :6].tolist(), tokens[1, :4].tolist()], tokens[:, 6:]
    model.eval()
    try:
        cache, lengths, _ = prefill(prompts)
        decoder = SharedDecoder(model, cache, lengths, 3)
        decoder.follow(torch.tensor([0, 0, 1], device=model.device))
        got = torch.stack([decoder.step(ends[[0, 1, 0], t]) for t in range(3)], 1)
        for row, (prompt, end) in enumerate([(0, 0), (0, 1), (1, 0)]):
            whole = torch.cat([tokens[prompt, : len(prompts[prompt])], ends[end]])[None]
            want = model(input_ids=whole).logits[0, -3:]
            error = (got[row] - want).abs().max() / want.abs().max()
            if not error < (1e-3 if model.dtype == torch.float32 else 5e-2):
                return f"its logits differ from a plain forward pass by {error:.1e} of their size"
    except Exception as e:  # a foreign model may fail in any way; the copying path remains
        return f"{type(e).__name__}: {e}"
    finally:
        model.train(was_training)
    return None


class ResponseLayer(DynamicLayer):
    """One layer of the response cache, allocated once: [R, Hk, max_new_tokens, D]."""

    keys: Tensor
    values: Tensor

    def __init__(self, max_new_tokens: int):
        super().__init__()
        self.capacity, self.length = max_new_tokens, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        rows, heads = key_states.shape[:2]
        self.keys = key_states.new_empty(rows, heads, self.capacity, key_states.shape[-1])
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def batch_select_indices(self, indices: Tensor) -> None:
        """These lines, in this order. Fewer than before: without a second allocation of the capacity."""
        if self.is_initialized:  # lines part for the first time before a response's first token is computed
            self.keys, self.values = (self._selected(x, indices) for x in (self.keys, self.values))

    def _selected(self, x: Tensor, indices: Tensor) -> Tensor:
        room = x if len(indices) <= len(x) else x.new_empty(len(indices), *x.shape[1:])
        room[: len(indices), :, : self.length] = x[indices, :, : self.length]
        return room[: len(indices)]


# ---------------------------------------------------------------------------------------- the memory of a row, in bytes


def token_bytes(model: PreTrainedModel) -> int:
    """Keys and values of one token, in all layers."""
    c = model.config.get_text_config()
    heads = c.num_attention_heads
    width = getattr(c, "head_dim", None) or c.hidden_size // heads
    return 2 * c.num_hidden_layers * (getattr(c, "num_key_value_heads", None) or heads) * width * model.dtype.itemsize


def row_bytes(model: PreTrainedModel, copied: bool, n: int, prompt_tokens: int, max_new_tokens: int) -> float:
    """The most that one row holds; copied: with a copy of its prompt's cache, not only an n-th part of the one."""
    c = model.config.get_text_config()
    heads, item, token = c.num_attention_heads, model.dtype.itemsize, token_bytes(model)
    prompt = prompt_tokens * (token + 12 * c.hidden_size * item)  # its cache, and one layer's activations
    copy = prompt_tokens * token if copied else 0
    scores = 3 * heads * (prompt_tokens + max_new_tokens) * 4
    response = max_new_tokens * (token * (1 + 1 / c.num_hidden_layers) + 12)  # a layer's cache twice, while lines part
    return prompt / n + copy + response + scores + 6 * c.vocab_size * 4  # logits' log-probs, chances, and their cdf


def keep_freed_memory() -> None:
    """Ask glibc to keep what a decoding step frees, for the next step to use (Linux; elsewhere nothing happens).

    Left alone, it returns the few megabytes of scores to the kernel at every step, and page faults to get
    them again cost half of the time of a wave on a CPU. Blocks beyond 32 MiB still go back at once.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(m_mmap_threshold, 32 * 2**20)
        mallopt(m_trim_threshold, 2**31 - 1)
