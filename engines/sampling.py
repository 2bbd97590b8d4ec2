"""The arguments of `Engine.generate`, checked before the first token, the same for every engine."""

import random

from transformers import PreTrainedModel


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
