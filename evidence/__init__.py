"""The CSVs behind docs/evidence.md, its appendix and docs/which_n.md, and the programs that read them.

    python -m evidence.tables         CSVs to tables
    python -m evidence.draw           CSVs to pictures

    python -m evidence.ttest A B      section 4.2.2's paired t-test of two runs
    python -m evidence.smollm FOLDER  a real chat model without the Hugging Face hub, and problems for it

The programs that made the runs and the CSVs are in commit 8628101, the last commit that has them. rows.py and
statistics.py serve the others. figure3.* and sweep.* come from sim.py (`--out evidence`).
"""
