"""Files that are never half there: rows of JSON, and folders that lose their name before they go."""

import os

import pytest

from trainer.checkpoint import discard
from trainer.logs import append, rows_of, write


def test_a_torn_last_line_goes_and_a_damaged_one_is_named(tmp_path):
    """Makes impossible: a run that cannot go on for a torn line; one that goes on over lines that no run wrote."""
    path = tmp_path / "log.jsonl"
    assert rows_of(path) == []
    for step in (1, 2):
        append(path, {"step": step})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 3, "sam')
    assert rows_of(path) == [{"step": 1}, {"step": 2}]
    for garbage in (b"\x00\xff\n", b"[1]\n", b'{"samples": 1}\n', b"\n"):
        path.write_bytes(b'{"step": 1}\n' + garbage + whole)
        with pytest.raises(ValueError, match=r"log\.jsonl, line 2, is damaged: delete it, or --overwrite the run"):
            rows_of(path)


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    """Makes impossible: config.json emptied by a process that was killed, or a disk that was full, while it wrote."""
    path = tmp_path / "config.json"
    write(path, "old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("killed here")))
    with pytest.raises(OSError):
        write(path, "new")
    assert path.read_text() == "old"


def test_a_discarded_checkpoint_loses_its_name_first(tmp_path, monkeypatch):
    """Makes impossible: half a checkpoint under its name, where a process is killed while it deletes one."""
    (checkpoint := tmp_path / "step_00000001").mkdir()
    removed = []
    monkeypatch.setattr("trainer.checkpoint.shutil.rmtree", lambda path, **_: removed.append(path.name))
    discard(checkpoint)
    assert not checkpoint.exists() and removed == ["discarded", "discarded"]
