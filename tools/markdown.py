"""Tables in Markdown."""

from __future__ import annotations

from typing import Any


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown; floats with three digits."""
    cells = [
        [f"{x:.3g}" if isinstance(x, float) else str(x) for x in row] for row in [head, ["---"] * len(head), *rows]
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
