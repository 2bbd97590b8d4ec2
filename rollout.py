"""BroRL, section 4.2.4: N rollouts of one prompt as one cheap operation.

The paper's throughput argument (table 2): a wide group turns memory-bound decoding into compute-bound work. Two
engines do it behind one protocol, `Engine`, and return the same `Group`s:

    TorchEngine   plain torch, on the very weights that are trained; this file
    VLLMEngine    vLLM in the same process, for models worth a GPU; a group is one request of n = N (engines/vllm.py)

TorchEngine computes every distinct prefix once: the prompt, and the tokens that several rollouts begin with. It keeps
the prompt's keys and values once for the whole group, whose queries attend to that one copy (engines/prefix.py). Where
a model's attention cannot be replaced, every line gets a copy of the cache (engines/decoders.py). The engine measures
which of the two is right for a model, and `why_copied` has the reason.

    name           meaning
    G, N           prompts in a wave, rollouts per prompt
    wave           the rows that decode together, as many as `memory_gib` admits
    width          rows of each prompt in a wave; N, unless a group is wider than a wave
    R, U, V        rows decoding now (R <= G·width), lines: their distinct prefixes (U <= R), vocabulary
    L, Hk, D       prompt tokens (longest of the wave), key heads, head width

A third engine is a file of engines/ and its entry in `ENGINES`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from engines.decoders import CopyDecoder, SharedDecoder, advance, keep_freed_memory, row_bytes, why_not_shared
from engines.protocol import Engine, EngineError, Group, Order, prompt_seeds, resolve_sampling, whole_tensors

__all__ = ["ENGINES", "Engine", "EngineError", "Group", "Order", "TorchEngine", "engine_class", "whole_tensors"]

ENGINES = {  # --engine, and its class
    "torch": "rollout.TorchEngine",
    "vllm": "engines.vllm.VLLMEngine",
}


def __getattr__(name: str) -> type[Engine]:
    """`rollout.VLLMEngine`: an engine of another file is imported when it is asked for."""
    for module, _, of_module in (path.rpartition(".") for path in ENGINES.values()):
        if of_module == name:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module rollout has no attribute {name}")


def engine_class(name: str) -> type[Engine]:
    """A class of `ENGINES`; its module is imported now and not before."""
    module, _, of_module = ENGINES[name].rpartition(".")
    return getattr(importlib.import_module(module), of_module)


def have_vllm() -> bool:
    """Is the package there? It is not imported."""
    return importlib.util.find_spec("vllm") is not None


class TorchEngine(Engine):
    """N rollouts per prompt in plain torch, from any causal language model of transformers.

    model         the policy itself, not a copy of it: `sync` from the same model has nothing to move
    memory_gib    bounds what decoding holds beside the weights: response caches, logits and scores. A group that
                  does not fit is split into waves; its prompt is still computed once
    shared_prefix None: measure which path is right for this model; True / False: insist

    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("tiny/policy")
    >>> engine = TorchEngine(AutoModelForCausalLM.from_pretrained("tiny/policy"))
    >>> (group,) = engine.generate([tokenizer("1569:20=").input_ids], n=512, max_new_tokens=12, seed=0)
    >>> len(group.responses), len(group.logprobs), set(group.finish_reasons)
    (512, 512, {'stop'})
    """

    order_rows = 4096  # wider waves fall out of a CPU's caches; the embedded policy decodes half as fast with 512 rows

    def __init__(self, model: PreTrainedModel, memory_gib: float = 2.0, shared_prefix: bool | None = None):
        if memory_gib <= 0:
            raise ValueError(f"memory_gib={memory_gib}: the engine needs some memory to decode in, try 2")
        self.model, self.memory_gib = model, memory_gib
        if model.device.type == "cpu":
            keep_freed_memory()
        self.why_copied = "as asked" if shared_prefix is False else why_not_shared(model, self._prefill)
        if shared_prefix and self.why_copied:
            raise ValueError(f"{type(model).__name__} cannot share its prefix: {self.why_copied}")
        self.decoder = CopyDecoder if self.why_copied else SharedDecoder

    @classmethod
    def from_config(cls, model, positions, config) -> TorchEngine:
        return cls(model, config.engine_memory_gib)

    @property
    def decoding(self) -> str:
        return f"copied prompt caches ({self.why_copied})" if self.why_copied else "one shared prompt cache per group"

    @torch.no_grad()
    def generate(
        self, prompts: list[list[int]], n: int, *, max_new_tokens: int | None = None, temperature: float = 1.0,
        top_p: float = 1.0, top_k: int = 0, stop_token_ids: list[int] | None = None, seed: int | list[int] = 0,
        first: int = 0, of: int | None = None, on_progress: Callable[[int], None] | None = None,
    ) -> list[Group]:  # fmt: skip
        """As `Engine.generate`: prompts by length in waves, each prompt read once, its rows decoded together."""
        max_new_tokens, stop_token_ids = resolve_sampling(
            self.model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids
        )
        seeds, device = prompt_seeds(seed, len(prompts)), self.model.device
        groups = [Group(list(prompt), [], [], []) for prompt in prompts]
        by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # little padding in a wave
        was_training = self.model.training
        self.model.eval()
        try:
            while by_length:
                rows, _ = self._wave_size(n, len(prompts[by_length[-1]]), max_new_tokens)
                wave, by_length = by_length[: max(1, rows // n)], by_length[max(1, rows // n) :]
                cache, lengths, logits = self._prefill([prompts[i] for i in wave])
                for start in range(0, n, rows):  # more than once only if one group is wider than a wave
                    width = min(rows, n - start)
                    uniforms = Uniforms([seeds[i] for i in wave], of or n, first + start, width, device)
                    responses = Responses(len(wave) * width, max_new_tokens, stop_token_ids, device)
                    decoder = self.decoder(self.model, cache, lengths, max_new_tokens)
                    decode(decoder, logits, width, uniforms, responses, on_progress, temperature, top_p, top_k)
                    for i, rollouts in zip(wave, responses.by_prompt(width), strict=True):
                        groups[i].add(*rollouts)
        finally:
            self.model.train(was_training)
        return groups

    def _prefill(self, prompts: list[list[int]]) -> tuple[DynamicCache, Tensor, Tensor]:
        """The one forward pass over each prompt.

        Returns the cache, left-padded keys and values [G, Hk, L, D] per layer; lengths (G,); last logits (G, V).
        """
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

    def _wave_size(self, n: int, prompt_tokens: int, max_new_tokens: int) -> tuple[int, float]:
        """How many rows decode at once within `memory_gib` (on a CPU also its caches), and the bytes of one."""
        row = row_bytes(self.model, self.decoder is CopyDecoder, n, prompt_tokens, max_new_tokens)
        rows = max(1, int(self.memory_gib * 2**30 // row))
        return min(rows, self.order_rows) if self.model.device.type == "cpu" else rows, row

    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        rows, row = self._wave_size(n, prompt_tokens, max_new_tokens)
        return int(min(prompts * n, rows) * row)


def decode(
    decoder: SharedDecoder | CopyDecoder, logits: Tensor, width: int, uniforms: Uniforms, responses: Responses,
    on_progress: Callable[[int], None] | None, temperature: float, top_p: float, top_k: int,
) -> None:  # fmt: skip
    """Decode a wave to its end: `width` rows of each prompt, written into `responses`.

    logits: (G, V), after the prompts. Rows with the same tokens so far are one line of the decoder: at first one line
    per prompt, in the end one per row.
    """
    row = torch.arange(len(logits) * width, device=logits.device)  # (R,) which rows still decode
    line = row // width  # (R,) the line of each
    logp = sampling_logprobs(logits, temperature, top_p, top_k)  # (U, V)
    for t in range(responses.max_new_tokens):
        token, token_logp = sample_tokens(logp, temperature == 0, uniforms.of(t, row), line)
        going = responses.write(t, row, token, token_logp)
        if on_progress:
            on_progress(len(row) - len(going))
        row, line, token = row[going], line[going], token[going]
        if not len(row):
            break
        line, token = advance(decoder, line, token)
        logp = sampling_logprobs(decoder.step(token), temperature, top_p, top_k)


def sampling_logprobs(logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """log π of the sampled distribution: logits / temperature, then top-k, then top-p, renormalised.

    logits: (U, V) in any float type; the result is (U, V) float32, -inf on what was cut. top_p keeps the
    smallest set of tokens whose mass reaches top_p; top_k = 0 and top_p = 1 keep everything.
    temperature = 0 is greedy: the model's log-probs at temperature 1; the caller takes the largest.
    """
    logp = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0 or (top_p == 1.0 and not 0 < top_k < logp.shape[-1]):
        return logp
    ordered, index = logp.sort(dim=-1, descending=True)
    if top_k:
        ordered[:, top_k:] = -torch.inf
    mass_before = ordered.exp().cumsum(-1) - ordered.exp()
    if top_p < 1:  # at 1, rounding would cut the last few
        ordered = ordered.masked_fill(mass_before >= top_p * ordered.exp().sum(-1, keepdim=True), -torch.inf)
    return torch.log_softmax(torch.full_like(logp, -torch.inf).scatter(-1, index, ordered), dim=-1)


def sample_tokens(logp: Tensor, greedy: bool, uniform: Tensor, line: Tensor) -> tuple[Tensor, Tensor]:
    """Sample one token per rollout; returns tokens and log-probs, (R,) each.

    logp: (U, V); rollout r samples from row line[r]. uniform: (R,) in (0, 1]. The token is the first whose cdf, in
    float64, reaches uniform[r] of the row's total, found by bisection: a token of probability 1e-7 keeps its share, one
    of probability 0 is never sampled.
    """
    if greedy:
        token = logp.argmax(-1)[line]
        return token, logp[line, token]
    cdf = logp.exp().cumsum(-1, dtype=torch.float64)
    wanted, token, last = uniform * cdf[line, -1], torch.zeros_like(line), torch.full_like(line, logp.shape[1] - 1)
    for _ in range(logp.shape[1].bit_length()):  # the token lies in token ... last
        middle = (token + last) // 2
        reached = cdf[line, middle] >= wanted
        token, last = torch.where(reached, token, middle + 1), torch.where(reached, middle, last)
    return token, logp[line, token]


class Uniforms:
    """A number in (0, 1] for every token of a wave's rows, from the seed of the row's prompt.

    It follows from the prompt's seed, the rollout's number and the token's: no other row matters. Drawn in blocks of
    AHEAD tokens, because a call of a generator costs more than its numbers.

    seeds: of the prompts. n: rollouts per prompt; this wave has the numbers `first` to `first + width`.
    """

    AHEAD = 16

    def __init__(self, seeds: list[int], n: int, first: int, width: int, device: torch.device):
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.shape, self.rows, self.device = (n, self.AHEAD), slice(first, first + width), device

    def of(self, t: int, row: Tensor) -> Tensor:
        """(R,) float64: for token t of these rows; t comes in order, from 0 on."""
        if t % self.AHEAD == 0:
            blocks = [
                torch.rand(*self.shape, dtype=torch.float64, device=self.device, generator=generator)[self.rows]
                for generator in self.generators
            ]
            self.block = 1 - torch.cat(blocks)
        return self.block[row, t % self.AHEAD]


class Responses:
    """What the R rows of a wave have sampled so far, and where each one ended."""

    def __init__(self, rows: int, max_new_tokens: int, stop_token_ids: list[int], device: torch.device):
        self.max_new_tokens = max_new_tokens
        self.tokens = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rows, max_new_tokens, device=device)
        self.length = torch.full((rows,), max_new_tokens, device=device)
        self.stopped = torch.zeros(rows, dtype=torch.bool, device=device)
        self.stop = torch.tensor(stop_token_ids, device=device, dtype=torch.long)

    def write(self, t: int, row: Tensor, token: Tensor, logprob: Tensor) -> Tensor:
        """Write token t of these rows, which all still decode. Returns the indices of those that go on."""
        self.tokens[row, t], self.logprobs[row, t] = token, logprob
        ended = torch.isin(token, self.stop)
        self.stopped[row[ended]], self.length[row[ended]] = True, t + 1
        return torch.nonzero(~ended & (t + 1 < self.max_new_tokens)).squeeze(-1)

    def by_prompt(self, width: int) -> Iterator[tuple[list[list[int]], list[list[float]], list[str]]]:
        """For one prompt after the other, `width` responses, their log-probs and their finish reasons."""
        parts = (x.cpu().split(width) for x in (self.tokens, self.logprobs, self.length, self.stopped))
        for tokens, logprobs, length, stopped in zip(*parts, strict=True):
            ends = length.tolist()
            yield (
                [x[:end] for x, end in zip(tokens.tolist(), ends, strict=True)],
                [x[:end] for x, end in zip(logprobs.tolist(), ends, strict=True)],
                ["stop" if s else "length" for s in stopped.tolist()],
            )
