"""evidence/: the runs behind docs/evidence.md, their tables and pictures."""

import contextlib
import csv
import fcntl
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats
from tiny_runs import TINY, some_problems, trained
from transformers import HfArgumentParser

import brorl
import train
from evidence import draw, exact_probe, experiments, null, report, runs, theorem1, ttest
from evidence.controls import equal_q_pos
from tiny import exact
from train import Config
from trainer.checks import resolve
from verify import load_data

ROOT = Path(__file__).parent.parent


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_every_run_is_one_that_train_would_start(tmp_path):
    """Makes impossible: a misspelt setting, a name that two runs share, or a dependency that nobody makes."""
    found = experiments.runs(tmp_path, [0, 1, 2])
    names = [run.name for run in found]
    assert len(set(names)) == len(names) and {x for run in found for x in run.needs} <= set(names)
    lr35, lr100 = 3.5e-5, 1e-4
    expected = {  # N, B, learning rate
        "prorl": (16, 128, lr35), "brorl": (512, 32, lr100), "batch": (16, 1024, lr100),
        "prorl_lr10": (16, 128, 1e-5), "batch_lr10": (16, 1024, 1e-5), "batch_lr35": (16, 1024, lr35),
        "brorl_lr10": (512, 32, 1e-5), "brorl_lr35": (512, 32, lr35),
        "brorl128_lr35": (512, 128, lr35), "brorl128_lr100": (512, 128, lr100), "saturate": (16, 128, lr35),
    }  # fmt: skip
    for run in (r for r in found if r.part != "null"):
        (config,) = HfArgumentParser(Config, allow_abbrev=False).parse_args_into_dataclasses(run.arguments)
        kind, what, *rest = [*run.name.split("-"), ""]
        world = "long" if "long" in run.name else "compact"
        if run.part.startswith("objective"):
            near, hard = run.part != "objective_start", run.part == "objective_hard"
            assert run.needs == ["near"] * near and config.model == (f"{tmp_path}/near/model" if near else None)
            assert config.data == config.eval_data == ([f"{tmp_path}/hard-near.jsonl"] if hard else None)
            advantage, n = what.rsplit("_", 1)
            assert (config.advantage, config.rollouts_per_prompt) == (advantage, int(n))
            assert config.prompts_per_step == 128
            assert config.learning_rate == {"16": lr35, "64": 5e-5, "512": lr100}[n]
            config.model, config.data, config.eval_data = str(TINY / "policy"), None, None
            resolve(config)
            continue
        if run.part == "controls":
            assert run.needs == [] if kind == "near" else run.needs == ["near"]
            assert config.model == (None if kind == "near" else f"{tmp_path}/near/model")
            kind, _, change = (what if kind == "control" else "prorl").partition("_")
            moments = f"{tmp_path}/near/checkpoints/step_00000800"
            assert config.optimizer_from == (moments if change == "moments" else None)
            assert config.warmup_updates == (40 if change == "warmup" else 0)
            if change == "few":
                assert (config.prompts_per_step, config.learning_rate) == (32, lr100)
                continue
            whole = (kind != "brorl") != (change in ("alike", "mixed"))  # whole prompts in a mini-batch
            assert (config.mini_batches, config.refill) == (("prompts", 8) if whole else ("rollouts", 4))
        elif kind == "saturate" or "start" in rest:
            assert not run.needs and config.model == (f"{tmp_path}/long/policy" if world == "long" else None)
        else:
            assert run.needs == [f"saturate-{world}"] and config.model == f"{tmp_path}/saturate-{world}/model"
        folder = {"hard": f"{tmp_path}/hard", "long": f"{tmp_path}/long/train"}.get(
            "hard" if run.part == "hard" else world
        )
        assert config.data == ([f"{folder}.jsonl"] if folder else None)
        assert config.eval_data == ([f"{folder}.jsonl".replace("train", "test")] if folder else None)
        config.model = str(TINY / "policy")  # whose recipe a saturated policy keeps
        resolve(config)
        n, b, rate = config.rollouts_per_prompt, config.prompts_per_step, config.learning_rate
        if kind in ("sweep", "steps"):
            assert (n, b, rate) == (int(what), 16384 // int(what) if kind == "sweep" else 32, lr35)
        else:
            assert (n, b, rate) == expected[what if kind in ("hard", "theorem") else kind]


def test_of_a_setting_given_twice_the_last_counts():
    """Makes impossible: a finished control taken for a run with other settings, since it overrules its arm's."""
    arguments = ["--mini_batches", "prompts", "--log_mass_balance", "--mini_batches", "rollouts", "--seed", "1"]
    settings = {"mini_batches": "rollouts", "log_mass_balance": True, "seed": 1}
    assert experiments.other_settings(arguments, settings) == ""
    told = experiments.other_settings(arguments, settings | {"mini_batches": "prompts"})
    assert told == "--mini_batches (prompts, not rollouts)"


def test_interval_is_students():
    """Makes impossible: a normal interval of three seeds, a population deviation, half of the width for the whole."""
    x = [0.51, 0.55, 0.52]
    mean, half = report.interval(x)
    low, high = stats.t.interval(0.95, 2, loc=mean, scale=stats.sem(x))
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert math.isnan(report.interval([0.5])[1])


def test_a_score_between_two_checkpoints_and_beyond_the_last():
    """Makes impossible: a run that is credited with a score at a budget that it did not spend."""
    rows = [{"samples": 0, "q_pos": 0.2}, {"samples": 100, "q_pos": 0.4}]
    assert runs.at(rows, "samples", 25, "q_pos") == pytest.approx(0.25)
    assert math.isnan(runs.at(rows, "samples", 101, "q_pos"))


def test_where_one_arm_overtakes_another_and_where_a_score_is_first_reached():
    """Makes impossible: a crossing on the wrong axis, one that is taken back later, a level that was never reached."""
    slow = [{"samples": 0, "cpu_seconds": 0, "q_pos": 0.2}, {"samples": 100, "cpu_seconds": 100, "q_pos": 0.4}]
    late = [{"samples": 0, "cpu_seconds": 0, "q_pos": 0.1}, {"samples": 100, "cpu_seconds": 50, "q_pos": 0.6}]
    told, one = runs.crossing([late], [slow], "samples", "samples"), " (means of 1 and 1 seeds)"
    assert told == "above from 34 samples on, to the end at 100" + one
    told = runs.crossing([late], [slow], "cpu_seconds", "s")
    assert told == "above from 13 s on, to the end at 50" + one
    told = runs.crossing([slow], [late], "samples", "samples")
    assert told == "below at 100 samples, above on 33% of the way there" + one
    rows = [{"samples": x, "q_pos": q} for x, q in ((0, 0.1), (10, 0.3), (20, 0.2), (30, 0.5))]
    assert runs.first_at(rows, "q_pos", 0.25, "samples") == pytest.approx(7.5)
    assert runs.first_at(rows, "q_pos", 0.4, "samples") == pytest.approx(20 + 20 / 3)
    assert math.isnan(runs.first_at(rows, "q_pos", 0.6, "samples"))


@pytest.mark.slow
def test_hard_problems_are_those_between_two_probabilities(tmp_path, monkeypatch):
    """Makes impossible: easy problems among the hard ones, rows that are not the problems', a list made twice."""
    problems, hard = Path(some_problems(tmp_path / "some.jsonl", 40, of="train")), tmp_path / "hard.jsonl"
    monkeypatch.setattr(experiments, "HARD", (0.05, 0.15))
    experiments.make_hard(TINY / "policy", problems, hard)
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    q_pos = [float(x.exp().sum()) for x in exact.log_probs(policy, tokenizer, load_data([str(problems)]))]
    rows = problems.read_text().splitlines()
    assert hard.read_text().splitlines() == [r for r, q in zip(rows, q_pos, strict=True) if 0.05 <= q < 0.15]
    assert 5 < len(hard.read_text().splitlines()) < 35
    hard.write_text("kept")
    experiments.make_hard(TINY / "policy", problems, hard)
    assert hard.read_text() == "kept"


@pytest.fixture(scope="module")
def some_runs(tmp_path_factory):
    """Runs by the names that experiments.py gives them: three real ones, the others copies of these."""
    out = tmp_path_factory.mktemp("evidence") / "runs"
    out.mkdir()
    problems = some_problems(out.parent / "test.jsonl", 8)
    settings = {"prompts_per_step": 8, "eval_data": [problems]}
    prorl = trained(out, "prorl-compact-seed0", recipe="prorl", **settings)
    brorl = trained(out, "brorl-compact-seed0", rollouts_per_prompt=16, **settings)
    flags = [f"--{name}={value}" for name, value in {
        "name": "theorem-prorl-start", "output_dir": out, "recipe": "prorl", "rollouts_per_prompt": 8,
        "prompts_per_step": 8, "learning_rate": 1e-4, "max_steps": 2, "eval_samples": 2, "eval_every": 0,
        "save_every": 1, "data": TINY / "train.jsonl", "eval_data": problems}.items()]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "evidence.exact_probe", *flags], capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    for folder in (prorl, brorl, out / "theorem-prorl-start"):
        exact.follow(folder, None, None, 1.0)
    for name in ("steps-8-seed0", "hard-prorl-seed0", "saturate-compact", "control-batch_warmup-seed0",
                 "objective-mean_centred_8-seed0", "objective_hard-mean_centred_8-seed0"):  # fmt: skip
        shutil.copytree(prorl, out / name)
    shutil.copytree(brorl, out / "sweep-16-seed0")
    (out / "prorl-compact-seed1").mkdir()  # begun elsewhere, nothing in it yet
    return out


@pytest.mark.slow
def test_a_saturated_policy_keeps_the_recipe_it_was_not_trained_with(some_runs):
    """Makes impossible: an arm that falls back to the settings of a 1.5B model after `prorl` wrote its recipe."""
    written = json.loads((some_runs / "prorl-compact-seed0/model/recipe.json").read_text())
    shipped = json.loads((TINY / "policy/recipe.json").read_text())
    kept = {name: x for name, x in written["brorl"].items() if name not in brorl.EVALUATION}  # that is the run's
    assert kept == {name: x for name, x in shipped["brorl"].items() if name not in brorl.EVALUATION}
    assert written["prorl"]["rollouts_per_prompt"]["value"] == 8


def drawn(monkeypatch, capsys, *arguments) -> str:
    """What draw.py prints, called in this process."""
    monkeypatch.setattr(sys, "argv", ["draw", *map(str, arguments)])
    draw.main()
    return capsys.readouterr().out


def read(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def metrics(folder) -> list[dict]:
    return [json.loads(x) for x in (folder / "metrics.jsonl").open()][1:]


@pytest.fixture(scope="module")
def tables(some_runs):
    """The folder of the CSVs and pictures of these runs, and what was printed."""
    out, told = some_runs.parent / "out", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
        patch.setattr(theorem1, "RESAMPLED", 50)
        patch.setattr(sys, "argv", ["draw", "--runs", str(some_runs), "--out", str(out)])
        draw.main()
    return out, told.getvalue()


@pytest.mark.slow
def test_the_command_itself(some_runs, tmp_path):
    """Makes impossible: a command of the documentation that ends in a traceback."""
    command = [sys.executable, "-m", "evidence.draw", "--runs", some_runs, "--out", tmp_path, "--only", "ttest"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "wrote ttest.csv: 1 rows" in done.stdout, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ttest.csv"]


@pytest.mark.slow
def test_the_csvs_have_the_runs_own_numbers(some_runs, tables):
    """Makes impossible: a number in a CSV that is not the run's, an unfinished run among them, a figure left out."""
    out, told = tables
    for name in ("figure1", "plateau", "shrinkage", "hard", "sweep_n", "controls", "objective", "objective_hard",
                 "theorem1"):  # fmt: skip
        assert (out / f"{name}.png").stat().st_size > 10_000
    assert "left out, not at their end or not scored yet: prorl-compact-seed1" in told
    rows = [r for r in read(out / "figure1.csv") if r["arm"] == "brorl"]
    brorl = some_runs / "brorl-compact-seed0"
    scored = [float(r["q_pos"]) for r in read(brorl / "exact.csv")]
    assert [float(r["q_pos"]) for r in rows] == pytest.approx(scored, rel=1e-5)
    assert [int(r["step"]) for r in rows] == [0, 1, 2] and {r["seed"] for r in rows} == {"0"}
    times = [json.loads(x)["cpu_seconds"] for x in (brorl / "timing.jsonl").open()]
    assert float(rows[2]["cpu_seconds"]) == pytest.approx(sum(times), abs=0.06)
    scored = [float(r["pass@64"]) for r in read(some_runs / "hard-prorl-seed0/exact.csv")]
    assert [float(r["pass@64"]) for r in read(out / "hard.csv")] == pytest.approx(scored, rel=1e-5)
    swept = read(out / "sweep_n.csv")
    assert {(r["N"], r["B"]) for r in swept} == {("8", "8"), ("16", "8")} and len(swept) == 6
    assert [r["arm"] for r in read(out / "controls.csv")] == ["batch_warmup"] * 3
    told_of = {(r["where"], r["advantage"], r["N"]) for r in read(out / "objective.csv")}
    assert told_of == {(where, "mean_centred", "8") for where in ("near", "hard")}
    rates = [row["pass_rate"] for row in metrics(brorl)]  # of the first step, and of all
    assert f"| prompts of 9 tokens | N = 512, B = 32 | {rates[0]:.1%} | {sum(rates) / 2:.1%} |" in told


@pytest.mark.slow
def test_the_other_scores_are_those_of_the_runs_models(some_runs, tables):
    """Makes impossible: held-out scores of another model, a t-test of other runs than it names."""
    out, _ = tables
    assert [row["arm"] for row in read(out / "objective_elsewhere.csv")] == ["mean_centred_8"]
    (row,) = read(out / "hard_elsewhere.csv")
    policy = exact.load_policy(str(some_runs / "hard-prorl-seed0/model"))
    known = exact.log_probs(*policy, load_data([str(TINY / "test.jsonl")]))
    assert float(row["q_pos"]) == pytest.approx(sum(float(x.exp().sum()) for x in known) / 512, rel=1e-5)
    (test,) = read(out / "ttest.csv")
    assert (test["a"], test["b"], test["instances"]) == ("prorl", "brorl", "8")
    a, b = (ttest.read(some_runs / f"{arm}-compact-seed0", None) for arm in ("prorl", "brorl"))
    want = ttest.compare(a, b)
    assert float(test["delta"]) == pytest.approx(want.delta) and float(test["low"]) == pytest.approx(want.low, rel=1e-4)


@pytest.mark.slow
def test_theorem_1_is_that_of_the_probe(some_runs, tables):
    """Makes impossible: a sum, a null or a correlation of other columns than it names; groups of another step."""
    out, _ = tables
    groups, run = read(out / "theorem1.csv"), some_runs / "theorem-prorl-start"
    assert {r["step"] for r in groups} == {"1", "2"}
    for r in groups:
        terms = [float(r[f"tree/{x}"]) for x in theorem1.TERMS]
        assert float(r["tree/total"]) == pytest.approx(sum(terms), rel=1e-3, abs=1e-8)
        assert 0 < float(r["q_pos"]) < 1 and 0 < float(r["correct_share"]) < 1
        assert float(r["q(1-q)"]) == pytest.approx(float(r["q_pos"]) * (1 - float(r["q_pos"])), rel=1e-4)
    for step, row in enumerate(metrics(run), 1):
        here = [float(r["change"]) for r in groups if r["step"] == str(step)]
        assert len(here) == row["prompts"] == row["mass_balance/groups"]
        assert row["mass_balance/q_pos_change"] == pytest.approx(sum(here) / len(here), rel=1e-4)
    nulls = {r["predicted_by"]: r for r in read(out / "theorem1_null.csv")}
    q, total, change = ([float(r[x]) for r in groups] for x in ("q(1-q)", "tree/total", "change"))
    assert float(nulls["tree"]["of_q(1-q)"]) == pytest.approx(stats.spearmanr(q, change).statistic, abs=1e-5)
    assert float(nulls["tree"]["rank_correlation"]) == pytest.approx(stats.spearmanr(total, change).statistic, abs=1e-5)
    probed = read(run / "mass_balance.csv")
    assert len(probed) == len(groups)
    for r in read(out / "coupling.csv"):
        one, other = ([float(x[f"{r['at']}/{name}"]) for x in probed]
                      for name in ("unsampled_coupling", f"coupling_undrawn_{r['undrawn']}"))  # fmt: skip
        errors = [abs(a - b) for a, b in zip(one, other, strict=True)]
        assert float(r["error"]) == pytest.approx(sum(errors) / len(probed), rel=1e-4)


@pytest.mark.slow
def test_the_csvs_give_the_same_tables_without_the_runs(tables, tmp_path, monkeypatch, capsys):
    """Makes impossible: a CSV that changes when it is read, or a table that the CSVs do not give."""
    out, told = tables
    for path in out.glob("*.csv"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(theorem1, "RESAMPLED", 50)
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)  # `tables` has drawn them
    again = drawn(monkeypatch, capsys, "--from_csv", "--out", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == {
        path.name: path.read_bytes() for path in out.glob("*.csv")
    }
    printed = [[x for x in text.splitlines() if x.startswith("| ")] for text in (told, again)]
    assert len(printed[0]) == len(printed[1]) > 30
    for row, same in zip(*printed, strict=True):  # CSVs have six digits
        numbers, others = (re.findall(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?", x) for x in (row, same))
        assert [float(x.replace(",", "")) for x in numbers] == pytest.approx(
            [float(x.replace(",", "")) for x in others], rel=1e-2, abs=2e-3
        ), (row, same)
    with pytest.raises(SystemExit):
        drawn(monkeypatch, capsys, "--runs", tmp_path / "none")
    assert "evidence.experiments" in capsys.readouterr().err


def test_the_exact_probe_is_handed_to_the_run(monkeypatch):
    """Makes impossible: exact_probe.py that trains with the sampled probe, whatever the loop is called with."""
    handed = {}
    monkeypatch.setattr(train, "main", lambda **given: handed.update(given))
    monkeypatch.setattr(sys, "argv", ["exact_probe"])
    exact_probe.main()
    assert handed == {"probe": exact_probe.ExactProbe} and sys.argv == ["exact_probe", "--log_mass_balance"]


def test_partial_correlation_is_that_of_the_residuals():
    """Makes impossible: a null that is not taken out, or a sign lost on the way."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=400)
    x, y = given + rng.normal(size=400), given + rng.normal(size=400)
    ranks = [stats.rankdata(v) for v in (x, y, given)]
    left = [r - np.polyval(np.polyfit(ranks[2], r, 1), ranks[2]) for r in ranks[:2]]
    assert theorem1.partial(x, y, given) == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-12)
    assert theorem1.spearman(x, y) > 0.4 > 0.15 > abs(theorem1.partial(x, y, given))
    assert theorem1.partial(x, -y + 3 * x, given) > 0.5


def test_at_the_same_q_pos(tmp_path, capsys):
    """Makes impossible: a seed that outweighs the others by its checkpoints, a start among those that fell."""
    names = "world", "arm", "seed", "step", "samples", "q_pos", "fell", "pass@64"
    rows = [
        ("compact", "prorl", 0, 0, 0, 0.5, 0.0, 0.9),
        ("compact", "prorl", 0, 1, 10, 0.505, 0.4, 0.8),
        ("compact", "prorl", 0, 2, 20, 0.495, 0.6, 0.7),
        ("compact", "prorl", 1, 1, 10, 0.5, 0.1, 0.5),
        ("compact", "prorl", 1, 2, 20, 0.535, 0.9, 0.5),
        ("compact", "saturate", 0, 1, 1, 0.5, 0.7, 0.6),
    ]
    runs.write(tmp_path / "figure1.csv", [dict(zip(names, row, strict=True)) for row in rows])
    null = {"amount": 0.001, "seed": 0, "q_pos": 0.5, "fell": 0.5, "pass@64": 0.6}
    more = {"amount": 0.002, "seed": 1, "fell": 0.7}
    runs.write(tmp_path / "null.csv", [null | {"amount": 0.0, "fell": 0.0}, null, null | more])
    equal_q_pos(None, tmp_path)
    found = {(r["arm"], r["q_pos"]): r for r in runs.load(tmp_path / "equal_q_pos.csv")}
    assert set(found) == {("prorl", 0.5), ("prorl", 0.54), ("null", 0.5)}
    both = found["prorl", 0.5]
    assert (both["seeds"], both["checkpoints"]) == (2, 3) and both["fell"] == pytest.approx((0.5 + 0.1) / 2)
    assert (both["fell_lowest"], both["fell_highest"]) == pytest.approx((0.1, 0.5))
    assert found["null", 0.5]["fell"] == pytest.approx(0.6) and found["null", 0.5]["seeds"] == 2


@pytest.mark.slow
def test_the_null_moves_every_weight_by_as_much_and_learns_nothing():
    """Makes impossible: a null that is no displacement, that moves the policy it was given, or that has no start."""
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    problems = load_data([str(TINY / "test.jsonl")])[:6]
    before = [weights.clone() for weights in policy.parameters()]
    moved = null.displaced(policy, 0.003, seed=1)
    for old, weights, new in zip(before, policy.parameters(), moved.parameters(), strict=True):
        assert torch.equal(old, weights)
        torch.testing.assert_close((new - old).abs(), torch.full_like(old, 0.003), rtol=0, atol=1e-6)
        assert old.numel() < 100 or abs((new - old).sign().mean()) < 0.3
    start, near, far = null.rows(policy, tokenizer, problems, [1e-5, 0.05], [0])
    assert (start["amount"], start["fell"], start["improved"]) == (0.0, 0.0, 0.0)
    assert near["q_pos"] == pytest.approx(start["q_pos"], abs=0.01) and 0.2 < near["fell"] < 0.8
    assert far["q_pos"] < start["q_pos"]


FAKE = """
import json, os, pathlib, signal, sys, time
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
run = pathlib.Path(flags["--output_dir"], flags["--name"])
run.mkdir(exist_ok=True)
(run / "config.json").write_text(json.dumps({"max_steps": 40, "max_samples": None, "learning_rate": 1e-4}))
rows = run / "metrics.jsonl"
step = len(rows.read_text().splitlines()) if rows.exists() else 0
assert (step > 0) == ("--resume" in sys.argv)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
while step <= 40:
    with rows.open("a") as file:
        file.write(json.dumps({"step": step, "samples": 16 * step}) + chr(10))
    (run / "checkpoints" / f"step_{step:08d}").mkdir(parents=True, exist_ok=True)
    if stopped:
        sys.exit(143)
    time.sleep(0.02)
    step += 1
(run / "model").mkdir()
"""
FAKE_SCORE = """
import pathlib, sys
run = pathlib.Path(sys.argv[1])
steps = [x.name.removeprefix("step_").lstrip("0") or "0" for x in sorted((run / "checkpoints").iterdir())]
(run / "exact.csv").write_text(chr(10).join(["step", *steps]))
"""


def test_experiments_stop_refuse_a_second_one_and_go_on(tmp_path):
    """Makes impossible: a run that outlives its SIGTERM or begins anew after it, two at work in a folder, no scores.

    Real processes and signals, with scripts in the place of train.py and exact.py: the slow test has the real ones.
    """
    out, driver = tmp_path / "runs", tmp_path / "driver.py"
    (tmp_path / "fake.py").write_text(FAKE)
    (tmp_path / "score.py").write_text(FAKE_SCORE)
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from evidence import experiments\n"
        f"experiments.SCORE, fake = ({str(tmp_path / 'score.py')!r},), ({str(tmp_path / 'fake.py')!r},)\n"
        "flags = ['--learning_rate', '1e-4', '--max_steps', '40']\n"
        "one = experiments.Run('figure1', 'one', flags, [], fake)\n"
        "two = experiments.Run('figure1', 'two', flags, ['one'], fake)\n"
        "experiments.runs = lambda out, seeds: [one, two]\n"
        "experiments.main()\n"
    )
    command, metrics = [sys.executable, driver, "--out", out, "--jobs", "1"], out / "one/metrics.jsonl"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **pipes, start_new_session=True)
    deadline = time.time() + 60
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert time.time() < deadline and first.poll() is None
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGINT)  # as Ctrl-C does, to all of the terminal's processes
    _, told = first.communicate(timeout=60)
    assert "stopped: the same command goes on from here" in told
    written = metrics.read_text()
    last = json.loads(written.splitlines()[-1])["step"]
    assert 2 <= last < 40 and (out / f"one/checkpoints/step_{last:08d}").is_dir()
    assert not (out / "two").exists() and not (out / "one/exact.csv").exists()
    lock = (out / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1 and "is at work in" in second.stderr
    lock.close()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "two finished" in done.stdout, done.stderr
    assert metrics.read_text().startswith(written)  # not begun anew
    for name in ("one", "two"):
        assert experiments.scored(out / name) == set(range(41))
        assert len(list((out / name / "checkpoints").glob("step_*"))) == 1
    listed = subprocess.run([*command, "--list"], capture_output=True, text=True)
    assert listed.stdout.count("finished") == 2
    driver.write_text(driver.read_text().replace("1e-4", "2e-4"))
    changed = subprocess.run([*command, "--list"], capture_output=True, text=True)
    assert changed.stdout.count("made with another --learning_rate (0.0001, not 2e-4)") == 2


@pytest.mark.slow
def test_real_runs_stop_with_a_checkpoint_and_go_on(tmp_path):
    """Makes impossible: a run that outlives its SIGTERM or begins anew after it, two at work in a folder, no scores."""
    out, problems = tmp_path / "runs", some_problems(tmp_path / "test.jsonl", 8)
    flags = ["--rollouts_per_prompt", "4", "--prompts_per_step", "4", "--learning_rate", "1e-4", "--max_steps", "40",
             "--eval_samples", "2", "--eval_every", "0", "--save_every", "10", "--keep_checkpoints", "99",
             "--data", str(TINY / "train.jsonl"), "--eval_data", problems]  # fmt: skip
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from evidence import experiments\n"
        f"one = experiments.Run('figure1', 'one', {flags!r})\n"
        "experiments.runs = lambda out, seeds: [one, experiments.Run('figure1', 'two', one.arguments, ['one'])]\n"
        "experiments.main()\n"
    )
    command, metrics = [sys.executable, driver, "--out", out, "--jobs", "1"], out / "one/metrics.jsonl"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **pipes, start_new_session=True)
    deadline = time.time() + 120
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 5:
        assert time.time() < deadline and first.poll() is None
        time.sleep(0.05)
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1 and "is at work in" in second.stderr
    os.killpg(first.pid, signal.SIGINT)  # as Ctrl-C does, to all of the terminal's processes
    _, told = first.communicate(timeout=120)
    assert "stopped: the same command goes on from here" in told
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()[1:]]
    assert 4 <= steps[-1] < 40 and (out / f"one/checkpoints/step_{steps[-1]:08d}").is_dir()
    assert not (out / "two").exists() and not (out / "one/exact.csv").exists()
    written = metrics.read_text()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "two finished" in done.stdout, done.stderr
    assert metrics.read_text().startswith(written)  # not begun anew
    for name in ("one", "two"):
        again = [json.loads(line)["step"] for line in (out / name / "metrics.jsonl").read_text().splitlines()[1:]]
        assert again == list(range(1, 41))
        assert {0, 10, 20, 30, 40} <= experiments.scored(out / name)
        assert len(list((out / name / "checkpoints").glob("step_*"))) == 1
    listed = subprocess.run([*command, "--list"], capture_output=True, text=True)
    assert listed.stdout.count("finished") == 2
    driver.write_text(driver.read_text().replace("'--learning_rate', '1e-4'", "'--learning_rate', '2e-4'"))
    changed = subprocess.run([*command, "--list"], capture_output=True, text=True)
    assert changed.stdout.count("made with another --learning_rate (0.0001, not 2e-4)") == 2
