"""A reward of one's own: a user's Python file whose `KINDS` names kinds and their functions (verify.load_rewards).

    KINDS = {"kind": function}             function(response, reference) -> reward
    KINDS = {"kind": (function, check)}    check(reference) raises ValueError where a problem's reference is broken

The trainer never imports the file: each worker process does, before its walls go up. `check` runs there too. The
functions run behind the walls, within the time limit, without the network, without any file but Python's packages, and
each response in a process of its own, which is forked from one that has imported the file: nothing of one call is left
for the next. What the file reads or imports, it does at its top, by a path that begins at __file__: a worker starts in
the folder /.

    the function ...                  the verdict is
    returns a number or a truth       correct at 1, wrong at 0, partial between
    returns Verdict(reward, reason)   that
    returns anything else             none: NotAReward, as the function is broken
    raises, or ends its process       crashed
    takes longer than the limit       timeout
"""

import functools
import inspect
import json
import os
import sys
from typing import Any

from verifiers.jobs import Call, Outcome
from verifiers.rounds import Conversation, ask, restart
from verifiers.verdict import CRASHED, REASONS, Verdict, graded, shown

CHECK_S = 10.0  # for a worker to name the file's kinds, or to check a reference
reward_files: dict[str, list[str]] = {}  # of each file that is loaded: itself and what it imports from beside it


class NotAReward(ValueError):
    """What a user's function returned. The message names the function's kind and file, and what it may return."""


def load(path: str) -> dict[str, bool]:
    """The kinds of one file, and whether each has a check of its references.

    Raises FileNotFoundError where there is no file, ValueError with a sentence where it cannot be used.
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
        said = str(error.__cause__ or error).splitlines()[-1]
        raise ValueError(
            f"{path} cannot be imported by the processes that judge: {said}. They start in the folder / and with an "
            "environment of their own: read files by their path, as from Path(__file__).parent"
        ) from None
    if outcome.status != "ok" or isinstance(outcome.value, str):
        raise ValueError(f"{path}: {outcome.value or outcome.status}")
    reward_files[path] = outcome.value["files"]
    return outcome.value["kinds"]


def _in_worker(function: str, path: str, *args: Any) -> Outcome:
    return ask([Call(f"verifiers.own:{function}", [path, *args], file=path)], CHECK_S)[0]


def contents_of(path: str) -> dict[str, Any] | str:
    """`load`, in a worker. A sentence where the file cannot be used."""
    try:
        kinds = _kinds(path)
    except ValueError as error:
        return str(error)
    folder = os.path.join(os.path.dirname(path), "")
    named = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    beside = {file for file in named.values() if file.startswith(folder) and not file.startswith(sys.prefix)}
    ours = {file for name, file in named.items() if name.partition(".")[0] in ("verify", "verifiers")}
    return {"kinds": kinds, "files": sorted(beside - ours)}


def _kinds(path: str) -> dict[str, bool]:
    kinds = getattr(sys.modules[path], "KINDS", None)
    if not isinstance(kinds, dict) or not kinds:
        raise ValueError('it names no kind: end it with a line like KINDS = {"my_kind": my_function}')
    for kind in kinds:
        if not isinstance(kind, str) or not kind.isidentifier():
            raise ValueError(f"a kind's name is letters, digits and _, got {shown(kind)}")
        function, check = _functions(path, kind)
        _refuse_signature(f"the reward of kind {kind}", function, "response", "reference")
        if check is not None:
            _refuse_signature(f"the check of kind {kind}", check, "reference")
    return {kind: _functions(path, kind)[1] is not None for kind in kinds}


def _functions(path: str, kind: str) -> tuple[Any, Any]:
    """(The reward, the check of references or None) of a kind, in a worker."""
    given = sys.modules[path].KINDS[kind]
    return given if isinstance(given, tuple) and len(given) == 2 else (given, None)


def _refuse_signature(what: str, function: Any, *arguments: str) -> None:
    if not callable(function):
        raise ValueError(f"{what} must be a function, got {shown(function)}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(f"{what} must be called as function({', '.join(arguments)}): {error}") from None


def check_own(path: str, kind: str, checked: bool, reference: Any) -> Any:
    """The reference, which goes to the workers as JSON; ValueError where it cannot, or the user's check refuses it."""
    try:
        text = json.dumps(reference)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a reference of kind {kind} must be what JSON can hold ({error})") from None
    if checked and (refusal := _refusal(path, kind, text)):
        raise ValueError(refusal)
    return reference


@functools.cache
def _refusal(path: str, kind: str, text: str) -> str:
    """Why the user's check refuses a reference, or nothing."""
    outcome = _in_worker("refusal_of", path, kind, json.loads(text))
    if outcome.status == "ok":
        return outcome.value
    took = f"took more than {CHECK_S:g} s" if outcome.status == "timeout" else "ended its process"
    return f"the check of kind {kind} {f'raised {outcome.value}' if outcome.value else took}"


def refusal_of(path: str, kind: str, reference: Any) -> str:
    """`_refusal`, in a worker."""
    try:
        _functions(path, kind)[1](reference)
    except ValueError as error:
        return str(error) or "the check raised ValueError"
    return ""


def converse_own(path: str, kind: str, response: str, reference: Any, all_or_nothing: bool) -> Conversation:
    """One call. Raises NotAReward where the function gave none: that is its mistake, not the response's."""
    outcome: Outcome = yield Call("verifiers.own:judge", [path, kind, response, reference], alone=True, file=path)
    if outcome.status != "ok":
        return Verdict(0.0, outcome.status)
    match outcome.value:
        case ["verdict", int() | float() as reward, str() as reason] if 0 <= reward <= 1 and reason in REASONS:
            return Verdict(float(reward), reason)
        case ["broken", str() as sentence]:
            raise NotAReward(f"the reward of kind {kind} ({path}) {sentence}")
    return CRASHED


def judge(path: str, kind: str, response: str, reference: Any) -> list:
    """What the user's function makes of a response. In a worker."""
    value = _functions(path, kind)[0](response, reference)
    try:
        return ["verdict", *_verdict(value)]
    except (TypeError, ValueError):
        return ["broken", f"returned {shown(value)}: it must return a number from 0 to 1, True or False, or a Verdict "
                          f"whose reason is one of {', '.join(REASONS)} and goes with its reward"]  # fmt: skip


def _verdict(value: Any) -> Verdict:
    """What a function returned as a verdict; TypeError or ValueError where it is none."""
    if isinstance(value, str | bytes):
        raise TypeError
    reward, reason = value if isinstance(value, tuple) else graded(float(value))
    verdict = Verdict(float(reward), reason)
    if not 0 <= reward <= 1 or reason not in REASONS:
        raise ValueError
    # Dynamic sampling counts "correct"; the other two words are those of a reward of 0 in any kind.
    if graded(reward).reason != (reason if reason in ("correct", "partial") else "wrong"):
        raise ValueError
    return verdict
