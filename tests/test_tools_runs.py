"""tools/runs.py and the plans of its experiments: every run is made once, and a stopped experiment continues."""

import csv

from tools import lora, recipes, rounding
from tools.runs import make_missing, rows_of


def test_runs_in_the_file_are_not_made_again(tmp_path):
    """Makes impossible: a stopped experiment that starts from the beginning, or that leaves runs out."""
    made = []

    def one(arm, rate, seed):
        made.append((arm, rate, seed))
        return [dict.fromkeys(rounding.COLUMNS, 0) | {"arm": arm, "rate": rate, "seed": seed}]

    plan, out = rounding.planned(), tmp_path / "runs.csv"
    make_missing(out, plan, rounding.COLUMNS, one)
    assert sorted(made) == sorted(plan) and len(set(plan)) == len(plan) == 24
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:-3]))
    made.clear()
    make_missing(out, plan, rounding.COLUMNS, one)
    assert len(made) == 3 and len(rows_of(out)) == 24


def test_seed_0_chooses_the_rate_and_two_other_seeds_use_it(tmp_path, monkeypatch):
    """Makes impossible: a rate that later seeds choose, or that an early evaluation chooses; a run of another rate."""
    made = []

    def one(model, arm, rate, seed):
        made.append((arm, rate, seed))
        final = {3e-5: 0.3, 1e-4: 0.5}.get(rate, 0.2) + 0.4 * seed
        scores = {0: 0.9, lora.STEPS: final}
        return [
            {**dict.fromkeys(lora.COLUMNS, ""), "arm": arm, "rate": rate, "seed": seed, "step": k, "eval/pass@1": x}
            for k, x in scores.items()
        ]

    monkeypatch.setattr(lora, "make", one)
    monkeypatch.setattr("sys.argv", ["lora", str(tmp_path / "runs.csv"), "model"])
    lora.main()
    best = {"full": 3e-5, "rank 16": 1e-4, "rank 1": 1e-4}
    assert len(made) == len(set(made)) == 15
    assert {(arm, rate) for arm, rate, seed in made if seed} == set(best.items())
    with (tmp_path / "runs.csv").open(newline="") as file:
        assert len([*csv.DictReader(file)]) == 30


def test_a_run_of_a_recipe_counts_samples_and_seconds(tmp_path, monkeypatch):
    """Makes impossible: rows of steps without an evaluation, trained samples that include dropped groups, seconds that
    include an evaluation.
    """
    real = recipes.train

    def small(settings, folder):
        assert settings["recipe"] == "prorl" and settings["seed"] == 1
        size = {"rollouts_per_prompt": 4, "prompts_per_step": 2, "updates_per_step": 2, "max_steps": 2, "eval_every": 2}
        return real(settings | size | {"eval_problems": 4, "eval_samples": 4, "refill": 1}, folder)

    monkeypatch.setattr(recipes, "train", small)
    monkeypatch.setattr(recipes, "SEEDS", (1,))
    monkeypatch.setattr(recipes, "RECIPES", ("prorl",))
    monkeypatch.setattr("sys.argv", ["recipes", str(tmp_path / "runs.csv")])
    recipes.main()
    first, last = rows_of(tmp_path / "runs.csv")
    assert (first["step"], last["step"], last["N"], last["B"]) == ("0", "2", "4", "2")
    assert (first["samples"], first["trained"], first["seconds"]) == ("0", "0", "0.0")
    assert 0 < int(last["trained"]) <= int(last["samples"]) == 16 and 0 < float(last["seconds"]) < 60
    recipes.main()
    assert len(rows_of(tmp_path / "runs.csv")) == 2
