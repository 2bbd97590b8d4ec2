"""What sim.py does with its curves: it ends with a table and a picture, and imports nothing of evidence/ for them.

curves.py      the curves of a run, their CSV and the tables that are printed
pictures.py    Figure 3's panels, and the figure of --sweep
"""
