"""Kind "code": programs and functions, by what they print and return. (verify.py, section 4.2)

    the answer   the last closed ```python block, or where none is marked so, the last closed block; a response without
                 fences if one of its lines begins like a program's (import, def, class, print()
    a program    passes a test by what it prints on its standard input, if it then ends without an error: words and
                 their lines count, not the space between them
    a function   passes by what it returns, as JSON sees it (a tuple is a list); also as a method of a class Solution
    numbers      a float is right to FLOAT_TOLERANCE where a float is expected. What a program prints for 3 is 3, not
                 3.0; a function may return 3.0
    reward       the fraction of tests passed

    unparsed     the source does not compile, or is longer than MAX_SOURCE
    timeout, crashed   no test passed, and one ended so

Expected outputs never reach the process that runs the answer: it gives out what it printed or returned, and the
comparison is here. The sources: APPS, TACO, CodeContests, LiveCodeBench; tests/test_verifiers_code.py lists
where their judges decide otherwise, and why.
Simplified: a problem with several right outputs needs a checker of its own and is not known here; a program cannot
write files; arguments and results are plain data, so that trees and linked lists of the class Solution sets are not.
"""

import bisect
import io
import json
import math
import re
from typing import Any, NamedTuple

from sandbox.jobs import Outcome, Program, Result, Test, encode
from verifiers.verdict import CORRECT, NO_ANSWER, UNPARSED, Kind, Verdict, after_thinking, forward, shown
from verifiers.workers import Work

MAX_SOURCE = 200_000

_FENCE = forward(r"```[ \t]*+(?:(python3?|py)(?:[ \t][^\n`]*+)?)?\r?\n", re.IGNORECASE)
_FENCE_END = forward(r"^[ \t]*+```", re.MULTILINE)
_PROGRAM_LINE = forward(r"^(?:from [\w.]++ import |import \w|def \w++\(|class \w++[:(]|print\()", re.MULTILINE)
_FLOAT = forward(r"[+-]?(?:[0-9]++\.[0-9]*+|\.[0-9]++|[0-9]++(?=[eE]))(?:[eE][+-]?[0-9]++)?")
_NUMERAL = forward(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_HEX = forward(r"-?0x[0-9a-f]++")
FLOAT_TOLERANCE = 1e-6


class Code(NamedTuple):
    """The gold of "code". Only `tests` reaches the process of the answer; `accepted` never does.

    accepted    per test: the lines of tokens that a program should print, or the values that a function may return
    function    its name, or None for a program
    """

    tests: list[Test]
    accepted: list[list]
    function: str | None


def check_code(reference: Any) -> Code:
    """Return the tests; ValueError unless the reference has one of the shapes of the table, and can be run as such."""
    keys = set(reference) if isinstance(reference, dict) else set()
    if not keys or not {"inputs", "outputs"} <= keys <= {"inputs", "outputs", "fn_name"}:
        raise ValueError(
            f'a code reference is {{"inputs": [...], "outputs": [...]}}, for functions with "fn_name"; got '
            f"{shown(reference)}"
        )
    inputs, outputs, name = reference["inputs"], reference["outputs"], reference.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not 1 <= len(inputs) == len(outputs):
        raise ValueError("a code reference has as many `outputs` as `inputs`, as two lists, and at least one of each")
    if not name:
        texts: list[Test] = [_joined(text, "inputs") for text in inputs]
        return Code(texts, [_token_lines(_joined(output, "outputs")) for output in outputs], None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"`fn_name` must be a function's name, got {shown(name)}")
    tests: list[Test] = [{"fn_name": name, "args": [encode(value) for value in _arguments(test)]} for test in inputs]
    return Code(tests, [_accepted_values(output) for output in outputs], name)


def _joined(text: Any, name: str) -> str:
    """Standard input or output: text, or a list of lines."""
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "\n".join(text)
    if not isinstance(text, str):
        raise ValueError(f"each of a program's `{name}` is text or a list of lines, got {shown(text)}")
    return text


def _arguments(arguments: Any) -> list:
    """A function's arguments: a list, its JSON, or (LeetCode) one JSON value a line for each argument."""
    if isinstance(arguments, str):
        values = _json_or_none(arguments)
        if values is None:
            values = [[_json_or_none(line)] for line in arguments.strip().split("\n")]
            if [None] in values and "null" not in arguments:
                raise ValueError(f"a function's input is a JSON list of arguments, got {shown(arguments)}")
            return [_with_integer_keys(value) for [value] in values]
        arguments = values if isinstance(values, list) else [values]
    if not isinstance(arguments, list):
        raise ValueError(f"a function's input is a JSON list of arguments, got {shown(arguments)}")
    return [_with_integer_keys(value) for value in arguments]


def _with_integer_keys(value: Any) -> Any:
    """JSON has no integer keys; where all keys look like integers, they were."""
    if isinstance(value, dict) and value and all(re.fullmatch(r"-?[0-9]{1,18}", key) for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def _accepted_values(output: Any) -> list:
    """What a function may return: the value; parsed, if it is JSON text; the one in it, if it is a list of one."""
    values = [output]
    if isinstance(output, str):
        parsed = _json_or_none(output)
        values += [parsed] if parsed is not None or output.strip() == "null" else []
    return values + [value[0] for value in values if isinstance(value, list) and len(value) == 1]


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def find_code(response: str) -> str | None:
    """The last closed ```python block, or where none is marked so, the last closed block without a mark. A response
    without any fence is a program where a line of it starts like one."""
    text = after_thinking(response)
    if text is None:
        return None
    if "```" not in text:
        return text if _PROGRAM_LINE.search(text) else None
    ends = [match.start() for match in _FENCE_END.finditer(text)]
    fences = list(_FENCE.finditer(text))
    for fence in reversed(fences):
        if fence[1]:
            at = bisect.bisect_left(ends, fence.end())
            # A fence that closes in the middle of a line is met as well.
            end = ends[at] if at < len(ends) else text.rfind("```", fence.end())
            if end >= 0:
                return text[fence.end() : end]
    if any(fence[1] for fence in fences):
        return None
    # Without marks, opening and closing fences take turns.
    turns = [end for end in ends if not text.startswith("````", text.index("```", end))]
    if len(turns) < 2:
        return None
    opening, closing = turns[(len(turns) // 2) * 2 - 2 :][:2]
    start = _FENCE.match(text, text.index("```", opening))
    return text[start.end() : closing] if start and start.end() <= closing else None


def judge_code_inline(source: str, gold: Code) -> Verdict | None:
    """Never right without being run."""
    if not source.strip():
        return NO_ANSWER
    return UNPARSED if len(source) > MAX_SOURCE else None


def job_of_code(source: str, gold: Code, all_or_nothing: bool) -> Work:
    """Run the program on each test and compare in this process: the reward is the fraction of tests passed.

    With `all_or_nothing` the reward is 1 or 0, and the first failure ends the testing.
    """

    def keep(index: int, tested: Result) -> Result:
        return Result(tested.status, _passes(gold, index, tested))

    def go_on(tested: Result) -> bool:
        return tested.status != "unparsed" and (tested.value or not all_or_nothing)

    def read(outcome: Outcome) -> Verdict:
        if outcome.status != "ok":
            return Verdict(0.0, outcome.status)
        passed = sum(tested.value for tested in outcome.value)
        if passed == len(gold.tests):
            return CORRECT
        if passed and not all_or_nothing:
            return Verdict(passed / len(gold.tests), "partial")
        statuses = {tested.status for tested in outcome.value}
        return Verdict(0.0, next((end for end in ("unparsed", "timeout", "crashed") if end in statuses), "wrong"))

    return Program(source, gold.tests, keep=keep, go_on=go_on), read


def _passes(gold: Code, index: int, tested: Result) -> bool:
    if tested.status != "ok":
        return False
    if (size := len(tested.value)) > 65_536 and size > 16 * len(str(gold.accepted[index])):  # long to read, and wrong
        return False
    if gold.function is None:
        return _same_output(tested.value, gold.accepted[index])
    value = _json_or_none(tested.value)
    return any(_same_value(value, accepted) for accepted in gold.accepted[index])


def _token_lines(text: str) -> list[list[str]]:
    """How a judge reads output: lines of words, whatever stands between them; no empty lines."""
    return [words for line in text.split("\n") if (words := line.split())]


def _same_output(output: str, expected: list[list[str]]) -> bool:
    """Does the output read as these lines? No more of it is taken apart than is expected."""
    lines = (line for line in io.StringIO(output) if not line.isspace())
    for words in expected:
        got = next(lines, "").split(None, len(words))
        if len(got) != len(words) or not all(map(_same_word, got, words)):
            return False
    return next(lines, None) is None


def _same_word(word: str, expected: str) -> bool:
    """The same text; where a float is expected, any numeral of about the same value."""
    if word == expected:
        return True
    if not _FLOAT.fullmatch(expected) or not _NUMERAL.fullmatch(word):
        return False
    return _close(float(word), float(expected))


def _close(value: float, expected: float) -> bool:
    try:
        return math.isclose(value, expected, rel_tol=FLOAT_TOLERANCE, abs_tol=FLOAT_TOLERANCE)
    except OverflowError:
        return False


def _same_value(value: Any, expected: Any) -> bool:
    """Is an encoded value equal as JSON sees it: a tuple is a list, keys are text? Floats about equal where a float is
    expected. Only looks where something is expected, and puts nothing into sets: their hashes can be made to collide.
    """
    tag, content = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", value)
    if isinstance(expected, list):
        return (
            tag in ("", "tuple")
            and isinstance(content, list)
            and len(content) == len(expected)
            and all(map(_same_value, content, expected))
        )
    if isinstance(expected, dict):
        return tag == "dict" and _same_items(content, expected)
    if tag == "hex" and isinstance(content, str) and _HEX.fullmatch(content):
        tag, content = "", int(content, 16)
    if tag or isinstance(content, list | dict):
        return False
    if isinstance(expected, float) and isinstance(content, int | float):
        return _close(content, expected) or (content != content and expected != expected)
    return content == expected


def _same_items(pairs: Any, expected: dict[str, Any]) -> bool:
    if not isinstance(pairs, list) or len(pairs) != len(expected):
        return False
    named = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], list | dict):
            return False
        named[pair[0] if isinstance(pair[0], str) else json.dumps(pair[0])] = pair[1]
    return named.keys() == expected.keys() and all(_same_value(named[key], expected[key]) for key in expected)


KIND = Kind(check_code, find_code, judge_code_inline, job=job_of_code)
