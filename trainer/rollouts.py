"""Stages 2 and 3: N rollouts of each prompt; judge.py judges them while others decode.

Rank r of W draws the rollouts r·N/W to (r+1)·N/W of every prompt. With N < W it draws one rollout of every W/N-th
prompt. Prompt seed and rollout number fix the tokens, so a step is the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from accelerate import Accelerator
from tqdm import tqdm

from rollout import Engine, Group, Request, Sampling
from trainer.judge import Judge
from trainer.outcomes import Outcomes, Rollout
from trainer.text import encode
from verify import Problem


def roll_out(
    engine: Engine, problems: list[Problem], n: int, seeds: list[int], sampling: Sampling, judge: Judge,
    accelerator: Accelerator, prompts_before: int = 0,
) -> tuple[list[Rollout], Outcomes]:  # fmt: skip
    """Draw N rollouts of each of P problems and judge them. Returns this rank's rollouts and the outcomes of all ranks.

    prompts_before: number of prompts that earlier rounds of the step drew.
    """
    requests = requests_of_rank(
        [encode(judge.tokenizer, problem) for problem in problems], n, seeds, accelerator.process_index,
        accelerator.num_processes,
    )  # fmt: skip
    with tqdm(total=sum(r.n for _, r in requests), desc="rollouts", leave=False, delay=5, disable=None) as bar:
        for i, group in engine.generate([request for _, request in requests], sampling, bar.update):
            p, request = requests[i]
            judge.put(list(rollouts_of(group, problems[p], prompts_before + p, request.first)))
        rollouts = judge.result()
    rollouts.sort(key=lambda r: (r.prompt_index, r.number))
    return rollouts, Outcomes.of(rollouts, prompts_before, problems, n, accelerator, judge.objective.mask_truncated)


def requests_of_rank(
    prompts: list[list[int]], n: int, seeds: list[int], rank: int, world: int
) -> list[tuple[int, Request]]:
    """(index of the prompt, the request) for this rank's rollouts of each prompt; no request for an empty share."""
    requests = []
    for p, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
        turn = rank if n >= world else (rank - p * n) % world  # N < W: the prompts take turns over the ranks
        low, high = (turn * n // world, (turn + 1) * n // world) if n >= world else (min(turn, n), min(turn + 1, n))
        if high > low:
            requests.append((p, Request(prompt, high - low, seed, low)))
    return requests


def rollouts_of(group: Group, problem: Problem, prompt_index: int, first: int) -> Iterator[Rollout]:
    """The responses of a group as rollouts. first: number of the group's first rollout."""
    prompt = torch.tensor(group.prompt, dtype=torch.int32)
    for i, (end, truncated) in enumerate(zip(group.lengths.tolist(), group.truncated.tolist(), strict=True)):
        yield Rollout(problem, prompt_index, first + i, prompt, group.tokens[i, :end], group.logp[i, :end], truncated)
