"""The command line: `read_settings` parses it, --help lists the settings, an unknown flag gets a suggestion.

defaults.py fills in the values that the user did not set. `check_settings` refuses settings that cannot work, and
`check_size` a step of the paper's size that the user did not ask for.
"""

from __future__ import annotations

import copy
import difflib
import importlib.util
import json
import math
import os
import re
import sys
import textwrap
from dataclasses import Field, asdict, fields
from typing import Any, NoReturn

import torch
from transformers import HfArgumentParser

import brorl
from engines.vllm import have_vllm
from trainer.defaults import IN_FOLDER, recipe_of, resolve
from trainer.objectives import load_objective
from trainer.pretrained import is_missing_folder
from trainer.process import Refusal, refusing
from trainer.settings import TINY, Config, formatted, settings_with
from trainer.sources import read_spec

PAPER_VALUES = [{name: x.value for name, x in recipe.items()} for recipe in brorl.RECIPES.values()]
TINY_VALUES = [
    {name: x["value"] for name, x in recipe.items()}
    for recipe in json.loads((TINY / "policy" / "recipe.json").read_text()).values()
]


class Parser(HfArgumentParser):
    """Raise a Refusal with the name of the setting where argparse would print its usage and exit."""

    @staticmethod
    def _parse_dataclass_field(parser: Any, field: Field) -> None:
        known = copy.copy(field)  # argparse would refuse the rules
        known.metadata = {name: x for name, x in field.metadata.items() if name != "rules"}  # type: ignore[assignment]
        HfArgumentParser._parse_dataclass_field(parser, known)

    def error(self, message: str) -> NoReturn:
        # argparse writes "argument --max_steps/--max-steps: ...": one name is enough
        message = re.sub(r"/--[\w-]+", "", message.removeprefix("argument "))
        if switch := re.match(r"(--\w+): Truthy value expected: got (.*) but", message):
            name = f": --resume --name {switch[2]}" if switch[1] == "--resume" else ""
            message = f"{switch[1]} takes no value, and got {switch[2]}{name}"
        raise Refusal(message)


def read_settings(
    about: str, argv: list[str] | None = None, any_size: bool = False
) -> tuple[Config, dict[str, str]]:  # fmt: skip
    """Return the settings with every value filled in, and the origin of each recipe value. Raises Refusal.

    any_size: for programs that train nothing. Others must name the size of a step of their own model.
    """
    argv = sys.argv[1:] if argv is None else argv
    if "--help" in argv or "-h" in argv:
        print(help_text(about))
        sys.exit()
    parser = Parser(Config, allow_abbrev=False, add_help=False)  # type: ignore[arg-type]
    config, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if unknown:
        raise Refusal(unknown_settings(unknown))
    given = {flag.split("=")[0].removeprefix("--").replace("-", "_") for flag in argv if flag.startswith("--")}
    origins = resolve(config, given)
    if not (any_size or config.eval_only or config.resume):
        check_size(config, given)
    check_settings(config)
    return config, origins


def help_text(about: str) -> str:
    """Return the text of --help: a line for each setting, with its default or the defaults of the two recipes."""
    intro = f"{about} In brackets: the default; if there are two, brorl's and prorl's."
    lines = ["usage: python train.py [--SETTING VALUE ...]", "", *textwrap.wrap(intro, 80)]
    for f in fields(Config):
        if group := f.metadata["rules"].get("group"):
            lines += ["", f"{group}:"]
        left = f"  --{f.name} ".ljust(28)
        lines += textwrap.wrap(f.metadata["help"] + default_of(f), 80, initial_indent=left, subsequent_indent=" " * 28)
    return "\n".join(lines)


def default_of(f: Field) -> str:
    """Return a setting's default in brackets. "" for a setting whose help text names it, or that has none.

    The tiny policy has a recipe.json: its values follow those of the paper, if they differ.
    """
    of_the_paper, own = (
        ", ".join(dict.fromkeys(formatted(recipe[f.name]) for recipe in recipes if f.name in recipe))
        for recipes in (PAPER_VALUES, TINY_VALUES)
    )
    if f.default is None:
        differs = f"; tiny/policy: {own}" if own not in ("", of_the_paper) else ""
        return f" [{of_the_paper}{differs}]" if of_the_paper else ""
    return f" [{formatted(f.default)}]" if type(f.default) in (int, float) else ""


def unknown_settings(unknown: list[str]) -> str:
    """Say for each unknown word which setting was probably meant: one with this synonym, beginning or similar name."""
    flags = [word for word in unknown if word.startswith("-")] or unknown
    meant = {flag: nearest_setting(flag) for flag in flags}
    hints = [f"did you mean --{name} for {flag}?" for flag, name in meant.items() if name]
    return f"unknown setting {' '.join(unknown)}: " + (" ".join(hints) or "python train.py --help lists the settings")


def nearest_setting(flag: str) -> str:
    """Return the setting that is most like this flag; "" if none is."""
    word, names = flag.lstrip("-").split("=")[0].replace("-", "_"), [f.name for f in fields(Config)]
    near = [
        *(name for name, synonyms in settings_with("also").items() if word in synonyms),
        *(name for name in names if name.startswith(word)),
        *difflib.get_close_matches(word, names, 1),
        *(name for name in names if word.startswith(name)),
    ]
    return near[0] if near else ""


def check_settings(c: Config) -> None:
    """Refuse settings that cannot work, before problems and model are read. Raises Refusal: a sentence for each."""
    wrong, lowest, highest = [], settings_with("low"), settings_with("high")
    for name, x in asdict(c).items():
        if type(x) in (int, float) and not (math.isfinite(x) and (x >= lowest[name] if name in lowest else x > 0)):
            wrong.append(f"--{name} {x} must be {f'at least {lowest[name]}' if name in lowest else 'positive'}")
        elif name in highest and x is not None and x > highest[name]:
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
    sizes = [*settings_with("size")]
    missing = [name for name in sizes if name not in given]
    recipe = recipe_of(config)
    has_size = "recipe" in given or any(recipe[name][1].startswith(IN_FOLDER) for name in sizes)
    if not missing or has_size or is_missing_folder(config.model):
        return
    memory_gib = torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 0
    machine, example = "this CPU", {"rollouts_per_prompt": 16, "prompts_per_step": 8, "max_response_tokens": 128}
    if memory_gib:
        machine = f"this GPU of {memory_gib:.0f} GiB"
        example |= {"prompts_per_step": 128 if memory_gib > 60 else 64, "max_response_tokens": 1024}
    flags = " ".join(f"--{name} {example[name]}" for name in missing)
    now = {name: getattr(config, name) for name in sizes}
    raise Refusal(
        f"--model {config.model}: name the size of a step, for {machine} for example {flags}. Now it is "
        f"{now['prompts_per_step']} x {now['rollouts_per_prompt']} responses of up to "
        f"{now['max_response_tokens']:,} tokens: say --recipe {config.recipe} if you want that"
    )
