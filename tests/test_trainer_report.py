"""What a run prints before and after it trains, and its picture."""

import os

import pytest

from trainer.report import before_and_after, curves, protocol, short, size, table, wrapped
from trainer.settings import Config

SCORES = {"pass@1": 0.25, "pass@1_se": 0.01, "pass@4": 0.5, "response_tokens": 8.0, "truncated": 0.125}


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_line_is_broken_between_words(monkeypatch, columns):
    """Makes impossible: a word, a path or a flag broken where the terminal ends."""
    monkeypatch.setenv("COLUMNS", str(columns))
    line = "  settings    --max_tokens_per_micro_batch 32,768 and other-words of runs/a-name/model, " * 5
    rows = wrapped(line, 14).split("\n")
    assert " ".join(rows).split() == line.split() and len(rows) > 3
    assert all(len(row) < columns for row in rows) and all(row.startswith(" " * 14) for row in rows[1:])
    assert wrapped("short", 14) == "short"


def test_a_settings_source_keeps_to_80_columns(monkeypatch):
    """Makes impossible: lines with a deep indent that are allowed to be longer than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, wrapped("word " * 50, 42).split("\n"))) < 80


def test_a_word_longer_than_the_terminal_stays_whole(monkeypatch):
    """Makes impossible: a path that cannot be copied."""
    monkeypatch.setenv("COLUMNS", "20")
    assert "/a/path/that/is/longer/than/it" in wrapped("in /a/path/that/is/longer/than/it", 2).split()


def test_a_table_of_scores():
    """Makes impossible: a column under another head, a score of another policy."""
    text = table({"step 0": SCORES, "a longer name": SCORES | {"pass@1": 0.5, "problems": 1234}})
    head, first, second = text.split("\n")
    assert first.split() == ["step", "0", "0.250", "±", "0.010", "0.500", "8.0", "12.5%"]
    assert second.split()[-6:] == ["±", "0.010", "0.500", "8.0", "12.5%", "1,234"]
    for name, number in (("pass@4", "0.500"), ("tokens", "8.0"), ("truncated", "12.5%")):
        assert head.index(name) + len(name) == first.index(number) + len(number)
    assert first.index("0.250") == second.index("0.500 ±")


def test_two_scores_that_part_have_a_sentence(monkeypatch):
    """Makes impossible: pass@4 called fallen for one problem of 32; a table without a word where it did fall."""
    monkeypatch.setenv("COLUMNS", "80")

    rows = {f"step {i}": SCORES | {"pass@1": float(i)} for i in (0, 5, 9)}

    def said(last: list[int]) -> bool:
        text = before_and_after(rows, [{"k": 4, "correct": [1] * 32}, {"k": 4, "correct": last}])
        assert "step 5" not in text and "step 9" in text
        return "pass@1 rose while pass@4 fell" in " ".join(text.split())

    assert said([4] * 20 + [0] * 12)
    assert not said([4] * 31 + [0])  # one problem
    assert not said([2] * 20 + [0] * 12)  # pass@1 rose by less than its error
    assert not said([2] * 32)  # pass@4 did not fall
    few = {k: v for k, v in SCORES.items() if k != "pass@4"}  # --eval_samples 1
    assert "rose" not in before_and_after({"step 0": few, "step 9": few}, [{"k": 1, "correct": [0, 1]}] * 2)


def test_numbers_and_paths_for_a_reader(tmp_path, monkeypatch):
    """Makes impossible: MiB for GiB; a hub name made a path; an absolute path where a short one does."""
    assert (size(2**30), size(1.5 * 2**30), size(2**20), size(2**30 - 1)) == (
        "1.00 GiB",
        "1.50 GiB",
        "1 MiB",
        "1024 MiB",
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert short(str(tmp_path / "model")) == "model" and short("nvidia/Nemo-1.5B") == "nvidia/Nemo-1.5B"
    c = Config(eval_samples=4, eval_max_response_tokens=32768, eval_temperature=0.6, eval_top_p=0.95)
    assert protocol(c, [1] * 30) == (
        "30 held-out problems, 4 responses each, cut at 32,768 tokens, at temperature 0.6, top-p 0.95, seed 1234"
    )


def test_the_curves_are_drawn_from_metrics_alone(finished, tmp_path):
    """Makes impossible: a picture that needs a metric which not every step has, or none at the end of a run."""
    metrics = tmp_path / "metrics.jsonl"
    rows = (finished / "run/metrics.jsonl").read_text().splitlines(keepends=True)
    metrics.write_text(rows[0] + '{"step": 1, "samples": 9, "reward": 0.0, "pass_rate": 0.0}\n' + rows[2] + '{"torn')
    curves(metrics, tmp_path / "curves.png", "a title")
    assert os.stat(tmp_path / "curves.png").st_size > 10_000
    assert (finished / "run/curves.png").stat().st_size > 10_000
