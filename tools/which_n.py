"""Section 4.2 before a run: which N, rollouts per prompt, has the least noise in the same time, for a given B?

    python -m tools.which_n                                      the embedded policy, half a minute on 2 cores
    python -m tools.which_n --model M --data D --prompts_per_step 32
    accelerate launch -m tools.which_n --model M --data D        on several processes
    python -m tools.which_n --log_noise 5 [settings of a run]    train, and measure V_w / V_b every 5 steps

All settings of train.py work too. Without --log_noise nothing is trained: the program times the stages of a step
at several N, computes gradients of sampled rollouts, and ends with a best guess and how sure it is.

N rollouts of a prompt estimate the gradient of p, its probability of a correct response. N changes the noise of this
estimate, not its mean. If a step rolls out B prompts N times each, the trace of its covariance is

    noise(N, B) ≈ (V_b + V_w / (N - 1)) / B

    name here   symbol       meaning
    mean2       |ḡ|²         g_x = ∇p_x of prompt x, ḡ its mean over prompts
    between     V_b          E|g_x|² - |ḡ|²: how much prompts differ
    within      V_w          how much the rollouts of a prompt differ: the variance of (R - p) ∇log π(y), mean over x
    ratio       V_w / V_b    measured as V_b / V_w with its standard error (jackknife over prompts)
    kept        K_N          P(0 < #correct < N), mean over prompts
    seconds     t(N)         of one drawn prompt: roll_out(N) + K_N (score(N) + update(N))

In the same time a small N takes more steps. The mean of their gradients has the noise

    noise(N, B) x seconds of a step ∝ (V_b + V_w / (N - 1)) t(N)

B decides t(N): B prompts share U optimizer steps, and few rollouts do not fill a processor.
Two halves of a group, n rollouts each with their own mean as the baseline, give two independent, unbiased estimates:

    h = 1/(n - 1) Σ_i (R_i - R̄_h) ∇log π(y_i),   E[h] = g_x,   E[h_0 · h_1] = |g_x|²,   E|h_0 - h_1|² / 2 = Var(h)

Var(h) = V_w / n + (|g_x|² + p(1-p) E|∇log π|²) / (n (n - 1)), and the law leaves out a share of order 1/N. A group that
dynamic sampling drops has h_0 = h_1 = 0 and counts as 0. The law is about the advantages before whitening and clipping,
and about the policy as it is.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

import brorl
import loss as L
import train
from trainer.metrics import Sums
from trainer.policy import Policy, fsdp_requested, log_probs, micro_batches, score
from trainer.report import short
from trainer.rollouts import Outcomes, Rollout, roll_out, seed_of
from trainer.run import write
from trainer.settings import TINY, Config, Refusal, read_settings
from trainer.start import Setup, explained, set_up, start_accelerator
from verify import REASONS

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # N of the table
TIMED = (4, 16, 64)  # N that are timed, besides the configured N
SAMPLED = (64, 16, 4)  # rollouts of a prompt in the sample: the first that leaves time for FEW prompts
TIMING = 0.4  # share of --max_minutes for timing
REPEATS = 3  # the least of 3 timings counts
ENOUGH = 4096  # rollouts that fill a processor: a timing takes no more prompts
SAFE = 0.6  # share of the time left that a round may take
HALF = 64  # most rollouts of a half-group: more would cost more and not improve V_b
MOST = 2**17  # coordinates of the gradient
FEW = 8  # V_b is not estimated from fewer informative prompts; the first round has as many for each process
CLOSE = 1.25  # times the least noise: another N has at most 20% less
RATIOS = np.geomspace(1, 1e5, 501)  # V_w / V_b that are considered
USUAL, SPREAD = 100.0, 5.0  # before a measurement: log-normal, 95% from 4 to 2,500, as in docs/which_n.md
STAGES = ("roll_out", "score", "update")  # of train.py: 2 and 3; 6; 7
SOLVED = ("never", "up to 25%", "25 to 50%", "50 to 75%", "over 75%", "always")

# ------------------------------------------------------------------------------------------------------------ the law


def best_n(ratio: float, cost: float = 0.0) -> float:
    """N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b): the N with the least noise at equal cost B (c_p + N c_r).

    As in two-stage cluster sampling. cost: c_p / c_r, the cost of a prompt in rollouts; 0 if only samples count.
    """
    return 1 + math.sqrt((1 + cost) * ratio)


def noise_at_equal_cost(n: float, ratio: float, cost: float = 0.0) -> float:
    """(V_b + V_w / (N - 1)) (c_p + N c_r), in units of V_b c_r. Only quotients of two values have a meaning."""
    return (1 + ratio / (n - 1)) * (cost + n)


class Variances(NamedTuple):
    """Means over all prompts, dropped ones included."""

    within: Any  # V_w
    between: Any  # V_b
    mean2: Any  # |ḡ|²


def by_prompt(gram: Tensor) -> Tensor:
    """(3, M), by prompt x: h_0 · h_1, the mean of |h_0|² and |h_1|², and Σ_y h̄_x · h̄_y over the other prompts y."""
    m = len(gram) // 2
    pairs = gram.double().view(m, 2, m, 2)
    own = pairs.diagonal(dim1=0, dim2=2)  # (2, 2, M): the four products of a prompt's halves
    return torch.stack([own[0, 1], (own[0, 0] + own[1, 1]) / 2, (pairs.sum((1, 2, 3)) - own.sum((0, 1))) / 4])


def variances(sums: Tensor, prompts: int, n: int) -> Variances:
    """Compute V_w, V_b and |ḡ|² from the sums of `by_prompt` over prompts. sums: (3, ...)."""
    g2, squares, mean2 = sums[0] / prompts, sums[1] / prompts, sums[2] / (prompts * max(prompts - 1, 1))
    return Variances((n - 1) * (squares - g2), g2 - mean2, mean2)


def estimate(gram: Tensor, prompts: int, n: int) -> Variances:
    """Estimate V_w, V_b and |ḡ|², all but V_w without bias, from inner products of half-groups with n rollouts.

    gram: (2M, 2M), of the half-groups 2x and 2x + 1 of each of M prompts. prompts: M and the dropped prompts.
    """
    return Variances(*(float(x) for x in variances(by_prompt(gram).sum(1), prompts, n)))


class Ratio(NamedTuple):
    """The estimate of V_b / V_w, and its standard error."""

    inverse: float
    error: float


def ratio_of(gram: Tensor, prompts: int, n: int) -> Ratio | None:
    """Estimate V_b / V_w, with the arguments of `estimate`. None for few prompts, or if V_w is not positive.

    Standard errors of V_b and V_w: sqrt((P - 1) / P Σ_x (v_x - v̄)²), where v_x is the estimate without prompt x.
    """
    m, found, each = len(gram) // 2, estimate(gram, prompts, n), by_prompt(gram)
    if m < FEW or found.within <= 0:
        return None
    total = each.sum(1, keepdim=True)
    without = total - each * torch.tensor([[1.0], [1.0], [2.0]])  # a product of two prompts is in two of the sums
    without = torch.cat([without, total.expand(-1, prompts - m)], 1)  # (3, P)
    within, between, _ = (math.sqrt((prompts - 1) * x.var(correction=0)) for x in variances(without, prompts - 1, n))
    inverse = found.between / found.within
    return Ratio(inverse, max(math.hypot(between, inverse * within) / found.within, 1e-9))


class HalfGroups:
    """Gradients of the half-groups of informative prompts, over the rollouts of all processes."""

    def __init__(
        self, policy: Policy, wrapped, rollouts_per_prompt: int, config: Config, accelerator: Accelerator
    ):  # fmt: skip
        self.wrapped, self.config, self.accelerator = wrapped, config, accelerator
        self.n, self.share_prompts = min(HALF, rollouts_per_prompt // 2), policy.share_prompts
        self.every = max(1.0, sum(p.numel() for p in policy.parameters()) / MOST)
        self.gradients: list[Tensor] = []

    def add(self, rollouts: list[Rollout], outcomes: Outcomes) -> None:
        """Add the gradients of both halves of every informative prompt. rollouts: of this process."""
        n, reward = self.n, outcomes.reward
        halves = torch.stack([reward[:, : 2 * n : 2], reward[:, 1 : 2 * n : 2]])  # (2, P, n): even and odd rollouts
        weight = ((halves - halves.mean(-1, keepdim=True)) / (n - 1)).tolist()
        self.wrapped.train(self.config.gradient_checkpointing)
        for p in L.informative(outcomes.correct, outcomes.counted).nonzero().flatten().tolist():
            group = [r for r in rollouts if r.prompt_index == p and r.number < 2 * n]
            for r in group:
                r.advantage = weight[r.number % 2][p][r.number // 2]
            self.gradients += [self.gradient([r for r in group if r.number % 2 == half]) for half in (0, 1)]

    def gradient(self, rollouts: list[Rollout]) -> Tensor:
        """Compute Σ_i A_i ∇log π(y_i) over a half-group on all processes. rollouts: of this process."""
        policy, accelerator = self.wrapped, self.accelerator
        some = micro_batches(rollouts, self.config.max_tokens_per_micro_batch, self.share_prompts, accelerator)
        for i, micro_batch in enumerate(some):
            with nullcontext() if i + 1 == len(some) else accelerator.no_sync(policy):
                logp, _ = log_probs(policy, micro_batch, self.config.temperature, accelerator)
                loss = (micro_batch.advantages.repeat_interleave(micro_batch.lengths) * logp).sum()
                # The ranks' gradients are averaged, and we want their sum
                (loss * accelerator.num_processes).backward()
        found = torch.cat([self.some(i, p.grad) for i, p in enumerate(policy.parameters()) if p.grad is not None])
        policy.zero_grad()
        return found

    def some(self, number: int, gradient: Tensor) -> Tensor:
        """Draw coordinates of the gradient of weight `number`, scaled so that inner products stay unbiased."""
        slope = gradient.flatten().float()
        size, count = len(slope), math.ceil(len(slope) / self.every)
        if count == size:
            return slope
        generator = torch.Generator().manual_seed(seed_of("coordinates", number))
        return slope[torch.randint(size, (count,), generator=generator).to(slope.device)] * math.sqrt(size / count)

    def gram(self) -> Tensor:
        """Inner products of all half-groups, (2M, 2M)."""
        vectors = torch.stack(self.gradients).double() if self.gradients else torch.zeros(0, 0)
        return (vectors @ vectors.T).cpu()


# ------------------------------------------------------------------------------------------ seconds and the guess


def kept_share(correct: list[int], n: int, size: int) -> float:
    """Estimate K_N for N = size from the number of correct rollouts among n, for each prompt.

    Up to N = n the estimate is unbiased: 1 - C(c_x, N) / C(n, N) - C(n - c_x, N) / C(n, N). Beyond, the gain of
    each doubling of N is a constant fraction of the gain before it, as for a Beta distribution of p.
    """

    def unbiased(size: int) -> float:
        pass_at = brorl.pass_at_k_estimate
        return statistics.fmean(pass_at(n, c, size) + pass_at(n, n - c, size) - 1 for c in correct)

    if size <= n:
        return unbiased(size)
    quarter, half, whole = (unbiased(n // x) for x in (4, 2, 1))
    r = min(max((whole - half) / max(half - quarter, 1e-9), 0.0), 0.95)
    return min(1.0, whole + (whole - half) * r * (1 - r ** math.log2(size / n)) / (1 - r))


class Cost:
    """Seconds by N. measured: N -> seconds of one prompt with N rollouts, by stage. kept: N -> K_N."""

    def __init__(self, measured: dict[int, dict[str, float]], kept: Callable[[int], float]):
        self.measured, self.kept = measured, kept

    def stages(self, n: int) -> list[float]:
        """Seconds of one prompt with n rollouts by stage: linear between the measured N and beyond the largest."""
        *_, before, last = sizes = sorted(self.measured)
        beyond = max(0, n - last) / (last - before)
        columns = ([self.measured[size][stage] for size in sizes] for stage in STAGES)
        return [float(np.interp(n, sizes, y)) + beyond * max(0, y[-1] - y[-2]) for y in columns]

    def drawn(self, n: int) -> np.ndarray:
        """t(N) by stage. A prompt that is not kept is neither scored nor trained on."""
        roll_out, score, update = self.stages(n)
        return np.array([roll_out, self.kept(n) * score, self.kept(n) * update])

    def noise(self, n: int, ratio):
        """(V_b + V_w / (N - 1)) t(N) in units of V_b: noise in the same time. Only quotients have a meaning."""
        return (1 + ratio / (n - 1)) * self.drawn(n).sum()


def belief(ratio: Ratio | None) -> np.ndarray:
    """The probability of each of RATIOS: a log-normal around the usual V_w / V_b, times the measurement's likelihood.

    The measured V_b / V_w is normal around the true one. A sample without a measurement leaves the usual values.
    """
    log = -(np.log(RATIOS / USUAL) ** 2) / (2 * math.log(SPREAD) ** 2)
    if ratio:
        log = log - ((1 / RATIOS - ratio.inverse) / ratio.error) ** 2 / 2
    weight = np.exp(log - log.max())
    return weight / weight.sum()


class Guess(NamedTuple):
    """The best guess, how sure it is, and V_w / V_b with a 95% interval."""

    n: int
    sure: float  # probability that no other N of the table has over 20% less noise in the same time
    ratio: float
    ratio_low: float
    ratio_high: float


def guess(cost: Cost, sizes: list[int], ratio: Ratio | None) -> Guess:
    """Choose the N of `sizes` whose noise is expected to be nearest to the least."""
    weight = belief(ratio)
    noise = np.array([cost.noise(n, RATIOS) for n in sizes])  # (sizes, RATIOS)
    excess = noise / noise.min(0)
    chosen = int(np.argmin(excess @ weight))
    ratios = (float(RATIOS[np.argmax(weight.cumsum() > x)]) for x in (0.5, 0.025, 0.975))
    return Guess(sizes[chosen], float(weight[excess[chosen] <= CLOSE].sum()), *ratios)


# -------------------------------------------------------------------------------------- the sample and the report


class Sample:
    """The measurements: seconds at several N, and rollouts and half-group gradients of the sampled prompts."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: Setup, own: argparse.Namespace):
        self.config, self.accelerator, self.setup = config, accelerator, setup
        self.ends = own.began + 60 * own.max_minutes
        self.wanted = min(own.sample_prompts, len(setup.data.problems))
        self.problems, self.seeds = setup.progress.next_problems(setup.data.problems, self.wanted, config.seed)
        for group in setup.optimizer.param_groups:  # type: ignore[union-attr]
            group["lr"] = 0.0  # the updates that are timed change no weight
        setup.run.console.say("timing the stages of a step ...")
        self.step_seconds = min(self.time_optimizer_step() for _ in range(REPEATS))
        self.measured = self.times()
        self.draw_sample()

    def slowest(self, seconds: float) -> float:
        """The largest value of all processes."""
        return max(gather_object([seconds]))

    def left(self) -> float:
        """Seconds of --max_minutes that are left."""
        return -self.slowest(time.perf_counter() - self.ends)

    def draw(self, problems: list, seeds: list[int], n: int) -> tuple[list[Rollout], Outcomes]:
        """Stages 2 and 3 of train.py."""
        setup = self.setup
        setup.engine.wake()
        drawn = roll_out(setup.engine, problems, n, seeds, setup.sampling, setup.judge, self.accelerator)
        setup.engine.sleep()
        return drawn

    def seconds(self, n: int, count: int) -> dict[str, float]:
        """Time a step of `count` prompts with n rollouts each, by functions of train.py. Returns seconds per prompt.

        The step has U mini-batches, since a prompt is computed once in each of them. A prompt's share of the optimizer
        steps is U / B; the others are subtracted.
        """
        accelerator, setup, temperature = self.accelerator, self.setup, self.config.temperature
        updates = min(self.config.updates_per_step, n * count)
        config = replace(self.config, updates_per_step=updates)
        setup.progress.begin_step()
        problems, seeds = setup.progress.next_problems(setup.data.problems, count, config.seed)
        clock = [time.perf_counter()]
        rollouts, outcomes = self.draw(problems, seeds, n)
        clock.append(time.perf_counter())
        in_mini_batch = train.deal(torch.ones_like(outcomes.correct), updates, seed=0)
        advantages, share_prompts = L.group_advantages(outcomes.reward), setup.policy.share_prompts
        mini_batches = train.split(rollouts, advantages, in_mini_batch, config, share_prompts, accelerator)
        for mini_batch in mini_batches:
            score(setup.policy, mini_batch, "old_logp", temperature, accelerator)
            if setup.reference is not None:
                score(setup.reference, mini_batch, "ref_logp", temperature, accelerator)
        clock.append(time.perf_counter())
        for u, mini_batch in enumerate(mini_batches):
            tokens, sums = int(outcomes.length[in_mini_batch == u].sum()), Sums(accelerator)
            train.update(setup.wrapped, setup.optimizer, mini_batch, tokens, config, accelerator, sums)
        clock.append(time.perf_counter() - updates * (1 - count / self.config.prompts_per_step) * self.step_seconds)
        spent = np.diff(clock).clip(min=0).tolist()
        return {name: self.slowest(x) / count for name, x in zip(STAGES, spent, strict=True)}

    def time_optimizer_step(self) -> float:
        """Time one optimizer step without its gradient: clipping and AdamW."""
        policy, optimizer = self.setup.policy, self.setup.optimizer
        for p in policy.parameters():
            p.grad = torch.zeros_like(p)
        began = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), self.config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    def times(self) -> dict[int, dict[str, float]]:
        """Time several N: each once on one prompt, then on up to B prompts if there is time. Leaves out a slow N.

        The plan takes a rollout of a larger N to be as slow as one of the N before. It is faster.
        """
        sizes = sorted({*TIMED, self.config.rollouts_per_prompt})
        first = self.seconds(sizes[0], 1)  # slow, because everything happens for the first time
        rollout, until = sum(first.values()) / sizes[0], self.left() * (1 - TIMING)
        found = dict[int, dict[str, float]]()
        for n in sizes:
            if n * rollout > self.left() - until:
                break
            found[n] = self.seconds(n, 1)
            rollout = sum(found[n].values()) / n
        for i, n in enumerate(found):
            each = (self.left() - until) / (len(found) - i) / REPEATS
            count = min(self.config.prompts_per_step, max(1, ENOUGH // n), int(each / sum(found[n].values())))
            if count > 0:
                runs = [self.seconds(n, count) for _ in range(REPEATS)]
                found[n] = {stage: min(run[stage] for run in runs) for stage in STAGES}
        if len(found) < 2:  # then seconds are taken to be proportional to N
            found = {0: dict.fromkeys(first, 0.0), sizes[0]: first} | found
        return found

    def draw_sample(self) -> None:
        """Say how long the sample takes, and roll out prompts until there are enough or the minutes are over."""
        setup, wanted, spare = self.setup, self.wanted, SAFE * self.left()
        cost = Cost(self.measured, lambda n: 1.0)
        each = {n: sum(cost.stages(n)) for n in SAMPLED}  # a little too much: nothing is scored
        self.n = n = next((n for n in SAMPLED if FEW * each[n] < spare), SAMPLED[-1])
        self.outcomes, self.halves = (
            Outcomes.none(n),
            HalfGroups(setup.policy, setup.wrapped, n, self.config, self.accelerator),
        )
        possible = min(wanted, max(1, int(self.left() / each[n])))
        setup.run.console.say(f"rolling out about {possible} prompts, {n} times each ...")
        count = min(wanted, FEW * self.accelerator.num_processes, max(1, int(spare / each[n])))
        while count:
            began, part = self.left(), slice(len(self.outcomes), len(self.outcomes) + count)
            rollouts, outcomes = self.draw(self.problems[part], self.seeds[part], n)
            self.halves.add(rollouts, outcomes)
            if not len(self.outcomes):
                setup.run.sample(rollouts, outcomes, L.informative(outcomes.correct), 0)
            self.outcomes = self.outcomes.followed_by(outcomes)
            took = max(began - self.left(), 1e-9) / count
            count = min(wanted - len(self.outcomes), max(0, int(SAFE * self.left() / took)))


def digits(x: float) -> str:
    """Write a number with two digits and without a power of ten: 0.25, 2.3, 18, 120, 1,700."""
    return f"{x:.2g}" if x < 99.5 else f"{float(f'{x:.2g}'):,.0f}"


def aligned(rows: list[list]) -> str:
    widths = [max(len(str(x)) for x in column) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(f"{x!s:>{w}}" for x, w in zip(row, widths, strict=True)) for row in rows)


def in_words(found: dict[str, Any], best: Guess, config: Config) -> str:
    """Write the report, from the numbers of which_n.json."""
    asked, b, prompts, rows = config.rollouts_per_prompt, config.prompts_per_step, found["prompts"], found["table"]
    table: list[list] = [["N", "prompts drawn", "roll out", "score", "update", "seconds a step", "noise"]]
    for n, x in rows.items():
        table.append([n, f"{x['drawn']:,.0f}", *map(digits, [*x["stages"], x["seconds"]]), f"{x['noise']:.2f}"])
    timed = [n for n in found["seconds"] if n]
    beyond = ""
    if max(timed) < max(rows):
        beyond = " The seconds of larger N are extrapolated, and can\n  be several times too high where prompts are "
        beyond += "expensive: raise --max_minutes to time them."
    if len(timed) > 1:
        sure = f"no other N of the table has over 20% less noise, with probability {min(best.sure, 0.99):.0%}. This"
        sure += "\n  takes the seconds as exact. To be surer, measure on an idle machine and raise --sample_prompts."
    else:
        sure = f"not at all. Only N = {timed[0]} could be timed, and seconds proportional to N favour a small N: raise"
        sure += "\n  --max_minutes."
    source = f"These are usual values: too few prompts, under {FEW}, have right\n  and wrong responses. "
    source += "Read samples.jsonl, take other problems, or raise --sample_prompts and --max_minutes."
    if found["ratio"]:
        source = "This sample gives V_b / V_w = {:.2g} ± {:.2g} (one standard error).".format(*found["ratio"].values())
    rate = brorl.scaled_learning_rate(config.learning_rate, best.n * b, asked * b)
    return f"""
{found["model"]}: {prompts} prompts x {found["rollouts"]} rollouts, {found["minutes"]:.1f} minutes

How often are the problems solved? Prompts by the share of right responses (a step trains on the middle four columns):
{aligned([[*found["solved"]], [*found["solved"].values()]])}
  Verdicts: {", ".join(f"{count:,} {reason}" for reason, count in found["reasons"].items())}.
  Tokens of a response: median {found["tokens_median"]:,}, longest {found["tokens_max"]:,}. \
{found["truncated"]:.1%} reach --max_response_tokens {config.max_response_tokens}.

Which N has the least noise for B = {b} on this machine?
  Noise is the squared distance of a step's gradient from the mean of many such steps. More rollouts reduce V_w,
  which comes from the rollouts of a prompt. Only more prompts reduce V_b, which comes from the choice of prompts.
  V_w / V_b = {digits(best.ratio)}, between {digits(best.ratio_low)} and {digits(best.ratio_high)} (95%). {source}
{aligned(table)}
  A step draws prompts until {b} are kept. Roll out samples and judges the responses, score computes their log-probs,
  update is the training. Timed at N = {", ".join(map(str, timed))}.{beyond}
  In the same time a small N takes more steps, and noise is that of their mean, divided by the noise of N = {asked}.

Advice
  Best guess: N = {best.n} with B = {b}. {digits(rows[asked]["seconds"] / rows[best.n]["seconds"])} of its steps take \
as long as one of N = {asked}, and their mean has {rows[best.n]["noise"]:.2f} of its noise.
    --rollouts_per_prompt {best.n} --prompts_per_step {b} --learning_rate {rate:.2g}
  How sure: {sure}
  The learning rate follows sqrt(N x B), section 4.2.1: search around it. V_w / V_b usually falls while a policy
  learns: --log_noise measures it along a run. On a real model seeds differed by more than N did (docs/which_n.md)."""


def report(config: Config, accelerator: Accelerator, setup: Setup, own: argparse.Namespace) -> dict[str, Any]:
    """Measure, print and write the run's folder. Returns the numbers of which_n.json."""
    sample = Sample(config, accelerator, setup, own)
    outcomes, n, asked, folder = sample.outcomes, sample.n, config.rollouts_per_prompt, setup.run.folder
    correct, prompts = outcomes.correct.sum(-1).tolist(), len(outcomes)
    reasons = outcomes.reason.flatten().bincount(minlength=len(REASONS)).tolist()
    quarters = [math.ceil(4 * c / n) + (c == n) for c in correct]
    cost = Cost(sample.measured, partial(kept_share, correct, n))
    ratio = ratio_of(sample.halves.gram(), prompts, sample.halves.n)
    sizes = [n for n in sorted({*SIZES, asked}) if n * config.prompts_per_step >= config.updates_per_step]
    best = guess(cost, sizes, ratio)

    def row(n: int) -> dict[str, Any]:
        drawn, noise = config.prompts_per_step / max(cost.kept(n), 1e-3), cost.noise(n, best.ratio)
        step = (drawn * cost.drawn(n)).tolist()
        return {"drawn": drawn, "stages": step, "seconds": sum(step), "noise": noise / cost.noise(asked, best.ratio)}

    found: dict[str, Any] = {
        "model": short(config.model), "prompts": prompts, "rollouts": n, "correct": correct,
        "minutes": own.max_minutes - sample.left() / 60,
        "solved": {name: quarters.count(i) for i, name in enumerate(SOLVED)},
        "reasons": {name: count for name, count in zip(REASONS, reasons, strict=True) if count},
        "tokens_median": outcomes.length.median().item(), "tokens_max": outcomes.length.max().item(),
        "truncated": outcomes.truncated.double().mean().item(), "seconds": sample.measured,
        "ratio": ratio and ratio._asdict(), "best": best._asdict(), "table": {n: row(n) for n in sizes},
    }  # fmt: skip
    if accelerator.is_main_process:
        print(in_words(found, best, config))
        write(folder / "which_n.json", json.dumps(found, indent=2) + "\n")
        print(f"\nwrote {folder}/: which_n.json (these numbers), samples.jsonl (some responses)")
    return found


def log_noise(
    every: int, config: Config, accelerator: Accelerator, setup: Setup,
    step: int, rollouts: list[Rollout], outcomes: Outcomes,
) -> None:  # fmt: skip
    """Write a line of noise.jsonl every few steps: V_w and V_b before the step's first update. train.train calls it.

    rollouts: all that this process drew in the step; outcomes: of all processes. After --resume a step can have two
    lines, and the last one counts.
    """
    if (step - 1) % every:
        return
    halves = HalfGroups(setup.policy, setup.wrapped, config.rollouts_per_prompt, config, accelerator)
    halves.add(rollouts, outcomes)
    gram, prompts = halves.gram(), len(outcomes)
    row: dict[str, Any] = {"step": step, "prompts": prompts, "informative": len(gram) // 2}
    if len(gram) >= 4:
        row |= estimate(gram, prompts, halves.n)._asdict()
    setup.run.append("noise.jsonl", row)
    setup.run.lap("log_noise")


def main(argv: list[str] | None = None) -> dict[str, Any] | None:
    """Run the program with these arguments. Returns the numbers of which_n.json."""
    parser = argparse.ArgumentParser("python -m tools.which_n", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sample_prompts", type=int, default=256, help="prompts of the sample (default: 256)")
    parser.add_argument("--max_minutes", type=float, default=10.0, help="minutes of the measurement (default: 10)")
    parser.add_argument("--log_noise", type=int, help="train, and write V_w and V_b to noise.jsonl every so many steps")
    own, flags = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    own.began = time.perf_counter()
    given = {flag.partition("=")[0] for flag in flags}
    if "--name" not in given and own.log_noise is None:
        flags += ["--name", f"which_n-{time.strftime('%m%d-%H%M%S')}"]
    if "--data" in given and "--eval_data" not in given and own.log_noise is None:
        flags += ["--eval_data", str(TINY / "test.jsonl")]  # nothing is evaluated
    with explained(code=2):
        if own.sample_prompts < 1 or not own.max_minutes > 0:
            raise Refusal("--sample_prompts must be at least 1, and --max_minutes positive")
        config, sources = read_settings((__doc__ or "").partition("\n")[0], flags, any_size=own.log_noise is None)
        if config.eval_only or (config.resume and own.log_noise is None):
            raise Refusal("--eval_only and --resume belong to train.py: leave them out here")
        if own.log_noise is not None and (own.log_noise < 1 or config.rollouts_per_prompt < 4):
            raise Refusal("--log_noise must be at least 1, and needs --rollouts_per_prompt of at least 4")
        if fsdp_requested():
            raise Refusal("which_n needs complete weights on every process: start it without FSDP2")
        accelerator = start_accelerator(config)
        if own.log_noise:
            setup = set_up(config, accelerator, sources)
            train.train(config, accelerator, setup, partial(log_noise, own.log_noise, config, accelerator, setup))
            setup.close(accelerator)
            return None
        if accelerator.is_main_process:
            print(f"this takes at most {own.max_minutes:g} minutes (--max_minutes); loading the model ...")
        with redirect_stdout(StringIO()):  # the introduction of a run speaks about training
            setup = set_up(config, accelerator, sources)
        found = report(config, accelerator, setup, own)
        setup.close(accelerator)
        return found


if __name__ == "__main__":
    main()
