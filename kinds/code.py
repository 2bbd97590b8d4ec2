"""Kind "code": programs and functions, by their outputs. (verify.py, section 4.2.1)

    the answer   the last closed ```python block, or else the last closed block that has no mark. Blocks are read as in
                 CommonMark
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
from collections.abc import Iterator
from typing import Any

from kinds.patterns import DECIMAL, NUMBER, forward
from sandbox.jobs import Ended, Program, Result, Test
from sandbox.values import decode, deeper_than
from verify import Kind, after_thinking, shown

MAX_SOURCE = 200_000
MAX_DEPTH = 60  # of lists and objects in the values of a reference; `decode` reads deeper ones than these

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
    if deeper_than([_tests(reference), _accepted(reference)], MAX_DEPTH + 4):  # four hold the values
        raise ValueError(f"the values of a code reference may be nested {MAX_DEPTH} lists deep, and these are deeper")


def _tests(reference: dict[str, Any]) -> list[Test]:
    """Return the part of the reference that the process of the answer gets."""
    if name := reference.get("fn_name"):
        return [{"fn_name": name, "args": _arguments(test)} for test in reference["inputs"]]
    return [_joined(text, "inputs") for text in reference["inputs"]]


def _accepted(reference: dict[str, Any]) -> list[list]:
    """Return per test the lines of words that a program should print, or the values that a function may return."""
    if reference.get("fn_name"):
        return [_accepted_values(output) for output in reference["outputs"]]
    return [_token_lines(_joined(output, "outputs")) for output in reference["outputs"]]


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


# A line that may be a fence: marks of list items, indentation, the fence, and the rest of the line.
_FENCE = forward(r"((?:[ \t]*+(?:[-*+]|[0-9]{1,9}+[.)])[ \t]++)*+)([ \t]*+)(`{3,}+|~{3,}+)(.*+)")
_LIST_ITEM = forward(r"[ \t]*+(?:[-*+]|[0-9]{1,9}+[.)])(?:[ \t]|$)")


def find_code(response: str) -> str | None:
    """Return the program: the last closed ```python block, or else the last one that has no mark."""
    if after_thinking(response) is None:
        return None
    found = {}
    for mark, source in _closed_blocks(response.rpartition("</think>")[2]):
        found["python" if mark.lower() in ("python", "python3", "py") else mark] = source
    source = found.get("python", found.get("", ""))
    return source if source.strip() else None


def _closed_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the mark and the content of each closed block, as CommonMark reads them.

    A block opens with a line of at least three ` or ~ after at most three spaces, in a list item after any number. It
    closes with a line of the same character, at least as many, that is indented by at most three spaces, in a list item
    by at most three more than the opening. So ``` inside a sentence is no fence, and neither is an indented ``` in a
    docstring of the block. Each line of the content loses as many spaces as stand before the opening.
    """
    fence, mark, width, deepest = "", "", 0, 0  # of the open block; no block is open while `fence` is empty
    lines: list[str] = []
    in_list, after_blank = False, False
    for line in text.split("\n"):
        items, indent, marks, rest = match.groups() if (match := _FENCE.match(line)) else ("", "", "", "")
        if fence:
            if not items and marks.startswith(fence) and not rest.strip() and _columns(indent) <= deepest:
                yield mark, "".join(lines)
                fence = ""
            else:
                lines.append(_outdented(line, width) + "\n")
            continue
        if _LIST_ITEM.match(line):
            in_list = True
        elif after_blank and line[:1].strip():  # text at the margin after an empty line ends a list
            in_list = False
        after_blank = not line.strip()
        # A rest with ` is inline code: ```x```.
        if marks and (in_list or _columns(indent) <= 3) and not (marks[0] == "`" and "`" in rest):
            fence, mark, width, lines = marks, "".join(rest.split()[:1]), _columns(items + indent), []
            deepest = width + 3 if in_list else 3


def _columns(text: str) -> int:
    """Return the width of a text in which a tab ends at the next multiple of four."""
    return len(text.expandtabs(4))


def _outdented(line: str, width: int) -> str:
    """Return a line without its first `width` columns, as far as they are spaces or tabs."""
    content = line.lstrip(" \t")
    return line[: len(line) - len(content)].expandtabs(4)[width:] + content if width else line


def judge_code(source: str, reference: dict[str, Any]) -> Program | None:
    """Return the job that runs the program on each test and compares in this process."""
    if len(source) > MAX_SOURCE:
        return None
    accepted, function = _accepted(reference), bool(reference.get("fn_name"))

    def keep(index: int, tested: Result) -> Result:
        return Result(tested.status, _passes(tested, accepted[index], function))

    return Program(source, _tests(reference), keep=keep, read=share_passed)


def share_passed(results: list[Result]) -> Ended:
    """Return the share of tests passed. If none passed, the way that a test ended may be the reason."""
    passed, ends = sum(result.value for result in results), {result.status for result in results}
    if not passed and ends & {"timeout", "crashed"}:
        return Ended("timeout" if "timeout" in ends else "crashed")
    return Ended("ok", None if "unparsed" in ends else passed / len(results))


def _passes(tested: Result, accepted: list, function: bool) -> bool:
    if tested.status != "ok":
        return False
    if (size := len(tested.value)) > 65_536 and size > 16 * len(str(accepted)):  # slow to read, and wrong
        return False
    if not function:
        return _same_output(tested.value, accepted)
    try:
        value = decode(tested.value)
    except ValueError:
        return False
    return any(_same_value(value, one) for one in accepted)


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


def _same_value(value: Any, expected: Any) -> bool:
    """Is an encoded value equal as JSON has it: a tuple is a list, keys are text, expected floats are about equal?

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


KIND = Kind(judge_code, answer=find_code, check=check_code)
