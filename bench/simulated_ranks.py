"""How even are the ranks? Seconds of a step under the fixed rule of trainer/rollouts.py, computed: no model, no GPU.

    python -m bench.simulated_ranks            64 and 8 ranks; N = 512 with B = 128, and N = 16 with B = 512

The rule, the prompts of a round and the mini-batches are the trainer's own functions. Assumed, not measured:

    responses       log-normal around a median that is log-normal over the prompts, 6,000 tokens on average, cut at
                    16,384; prompts have 200 tokens
    informative     62% of the prompts at N = 512, 41% at N = 16 (table 2), whatever their lengths
    an engine       20,000 tokens/s a rank, at most 100 tokens/s for one rollout, 512 rollouts at a time with equal
                    speed; verdicts take no time
    an update       10,200 tokens/s a rank; each of U = 8 mini-batches ends with its slowest rank. Every row computes
                    its prompt, as the trainer does for long responses
"""

from __future__ import annotations

import argparse
import heapq
import statistics

import torch
from torch import Tensor

import brorl
from train import mini_batches, prompts_wanted
from trainer.rollouts import Outcomes, requests_of_rank
from trainer.run import Progress
from trainer.settings import Config

MEDIAN, BETWEEN, WITHIN, LIMIT, PROMPT = 4750.0, 0.5, 0.5, 16384, 200  # tokens; std of the log over and within prompts
UPDATES = 8
RANK_RATE, ROLLOUT_RATE, AT_ONCE, UPDATE_RATE = 20_000.0, 100.0, 512, 10_200.0  # tokens a second; rollouts


def size(recipe: str) -> tuple[int, int]:
    """N and B."""
    settings = brorl.RECIPES[recipe]
    return int(settings["rollouts_per_prompt"].value), int(settings["prompts_per_step"].value)


def owners(prompts: int, n: int, world: int) -> Tensor:
    """The rank of each rollout, (P, N)."""
    owner = torch.empty(prompts, n, dtype=torch.long)
    for rank in range(world):
        for p, (_, count, _, first) in requests_of_rank([[0]] * prompts, n, [0] * prompts, rank, world):
            owner[p, first : first + count] = rank
    return owner


def decoded(lengths: Tensor, at_once: int = AT_ONCE, rank: float = RANK_RATE, each: float = ROLLOUT_RATE) -> float:
    """Seconds of one engine for these responses, begun in this order."""
    every = lengths.tolist()
    running, ends = sorted(every[:at_once]), [0]  # tokens that a rollout has which runs from the first second on
    for length in every[at_once:]:
        ends.append(heapq.heapreplace(running, running[0] + length))
    at = torch.tensor([*ends, *sorted(running)]).double()
    decoding = torch.arange(len(every), 0, -1).clamp(max=at_once)
    return (at.diff() / (rank / decoding).clamp(max=each)).sum().item()


def simulated(world: int, recipe: str, steps: int) -> list[tuple[float, float, float]]:
    """Seconds of generation, seconds of the update, and tokens of the fullest rank / the mean, of each step."""
    n, b = size(recipe)
    config, rng, found = Config(rollouts_per_prompt=n, prompts_per_step=b), torch.Generator().manual_seed(0), []
    progress = Progress(tried=100.0, informative=100 * brorl.PASS_RATE[recipe])  # of the steps before
    for step in range(1, steps + 1):
        seconds, outcomes = 0.0, Outcomes.none(n)
        rank_of: list[Tensor] = []
        while (width := prompts_wanted(outcomes, progress, config)) > 0:
            medians = MEDIAN * (BETWEEN * torch.randn(width, 1, generator=rng)).exp()
            lengths = (medians * (WITHIN * torch.randn(width, n, generator=rng)).exp()).ceil().clamp(max=LIMIT).long()
            ranks = owners(width, n, world)
            seconds += max(decoded(lengths[ranks == rank]) for rank in range(world))
            correct = torch.zeros(width, n, dtype=torch.bool)
            correct[:, 0] = torch.rand(width, generator=rng) < brorl.PASS_RATE[recipe]  # the informative prompts
            drawn = Outcomes(correct.double(), correct, lengths, lengths, correct, ["math"] * width)
            outcomes = outcomes.followed_by(drawn)
            rank_of.append(ranks)
        progress.end_step(outcomes, [], 0.0)
        kept = outcomes.correct[:, 0]
        owner = torch.cat(rank_of)[kept]
        number = mini_batches(torch.ones_like(owner, dtype=torch.bool), UPDATES, seed=step)
        tokens = torch.zeros(UPDATES * world).double()
        tokens.scatter_add_(0, (number * world + owner).flatten(), (outcomes.length[kept] + PROMPT).flatten().double())
        tokens = tokens.view(UPDATES, world)
        uneven = (tokens.sum(0).max() / tokens.sum(0).mean()).item()
        found.append((seconds, tokens.amax(1).sum().item() / UPDATE_RATE, uneven))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    print(f"{'ranks':>5} {'N':>5} {'B':>5} {'s a step':>10} {'generation':>10} {'update':>8}   tokens, most / mean")
    for world in (64, 8):
        for recipe in ("brorl", "prorl"):
            generation, update, uneven = map(statistics.fmean, zip(*simulated(world, recipe, args.steps), strict=True))
            n, b = size(recipe)
            print(
                f"{world:5} {n:5} {b:5} {generation + update:10,.0f} {generation:10,.0f} {update:8,.0f}   {uneven:.2f}"
            )


if __name__ == "__main__":
    main()
