"""Several ranks, FSDP2, kills, refusals: train.py in processes of its own."""

import json
import os
import random
import signal
import time

import pytest
from helpers import ROOT, arguments, contents, ended, kill, lines, start, wait_until

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
    ended(start(arguments(folder, **UNEVEN)))
    return folder / "run"


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_any_number_of_ranks_gives_the_same_numbers(ranks, alone, tmp_path):
    """Makes impossible: a loss normalised per rank, an advantage of one rank's rollouts, a draw that depends on ranks.

    With N = 2, three and four ranks have prompts without a rollout of theirs.
    """
    ended(start(arguments(tmp_path, **UNEVEN), ranks))
    same(lines(alone / "metrics.jsonl"), lines(tmp_path / "run/metrics.jsonl"))
    assert lines(alone / "eval.jsonl") == lines(tmp_path / "run/eval.jsonl")


def test_fsdp2_trains_checkpoints_and_resumes(alone, tmp_path):
    """Makes impossible: a gradient of half the ranks, whole weights on each rank, shards that a resume mixes up."""
    ended(start(arguments(tmp_path, **UNEVEN | {"max_steps": 1}), 2, **FSDP2))
    checkpoint = tmp_path / "run/checkpoints/step_00000001"
    sizes = [path.stat().st_size for path in checkpoint.glob("*.distcp")]
    assert len(sizes) == 2 and max(sizes) < 1.5 * min(sizes)  # each rank wrote its part
    assert json.loads((tmp_path / "run/config.json").read_text())["sharded"] is True
    ended(start(["--resume", "--name", "run", "--output_dir", str(tmp_path), "--max_steps", "2"], 2, **FSDP2))
    same(lines(alone / "metrics.jsonl"), lines(tmp_path / "run/metrics.jsonl"))


@pytest.mark.slow
def test_fsdp2_in_bfloat16_and_ddp_with_checkpointing(tmp_path):
    """Makes impossible: sharding that works in float32 only; activations recomputed with other numbers."""
    ended(start(arguments(tmp_path, **UNEVEN), 2, **FSDP2, ACCELERATE_MIXED_PRECISION="bf16"))
    ended(start(arguments(tmp_path, name="plain", **UNEVEN, eval_every=0)))
    ended(start(arguments(tmp_path, name="recomputed", **UNEVEN, eval_every=0, gradient_checkpointing=True), 2))
    assert [row["step"] for row in lines(tmp_path / "run/metrics.jsonl")] == [0, 1, 2]
    same(lines(tmp_path / "plain/metrics.jsonl"), lines(tmp_path / "recomputed/metrics.jsonl"))


KILLED = {"max_steps": 12, "eval_every": 3, "save_every": 2, "reference_reset_steps": 5, "rollouts_per_prompt": 16}


def resumed(folder) -> list[str]:
    return ["--resume", "--name", "run", "--output_dir", str(folder)]


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path):
    """Makes impossible: a step that is lost, doubled or drawn again with other numbers after a kill."""
    whole = start(arguments(tmp_path / "whole", **KILLED))
    part = start(arguments(tmp_path / "part", **KILLED))
    metrics = tmp_path / "part/run/metrics.jsonl"
    for count in (5, 9):
        wait_until(part, lambda n=count: metrics.exists() and metrics.read_bytes().count(b"\n") >= n)
        kill(part)
        part = start(resumed(tmp_path / "part"))
    assert "resuming after step" in ended(part)
    ended(whole)
    assert contents(tmp_path / "whole/run") == contents(tmp_path / "part/run")


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path):
    """Makes impossible: a moment at which a kill costs more than the steps since the last checkpoint."""
    settings = KILLED | {"max_steps": 60, "save_every": 3}
    ended(start(arguments(tmp_path / "whole", **settings)))
    draws, kills = random.Random(0), 0
    process = start(arguments(tmp_path / "part", **settings))
    while kills < 20 and process.poll() is None:
        time.sleep(draws.uniform(0, 9) ** 1.1)
        if process.poll() is None:
            kill(process)
            kills += 1
            begun = (tmp_path / "part/run/config.json").exists()
            process = start(resumed(tmp_path / "part") if begun else arguments(tmp_path / "part", **settings))
    ended(process)
    assert contents(tmp_path / "whole/run") == contents(tmp_path / "part/run") and kills >= 5


def test_a_refusal_is_printed_once():
    """Makes impossible: a sentence per rank; a refusal with a traceback; a launcher that waits for the other ranks."""
    said = ended(start(["--clip_low", "5"], 2), code=None)
    assert said.count("--clip_low 5.0") == 1 and "Traceback" not in said.split("--clip_low 5.0")[0]
    process = start(["--rollouts_per_prompt", "-4"])
    assert "--rollouts_per_prompt" in ended(process, code=2)


def test_a_bug_shows_its_traceback_on_every_rank(tmp_path):
    """Makes impossible: a bug that leaves only a bare sentence about gloo."""
    folder = tmp_path / "copy"
    for name in ("train.py", "loss.py", "brorl.py", "rollout.py", "verify.py"):
        folder.mkdir(exist_ok=True)
        text = (ROOT / name).read_text()
        text = text.replace("batch = advantages[kept].double()", "raise ZeroDivisionError('a bug in stage 5')")
        (folder / name).write_text(text)
    for name in ("trainer", "engines", "sandbox", "kinds", "tiny"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    process = start(arguments(tmp_path, eval_every=0), 2, train=folder / "train.py", PYTHONPATH=str(folder))
    said = ended(process, code=None)
    assert said.count("ZeroDivisionError: a bug in stage 5") == 2 and "Traceback" in said


def test_ctrl_c_names_the_way_back(tmp_path):
    """Makes impossible: a traceback for Ctrl-C, or a user who does not know that nothing is lost."""
    process = start(arguments(tmp_path, max_steps=500, eval_every=0))
    metrics = tmp_path / "run/metrics.jsonl"
    wait_until(process, lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 2)
    os.kill(process.pid, signal.SIGINT)
    said = ended(process, code=130)
    assert "--resume --name run" in said and "Traceback" not in said


def test_the_default_command_needs_no_argument(tmp_path):
    """Makes impossible: a first command that fails outside the repository's folder or without settings."""
    small = ["--max_steps", "1", "--prompts_per_step", "2", "--eval_samples", "1"]
    said = ended(start(small, cwd=tmp_path))
    assert "step 1/1" in said and (tmp_path / "runs/brorl-seed0/model").is_dir()
