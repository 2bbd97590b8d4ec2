r"""Kind "math": is the text in the last box the same answer as the gold? (verify.py, section 4.2.1)

docs/problems.md has a table of right and wrong answers for the most common rules, and a test judges them.

A reference may be a list of golds. An answer is right if it is the same as one of them.

kinds/boxes.py finds the answer, the text in the last box, and this file checks the golds. kinds/answers/ reads the two
texts and compares them. The sources of the rules: the answers of AIME, AMC, MATH, Minerva and OlympiadBench;
tests/test_kinds_maths.py lists where math-verify 0.9.0 decides otherwise, and why.
Simplified: nothing is solved, and units are not converted. Sums, integrals, congruences and everything else that
the grammar of kinds/answers/ cannot read is equal only as text.
"""

from typing import Any

from kinds.answers import ALGEBRA, MAX_LENGTH, best, compare, read
from kinds.boxes import last_box
from kinds.patterns import forward
from sandbox.jobs import Call
from verify import Kind, after_thinking, shown

# JSON reads the first two characters of \frac, \boxed, \theta, \right and \neq as one control character.
_LOST_BACKSLASH = forward(r"[\x00-\x09\x0b-\x1f]|\n(?:eq|u|abla)\b")
_EMPTY_BOX = forward(r"\\(?:boxed|fbox)\s*+\{\s*+\}")


def judge_math(answer: str, reference: str | list[str], science: bool = False) -> Any:
    """Is the answer a gold? True or False, None for no form of an answer, or the job that finds out.

    Only algebra needs a worker, since its time has no small bound. Everything else is compared here.
    """
    golds = [unboxed(gold).strip() for gold in golds_of(reference)]
    verdict = best(compare(answer.strip(), gold, science, algebra=False) for gold in golds)
    job = Call("kinds.maths:judge_in_worker", [answer.strip(), golds, science], ("mpmath",))
    return job if verdict == ALGEBRA else verdict


def judge_in_worker(answer: str, golds: str | list[str], science: bool = False) -> bool | None:
    """Compare an answer with each gold, with algebra. A reward of your own may pass one gold as text."""
    return best(compare(answer, gold, science) for gold in golds_of(golds))


def golds_of(reference: str | list[str]) -> list[str]:
    """Return the golds of a reference, any of which is right."""
    return reference if isinstance(reference, list) else [reference]


def check_golds(kind_name: str, reference: Any) -> None:
    """Raise ValueError unless the reference is the text of one answer whose brackets balance, or a list of such."""
    if isinstance(reference, list) and reference:
        for gold in reference:
            if isinstance(gold, list):
                raise ValueError(
                    f"a list of golds of kind {kind_name} has only texts, got a list in it: {shown(reference)}"
                )
            check_golds(kind_name, gold)
        return
    text = unboxed(reference).rstrip() if isinstance(reference, str) else ""
    if lost := _LOST_BACKSLASH.search(text):
        raise ValueError(
            f"JSON has read a backslash of a {kind_name} reference as {lost[0][0]!r}: write every backslash twice, as "
            rf'in "\\frac{{1}}{{2}}"; got {shown(reference)}'
        )
    reading = read(text)
    if (
        reading is None
        or _EMPTY_BOX.search(text)
        or (reading.tree is None and "\n" in text.strip() and r"\begin" not in text)
    ):
        raise ValueError(
            rf'a {kind_name} reference is the text of one answer in quotes, such as "12", "\\frac{{1}}{{2}}", "(1,2]", '
            rf'"9.8 m/s^2" or "\\text{{(C)}}" in JSON, of at most {MAX_LENGTH} characters, or a list of such texts of '
            f"which any is right; a worked answer has it in \\boxed{{...}} or after ####; got {shown(reference)}"
        )


def unboxed(reference: str) -> str:
    """Return the gold in a box or after ####, as GSM8K's worked answers end, if a gold comes so."""
    return last_box(reference) or reference.rpartition("####")[2]


def solution_math(reference: str | list[str]) -> str:
    """Return a response that is right: the first gold in a box."""
    return f"\\boxed{{{unboxed(golds_of(reference)[0])}}}"


def answer_math(response: str) -> str | None:
    """Return the text in the last box after the thinking, None if there is none."""
    return last_box(after_thinking(response) or "")


KIND = Kind(judge_math, answer=answer_math, check=lambda gold: check_golds("math", gold), solution=solution_math)
