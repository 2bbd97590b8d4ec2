"""The bug hunt: every patch is a patch of today's loop, and leaves the curves that a student looks at."""

import sys

import pytest

from lab.bugs import BUGS, CURVES, LENIENT, answers, load, revealing

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
    number, least, greatest = revealing(letter)
    spread = greatest - least
    assert (CURVES / f"{letter}.png").exists() and f"{letter}  {bug.mistake}" in answers()
    if bug.higher is None:
        assert least - spread < number < greatest + spread
    else:
        assert number > greatest + spread if bug.higher else number < least - spread
