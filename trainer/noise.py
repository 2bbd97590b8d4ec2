"""Which N does this model deserve? What N does to the noise of a step, measured while training: `--log_noise`.

From N rollouts of a prompt comes an estimate of the gradient of p, the prompt's probability of a correct answer. What
it is on average does not depend on N; how noisy it is does. Where a step rolls out B prompts N times each, the trace of
its covariance is

    noise(N, B) ≈ (V_b + V_w / (N - 1)) / B

    name here   symbol       meaning
    g           g_x          ∇p_x, of prompt x
    mean2       |ḡ|²         of the mean of g_x over prompts: what the step follows
    between     V_b          E|g_x|² - |ḡ|²: how much prompts differ
    within      V_w          how much a prompt's rollouts differ: the variance of (R - p) ∇log π(y), mean over prompts
    ratio       V_w / V_b
    cost        c_p / c_r    what one prompt costs, in rollouts; 0 where samples are all that counts
    n           N / 2        rollouts of a half-group, HALF at most

More rollouts shrink the second part alone, more prompts both. At equal cost B (c_p + N c_r) the noise is least at

    N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b)            two-stage cluster sampling (Cochran 1977, section 10.6)

No enumeration is needed. Two halves of a group, each with its own mean as baseline, give two independent, unbiased
estimates of g_x:

    h = 1/(n - 1) Σ_i (R_i - R̄_h) ∇log π(y_i),   E[h] = g_x,   E[h_0 · h_1] = |g_x|²,   E|h_0 - h_1|² / 2 = Var(h)

Var(h) = V_w / n + (|g_x|² + p(1-p) E|∇log π|²) / (n (n - 1)): h is a sample covariance, of R and ∇log π. Where right
and wrong answers have scores of one size this is V_w / (n - 1) + 2 |g_x|² / (n (n - 1)). The law leaves the last term
out, a share of order 1/N. Groups that dynamic sampling drops have h_0 = h_1 = 0, for rewards 0 and 1, and count so.

A half-group is one backward pass. Of its gradient MOST coordinates are kept, others at each look, which on average
leaves V_w and V_b in the ratio they have. All of it is about the paper's advantages, before whitening and clipping, and
the policy before the step's updates. Least noise is the fastest learning only where each N has its own best rate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainer.batch import Batch
from trainer.policy import SHARE_FROM, Policy
from trainer.processes import idle, passes, reduced_later, seed_of, summed
from trainer.rollouts import TrainingGroups
from trainer.settings import Config

PROMPTS = 64  # groups of a step that are looked at
HALF = 64  # rollouts of each half: of more, prompts would tell V_b no better, and cost more
MOST = 2**17  # coordinates of the gradient

# ------------------------------------------------------------------------------------------------------------- the law


def best_n(ratio: float, cost: float = 0.0) -> float:
    """N* = 1 + sqrt((1 + c_p / c_r) V_w / V_b), where the noise at equal cost is least. cost: c_p / c_r."""
    return 1 + math.sqrt((1 + cost) * ratio)


def noise_at_equal_cost(n: float, ratio: float, cost: float = 0.0) -> float:
    """(V_b + V_w / (N - 1)) (c_p + N c_r), in units of V_b c_r: only the quotient of two of them says something."""
    return (1 + ratio / (n - 1)) * (cost + n)


# ------------------------------------------------------------------------------------------------------- its estimator


class Variances(NamedTuple):
    """What `estimate` gives. Each is a mean over prompts, those that were dropped included."""

    within: float  # V_w
    between: float  # V_b
    mean2: float  # |ḡ|²


def estimate(gram: Tensor, prompts: float, n: int) -> Variances:
    """V_w, V_b and |ḡ|² from inner products of half-group gradients.

    gram: (2M, 2M), of the half-groups 2x and 2x + 1 of each of M prompts. prompts: M, and those that were dropped for
    them. n: rollouts of a half-group. Var(h), |g_x|² and |ḡ|² are unbiased.
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
    """Of `estimate`, by the jackknife: each prompt is left out once, those without a gradient too."""
    m = len(gram) // 2
    rows = torch.arange(2 * m).view(m, 2)
    without = [torch.cat([rows[:i], rows[i + 1 :]]).flatten() for i in range(m)]
    found = torch.tensor([estimate(gram[i][:, i], prompts - 1, n) for i in without], dtype=torch.float64)
    dropped = torch.tensor(estimate(gram, prompts - 1, n), dtype=torch.float64)
    mean = (found.sum(0) + (prompts - m) * dropped) / prompts
    spread = (found - mean).square().sum(0) + (prompts - m) * (dropped - mean).square()
    return Variances(*((prompts - 1) / prompts * spread).sqrt().tolist())


def logged(gram: Tensor, prompts: float, n: int) -> dict[str, float]:
    """The numbers of a step's line; arguments as of `estimate`."""
    numbers = {f"noise/{name}": x for name, x in estimate(gram, prompts, n)._asdict().items()}
    numbers |= {f"noise/{name}_se": x for name, x in standard_errors(gram, prompts, n)._asdict().items()}
    return numbers | {"noise/prompts": len(gram) // 2}


class Noise:
    """--log_noise K: half-groups of a step's first kept prompts, every K steps, before the step's updates.

    All processes compute their share of each half-group, so that none waits, and their gradients are added up as an
    update's are, under DDP as under FSDP2. (Shards have other coordinates: where not all are kept, other digits.)
    """

    def __init__(self, policy, config: Config, accelerator: Accelerator):
        self.config, self.accelerator = config, accelerator
        self.n = min(HALF, config.rollouts_per_prompt // 2)
        self.shares = accelerator.unwrap_model(policy).shares
        self.sharded = accelerator.distributed_type == DistributedType.FSDP
        self.every = max(1, sum(p.numel() for p in policy.parameters()) / MOST)
        self.step, self.at = 0, list[tuple[Tensor, float]]()

    def due(self, step: int) -> bool:
        """In a run's first step, and every K steps after it."""
        return step % self.config.log_noise == 1 % self.config.log_noise

    def measure(self, policy, plain: Policy, kept: TrainingGroups, pass_rate: float, step: int) -> dict[str, float]:
        """V_w, V_b, |ḡ|² and their standard errors, for the step's metrics. pass_rate: the share of prompts kept.

        Nothing where fewer than two prompts were kept.
        """
        self.at, self.step = [], step
        m = min(PROMPTS, len(kept))
        if m < 2:
            return {}
        batch = self.halves(kept, m)
        batch.share_prompts(plain, self.config, 2)
        policy.train(self.config.gradient_checkpointing)
        vectors = torch.stack([self.gradient(policy, batch, rows) for rows in batch.mini_batches(2 * m)]).double()
        gram = vectors @ vectors.T
        return logged(summed(gram, self.accelerator) if self.sharded else gram.cpu(), m / pass_rate, self.n)

    def halves(self, kept: TrainingGroups, m: int) -> Batch:
        """Two halves of each of the first m groups. A half is a mini-batch; its weights stand as advantages."""
        some, n = kept.outcomes.at(torch.arange(m)), self.n
        rollout = torch.arange(some.rewards.shape[1])
        half = torch.where(rollout < 2 * n, 2 * torch.arange(m)[:, None] + rollout % 2, -1)  # what is left over: none
        rewards = some.rewards[:, : 2 * n].float().view(m, n, 2)
        weights = torch.zeros(some.rewards.shape)
        weights[:, : 2 * n] = ((rewards - rewards.mean(1, keepdim=True)) / (n - 1)).flatten(1)
        rolled = [part for part in kept.rolled if part.place < m and part.first < 2 * n]
        return replace(kept, rolled=rolled).batch(weights, half, self.accelerator.device)

    def gradient(self, policy, batch: Batch, rows: Tensor) -> Tensor:
        """Coordinates of Σ_i weight_i ∇log π(y_i), over these rows of all processes; FSDP2: of this process's part."""
        config, accelerator = self.config, self.accelerator
        parts = batch.micro_batches(rows, config.max_tokens_per_micro_batch)
        rounds = passes(max(1, len(parts)), accelerator)
        for i in range(rounds):
            with nullcontext() if i == rounds - 1 else reduced_later(policy, accelerator):
                if i >= len(parts):
                    accelerator.backward(idle(policy, accelerator.device))
                    continue
                logp, _ = policy(*batch.inputs(parts[i], config.temperature))
                weights = batch.advantages[parts[i]].repeat_interleave(batch.response_lengths[parts[i]])
                accelerator.backward((weights * logp).sum() * accelerator.num_processes)
        slopes = [_local(weight.grad).flatten() for weight in policy.parameters() if weight.grad is not None]
        self.at = self.at or [self.coordinates(i, len(slope), slope.device) for i, slope in enumerate(slopes)]
        policy.zero_grad()
        return torch.cat([slope[at].float() * scale for slope, (at, scale) in zip(slopes, self.at, strict=True)])

    def coordinates(self, number: int, size: int, device) -> tuple[Tensor, float]:
        """Which of a weight's coordinates are kept at this look, and what each counts: products stay unbiased."""
        if (count := math.ceil(size / self.every)) >= size:
            return torch.arange(size, device=device), 1.0
        draw = torch.Generator().manual_seed(seed_of(self.step, number))
        return torch.randint(size, (count,), generator=draw).to(device), math.sqrt(size / count)

    def prompt_cost(self, seconds: Mapping[str, float], prompts: list[list[int]], response: float) -> float:
        """c_p / c_r of a step: what a prompt costs, beside its rollouts, in rollouts.

        Of each stage's seconds prompts take their share of the tokens that the stage computes. A prompt is read once
        where its rollouts share it, and belongs to each of them where they do not. What rollouts have in common beyond
        the prompt is not counted, so that this is rather too little. Another N would have other mini-batches and keep
        other prompts: its price is taken to be the same. prompts: the run's; response: tokens on average.
        """
        n, prompt = self.config.rollouts_per_prompt, sum(map(len, prompts)) / len(prompts)
        of_prompt = of_rollout = 0.0
        for stage, reads in (("roll_out", 1), ("score", 1), ("update", self.config.mini_batches_of_a_prompt)):
            read = prompt * min(reads, n)
            saving = n * (prompt + response) / (read + n * response)
            shared = stage == "roll_out" or (self.shares and saving >= SHARE_FROM[self.config.share_prefix])
            part = read / (read + n * response) if shared else 0.0
            of_prompt += seconds.get(stage, 0.0) * part
            of_rollout += seconds.get(stage, 0.0) * (1 - part) / n
        return of_prompt / of_rollout if of_rollout else 0.0


# ------------------------------------------------------------------------------------------------ what a run says of it


def conclusion(metrics: list[dict], timing: list[dict], n: int) -> str:
    """Which N the run deserves, in a few sentences, from the lines of its logs; nothing where none measured it."""
    looks = [row for row in metrics if math.isfinite(row.get("noise/between", math.nan))]
    if not looks:
        return ""
    within, between = (statistics.fmean(row[f"noise/{name}"] for row in looks) for name in ("within", "between"))
    errors = [math.hypot(*(row[f"noise/{x}_se"] for row in looks)) / len(looks) for x in ("within", "between")]
    seen = f"{len(looks)} step{'s' * (len(looks) > 1)} x {looks[-1]['noise/prompts']} prompts"
    if min(within, between) <= 0 or 2 * (error := math.hypot(errors[0] / within, errors[1] / between)) >= 1:
        most = between + 2 * errors[1]
        if min(within, most) <= 0:
            return f"Which N? Not seen in {seen}: a smaller --log_noise looks more often"
        least = within / most
        return (
            f"Which N? The noise within prompts is at least V_w / V_b = {plain(least)} times that between them "
            f"({seen}): at equal samples a step has the least at N = {best_n(least):.0f} or more. A smaller "
            "--log_noise says it more closely"
        )
    ratio = within / between
    low, high = ratio / (1 + 2 * error), ratio / (1 - 2 * error)
    drawn = statistics.fmean(row["prompts"] / row["pass_rate"] for row in metrics if row.get("prompts"))
    best = max(2, round(best_n(ratio)))
    said = (
        f"Which N? The noise within prompts is V_w / V_b = {plain(ratio)} times that between them ({plain(low)} to "
        f"{plain(high)}; {seen}). At equal samples a step has the least at N = {best}, with {drawn * n / best:,.0f} "
        f"prompts rolled out in place of {drawn:,.0f}; N = {n} has {times(n, best, ratio)}"
    )
    if costs := [row["prompt_cost"] for row in timing if "prompt_cost" in row]:
        cost = statistics.median(costs)
        best = max(2, round(best_n(ratio, cost)))
        said += (
            f". By its tokens a prompt costs as much time as {plain(cost)} rollouts: at equal time it is N = {best}, "
        )
        said += f"and N = {n} has {times(n, best, ratio, cost)}"
    return said


def times(n: int, best: int, ratio: float, cost: float = 0.0) -> str:
    """How much more noise N has at equal cost."""
    more = noise_at_equal_cost(n, ratio, cost) / noise_at_equal_cost(best, ratio, cost)
    return f"{plain(more)} times as much" if more > 1.05 else "as little"


def plain(x: float) -> str:
    """Two digits, and no power of ten: 0.25, 2.3, 18, 120, 1,700."""
    return f"{x:.2g}" if x < 99.5 else f"{float(f'{x:.2g}'):,.0f}"


def _local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x
