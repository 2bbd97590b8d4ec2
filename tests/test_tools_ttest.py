"""tools/ttest.py, section 4.2.2: against numbers worked by hand and SciPy's test, and what it refuses to pair."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from helpers import lines

from tools import intervals, ttest
from trainer.process import Refusal

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("n", [2, 30, 10_000])
@pytest.mark.parametrize("shift", [0.0, 0.003, -0.05, 3.0])
def test_scipy_agrees(n, shift):
    """Makes impossible: a - b for b - a, s / n for s / √n, n degrees of freedom, tails exchanged, few or many
    instances with a wrong p-value."""
    dice = torch.Generator().manual_seed(n)
    a = torch.randint(17, (n,), generator=dice) / 16
    b = a + shift + 0.1 * torch.randn(n, generator=dice, dtype=torch.float64)
    ours = ttest.paired_t_test(a, b)
    one = scipy.stats.ttest_rel(b.numpy(), a.double().numpy(), alternative="greater")
    two = scipy.stats.ttest_rel(b.numpy(), a.double().numpy())
    assert ours.t == pytest.approx(one.statistic, rel=1e-9)
    assert (ours.instances, ours.delta) == (n, pytest.approx((b - a).mean().item(), abs=1e-12))
    assert ours.standard_error == pytest.approx(ours.delta / ours.t)
    assert ours.p_one_tailed == pytest.approx(one.pvalue, rel=1e-8, abs=1e-300)
    assert ours.p_two_tailed == pytest.approx(two.pvalue, rel=1e-8, abs=1e-300)
    assert (ours.low, ours.high) == pytest.approx((*two.confidence_interval(0.95),), rel=1e-9)


def test_the_papers_p_value():
    """Makes impossible: another test than the paper's, whose t = 4.84 on over 10,000 instances has p = 6.5e-7."""
    d = np.random.default_rng(0).normal(size=10_001)
    d = (d - d.mean()) / d.std(ddof=1)  # mean 0, standard deviation 1, so that adding t / √n gives t
    tests = [ttest.paired_t_test(np.zeros(len(d)), d + t / math.sqrt(len(d))) for t in (4.845, 4.835)]
    assert [test.t for test in tests] == pytest.approx([4.845, 4.835], rel=1e-9)
    assert tests[0].p_one_tailed < 6.55e-7 and tests[1].p_one_tailed > 6.45e-7


def test_differences_that_are_all_the_same():
    """Makes impossible: a division by 0, or "no difference at all" called significant."""
    a = torch.tensor([0.25, 0.5, 0.0])
    none = ttest.paired_t_test(a, a)
    assert (none.t, none.p_one_tailed, none.p_two_tailed, none.low, none.high) == (0, 0.5, 1, 0, 0)
    up, down = ttest.paired_t_test(a, a + 0.5), ttest.paired_t_test(a, a - 0.5)
    assert (up.t, up.p_one_tailed, up.p_two_tailed) == (math.inf, 0, 0)
    assert (down.t, down.p_one_tailed, down.p_two_tailed) == (-math.inf, 1, 0)


def test_the_interval_is_that_of_welch():
    """Makes impossible: a pooled variance, an interval of one tail, "decided" where the interval includes 0."""
    a, b = [0.51, 0.55, 0.53, 0.58], [0.50, 0.49, 0.47]
    found, want = intervals.welch(a, b), scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((want.low, want.high), rel=1e-9) and found.word == "higher"
    assert intervals.welch(b, a).word == "lower" and intervals.welch(a, [0.50, 0.56, 0.47]).word == "undecided"
    assert intervals.welch(a, [0.1]).word == "undecided" and np.isnan(intervals.welch(a, [0.1]).low)
    # By hand: s² = 1/3 + 1/3, 4 degrees of freedom, t = 2.776: 5 ± 2.267; and (2.776 + 0.941) s is detected
    assert intervals.welch([4, 5, 6], [-1, 0, 1]) == pytest.approx((5, 2.733, 7.267, 3.035), abs=0.001)
    assert intervals.with_interval([1.0, 2.0, 3.0]) == "2.000 ± 2.484" and intervals.with_interval([1.0]) == "1.000"


def printed(monkeypatch, capsys, *arguments) -> str:
    """Call the command in this process. Returns its output."""
    monkeypatch.setattr(sys, "argv", ["ttest", *map(str, arguments)])
    ttest.main()
    return capsys.readouterr().out


def changed(run: Path, folder: Path, config=None, last=None) -> Path:
    """Copy a run's settings and evaluations, with other settings or with another last evaluation."""
    folder.mkdir(exist_ok=True)
    settings = json.loads((run / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps(settings))
    *before, row = lines(run / "eval.jsonl")
    (folder / "eval.jsonl").write_text("".join(json.dumps(x) + "\n" for x in [*before, row | (last or {})]))
    return folder


def test_the_t_test_of_two_runs(finished, tmp_path, monkeypatch, capsys):
    """Makes impossible: runs exchanged, another evaluation than the one asked for, a number that is not the test's."""
    a, higher = finished / "run", [4, 3] * 8
    b = changed(a, tmp_path / "b", last={"correct": higher})
    text = printed(monkeypatch, capsys, a, b)
    correct = torch.tensor([lines(a / "eval.jsonl")[-1]["correct"], higher])
    test = ttest.paired_t_test(*correct / 4)
    means = (correct / 4).mean(1).tolist()
    for number in (f"pass@1 {means[0]:.4f}", f"pass@1 {means[1]:.4f}", f"{test.delta:+.4f}", f"{test.t:.2f}",
                   f"{test.low:+.4f} to {test.high:+.4f}", f"{test.p_one_tailed:.2g}\n"):  # fmt: skip
        assert number in text
    before_after = printed(monkeypatch, capsys, a, a, "--step", 0, 2)
    assert all(f"pass@1 {lines(a / 'metrics.jsonl')[step]['eval/pass@1']:.4f}" in before_after for step in (0, 2))


@pytest.mark.parametrize("config, last, arguments, named", [
    ({}, {"problems": "another digest", "sources": {"large": 12}}, [], "--eval_data"),
    ({"eval_samples": 2}, {}, [], "--eval_samples"), ({"eval_temperature": 0.5}, {}, [], "--eval_temperature"),
    ({}, {}, ["--step", "7"], "step 7"), (None, {}, [], "config.json"),
    ({}, {}, ["--step", *"012"], "--step takes one"),
])  # fmt: skip
def test_what_does_not_pair_is_refused(config, last, arguments, named, finished, tmp_path, monkeypatch, capsys):
    """Makes impossible: scores of other problems, of other settings or of no evaluation subtracted from each other."""
    other = tmp_path if config is None else changed(finished / "run", tmp_path / "other", config, last)
    with pytest.raises(Refusal, match=named):
        printed(monkeypatch, capsys, finished / "run", other, *arguments)
