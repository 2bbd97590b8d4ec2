"""verifiers/sandbox.py: what a worker process is asked, what it answers, and values as JSON.

A `Call` is a question to code of this project, a `Program` is code that is not trusted; an `Outcome` is what became of
either, a `Result` how one test of a program ended.
"""

import importlib
import json
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MiB = 2**20
MAX_OUTPUT = 8 * MiB  # of one test's standard output or returned value
MAX_REPLY = 1 * MiB  # of one call's returned value
MAX_MESSAGE = 65_536  # of a keeper: its longest is an error's text


@dataclass(frozen=True)
class Call:
    """A function of a module that the pool's workers have loaded, "module:name", with arguments that JSON can say.

    `packages` are imported beforehand, outside the time limit. `evaluates`: the function may run model text as code,
    so it gets a process of its own, and the walls that code gets.
    """

    function: str
    args: list
    packages: tuple[str, ...] = ()
    evaluates: bool = False


# A program's standard input, or {"fn_name": str, "args": a list of `encode`d values, "kwargs": a dict of them}.
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
    """status: "ok" with the value; "timeout"; "crashed": the process died, raised, or sent no valid answer."""

    status: str
    value: Any = None
    seconds: float = field(default=0.0, compare=False)  # that it took, without the start of its worker


class Foreign:
    """Stands for a value that is no plain data. Equal to nothing, whatever its original says about that."""

    def __init__(self, name: str) -> None:
        self.name = name


def encode(value: Any) -> Any:
    """Plain Python data as JSON that keeps its types: a tuple is no list. Of an object only its type's name is left."""
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
    for name, kind in (("tuple", tuple), ("set", set | frozenset)):
        if isinstance(value, kind):
            return {name: [encode(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if type(value).__module__ == "numpy":
        return encode(value.tolist())
    return {"foreign": type(value).__name__}


def decode(value: Any) -> Any:
    """The value that `encode` encoded. ValueError or TypeError for anything that it never gives."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("an encoded value has one tag")
    [(tag, content)] = value.items()
    if tag == "dict":
        return {decode(key): decode(item) for key, item in content}
    if tag in ("tuple", "set"):
        return {"tuple": tuple, "set": set}[tag](decode(item) for item in content)
    if tag == "hex":
        return int(content, 16)
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag == "complex":
        return complex(*content)
    if tag == "foreign":
        return Foreign(content)
    raise ValueError("an encoded value has a known tag")


def parse(data: bytes | bytearray) -> Any:
    """JSON from a process that is not trusted; ValueError if it is anything else."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def load_module(name: str) -> types.ModuleType:
    """A module by its name; or by the path of its file, afresh, and as that path it is known. That file may import
    what lies beside it."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = name
    sys.path.insert(0, os.path.dirname(name))
    try:
        with open(name, "rb") as file:
            exec(compile(file.read(), name, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(os.path.dirname(name))
    return module
