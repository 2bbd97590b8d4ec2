"""trainer/problems.py: files of problems, right and broken."""

import json

import pytest
from judging import THREE

from sandbox import WeakSandbox
from sandbox.jobs import Ended
from trainer.problems import broken_problems, load_problems
from trainer.sources import load_sources
from verify import KINDS, Problem, kind_of, verify

GOOD = {"prompt": "What is 1 + 1?", "kind": "math", "reference": "2"}


def write_lines(path, *lines):
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return str(path)


def test_load_problems(tmp_path):
    """Makes impossible: a field lost or changed on the way from the file, or a line cut where JSON does not end."""
    chat = [{"role": "system", "content": ""}, {"role": "user", "content": "Make 20 of 2, 3 and 4.\u2028Go."}]
    countdown = {"prompt": chat, "kind": "countdown", "reference": THREE}
    records = [GOOD, countdown, {"prompt": "¿½?", "kind": "math", "reference": "\\frac12"}]
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    path = write_lines(tmp_path / "p.jsonl", lines[0] + "\r", "", lines[1], "  ", lines[2], "", "")
    problems = load_problems(path)
    assert problems == [Problem(**record) for record in records]
    assert verify(problems[1].kind, "(2+3)*4", problems[1].reference).reason == "correct"


@pytest.mark.parametrize(
    "line",
    [
        "{", json.dumps(GOOD) * 2, "[" * 100_000, "[]", '{"prompt": "a", "kind": "math"}',
        '{"prompt": "a", "kind": "math", "reference": ' + "9" * 5000 + "}",
        b'{"prompt": "\xff", "kind": "math", "reference": "2"}',
        *(json.dumps(GOOD | changed) for changed in (
            {"answer": 2}, {"kind": "maths"}, {"prompt": ""}, {"prompt": []}, {"reference": 2},
            {"prompt": [{"role": "user", "content": None}]}, {"prompt": [{"role": "user", "content": ""}]},
            {"prompt": [{"role": "user", "content": "a", "name": "b"}]}, {"prompt": "half \ud800"},
            {"prompt": [{"role": "user", "content": "\udcff"}]},
        )),
    ],
)  # fmt: skip
def test_broken_line_is_named(tmp_path, line):
    """Makes impossible: a broken line skipped, or an error that does not say which line it is."""
    path = write_lines(tmp_path / "p.jsonl", json.dumps(GOOD), "", line, json.dumps(GOOD))
    with pytest.raises(ValueError, match=r"p\.jsonl, line 3: ") as error:
        load_problems(path)
    assert type(error.value) is ValueError
    assert len(str(error.value)) < 600


def test_no_problems(tmp_path):
    """Makes impossible: a run that starts on nothing: an empty file, a misspelt path or a misspelt data set."""
    with pytest.raises(ValueError):
        load_problems(write_lines(tmp_path / "p.jsonl", " ", ""))
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(FileNotFoundError):
            load_sources([str(path)])
    with pytest.raises(ValueError, match="hf:aime"):
        load_sources(["hf:aime"])


@pytest.mark.parametrize("line, advice", [
    ('{"prompt": "a", "kind": "math" "reference": "4"}', r"line 1: .*\. Write one JSON object a line"),
    ('{"prompt": "\\(x\\)", "kind": "math", "reference": "4"}', r"line 1: .*\. Write every backslash twice"),
])  # fmt: skip
def test_a_broken_line_is_named_with_its_own_remedy(tmp_path, line, advice):
    """Makes impossible: the advice to double backslashes where a comma is missing."""
    with pytest.raises(ValueError, match=advice):
        load_problems(write_lines(tmp_path / "p.jsonl", line))


def test_a_file_with_a_gold_that_refuses_itself(tmp_path, monkeypatch):
    """Makes impossible: a gold answer in a file that no response could give, found out by a reward that never comes."""
    path = write_lines(tmp_path / "p.jsonl", json.dumps(GOOD))
    assert len(load_problems(path)) == 1
    strict = kind_of("math")._replace(judge=lambda answer, gold: False)
    monkeypatch.setitem(KINDS, "math", strict)
    with pytest.raises(ValueError, match="line 1: "):
        load_problems(path)


def test_no_answer_of_a_file_is_evaluated_without_walls(monkeypatch):
    """Makes impossible: a stranger's text run as code when problems are loaded, where the run would refuse it."""
    entry = {"question": "", "answer": "1", "metadata": {}}
    problems = [Problem("a", "logic", {"dataset": "simple_integration", "entry": entry | {"answer": x}}) for x in "12"]
    seen = []

    def run(jobs, timeout_s, workers, allow_weak):
        for job in jobs:
            seen.append(job)
            if weak and job.evaluates and not allow_weak:
                raise WeakSandbox("level 1")
        yield from ((i, Ended("ok", 1.0)) for i in range(len(jobs)))

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # reasoning-gym need not be there
    monkeypatch.setattr("verify.pool.run", run)
    weak = True
    assert broken_problems(problems) == {} and len(seen) == 1 and seen[0].evaluates
    weak = False
    seen.clear()
    assert broken_problems(problems) == {} and [job.evaluates for job in seen] == [True, False, False]
