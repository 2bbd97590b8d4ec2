"""What stages 2 and 3 make: a Rollout is one response on its rank; Outcomes are the verdicts of all ranks, (P, N)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from trainer.process import Refusal
from verify import REASONS, Problem, Verdict

FAILED = "timeout", "crashed"  # reasons: the judge failed, not the answer


@dataclass(slots=True)
class Rollout:
    """One response to one prompt, on the rank that drew it. On the CPU; R response tokens, with the stop token."""

    problem: Problem
    prompt_index: int  # of its prompt among the P prompts of the step
    number: int  # 0 ... N - 1
    prompt: Tensor  # (L,) int32, shared by the rollouts of a prompt
    response: Tensor  # (R,) int32, a view of its group's tokens; engine_logp likewise
    engine_logp: Tensor  # (R,) log π_engine of the sampled tokens
    truncated: bool  # reached the length limit
    text: str = ""  # stage 3
    verdict: Verdict | None = None  # stage 3
    advantage: float = 0.0  # stage 5


@dataclass
class Outcomes:
    """Verdicts and lengths of the N rollouts of P prompts, (P, N) each. Every rank has all of them."""

    reward: Tensor  # float64
    correct: Tensor  # bool
    reason: Tensor  # int64, index into verify.REASONS
    length: Tensor  # int64, response tokens
    truncated: Tensor  # bool
    counted: Tensor  # bool: may be trained on: every response, or with mask_truncated only the complete ones
    kinds: list[str]  # (P,) kinds of the problems
    rounds: int = 0  # rounds of generation

    def __len__(self) -> int:
        """P."""
        return len(self.reward)

    @property
    def judge_failed_on_all(self) -> bool:
        """Whether there are responses, and the judge timed out or crashed on each."""
        failed = torch.tensor([REASONS.index(x) for x in FAILED])
        return len(self) > 0 and bool(torch.isin(self.reason, failed).all())

    @classmethod
    def empty(cls, n: int) -> Outcomes:
        """The outcomes of a step before its first round: N rollouts of no prompt."""
        table = torch.zeros(0, n)
        return cls(table.double(), table.bool(), table.long(), table.long(), table.bool(), table.bool(), [])

    @classmethod
    def of(
        cls, rollouts: list[Rollout], prompts_before: int, problems: list[Problem], n: int, accelerator: Accelerator,
        mask_truncated: bool = False,
    ) -> Outcomes:  # fmt: skip
        """The outcomes of all ranks: each rank fills in its rollouts, and the sum is the complete table.

        Raises Refusal if a rollout is missing, or if two have one number: the engine has failed.
        """
        table = np.zeros((6, len(problems), n))
        for r in rollouts:
            v: Any = r.verdict
            row = v.reward, v.correct, REASONS.index(v.reason), len(r.response), r.truncated, 1
            table[:, r.prompt_index - prompts_before, r.number] += row
        whole = accelerator.reduce(torch.from_numpy(table).to(accelerator.device), "sum")
        reward, correct, reason, length, truncated, times = whole.cpu()
        if (times != 1).any():
            p, k = (times != 1).nonzero()[0].tolist()
            raise Refusal(
                f"the engine returned rollout {k} of prompt {p} {times[p, k]:.0f} times instead of once, and "
                f"{int((times != 1).sum())} of {times.numel()} rollouts in all: this is a fault of the engine"
            )
        truncated = truncated.bool()
        counted = ~truncated if mask_truncated else torch.ones_like(truncated)
        kinds = [problem.kind for problem in problems]
        return cls(reward, correct.bool(), reason.long(), length.long(), truncated, counted, kinds, 1)

    def followed_by(self, more: Outcomes) -> Outcomes:
        """The outcomes of one more round."""
        names = "reward", "correct", "reason", "length", "truncated", "counted"
        tables = {name: torch.cat([getattr(self, name), getattr(more, name)]) for name in names}
        return Outcomes(**tables, kinds=self.kinds + more.kinds, rounds=self.rounds + more.rounds)
