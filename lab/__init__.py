"""The course: fill in the paper's functions, write the loop, read the derivation. lab/README.md is where to begin.

loop.py        the training loop in one process and one file
variants.py    other objectives, one function each: python -m lab.loop --variant NAME
exercises.py   the exercises: a function, its tests, its points, a hint
blank.py       writes the files of a student, without the bodies of these functions
grade.py       runs the tests on the files of a student
1_mass.py      hour 1, section 2: predict, run, compare
2_loss.py      hour 2, section 3.1
3_loop.py      hour 3, section 4.2
pool.py        a class's runs of hour 3 in one table
notebooks.py   makes notebooks of the hours
bugs.py        the loop with eight bugs, and their curves
answers.md     for the teacher: answers to the questions of the hours
primer.md      from the gradient of E[R] to the clipped objective
"""
