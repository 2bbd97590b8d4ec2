"""What train.py stands on: how the loop of section 4.2 is made to work."""
