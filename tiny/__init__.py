"""The embedded default, small enough to know exactly. Call each as `python -m tiny.NAME`.

make.py      makes policy/, train.jsonl and test.jsonl from nothing
answers.py   every answer of a countdown problem
exact.py     Q_pos and Figure 3's panels of a policy, summed over them
"""
