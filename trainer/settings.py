"""The settings of a run: one dataclass, each field's help its documentation (`python train.py --help`).

A setting is taken from the first of: the command line; `recipe.json` in the model's folder (values measured for that
model); the recipe of brorl.py (checks.resolve).
"""

from __future__ import annotations

import argparse
import copy
import difflib
import sys
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any

from transformers import HfArgumentParser

import brorl
import loss as L
from rollout import ENGINES

MEMORY_OF_NORMS = 100  # gradient norms of so many updates say what is usual
GROUPS = {
    "what": "what is trained, and where it is written",
    "budget": "budget: the run ends with the first that is spent; without any, with the recipe's max_steps",
    "paper": "sections 3.1 and 4.2.1",
    "sampling": "sampling",
    "evaluation": "evaluation",
    "verifying": "verifying",
    "machine": "machine, checkpoints and logs",
}
Rule = tuple[Callable[[Any], bool], str]  # what must hold of a value, and what to say where it does not


def shown(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def at_least(low: float, why: str = "") -> Rule:
    return lambda x: x >= low, why or f"must be at least {low}"


def between(low: float, high: float) -> Rule:
    return lambda x: low < x < high, f"must be between {low:g} and {high:g}"


def one_of(*choices: str) -> Rule:
    return lambda x: x in choices, f"choose {', '.join(choices[:-1])} or {choices[-1]}"


POSITIVE: Rule = (lambda x: x > 0, "must be positive")
BUDGET: Rule = (lambda x: x > 0, "must be positive; to score without training there is --eval_only")


def setting(
    group: str, default: Any, help: str, rule: Rule | None = None, *, free: bool = False, first: bool = False
) -> Any:
    """A setting, all of it: its group in --help, its default (None: the recipe's, or what `help` says), its help.

    rule: what must hold of its value. free: may it change when a run is resumed? Yes, if it changes only the budget,
    what is kept or shown, or where a run is computed. first: one of the ten that one needs first.
    """
    return field(default=default, metadata={"group": group, "help": help, "rule": rule, "free": free, "first": first})


@dataclass
class Config:
    """Settings of a run. What is not given is taken from the model's recipe.json, else from the recipe."""

    model: str = setting(
        "what", None, "policy to start from, a folder or a hub name; none: the embedded tiny/policy", first=True
    )
    data: list[str] = setting(
        "what",
        None,
        "training problems: FILE.jsonl, hf:NAME[=FOLDER] or gym:NAME[*COUNT], each with an optional :WEIGHT such as "
        ":0.5; none: tiny/train.jsonl",
        first=True,
    )
    eval_data: list[str] = setting(
        "what",
        None,
        "held-out problems, in the same forms without :WEIGHT; needed with --data; none: tiny/test.jsonl",
        first=True,
    )
    rewards: list[str] | None = setting(
        "what", None, "Python files with kinds of problems and their rewards of your own (docs/problems.md)", first=True
    )
    system_prompt: str | None = setting(
        "what",
        None,
        "a system message before every prompt, held-out ones too; text is asked as a chat then. A chat with a system "
        'message of its own keeps that. "": chats without one of yours, where a template may put its own. none: a '
        "prompt that is text goes to the model as text (paper silent)",
    )
    examples: int = setting(
        "what",
        0,
        "so many problems of --data stand solved before every prompt, held-out ones too, as turns of a chat; --seed "
        "draws them, and they are not trained on (paper silent)",
        rule=at_least(0),
    )
    recipe: str = setting(
        "what",
        "brorl",
        "brorl (N = 512) or prorl (N = 16): the defaults of section 4.2.1",
        rule=one_of(*brorl.RECIPES),
        first=True,
    )
    name: str = setting(
        "what",
        None,
        "the run's folder under --output_dir; none: RECIPE-seedSEED, with --model RECIPE-MODEL-seedSEED, or eval-MODEL",
        first=True,
    )
    output_dir: str = setting("what", "runs", "where runs are written", free=True)
    resume: bool = setting(
        "what", False, "continue the run of this name from its newest checkpoint", free=True, first=True
    )
    overwrite: bool = setting("what", False, "delete the run of this name first", free=True)
    eval_only: bool = setting("what", False, "evaluate the model on --eval_data, a row for each source, and stop")
    preflight: bool = setting(
        "what", False, "look before training: problems, responses, noise, time, and which N to choose; train nothing"
    )
    preflight_prompts: int = setting("what", 64, "of a preflight, at most", rule=at_least(1))
    preflight_rollouts: int = setting("what", 64, "of each prompt of a preflight", rule=at_least(8))
    max_minutes: float = setting(
        "what",
        30.0,
        "of a preflight, which looks at fewer prompts then; a first round it always finishes",
        rule=POSITIVE,
    )
    seed: int = setting(
        "what",
        0,
        "of the problems' order, the sampling, and everything else",
        rule=(lambda x: 0 <= x < 2**32, "must be in 0 ... 2^32 - 1"),
    )

    max_steps: int | None = setting(
        "budget", None, "steps; table 1: +191 for BroRL, +535 for ProRL", rule=BUDGET, free=True, first=True
    )
    max_samples: int | None = setting(
        "budget", None, "rollouts generated, counted before dynamic sampling as in table 1", rule=BUDGET, free=True
    )
    max_hours: float | None = setting("budget", None, "wall-clock hours", rule=BUDGET, free=True)

    rollouts_per_prompt: int = setting(
        "paper",
        None,
        "N (section 4.2.1)",
        rule=at_least(2, "a group needs at least 2 for its mean to say anything"),
        first=True,
    )
    prompts_per_step: int = setting(
        "paper",
        None,
        "B (table 1); counted after dynamic sampling, which is our inference from tables 1 and 2",
        rule=at_least(1),
        first=True,
    )
    refill: float = setting(
        "paper",
        4.0,
        "a step generates at most this many times B prompts, then goes on with what it has",
        rule=at_least(1),
    )
    round_confidence: float = setting(
        "paper",
        0.9,
        "probability that one round of generation yields enough informative prompts; a lower one draws fewer prompts "
        "in vain and takes more rounds: 0.5 where responses are short",
        rule=between(0, 1),
    )
    learning_rate: float = setting(
        "paper",
        None,
        "of AdamW, constant; if N or B is given and this is not, the recipe's is multiplied by sqrt(N x B / the "
        "recipe's N x B) (section 4.2.1)",
        rule=POSITIVE,
    )
    warmup_updates: int = setting(
        "paper",
        0,
        "updates over which the learning rate rises to its value in equal steps; 0: none (paper silent)",
        rule=at_least(0),
    )
    optimizer_from: str | None = setting(
        "paper",
        None,
        "a checkpoint whose AdamW moments the run starts with, runs/NAME/checkpoints/step_...; none: fresh ones, "
        "whose first updates move every weight by the whole learning rate (paper silent)",
    )
    updates_per_step: int = setting(
        "paper",
        None,
        "mini-batches a step, each one optimizer step (section 4.2.1: unchanged; paper silent on the number)",
        rule=at_least(1),
    )
    mini_batches: str = setting(
        "paper",
        "rollouts",
        "of rollouts drawn from all prompts, or of whole prompts, which cost less where prompts are long",
        rule=one_of("rollouts", "prompts"),
    )
    advantage: str = setting(
        "paper",
        "mean_centred",
        "a rollout's reward minus its group's mean (section 3.1), that over the group's std (group_std: GRPO), or over "
        "the group's mean (group_mean: MaxRL, where a large N weighs rarely solved problems more); then whitened",
        rule=one_of(*L.ADVANTAGES),
    )
    clip_low: float = setting("paper", None, "ε_low (section 3.1)", rule=between(0, 1))
    clip_high: float = setting("paper", None, "ε_high (section 3.1)", rule=POSITIVE)
    kl: str = setting(
        "paper",
        None,
        "estimator of the KL loss term: k1, k2 or k3; the gradient of k1 is 0 on average",
        rule=one_of(*L.KL),
    )
    kl_coef: float = setting(
        "paper", None, "β, weight of the KL term; 0: no reference model is loaded", rule=at_least(0)
    )
    tis_cap: float = setting(
        "paper",
        None,
        "C of the truncated importance weight (section 3.1)",
        rule=at_least(1, "below 1 it would scale down even what both models agree on"),
    )
    reference_reset_steps: int = setting(
        "paper", None, "steps between resets of the reference; 0: never (section 3.1)", rule=at_least(0)
    )
    weight_decay: float = setting(
        "paper", 0.01, "of AdamW (paper silent: the default of torch and of verl)", rule=at_least(0)
    )
    max_grad_norm: float = setting("paper", 1.0, "gradient clipping (paper silent: the default of verl)", rule=POSITIVE)
    max_skipped_updates: int = setting(
        "paper",
        16,
        "stop when so many updates in a row had no finite gradient and were left out",
        rule=at_least(1),
        free=True,
    )
    spike: float = setting(
        "paper",
        10.0,
        "name an update whose gradient norm is so many times the recent median; 0: none",
        rule=(lambda x: x == 0 or x > 1, "must be 0 (off) or over 1 times the median"),
    )
    skip_spikes: bool = setting(
        "paper",
        False,
        "leave such updates out, like those without a finite gradient; their norms count, so that what stays is no "
        f"spike any more after {MEMORY_OF_NORMS // 2}",
    )

    engine: str = setting(
        "sampling",
        None,
        f"{' or '.join(ENGINES)}; none: vllm where it and a GPU are present, else torch",
        rule=one_of(*ENGINES),
    )
    engine_memory_gib: float = setting(
        "sampling",
        2.0,
        "what decoding may hold beside the weights, per process; vLLM: on a CPU",
        rule=POSITIVE,
        free=True,
    )
    gpu_memory_utilization: float = setting(
        "sampling",
        0.5,
        "vLLM: its share of a GPU's memory while rolling out (verl's default)",
        rule=between(0, 1),
        free=True,
    )
    kv_cache_gib: float | None = setting(
        "sampling",
        None,
        "vLLM on a GPU: of its key-value cache; none: what its share leaves for it. The share must still be free when "
        "vLLM starts",
        rule=POSITIVE,
        free=True,
    )
    max_num_seqs: int | None = setting(
        "sampling",
        None,
        "vLLM: rollouts decoding at once; none: 512, or N if that is more (vLLM's own default is 1024 on an H100, 256 "
        "on an A100)",
        rule=at_least(1),
        free=True,
    )
    engine_dtype: str | None = setting("sampling", None, "vLLM: none is bfloat16 on a GPU, float32 on a CPU")
    max_engine_difference: float | None = setting(
        "sampling",
        None,
        "largest mean |log π_trainer - log π_engine| of a token at the start; none: 0.001 in float32, else 0.1",
        rule=POSITIVE,
        free=True,
    )
    max_engine_kl: float | None = setting(
        "sampling",
        None,
        "largest KL(engine, trainer) there; none: 0.0001 in float32, else 0.05",
        rule=POSITIVE,
        free=True,
    )
    temperature: float = setting(
        "sampling", None, "while training; log-probs are taken at the same temperature", rule=POSITIVE
    )
    top_p: float = setting(
        "sampling",
        None,
        "while training",
        rule=(lambda x: x == 1, "leave it at 1: while training the trainer scores the whole distribution"),
    )
    max_response_tokens: int = setting("sampling", None, "a response is cut there (section 4.2.1)", rule=at_least(1))

    eval_every: int = setting(
        "evaluation", None, "steps between evaluations; 0: only before and after", rule=at_least(0), free=True
    )
    eval_samples: int = setting(
        "evaluation", None, "k: responses per held-out problem (appendix D: 16)", rule=at_least(1)
    )
    eval_temperature: float = setting("evaluation", None, "appendix D: 0.6", rule=at_least(0))
    eval_top_p: float = setting(
        "evaluation", None, "appendix D: 0.95", rule=(lambda x: 0 < x <= 1, "must be in (0, 1]")
    )
    eval_max_response_tokens: int = setting(
        "evaluation",
        None,
        "an evaluation's response is cut there (appendix D: 32k), or where the model's positions end if not given",
        rule=at_least(1),
    )
    eval_seed: int = setting("evaluation", 1234, "of the evaluation's sampling, every time the same")

    verify_workers: int | None = setting(
        "verifying",
        None,
        "processes that judge answers, per training process; none: one per core",
        rule=at_least(1),
        free=True,
    )
    verify_timeout: float = setting(
        "verifying",
        10.0,
        "seconds that judging one answer may take, all tests of a program together (a single test: 6)",
        rule=POSITIVE,
    )
    all_or_nothing: bool = setting(
        "verifying",
        False,
        "code, ifeval, logic, your own: reward only a whole answer, no share of tests or instructions, no lower score",
    )
    allow_weak_sandbox: bool = setting(
        "verifying", False, "run model code even where this machine cannot wall it in (sandbox/)"
    )

    max_tokens_per_micro_batch: int = setting(
        "machine", 32768, "prompt + response tokens, padding included, of one forward pass", rule=at_least(1), free=True
    )
    share_prefix: str = setting(
        "machine",
        "auto",
        "compute a prompt once for its rollouts of a micro-batch: on, off, or auto (where it saves enough)",
        rule=one_of("auto", "on", "off"),
    )
    gradient_checkpointing: bool = setting(
        "machine", False, "recompute activations in the backward pass, to save memory", free=True
    )
    save_every: int = setting("machine", 10, "steps between checkpoints", rule=at_least(1), free=True)
    save_minutes: float = setting(
        "machine",
        15.0,
        "minutes after which a checkpoint is written too, but for a tenth of the run's time at most: about what a run "
        "that is killed loses",
        rule=POSITIVE,
        free=True,
    )
    keep_checkpoints: int = setting("machine", 2, "the newest so many are kept", rule=at_least(1), free=True)
    samples_per_step: int = setting(
        "machine",
        4,
        "rollouts of every step and of every evaluation that are written to samples.jsonl",
        rule=at_least(0),
        free=True,
    )
    log_mass_balance: bool = setting(
        "machine",
        False,
        "log Theorem 1's terms for a few groups a step, beside the change of Q_pos that the update made; one process",
    )
    log_noise: int = setting(
        "machine",
        0,
        "every this many steps, measure from half-groups what N does to the noise of a step, and say at the end which "
        "N has the least (trainer/noise.py); 0: never",
        rule=at_least(0),
    )
    report_to: str | None = setting(
        "machine", None, "also send the metrics to tensorboard or wandb (or both: tensorboard,wandb)", free=True
    )

    @property
    def trains(self) -> bool:
        """Is it a run, and neither an evaluation nor a preflight?"""
        return not (self.eval_only or self.preflight)

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
    def sampling(self) -> dict[str, Any]:
        """How responses are sampled while training."""
        return {"max_new_tokens": self.max_response_tokens, "temperature": self.temperature, "top_p": self.top_p}

    @property
    def eval_sampling(self) -> dict[str, Any]:
        """How they are sampled in an evaluation."""
        length, temperature, top_p = self.eval_max_response_tokens, self.eval_temperature, self.eval_top_p
        return {"max_new_tokens": length, "temperature": temperature, "top_p": top_p}

    @property
    def loss(self) -> dict[str, Any]:
        """The settings of `loss.policy_loss`."""
        return {name: getattr(self, name) for name in ("clip_low", "clip_high", "tis_cap", "kl", "kl_coef")}

    @property
    def chat_style(self) -> str:
        """What --system_prompt and --examples make of a prompt, in words; nothing where they are not used."""
        if self.system_prompt is None and not self.examples:
            return ""
        before = ["a system message"] if self.system_prompt else []
        before += [f"{self.examples} solved example{'s' * (self.examples > 1)}"] if self.examples else []
        return "in chats" + f" behind {' and '.join(before)}" * bool(before)

    @property
    def mini_batches_of_a_prompt(self) -> int:
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


class Parser(HfArgumentParser):
    """The settings that one needs first, then the others by their groups."""

    @staticmethod
    def _parse_dataclass_field(parser: argparse.ArgumentParser, declared: Field) -> None:
        title = "the ten that one needs first" if declared.metadata["first"] else GROUPS[declared.metadata["group"]]
        group = next((group for group in parser._action_groups if group.title == title), None)
        plain = copy.copy(declared)
        plain.metadata = {"help": declared.metadata["help"]}  # type: ignore[assignment]  # argparse knows no other
        HfArgumentParser._parse_dataclass_field(group or parser.add_argument_group(title), plain)  # type: ignore[arg-type]


def command_line(about: str) -> tuple[Config, set[str]]:
    """The settings as they are typed, and the names of those that were given. A wrong one ends the program (2)."""
    usage = "python train.py [--SETTING VALUE ...]"
    parser = Parser(Config, usage=usage, description=about, allow_abbrev=False, formatter_class=Help)  # type: ignore[arg-type]
    config, unknown = parser.parse_args_into_dataclasses(return_remaining_strings=True)
    if unknown:
        names = [f"--{f.name}" for f in fields(Config)]
        initials = {"--" + "".join(word[0] for word in f.name.split("_")): f"--{f.name}" for f in fields(Config)}
        unknown_flags = [u.split("=")[0] for u in unknown if u.startswith("--")]
        close = {u: [initials[u]] if u in initials else [x for x in names if x.startswith(u)] for u in unknown_flags}
        close = {u: found or difflib.get_close_matches(u, names, 1) for u, found in close.items()}
        near = [name for names in close.values() for name in names]
        hint = f"did you mean {' '.join(near)}?" if near else "--help lists the settings"
        parser.exit(2, f"train.py: unknown {' '.join(unknown)}: {hint}\n")
    given = {x.split("=")[0].removeprefix("--").replace("-", "_") for x in sys.argv[1:] if x.startswith("--")}
    return config, given
