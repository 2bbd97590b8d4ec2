"""The schedule of jobs: the trainer's side has a thread and a worker (worker.py) for each job that runs."""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from sandbox import CannotStart, WeakSandbox
from sandbox.jobs import Call, Ended, Program
from sandbox.worker import KeeperDied, Worker

LOG = logging.getLogger(__name__)
REQUIRED_LEVEL = 3
TOO_WEAK = (
    "model code is not run here: the walls of this machine reach level {} of the {} in sandbox/__init__.py ({}). Use "
    "Linux >= 5.13 with Landlock on, leave out problems whose answers are run, or set allow_weak_sandbox"
)


class Pool:
    """Workers, started when first needed and kept."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._active: set[Worker] = set()
        self._lock = threading.Lock()  # held during a batch
        self._taking = threading.Lock()  # held while a thread takes a worker
        self._given_up = False

    def close(self) -> None:
        """End all workers."""
        while self._idle:
            self._idle.pop().end()
        for worker in list(self._active):
            worker.end()

    def run(
        self, jobs: Iterable[Call | Program], timeout_s: float, workers: int | None = None, allow_weak: bool = False
    ) -> Generator[tuple[int, Ended], None, None]:
        """Yield (index, outcome) of each job as it ends, each within `timeout_s`, `workers` (None: one per core) at a
        time. Jobs are taken as workers become free. A second batch waits for the end of the first.

        Raises WeakSandbox for model code if the walls are too low, CannotStart if no worker can be started.
        """
        with self._lock, ThreadPoolExecutor(workers := workers or default_workers()) as threads:
            left, self._given_up = enumerate(jobs), False
            running: dict[Future[Ended], int] = {}
            try:
                while True:
                    while len(running) < workers and (job := next(left, None)) is not None:
                        running[threads.submit(self._run_job, job[1], timeout_s, allow_weak)] = job[0]
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(future), future.result()
            finally:
                self._given_up = True
                for worker in list(self._active):
                    worker.end()

    def _run_job(self, job: Call | Program, timeout_s: float, allow_weak: bool) -> Ended:
        """Run a job in a thread. If its keeper is lost, run it once more with another one."""
        deadline = None
        for second_try in (False, True):
            if self._given_up:
                break
            worker = self._take(job, second_try)
            try:
                if not worker.started:
                    worker.start()
                if (isinstance(job, Program) or job.evaluates) and worker.level < REQUIRED_LEVEL and not allow_weak:
                    self._idle.append(worker)
                    raise WeakSandbox(TOO_WEAK.format(worker.level, REQUIRED_LEVEL, worker.faults))
                deadline = deadline or time.monotonic() + timeout_s
                outcome = worker.program(job, deadline) if isinstance(job, Program) else worker.call(job, deadline)
                if not self._given_up:
                    self._idle.append(worker)
                return outcome
            except KeeperDied as error:
                worker.end()
                fate = "counts as crashed" if second_try else "runs again in a new worker"
                LOG.warning("sandbox: worker process %s was lost (%s); its job %s", worker.process.pid, error, fate)
                if not worker.started and second_try and not self._given_up:
                    raise CannotStart(str(error)) from None
            finally:
                self._active.discard(worker)
        return Ended("crashed")

    def _take(self, job: Call | Program, second_try: bool) -> Worker:
        """Take an idle worker that has imported the job's modules, else start one that imports also the old modules."""
        modules = frozenset(job.modules) if isinstance(job, Call) else None
        with self._taking:
            same = [worker for worker in self._idle if (worker.modules is None) == (modules is None)]
            fit = [worker for worker in same if modules is None or modules <= (worker.modules or set())]
            worker = None
            if fit and not second_try:
                worker = fit[0]
                self._idle.remove(worker)
            elif same:
                self._idle.remove(same[0])
                modules = None if modules is None else modules | (same[0].modules or set())
                same[0].end()
            worker = worker or Worker(modules)
            self._active.add(worker)
            return worker


def default_workers() -> int:
    """Return one worker per core of this process, shared with the other ranks of the machine; at most 16."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, min(16, len(os.sched_getaffinity(0)) // max(1, int(ranks) if ranks.isdigit() else 1)))


_pool = Pool()


def run(
    jobs: Iterable[Call | Program], timeout_s: float, workers: int | None = None, allow_weak: bool = False
) -> Generator[tuple[int, Ended], None, None]:
    """Call `Pool.run` of this process's pool."""
    if sys.platform != "linux":
        raise CannotStart("its walls need Linux. Run this on Linux")
    return _pool.run(jobs, timeout_s, workers, allow_weak)


@atexit.register
def end_workers() -> None:
    """End the workers. New ones start when next needed, and import a user's file as it is then."""
    _pool.close()


def _forget_the_pool() -> None:
    """Give a fork of this process its own pool: another thread may have held the locks of this one."""
    global _pool
    _pool = Pool()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_the_pool)
