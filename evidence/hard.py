# mypy: ignore-errors
"""One registered experiment: do many rollouts pay on hard problems with expensive prompts? N = 16, 64 and 512.

    python -m evidence.hard problems --model M       exact p of random problems until 600 are hard
    python -m evidence.hard run                      all runs that hard.csv lacks, in the registered order
    python -m evidence.hard pilot N B RATE CAP       one run of the pilot's seed, into pilot.csv

docs/evidence.md has the registration. A problem is hard if the policy solves it with a probability in BAND; every
prompt has seven solved examples before its problem, about 128 tokens in all. A fifth of the hard problems are held out.

A run is one process with one torch thread. Its clock is the processor time of train.train, of all threads and
children, without evaluations. After each update Q_pos of the held-out hard problems is summed exactly, and after 10
seconds or more and at the end of a run that of ordinary held-out problems. A run that was killed starts over.

Arm 512:64 draws N = 512 and trains on the 64 rollouts of each group whose rewards differ most (2504.13818).
"""

import argparse
import csv
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import loss as L
import train
from lab import variants
from tiny.answers import answers
from tiny.exact import alphabet, load_policy, log_probs
from tiny.make import Universe
from trainer.settings import read_settings
from verify import Problem, load_data

OUT = Path(os.environ.get("HARD_RUNS", "/tmp/w/exp_runs"))
BAND, HARD, HELD_OUT, ORDINARY, EXAMPLES = (1e-4, 2e-3), 600, 0.2, 128, 7
TARGETS = (0.01, 0.05)
CAP = 120.0  # a run ends at so many seconds, or at the second target
EVERY_ORDINARY = 10.0  # seconds between evaluations on ordinary problems
ARMS = {32: ("16", "512", "64", "512:64"), 128: ("16", "512")}
RATES = {32: (3e-4, 6e-4, 1.5e-4, 1.2e-3), 128: (6e-4, 1.2e-3)}
SEEDS = (1, 2, 3, 4, 5)
PILOT = 100


class Key(NamedTuple):
    """A run. tuning: 1 for the runs that choose the rate."""

    B: int
    arm: str
    rate: float
    seed: int
    tuning: int


class Ended(Exception):
    """A run reached its end."""


# --------------------------------------------------------------------------------------------------- exact evaluation


class Answers:
    """All answers of some problems, as one batch of the policy."""

    def __init__(self, policy, tokenizer, problems: list[Problem]):
        code, stop = alphabet(tokenizer), tokenizer.eos_token_id
        texts = [answers(p.reference["numbers"], p.reference["target"]) for p in problems]
        ids = [torch.tensor(tokenizer(p.prompt).input_ids) for p in problems]
        self.total = len(problems)
        self.problem = torch.tensor([i for i, some in enumerate(texts) for _ in some], dtype=torch.long)
        responses = torch.tensor([[*(code[c] for c in text), stop] for some in texts for text in some])
        prompts = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_side="left")
        lengths = torch.full((len(responses),), responses.shape[1])
        self.batch = prompts, torch.tensor([len(x) for x in ids]), self.problem, responses, lengths, 1.0

    @torch.no_grad()
    def q_pos(self, policy) -> Tensor:
        """Q_pos of each problem, (P,) float64."""
        was, policy.share_prompts = policy.share_prompts, True
        logp, _ = policy(*self.batch)
        policy.share_prompts = was
        p = logp.double().view(len(self.problem), -1).sum(1).exp()
        return torch.zeros(self.total, dtype=torch.float64).index_add(0, self.problem, p)


def hard_files(model: str) -> None:
    """Write hard_train.jsonl, hard_test.jsonl and ordinary.jsonl. The held-out problems of RL are no hard problems."""
    policy, tokenizer = load_policy(model)
    universe, dice = Universe(), random.Random(0)
    ordinary = load_data([str(OUT / "long" / "test.jsonl")])
    known = {(tuple(p.reference["numbers"]), p.reference["target"]) for p in ordinary}
    pairs = list(zip(universe.solves.tolist(), universe.solution.tolist(), strict=True))
    free = [i for i in range(universe.size)
            if (tuple(universe.prompt(i)[1]), universe.prompt(i)[2]) not in known]  # fmt: skip
    dice.shuffle(free)
    rows, began = [], time.process_time()
    for start in range(0, len(free), 128):
        some = []
        for i in free[start : start + 128]:
            prompt, numbers, target = universe.prompt(i)
            shown = [pair for pair in dice.sample(pairs, EXAMPLES + 1) if pair[0] != i][:EXAMPLES]
            front = "".join(f"{universe.prompt(j)[0]}{universe.texts[text]}, " for j, text in shown)
            some.append({"prompt": front + prompt, "kind": "countdown",
                         "reference": {"numbers": numbers, "target": target}})  # fmt: skip
        problems = [Problem(**row) for row in some]
        q = Answers(policy, tokenizer, problems).q_pos(policy)
        rows += [row | {"p": float(x)} for row, x in zip(some, q, strict=True)]
        if sum(BAND[0] <= row["p"] <= BAND[1] for row in rows) >= HARD:
            break
    print(f"{len(rows)} problems scored in {time.process_time() - began:.0f} s")
    hard = [row for row in rows if BAND[0] <= row["p"] <= BAND[1]]
    print(f"{len(hard)} of {len(rows)} are hard")
    dice.shuffle(hard)
    hard = hard[:HARD]
    held_out = round(HELD_OUT * len(hard))
    for name, some in (("hard_test", hard[:held_out]), ("hard_train", hard[held_out:])):
        text = "".join(json.dumps({k: v for k, v in row.items() if k != "p"}) + "\n" for row in some)
        (OUT / f"{name}.jsonl").write_text(text)
        print(name, len(some), f"mean p {sum(row['p'] for row in some) / len(some):.6f}", digest(OUT / f"{name}.jsonl"))
    lines = (OUT / "long" / "test.jsonl").read_text().splitlines(keepends=True)[:ORDINARY]
    (OUT / "ordinary.jsonl").write_text("".join(lines))
    score = float(Answers(policy, tokenizer, ordinary[:ORDINARY]).q_pos(policy).mean())
    print("ordinary", ORDINARY, f"Q_pos {score:.4f}", digest(OUT / "ordinary.jsonl"))
    own = torch.stack([x.exp().sum() for x in log_probs(policy, tokenizer, ordinary[:8])])
    assert torch.allclose(own, Answers(policy, tokenizer, ordinary[:8]).q_pos(policy), atol=1e-6)
    tokens = [len(tokenizer(row["prompt"]).input_ids) for row in hard]
    print(f"prompts of {min(tokens)} to {max(tokens)} tokens, mean {sum(tokens) / len(tokens):.1f}")
    print("policy", digest(Path(model) / "model.safetensors"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------------ one run


def processor_seconds() -> float:
    """Processor time of this process, all threads, and its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Clock:
    """Counts the seconds of training, evaluates after updates, and ends the run."""

    def __init__(self, key: Key, policy, tokenizer, cap: float):
        self.key, self.policy, self.cap, self.rows = key, policy, cap, []
        self.hard, self.ordinary = (
            Answers(policy, tokenizer, load_data([str(OUT / f"{name}.jsonl")])) for name in ("hard_test", "ordinary")
        )
        self.step, self.samples, self.kept, self.drawn, self.uncounted = 0, 0, 0, 0, 0.0
        self.last_ordinary = -1e9
        self.began = processor_seconds()
        self.evaluate(0.0)
        self.began, self.uncounted = processor_seconds(), 0.0

    def seconds(self) -> float:
        return processor_seconds() - self.began - self.uncounted

    def evaluate(self, now: float, final: bool = False) -> float:
        """Add a row. Returns Q_pos of the held-out hard problems."""
        entered = processor_seconds()
        q = self.hard.q_pos(self.policy)
        mean = float(q.mean())
        over = now >= self.cap or mean >= TARGETS[1] or final
        ordinary = ""
        if over or now - self.last_ordinary >= EVERY_ORDINARY:
            ordinary, self.last_ordinary = f"{float(self.ordinary.q_pos(self.policy).mean()):.5f}", now
        pass_64 = float((1 - (1 - q).clamp(min=0) ** 64).mean())
        self.rows.append({**self.key._asdict(), "step": self.step, "samples": self.samples, "drawn": self.drawn,
                          "kept": self.kept, "cpu_seconds": f"{now:.3f}", "q_pos": f"{mean:.6f}",
                          "pass@64": f"{pass_64:.5f}", "q_pos_ordinary": ordinary})  # fmt: skip
        self.uncounted += processor_seconds() - entered
        return mean

    def after_stage_4(self, step: int, rollouts, outcomes) -> None:
        self.step, self.samples = step, self.samples + outcomes.reward.numel()
        self.drawn, self.kept = self.drawn + len(outcomes), self.kept + int(L.informative(outcomes.correct).sum())
        if (now := self.seconds()) >= self.cap:
            self.evaluate(now, final=True)
            raise Ended

    def after_update(self) -> None:
        now = self.seconds()
        if self.evaluate(now) >= TARGETS[1] or now >= self.cap:
            raise Ended


def train_one(key: Key, cap: float, pipe) -> None:
    """Train one run in this process, and send its rows."""
    torch.set_num_threads(1)
    n, _, subset = key.arm.partition(":")
    folder = f"{key.B}-{key.arm.replace(':', '_')}-{key.rate:g}-{key.seed}-{key.tuning}"
    shutil.rmtree(OUT / "runs" / folder, ignore_errors=True)
    settings: dict[str, Any] = {
        "model": OUT / "policy", "data": OUT / "hard_train.jsonl", "eval_data": OUT / "hard_test.jsonl",
        "recipe": "brorl", "rollouts_per_prompt": n, "prompts_per_step": key.B, "learning_rate": key.rate,
        "seed": key.seed, "refill": 400, "updates_per_step": 4, "max_response_tokens": 12, "engine": "torch",
        "temperature": 1, "max_steps": 100000, "eval_every": 0, "save_every": 1000000, "name": folder,
        "output_dir": OUT / "runs",
    }  # fmt: skip
    config, sources = read_settings("", [str(x) for name, value in settings.items() for x in (f"--{name}", value)])
    accelerator = train.start_accelerator()
    setup = train.set_up(config, accelerator, sources)
    if subset:
        train_on_subset(int(subset), int(n))
    clock = Clock(key, accelerator.unwrap_model(setup.policy), setup.data.tokenizer, cap)
    update = train.update

    def counted(*arguments) -> None:
        update(*arguments)
        clock.after_update()

    train.update, train.evaluate = counted, lambda *_: {}
    with suppress(Ended):
        train.train(config, accelerator, setup, clock.after_stage_4)
    pipe.send(clock.rows)
    shutil.rmtree(OUT / "runs" / folder, ignore_errors=True)


def train_on_subset(m: int, n: int) -> None:
    """Train on the m rollouts of each group whose rewards differ most. The others get no advantage and no update."""
    variants.SHARE = m / n
    mini_batches, chosen = train.mini_batches, [torch.zeros(0)]

    def whiten(advantages: Tensor, kept: Tensor) -> Tensor:
        chosen[0] = torch.zeros(advantages.shape, dtype=torch.float64)
        chosen[0][kept] = variants.pods(advantages[kept] > 0).double()
        return chosen[0].to(advantages.dtype)

    train.L.whiten = whiten
    train.mini_batches = lambda trained, u, seed: mini_batches(trained & (chosen[0] != 0), u, seed)


# ----------------------------------------------------------------------------------------------------------- all runs


def table(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def key_of(row: dict[str, str]) -> Key:
    return Key(int(row["B"]), row["arm"], float(row["rate"]), int(row["seed"]), int(row["tuning"]))


def time_to(rows: list[dict[str, str]], target: float) -> float:
    """Seconds at the first evaluation with this Q_pos; infinite if the run never has it."""
    return next((float(row["cpu_seconds"]) for row in rows if float(row["q_pos"]) >= target), float("inf"))


def runs_of(rows: list[dict[str, str]]) -> dict[Key, list[dict[str, str]]]:
    found: dict[Key, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return found


def rank(rows: list[dict[str, str]]) -> tuple[float, float]:
    """Orders the tuning runs of an arm: time to the second target, then the last Q_pos."""
    return time_to(rows, TARGETS[1]), -float(rows[-1]["q_pos"])


def best_rate(done: dict[Key, list], b: int, arm: str) -> tuple[float, float]:
    """The rate of the fastest tuning run so far, and its time."""
    tuned = {key.rate: rows for key, rows in done.items() if (key.B, key.arm, key.tuning) == (b, arm, 1)}
    if not tuned:
        return 0.0, float("inf")
    rate = min(tuned, key=lambda rate: rank(tuned[rate]))
    return rate, time_to(tuned[rate], TARGETS[1])


def wanted(done: dict[Key, list]) -> Iterator[tuple[Key, float]]:
    """The runs that are missing, in order, with their cap. A tuning run stops at the arm's best time so far."""
    for b, arms in ARMS.items():
        for rate in RATES[b]:
            for arm in arms:
                key = Key(b, arm, rate, 0, 1)
                if key not in done:
                    yield key, min(CAP, best_rate(done, b, arm)[1])
        for seed in SEEDS:
            for arm in arms:
                key = Key(b, arm, best_rate(done, b, arm)[0], seed, 0)
                if key not in done:
                    yield key, CAP


def one(key: Key, cap: float, path: Path) -> None:
    """Make a run in a child process, and add its rows to the CSV at once."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    child = context.Process(target=train_one, args=(key, cap, its))
    began = time.time()
    child.start()
    its.close()
    try:
        rows = mine.recv()
    except EOFError:
        raise SystemExit(f"{key} failed") from None
    child.join()
    everything = table(path) + rows
    aside = path.with_suffix(".unfinished")
    with aside.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(everything)
    os.replace(aside, path)
    last, reached = rows[-1], [time_to(rows, target) for target in TARGETS]
    print(time.strftime("%H:%M:%S", time.gmtime()), *key, f"cap {cap:.1f}", f"wall {time.time() - began:.0f} s",
          {name: last[name] for name in ("step", "samples", "drawn", "kept", "cpu_seconds", "q_pos", "q_pos_ordinary")},
          "reached", *(f"{x:.2f}" for x in reached), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("problems", "run", "pilot"))
    parser.add_argument("pilot", nargs="*")
    parser.add_argument("--model", default=str(OUT / "policy"))
    args = parser.parse_args()
    if args.what == "problems":
        torch.set_num_threads(1)
        hard_files(args.model)
    elif args.what == "pilot":
        arm, b, rate, cap = args.pilot
        one(Key(int(b), arm, float(rate), PILOT, 1), float(cap), OUT / "pilot.csv")
    else:
        while (todo := next(wanted(runs_of(table(OUT / "hard.csv"))), None)) is not None:
            one(*todo, OUT / "hard.csv")
        print("all runs are done", flush=True)


if __name__ == "__main__":
    main()
