"""Commands beside train.py.

which_n.py        how many rollouts per prompt? noise_law.py is its theory
fit.py            does a run fit a card?
speed.py          compares the speed of parts with the plain way
ttest.py          the paper's paired t-test of two evaluations
smollm.py         writes SmolLM2 and its problems
gpu_day.sh        tests, benchmarks and runs on a GPU; gpu_day.py has its Python
experiments.py    runs, continues and draws the experiments of docs/evidence/*.toml. plans.py reads the plans,
                  comparison.py compares the arms, intervals.py has the statistics
"""
