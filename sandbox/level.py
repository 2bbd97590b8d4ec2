"""The level of this machine's walls: a child tries to break out. sandbox/__init__.py describes the levels."""

import contextlib
import json
import os
import socket

from sandbox.jobs import MiB
from sandbox.walls import Outer, put_up_inner_walls

# A missing wall, or something that a child can still reach: (the level that the walls then have at most, its words)
FAULTS = {
    "no_new_privileges": (0, "new privileges are possible"),
    "can_seccomp": (1, "no seccomp"),
    "unknown": (1, "the attempt to break out ended without a report"),
    "network": (1, "the network can be reached"),
    "process": (1, "processes can be started"),
    "signal": (1, "the trainer can be signalled"),
    "landlock": (2, "no Landlock"),
    "read": (2, "files can be read"),
    "secrets": (2, "the trainer's environment can be read"),
}


def find_level(outer: Outer, trainer: int) -> tuple[int, str]:
    """Return the level of the walls and their faults in words. A child of the keeper, behind all walls, finds them."""
    readable, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            put_up_inner_walls(outer, {"AS": 1024 * MiB, "CPU": 10, "FSIZE": 0}, os.getppid())
            os.write(theirs, json.dumps(try_to_break_out(__file__, trainer)).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(pid, 0)
    with open(readable, "rb") as pipe:
        names = set(json.loads(pipe.read() or b'["unknown"]'))
    names |= {name for name, stands in vars(outer).items() if not stands}
    faults = [fault for name, fault in FAULTS.items() if name in names]
    return min((level for level, _ in faults), default=3), ", ".join(words for _, words in faults)


def try_to_break_out(project_file: str, trainer: int) -> list[str]:
    """Return the forbidden acts that this child can do."""
    attempts = {
        "network": lambda: socket.socket().close(),
        "process": lambda: os.fork() or os._exit(0),
        "signal": lambda: os.kill(trainer, 0),
        "read": lambda: open(project_file).close(),
        "secrets": lambda: open(f"/proc/{trainer}/environ").close(),
    }
    reached = []
    for name, attempt in attempts.items():
        with contextlib.suppress(OSError):
            attempt()
            reached.append(name)
    return reached
