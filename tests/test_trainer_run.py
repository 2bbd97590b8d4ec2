"""A run's folder: what is in it, and that runs which are killed, asked to leave or starved of disk lose nothing."""

import csv
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from helpers import (
    PATIENCE_S,
    ROOT,
    TINY,
    Job,
    begin,
    config,
    contents,
    count_lines,
    few_problems,
    launched,
    lines,
    run,
    small,
    start,
    under_way,
    wait_for,
)

from trainer.checkpoint import discard
from trainer.metrics import Answers, score
from trainer.progress import Progress
from trainer.run import append, rows_of, write
from trainer.settings import Config


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What twelve steps in one go leave, by one process, which begins at once, or by two."""
    folders = {processes: tmp_path_factory.mktemp("undisturbed") for processes in (1, 2)}
    alone = begin(folders[1], "--max_steps=12")

    @functools.cache
    def of(processes: int) -> dict[str, bytes]:
        job = alone if processes == 1 else begin(folders[2], "--max_steps=12", processes=2)
        job.ended()
        return contents(folders[processes])

    return of


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    """The folder of the run that `finished` and `copied` have the first half of."""
    folder = tmp_path_factory.mktemp("four")
    run(folder, max_steps=4)
    return folder / "run"


def same_run(ours: Path, theirs: Path) -> None:
    """To the bit: every log and the weights after step 4."""
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    states = [torch.load(folder / "checkpoints/step_00000004/pytorch_model.bin") for folder in (ours, theirs)]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_a_resumed_run_equals_an_undisturbed_one(copied, four_steps):
    """Makes impossible: a batch replayed or skipped, an optimizer or reference forgotten, a repeated metrics line."""
    folder = copied / "run"
    for name in ("metrics.jsonl", "eval.jsonl"):  # a step that was logged and not checkpointed, and a torn line
        with (folder / name).open("a") as file:
            file.write('{"step": 3, "samples": 1}\n{"step": 4, "sam')
    (folder / "checkpoints/unfinished").mkdir()
    run(copied, max_steps=4, resume=True)
    same_run(folder, four_steps)
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["step_00000003", "step_00000004"]


def test_resuming_a_run_whose_budget_is_spent_says_so(copied, capsys):
    """Makes impossible: `--resume --max_steps 1` after step 2 that ends without a word, or trains."""
    before = (copied / "run/metrics.jsonl").read_bytes()
    start(config(copied, resume=True, max_steps=1))
    assert "the budget is spent: 2 steps, " in (said := capsys.readouterr().out)
    assert "Nothing is trained; raise --max_steps, --max_samples or --max_hours to go on" in said
    assert (copied / "run/metrics.jsonl").read_bytes() == before


# ----------------------------------------------------------------------------------------- killed, and asked to leave


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_twelve_steps_are_six_and_six(tmp_path, undisturbed, processes):
    """Makes impossible: a state that a checkpoint forgets: a moment of AdamW, the reference, the order, a seed."""
    begin(tmp_path, "--max_steps=6", processes=processes).ended()
    six = [x for x in lines(tmp_path / "run/metrics.jsonl") if x["step"] == 6]
    samples = (tmp_path / "run/samples.jsonl").read_bytes()
    begin(tmp_path, "--max_steps=12", "--resume", processes=processes).ended()
    whole, parts = undisturbed(processes), contents(tmp_path)
    for name in ("metrics.jsonl", "eval.jsonl"):
        again = [x for x in parts[name].splitlines() if b'"step": 6,' not in x]
        assert again == [x for x in whole[name].splitlines() if b'"step": 6,' not in x]
    assert "eval/pass@1" in six[0] and b'"step": 6, "evaluation"' in samples
    assert parts["model/model.safetensors"] == whole["model/model.safetensors"]
    said = [x for x in parts["samples.jsonl"].splitlines() if b'"step": 6, "evaluation"' not in x]
    assert said == whole["samples.jsonl"].splitlines()  # the only difference: the evaluation at the first end


def lives(folder, steps: int, deaths: int, undisturbed) -> None:
    """A run is killed so many times and resumed each time; it ends with the numbers of the undisturbed one.

    Moments: while a checkpoint is written, shortly after a step was logged, and anywhere from the start on.
    """
    metrics, aside = folder / "run/metrics.jsonl", folder / "run/checkpoints/unfinished"
    long = [f"--max_steps={steps}", "--save_every=1"]
    dice, resume, inside = random.Random(0), [], 0
    for life in range(deaths):
        job, have = begin(folder, *long, *resume), count_lines(metrics)
        if life % 3 == 0:
            wait_for(job, aside.exists)
        elif life % 3 == 1:
            wait_for(job, lambda have=have: count_lines(metrics) > have)
            time.sleep(dice.uniform(0, 0.1))
        else:
            time.sleep(dice.uniform(0, 2))
        inside += aside.exists()
        assert job.running(), Path(job.said).read_text()[-3000:]
        job.signal(signal.SIGKILL)
        job.ended(-signal.SIGKILL)
        whole = [x for x in metrics.read_bytes().splitlines(keepends=True) if x.endswith(b"\n")] if resume else []
        assert b"".join(whole) == b"".join(undisturbed()["metrics.jsonl"].splitlines(keepends=True)[: len(whole)])
        assert all(torch.load(x / "optimizer.bin") for x in (folder / "run/checkpoints").glob("step_*"))
        resume = ["--resume"] if (folder / "run/config.json").exists() else []
    assert inside >= deaths // 6
    begin(folder, *long, "--resume").ended()
    assert contents(folder) == undisturbed()


def test_a_killed_run_ends_with_the_same_numbers(tmp_path, undisturbed):
    """Makes impossible: a torn file, a metrics line repeated or missing, a checkpoint half there after SIGKILL."""
    lives(tmp_path, 12, 2, lambda: undisturbed(1))


@pytest.mark.slow
def test_killed_twenty_times_a_run_ends_with_the_same_numbers(tmp_path):
    """Makes impossible: a moment, however short, at which SIGKILL loses what was done."""
    begin(tmp_path / "undisturbed", "--max_steps=60", "--save_every=1").ended()
    lives(tmp_path / "killed", 60, 20, lambda: contents(tmp_path / "undisturbed"))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run(tmp_path, undisturbed, number, processes):
    """Makes impossible: a scheduler's signal, or Ctrl-C, that is not obeyed; a run that goes on to other numbers.

    Both processes get it, as from torch's launcher or a terminal.
    """
    metrics = tmp_path / "run/metrics.jsonl"
    job = begin(tmp_path, "--max_steps=12", "--save_every=3", processes=processes)
    wait_for(job, lambda: count_lines(metrics) >= 5)
    for rank in range(processes):
        job.signal(number, rank)
    said = job.ended(128 + number)
    assert "Traceback" not in said
    assert said.count("--resume --name run continues after step_") == 1
    begin(tmp_path, "--max_steps=12", "--resume", processes=processes).ended()
    assert contents(tmp_path) == undisturbed(processes)


@pytest.mark.slow
def test_when_one_process_dies_the_other_ends_with_the_cause(tmp_path):
    """Makes impossible: a process that waits for a dead one. Here torch's launcher started both, and ends the other."""
    command = launched(ROOT / "train.py", *small(tmp_path, "--max_steps=1000"))
    process, children = under_way(command, tmp_path / "run/metrics.jsonl")
    os.kill(children[1], signal.SIGKILL)
    said = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode
    assert "process 0: another process has ended" in said or "stopped by SIGTERM" in said, said[-3000:]
    assert all(not Path(f"/proc/{x}").exists() for x in children)


# ------------------------------------------------------------------------------------------------------------ disks


def test_a_file_that_cannot_be_written_ends_the_run_with_a_sentence(tmp_path):
    """Makes impossible: a torn checkpoint under its final name, or a traceback, where a disk takes no more."""
    limit = 300_000  # bytes: enough for the metrics, not for a checkpoint
    said = begin(tmp_path, "--max_steps=12", "--save_every=4", bytes_a_file=limit).ended(1)
    assert "could not be written" in said and "Make room" in said and "Traceback" not in said
    assert "there is no checkpoint yet" in said and not list((tmp_path / "run/checkpoints").glob("step_*"))


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(small_disk, undisturbed):
    """Makes impossible: a run that cannot be resumed because its disk was full for a while."""
    whole, few, filler = undisturbed(1), ["--save_every=1", "--keep_checkpoints=1"], small_disk / "filler"
    job = begin(small_disk, "--max_steps=12", *few)
    wait_for(job, lambda: list((small_disk / "run/checkpoints").glob("step_*")))
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    said = job.ended(1)
    assert "could not be written" in said and "continues after step_" in said and "Traceback" not in said
    filler.unlink()
    begin(small_disk, "--max_steps=12", "--resume", *few).ended()
    assert contents(small_disk) == whole


def test_a_disk_that_is_too_small_or_read_only_is_refused_at_the_start(small_disk):
    """Makes impossible: step 900 dying of what step 0 could have known."""
    with pytest.raises(ValueError, match=r"MiB free; 10 checkpoint\(s\) .* lower --keep_checkpoints"):
        start(config(small_disk, keep_checkpoints=9))
    assert not (small_disk / "run").exists()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ValueError, match="cannot be written to, name another"):
        start(config(small_disk))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "optimizer.bin", "custom_checkpoint_1.pkl"])
def test_a_checkpoint_that_cannot_be_read_is_named(copied, four_steps, name):
    """Makes impossible: a traceback for a torn file, or an older whole checkpoint that nobody is told of."""
    newest = copied / "run/checkpoints/step_00000002"
    with (newest / name).open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match=r"step_00000002 cannot be read .* Delete this folder"):
        start(config(copied, resume=True, max_steps=4))
    shutil.rmtree(newest)
    start(config(copied, resume=True, max_steps=4))
    same_run(copied / "run", four_steps)


def test_minutes_bound_what_a_killed_run_loses(tmp_path):
    """Makes impossible: steps of 20 minutes of which ten are lost; a laptop that writes a checkpoint every step."""
    c, progress = config(tmp_path, save_every=10, save_minutes=15, max_steps=100), Progress(step=3, seconds=900.0)
    progress.saved = 0.0
    assert progress.saves(c)
    progress.saved = 1.0
    assert not progress.saves(c)
    progress.saved, progress.saving = 0.0, 91.0  # ten times this is more than 15 minutes
    assert not progress.saves(c)
    assert Progress(step=10).saves(c) and Progress(step=100).saves(c) and not Progress(step=9).saves(c)
    run(tmp_path, max_steps=3, save_every=100, save_minutes=1e-9, keep_checkpoints=9)
    assert (tmp_path / "run/checkpoints/step_00000001").exists()


# --------------------------------------------------------------------------------------------- what is there already


def test_an_existing_run_is_not_overwritten_by_accident(copied):
    """Makes impossible: losing a run to a second start, or resuming it under other settings.

    The refusal names --name first and what --overwrite does, so that the second natural command does not delete a run.
    """
    before = (copied / "run/metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="choose another --name, --resume it, or --overwrite it, which deletes it"):
        run(copied)
    with pytest.raises(ValueError, match=r"learning_rate: 0\.0001 -> 0\.5"):
        run(copied, resume=True, learning_rate=0.5)
    assert (copied / "run/metrics.jsonl").read_bytes() == before
    assert len(run(copied, overwrite=True, max_steps=1)) == 2


def test_two_processes_do_not_share_a_folder(tmp_path):
    """Makes impossible: two runs in one metrics.jsonl, a run deleted while it trains, a lock that outlives SIGKILL."""
    job = begin(tmp_path, "--max_steps=1000", "--save_every=1")
    wait_for(job, lambda: count_lines(tmp_path / "run/metrics.jsonl") > 2)
    for again in ("--resume", "--overwrite"):
        said = begin(tmp_path, "--max_steps=1000", again).ended(2)
        assert f"run is in use by process {job.processes[0].pid} on " in said and "Traceback" not in said
    assert job.running()
    job.signal(signal.SIGKILL)
    job.ended(-signal.SIGKILL)
    steps = [row["step"] for row in lines(tmp_path / "run/metrics.jsonl")]
    assert steps == [*range(len(steps))]
    begin(tmp_path, f"--max_steps={len(steps)}", "--resume").ended()


def test_overwrite_deletes_runs_only(tmp_path):
    """Makes impossible: somebody's thesis deleted because it had a run's name."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("mine")
    for changes in ({}, {"overwrite": True}):
        with pytest.raises(ValueError, match="is there and is no run"):
            run(tmp_path, **changes)
    assert (tmp_path / "run/thesis.txt").read_text() == "mine"


def test_resuming_without_its_checkpoints_is_refused(copied):
    """Makes impossible: a run's history emptied because somebody deleted its checkpoints, all or the folder's files."""
    before = (copied / "run/metrics.jsonl").read_bytes()
    for step in (1, 2):
        shutil.rmtree(copied / f"run/checkpoints/step_0000000{step}")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"the checkpoints of .* are gone"):
            run(copied, resume=True, max_steps=3)
        shutil.rmtree(copied / "run/checkpoints", ignore_errors=True)
    assert (copied / "run/metrics.jsonl").read_bytes() == before


def test_what_a_run_was_launched_with_belongs_to_it(copied):
    """Makes impossible: a bfloat16 run that goes on in float32, or the other way, without a word."""
    settings = json.loads((copied / "run/config.json").read_text())
    assert settings["precision"] == "no" and settings["sharded"] is False and settings["processes"] == 1
    (copied / "run/config.json").write_text(json.dumps(settings | {"precision": "bf16"}))
    with pytest.raises(ValueError, match="precision: bf16 -> no"):
        start(config(copied, resume=True, max_steps=3))


def test_scoring_neither_resumes_nor_overwrites_a_training_run(copied):
    """Makes impossible: the start model's score taken for the run's, a trained model deleted by an evaluation."""
    with pytest.raises(ValueError, match="--model runs/NAME/model"):
        start(config(copied, eval_only=True, resume=True))
    with pytest.raises(ValueError, match=r"is a training run, .* --model .*run/model"):
        start(config(copied, eval_only=True, overwrite=True))
    assert (copied / "run/model/model.safetensors").exists()


# ------------------------------------------------------------------------------------------------------- what is kept


def test_samples_are_kept_of_every_step_and_evaluation(finished):
    """Makes impossible: a run that nobody can read: kept groups only, or no text beside an evaluation's scores."""
    rows = lines(finished / "run/samples.jsonl")
    said = {"prompt", "response", "reward", "reason"}
    evaluated = [row for row in rows if row.get("evaluation")]
    assert [row["step"] for row in evaluated] == [0] * 4 + [1] * 4 + [2] * 4  # --samples_per_step
    assert all(set(row) == said | {"step", "evaluation"} for row in evaluated)
    assert len({row["prompt"] for row in evaluated}) == 4  # a response to each of the first problems
    for step in (1, 2):
        mine = [row for row in rows if row["step"] == step and not row.get("evaluation")]
        assert len(mine) == 4 and all(set(row) == said | {"step", "kept"} for row in mine)
        kept = [row for row in mine if row["kept"]]
        assert {row["reason"] == "correct" for row in kept} == {True, False}  # its best and its worst
        dropped = [row for row in mine if not row["kept"]]
        assert len({row["reason"] == "correct" for row in dropped}) <= 1 and len(kept) == (2 if dropped else 4)
    assert any(row.get("kept") is False for row in rows)


def test_scoring_writes_what_it_prints(tmp_path):
    """Makes impossible: scores that are on a screen only, or of other digits in the file; an evaluation overwritten."""
    problems = Path(few_problems()).read_text().splitlines(keepends=True)
    sources = {"small": problems[:4], "large": problems[4:]}
    paths = [tmp_path / f"{name}.jsonl" for name in sources]
    for path, rows in zip(paths, sources.values(), strict=True):
        path.write_text("".join(rows))
    arguments = ["--eval_only", "--output_dir", tmp_path, "--eval_samples=4", "--eval_data", *paths]

    said = Job(ROOT / "train.py", arguments).ended()
    folder = tmp_path / "eval-policy"
    assert {x.name for x in folder.iterdir()} == {"config.json", "eval.jsonl", "lock", "samples.jsonl", "scores.csv"}
    (line,) = lines(folder / "eval.jsonl")
    assert line["step"] == 0 and line["k"] == 4 and line["sources"] == {"small": 4, "large": 12}
    assert all(len(line[name]) == 16 for name in ("correct", "response_tokens", "truncated", "reward"))
    rows = list(csv.DictReader((folder / "scores.csv").open()))
    assert [row["source"] for row in rows] == ["small", "large", "mean of 2"]
    scores = [float(row["pass@1"]) for row in rows]
    assert scores == [sum(line["correct"][:4]) / 16, sum(line["correct"][4:]) / 48, (scores[0] + scores[1]) / 2]
    for row in rows:
        assert f"{row['source']:9}  {float(row['pass@1']):.3f} ± {float(row['pass@1_se']):.3f}" in said
    assert "\r" not in said  # no bar in a file
    assert "every source counts the same" in said and "16 held-out problems, 4 responses each" in said
    samples = lines(folder / "samples.jsonl")
    assert [json.loads(row)["prompt"] for row in problems[:4]] == [row["prompt"] for row in samples]
    assert all(row["evaluation"] and row["response"] for row in samples)

    before = (folder / "eval.jsonl").read_bytes()
    again = Job(ROOT / "train.py", arguments).ended(2)
    assert "exists at" in again and "--overwrite" in again and "Traceback" not in again
    Job(ROOT / "train.py", ["--overwrite", *arguments]).ended()
    assert (folder / "eval.jsonl").read_bytes() == before
    with pytest.raises(ValueError, match="is no training run, it starts over: --eval_only --overwrite"):
        start(Config(resume=True, name="eval-policy", output_dir=str(tmp_path)))


def test_every_evaluation_is_kept_problem_by_problem(tmp_path):
    """Makes impossible: a score that its line in eval.jsonl does not add up to; an evaluation that is not kept."""
    metrics = run(tmp_path, max_steps=3, eval_every=2)
    kept = lines(tmp_path / "run/eval.jsonl")
    assert [row["step"] for row in kept] == [m["step"] for m in metrics if "eval/pass@1" in m] == [0, 2, 3]
    for row in kept:
        m = metrics[row["step"]]
        answers = Answers(*(row[name] for name in Answers._fields))
        assert {f"eval/{k}": v for k, v in score(answers).items()} == {k: v for k, v in m.items() if "eval/" in k}
        assert row["samples"] == m["samples"] and row["sources"] == {"test": 16} and row["k"] == 4


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


def test_other_data_does_not_resume(tmp_path, forget_kinds):
    """Makes impossible: a run that goes on with other problems, another tokenizer or other rewards, without a word."""
    model = shutil.copytree(TINY / "policy", tmp_path / "policy")
    rewards, helper = tmp_path / "rewards.py", tmp_path / "helper.py"
    helper.write_text("LONG = 6\n")
    rewards.write_text("from helper import LONG\nKINDS = {'long': lambda response, reference: len(response) > LONG}\n")
    for name in ("train", "test"):
        rows = [json.dumps(row | {"kind": "long"}) + "\n" for row in lines(few_problems(name, 16))]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    settings = {"model": str(model), "rewards": [str(rewards)], "data": [str(tmp_path / "train.jsonl")],
                "eval_data": [str(tmp_path / "test.jsonl")]}  # fmt: skip
    run(tmp_path, max_steps=1, **settings)
    run(tmp_path, max_steps=2, resume=True, **settings)

    def edited(path, edit, says):
        before = path.read_text()
        path.write_text(edit(before))
        with pytest.raises(ValueError, match=f"would continue another run; these differ: {says}$"):
            run(tmp_path, max_steps=3, resume=True, **settings)
        path.write_text(before)

    edited(rewards, lambda text: text.replace(">", ">="), r"\S*rewards.py")
    edited(helper, lambda text: text.replace("6", "5"), r"\S*helper.py")
    edited(tmp_path / "train.jsonl", lambda text: text.replace('"target": ', '"target": 1', 1), "the training problems")
    edited(tmp_path / "test.jsonl", lambda text: text.split("\n", 1)[1], "the held-out problems")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["1"], vocabulary["2"] = vocabulary["2"], vocabulary["1"]
    edited(model / "tokenizer.json", lambda text: json.dumps(tokenizer), "the tokenizer")
    run(tmp_path, max_steps=3, resume=True, **settings)


# --------------------------------------------------------------------------------------------------- files


def test_a_torn_last_line_goes_and_a_damaged_one_is_named(tmp_path):
    """Makes impossible: a run that cannot go on for a torn line; one that goes on over lines that no run wrote."""
    path = tmp_path / "log.jsonl"
    assert rows_of(path) == []
    for step in (1, 2):
        append(path, {"step": step})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 3, "sam')
    assert rows_of(path) == [{"step": 1}, {"step": 2}]
    for garbage in (b"\x00\xff\n", b"[1]\n", b'{"samples": 1}\n', b"\n"):
        path.write_bytes(b'{"step": 1}\n' + garbage + whole)
        with pytest.raises(ValueError, match=r"log\.jsonl, line 2, is damaged: delete it, or --overwrite the run"):
            rows_of(path)


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    """Makes impossible: config.json emptied by a process that was killed, or a disk that was full, while it wrote."""
    path = tmp_path / "config.json"
    write(path, "old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("killed here")))
    with pytest.raises(OSError):
        write(path, "new")
    assert path.read_text() == "old"


def test_a_discarded_checkpoint_loses_its_name_first(tmp_path, monkeypatch):
    """Makes impossible: half a checkpoint under its name, where a process is killed while it deletes one."""
    (checkpoint := tmp_path / "step_00000001").mkdir()
    removed = []
    monkeypatch.setattr("trainer.checkpoint.shutil.rmtree", lambda path, **_: removed.append(path.name))
    discard(checkpoint)
    assert not checkpoint.exists() and removed == ["discarded", "discarded"]
