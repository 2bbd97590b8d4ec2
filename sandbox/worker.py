"""A worker: the trainer's conversation with one keeper and its child."""

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
from typing import Any

from sandbox import CannotStart
from sandbox.jobs import EXIT_UNPARSED, MAX_MESSAGE, MAX_OUTPUT, MAX_REPLY, Call, Ended, MiB, Program, Result, Test
from sandbox.messages import printable
from sandbox.values import read_reply

TEST_SHARE = 0.6  # of a program's time: one endless test leaves time for others
MEMORY = 1536 * MiB  # of a program
START_S, GRACE_S = 120.0, 0.5  # to start a keeper with its imports; for its answer after a deadline
CALLS_PER_CHILD = 500  # then the memory of a child is freed
SEALED = 15  # F_SEAL_SEAL, _SHRINK, _GROW, _WRITE: the file cannot change again
PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.keeper import main; main()"


class KeeperDied(Exception):
    """The keeper has ended, or does not answer as it should."""


class Worker:
    """A keeper with at most one child. Every method waits for that child's end or its deadline."""

    def __init__(self, modules: frozenset[str] | None) -> None:
        """Start a keeper that imports these modules for its calls; None: a keeper for programs."""
        self.modules = modules
        self.control, theirs = socket.socketpair()
        path = [entry for entry in sys.path if os.path.isabs(entry)]
        arguments = (theirs.fileno(), os.getpid(), path, None if modules is None else sorted(modules))
        command = [sys.executable, "-P", "-s", "-B", "-c", START, PROJECT, *map(json.dumps, arguments)]
        # A file and not a pipe: a keeper whose imports print a lot would wait until the pipe is read.
        self.stderr: Any = tempfile.TemporaryFile()  # noqa: SIM115
        options: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": self.stderr,
                        "env": _environment(), "cwd": "/", "start_new_session": True}  # fmt: skip
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **options)
        self.started, self.level, self.faults = False, 0, ""
        self.calls_socket: socket.socket | None = None
        self.calls = 0

    def start(self) -> None:
        """Wait until the walls are up. CannotStart with the keeper's last words if it cannot start."""
        began = time.monotonic()
        try:
            hello = self._hear(START_S)
        except KeeperDied:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            words = self._last_words()
            if time.monotonic() - began >= START_S:
                printed = f"; the last line that they printed: {words}" if words else ""
                raise KeeperDied(f"its imports took more than {START_S:g} s{printed}") from None
            if words:
                self.end()
                raise CannotStart(words) from None
            raise
        self.started, self.level, self.faults = True, int(hello["level"]), str(hello["faults"])

    def _last_words(self) -> str:
        """Return the last line that the keeper wrote to its standard error, or ""."""
        size = os.fstat(self.stderr.fileno()).st_size
        words = os.pread(self.stderr.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()
        return printable(words.splitlines()[-1]) if words else ""

    def end(self) -> None:
        """Kill the keeper and its child."""
        for connection in (self.control, self.calls_socket):
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.stderr.close()
        self.process.wait()
        self.control.close()

    def call(self, job: Call, deadline: float) -> Ended:
        """Run one call. A child takes up to CALLS_PER_CHILD calls and keeps its caches, unless a call must be alone."""
        alone = job.alone or job.evaluates
        if alone or self.calls >= CALLS_PER_CHILD:
            self._end_child()
        for _ in range(2):  # a child can die from its previous call: retry once in a fresh one
            if self.calls_socket is None:
                self.calls_socket, theirs = socket.socketpair()
                with theirs:
                    request = {"how": "call", "limits": {"AS": 4096 * MiB, "FSIZE": 0}}
                    self._send(request, [theirs.fileno()] * 3)
            self.calls += 1
            reply = self._ask(self.calls_socket, json.dumps([job.function, job.args]).encode() + b"\n", deadline)
            # An exception in words, which has a value, comes from a process that still serves.
            if alone or reply is None or (reply.status != "ok" and reply.value is None):
                self._end_child()
            if reply is not None:
                return reply
        return Ended("crashed")

    def _ask(self, connection: socket.socket, request: bytes, deadline: float) -> Ended | None:
        """Return the child's reply, None if the child ended before it replied."""
        reply = b""
        try:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.sendall(request)
            while not reply.endswith(b"\n") and len(reply) <= MAX_REPLY:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                data = connection.recv(65_536)
                if not data:
                    return None
                reply += data
            answer = read_reply(reply)
            if "error" in answer:
                status = "environment" if answer.get("environment") else "crashed"
                return Ended(status, printable(str(answer["error"])[:1000]))
            return Ended("ok", answer["value"])
        except TimeoutError:
            return Ended("timeout")
        except OSError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError):
            return Ended("crashed")

    def _end_child(self) -> None:
        """Have the child of the calls killed, and wait for the keeper's word."""
        if self.calls_socket is not None:
            self.calls_socket.close()
            self.calls_socket, self.calls = None, 0
            self._send({"kill": True}, [])
            self._hear(GRACE_S)

    def program(self, job: Program, deadline: float) -> Ended:
        """Run all tests of a program before the deadline, each within TEST_SHARE of the program's time."""
        results, kept = [], 0
        test_s = job.test_s or TEST_SHARE * (deadline - time.monotonic())
        for index, test in enumerate(job.tests):
            result = self._test(job, test, min(time.monotonic() + test_s, deadline))
            unparsed = result.status == "unparsed"
            result = job.keep(index, result)
            kept += len(result.value) if isinstance(result.value, str) else 0
            results.append(result if kept <= MAX_OUTPUT else Result("output"))
            if unparsed:
                break
        return job.read(results)

    def _test(self, job: Program, test: Test, deadline: float) -> Result:
        """Run one test in a child of its own."""
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return Result("timeout")
        how, named, text = ("program_function", test, "") if isinstance(test, dict) else ("program", {}, test)
        task = json.dumps({"source": job.source} | named).encode()
        limits = {"AS": MEMORY, "CPU": math.ceil(seconds) + 1, "FSIZE": MAX_OUTPUT + 1}
        with _file(task) as given, _file(text.encode(errors="surrogatepass")) as stdin, _file() as file:
            fds = [given.fileno(), stdin.fileno(), file.fileno()]
            self._send({"how": how, "limits": limits, "seconds": seconds}, fds)
            code = self._hear(seconds + GRACE_S)["exit"]
            output = os.pread(fds[2], MAX_OUTPUT + 1, 0)
        if code is None or len(output) > MAX_OUTPUT:
            return Result("timeout" if code is None else "output")
        if code < 0 or code == EXIT_UNPARSED:
            return Result("crashed" if code < 0 else "unparsed")
        return Result("error" if code else "ok", output.decode(errors="replace"))

    def _send(self, request: dict, fds: list[int]) -> None:
        try:
            socket.send_fds(self.control, [json.dumps(request).encode()], fds)
        except OSError as error:
            raise KeeperDied(str(error)) from None

    def _hear(self, seconds: float) -> dict:
        try:
            self.control.settimeout(seconds)
            return json.loads(self.control.recv(MAX_MESSAGE))
        except (OSError, ValueError, RecursionError) as error:
            raise KeeperDied(str(error)) from None


def _file(data: bytes = b"") -> Any:
    """Open a file without a name; one with data is sealed."""
    import fcntl  # not on Windows, which has no workers

    file = os.fdopen(os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    file.write(data)
    file.seek(0)
    if data:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALED)
    return file


def _environment() -> dict[str, str]:
    """Return the keeper's environment. It has no secret of the trainer's."""
    kept = {"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # A module may import matplotlib, which starts only if it finds a folder that it believes it may write to.
    fixed = {"PATH": "/usr/bin:/bin", "HOME": "/", "MPLCONFIGDIR": "/tmp", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    return kept | one_thread | fixed
