"""kinds/science.py: golds. The tables of answers are in test_kinds_maths.py."""

from judging import judged


def test_a_gold_in_a_box_is_what_the_box_holds():
    """Makes impossible: a data set whose golds are boxed refused, or a sentence around the box taken for the answer."""
    half, gravity = r"So the answer is $\boxed{\frac{1}{2}}$.", r"\boxed{9.8\ \text{m/s}^2}"
    assert judged("math", [(half, "0.5"), (half, "2")]) == ["correct", "wrong"]
    assert judged("science", [(gravity, "9.8 m/s^2"), (gravity, "9.8 m/s")]) == ["correct", "wrong"]


def test_golds_beyond_floats():
    """Makes impossible: an exception in the trainer, where a gold's exponent is beyond a float's."""
    cases = [("1.00e500", "5"), ("1.00e500", "1.001e500"), ("1.00e-400", "1.01e-400")]
    assert judged("science", cases) == ["wrong", "correct", "wrong"]
