"""Several ranks, FSDP2, kills, refusals: train.py in separate processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from helpers import ROOT, arguments, contents, ended, kill, lines, run, start, wait_until
from ranks import UNEVEN


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


def test_fsdp2_starts_layer_by_layer(two_ranks):
    """Makes impossible: the whole float32 policy on a card, or in the host memory of a rank other than the first.

    Two ranks: half of the policy and half of the reference stay, and one layer of eight is whole at a time. `Needs` in
    trainer/card_memory.py has the same formula.
    """
    first, second = (json.loads((two_ranks / f"start{i}.json").read_text()) for i in (0, 1))
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


KILLED = {
    "data": None, "eval_data": None, "output_dir": None, "name": "brorl-seed0", "eval_every": 3, "save_every": 2,
    "reference_reset_steps": 3, "eval_samples": 1, "eval_problems": 16,
}  # fmt: skip


def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path, one_thread):
    """Makes impossible: a step that is lost, doubled or drawn again after Ctrl-C or a kill; a traceback for Ctrl-C; a
    first command that fails outside the repository's folder, or without data, a folder and a name.
    """
    metrics = tmp_path / "runs/brorl-seed0/metrics.jsonl"

    def begun(command, count):  # the run has more steps than it gets to
        process = start(command, cwd=tmp_path)
        wait_until(process, lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= count)
        return process

    process = begun(arguments(None, **KILLED | {"name": None, "max_steps": 1000}), 3)
    os.kill(process.pid, signal.SIGINT)
    said = ended(process, code=130)
    assert "\n   1/1000 " in said and "--resume --name brorl-seed0" in said and "Traceback" not in said
    kill(begun(["--resume", "--name", "brorl-seed0"], 5))
    steps = metrics.read_bytes().count(b"\n")  # one more than there are
    run(tmp_path / "runs", **KILLED | {"resume": True, "output_dir": tmp_path / "runs", "max_steps": steps})
    run(tmp_path / "whole", **KILLED | {"output_dir": tmp_path / "whole", "max_steps": steps})
    assert contents(tmp_path / "whole/brorl-seed0") == contents(tmp_path / "runs/brorl-seed0")


def test_before_and_during_the_import_of_torch(tmp_path):
    """Makes impossible: a run that any other load slows 5 to 15 times, because torch was imported too early; a
    traceback for Ctrl-C during the seconds of the imports.
    """
    code = "print(os.environ.get('OMP_WAIT_POLICY'), flush=True); os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    (tmp_path / "torch.py").write_text(f"import os, signal, time; {code}")
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, ROOT / "train.py"], capture_output=True, text=True, env=environment)
    assert done.stdout == "PASSIVE\n" and done.returncode == 130 and "Traceback" not in done.stderr, done.stderr
