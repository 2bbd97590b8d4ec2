"""From settings to all that the loop works with: the engine that must hold the model, the weights, the threads."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from helpers import ROOT, TINY, config, few_problems, loaded, run

import train
from engines.vllm import VLLMEngine
from rollout import TorchEngine
from trainer.errors import refusals_as_sentences
from trainer.settings import Config
from trainer.start import check_verifiers, load_model, load_moments
from verify import Problem, load_rewards


class Off(TorchEngine):
    """An engine whose log-probs are a little off, some of the time."""

    shift = (0.0,)

    def generate(self, *arguments, **sampling):
        groups = super().generate(*arguments, **sampling)
        for group in groups:
            for j, logprobs in enumerate(group.logprobs):
                logprobs[:] = [x + self.shift[(i + j) % len(self.shift)] for i, x in enumerate(logprobs)]
        return groups


@pytest.mark.parametrize(
    ("shift", "limits", "refused"),
    [
        ([0.0], {}, False),
        ([-0.01], {}, True),
        ([float("nan")], {"max_engine_difference": 1.0, "max_engine_kl": 1.0}, True),
        ([0.02] + 39 * [0.0], {}, False),  # 5e-4 on average, 5e-6 of KL
        ([0.1] + 39 * [0.0], {}, True),  # 2.5e-3 on average
        ([-0.01], {"max_engine_difference": 0.1}, False),
        ([-0.3], {"max_engine_difference": 1.0}, True),  # KL 0.05
        ([-0.3], {"max_engine_difference": 1.0, "max_engine_kl": 0.1}, False),
    ],
)
def test_an_engine_that_samples_another_model_is_refused_at_the_start(tmp_path, monkeypatch, shift, limits, refused):
    """Makes impossible: a run on rollouts of another model; one refused for rounding; limits that cannot be moved."""
    monkeypatch.setattr(Off, "shift", shift)
    monkeypatch.setattr("rollout.TorchEngine", Off)
    accelerator, c = Accelerator(cpu=True), config(tmp_path, **limits)
    if refused:
        with pytest.raises(ValueError, match=r"does not sample the model that is trained: .*--max_engine_kl"):
            train.set_up(c, accelerator)
    else:
        train.set_up(c, accelerator)


@pytest.mark.parametrize(("body", "said"), [("1 / 0", "ZeroDivisionError"), ("time.sleep(9)", "--verify_timeout")])
def test_a_reward_that_fails_on_any_text_is_refused_at_the_start(tmp_path, forget_kinds, body, said):
    """Makes impossible: a run of a reward that always raises or is too slow, without its exception or its limit."""
    (tmp_path / "rewards.py").write_text(f"import time\nKINDS = {{'broken': lambda text, reference: {body}}}")
    load_rewards([tmp_path / "rewards.py"])
    with pytest.raises(ValueError, match=said):
        check_verifiers([Problem("?", "broken", 0)], Config(verify_timeout=1.0))


def test_vllm_gets_the_settings_of_the_run(tmp_path, monkeypatch):
    """Makes impossible: a group of 1,024 cut in two; a flag that goes nowhere; an engine too short to be evaluated."""
    asked = []

    class Fake(TorchEngine):
        from_config = vars(VLLMEngine)["from_config"]

        def __init__(self, model, *rest):
            super().__init__(model)
            asked.append(rest)

    monkeypatch.setattr("engines.vllm.VLLMEngine", Fake)
    longer = tmp_path / "longer.jsonl"
    row = {"prompt": "1569:20=" * 4, "kind": "countdown", "reference": {"numbers": [1, 5, 6, 9], "target": 20}}
    longer.write_text(json.dumps(row) + "\n")
    flags = {"gpu_memory_utilization": 0.7, "engine_memory_gib": 3.0, "engine_dtype": "bfloat16", "engine": "vllm"}
    monkeypatch.setattr("trainer.start.check_engine", lambda *a: "not compared")
    for n, limit, most in ((8, None, 512), (1024, None, 1024), (8, 64, 64)):
        flags |= {"rollouts_per_prompt": n, "max_num_seqs": limit}
        c = config(tmp_path, eval_data=[str(longer)], overwrite=True, **flags)
        train.set_up(c, Accelerator(cpu=True))
        assert asked[-1] == (32 + c.max_response_tokens, most, 3.0, 0.7, "bfloat16", None)
    train.set_up(config(tmp_path, **flags | {"eval_max_response_tokens": 30}, overwrite=True), Accelerator(cpu=True))
    assert asked[-1][0] == 8 + 30  # the 32k of an evaluation, where training's responses are shorter
    train.set_up(config(tmp_path, **flags | {"eval_max_response_tokens": 3}, overwrite=True), Accelerator(cpu=True))
    assert asked[-1][0] == 8 + c.max_response_tokens


def test_without_vllm_the_message_says_what_to_install(tmp_path, monkeypatch):
    """Makes impossible: an ImportError from the middle of a start."""
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ValueError, match=r"needs the package vllm: pip install -r requirements-gpu\.txt"):
        train.set_up(config(tmp_path, engine="vllm"), Accelerator(cpu=True))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_can_start_with_another_runs_moments(copied, tmp_path):
    """Makes impossible: fresh moments in spite of --optimizer_from, or the other run's learning rate with them."""
    model, checkpoint = str(copied / "run/model"), copied / "run/checkpoints/step_00000002"
    c = config(tmp_path, name="second", model=model, learning_rate=3e-4, optimizer_from=str(checkpoint), recipe="prorl")
    setup = train.set_up(c, Accelerator(cpu=True))
    saved = torch.load(checkpoint / "optimizer.bin", weights_only=True)
    own = setup.optimizer.state_dict()
    assert own["param_groups"][0]["lr"] == 3e-4 != saved["param_groups"][0]["lr"]
    assert len(own["state"]) == len(saved["state"]) > 10
    for i, moments in saved["state"].items():
        assert own["state"][i]["step"] == 4  # two steps of two updates
        assert torch.equal(own["state"][i]["exp_avg"], moments["exp_avg"]) and moments["exp_avg"].any()
        assert torch.equal(own["state"][i]["exp_avg_sq"], moments["exp_avg_sq"])
    again = {"name": "kept", "model": model, "optimizer_from": str(checkpoint), "eval_every": 0}
    whole = run(tmp_path, **again | {"name": "whole"})
    run(tmp_path, **again | {"max_steps": 1})
    checkpoint.rename(moved := tmp_path / "moved")
    assert run(tmp_path, **again, resume=True)[-1] == whole[-1]  # it has its own by now
    moved.rename(checkpoint)
    for folder, says in ((tmp_path, "has no optimizer.bin: name a checkpoint"), (checkpoint, "cannot be read")):
        if folder == checkpoint:
            os.truncate(checkpoint / "optimizer.bin", 1000)
        with pytest.raises(ValueError, match=says):
            train.set_up(config(tmp_path, name="third", model=model, optimizer_from=str(folder)), Accelerator(cpu=True))
    torch.save(saved, checkpoint / "optimizer.bin")
    with pytest.raises(ValueError, match="has not the moments of these weights"):
        load_moments(torch.optim.AdamW([torch.zeros(3, requires_grad=True)]), checkpoint)


def test_a_refused_engine_leaves_no_run_behind(copied, monkeypatch):
    """Makes impossible: an old run deleted for one that does not start, or a folder that the next try trips over."""
    before = (copied / "run/metrics.jsonl").read_text()
    monkeypatch.setattr(Off, "shift", [-0.3])
    monkeypatch.setattr("rollout.TorchEngine", Off)
    for changes in ({"overwrite": True}, {"name": "other"}):
        with pytest.raises(ValueError, match="does not sample the model"):
            train.set_up(config(copied, **changes), Accelerator(cpu=True))
    assert (copied / "run/metrics.jsonl").read_text() == before
    assert not (copied / "other").exists()
    with pytest.raises(ValueError, match="does not sample the model"):  # and scores are not believed either
        train.set_up(config(copied, eval_only=True, name="scored"), Accelerator(cpu=True))


def policy_without(folder, *names) -> str:
    """A copy of the embedded policy that lacks these files."""
    shutil.copytree(TINY / "policy", folder / "policy", ignore=shutil.ignore_patterns(*names))
    return str(folder / "policy")


def test_weights_that_are_cut_off_are_named(tmp_path, capsys):
    """Makes impossible: a raw traceback for a download that broke off, in safetensors or pickled."""
    folder = Path(policy_without(tmp_path))
    os.truncate(folder / "model.safetensors", 100_000)
    says = "its weights cannot be read .* Is a file cut off, or of another model\\? Copy or download it again"
    with pytest.raises(ValueError, match=says):
        train.set_up(config(tmp_path, model=str(folder)), Accelerator(cpu=True))
    (folder / "model.safetensors").unlink()
    torch.save(loaded()[0].state_dict(), folder / "pytorch_model.bin")
    os.truncate(folder / "pytorch_model.bin", 100_000)
    with pytest.raises(ValueError, match=says):
        train.set_up(config(tmp_path, model=str(folder)), Accelerator(cpu=True))
    with pytest.raises(SystemExit) as left, refusals_as_sentences():
        load_model(str(folder))
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.strip().count("\n") == 0 and "Traceback" not in said
    assert not (tmp_path / "run").exists()


THREADS = (
    "import torch; from trainer.settings import Config; from trainer.start import start_accelerator; "
    "start_accelerator(Config()); print(torch.get_num_threads())"
)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [None, "1", "3"])
@pytest.mark.parametrize("command", [[], ["-m", "accelerate.commands.launch", "--cpu"]], ids=["python", "accelerate"])
def test_a_processes_threads(tmp_path, command, threads):
    """Makes impossible: another number of threads than a user's, or less than the machine's cores where none is set."""
    (tmp_path / "threads.py").write_text(THREADS)
    own = {"OMP_NUM_THREADS": threads} if threads else {}
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | own | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command, tmp_path / "threads.py"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cores = len(os.sched_getaffinity(0))
    assert int(done.stdout.split()[-1]) == min(int(threads or cores), cores)  # torch itself takes no more


@pytest.mark.parametrize(("own", "seen"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_a_user_says_otherwise(tmp_path, own, seen):
    """Makes impossible: a run that any other load slows 5 to 15 times, because torch came before the setting."""
    (tmp_path / "torch.py").write_text("import os; print(os.environ.get('OMP_WAIT_POLICY'), flush=True); os._exit(0)")
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | {"PYTHONPATH": str(tmp_path)}
    environment |= {"OMP_WAIT_POLICY": own} if own else {}
    done = subprocess.run([sys.executable, ROOT / "train.py"], capture_output=True, text=True, env=environment)
    assert done.stdout == seen + "\n", done.stderr


def test_held_out_problems_that_are_trained_on_are_counted(tmp_path, capsys):
    """Makes impossible: a score of problems that the run trained on, taken for a held-out one."""
    for name, says in (("train", "4 held out, 4 of them trained on too"), ("test", "4 held out\n")):
        train.set_up(config(tmp_path, name=name, eval_data=[few_problems(name, 4)]), Accelerator(cpu=True))
        assert says in capsys.readouterr().out
