"""docs/paper.md: what it names is there."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/paper.md").read_text()


def rows() -> list[list[str]]:
    """The cells of every row of its tables, without the rows under a heading."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"]
    return [cells for cells in found if set(cells[0]) != {"-"}]


def test_every_equation_has_a_function_and_a_test():
    """Makes impossible: an equation whose function moved, or whose sign is tested by a test that was dropped."""
    equations = [cells for cells in rows() if len(cells) == 3 and "`" in cells[1]]
    assert len(equations) > 30
    for _, functions, tests in equations:
        for name in re.findall(r"`([\w.]+)`", functions):
            module, _, function = name.rpartition(".")
            assert hasattr(importlib.import_module(module), function), name
        named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", tests)
        assert named, functions
        for file, test in named:
            assert not test or f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"
