"""tools/draw.py: statistics by hand, pictures and tables against docs/evidence/; tools/smollm.py: its files."""

import math
import re

import numpy as np
import pytest
from helpers import ROOT

from tools import draw, smollm
from trainer.problems import load_problems
from trainer.settings import read_settings

PAGES = [ROOT / "README.md", ROOT / "docs/evidence/README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "".join(page.read_text() for page in PAGES)
OF_A_RUN = {"default_run"}  # runs/NAME/curves.png of the README's run
OF_A_COMMIT = {"lora", "recipes", "rounding"}  # drawn by tools/draw.py of the commit in docs/evidence/README.md
OF_A_PLAN = {path.stem for path in (ROOT / "docs/evidence").glob("*.toml")}  # drawn by tools/experiments.py


def test_a_table_compares_arms_at_their_best_rate_where_all_have_spent_as_much(monkeypatch):
    """Makes impossible: a best rate chosen with the seeds that are compared, a score beyond another arm's budget."""
    runs = {  # N, rate, seed -> (seconds, pass@1) after the start
        (4, 1e-3, 0): (10, 0.3), (4, 1e-2, 0): (10, 0.5), (4, 1e-2, 1): (8, 0.7), (16, 1e-3, 0): (16, 0.9),
    }  # fmt: skip
    rows = [
        {"world": "w", "N": n, "rate": rate, "seed": seed, "cpu_seconds": x, "pass@1": y, "pass@16": y}
        for (n, rate, seed), end in runs.items()
        for x, y in ((0, 0.1), end)
    ]
    monkeypatch.setattr(draw, "load", lambda name: rows)
    _, _, few, many = draw.table("prompt_cost").splitlines()
    first, half = draw.interval([0.1 + 0.4 * 8 / 10, 0.7])
    assert few.startswith(f"| w | 4 | 0.01 | 2 | 8 | {first:.3f} ± {half:.3f} |")
    assert many.startswith("| w | 16 | 0.001 | 1 | 8 | 0.500 |")


def test_the_runs_on_hard_problems_are_the_registered_ones():
    """Makes impossible: a run that ended early, a rate that tuning did not choose, a seed that also tuned."""
    _, second = draw.TARGETS
    for own in draw.by(draw.load("hard_prompts"), "B", "arm").values():
        tuned, rates, seeds = {}, set(), []
        for (tuning, seed, rate), run in draw.by(own, "tuning", "seed", "rate").items():
            if tuning:
                tuned[rate] = run[-1]["cpu_seconds"] if run[-1]["q_pos"] >= second else math.inf
                assert seed == 0
            else:
                assert run[-1]["q_pos"] >= second or run[-1]["cpu_seconds"] >= 120
                rates, seeds = rates | {rate}, [*seeds, seed]
        assert rates <= {min(tuned, key=lambda rate: tuned[rate])}
        assert seeds == [1, 2, 3, 4, 5][: len(seeds)]


def test_the_share_of_a_data_set_is_the_mean_over_its_pass_rates():
    """Makes impossible: a drawn share with a factor, an end or a distribution that is wrong."""
    p = np.linspace(0, 1, 20_001)
    for n in (2, 16):
        assert draw.informative(np.array(0.5), n) == 1 - 2 * 0.5**n
        uniform = np.trapezoid(draw.informative(p, n), p)
        assert draw.informative_share(1, 1, np.array(n)) == pytest.approx(uniform, abs=1e-6)
    product = math.prod((0.3 + i) / (3.3 + i) for i in range(16)) + math.prod((3 + i) / (3.3 + i) for i in range(16))
    assert draw.informative_share(0.3, 3, np.array(16)) == pytest.approx(1 - product, rel=1e-12)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_marked_table_is_that_of_its_csv(page):
    """Makes impossible: a number in a table below <!-- table: NAME --> that its CSV does not give."""
    for name, shown in re.findall(r"<!-- table: (\w+) -->\n((?:\|.*\n)+)", page.read_text()):
        assert shown == draw.table(name), name


def test_each_picture_of_a_page_has_a_function_and_each_csv_a_description():
    """Makes impossible: a picture of old numbers that nothing draws, a picture or CSV that no page knows."""
    files = {kind: {path.stem for path in (ROOT / "docs/evidence").glob(f"*.{kind}")} for kind in ("png", "csv")}
    assert set(re.findall(r"evidence/(\w+)\.png", TEXT)) <= files["png"]
    assert files["png"] - OF_A_PLAN == {picture.__name__ for picture in draw.PICTURES} | OF_A_RUN | OF_A_COMMIT
    assert set(re.findall(r"\]\((\w+)\.csv\)", (ROOT / "docs/evidence/README.md").read_text())) == files["csv"]


def test_the_problems_and_recipes_of_the_real_model(tmp_path):
    """Makes impossible: a held-out problem in the training set, a recipe that train.py refuses or does not take."""
    smollm.write_problems(tmp_path, held_out=8, training=16)
    smollm.write_recipes(tmp_path)
    held_out, training = (load_problems(tmp_path / f"{name}.jsonl") for name in ("largest_test", "largest"))
    questions = [problem.prompt[-1]["content"] for problem in held_out + training]
    assert len(held_out) == 8 and len(training) == 16 and len({*questions}) == 24
    for problem, question in zip(held_out, questions, strict=False):
        assert problem.reference == str(max(map(int, re.findall(r"\d+", question))))
    files = [f"--data={tmp_path / 'largest.jsonl'}", f"--eval_data={tmp_path / 'largest_test.jsonl'}"]
    for recipe, settings in smollm.RECIPES.items():
        config, _ = read_settings("", [f"--model={tmp_path}", f"--recipe={recipe}", *files])
        assert {name: getattr(config, name) for name in settings} == settings
