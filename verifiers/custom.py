"""A reward of your own: a Python file whose `KINDS` names kinds and their functions (verify.load_rewards).

    KINDS = {"kind": function}             function(response, reference) -> reward

The trainer never imports the file: each worker process does, before its walls go up. The functions run behind the
walls, within the time limit, without the network, without any file but Python's packages. Each response is judged in a
process of its own, which is forked from one that has imported the file: nothing of one call is left for the next. What
the file reads or imports, it does at its top, by a path that begins at __file__: a worker starts in the folder /.

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

NAMING_S = 10.0  # for a worker to name the file's kinds


def load(path: str) -> dict[str, Kind]:
    """The kinds of one file.

    Raises FileNotFoundError where there is no file, ValueError with a sentence where it cannot be used.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no rewards at {path}: it must be a Python file with KINDS = {{name: function}} in it")
    if not path.endswith(".py"):
        raise ValueError(f"{path} is no Python file: its name must end with .py")
    restart()
    try:
        [(_, outcome)] = run([Call("verifiers.custom:contents_of", [path], file=path)], NAMING_S)
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
            check=functools.partial(check_custom, name),
            find=str,
            judge_inline=lambda text, gold: None,
            job=functools.partial(job_of_custom, path, name),
            file=path,
        )
        for name in outcome.value["kinds"]
    }


def contents_of(path: str) -> dict[str, Any] | str:
    """`load`, in a worker: the kinds, the files. A sentence where the file cannot be used."""
    try:
        kinds = _kinds(path)
    except ValueError as error:
        return str(error)
    folder = os.path.join(os.path.dirname(path), "")
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    beside = {file for file in files.values() if file.startswith(folder) and not file.startswith(sys.prefix)}
    ours = {file for name, file in files.items() if name.partition(".")[0] in ("verify", "verifiers", "sandbox")}
    return {"kinds": kinds, "files": sorted(beside - ours)}


def _kinds(path: str) -> list[str]:
    kinds = getattr(sys.modules[path], "KINDS", None)
    if not isinstance(kinds, dict) or not kinds:
        raise ValueError('it names no kind: end it with a line like KINDS = {"my_kind": my_function}')
    for kind in kinds:
        if not isinstance(kind, str) or not kind.isidentifier():
            raise ValueError(f"a kind's name is letters, digits and _, got {shown(kind)}")
        if not callable(kinds[kind]):
            raise ValueError(f"the reward of kind {kind} must be a function, got {shown(kinds[kind])}")
    return list(kinds)


def check_custom(kind: str, reference: Any) -> Any:
    """The reference, which goes to the workers as JSON; ValueError where it cannot."""
    try:
        json.dumps(reference)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a reference of kind {kind} must be what JSON can hold ({error})") from None
    return reference


def job_of_custom(path: str, kind: str, response: str, reference: Any, all_or_nothing: bool) -> Work:
    """One call. Reading raises NotAReward where the function gave none: the function is wrong, not the response."""

    def read(outcome: Outcome) -> Verdict:
        if outcome.status == "ok" and isinstance(outcome.value, str):
            raise NotAReward(f"the reward of kind {kind} ({path}) {outcome.value}")
        return read_verdict(outcome)

    return Call("verifiers.custom:judge", [path, kind, response, reference], alone=True, file=path), read


def judge(path: str, kind: str, response: str, reference: Any) -> Verdict | str:
    """The verdict of the user's function, or a sentence where it gave none. In a worker."""
    value = sys.modules[path].KINDS[kind](response, reference)
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
