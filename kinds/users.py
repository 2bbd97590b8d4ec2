"""A user's files of rewards. `load_rewards` adds their kinds to verify.KINDS.

    KINDS = {"kind": function}             function(response, reference) -> reward
    KINDS = {"kind": (function, check)}    check(reference) raises ValueError if a problem's reference is broken

The trainer never imports the file: worker processes do, before their walls go up, in the folder /. A process, a fork of
a worker, judges one response after the other; after a timeout, and after a call that ended it, comes another fork. So a
function can see what earlier calls of its process left, in an order that no one fixes: the file's global variables,
caches, the state of random numbers, changes to imported modules. A cache is welcome. A reward must depend on nothing
else of this, or a run cannot be repeated; and a function that runs the response's text (eval, exec, sympy's parser)
lets this text change the rewards of later responses. With the line

    FRESH_PROCESS = True

in the file each response gets a fresh process, which costs about twenty times as much.

A reward is a number, correct at 1; (number, True or False); or None for a response that it cannot read. Anything else
raises NotAReward. A function that raises or ends its process gives "crashed", but OSError and ImportError raise
JudgeFailed. A function that names n_tokens or truncated among its parameters gets the response's number of tokens, or
whether the limit cut it.
"""

import functools
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from sandbox import CannotStart
from sandbox.jobs import Call, Ended
from sandbox.pool import end_workers, run
from verify import KINDS, Kind, Response, shown, verdict_of

CHECK_S = 10.0  # for a worker to name the file's kinds, or to check a reference

reward_files: dict[str, list[str]] = {}  # path of each loaded file -> itself and the files that it imports


def load_rewards(paths: list[str] | list[Path]) -> list[str]:
    """Add the kinds that these Python files define to verify.KINDS, and return the absolute paths.

    Raises FileNotFoundError, or ValueError for a file that cannot be used.
    """
    loaded = [str(Path(path).resolve()) for path in paths]
    for path in loaded:
        kinds, files = load_file(path)
        others = {name for name, kind in KINDS.items() if isinstance(kind, str) or kind.file != path}
        if taken := others & kinds.keys():
            raise ValueError(f"{path}: choose another name for {', '.join(taken)} than {', '.join(KINDS)}")
        KINDS.update(kinds)  # a file may be loaded again
        reward_files[path] = files
    return loaded


def load_file(path: str) -> tuple[dict[str, Kind], list[str]]:
    """Return the kinds of a file, and the files that it imports. Ends every worker: old ones may have an older file.

    Raises FileNotFoundError, or ValueError with a sentence if the file cannot be used.
    """
    if not os.path.isfile(path) or not path.endswith(".py"):
        raise FileNotFoundError(f"no rewards at {path}: it must be a Python file with KINDS = {{name: function}} in it")
    end_workers()
    _refusal.cache_clear()
    try:
        outcome = _in_worker("contents_of", path)
    except CannotStart as error:
        hint = (
            "" if error.cause.startswith(("SyntaxError", "IndentationError"))
            else ". They start in the folder / with another environment: read files by their whole path, as from "
            "Path(__file__).parent"
        )  # fmt: skip
        raise ValueError(f"{path} cannot be imported by the processes that judge: {error.cause}{hint}") from None
    if outcome.status != "ok":
        raise ValueError(f"{path}: {outcome.value or outcome.status}")
    kinds = {}
    for kind_name, (checked, extra) in outcome.value["kinds"].items():
        judge = functools.partial(_job, path, outcome.value["alone"], kind_name)
        check = functools.partial(check_reference, path, kind_name, checked)
        kinds[kind_name] = Kind(judge, answer=str, check=check, extra=tuple(extra), file=path)
    return kinds, outcome.value["files"]


def _job(path: str, alone: bool, kind_name: str, response: str, reference: Any, *extra: Any) -> Call:
    return Call("kinds.users:run_reward", [path, kind_name, response, reference, *extra], alone=alone, file=path)


def _in_worker(function: str, path: str, *args: Any) -> Ended:
    return dict(run([Call(f"kinds.users:{function}", [path, *args], file=path)], CHECK_S))[0]


def check_reference(path: str, kind_name: str, checked: bool, reference: Any) -> None:
    """Raise ValueError if JSON cannot hold the reference, or the user's check refuses it."""
    try:
        text = json.dumps(reference)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a reference of kind {kind_name} must be what JSON can hold ({error})") from None
    if checked and (refusal := _refusal(path, kind_name, text)):
        raise ValueError(refusal)


@functools.cache
def _refusal(path: str, kind_name: str, text: str) -> str:
    """Return why the user's check refuses a reference, or ""."""
    outcome = _in_worker("run_check", path, kind_name, json.loads(text))
    return "" if outcome.status == "ok" else f"the check of kind {kind_name}: {outcome.value or outcome.status}"


# ------------------------------------------------------------------------------------------- in a worker


def contents_of(path: str) -> dict[str, Any]:
    """Return {"kinds": {name: (has it a check, the parameters that it asks for)}, "alone": ..., "files": ...}.

    `alone` is FRESH_PROCESS, and `files` has the files beside this one that it imports.
    """
    kinds = getattr(sys.modules[path], "KINDS", None)
    if not isinstance(kinds, dict) or not kinds:
        raise ValueError('it names no kind: end it with a line like KINDS = {"my_kind": my_function}')
    found = {}
    for kind_name in kinds:
        function, check = _functions(path, kind_name)
        if not isinstance(kind_name, str) or not kind_name.isidentifier() or not callable(function):
            raise ValueError(
                f"KINDS maps names of letters, digits and _ to functions, got {shown({kind_name: function})}"
            )
        found[kind_name] = check is not None, _extra(function)
    folder = os.path.join(os.path.dirname(path), "")
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    beside = {file for file in files.values() if file.startswith(folder) and not file.startswith(sys.prefix)}
    ours = {file for name, file in files.items() if name.partition(".")[0] in ("verify", "kinds", "sandbox")}
    alone = getattr(sys.modules[path], "FRESH_PROCESS", False)
    if not isinstance(alone, bool):
        raise ValueError(f"FRESH_PROCESS is True or False, got {shown(alone)}")
    return {"kinds": found, "alone": alone, "files": sorted(beside - ours)}


def _functions(path: str, kind_name: str) -> tuple[Any, Any]:
    """Return (the reward, the check of references or None) of a kind."""
    given = sys.modules[path].KINDS[kind_name]
    return given if isinstance(given, tuple) and len(given) == 2 else (given, None)


def _extra(function: Any) -> list[str]:
    """Return the fields of a Response that the function names."""
    return [name for name in Response._fields[1:] if name in inspect.signature(function).parameters]


def run_check(path: str, kind_name: str, reference: Any) -> None:
    _functions(path, kind_name)[1](reference)


def run_reward(path: str, kind_name: str, response: str, reference: Any, *extra: Any) -> Any:
    """Return the function's reward as JSON can hold it, or the text of another value, which is no reward."""
    function = _functions(path, kind_name)[0]
    value = function(response, reference, **dict(zip(_extra(function), extra, strict=True)))
    try:
        if isinstance(value, tuple) and len(value) == 2:
            value = _number(value[0]), _truth(value[1])
        elif value is not None:
            value = _number(value)
        verdict_of(value)
    except (TypeError, ValueError, OverflowError):
        return shown(value)
    return value


def _number(value: Any) -> float:
    """Return a number of any library as a float. Raises TypeError for text, which float() would read."""
    if not hasattr(value, "__float__"):
        raise TypeError("not a number")
    return float(value)


def _truth(value: Any) -> bool:
    """Return True or False, also from numpy's or torch's. Raises TypeError for a value that is only true or false."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, bool):
        raise TypeError("not True or False")
    return value
