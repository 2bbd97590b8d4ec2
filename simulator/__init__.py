"""What sim.py does with its curves.

curves.py      the curves of a run, their CSV and the tables that are printed
pictures.py    Figure 3's panels, and the figure of --sweep
"""
