"""BroRL, section 4.2: the training loop.

Read lab/loop.py first: the same nine stages in 165 lines, one process.

    python train.py                                    the embedded policy on a laptop's CPU, in minutes
    python train.py --recipe prorl                     the N = 16 baseline
    python train.py --model M --data D.jsonl --eval_data E.jsonl
    python train.py --eval_only --model M              score a model, train nothing
    python train.py --resume --name NAME               continue a run that was killed
    accelerate launch train.py                         the same on several processes (docs/training.md)
    python train.py --help                             every setting and its default

A step has nine stages, and `train` is these nine in order:

    1  problems      in an order fixed by the seed                       trainer/run.py: Progress.next_problems
    2  roll out      N responses per prompt, split over the ranks        trainer/rollouts.py: roll_out; rollout.py
    3  verify        reward, correctness and reason of each response     trainer/rollouts.py: Judge; verify.py
    4  select        keep prompts with 0 < #correct < N; draw more       loss.py: informative; `prompts_wanted`
                     until B are kept, at most --refill times B
    5  advantages    minus the group's mean, then whitened               loss.py: group_advantages, whiten
    6  score         log π_old and log π_ref under the trainer           trainer/policy.py: score
    7  update        U mini-batches, one optimizer step each             `update`, `loss_of`; loss.py: policy_loss
    8  sync          the new weights into the engine                     rollout.py
    9  reset the reference when due; log, evaluate, checkpoint           trainer/run.py

    name        symbol      meaning
    P           P           prompts that the step drew
    n, B        N, B        rollouts per prompt; target number of informative prompts (--prompts_per_step)
    U                       mini-batches of a step (--updates_per_step), u = 0 ... U - 1; each is cut into micro-batches
    kept                    (P,) bool: the informative prompts. All of them are trained on, even if they exceed B
    policy      π_θ         the model that is trained, as DDP or FSDP2 wraps it
    reference   π_ref       the model of the KL term
    old_logp    log π_old   log-probs of the policy before the step's first update

A response is one `Rollout` from stage 2 to stage 7; each stage fills in its result. `Outcomes` has the verdicts of all
ranks as (P, N) tensors, equal on every rank.

The paper leaves open, and this file decides: a truncated response is judged like any other (--truncated mask leaves it
out of the loss, as DAPO does); B counts informative prompts, and the learning rate stays the same if a step has more
than B; a group's rollouts are spread over the mini-batches at random; a run has no warm-up; AdamW's moments outlive a
reset of the reference; an update whose gradient is not finite is skipped. trainer/ has the plumbing.
"""

from __future__ import annotations

import trainer  # before torch: it sets environment variables that torch reads at import

# isort: split
import copy
import dataclasses
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from statistics import NormalDist
from typing import Any, NamedTuple, NoReturn

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from torch import Tensor
from transformers.utils import logging

import loss as L
from rollout import ENGINES, Engine, Sampling
from trainer.data import Data, load, load_model, stop_tokens
from trainer.policy import (
    Policy,
    agrees_with_logits,
    allocate_moments,
    fsdp_requested,
    log_probs,
    micro_batches,
    score,
    sharded,
    shares_prompts,
)
from trainer.report import introduction
from trainer.rollouts import Judge, Outcomes, Rollout, roll_out, seed_of
from trainer.run import Progress, Run, Sums, step_metrics
from trainer.settings import Config, Refusal, read_settings, refusing
from verify import JudgeFailed, NotAReward, load_rewards, printable

CONFIDENCE = 0.9  # probability that one more round of generation yields enough informative prompts
EVAL_SEED = 1234


class Setup(NamedTuple):
    """Everything that a run works with. --eval_only has no optimizer and no reference."""

    data: Data
    judge: Judge
    sampling: Sampling
    engine: Engine
    policy: torch.nn.Module
    reference: torch.nn.Module | None
    optimizer: torch.optim.Optimizer
    run: Run
    progress: Progress


def train(config: Config, accelerator: Accelerator, setup: Setup, measure: Callable = lambda *_: None) -> None:
    """Section 4.2: step after step until the budget is spent. measure(step, rollouts, outcomes) comes after stage 4."""
    data, judge, sampling, engine, policy, reference, optimizer, run, progress = setup
    plain = accelerator.unwrap_model(policy)  # without DDP: scoring needs no synchronisation of gradients
    n, temperature = config.rollouts_per_prompt, config.temperature
    if progress.step == 0:
        run.log({"step": 0, "samples": 0} | evaluate(config, accelerator, setup), progress)
    for step in progress.steps(config):
        run.begin_step()
        # 1-4: problems, roll out, verify, select; again until B prompts are informative or the bound is reached
        engine.wake()
        rollouts, outcomes = list[Rollout](), Outcomes.none(n)
        while (count := prompts_wanted(outcomes, progress, config)) > 0:
            chosen, seeds = progress.next_problems(data.problems, count, config.seed)  # 1
            drawn, found = roll_out(engine, chosen, n, seeds, sampling, judge, accelerator, len(outcomes))  # 2, 3
            rollouts, outcomes = rollouts + drawn, outcomes.followed_by(found)
        engine.sleep()
        kept = L.informative(outcomes.correct)  # 4: (P,)
        run.sample(rollouts, kept, step)
        run.lap("roll_out")
        measure(step, rollouts, outcomes)

        sums = Sums(accelerator)
        if kept.any():
            # 5: advantages over all kept rollouts of all ranks, and the mini-batch of each rollout
            advantages = L.whiten(L.group_advantages(outcomes.reward, config.advantage), kept)  # (P, N)
            trained = kept[:, None] & ~(outcomes.truncated & (config.truncated == "mask"))  # (P, N)
            mini_batch = mini_batches(trained, config.updates_per_step, seed_of(config.seed, step))  # (P, N)
            batches = with_advantages(rollouts, advantages, mini_batch, config, plain.share_prompts, accelerator)

            # 6: log-probs under the trainer before the first update
            for batch in batches:
                sums.add({"entropy": score(plain, batch, "old_logp", temperature, accelerator)})
                if reference is not None:
                    score(reference, batch, "ref_logp", temperature, accelerator)
            run.lap("score")

            # 7: one optimizer step per mini-batch; the denominator counts tokens over all ranks
            for u, batch in enumerate(batches):
                tokens = int(outcomes.length[mini_batch == u].sum())
                update(policy, optimizer, batch, tokens, config, accelerator, sums)
            run.lap("update")

            # 8: sync; the torch engine shares the policy's weights, vLLM loads them (asleep: when it wakes)
            engine.sync(plain.model)

        # 9: reset the reference; log, evaluate, checkpoint
        progress.end_step(outcomes, run.seconds())
        metrics = step_metrics(progress, outcomes) | sums.result()
        if reference is not None and config.reference_reset_steps and step % config.reference_reset_steps == 0:
            reference.load_state_dict(plain.state_dict())
        run.say_step(metrics, outcomes)
        if progress.due(config.eval_every, config):
            metrics |= evaluate(config, accelerator, setup)
        run.log(metrics, progress)
        if progress.due(config.save_every, config):
            run.save(progress, policy, optimizer, reference)
        progress.check()
    run.finish(plain.model, data.tokenizer)


# ------------------------------------------------------------------------------------------------- stages 1 to 5


def prompts_wanted(outcomes: Outcomes, progress: Progress, config: Config) -> int:
    """Return how many prompts the next round draws, so that B are informative with probability 0.9. 0: no more rounds.

    A prompt is informative with probability p, measured over the last steps. k more informative prompts need about

        (k + z sqrt(k (1 - p))) / p    prompts, z = 1.28

    This is the 0.9 quantile of the negative binomial (mean k / p, variance k (1 - p) / p²) by the normal approximation.
    A run's first round draws B prompts. A step draws at most --refill times B, and stops if the judge timed out or
    crashed on every response.
    """
    informative = int(L.informative(outcomes.correct).sum())
    missing = config.prompts_per_step - informative
    room = int(config.refill * config.prompts_per_step) - len(outcomes)
    if missing <= 0 or room <= 0 or outcomes.unjudged:
        return 0
    tried = progress.tried + len(outcomes)
    p = max(progress.informative + informative, 0.5) / tried if tried else 1.0  # 0.5: none was informative yet
    wanted = (missing + NormalDist().inv_cdf(CONFIDENCE) * math.sqrt(missing * (1 - p))) / p
    return min(room, max(missing, math.ceil(wanted)))


def mini_batches(trained: Tensor, updates: int, seed: int) -> Tensor:
    """Return each rollout's mini-batch u, (P, N): 0 ... U - 1 at random; -1 if it is not trained on.

    Sizes differ by at most one. Every rank computes the same assignment.
    """
    mini_batch = torch.full(trained.shape, -1)
    count = int(trained.sum())
    mini_batch[trained] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) % updates
    return mini_batch


def with_advantages(
    rollouts: list[Rollout], advantages: Tensor, mini_batch: Tensor, config: Config, share_prompts: bool,
    accelerator: Accelerator,
) -> list[list[list[Rollout]]]:  # fmt: skip
    """Write the advantages into this rank's rollouts. Returns its micro-batches of each of the U mini-batches.

    advantages, mini_batch: (P, N). Stages 6 and 7 use the same micro-batches.
    """
    values, numbers = advantages.tolist(), mini_batch.tolist()
    of_update: list[list[Rollout]] = [[] for _ in range(config.updates_per_step)]
    for r in rollouts:
        r.advantage, u = values[r.prompt_index][r.number], numbers[r.prompt_index][r.number]
        if u >= 0:
            of_update[u].append(r)
    budget = config.max_tokens_per_micro_batch
    return [micro_batches(batch, budget, share_prompts, accelerator) for batch in of_update]


# -------------------------------------------------------------------------------------------------------- stage 7


def update(
    policy, optimizer, batch: list[list[Rollout]], tokens: int, config: Config, accelerator: Accelerator, sums: Sums
) -> None:
    """Make one optimizer step, or skip it if the gradient is not finite or no rollout is left.

    batch: this rank's micro-batches. tokens: ΣT of the mini-batch, over all ranks.
    """
    if not tokens:  # fewer rollouts than mini-batches
        return
    policy.train(config.gradient_checkpointing)  # transformers recomputes in train mode only; there is no dropout
    fsdp = fsdp_requested()
    for i, rollouts in enumerate(batch):
        last = i + 1 == len(batch)
        # DDP adds up the gradients of all ranks after the last micro-batch, FSDP2 after each
        with nullcontext() if last or fsdp else accelerator.no_sync(policy):
            loss = loss_of(policy, rollouts, tokens, config, accelerator, sums)
            (loss * accelerator.num_processes).backward()  # the ranks' gradients are averaged, and we want their sum
    sums.updates, sums.tokens = sums.updates + 1, sums.tokens + tokens
    norm: Any = torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
    norm = float(norm.full_tensor() if fsdp else norm)
    finite = math.isfinite(norm)
    if finite:
        optimizer.step()
    optimizer.zero_grad()
    sums.add({"updates_skipped": not finite} | ({"grad_norm": norm, "grad_norm_max": norm} if finite else {}))


def loss_of(policy, rollouts: list[Rollout], tokens: int, config: Config, accelerator: Accelerator, sums: Sums):
    """Return a micro-batch's share of section 3.1's loss. tokens: ΣT, of the whole mini-batch on all ranks."""
    logp, _ = log_probs(policy, rollouts, config.temperature, accelerator)  # (T,)
    if not rollouts:
        return logp.sum()  # 0, with a gradient of 0: other ranks have one micro-batch more
    device = accelerator.device
    loss, metrics = L.policy_loss(
        logp,
        torch.cat([r.old_logp for r in rollouts]).to(device),  # type: ignore[misc]
        torch.cat([r.engine_logp for r in rollouts]).to(device),
        torch.cat([r.ref_logp for r in rollouts]).to(device) if config.kl_coef else None,  # type: ignore[misc]
        torch.tensor([r.advantage for r in rollouts], device=device),
        torch.tensor([len(r.response) for r in rollouts], device=device),
        tokens,
        clip_low=config.clip_low, clip_high=config.clip_high, tis_cap=config.tis_cap, kl=config.kl,
        kl_coef=config.kl_coef,
    )  # fmt: skip
    sums.add({"loss": loss.detach()} | metrics)
    return loss


# -------------------------------------------------------------------------------------------------------- stage 9


def evaluate(config: Config, accelerator: Accelerator, setup: Setup) -> dict[str, float]:
    """Appendix D: k responses to every held-out problem, with the same seeds at every evaluation."""
    held_out, began = setup.data.held_out, time.perf_counter()
    sampling = dataclasses.replace(
        setup.sampling, max_new_tokens=config.eval_max_response_tokens, temperature=config.eval_temperature,
        top_p=config.eval_top_p,
    )  # fmt: skip
    seeds = [seed_of(EVAL_SEED, i) for i in range(len(held_out))]
    setup.engine.wake()
    rollouts, outcomes = roll_out(
        setup.engine, held_out, config.eval_samples, seeds, sampling, setup.judge, accelerator
    )
    setup.engine.sleep()
    setup.run.laps["evaluate"] = time.perf_counter() - began
    return setup.run.evaluated(outcomes, rollouts, setup.progress)


# ------------------------------------------------------------------------------------------------------ the start


def main() -> None:
    config: Any = None
    setup: Any = None
    try:
        if signal.getsignal(signal.SIGINT) is trainer.stop:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        logging.disable_progress_bar()  # bars of reading and writing weights
        about = (__doc__ or "").partition("\n")[0]
        config, sources = read_settings(about)
        accelerator = start_accelerator()
        setup = set_up(config, accelerator, sources)
        if config.eval_only:
            evaluate(config, accelerator, setup)
        else:
            train(config, accelerator, setup)
    except (Refusal, JudgeFailed, NotAReward) as refusal:
        refuse(refusal, code=1 if setup else 2)
    except KeyboardInterrupt:
        goes_on = config and setup and not config.eval_only
        leave(130, f"\nstopped; --resume --name {config.name} continues the run" if goes_on else "\nstopped")
    except Exception as failure:
        if isinstance(failure, torch.OutOfMemoryError):
            failure.add_note("Lower --max_tokens_per_micro_batch or --gpu_memory_utilization, set "
                             "--gradient_checkpointing, or start the run with FSDP2")  # fmt: skip
        leave(1, traceback.format_exc())  # on every rank
    accelerator.wait_for_everyone()
    setup.engine.close()
    accelerator.end_training()


def refuse(refusal: Exception, code: int) -> NoReturn:
    """Print a refusal on rank 0. The other ranks wait 5 seconds, so that a launcher ends them before they repeat it."""
    if rank := int(os.environ.get("RANK", 0)):
        time.sleep(5)
    leave(code, f"process {rank}: {refusal}" if rank else str(refusal))


def leave(code: int, text: str) -> NoReturn:
    """End this process without the destructors of an engine, which may wait for other ranks."""
    sys.stdout.flush()
    # The text may quote a model, a data set or an exception.
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
    os._exit(code)


def start_accelerator() -> Accelerator:
    """Start Accelerate. Collectives time out after 3 hours: a rank may generate or write a checkpoint that long."""
    with refusing("Accelerate cannot start: "):
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=3))])
    if accelerator.distributed_type.value not in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP"):
        raise Refusal(f"Accelerate is set to {accelerator.distributed_type.value}: use one process, DDP or FSDP2")
    if accelerator.mixed_precision not in ("no", "bf16"):
        raise Refusal(f"--mixed_precision {accelerator.mixed_precision}: this loop needs bf16 or no")
    if accelerator.gradient_accumulation_steps != 1:
        raise Refusal(
            "gradient accumulation is set in Accelerate: set it to 1, --max_tokens_per_micro_batch replaces it"
        )
    return accelerator


def set_up(config: Config, accelerator: Accelerator, sources: dict[str, str]) -> Setup:
    """Data, models, engine and folder, in this order. Raises Refusal; a new folder is made last."""
    with refusing("--rewards: "):
        load_rewards(config.rewards)
    data = load(config, sources)
    run, progress = Run(config, accelerator, data), Progress()
    judge = Judge(data.tokenizer, config)
    judge.check([*data.problems, *data.held_out])
    model = load_model(config.model).to(accelerator.device)
    sampling = Sampling(
        config.max_response_tokens, config.temperature, stop_token_ids=stop_tokens(data.tokenizer, model)
    )

    # The trainer allocates its memory first, and the engine takes its share of the rest.
    fsdp, kind = fsdp_requested(), ENGINES[config.engine]
    engine_model = copy.deepcopy(model) if fsdp and kind.needs_whole_model else model
    policy, reference, optimizer = Policy(model), None, None
    if not agrees_with_logits(policy):
        raise Refusal(f"{type(model).__name__} scales or caps its logits after the head: it cannot be trained here")
    if not config.eval_only:
        policy.share_prompts = shares_prompts(policy, data.prompt_lengths, config)
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        reference = copy.deepcopy(policy).requires_grad_(False) if config.kl_coef else None
        if fsdp:
            policy, reference = sharded(policy, accelerator), reference and sharded(reference, accelerator)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        allocate_moments(optimizer)
    precision = "bfloat16" if accelerator.mixed_precision == "bf16" else "float32"
    with refusing():
        engine = kind.from_config(engine_model, data.positions, precision, config)
    run.say(introduction(config, sources, data, policy, engine, accelerator))

    if config.resume:
        run.open()
        run.restore(progress, policy, optimizer, reference)
        engine.sync(model)
    run.say(f"  agreement   {check_engine(engine, policy, data, sampling, judge, config, accelerator)}\n")
    if not config.resume:
        run.open()
    if not fsdp:
        policy = accelerator.prepare(policy)  # DDP
    return Setup(data, judge, sampling, engine, policy, reference, optimizer, run, progress)  # type: ignore[arg-type]


def check_engine(
    engine: Engine, policy, data: Data, sampling: Sampling, judge: Judge, config: Config, accelerator: Accelerator
) -> str:
    """Compare the log-probs of engine and trainer on a few rollouts. Returns a sentence; raises Refusal.

    Small differences (bfloat16, other kernels) are what the truncated importance weight is for. Large ones mean that
    weights did not reach the engine, or that the two compute the architecture differently.
    """
    problems = (data.problems or data.held_out)[:4]
    longest = config.eval_max_response_tokens if config.eval_only else config.max_response_tokens
    short = dataclasses.replace(sampling, max_new_tokens=min(256, longest))
    engine.wake()
    rollouts, _ = roll_out(
        engine, problems, max(8, accelerator.num_processes), [*range(len(problems))], short, judge, accelerator
    )
    engine.sleep()
    batches = micro_batches(rollouts, config.max_tokens_per_micro_batch, policy.share_prompts, accelerator)
    score(policy, batches, "old_logp", config.temperature, accelerator)
    old, sampled = (torch.cat([getattr(r, name) for r in rollouts]) for name in ("old_logp", "engine_logp"))
    sums = torch.tensor([len(old), (old - sampled).abs().sum(), L.kl_k3(sampled, old).double().sum()])
    tokens, difference, kl = accelerator.reduce(sums.to(accelerator.device), "sum").tolist()
    exact = accelerator.mixed_precision == "no" and engine.precision == "float32"
    limit = config.max_engine_kl or (1e-4 if exact else 0.05)
    sentence = (
        f"|log π_trainer - log π_engine| {difference / tokens:.1e}, KL {kl / tokens:.1e}, over {tokens:.0f} tokens"
    )
    if not kl / tokens <= limit:
        raise Refusal(
            f"the engine does not sample the model that is trained: {sentence}; the limit of the KL is {limit:g}. Use "
            "--engine torch, or raise --max_engine_kl if this much is expected"
        )
    return sentence


if __name__ == "__main__":
    main()
