"""BroRL, section 4.2.4: N rollouts of one prompt as one cheap operation.

The paper's throughput argument (table 2): a wide group turns memory-bound decoding into compute-bound work. Two
engines do it behind one protocol, `Engine`, and return the same `Group`s:

    TorchEngine   plain torch, on the very weights that are trained; it reads a prompt once, in `_prefill`
    VLLMEngine    vLLM in the same process, for models worth a GPU; a group is one request of n = N

TorchEngine computes every distinct prefix once: the prompt, and what rollouts draw alike before they part. It keeps the
prompt's keys and values once for the whole group, whose queries attend to that one copy (engines/prefix.py). Where a
model's attention cannot be replaced, every line gets a copy of the cache instead (engines/decoders.py). The engine
finds out by itself, and `why_copied` says why.

    name here      meaning
    G, N           prompts in a wave, rollouts per prompt
    wave           the rows that decode together, as many as `memory_gib` admits
    width          rows of each prompt in a wave; N, unless a group is wider than a wave
    R, U, V        rows decoding now (R <= G·width), lines: their distinct prefixes (U <= R), vocabulary
    L, Hk, D       prompt tokens (longest of the wave), key heads, head width

A third engine is a third class in this file with the members of `Engine`, its name in `VALUES["engine"]` of
trainer/checks.py, and its branch in `make_engine` of trainer/start.py. What makes it work is a file of engines/; those
files know nothing of this one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from engines import vllm as backend
from engines import vllm_requests
from engines.decoders import CopyDecoder, Drawn, SharedDecoder, Uniforms, advance, why_not_shared
from engines.memory import keep_freed_memory, row_bytes, wave_rows
from engines.settle import prompt_seeds, settle
from engines.vllm import EngineError as EngineError  # the trainer takes it from here
from engines.vllm import have_vllm
from engines.weights import whole_tensors


@dataclass
class Group:
    """The N rollouts of one prompt: tokens, each token's log-prob as sampled, and why each one ended.

    A response holds its stop token, if it ended with one: it was sampled, so it is trained on.
    """

    prompt: list[int]
    responses: list[list[int]]
    logprobs: list[list[float]]
    finish_reasons: list[str]  # "stop" or "length"

    def add(self, responses: list[list[int]], logprobs: list[list[float]], finish_reasons: list[str]) -> None:
        self.responses += responses
        self.logprobs += logprobs
        self.finish_reasons += finish_reasons


class Order(NamedTuple):
    """Rollouts that are decoded together: of each prompt's N, the numbers `first` to `first + n`.

    A rollout follows from its prompt's seed, its number and N: it is the same whoever draws it, and beside whatever.
    """

    prompts: list[list[int]]
    n: int
    seeds: list[int]  # one a prompt
    first: int = 0
    of: int | None = None  # N; None: n


class Engine(Protocol):
    """What the trainer asks of an engine: `generate` for a list of prompts, `stream` for a list of orders."""

    model: PreTrainedModel  # the policy, as the trainer holds it
    order_rows: int  # about so many rollouts make an order that it decodes well

    @property
    def decoding(self) -> str: ...  # how it decodes, in a few words for the start of a run
    @property
    def precision(self) -> str: ...  # "float32", "bfloat16", ...: how closely the trainer's log-probs can agree
    def generate(
        self, prompts: list[list[int]], n: int, *, max_new_tokens: int | None, temperature: float, top_p: float = 1.0,
        top_k: int = 0, stop_token_ids: list[int] | None, seed: int | list[int], first: int = 0, of: int | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> list[Group]: ...  # fmt: skip
    # The number of an order and its groups come as soon as it is done. What on_progress raises ends the stream.
    def stream(self, orders: list[Order], *, on_progress=None, **sampling) -> Iterator[tuple[int, list[Group]]]: ...
    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int: ...  # while decoding
    def sync(self, model: torch.nn.Module) -> None: ...  # sample from these weights from now on
    def sleep(self) -> None: ...  # the trainer's turn: give back what memory it can
    def wake(self) -> None: ...
    def facts(self) -> dict[str, float]: ...  # of its work since the last call, for timing.jsonl
    def close(self) -> None: ...


def sampling_logprobs(logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """log π of what is really sampled from: logits / temperature, then top-k, then top-p, renormalised.

    logits: (U, V) in any float type; the result is (U, V) float32, -inf on what was cut. top_p keeps the
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
    if top_p < 1:  # at 1, rounding would cut the last few
        ordered = ordered.masked_fill(mass_before >= top_p * ordered.exp().sum(-1, keepdim=True), -torch.inf)
    return torch.log_softmax(torch.full_like(logp, -torch.inf).scatter(-1, index, ordered), dim=-1)


def draw(logp: Tensor, greedy: bool, uniform: Tensor, line: Tensor) -> tuple[Tensor, Tensor]:
    """One token a row and its log-prob, each (R,), from log-probs (U, V), of which `line` (R,) says a row's.

    The cdf is inverted at the row's uniform (R,), in float64, so that a token of probability 1e-7 still has its share:
    the first token whose cdf reaches it, by bisection. Uniforms are in (0, 1], so none of probability 0 is drawn.
    """
    if greedy:
        token = logp.argmax(-1)[line]
        return token, logp[line, token]
    cdf = logp.exp().cumsum(-1, dtype=torch.float64)
    wanted, token, last = uniform * cdf[line, -1], torch.zeros_like(line), torch.full_like(line, logp.shape[1] - 1)
    for _ in range(logp.shape[1].bit_length()):  # it is one of token ... last
        middle = (token + last) // 2
        reached = cdf[line, middle] >= wanted
        token, last = torch.where(reached, token, middle + 1), torch.where(reached, middle, last)
    return token, logp[line, token]


class TorchEngine:
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

    order_rows = 4096  # wider waves fall out of a CPU's caches; of 512 rows the embedded policy decodes half as fast

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

    @property
    def precision(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def decoding(self) -> str:
        return f"copied prompt caches ({self.why_copied})" if self.why_copied else "one shared prompt cache per group"

    @torch.no_grad()
    def generate(
        self, prompts: list[list[int]], n: int, *, max_new_tokens: int | None = None, temperature: float = 1.0,
        top_p: float = 1.0, top_k: int = 0, stop_token_ids: list[int] | None = None, seed: int | list[int] = 0,
        first: int = 0, of: int | None = None, on_progress: Callable[[float], None] | None = None,
    ) -> list[Group]:  # fmt: skip
        """`n` rollouts of each prompt, one `Group` a prompt, in order.

        max_new_tokens, stop_token_ids: default, what the model's generation config says. seed: one for all, or one a
        prompt, from which its rollouts follow, whatever other prompts there are. first, of: as in `Order`.
        on_progress: is called after every step with how many rollouts it ended.
        Raises ValueError before anything is computed if a setting or a prompt cannot work.
        """
        max_new_tokens, stop_token_ids = settle(
            self.model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids
        )
        seeds = prompt_seeds(seed, len(prompts))
        sampling: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        groups = [Group(list(prompt), [], [], []) for prompt in prompts]
        by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # little padding in a wave
        was_training = self.model.training
        self.model.eval()
        try:
            while by_length:
                rows, _ = self._wave_size(n, len(prompts[by_length[-1]]), max_new_tokens)
                wave, by_length = by_length[: max(1, rows // n)], by_length[max(1, rows // n) :]
                read = self._prefill([prompts[i] for i in wave])
                for start in range(0, n, rows):  # more than once only if one group is wider than a wave
                    width = min(rows, n - start)
                    uniforms = Uniforms([seeds[i] for i in wave], of or n, first + start, width, self.model.device)
                    drawn = self._wave(*read, width, max_new_tokens, stop_token_ids, uniforms, on_progress, **sampling)
                    for i, rollouts in zip(wave, drawn.by_prompt(width), strict=True):
                        groups[i].add(*rollouts)
        finally:
            self.model.train(was_training)
        return groups

    def stream(self, orders: list[Order], **sampling) -> Iterator[tuple[int, list[Group]]]:
        """One order after the other, each given back before the next begins. sampling: the keywords of `generate`."""
        for number, (prompts, n, seeds, first, of) in enumerate(orders):
            yield number, self.generate(prompts, n, seed=seeds, first=first, of=of, **sampling)

    def _prefill(self, prompts: list[list[int]]) -> tuple[DynamicCache, Tensor, Tensor]:
        """The one forward pass over each prompt.

        Returns the cache, keys and values of [G, Hk, L, D] a layer, left-padded; lengths (G,); last logits (G, V).
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

    def _wave(
        self, cache: DynamicCache, lengths: Tensor, logits: Tensor, width: int,
        max_new_tokens: int, stop_token_ids: list[int], uniforms: Uniforms,
        on_progress: Callable[[float], None] | None = None, **sampling,
    ) -> Drawn:  # fmt: skip
        """Decode `width` rows of each prompt to their end. cache, lengths, logits: what `_prefill` returned.

        Rows that drew the same so far are one line of the decoder: first a line a prompt, at last a line a row.
        """
        line = torch.arange(len(lengths), device=logits.device).repeat_interleave(width)  # (R,) each row's
        drawn = Drawn(len(line), max_new_tokens, stop_token_ids, logits.device)
        decoder = self.decoder(self.model, cache, lengths, max_new_tokens)
        row = torch.arange(len(line), device=logits.device)  # which rows still decode
        logp = sampling_logprobs(logits, **sampling)  # (U, V)
        for t in range(max_new_tokens):
            token, token_logp = draw(logp, sampling["temperature"] == 0, uniforms.of(t, row), line)
            going = drawn.write(t, row, token, token_logp)
            if on_progress:
                on_progress(len(row) - len(going))
            row, line, token = row[going], line[going], token[going]
            if not len(row):
                break
            line, token = advance(decoder, line, token)
            logp = sampling_logprobs(decoder.step(token), **sampling)
        return drawn

    def _wave_size(self, n: int, prompt_tokens: int, max_new_tokens: int) -> tuple[int, float]:
        """How many rows decode at once within `memory_gib`, and the bytes of one, its share of the prompt included."""
        row = row_bytes(self.model, self.decoder is CopyDecoder, n, prompt_tokens, max_new_tokens)
        return wave_rows(self.model, self.memory_gib, row), row

    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        """What decoding these at once holds beside the weights, at most."""
        rows, row = self._wave_size(n, prompt_tokens, max_new_tokens)
        return int(min(prompts * n, rows) * row)

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from `model`'s weights from now on: those very weights if it is the engine's model, else a copy."""
        if model is not self.model:
            own = self.model.state_dict()
            for name, tensor in whole_tensors(model):
                own[name].copy_(tensor)

    def sleep(self) -> None:
        """A wave's caches live as long as the wave: there is nothing to give back."""

    wake = close = sleep

    def facts(self) -> dict[str, float]:
        """Nothing that a clock does not say."""
        return {}


class VLLMEngine:
    """N rollouts per prompt by vLLM, inside this process and on its device: no server, no second process.

    model         the policy that is trained. vLLM builds it from its config with random weights, and `sync` brings
                  the right ones: a weight that no sync reaches stays noise, and the trainer's check sees it
    positions     the most tokens of prompt and response together (None: what the model has)
    max_num_seqs  rollouts that decode at once; vLLM's own default is 1024 on an H100, 256 on an A100 and on a CPU
    memory_gib    of the key-value cache, on a CPU; on a GPU vLLM takes gpu_memory_utilization, a share of all of
                  the GPU's memory (default 0.5: verl's), and gives it back while it sleeps
    kv_cache_gib  of the key-value cache, on a GPU, in place of what that share leaves for it; vLLM still refuses to
                  start where the share is not free
    dtype         None: bfloat16 on a GPU, float32 on a CPU
    options       further arguments of vllm.LLM, which go before these

    With several processes (torch.distributed) each one makes its engine, at the same time. From a group's second
    rollout on vLLM reads the prompt's full blocks (32 tokens on a CPU) from its prefix cache.
    Raises ValueError for settings that cannot work, EngineError with vLLM's reason if it does not start.
    """

    order_rows = 64  # a group of 512 in eight parts: vLLM reads the prompt from its cache, room is filled finely

    def __init__(
        self,
        model: PreTrainedModel,
        positions: int | None = None,
        max_num_seqs: int = 512,
        memory_gib: float = 2.0,
        gpu_memory_utilization: float = 0.5,
        dtype: str | None = None,
        kv_cache_gib: float | None = None,
        **options,
    ):
        device = model.device.type
        bounds = max_num_seqs, memory_gib, gpu_memory_utilization, kv_cache_gib
        backend.check_settings(device, *bounds)
        if not have_vllm():
            raise ValueError(backend.NOT_INSTALLED)
        platform, version = backend.import_vllm()
        self.model = model
        self.source: torch.nn.Module = model  # whose weights it samples from
        self.positions = backend.usable_positions(model, platform, positions)
        self.sleeps, self.asleep = platform.is_sleep_mode_available(), False
        settings = backend.llm_settings(device, self.positions, *bounds, dtype, self.sleeps) | options
        self.precision, self.settings = settings["dtype"], settings
        self.llm = backend.start(model, settings)
        self.decoding = backend.described(version, self.llm)
        self.preemptions = backend.Preemptions(self.llm)
        self.free_gib: float | None = None  # of the GPU, when the engine last fell asleep
        self._load()

    def generate(
        self, prompts: list[list[int]], n: int, *, max_new_tokens: int | None = None, temperature: float = 1.0,
        top_p: float = 1.0, top_k: int = 0, stop_token_ids: list[int] | None = None, seed: int | list[int] = 0,
        first: int = 0, of: int | None = None, on_progress: Callable[[float], None] | None = None,
    ) -> list[Group]:  # fmt: skip
        """As TorchEngine.generate: `n` rollouts of each prompt, one `Group` a prompt, in order.

        Raises EngineError if vLLM fails, out of memory for instance.
        """
        seeds = prompt_seeds(seed, len(prompts))
        found = self.stream(
            [Order([prompt], n, [own], first, of) for prompt, own in zip(prompts, seeds, strict=True)],
            on_progress=on_progress, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
            stop_token_ids=stop_token_ids,
        )  # fmt: skip
        return [group for _, (group,) in sorted(found, key=lambda x: x[0])]

    def stream(self, orders: list[Order], *, on_progress=None, **sampling) -> Iterator[tuple[int, list[Group]]]:
        """Each order's groups, as soon as its last rollout ended; sampling: as of TorchEngine.generate.

        A prompt's rollout i is drawn with the prompt's seed + i: the same rollouts, whatever else decodes, as far as
        vLLM's kernels round alike in another batch. The trainer's generators are left as they were.
        """
        sampling = vllm_requests.settled(self.model, self.positions, orders, **sampling)
        self.wake()
        return vllm_requests.stream(self.llm, orders, Group, on_progress, sampling)

    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        """What it takes of a GPU beside the trainer while it is awake, whatever it decodes."""
        return backend.memory_taken(self.model, self.settings)

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from `model`'s weights (plain, DDP, FSDP2) from now on; asleep, the engine takes them as it wakes."""
        self.source = model
        if not self.asleep:
            self._load()

    def sleep(self) -> None:
        """Give weights and key-value cache back to the GPU (vLLM's level 2); on a CPU vLLM has no sleep."""
        if self.sleeps and not self.asleep:
            with backend.saying("sleep"):
                self.llm.sleep(level=2)
            self.asleep = True
            self.free_gib = torch.cuda.mem_get_info()[0] / 2**30 if torch.cuda.is_available() else None

    def wake(self) -> None:
        """Take the memory again, and the weights of the last `sync`."""
        if self.asleep:
            with backend.saying("wake", "If memory is short beside the trainer, lower gpu_memory_utilization"):
                self.llm.wake_up(tags=["weights"])
                self._load()
                self.llm.wake_up(tags=["kv_cache"])
            self.asleep = False

    def facts(self) -> dict[str, float]:
        """How often vLLM took rollouts back for want of cache; GiB of the GPU that were free when it last slept."""
        free = {} if self.free_gib is None else {"free_gib": self.free_gib}
        return {"preemptions": self.preemptions.taken()} | free

    def close(self) -> None:
        """Leave torch.distributed as vLLM wants to: before the process group of the trainer is destroyed."""
        self.llm.llm_engine.engine_core.shutdown()

    def _load(self) -> None:
        backend.load_weights(self.llm, whole_tensors(self.source))
