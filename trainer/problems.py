"""Problems as prompts in tokens (train.py, stage 1): the training problems, and the held-out ones by source."""

from __future__ import annotations

import hashlib
import json
import math
import os
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from trainer.checks import source_names
from trainer.processes import from_main
from trainer.prompts import PLAIN, Frame, Messages, check_template, choose, examples_of_model, text_of
from trainer.report import short
from trainer.settings import Config
from verify import Problem, load_data, reward_files

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
    except ValueError as failure:  # an architecture that transformers does not know
        raise ValueError(f"--model {model}: {failure}") from None
    except OSError as failure:
        reason = str(failure).splitlines()[0]
        raise ValueError(f"--model {model} is no folder here, and not to be had from the hub: {reason}") from None


def stop_tokens(tokenizer, model) -> list[int]:
    """Whatever ends a response: the tokenizer's EOS and those of the model's generation config."""
    eos = model.generation_config.eos_token_id
    return sorted({tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])} - {None})


def load_training(
    config: Config, tokenizer, positions: int | None, kept: bool = False
) -> tuple[list[Problem], list[list[int]], Frame]:
    """`load` for --data without the problems that are --examples, and what every prompt is asked in.

    An evaluation reads --data for its examples alone, or takes those that are `kept` beside the model, and gets no
    problems.
    """
    if config.chat_style and tokenizer.chat_template is None:
        raise ValueError(
            f"--system_prompt and --examples make chats, and the tokenizer of --model {short(config.model)} has no "
            "chat template: leave them out, or name an Instruct model"
        )
    read = not config.eval_only or (config.examples and not kept)
    problems = from_main(lambda: load_data(config.data, config.seed)) if read else []
    examples = examples_of_model(config.model) if kept else choose(problems, config.examples, config.seed)
    frame = Frame(bool(config.chat_style), config.system_prompt or "", examples)
    check_template(frame, tokenizer, short(config.model))
    rest = [] if config.eval_only else [(i, x) for i, x in enumerate(problems, 1) if not frame.example_of(x)]
    encoded = encode(rest, config.data, tokenizer, config.max_response_tokens, positions, frame=frame)
    return [problem for _, problem in rest], encoded, frame


def load(
    tokenizer,
    specs: list[str],
    max_response_tokens: int,
    positions: int | None,
    seed: int = 0,
    limit: str = "--max_response_tokens",
    frame: Frame = PLAIN,
) -> tuple[list[Problem], list[list[int]]]:
    """The problems of all sources, and their prompts as tokens, each in its `frame`.

    limit: the setting that max_response_tokens is the value of. The main process reads and checks them for all: what
    is left out in one process is left out in every one. Raises ValueError, with source and number, for a prompt that
    leaves no room for its response, that the tokenizer cannot write, or that is one of the frame's examples.
    """
    problems = list(from_main(lambda: load_data(specs, seed)))
    numbered = list(enumerate(problems, 1))
    for i, problem in numbered:
        if example := frame.example_of(problem):
            raise ValueError(
                f"{', '.join(specs)}, problem {i} is problem {example.number} of --data too, one of the --examples: "
                "its answer would stand before it, take it out of one of the two or choose another --seed"
            )
    return problems, encode(numbered, specs, tokenizer, max_response_tokens, positions, limit, frame)


def encode(
    numbered: list[tuple[int, Problem]],
    specs: list[str],
    tokenizer,
    max_response_tokens: int,
    positions: int | None,
    limit: str = "--max_response_tokens",
    frame: Frame = PLAIN,
) -> list[list[int]]:
    """The prompts of these problems, with their numbers in the sources, as tokens. Raises ValueError as `load` says."""
    encoded = []
    for i, problem in numbered:
        where = f"{', '.join(specs)}, problem {i}"
        tokens = tokens_of(problem, tokenizer, where, frame)
        if positions and len(tokens) + max_response_tokens > positions:
            cure, alone = "shorten one of them", len(tokens_of(problem, tokenizer, where, frame._replace(examples=())))
            if alone + max_response_tokens <= positions:
                cure = f"{len(tokens) - alone} of the tokens are those of --examples {len(frame.examples)}, lower it"
            raise ValueError(
                f"{where}: {len(tokens)} prompt tokens + {limit} {max_response_tokens} exceed the "
                f"model's {positions} positions: {cure}"
            )
        encoded.append(tokens)
    return encoded


def tokens_of(problem: Problem, tokenizer, where: str, frame: Frame = PLAIN) -> list[int]:
    """A prompt, text or chat, in tokens. Raises ValueError if the tokenizer cannot write all of it, as text."""
    prompt = frame.prompt(problem)
    check_text(prompt, tokenizer, where)
    if isinstance(prompt, str):
        tokens = tokenizer(prompt).input_ids
    elif tokenizer.chat_template is None:
        raise ValueError(f"{where} is a chat, and this tokenizer has no chat template: write it as text")
    else:
        try:
            tokens = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        except TemplateError as refusal:
            raise ValueError(f"{where}: the model's chat template does not take it: {refusal}") from None
    asked, written = ({*unicodedata.normalize("NFKC", x)} for x in (text_of(prompt), tokenizer.decode(tokens)))
    if lost := {c for c in asked - written if not c.isspace() or c in "\x1c\x1d\x1e\x1f"}:
        own = lost & {*unicodedata.normalize("NFKC", text_of(problem.prompt))}
        change = "the prompt" if own else "--system_prompt or --examples"
        raise ValueError(f"{where}: the tokenizer has no token for {' '.join(sorted(lost))}: change {change}")
    return tokens


def check_text(prompt: str | Messages, tokenizer, where: str) -> None:
    """Raises ValueError for what is no text; in a chat also for control tokens, with which its text could forge a turn.

    A prompt that is text may have them: it goes to the model as it stands.
    """
    text = text_of(prompt)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"{where}: half of a surrogate pair (\\ud800 to \\udfff) is no character: write it whole")
    control = [] if isinstance(prompt, str) else [x for x in tokenizer.all_special_tokens if x in text]
    if control:
        raise ValueError(
            f"{where}: its text has {' '.join(control)}, which this tokenizer reads as a control token, not as text: "
            "take it out"
        )


def digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def digests(config: Config, problems: list[Problem], frame: Frame, held_out: HeldOut, tokenizer) -> dict[str, str]:
    """What a run is made of beside its settings: a digest of each part, by the name that --resume calls it.

    Of --rewards: each file, and what it imports from its own folder.
    """
    written = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else tokenizer.get_vocab()
    parts: dict[str, Any] = {
        "the training problems": [problems, frame],
        "the held-out problems": held_out.digest,
        "the tokenizer": [written, tokenizer.chat_template],
    }
    for path in config.rewards or []:
        parts |= {file: Path(file).read_text() for file in reward_files[str(Path(path).resolve())]}
    return {name: digest_of(part) for name, part in parts.items()}


class HeldOut(NamedTuple):
    """The held-out problems of all sources, one after the other."""

    problems: list[Problem]
    prompts: list[list[int]]
    sources: dict[str, int]  # name -> number of problems
    digest: str  # of the problems
    cut: str  # why responses are no longer than they are, for whoever reads the protocol


def load_held_out(
    config: Config, tokenizer, positions: int | None, given: bool = False, frame: Frame = PLAIN
) -> HeldOut:
    """`load` for --eval_data, source by source, so that it is known which problem is whose.

    Responses are cut at --eval_max_response_tokens. Where the model has fewer positions behind the longest prompt,
    a length that was `given` is refused, and the recipe's lowered to what there is.
    """
    problems, prompts, sources = [], [], {}
    room = (config.eval_max_response_tokens, "--eval_max_response_tokens") if given else (1, "a response of at least")
    for name, spec in zip(source_names(config.eval_data), config.eval_data, strict=True):
        found, encoded = load(tokenizer, [spec], room[0], positions, HELD_OUT_SEED, room[1], frame)
        sources[name] = len(found)
        problems += found
        prompts += encoded
    most = positions - max(map(len, prompts)) if positions else math.inf
    config.eval_max_response_tokens = int(min(config.eval_max_response_tokens, most))
    cut = f", all that the model's {positions:,} positions leave" if config.eval_max_response_tokens == most else ""
    return HeldOut(problems, prompts, sources, digest_of(problems), cut)
