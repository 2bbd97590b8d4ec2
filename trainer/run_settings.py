"""config.json, which run.py writes and --resume compares with its settings and inputs; recipe.json of a model."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import brorl
from kinds.users import reward_files
from trainer.data import Data
from trainer.objectives import file_of
from trainer.process import Refusal
from trainer.settings import Config, settings_with


def settings_at_start(config: Config) -> dict[str, Any]:
    """Read the config.json of the run to resume. Raises Refusal if there is none."""
    folder = Path(config.output_dir) / config.name
    with suppress(OSError, ValueError, TypeError, KeyError):
        at_start = dict(json.loads((folder / "config.json").read_text()))
        if at_start["digests"] and not at_start["eval_only"]:
            return at_start
    raise Refusal(f"--resume: {folder} has no config.json of a training run; set --name and --output_dir")


def input_digests(config: Config, data: Data) -> dict[str, str]:
    """Digests of a run's inputs besides its settings; a reward file and each file of its folder that it imports."""
    tokenizer: Any = data.tokenizer
    written = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else tokenizer.get_vocab()
    parts: dict[str, Any] = {
        "the training problems": data.problems,
        "the held-out problems": data.held_out,
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


def check_same_run(config: Config, sharded: bool, digests: dict[str, str]) -> None:
    """Refuse a --resume with other settings, precision, sharding, problems, tokenizer or reward files."""
    at_start, now = settings_at_start(config), asdict(config) | {"sharded": sharded}
    before = {field.name: field.default for field in fields(config)} | at_start  # a newer setting had its default
    changed = [
        f"{k} ({before[k]} -> {now[k]})" for k in now.keys() - settings_with("free").keys() if before[k] != now[k]
    ]
    inputs = at_start["digests"]
    changed += [name for name in digests.keys() | inputs.keys() if inputs.get(name) != digests.get(name)]
    if changed:
        raise Refusal(
            f"--resume would continue another run, these changed: {', '.join(changed)}. Change them back, or start a "
            "new run, without --resume and with another --name"
        )


def recipes_of_run(config: Config) -> dict[str, Any]:
    """Return recipe.json of the model that a run trains: the run's values, for other recipes those of an evaluation."""
    origin = f"as in the run {config.name}"
    trained_with = {name: getattr(config, name, None) for name in brorl.RECIPES[config.recipe]}
    if config.lora_rank:
        trained_with["learning_rate"] = None  # a recipe's rate is for all weights
    settings = {name: {"value": x, "source": origin} for name, x in trained_with.items() if x is not None}
    recipes = {recipe: {name: settings[name] for name in brorl.EVALUATION} for recipe in brorl.RECIPES}
    return recipes | {config.recipe: settings}
