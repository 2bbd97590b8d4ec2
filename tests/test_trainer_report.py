"""trainer/report.py: the first lines of a run, a row of scores, curves."""

from helpers import set_up, settings
from matplotlib.figure import Figure

import brorl
from trainer.report import compare_with_start, draw_curves
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


def test_curves_are_drawn_from_a_run_without_updates(tmp_path, monkeypatch):
    """Makes impossible: a crash at the end of a run that had no informative prompt; axes around nothing."""
    drawn, savefig = [], Figure.savefig

    def save(figure, path):
        drawn.extend(axis.axison for axis in figure.axes)
        savefig(figure, path)

    monkeypatch.setattr(Figure, "savefig", save)
    rows = [{"step": i, "samples": 8 * i, "reward": 0.0, "pass_rate": 0.0} for i in range(1, 3)]
    rows = [{"step": 0, "samples": 0, "eval/pass@1": 0.1, "eval/pass@1_se": 0.1}, *rows]
    draw_curves(rows, tmp_path / "curves.png", "a run")
    assert (tmp_path / "curves.png").stat().st_size > 10_000 and drawn == [True] * 2 + [False] * 4


def test_the_last_sentence_compares_the_first_score_with_the_last():
    """Makes impossible: a run that ends without a word on whether it learned; noise that is called a change."""

    def said(*scores):
        return compare_with_start([{"step": 1}, *({"eval/pass@1": x, "eval/pass@1_se": 0.01} for x in scores)])

    assert said(0.2, 0.5, 0.24) == "held-out pass@1 rose from 0.200 to 0.240, by more than 3 standard errors (0.030)"
    assert said(0.2, 0.18).startswith("held-out pass@1 fell from 0.200 to 0.180, by not more") and said(0.2) == ""
    assert said(0.2, 0.2) == "held-out pass@1 is 0.200, as at the start"
    assert compare_with_start([{"eval/pass@1": 0.0}, {"eval/pass@1": 1.0}]) == ""  # one problem has no standard error
