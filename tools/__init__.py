"""Commands beside train.py: which_n, speed, fit (memory of a card), ttest, smollm (a chat model), draw (pictures)."""
