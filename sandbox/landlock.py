"""Landlock: the files that a process may ever open (linux/landlock.h)."""

import contextlib
import ctypes
import os
import stat
import struct

from sandbox.kernel import libc

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_READ_FILE, LANDLOCK_READ_DIR = 1 << 2, 1 << 3
LANDLOCK_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # by version; later versions have 16 or more

SYSTEM_FOLDERS = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"]
SYSTEM_FILES = ["/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]


def put_up_landlock(folders: list[int]) -> bool:
    """Allow only reading below these folders and the system's libraries. Returns whether the kernel agreed."""
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    handled = (1 << LANDLOCK_FILE_RIGHTS.get(version, 16)) - 1
    # Network: bind and connect, from version 4. Scope: abstract sockets and signals, from version 6.
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    opened = list(folders)
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
    return restricted
