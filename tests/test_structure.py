"""The structure: six files, folders below them, imports that point down, and no circle."""

import ast
import functools
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SIX = ("brorl", "sim", "loss", "rollout", "verify", "train")
# The modules of the project that each may import. The file of a concept is above its folder, except for verify.py: the
# kinds import its types, and verify.py names their modules as strings.
MAY_IMPORT = {
    "brorl": set(),
    "loss": set(),
    "sim": {"brorl"},
    "engines": set(),
    "rollout": {"engines"},
    "sandbox": set(),
    "verify": {"sandbox"},
    "kinds": {"sandbox", "verify"},
    "trainer": {"brorl", "engines", "loss", "rollout", "verify", "kinds", "sandbox"},
    "train": {"loss", "trainer"},
    "tiny": {"brorl", "rollout", "verify", "trainer"},
    "tools": {*SIX, "trainer", "engines"},
    "lab": {*SIX, "trainer", "tiny", "tools"},
}
FILES = [
    *(ROOT / f"{name}.py" for name in SIX),
    *(path for folder in MAY_IMPORT if folder not in SIX for path in sorted((ROOT / folder).rglob("*.py"))),
]
NAMES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


@functools.cache
def imports(path: Path) -> set[str]:
    """The names of the project's modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.partition(".")[0] in MAY_IMPORT}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_down(path):
    """Makes impossible: a file that imports a module above it."""
    folder = path.relative_to(ROOT).with_suffix("").parts[0]
    assert {name.partition(".")[0] for name in imports(path)} <= MAY_IMPORT[folder] | {folder}


def test_no_circle():
    """Makes impossible: modules that import each other, directly or not. TopologicalSorter raises CycleError."""
    graph = {name: imports(path) & NAMES.keys() - {name} for name, path in NAMES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(NAMES)


def test_the_library_of_math_answers_has_one_door():
    """Makes impossible: a file that goes past the door of kinds/answers/, a file behind it that knows this project."""
    behind = {name for name in NAMES if name.startswith("kinds.answers.")}
    assert len(behind) > 10
    for name, path in NAMES.items():
        ours = imports(path) & NAMES.keys()
        if name in behind | {"kinds.answers"}:
            assert ours <= behind | {"kinds.patterns"}, name
        else:
            assert not ours & behind, name


def test_the_loop_of_the_course_needs_the_six_files_only():
    """Makes impossible: a first reading of lab/loop.py that leads into the folders."""
    assert {name.partition(".")[0] for name in imports(ROOT / "lab/loop.py")} <= {*SIX, "lab"}
    assert {name for name in imports(ROOT / "lab/loop.py") if name.startswith("lab.")} == {"lab.variants"}


PROBE = """
import os, signal, sys
before = dict(os.environ), signal.getsignal(signal.SIGINT)
import trainer.process
assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == before and "torch" not in sys.modules
"""


def test_importing_the_trainer_has_no_effect():
    """Makes impossible: an import that changes the process. test_trainer_processes.py has what `prepare` does."""
    subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, check=True)


TOOLS = [path for path in sorted((ROOT / "tools").glob("*.py")) if '__name__ == "__main__"' in path.read_text()]
PROGRAMS = [ROOT / "train.py", *TOOLS]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_prepares_before_it_imports_torch(path):
    """Makes impossible: a tool that works only after `import train`, a setting that torch reads too late."""
    tree = ast.parse(path.read_text())
    loads_torch = [x.lineno for x in tree.body if isinstance(x, ast.Import | ast.ImportFrom) and any(
        (name or "").split(".")[0] in ("torch", "transformers", "accelerate", "loss", "rollout", "train")
        for name in ([x.module] if isinstance(x, ast.ImportFrom) else [alias.name for alias in x.names])
    )]  # fmt: skip
    prepared = [x.lineno for x in ast.walk(tree) if isinstance(x, ast.Attribute) and x.attr == "prepare"]
    assert not loads_torch or (prepared and min(prepared) < min(loads_torch))


# Package -> its name in pip. Each serves one optional part, whose error message or page has the command to install it.
OPTIONAL = {
    "datasets": "datasets", "gguf": "gguf", "IPython": "ipython", "jupytext": "jupytext", "langdetect": "langdetect",
    "markdown_it": "markdown-it-py", "reasoning_gym": "reasoning-gym", "triton": "triton", "trl": "trl",
}  # fmt: skip


def test_every_imported_package_is_declared():
    """Makes impossible: an ImportError after `pip install -r requirements.txt`, because another package left."""
    declared = {
        line.split("#")[0].strip().split("[")[0].split("=")[0].split(">")[0].split("<")[0]
        for path in ROOT.glob("requirements*.txt")
        for line in path.read_text().splitlines()
    }
    ours = {path.stem for path in ROOT.glob("*.py")} | {path.name for path in ROOT.iterdir()}
    ours |= {path.stem for path in (ROOT / "tests").glob("*.py")}
    imported = set()
    for path in [*FILES, *ROOT.glob("tests/*.py")]:  # and not a user's files beside them
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    packages = imported - ours - sys.stdlib_module_names
    assert packages - OPTIONAL.keys() <= declared
