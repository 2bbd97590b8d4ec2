"""The worker process that hostile text runs in, and its walls."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Call:
    """A function of verify.py, by name, with arguments that JSON can say."""

    function: str
    args: list
    packages: tuple[str, ...] = ()
    evaluates: bool = False


@dataclass(frozen=True)
class Program:
    """Untrusted code."""

    source: str
    tests: list = field(default_factory=list)


class Outcome(NamedTuple):
    """How a job ended."""

    status: str
    value: Any = None


class Pool:
    """Not there yet."""

    def __init__(self, workers: int | None = None) -> None: ...

    def run(self, jobs: Iterable[Call | Program], timeout_s: float) -> Iterator[tuple[int, Outcome]]:
        raise NotImplementedError
