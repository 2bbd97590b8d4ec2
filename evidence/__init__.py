"""The CSVs and pictures of docs/evidence.md and other pages. README.md describes each CSV.

python -m evidence.draw           draws every picture and prints every table, from the CSVs
python -m evidence.ttest A B      compares two runs: section 4.2.2's paired t-test
python -m evidence.smollm FOLDER  makes a real chat model without the Hugging Face hub, and problems for it
"""
