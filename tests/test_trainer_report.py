"""trainer/report.py: the first lines of a run, a row of scores, curves."""

from helpers import set_up, settings
from matplotlib.figure import Figure

import brorl
from trainer.report import Console, change, draw_curves, duration
from trainer.settings import GIVEN, Config


def test_the_introduction_shows_what_the_user_set(tmp_path, capsys):
    """Makes impossible: a setting of the user that nobody sees, or a learning rate without its source."""
    _, sources = settings(tmp_path)
    config, _, _ = set_up(tmp_path)
    said = capsys.readouterr().out
    assert "B x N = 4 x 8" in said and "256 to train on, 16 held out" in said
    rows = {line.split()[0]: line.split(maxsplit=2) for line in said.splitlines() if line.startswith("    ")}
    set_by_user = {name for name, source in sources.items() if source == GIVEN}
    assert rows.keys() == set_by_user | {"learning_rate"} and rows["rollouts_per_prompt"][1:] == ["8", GIVEN]
    used = {name for name in brorl.BRORL if getattr(config, name, None) is not None}
    assert f"{len(used - set_by_user - {'learning_rate'})} more as in the recipe" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_change_of_the_algorithm_is_printed(tmp_path, capsys):
    """Makes impossible: a run under the name of the paper's recipe with another objective, and no line that says so."""
    set_up(tmp_path, objective="group_mean", refill=3)
    said = capsys.readouterr().out
    assert f"group_mean  {GIVEN}" in said and f"3  {GIVEN}" in said


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


def test_a_source_with_one_problem_has_no_standard_error(capsys):
    """Makes impossible: "± 0.000" for one problem, as if its score were exact."""
    scores = {"pass@1": 0.5, "pass@4": 0.75, "response_tokens": 7.0, "truncated": 0.0}
    console = Console(True)
    console.say_scores("one", scores)
    console.say_scores("many", scores | {"pass@1_se": 0.1})
    _, one, many = capsys.readouterr().out.splitlines()
    assert "0.500 one problem " in one and "0.500 ± 0.100 " in many and len(one) == len(many)


def test_the_table_of_steps(capsys):
    """Makes impossible: rows without a header, columns that shift, a line that wraps at 80 columns."""
    console, config = Console(True), Config(max_steps=2000)
    row = {"reward": 0.123456, "pass_rate": 1.0, "entropy": 0.755, "kl_ref": 1.52e-05, "grad_norm": 0.00669}
    scores = {"pass@1": 0.5, "pass@1_se": 0.1, "pass@4": 0.7, "pass@16": 0.8, "pass@64": 0.9}
    for step in range(1, 42):
        metrics = {"step": step, "response_tokens": 12345.6} | (row if step != 3 else {"reward": 0.0})
        console.say_step(metrics, 98765.4, 86400.0 * 40, ["a warning " * 20] if step == 5 else [], config)
    console.say_scores("step 41", scores | {"response_tokens": 16384.0, "truncated": 1.0})
    console.say_step({"step": 42, "response_tokens": 1.0} | row, 1.0, None, [], config)
    lines = capsys.readouterr().out.splitlines()
    headers = [i for i, line in enumerate(lines) if line.lstrip().startswith("step  reward")]
    assert len(headers) == 4 and max(map(len, lines)) <= 80
    assert len({len(line) for line in lines if "/2000" in line}) <= 2  # the last one does not know what is left
    assert "         -" in lines[headers[0] + 3]


def test_the_last_sentence_compares_the_first_score_with_the_last():
    """Makes impossible: a run that ends without a word on whether it learned; noise that is called a change."""

    def said(*scores):
        return change([{"step": 1}, *({"eval/pass@1": x, "eval/pass@1_se": 0.01} for x in scores)])

    assert said(0.2, 0.5, 0.24) == "held-out pass@1 rose from 0.200 to 0.240, more than 3 standard errors (0.030)"
    assert said(0.2, 0.18).startswith("held-out pass@1 fell from 0.200 to 0.180, not more") and said(0.2) == ""
    assert change([{"eval/pass@1": 0.0}, {"eval/pass@1": 1.0}]) == ""  # one problem has no standard error


def test_how_long_a_duration_is():
    """Makes impossible: 345,600 s, which nobody reads as four days."""
    assert [duration(x) for x in (0.26, 9.6, 150, 9000, 4 * 86400)] == ["0.3 s", "10 s", "2 min", "2 h", "4 days"]
