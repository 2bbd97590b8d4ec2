"""The pages: what they name is there, what they call runs, and docs/metrics.md explains every number of a run."""

import ast
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

import loss
from bench.__main__ import BENCHMARKS
from engines.vllm import VLLMEngine
from rollout import Group
from trainer.metrics import Answers, UpdateMetrics, of_step, score
from trainer.noise import logged
from trainer.probe import Probe
from trainer.progress import Progress, Stages
from trainer.rollouts import Outcomes, Rolled, StepRollouts
from trainer.run import Run
from trainer.settings import Config
from verify import Problem, Verdict

ROOT = Path(__file__).resolve().parent.parent
README, METRICS = ROOT / "README.md", ROOT / "docs/metrics.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LOGS = ("metrics", "timing", "eval", "samples")
WRITTEN_BY_RUNS = {"scores.csv", "exact.csv", "exact.png", "curves.png", "mass_balance.csv", "preflight.png"}
MADE_BY_READERS = {"my_rewards.py", "my_engine.py"}  # files that a page tells its reader to write
OF_LAUNCHERS = {  # flags of accelerate, torch.distributed.run, pip, hf, and of no file here
    *("--mixed_precision", "--num_processes", "--multi_gpu", "--config_file", "--machine_rank", "--quiet", "--cpu"),
    *("--standalone", "--nproc_per_node", "--shutdown-timeout", "--revision", "--local-dir", "--help", "--check"),
    "--index-url",
}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def tracked() -> set[str]:
    """What git has of the project; all that is there where there is no git."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    found = listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return {*found, *(str(parent) for name in found for parent in Path(name).parents)}


@every_page
def test_the_files_of_a_page_are_there(page):
    """Makes impossible: a link to a page or figure that was never committed, a file by the name that it had before."""
    there, text = tracked(), page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert os.path.relpath(page.parent / link, ROOT) in there, link
    names = {Path(name).name for name in there} | MADE_BY_READERS | WRITTEN_BY_RUNS
    for name in re.findall(r"(?<![\w/.])(\w+\.(?:py|md|csv|png))\b", text):
        assert name in names, name
    rooms = "|".join(sorted(name for name in there if re.fullmatch(r"\w+", name) and (ROOT / name).is_dir()))
    for path in re.findall(rf"(?<![\w/.])(?:\.\./)?((?:{rooms})/[\w./]*)", text):
        assert path.rstrip("./") in there, path
    if page != README and page.parent.name == "docs":
        assert f"](docs/{page.name})" in README.read_text(), "the README links every page"


@every_page
def test_the_commands_of_a_page_exist(page):
    """Makes impossible: a command that ends in "No such file" or in "unknown --flag", a function that left."""
    text, there = page.read_text(), tracked()
    for script in re.findall(r"\bpython (\w[\w/]*\.py)", text):
        assert script in there, script
    for module in re.findall(r"\bpython -m ([\w.]+)", text):
        assert importlib.util.find_spec(module), module
    for name in re.findall(r"\bpython -m bench (\w+)", text):
        assert name in BENCHMARKS, name
    settings = {f"--{field.name}" for field in dataclasses.fields(Config)}
    ours = "".join((ROOT / name).read_text() for name in there if name.endswith(".py") and "/test_" not in name)
    for command in re.findall(r"train\.py((?:[^`\n#]|\\\n)*)", text):  # a command goes on behind a backslash
        for flag in re.findall(r"(?<!\w)--[a-z][\w-]*", command):
            assert flag in settings or flag == "--help", f"train.py {flag}"
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
        assert flag in settings | OF_LAUNCHERS or f'"{flag}"' in ours or f'"{flag[2:]}":' in ours, flag
    for module, name in re.findall(r"`(brorl|sim|loss|rollout|verify|train)\.(\w+)", text):
        assert name in ("py", "jsonl") or hasattr(importlib.import_module(module), name), f"{module}.{name}"
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}" in tests, name


def test_the_readme_is_short():
    """Makes impossible: a README that grows back into a manual. 155 lines, one table, every page of docs/ linked."""
    lines = README.read_text().splitlines()
    assert len(lines) <= 155
    assert sum(line.startswith("|---") for line in lines) == 1
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name})" in README.read_text(), page.name


def test_the_reward_example_of_the_readme_runs(tmp_path):
    """Makes impossible: an example that fails as it is printed, pays for what it should not, or teaches nothing."""
    [block] = re.findall(r"```sh\n(.*?)```", README.read_text(), re.S)
    (tmp_path / "train.py").symlink_to(ROOT / "train.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-e", "-c", block], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]

    def read(log: str) -> list[dict]:
        return [json.loads(line) for line in (tmp_path / "runs/digits" / log).read_text().splitlines()]

    correct = [sum(row["correct"]) / 128 for row in read("eval.jsonl")]
    assert correct[0] < 0.4 and correct[-1] > 0.6
    for row in read("samples.jsonl"):
        digit = row["prompt"][3]
        assert row["reward"] == (1.0 if row["response"].endswith(digit) else 0.5 * (digit in row["response"]))


# ------------------------------------------------------------------------------------------------- docs/metrics.md


def explained() -> dict[str, set[str]]:
    """The keys that docs/metrics.md explains, by log: what stands in the first cell of its tables, in backticks."""
    found: dict[str, set[str]] = {log: set() for log in LOGS}
    for section in METRICS.read_text().split("\n## ")[1:]:
        log = section.partition(".jsonl")[0]
        for row in re.findall(r"^\| (`[^|]*) \|", section, re.M) if log in found else []:
            found[log] |= set(re.findall(r"`([^`]+)`", row))
    return found


def rolled() -> Rolled:
    """A group of two rollouts, one correct, one cut."""
    group = Group([1, 2], [[5, 6], [7]], [[-0.1, -0.2], [-0.3]], ["stop", "length"])
    verdicts = [Verdict(1.0, True, "correct"), Verdict(0.0, False, "wrong")]
    return Rolled(Problem("3579:24=", "countdown", {}), group, ["3+5+7+9", "3"], verdicts)


def written(folder: Path) -> dict[str, set[str]]:
    """The keys that a run writes, by log, from the functions that make them; nothing is trained."""
    accelerator = Accelerator()
    tally, tokens = UpdateMetrics(accelerator), torch.zeros(3)
    parts = {"clip_low": 0.2, "clip_high": 0.2, "tis_cap": 2.0, "kl_coef": 0.1}
    tally.micro_batch(*loss.policy_loss(tokens, tokens, tokens, tokens, tokens[:1], torch.tensor([3]), 3, **parts))
    tally.update(1.0, spiked=False, applied=True)
    probe = Probe.__new__(Probe)
    probe.accelerator, probe.groups, probe.before, probe.terms = accelerator, [], [], []
    probe.estimated_changes = lambda batch: []
    one, accelerator = rolled(), Accelerator()
    drawn = StepRollouts([one.problem], [[1, 2]])
    drawn.add([0], [one], Outcomes.of([one], 1, 2, accelerator))
    answers = Answers.of(Outcomes(*(x.expand(1, 2).repeat(1, 512) for x in drawn.outcomes)))

    run = Run.__new__(Run)
    run.accelerator, run.config = accelerator, SimpleNamespace(samples_per_step=4, report_to=None)
    run.metrics, run.timing, run.answers, run.samples = (folder / f"{log}.jsonl" for log in LOGS)
    run.held_out = SimpleNamespace(digest="", sources={}, problems=[one.problem])
    metrics = of_step(drawn, 1, 1) | tally.result(3, learning_rate=1e-4)
    metrics |= logged(torch.eye(4), 4, 2) | probe.compare(None, 1)
    metrics |= {f"eval/{name}": x for name, x in score(answers).items()}
    run.log(metrics | {"step": 1, "samples": 2}, Stages().timing(Progress()), answers)
    run.sample(1, drawn)
    run.write_samples(run.sample_evaluation(1, [one]))
    keys = {}
    for log in LOGS:
        rows = [json.loads(line) for line in (folder / f"{log}.jsonl").read_text().splitlines()]
        keys[log] = {key for row in rows for key in row}
    for node in ast.walk(ast.parse((ROOT / "train.py").read_text())):  # what train.py adds by itself
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "stage":
            keys["timing"].add(node.args[0].value)
        names = node.keys if isinstance(node, ast.Dict) else []
        names += [node.slice] if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else []
        for name in (x.value for x in names if isinstance(x, ast.Constant)):
            keys["timing" if name in ("peak_gib", "prompt_cost") else "metrics"].add(name)
    asleep = SimpleNamespace(preemptions=0, free_gib=40.0)
    keys["timing"] |= {"step", *VLLMEngine.facts(asleep)}
    return keys


@pytest.mark.parametrize("log", LOGS)
def test_every_number_of_a_run_is_explained(tmp_path, log):
    """Makes impossible: a number in a log that docs/metrics.md does not explain, or one there that no log has."""
    keys, names = written(tmp_path)[log], explained()[log]
    patterns = {name: re.sub(r"\b[A-Z]\b", "[^/]+", name) for name in names}  # K: any kind, R: any reason
    assert not [key for key in keys if not any(re.fullmatch(p, key) for p in patterns.values())]
    assert not [name for name, p in patterns.items() if not any(re.fullmatch(p, key) for key in keys)]
