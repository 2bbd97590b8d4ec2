"""The plumbing of train.py.

The stages of a step, behind train.py:

progress.py         stage 1: the order of the problems; the counts of a run, which a checkpoint keeps
rollouts.py         stages 2 and 3: N rollouts of each prompt, and the thread that judges them
outcomes.py         their results: Rollout, Outcomes
micro_batches.py    stages 6 and 7: rollouts cut into micro-batches, as tensors
policy.py           stages 6 and 7: log-probs of response tokens, without all logits
metrics.py          the numbers of a step, summed over its tokens and all ranks, and the scores of an evaluation
step_warnings.py    sentences about a step that the user should not overlook

Before the run:

settings.py         the settings, one line each
command_line.py     parses the command line; --help, suggestions for unknown flags, refusal of what cannot work
defaults.py         the values that the user left open: from the recipe, recipe.json or an earlier run
process.py          begins and ends a program: variables for torch, Ctrl-C, a sentence and an exit code for an exception
launch.py           starts Accelerate; the precision of a run, and whether FSDP2 shards it
objectives.py       finds the objective that --objective names, and tries it
start.py            builds the objects of a run
trial.py            trials before the run: is the policy the model, how is it computed, and does the engine sample it

Its problems:

problems.py         reads a file of problems, and checks each problem
public_data.py      the rows of public data sets and generators as problems
sources.py          the problems of all sources of --data, in the shares of their weights
data.py             the problems of a run, checked to be prompts that fit the model
templates.py        a model's chat template, tried within limits
text.py             a prompt in tokens, the tokens that end a response, and those that its text leaves out

Its model:

pretrained.py       model and tokenizer, in the folder format of transformers
autocast.py         the forward pass in bfloat16, with weights rounded as in the engines
sharding.py         FSDP2
adapters.py         low-rank adapters beside frozen weights: --lora_rank
offload.py          AdamW's moments, allocated at the start; moments and reference in host memory: --offload

Its folder and its console:

run.py              stage 9: the folder of a run, its logs, when it writes a checkpoint, how a killed run continues
run_settings.py     what a run keeps of its settings and inputs: config.json for --resume, recipe.json of its model
checkpoints.py      the tensors of a checkpoint
console.py          what a run prints
pictures.py         the style of pictures; curves.png
files.py            text files that are replaced as a whole, JSON lines, CSV

Its time and memory:

clock.py            seconds and peak memory of each phase of a step, for timing.jsonl and the console
out_of_memory.py    which flags help after an out-of-memory error
update_memory.py    the memory of an update, counted from the model's config
card_memory.py      the memory that a run needs on each card, from this count
"""
