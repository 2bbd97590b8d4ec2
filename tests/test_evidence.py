"""figures/experiments.py and figures/evidence.py: the runs behind the README's evidence, their tables and figures."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import HfArgumentParser

import train
from train import Config
from verify import load_data

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "figures"))

sys.path.insert(0, str(ROOT / "tiny"))

import evidence
import exact
import experiments
import null


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
        config.model = str(train.TINY / "policy")  # whose recipe a saturated policy keeps
        train.resolve(config)
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


def test_a_saturated_policy_keeps_the_recipe_it_was_not_trained_with(tmp_path):
    """Makes impossible: an arm that falls back to the settings of a 1.5B model after `prorl` wrote its recipe."""
    command = [sys.executable, ROOT / "train.py", "--recipe", "prorl", "--output_dir", tmp_path, "--max_steps", "1",
               "--rollouts_per_prompt", "4", "--prompts_per_step", "8", "--eval_samples", "2"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    written = json.loads((tmp_path / "prorl-seed0/model/recipe.json").read_text())
    shipped = json.loads((train.TINY / "policy/recipe.json").read_text())
    assert written["brorl"] == shipped["brorl"] and written["prorl"]["rollouts_per_prompt"]["value"] == 4


def test_interval_is_students():
    """Makes impossible: a normal interval of three seeds, a population deviation, half of the width for the whole."""
    x = [0.51, 0.55, 0.52]
    mean, half = evidence.interval(x)
    low, high = stats.t.interval(0.95, 2, loc=mean, scale=stats.sem(x))
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert math.isnan(evidence.interval([0.5])[1])


def test_a_score_between_two_checkpoints_and_beyond_the_last():
    """Makes impossible: a run that is credited with a score at a budget that it did not spend."""
    rows = [{"samples": 0, "q_pos": 0.2}, {"samples": 100, "q_pos": 0.4}]
    assert evidence.at(rows, "samples", 25, "q_pos") == pytest.approx(0.25)
    assert math.isnan(evidence.at(rows, "samples", 101, "q_pos"))


def test_where_one_arm_overtakes_another_and_where_a_score_is_first_reached():
    """Makes impossible: a crossing on the wrong axis, one that is taken back later, a level that was never reached."""
    slow = [{"samples": 0, "cpu_seconds": 0, "q_pos": 0.2}, {"samples": 100, "cpu_seconds": 100, "q_pos": 0.4}]
    late = [{"samples": 0, "cpu_seconds": 0, "q_pos": 0.1}, {"samples": 100, "cpu_seconds": 50, "q_pos": 0.6}]
    told, one = evidence.crossing([late], [slow], "samples", "samples"), " (means of 1 and 1 seeds)"
    assert told == "above from 34 samples on, to the end at 100" + one
    told = evidence.crossing([late], [slow], "cpu_seconds", "s")
    assert told == "above from 13 s on, to the end at 50" + one
    told = evidence.crossing([slow], [late], "samples", "samples")
    assert told == "below at 100 samples, above on 33% of the way there" + one
    rows = [{"samples": x, "q_pos": q} for x, q in ((0, 0.1), (10, 0.3), (20, 0.2), (30, 0.5))]
    assert evidence.first_at(rows, "q_pos", 0.25, "samples") == pytest.approx(7.5)
    assert evidence.first_at(rows, "q_pos", 0.4, "samples") == pytest.approx(20 + 20 / 3)
    assert math.isnan(evidence.first_at(rows, "q_pos", 0.6, "samples"))


def test_hard_problems_are_those_between_two_probabilities(tmp_path, monkeypatch):
    """Makes impossible: easy problems among the hard ones, rows that are not the problems', a list made twice."""
    problems, hard = tmp_path / "some.jsonl", tmp_path / "hard.jsonl"
    problems.write_text("".join((train.TINY / "train.jsonl").read_text().splitlines(keepends=True)[:40]))
    monkeypatch.setattr(experiments, "HARD", (0.05, 0.15))
    experiments.make_hard(train.TINY / "policy", problems, hard)
    policy, tokenizer = exact.load_policy(str(train.TINY / "policy"))
    q_pos = [float(x.exp().sum()) for x in exact.log_probs(policy, tokenizer, load_data([str(problems)]))]
    rows = problems.read_text().splitlines()
    assert hard.read_text().splitlines() == [r for r, q in zip(rows, q_pos, strict=True) if 0.05 <= q < 0.15]
    assert 5 < len(hard.read_text().splitlines()) < 35
    hard.write_text("kept")
    experiments.make_hard(train.TINY / "policy", problems, hard)
    assert hard.read_text() == "kept"


def test_tables_and_figures_of_real_runs(tmp_path):
    """Makes impossible: a number in a CSV that is not the run's, an unfinished run among them, a figure left out."""
    problems = tmp_path / "test.jsonl"
    problems.write_text("".join((train.TINY / "test.jsonl").read_text().splitlines(keepends=True)[:8]))
    runs = {
        "prorl-compact-seed0": ["--recipe", "prorl", "--rollouts_per_prompt", "8"],
        "brorl-compact-seed0": ["--rollouts_per_prompt", "16"],
        "sweep-16-seed0": ["--rollouts_per_prompt", "16"],
        "steps-8-seed0": ["--rollouts_per_prompt", "8"],
        "hard-prorl-seed0": ["--recipe", "prorl", "--rollouts_per_prompt", "8"],
        "saturate-compact": ["--recipe", "prorl", "--rollouts_per_prompt", "8"],
        "control-batch_warmup-seed0": ["--rollouts_per_prompt", "8", "--warmup_updates", "16"],
        "theorem-prorl-start": ["--recipe", "prorl", "--rollouts_per_prompt", "8", "--log_mass_balance"],
    }
    for name, flags in runs.items():
        script = ROOT / ("figures/exact_probe.py" if "theorem" in name else "train.py")
        command = [sys.executable, script, "--name", name, "--output_dir", tmp_path / "runs", *flags]
        command += ["--max_steps", "2", "--prompts_per_step", "8", "--learning_rate", "1e-4", "--eval_samples", "2",
                    "--save_every", "1", "--data", train.TINY / "train.jsonl", "--eval_data", problems]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        subprocess.run(
            [sys.executable, ROOT / "tiny/exact.py", tmp_path / "runs" / name], check=True, capture_output=True
        )
    (tmp_path / "runs/prorl-compact-seed1").mkdir()  # begun elsewhere, nothing in it yet
    command = [sys.executable, ROOT / "figures/evidence.py", "--runs", tmp_path / "runs", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("figure1", "plateau", "shrinkage", "regimes", "hard", "table2", "sweep_n", "controls", "theorem1"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000

    def read(path):
        return list(csv.DictReader(path.open()))

    rows = [r for r in read(tmp_path / "figure1.csv") if r["arm"] == "brorl"]
    scored = read(tmp_path / "runs/brorl-compact-seed0/exact.csv")
    assert [float(r["q_pos"]) for r in rows] == pytest.approx([float(r["q_pos"]) for r in scored], rel=1e-5)
    assert [int(r["step"]) for r in rows] == [0, 1, 2] and {r["seed"] for r in rows} == {"0"}
    times = [json.loads(x)["cpu_seconds"] for x in (tmp_path / "runs/brorl-compact-seed0/timing.jsonl").open()]
    assert float(rows[2]["cpu_seconds"]) == pytest.approx(sum(times), abs=0.06)
    scored = [float(r["pass@64"]) for r in read(tmp_path / "runs/hard-prorl-seed0/exact.csv")]
    assert [float(r["pass@64"]) for r in read(tmp_path / "hard.csv")] == pytest.approx(scored, rel=1e-5)
    (row,) = read(tmp_path / "hard_elsewhere.csv")
    policy = exact.load_policy(str(tmp_path / "runs/hard-prorl-seed0/model"))
    known = exact.log_probs(*policy, load_data([str(train.TINY / "test.jsonl")]))
    assert float(row["q_pos"]) == pytest.approx(sum(float(x.exp().sum()) for x in known) / 512, rel=1e-5)
    (test,) = read(tmp_path / "ttest.csv")
    assert (test["a"], test["b"], test["instances"]) == ("prorl", "brorl", "8")
    command_t = [
        sys.executable,
        ROOT / "figures/ttest.py",
        *(tmp_path / f"runs/{x}-compact-seed0" for x in ("prorl", "brorl")),
    ]
    printed = subprocess.run(command_t, capture_output=True, text=True, check=True).stdout
    assert f"{float(test['delta']):+.4f}, standard error {float(test['standard_error']):.4f}" in printed
    swept = read(tmp_path / "sweep_n.csv")
    assert {(r["N"], r["B"]) for r in swept} == {("8", "8"), ("16", "8")} and len(swept) == 6
    groups = read(tmp_path / "theorem1.csv")
    assert len(groups) == 16 and {r["step"] for r in groups} == {"1", "2"}
    for r in groups:
        terms = [float(r[f"tree/{x}"]) for x in evidence.TERMS]
        assert float(r["tree/total"]) == pytest.approx(sum(terms), rel=1e-3, abs=1e-8)
        assert 0 < float(r["q_pos"]) < 1 and 0 < float(r["correct_share"]) < 1
    metrics = [json.loads(x) for x in (tmp_path / "runs/theorem-prorl-start/metrics.jsonl").open()][1:]
    for step, row in enumerate(metrics, 1):
        here = [float(r["change"]) for r in groups if r["step"] == str(step)]
        assert row["mass_balance/q_pos_change"] == pytest.approx(sum(here) / len(here), rel=1e-4)
        assert float(r["q(1-q)"]) == pytest.approx(float(r["q_pos"]) * (1 - float(r["q_pos"])), rel=1e-4)
    nulls = {r["predicted_by"]: r for r in read(tmp_path / "theorem1_null.csv")}
    q, total, change = ([float(r[x]) for r in groups] for x in ("q(1-q)", "tree/total", "change"))
    assert float(nulls["tree"]["of_q(1-q)"]) == pytest.approx(stats.spearmanr(q, change).statistic, abs=1e-5)
    assert float(nulls["tree"]["rank_correlation"]) == pytest.approx(stats.spearmanr(total, change).statistic, abs=1e-5)
    warm = [r for r in read(tmp_path / "controls.csv") if r["arm"] == "batch_warmup"]
    assert [int(r["step"]) for r in warm] == [0, 1, 2]
    probed = read(tmp_path / "runs/theorem-prorl-start/mass_balance.csv")
    for r in read(tmp_path / "coupling.csv"):
        one, other = ([float(x[f"{r['at']}/{name}"]) for x in probed]
                      for name in ("unsampled_coupling", f"coupling_undrawn_{r['undrawn']}"))  # fmt: skip
        errors = [abs(a - b) for a, b in zip(one, other, strict=True)]
        assert float(r["error"]) == pytest.approx(sum(errors) / 16, rel=1e-4)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    again = subprocess.run([*command[:2], "--from_csv", "--out", tmp_path], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == before
    tables = [[x for x in told.splitlines() if x.startswith("| ")] for told in (done.stdout, again.stdout)]
    assert len(tables[0]) == len(tables[1]) > 30
    for row, same in zip(*tables, strict=True):  # CSVs have six digits
        numbers, others = (re.findall(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?", x) for x in (row, same))
        assert [float(x.replace(",", "")) for x in numbers] == pytest.approx(
            [float(x.replace(",", "")) for x in others], rel=1e-2, abs=2e-3
        ), (row, same)
    rates = [row["pass_rate"] for row in lines(tmp_path, "brorl")]  # of the first step, and of all
    assert f"| prompts of 9 tokens | N = 512, B = 32 | {rates[0]:.1%} | {sum(rates) / 2:.1%} |" in done.stdout
    empty = subprocess.run([*command[:2], "--runs", tmp_path / "none"], capture_output=True, text=True)
    assert empty.returncode == 2 and "experiments.py" in empty.stderr


def test_partial_correlation_is_that_of_the_residuals():
    """Makes impossible: a null that is not taken out, or a sign lost on the way."""
    rng = np.random.default_rng(0)
    given = rng.normal(size=400)
    x, y = given + rng.normal(size=400), given + rng.normal(size=400)
    ranks = [stats.rankdata(v) for v in (x, y, given)]
    left = [r - np.polyval(np.polyfit(ranks[2], r, 1), ranks[2]) for r in ranks[:2]]
    assert evidence.partial(x, y, given) == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-12)
    assert evidence.spearman(x, y) > 0.4 > 0.15 > abs(evidence.partial(x, y, given))
    assert evidence.partial(x, -y + 3 * x, given) > 0.5


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
    evidence.write(tmp_path / "figure1.csv", [dict(zip(names, row, strict=True)) for row in rows])
    null = {"amount": 0.001, "seed": 0, "q_pos": 0.5, "fell": 0.5, "pass@64": 0.6}
    more = {"amount": 0.002, "seed": 1, "fell": 0.7}
    evidence.write(tmp_path / "null.csv", [null | {"amount": 0.0, "fell": 0.0}, null, null | more])
    evidence.equal_q_pos(None, tmp_path)
    found = {(r["arm"], r["q_pos"]): r for r in evidence.load(tmp_path / "equal_q_pos.csv")}
    assert set(found) == {("prorl", 0.5), ("prorl", 0.54), ("null", 0.5)}
    both = found["prorl", 0.5]
    assert (both["seeds"], both["checkpoints"]) == (2, 3) and both["fell"] == pytest.approx((0.5 + 0.1) / 2)
    assert (both["fell_lowest"], both["fell_highest"]) == pytest.approx((0.1, 0.5))
    assert found["null", 0.5]["fell"] == pytest.approx(0.6) and found["null", 0.5]["seeds"] == 2


def test_the_null_moves_every_weight_by_as_much_and_learns_nothing():
    """Makes impossible: a null that is no displacement, that moves the policy it was given, or that has no start."""
    policy, tokenizer = exact.load_policy(str(train.TINY / "policy"))
    problems = load_data([str(train.TINY / "test.jsonl")])[:6]
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


@pytest.mark.parametrize("page", ["README.md", "docs/evidence.md", "docs/paper_figures.md"])
def test_what_a_page_links_to_is_there(page):
    """Makes impossible: a figure or a table that a reader is sent to and that was never committed."""
    path = ROOT / page
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert len(links) > 5
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    for link in links:
        found = (path.parent / link).resolve()
        assert found.exists(), link
        assert not tracked or found.is_dir() or str(found.relative_to(ROOT.resolve())) in tracked, link


def lines(folder, arm):
    return [json.loads(x) for x in (folder / f"runs/{arm}-compact-seed0/metrics.jsonl").open()][1:]


def test_experiments_stop_with_a_checkpoint_refuse_a_second_one_and_go_on(tmp_path):
    """Makes impossible: a run that outlives its SIGTERM or begins anew after it, two at work in a folder, no scores."""
    out, problems = tmp_path / "runs", tmp_path / "test.jsonl"
    problems.write_text("".join((train.TINY / "test.jsonl").read_text().splitlines(keepends=True)[:8]))
    flags = ["--rollouts_per_prompt", "4", "--prompts_per_step", "4", "--learning_rate", "1e-4", "--max_steps", "40",
             "--eval_samples", "2", "--eval_every", "0", "--save_every", "10", "--keep_checkpoints", "99",
             "--data", str(train.TINY / "train.jsonl"), "--eval_data", str(problems)]  # fmt: skip
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT / 'figures')!r})\n"
        "import experiments\n"
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
