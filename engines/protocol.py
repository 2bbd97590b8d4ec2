"""What an engine is, takes and returns. rollout.py re-exports these names; a file of engines/ imports them from here.

An engine is a class that derives from `Engine` and has `generate`. Everything else has a default, which is right for an
engine that decodes with the policy itself.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel


class EngineError(RuntimeError):
    """The engine failed for a reason outside this project: the message has the cause, and what to change."""


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

    A rollout follows from its prompt's seed, its number and N: it is the same on any process and beside any other.
    """

    prompts: list[list[int]]
    n: int
    seeds: list[int]  # one per prompt
    first: int = 0
    of: int | None = None  # N; None: n


class Engine(Protocol):
    """What the trainer asks of an engine."""

    model: PreTrainedModel  # the policy, as the trainer holds it
    order_rows: int = 512  # rollouts of an order that this engine decodes well
    decodes_with_model: bool = True  # if FSDP2 shards the policy, such an engine gets a whole copy of it

    @classmethod
    def from_config(cls, model: PreTrainedModel, positions: int, config: Any) -> "Engine":
        """The engine of a run. positions: most tokens of prompt and response. config: the run's settings."""
        return cls(model)  # type: ignore[call-arg]

    @property
    def decoding(self) -> str:
        """How it decodes, in a few words for the start of a run."""
        return type(self).__name__

    @property
    def precision(self) -> str:
        """float32, bfloat16, ...: how closely the trainer's log-probs can agree."""
        return str(self.model.dtype).removeprefix("torch.")

    def generate(
        self, prompts: list[list[int]], n: int, *, max_new_tokens: int | None = None, temperature: float = 1.0,
        top_p: float = 1.0, top_k: int = 0, stop_token_ids: list[int] | None = None, seed: int | list[int] = 0,
        first: int = 0, of: int | None = None, on_progress: Callable[[int], None] | None = None,
    ) -> list[Group]:  # fmt: skip
        """`n` rollouts of each prompt, one `Group` per prompt, in order.

        max_new_tokens, stop_token_ids: default, what the model's generation config says. temperature 0 is greedy.
        seed: one for all, or one per prompt; first, of: as in `Order`. on_progress is called after every step with the
        number of rollouts that ended in it; what it raises ends the call.
        Raises ValueError before anything is computed if a setting or a prompt cannot work, EngineError if the engine
        fails.
        """
        ...

    def stream(self, orders: list[Order], **sampling) -> Iterator[tuple[int, list[Group]]]:
        """The number of an order and its groups, as soon as it is done. sampling: the keywords of `generate`."""
        for number, (prompts, n, seeds, first, of) in enumerate(orders):
            yield number, self.generate(prompts, n, seed=seeds, first=first, of=of, **sampling)

    def wave_bytes(self, prompts: int, n: int, prompt_tokens: int, max_new_tokens: int) -> int:
        """Bytes that decoding these takes beside the weights, at most; for the estimate at the start of a run."""
        return 0

    def sync(self, model: torch.nn.Module) -> None:
        """Sample from `model`'s weights from now on: those very weights if it is the engine's model, else a copy."""
        if model is not self.model:
            weights = self.model.state_dict()
            for name, tensor in whole_tensors(model):
                weights[name].copy_(tensor)

    def sleep(self) -> None:
        """The trainer's turn: give back what memory it can."""
        return None

    def wake(self) -> None:
        """The engine's turn."""
        return None

    def facts(self) -> dict[str, float]:
        """Of its work since the last call, for timing.jsonl."""
        return {}

    def close(self) -> None:
        """The run is over, and the process group still there."""
        return None


# ------------------------------------------------------------------------------------- its weights and its arguments


def whole_tensors(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights under the names of `state_dict`, one at a time: a shard of FSDP2 is gathered when its turn comes.

    Tied weights come once, under the embedding's name: not every model of vLLM's has a head of its own.
    """
    model = getattr(model, "module", model)  # DDP
    once = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
    for name, tensor in model.state_dict().items():
        if name in once:
            yield name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def prompt_seeds(seed: int | list[int], prompts: int) -> list[int]:
    """One seed per prompt: the given ones, or drawn from one for all."""
    return seed if isinstance(seed, list) else [random.Random(f"{seed}/{i}").getrandbits(62) for i in range(prompts)]


def resolve_sampling(
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
    """max_new_tokens and stop_token_ids, by default the model's.

    positions: the most tokens of prompt and response together; None: what the model has. Raises ValueError, with
    the prompt's number and the fix, for what cannot work.
    """
    config, generation = model.config.get_text_config(), model.generation_config
    max_new_tokens = max_new_tokens if max_new_tokens is not None else generation.max_new_tokens
    if max_new_tokens is None:
        raise ValueError("max_new_tokens is not set, and the model's generation config has none: set it")
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
