# What stands before each attack: `refused` says which attempts were let through. project, home, victim, trainer and mark
# are defined above it.
import ctypes, os, signal, socket, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)


def refused(*attempts):
    for attempt in attempts:
        try:
            result = attempt()
        except (OSError, MemoryError, AttributeError, RuntimeError):
            continue
        if result != -1 or ctypes.get_errno() not in (1, 13, 38, 3, 25):  # a raw call says -1
            print("reached", result, ctypes.get_errno())
