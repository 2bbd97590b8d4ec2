"""The command line: its flags, their mistakes, and what --help says."""

import dataclasses
import sys

import pytest

import brorl
from trainer.settings import Config, command_line, shown


def typed(monkeypatch, *arguments):
    """The command line as train.py reads it."""
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    return command_line("about")


def test_an_unknown_flag_is_named_with_its_neighbour(monkeypatch, capsys):
    """Makes impossible: a misspelt flag ignored, or answered by a traceback."""
    hints = {
        "--learning_rte=1": "did you mean --learning_rate?",
        "--lr=1": "did you mean --learning_rate?",
        "--rollouts=16": "did you mean --rollouts_per_prompt?",
        "--xyz": "--help lists the settings",
    }
    for flag, hint in hints.items():
        with pytest.raises(SystemExit) as left:
            typed(monkeypatch, flag)
        assert left.value.code == 2 and capsys.readouterr().err == f"train.py: unknown {flag}: {hint}\n"


def test_what_was_given_is_known_in_every_spelling(monkeypatch):
    """Makes impossible: --resume that takes a given setting for one that was not; a flag without its value lost."""
    c, given = typed(monkeypatch, "--max_steps", "7", "--clip-low=0.1", "--eval_only", "--data", "a", "b:0.5")
    assert given == {"max_steps", "clip_low", "eval_only", "data"}
    assert (c.max_steps, c.clip_low, c.eval_only, c.data) == (7, 0.1, True, ["a", "b:0.5"])


def test_help_says_what_the_recipes_say(monkeypatch, capsys):
    """Makes impossible: "(default: None)" for N, B and the learning rate; a setting without documentation."""
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        typed(monkeypatch, "--help")
    said = capsys.readouterr().out
    assert "None)" not in said
    documented = {text.split()[0].strip(","): " ".join(text.split()) for text in said.split("\n  --")[1:]}
    assert {f.name for f in dataclasses.fields(Config)} <= documented.keys()
    assert "(default: brorl 512, prorl 16)" in documented["rollouts_per_prompt"]
    for name, setting in brorl.BRORL.items():
        if getattr(Config(), name) is None:
            assert shown(setting.value) in documented[name].rpartition("(default: ")[2], name
