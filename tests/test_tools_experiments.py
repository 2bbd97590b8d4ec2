"""tools/experiments.py: plans, statistics by hand, runs that are killed or short of disk, one small experiment."""

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, few_problems, wait_until
from scipy import stats

import train
from tiny import exact
from tools import experiments
from tools.experiments import Mistake, chosen, counted, missing, plan_of, runs_of, small, table, welch
from trainer.settings import Config, read_settings

PLAN = """
question = "Which arm is ahead?"
paths = ["policy"]
tuning_seed = 0
seeds = [1, 2]
choose_by = "score"
rows = "evaluation"
columns = ["learning_rate", "step", "samples", "score"]
axis = "samples"
scores = ["score"]
panels = [["samples", "score"]]
try_fraction = 0.5
settings = { model = "{policy}", max_steps = 4, objective = ["brorl", "clip_high=0.3"] }

[arms]
a = { learning_rate = { choose = [1.0, 2.0, 4.0] } }
b = { learning_rate = { of = "a", times = 3 }, seeds = [1, 2, 3] }
c = { learning_rate = 9.0 }

[[predictions]]
claim = "a is ahead of c."
compare = ["a", "c", "score"]
between = [0.0, 1.0]
"""


@pytest.fixture
def evidence(tmp_path, monkeypatch):
    """A folder for plans and data, with the plan `one`, and a policy folder. Runs are made in tmp_path/runs."""
    monkeypatch.setattr(experiments, "EVIDENCE", tmp_path / "evidence")
    monkeypatch.setattr(experiments, "RUNS", tmp_path / "runs")
    for folder in ("evidence", "policy"):
        (tmp_path / folder).mkdir()
    (tmp_path / "policy/weights").write_text("0.5")
    (tmp_path / "evidence/one.toml").write_text(PLAN)
    return tmp_path / "evidence"


def score_of(arm, value, seed):
    """The last score of a run: of the values of a, 2 is the best with seed 0, and 4 with the others."""
    return {"a": 0.5, "b": 0.4, "c": 0.3}[arm] + (0.1 if value == (4.0 if seed else 2.0) else 0) + seed / 1000


def made(plan, paths, arm, value, seed):
    """The rows of a run, in place of `experiments.make`."""
    last = score_of(arm, value, seed)
    return [
        {"arm": arm, "value": value, "seed": seed, "learning_rate": value, "step": x, "samples": 100 * x, "score": y}
        for x, y in ((0, 0.2), (4, last))
    ]


def rows(*runs):
    """The rows of these runs (arm, value, seed)."""
    return [row for run in runs for row in made({}, {}, *run)]


# ------------------------------------------------------------------------------------------------------- statistics


def test_the_interval_is_that_of_welch():
    """Makes impossible: a pooled variance, an interval of one tail, "decided" where the interval includes 0."""
    a, b = [0.51, 0.55, 0.53, 0.58], [0.50, 0.49, 0.47]
    found, want = welch(a, b), stats.ttest_ind(a, b, equal_var=False)
    low, high = want.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
    assert found.undecided == (want.pvalue > 0.05) and not found.undecided
    assert welch(a, [0.50, 0.56, 0.47]).undecided
    assert welch(a, [0.1]).undecided and np.isnan(welch(a, [0.1]).low)


def test_the_detected_difference_by_hand_and_by_simulation():
    """Makes impossible: "x detects" that is half of the interval (50% power), or another number than the README's."""
    assert welch([-1.0, 0.0, 1.0], [4.0, 5.0, 6.0]).detects == pytest.approx(3.07, abs=0.005)  # spread 1, 3 and 3 seeds
    least = welch([-1.0, 0.0, 1.0] * 3, [-1.0, 0.0, 1.0] * 3).detects
    draw, spread = np.random.default_rng(0), float(np.std([-1.0, 0.0, 1.0] * 3, ddof=1))
    x, y = draw.normal(0, spread, (2000, 9)), draw.normal(least, spread, (2000, 9))
    assert np.mean(stats.ttest_ind(x, y, axis=1, equal_var=False).pvalue < 0.05) == pytest.approx(0.8, abs=0.03)


def test_a_ratio_is_judged_on_logarithms(evidence):
    """Makes impossible: the interval of a difference for a ratio, arms compared after another arm's end."""
    text = PLAN.replace("between = [0.0, 1.0]", "between = [1.5, 2.5]\nratio = true")
    (evidence / "one.toml").write_text(text)
    some = rows(*(("a", v, 0) for v in (1.0, 2.0, 4.0)), ("a", 2.0, 1), ("a", 2.0, 2), ("c", "", 1), ("c", "", 2))
    for row in some:
        if row["arm"] == "c":
            row["samples"] /= 2  # c ends after 200 samples: a has half of its gain there
    said = table(plan_of("one"), some)
    low, high = (0.2 + (0.5 + seed / 1000 - 0.2) / 2 for seed in (1, 2))
    logs = stats.ttest_ind(np.log([low, high]), np.log([0.301, 0.302]), equal_var=False).confidence_interval(0.95)
    assert (
        f"a / c in score at 200 samples generated: {np.exp(np.mean(np.log([low, high]) - np.log([0.301, 0.302]))):.3f}"
        in said
    )
    assert f"(95%: {np.exp(logs.low):.3f} to {np.exp(logs.high):.3f}): higher; outside the prediction" in said
    assert "2 and 2 seeds detect a ratio of" in said
    assert "Seed 0 chose by the last score: a 1.0: 0.5000; a 2.0: 0.6000; a 4.0: 0.5000" in said
    assert "value that was tried" not in said  # 2 is in the middle


# ------------------------------------------------------------------------------------------------------------ plans


def test_a_seed_that_chooses_is_in_no_mean_and_another_arm_takes_the_value(evidence):
    """Makes impossible: a rate that counted seeds choose, a tuning run in a mean, a rate of another arm too early."""
    plan, done = plan_of("one"), {}
    first = missing(plan, done)
    assert first[:3] == [("a", value, 0) for value in (1.0, 2.0, 4.0)]
    assert {run[0] for run in first[3:]} == {"c"} and chosen(plan, done, "b") is None
    done = runs_of(rows(*first))
    assert chosen(plan, done, "a") == 2.0 and chosen(plan, done, "b") == 6.0 and chosen(plan, done, "c") == ""
    second = missing(plan, done)
    assert second == [("a", 2.0, 1), ("b", 6.0, 1), ("a", 2.0, 2), ("b", 6.0, 2), ("b", 6.0, 3)]
    found = counted(plan, rows(*first, *second, ("a", 4.0, 1)))
    assert {arm: len(group) for arm, group in found.items()} == {"a": 2, "b": 3, "c": 2}
    assert [run[-1]["score"] for run in found["a"]] == [0.501, 0.502]
    assert experiments.planned(plan) == len(first) + len(second) == 10


@pytest.mark.parametrize(
    "old, new, named",
    [
        ('compare = ["a", "c", "score"]', 'compare = ["a", "d", "score"]', "arm d"),
        ('of = "a"', 'of = "d"', "arm d"),
        ("seeds = [1, 2]", "seeds = [0, 1]", "seed 0"),
        ('scores = ["score"]', 'scores = ["pass@9"]', "pass@9"),
        ('axis = "samples"', "", "axis"),
        ("tuning_seed = 0", "tuning_seed = ", "TOML"),
    ],
)
def test_a_wrong_plan_is_refused_before_any_run(evidence, old, new, named):
    """Makes impossible: hours of runs before a plan turns out to compare an arm or a column that it does not have."""
    (evidence / "one.toml").write_text(PLAN.replace(old, new, 1))
    with pytest.raises(Mistake, match=named):
        plan_of("one")


def test_a_path_that_is_not_given_is_refused(evidence, tmp_path):
    """Makes impossible: a run with {policy} as its model, a path that is ignored, a folder that is not there."""
    for words, named in (([], "policy=FOLDER"), (["policy=nowhere"], "no such"), (["policy=.", "x=."], "no path x")):
        with pytest.raises(Mistake, match=named):
            experiments.main(["run", "one", *words])
    with pytest.raises(Mistake, match="choose from one"):
        experiments.main(["run", "two"])
    assert not (tmp_path / "runs").exists() and sorted(x.name for x in evidence.iterdir()) == ["one.toml"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs/evidence").glob("*.toml")), ids=lambda path: path.stem)
def test_the_plans_of_the_project_are_whole(path):
    """Makes impossible: a plan that is refused, or a setting that train.py does not know."""
    plan, known = plan_of(path.stem), {field.name for field in fields(Config)}
    assert tomllib.loads(path.read_text())["question"].endswith("?")
    for arm, own in plan["arms"].items():
        assert {*plan["settings"], *own} - {*experiments.OF_ARM} <= known, arm
    assert any(name in {**plan["settings"], **arm} for arm in plan["arms"].values() for name in experiments.BUDGETS)


# ------------------------------------------------------------------------------------------------------------- runs


def test_each_run_is_made_once_with_its_settings(evidence, tmp_path, monkeypatch):
    """Makes impossible: a value that does not reach train.py, a path that stays a name, a list in one word."""
    said = []

    def command(*words):
        words = [*map(str, words)]
        said.append(words)
        flags = {w[2:].partition("=")[0]: w.partition("=")[2] for w in words if "=" in w}
        folder = f"{flags['output_dir']}/{flags['name']}"
        os.makedirs(folder)
        seed, value = int(flags["seed"]), float(flags["learning_rate"])
        arm = flags["name"].split()[0]
        lines = [
            {"step": x, "samples": 100 * x, "eval/pass@1": 0, "score": y}
            for x, y in ((0, 0.2), (4, score_of(arm, value, seed)))
        ]
        for name in ("metrics", "timing"):
            with open(f"{folder}/{name}.jsonl", "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        with open(f"{folder}/config.json", "w") as file:
            json.dump({"rollouts_per_prompt": 4, "learning_rate": value}, file)

    monkeypatch.setattr(experiments, "command", command)
    experiments.main(["run", "one", f"policy={tmp_path / 'policy'}"])
    assert len(said) == 10 and len({words[-1] for words in said}) == 10
    words = next(words for words in said if words[-1] == "--name=b 6.0 3")
    assert {f"--model={tmp_path / 'policy'}", "--learning_rate=6.0", "--seed=3", "--max_steps=4"} <= {*words}
    at = words.index("--objective")
    assert words[at + 1 : at + 3] == ["brorl", "clip_high=0.3"]
    with (evidence / "one.csv").open() as file:
        found = [*csv.DictReader(file)]
    assert len(found) == 20 and len({(row["plan"], row["files"]) for row in found}) == 1
    assert (evidence / "one.png").exists()
    experiments.main(["run", "one", f"policy={tmp_path / 'policy'}"])
    assert len(said) == 10


def test_a_plan_or_a_policy_that_changed_does_not_continue_a_csv(evidence, tmp_path, monkeypatch):
    """Makes impossible: rows of two plans in one CSV, predictions written after the runs. A comment may change."""
    monkeypatch.setattr(experiments, "make", made)
    words = ["run", "one", f"policy={tmp_path / 'policy'}"]
    experiments.main(words)
    before = (evidence / "one.csv").read_bytes()
    (evidence / "one.toml").write_text("# a comment\n" + PLAN)
    experiments.main(words)
    (evidence / "one.toml").write_text(PLAN.replace("between = [0.0, 1.0]", "between = [0.1, 1.0]"))
    with pytest.raises(Mistake, match="the plan one has changed"):
        experiments.main(words)
    (evidence / "one.toml").write_text(PLAN)
    (tmp_path / "policy/weights").write_text("0.6")
    with pytest.raises(Mistake, match="a file of policy has changed"):
        experiments.main(words)
    assert (evidence / "one.csv").read_bytes() == before


def test_a_run_that_fails_and_a_full_disk_lose_nothing(evidence, tmp_path, monkeypatch):
    """Makes impossible: rows that are lost with a later failure, half a CSV, a run that is made twice."""
    plan, paths, out = plan_of("one"), {"policy": str(tmp_path / "policy")}, evidence / "one.csv"
    calls = []

    def failing(plan, paths, arm, value, seed):
        calls.append((arm, value, seed))
        if (arm, seed) == ("c", 2):
            raise Mistake("the checkpoint of step 4 does not fit the disk")
        return made(plan, paths, arm, value, seed)

    monkeypatch.setattr(experiments, "JOBS", 1)
    monkeypatch.setattr(experiments, "make", failing)
    with pytest.raises(Mistake, match="does not fit"):
        experiments.run(plan, paths, out)
    kept = runs_of(experiments.load(out))
    assert {*kept} == {*calls} - {("c", "", 2)} and len(kept) == 4
    before = out.read_bytes()

    monkeypatch.setattr(experiments, "make", made)
    real = os.fsync

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        experiments.run(plan, paths, out)
    assert out.read_bytes() == before
    monkeypatch.setattr(os, "fsync", real)
    experiments.run(plan, paths, out)
    assert len(runs_of(experiments.load(out))) == 10 and out.read_bytes().startswith(before)


# In place of train.py: a step in 0.05 s, and a run that continues after its last whole line
STUB = """
import json, os, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word and word.startswith("--"))
folder = os.path.join(flags["output_dir"], flags["name"])
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, f"pid{os.getpid()}"), "w").close()
with open(os.path.join(folder, "config.json"), "w") as file:
    json.dump({"rollouts_per_prompt": 4, "learning_rate": float(flags["learning_rate"])}, file)
logs = [os.path.join(folder, name) for name in ("metrics.jsonl", "timing.jsonl")]
whole = [[x for x in open(log) if x.endswith("\\n")] if os.path.exists(log) else [] for log in logs]
done = min(map(len, whole)) if "--resume" in sys.argv else 0
for log, lines in zip(logs, whole):
    with open(log, "w") as file:
        file.writelines(lines[:done])
for step in range(done, 9):
    time.sleep(0.05)
    score = (step * (int(flags["seed"]) + 3) * float(flags["learning_rate"]) * 7919) % 101
    for log in logs:
        with open(log, "a") as file:
            file.write(json.dumps({"step": step, "samples": 100 * step, "eval/pass@1": 0, "score": score}) + "\\n")
"""
RUNNER = """
import pathlib, sys
from tools import experiments
folder = pathlib.Path(sys.argv[1])
experiments.EVIDENCE, experiments.RUNS, experiments.TRAIN = folder / "evidence", folder / "runs", (folder / "stub.py",)
experiments.main(["run", "one", f"policy={folder / 'policy'}"])
"""


def runner(folder):
    """The program in a process of its own, with the stub in place of train.py."""
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(folder)], cwd=ROOT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_program_that_is_killed_twice_writes_the_same_csv(tmp_path):
    """Makes impossible: runs that go on alone after a kill, a run made twice, a CSV with a part of a run."""
    for name in ("killed", "whole"):
        for folder in ("evidence", "policy"):
            (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / "evidence/one.toml").write_text(PLAN)
        (tmp_path / name / "stub.py").write_text(STUB)
    folder, found = tmp_path / "killed", tmp_path / "killed/evidence/one.csv"

    def lines():
        return sum(len(log.read_text().splitlines()) for log in folder.glob("runs/one/*/metrics.jsonl"))

    program = runner(folder)
    wait_until(program, lambda: lines() > 4)  # within the first runs
    os.kill(program.pid, signal.SIGKILL)  # the program alone: the kernel ends its runs
    program.wait()
    assert not found.exists()
    pids = [int(x.name[3:]) for x in folder.glob("runs/one/*/pid*")]
    program = runner(folder)
    wait_until(program, found.exists)
    began = lines()
    wait_until(program, lambda: lines() > began + 4)
    program.terminate()
    assert program.wait() == 130 and lines() < 9 * 10
    pids += [int(x.name[3:]) for x in folder.glob("runs/one/*/pid*")]
    for pid in pids:  # a number may be another program's by now
        command = Path(f"/proc/{pid}/cmdline")
        assert not command.exists() or b"stub.py" not in command.read_bytes()
    for part in ("killed", "whole"):
        assert runner(tmp_path / part).wait() == 0

    def sorted_lines(part):  # runs end in another order
        head, *rest = (tmp_path / part / "evidence/one.csv").read_text().splitlines()
        return [head, *sorted(rest)]

    assert sorted_lines("killed") == sorted_lines("whole") and len(sorted_lines("whole")) == 1 + 9 * 10


# -------------------------------------------------------------------------------------------------- try, and one real


def test_the_small_plan_has_one_seed_and_a_share_of_the_samples(evidence):
    """Makes impossible: a try that chooses, that takes hours, or that is judged as the plan itself."""
    text = PLAN.replace("max_steps = 4", "max_samples = 1000, eval_every = 10")
    (evidence / "one.toml").write_text(text)
    plan = plan_of("one")
    tried = small(plan, 0.1)
    assert (
        tried["settings"] == plan["settings"] | {"max_samples": 100, "eval_every": 3}
        and plan["settings"]["eval_every"] == 10
    )
    assert (
        missing(tried, {}) == [("a", "", 1), ("b", 6.0, 1), ("c", "", 1)] and tried["arms"]["a"]["learning_rate"] == 2
    )
    assert tried["digest"] not in (plan["digest"], small(plan, 0.2)["digest"])


def test_try_writes_to_its_own_folder_only(evidence, tmp_path, monkeypatch, capsys):
    """Makes impossible: a try that changes docs/evidence, a fraction of 0, a verdict from one seed."""
    monkeypatch.setattr(experiments, "make", made)
    before = {path.name: path.read_bytes() for path in evidence.iterdir()}
    experiments.main(["try", "one", f"policy={tmp_path / 'policy'}", "fraction=0.25"])
    assert {path.name: path.read_bytes() for path in evidence.iterdir()} == before
    assert {x.name for x in (tmp_path / "runs/try_one").iterdir()} == {"try.csv", "try.png"}
    assert "one seed: undecided" in capsys.readouterr().out
    for wrong in ("0", "2", "x"):
        with pytest.raises(Mistake, match="fraction"):
            experiments.main(["try", "one", f"policy={tmp_path / 'policy'}", f"fraction={wrong}"])


def test_a_small_experiment_with_exact_scores(evidence, monkeypatch, capsys, one_thread):
    """Makes impossible: a plan that works with stubs only: train.py's logs, exact.csv and the columns fit together."""

    def command(*words):  # in this process: torch is loaded already
        if words[0] == "train.py":
            config, sources = read_settings("", [*words[1:]])
            accelerator = train.start_accelerator(config)
            train.train(config, accelerator, train.set_up(config, accelerator, sources))
        else:
            assert words[:2] == ("-m", "tiny.exact")
            exact.main([str(words[2])])

    monkeypatch.setattr(experiments, "command", command)
    (evidence / "real.toml").write_text(f"""
question = "Do more rollouts help?"
paths = ["policy"]
seeds = [0]
exact = true
rows = "evaluation"
columns = ["step", "samples", "trained", "processor_seconds", "q_pos", "pass@16"]
axis = "samples"
scores = ["q_pos"]
panels = [["samples", "q_pos"], ["processor_seconds", "q_pos"]]
arms.few.rollouts_per_prompt = 4

[settings]
model = "{{policy}}"
data = "{few_problems("train", 64)}"
eval_data = "{few_problems("test", 2)}"
prompts_per_step = 2
updates_per_step = 2
learning_rate = 1e-3
refill = 1
eval_samples = 1
max_samples = 24
eval_every = 1
""")
    experiments.main(["run", "real", f"policy={ROOT / 'tiny/policy'}"])
    found = experiments.load(evidence / "real.csv")
    assert [(row["step"], row["samples"]) for row in found] == [(0, 0), (1, 8), (2, 16), (3, 24)]
    assert len({row["q_pos"] for row in found}) > 1 and all(0 <= row["trained"] <= row["samples"] for row in found)
    seconds = [row["processor_seconds"] for row in found]
    assert seconds[0] == 0 and seconds == sorted(seconds) and seconds[-1] > 0
    assert "| few |" in capsys.readouterr().out and (evidence / "real.png").exists()
