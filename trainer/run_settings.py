"""The settings that a run keeps: config.json, with which --resume compares its own, and recipe.json of its model."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import brorl
from trainer.exits import Refusal
from trainer.settings import Config, rule


def settings_at_start(config: Config) -> dict[str, Any]:
    """Read the config.json of the run to resume. Raises Refusal if there is none."""
    folder = Path(config.output_dir) / config.name
    with suppress(OSError, ValueError, TypeError, KeyError):
        at_start = dict(json.loads((folder / "config.json").read_text()))
        if at_start["digests"] and not at_start["eval_only"]:
            return at_start
    raise Refusal(f"--resume: {folder} has no config.json of a training run; set --name and --output_dir")


def check_same_run(config: Config, launch: dict[str, Any], digests: dict[str, str]) -> None:
    """Refuse a --resume with other settings, precision, sharding, problems, tokenizer or reward files."""
    at_start, now = settings_at_start(config), asdict(config) | launch
    changed = [
        f"{k} was {at_start.get(k)}, is {now[k]}" for k in now.keys() - rule("free").keys() if at_start.get(k) != now[k]
    ]
    before = at_start["digests"]
    changed += [name for name in digests.keys() | before.keys() if before.get(name) != digests.get(name)]
    if changed:
        raise Refusal(f"--resume would continue another run: {'; '.join(changed)} changed")


def recipes_of_run(config: Config) -> dict[str, Any]:
    """Return recipe.json of the model that a run trains: the run's values, for other recipes those of an evaluation."""
    origin = f"as in the run {config.name}"
    trained_with = {name: getattr(config, name, None) for name in brorl.RECIPES[config.recipe]}
    if config.lora_rank:
        trained_with["learning_rate"] = None  # a recipe's rate is for all weights
    settings = {name: {"value": x, "source": origin} for name, x in trained_with.items() if x is not None}
    recipes = {recipe: {name: settings[name] for name in brorl.EVALUATION} for recipe in brorl.RECIPES}
    return recipes | {config.recipe: settings}
