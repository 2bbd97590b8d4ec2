"""trainer/defaults.py: recipes, recipe.json, the scaled learning rate, names of runs."""

import contextlib
import json

import pytest
from helpers import TINY

import brorl
from trainer.command_line import read_settings
from trainer.process import Refusal
from trainer.settings import GIVEN


def read(*argv: str):
    return read_settings("", list(argv))


def test_the_default_is_the_tiny_policy_with_its_recipe():
    """Makes impossible: a default command that trains with the paper's 16k tokens, or on other problems."""
    config, origins = read()
    assert config.model == str(TINY / "policy") and config.data == [str(TINY / "train.jsonl")]
    assert config.rollouts_per_prompt == 512 and config.max_response_tokens == 12
    assert config.name == "brorl-seed0" and config.engine == "torch"
    assert origins["max_response_tokens"].startswith("recipe.json") and "section" in origins["rollouts_per_prompt"]


@pytest.mark.parametrize("recipe", brorl.RECIPES)
def test_a_recipe_sets_what_the_command_line_leaves_open(recipe, tmp_path):
    """Makes impossible: a recipe that is only a name; a flag that a recipe overrides."""
    model = tmp_path / "mine"
    model.mkdir()
    config, origins = read("--recipe", recipe, "--model", str(model), "--temperature", "0.5")
    want = {name: x.value for name, x in brorl.RECIPES[recipe].items()} | {"temperature": 0.5}
    assert {name: getattr(config, name) for name in want} == want
    assert origins["temperature"] == GIVEN and origins["max_steps"].startswith(recipe)
    assert config.name == f"{recipe}-mine-seed0"


@pytest.mark.parametrize("recipe, n, b, own, flags, rate", [
    ("brorl", 16, 64, None, [], 1e-6), ("brorl", 512, 128, None, [], 2.83e-6), ("prorl", 512, 128, None, [], 2.83e-6),
    ("brorl", 16, 64, 1e-5, [], 1e-5), ("brorl", 16, 64, 1e-5, ["--prompts_per_step", "8"], 1e-5),
    ("brorl", 16, 64, 1e-5, ["--prompts_per_step", "256"], 2e-5),
    ("brorl", 16, 4096, 4e-5, ["--prompts_per_step", "1024"], 2e-5),
    ("brorl", 16, 2048, 4e-5, ["--prompts_per_step", "8"], 2e-5),
])  # fmt: skip
def test_a_rate_belongs_to_the_step_that_is_written_beside_it(tmp_path, recipe, n, b, own, flags, rate):
    """Makes impossible: the recipe's rate for 65,536 samples in a recipe.json of 1,024 samples that has no rate."""
    values = {"rollouts_per_prompt": n, "prompts_per_step": b, "learning_rate": own, "max_response_tokens": 64}
    settings = {name: {"value": x, "source": ""} for name, x in values.items() if x is not None}
    (tmp_path / "recipe.json").write_text(json.dumps({recipe: settings}))
    config, _ = read("--model", str(tmp_path), "--recipe", recipe, *flags)
    assert config.learning_rate == pytest.approx(rate, rel=1e-3)


def test_the_learning_rate_follows_the_batch_and_hours_replace_steps():
    """Makes impossible: another rule than section 4.2.1's sqrt; a rate that the user set and that is changed; a run of
    eight hours that ends after the recipe's steps.
    """
    base, _ = read()
    double, origins = read("--prompts_per_step", str(base.prompts_per_step * 4))
    assert double.learning_rate == pytest.approx(base.learning_rate * 2)
    assert origins["learning_rate"].startswith("for 65,536 samples per step: sqrt(65,536 / 16,384), section 4.2.1")
    assert read("--prompts_per_step", "8", "--learning_rate", "0.25")[0].learning_rate == 0.25
    assert read("--max_hours", "8")[0].max_steps is read("--max_samples", "8")[0].max_steps is None
    assert read("--max_hours", "8", "--max_steps", "5")[0].max_steps == 5


@pytest.mark.parametrize("broken", [
    "{", '{"brorl": {"temperature": 3}}', '{"brorl": {"nonsense": {"value": 1, "source": ""}}}',
    '{"brorl": {"temperature": {"value": "x", "source": ""}}}',
])  # fmt: skip
def test_a_broken_recipe_file_is_refused(tmp_path, broken):
    """Makes impossible: a recipe.json that is ignored, or fails with a traceback."""
    (tmp_path / "recipe.json").write_text(broken)
    with pytest.raises(Refusal, match=r"recipe\.json"):
        read("--model", str(tmp_path))


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "..", "a\\b", "a\udcff"])
def test_a_name_is_one_folder(tmp_path, name):
    """Makes impossible: a run that writes outside --output_dir, or reads the settings of a run there."""
    inside = tmp_path / "runs"
    for resume in ([], ["--resume"]):
        with pytest.raises(Refusal, match=r"^--name .*--output_dir") as refusal:
            read("--output_dir", str(inside), "--name", name, *resume)
        assert str(refusal.value).isprintable()
    assert read("--name", "héllo 2.0")[0].name == "héllo 2.0"


@pytest.mark.parametrize("gpu, package", [(True, True), (True, False), (False, True)])
def test_the_default_engine_follows_the_machine(monkeypatch, gpu, package):
    """Makes impossible: a laptop's first command that asks for vLLM, or a GPU that is left to the slow engine."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    for module in ("defaults", "command_line"):
        monkeypatch.setattr(f"trainer.{module}.have_vllm", lambda: package)
    assert read()[0].engine == ("vllm" if gpu and package else "torch")
    assert read("--engine", "torch")[0].engine == "torch"
    with contextlib.nullcontext() if package else pytest.raises(Refusal, match="requirements-gpu"):
        read("--engine", "vllm")


@pytest.mark.parametrize("argv, name", [
    (["--seed", "3"], "brorl-seed3"), (["--eval_only"], "eval-policy"), (["--recipe", "prorl"], "prorl-seed0"),
    (["--model", "org/Qwen-1B", "--recipe=brorl"], "brorl-Qwen-1B-seed0"),
    (["--model", "runs/first/model/", "--recipe=brorl"], "brorl-first-seed0"),
    (["--eval_only", "--model", "runs/first/model"], "eval-first"), (["--name", "mine"], "mine"),
])  # fmt: skip
def test_a_run_is_named_after_its_recipe_model_and_seed(argv, name):
    """Makes impossible: two different commands that want the same folder."""
    assert read(*argv)[0].name == name
