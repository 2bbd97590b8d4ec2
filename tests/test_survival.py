"""Runs that are killed, asked to leave, starved of disk, or fed with nonsense: nothing of them is lost.

Real processes where a signal or a disk is the point, `train` in this process elsewhere.
"""

import dataclasses
import errno
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from test_train import ROOT, TINY, config, few_problems, launch, lines, loaded, rollouts, start  # noqa: F401

import train
from train import Batch, Config, Policy, Progress

SMALL = [
    "--rollouts_per_prompt=16", "--prompts_per_step=4", "--updates_per_step=2", "--eval_samples=4", "--eval_every=5",
    "--reference_reset_steps=3", "--seed=3",
]  # fmt: skip


def command(folder, *more, processes=1) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    return [sys.executable, *launcher, str(ROOT / "train.py"), f"--output_dir={folder}", "--name=run",
            f"--eval_data={few_problems.path}", f"--data={TINY / 'train.jsonl'}", *SMALL, *more]  # fmt: skip


def begin(folder, *more, processes=1, **kwargs) -> subprocess.Popen:
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    return subprocess.Popen(
        command(folder, *more, processes=processes), env=environment, start_new_session=True, **pipes, **kwargs
    )


def ended(process, code=0, timeout=240) -> str:
    """What a process printed, once it has ended with this code."""
    said, _ = process.communicate(timeout=timeout)
    assert process.returncode == code, said[-4000:]
    return said


def wait_for(process, condition, timeout=120) -> None:
    until = time.monotonic() + timeout
    while process.poll() is None and not condition():
        assert time.monotonic() < until, "what the test waits for did not come"
        time.sleep(0.002)


def count_lines(path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def contents(folder: Path) -> dict[str, bytes]:
    """What must be the same of two runs."""
    return {name: (folder / "run" / name).read_bytes()
            for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl", "model/model.safetensors")}  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[int, dict[str, bytes]]:
    """Twelve steps in one go, by one process and by two."""
    found = {}
    for processes in (1, 2):
        folder = tmp_path_factory.mktemp("undisturbed")
        ended(begin(folder, "--max_steps=12", processes=processes))
        found[processes] = contents(folder)
    return found


# ---------------------------------------------------------------------------------------------- resuming, killed


@pytest.mark.parametrize("processes", [1, 2])
def test_twelve_steps_are_six_and_six(tmp_path, undisturbed, processes):
    """Makes impossible: a state that a checkpoint forgets: a moment of AdamW, the reference, the order, a seed."""
    ended(begin(tmp_path, "--max_steps=6", processes=processes))
    six = [x for x in lines(tmp_path / "run/metrics.jsonl") if x["step"] == 6]
    ended(begin(tmp_path, "--max_steps=12", "--resume", processes=processes))
    whole, parts = undisturbed[processes], contents(tmp_path)
    for name in ("metrics.jsonl", "eval.jsonl"):
        again = [x for x in parts[name].splitlines() if b'"step": 6,' not in x]
        assert again == [x for x in whole[name].splitlines() if b'"step": 6,' not in x]
    assert "eval/pass@1" in six[0]  # the only difference: the evaluation at the first end
    assert parts["model/model.safetensors"] == whole["model/model.safetensors"]
    assert parts["samples.jsonl"] == whole["samples.jsonl"]


def test_killed_twenty_times_a_run_ends_with_the_same_numbers(tmp_path):
    """Makes impossible: a torn file, a metrics line repeated or missing, a checkpoint half there after SIGKILL.

    Moments: while a checkpoint is written, shortly after a step was logged, and anywhere from the start on.
    """
    long = ["--max_steps=60", "--save_every=1"]
    ended(begin(tmp_path / "undisturbed", *long))
    undisturbed, tmp_path = contents(tmp_path / "undisturbed"), tmp_path / "killed"
    metrics, aside = tmp_path / "run/metrics.jsonl", tmp_path / "run/checkpoints/unfinished"
    dice, resume, inside, lives = random.Random(0), [], 0, 0
    while lives < 20:
        process, have = begin(tmp_path, *long, *resume), count_lines(metrics)
        if lives % 3 == 0:
            wait_for(process, aside.exists)
        elif lives % 3 == 1:
            wait_for(process, lambda have=have: count_lines(metrics) > have)
            time.sleep(dice.uniform(0, 0.1))
        else:
            time.sleep(dice.uniform(0, 5))
        inside += aside.exists()
        assert process.poll() is None, process.communicate()[0][-3000:]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        lives += 1
        whole = [x for x in metrics.read_bytes().splitlines(keepends=True) if x.endswith(b"\n")] if resume else []
        assert b"".join(whole) == b"".join(undisturbed["metrics.jsonl"].splitlines(keepends=True)[: len(whole)])
        assert all(not train.damaged(x) for x in (tmp_path / "run/checkpoints").glob("step_*"))
        resume = ["--resume"] if (tmp_path / "run/config.json").exists() else []
    assert inside >= 3
    ended(begin(tmp_path, *long, "--resume"))
    assert contents(tmp_path) == undisturbed


@pytest.mark.parametrize("processes", [1, 2])
def test_sigterm_leaves_with_a_checkpoint(tmp_path, undisturbed, processes):
    """Makes impossible: a preempted run that loses the steps since its last checkpoint, or does not leave."""
    process, metrics = (
        begin(tmp_path, "--max_steps=12", "--save_every=100", processes=processes),
        tmp_path / "run/metrics.jsonl",
    )
    wait_for(process, lambda: count_lines(metrics) >= 4)
    process.terminate()
    said = process.communicate(timeout=60)[0]
    assert process.returncode and "stopped by SIGTERM; --resume --name run continues after step_" in said
    assert processes > 1 or process.returncode == 143
    (checkpoint,) = (tmp_path / "run/checkpoints").glob("step_*")
    assert count_lines(metrics) == int(checkpoint.name[-8:]) + 1 >= 4
    ended(begin(tmp_path, "--max_steps=12", "--resume", processes=processes))
    assert contents(tmp_path) == undisturbed[processes]


def test_sigterm_does_not_wait_for_the_rollouts(tmp_path, monkeypatch):
    """Makes impossible: an hour of rollouts finished after SIGTERM, while the scheduler's patience is a minute."""
    generate, told = train.TorchEngine.generate, []

    def slow(self, prompts, n, *, on_progress=None, **kwargs):
        groups = generate(self, prompts, n, on_progress=None, **kwargs)
        if run.preemption.noted is not None and kwargs["temperature"] == 1.0 and len(told) > 1:
            run.preemption.note()
            for _ in range(100):
                on_progress(1)
                told.append("rolled on")
        told.append("rolled out")
        return groups

    c = config(tmp_path, max_steps=9, save_every=100, eval_temperature=0.9, eval_every=0)
    accelerator = Accelerator(cpu=True)
    setup = train.set_up(c, accelerator)
    run = setup.run
    monkeypatch.setattr(train.TorchEngine, "generate", slow)
    with pytest.raises(train.Preempted):
        train.train(c, accelerator, setup)
    assert "rolled on" not in told
    steps = [x["step"] for x in lines(tmp_path / "run/metrics.jsonl")]
    assert [x.name for x in run.checkpoints()] == [f"step_{steps[-1]:08d}"] * (steps[-1] > 0)


def test_when_one_process_dies_the_other_ends_with_the_cause(tmp_path):
    """Makes impossible: a process that waits for a dead one."""
    process = begin(tmp_path, "--max_steps=1000", processes=2)
    metrics = tmp_path / "run/metrics.jsonl"
    wait_for(process, lambda: count_lines(metrics) >= 3)
    children = [int(x) for x in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    ranks = {x: Path(f"/proc/{x}/environ").read_bytes() for x in children}
    (second,) = [x for x, environment in ranks.items() if b"\0RANK=1\0" in b"\0" + environment]
    os.kill(second, signal.SIGKILL)
    killed = time.monotonic()
    said = process.communicate(timeout=120)[0]
    assert time.monotonic() - killed < 60
    assert process.returncode
    assert "process 0: another process has ended" in said or "stopped by SIGTERM" in said, said[-3000:]
    assert all(not Path(f"/proc/{x}").exists() for x in children)


# ------------------------------------------------------------------------------------------- disks


def test_a_file_that_cannot_be_written_ends_the_run_with_a_sentence(tmp_path, undisturbed):
    """Makes impossible: a torn checkpoint under its final name, or a traceback, where a disk takes no more."""
    limit = 300_000  # bytes a file: enough for the metrics, not for a checkpoint
    process = begin(
        tmp_path, "--max_steps=12", "--save_every=4",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    said = ended(process, code=1)
    assert "could not be written" in said and "Make room" in said and "Traceback" not in said
    assert "there is no checkpoint yet" in said and not list((tmp_path / "run/checkpoints").glob("step_*"))
    ended(begin(tmp_path, "--max_steps=12", "--overwrite"))
    assert contents(tmp_path) == undisturbed[1]


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_loses_nothing(small_disk, undisturbed):
    """Makes impossible: a run that cannot be resumed because its disk was full for a while."""
    process, filler = (
        begin(small_disk, "--max_steps=12", "--save_every=1", "--keep_checkpoints=1"),
        small_disk / "filler",
    )
    wait_for(process, lambda: list((small_disk / "run/checkpoints").glob("step_*")))
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    said = ended(process, code=1)
    assert "could not be written" in said and "continues after step_" in said and "Traceback" not in said
    filler.unlink()
    ended(begin(small_disk, "--max_steps=12", "--resume", "--save_every=1", "--keep_checkpoints=1"))
    assert contents(small_disk) == undisturbed[1]


def test_a_disk_that_is_too_small_or_read_only_is_refused_at_the_start(small_disk):
    """Makes impossible: step 900 dying of what step 0 could have known."""
    said = ended(begin(small_disk, "--max_steps=1", "--keep_checkpoints=9"), code=2)
    assert "MiB free; 10 checkpoint(s)" in said and "lower --keep_checkpoints" in said
    assert not (small_disk / "run").exists()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert "cannot be written to, name another" in ended(begin(small_disk, "--max_steps=1"), code=2)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, undisturbed):
    """Makes impossible: a resume from a truncated file, or one that fails while an older whole one is there."""
    ended(begin(tmp_path, "--max_steps=6", "--save_every=3"))
    newest, older = tmp_path / "run/checkpoints/step_00000006", tmp_path / "run/checkpoints/step_00000003"
    with (newest / "optimizer.bin").open("r+b") as file:
        file.truncate(1000)
    said = ended(begin(tmp_path, "--max_steps=12", "--resume", "--save_every=3"))
    assert "step_00000006 is damaged (optimizer.bin is not what was written): going back to the one before it" in said
    assert "resuming after step 3" in said and contents(tmp_path) == undisturbed[1]
    for checkpoint in (tmp_path / "run/checkpoints").glob("step_*"):
        (checkpoint / "pytorch_model.bin").unlink()
    said = ended(begin(tmp_path, "--max_steps=13", "--resume"), code=2)
    assert "no checkpoint is whole" in said and "Traceback" not in said
    assert not older.exists()


def test_garbage_in_a_metrics_file_is_named(tmp_path):
    """Makes impossible: a traceback from a file that an editor or a disk damaged."""
    start(config(tmp_path))
    metrics = tmp_path / "run/metrics.jsonl"
    whole = metrics.read_bytes().splitlines(keepends=True)
    for garbage in (b"\x00\xff\n", b"[1]\n", b'{"samples": 1}\n'):
        metrics.write_bytes(b"".join([whole[0], garbage, *whole[1:]]))
        with pytest.raises(ValueError, match=r"metrics.jsonl, line 2, is damaged: delete it, or --overwrite"):
            start(config(tmp_path, resume=True, max_steps=3))


# ------------------------------------------------------------------------------------ gradients gone wrong


def test_a_run_without_finite_gradients_stops(tmp_path, monkeypatch):
    """Makes impossible: days of a run in which nothing is trained any more."""
    monkeypatch.setattr(train.L, "token_mean", lambda x, n: x.sum() * math.nan)
    with pytest.raises(train.RunStopped, match="the last 4 updates had no finite gradient"):
        start(config(tmp_path, max_steps=9, max_skipped_updates=4, save_every=100))
    metrics = lines(tmp_path / "run/metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2] and metrics[2]["updates_skipped"] == 2
    told = train.troubles(metrics[2], Progress(skipped=4), config(tmp_path, max_skipped_updates=4))
    assert told == ["2 of 2 updates had no finite gradient and were left out, the last 4 in a row; the run stops at 4 "
                    "(--max_skipped_updates)"]  # fmt: skip


def test_one_finite_gradient_starts_the_count_over(tmp_path, monkeypatch):
    """Makes impossible: a run stopped by a few bad updates that lie far apart, or a count lost on resuming."""
    mean, calls = train.L.token_mean, []

    def sometimes(x, n):
        calls.append(1)
        return mean(x, n) * (1 if len(calls) % 3 == 0 else math.nan)

    monkeypatch.setattr(train.L, "token_mean", sometimes)
    start(config(tmp_path, max_steps=6, max_skipped_updates=3))
    metrics = lines(tmp_path / "run/metrics.jsonl")
    assert sum(m.get("updates_skipped", 0) for m in metrics) == 8
    progress = Progress()
    progress.load_state_dict(Progress(skipped=2, norms=[1.0]).state_dict())
    assert progress.skipped == 2 and progress.norms == [1.0]


@pytest.mark.parametrize("skip", [False, True])
def test_a_gradient_spike_is_counted_named_and_skipped_if_asked(skip):
    """Makes impossible: a spike that goes unseen, one left out unasked, or one that becomes the new usual at once."""
    groups, advantages = rollouts(4)
    policy = Policy(loaded()[0])
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp
    before = [p.detach().clone() for p in policy.parameters()]
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=1,
               skip_spikes=skip)  # fmt: skip
    optimizer, progress = (
        torch.optim.SGD(policy.parameters(), lr=1.0),
        Progress(step=1, norms=[1e-6] * train.MEMORY_OF_NORMS),
    )
    metrics = train.update(policy, optimizer, batch, c, Accelerator(cpu=True), progress)
    assert (
        metrics["spikes"] == 1 and metrics["updates_skipped"] == skip and len(progress.norms) == train.MEMORY_OF_NORMS
    )
    moved = any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert moved != skip
    (sentence,) = train.troubles(metrics, progress, c)
    assert "1 of 1 updates had a gradient norm over 10 times the recent median" in sentence
    assert sentence.endswith("left out" if skip else "clipped to 1")


def test_what_a_spike_is():
    """Makes impossible: an alarm from a handful of updates, from norms as usual, or with --spike 0."""
    usual = Progress(norms=[1.0, 2.0, 3.0] * 6)
    assert usual.is_spike(20.1, 10) and not usual.is_spike(19.9, 10) and not usual.is_spike(1e9, 0)
    assert not Progress(norms=[1.0] * 15).is_spike(1e9, 10)
    assert not usual.is_spike(math.nan, 10)


def test_gradients_that_have_grown_for_good_are_trained_on_again(monkeypatch):
    """Makes impossible: --skip_spikes that leaves out every update of a run whose gradients have grown for good.

    A left-out norm is remembered like any other: 50 of them among the last 100 lift the median.
    """
    groups, advantages = rollouts(1)
    policy, accelerator, norms = Policy(loaded()[0]), Accelerator(cpu=True), [1.0] * train.MEMORY_OF_NORMS
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp
    monkeypatch.setattr(accelerator, "clip_grad_norm_", lambda parameters, most: 1000.0)
    optimizer, progress = torch.optim.SGD(policy.parameters(), lr=0.0), Progress(norms=norms)
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=1,
               skip_spikes=True)  # fmt: skip
    done = [train.update(policy, optimizer, batch, c, accelerator, progress) for _ in range(60)]
    assert [metrics["updates_skipped"] for metrics in done] == 50 * [1] + 10 * [0]
    (said,) = (f.metadata["help"] for f in dataclasses.fields(Config) if f.name == "skip_spikes")
    assert "after 50" in said


def test_every_failure_has_its_sentence():
    """Makes impossible: a person who reads a stack of frames to learn that the disk was full."""
    two = type("Two", (), {"num_processes": 2})
    full = OSError(errno.ENOSPC, "No space left on device", "runs/a/metrics.jsonl")
    assert train.why(full, two).startswith("runs/a/metrics.jsonl could not be written: No space left on device")
    assert "Lower --max_tokens_per_micro_batch" in train.why(RuntimeError("x: can't allocate memory: 9 bytes"), two)
    assert "Lower --max_tokens_per_micro_batch" in train.why(torch.OutOfMemoryError("CUDA out of memory."), two)
    assert "another process has ended" in train.why(RuntimeError("[gloo/transport/tcp] Connection closed by peer"), two)
    assert "something nobody foresaw" in train.why(RuntimeError("something nobody foresaw"), two)
    assert train.why(train.RunStopped("because"), two) == "because"


# --------------------------------------------------------------------------------------------- watching


def test_metrics_reach_tensorboard(tmp_path):
    """Makes impossible: a tracker that gets another number than metrics.jsonl, or none."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    start(config(tmp_path, report_to="tensorboard"))
    (events,) = (tmp_path / "run/tensorboard/brorl").glob("events*")
    seen = EventAccumulator(str(events)).Reload()
    for name in ("reward", "loss", "eval/pass@1", "samples"):
        expected = {m["step"]: m[name] for m in lines(tmp_path / "run/metrics.jsonl") if name in m}
        assert {x.step: x.value for x in seen.Scalars(name)} == pytest.approx(expected)
    assert len(seen.Scalars("timing/samples_per_second")) == 2


@pytest.mark.parametrize(
    "report_to, says", [("tensorbored", "choose one of tensorboard, wandb"), ("wandb", "pip install wandb")]
)
def test_an_unknown_or_missing_tracker_is_refused(tmp_path, monkeypatch, report_to, says):
    """Makes impossible: a run whose metrics go nowhere because of a typing error."""
    monkeypatch.setitem(train.TRACKERS, "wandb", lambda: False)
    with pytest.raises(ValueError, match=says):
        start(config(tmp_path, report_to=report_to))
    assert not (tmp_path / "run").exists()


def test_the_time_left_follows_the_budget_that_ends_first():
    """Makes impossible: hours promised for a run that another budget ends in minutes."""
    c = Config(max_steps=100, max_hours=1.0)
    assert train.time_left(Progress(step=10, seconds=60), c) == "09:00"
    assert train.time_left(Progress(step=10, seconds=1800), c) == "30:00"
    assert train.time_left(Progress(), c) == "?"
    assert train.time_left(Progress(step=120, seconds=60), c) == "00:00"


def test_what_a_run_was_launched_with_belongs_to_it(tmp_path):
    """Makes impossible: a bfloat16 run that goes on in float32, or the other way, without a word."""
    start(config(tmp_path))
    settings = json.loads((tmp_path / "run/config.json").read_text())
    assert settings["precision"] == "no" and settings["sharded"] is False and settings["processes"] == 1
    (tmp_path / "run/config.json").write_text(json.dumps(settings | {"precision": "bf16"}))
    with pytest.raises(ValueError, match="precision: bf16 -> no"):
        start(config(tmp_path, resume=True, max_steps=3))


def test_deleted_checkpoints_are_missed_whatever_their_step(tmp_path):
    """Makes impossible: a short run that is started over, its model replaced, because its checkpoints were deleted."""
    start(config(tmp_path, save_every=100))
    shutil.rmtree(tmp_path / "run/checkpoints/step_00000002")
    with pytest.raises(ValueError, match=r"the checkpoints of .* are gone"):
        start(config(tmp_path, save_every=100, resume=True, max_steps=3))


def test_a_lost_metrics_line_is_missed(tmp_path):
    """Makes impossible: a history with a hole in it, taken for whole."""
    start(config(tmp_path))
    metrics = tmp_path / "run/metrics.jsonl"
    whole = metrics.read_text().splitlines(keepends=True)
    metrics.write_text(whole[0] + whole[2])
    with pytest.raises(ValueError, match="has lost the lines of 1 steps, from step 1 on"):
        start(config(tmp_path, resume=True, max_steps=3))


def test_scoring_neither_resumes_nor_overwrites_a_training_run(tmp_path):
    """Makes impossible: the start model's score taken for the run's, a trained model deleted by an evaluation."""
    with pytest.raises(ValueError, match="--model runs/NAME/model"):
        start(config(tmp_path, eval_only=True, resume=True))
    start(config(tmp_path, max_steps=1))
    with pytest.raises(ValueError, match=r"is a training run, .* --model .*run/model"):
        start(config(tmp_path, eval_only=True, overwrite=True))
    assert (tmp_path / "run/model/model.safetensors").exists()
