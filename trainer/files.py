"""Files that are never half there: logs of JSON lines, and folders that get their name once they are on the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE)


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


def onto_disk(folder: Path) -> None:
    """Have the disk hold all of a folder, before it gets its name."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def sync(path: Path) -> None:
    """Have the disk hold a file, or a folder's list of names. Windows can do neither from an open for reading."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def discard(folder: Path) -> None:
    """Delete a checkpoint, which loses its name first: killed half-way, there is no half of one."""
    nameless = folder.with_name("discarded")
    shutil.rmtree(nameless, ignore_errors=True)
    if folder.exists():
        os.replace(folder, nameless)
        shutil.rmtree(nameless)
