"""trainer/command_line.py and the rules of trainer/settings.py: flags, suggestions, --help, what is refused."""

import json
from dataclasses import fields
from itertools import chain

import pytest
from helpers import TINY

from trainer.command_line import read_settings
from trainer.process import Refusal
from trainer.settings import Config, settings_with


def read(*argv: str):
    return read_settings("", list(argv))


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
    assert not names & set(chain(*settings_with("also").values()))


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


@pytest.mark.parametrize("given", [[], ["rollouts_per_prompt"], ["prompts_per_step", "max_response_tokens"]])
def test_a_model_of_ones_own_names_the_size_of_a_step(tmp_path, given):
    """Makes impossible: a newcomer's first command that starts 65,536 responses of 16,384 tokens on a laptop."""
    data = str(TINY / "train.jsonl")
    base = ["--model", str(tmp_path), "--data", data, "--eval_data", data]
    flags = [word for name in given for word in (f"--{name}", "8")]
    with pytest.raises(Refusal, match=r"16,384|up to 8 tokens") as refusal:
        read(*base, *flags)
    assert all((f"--{name} " in str(refusal.value)) == (name not in given) for name in settings_with("size"))
    words = str(refusal.value).partition("for example ")[2].partition(". ")[0].split()
    assert read(*base, *flags, *words)[0].rollouts_per_prompt in (8, 16)  # the example can be typed
    assert read(*base, "--recipe", "brorl")[0].rollouts_per_prompt == 512
    assert read(*base, "--eval_only") and read_settings("", base, any_size=True)
    size = {name: {"value": 8, "source": "as in the run of prorl"} for name in settings_with("size")}
    (tmp_path / "recipe.json").write_text(json.dumps({"prorl": size}))  # the model of a run with --recipe prorl
    assert read(*base, "--recipe", "prorl")[0].rollouts_per_prompt == 8
    with pytest.raises(Refusal, match="name the size of a step"):
        read(*base, *flags)
    (tmp_path / "recipe.json").write_text(json.dumps({"brorl": size}))
    assert read(*base)[0].rollouts_per_prompt == 8
