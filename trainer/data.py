"""Before a run: model and tokenizer, and the problems: prompts that fit the model, held-out problems by source."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from trainer.exits import Refusal, refusing
from trainer.objectives import file_of
from trainer.problems import load_data, reward_files
from trainer.settings import GIVEN, Config, is_missing_folder
from trainer.text import encode, template_fault, turn_end
from verify import Problem

HELD_OUT_SEED = 10**9  # of generated held-out problems: entry i comes from seed + i, so training's are others


class Data(NamedTuple):
    """The problems of a run, checked."""

    tokenizer: PreTrainedTokenizerBase
    problems: list[Problem]  # to train on; none in an evaluation
    held_out: list[Problem]  # all sources, one after the other; with --eval_problems a random choice of each
    sources: dict[str, int]  # name of a held-out source -> number of problems in `held_out`
    available: int  # held-out problems before the choice
    prompt_lengths: list[int]  # of `problems`, in tokens
    positions: int  # the most tokens of a prompt and its response
    digests: dict[str, str]  # of problems, tokenizer and reward files, for --resume


def load(config: Config, origins: dict[str, str]) -> Data:
    """Read tokenizer and problems, and check that each prompt and a response fit the model. Raises Refusal.

    An --eval_max_response_tokens that the user did not set is lowered to the model's positions.
    """
    tokenizer, text_config = load_tokenizer(config.model)
    most, vocabulary = getattr(text_config, "max_position_embeddings", None), text_config.vocab_size
    problems: list[Problem] = []
    if not config.eval_only:
        with refusing("--data: "):
            problems = [with_system_prompt(p, config) for p in load_data(config.data, config.seed)]
        if config.prompts_per_step > len(problems):
            raise Refusal(f"--prompts_per_step {config.prompts_per_step} exceeds the size of --data, {len(problems)}")
    named: list[tuple[str, Problem]] = []
    for name, spec in source_names(config.eval_data).items():
        with refusing("--eval_data: "):
            named += [(name, with_system_prompt(p, config)) for p in load_data([spec], HELD_OUT_SEED)]
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
    held_out, sources = [problem for _, problem in named], Counter(name for name, _ in named)
    found = digests(config, problems, held_out, tokenizer)
    return Data(tokenizer, problems, held_out, sources, available, lengths, positions, found)


def choose_held_out(named: list[tuple[str, Problem]], wanted: int | None) -> list[tuple[str, Problem]]:
    """Choose --eval_problems of the held-out problems at random: from each source its share, at least one.

    named: (name of the source, problem) for all sources. The choice does not depend on --seed.
    """
    if not wanted or wanted >= len(named):
        return named
    chosen: list[int] = []
    for source in dict.fromkeys(name for name, _ in named):
        own = [i for i, (name, _) in enumerate(named) if name == source]
        share = max(1, round(wanted * len(own) / len(named)))
        chosen += random.Random(f"{HELD_OUT_SEED}/{source}").sample(own, share)
    return [named[i] for i in sorted(chosen)]


def load_tokenizer(model: str) -> tuple[PreTrainedTokenizerBase, Any]:
    """A model's tokenizer and its text config, without its weights. Raises Refusal."""
    if os.path.isfile(os.path.join(model, "metrics.jsonl")):
        raise Refusal(f"--model {model} is a run: its policy is {os.path.join(model, 'model')}")
    if is_missing_folder(model):
        raise Refusal(f"--model {model}: there is no such folder")
    # Without a network the hub writes two lines for each of its retries.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        check_counts(model, PreTrainedConfig.get_config_dict(model)[0])
        model_config = AutoConfig.from_pretrained(model)
        refuse_code_of_the_hub(model, model_config)
        text_config = model_config.get_text_config()
        if not isinstance(text_config.vocab_size, int):
            raise ValueError(f"its vocab_size is {text_config.vocab_size!r}")
        return AutoTokenizer.from_pretrained(model), text_config
    except Refusal:
        raise
    except Exception as failure:  # malformed files raise exceptions of any kind
        said = str(failure).strip()
        if isinstance(failure, ValueError | OSError) and said:
            raise Refusal(f"--model {model} cannot be loaded: {said.splitlines()[0]}") from failure
        said = f"{type(failure).__name__}: {' '.join(said.split())}"
        raise Refusal(f"--model {model} cannot be loaded, repair its config and tokenizer ({said:.200})") from failure


# The lists and modules of a model are made one by one: 10⁷ layers, which a config can ask for in a line, take hours.
MOST_LAYERS, MOST_EXPERTS = 2_000, 100_000
_LAYERS = re.compile(r"(?:layers?|blocks|depth)$")


def check_counts(model: str, part: Any, name: str = "") -> None:
    """Raise Refusal for a config that asks for too many layers or experts, before transformers reads it."""
    if isinstance(part, dict | list):
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            check_counts(model, value, str(key))
        return
    most = MOST_EXPERTS if name.endswith("experts") else MOST_LAYERS if _LAYERS.search(name) else None
    if most and isinstance(part, int | float) and part > most:
        raise Refusal(f"--model {model}: its config.json asks for {name} {part:,}, and {most:,} is the most here")


def refuse_code_of_the_hub(model: str, part: Any) -> None:
    """Raise Refusal for an attention of the form OWNER/NAME: transformers would load this code from the hub."""
    for name in ("_attn_implementation", "_experts_implementation"):
        if "/" in str(value := getattr(part, name, None)):
            raise Refusal(
                f"--model {model}: {name} {value!r} in its config.json is code of the hub: remove it from the file"
            )
    for name in getattr(part, "sub_configs", {}):
        refuse_code_of_the_hub(model, getattr(part, name, None))


def load_model(model: str, without_weights: bool = False):
    """A model with its weights in float32, or with their shapes only (torch's device "meta"). Raises Refusal.

    transformers gives random values to a weight that the files do not have, and leaves out weights that the model does
    not have: both are refused. A head that is tied to the embedding is not missing.
    """
    if os.path.isfile(os.path.join(model, "adapter_config.json")):
        raise Refusal(f"--model {model} has adapters only: merge them into their model first (peft: merge_and_unload)")
    device_map = "meta" if without_weights else None
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, device_map=device_map, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except ImportError as missing:
        raise Refusal(f"--model {model} needs a package: {missing!s:.200}") from missing
    except Exception as failure:  # a file that is cut off raises exceptions of torch, pickle or safetensors
        raise Refusal(
            f"--model {model}: its weights or its config.json cannot be read, copy them again ({failure!r:.200})"
        ) from failure
    found, keys = loaded
    wrong = {
        "lack": keys["missing_keys"], "have, and the model does not,": keys["unexpected_keys"],
        "have in another shape": [name for name, *_ in keys["mismatched_keys"]],
    }  # fmt: skip
    faults = [f"{what} {some(names)}" for what, names in wrong.items() if names]
    if faults and not without_weights:
        raise Refusal(f"--model {model}: its files {'; they '.join(faults)}: copy a complete {type(found).__name__}")
    return found


def some(names: Iterable[str]) -> str:
    """The first names of many."""
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more weights" if len(names) > 3 else "")


def stop_tokens(tokenizer, model) -> tuple[int, ...]:
    """The tokens that end a response: EOS of the tokenizer and of the generation config, and the end of a chat's turn.

    Raises Refusal for a token outside of the model's vocabulary.
    """
    eos = model.generation_config.eos_token_id
    several = eos if isinstance(eos, list) else [eos]
    if not all(isinstance(token, int | None) for token in several):
        raise Refusal(
            f"--model: eos_token_id in generation_config.json is a number or a list of them, not {eos!r:.100}"
        )
    tokens = {tokenizer.eos_token_id, *several, turn_end(tokenizer)} - {None}
    vocabulary = model.config.get_text_config().vocab_size
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        raise Refusal(
            f"--model: the EOS token {outside[0]} is outside of the model's vocabulary of {vocabulary:,} tokens: "
            "correct eos_token_id in generation_config.json, or take the tokenizer of this model"
        )
    return tuple(sorted(tokens))


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
    except Exception as refusal:  # a template runs operations on any types
        raise Refusal(f"{where}: the chat template of the model refuses the prompt: {refusal!s:.200}") from refusal
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


def source_names(specs: list[str]) -> dict[str, str]:
    """Name -> source. A file's name is without its folder and ending. Raises Refusal for two sources with one name."""
    names = {spec if spec.startswith(("hf:", "gym:")) else Path(spec).stem: spec for spec in specs}
    if len(names) < len(specs):
        raise Refusal("--eval_data names two sources alike: rename a file, or name it once")
    return names


def digests(config: Config, problems: list[Problem], held_out: list[Problem], tokenizer) -> dict[str, str]:
    """Digests of a run's inputs besides its settings; a reward file and each file of its folder that it imports."""
    written = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else tokenizer.get_vocab()
    parts: dict[str, Any] = {
        "the training problems": problems,
        "the held-out problems": held_out,
        "the tokenizer": [written, tokenizer.chat_template],
    }
    if file := file_of(config.objective):
        parts["the file of --objective"] = Path(file).read_text()
    for path in config.rewards:
        parts |= {file: Path(file).read_text() for file in reward_files[str(Path(path).resolve())]}
    return {
        name: hashlib.sha256(json.dumps(part, sort_keys=True, default=str).encode()).hexdigest()[:16]
        for name, part in parts.items()
    }
