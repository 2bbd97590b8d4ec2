"""How train.py is made to work.

before a run    settings.py  checks.py  problems.py  memory.py  start.py
the loop        deal.py  answers.py  batch.py  policy.py  packed.py  processes.py  probe.py
what stays      run.py  files.py  progress.py  metrics.py
what is said    report.py  screen.py  ending.py
"""
