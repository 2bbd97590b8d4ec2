"""kinds/science.py: golds. The tables of answers are in test_kinds_maths.py."""

import pytest
from judging import judged

from kinds import maths


def test_a_gold_in_a_box_is_what_the_box_holds():
    """Makes impossible: a data set whose golds are boxed or worked answers refused, or text around it taken for it."""
    half, gravity = r"So the answer is $\boxed{\frac{1}{2}}$.", r"\boxed{9.8\ \text{m/s}^2}"
    assert judged("math", [(half, "0.5"), (half, "2")]) == ["correct", "wrong"]
    worked = "One and three is <<1+3=4>>4.\nThat is all.\n#### 4"
    assert judged("math", [(worked, "4"), (worked, "3")]) == ["correct", "wrong"]
    with pytest.raises(ValueError, match="after ####"):
        maths.KIND.check("One and three is four.\nSo the sum is 4.")
    assert judged("science", [(gravity, "9.8 m/s^2"), (gravity, "9.8 m/s")]) == ["correct", "wrong"]


def test_golds_beyond_floats():
    """Makes impossible: an exception in the trainer, where a gold's exponent is beyond a float's."""
    cases = [("1.00e500", "5"), ("1.00e500", "1.001e500"), ("1.00e-400", "1.01e-400")]
    assert judged("science", cases) == ["wrong", "correct", "wrong"]
