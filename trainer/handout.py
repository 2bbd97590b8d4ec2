"""Who trains on which rollouts: a step's kept groups, dealt again over the processes by tokens (train.py, stage 5).

    after rolling out   process 0: 1 1 1 1 3 3       where each group was decoded, as chance had it
                        process 1: 6 6 4 4 4 4       one row a rollout
    mini-batches        each has its share of every group and of every length
    parts               a group whole, or cut in 2, 4, 8, ... where whole ones do not come out even
    dealt               longest part first, each to whoever has the fewest tokens so far
    sent                as tensors: row numbers, tokens, log-probs

An optimizer step ends when its slowest process does, so what must be even is every mini-batch, not only the step. Which
rollouts a mini-batch has does not depend on the number of processes: the gradient is the same on any.

    P, N      groups kept, rollouts of each; row p·N + i is rollout i of group p. After waves (trainer/waves.py) a group
              has fewer, and there are places of the N without a row
    U         mini-batches
"""

from __future__ import annotations

import heapq

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor

from rollout import Group
from trainer.answers import Rolled
from trainer.batch import Batch
from trainer.deal import Kept
from trainer.processes import seed_of
from trainer.settings import Config
from verify import Verdict

EVEN = 1.02  # tokens of the fullest process over the mean: parts are not cut smaller below this
LEAST = 64  # rollouts of a part: its prompt is computed once for so many at least


def mini_batch_of(lengths: Tensor, updates: int, of: str, rng: torch.Generator, group: Tensor | None = None) -> Tensor:
    """Which of the step's U mini-batches each rollout belongs to, (P, N), from the lengths of the responses (P, N).

    of "rollouts": the rows, group by group and by length within a group, are taken U at a time, and each U are dealt
    to the U mini-batches at random. So all have as many rows, of each group, and of each length. of "prompts": whole
    groups, in a random order. group: (P, N) bool, which places there is a rollout at; None: all.
    """
    p, n = lengths.shape
    if of == "prompts":
        numbers = torch.empty(p, dtype=torch.long)
        for u, groups in enumerate(torch.randperm(p, generator=rng).tensor_split(updates)):
            numbers[groups] = u
        return numbers[:, None].expand(p, n).clone()
    by_length = (lengths.argsort(dim=-1, stable=True) + torch.arange(p)[:, None] * n).flatten()
    if group is not None:
        by_length = by_length[group.flatten()[by_length]]
    count = len(by_length)
    dealt = torch.rand(-(-count // updates), updates, generator=rng).argsort(-1)
    numbers = torch.zeros(p * n, dtype=torch.long)
    numbers[by_length] = dealt.flatten()[:count]
    return numbers.view(p, n)


def owners(
    lengths: Tensor, prompt_lengths: Tensor, mini_batch: Tensor, processes: int, of: str, least: int = LEAST,
    group: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Which process trains on each rollout, (P, N): as many tokens for all as parts of `least` rollouts or more allow.

    lengths, mini_batch (P, N), prompt_lengths (P,). Part j of k has the j-th, k + j-th, ... block of U rows of its
    group, in the order of their lengths: its share of every mini-batch, where U divides N. Where a mini-batch is of
    whole prompts, the parts of each mini-batch are dealt on their own. Groups of N < 2 least stay whole: with N = 16 on
    64 processes mini-batches of rollouts take 1.3 times what even ones would, those of prompts 3 times.
    group: (P, N) bool, which places there is a rollout at; None: all.
    """
    p, n = lengths.shape
    group = torch.ones(p, n, dtype=torch.bool) if group is None else group
    owner = torch.zeros(p, n, dtype=torch.long)
    if processes == 1:
        return owner
    alone = of == "prompts"
    updates = int(mini_batch.max()) + 1 if p else 1
    last = lengths.masked_fill(~group, torch.iinfo(torch.long).max)  # what is no rollout, behind those that are
    block = last.argsort(dim=-1, stable=True).argsort(dim=-1, stable=True) // (1 if alone else updates)
    most = (group.sum(-1, keepdim=True) // least).clamp(min=1)  # parts of a group
    for groups in (
        [(mini_batch[:, 0] == u).nonzero().squeeze(1) for u in range(updates)] if alone else [torch.arange(p)]
    ):
        best, parts = float("inf"), 1
        while best > EVEN and (parts == 1 or n // parts >= least):
            part = block[groups] % most[groups].clamp(max=parts)
            found, uneven = _dealt(lengths[groups], prompt_lengths[groups], part, parts, processes, group[groups])
            if uneven < best:
                best, owner[groups] = uneven, found
            parts *= 2
    return owner


def _dealt(
    lengths: Tensor, prompt_lengths: Tensor, part: Tensor, parts: int, processes: int, group: Tensor
) -> tuple[Tensor, float]:
    """Longest part first, to whoever has the fewest tokens: the owner of each row, and most tokens over the mean."""
    none = torch.zeros(len(lengths), parts, dtype=torch.long)
    rows = none.scatter_add(1, part, group.long())
    sizes = none.scatter_add(1, part, lengths * group) + prompt_lengths[:, None] * (rows > 0)
    load = [(0, process) for process in range(processes)]
    owner = torch.empty(len(lengths), parts, dtype=torch.long)
    for i in sizes.flatten().argsort(descending=True, stable=True).tolist():
        tokens, process = heapq.heappop(load)
        owner.view(-1)[i] = process
        heapq.heappush(load, (tokens + int(sizes.view(-1)[i]), process))
    return owner.gather(1, part), max(load)[0] * processes / max(1, sum(tokens for tokens, _ in load))


def exchanged(x: Tensor, to: list[int], accelerator: Accelerator) -> Tensor:
    """What all processes have for this one: x lies in the order of the receivers, `to[r]` of it is for process r."""
    if accelerator.num_processes == 1:
        return x
    sent = torch.tensor(to, device=accelerator.device)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    result = torch.empty(int(received.sum()), dtype=x.dtype, device=accelerator.device)
    dist.all_to_all_single(result, x.to(accelerator.device), received.tolist(), to)
    return result.cpu()


def hand_out(kept: Kept, advantages: Tensor, config: Config, step: int, accelerator: Accelerator) -> Batch:
    """This process's rollouts of the step, as many tokens as everyone else's. advantages: (P, N)."""
    lengths, group, of = kept.outcomes.lengths, kept.outcomes.group, config.mini_batches
    n = lengths.shape[1]
    least = n if config.log_mass_balance else LEAST  # the probe looks at whole groups
    rng = torch.Generator().manual_seed(seed_of(config.seed, step))
    prompt_lengths = torch.tensor([len(prompt) for prompt in kept.prompts], dtype=torch.long)
    mini_batch = mini_batch_of(lengths, config.updates_per_step, of, rng, group)
    owner = owners(lengths, prompt_lengths, mini_batch, accelerator.num_processes, of, least, group)
    return dealt(kept, advantages, mini_batch, owner, accelerator)


def dealt(kept: Kept, advantages: Tensor, mini_batch: Tensor, owner: Tensor, accelerator: Accelerator) -> Batch:
    """The rollouts that are this process's by `owner`, in order; advantages, mini_batch, owner: (P, N).

    Empties kept.rolled: as lists rollouts take some 80 bytes a token.
    """
    lengths, n = kept.outcomes.lengths, kept.outcomes.lengths.shape[1]
    here = [one.place * n + one.first + i for one in kept.rolled for i in range(len(one.texts))]  # what this one has,
    responses = [(response, logp) for one in kept.rolled for response, logp in _rollouts(one)]
    to = owner.flatten()[here]  # and in the order of the new owners:
    order = to.argsort(stable=True).tolist()
    rows = torch.tensor(here, dtype=torch.long)[order]
    tokens = torch.tensor([t for i in order for t in responses[i][0]], dtype=torch.int32)
    logp = torch.tensor([x for i in order for x in responses[i][1]], dtype=torch.float32)
    kept.rolled.clear()
    del responses

    counts = torch.bincount(to, minlength=accelerator.num_processes).tolist()
    sizes = torch.bincount(to, lengths.flatten()[here].double(), accelerator.num_processes).long().tolist()
    rows, tokens, logp = (exchanged(x, y, accelerator) for x, y in ((rows, counts), (tokens, sizes), (logp, sizes)))
    batch = Batch.of_rows(
        tokens, logp, lengths.flatten()[rows], kept.prompts, rows // n, advantages.flatten()[rows],
        mini_batch.flatten()[rows], accelerator.device,
    )  # fmt: skip
    return batch.rows(rows.argsort().to(accelerator.device))


def whole_groups(kept: Kept, batch: Batch, most: int) -> list[Rolled]:
    """The groups among the step's first `most` that are in this process's batch with all their rollouts."""
    n, found = kept.outcomes.lengths.shape[1], []
    for place in range(min(most, len(kept))):
        rows = (batch.prompts == place).nonzero().squeeze(1)
        if len(rows) == n:
            start, ends = len(kept.prompts[place]), batch.response_lengths[rows].tolist()
            own = batch.tokens[rows].tolist()
            responses = [row[start : start + end] for row, end in zip(own, ends, strict=True)]
            of = zip(kept.outcomes.rewards[place].tolist(), kept.outcomes.correct[place].tolist(), strict=True)
            verdicts = [Verdict(reward, "correct" if right else "wrong") for reward, right in of]
            group = Group(kept.prompts[place], responses, [], [])
            found.append(Rolled(kept.problems[place], group, [], verdicts, place))
    return found


def _rollouts(one: Rolled):
    return zip(one.group.responses, one.group.logprobs, strict=True)
