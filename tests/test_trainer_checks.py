"""Where each setting comes from, and which are refused before a run starts."""

import json
import math
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from helpers import TINY, config, lines, run, start

import brorl
import train
from trainer.checks import TRACKERS, check, default_name, resolve, source_names
from trainer.settings import Config

# ----------------------------------------------------------------------------------------- settings and their sources


def test_settings_come_from_flag_then_model_then_recipe(tmp_path):
    """Makes impossible: a flag overruled by a recipe, or a model's measured values ignored."""
    c = Config(model=str(tmp_path), clip_low=0.1)
    measured = {"learning_rate": {"value": 3e-5, "source": "measured"}, "clip_low": {"value": 0.3, "source": "no"}}
    (tmp_path / "recipe.json").write_text(json.dumps({"brorl": measured}))
    sources = resolve(c)
    assert (c.clip_low, c.learning_rate, c.rollouts_per_prompt) == (0.1, 3e-5, 512)
    assert sources["learning_rate"] == "recipe.json: measured" and "clip_low" not in sources
    assert sources["rollouts_per_prompt"].startswith("--recipe brorl: section 4.2.1")
    assert all(getattr(c, name) is not None for name in brorl.BRORL)


def test_a_changed_batch_takes_its_learning_rate_along():
    """Makes impossible: N halved and the rate of the whole batch kept, or a rate given by hand scaled."""
    c = Config(model="nowhere", rollouts_per_prompt=128)
    sources = resolve(c)
    assert c.learning_rate == pytest.approx(brorl.BRORL["learning_rate"].value / 2, rel=1e-12)
    assert sources["learning_rate"].startswith("2.82843e-06 x sqrt(16,384 / 65,536 samples), section 4.2.1")
    resolve(c := Config(model="nowhere", rollouts_per_prompt=128, learning_rate=1e-5))
    assert c.learning_rate == 1e-5
    resolve(c := Config(model="nowhere"))
    assert c.learning_rate == brorl.BRORL["learning_rate"].value


def test_another_budget_replaces_the_recipes_steps():
    """Makes impossible: --max_hours 100 ended by the recipe's 191 steps."""
    for changes in ({"max_hours": 100.0}, {"max_samples": 10**9}):
        resolve(c := Config(model="nowhere", **changes))
        assert c.max_steps is None
    resolve(c := Config(model="nowhere", max_hours=1.0, max_steps=7))
    assert c.max_steps == 7


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"brorl": {"clip_low": 0.1}}', '{"brorl": [1]}', '{"brorl": {"clip_low": {}}}']
)
def test_a_broken_recipe_file_is_named(tmp_path, text):
    """Makes impossible: a traceback, or the file ignored."""
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(ValueError, match=r"recipe\.json is not of the form"):
        resolve(Config(model=str(tmp_path)))


def test_a_typing_error_in_a_models_recipe_is_named(tmp_path):
    """Makes impossible: a misspelt measured value silently replaced by the recipe's."""
    (tmp_path / "recipe.json").write_text('{"brorl": {"learning_rte": {"value": 1, "source": "x"}}}')
    with pytest.raises(ValueError, match="unknown settings \\['learning_rte'\\]"):
        resolve(Config(model=str(tmp_path)))
    (tmp_path / "recipe.json").write_text('{"brorl": {"learning_rate": {"value": "1e-4", "source": "x"}}}')
    with pytest.raises(ValueError, match="\\['learning_rate'\\] must be of the same type"):
        resolve(Config(model=str(tmp_path)))


@pytest.fixture
def bare(tmp_path) -> str:
    """The tiny policy without its recipe.json, as a model from elsewhere is: 1,024 positions."""
    shutil.copytree(TINY / "policy", tmp_path / "bare", ignore=shutil.ignore_patterns("recipe.json"))
    return str(tmp_path / "bare")


def test_an_evaluation_is_appendix_ds_whatever_the_recipe(bare):
    """Makes impossible: two recipes scored by two protocols, or an evaluation as long as the training happens to be."""
    for recipe in ("brorl", "prorl"):
        for length in (None, 12, 16384):
            resolve(c := Config(model=bare, recipe=recipe, max_response_tokens=length))
            protocol = c.eval_samples, c.eval_temperature, c.eval_top_p, c.eval_max_response_tokens
            assert protocol == (16, 0.6, 0.95, 32768)
            assert c.max_response_tokens == (length or 16384)


def test_the_engine_is_vllm_only_where_it_and_a_gpu_are(monkeypatch):
    """Makes impossible: a laptop's default run that asks for vLLM, or a GPU that is left to plain torch."""
    for gpu, installed, engine in (
        (False, False, "torch"),
        (False, True, "torch"),
        (True, False, "torch"),
        (True, True, "vllm"),
    ):
        monkeypatch.setattr("trainer.checks.have_vllm", lambda installed=installed: installed)
        resolve(c := Config(), on_gpu=gpu)
        assert c.engine == engine
        resolve(c := Config(engine="torch"), on_gpu=gpu)
        assert c.engine == "torch"


def test_a_resumed_run_keeps_what_was_not_given_and_refuses_what_differs(copied):
    """Makes impossible: a run resumed with the recipe's settings in place of its own, or said to be as given.

    A flag given at its default value is not one that was not given.
    """
    path = copied / "run/config.json"
    began = json.loads(path.read_text())
    path.write_text(json.dumps(began | {"max_grad_norm": 0.5}))
    again = {"resume": True, "name": "run", "output_dir": str(copied)}
    sources = resolve(c := Config(**again))
    assert c.max_grad_norm == 0.5 and c.rollouts_per_prompt == 8
    assert {sources[name] for name in ("rollouts_per_prompt", "learning_rate", "clip_low", "max_steps")} == {
        "as the run began"
    }
    assert "max_steps" not in resolve(Config(**again, max_steps=9)) and c.max_steps == 2
    with pytest.raises(ValueError, match=r"max_grad_norm: 0\.5 -> 1\.0"):
        train.set_up(Config(**again, max_grad_norm=1.0), Accelerator(cpu=True), given={*again, "max_grad_norm"})


def test_resuming_needs_no_setting_but_the_name(copied, capsys):
    """Makes impossible: a run resumed with the recipe's settings, in place of its own, or a screen that says so.

    Its config.json is one from before evaluations had a length of their own: it says null where there is a number now.
    """
    path = copied / "run/config.json"
    settings = json.loads(path.read_text())
    assert settings["eval_max_response_tokens"] == settings["max_response_tokens"] == 12
    path.write_text(json.dumps(settings | {"eval_max_response_tokens": None}))
    start(Config(resume=True, name="run", output_dir=str(copied), max_steps=3))
    assert [m["step"] for m in lines(copied / "run/metrics.jsonl")] == [0, 1, 2, 3]
    assert json.loads(path.read_text())["rollouts_per_prompt"] == 8
    told = capsys.readouterr().out
    said = {
        line.split()[0]: line.split(None, 2)[2]
        for line in told.splitlines()
        if line.startswith("    ") and "  " in line.strip()
    }
    assert said["rollouts_per_prompt"] == said["clip_low"] == "as the run began" and said["max_steps"] == "as given"


# ------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (["hf:aime24", "hf:aime25=/data/x", "/a/test.jsonl"], ["aime24", "aime25", "test"]),
        (["gym:chain_sum", "gym:number_sorting*20"], ["gym:chain_sum", "gym:number_sorting"]),
        (["/a/test.jsonl", "/b/test.jsonl", "/b/new.jsonl"], ["/a/test.jsonl", "/b/test.jsonl", "new"]),
        (["hf:math", "/a/math.jsonl"], ["hf:math", "/a/math.jsonl"]),
        (["gym:chain_sum*5", "gym:chain_sum*9"], ["gym:chain_sum*5", "gym:chain_sum*9"]),
    ],
)
def test_sources_have_short_and_distinct_names(specs, names):
    """Makes impossible: two benchmarks in one row because their files have the same name."""
    assert source_names(specs) == names


@pytest.mark.parametrize(
    ("model", "run_of_it", "evaluation"),
    [
        (None, "brorl-seed0", "eval-policy"),
        ("runs/a/model", "brorl-a-seed0", "eval-a"),
        ("nvidia/Nemo-1.5B", "brorl-Nemo-1.5B-seed0", "eval-Nemo-1.5B"),
        ("m/x/", "brorl-x-seed0", "eval-x"),
    ],
)
def test_a_run_is_named_after_its_recipe_model_and_seed(model, run_of_it, evaluation):
    """Makes impossible: the second natural command, another model's, colliding with the demo's run."""
    resolve(c := Config(model=model, eval_only=True))
    assert c.name == evaluation
    assert default_name(Config(model=model)) == run_of_it
    assert default_name(Config(model=model, recipe="prorl", seed=3)) == run_of_it.replace("brorl", "prorl")[:-1] + "3"
    resolve(c := Config(model=model, name="mine"))
    assert c.name == "mine"


# ----------------------------------------------------------------------------------------------------------- refusals


def told(**changes) -> str:
    """What is said of a small run with these settings."""
    c = config("runs", **changes)
    with pytest.raises(ValueError) as refused:
        resolve(c)
        check(c, 4096, Accelerator(cpu=True))
    return str(refused.value)


WRONG: dict[str, tuple] = {
    **dict.fromkeys(
        ["prompts_per_step", "updates_per_step", "max_response_tokens", "eval_samples", "save_every"], (0,)
    ),
    **dict.fromkeys(
        ["keep_checkpoints", "max_tokens_per_micro_batch", "verify_workers", "max_steps", "max_samples"], (0,)
    ),
    **dict.fromkeys(["eval_max_response_tokens", "max_skipped_updates", "clip_high", "engine_memory_gib"], (0,)),
    **dict.fromkeys(
        ["max_engine_difference", "max_engine_kl", "max_hours", "verify_timeout", "save_minutes"], (0.0, -1.0)
    ),
    **dict.fromkeys(["examples", "warmup_updates", "eval_every", "reference_reset_steps", "samples_per_step"], (-1,)),
    **dict.fromkeys(["kl_coef", "weight_decay", "max_grad_norm", "eval_temperature", "seed", "log_noise"], (-1,)),
    **dict.fromkeys(["clip_low", "gpu_memory_utilization", "round_confidence"], (0.0, 1.0)),
    **dict.fromkeys(["recipe", "kl", "engine", "mini_batches", "share_prefix", "advantage"], ("maybe",)),
    "rollouts_per_prompt": (1, -4),
    "learning_rate": (0.0, math.inf),
    "temperature": (0.0, math.nan),
    "top_p": (0.9,),
    "eval_top_p": (0.0, 1.1),
    "tis_cap": (0.5,),
    "refill": (0.5,),
    "spike": (0.5,),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_has_one_sentence(name):
    """Makes impossible: a run that dies at step 900 for what step 0 could have known; a second, senseless sentence."""
    for value in WRONG[name]:
        said = told(**{name: value})
        assert said.startswith(f"--{name} {value}: ") and "\n" not in said


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"prompts_per_step": 5000}, "--prompts_per_step"),
        ({"updates_per_step": 33}, "--rollouts_per_prompt --prompts_per_step --updates_per_step"),
        ({"updates_per_step": 5, "mini_batches": "prompts"}, "--mini_batches --updates_per_step"),
        ({"eval_temperature": 0.0}, "--eval_temperature --eval_samples"),
        ({"max_num_seqs": 256}, "--max_num_seqs --engine"),
        ({"engine_dtype": "bfloat16"}, "--engine_dtype --engine"),
        ({"log_noise": 1, "rollouts_per_prompt": 3}, "--log_noise"),
        ({"log_noise": 1, "advantage": "group_mean"}, "--log_noise --advantage"),
        ({"resume": True, "overwrite": True}, "--resume --overwrite"),
        ({"eval_data": ["hf:math:0.7", "hf:aime24:0.3"]}, "--eval_data"),
        ({"eval_data": None}, "--data --eval_data"),
    ],
)
def test_settings_that_contradict_each_other_are_named(changes, flags):
    """Makes impossible: two settings that cannot both hold, found at step 900 or told without their names."""
    said = told(**changes)
    assert all(flag in said for flag in flags.split()) and "\n" not in said


def test_all_that_is_wrong_is_told_at_once():
    """Makes impossible: a person who learns of five mistakes in five starts."""
    said = told(rollouts_per_prompt=-4, clip_low=2.0, prompts_per_step=0).split("\n")
    assert {line.split()[0] for line in said} == {"--rollouts_per_prompt", "--clip_low", "--prompts_per_step"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rollouts_per_prompt": -4}, "--rollouts_per_prompt -4"),
        ({"max_response_tokens": 2000}, "train.jsonl, problem 1: .* exceed the model's 1024 positions"),
        (
            {"eval_max_response_tokens": 2000},
            r"problem 1: .* \+ --eval_max_response_tokens 2000 exceed the model's 1024",
        ),
        ({"name": "../elsewhere"}, "must be the plain name of a folder"),
        ({"name": ".."}, "must be the plain name of a folder"),
        ({"model": "/nowhere"}, "--model /nowhere is no folder here"),
        ({"model": "."}, "has no config.json"),
        ({"output_dir": __file__}, "cannot be written to"),
        ({"resume": True}, "there is no run at"),
        ({"data": ["nowhere.jsonl"]}, "no problems at .*nowhere.jsonl"),
        ({"eval_data": [str(TINY / "test.jsonl")] * 2}, r"test.jsonl twice: name each source once"),
        ({"report_to": "tensorbored"}, "--report_to tensorbored: choose one of tensorboard, wandb"),
        ({"report_to": "wandb"}, "--report_to wandb: the package is not installed: pip install wandb"),
    ],
)
def test_contradictory_settings_are_refused_at_the_start(tmp_path, monkeypatch, changes, says):
    """Makes impossible: a refusal that is not heard, or one that leaves a folder behind."""
    monkeypatch.setitem(TRACKERS, "wandb", lambda: False)
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        run(tmp_path, **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "precision", "fsdp", "says"),
    [
        ("DEEPSPEED", "no", {}, "Accelerate is set to DEEPSPEED"),
        ("MULTI_GPU", "fp16", {}, "mixed precision fp16: .* start it with --mixed_precision bf16"),
        ("FSDP", "bf16", {"fsdp_version": 1}, "write fsdp_version: 2"),
        ("FSDP", "bf16", {"cpu_ram_efficient_loading": True}, "fsdp_cpu_ram_efficient_loading: false"),
        ("FSDP", "bf16", {}, None),
        ("MULTI_GPU", "bf16", {}, None),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(kind, precision, fsdp, says):
    """Makes impossible: weights on one process only, losses without their scale, or a sharding nobody tested."""
    plugin = SimpleNamespace(fsdp_version=2, cpu_ram_efficient_loading=False)
    plugin.__dict__.update(fsdp)
    accelerator = SimpleNamespace(
        num_processes=2, distributed_type=DistributedType(kind), device=torch.device("cuda"),
        mixed_precision=precision, is_fsdp2=plugin.fsdp_version == 2, gradient_accumulation_steps=1,
        state=SimpleNamespace(fsdp_plugin=plugin),
    )  # fmt: skip
    c = Config()
    resolve(c)
    with pytest.raises(ValueError, match=says) if says else nullcontext():
        check(c, 4096, accelerator)
