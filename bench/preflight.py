"""What --preflight predicts of a step's seconds, beside the seconds of real steps (trainer/preflight.py)."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from accelerate import Accelerator

import train
from bench.common import POLICY, ROOT, machine, quiet
from trainer.preflight import STAGES, preflight
from trainer.settings import Config

CHAT = {
    "examples": 1, "system_prompt": "Put the answer within \\boxed{}.", "max_response_tokens": 12,
    "eval_max_response_tokens": 12, "max_tokens_per_micro_batch": 4096,
}  # fmt: skip


def measured(args: argparse.Namespace, n: int, b: int, **changes) -> list[dict[str, float]]:
    """Seconds by stage: what a preflight says of N and B, or those of each real step after the first."""
    problems, held_out = Path(args.model, "largest.jsonl"), Path(args.model, "largest_test.jsonl")
    settings: dict[str, Any] = CHAT
    if args.model == POLICY:
        problems, held_out, settings = ROOT / "tiny/train.jsonl", ROOT / "tiny/test.jsonl", {}
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        few = Path(folder, "few.jsonl")
        few.write_text("".join(held_out.read_text().splitlines(keepends=True)[:4]))
        config = Config(
            model=args.model, data=[str(problems)], eval_data=[str(few)], output_dir=folder, name="run",
            rollouts_per_prompt=n, prompts_per_step=b, learning_rate=1e-12, max_steps=args.steps + 1, refill=20,
            eval_every=0, eval_samples=1, eval_temperature=0.0, **settings, **changes,
        )  # fmt: skip
        accelerator = Accelerator(cpu=True)
        setup = train.set_up(config, accelerator)
        if config.preflight:
            preflight(config, accelerator, setup, train.parts_of_rank, train.mini_batch_of, train.update)
            return [json.loads(Path(folder, "run/preflight.json").read_text())["step"]]
        train.train(config, accelerator, setup)
        rows = [json.loads(line) for line in Path(folder, "run/timing.jsonl").read_text().splitlines()]
        return [{stage: row[stage] for stage in STAGES} for row in rows[1:]]


def steps(args: argparse.Namespace) -> None:
    """Predicted and real seconds of a step, by stage: processor time, and the least of several steps."""
    quiet(args)
    print(machine())
    print(f"{'N':>5} {'B':>5}  {'stage':10} {'predicted':>10} {'real':>10}")
    look = {"preflight": True, "preflight_prompts": args.sample, "max_minutes": 1000.0}
    with mock.patch.object(time, "perf_counter", time.process_time):
        for n, b in zip(args.rollouts, args.prompts, strict=True):
            (predicted,), real = measured(args, n, b, **look), measured(args, n, b)
            found = {stage: (predicted[stage], min(row[stage] for row in real)) for stage in STAGES}
            found["step"] = tuple(map(sum, zip(*found.values(), strict=True)))  # type: ignore[assignment]
            for name, (ours, theirs) in found.items():
                print(f"{n:5} {b:5}  {name:10} {ours:9.2f}s {theirs:9.2f}s  {ours / theirs:.2f}", flush=True)
