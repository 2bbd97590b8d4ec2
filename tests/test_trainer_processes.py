"""Several ranks, FSDP2, kills, refusals: train.py in separate processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from helpers import ROOT, arguments, contents, ended, kill, lines, random_policy, run, start, wait_until
from transformers import LlamaConfig

FSDP2 = {"ACCELERATE_USE_FSDP": "true"}
# A step whose ranks differ: few rollouts, small micro-batches, some ranks without an informative prompt.
UNEVEN = {"rollouts_per_prompt": 2, "prompts_per_step": 3, "refill": 20, "max_tokens_per_micro_batch": 40}


def same(a, b, rel=1e-4) -> None:
    """Two runs' metrics agree up to the order of float sums."""
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            near = pytest.approx(y[name], rel=rel if name not in ("ratio_max", "ratio_min") else 1e-2, abs=1e-5)
            assert x[name] == near, (x["step"], name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The uneven run on one rank."""
    folder = tmp_path_factory.mktemp("alone")
    run(folder, **UNEVEN)
    return folder / "run"


# Runs of train.py one after the other in the same processes, since starting them takes longer than the runs.
SEVERAL_RUNS = """
import gc, json, os, sys
from accelerate.state import AcceleratorState
import train
for environment, argv in json.loads(sys.argv[1]):
    os.environ |= environment
    AcceleratorState._reset_state()
    config, sources = train.read_settings("", argv)
    accelerator = train.start_accelerator(config)
    train.train(config, accelerator, train.set_up(config, accelerator, sources))
    gc.collect()  # releases the lock of the folder
"""


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """A folder with two runs of two ranks: ddp, and fsdp2, which ends after a step and is resumed."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "several.py").write_text(SEVERAL_RUNS)
    runs = [
        ({}, arguments(folder, name="ddp", **UNEVEN)),
        (FSDP2, arguments(folder, name="fsdp2", **UNEVEN | {"max_steps": 1})),
        (FSDP2, arguments(folder, name="fsdp2", **UNEVEN, resume=True)),
    ]
    ended(start([json.dumps(runs)], 2, train=folder / "several.py"))
    return folder


def test_two_ranks_give_the_same_numbers(alone, two_ranks):
    """Makes impossible: a loss normalised per rank, advantages of one rank, a draw that depends on ranks."""
    same(lines(alone / "metrics.jsonl"), lines(two_ranks / "ddp/metrics.jsonl"))
    assert lines(alone / "eval.jsonl") == lines(two_ranks / "ddp/eval.jsonl")


def test_fsdp2_trains_checkpoints_and_resumes(alone, two_ranks):
    """Makes impossible: a gradient of half the ranks, whole weights on each rank, shards that a resume mixes up."""
    for step in (1, 2):
        shards = two_ranks.glob(f"fsdp2/checkpoints/step_0000000{step}/*.distcp")
        sizes = [path.stat().st_size for path in shards]
        assert len(sizes) == 2 and max(sizes) < 1.5 * min(sizes)  # each rank wrote its part
    assert json.loads((two_ranks / "fsdp2/config.json").read_text())["sharded"] is True
    same(lines(alone / "metrics.jsonl"), lines(two_ranks / "fsdp2/metrics.jsonl"))


# Writes shares of the whole policy: the peak of the tensors that exist while the models are built, and what stays.
# First without a reference, then with one.
START = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from accelerate import Accelerator
from torch.distributed.tensor import DTensor
from tools.fit import Allocations
from trainer.settings import Config
from trainer.start import build_models

class Memory(Allocations):
    def add(self, tensor):
        if not isinstance(tensor, DTensor) and not tensor.is_meta:  # the part of a DTensor is a tensor of its own
            super().add(tensor)

accelerator, found = Accelerator(), []
for kl_coef in (0.0, 1e-3):
    config = Config(model=sys.argv[1], engine="vllm", kl_coef=kl_coef, max_response_tokens=12)
    with Memory() as memory:
        policy, reference, model = build_models(config, accelerator, SimpleNamespace(prompt_lengths=[8]))
        whole = 4 * sum(p.numel() for p in policy.parameters())
    found += [memory.peak / whole, memory.live / whole]
Path(f"{sys.argv[1]}/rank{accelerator.process_index}").write_text(json.dumps(found))
accelerator.end_training()
"""


def test_fsdp2_starts_layer_by_layer(tmp_path):
    """Makes impossible: the whole float32 policy on a card, or in the host memory of a rank other than the first.

    Two ranks: half of the policy and half of the reference stay, and one layer of eight is whole at a time. `Needs` in
    tools/fit.py has the same formula.
    """
    wide = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 8}
    random_policy(LlamaConfig, **wide).model.save_pretrained(tmp_path / "model")
    (tmp_path / "start.py").write_text(START)
    ended(start([tmp_path / "model"], 2, train=tmp_path / "start.py", **FSDP2))
    first, second = (json.loads((tmp_path / f"model/rank{i}").read_text()) for i in (0, 1))
    assert second == pytest.approx([0.5 + 1 / 8, 0.5, 1 + 1 / 8, 1], rel=0.03)
    assert first[1::2] == pytest.approx([0.5, 1], rel=0.03)
    assert first[2] < 2  # the card of rank 0 is its host memory here, where it reads the weights


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
def test_more_ranks_than_rollouts_give_the_same_numbers(ranks, alone, tmp_path):
    """Makes impossible: a rank that waits for ever, or counts twice, where it has no rollout of a prompt: N = 2."""
    ended(start(arguments(tmp_path, **UNEVEN), ranks))
    same(lines(alone / "metrics.jsonl"), lines(tmp_path / "run/metrics.jsonl"))
    assert lines(alone / "eval.jsonl") == lines(tmp_path / "run/eval.jsonl")


@pytest.mark.slow
def test_accelerates_config_file_starts_fsdp2(alone, tmp_path):
    """Makes impossible: the page's command for FSDP2 that fails, or that runs DDP instead."""
    page = (ROOT / "docs/training.md").read_text()
    own = textwrap.dedent(page.partition("fsdp2.yaml:\n\n")[2].partition("\n\n")[0])
    assert "fsdp_version: 2" in own and "num_processes: 8" in own
    own = own.replace("num_processes: 8", "num_processes: 2")
    config_file = tmp_path / "fsdp2.yaml"
    config_file.write_text(own + "\nuse_cpu: true\n")
    ended(start(arguments(tmp_path, **UNEVEN), config_file=config_file))
    assert json.loads((tmp_path / "run/config.json").read_text())["sharded"] is True
    assert len(list((tmp_path / "run/checkpoints/step_00000002").glob("*.distcp"))) == 2
    same(lines(alone / "metrics.jsonl"), lines(tmp_path / "run/metrics.jsonl"))


@pytest.mark.slow
def test_fsdp2_in_bfloat16_and_ddp_with_checkpointing(tmp_path):
    """Makes impossible: sharding that works in float32 only; activations recomputed with other numbers."""
    ended(start(arguments(tmp_path, **UNEVEN), 2, **FSDP2, ACCELERATE_MIXED_PRECISION="bf16"))
    ended(start(arguments(tmp_path, name="plain", **UNEVEN, eval_every=0)))
    ended(start(arguments(tmp_path, name="recomputed", **UNEVEN, eval_every=0, gradient_checkpointing=True), 2))
    assert [row["step"] for row in lines(tmp_path / "run/metrics.jsonl")] == [0, 1, 2]
    same(lines(tmp_path / "plain/metrics.jsonl"), lines(tmp_path / "recomputed/metrics.jsonl"))


KILLED = {"max_steps": 10, "eval_every": 3, "save_every": 2, "reference_reset_steps": 5, "eval_samples": 1}


def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path, one_thread):
    """Makes impossible: a step that is lost, doubled or drawn again after Ctrl-C or a kill; a traceback for Ctrl-C."""
    metrics = tmp_path / "part/run/metrics.jsonl"

    def begun(command, count):
        process = start(command)
        wait_until(process, lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= count)
        return process

    process = begun(arguments(tmp_path / "part", **KILLED), 4)
    os.kill(process.pid, signal.SIGINT)
    said = ended(process, code=130)
    assert "--resume --name run" in said and "Traceback" not in said
    kill(begun(["--resume", "--name", "run", "--output_dir", str(tmp_path / "part")], 7))
    run(tmp_path / "part", resume=True, **KILLED)
    run(tmp_path / "whole", **KILLED)
    assert contents(tmp_path / "whole/run") == contents(tmp_path / "part/run")


def test_before_and_during_the_import_of_torch(tmp_path):
    """Makes impossible: a run that any other load slows 5 to 15 times, because torch was imported too early; a
    traceback for Ctrl-C during the seconds of the imports.
    """
    code = "print(os.environ.get('OMP_WAIT_POLICY'), flush=True); os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    (tmp_path / "torch.py").write_text(f"import os, signal, time; {code}")
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, ROOT / "train.py"], capture_output=True, text=True, env=environment)
    assert done.stdout == "PASSIVE\n" and done.returncode == 130 and "Traceback" not in done.stderr, done.stderr


def test_the_default_command_needs_no_argument(tmp_path):
    """Makes impossible: a first command that fails outside the repository's folder or without settings."""
    said = ended(start(["--max_steps", "1", "--prompts_per_step", "2", "--eval_samples", "1"], cwd=tmp_path))
    assert "\n      1/1 " in said and (tmp_path / "runs/brorl-seed0/model").is_dir()
