"""Stages 6, 7 and 9: the numbers of a step and the scores of an evaluation (docs/logs.md explains each)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

import brorl
from trainer.outcomes import Outcomes
from trainer.progress import Progress
from verify import REASONS

PASS_AT = 4, 16, 64, 256, 1024  # k of the reported pass@k, as far as an evaluation has samples


def step_metrics(progress: Progress, outcomes: Outcomes, kept: Tensor) -> dict[str, float]:
    """Metrics over all rollouts that a step generated, informative or not (docs/logs.md). kept: (P,) bool."""
    metrics = {
        "step": progress.step,
        "samples": progress.samples,
        "prompts": int(kept.sum()),  # informative ones; the step drew len(outcomes)
        "pass_rate": float(kept.double().mean()),
        "rounds": outcomes.rounds,
        "reward": float(outcomes.reward.mean()),
        "correct": float(outcomes.correct.double().mean()),
        "response_tokens": float(outcomes.length.double().mean()),
        "truncated": float(outcomes.truncated.double().mean()),
    }
    counts = outcomes.reason.flatten().bincount(minlength=len(REASONS)).tolist()
    metrics |= {f"reason/{x}": n for x, n in zip(REASONS, counts, strict=True) if n}
    for kind in sorted(set(outcomes.kinds)):
        rewards = outcomes.reward[[x == kind for x in outcomes.kinds]]
        metrics |= {f"reward/{kind}": float(rewards.mean()), f"rollouts/{kind}": rewards.numel()}
    return metrics


def score_sources(outcomes: Outcomes, sources: dict[str, int]) -> dict[str, dict[str, float]]:
    """Scores per source. With several, their mean comes last: every source counts the same, as in table 1.

    A source with one problem has no standard error. A mean over sources has one only if each of them has.
    """
    counts = list(sources.values())
    tables = [x.split(counts) for x in (outcomes.correct, outcomes.length, outcomes.truncated)]
    rows = {name: scores_of(*part) for name, *part in zip(sources, *tables, strict=True)}
    if len(rows) > 1:
        shared = [key for key in next(iter(rows.values())) if all(key in row for row in rows.values())]
        mean = {key: statistics.fmean(row[key] for row in rows.values()) for key in shared}
        if "pass@1_se" in mean:
            mean["pass@1_se"] = math.hypot(*(row["pass@1_se"] for row in rows.values())) / len(rows)
        rows[f"mean of {len(rows)}"] = mean
    return rows


def scores_of(correct: Tensor, length: Tensor, truncated: Tensor) -> dict[str, float]:
    """Appendix D: pass@1 over k responses with its standard error over problems, and the unbiased pass@k. (P, k)."""
    solved, k = correct.double().mean(-1), correct.shape[1]
    counts = correct.sum(-1).tolist()
    return {
        "pass@1": float(solved.mean()),
        **({"pass@1_se": float(solved.std() / len(solved) ** 0.5)} if len(solved) > 1 else {}),
        **{f"pass@{m}": statistics.fmean(brorl.pass_at_k_estimate(k, c, m) for c in counts) for m in PASS_AT if m <= k},
        "response_tokens": float(length.double().mean()),
        "truncated": float(truncated.double().mean()),
    }


class Sums:
    """Metrics of a step's updates: sums over the tokens of all ranks, and the largest or smallest value of some.

    A GPU's values stay there until `result` reads all of them at once: reading one would wait for the GPU.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.names: list[str] = []
        self.values: list[Tensor] = []  # float64; one tensor per call of `add`
        self.pick: dict[str, Callable[[Iterable[float]], float]] = {}  # max or min; the others are added up
        self.updates = self.tokens = 0  # of all ranks

    def add(self, metrics: dict[str, Any], maxima: Set[str] = frozenset(), minima: Set[str] = frozenset()) -> None:
        """Add numbers or tensors of one number. Of those named in `maxima` or `minima` only the extreme counts."""
        device = self.accelerator.device
        self.names += metrics
        self.values.append(torch.stack([torch.as_tensor(x, device=device).double() for x in metrics.values()]))
        self.pick |= dict.fromkeys(maxima, max) | dict.fromkeys(minima, min)

    def result(self) -> dict[str, float]:
        """Means over the step's tokens; over its updates for loss and grad_norm; counts and extremes unchanged."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for name, x in zip(self.names, torch.cat(self.values or [torch.zeros(0)]).tolist(), strict=True):
            found[name].append(x)
        ranks = gather_object([{name: self.pick.get(name, math.fsum)(xs) for name, xs in found.items()}])
        if not self.updates:
            return {}
        world, skipped = len(ranks), ranks[0]["updates_skipped"]
        # Ranks share the loss and the sums over tokens; each of them counts every update.
        divisor = {"loss": self.updates, "grad_norm": world * (self.updates - skipped or 1), "updates_skipped": world}
        result: dict[str, float] = {"tokens": self.tokens}
        for name in sorted(set().union(*ranks)):
            values = [rank[name] for rank in ranks if name in rank]
            extreme = self.pick.get(name)
            result[name] = extreme(values) if extreme else math.fsum(values) / divisor.get(name, self.tokens)
        return result
