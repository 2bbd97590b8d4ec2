"""What sim.py's figure does not need: its command line and checks, its results, and Theorem 1 on its draws.

command.py        the flags, what they refuse, and what a run prints and writes
curves.py         the curves of a run, their CSV and the tables that are printed
mass_balance.py   Theorem 1 and Corollary 3 on the draws of a step
pictures.py       Figure 3's panels, and the figure of --sweep
"""
