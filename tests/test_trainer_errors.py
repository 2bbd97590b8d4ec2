"""How the program ends: every failure has its sentence."""

import errno
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rollout import EngineError
from trainer.errors import failures_as_sentences, refusals_as_sentences, sentence_of
from trainer.progress import RunStopped
from trainer.settings import Config
from verify import NotAReward


def test_every_failure_has_its_sentence():
    """Makes impossible: a person who reads a stack of frames to learn that the disk was full."""
    two = type("Two", (), {"num_processes": 2})
    full = OSError(errno.ENOSPC, "No space left on device", "runs/a/metrics.jsonl")
    assert sentence_of(full, two).startswith("runs/a/metrics.jsonl could not be written: No space left on device")
    assert "Lower --max_tokens_per_micro_batch" in sentence_of(RuntimeError("x: can't allocate memory: 9 bytes"), two)
    assert "Lower --max_tokens_per_micro_batch" in sentence_of(torch.OutOfMemoryError("CUDA out of memory."), two)
    assert "another process has ended" in sentence_of(
        RuntimeError("[gloo/transport/tcp] Connection closed by peer"), two
    )
    assert "something nobody foresaw" in sentence_of(RuntimeError("something nobody foresaw"), two)
    assert sentence_of(RunStopped("because"), two) == sentence_of(NotAReward("because"), two) == "because"


class Stub:
    """A run with two checkpoints, or none; and an accelerator."""

    num_processes, process_index, is_main_process = 1, 0, True

    def __init__(self, *names):
        self.checkpoints = SimpleNamespace(all=lambda: [Path(name) for name in names])


@pytest.mark.parametrize(
    ("number", "kept", "code", "says"),
    [
        (signal.SIGINT, ["step_00000010"], 130, "stopped; --resume --name run continues after step_00000010"),
        (signal.SIGTERM, ["a", "b"], 143, "stopped by SIGTERM; --resume --name run continues after b"),
        (signal.SIGTERM, [], 143, "stopped by SIGTERM; there is no checkpoint yet"),
    ],
)
def test_a_signal_says_how_to_go_on(capfd, monkeypatch, number, kept, code, says):
    """Makes impossible: Ctrl-C answered by a traceback, SIGTERM by the exit code of something else."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left, failures_as_sentences(Stub(*kept), Config(name="run"), Stub()):
        signal.raise_signal(number)
    assert left.value.code == code and capfd.readouterr().err == f"\n{says}\n"
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("only", [False, True])
def test_a_failure_ends_its_process_at_once(capfd, monkeypatch, only):
    """Makes impossible: a process that fails and then waits for others; an evaluation that is promised a checkpoint."""
    monkeypatch.setattr(os, "_exit", lambda code: sys.exit(f"at once, {code}"))
    with (
        pytest.raises(SystemExit, match="at once, 1"),
        failures_as_sentences(Stub("a"), Config(name="run", eval_only=only), Stub()),
    ):
        raise RunStopped("because")
    after = "nothing is written before the end" if only else "--resume --name run continues after a"
    assert capfd.readouterr().err == f"\nprocess 0: because\n{after}\n"


def test_a_refusal_is_a_sentence(capsys, monkeypatch):
    """Makes impossible: a traceback for what was asked for; a bug without one, in a fork or here; a sentence of nobody.

    Bugs: a missing key, a tensor's shape, what Python itself raises.
    """
    for mistake in (ValueError("lower it"), FileNotFoundError(2, "no such file", "x"), EngineError("no such engine")):
        with pytest.raises(SystemExit) as left, refusals_as_sentences():
            raise mistake
        assert left.value.code == 2 and capsys.readouterr().err == f"\n{mistake}\n"
    for bug in (lambda: {}["x"], lambda: torch.tensor([[1], [2, 3]]), lambda: int("x"), lambda: os.kill(2**22, 0)):
        with pytest.raises((KeyError, ValueError, OSError)), refusals_as_sentences():
            bug()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(os, "_exit", lambda code: sys.exit(f"at once, {code}"))
    with pytest.raises(SystemExit, match="at once, 2"), refusals_as_sentences():
        raise ValueError("lower it")
    assert capsys.readouterr().err == "\nprocess 1: lower it\n"
