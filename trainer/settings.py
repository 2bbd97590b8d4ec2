"""The settings of a run: one dataclass, each field's help its documentation (`python train.py --help`).

A setting is taken from the first of: the command line; `recipe.json` in the model's folder (values measured for that
model); the recipe of brorl.py (checks.resolve).
"""

from __future__ import annotations

import argparse
import difflib
import sys
from dataclasses import dataclass, field, fields
from typing import Any

from transformers import HfArgumentParser

import brorl
import loss as L
from trainer.report import shown

MEMORY_OF_NORMS = 100  # gradient norms of so many updates say what is usual


def setting(default, help: str) -> Any:
    """A field whose documentation is its `--help`."""
    return field(default=default, metadata={"help": help})


@dataclass
class Config:
    """Settings of a run. What is not given is taken from the model's recipe.json, else from the recipe."""

    # what
    model: str = setting(None, "policy to start from, a folder or a hub name; none: the embedded tiny/policy")
    data: list[str] = setting(
        None,
        "training problems: FILE.jsonl, hf:NAME[=FOLDER] or gym:NAME[*COUNT], each with an optional :WEIGHT such as "
        ":0.5; none: tiny/train.jsonl",
    )
    eval_data: list[str] = setting(
        None, "held-out problems, in the same forms without :WEIGHT; needed with --data; none: tiny/test.jsonl"
    )
    rewards: list[str] | None = setting(
        None, "Python files with kinds of problems and their rewards of your own (docs/problems.md)"
    )
    system_prompt: str | None = setting(
        None,
        "a system message before every prompt, held-out ones too; text is asked as a chat then. A chat with a system "
        'message of its own keeps that. "": chats without one of yours, where a template may put its own. none: a '
        "prompt that is text goes to the model as text (paper silent)",
    )
    examples: int = setting(
        0,
        "so many problems of --data stand solved before every prompt, held-out ones too, as turns of a chat; --seed "
        "draws them, and they are not trained on (paper silent)",
    )
    recipe: str = setting("brorl", "brorl (N = 512) or prorl (N = 16): the defaults of section 4.2.1")
    name: str = setting(
        None,
        "the run's folder under --output_dir; none: RECIPE-seedSEED, with --model RECIPE-MODEL-seedSEED, or eval-MODEL",
    )
    output_dir: str = setting("runs", "where runs are written")
    resume: bool = setting(False, "continue the run of this name from its newest checkpoint")
    overwrite: bool = setting(False, "delete the run of this name first")
    eval_only: bool = setting(False, "evaluate the model on --eval_data, a row for each source, and stop")
    seed: int = setting(0, "of the problems' order, the sampling, and everything else")

    # budget: the run ends with the first that is spent; without any, with the recipe's max_steps
    max_steps: int | None = setting(None, "steps; table 1: +191 for BroRL, +535 for ProRL")
    max_samples: int | None = setting(None, "rollouts generated, counted before dynamic sampling as in table 1")
    max_hours: float | None = setting(None, "wall-clock hours")

    # sections 3.1 and 4.2.1
    rollouts_per_prompt: int = setting(
        None,
        "N (section 4.2.1); FIRST:MOST, as in 16:512, draws a prompt's in waves of 16, 16, 32, 64, ... until one holds "
        "a success, which is then its group; needs --advantage group_mean (trainer/waves.py)",
    )
    first_rollouts: int | None = setting(
        None, "rollouts of a prompt's first wave: what --rollouts_per_prompt 16:512 sets beside the most"
    )
    prompts_per_step: int = setting(
        None, "B (table 1); counted after dynamic sampling, which is our inference from tables 1 and 2"
    )
    refill: float = setting(4.0, "a step generates at most this many times B prompts, then goes on with what it has")
    sure: float = setting(
        0.9,
        "how often one round of generation is to hold all the informative prompts of a step; with less, fewer prompts "
        "are drawn in vain and rounds are more: 0.5 where responses are short",
    )
    learning_rate: float = setting(
        None,
        "of AdamW, constant; if N or B is given and this is not, the recipe's is multiplied by sqrt(N x B / the "
        "recipe's N x B) (section 4.2.1)",
    )
    warmup_updates: int = setting(
        0, "updates over which the learning rate rises to its value in equal steps; 0: none (paper silent)"
    )
    optimizer_from: str | None = setting(
        None,
        "a checkpoint whose AdamW moments the run starts with, runs/NAME/checkpoints/step_...; none: fresh ones, "
        "whose first updates move every weight by the whole learning rate (paper silent)",
    )
    updates_per_step: int = setting(
        None, "mini-batches a step, each one optimizer step (section 4.2.1: unchanged; paper silent on the number)"
    )
    mini_batches: str = setting(
        "rollouts", "of rollouts drawn from all prompts, or of whole prompts, which cost less where prompts are long"
    )
    advantage: str = setting(
        "mean_centred",
        "a rollout's reward minus its group's mean (section 3.1), that over the group's std (group_std: GRPO), or over "
        "the group's mean (group_mean: MaxRL, where a large N weighs rarely solved problems more); then whitened",
    )
    clip_low: float = setting(None, "ε_low (section 3.1)")
    clip_high: float = setting(None, "ε_high (section 3.1)")
    kl: str = setting(None, "estimator of the KL loss term: k1, k2 or k3; the gradient of k1 is 0 on average")
    kl_coef: float = setting(None, "β, weight of the KL term; 0: no reference model is loaded")
    tis_cap: float = setting(None, "C of the truncated importance weight (section 3.1)")
    reference_reset_steps: int = setting(None, "steps between resets of the reference; 0: never (section 3.1)")
    weight_decay: float = setting(0.01, "of AdamW (paper silent: the default of torch and of verl)")
    max_grad_norm: float = setting(1.0, "gradient clipping (paper silent: the default of verl)")
    max_skipped_updates: int = setting(
        16, "stop when so many updates in a row had no finite gradient and were left out"
    )
    spike: float = setting(10.0, "name an update whose gradient norm is so many times the recent median; 0: none")
    skip_spikes: bool = setting(
        False,
        "leave such updates out, like those without a finite gradient; their norms count, so that what stays is no "
        f"spike any more after {MEMORY_OF_NORMS // 2}",
    )

    # sampling
    engine: str = setting(None, "vllm, or torch (rollout.py's own); none: vllm where it and a GPU are present")
    engine_memory_gib: float = setting(2.0, "what decoding may hold beside the weights, per process; vLLM: on a CPU")
    gpu_memory_utilization: float = setting(0.5, "vLLM: its share of a GPU's memory while rolling out (verl's default)")
    kv_cache_gib: float | None = setting(
        None,
        "vLLM on a GPU: of its key-value cache; none: what its share leaves for it. The share must still be free when "
        "vLLM starts",
    )
    tensor_parallel_size: int = setting(1, "vLLM: so many neighbouring processes hold one engine together")
    max_num_seqs: int | None = setting(
        None,
        "vLLM: rollouts decoding at once; none: 512, or N if that is more (vLLM's own default is 1024 on an H100, 256 "
        "on an A100)",
    )
    engine_dtype: str | None = setting(None, "vLLM: none is bfloat16 on a GPU, float32 on a CPU")
    max_engine_difference: float | None = setting(
        None, "largest mean |log π_trainer - log π_engine| of a token at the start; none: 0.001 in float32, else 0.1"
    )
    max_engine_kl: float | None = setting(None, "largest KL(engine, trainer) there; none: 0.0001 in float32, else 0.05")
    temperature: float = setting(None, "while training; log-probs are taken at the same temperature")
    top_p: float = setting(None, "while training")
    max_response_tokens: int = setting(None, "a response is cut there (section 4.2.1)")

    # evaluation
    eval_every: int = setting(None, "steps between evaluations; 0: only before and after")
    eval_samples: int = setting(None, "k: responses per held-out problem (appendix D: 16)")
    eval_temperature: float = setting(None, "appendix D: 0.6")
    eval_top_p: float = setting(None, "appendix D: 0.95")
    eval_max_response_tokens: int = setting(
        None, "an evaluation's response is cut there (appendix D: 32k), or where the model's positions end if not given"
    )
    eval_seed: int = setting(1234, "of the evaluation's sampling, every time the same")

    # verifying
    verify_workers: int | None = setting(None, "processes that judge answers, per training process; none: one per core")
    verify_timeout: float = setting(
        10.0, "seconds that judging one answer may take, all tests of a program together (a single test: 6)"
    )
    all_or_nothing: bool = setting(
        False,
        "code, ifeval, logic, your own: reward only a whole answer, no share of tests or instructions, no lower score",
    )
    allow_weak_sandbox: bool = setting(False, "run model code even where this machine cannot wall it in (sandbox/)")

    # machine
    max_tokens_per_micro_batch: int = setting(32768, "prompt + response tokens, padding included, of one forward pass")
    share_prefix: str = setting(
        "auto", "compute a prompt once for its rollouts of a micro-batch: on, off, or auto (where it saves enough)"
    )
    gradient_checkpointing: bool = setting(False, "recompute activations in the backward pass, to save memory")
    save_every: int = setting(10, "steps between checkpoints")
    keep_checkpoints: int = setting(2, "the newest so many are kept")
    samples_per_step: int = setting(
        4, "rollouts of every step and of every evaluation that are written to samples.jsonl"
    )
    log_mass_balance: bool = setting(
        False, "log Theorem 1's terms for a few groups a step, beside the change of Q_pos that the update made"
    )
    log_noise: int | None = setting(
        None,
        "every so many steps, measure from half-groups what N does to the noise of a step, and say at the end which N "
        "has the least (trainer/noise.py); 0: never; none: 20, or 0 with another --advantage or N below 4",
    )
    report_to: str | None = setting(None, "also send the metrics to tensorboard or wandb (or both: tensorboard,wandb)")

    @property
    def judging(self) -> dict[str, Any]:
        """The settings of `verify_batch`."""
        return {
            "workers": self.verify_workers,
            "timeout_s": self.verify_timeout,
            "all_or_nothing": self.all_or_nothing,
            "allow_weak_sandbox": self.allow_weak_sandbox,
        }

    @property
    def noise_every(self) -> int:
        """--log_noise, and what it is where it is not given; 0: never."""
        usual = 20 if self.advantage in L.SAME_WHEN_WHITENED and self.rollouts_per_prompt >= 4 else 0
        return usual if self.log_noise is None else self.log_noise

    @property
    def asked(self) -> str:
        """What --system_prompt and --examples make of a prompt, in words; nothing where they are not used."""
        if self.system_prompt is None and not self.examples:
            return ""
        before = ["a system message"] if self.system_prompt else []
        before += [f"{self.examples} solved example{'s' * (self.examples > 1)}"] if self.examples else []
        return "in chats" + f" behind {' and '.join(before)}" * bool(before)

    @property
    def n(self) -> str:
        """N as it is typed: 512, or 16:512."""
        return f"{self.first_rollouts}:" * (self.first_rollouts is not None) + f"{self.rollouts_per_prompt}"

    @property
    def parts_of_a_prompt(self) -> int:
        """Over how many mini-batches a prompt's rollouts are spread."""
        return self.updates_per_step if self.mini_batches == "rollouts" else 1


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """--help: a setting's default is what the recipes say, where it is not one value for all."""

    def _get_help_string(self, action: argparse.Action) -> str:
        found = {
            name: shown(recipe[action.dest].value) for name, recipe in brorl.RECIPES.items() if action.dest in recipe
        }
        if action.default is not None:
            return super()._get_help_string(action) or ""
        if len(set(found.values())) == 1:
            return f"{action.help} (default: {next(iter(found.values()))})"
        listed = ", ".join(f"{name} {value}" for name, value in found.items())
        return f"{action.help} (default: {listed})" if found else f"{action.help}"


def command_line(about: str) -> tuple[Config, set[str]]:
    """The settings as they are typed, and the names of those that were given. A wrong one ends the program (2)."""
    parser = HfArgumentParser(Config, description=about, allow_abbrev=False, formatter_class=Help)  # type: ignore[arg-type]
    try:
        arguments = waves_apart(sys.argv[1:])
    except ValueError as mistake:
        parser.exit(2, f"train.py: {mistake}\n")
    config, unknown = parser.parse_args_into_dataclasses(arguments, return_remaining_strings=True)
    if unknown:
        names = [f"--{f.name}" for f in fields(Config)]
        initials = {"--" + "".join(word[0] for word in f.name.split("_")): f"--{f.name}" for f in fields(Config)}
        asked = [u.split("=")[0] for u in unknown if u.startswith("--")]
        close = {u: [initials[u]] if u in initials else [x for x in names if x.startswith(u)] for u in asked}
        close = {u: found or difflib.get_close_matches(u, names, 1) for u, found in close.items()}
        near = [name for names in close.values() for name in names]
        hint = f"did you mean {' '.join(near)}?" if near else "--help lists the settings"
        parser.exit(2, f"train.py: unknown {' '.join(unknown)}: {hint}\n")
    given = {x.split("=")[0].removeprefix("--").replace("-", "_") for x in arguments if x.startswith("--")}
    return config, given | ({"first_rollouts"} if "rollouts_per_prompt" in given else set())  # a plain N has no waves


def waves_apart(words: list[str]) -> list[str]:
    """The command line with --rollouts_per_prompt 16:512 as the two settings that it is. Raises ValueError."""
    result = []
    for before, word in zip(["", *words], words, strict=False):
        flag, equals, value = word.partition("=") if word.startswith("--") else (before, "", word)
        if flag.replace("-", "_") == "__rollouts_per_prompt" and ":" in value:
            first, _, most = value.partition(":")
            if not (first.isdecimal() and most.isdecimal()):
                raise ValueError(f"{flag} {value}: write FIRST:MOST, two numbers such as 16:512, or one number")
            result += [f"{flag}={most}" if equals else most, f"--first_rollouts={first}"]
        else:
            result.append(word)
    return result
