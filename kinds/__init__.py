r"""The kinds of problems that verify.py judges (section 4.2.1), but countdown, which verify.py has itself.

maths.py     kind "math": the golds, and the answer in the last box
science.py   kind "science": math with units, formulas and options
answers/     the library that reads and compares the answers of both; kinds/answers/__init__.py is its door
code.py      kind "code": programs and functions, by their outputs
ifeval.py    kind "ifeval": the instructions of IFEval
logic.py     kind "logic": Reasoning Gym's scorers
checks.py    our own checks of puzzles whose scorer pays for wrong answers
boxes.py     the last \boxed{...} of a response
blocks.py    the blocks of code in a response, as CommonMark has them
users.py     a user's file of rewards
patterns.py  regular expressions that cannot backtrack
"""
