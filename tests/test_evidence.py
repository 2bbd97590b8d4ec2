"""evidence/: the runs behind docs/evidence.md, their CSVs, tables and pictures."""

import csv
import json
import math
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
from scipy import stats
from tiny_runs import TINY, some_problems, trained

import train
from evidence import collect, draw, exact_probe, experiments, rows, statistics, tables, ttest
from tiny import exact
from train import Config
from trainer.checks import resolve
from trainer.settings import Parser
from verify import load_data

ROOT = Path(__file__).parent.parent


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_every_run_is_one_that_train_would_start(tmp_path):
    """Makes impossible: a misspelt setting, a name that two runs share, a start or a problem list that nobody makes."""
    found = list(experiments.runs([0, 1, 2]))
    names = [run.name for run in found]
    assert len(set(names)) == len(names) and {run.start for run in found} - {""} <= set(names)
    expected = {  # N, B, learning rate
        "prorl": (16, 128, 3.5e-5), "brorl": (512, 32, 1e-4), "batch": (16, 1024, 1e-4),
        "prorl_lr10": (16, 128, 1e-5), "batch_lr10": (16, 1024, 1e-5), "batch_lr35": (16, 1024, 3.5e-5),
        "brorl_lr10": (512, 32, 1e-5), "brorl_lr35": (512, 32, 3.5e-5), "prorl_few": (16, 32, 1e-4),
        "brorl128_lr35": (512, 128, 3.5e-5), "brorl128_lr100": (512, 128, 1e-4), "saturate": (16, 128, 3.5e-5),
    }  # fmt: skip
    for run in found:
        flags = experiments.flags(tmp_path, run)
        (config,) = Parser(Config, allow_abbrev=False).parse_args_into_dataclasses(flags)
        assert config.model == (f"{tmp_path}/{run.start}/model" if run.start else
                                f"{tmp_path}/long/policy" if run.problems else None)  # fmt: skip
        lists = {"": None, "long": f"{tmp_path}/long/train.jsonl"}.get(run.problems, f"{tmp_path}/{run.problems}.jsonl")
        assert config.data == (lists and [lists])
        config.model, config.data, config.eval_data = str(TINY / "policy"), None, None  # whose recipe all of them keep
        resolve(config)
        settings = config.rollouts_per_prompt, config.prompts_per_step, config.learning_rate
        kind, what, *_ = [*run.name.split("-"), ""]
        if (arm := what if kind in ("hard", "theorem", "control") else kind) in expected:
            assert settings == expected[arm]
        elif run.part == "law":
            assert settings[0] * settings[1] == 4096


def test_a_finished_run_with_other_settings_is_named(tmp_path):
    """Makes impossible: a run with other settings that counts as this one."""
    run = experiments.Run("figure1", "one", {"learning_rate": 1e-4, "seed": 1, "max_steps": 4})
    (tmp_path / "one").mkdir()
    for rate, other in ((1e-4, []), (2e-4, ["--learning_rate (0.0002, not 0.0001)"])):
        (tmp_path / "one/config.json").write_text(json.dumps({"learning_rate": rate, "seed": 1, "max_steps": 9}))
        assert experiments.changed(tmp_path, run) == other


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
def test_hard_problems_are_those_between_two_probabilities(tmp_path, monkeypatch):
    """Makes impossible: easy problems among the hard ones, rows that are not the problems', a list made twice."""
    problems, hard = Path(some_problems(tmp_path / "some.jsonl", 40, of="train")), tmp_path / "hard.jsonl"
    monkeypatch.setattr(experiments, "HARD", (0.05, 0.15))
    experiments.make_hard(TINY / "policy", problems, hard)
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    q_pos = [float(x.exp().sum()) for x in exact.log_probs(policy, tokenizer, load_data([str(problems)]))]
    lines = problems.read_text().splitlines()
    assert hard.read_text().splitlines() == [r for r, q in zip(lines, q_pos, strict=True) if 0.05 <= q < 0.15]
    assert 5 < len(hard.read_text().splitlines()) < 35
    hard.write_text("kept")
    experiments.make_hard(TINY / "policy", problems, hard)
    assert hard.read_text() == "kept"


# ------------------------------------------------------------------------------------------------ runs to CSVs


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
        exact.follow(folder)
    for name in ("steps-8-seed0", "hard-prorl-seed0", "saturate-compact", "control-batch_warmup-seed0", "law-n8-seed0",
                 "objective-mean_centred_8-seed0", "objective_hard-mean_centred_8-seed0"):  # fmt: skip
        shutil.copytree(prorl, out / name)
    shutil.copytree(prorl, out / "prorl-compact-seed1")
    shutil.rmtree(out / "prorl-compact-seed1/model")  # not at its end
    return out


@pytest.fixture(scope="module")
def csvs(some_runs):
    """The folder of their CSVs."""
    out = some_runs.parent / "csvs"
    out.mkdir()
    command = [sys.executable, "-m", "evidence.collect", "--runs", some_runs, "--csvs", out]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "prorl-compact-seed1" in done.stdout, done.stderr
    return out


def read(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


@pytest.mark.slow
def test_the_csvs_have_the_runs_own_numbers(some_runs, csvs):
    """Makes impossible: a number in a CSV that is not the run's, an unfinished run among them, a run left out."""
    table = [r for r in read(csvs / "figure1.csv") if r["arm"] == "brorl"]
    brorl = some_runs / "brorl-compact-seed0"
    scored = [float(r["q_pos"]) for r in read(brorl / "exact.csv")]
    assert [float(r["q_pos"]) for r in table] == pytest.approx(scored, rel=1e-5)
    assert [int(r["step"]) for r in table] == [0, 1, 2] and {r["seed"] for r in table} == {"0"}
    times = [json.loads(x)["cpu_seconds"] for x in (brorl / "timing.jsonl").open()]
    assert float(table[2]["cpu_seconds"]) == pytest.approx(sum(times), abs=0.06)
    metrics = [json.loads(x) for x in (brorl / "metrics.jsonl").open()][1:]
    (first, _) = [r for r in read(csvs / "table2.csv") if r["arm"] == "brorl"]
    assert float(first["pass_rate"]) == pytest.approx(metrics[0]["pass_rate"], rel=1e-5)
    assert {(r["held"], r["N"], r["B"]) for r in read(csvs / "sweep_n.csv")} == {("steps", "8", "8")}
    assert [r["arm"] for r in read(csvs / "controls.csv")] == ["batch_warmup"] * 3
    objectives = {(r["where"], r["advantage"], r["N"]) for r in read(csvs / "objective.csv")}
    assert objectives == {(where, "mean_centred", "8") for where in ("near", "hard")}
    assert {r["arm"] for r in read(csvs / "figure1.csv")} == {"prorl", "brorl", "saturate"}
    assert len(read(csvs / "regimes.csv")) == 6 and len(read(csvs / "law.csv")) == 1


@pytest.mark.slow
def test_the_other_scores_are_those_of_the_runs_models(some_runs, csvs):
    """Makes impossible: held-out scores of another model, a t-test of other runs than it names."""
    assert [row["arm"] for row in read(csvs / "objective_elsewhere.csv")] == ["mean_centred_8"]
    (row,) = read(csvs / "hard_elsewhere.csv")
    policy = exact.load_policy(str(some_runs / "hard-prorl-seed0/model"))
    known = exact.log_probs(*policy, load_data([str(TINY / "test.jsonl")]))
    assert float(row["q_pos"]) == pytest.approx(sum(float(x.exp().sum()) for x in known) / 512, rel=1e-5)
    (test,) = read(csvs / "ttest.csv")
    assert (test["a"], test["b"], test["instances"]) == ("prorl", "brorl", "8")
    a, b = (ttest.read(some_runs / f"{arm}-compact-seed0", None) for arm in ("prorl", "brorl"))
    want = ttest.compare(a, b)
    assert float(test["delta"]) == pytest.approx(want.delta) and float(test["low"]) == pytest.approx(want.low, rel=1e-4)


@pytest.mark.slow
def test_theorem_1_is_that_of_the_probe(some_runs, csvs):
    """Makes impossible: a sum, a null or a guess of other columns than it names; groups of another step."""
    groups, run = read(csvs / "theorem1.csv"), some_runs / "theorem-prorl-start"
    for r in groups:
        terms = [float(r[f"tree/{x}"]) for x in rows.TERMS]
        assert float(r["tree/total"]) == pytest.approx(sum(terms), rel=1e-3, abs=1e-8)
        assert float(r["q(1-q)"]) == pytest.approx(float(r["q_pos"]) * (1 - float(r["q_pos"])), rel=1e-4)
    for step, line in enumerate((run / "metrics.jsonl").read_text().splitlines()[1:], 1):
        row, changes = json.loads(line), [float(r["change"]) for r in groups if r["step"] == str(step)]
        assert len(changes) == row["prompts"] == row["mass_balance/groups"]
        assert row["mass_balance/q_pos_change"] == pytest.approx(sum(changes) / len(changes), rel=1e-4)
    probed = read(run / "mass_balance.csv")
    assert len(probed) == len(groups)
    for r in read(csvs / "coupling.csv"):
        one, other = ([float(x[f"{r['at']}/{name}"]) for x in probed]
                      for name in ("unsampled_coupling", f"coupling_undrawn_{r['undrawn']}"))  # fmt: skip
        errors = [abs(a - b) for a, b in zip(one, other, strict=True)]
        assert float(r["error"]) == pytest.approx(sum(errors) / len(probed), rel=1e-4)


def test_the_exact_probe_is_the_probe_of_the_run(monkeypatch):
    """Makes impossible: exact_probe.py that trains with the sampled probe, whatever the loop is called with."""
    handed = {}
    monkeypatch.setattr(train, "main", lambda **given: handed.update(given))
    monkeypatch.setattr(sys, "argv", ["exact_probe"])
    exact_probe.main()
    assert handed == {"probe": exact_probe.ExactProbe} and sys.argv == ["exact_probe", "--log_mass_balance"]


@pytest.mark.slow
def test_the_null_moves_every_weight_by_as_much_and_learns_nothing(tmp_path):
    """Makes impossible: a null that moves no weight, or that moves the policy itself."""
    policy, _ = exact.load_policy(str(TINY / "policy"))
    before = [weights.clone() for weights in policy.parameters()]
    moved = collect.displaced(policy, 0.003, seed=1)
    for old, weights, new in zip(before, policy.parameters(), moved.parameters(), strict=True):
        assert torch.equal(old, weights)
        torch.testing.assert_close((new - old).abs(), torch.full_like(old, 0.003), rtol=0, atol=1e-6)
        assert old.numel() < 100 or abs((new - old).sign().mean()) < 0.3
    problems = load_data([str(TINY / "test.jsonl")])[:6]
    (tmp_path / "model").symlink_to(TINY / "policy")
    near = collect.null(tmp_path, problems, [1e-5])
    assert all(0.2 < row["fell"] < 0.8 for row in near)


# ------------------------------------------------------------------------------------------------ CSVs to pages


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
    others |= {"price.png", "real_plateau.png"}  # their own commands draw these
    assert drawn == {path.name for path in rows.EVIDENCE.glob("*.png")} - others


# ------------------------------------------------------------------------------------------------ the runner

FAKE = """
import json, pathlib, sys, time
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
run = pathlib.Path(flags["--output_dir"], flags["--name"])
run.mkdir(exist_ok=True)
(run / "config.json").write_text(json.dumps({"max_steps": 40, "learning_rate": 1e-4}))
path = run / "metrics.jsonl"
step = len(path.read_text().splitlines()) if path.exists() else 0
assert (step > 0) == ("--resume" in sys.argv)
while step <= 40:
    (run / "checkpoints" / f"step_{step:08d}").mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:  # after the checkpoint: killed between the two, it does the step again
        file.write(json.dumps({"step": step, "samples": 16 * step}) + chr(10))
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


def test_experiments_end_when_killed_and_go_on(tmp_path):
    """Makes impossible: a run that outlives the runner or begins anew after it, a run without scores.

    Real processes and signals, with scripts in the place of train.py and exact.py.
    """
    out, driver = tmp_path / "runs", tmp_path / "driver.py"
    (tmp_path / "fake.py").write_text(FAKE)
    (tmp_path / "score.py").write_text(FAKE_SCORE)
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from evidence import experiments\n"
        f"experiments.SCORE, fake = ({str(tmp_path / 'score.py')!r},), ({str(tmp_path / 'fake.py')!r},)\n"
        "settings = {'learning_rate': 1e-4, 'max_steps': 40}\n"
        "one = experiments.Run('figure1', 'one', settings, script=fake)\n"
        "two = experiments.Run('figure1', 'two', settings, 'one', script=fake)\n"
        "experiments.runs = lambda seeds: [one, two]\n"
        "experiments.main()\n"
    )
    command, metrics = [sys.executable, driver, "--out", out, "--jobs", "1"], out / "one/metrics.jsonl"
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.time() + 600
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert time.time() < deadline and first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=600) == 1
    time.sleep(0.5)
    written = metrics.read_text()
    time.sleep(0.5)
    assert metrics.read_text() == written and not (out / "two").exists() and not (out / "one/exact.csv").exists()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "two finished" in done.stdout, done.stderr
    assert metrics.read_text().startswith(written)  # not begun anew
    for name in ("one", "two"):
        assert experiments.scored(out / name) == set(range(41))
        assert len(list((out / name / "checkpoints").glob("step_*"))) == 1
    listed = subprocess.run([*command, "--list"], capture_output=True, text=True)
    assert listed.stdout.count("finished") == 2
