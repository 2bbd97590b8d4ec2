"""A student's loop, which lab.grade puts into PYTHONPATH, against lab/loop.py; without it lab/loop.py itself."""

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
from unittest import mock

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab import loop as original
from lab.bugs import read

loop = importlib.import_module("loop" if importlib.util.find_spec("loop") else "lab.loop")
PROBLEMS = original.read_problems("train")


def gradients(train, problems=None, tested: int = 2, **settings) -> list[torch.Tensor]:
    """The gradient of each update of a run of the tiny policy; the rate is too small to move it."""
    defaults = {"rollouts": 16, "prompts": 12, "updates": 1, "steps": 1, "learning_rate": 1e-12, "seed": 0}
    args = argparse.Namespace(**({"objective": "brorl", "log": None} | defaults | settings))
    model = AutoModelForCausalLM.from_pretrained(original.TINY / "policy", dtype=torch.float32)
    tokenizer, found = AutoTokenizer.from_pretrained(original.TINY / "policy"), []

    class Recorder(torch.optim.AdamW):
        def step(self, closure=None):
            found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
            super().step()

    with mock.patch("torch.optim.AdamW", Recorder):
        train(model, tokenizer, problems or PROBLEMS[:40], PROBLEMS[-tested:], args)
    return found


def error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).norm() / theirs.norm()).item()


def test_the_gradient_is_the_originals():
    """Makes impossible: a dropped prompt that counts, another prompt's advantages, a sign, a gradient not clipped."""
    (ours,), (theirs,) = (gradients(train, rollouts=4, prompts=6) for train in (loop.train, original.train))
    assert error(ours, theirs) < 1e-4 and theirs.norm().item() == pytest.approx(1, abs=1e-4)


def test_mini_batches_share_the_rollouts():
    """Makes impossible: a gradient added to the last one, a rollout in two mini-batches or in none."""
    draws = {"prompts": 24, "seed": 3}  # whose gradients are too small to be clipped
    ours, (whole,) = gradients(loop.train, updates=4, **draws), gradients(original.train, **draws)
    assert len(ours) == 4 and max(gradient.norm() for gradient in ours) < 0.9
    assert error(torch.stack(ours).mean(0), whole) < 0.02
    assert all(error(gradient, whole) > 0.1 for gradient in ours)


def test_the_old_policy_and_the_reference_stay(tmp_path):
    """Makes impossible: old log-probs of each update, a reference that follows the policy, an optimizer that rests, a
    log without the norm of the gradients.
    """
    gradients(loop.train, updates=4, steps=3, learning_rate=2e-4, log=tmp_path / "log.csv")
    log = read(tmp_path / "log.csv")
    assert min(log["kl_old"]) > 1e-4 and log["kl_ref"][2] > 3 * log["kl_old"][2]
    assert min(log.get("grad_norm", [0])) > 0


def test_a_step_without_an_informative_prompt_is_skipped():
    """Makes impossible: a run that ends with 0 / 0 where no group has right and wrong answers."""
    impossible = [p._replace(reference=p.reference | {"target": 10**6}) for p in PROBLEMS[:4]]
    assert gradients(loop.train, impossible, prompts=4, steps=2) == []


def test_the_file_runs_by_its_path(tmp_path):
    """Makes impossible: the README's first file ends in a traceback when it is started as a file."""
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, original.__file__, "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "--objective" in done.stdout


@pytest.mark.slow
def test_the_learning_curve_rises(capsys):
    """Makes impossible: a sign error anywhere between verdict and weights; with it the score falls."""
    gradients(loop.train, PROBLEMS, 256, rollouts=32, prompts=32, steps=10, updates=8, learning_rate=3e-4)
    before, after = (
        float(line.partition("pass@1 ")[2][:5]) for line in capsys.readouterr().out.splitlines() if "held" in line
    )
    assert after > before + 0.03  # the standard error of each is 0.008
