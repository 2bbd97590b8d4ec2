"""Where prompts are dear: the prediction's arithmetic, and what is compared with it."""

import json

import pytest

from evidence import price


def rows(world, n, rate, seed, *steps):
    """steps: samples, processor seconds, pass@1."""
    return [
        {"world": world, "N": n, "rate": rate, "seed": seed, "step": i, "samples": samples, "cpu_seconds": seconds,
         "pass@1": score, "pass@16": score + 0.1} for i, (samples, seconds, score) in enumerate(steps)
    ]  # fmt: skip


def test_noise_predicted_by_hand(tmp_path, monkeypatch):
    """Makes impossible: noise at equal time without a prompt's seconds, at equal samples with them; N for N - 1."""
    monkeypatch.setattr(price, "OUT", tmp_path)
    monkeypatch.setitem(price.WORLDS, "small", price.WORLDS["tiny-short"]._replace(sizes=(3, 9)))
    monkeypatch.setitem(price.LOOK, "small", {})
    (tmp_path / "small" / "preflight").mkdir(parents=True)
    table = [{"n": 3, "b": 10.4, "kept": 0.5, "seconds": 1.0}, {"n": 9, "b": 4.6, "kept": 0.9, "seconds": 4.0}]
    found = {"table": table, "ratio": {"value": 8.0, "low": 4.0, "high": None}, "prompt_cost": 2.0}
    (tmp_path / "small" / "preflight" / "preflight.json").write_text(json.dumps(found))
    few, many = price.predict("small")
    assert (few["B"], many["B"]) == (10, 5)
    # 1 + 8 / 2 = 5 and 1 + 8 / 8 = 2, times N = 3 and 9, times 1 and 4 seconds
    assert (few["noise_samples_start"], many["noise_samples_start"]) == (1.0, 18 / 15)
    assert (few["noise_time_start"], many["noise_time_start"]) == (1.0, 8 / 5)
    assert few["ratio_along"] == 8.0, "no run yet: that of the start"


@pytest.mark.parametrize("long", [True, False])
def test_each_letter_is_asked_for_as_often(tmp_path, monkeypatch, long):
    """Makes impossible: a held-out story that is trained on, another letter in the prompt than counted."""
    monkeypatch.setattr(price, "OUT", tmp_path)
    stories = [f"Once upon a time number {i}. The end of it was {i}." for i in range(price.HELD_OUT + 5)]
    (tmp_path / "stories.json").write_text(json.dumps(stories))
    price.make_smollm(tmp_path, tmp_path, long)
    held_out, trained = (
        [json.loads(x) for x in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("test", "train")
    )
    assert len(held_out) == price.HELD_OUT and len(trained) == 5 * len(price.LETTERS)
    texts = [{row["prompt"].split("\n\n")[0] for row in rows} for rows in (held_out, trained)]
    assert not texts[0] & texts[1] and (texts[0] <= set(stories)) == long
    for rows, times in ((held_out, price.HELD_OUT // len(price.LETTERS)), (trained, 5)):
        asked = [row["reference"]["kwargs"][0] for row in rows]
        assert all(f"many letters {x['letter']}, is" in row["prompt"] for x, row in zip(asked, rows, strict=True))
        assert {x["letter"]: x["let_frequency"] for x in asked} == price.LETTERS
        assert all([x["letter"] for x in asked].count(letter) == times for letter in price.LETTERS)


def test_an_arm_is_compared_at_its_best_rate_and_where_all_have_spent_as_much():
    """Makes impossible: the best rate chosen with the seeds that are compared, a score beyond another arm's budget."""
    found = [
        *rows("tiny-short", 4, 1e-3, 0, (0, 0, 0.1), (100, 10, 0.3)),
        *rows("tiny-short", 4, 1e-2, 0, (0, 0, 0.1), (100, 10, 0.5)),
        *rows("tiny-short", 4, 1e-2, 1, (0, 0, 0.1), (100, 8, 0.7)),
        *rows("tiny-short", 16, 1e-3, 0, (0, 0, 0.1), (200, 16, 0.9)),
    ]
    predicted = [{"world": "tiny-short", "N": n} for n in (4, 16)]
    (few, many), spent = price.results("tiny-short", found, predicted)
    assert spent == {"cpu_seconds": 8, "samples": 100}
    assert (few.rate, many.rate) == (1e-2, 1e-3)
    assert few.at_time == pytest.approx([0.1 + 0.4 * 8 / 10, 0.7]) and few.at_samples == pytest.approx([0.5, 0.7])
    assert many.at_time == pytest.approx([0.5]) and many.at_samples == pytest.approx([0.5])


def test_the_committed_csvs_give_tables_and_picture(tmp_path, monkeypatch, capsys):
    """Makes impossible: a table of docs/which_n.md that its CSVs do not give any more."""
    found, predicted = price.load(price.FOUND), price.load(price.PREDICTED)
    monkeypatch.setattr(price, "PICTURE", tmp_path / "price.png")
    price.tables(found, predicted)
    price.picture(found, predicted)
    said = capsys.readouterr().out
    assert all(f"{world}: prompts" in said for world in {row["world"] for row in found})
    assert (tmp_path / "price.png").stat().st_size > 10_000
