"""How far a run is: the order of its problems, its budget, its learning rate, and gradients gone wrong."""

import json
import math

import pytest
from helpers import config, lines, run, start

import loss as L
from trainer.metrics import troubles
from trainer.progress import Cursor, Progress, RunStopped
from trainer.settings import Config


def test_cursor_visits_every_problem_once_an_epoch_and_resumes():
    """Makes impossible: a problem skipped or repeated at an epoch's end or after a resume."""
    a, b = Cursor(10, 3), Cursor(10, 3)
    taken = [a.take(k) for k in (7, 6, 7)]
    flat = [i for part in taken for i in part]
    assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10)) and flat[:10] != flat[10:]
    b.load_state_dict({"position": 7})
    assert [b.take(6), b.take(7)] == taken[1:]
    assert Cursor(10, 4).take(10) != flat[:10]


@pytest.mark.parametrize(
    ("limits", "spent"),
    [
        ({"max_steps": 5}, True),
        ({"max_steps": 6}, False),
        ({"max_samples": 100}, True),
        ({"max_samples": 101, "max_steps": 6}, False),
        ({"max_hours": 2.0}, True),
        ({"max_hours": 2.1}, False),
    ],
)
def test_the_first_spent_budget_ends_the_run(limits, spent):
    """Makes impossible: a budget in other units, or one that is off by one."""
    assert Progress(step=5, samples=100, seconds=7200.0).spent(Config(**limits)) is spent


def test_the_time_left_follows_the_budget_that_ends_first():
    """Makes impossible: hours promised for a run that another budget ends in minutes."""
    c = Config(max_steps=100, max_hours=1.0)
    assert Progress(step=10, seconds=60).time_left(c) == "09:00"
    assert Progress(step=10, seconds=1800).time_left(c) == "30:00"
    assert Progress().time_left(c) == "?"
    assert Progress(step=120, seconds=60).time_left(c) == "00:00"


@pytest.mark.slow
def test_the_learning_rate_warms_up_and_resumes(finished, tmp_path):
    """Makes impossible: a warm-up by steps instead of updates, one that starts over on resuming, one by default."""
    plain = lines(finished / "run/metrics.jsonl")
    warm = run(tmp_path, name="warm", max_steps=3, warmup_updates=5, eval_every=0)
    assert "learning_rate" not in plain[1]
    rates = [row["learning_rate"] for row in warm[1:]]  # two updates a step: after the 2nd, 4th and 6th
    assert rates == pytest.approx([1e-4 * x for x in (0.4, 0.8, 1.0)])
    assert warm[1]["grad_norm"] != plain[1]["grad_norm"]
    run(tmp_path, name="parts", max_steps=1, warmup_updates=5, eval_every=0)
    assert run(tmp_path, name="parts", max_steps=3, warmup_updates=5, eval_every=0, resume=True)[-1] == warm[-1]


def test_what_a_spike_is():
    """Makes impossible: an alarm from a handful of updates, from norms as usual, or with --spike 0."""
    usual = Progress(norms=[1.0, 2.0, 3.0] * 6)
    assert usual.is_spike(20.1, 10) and not usual.is_spike(19.9, 10) and not usual.is_spike(1e9, 0)
    assert not Progress(norms=[1.0] * 15).is_spike(1e9, 10)
    assert not usual.is_spike(math.nan, 10)


def test_a_run_without_finite_gradients_stops(tmp_path, monkeypatch):
    """Makes impossible: days of a run in which nothing is trained any more."""
    monkeypatch.setattr(L, "token_mean", lambda x, n: x.sum() * math.nan)
    with pytest.raises(RunStopped, match="the last 4 updates had no finite gradient"):
        start(config(tmp_path, max_steps=9, max_skipped_updates=4, save_every=100))
    metrics = lines(tmp_path / "run/metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2] and metrics[2]["updates_skipped"] == 2
    told = troubles(metrics[2], Progress(skipped=4), config(tmp_path, max_skipped_updates=4))
    assert told == ["2 of 2 updates had no finite gradient and were left out, the last 4 in a row; the run stops at 4 "
                    "(--max_skipped_updates)"]  # fmt: skip


def test_a_run_without_verdicts_stops(tmp_path, forget_kinds):
    """Makes impossible: rc 0 and a model after a run in which every rollout was judged as crashed."""
    rewards = tmp_path / "rewards.py"
    rewards.write_text("KINDS = {'broken': lambda text, reference: 0 if '<answer>' in text else 1 / 0}")
    problem = {"prompt": "1569:20=", "kind": "broken", "reference": 0}
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(problem) + "\n" for _ in range(8)))
    data = {name: [str(tmp_path / f"{name}.jsonl")] for name in ("train", "test")}
    c = config(tmp_path, max_steps=9, rewards=[str(rewards)], data=data["train"], eval_data=data["test"], eval_every=0)
    with pytest.raises(RunStopped, match="--verify_timeout"):
        start(c)
    metrics = lines(tmp_path / "run/metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2, 3]
    assert any("ZeroDivisionError" in sentence for sentence in troubles(metrics[3], Progress(), c))
    one = metrics[3] | {"reason/wrong": 1}
    assert not troubles(one, Progress(), c)
    progress = Progress(unjudged=2)
    progress.check_health(c, judged=True)
    assert progress.unjudged == 0
