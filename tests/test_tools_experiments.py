"""tools/experiments.py: plans, comparisons by hand, runs that are killed or short of disk, one small experiment."""

import errno
import json
import multiprocessing
import os
import re
import signal
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, few_problems, wait_until
from scipy import stats

import train
from tiny import exact
from tools import experiments
from tools.experiments import counted, plan_of, report, runs_of, small, value_of, varied, wanted
from trainer.command_line import read_settings
from trainer.files import read_csv
from trainer.process import Refusal
from trainer.settings import Config

PLAN = """
question = "Which arm is ahead?"
paths = ["policy"]
seeds = [1, 2]
tuning = { seed = 0, by = "score", max_steps = 3 }
columns = ["score"]
scores = ["score"]
panels = [["samples", "score"]]
settings = { model = "{policy}", max_steps = 4, objective = ["brorl", "clip_high=0.3"] }

[arms]
a = { learning_rate = { choose = [1.0, 2.0, 4.0] } }
b = { learning_rate = { of = "a", times = 3 }, seeds = [1, 2, 3] }
c = { learning_rate = 9.0 }

[[predictions]]
claim = "a is ahead of c."
compare = ["a", "c", "score"]
at = "samples"
between = [0.0, 1.0]

[try]
seeds = [1]
settings = { max_steps = 2 }
arms = { b = { learning_rate = 2.0 }, c = {} }
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


@pytest.fixture
def words(tmp_path):
    return ["run", "one", f"policy={tmp_path / 'policy'}", "jobs=1"]


def made(arm, value, seed):
    """The rows of a run. Of the values of a, 2 is the best with seed 0, and 4 with the others."""
    score = {"a": 0.5, "b": 0.4, "c": 0.3}[arm] + (0.1 if value == (4.0 if seed else 2.0) else 0) + seed / 1000
    return [
        dict.fromkeys(experiments.BASE, 1) | {"arm": arm, "value": value, "seed": seed, "samples": x, "score": y}
        for x, y in ((0, 0.2), (400, score))
    ]


def load(path):
    return read_csv(path, experiments.TEXTS)


def rows(*keys):
    """The rows of these runs."""
    return [row for key in keys for row in made(*key)]


# ------------------------------------------------------------------------------------------------------------ plans


def test_a_seed_that_chooses_is_not_counted_and_another_arm_takes_the_value(evidence):
    """Makes impossible: a rate that counted seeds choose, a tuning run in a mean, a rate of another arm too early."""
    plan, trials = plan_of("one"), [("a", value, 0) for value in (1.0, 2.0, 4.0)]
    first = wanted(plan, {})
    assert [*first] == [*trials, ("c", "", 1), ("c", "", 2)] and value_of(plan, {}, "b") is None
    assert [first[key]["max_steps"] for key in first] == [3, 3, 3, 4, 4]
    done = runs_of(rows(*first))
    assert [value_of(plan, done, arm) for arm in "abc"] == [2.0, 6.0, ""]
    second = wanted(plan, done)
    counts = [("a", 2.0, 1), ("b", 6.0, 1), ("c", "", 1), ("a", 2.0, 2), ("b", 6.0, 2), ("c", "", 2), ("b", 6.0, 3)]
    assert [*second] == [*trials, *counts] and second["b", 6.0, 3]["learning_rate"] == 6.0
    found = counted(plan, rows(*second, ("a", 4.0, 1)))
    assert {arm: [run[-1]["score"] for run in group] for arm, group in found.items()} == {
        "a": [0.501, 0.502], "b": [0.401, 0.402, 0.403], "c": [0.301, 0.302],
    }  # fmt: skip


def test_a_wrong_command_is_refused_before_any_run(evidence, tmp_path):
    """Makes impossible: a run with {policy} as its model, a path that is ignored, a folder that is not there."""
    policy, lack = f"policy={tmp_path}", "policy=FILE"
    for words, named in (
        ([], lack),
        ([policy, "x=."], lack),
        ([policy, "jobs=two"], "jobs=two"),
        ([policy, "jobs=0"], "jobs=0"),
    ):
        with pytest.raises(Refusal, match=named):
            experiments.main(["run", "one", *words])
    with pytest.raises(Refusal, match="choose from one"):
        experiments.main(["run", "two"])
    assert not (tmp_path / "runs").exists() and sorted(x.name for x in evidence.iterdir()) == ["one.toml"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs/evidence").glob("*.toml")), ids=lambda path: path.stem)
def test_the_plans_of_the_project_are_whole(path):
    """Makes impossible: a counted tuning seed, or a name of an arm, a column or a setting that is not there.

    Hours of runs would pass before the table shows it, and a corrected plan does not continue a CSV.
    """
    plan, known = plan_of(path.stem), {field.name for field in fields(Config)}
    columns = {*experiments.BASE, *plan["columns"]}
    assert plan["question"].endswith("?") and {*plan["try"]["arms"]} <= {*plan["arms"]}
    picture = {"panels": [], "curves": {}} | plan.get("picture", {})
    assert {*plan["scores"], *(x for panel in plan["panels"] + picture["panels"] for x in panel)} <= columns
    assert {*picture["curves"]} <= {*plan["arms"]}
    assert plan["tuning"].get("by", "step") in columns
    for x in plan["predictions"]:
        assert {*x["compare"][:2]} <= {*plan["arms"]} and {x["compare"][2], x["at"]} <= columns and x["between"]
    for arm in plan["arms"]:
        assert plan["tuning"].get("seed") not in plan["arms"][arm].get("seeds", plan["seeds"])
        assert varied(plan, arm)[1].get("of", arm) in plan["arms"]
    for form in (plan, small(plan)):
        for arm, own in form["arms"].items():
            assert {*form["settings"], *own, *form["tuning"]} - {"seeds", "by"} <= known, arm
            assert {"max_samples", "max_steps"} & {*form["settings"], *own} and "eval_every" in form["settings"] | own


def test_each_csv_has_a_plan_or_a_description():
    """Makes impossible: a CSV that no page knows."""
    evidence = ROOT / "docs/evidence"
    described = {*re.findall(r"\]\((\w+)\.csv\)", (evidence / "README.md").read_text())}
    planned = {path.stem for path in evidence.glob("*.toml")}
    assert described - planned <= {path.stem for path in evidence.glob("*.csv")} <= described | planned
    assert planned <= {*re.findall(r"\]\((\w+)\.toml\)", (evidence / "README.md").read_text())}


# -------------------------------------------------------------------------------------------------------- the table


def test_a_ratio_is_judged_on_logarithms_at_the_end_of_the_shorter_arm(evidence):
    """Makes impossible: the interval of a difference for a ratio, a score beyond another arm's end."""
    (evidence / "one.toml").write_text(PLAN.replace("between = [0.0, 1.0]", "between = [1.5, 2.5]\nratio = true"))
    some = rows(*(("a", v, 0) for v in (1.0, 2.0, 4.0)), ("a", 2.0, 1), ("a", 2.0, 2), ("c", "", 1), ("c", "", 2))
    for row in some:
        if row["arm"] == "c":
            row["samples"] /= 2  # c ends after 200 samples: a has half of its gain there
    said = report(plan_of("one"), some)
    a, c = np.log([0.2 + (x - 0.2) / 2 for x in (0.501, 0.502)]), np.log([0.301, 0.302])
    ends = stats.ttest_ind(a, c, equal_var=False).confidence_interval(0.95)
    low, middle, high = np.exp([ends.low, a.mean() - c.mean(), ends.high])
    assert f"a / c in score at 200 samples: {middle:.3f} (95%: {low:.3f} to {high:.3f}), higher" in said
    assert "outside the prediction; a ratio of 1.0" in said and "is detected with 80% power" in said
    assert "a: tuning gave 0.5000 with 1.0, 0.6000 with 2.0, 0.5000 with 4.0\n" in said  # 2 is no end of the list


# ------------------------------------------------------------------------------------------------------------- runs

# In place of train.py: a step in 0.02 s, and a run that continues after its last whole line
STUB = """
import json, os, sys, time
words = sys.argv[1:]
flags = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
folder = os.path.join(flags["--output_dir"], flags["--name"])
seed, rate = int(flags["--seed"]), float(flags["--learning_rate"])
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, f"pid{os.getpid()}"), "w").close()
with open(os.path.join(folder, "config.json"), "w") as file:
    json.dump({"rollouts_per_prompt": 4, "prompts_per_step": 2, "learning_rate": rate, "words": words}, file)
logs = [os.path.join(folder, name) for name in ("metrics.jsonl", "timing.jsonl")]
whole = [[x for x in open(log) if x.endswith("\\n")] if os.path.exists(log) else [] for log in logs]
done = min(map(len, whole)) if "--resume" in words else 0
for log, lines in zip(logs, whole):
    with open(log, "w") as file:
        file.writelines(lines[:done])
for step in range(done, 9):
    time.sleep(0.02)
    score = (step * (seed + 3) * rate * 7919) % 101
    for log in logs:
        with open(log, "a") as file:
            file.write(json.dumps({"step": step, "samples": 100 * step, "eval/pass@1": 0, "score": score}) + "\\n")
"""


@pytest.fixture
def stub(evidence, tmp_path, monkeypatch):
    """Runs are made by STUB."""
    (tmp_path / "stub.py").write_text(STUB)
    monkeypatch.setattr(experiments, "TRAIN", tmp_path / "stub.py")


def test_each_run_is_made_once_with_its_settings(stub, evidence, tmp_path, words):
    """Makes impossible: a value that does not reach train.py, a path that stays a name, a list in one word."""
    experiments.main(words)
    folders = [*(tmp_path / "runs").glob("one-*/*")]
    assert len(folders) == 10 and len({(row["plan"], row["commit"]) for row in load(evidence / "one.csv")}) == 1
    (folder,) = (x for x in folders if x.name.startswith("b ") and x.name.endswith(" 3"))
    said = " ".join(json.loads((folder / "config.json").read_text())["words"])
    rate = folder.name.split()[1]
    for part in (f"--model {tmp_path / 'policy'} ", f"--learning_rate {rate} ", "--seed 3 ", "--max_steps 4 "):
        assert part in said
    assert "--objective brorl clip_high=0.3 --" in said
    before = (evidence / "one.csv").read_bytes()
    assert len(load(evidence / "one.csv")) == 90 and (evidence / "one.png").exists()
    experiments.main(words)
    assert (evidence / "one.csv").read_bytes() == before and len([*(tmp_path / "runs").glob("*/*/pid*")]) == 10


def test_a_plan_or_a_policy_that_changed_does_not_continue_a_csv(stub, evidence, tmp_path, words):
    """Makes impossible: rows of two plans in one CSV, predictions written after the runs.

    Comments, the picture and `try` may change.
    """
    experiments.main(words)
    before = (evidence / "one.csv").read_bytes()
    picture = '[picture]\ncurves = { c = "C" }\n\n[try]'
    (evidence / "one.toml").write_text("# a comment\n" + PLAN.replace("s = 2", "s = 1").replace("[try]", picture))
    experiments.main(words)
    (evidence / "one.toml").write_text(PLAN.replace("between = [0.0, 1.0]", "between = [0.1, 1.0]"))
    with pytest.raises(Refusal, match="has changed"):
        experiments.main(words)
    (evidence / "one.toml").write_text(PLAN)
    (tmp_path / "policy/weights").write_text("0.6")
    with pytest.raises(Refusal, match="has changed"):
        experiments.main(words)
    assert (evidence / "one.csv").read_bytes() == before


def test_a_run_that_fails_and_a_full_disk_lose_nothing(stub, evidence, monkeypatch, words):
    """Makes impossible: rows that are lost with a later failure, half a CSV, a run that is made twice."""
    calls, real, fsync = [], experiments.make_run, os.fsync

    def failing(folder, *others):
        calls.append(folder.name)
        if folder.name == "c 2":
            raise Refusal("the checkpoint of step 4 does not fit the disk")
        real(folder, *others)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(experiments, "make_run", failing)
    with pytest.raises(Refusal, match="does not fit"):
        experiments.main(words)
    before = (evidence / "one.csv").read_bytes()
    assert len(runs_of(load(evidence / "one.csv"))) == len(calls) - 1 == 4
    monkeypatch.setattr(experiments, "make_run", real)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        experiments.main(words)
    assert (evidence / "one.csv").read_bytes() == before
    monkeypatch.setattr(os, "fsync", fsync)
    experiments.main(words)
    assert len(runs_of(load(evidence / "one.csv"))) == 10
    assert {*before.splitlines()} <= {*(evidence / "one.csv").read_bytes().splitlines()}


def is_stub(number):
    """A process runs and is a stub: its number may be another program's by now."""
    try:
        return b"stub.py" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_program_that_is_killed_twice_writes_the_same_csv(stub, evidence, tmp_path, words):
    """Makes impossible: runs that go on alone after a kill, a run made twice, a CSV with a part of a run."""
    found, runs = evidence / "one.csv", tmp_path / "runs"

    def lines():
        return sum(len(log.read_text().splitlines()) for log in runs.glob("*/*/metrics.jsonl"))

    def killed(number, condition):
        program = multiprocessing.get_context("fork").Process(target=experiments.main, args=(words[:-1],))
        program.start()
        program.poll = lambda: program.exitcode
        wait_until(program, condition)
        os.kill(program.pid, number)  # the program alone: the kernel ends its runs
        program.join()
        assert program.exitcode == -number

    killed(signal.SIGKILL, lambda: lines() > 4)  # within the first runs
    assert not found.exists()
    killed(signal.SIGTERM, lambda: found.exists() and lines() > 40)
    assert 40 < lines() < 90
    wait_until(None, lambda: not any(is_stub(path.name[3:]) for path in runs.glob("*/*/pid*")))  # it takes a moment
    experiments.main(words)
    text = found.read_bytes()
    found.unlink()
    runs.rename(tmp_path / "killed")
    experiments.main(words)
    assert found.read_bytes() == text and text.count(b"\n") == 1 + 9 * 10


def test_try_changes_settings_and_writes_beside_its_runs_only(stub, evidence, tmp_path, words, capsys):
    """Makes impossible: a try that changes docs/evidence, that tunes, or whose arms have the sizes of the plan."""
    before = {path.name: path.read_bytes() for path in evidence.iterdir()}
    experiments.main(["try", *words[1:]])
    assert {path.name: path.read_bytes() for path in evidence.iterdir()} == before
    (folder,) = (tmp_path / "runs").iterdir()
    assert {x.name for x in folder.iterdir()} == {"b 1", "c 1", "try.csv", "try.png"}
    assert "--max_steps 2 " in " ".join(json.loads((folder / "b 1/config.json").read_text())["words"])
    assert "| b |  | 1 |" in capsys.readouterr().out


def test_a_small_experiment_with_exact_scores(evidence, monkeypatch, capsys, one_thread):
    """Makes impossible: a plan that works with stubs only: train.py's logs, exact.csv and the columns fit together."""

    def run_python(*words):  # in this process: torch is loaded already
        words = [*map(str, words)]
        if words[0] == "train.py":
            config, origins = read_settings("", words[1:])
            accelerator = train.start_accelerator(config)
            train.train(config, accelerator, train.set_up(config, accelerator, origins))
        else:
            assert words[:2] == ["-m", "tiny.exact"]
            exact.main(words[2:])

    monkeypatch.setattr(experiments, "run_python", run_python)
    (evidence / "real.toml").write_text(f"""
question = "Do more rollouts help?"
paths = ["policy"]
seeds = [0]
exact = 2
columns = ["q_pos", "pass@16"]
scores = ["q_pos"]
panels = [["samples", "q_pos"], ["processor_seconds", "q_pos"]]
arms.few.rollouts_per_prompt = 4
try = {{ seeds = [0], arms = {{ few = {{}} }} }}

[settings]
model = "{{policy}}"
data = "{few_problems("train", 64)}"
eval_data = "{few_problems("test", 4)}"
eval_problems = 1
prompts_per_step = 2
updates_per_step = 2
learning_rate = 1e-3
refill = 1
eval_samples = 1
max_samples = 24
eval_every = 1
""")
    experiments.main(["run", "real", f"policy={ROOT / 'tiny/policy'}"])
    found = load(evidence / "real.csv")
    assert [(row["step"], row["samples"]) for row in found] == [(0, 0), (1, 8), (2, 16), (3, 24)]
    policy, tokenizer = exact.load_policy(str(ROOT / "tiny/policy"))
    problems = exact.load_sources([few_problems("test", 2)])
    start = exact.log_probs(policy, tokenizer, problems).q_pos.mean()
    assert found[0]["q_pos"] == pytest.approx(float(start), rel=1e-6)
    assert len({row["q_pos"] for row in found}) > 1 and all(0 <= row["trained"] <= row["samples"] for row in found)
    seconds = [row["processor_seconds"] for row in found]
    assert seconds[0] == 0 and seconds == sorted(seconds) and seconds[-1] > 0
    assert "| few |" in capsys.readouterr().out and (evidence / "real.png").exists()
