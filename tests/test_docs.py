"""The pages: the files, commands and functions that they name exist, and docs/logs.md explains every number."""

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
from helpers import few_problems, trained

from sim import Constants
from trainer.public_data import HUB
from trainer.settings import Config

ROOT = Path(__file__).resolve().parent.parent
README, DOCS = ROOT / "README.md", sorted((ROOT / "docs").glob("*.md"))
# made by readers and by runs
ELSEWHERE = {
    "my_rewards.py", "my_engine.py", "my_objective.py", "exact.csv", "exact.png", "curves.png", "seedX.csv",
    "which_n.png", "OUT.csv",
}  # fmt: skip
OF_LAUNCHERS = {  # flags of accelerate, torch.distributed.run, pip, hf and docker
    *("--mixed_precision", "--num_processes", "--multi_gpu", "--config_file", "--machine_rank", "--quiet", "--cpu"),
    *("--standalone", "--nproc_per_node", "--shutdown-timeout", "--revision", "--local-dir", "--help", "--check"),
    *("--index-url", "--ipc", "--version"),
}

LAB = sorted((ROOT / "lab").glob("*.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", *DOCS, *LAB]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")


def tracked() -> set[str]:
    """The files of the project that git has; without git all files."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    found = listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return {*found, *(str(parent) for name in found for parent in Path(name).parents)}


@every_page
def test_the_files_of_a_page_are_there(page):
    """Makes impossible: a link to a page or figure that was never committed, a heading or file by an old name."""
    there, text = tracked(), page.read_text()
    for link, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        target = page.parent / link if link else page
        assert os.path.relpath(target, ROOT) in there, link
        headings = re.findall(r"^#+ (.*)", target.read_text(), re.M) if heading else []
        assert not heading or heading in [re.sub(r"[^\w -]", "", x).lower().replace(" ", "-") for x in headings]
    names = {Path(name).name for name in there} | ELSEWHERE
    for name in re.findall(r"(?<![\w/.])(\w+\.(?:py|md|csv|png))\b", text):
        assert name in names, name
    rooms = "|".join(sorted(name for name in there if re.fullmatch(r"\w+", name) and (ROOT / name).is_dir()))
    for path in re.findall(rf"(?<![\w/.])(?:\.\./)?((?:{rooms})/[\w./]*)", text):
        assert path.rstrip("./") in there, path


@every_page
def test_no_table_is_cut(page):
    """Makes impossible: rows behind a blank line, which GitHub shows as a paragraph."""
    lines = page.read_text().splitlines()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        assert not line.startswith("|") or before.startswith("|") or re.match(r"\| ?-", after), line


@every_page
def test_the_commands_of_a_page_exist(page):
    """Makes impossible: a command that ends in "No such file" or in "unknown --flag", a function that left."""
    text, there = page.read_text(), tracked()
    for script in re.findall(r"\bpython (\w[\w/]*\.py)", text):
        assert script in there, script
    for module in re.findall(r"\bpython -m (?!work)([\w.]+)", text):  # work/ is a student's folder
        assert importlib.util.find_spec(module), module
    settings, of_sim = ({f"--{field.name}" for field in dataclasses.fields(kind)} for kind in (Config, Constants))
    ours = "".join((ROOT / name).read_text() for name in there if name.endswith(".py") and "/test_" not in name)
    for command in re.findall(r"train\.py((?:[^`\n#]|\\\n)*)", text):  # a command goes on after a backslash
        for flag in re.findall(r"(?<!\w)--[a-z][\w-]*", command):
            assert flag in settings or flag == "--help", f"train.py {flag}"
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
        assert flag in settings | of_sim | OF_LAUNCHERS or f'"{flag}"' in ours or f'"{flag[2:]}":' in ours, flag
    for name in re.findall(r"\bhf:([a-z]\w*)", text):
        assert name in HUB, f"hf:{name}"
    for module, name in re.findall(r"`(brorl|sim|loss|rollout|verify|train)\.(\w+)", text):
        assert name in ("py", "jsonl") or hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_every_equation_has_a_function_and_a_test():
    """Makes impossible: an equation whose function moved, or whose sign is tested by a test that was dropped."""
    lines = (ROOT / "docs/paper.md").read_text().splitlines()
    equations = [cells for line in lines if len(cells := line.strip("|").split("|")) == 3 and "`test_" in cells[2]]
    assert len(equations) > 25
    names = [name for _, functions, _ in equations for name in re.findall(r"`([\w.]+)`", functions)]
    pages = "".join(page.read_text() for page in [ROOT / "docs/paper.md", *LAB])
    names += re.findall(
        r"`((?:brorl|loss|sim|rollout|verify|tools\.noise_law|trainer\.head|lab\.variants)\.\w+)`", pages
    )
    for module, _, function in (name.rpartition(".") for name in names):
        assert function == "py" or hasattr(importlib.import_module(module), function), f"{module}.{function}"
    for file, test in re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", pages):
        assert not test or f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


@pytest.mark.slow
def test_the_reward_example_of_the_readme_runs(tmp_path):
    """Makes impossible: an example that fails as it is printed, or that teaches nothing."""
    [block] = re.findall(r"```sh\n(.*?)```", README.read_text(), re.S)
    (tmp_path / "train.py").symlink_to(ROOT / "train.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-e", "-c", block], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    rows = map(json.loads, (tmp_path / "runs/digits/eval.jsonl").read_text().splitlines())
    correct = [sum(row["correct"]) / 128 for row in rows]
    assert correct[0] < 0.4 and correct[-1] > 0.6


def test_every_number_of_a_run_is_explained(tmp_path):
    """Makes impossible: a number in a log that docs/logs.md does not explain, or one there that no log has."""
    one = {"max_steps": 1, "data": few_problems("train", 256), "eval_data": few_problems("test", 2)}
    run = trained(tmp_path, "run", eval_samples=1024, **one)
    sections = (ROOT / "docs/logs.md").read_text().split("\n## ")
    for log in ("metrics", "timing", "eval", "samples"):
        written = {key for line in (run / f"{log}.jsonl").read_text().splitlines() for key in json.loads(line)}
        cells = [x for s in sections if s.startswith(f"{log}.jsonl") for x in re.findall(r"^\| (`[^|]*) \|", s, re.M)]
        patterns = {x: re.sub(r"\b[A-Z]\b", "[^/]+", x) for cell in cells for x in re.findall(r"`([^`]+)`", cell)}
        assert not [key for key in written if not any(re.fullmatch(p, key) for p in patterns.values())], log
        assert not [name for name, p in patterns.items() if not any(re.fullmatch(p, key) for key in written)], log
