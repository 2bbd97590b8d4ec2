r"""The sandbox: the worker processes that hostile text runs in, and their walls. (verify.py, section 4.2)

A model under reinforcement learning tries everything that pays. Whatever has to run its text (a program, a symbolic
comparison, a scorer that calls `eval`) does so here, never in the trainer's process and never in a fork of it.

    trainer (Pool)  ──control──►  keeper  ──fork──►  child
          ▲                                            │
          └──────────── reply or standard output ──────┘

    trainer   (this file, worker.py) starts the keepers, hands out the jobs, enforces every deadline, reads every
              answer up to a greatest length and only as JSON or text. It alone knows a program's expected outputs
    keeper    (keeper.py) a fresh Python in a session of its own, one per worker and sort of job. It imports what
              children need, puts up the outer walls, then only forks and kills: a job's bytes pass it by in file
              descriptors, so no child finds another job in the memory that it inherits
    child     (child.py) puts up the inner walls (walls.py, seccomp.py), then runs one test of a program (`Program`), or
              functions of the keeper's modules (`Call`): one after the other, or one only if the function is a
              user's or may evaluate model text

    level   walls, each with those above it                                                 where
    0       a session of its own, resource limits, deadlines                                macOS
    1       no new privileges, no traces, no core dump; as root: an unprivileged user       Linux
    2       seccomp: no network, no new process, no signal to another process, no change    Linux on x86_64, aarch64
            to any file, no way around it
    3       Landlock: nothing can be read but Python, its packages and the system's         Linux >= 5.13
            libraries; from Linux 6.12 also no signal to a process outside

A first child of each keeper tries to break out: what it could not do decides the level, which is logged. Model code is
refused below level 3 unless `allow_weak` is set, for then it may read what the user may read (below 3), use the
network, change the user's files, or leave processes behind that nobody finds (below 2). Deadlines, limits of memory and
output, and the separation of what is compared from what compares hold at every level.

A call's process knows the reference, as it is the one that compares. Text that takes it over cannot touch another
answer's verdict, but it could write its own: that its caller lets no such text in is the wall there.

seccomp is a list of what is refused, not of what is allowed: an allowed list that lacks one call of some C library
turns right answers into wrong ones on the machines where nobody has tried. Calls newer than the list are refused too.
No fork, no exec and no change of session are what makes killing one child enough.

Simplified: a program has no folder to write to, not even one of its own. Memory is limited per process, without
cgroups. What a machine's administrator lets everybody read below the folders of Python and the system's libraries can
be read. A bug in the kernel is not held off by any of this: who trains a strong model on code adds a virtual machine.
No Windows.
"""

import logging
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from verifiers.jobs import Call, Outcome, Program
from verifiers.worker import KeeperDied, NotStarted, Steps, Wait, Worker

LOG = logging.getLogger(__name__)
REQUIRED_LEVEL = 3


class WeakSandbox(RuntimeError):
    """This machine cannot build the walls that running model code needs."""


def default_workers() -> int:
    """One per core that this process may use, shared with the other ranks of the machine; at most 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, min(16, cores // int(ranks if ranks.isdigit() and int(ranks) else 1)))


@dataclass
class _Task:
    """A job under way: its place in the caller's order, when its time is up (once it has begun), its second attempt."""

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
    """`workers` jobs at a time, each in a process of its own. Used again and again, by one thread at a time."""

    def __init__(self, workers: int | None = None, allow_weak: bool = False) -> None:
        self.workers = workers or default_workers()
        self.allow_weak = allow_weak
        self._idle: list[Worker] = []
        self._active: dict[Worker, _Active] = {}
        self._lock = threading.Lock()
        self.owner = os.getpid()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes. A fork of the trainer leaves its parent's alone."""
        if self.owner == os.getpid():
            for worker in [*self._idle, *self._active]:
                worker.end()
            self._idle.clear()
            self._active.clear()

    def run(self, jobs: Iterable[Call | Program], timeout_s: float) -> Generator[tuple[int, Outcome], None, None]:
        """(Index, outcome) of each job as it ends, each within `timeout_s`. Jobs are taken from the iterable one by
        one as workers become free.

        Raises WeakSandbox for model code where the walls are too low, RuntimeError where no worker can be started.
        """
        if self.owner != os.getpid():
            raise RuntimeError("a Pool belongs to the process that made it: make another one after a fork")
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a Pool runs one batch at a time: finish the first, or make another Pool")
        try:
            queue, again = (_Task(index, job, timeout_s) for index, job in enumerate(jobs)), deque[_Task]()
            while True:
                while len(self._active) < self.workers:
                    task = again.popleft() if again else next(queue, None)
                    if task is None:
                        break
                    yield from self._step(self._begin(task), again)
                if not self._active and not again:
                    return
                for worker in self._ready():
                    yield from self._step(worker, again)
        finally:
            given_up, self._active = self._active, {}
            self._lock.release()
            for worker in given_up:
                worker.end()

    def _begin(self, task: _Task) -> Worker:
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
        self._active[worker] = _Active(task, self._judge(worker, task), ([], [], 0.0))
        return worker

    def _judge(self, worker: Worker, task: _Task) -> Steps:
        """A job from the start of its worker, if need be, to its outcome. Its time runs from when all is there."""
        job = task.job
        if worker.level is None:
            yield from worker.start()
            _log_level(worker)
        if isinstance(job, Program) or job.evaluates:
            self._require(worker)
        if isinstance(job, Call):
            yield from worker.load(job.packages, required=True)
        elif "numpy" in job.source:
            yield from worker.load(["numpy"], required=False)
        task.deadline = task.deadline or time.monotonic() + task.limit_s
        steps = worker.program(job, task.deadline) if isinstance(job, Program) else worker.call(job, task.deadline)
        return (yield from steps)

    def _require(self, worker: Worker) -> None:
        if (worker.level or 0) < REQUIRED_LEVEL and not self.allow_weak:
            raise WeakSandbox(
                f"model code is not run here: this machine's walls reach level {worker.level} ({worker.walls}) of the "
                f"{REQUIRED_LEVEL} in verifiers/sandbox.py. Use Linux >= 5.13 on x86_64 or aarch64 with Landlock on, "
                "leave out problems whose answers are code, or set allow_weak_sandbox to run it all the same"
            )

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
                # Whoever ended the keeper, this answer need not be to blame.
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
        """The workers that have something to do: those whose file or whose time has come. Waits for the first."""
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

    def level(self) -> tuple[int, str]:
        """(The level that this machine's walls reach, which walls they are)."""
        if not self._idle:
            worker = Worker(None)
            self._idle.append(worker)
            for (control,), _, deadline in worker.start():
                poll = select.poll()
                poll.register(control, select.POLLIN)
                poll.poll(max(0, math.ceil(1000 * (deadline - time.monotonic()))))
        return self._idle[0].level or 0, self._idle[0].walls


_logged = False


def _log_level(worker: Worker) -> None:
    global _logged
    LOG.log(logging.DEBUG if _logged else logging.INFO, "sandbox: level %s (%s)", worker.level, worker.walls)
    _logged = True
