"""Files that are never half there: rows of JSON, checkpoints under seal."""

import json
import os

import pytest

from trainer.files import SEAL, append, damaged, discard, fingerprint, rows_of, seal, write


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


@pytest.fixture
def sealed(tmp_path):
    folder = tmp_path / "step_00000001"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 5000)
    (folder / "inner/state").write_text("x")
    seal(folder)
    return folder


def test_a_seal_lists_every_file(sealed):
    """Makes impossible: a file of a checkpoint that may be lost unseen."""
    assert damaged(sealed) == ""
    listed = json.loads((sealed / SEAL).read_text())
    assert listed == {name: fingerprint(sealed / name) for name in ("weights.bin", "inner/state")}
    assert listed["inner/state"] == [1, 0x8CDC1683]  # CRC-32 of "x"


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda folder: (folder / "inner/state").unlink(), "inner/state is not what was written"),
        (lambda folder: os.truncate(folder / "weights.bin", 1000), "weights.bin is not what was written"),
        (lambda folder: (folder / "inner/state").write_text("y"), "inner/state is not what was written"),
        (lambda folder: (folder / SEAL).unlink(), "it has no files.json"),
        (lambda folder: (folder / SEAL).write_text("[1]"), "it has no files.json"),
        (lambda folder: (folder / SEAL).write_text("{"), "it has no files.json"),
    ],
)
def test_damage_is_seen(sealed, harm, says):
    """Makes impossible: a resume from a file that is gone, cut off, of other bits, or from half a checkpoint."""
    harm(sealed)
    assert damaged(sealed) == says


def test_a_discarded_checkpoint_loses_its_name_first(sealed, monkeypatch):
    """Makes impossible: half a checkpoint under its name, where a process is killed while it deletes one."""
    removed = []
    monkeypatch.setattr("trainer.files.shutil.rmtree", lambda path, **_: removed.append(path.name))
    discard(sealed)
    assert not sealed.exists() and removed == ["discarded", "discarded"]
    assert damaged(sealed.with_name("discarded")) == ""
