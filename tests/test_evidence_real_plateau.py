"""Behind the plateau of N = 16 on a real model: the arms that the prediction makes, and what is kept of the runs."""

import json
import operator
from collections import Counter

import pytest

from evidence import real_plateau
from evidence.rows import load
from verify import verify_batch


def test_the_problems_and_their_two_solutions(tmp_path, monkeypatch):
    """Makes impossible: a wrong answer, a problem held out and trained on, a wrong solution, unequal shares."""
    monkeypatch.setattr(real_plateau, "OUT", tmp_path)
    real_plateau.make(tmp_path)
    train, test = (
        [json.loads(x) for x in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("train", "test")
    )
    assert not {x["prompt"] for x in test} & {x["prompt"] for x in train}
    does = {"+": operator.add, "-": operator.sub, "x": operator.mul, "mod": operator.mod}
    for row in train + test:
        left, sign, right, *_ = row["prompt"].split()
        assert int(row["reference"]) == does[sign](int(left), int(right))
    assert Counter(row["prompt"].split()[1] for row in test) == dict.fromkeys(does, real_plateau.HELD_OUT)
    solved = [row for row in train if "solution" in row]
    assert solved == train[:2] and [" = " in row["solution"] for row in solved] == [True, False]
    items = [(row["kind"], row["solution"], row["reference"]) for row in solved]
    assert [verdict.reward for verdict in verify_batch(items)] == [1, 1]


def test_every_arm_takes_the_same_time_by_the_prediction(tmp_path, monkeypatch):
    """Makes impossible: steps counted from the prompts that are kept alone; an N that is not the prediction's best."""
    monkeypatch.setattr(real_plateau, "PREDICTED", tmp_path / "predicted.csv")
    monkeypatch.setattr(real_plateau, "SECONDS", 480)
    table = {16: (0.5, 2.0, 3.0), 64: (0.8, 4.0, 1.0), 512: (1.0, 20.0, 2.0)}  # kept, seconds of a drawn one, noise
    rows = [{"n": n, "kept": k, "seconds": s, "time": x, "b": 40 * k / s} for n, (k, s, x) in table.items()]
    real_plateau.write(tmp_path / "predicted.csv", rows)
    arms = real_plateau.arms()
    assert arms["prorl"][3] == 480 / (8 / 0.5 * 2) and arms["brorl"][3] == 480 / (2 * 20)
    assert arms["preflight"][:3] == (64, 8, 2 * real_plateau.RATE) and arms["preflight"][3] == 480 / (8 / 0.8 * 4)


def test_lengths_of_right_and_wrong_answers(tmp_path, monkeypatch):
    """Makes impossible: a mean over problems for one over answers, seconds of an evaluation in an arm's time."""
    monkeypatch.setattr(real_plateau, "OUT", tmp_path)
    monkeypatch.setattr(real_plateau, "FOUND", tmp_path / "found.csv")
    monkeypatch.setattr(real_plateau, "arms", lambda: {"brorl": (512, 2, 1e-4, 3)})
    run = tmp_path / "brorl-seed1"
    (run / "model").mkdir(parents=True)
    score = {"step": 1, "samples": 1024, "eval/pass@1": 0.375, "eval/pass@16": 0.5}
    answers = {"k": 4, "correct": [3, 0], "response_tokens": [10.0, 20.0], "correct_tokens": [24, 0]}
    (run / "metrics.jsonl").write_text(json.dumps(score) + "\n")
    (run / "eval.jsonl").write_text(json.dumps(answers) + "\n")
    times = [{"step": 0, "cpu_seconds": 50.0}, {"step": 1, "cpu_seconds": 7.0}]
    (run / "timing.jsonl").write_text("".join(json.dumps(x) + "\n" for x in times))
    real_plateau.collect()
    (row,) = load(tmp_path / "found.csv")
    assert (row["arm"], row["seed"], row["N"], row["cpu_seconds"]) == ("brorl", 1, 512, 7)
    assert (row["tokens"], row["right"]) == (15, 8) and row["wrong"] == pytest.approx((120 - 24) / 5)
