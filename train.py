"""BroRL, section 4.2: the training loop.

Read lab/loop.py first: the same nine stages in one short file and one process.

    python train.py                                    the embedded policy on a laptop's CPU, in minutes
    python train.py --recipe prorl                     the N = 16 baseline
    python train.py --model M --data D.jsonl --eval_data E.jsonl
    python train.py --eval_only --model M              score a model, train nothing
    python train.py --resume --name NAME               continue a run that was killed
    accelerate launch train.py                         the same on several processes (docs/training.md)
    python train.py --help                             every setting and its default

A step has nine stages, and `train` is these nine in order:

    1  problems      in an order fixed by the seed                       trainer/progress.py: next_problems
    2  roll out      N responses per prompt, split over the ranks        trainer/rollouts.py: roll_out; rollout.py
    3  verify        reward, correctness and reason of each response     trainer/rollouts.py: Judge; verify.py
    4  select        keep prompts with 0 < #correct < N; draw more       loss.py: informative; `prompts_wanted`
                     until B are kept, at most --refill times B
    5  advantages    minus the group's mean, then whitened               loss.py: group_advantages, whiten
    6  score         log π_old and log π_ref under the trainer           trainer/policy.py: score
    7  update        U mini-batches, one optimizer step each             `update`, `loss_of`; loss.py: policy_loss
    8  sync          the new weights into the engine                     rollout.py
    9  reset the reference when due; log, evaluate, checkpoint           trainer/run.py

    name          symbol      meaning
    P             P           prompts that the step drew
    n, B          N, B        rollouts per prompt; target number of informative prompts (--prompts_per_step)
    U                         mini-batches of a step (--updates_per_step), one optimizer step each; u = 0 ... U - 1
    kept                      (P,) bool: the informative prompts. All of them are trained on, even if they exceed B
    in_mini_batch             (P, N) the u of the mini-batch that each rollout is in; -1: it is not trained on
    mini_batches              this rank's rollouts of each mini-batch, as a list of micro-batches
    policy        π_θ         the `Policy` that is trained; policy.model is its transformers model
    ddp_policy    π_θ         the same weights as DDP wraps them, so that gradients are averaged. Only stage 7 uses it
    reference     π_ref       the `Policy` of the KL term
    old_logp      log π_old   log-probs of the policy before the step's first update

A response is one `Rollout` from stage 2 to stage 5; each stage fills in its result. Stages 6 and 7 work on a
`MicroBatch`, which has the tokens and log-probs of some rollouts end to end. `Outcomes` has the verdicts of all ranks
as (P, N) tensors, equal on every rank.

The paper leaves open, and this file decides: a truncated response is judged like any other (--truncated mask leaves it
out of the loss, as DAPO does); B counts informative prompts, and the learning rate stays the same if a step has more
than B; a group's rollouts are spread over the mini-batches at random; a run has no warm-up; AdamW's moments outlive a
reset of the reference; an update whose gradient is not finite is skipped. trainer/ has the plumbing: start.py builds
what a run works with, run.py has its folder.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from statistics import NormalDist
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

import loss as L
from trainer.metrics import Sums, step_metrics
from trainer.policy import MicroBatch, fsdp_requested, log_probs, micro_batches, score
from trainer.progress import Progress
from trainer.rollouts import Outcomes, Rollout, roll_out, seed_of
from trainer.settings import Config, read_settings
from trainer.start import Setup, explained, set_up, start_accelerator

CONFIDENCE = 0.9  # probability that one more round of generation yields enough informative prompts
EVAL_SEED = 1234


def train(config: Config, accelerator: Accelerator, setup: Setup, measure: Callable = lambda *_: None) -> None:
    """Section 4.2: step after step until the budget is spent. measure(step, rollouts, outcomes) comes after stage 4."""
    data, judge, sampling, engine, policy, ddp_policy, reference, optimizer, run, progress = setup
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
            in_mini_batch = deal(trained, config.updates_per_step, seed_of(config.seed, step))  # (P, N)
            mini_batches = split(rollouts, advantages, in_mini_batch, config, policy.share_prompts, accelerator)

            # 6: log-probs under the trainer before the first update
            for mini_batch in mini_batches:
                sums.add({"entropy": score(policy, mini_batch, "old_logp", temperature, accelerator)})
                if reference is not None:
                    score(reference, mini_batch, "ref_logp", temperature, accelerator)
            run.lap("score")

            # 7: one optimizer step per mini-batch; the denominator counts tokens over all ranks
            for u, mini_batch in enumerate(mini_batches):
                tokens = int(outcomes.length[in_mini_batch == u].sum())
                update(ddp_policy, optimizer, mini_batch, tokens, config, accelerator, sums)
            run.lap("update")

            # 8: sync; the torch engine shares the policy's weights, vLLM loads them (asleep: when it wakes)
            engine.sync(policy.model)

        # 9: reset the reference; log, evaluate, checkpoint
        progress.end_step(outcomes, run.seconds())
        metrics = step_metrics(progress, outcomes) | sums.result()
        if reference is not None and config.reference_reset_steps and step % config.reference_reset_steps == 0:
            reference.load_state_dict(policy.state_dict())
        run.say_step(metrics, outcomes)
        if progress.due(config.eval_every, config):
            metrics |= evaluate(config, accelerator, setup)
        run.log(metrics, progress)
        if progress.due(config.save_every, config):
            run.save(progress, policy, optimizer, reference)
        progress.check()
    run.finish(policy.model, data.tokenizer)


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


def deal(trained: Tensor, updates: int, seed: int) -> Tensor:
    """Assign each rollout to a mini-batch at random. Returns its u, (P, N): 0 ... U - 1; -1 if it is not trained on.

    trained: (P, N) bool. Sizes differ by at most one. Every rank computes the same assignment.
    """
    in_mini_batch = torch.full(trained.shape, -1)
    count = int(trained.sum())
    in_mini_batch[trained] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) % updates
    return in_mini_batch


def split(
    rollouts: list[Rollout], advantages: Tensor, in_mini_batch: Tensor, config: Config, share_prompts: bool,
    accelerator: Accelerator,
) -> list[list[MicroBatch]]:  # fmt: skip
    """Write the advantages into this rank's rollouts. Returns the micro-batches of each of the U mini-batches.

    advantages, in_mini_batch: (P, N). Stages 6 and 7 use the same micro-batches.
    """
    a, number = advantages.tolist(), in_mini_batch.tolist()
    mini_batches: list[list[Rollout]] = [[] for _ in range(config.updates_per_step)]
    for r in rollouts:
        r.advantage, u = a[r.prompt_index][r.number], number[r.prompt_index][r.number]
        if u >= 0:
            mini_batches[u].append(r)
    budget = config.max_tokens_per_micro_batch
    return [micro_batches(mini_batch, budget, share_prompts, accelerator) for mini_batch in mini_batches]


# -------------------------------------------------------------------------------------------------------- stage 7


def update(
    ddp_policy, optimizer, mini_batch: list[MicroBatch], tokens: int, config: Config, accelerator: Accelerator,
    sums: Sums,
) -> None:  # fmt: skip
    """Make one optimizer step, or skip it if the gradient is not finite or no rollout is left.

    mini_batch: this rank's micro-batches. tokens: ΣT of the mini-batch, over all ranks.
    """
    if not tokens:  # fewer rollouts than mini-batches
        return
    ddp_policy.train(config.gradient_checkpointing)  # transformers recomputes in train mode only; there is no dropout
    fsdp = fsdp_requested()
    for i, micro_batch in enumerate(mini_batch):
        last = i + 1 == len(mini_batch)
        # DDP adds up the gradients of all ranks after the last micro-batch, FSDP2 after each
        with nullcontext() if last or fsdp else accelerator.no_sync(ddp_policy):
            loss = loss_of(ddp_policy, micro_batch, tokens, config, accelerator, sums)
            (loss * accelerator.num_processes).backward()  # the ranks' gradients are averaged, and we want their sum
    sums.updates, sums.tokens = sums.updates + 1, sums.tokens + tokens
    norm: Any = torch.nn.utils.clip_grad_norm_(ddp_policy.parameters(), config.max_grad_norm)
    norm = float(norm.full_tensor() if fsdp else norm)
    finite = math.isfinite(norm)
    if finite:
        optimizer.step()
    optimizer.zero_grad()
    sums.add({"updates_skipped": not finite})
    if finite:
        sums.add({"grad_norm": norm, "grad_norm_max": norm}, maxima={"grad_norm_max"})


def loss_of(ddp_policy, batch: MicroBatch, tokens: int, config: Config, accelerator: Accelerator, sums: Sums):
    """Return a micro-batch's share of section 3.1's loss. tokens: ΣT, of the whole mini-batch on all ranks."""
    logp, _ = log_probs(ddp_policy, batch, config.temperature, accelerator)  # (T,)
    if not batch.rollouts:
        return logp.sum()  # 0, with a gradient of 0: other ranks have one micro-batch more
    assert batch.old_logp is not None, "stage 6 comes first"
    loss, metrics = L.policy_loss(
        logp, batch.old_logp, batch.engine_logp, batch.ref_logp, batch.advantages, batch.lengths, tokens,
        clip_low=config.clip_low, clip_high=config.clip_high, tis_cap=config.tis_cap, kl=config.kl,
        kl_coef=config.kl_coef,
    )  # fmt: skip
    sums.add({"loss": loss.detach()} | metrics, L.MAXIMA, L.MINIMA)
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
    """Start a run from the command line: train, or only evaluate."""
    with explained(code=2):
        config, sources = read_settings((__doc__ or "").partition("\n")[0])
        accelerator = start_accelerator(config)
        setup = set_up(config, accelerator, sources)
    hint = "" if config.eval_only else f"--resume --name {config.name} continues the run"
    with explained(code=1, after_interrupt=hint):
        if config.eval_only:
            evaluate(config, accelerator, setup)
        else:
            train(config, accelerator, setup)
        setup.close(accelerator)


if __name__ == "__main__":
    main()
