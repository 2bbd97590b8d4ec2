"""BroRL, section 4.2: the training loop.

    python train.py                                       the embedded policy, on a laptop's CPU, in minutes
    python train.py --recipe prorl                        the N = 16 baseline it is compared with
    python train.py --model M --data D.jsonl --eval_data E.jsonl     your model, your problems
    python train.py --rewards R.py --data D.jsonl ...     your reward (docs/problems.md)
    python train.py --engine vllm --name vllm             rollouts by vLLM (the default where it and a GPU are)
    python train.py --eval_only                           score a policy, train nothing: runs/eval-MODEL/
    python train.py --preflight                           is this worth training, and which N: runs/preflight-MODEL/
    accelerate launch train.py                            any of these on several processes (docs/training.md)
    python train.py --help                                every setting, with its default

One step, and the order of `train`:

    1  problems        prompts in an order fixed by the seed          trainer/progress.py: Cursor
    2  roll out        N responses per prompt                         trainer/rollouts.py: roll_out; rollout.py
    3  verify          a reward and a reason for each                 trainer/rollouts.py: Judge; verify.py
    4  dynamic sample  keep 0 < #correct < N; refill until B prompts  `dynamic_sampling` here; loss.py: informative
    5  advantages      group mean, then mean and std over the step    loss.py: group_advantages, whiten
    6  score           old and reference log-probs under the trainer  trainer/batch.py: score_before_update
    7  update          U mini-batches, one optimizer step each        `update` here; loss.py: policy_loss
    8  sync            the weights into the engine                    engines/protocol.py: Engine.sync
    9  reset the reference; log, evaluate, checkpoint                 here; trainer/run.py, checkpoint.py

    name        symbol      meaning
    P                       prompts: those that are drawn in stages 1 to 4, those that are kept from 5 on
    N, B        N, B        rollouts per prompt; prompts that a step wants to keep
    W                       processes (ranks); each has a part of every group (`parts_of_rank`)
    kept                    the groups, a prompt's N rollouts each, that dynamic sampling keeps
    policy      π_θ         what is trained; `plain` is it without DDP's wrapping
    reference   π_ref       what the KL term holds it to
    old_logp    log π_old   of the policy before the step's first update

What is not in this file is how it is made to work: trainer/ has settings and checks, the policy's forward pass, the
batch, the run's folder, memory, processes, and what is printed. Two runs with the same settings write the same
metrics.jsonl on one machine; whatever a clock says is in timing.jsonl.
"""

from __future__ import annotations

import trainer  # noqa: F401  # first: torch reads the environment when it is imported

# isort: split
import math
import sys
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from torch import Tensor

import loss as L
from trainer.batch import Batch
from trainer.errors import failures_as_sentences, refusals_as_sentences, shut_down
from trainer.metrics import Answers, UpdateMetrics, none_judged, of_step, score, too_few, troubles
from trainer.processes import idle, passes, reduced_later, seed_of, total
from trainer.progress import Progress, Stages, peak_gib
from trainer.report import Screen
from trainer.rollouts import Judge, Part, Rolled, StepRollouts, TrainingGroups, roll_out, round_width
from trainer.settings import Config, command_line
from trainer.start import Setup, set_up, start_accelerator

# ------------------------------------------------------------------------------------------------------------- the loop


def train(config: Config, accelerator: Accelerator, setup: Setup) -> None:
    """Section 4.2, step after step until a budget is spent: the stages are numbered as at the top of this file."""
    policy, reference, optimizer, engine = setup.policy, setup.reference, setup.optimizer, setup.engine
    run, progress, probe, noise = setup.run, setup.progress, setup.probe, setup.noise
    plain = accelerator.unwrap_model(policy)  # without DDP's wrapping, which waits for the other processes
    progress.start()
    screen = Screen(config, progress, accelerator.is_main_process)
    for name, scores in run.evaluations().items():  # those of before, where the run was resumed
        screen.evaluated(name, scores)
    if not progress.step:
        scores, answers = assess(config, accelerator, setup, screen, Stages(screen.doing))
        run.log({"step": 0, "samples": 0} | scores, {}, answers)

    while not progress.spent(config):
        step, stage = progress.begin_step(), Stages(screen.doing)

        # 1-4: problems, roll out, verify, dynamic sampling
        with stage("roll_out"):
            kept, metrics = roll_out_until_informative(config, accelerator, setup, screen)
        if noise and noise.due(step):
            with stage("noise"):
                metrics |= noise.measure(policy, plain, kept, metrics["pass_rate"], step)
        if probe and len(kept):
            with stage("mass_balance"):
                probe.predict(kept.rolled)

        if len(kept):
            # 5: advantages, over all trajectories of the step; each process trains on the rollouts that it drew
            advantages = L.group_advantages(kept.outcomes.rewards.float(), config.advantage)  # (P, N)
            advantages = L.whiten(advantages, L.moments(advantages))
            batch = kept.batch(advantages, mini_batch_of(kept.outcomes.lengths, config, step), accelerator.device)
            kept.rolled.clear()  # the batch has them now: as Python lists they take some 80 bytes a token

            # 6: score under the trainer before the first update
            with stage("score"):
                entropy = batch.score_before_update(plain, reference, config, accelerator)

            # 7: update
            with stage("update"):
                batch.share_prompts(plain, config, config.mini_batches_of_a_prompt)
                metrics |= update(policy, optimizer, batch, config, accelerator, progress)
                metrics["entropy"] = total(entropy, accelerator) / metrics["tokens"]
            if probe:
                with stage("mass_balance"):
                    metrics |= probe.compare(batch, step)

            # 8: sync
            engine.sync(plain.model)
            del batch  # its memory is the engine's now

        # 9: reset the reference when due; log, evaluate, checkpoint
        metrics |= reset_reference_when_due(step, reference, plain, config)
        log_evaluate_checkpoint(metrics, stage, config, accelerator, setup, screen)
    screen.close()
    run.finish(plain.model, setup.tokenizer)


# ---------------------------------------------------------------------------------------------------- stages 1 to 4


def roll_out_until_informative(
    config: Config, accelerator: Accelerator, setup: Setup, screen: Screen
) -> tuple[TrainingGroups, dict[str, float]]:
    """Dynamic sampling (section 3.1): stages 1 to 3 for so many prompts that B of them are informative with probability
    `round_confidence`; again for the missing ones, until B are informative or `refill` times B prompts were tried.

    Returns the groups to train on, and the step's first metrics, over all that was generated.
    """
    b, n = config.prompts_per_step, config.rollouts_per_prompt
    cursor, run, progress = setup.cursor, setup.run, setup.progress
    start, drawn = cursor.position, StepRollouts(setup.problems, setup.prompts)
    setup.engine.wake()
    while (missing := b - drawn.informative) > 0 and (room := int(config.refill * b) - len(drawn)) > 0:
        # 1: problems
        rate = progress.pass_rate(config, len(drawn), drawn.informative)
        width = round_width(missing, rate, config.round_confidence)
        at = cursor.position
        problems = cursor.take(min(room, width))
        # 2, 3: roll out, verify
        rolled, outcomes = roll_out(
            setup.engine,
            Judge(setup.tokenizer, [setup.problems[i] for i in problems], config.judging),
            [setup.prompts[i] for i in problems],
            n,
            [seed_of(config.seed, progress.step, at + place) for place in range(len(problems))],
            parts_of_rank(len(problems), n, accelerator.process_index, accelerator.num_processes),
            accelerator,
            show=screen.live,
            stop_token_ids=setup.stop_tokens,
            **config.sampling,
        )
        drawn.add(problems, rolled, outcomes)
    peak_gib(accelerator.device)  # of a GPU it must be asked while the engine is awake
    setup.engine.sleep()
    places, used = dynamic_sampling(drawn.outcomes.correct, b)  # 4
    kept = drawn.take(places)
    cursor.position = start + used  # back over the surplus
    progress.note_drawn(len(drawn), drawn.informative, len(drawn) * n)
    run.sample(progress.step, drawn)
    metrics = {"step": progress.step, "samples": progress.samples} | of_step(drawn, len(kept), used)
    if len(kept) < b:
        screen.say(progress.step, too_few(metrics, len(drawn), b))
    return kept, metrics


def dynamic_sampling(correct: Tensor, b: int) -> tuple[Tensor, int]:
    """The places of the first B informative prompts, or of fewer, and how many prompts it took to find them.

    correct: (P, N) of all prompts that the step drew, in the order of the problems. The next step begins behind the
    last prompt that this step kept: it draws the surplus again, with other seeds.
    """
    places = L.informative(correct).nonzero().squeeze(1)[:b]
    return places, int(places[-1]) + 1 if len(places) == b else len(correct)


def parts_of_rank(prompts: int, n: int, rank: int, world: int) -> list[Part]:
    """Which rollouts of a round's prompts a rank draws, verifies and trains on, by a fixed rule.

    The N rollouts of prompt p are cut into W neighbouring blocks of N / W. The first block belongs to rank p·N mod W,
    the next one to the next rank. Where W does not divide N, the first N mod W blocks are larger by one rollout; with
    N < W there are N blocks of one rollout. So every rank has about N / W rollouts of every prompt: of the long and the
    short ones, the easy and the hard ones. A wide group makes the ranks even by itself, without a queue: at N = 512 the
    fullest of 64 ranks has 1.04 times the mean tokens (bench/simulated_ranks.py).
    """
    size, extra = divmod(n, world)
    turns = [(p, (rank - p * n) % world) for p in range(prompts)]  # this rank's turn among those of prompt p
    return [Part(p, t * size + min(t, extra), size + (t < extra)) for p, t in turns if size or t < extra]


def mini_batch_of(lengths: Tensor, config: Config, step: int) -> Tensor:
    """The mini-batch of each rollout, (P, N) numbers below U, from the lengths of the responses, (P, N).

    --mini_batches rollouts: the step's rollouts stand in a row, group by group and by length within a group. Each U
    neighbours go to the U mini-batches at random, one to each. So all mini-batches have as many rollouts, to one, and
    of each group and each length about as many.
    --mini_batches prompts: whole groups, in a random order. Neither knows of ranks: the gradient is the same on any W.
    """
    (p, n), u = lengths.shape, config.updates_per_step
    rng = torch.Generator().manual_seed(seed_of(config.seed, step))
    if config.mini_batches == "prompts":
        numbers = torch.empty(p, dtype=torch.long)
        for i, groups in enumerate(torch.randperm(p, generator=rng).tensor_split(u)):
            numbers[groups] = i
        return numbers[:, None].expand(p, n).clone()
    by_length = lengths.argsort(dim=-1, stable=True) + torch.arange(p)[:, None] * n
    order = torch.rand(-(-p * n // u), u, generator=rng).argsort(-1)
    numbers = torch.empty(p * n, dtype=torch.long)
    numbers[by_length.flatten()] = order.flatten()[: p * n]
    return numbers.view(p, n)


# ----------------------------------------------------------------------------------------------------------- stage 7


def update(
    policy, optimizer, batch: Batch, config: Config, accelerator: Accelerator, progress: Progress
) -> dict[str, float]:
    """One pass over the step's rollouts in U mini-batches, each one optimizer step (section 4.2.1).

    An update is left out if its gradient is not finite, or, with --skip_spikes, if it is a spike. Returns the metrics.
    """
    world, tally = accelerator.num_processes, UpdateMetrics(accelerator)
    policy.train(config.gradient_checkpointing)  # transformers recomputes in train mode only; dropout is 0 (Policy)
    for rows in batch.mini_batches(config.updates_per_step):
        tokens = total(int(batch.response_lengths[rows].sum()), accelerator)  # of this optimizer step, everywhere
        if not tokens:
            continue
        micro_batches = batch.micro_batches(rows, config.max_tokens_per_micro_batch)
        count = passes(max(1, len(micro_batches)), accelerator)  # a process without rollouts runs one idle pass
        for i in range(count):
            with nullcontext() if i == count - 1 else reduced_later(policy, accelerator):
                if i >= len(micro_batches):  # nothing left here, but the other processes wait for a gradient
                    accelerator.backward(idle(policy, accelerator.device))
                    continue
                loss, metrics = loss_of(policy, batch, micro_batches[i], tokens, config)
                accelerator.backward(loss * world)  # data-parallel averages gradients, and we want their sum
            tally.micro_batch(loss, metrics)
        norm = accelerator.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        spiked = progress.is_spike(norm, config.spike)
        applied = math.isfinite(norm) and not (spiked and config.skip_spikes)
        progress.warm_up(optimizer, config)
        if applied:
            optimizer.step()
        optimizer.zero_grad()
        progress.note_norm(norm)
        tally.update(norm, spiked, applied)
    tokens = total(int(batch.response_lengths.sum()), accelerator)
    return tally.result(tokens, optimizer.param_groups[0]["lr"] if config.warmup_updates else None)


def loss_of(policy, batch: Batch, rows: Tensor, tokens: float, config: Config) -> tuple[Tensor, dict[str, Tensor]]:
    """`loss.policy_loss` of a micro-batch: its share of a mini-batch of so many `tokens`, over all processes."""
    logp, _ = policy(*batch.inputs(rows, config.temperature))
    inside = batch.inside(rows)
    return L.policy_loss(
        logp,
        batch.old_logp[rows][inside],
        batch.engine_logp[rows][inside],
        None if batch.ref_logp is None else batch.ref_logp[rows][inside],
        batch.advantages[rows],
        batch.response_lengths[rows],
        tokens,
        **config.loss,
    )


# ----------------------------------------------------------------------------------------------------------- stage 9


def reset_reference_when_due(step: int, reference, plain, config: Config) -> dict[str, int]:
    """Section 3.1: every so many steps the reference becomes the policy, and the KL term starts from 0."""
    if reference is None or not config.reference_reset_steps or step % config.reference_reset_steps:
        return {}
    reference.load_state_dict(plain.state_dict())
    return {"reference_reset": 1}


def log_evaluate_checkpoint(
    metrics: dict[str, float], stage: Stages, config: Config, accelerator: Accelerator, setup: Setup, screen: Screen
) -> None:
    """What a step leaves: its lines, scores and a checkpoint when due."""
    run, progress, step = setup.run, setup.progress, setup.progress.step
    timing = stage.timing(progress) | {"peak_gib": peak_gib(accelerator.device)} | setup.engine.facts()
    if setup.noise and metrics["prompts"]:
        timing["prompt_cost"] = setup.noise.prompt_cost(stage.seconds, setup.prompts, metrics["response_tokens"])
    answers = None
    if progress.evaluates(config):
        scores, answers = assess(config, accelerator, setup, screen, stage)
        metrics |= scores
    run.log(metrics, {"step": step} | timing | stage.seconds, answers)
    for sentence in troubles(metrics, progress, config):
        screen.say(step, sentence)
    screen.stepped(metrics, timing["samples_per_second"])
    progress.check_health(config, judged=not none_judged(metrics))
    if progress.saves(config):
        began = progress.tick()
        run.checkpoints.save(step, config.keep_checkpoints)
        progress.note_saved(began)


def assess(
    config: Config, accelerator: Accelerator, setup: Setup, screen: Screen, stage: Stages
) -> tuple[dict[str, float], Answers]:
    """Evaluate, show the row, keep some responses to read; the scores as metrics, and what they are scores of."""
    step = setup.progress.step
    with stage("evaluate"):
        answers, rolled = evaluate(config, accelerator, setup, screen.live)
    setup.run.write_samples(setup.run.sample_evaluation(step, rolled))
    scores = score(answers)
    screen.evaluated(f"step {step}", scores)
    return {f"eval/{name}": x for name, x in scores.items()}, answers


def evaluate(config: Config, accelerator: Accelerator, setup: Setup, show: bool = True) -> tuple[Answers, list[Rolled]]:
    """Appendix D: k responses to every problem, a part of them by each process.

    Returns the outcomes of all processes, in the order of the problems, and the responses of this one.
    """
    count = len(setup.held_out)
    setup.engine.wake()
    rolled, outcomes = roll_out(
        setup.engine,
        Judge(setup.tokenizer, setup.held_out, config.judging),
        setup.held_out_prompts,
        config.eval_samples,
        [seed_of(config.eval_seed, place) for place in range(count)],
        parts_of_rank(count, config.eval_samples, accelerator.process_index, accelerator.num_processes),
        accelerator,
        show=show and accelerator.is_main_process,
        stop_token_ids=setup.stop_tokens,
        **config.eval_sampling,
    )
    setup.engine.sleep()
    return Answers.of(outcomes), rolled


# ---------------------------------------------------------------------------------------------------------- the program


def main(probe: type | None = None) -> None:
    """probe: who answers --log_mass_balance, in place of trainer/probe.py; evidence/exact_probe.py has an exact one."""
    about = (__doc__ or "").split("\n\n")[0] + " " + (Config.__doc__ or "")
    config, given = command_line(about)
    with refusals_as_sentences():
        accelerator = start_accelerator(config)
        setup = set_up(config, accelerator, given, probe)
    with failures_as_sentences(setup.run, config, accelerator):
        if config.eval_only:
            setup.run.report(*evaluate(config, accelerator, setup, show=sys.stderr.isatty()))
        elif config.preflight:
            from trainer.preflight import preflight  # imported where it is asked for

            preflight(config, accelerator, setup, parts_of_rank, mini_batch_of, update)
        else:
            train(config, accelerator, setup)
    shut_down(setup.engine, accelerator)


if __name__ == "__main__":
    main()
