"""The runs behind docs/evidence.md: section 4.2 and appendix A with the tiny policy, seeds 0 to 2.

    python -m evidence.experiments                      everything, in the order below: many hours on 2 cores
    python -m evidence.experiments --only figure1 theorem --seeds 0
    python -m evidence.experiments --list               what there is, and how far it is

    worlds     compact   tiny/: prompts of 8 or 9 tokens
               long      the same problems behind seven worked examples, 128 tokens, and a policy that reads them
    saturate   N = 16 from the embedded policy, until the held-out Q_pos hardly moves (one run a world)
    figure1    from there, each recipe for as many generated samples (figure 1, table 1):
                 prorl    N = 16, 128 prompts a step, learning rate 3.5e-5, as before
                 brorl    N = 512, 32 prompts a step, 1e-4 = 3.5e-5 sqrt(8)
                 batch    N = 16, 1,024 prompts a step, 1e-4: the batch of brorl without its N
    theorem    a few steps of prorl and brorl, from the start and from there, with Theorem 1 beside the exact change
               of Q_pos (exact_probe.py)
    hard       from there, on those training problems only of which the policy solves 0.1% to 5%: of 16 rollouts most
               groups show nothing; N = 512 with the paper's 128 prompts
    sweep      from there, N = 16 ... 2048 at 3.5e-5: training on 16,384 rollouts a step, so on fewer prompts, and on 32
               prompts a step, so on more rollouts (appendix A)
    regimes    the arms of figure1 at other learning rates, and brorl with four times the prompts: where does the claim
               hold?
    controls   from another policy, near the plateau (`near`: N = 16, 800 steps, compact), the same three arms for a
               quarter of the samples, and again with one thing changed:
                 alike      brorl with the mini-batches (whole prompts) and the refill of prorl
                 mixed      prorl with those of brorl
                 few        prorl with brorl's 32 prompts a step and its learning rate
                 moments    each arm goes on with the AdamW moments of the run before it, not with fresh ones
                 warmup     each arm's learning rate rises over its first 40 updates
    null       from the same, no training at all: every weight moved by the same amount up or down, at random (null.py)
    objective  from the same, 128 prompts a step: each --advantage with N = 16, 64 and 512; and so from the embedded
               policy (`objective_start`), and on those problems only that the policy solves with 0.1% to 5%
               (`objective_hard`)

A run is one process of train.py on one core, `--jobs` of them at a time; what is begun is resumed, what is finished is
left alone, so it can be stopped and called again at any time. A finished run is scored by tiny/exact.py at each of its
checkpoints, which are deleted then but for the last. evidence/draw.py makes the tables and figures of what is there.

Mini-batches are of whole prompts at N = 16 and of rollouts from all prompts above: each the cheaper of the two, and at
N = 512 the one that mixes best. In `objective` all are of rollouts, and in the compact saturating run. Optimizer and
reference start anew in every arm, but for `moments`.
"""

import argparse
import fcntl
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from evidence.runs import ROOT

OUT = ROOT / "runs" / "evidence"

SATURATED = {"compact": 1500, "long": 1910}  # steps after which the held-out Q_pos is flat
CONTINUED = {"compact": 1_000_000, "long": 600_000}  # samples of each arm of figure 1
SWEPT, SWEPT_STEPS = 500_000, 12
SWEEP = (16, 64, 128, 256, 512, 1024, 2048)
PRORL = ["--recipe", "prorl", "--mini_batches", "prompts", "--refill", "8"]
ARMS = {  # arguments, steps between checkpoints
    "prorl": (PRORL, 10),
    "brorl": (["--recipe", "brorl"], 2),
    "batch": ([*PRORL, "--prompts_per_step", "1024", "--learning_rate", "1e-4"], 1),
}

WARM = ["--warmup_updates", "40"]  # five steps
CONTROL_SAMPLES, NEAR = 250_000, 800
CONTROLS = {  # the arm, what is changed, with how many of the seeds; "moments" stands for the checkpoint's path
    "prorl": ("prorl", [], 3),
    "brorl": ("brorl", [], 3),
    "brorl_alike": ("brorl", ["--mini_batches", "prompts", "--refill", "8"], 3),
    "brorl_moments": ("brorl", ["moments"], 3),
    "batch": ("batch", [], 3),
    "batch_moments": ("batch", ["moments"], 3),
    "brorl_warmup": ("brorl", WARM, 3),
    "prorl_moments": ("prorl", ["moments"], 1),
    "batch_warmup": ("batch", WARM, 1),
    "prorl_warmup": ("prorl", WARM, 1),
    "prorl_mixed": ("prorl", ["--mini_batches", "rollouts", "--refill", "4"], 1),
    "prorl_few": ("prorl", ["--prompts_per_step", "32", "--learning_rate", "1e-4"], 3),
}
OBJECTIVES = "group_mean", "mean_centred", "group_std"
OBJECTIVE_N = {  # learning rate, samples (a wide group's are cheap), steps between checkpoints
    "16": ("3.5e-5", 500_000, 20),
    "512": ("1e-4", 2_500_000, 2),
    "64": ("5e-5", 500_000, 8),
}
OBJECTIVE_LONGER = {"16": 1_500_000, "64": 1_500_000}  # group_mean's of seed 0: does it stand still?
OBJECTIVE_HARD = {"512": 2_000_000}  # of the other seeds
HARD, HARD_SAMPLES, HARD_LONGER, HARD_LONGEST = (0.001, 0.05), 1_500_000, 3_000_000, 6_000_000
HARD_FROM = {"hard": ("saturate-compact", "hard.jsonl"), "objective_hard": ("near", "hard-near.jsonl")}
HARD_ARMS = {
    "prorl": (PRORL, 4),
    "prorl_lr10": ([*PRORL, "--learning_rate", "1e-5"], 4),
    "brorl128_lr35": (["--recipe", "brorl", "--prompts_per_step", "128", "--learning_rate", "3.5e-5"], 1),
    "brorl128_lr100": (["--recipe", "brorl", "--prompts_per_step", "128", "--learning_rate", "1e-4"], 1),
}
REGIMES = {  # arm and learning rate in millionths; steps between checkpoints
    "prorl_lr10": ([*PRORL, "--learning_rate", "1e-5"], 10),
    "brorl_lr35": (["--recipe", "brorl", "--learning_rate", "3.5e-5"], 4),
    "brorl_lr10": (["--recipe", "brorl", "--learning_rate", "1e-5"], 4),
    "batch_lr35": ([*PRORL, "--prompts_per_step", "1024", "--learning_rate", "3.5e-5"], 1),
    "batch_lr10": ([*PRORL, "--prompts_per_step", "1024", "--learning_rate", "1e-5"], 1),
    "brorl128_lr100": (["--recipe", "brorl", "--prompts_per_step", "128", "--learning_rate", "1e-4"], 1),
    "brorl128_lr35": (["--recipe", "brorl", "--prompts_per_step", "128", "--learning_rate", "3.5e-5"], 1),
}

GOING: set[subprocess.Popen] = set()
STOPPING = threading.Event()  # set by a signal
LOCK: list[int] = []  # a file that the processes hold open
HARD_LOCK = threading.Lock()


TRAIN, SCORE = ("train.py",), ("-m", "tiny.exact")  # what python is called with


@dataclass
class Run:
    part: str
    name: str
    arguments: list[str]
    needs: list[str] = field(default_factory=list)  # runs that must be finished before it
    script: tuple[str, ...] = TRAIN


class Worlds:
    """Where the policies and problems of `compact` and `long` prompts are, before and after saturation."""

    def __init__(self, out: Path):
        self.out = out
        long = ["--data", f"{out}/long/train.jsonl", "--eval_data", f"{out}/long/test.jsonl"]
        problems: dict[str, list[str]] = {"compact": [], "long": long}
        start = {"compact": [], "long": ["--model", f"{out}/long/policy"]}
        self.start = {world: [*start[world], *problems[world]] for world in start}
        self.saturated = {world: ["--model", f"{out}/saturate-{world}/model", *problems[world]] for world in start}


def training(part, name, arguments, samples, every, needs=(), script=TRAIN, budget="max_samples") -> Run:
    """A run of train.py to a budget, with a checkpoint every so many steps."""
    settings = {budget: samples, "save_every": every, "keep_checkpoints": 10_000, "eval_every": 0}
    arguments = [*arguments, *(str(x) for k, v in settings.items() for x in (f"--{k}", v))]
    return Run(part, name, arguments, list(needs), script)


def runs(out: Path, seeds: list[int]) -> list[Run]:
    """Everything, in the order in which it is to be run."""
    worlds = Worlds(out)
    return [*saturate(worlds), *figure1(worlds, seeds), *controls(out, seeds), *objective(out, seeds), *theorem(worlds),
            *hard(worlds, seeds), *sweep(worlds, seeds), *regimes(worlds, seeds)]  # fmt: skip


def saturate(worlds: Worlds) -> Iterator[Run]:
    for world, start in worlds.start.items():
        arguments = ["--recipe", "prorl", "--refill", "8", *(["--mini_batches", "prompts"] * (world == "long"))]
        name, steps = f"saturate-{world}", SATURATED[world]
        yield training("saturate", name, [*arguments, *start], steps, 100, budget="max_steps")


def figure1(worlds: Worlds, seeds: list[int]) -> Iterator[Run]:
    for seed, (world, start) in itertools.product(seeds, worlds.saturated.items()):
        for arm, (arguments, every) in ARMS.items():
            arguments = [*arguments, *start, "--seed", str(seed)]
            yield training(
                "figure1", f"{arm}-{world}-seed{seed}", arguments, CONTINUED[world], every, [f"saturate-{world}"]
            )


def controls(out: Path, seeds: list[int]) -> Iterator[Run]:
    """The arms from another policy, with one thing changed, and the null from the same."""
    yield training("controls", "near", PRORL, NEAR, 100, budget="max_steps")
    moments = ["--optimizer_from", f"{out}/near/checkpoints/step_{NEAR:08d}"]
    for i, seed in enumerate(seeds):
        for name, (arm, changes, of) in CONTROLS.items():
            changes = moments if changes == ["moments"] else changes
            if i < of:
                arguments = [*ARMS[arm][0], *changes, "--model", f"{out}/near/model", "--seed", str(seed)]
                yield training(
                    "controls", f"control-{name}-seed{seed}", arguments, CONTROL_SAMPLES, ARMS[arm][1], ["near"]
                )
    yield Run("null", "null", [f"{out}/near/model", f"{out}/null.csv"], ["near"], ("-m", "evidence.null"))


def objective(out: Path, seeds: list[int]) -> Iterator[Run]:
    """Each kind of advantage with each N."""
    near = ["--model", f"{out}/near/model"]
    hard = [*near, "--data", f"{out}/hard-near.jsonl", "--eval_data", f"{out}/hard-near.jsonl"]
    each = itertools.product(seeds, OBJECTIVES, OBJECTIVE_N.items(), ("", "_start", "_hard"))
    for seed, kind, (n, (rate, samples, every)), where in each:
        if kind == "group_mean" and seed == 0 and not where:
            samples = OBJECTIVE_LONGER.get(n, samples)
        if where == "_hard" and seed:
            samples = OBJECTIVE_HARD.get(n, samples)
        settings = {"recipe": "prorl", "rollouts_per_prompt": n, "prompts_per_step": 128, "learning_rate": rate,
                    "refill": 8, "advantage": kind, "eval_samples": 4, "log_noise": 0, "seed": seed}  # fmt: skip
        arguments = [str(x) for name, value in settings.items() for x in (f"--{name}", value)]
        arguments += {"": near, "_start": [], "_hard": hard}[where]
        part, name = f"objective{where}", f"objective{where}-{kind}_{n}-seed{seed}"
        yield training(part, name, arguments, samples, every, ["near"] * (where != "_start"))


def theorem(worlds: Worlds) -> Iterator[Run]:
    for where, model in (("start", worlds.start["compact"]), ("saturated", worlds.saturated["compact"])):
        for arm, samples in (("prorl", 100_000), ("brorl", 400_000)):
            arguments = [*ARMS[arm][0], *model, "--log_mass_balance"]
            needs = ["saturate-compact"] * (where == "saturated")
            probe = ("-m", "evidence.exact_probe")
            yield training("theorem", f"theorem-{arm}-{where}", arguments, samples, 1000, needs, probe)


def hard(worlds: Worlds, seeds: list[int]) -> Iterator[Run]:
    problems = ["--data", f"{worlds.out}/hard.jsonl", "--eval_data", f"{worlds.out}/hard.jsonl"]
    for seed, (arm, (arguments, every)) in itertools.product(seeds, HARD_ARMS.items()):
        if seed and arm not in ("prorl", "brorl128_lr100"):  # the others with one seed, for their learning rates
            continue
        longer = HARD_LONGEST if arm == "prorl" else HARD_LONGER  # does N = 16 stand still?
        arguments = [*arguments, *worlds.saturated["compact"], *problems, "--seed", str(seed)]
        samples = HARD_SAMPLES if seed else longer
        yield training("hard", f"hard-{arm}-seed{seed}", arguments, samples, every, ["saturate-compact"])


def sweep(worlds: Worlds, seeds: list[int]) -> Iterator[Run]:
    for seed, n in itertools.product(seeds, SWEEP):
        arguments = ["--recipe", "brorl", "--rollouts_per_prompt", str(n), "--learning_rate", "3.5e-5",
                     "--refill", "8", "--seed", str(seed), *worlds.saturated["compact"]]  # fmt: skip
        arguments += ["--mini_batches", "prompts"] * (n == 16)
        for name, b, budget, spent in (("sweep", 16384 // n, "max_samples", SWEPT),
                                       ("steps", 32, "max_steps", SWEPT_STEPS)):  # fmt: skip
            yield training("sweep", f"{name}-{n}-seed{seed}", [*arguments, "--prompts_per_step", str(b)], spent, 2,
                      ["saturate-compact"], budget=budget)  # fmt: skip


def regimes(worlds: Worlds, seeds: list[int]) -> Iterator[Run]:
    for seed, (arm, (arguments, every)) in itertools.product(seeds, REGIMES.items()):
        arguments = [*arguments, *worlds.saturated["compact"], "--seed", str(seed)]
        samples = CONTINUED["compact"]
        yield training("regimes", f"{arm}-compact-seed{seed}", arguments, samples, every, ["saturate-compact"])


# ------------------------------------------------------------------------------------------------ how far they are


def state(out: Path, run: Run) -> str:
    """finished, begun at so many samples, or nothing yet."""
    folder = out / run.name
    if run.part == "null":
        return "finished" if (out / "null.csv").exists() else ""
    try:
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        settings = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, IndexError):
        return ""
    budget = "max_steps" if "--max_steps" in run.arguments else "max_samples"
    wanted, unit = int(run.arguments[run.arguments.index(f"--{budget}") + 1]), budget.removeprefix("max_")
    done = last["step" if unit == "steps" else unit]
    if differs := other_settings(run.arguments, settings):
        return f"made with another {differs}: delete it, or name another --out"
    whole = (folder / "model").is_dir() and done >= wanted and (settings[budget] or 0) >= wanted
    return "finished" if whole and last["step"] in scored(folder) else f"{done:,} of {wanted:,} {unit}"


FREE = {"max_samples", "max_steps", "model", "data", "eval_data", "eval_every", "keep_checkpoints", "save_every"}


def other_settings(arguments: list[str], settings: dict) -> str:
    """The first setting that a run was not made with; budgets, paths and how often it was looked at are free."""
    given = {flag: value for flag, value in itertools.pairwise([*arguments, "--"]) if flag.startswith("--")}
    for flag, value in given.items():  # of a flag that comes twice the last
        if (name := flag.removeprefix("--")) in FREE:
            continue
        was, value = settings.get(name), "True" if value.startswith("--") else value
        if str(was) != value and not (isinstance(was, (int, float)) and float(value) == was):
            return f"{flag} ({was}, not {value})"
    return ""


def scored(folder: Path) -> set[int]:
    """The steps that exact.csv has."""
    path = folder / "exact.csv"
    return {int(float(x.split(",")[0])) for x in path.read_text().splitlines()[1:]} if path.exists() else set()


# ------------------------------------------------------------------------------------------------ running them


def go(out: Path, run: Run, core: int) -> int:
    """One run to its end, on one core, then its exact scores. Returns the exit status; 1 and a .log if it cannot."""
    try:
        status = train_and_score(out, run, core)
    except Exception:  # the other runs go on
        with (out / f"{run.name}.log").open("a") as log:
            traceback.print_exc(file=log)
        return 1
    if status == 0 and (left := state(out, run)) != "finished":
        with (out / f"{run.name}.log").open("a") as log:
            log.write(f"experiments.py: ended without an error, but it is at {left}\n")
        return 1
    return status


def train_and_score(out: Path, run: Run, core: int) -> int:
    """What `go` does, with whatever it raises."""
    folder = out / run.name
    if run.part in HARD_FROM:
        policy, problems = HARD_FROM[run.part]
        make_hard(out / policy / "model", ROOT / "tiny" / "train.jsonl", out / problems)
    resume = ["--resume"] if (folder / "config.json").exists() else []
    command = [sys.executable, *run.script, *run.arguments, *resume]
    if run.part != "null":
        command += ["--name", run.name, "--output_dir", str(out)]
    with (out / f"{run.name}.log").open("a") as log:

        def call(arguments: list[str]) -> int:
            if STOPPING.is_set():
                return 143
            process = subprocess.Popen(
                arguments,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                pass_fds=LOCK,  # so that nobody begins it again while it lives
                start_new_session=True,  # Ctrl-C reaches this process only, which sends SIGTERM
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # a core each: their CPU seconds compare
            )
            GOING.add(process)
            if STOPPING.is_set():  # the signal came in between
                process.terminate()
            try:
                return process.wait()
            finally:
                GOING.discard(process)

        if (status := call(command)) or run.part == "null":
            return status
        if status := call([sys.executable, *SCORE, str(folder)]):
            return status
    done = scored(folder)
    for old in sorted((folder / "checkpoints").glob("step_*"))[:-1]:
        if int(old.name.removeprefix("step_")) in done:
            shutil.rmtree(old)
    return 0


def stop(*_) -> None:
    """SIGTERM or Ctrl-C: the runs write a checkpoint and end, and so does this."""
    STOPPING.set()
    for process in list(GOING):
        process.terminate()


def make_long(out: Path) -> None:
    """The world of long prompts, where it is not there yet."""
    if not (out / "long" / "policy" / "model.safetensors").exists():
        command = [sys.executable, "-m", "tiny.make", "--examples", "7", "--out", str(out / "long")]
        subprocess.run(command, check=True, cwd=ROOT)
    recipe = out / "long" / "policy" / "recipe.json"  # of the same policy, measured with compact prompts
    if not recipe.exists():
        recipe.write_text((ROOT / "tiny/policy/recipe.json").read_text())


def make_hard(model: Path, problems: Path, hard: Path) -> None:
    """Those of the problems that the model solves with a probability within HARD, where they are not there yet."""
    with HARD_LOCK:
        if hard.exists():
            return
        from transformers.utils import logging  # here: --list needs no models, and they take seconds to import

        from tiny import exact
        from verify import load_data

        logging.disable_progress_bar()  # of loading the model
        policy, tokenizer = exact.load_policy(str(model))
        known = exact.log_probs(policy, tokenizer, load_data([str(problems)]))
        q_pos = [float(logp.exp().sum()) for logp in known]
        rows = zip(problems.read_text().splitlines(keepends=True), q_pos, strict=True)
        new = hard.with_suffix(".new")
        new.write_text("".join(row for row, q in rows if HARD[0] <= q < HARD[1]))
        new.replace(hard)


def main() -> None:
    args = parse()
    out = args.out.resolve()
    wanted = chosen(out, args)
    needed = {name for r in wanted for name in r.needs}
    todo = [r for r in runs(out, args.seeds) if r in wanted or r.name in needed]
    if args.list:
        for run in todo:
            print(f"{run.part:9} {run.name:24} {state(out, run) or 'not begun'}")
        return
    out.mkdir(parents=True, exist_ok=True)
    lock = (out / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"experiments.py is at work in {out} already: wait for it, stop it, or name another --out")
    LOCK.append(lock.fileno())
    if any("-long" in r.name for r in todo):
        make_long(out)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    failed, left = work_through(out, [r for r in todo if state(out, r) != "finished"], args.jobs)
    if STOPPING.is_set():
        sys.exit("stopped: the same command goes on from here")
    if failed or left:
        sys.exit(f"failed: {', '.join(sorted(failed))}: see their .log in {out}; waiting for these: {left} runs")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("saturate", "figure1", "controls", "null", "objective", "objective_start", "objective_hard", "theorem",
             "hard", "sweep", "regimes")  # fmt: skip
    add = parser.add_argument
    add("--out", type=Path, default=OUT, help="where the runs are written (default: runs/evidence)")
    add("--only", nargs="+", choices=parts, default=parts, help="parts; what they need comes with them")
    add("--worlds", nargs="+", choices=("compact", "long"), default=("compact", "long"))
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--jobs", type=int, default=os.cpu_count(), help="runs at a time, a core each")
    add("--list", action="store_true", help="show what there is, run nothing")
    args = parser.parse_args()
    if args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: give at least 1")
    if not chosen(args.out, args):
        parser.error(f"nothing to run: {', '.join(args.only)} has no runs with {', '.join(args.worlds)} prompts")
    return args


def chosen(out: Path, args: argparse.Namespace) -> list[Run]:
    return [r for r in runs(out, args.seeds)
            if r.part in args.only and ("long" if "-long" in r.name else "compact") in args.worlds]  # fmt: skip


def work_through(out: Path, todo: list[Run], jobs: int) -> tuple[set[str], int]:
    """So many runs at a time, each when those it needs are done. Returns who failed, and how many were not begun."""
    cores = sorted(os.sched_getaffinity(0))[:jobs]
    failed: set[str] = set()
    going: dict[Future, tuple[Run, int]] = {}
    started = time.time()
    with ThreadPoolExecutor(len(cores)) as pool:
        while todo or going:
            waiting = {r.name for r in [*todo, *(r for r, _ in going.values())]} | failed
            ready = [] if STOPPING.is_set() else [r for r in todo if not waiting & set(r.needs)]
            for run in ready[: len(cores) - len(going)]:
                core = next(c for c in cores if c not in [c for _, c in going.values()])
                todo.remove(run)
                going[pool.submit(go, out, run, core)] = run, core
                print(f"{time.time() - started:7.0f} s  {run.name} begins, {len(todo)} to come", flush=True)
            if not going:
                break
            for done in wait(going, return_when=FIRST_COMPLETED).done:
                run, _ = going.pop(done)
                if status := done.result():
                    failed.add(run.name)
                print(f"{time.time() - started:7.0f} s  {run.name} {f'failed ({status})' if status else 'finished'}")
    return failed, len(todo)


if __name__ == "__main__":
    main()
