"""The bug hunt: every patch is a patch of today's loop, and leaves the curves that a student looks at."""

import subprocess
import sys
from pathlib import Path

import pytest

from lab.bugs import BUGS, CURVES, ROOT, answers, last, numbers, read

letters = pytest.mark.parametrize("letter", sorted(BUGS))


@letters
def test_a_patch_is_one_line_of_the_loop(letter):
    """Makes impossible: a bug that is none, because its line was rewritten, or that two lines have."""
    bug = BUGS[letter]
    text = bug.path.read_text(encoding="utf-8")
    assert text.count(bug.right) == 1 and "\n" not in bug.right.strip("\n")
    compile(bug.patched(), letter, "exec")


@letters
def test_the_curves_show_the_bug(letter):
    """Makes impossible: a picture that does not hold what the answer says, or that healthy seeds hold as well."""
    bug = BUGS[letter]
    number, least, greatest = numbers(letter)
    spread = greatest - least
    assert (CURVES / f"{letter}.png").exists()
    if bug.higher is None:
        assert least - spread < number < greatest + spread
    else:
        assert number > greatest + spread if bug.higher else number < least - spread


def test_the_answers_name_every_letter():
    """Makes impossible: an answer without its file, line and number."""
    assert all(f"{letter}  {bug.mistake}" in answers() for letter, bug in BUGS.items())


def short_run(path: Path, *command: str) -> dict[str, list[float]]:
    flags = ["--prompts", "16", "--rollouts", "32", "--steps", "5", "--learning_rate", "2e-4", "--log", path]
    subprocess.run([sys.executable, "-m", *command, *flags], check=True, cwd=ROOT, capture_output=True)
    return read(path)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    return short_run(tmp_path_factory.mktemp("right") / "log.csv", "lab.loop")


@pytest.mark.slow
@letters
def test_a_short_run_has_the_bug(letter, right, tmp_path):
    """Makes impossible: a patch that `install` does not bring into the run, curves that nobody can draw again."""
    bug, run = BUGS[letter], short_run(tmp_path / "log.csv", "lab.bugs", letter)
    assert run["nll"] != right["nll"]
    if bug.higher is not None:
        assert (last(run, bug.metric) > last(right, bug.metric)) == bug.higher
