"""The runs behind docs/evidence.md and docs/which_n.md: section 4.2 and appendix A with the tiny policy, seeds 0 to 2.

    python -m evidence.experiments                      all of them, in the order below: many hours on 2 cores
    python -m evidence.experiments --only figure1 theorem --seeds 0
    python -m evidence.experiments --list               every run, and how far it is

    saturate   N = 16 from the embedded policy until held-out Q_pos hardly moves, with prompts of 9 tokens (compact) and
               of 128 (long: the same problems behind seven worked examples)
    figure1    ARMS from the saturated policies, at equal samples: each recipe, and the batch of brorl without its N
    controls   the same from another policy, `near` its plateau, and with one change (CONTROLS)
    objective  from `near`: each --advantage with N = 16, 64 and 512; _start: from the embedded policy; _hard: only on
               problems that `near` solves with a probability within HARD
    theorem    a few steps of prorl and brorl with Theorem 1 beside the exact change of Q_pos (exact_probe.py)
    hard       from the saturated policy, only on problems that it solves with a probability within HARD
    sweep      from the saturated policy N = 16 ... 2048, on 16,384 rollouts and on 32 prompts a step (appendix A)
    regimes    the arms of figure1 at other learning rates, and brorl with four times the prompts
    law        from the embedded policy, 20 steps of 4,096 rollouts with one update each, N = 2 to 512 at three rates

A run is one process of train.py on one core. The same command continues all runs after a stop. tiny/exact.py scores
each checkpoint of a run; then all but the last are deleted. One runner at a time: a run refuses a second process.
Mini-batches are of whole prompts at N = 16 and of rollouts above, each the cheaper of the two.
"""

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.rows import ROOT

PRORL: dict[str, Any] = {"recipe": "prorl", "mini_batches": "prompts", "refill": 8}
BRORL: dict[str, Any] = {"recipe": "brorl"}
LOW, MIDDLE, HIGH = ({"learning_rate": rate} for rate in (1e-5, 3.5e-5, 1e-4))
BATCH = PRORL | HIGH | {"prompts_per_step": 1024}
BRORL128 = BRORL | {"prompts_per_step": 128}
# Settings, steps between checkpoints. brorl: N = 512, 32 prompts, 1e-4 = 3.5e-5 sqrt(8), by the recipe of the policy.
ARMS = {"prorl": (PRORL, 10), "brorl": (BRORL, 2), "batch": (BATCH, 1)}
CONTINUED = {"compact": 1_000_000, "long": 600_000}  # samples of an arm of figure 1

MOMENTS, WARM = {"optimizer_from": "near/checkpoints/step_00000800"}, {"warmup_updates": 40}
CONTROLS: dict[str, tuple[str, dict, int]] = {  # the arm, what is changed, with how many of the seeds
    "prorl": ("prorl", {}, 3),
    "brorl": ("brorl", {}, 3),
    "brorl_alike": ("brorl", {"mini_batches": "prompts", "refill": 8}, 3),
    "brorl_moments": ("brorl", MOMENTS, 3),
    "batch": ("batch", {}, 3),
    "batch_moments": ("batch", MOMENTS, 3),
    "brorl_warmup": ("brorl", WARM, 3),
    "prorl_moments": ("prorl", MOMENTS, 1),
    "batch_warmup": ("batch", WARM, 1),
    "prorl_warmup": ("prorl", WARM, 1),
    "prorl_mixed": ("prorl", {"mini_batches": "rollouts", "refill": 4}, 1),
    "prorl_few": ("prorl", HIGH | {"prompts_per_step": 32}, 3),
}
OBJECTIVE_N = {  # learning rate, samples (a wide group's are cheap), steps between checkpoints
    16: (3.5e-5, 500_000, 20),
    512: (1e-4, 2_500_000, 2),
    64: (5e-5, 500_000, 8),
}
HARD = 0.001, 0.05  # a problem is hard if the policy solves it with a probability between these
HARD_ARMS = {  # settings, steps between checkpoints, samples of seed 0, of the other seeds
    "prorl": (PRORL, 4, 6_000_000, 1_500_000),
    "prorl_lr10": (PRORL | LOW, 4, 3_000_000, 0),
    "brorl128_lr35": (BRORL128 | MIDDLE, 1, 3_000_000, 0),
    "brorl128_lr100": (BRORL128 | HIGH, 1, 3_000_000, 1_500_000),
}
REGIMES = {
    "prorl_lr10": (PRORL | LOW, 10),
    "brorl_lr35": (BRORL | MIDDLE, 4),
    "brorl_lr10": (BRORL | LOW, 4),
    "batch_lr35": (BATCH | MIDDLE, 1),
    "batch_lr10": (BATCH | LOW, 1),
    "brorl128_lr100": (BRORL128 | HIGH, 1),
    "brorl128_lr35": (BRORL128 | MIDDLE, 1),
}
TRAIN, PROBE, SCORE = ("train.py",), ("-m", "evidence.exact_probe"), ("-m", "tiny.exact")  # what python is called with


@dataclass
class Run:
    part: str
    name: str
    settings: dict  # of train.py; the budget is max_steps or max_samples
    start: str = ""  # the run whose model it starts from; none: the embedded policy
    problems: str = ""  # a list in the folder of the runs; none: those of tiny/
    script: tuple[str, ...] = TRAIN


def runs(seeds: list[int]) -> Iterator[Run]:
    """All of them, in the order in which they are run."""
    yield Run("saturate", "saturate-compact", {"recipe": "prorl", "refill": 8, "max_steps": 1500, "save_every": 100})
    yield Run("saturate", "saturate-long", PRORL | {"max_steps": 1910, "save_every": 100}, problems="long")
    for seed, world, (arm, (settings, every)) in itertools.product(seeds, CONTINUED, ARMS.items()):
        budget = {"seed": seed, "max_samples": CONTINUED[world], "save_every": every}
        long = "long" if world == "long" else ""
        yield Run("figure1", f"{arm}-{world}-seed{seed}", settings | budget, f"saturate-{world}", long)

    yield Run("controls", "near", PRORL | {"max_steps": 800, "save_every": 100})
    for seed, (name, (arm, changed, several)) in itertools.product(seeds, CONTROLS.items()):
        settings, every = ARMS[arm]
        budget = {"seed": seed, "max_samples": 250_000, "save_every": every}
        if seed in seeds[:several]:
            yield Run("controls", f"control-{name}-seed{seed}", settings | changed | budget, "near")

    kinds, places = ("group_mean", "mean_centred", "group_std"), ("objective", "objective_start", "objective_hard")
    for seed, kind, (n, (rate, samples, every)), part in itertools.product(seeds, kinds, OBJECTIVE_N.items(), places):
        if (kind, seed, part) == ("group_mean", 0, "objective"):
            samples = max(samples, 1_500_000)  # do N = 16 and 64 stand still?
        if n == 512 and seed and part == "objective_hard":
            samples = 2_000_000
        settings = {"recipe": "prorl", "rollouts_per_prompt": n, "prompts_per_step": 128, "learning_rate": rate,
                    "refill": 8, "advantage": kind, "eval_samples": 4, "seed": seed, "max_samples": samples,
                    "save_every": every}  # fmt: skip
        hard, start = "hard-near" if part == "objective_hard" else "", "" if part == "objective_start" else "near"
        yield Run(part, f"{part}-{kind}_{n}-seed{seed}", settings, start, hard)

    samples_of = {"prorl": 100_000, "brorl": 400_000}
    for start, (arm, samples) in itertools.product(("", "saturate-compact"), samples_of.items()):
        name = f"theorem-{arm}-{'saturated' if start else 'start'}"
        yield Run("theorem", name, ARMS[arm][0] | {"max_samples": samples, "save_every": 1000}, start, script=PROBE)

    for seed, (arm, (settings, every, first, others)) in itertools.product(seeds, HARD_ARMS.items()):
        if samples := others if seed else first:
            budget = {"seed": seed, "max_samples": samples, "save_every": every}
            yield Run("hard", f"hard-{arm}-seed{seed}", settings | budget, "saturate-compact", "hard")

    for seed, n in itertools.product(seeds, (16, 64, 128, 256, 512, 1024, 2048)):
        settings = BRORL | MIDDLE | {"rollouts_per_prompt": n, "refill": 8, "seed": seed, "save_every": 2}
        settings |= {"mini_batches": "prompts"} if n == 16 else {}
        for kind, budget in (("sweep", {"prompts_per_step": 16384 // n, "max_samples": 500_000}),
                             ("steps", {"prompts_per_step": 32, "max_steps": 12})):  # fmt: skip
            yield Run("sweep", f"{kind}-{n}-seed{seed}", settings | budget, "saturate-compact")

    for seed, (arm, (settings, every)) in itertools.product(seeds, REGIMES.items()):
        budget = {"seed": seed, "max_samples": CONTINUED["compact"], "save_every": every}
        yield Run("regimes", f"{arm}-compact-seed{seed}", settings | budget, "saturate-compact")

    for seed, rate, n in itertools.product(seeds, (3e-4, 1e-3, 3e-3), (2, 4, 8, 16, 64, 512)):
        settings = {"rollouts_per_prompt": n, "prompts_per_step": 4096 // n, "learning_rate": rate, "seed": seed,
                    "refill": 1, "updates_per_step": 1, "warmup_updates": 5, "eval_samples": 1, "max_steps": 20,
                    "save_every": 10}  # fmt: skip
        settings |= {"log_noise": 5} if n >= 4 else {}
        yield Run("law", f"law-n{n}_lr{rate:g}-seed{seed}", settings)


PARTS = list(dict.fromkeys(run.part for run in runs([0])))


def flags(out: Path, run: Run) -> list[str]:
    """The arguments of train.py."""
    values = {"name": run.name, "output_dir": out, "eval_every": 0, "keep_checkpoints": 10_000} | run.settings
    if run.start:
        values["model"] = out / run.start / "model"
    elif run.problems == "long":
        values["model"] = out / "long" / "policy"
    if run.problems == "long":
        values |= {"data": out / "long" / "train.jsonl", "eval_data": out / "long" / "test.jsonl"}
    elif run.problems:
        values |= dict.fromkeys(("data", "eval_data"), out / f"{run.problems}.jsonl")
    if "optimizer_from" in values:
        values["optimizer_from"] = out / values["optimizer_from"]
    return [str(x) for name, value in values.items() for x in (f"--{name}", value)]


def stage(out: Path, run: Run) -> str:
    """What the run needs next: train, score, or nothing."""
    done, wanted, _ = progress(out, run)
    if done < wanted or not (out / run.name / "model").is_dir():
        return "train"
    return "" if last(out, run)["step"] in scored(out / run.name) else "score"


def last(out: Path, run: Run) -> dict:
    """The last whole line of the run's metrics; {} before the first."""
    path = out / run.name / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    return json.loads(whole[-1]) if whole else {}


def progress(out: Path, run: Run) -> tuple[int, int, str]:
    """Steps or samples that are done, and wanted."""
    unit = "steps" if "max_steps" in run.settings else "samples"
    return last(out, run).get("step" if unit == "steps" else unit, 0), run.settings[f"max_{unit}"], unit


def changed(out: Path, run: Run) -> list[str]:
    """The settings that the folder's run was not made with; its budget and its checkpoints may differ."""
    path, free = out / run.name / "config.json", ("max_steps", "max_samples", "save_every", "optimizer_from")
    was = json.loads(path.read_text()) if path.exists() else run.settings
    return [f"--{name} ({was.get(name)}, not {x})" for name, x in run.settings.items()
            if name not in free and was.get(name) != x]  # fmt: skip


def scored(folder: Path) -> set[int]:
    """The steps that exact.csv has."""
    path = folder / "exact.csv"
    return {int(float(x.split(",")[0])) for x in path.read_text().splitlines()[1:]} if path.exists() else set()


def begin(out: Path, run: Run, what: str, core: int) -> subprocess.Popen:
    """Train or score, on one core, so that processor seconds compare."""
    folder = out / run.name
    resume = ["--resume"] if (folder / "config.json").exists() else []
    command = [*run.script, *flags(out, run), *resume] if what == "train" else [*SCORE, str(folder)]
    with (out / f"{run.name}.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip


def work_through(out: Path, todo: list[Run], jobs: int, running: dict) -> set[str]:
    """One run per core. A run waits for the run that it starts from. Returns the names of failed runs.

    running: by core the run, what it does, its process.
    """
    cores, started = sorted(os.sched_getaffinity(0))[:jobs], time.time()
    failed: set[str] = set()
    while True:
        for core in [core for core in cores if core not in running]:
            unfinished = {r.name for r in [*todo, *(r for r, _, _ in running.values())]} | failed
            if ready := [r for r in todo if r.start not in unfinished]:
                run = ready[0]
                todo.remove(run)
                make_problems(out, run)
                what = stage(out, run)
                running[core] = run, what, begin(out, run, what, core)
                print(f"{time.time() - started:7.0f} s  {run.name} begins, {len(todo)} to come", flush=True)
        if not running:
            return failed
        time.sleep(0.1)
        for core, (run, what, process) in list(running.items()):
            if (status := process.poll()) is None:
                continue
            del running[core]
            then = stage(out, run) if status == 0 else what
            if then == what:  # it failed, or ended short of its budget
                failed.add(run.name)
            elif then:
                running[core] = run, then, begin(out, run, then, core)
                continue
            else:
                for old in sorted((out / run.name / "checkpoints").glob("step_*"))[:-1]:
                    shutil.rmtree(old)
            print(f"{time.time() - started:7.0f} s  {run.name} {'failed' if run.name in failed else 'finished'}")


def make_problems(out: Path, run: Run) -> None:
    """The list of problems that the run trains on, where it is not there yet."""
    if run.problems == "long" and not (out / "long" / "policy" / "recipe.json").exists():
        command = [sys.executable, "-m", "tiny.make", "--examples", "7", "--out", str(out / "long")]
        subprocess.run(command, check=True, cwd=ROOT)
        shutil.copy(ROOT / "tiny/policy/recipe.json", out / "long" / "policy")  # measured with compact prompts
    elif run.problems.startswith("hard"):
        make_hard(out / run.start / "model", ROOT / "tiny" / "train.jsonl", out / f"{run.problems}.jsonl")


def make_hard(model: Path, problems: Path, hard: Path) -> None:
    """Those of the problems that the model solves with a probability within HARD, where they are not there yet."""
    if hard.exists():
        return
    from tiny import exact  # here: --list needs no models, and they take seconds to import
    from verify import load_data

    policy, tokenizer = exact.load_policy(str(model))
    q_pos = [float(logp.exp().sum()) for logp in exact.log_probs(policy, tokenizer, load_data([str(problems)]))]
    rows = zip(problems.read_text().splitlines(keepends=True), q_pos, strict=True)
    new = hard.with_suffix(".new")
    new.write_text("".join(row for row, q in rows if HARD[0] <= q < HARD[1]))
    new.replace(hard)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "runs/evidence", help="where the runs are written (default: runs/evidence)")
    add("--only", nargs="+", choices=PARTS, default=PARTS, help="parts, with the runs that they start from")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--jobs", type=int, default=os.cpu_count(), help="runs at a time, one core for each")
    add("--list", action="store_true", help="show every run, run nothing")
    args = parser.parse_args()
    out, every = args.out.resolve(), list(runs(args.seeds))
    starts = {run.start for run in every if run.part in args.only}
    chosen = [run for run in every if run.part in args.only or run.name in starts]
    if args.list:
        for run in chosen:
            done, wanted, unit = progress(out, run)
            print(f"{run.part:15} {run.name:40} {f'{done:,} of {wanted:,} {unit}' if stage(out, run) else 'finished'}")
    if other := [f"{run.name}: {', '.join(found)}" for run in chosen if (found := changed(out, run))]:
        sys.exit(f"made with other settings: delete these runs, or name another --out: {'; '.join(other)}")
    if args.list:
        return
    out.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped: the same command goes on from here"))
    running: dict[int, tuple[Run, str, subprocess.Popen]] = {}
    try:
        failed = work_through(out, [run for run in chosen if stage(out, run)], args.jobs, running)
    finally:
        for _, _, process in running.values():
            process.terminate()
    if failed:
        sys.exit(f"failed: {', '.join(sorted(failed))}: see their .log in {out}")


if __name__ == "__main__":
    main()
