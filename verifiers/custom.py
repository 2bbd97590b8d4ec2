"""A reward of your own: a Python file whose `KINDS` names kinds and their functions (verify.load_rewards).

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
import json
import os
import sys
from typing import Any

from sandbox.jobs import Call, Outcome
from sandbox.pool import restart, run
from verifiers.verdict import REASONS, Kind, NotAReward, Verdict, graded, reward_files, shown
from verifiers.workers import Work, read_verdict

CHECK_S = 10.0  # for a worker to name the file's kinds, or to check a reference


def load(path: str) -> dict[str, Kind]:
    """The kinds of one file.

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
        reason = str(error.__cause__ or error).splitlines()[-1]
        raise ValueError(
            f"{path} cannot be imported by the processes that judge: {reason}. They start in the folder / and with an "
            "environment of their own: read files by their path, as from Path(__file__).parent"
        ) from None
    if outcome.status != "ok" or isinstance(outcome.value, str):
        raise ValueError(f"{path}: {outcome.value or outcome.status}")
    reward_files[path] = outcome.value["files"]
    return {
        name: Kind(
            check=functools.partial(check_custom, path, name, checked),
            find=str,
            judge_inline=lambda text, gold: None,
            job=functools.partial(job_of_custom, path, name),
            file=path,
        )
        for name, checked in outcome.value["kinds"].items()
    }


def _in_worker(function: str, path: str, *args: Any) -> Outcome:
    return dict(run([Call(f"verifiers.custom:{function}", [path, *args], file=path)], CHECK_S))[0]


def contents_of(path: str) -> dict[str, Any] | str:
    """`load`, in a worker: the kinds and whether each has a check, the files. A sentence where it cannot be used."""
    try:
        kinds = _kinds(path)
    except ValueError as error:
        return str(error)
    folder = os.path.join(os.path.dirname(path), "")
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    beside = {file for file in files.values() if file.startswith(folder) and not file.startswith(sys.prefix)}
    ours = {file for name, file in files.items() if name.partition(".")[0] in ("verify", "verifiers", "sandbox")}
    return {"kinds": kinds, "files": sorted(beside - ours)}


def _kinds(path: str) -> dict[str, bool]:
    kinds = getattr(sys.modules[path], "KINDS", None)
    if not isinstance(kinds, dict) or not kinds:
        raise ValueError('it names no kind: end it with a line like KINDS = {"my_kind": my_function}')
    for kind in kinds:
        if not isinstance(kind, str) or not kind.isidentifier():
            raise ValueError(f"a kind's name is letters, digits and _, got {shown(kind)}")
        if not callable(_functions(path, kind)[0]):
            raise ValueError(f"the reward of kind {kind} must be a function, got {shown(kinds[kind])}")
    return {kind: _functions(path, kind)[1] is not None for kind in kinds}


def _functions(path: str, kind: str) -> tuple[Any, Any]:
    """(The reward, the check of references or None) of a kind, in a worker."""
    given = sys.modules[path].KINDS[kind]
    return given if isinstance(given, tuple) and len(given) == 2 else (given, None)


def check_custom(path: str, kind: str, checked: bool, reference: Any) -> Any:
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


def job_of_custom(path: str, kind: str, response: str, reference: Any, all_or_nothing: bool) -> Work:
    """One call. Reading raises NotAReward where the function gave none: the function is wrong, not the response."""

    def read(outcome: Outcome) -> Verdict:
        if outcome.status == "ok" and isinstance(outcome.value, str):
            raise NotAReward(f"the reward of kind {kind} ({path}) {outcome.value}")
        return read_verdict(outcome)

    return Call("verifiers.custom:judge", [path, kind, response, reference], alone=True, file=path), read


def judge(path: str, kind: str, response: str, reference: Any) -> Verdict | str:
    """The verdict of the user's function, or a sentence where it gave none. In a worker."""
    value = _functions(path, kind)[0](response, reference)
    try:
        return _verdict(value)
    except (TypeError, ValueError):
        return (
            f"returned {shown(value)}: it must return a number from 0 to 1, True or False, or a Verdict whose reason "
            f"is one of {', '.join(REASONS)} and goes with its reward"
        )


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
