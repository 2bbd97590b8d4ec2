"""Section 4.2 before a run: how often are the problems solved, how long does a step take, and which N has least noise?

    python -m bench.which_n                                      the embedded policy, in a minute on 2 cores
    python -m bench.which_n --model M --data D [--sample_prompts 256]   the other settings of train.py too
    accelerate launch -m bench.which_n --model M --data D        on several processes

Nothing is trained. A sample of prompts gets rollouts by the functions of train.py. The output has five parts: how often
the prompts are solved and the share that dynamic sampling keeps at each N; some responses; the seconds of each stage at
several N; the noise of a step by N; and the advice, with the flags to type.

From N rollouts of a prompt comes an estimate of the gradient of p, the prompt's probability of a correct response. Its
mean does not depend on N, its noise does. If a step rolls out B prompts N times each, the trace of its covariance is

    noise(N, B) ≈ (V_b + V_w / (N - 1)) / B

    name here   symbol       meaning
    g           g_x          ∇p_x of prompt x
    mean2       |ḡ|²         squared norm of the mean of g_x over prompts
    between     V_b          E|g_x|² - |ḡ|²: how much prompts differ
    within      V_w          how much the rollouts of a prompt differ: the variance of (R - p) ∇log π(y), mean over x
    ratio       V_w / V_b    its interval: 2 standard errors of V_b / V_w by the jackknife, inverted
    cost        c_p / c_r    the cost of a prompt, in rollouts; 0 if only samples are counted
    kept        K_N          P(0 < #correct < N), mean over prompts
    seconds     t(N)         of one drawn prompt: roll_out(N) + K_N (score(N) + update(N)), linear between measured N

More rollouts shrink the second part only; more prompts shrink both. At equal cost B (c_p + N c_r) the noise is least at

    N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b)            two-stage cluster sampling (Cochran 1977, section 10.6)

Two halves of a group, n rollouts each with their own mean as the baseline, give two independent, unbiased estimates:

    h = 1/(n - 1) Σ_i (R_i - R̄_h) ∇log π(y_i),   E[h] = g_x,   E[h_0 · h_1] = |g_x|²,   E|h_0 - h_1|² / 2 = Var(h)

Var(h) = V_w / n + (|g_x|² + p(1-p) E|∇log π|²) / (n (n - 1)), and the law leaves out a share of order 1/N. With rewards
0 and 1, a group that dynamic sampling drops has h_0 = h_1 = 0 and counts as 0. A half-group takes one backward pass.
MOST random coordinates of its gradient are kept, scaled to keep the inner products unbiased. The law is about the
paper's advantages before whitening and clipping, and about the first step: V_w / V_b falls while a policy learns.
"""

from __future__ import annotations

import train  # first: train.py sets the environment that torch reads

# isort: split
import argparse
import json
import math
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.utils import logging

import brorl
import loss as L
from bench.common import POLICY, ROOT, machine, quiet
from trainer.policy import fsdp_requested, log_probs, micro_batches, score
from trainer.report import short
from trainer.rollouts import Outcomes, Rollout, roll_out, seed_of
from trainer.run import Progress, Sums, write
from trainer.settings import Config, Refusal, read_settings, recipe_of
from verify import REASONS

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # N of the table
TIMED = (4, 16)  # N that are timed, besides the sample's N and the configured N
TIMED_ROLLOUTS = {"cpu": 512, "cuda": 4096}  # most rollouts of the first timing, for each process
SWEEPS, QUICK = 6, 5.0  # timings are repeated up to 6 times, until one takes 5 seconds
ROUND = 16  # prompts of a round of the sample, for each process
HALF = 64  # most rollouts of a half-group: more would cost more and not improve V_b
MOST = 2**17  # coordinates of the gradient
ALIKE = 1.02  # within 2% of the least noise
ENDLESS = 1e12  # stands for V_w / V_b = ∞
FEW = 8  # V_b is not estimated from fewer informative prompts
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


def estimate(gram: Tensor, prompts: float, n: int) -> Variances:
    """Estimate V_w, V_b and |ḡ|² from inner products of half-group gradients.

    gram: (2M, 2M), of the half-groups 2x and 2x + 1 of each of M prompts. prompts: M and the dropped prompts.
    n: rollouts of a half-group. The estimates of Var(h), |g_x|² and |ḡ|² are unbiased.
    """
    m = len(gram) // 2
    pairs = gram.double().view(m, 2, m, 2)
    within = pairs.diagonal(dim1=0, dim2=2)  # (2, 2, M): the four products of a prompt's halves
    g2, squares = within[0, 1], (within[0, 0] + within[1, 1]) / 2
    across = (pairs.sum((0, 1, 2, 3)) - within.sum()) / 4  # Σ over x != y of the product of their means
    mean2 = across / (prompts * max(prompts - 1, 1))
    return Variances(
        within=float((n - 1) * (squares - g2).sum() / prompts),
        between=float(g2.sum() / prompts - mean2),
        mean2=float(mean2),
    )


def standard_errors(gram: Tensor, prompts: float, n: int) -> Variances:
    """Estimate the standard errors of `estimate` by the jackknife over all prompts, dropped ones included."""
    m = len(gram) // 2
    rows = torch.arange(2 * m).view(m, 2)
    without = [torch.cat([rows[:i], rows[i + 1 :]]).flatten() for i in range(m)]
    found = torch.tensor([estimate(gram[i][:, i], prompts - 1, n) for i in without], dtype=torch.float64)
    dropped = torch.tensor(estimate(gram, prompts - 1, n), dtype=torch.float64)
    mean = (found.sum(0) + (prompts - m) * dropped) / prompts
    spread = (found - mean).square().sum(0) + (prompts - m) * (dropped - mean).square()
    return Variances(*((prompts - 1) / prompts * spread).sqrt().tolist())


class Ratio(NamedTuple):
    """V_w / V_b and its interval. `high` is infinite if V_b may be 0, `value` if the estimate of V_b is below 0."""

    value: float
    low: float
    high: float

    @property
    def used(self) -> float:
        """The number that the table uses."""
        return self.value if math.isfinite(self.value) else self.low


def ratio_of(gram: Tensor, prompts: int, n: int) -> Ratio | None:
    """Estimate V_w / V_b, with the arguments of `estimate`. Returns None if the estimate of V_w is not positive."""
    found, errors = estimate(gram, prompts, n), standard_errors(gram, prompts, n)
    if found.within <= 0:
        return None
    inverse = found.between / found.within
    half = 2 * math.hypot(errors.between, inverse * errors.within) / found.within
    return Ratio(*(1 / x if x > 0 else math.inf for x in (inverse, max(inverse, 0) + half, inverse - half)))


class HalfGroups:
    """Gradients of the half-groups of informative prompts, over the rollouts of all processes.

    Under FSDP2 each process keeps coordinates of its part of the weights.
    """

    def __init__(self, policy, rollouts_per_prompt: int, config: Config, accelerator: Accelerator):
        self.policy, self.config, self.accelerator = policy, config, accelerator
        self.n = min(HALF, rollouts_per_prompt // 2)
        self.share_prompts = accelerator.unwrap_model(policy).share_prompts
        self.every = max(1.0, sum(p.numel() for p in policy.parameters()) / MOST)
        self.kept: list[tuple[Tensor, float]] = []  # of each weight: coordinates and their scale
        self.gradients: list[Tensor] = []

    def add(self, rollouts: list[Rollout], outcomes: Outcomes) -> None:
        """Add the gradients of both halves of every informative prompt of a round. rollouts: of this process."""
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
                (
                    loss * accelerator.num_processes
                ).backward()  # the ranks' gradients are averaged, and we want their sum
        slopes = [local(p.grad).flatten() for p in policy.parameters() if p.grad is not None]
        self.kept = self.kept or [self.coordinates(i, len(slope), slope.device) for i, slope in enumerate(slopes)]
        policy.zero_grad()
        return torch.cat([slope[at].float() * scale for slope, (at, scale) in zip(slopes, self.kept, strict=True)])

    def coordinates(self, number: int, size: int, device) -> tuple[Tensor, float]:
        """Draw the coordinates of a weight that are kept, and the scale that keeps inner products unbiased."""
        if (count := math.ceil(size / self.every)) >= size:
            return torch.arange(size, device=device), 1.0
        generator = torch.Generator().manual_seed(seed_of(0, number))
        return torch.randint(size, (count,), generator=generator).to(device), math.sqrt(size / count)

    def gram(self) -> Tensor:
        """Inner products of all half-groups, (2M, 2M)."""
        vectors = torch.stack(self.gradients).double()
        gram = vectors @ vectors.T
        return self.accelerator.reduce(gram, "sum").cpu() if fsdp_requested() else gram.cpu()


def local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


# ------------------------------------------------------------------------------------------ kept prompts and seconds


class Kept:
    """K_N from #correct of n rollouts per prompt.

    Up to N = n the estimate is unbiased: 1 - C(c_x, N) / C(n, N) - C(n - c_x, N) / C(n, N). For larger N a distribution
    of p is fitted: p ~ Beta(a, b), with shares of prompts that have p = 0 and p = 1.
    """

    def __init__(self, correct: list[int], n: int):
        from scipy.optimize import minimize
        from scipy.stats import betabinom

        self.correct, self.n = correct, n
        count, times = np.unique(correct, return_counts=True)

        def minus_log_likelihood(x: np.ndarray) -> float:
            shares = np.exp([0.0, *x[2:]]) / np.exp([0.0, *x[2:]]).sum()
            chance = shares @ [betabinom.pmf(count, n, *np.exp(x[:2])), count == 0, count == n]
            return float(-(times * np.log(chance + 1e-300)).sum())

        x = minimize(minus_log_likelihood, [0.0, 0.0, -2.0, -2.0], method="Nelder-Mead", bounds=[(-7, 7)] * 4).x
        self.a, self.b = map(float, np.exp(x[:2]))
        self.shares = (np.exp([0.0, *x[2:]]) / np.exp([0.0, *x[2:]]).sum()).tolist()  # of Beta, p = 0, p = 1

    def __call__(self, size: int) -> float:
        return self.counted(size) if size <= self.n else self.fitted(size)

    def counted(self, size: int) -> float:
        n, pass_at = self.n, brorl.pass_at_k_estimate
        return statistics.fmean(pass_at(n, c, size) + pass_at(n, n - c, size) - 1 for c in self.correct)

    def fitted(self, size: int) -> float:
        """1 - E p^N - E (1 - p)^N over the prompts with 0 < p < 1."""
        from scipy.special import betaln

        all_right, all_wrong = (betaln(self.a + k, self.b + size - k) - betaln(self.a, self.b) for k in (size, 0))
        return self.shares[0] * float(1 - np.exp(all_right) - np.exp(all_wrong))


class Cost:
    """Seconds by N. measured: N -> seconds of one prompt with N rollouts, by stage."""

    def __init__(self, measured: dict[int, dict[str, float]], kept: Kept):
        self.measured, self.kept = measured, kept

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
        return drawn + self.kept(n) * sum(of_kept)

    def of_a_prompt(self) -> float:
        """c_p / c_r: where the line through the smallest and the largest measured N meets N = 0."""
        low, high = min(self.measured), max(self.measured)
        first, last = (sum(self.measured[n].values()) for n in (low, high))
        return max(0.0, first * (high - low) / max(last - first, 1e-9) - low)

    def step(self, config: Config) -> dict[str, float]:
        """Seconds of a training step by stage. All informative prompts are trained on."""
        n, rate = config.rollouts_per_prompt, max(self.kept(config.rollouts_per_prompt), 1e-3)
        drawn = train.prompts_wanted(Outcomes.none(n), Progress(tried=1e6, informative=1e6 * rate), config)
        used = {"roll_out": drawn, "score": drawn * rate, "update": drawn * rate}
        return {stage: seconds * used[stage] for stage, seconds in self.stages(n).items()}

    def noise(self, n: int, ratio: float, by: str) -> float:
        """Noise at equal "samples" or equal "time". Only quotients of two values have a meaning."""
        return noise_at_equal_cost(n, ratio) * (self.seconds(n) / n if by == "time" else 1)

    def best(self, ratio: float) -> int:
        """N* at equal time, from N = 4 on: for smaller N the law is rough."""
        some = sorted({round(4 * 1.02**k) for k in range(400)})
        return some[-1] if math.isinf(ratio) else min(some, key=lambda n: self.noise(n, ratio, "time"))

    def table(self, ratio: Ratio | None, config: Config) -> list[dict[str, float]]:
        """A row for each N. b: kept prompts of a step as long as the configured one; noise over the least."""
        asked = config.rollouts_per_prompt
        sizes = sorted({*SIZES, asked})
        drawn = config.prompts_per_step / max(self.kept(asked), 1e-9)
        rows: list[dict[str, float]] = [
            {"n": n, "kept": self.kept(n), "seconds": (t := self.seconds(n)),
             "b": drawn * self.kept(n) * self.seconds(asked) / t} for n in sizes
        ]  # fmt: skip
        for by in ("samples", "time") if ratio else ():
            least = min(self.noise(n, ratio.used, by) for n in sizes)  # type: ignore[union-attr]
            for row in rows:
                row[by] = self.noise(int(row["n"]), ratio.used, by) / least  # type: ignore[union-attr]
        return rows


# --------------------------------------------------------------------------------------------------------- the sample


class Sample:
    """The measurements: seconds at several N, and rollouts and half-group gradients of the sampled prompts."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: train.Setup, prompts: int, rollouts: int):
        self.config, self.accelerator, self.setup, self.n = config, accelerator, setup, rollouts
        self.plain = accelerator.unwrap_model(setup.policy)
        for group in setup.optimizer.param_groups:  # type: ignore[union-attr]
            group["lr"] = 0.0  # the updates that are timed change no weight
        count = min(prompts, len(setup.data.problems))
        self.problems, self.seeds = setup.progress.next_problems(setup.data.problems, count, config.seed)
        self.outcomes = Outcomes.none(rollouts)
        self.halves = HalfGroups(setup.policy, rollouts, config, accelerator)

    def draw(self, problems: list, seeds: list[int], n: int) -> tuple[list[Rollout], Outcomes]:
        """Stages 2 and 3 of train.py."""
        setup = self.setup
        setup.engine.wake()
        drawn = roll_out(setup.engine, problems, n, seeds, setup.sampling, setup.judge, self.accelerator)
        setup.engine.sleep()
        return drawn

    def seconds(self, n: int, rollouts: int) -> dict[str, float]:
        """Time one prompt with n rollouts by stage, on the slowest process. Stages 5 to 7 are functions of train.py.

        One mini-batch is updated, and its time is scaled to all mini-batches.
        """
        config, accelerator, setup = self.config, self.accelerator, self.setup
        step = max(TIMED_ROLLOUTS["cpu"], config.prompts_per_step * config.rollouts_per_prompt)
        count = max(2, min(rollouts // max(n, 64), step // n))
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
        updated = (time.perf_counter() - scored) * number.numel() / int((number == 0).sum())
        seconds = dict(zip(STAGES, (rolled_out - began, scored - rolled_out, updated), strict=True))
        return {stage: max(gather_object([x])) / count for stage, x in seconds.items()}

    def look(self, first: int, count: int) -> None:
        """Roll out the next prompts of the sample, and add the gradients of their half-groups."""
        part = slice(first, first + count)
        rollouts, outcomes = self.draw(self.problems[part], self.seeds[part], self.n)
        self.halves.add(rollouts, outcomes)
        if not first:
            self.setup.run.sample(rollouts, L.informative(outcomes.correct), 0)
        self.outcomes = self.outcomes.followed_by(outcomes)

    def times(self) -> dict[int, dict[str, float]]:
        """Time several N. A quick timing is repeated with double the prompts, up to the size of a step.

        The smaller time of the last two counts: few prompts do not fill a processor, and other programs may disturb it.
        """
        sizes = sorted({*(n for n in TIMED if n < self.n), self.n, max(self.n, self.config.rollouts_per_prompt)})
        rollouts = TIMED_ROLLOUTS.get(self.accelerator.device.type, 512) * self.accelerator.num_processes
        self.seconds(sizes[0], rollouts)  # the first call of anything is slow
        sweeps: list[dict[int, dict[str, float]]] = []
        began = self.setup.run.seconds()
        while len(sweeps) < SWEEPS:
            sweeps.append({n: self.seconds(n, rollouts) for n in sizes})
            rollouts *= 2
            ended = self.setup.run.seconds()
            if ended - began > QUICK:
                break
            began = ended
        return {n: {stage: min(sweep[n][stage] for sweep in sweeps[-2:]) for stage in STAGES} for n in sizes}

    def measure(self, max_minutes: float) -> dict[int, dict[str, float]]:
        """Time the stages, then look at a first round of prompts, and at more as far as the minutes allow."""
        run, width = self.setup.run, ROUND * self.accelerator.num_processes
        found, began = self.times(), run.seconds()
        while (done := len(self.outcomes)) < len(self.problems) and width:
            self.look(done, width)
            each = (run.seconds() - began) / len(self.outcomes)
            left = 60 * max_minutes - run.seconds()
            width = min(len(self.problems) - len(self.outcomes), max(0, int(left / each)))
        return found


# ----------------------------------------------------------------------------------------------------------- in words


def nothing_seen(found: dict[str, Any]) -> str:
    """Say why V_w / V_b cannot be estimated, and what to change; "" if it can."""
    prompts, never, always = found["prompts"], found["solved"]["never"], found["solved"]["always"]
    informative = prompts - never - always
    if always == prompts:
        return "Every response is right: there is nothing to learn from these problems. Take harder ones."
    if never == prompts and found["reward_max"] > 0:
        return (
            f"No response is right, and the largest reward is {found['reward_max']:.3g}. A response is right if its "
            "reward is 1, and only prompts with right and wrong responses are trained on: give a complete answer 1."
        )
    if never == prompts:
        return (
            f"None of {prompts * found['rollouts']:,} responses is right: there is nothing to learn from. Read the "
            "verdicts and the responses above: is the form of the answer wrong, or are responses cut? If not, take "
            "easier problems."
        )
    if informative == 0:
        return "Every prompt is always or never solved: no prompt has right and wrong responses to learn from."
    if prompts < FEW:
        return f"{prompts} prompt(s) are too few to estimate V_b: raise --sample_prompts, or add problems."
    if informative < FEW:
        more = math.ceil(prompts * FEW / informative)
        return f"Only {informative} of {prompts} prompts have right and wrong responses: set --sample_prompts {more}."
    return ""


def plain(x: float) -> str:
    """Write a number with two digits and without a power of ten: 0.25, 2.3, 18, 120, 1,700."""
    return f"{x:.2g}" if x < 99.5 else f"{float(f'{x:.2g}'):,.0f}"


def aligned(rows: list[list]) -> list[str]:
    widths = [max(len(str(x)) for x in column) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(f"{x!s:>{w}}" for x, w in zip(row, widths, strict=True)) for row in rows]


def paragraph(text: str, indent: str = "  ") -> str:
    return textwrap.fill(text, 110, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def problems_part(found: dict[str, Any], kept: Kept, config: Config) -> list[str]:
    n, table = found["rollouts"], found["table"]
    lines = [paragraph(
        f"{found['prompts']} prompts got {n} rollouts (sampled responses) each. A prompt is worth training on if some "
        "of its rollouts are right and some are wrong; dynamic sampling keeps only such prompts. Solved:"
    )]  # fmt: skip
    for name, count in found["solved"].items():
        lines.append(f"    {name:9} {count:5} {'#' * round(50 * count / found['prompts'])}".rstrip())
    lines += aligned([["N, rollouts of each prompt", *(row["n"] for row in table)],
                      ["share of prompts kept", *(f"{row['kept']:.0%}" for row in table)]])  # fmt: skip
    shares = zip(kept.shares[1:], ("p = 0", "p = 1"), strict=True)
    fitted = f"p ~ Beta({kept.a:.2g}, {kept.b:.2g})" + "".join(f", {x:.0%} {y}" for x, y in shares if x > 0.005)
    lines.append(paragraph(
        f"Up to N = {n} the share is counted: the chance that N of a prompt's {n} rollouts, picked at random, are "
        f"neither all right nor all wrong. For larger N it follows from a fit: {fitted}, with p the probability of a "
        "right response."
    ))  # fmt: skip
    for name in brorl.RECIPES:
        recipe = recipe_of(replace(config, recipe=name))
        size, b = (int(recipe[x][0]) for x in ("rollouts_per_prompt", "prompts_per_step"))
        drawn = f"about {b / kept(size):,.0f} prompts" if kept(size) > 1e-3 else "more prompts than --refill allows"
        lines.append(paragraph(f"--recipe {name} (N = {size}): a step draws {drawn} to keep B = {b}."))
    return lines


def responses_part(found: dict[str, Any], samples: list[dict], config: Config) -> list[str]:
    least, low, middle, high, most = found["tokens"]
    verdicts = ", ".join(f"{count:,} {reason}" for reason, count in found["reasons"].items())
    lines = [paragraph(
        f"Tokens: {least:,.0f} to {most:,.0f}; the middle half has {low:,.0f} to {high:,.0f}, median {middle:,.0f}. "
        f"{found['truncated']:.1%} of the responses reach --max_response_tokens {config.max_response_tokens}. "
        f"Verdicts: {verdicts}; mean reward {found['reward']:.3g}. Some responses, long ones without their beginning:"
    )]  # fmt: skip
    for row in samples:
        prompt = row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][-1]["content"]
        for name, text in (("prompt", prompt), (row["reason"], row["response"])):
            lines.append(paragraph(f"{name}: {' '.join(text.split())[-300:]}", "    "))
    return lines


def time_part(found: dict[str, Any], config: Config) -> list[str]:
    measured, step = found["seconds"], found["step"]
    rows = [["seconds of one kept prompt, measured at N =", *measured]]
    rows += [[stage.replace("_", " "), *(plain(x[stage]) for x in measured.values())] for stage in STAGES]
    stages = ", ".join(f"{name.replace('_', ' ')} {plain(x)}" for name, x in step.items())
    return [*aligned(rows), paragraph(
        "Roll out draws and judges, score computes log-probs of policy and reference, update is one pass of training "
        "(here with a learning rate of 0). Between the smallest and the largest of these N, a prompt costs the time of "
        f"{plain(found['prompt_cost'])} rollouts. A step of N = {config.rollouts_per_prompt} and "
        f"B = {config.prompts_per_step} takes about {plain(sum(step.values()))} s: {stages}."
    )]  # fmt: skip


def interval(of: Iterable[float]) -> str:
    """Write N* and its interval: 6 (5 to 9)."""
    middle, low, high = (f"{x:.0f}" if math.isfinite(x) else "any larger N" for x in of)
    return f"{middle} ({low} to {high})" if low != high else middle


def noise_part(found: dict[str, Any], ratio: Ratio | None, cost: Cost) -> list[str]:
    lines = [paragraph(
        "Noise is the squared distance of one step's gradient from the average over many such steps: (V_b + V_w / "
        "(N - 1)) / (prompts drawn). V_w, within prompts: how much a prompt's gradient changes with new rollouts; more "
        "rollouts or more prompts reduce its part. V_b, between prompts: how much the exact gradients of prompts "
        "differ; only more prompts reduce it."
    )]  # fmt: skip
    if ratio is None:
        return [*lines, paragraph("Not seen in this sample; the advice says why.")]
    samples = interval(best_n(x) for x in (ratio.used, *ratio[1:]))
    by_time = interval(cost.best(x) if math.isfinite(x) else x for x in (ratio.used, *ratio[1:]))
    sure = f"(95%, {found['prompts']} prompts)"
    seen = f"V_w / V_b = {plain(ratio.used)}, between {plain(ratio.low)} and {plain(ratio.high)} {sure}"
    if math.isinf(ratio.high):
        taken = "this bound" if math.isinf(ratio.value) else f"the estimate, {plain(ratio.used)}"
        seen = f"V_w / V_b is at least {plain(ratio.low)} {sure}, and V_b may be 0; the table uses {taken}"
    lines.append(paragraph(
        f"{seen}. The least noise at equal samples is at N = 1 + sqrt(V_w / V_b) = {samples}, and at equal time, by "
        f"the measured seconds, at N = {by_time}."
    ))  # fmt: skip
    head: list = ["N", "noise at equal samples", "noise at equal time", "seconds a drawn prompt", "drawn", "kept (B)"]
    rows = [
        [x["n"], f"{x['samples']:.2f}", f"{x['time']:.2f}", plain(x["seconds"]),
         f"{x['b'] / max(x['kept'], 1e-9):,.0f}", f"{x['b']:,.0f}"] for x in found["table"]
    ]  # fmt: skip
    return [*lines, *aligned([head, *rows]), paragraph(
        "Noise is divided by the least of its column (1.00 is best). Equal samples: steps with the same number of "
        "rollouts. Equal time: steps as long as the configured one; the last columns are the prompts that such a step "
        "draws and keeps. Drawn prompts are rolled out; kept ones are also scored and trained on. Seconds between the "
        "measured N are interpolated."
    )]  # fmt: skip


def advice(found: dict[str, Any], ratio: Ratio, cost: Cost, config: Config, problems: int) -> str:
    """Name the flags to type, how sure they are, and how the best N changes while the policy learns."""
    asked, b = config.rollouts_per_prompt, config.prompts_per_step
    rows = {row["n"]: round(row["b"]) for row in found["table"] if 1 <= round(row["b"]) <= problems}

    def alike(x: float) -> list[int]:
        """The N within 2% of the least noise, the smallest first: the best N falls while the policy learns."""
        noise = {n: cost.noise(n, x, "time") for n in rows}
        return [n for n in sorted(rows) if noise[n] <= ALIKE * min(noise.values())]

    def less(x: float) -> str:
        """The noise of N over the noise of the configured N."""
        return f"{cost.noise(n, x, 'time') / cost.noise(asked, x, 'time'):.2f}"

    n, low, high = alike(ratio.used)[0], alike(ratio.low)[0], alike(min(ratio.high, ENDLESS))[-1]
    text = f"N = {n} with B = {rows[n]:,} takes as long as N = {asked} with B = {b:,} and has "
    text += f"{less(ratio.used)} of its noise"
    if n == asked:
        text = f"Keep N = {asked} with B = {b:,}: no other N of the table has over 2% less noise in the same time"
    elif low != high:
        text += f" ({less(ratio.low)} to {less(min(ratio.high, ENDLESS))} over the interval of V_w / V_b)"
    text += f": --rollouts_per_prompt {n} --prompts_per_step {rows[n]}."
    if low != high:
        half = 1 / ratio.low - 1 / ratio.used  # of the interval of V_b / V_w; 0.6 of it gives N* to a factor of 2
        more = min(max(2.0, (half * ratio.used / 0.6) ** 2 if math.isfinite(ratio.value) else 4.0), 16.0)
        more = min(more, problems / found["prompts"])
        text += f" Any N of the table from {low} to {high} could be best."
        if more > 1.2:
            wider = more * found["prompts"]
            text += (
                f" --sample_prompts {wider:.0f} would make the intervals about {math.sqrt(more):.1f} times narrower."
            )
    return text + (
        " V_w / V_b usually falls while the policy learns (for the embedded policy to a fifth, docs/which_n.md), and "
        "the best N with it. This is therefore the smallest N within 2% of the least noise. The best length of a step "
        "is not measured here. Tune the learning rate again after a change of N or B. Less noise gave more learning in "
        "small worlds; on a real model seeds differed by more than N did (docs/which_n.md)."
    )


# ---------------------------------------------------------------------------------------------------------- the whole


def report(config: Config, accelerator: Accelerator, setup: train.Setup, own: argparse.Namespace) -> dict[str, Any]:
    """Measure, print and write the run's folder. Returns the numbers of which_n.json."""
    sample = Sample(config, accelerator, setup, own.sample_prompts, own.sample_rollouts)
    measured = sample.measure(own.max_minutes)
    outcomes, run = sample.outcomes, setup.run
    correct = outcomes.correct.sum(-1).tolist()
    kept = Kept(correct, sample.n)
    cost, lengths = Cost(measured, kept), outcomes.length.double().flatten()
    reasons = outcomes.reason.flatten().bincount(minlength=len(REASONS)).tolist()
    quarters = [math.ceil(4 * c / sample.n) + (c == sample.n) for c in correct]
    found: dict[str, Any] = {
        "model": short(config.model), "prompts": len(correct), "rollouts": sample.n, "correct": correct,
        "solved": {name: quarters.count(i) for i, name in enumerate(SOLVED)},
        "fit": {"a": kept.a, "b": kept.b, "shares": kept.shares},
        "tokens": np.quantile(lengths.numpy(), (0, 0.25, 0.5, 0.75, 1)).tolist(),
        "truncated": outcomes.truncated.double().mean().item(), "reward": outcomes.reward.mean().item(),
        "reward_max": outcomes.reward.max().item(),
        "reasons": {name: count for name, count in sorted(zip(REASONS, reasons, strict=True)) if count},
        "seconds": measured, "prompt_cost": cost.of_a_prompt(), "step": cost.step(config),
    }  # fmt: skip
    found["advice"] = nothing_seen(found)
    ratio = None if found["advice"] else ratio_of(sample.halves.gram(), len(correct), sample.halves.n)
    finite = ratio and {name: x if math.isfinite(x) else None for name, x in ratio._asdict().items()}
    found |= {"ratio": finite, "table": cost.table(ratio, config)}
    if ratio:
        found["advice"] = advice(found, ratio, cost, config, len(setup.data.problems))
    found["advice"] = found["advice"] or "V_w is not positive in this sample: raise --sample_prompts."
    minutes = run.seconds() / 60
    if accelerator.is_main_process:
        fewer = f" of {len(sample.problems)}, as --max_minutes allows," * (len(correct) < len(sample.problems))
        print(f"{found['model']}: {len(correct)} prompts{fewer} in {minutes:.1f} minutes")
        samples = [json.loads(line) for line in (run.folder / "samples.jsonl").read_text().splitlines()]
        parts = {
            "Problems": problems_part(found, kept, config),
            "Responses": responses_part(found, samples, config),
            "Time, on this machine": time_part(found, config),
            "Noise: how far one step is from the average step": noise_part(found, ratio, cost),
            "Advice": [paragraph(found["advice"])],
        }
        for title, lines in parts.items():
            print("\n".join(["", title, *lines]))
        write(run.folder / "which_n.json", json.dumps(found, indent=2) + "\n")
        print(f"\nwrote {run.folder}/: which_n.json (these numbers), samples.jsonl")
    return found


def predicted_and_real(args: argparse.Namespace) -> None:
    """Seconds of a step by stage, as predicted here and of real steps: processor time, the least of several steps."""
    quiet(args)
    print(machine())
    print(f"{'N':>5} {'B':>5}  {'stage':10} {'predicted':>10} {'real':>10}")
    names = ("tiny/train.jsonl", "tiny/test.jsonl") if args.model == POLICY else ("largest.jsonl", "largest_test.jsonl")
    problems, held_out = (Path(ROOT if args.model == POLICY else args.model, name) for name in names)
    short_answers = [] if args.model == POLICY else ["--max_response_tokens=12", "--eval_max_response_tokens=12"]
    for n, b in zip(args.rollouts, args.prompts, strict=True):
        with (
            tempfile.TemporaryDirectory() as folder,
            redirect_stdout(StringIO()),
            mock.patch.object(time, "perf_counter", time.process_time),
        ):
            few = Path(folder, "few.jsonl")
            few.write_text("".join(held_out.read_text().splitlines(keepends=True)[:4]))
            flags = [
                f"--model={args.model}", f"--data={problems}", f"--eval_data={few}", f"--output_dir={folder}",
                f"--rollouts_per_prompt={n}", f"--prompts_per_step={b}", "--learning_rate=1e-12", "--refill=20",
                f"--max_steps={args.steps + 1}", "--eval_every=0", "--eval_samples=1", "--eval_temperature=0",
                "--max_tokens_per_micro_batch=4096", *short_answers,
            ]  # fmt: skip
            step = main([*flags, f"--sample_prompts={args.sample}", "--max_minutes=1000"])["step"]
            config, sources = read_settings("", [*flags, "--name=run"])
            accelerator = train.start_accelerator()
            train.train(config, accelerator, train.set_up(config, accelerator, sources))
            timing = [json.loads(line) for line in Path(folder, "run/timing.jsonl").read_text().splitlines()][2:]
        found = {stage: (step[stage], min(row[stage] for row in timing)) for stage in STAGES}
        found["step"] = tuple(map(sum, zip(*found.values(), strict=True)))  # type: ignore[assignment]
        for name, (ours, real) in found.items():
            print(f"{n:5} {b:5}  {name:10} {ours:9.2f}s {real:9.2f}s  {ours / real:.2f}", flush=True)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the program with these arguments. Returns the numbers of which_n.json."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.which_n", description=__doc__, epilog="All settings of train.py work here too.",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--sample_prompts", type=int, default=64, help="prompts of the sample (default: 64)")
    parser.add_argument("--sample_rollouts", type=int, default=64, help="rollouts of each, at least 4 (default: 64)")
    parser.add_argument("--max_minutes", type=float, default=20.0, help="after these, no more prompts (default: 20)")
    own, flags = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    given = {flag.partition("=")[0] for flag in flags}
    if "--name" not in given:
        flags += ["--name", "which_n"]
    if "--data" in given and "--eval_data" not in given:
        flags += ["--eval_data", str(ROOT / "tiny/test.jsonl")]  # nothing is evaluated
    logging.disable_progress_bar()
    try:
        if own.sample_prompts < 1 or own.sample_rollouts < 4 or not own.max_minutes > 0:
            raise Refusal("--sample_prompts must be at least 1, --sample_rollouts at least 4, --max_minutes positive")
        config, sources = read_settings((__doc__ or "").partition("\n")[0], flags)
        if config.resume or config.eval_only:
            raise Refusal("--resume and --eval_only belong to train.py: leave them out here")
        accelerator = train.start_accelerator()
        with redirect_stdout(StringIO()):  # the introduction of a run speaks about held-out problems
            setup = train.set_up(config, accelerator, sources)
    except Refusal as refusal:
        train.refuse(refusal, 2)
    found = report(config, accelerator, setup, own)
    accelerator.wait_for_everyone()
    setup.engine.close()
    return found


if __name__ == "__main__":
    main()
