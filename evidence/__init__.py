"""What docs/evidence.md, its appendix and docs/which_n.md rest on: runs, CSVs, tables and pictures. Call each as

    python -m evidence.experiments    makes the runs
    python -m evidence.draw           their tables and pictures; --from_csv: from the CSVs here, without a run
    python -m evidence.ttest A B      section 4.2.2's paired t-test of two runs
    python -m evidence.exact_probe    train.py with Theorem 1 made exact; null: weights that move at random
    python -m evidence.collect        the README's comparison of the two recipes
    python -m evidence.smollm FOLDER  a real chat model without the Hugging Face hub, and problems for it
    python -m evidence.real_model     the curve of docs/real_model.md
    python -m evidence.noise          docs/which_n.md: --log_noise beside enumeration
    python -m evidence.length         V_w / V_b by the length of a real model's answers
    python -m evidence.law            which N learns most in the tiny world; law_simulated: where all is exact

runs.py reads runs and CSVs, report.py prints and draws; arms.py, controls.py, rates.py, hard.py, heat.py, sampling.py,
objective.py and theorem1.py are the parts of draw.py. figure3.* and sweep.* are sim.py's (`--out evidence`). waves.csv
and the rows 16:512 of objective*.csv are of commit 8e4a065, which could draw a prompt's rollouts in waves.
"""
