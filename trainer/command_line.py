"""From the command line to the settings of a run: `read_settings` parses, fills in what the user left open, and checks.

A value that the user did not set comes from the recipe, or with --resume from config.json of the run.
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
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers import HfArgumentParser

import brorl
from engines.vllm import have_vllm
from sandbox.messages import printable
from trainer.data import read_spec
from trainer.exits import Refusal, refusing
from trainer.objectives import load_objective
from trainer.pretrained import is_missing_folder
from trainer.run_settings import settings_at_start
from trainer.settings import GIVEN, TINY, Config, formatted, rule

PRORL_SAMPLES = 16 * 512  # of a step of the paper's ProRL: N = 16, B = 512 (table 1)
IN_FOLDER = "recipe.json: "  # the origin of a setting of recipe.json in the model's folder starts with this
PAPERS = [{name: x.value for name, x in recipe.items()} for recipe in brorl.RECIPES.values()]
EMBEDDED = [
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
        for recipes in (PAPERS, EMBEDDED)
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
        *(name for name, synonyms in rule("also").items() if word in synonyms),
        *(name for name in names if name.startswith(word)),
        *difflib.get_close_matches(word, names, 1),
        *(name for name in names if word.startswith(name)),
    ]
    return near[0] if near else ""


# ------------------------------------------------------- values that the user did not set: recipe, earlier run


def resolve(config: Config, given: set[str]) -> dict[str, str]:
    """Fill in the settings without a value. Returns the origin of each value that the first lines of a run show.

    On --resume a setting that is not `given` keeps its value from the start of the run.
    """
    if config.resume and config.eval_only:
        raise Refusal("--eval_only does not resume a run: evaluate its model with --model runs/NAME/model")
    config.name = config.name or default_name(config)
    if config.name in (".", "..") or not re.fullmatch(r"[^/\\]+", config.name) or not config.name.isprintable():
        raise Refusal(
            f"--name {printable(config.name)} must be the name of one folder, without / or \\: the run is written to "
            "that folder of --output_dir, which sets the path"
        )
    if config.resume:
        at_start = settings_at_start(config)
        for name in at_start.keys() & {f.name for f in fields(config)} - given - {"resume", "output_dir", "name"}:
            setattr(config, name, at_start[name])
    if (config.data is None) != (config.eval_data is None) and not config.eval_only:
        raise Refusal("--data and --eval_data belong together: name both, or none for the tiny policy's problems")
    config.model = config.model or str(TINY / "policy")
    config.data = config.data or [str(TINY / "train.jsonl")]
    config.eval_data = config.eval_data or [str(TINY / "test.jsonl")]
    config.rewards = config.rewards or []
    config.objective = config.objective or ["brorl"]
    config.engine = config.engine or ("vllm" if torch.cuda.is_available() and have_vllm() else "torch")
    if config.resume:
        origins = {name: GIVEN if name in given else "as the run began" for name in brorl.BRORL}
    else:
        origins = fill_from_recipe(config)
    shown_first = brorl.BRORL.keys() | (given & rule("shown").keys())
    return {f.name: origins.get(f.name, GIVEN) for f in fields(config) if f.name in shown_first}


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


def default_name(config: Config) -> str:
    """Return RECIPE-seedSEED for the tiny policy, RECIPE-MODEL-seedSEED for a model, eval-MODEL for --eval_only."""
    path = Path(os.path.abspath(config.model or TINY / "policy"))
    model = path.parent.name if path.name == "model" else path.name
    return (
        f"eval-{model}" if config.eval_only else f"{config.recipe}-{f'{model}-' * bool(config.model)}seed{config.seed}"
    )


def fill_from_recipe(config: Config) -> dict[str, str]:
    """Fill in the recipe's values. A learning rate belongs to N x B samples: if N or B is given, it is scaled.

    It rises and falls with sqrt(N x B), but no lower than at ProRL's N x B, 8,192, where it is η_0: the paper's rule is
    for larger steps, and others train with η_0 at 256 to 1,024 samples. A recipe.json with a smaller step keeps its
    rate below it.
    """
    defaults = recipe_of(config)
    open_ = [name for name in defaults if getattr(config, name) is None]
    if (config.max_hours is not None or config.max_samples is not None) and config.max_steps is None:
        open_.remove("max_steps")
    for name in open_:
        setattr(config, name, defaults[name][0])
    origins = {name: defaults[name][1] for name in open_}
    usual = defaults["rollouts_per_prompt"][0] * defaults["prompts_per_step"][0]
    samples = config.rollouts_per_prompt * config.prompts_per_step
    if "learning_rate" in origins and samples != usual and samples > 0:
        scaled_to = max(samples, min(usual, PRORL_SAMPLES))
        config.learning_rate = brorl.scaled_learning_rate(config.learning_rate, scaled_to, usual)
        smaller = "; smaller steps have this rate too" if samples < scaled_to else ""
        origins["learning_rate"] = (
            f"sqrt({scaled_to:,} / {usual:,} samples{smaller}), section 4.2.1, times {origins['learning_rate']}"
        )
    return origins


def recipe_of(config: Config) -> dict[str, tuple[Any, str]]:
    """Return name -> (value, origin): the recipe's settings, overridden by recipe.json in the model's folder."""
    recipe = {name: (x.value, f"{config.recipe}: {x.source}") for name, x in brorl.RECIPES[config.recipe].items()}
    path = Path(config.model) / "recipe.json"
    if path.is_file():
        form = '{"brorl": {"learning_rate": {"value": 1e-6, "source": "..."}}}'
        try:
            for name, x in json.loads(path.read_text()).get(config.recipe, {}).items():
                recipe[name] = type(recipe[name][0])(x["value"]), f"{IN_FOLDER}{x['source']}"
        except (ValueError, KeyError, TypeError, AttributeError) as mistake:
            raise Refusal(f"{path} does not have the form {form}: {mistake!r}") from None
    return recipe


# ------------------------------------------------------------------------------------------------------- the checks


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
            with refusing(f"--{flag}: "):
                source, _ = read_spec(spec)
            if not source.startswith(("hf:", "gym:")) and not os.path.isfile(source):
                commas = "; separate files by spaces" if "," in source else ""
                wrong.append(f"--{flag} {source}: there is no such file{commas}")
    with refusing("--objective "):
        load_objective(c.objective)
    if wrong:
        raise Refusal("\n".join(wrong))
