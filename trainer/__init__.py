"""How train.py is made to work.

before a run    settings.py  checks.py  problems.py  prompts.py  memory.py  start.py
the loop        rollouts.py  batch.py  policy.py  packed.py  processes.py
what stays      run.py  checkpoint.py  progress.py  metrics.py
measured        noise.py  preflight.py  probe.py
what is said    report.py  errors.py
"""

import os

# torch reads these when it is imported, so train.py imports this package first.
# Threads that wait in OpenMP go to sleep: where they spin, any other load slows a run several times (docs/training.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A GPU's memory in segments that grow, where a user has not chosen: between others, micro-batches of many widths leave
# gaps (docs/training.md).
if os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("PYTORCH_ALLOC_CONF", os.getenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))
