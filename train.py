"""BroRL, section 4.2: the training loop.

    accelerate launch train.py                            the embedded policy, on a laptop's CPU, in minutes
    accelerate launch train.py --recipe prorl             the N = 16 baseline it is compared with
    accelerate launch train.py --model M --data D.jsonl --eval_data E.jsonl     your model, your problems
    accelerate launch train.py --engine vllm              rollouts by vLLM (the default where it and a GPU are)
    python train.py --eval_only                           score a policy, train nothing: runs/eval-MODEL/
    python train.py --help                                every setting, with its source

One step, and the order of this file's `train`:

    1  problems        P prompts and their references, in an order fixed by the seed
    2  roll out        N responses per prompt                                              rollout.py
    3  verify          a reward and a reason for each                                      verify.py
    4  dynamic sample  keep 0 < #correct < N; refill until B prompts are kept              loss.py
    5  advantages      group mean, then mean and std over all trajectories of the step     loss.py
    6  score           old, reference log-probs under the trainer, before the first update loss.py
    7  update          U mini-batches, one optimizer step each, in micro-batches           loss.py
    8  sync            the weights into the engine
    9  reset the reference when due; log, evaluate, checkpoint

A setting of the recipe is taken from the first of: the command line; `recipe.json` in the model's folder
(values measured for that model); brorl.py. The start of a run prints all of them with where they come
from. A run writes runs/NAME/: config.json, metrics.jsonl (a line a step), eval.jsonl (a line an evaluation,
problem by problem), timing.jsonl, samples.jsonl, checkpoints/, model/ and curves.png. Two runs with the same
settings write the same metrics.jsonl; whatever a clock says is in timing.jsonl.

An evaluation is appendix D's whatever the recipe: 16 responses, temperature 0.6, top-p 0.95, 32k tokens, or as many as
the model has positions for.
"""

from __future__ import annotations

import copy
import csv
import difflib
import errno
import functools
import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import statistics
import sys
import time
import traceback
import unicodedata
import zlib
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import (
    DistributedType,
    InitProcessGroupKwargs,
    broadcast_object_list,
    gather_object,
    is_tensorboard_available,
    is_wandb_available,
    set_seed,
)
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    PreTrainedTokenizerBase,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import brorl
import loss as L
from rollout import Engine, EngineError, Group, TorchEngine, VLLMEngine, have_vllm, whole_tensors
from sandbox import WeakSandbox
from trainer.probe import Probe
from verify import Problem, Verdict, load_data, read_spec, verify_batch

TINY = Path(__file__).resolve().parent / "tiny"  # the embedded default: a policy and its problems
SEAL = "files.json"  # in a checkpoint: what must be in it
RECIPE_FILE = "recipe.json"  # beside a model's weights: the settings measured for this model
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE)
HELD_OUT_SEED = 10**9  # of held-out problems that are generated: entry i comes from seed + i, and --seed is training's
TRACKERS = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available}
MEMORY_OF_NORMS = 100  # gradient norms of so many updates say what is usual
# Prompts are shared in steps where the plain way computes so many times the tokens. Measured: with less, groups of one
# or two rollouts to a short prompt cost more than they save.
SHARE_FROM = {"auto": 1.5, "on": 0.0}
SOLVED = ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all")  # how much of a group is correct
SHORT = 16  # tokens of a response, up to which a CPU computes attention by matrix products
KEYS_AT_ONCE = 2**15  # keys that stand beside each other at once, a shared prompt's copied in front of each response


def setting(default, help: str):
    """A field whose documentation is its `--help`."""
    make = {"default_factory": lambda: list(default)} if isinstance(default, list) else {"default": default}
    return field(**make, metadata={"help": help})


@dataclass
class Config:
    """Settings of a run. None: taken from the model's recipe.json, else from the recipe."""

    # what
    model: str | None = setting(None, "policy to start from, a folder or a hub name; none: the embedded tiny/policy")
    data: list[str] | None = setting(
        None,
        "training problems: FILE.jsonl, hf:NAME[=FOLDER] or gym:NAME[*COUNT], each with an optional :WEIGHT such as "
        ":0.5; none: tiny/train.jsonl",
    )
    eval_data: list[str] | None = setting(
        None, "held-out problems, in the same forms without :WEIGHT; needed with --data; none: tiny/test.jsonl"
    )
    recipe: str = setting("brorl", "brorl (N = 512) or prorl (N = 16): the defaults of section 4.2.1")
    name: str | None = setting(None, "the run's folder under --output_dir; default: RECIPE-seedSEED, or eval-MODEL")
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
    rollouts_per_prompt: int | None = setting(None, "N (section 4.2.1)")
    prompts_per_step: int | None = setting(
        None, "B (table 1); counted after dynamic sampling, which is our inference from tables 1 and 2"
    )
    refill: float = setting(4.0, "a step generates at most this many times B prompts, then goes on with what it has")
    learning_rate: float | None = setting(
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
    updates_per_step: int | None = setting(None, "mini-batches a step, each one optimizer step (section 4.2.1)")
    mini_batches: str = setting(
        "rollouts", "of rollouts drawn from all prompts, or of whole prompts, which cost less where prompts are long"
    )
    clip_low: float | None = setting(None, "ε_low (section 3.1)")
    clip_high: float | None = setting(None, "ε_high (section 3.1)")
    kl: str | None = setting(None, "estimator of the KL loss term: k2 or k3 (k1 has no gradient on average)")
    kl_coef: float | None = setting(None, "β, weight of the KL term; 0: no reference model is loaded")
    tis_cap: float | None = setting(None, "C of the truncated importance weight (section 3.1)")
    reference_reset_steps: int | None = setting(None, "steps between resets of the reference; 0: never (section 3.1)")
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
    engine: str | None = setting(None, "vllm, or torch (rollout.py's own); none: vllm where it and a GPU are present")
    engine_memory_gib: float = setting(2.0, "what decoding may hold beside the weights, per process; vLLM: on a CPU")
    gpu_memory_utilization: float = setting(0.5, "vLLM: its share of a GPU's memory while rolling out (verl's default)")
    tensor_parallel_size: int = setting(1, "vLLM: so many neighbouring processes hold one engine together")
    max_num_seqs: int | None = setting(None, "vLLM: rollouts decoding at once; none: 512, or N if that is more")
    engine_dtype: str | None = setting(None, "vLLM: none is bfloat16 on a GPU, float32 on a CPU")
    max_engine_difference: float | None = setting(
        None, "largest mean |log π_trainer - log π_engine| of a token at the start; none: 0.001 in float32, else 0.1"
    )
    max_engine_kl: float | None = setting(None, "largest KL(engine, trainer) there; none: 0.0001 in float32, else 0.05")
    temperature: float | None = setting(None, "while training; log-probs are taken at the same temperature")
    top_p: float | None = setting(None, "while training")
    max_response_tokens: int | None = setting(None, "a response is cut there (section 4.2.1)")

    # evaluation
    eval_every: int | None = setting(None, "steps between evaluations; 0: only before and after")
    eval_samples: int | None = setting(None, "k: responses per held-out problem (appendix D: 16)")
    eval_temperature: float | None = setting(None, "appendix D: 0.6")
    eval_top_p: float | None = setting(None, "appendix D: 0.95")
    eval_max_response_tokens: int | None = setting(
        None, "an evaluation's response is cut there (appendix D: 32k), or where the model's positions end if not given"
    )
    eval_seed: int = setting(1234, "of the evaluation's sampling, every time the same; each process draws its own")

    # verifying
    verify_workers: int | None = setting(None, "processes that judge answers, per training process; none: one per core")
    verify_timeout: float = setting(
        10.0, "seconds that judging one answer may take, all tests of a program together (one: 6)"
    )
    all_or_nothing: bool = setting(
        False,
        "code, ifeval, logic: reward only a whole answer, not the share of tests or instructions, nor a score below 1",
    )
    allow_weak_sandbox: bool = setting(False, "run model code even where this machine cannot wall it in (sandbox.py)")

    # machine
    max_tokens_per_micro_batch: int = setting(32768, "prompt + response tokens, padding included, of one forward pass")
    share_prefix: str = setting(
        "auto", "compute a prompt once for its rollouts of a micro-batch: on, off, or auto (where it saves enough)"
    )
    gradient_checkpointing: bool = setting(False, "recompute activations in the backward pass, to save memory")
    save_every: int = setting(10, "steps between checkpoints")
    keep_checkpoints: int = setting(2, "the newest so many are kept")
    samples_per_step: int = setting(4, "rollouts a step written to samples.jsonl")
    log_mass_balance: bool = setting(
        False, "log Theorem 1's terms for a few groups a step, beside the change of Q_pos that the update made"
    )
    report_to: str | None = setting(None, "also send the metrics to tensorboard or wandb (or both: tensorboard,wandb)")

    @property
    def parts_of_a_prompt(self) -> int:
        """Over how many mini-batches a prompt's rollouts are spread."""
        return self.updates_per_step if self.mini_batches == "rollouts" else 1


# ------------------------------------------------------------------------------------------------------------- the loop


class Setup(NamedTuple):
    """All that `train` works with; whatever could be wrong with it has been said."""

    problems: list[Problem]
    prompts: list[list[int]]
    held_out: list[Problem]
    held_out_prompts: list[list[int]]
    tokenizer: PreTrainedTokenizerBase
    engine: Engine
    policy: torch.nn.Module | None = None
    reference: torch.nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    cursor: Cursor | None = None
    progress: Progress | None = None
    run: Run | None = None
    probe: Probe | None = None


def train(config: Config, accelerator: Accelerator, setup: Setup) -> None:
    """Section 4.2, step after step until a budget is spent: the stages are numbered as at the top of this file."""
    problems, prompts, held_out, held_out_prompts, tokenizer, engine, policy, reference, optimizer, *state = setup
    cursor, progress, run, probe = state
    rank, world, device = accelerator.process_index, accelerator.num_processes, accelerator.device
    plain = accelerator.unwrap_model(policy)  # for what only some processes compute: no collective hides in it
    started = time.perf_counter() - progress.seconds

    n, b, budget = config.rollouts_per_prompt, config.prompts_per_step, config.max_tokens_per_micro_batch
    shape = "{l_bar}{bar}| {n_fmt}/{total_fmt}" if config.max_steps else "{desc}{n_fmt} steps"
    bar = tqdm(
        total=config.max_steps, initial=progress.step, disable=rank != 0, bar_format=shape + " [{elapsed}{postfix}]"
    )
    if progress.step == 0:
        bar.set_description(f"evaluating {len(held_out)} x {config.eval_samples}")
        answers = evaluate(engine, tokenizer, held_out, held_out_prompts, config, accelerator)
        run.log({"step": 0, "samples": 0} | {f"eval/{name}": x for name, x in score(answers).items()}, {}, answers)
    scores = run.evaluations()[-1]
    bar.set_postfix_str(f"pass@1 {scores['eval/pass@1']:.3f}")

    while not progress.spent(config):
        before = copy.deepcopy((cursor.state_dict(), progress.state_dict()))
        progress.step = step = progress.step + 1
        clock, counts, kept, tried, rounds = Clock(), Counter(), [], 0, 0

        # 4: dynamic sampling repeats 1-3, each round as wide as what is still missing, up to a bound
        engine.wake()
        while (missing := min(b - int(total(len(kept), accelerator)), int(config.refill * b) - tried)) > 0:
            # 1: problems
            bar.set_description(f"rolling out {missing} x {n}")
            taken = cursor.take(missing)
            tried, rounds, mine = tried + missing, rounds + 1, taken[rank::world]
            # 2, 3: roll out, verify
            try:
                rolled = roll_out(
                    engine,
                    tokenizer,
                    [problems[i] for i in mine],
                    [prompts[i] for i in mine],
                    n,
                    seed=seed_of(config.seed, step, rounds, rank),
                    temperature=config.temperature,
                    top_p=config.top_p,
                    max_response_tokens=config.max_response_tokens,
                    judging=judging(config),
                    show=rank == 0,
                    on_progress=None if config.tensor_parallel_size > 1 else run.preemption.interrupt,
                )
            except Preempted:
                rolled = []
            if total(run.preemption.noted, accelerator):  # nothing of this step is trained: it starts over on resuming
                for state, whole in zip((cursor, progress), before, strict=True):
                    state.load_state_dict(whole)
                run.leave(progress.step)
            kept += [r for r in rolled if L.informative(r.correct)]
            counts += sum((r.counts() for r in rolled), Counter())
        engine.sleep()
        clock.lap("roll_out")
        run.sample(step, kept)
        counts = merge(counts + Counter(kept=len(kept)))
        progress.samples += counts["rollouts"]
        metrics = {"step": step, "samples": progress.samples, "prompts": counts["kept"]}
        metrics["pass_rate"] = counts["kept"] / tried
        for name in ("reward", "correct", "response_tokens", "truncated"):
            metrics[name] = counts[name] / counts["rollouts"]
        metrics |= {name: counts[name] for name in sorted(counts) if name.startswith("reason/")}
        metrics |= {f"solved/{part}": counts[f"solved/{part}"] / tried for part in SOLVED}
        for kind in sorted(name.partition("/")[2] for name in counts if name.startswith("rollouts/")):
            metrics[f"rollouts/{kind}"] = counts[f"rollouts/{kind}"]
            metrics[f"reward/{kind}"] = counts[f"reward/{kind}"] / counts[f"rollouts/{kind}"]
        if counts["kept"] < b and rank == 0:
            bar.write(
                f"step {step}: of {tried} prompts {counts['kept']} were informative, not {b}; going on with these"
            )

        if counts["kept"]:
            # 5: advantages, over all trajectories of the step
            rewards = torch.tensor([[v.reward for v in r.verdicts] for r in kept]).view(-1, n)  # (P, N)
            advantages = L.group_advantages(rewards)
            advantages = L.whiten(advantages, accelerator.reduce(L.moments(advantages).to(device), "sum").cpu())
            batch = Batch.of([r.group for r in kept], advantages, device)

            # 6: score under the trainer before the first update, all rollouts of a prompt together
            bar.set_description(f"scoring {len(batch):,}")
            batch.share = plain.shares and batch.saving(1) >= SHARE_FROM[config.share_prefix]
            batch.old_logp, entropy = batch.score(plain, config.temperature, budget, accelerator)
            batch.ref_logp = batch.score(reference, config.temperature, budget, accelerator)[0] if reference else None
            clock.lap("score")
            if probe:
                probe.predict(kept)
                clock.lap("mass_balance")

            # 7: update, where a mini-batch has a part of a prompt's rollouts
            bar.set_description(f"updating on {len(batch):,}")
            batch.share = plain.shares and batch.saving(config.parts_of_a_prompt) >= SHARE_FROM[config.share_prefix]
            metrics |= update(policy, optimizer, batch, config, accelerator, progress)
            metrics["entropy"] = total(entropy, accelerator) / metrics["tokens"]
            clock.lap("update")
            if probe:
                metrics |= probe.compare(batch, step)
                clock.lap("mass_balance")

            # 8: sync
            engine.sync(plain.model)

        # 9: reset the reference; log, evaluate, checkpoint
        if reference and config.reference_reset_steps and step % config.reference_reset_steps == 0:
            reference.load_state_dict(plain.state_dict())
            metrics["reference_reset"] = 1
        rate, cpu = counts["rollouts"] / clock.total(), time.process_time() - clock.cpu
        progress.seconds = max(gather_object([time.perf_counter() - started]))
        answers = None
        if progress.spent(config) or (config.eval_every and step % config.eval_every == 0):
            bar.set_description(f"evaluating {len(held_out)} x {config.eval_samples}")
            answers = evaluate(engine, tokenizer, held_out, held_out_prompts, config, accelerator)
            scores = {f"eval/{name}": x for name, x in score(answers).items()}
            metrics |= scores
            clock.lap("evaluate")
        timing = {"seconds": progress.seconds, "cpu_seconds": cpu, "samples_per_second": rate}
        timing["peak_gib"] = peak_gib(device)
        run.log(metrics, {"step": step} | timing | clock.laps, answers)
        for sentence in troubles(metrics, progress, config) if rank == 0 else []:
            bar.write(f"step {step}: {sentence}")
        lost = {name: counts[f"reason/{name}"] for name in ("timeout", "crashed") if counts[f"reason/{name}"]}
        bar.update()
        bar.set_description("training")
        kl = f"KL {metrics['kl_ref']:.2g}, " if "kl_ref" in metrics else ""
        bar.set_postfix_str(
            f"reward {metrics['reward']:.3f}, kept {metrics['pass_rate']:.0%}, pass@1 {scores['eval/pass@1']:.3f}, "
            f"{kl}{rate:,.0f} samples/s, {time_left(progress, config)} left"
            + "".join(f", {n:,} {name}" for name, n in lost.items())
        )
        if progress.skipped >= config.max_skipped_updates:
            raise RunStopped(
                f"the last {progress.skipped} updates had no finite gradient: the model computes inf or nan, and no "
                "update of its weights changes that. Look at the last lines of samples.jsonl; a lower --learning_rate, "
                "from a checkpoint before it began, is the usual cure"
            )
        if progress.spent(config) or step % config.save_every == 0:
            run.checkpoint(step)
        if total(run.preemption.noted, accelerator) and not progress.spent(config):
            run.leave(step)
    bar.close()
    run.finish(plain.model, tokenizer, held_out)


def update(
    policy, optimizer, batch: Batch, config: Config, accelerator: Accelerator, progress: Progress
) -> dict[str, float]:
    """Stage 7: one pass over the step's rollouts in U mini-batches, each one optimizer step. Returns its metrics.

    An update is left out if its gradient is not finite, or, with --skip_spikes, if it is a spike.
    """
    device, world = batch.tokens.device, accelerator.num_processes
    rng = torch.Generator().manual_seed(seed_of(config.seed, progress.step))
    sums, extremes = Counter(), {}
    policy.train(config.gradient_checkpointing)  # which transformers does in train mode only; dropout stays out
    for rows in batch.mini_batches(config.updates_per_step, config.mini_batches, rng):
        tokens = total(int(batch.response_lengths[rows].sum()), accelerator)  # of this optimizer step, everywhere
        if not tokens:
            continue
        sums["updates"] += 1 / world
        parts = batch.micro_batches(rows, config.max_tokens_per_micro_batch)
        rounds = rounds_of(max(1, len(parts)), accelerator)
        for i in range(rounds):
            with nullcontext() if i == rounds - 1 else accelerator.no_sync(policy):
                if i >= len(parts):  # nothing left here, but the others wait for this one's share of the gradient
                    accelerator.backward(idle(policy, device))
                    continue
                part = parts[i]
                logp, _ = policy(*batch.inputs(part, config.temperature))
                inside = batch.inside(part)
                value, metrics = L.policy_loss(
                    logp,
                    batch.old_logp[part][inside],
                    batch.engine_logp[part][inside],
                    None if batch.ref_logp is None else batch.ref_logp[part][inside],
                    batch.advantages[part].repeat_interleave(batch.response_lengths[part]),
                    tokens,
                    clip_low=config.clip_low,
                    clip_high=config.clip_high,
                    tis_cap=config.tis_cap,
                    kl=config.kl,
                    kl_coef=config.kl_coef,
                )
                accelerator.backward(value * world)  # data-parallel averages gradients, and we want their sum
            sums["loss"] += value.item()
            for name, x in metrics.items():
                if name.endswith(("_max", "_min")):
                    pick = max if name.endswith("_max") else min
                    extremes[name] = pick(extremes.get(name, x.item()), x.item())
                else:
                    sums[name] += x.item()
        norm = accelerator.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        spiked = progress.is_spike(norm, config.spike)
        progress.warm_up(optimizer, config)
        if math.isfinite(norm) and not (spiked and config.skip_spikes):
            optimizer.step()
        else:
            sums["updates_skipped"] += 1 / world
        optimizer.zero_grad()
        progress.skipped = 0 if math.isfinite(norm) else progress.skipped + 1
        if math.isfinite(norm):
            sums["finite"] += 1 / world
            sums["spikes"] += spiked / world
            sums["grad_norm"] += norm / world
            extremes["grad_norm_max"] = max(extremes.get("grad_norm_max", 0.0), norm)
            progress.norms = [*progress.norms, norm][-MEMORY_OF_NORMS:]

    tokens = total(int(batch.response_lengths.sum()), accelerator)
    names = sorted({name for part in gather_object([list(sums)]) for name in part} | {"updates_skipped", "spikes"})
    result = {name: total(sums[name], accelerator) for name in names}
    updates, finite = result.pop("updates"), result.pop("finite", 0)
    for name in result:
        if name in ("loss", "grad_norm"):
            result[name] /= updates if name == "loss" else finite
        elif name not in ("updates_skipped", "spikes"):
            result[name] /= tokens
    result["tokens"] = int(tokens)
    if config.warmup_updates:
        result["learning_rate"] = optimizer.param_groups[0]["lr"]
    everywhere = gather_object([extremes])
    for name in sorted({name for part in everywhere for name in part}):
        pick = max if name.endswith("_max") else min
        result[name] = pick(part[name] for part in everywhere if name in part)
    return result


def rounds_of(parts: int, accelerator: Accelerator) -> int:
    """How many forward passes a process makes for its parts. Under FSDP each one gathers weights: all make as many."""
    return max(gather_object([parts])) if accelerator.distributed_type == DistributedType.FSDP else parts


def idle(policy, device) -> Tensor:
    """A forward pass that adds nothing: 0, with a gradient of 0 for every weight."""
    one = torch.ones(1, dtype=torch.long, device=device)
    return policy(torch.zeros(1, 2, dtype=torch.long, device=device), one, one, 1.0)[0].sum() * 0


# ----------------------------------------------------------------------------------- rolling out, verifying, evaluating


@dataclass
class Rolled:
    """A problem, its N rollouts, what they say, and what the verifier says of them."""

    problem: Problem
    group: Group
    texts: list[str]
    verdicts: list[Verdict]

    @property
    def correct(self) -> Tensor:
        return torch.tensor([v.reason == "correct" for v in self.verdicts])

    def counts(self) -> Counter:
        """Sums over the group, which add up over groups and processes."""
        kind, reward = self.problem.kind, sum(v.reward for v in self.verdicts)
        solved = math.ceil(4 * float(self.correct.float().mean())) + bool(self.correct.all())
        reasons = Counter(f"reason/{v.reason}" for v in self.verdicts)
        return (
            Counter(
                rollouts=len(self.verdicts),
                reward=reward,
                correct=int(self.correct.sum()),
                response_tokens=sum(map(len, self.group.responses)),
                truncated=self.group.finish_reasons.count("length"),
            )
            + Counter({f"solved/{SOLVED[solved]}": 1, f"reward/{kind}": reward, f"rollouts/{kind}": len(self.verdicts)})
            + reasons
            + Counter({name.replace("/", f"/{kind}/"): count for name, count in reasons.items()})
        )


def judging(config: Config) -> dict:
    """The settings of `verify_batch`."""
    return {
        "workers": config.verify_workers,
        "timeout_s": config.verify_timeout,
        "all_or_nothing": config.all_or_nothing,
        "allow_weak_sandbox": config.allow_weak_sandbox,
    }


def stop_tokens(tokenizer, model) -> list[int]:
    """Whatever ends a response: the tokenizer's EOS and those of the model's generation config."""
    eos = model.generation_config.eos_token_id
    return sorted({tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])} - {None})


def roll_out(
    engine,
    tokenizer,
    problems,
    prompts,
    n,
    *,
    seed,
    temperature,
    top_p,
    max_response_tokens,
    judging=None,
    show=True,
    on_progress=None,
) -> list[Rolled]:
    """Stages 2 and 3: n responses of each problem, and their verdicts. What takes over 5 s shows a bar.

    judging: the settings of `verify_batch`. on_progress: called now and then while rolling out.
    """

    def advance(count: int) -> None:
        bar.update(count)
        if on_progress:
            on_progress()

    with tqdm(total=len(prompts) * n, desc="rollouts", unit="", leave=False, delay=5, disable=not show) as bar:
        groups = engine.generate(
            prompts,
            n,
            max_new_tokens=max_response_tokens,
            temperature=temperature,
            top_p=top_p,
            stop_token_ids=stop_tokens(tokenizer, engine.model),
            seed=seed,
            on_progress=advance,
        )
    decode = functools.cache(lambda response: tokenizer.decode(response, skip_special_tokens=True))  # many are equal
    texts = [decode(tuple(r)) for g in groups for r in g.responses]
    verdicts = verify_batch(
        [(p.kind, text, p.reference) for p, at in zip(problems, range(0, len(texts), n), strict=True)
         for text in texts[at : at + n]],
        **judging or {},
    )  # fmt: skip
    return [
        Rolled(problem, group, texts[at : at + n], verdicts[at : at + n])
        for problem, group, at in zip(problems, groups, range(0, len(texts), n), strict=True)
    ]


class Answers(NamedTuple):
    """What k responses to each held-out problem came to, in the order of the problems: a line of eval.jsonl."""

    k: int
    correct: list[int]  # of k
    response_tokens: list[float]  # mean
    truncated: list[int]  # of k
    reward: list[float]  # mean

    def of(self, start: int, stop: int) -> Answers:
        """Those to some of the problems."""
        return Answers(self.k, *(column[start:stop] for column in self[1:]))


def evaluate(engine, tokenizer, problems, prompts, config: Config, accelerator: Accelerator) -> Answers:
    """k responses to every problem, the same order on any number of processes, each of which has its own share."""
    engine.wake()
    k, rank, world = config.eval_samples, accelerator.process_index, accelerator.num_processes
    rolled = roll_out(
        engine,
        tokenizer,
        problems[rank::world],
        prompts[rank::world],
        k,
        seed=seed_of(config.eval_seed, rank),
        temperature=config.eval_temperature,
        top_p=config.eval_top_p,
        max_response_tokens=config.eval_max_response_tokens,
        judging=judging(config),
        show=rank == 0,
    )
    engine.sleep()
    mine = zip(range(rank, len(problems), world), (r.counts() for r in rolled), strict=True)
    counts = [c for _, c in sorted(gather_object(list(mine)), key=lambda pair: pair[0])]
    return Answers(
        k,
        [c["correct"] for c in counts],
        [c["response_tokens"] / k for c in counts],
        [c["truncated"] for c in counts],
        [c["reward"] / k for c in counts],
    )


def score(answers: Answers) -> dict[str, float]:
    """pass@1 averaged over k responses, with its standard error over problems; unbiased pass@k; lengths."""
    k, n = answers.k, len(answers.correct)
    solved = torch.tensor(answers.correct, dtype=torch.float64) / k
    result = {
        "pass@1": solved.mean().item(),
        "pass@1_se": solved.std().item() / math.sqrt(n) if n > 1 else 0.0,
        "reward": math.fsum(answers.reward) / n,
        "response_tokens": math.fsum(answers.response_tokens) / n,
        "truncated": sum(answers.truncated) / (k * n),
    }
    for m in (x for x in (4, 16, 64, 256, 1024) if x <= k):
        result[f"pass@{m}"] = sum(brorl.pass_at_k_estimate(k, c, m) for c in answers.correct) / n
    return result


def score_sources(answers: Answers, sources: dict[str, int]) -> dict[str, dict[str, float]]:
    """A row of scores for each source of --eval_data, and their mean where there are several.

    sources: name -> number of problems, in order. In the mean each source counts the same, whatever its size, as the
    columns of table 3 do in table 1; its standard error is sqrt(Σ s.e.²) / number of sources.
    """
    rows, start = {}, 0
    for name, count in sources.items():
        rows[name] = score(answers.of(start, start + count)) | {"problems": count}
        start += count
    if len(rows) > 1:
        mean = {name: statistics.fmean(row[name] for row in rows.values()) for name in next(iter(rows.values()))}
        mean["pass@1_se"] = math.hypot(*(row["pass@1_se"] for row in rows.values())) / len(rows)
        rows[f"mean of {len(rows)}"] = mean | {"problems": start}
    return rows


# ----------------------------------------------------------------------------------------------------- policy and batch


class Policy(torch.nn.Module):
    """A causal language model as the loss sees it: log-probs of response tokens, without [tokens, V] logits."""

    def __init__(self, model):
        super().__init__()
        self.model, self.shares = model, False
        self._no_split_modules = model._no_split_modules  # the layers, which FSDP gathers one at a time
        for module in model.modules():  # the old, the new and the engine's log-probs must be of one function
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = 0.0

    def forward(
        self,
        tokens: Tensor,
        prompt_lengths: Tensor,
        response_lengths: Tensor,
        temperature: float,
        prompts: Tensor | None = None,
    ):
        """tokens: (S, W), prompt then response, padded on the right; returns log π and the entropy, (T,) each.

        No attention mask: a causal model never looks at what stands to the right, padding included.
        prompts: (S,) numbers, equal for neighbouring rows that share their prompt; None: every row computes its own.
        """
        at = L.response_positions(prompt_lengths, response_lengths, tokens.shape[1])
        states = self.states(tokens, prompt_lengths, response_lengths, prompts, at)
        targets = tokens.roll(-1, dims=1)[at]
        head = self.model.get_output_embeddings()
        return L.token_logprobs(states, head.weight, targets, temperature, getattr(head, "bias", None))

    def states(self, tokens, prompt_lengths, response_lengths, prompts, at) -> Tensor:
        """The last hidden states that predict the response tokens, (T, H)."""
        if prompts is None:
            return self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state[at]
        return shared_states(self.model.base_model, tokens, prompt_lengths, response_lengths, prompts, at)

    @torch.no_grad()
    def next_token(self, prompt: list[int], prefixes: list[tuple], temperature: float, budget: int) -> Tensor:
        """The softmax after the prompt and each of these prefixes of its responses, (H, V).

        A prefix needs no forward pass of its own if it begins a longer one: those are computed, within `budget` tokens.
        """
        device, head, rows, place = self.model.device, self.model.get_output_embeddings(), [], {}
        for prefix in sorted(prefixes, key=len, reverse=True):
            if prefix not in place:
                rows.append(prefix)
                place |= {prefix[:d]: (len(rows) - 1, d) for d in range(len(prefix) + 1) if prefix[:d] not in place}
        width, p = len(prompt) + len(rows[0]) + 1, {}
        for part in range(0, len(rows), count := max(1, budget // width)):
            here = rows[part : part + count]
            tokens = torch.tensor([[*prompt, *row, *[0] * (width - len(prompt) - len(row))] for row in here])
            lengths = torch.tensor([len(row) + 1 for row in here], device=device)  # the token after it is predicted too
            prompt_lengths = torch.full_like(lengths, len(prompt))
            at = L.response_positions(prompt_lengths, lengths, width)
            same = torch.zeros_like(lengths) if self.shares else None
            states = self.states(tokens.to(device), prompt_lengths, lengths, same, at)
            first = (lengths.cumsum(0) - lengths).tolist()
            wanted = [x for x in prefixes if part <= place[x][0] < part + count]
            states = states[[first[place[x][0] - part] + place[x][1] for x in wanted]]
            logits = torch.nn.functional.linear(states, head.weight, getattr(head, "bias", None)).float()
            p |= zip(wanted, (logits / temperature).softmax(-1), strict=True)
        return torch.stack([p[x] for x in prefixes])

    @torch.no_grad()
    def check_head(self) -> None:
        """Some models scale or cap their logits after the head, which `token_logprobs` would not see."""
        settings = self.model.config.get_text_config()
        named = ("final_logit_softcapping", "logit_scale", "logits_scaling")
        changed = any(getattr(settings, name, None) not in (None, 1, 1.0) for name in named)
        tokens = torch.arange(2, 10, device=self.model.device)[None] % self.model.config.get_text_config().vocab_size
        lengths = torch.tensor([2], device=tokens.device), torch.tensor([6], device=tokens.device)
        ours, _ = self(tokens, *lengths, 1.0)
        logits = self.model(input_ids=tokens).logits[0, 1:-1].float()
        theirs = torch.log_softmax(logits, -1).gather(-1, tokens[0, 2:, None]).squeeze(-1)
        if changed or not (ours - theirs).abs().max() < 1e-3:
            raise ValueError(
                f"{type(self.model).__name__} changes its logits after the output head (scaling or soft cap): its "
                "log-probs would be wrong here, so it cannot be trained with this file"
            )

    def share(self, mode: str) -> str:
        """Prepare --share_prefix, and say in a line what came of it. Raises ValueError if it is "on" and cannot be."""
        if mode == "off":
            return "every rollout with its own prompt (--share_prefix off)"
        own, reason = self.model.config._attn_implementation, self._why_not_shared()
        self.shares = reason is None
        if reason and own != self.model.config._attn_implementation:
            self.model.set_attn_implementation(own)
        if reason and mode == "on":
            raise ValueError(f"--share_prefix on: {type(self.model).__name__} cannot: {reason}; auto does without")
        if reason:
            return f"every rollout with its own prompt ({reason})"
        where = "" if mode == "on" else f" in steps where this saves enough tokens ({SHARE_FROM[mode]}x)"
        return f"each prompt computed once for its rollouts{where} (--share_prefix {mode})"

    @torch.no_grad()
    def _why_not_shared(self) -> str | None:
        """None if log-probs with shared prompts equal the plain ones on a few tokens, else the reason.

        A few tokens do not reach beyond a sliding window, so the config has to say that there is none.
        """
        model, settings = self.model, self.model.config.get_text_config()
        if model.config._attn_implementation not in ("sdpa", "packed_sdpa"):
            return f"its attention is {model.config._attn_implementation}, not sdpa"
        if not getattr(model, "_can_set_attn_implementation", lambda: True)():
            return "its attention cannot be replaced"
        partial = set(getattr(settings, "layer_types", None) or []) - {"full_attention"}
        partial |= {name for name in ("sliding_window", "attention_chunk_size") if getattr(settings, name, None)}
        if partial:
            return f"it does not attend to all that came before: {', '.join(sorted(partial))}"
        lengths = torch.tensor([5, 5, 5, 3, 3]), torch.tensor([4, 1, 3, 2, 4])
        tokens = torch.randint(settings.vocab_size, (5, 9), generator=torch.Generator().manual_seed(0))
        tokens[:3, :5], tokens[3:, :3] = tokens[0, :5], tokens[3, :3]
        tokens, *lengths, prompts = (x.to(model.device) for x in (tokens, *lengths, torch.tensor([0, 0, 0, 1, 1])))
        try:
            want, _ = self(tokens, *lengths, 1.0)
            model.set_attn_implementation("packed_sdpa")
            difference = (self(tokens, *lengths, 1.0, prompts)[0] - want).abs().max()
        except Exception as e:  # whatever a foreign model does with foreign arguments, the plain path remains
            return f"{type(e).__name__}: {e}"
        return None if difference < 1e-4 else f"its log-probs with shared prompts differ by {difference:.1e}"


# ------------------------------------------------------------------------- a prompt computed once for its rollouts


def shared_states(
    model, tokens: Tensor, prompt_lengths: Tensor, response_lengths: Tensor, prompts: Tensor, at: Tensor
) -> Tensor:
    """The states that predict the response tokens, (T, H), from one forward pass with every prompt in it once.

    The rows (S, W) become one sequence without padding,

        prompt 1, response 1.1, response 1.2, ..., prompt 2, response 2.1, ...

    each token at the position that it has in its rollout. In attention, `packed_attention`, a response sees its
    prompt and itself; everything else in a decoder looks at one token at a time. So each state is the same function
    of the weights as in a row of its own, and autograd adds up at the prompt what its responses send back: log-probs
    and gradients are the plain path's, but for the order of float sums. For P prompts of L tokens and S responses
    of R this computes P·L + S·(R - 1) tokens instead of S·(L + R): a response's last token predicts nothing.
    """
    row, column = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    opens = prompts.diff(prepend=prompts[:1] - 1) != 0  # (S,) the first row of each prompt, which computes it
    opener = opens.nonzero().squeeze(1)[opens.cumsum(0) - 1]  # (S,)
    inner = (response_lengths - 1).clamp(min=0)
    computed = (column < (prompt_lengths + inner)[:, None]) & (opens[:, None] | (column >= prompt_lengths[:, None]))
    place = computed.flatten().cumsum(0).view_as(computed) - 1  # (S, W) in the sequence, of a token that is computed
    place[row, prompt_lengths - 1] = place[opener, prompt_lengths - 1]  # one state predicts all first tokens
    hidden = model(
        input_ids=tokens[computed][None],
        position_ids=column.expand_as(tokens)[computed][None],
        attention_mask=torch.ones(1, 1, 1, 1, device=tokens.device),  # of four dimensions: the model makes none itself
        use_cache=False,
        packed=packed_groups(opens, prompt_lengths, inner),
    ).last_hidden_state[0]
    return hidden.index_select(0, place[at])


class Rows(NamedTuple):
    """Responses to one prompt, laid end to end, and how to set them apart as (count, width), padded on the right."""

    tokens: int
    count: int
    width: int
    slots: Tensor | None  # (tokens,) where each token goes; None: all responses are as long, and nothing moves

    @staticmethod
    def of(lengths: list[int], device) -> Rows:
        inside = torch.arange(max(lengths), device=device) < torch.tensor(lengths, device=device)[:, None]
        slots = None if min(lengths) == max(lengths) else inside.flatten().nonzero().squeeze(1)
        return Rows(sum(lengths), *inside.shape, slots)


def packed_groups(opens: Tensor, prompt_lengths: Tensor, inner: Tensor) -> list[tuple[int, list[Rows]]]:
    """The sequence's layout: each prompt's length and its responses, as many together as `KEYS_AT_ONCE` admits."""
    groups, part, width = [], [], 0
    for first, prompt, length in zip(opens.tolist(), prompt_lengths.tolist(), inner.tolist(), strict=True):
        if first:
            groups.append((prompt, []))
        if first or (len(part) + 1) * (prompt + max(width, length)) > KEYS_AT_ONCE:
            part, width = [], 0
            groups[-1][1].append(part)
        if length:
            part.append(length)
            width = max(width, length)
    return [(prompt, [Rows.of(part, opens.device) for part in parts if part]) for prompt, parts in groups]


def packed_attention(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, packed=None, **kwargs
) -> tuple[Tensor, None]:
    """transformers' sdpa attention, and for a `packed` sequence: prompts causally, responses after their prompt.

    query: [1, Hq, T, D]; key, value: [1, Hk, T, D]; returns [1, T, Hq, D].
    """
    if packed is None:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    refused = ("sliding_window", "softcap", "s_aux", "position_bias")
    if asked := [name for name in refused if kwargs.get(name) is not None] + ["dropout"] * (dropout > 0):
        raise ValueError(f"attention to a shared prompt has no {', '.join(asked)}")
    lengths = [length for prompt, parts in packed for length in (prompt, *(rows.tokens for rows in parts))]
    pieces = zip(*(x.squeeze(0).split(lengths, dim=1) for x in (query, key, value)), strict=True)  # [heads, t, D] each
    out = []
    for _, parts in packed:
        q, *prompt = next(pieces)
        k, v = (x[:, None].expand(-1, len(q) // len(x), -1, -1) for x in prompt)  # [Hk, Hq / Hk, L, D]
        q = q.unflatten(0, (len(k), -1))
        out.append(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling).flatten(0, 1))
        for rows in parts:  # whose copies of a long prompt's keys are made again for the backward pass, not kept for it
            arguments = *next(pieces), *prompt, rows, scaling
            if prompt[0].shape[1] <= 2 * rows.width:
                out.append(response_attention(*arguments))
            else:
                out.append(checkpoint(response_attention, *arguments, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(out, dim=1).transpose(0, 1)[None], None


def response_attention(q, k, v, prompt_k, prompt_v, rows: Rows, scaling: float | None) -> Tensor:
    """softmax(q·[K_prompt, K_response] · scaling) [V_prompt; V_response], causal, for C = rows.count responses.

    q: [Hq, t, D]; k, v: [Hk, t, D]; prompt_k, prompt_v: [Hk, L, D]; returns [Hq, t, D].
    """
    hk, length, shape = len(k), prompt_k.shape[1], (rows.count, rows.width)

    def apart(x: Tensor) -> Tensor:  # [heads, t, D] -> [heads, C, R, D], padded on the right
        if rows.slots is not None:
            x = x.new_zeros(len(x), rows.count * rows.width, x.shape[-1]).index_copy(1, rows.slots, x)
        return x.unflatten(1, shape)

    q = apart(q).unflatten(0, (hk, -1)).transpose(1, 2).flatten(0, 1)  # [Hk·C, Hq / Hk, R, D]
    k, v = (
        torch.cat([prompt[:, None].expand(-1, rows.count, -1, -1), apart(own)], dim=2).flatten(0, 1)
        for prompt, own in ((prompt_k, k), (prompt_v, v))
    )  # [Hk·C, L + R, D]
    seen = torch.ones(rows.width, length + rows.width, dtype=torch.bool, device=q.device).tril(length)
    if rows.width <= SHORT and q.device.type == "cpu":  # where sdpa's kernel takes twice as long as the formula
        heads, scale = q.shape[1], scaling if scaling is not None else q.shape[-1] ** -0.5
        bias = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, -torch.inf).repeat(heads, 1)
        scores = torch.baddbmm(bias.expand(len(q), -1, -1), q.flatten(1, 2), k.transpose(1, 2), alpha=scale)
        out = torch.bmm(scores.softmax(-1), v).unflatten(1, (heads, -1))  # [Hk·C, Hq / Hk, R, D]
    else:
        k, v = (x[:, None].expand(-1, q.shape[1], -1, -1) for x in (k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling)
    out = out.unflatten(0, (hk, -1)).transpose(1, 2).flatten(0, 1).flatten(1, 2)  # [Hq, C·R, D]
    return out if rows.slots is None else out.index_select(1, rows.slots)


ALL_ATTENTION_FUNCTIONS.register("packed_sdpa", packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register("packed_sdpa", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


@dataclass
class Batch:
    """One process's kept rollouts of a step. Rows are rollouts; `engine_logp` and the like are (S, R)."""

    tokens: Tensor  # (S, W) prompt then response, padded on the right
    prompt_lengths: Tensor  # (S,)
    response_lengths: Tensor  # (S,)
    engine_logp: Tensor  # (S, R), R the longest response
    advantages: Tensor  # (S,)
    prompts: Tensor  # (S,) the number of the row's prompt
    old_logp: Tensor | None = None
    ref_logp: Tensor | None = None
    share: bool = False  # compute a prompt once for the rows of a micro-batch

    @staticmethod
    def of(groups: list[Group], advantages: Tensor, device) -> Batch:
        rows = [(g.prompt, r, lp) for g in groups for r, lp in zip(g.responses, g.logprobs, strict=True)]
        prompt_lengths = torch.tensor([len(p) for p, _, _ in rows], dtype=torch.long)
        response_lengths = torch.tensor([len(r) for _, r, _ in rows], dtype=torch.long)
        whole = prompt_lengths + response_lengths
        width, longest = (int(whole.max()), int(response_lengths.max())) if rows else (0, 0)
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        engine_logp = torch.zeros(len(rows), longest)
        if rows:
            tokens[torch.arange(width) < whole[:, None]] = torch.tensor([t for p, r, _ in rows for t in [*p, *r]])
            inside = torch.arange(longest) < response_lengths[:, None]
            engine_logp[inside] = torch.tensor([x for _, _, lp in rows for x in lp])
        prompts = torch.tensor([i for i, g in enumerate(groups) for _ in g.responses], dtype=torch.long)
        parts = tokens, prompt_lengths, response_lengths, engine_logp, advantages.flatten(), prompts
        return Batch(*(x.to(device) for x in parts))

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, rows: Tensor) -> Batch:
        """Some of its rows."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{name: x[rows] if isinstance(x, Tensor) else x for name, x in parts.items()})

    def inputs(self, rows: Tensor, temperature: float) -> tuple:
        """What `Policy` takes for these rows, cut to the longest of them."""
        width = int((self.prompt_lengths[rows] + self.response_lengths[rows]).max())
        prompts = self.prompts[rows] if self.share else None
        return self.tokens[rows, :width], self.prompt_lengths[rows], self.response_lengths[rows], temperature, prompts

    def mini_batches(self, count: int, of: str, rng: torch.Generator) -> list[Tensor]:
        """The rows of each of `count` mini-batches, in an order drawn by `rng`: of "rollouts", or whole "prompts"."""
        if of == "rollouts":
            return list(torch.randperm(len(self), generator=rng).to(self.tokens.device).tensor_split(count))
        prompts = self.prompts.cpu().unique()
        parts = prompts[torch.randperm(len(prompts), generator=rng)].tensor_split(count)
        return [torch.isin(self.prompts, part.to(self.prompts.device)).nonzero().squeeze(1) for part in parts]

    def inside(self, rows: Tensor) -> Tensor:
        """(rows, R) bool: which entries of an (S, R) tensor are tokens."""
        column = torch.arange(self.engine_logp.shape[1], device=self.tokens.device)
        return column < self.response_lengths[rows, None]

    def micro_batches(self, rows: Tensor, budget: int) -> list[Tensor]:
        """Split rows, longest first, so that rows x width stays within `budget` tokens (one row at least).

        With shared prompts: prompt by prompt, so that each part's prompts, once, and its responses stay within it.
        """
        lengths = (self.prompt_lengths + self.response_lengths)[rows]
        order = torch.argsort(lengths, descending=True, stable=True)
        if self.share:
            return self._grouped(rows[order], budget)
        rows, lengths, parts = rows[order], lengths[order].tolist(), []
        while len(rows):
            count = max(1, budget // lengths[0])
            parts.append(rows[:count])
            rows, lengths = rows[count:], lengths[count:]
        return parts

    def _grouped(self, rows: Tensor, budget: int) -> list[Tensor]:
        """`micro_batches` with shared prompts: the rows of a prompt together, in the order they come in."""
        rows = rows[torch.argsort(self.prompts[rows], stable=True)]
        sizes, used, last = [], budget, None
        lengths = (x[rows].tolist() for x in (self.prompts, self.prompt_lengths, self.response_lengths))
        for prompt, prompt_length, response_length in zip(*lengths, strict=True):
            if used + response_length + (prompt != last) * prompt_length > budget:
                sizes.append(0)
                used, last = 0, None
            used += response_length + (prompt != last) * prompt_length
            sizes[-1] += 1
            last = prompt
        return list(rows.split(sizes)) if sizes else []

    def saving(self, updates: int) -> float:
        """How many times the tokens the plain way computes, if so many mini-batches have a prompt, once each."""
        rollouts = torch.bincount(self.prompts)[self.prompts]  # (S,) of the row's prompt
        prompts = self.prompt_lengths * (updates / rollouts).clamp(max=1)
        whole = self.prompt_lengths + self.response_lengths
        return float(whole.sum() / (prompts + self.response_lengths).sum().clamp(min=1))

    @torch.no_grad()
    def score(self, policy, temperature: float, budget: int, accelerator=None) -> tuple[Tensor, float]:
        """Log-probs (S, R) of every response token under `policy`, and the sum of its entropies.

        accelerator: whose precision and whose other processes count; None: float32, this process alone.
        """
        logp, entropy = torch.zeros_like(self.engine_logp), 0.0
        parts = self.micro_batches(torch.arange(len(self), device=self.tokens.device), budget)
        rounds = rounds_of(len(parts), accelerator) if accelerator else len(parts)
        for _ in range(rounds - len(parts)):
            idle(policy, self.tokens.device)
        for rows in parts:
            with accelerator.autocast() if accelerator else nullcontext():
                flat, h = policy(*self.inputs(rows, temperature))
            part = torch.zeros(len(rows), logp.shape[1], device=logp.device)
            part[self.inside(rows)] = flat.float()
            logp[rows] = part
            entropy += h.sum().item()
        return logp, entropy


# ------------------------------------------------------------------------------------------------------------- start-up


def main(probe: type[Probe] = Probe) -> None:
    about = __doc__.split("\n\n")[0] + " " + Config.__doc__
    parser = HfArgumentParser(Config, description=about, allow_abbrev=False)
    config, unknown = parser.parse_args_into_dataclasses(return_remaining_strings=True)
    names = [f"--{f.name}" for f in fields(Config)]
    if unknown:
        near = [x for u in unknown for x in difflib.get_close_matches(u.split("=")[0], names, 1)]
        hint = f"did you mean {' '.join(near)}?" if near else "--help lists the settings"
        parser.exit(2, f"train.py: unknown {' '.join(unknown)}: {hint}\n")
    given = {x.split("=")[0].removeprefix("--").replace("-", "_") for x in sys.argv[1:] if x.startswith("--")}

    # Processes meet seldom and far apart: one may generate long responses for an hour while another waits for it.
    # A process that dies is not waited for, the launcher ends the others.
    try:
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=6))])
    except ValueError as mistake:  # a precision or a plugin that is not there
        parser.exit(2, f"Accelerate cannot start as it is set: {mistake}\n")
    if accelerator.device.type == "cpu" and hasattr(os, "sched_getaffinity"):
        # accelerate launch leaves one thread, whatever the machine has: divide its cores over the processes
        local = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local))
    try:
        setup = set_up(config, accelerator, given, probe)
    except (ValueError, OSError, EngineError) as mistake:
        where = f"process {accelerator.process_index}: " if accelerator.num_processes > 1 else ""
        print(f"\n{where}{mistake}", file=sys.stderr, flush=True)
        if accelerator.num_processes > 1:  # at once: the destructors of an engine may wait for the other processes
            os._exit(2)
        sys.exit(2)
    try:
        if config.eval_only:
            problems, prompts = setup.held_out, setup.held_out_prompts
            answers = evaluate(setup.engine, setup.tokenizer, problems, prompts, config, accelerator)
            setup.run.report(answers)
        else:
            setup.run.preemption.watch()
            train(config, accelerator, setup)
    except (KeyboardInterrupt, Exception) as stop:
        kept = [] if config.eval_only else setup.run.checkpoints()
        after = "nothing is written before all is evaluated" if config.eval_only else "there is no checkpoint yet"
        if kept:
            after = f"--resume --name {config.name} continues after {kept[-1].name}"
        if not isinstance(stop, KeyboardInterrupt):
            cause = why(stop, accelerator)
            print(f"\nprocess {accelerator.process_index}: {cause}\n{after}", file=sys.stderr, flush=True)
            os._exit(1)  # at once, as above
        accelerator.print(f"\nstopped{' by SIGTERM' * isinstance(stop, Preempted)}; {after}", file=sys.stderr)
        sys.exit(143 if isinstance(stop, Preempted) else 130)
    accelerator.wait_for_everyone()
    setup.engine.close()
    accelerator.end_training()
    if accelerator.num_processes > 1:  # all is written; torch's threads may abort a process that Python takes apart
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def why(failure: Exception, accelerator: Accelerator) -> str:
    """A sentence on what ended a run. What nobody foresaw comes with its traceback."""
    text = str(failure)
    if isinstance(failure, (EngineError, RunStopped)):
        return text
    if isinstance(failure, OSError) and failure.errno in DISK_ERRORS:
        return (
            f"{failure.filename or 'a file'} could not be written: {failure.strerror or text}. Make room, or name "
            "another --output_dir; what is on the disk is whole"
        )
    if isinstance(failure, torch.OutOfMemoryError) or "can't allocate memory" in text:
        return (
            f"out of memory: {text.splitlines()[0]} Lower --max_tokens_per_micro_batch, or set --gradient_checkpointing"
        )
    if accelerator.num_processes > 1 and ("gloo" in text or isinstance(failure, torch.distributed.DistError)):
        return (
            "another process has ended: its own message, if it had time for one, says why. This one cannot go on alone"
        )
    return "".join(traceback.format_exception(failure))


def trackers(report_to: str | None) -> list[str]:
    """The trackers of --report_to. Raises ValueError for one that is not known or not installed."""
    names = [name.strip() for name in (report_to or "").split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"--report_to {name}: choose one of {', '.join(TRACKERS)}, or both with a comma")
        if not TRACKERS[name]():
            raise ValueError(f"--report_to {name}: the package is not installed: pip install {name}")
    return names


def set_up(
    config: Config, accelerator: Accelerator, given: set[str] | None = None, probe_of: type[Probe] = Probe
) -> Setup:
    """Settings, data, models, and the run's folder. Raises ValueError or OSError, with a sentence, for mistakes."""
    sources = resolve(config, given, accelerator.device.type == "cuda")
    trackers(config.report_to)
    run = Run(config, accelerator)
    tokenizer, positions = describe(config.model)
    length = config.max_response_tokens
    problems, prompts = ([], []) if config.eval_only else load(tokenizer, config.data, length, positions, config.seed)
    held_out, held_out_prompts = run.load_held_out(tokenizer, positions, "eval_max_response_tokens" not in sources)
    if run.cut and "eval_max_response_tokens" in sources:
        sources["eval_max_response_tokens"] += run.cut
    check(config, len(problems), accelerator)
    check_verifiers([*problems, *held_out], config)
    set_seed(config.seed)
    model = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32).to(accelerator.device)
    evaluated = config.eval_max_response_tokens
    needed = max([len(x) + length for x in prompts] + [len(x) + evaluated for x in held_out_prompts])
    sharded = accelerator.distributed_type == DistributedType.FSDP  # then the torch engine needs whole weights: a copy
    copied = sharded and config.engine == "torch"
    engine = make_engine(config, copy.deepcopy(model) if copied else model, needed)
    engine.sleep()
    setup = Setup(problems, prompts, held_out, held_out_prompts, tokenizer, engine, run=run)
    if config.eval_only:
        accelerator.print(check_engine(engine, Policy(model), tokenizer, held_out_prompts, config, accelerator))
        return setup

    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    policy = Policy(model)
    policy.check_head()
    training = policy.share(config.share_prefix)
    memory = memory_estimate(config, policy, engine, max(map(len, prompts)), accelerator)
    memory.check()
    reference = copy.deepcopy(policy).requires_grad_(False) if config.kl_coef else None
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    if config.optimizer_from and not config.resume:  # a checkpoint has its own
        load_moments(optimizer, Path(config.optimizer_from))
    if sharded and accelerator.mixed_precision == "bf16":  # Accelerate would also add gradients up in bfloat16
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        accelerator.state.fsdp_plugin.mixed_precision_policy = mixed
    if reference and sharded:
        reference = fsdp2_prepare_model(accelerator, reference)
    policy, optimizer = accelerator.prepare(policy, optimizer)
    cursor, progress = Cursor(len(problems), config.seed), Progress()
    accelerator.register_for_checkpointing(cursor, progress, *([Whole(reference)] if reference else []))
    accelerator.print(introduction(config, sources, setup, accelerator, training, memory))
    run.check_disk(model, reference is not None)
    checking = engine, accelerator.unwrap_model(policy), tokenizer, prompts, config, accelerator
    agreed = None if config.resume else check_engine(*checking)  # before there is a folder
    run.open(progress)
    if config.resume:
        engine.sync(model)  # the checkpoint's weights
        agreed = check_engine(*checking)
    accelerator.print(agreed + "\n")
    probe = probe_of(accelerator.unwrap_model(policy), config, accelerator) if config.log_mass_balance else None
    return setup._replace(
        policy=policy, reference=reference, optimizer=optimizer, cursor=cursor, progress=progress, probe=probe
    )


def load_moments(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Take AdamW's moments, and how many updates they hold, from a checkpoint of another run of the same model.

    That it is the same is seen by the shapes of its weights only.
    """
    name = f"--optimizer_from {checkpoint}"
    if not (checkpoint / "optimizer.bin").is_file():
        raise ValueError(
            f"{name} has no optimizer.bin: name a checkpoint, runs/NAME/checkpoints/step_..., of a run without FSDP2"
        )
    if damage := damaged(checkpoint):
        raise ValueError(f"{name} is damaged ({damage}): name another checkpoint")
    state = torch.load(checkpoint / "optimizer.bin", map_location="cpu", weights_only=True)
    own = optimizer.state_dict()
    shapes = [getattr(moments.get("exp_avg"), "shape", None) for _, moments in sorted(state["state"].items())]
    if shapes != [p.shape for group in optimizer.param_groups for p in group["params"]]:
        raise ValueError(f"{name} has not the moments of these weights: name a checkpoint of the model that is trained")
    optimizer.load_state_dict({"state": state["state"], "param_groups": own["param_groups"]})


def make_engine(config: Config, model, positions: int) -> Engine:
    """The engine of --engine, for this model; `positions`: the most tokens of a prompt and its response."""
    if config.engine == "torch":
        return TorchEngine(model, config.engine_memory_gib)
    return VLLMEngine(
        model,
        positions,
        config.max_num_seqs or max(512, config.rollouts_per_prompt),
        config.engine_memory_gib,
        config.gpu_memory_utilization,
        config.tensor_parallel_size,
        config.engine_dtype,
    )


def check_engine(engine: Engine, policy: Policy, tokenizer, prompts, config: Config, accelerator: Accelerator) -> str:
    """Do engine and trainer hold the same model? Compares their log-probs on a few rollouts before anything is trained.

    Small differences (bfloat16, other kernels) are what the truncated importance ratio is for; large ones mean
    that weights did not arrive or that the two compute this architecture differently. Returns a line to print;
    raises ValueError beyond --max_engine_difference or --max_engine_kl.
    """
    rank, world = accelerator.process_index, accelerator.num_processes
    mine = [prompts[i % len(prompts)] for i in range(4 * rank, 4 * rank + 4)]
    engine.wake()
    groups = engine.generate(
        mine,
        8,
        max_new_tokens=min(config.eval_max_response_tokens if config.eval_only else config.max_response_tokens, 256),
        temperature=config.temperature,
        stop_token_ids=stop_tokens(tokenizer, engine.model),
        seed=seed_of(config.seed, 0, rank),
    )
    engine.sleep()
    batch = Batch.of(groups, torch.zeros(len(mine) * 8), accelerator.device)
    trained, _ = batch.score(policy, config.temperature, config.max_tokens_per_micro_batch, accelerator)
    inside = batch.inside(torch.arange(len(batch), device=trained.device))
    ours, theirs = trained[inside], batch.engine_logp[inside]
    tokens = total(len(ours), accelerator)
    mean = total((ours - theirs).abs().sum().item(), accelerator) / tokens
    kl = total(L.kl_k3(theirs, ours).sum().item(), accelerator) / tokens
    most = max(gather_object([(ours - theirs).abs().max().item()]))
    exact = accelerator.mixed_precision == "no" and (config.engine == "torch" or engine.dtype == "float32")
    limits = (
        config.max_engine_difference if config.max_engine_difference is not None else (1e-3 if exact else 0.1),
        config.max_engine_kl if config.max_engine_kl is not None else (1e-4 if exact else 0.05),
    )
    found = (
        f"|log π_trainer - log π_engine| is {mean:.1e} on average and {most:.1e} at most, KL {kl:.1e}, over "
        f"{tokens:,.0f} tokens of {32 * world} rollouts"
    )
    if not (mean <= limits[0] and kl <= limits[1]):
        raise ValueError(
            f"the engine does not sample the model that is trained: {found}; the limits are {limits[0]:g} and "
            f"{limits[1]:g}. Either weights do not reach the engine or the two compute this architecture differently: "
            "train with --engine torch, try --engine_dtype float32, or, if this much is expected, raise "
            "--max_engine_difference and --max_engine_kl"
        )
    return f"  engine and trainer agree: {found}"


def resolve(config: Config, given: set[str] | None = None, on_gpu: bool = False) -> dict[str, str]:
    """Fill the settings that are None, and return where every filled one comes from.

    A learning rate belongs to a batch: if N or B is changed and the rate is not, it follows section 4.2.1's rule.
    On --resume, what is not `given` (default: not set) is what the run was started with.
    """
    if config.resume and config.overwrite:
        raise ValueError("--resume keeps a run and --overwrite deletes it: choose one")
    if config.eval_only and config.resume:
        raise ValueError("--eval_only resumes no run: to score one, --model runs/NAME/model")
    config.name = config.name or (eval_name(config.model) if config.eval_only else f"{config.recipe}-seed{config.seed}")
    if config.resume:
        unset = asdict(Config())
        given = given if given is not None else {k for k, v in asdict(config).items() if v != unset[k]}
        started_with = Run.started_with(config)
        for name in unset.keys() & started_with.keys() - given - {"resume", "overwrite", "output_dir", "name"}:
            setattr(config, name, started_with[name])
    if config.recipe not in brorl.RECIPES:
        raise ValueError(f"--recipe {config.recipe}: choose one of {', '.join(brorl.RECIPES)}")
    if weighted := [str(spec) for spec in config.eval_data or [] if read_spec(str(spec))[1] is not None]:
        raise ValueError(
            f"--eval_data {' '.join(weighted)}: held-out problems are not mixed by weight. Each is asked once, every "
            "source has a row of its own and the same share of their mean: leave the :WEIGHT out"
        )
    if config.data and not config.eval_data:
        raise ValueError("--data without --eval_data would be judged on tiny/test.jsonl: name held-out problems too")
    config.engine = config.engine or ("vllm" if on_gpu and have_vllm() else "torch")
    config.model = config.model or str(TINY / "policy")
    config.data, config.eval_data = config.data or [TINY / "train.jsonl"], config.eval_data or [TINY / "test.jsonl"]
    config.data, config.eval_data = ([absolute(str(s)) for s in x] for x in (config.data, config.eval_data))
    config.model = os.path.abspath(config.model) if os.path.isdir(config.model) else config.model
    config.optimizer_from = config.optimizer_from and os.path.abspath(config.optimizer_from)

    recipe = brorl.RECIPES[config.recipe]
    defaults = {k: (x.value, f"--recipe {config.recipe}: {x.source}") for k, x in recipe.items()}
    path = Path(config.model) / RECIPE_FILE
    if path.is_file():
        try:
            measured = json.loads(path.read_text()).get(config.recipe, {})
            defaults |= {k: (x["value"], f"{RECIPE_FILE}: {x['source']}") for k, x in measured.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as mistake:
            form = '{"brorl": {"setting": {"value": ..., "source": "..."}}}'
            raise ValueError(f"{path} is not of the form {form}: {mistake!r}") from None
        if unknown := sorted(set(measured) - set(recipe)):
            raise ValueError(f"{path}: unknown settings {unknown}; a recipe has {', '.join(recipe)}")
        if wrong := sorted(k for k in measured if isinstance(defaults[k][0], str) != isinstance(recipe[k].value, str)):
            raise ValueError(f"{path}: {wrong} must be of the same type as in brorl.py, a number or text")
    if config.max_samples is not None or config.max_hours is not None:
        del defaults["max_steps"]
    sources = {}
    for name in (name for name in defaults if getattr(config, name) is None):
        value, sources[name] = defaults[name]
        setattr(config, name, value)
    batch = config.rollouts_per_prompt * config.prompts_per_step
    usual = defaults["rollouts_per_prompt"][0] * defaults["prompts_per_step"][0]
    if "learning_rate" in sources and batch != usual and batch > 0:
        eta_0 = config.learning_rate
        config.learning_rate = brorl.scaled_learning_rate(eta_0, batch, usual)
        sources["learning_rate"] = (
            f"{eta_0:g} x sqrt({batch:,} / {usual:,} samples), section 4.2.1; {sources['learning_rate']}"
        )
    return sources


def check(config: Config, problems: int, accelerator: Accelerator) -> None:
    """Refuse at the start what would only fail, or mislead, later. Raises ValueError with the fix."""
    processes, kind, device = accelerator.num_processes, accelerator.distributed_type, accelerator.device.type
    budgets = [x for x in (config.max_steps, config.max_samples, config.max_hours) if x is not None]
    c, n, b = config, config.rollouts_per_prompt, config.prompts_per_step
    for name, value in asdict(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"--{name} {value}: must be a finite number")
    rules = [
        (n >= 2, f"--rollouts_per_prompt {n}: a group needs at least 2 for its mean to say anything"),
        (b >= 1, f"--prompts_per_step {b}: must be at least 1"),
        (b <= problems or c.eval_only, f"--prompts_per_step {b} exceeds the {problems} training problems: lower it"),
        (b >= processes, f"--prompts_per_step {b} does not reach {processes} processes: raise it to at least that"),
        (c.refill >= 1, f"--refill {c.refill}: must be at least 1, the first round"),
        (c.updates_per_step >= 1, f"--updates_per_step {c.updates_per_step}: must be at least 1"),
        (n * b // max(processes, 1) >= c.updates_per_step, f"N x B = {n * b} rollouts do not fill --updates_per_step "
         f"{c.updates_per_step} mini-batches on {processes} processes: lower it"),
        (c.mini_batches in ("rollouts", "prompts"), f"--mini_batches {c.mini_batches}: choose rollouts or prompts"),
        (c.mini_batches != "prompts" or b >= c.updates_per_step * processes, f"--mini_batches prompts: {b} prompts do "
         f"not fill {c.updates_per_step} mini-batches on {processes} process(es): lower --updates_per_step"),
        (c.learning_rate > 0, f"--learning_rate {c.learning_rate}: must be positive"),
        (c.warmup_updates >= 0, f"--warmup_updates {c.warmup_updates}: must not be negative, 0 is none"),
        (kind.value != "FSDP" or not c.optimizer_from, "--optimizer_from: FSDP2 has cut the optimizer up, leave it out "
         "or use data-parallel processes"),
        (0 < c.clip_low < 1, f"--clip_low {c.clip_low}: must be in (0, 1), the ratio cannot fall below 0"),
        (c.clip_high > 0, f"--clip_high {c.clip_high}: must be positive"),
        (c.kl in L.KL, f"--kl {c.kl}: choose one of {', '.join(L.KL)}"),
        (c.kl_coef >= 0, f"--kl_coef {c.kl_coef}: must not be negative, 0 turns the term off"),
        (c.tis_cap >= 1, f"--tis_cap {c.tis_cap}: below 1 it would scale down even what both models agree on"),
        (c.reference_reset_steps >= 0, f"--reference_reset_steps {c.reference_reset_steps}: must be >= 0, 0 is never"),
        (c.temperature > 0, f"--temperature {c.temperature}: training samples, so it must be positive"),
        (c.top_p == 1.0, f"--top_p {c.top_p}: while training the trainer scores the whole distribution, which a top-p "
         "cut would contradict: leave it at 1"),
        (c.max_response_tokens >= 1, f"--max_response_tokens {c.max_response_tokens}: must be at least 1"),
        (c.eval_max_response_tokens >= 1,
         f"--eval_max_response_tokens {c.eval_max_response_tokens}: must be at least 1"),
        (c.eval_samples >= 1, f"--eval_samples {c.eval_samples}: must be at least 1"),
        (c.eval_every >= 0, f"--eval_every {c.eval_every}: must be >= 0, 0 is only before and after"),
        (c.eval_temperature >= 0 and 0 < c.eval_top_p <= 1,
         f"--eval_temperature {c.eval_temperature} must be >= 0 and --eval_top_p {c.eval_top_p} in (0, 1]"),
        (c.eval_temperature > 0 or c.eval_samples == 1,
         f"--eval_temperature 0 is greedy: {c.eval_samples} equal responses, set --eval_samples 1"),
        (budgets, "no budget: set --max_steps, --max_samples or --max_hours"),
        (all(x > 0 for x in budgets), "--max_steps, --max_samples and --max_hours must be positive; to score without "
         "training there is --eval_only"),
        (c.max_grad_norm > 0, f"--max_grad_norm {c.max_grad_norm}: must be positive; a huge one turns clipping off"),
        (c.weight_decay >= 0, f"--weight_decay {c.weight_decay}: must not be negative"),
        (c.max_skipped_updates >= 1, f"--max_skipped_updates {c.max_skipped_updates}: must be at least 1"),
        (c.spike == 0 or c.spike > 1, f"--spike {c.spike}: must be 0 (off) or over 1 times the median"),
        (c.spike or not c.skip_spikes, "--skip_spikes has nothing to skip with --spike 0: set --spike"),
        (c.samples_per_step >= 0, f"--samples_per_step {c.samples_per_step}: must not be negative"),
        (0 <= c.seed < 2**32, f"--seed {c.seed}: must be in 0 ... 2^32 - 1"),
        (c.engine_memory_gib > 0, f"--engine_memory_gib {c.engine_memory_gib}: must be positive"),
        (c.save_every >= 1 and c.keep_checkpoints >= 1, "--save_every and --keep_checkpoints must be at least 1"),
        (c.share_prefix in ("auto", "on", "off"), f"--share_prefix {c.share_prefix}: choose auto, on or off"),
        (c.max_tokens_per_micro_batch >= 1, "--max_tokens_per_micro_batch must be at least 1"),
        (c.verify_workers is None or c.verify_workers >= 1, f"--verify_workers {c.verify_workers}: must be at least 1"),
        (c.verify_timeout > 0, f"--verify_timeout {c.verify_timeout}: must be positive"),
        (c.engine in ("torch", "vllm"), f"--engine {c.engine}: choose torch or vllm"),
        (c.engine == "vllm" or (c.tensor_parallel_size == 1 and c.max_num_seqs is None and c.engine_dtype is None),
         "--tensor_parallel_size, --max_num_seqs and --engine_dtype belong to --engine vllm"),
        (c.tensor_parallel_size >= 1 and processes % max(c.tensor_parallel_size, 1) == 0,
         f"--tensor_parallel_size {c.tensor_parallel_size} does not divide {processes} process(es)"),
        (0 < c.gpu_memory_utilization < 1, f"--gpu_memory_utilization {c.gpu_memory_utilization}: must be in (0, 1)"),
        (c.max_num_seqs is None or c.max_num_seqs >= 1, f"--max_num_seqs {c.max_num_seqs}: must be at least 1"),
        (c.engine != "vllm" or all(x == 0 or 0.01 <= x <= 2 for x in (c.temperature, c.eval_temperature)),
         f"--temperature {c.temperature}, --eval_temperature {c.eval_temperature}: vLLM takes 0, or 0.01 to 2"),
        (all(x is None or x > 0 for x in (c.max_engine_difference, c.max_engine_kl)),
         "--max_engine_difference and --max_engine_kl must be positive"),
        (kind.value in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP"), f"Accelerate is set to {kind.value}: this loop "
         "runs on one process, on data-parallel ones, or under FSDP2 (NO, MULTI_CPU, MULTI_GPU, FSDP), change it with "
         "`accelerate config`"),
        (kind.value != "FSDP" or accelerator.is_fsdp2, "FSDP's first version is set in Accelerate: write "
         "fsdp_version: 2 into its config"),
        (kind.value != "FSDP" or not accelerator.state.fsdp_plugin.cpu_ram_efficient_loading, "every process loads the "
         "model whole before it is cut up: write fsdp_cpu_ram_efficient_loading: false into Accelerate's config"),
        (accelerator.mixed_precision in ("no", "bf16"), f"mixed precision {accelerator.mixed_precision}: this loop "
         "computes in float32 or bfloat16 (no scaling of losses), start it with --mixed_precision bf16"),
        (accelerator.gradient_accumulation_steps == 1, "gradient accumulation is set in Accelerate: here micro-batches "
         "(--max_tokens_per_micro_batch) do that, set it to 1"),
        (kind.value != "FSDP" or not c.log_mass_balance, "--log_mass_balance looks at softmaxes that FSDP2 has cut up: "
         "leave it out, or use data-parallel processes"),
        (device != "mps", "Apple's GPU has no float64, which the sums over processes need: accelerate launch --cpu"),
    ]  # fmt: skip
    if broken := [sentence for holds, sentence in rules if not holds]:
        raise ValueError("\n".join(broken))


def describe(model: str) -> tuple[PreTrainedTokenizerBase, int | None]:
    """A model's tokenizer and how many positions it has, without its weights."""
    if os.path.isdir(model) and not os.path.exists(os.path.join(model, "config.json")):
        raise ValueError(f"--model {model} has no config.json: name a folder that save_pretrained wrote")
    if os.path.exists(os.path.join(model, "metrics.jsonl")):
        raise ValueError(f"--model {model} is a run: its policy is {os.path.join(model, 'model')}")
    try:
        settings = AutoConfig.from_pretrained(model).get_text_config()
        return AutoTokenizer.from_pretrained(model), getattr(settings, "max_position_embeddings", None)
    except OSError as reason:
        reason = str(reason).splitlines()[0]
        raise ValueError(f"--model {model} is no folder here, and not to be had from the hub: {reason}") from None


def eval_name(model: str | None) -> str:
    """eval-MODEL: the last part of a hub's name or of a folder's; for runs/NAME/model it is NAME."""
    path = Path(os.path.abspath(model or TINY / "policy"))
    return f"eval-{path.parent.name if path.name == 'model' else path.name}"


def source_names(specs: list[str]) -> list[str]:
    """Short names of sources: hf:aime24 is aime24, FOLDER/test.jsonl is test, gym:chain_sum*50 is gym:chain_sum.

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


def absolute(spec: str) -> str:
    """A file of problems by its whole path, so that a run can be resumed from elsewhere; other sources as they are."""
    source, weight = read_spec(spec)
    if source.startswith(("hf:", "gym:")):
        return spec
    return os.path.abspath(source) + ("" if weight is None else f":{weight:g}")


def check_verifiers(problems: list[Problem], config: Config) -> None:
    """Judge one nonsense answer of each kind: a worker that cannot start is known now, not at the first step."""
    first = {p.kind: p.reference for p in reversed(problems)}
    nonsense = "```python\npass\n```\n<answer>0</answer> \\boxed{x + y^2}"
    try:
        verify_batch([(kind, nonsense, reference) for kind, reference in first.items()], **judging(config))
    except WeakSandbox as weak:
        raise ValueError(f"{weak} (--allow_weak_sandbox)") from None


def load(
    tokenizer,
    specs: list[str],
    max_response_tokens: int,
    positions: int | None,
    seed: int = 0,
    limit: str = "--max_response_tokens",
):
    """The problems of all sources, and their prompts as tokens: ([Problem], [[int]]).

    limit: the setting that max_response_tokens is the value of.

    The main process reads and checks them for all: what is left out in one process is left out in every one.

    Raises ValueError, with source and number, for a prompt that leaves no room for its response or that the
    tokenizer cannot write.
    """
    found = from_main(lambda: load_data(specs, seed))
    problems, encoded = [], []
    for where, problem in ((f"{', '.join(specs)}, problem {i}", x) for i, x in enumerate(found, 1)):
        if isinstance(problem.prompt, str):
            text, tokens = problem.prompt, tokenizer(problem.prompt).input_ids
        elif tokenizer.chat_template is None:
            raise ValueError(f"{where} is a chat, and this tokenizer has no chat template: write it as text")
        else:
            text = "".join(message["content"] for message in problem.prompt)
            tokens = tokenizer.apply_chat_template(problem.prompt, add_generation_prompt=True, return_dict=False)
        asked, written = ({*unicodedata.normalize("NFKC", x)} for x in (text, tokenizer.decode(tokens)))
        if lost := {c for c in asked - written if not c.isspace()}:
            raise ValueError(f"{where}: the tokenizer has no token for {' '.join(sorted(lost))}: change the prompt")
        if positions and len(tokens) + max_response_tokens > positions:
            raise ValueError(
                f"{where}: {len(tokens)} prompt tokens + {limit} {max_response_tokens} exceed the "
                f"model's {positions} positions: shorten one of them"
            )
        problems.append(problem)
        encoded.append(tokens)
    return problems, encoded


class Memory(NamedTuple):
    """GiB of one process, by part; what it may hold at most beside them in each stage; what its machine has left."""

    always: dict[str, float]
    rolling_out: dict[str, float]
    updating: dict[str, float]
    left: float  # for what is not there yet, and for this process alone
    keeps: bool  # a CPU's allocator keeps what the one stage freed beside what the other needs

    @property
    def peak(self) -> float:
        stages = [sum(self.rolling_out.values()), sum(self.updating.values())]
        return sum(self.always.values()) + (sum(stages) if self.keeps else max(stages))

    def check(self) -> None:
        """Raises ValueError, with the setting to change, if the run will not fit."""
        if self.peak - self.always["held now"] <= self.left:
            return
        stage = max(self.rolling_out, self.updating, key=lambda stage: sum(stage.values()))
        largest = max(self.always | stage, key=(self.always | stage).get)
        needed = self.peak - self.always["held now"]
        raise ValueError(
            f"out of memory to come: the run needs about {size(needed * 2**30)} a process beside what it has, "
            f"and {size(self.left * 2**30)} are free. The largest part is the {largest} "
            f"({size((self.always | stage)[largest] * 2**30)}): {FIXES[largest]}"
        )

    def __str__(self) -> str:
        def listed(parts: dict[str, float]) -> str:
            return ", ".join(f"{name} {size(gib * 2**30)}" for name, gib in parts.items() if gib >= 2**-10)

        stages = {"": self.always, "while rolling out: ": self.rolling_out, "while updating: ": self.updating}
        parts = "; ".join(stage + listed(x) for stage, x in stages.items() if listed(x))
        return f"about {size(self.peak * 2**30)} a process at the most ({parts})"


FIXES = {
    "optimizer": "start more processes under FSDP2, which divides it",
    "reference": "--kl_coef 0 does without, FSDP2 divides it over processes",
    "gradients": "start more processes under FSDP2, which divides them",
    "activations": "lower --max_tokens_per_micro_batch, or set --gradient_checkpointing",
    "logits": "lower --max_tokens_per_micro_batch",
    "rollouts": "lower --rollouts_per_prompt, --prompts_per_step or --max_response_tokens, or start more processes",
    "decoding": "lower --engine_memory_gib, or for vLLM on a GPU --gpu_memory_utilization",
}


def memory_estimate(config: Config, policy: Policy, engine: Engine, prompt_tokens: int, accelerator) -> Memory:
    """What a run will hold at its peak. Made before anything but model and engine is there."""
    processes, device = accelerator.num_processes, accelerator.device
    sharded = processes if accelerator.distributed_type == DistributedType.FSDP else 1
    length, budget = config.max_response_tokens, config.max_tokens_per_micro_batch
    groups = config.prompts_per_step / processes
    rollouts = groups * config.rollouts_per_prompt
    whole = prompt_tokens + length
    computed = length + prompt_tokens * min(1, groups * config.parts_of_a_prompt / rollouts)
    shared = policy.shares and whole >= SHARE_FROM[config.share_prefix] * computed
    tokens = min(budget, rollouts / config.updates_per_step * (computed if shared else whole))
    weights = 4 * sum(p.numel() for p in policy.parameters())
    settings = policy.model.config.get_text_config()
    layers, kept = settings.num_hidden_layers, activation_bytes(policy, accelerator)
    layer = kept / layers  # of one: so much again for its gradients, on the way back
    if config.gradient_checkpointing:  # the input of every layer, and the inside of one
        kept = layer + 4 * layers * settings.hidden_size
    vocabulary = settings.vocab_size
    logits = min(L.MAX_LOGITS, tokens * vocabulary)
    if config.engine == "torch":
        decoding = engine.wave_bytes(math.ceil(groups), config.rollouts_per_prompt, prompt_tokens, length)
    else:
        decoding = torch.cuda.mem_get_info(device)[1] * config.gpu_memory_utilization if device.type == "cuda" else 0
    so_far, left = memory_now(device)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes)) if device.type == "cpu" else 1
    gib = 2**30
    return Memory(
        {"held now": so_far / gib, "optimizer": 2 * weights / sharded / gib,
         "reference": (config.kl_coef > 0) * weights / sharded / gib,
         "rollouts": (device.type == "cpu") * rollouts * (16 * prompt_tokens + 100 * length + 500) / gib},
        {"decoding": decoding / gib},
        {"gradients": weights * (2 if processes > sharded else 1) / sharded / gib,  # DDP holds them twice
          "activations": tokens * (kept + layer) / gib,
         "logits": 8 * logits / gib},
        (left / here + weights * (1 - 1 / sharded)) / gib,
        device.type == "cpu",
    )  # fmt: skip


def activation_bytes(policy: Policy, accelerator: Accelerator) -> float:
    """Bytes that a forward pass keeps for the backward pass, a token: counted on two short ones of this very model."""
    counted, device = [], next(policy.parameters()).device
    for width in (64, 128):
        kept = {}

        def keep(x: Tensor, kept=kept) -> Tensor:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage()
            return x

        lengths = torch.tensor([2], device=device), torch.tensor([width - 2], device=device)
        with accelerator.autocast(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = policy(torch.ones(1, width, dtype=torch.long, device=device), *lengths, 1.0)
        counted.append(sum(storage.nbytes() for storage in kept.values()))
        del out
    return (counted[1] - counted[0]) / 64


def memory_now(device: torch.device) -> tuple[int, int]:
    """Bytes that this process holds and that its device, or a CPU's machine, has left. Unknown: (0, a huge number)."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device)[0]
    try:
        lines = (x for path in ("/proc/self/status", "/proc/meminfo") for x in Path(path).read_text().splitlines())
        facts = dict(line.split(":", 1) for line in lines)
        held, left = (int(facts[name].split()[0]) * 1024 for name in ("VmRSS", "MemAvailable"))
        group = Path("/sys/fs/cgroup")
        if (group / "memory.max").exists() and (limit := (group / "memory.max").read_text().strip()) != "max":
            left = min(left, int(limit) - int((group / "memory.current").read_text()))
        return held, left
    except (OSError, KeyError, ValueError):
        return 0, 2**60


def peak_gib(device: torch.device) -> float:
    """The most memory that this process held so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30


def introduction(
    config: Config, sources: dict[str, str], setup: Setup, accelerator: Accelerator, training: str, memory: Memory
) -> str:
    """What the run will do, before it does it. training: how log-probs are computed, from `Policy.share`."""
    model, engine, world = setup.engine.model, setup.engine, accelerator.num_processes
    n, b, u = config.rollouts_per_prompt, config.prompts_per_step, config.updates_per_step
    parameters = sum(p.numel() for p in model.parameters())
    precision = {"no": "float32", "bf16": "bfloat16 beside float32 weights"}[accelerator.mixed_precision]
    precision += ", sharded by FSDP2" * (accelerator.distributed_type == DistributedType.FSDP)
    budgets = {"steps": config.max_steps, "samples": config.max_samples, "hours": config.max_hours}
    lines = [
        f"BroRL, recipe {config.recipe}: {short(config.model)}, {parameters / 1e6:,.2f}M parameters, "
        f"{world} process(es) on {model.device.type}, {precision}, run {config.name}",
        f"  problems    {len(setup.problems):,} to train on, {len(setup.held_out):,} held out",
        f"  a step      {b} prompts x N = {n} rollouts = {b * n:,} samples, in {u} updates of {b * n // u:,} samples, "
        f"responses up to {config.max_response_tokens} tokens",
        f"  budget      {', '.join(f'{limit:,} {name}' for name, limit in budgets.items() if limit)}",
        f"  decoding    {engine.decoding}",
        f"  training    {training}",
        f"  memory      {memory}",
        "  settings",
    ]
    for name in (x for x in brorl.RECIPES[config.recipe] if getattr(config, x) is not None):
        lines.append(f"    {name:24} {shown(getattr(config, name)):>10}   {sources.get(name, 'as given')}")
    return "\n".join(lines) + "\n"


# -------------------------------------------------------------------------------------------------------- small helpers


class Whole:
    """A model's weights for a checkpoint, whole: under FSDP2 each process has only its part of them."""

    def __init__(self, model: torch.nn.Module):
        self.model = model

    def state_dict(self) -> dict[str, Tensor]:
        return {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in self.model.state_dict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, own in self.model.state_dict().items():
            whole = state[name].to(own.device)
            own.copy_(distribute_tensor(whole, own.device_mesh, own.placements) if isinstance(own, DTensor) else whole)


class Cursor:
    """Problems in an order fixed by the seed, a new permutation each epoch; one number to save and restore."""

    def __init__(self, size: int, seed: int):
        self.size, self.seed, self.position = size, seed, 0

    def take(self, count: int) -> list[int]:
        taken = []
        while len(taken) < count:
            epoch, at = divmod(self.position, self.size)
            order = list(range(self.size))
            random.Random(f"{self.seed}/{epoch}").shuffle(order)
            part = order[at : at + count - len(taken)]
            taken += part
            self.position += len(part)
        return taken

    def state_dict(self) -> dict:
        return {"position": self.position}

    def load_state_dict(self, state: dict) -> None:
        self.position = state["position"]


@dataclass
class Progress:
    """How far the run is, for its budget and for resuming."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    skipped: int = 0  # updates in a row without a finite gradient
    updates: int = 0
    norms: list[float] = field(default_factory=list)  # of the gradients of the last updates

    def fraction(self, config: Config) -> float:
        """How much of the budget is spent: of steps, samples or hours, whichever is ahead. 1: all."""
        steps, samples, hours = config.max_steps, config.max_samples, config.max_hours
        limits = (steps, self.step), (samples, self.samples), (hours, self.seconds / 3600)
        return max((used / limit for limit, used in limits if limit is not None), default=0.0)

    def spent(self, config: Config) -> bool:
        return self.fraction(config) >= 1

    def warm_up(self, optimizer, config: Config) -> None:
        """--warmup_updates W: the learning rate of the run's u-th update is min(u / W, 1) of its value."""
        self.updates += 1
        if config.warmup_updates:
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * min(1.0, self.updates / config.warmup_updates)

    def is_spike(self, norm: float, times: float) -> bool:
        """Is this gradient's norm so many `times` the median of the last ones? No, while there are too few."""
        return bool(times) and len(self.norms) >= 16 and norm > times * statistics.median(self.norms)

    def state_dict(self) -> dict:
        return asdict(self)

    def load_state_dict(self, state: dict) -> None:
        self.__dict__.update(state)


def time_left(progress: Progress, config: Config) -> str:
    """As far as the pace so far tells, in the form of tqdm: 4:05."""
    spent = progress.fraction(config)
    return tqdm.format_interval(progress.seconds * max(1 - spent, 0) / spent) if spent else "?"


def troubles(metrics: dict, progress: Progress, config: Config) -> list[str]:
    """What a step's updates met that one should know of, a sentence each."""
    found = []
    if metrics.get("spikes"):
        done = "left out" if config.skip_spikes else f"clipped to {config.max_grad_norm:g}"
        found.append(
            f"{metrics['spikes']:.0f} of {config.updates_per_step} updates had a gradient norm over {config.spike:g} "
            f"times the recent median, up to {metrics['grad_norm_max']:.3g}; {done}"
        )
    if lost := metrics.get("updates_skipped", 0) - config.skip_spikes * metrics.get("spikes", 0):
        found.append(
            f"{lost:.0f} of {config.updates_per_step} updates had no finite gradient and were left out, the last "
            f"{progress.skipped} in a row; the run stops at {config.max_skipped_updates} (--max_skipped_updates)"
        )
    return found


class RunStopped(RuntimeError):
    """The run ended itself: the message says why and what to change."""


class Preempted(KeyboardInterrupt):
    """SIGTERM came while rolling out."""


class Preemption:
    """SIGTERM, which a scheduler sends before it takes a machine away: noted, and obeyed where the run is whole."""

    noted = False

    def watch(self) -> None:
        signal.signal(signal.SIGTERM, self.note)

    def note(self, *_) -> None:
        self.noted = True

    def interrupt(self) -> None:
        if self.noted:
            raise Preempted


class Clock:
    """Seconds by stage."""

    def __init__(self):
        self.start = self.last = time.perf_counter()
        self.cpu = time.process_time()  # of all threads of this process, whatever else runs on the machine
        self.laps = Counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] += now - self.last
        self.last = now

    def total(self) -> float:
        return time.perf_counter() - self.start


def seed_of(*parts: int) -> int:
    """A 63-bit seed that differs for every combination of its parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def from_main(work):
    """What `work` returns or raises on the main process, on all of them: processes must not disagree about a disk."""
    found = [None]
    if PartialState().is_main_process:
        try:
            found = [work()]
        except (ValueError, OSError) as mistake:
            found = [mistake]
    broadcast_object_list(found)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def merge(counts: Counter) -> Counter:
    """The sum of every process's counts, on all of them."""
    return sum(gather_object([counts]), Counter())


def total(value: float, accelerator: Accelerator) -> float:
    """The sum of every process's number, on all of them."""
    return accelerator.reduce(torch.tensor(value, dtype=torch.float64, device=accelerator.device), "sum").item()


# ----------------------------------------------------------------------------------------------------- the run's folder


class Run:
    """The folder runs/NAME. Checkpoints and model/ are never half there; a torn last line goes when resuming."""

    def __init__(self, config: Config, accelerator: Accelerator):
        self.config, self.accelerator, self.preemption = config, accelerator, Preemption()
        self.folder = Path(config.output_dir) / config.name
        self.logs = {name: self.folder / f"{name}.jsonl" for name in ("metrics", "timing", "samples", "eval")}
        self.metrics, self.timing, self.samples, self.answers = self.logs.values()
        self.sources, self.problems = {}, ""  # of --eval_data: name -> number of problems; their digest
        self.cut = ""  # why an evaluation's responses are no longer, for whoever reads its protocol
        exists = (self.folder / "config.json").exists()
        if Path(config.name).name != config.name or config.name in (".", ".."):
            raise ValueError(f"--name {config.name} must be the plain name of a folder; --output_dir says where it is")
        if self.folder.exists() and not exists and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ValueError(f"{self.folder} is there and is no run: choose another --name, or move it away")
        if config.eval_only and (self.metrics.exists() or (self.folder / "checkpoints").exists()):
            raise ValueError(
                f"{self.folder} is a training run, which --eval_only does not replace: choose another --name (to score "
                f"what was trained there: --model {self.folder}/model)"
            )
        if config.eval_only and exists and not config.overwrite:
            raise ValueError(f"an evaluation exists at {self.folder}: --overwrite it, or choose another --name")
        if exists and not (config.resume or config.overwrite):
            raise ValueError(f"a run exists at {self.folder}: --resume it, --overwrite it, or choose another --name")
        parent = next(p for p in self.folder.absolute().parents if p.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ValueError(f"--output_dir {config.output_dir}: {parent} cannot be written to, name another")
        self.saved = self.folder / "saved"  # there since the first checkpoint was
        if config.resume:
            before, now = self.started_with(config), self.settings()
            free = {"resume", "overwrite", "max_steps", "max_samples", "max_hours", "eval_every", "save_every",
                    "keep_checkpoints", "output_dir", "gpu_memory_utilization", "max_engine_difference",
                    "max_engine_kl", "max_num_seqs", "verify_workers", "report_to", "max_skipped_updates",
                    "engine_memory_gib", "max_tokens_per_micro_batch", "gradient_checkpointing"}  # fmt: skip
            before = asdict(Config()) | {"precision": "no", "sharded": False} | before  # what it did not know yet
            differs = [k for k in now if k not in free and before.get(k) != now[k]]
            if changed := [f"{k}: {before.get(k)} -> {now[k]}" for k in differs]:
                raise ValueError("--resume would continue another run; these settings differ: " + "; ".join(changed))

    def settings(self) -> dict:
        """What makes a run this run: its settings, and how it was launched."""
        accelerator = self.accelerator
        sharded = accelerator.distributed_type == DistributedType.FSDP
        launch = {"processes": accelerator.num_processes, "precision": accelerator.mixed_precision, "sharded": sharded}
        return asdict(self.config) | launch

    @staticmethod
    def started_with(config: Config) -> dict:
        """The settings of the run that is to be resumed."""
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
        if settings.get("eval_only"):
            raise ValueError(f"--resume: {path.parent} is an evaluation, which starts over: --eval_only --overwrite")
        return settings

    def load_held_out(
        self, tokenizer, positions: int | None, given: bool = False
    ) -> tuple[list[Problem], list[list[int]]]:
        """`load` for --eval_data, source by source, so that the run knows which problem is whose.

        Responses are cut at --eval_max_response_tokens. Where the model has fewer positions behind the longest prompt,
        a length that was `given` is refused, and the recipe's lowered to what there is.
        """
        config, problems, prompts = self.config, [], []
        room = (
            (config.eval_max_response_tokens, "--eval_max_response_tokens") if given else (1, "a response of at least")
        )
        for name, spec in zip(source_names(config.eval_data), config.eval_data, strict=True):
            found, encoded = load(tokenizer, [spec], room[0], positions, HELD_OUT_SEED, room[1])
            self.sources[name] = len(found)
            problems += found
            prompts += encoded
        self.problems = hashlib.sha256(json.dumps(problems, sort_keys=True, default=str).encode()).hexdigest()[:16]
        most = positions - max(map(len, prompts)) if positions else math.inf
        if config.eval_max_response_tokens > most:
            config.eval_max_response_tokens = most
        if config.eval_max_response_tokens == most:
            self.cut = f", all that the model's {positions:,} positions leave"
        return problems, prompts

    def check_disk(self, model, with_reference: bool) -> None:
        """Room for all checkpoints that will be kept, the one being written, and model/. Raises ValueError if not."""
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        checkpoints = 1 if self.config.resume else self.config.keep_checkpoints + 1
        needed = weights * ((3 + with_reference) * checkpoints + 2)
        parent = next(p for p in [self.folder.absolute(), *self.folder.absolute().parents] if p.exists())
        if (free := shutil.disk_usage(parent).free) < needed:
            raise ValueError(
                f"--output_dir {self.config.output_dir} has {size(free)} free; {checkpoints} checkpoint(s) and the "
                f"model need {size(needed)}: make room, name another, or lower --keep_checkpoints"
            )

    def open(self, progress: Progress) -> None:
        """Make the folder, or go back to the newest checkpoint in it."""
        if self.accelerator.is_main_process:
            self.make()
        self.accelerator.wait_for_everyone()
        if self.config.resume:
            newest = from_main(self.newest_whole)
            if newest is None:
                self.accelerator.print("no checkpoint yet: starting over")
            else:
                self.accelerator.load_state(newest)
                from_main(lambda: self.check_history(progress.step))
                self.accelerator.print(f"resuming after step {progress.step}")
        if self.accelerator.is_main_process and self.config.resume:
            for path in self.logs.values():
                kept = [row for row in rows_of(path) if progress.step and row["step"] <= progress.step]
                write(path, "".join(json.dumps(row) + "\n" for row in kept))
        if self.config.report_to:
            self.accelerator.project_configuration.set_directories(str(self.folder / "tensorboard"))
            self.accelerator.log_with = trackers(self.config.report_to)
            settings = {name: str(value) for name, value in asdict(self.config).items()}
            own = {"wandb": {"name": self.config.name, "dir": str(self.folder)}}
            self.accelerator.init_trackers("brorl", settings, own)
        self.accelerator.wait_for_everyone()

    def make(self) -> None:
        """The folder, with config.json in it and, with --overwrite, nothing else."""
        if self.config.overwrite:
            shutil.rmtree(self.folder, ignore_errors=not self.folder.exists())
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / "config.json", json.dumps(self.settings(), indent=2) + "\n")

    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("step_" + "[0-9]" * 8))

    def newest_whole(self) -> Path | None:
        """The newest checkpoint whose every file is what was written; None before the first. Raises ValueError."""
        told = []
        for folder in reversed(self.checkpoints()):
            if not (damage := damaged(folder)):
                for newer in self.checkpoints()[len(self.checkpoints()) - len(told) :]:
                    discard(newer)  # else they would count as the newest when old ones go
                return folder
            told.append(f"{folder} is damaged ({damage})")
            if folder != self.checkpoints()[0]:
                self.accelerator.print(told[-1] + ": going back to the one before it")
        if told:
            raise ValueError(f"--resume: {'; '.join(told)}; no checkpoint is whole, --overwrite starts the run over")
        if self.saved.exists():
            raise ValueError(f"--resume: the checkpoints of {self.folder} are gone; --overwrite starts it over")

    def check_history(self, step: int) -> None:
        """Raises ValueError if metrics.jsonl is not the history of a run up to this step."""
        steps = {row["step"] for row in rows_of(self.metrics)}
        if lost := [i for i in range(step + 1) if i not in steps]:
            raise ValueError(
                f"--resume: {self.metrics} has lost the lines of {len(lost)} steps, from step {lost[0]} on: put "
                "them back, or --overwrite the run"
            )

    def checkpoint(self, step: int) -> None:
        """Weights, optimizer, reference, cursor, progress and random states: written aside, then renamed."""
        aside, final = self.folder / "checkpoints" / "unfinished", self.folder / "checkpoints" / f"step_{step:08d}"
        if self.accelerator.is_main_process:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        try:
            self.accelerator.save_state(aside, safe_serialization=False)
        except RuntimeError as failure:  # torch's writer has no OSError
            if not any(word in str(failure) for word in ("PytorchStreamWriter", "inline_container")):
                raise
            raise OSError(errno.EIO, "the disk took no more of it", str(aside)) from failure
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            seal(aside)
            discard(final)  # a damaged one that the run went back from
            os.replace(aside, final)
            self.saved.touch()
            for old in self.checkpoints()[: -self.config.keep_checkpoints]:
                discard(old)

    def leave(self, step: int) -> None:
        """SIGTERM: keep everything up to this step, and end. A run that trained nothing yet has nothing to keep."""
        if step and from_main(lambda: f"step_{step:08d}" not in [path.name for path in self.checkpoints()]):
            self.checkpoint(step)
        self.accelerator.wait_for_everyone()
        raise Preempted

    def log(self, metrics: dict, timing: dict, answers: Answers | None = None) -> None:
        if self.accelerator.is_main_process:
            if answers:
                self.keep(metrics["step"], metrics["samples"], answers)
            append(self.metrics, metrics)
            if timing:
                append(self.timing, timing)
        if self.config.report_to:
            seconds = {f"timing/{name}": value for name, value in timing.items() if name != "step"}
            self.accelerator.log({k: v for k, v in metrics.items() if k != "step"} | seconds, metrics["step"])
        self.accelerator.wait_for_everyone()

    def keep(self, step: int, samples: int, answers: Answers) -> None:
        which = {"problems": self.problems, "sources": self.sources}
        append(self.answers, {"step": step, "samples": samples} | which | answers._asdict())

    def report(self, answers: Answers) -> None:
        """--eval_only: print a row for each source, and write the folder, which was not there until now."""
        if not self.accelerator.is_main_process:
            return
        rows = score_sources(answers, self.sources)
        print(f"{short(self.config.model)}: {protocol(self.config, answers.correct, self.cut)}\n{table(rows)}")
        if len(rows) > 1:
            print("mean: every source counts the same, whatever its number of problems, as in the paper's tables")
        self.make()
        self.keep(0, 0, answers)
        with (self.folder / "scores.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["source", *next(iter(rows.values()))], lineterminator="\n")
            writer.writeheader()
            writer.writerows({"source": name} | row for name, row in rows.items())
        print(f"wrote {self.folder}/: scores.csv (these numbers), eval.jsonl (problem by problem), config.json")

    def sample(self, step: int, kept: list[Rolled]) -> None:
        """A few rollouts to read: of the first kept prompt, correct and incorrect ones."""
        if not self.accelerator.is_main_process or not kept:
            return
        first, count = kept[0], min(self.config.samples_per_step, len(kept[0].texts))
        best = sorted(range(len(first.texts)), key=lambda i: first.verdicts[i].reward, reverse=True)
        for i in [*best[: count - count // 2], *best[len(best) - count // 2 :]]:
            verdict = first.verdicts[i]
            append(self.samples, {"step": step, "prompt": first.problem.prompt, "response": first.texts[i],
                                  "reward": verdict.reward, "reason": verdict.reason})  # fmt: skip

    def evaluations(self) -> list[dict]:
        return [row for row in rows_of(self.metrics) if "eval/pass@1" in row]

    def finish(self, model, tokenizer, held_out) -> None:
        """Save the policy, draw the curves, print before and after."""
        main = self.accelerator.is_main_process
        weights = {name: x.cpu() for name, x in whole_tensors(model) if main}
        if not main:
            return
        aside = self.folder / "model.unfinished"
        shutil.rmtree(aside, ignore_errors=True)
        model.save_pretrained(aside, state_dict=weights)
        tokenizer.save_pretrained(aside)
        named = ((name, getattr(self.config, name)) for name in brorl.RECIPES[self.config.recipe])
        source = f"as in the run {self.config.name}"
        settings = {name: {"value": x, "source": source} for name, x in named if x is not None}
        start = Path(self.config.model) / RECIPE_FILE  # what was measured for it under the other recipe still holds
        recipes = json.loads(start.read_text()) if start.is_file() else {}
        write(aside / RECIPE_FILE, json.dumps(recipes | {self.config.recipe: settings}, indent=2) + "\n")
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        os.replace(aside, self.folder / "model")
        title = f"{self.config.name}: {short(self.config.model)}, N = {self.config.rollouts_per_prompt}"
        curves(self.metrics, self.folder / "curves.png", title)
        rows = {f"step {r['step']}": {k.removeprefix("eval/"): v for k, v in r.items()} for r in self.evaluations()}
        ends = {name: rows[name] for name in (next(iter(rows)), list(rows)[-1])}
        print(f"\n{protocol(self.config, held_out, self.cut)}\n{table(ends)}")
        logs = ", ".join(path.name for path in self.logs.values())
        print(f"\nwrote {self.folder}/: model/, curves.png, {logs}, checkpoints/")


def append(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict]:
    """A file's lines without a last one that was torn. Raises ValueError for one that no run wrote."""
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else [], 1):
        if line.endswith(b"\n"):
            try:
                rows.append(dict(json.loads(line)))
                rows[-1]["step"]
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path}, line {number}, is damaged: delete it, or --overwrite the run") from None
    return rows


def seal(folder: Path) -> None:
    """List a checkpoint's files with size and checksum, and have the disk hold all of it before it gets its name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    write(folder / SEAL, json.dumps({str(path.relative_to(folder)): fingerprint(path) for path in files}))
    for path in [*files, folder / SEAL, folder]:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def discard(folder: Path) -> None:
    """Delete a checkpoint, which loses its name first: killed half-way, there is no half of one."""
    nameless = folder.with_name("discarded")
    shutil.rmtree(nameless, ignore_errors=True)
    if folder.exists():
        os.replace(folder, nameless)
        shutil.rmtree(nameless)


def damaged(folder: Path) -> str:
    """What is wrong with a checkpoint's files; "" if nothing."""
    try:
        listed = json.loads((folder / SEAL).read_text()).items()
    except (OSError, ValueError, AttributeError):
        return f"it has no {SEAL}"
    for name, expected in listed:
        if not (folder / name).is_file() or fingerprint(folder / name) != expected:
            return f"{name} is not what was written"
    return ""


def fingerprint(path: Path) -> list[int]:
    """Size and CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    return [path.stat().st_size, crc]


def write(path: Path, text: str) -> None:
    """Replace a file whole."""
    aside = path.with_suffix(".unfinished")
    aside.write_text(text)
    os.replace(aside, path)


# -------------------------------------------------------------------------------------------------------- what is shown


def protocol(config: Config, held_out: list, cut: str = "") -> str:
    """What a score is a score of. cut: why the responses are no longer, if the recipe would have them longer."""
    return (
        f"{len(held_out)} held-out problems, {config.eval_samples} responses each, cut at "
        f"{config.eval_max_response_tokens:,} tokens{cut}, at temperature {config.eval_temperature}, "
        f"top-p {config.eval_top_p}, seed {config.eval_seed}"
    )


def table(rows: dict[str, dict[str, float]]) -> str:
    """Scores, a policy or a source a line: pass@1 ± standard error, pass@k, response length."""
    ks = [
        name for name in next(iter(rows.values())) if name.startswith("pass@") and name not in ("pass@1", "pass@1_se")
    ]
    width = max(map(len, rows))
    sizes = "problems" in next(iter(rows.values()))
    head = " " * width + "  pass@1 ± s.e.    " + "".join(f"{k:>9}" for k in ks) + "   tokens  truncated"
    lines = [head + "  problems" * sizes]
    for name, row in rows.items():
        scores = "".join(f"{row[k]:9.3f}" for k in ks)
        lines.append(
            f"{name:{width}}  {row['pass@1']:.3f} ± {row['pass@1_se']:.3f}    {scores}   "
            f"{row['response_tokens']:6.1f}  {row['truncated']:8.1%}" + (f"  {row['problems']:9,}" if sizes else "")
        )
    return "\n".join(lines)


def short(path: str) -> str:
    """A path as one would type it from here; a hub name stays."""
    return min(path, os.path.relpath(path), key=len) if os.path.exists(path) else path


def size(bytes: float) -> str:
    return f"{bytes / 2**30:.2f} GiB" if bytes >= 2**30 else f"{bytes / 2**20:.0f} MiB"


def shown(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def curves(metrics: Path, out: Path, title: str) -> None:
    """Held-out pass@k, training reward, pass rate of dynamic sampling, entropy and KL, over the samples drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    rows = rows_of(metrics)
    steps, evals = [r for r in rows if "reward" in r], [r for r in rows if "eval/pass@1" in r]
    scores = [name for name in evals[0] if name.startswith("eval/pass@") and not name.endswith("_se")]
    panels = [
        ("held-out pass@k (band: two standard errors)", evals, scores),
        ("training reward; share of prompts kept", steps, ["reward", "pass_rate"]),
        ("entropy (nats a token)", steps, ["entropy"]),
        ("KL to the reference; KL(engine, trainer)", steps, ["kl_ref", "engine_kl"]),
        ("share of tokens clipped", steps, ["clip_high_fraction", "clip_low_fraction"]),
        ("gradient norm", steps, ["grad_norm"]),
    ]
    figure, axes = plt.subplots(2, 3, figsize=(13, 6.5), layout="constrained")
    for axis, (name, points, series) in zip(axes.flat, panels, strict=True):
        for key in series:
            here = [r for r in points if key in r]
            axis.plot([r["samples"] for r in here], [r[key] for r in here], label=key.removeprefix("eval/"), lw=1.5)
        if name.startswith("held-out"):
            x, y, se = ([r[k] for r in evals] for k in ("samples", "eval/pass@1", "eval/pass@1_se"))
            axis.fill_between(x, [a - 2 * s for a, s in zip(y, se, strict=True)],
                              [a + 2 * s for a, s in zip(y, se, strict=True)], alpha=0.2)  # fmt: skip
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("samples generated")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
        if len(series) > 1:
            axis.legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(out, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
