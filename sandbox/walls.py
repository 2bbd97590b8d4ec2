"""The walls of a process.

outer    of the keeper, inherited by its children: another user than root, or a user namespace, no new privileges,
         Landlock
inner    of a child: resource limits, death with the keeper, seccomp
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from dataclasses import dataclass

from sandbox.jobs import EXIT_BROKEN, MiB
from sandbox.kernel import can_seccomp, libc, prctl, put_up_landlock, put_up_seccomp

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS = 1, 4, 8, 38
CLONE_NEWUSER = 0x10000000
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
# No distribution gives this range to people or services. Keepers with different users cannot signal each other.
FIRST_USER, USERS = 61_184, 4_096
NOBODY = 65_534


@dataclass
class Outer:
    """The outer walls that stand.

    can_seccomp   the inner walls can have seccomp
    threads       the limit on processes and threads, as the kernel counts them (below)
    """

    no_new_privileges: bool
    can_seccomp: bool
    landlock: bool
    threads: int


def put_up_outer_walls() -> Outer:
    """Put up the walls of the keeper, which its children inherit: another user, no new privileges, Landlock.

    The kernel counts threads by user, for all processes of the user together. So each keeper gets its own count: as
    root by a user of its own, otherwise by a user namespace. Where neither is allowed, programs of different workers
    share one count, and one that starts threads without end can take them from the others.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If the machine runs out of memory, the kernel should end a child and not the trainer.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    # Opened as the user who started the trainer: the next user may not get there.
    folders = [os.open(path, os.O_RDONLY) for path in python_folders() if os.path.isdir(path)]
    was_root = os.geteuid() == 0
    uid = become_other_user() if was_root else None
    shared = threads_of_user() + 1024  # counted now: inside a user namespace all users look the same
    has_own_count = uid not in (None, NOBODY) if was_root else enter_user_namespace()
    threads = 64 if has_own_count else shared
    prctl(PR_SET_DUMPABLE, 0)
    no_new_privileges = prctl(PR_SET_NO_NEW_PRIVS, 1) == 0
    landlock, seccomp = put_up_landlock(folders), can_seccomp()
    if not (landlock and seccomp):
        keep_capabilities(0)
    for fd in folders:
        os.close(fd)
    return Outer(no_new_privileges and (not was_root or uid is not None), seccomp, landlock, threads)


def put_up_inner_walls(outer: Outer, limits: dict[str, int], keeper: int) -> None:
    """Put up the walls of a child, before any text of the model runs: limits, death with its keeper, seccomp."""
    limits = limits | {"NOFILE": 128, "NPROC": outer.threads, "SIGPENDING": 256, "MEMLOCK": 0, "MSGQUEUE": 0}
    for name, limit in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    with contextlib.suppress(ValueError, OSError):
        # Honest programs recurse deeply. Linux always leaves 128 MiB below the stack free.
        resource.setrlimit(resource.RLIMIT_STACK, (120 * MiB, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    if "CPU" in limits:
        # The kernel starts a process on an idle processor. All threads of a program stay on this one.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            os.sched_setaffinity(0, {libc.sched_getcpu()})
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(EXIT_BROKEN)
    if outer.can_seccomp:
        put_up_seccomp()


def python_folders() -> list[str]:
    """Return the folders that imports read: standard library, shared libraries, installed packages."""
    folders = [entry for entry in sys.path if "site-packages" in entry or "dist-packages" in entry]
    for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix):
        folders += [os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")]
    folders += [entry for entry in sys.path if entry.startswith(tuple(folders))]
    return list(dict.fromkeys(os.path.realpath(folder) for folder in folders))


def become_other_user() -> int | None:
    """Become a user without rights, one per process if the kernel allows it; None if it knows no such user."""
    for uid in (FIRST_USER + os.getpid() % USERS, NOBODY):
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            prctl(PR_SET_KEEPCAPS, 1)
            os.setresuid(uid, uid, uid)
            # Python may be in a folder that is closed to this user, such as /root. Landlock decides what is read.
            if not keep_capabilities(1 << CAP_DAC_READ_SEARCH) and not keep_capabilities(1 << CAP_DAC_OVERRIDE):
                keep_capabilities(0)
            return uid
    return None


def enter_user_namespace() -> bool:
    """Enter a user namespace without rights. Returns whether the kernel counts its threads apart from the user's.

    Files and signals are as before: the user stays the same. Containers often refuse user namespaces.
    """
    if libc.unshare(CLONE_NEWUSER) != 0:
        return False
    if not keep_capabilities(0):  # a new namespace starts with all of them, over what belongs to the namespace
        raise OSError(ctypes.get_errno(), "the kernel did not take the capabilities of a user namespace away")
    # Linux before 5.14 still counts all threads of the user: at least two of the trainer, this process and its child.
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (2, before[1]))
    try:
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return True
    except OSError:
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)


def threads_of_user() -> int:
    """Count this user's threads on the machine, as the kernel does for RLIMIT_NPROC."""
    total = 0
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.geteuid():
                total += len(os.listdir(f"/proc/{entry}/task"))
    return total


def keep_capabilities(mask: int) -> bool:
    """Keep these capabilities and no other. Returns whether the kernel agreed."""
    header = struct.pack("=Ii", 0x20080522, 0)
    return libc.capset(header, struct.pack("=6I", mask, mask, 0, 0, 0, 0)) == 0
