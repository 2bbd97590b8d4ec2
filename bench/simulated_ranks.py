"""How even are the ranks? A step's seconds under the fixed rule of train.parts_of_rank, computed: no model, no GPU.

    python -m bench.simulated_ranks            64 and 8 ranks; N = 512 with B = 128, and N = 16 with B = 512

The rule, the width of a round and the mini-batches are the trainer's own functions. Assumed, none of it measured:

    responses       log-normal around a median that is log-normal over the prompts, 6,000 tokens on average, cut at
                    16,384; prompts have 200 tokens
    informative     62% of the prompts at N = 512, 41% at N = 16 (table 2), whatever their lengths
    an engine       20,000 tokens/s a rank, 100 tokens/s for one rollout at most, 512 rollouts at once, which run
                    equally fast; verdicts take no time
    an update       10,200 tokens/s a rank; each of U = 8 mini-batches ends with its slowest rank. A rank computes a
                    prompt once for its rollouts of a mini-batch
"""

from __future__ import annotations

import argparse
import heapq
import statistics

import torch
from torch import Tensor

import brorl
from train import mini_batch_of, parts_of_rank
from trainer.progress import Progress
from trainer.rollouts import round_width
from trainer.settings import Config

MEDIAN, BETWEEN, WITHIN, LIMIT, PROMPT = 4750.0, 0.5, 0.5, 16384, 200  # tokens; std of the log over and within prompts
RANK_RATE, ROLLOUT_RATE, AT_ONCE, UPDATE_RATE = 20_000.0, 100.0, 512, 10_200.0  # tokens a second; rollouts


def size(recipe: str) -> tuple[int, int]:
    """N and B."""
    settings = brorl.RECIPES[recipe]
    return int(settings["rollouts_per_prompt"].value), int(settings["prompts_per_step"].value)


def owners(prompts: int, n: int, world: int) -> Tensor:
    """The rank of each rollout, (P, N)."""
    owner = torch.empty(prompts, n, dtype=torch.long)
    for rank in range(world):
        for place, first, count in parts_of_rank(prompts, n, rank, world):
            owner[place, first : first + count] = rank
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
    config, progress, rng, found = Config(recipe=recipe, updates_per_step=8), Progress(), torch.Generator(), []
    rng.manual_seed(0)
    for step in range(1, steps + 1):
        seconds, kept, tried = 0.0, torch.empty(0, n, dtype=torch.long), 0
        owner = torch.empty(0, n, dtype=torch.long)
        while (missing := b - len(kept)) > 0:
            width = round_width(missing, progress.pass_rate(config, tried, len(kept)), config.round_confidence)
            medians = MEDIAN * (BETWEEN * torch.randn(width, 1, generator=rng)).exp()
            lengths = (medians * (WITHIN * torch.randn(width, n, generator=rng)).exp()).ceil().clamp(max=LIMIT).long()
            ranks = owners(width, n, world)
            seconds += max(decoded(lengths[ranks == rank]) for rank in range(world))
            informative = torch.rand(width, generator=rng) < brorl.PASS_RATE[recipe]
            kept, owner = torch.cat([kept, lengths[informative]]), torch.cat([owner, ranks[informative]])
            tried += width
        progress.note_drawn(tried, len(kept), tried * n)
        kept, owner = kept[:b], owner[:b]
        turn = (mini_batch_of(kept, config, step) * world + owner).flatten()  # (mini-batch, rank) of each rollout
        tokens = torch.zeros(8 * world).double().scatter_add_(0, turn, kept.flatten().double())
        once = (turn * b + torch.arange(b).repeat_interleave(n)).unique() // b  # of each prompt there
        tokens = (tokens + PROMPT * torch.bincount(once, minlength=8 * world)).view(8, world)
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
