r"""The worker processes that hostile text runs in, and their walls.

A model under reinforcement learning tries everything that pays. Whatever has to run its text (a program, a symbolic
comparison, a scorer that calls `eval`) does so here, never in the trainer's process and never in a fork of it.

    trainer (Pool)  ──control──►  keeper  ──fork──►  child
          ▲                                            │
          └──────────── reply or standard output ──────┘

    trainer   starts the keepers, hands out the jobs, enforces every deadline, reads every answer up to a greatest
              length and only as JSON or text. It alone knows the expected outputs of a program
    keeper    a fresh Python in a session of its own, one per worker and sort of job. It imports what children need,
              puts up the outer walls, then only forks and kills: a job's bytes pass it by in file descriptors, so no
              child finds another job in the memory that it inherits
    child     puts up the inner walls, then runs one test of a program (`Program`), or functions of verify.py (`Call`):
              one after the other, or one only if the function may evaluate model text

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
answer's verdict, but it could write its own: that verify.py lets no such text in is the wall there.

seccomp is a list of what is refused, not of what is allowed: an allowed list that lacks one call of some C library
turns right answers into wrong ones on the machines where nobody has tried. Calls newer than the list are refused too.
No fork, no exec and no change of session are what makes killing one child enough.

Simplified: a program has no folder to write to, not even one of its own. Memory is limited per process, without
cgroups. What a machine's administrator lets everybody read below the folders of Python and the system's libraries can
be read. A bug in the kernel is not held off by any of this: who trains a strong model on code adds a virtual machine.
No Windows.

Reading order: jobs, values, the trainer's side (Pool, Worker), the keeper, the child, the walls.
"""

import array
import atexit
import contextlib
import ctypes
import errno
import fcntl
import importlib
import itertools
import json
import logging
import math
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

LOG = logging.getLogger(__name__)
REQUIRED_LEVEL = 3

MiB = 2**20
MAX_OUTPUT = 8 * MiB  # of one test's standard output or returned value
MAX_REPLY = 1 * MiB  # of one call's returned value
MAX_MESSAGE = 65_536  # of a keeper: its longest is an error's text
CALLS_PER_CHILD = 500  # then its memory, which sympy's caches fill, is given back
START_S = 120.0  # to start a keeper or import a package, on a slow disk
SEALED = 15  # F_SEAL_SEAL, _SHRINK, _GROW, _WRITE: nobody changes a file of this kind again
KILL_S = 0.5  # to hear that a child is dead, before its keeper is killed too

# ---------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True)
class Call:
    """A module-level function of verify.py, by name, with arguments that JSON can say.

    `packages` are imported beforehand, outside the time limit. `evaluates`: the function may run model text as code,
    so it gets a process of its own, and the walls that code gets.
    """

    function: str
    args: list
    packages: tuple[str, ...] = ()
    evaluates: bool = False


# A program's standard input, or {"fn_name": str, "args": a list of `encode`d values, "kwargs": a dict of them}.
Test = str | dict[str, Any]


class Result(NamedTuple):
    """How one test of a program ended.

    status     value (None for the others)
    ok         the standard output as text; of a function what it returned, `encode`d, as JSON text that may be forged
    error      an exception, or an exit status that is not 0: the output; of a function the exception's name
    unparsed   the source does not compile
    timeout    it took too long
    output     it wrote more than MAX_OUTPUT
    crashed    it was ended by a signal, or what it sent is no value
    """

    status: str
    value: Any = None


@dataclass(frozen=True)
class Program:
    """Untrusted code, run once per test in a fresh process. Its outcome's value is a list of `Result`, in order.

    After each test and in the trainer, `keep` gives what stays of a result, so that not all output does, and `go_on`
    says by that whether to run the next one. What stays is at most MAX_OUTPUT over all tests.
    """

    source: str
    tests: list[Test]
    test_s: float = 6.0
    memory: int = 1536 * MiB
    keep: Callable[[int, Result], Result] = lambda index, result: result
    go_on: Callable[[Result], bool] = lambda result: True


@dataclass(frozen=True)
class Outcome:
    """status: "ok" with the value; "timeout"; "crashed": the process died, raised, or sent no valid answer."""

    status: str
    value: Any = None
    seconds: float = field(default=0.0, compare=False)  # that it took, without the start of its worker


class WeakSandbox(RuntimeError):
    """This machine cannot build the walls that running model code needs."""


# -------------------------------------------------------------------------------------------- values


class Foreign:
    """Stands for a value that is no plain data. Equal to nothing, whatever its original says about that."""

    def __init__(self, name: str) -> None:
        self.name = name


def encode(value: Any) -> Any:
    """Plain Python data as JSON that keeps its types: a tuple is no list. Of an object only its type's name is left."""
    if value is None or isinstance(value, bool | float):
        return value if value is None or type(value) in (bool, float) else float(value)
    if isinstance(value, int):
        value = int(value)
        # Python refuses to write longer integers in decimal, and the trainer to read them.
        return value if value.bit_length() <= 10_000 else {"hex": hex(value)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    for name, kind in (("tuple", tuple), ("set", set | frozenset)):
        if isinstance(value, kind):
            return {name: [encode(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if type(value).__module__ == "numpy":
        return encode(value.tolist())
    return {"foreign": type(value).__name__}


def decode(value: Any) -> Any:
    """The value that `encode` encoded. ValueError or TypeError for anything that it never gives."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("an encoded value has one tag")
    [(tag, content)] = value.items()
    if tag == "dict":
        return {decode(key): decode(item) for key, item in content}
    if tag in ("tuple", "set"):
        return {"tuple": tuple, "set": set}[tag](decode(item) for item in content)
    if tag == "hex":
        return int(content, 16)
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag == "complex":
        return complex(*content)
    if tag == "foreign":
        return Foreign(content)
    raise ValueError("an encoded value has a known tag")


def _parse(data: bytes | bytearray) -> Any:
    """JSON from a process that is not trusted; ValueError if it is anything else."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# ------------------------------------------------------------------------------- the trainer's side


# What a job waits for: one of these file descriptors, ready to be read or written, or a point in time.
Wait = tuple[list[int], list[int], float]
Steps = Generator[Wait, None, Any]


class KeeperDied(Exception):
    """The keeper is gone, or does not do as told."""


class NotStarted(KeeperDied):
    """It went before its walls were up."""


class Worker:
    """One keeper, and the child that it has at the time. Every method that waits is a generator of `Wait`s."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.level: int | None = None
        self.walls = ""
        self.packages: set[str] = set()
        self.exits: deque[int] = deque()
        self.replies: deque[dict] = deque()
        self.buffer = bytearray()
        self.child: socket.socket | None = None
        self.calls = 0
        self.lost = False
        self.control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-s", "-B", os.path.abspath(__file__), str(theirs.fileno())]
            command += [kind, str(os.getpid()), json.dumps([path for path in sys.path if os.path.isabs(path)])]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
                cwd="/",
                pass_fds=[theirs.fileno()],
                close_fds=True,
                start_new_session=True,
            )
        self.control.setblocking(False)

    def end(self) -> None:
        """Kill the keeper; its child dies of that. Where it may have had children, the keeper is left time to look."""
        self._drop_child()
        self.control.close()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if self.level is not None and self.level < 2:
                self.process.wait(KILL_S)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stderr.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(START_S)

    def start(self) -> Steps:
        """Wait until the keeper's walls are up."""
        deadline = time.monotonic() + START_S
        try:
            while self.level is None:
                yield from self._receive(deadline)
        except KeeperDied as error:
            os.set_blocking(self.process.stderr.fileno(), False)
            words = (self.process.stderr.read() or b"")[-2_000:].decode(errors="replace")
            raise NotStarted(f"{error}: {words}") from None
        LOG.debug("keeper %s of %s: level %s, %s", self.process.pid, self.kind, self.level, self.walls)

    def load(self, packages: Iterable[str], required: bool) -> Steps:
        """Have the keeper import what its children will need, so that each child is born with it."""
        for package in packages:
            if package in self.packages:
                continue
            self._send({"import": package})
            deadline = time.monotonic() + START_S
            while not self.replies:
                yield from self._receive(deadline)
            error = self.replies.popleft()["imported"]
            if error and required:
                raise RuntimeError(f"a worker process cannot import {package} ({error}): is it installed here?")
            self.packages.add(package)

    def fork(self, order: dict, fds: list[int]) -> None:
        self.exits.clear()
        self._send(order, fds)

    def kill(self) -> Steps:
        """Kill the child and wait for its end. Where that is not heard of, the whole session goes."""
        self._drop_child()
        try:
            self._send({"kill": True})
            deadline = time.monotonic() + KILL_S
            while not self.exits:
                yield from self._receive(deadline)
        except KeeperDied:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.lost = True

    def call(self, job: Call, deadline: float) -> Steps:
        """One call, from one child to the next where that may be: its outcome."""
        if job.evaluates or self.calls >= CALLS_PER_CHILD:
            yield from self._retire_child()
        request = json.dumps([job.function, job.args]).encode() + b"\n"
        # What ends a child before its answer may be a leftover of the call before: a second one is born for this call.
        for _ in range(2):
            if self.child is None:
                self._fork_child(deadline)
            reply = yield from self._ask(request, deadline)
            if job.evaluates or reply is None or reply.status == "crashed":
                yield from self._retire_child()
            if reply is not None:
                return reply
        return Outcome("crashed")

    def _fork_child(self, deadline: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.fork({"fork": "calls", "limits": {"AS": 4096 * MiB, "FSIZE": 0}}, [theirs.fileno()])
        ours.setblocking(False)
        self.child, self.calls = ours, 0

    def _ask(self, request: bytes, deadline: float) -> Steps:
        """The outcome of one call; None if the child ended before it answered."""
        self.calls += 1
        unsent, reply = memoryview(request), bytearray()
        while not reply.endswith(b"\n"):
            if time.monotonic() >= deadline:
                yield from self._retire_child()
                return Outcome("timeout")
            yield [self.child.fileno(), self.control.fileno()], [self.child.fileno()] if unsent else [], deadline
            try:
                with contextlib.suppress(BlockingIOError):
                    while unsent:
                        unsent = unsent[self.child.send(unsent) :]
                with contextlib.suppress(BlockingIOError):
                    data = self.child.recv(65_536)
                    if not data:
                        return None
                    reply += data
            except OSError:
                return None
            self._read_control()
            if len(reply) > MAX_REPLY:
                return Outcome("crashed")
        try:
            answer = _parse(reply)
            if "error" in answer:
                LOG.debug("%s raised %s", json.loads(request)[0], answer["error"])
            return Outcome("ok", answer["value"])
        except (ValueError, TypeError, KeyError):
            return Outcome("crashed")

    def _retire_child(self) -> Steps:
        if self.child is not None:
            yield from self.kill()

    def _drop_child(self) -> None:
        if self.child is not None:
            self.child.close()
            self.child = None

    def program(self, job: Program, deadline: float) -> Steps:
        """All tests of a program, each within its own limit and all within the deadline."""
        results, kept = [], 0
        for index, test in enumerate(job.tests):
            tested = Result("timeout")
            until = min(time.monotonic() + job.test_s, deadline)
            # SIGKILL from elsewhere says nothing about the program: once more.
            for _ in range(2):
                if time.monotonic() < until:
                    tested, signalled = yield from self._test(job, test, until)
                    if signalled != signal.SIGKILL:
                        break
            tested = job.keep(index, tested)
            kept += len(tested.value) if isinstance(tested.value, str) else 0
            results.append(tested if kept <= MAX_OUTPUT else Result("output"))
            if self.lost and len(results) < len(job.tests) and time.monotonic() < deadline:
                raise KeeperDied("it did not kill")
            if not job.go_on(tested):
                break
        return Outcome("ok", results)

    def _test(self, job: Program, test: Test, deadline: float) -> Steps:
        """(How the test ended, the signal that ended it, if it was none of ours)."""
        called = isinstance(test, dict)
        limits = {"AS": job.memory, "CPU": math.ceil(deadline - time.monotonic()) + 1, "FSIZE": MAX_OUTPUT + 1}
        task = json.dumps({"source": job.source} | (test if called else {})).encode()
        given = b"" if called else test.encode(errors="surrogatepass")
        # The output is read when all is over: how it was written, in however small pieces, costs nobody but the child.
        with _bytes_file(task) as task_file, _bytes_file(given) as given_file, _empty_file() as output_file:
            files = [task_file.fileno(), given_file.fileno(), output_file.fileno()]
            self.fork({"fork": "function" if called else "script", "limits": limits}, files)
            while not self.exits:
                yield [self.control.fileno()], [], deadline
                self._read_control()
                if not self.exits and time.monotonic() >= deadline:
                    yield from self.kill()
                    return Result("timeout"), None
            output = os.pread(files[2], MAX_OUTPUT + 1, 0)
        code = self.exits[0]
        if len(output) > MAX_OUTPUT:
            return Result("output"), None
        if code < 0:
            return Result("crashed"), -code
        if code == EXIT_UNPARSED:
            return Result("unparsed"), None
        return Result("error" if code else "ok", output.decode(errors="replace")), None

    def _send(self, order: dict, fds: Iterable[int] = ()) -> None:
        data = json.dumps(order).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            # A few hundred bytes at a time, of which the keeper reads all: they fit, or it is stuck.
            if self.control.sendmsg([data], rights) < len(data):
                raise KeeperDied("it does not listen")
        except OSError as error:
            raise KeeperDied(str(error)) from None

    def _receive(self, deadline: float) -> Steps:
        """Wait for the keeper to say something."""
        if time.monotonic() >= deadline:
            raise KeeperDied("it does not answer")
        yield [self.control.fileno()], [], deadline
        self._read_control()

    def _read_control(self) -> None:
        try:
            data = self.control.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError as error:
            raise KeeperDied(str(error)) from None
        self.buffer += data
        if not data or len(self.buffer) > MAX_MESSAGE:
            raise KeeperDied("it has ended")
        while b"\n" in self.buffer:
            line, _, self.buffer = self.buffer.partition(b"\n")
            try:
                message = _parse(line)
                if "exit" in message:
                    self.exits.append(int(message["exit"]))
                elif "level" in message:
                    self.level, self.walls = int(message["level"]), str(message["walls"])
                else:
                    self.replies.append(message)
            except (ValueError, TypeError) as error:
                raise KeeperDied(f"it talks nonsense: {error}") from None


def _bytes_file(data: bytes) -> Any:
    """An open file that has these bytes, for good, and no name."""
    file = _empty_file()
    file.write(data)
    file.seek(0)
    if hasattr(os, "memfd_create"):
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALED)
    return file


def _empty_file() -> Any:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    return tempfile.TemporaryFile()


def _environment() -> dict[str, str]:
    """Nothing of the trainer's but where the C library finds libraries, without which some Pythons do not start."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # Reasoning Gym imports matplotlib, which only starts where it finds a folder that it believes it could write to.
    fixed = {"PATH": "/usr/bin:/bin", "HOME": "/", "MPLCONFIGDIR": "/tmp", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    return kept | one_thread | fixed


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
    """`workers` jobs at a time, each in a process of its own; may be used again and again, by one thread at a time."""

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

    def run(self, jobs: Iterable[Call | Program], timeout_s: float | list[float]) -> Iterator[tuple[int, Outcome]]:
        """(Index, outcome) of each job as it ends, each within `timeout_s`, or its own of them. Jobs are taken from
        the iterable one by one as workers become free.

        Raises WeakSandbox for model code where the walls are too low, RuntimeError where no worker can be started.
        """
        if self.owner != os.getpid():
            raise RuntimeError("a Pool belongs to the process that made it: make another one after a fork")
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("a Pool runs one batch at a time: finish the first, or make another Pool")
        try:
            limits = timeout_s if isinstance(timeout_s, list) else itertools.repeat(timeout_s)
            queue, again = (_Task(*task) for task in zip(itertools.count(), jobs, limits)), deque()
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
        kind = "programs" if isinstance(task.job, Program) else "calls"
        worker = next((worker for worker in self._idle if worker.kind == kind), None)
        if worker is not None:
            self._idle.remove(worker)
        if worker is not None and task.again:
            # What ended the first keeper may have ended this one too.
            worker.end()
            worker = None
        worker = worker or Worker(kind)
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
        run = worker.program if isinstance(job, Program) else worker.call
        outcome = yield from run(job, task.deadline)
        return replace(outcome, seconds=time.monotonic() - task.deadline + task.limit_s)

    def _require(self, worker: Worker) -> None:
        if worker.level < REQUIRED_LEVEL and not self.allow_weak:
            raise WeakSandbox(
                f"model code is not run here: this machine's walls reach level {worker.level} ({worker.walls}) of the "
                f"{REQUIRED_LEVEL} in sandbox.py. Use Linux >= 5.13 on x86_64 or aarch64 with Landlock on, leave out "
                "problems whose answers are code, or set allow_weak_sandbox to run it all the same"
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
            LOG.warning("worker %s was lost (%s)", worker.process.pid, error)
            worker.end()
            if not active.task.again:
                # Whoever ended the keeper, this answer need not be to blame.
                active.task.again = True
                again.append(active.task)
            elif isinstance(error, NotStarted):
                del self._active[worker]
                raise RuntimeError(f"no worker process can be started here: {error}") from None
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
            worker = Worker("programs")
            self._idle.append(worker)
            for (control,), _, deadline in worker.start():
                poll = select.poll()
                poll.register(control, select.POLLIN)
                poll.poll(max(0, math.ceil(1000 * (deadline - time.monotonic()))))
        return self._idle[0].level, self._idle[0].walls


_logged = False


def _log_level(worker: Worker) -> None:
    global _logged
    LOG.log(logging.DEBUG if _logged else logging.INFO, "sandbox: level %s (%s)", worker.level, worker.walls)
    _logged = True


# ---------------------------------------------------------------------------------------- the keeper


class Keeper:
    """The main loop of a worker process: take orders, fork, kill, say who has ended. It sees no byte of any job."""

    def __init__(self, control: socket.socket, kind: str, parent: int, path: list[str]) -> None:
        self.control, self.kind, self.parent = control, kind, parent
        self.child = 0
        self.null = os.open(os.devnull, os.O_RDWR)
        self.functions: Any = None
        self.fds: list[int] = []
        project = os.path.dirname(os.path.abspath(__file__))
        # The project is found here and nowhere later, nor is anything that lies in the folders above it.
        sys.path[:] = [project] + [entry for entry in path if entry != project]
        if kind == "calls":
            self.functions = importlib.import_module("verify")
        else:
            self.functions = prelude()
        sys.path[:] = [entry for entry in sys.path[1:] if os.path.isdir(entry)]
        self.outer = put_up_outer_walls()
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.level, self.walls = self.find_level()

    def serve(self) -> None:
        self.say(level=self.level, walls=self.walls)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        buffer = b""
        while True:
            # Some other fork of the trainer may hold the far end open: its death is looked for as well.
            ready = dict(poll.poll(1000))
            if os.getppid() != self.parent:
                return self.kill()
            if self.woken in ready:
                os.read(self.woken, 512)
                self.reap()
            if self.control.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE, 8)
                if not data:
                    return self.kill()
                self.fds += fds
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line))

    def obey(self, order: dict) -> None:
        if "import" in order:
            self.say(imported=self.load(order["import"]))
        elif "kill" in order:
            self.kill()
        else:
            fds, self.fds = self.fds, []
            self.fork(order, fds)
            for fd in fds:
                os.close(fd)

    def load(self, package: str) -> str | None:
        # An import takes seconds: meanwhile an alarm looks whether the trainer still lives.
        signal.signal(signal.SIGALRM, lambda *_: os.getppid() == self.parent or os._exit(EXIT_BROKEN))
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        try:
            importlib.import_module(package)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:1000]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return None

    def fork(self, order: dict, fds: list[int]) -> None:
        keeper = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            code = EXIT_BROKEN
            try:
                self.become_child(order, fds, keeper)
                if order["fork"] == "calls":
                    serve_calls(self.functions, 3)
                else:
                    code = run_program(self.functions, order["fork"] == "function")
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def become_child(self, order: dict, fds: list[int], keeper: int) -> None:
        """Nothing of the keeper's is left open: 0 to 2 are the standard files, the job's own follow from 3 on."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        script = order["fork"] == "script"
        plan = [fds[1] if script else self.null, fds[2] if script else self.null, self.null]
        plan += fds[:1] if order["fork"] != "function" else [fds[0], fds[2]]
        # Moved out of the way first: a plain sequence of dup2 would overwrite what it still needs.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in plan]
        for place, fd in enumerate(high):
            os.dup2(fd, place, inheritable=True)
        kept = [*range(len(plan)), *sorted(self.outer.folders), 256]
        for before, after in itertools.pairwise(kept):
            os.closerange(before + 1, after)
        put_up_inner_walls(self.outer, order["limits"], keeper)

    def kill(self) -> None:
        """End the child, and at low levels, where it may have had children, those that can be found."""
        if self.child:
            os.kill(self.child, signal.SIGKILL)
        self.reap(block=True)

    def reap(self, block: bool = False) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, 0 if block and self.child else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.child = 0
                self.sweep()
                self.say(exit=os.waitstatus_to_exitcode(status))

    def sweep(self) -> None:
        """Without seccomp a child can have left processes behind. A user of our own has no process but these."""
        if not self.outer.seccomp:
            if self.outer.own_user:
                with contextlib.suppress(OSError):
                    os.kill(-1, signal.SIGKILL)
            for pid in os.pread(self.outer.children, 65_536, 0).split() if self.outer.children else []:
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)

    def say(self, **message: Any) -> None:
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def find_level(self) -> tuple[int, str]:
        """A child tries to break out. What it could do decides, not what was asked of the kernel."""
        readable, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                put_up_inner_walls(self.outer, {"AS": 1024 * MiB, "CPU": 10, "FSIZE": 0}, os.getppid())
                os.write(theirs, json.dumps(try_to_break_out(__file__, self.parent)).encode())
            os._exit(0)
        os.close(theirs)
        os.waitpid(pid, 0)
        with open(readable, "rb") as pipe:
            broken = json.loads(pipe.read() or b'["everything"]')
        walls = [name for name in (self.outer.user, self.outer.seccomp, self.outer.landlock) if name]
        level = 1 if self.outer.no_new_privileges else 0
        if level == 1 and self.outer.seccomp and not {"everything", "network", "process", "signal"} & {*broken}:
            level = 3 if self.outer.landlock and not {"read", "environment"} & {*broken} else 2
        described = ", ".join(walls) or "limits only"
        return level, described + (f"; a child could still reach: {', '.join(broken)}" if broken else "")


def try_to_break_out(project_file: str, trainer: int) -> list[str]:
    """What a child can do that it should not."""
    attempts = {
        "network": lambda: socket.socket().close(),
        "process": lambda: os.fork() or os._exit(0),
        "signal": lambda: os.kill(trainer, 0),
        "read": lambda: open(project_file).close(),
        "environment": lambda: open(f"/proc/{trainer}/environ").close(),
    }
    reached = []
    for name, attempt in attempts.items():
        with contextlib.suppress(OSError):
            attempt()
            reached.append(name)
    return reached


# ----------------------------------------------------------------------------------------- the child

EXIT_UNPARSED = 65
EXIT_BROKEN = 70

# What programs of the public sets use without importing it: their judges had it imported.
PRELUDE = """
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import ceil, comb, cos, factorial, floor, gcd, inf, log, log2, pi, sin, sqrt
from typing import *
"""
# Imported so that no child pays for it; not in the program's names.
WARM = "array copy dataclasses datetime decimal enum fractions io json queue statistics threading time types"


def prelude() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    for module in WARM.split():
        importlib.import_module(module)
    return {name: value for name, value in names.items() if not name.startswith("__")}


def serve_calls(functions: Any, fd: int) -> None:
    """Functions of verify.py, one call after the other, until the trainer hangs up."""
    with socket.socket(fileno=fd) as connection, connection.makefile("rb") as requests:
        for line in requests:
            name, args = json.loads(line)
            try:
                reply = json.dumps({"value": getattr(functions, name)(*args)})
            except BaseException as error:
                reply = json.dumps({"error": type(error).__name__})
            connection.sendall(reply.encode() + b"\n")


def run_program(names: dict[str, Any], called: bool) -> int:
    """One test of a program: 3 has its source, and for a function 4 takes the value. Returns the exit status."""
    with open(3, "rb") as file:
        task = json.load(file)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape")
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", encoding="utf-8", errors="replace")
    sys.argv = ["solution.py"]
    # Judges of the public sets let programs print integers of any length.
    sys.set_int_max_str_digits(0)
    name = "solution" if called else "__main__"
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(names)
    try:
        code = compile(task["source"], "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return EXIT_UNPARSED
    try:
        exec(code, module.__dict__)
        if called:
            args, kwargs = [decode(arg) for arg in task["args"]], task.get("kwargs", {})
            function = _find_function(module, task["fn_name"])
            value = function(*args, **{key: decode(value) for key, value in kwargs.items()})
            _give(json.dumps(encode(value)))
            return 0
    except SystemExit as error:
        if called or error.code not in (None, 0):
            return 1
    except BaseException as error:
        if called:
            _give(type(error).__name__[:100])
        return 1
    return _finish()


def _give(text: str) -> None:
    with open(4, "wb") as file:
        file.write(text.encode())


def _finish() -> int:
    """What the interpreter does at the end of a script: wait for threads, run exit functions, write out."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        return 1
    return 0


def _find_function(module: types.ModuleType, name: str) -> Callable:
    """The function, or the method of a class Solution."""
    function = getattr(module, name, None)
    if callable(function):
        return function
    return getattr(module.Solution(), name)


# ----------------------------------------------------------------------------------------- the walls

LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(*arguments: Any) -> int:
    """The kernel looks at all five words, of which ctypes would set only half of each."""
    words = [*arguments, *[0] * (5 - len(arguments))]
    return _libc.prctl(*(word if isinstance(word, bytes) else ctypes.c_ulong(word) for word in words))


PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_SECCOMP = 1, 4, 15, 16, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_VMA = 36, 38, 0x53564D41

# In the range that no distribution gives to people or services. Each keeper takes one: they cannot signal each other.
FIRST_USER, USERS = 61_184, 4_096
NOBODY = 65_534
CAPABILITY_VERSION_3 = 0x20080522


@dataclass
class Outer:
    """Which outer walls stand, by name or empty.

    `own_user`: no other keeper has this user. `folders`: open folders of Python that only their file descriptors lead
    to. `processes`: the greatest number of processes and threads that the user may have. `children`: an open file of
    the kernel's that lists the keeper's, or 0.
    """

    no_new_privileges: bool
    user: str
    own_user: bool
    seccomp: str
    landlock: str
    folders: set[int]
    processes: int
    children: int


def put_up_outer_walls() -> Outer:
    """Those of the keeper, which its children inherit: an unprivileged user, no way to privileges, Landlock."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where the machine's memory runs out all the same, the kernel is to end a child and not the trainer.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    # Opened as the user who started the trainer: the next one may not get there.
    folders = {path: os.open(path, os.O_RDONLY) for path in python_folders() if os.path.isdir(path)}
    was_root = os.geteuid() == 0
    uid = become_nobody() if was_root else None
    # Root of a container that knows no other user, and outside of it an ordinary one.
    powerless = uid is None and was_root and drop_capabilities()
    children = f"/proc/self/task/{os.getpid()}/children"
    children = os.open(children, os.O_RDONLY) if os.path.exists(children) else 0
    processes = 64 if uid not in (None, NOBODY) else _threads_of_user() + 1024
    kept = reach_python(folders)
    landlock, no_new_privileges = "", False
    if LINUX:
        _prctl(PR_SET_DUMPABLE, 0)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        no_new_privileges = _prctl(PR_SET_NO_NEW_PRIVS, 1) == 0
        landlock = put_up_landlock(folders)
    for fd in folders.values():
        os.close(fd)
    return Outer(
        no_new_privileges=no_new_privileges and (not was_root or uid is not None or powerless),
        user="no capabilities" if powerless else "" if uid is None else f"user {uid}",
        own_user=uid not in (None, NOBODY),
        seccomp="seccomp" if can_filter() else "",
        landlock=landlock,
        folders=kept,
        processes=processes,
        children=children,
    )


def put_up_inner_walls(outer: Outer, limits: dict[str, int], keeper: int) -> None:
    """Those of a child, below which nothing of the model's has run: limits, death with its keeper, seccomp."""
    limits = limits | {"NOFILE": 128, "NPROC": outer.processes, "SIGPENDING": 256, "MEMLOCK": 0, "MSGQUEUE": 0}
    for name, limit in limits.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    with contextlib.suppress(ValueError, OSError):
        # Deep recursion is honest in these programs. Linux leaves 128 MiB below the stack free, whatever the limit.
        resource.setrlimit(resource.RLIMIT_STACK, (120 * MiB, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    if LINUX:
        if "CPU" in limits:
            # On the processor that it was born on, the idlest one: its threads, however many, take no other.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                os.sched_setaffinity(0, {_libc.sched_getcpu()})
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(EXIT_BROKEN)
    if outer.seccomp:
        put_up_seccomp()


def become_nobody() -> int | None:
    """Become a user without rights, at best one of this process's own; None where the kernel knows no such user."""
    for uid in (FIRST_USER + os.getpid() % USERS, NOBODY):
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            return uid
    return None


def drop_capabilities() -> bool:
    """Keep root's name without its rights."""
    header, none = struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    return LINUX and _libc.capset(header, none) == 0


def _threads_of_user() -> int:
    """All threads of this user on the machine: what the kernel holds against RLIMIT_NPROC."""
    total = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.geteuid():
                total += len(os.listdir(f"/proc/{entry}/task"))
    return total


# Python, wherever it is installed


def python_folders() -> list[str]:
    """The folders that imports read: of the standard library, of its shared libraries, of installed packages."""
    folders = [entry for entry in sys.path if "site-packages" in entry or "dist-packages" in entry]
    for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix):
        folders += [os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")]
    folders += [entry for entry in sys.path if entry.startswith(tuple(folders))]
    return list(dict.fromkeys(os.path.realpath(folder) for folder in folders))


def reach_python(folders: dict[str, int]) -> set[int]:
    """Make imports work for a user to whom the way there is closed, such as a Python below root's home folder.

    A file descriptor of a folder leads into it without passing those above. Returns the ones that are needed now.
    """
    closed = {path: fd for path, fd in folders.items() if not os.access(path, os.R_OK | os.X_OK)}
    # From 64 on, where no file of a job will be.
    kept = {path: fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for path, fd in closed.items()}

    def reachable(entry: str) -> str:
        real = os.path.realpath(entry) if os.path.exists(entry) else entry
        for path, fd in sorted(kept.items(), key=lambda item: -len(item[0])):
            if real == path or real.startswith(path + os.sep):
                return f"/proc/self/fd/{fd}{real[len(path) :]}"
        return entry

    if kept:
        sys.path[:] = [reachable(entry) for entry in sys.path]
        sys.path_importer_cache.clear()
        for module in list(sys.modules.values()):
            if isinstance(getattr(module, "__path__", None), list):
                module.__path__[:] = [reachable(entry) for entry in module.__path__]
    return set(kept.values())


# Landlock (linux/landlock.h): what may be opened, for good

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_READ_FILE, LANDLOCK_READ_DIR = 1 << 2, 1 << 3
# How many rights over files each version of Landlock knows: version 1 has 13.
LANDLOCK_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
LANDLOCK_FILE_RIGHTS_SINCE_5 = 16

SYSTEM_FOLDERS = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"]
SYSTEM_FILES = ["/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]


def put_up_landlock(folders: dict[str, int]) -> str:
    """Allow reading below these folders and the system's libraries, and nothing else. Its version, or ""."""
    version = _libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return ""
    handled = (1 << LANDLOCK_FILE_RIGHTS.get(version, LANDLOCK_FILE_RIGHTS_SINCE_5)) - 1
    # Network: bind and connect, from version 4. Scope: abstract sockets and signals, from version 6.
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return ""
    opened = list(folders.values())
    system = [path for path in SYSTEM_FOLDERS + SYSTEM_FILES if os.path.exists(path)]
    for path in system:
        with contextlib.suppress(OSError):
            opened.append(os.open(path, os.O_RDONLY))
    for fd in opened:
        rights = LANDLOCK_READ_FILE | (LANDLOCK_READ_DIR if stat.S_ISDIR(os.fstat(fd).st_mode) else 0)
        rule = struct.pack("=Qi", rights, fd)
        _libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0))
    restricted = _libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0
    for fd in [ruleset, *opened[len(folders) :]]:
        os.close(fd)
    return f"Landlock {version}" if restricted else ""


# seccomp (linux/seccomp.h): which system calls are refused. Name: number on x86_64, on aarch64 (None: not there)

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# fmt: off
REFUSED = {
    # the network; a socket made before the walls could not be used for it either
    "socket": (41, 198), "bind": (49, 200), "connect": (42, 203), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    # other processes: to start, leave, see, change or signal one (clone, kill, tgkill: below)
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "setsid": (112, 157),
    "setpgid": (109, 154), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # rights
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "capset": (126, 91), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "seccomp": (317, 277), "personality": (135, 92),
    # any change to a file, even to one that the user owns (open, openat: below)
    "creat": (85, None), "truncate": (76, 45), "unlink": (87, None), "unlinkat": (263, 35), "rmdir": (84, None),
    "mkdir": (83, None), "mkdirat": (258, 34), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None),
    "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # what would live on in the kernel after the process
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_notify": (244, 184),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # what the whole machine shares and waits for
    "sync": (162, 81), "syncfs": (306, 267), "io_setup": (206, 0),
    # the ways into the kernel that its bugs are found in, and the administrator's
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "inotify_init": (253, None), "inotify_init1": (294, 26), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None), "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42), "vhangup": (153, 58),
}
# Their arguments lie in memory, where a filter cannot look: "not there" makes C libraries use the older call.
ABSENT = {"clone3": (435, 435), "openat2": (437, 437)}
LAST_KNOWN_CALL = 451
# fmt: on

CLONE_THREAD = 0x10000
CHANGES_A_FILE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
F_NOTIFY = 1026
# Whether a file is a terminal, its size, how many bytes wait, close on exec, blocking: what Python itself asks.
HARMLESS_IOCTLS = [0x5401, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421]

LOAD, EQUAL, GREATER, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def can_filter() -> bool:
    return LINUX and platform.machine() in AUDIT_ARCH and sys.maxsize > 2**32 and sys.byteorder == "little"


def seccomp_filter(machine: str, pid: int) -> bytes:
    """The filter as a program of the kernel's packet filter, which sees the call's number and its arguments."""
    column = list(AUDIT_ARCH).index(machine)
    program: list[tuple[int, int, int, int]] = []

    def refuse(number: int | None, error: int = errno.EPERM) -> None:
        if number is not None:
            program.extend([(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | error)])

    def decide(numbers: tuple[int | None, int], argument: int, *tests: tuple[int, int, int, int]) -> None:
        """For one call: look at an argument, then run the tests, which end in a RETURN whatever they find."""
        if numbers[column] is not None:
            program.append((EQUAL, 0, len(tests) + 1, numbers[column]))
            program.extend([(LOAD, 0, 0, 16 + 8 * argument), *tests])

    def allowed(operation: int, *values: int, error: int = errno.EPERM) -> list[tuple[int, int, int, int]]:
        """Allow if a comparison with one of the values holds."""
        jumps = [(operation, len(values) - at, 0, value) for at, value in enumerate(values)]
        return [*jumps, (RETURN, 0, 0, ERRNO | error), (RETURN, 0, 0, ALLOW)]

    def refused(operation: int, *values: int, error: int = errno.EPERM) -> list[tuple[int, int, int, int]]:
        jumps = [(operation, len(values) - at, 0, value) for at, value in enumerate(values)]
        return [*jumps, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | error)]

    # Another architecture's numbers mean other calls.
    program += [(LOAD, 0, 0, 4), (EQUAL, 1, 0, AUDIT_ARCH[machine]), (RETURN, 0, 0, KILL_PROCESS), (LOAD, 0, 0, 0)]
    program += [(GREATER, 0, 1, LAST_KNOWN_CALL), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    for numbers in ABSENT.values():
        refuse(numbers[column], errno.ENOSYS)
    for numbers in REFUSED.values():
        refuse(numbers[column])
    decide((56, 220), 0, *allowed(ANY_BIT, CLONE_THREAD))
    decide((2, None), 1, *refused(ANY_BIT, CHANGES_A_FILE, error=errno.EACCES))
    decide((257, 56), 2, *refused(ANY_BIT, CHANGES_A_FILE, error=errno.EACCES))
    decide((62, 129), 0, *allowed(EQUAL, pid))
    decide((234, 131), 0, *allowed(EQUAL, pid))
    decide((302, 261), 0, *allowed(EQUAL, 0, pid))
    decide((157, 167), 0, *allowed(EQUAL, PR_SET_NAME, PR_GET_NAME, PR_SET_VMA))
    decide((16, 29), 1, *allowed(EQUAL, *HARMLESS_IOCTLS, error=errno.ENOTTY))
    # These have the kernel send signals for the process.
    decide((72, 25), 1, *refused(EQUAL, fcntl.F_SETOWN, fcntl.F_SETSIG, 15, F_NOTIFY, 1024))
    # asyncio's own; a datagram socket could still be sent elsewhere.
    stream = [(LOAD, 0, 0, 24), (AND, 0, 0, 0xF), *allowed(EQUAL, socket.SOCK_STREAM)]
    decide((53, 199), 0, (EQUAL, 1, 0, socket.AF_UNIX), (RETURN, 0, 0, ERRNO | errno.EPERM), *stream)
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def put_up_seccomp() -> None:
    code = seccomp_filter(platform.machine(), os.getpid())
    instructions = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HxxxxxxQ", len(code) // 8, ctypes.addressof(instructions))
    if _prctl(PR_SET_SECCOMP, 2, header) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the seccomp filter")


def main() -> None:
    """The worker process: `python sandbox.py CONTROL KIND TRAINER PATH`, started by `Worker` and by nobody else."""
    control, kind, parent, path = sys.argv[1:]
    # A blocked signal would be inherited from whichever thread of the trainer started this process.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    keeper = Keeper(socket.socket(fileno=int(control)), kind, int(parent), json.loads(path))
    try:
        keeper.serve()
    finally:
        keeper.kill()


if __name__ == "__main__":
    main()
