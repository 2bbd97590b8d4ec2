"""trainer/handout.py: mini-batches that are alike, tokens that are even, rollouts that arrive whole."""

import json
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from helpers import Job

from rollout import Group
from trainer.answers import Rolled
from trainer.deal import Kept, Outcomes
from trainer.handout import LEAST, hand_out, mini_batch_of, owners, whole_groups
from trainer.settings import Config
from verify import Problem, Verdict


def lengths_of(p, n, seed=0):
    """Log-normal, and around another mean for each prompt."""
    g = torch.Generator().manual_seed(seed)
    means = 6 + 0.5 * torch.randn(p, 1, generator=g)
    return (means + 0.7 * torch.randn(p, n, generator=g)).exp().long().clamp(1, 3000)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_mini_batches_of_rollouts():
    """Mistake: a rollout twice or never; a mini-batch with more of one group, of long responses, or always the same."""
    lengths = lengths_of(4, 512)
    numbers = mini_batch_of(lengths, 16, "rollouts", rng())
    assert numbers.shape == (4, 512) and torch.bincount(numbers.flatten()).tolist() == [128] * 16
    assert all(torch.bincount(row).tolist() == [32] * 16 for row in numbers)
    tokens = torch.zeros(16).scatter_add_(0, numbers.flatten(), lengths.flatten().float())
    assert tokens.max() / tokens.mean() < 1.05
    at_random = torch.randperm(2048, generator=rng()).reshape(16, 128)
    assert lengths.flatten()[at_random].sum(1).max() / lengths.sum() * 16 > 1.1  # what it would be
    assert not torch.equal(numbers, mini_batch_of(lengths, 16, "rollouts", rng(1)))
    assert torch.equal(numbers, mini_batch_of(lengths, 16, "rollouts", rng()))


@pytest.mark.parametrize(("p", "n", "updates"), [(5, 6, 4), (3, 2, 16), (7, 16, 8), (1, 1, 3), (0, 4, 2)])
def test_mini_batches_where_nothing_divides(p, n, updates):
    """Mistake: an empty mini-batch beside a full one, where a group has fewer rollouts than there are mini-batches."""
    counts = torch.bincount(mini_batch_of(lengths_of(p, n), updates, "rollouts", rng()).flatten(), minlength=updates)
    assert counts.sum() == p * n and counts.max() - counts.min() <= 1


def ragged(p=6, n=64) -> torch.Tensor:
    """(P, N) bool: groups of 4, 4, 8, 16, 32 and 4 of the 64 places, each behind the places of those before it."""
    group = torch.zeros(p, n, dtype=torch.bool)
    for own, (first, size) in zip(group, [(0, 4), (4, 4), (8, 8), (16, 16), (32, 32), (0, 4)], strict=True):
        own[first : first + size] = True
    return group


def test_mini_batches_of_groups_of_several_sizes_are_even():
    """Mistake: places without a rollout that take turns in the deal: a mini-batch with fewer rollouts than another."""
    group, lengths = ragged(), lengths_of(6, 64)
    numbers = mini_batch_of(lengths, 4, "rollouts", rng(), group)
    assert torch.bincount(numbers[group]).tolist() == [17] * 4
    assert all((torch.bincount(row[own]) == own.sum() / 4).all() for row, own in zip(numbers, group, strict=True))
    assert torch.equal(mini_batch_of(lengths, 4, "rollouts", rng(), group | True),
                       mini_batch_of(lengths, 4, "rollouts", rng()))  # fmt: skip


def test_groups_of_several_sizes_are_cut_where_they_are_wide():
    """Mistake: a narrow group cut up; tokens of rollouts that are not trained on, or of a prompt that nobody has."""
    group, lengths = ragged(), lengths_of(6, 64)
    prompts = torch.full((6,), 300)
    numbers = mini_batch_of(lengths, 2, "rollouts", rng(), group)
    owner = owners(lengths, prompts, numbers, 2, "rollouts", 8, group)
    for own, places in zip(owner, group, strict=True):
        rows = torch.bincount(own[places], minlength=2)
        assert rows[rows > 0].min() >= min(8, places.sum())
    tokens = load(lengths, prompts, owner, group, 2)
    assert tokens.max() / tokens.float().mean() < 1.05
    assert torch.equal(owners(lengths, prompts, numbers, 2, "rollouts", 8, group | True),
                       owners(lengths, prompts, numbers, 2, "rollouts", 8))  # fmt: skip


def test_equal_lengths_are_drawn_at_random():
    """Mistake: rollouts of equal length that always meet the same mini-batch, or the same companions."""
    lengths = torch.full((1, 8), 5)
    seen = torch.stack([mini_batch_of(lengths, 4, "rollouts", rng(s))[0] for s in range(400)])
    share = (seen[:, :, None] == torch.arange(4)).float().mean(0)  # (8, 4)
    assert (share - 0.25).abs().max() < 0.08


def test_mini_batches_of_prompts():
    """Mistake: --mini_batches prompts that cuts one up, or takes the prompts in their order."""
    numbers = mini_batch_of(lengths_of(10, 6), 4, "prompts", rng())
    assert torch.equal(numbers, numbers[:, :1].expand(10, 6))
    assert sorted(torch.bincount(numbers[:, 0]).tolist()) == [2, 2, 3, 3]
    assert not torch.equal(numbers, mini_batch_of(lengths_of(10, 6), 4, "prompts", rng(1)))
    few = mini_batch_of(lengths_of(3, 6), 4, "prompts", rng())
    assert sorted(few[:, 0].tolist()) == [0, 1, 2]


def load(lengths, prompts, owner, rows, processes):
    """Tokens of each process: responses, and every prompt once a process that has some of its rollouts."""
    own = torch.zeros(processes, dtype=torch.long).scatter_add_(0, owner[rows], lengths[rows])
    for process in range(processes):
        here = ((owner == process) & rows).any(1)
        own[process] += prompts[here].sum()
    return own


@pytest.mark.parametrize("processes", [2, 4, 8, 64])
def test_all_have_as_many_tokens(processes):
    """Mistake: a process that the others wait for: over the step, and in each of its mini-batches."""
    lengths, prompts = lengths_of(128, 512), torch.full((128,), 300)
    numbers = mini_batch_of(lengths, 16, "rollouts", rng())
    owner = owners(lengths, prompts, numbers, processes, "rollouts")
    whole = load(lengths, prompts, owner, torch.ones_like(numbers, dtype=torch.bool), processes)
    assert whole.max() / whole.float().mean() < 1.05
    slowest = [load(lengths, prompts * 0, owner, numbers == u, processes).max().item() for u in range(16)]
    assert sum(slowest) / lengths.sum() * processes < 1.05
    for group, own in zip(lengths, owner, strict=True):
        rows = torch.bincount(own, minlength=processes)
        assert rows[rows > 0].min() >= LEAST and len(group) == rows.sum()


def test_whole_prompts_are_even_in_every_mini_batch():
    """Mistake: --mini_batches prompts with a mini-batch that one process has to itself."""
    lengths, prompts = lengths_of(16, 512), torch.full((16,), 300)
    numbers = mini_batch_of(lengths, 4, "prompts", rng())
    owner = owners(lengths, prompts, numbers, 8, "prompts")
    for u in range(4):
        own = load(lengths, prompts, owner, numbers == u, 8)
        assert own.max() / own.float().mean() < 1.1


def test_groups_stay_whole_where_that_is_even():
    """Mistake: a prompt computed on every process where whole groups come out even; a part smaller than allowed."""
    lengths, prompts = torch.full((8, 128), 10), torch.full((8,), 100)
    numbers = mini_batch_of(lengths, 4, "rollouts", rng())
    owner = owners(lengths, prompts, numbers, 4, "rollouts")
    assert (owner == owner[:, :1]).all() and torch.bincount(owner[:, 0]).tolist() == [2] * 4
    assert (owners(lengths[:3], prompts[:3], numbers[:3], 4, "rollouts", least=128).min(1)[0]).tolist() == [0, 1, 2]
    assert not owners(lengths, prompts, numbers, 1, "rollouts").any()
    assert owners(lengths[:0], prompts[:0], numbers[:0], 4, "rollouts").shape == (0, 128)


def kept(here, p=5, n=6) -> tuple[Kept, torch.Tensor]:
    """Groups whose tokens tell which rollout they are; `here` are those that this process has, (place, first, n)."""
    lengths = 1 + (torch.arange(p * n) * 7 % 11).view(p, n)
    correct = torch.arange(p * n).view(p, n) % 3 == 0
    outcomes = Outcomes(correct.double(), correct, lengths, torch.zeros(p, n).bool(), torch.ones(p, n).bool())
    prompts = [[1000 + i] * (2 + i) for i in range(p)]
    rolled = []
    for place, first, count in here:
        rows = range(place * n + first, place * n + first + count)
        responses = [[100 + row] * lengths.flatten()[row] for row in rows]
        group = Group(
            prompts[place], responses, [[-row / 8] * len(r) for row, r in zip(rows, responses, strict=True)], []
        )
        rolled.append(Rolled(None, group, [""] * count, [Verdict(0.0, "wrong")] * count, place, first))
    return Kept([Problem("p", "math", str(i)) for i in range(p)], prompts, outcomes, rolled), lengths


def check(batch, rows, advantages, lengths):
    for i, row in enumerate(rows):
        place, length = divmod(row, 6)[0], int(lengths.flatten()[row])
        assert (
            batch.prompts[i] == place and batch.prompt_lengths[i] == 2 + place and batch.response_lengths[i] == length
        )
        whole = [1000 + place] * (2 + place) + [100 + row] * length
        assert batch.tokens[i, : len(whole)].tolist() == whole and not batch.tokens[i, len(whole) :].any()
        assert batch.engine_logp[i, :length].tolist() == [-row / 8] * length
        assert batch.advantages[i] == advantages.flatten()[row]


@pytest.mark.parametrize("of", ["rollouts", "prompts"])
def test_on_one_process_a_batch_is_what_was_kept(of):
    """Mistake: a response under another prompt, log-prob, advantage or mini-batch on its way into the batch."""
    groups, lengths = kept([(0, 0, 6), (1, 0, 4), (1, 4, 2), (2, 0, 6), (3, 0, 6), (4, 0, 6)])
    advantages = torch.arange(30.0).view(5, 6)
    config = Config(seed=0, updates_per_step=4, mini_batches=of)
    batch = hand_out(groups, advantages, config, 3, Accelerator(cpu=True))
    check(batch, range(30), advantages, lengths)
    parts = batch.mini_batches(4)
    assert sorted(torch.cat(parts).tolist()) == list(range(30))
    again, _ = kept([(i, 0, 6) for i in range(5)])
    other = hand_out(again, advantages, config, 4, Accelerator(cpu=True))
    assert not torch.equal(batch.mini_batch, other.mini_batch)
    whole = whole_groups(groups, batch, 2)
    assert [(one.place, one.problem.reference, one.correct.sum()) for one in whole] == [(0, "0", 2), (1, "1", 2)]
    assert [len(r) for r in whole[1].group.responses] == lengths[1].tolist() and whole[1].group.prompt == [1001] * 3


HANDED = """
import json, os, sys, torch
sys.path.insert(0, sys.argv[2])
from accelerate import Accelerator
from test_trainer_handout import kept, check, lengths_of
from trainer import handout
from trainer.settings import Config
accelerator, found = Accelerator(cpu=True), {}
rank = accelerator.process_index
for name, here in {
    "split": [[(0, 0, 6), (1, 0, 3), (4, 0, 6)], [(1, 3, 3), (2, 0, 6), (3, 0, 6)]],
    "all at one": [[(i, 0, 6) for i in range(5)], []],
}.items():
    advantages = torch.arange(30.0).view(5, 6)
    for of, least in (("rollouts", 3), ("prompts", 1)):
        groups, lengths = kept(here[rank])
        handout.LEAST = least
        config = Config(seed=0, updates_per_step=2, mini_batches=of)
        batch = handout.hand_out(groups, advantages, config, 3, accelerator)
        rows = [int(t) - 100 for t in batch.tokens[torch.arange(len(batch)), batch.prompt_lengths]]
        check(batch, rows, advantages, lengths)
        found[f"{name}, {of}"] = [rows, batch.mini_batch.tolist()]
json.dump(found, open(f"{sys.argv[1]}/{rank}", "w"))
accelerator.wait_for_everyone()
os._exit(0)
"""


def test_rollouts_arrive_whole_and_once(tmp_path):
    """Mistake: a rollout lost, doubled or torn on its way to another process; other mini-batches than on one."""
    (tmp_path / "handed.py").write_text(HANDED)
    Job(tmp_path / "handed.py", [tmp_path, Path(__file__).parent], processes=2).ended()
    zero, one = (json.loads((tmp_path / str(rank)).read_text()) for rank in range(2))
    for name in zero:
        groups, _ = kept([(i, 0, 6) for i in range(5)])
        rows = zero[name][0] + one[name][0]
        assert sorted(rows) == list(range(30)) and zero[name][0] == sorted(zero[name][0]) and one[name][0]
        config = Config(seed=0, updates_per_step=2, mini_batches=name.split(", ")[1])
        alone = hand_out(groups, torch.zeros(5, 6), config, 3, Accelerator(cpu=True))
        numbers = dict(zip(rows, zero[name][1] + one[name][1], strict=True))
        assert [numbers[row] for row in range(30)] == alone.mini_batch.tolist()
