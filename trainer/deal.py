"""Who rolls out which prompt: stages 1 to 3 of train.py's step over any number of processes.

    the cursor   1  2  3  4  5  6  7  8 | 9 10 ...   prompts in the run's order. A prompt's place fixes its seed
    a round      └─────────────────────┘             so many that nine times in ten B of them are informative
    orders       [1  2] [3  4] [5  6] [7  8]         what an engine decodes at once: some prompts, or a part of one
    the queue      ↓      ↓      ↓      ↓            whoever is free takes the next order
    processes      0      1      1      0
    verdicts     +  -   +  +   -  +   -  +           of an order that is done, while the next ones decode
    kept         1      3  4      6                  the first B = 4 informative ones in the cursor's order
    surplus                          7  8            drawn and counted, but not trained; the next step starts at 7
    dealt again  process 0: 6 and a part of 1        by tokens (trainer/handout.py)
                 process 1: 3, 4 and a part of 1

Who is free when is chance. What is trained is not: a prompt's rollouts follow from its place, what is kept from the
verdicts and the places. The same run writes the same numbers on any number of processes, up to the order of float sums.

    `round_width`   how many prompts a round has           `orders_of`   how they are cut into orders
    `Queue`         an order for whoever asks              `Judge`       verdicts on a thread of their own
    `roll_out`      all of it for one round                `Outcomes`    what every process knows of every rollout
"""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from queue import SimpleQueue
from statistics import NormalDist
from threading import Thread
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

import loss as L
from rollout import Engine, Group, Order
from trainer.answers import Rolled, solved
from trainer.processes import merge, summed
from trainer.progress import Preempted
from verify import Problem, verify_batch

ORDERS = 2, 4  # orders of a round for one engine, and for each of several, at least, if there are as many prompts
PATIENCE = 15.0  # seconds that a process has to leave with the others: torch's launcher waits for 30
POLL = 1.0  # seconds between two looks at whether another process was told to stop


def round_width(missing: int, pass_rate: float, sure: float) -> int:
    """The fewest prompts of which `missing` are informative with probability `sure`, if each is with `pass_rate`.

    By the normal approximation of how many it takes until so many are (negative binomial):
    mean k / p, variance k (1 - p) / p². One round more takes as long as its longest response; one prompt too many costs
    its tokens.
    """
    z = NormalDist().inv_cdf(sure)
    return max(missing, math.ceil((missing + z * math.sqrt(missing * (1 - pass_rate))) / pass_rate))


# -------------------------------------------------------------------------------------------------------- the orders


class Part(NamedTuple):
    """Rollouts `first` to `first + n` of the prompt at `place` of a round."""

    place: int
    first: int
    n: int


def orders_of(prompts: int, n: int, rows: int, engines: int = 1) -> list[list[Part]]:
    """N rollouts of so many prompts in orders of about `rows` rollouts: of several prompts, or of a part of one.

    A prompt is cut by `rows` alone, so that its rollouts do not depend on who decodes them. How many prompts an order
    has does depend on who is there to decode: fewer where that leaves a process without work. That changes no more than
    the rounding of log-probs; of 32,768 responses of the embedded policy none was another one.
    """
    if n > rows:
        sizes = [len(part) for part in torch.arange(n).tensor_split(math.ceil(n / rows))]
        firsts = [sum(sizes[:i]) for i in range(len(sizes))]
        return [
            [Part(place, first, size)] for place in range(prompts) for first, size in zip(firsts, sizes, strict=True)
        ]
    together = max(1, min(rows, prompts * n // ORDERS[engines > 1] // engines) // n)
    orders = torch.arange(prompts).tensor_split(math.ceil(prompts / together))  # as even as can be
    return [[Part(place, 0, n) for place in order.tolist()] for order in orders]


# --------------------------------------------------------------------------------------------------------- the queue


class Queue:
    """The numbers 0 to orders - 1, each for one of the processes, and word of whether one was told to stop.

    Over the store that torch.distributed has anyway, which adds atomically. Made by all processes, in the same order.
    told: was this process told to stop? `tick` is called now and then while rolling out.
    """

    made = count()

    def __init__(self, orders: int, accelerator: Accelerator, told: Callable[[], bool]):
        self.orders, self.told = orders, told
        self.rank, self.processes = accelerator.process_index, accelerator.num_processes
        self.mine, self.looked = count(), time.monotonic()
        if self.processes > 1:
            store = dist.distributed_c10d._get_default_store()  # type: ignore[attr-defined]
            self.store = dist.PrefixStore(f"deal/{next(self.made)}", store)

    def take(self) -> int | None:
        """The next order's number; None: all are taken."""
        number = next(self.mine) if self.processes == 1 else self.store.add("orders", 1) - 1
        return number if number < self.orders else None

    def tick(self) -> None:
        """Raises Preempted where this process was told to stop, or, within POLL seconds, where another one was."""
        if self.told():
            raise Preempted
        if self.processes > 1 and time.monotonic() - self.looked > POLL:
            self.looked = time.monotonic()
            if self.store.add("hurry", 0):
                raise Preempted

    def wait_for_all(self, stop: bool = False) -> None:
        """Return when every process is done. A collective would wait too, but only as long as its timeout.

        stop: this process gave up. Raises Preempted, on all of them, if any did.
        """
        if self.processes > 1:
            self.store.add("stop", int(stop))  # first this, then `done`: once all are done, it cannot change any more
            self.store.add("done", 1)
            pause, hurried = 0.001, 0.0
            while self.store.add("done", 0) < self.processes:
                time.sleep(pause)
                pause = min(2 * pause, 0.2)
                if (stop or self.told()) and not hurried:  # those who are still rolling out hear of it
                    self.store.add("hurry", 1)
                    hurried = time.monotonic()
                if hurried and time.monotonic() - hurried > PATIENCE:
                    raise dist.DistError("another process was asked to stop, and gives no answer")
            stop = self.store.add("stop", 0) > 0
            self.store.add("read", 1)
            while self.rank == 0 and self.store.add("read", 0) < self.processes:  # it may hold the store
                time.sleep(0.001)
        if stop:
            raise Preempted


# -------------------------------------------------------------------------------------------------------- the verdicts


class Judge:
    """Stage 3 beside stage 2: what rollouts say, and the verdicts. A thread judges all that came since it last did.

    The thread is a daemon: a process that is told to stop does not wait for the verdicts of slow programs.
    """

    def __init__(self, tokenizer, problems: list[Problem], judging: dict[str, Any]):
        self.tokenizer, self.problems, self.judging = tokenizer, problems, judging
        self.handed: SimpleQueue[tuple[list[Part], list[Group]] | None] = SimpleQueue()
        self.found: list[Rolled] = []
        self.failure: Exception | None = None
        self.thread = Thread(target=self.work, daemon=True)
        self.thread.start()

    def hand_in(self, parts: list[Part], groups: list[Group]) -> None:
        """An order that is done. What went wrong with earlier ones is raised here."""
        if self.failure:
            raise self.failure
        self.handed.put((parts, groups))

    def all(self, tick: Callable[[], None]) -> list[Rolled]:
        """Every verdict, in order of place. `tick` is called while they are waited for."""
        self.close()
        while self.thread.is_alive():
            self.thread.join(POLL)
            tick()
        if self.failure:
            raise self.failure
        return sorted(self.found, key=lambda one: (one.place, one.first))

    def close(self) -> None:
        """Nothing more comes."""
        self.handed.put(None)

    def work(self) -> None:
        try:
            more = True
            while more:
                orders = [self.handed.get()]
                while not self.handed.empty():
                    orders.append(self.handed.get())
                more = None not in orders
                parts = [part for order in orders if order for part in order[0]]
                self.found += self.judge(parts, [group for order in orders if order for group in order[1]])
        except Exception as failure:
            self.failure = failure

    def judge(self, parts: list[Part], groups: list[Group]) -> list[Rolled]:
        decode = functools.cache(lambda response: self.tokenizer.decode(response, skip_special_tokens=True))
        texts = [[decode(tuple(response)) for response in group.responses] for group in groups]  # many are equal
        problems = [self.problems[part.place] for part in parts]
        said = [(p.kind, text, p.reference) for p, own in zip(problems, texts, strict=True) for text in own]
        verdicts = iter(verify_batch(said, **self.judging))
        return [
            Rolled(problem, group, own, [next(verdicts) for _ in own], part.place, part.first)
            for part, problem, group, own in zip(parts, problems, groups, texts, strict=True)
        ]


class Outcomes(NamedTuple):
    """What came of N rollouts of each of P prompts, all of them known to every process."""

    rewards: Tensor  # (P, N) float64
    correct: Tensor  # (P, N) bool
    lengths: Tensor  # (P, N) tokens of the response
    truncated: Tensor  # (P, N) bool, cut at the longest length
    group: Tensor  # (P, N) bool: the rollouts that are the prompt's group; all of them, or the last wave (waves.py)

    @staticmethod
    def of(rolled: list[Rolled], prompts: int, n: int, accelerator: Accelerator) -> Outcomes:
        """From what each process rolled out."""
        table = torch.zeros(4, prompts, n, dtype=torch.float64)
        for one in rolled:
            lengths = [len(response) for response in one.group.responses]
            truncated = [reason == "length" for reason in one.group.finish_reasons]
            rows = torch.tensor([one.rewards, one.correct.tolist(), lengths, truncated], dtype=torch.float64)
            table[:, one.place, one.first : one.first + len(one.texts)] = rows
        rewards, correct, lengths, truncated = summed(table, accelerator)
        return Outcomes(rewards, correct.bool(), lengths.long(), truncated.bool(), torch.ones(prompts, n).bool())

    @staticmethod
    def none(prompts: int = 0, n: int = 1) -> Outcomes:
        """Before anything is drawn."""
        table = torch.zeros(5, prompts, n, dtype=torch.float64).unbind()
        return Outcomes(table[0], table[1].bool(), table[2].long(), table[3].bool(), table[4].bool())

    def followed_by(self, others: Outcomes) -> Outcomes:
        """Those of one round and of the next."""
        return Outcomes(*(torch.cat(tensors) for tensors in zip(self, others, strict=True)))

    def at(self, places: Tensor) -> Outcomes:
        """Of some of the prompts."""
        return Outcomes(*(tensor[places] for tensor in self))

    @property
    def informative(self) -> Tensor:
        """(P,) bool: which prompts dynamic sampling keeps."""
        return L.informative(self.correct, self.group)

    @property
    def rollouts(self) -> int:
        """How many were drawn of all prompts: of each the places up to its group's last."""
        return int((self.group * torch.arange(1, self.group.shape[1] + 1)).amax(-1).sum())


class Kept(NamedTuple):
    """The groups that a step trains on, in the order of the problems."""

    problems: list[Problem]
    prompts: list[list[int]]
    outcomes: Outcomes  # (P, N), the same on every process
    rolled: list[Rolled]  # of this process; their `place` counts kept groups

    def __len__(self) -> int:
        return len(self.problems)


class Drawn:
    """What a step has rolled out so far, round after round, in the cursor's order: places count from the step's first.

    problems, prompts: all of the run. used: how many prompts it took to find those that `first` gave.
    """

    def __init__(self, problems: list[Problem], prompts: list[list[int]]):
        self.all, self.prompts, self.rounds, self.used = problems, prompts, 0, 0
        self.problems: list[int] = []
        self.rolled: list[Rolled] = []  # of this process
        self.outcomes = Outcomes.none()

    def __len__(self) -> int:
        return len(self.problems)

    def add(self, problems: list[int], rolled: list[Rolled], outcomes: Outcomes) -> None:
        """A round of these problems: what this process rolled out, and what came of all of it."""
        self.rolled += [replace(one, place=len(self) + one.place) for one in rolled]
        self.outcomes = outcomes if not self.rounds else self.outcomes.followed_by(outcomes)
        self.problems, self.rounds = self.problems + problems, self.rounds + 1

    @property
    def informative(self) -> int:
        """How many of the prompts are."""
        return int(self.outcomes.informative.sum())

    def first(self, b: int) -> Kept:
        """The first B informative ones, or fewer; sets `used`."""
        places = self.outcomes.informative.nonzero().squeeze(1)[:b]
        self.used = int(places[-1]) + 1 if len(places) == b else len(self)
        at = {place: k for k, place in enumerate(places.tolist())}
        of_groups = [one for one in self.rolled if one.place in at and self.outcomes.group[one.place, one.first]]
        rolled = [replace(one, place=at[one.place]) for one in of_groups]
        which = [self.problems[place] for place in at]
        return Kept([self.all[i] for i in which], [self.prompts[i] for i in which], self.outcomes.at(places), rolled)

    def counts(self) -> Counter:
        """Of all processes: `Rolled.counts`, `solved`, and sums of rewards, in an order that no chance decides."""
        counts = merge(sum((one.counts() for one in self.rolled), Counter()))
        counts += solved(self.outcomes.correct, self.outcomes.group)
        rewards: Counter = Counter({"reward": self.outcomes.rewards.sum().item()})
        for i, of_group in zip(self.problems, self.outcomes.rewards.sum(-1).tolist(), strict=True):
            rewards[f"reward/{self.all[i].kind}"] += of_group
        return Counter(counts | rewards)


# -------------------------------------------------------------------------------------------------------- a round


def roll_out(
    engine: Engine,
    judge: Judge,
    prompts: list[list[int]],
    n: int,
    seeds: list[int],
    accelerator: Accelerator,
    *,
    team: int = 1,
    show: bool = True,
    told: Callable[[], bool] = lambda: False,
    queue: type[Queue] = Queue,
    what: str = "",
    **sampling,
) -> tuple[list[Rolled], Outcomes]:
    """Stages 2 and 3: N rollouts of each prompt, and their verdicts: those of this process, and what came of all.

    seeds: one a prompt. A part that begins with rollout i has the seed + i: as vLLM counts by itself. team:
    neighbouring processes that hold one engine together; each judges its share of what they decode. told: was this
    process told to stop? Then Preempted is raised, on all of them. sampling: keywords of `Engine.stream`. What takes
    over 5 s shows a bar; what: beside its name.
    """
    engines = accelerator.num_processes // team
    orders = orders_of(len(prompts), n, engine.order_rows, engines)
    asked = [Order([prompts[p.place] for p in o], o[0].n, [seeds[p.place] + p.first for p in o]) for o in orders]
    turn = queue(len(orders), accelerator, told)
    rank = accelerator.process_index % team
    share = math.ceil(len(prompts) * n / engines)  # of this engine, if all are as fast
    with tqdm(total=share, desc=f"rollouts{what}", unit="", leave=False, delay=5, disable=not show) as bar:

        def on_progress(ended: float) -> None:
            bar.update(ended)
            turn.tick()

        try:
            for number, groups in engine.stream(asked, turn.take, share, on_progress=on_progress, **sampling):
                if number % team == rank:
                    judge.hand_in(orders[number], groups)
            mine = judge.all(turn.tick)
        except Preempted:
            turn.wait_for_all(stop=True)
            raise
        finally:
            judge.close()
    turn.wait_for_all()
    return mine, Outcomes.of(mine, len(prompts), n, accelerator)
