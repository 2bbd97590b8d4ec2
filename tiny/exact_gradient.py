"""N → ∞: train with the exact gradient of pass@1, the limit of many rollouts.

    python -m tiny.exact_gradient OUT.csv --model tiny/plateau --prompts 128 --seeds 1 2 3

A larger N changes the noise of a step and, before whitening, not its mean: for each prompt this is

    E[(R - Q_pos) ∇ log π] = ∇ Q_pos,    Q_pos = Σ_i p_i over the right answers i

A countdown problem has few answers, so the sum is exact, and only the choice of the prompts of a step is random. The
loss is the mean per token of the whitened advantage, as in loss.py:

    L = -(1 / (P T)) Σ_x Q_pos(x) / σ,    σ² = mean of Q_pos (1 - Q_pos) before the step

P: kept prompts; T: tokens of an answer.

All else is as in the arm n512 of docs/evidence/headline.toml. A step draws `--prompts` problems until so many are
informative, which a problem is with the probability 1 - Q_pos^N - (1 - Q_pos)^N of N = 512. It makes 8 updates. There a
mini-batch has an eighth of each prompt's rollouts, here it has all prompts. Three things differ: an update has the
gradient of the present policy, so no ratio is clipped; there is no KL term; and problems are drawn in whole rounds of
`--prompts`.

Every second step is scored as in tiny/exact.py, on tiny/test.jsonl. `train_q_pos`, of all training problems, is
computed at the start and the end of a run.
"""

import argparse
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from tiny.exact import AnswerLogProbs, answer_log_probs, load_policy, log_probs, measures
from tiny.make import RESPONSE_TOKENS
from trainer.files import read_csv, write_csv
from trainer.process import explained, refusing
from trainer.settings import TINY
from trainer.sources import load_sources
from trainer.start import WEIGHT_DECAY
from verify import Problem

N = 512
UPDATES = 8
MAX_GRAD_NORM = 1.0  # as in train.py
REFILL = 4  # a step draws at most REFILL times --prompts problems


def loss_of(logps: AnswerLogProbs, sigma: float) -> Tensor:
    """Return L, with its gradient."""
    return -logps.q_pos.mean() / (RESPONSE_TOKENS * sigma)


def rounds(problems: list[Problem], size: int, seed: int) -> Iterator[list[Problem]]:
    """Yield `size` problems at a time, without end: one random order of all problems after another."""
    order: list[int] = []
    for drawn in itertools.count(0, size):
        while len(order) < size:
            order += random.Random(f"{seed}/{drawn}/{len(order)}").sample(range(len(problems)), len(problems))
        yield [problems[i] for i in order[:size]]
        order = order[size:]


def chosen(q: Tensor, random_numbers: Tensor) -> Tensor:
    """Choose a prompt with the probability that N rollouts have right and wrong ones: (P,), (P,) in [0, 1) -> bool."""
    return random_numbers < 1 - q**N - (1 - q) ** N


def train(
    model: str, problems: list[Problem], held_out: list[Problem], prompts: int, steps: int, rate: float, seed: int
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a row for every second step."""
    policy, tokenizer = load_policy(model)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate, weight_decay=WEIGHT_DECAY, foreach=False)
    start, generator = log_probs(policy, tokenizer, held_out), torch.Generator().manual_seed(seed)
    of_round, drawn, found = rounds(problems, prompts, seed), 0, 0
    for step in range(steps + 1):
        if step:
            kept, variances = [], []
            for some in itertools.islice(of_round, REFILL):
                q = log_probs(policy, tokenizer, some).q_pos
                keep = chosen(q, torch.rand(len(q), generator=generator, dtype=torch.float64))
                kept += [problem for problem, it_is in zip(some, keep.tolist(), strict=True) if it_is]
                variances += (q * (1 - q))[keep].tolist()
                drawn += prompts
                if len(kept) >= prompts:
                    break
            if not kept:
                raise ValueError(f"step {step}: none of {REFILL * prompts} problems was informative")
            found += len(kept)
            sigma = (sum(variances) / len(variances)) ** 0.5
            for _ in range(UPDATES):
                loss_of(answer_log_probs(policy, tokenizer, kept), sigma).backward()
                torch.nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
                optimizer.step()
                optimizer.zero_grad()
        if step % 2 == 0 or step == steps:
            row = {"prompts": prompts, "seed": seed, "learning_rate": rate}
            row |= {"step": step, "drawn": drawn, "found": found}
            row |= measures(log_probs(policy, tokenizer, held_out), start)
            ends = step in (0, steps)
            yield row | {"train_q_pos": log_probs(policy, tokenizer, problems).q_pos.mean().item() if ends else ""}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="rows are added to it, one for every second step")
    parser.add_argument("--model", default=str(TINY / "plateau"), help="the start (default: tiny/plateau)")
    parser.add_argument("--prompts", type=int, default=128, help="B (default: 128)")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--problems", type=int, help="the first ones only, of both files (default: all)")
    args = parser.parse_args(argv)
    if min(args.prompts, args.steps, args.problems or 1) < 1:
        parser.error("--prompts, --steps and --problems are at least 1")
    torch.set_num_threads(1)
    problems, held_out = (load_sources([str(TINY / x)])[: args.problems] for x in ("train.jsonl", "test.jsonl"))
    if any(row["prompts"] == args.prompts and row["seed"] in args.seeds for row in read_csv(args.csv)):
        raise ValueError(f"{args.csv} has rows of these --prompts and --seeds: name another file or other seeds")
    for seed in args.seeds:
        rows = train(args.model, problems, held_out, args.prompts, args.steps, args.learning_rate, seed)
        for row in tqdm(rows, total=(args.steps + 1) // 2 + 1, unit="row", desc=f"seed {seed}", disable=None):
            write_csv(args.csv, [*read_csv(args.csv), row])
        print(f"seed {seed}: pass@1 {row['q_pos']:.4f} after {args.steps} steps")


if __name__ == "__main__":
    with explained(code=2), refusing():
        main()
