"""trainer/run.py: the folder of a run, its logs, its checkpoints."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from filelock import FileLock
from helpers import TINY, contents, drawn, lines, loaded, outcomes, run, set_up, settings
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from transformers import AutoModelForCausalLM

import loss as L
import train
import trainer.run as module
from trainer.checkpoints import read_state
from trainer.policy import Policy
from trainer.pretrained import try_to_save
from trainer.process import Refusal
from trainer.progress import Progress
from verify import Verdict

# ----------------------------------------------------------------------------------------------- the folder of a run


def test_the_files_of_a_run(finished):
    """Makes impossible: a file that the pages promise and that is missing or unreadable; samples without a verdict."""
    folder = finished / "run"
    names = {path.name for path in folder.iterdir()}
    logs = {"metrics.jsonl", "timing.jsonl", "eval.jsonl", "samples.jsonl"}
    assert names == logs | {"config.json", "checkpoints", "model", "curves.png", "lock"}
    assert [row["step"] for row in lines(folder / "eval.jsonl")] == [0, 1, 2]
    timing = lines(folder / "timing.jsonl")
    stages = {"seconds", "roll_out", "judge", "wait_for_judge", "score", "update", "evaluate"}
    assert all(stages <= row.keys() for row in timing[1:])
    assert all(0 < row["wait_for_judge"] < row["roll_out"] and 0 < row["judge"] < row["roll_out"] for row in timing[1:])
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    samples = lines(folder / "samples.jsonl")
    assert all({"prompt", "response", "reward", "correct", "reason", "step"} <= row.keys() for row in samples)
    for step in (1, 2):
        of_step = [row for row in samples if row["step"] == step and "kept" in row]
        kept = [row for row in of_step if row["kept"]]
        assert 2 <= len(of_step) <= 4 and kept[0]["reward"] > kept[-1]["reward"]


def test_the_saved_model_is_the_trained_policy(finished, tmp_path):
    """Makes impossible: a model/ with the weights of the start, or that transformers cannot load."""
    path = str(finished / "run/model")
    scores = train.evaluate(*set_up(tmp_path, model=path, eval_only=True))
    last = lines(finished / "run/metrics.jsonl")[-1]
    assert scores == {name: x for name, x in last.items() if name.startswith("eval/")}
    model, (start, _) = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32), loaded()
    assert any((a != b).any() for a, b in zip(model.parameters(), start.parameters(), strict=True))


def test_the_saved_model_keeps_the_settings_of_the_run(finished, tmp_path):
    """Makes impossible: a model that is scored by another protocol than the run used; a rate that is lost."""
    open_ = {"model": str(finished / "run/model"), "learning_rate": None}
    config, origins = settings(tmp_path, **open_)
    assert config.learning_rate == 1e-4 and "run" in origins["learning_rate"]
    open_ |= {"eval_samples": None, "rollouts_per_prompt": None, "prompts_per_step": None}
    config, _ = settings(tmp_path, recipe="prorl", **open_)
    assert config.eval_samples == 4 and config.rollouts_per_prompt == 16


def test_a_folder_that_is_in_use_is_refused(finished, tmp_path):
    """Makes impossible: a run that overwrites another, or two processes in one folder."""
    with pytest.raises(Refusal, match="--name"):
        set_up(finished)
    _, _, setup = set_up(tmp_path)
    assert setup.run.lock.is_locked
    code = f"from filelock import FileLock; FileLock({str(tmp_path / 'run/lock')!r}).acquire(timeout=0)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode


# ---------------------------------------------------------------------------------------------------- checkpoints


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    """Makes impossible: "unexpected pos 704 vs 598" as the end of a night's run; another failure called a full disk."""
    config, accelerator, setup = set_up(tmp_path, max_steps=1, eval_every=0, eval_samples=1)
    monkeypatch.setattr(dcp, "save", mock.Mock(side_effect=RuntimeError("unexpected pos 704 vs 598")))
    with pytest.raises(RuntimeError, match="unexpected pos"):
        setup.run.save(setup.progress, setup.policy, setup.optimizer, setup.ref_policy)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: mock.Mock(free=2**20))
    with pytest.raises(Refusal, match="1 MiB left: make room, then --resume --name run"):
        train.train(config, accelerator, setup)


PARTS = "model", "reference", "optimizer"
FEW = {"rollouts_per_prompt": 4, "eval_samples": 1}


def copied(finished, tmp_path):
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path


def test_a_tied_head_is_written_once_and_restored(finished):
    """Makes impossible: a checkpoint with 8 more bytes for each parameter of the head; a head that stays as it was."""
    newest = finished / "run/checkpoints/step_00000002"
    written = dcp.FileSystemReader(newest).read_metadata().state_dict_metadata
    policy = Policy(loaded()[0])
    heads = {name for name in policy.state_dict() if name.endswith("lm_head.weight")}
    names = {part: {x.removeprefix(f"{part}.") for x in written if x.startswith(f"{part}.")} for part in PARTS}
    assert len(heads) == 1 and names["model"] == names["reference"] == policy.state_dict().keys() - heads
    assert len({x for x in names["optimizer"] if x.endswith("exp_avg")}) == len(names["model"])
    start = policy.model.lm_head.weight.clone()
    weights = {name: p.detach() for name, p in policy.named_parameters()}
    read_state(newest, {"model": weights})
    assert policy.model.lm_head.weight is policy.model.get_input_embeddings().weight
    assert not torch.equal(start, policy.model.lm_head.weight)


def test_the_newest_two_checkpoints_stay(tmp_path):
    """Makes impossible: a full disk after a week; an evaluation at the steps of checkpoints."""
    rows = run(tmp_path, max_steps=5, eval_every=2, **FEW)
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names == ["step_00000004", "step_00000005"]
    assert [row["step"] for row in rows if "eval/pass@1" in row] == [0, 2, 4, 5]


@pytest.mark.parametrize("save_every, written", [(None, [6, 9]), (4, [4, 8, 9])])
def test_checkpoints_come_by_time_unless_steps_are_named(tmp_path, monkeypatch, save_every, written):
    """Makes impossible: a killed run of ten slow steps that has no checkpoint; a checkpoint after each fast step."""
    saves = []

    def save(self, progress, *rest):
        self.saved = progress.seconds
        saves.append(progress.step)

    monkeypatch.setattr(module.Run, "save", save)
    clock = itertools.count(0, 70)  # seconds of a step
    monkeypatch.setattr(module.Clock, "seconds_of_slowest", lambda self: next(clock))
    monkeypatch.setattr(module.Run, "finish", lambda *_: None)
    run(tmp_path, max_steps=9, eval_every=0, eval_samples=1, save_every=save_every)
    assert saves == written


def test_the_files_of_the_end_are_tried_at_the_start(tmp_path):
    """Makes impossible: a run that trains to its end and cannot be written, in its first start or after a resume."""
    shutil.copytree(TINY / "policy", tmp_path / "odd")
    (tmp_path / "odd" / "generation_config.json").write_text(
        '{"do_sample": false, "temperature": 0.6, "eos_token_id": 0}'
    )
    run(tmp_path, model=tmp_path / "odd", max_steps=1, eval_every=0)
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    written.save_pretrained(tmp_path / "again")  # transformers before 5.24 refuse to write this generation config
    model, tokenizer = loaded()
    broken = mock.patch.object(type(tokenizer), "save_pretrained", side_effect=ValueError("no file"))
    with broken, pytest.raises(Refusal, match="final model could not be written: no file"):
        try_to_save(model, tokenizer)
    assert try_to_save(model, tokenizer) == ""


def test_ctrl_c_while_torch_writes_a_checkpoint(tmp_path, monkeypatch):
    """Makes impossible: a traceback of torch for Ctrl-C, or the advice to delete the checkpoint that it interrupted."""
    monkeypatch.setattr(DefaultSavePlanner, "create_local_plan", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, max_steps=1, **FEW)


def test_a_damaged_checkpoint_is_named(tmp_path, finished):
    """Makes impossible: a traceback of torch for a torn file, or an older checkpoint that cannot take its place."""
    folder = copied(finished, tmp_path)
    newest = folder / "run/checkpoints/step_00000002"
    for path in newest.glob("*.distcp"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Refusal, match="step_00000002"):
        set_up(folder, resume=True, max_steps=3)
    shutil.rmtree(newest)
    run(folder, resume=True)
    assert contents(folder / "run") == contents(finished / "run")


@pytest.mark.parametrize("text", ["{", "[]", '{"step": "2"}', '{"seconds": NaN}', "[" * 100_000, "\xff"])
def test_a_broken_progress_file_is_named(tmp_path, finished, text):
    """Makes impossible: a traceback for a progress.json that is torn or edited, of a complete run and of another."""
    folder = copied(finished, tmp_path)
    newest = folder / "run/checkpoints/step_00000002"
    (newest / "progress.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Refusal, match=r"^--resume: .*step_00000002 cannot be read, delete it \(progress.json: "):
        set_up(folder, resume=True)
    (newest / "complete").unlink()
    with pytest.raises(Refusal, match=r"^--resume: .*step_00000002 cannot be read, delete it \(progress.json: "):
        module.Run.restore(mock.Mock(checkpoints=lambda: [newest]), Progress(), None, None, None)


def test_a_complete_run_is_left_as_it_is(tmp_path, finished, capsys):
    """Makes impossible: a finished run whose --resume writes its files again; one that ended before it wrote its model,
    and is never completed.
    """
    folder = copied(finished, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*")}
    with pytest.raises(SystemExit) as end:
        run(folder, resume=True)
    assert not end.value.code and "--max_steps" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("*")} == before
    (folder / "run/checkpoints/step_00000002/complete").unlink()
    shutil.rmtree(folder / "run/model")
    run(folder, resume=True)
    assert contents(folder / "run") == contents(finished / "run")


def test_a_resumed_run_has_the_settings_of_now_or_is_refused(tmp_path, finished):
    """Makes impossible: a run that ends for its learning rate and cannot continue with a lower one; a resumed run whose
    folder is free for another process, or whose config.json has the old rate; half a run with another cap.
    """
    folder = copied(finished, tmp_path)
    with pytest.raises(Refusal, match="objective"):
        set_up(folder, resume=True, objective=["brorl", "tis_cap=3"], max_steps=3)
    assert contents(folder / "run") == contents(finished / "run")
    _, _, setup = set_up(folder, resume=True, max_steps=3, learning_rate=1e-7)
    assert [group["lr"] for group in setup.optimizer.param_groups] == [1e-7]
    assert setup.run.lock.is_locked
    assert json.loads((folder / "run/config.json").read_text())["learning_rate"] == 1e-7


class Killed(BaseException):
    """Stands for SIGKILL: nothing in a run catches it."""


def dying(moment: int, monkeypatch) -> None:
    """Let the n-th operation on the disk end the run, halfway through its work. Counts the calls from now on."""
    left = [moment]

    def counted(owner, name, halfway):
        own = getattr(owner, name)

        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                halfway(*arguments)
                raise Killed
            return own(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    def torn_line(self, file, row):
        with (self.folder / file).open("a") as log:
            log.write(json.dumps(row)[:20])

    def one_file_less(path, **options):
        next((x.unlink() for x in sorted(Path(path).rglob("*")) if x.is_file()), None)

    counted(os, "fsync", lambda file: None)
    counted(os, "replace", lambda old, new: None)
    counted(dcp, "save", lambda state, **options: None)
    counted(module.shutil, "rmtree", one_file_less)
    counted(module.Run, "append", torn_line)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_dies_at_any_operation_on_the_disk_resumes_to_the_same_bytes(tmp_path, monkeypatch, stride):
    """Makes impossible: a kill between two writes that loses a line, a checkpoint or the way to resume.

    The run dies at its first operation, is resumed, dies at a later one, and so on until it ends.
    """
    small = {"max_steps": 4, "eval_every": 2, "reference_reset_steps": 2, **FEW}
    monkeypatch.setattr("trainer.pictures.draw_curves", lambda *a: None)
    run(tmp_path / "whole", **small)
    deaths = 0
    for moment in itertools.count(1, stride):
        begun = (tmp_path / "part/run/config.json").exists()
        with monkeypatch.context() as patch:
            dying(moment, patch)
            config, origins = settings(tmp_path / "part", resume=begun, **small)
            locks = []
            patch.setattr(module, "FileLock", lambda path, locks=locks: locks.append(FileLock(path)) or locks[-1])
            try:
                accelerator, config.precision = Accelerator(cpu=True), "float32"
                train.train(config, accelerator, train.set_up(config, accelerator, origins))
                break
            except Killed:
                deaths += 1
            finally:
                [lock.release() for lock in locks]  # as the end of the process does
    assert deaths * stride > 25
    assert contents(tmp_path / "whole/run") == contents(tmp_path / "part/run")
    assert not list((tmp_path / "part/run").rglob("*unfinished*"))


def test_the_best_and_the_worst_response_of_all_ranks_are_logged(tmp_path, monkeypatch):
    """Makes impossible: samples.jsonl with the best of one rank's share, while another rank has the only right one."""
    _, _, setup = set_up(tmp_path)
    setup.run.open()
    table = outcomes([[0, 0, 0, 1]], [[0.5, 0.25, 0.0, 1.0]])
    rollouts, _ = drawn(1, 4)
    for r, reward in zip(rollouts, table.reward[0].tolist(), strict=True):
        r.verdict = Verdict(reward, reward == 1, "x")
    others = [(3, module.sample_of(rollouts[3]))]  # of the other rank
    monkeypatch.setattr(module, "gather_object", lambda mine: mine + others)
    setup.run.log_samples(rollouts[:3], table, L.informative(table.correct), 1)
    assert [row["reward"] for row in lines(tmp_path / "run/samples.jsonl")] == [1.0, 0.0]


def test_a_tracker_gets_the_metrics_of_every_step(tmp_path, monkeypatch):
    """Makes impossible: --report_to that is accepted and sends nothing, or sends the wrong step."""
    sent, started = {}, []
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: name)
    monkeypatch.setattr(Accelerator, "init_trackers", lambda self, *a: started.append([self.log_with, *a]))
    monkeypatch.setattr(Accelerator, "log", lambda self, values, step: sent.update({step: values}))
    rows = run(tmp_path, report_to="wandb", max_steps=1)
    ((_, project, config, options),) = started
    assert project == "brorl" and config["rollouts_per_prompt"] == "8" and options["wandb"]["name"] == "run"
    assert list(sent) == [0, 1]
    for step, row in enumerate(rows):
        values = {name: x for name, x in sent[step].items() if not name.startswith("seconds/")}
        assert values == {name: x for name, x in row.items() if name != "step"} and len(sent[step]) > len(values)
