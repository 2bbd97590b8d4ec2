"""trainer/sources.py: the names of sources, and their weights."""

import pytest
from helpers import write_problems

from trainer.problems import load_problems
from trainer.process import Refusal
from trainer.sources import load_sources, read_spec, source_names


def test_sources_have_different_names():
    """Makes impossible: two benchmarks in one row; problems that count twice."""
    names = {"hf:aime24": "hf:aime24", "gym:chain_sum*5": "gym:chain_sum*5", "test": "a/test.jsonl"}
    assert source_names(list(names.values())) == names
    assert source_names(["a/test.jsonl:0.5"]) == {"test": "a/test.jsonl"}  # a weight says nothing about an evaluation
    with pytest.raises(Refusal, match="--eval_data"):
        source_names(["a/test.jsonl", "b/test.jsonl"])


def test_specs():
    """Makes impossible: a path cut at a colon, or a weight taken for a part of it."""
    for source, weight in (("a.jsonl", None), ("a.jsonl", 0.4), ("hf:aime24=saved/x", 2.0),
                           ("gym:chain_sum*50", 0.1), ("dir:with:colons", None)):  # fmt: skip
        assert read_spec(source if weight is None else f"{source}:{weight}") == (source, weight)


def test_an_epoch_keeps_the_weights(tmp_path):
    """Makes impossible: weights that hold only on average, a source that ends early, or a lost problem."""
    a, b = (
        write_problems(tmp_path / name, *(f"{name}{i}" for i in range(count)))
        for name, count in (("a.jsonl", 90), ("b.jsonl", 10))
    )
    assert load_sources([a, b]) == load_problems(a) + load_problems(b)
    epoch = load_sources([f"{a}:0.75", f"{b}:0.25"], seed=1)
    assert len(epoch) == 120 and len({problem.prompt for problem in epoch}) == 100
    for start in range(0, 120, 8):
        assert 1 <= sum(problem.prompt[0] == "b" for problem in epoch[start : start + 8]) <= 3
    assert epoch == load_sources([f"{a}:3", f"{b}:1"], seed=1) != load_sources([f"{a}:3", f"{b}:1"], seed=2)
    for wrong in ([a, f"{b}:1"], [f"{a}:0"]):
        with pytest.raises(ValueError, match="weight"):
            load_sources(wrong)
