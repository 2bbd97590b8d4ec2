"""verifiers/sandbox.py: which system calls are refused (linux/seccomp.h), and the kernel's prctl.

A list of what is refused, not of what is allowed: sandbox.py says why. Calls newer than the list are refused too.
"""

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
import sys
from typing import Any

LINUX = sys.platform == "linux"
libc = ctypes.CDLL(None, use_errno=True)


def prctl(*arguments: Any) -> int:
    """The kernel looks at all five words, of which ctypes would set only half of each."""
    words = [*arguments, *[0] * (5 - len(arguments))]
    return libc.prctl(*(word if isinstance(word, bytes) else ctypes.c_ulong(word) for word in words))


PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_SECCOMP = 1, 4, 15, 16, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_VMA = 36, 38, 0x53564D41

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Name: number on x86_64, on aarch64 (None: not there)
# fmt: off
REFUSED: dict[str, tuple[int | None, int | None]] = {
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

    def decide(numbers: tuple[int | None, int | None], argument: int, *tests: tuple[int, int, int, int]) -> None:
        """For one call: look at an argument, then run the tests, which end in a RETURN whatever they find."""
        if (number := numbers[column]) is not None:
            program.append((EQUAL, 0, len(tests) + 1, number))
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
    for absent in ABSENT.values():
        refuse(absent[column], errno.ENOSYS)
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
    if prctl(PR_SET_SECCOMP, 2, header) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the seccomp filter")
