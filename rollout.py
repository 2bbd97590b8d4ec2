"""BroRL, section 4.2.4: N rollouts of one prompt as one cheap operation.

A rollout is a response y to a prompt x. An engine draws it token by token from the sampling distribution, and returns
the log-prob of each drawn token. loss.py needs them for its importance weight ρ = π_old / π_engine:

    y_t ~ π_engine(· | x, y_<t)                  softmax(logits / temperature), cut by top-k and top-p
    log π_engine(y_t | x, y_<t)                  one number per token, the stop token included

Decoding is memory-bound: for one more token a step reads all weights, and the keys and values of every prefix. N
rollouts of one prompt share the prompt's part. At token t, after a prompt of L tokens:

                                        N prompts, one rollout each    one prompt, N rollouts
    tokens of prompts to compute        N L                            L
    keys and values to hold and read    N (L + t)                      L + N t

The paper reports 36.5 samples/s at N = 16 and 72.4 at N = 512 (table 2). Two engines do this behind one interface:

    TorchEngine   plain torch, with the trained weights themselves; for a CPU and for reading
    VLLMEngine    vLLM in the same process; one request per prompt with n = N, or this rank's share of N; for GPUs

The random numbers of a rollout depend only on its seed, its number and the token's position. So one request for 512
rollouts and two requests for 256 give the same rollouts, on any number of ranks. Exceptions are rare: logits can round
differently in another batch, and then a rollout can differ.

Shapes: V is the vocabulary. TorchEngine computes one row for each distinct prefix, so rollouts whose tokens are equal
share a row until they differ: (rows, V) are logits of all rows, (rollouts,) has one number for each rollout.

engines/prefix.py has the attention of many rows to one prompt. engines/vllm.py starts vLLM and loads its weights.
A third engine is a class with the methods of `Engine` and an entry in `ENGINES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engines.prefix import PrefixDecoder, bytes_per_row, check_attention, inference, keep_freed_memory
from engines.vllm import abort, have_vllm, load_weights, max_seqs, note, sampling_params, start_llm, step, whole_tensors

__all__ = ["ENGINES", "Engine", "Group", "Request", "Sampling", "have_vllm", "sampling_logprobs", "whole_tensors"]


@dataclass(frozen=True)
class Sampling:
    """The distribution to sample from, and the stop tokens. temperature 0: greedy; top_k 0 and top_p 1: all tokens."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(f"{self}: needs max_new_tokens >= 1, temperature >= 0, 0 < top_p <= 1 and top_k >= 0")


class Request(NamedTuple):
    """Rollouts `first` to `first + n - 1` of a prompt. The seed and a rollout's number fix its tokens."""

    prompt: list[int]
    n: int
    seed: int  # 0 to 2^62
    first: int = 0


@dataclass
class Group:
    """The rollouts of a request. A response includes its stop token: it was sampled, so it is trained on."""

    prompt: list[int]
    responses: list[list[int]] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)  # one per token, of the sampled distribution
    finish_reasons: list[str] = field(default_factory=list)  # "stop" or "length"

    def add(self, response: list[int], logprobs: list[float], finish_reason: str) -> None:
        self.responses.append(response)
        self.logprobs.append(logprobs)
        self.finish_reasons.append(finish_reason)


Progress = Callable[[int], object]  # is called with the number of rollouts that ended since its last call


class Engine(Protocol):
    """The methods that the trainer calls. An engine must define all of them but `sleep`, `wake` and `close`."""

    precision: str  # "float32" or "bfloat16"
    needs_whole_model: bool  # True: under FSDP2 the trainer passes an unsharded copy of the model

    @classmethod
    def from_config(cls, model: PreTrainedModel, positions: int, dtype: str, config: Any) -> Engine:
        """Make the engine of a run with these settings.

        positions: most tokens of prompt and response together. dtype: "float32" or "bfloat16", to compute in.
        """
        ...

    @property
    def description(self) -> str:
        """Describe the engine in a few words, for the start of a run."""
        ...

    def generate(
        self, requests: list[Request], sampling: Sampling, on_progress: Progress | None = None
    ) -> Iterator[tuple[int, Group]]:
        """Yield (index of a request, its group) as groups end. Closing the iterator stops the work.

        Raises ValueError for an invalid request, when the caller asks for the first group.
        """
        ...

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from the weights of `model` (plain, DDP or FSDP2) from now on."""

    def sleep(self) -> None:
        """Free memory for the trainer."""
        return None

    def wake(self) -> None:
        """Allocate the memory again."""
        return None

    def close(self) -> None:
        """End the engine. No collective operation may follow."""
        return None


def check(requests: list[Request], sampling: Sampling, vocabulary: int, positions: int | None) -> None:
    """Raise ValueError for a request that cannot work. The message has the number of the request and the fix."""
    for i, (prompt, n, seed, first) in enumerate(requests):
        if not prompt or n < 1 or first < 0 or not 0 <= seed <= 2**62:
            raise ValueError(
                f"request {i} has {len(prompt)} prompt tokens, n={n}, first={first}, seed={seed}: it needs at least 1 "
                "token, n >= 1, first >= 0 and a seed from 0 to 2^62"
            )
        if positions and len(prompt) + sampling.max_new_tokens > positions:
            raise ValueError(
                f"request {i}: {len(prompt)} prompt tokens + max_new_tokens={sampling.max_new_tokens} exceed the "
                f"{positions} positions of the model or engine: shorten one of them"
            )
        if not 0 <= min(prompt) <= max(prompt) < vocabulary:
            raise ValueError(f"request {i} has a token outside the vocabulary of {vocabulary}: wrong tokenizer?")
    if not all(0 <= token < vocabulary for token in sampling.stop_token_ids):
        raise ValueError(f"stop_token_ids={sampling.stop_token_ids} are outside the vocabulary of {vocabulary}")


def sampling_logprobs(logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """Compute log π of the sampled distribution: logits / temperature, then top-k, then top-p, renormalised.

    logits: (rows, V) in any float type. Returns (rows, V) float32, -inf for removed tokens. top_p keeps the smallest
    set of tokens with a mass of at least top_p. temperature 0: log-probs at temperature 1; the caller takes the argmax.
    """
    logp = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0 or (top_p == 1.0 and not 0 < top_k < logp.shape[-1]):
        return logp
    ordered, index = logp.sort(dim=-1, descending=True)
    if top_k:
        ordered[:, top_k:] = -torch.inf
    mass_before = ordered.exp().cumsum(-1) - ordered.exp()
    if top_p < 1:  # at 1, rounding errors would remove the last few tokens
        ordered = ordered.masked_fill(mass_before >= top_p * ordered.exp().sum(-1, keepdim=True), -torch.inf)
    return torch.log_softmax(torch.full_like(logp, -torch.inf).scatter(-1, index, ordered), dim=-1)


def draw(logp: Tensor, row: Tensor, uniform: Tensor) -> Tensor:
    """Sample one token per rollout, (rollouts,): rollout i samples from row[i] of logp (rows, V).

    uniform: (rollouts,) in (0, 1]. The token is the first with cdf >= uniform[i] times the row's total. The cdf is in
    float64: a token of probability 1e-7 keeps its share, and one of probability 0 is never drawn. Bisection copies no
    row for a rollout.
    """
    cdf = logp.exp().cumsum(-1, dtype=torch.float64)
    wanted, low, high = uniform * cdf[row, -1], torch.zeros_like(row), torch.full_like(row, logp.shape[1] - 1)
    for _ in range(logp.shape[1].bit_length()):  # low <= token <= high
        middle = (low + high) // 2
        reached = cdf[row, middle] >= wanted
        low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
    return low


def uniforms(stream: Tensor, t: int) -> Tensor:
    """Return float64 in (0, 1] for token t, (rollouts,). stream: int64, a hash of each rollout's seed and number."""
    return (((hashed(stream + t) >> 11) & (2**53 - 1)) + 1).double() * 2.0**-53


def hashed(x: Tensor) -> Tensor:
    """Apply one step of SplitMix64 to int64. Products wrap around; the masks make >> an unsigned shift."""
    x = x + (0x9E3779B97F4A7C15 - 2**64)
    x = (x ^ (x >> 30 & (2**34 - 1))) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ (x >> 27 & (2**37 - 1))) * (0x94D049BB133111EB - 2**64)
    return x ^ (x >> 31 & (2**33 - 1))


class TorchEngine(Engine):
    """N rollouts per prompt in plain torch, for the models of transformers whose attention can be replaced.

    model       the policy itself, not a copy
    memory_gib  memory for decoding, in addition to the weights; it limits the rollouts of a batch
    dtype       "bfloat16" decodes a float32 model under autocast; None: the model's dtype

    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("tiny/policy")
    >>> engine = TorchEngine(AutoModelForCausalLM.from_pretrained("tiny/policy"))
    >>> request = Request(tokenizer("1569:20=").input_ids, n=512, seed=0)
    >>> ((_, group),) = engine.generate([request], Sampling(max_new_tokens=12, stop_token_ids=(0,)))
    >>> len(group.responses), len(group.logprobs), set(group.finish_reasons)
    (512, 512, {'stop'})
    """

    needs_whole_model = True

    def __init__(self, model: PreTrainedModel, memory_gib: float = 2.0, dtype: str | None = None):
        self.model, self.memory_gib = model, memory_gib
        self.precision = dtype if dtype == "bfloat16" else str(model.dtype).removeprefix("torch.")
        if model.device.type == "cpu":
            keep_freed_memory()
        check_attention(model)

    @classmethod
    def from_config(cls, model: PreTrainedModel, positions: int, dtype: str, config: Any) -> TorchEngine:
        return cls(model, config.engine_memory_gib, dtype)

    @property
    def description(self) -> str:
        return f"torch, {self.precision}, one copy of each prompt for all of its rollouts"

    def generate(
        self, requests: list[Request], sampling: Sampling, on_progress: Progress | None = None
    ) -> Iterator[tuple[int, Group]]:
        """Yield groups as in `Engine.generate`, short prompts first; the groups of a batch end together."""
        config = self.model.config.get_text_config()
        check(requests, sampling, config.vocab_size, getattr(config, "max_position_embeddings", None))
        groups = [Group(list(request.prompt)) for request in requests]
        by_length = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt))  # little padding in a batch
        rollouts = [(i, requests[i].first + k) for i in by_length for k in range(requests[i].n)]
        size = self.batch_size(requests, sampling)
        for start in range(0, len(rollouts), size):
            batch = rollouts[start : start + size]
            for (i, _), response in zip(batch, self.decode(requests, batch, sampling, on_progress), strict=True):
                groups[i].add(*response)
                if len(groups[i].responses) == requests[i].n:
                    yield i, groups[i]

    def batch_size(self, requests: list[Request], sampling: Sampling) -> int:
        """Return the largest size of equal batches for `memory_gib`; on a CPU at most 4,096 rollouts fit its caches.

        From 4,096 rollouts on there are two batches or more, so that one is judged while the next one decodes. Small
        batches are slow on a CPU: compared with 4,096 rollouts a token costs 13% more at 2,048 and 60% more at 1,024
        (embedded policy, Xeon).
        """
        total, n = sum(request.n for request in requests), min((request.n for request in requests), default=1)
        longest = max((len(request.prompt) for request in requests), default=0)
        most = int(self.memory_gib * 2**30 / bytes_per_row(self.model, n, longest, sampling.max_new_tokens))
        most = max(1, min(most, 4096) if self.model.device.type == "cpu" else most)
        batches = max(math.ceil(total / most), 2 if total >= 4096 else 1)
        return math.ceil(total / batches) or 1

    def decode(
        self, requests: list[Request], batch: list[tuple[int, int]], sampling: Sampling, on_progress: Progress | None
    ) -> list[tuple[list[int], list[float], str]]:
        """Sample a batch; return (response, log-probs, finish reason) of each rollout.

        batch: (index of a request, rollout number). The rollouts of a prompt start as one row, which splits later.
        """
        device, limit = self.model.device, sampling.max_new_tokens
        stop = torch.tensor(sampling.stop_token_ids, dtype=torch.long, device=device)
        tokens = torch.zeros(len(batch), limit, dtype=torch.long, device=device)  # (rollouts, limit)
        logprobs = torch.zeros(len(batch), limit, device=device)  # (rollouts, limit)
        length = torch.zeros(len(batch), dtype=torch.long, device=device)  # (rollouts,)
        seed, number = torch.tensor([(requests[i].seed, k) for i, k in batch], device=device).T
        stream = hashed(hashed(seed) + number)  # (rollouts,) a stream of random numbers for each
        row_of = {i: row for row, i in enumerate(dict.fromkeys(i for i, _ in batch))}  # at first a row is a prompt
        row = torch.tensor([row_of[i] for i, _ in batch], device=device)  # (active,) of each rollout
        active = torch.arange(len(batch), device=device)  # (active,) the rollouts that have not ended
        with inference(self.model, self.precision):
            decoder = PrefixDecoder(self.model, [requests[i].prompt for i in row_of], limit)
            logits = decoder.logits  # (rows, V)
            for t in range(limit):
                logp = sampling_logprobs(logits, sampling.temperature, sampling.top_p, sampling.top_k)  # (rows, V)
                if sampling.temperature == 0:
                    token = logp.argmax(-1)[row]  # (active,)
                else:
                    token = draw(logp, row, uniforms(stream[active], t))  # (active,)
                tokens[active, t], logprobs[active, t] = token, logp[row, token]
                length[active] = t + 1
                ended = torch.isin(token, stop) | (t + 1 == limit)  # (active,)
                if on_progress:
                    on_progress(int(ended.sum()))
                active, row, token = active[~ended], row[~ended], token[~ended]
                if not len(active):
                    break
                row, logits = decoder.advance(row, token)
        return [
            (response[:end], logp[:end], "stop" if response[end - 1] in sampling.stop_token_ids else "length")
            for response, logp, end in zip(tokens.tolist(), logprobs.tolist(), length.tolist(), strict=True)
        ]

    def sync(self, model: torch.nn.Module) -> None:
        """Copy the weights, unless `model` is the engine's own."""
        if model is not self.model:
            weights = self.model.state_dict()
            for name, tensor in whole_tensors(model):
                weights[name].copy_(tensor)


class VLLMEngine(Engine):
    """N rollouts per prompt by vLLM, without a server or a second process.

    positions: most tokens of prompt and response. max_num_seqs: rollouts that decode at a time. memory_gib: key-value
    cache on a CPU. gpu_memory_utilization: share of a GPU for weights and cache. options: arguments of vllm.LLM.

    vLLM computes a prompt once per group; only its last block, 16 tokens (32 on a CPU), is computed for each rollout.
    With several processes (torch.distributed) each one makes its engine, at the same time.
    """

    needs_whole_model = False

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int | None = None,
        max_num_seqs: int = 512,
        memory_gib: float = 2.0,
        gpu_memory_utilization: float = 0.5,
        dtype: str | None = None,  # None: bfloat16 on a GPU, float32 on a CPU
        **options: Any,
    ):
        self.precision = dtype or ("float32" if model.device.type == "cpu" else "bfloat16")
        options = {"max_model_len": positions, "max_num_seqs": max_num_seqs} | options
        self.llm = start_llm(model, self.precision, memory_gib, gpu_memory_utilization, options)
        config = self.llm.llm_engine.vllm_config.model_config
        self.positions, self.can_sleep = config.max_model_len, config.enable_sleep_mode
        self.vocabulary, self.asleep = model.config.get_text_config().vocab_size, False
        self.sync(model)

    @classmethod
    def from_config(cls, model: PreTrainedModel, positions: int, dtype: str, config: Any) -> VLLMEngine:
        max_num_seqs = config.max_num_seqs or max_seqs(model, dtype, config)
        return cls(model, positions, max_num_seqs, config.engine_memory_gib, config.gpu_memory_utilization, dtype)

    @property
    def description(self) -> str:
        config = self.llm.llm_engine.vllm_config
        scheduling = "asynchronous" if config.scheduler_config.async_scheduling else "synchronous"
        return f"vLLM, {self.precision}, {config.scheduler_config.max_num_seqs} rollouts at a time, {scheduling}"

    def generate(
        self, requests: list[Request], sampling: Sampling, on_progress: Progress | None = None
    ) -> Iterator[tuple[int, Group]]:
        """Yield groups as in `Engine.generate`. vLLM starts the requests in order, max_num_seqs rollouts at a time.

        A request becomes one request to vLLM, which gives rollout i the seed h + i. h is a hash of the request's seed:
        it keeps the seeds of two requests apart.
        """
        check(requests, sampling, self.vocabulary, self.positions)
        seeds = [(int(hashed(torch.tensor(request.seed))) & (2**62 - 1)) + request.first for request in requests]
        settings = [sampling_params(request.n, seed, sampling) for request, seed in zip(requests, seeds, strict=True)]
        self.wake()
        engine = self.llm.llm_engine
        try:
            for i, request in enumerate(requests):
                engine.add_request(str(i), {"type": "token", "prompt_token_ids": list(request.prompt)}, settings[i])
            while unfinished := engine.get_num_unfinished_requests():  # vLLM counts rollouts
                outputs = {int(output.request_id): output for output in step(self.llm)}
                if on_progress:  # a greedy rollout stands for n
                    more = sum(requests[i].n - len(output.outputs) for i, output in outputs.items())
                    on_progress(unfinished - engine.get_num_unfinished_requests() + more)
                for i, output in outputs.items():
                    yield i, self.group(requests[i], output)
        finally:
            abort(self.llm)

    @staticmethod
    def group(request: Request, output: Any) -> Group:
        """Translate vLLM's output of a request. Raises RuntimeError if rollouts are missing or were aborted."""
        group = Group(list(request.prompt))
        for o in output.outputs * (request.n // len(output.outputs)):  # a greedy rollout stands for n
            group.add(list(o.token_ids), list(o.logprobs.logprobs), o.finish_reason)
        if len(group.responses) != request.n or not {"stop", "length"}.issuperset(group.finish_reasons):
            raise RuntimeError(f"vLLM returned {len(group.responses)} of {request.n}: {set(group.finish_reasons)}")
        return group

    def sync(self, model: torch.nn.Module) -> None:
        """Load the weights of `model` now, or when the engine wakes."""
        self.source = model
        if not self.asleep:
            load_weights(self.llm, model)

    def sleep(self) -> None:
        """Free weights and key-value cache (vLLM's level 2). On a CPU vLLM cannot sleep."""
        if self.can_sleep and not self.asleep:
            self.llm.sleep(level=2)
            self.asleep = True

    def wake(self) -> None:
        """Allocate the memory again and load the weights of the last `sync`."""
        if self.asleep:
            with note("If memory is short next to the trainer, lower --gpu_memory_utilization"):
                self.llm.wake_up(tags=["weights"])
                load_weights(self.llm, self.source)
                self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False

    def close(self) -> None:
        """End vLLM, which also ends torch.distributed. A sleeping engine wakes first, or it frees its memory twice."""
        if self.asleep:
            self.llm.wake_up()
        self.llm.llm_engine.engine_core.shutdown()


ENGINES: dict[str, type[TorchEngine] | type[VLLMEngine]] = {"torch": TorchEngine, "vllm": VLLMEngine}  # --engine
