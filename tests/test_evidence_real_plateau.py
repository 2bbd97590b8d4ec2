"""Behind the plateau of N = 16 on a real model: the arms that the prediction makes, and what is kept of the runs."""

import json
import operator
from collections import Counter

import pytest
from helpers import ROOT

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
    """Makes impossible: steps counted from the prompts that are kept alone."""
    monkeypatch.setattr(real_plateau, "PREDICTED", tmp_path / "predicted.csv")
    monkeypatch.setattr(real_plateau, "SECONDS", 480)
    table = {16: (0.5, 2.0), 512: (1.0, 20.0)}  # kept, seconds of a drawn one
    rows = [{"n": n, "kept": kept, "seconds": seconds} for n, (kept, seconds) in table.items()]
    real_plateau.write(tmp_path / "predicted.csv", rows)
    arms = real_plateau.arms()
    assert arms["prorl"][3] == 480 / (8 / 0.5 * 2) and arms["brorl"][3] == 480 / (2 * 20)
    assert arms["brorl_cool"] == (512, 2, real_plateau.RATE, arms["brorl"][3]) and arms["batch"][3] == 4


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


def test_tables_and_picture(tmp_path, monkeypatch, capsys):
    """Makes impossible: arms compared beyond what the shortest has spent, tokens of the start taken from its end."""
    monkeypatch.setattr(real_plateau, "PICTURE", tmp_path / "picture.png")

    def run(arm, seed, rate, *points):  # seconds, pass@1, tokens
        return [
            {"arm": arm, "seed": seed, "N": 16, "B": 8, "rate": rate, "step": i, "samples": 100 * i,
             "cpu_seconds": seconds, "pass@1": score, "pass@16": 0.9, "tokens": tokens, "right": tokens, "wrong": 20.0}
            for i, (seconds, score, tokens) in enumerate(points)
        ]  # fmt: skip

    rows = [
        *run("saturate", 0, real_plateau.RATE, (0, 0.1, 8), (50, 0.4, 9), (100, 0.42, 10)),
        *run("prorl", 0, real_plateau.RATE, (0, 0.42, 10), (40, 0.44, 10)),
        *run("brorl", 0, real_plateau.HOT, (0, 0.42, 10), (80, 0.62, 8)),
        *run("brorl", 1, real_plateau.HOT, (0, 0.42, 10), (80, 0.62, 8)),
    ]
    real_plateau.tables(rows)
    real_plateau.picture(rows)
    said = capsys.readouterr().out
    assert "| 2e-05 | 200 | 0.100 to 0.420 | +0.020 | +0.010 |" in said
    assert "| start | 16 | 8 | 1 | 0.420 |" in said and "after 40 s each" in said
    assert "| prorl | 16 | 8 | 1 | 0.440 |" in said and "| brorl | 16 | 8 | 2 | 0.520 ± 0.000 |" in said
    assert "| 9.0 ± 0.0 |" in said and "0.0578" in said
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_table_of_the_page_is_that_of_its_csv(capsys):
    """Makes impossible: a row of docs/evidence.md that its CSV does not give any more."""
    page = (ROOT / "docs/evidence.md").read_text()
    real_plateau.tables(load(real_plateau.FOUND))
    way, *arms = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| ") and "| pass@1 |" not in x]
    assert len(arms) == 1 + len(real_plateau.ARMS) and all(row in page for row in arms)
    _, _, samples, _, half, quarter, *_ = (x.strip() for x in way.split("|"))
    assert all(x in page for x in (samples, half, quarter))
