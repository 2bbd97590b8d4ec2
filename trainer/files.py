"""Files that are never half there: logs of JSON lines, and checkpoints with a list of what must be in them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from pathlib import Path

SEAL = "files.json"  # in a checkpoint: what must be in it
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


def seal(folder: Path) -> None:
    """List a checkpoint's files with size and checksum, and have the disk hold all of it before it gets its name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    write(folder / SEAL, json.dumps({str(path.relative_to(folder)): fingerprint(path) for path in files}))
    for path in [*files, folder / SEAL, *(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync(path)


def sync(path: Path) -> None:
    """Have the disk hold a file, or a folder's list of names. Windows can do neither from an open for reading."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def damaged(folder: Path) -> str:
    """What is wrong with a checkpoint's files; "" if nothing."""
    try:
        listed = json.loads((folder / SEAL).read_text()).items()
    except (OSError, ValueError, AttributeError):
        return f"it has no {SEAL}"
    for name, expected in listed:
        if not (folder / name).is_file() or fingerprint(folder / name) != expected:
            return f"{name} is not what was written"
    return ""


def discard(folder: Path) -> None:
    """Delete a checkpoint, which loses its name first: killed half-way, there is no half of one."""
    nameless = folder.with_name("discarded")
    shutil.rmtree(nameless, ignore_errors=True)
    if folder.exists():
        os.replace(folder, nameless)
        shutil.rmtree(nameless)


def fingerprint(path: Path) -> list[int]:
    """Size and CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    return [path.stat().st_size, crc]
