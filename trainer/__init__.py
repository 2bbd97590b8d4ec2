"""The plumbing of train.py.

The stages of a step, behind train.py:

progress.py         stage 1: the order of the problems; the counts of a run, which a checkpoint keeps
rollouts.py         stage 2: N rollouts of each prompt
judge.py            stage 3: the thread that judges them
outcomes.py         their results: Rollout, Outcomes
micro_batches.py    stages 6 and 7: rollouts cut into micro-batches, and `write_log_probs`
policy.py           the policy as the loss sees it: log-probs of response tokens
head.py             log-probs from hidden states, without all logits
sums.py             sums of the metrics of a step's updates, over its tokens and over all ranks
metrics.py          the numbers of a step and the scores of an evaluation
step_warnings.py    sentences about a step that the user should not overlook

The run around them:

settings.py         the settings, one line each
command_line.py     parses the command line; --help, and suggestions for unknown flags
defaults.py         the values that the user left open: from the recipe, recipe.json or an earlier run
settings_checks.py  refuses settings that cannot work
process.py          environment variables for torch, and Ctrl-C during the imports
exits.py            turns an exception into a sentence and an exit code
objectives.py       finds the objective that --objective names, and tries it
launch.py           starts Accelerate; chooses the precision of a run, and says whether FSDP2 shards it
start.py            builds the objects of a run
pretrained.py       model and tokenizer, in the folder format of transformers
problems.py         reads a file of problems, and checks each problem
public_data.py      the rows of public data sets and generators as problems
sources.py          the problems of all sources of --data, in the shares of their weights
data.py             the problems of a run, checked to be prompts that fit the model
templates.py        a model's chat template, tried within limits
text.py             a prompt in tokens, the tokens that end a response, and those that its text leaves out
trial.py            trials before the run: is the policy the model, how is it computed, and does the engine sample it
autocast.py         the forward pass in bfloat16, with weights rounded as in the engines
sharding.py         FSDP2
adapters.py         low-rank adapters beside frozen weights: --lora_rank
offload.py          AdamW's moments, allocated at the start; moments and reference in host memory: --offload
run_settings.py     what a run keeps of its settings and inputs: config.json for --resume, recipe.json of its model
run.py              stage 9: the folder of a run, its logs, when it writes a checkpoint, how a killed run continues
checkpoints.py      the tensors of a checkpoint
clock.py            seconds and peak memory of each phase of a step, for timing.jsonl and the console
peaks.py            the measured peak memory of a phase, and the sentence about the peaks of a run
out_of_memory.py    which flags help after an out-of-memory error
update_memory.py    the memory of an update, counted from the model's config
card_memory.py      the memory that a run needs on each card, from this count
console.py          what a run prints
curves.py           curves.png
pictures.py         the style of pictures
files.py            text files that are replaced as a whole, JSON lines, CSV
"""
