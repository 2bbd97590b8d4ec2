"""A silent process ends the others, which say who it was; one that is slow, done, or stopped like all ends nobody."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from accelerate import Accelerator
from helpers import ROOT, Job, count_lines, launched, lines, small, under_way, wait_for

from trainer import watch
from trainer.settings import Config

INTERVAL, LIMIT = 0.1, 2.0  # seconds
HERE = socket.gethostname()

# What every process does before the rest of its script
START = f"""
import time
from types import SimpleNamespace
from trainer import watch
from trainer.ending import ending, leave
from trainer.processes import total
from trainer.progress import RunStopped
from trainer.settings import Config
from trainer.start import start_accelerator
watch.INTERVAL, watch.LIMIT = {INTERVAL}, {LIMIT}
config = Config(name="mine")
accelerator = start_accelerator(config)
rank, run = accelerator.process_index, SimpleNamespace(checkpoints=lambda: [])
total(1.0, accelerator)  # gloo's connections are there, and all of them watch
print("started", flush=True)
"""
MEETING = """
until = time.monotonic() + {seconds}
while total(time.monotonic() < until, accelerator):
    time.sleep(0.01)
leave(SimpleNamespace(close=lambda: None), accelerator)
"""


@pytest.fixture
def begun(tmp_path):
    """(script, processes) -> a Job that has started. Whatever a test does, no stopped process outlives it."""
    jobs = []

    def begin(script: str, processes: int) -> Job:
        (tmp_path / "script.py").write_text(START + script)
        jobs.append(job := Job(tmp_path / "script.py", [], processes=processes))
        wait_for(job, lambda: said(job).count("started") == processes)
        return job

    yield begin
    for process in (process for job in jobs for process in job.processes):
        process.kill()


def said(job: Job) -> str:
    return Path(job.said).read_text()


def went_on(text: str, processes: int) -> bool:
    """Whether nothing was said but each one's "started". The words and newlines of several may mix."""
    return sorted(text) == sorted("started\n" * processes)


def wait_for_codes(job: Job, codes: list[int | None]) -> None:
    wait_for(job, lambda: job.codes() == codes, timeout=60)
    assert job.codes() == codes, (job.codes(), said(job)[-3000:])


@pytest.mark.parametrize("silent", [0, 2])
def test_a_process_that_falls_silent_ends_the_others(begun, silent):
    """Makes impossible: processes that wait an hour for a machine that is gone; the same where it holds the store.

    A stopped process closes no socket, like a machine without power. The others wait for it in an all_reduce.
    """
    job = begun(MEETING.format(seconds=600), 3)
    job.signal(signal.SIGSTOP, silent)
    since = time.monotonic()
    wait_for_codes(job, [None if i == silent else 1 for i in range(3)])
    assert LIMIT / 2 < time.monotonic() - since < LIMIT + 20  # seconds for a machine under load
    job.signal(signal.SIGKILL, silent)
    text = job.ended(None)
    for i in {0, 1, 2} - {silent}:
        assert f"process {i}: process {silent} on {HERE} has fallen silent" in text
    assert text.count("This one cannot go on alone; --resume --name mine goes on after the last checkpoint") == 2


def test_several_silent_processes_are_one_sentence(begun):
    """Makes impossible: a lost machine of eight processes that is told as the loss of whichever was seen first."""
    job = begun(MEETING.format(seconds=600), 3)
    for silent in (1, 2):
        job.signal(signal.SIGSTOP, silent)
    wait_for_codes(job, [1, None, None])
    for silent in (1, 2):
        job.signal(signal.SIGKILL, silent)
    assert f"process 0: processes 1, 2 on {HERE} have fallen silent" in job.ended(None)


def test_who_is_slow_is_not_silent(begun):
    """Makes impossible: a run ended because one process of it does something long, while the others wait for it."""
    job = begun(f"time.sleep({2 * LIMIT} * (rank == 1))\n" + MEETING.format(seconds=0), 2)
    assert went_on(job.ended(), 2)


def test_processes_that_were_all_stopped_go_on(begun):
    """Makes impossible: a run that ends itself after its machine was suspended, by the time that nobody was there."""
    job = begun(MEETING.format(seconds=2 * LIMIT), 3)
    for i in range(3):
        job.signal(signal.SIGSTOP, i)
    time.sleep(2 * LIMIT)
    for i in range(3):
        job.signal(signal.SIGCONT, i)
    assert went_on(job.ended(), 3)


def test_who_is_done_is_not_silent(begun):
    """Makes impossible: a finished run of exit code 1, since its last process closes files after the others have left.

    The first process holds the store, which leaves with it.
    """
    job = begun(f"leave(SimpleNamespace(close=lambda: time.sleep({2 * LIMIT} * rank)), accelerator)", 2)
    assert went_on(job.ended(), 2)


@pytest.mark.parametrize("failing", [0, 1])
def test_who_failed_is_not_called_silent(begun, failing):
    """Makes impossible: a search for a lost machine where a process said why it ended; others that never hear of it.

    Here no launcher ends them, and they wait for nothing that a closed connection would interrupt.
    """
    script = f"""
with ending(run, config, accelerator):
    while rank != {failing}:
        time.sleep(1)
    raise RunStopped("because")
"""
    text = begun(script, 3).ended(1)
    assert f"process {failing}: because" in text and "silent" not in text
    for i in {0, 1, 2} - {failing}:
        assert f"process {i}: process {failing} on {HERE} has ended: its own message" in text


def test_one_process_watches_nobody():
    """Makes impossible: threads, or a store to be reached, in a run on one process."""
    before = threading.active_count()
    watch.begin(Accelerator(cpu=True), Config())
    assert threading.active_count() == before and watch._watch is None
    watch.stop()


WATCHED_RUN = f"""
import train
from trainer import watch
watch.INTERVAL, watch.LIMIT = {INTERVAL}, {LIMIT}
train.main()
"""


@pytest.mark.slow
def test_a_run_that_loses_a_process_ends_and_resumes(tmp_path):
    """Makes impossible: a watch that the real loop, its signals or torch's launcher, who holds the store, disturb."""
    (tmp_path / "watched.py").write_text(WATCHED_RUN)
    command = launched(tmp_path / "watched.py", *small(tmp_path, "--max_steps=1000", "--save_every=1"))
    command.insert(3, "--shutdown-timeout=2")  # the launcher's patience with the stopped one
    metrics = tmp_path / "run/metrics.jsonl"
    process, (_, second) = under_way(command, metrics)
    os.kill(second, signal.SIGSTOP)
    stopped = time.monotonic()
    text = process.communicate(timeout=120)[0]
    assert process.returncode and time.monotonic() - stopped < 60
    assert f"process 0: process 1 on {HERE} has fallen silent" in text and "--resume --name run goes on" in text
    steps = count_lines(metrics) + 1
    Job(ROOT / "train.py", small(tmp_path, f"--max_steps={steps}", "--save_every=1", "--resume"), processes=2).ended()
    assert [m["step"] for m in lines(metrics)] == list(range(steps + 1))
