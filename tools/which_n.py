"""Section 4.2 before a run: which N, rollouts per prompt, has the least noise in the same time, for a given B?

    python -m tools.which_n                                      the embedded policy, half a minute on 2 cores
    python -m tools.which_n --model M --data D --prompts_per_step 32
    accelerate launch -m tools.which_n --model M --data D        on several processes

All settings of train.py work too, except another --objective. Nothing is trained. The program

    1  times calls of the engine, the judge and the trainer, and so knows the seconds of a step with any N;
    2  rolls out some prompts and computes the gradient of each half of a group, which gives V_w / V_b;
    3  chooses the N with the least noise in equal time, and says how sure it is.

tools/noise_law.py has the law of the noise, tools/step_cost.py the seconds, docs/which_n.md what was predicted and
measured. V_w / V_b may fall while a policy learns. To measure it after a run, give --model the run's model.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import json
import math
import sys
import textwrap
import time
from contextlib import nullcontext, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

import brorl
import loss as L
from tools.noise_law import RATIOS, Guess, belief, guess, kept_share, noise_at_equal_time, ratio_of
from tools.step_cost import WORK, Cost, Rates, Responses, Stopwatch
from trainer.adapters import trained
from trainer.micro_batches import log_probs, micro_batches
from trainer.outcomes import Outcomes, Rollout
from trainer.policy import Policy
from trainer.report import short
from trainer.rollouts import seed_of
from trainer.run import write
from trainer.settings import TINY, Config, Refusal, read_settings
from trainer.sharding import fsdp_requested
from trainer.start import Setup, explained, set_up, start_accelerator
from verify import REASONS

SIZES = (4, 8, 16, 32, 64, 128, 256, 512)  # N of the table
SAMPLED = (64, 16, 4)  # rollouts of a prompt in the sample: the first that leaves time for ROUND prompts
TIMING = 0.4  # most of --max_minutes for timing
ROUND = 8  # prompts of the sample's first round, for each process
SAFE = 0.6  # share of the time left that a round may take
MOST = 2**17  # coordinates of the gradient
SOLVED = ("never", "up to 25%", "25 to 50%", "50 to 75%", "over 75%", "always")


class HalfGroups:
    """Gradients of the half-groups of informative prompts, over the rollouts of all processes."""

    def __init__(
        self, policy: Policy, wrapped, rollouts_per_prompt: int, config: Config, accelerator: Accelerator
    ):  # fmt: skip
        self.wrapped, self.config, self.accelerator = wrapped, config, accelerator
        self.n, self.share_prompts = rollouts_per_prompt // 2, policy.share_prompts
        self.every = max(1.0, sum(p.numel() for p in trained(policy)) / MOST)
        self.gradients: list[Tensor] = []

    def add(self, rollouts: list[Rollout], outcomes: Outcomes) -> None:
        """Add the gradients of both halves of every informative prompt. rollouts: of this process."""
        n, reward = self.n, outcomes.reward
        halves = torch.stack([reward[:, : 2 * n : 2], reward[:, 1 : 2 * n : 2]])  # (2, P, n): even and odd rollouts
        weight = ((halves - halves.mean(-1, keepdim=True)) / (n - 1)).tolist()
        self.wrapped.train(self.config.gradient_checkpointing)
        for p in L.informative(outcomes.correct, outcomes.counted).nonzero().flatten().tolist():
            group = [r for r in rollouts if r.prompt_index == p and r.number < 2 * n]
            for r in group:
                r.advantage = weight[r.number % 2][p][r.number // 2]
            self.gradients += [self.gradient([r for r in group if r.number % 2 == half]) for half in (0, 1)]

    def gradient(self, rollouts: list[Rollout]) -> Tensor:
        """Compute Σ_i A_i ∇log π(y_i) over a half-group on all processes. rollouts: of this process."""
        policy, accelerator = self.wrapped, self.accelerator
        some = micro_batches(rollouts, self.config.max_tokens_per_micro_batch, self.share_prompts, accelerator)
        for i, micro_batch in enumerate(some):
            with nullcontext() if i + 1 == len(some) else accelerator.no_sync(policy):
                logp, _ = log_probs(policy, micro_batch, self.config.temperature, accelerator)
                loss = (micro_batch.advantages.repeat_interleave(micro_batch.lengths) * logp).sum()
                # The ranks' gradients are averaged, and we want their sum
                (loss * accelerator.num_processes).backward()
        found = torch.cat([self.some(i, p.grad) for i, p in enumerate(policy.parameters()) if p.grad is not None])
        policy.zero_grad()
        return found

    def some(self, number: int, gradient: Tensor) -> Tensor:
        """Draw coordinates of the gradient of weight `number`, scaled so that inner products stay unbiased."""
        slope = gradient.flatten().float()
        size, count = len(slope), math.ceil(len(slope) / self.every)
        if count == size:
            return slope
        generator = torch.Generator().manual_seed(seed_of("coordinates", number))
        return slope[torch.randint(size, (count,), generator=generator).to(slope.device)] * math.sqrt(size / count)

    def gram(self) -> Tensor:
        """Inner products of all half-groups, (2M, 2M)."""
        vectors = torch.stack(self.gradients).double() if self.gradients else torch.zeros(0, 0)
        return (vectors @ vectors.T).cpu()


class Sample:
    """The measurements: seconds of calls, and rollouts and half-group gradients of the sampled prompts."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: Setup, own: argparse.Namespace):
        self.config, self.accelerator, self.setup = config, accelerator, setup
        self.ends = own.began + 60 * own.max_minutes
        self.wanted = min(own.sample_prompts, len(setup.data.problems))
        self.problems, self.seeds = setup.progress.next_problems(setup.data.problems, self.wanted, config.seed)
        self.stopwatch = Stopwatch(config, accelerator, setup)
        reserved = (1 - TIMING) * self.left()
        self.stopwatch.measure(self.problems, self.seeds, lambda: self.left() - reserved)
        self.responses: list[Responses] = []  # by prompt
        self.outcomes = Outcomes.none(SAMPLED[0])
        self.draw_sample()

    def left(self) -> float:
        """Seconds of --max_minutes that are left: the least of all processes."""
        return -self.stopwatch.slowest(time.perf_counter() - self.ends)

    def cost(self) -> Cost:
        """The seconds of a step with any N, from what was measured until now."""
        kept = [x for x, informative in zip(self.responses, self.informative(), strict=True) if informative]
        sample = self.responses or self.stopwatch.responses
        return Cost(self.stopwatch.rates(), sample, kept, self.config, self.accelerator, self.setup)

    def informative(self) -> list[bool]:
        """Whether each sampled prompt has right and wrong responses."""
        return L.informative(self.outcomes.correct).tolist()

    def draw_sample(self) -> None:
        """Roll out prompts until there are enough or the minutes are over, and compute their gradients."""
        setup, config, world = self.setup, self.config, self.accelerator.num_processes
        cost, spare = self.cost(), SAFE * self.left()
        # Seconds of a prompt with its gradient. A gradient costs less than an update, which has U mini-batches
        each = {n: self.stopwatch.slowest(sum(cost.seconds(n, 1, 1).values())) for n in SAMPLED}
        self.n = n = next((n for n in SAMPLED if ROUND * each[n] < spare), SAMPLED[-1])
        self.outcomes, self.halves = (
            Outcomes.none(n),
            HalfGroups(setup.policy, setup.wrapped, n, config, self.accelerator),
        )
        count = min(self.wanted, ROUND * world, max(1, int(spare / each[n])))
        description = f"prompts, {n} rollouts each"
        with tqdm(total=self.wanted, desc=description, unit="prompt", leave=False, disable=None) as bar:
            while count:
                began, part = self.left(), slice(len(self.outcomes), len(self.outcomes) + count)
                rollouts, outcomes = self.stopwatch.roll_out(self.problems[part], self.seeds[part], n)
                self.responses += self.stopwatch.responses
                self.halves.add(rollouts, outcomes)
                if not len(self.outcomes):
                    setup.run.sample(rollouts, outcomes, L.informative(outcomes.correct), 0)
                self.outcomes = self.outcomes.followed_by(outcomes)
                bar.update(count)
                took = max(began - self.left(), 1e-9) / count
                count = min(self.wanted - len(self.outcomes), max(0, int(SAFE * self.left() / took)))


# -------------------------------------------------------------------------------------------------------- the report


def digits(x: float) -> str:
    """Write a number with two digits and without a power of ten: 0.25, 2.3, 18, 120, 1,700."""
    return f"{x:.2g}" if x < 99.5 else f"{float(f'{x:.2g}'):,.0f}"


def aligned(rows: list[list]) -> str:
    widths = [max(len(str(x)) for x in column) for column in zip(*rows, strict=True)]
    return "\n".join("  " + "  ".join(f"{x!s:>{w}}" for x, w in zip(row, widths, strict=True)) for row in rows)


def rates_in_words(rates: Rates, updates: int) -> str:
    """The measured rates, a line per stage. Those of 0 are left out: the calls do not tell them from the others."""
    lines = []
    for stage, of in rates.of.items():
        named = [f"{name.replace('_', ' ')} {digits(1000 * x)}" for name, x in zip(WORK[stage], of, strict=True) if x]
        line = f"  {stage.replace('_', ' '):<9}{', '.join(named)}"
        lines.append(textwrap.fill(line, 80, subsequent_indent=" " * 11))
    steps = f"{updates} optimizer steps of {digits(rates.optimizer_step)} s"
    return "\n".join([*lines, f"  and {steps}; {digits(rates.fixed)} s to wake the engine"])


def in_words(found: dict[str, Any], best: Guess, rates: Rates, config: Config) -> str:
    """Write the report, from the numbers of which_n.json."""
    asked, b, rows = config.rollouts_per_prompt, config.prompts_per_step, found["table"]
    table: list[list] = [["N", "drawn", "roll out", "score", "update", "seconds", "noise", "95%"]]
    for n, x in rows.items():
        roll_out, judge, *others = x["stages"].values()
        noise = [f"{x['noise']:.2f}", f"{x['noise_low']:.2f} to {x['noise_high']:.2f}"]
        table.append([n, f"{x['drawn']:,.0f}", *map(digits, [roll_out + judge, *others, x["seconds"]]), *noise])
    source = "usual values: this sample has too few prompts with right and wrong responses"
    if found["ratio"]:
        source = "from this sample"
    rate = brorl.scaled_learning_rate(config.learning_rate, best.n * b, asked * b)
    against = ""
    if asked != best.n:
        steps = digits(rows[asked]["seconds"] / rows[best.n]["seconds"])
        against = f"\n  A step of N = {asked} takes as long as {steps} of N = {best.n}."
    answer = f"N = {best.n}: no other N has over 20% less noise, with probability {min(best.sure, 0.99):.0%}."
    near = [n for n, x in rows.items() if x["noise"] <= 1.2]
    if len(near) > 1:
        answer += f"\n  N = {near[0]} to {near[-1]} have at most 20% more noise than N = {best.n}."
    if not found["informative"]:
        answer = f"N = {best.n} is a guess: no prompt of this sample has right and wrong responses."
    verdicts = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in found["reasons"].items())
    return f"""
{found["model"]}: {found["prompts"]} prompts x {found["rollouts"]} rollouts, {found["minutes"]:.1f} minutes

Prompts by the share of right responses (a step trains on the middle four)
{aligned([[*found["solved"]], [*found["solved"].values()]])}
  {verdicts}
  tokens of a response: median {found["tokens_median"]:,}, longest {found["tokens_max"]:,}; \
{found["truncated"]:.1%} reach the limit of {config.max_response_tokens}

Measured: seconds of 1,000 units of work (tools/step_cost.py)
{rates_in_words(rates, config.updates_per_step)}

Seconds of a step that draws prompts until B = {b} are informative, and noise
in equal time, relative to N = {best.n}
{aligned(table)}

{answer}
  V_w / V_b = {digits(best.ratio)}, 95%: {digits(best.ratio_low)} to {digits(best.ratio_high)}, {source}.{against}
    --rollouts_per_prompt {best.n} --prompts_per_step {b} --learning_rate {rate:.2g}
  Not known: the best learning rate (search around this one), errors of the
  seconds, and later steps: V_w / V_b may fall while a policy learns."""


def draw(found: dict[str, Any], path: Path, title: str) -> None:
    """which_n.png: the noise in equal time with its interval, and the share of informative prompts, over N."""
    from trainer.pictures import VERMILLION, finish, legend_below, panels  # matplotlib takes a second to import

    rows, best = found["table"], found["best"]["n"]
    sizes = [*rows]
    figure, ((left, right),) = panels(1, 2, title)
    low, middle, high = ([rows[n][name] for n in sizes] for name in ("noise_low", "noise", "noise_high"))
    left.fill_between(sizes, low, high, alpha=0.2, lw=0, label="95% interval of V_w / V_b")
    left.plot(sizes, middle, marker="o", label="median")
    left.axhline(1, color="tab:gray", lw=0.8, ls="--")
    left.set(yscale="log")
    right.plot(sizes, [rows[n]["informative"] for n in sizes], marker="o")
    right.set(ylim=(0, 1.02))
    for axis, text in (
        (left, f"noise in equal time, relative to N = {best}"),
        (right, "share of prompts that are informative"),
    ):
        axis.axvline(best, color=VERMILLION, lw=1)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(n) for n in sizes])
        finish(axis, text, "N, rollouts per prompt")
    legend_below(left)
    figure.savefig(path)


def report(config: Config, accelerator: Accelerator, setup: Setup, own: argparse.Namespace) -> dict[str, Any]:
    """Measure, print and write the run's folder. Returns the numbers of which_n.json."""
    sample = Sample(config, accelerator, setup, own)
    outcomes, n, b, folder = sample.outcomes, sample.n, config.prompts_per_step, setup.run.folder
    correct, prompts = outcomes.correct.sum(-1).tolist(), len(outcomes)
    reasons = outcomes.reason.flatten().bincount(minlength=len(REASONS)).tolist()
    quarters = [math.ceil(4 * c / n) + (c == n) for c in correct]
    kept, ratio = partial(kept_share, correct, n), ratio_of(sample.halves.gram(), prompts, sample.halves.n)
    cost = sample.cost()
    sizes = sorted({config.rollouts_per_prompt, *(n for n in SIZES if n * b >= config.updates_per_step)})
    most = min(config.refill * b, len(setup.data.problems))  # prompts that a step draws
    drawn = {n: min(b / max(kept(n), 1e-9), most) for n in sizes}
    # A step that drops prompts usually draws twice
    rounds = {n: 1 if drawn[n] < b + 0.5 else 2 for n in sizes}
    stages = {n: cost.seconds(n, drawn[n], drawn[n] * kept(n), rounds[n]) for n in sizes}
    seconds = {n: sum(x.values()) for n, x in stages.items()}
    each = {n: seconds[n] / drawn[n] for n in sizes}  # t(N)
    best = guess(each, ratio)

    def row(n: int) -> dict[str, Any]:
        noise = noise_at_equal_time(n, RATIOS, each[n]) / noise_at_equal_time(best.n, RATIOS, each[best.n])
        order, mass = np.argsort(noise), belief(ratio)
        low, middle, high = (noise[order][np.argmax(mass[order].cumsum() > x)] for x in (0.025, 0.5, 0.975))
        return {
            "informative": kept(n), "drawn": drawn[n], "stages": stages[n], "seconds": seconds[n],
            "noise": float(middle), "noise_low": float(low), "noise_high": float(high),
        }  # fmt: skip

    found: dict[str, Any] = {
        "model": short(config.model), "prompts": prompts, "rollouts": n, "correct": correct,
        "minutes": own.max_minutes - sample.left() / 60,
        "solved": {name: quarters.count(i) for i, name in enumerate(SOLVED)},
        "reasons": {name: count for name, count in zip(REASONS, reasons, strict=True) if count},
        "tokens_median": outcomes.length.median().item(), "tokens_max": outcomes.length.max().item(),
        "truncated": outcomes.truncated.double().mean().item(), "rates": cost.rates._asdict(),
        "informative": sum(sample.informative()),
        "ratio": ratio and ratio._asdict(), "best": best._asdict(), "table": {n: row(n) for n in sizes},
    }  # fmt: skip
    if accelerator.is_main_process:
        print(in_words(found, best, cost.rates, config))
        write(folder / "which_n.json", json.dumps(found, indent=2) + "\n")
        draw(found, folder / "which_n.png", f"{found['model']}, B = {b}")
        print(f"\nwrote {folder}/: which_n.png, which_n.json, samples.jsonl")
    return found


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the program with these arguments. Returns the numbers of which_n.json."""
    parser = argparse.ArgumentParser("python -m tools.which_n", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sample_prompts", type=int, default=256, help="prompts of the sample (default: 256)")
    parser.add_argument("--max_minutes", type=float, default=10.0, help="about; no call is stopped (default: 10)")
    own, flags = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    own.began = time.perf_counter()
    given = {flag.partition("=")[0] for flag in flags}
    if "--name" not in given:
        flags += ["--name", f"which_n-{time.strftime('%m%d-%H%M%S')}"]
    if "--data" in given and "--eval_data" not in given:
        flags += ["--eval_data", str(TINY / "test.jsonl")]  # nothing is evaluated
    with explained(code=2):
        if own.sample_prompts < 1 or not own.max_minutes > 0:
            raise Refusal("--sample_prompts must be at least 1, and --max_minutes positive")
        config, sources = read_settings((__doc__ or "").partition("\n")[0], flags, any_size=True)
        if config.eval_only or config.resume:
            raise Refusal("--eval_only and --resume belong to train.py: leave them out here")
        if config.objective != ["brorl"]:
            raise Refusal("which_n knows the law of --objective brorl: leave it out")
        if fsdp_requested():
            raise Refusal("which_n needs complete weights on every process: start it without FSDP2")
        accelerator = start_accelerator(config)
        if accelerator.is_main_process:
            print(f"this takes about {own.max_minutes:g} minutes or less (--max_minutes); loading the model ...")
        with redirect_stdout(StringIO()):  # the introduction of a run speaks about training
            setup = set_up(config, accelerator, sources)
        found = report(config, accelerator, setup, own)
        setup.close(accelerator)
        return found


if __name__ == "__main__":
    main()
