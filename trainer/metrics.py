"""The numbers of a line of metrics.jsonl (docs/metrics.md says what each means).

`of_step` is stage 4's: what was generated, before anything is trained. `UpdateMetrics` is stage 7's: sums over the
tokens of a step's updates, on this process, and over all processes at the end. `troubles` are sentences about what went
wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from trainer.answers import SOLVED
from trainer.processes import total
from trainer.progress import STEPS_UNJUDGED, Progress
from trainer.rollouts import StepRollouts
from trainer.settings import Config
from verify import failures

MEANS_OF_ROLLOUTS = ("reward", "correct", "response_tokens", "truncated")
COUNTS = ("updates_skipped", "spikes")  # of updates: logged as they are


def of_step(drawn: StepRollouts, kept: int, used: int) -> dict[str, float]:
    """Of all groups that a step generated, over all processes. kept, used: by `train.dynamic_sampling`."""
    counts, tried = drawn.counts(), len(drawn)
    metrics: dict[str, float] = {"prompts": kept, "pass_rate": drawn.informative / tried}
    metrics |= {"rounds": drawn.rounds, "surplus": tried - used}
    metrics |= {name: counts[name] / counts["rollouts"] for name in MEANS_OF_ROLLOUTS}
    metrics |= {name: counts[name] for name in sorted(counts) if name.startswith("reason/")}
    metrics |= {f"solved/{part}": counts[f"solved/{part}"] / tried for part in SOLVED}
    for kind in sorted(name.partition("/")[2] for name in counts if name.startswith("rollouts/")):
        metrics[f"rollouts/{kind}"] = counts[f"rollouts/{kind}"]
        metrics[f"reward/{kind}"] = counts[f"reward/{kind}"] / counts[f"rollouts/{kind}"]
    return metrics


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

    def update(self, norm: float, spiked: bool, taken: bool) -> None:
        """An optimizer step, `taken` or left out, and its gradient's norm."""
        self.sums["updates"] += self.share
        if not taken:
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
            f"no rollout could be judged ({said(metrics)}): {'; '.join(failures.values()) or 'see --verify_timeout'}; "
            f"the run ends after {STEPS_UNJUDGED} such steps in a row"
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


def reasons(metrics: dict) -> dict[str, int]:
    """How many rollouts of the step had each reason, over all kinds."""
    counts = {name.partition("/")[2]: int(x) for name, x in metrics.items() if name.startswith("reason/")}
    return {name: count for name, count in counts.items() if "/" not in name}


def said(metrics: dict) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in reasons(metrics).items())


def none_judged(metrics: dict) -> bool:
    """Is every verdict of the step a failure of the judging?"""
    return bool(found := reasons(metrics)) and found.keys() <= {"crashed", "timeout"}


def too_few(metrics: dict, tried: int, wanted: int) -> str:
    """Why a step trains on fewer prompts than it should: what the verifiers said of its rollouts."""
    then = "going on with these" if metrics["prompts"] else "nothing is trained in this step"
    return (
        f"of {tried} prompts {metrics['prompts']:.0f} were informative (some rollouts correct, some not), not "
        f"{wanted}; {then}. Verdicts: {said(metrics)}; samples.jsonl has some of the responses"
    )
