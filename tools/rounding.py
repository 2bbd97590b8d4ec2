"""What does an engine in bfloat16 see of the policy's steps? Four ways to round the weights, compared in whole runs.

    python -m tools.rounding runs.csv smollm                    all runs, two at a time; continues after a stop
    python -m tools.rounding --one dithered 1e-6 0 smollm       one run, its rows on standard output

    arm           trainer's forward pass          engine's weights
    nearest       autocast: to the nearest        to the nearest
    engine_only   autocast: to the nearest        `dithered`
    dithered      `dithered`                      `dithered`
    float32       float32                         float32

SmolLM2 (a folder of `python -m tools.smollm`) on the task of docs/real_model.md with vLLM, N = 64, B = 2, U = 2, 6
steps, 64 held-out problems with 8 responses each. A row is a step. share_seen compares the weights before the step
with those at the start: s = Σ (w' - w_0)(w - w_0) / Σ (w - w_0)², where w is the policy's weight and w' the engine's.
It is 1 if the engine has moved as the policy has, 0 if it has not moved. The model is first rounded to bfloat16, as a
published checkpoint is: weights between the bfloat16 numbers would dither themselves.
"""

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

import engines.rounding
import engines.vllm
import trainer.adapters
import trainer.head
from engines.rounding import dithered
from tools.runs import ENVIRONMENT, make_missing
from train import train
from trainer.settings import read_settings
from trainer.start import set_up, start_accelerator

RATES, SEEDS = (1e-6, 2.83e-6, 5.7e-6), (0, 1, 2)  # ProRL's, docs/real_model.md's and BroRL's of N = 512
ALL_RATES, ONE_RATE = ("nearest", "dithered"), ("engine_only", "float32")  # the second pair at the highest rate
LOGGED = ("reward", "engine_kl", "tis_capped_fraction", "kl_ref", "entropy", "eval/pass@1", "eval/pass@1_se")
COLUMNS = ("arm", "rate", "seed", "step", "share_seen", *LOGGED)


def nearest(weight: Tensor, name: str) -> Tensor:
    """Round to the nearest bfloat16 number, in place of `dithered`. The name is not used."""
    return weight.bfloat16()


def round_as(arm: str) -> Callable[[Tensor, str], Tensor]:
    """Set how this process rounds weights, in trainer and engine. Returns the rounding of the engine."""
    of_trainer = dithered if arm == "dithered" else nearest
    of_engine = nearest if arm == "nearest" else dithered
    engines.rounding.dithered = trainer.head.dithered = trainer.adapters.dithered = of_trainer
    engines.vllm.dithered = of_engine
    return of_engine


def share_seen(policy: torch.nn.Module, start: dict[str, Tensor], rounding: Callable | None) -> float:
    """The share s of the policy's movement since `start` that its rounded copy shows. None as rounding: 1."""
    seen = moved = 0.0
    with torch.no_grad():
        for name, w in policy.named_parameters():
            d = w - start[name]
            copy = rounding(w, name).float() if rounding else w
            seen, moved = seen + float(((copy - start[name]) * d).sum()), moved + float((d * d).sum())
    return seen / moved if moved else float("nan")


def run(arm: str, rate: float, seed: int, model: str) -> list[dict]:
    """Train one run. Returns a row per step."""
    rounding = None if arm == "float32" else round_as(arm)
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        published = f"{folder}/smollm"
        shutil.copytree(model, published)
        AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).save_pretrained(published)
        settings = {
            "model": published, "data": f"{model}/largest.jsonl", "eval_data": f"{model}/largest_test.jsonl",
            "eval_problems": 64, "engine": "vllm", "precision": "float32" if arm == "float32" else "bfloat16",
            "rollouts_per_prompt": 64, "prompts_per_step": 2, "updates_per_step": 2, "learning_rate": rate,
            "max_steps": 6, "eval_every": 6, "save_every": 100, "max_tokens_per_micro_batch": 4096, "seed": seed,
            "output_dir": folder, "name": "run",
        }  # fmt: skip
        sys.argv[1:] = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        config, sources = read_settings("")
        accelerator = start_accelerator(config)
        setup = set_up(config, accelerator, sources)
        policy = setup.policy.model
        start = {name: w.detach().clone() for name, w in policy.named_parameters()}
        train(config, accelerator, setup, lambda *_: shares.append(share_seen(policy, start, rounding)))
        logged = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
        setup.close(accelerator)
    common = {"arm": arm, "rate": rate, "seed": seed}
    shares = [float("nan"), *shares]  # step 0 is the evaluation before the first step
    return [
        {key: row.get(key, "") for key in ("step", *LOGGED)} | common | {"share_seen": share}
        for row, share in zip(logged, shares, strict=True)
    ]


def run_elsewhere(model: str, arm: str, rate: float, seed: int) -> list[dict]:
    """`run` in a process of its own, with its share of the processor. Returns its rows."""
    command = [sys.executable, "-m", "tools.rounding", "--one", arm, str(rate), str(seed), model]
    printed = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | ENVIRONMENT
    ).stdout
    return [json.loads(line) for line in printed.splitlines() if line.startswith('{"step"')]


def planned() -> list[tuple[str, float, int]]:
    """(arm, learning rate, seed) of every run, seed by seed."""
    arms = [(arm, rate) for rate in RATES for arm in ALL_RATES] + [(arm, RATES[-1]) for arm in ONE_RATE]
    return [(arm, rate, seed) for seed in SEEDS for arm, rate in arms]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("ARM", "RATE", "SEED"), help="make one run and print its rows")
    parser.add_argument("csv", nargs="?", type=Path, help="where the rows go")
    parser.add_argument("model", help="folder of SmolLM2, written by tools.smollm")
    given = parser.parse_args()
    if given.one:
        arm, rate, seed = given.one
        for row in run(arm, float(rate), int(seed), given.model):
            print(json.dumps(row))
    elif given.csv is None:
        parser.error("name a CSV file, or one run with --one")
    else:
        make_missing(given.csv, planned(), COLUMNS, partial(run_elsewhere, given.model))


if __name__ == "__main__":
    main()
