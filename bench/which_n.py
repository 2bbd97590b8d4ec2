"""Section 4.2 before a run: which N, rollouts per prompt, has the least noise in the same time, for a given B?

    python -m bench.which_n                                      the embedded policy, half a minute on 2 cores
    python -m bench.which_n --model M --data D --prompts_per_step 32
    accelerate launch -m bench.which_n --model M --data D        on several processes
    python -m bench.which_n --log_noise 5 --model M --data D     train, and measure V_w / V_b every 5 steps

All settings of train.py work too. Without --log_noise nothing is trained: the program times the stages of a step at
several N, rolls out a sample of prompts, and takes gradients of its rollouts. It stops within --max_minutes and ends
with a best guess, the flags for it, and how sure it is.

N rollouts of a prompt estimate the gradient of p, its probability of a correct response. N changes the noise of this
estimate, not its mean. If a step rolls out B prompts N times each, the trace of its covariance is

    noise(N, B) ≈ (V_b + V_w / (N - 1)) / B

    name here   symbol       meaning
    g           g_x          ∇p_x of prompt x
    mean2       |ḡ|²         squared norm of the mean of g_x over prompts
    between     V_b          E|g_x|² - |ḡ|²: how much prompts differ
    within      V_w          how much the rollouts of a prompt differ: the variance of (R - p) ∇log π(y), mean over x
    ratio       V_w / V_b    measured as V_b / V_w with its standard error (jackknife over prompts)
    cost        c_p / c_r    the cost of a prompt, in rollouts; 0 if only samples are counted
    kept        K_N          P(0 < #correct < N), mean over prompts
    seconds     t(N)         of one drawn prompt: roll_out(N) + K_N (score(N) + update(N) + fixed / B), where fixed is
                             U optimizer steps; a stage is linear in N between the measured N

At equal cost B (c_p + N c_r) the noise is least at N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b), as in two-stage cluster
sampling. In the same time a small N takes more steps. The mean of their gradients has the noise

    noise(N, B) x seconds of a step ∝ (V_b + V_w / (N - 1)) t(N)

B decides t(N): B prompts share the optimizer steps, and the stages are timed on B prompts if there is time, because
few rollouts do not fill a processor.
Two halves of a group, n rollouts each with their own mean as the baseline, give two independent, unbiased estimates:

    h = 1/(n - 1) Σ_i (R_i - R̄_h) ∇log π(y_i),   E[h] = g_x,   E[h_0 · h_1] = |g_x|²,   E|h_0 - h_1|² / 2 = Var(h)

Var(h) = V_w / n + (|g_x|² + p(1-p) E|∇log π|²) / (n (n - 1)), and the law leaves out a share of order 1/N. A group that
dynamic sampling drops has h_0 = h_1 = 0 and counts as 0. The law is about the advantages before whitening and clipping,
and about the policy as it is.
"""

from __future__ import annotations

import train  # first: train.py sets the environment that torch reads

# isort: split
import argparse
import json
import math
import statistics
import sys
import textwrap
import time
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.utils import logging

import brorl
import loss as L
from trainer.policy import allocate_moments, fsdp_requested, log_probs, micro_batches, score
from trainer.report import short
from trainer.rollouts import Outcomes, Rollout, roll_out, seed_of
from trainer.run import Progress, Sums, write
from trainer.settings import TINY, Config, Refusal, read_settings
from verify import REASONS

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # N of the table
TIMED = (4, 16)  # N that are timed, besides the sample's N and the configured N
TIMING = 0.4  # share of --max_minutes for timing
REPEATS, QUICK = 3, 3.0  # a timing is repeated up to 3 times, for 3 seconds
SAFE = 0.6  # share of the time left that a round may take
ROUND = 8  # prompts of the first round of the sample, for each process
HALF = 64  # most rollouts of a half-group: more would cost more and not improve V_b
MOST = 2**17  # coordinates of the gradient
FEW = 8  # V_b is not estimated from fewer informative prompts
ALIKE, CLOSE = 1.02, 1.25  # times the least noise: no difference; 20% above it
RATIOS = np.geomspace(1, 1e5, 501)  # V_w / V_b that are considered
USUAL, SPREAD = 100.0, 5.0  # before a measurement: log-normal, 95% from 4 to 2,500, as in docs/which_n.md
STAGES = ("roll_out", "score", "update")
SOLVED = ("never", "up to 25%", "25 to 50%", "50 to 75%", "over 75%", "always")

# ------------------------------------------------------------------------------------------------------------ the law


def best_n(ratio: float, cost: float = 0.0) -> float:
    """N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b): the N with the least noise at equal cost. cost: c_p / c_r."""
    return 1 + math.sqrt((1 + cost) * ratio)


def noise_at_equal_cost(n: float, ratio: float, cost: float = 0.0) -> float:
    """(V_b + V_w / (N - 1)) (c_p + N c_r), in units of V_b c_r. Only quotients of two values have a meaning."""
    return (1 + ratio / (n - 1)) * (cost + n)


class Variances(NamedTuple):
    """The result of `estimate`: means over all prompts, dropped ones included."""

    within: float  # V_w
    between: float  # V_b
    mean2: float  # |ḡ|²


def moments(gram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h_0 · h_1, the mean of |h_0|² and |h_1|², and Σ_y h̄_x · h̄_y over the other prompts y: (M,) each, by prompt x."""
    m = len(gram) // 2
    pairs = gram.double().view(m, 2, m, 2)
    own = pairs.diagonal(dim1=0, dim2=2)  # (2, 2, M): the four products of a prompt's halves
    return own[0, 1], (own[0, 0] + own[1, 1]) / 2, (pairs.sum((1, 2, 3)) - own.sum((0, 1))) / 4


def variances(g2, squares, across, prompts: float, n: int) -> Tensor:
    """V_w, V_b and |ḡ|² from sums of `moments` over prompts."""
    mean2 = across / (prompts * max(prompts - 1, 1))
    return torch.stack([(n - 1) * (squares - g2) / prompts, g2 / prompts - mean2, mean2])


def estimate(gram: Tensor, prompts: float, n: int) -> Variances:
    """Estimate V_w, V_b and |ḡ|² from inner products of half-group gradients.

    gram: (2M, 2M), of the half-groups 2x and 2x + 1 of each of M prompts. prompts: M and the dropped prompts.
    n: rollouts of a half-group. The estimates of Var(h), |g_x|² and |ḡ|² are unbiased.
    """
    g2, squares, across = (x.sum() for x in moments(gram))
    return Variances(*variances(g2, squares, across, prompts, n).tolist())


def standard_errors(gram: Tensor, prompts: float, n: int) -> Variances:
    """Estimate the standard errors of `estimate` by the jackknife over all prompts, dropped ones included."""
    m, (g2, squares, across) = len(gram) // 2, moments(gram)
    without = g2.sum() - g2, squares.sum() - squares, across.sum() - 2 * across  # all prompts but one: (M,) each
    found = variances(*without, prompts - 1, n)  # (3, M)
    dropped = variances(g2.sum(), squares.sum(), across.sum(), prompts - 1, n)
    mean = (found.sum(1) + (prompts - m) * dropped) / prompts
    spread = (found - mean[:, None]).square().sum(1) + (prompts - m) * (dropped - mean).square()
    return Variances(*((prompts - 1) / prompts * spread).sqrt().tolist())


class Ratio(NamedTuple):
    """The estimate of V_b / V_w, and its standard error."""

    inverse: float
    error: float


def ratio_of(gram: Tensor, prompts: int, n: int) -> Ratio | None:
    """Estimate V_b / V_w, with the arguments of `estimate`. None if the estimate of V_w is not positive."""
    found, errors = estimate(gram, prompts, n), standard_errors(gram, prompts, n)
    if found.within <= 0:
        return None
    inverse = found.between / found.within
    return Ratio(inverse, max(math.hypot(errors.between, inverse * errors.within) / found.within, 1e-9))


class HalfGroups:
    """Gradients of the half-groups of informative prompts, over the rollouts of all processes.

    Under FSDP2 each process keeps coordinates of its part of the weights.
    """

    def __init__(self, policy, rollouts_per_prompt: int, config: Config, accelerator: Accelerator):
        self.policy, self.config, self.accelerator = policy, config, accelerator
        self.n = min(HALF, rollouts_per_prompt // 2)
        self.share_prompts = accelerator.unwrap_model(policy).share_prompts
        self.every = max(1.0, sum(p.numel() for p in policy.parameters()) / MOST)
        self.coordinates: list[tuple[Tensor, float]] = []  # of each weight, and the scale of its gradient
        self.gradients: list[Tensor] = []

    def add(self, rollouts: list[Rollout], outcomes: Outcomes) -> None:
        """Add the gradients of both halves of every informative prompt. rollouts: of this process."""
        n, reward = self.n, outcomes.reward
        halves = torch.stack([reward[:, : 2 * n : 2], reward[:, 1 : 2 * n : 2]])  # (2, P, n): even and odd rollouts
        weight = ((halves - halves.mean(-1, keepdim=True)) / (n - 1)).tolist()
        self.policy.train(self.config.gradient_checkpointing)
        for p in L.informative(outcomes.correct).nonzero().flatten().tolist():
            group = [r for r in rollouts if r.prompt_index == p and r.number < 2 * n]
            for r in group:
                r.advantage = weight[r.number % 2][p][r.number // 2]
            self.gradients += [self.gradient([r for r in group if r.number % 2 == half]) for half in (0, 1)]

    def gradient(self, rollouts: list[Rollout]) -> Tensor:
        """Compute Σ_i A_i ∇log π(y_i) over a half-group on all processes. rollouts: of this process."""
        policy, accelerator, fsdp = self.policy, self.accelerator, fsdp_requested()
        batches = micro_batches(rollouts, self.config.max_tokens_per_micro_batch, self.share_prompts, accelerator)
        for i, batch in enumerate(batches):
            with nullcontext() if i + 1 == len(batches) or fsdp else accelerator.no_sync(policy):
                logp, _ = log_probs(policy, batch, self.config.temperature, accelerator)
                weight = [torch.full((len(r.response),), r.advantage) for r in batch] or [torch.zeros(0)]
                loss = (torch.cat(weight).to(logp.device) * logp).sum()
                # The ranks' gradients are averaged, and we want their sum
                (loss * accelerator.num_processes).backward()
        slopes = [local(p.grad).flatten() for p in policy.parameters() if p.grad is not None]
        if not self.coordinates:
            self.coordinates = [self.drawn(i, len(slope), slope.device) for i, slope in enumerate(slopes)]
        policy.zero_grad()
        return torch.cat([x[at].float() * scale for x, (at, scale) in zip(slopes, self.coordinates, strict=True)])

    def drawn(self, number: int, size: int, device) -> tuple[Tensor, float]:
        """Draw coordinates of weight `number`, and the scale that keeps inner products unbiased."""
        if (count := math.ceil(size / self.every)) >= size:
            return torch.arange(size, device=device), 1.0
        generator = torch.Generator().manual_seed(seed_of(0, number))
        return torch.randint(size, (count,), generator=generator).to(device), math.sqrt(size / count)

    def gram(self) -> Tensor:
        """Inner products of all half-groups, (2M, 2M)."""
        if not self.gradients:
            return torch.zeros(0, 0)
        vectors = torch.stack(self.gradients).double()
        gram = vectors @ vectors.T
        return self.accelerator.reduce(gram, "sum").cpu() if fsdp_requested() else gram.cpu()


def local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


# ------------------------------------------------------------------------------------------ kept prompts and seconds


class Kept:
    """K_N from #correct of n rollouts per prompt.

    Up to N = n the estimate is unbiased: 1 - C(c_x, N) / C(n, N) - C(n - c_x, N) / C(n, N). Beyond, the gain of
    each doubling of N is a constant fraction of the gain before it, as for a Beta distribution of p.
    """

    def __init__(self, correct: list[int], n: int):
        self.correct, self.n = correct, n

    def __call__(self, size: int) -> float:
        if size <= self.n:
            return self.counted(size)
        quarter, half, whole = (self.counted(self.n // x) for x in (4, 2, 1))
        r = min(max((whole - half) / max(half - quarter, 1e-9), 0.0), 0.95)
        return min(1.0, whole + (whole - half) * r * (1 - r ** math.log2(size / self.n)) / (1 - r))

    def counted(self, size: int) -> float:
        n, pass_at = self.n, brorl.pass_at_k_estimate
        return statistics.fmean(pass_at(n, c, size) + pass_at(n, n - c, size) - 1 for c in self.correct)


class Cost:
    """Seconds by N. measured: N -> seconds of one prompt with N rollouts, by stage. kept: K_N. fixed: of a step."""

    def __init__(self, measured: dict[int, dict[str, float]], kept, fixed: float = 0.0, b: int = 1):
        self.measured, self.kept, self.fixed, self.b = measured, kept, fixed, b

    def stages(self, n: int) -> dict[str, float]:
        """Seconds of one prompt with n rollouts by stage: linear between the measured N and beyond the largest."""
        *_, before, last = sizes = sorted(self.measured)
        found = {}
        for stage in STAGES:
            y = [self.measured[size][stage] for size in sizes]
            found[stage] = float(np.interp(n, sizes, y)) + max(0, n - last) * max(0, y[-1] - y[-2]) / (last - before)
        return found

    def seconds(self, n: int) -> float:
        """t(N)"""
        drawn, *of_kept = self.stages(n).values()
        return drawn + self.kept(n) * (sum(of_kept) + self.fixed / self.b)

    def of_a_prompt(self) -> float:
        """c_p / c_r: the line through the smallest and the largest measured N, at N = 0."""
        low, high = min(self.measured), max(self.measured)
        first, last = (sum(self.measured[n][stage] for stage in STAGES) for n in (low, high))
        return max(0.0, first * (high - low) / max(last - first, 1e-9) - low)

    def drawn(self, n: int, config: Config) -> int:
        """Prompts that a training step with N = n draws to keep B: the rule of train.py."""
        of_run = Progress(tried=1e6, informative=1e6 * max(self.kept(n), 1e-3))
        return train.prompts_wanted(Outcomes.none(n), of_run, replace(config, rollouts_per_prompt=n))

    def step(self, n: int, config: Config) -> dict[str, float]:
        """Seconds of a training step by stage. All informative prompts are trained on."""
        drawn = self.drawn(n, config)
        prompts = {"roll_out": drawn, "score": drawn * self.kept(n), "update": drawn * self.kept(n)}
        found = {stage: seconds * prompts[stage] for stage, seconds in self.stages(n).items()}
        return found | {"update": found["update"] + self.fixed}

    def noise(self, n: int, ratio):
        """(V_b + V_w / (N - 1)) t(N) in units of V_b: noise in the same time. Only quotients have a meaning."""
        return (1 + ratio / (n - 1)) * self.seconds(n)

    def table(self, ratio: float, config: Config) -> list[dict[str, float]]:
        """A row for each N, at the configured B. Noise is divided by the noise of the configured N."""
        asked = config.rollouts_per_prompt
        rows: list[dict[str, float]] = []
        for n in sorted({*SIZES, asked}):
            if n * config.prompts_per_step >= config.updates_per_step:
                drawn = self.drawn(n, config)
                row = {"n": n, "drawn": drawn, "kept": drawn * self.kept(n)}
                row |= {"seconds": sum(self.step(n, config).values())}
                row |= {"noise": self.noise(n, ratio) / self.noise(asked, ratio)}
                rows.append(row)
        return rows


# ---------------------------------------------------------------------------------------------------------- the guess


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
    low: int  # the best N of the table is from low to high, with probability 95%
    high: int
    ratio: float
    ratio_low: float
    ratio_high: float


def guess(cost: Cost, sizes: list[int], ratio: Ratio | None) -> Guess:
    """Choose the N of `sizes` whose noise is expected to be nearest to the least; of several the smallest.

    N within 2% count as equal: the best N falls while a policy learns.
    """
    weight = belief(ratio)
    noise = np.array([cost.noise(n, RATIOS) for n in sizes])  # (sizes, RATIOS)
    excess = noise / noise.min(0)
    mean = excess @ weight
    chosen = int(np.argmax(mean <= ALIKE * mean.min()))
    is_best = np.bincount(noise.argmin(0), weight, len(sizes))
    low, high = (sizes[int(np.argmax(is_best.cumsum() > x))] for x in (0.025, 0.975))
    ratios = (float(RATIOS[np.argmax(weight.cumsum() > x)]) for x in (0.5, 0.025, 0.975))
    return Guess(sizes[chosen], float(weight[excess[chosen] <= CLOSE].sum()), low, high, *ratios)


# --------------------------------------------------------------------------------------------------------- the sample


class Sample:
    """The measurements: seconds at several N, and rollouts and half-group gradients of the sampled prompts."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: train.Setup, own: argparse.Namespace):
        self.config, self.accelerator, self.setup, self.n = config, accelerator, setup, own.sample_rollouts
        self.plain = accelerator.unwrap_model(setup.policy)
        for group in setup.optimizer.param_groups:  # type: ignore[union-attr]
            group["lr"] = 0.0  # the updates that are timed change no weight
        self.ends = own.began + 60 * own.max_minutes
        count = min(own.sample_prompts, len(setup.data.problems))
        self.problems, self.seeds = setup.progress.next_problems(setup.data.problems, count, config.seed)
        self.outcomes = Outcomes.none(self.n)
        self.halves = HalfGroups(setup.policy, self.n, config, accelerator)
        steps = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            allocate_moments(setup.optimizer)  # type: ignore[arg-type]  # an optimizer step with gradients of 0
            steps.append(time.perf_counter() - began)
        self.optimizer_step = max(gather_object([min(steps)]))

    def left(self) -> float:
        """Seconds of --max_minutes that are left, on the slowest process."""
        return min(gather_object([self.ends - time.perf_counter()]))

    def draw(self, problems: list, seeds: list[int], n: int) -> tuple[list[Rollout], Outcomes]:
        """Stages 2 and 3 of train.py."""
        setup = self.setup
        setup.engine.wake()
        drawn = roll_out(setup.engine, problems, n, seeds, setup.sampling, setup.judge, self.accelerator)
        setup.engine.sleep()
        return drawn

    def seconds(self, n: int, count: int) -> dict[str, float]:
        """Time `count` prompts with n rollouts each, by functions of train.py. Returns seconds per prompt by stage.

        One mini-batch is updated, and its time without the optimizer step is scaled to all. The slowest process counts.
        """
        config, accelerator, setup = self.config, self.accelerator, self.setup
        problems, seeds = setup.progress.next_problems(setup.data.problems, count, config.seed)
        began = time.perf_counter()
        drawn, outcomes = self.draw(problems, seeds, n)
        rolled_out = time.perf_counter()
        number = train.mini_batches(torch.ones_like(outcomes.correct), config.updates_per_step, seed=0)
        advantages = L.group_advantages(outcomes.reward)
        batches = train.with_advantages(drawn, advantages, number, config, self.plain.share_prompts, accelerator)
        for batch in batches:
            score(self.plain, batch, "old_logp", config.temperature, accelerator)
            if setup.reference is not None:
                score(setup.reference, batch, "ref_logp", config.temperature, accelerator)  # type: ignore[arg-type]
        scored = time.perf_counter()
        tokens, sums = int(outcomes.length[number == 0].sum()), Sums(accelerator)
        train.update(setup.policy, setup.optimizer, batches[0], tokens, config, accelerator, sums)
        updated = max(0.0, time.perf_counter() - scored - self.optimizer_step)
        updated *= number.numel() / int((number == 0).sum())
        took = rolled_out - began, scored - rolled_out, updated, time.perf_counter() - began
        return {name: max(gather_object([x])) / count for name, x in zip((*STAGES, "wall"), took, strict=True)}

    def growth(self, n: int) -> float:
        """Tokens of a prompt with n rollouts: the seconds grow about like this."""
        prompt, response = statistics.fmean(self.setup.data.prompt_lengths), self.config.max_response_tokens
        return prompt + n * response if self.plain.share_prompts else n * (prompt + response)

    def times(self) -> dict[int, dict[str, float]]:
        """Time several N, on B prompts if the minutes allow, else on fewer. An N that is too slow is left out."""
        sizes = sorted({*(n for n in TIMED if n < self.n), self.n, self.config.rollouts_per_prompt})
        until, last, found = self.left() * (1 - TIMING), sizes[0], dict[int, dict[str, float]]()
        first = self.seconds(last, 1)
        if first["wall"] < QUICK:  # the first call of anything is slow
            first = self.seconds(last, 1)
        each = first["wall"]
        for i, n in enumerate(sizes):
            allowed = (self.left() - until) / (len(sizes) - i)
            each *= self.growth(n) / self.growth(last)
            if found and each > allowed:
                break
            count = min(self.config.prompts_per_step, max(1, int(allowed / each)))
            runs = [] if found or count > 1 else [first]
            while not runs or (len(runs) < REPEATS and sum(run["wall"] for run in runs) * count < QUICK):
                runs.append(self.seconds(n, count))
            found[n] = {name: min(run[name] for run in runs) for name in first}
            last, each = n, found[n]["wall"]
        if len(found) == 1:
            found[0] = {name: x * self.growth(0) / self.growth(last) for name, x in found[last].items()}
        return found

    def measure(self) -> dict[int, dict[str, float]]:
        """Time the stages, say how long the sample takes, and roll out prompts until the minutes are over."""
        run = self.setup.run
        run.say("timing the stages of a step ...")
        measured, wanted = self.times(), len(self.problems)
        at_n = Cost(measured, None).stages(self.n)
        each = at_n["roll_out"] + at_n["update"]
        fits = min(wanted, max(1, int(SAFE * self.left() / each)))
        fewer = f"; --max_minutes leaves time for {fits}" if fits < wanted else ""
        run.say(f"rolling out {wanted} prompts, {self.n} times each, takes {each * wanted / 60:.1f} minutes{fewer} ...")
        count = min(fits, ROUND * self.accelerator.num_processes)
        while count:
            began, part = self.left(), slice(len(self.outcomes), len(self.outcomes) + count)
            rollouts, outcomes = self.draw(self.problems[part], self.seeds[part], self.n)
            self.halves.add(rollouts, outcomes)
            if not len(self.outcomes):
                run.sample(rollouts, L.informative(outcomes.correct), 0)
            self.outcomes = self.outcomes.followed_by(outcomes)
            each = max(began - self.left(), 1e-9) / count
            count = min(wanted - len(self.outcomes), max(0, int(SAFE * self.left() / each)))
        return measured


# ----------------------------------------------------------------------------------------------------------- in words


def not_measured(found: dict[str, Any]) -> str:
    """Say why V_w / V_b cannot be estimated, and what to change; "" if it can."""
    prompts, never, always = found["prompts"], found["solved"]["never"], found["solved"]["always"]
    informative = prompts - never - always
    if always == prompts:
        return "Every response is right: there is nothing to learn from these problems. Take harder ones."
    if never == prompts:
        return (
            f"None of {prompts * found['rollouts']:,} responses is right (reward 1; the largest reward is "
            f"{found['reward_max']:.3g}), so there is nothing to learn from. Read samples.jsonl: is the form of the "
            "answer wrong, or are responses cut? If not, take easier problems."
        )
    if informative < FEW:
        factor = FEW / max(informative, 1)
        fix = f"--sample_prompts {math.ceil(prompts * factor)}, or add problems"
        if prompts < found["wanted"]:
            fix = f"--max_minutes {math.ceil(1.5 * factor * found['minutes'])}"
        return (
            f"V_w / V_b was not measured: {informative} of {prompts} prompts have right and wrong responses, and an "
            f"estimate needs {FEW}. Set {fix}."
        )
    return "" if found["ratio"] else "The estimate of V_w is not positive: raise --sample_prompts."


def digits(x: float) -> str:
    """Write a number with two digits and without a power of ten: 0.25, 2.3, 18, 120, 1,700."""
    return f"{x:.2g}" if x < 99.5 else f"{float(f'{x:.2g}'):,.0f}"


def aligned(rows: list[list]) -> list[str]:
    widths = [max(len(str(x)) for x in column) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(f"{x!s:>{w}}" for x, w in zip(row, widths, strict=True)) for row in rows]


def paragraph(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def problems_part(found: dict[str, Any], config: Config) -> list[str]:
    lines = [f"  Prompts by the share of right responses among their {found['rollouts']} rollouts:"]
    for name, count in found["solved"].items():
        lines.append(f"    {name:9} {count:5} {'#' * round(50 * count / found['prompts'])}".rstrip())
    verdicts = ", ".join(f"{count:,} {reason}" for reason, count in found["reasons"].items())
    least, low, middle, high, most = (f"{x:,.0f}" for x in found["tokens"])
    return [*lines, paragraph(
        f"A step trains only on prompts with right and wrong responses. Verdicts: {verdicts}. A response has {least} "
        f"to {most} tokens, half of them {low} to {high}, median {middle}; {found['truncated']:.1%} reach "
        f"--max_response_tokens {config.max_response_tokens}."
    )]  # fmt: skip


def time_part(found: dict[str, Any], config: Config) -> list[str]:
    n, measured = config.rollouts_per_prompt, {n: x for n, x in found["seconds"].items() if n}
    rows = [["seconds of one prompt, measured at N =", *measured]]
    rows += [[stage.replace("_", " "), *(digits(x[stage]) for x in measured.values())] for stage in STAGES]
    stages = ", ".join(f"{name.replace('_', ' ')} {digits(x)}" for name, x in found["step"].items())
    beyond = "" if n in measured else f" N = {n} was too slow to time within --max_minutes: this is extrapolated."
    return [*aligned(rows), paragraph(
        "Roll out samples and judges the responses, score computes their log-probs, update is the training. A prompt "
        f"costs the time of {digits(found['prompt_cost'])} rollouts. A step of N = {n} and B = "
        f"{config.prompts_per_step} takes about {digits(sum(found['step'].values()))} s: {stages}.{beyond}"
    )]  # fmt: skip


def noise_part(found: dict[str, Any], best: Guess, config: Config) -> list[str]:
    n, b = config.rollouts_per_prompt, config.prompts_per_step
    seen = "was not measured. These are the usual values"
    if found["ratio"]:
        inverse, error = found["ratio"].values()
        seen = (
            f"comes from this sample (V_b / V_w = {inverse:.2g} ± {error:.2g}, one standard error) and from the usual "
        )
        seen += "values, 4 to 2,500"
    rows: list[list] = [["N", "prompts drawn", "kept", "seconds a step", "noise in the same time"]]
    for row in found["table"]:
        kept, noise = f"{row['kept']:,.0f}", f"{row['noise']:.2f}"
        rows.append([row["n"], f"{row['drawn']:,}", kept, digits(row["seconds"]), noise])
    return [paragraph(
        "Noise is the squared distance of a step's gradient from the mean of many such steps. V_w is the part that "
        "comes from the rollouts of a prompt: more rollouts reduce it. V_b comes from the choice of prompts: only more "
        f"prompts reduce it. V_w / V_b = {digits(best.ratio)}, between {digits(best.ratio_low)} and "
        f"{digits(best.ratio_high)} (95%); it {seen}."
    ), *aligned(rows), paragraph(
        f"Every row has B = {b}: a step draws prompts until {b} are kept. In the same time a small N takes more steps, "
        f"and the column is the noise of their mean, divided by the noise of N = {n}. Less is better."
    )]  # fmt: skip


def advice(found: dict[str, Any], best: Guess, config: Config, problems: int) -> list[str]:
    """Name the flags to type, how sure they are, and how to become surer."""
    asked, b = config.rollouts_per_prompt, config.prompts_per_step
    rows = {row["n"]: row for row in found["table"]}
    rate = brorl.scaled_learning_rate(config.learning_rate, best.n * b, asked * b)
    text = f"Best guess: N = {best.n} with B = {b}."
    if best.n != asked:
        text += f" {digits(rows[asked]['seconds'] / rows[best.n]['seconds'])} of its steps take as long as one of "
        text += f"N = {asked}, and their mean has {rows[best.n]['noise']:.2f} of its noise."
    why = not_measured(found)
    word = "quite sure" if best.sure >= 0.9 else "fairly sure" if best.sure >= 0.6 else "not sure"
    sure = f"How sure: {'a guess without a measurement of V_w / V_b' if why else word}. "
    sure += "For usual values of V_w / V_b, no" if why else "No"
    sure += f" other N of the table has over 20% less noise, with probability {min(best.sure, 0.99):.0%}."
    if best.low != best.high:
        sure += f" Any N from {best.low} to {best.high} could be the best (95%)."
    more = min(4 * found["prompts"], problems)
    if not why and best.sure < 0.9 and more > found["prompts"]:
        minutes = math.ceil(found["minutes"] * more / found["prompts"])
        sure += f" To be surer: --sample_prompts {more} --max_minutes {max(10, minutes)}."
    rest = (
        "The learning rate follows sqrt(N x B), section 4.2.1: search around it. V_w / V_b usually falls while a "
        "policy learns, and the best N with it: --log_noise measures it along a run. On a real model seeds differed "
        "by more than N did (docs/which_n.md)."
    )
    if b <= 8:
        rest += f" B = {b} is small: whitening over few prompts favours rarely solved ones, which no noise shows."
    flags = f"    --rollouts_per_prompt {best.n} --prompts_per_step {b} --learning_rate {rate:.2g}"
    return [*([paragraph(why)] if why else []), paragraph(text), flags, paragraph(sure), paragraph(rest)]


# ---------------------------------------------------------------------------------------------------------- the whole


def report(config: Config, accelerator: Accelerator, setup: train.Setup, own: argparse.Namespace) -> dict[str, Any]:
    """Measure, print and write the run's folder. Returns the numbers of which_n.json."""
    sample = Sample(config, accelerator, setup, own)
    measured = sample.measure()
    outcomes, folder = sample.outcomes, setup.run.folder
    correct = outcomes.correct.sum(-1).tolist()
    fixed = config.updates_per_step * sample.optimizer_step
    cost = Cost(measured, Kept(correct, sample.n), fixed, config.prompts_per_step)
    reasons = outcomes.reason.flatten().bincount(minlength=len(REASONS)).tolist()
    quarters = [math.ceil(4 * c / sample.n) + (c == sample.n) for c in correct]
    gram = sample.halves.gram()
    ratio = ratio_of(gram, len(correct), sample.halves.n) if len(gram) >= 2 * FEW else None
    best = guess(cost, [int(row["n"]) for row in cost.table(USUAL, config)], ratio)
    found: dict[str, Any] = {
        "model": short(config.model), "prompts": len(correct), "rollouts": sample.n, "correct": correct,
        "solved": {name: quarters.count(i) for i, name in enumerate(SOLVED)},
        "tokens": np.quantile(outcomes.length.flatten().numpy(), (0, 0.25, 0.5, 0.75, 1)).tolist(),
        "truncated": float(outcomes.truncated.double().mean()), "reward_max": float(outcomes.reward.max()),
        "reasons": {name: count for name, count in zip(REASONS, reasons, strict=True) if count},
        "seconds": measured, "prompt_cost": cost.of_a_prompt(), "step": cost.step(config.rollouts_per_prompt, config),
        "ratio": ratio and ratio._asdict(), "best": best._asdict(), "table": cost.table(best.ratio, config),
        "minutes": own.max_minutes - sample.left() / 60, "wanted": len(sample.problems),
    }  # fmt: skip
    if accelerator.is_main_process:
        parts = {
            "How often are the problems solved?": problems_part(found, config),
            "How long does a step take on this machine?": time_part(found, config),
            f"Which N has the least noise for B = {config.prompts_per_step}?": noise_part(found, best, config),
            "Advice": advice(found, best, config, len(setup.data.problems)),
        }
        print(f"\n{found['model']}: {len(correct)} prompts x {sample.n} rollouts, {found['minutes']:.1f} minutes")
        for title, lines in parts.items():
            print("\n".join(["", title, *lines]))
        write(folder / "which_n.json", json.dumps(found, indent=2) + "\n")
        print(f"\nwrote {folder}/: which_n.json (these numbers), samples.jsonl (some responses)")
    return found


class NoiseLog:
    """A callback of train.train: every few steps a line of noise.jsonl with V_w and V_b before the step's first update.

    After --resume a step can have two lines, and the last one counts.
    """

    def __init__(self, every: int, config: Config, accelerator: Accelerator, setup: train.Setup):
        self.every, self.config, self.accelerator, self.setup = every, config, accelerator, setup

    def __call__(self, step: int, rollouts: list[Rollout], outcomes: Outcomes) -> None:
        """rollouts: all that this process drew in the step; outcomes: of all processes."""
        if (step - 1) % self.every:
            return
        halves = HalfGroups(self.setup.policy, self.config.rollouts_per_prompt, self.config, self.accelerator)
        halves.add(rollouts, outcomes)
        gram, prompts = halves.gram(), len(outcomes)
        row: dict[str, Any] = {"step": step, "prompts": prompts, "informative": len(gram) // 2}
        if len(gram) >= 4:
            row |= estimate(gram, prompts, halves.n)._asdict()
            ratio = ratio_of(gram, prompts, halves.n)
            row |= ratio._asdict() if ratio else {}
        self.setup.run.append("noise.jsonl", row)
        self.setup.run.lap("log_noise")


def main(argv: list[str] | None = None) -> dict[str, Any] | None:
    """Run the program with these arguments. Returns the numbers of which_n.json."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.which_n", description=__doc__, epilog="All settings of train.py work here too.",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--sample_prompts", type=int, default=256, help="prompts of the sample (default: 256)")
    parser.add_argument("--sample_rollouts", type=int, default=64, help="rollouts of each, at least 4 (default: 64)")
    parser.add_argument("--max_minutes", type=float, default=10.0, help="minutes of the measurement (default: 10)")
    parser.add_argument(
        "--log_noise", type=int, help="train, and write V_w and V_b every LOG_NOISE steps to noise.jsonl"
    )
    own, flags = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    own.began = time.perf_counter()
    given = {flag.partition("=")[0] for flag in flags}
    if "--name" not in given and own.log_noise is None:
        flags += ["--name", f"which_n-{time.strftime('%m%d-%H%M%S')}"]
    if "--data" in given and "--eval_data" not in given and own.log_noise is None:
        flags += ["--eval_data", str(TINY / "test.jsonl")]  # nothing is evaluated
    logging.disable_progress_bar()
    try:
        if own.sample_prompts < 1 or own.sample_rollouts < 4 or not own.max_minutes > 0:
            raise Refusal("--sample_prompts must be at least 1, --sample_rollouts at least 4, --max_minutes positive")
        config, sources = read_settings((__doc__ or "").partition("\n")[0], flags)
        if config.eval_only or (config.resume and own.log_noise is None):
            raise Refusal("--eval_only and --resume belong to train.py: leave them out here")
        if own.log_noise is not None and (own.log_noise < 1 or config.rollouts_per_prompt < 4):
            raise Refusal("--log_noise must be at least 1, and needs --rollouts_per_prompt of at least 4")
        accelerator = train.start_accelerator()
        if own.log_noise:
            setup = train.set_up(config, accelerator, sources)
            train.train(config, accelerator, setup, NoiseLog(own.log_noise, config, accelerator, setup))
            found = None
        else:
            if accelerator.is_main_process:
                print(f"this takes at most {own.max_minutes:g} minutes (--max_minutes); loading the model ...")
            with redirect_stdout(StringIO()):  # the introduction of a run speaks about training
                setup = train.set_up(config, accelerator, sources)
            found = report(config, accelerator, setup, own)
    except Refusal as refusal:
        train.refuse(refusal, 2)
    accelerator.wait_for_everyone()
    setup.engine.close()
    return found


if __name__ == "__main__":
    main()
