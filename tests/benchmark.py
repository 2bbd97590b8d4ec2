"""How fast the parts are, each beside the plain way of doing the same, measured in the same run.

    python tests/benchmark.py sim       section 4.1: sim.py against one softmax, multinomial and AdamW per step and N

Ours and the other take turns, so that both meet the same machine; every number is from this run.
"""

import argparse
import dataclasses
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import sim as simulator


def machine() -> str:
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}, "
        f"python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} torch thread(s)"
    )


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def obvious_simulation(setting: simulator.Setting, rollouts, seed: int = 0) -> dict[int, list[dict]]:
    """Section 4.1 as one would first write it: autograd, torch.multinomial, and an AdamW for each N."""
    torch.manual_seed(seed)
    rewards = torch.full((setting.vocabulary,), setting.reward_incorrect)
    rewards[: setting.correct_tokens] = setting.reward_correct
    curves = {}
    for n in rollouts:
        z = simulator.initial_logits(setting).requires_grad_()
        p_start = torch.softmax(z.detach(), -1)[: setting.correct_tokens]
        adamw = torch.optim.AdamW([z], lr=setting.lr, weight_decay=setting.weight_decay)
        curves[n] = []
        for _ in range(setting.steps):
            p = torch.softmax(z, -1)
            curves[n].append(simulator.measure(p.detach()[: setting.correct_tokens], p_start))
            tokens = torch.multinomial(p.detach(), n, replacement=True)
            r = rewards[tokens]
            loss = -((r - r.mean()) * p[tokens]).mean()
            adamw.zero_grad()
            loss.backward()
            adamw.step()
    return curves


def sim(args: argparse.Namespace) -> None:
    """The default run of sim.py, and both ways in turns on a part of the steps."""
    torch.set_num_threads(args.threads)
    setting, rollouts = simulator.Setting(), simulator.FIGURE_3
    part = dataclasses.replace(setting, steps=args.steps)
    scale = setting.steps / part.steps
    simulator.simulate(part, rollouts)
    turns = [
        (seconds(lambda: simulator.simulate(part, rollouts)), seconds(lambda: obvious_simulation(part, rollouts)))
        for _ in range(args.turns)
    ]
    whole = seconds(lambda: simulator.simulate(setting, rollouts))
    best, best_obvious = (min(column) * scale for column in zip(*turns, strict=True))
    ratios = sorted(obvious / ours for ours, obvious in turns)
    print(machine())
    print(f"N = {rollouts}, {setting.steps} steps; {args.turns} turns of {part.steps} steps each, scaled up:")
    print(f"  ours           {best:6.2f} s at best; the whole run took {whole:.1f} s")
    print(f"  obvious loop   {best_obvious:6.2f} s at best")
    print(
        f"  ratio          {best_obvious / best:6.2f} of the bests; {statistics.median(ratios):.2f} median of the turns"
    )


BENCHMARKS = {"sim": sim}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = parser.add_subparsers(dest="name", required=True)
    for name, run in BENCHMARKS.items():
        names.add_parser(name, help=run.__doc__).set_defaults(run=run)
    sim_flags = names.choices["sim"]
    sim_flags.add_argument("--threads", type=int, default=1, help="torch threads, for both (default: 1, as sim.py)")
    sim_flags.add_argument("--steps", type=int, default=100, help="steps of each turn (default: 100)")
    sim_flags.add_argument("--turns", type=int, default=5, help="turns (default: 5)")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
