"""The walls of a process: those of the keeper, which its children inherit, and those of a child.

outer    an unprivileged user, no way to privileges, Landlock: what may be opened, for good
inner    resource limits, death with the keeper, seccomp
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import stat
import struct
import sys
from dataclasses import dataclass

from sandbox.child import EXIT_BROKEN
from sandbox.jobs import MiB
from sandbox.seccomp import (
    LINUX,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    can_filter,
    libc,
    prctl,
    put_up_seccomp,
)

# In the range that no distribution gives to people or services. Each keeper takes one: they cannot signal each other.
FIRST_USER, USERS = 61_184, 4_096
NOBODY = 65_534


@dataclass
class Outer:
    """Which outer walls stand, by name or empty.

    `folders`: open folders of Python that only their file descriptors lead to. `threads`: the greatest number of
    processes and threads that the user may have.
    """

    no_new_privileges: bool
    user: str
    seccomp: str
    landlock: str
    folders: set[int]
    threads: int


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
    threads = 64 if uid not in (None, NOBODY) else _threads_of_user() + 1024
    kept = reach_python(folders)
    landlock, no_new_privileges = "", False
    if LINUX:
        prctl(PR_SET_DUMPABLE, 0)
        no_new_privileges = prctl(PR_SET_NO_NEW_PRIVS, 1) == 0
        landlock = put_up_landlock(folders)
    for fd in folders.values():
        os.close(fd)
    return Outer(
        no_new_privileges=no_new_privileges and (not was_root or uid is not None),
        user="" if uid is None else f"user {uid}",
        seccomp="seccomp" if can_filter() else "",
        landlock=landlock,
        folders=kept,
        threads=threads,
    )


def put_up_inner_walls(outer: Outer, limits: dict[str, int], keeper: int) -> None:
    """Those of a child, before any text of the model runs: limits, death with its keeper, seccomp."""
    limits = limits | {"NOFILE": 128, "NPROC": outer.threads, "SIGPENDING": 256, "MEMLOCK": 0, "MSGQUEUE": 0}
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
                os.sched_setaffinity(0, {libc.sched_getcpu()})
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return ""
    handled = (1 << LANDLOCK_FILE_RIGHTS.get(version, LANDLOCK_FILE_RIGHTS_SINCE_5)) - 1
    # Network: bind and connect, from version 4. Scope: abstract sockets and signals, from version 6.
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
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
        libc.syscall(LANDLOCK_ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0))
    restricted = libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0
    for fd in [ruleset, *opened[len(folders) :]]:
        os.close(fd)
    return f"Landlock {version}" if restricted else ""
