"""trainer/clock.py: the time of a run and what is left of it; the peaks of the phases. A card is mocked."""

import json
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from helpers import lines, set_up

import trainer.clock as module
from trainer.clock import GIB, peak
from trainer.settings import Config


def test_the_hours_before_a_resume_count(tmp_path, finished, monkeypatch):
    """Makes impossible: --max_hours that starts again with every resume; ranks that disagree about the time."""
    shutil.copytree(finished / "run", tmp_path / "run")
    path = tmp_path / "run/checkpoints/step_00000002/progress.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 3600.0}))
    _, _, setup = set_up(tmp_path, resume=True, max_steps=3)
    assert setup.progress.seconds == 3600 and 3600 <= setup.run.clock.seconds_of_slowest() < 3700
    monkeypatch.setattr(module, "gather_object", lambda mine: [*mine, 9999.0])
    assert setup.run.clock.seconds_of_slowest() == 9999


@pytest.mark.parametrize("limits, left", [
    ({}, None), ({"max_steps": 10}, 40.0), ({"max_hours": 0.01}, 6.0), ({"max_steps": 3, "max_samples": 64}, 5.0),
    ({"max_steps": 10, "max_samples": 32}, 10.0), ({"max_samples": 8}, 0.0),
])  # fmt: skip
def test_the_time_that_is_left_is_that_of_the_nearest_limit(limits, left, monkeypatch):
    """Makes impossible: seconds of the start in those of a step; a limit that the console does not know."""
    now = iter([0.0, 20.0, 25.0, 30.0])  # of the run, of two steps, and of the question: a step takes 5 seconds
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(now))
    clock = module.Clock(SimpleNamespace(device=SimpleNamespace(type="cpu")))
    for step in (1, 2):
        clock.begin_step(step)
    found = clock.seconds_left({"step": 2, "samples": 16}, Config(**limits))
    assert found == (None if left is None else pytest.approx(left))


def test_the_peak_of_a_card_leaves_out_the_pool_of_vllm(monkeypatch):
    """Makes impossible: an update whose peak has the weights and the cache of a sleeping vLLM, which torch counts."""
    for name, gib in {"max_memory_allocated": 50, "max_memory_reserved": 60}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, gib=gib: gib * GIB)
    assert peak(torch.device("cuda")) == {"allocated": 50, "reserved": 60}
    pool = SimpleNamespace(get_current_usage=lambda: 40 * GIB)
    cumem = SimpleNamespace(CuMemAllocator=SimpleNamespace(instance=pool))
    monkeypatch.setitem(sys.modules, "vllm.device_allocator.cumem", cumem)
    assert peak(torch.device("cuda")) == {"allocated": 10, "reserved": 20, "vllm": 40}


def test_the_phases_of_a_run_have_a_peak(finished):
    """Makes impossible: a phase without its memory, peaks of an earlier step, memory in metrics.jsonl."""
    first, *steps = (row["peak_gib"] for row in lines(finished / "run/timing.jsonl"))
    assert [*first] == ["start", "evaluate"]
    assert all([*step] == ["roll_out", "score", "update", "evaluate"] for step in steps)
    rising = [taken["process"] for row in (first, *steps) for taken in row.values()]
    assert rising == sorted(rising) and 0.1 < rising[0] < 32
    assert "gib" not in (finished / "run/metrics.jsonl").read_text()
