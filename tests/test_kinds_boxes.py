"""kinds/boxes.py: which box of a response has its answer."""

import pytest
from judging import reason

from kinds.boxes import MAX_BOX_DISTANCE

BOXES = {  # with the gold 5
    "correct": [
        "\\boxed{5}", "\\boxed {5}", "\\boxed\n{ 5 }", "\\\\boxed{5}", "\\\\boxed{4} \\\\boxed{5}",
        "\\\\\\boxed{4} \\\\\\boxed{5}", "\\boxed{4} \\\\{\\boxed{5}", "$$\\boxed{5}$$", "\\boxed{4} no, \\boxed{5}",
        "\\boxed{5} no, \\boxed{4", "{ \\boxed{5}", "} \\boxed{5} }", "\\{ \\boxed{5}", "\\text{so \\boxed{5}}",
        "\\boxed{5} {}", "\\boxed{\\boxed{5}}", "\\fbox{5}", "\\boxed{4}. Or so I thought: \\boxed{5}",
        "\\boxed{4 \\boxed{5}", "<think>\\boxed{4}</think>\\boxed{5}", "<think>\\boxed{4</think>\\boxed{5}",
        "\\boxed{\\frac{5}{1}}",
    ],
    "wrong": [
        "\\boxed{5} no, \\boxed{4}", "\\boxed{5}, \\boxed{4}", "\\boxed{5} no no \\boxed{5,4}", "\\boxed{5}\\%",
    ],
    "unparsed": [
        "\\boxed{4 \\boxed{5}}", "\\boxed{5\\}}", "\\boxed{5} \\boxed{\\{4}", "\\boxed{}",
    ],
    "no_answer": [
        "\\boxed{5}</think>", "\\boxed{5}</think> It is 5.", "", "5", "The answer is 5.", "\\boxed 5", "\\boxed{5",
        "\\boxed5}", "boxed{5}", "\\Boxed{5}", "\\boxed\\{5\\}", "\\boxed{\\frac{5}{1}",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("response", "expected"), [(box, says) for says, boxes in BOXES.items() for box in boxes])
def test_math_box(response, expected):
    """Makes impossible: the wrong box read, a half-written one read, or a number taken from outside of any box."""
    assert reason("math", response, "5") == expected


def test_math_box_distance():
    """Makes impossible: a cut that loses the box of an honest response, or runaway text scanned in full."""
    assert reason("math", "\\boxed{5}" + "." * (MAX_BOX_DISTANCE - 9), "5") == "correct"
    assert reason("math", "\\boxed{5}" + "." * MAX_BOX_DISTANCE, "5") == "no_answer"
