"""Jobs in worker processes, and the verdicts for their outcomes (verify.py, `verify_batch`)."""

import logging
from contextlib import closing

from sandbox import pool
from sandbox.jobs import Call, Outcome, Program
from verify import JudgeFailed, NotAReward, Verdict, failures, kind_of, verdict_of

LOG = logging.getLogger(__name__)


def run(jobs: dict[tuple, Call | Program], workers: int | None, timeout_s: float, allow_weak: bool) -> dict:
    """Return the verdict of each job. A key starts with the name of its kind."""
    keys, verdicts = list(jobs), {}
    with closing(pool.run(jobs.values(), timeout_s, workers, allow_weak)) as outcomes:  # frees the pool if _read raises
        for index, outcome in outcomes:
            verdicts[keys[index]] = _read(outcome, keys[index][0], timeout_s)
    return verdicts


def _read(outcome: Outcome, name: str, timeout_s: float) -> Verdict:
    """Return the verdict for an outcome. A process that met a model's text may send anything."""
    if outcome.status == "environment":
        raise JudgeFailed(
            f"kind {name} cannot be judged on this machine: {outcome.value}. A judge reads only Python's packages, "
            "and may not use the network"
        )
    if outcome.status == "ok":
        try:
            return verdict_of(outcome.value)
        except (TypeError, ValueError) as error:
            if file := kind_of(name).file:
                raise NotAReward(f"the reward of kind {name} ({file}): {error}") from None
            return Verdict(0.0, False, "crashed")
    if name not in failures:
        why = f"raised {outcome.value}" if outcome.value else "ended its process"
        why = f"took more than {timeout_s:g} s (--verify_timeout)" if outcome.status == "timeout" else why
        failures[name] = f"kind {name}: judging a response {why}"
        LOG.warning(failures[name])
    return Verdict(0.0, False, outcome.status)
