"""CSVs and pictures of the pages (README.md), the paired t-test (ttest.py), a real chat model (smollm.py)."""
