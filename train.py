"""BroRL, section 4.2: the training loop.

Read lab/loop.py first: the same nine stages in one short file and one process.

    python train.py                                    the tiny policy on a laptop's CPU, in minutes
    python train.py --recipe prorl                     the N = 16 baseline
    python train.py --model M --data D.jsonl --eval_data E.jsonl       your model; asks for the size of a step
    python train.py --eval_only --model M              evaluate a model, train nothing
    python train.py --resume --name NAME               continue a run that was killed
    accelerate launch train.py                         the same on several processes (docs/training.md)
    python train.py --help                             every setting, and the values of the recipes

A step has nine stages. `make_step` has 1 to 8 in order, and `train` calls it and adds 9:

    1  problems      in an order fixed by the seed                       trainer/progress.py: next_problems
    2  roll out      N responses per prompt, split over the ranks        trainer/rollouts.py: roll_out; rollout.py
    3  verify        reward, correctness and reason of each response     trainer/rollouts.py; verify.py
    4  select        keep prompts with 0 < #correct < N; draw more       loss.py: informative; `prompts_wanted`
                     until B are kept, at most --refill times B
    5  advantages    minus the group's mean, then whitened               loss.py: step_advantages
    6  log-probs     log π_old and log π_ref under the trainer           trainer/policy.py: write_log_probs
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
    wrapped       π_θ         the same weights as DDP or FSDP2 wraps them, to average gradients. Only stage 7 uses it
    ref_policy    π_ref       the `Policy` of the KL term, the reference policy
    old_logp      log π_old   log-probs of the policy before the step's first update

A response is one `Rollout` from stage 2 to stage 5; each stage fills in its result. Stages 6 and 7 work on a
`MicroBatch`, which has the distinct prompts and responses of some rollouts, and their log-probs end to end. `Outcomes`
has the verdicts of all ranks as (P, N) tensors, equal on every rank.

The paper leaves open, and this file decides:

  * a truncated response is judged like any other. `mask_truncated` of the objective leaves it out of the loss, as DAPO
    does, and out of every mean of stages 4 and 5;
  * B counts informative prompts. A step with more than B, or with fewer, trains on all of them at the same learning
    rate. AdamW moves the weights about as far with few prompts as with many, along a noisier gradient: a warning says
    so below B / 4;
  * a group's rollouts are dealt to the mini-batches at random;
  * a run has no warm-up, and AdamW's moments outlive a reset of the reference;
  * an update whose gradient is not finite is skipped, and a longer gradient is cut to MAX_GRAD_NORM. AdamW's weight
    decay is torch's default (trainer/start.py).

trainer/ has the plumbing: start.py builds the objects of a run (`Setup`), run.py has its folder.
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import dataclasses
import math
from contextlib import nullcontext
from statistics import NormalDist
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

import loss as L
from trainer.command_line import read_settings
from trainer.launch import fsdp_requested, start_accelerator
from trainer.metrics import Sums, step_metrics
from trainer.micro_batches import MicroBatch, micro_batches
from trainer.offload import on_device
from trainer.out_of_memory import advising
from trainer.outcomes import Outcomes, Rollout
from trainer.policy import log_probs, write_log_probs
from trainer.process import explained
from trainer.progress import Progress, seed_of
from trainer.rollouts import roll_out
from trainer.settings import Config
from trainer.start import Setup, set_up

MAX_GRAD_NORM = 1.0  # gradient clipping; not in the paper: verl's
CONFIDENCE = 0.9  # probability that one more round of generation yields enough informative prompts


def train(config: Config, accelerator: Accelerator, setup: Setup) -> None:
    """Section 4.2: step after step until the budget is spent."""
    policy, ref_policy, run, progress = setup.policy, setup.ref_policy, setup.run, setup.progress
    if progress.step == 0:
        run.log({"step": 0, "samples": 0} | evaluate(config, accelerator, setup), progress)
    for step in progress.steps(config):
        _, outcomes, kept, sums = make_step(step, config, accelerator, setup)  # 1-8

        # 9: reset the reference; log, evaluate, checkpoint
        progress.end_step(outcomes, kept, run.clock.seconds_of_slowest())
        metrics = step_metrics(progress, outcomes, kept) | sums.result()
        if ref_policy is not None and config.reference_reset_steps and step % config.reference_reset_steps == 0:
            ref_policy.load_state_dict(policy.state_dict())
        run.say_step(metrics, outcomes)
        if progress.due(config.eval_every, config):
            metrics |= evaluate(config, accelerator, setup)
        run.log(metrics, progress)
        if run.save_due(progress):
            run.save(progress, policy, setup.optimizer, ref_policy)
        progress.check_judged()
    run.finish(policy.model, setup.data.tokenizer)


def make_step(
    step: int, config: Config, accelerator: Accelerator, setup: Setup
) -> tuple[list[Rollout], Outcomes, Tensor, Sums]:
    """Stages 1 to 8. Returns this rank's rollouts, the outcomes, the kept prompts (P,), and sums of metrics.

    tools/which_n.py calls it too, at a learning rate of 0; run.clock.laps has the seconds.
    """
    policy, ref_policy, engine = setup.policy, setup.ref_policy, setup.engine
    problems, run, clock, progress = setup.data.problems, setup.run, setup.run.clock, setup.progress
    sampling, judge = setup.sampling, setup.judge
    n, temperature = config.rollouts_per_prompt, config.temperature
    clock.begin_step(step)
    judge.laps.clear()
    # 1-4: problems, roll out, verify, select; again until B prompts are informative or the bound is reached
    engine.wake()
    rollouts, outcomes = list[Rollout](), Outcomes.empty(n)
    while (count := prompts_wanted(outcomes, progress, len(problems), config)) > 0:
        chosen, seeds = progress.next_problems(problems, count, config.seed)  # 1
        more, found = roll_out(engine, chosen, n, seeds, sampling, judge, accelerator, len(outcomes))  # 2, 3
        rollouts, outcomes = rollouts + more, outcomes.followed_by(found)
    engine.sleep()
    kept = L.informative(outcomes.correct, outcomes.counted)  # 4: (P,)
    run.log_samples(rollouts, outcomes, kept, step)
    clock.lap("roll_out", judge.laps)

    sums = Sums(accelerator)
    if kept.any():
        # 5: advantages over all kept rollouts of all ranks, and the mini-batch of each rollout
        advantages = L.step_advantages(outcomes.reward, kept, outcomes.counted, setup.objective)  # (P, N)
        in_mini_batch = deal(~advantages.isnan(), config.updates_per_step, seed_of("mini-batches", config.seed, step))
        mini_batches = split(rollouts, advantages, in_mini_batch, config, policy.share_prompts, accelerator)

        # 6: log-probs under the trainer before the first update
        with on_device(ref_policy, accelerator.device):  # with --offload it is in host memory
            for mini_batch in mini_batches:
                entropy = write_log_probs(policy, mini_batch, "old_logp", temperature, accelerator)
                sums.add({"entropy": entropy})
                if ref_policy is not None:
                    write_log_probs(ref_policy, mini_batch, "ref_logp", temperature, accelerator)
        clock.lap("score")

        # 7: one optimizer step per mini-batch; its divisors count tokens and responses over all ranks
        for u, mini_batch in enumerate(tqdm(mini_batches, "updates", leave=False, delay=5, disable=None)):
            members = in_mini_batch == u  # (P, N), of all ranks
            tokens, responses = int(outcomes.length[members].sum()), int(members.sum())
            update(
                setup.wrapped, setup.optimizer, mini_batch, tokens, responses, setup.objective, config, accelerator,
                sums,
            )  # fmt: skip
        clock.lap("update")

        # 8: sync; the torch engine samples from policy.model itself, vLLM loads its weights (asleep: when it wakes)
        engine.sync(policy.model)
    return rollouts, outcomes, kept, sums


# ------------------------------------------------------------------------------------------------- stages 1 to 5


def prompts_wanted(outcomes: Outcomes, progress: Progress, available: int, config: Config) -> int:
    """Return how many prompts the next round draws, so that B are informative with probability 0.9. 0: no more rounds.

    A prompt is informative with probability p, measured over the last steps. k more informative prompts need about

        (k + z sqrt(k (1 - p))) / p    prompts, z = 1.28

    This is the 0.9 quantile of the negative binomial (mean k / p, variance k (1 - p) / p²) by the normal approximation.
    A run's first round draws B prompts. A step draws at most --refill times B, each of the `available` problems at most
    once, and stops if the judge timed out or crashed on every response.
    """
    informative = int(L.informative(outcomes.correct, outcomes.counted).sum())
    missing = config.prompts_per_step - informative
    room = min(int(config.refill * config.prompts_per_step), available) - len(outcomes)
    if missing <= 0 or room <= 0 or outcomes.judge_failed_on_all:
        return 0
    tried = progress.tried + len(outcomes)
    p = max(progress.informative + informative, 0.5) / tried if tried else 1.0  # 0.5: none was informative yet
    wanted = (missing + NormalDist().inv_cdf(CONFIDENCE) * math.sqrt(missing * (1 - p))) / p
    return min(room, max(missing, math.ceil(wanted)))


def deal(trained_on: Tensor, updates: int, seed: int) -> Tensor:
    """Assign each rollout to a mini-batch at random. Returns its u, (P, N): 0 ... U - 1; -1 if it is not trained on.

    trained_on: (P, N) bool. Sizes differ by at most one. Every rank computes the same assignment.
    """
    in_mini_batch = torch.full(trained_on.shape, -1)
    count = int(trained_on.sum())
    in_mini_batch[trained_on] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) % updates
    return in_mini_batch


def split(
    rollouts: list[Rollout], advantages: Tensor, in_mini_batch: Tensor, config: Config, share_prompts: bool,
    accelerator: Accelerator,
) -> list[list[MicroBatch]]:  # fmt: skip
    """Write the advantages into this rank's rollouts. Returns the micro-batches of each of the U mini-batches.

    advantages, in_mini_batch: (P, N). Stages 6 and 7 use the same micro-batches.
    """
    a, u_of = advantages.tolist(), in_mini_batch.tolist()
    dealt: list[list[Rollout]] = [[] for _ in range(config.updates_per_step)]
    for r in rollouts:
        r.advantage, u = a[r.prompt_index][r.number], u_of[r.prompt_index][r.number]
        if u >= 0:
            dealt[u].append(r)
    budget = config.max_tokens_per_micro_batch
    return [micro_batches(part, budget, share_prompts, accelerator) for part in dealt]


# -------------------------------------------------------------------------------------------------------- stage 7


def update(
    wrapped, optimizer, mini_batch: list[MicroBatch], tokens: int, responses: int, objective: L.Objective,
    config: Config, accelerator: Accelerator, sums: Sums,
) -> None:  # fmt: skip
    """Make one optimizer step, or skip it if the gradient is not finite or no rollout is left.

    mini_batch: this rank's micro-batches. tokens, responses: of the mini-batch on all ranks.
    """
    if not tokens:  # fewer rollouts than mini-batches
        return
    wrapped.train(config.gradient_checkpointing)  # transformers recomputes in train mode only; dropout is 0 in both
    fsdp = fsdp_requested()
    for i, micro_batch in enumerate(mini_batch):
        last = i + 1 == len(mini_batch)
        # DDP averages the gradients of all ranks after the last micro-batch, FSDP2 after each
        with nullcontext() if last or fsdp else accelerator.no_sync(wrapped):
            loss = loss_of(wrapped, micro_batch, tokens, responses, objective, config, accelerator, sums)
            (loss * accelerator.num_processes).backward()  # the ranks' gradients are averaged, and we want their sum
    sums.updates, sums.tokens = sums.updates + 1, sums.tokens + tokens
    norm: Any = torch.nn.utils.clip_grad_norm_(wrapped.parameters(), MAX_GRAD_NORM)
    norm = float(norm.full_tensor() if fsdp else norm)
    finite = math.isfinite(norm)
    if finite:
        optimizer.step()
    optimizer.zero_grad()
    sums.add({"updates_skipped": not finite})
    if finite:
        sums.add({"grad_norm": norm, "grad_norm_max": norm}, maxima={"grad_norm_max"})


def loss_of(
    wrapped, micro_batch: MicroBatch, tokens: int, responses: int, objective: L.Objective, config: Config,
    accelerator: Accelerator, sums: Sums,
) -> Tensor:  # fmt: skip
    """Return a micro-batch's share of section 3.1's loss. tokens, responses: its divisors, of the mini-batch."""
    logp, _ = log_probs(wrapped, micro_batch, config.temperature, accelerator)  # (T,)
    if not micro_batch.rollouts:  # another rank has one micro-batch more
        return logp.sum()  # 0, with a gradient of 0
    loss, metrics = L.policy_loss(micro_batch.tokens(logp), tokens, responses, objective, config.kl_coef)
    sums.add({"loss": loss.detach()} | metrics, L.MAXIMA, L.MINIMA)
    return loss


# -------------------------------------------------------------------------------------------------------- stage 9


def evaluate(config: Config, accelerator: Accelerator, setup: Setup) -> dict[str, float]:
    """Appendix D: k responses to every held-out problem, with the same seeds at every evaluation."""
    held_out, run = setup.data.held_out, setup.run
    run.clock.begin("evaluate")
    sampling = dataclasses.replace(
        setup.sampling, max_new_tokens=config.eval_max_response_tokens, temperature=config.eval_temperature,
        top_p=config.eval_top_p,
    )  # fmt: skip
    seeds = [seed_of("evaluation", i) for i in range(len(held_out))]
    setup.engine.wake()
    rollouts, outcomes = roll_out(
        setup.engine, held_out, config.eval_samples, seeds, sampling, setup.judge, accelerator
    )
    setup.engine.sleep()
    run.clock.lap("evaluate")
    return run.log_evaluation(rollouts, outcomes, setup.progress)


# ------------------------------------------------------------------------------------------------------ the start


def main() -> None:
    """Start a run from the command line: train, or only evaluate."""
    with explained(code=2):
        config, origins = read_settings((__doc__ or "").partition("\n")[0])
        accelerator = start_accelerator(config)
        with advising(config, accelerator):
            setup = set_up(config, accelerator, origins)
    hint = "" if config.eval_only else f"--resume --name {config.name} continues the run"
    with explained(code=1, after_interrupt=hint), advising(config, accelerator, setup.run.clock):
        if config.eval_only:
            evaluate(config, accelerator, setup)
        else:
            train(config, accelerator, setup)
        setup.close(accelerator)


if __name__ == "__main__":
    main()
