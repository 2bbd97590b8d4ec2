"""BroRL, section 4.2.4: N rollouts τ_1 ... τ_N of one prompt x as one cheap operation.

The paper: a larger N shifts generation from memory-bound to compute-bound, and nearly doubles its speed, from 36.5
samples/s at N = 16 to 72.4 at N = 512 (abstract, table 2). How to draw the rollouts is ours.

An engine draws a rollout token by token and returns the log-prob of each drawn token. loss.py needs it for truncated
importance sampling (section 3.1), ρ = π_old / π_engine:

    τ_t ~ π_engine(· | x, τ_<t)              softmax(logits / temperature), cut by top-k and top-p
    log π_engine(τ_t | x, τ_<t)              one number per token, the stop token included

Training samples without a cut, evaluations with temperature 0.6 and top-p 0.95 (appendix D). There are two engines:

    TorchEngine   plain torch, with the trained weights themselves; for a CPU and for reading
    VLLMEngine    vLLM in the same process, one request for the rollouts of a prompt; for GPUs

TorchEngine holds one copy of a prompt's keys and values. With a prompt of L tokens, one rollout costs

                                             shared        not shared
    tokens of the prompt to compute          L / N         L
    keys and values to read at token t       L / N + t     L + t

so a larger N saves much for long prompts, and little for long responses. Rollouts with equal tokens also share a row
until they differ: logits have the shape (rows, V), V the vocabulary. (rollouts,) is one number for each rollout,
(active,) for each one that has not ended.

Three numbers fix the random number of a token: the request's seed, the rollout's number and the token's position. So a
group can be split: a request for rollouts 0 to 511 draws the same tokens as two requests with its seed, for 0 to 255
and for 256 to 511, on any ranks. A rollout's logits can round differently if other rollouts decode together with it. If
that changes a token, it changes the rest of the rollout.

engines/prefix.py has the attention of many rows to one prompt. engines/vllm.py starts vLLM and loads its weights.
A third engine is a subclass of `Engine` and an entry in `ENGINES`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from engines.memory import bytes_per_row, decoding_bytes, keep_freed_memory, max_seqs
from engines.model import inference, whole_tensors
from engines.prefix import PrefixDecoder, check_attention
from engines.vllm import load_weights, note_on_error, sampling_params, start_llm, vllm_abort, vllm_step


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
    """Rollouts `first` to `first + n - 1` of a prompt. The seed and a rollout's number fix its random numbers."""

    prompt: list[int]
    n: int
    seed: int  # 0 to 2^62
    first: int = 0


@dataclass(eq=False)
class Group:
    """The rollouts of a request, on the CPU: a prompt's N, or a rank's share of them. Row i is rollout `first` + i."""

    prompt: list[int]
    tokens: Tensor  # (N, T) int32, the responses with their stop tokens, padded with 0
    logp: Tensor  # (N, T) float32, log π_engine of the tokens, padded with 0
    lengths: Tensor  # (N,) int64
    truncated: Tensor  # (N,) bool: ended by the limit, not by a stop token

    @classmethod
    def of(cls, prompt: list[int], responses: list[list[int]], logprobs: list[list[float]], ends: list[str]) -> Group:
        """Make a group of lists; an end is "stop" or "length". numpy reads lists four times as fast as torch."""
        tokens, logp = (
            pad_sequence([torch.from_numpy(np.array(row, dtype)) for row in rows], batch_first=True)
            for rows, dtype in ((responses, np.int32), (logprobs, np.float32))
        )
        truncated = torch.tensor([end == "length" for end in ends])
        return cls(prompt, tokens, logp, torch.tensor([len(row) for row in responses]), truncated)

    @classmethod
    def joined(cls, parts: list[Group]) -> Group:
        """Join the parts of a request that were drawn one after the other, without columns that are padding only."""
        lengths = torch.cat([part.lengths for part in parts])
        tokens, logp = (
            torch.cat([getattr(part, name)[:, : lengths.max()] for part in parts]) for name in ("tokens", "logp")
        )
        return cls(parts[0].prompt, tokens, logp, lengths, torch.cat([part.truncated for part in parts]))

    def __len__(self) -> int:
        """N."""
        return len(self.tokens)

    @property
    def responses(self) -> list[list[int]]:
        """The responses as lists: to read, and for the tools. Training uses the tensors."""
        return [row[:end] for row, end in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]

    @property
    def logprobs(self) -> list[list[float]]:
        return [row[:end] for row, end in zip(self.logp.tolist(), self.lengths.tolist(), strict=True)]


OnProgress = Callable[[int], object]  # called with the number of rollouts that ended since its last call


class Engine(ABC):
    """The methods that the trainer calls. A subclass writes the abstract ones; the others do nothing by default."""

    needs_whole_model = True  # under FSDP2 the trainer passes an unsharded copy of the model

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a class that lacks a method. ABC alone would do so for objects, after `from_config`."""
        super().__init_subclass__()
        abstract = sorted(Engine.__abstractmethods__)
        if missing := [name for name in abstract if getattr(getattr(cls, name), "__isabstractmethod__", False)]:
            raise TypeError(f"the engine {cls.__name__} lacks {', '.join(missing)}: see rollout.Engine")

    @classmethod
    @abstractmethod
    def from_config(cls, model: PreTrainedModel, positions: int, dtype: str, config: Any) -> Engine:
        """Make the engine of a run with these settings.

        positions: most tokens of prompt and response together. dtype: "float32" or "bfloat16", to compute in. config:
        all settings of the run; both engines read gpu_memory_utilization.
        """

    @property
    @abstractmethod
    def description(self) -> str:
        """Describe the engine in a few words, for the start of a run."""

    @abstractmethod
    def generate(
        self, requests: list[Request], sampling: Sampling, on_progress: OnProgress | None = None
    ) -> Iterator[tuple[int, Group]]:
        """Yield (index of a request, its group) as groups end. Closing the iterator stops the work.

        The log-probs are those of the distribution that was sampled from (`sampling_logprobs`). If tokens depend only
        on the seed of a request and the number of a rollout, a step is the same on any number of ranks. Raises
        ValueError for an invalid request, when the caller asks for the first group.
        """

    @abstractmethod
    def sync(self, model: torch.nn.Module) -> None:
        """Sample from the weights of `model` (plain, DDP or FSDP2) from now on."""

    def sleep(self) -> None:  # noqa: B027
        """Free memory for the trainer."""

    def wake(self) -> None:  # noqa: B027
        """Allocate the memory again."""

    def close(self) -> None:  # noqa: B027
        """End the engine. No collective operation may follow."""


def check_requests(requests: list[Request], sampling: Sampling, vocabulary: int, positions: int | None) -> None:
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
    set of tokens with a mass of at least top_p. temperature 0 (the caller takes the argmax): log π at 1, without a cut.
    """
    logp = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    vocabulary = logp.shape[-1]
    k = min(top_k or vocabulary, vocabulary)
    if temperature == 0 or (k == vocabulary and top_p == 1):
        return logp
    ordered, index = logp.sort(dim=-1, descending=True)
    ordered[:, k:] = -torch.inf
    if top_p < 1:  # at 1, rounding errors would remove the last few tokens
        p = ordered.exp()
        mass_before = p.cumsum(-1) - p
        ordered[mass_before >= top_p * p.sum(-1, keepdim=True)] = -torch.inf
    return torch.log_softmax(torch.full_like(logp, -torch.inf).scatter(-1, index, ordered), dim=-1)


def draw(logp: Tensor, row: Tensor, uniform: Tensor) -> Tensor:
    """Sample one token per rollout, (rollouts,): rollout i samples from row[i] of logp (rows, V).

    uniform: (rollouts,) in (0, 1]. The token is the first with cdf >= uniform[i] times the row's total. uniform is
    above 0, so a token of probability 0 is never drawn. In a float32 cdf a token of probability 1e-7 could lose its
    share. Bisection reads log2(V) numbers per rollout; torch.searchsorted would copy a row of V for each.
    """
    cdf = logp.exp().cumsum(-1, dtype=torch.float64)
    threshold = uniform * cdf[row, -1]
    low = torch.zeros_like(row)
    high = torch.full_like(row, logp.shape[1] - 1)
    for _ in range(logp.shape[1].bit_length()):  # low <= token <= high
        middle = (low + high) // 2
        reached = cdf[row, middle] >= threshold
        low = torch.where(reached, low, middle + 1)
        high = torch.where(reached, middle, high)
    return low


def uniforms(stream: Tensor, t: int) -> Tensor:
    """Return float64 in (0, 1] for token t, (rollouts,). stream: int64, a hash of each rollout's seed and number."""
    return (shift_right(splitmix64(stream + t), 11) + 1).double() * 2.0**-53


def splitmix64(x: Tensor) -> Tensor:
    """Apply one step of the generator SplitMix64. int64 stands for uint64: products and constants wrap around."""
    x = x + (0x9E3779B97F4A7C15 - 2**64)
    x = (x ^ shift_right(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ shift_right(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ shift_right(x, 31)


def shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift int64 as if it were uint64: the mask clears the copies of the sign bit."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


class TorchEngine(Engine):
    """N rollouts per prompt in plain torch, for the models of transformers whose attention can be replaced.

    model                    the policy itself, not a copy
    gpu_memory_utilization   share of a GPU's free memory for decoding, in addition to the weights. It limits the
                             rollouts that decode together. On a CPU they get 2 GiB
    dtype                    "bfloat16" decodes under autocast, with weights rounded by `dithered`; otherwise the
                             model's own type

    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("tiny/policy")
    >>> engine = TorchEngine(AutoModelForCausalLM.from_pretrained("tiny/policy"))
    >>> request = Request(tokenizer("1569:20=").input_ids, n=512, seed=0)
    >>> ((_, group),) = engine.generate([request], Sampling(max_new_tokens=12, stop_token_ids=(0,)))
    >>> len(group), group.tokens.shape == group.logp.shape, group.truncated.any().item()
    (512, True, False)
    """

    def __init__(self, model: PreTrainedModel, gpu_memory_utilization: float = 0.5, dtype: str | None = None):
        self.model, self.decoding_bytes = model, decoding_bytes(model.device, gpu_memory_utilization)
        self.precision = dtype if dtype == "bfloat16" else str(model.dtype).removeprefix("torch.")
        if model.device.type == "cpu":
            keep_freed_memory()
        check_attention(model)

    @classmethod
    def from_config(cls, model: PreTrainedModel, positions: int, dtype: str, config: Any) -> TorchEngine:
        return cls(model, config.gpu_memory_utilization, dtype)

    @property
    def description(self) -> str:
        return f"torch, {self.precision}, one copy of each prompt for all of its rollouts"

    def generate(
        self, requests: list[Request], sampling: Sampling, on_progress: OnProgress | None = None
    ) -> Iterator[tuple[int, Group]]:
        """Draw as `Engine.generate` says, short prompts first. After each chunk, yield the groups that are complete."""
        text_config = self.model.config.get_text_config()
        check_requests(
            requests, sampling, text_config.vocab_size, getattr(text_config, "max_position_embeddings", None)
        )
        parts: list[list[Group]] = [[] for _ in requests]  # of each request, one for each of its chunks
        by_length = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt))  # little padding in a chunk
        numbered = [(i, requests[i].first + k) for i in by_length for k in range(requests[i].n)]
        size = self.chunk_size(requests, sampling)
        for start in range(0, len(numbered), size):
            chunk = numbered[start : start + size]
            columns = self.decode(requests, chunk, sampling, on_progress)
            count = Counter(i for i, _ in chunk)  # the rollouts of a request are next to each other
            for i, *rows in zip(count, *(x.split([*count.values()]) for x in columns), strict=True):
                parts[i].append(Group(list(requests[i].prompt), *rows))
                if sum(map(len, parts[i])) == requests[i].n:
                    yield i, Group.joined(parts[i])
                    parts[i] = []

    def chunk_size(self, requests: list[Request], sampling: Sampling) -> int:
        """Return how many rollouts decode at a time: as many as decoding_bytes holds, on a CPU at most 4,096.

        A call for 4,096 rollouts or more has at least two chunks: the caller judges one while the next decodes.
        Smaller chunks are slower on a CPU.
        """
        total = sum(request.n for request in requests)
        if not total:
            return 1
        fewest, longest = min(request.n for request in requests), max(len(request.prompt) for request in requests)
        row_bytes = bytes_per_row(self.model, fewest, longest, sampling.max_new_tokens)
        fit = max(1, int(self.decoding_bytes / row_bytes))
        if self.model.device.type == "cpu":
            fit = min(fit, 4096)  # larger chunks no longer fit the caches of a processor
        chunks = math.ceil(total / fit)
        if total >= 4096:
            chunks = max(chunks, 2)
        return math.ceil(total / chunks)

    def decode(
        self, requests: list[Request], chunk: list[tuple[int, int]], sampling: Sampling, on_progress: OnProgress | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw a chunk, the rollouts that decode together. Returns tokens, logp, lengths and truncated of a `Group`.

        chunk: a pair (index of a request, rollout number) for each rollout. The rollouts of a prompt start as one row,
        which splits later.
        """
        device, limit = self.model.device, sampling.max_new_tokens
        stop = torch.tensor(sampling.stop_token_ids, dtype=torch.long, device=device)
        tokens = torch.zeros(len(chunk), limit, dtype=torch.int32, device=device)  # (rollouts, limit)
        logprobs = torch.zeros(len(chunk), limit, device=device)  # (rollouts, limit)
        length = torch.zeros(len(chunk), dtype=torch.long, device=device)  # (rollouts,)
        truncated = torch.zeros(len(chunk), dtype=torch.bool, device=device)  # (rollouts,)
        seed, number = torch.tensor([(requests[i].seed, k) for i, k in chunk], device=device).T
        stream = splitmix64(splitmix64(seed) + number)  # (rollouts,) names each one's stream of random numbers
        asked = list(dict.fromkeys(i for i, _ in chunk))  # the requests of the chunk; at first each has one row
        row_of = {i: row for row, i in enumerate(asked)}
        row = torch.tensor([row_of[i] for i, _ in chunk], device=device)  # (active,)
        active = torch.arange(len(chunk), device=device)  # (active,) positions in the chunk
        with inference(self.model, self.precision):  # no gradient, evaluation mode, the engine's precision
            decoder = PrefixDecoder(self.model, [requests[i].prompt for i in asked], limit)
            logits = decoder.logits  # (rows, V)
            for t in range(limit):
                # log π_engine(· | x, τ_<t), (rows, V)
                logp = sampling_logprobs(logits, sampling.temperature, sampling.top_p, sampling.top_k)
                if sampling.temperature == 0:
                    token = logp.argmax(-1)[row]  # (active,)
                else:
                    token = draw(logp, row, uniforms(stream[active], t))  # (active,)
                tokens[active, t], logprobs[active, t] = token.int(), logp[row, token]
                length[active] = t + 1
                stopped = torch.isin(token, stop)  # (active,)
                ended = stopped | (t + 1 == limit)
                truncated[active] = ended & ~stopped
                going_on = (~ended).nonzero().squeeze(-1)  # waits for a GPU once, a bool index in each of its uses
                if on_progress:
                    on_progress(len(active) - len(going_on))
                active, row, token = active[going_on], row[going_on], token[going_on]
                if not len(active):
                    break
                row, logits = decoder.advance(row, token)
        return tokens.cpu(), logprobs.cpu(), length.cpu(), truncated.cpu()

    def sync(self, model: torch.nn.Module) -> None:
        """Copy the weights, unless `model` is the engine's own.

        With --lora_rank the copies are merged weights, rounded by `dithered` if the model has bfloat16 weights.
        """
        if model is not self.model:
            weights = self.model.state_dict()
            for name, tensor in whole_tensors(model, self.model.dtype):
                weights[name].copy_(tensor)


class VLLMEngine(Engine):
    """N rollouts per prompt by vLLM, without a server or a second process.

    positions: most tokens of prompt and response. max_num_seqs: rollouts that decode at a time.
    gpu_memory_utilization: share of a GPU for weights and cache; on a CPU the cache has 2 GiB, or
    VLLM_CPU_KVCACHE_SPACE. options: arguments of vllm.LLM.

    For one request vLLM computes the full blocks of a prompt once (16 tokens each, 32 on a CPU), and its last block N
    times. With several processes (torch.distributed) all of them make their engines at the same time.
    """

    needs_whole_model = False

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int | None = None,
        max_num_seqs: int = 512,
        gpu_memory_utilization: float = 0.5,
        dtype: str | None = None,  # None: bfloat16 on a GPU, float32 on a CPU
        **options: Any,
    ):
        self.precision = dtype or ("float32" if model.device.type == "cpu" else "bfloat16")
        options = {"max_model_len": positions, "max_num_seqs": max_num_seqs} | options
        self.llm = start_llm(model, self.precision, gpu_memory_utilization, options)
        config = self.llm.llm_engine.vllm_config.model_config
        self.positions, self.can_sleep = config.max_model_len, config.enable_sleep_mode
        self.vocabulary = model.config.get_text_config().vocab_size
        self.asleep = False
        self.sync(model)

    @classmethod
    def from_config(cls, model: PreTrainedModel, positions: int, dtype: str, config: Any) -> VLLMEngine:
        return cls(model, positions, max_seqs(model, dtype, config), config.gpu_memory_utilization, dtype)

    @property
    def description(self) -> str:
        config = self.llm.llm_engine.vllm_config
        scheduling = "asynchronous" if config.scheduler_config.async_scheduling else "synchronous"
        return f"vLLM, {self.precision}, {config.scheduler_config.max_num_seqs} rollouts at a time, {scheduling}"

    def generate(
        self, requests: list[Request], sampling: Sampling, on_progress: OnProgress | None = None
    ) -> Iterator[tuple[int, Group]]:
        """Yield groups as in `Engine.generate`. vLLM starts the requests in order, max_num_seqs rollouts at a time.

        vLLM gives rollout k the seed h + k. h is a hash of the request's seed, which keeps two requests apart.
        """
        check_requests(requests, sampling, self.vocabulary, self.positions)
        seeds = [(int(splitmix64(torch.tensor(request.seed))) & (2**62 - 1)) + request.first for request in requests]
        settings = [sampling_params(request.n, seed, sampling) for request, seed in zip(requests, seeds, strict=True)]
        self.wake()
        engine = self.llm.llm_engine
        try:
            for i, request in enumerate(requests):
                engine.add_request(str(i), {"type": "token", "prompt_token_ids": list(request.prompt)}, settings[i])
            while unfinished := engine.get_num_unfinished_requests():  # vLLM counts rollouts
                outputs = {int(output.request_id): output for output in vllm_step(self.llm)}
                if on_progress and sampling.temperature == 0:  # vLLM counts one rollout for a greedy request
                    on_progress(sum(requests[i].n for i in outputs))
                elif on_progress:
                    on_progress(unfinished - engine.get_num_unfinished_requests())
                for i, output in outputs.items():
                    yield i, self.group(requests[i], output, greedy=sampling.temperature == 0)
        finally:
            vllm_abort(self.llm)

    @staticmethod
    def group(request: Request, output: Any, greedy: bool) -> Group:
        """Translate vLLM's output of a request. Raises RuntimeError if rollouts are missing or were aborted."""
        drawn = output.outputs * (request.n if greedy else 1)  # vLLM draws one rollout for a greedy request
        ends = [completion.finish_reason for completion in drawn]
        if len(drawn) != request.n or not {"stop", "length"}.issuperset(ends):
            raise RuntimeError(f"vLLM returned {len(drawn)} of {request.n} rollouts, which ended by {set(ends)}")
        return Group.of(list(request.prompt), [x.token_ids for x in drawn], [x.logprobs.logprobs for x in drawn], ends)

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
            with note_on_error("If memory is short next to the trainer, lower --gpu_memory_utilization"):
                self.llm.wake_up(tags=["weights"])
                load_weights(self.llm, self.source)
                self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False

    def close(self) -> None:
        """End vLLM, and with it torch.distributed. Wakes first: vLLM would free sleeping memory twice."""
        if self.asleep:
            self.llm.wake_up()
        self.llm.llm_engine.engine_core.shutdown()


ENGINES: dict[str, type[Engine]] = {"torch": TorchEngine, "vllm": VLLMEngine}  # --engine
