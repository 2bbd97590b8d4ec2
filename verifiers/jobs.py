"""verifiers/sandbox.py: what a worker process is asked, what it answers, and values as JSON.

A `Call` is a question to code of this project, a `Program` is code that is not trusted; an `Outcome` is what became of
either, a `Result` how one test of a program ended.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

MiB = 2**20
MAX_OUTPUT = 8 * MiB  # of one test's standard output or returned value
MAX_REPLY = 1 * MiB  # of one call's returned value
MAX_MESSAGE = 65_536  # of a keeper: its longest is an error's text


@dataclass(frozen=True)
class Call:
    """A function, "module:name", with arguments that JSON can say.

    Its worker has imported the module before its walls go up, and a user's file beside it. `packages` are imported
    beforehand too, outside the time limit. `alone`: in a process of its own, so that nothing of it outlives the call.
    `evaluates`: the function may run model text as code; it is alone, and gets the walls that code gets.
    """

    function: str
    args: list
    packages: tuple[str, ...] = ()
    evaluates: bool = False
    alone: bool = False
    file: str | None = None

    @property
    def modules(self) -> set[str]:
        """What its worker must have imported: names, or the path of a file."""
        return {self.function.rpartition(":")[0]} | ({self.file} if self.file else set())


# A program's standard input, or {"fn_name": str, "args": a list of `encode`d values}.
Test = str | dict[str, Any]


class Result(NamedTuple):
    """How one test of a program ended.

    status     value (None for the others)
    ok         the standard output as text; of a function what it returned, `encode`d, as JSON text that may be forged
    error      an exception, or an exit status that is not 0: the output; of a function the exception's name
    unparsed   the source does not compile
    timeout    it took too long
    output     it wrote more than MAX_OUTPUT
    crashed    it was ended by a signal, or what it sent is no value
    """

    status: str
    value: Any = None


@dataclass(frozen=True)
class Program:
    """Untrusted code, run once per test in a fresh process. Its outcome's value is a list of `Result`, in order.

    After each test and in the trainer, `keep` gives what stays of a result, so that not all output does, and `go_on`
    says by that whether to run the next one. What stays is at most MAX_OUTPUT over all tests.
    """

    source: str
    tests: list[Test]
    test_s: float = 6.0
    memory: int = 1536 * MiB
    keep: Callable[[int, Result], Result] = lambda index, result: result
    go_on: Callable[[Result], bool] = lambda result: True


@dataclass(frozen=True)
class Outcome:
    """status: "ok" with the value; "timeout"; "crashed": the process died or sent no valid answer, or the function
    raised, and the value is its exception in words."""

    status: str
    value: Any = None


def encode(value: Any) -> Any:
    """What JSON can say, and tuples, dicts with any keys and long integers. Anything else becomes its type's name."""
    if value is None or isinstance(value, bool | float):
        return value if value is None or type(value) in (bool, float) else float(value)
    if isinstance(value, int):
        value = int(value)
        # Python refuses to write longer integers in decimal, and the trainer to read them.
        return value if value.bit_length() <= 10_000 else {"hex": hex(value)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if type(value).__module__ == "numpy":
        return encode(value.tolist())
    return {"foreign": type(value).__name__}


def decode(value: Any) -> Any:
    """The argument that `encode` encoded: JSON, dicts with any keys, long integers."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "hex" in value:
        return int(value["hex"], 16)
    return {decode(key): decode(item) for key, item in value["dict"]}


def parse(data: bytes | bytearray) -> Any:
    """JSON from a process that is not trusted; ValueError if it is anything else."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def described(error: BaseException) -> str:
    """An exception in words, with the last line of it that is not in a package's code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((sys.prefix, sys.base_prefix, "<"))]
    at = own[-1] if own and not isinstance(error, SyntaxError) else None  # which says its own line
    where = f" ({os.path.basename(at.filename)}, line {at.lineno})" if at else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())[:1000]
