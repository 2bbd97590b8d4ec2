"""trainer/run.py and report.py: progress, the folder of a run, logs, checkpoints, scores, curves."""

import json
import math
import shutil
import subprocess
import sys
from unittest import mock

import pytest
import torch
from helpers import ROOT, TINY, lines, loaded, run, set_up, settings
from transformers import AutoModelForCausalLM, AutoTokenizer

import brorl
import train
from trainer.report import draw_curves, score_sources, scores_of
from trainer.rollouts import Outcomes
from trainer.run import Progress, step_metrics, warnings_of, write
from trainer.settings import Config, Refusal
from verify import REASONS, Problem

# ------------------------------------------------------------------------------------------------------ progress

PROBLEMS = [Problem(str(i), "math", "1") for i in range(7)]


def taken(progress, count, seed=0):
    return [problem.prompt for problem in progress.next_problems(PROBLEMS, count, seed)[0]]


def test_every_problem_comes_once_per_epoch():
    """Makes impossible: a problem that is skipped or comes twice in an epoch; an order that depends on the rounds."""
    whole = taken(Progress(), 21)
    assert all(sorted(whole[i : i + 7]) == sorted(x.prompt for x in PROBLEMS) for i in (0, 7, 14))
    assert whole[:7] != whole[7:14]
    progress = Progress()
    assert [x for count in (3, 1, 9, 8) for x in taken(progress, count)] == whole and progress.position == 21
    assert taken(Progress(position=5), 4) == whole[5:9] and taken(Progress(), 7, seed=1) != whole[:7]


def test_seeds_follow_from_step_and_position():
    """Makes impossible: equal rollouts of a prompt in two epochs, or seeds that depend on the rounds of a step."""
    one, other = Progress(step=3), Progress(step=3)
    first = one.next_problems(PROBLEMS, 4, 0)[1] + one.next_problems(PROBLEMS, 3, 0)[1]
    assert first == other.next_problems(PROBLEMS, 7, 0)[1] and len(set(first)) == 7
    assert not set(first) & set(other.next_problems(PROBLEMS, 7, 0)[1])


def test_budgets_and_what_is_due():
    """Makes impossible: a step after the budget; a missing evaluation or checkpoint at the end."""
    config = Config(max_steps=5)
    progress = Progress()
    assert list(progress.steps(config)) == [1, 2, 3, 4, 5] and progress.spent(config)
    assert Progress(step=4).due(2, config) and not Progress(step=3).due(2, config) and Progress(step=5).due(2, config)
    assert Progress(step=5).due(0, config) and not Progress(step=4).due(0, config)
    assert Progress(seconds=3600).spent(Config(max_hours=1.0)) and not Progress(seconds=3599).spent(
        Config(max_hours=1.0)
    )


def outcomes(correct, reward=None, kinds=None, judged=True, truncated=False) -> Outcomes:
    table = torch.tensor(correct, dtype=torch.bool)
    reasons = torch.where(table, REASONS.index("correct"), REASONS.index("wrong"))
    reward = table.double() if reward is None else torch.tensor(reward)
    length = torch.arange(table.numel()).view(table.shape)
    cut = torch.full(table.shape, truncated)
    return Outcomes(reward, table, reasons, length, cut, kinds or ["math"] * len(table), 2, judged)


def test_the_end_of_a_step_is_counted():
    """Makes impossible: samples that leave out dropped prompts; a streak that survives a good step."""
    progress = Progress(tried=10.0, informative=5.0, unjudged=2, skipped=3)
    progress.end_step(outcomes([[1, 0], [1, 1], [0, 0]]), [False, True, True], 12.5)
    assert (progress.samples, progress.tried, progress.informative) == (6, 11.0, 5.0)
    assert (progress.unjudged, progress.skipped, progress.seconds) == (0, 2, 12.5)
    good, failed = outcomes([[1, 0]]), outcomes([[0, 0]], judged=False)
    failed.reason[:] = REASONS.index("timeout")
    progress.end_step(good.followed_by(failed), [], 12.8)  # a last round of one slow prompt
    assert progress.unjudged == 0 and not good.followed_by(failed).judged
    progress.samples = 6
    progress.end_step(failed, [], 13.0)
    assert (progress.unjudged, progress.skipped) == (1, 2)
    progress.check()
    with pytest.raises(Refusal, match="--verify_timeout"):
        Progress(unjudged=3).check()
    with pytest.raises(Refusal, match="--learning_rate"):
        Progress(skipped=16).check()


# ------------------------------------------------------------------------------------------------------- metrics


def test_metrics_of_a_step_by_hand():
    """Makes impossible: a metric over the kept prompts alone; a kind's numbers that include another's."""
    table = outcomes([[1, 0], [1, 1], [0, 0]], [[1.0, 0.5], [1.0, 1.0], [0.0, 0.0]], ["math", "code", "math"])
    got = step_metrics(Progress(step=4, samples=99), table)
    assert got == {
        "step": 4, "samples": 99, "prompts": 1, "pass_rate": pytest.approx(1 / 3), "rounds": 2,
        "reward": pytest.approx(3.5 / 6), "correct": pytest.approx(0.5), "response_tokens": 2.5, "truncated": 0.0,
        "reason/correct": 3, "reason/wrong": 3, "reason/code/correct": 2, "reason/math/correct": 1,
        "reason/math/wrong": 3, "reward/code": 1.0, "rollouts/code": 2, "reward/math": pytest.approx(1.5 / 4),
        "rollouts/math": 4,
    }  # fmt: skip


@pytest.mark.parametrize("table, updates, named", [
    (outcomes([[1, 0], [1, 1]]), {}, "--prompts_per_step"),
    (outcomes([[1, 0]] * 2, truncated=True), {}, "--max_response_tokens"),
    (outcomes([[1, 0]] * 2), {"updates_skipped": 2.0}, "gradient"),
])  # fmt: skip
def test_a_step_warns_about_what_went_wrong(table, updates, named):
    """Makes impossible: a run that learns nothing, silently."""
    found = warnings_of(
        step_metrics(Progress(), table) | updates, table, Config(prompts_per_step=2, updates_per_step=8)
    )
    assert len(found) == 1 and named in found[0]


def test_a_good_step_has_no_warning():
    """Makes impossible: a warning in every step, which nobody reads."""
    table = outcomes([[1, 0]] * 2)
    assert warnings_of(step_metrics(Progress(), table), table, Config(prompts_per_step=2)) == []


def test_scores_by_hand():
    """Makes impossible: a standard error over responses; "any of the first k" in place of the unbiased estimate."""
    correct = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    got = scores_of(correct, torch.full((3, 4), 7), torch.zeros(3, 4, dtype=torch.bool))
    assert got["pass@1"] == pytest.approx(0.5) and got["pass@1_se"] == pytest.approx(0.5 / math.sqrt(3))
    assert got["pass@4"] == pytest.approx(2 / 3) and "pass@16" not in got and got["response_tokens"] == 7
    many = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) < 0.05
    got = scores_of(many, torch.ones(5, 64), torch.zeros(5, 64))
    want = [brorl.pass_at_k_estimate(64, int(c), 16) for c in many.sum(-1)]
    assert got["pass@16"] == pytest.approx(sum(want) / 5)


def test_the_mean_of_sources_weighs_them_alike():
    """Makes impossible: AIME's 30 problems drowned by MATH's 500."""
    rows = score_sources(outcomes([[1, 1]] + [[0, 0]] * 3), {"a": 1, "b": 3})
    assert list(rows) == ["a", "b", "mean of 2"] and rows["mean of 2"]["pass@1"] == 0.5
    assert list(score_sources(outcomes([[1, 0]]), {"a": 1})) == ["a"]


# ----------------------------------------------------------------------------------------------- the folder of a run


def test_the_files_of_a_run(finished):
    """Makes impossible: a file that the pages promise and that is missing or unreadable."""
    folder = finished / "run"
    names = {path.name for path in folder.iterdir()}
    logs = {"metrics.jsonl", "timing.jsonl", "eval.jsonl", "samples.jsonl"}
    assert names == logs | {"config.json", "checkpoints", "model", "curves.png", "lock"}
    assert [row["step"] for row in lines(folder / "eval.jsonl")] == [0, 1, 2]
    timing = lines(folder / "timing.jsonl")
    assert all({"seconds", "roll_out", "score", "update", "evaluate"} <= row.keys() for row in timing[1:])
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "config.json").read_text())["digests"].keys() >= {"the tokenizer"}


def test_samples_are_verdicts_to_read(finished):
    """Makes impossible: samples.jsonl without the prompt, the response or the reason; more than a few lines a step."""
    rows = lines(finished / "run/samples.jsonl")
    assert all({"prompt", "response", "reward", "correct", "reason", "step"} <= row.keys() for row in rows)
    for step in (1, 2):
        of_step = [row for row in rows if row["step"] == step and "kept" in row]
        kept = [row for row in of_step if row["kept"]]
        assert 2 <= len(of_step) <= 4 and kept[0]["reward"] > kept[-1]["reward"]


def test_the_saved_model_is_the_trained_policy(finished):
    """Makes impossible: a model/ with the weights of the start, or that transformers cannot load."""
    config, accelerator, setup = set_up(finished.parent, model=str(finished / "run/model"), eval_only=True,
                                        output_dir=finished.parent / "scored")  # fmt: skip
    scores = train.evaluate(config, accelerator, setup)
    last = lines(finished / "run/metrics.jsonl")[-1]
    assert scores == {name: x for name, x in last.items() if name.startswith("eval/")}
    AutoTokenizer.from_pretrained(finished / "run/model")
    model = AutoModelForCausalLM.from_pretrained(finished / "run/model", dtype=torch.float32)
    start, _ = loaded()
    assert any((a != b).any() for a, b in zip(model.parameters(), start.parameters(), strict=True))


def test_the_saved_model_keeps_the_settings_of_the_run(finished, tmp_path):
    """Makes impossible: a model that is scored by another protocol than the run used; a rate that is lost."""
    model = str(finished / "run/model")
    config, sources = settings(tmp_path, model=model, learning_rate=None, eval_samples=None, recipe="prorl",
                               rollouts_per_prompt=None, prompts_per_step=None)  # fmt: skip
    assert config.eval_samples == 4 and config.rollouts_per_prompt == 16
    config, sources = settings(tmp_path, model=model, learning_rate=None)
    assert config.learning_rate == 1e-4 and "run" in sources["learning_rate"]


def test_a_folder_that_is_in_use_is_refused(finished, tmp_path):
    """Makes impossible: a run that overwrites another, or two processes in one folder."""
    with pytest.raises(Refusal, match="--name"):
        set_up(finished)
    config, accelerator, setup = set_up(tmp_path)
    code = f"from filelock import FileLock; FileLock({str(tmp_path / 'run/lock')!r}).acquire(timeout=0)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
    train.train(config, accelerator, setup)


def test_a_run_killed_before_its_settings_were_written_starts_again(tmp_path):
    """Makes impossible: a folder that can neither be resumed nor used."""
    (tmp_path / "run").mkdir()
    for name in ("lock", "config.json.unfinished"):
        (tmp_path / "run" / name).write_text("")
    set_up(tmp_path)
    assert (tmp_path / "run/config.json").is_file()


def test_nothing_is_written_before_the_checks(tmp_path, monkeypatch):
    """Makes impossible: a folder left behind by a refused run, which blocks the next one."""
    monkeypatch.setattr(train, "check_engine", mock.Mock(side_effect=Refusal("no")))
    with pytest.raises(Refusal):
        set_up(tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    """Makes impossible: half a file after a full disk."""
    path = tmp_path / "x.json"
    write(path, "old")
    monkeypatch.setattr("os.fsync", mock.Mock(side_effect=OSError("full")))
    with pytest.raises(OSError):
        write(path, "new")
    assert path.read_text() == "old"


# ---------------------------------------------------------------------------------------------------- checkpoints


def copied(finished, tmp_path):
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path


def test_the_newest_two_checkpoints_stay_with_their_reference(tmp_path):
    """Makes impossible: a full disk after a week; a reference that is written again although it did not change."""
    run(tmp_path, max_steps=5, reference_reset_steps=4, eval_every=0)
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names == ["reference_00000004", "step_00000004", "step_00000005"]
    run(tmp_path, name="kept", max_steps=3, reference_reset_steps=0, eval_every=0)
    first = tmp_path / "kept/checkpoints/reference_00000000"
    steps = [json.loads((p / "progress.json").read_text())["step"] for p in first.parent.glob("*_*")]
    assert sorted(steps) == [1, 2, 3]  # the reference was written once, with the first checkpoint


def test_a_resumed_run_goes_on_to_the_same_bytes(tmp_path, finished):
    """Makes impossible: moments, reference, problem order or progress that a checkpoint leaves out."""
    whole = {"max_steps": 5, "reference_reset_steps": 2, "eval_every": 2}
    run(tmp_path / "whole", **whole)
    run(tmp_path / "parts", **whole | {"max_steps": 2})
    run(tmp_path / "parts", **whole | {"max_steps": 3}, resume=True)
    with (tmp_path / "parts/run/metrics.jsonl").open("a") as log:
        log.write('{"step": 4, "torn')  # by a kill
    run(tmp_path / "parts", **whole, resume=True)
    for name in ("metrics.jsonl", "samples.jsonl"):
        # evaluations at the ends of the parts, steps 2 and 3: only the one of step 3 is not in the whole run
        a, b = (lines(tmp_path / x / "run" / name) for x in ("whole", "parts"))
        strip = [[{k: v for k, v in row.items() if not k.startswith("eval/")} for row in rows] for rows in (a, b)]
        strip = [[row for row in rows if "evaluation" not in row] for rows in strip]
        assert strip[0] == strip[1], name
    a, b = ((tmp_path / x / "run/model/model.safetensors").read_bytes() for x in ("whole", "parts"))
    assert a == b


def test_without_a_checkpoint_a_run_starts_over(tmp_path, finished):
    """Makes impossible: lines of a lost beginning in the logs; a resumed run that skips its first steps."""
    folder = copied(finished, tmp_path)
    shutil.rmtree(folder / "run/checkpoints")
    run(folder, resume=True)
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert (folder / "run" / name).read_bytes() == (finished / "run" / name).read_bytes()


def test_a_damaged_checkpoint_is_named(tmp_path, finished):
    """Makes impossible: a traceback of torch for a torn file; a run that silently starts over."""
    folder = copied(finished, tmp_path)
    newest = folder / "run/checkpoints/step_00000002"
    for path in newest.glob("*.distcp"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Refusal, match="step_00000002"):
        set_up(folder, resume=True)
    shutil.rmtree(newest)
    run(folder, resume=True)
    assert (folder / "run/metrics.jsonl").read_bytes() == (finished / "run/metrics.jsonl").read_bytes()
    next((folder / "run/checkpoints/reference_00000002").glob("*.distcp")).write_bytes(b"")
    with pytest.raises(Refusal, match="reference_00000002"):
        set_up(folder, resume=True)


def test_a_resumed_run_may_lower_its_learning_rate(tmp_path, finished):
    """Makes impossible: a run that ends for its learning rate and cannot continue with a lower one."""
    folder = copied(finished, tmp_path)
    _, _, setup = set_up(folder, resume=True, learning_rate=1e-7)
    assert [group["lr"] for group in setup.optimizer.param_groups] == [1e-7]


def test_a_checkpoint_is_complete_or_not_there(tmp_path, monkeypatch):
    """Makes impossible: half a checkpoint that --resume takes."""
    config, accelerator, setup = set_up(tmp_path, eval_every=0)
    import trainer.run as module

    own, count = module.dcp.save, []

    def torn(state, **options):
        own(state, **options)
        count.append(1)
        if len(count) == 3:  # the reference, step 1, step 2
            raise OSError("the disk is full")

    monkeypatch.setattr(module.dcp, "save", torn)
    with pytest.raises(OSError):
        train.train(config, accelerator, setup)
    names = {path.name for path in (tmp_path / "run/checkpoints").iterdir()}
    assert names == {"reference_00000000", "step_00000001", "unfinished"}
    monkeypatch.setattr(module.dcp, "save", own)
    setup.run.lock.release()  # as the end of the process does
    rows = run(tmp_path, eval_every=0, resume=True)
    assert [row["step"] for row in rows] == [0, 1, 2]


def test_a_spent_budget_trains_nothing(tmp_path, finished):
    """Makes impossible: a step beyond --max_steps each time a finished run is resumed."""
    folder = copied(finished, tmp_path)
    run(folder, resume=True)
    assert (folder / "run/metrics.jsonl").read_bytes() == (finished / "run/metrics.jsonl").read_bytes()


# ------------------------------------------------------------------------------------------- curves and trackers


def test_curves_are_drawn_from_a_run_without_updates(tmp_path):
    """Makes impossible: a crash at the end of a run in which no prompt was informative."""
    rows = [{"step": i, "samples": 8 * i, "reward": 0.0, "pass_rate": 0.0} for i in range(1, 3)]
    rows = [{"step": 0, "samples": 0, "eval/pass@1": 0.1, "eval/pass@1_se": 0.1}, *rows]
    draw_curves(rows, tmp_path / "curves.png", "a run")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_trackers_get_the_metrics(tmp_path, monkeypatch):
    """Makes impossible: --report_to that is accepted and sends nothing."""
    pytest.importorskip("tensorboard")
    run(tmp_path, report_to="tensorboard")
    assert list((tmp_path / "run/tensorboard").rglob("events.*"))


def test_an_unknown_tracker_needs_no_run(tmp_path):
    """Makes impossible: a missing package that ends a run after an hour."""
    with pytest.raises(Refusal, match="--report_to"):
        settings(tmp_path, report_to="wandb" if "wandb" not in sys.modules and not has("wandb") else "mlflow")


def has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def test_paths_of_the_repository():
    """Makes impossible: a default that depends on the folder in which train.py is started."""
    assert (ROOT / "train.py").is_file() and (TINY / "policy/config.json").is_file()
