"""kinds/code.py: which text is the program, what passes, broken references, hostile answers.

The walls themselves are in test_sandbox.py.

Where code differs from the judges of LiveCodeBench, APPS (and verl's prime_code, which is APPS' taken on) on purpose:

    expected       printed or returned   here     there          because
    3              3.0, 03               wrong    right          a tolerance only where a decimal is expected
    1e-07, 12e5    0.0000001, 1200000    wrong    right          without a point it may be a hash: text decides
    1              True (returned)       wrong    right          a bool is not a number
    0.3333333333   0.333333333           right    right (APPS)   and there to 1e-6. LiveCodeBench takes equal decimals
    a b            a  b                  right    right (APPS)   only words and their lines count, not what is between
    1 / 2          1 / empty line / 2    right    right (APPS)   the same
    1 2            2 1                   wrong    right (APPS)   APPS in the end compares sets of words
    [[1, 2], [3]]  [1, 2]                wrong    right (APPS)   there the first of any list; here of a list of one
"""

import json

import pytest
from judging import costs_at_most

from kinds import code as module
from kinds.code import answer_code
from sandbox import WeakSandbox
from sandbox import worker as sandbox_worker
from sandbox.jobs import Result
from sandbox.values import tagged
from verify import verify


@pytest.fixture(scope="module", autouse=True)
def walls():
    try:
        judged("print(3)", SUM)
    except WeakSandbox as weak:
        pytest.skip(str(weak))


def answer(source, mark="python"):
    thought = "<think>\n```python\nprint('a thought')\n```\n</think>"
    return f"{thought}\nHere it is.\n\n```{mark}\n{source}\n```\nIt runs in O(n)."


def judged(source, reference):
    verdict = verify("code", answer(source), reference, timeout_s=60.0)
    assert verdict.reward == 1.0 if verdict.reason == "correct" else verdict.reward < 1.0
    assert (0.0 < verdict.reward < 1.0) == (verdict.reason == "partial")
    return verdict


SUM = {"inputs": ["1 2\n", "3 4\n", "-5 5\n", "10 20\n"], "outputs": ["3\n", "7\n", "0\n", "30\n"]}
ADD = {"fn_name": "add", "inputs": [[1, 2], [3, 4], [-5, 5], [10, 20]], "outputs": [3, 7, 0, 30]}
READ = "a, b = map(int, input().split())\n"
LINES = {"inputs": [["1 2", "3 4"]], "outputs": [["3", "7"]]}  # some sets keep text as a list of lines
ALWAYS_EQUAL = "class A:\n    def __eq__(self, o): return True\ndef add(a, b): return A()"
AS_TEXT = {"fn_name": "add", "inputs": ["[1, 2]"], "outputs": [3]}


@pytest.mark.parametrize(
    ("source", "reference", "reward", "reason"),
    [
        (READ + "print(a + b)", SUM, 1.0, "correct"), (READ + "print(abs(a) + abs(b))", SUM, 0.75, "partial"),
        (READ + "import os\nif a == 1: os.abort()\nprint(a + b)", SUM, 0.75, "partial"),
        (READ + "print(a * b)", SUM, 0.0, "wrong"), (READ + "print(3)", SUM, 0.25, "partial"),
        ("print(", SUM, 0.0, "unparsed"), ("1 / 0", SUM, 0.0, "wrong"), ("import os; os.abort()", SUM, 0.0, "crashed"),
        ("for _ in '12':\n    print(sum(map(int, input().split())))", LINES, 1.0, "correct"),
        ("def add(a, b): return a + b", AS_TEXT, 1.0, "correct"),
        (READ + "print(a + b); 1 / 0", SUM, 0.0, "wrong"), ("def add(a, b): return a + b", ADD, 1.0, "correct"),
        ("class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b", ADD, 1.0, "correct"),
        ("def add(a, b): return abs(a) + abs(b)", ADD, 0.75, "partial"), ("def add(a, b", ADD, 0.0, "unparsed"),
        (ALWAYS_EQUAL, ADD, 0.0, "wrong"), ("#" * 200_001, SUM, 0.0, "unparsed"),
        ("def sub(a, b): return a - b", ADD, 0.0, "wrong"), ("def add(a, b): return str(a + b)", ADD, 0.0, "wrong"),
        ("def add(a, b): print(a + b)", ADD, 0.0, "wrong"), ("def add(a, b): raise KeyError", ADD, 0.0, "wrong"),
    ],
)  # fmt: skip
def test_reward_is_the_fraction_of_tests_passed(source, reference, reward, reason):
    """Makes impossible: a program rewarded for what it did not do, or not for what it did."""
    assert judged(source, reference) == (reward, reason == "correct", reason)


PROGRAMS = [
    ("```python\nx\n```", "x\n"), ("```py\nx\n```", "x\n"), ("```Python3 \nx\n```", "x\n"),
    ("```python\r\nx\r\n```", "x\r\n"), ("```python\nx\n```\nthen\n```python\ny\n```", "y\n"),
    ("```python\nx\n```\n```\noutput\n```", "x\n"), ("```\nx\n```\nand\n```\ny\n```\n", "y\n"),
    # ``` inside a sentence
    ("Put it in ``` fences.\n```python\nx\n```", "x\n"), ("```python\nx\n```\nThe ```y``` is not used.", "x\n"),
    ("Write ```python and:\n\n```python\nx\n```\nno ``` more", "x\n"), ("```x``` is:\n```python\nx\n```", "x\n"),
    # list items
    ("1. Code:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"), ("- ```python\n  x\n  ```", "x\n"),
    ("10. Code:\n\n    ```python\n    x\n\n    y\n    ```\nEnd.", "x\n\ny\n"),
    ("* a\n\t```py\n\tx\n\t\ty\n\t```", "x\n    y\n"), ("1. a\n   ```python\n   x\n```", "x\n"),
    ("1. a\n   - b\n\n     ```python\n     x\n     ```\n2. c", "x\n"),
    ("1) a\n\n     ```python\n     x\ny\n     ```", "x\ny\n"), ("1. a\nb:\n    ```python\n    x\n    ```", "x\n"),
    # indentation, length and character of fences
    ("  ```python\n  x\n    y\n ```", "x\n  y\n"), ("   ```python\nx\n   ```\n", "x\n"), ("~~~python\nx\n~~~", "x\n"),
    ("  ```python\n  x\n    ```\n  ```", "x\n  ```\n"), ("```python\nx\n    ```\n```", "x\n    ```\n"),
    ("```python\nx\n\t```\n```", "x\n\t```\n"),
    ("````python\n'\n```\nx\n```\n'\n````", "'\n```\nx\n```\n'\n"), ("```python\nx\n`````", "x\n"),
    ("```python\nx\n~~~\n```", "x\n~~~\n"), ("~~~py\n```python\nx\n```\n~~~", "```python\nx\n```\n"),
    ("```python\ns = '```'\n```", "s = '```'\n"), ("```python\n# ```python\n```", "# ```python\n"),
    ("```python solution.py\nx\n```", "x\n"), ("``` python\nx\n``` \t", "x\n"), ("</think>```python\nx\n```", "x\n"),
    ("```python\nx\n```\n````markdown\n```python\ny\n```\n````", "x\n"),
    ("```python\nx\n```\n\n    ```python\n    y\n    ```", "x\n"),
    ("```python\nx\n```\n```python\nwas cut", "x\n"), ("<think>```python\nx\n```</think>```python\ny\n```", "y\n"),
]  # fmt: skip
NO_PROGRAM = [
    "```pythonic\nx\n```", "```python\nx\n```</think>nothing", "```python\nwas cut", "```\nwas cut", "print(1)",
    "print(1)\n```", "", "```", "``````", "```python\n```", "```python\n\n```", "```python```", "```cpp\nint main\n```",
    "The code:```python\nx\n```", "```python\nx```", "    ```python\n    x\n    ```\n", "a\n\n\t```python\n\tx\n\t```",
    "````python\nx\n```", "~~~python\nx\n```", "```python\nx\n~~~", "```python\nx\n``` end", "``python\nx\n``",
    "> ```python\n> x\n> ```", "- a\n\nb\n\n    ```python\n    x\n    ```", "```python\nx\n- ```",
]  # fmt: skip


@pytest.mark.parametrize(("response", "found"), PROGRAMS + [(text, None) for text in NO_PROGRAM])
def test_answer_code(response, found):
    """Makes impossible: a thought, an example's output or a cut-off attempt run in place of the answer; a program lost
    because the text around it, or a docstring in it, has ```.
    """
    assert answer_code(response) == found


@pytest.mark.parametrize(
    "output", ["1 " * 500_000, "\n" * 1_000_000, "1 2\n" * 250_000, "1 2\n" + "3 " * 500_000], ids=range(4)
)
def test_long_output_in_bounded_time(output):
    """Makes impossible: megabytes of output taken apart word by word, for every test, in the trainer's process."""
    expected = module._token_lines("1 2\n3\n")
    assert not module._same_output(output, expected)
    assert costs_at_most(5e-6 * len(output), lambda: module._same_output(output, expected))  # 2 turns for a character


PRINTED_RIGHT = [
    ("1 2 3", "1 2 3\n"), ("1 2 3  \n\n", "1 2 3"), ("  1\t2   3\n", "1 2 3"), ("1\n\n2\n", "1\n2"),
    ("1\r\n2\r\n", "1\n2\n"), ("", ""), ("0.5", "0.50000"), ("0.5000001", "0.5"), ("5e-1", "0.5"),
    ("1000000.4", "1000000.0"), ("3", "3.0"), ("1000", "1000."), ("000.5", "0.5"), ("1e400", "1e400"),
    ("-.5", "-0.5"), ("0e71", "0e71"), ("1e-07", "1e-07"), ("True", "True"), ("+0.5", "0.5"), ("1e3", "1000.0"),
    ("9" * 5000, "9" * 5000), ("é", "é"),
]  # fmt: skip
PRINTED_WRONG = [
    ("1\n2\n3", "1 2 3"), ("1 2 3", "1\n2\n3"), ("1 2", "1 2 3"), ("1 2 3 4", "1 2 3"), ("", "1"), ("1", ""),
    ("YES", "yes"), ("0.50001", "0.5"), ("1000002", "1000000.0"), ("3.0", "3"), ("1e3", "1000"), ("nan", "0.5"),
    ("inf", "1e999"), ("0_5.0", "5.0"), ("٣.0", "3.0"), ("9" * 5000, "0.5"), ("007", "7"),
    ("0", "0e71"), ("0e72", "0e71"), ("1200000", "12e5"), ("1200000.0", "12e5"), ("7e999", "5e999"), ("1000", "1e3"),
    ("True", "1"), ("1", "True"), ("True", "1.0"), ("1e999", "9" * 400 + ".0"), ("0.5", ".5.0"), ("0", "1e-07"),
    ("-0.5", "0.5"), ("0x1p-1", "0.5"), ("0.5f", "0.5"), ("1/2", "0.5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [(*case, True) for case in PRINTED_RIGHT] + [(*case, False) for case in PRINTED_WRONG],
)
def test_printed(printed, expected, same):
    """Makes impossible: whitespace that costs a right answer, or a tolerance where an integer or a word is expected."""
    assert module._same_output(printed, module._token_lines(expected)) is same


RETURNED_RIGHT = [
    (3, 3), (3, "3"), (3, [3]), (3, "[3]"), ([3], [3]), ([3], [[3]]), (3.0, 3), ("3", "3"), ("ab", "ab"),
    ("ab", '"ab"'), ("ab", ["ab"]), (None, None), (None, "null"), (True, True), (True, "true"), ((1, 2), [1, 2]),
    ([(1, 2), (3, 4)], [[1, 2], [3, 4]]), ([], []), ({"a": 1}, {"a": 1}), ({1: "x"}, {"1": "x"}),
    ({"a": (1,)}, {"a": [1]}), (0.30000000000000004, 0.3), (1, 1.0), (float("nan"), float("nan")),
]  # fmt: skip
RETURNED_WRONG = [
    ([[3]], [3]), (3, 4), ("3", 3), (None, 0), (True, "True"), (False, None), ([1, 2], [1, 2, 3]), ([1, 2], [1]),
    ({1, 2}, [1, 2]), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (0.31, 0.3), (10**400, 1.5), (float("inf"), 1.5),
    (object(), 3), ([object()], [[]]), (b"a", "a"), (True, 1), (1, True), (False, 0), (0, False), (True, 1.0),
    (1.0, True), ([True], [1]), ([1, 0], [True, False]), ({"a": True}, {"a": 1}), ({True: 1}, {"1": 1}), (True, [1]),
    (None, False), (1, "true"), ({(1, 2): 1}, {"[1, 2]": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("returned", "output", "same"),
    [(*case, True) for case in RETURNED_RIGHT] + [(*case, False) for case in RETURNED_WRONG],
)
def test_returned(returned, output, same):
    """Makes impossible: Python's and JSON's ways of writing one value taken for two, or two values for one."""
    accepted = module._accepted_values(output)
    value = json.loads(json.dumps(tagged(returned)))
    assert any(module._same_value(value, other) for other in accepted) is same


def nested(depth, before="[", after="]", inner=""):
    """The text of a value nested so deep."""
    return before * depth + inner + after * depth


FORGED = [
    "[", "[" * 100_000, nested(400), nested(900), nested(980), nested(400, '{"tuple": [', "]}"),
    f'{{"dict": [[{nested(980)}, 1]]}}', '{"dict": [[{"tuple": [1]}, 1]]}', '{"dict": [[{}, 1]]}', "{}",
    '{"dict": 3}', '{"dict": [3]}', '{"dict": [[[], 1]]}', '{"dict": [["a", 1], ["a", 1]]}',
    '{"tuple": "ab"}', '{"tuple": {"tuple": 1}}', '{"a": 1, "b": 2}', "9" * 5000, "\x00",
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_forged_values(forged):
    """Makes impossible: text that no honest program sends, and that raises where it is compared."""
    for output in (3, [1], {"a": 1}, "x", 1.5, [[1], {"a": []}], None):
        assert not module._passes(Result("ok", forged), module._accepted_values(output), module._same_return)


def test_a_value_that_is_nested_deeply_is_wrong():
    """Makes impossible: one response that ends the run, and again after each --resume."""
    key = "def add(a, b):\n    k = ()\n    for _ in range(400): k = (k,)\n    return {k: 1}"
    text = f'{{"dict": [[{nested(983)}, 1]]}}'
    forged = f"import os\ndef add(a, b):\n    os.write(4, {text.encode()})\n    os._exit(0)"
    wanted = {"fn_name": "add", "inputs": [[1, 2]], "outputs": [{"a": 1}]}
    assert [judged(source, wanted).correct for source in (key, forged)] == [False, False]


def test_how_deep_values_may_be():
    """Makes impossible: a reference so deep that no reply can equal it, or that the run cannot compare."""
    source = "def add(depth):\n    value = 1\n    for _ in range(depth): value = {'x': value}\n    return value"

    def reference(depth):
        return {"fn_name": "add", "inputs": [[depth]], "outputs": [json.loads(nested(depth, '{"x":', "}", "1"))]}

    assert judged(source, reference(module.MAX_DEPTH)).correct
    with pytest.raises(ValueError, match="nested"):
        judged(source, reference(module.MAX_DEPTH + 4))


def test_no_expected_value_reaches_the_answer(monkeypatch):
    """Makes impossible: the text of a check, or an output, in a message to the process that runs the answer."""
    sent = []
    original = sandbox_worker._file
    monkeypatch.setattr(sandbox_worker, "_file", lambda data=b"": (sent.append(data), original(data))[1])
    secret = 918273645
    assert judged("def f(x): return 1", {"fn_name": "f", "inputs": [[4]], "outputs": [secret]}) == (0.0, False, "wrong")
    assert judged("print(1)", {"inputs": ["4"], "outputs": [str(secret)]}) == (0.0, False, "wrong")
    assert len(list(filter(None, sent))) == 3
    assert not any(str(secret).encode() in data for data in sent)


@pytest.mark.parametrize(
    "reference",
    [
        "x", {}, {"inputs": ["1"]}, {"inputs": ["1"], "outputs": ["1"], "more": 1}, {"inputs": "1", "outputs": "1"},
        {"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}, {"inputs": [1], "outputs": ["1"]},
        {"inputs": ["1"], "outputs": [1]}, {"inputs": ["1"], "outputs": [["1", 2]]},
        {"inputs": [[1]], "outputs": [1], "fn_name": 3}, {"inputs": [[1]], "outputs": [1], "fn_name": "a b"},
        {"inputs": ["a b"], "outputs": [1], "fn_name": "f"}, {"inputs": [3], "outputs": [1], "fn_name": "f"},
    ],
)  # fmt: skip
def test_broken_reference(reference):
    """Makes impossible: a reference that cannot be run as it says, and fails or passes every answer."""
    with pytest.raises(ValueError):
        verify("code", answer("print(1)"), reference)


def test_an_endless_test_leaves_time_for_the_others():
    """Makes impossible: a limit of a test that does not follow --verify_timeout; one endless test that takes it all."""
    program = "while input() == 'loop':\n    while True:\n        pass\nprint('done')"
    reference = {"inputs": ["loop\nx\n", "x\n"], "outputs": ["done", "done"]}
    verdicts = (verify("code", answer(program), reference, timeout_s=seconds) for seconds in (1.5, 6, 24))
    assert (0.5, False, "partial") in verdicts  # 24 on a busy machine
    assert verify("code", answer("while True: pass"), reference, timeout_s=0.5) == (0.0, False, "timeout")
