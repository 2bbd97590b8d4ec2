"""A user's file of rewards (verify.py, `load_rewards`).

    KINDS = {"kind": function}             function(response, reference) -> reward
    KINDS = {"kind": (function, check)}    check(reference) raises ValueError if a problem's reference is broken

The trainer never imports the file: worker processes do, before their walls go up, in the folder /. Each response gets a
fresh process, a fork of a worker.

    the function ...                     the verdict is
    returns a number, True or False      correct at 1, partial above 0, else wrong
    returns (number, True or False)      this reward; correct as stated, else as above
    returns None                         unparsed
    returns anything else                none: NotAReward ends the run
    raises, or ends its process          crashed
    raises OSError or ImportError        none: JudgeFailed ends the run
    takes longer than the limit          timeout

A function that names n_tokens or truncated among its parameters gets the response's number of tokens, or whether the
limit cut it.
"""

import functools
import inspect
import json
import os
import sys
from typing import Any

from sandbox.jobs import Call, Outcome
from sandbox.pool import restart, run
from verify import Kind, Response, shown, verdict_of

CHECK_S = 10.0  # for a worker to name the file's kinds, or to check a reference


def load(path: str) -> tuple[dict[str, Kind], list[str]]:
    """Return the kinds of a file, and the files that it imports.

    Raises FileNotFoundError, or ValueError with a sentence if the file cannot be used.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no rewards at {path}: it must be a Python file with KINDS = {{name: function}} in it")
    if not path.endswith(".py"):
        raise ValueError(f"{path} is no Python file: its name must end with .py")
    restart()
    _refusal.cache_clear()
    try:
        outcome = _in_worker("contents_of", path)
    except RuntimeError as error:
        raise ValueError(
            f"{path} cannot be imported by the processes that judge: {str(error).splitlines()[-1]}. They start in the "
            "folder / and with an environment of their own: read files by their path, as from Path(__file__).parent"
        ) from None
    if outcome.status != "ok" or isinstance(outcome.value, str):
        raise ValueError(f"{path}: {outcome.value or outcome.status}")
    kinds = {}
    for name, (checked, asks) in outcome.value["kinds"].items():
        judge, check = functools.partial(_job, path, name), functools.partial(check_reference, path, name, checked)
        kinds[name] = Kind(judge, answer=str, check=check, asks=tuple(asks), file=path)
    return kinds, outcome.value["files"]


def _job(path: str, kind: str, response: str, reference: Any, *asked: Any) -> Call:
    return Call("kinds.users:judge", [path, kind, response, reference, *asked], alone=True, file=path)


def _in_worker(function: str, path: str, *args: Any) -> Outcome:
    return dict(run([Call(f"kinds.users:{function}", [path, *args], file=path)], CHECK_S))[0]


def check_reference(path: str, kind: str, checked: bool, reference: Any) -> None:
    """Raise ValueError if JSON cannot hold the reference, or the user's check refuses it."""
    try:
        text = json.dumps(reference)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a reference of kind {kind} must be what JSON can hold ({error})") from None
    if checked and (refusal := _refusal(path, kind, text)):
        raise ValueError(refusal)


@functools.cache
def _refusal(path: str, kind: str, text: str) -> str:
    """Return why the user's check refuses a reference, or ""."""
    outcome = _in_worker("refusal_of", path, kind, json.loads(text))
    if outcome.status == "ok":
        return outcome.value
    took = f"took more than {CHECK_S:g} s" if outcome.status == "timeout" else "ended its process"
    return f"the check of kind {kind} {f'raised {outcome.value}' if outcome.value else took}"


# ------------------------------------------------------------------------------------------- in a worker


def contents_of(path: str) -> dict[str, Any] | str:
    """Return kind -> (has it a check, the parameters that it asks for), and the files; a sentence if unusable."""
    kinds = getattr(sys.modules[path], "KINDS", None)
    if not isinstance(kinds, dict) or not kinds:
        return 'it names no kind: end it with a line like KINDS = {"my_kind": my_function}'
    found = {}
    for kind in kinds:
        if not isinstance(kind, str) or not kind.isidentifier():
            return f"a kind's name is letters, digits and _, got {shown(kind)}"
        function, check = _functions(path, kind)
        if not callable(function):
            return f"the reward of kind {kind} must be a function, got {shown(kinds[kind])}"
        named = inspect.signature(function).parameters
        found[kind] = check is not None, [name for name in Response._fields[1:] if name in named]
    folder = os.path.join(os.path.dirname(path), "")
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    beside = {file for file in files.values() if file.startswith(folder) and not file.startswith(sys.prefix)}
    ours = {file for name, file in files.items() if name.partition(".")[0] in ("verify", "kinds", "sandbox")}
    return {"kinds": found, "files": sorted(beside - ours)}


def _functions(path: str, kind: str) -> tuple[Any, Any]:
    """Return (the reward, the check of references or None) of a kind."""
    given = sys.modules[path].KINDS[kind]
    return given if isinstance(given, tuple) and len(given) == 2 else (given, None)


def refusal_of(path: str, kind: str, reference: Any) -> str:
    """Run the user's check for `_refusal`."""
    try:
        _functions(path, kind)[1](reference)
    except ValueError as error:
        return str(error) or "the check raised ValueError"
    return ""


def judge(path: str, kind: str, response: str, reference: Any, *asked: Any) -> Any:
    """Return the function's reward as JSON can hold it, or the text of another value, which is no reward."""
    function = _functions(path, kind)[0]
    names = [name for name in Response._fields[1:] if name in inspect.signature(function).parameters]
    value = function(response, reference, **dict(zip(names, asked, strict=True)))
    try:
        if isinstance(value, tuple) and len(value) == 2:
            value = float(value[0]), bool(value[1])
        elif value is not None and not isinstance(value, str | bytes):
            value = float(value)
        verdict_of(value)
    except (TypeError, ValueError):
        return shown(value)
    return value
