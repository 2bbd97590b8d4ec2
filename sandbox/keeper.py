"""The worker process: it imports, puts up the outer walls, then forks a child for each job.

A first child tries to break out: what it could not do is the level of this machine's walls.
"""

import contextlib
import fcntl
import importlib
import itertools
import json
import os
import select
import signal
import socket
import sys
import traceback
import types
from typing import Any

from sandbox.child import EXIT_BROKEN, prelude, run_program, serve_calls
from sandbox.jobs import MAX_MESSAGE, MiB, described
from sandbox.walls import put_up_inner_walls, put_up_outer_walls


class Keeper:
    """The main loop of a worker process: take orders, fork, kill, report exits. It sees no byte of any job."""

    def __init__(self, control: socket.socket, parent: int, path: list[str], modules: list[str] | None) -> None:
        self.control, self.parent = control, parent
        self.child = 0
        self.null = os.open(os.devnull, os.O_RDWR)
        self.fds: list[int] = []
        # The project is found here and nowhere later, nor is anything that lies in the folders above it.
        project = sys.path[0]
        sys.path[:] = [project] + [entry for entry in path if entry != project]
        for module in modules or []:
            try:
                load_module(module)
            except (Exception, SystemExit) as error:
                sys.exit(described(error))
        # What a program finds defined. No call needs it.
        self.names = prelude() if modules is None else {}
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
        if "kill" in order:
            self.kill()
        else:
            fds, self.fds = self.fds, []
            self.fork(order, fds)
            for fd in fds:
                os.close(fd)

    def fork(self, order: dict, fds: list[int]) -> None:
        keeper = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            code = EXIT_BROKEN
            try:
                self.become_child(order, fds, keeper)
                if order["fork"] == "calls":
                    serve_calls(3)
                else:
                    code = run_program(self.names, order["fork"] == "function")
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
                self.say(exit=os.waitstatus_to_exitcode(status))

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
        names = ", ".join(walls) or "limits only"
        return level, names + (f"; a child could still reach: {', '.join(broken)}" if broken else "")


def load_module(name: str) -> None:
    """A module by its name, or by the path of its file, which is its name then. It may import what lies beside it."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = name
    sys.path.insert(0, os.path.dirname(name))
    with open(name, "rb") as file:
        exec(compile(file.read(), name, "exec"), module.__dict__)
    sys.path.remove(os.path.dirname(name))


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


def main() -> None:
    """The worker process: its arguments are worker.py's, which starts it, as nobody else does."""
    control, parent, path, modules = map(json.loads, sys.argv[2:])
    # A blocked signal would be inherited from whichever thread of the trainer started this process.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    keeper = Keeper(socket.socket(fileno=control), parent, path, modules)
    try:
        keeper.serve()
    finally:
        keeper.kill()
