"""The state of a run that a checkpoint has besides weights and moments: its budget, and its position in the problems.

A run needs no random state: every draw has a seed that is made from --seed and a position, by `seed_of` or, for an
order of problems, by `random.Random`.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from trainer.outcomes import Outcomes
from trainer.process import Refusal
from trainer.settings import Config
from verify import Problem

DECAY = 0.8  # per step, of the counts that estimate the share of informative prompts
MOST_UNJUDGED = 3  # steps in a row without a verdict


@dataclass
class Progress:
    """Counts of a run. Equal on every rank. A checkpoint stores all of them in progress.json."""

    step: int = 0
    position: int = 0  # of the next problem, in an endless order of problems
    position_of_step: int = 0  # `position` when the step began
    samples: int = 0  # rollouts generated
    seconds: float = 0.0  # of the slowest rank
    tried: float = 0.0  # prompts of the last steps, decayed
    informative: float = 0.0  # informative ones among them, decayed
    unjudged: int = 0  # steps in a row without a verdict

    @classmethod
    def read(cls, checkpoint: Path) -> Progress:
        """Read the progress of a checkpoint. Raises Refusal if the file is damaged."""
        try:
            progress = cls(**json.loads((checkpoint / "progress.json").read_text()))
            for name, value in asdict(progress).items():
                if type(value) not in (int, type(getattr(cls, name))) or not 0 <= value < math.inf:
                    raise ValueError(f"{name} is {value!r}")
        except (OSError, ValueError, TypeError, RecursionError) as failure:
            raise Refusal(f"--resume: {checkpoint} cannot be read, delete it (progress.json: {failure})") from failure
        return progress

    def steps(self, config: Config) -> Iterator[int]:
        """Count the steps until the budget is spent."""
        while not self.spent(config):
            self.next_step()
            yield self.step

    def next_step(self) -> None:
        """Count a step, and remember where it begins in the order of the problems: a step draws no problem twice."""
        self.step, self.position_of_step = self.step + 1, self.position

    def reached(self, config: Config) -> list[str]:
        """The limits of the run that are reached. Ranks agree: their counts are equal."""
        used = {"max_steps": self.step, "max_hours": self.seconds / 3600, "max_samples": self.samples}
        return [name for name, x in used.items() if x >= (getattr(config, name) or math.inf)]

    def spent(self, config: Config) -> bool:
        """Whether a limit of the run is reached."""
        return bool(self.reached(config))

    def due(self, every: int, config: Config) -> bool:
        """Return True if an action is due that happens every `every` steps and at the end of the run."""
        return self.spent(config) or (every > 0 and self.step % every == 0)

    def next_problems(self, problems: list[Problem], count: int, seed: int) -> tuple[list[Problem], list[int]]:
        """Return the next `count` problems and the seeds of their rollouts.

        The order is one permutation of the problems after another, fixed by the seed. The position only moves forward.
        Where a step enters the next permutation, it skips problems that it drew from the one before. The copies that a
        weighted source has of a problem count as different problems, or the source could not get its share of a step.
        """
        size, orders = len(problems), dict[int, list[int]]()

        def problem_at(position: int) -> int:
            epoch, i = divmod(position, size)
            if epoch not in orders:
                orders[epoch] = list(range(size))
                random.Random(f"{seed}/{epoch}").shuffle(orders[epoch])
            return orders[epoch][i]

        drawn = {problem_at(i) for i in range(self.position_of_step, self.position)}
        if count > size - len(drawn):
            raise ValueError(f"a step asks for {count} more of {size} problems after it has drawn {len(drawn)} of them")
        chosen: dict[int, int] = {}  # position -> index of the problem
        while len(chosen) < count:
            if (index := problem_at(self.position)) not in drawn:
                drawn.add(index)
                chosen[self.position] = index
            self.position += 1
        seeds = [seed_of("rollouts", seed, self.step, position) for position in chosen]
        return [problems[index] for index in chosen.values()], seeds

    def end_step(self, outcomes: Outcomes, kept: Tensor, seconds: float) -> None:
        """Count the step's rollouts. kept: (P,) the informative prompts. seconds: of the run."""
        self.samples += outcomes.reward.numel()
        self.tried = DECAY * self.tried + len(outcomes)
        self.informative = DECAY * self.informative + int(kept.sum())
        self.unjudged = self.unjudged + 1 if outcomes.judge_failed_on_all else 0
        self.seconds = seconds

    def check_judged(self) -> None:
        """Raise Refusal if no response of the last steps was judged: the run cannot learn any more."""
        if self.unjudged >= MOST_UNJUDGED:
            raise Refusal(f"{self.unjudged} steps had no verdict: test --rewards, or raise --verify_timeout (--resume)")


def seed_of(use: str, *parts: int) -> int:
    """A 62-bit seed that differs for every use and every combination of its parts."""
    return int.from_bytes(hashlib.sha256(repr((use, *parts)).encode()).digest()[:8], "big") >> 2
