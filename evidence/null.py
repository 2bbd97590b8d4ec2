"""What a policy loses if its weights move without learning anything: the null of "many draws lose fewer answers".

    python -m evidence.null MODEL OUT.csv

Every weight moves by the same amount, up or down at random, as AdamW's first update moves it: by the learning rate,
whatever the gradient is. Amounts grow by the square root of 2 from row to row, 3 seeds. A row has the exact scores of
tiny/exact.py on the 512 held-out problems, beside how far the weights moved.
"""

import argparse
import copy
import csv
from pathlib import Path

import torch
from transformers.utils import logging

from evidence.runs import ROOT
from tiny import exact
from trainer.policy import Policy
from verify import load_data

logging.disable_progress_bar()  # of loading the model
AMOUNTS = [1e-4 * 2 ** (i / 2) for i in range(14)]  # 0.0001 to 0.009


def displaced(model: Policy, amount: float, seed: int) -> Policy:
    """A copy with every weight moved by +amount or -amount."""
    moved, rng = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in moved.parameters():
            weights.add_(amount * (2 * torch.randint(2, weights.shape, generator=rng) - 1))
    return moved


def rows(model, tokenizer, problems, amounts: list[float], seeds: list[int]):
    """The scores of displaced policies, beginning with the policy itself."""
    start = exact.Knowledge.of(exact.log_probs(model, tokenizer, problems))
    yield {"amount": 0.0, "seed": 0} | exact.metrics(start, start)
    for amount in amounts:
        for seed in seeds:
            now = exact.Knowledge.of(exact.log_probs(displaced(model, amount, seed), tokenizer, problems))
            yield {"amount": amount, "seed": seed} | exact.metrics(now, start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a countdown policy, such as runs/evidence/saturate-compact/model")
    parser.add_argument("out", type=Path, help="the CSV to write")
    args = parser.parse_args()
    try:
        model, tokenizer = exact.load_policy(args.model)
    except (OSError, ValueError) as mistake:
        parser.exit(2, f"evidence.null: {mistake}\n")
    problems, new = load_data([str(ROOT / "tiny" / "test.jsonl")]), args.out.with_suffix(".new")
    with new.open("w", newline="") as file:
        writer = None
        for row in rows(model, tokenizer, problems, AMOUNTS, [0, 1, 2]):
            if writer is None:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
            print(f"moved by {row['amount']:.1e}: Q_pos {row['q_pos']:.4f}, fell {row['fell']:.3f}", flush=True)
    new.replace(args.out)


if __name__ == "__main__":
    main()
