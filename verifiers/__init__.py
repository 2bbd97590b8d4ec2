"""What is behind verify.py (section 4.2): how each kind of answer is judged, where problems come from, the sandbox.

verdict.py   what every verifier takes and gives: Problem, Verdict, the words of a verdict
math.py      kind "math": the rules by which two answers are the same
latex.py       what an answer says: LaTeX or plain text, read into a Form
numerals.py    a number in any notation, as an exact fraction
algebra.py     what takes algebra, in a worker: sympy and math-verify
science.py   kind "science": math, with units and formulas
units.py       a unit in any notation, in base units
code.py      kind "code": programs and functions, by what they print and return
ifeval.py    kind "ifeval": the 25 instructions of IFEval
logic.py     kind "logic": Reasoning Gym's scorers
own.py       a reward of one's own: a user's file
data.py      problems from files and generators, mixed by weight
hub.py         rows of public data sets as problems
rounds.py    questions to the worker processes, and the one pool of them
sandbox.py   the sandbox: its walls in words, and the pool
jobs.py        what a worker is asked and answers; values as JSON
worker.py      the trainer's side of one worker process
keeper.py      the worker process: it forks a child for each job
child.py       what a child does: one program, or calls
walls.py       the walls of a process: user, limits, Landlock
seccomp.py     which system calls are refused
"""
