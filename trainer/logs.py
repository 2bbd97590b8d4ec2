"""A run's logs of JSON lines, and small files that are replaced whole."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Replace a file whole."""
    aside = path.with_suffix(".unfinished")
    aside.write_text(text)
    os.replace(aside, path)


def append(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(path: Path) -> list[dict]:
    """A file's lines without a last one that was torn. Raises ValueError for one that no run wrote."""
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else [], 1):
        if line.endswith(b"\n"):
            try:
                rows.append(dict(json.loads(line)))
                rows[-1]["step"]
            except (ValueError, TypeError, KeyError):
                raise ValueError(f"{path}, line {number}, is damaged: delete it, or --overwrite the run") from None
    return rows
