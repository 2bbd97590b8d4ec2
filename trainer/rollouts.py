"""One round of rollouts: how wide it is, what an engine decodes at once, verdicts beside it, and what a step keeps.

    the cursor   1  2  3  4  5  6  7  8 | 9 10 ...   prompts in the run's order. Place and step fix a seed
    a round      └─────────────────────┘             enough prompts that, nine times in ten, B of them are informative
    ranks        each has a part of every prompt     train.parts_of_rank
    orders       [1  2] [3  4] [5  6] [7  8]         what an engine decodes at once: parts of some prompts, or of one
    informative  +  -   +  +   -  +   -  +           by the verdicts on an order, which come while the next ones decode
    kept         1      3  4      6                  the first B = 4 of these: train.dynamic_sampling
    surplus                          7  8            drawn and counted, but not trained; the next step starts at 7

A rollout follows from its prompt's place and its own number, and what is kept from verdicts and places. The same run
writes the same numbers on any number of processes, up to the order of float sums.

    `round_width`   how many prompts a round has           `orders_of`   how a rank's parts are cut into orders
    `Judge`         verdicts on a thread of their own      `Outcomes`    what every process knows of every rollout
    `roll_out`      all of it for one round
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from queue import SimpleQueue
from statistics import NormalDist
from threading import Thread
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

import loss as L
from rollout import Engine, Group, Order
from trainer.batch import Batch
from trainer.processes import summed
from verify import KINDS, REASONS, Problem, Verdict, verify_batch

BUILT_IN = frozenset(KINDS)  # a kind of a --rewards file is not among them
ORDERS = 2  # of a process in a round, at least: while the second decodes, the first is judged


def round_width(missing: int, pass_rate: float, confidence: float) -> int:
    """The fewest prompts that hold `missing` informative ones with probability `confidence`.

    A prompt is informative with probability p = `pass_rate`.
    How many prompts it takes until k = `missing` of them are informative is negative binomial, with mean k / p and
    variance k (1 - p) / p². This is its normal approximation. One round more takes as long as its longest response; one
    prompt too many costs its tokens.
    """
    z = NormalDist().inv_cdf(confidence)
    return max(missing, math.ceil((missing + z * math.sqrt(missing * (1 - pass_rate))) / pass_rate))


# -------------------------------------------------------------------------------------------------------- the orders


class Part(NamedTuple):
    """Rollouts `first` to `first + n` of the prompt at `place` of a round."""

    place: int
    first: int
    n: int


def orders_of(parts: list[Part], rows: int) -> list[list[Part]]:
    """A rank's parts in orders of at most `rows` rollouts: equal parts of several prompts, or a piece of one part."""
    equal: defaultdict[tuple[int, int], list[Part]] = defaultdict(list)
    for place, first, n in parts:
        for piece in torch.arange(first, first + n).tensor_split(math.ceil(n / rows)):
            equal[int(piece[0]), len(piece)].append(Part(place, int(piece[0]), len(piece)))
    wanted, orders = min(rows, sum(n for *_, n in parts) // ORDERS), []
    for (_, n), alike in equal.items():
        together = max(1, wanted // n)  # prompts of an order
        for some in torch.arange(len(alike)).tensor_split(math.ceil(len(alike) / together)):
            orders.append([alike[i] for i in some])
    return sorted(orders)  # pieces of one prompt are neighbours: vLLM has it in its cache


# -------------------------------------------------------------------------------------------------------- the verdicts


@dataclass
class Rolled:
    """A problem, some of its N rollouts, their texts, and their verdicts."""

    problem: Problem
    group: Group
    texts: list[str]
    verdicts: list[Verdict]
    place: int = 0  # of the problem: in the round, then in the step, then among the kept groups
    first: int = 0  # the number of the first of these rollouts

    def add(self, more: Rolled) -> None:
        """The rollouts of the same problem that follow these."""
        self.group.add(more.group.responses, more.group.logprobs, more.group.finish_reasons)
        self.texts += more.texts
        self.verdicts += more.verdicts

    @property
    def correct(self) -> Tensor:
        """(n,) bool."""
        return torch.tensor([v.reason == "correct" for v in self.verdicts])


class Judge:
    """Stage 3 beside stage 2: responses as text, and their verdicts. A thread judges all orders that are pending.

    The thread is a daemon: a process that ends does not wait for the verdicts of slow programs.
    """

    def __init__(self, tokenizer, problems: list[Problem], judging: dict[str, Any]):
        self.tokenizer, self.problems, self.judging = tokenizer, problems, judging
        self.pending: SimpleQueue[tuple[list[Part], list[Group]] | None] = SimpleQueue()
        self.judged: list[Rolled] = []
        self.failure: Exception | None = None
        self.thread = Thread(target=self.work, daemon=True)
        self.thread.start()

    def put(self, parts: list[Part], groups: list[Group]) -> None:
        """An order that has ended. A failure of an earlier one is raised here."""
        if self.failure:
            raise self.failure
        self.pending.put((parts, groups))

    def all(self) -> list[Rolled]:
        """Every verdict: a `Rolled` for each place, in their order."""
        self.close()
        self.thread.join()
        if self.failure:
            raise self.failure
        by_place: dict[int, Rolled] = {}
        for rolled in sorted(self.judged, key=lambda rolled: (rolled.place, rolled.first)):
            if rolled.place in by_place:
                by_place[rolled.place].add(rolled)
            else:
                by_place[rolled.place] = rolled
        return list(by_place.values())

    def close(self) -> None:
        """No order follows."""
        self.pending.put(None)

    def work(self) -> None:
        try:
            more = True
            while more:
                orders = [self.pending.get()]
                while not self.pending.empty():
                    orders.append(self.pending.get())
                more = None not in orders
                parts = [part for order in orders if order for part in order[0]]
                self.judged += self.judge(parts, [group for order in orders if order for group in order[1]])
        except Exception as failure:
            self.failure = failure

    def judge(self, parts: list[Part], groups: list[Group]) -> list[Rolled]:
        decode = functools.cache(self.decode)  # many are equal
        texts = [[decode(tuple(response)) for response in group.responses] for group in groups]
        problems = [self.problems[part.place] for part in parts]
        items = [
            (problem.kind, self.opening(problem, group.prompt) + text, problem.reference)
            for problem, group, of_group in zip(problems, groups, texts, strict=True)
            for text in of_group
        ]
        verdicts = iter(verify_batch(items, **self.judging))
        return [
            Rolled(problem, group, of_group, [next(verdicts) for _ in of_group], part.place, part.first)
            for part, problem, group, of_group in zip(parts, problems, groups, texts, strict=True)
        ]

    def decode(self, response: tuple[int, ...]) -> str:
        """A response as text, without special tokens but <think> and </think>, which say where the answer begins."""
        special = {i: token.content for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        if not {"<think>", "</think>"} & {*special.values()}:
            return self.tokenizer.decode(response, skip_special_tokens=True)
        return self.tokenizer.decode([i for i in response if special.get(i, "<think>") in ("<think>", "</think>")])

    def opening(self, problem: Problem, prompt: list[int]) -> str:
        """The "<think>" that a chat template opens for the response. A --rewards file gets the response alone."""
        opens = problem.kind in BUILT_IN and self.tokenizer.decode(prompt).rstrip().endswith("<think>")
        return "<think>" if opens else ""


class Outcomes(NamedTuple):
    """What came of N rollouts of each of P prompts. Every process knows all of it."""

    rewards: Tensor  # (P, N) float64
    reasons: Tensor  # (P, N) places in REASONS
    lengths: Tensor  # (P, N) tokens of the response
    truncated: Tensor  # (P, N) bool, cut at the longest length

    @staticmethod
    def of(rolled: list[Rolled], prompts: int, n: int, accelerator: Accelerator) -> Outcomes:
        """Of all processes, from the rollouts of each."""
        table = torch.zeros(4, prompts, n, dtype=torch.float64)
        for part in rolled:
            rewards, reasons = zip(*part.verdicts, strict=True)
            lengths = [len(response) for response in part.group.responses]
            truncated = [reason == "length" for reason in part.group.finish_reasons]
            rows = torch.tensor([rewards, [REASONS.index(x) for x in reasons], lengths, truncated], dtype=torch.float64)
            table[:, part.place, part.first : part.first + len(lengths)] = rows
        rewards, reasons, lengths, truncated = summed(table, accelerator)
        return Outcomes(rewards, reasons.long(), lengths.long(), truncated.bool())

    @staticmethod
    def joined(rounds: list[Outcomes]) -> Outcomes:
        """Those of several rounds, one after the other."""
        return Outcomes(*(torch.cat(tensors) for tensors in zip(*rounds, strict=True)))

    def at(self, places: Tensor) -> Outcomes:
        """Of some of the prompts."""
        return Outcomes(*(tensor[places] for tensor in self))

    @property
    def correct(self) -> Tensor:
        """(P, N) bool."""
        return self.reasons == REASONS.index("correct")

    @property
    def informative(self) -> Tensor:
        """(P,) bool: which prompts dynamic sampling keeps."""
        return L.informative(self.correct)


@dataclass
class TrainingGroups:
    """The groups that a step trains on, in the order of the problems."""

    prompts: list[list[int]]
    outcomes: Outcomes  # (P, N), the same on every process
    rolled: list[Rolled]  # of this process; their `place` counts kept groups

    def __len__(self) -> int:
        return len(self.prompts)

    def batch(self, advantages: Tensor, mini_batch: Tensor, device) -> Batch:
        """This process's rollouts. advantages, mini_batch: of all, (P, N)."""
        numbers = [(part.place, part.first + i) for part in self.rolled for i in range(len(part.texts))]
        place, number = torch.tensor(numbers, dtype=torch.long).view(-1, 2).T
        groups = [part.group for part in self.rolled]
        return Batch.of(groups, advantages[place, number], device, mini_batch[place, number])


class StepRollouts:
    """What a step has rolled out so far, round after round, in the cursor's order: places count from the step's first.

    problems, prompts: all of the run.
    """

    def __init__(self, problems: list[Problem], prompts: list[list[int]]):
        self.all, self.prompts = problems, prompts
        self.problems: list[int] = []
        self.rolled: list[Rolled] = []  # of this process
        self.rounds: list[Outcomes] = []

    def __len__(self) -> int:
        return len(self.problems)

    def add(self, problems: list[int], rolled: list[Rolled], outcomes: Outcomes) -> None:
        """A round of these problems: the rollouts of this process, and what came of all."""
        self.rolled += [replace(part, place=len(self) + part.place) for part in rolled]
        self.problems, self.rounds = self.problems + problems, [*self.rounds, outcomes]

    @property
    def outcomes(self) -> Outcomes:
        return Outcomes.joined(self.rounds)

    @property
    def informative(self) -> int:
        """How many of the prompts are informative."""
        return sum(int(outcomes.informative.sum()) for outcomes in self.rounds)

    @property
    def kinds(self) -> list[str]:
        """The kind of each problem."""
        return [self.all[i].kind for i in self.problems]

    def take(self, places: Tensor) -> TrainingGroups:
        """The groups at these places, to train on."""
        at = {place: k for k, place in enumerate(places.tolist())}
        rolled = [replace(part, place=at[part.place]) for part in self.rolled if part.place in at]
        prompts = [self.prompts[self.problems[place]] for place in at]
        return TrainingGroups(prompts, self.outcomes.at(places), rolled)


# -------------------------------------------------------------------------------------------------------- a round


def roll_out(
    engine: Engine,
    judge: Judge,
    prompts: list[list[int]],
    n: int,
    seeds: list[int],
    parts: list[Part],
    accelerator: Accelerator,
    *,
    show: bool = True,
    **sampling,
) -> tuple[list[Rolled], Outcomes]:
    """Stages 2 and 3: N rollouts of each prompt, and their verdicts: those of this process, and what came of all.

    seeds: one a prompt. parts: the rollouts of this process. sampling: keywords of `Engine.stream`. A bar shows what
    takes over 5 s.
    """
    orders = orders_of(parts, engine.order_rows)
    to_engine = [
        Order([prompts[p.place] for p in o], o[0].n, [seeds[p.place] for p in o], o[0].first, n) for o in orders
    ]
    rollouts = sum(part.n for part in parts)
    with tqdm(total=rollouts, desc="rollouts", unit="", leave=False, delay=5, disable=not show) as bar:
        try:
            for number, groups in engine.stream(to_engine, on_progress=bar.update, **sampling):
                judge.put(orders[number], groups)
            mine = judge.all()
        finally:
            judge.close()
    return mine, Outcomes.of(mine, len(prompts), n, accelerator)
