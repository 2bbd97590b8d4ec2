"""Problems as prompts in tokens (train.py, stage 1): the training problems, and the held-out ones by source."""

from __future__ import annotations

import hashlib
import json
import math
import os
import unicodedata
from typing import NamedTuple

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from trainer.checks import source_names
from trainer.processes import from_main
from trainer.settings import Config
from verify import Problem, load_data

TOKENIZER_FILES = ("token", "vocab", "merges", ".model", "tekken")  # one of these is in each of their names
HELD_OUT_SEED = 10**9  # of held-out problems that are generated: entry i comes from seed + i, and --seed is training's


def describe(model: str) -> tuple[PreTrainedTokenizerBase, int | None]:
    """A model's tokenizer and how many positions it has, without its weights."""
    if os.path.isdir(model) and not os.path.exists(os.path.join(model, "config.json")):
        raise ValueError(f"--model {model} has no config.json: name a folder that save_pretrained wrote")
    if os.path.exists(os.path.join(model, "metrics.jsonl")):
        raise ValueError(f"--model {model} is a run: its policy is {os.path.join(model, 'model')}")
    if os.path.isdir(model) and not any(part in name for name in os.listdir(model) for part in TOKENIZER_FILES):
        raise ValueError(  # where transformers may return a tokenizer of no tokens
            f"--model {model} has no tokenizer files, such as tokenizer.json: copy those of the model that it was made "
            "from into it"
        )
    try:
        settings = AutoConfig.from_pretrained(model).get_text_config()
        return AutoTokenizer.from_pretrained(model), getattr(settings, "max_position_embeddings", None)
    except OSError as failure:
        reason = str(failure).splitlines()[0]
        raise ValueError(f"--model {model} is no folder here, and not to be had from the hub: {reason}") from None


def stop_tokens(tokenizer, model) -> list[int]:
    """Whatever ends a response: the tokenizer's EOS and those of the model's generation config."""
    eos = model.generation_config.eos_token_id
    return sorted({tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])} - {None})


def load(
    tokenizer,
    specs: list[str],
    max_response_tokens: int,
    positions: int | None,
    seed: int = 0,
    limit: str = "--max_response_tokens",
) -> tuple[list[Problem], list[list[int]]]:
    """The problems of all sources, and their prompts as tokens.

    limit: the setting that max_response_tokens is the value of. The main process reads and checks them for all: what
    is left out in one process is left out in every one. Raises ValueError, with source and number, for a prompt that
    leaves no room for its response or that the tokenizer cannot write.
    """
    problems = from_main(lambda: load_data(specs, seed))
    encoded = []
    for i, problem in enumerate(problems, 1):
        where = f"{', '.join(specs)}, problem {i}"
        tokens = tokens_of(problem, tokenizer, where)
        if positions and len(tokens) + max_response_tokens > positions:
            raise ValueError(
                f"{where}: {len(tokens)} prompt tokens + {limit} {max_response_tokens} exceed the "
                f"model's {positions} positions: shorten one of them"
            )
        encoded.append(tokens)
    return list(problems), encoded


def tokens_of(problem: Problem, tokenizer, where: str) -> list[int]:
    """A prompt, text or chat, in tokens. Raises ValueError if the tokenizer cannot write all of it."""
    if isinstance(problem.prompt, str):
        text, tokens = problem.prompt, tokenizer(problem.prompt).input_ids
    elif tokenizer.chat_template is None:
        raise ValueError(f"{where} is a chat, and this tokenizer has no chat template: write it as text")
    else:
        text = "".join(message["content"] for message in problem.prompt)
        tokens = tokenizer.apply_chat_template(problem.prompt, add_generation_prompt=True, return_dict=False)
    asked, written = ({*unicodedata.normalize("NFKC", x)} for x in (text, tokenizer.decode(tokens)))
    if lost := {c for c in asked - written if not c.isspace()}:
        raise ValueError(f"{where}: the tokenizer has no token for {' '.join(sorted(lost))}: change the prompt")
    return tokens


class HeldOut(NamedTuple):
    """The held-out problems of all sources, one after the other."""

    problems: list[Problem]
    prompts: list[list[int]]
    sources: dict[str, int]  # name -> number of problems
    digest: str  # of the problems
    cut: str  # why responses are no longer than they are, for whoever reads the protocol


def load_held_out(config: Config, tokenizer, positions: int | None, given: bool = False) -> HeldOut:
    """`load` for --eval_data, source by source, so that it is known which problem is whose.

    Responses are cut at --eval_max_response_tokens. Where the model has fewer positions behind the longest prompt,
    a length that was `given` is refused, and the recipe's lowered to what there is.
    """
    problems, prompts, sources = [], [], {}
    room = (config.eval_max_response_tokens, "--eval_max_response_tokens") if given else (1, "a response of at least")
    for name, spec in zip(source_names(config.eval_data), config.eval_data, strict=True):
        found, encoded = load(tokenizer, [spec], room[0], positions, HELD_OUT_SEED, room[1])
        sources[name] = len(found)
        problems += found
        prompts += encoded
    digest = hashlib.sha256(json.dumps(problems, sort_keys=True, default=str).encode()).hexdigest()[:16]
    most = positions - max(map(len, prompts)) if positions else math.inf
    config.eval_max_response_tokens = int(min(config.eval_max_response_tokens, most))
    cut = f", all that the model's {positions:,} positions leave" if config.eval_max_response_tokens == most else ""
    return HeldOut(problems, prompts, sources, digest, cut)
