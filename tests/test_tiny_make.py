"""tiny/make.py: the problems and the policy that the project ships, and the script that makes them."""

import json
import subprocess
import sys

import pytest
from helpers import ROOT, TINY, loaded
from transformers import AutoModelForCausalLM

from tiny.answers import answers_of
from trainer.problems import load_problems


def test_the_problems_are_held_out_and_solvable():
    """Makes impossible: a test problem in the training set, or a target that no expression reaches."""
    train_set, test_set = (load_problems(TINY / f"{x}.jsonl") for x in ("train", "test"))
    assert len(train_set) == 4096 and len(test_set) == 512
    key = lambda p: (tuple(sorted(p.reference["numbers"])), p.reference["target"])  # noqa: E731
    assert len({*map(key, train_set)}) == 4096 and not {*map(key, train_set)} & {*map(key, test_set)}
    assert all(map(answers_of, train_set[::1024])) and all(map(answers_of, test_set[::128]))


@pytest.mark.slow
def test_the_maker_makes_the_shipped_problems_and_a_policy_of_the_same_shape(tmp_path):
    """Makes impossible: a script that no longer makes what the project ships."""
    command = [sys.executable, "-m", "tiny.make", "--out", tmp_path, "--steps", "3", "--batch", "8"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("train.jsonl", "test.jsonl", "policy/tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (TINY / name).read_bytes()
    config, shipped_config = (json.loads((folder / "policy/config.json").read_text()) for folder in (tmp_path, TINY))
    assert config | {"transformers_version": ""} == shipped_config | {"transformers_version": ""}
    shipped, made = loaded()[0], AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert [p.shape for p in made.parameters()] == [p.shape for p in shipped.parameters()]
