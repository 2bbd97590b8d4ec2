"""The numbers of a line of metrics.jsonl (docs/metrics.md says what each means).

`of_step` is stage 4's: what was generated, before anything is trained. `UpdateMetrics` is stage 7's: sums over the
tokens of a step's updates, on this process, and over all processes at the end. `troubles` are sentences about what went
wrong. `score` is what appendix D reports of an evaluation's `Answers`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from typing import NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

import brorl
from trainer.processes import total
from trainer.progress import STEPS_UNJUDGED, Progress
from trainer.rollouts import Outcomes, StepRollouts
from trainer.settings import Config
from verify import REASONS, failures

SOLVED = ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all")  # how much of a group is correct
PASS_AT = (4, 16, 64, 256, 1024)  # k of pass@k, as far as an evaluation has samples
COUNTS = ("updates_skipped", "spikes")  # of updates: logged as they are


def of_step(drawn: StepRollouts, kept: int, used: int) -> dict[str, float]:
    """Of all groups that a step generated, over all processes. kept, used: by `train.dynamic_sampling`."""
    outcomes, tried = drawn.outcomes, len(drawn)
    metrics: dict[str, float] = {"prompts": kept, "pass_rate": drawn.informative / tried}
    metrics |= {"rounds": len(drawn.rounds), "surplus": tried - used}
    sums = {
        "reward": outcomes.rewards, "correct": outcomes.correct,
        "response_tokens": outcomes.lengths, "truncated": outcomes.truncated,
    }  # fmt: skip
    metrics |= {name: x.sum().item() / x.numel() for name, x in sums.items()}
    by_kind = {k: outcomes.at(torch.tensor([x == k for x in drawn.kinds])) for k in sorted({*drawn.kinds})}
    counts = {f"reason/{reason}": count for reason, count in reasons(outcomes.reasons).items()}
    for kind, some in by_kind.items():
        counts |= {f"reason/{kind}/{reason}": count for reason, count in reasons(some.reasons).items()}
    metrics |= sorted(counts.items())
    metrics |= {f"solved/{share}": count / tried for share, count in solved(outcomes.correct).items()}
    for kind, some in by_kind.items():
        metrics[f"rollouts/{kind}"] = some.rewards.numel()
        metrics[f"reward/{kind}"] = some.rewards.sum().item() / some.rewards.numel()
    return metrics


def reasons(places: Tensor) -> dict[str, int]:
    """How many rollouts have each of the verdicts' reasons, those that none has left out."""
    counts = places.flatten().bincount(minlength=len(REASONS)).tolist()
    return {reason: count for reason, count in zip(REASONS, counts, strict=True) if count}


def solved(correct: Tensor) -> dict[str, int]:
    """How many groups are correct to which share: a count for each of SOLVED. (P, N) bool."""
    n = correct.shape[-1]
    parts = Counter(math.ceil(4 * count / n) + (count == n) for count in correct.sum(-1).tolist())
    return {share: parts[i] for i, share in enumerate(SOLVED)}


class UpdateMetrics:
    """What the micro-batches and updates of a step on this process add up to, and their extremes."""

    def __init__(self, accelerator: Accelerator):
        self.accelerator, self.share = accelerator, 1 / accelerator.num_processes  # every process counts an update
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.extremes: dict[str, float] = {}

    def micro_batch(self, loss: Tensor, metrics: dict[str, Tensor]) -> None:
        """metrics: `loss.token_metrics`, sums over tokens, or extremes where the name ends in _max or _min."""
        self.sums["loss"] += loss.item()
        for name, x in metrics.items():
            if name.endswith(("_max", "_min")):
                self.extreme(name, x.item())
            else:
                self.sums[name] += x.item()

    def update(self, norm: float, spiked: bool, applied: bool) -> None:
        """An optimizer step, `applied` or left out, and its gradient's norm."""
        self.sums["updates"] += self.share
        if not applied:
            self.sums["updates_skipped"] += self.share
        if math.isfinite(norm):
            self.sums["finite"] += self.share
            self.sums["spikes"] += spiked * self.share
            self.sums["grad_norm"] += norm * self.share
            self.extreme("grad_norm_max", norm)

    def extreme(self, name: str, x: float) -> None:
        pick = max if name.endswith("_max") else min
        self.extremes[name] = pick(self.extremes.get(name, x), x)

    def result(self, tokens: float, learning_rate: float | None = None) -> dict[str, float]:
        """Over all processes: means over the step's `tokens`, over its updates for loss and norm; counts; extremes."""
        seen = {name for part in gather_object([list(self.sums)]) for name in part}
        result = {name: total(self.sums[name], self.accelerator) for name in sorted(seen | set(COUNTS))}
        updates, finite = result.pop("updates"), result.pop("finite", 0)
        divisors = {"loss": updates, "grad_norm": finite} | dict.fromkeys(COUNTS, 1)
        result = {name: x / divisors.get(name, tokens) for name, x in result.items()}
        result["tokens"] = int(tokens)
        if learning_rate is not None:
            result["learning_rate"] = learning_rate
        everywhere = gather_object([self.extremes])
        for name in sorted({name for part in everywhere for name in part}):
            pick = max if name.endswith("_max") else min
            result[name] = pick(part[name] for part in everywhere if name in part)
        return result


def troubles(metrics: dict, progress: Progress, config: Config) -> list[str]:
    """What a step's updates met that one should know of, a sentence each."""
    found = []
    if none_judged(metrics):
        found.append(
            f"no rollout could be judged ({reasons_said(metrics)}): "
            f"{'; '.join(failures.values()) or 'see --verify_timeout'}; the run ends after {STEPS_UNJUDGED} such steps "
            "in a row"
        )
    if metrics.get("spikes"):
        done = "left out" if config.skip_spikes else f"clipped to {config.max_grad_norm:g}"
        found.append(
            f"{metrics['spikes']:.0f} of {config.updates_per_step} updates had a gradient norm over {config.spike:g} "
            f"times the recent median, up to {metrics['grad_norm_max']:.3g}; {done}"
        )
    if lost := metrics.get("updates_skipped", 0) - config.skip_spikes * metrics.get("spikes", 0):
        found.append(
            f"{lost:.0f} of {config.updates_per_step} updates had no finite gradient and were left out, the last "
            f"{progress.skipped} in a row; the run stops at {config.max_skipped_updates} (--max_skipped_updates)"
        )
    return found


def reasons_said(metrics: dict) -> str:
    """How many rollouts of the step have each reason, over all kinds, in words."""
    return ", ".join(f"{int(metrics[f'reason/{x}']):,} {x}" for x in sorted(REASONS) if f"reason/{x}" in metrics)


def none_judged(metrics: dict) -> bool:
    """Is every verdict of the step a failure of the judging?"""
    found = {x for x in REASONS if f"reason/{x}" in metrics}
    return bool(found) and found <= {"crashed", "timeout"}


def too_few(metrics: dict, tried: int, wanted: int) -> str:
    """Why a step trains on fewer prompts than it should: what the verifiers said of its rollouts."""
    then = "going on with these" if metrics["prompts"] else "nothing is trained in this step"
    return (
        f"of {tried} prompts {metrics['prompts']:.0f} were informative (some rollouts correct, some not), not "
        f"{wanted}; {then}. Verdicts: {reasons_said(metrics)}; samples.jsonl has some of the responses"
    )


# --------------------------------------------------------------------------------------------------- an evaluation


class Answers(NamedTuple):
    """What k responses to each held-out problem came to, in the order of the problems: a line of eval.jsonl."""

    k: int
    correct: list[int]  # of k
    response_tokens: list[float]  # mean
    truncated: list[int]  # of k
    reward: list[float]  # mean
    correct_tokens: list[int]  # of the correct responses together

    @staticmethod
    def of(outcomes: Outcomes) -> Answers:
        """From what came of k responses to each problem."""
        k, correct, truncated = outcomes.rewards.shape[-1], outcomes.correct.sum(-1), outcomes.truncated.sum(-1)
        lengths, rewards = outcomes.lengths.double().mean(-1), outcomes.rewards.mean(-1)
        right = (outcomes.lengths * outcomes.correct).sum(-1)
        return Answers(k, correct.tolist(), lengths.tolist(), truncated.tolist(), rewards.tolist(), right.tolist())

    def part(self, start: int, stop: int) -> Answers:
        """Those to some of the problems."""
        some = slice(start, stop)
        return Answers(self.k, self.correct[some], self.response_tokens[some], self.truncated[some], self.reward[some],
                       self.correct_tokens[some])  # fmt: skip


def score(answers: Answers) -> dict[str, float]:
    """pass@1 averaged over k responses, with its standard error over problems; unbiased pass@k; lengths."""
    k, n = answers.k, len(answers.correct)
    solved = torch.tensor(answers.correct, dtype=torch.float64) / k
    result = {
        "pass@1": solved.mean().item(),
        "pass@1_se": solved.std().item() / math.sqrt(n) if n > 1 else 0.0,
        "reward": math.fsum(answers.reward) / n,
        "response_tokens": math.fsum(answers.response_tokens) / n,
        "truncated": sum(answers.truncated) / (k * n),
    }
    for m in (x for x in PASS_AT if x <= k):
        result[f"pass@{m}"] = sum(brorl.pass_at_k_estimate(k, c, m) for c in answers.correct) / n
    return result


def score_sources(answers: Answers, sources: dict[str, int]) -> dict[str, dict[str, float]]:
    """A row of scores for each source of --eval_data, and their mean where there are several.

    sources: name -> number of problems, in order. In the mean each source counts the same, whatever its size, as the
    columns of table 3 do in table 1; its standard error is sqrt(Σ s.e.²) / number of sources.
    """
    rows, start = {}, 0
    for name, count in sources.items():
        rows[name] = score(answers.part(start, start + count)) | {"problems": count}
        start += count
    if len(rows) > 1:
        mean = {name: statistics.fmean(row[name] for row in rows.values()) for name in next(iter(rows.values()))}
        mean["pass@1_se"] = math.hypot(*(row["pass@1_se"] for row in rows.values())) / len(rows)
        rows[f"mean of {len(rows)}"] = mean | {"problems": start}
    return rows
