"""Text files, without torch: replaced as a whole, JSON lines, CSV."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write(path: Path, text: str) -> None:
    """Replace a file: it has the old text or the new one, never a part."""
    aside = path.with_name(path.name + ".unfinished")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def json_lines(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as the text of a file of JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace a CSV. Numbers have nine digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: x if isinstance(x, str) else f"{x:.9g}" for name, x in row.items()} for row in rows)
    write(path, text.getvalue())


def read_csv(path: Path, texts: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Read the rows of a CSV as numbers, except for empty cells and the columns `texts`. No file has no rows."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {name: x if name in texts or not x else float(x) for name, x in row.items()} for row in csv.DictReader(file)
        ]
