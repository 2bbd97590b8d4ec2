"""Stage 9: sentences about a step that the user should not overlook (docs/symptoms.md)."""

from __future__ import annotations

from trainer.outcomes import FAILED, Outcomes
from trainer.settings import Config
from trainer.trial import engine_kl_limit
from verify import REASONS


def warnings_of(metrics: dict[str, float], outcomes: Outcomes, config: Config) -> list[str]:
    """Sentences about a step that the user should not overlook."""
    found, count = [], {x: int(metrics.get(f"reason/{x}", 0)) for x in REASONS}
    verdicts = ", ".join(f"{n:,} {x}" for x, n in count.items() if n)
    failed = sum(count[x] for x in FAILED)
    cause = "" if failed else common_fault(outcomes)
    few = 0 < metrics["prompts"] < config.prompts_per_step / 4
    if metrics["prompts"] < config.prompts_per_step:
        found.append(
            f"informative prompts: {metrics['prompts']} of {len(outcomes)}, --prompts_per_step asks for "
            f"{config.prompts_per_step}; verdicts: {verdicts}"
            + ("; so small a step may be noisy (docs/symptoms.md)" if few else "")
        )
    if cause:
        found.append(cause)
    if failed:
        hint = "see --verify_timeout" if count["timeout"] else "the first error of each kind is above"
        found.append(f"responses that could not be judged: {failed:,} ({verdicts}); {hint}")
    limit = engine_kl_limit(config)
    if (kl := metrics.get("engine_kl", 0.0)) > limit:
        other = "" if config.engine == "torch" else "--engine torch or "
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


def common_fault(outcomes: Outcomes) -> str:
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
        best = reward.max().item()
        if 0 < best < 1:
            return (
                f"no response was correct: the highest reward was {best:.3g}, and only 1 counts as correct, or True in "
                "(score, True) of a function of --rewards"
            )
        return (
            "no response was correct (a reward of 1): read samples.jsonl; prompts must ask for the form that their "
            "kind reads"
        )
    if outcomes.correct.all():
        return "every response was correct: choose harder problems for --data"
    if (reward == reward[0, 0]).all():
        return f"correct and wrong responses have the same reward, {reward[0, 0]:g}: correct the function of --rewards"
    return ""
