"""The clock of a run: seconds and peak memory of each phase, for timing.jsonl and the console.

Phases of a step: roll_out (stages 1 to 4 of train.py), score (5 and 6), update (7) and evaluate (9) are timed. An
out-of-memory error also names sync (8), log and checkpoint (9), and before the first step start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from accelerate import Accelerator
from accelerate.utils import gather_object

from trainer.peaks import Peak, peak, restart_peak
from trainer.settings import Config

# The phase after another; after the others comes "log". An out-of-memory error names "sync", though no lap ends it.
AFTER = {"roll_out": "score", "score": "update", "update": "sync"}


class Clock:
    """Seconds and memory of the phase and the step that are going on, and of the run. It starts when it is made."""

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.run_began = self.first_step_began = self.step_began = self.phase_began = time.perf_counter()
        self.processor_began = time.process_time()  # at the beginning of the phase
        self.step, self.phase = 0, "start"  # that are going on
        self.steps = 0  # of this process
        self.laps = dict[str, float]()  # seconds of this step: phases, their parts, and `processor`
        self.peaks = dict[str, Peak]()  # phase of this step -> memory

    def begin_step(self, step: int) -> None:
        self.step, self.steps, self.laps, self.peaks = step, self.steps + 1, {}, {}
        self.begin("roll_out")
        self.step_began = self.phase_began
        if self.steps == 1:
            self.first_step_began = self.step_began

    def begin(self, phase: str) -> None:
        """Begin the seconds and the peak memory of a phase."""
        self.phase, self.phase_began, self.processor_began = phase, time.perf_counter(), time.process_time()
        restart_peak(self.accelerator.device)

    def lap(self, phase: str, parts: Mapping[str, float] | None = None) -> None:
        """End a phase: note its seconds and its peak memory, and this process's processor seconds. Begin the next.

        parts: seconds of parts of the phase, for timing.jsonl too.
        """
        now, processor = time.perf_counter(), time.process_time()
        self.laps[phase] = now - self.phase_began
        self.note_peak(phase)
        if phase != "evaluate":
            self.laps["processor"] = self.laps.get("processor", 0.0) + processor - self.processor_began
        self.laps |= parts or {}
        self.begin(AFTER.get(phase, "log"))

    def note_peak(self, phase: str) -> None:
        self.peaks[phase] = peak(self.accelerator.device)

    def resume(self, seconds: float) -> None:
        """Count the seconds of the run before a --resume too."""
        self.run_began -= seconds

    def seconds_of_slowest(self) -> float:
        """Return the run's seconds on the slowest rank, with the time before a resume. All ranks must call it."""
        return max(gather_object([time.perf_counter() - self.run_began]))

    def seconds_of_step(self) -> float:
        """Return the seconds of the step that is going on, on this rank."""
        return time.perf_counter() - self.step_began

    def seconds_left(self, metrics: Mapping[str, float], config: Config) -> float | None:
        """Return the seconds until the end of the run; None if neither steps, hours nor samples limit it.

        Steps to come take as long as this process's steps until now.
        """
        now = time.perf_counter()
        each = (now - self.first_step_began) / self.steps
        limits = [(config.max_steps - metrics["step"]) * each] if config.max_steps else []
        limits += [max(0.0, 3600 * config.max_hours - (now - self.run_began))] if config.max_hours else []
        if config.max_samples:  # steps to come draw as many samples as the steps until now
            limits += [max(0.0, (config.max_samples / metrics["samples"] - 1) * metrics["step"] * each)]
        return min(limits, default=None)
