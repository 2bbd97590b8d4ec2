"""The plumbing of train.py.

The stages of a step, behind train.py:

progress.py       stage 1: the order of the problems; the counts of a run, which a checkpoint keeps
rollouts.py       stages 2 and 3: roll_out; the thread that judges
outcomes.py       their results: Rollout, Outcomes
micro_batches.py  stages 6 and 7: rollouts cut into micro-batches, and `write_log_probs`
policy.py         the policy as the loss sees it: log-probs of response tokens
head.py           log-probs from hidden states, without all logits
metrics.py        the numbers of a step and of an evaluation, and warnings about them

The run around them, in its order:

settings.py       the settings, one line each
command_line.py   from the command line, a recipe or an earlier run to their values
exits.py          turns an exception into a sentence and an exit code
objectives.py     finds the objective that --objective names, and tries it
launch.py         starts Accelerate; the precision of a run, and whether FSDP2 shards it
start.py          builds the objects of a run
pretrained.py     model and tokenizer, in the folder format of transformers
problems.py       reads a file of problems, and checks each problem
public_data.py    the rows of public data sets and generators as problems
data.py           the problems of a run, from all sources, as prompts that fit the model
templates.py      a model's chat template, tried within limits
text.py           a prompt in tokens, and the tokens that a response's text leaves out
trial.py          trials before the run: is the policy the model, how is it computed, and does the engine sample it
autocast.py       the forward pass in bfloat16, with weights rounded as in the engines
sharding.py       FSDP2
adapters.py       low-rank adapters beside frozen weights: --lora_rank
offload.py        AdamW's moments, allocated at the start; moments and reference in host memory: --offload
run_settings.py   the settings that a run keeps: config.json for --resume, recipe.json of its model
run.py            stage 9: the folder of a run, its logs, when it writes a checkpoint, how a killed run continues
checkpoints.py    the tensors of a checkpoint
clock.py          seconds and peak memory of each stage, for timing.jsonl and the console
peaks.py          the peak memory of a stage, and the sentence about the peaks of a run
out_of_memory.py  which flags help after an out-of-memory error
count.py          the memory of an update, counted from the model's config
report.py         the console, and curves.png
pictures.py       the style of pictures
files.py          text files that are replaced as a whole, JSON lines, CSV

Importing this package has no effect on the process; `prepare` has.
"""

import os
import signal
import sys


def prepare() -> None:
    """Set the environment variables that torch reads when it is imported, and answer Ctrl-C until the imports end.

    A program calls it before it imports torch. A variable that the user has set stays as it is.
    """
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show ± or π shows ? in its place
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Waiting OpenMP threads sleep. If they spin, any other load slows a run down several times.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # GPU memory in segments that can grow: micro-batches of many widths leave gaps between fixed ones.
    if os.path.exists("/dev/nvidiactl"):
        os.environ.setdefault("PYTORCH_ALLOC_CONF", os.getenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)  # until trainer.exits.explained() begins


def stop(*_) -> None:
    """Answer Ctrl-C during the seconds of the imports. An exception there would print a traceback, or get lost."""
    print("\nstopped", file=sys.stderr, flush=True)
    os._exit(130)
