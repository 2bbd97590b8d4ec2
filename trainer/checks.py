"""What a run refuses before it starts, and where each of its settings comes from.

`resolve` fills what the command line left open. `check` applies the rule of each setting (settings.py), then the rules
between several settings and about how the run was launched (`contradictions`).
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import is_tensorboard_available, is_wandb_available

import brorl
import loss as L
from rollout import have_vllm
from trainer.report import short
from trainer.settings import Config
from verify import read_spec

TINY = Path(__file__).resolve().parent.parent / "tiny"  # the embedded default: a policy and its problems
RECIPE_FILE = "recipe.json"  # beside a model's weights: the settings measured for this model
EVALUATION_FILE = "evaluation.json"  # the same place: what the run that trained it was evaluated on, and how it asked
ASKED = ("eval_data", "rewards", "eval_seed", "system_prompt", "examples")  # the settings in it
TRACKERS = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available}


def contradictions(c: Config, problems: int, accelerator: Accelerator) -> Iterator[str]:
    """Rules between several settings, and about how the run was launched: a sentence for each that is broken."""
    n, b, u, kind = c.rollouts_per_prompt, c.prompts_per_step, c.updates_per_step, accelerator.distributed_type.value
    if (c.max_steps, c.max_samples, c.max_hours) == (None, None, None):
        yield "no budget: set --max_steps, --max_samples or --max_hours"
    if not c.eval_only:
        if b > problems:
            yield f"--prompts_per_step {b} exceeds the {problems} training problems: lower it"
        if n * b < u:
            yield (
                f"--rollouts_per_prompt {n} x --prompts_per_step {b} do not fill --updates_per_step {u} mini-batches: "
                "lower it"
            )
        if c.mini_batches == "prompts" and b < u:
            yield f"--mini_batches prompts: {b} prompts do not fill {u} mini-batches: lower --updates_per_step"
    if c.eval_temperature == 0 and c.eval_samples > 1:
        yield f"--eval_temperature 0 is greedy: {c.eval_samples} equal responses, set --eval_samples 1"
    if c.log_noise and n < 4:
        yield f"--log_noise takes a group apart in halves of 2 rollouts or more: with N = {n} set it to 0"
    if c.log_noise and c.advantage not in L.SAME_WHEN_WHITENED:
        yield f"--log_noise measures the noise of the paper's advantages: set it to 0 with --advantage {c.advantage}"
    if c.preflight and c.advantage not in L.SAME_WHEN_WHITENED:
        yield f"--preflight measures the noise of the paper's advantages: leave --advantage {c.advantage} out"
    if c.log_mass_balance and accelerator.num_processes > 1:
        yield (
            f"--log_mass_balance looks at whole groups, and each of {accelerator.num_processes} processes has a part "
            "of them: leave it out, or start one process"
        )
    if c.engine != "vllm" and (c.max_num_seqs, c.engine_dtype, c.kv_cache_gib) != (None, None, None):
        yield "--max_num_seqs, --engine_dtype and --kv_cache_gib belong to --engine vllm"
    if kind not in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP"):
        yield (
            f"Accelerate is set to {kind}: this loop runs on one process, on data-parallel ones, or under FSDP2 (NO, "
            "MULTI_CPU, MULTI_GPU, FSDP), change it with `accelerate config`"
        )
    if kind == "FSDP" and not accelerator.is_fsdp2:
        yield "FSDP's first version is set in Accelerate: write fsdp_version: 2 into its config"
    if kind == "FSDP" and accelerator.state.fsdp_plugin.cpu_ram_efficient_loading:
        yield (
            "every process loads the model whole before it is cut up: write fsdp_cpu_ram_efficient_loading: false into "
            "Accelerate's config"
        )
    if kind == "FSDP" and c.optimizer_from:
        yield "--optimizer_from: FSDP2 has cut the optimizer up, leave it out or use data-parallel processes"
    if accelerator.mixed_precision not in ("no", "bf16"):
        yield (
            f"mixed precision {accelerator.mixed_precision}: this loop computes in float32 or bfloat16 (no scaling of "
            "losses), start it with --mixed_precision bf16"
        )
    if accelerator.gradient_accumulation_steps != 1:
        yield (
            "gradient accumulation is set in Accelerate: here micro-batches (--max_tokens_per_micro_batch) do that, "
            "set it to 1"
        )


def check(config: Config, problems: int, accelerator: Accelerator) -> None:
    """Refuse at the start what would only fail, or mislead, later. problems: how many there are to train on.

    Raises ValueError with a sentence for each setting whose own rule is broken; else for each contradiction.
    """
    wrong = []
    for declared in fields(config):
        name, value, rule = declared.name, getattr(config, declared.name), declared.metadata["rule"]
        if isinstance(value, float) and not math.isfinite(value):
            wrong.append(f"--{name} {value}: must be a finite number")
        elif rule and value is not None and not rule[0](value):
            wrong.append(f"--{name} {value}: {rule[1]}")
    if wrong := wrong or [*contradictions(config, problems, accelerator)]:
        raise ValueError("\n".join(wrong))


def resolve(config: Config, given: set[str] | None = None, on_gpu: bool = False) -> dict[str, str]:
    """Fill the settings that are None, and return where every filled one comes from.

    A learning rate belongs to a batch: if N or B is changed and the rate is not, it follows section 4.2.1's rule.
    On --resume, what is not `given` (default: not set) is what the run was started with.
    """
    if config.resume and config.overwrite:
        raise ValueError("--resume keeps a run and --overwrite deletes it: choose one")
    if config.resume and not config.trains:
        raise ValueError("--eval_only and --preflight resume no run: name what it trained, --model runs/NAME/model")
    if config.eval_only and config.preflight:
        raise ValueError("--eval_only scores a policy and --preflight looks at a training set: choose one")
    config.name = config.name or default_name(config)
    unset = asdict(Config())
    given = given if given is not None else {name for name, x in asdict(config).items() if x != unset[name]}
    sources = settings_of_resumed_run(config, given) if config.resume else settings_of_scored_run(config, given)
    if config.recipe not in brorl.RECIPES:
        raise ValueError(f"--recipe {config.recipe}: choose {' or '.join(brorl.RECIPES)}")
    name_sources(config, "examples" in sources)
    config.engine = config.engine or ("vllm" if on_gpu and have_vllm() else "torch")

    defaults = recipe_of(config.recipe, config.model)
    if config.max_samples is not None or config.max_hours is not None:
        del defaults["max_steps"]
    for name in (name for name in defaults if getattr(config, name) is None):
        value, sources[name] = defaults[name]
        setattr(config, name, value)
    batch = config.rollouts_per_prompt * config.prompts_per_step
    usual = defaults["rollouts_per_prompt"][0] * defaults["prompts_per_step"][0]
    if not config.resume and "learning_rate" in sources and batch != usual and batch > 0:
        eta_0 = config.learning_rate
        config.learning_rate = brorl.scaled_learning_rate(eta_0, batch, usual)
        sources["learning_rate"] = (
            f"{eta_0:g} x sqrt({batch:,} / {usual:,} samples), section 4.2.1; {sources['learning_rate']}"
        )
    return sources


def default_name(config: Config) -> str:
    """RECIPE-seedSEED for the embedded policy, RECIPE-MODEL-seedSEED for another, eval-MODEL for an evaluation.

    MODEL is the last part of a hub's name or of a folder's; for runs/NAME/model it is NAME.
    """
    path = Path(os.path.abspath(config.model or TINY / "policy"))
    model = path.parent.name if path.name == "model" else path.name
    if not config.trains:
        return f"{'eval' if config.eval_only else 'preflight'}-{model}"
    return f"{config.recipe}-{f'{model}-' if config.model else ''}seed{config.seed}"


def started_with(config: Config) -> dict:
    """The settings of the run that is to be resumed, from its config.json."""
    path = Path(config.output_dir) / config.name / "config.json"
    if not path.is_file():
        raise ValueError(f"--resume: there is no run at {path.parent}; drop --resume, or name the run with --name")
    try:
        settings = dict(json.loads(path.read_text()))
        settings["model"], settings["rollouts_per_prompt"]
        if settings.get("eval_max_response_tokens") is None:  # then it followed training's
            settings["eval_max_response_tokens"] = settings["max_response_tokens"]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"--resume: {path} is not the settings of a run; --overwrite the run") from None
    for name in ("eval_only", "preflight"):
        if settings.get(name):
            raise ValueError(f"--resume: {path.parent} is no training run, it starts over: --{name} --overwrite")
    return settings


def settings_of_resumed_run(config: Config, given: set[str]) -> dict[str, str]:
    """Take the settings that the run was started with, but those that are `given`; returns where each comes from."""
    began = started_with(config)
    names = (asdict(config).keys() & began.keys()) - given - {"resume", "overwrite", "output_dir", "name"}
    for name in names:
        setattr(config, name, began[name])
    return {name: "as the run began" for name in names if began[name] is not None}


def settings_of_scored_run(config: Config, given: set[str]) -> dict[str, str]:
    """--eval_only of a run's model: take ASKED from beside it, but what is `given`; returns where each comes from.

    A system message and examples belong together: with one of them given, neither is taken.
    """
    path = Path(config.model or TINY / "policy") / EVALUATION_FILE
    if not config.eval_only or not path.is_file():
        return {}
    together = {"system_prompt", "examples"}
    try:
        kept = json.loads(path.read_text())
        kept = {name: kept[name] for name in (*ASKED, "run")}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not what a run keeps beside its model: delete it, and give --eval_data") from None
    names = {*ASKED} - given - (together if together & given else set())
    for name in names:
        setattr(config, name, len(kept[name]) if name == "examples" else kept[name])
    return {name: f"{EVALUATION_FILE}: as in the run {kept['run']}" for name in names if kept[name] not in (None, [])}


def name_sources(config: Config, kept: bool = False) -> None:
    """--model, --data and --eval_data as whole paths, so that a run can be resumed from elsewhere; or the embedded.

    kept: are the examples those that a run kept beside its model? Then they need no --data.
    """
    if weighted := [str(spec) for spec in config.eval_data or [] if read_spec(str(spec))[1] is not None]:
        raise ValueError(
            f"--eval_data {' '.join(weighted)}: held-out problems are not mixed by weight. Each is asked once, every "
            "source has a row of its own and the same share of their mean: leave the :WEIGHT out"
        )
    if config.data and not config.eval_data and not config.preflight:
        raise ValueError("--data without --eval_data would be judged on tiny/test.jsonl: name held-out problems too")
    if config.examples > 0 and not config.data and not kept:
        raise ValueError(f"--examples {config.examples} are problems of --data: name it")
    config.model = config.model or str(TINY / "policy")
    config.model = os.path.abspath(config.model) if os.path.isdir(config.model) else config.model
    config.data = [absolute(str(spec)) for spec in config.data or [str(TINY / "train.jsonl")]]
    config.eval_data = [absolute(str(spec)) for spec in config.eval_data or [str(TINY / "test.jsonl")]]
    config.rewards = config.rewards and [os.path.abspath(path) for path in config.rewards]
    config.optimizer_from = config.optimizer_from and os.path.abspath(config.optimizer_from)


def absolute(spec: str) -> str:
    """A file of problems by its whole path; other sources as they are."""
    source, weight = read_spec(spec)
    if source.startswith(("hf:", "gym:")):
        return spec
    return os.path.abspath(source) + ("" if weight is None else f":{weight:g}")


def recipe_of(recipe: str, model: str) -> dict[str, tuple[Any, str]]:
    """name -> (value, where it stands): the recipe's settings, and before them what was measured for this model."""
    ours = brorl.RECIPES[recipe]
    defaults = {name: (x.value, f"--recipe {recipe}: {x.source}") for name, x in ours.items()}
    path = Path(model) / RECIPE_FILE
    if not path.is_file():
        return defaults
    try:
        measured = json.loads(path.read_text()).get(recipe, {})
        defaults |= {name: (x["value"], f"{RECIPE_FILE}: {x['source']}") for name, x in measured.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as mistake:
        form = '{"brorl": {"setting": {"value": ..., "source": "..."}}}'
        raise ValueError(f"{path} is not of the form {form}: {mistake!r}") from None
    if unknown := sorted(set(measured) - set(ours)):
        raise ValueError(f"{path}: unknown settings {unknown}; a recipe has {', '.join(ours)}")
    if wrong := sorted(k for k in measured if isinstance(defaults[k][0], str) != isinstance(ours[k].value, str)):
        raise ValueError(f"{path}: {wrong} must be of the same type as in brorl.py, a number or text")
    return defaults


def source_names(specs: list[str]) -> list[str]:
    """Short names of --eval_data: hf:aime24 is aime24, FOLDER/test.jsonl is test, gym:chain_sum*50 is gym:chain_sum.

    Where two would have the same name, both keep the one that they were given. Raises ValueError for a source that is
    named twice: its problems would count twice.
    """
    if twice := sorted(spec for spec, count in Counter(specs).items() if count > 1):
        raise ValueError(f"--eval_data has {', '.join(map(short, twice))} twice: name each source once")
    names = []
    for spec in specs:
        kind, _, rest = spec.partition(":")
        plain = {"hf": rest.partition("=")[0], "gym": spec.partition("*")[0]}
        names.append(plain.get(kind) or Path(spec).stem)
    return [name if names.count(name) == 1 else short(spec) for name, spec in zip(names, specs, strict=True)]


def trackers(report_to: str | None) -> list[str]:
    """The trackers of --report_to. Raises ValueError for one that is not known or not installed."""
    names = [name.strip() for name in (report_to or "").split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"--report_to {name}: choose one of {', '.join(TRACKERS)}, or both with a comma")
        if not TRACKERS[name]():
            raise ValueError(f"--report_to {name}: the package is not installed: pip install {name}")
    return names
