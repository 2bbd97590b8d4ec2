"""tools/gpu_day.py: the budget of a card, the tables; tools/gpu_day.sh: its tasks. .ci/run runs the script."""

import subprocess
import sys
from unittest import mock

import pytest
import torch
from helpers import ROOT, lines

import train
from tools.gpu_day import compare_runs, train_within, versions
from trainer.clock import GIB
from trainer.process import Refusal


def test_a_budget_is_a_share_of_the_card(monkeypatch):
    """Makes impossible: a budget in bytes, one above the card, settings that do not reach train.py."""
    shares, words = [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: mock.Mock(total_memory=80 * GIB))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    monkeypatch.setattr(train, "main", lambda: words.append(sys.argv))
    monkeypatch.setattr(sys, "argv", [])
    for gib in (20, 200):
        train_within(gib, ["--max_steps", "1"])
    assert shares == [0.25, 1.0] and words == [["train.py", "--max_steps", "1"]] * 2


def test_the_tables(finished, tmp_path):
    """Makes impossible: a summary without a run's steps, or with the memory of another run."""
    assert torch.__version__ in versions() and "none: this ran on a CPU" in versions()
    steps, memory = compare_runs([finished / "run"]).split("\n\n")
    last = lines(finished / "run/metrics.jsonl")[-1]
    assert len(steps.splitlines()) == 2 + 3 and f"| {last['eval/pass@1']:.3g} |" in steps.splitlines()[-1]
    assert [row.split(" | ")[1] for row in memory.splitlines()[2:]] == [
        "start", "evaluate", "roll_out", "score", "update"
    ]  # fmt: skip
    with pytest.raises(Refusal, match=r"has no timing\.jsonl"):
        compare_runs([tmp_path])


TASKS = ["tests", "default", "model", "big", "peaks", "vllm", "smollm", "two"]


@pytest.mark.parametrize("task", TASKS)
def test_the_script_knows_each_task_that_it_explains(task):
    """Makes impossible: a task in the help of the script that it does not have."""
    text = (ROOT / "tools/gpu_day.sh").read_text()
    assert f"\n#     {task} " in text and f"\n        {task})" in text and f'\nknown="{" ".join(TASKS)}"\n' in text


def test_a_misspelt_task_is_refused_before_the_first_begins(tmp_path):
    """Makes impossible: a task that runs for ten minutes before the script meets the mistake."""
    command = ["bash", "tools/gpu_day.sh", str(tmp_path / "out"), "tests", "vlm"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert done.stderr == f"there is no task vlm: choose from {', '.join(TASKS)}\n" and not done.stdout
