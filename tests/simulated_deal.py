"""The deal of a step over many ranks, on a clock of its own: no model, no tokens, no GPU (trainer/deal.py).

What decides is the trainer's own: a thread a rank runs `train.roll_out_until_informative`, and with it Cursor,
Progress.pass_rate, round_width, orders_of, roll_out, Judge.hand_in, Queue.take, Outcomes and Drawn.first. Who trains on
what is said by mini_batch_of and owners, called as hand_out calls them. Replaced are

    Clock       virtual seconds: of the ranks that want something of each other, the one furthest behind goes on
    Engine      continuous batching. All rollouts of a rank run equally fast; a response is its length, a `range`
    Rank        accelerate's: sums over the threads
    Dealing     the queue's store and its last wait
    AtOnce      verdicts, which cost no time

Assumed: lengths are log-normal around a median that is log-normal over the prompts, and cut at a limit. Whether a
prompt is informative has nothing to do with its lengths. An update's seconds follow its tokens.
"""

import functools
import gc
import heapq
import math
import statistics
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

import train
from rollout import Group
from trainer import deal
from trainer.answers import Rolled
from trainer.handout import mini_batch_of, owners
from trainer.processes import seed_of
from trainer.progress import Cursor, Progress
from trainer.settings import Config
from verify import Problem, Verdict

ASKING = 0.001  # seconds that taking an order costs
PROBLEMS = 4096  # of the data set


@dataclass(frozen=True)
class Setting:
    """What is simulated. Rates are tokens a second."""

    ranks: int = 64
    prompts: int = 128  # B
    rollouts: int = 512  # N
    updates: int = 8  # U
    pass_rate: float = 0.62  # share of prompts that are informative
    last_pass_rate: float = -1.0  # of the last step, if it drifts; -1: it does not
    median: float = 4750.0  # tokens of a response, over all prompts
    between: float = 0.5  # standard deviation of the log of a prompt's median
    within: float = 0.5  # and of the log of a response of one prompt
    limit: int = 16384
    prompt_tokens: int = 200
    rank_rate: float = 20_000.0  # of an engine, at most
    rollout_rate: float = 100.0  # of one rollout, at most
    update_rate: float = 10_200.0  # of a rank's forward and backward passes
    at_once: int = 512  # rollouts that decode at once
    order_rows: int = 64
    sure: float = 0.9
    steps: int = 40
    seed: int = 0

    def pass_rate_at(self, step: int) -> float:
        last = self.pass_rate if self.last_pass_rate < 0 else self.last_pass_rate
        return self.pass_rate + (last - self.pass_rate) * (step - 1) / max(1, self.steps - 1)


@dataclass(frozen=True)
class Prompt:
    median: float  # tokens of its responses
    tokens: int
    informative_below: float  # where the pass rate is above this, the prompt is informative

    def __len__(self) -> int:
        return self.tokens


@functools.cache
def prompts_of(setting: Setting) -> list[Prompt]:
    rng = torch.Generator().manual_seed(setting.seed)
    medians = setting.median * (setting.between * torch.randn(PROBLEMS, generator=rng)).exp()
    below = torch.rand(PROBLEMS, generator=rng)
    return [Prompt(m, setting.prompt_tokens, b) for m, b in zip(medians.tolist(), below.tolist(), strict=True)]


@functools.cache
def problems_of(setting: Setting, step: int) -> list[Problem]:
    """The problems of a step; `reference`: is it informative?"""
    rate = setting.pass_rate_at(step)
    return [Problem("", "simulated", prompt.informative_below < rate) for prompt in prompts_of(setting)]


def lengths_of(prompt: Prompt, n: int, seed: int, setting: Setting) -> Tensor:
    """Tokens of n responses, (n,)."""
    z = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    return (prompt.median * (setting.within * z).exp()).ceil().clamp(max=setting.limit).long()


# --------------------------------------------------------------------------------------------------- clock and engine


class Clock:
    """Virtual seconds of each rank, and which thread runs: one at a time, handed on like a baton."""

    def __init__(self, ranks: int):
        self.now, self.gates = [0.0] * ranks, [threading.Semaphore(0) for _ in range(ranks)]
        self.ready = [(0.0, rank) for rank in range(ranks)]  # a heap of those who wait for their turn
        self.counts: dict[str, int] = {}  # of the store
        self.met: dict[int, Any] = {}
        self.result: Any = None
        self.failure: BaseException | None = None

    def turn(self, rank: int) -> None:
        """Until no rank that is ready is further behind than this one."""
        heapq.heappush(self.ready, (self.now[rank], rank))
        self._next(rank)

    def meet(self, rank: int, value: Any = None, merge: Callable[[list], Any] = list) -> Any:
        """Until all ranks are here, at the time of the last; `merge` of what they bring."""
        self.met[rank] = value
        if len(self.met) < len(self.now):
            self._next()
            self._wait(rank)
            return self.result
        self.result, self.met = merge([self.met[r] for r in range(len(self.now))]), {}
        self.now = [max(self.now)] * len(self.now)
        self.ready += [(self.now[0], other) for other in range(len(self.now)) if other != rank]
        heapq.heapify(self.ready)
        return self.result

    def run(self, work: Callable[[int], None]) -> None:
        """`work(rank)` in a thread for each rank. What one of them raises is raised here."""
        threads = [threading.Thread(target=self._run, args=(work, rank), daemon=True) for rank in range(len(self.now))]
        for thread in threads:
            thread.start()
        self._next()
        for thread in threads:
            thread.join()
        if self.failure:
            raise self.failure

    def _run(self, work: Callable[[int], None], rank: int) -> None:
        try:
            self._wait(rank)
            work(rank)
            if self.ready or self.met:  # nobody is ready, but some wait for this one: IndexError
                self._next()
        except BaseException as failure:
            self.failure = self.failure or failure
            for gate in self.gates:
                gate.release()

    def _next(self, rank: int | None = None) -> None:
        _, first = heapq.heappop(self.ready)
        if first != rank:
            self.gates[first].release()
            if rank is not None:
                self._wait(rank)

    def _wait(self, rank: int) -> None:
        self.gates[rank].acquire()
        if self.failure:
            raise SystemExit


class Decoding:
    """Rollouts that run equally fast, each at most at `rollout_rate`, all together at most at `rank_rate`."""

    def __init__(self, time: float, setting: Setting):
        self.time, self.most, self.each = time, setting.rank_rate, setting.rollout_rate
        self.served = 0.0  # tokens that a rollout has which runs since the beginning
        self.running: list[tuple[float, int]] = []  # a heap: `served` at its end, its order

    def start(self, length: int, order: int = 0) -> None:
        heapq.heappush(self.running, (self.served + length, order))

    def end(self) -> int:
        """Until the next rollout ends; its order."""
        rate = min(self.each, self.most / len(self.running))
        served, order = heapq.heappop(self.running)
        self.time, self.served = self.time + (served - self.served) / rate, served
        return order


def decoded(lengths: Tensor, setting: Setting, ranks: int = 1) -> float:
    """Seconds for these responses, begun in this order, on one engine as large as those of so many ranks."""
    at_once, all_lengths = ranks * setting.at_once, lengths.tolist()
    running, ends = sorted(all_lengths[:at_once]), []  # tokens that a rollout has which runs from the first second on
    for length in all_lengths[at_once:]:
        ends.append(heapq.heapreplace(running, running[0] + length))
    ends = torch.tensor([0, *ends, *sorted(running)]).double()
    decoding = torch.arange(len(all_lengths), 0, -1).clamp(max=at_once)
    return (ends.diff() / (ranks * setting.rank_rate / decoding).clamp(max=setting.rollout_rate)).sum().item()


class Engine:
    """Asks for an order as soon as fewer than `at_once` rollouts run and none waits."""

    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=0))

    def __init__(self, rank: int, clock: Clock, setting: Setting):
        self.rank, self.clock, self.setting, self.order_rows = rank, clock, setting, setting.order_rows

    def wake(self) -> None: ...
    def sleep(self) -> None: ...

    def stream(self, orders, take, share, *, on_progress, max_new_tokens, **sampling):
        decoding = Decoding(self.clock.now[self.rank], self.setting)
        waiting: deque[tuple[int, int]] = deque()
        groups: dict[int, list[Group]] = {}
        left: dict[int, int] = {}
        more = True
        while more or decoding.running:
            while len(decoding.running) < min(share, self.setting.at_once) and (waiting or more):
                if waiting:
                    decoding.start(*waiting.popleft())
                    continue
                number = take()
                decoding.time = self.clock.now[self.rank]
                if more := number is not None:
                    groups[number] = self.drawn(*orders[number])
                    of = [len(response) for group in groups[number] for response in group.responses]
                    waiting.extend((length, number) for length in of)
                    left[number] = len(of)
            if decoding.running:
                number = decoding.end()
                self.clock.now[self.rank] = decoding.time
                left[number] -= 1
                if not left[number]:
                    on_progress(sum(len(group.responses) for group in groups[number]))
                    yield number, groups.pop(number)

    def drawn(self, prompts: list[Prompt], n: int, seeds: list[int]) -> list[Group]:
        groups = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            lengths = lengths_of(prompt, n, seed, self.setting).tolist()
            reasons = ["length" if length == self.setting.limit else "stop" for length in lengths]
            groups.append(Group(prompt, [range(length) for length in lengths], [], reasons))
        return groups


# --------------------------------------------------------------------------------------- what stands in for processes


class Rank:
    """Of accelerate.Accelerator what the deal needs."""

    device = torch.device("cpu")

    def __init__(self, rank: int, clock: Clock):
        self.process_index, self.num_processes, self.clock = rank, len(clock.now), clock
        self.rounds = 0

    def reduce(self, x: Tensor, _: str) -> Tensor:
        return self.clock.meet(self.process_index, x, sum)


class Order(Cursor):
    """The cursor, which says to all ranks what it said to the first."""

    def take(self, count: int) -> list[int]:
        taken = taken_at(self.size, self.seed, self.position, count)
        self.position += count
        return taken


@functools.cache
def taken_at(size: int, seed: int, position: int, count: int) -> list[int]:
    cursor = Cursor(size, seed)
    cursor.position = position
    return cursor.take(count)


class Dealing(deal.Queue):
    """The queue; its store is a dict of the clock's, and to wait for all is to meet."""

    def __init__(self, orders: int, accelerator: Rank, told: Callable[[], bool]):
        self.orders, self.processes, self.told = orders, accelerator.num_processes, told
        self.mine, self.looked = count(), math.inf
        self.rank, self.clock, self.store = accelerator.process_index, accelerator.clock, self
        accelerator.rounds += 1
        self.counts, self.prefix = self.clock.counts, accelerator.rounds

    def add(self, name: str, amount: int) -> int:
        """As a store's: the ranks come in the order of their clocks."""
        self.clock.now[self.rank] += ASKING
        self.clock.turn(self.rank)
        key = f"{self.prefix}/{name}"
        self.counts[key] = self.counts.get(key, 0) + amount
        return self.counts[key]

    def wait_for_all(self, stop: bool = False) -> None:
        assert not stop
        self.clock.meet(self.rank)


class AtOnce(deal.Judge):
    """Every other rollout of an informative prompt is correct, none of another."""

    def __init__(self, tokenizer, problems, judging):
        self.problems, self.found = problems, []

    def hand_in(self, parts: list[deal.Part], groups: list[Group]) -> None:
        self.found += self.judge(parts, groups)

    def all(self, tick) -> list[Rolled]:
        return sorted(self.found, key=lambda one: (one.place, one.first))

    def close(self) -> None: ...

    def judge(self, parts: list[deal.Part], groups: list[Group]) -> list[Rolled]:
        rolled = []
        for part, group in zip(parts, groups, strict=True):
            problem = self.problems[part.place]
            said = [RIGHT if problem.reference and (part.first + i) % 2 else WRONG for i in range(part.n)]
            rolled.append(Rolled(problem, group, range(part.n), said, part.place, part.first))
        return rolled


RIGHT, WRONG = Verdict(1.0, "correct"), Verdict(0.0, "wrong")


# -------------------------------------------------------------------------------------------------------------- steps


class Step(NamedTuple):
    """What a step came to. Seconds are virtual."""

    rounds: int
    surplus: int  # prompts that were drawn, but not needed
    fullest: float  # prompts' worth of rollouts that the fullest rank trains on
    tokens: float  # to train on, of the fullest rank over the mean
    barriers: float  # the same, the fullest of each mini-batch
    generation: float
    update: float
    generation_balanced: float  # the prompts that were needed, evenly spread, at full speed
    update_balanced: float
    samples: int  # rollouts that were needed
    pooled: float = 0.0  # seconds of generation if all ranks were one engine: an infinitely fine deal
    pooled_needed: float = 0.0  # the same, of the prompts that were needed

    @property
    def seconds(self) -> float:
        return self.generation + self.update

    @property
    def balanced(self) -> float:
        return self.generation_balanced + self.update_balanced


def updated(lengths: Tensor, owner: Tensor, mini_batch: Tensor, setting: Setting) -> dict[str, float]:
    """A step's update by who trains on which rollout in which mini-batch, each (P, N). Each ends with its slowest rank.

    A prompt is computed once by each rank that has some of its rollouts in a mini-batch.
    """
    (p, n), ranks = lengths.shape, setting.ranks
    turn = (mini_batch * ranks + owner).flatten()
    loads = torch.zeros(setting.updates * ranks).double().scatter_add_(0, turn, lengths.flatten().double())
    once = (turn * p + torch.arange(p).repeat_interleave(n)).unique() // p
    loads += setting.prompt_tokens * torch.bincount(once, minlength=len(loads))
    loads, rows = loads.view(setting.updates, ranks), torch.bincount(owner.flatten(), minlength=ranks)
    return {
        "fullest": int(rows.max()) / n,
        "tokens": (loads.sum(0).max() / loads.sum(0).mean()).item(),
        "barriers": (loads.amax(1).sum() / loads.mean(1).sum()).item(),
        "update": loads.amax(1).sum().item() / setting.update_rate,
        "update_balanced": lengths.sum().item() / ranks / setting.update_rate,
    }


def at_full_speed(lengths: Tensor, setting: Setting) -> float:
    return lengths.sum().item() / setting.ranks / setting.rank_rate


def config_of(setting: Setting) -> Config:
    return Config(
        recipe="brorl", seed=setting.seed, rollouts_per_prompt=setting.rollouts, prompts_per_step=setting.prompts,
        updates_per_step=setting.updates, max_response_tokens=setting.limit, sure=setting.sure, temperature=1.0,
        top_p=1.0,
    )  # fmt: skip


def after(setting: Setting, told: Callable[[int, Step], None] = lambda *_: None) -> list[Step]:
    """The trainer's own deal."""
    clock, config, steps = Clock(setting.ranks), config_of(setting), []

    def work(rank: int) -> None:
        accelerator, seen = Rank(rank, clock), []
        run = SimpleNamespace(
            preemption=SimpleNamespace(told=lambda: False),
            leave_if_asked=lambda undo: None,
            sample=lambda step, drawn: seen.append(drawn),
        )
        progress, cursor = Progress(), Order(PROBLEMS, setting.seed)
        setup = SimpleNamespace(
            cursor=cursor, progress=progress, run=run, engine=Engine(rank, clock, setting),
            tokenizer=SimpleNamespace(eos_token_id=0), prompts=prompts_of(setting),
        )  # fmt: skip
        screen = SimpleNamespace(doing=lambda text: None, say=lambda step, text: None, live=False)
        for _ in range(setting.steps):
            began, step = clock.now[rank], progress.begin_step()
            setup.problems = problems_of(setting, step)
            kept, metrics = train.roll_out_until_informative(config, accelerator, setup, screen)
            drawn, lengths = seen.pop(), kept.outcomes.lengths
            if rank:
                continue
            rng = torch.Generator().manual_seed(seed_of(config.seed, step))
            mini_batch = mini_batch_of(lengths, setting.updates, config.mini_batches, rng)
            prompt_lengths = torch.tensor([len(prompt) for prompt in kept.prompts])
            owner = owners(lengths, prompt_lengths, mini_batch, setting.ranks, config.mini_batches)
            every = drawn.outcomes.lengths
            used = every[: drawn.used]
            steps.append(Step(
                rounds=metrics["rounds"], surplus=metrics["surplus"], generation=clock.now[rank] - began,
                generation_balanced=at_full_speed(used, setting), samples=used.numel(),
                pooled=decoded(every.flatten(), setting, setting.ranks),
                pooled_needed=decoded(used.flatten(), setting, setting.ranks),
                **updated(lengths, owner, mini_batch, setting),
            ))  # fmt: skip
            told(step, steps[-1])

    def counted(drawn: deal.Drawn, kept: int) -> dict[str, float]:
        return {"prompts": kept, "rounds": drawn.rounds, "surplus": len(drawn) - drawn.used}

    gc.disable()  # a million orders in 64 threads, none of them in a circle
    try:
        with patch.multiple(
            train,
            Judge=AtOnce,
            of_step=counted,
            roll_out=functools.partial(deal.roll_out, queue=Dealing),
            seed_of=functools.cache(seed_of),  # every rank asks for all of them
        ):
            clock.run(work)
    finally:
        gc.enable()
    return steps


def before(setting: Setting) -> list[Step]:
    """The rule that was: rounds of what is missing, dealt from rank 0 on, each group trained where it was drawn."""
    prompts, cursor, steps = prompts_of(setting), Cursor(PROBLEMS, setting.seed), []
    for step in range(1, setting.steps + 1):
        problems, drawn, kept, rounds, seconds = problems_of(setting, step), [], [], 0, 0.0
        while (missing := min(setting.prompts - len(kept), 4 * setting.prompts - len(drawn))) > 0:
            at, taken = cursor.position, cursor.take(missing)
            lengths = [lengths_of(prompts[i], setting.rollouts, seed_of(setting.seed, step, at + k), setting)
                       for k, i in enumerate(taken)]  # fmt: skip
            of_ranks = [lengths[rank :: setting.ranks] for rank in range(setting.ranks)]
            seconds += max(decoded(torch.cat(own), setting) for own in of_ranks if own)
            drawn += lengths
            kept += [(x, k % setting.ranks) for k, x in enumerate(lengths) if problems[taken[k]].reference]
            rounds += 1
        lengths = torch.stack([x for x, _ in kept])
        owner = torch.tensor([rank for _, rank in kept])[:, None].expand_as(lengths)
        mini_batch = torch.empty(lengths.numel(), dtype=torch.long)
        rng = torch.Generator().manual_seed(step)
        for rank in range(setting.ranks):
            rows = (owner.flatten() == rank).nonzero().squeeze(1)
            for u, part in enumerate(rows[torch.randperm(len(rows), generator=rng)].tensor_split(setting.updates)):
                mini_batch[part] = u
        every = torch.stack(drawn)
        steps.append(Step(
            rounds=rounds, surplus=0, generation=seconds, generation_balanced=at_full_speed(every, setting),
            samples=every.numel(), **updated(lengths, owner, mini_batch.view_as(lengths), setting),
        ))  # fmt: skip
    return steps


def mean_and_p95(of: list[float]) -> tuple[float, float]:
    ordered = sorted(of)
    return statistics.fmean(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1]
