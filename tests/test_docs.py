"""The pages: the files, commands and functions that they name exist, and docs/metrics.md explains every number."""

import dataclasses
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rooms import some_problems, trained

from bench.__main__ import BENCHMARKS
from trainer.settings import Config

ROOT = Path(__file__).resolve().parent.parent
README, METRICS = ROOT / "README.md", ROOT / "docs/metrics.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LOGS = ("metrics", "timing", "eval", "samples")
WRITTEN_BY_RUNS = {"exact.csv", "curves.png"}
MADE_BY_READERS = {"my_rewards.py", "my_engine.py"}  # files that a page tells its reader to write
OF_LAUNCHERS = {  # flags of accelerate, torch.distributed.run, pip, hf, and of no file here
    *("--mixed_precision", "--num_processes", "--multi_gpu", "--config_file", "--machine_rank", "--quiet", "--cpu"),
    *("--standalone", "--nproc_per_node", "--shutdown-timeout", "--revision", "--local-dir", "--help", "--check"),
    "--index-url",
}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def tracked() -> set[str]:
    """The files of the project that git has; without git all files."""
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


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, set[str]]:
    """The keys that a run of two steps writes, by log."""
    folder = tmp_path_factory.mktemp("keys")
    run = trained(folder, "run", eval_data=some_problems(folder / "test.jsonl", 2), eval_samples=1024)
    rows = {log: map(json.loads, (run / f"{log}.jsonl").read_text().splitlines()) for log in LOGS}
    return {log: {key for row in rows[log] for key in row} for log in LOGS}


@pytest.mark.parametrize("log", LOGS)
def test_every_number_of_a_run_is_explained(written, log):
    """Makes impossible: a number in a log that docs/metrics.md does not explain, or one there that no log has."""
    keys, names = written[log], explained()[log]
    patterns = {name: re.sub(r"\b[A-Z]\b", "[^/]+", name) for name in names}  # K: any kind, R: any reason
    assert not [key for key in keys if not any(re.fullmatch(p, key) for p in patterns.values())]
    assert not [name for name, p in patterns.items() if not any(re.fullmatch(p, key) for key in keys)]
