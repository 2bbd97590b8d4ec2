"""The tiny policy, small enough to know exactly, and its problems.

make.py             makes policy/ (but its recipe.json), train.jsonl and test.jsonl from nothing: python -m tiny.make
answers.py          lists every answer of a countdown problem, written without parentheses or spaces
exact.py            sums a policy's probabilities over them, Q_pos without sampling: python -m tiny.exact
exact_gradient.py   trains with the exact gradient of pass@1: python -m tiny.exact_gradient OUT.csv
policy/, *.jsonl    the policy, its 4,096 training and 512 held-out problems
plateau/            that policy after 15 million samples of N = 16, nearly level; the headline's experiment starts there
"""
