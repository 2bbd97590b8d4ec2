"""trainer/clock.py: the time of a run, and the time that is left."""

import json
import shutil
from types import SimpleNamespace

import pytest
from helpers import set_up

import trainer.clock as module
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
