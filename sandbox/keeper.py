"""The keeper: it imports, puts up the outer walls, then forks a child for each test of a program and for calls.

Its first child tries to break out, which measures the level of this machine's walls.

Trainer and keeper send JSON objects over one socket. A request brings the file descriptors that its child gets.

    key             sent by    meaning
    level, faults   keeper     the first message: the walls are up, their level and what keeps them below the highest
    how             trainer    fork a child: for "call"s, a "program" that reads and prints, or a "program_function"
    limits          trainer    with `how`: resource limits of the child, {name in `resource` without RLIMIT_: number}
    seconds         trainer    with `how`, for programs only: the keeper kills the child after this time
    kill            trainer    kill the child that serves calls
    exit            keeper     answer to `kill` and to a program: the exit status, null if the keeper killed the child
"""

import contextlib
import fcntl
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
import types
from typing import Any

from sandbox.child import run_program, serve_calls
from sandbox.jobs import EXIT_BROKEN, MAX_MESSAGE
from sandbox.level import find_level
from sandbox.messages import described
from sandbox.walls import put_up_inner_walls, put_up_outer_walls

NICENESS = 10  # with a busy trainer on its core, a program gets about a tenth of the trainer's share of a core
MOST_FILES = 256  # numbers of open files
# Programs of the public sets use these names without importing them: their judges had done so.
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
# The keeper imports these, where installed, to save each child the time. A program does not see their names.
WARM = "numpy array copy dataclasses datetime decimal enum fractions io json queue statistics threading time types"


class Keeper:
    """Take a request, fork, wait for the child or its deadline, report its end. The keeper reads no byte of any job."""

    def __init__(self, control: socket.socket, trainer: int, path: list[str], modules: list[str] | None) -> None:
        self.control, self.trainer, self.calls_child = control, trainer, 0
        self.null = os.open(os.devnull, os.O_RDWR)
        project = sys.path[0]
        sys.path[:] = [project] + [entry for entry in path if entry != project]
        for module in modules or []:
            try:
                load_module(module)
            except (Exception, SystemExit) as error:
                # Written before the exit closes the connection: the trainer reads it, and kills this process, at once.
                print(described(error), file=sys.stderr, flush=True)
                sys.exit(1)
        self.names = prelude() if modules is None else {}
        sys.path[:] = [entry for entry in sys.path[1:] if os.path.isdir(entry)]
        self.outer = put_up_outer_walls()
        self.level, self.faults = find_level(self.outer, trainer)

    def serve(self) -> None:
        """Carry out the trainer's requests until the trainer has ended."""
        self.say(level=self.level, faults=self.faults)
        while True:
            while not select.select([self.control], [], [], 1.0)[0]:
                if os.getppid() != self.trainer:  # a fork of the trainer may hold the other end open
                    return
            data, fds, _, _ = socket.recv_fds(self.control, MAX_MESSAGE, 8)
            if not data:
                return
            request = json.loads(data)
            if "kill" in request:
                os.kill(self.calls_child, signal.SIGKILL)
                os.waitpid(self.calls_child, 0)
                self.say(exit=None)
                continue
            keeper, child = os.getpid(), os.fork()
            if child == 0:
                code = EXIT_BROKEN
                try:
                    self.become_child(request, fds, keeper)
                    is_function = request["how"] == "program_function"
                    code = serve_calls() if request["how"] == "call" else run_program(self.names, is_function)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            for fd in fds:
                os.close(fd)
            if request["how"] == "call":  # this child answers the trainer, which later asks the keeper to kill it
                self.calls_child = child
            else:
                self.say(exit=self.wait(child, request["seconds"]))

    def wait(self, child: int, seconds: float) -> int | None:
        """Return the child's exit status, None if it was killed at its deadline."""
        ended, deadline = os.pidfd_open(child), time.monotonic() + seconds
        try:
            while True:
                left = deadline - time.monotonic()
                if ended in select.select([ended], [], [], max(0.0, min(left, 1.0)))[0]:
                    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if left <= 0 or os.getppid() != self.trainer:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    return None
        finally:
            os.close(ended)

    def become_child(self, request: dict, fds: list[int], keeper: int) -> None:
        """Leave only these files open: 0 to 2 the standard files, 3 the job, 4 the value of a function."""
        has_input = request["how"] == "program"
        plan = [fds[1] if has_input else self.null, fds[2] if has_input else self.null, self.null, fds[0]]
        plan += [fds[2]] if request["how"] == "program_function" else []
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in plan]
        for number, fd in enumerate(high):
            os.dup2(fd, number, inheritable=True)
        os.closerange(len(plan), MOST_FILES)
        put_up_inner_walls(self.outer, request["limits"], keeper)

    def say(self, **message: Any) -> None:
        self.control.sendall(json.dumps(message).encode())


def load_module(name: str) -> None:
    """Import a module by its name, or by its file's path, which becomes its name. It may import files of its folder."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = name
    sys.path.insert(0, os.path.dirname(name))
    with open(name, "rb") as file:
        exec(compile(file.read(), name, "exec"), module.__dict__)
    sys.path.remove(os.path.dirname(name))


def give_way_to_the_trainer() -> None:
    """Lower the priority of this process and its children: the trainer shares the processors with them.

    Where the kernel groups processes by session ("autogroup"), the nice value of a process counts only within its
    group, and each group has a nice value too. A keeper starts a session, so it is a group of its own.
    """
    os.nice(NICENESS)
    deadline = time.monotonic() + 30.0  # many keepers may start together
    while time.monotonic() < deadline:
        try:
            with open("/proc/self/autogroup", "w") as file:
                file.write(str(NICENESS))
            return
        except BlockingIOError:  # for all users but root together, the kernel allows one change in 0.1 s
            time.sleep(0.05)
        except OSError:  # this kernel has no such groups
            return


def prelude() -> dict[str, Any]:
    """Import the modules of WARM, and return the names of PRELUDE."""
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    for module in WARM.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    return {name: value for name, value in names.items() if not name.startswith("__")}


def main() -> None:
    """Run the keeper, as worker.py starts it."""
    control, trainer, path, modules = map(json.loads, sys.argv[2:])
    give_way_to_the_trainer()
    # The thread that started this process may have blocked signals.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Its number is as high as the trainer has open files. From here on the kernel gives no number that `become_child`
    # does not close.
    connection = socket.socket(fileno=os.dup(control))
    os.close(control)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    keeper = Keeper(connection, trainer, path, modules)
    keeper.serve()
