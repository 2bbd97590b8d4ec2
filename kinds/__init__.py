"""The kinds of problems behind verify.py (section 4.2.1).

maths.py     kind "math", with latex.py (reads a text into a form) and algebra.py (compares expressions)
science.py   kind "science": math with units, formulas and options
code.py      kind "code": programs and functions, by their outputs
ifeval.py    kind "ifeval": the 25 instructions of IFEval
logic.py     kind "logic": Reasoning Gym's scorers
users.py     a user's file of rewards
patterns.py  regular expressions that cannot backtrack
"""
