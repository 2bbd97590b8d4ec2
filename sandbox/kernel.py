"""The walls that the kernel of Linux puts up: Landlock and seccomp.

Landlock (linux/landlock.h) limits the files that a process can ever open, seccomp (linux/seccomp.h) its system calls.
sandbox/__init__.py says why the list is one of refused calls. Calls newer than the list are refused too.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import socket
import stat
import struct
import sys
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)


def prctl(*arguments: Any) -> int:
    """Call the kernel's prctl with five whole words: ctypes alone would set half of each."""
    words = [*arguments, *[0] * (5 - len(arguments))]
    return libc.prctl(*(word if isinstance(word, bytes) else ctypes.c_ulong(word) for word in words))


# Landlock
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


# seccomp
PR_SET_NAME, PR_GET_NAME, PR_SET_SECCOMP, PR_SET_VMA = 15, 16, 22, 0x53564D41
SECCOMP_MODE_FILTER = 2

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Name: number on x86_64, on aarch64 (None: not there)
# fmt: off
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # the network; a socket made before the walls could not be used for it either
    "socket": (41, 198), "bind": (49, 200), "connect": (42, 203), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    # other processes: to start, leave, see, change or signal one (clone, kill, tgkill: TESTED)
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
    # any change to a file, even to one that the user owns (open, openat: TESTED)
    "creat": (85, None), "truncate": (76, 45), "unlink": (87, None), "unlinkat": (263, 35), "rmdir": (84, None),
    "mkdir": (83, None), "mkdirat": (258, 34), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None),
    "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # objects that outlive the process in the kernel
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_notify": (244, 184),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # calls that the whole machine waits for
    "sync": (162, 81), "syncfs": (306, 267), "io_setup": (206, 0),
    # the parts of the kernel in which bugs are found, and the administrator's calls
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
# A filter cannot read their arguments in memory. The error "not there" makes C libraries use the older call.
ABSENT: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
# Whether the filter allows them depends on one argument: `seccomp_filter` has the tests.
TESTED: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220), "open": (2, None), "openat": (257, 56), "kill": (62, 129), "tgkill": (234, 131),
    "prlimit64": (302, 261), "prctl": (157, 167), "ioctl": (16, 29), "fcntl": (72, 25), "socketpair": (53, 199),
}
LAST_KNOWN_CALL = 451
# fmt: on

CLONE_THREAD = 0x10000
CHANGES_A_FILE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
F_SETOWN_EX, F_SETLEASE, F_NOTIFY = 15, 1024, 1026  # of fcntl (linux/fcntl.h)
# Python itself asks for these: is a file a terminal, its size, the bytes that wait, close on exec, blocking.
HARMLESS_IOCTLS = [0x5401, 0x5413, 0x541B, 0x5450, 0x5451, 0x5421]

LOAD, EQUAL, GREATER, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def can_seccomp() -> bool:
    return platform.machine() in AUDIT_ARCH and sys.maxsize > 2**32 and sys.byteorder == "little"


def seccomp_filter(machine: str, pid: int) -> bytes:
    """Return the instructions of a BPF filter, which sees the call's number and its arguments."""
    column = list(AUDIT_ARCH).index(machine)
    instructions: list[Instruction] = []

    def decide(call: str, argument: int, *tests: Instruction) -> None:
        """For one call: load the argument of this index, then run the tests, which always end in a RETURN."""
        if (number := TESTED[call][column]) is not None:
            instructions.append((EQUAL, 0, len(tests) + 1, number))
            instructions.extend([(LOAD, 0, 0, 16 + 8 * argument), *tests])

    def allow_if(operation: int, *values: int, error: int = errno.EPERM) -> list[Instruction]:
        """Allow the call if the comparison with one of the values holds, otherwise refuse it with this error."""
        jumps = [(operation, len(values) - at, 0, value) for at, value in enumerate(values)]
        return [*jumps, (RETURN, 0, 0, ERRNO | error), (RETURN, 0, 0, ALLOW)]

    def refuse_if(operation: int, *values: int, error: int = errno.EPERM) -> list[Instruction]:
        """Refuse the call with this error if the comparison with one of the values holds, otherwise allow it."""
        *jumps, no, yes = allow_if(operation, *values, error=error)
        return [*jumps, yes, no]

    # The numbers of another architecture mean other calls.
    instructions += [(LOAD, 0, 0, 4), (EQUAL, 1, 0, AUDIT_ARCH[machine]), (RETURN, 0, 0, KILL_PROCESS), (LOAD, 0, 0, 0)]
    instructions += [(GREATER, 0, 1, LAST_KNOWN_CALL), (RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    for error, calls in ((errno.ENOSYS, ABSENT), (errno.EPERM, REFUSED)):
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                instructions += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | error)]
    decide("clone", 0, *allow_if(ANY_BIT, CLONE_THREAD))
    decide("open", 1, *refuse_if(ANY_BIT, CHANGES_A_FILE, error=errno.EACCES))
    decide("openat", 2, *refuse_if(ANY_BIT, CHANGES_A_FILE, error=errno.EACCES))
    decide("kill", 0, *allow_if(EQUAL, pid))
    decide("tgkill", 0, *allow_if(EQUAL, pid))
    decide("prlimit64", 0, *allow_if(EQUAL, 0, pid))
    decide("prctl", 0, *allow_if(EQUAL, PR_SET_NAME, PR_GET_NAME, PR_SET_VMA))
    decide("ioctl", 1, *allow_if(EQUAL, *HARMLESS_IOCTLS, error=errno.ENOTTY))
    # These make the kernel send signals for the process.
    decide("fcntl", 1, *refuse_if(EQUAL, fcntl.F_SETOWN, fcntl.F_SETSIG, F_SETOWN_EX, F_NOTIFY, F_SETLEASE))
    # asyncio needs a stream; a datagram socket could send to other addresses.
    stream = [(LOAD, 0, 0, 24), (AND, 0, 0, 0xF), *allow_if(EQUAL, socket.SOCK_STREAM)]
    decide("socketpair", 0, (EQUAL, 1, 0, socket.AF_UNIX), (RETURN, 0, 0, ERRNO | errno.EPERM), *stream)
    instructions.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def put_up_seccomp() -> None:
    instructions = seccomp_filter(platform.machine(), os.getpid())
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    header = struct.pack("@HxxxxxxQ", len(instructions) // 8, ctypes.addressof(buffer))
    if prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the seccomp filter")
