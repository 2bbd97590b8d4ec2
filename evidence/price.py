"""Does a wide N win where prompts are dear? Predicted by --preflight, then trained: docs/which_n.md.

    python -m evidence.price make --smollm FOLDER       models and problems; FOLDER is of `python -m evidence.smollm`
    python -m evidence.price predict                    --preflight in each world: price_predicted.csv
    python -m evidence.price run tiny-short tiny-long   the arms, minutes each; a finished arm is left alone
    python -m evidence.price collect                    price.csv from the runs
    python -m evidence.price                            the tables and price.png from both CSVs

A world is a model, prompts, and a rule that every token of a free answer has a share in:

    tiny-short, tiny-long       a Llama of 0.1M parameters, prompts of 16 and of 512 tokens, answers of 12. A prompt is
                                digits, half of them one digit; an answer is right if it has that digit twice
    smollm-short, smollm-long   SmolLM2-135M goes on from a sentence of a story, or from some 480 tokens of it, for 8
                                tokens. An answer is right if its words are long

In a world each step of each arm takes as much processor time, by the preflight: N decides how many prompts B it has.
All arms take equally many steps, of one update, at one of several learning rates.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from evidence.rows import EVIDENCE, ROOT, by, load, write

OUT = ROOT / "runs" / "price"
PREDICTED, FOUND = EVIDENCE / "price_predicted.csv", EVIDENCE / "price.csv"


class World(NamedTuple):
    """What is trained. Every step takes as long as one of `b` prompts with max(sizes) rollouts."""

    about: str
    sizes: tuple[int, ...]
    b: int
    steps: int
    rates: tuple[float, ...]
    seeds: int  # of each N at its best rate
    flags: dict[str, Any]


ANSWER, DIGITS = 12, "0123456789"  # of the tiny policy: tokens of an answer, digits to be asked for
SAME = {
    "mini_batches": "prompts", "updates_per_step": 1, "kl_coef": 0, "refill": 30, "round_confidence": 0.5,
    "eval_temperature": 1, "eval_top_p": 1,
}  # fmt: skip
TINY = SAME | {"max_response_tokens": ANSWER, "eval_max_response_tokens": ANSWER, "eval_samples": 32, "eval_every": 6}
LOOK = {"tiny": {"preflight_prompts": 256}}  # flags of the preflight
WORLDS = {
    "tiny-short": World("16 tokens", (4, 16, 64, 256, 512), 1, 36, (1e-3, 2e-3, 5e-3, 1e-2), 5, TINY),
    "tiny-long": World("512 tokens", (4, 16, 64, 256, 512), 1, 36, (1e-3, 2e-3, 5e-3, 1e-2), 5, TINY),
}

# ------------------------------------------------------------------------------------------------------ the worlds


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_tiny(out: Path, tokens: int) -> None:
    """A policy that writes characters at random, and problems whose prompts have so many tokens."""
    from tiny.make import CHARACTERS, make_policy, make_tokenizer

    torch.manual_seed(0)
    rng, tokenizer = random.Random(0), make_tokenizer()
    policy = make_policy(tokenizer)

    def prompt(digit: str) -> str:
        return "".join(digit if rng.random() < 0.5 else rng.choice("0123456789") for _ in range(tokens - 1)) + "="

    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for _ in range(150):  # it learns to write any character but EOS
        texts = [prompt(rng.choice(DIGITS)) + "".join(rng.choices(CHARACTERS, k=ANSWER)) for _ in range(16)]
        ids = torch.tensor(tokenizer(texts).input_ids)
        logits = policy(input_ids=ids[:, :-1]).logits[:, tokens - 1 :]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, tokens:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{out.name}: cross entropy {loss:.3f}, of uniform characters {np.log(len(CHARACTERS)):.3f}")
    policy.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    for name, count in (("train", 16384), ("test", 100)):
        digits = [DIGITS[i % len(DIGITS)] for i in range(count)]
        write_rows(out / f"{name}.jsonl", [
            {"prompt": prompt(digit), "kind": "ifeval", "reference": {
                "instruction_id_list": ["keywords:letter_frequency"],
                "kwargs": [{"letter": digit, "let_frequency": 2, "let_relation": "at least"}]}}
            for digit in digits
        ])  # fmt: skip


def make(world: str, smollm: Path | None) -> None:
    """The world's folder: model/, train.jsonl, test.jsonl. One that is there is left alone."""
    at = OUT / world
    if (at / "test.jsonl").exists():
        return
    at.mkdir(parents=True, exist_ok=True)
    make_tiny(at, {"tiny-short": 16, "tiny-long": 512}[world])


# --------------------------------------------------------------------------------------------- predict, then train


def train(world: str, name: str, **settings) -> Path:
    """One run of train.py, on one core; its folder. A finished one is left alone, an unfinished one goes on."""
    folder, at = OUT / world / name, OUT / world
    if (folder / "model").exists() or (folder / "preflight.json").exists():
        return folder
    settings = {"model": at / "model", "data": at / "train.jsonl", "eval_data": at / "test.jsonl", "output_dir": at,
                "name": name} | WORLDS[world].flags | settings  # fmt: skip
    flags = [str(x) for key, value in settings.items() for x in (f"--{key}", value)]
    resume = ["--resume"] * (folder / "metrics.jsonl").exists()
    with (at / f"{name}.log").open("a") as log:
        subprocess.run([sys.executable, "train.py", *flags, *resume], cwd=ROOT, stdout=log, stderr=log, check=True,
                       env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
    print(f"{world} {name} finished", flush=True)
    return folder


def predict(world: str) -> list[dict]:
    """A row for each N: prompts of a step, noise at equal samples and at equal time.

    Each with V_w / V_b of the start, by --preflight, and with that along one run of a middle N (ratio_along).
    """
    sizes, b, steps, rates = WORLDS[world][1:5]
    look = LOOK[world.partition("-")[0]]
    found = json.loads((train(world, "preflight", preflight=True, rollouts_per_prompt=max(sizes), prompts_per_step=b,
                              **look) / "preflight.json").read_text())  # fmt: skip
    table = {row["n"]: row for row in found["table"]}
    n = sorted(sizes)[len(sizes) // 2]
    along = train(world, "along", rollouts_per_prompt=n, prompts_per_step=max(1, round(table[n]["b"])),
                  learning_rate=rates[1], max_steps=steps, log_noise=1)  # fmt: skip
    looks = [row for line in (along / "metrics.jsonl").open() if "noise/within" in (row := json.loads(line))]
    ratios = {"start": found["ratio"]["value"] or found["ratio"]["low"],
              "along": sum(row["noise/within"] for row in looks) / sum(row["noise/between"] for row in looks)}  # fmt: skip
    rows = []
    for n in sizes:
        row = {"world": world, "N": n, "B": max(1, round(table[n]["b"])), "kept": table[n]["kept"],
               "seconds_of_a_prompt": table[n]["seconds"], "prompt_cost": found["prompt_cost"],
               **{f"ratio_{end}": found["ratio"][end] for end in ("low", "high")}}  # fmt: skip
        for when, ratio in ratios.items():
            each = 1 + ratio / (n - 1)  # of a prompt, in V_b
            row |= {f"ratio_{when}": ratio, f"noise_samples_{when}": each * n,
                    f"noise_time_{when}": each * table[n]["seconds"]}  # fmt: skip
        rows.append(row)
    for name in [name for name in rows[0] if name.startswith("noise")]:
        least = min(row[name] for row in rows)
        rows = [row | {name: row[name] / least} for row in rows]
    return rows


def run(world: str) -> None:
    """Every N at every rate with seed 0; then N at its best rate with the other seeds."""
    prompts = {row["N"]: row["B"] for row in load(PREDICTED) if row["world"] == world}
    todo = WORLDS[world]

    def arm(n: int, rate: float, seed: int, **more) -> Path:
        return train(world, f"n{n}-lr{rate:g}-seed{seed}", rollouts_per_prompt=n, prompts_per_step=prompts[n],
                     learning_rate=rate, seed=seed, max_steps=todo.steps, **more)  # fmt: skip

    for n in todo.sizes:
        for rate in todo.rates:
            arm(n, rate, 0)
    for seed in range(1, todo.seeds):
        for n in todo.sizes:
            arm(n, best_rate([row for row in rows_of(world) if row["N"] == n]), seed)


def rows_of(world: str) -> Iterator[dict]:
    """Every evaluation of every finished arm, with the samples and the processor seconds spent up to it."""
    for model in sorted((OUT / world).glob("n*-lr*-seed*/model")):
        folder, name = model.parent, re.fullmatch(r"n(\d+)-lr(.+)-seed(\d+)", model.parent.name)
        if not name:
            continue
        steps = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
        spent = np.cumsum([0.0, *(row["cpu_seconds"] for row in steps if row["step"])])
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if "eval/pass@1" in row:
                yield {"world": world, "N": int(name[1]), "rate": float(name[2]), "seed": int(name[3]),
                       "step": row["step"], "samples": row["samples"], "cpu_seconds": float(spent[row["step"]]),
                       "pass@1": row["eval/pass@1"], "pass@16": row["eval/pass@16"]}  # fmt: skip


def best_rate(rows: list[dict], budget: float = np.inf) -> float:
    """The rate of the highest pass@1 with seed 0, at the end or where so many processor seconds were spent."""
    arms = by([row for row in rows if row["seed"] == 0], "rate")
    return max(arms, key=lambda rate: score(arms[rate], "cpu_seconds", min(budget, arms[rate][-1]["cpu_seconds"])))[0]


def score(arm: list[dict], axis: str, where: float, name: str = "pass@1") -> float:
    return float(np.interp(where, [row[axis] for row in arm], [row[name] for row in arm]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("make", "predict", "run", "collect", "draw"), default="draw")
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; none: all")
    parser.add_argument("--smollm", type=Path, help="of make: the folder of the real model")
    args = parser.parse_args()
    worlds = args.worlds or list(WORLDS)
    for world in worlds:
        if args.what == "make":
            make(world, args.smollm)
        elif args.what == "run":
            run(world)
    if args.what == "predict":
        rows = [row for row in (load(PREDICTED) if PREDICTED.exists() else []) if row["world"] not in worlds]
        write(PREDICTED, rows + [row for world in worlds for row in predict(world)])
    elif args.what == "collect":
        write(FOUND, [row for world in WORLDS for row in rows_of(world)])


if __name__ == "__main__":
    main()
