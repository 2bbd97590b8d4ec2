"""The problems of a run, checked: they are prompts that the tokenizer can write, and they fit the model."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from trainer.pretrained import load_tokenizer
from trainer.process import Refusal, refusing
from trainer.settings import GIVEN, Config
from trainer.sources import load_sources, source_names
from trainer.templates import template_fault
from trainer.text import encode
from verify import Problem

HELD_OUT_SEED = 10**9  # of generated held-out problems: entry i comes from seed + i, so training's are others


class Data(NamedTuple):
    """The problems of a run, checked."""

    tokenizer: PreTrainedTokenizerBase
    problems: list[Problem]  # to train on; none in an evaluation
    held_out: list[Problem]  # all sources, one after the other; with --eval_problems a random choice of each
    held_out_counts: dict[str, int]  # name of a held-out source -> its number of problems in `held_out`
    available: int  # held-out problems before the choice
    prompt_lengths: list[int]  # of `problems`, in tokens
    positions: int  # the most tokens of a prompt and its response


def load_data(config: Config, origins: dict[str, str]) -> Data:
    """Read tokenizer and problems, and check that each prompt and a response fit the model. Raises Refusal.

    An --eval_max_response_tokens that the user did not set is lowered to the model's positions.
    """
    tokenizer, text_config = load_tokenizer(config.model)
    most, vocabulary = getattr(text_config, "max_position_embeddings", None), text_config.vocab_size
    problems: list[Problem] = []
    if not config.eval_only:
        with refusing("--data: "):
            problems = [with_system_prompt(p, config) for p in load_sources(config.data, config.seed)]
        if config.prompts_per_step > len(problems):
            raise Refusal(
                f"--prompts_per_step {config.prompts_per_step} exceeds the size of --data: use at most {len(problems)}"
            )
    named: list[tuple[str, Problem]] = []
    for name, spec in source_names(config.eval_data).items():
        with refusing("--eval_data: "):
            named += [(name, with_system_prompt(p, config)) for p in load_sources([spec], HELD_OUT_SEED)]
    if fault := template_fault(tokenizer, [*problems, *(p for _, p in named)]):
        raise Refusal(f"--model {config.model}: its chat template {fault}: repair it, or use another model")
    lengths, held_out_lengths = (
        [checked_length(tokenizer, vocabulary, p, f"{flag}, problem {i}") for i, p in enumerate(some, 1)]
        for flag, some in (("--data", problems), ("--eval_data", [p for _, p in named]))
    )
    possible = most - max(held_out_lengths) if most else config.eval_max_response_tokens
    if possible < config.eval_max_response_tokens and origins["eval_max_response_tokens"] != GIVEN:
        config.eval_max_response_tokens = max(1, possible)
        origins["eval_max_response_tokens"] = f"lowered to the {most:,} positions of the model"
    positions = 0
    for limit, prompts in {"max_response_tokens": lengths, "eval_max_response_tokens": held_out_lengths}.items():
        needed = max(prompts) + getattr(config, limit) if prompts else 0
        if most and needed > most:
            raise Refusal(f"--{limit} and the longest prompt, {needed} tokens, exceed the model's {most} positions")
        positions = max(positions, needed)
    available, named = len(named), choose_held_out(named, config.eval_problems)
    held_out, held_out_counts = [problem for _, problem in named], Counter(name for name, _ in named)
    return Data(tokenizer, problems, held_out, held_out_counts, available, lengths, positions)


def choose_held_out(named: list[tuple[str, Problem]], wanted: int | None) -> list[tuple[str, Problem]]:
    """Choose about --eval_problems of the held-out problems at random: from each source its share, at least one.

    named: (name of the source, problem) for all sources. The choice does not depend on --seed.
    """
    if not wanted or wanted >= len(named):
        return named
    chosen: list[int] = []
    places: dict[str, list[int]] = {}  # name -> where its problems are
    for i, (name, _) in enumerate(named):
        places.setdefault(name, []).append(i)
    for name, own in places.items():
        share = max(1, round(wanted * len(own) / len(named)))
        chosen += random.Random(f"{HELD_OUT_SEED}/{name}").sample(own, share)
    return [named[i] for i in sorted(chosen)]


def with_system_prompt(problem: Problem, config: Config) -> Problem:
    """--system_prompt before the prompt, which becomes a chat. A chat with a system message keeps its own."""
    if config.system_prompt is None:
        return problem
    chat = problem.prompt
    chat = [{"role": "user", "content": chat}] if isinstance(chat, str) else chat
    if config.system_prompt and chat[0]["role"] != "system":
        chat = [{"role": "system", "content": config.system_prompt}, *chat]
    return problem._replace(prompt=chat)


def checked_length(tokenizer, vocabulary: int, problem: Problem, where: str) -> int:
    """The tokens of a prompt. Raises Refusal for a prompt that the tokenizer would shorten or cannot write.

    vocabulary: number of the model's tokens.
    """
    prompt = problem.prompt
    if not isinstance(prompt, str) and tokenizer.chat_template is None:
        raise Refusal(f"{where} is a chat, and the tokenizer has no chat template: use text, and no --system_prompt")
    try:
        tokens = encode(tokenizer, problem)
    except Exception as failure:  # a template runs operations on any types
        raise Refusal(f"{where}: the chat template of the model refuses the prompt: {failure!s:.200}") from failure
    text = prompt if isinstance(prompt, str) else "".join(message["content"] for message in prompt)
    want, have = ({*unicodedata.normalize("NFKC", x)} for x in (text, tokenizer.decode(tokens)))
    if lost := sorted(c for c in want - have if not c.isspace()):
        raise Refusal(f"{where}: the tokenizer has no token for {' '.join(lost)}: change the prompt or the model")
    if max(tokens) >= vocabulary:
        token = tokenizer.convert_ids_to_tokens(max(tokens))
        raise Refusal(
            f"{where}: {token!r} is token {max(tokens):,}, and the model has {vocabulary:,}: take the tokenizer of "
            "this model, or remove the token from the prompt"
        )
    return len(tokens)
