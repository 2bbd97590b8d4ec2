"""Speed next to the plain way (speed.py), and the N with the least noise (which_n.py)."""
