"""trainer/peaks.py: the peaks of the phases, and the sentence about them. A card is mocked."""

import mmap
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from helpers import lines

from trainer.peaks import GIB, peak, peak_summary, process_peak


def test_the_peak_of_a_card_leaves_out_the_pool_of_vllm(monkeypatch):
    """Makes impossible: an update whose peak has the weights and the cache of a sleeping vLLM, which torch counts."""
    for name, gib in {"max_memory_allocated": 50, "max_memory_reserved": 60}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, gib=gib: gib * GIB)
    assert peak(torch.device("cuda")) == {"allocated": 50, "reserved": 60}
    pool = SimpleNamespace(get_current_usage=lambda: 40 * GIB)
    cumem = SimpleNamespace(CuMemAllocator=SimpleNamespace(instance=pool))
    monkeypatch.setitem(sys.modules, "vllm.device_allocator.cumem", cumem)
    assert peak(torch.device("cuda")) == {"allocated": 10, "reserved": 20, "vllm": 40}


def test_the_peak_of_a_process_grows_with_its_memory():
    """Makes impossible: a peak in pages or KiB, and one that is the memory of now."""
    before = process_peak()
    now = 1024 * int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    room = before - now + 2**26
    with mmap.mmap(-1, room) as block:  # new pages: an object of Python may take memory that was freed before
        for _ in range(room // 2**20):
            block.write(b"x" * 2**20)
        after = process_peak()
    assert before + 2**25 < after < before + 2**27
    assert abs(process_peak() - after) < 2**24  # Linux counts pages in batches


def test_the_phases_of_a_run_have_a_peak(finished):
    """Makes impossible: a phase without its memory, peaks of an earlier step, memory in metrics.jsonl."""
    first, *steps = (row["peak_gib"] for row in lines(finished / "run/timing.jsonl"))
    assert [*first] == ["start", "evaluate"]
    assert all([*step] == ["roll_out", "score", "update", "evaluate"] for step in steps)
    rising = [taken["process"] for row in (first, *steps) for taken in row.values()]
    assert rising == sorted(rising) and 0.1 < rising[0] < 32
    assert "gib" not in (finished / "run/metrics.jsonl").read_text()


def test_the_last_sentence_about_memory():
    """Makes impossible: the peak of the last step only, or of another phase; a crash at the end of an older run."""
    assert peak_summary([{"step": 1, "seconds": 2.0}]) == ""
    rows = [
        {"step": i, "peak_gib": {"roll_out": {"process": a}, "update": {"process": b}}}
        for i, (a, b) in enumerate([(1, 1.25), (1.25, 1.5), (1.5, 1.5)])
    ]
    assert peak_summary(rows) == "peak memory of the process: 1.50 GiB, first reached in phase update of step 1"
    card = [
        {"step": i, "peak_gib": {phase: {"allocated": x, "reserved": x + 2, "vllm": 40} for phase, x in phases}}
        for i, phases in enumerate([[("a", 10), ("b", 33)], [("a", 11), ("b", 32)]])
    ]
    assert peak_summary([{"step": 0}, *card]) == (
        "peak memory of the card, GiB allocated (reserved) by torch: a 11.00 (13.00), b 33.00 (35.00); vLLM's weights "
        "and cache 40.00 more, off the card in score and update"
    )
