"""trainer/command_line.py and the rules of trainer/settings.py: flags, recipes, suggestions."""

import contextlib
import json
from dataclasses import fields
from itertools import chain

import pytest
from helpers import TINY

import brorl
from trainer.command_line import read_settings
from trainer.exits import Refusal
from trainer.settings import GIVEN, Config, rule


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


@pytest.mark.parametrize("recipe, n, b, rate", [
    ("brorl", 512, 128, 2.83e-6), ("brorl", 16, 512, 1e-6), ("brorl", 8, 4, 1e-6), ("prorl", 16, 64, 1e-6),
    ("prorl", 16, 4096, 2.83e-6),
])  # fmt: skip
def test_a_small_step_keeps_the_rate_of_prorls(recipe, n, b, rate):
    """Makes impossible: 6e-8 for 32 samples per step, which learns nothing."""
    size = ["--rollouts_per_prompt", str(n), "--prompts_per_step", str(b), "--max_response_tokens", "64"]
    assert read("--model", "x/y", "--recipe", recipe, *size)[0].learning_rate == pytest.approx(rate, rel=1e-3)


def test_the_learning_rate_follows_the_batch_and_hours_replace_steps():
    """Makes impossible: another rule than section 4.2.1's sqrt; a rate that the user set and that is changed; a run of
    eight hours that ends after the recipe's steps.
    """
    base, _ = read()
    double, origins = read("--prompts_per_step", str(base.prompts_per_step * 4))
    assert double.learning_rate == pytest.approx(base.learning_rate * 2) and "sqrt" in origins["learning_rate"]
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


@pytest.mark.parametrize("argv, named", [
    (["--rollouts_per_prompt", "1"], "--rollouts_per_prompt"), (["--eval_top_p", "5"], "--eval_top_p"),
    (["--objective", "nope"], "gspo"),
    (["--learning_rate", "-1e-5"], "--learning_rate"), (["--learning_rate", "nan"], "--learning_rate"),
    (["--max_steps", "0"], "--max_steps"), (["--max_steps", "ten"], "^--max_steps: .*ten"),
    (["--max_steps"], "^--max_steps:"), (["--recipe", "k4"], "^--recipe: .*k4"),
    (["--data", "x.jsonl"], "--eval_data"), (["--eval_only", "--resume"], "--eval_only"),
    (["--data", "x.jsonl", "--eval_data", "y.jsonl"], "--data x.jsonl.*\n--eval_data y.jsonl"),
    (["--rewards", "a.py,b.py"], "--rewards a.py,b.py"), (["--eval_data", "x.jsonl:0", "--data", "x"], "--eval_data"),
    (["--resume", "--name", "nothing"], "--resume"), (["--resume", "mine"], "--resume --name mine"),
    (["--eval_only", "mine"], "--eval_only takes no value"), (["--system_prompt", "\udcff"], "--system_prompt"),
], ids=lambda x: " ".join(x) if isinstance(x, list) else "")  # fmt: skip
def test_what_cannot_work_is_refused(argv, named):
    """Makes impossible: a run that dies later, or misleads, for a reason that the command line shows."""
    with pytest.raises(Refusal, match=named):
        read(*argv)


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "..", "a\\b", "a\udcff"])
def test_a_name_is_one_folder(tmp_path, name):
    """Makes impossible: a run that writes outside --output_dir, or reads the settings of a run there."""
    inside = tmp_path / "runs"
    for resume in ([], ["--resume"]):
        with pytest.raises(Refusal, match=r"^--name .*--output_dir") as refusal:
            read("--output_dir", str(inside), "--name", name, *resume)
        assert str(refusal.value).isprintable()
    assert read("--name", "héllo 2.0")[0].name == "héllo 2.0"


@pytest.mark.parametrize("flag, meant", [
    ("--beta", "--kl_coef"), ("--max-new-tokens", "--max_response_tokens"), ("--eval_evry", "--eval_every"),
    ("--rollout", "--rollouts_per_prompt"), ("--dataset_name", "--data"), ("--xyzzy", "--help"),
])  # fmt: skip
def test_unknown_settings_get_the_right_name(flag, meant):
    """Makes impossible: a mistyped setting that is ignored, or a field's synonym without a suggestion."""
    assert meant == "--help" or meant.removeprefix("--") in {f.name for f in fields(Config)}
    with pytest.raises(Refusal, match=meant):
        read(flag, "4")


def test_help_has_a_line_for_every_setting(capsys):
    """Makes impossible: a setting without help; a line that a terminal of 80 columns breaks; a group or synonym of a
    setting that does not exist.
    """
    with pytest.raises(SystemExit):
        read("--help")
    out, names = capsys.readouterr().out, {f.name for f in fields(Config)}
    assert all(f"\n  --{f.name}" in out and f.metadata["help"] in " ".join(out.split()) for f in fields(Config))
    assert max(map(len, out.splitlines())) <= 80
    assert not names & set(chain(*rule("also").values()))


@pytest.mark.parametrize("given", [[], ["rollouts_per_prompt"], ["prompts_per_step", "max_response_tokens"]])
def test_a_model_of_ones_own_names_the_size_of_a_step(tmp_path, given):
    """Makes impossible: a newcomer's first command that starts 65,536 responses of 16,384 tokens on a laptop."""
    data = str(TINY / "train.jsonl")
    base = ["--model", str(tmp_path), "--data", data, "--eval_data", data]
    flags = [word for name in given for word in (f"--{name}", "8")]
    with pytest.raises(Refusal, match=r"16,384|up to 8 tokens") as refusal:
        read(*base, *flags)
    assert all((f"--{name} " in str(refusal.value)) == (name not in given) for name in rule("size"))
    words = str(refusal.value).partition("for example ")[2].partition(". ")[0].split()
    assert read(*base, *flags, *words)[0].rollouts_per_prompt in (8, 16)  # the example can be typed
    assert read(*base, "--recipe", "brorl")[0].rollouts_per_prompt == 512
    assert read(*base, "--eval_only") and read_settings("", base, any_size=True)
    size = {name: {"value": 8, "source": "as in the run of prorl"} for name in rule("size")}
    (tmp_path / "recipe.json").write_text(json.dumps({"prorl": size}))  # the model of a run with --recipe prorl
    assert read(*base, "--recipe", "prorl")[0].rollouts_per_prompt == 8
    with pytest.raises(Refusal, match="name the size of a step"):
        read(*base, *flags)
    (tmp_path / "recipe.json").write_text(json.dumps({"brorl": size}))
    assert read(*base)[0].rollouts_per_prompt == 8


@pytest.mark.parametrize("gpu, package", [(True, True), (True, False), (False, True)])
def test_the_default_engine_follows_the_machine(monkeypatch, gpu, package):
    """Makes impossible: a laptop's first command that asks for vLLM, or a GPU that is left to the slow engine."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("trainer.command_line.have_vllm", lambda: package)
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
