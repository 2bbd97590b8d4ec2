"""The rights of a process, as its user and its capabilities give them, and the kernel's count of its threads."""

import contextlib
import ctypes
import os
import resource
import struct

from sandbox.kernel import libc, prctl

CLONE_NEWUSER = 0x10000000
PR_SET_KEEPCAPS = 8
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
# No distribution gives this range to people or services. Keepers with different users cannot signal each other.
FIRST_USER, USERS = 61_184, 4_096
NOBODY = 65_534


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
