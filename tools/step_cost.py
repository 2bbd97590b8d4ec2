"""How long does a step with N rollouts per prompt take? Counted work times measured rates.

    seconds of a step = Σ rate x work, over the rows of this table, + U x seconds of an optimizer step + fixed seconds

    stage        work              how it is counted
    roll_out     prompt_tokens     torch: each prompt once in an engine call, padded to the longest one in it
                                   vLLM: each prompt once, and its last block once per rollout
                 decoder_steps     torch: the longest response of an engine call, less 1
                                   vLLM: at least the longest response, and all tokens / --max_num_seqs
                 rows              over all decoder steps. torch: distinct prefixes; vLLM: one per token
                 tokens            drawn tokens of all responses
    judge        calls             of verify_batch
                 answers           distinct responses: verify_batch judges equal answers once
                 rollouts          all responses
    score,       micro_batches     forward passes
    update       prompt_tokens     G L, or S L where every response computes its prompt
                 response_tokens   S R
                 keys              S L if prompts are shared: each response gets a copy of its prompt's keys and values

G distinct prompts of L tokens and S distinct responses of R tokens, both with padding, are in a micro-batch. `score`
counts twice with a reference. Fixed seconds: the engine wakes, sleeps and gets the weights; with --offload the
reference visits the device.

Roll out and judge are added, though train.py judges some groups while others decode. DDP's sum of the gradients is
timed without the backward pass that it overlaps with. Both make the prediction too high rather than too low.

The work of a step with any N is counted on a sample of groups with at most 64 rollouts each: the rollouts of an
imagined step are dealt to mini-batches and cut into micro-batches by the functions that train (`train.deal`,
`trainer.micro_batches.cut`). So no step with a large N is ever timed. A rate is fitted to the seconds of a few calls
whose work is known: least squares of the relative errors, without negative rates.

In an imagined step with more rollouts than the sample has, a rollout is drawn from the sample again. If its response
occurs once in the sample, it can become a new one. The new one has the same length, and shares as many first tokens
with the other responses. The share of responses that occur once estimates the probability that the next rollout is new
(Good-Turing). This probability falls with the number of rollouts, as it fell within the sample.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from scipy.optimize import nnls
from tqdm import tqdm

import brorl
import loss as L
import train
from rollout import Engine, Request, Sampling, TorchEngine
from train import MAX_GRAD_NORM
from trainer.adapters import trained
from trainer.metrics import Sums
from trainer.micro_batches import MicroBatch, cut, score
from trainer.offload import on_device
from trainer.outcomes import Outcomes, Rollout
from trainer.rollouts import requests_of_rank, rollouts_of
from trainer.settings import Config
from trainer.start import Setup
from trainer.text import encode
from verify import Problem

WORK = {
    "roll_out": ("prompt_tokens", "decoder_steps", "rows", "tokens"),
    "judge": ("calls", "answers", "rollouts"),
    "score": ("micro_batches", "prompt_tokens", "response_tokens", "keys"),
    "update": ("micro_batches", "prompt_tokens", "response_tokens", "keys"),
}
STAGES = tuple(WORK)
CALLS = ((1, 4), (1, 16), (4, 4), (8, 16), (1, 64), (8, 64))  # (prompts, rollouts of each) of the timed engine calls
SHAPES = (  # of the timed micro-batches
    (1, 1), (1, 4), (4, 1), (1, 16), (4, 4), (8, 1), (1, 64), (8, 4), (8, 16), (8, 64),
)  # fmt: skip
REPEATS, REPEAT_S = 3, 1.0  # the mean of 3 timings counts; one that takes longer than a second is not repeated
IMAGINED = 2**16  # most rollouts of an imagined step; the work of a larger one is scaled


# ------------------------------------------------------------------------------------------------- an imagined step


class Responses:
    """The sampled responses to one prompt, as a tree: which of them are equal, and how many tokens they share.

    prompt     tokens of the prompt
    lengths    of the distinct responses, in ascending order of their tokens
    counts     how often each of them was sampled
    shared     (one more) how many tokens each shares with the one before; 0 at both ends
    """

    def __init__(self, prompt: int, responses: Iterable[Sequence[int]]):
        self.prompt = prompt
        distinct, self.counts = zip(*sorted(Counter(map(tuple, responses)).items()), strict=True)
        self.lengths = [len(x) for x in distinct]
        between = itertools.starmap(common, itertools.pairwise(distinct))
        self.shared = [0, *between, 0]
        self.decline = self.decline_of_new_ones()

    def decline_of_new_ones(self) -> float:
        """a >= 0: after m rollouts, the probability that the next one is new falls as m^-a. 0 if all are new.

        D(m) is the mean number of distinct responses among m rollouts of the sample: D(m) - D(m/2) ∝ m^(1-a).
        """
        n = sum(self.counts)
        if n < 4:
            return 0.0
        quarter, half, whole = (sum(brorl.pass_at_k_estimate(n, c, n // x) for c in self.counts) for x in (4, 2, 1))
        return max(0.0, 1 - math.log2(max(whole - half, 1e-3) / (half - quarter))) if half > quarter else math.inf

    def draw(self, n: int, rng: random.Random) -> list[tuple[int, int]]:
        """Imagine n rollouts: pairs (index of a distinct response, 0; or a number of its own for a new one)."""
        sampled = [i for i, count in enumerate(self.counts) for _ in range(count)]
        if n <= len(sampled):
            return [(i, 0) for i in rng.sample(sampled, n)]
        more = []
        for m in range(len(sampled) + 1, n + 1):
            i, new = rng.choice(sampled), rng.random() < (len(sampled) / m) ** self.decline
            more.append((i, m if new and self.counts[i] == 1 else 0))
        return [(i, 0) for i in sampled] + more

    def rows(self, drawn: Iterable[tuple[int, int]]) -> int:
        """Rows of all decoder steps that these rollouts take: their distinct prefixes, without complete responses."""
        rows, last = 0, -1
        for i, _ in sorted(set(drawn)):
            # A new response leaves the sampled ones where the response does from which it was drawn
            before = max(self.shared[i : i + 2]) if i == last else min(self.shared[last + 1 : i + 1])
            rows, last = rows + max(0, self.lengths[i] - 1 - before), i
        return rows


def as_responses(prompts: list[list[int]], tokens: dict[int, list[list[int]]]) -> dict[int, Responses]:
    """The responses to each prompt. tokens: by prompt, of its responses."""
    return {p: Responses(len(prompts[p]), some) for p, some in tokens.items()}


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens two responses share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Imagined(NamedTuple):
    """A rollout of an imagined step: `cut` reads the numbers and lengths only."""

    prompt_index: int
    number: int
    prompt: range
    response: range
    text: tuple[int, int]  # equal responses of a prompt have equal ones


Step = list[tuple[Responses, list[tuple[int, int]]]]  # by prompt: its sample, and the rollouts that were drawn from it


def imagine(sample: Sequence[Responses], prompts: int, n: int) -> Step:
    """A step of this many prompts with n rollouts each. A sample with fewer prompts is used several times."""
    rng = random.Random(0)
    chosen = (sample[i % len(sample)] for i in range(prompts))
    return [(responses, responses.draw(n, rng)) for responses in chosen]


def work_of_engine(engine: Engine, sampling: Sampling, step: Step) -> list[float]:
    """The work of `roll_out` on a step, in the order of WORK."""
    lengths = [[responses.lengths[i] for i, _ in drawn] for responses, drawn in step]
    tokens = sum(map(sum, lengths))
    if not isinstance(engine, TorchEngine):
        config = engine.llm.llm_engine.vllm_config  # type: ignore[attr-defined]
        block, at_a_time = config.cache_config.block_size, config.scheduler_config.max_num_seqs
        last = [(responses.prompt - 1) % block + 1 for responses, _ in step]
        prompt_tokens = sum(r.prompt + (len(d) - 1) * x for (r, d), x in zip(step, last, strict=True))
        return [prompt_tokens, max(max(map(max, lengths)), tokens / at_a_time), tokens, tokens]
    in_order = sorted(step, key=lambda group: group[0].prompt)
    requests = [Request([0] * responses.prompt, len(drawn), 0) for responses, drawn in in_order]
    numbered = [(group, x) for group, (_, drawn) in enumerate(in_order) for x in drawn]
    size = engine.chunk_size(requests, sampling)
    total = np.zeros(4)
    for start in range(0, len(numbered), size):
        chunk: dict[int, list[tuple[int, int]]] = {}
        for group, x in numbered[start : start + size]:
            chunk.setdefault(group, []).append(x)
        parts = [(in_order[group][0], drawn) for group, drawn in chunk.items()]
        longest = max(responses.lengths[i] for responses, drawn in parts for i, _ in drawn)
        rows = sum(responses.rows(drawn) for responses, drawn in parts)
        total += len(parts) * max(responses.prompt for responses, _ in parts), longest - 1, rows, 0
    return [*total[:3].tolist(), tokens]


def work_of_judge(step: Step) -> list[float]:
    """The work of `judge` on a step, in the order of WORK."""
    return [1, sum(len(set(drawn)) for _, drawn in step), sum(len(drawn) for _, drawn in step)]


def work_of_trainer(step: Step, config: Config, share_prompts: bool) -> list[float]:
    """The work of `score` and of `update` on a step whose prompts are all kept, in the order of WORK."""
    rollouts = [
        Imagined(p, k, range(responses.prompt), range(responses.lengths[x[0]]), x)
        for p, (responses, drawn) in enumerate(step)
        for k, x in enumerate(drawn)
    ]
    in_mini_batch = train.deal(torch.ones(len(rollouts), dtype=torch.bool), config.updates_per_step, seed=0).tolist()
    mini_batches: list[list[Imagined]] = [[] for _ in range(config.updates_per_step)]
    for r, u in zip(rollouts, in_mini_batch, strict=True):
        mini_batches[u].append(r)
    budget = config.max_tokens_per_micro_batch
    micro_batches = [x for mini_batch in mini_batches for x in cut(mini_batch, budget, share_prompts) if x]
    return np.sum([work_of_micro_batch(x, share_prompts) for x in micro_batches], axis=0).tolist()


def work_of_micro_batch(rollouts: Sequence[Imagined], share_prompts: bool) -> list[float]:
    """The work of one forward pass, in the order of WORK."""
    prompts = {r.prompt_index: len(r.prompt) for r in rollouts}
    responses = {(r.prompt_index, r.text): len(r.response) for r in rollouts}
    return work_of_shape(len(prompts), max(prompts.values()), len(responses), max(responses.values()), share_prompts)


def work_of_shape(g: int, length: int, s: int, r: int, share_prompts: bool) -> list[float]:
    """The work of one forward pass over G prompts of L tokens and S responses of R tokens, in the order of WORK."""
    return [1, g * length, s * r, s * length] if share_prompts else [1, s * length, s * r, 0]


# ------------------------------------------------------------------------------------------------------------ rates


class Rates(NamedTuple):
    """Seconds of one unit of work, for each stage of WORK, and seconds that are the same for every N."""

    of: dict[str, list[float]]
    optimizer_step: float
    fixed: float  # of a step: the engine wakes, sleeps and gets the weights; a reference in host memory visits


def fit(calls: Sequence[tuple[list[float], float]]) -> list[float]:
    """The rates that explain the seconds of some calls best: least squares of the relative errors, none negative.

    calls: (work, seconds) of each. One call cannot tell the kinds of work apart: all its seconds go to the last kind,
    which grows with N.
    """
    work, seconds = (np.array(x, dtype=float) for x in zip(*calls, strict=True))
    if len(calls) == 1:
        last = int(work[0].nonzero()[0][-1])
        return [float(seconds[0] / work[0, i]) if i == last else 0.0 for i in range(work.shape[1])]
    scale = np.maximum(work.max(0), 1e-300)  # of each kind of work, for a well-conditioned system
    rates, _ = nnls(work / scale / seconds[:, None], np.ones(len(seconds)))
    return (rates / scale).tolist()


def empty_calls() -> dict[str, list[tuple[list[float], float]]]:
    """(work, seconds) of the timed calls, for each stage."""
    return {stage: [] for stage in STAGES}


class Stopwatch:
    """Times calls of the engine, the judge and the trainer whose work is known."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: Setup):
        self.config, self.accelerator, self.setup = config, accelerator, setup
        self.calls = empty_calls()
        self.fixed = math.inf
        self.responses: list[Responses] = []  # by prompt, of the last call of `roll_out`, on all processes

    def now(self) -> float:
        """The time, after the device has done its work."""
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def slowest(self, seconds: float) -> float:
        """The largest value of all processes."""
        return max(gather_object([seconds]))

    def roll_out(self, problems: list[Problem], seeds: list[int], n: int) -> tuple[list[Rollout], Outcomes]:
        """Stages 2 and 3 of train.py, one after the other, and timed. Returns what trainer.rollouts.roll_out does."""
        setup, accelerator = self.setup, self.accelerator
        began = self.now()
        setup.engine.sync(setup.policy.model)
        setup.engine.wake()
        awake = self.now()
        prompts = [encode(setup.data.tokenizer, problem) for problem in problems]
        requests = requests_of_rank(prompts, n, seeds, accelerator.process_index, accelerator.num_processes)
        rollouts: list[Rollout] = []
        for i, group in setup.engine.generate([request for _, request in requests], setup.sampling):
            p, request = requests[i]
            rollouts += rollouts_of(group, problems[p], p, request.first)
        drawn = self.now()
        setup.engine.sleep()
        asleep = self.now()
        setup.judge.judge(rollouts)
        rollouts.sort(key=lambda r: (r.prompt_index, r.number))
        outcomes = Outcomes.of(rollouts, 0, problems, n, accelerator, setup.judge.mask_truncated)
        judged = time.perf_counter()
        self.fixed = min(self.fixed, awake - began + asleep - drawn)
        own = {p: [*some] for p, some in itertools.groupby(rollouts, key=lambda r: r.prompt_index)}
        tokens = {p: [r.response.tolist() for r in some] for p, some in own.items()}
        if own:  # with fewer rollouts than processes some process may have none
            step = [(x, x.draw(len(tokens[p]), random.Random(0))) for p, x in as_responses(prompts, tokens).items()]
            self.calls["roll_out"].append((work_of_engine(setup.engine, setup.sampling, step), drawn - awake))
            self.calls["judge"].append((work_of_judge(step), judged - asleep))
        everywhere: dict[int, list[list[int]]] = {p: [] for p in range(len(problems))}
        for of_rank in gather_object([tokens]):
            for p, some in of_rank.items():
                everywhere[p] += some
        self.responses = [*as_responses(prompts, everywhere).values()]
        return rollouts, outcomes

    def measure(self, problems: list[Problem], seeds: list[int], left: Callable[[], float]) -> None:
        """Time CALLS and then SHAPES, as long as each is expected to take at most half of the time that is left.

        left: seconds, equal on all processes. A rollout is expected to take as long as in the call before.
        """
        calls, shapes = ([(p, n) for p, n in table if p <= len(problems)] for table in (CALLS, SHAPES))
        with tqdm(total=len(calls) + len(shapes), desc="timing", unit="call", leave=False, disable=None) as bar:
            done = [(1, 4)]
            began = left()
            rollouts, _ = self.roll_out(problems[:1], seeds[:1], 4)  # slow: everything happens for the first time
            groups, each = {0: rollouts}, (began - left()) / 4  # by prompt: the rollouts of the last call with it
            warm_up, self.calls = self.calls, empty_calls()
            for p, n in calls:
                began = left()
                if p * n * each > began / 2:
                    break
                rollouts, _ = self.roll_out(problems[:p], seeds[:p], n)
                groups |= {i: [r for r in rollouts if r.prompt_index == i] for i in range(p)}
                done.append((p, n))
                each = (began - left()) / (p * n)
                bar.update()
            if not self.calls["roll_out"]:
                self.calls = warm_up
            self.micro_batch(groups[0][:1])  # for the first time
            self.calls |= {"score": [], "update": []}
            each = 0.0
            for p, n in shapes:
                began, rollouts = left(), [r for i in range(p) for r in groups.get(i, [])[:n]]
                drawn = any(prompts >= p and size >= n for prompts, size in done)
                if not self.calls["score"] or (drawn and self.fits(rollouts) and p * n * each < began / 2):
                    self.micro_batch(rollouts)
                    each = (began - left()) / (p * n)
                bar.update()

    def fits(self, rollouts: list[Rollout]) -> bool:
        """Whether the rollouts are one micro-batch on every process."""
        some = cut(rollouts, self.config.max_tokens_per_micro_batch, self.setup.policy.share_prompts)
        return self.slowest(len(some)) == 1

    def micro_batch(self, rollouts: list[Rollout]) -> None:
        """Time stages 6 and 7 on a micro-batch of these rollouts; no weight changes."""
        setup, config, accelerator = self.setup, self.config, self.accelerator
        spent: list[tuple[float, float]] = []
        while len(spent) < REPEATS and sum(map(sum, spent)) < REPEAT_S:
            began = self.now()
            micro_batch = MicroBatch.of(rollouts, accelerator.device)
            score(setup.policy, [micro_batch], "old_logp", config.temperature, accelerator)
            scored = self.now()
            micro_batch.ref_logp = micro_batch.old_logp if config.kl_coef else None
            loss = partial(
                L.policy_loss, tokens=int(micro_batch.lengths.sum()), responses=len(rollouts),
                objective=setup.objective, kl_coef=config.kl_coef,
            )  # fmt: skip
            setup.policy.train(config.gradient_checkpointing)
            train.loss_of(setup.policy, micro_batch, loss, config, accelerator, Sums(accelerator)).backward()
            spent.append((scored - began, self.now() - scored))
            setup.policy.zero_grad()
        prompts, _, _, responses, _ = micro_batch.inputs
        (g, length), (s, r) = prompts.shape, responses.shape
        work = work_of_shape(g, length, s, r, setup.policy.share_prompts)
        for stage, seconds in zip(("score", "update"), np.mean(spent, axis=0), strict=True):
            self.calls[stage].append((work, float(seconds)))

    def optimizer_step(self) -> float:
        """Time one optimizer step without its gradient: clipping and AdamW, at a learning rate of 0."""
        parameters, optimizer = [*trained(self.setup.policy)], self.setup.optimizer
        for group in optimizer.param_groups:  # type: ignore[union-attr]
            group["lr"] = 0.0
        spent = []
        for _ in range(REPEATS):
            for p in parameters:
                p.grad = torch.zeros_like(p)
            began = self.now()
            for p in parameters if self.accelerator.num_processes > 1 else ():  # DDP adds up the gradients
                torch.distributed.all_reduce(p.grad)
            torch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
            optimizer.step()  # type: ignore[union-attr]
            optimizer.zero_grad()  # type: ignore[union-attr]
            spent.append(self.now() - began)
        return self.slowest(sum(spent) / REPEATS)

    def visit(self) -> float:
        """Time how the reference comes to the device and leaves it; nothing happens without --offload."""
        began = self.now()
        with on_device(self.setup.reference, self.accelerator.device):
            return self.now() - began

    def rates(self) -> Rates:
        """The rates that explain the calls of all processes."""
        calls: dict[str, list[tuple[list[float], float]]] = empty_calls()
        for of_rank in gather_object([self.calls]):
            for stage, some in of_rank.items():
                calls[stage] += some
        fitted = {stage: fit(some) for stage, some in calls.items()}
        return Rates(fitted, self.optimizer_step(), self.slowest(self.fixed + self.visit()))


class Cost:
    """The seconds of a step with any N, from rates and from a sample of groups with at most 64 rollouts each.

    sample, kept: the responses to all sampled prompts, and to the informative ones.
    """

    def __init__(
        self, rates: Rates, sample: Sequence[Responses], kept: Sequence[Responses], config: Config,
        accelerator: Accelerator, setup: Setup,
    ):  # fmt: skip
        self.rates, self.sample, self.kept = rates, sample, kept or sample
        self.config, self.accelerator, self.setup = config, accelerator, setup

    def seconds(self, n: int, drawn: float, kept: float, rounds: float = 1) -> dict[str, float]:
        """By stage, of a step that draws `drawn` prompts and trains on `kept` of them, on each process.

        rounds: engine calls of the step. Each of them has all decoder steps.
        """
        config, setup, passes = self.config, self.setup, 1 + (self.setup.reference is not None)
        world = self.accelerator.num_processes
        # A process has N / W rollouts of each prompt; with N < W one rollout of N / W of the prompts.
        n, share = math.ceil(n / world), min(1.0, n / world)

        def step(sample: Sequence[Responses], count: float) -> tuple[Step, float]:
            prompts = min(math.ceil(count), max(1, IMAGINED // n))
            return imagine(sample, prompts, n), share * count / prompts

        everything, scale = step(self.sample, drawn)
        engine = np.array([scale, rounds * max(1, scale), scale, scale])
        engine *= work_of_engine(setup.engine, setup.sampling, everything)
        judge = np.array([rounds, scale, scale]) * work_of_judge(everything)
        training = np.zeros(len(WORK["update"]))
        if kept > 0:
            step_of_training, scale = step(self.kept, kept)
            training += scale * np.array(work_of_trainer(step_of_training, config, setup.policy.share_prompts))
        work = {"roll_out": engine, "judge": judge, "score": passes * training, "update": training}
        found = {stage: float(work[stage] @ self.rates.of[stage]) for stage in STAGES}
        found["roll_out"] += self.rates.fixed
        found["update"] += config.updates_per_step * self.rates.optimizer_step * (kept > 0)
        return found
