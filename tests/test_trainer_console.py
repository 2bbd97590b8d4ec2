"""trainer/console.py: the first lines of a run, its last sentence."""

from helpers import set_up, settings

import brorl
from trainer.console import compare_with_start
from trainer.settings import GIVEN


def test_the_introduction_shows_what_the_user_set(tmp_path, capsys):
    """Makes impossible: a setting of the user that nobody sees, or a learning rate without its source."""
    _, origins = settings(tmp_path)
    config, _, _ = set_up(tmp_path)
    said = capsys.readouterr().out
    assert "B x N = 4 x 8" in said and "256 to train on, 16 held out" in said
    rows = {line.split()[0]: line.split(maxsplit=2) for line in said.splitlines() if line.startswith("    ")}
    set_by_user = {name for name, origin in origins.items() if origin == GIVEN}
    assert rows.keys() == set_by_user | {"learning_rate"} and rows["rollouts_per_prompt"][1:] == ["8", GIVEN]
    used = {name for name in brorl.BRORL if getattr(config, name, None) is not None}
    assert f"{len(used - set_by_user - {'learning_rate'})} more as in the recipe" in said
    assert max(map(len, said.splitlines())) <= 80


def test_the_last_sentence_compares_the_first_score_with_the_last():
    """Makes impossible: a run that ends without a word on whether it learned; noise that is called a change."""

    def said(*scores):
        return compare_with_start([{"step": 1}, *({"eval/pass@1": x, "eval/pass@1_se": 0.01} for x in scores)])

    assert said(0.2, 0.5, 0.24) == "held-out pass@1 rose from 0.200 to 0.240, by more than 3 standard errors (0.030)"
    assert said(0.2, 0.18).startswith("held-out pass@1 fell from 0.200 to 0.180, by not more") and said(0.2) == ""
    assert said(0.2, 0.2) == "held-out pass@1 is 0.200, as at the start"
    assert compare_with_start([{"eval/pass@1": 0.0}, {"eval/pass@1": 1.0}]) == ""  # one problem has no standard error
