"""Seconds and peak memory of each phase of a run, for timing.jsonl and the console.

Phases of a step: roll_out (stages 1 to 4 of train.py), score (5 and 6), update (7) and evaluate (9) are timed. An
out-of-memory error also names sync (8, and 9 until an evaluation), log (9 after one), checkpoint (9), and before the
first step start.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from engines.memory import vllm_bytes
from trainer.settings import Config

GIB = 2**30
Peak = dict[str, float]  # name -> GiB
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


def restart_peak(device: torch.device) -> None:
    """Begin the next `peak` of a GPU now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> Peak:
    """Return the peak of this process in GiB.

    On a GPU, since `restart_peak`: allocated and reserved by torch; vllm, the size of vLLM's weights and cache. torch
    counts these even while vLLM sleeps, so they are subtracted from the other two. On a CPU, since the process began:
    to reset its peak, a process needs the right to write /proc/self/clear_refs.
    """
    if device.type != "cuda":
        return {"process": round(process_peak() / GIB, 3)}
    pool = vllm_bytes()
    found = {"allocated": torch.cuda.max_memory_allocated(device), "reserved": torch.cuda.max_memory_reserved(device)}
    taken = {name: round((x - pool) / GIB, 3) for name, x in found.items()}
    return taken | ({"vllm": round(pool / GIB, 3)} if pool else {})


def process_peak() -> int:
    """Return the largest resident size of this process in bytes. On Linux getrusage would count its parent's too."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        return 1024 * int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def largest_peaks(timing: list[dict[str, Any]]) -> dict[str, Peak]:
    """Return the largest peak of each phase over rows of timing.jsonl."""
    found: dict[str, Peak] = {}
    for phase, taken in (item for row in timing for item in row.get("peak_gib", {}).items()):
        found[phase] = {name: max(x, found.get(phase, {}).get(name, 0.0)) for name, x in taken.items()}
    return found


def peak_summary(timing: list[dict[str, Any]]) -> str:
    """Return the sentence at the end of a run about the peaks in rows of timing.jsonl; "" for rows of older code."""
    found = [(row["step"], phase, x) for row in timing for phase, x in row.get("peak_gib", {}).items()]
    if not found:
        return ""
    if all("process" in taken for _, _, taken in found):
        step, phase, most = max(found, key=lambda x: x[2]["process"])  # the first of equal ones
        where = f"phase {phase} of step {step}"
        return f"peak memory of a process of this run: {most['process']:.2f} GiB, first reached in {where}"
    peaks = largest_peaks(timing)
    phases = ", ".join(f"{phase} {x['allocated']:.2f} ({x['reserved']:.2f})" for phase, x in peaks.items())
    held = max(taken.get("vllm", 0.0) for taken in peaks.values())
    vllm = f"; vLLM's weights and cache {held:.2f} more, off the card in score and update" if held else ""
    return f"peak memory of the card, GiB allocated (reserved) by torch: {phases}{vllm}"
