"""tools/gpu_day.py: the model without a download, the two ways of vLLM, the tables. .ci/run runs tools/gpu_day.sh."""

import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from helpers import ROOT, lines
from transformers import AutoConfig, AutoTokenizer

import rollout
import train
from kinds.users import load_rewards
from rollout import Group, Request, Sampling
from sandbox.pool import end_workers
from tools import gpu_day
from tools.gpu_day import SHAPES, Timed, compare_runs, table, train_within, unseeded, versions, write_model
from trainer.count import GIB
from verify import KINDS, verify


def test_the_model_has_the_shape_of_qwen_and_problems_with_both_rewards(tmp_path, forget_kinds):
    """Makes impossible: a tokenizer that cannot read its own tokens, prompts of another length, equal rewards."""
    write_model(tmp_path, "tiny")
    config, tokenizer = AutoConfig.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert config.architectures == ["Qwen2ForCausalLM"] and SHAPES["1.5B"].num_hidden_layers == 28
    assert len(tokenizer) == 2000 and tokenizer.decode([2, 1999]) == "at1999"
    problems = lines(tmp_path / "train.jsonl")
    prompts = {tuple(tokenizer(x["prompt"]).input_ids) for x in problems}
    assert len(prompts) == 512 and {len(x) for x in prompts} == {256} and 0 not in {i for x in prompts for i in x}
    load_rewards([str(tmp_path / "rewards.py")])
    assert "coin" in KINDS
    assert {verify("coin", f"w{i}", "").reward for i in range(8)} == {0.0, 1.0}
    end_workers()


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


class Drawing:
    """An engine whose tokens come from torch's generator, unless a request has a seed."""

    def generate(self, requests, sampling):
        for i, request in enumerate(requests):
            seed = rollout.sampling_params(request.n, request.seed, sampling).seed
            drawing = torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
            tokens = torch.randint(9, (request.n, 4), generator=drawing).tolist()
            yield i, Group.of(list(request.prompt), tokens, [[0.0] * 4] * request.n, ["length"] * request.n)


def test_both_ways_are_timed_and_repeat(monkeypatch):
    """Makes impossible: a rate in rollouts, two ways that are one, a way that is said to repeat and does not."""
    monkeypatch.setattr(gpu_day, "sampling_params", lambda n, seed, sampling: SimpleNamespace(seed=seed))
    clock = iter(range(100))
    monkeypatch.setattr(gpu_day.time, "perf_counter", lambda: next(clock))
    requests, before = [Request([1], 3, 5), Request([2], 3, 6)], rollout.sampling_params
    seeded, free = (Timed(Drawing(), requests, Sampling(4), way) for way in (gpu_day.sampling_params, unseeded))
    for _ in range(2):
        seeded.turn()
        free.turn()
    assert seeded.rates == free.rates == [24.0, 24.0] and seeded.drawn[0] != free.drawn[0]
    assert seeded.row("a") == ["a", 3, 24.0, "24 to 24", "yes"] and free.row("b")[-1] == "yes"
    with mock.patch.object(torch, "manual_seed"):
        free.turn()
    assert free.row("b")[-1] == "no" and rollout.sampling_params is before


def test_the_tables(finished, tmp_path):
    """Makes impossible: a summary without a run's steps, or with the memory of another run."""
    assert table(["a", "b"], [[1, 0.12345]]) == "| a | b |\n| --- | --- |\n| 1 | 0.123 |"
    assert torch.__version__ in versions() and "none: this ran on a CPU" in versions()
    steps, memory = compare_runs([finished / "run"]).split("\n\n")
    last = lines(finished / "run/metrics.jsonl")[-1]
    assert len(steps.splitlines()) == 2 + 3 and f"| {last['eval/pass@1']:.3g} |" in steps.splitlines()[-1]
    assert [row.split(" | ")[1] for row in memory.splitlines()[2:]] == [
        "start", "evaluate", "roll_out", "score", "update"
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["tests", "default", "model", "big", "peaks", "vllm", "smollm", "two"])
def test_the_script_knows_each_part_that_it_explains(part):
    """Makes impossible: a part in the help of the script that it does not have."""
    text = (ROOT / "tools/gpu_day.sh").read_text()
    assert f"\n#     {part} " in text and f"\n        {part})" in text and f" {part}" in text.split("parts=${*:-")[1]
