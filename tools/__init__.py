"""Commands beside train.py, each `python -m tools.NAME`, and the modules that they share.

command             what it does
which_n             how many rollouts per prompt?
fit                 does a run fit a card?
speed               compares the speed of each part of a step with the plain way
ttest               the paper's paired t-test of two evaluations
experiments         runs, continues and draws the experiments of docs/evidence/*.toml
smollm              writes SmolLM2 and its problems
gpu_day.sh          bash tools/gpu_day.sh: tests, benchmarks and runs on a GPU. It calls fit, smollm and the next three
random_model        writes a random model, its problems and rewards
vllm_speed          vLLM's tokens/s with and without seeds; seconds of sync, sleep and wake
gpu_day             prints the card and versions, limits memory, prints the table of runs

module              imported by
noise_law           which_n: the law of noise and the estimate of V_w / V_b. Also lab/3_loop.py
half_groups         which_n: the gradients for that estimate
intervals           experiments and ttest: 95% intervals. Also lab/pool.py
markdown            experiments, vllm_speed and gpu_day: tables
random_model        also fit (QWEN) and vllm_speed (the command line)
speed               also vllm_speed (compare)
"""
