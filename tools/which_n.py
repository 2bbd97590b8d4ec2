"""Section 4.2 before a run: which N, rollouts per prompt, has the least noise in the same time, for a given B?

    python -m tools.which_n                                      the tiny policy, a minute or two on 2 cores
    python -m tools.which_n --model M --data D --prompts_per_step 32
    accelerate launch -m tools.which_n --model M --data D        on several processes

All settings of train.py work too, except another --objective, --eval_only, --resume and FSDP2. The program makes steps
of train.py with N = 8, 32, 128 and 512 at a learning rate of 0, so no weight changes, and measures

    seconds     t(N) = roll_out / drawn prompts + K_N (score + update) / kept prompts, interpolated between two N.
                If B prompts take too long, the step has fewer. If one prompt does, this N is left out.
    K_N         the share of informative prompts, from all groups of at least N rollouts
    V_w, V_b    the variance of the gradient within and between prompts, by tools/half_groups.py from these rollouts

The mean gradient of all steps that fit into the same time has the noise (V_b + V_w / (N - 1)) t(N). tools/noise_law.py
derives it, and estimates V_w / V_b from half-groups. All this holds before whitening and clipping, for the policy as
it is: V_w / V_b may fall while it learns. The program advises the N with the smallest worst case over the 95% interval
of V_w / V_b.
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import json
import math
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from tqdm import tqdm

import train
from tools.half_groups import Gradients
from tools.noise_law import FEW, Ratio, kept_share, noise_at_equal_time, ratio_of
from trainer.adapters import trainable
from trainer.command_line import read_settings
from trainer.console import short
from trainer.files import write
from trainer.launch import fsdp_requested, start_accelerator
from trainer.metrics import Sums
from trainer.outcomes import Outcomes, Rollout
from trainer.process import Refusal, explained
from trainer.settings import TINY, Config
from trainer.start import Setup, set_up

MEASURED = (8, 32, 128, 512)  # N of the steps
TABLE = (8, 16, 32, 64, 128, 256, 512)  # N of the table
REPEATS = 3  # steps of each N. The third is made if a step takes under 1/20 of the time
OPTIMIZER_STEPS = 3  # that are timed
STEPS_SHARE = 0.6  # of the time for steps; the rest is for gradients
LEAST_ROLLOUTS = 16  # rollouts of a group whose gradients are taken


class Step(NamedTuple):
    """A step that was made."""

    n: int
    rollouts: list[Rollout]  # of this process
    outcomes: Outcomes
    kept: Tensor
    drawn_s: float  # seconds of `roll_out` for each drawn prompt, of the slowest process; nan if it is not timed
    kept_s: float  # seconds of `score` and `update` for each kept prompt of a step with B; nan too without one


def timed_step(
    n: int, b: int, optimizer_s: float, config: Config, accelerator: Accelerator, setup: Setup
) -> Step:  # fmt: skip
    """Make a step of train.py with N = n and b prompts. The learning rate is 0."""
    progress = setup.progress
    progress.next_step()
    fixed, full = config.updates_per_step * optimizer_s, config.prompts_per_step
    config = replace(config, rollouts_per_prompt=n, prompts_per_step=b)
    began = time.perf_counter()
    rollouts, outcomes, kept, sums = train.make_step(progress.step, config, accelerator, setup)
    sums.result()  # waits for a GPU
    laps = setup.run.clock.laps
    training = laps.get("score", 0.0) + laps.get("update", 0.0)
    both = gather_object([(time.perf_counter() - began - training, training)])
    roll_out, training = map(max, zip(*both, strict=True))
    progress.end_step(outcomes, kept, setup.run.clock.seconds_of_slowest())
    count = int(kept.sum())
    each = (training - fixed) / count + fixed / max(count, full) if count else math.nan
    return Step(n, rollouts, outcomes, kept, roll_out / len(outcomes), each)


def make_steps(config: Config, accelerator: Accelerator, setup: Setup, seconds: float) -> list[Step]:
    """Make steps of each N of MEASURED in about this time, with B prompts or as many as fit a quarter of it.

    The first step of an N is not timed: it allocates memory, which makes it slower.
    """
    clock, b, steps, cost = setup.run.clock, config.prompts_per_step, list[Step](), dict[int, float]()
    optimizer_s = seconds_of_an_optimizer_step(config, accelerator, setup)
    ends, began = clock.seconds_of_slowest() + seconds, clock.seconds_of_slowest()
    timed_step(MEASURED[0], 1, optimizer_s, config, accelerator, setup)  # slow: everything happens for the first time
    expected = clock.seconds_of_slowest() - began  # seconds of a kept prompt
    for i, n in enumerate(tqdm(MEASURED, desc="steps", unit="N", leave=False, disable=None)):
        left = ends - clock.seconds_of_slowest()
        if i and 2 * expected > left:  # one prompt takes too long
            break
        prompts = max(1, min(b, int(left / (len(MEASURED) - i) / (2 * expected))))
        for repeat in range(REPEATS):
            began = clock.seconds_of_slowest()
            step = timed_step(n, prompts, optimizer_s, config, accelerator, setup)
            took = clock.seconds_of_slowest() - began
            steps.append(step if repeat else step._replace(drawn_s=math.nan, kept_s=math.nan))
            if repeat and took > seconds / 20:
                break
        cost[n] = took / max(1, int(steps[-1].kept.sum()))
        expected = 4 * cost[n]  # of the next N, which is 4 times as large; less if a prompt is expensive
        if i:
            (m, x), (k, y) = [*cost.items()][-2:]
            expected = min(expected, max(y, y + (y - x) / (k - m) * 3 * k))
    return steps


def seconds_of_an_optimizer_step(config: Config, accelerator: Accelerator, setup: Setup) -> float:
    """Time train.py's `update` with a gradient of 0 and no rollouts. A step has U of these, with any N and B."""
    spent = []
    for _ in range(OPTIMIZER_STEPS):
        for p in trainable(setup.policy):
            p.grad = torch.zeros_like(p)
        began = time.perf_counter()
        train.update(setup.wrapped, setup.optimizer, [], 1, 1, setup.objective, config, accelerator, Sums(accelerator))
        spent.append(time.perf_counter() - began)
    return max(gather_object([min(spent)]))


def measure_ratio(steps: list[Step], config: Config, accelerator: Accelerator, setup: Setup, ends: float) -> Ratio:
    """Take the gradients of the steps' prompts in turn, one of each step, until the time is over."""
    gradients, halves = Gradients(config, accelerator, setup), list[Tensor]()
    kept_n, dropped_n = list[int](), list[int]()
    large = [step for step in steps if step.n >= LEAST_ROLLOUTS]
    most = max((len(x.kept) for x in large), default=0)
    turns = [(x, p) for p in range(most) for x in large if p < len(x.kept)]
    for step, p in tqdm(turns, desc="gradients", unit="prompt", leave=False, disable=None):
        if setup.run.clock.seconds_of_slowest() > ends and len(kept_n) >= FEW:
            break
        if step.kept[p]:
            group = [r for r in step.rollouts if r.prompt_index == p]
            halves.append(gradients.halves(group, step.outcomes.reward[p]))
        (kept_n if step.kept[p] else dropped_n).append(step.n)
    h = torch.cat(halves).double() if halves else torch.zeros(0, 1)
    return ratio_of(h @ h.T, kept_n, dropped_n)


def mean_kept_share(steps: list[Step], n: int) -> float:
    """Estimate K_N without bias, from all prompts with at least n rollouts."""
    large = [step for step in steps if step.n >= n]
    shares = [kept_share([correct], x.n, n) for x in large for correct in x.outcomes.correct.sum(-1).tolist()]
    return float(np.mean(shares))


def answer(steps: list[Step], ratio: Ratio, b: int) -> dict[str, Any]:
    """Return the table of N, and the N whose noise in the same time has the smallest worst case over V_w / V_b."""
    measured = sorted({x.n for x in steps if not math.isnan(x.kept_s)})
    if not measured:
        raise Refusal("no group has right and wrong responses: no step would train. Use easier problems")
    if len(measured) == 1:
        raise Refusal(f"the time was over after N = {measured[0]}: a longer --max_minutes can compare it with others")
    table = {n: {"kept_share": mean_kept_share(steps, n)} for n in TABLE if measured[0] <= n <= measured[-1]}
    for name in ("drawn_s", "kept_s"):
        means = [np.nanmean([getattr(x, name) for x in steps if x.n == n]) for n in measured]
        for n, row in table.items():
            row[name] = float(np.interp(n, measured, means))
    for n, row in table.items():
        row["t"] = row["drawn_s"] + row["kept_share"] * row["kept_s"]
        row["seconds"] = row["t"] * b / max(row["kept_share"], 1e-9)
        row["measured_with"] = max((int(x.kept.sum()) for x in steps if x.n == n), default=0)
    ratios = (ratio.high, ratio.middle, ratio.low)
    noise = np.array([[noise_at_equal_time(n, x, row["t"]) for x in ratios] for n, row in table.items()])
    noise /= noise.min(0)  # (N, 3)
    best = [*table][int(noise.max(1).argmin())]
    for row, x in zip(table.values(), noise.tolist(), strict=True):
        row["noise"] = x
    left_out = [n for n in MEASURED if n > measured[-1]]
    return {"best": best, "left_out": left_out, "V_w / V_b": ratio._asdict(), "table": table}


def two_digits(x: float) -> str:
    """Write a number with two digits and without a power of ten: 0.25, 2.3, 18, 120, 1,700."""
    return f"{x:.2g}" if x < 99.5 else f"{float(f'{x:.2g}'):,.0f}"


def table_in_words(found: dict[str, Any]) -> str:
    """Write the table of which_n.json, and which N it lacks."""
    ratio = found["V_w / V_b"]
    ends = (f"at {two_digits(min(ratio[name], 1e5))}" for name in ("high", "middle", "low"))
    lines = ["".join(f"{x:>12}" for x in ["N", "informative", "seconds", "measured", *ends])]
    for n, row in found["table"].items():
        cells = [n, f"{row['kept_share']:.0%}", two_digits(row["seconds"]), f"{row['measured_with'] or ''}"]
        lines.append("".join(f"{x:>12}" for x in [*cells, *(f"{x:.2f}" for x in row["noise"])]))
    if found["left_out"]:
        left_out = ", ".join(map(str, found["left_out"]))
        lines.append(f"Not measured, for lack of time or of informative prompts: N = {left_out}.")
        lines.append(f"So no N above {max(found['table'])} can be advised.")
    return "\n".join(lines)


def in_words(found: dict[str, Any], b: int) -> str:
    """Write the report, from the numbers of which_n.json."""
    ratio, best, table = found["V_w / V_b"], found["best"], found["table"]
    upper_end = two_digits(ratio["high"]) if ratio["high"] < 1e6 else "any"
    unmeasured = "" if ratio["measured"] else " (assumed: too few informative prompts)"
    if near := [n for n, row in table.items() if max(row["noise"]) <= 1.2]:
        close = f"Within 20% of the least: N = {', '.join(map(str, near))}."
    else:
        close = f"Its noise is up to {max(table[best]['noise']):.1f} times the least: V_w / V_b is hardly known."
    return f"""
{found["model"]}: {ratio["prompts"]} prompts, {ratio["informative"]} informative, {found["minutes"]:.1f} minutes
V_w / V_b = {two_digits(min(ratio["middle"], 1e5))}, 95%: {two_digits(ratio["low"])} to {upper_end}{unmeasured}

Seconds of a step that keeps B = {b}, how many kept prompts a step of this N
was measured with, and noise in equal time over the least, for three V_w / V_b
{table_in_words(found)}

N = {best} has the smallest worst case. {close}
  --rollouts_per_prompt {best} --prompts_per_step {b}
Not known: the best learning rate (train.py scales the recipe's), and later steps."""


def measure_and_write(config: Config, accelerator: Accelerator, setup: Setup, minutes: float) -> dict[str, Any]:
    """Measure, print and write the run's folder. Returns the numbers of which_n.json."""
    for group in setup.optimizer.param_groups:
        group["lr"] = 0.0
    ends = 60 * minutes
    steps = make_steps(config, accelerator, setup, STEPS_SHARE * (ends - setup.run.clock.seconds_of_slowest()))
    ratio = measure_ratio(steps, config, accelerator, setup, ends)
    found = {"model": short(config.model), "minutes": setup.run.clock.seconds_of_slowest() / 60}
    found |= answer(steps, ratio, config.prompts_per_step)
    if accelerator.is_main_process:
        print(in_words(found, config.prompts_per_step))
        write(setup.run.folder / "which_n.json", json.dumps(found, indent=2) + "\n")
        print(f"\nwrote {setup.run.folder}/: which_n.json, samples.jsonl")
    return found


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the program with these arguments. Returns the numbers of which_n.json. Raises Refusal."""
    parser = argparse.ArgumentParser("python -m tools.which_n", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--max_minutes", type=float, default=10.0, help="about; no step is stopped (default: 10)")
    own, flags = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    given = {flag.partition("=")[0] for flag in flags}
    if "--name" not in given:
        flags += ["--name", f"which_n-{time.strftime('%m%d-%H%M%S')}"]
    if "--data" in given and "--eval_data" not in given:
        flags += ["--eval_data", str(TINY / "test.jsonl")]  # nothing is evaluated
    if not own.max_minutes > 0:
        raise Refusal("--max_minutes must be positive")
    config, origins = read_settings((__doc__ or "").partition("\n")[0], flags, any_size=True)
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
        setup = set_up(config, accelerator, origins)
    found = measure_and_write(config, accelerator, setup, own.max_minutes)
    setup.close(accelerator)
    return found


if __name__ == "__main__":
    with explained(code=2):
        main()
