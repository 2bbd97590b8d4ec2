"""The deal of trainer/deal.py and trainer/handout.py over many ranks, on the clock of tests/simulated_deal.py."""

import statistics
from dataclasses import replace

import pytest
import simulated_deal
import torch
from simulated_deal import Clock, Decoding, Setting, Step, after, before, decoded

import train
from trainer import deal

# As much work a rank as 64 ranks have at N = 512, and as 2,048 rollouts a rank have: B and the orders are the same
PAPER = Setting(ranks=8, rollouts=64, steps=6)
LONG = Setting(ranks=2, rollouts=128, steps=2)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def mean(steps: list[Step], of) -> float:
    return statistics.fmean(map(of, steps))


def test_what_is_wanted_of_the_deal():
    """Mistake: round after round, ranks that wait for the fullest one, or for the longest group."""
    now, then = after(PAPER), before(PAPER)
    assert mean(now, lambda x: x.rounds) <= 1.3 and mean(then, lambda x: x.rounds) >= 4
    assert mean(now, lambda x: x.tokens) <= 1.05 and mean(then, lambda x: x.tokens) >= 1.15
    assert mean(now, lambda x: x.barriers) <= 1.05 and mean(then, lambda x: x.barriers) >= 1.15
    # What is left above an infinitely fine deal, and above one that knows which prompts will be informative
    assert mean(now, lambda x: x.seconds / (x.pooled + x.update_balanced)) <= 1.04
    assert mean(now, lambda x: x.seconds / (x.pooled_needed + x.update_balanced)) <= 1.10
    assert mean(now, lambda x: x.seconds / x.balanced) <= 1.20 and mean(then, lambda x: x.seconds / x.balanced) >= 1.6
    assert [x.samples > PAPER.prompts * PAPER.rollouts for x in now] == [True] * PAPER.steps


def test_a_step_of_many_rollouts_a_rank_takes_the_balanced_time():
    """Mistake: a deal that wastes more than a tenth of a step where no long response does."""
    steps = after(LONG)
    assert mean(steps, lambda x: x.seconds / x.balanced) <= 1.10
    assert all(x.generation >= x.generation_balanced and x.update >= x.update_balanced for x in steps)


def test_it_is_the_trainers_own_deal_that_is_simulated(monkeypatch):
    """Makes impossible: a table of numbers that stay good where the trainer's rule got worse."""
    few = replace(PAPER, steps=2)
    good = after(few)

    def broken(place, name, by) -> list[Step]:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, by)
            return after(few)

    refilled = broken(train, "round_width", lambda missing, rate, sure: missing)
    assert mean(refilled, lambda x: x.rounds) > 3 > 1.3 >= mean(good, lambda x: x.rounds)
    whole = lambda lengths, prompts, mini_batch, ranks, of: (torch.arange(len(lengths)) % ranks)[:, None] + lengths * 0  # noqa: E731
    dealt_whole = broken(simulated_deal, "owners", whole)
    assert mean(dealt_whole, lambda x: x.tokens) > 1.05 >= mean(good, lambda x: x.tokens)
    by_length = lambda lengths, updates, of, rng: lengths * updates // (few.limit + 1)  # noqa: E731
    uneven = broken(simulated_deal, "mini_batch_of", by_length)
    assert mean(uneven, lambda x: x.barriers) > 1.05 >= mean(good, lambda x: x.barriers)
    cut = deal.orders_of
    large = broken(deal, "orders_of", lambda prompts, n, rows, engines: cut(prompts, n, 16 * rows, engines))
    assert mean(large, lambda x: x.generation) > 1.05 * mean(good, lambda x: x.generation)
    take = deal.Queue.take
    hoard = broken(deal.Queue, "take", lambda queue: take(queue) if queue.rank == 0 else None)
    assert mean(hoard, lambda x: x.generation) > 3 * mean(good, lambda x: x.generation)


def test_the_engine_by_hand():
    """Mistake: rollouts that decode faster than the engine, or than one rollout can.

    At 100 tokens/s, 60 for one: 100 and 300 tokens share until 2 s; the last 200 take 200/60 s more.
    """
    setting = Setting(rank_rate=100.0, rollout_rate=60.0, at_once=2)
    assert decoded(torch.tensor([100, 300]), setting) == pytest.approx(2 + 200 / 60)
    assert decoded(torch.tensor([100, 300, 60]), setting) == pytest.approx(2 + 60 / 50 + 140 / 60)
    assert decoded(torch.tensor([100, 300]), setting, ranks=2) == pytest.approx(300 / 60)
    lengths, many = torch.randint(1, 3000, (200,), generator=torch.Generator().manual_seed(0)), Setting(at_once=7)
    decoding = Decoding(0.0, many)
    for i, length in enumerate(lengths.tolist()):
        if i >= many.at_once:
            decoding.end()
        decoding.start(length)
    while decoding.running:
        decoding.end()
    assert decoded(lengths, many) == pytest.approx(decoding.time)


def test_the_clock_lets_the_one_that_is_furthest_behind_go_on():
    """Mistake: an order for a rank that would ask for it later than another; a rank's failure that is waited for."""
    clock, order = Clock(3), []

    def work(rank: int) -> None:
        for seconds in ([5.0, 1.0], [2.0, 2.0], [3.0, 9.0])[rank]:
            clock.now[rank] += seconds
            clock.turn(rank)
            order.append((clock.now[rank], rank))
        assert clock.meet(rank, rank, sum) == 3 and clock.now[rank] == 12.0

    clock.run(work)
    assert order == sorted(order) and len(order) == 6

    clock = Clock(3)

    def fail(rank: int) -> None:
        if rank == 1:
            raise ValueError("this one")
        clock.meet(rank)

    with pytest.raises(ValueError, match="this one"):
        clock.run(fail)
    clock = Clock(2)
    with pytest.raises(IndexError):  # one waits for another that has left
        clock.run(lambda rank: rank or clock.meet(rank))
