"""trainer/process.py: a sentence or a traceback, and the exit code."""

import errno
import sys
from unittest import mock

import pytest

import train
import trainer.process as process
from trainer.process import Refusal, refusing

NOTED = Refusal("--clip_low 5")
NOTED.add_note("lower it")


@pytest.mark.parametrize("failure, rank, want, said", [
    (NOTED, 0, 2, "--clip_low 5\nlower it"), (Refusal("--clip_low 5"), 1, 2, "process 1: --clip_low 5"),
    (ZeroDivisionError("a bug"), 1, 1, "ZeroDivisionError: a bug"), (KeyboardInterrupt(), 0, 130, "stopped"),
    (OSError(errno.ENOSPC, "No space left on device"), 0, 1, "the disk is full: make room"),
])  # fmt: skip
def test_how_a_process_ends(failure, rank, want, said, monkeypatch):
    """Makes impossible: a refusal with a traceback, or of every rank at once; a bug without its traceback on each."""
    ends, waited = [], []
    monkeypatch.setattr(train, "read_settings", mock.Mock(side_effect=failure))
    monkeypatch.setattr(process, "leave", lambda code, text: ends.append((code, text)) or sys.exit(code))
    monkeypatch.setattr(process.time, "sleep", waited.append)
    monkeypatch.setenv("RANK", str(rank))
    with pytest.raises(SystemExit):
        train.main()
    ((code, text),) = ends
    assert code == want and said in text and ("Traceback" in text) == (want == 1 and "disk" not in text)
    assert bool(waited) == (want == 2 and rank == 1)


def test_the_last_words_are_no_commands_for_the_terminal(capsys, monkeypatch):
    """Makes impossible: a quoted response, in a refusal or a traceback, that changes the user's terminal."""
    monkeypatch.setattr(process.os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        process.leave(1, "Traceback:\n  é \x1b[2J\rall is well")
    assert capsys.readouterr().err == "Traceback:\n  é \\x1b[2J\\rall is well\n"


def test_refusing_keeps_notes_and_bugs():
    """Makes impossible: a lost note; a bug that is printed as a sentence."""
    mistake = ValueError("no room")
    mistake.add_note("lower it")
    with pytest.raises(Refusal, match="no room lower it"), refusing("x: "):
        raise mistake
    with pytest.raises(KeyError), refusing():
        raise KeyError("a bug")
