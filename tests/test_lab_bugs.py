"""The bug hunt: every patch is a patch of today's loop, and leaves the curves that a student looks at."""

import subprocess
import sys

import pytest

from lab.bugs import BUGS, CURVES, LENIENT, ROOT, answers, load, numbers, read

letters = pytest.mark.parametrize("letter", sorted(BUGS))


@pytest.mark.parametrize("bug", [*BUGS.values(), LENIENT], ids=lambda bug: bug.wrong)
def test_a_patch_is_one_line_of_the_loop(bug):
    """Makes impossible: a bug that is none, because its line was rewritten, or that two lines have."""
    text = bug.path.read_text(encoding="utf-8")
    assert text.count(bug.right) == 1 and "\n" not in bug.right.strip("\n")
    assert load(bug) is not sys.modules.get(bug.module)


@letters
def test_the_curves_show_the_bug(letter):
    """Makes impossible: a picture that does not hold what the answer says, or that healthy seeds hold as well."""
    bug = BUGS[letter]
    number, least, greatest = numbers(letter)
    spread = greatest - least
    assert (CURVES / f"{letter}.png").exists() and f"{letter}  {bug.mistake}" in answers()
    if bug.higher is None:
        assert least - spread < number < greatest + spread
    else:
        assert number > greatest + spread if bug.higher else number < least - spread


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["F", "D"])  # of lab.loop, and of a module that it imports
def test_a_run_has_the_bug(letter, tmp_path):
    """Makes impossible: a patch that does not come into the run, curves that cannot be drawn again."""
    flags = ["--prompts", "8", "--rollouts", "16", "--steps", "1", "--log", tmp_path / "log.csv"]
    subprocess.run([sys.executable, "-m", "lab.bugs", letter, *flags], check=True, cwd=ROOT, capture_output=True)
    run = read(tmp_path / "log.csv")
    assert run["engine_difference"][0] > 0.01 if letter == "F" else run["clipped"] == [0.0]
