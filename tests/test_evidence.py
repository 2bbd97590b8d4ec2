"""evidence/: tables and pictures from the CSVs, and the numbers of the pages against the CSVs."""

import math
import re
import shutil
import sys

import numpy as np
import pytest
from rooms import ROOT
from scipy import stats

from evidence import draw, rows, statistics, tables
from evidence.rows import at, by, load, seeds_of


def test_interval_is_students():
    """Makes impossible: a normal interval of three seeds, a population deviation, half of the width for the whole."""
    x = [0.51, 0.55, 0.52]
    mean, half = statistics.interval(x)
    low, high = stats.t.interval(0.95, 2, loc=mean, scale=stats.sem(x))
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert math.isnan(statistics.interval([0.5])[1])


def test_a_score_between_two_checkpoints_beyond_the_last_and_where_it_is_first_reached():
    """Makes impossible: a score at a budget that a run did not spend, a level that it never reached."""
    two = [{"samples": 0, "q_pos": 0.2}, {"samples": 100, "q_pos": 0.4}]
    assert rows.at(two, "samples", 25, "q_pos") == pytest.approx(0.25)
    assert math.isnan(rows.at(two, "samples", 101, "q_pos"))
    four = [{"samples": x, "q_pos": q} for x, q in ((0, 0.1), (10, 0.3), (20, 0.2), (30, 0.5))]
    assert rows.first_at(four, "q_pos", 0.25, "samples") == pytest.approx(7.5)
    assert rows.first_at(four, "q_pos", 0.4, "samples") == pytest.approx(20 + 20 / 3)
    assert math.isnan(rows.first_at(four, "q_pos", 0.6, "samples"))


def test_partial_correlation_is_that_of_the_residuals():
    """Makes impossible: a null that is not taken out, or a sign lost on the way."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=400)
    x, y = given + rng.normal(size=400), given + rng.normal(size=400)
    ranks = [stats.rankdata(v) for v in (x, y, given)]
    left = [r - np.polyval(np.polyfit(ranks[2], r, 1), ranks[2]) for r in ranks[:2]]
    assert statistics.partial(x, y, given) == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-12)
    assert statistics.partial(x, -y + 3 * x, given) > 0.5


@pytest.mark.slow
def test_the_committed_csvs_give_all_tables_and_pictures(tmp_path, monkeypatch, capsys):
    """Makes impossible: a table or picture that the CSVs do not give, a derived CSV of other numbers."""
    for path in rows.EVIDENCE.glob("*.csv"):
        shutil.copy(path, tmp_path)
    for module, parts in ((tables, tables.TABLES), (draw, draw.PICTURES)):
        monkeypatch.setattr(sys, "argv", ["evidence", "--csvs", str(tmp_path)])
        tables.call(module.__doc__, parts)
    for path in rows.EVIDENCE.glob("*.csv"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
    drawn = set(re.findall(r"wrote (\w+\.png)", capsys.readouterr().out))
    others = {"figure3.png", "sweep.png", "curves.png", "length.png", "law_simulated.png"}
    assert drawn == {path.name for path in rows.EVIDENCE.glob("*.png")} - others


def runs_of(world, n, rate, seed, *steps):
    """steps: samples, processor seconds, pass@1."""
    return [
        {"world": world, "N": n, "rate": rate, "seed": seed, "step": i, "samples": samples, "cpu_seconds": seconds,
         "pass@1": score, "pass@16": score + 0.1} for i, (samples, seconds, score) in enumerate(steps)
    ]  # fmt: skip


def test_an_arm_is_compared_at_its_best_rate_and_where_all_have_spent_as_much():
    """Makes impossible: a best rate chosen with the seeds that are compared, a score beyond another arm's budget."""
    found = [
        *runs_of("tiny-short", 4, 1e-3, 0, (0, 0, 0.1), (100, 10, 0.3)),
        *runs_of("tiny-short", 4, 1e-2, 0, (0, 0, 0.1), (100, 10, 0.5)),
        *runs_of("tiny-short", 4, 1e-2, 1, (0, 0, 0.1), (100, 8, 0.7)),
        *runs_of("tiny-short", 16, 1e-3, 0, (0, 0, 0.1), (200, 16, 0.9)),
    ]
    predicted = [{"world": "tiny-short", "N": n} for n in (4, 16)]
    (few, many), spent = tables.results("tiny-short", found, predicted)
    assert spent == {"cpu_seconds": 8, "samples": 100}
    assert (few.rate, many.rate) == (1e-2, 1e-3)
    assert few.at_time == pytest.approx([0.1 + 0.4 * 8 / 10, 0.7]) and few.at_samples == pytest.approx([0.5, 0.7])
    assert many.at_time == pytest.approx([0.5]) and many.at_samples == pytest.approx([0.5])


def test_the_table_of_the_page_is_that_of_its_csv(capsys):
    """Makes impossible: a row of docs/evidence.md that its CSV does not give any more."""
    page = (ROOT / "docs/evidence.md").read_text()
    tables.real_plateau(rows.EVIDENCE)
    way, *arms = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| ") and "| pass@1 |" not in x]
    assert len(arms) == 5 and all(row in page for row in arms)
    _, _, samples, _, half, quarter, *_ = (x.strip() for x in way.split("|"))
    assert all(x in page for x in (samples, half, quarter))


def test_the_noise_of_the_page_is_that_of_its_csv():
    """Makes impossible: numbers in docs/which_n.md that noise.csv does not have."""
    page = " ".join((ROOT / "docs/which_n.md").read_text().split())
    measured = load(ROOT / "evidence/noise.csv")
    mean = {}
    for n in ("", 16, 512):
        looks = [row for row in measured if row["N"] == n and row["policy"] == "tiny/policy"]
        mean[n] = [sum(row[name] for row in looks) / len(looks) for name in ("within", "between")]
    exact, n16, n512 = (f"{within / between:.1f}" for within, between in mean.values())
    assert f"is {exact} by enumeration" in page and f"give {n16} with N = 16 and {n512} with N = 512" in page
    for letter, (first, *others) in zip("wb", zip(*mean.values(), strict=True), strict=True):
        shown = page.split(f"V_{letter}: ")[1].split(", ")[:3]
        digits = len(shown[0].partition(".")[2])
        assert [x.split(" ±")[0].split("; ")[0] for x in shown] == [f"{x:.{digits}f}" for x in (first, *others)]


def test_the_objectives_and_lengths_of_the_pages_are_those_of_their_csvs():
    """Makes impossible: a table of docs/evidence.md or docs/which_n.md with numbers that its CSV does not have."""
    page = (ROOT / "docs/evidence.md").read_text()
    for (where,), arms in by(load(ROOT / "evidence/objective.csv"), "where").items():
        groups = seeds_of(arms, "advantage", "N")
        samples = min(run[-1]["samples"] for group in groups.values() for run in group)
        if where == "start":
            sentences = page.split("### From the start")[1].split("\n\n")[1]
            assert f"{samples:,} samples" in sentences
            for [run] in groups.values():
                for name in ("q_pos", "pass@64"):
                    assert f"{at(run, 'samples', samples, name):.3f}" in sentences
            continue
        assert f"After {samples:,} samples" in page
        after = page.split(f"After {samples:,} samples")[1].split("\n\n")[1].splitlines()
        heads = [x.strip() for x in after[0].split("|")]
        names = {"Q_pos": "q_pos", "answers that fell": "fell"}
        for (kind, n), group in groups.items():
            [line] = [x for x in after if x.startswith(f"| `{kind}` | {n} | {len(group)} |")]
            shown = [name for name in heads if name == "Q_pos" or "pass@" in name or "fell" in name]
            assert len(shown) > 3
            for name in shown:
                mean = sum(at(run, "samples", samples, names.get(name, name)) for run in group) / len(group)
                assert line.split("|")[heads.index(name)].split()[0] == f"{mean:.3f}"
    page = (ROOT / "docs/which_n.md").read_text()
    for row in [row for row in load(ROOT / "evidence/length.csv") if row["prompts"] > 8]:  # fewer show no ratio
        cells = f"{row['within']:,.0f} ± {row['within_se']:,.0f} |"
        assert f"| {row['prompts']} x {row['rollouts']} | {row['p']:.2f} | {cells}" in page
