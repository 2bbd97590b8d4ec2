"""The values of the settings that the user left open, and the origin of each value.

They come from the recipe, which recipe.json in the model's folder overrides, or with --resume from config.json of the
run. A learning rate is scaled to the samples of a step (`fill_from_recipe`).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import brorl
from engines.vllm import have_vllm
from sandbox.messages import printable
from trainer.process import Refusal
from trainer.run_settings import settings_at_start
from trainer.settings import GIVEN, TINY, Config, settings_with

PRORL_SAMPLES = 16 * 512  # of a step of the paper's ProRL: N = 16, B = 512 (table 1)
IN_FOLDER = "recipe.json: "  # the origin of a setting of recipe.json in the model's folder starts with this


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
    shown_first = brorl.BRORL.keys() | (given & settings_with("shown").keys())
    return {f.name: origins.get(f.name, GIVEN) for f in fields(config) if f.name in shown_first}


def default_name(config: Config) -> str:
    """Return RECIPE-seedSEED for the tiny policy, RECIPE-MODEL-seedSEED for a model, eval-MODEL for --eval_only."""
    path = Path(os.path.abspath(config.model or TINY / "policy"))
    model = path.parent.name if path.name == "model" else path.name
    if config.eval_only:
        return f"eval-{model}"
    return f"{config.recipe}-{model}-seed{config.seed}" if config.model else f"{config.recipe}-seed{config.seed}"


def fill_from_recipe(config: Config) -> dict[str, str]:
    """Fill in the recipe's values. A learning rate belongs to N x B samples: if N or B is given, it is scaled.

    It rises and falls with sqrt(N x B), but no lower than at ProRL's N x B, 8,192, where it is η_0: the paper's rule is
    for larger steps, and others train with η_0 at 256 to 1,024 samples. A recipe.json with a smaller step keeps its
    rate below it. A recipe.json without a rate leaves the recipe's rate, which belongs to the recipe's own N x B.
    """
    defaults = recipe_of(config)
    open_ = [name for name in defaults if getattr(config, name) is None]
    if (config.max_hours is not None or config.max_samples is not None) and config.max_steps is None:
        open_.remove("max_steps")
    for name in open_:
        setattr(config, name, defaults[name][0])
    origins = {name: defaults[name][1] for name in open_}
    in_folder = defaults["learning_rate"][1].startswith(IN_FOLDER)
    values: dict[str, Any] = {name: x.value for name, x in brorl.RECIPES[config.recipe].items()}
    values |= {name: x for name, (x, _) in defaults.items()} if in_folder else {}
    usual = values["rollouts_per_prompt"] * values["prompts_per_step"]  # the samples that the rate belongs to
    samples = config.rollouts_per_prompt * config.prompts_per_step
    if "learning_rate" in origins and samples != usual and samples > 0:
        scaled_to = max(samples, min(usual, PRORL_SAMPLES))
        config.learning_rate = brorl.scaled_learning_rate(config.learning_rate, scaled_to, usual)
        least = ", also for fewer" if samples < scaled_to else ""
        origins["learning_rate"] = (
            f"for {scaled_to:,} samples per step{least}: sqrt({scaled_to:,} / {usual:,}), section 4.2.1, times "
            f"the rate of {origins['learning_rate']}"
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
