"""trainer/command_line.py and the rules of trainer/settings.py: flags, suggestions, --help."""

from dataclasses import fields
from itertools import chain

import pytest

from trainer.command_line import read_settings
from trainer.exits import Refusal
from trainer.settings import Config, rule


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
    assert not names & set(chain(*rule("also").values()))
