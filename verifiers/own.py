"""A reward of one's own: a user's Python file whose `KINDS` names kinds and their functions (verify.load_rewards).

    KINDS = {"kind": function}             function(response, reference) -> reward
    KINDS = {"kind": (function, check)}    check(reference) raises ValueError where a problem's reference is broken

The file is imported by the trainer, for the names and the checks, and by each worker process before its walls go up.
The functions run in the workers only, as math-verify does: within the time limit, without the network, without any
file but Python's packages. What the file itself reads or imports of its own folder, it does at its top, by a path that
begins at __file__: a worker starts in the folder /.

    the function ...                  the verdict is
    returns a number or a truth       correct at 1, wrong at 0, partial between
    returns Verdict(reward, reason)   that
    returns anything else             none: NotAReward, as the function is broken
    raises, or ends its process       crashed; the first of a kind is logged
    takes longer than the limit       timeout; the first is logged
"""

import inspect
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from verifiers.jobs import Call, Outcome, load_module
from verifiers.rounds import Conversation, ask, preload
from verifiers.verdict import CRASHED, REASONS, Verdict, graded, shown

LOG = logging.getLogger(__name__)
IMPORTED_S = 30.0  # for a worker that has imported the file to say so

Check = Callable[[Any], Any]


class NotAReward(ValueError):
    """What a user's function returned. The message names the function's kind and file, and what it may return."""


_logged: set[tuple[str, str]] = set()


def load(path: str) -> dict[str, Check | None]:
    """The kinds of one file, for the trainer: kind -> the check of its references, or None.

    Raises FileNotFoundError where there is no file, ValueError with a sentence where it cannot be used.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no rewards at {path}: it must be a Python file with KINDS = {{name: function}} in it")
    if not path.endswith(".py"):
        raise ValueError(f"{path} is no Python file: its name must end with .py")
    try:
        module = load_module(path)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path} cannot be imported: {_said(error, path)}") from None
    kinds = getattr(module, "KINDS", None)
    if not isinstance(kinds, dict) or not kinds:
        raise ValueError(f'{path} names no kind: end it with a line like KINDS = {{"my_kind": my_function}}')
    found: dict[str, Check | None] = {}
    for kind, given in kinds.items():
        if not isinstance(kind, str) or not kind.isidentifier():
            raise ValueError(f"{path}: a kind's name is letters, digits and _, got {shown(kind)}")
        function, check = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        _refuse_signature(f"{path}: the reward of kind {kind}", function, "response", "reference")
        if check is not None:
            _refuse_signature(f"{path}: the check of kind {kind}", check, "reference")
        found[kind] = check
    return found


def share(path: str, kinds: list[str]) -> None:
    """Have the workers know the file. ValueError where they cannot import it as the trainer did."""
    preload(path)
    try:
        [outcome] = ask([Call("verifiers.own:kinds_of", [path])], IMPORTED_S)
        said = "" if outcome.value == kinds else f"there KINDS names {shown(outcome.value)}"
    except RuntimeError as error:
        said = str(error).strip().splitlines()[-1]
    if said:
        preload(path, wanted=False)
        raise ValueError(
            f"{path} cannot be used in the worker processes that judge: {said}. They start in the folder / and with an "
            "environment of their own: read files by their path, as from Path(__file__).parent"
        )


def kinds_of(path: str) -> list[str]:
    """In a worker."""
    return list(sys.modules[path].KINDS)


def _refuse_signature(what: str, function: Any, *arguments: str) -> None:
    if not callable(function):
        raise ValueError(f"{what} must be a function, got {shown(function)}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(f"{what} must be called as function({', '.join(arguments)}): {error}") from None


def check_own(kind: str, check: Check | None, reference: Any) -> Any:
    """The reference, which goes to the workers as JSON; ValueError where it cannot, or the user's check refuses it."""
    try:
        json.dumps(reference)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a reference of kind {kind} must be what JSON can hold ({error})") from None
    if check is not None:
        try:
            check(reference)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"the check of kind {kind} raised {type(error).__name__}: {error}") from None
    return reference


def converse_own(path: str, kind: str, response: str, reference: Any, all_or_nothing: bool) -> Conversation:
    """One call. Raises NotAReward where the function gave none: that is its mistake, not the response's."""
    outcome: Outcome = yield Call("verifiers.own:judge", [path, kind, response, reference])
    if outcome.status != "ok":
        did = "took longer than the time limit" if outcome.status == "timeout" else "ended its process"
        _warn_once(kind, outcome.status, f"the reward of kind {kind} ({path}) {did} on a response: {outcome.status}")
        return Verdict(0.0, outcome.status)
    match outcome.value:
        case ["verdict", int() | float() as reward, str() as reason] if 0 <= reward <= 1 and reason in REASONS:
            return Verdict(float(reward), reason)
        case ["raised", str() as error, str() as said]:
            _warn_once(kind, error, f"the reward of kind {kind} ({path}) raised, so the response crashed: {said}")
        case ["broken", str() as sentence]:
            raise NotAReward(f"the reward of kind {kind} ({path}) {sentence}")
    return CRASHED


def _warn_once(kind: str, what: str, sentence: str) -> None:
    if (kind, what) not in _logged:
        LOG.warning(sentence)
    _logged.add((kind, what))


def judge(path: str, kind: str, response: str, reference: Any) -> list:
    """What the user's function makes of a response. In a worker."""
    given = sys.modules[path].KINDS[kind]
    function = given[0] if isinstance(given, tuple) else given
    try:
        value = function(response, reference)
    except (Exception, SystemExit) as error:
        return ["raised", type(error).__name__, _said(error, path)]
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


def _said(error: BaseException, path: str) -> str:
    """An exception, and the last line of the file that had to do with it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{where}"[:1000]
