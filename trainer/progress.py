"""How far a run is: the order of its problems, its budget, its clock.

`Cursor` and `Progress` are in every checkpoint; with them a resumed run goes on to the same numbers.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import torch
from accelerate.utils import gather_object
from tqdm import tqdm

import brorl
from trainer.settings import MEMORY_OF_NORMS, Config

STEPS_UNJUDGED = 3  # in a row: then the run ends
MEMORY_OF_PROMPTS = 0.8  # decay per step of the counts behind `pass_rate`


class RunStopped(RuntimeError):
    """The run ended itself: the message says why and what to change."""


class Cursor:
    """Problems in an order fixed by the seed, a new permutation each epoch; one number to save and restore."""

    def __init__(self, size: int, seed: int):
        self.size, self.seed, self.position = size, seed, 0

    def take(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count:
            epoch, at = divmod(self.position, self.size)
            order = list(range(self.size))
            random.Random(f"{self.seed}/{epoch}").shuffle(order)
            part = order[at : at + count - len(taken)]
            taken += part
            self.position += len(part)
        return taken

    def state_dict(self) -> dict:
        return {"position": self.position}

    def load_state_dict(self, state: dict) -> None:
        self.position = state["position"]


@dataclass
class Progress:
    """How far the run is, for its budget and for resuming."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    skipped: int = 0  # updates in a row without a finite gradient
    unjudged: int = 0  # steps in a row with no rollout that could be judged
    updates: int = 0
    norms: list[float] = field(default_factory=list)  # of the gradients of the last updates
    tried: float = (
        0.0  # prompts of the last steps, each step's counted MEMORY_OF_PROMPTS times as much as the next one's
    )
    informative: float = 0.0  # how many of them were informative

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """The run's clock goes on from `seconds`. (What is set here is no field: a checkpoint does not have it.)"""
        self.started, self.samples_before = time.perf_counter() - self.seconds, self.samples
        self.saved, self.saving = self.seconds, 0.0  # when the last checkpoint was written, and for how long

    def begin_step(self) -> int:
        """The number of the step that begins."""
        self.step, self.samples_before = self.step + 1, self.samples
        return self.step

    def tick(self) -> float:
        """Seconds of the run so far: the slowest process's."""
        self.seconds = max(gather_object([time.perf_counter() - self.started]))
        return self.seconds

    def fraction(self, config: Config) -> float:
        """How much of the budget is spent: of steps, samples or hours, whichever is ahead. 1: all."""
        steps, samples, hours = config.max_steps, config.max_samples, config.max_hours
        limits = (steps, self.step), (samples, self.samples), (hours, self.seconds / 3600)
        return max((used / limit for limit, used in limits if limit is not None), default=0.0)

    def spent(self, config: Config) -> bool:
        return self.fraction(config) >= 1

    def evaluates(self, config: Config) -> bool:
        """Does the step end with an evaluation?"""
        return self.spent(config) or bool(config.eval_every and self.step % config.eval_every == 0)

    def saves(self, config: Config) -> bool:
        """Does the step end with a checkpoint? By steps; by minutes, for a tenth of the run's time at most; at the end.

        All processes agree, since `seconds` is the slowest one's.
        """
        by_time = self.seconds - self.saved >= max(60 * config.save_minutes, 10 * self.saving)
        return by_time or self.step % config.save_every == 0 or self.spent(config)

    def note_saved(self, began: float) -> None:
        """Of a checkpoint that `tick` saw the beginning of."""
        self.saved = self.tick()
        self.saving = self.saved - began

    def warm_up(self, optimizer: torch.optim.Optimizer, config: Config) -> None:
        """--warmup_updates W: the learning rate of the run's u-th update is min(u / W, 1) of its value."""
        self.updates += 1
        if config.warmup_updates:
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * min(1.0, self.updates / config.warmup_updates)

    def pass_rate(self, config: Config, tried: int = 0, informative: int = 0) -> float:
        """The share of prompts that dynamic sampling keeps, as measured so far; before the first step table 2's.

        tried, informative: of the step that is under way.
        """
        if not (seen := self.tried + tried):
            return brorl.PASS_RATE[config.recipe]
        return max(self.informative + informative, 0.5) / seen

    def note_drawn(self, tried: int, informative: int, rollouts: int) -> None:
        """Of a step: how many prompts it drew, how many of them were informative, rollouts of all of them."""
        self.samples += rollouts
        self.tried = MEMORY_OF_PROMPTS * self.tried + tried
        self.informative = MEMORY_OF_PROMPTS * self.informative + informative

    def is_spike(self, norm: float, times: float) -> bool:
        """Is this gradient's norm so many `times` the median of the last ones? No, while there are too few."""
        return bool(times) and len(self.norms) >= 16 and norm > times * statistics.median(self.norms)

    def note_norm(self, norm: float) -> None:
        """Of an update's gradient, taken or not."""
        if math.isfinite(norm):
            self.skipped, self.norms = 0, [*self.norms, norm][-MEMORY_OF_NORMS:]
        else:
            self.skipped += 1

    def check_health(self, config: Config, judged: bool) -> None:
        """Raises RunStopped where no update has been possible for long. judged: could any rollout of the step be?"""
        self.unjudged = 0 if judged else self.unjudged + 1
        if self.unjudged >= STEPS_UNJUDGED:
            raise RunStopped(
                f"in the last {self.unjudged} steps no rollout could be judged: all verdicts are crashed or timeout. "
                "Mend what the first failure above names, or raise --verify_timeout"
            )
        if self.skipped >= config.max_skipped_updates:
            raise RunStopped(
                f"the last {self.skipped} updates had no finite gradient: the model computes inf or nan, and no "
                "update of its weights changes that. Look at the last lines of samples.jsonl; a lower --learning_rate, "
                "from a checkpoint before it began, is the usual cure"
            )

    def time_left(self, config: Config) -> str:
        """As far as the pace so far tells, in the form of tqdm: 4:05."""
        spent = self.fraction(config)
        return tqdm.format_interval(self.seconds * max(1 - spent, 0) / spent) if spent else "?"

    def state_dict(self) -> dict:
        return asdict(self)

    def load_state_dict(self, state: dict) -> None:
        self.__dict__.update(state)
        self.start()


class Stages:
    """A step's stages: `with stage("update"): ...` shows its name and counts its seconds."""

    def __init__(self, show: Callable[[str], None] = lambda name: None):
        self.show, self.start = show, time.perf_counter()
        self.cpu = time.process_time()  # of all threads of this process, whatever else runs on the machine
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str):
        self.show(name.replace("_", " "))
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def timing(self, progress: Progress) -> dict[str, float]:
        """Of the run so far, and of this step; progress.samples has this step's in it."""
        seconds, cpu = time.perf_counter() - self.start, time.process_time() - self.cpu
        return {
            "seconds": progress.tick(),
            "cpu_seconds": cpu,
            "samples_per_second": (progress.samples - progress.samples_before) / seconds,
        }


most_in_use = 0.0  # GiB of a GPU, at the calls of `peak_gib`


def peak_gib(device: torch.device) -> float:
    """The most GiB held so far: by this process; of a GPU in use by whatever process, when this was called.

    torch's own counters would not do: they have the memory that vLLM gave back when it fell asleep.
    """
    global most_in_use
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        most_in_use = max(most_in_use, (whole - free) / 2**30)
        return most_in_use
    try:
        import resource
    except ModuleNotFoundError:
        return 0.0  # Windows has no such counter
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30
