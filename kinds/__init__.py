"""The kinds of problems behind verify.py (section 4.2.1).

maths.py     kind "math": compares two answers, with lexer.py (text to tokens), units.py (the table of units), reader.py
             (tokens to a tree, by a grammar) and algebra.py (the values of expressions)
science.py   kind "science": math with units, formulas and options
code.py      kind "code": programs and functions, by their outputs
ifeval.py    kind "ifeval": the 25 instructions of IFEval
logic.py     kind "logic": Reasoning Gym's scorers
users.py     a user's file of rewards
patterns.py  regular expressions that cannot backtrack
"""
