"""The structure: six short files, folders below them, and imports that point down."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SIX = ("brorl", "sim", "loss", "rollout", "verify", "train")
# The modules of the project that each may import. The file of a concept is above its folder.
MAY_IMPORT = {
    "brorl": set(),
    "loss": set(),
    "sim": {"brorl"},
    "engines": set(),
    "rollout": {"engines"},
    "sandbox": set(),
    "kinds": {"sandbox", "verify"},
    "verify": {"kinds", "sandbox"},
    "trainer": {"brorl", "loss", "rollout", "verify"},
    "train": {"brorl", "loss", "rollout", "verify", "trainer"},
    "tiny": {"brorl", "rollout", "verify", "trainer"},
    "bench": {*SIX, "trainer"},
    "evidence": {"sim"},
    "lab": {*SIX, "trainer", "tiny", "bench"},
}
FILES = [
    *(ROOT / f"{name}.py" for name in SIX),
    *(path for folder in MAY_IMPORT if folder not in SIX for path in sorted((ROOT / folder).glob("*.py"))),
]


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
    folder = path.stem if path.parent == ROOT else path.parent.name
    assert {name.partition(".")[0] for name in imports(path)} <= MAY_IMPORT[folder] | {folder}


def test_no_circle():
    """Makes impossible: modules that import each other, directly or not. TopologicalSorter raises CycleError."""
    names = {(path.stem if path.parent == ROOT else f"{path.parent.name}.{path.stem}"): path for path in FILES}
    graph = {name: imports(path) & names.keys() - {name} for name, path in names.items()}
    graph["verify"] = {name for name in graph["verify"] if not name.startswith("kinds.")}  # imported when first needed
    assert len(list(TopologicalSorter(graph).static_order())) == len(names)


@pytest.mark.parametrize("name", SIX)
def test_one_sitting_one_screen(name):
    """Makes impossible: a file of the top level over 450 lines, a function that does not fit a screen."""
    text = (ROOT / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 450
    functions = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef)]
    assert {x.name: x.end_lineno - x.lineno + 1 for x in functions if x.end_lineno - x.lineno >= 60} == {}
