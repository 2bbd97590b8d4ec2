"""Jobs of the trainer's process, run by workers: `run` takes the one pool of the process, which keeps its workers."""

import atexit
import logging
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sandbox import WeakSandbox
from sandbox.jobs import Call, Outcome, Program
from sandbox.worker import KeeperDied, NotStarted, Steps, Wait, Worker

LOG = logging.getLogger(__name__)
REQUIRED_LEVEL = 3

NO_WORKERS = (
    "this system cannot start the sandbox's worker processes: use Linux, or macOS, where most of its walls are missing"
)


@dataclass
class _Task:
    """A job: its place in the caller's order, its deadline (once it has begun), and whether this is its second try."""

    index: int
    job: Call | Program
    limit_s: float
    deadline: float | None = None
    again: bool = False


class _Active(NamedTuple):
    task: _Task
    steps: Steps
    wait: Wait


class Pool:
    """Worker processes, each with one job at a time. They are started when first needed, and kept."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._active: dict[Worker, _Active] = {}
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def close(self) -> None:
        """End all worker processes. A fork of the trainer leaves its parent's alone."""
        if self._owner == os.getpid():
            for worker in [*self._idle, *self._active]:
                worker.end()
            self._idle.clear()
            self._active.clear()

    def run(
        self, jobs: Iterable[Call | Program], timeout_s: float, workers: int | None = None, allow_weak: bool = False
    ) -> Generator[tuple[int, Outcome], None, None]:
        """(Index, outcome) of each job as it ends, each within `timeout_s`, `workers` (None: one per core) at a time.
        Jobs are taken as workers become free. A second thread waits until the first has ended its jobs.

        Raises WeakSandbox for model code where the walls are too low, RuntimeError where no worker can be started.
        """
        with self._lock:
            workers = workers or default_workers()
            queue, again = (_Task(index, job, timeout_s) for index, job in enumerate(jobs)), deque[_Task]()
            try:
                while True:
                    while len(self._active) < workers:
                        task = again.popleft() if again else next(queue, None)
                        if task is None:
                            break
                        yield from self._step(self._begin(task, allow_weak), again)
                    if not self._active and not again:
                        return
                    for worker in self._ready():
                        yield from self._step(worker, again)
            finally:
                given_up, self._active = self._active, {}
                for worker in given_up:
                    worker.end()

    def _begin(self, task: _Task, allow_weak: bool) -> Worker:
        modules = task.job.modules if isinstance(task.job, Call) else None
        worker = next((worker for worker in self._idle if (worker.modules is None) == (modules is None)), None)
        if worker is not None:
            self._idle.remove(worker)
            lacks = modules is not None and worker.modules is not None and not modules <= worker.modules
            if lacks or task.again:
                # It imports before its walls go up, and never again. What ended the first keeper may have ended this.
                modules = None if modules is None else modules | (worker.modules or set())
                worker.end()
                worker = None
        worker = worker or Worker(modules)
        self._active[worker] = _Active(task, self._judge(worker, task, allow_weak), ([], [], 0.0))
        return worker

    def _judge(self, worker: Worker, task: _Task, allow_weak: bool) -> Steps:
        """A job from the start of its worker, if it is new, to its outcome. The job's time runs from then on."""
        job = task.job
        if worker.level is None:
            yield from worker.start()
            LOG.debug("sandbox: level %s (%s)", worker.level, worker.walls)
        if (isinstance(job, Program) or job.evaluates) and (worker.level or 0) < REQUIRED_LEVEL and not allow_weak:
            raise WeakSandbox(
                f"model code is not run here: this machine's walls reach level {worker.level} ({worker.walls}) of the "
                f"{REQUIRED_LEVEL} in sandbox/__init__.py. Use Linux >= 5.13 on x86_64 or aarch64 with Landlock on, "
                "leave out problems whose answers are run, or set allow_weak_sandbox to run them all the same"
            )
        task.deadline = task.deadline or time.monotonic() + task.limit_s
        steps = worker.program(job, task.deadline) if isinstance(job, Program) else worker.call(job, task.deadline)
        return (yield from steps)

    def _step(self, worker: Worker, again: deque) -> Iterator[tuple[int, Outcome]]:
        """Take a job as far as it goes without waiting."""
        active, outcome = self._active[worker], None
        try:
            self._active[worker] = active._replace(wait=next(active.steps))
            return
        except StopIteration as stop:
            outcome = stop.value
            if worker.lost:
                worker.end()
            else:
                self._idle.append(worker)
        except KeeperDied as error:
            worker.end()
            if not active.task.again and not isinstance(error, NotStarted):
                LOG.warning("worker %s was lost (%s)", worker.process.pid, error)
                # Whatever ended the keeper, this answer need not be to blame.
                active.task.again = True
                again.append(active.task)
            elif worker.level is None:
                del self._active[worker]
                raise RuntimeError(f"no worker process can be started here: {error}") from error
            else:
                outcome = Outcome("crashed")
        del self._active[worker]
        if outcome is not None:
            yield active.task.index, outcome

    def _ready(self) -> list[Worker]:
        """The workers that can go on: their file is ready, or their time has come. Waits for the first."""
        poll, owners = select.poll(), {}
        for worker, active in self._active.items():
            reads, writes, _ = active.wait
            for fd in {*reads, *writes}:
                poll.register(fd, (select.POLLIN if fd in reads else 0) | (select.POLLOUT if fd in writes else 0))
                owners[fd] = worker
        pause = min(active.wait[2] for active in self._active.values()) - time.monotonic()
        ready = {owners[fd] for fd, _ in poll.poll(max(0, math.ceil(pause * 1000)))}
        now = time.monotonic()
        return [worker for worker, active in self._active.items() if worker in ready or now >= active.wait[2]]


def default_workers() -> int:
    """One per core that this process may use, shared with the other ranks of the machine; at most 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, min(16, cores // int(ranks if ranks.isdigit() and int(ranks) else 1)))


_pool: Pool | None = None


def run(
    jobs: Iterable[Call | Program], timeout_s: float, workers: int | None = None, allow_weak: bool = False
) -> Generator[tuple[int, Outcome], None, None]:
    """`Pool.run` of this process's pool, which is made when first needed."""
    global _pool
    if _pool is None:
        if not hasattr(os, "fork"):
            raise RuntimeError(NO_WORKERS)
        _pool = Pool()
        atexit.register(_pool.close)
    return _pool.run(jobs, timeout_s, workers, allow_weak)


def restart() -> None:
    """The workers are started anew when next needed: they import a user's file as it is then."""
    if _pool is not None:
        _pool.close()


def _forget_the_pool() -> None:
    """A fork of this process makes a pool of its own, whatever another thread was doing with this one."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_the_pool)
