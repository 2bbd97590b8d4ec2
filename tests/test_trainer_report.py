"""trainer/report.py: the first lines of a run, a row of scores, curves."""

from helpers import set_up

import brorl
from trainer.report import Console, draw_curves
from trainer.settings import GIVEN


def test_the_introduction_names_every_setting_of_the_recipe(tmp_path, capsys):
    """Makes impossible: a setting whose value or source a user cannot see."""
    config, _, _ = set_up(tmp_path)
    said = capsys.readouterr().out
    assert "B x N = 4 x 8" in said and "256 to train on, 16 held out" in said
    rows = {line.split()[0]: line.split(maxsplit=2) for line in said.splitlines() if line.startswith("    ")}
    assert rows.keys() == {name for name in brorl.BRORL if getattr(config, name, None) is not None}
    assert rows["rollouts_per_prompt"][1:] == ["8", GIVEN] and rows["clip_high"][2].startswith("brorl:")


def test_curves_are_drawn_from_a_run_without_updates(tmp_path, monkeypatch):
    """Makes impossible: a crash at the end of a run that had no informative prompt; axes around nothing."""
    monkeypatch.setattr("matplotlib.pyplot.close", lambda figure: drawn.extend(axis.axison for axis in figure.axes))
    drawn: list[bool] = []
    rows = [{"step": i, "samples": 8 * i, "reward": 0.0, "pass_rate": 0.0} for i in range(1, 3)]
    rows = [{"step": 0, "samples": 0, "eval/pass@1": 0.1, "eval/pass@1_se": 0.1}, *rows]
    draw_curves(rows, tmp_path / "curves.png", "a run")
    assert (tmp_path / "curves.png").stat().st_size > 10_000 and drawn == [True] * 2 + [False] * 4


def test_a_source_with_one_problem_has_no_standard_error(capsys):
    """Makes impossible: "± 0.000" for one problem, as if its score were exact."""
    scores = {"pass@1": 0.5, "pass@4": 0.75, "response_tokens": 7.0, "truncated": 0.0}
    console = Console(True)
    console.say_scores("one", scores)
    console.say_scores("many", scores | {"pass@1_se": 0.1})
    _, one, many = capsys.readouterr().out.splitlines()
    assert "0.500 one problem " in one and "0.500 ± 0.100 " in many and len(one) == len(many)
