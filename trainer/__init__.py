"""The plumbing of train.py.

settings.py    the settings, their rules, the command line
data.py        the problems, checked before a run; the held-out problems by source
rollouts.py    stages 2 and 3: Rollout, Outcomes, roll_out; the thread that judges
policy.py      stages 6 and 7: log-probs of response tokens, micro-batches, sharding
run.py         stage 9: the folder of a run, logs, metrics, checkpoints; the progress of a run
report.py      first lines, scores and curves of a run
"""

import os
import signal
import sys

# torch reads these when it is imported, and train.py imports this package first.
# Waiting OpenMP threads sleep. If they spin, any other load slows a run down several times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# GPU memory in segments that can grow: micro-batches of many widths leave gaps between fixed ones.
if os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("PYTORCH_ALLOC_CONF", os.getenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))


def stop(*_) -> None:
    """Answer Ctrl-C during the seconds of the imports. An exception there would print a traceback, or get lost."""
    print("\nstopped", file=sys.stderr, flush=True)
    os._exit(130)


if sys.argv[0].endswith("train.py") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, stop)  # until main() begins
