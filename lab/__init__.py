"""The course: fill in the paper's functions, run the loop, read the derivation. lab/README.md is where to begin.

exercises.py   what is asked: a function, its tests, its points, a hint
blank.py       writes the files of a student, without the bodies of these functions
grade.py       runs the tests on the files of a student
loop.py        the training loop in one process and one file
bugs.py        the loop with eight bugs, and their curves
primer.md      from the gradient of E[R] to the clipped objective
"""
