"""Run the tests of the exercises on the files of a student.

    python -m lab.grade WORK                          every exercise, with its points
    python -m lab.grade WORK --only brorl.masses      one exercise, or one file's: --only brorl
    python -m lab.grade WORK --json                   the same for a program

A failure names the exception that the student's file raised; else the mistakes that its tests find. See tests/.
Exit status 0: all points; 1: some are missing.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from lab.exercises import EXERCISES, Exercise

ROOT = Path(__file__).resolve().parent.parent


def grade(work: Path, exercises: list[Exercise]) -> list[dict]:
    """A dict for each exercise: function, points, of; the mistakes that are still possible; blank functions that its
    tests call; exceptions, with the line of the student's file."""
    failures = run_tests(work, sorted({test for exercise in exercises for test in exercise.test_ids}))
    graded = []
    for exercise in exercises:
        failed = [test for test in exercise.test_ids if failures[test] is not None]
        raised = [text for test in failed for text in failures[test] or []]
        graded.append({
            "function": exercise.function,
            "points": 0 if failed else exercise.points,
            "of": exercise.points,
            "still_possible": [f"{mistake(test)} ({test})" for test in failed],
            "blank": sorted({*re.findall(r"NotImplementedError: (\w+\.\w+): ", "\n".join(raised))}),
            "errors": errors_in(raised, work),
        })  # fmt: skip
    return graded


def errors_in(raised: list[str], work: Path) -> list[str]:
    """Exceptions in pytest's texts, with file and line in `work`, except for failed assertions and blanks."""
    found = set()
    for text in raised:
        error = re.search(r"\b(?!AssertionError|NotImplementedError)(\w*(?:Error|Exception): .*)", text)
        frames = re.findall(r"^(\S+\.py):(\d+): in ", text, re.M)  # relative to `work`, where pytest runs
        lines = [f"{file}, line {line}: " for file, line in frames if (work / file).is_file() and "/" not in file]
        if error and (lines or error[1].startswith(("SyntaxError", "IndentationError", "ImportError"))):
            found.add("".join(lines[-1:]) + error[1])
    return sorted(found)


def run_tests(work: Path, tests: list[str]) -> dict[str, list[str] | None]:
    """For each test None if it passes, else what its cases raised.

    Runs pytest in a new process, which finds the modules of `work` before the repository's: both are in PYTHONPATH, in
    this order. `-o pythonpath=` removes the repository from pytest's list, which comes before PYTHONPATH.
    """
    work = work.resolve()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(work), str(ROOT)]), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        files = sorted({test.partition("::")[0] for test in tests})
        names = " or ".join(test.partition("::")[2] for test in tests)
        # Files and -k, not FILE::TEST: where a file cannot be imported, pytest runs no test of a list of FILE::TEST.
        command = [sys.executable, "-m", "pytest", *[ROOT / "tests" / file for file in files], "-k", names]
        command += ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-o", "pythonpath=", "-p", "no:cacheprovider"]
        command += ["-m", "slow or not slow", "--continue-on-collection-errors", "--tb=short", f"--junitxml={report}"]
        done = subprocess.run(list(map(str, command)), cwd=work, env=environment, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(f"pytest did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = list(xml.parse(report).iter("testcase"))
    raised: dict[str, list[str]] = {test: [] for test in tests}
    ran = set()
    for case in cases:
        file, name = str(case.get("classname")).rpartition(".")[2], str(case.get("name")).partition("[")[0]
        of_case = [f"{file}.py::{name}"]
        if not file:  # a whole test file, which cannot be imported: "tests.test_brorl"
            of_case = [test for test in tests if test.startswith(f"{name.rpartition('.')[2]}.py::")]
        for test in {*of_case} & raised.keys():
            ran.add(test)
            raised[test] += [f"{x.get('message')}\n{x.text}" for x in case if x.tag in ("failure", "error")]
    return {test: None if test in ran and not raised[test] else raised[test] for test in tests}


def mistake(test: str) -> str:
    """The mistake that the test finds: the first paragraph of its docstring."""
    file, _, name = test.partition("::")
    functions = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8")).body
    (function,) = [x for x in functions if isinstance(x, ast.FunctionDef) and x.name == name]
    text = " ".join((ast.get_docstring(function) or name).partition("\n\n")[0].split())
    return text.removeprefix("Makes impossible: ").removeprefix("Mistake: ")


def show(graded: list[dict]) -> None:
    for row in graded:
        print(f"{row['points']} / {row['of']}  {row['function']}")
        for error in row["errors"]:
            print(f"       {error}")
        if row["blank"]:
            print(f"       still blank: {', '.join(row['blank'])}")
        elif not row["errors"]:
            print("".join(f"       Still possible: {x}\n" for x in row["still_possible"]), end="")
    print(f"{sum(row['points'] for row in graded)} of {sum(row['of'] for row in graded)} points")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.grade", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("work", metavar="WORK", type=Path, help="the folder that lab.blank wrote")
    parser.add_argument("--only", default="", help="a function (brorl.masses) or a file (brorl)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    chosen = [x for x in EXERCISES if args.only in ("", x.function, x.module)]
    if not chosen or not args.work.is_dir():
        sys.exit(f"no exercise is {args.only}" if args.work.is_dir() else f"there is no folder {args.work}")
    graded = grade(args.work, chosen)
    if args.json:
        print(json.dumps(graded, indent=1, ensure_ascii=False))
    else:
        show(graded)
    sys.exit(any(row["points"] < row["of"] for row in graded))


if __name__ == "__main__":
    main()
