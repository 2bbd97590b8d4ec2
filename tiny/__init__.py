"""The tiny policy, small enough to know exactly, and its problems.

make.py      makes policy/, train.jsonl and test.jsonl from nothing: python -m tiny.make
answers.py   lists every answer of a countdown problem
exact.py     sums a policy's probabilities over them, Q_pos without sampling: python -m tiny.exact
plateau/     that policy where N = 16 no longer helps; the headline's experiment starts there
"""
