"""`train.py --preflight`: what a model makes of its problems, and which N it deserves, before GPU hours are spent.

Nothing is trained. M prompts get n rollouts each, by the functions that training uses. The output has five parts:

    Problems     how often they are solved, and the share of prompts that dynamic sampling keeps at each N
    Responses    lengths, verdicts, four responses to read
    Time         seconds of a prompt with N rollouts, by stage, measured at several N
    Noise        V_w / V_b with its interval (trainer/noise.py has the law and the estimator), and a table over N
    Advice       the N whose step has the least noise in the same time, and the flags to type

    name here    symbol       meaning
    kept         K_N          P(0 < #correct < N), mean over prompts. For N <= n it is unbiased from the counts c_x of
                              right rollouts, 1 - C(c_x, N) / C(n, N) - C(n - c_x, N) / C(n, N). For N > n it follows
                              from a fit, p ~ Beta(a, b) and shares of prompts with p = 0 and p = 1
    ratio        V_w / V_b    its interval is that of V_b / V_w, 2 standard errors by the jackknife, inverted
    seconds      t(N)         of one prompt that is drawn: roll_out(N) + K_N (score(N) + update(N))
    noise                     of steps of equal samples, (V_b + V_w / (N - 1)) N, or of equal time, with t(N) in place
                              of that N

Simplified: t(N) is linear between the measured N. The update is timed on one mini-batch, with learning rate 0. All of
it is about the first step: V_w / V_b falls while a policy learns.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object
from torch import Tensor

import brorl
import loss as L
from trainer.checks import recipe_of
from trainer.metrics import reasons, solved
from trainer.noise import Noise, best_n, estimate, noise_at_equal_cost, plain, standard_errors
from trainer.processes import from_main, seed_of, summed
from trainer.progress import Progress, Stages, peak_gib
from trainer.report import short, wrapped
from trainer.rollouts import Judge, StepRollouts, roll_out, round_width
from trainer.run import rows_of, write
from trainer.settings import Config
from trainer.start import Setup

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # N of the table
TIMED = (4, 16)  # N whose time is measured, beside the sample's and the N that is asked for
TIMED_ROLLOUTS = {"cpu": 512, "cuda": 4096}  # of such a measurement, at most, for each process
SWEEPS, QUICK = 6, 5.0  # times are measured so often at most, until it takes more than these seconds
ROUND = 16  # prompts of the sample's first round, for each process
ALIKE = 1.02  # noise over the least that is about the least
ENDLESS = 1e12  # V_w / V_b where V_b is 0
FEW = 8  # V_b is not estimated from fewer prompts with right and wrong responses
STAGES = ("roll_out", "score", "update")

# ------------------------------------------------------------------------------------------------ prompts that are kept


class Kept:
    """K_N from the numbers of right rollouts, of n. `shares`: of prompts with p ~ Beta(a, b), p = 0, p = 1."""

    def __init__(self, correct: list[int], n: int):
        from scipy.optimize import minimize
        from scipy.stats import betabinom

        self.correct, self.n = correct, n
        count, times = np.unique(correct, return_counts=True)

        def minus_log_likelihood(x: np.ndarray) -> float:
            shares = np.exp([0.0, *x[2:]]) / np.exp([0.0, *x[2:]]).sum()
            chance = shares @ [betabinom.pmf(count, n, *np.exp(x[:2])), count == 0, count == n]
            return float(-(times * np.log(chance + 1e-300)).sum())

        x = minimize(minus_log_likelihood, [0.0, 0.0, -2.0, -2.0], method="Nelder-Mead", bounds=[(-7, 7)] * 4).x
        self.a, self.b = map(float, np.exp(x[:2]))
        self.shares = (np.exp([0.0, *x[2:]]) / np.exp([0.0, *x[2:]]).sum()).tolist()

    def __call__(self, size: int) -> float:
        return self.counted(size) if size <= self.n else self.fitted(size)

    def counted(self, size: int) -> float:
        n, estimate = self.n, brorl.pass_at_k_estimate
        return statistics.fmean(estimate(n, c, size) + estimate(n, n - c, size) - 1 for c in self.correct)

    def fitted(self, size: int) -> float:
        """1 - E p^N - E (1 - p)^N, of the prompts whose p is neither 0 nor 1."""
        from scipy.special import betaln

        all_right, all_wrong = (betaln(self.a + k, self.b + size - k) - betaln(self.a, self.b) for k in (size, 0))
        return self.shares[0] * float(1 - np.exp(all_right) - np.exp(all_wrong))


# -------------------------------------------------------------------------------------------------- noise, at what cost


class Ratio(NamedTuple):
    """V_w / V_b and its interval. `high` is infinite where V_b may be 0, `value` where its estimate is not positive."""

    value: float
    low: float
    high: float

    @property
    def used(self) -> float:
        """What the table takes."""
        return self.value if math.isfinite(self.value) else self.low


def ratio_of(gram: Tensor, prompts: int, n: int) -> Ratio | None:
    """Arguments as of `noise.estimate`. None where V_w is not seen."""
    found, errors = estimate(gram, prompts, n), standard_errors(gram, prompts, n)
    if found.within <= 0:
        return None
    inverse = found.between / found.within
    half = 2 * math.hypot(errors.between, inverse * errors.within) / found.within
    return Ratio(*(1 / x if x > 0 else math.inf for x in (inverse, max(inverse, 0) + half, inverse - half)))


class Cost:
    """What is drawn, kept and paid at each N. measured: N -> seconds of one prompt with N rollouts, by stage."""

    def __init__(self, measured: dict[int, dict[str, float]], kept: Kept):
        self.measured, self.kept = measured, kept

    def stages(self, n: int) -> dict[str, float]:
        """Of one prompt with n rollouts: linear between the measured N, and beyond the largest."""
        *_, before, last = sizes = sorted(self.measured)
        found = {}
        for stage in STAGES:
            y = [self.measured[size][stage] for size in sizes]
            found[stage] = float(np.interp(n, sizes, y)) + max(0, n - last) * max(0, y[-1] - y[-2]) / (last - before)
        return found

    def seconds(self, n: int) -> float:
        """t(N)"""
        roll_out, *of_kept = self.stages(n).values()
        return roll_out + self.kept(n) * sum(of_kept)

    def of_a_prompt(self) -> float:
        """c_p / c_r: where the line through the smallest and the largest measured N meets N = 0."""
        low, high = min(self.measured), max(self.measured)
        first, last = (sum(self.measured[n].values()) for n in (low, high))
        return max(0.0, first * (high - low) / max(last - first, 1e-9) - low)

    def step(self, config: Config) -> dict[str, float]:
        """Seconds of a training step by stage. It draws more prompts than it keeps."""
        b, n = config.prompts_per_step, config.rollouts_per_prompt
        rate = max(self.kept(n), 1e-3)
        drawn = min(config.refill * b, round_width(b, rate, config.round_confidence))
        used = {"roll_out": drawn, "score": min(b, drawn * rate), "update": min(b, drawn * rate)}
        return {stage: seconds * used[stage] for stage, seconds in self.stages(n).items()}

    def noise(self, n: int, ratio: float, by: str) -> float:
        """Of steps of equal "samples" or "time"; only the quotient of two of them says something."""
        return noise_at_equal_cost(n, ratio) * (self.seconds(n) / n if by == "time" else 1)

    def best(self, ratio: float) -> int:
        """N* at equal time. N = 2 and 3 are left out: there the law is rough."""
        some = sorted({round(4 * 1.02**k) for k in range(400)})
        return some[-1] if math.isinf(ratio) else min(some, key=lambda n: self.noise(n, ratio, "time"))

    def table(self, ratio: Ratio | None, config: Config) -> list[dict[str, float]]:
        """A row for each N. b: of a step that takes as long as the one that is asked for; noise over the least."""
        asked = config.rollouts_per_prompt
        sizes = sorted({*SIZES, asked})
        drawn = config.prompts_per_step / max(self.kept(asked), 1e-9)
        rows: list[dict[str, float]] = [
            {"n": n, "kept": self.kept(n), "seconds": (t := self.seconds(n)),
             "b": drawn * self.kept(n) * self.seconds(asked) / t} for n in sizes
        ]  # fmt: skip
        for by in ("samples", "time") if ratio else ():
            least = min(self.noise(n, ratio.used, by) for n in sizes)  # type: ignore[union-attr]
            for row in rows:
                row[by] = self.noise(int(row["n"]), ratio.used, by) / least  # type: ignore[union-attr]
        return rows


# ---------------------------------------------------------------------------------------------------------- the sample


class Sample:
    """The measurements. parts_of_rank, mini_batch_of, update: of train.py, which this folder cannot import."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: Setup, parts_of_rank, mini_batch_of, update):
        self.config = replace(config, learning_rate=0.0, warmup_updates=0)
        self.accelerator, self.setup, self.world = accelerator, setup, accelerator.num_processes
        self.parts_of_rank, self.mini_batch_of, self.update = parts_of_rank, mini_batch_of, update
        self.plain, self.n = accelerator.unwrap_model(setup.policy), config.preflight_rollouts
        for group in setup.optimizer.param_groups:
            group["lr"] = 0.0
        self.problems = setup.cursor.take(min(config.preflight_prompts, len(setup.problems)))
        self.drawn = StepRollouts(setup.problems, setup.prompts)
        self.first: StepRollouts  # the first round, with responses to read
        self.noise = Noise(setup.policy, replace(config, rollouts_per_prompt=self.n), accelerator)
        self.gradients: list[Tensor] = []

    def say(self, what: str) -> None:
        if self.accelerator.is_main_process and sys.stderr.isatty():
            print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)

    def draw(self, problems: list[int], at: int, n: int, stage: Stages) -> StepRollouts:
        """Stages 2 and 3 of train.py. at: the place of the first problem, which fixes the seeds."""
        config, setup = self.config, self.setup
        setup.engine.wake()
        with stage("roll_out"):
            rolled, outcomes = roll_out(
                setup.engine,
                Judge(setup.tokenizer, [setup.problems[i] for i in problems], config.judging),
                [setup.prompts[i] for i in problems],
                n,
                [seed_of(config.seed, 0, at + place) for place in range(len(problems))],
                self.parts_of_rank(len(problems), n, self.accelerator.process_index, self.world),
                self.accelerator,
                show=False,
                stop_token_ids=setup.stop_tokens,
                **config.sampling,
            )
        peak_gib(self.accelerator.device)
        setup.engine.sleep()
        drawn = StepRollouts(setup.problems, setup.prompts)
        drawn.add(problems, rolled, outcomes)
        return drawn

    def seconds(self, n: int, rollouts: int) -> dict[str, float]:
        """Of one prompt with n rollouts, by stage; the slowest process's. Stages 5 to 7 as in train.py."""
        config, accelerator, stage = self.config, self.accelerator, Stages()
        step = max(TIMED_ROLLOUTS["cpu"], config.prompts_per_step * config.rollouts_per_prompt)
        at, count = self.setup.cursor.position, max(2, min(rollouts // max(n, 64), step // n))
        drawn = self.draw(self.setup.cursor.take(count), at, n, stage)
        advantages = L.group_advantages(drawn.outcomes.rewards.float())
        parts = self.mini_batch_of(drawn.outcomes.lengths, config, 1)
        batch = drawn.take(torch.arange(count)).batch(advantages, parts, accelerator.device)
        with stage("score"):
            batch.score_before_update(self.plain, self.setup.reference, config, accelerator)
        batch.share_prompts(self.plain, config, config.mini_batches_of_a_prompt)
        first, once = batch.rows(batch.mini_batches(1)[0]), replace(config, updates_per_step=1)
        with stage("update"):
            self.update(self.setup.policy, self.setup.optimizer, first, once, accelerator, Progress())
        stage.seconds["update"] *= parts.numel() / int((parts == 0).sum())
        return {name: max(gather_object([stage.seconds[name]])) / count for name in STAGES}

    def look(self, problems: list[int]) -> None:
        """Roll out the sample's next prompts, and take the gradients of the half-groups of those that are kept."""
        drawn = self.draw(problems, len(self.drawn), self.n, Stages())
        places = drawn.outcomes.informative.nonzero().squeeze(1)
        if len(places):
            policy, batch = self.setup.policy, self.noise.halves(drawn.take(places), len(places))
            batch.share_prompts(self.plain, self.config, 2)
            policy.train(self.config.gradient_checkpointing)
            for rows in batch.mini_batches(2 * len(places)):
                self.gradients.append(self.noise.gradient(policy, batch, rows))
        if not len(self.drawn):
            self.first = drawn
        self.drawn.add(problems, [], drawn.outcomes)  # as lists rollouts take some 80 bytes a token

    def times(self) -> dict[int, dict[str, float]]:
        """`seconds` at several N. Where that is quick, again with twice as many prompts, up to those of a step.

        Of the last two sweeps the least is taken: few prompts do not fill a processor, others may disturb one sweep.
        """
        config, progress = self.config, self.setup.progress
        sizes = sorted({*(n for n in TIMED if n < self.n), self.n, max(self.n, config.rollouts_per_prompt)})
        rollouts = TIMED_ROLLOUTS.get(self.accelerator.device.type, 512) * self.world
        self.seconds(sizes[0], rollouts)  # what comes first is slow
        sweeps: list[dict[int, dict[str, float]]] = []
        while len(sweeps) < SWEEPS:
            began = progress.tick()
            self.say(f"timing {rollouts:,} rollouts")
            sweeps.append({n: self.seconds(n, rollouts) for n in sizes})
            rollouts *= 2
            if progress.tick() - began > QUICK:
                break
        return {n: {stage: min(sweep[n][stage] for sweep in sweeps[-2:]) for stage in STAGES} for n in sizes}

    def measure(self) -> dict[int, dict[str, float]]:
        """`times`; then a first round of prompts, and as many more as --max_minutes admits."""
        progress, todo, width = self.setup.progress, self.problems, ROUND * self.world
        progress.start()
        found = self.times()
        began = progress.tick()
        while todo and width:
            self.say(f"{len(self.drawn)} of {len(self.problems)} prompts")
            self.look(todo[:width])
            todo = todo[width:]
            each = (progress.tick() - began) / len(self.drawn)
            width = min(len(todo), max(0, int((60 * self.config.max_minutes - progress.seconds) / each)))
        self.say("")
        return found

    def ratio(self) -> Ratio | None:
        vectors = torch.stack(self.gradients).double()
        gram = vectors @ vectors.T
        sharded = self.accelerator.distributed_type == DistributedType.FSDP
        return ratio_of(summed(gram, self.accelerator) if sharded else gram.cpu(), len(self.drawn), self.noise.n)


# ------------------------------------------------------------------------------------------------------------ in words


def nothing_seen(found: dict[str, Any]) -> str:
    """Why V_w / V_b cannot be seen, and what to change; "" where it can."""
    prompts, never, always = found["prompts"], found["solved"]["none"], found["solved"]["all"]
    informative = prompts - never - always
    if always == prompts:
        return "Every response is right: there is nothing to learn from these problems. Take harder ones."
    if never == prompts and found["reward_max"] > 0:
        return (
            f"No response is right, and the largest reward is {found['reward_max']:.3g}. A response is right where its "
            "reward is 1, and only prompts with right and wrong responses are trained on: let a whole answer have 1."
        )
    if never == prompts:
        return (
            f"None of {prompts * found['rollouts']:,} responses is right: there is nothing to learn from. Read the "
            "verdicts and the responses above: does the form of the answer fail, or are responses cut? Else take "
            "easier problems."
        )
    if informative == 0:
        return "Every prompt is solved always or never: none has right and wrong responses to learn from."
    if prompts < FEW:
        return f"{prompts} prompt(s) cannot say how much prompts differ: raise --preflight_prompts, or add problems."
    if informative < FEW:
        more = math.ceil(prompts * FEW / informative)
        return f"Only {informative} of {prompts} prompts have right and wrong responses: --preflight_prompts {more}."
    return ""


def aligned(rows: list[list]) -> list[str]:
    widths = [max(len(str(x)) for x in column) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(f"{x!s:>{w}}" for x, w in zip(row, widths, strict=True)) for row in rows]


def paragraph(*sentences: str) -> str:
    return wrapped("  " + " ".join(sentences), 2)


def problems_part(found: dict[str, Any], kept: Kept, config: Config) -> list[str]:
    n, names = found["rollouts"], ("never", "up to 25%", "25 to 50%", "50 to 75%", "over 75%", "always")
    lines = [paragraph(
        f"{found['prompts']} prompts got {n} rollouts (sampled responses) each. A prompt is worth training on where "
        "some of its rollouts are right and some are wrong; dynamic sampling keeps only such prompts. Solved:"
    )]  # fmt: skip
    for name, count in zip(names, found["solved"].values(), strict=True):
        lines.append(f"    {name:9} {count:5} {'#' * round(50 * count / found['prompts'])}".rstrip())
    table = found["table"]
    lines += aligned([["N, rollouts of each prompt", *(row["n"] for row in table)],
                      ["share of prompts kept", *(f"{row['kept']:.0%}" for row in table)]])  # fmt: skip
    shares = zip(kept.shares[1:], ("p = 0", "p = 1"), strict=True)
    fitted = f"p ~ Beta({kept.a:.2g}, {kept.b:.2g})" + "".join(f", {x:.0%} {y}" for x, y in shares if x > 0.005)
    lines.append(
        paragraph(
            f"Up to N = {n} the share is counted: the chance that N of a prompt's {n} rollouts, picked at random, are "
            f"neither all right nor all wrong. Beyond, it comes from a fit: {fitted}, where p is a prompt's "
            "probability of a right response."
        )
    )
    for name in brorl.RECIPES:
        size, b = (int(recipe_of(name, config.model)[x][0]) for x in ("rollouts_per_prompt", "prompts_per_step"))
        drawn = f"about {b / kept(size):,.0f} prompts" if kept(size) > 1e-3 else "more prompts than it may"
        lines.append(paragraph(f"--recipe {name} (N = {size}): a step draws {drawn}, to keep B = {b}."))
    return lines


def responses_part(found: dict[str, Any], samples: list[dict], config: Config) -> list[str]:
    least, low, middle, high, most = found["tokens"]
    verdicts = ", ".join(f"{count:,} {reason}" for reason, count in found["reasons"].items())
    lines = [paragraph(
        f"Tokens: {least:,.0f} to {most:,.0f}; the middle half has {low:,.0f} to {high:,.0f}, median {middle:,.0f}. "
        f"{found['truncated']:.1%} of the responses are cut at --max_response_tokens {config.max_response_tokens}. "
        f"Verdicts: {verdicts}; mean reward {found['reward']:.3g}. Some responses, long ones without their beginning:"
    )]  # fmt: skip
    for row in samples:
        prompt = row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][-1]["content"]
        for name, text in (("prompt", prompt), (row["reason"], row["response"])):
            lines.append(wrapped(f"    {name:9} {' '.join(text.split())[-300:]}", 14))
    return lines


def time_part(found: dict[str, Any], config: Config) -> list[str]:
    measured, step = found["seconds"], found["step"]
    rows = [["seconds of one kept prompt, measured at N =", *measured]]
    rows += [[stage.replace("_", " "), *(plain(x[stage]) for x in measured.values())] for stage in STAGES]
    return [*aligned(rows), paragraph(
        "Roll out draws and judges, score computes log-probs of policy and reference, update is one pass of training "
        "(here with learning rate 0: no weight changes). By the smallest and the largest of these N, a prompt costs as "
        f"much time as {plain(found['prompt_cost'])} rollouts; the table below takes the measured times. A step of N = "
        f"{config.rollouts_per_prompt} and B = {config.prompts_per_step} takes about {plain(sum(step.values()))} s: "
        + ", ".join(f"{name.replace('_', ' ')} {plain(x)}" for name, x in step.items())
        + f". The most memory in use so far: {found['peak_gib']:.2f} GiB."
    )]  # fmt: skip


def interval(of: Iterable[float]) -> str:
    """N* and the ends of its interval: 6 (5 to 9)."""
    middle, low, high = (f"{x:.0f}" if math.isfinite(x) else "any larger N" for x in of)
    return f"{middle} ({low} to {high})" if low != high else middle


def noise_part(found: dict[str, Any], ratio: Ratio | None, cost: Cost) -> list[str]:
    lines = [paragraph(
        "Noise is how far the gradient of one step lies from the average over many such steps, squared: (V_b + V_w / "
        "(N - 1)) / (prompts drawn). V_w, within prompts: how much a prompt's gradient changes when its rollouts are "
        "sampled again; more rollouts or more prompts reduce its part. V_b, between prompts: how much the exact "
        "gradients of prompts differ; only more prompts reduce it."
    )]  # fmt: skip
    if ratio is None:
        return [*lines, paragraph("Not seen in this sample; the advice says why.")]
    samples = interval(best_n(x) for x in (ratio.used, *ratio[1:]))
    by_time = interval(cost.best(x) if math.isfinite(x) else x for x in (ratio.used, *ratio[1:]))
    sure = f"(95%, {found['prompts']} prompts)"
    seen = f"V_w / V_b = {plain(ratio.used)}, between {plain(ratio.low)} and {plain(ratio.high)} {sure}"
    if math.isinf(ratio.high):
        taken = "this bound" if math.isinf(ratio.value) else f"the estimate, {plain(ratio.used)}"
        seen = f"V_w / V_b is at least {plain(ratio.low)} {sure}, and V_b may be 0; the table takes {taken}"
    lines.append(paragraph(
        f"{seen}. So the least noise at equal samples is at N = 1 + sqrt(V_w / V_b) "
        f"= {samples}, and at equal time, by the measured seconds, at N = {by_time}."
    ))  # fmt: skip
    rows: list[list] = [
        ["N", "noise at equal samples", "noise at equal time", "seconds a drawn prompt", "drawn", "kept (B)"]
    ]
    for x in found["table"]:
        rows.append(
            [
                x["n"],
                f"{x['samples']:.2f}",
                f"{x['time']:.2f}",
                plain(x["seconds"]),
                f"{x['b'] / max(x['kept'], 1e-9):,.0f}",
                f"{x['b']:,.0f}",
            ]
        )
    return [
        *lines,
        *aligned(rows),
        paragraph(
            "Noise is divided by the least of its column (1.00 is best). Equal samples: steps of equally many "
            "rollouts. Equal time: steps that take as long as yours; the last columns are the prompts that such a step "
            "draws and keeps. Drawn prompts are rolled out, kept ones are scored and trained on too. Seconds between "
            "the measured N are interpolated."
        ),
    ]


def advice(found: dict[str, Any], ratio: Ratio, cost: Cost, config: Config, problems: int) -> str:
    """One sentence and the flags to type; how sure it is; what changes while the policy learns."""
    asked, b = config.rollouts_per_prompt, config.prompts_per_step
    rows = {row["n"]: round(row["b"]) for row in found["table"] if 1 <= round(row["b"]) <= problems}

    def alike(x: float) -> list[int]:
        """The N with about the least noise, the smallest first: the best N falls while the policy learns."""
        noise = {n: cost.noise(n, x, "time") for n in rows}
        return [n for n in sorted(rows) if noise[n] <= ALIKE * min(noise.values())]

    def less(x: float) -> str:
        """What the noise of N is beside that of the N that is asked for."""
        return f"{cost.noise(n, x, 'time') / cost.noise(asked, x, 'time'):.2f}"

    n, low, high = alike(ratio.used)[0], alike(ratio.low)[0], alike(min(ratio.high, ENDLESS))[-1]
    text = f"N = {n} with B = {rows[n]:,} takes as long as N = {asked} with B = {b:,} and has "
    text += f"{less(ratio.used)} of its noise"
    if n == asked:
        text = f"Keep N = {asked} with B = {b:,}: no other N of the table has over 2% less noise in the same time"
    elif low != high:
        text += f" ({less(ratio.low)} to {less(min(ratio.high, ENDLESS))} over the interval of V_w / V_b)"
    text += f": --rollouts_per_prompt {n} --prompts_per_step {rows[n]}."
    if low != high:
        half = 1 / ratio.low - 1 / ratio.used  # of the interval of V_b / V_w; at 0.6 of it N* is known to a factor of 2
        more = min(max(2.0, (half * ratio.used / 0.6) ** 2 if math.isfinite(ratio.value) else 4.0), 16.0)
        more = min(more, problems / found["prompts"])
        text += f" Of the N in the table {low} to {high} could be best."
        if more > 1.2:
            text += (
                f" --preflight_prompts {more * found['prompts']:.0f} would make the intervals about "
                f"{math.sqrt(more):.1f} times narrower."
            )
    return text + (
        " V_w / V_b usually falls while the policy learns (for the embedded policy to a fifth, docs/which_n.md), and "
        "the best N with it: so this is the smallest of the N within 2% of the least noise. How long a step should be "
        "is not measured here. Tune the learning rate again after a change of N or B. Less noise was more learning in "
        "small worlds; on a real model seeds differed by more than N did (docs/which_n.md)."
    )


# ----------------------------------------------------------------------------------------------------------- the whole


def preflight(config: Config, accelerator: Accelerator, setup: Setup, parts_of_rank, mini_batch_of, update) -> None:
    """Measure, print, draw, and write the folder, which is not there until now."""
    sample = Sample(config, accelerator, setup, parts_of_rank, mini_batch_of, update)
    measured = sample.measure()
    outcomes, run = sample.drawn.outcomes, setup.run
    kept = Kept(outcomes.correct.sum(-1).tolist(), sample.n)
    cost, lengths = Cost(measured, kept), outcomes.lengths.double().flatten()
    found: dict[str, Any] = {
        "model": short(config.model), "prompts": len(kept.correct), "rollouts": sample.n, "correct": kept.correct,
        "solved": solved(outcomes.correct),
        "fit": {"a": kept.a, "b": kept.b, "shares": kept.shares},
        "tokens": np.quantile(lengths.numpy(), (0, 0.25, 0.5, 0.75, 1)).tolist(),
        "truncated": outcomes.truncated.double().mean().item(), "reward": outcomes.rewards.mean().item(),
        "reward_max": outcomes.rewards.max().item(),
        "reasons": dict(sorted(reasons(outcomes.reasons).items())),
        "seconds": measured, "prompt_cost": cost.of_a_prompt(), "step": cost.step(config),
        "peak_gib": peak_gib(accelerator.device),
    }  # fmt: skip
    found["advice"] = nothing_seen(found)
    ratio = None if found["advice"] else sample.ratio()
    finite = ratio and {name: x if math.isfinite(x) else None for name, x in ratio._asdict().items()}
    found |= {"ratio": finite, "table": cost.table(ratio, config)}
    if ratio:
        found["advice"] = advice(found, ratio, cost, config, len(setup.problems))
    found["advice"] = found["advice"] or "V_w is not positive in this sample: raise --preflight_prompts."
    minutes = setup.progress.tick() / 60
    from_main(run.make)
    run.sample(0, sample.first)
    if not accelerator.is_main_process:
        return
    fewer = f" of {len(sample.problems)}, as --max_minutes admits," * (len(kept.correct) < len(sample.problems))
    print(wrapped(f"Preflight of {found['model']}: {len(kept.correct)} prompts{fewer} in {minutes:.1f} minutes", 2))
    parts = {
        "Problems": problems_part(found, kept, config),
        "Responses": responses_part(found, rows_of(run.samples), config),
        "Time, on this machine": time_part(found, config),
        "Noise: how far one step strays from the average step": noise_part(found, ratio, cost),
        "Advice": [paragraph(found["advice"])],
    }
    for title, lines in parts.items():
        print("\n".join(["", title, *lines]))
    write(run.folder / "preflight.json", json.dumps(found, indent=2) + "\n")
    draw(found, ratio, cost, run.folder / "preflight.png")
    print("\n" + wrapped(f"wrote {run.folder}/: preflight.png, preflight.json (these numbers), samples.jsonl", 0))


def draw(found: dict[str, Any], ratio: Ratio | None, cost: Cost, path: Path) -> None:
    """Problems by how often they are solved; prompts kept, noise, and seconds by N."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((problems, kept), (seconds, noise)) = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained")
    n, sizes = found["rollouts"], [row["n"] for row in found["table"]]
    problems.hist([c / n for c in found["correct"]], bins=np.linspace(0, 1, 17), edgecolor="white")
    problems.set(title="prompts by their share of right responses", xlim=(0, 1))
    kept.plot(sizes, [cost.kept.fitted(size) for size in sizes], "--", color="gray", label="fitted")
    counted = [size for size in sizes if size <= n]
    kept.plot(counted, [cost.kept(size) for size in counted], "o-", label="counted")
    kept.set(title="share of prompts that are kept", ylim=(0, 1.05))
    for stage in STAGES:
        y = [stages[stage] for stages in found["seconds"].values()]
        seconds.plot(list(found["seconds"]), y, "o-", label=stage.replace("_", " "))
    seconds.set(title="seconds of one prompt with N rollouts", yscale="log")
    noise.set(title="noise of a step, over the least (band: the interval)")
    for by in ("samples", "time") if ratio else ():
        noise.plot(sizes, [row[by] for row in found["table"]], "o-", label=f"at equal {by}")
        ends = [[cost.noise(size, min(x, 1e9), by) for size in sizes] for x in ratio[1:]]  # type: ignore[index]
        low, high = ([x / min(end) for x in end] for end in ends)
        noise.fill_between(sizes, np.minimum(low, high), np.maximum(low, high), alpha=0.15)
        noise.set(yscale="log")
    for axis in (kept, seconds, noise):
        axis.set(xscale="log", xlabel="N")
        axis.set_xticks(sizes, map(str, sizes))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=8)
    figure.suptitle(f"{found['model']}: {found['prompts']} prompts x {n} rollouts")
    figure.savefig(path, dpi=110)
    plt.close(figure)
