"""trainer/report.py: the first lines of a run, scores, curves."""

import math

import pytest
import torch
from helpers import set_up

import brorl
from trainer.metrics import scores_of
from trainer.report import draw_curves
from trainer.settings import GIVEN


def test_the_introduction_names_every_setting_of_the_recipe(tmp_path, capsys):
    """Makes impossible: a setting whose value or source a user cannot see."""
    config, _, _ = set_up(tmp_path)
    said = capsys.readouterr().out
    assert "B x N = 4 x 8" in said and "256 to train on, 16 held out" in said
    rows = {line.split()[0]: line.split(maxsplit=2) for line in said.splitlines() if line.startswith("    ")}
    assert rows.keys() == {name for name in brorl.BRORL if getattr(config, name, None) is not None}
    assert rows["rollouts_per_prompt"][1:] == ["8", GIVEN] and rows["clip_high"][2].startswith("brorl:")


def test_scores_by_hand():
    """Makes impossible: a standard error over responses; "any of the first k" in place of the unbiased estimate."""
    correct = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    got = scores_of(correct, torch.full((3, 4), 7), torch.zeros(3, 4, dtype=torch.bool))
    assert got["pass@1"] == pytest.approx(0.5) and got["pass@1_se"] == pytest.approx(0.5 / math.sqrt(3))
    assert got["pass@4"] == pytest.approx(2 / 3) and "pass@16" not in got and got["response_tokens"] == 7
    many = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) < 0.05
    got = scores_of(many, torch.ones(5, 64), torch.zeros(5, 64))
    want = [brorl.pass_at_k_estimate(64, int(c), 16) for c in many.sum(-1)]
    assert got["pass@16"] == pytest.approx(sum(want) / 5)


def test_curves_are_drawn_from_a_run_without_updates(tmp_path, monkeypatch):
    """Makes impossible: a crash at the end of a run that had no informative prompt; axes around nothing."""
    monkeypatch.setattr("matplotlib.pyplot.close", lambda figure: drawn.extend(axis.axison for axis in figure.axes))
    drawn: list[bool] = []
    rows = [{"step": i, "samples": 8 * i, "reward": 0.0, "pass_rate": 0.0} for i in range(1, 3)]
    rows = [{"step": 0, "samples": 0, "eval/pass@1": 0.1, "eval/pass@1_se": 0.1}, *rows]
    draw_curves(rows, tmp_path / "curves.png", "a run")
    assert (tmp_path / "curves.png").stat().st_size > 10_000 and drawn == [True] * 2 + [False] * 4
