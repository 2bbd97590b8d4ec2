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


def test_every_function_named_is_there():
    """Makes impossible: an equation whose function was renamed or moved, and is looked for in vain."""
    named = [name for cells in rows() if len(cells) == 3 for name in re.findall(r"`([\w.]+)`", cells[1])]
    assert len(named) > 30
    for name in named:
        module, _, function = name.rpartition(".")
        assert hasattr(importlib.import_module(module), function), name


def test_every_test_named_is_there():
    """Makes impossible: a claim that a sign is tested by a test that was dropped."""
    named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", PAGE)
    assert len(named) > 30
    for file, test in named:
        source = (ROOT / "tests" / file).read_text()
        assert not test or f"\ndef {test}(" in source, f"{file}::{test}"


def test_every_equation_names_a_test():
    """Makes impossible: a row of the page without a test."""
    tables = PAGE[: PAGE.index("## The recipes")]
    body = [line for line in tables.splitlines() if line.startswith("|") and "`" in line]
    assert len(body) > 30 and all(re.search(r"`test_\w+\.py", line) for line in body)
