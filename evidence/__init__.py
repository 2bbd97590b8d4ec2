"""What docs/evidence.md, its appendix and docs/which_n.md rest on: runs, CSVs, tables and pictures.

    python -m evidence.experiments    makes the runs
    python -m evidence.collect        runs to CSVs; also for the README's comparison and docs/real_model.md
    python -m evidence.tables         CSVs to tables
    python -m evidence.draw           CSVs to pictures

    python -m evidence.ttest A B      section 4.2.2's paired t-test of two runs
    python -m evidence.exact_probe    train.py with Theorem 1 made exact
    python -m evidence.noise          --log_noise beside enumeration
    python -m evidence.price          which N where prompts are cheap or dear: predicted, then run
    python -m evidence.smollm FOLDER  a real chat model without the Hugging Face hub, and problems for it

rows.py and statistics.py serve all of these. figure3.* and sweep.* are sim.py's (`--out evidence`).
"""
