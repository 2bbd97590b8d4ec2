"""The problems of a run: `load_sources` reads them, `load_data` checks that they are prompts that fit the model.

--data and --eval_data name sources, each in one of these forms (problems.py and public_data.py read one source):

FILE.jsonl             a file of problems
hf:NAME                an entry of HUB, read by the package datasets; hf:NAME=FOLDER reads a copy from `save_to_disk`
gym:NAME, gym:NAME*N   N (1,000) entries of a data set of Reasoning Gym, generated with the run's seed to train on, and
                       with a fixed one to evaluate on
SOURCE:WEIGHT          a source and its share of the epoch, relative to the other weights; for all sources or for none
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from kinds.users import reward_files
from trainer.exits import Refusal, refusing
from trainer.objectives import file_of
from trainer.pretrained import load_tokenizer
from trainer.problems import load_problems
from trainer.public_data import load_gym, load_hub
from trainer.settings import GIVEN, Config
from trainer.templates import template_fault
from trainer.text import encode
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
            raise Refusal(f"--prompts_per_step {config.prompts_per_step} exceeds the size of --data, {len(problems)}")
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
    held_out, sources = [problem for _, problem in named], Counter(name for name, _ in named)
    inputs = digests(config, problems, held_out, tokenizer)
    return Data(tokenizer, problems, held_out, sources, available, lengths, positions, inputs)


def load_sources(specs: list[str], seed: int = 0) -> list[Problem]:
    """Return the problems of one epoch. specs: sources, each with an optional :WEIGHT.

    The seed fixes the generated problems (gym:) and, with weights, the order of all.
    """
    pairs = [read_spec(spec) for spec in specs]
    found = []  # the problems of each source
    for source, _ in pairs:
        start, _, name = source.partition(":")
        if start == "gym":
            found.append(load_gym(name, seed))
        else:
            found.append(load_hub(name) if start == "hf" else load_problems(source))
    weights: list[Any] = [weight for _, weight in pairs]
    if all(weight is None for weight in weights):
        return [problem for problems in found for problem in problems]
    if None in weights:
        raise ValueError(f"give a weight to all sources or to none: {' '.join(specs)}")
    return mix(found, weights, seed)


def read_spec(spec: str) -> tuple[str, float | None]:
    """Split "SOURCE:WEIGHT" into ("SOURCE", weight), without a weight (spec, None). ValueError for a weight of 0."""
    source, colon, last = spec.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*\.?[0-9]+", last):
        return spec, None
    if float(last) <= 0:
        raise ValueError(f"the weight in {spec} must be above 0")
    return source, float(last)


def mix(found: list[list[Problem]], weights: list[float], seed: int) -> list[Problem]:
    """Shuffle the problems of each source, and draw them in the shares of the weights in every stretch of the epoch."""
    total, rng = sum(weights), random.Random(seed)
    length = math.ceil(max(len(problems) * total / weight for problems, weight in zip(found, weights, strict=True)))
    drawn, epoch = [0] * len(found), []
    decks: list[list[Problem]] = [[] for _ in found]
    for position in range(1, length + 1):
        # The source whose share is furthest behind.
        due = max(range(len(found)), key=lambda i: position * weights[i] / total - drawn[i])
        decks[due] = decks[due] or rng.sample(found[due], len(found[due]))
        epoch.append(decks[due].pop())
        drawn[due] += 1
    return epoch


def choose_held_out(named: list[tuple[str, Problem]], wanted: int | None) -> list[tuple[str, Problem]]:
    """Choose --eval_problems of the held-out problems at random: from each source its share, at least one.

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
    sources = [read_spec(spec)[0] for spec in specs]
    names = {x if x.startswith(("hf:", "gym:")) else Path(x).stem: x for x in sources}
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
