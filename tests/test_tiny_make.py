"""tiny/make.py: the problems and the policy that the project ships, and the script that makes them."""

import subprocess
import sys

import pytest
from rooms import TINY, embedded
from transformers import AutoModelForCausalLM

from tiny.make import Universe
from verify import load_problems


def test_the_problems_are_held_out_and_solvable():
    """Makes impossible: a test problem in the training set, or a target that no expression reaches."""
    train_set, test_set = (load_problems(TINY / f"{x}.jsonl") for x in ("train", "test"))
    assert len(train_set) == 4096 and len(test_set) == 512
    key = lambda p: (tuple(sorted(p.reference["numbers"])), p.reference["target"])  # noqa: E731
    assert len({*map(key, train_set)}) == 4096 and not {*map(key, train_set)} & {*map(key, test_set)}
    universe = Universe()
    solvable = {(tuple(universe.multisets[m].tolist()), t) for m, t in universe.problems.tolist()}
    assert {*map(key, train_set), *map(key, test_set)} <= solvable


def make(folder, *arguments) -> None:
    command = [sys.executable, TINY / "make.py", "--out", folder, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_the_maker_makes_a_policy_and_problems(tmp_path):
    """Makes impossible: a script that no longer makes what the project ships."""
    make(tmp_path, "--steps", 3, "--batch", 8, "--train", 20, "--test", 5)
    assert len(load_problems(tmp_path / "train.jsonl")) == 20 and len(load_problems(tmp_path / "test.jsonl")) == 5
    shipped, made = embedded()[0], AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert [p.shape for p in made.parameters()] == [p.shape for p in shipped.parameters()]
    make(tmp_path / "b", "--steps", 0)
    for name in ("train.jsonl", "test.jsonl"):
        assert (tmp_path / "b" / name).read_bytes() == (TINY / name).read_bytes()
