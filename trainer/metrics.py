"""Stage 9: the numbers of a step and of an evaluation, and warnings about them (docs/evaluation.md explains each)."""

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
from trainer.outcomes import FAILED, Outcomes
from trainer.progress import Progress
from trainer.settings import Config
from verify import REASONS

PASS_AT = 4, 16, 64, 256, 1024  # k of the reported pass@k, as far as an evaluation has samples


# --------------------------------------------------------------------------------------------------------- a step


def step_metrics(progress: Progress, outcomes: Outcomes, kept: torch.Tensor) -> dict[str, float]:
    """Metrics over all rollouts that a step generated, informative or not (docs/evaluation.md). kept: (P,) bool."""
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


def warnings_of(metrics: dict[str, float], outcomes: Outcomes, config: Config) -> list[str]:
    """Sentences about a step that the user should not overlook."""
    found, count = [], {x: int(metrics.get(f"reason/{x}", 0)) for x in REASONS}
    verdicts = ", ".join(f"{n:,} {x}" for x, n in count.items() if n)
    failed = sum(count[REASONS[i]] for i in FAILED)
    cause = "" if failed else what_all_share(outcomes)
    few = 0 < metrics["prompts"] < config.prompts_per_step / 4
    if metrics["prompts"] < config.prompts_per_step:
        found.append(
            f"informative prompts: {metrics['prompts']} of {len(outcomes)}, --prompts_per_step asks for "
            f"{config.prompts_per_step}; verdicts: {verdicts}"
            + ("; a step with so few is nearly as long and much noisier (docs/symptoms.md)" if few else "")
        )
    if cause:
        found.append(cause)
    if failed:
        hint = "see --verify_timeout" if count["timeout"] else "the first error of each kind is above"
        found.append(f"responses that could not be judged: {failed:,} ({verdicts}); {hint}")
    limit = engine_kl_limit(config)
    if (kl := metrics.get("engine_kl", 0.0)) > limit:
        other = "--engine torch or " if config.engine == "vllm" else ""
        found.append(
            f"KL(engine, trainer) {kl:.2g} exceeds {limit:g}: the engine does not sample the policy that is trained; "
            f"use {other}a smaller --max_response_tokens, or raise --max_engine_kl (docs/symptoms.md)"
        )
    if skipped := metrics.get("updates_skipped"):
        found.append(f"updates skipped for a gradient that is not finite: {skipped:.0f} of {config.updates_per_step}")
    return found


def waited_for_judge(laps: dict[str, float], seconds: float) -> list[str]:
    """A sentence for a step of so many seconds that waited more than a tenth of them for its verdicts."""
    waited = laps.get("wait_for_judge", 0.0)
    if waited <= max(1.0, seconds / 10):
        return []
    return [
        f"waited {waited:.0f} of {seconds:.0f} seconds for the judge, which worked for {laps['judge']:.0f}: do "
        "other programs use the cores, or are the rewards slow?"
    ]


def engine_kl_limit(config: Config) -> float:
    """The largest KL(engine, trainer) that is normal: --max_engine_kl, else by precision.

    float32: 2e-11 was measured, 1e-4 is allowed. bfloat16: 0.9e-3 to 2.6e-3 was measured with equal rounding, and 8e-3
    to 5.9e-2 where engine and trainer rounded differently (docs/evaluation.md); 5e-3 is allowed.
    """
    return config.max_engine_kl or (5e-3 if config.precision == "bfloat16" else 1e-4)


def what_all_share(outcomes: Outcomes) -> str:
    """Say why a step cannot teach anything if one reason holds for all of its responses; else return ""."""
    reward = outcomes.reward
    if outcomes.truncated.all():
        return "every response reached --max_response_tokens: raise it"
    if (outcomes.reason == REASONS.index("unparsed")).all():
        return (
            "no response could be read: prompts must ask for the form that their kind reads, and a function of "
            "--rewards must return a number, not None"
        )
    if not outcomes.correct.any():
        return (
            "no response was correct (a reward of 1): read samples.jsonl; prompts must ask for the form that their "
            "kind reads"
        )
    if outcomes.correct.all():
        return "every response was correct: choose harder problems for --data"
    if (reward == reward[0, 0]).all():
        return f"correct and wrong responses have the same reward, {reward[0, 0]:g}: correct the function of --rewards"
    return ""


# -------------------------------------------------------------------------------------------------- an evaluation


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


def scores_of(correct: torch.Tensor, length: torch.Tensor, truncated: torch.Tensor) -> dict[str, float]:
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
