"""Refuses settings that cannot work, and a step of the paper's size that the user did not ask for."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from dataclasses import asdict

import torch

from engines.vllm import have_vllm
from trainer.defaults import IN_FOLDER, recipe_of
from trainer.exits import Refusal, refusing
from trainer.objectives import load_objective
from trainer.pretrained import is_missing_folder
from trainer.settings import Config, rule
from trainer.sources import read_spec


def check_settings(c: Config) -> None:
    """Refuse settings that cannot work, before problems and model are read. Raises Refusal: a sentence for each."""
    wrong, lowest, highest = [], rule("low"), rule("high")
    for name, x in asdict(c).items():
        if type(x) in (int, float) and not (math.isfinite(x) and (x >= lowest[name] if name in lowest else x > 0)):
            wrong.append(f"--{name} {x} must be {f'at least {lowest[name]}' if name in lowest else 'positive'}")
        elif name in highest and x > highest[name]:
            wrong.append(f"--{name} {x} must be at most {highest[name]}")
    if re.search("[\ud800-\udfff]", c.system_prompt or ""):
        wrong.append("--system_prompt has bytes that are not UTF-8: no tokenizer can read them")
    if c.offload and c.lora_rank:
        wrong.append("--offload saves nothing with --lora_rank, whose moments and reference are small: leave it out")
    if c.engine == "vllm" and not have_vllm():
        wrong.append("--engine vllm needs vLLM: pip install -r requirements-gpu.txt")
    if c.report_to and importlib.util.find_spec(c.report_to) is None:
        wrong.append(f"--report_to {c.report_to}: pip install {c.report_to}")
    for flag, specs in {"data": c.data, "eval_data": c.eval_data, "rewards": c.rewards}.items():
        for spec in specs:
            try:
                with refusing(f"--{flag}: "):
                    source, _ = read_spec(spec)
            except Refusal as refusal:
                wrong.append(str(refusal))
                continue
            if not source.startswith(("hf:", "gym:")) and not os.path.isfile(source):
                commas = "; separate files by spaces" if "," in source else ""
                wrong.append(f"--{flag} {source}: there is no such file{commas}")
    try:
        with refusing("--objective "):
            load_objective(c.objective)
    except Refusal as refusal:
        wrong.append(str(refusal))
    if wrong:
        raise Refusal("\n".join(wrong))


def check_size(config: Config, given: set[str]) -> None:
    """Refuse to start the paper's step, 65,536 responses of up to 16,384 tokens, unless the user asks for it.

    The tiny policy and the model of an earlier run have a recipe.json with a size, for the recipe of that run.
    """
    sizes = [*rule("size")]
    missing = [name for name in sizes if name not in given]
    recipe = recipe_of(config)
    has_size = "recipe" in given or any(recipe[name][1].startswith(IN_FOLDER) for name in sizes)
    if not missing or has_size or is_missing_folder(config.model):
        return
    memory_gib = torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 0
    machine, n, b, tokens = ("this CPU", 16, 8, 128)
    if memory_gib:
        machine, n, b, tokens = f"this GPU of {memory_gib:.0f} GiB", 16, 128 if memory_gib > 60 else 64, 1024
    example = dict(zip(sizes, (n, b, tokens), strict=True))
    flags = " ".join(f"--{name} {example[name]}" for name in missing)
    now = {name: getattr(config, name) for name in sizes}
    raise Refusal(
        f"--model {config.model}: name the size of a step, for {machine} for example {flags}. Now it is "
        f"{now['prompts_per_step']} x {now['rollouts_per_prompt']} responses of up to "
        f"{now['max_response_tokens']:,} tokens: say --recipe {config.recipe} if you want that"
    )
