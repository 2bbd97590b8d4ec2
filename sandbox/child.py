"""The child: it runs one test of a program, or calls, behind all walls.

File descriptor 3 is the connection to the trainer, or the program's source. 4 takes the value that a function returns.
"""

import atexit
import builtins
import json
import os
import socket
import sys
import threading
import types
from typing import Any

from sandbox.jobs import EXIT_UNPARSED
from sandbox.messages import described
from sandbox.values import tagged


def serve_calls() -> int:
    """Answer calls of the keeper's functions, "module:function", one after the other until the trainer hangs up."""
    with socket.socket(fileno=3) as connection, connection.makefile("rb") as requests:
        for line in requests:
            name, args = json.loads(line)
            try:
                module, _, function = name.rpartition(":")
                reply = json.dumps({"value": getattr(sys.modules[module], function)(*args)})
            except BaseException as error:
                # A file or module is missing or closed here: then no answer can be judged right.
                here = isinstance(error, OSError | ImportError) and not isinstance(error, TimeoutError)
                reply = json.dumps({"error": described(error), "environment": here})
            connection.sendall(reply.encode() + b"\n")
    return 0


def run_program(names: dict[str, Any], is_function: bool) -> int:
    """Run one test of a program: 3 has its source, and 4 takes a function's value. Returns the exit status."""
    with open(3, "rb") as file:
        task = json.load(file)
    process: Any = sys
    process.stdin = process.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape")
    process.stdout = process.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
    process.stderr = process.__stderr__ = os.fdopen(2, "w", encoding="utf-8", errors="replace")
    sys.argv = ["solution.py"]
    # The judges of the public sets let programs print integers of any length.
    sys.set_int_max_str_digits(0)
    name = "solution" if is_function else "__main__"
    module = sys.modules[name] = types.ModuleType(name)
    # As builtins: a program that defines nothing has no function of the name that the test calls.
    module.__dict__["__builtins__"] = vars(builtins) | names
    try:
        code = compile(task["source"], "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return EXIT_UNPARSED
    try:
        exec(code, module.__dict__)
        if is_function:
            function = getattr(module, task["fn_name"], None)
            if not callable(function):  # the method of a class Solution
                function = getattr(module.Solution(), task["fn_name"])
            _give(json.dumps(tagged(function(*task["args"]))))
            return 0
    except SystemExit as error:
        if is_function or error.code not in (None, 0):
            return 1
    except BaseException as error:
        if is_function:
            _give(type(error).__name__[:100])
        return 1
    return _finish()


def _give(text: str) -> None:
    with open(4, "wb") as file:
        file.write(text.encode())


def _finish() -> int:
    """End as the interpreter ends a script: wait for threads, run exit functions, flush."""
    try:
        ends: Any = threading
        ends._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        return 1
    return 0
