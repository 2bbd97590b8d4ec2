"""Kind "code": programs and functions, by their outputs. (verify.py, section 4.2.1)

    the answer   the last closed ```python block, or else the last closed block without an info string. Blocks are
                 read as in CommonMark
    a program    passes a test by its output for the test's input, if it ends without an error: words and their lines
                 count, the space between them does not
    a function   passes by its value, as JSON has it (a tuple is a list); also as a method of a class Solution
    numbers      if a program should print a plain decimal (0.5), or a function return a float, within FLOAT_TOLERANCE.
                 A program prints 3 for 3, not 3.0; a function may return 3.0, but not True for 1
    reward       the share of tests passed

    unparsed     the source does not compile, or is longer than MAX_SOURCE
    timeout, crashed   no test passed, and one ended so

Expected outputs never reach the process that runs the answer: it sends its output, and this process compares.
The sources: APPS, TACO, CodeContests, LiveCodeBench; tests/test_kinds_code.py lists where their judges decide
otherwise, and why.
Simplified: a problem with several right outputs needs a checker, which is a reward of your own; a program cannot write
files; arguments and results are plain data, not trees or linked lists.
"""

import io
import json
import math
from collections.abc import Callable
from typing import Any

from kinds.blocks import closed_blocks
from kinds.patterns import DECIMAL, NUMBER, forward
from sandbox.jobs import Ended, Program, Result, Test
from sandbox.values import deeper_than, read_reply
from verify import Kind, after_thinking, shown

MAX_SOURCE = 200_000
MAX_DEPTH = 60  # of lists and objects in the values of a reference; `read_reply` reads deeper ones than these

# Words such as 0e71 and 12e5 can be hashes: without a point, an exponent makes no number.
_DECIMAL = forward(DECIMAL)
_NUMBER = forward(NUMBER)
FLOAT_TOLERANCE = 1e-6


def check_code(reference: Any) -> None:
    """Raise ValueError unless the reference has one of the shapes of verify.py's table."""
    keys = set(reference) if isinstance(reference, dict) else set()
    if not keys or not {"inputs", "outputs"} <= keys <= {"inputs", "outputs", "fn_name"}:
        raise ValueError(
            f'a code reference is {{"inputs": [...], "outputs": [...], ["fn_name"]}}, got {shown(reference)}'
        )
    inputs, outputs, name = reference["inputs"], reference["outputs"], reference.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not 1 <= len(inputs) == len(outputs):
        raise ValueError("a code reference has two lists of one length above 0, `inputs` and `outputs`")
    if name and (not isinstance(name, str) or not name.isidentifier()):
        raise ValueError(f"`fn_name` must be a function's name, got {shown(name)}")
    if deeper_than([_tests(reference), _expected(reference)[1]], MAX_DEPTH + 4):  # four hold the values
        raise ValueError(f"the values of a code reference may be nested {MAX_DEPTH} lists deep, and these are deeper")


def _tests(reference: dict[str, Any]) -> list[Test]:
    """Return the part of the reference that the process of the answer gets."""
    if name := reference.get("fn_name"):
        return [{"fn_name": name, "args": _arguments(test)} for test in reference["inputs"]]
    return [_joined(text, "inputs") for text in reference["inputs"]]


def _expected(reference: dict[str, Any]) -> tuple[Callable[[str, list], bool], list[list]]:
    """Return the function that compares what was sent with what is expected, and what is expected in each test.

    A program sends its output, and `_same_output` expects lines of words. A function sends its value, and
    `_same_return` expects one of several values.
    """
    if reference.get("fn_name"):
        return _same_return, [_accepted_values(output) for output in reference["outputs"]]
    return _same_output, [_token_lines(_joined(output, "outputs")) for output in reference["outputs"]]


def _joined(text: Any, name: str) -> str:
    """Return standard input or output: text, or a list of lines."""
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        text = "\n".join(text)
    if not isinstance(text, str):
        raise ValueError(f"each of a program's `{name}` is text or a list of lines, got {shown(text)}")
    return text


def _arguments(arguments: Any) -> list:
    """Return a function's arguments from a list, or its JSON."""
    values = _json_or_none(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(values, list):
        raise ValueError(f"a function's input is a JSON list of arguments, got {shown(arguments)}")
    return values


def _accepted_values(output: Any) -> list:
    """Return the accepted values: the output; parsed, if it is JSON text; its element, if it is a list of one."""
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


def answer_code(response: str) -> str | None:
    """Return the program: the last closed ```python block, or else the last one without an info string."""
    if after_thinking(response) is None:
        return None
    found = {}
    for info, source in closed_blocks(response.rpartition("</think>")[2]):
        found["python" if info.lower() in ("python", "python3", "py") else info] = source
    source = found.get("python", found.get("", ""))
    return source if source.strip() else None


def judge_code(source: str, reference: dict[str, Any]) -> Program | None:
    """Return the job that runs the program on each test and compares in this process."""
    if len(source) > MAX_SOURCE:
        return None
    same, expected = _expected(reference)

    def keep(index: int, tested: Result) -> Result:
        return Result(tested.status, _passes(tested, expected[index], same))

    return Program(source, _tests(reference), keep=keep, read=share_passed)


def share_passed(results: list[Result]) -> Ended:
    """Return the share of tests passed. If none passed, the way that a test ended may be the reason."""
    passed, ends = sum(result.value for result in results), {result.status for result in results}
    if not passed and ends & {"timeout", "crashed"}:
        return Ended("timeout" if "timeout" in ends else "crashed")
    return Ended("ok", None if "unparsed" in ends else passed / len(results))


def _passes(tested: Result, expected: list, same: Callable[[str, list], bool]) -> bool:
    if tested.status != "ok":
        return False
    if (size := len(tested.value)) > 65_536 and size > 16 * len(str(expected)):  # slow to read, and wrong
        return False
    return same(tested.value, expected)


def _token_lines(text: str) -> list[list[str]]:
    """Return the lines of words in an output, without empty lines."""
    return [words for line in text.split("\n") if (words := line.split())]


def _same_output(output: str, expected: list[list[str]]) -> bool:
    """Does the output have these lines of words? Reads no further than expected."""
    lines = (line for line in io.StringIO(output) if not line.isspace())
    for words in expected:
        got = next(lines, "").split(None, len(words))
        if len(got) != len(words) or not all(map(_same_word, got, words)):
            return False
    return next(lines, None) is None


def _same_word(word: str, expected: str) -> bool:
    """Is it the same text or, if a plain decimal is expected, a numeral of about the same value?"""
    if word == expected:
        return True
    if not _DECIMAL.fullmatch(expected) or not _NUMBER.fullmatch(word):
        return False
    return math.isfinite(float(expected)) and _close(float(word), float(expected))


def _close(value: float, expected: float) -> bool:
    try:
        return math.isclose(value, expected, rel_tol=FLOAT_TOLERANCE, abs_tol=FLOAT_TOLERANCE)
    except OverflowError:
        return False


def _same_return(sent: str, accepted: list) -> bool:
    """Is the value that a function returned, as its process sent it, one of the accepted values?"""
    try:
        value = read_reply(sent)
    except ValueError:
        return False
    return any(_same_value(value, one) for one in accepted)


def _same_value(value: Any, expected: Any) -> bool:
    """Is a tagged value equal as JSON has it: a tuple is a list, keys are text, expected floats are about equal?

    Compares only expected parts and uses no sets: hashes of a hostile value can collide.
    """
    tag, content = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", value)
    if isinstance(expected, list):
        alike = tag in ("", "tuple") and isinstance(content, list) and len(content) == len(expected)
        return alike and all(map(_same_value, content, expected))
    if isinstance(expected, dict):
        return tag == "dict" and _same_items(content, expected)
    if tag or isinstance(content, list | dict) or isinstance(content, bool) != isinstance(expected, bool):
        return False  # in Python True == 1
    if isinstance(expected, float) and isinstance(content, int | float):
        return _close(content, expected) or (content != content and expected != expected)
    return content == expected


def _same_items(pairs: Any, expected: dict[str, Any]) -> bool:
    if not isinstance(pairs, list) or len(pairs) != len(expected):
        return False
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return False
    if any(isinstance(key, list | dict) for key, _ in pairs):  # a tuple, which is no key in JSON
        return False
    named = {key if isinstance(key, str) else json.dumps(key): item for key, item in pairs}
    return named.keys() == expected.keys() and all(_same_value(named[key], expected[key]) for key in expected)


KIND = Kind(judge_code, answer=answer_code, check=check_code)
