"""The trainer's side of one worker process: a keeper, and the child that it has at the time.

Every method that waits is a generator of `Wait`s. The pool drives many of them at once, in one thread, and enforces
the deadlines.
"""

import array
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterable, Set
from typing import Any

from sandbox.child import EXIT_UNPARSED
from sandbox.jobs import MAX_MESSAGE, MAX_OUTPUT, MAX_REPLY, Call, MiB, Outcome, Program, Result, Test, parse

CALLS_PER_CHILD = 500  # then its memory, which sympy's caches fill, is freed
MEMORY = 1536 * MiB  # of a program
START_S = 120.0  # to start a keeper with its imports, on a slow disk
SEALED = 15  # F_SEAL_SEAL, _SHRINK, _GROW, _WRITE: nobody changes a file of this kind again
KILL_S = 0.5  # to hear that a child is dead, before its keeper is killed too

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.keeper import main; main()"


# What a job waits for: one of these file descriptors, ready to be read or written, or a point in time.
Wait = tuple[list[int], list[int], float]
Steps = Generator[Wait, None, Any]


class KeeperDied(Exception):
    """The keeper is gone, or does not follow its orders."""


class NotStarted(KeeperDied):
    """It said why it cannot start, or took too long: another keeper would do the same."""


class Worker:
    """One keeper, and the child that it has at the time. Every method that waits is a generator of `Wait`s."""

    def __init__(self, modules: Set[str] | None) -> None:
        """`modules`: what it imports for its calls. None for a worker of programs."""
        self.modules = modules
        self.level: int | None = None
        self.walls = ""
        self.exits: deque[int] = deque()
        self.buffer = bytearray()
        self.child: socket.socket | None = None
        self.calls = 0
        self.lost = False
        self.control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-s", "-B", "-c", START, PROJECT]
            path = [entry for entry in sys.path if os.path.isabs(entry)]
            for argument in (theirs.fileno(), os.getpid(), path, None if modules is None else sorted(modules)):
                command.append(json.dumps(argument))
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
        assert self.process.stderr is not None
        self.stderr = self.process.stderr

    def end(self) -> None:
        """Kill the keeper and its session. Its child dies of that."""
        self._drop_child()
        self.control.close()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.stderr.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(START_S)

    def start(self) -> Steps:
        """Wait until the keeper's walls are up."""
        deadline = time.monotonic() + START_S
        try:
            while self.level is None:
                yield from self._receive(deadline)
        except KeeperDied as error:
            os.set_blocking(self.stderr.fileno(), False)
            words = (self.stderr.read() or b"")[-2_000:].decode(errors="replace").strip()
            if words or time.monotonic() >= deadline:
                raise NotStarted(words or str(error)) from None
            raise

    def fork(self, order: dict, fds: list[int]) -> None:
        self.exits.clear()
        self._send(order, fds)

    def kill(self) -> Steps:
        """Kill the child and wait for its end. Where no end is reported, the whole session is killed."""
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
        """The outcome of one call. A child takes one call after the other, unless a call must be alone."""
        alone = job.alone or job.evaluates
        if alone or self.calls >= CALLS_PER_CHILD:
            yield from self._retire_child()
        request = json.dumps([job.function, job.args]).encode() + b"\n"
        # What ends a child before its answer may be left over from the call before: a second child gets this call.
        for _ in range(2):
            if self.child is None:
                self._fork_child(deadline)
            assert self.child is not None
            reply = yield from self._ask(self.child, request, deadline)
            if alone or reply is None or reply.status == "crashed":
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

    def _ask(self, child: socket.socket, request: bytes, deadline: float) -> Steps:
        """The outcome of one call; None if the child ended before it answered."""
        self.calls += 1
        unsent, reply = memoryview(request), bytearray()
        while not reply.endswith(b"\n"):
            if time.monotonic() >= deadline:
                yield from self._retire_child()
                return Outcome("timeout")
            yield [child.fileno(), self.control.fileno()], [child.fileno()] if unsent else [], deadline
            try:
                with contextlib.suppress(BlockingIOError):
                    while unsent:
                        unsent = unsent[child.send(unsent) :]
                with contextlib.suppress(BlockingIOError):
                    data = child.recv(65_536)
                    if not data:
                        return None
                    reply += data
            except OSError:
                return None
            self._read_control()
            if len(reply) > MAX_REPLY:
                return Outcome("crashed")
        try:
            answer = parse(reply)
            if "error" in answer:
                return Outcome("crashed", str(answer["error"])[:1000])
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
        """(How the test ended, the signal that ended it, if we did not send it)."""
        named, text = (test, "") if isinstance(test, dict) else ({}, test)
        limits = {"AS": MEMORY, "CPU": math.ceil(deadline - time.monotonic()) + 1, "FSIZE": MAX_OUTPUT + 1}
        task = json.dumps({"source": job.source} | named).encode()
        stdin = text.encode(errors="surrogatepass")
        # The output is read at the end, so that many small writes cost the trainer nothing.
        with _bytes_file(task) as task_file, _bytes_file(stdin) as stdin_file, _empty_file() as output_file:
            files = [task_file.fileno(), stdin_file.fileno(), output_file.fileno()]
            self.fork({"fork": "function" if named else "script", "limits": limits}, files)
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
            # A few hundred bytes: they fit, or the keeper does not read.
            if self.control.sendmsg([data], rights) < len(data):
                raise KeeperDied("it does not listen")
        except OSError as error:
            raise KeeperDied(str(error)) from None

    def _receive(self, deadline: float) -> Steps:
        """Wait for the keeper to say something."""
        if time.monotonic() >= deadline:
            raise KeeperDied("it gave no answer in time")
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
            raise KeeperDied("its process ended")
        while b"\n" in self.buffer:
            line, _, self.buffer = self.buffer.partition(b"\n")
            try:
                message = parse(line)
                if "exit" in message:
                    self.exits.append(int(message["exit"]))
                else:
                    self.level, self.walls = int(message["level"]), str(message["walls"])
            except (ValueError, TypeError, KeyError) as error:
                raise KeeperDied(f"it talks nonsense: {error}") from None


def _bytes_file(data: bytes) -> Any:
    """An open file that has these bytes, for good, and no name."""
    file = _empty_file()
    file.write(data)
    file.seek(0)
    if hasattr(os, "memfd_create"):
        import fcntl  # here: Windows has none, and judges what needs no worker

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
