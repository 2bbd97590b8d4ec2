"""The peak memory of each phase, for timing.jsonl, and the sentence about it at the end of a run."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from engines.memory import vllm_bytes

GIB = 2**30
Peak = dict[str, float]  # name -> GiB


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
        return f"peak memory of the process: {most['process']:.2f} GiB, first reached in phase {phase} of step {step}"
    peaks = largest_peaks(timing)
    phases = ", ".join(f"{phase} {x['allocated']:.2f} ({x['reserved']:.2f})" for phase, x in peaks.items())
    held = max(taken.get("vllm", 0.0) for taken in peaks.values())
    vllm = f"; vLLM's weights and cache {held:.2f} more, off the card in score and update" if held else ""
    return f"peak memory of the card, GiB allocated (reserved) by torch: {phases}{vllm}"
