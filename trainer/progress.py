"""The state of a run that a checkpoint has besides weights and moments: its budget, and its position in the problems.

A run needs no random state: every draw derives from the seed, the step and a position.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import loss as L
from trainer.rollouts import Outcomes, seed_of
from trainer.settings import Config, Refusal
from verify import Problem

DECAY = 0.8  # per step, of the counts that estimate the share of informative prompts
MOST_UNJUDGED = 3  # steps in a row without a verdict


@dataclass
class Progress:
    """Counts of a run. Equal on every rank. A checkpoint stores all of them in progress.json."""

    step: int = 0
    position: int = 0  # of the next problem, in an endless order of problems
    samples: int = 0  # rollouts generated
    seconds: float = 0.0  # of the slowest rank
    tried: float = 0.0  # prompts of the last steps, decayed
    informative: float = 0.0  # informative ones among them, decayed
    unjudged: int = 0  # steps in a row without a verdict

    def steps(self, config: Config) -> Iterator[int]:
        """Count the steps until the budget is spent."""
        while not self.spent(config):
            self.step += 1
            yield self.step

    def spent(self, config: Config) -> bool:
        """Whether --max_steps or --max_hours is reached. `seconds` is equal on all ranks, so they agree."""
        hours = config.max_hours or math.inf
        return self.step >= (config.max_steps or math.inf) or self.seconds >= 3600 * hours

    def due(self, every: int, config: Config) -> bool:
        """Return True if an action is due that happens every `every` steps and at the end of the run."""
        return self.spent(config) or (every > 0 and self.step % every == 0)

    def next_problems(self, problems: list[Problem], count: int, seed: int) -> tuple[list[Problem], list[int]]:
        """Return the next `count` problems and the seeds of their rollouts.

        The order is one permutation of the problems after another, fixed by the seed. It only moves forward.
        """
        positions, size = range(self.position, self.position + count), len(problems)
        self.position += count
        epochs = {epoch: list(problems) for epoch in {i // size for i in positions}}
        for epoch, order in epochs.items():
            random.Random(f"{seed}/{epoch}").shuffle(order)
        return [epochs[i // size][i % size] for i in positions], [seed_of(seed, self.step, i) for i in positions]

    def end_step(self, outcomes: Outcomes, seconds: float) -> None:
        """Count the step's rollouts. seconds: of the run."""
        self.samples += outcomes.reward.numel()
        self.tried = DECAY * self.tried + len(outcomes)
        self.informative = DECAY * self.informative + int(L.informative(outcomes.correct).sum())
        self.unjudged = self.unjudged + 1 if outcomes.unjudged else 0
        self.seconds = seconds

    def check(self) -> None:
        """Raise Refusal if the run cannot learn any more."""
        if self.unjudged >= MOST_UNJUDGED:
            raise Refusal(f"{self.unjudged} steps had no verdict: test --rewards, or raise --verify_timeout (--resume)")
