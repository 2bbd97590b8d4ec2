"""Commands beside train.py, each `python -m tools.NAME`, and the parts that they are made of.

command           what it does
which_n           how many rollouts per prompt?
fit               does a run fit a card?
speed             compares the speed of parts with the plain way
ttest             the paper's paired t-test of two evaluations
experiments       runs, continues and draws the experiments of docs/evidence/*.toml
smollm            writes SmolLM2 and its problems
gpu_day.sh        bash tools/gpu_day.sh: tests, benchmarks and runs on a GPU. It calls fit, smollm and the next three
random_model      writes a random model, its problems and rewards
vllm_seeds        the cost of a seed for each rollout in vLLM
gpu_day           its versions, its budget of memory, its table of runs

part              of
noise_law         which_n: the law of the noise and the estimate of V_w / V_b; lab/3_loop.py imports it too
plans             experiments: reads the plans
comparison        experiments: compares the arms
markdown          experiments, gpu_day and vllm_seeds: tables
intervals         comparison and ttest: the statistics; lab/pool.py imports it too
"""
