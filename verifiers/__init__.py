"""What is behind verify.py (section 4.2.1): how each kind of answer is judged, and where problems come from.

verdict.py   what every kind takes and gives: Problem, Verdict, Kind
math.py      kind "math": the rules by which two answers are the same
latex.py       what an answer says: LaTeX or plain text, read into a Form
numerals.py    a number in any notation, as an exact fraction
algebra.py     what takes algebra, in a worker: sympy and math-verify
science.py   kind "science": math, with units and formulas
units.py       a unit in any notation, in base units
code.py      kind "code": programs and functions, by what they print and return
ifeval.py    kind "ifeval": the 25 instructions of IFEval
logic.py     kind "logic": Reasoning Gym's scorers
custom.py    a reward of your own: a user's file
workers.py   the answers that a worker of the sandbox judges
data.py      problems from files and generators, mixed by weight
hub.py         rows of public data sets as problems
"""
