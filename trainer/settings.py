"""The settings of a run, one line each. A field's help is its documentation (`python train.py --help`).

A value comes from the command line, else from recipe.json in the model's folder, else from brorl.RECIPES[recipe]:
trainer/defaults.py fills it in, and trainer/command_line.py refuses impossible ones. A field without a value is None
until then. Later trainer/launch.py chooses the precision, and trainer/data.py may lower eval_max_response_tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import brorl
from rollout import ENGINES

TINY = Path(__file__).resolve().parent.parent / "tiny"  # the tiny policy and its problems
GIVEN = "command line"  # the origin of a setting that the user set


def setting(default: Any, help: str, choices: list[str] | None = None, **rules: Any) -> Any:
    """Declare a field. default None: --help shows the recipe's value, or the value in brackets at the end of `help`.

    The rules, all optional; code asks for them by `settings_with`, so a new setting is this one line:

    group        title in --help of the group that starts here
    free         --resume may change it; docs/training.md says what changes then
    shown        it changes the algorithm and is in no recipe: the first lines of a run show it if the user set it
    size         the user of a model of their own must name it, or the recipe
    low, high    the smallest and largest value; without `low` a number must be positive
    also         names of the same setting in other libraries, for the message about an unknown setting
    """
    return field(default=default, metadata={"help": help, "rules": rules} | ({"choices": choices} if choices else {}))


def settings_with(rule: str) -> dict[str, Any]:
    """Setting -> value, of the settings that have this rule."""
    return {f.name: f.metadata["rules"][rule] for f in fields(Config) if rule in f.metadata["rules"]}


@dataclass
class Config:
    model: str = setting(None, "folder or hub name to start from [tiny/policy]", group="run")
    data: list[str] = setting(None, "training problems: FILE.jsonl, hf:NAME or gym:NAME, each with an optional :WEIGHT")
    eval_data: list[str] = setting(None, "held-out problems, in the same forms")
    rewards: list[str] = setting(None, "Python files with kinds of problems of your own")
    system_prompt: str = setting(None, "system message; a text prompt becomes a chat")
    recipe: str = setting("brorl", "brorl (N = 512) or prorl (N = 16) [brorl]", choices=[*brorl.RECIPES])
    name: str = setting(None, "folder of the run [by recipe, model and seed]")
    output_dir: str = setting("runs", "folder of all runs [runs]", free=True)
    resume: bool = setting(False, "continue the run of this name", free=True)
    eval_only: bool = setting(False, "evaluate the model on --eval_data, train nothing")
    seed: int = setting(0, "of problem order, sampling and mini-batches", low=0)
    max_steps: int = setting(None, "steps of the run", free=True, also=["epochs"])
    max_hours: float = setting(None, "stop after these hours, with a last evaluation", free=True)
    max_samples: int = setting(None, "stop after these rollouts, dropped ones too, with a last evaluation", free=True)

    rollouts_per_prompt: int = setting(
        None, "N", group="sections 3.1 and 4.2.1", low=2, size=True, also=["N", "n", "num_generations", "group_size"]
    )
    prompts_per_step: int = setting(None, "B, informative prompts of a step", size=True, also=["B", "batch_size"])
    refill: float = setting(4.0, "a step draws up to this many times B; our choice", low=1, shown=True)
    learning_rate: float = setting(None, "of AdamW; scaled if N or B is set", free=True, also=["lr"])
    updates_per_step: int = setting(None, "U, mini-batches and optimizer steps of a step")
    objective: list[str] = setting(
        None,
        "brorl, group_std, ..., gspo, or FILE.py:NAME; then PARAMETER=VALUE, such as clip_high=0.3 [brorl]",
        shown=True,
        also=["clip_low", "clip_high"],
    )
    kl_coef: float = setting(None, "β, weight of the KL term; 0: no reference", low=0, also=["beta"])
    reference_reset_steps: int = setting(None, "steps between resets; 0: never", low=0)
    lora_rank: int = setting(0, "R: train low-rank adapters only (LoRA); 0: train all weights", low=0, shown=True)

    engine: str = setting(
        None,
        "the sampler: " + ", ".join(ENGINES) + " [vllm if it and a GPU are present]",
        choices=[*ENGINES],
        group="sampling",
    )
    gpu_memory_utilization: float = setting(0.5, "share of a GPU for the engine while rolling out", high=1, free=True)
    max_engine_kl: float = setting(None, "most KL(engine, trainer) [1e-4; 5e-3 in bfloat16]", free=True)
    temperature: float = setting(None, "while training, also of the log-probs")
    max_response_tokens: int = setting(
        None, "longest response while training", size=True, also=["max_tokens", "max_completion_length"]
    )

    eval_every: int = setting(
        None, "steps between evaluations; 0: first and last", group="evaluation", low=0, free=True
    )
    eval_problems: int = setting(None, "held-out problems to evaluate on, a fixed choice [all]")
    eval_samples: int = setting(None, "k, responses per held-out problem")
    eval_temperature: float = setting(None, "temperature of an evaluation", low=0)
    eval_top_p: float = setting(None, "top-p of an evaluation", high=1)
    eval_max_response_tokens: int = setting(None, "longest response of an evaluation")

    verify_timeout: float = setting(
        10.0, "seconds for judging one answer, all its tests", group="verifying, machine and logs", free=True
    )
    allow_weak_sandbox: bool = setting(False, "run model code without complete isolation", free=True)
    precision: str = setting(
        None,
        "of forward passes; trained weights stay in float32 [bfloat16 if a GPU has it natively, else float32]",
        choices=["bfloat16", "float32"],
    )
    max_tokens_per_micro_batch: int = setting(32768, "tokens of one forward pass, with padding", free=True)
    gradient_checkpointing: bool = setting(False, "save memory: compute activations twice", free=True)
    offload: bool = setting(False, "save memory: moments and reference in host memory", free=True)
    save_every: int = setting(None, "steps between checkpoints [by time: every 5 minutes]", free=True)
    keep_checkpoints: int = setting(2, "newest checkpoints that stay", free=True)
    report_to: str = setting(None, "also log to tensorboard or wandb", choices=["tensorboard", "wandb"], free=True)


def formatted(value: Any) -> str:
    """Return a value for the console; a number with three digits."""
    value = " ".join(value) if isinstance(value, list) else value
    return f"{value:.3g}" if isinstance(value, float) else str(value)
