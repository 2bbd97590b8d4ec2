"""tools/rounding.py: the share of a movement that a rounded copy shows, and runs that are made once."""

import pytest
import torch

from engines.rounding import dithered
from tools import rounding


def test_the_share_of_a_movement_by_hand():
    """Makes impossible: a share of 1 for a copy that stays at the start, or a share of the weights."""
    policy = torch.nn.Linear(1000, 1000, bias=False)
    with torch.no_grad():
        policy.weight.fill_(1.0)
    start = {"weight": policy.weight.detach().clone()}
    with torch.no_grad():
        policy.weight += 2**-10  # an eighth of the distance to the next bfloat16 number
    assert rounding.share_seen(policy, start, rounding.nearest) == 0
    assert rounding.share_seen(policy, start, dithered) == pytest.approx(1, abs=0.01)
    assert rounding.share_seen(policy, start, None) == pytest.approx(1)


def test_runs_in_the_file_are_not_made_again(tmp_path, monkeypatch):
    """Makes impossible: a stopped experiment that starts from the beginning, or that leaves runs out."""
    made = []

    def one(arm, rate, seed, model):
        made.append((arm, rate, seed))
        return [dict.fromkeys(rounding.COLUMNS, 0) | {"arm": arm, "rate": rate, "seed": seed}]

    monkeypatch.setattr(rounding, "run_elsewhere", one)
    rounding.run_all(tmp_path / "runs.csv", "model")
    assert len(made) == len(set(made)) == 24
    lines = (tmp_path / "runs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "runs.csv").write_text("".join(lines[:-3]))
    made.clear()
    rounding.run_all(tmp_path / "runs.csv", "model")
    assert len(made) == 3 and len((tmp_path / "runs.csv").read_text().splitlines()) == 25
