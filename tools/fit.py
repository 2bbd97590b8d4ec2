"""Does a run fit a card? Its memory from the model's config alone, and the flags to type.

    python -m tools.fit                         the tables of docs/memory.md; about three minutes
    python -m tools.fit --model MODEL --gib 24  a model on one card of 24 GiB, and on eight with DDP and with FSDP2
    python -m tools.fit --lora_rank 16          the same with train.py's settings --lora_rank R or --offload

    python -m tools.fit --check runs/NAME       a run that has ended: predicted beside measured, phase by phase

trainer/update_memory.py makes the count. `RESERVE_GIB` and `GRAPHS_GIB` (trainer/card_memory.py) are added for memory
that it does not count. FSDP2 has no figure with --lora_rank, and none with --offload, which refuses FSDP2.
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import dataclasses
import json
from pathlib import Path

import torch
from transformers import AutoConfig, PretrainedConfig

from tools.random_model import QWEN
from trainer.card_memory import (
    DDP,
    FSDP2,
    GRAPHS_GIB,
    ONE,
    RESERVE_GIB,
    Needs,
    largest_share,
    layout_of,
    needs_by_layout,
    needs_of_run,
    room_gib,
)
from trainer.clock import GIB, largest_peaks
from trainer.files import read_lines
from trainer.process import Refusal, explained, refusing
from trainer.settings import Config
from trainer.update_memory import Count, count_update

# Assumed memory as CUDA reports it. Cards of one size differ: an RTX 4090 has about 23.7
CARDS_GIB = {"16 GB": 15.5, "24 GB": 22.0, "40 GB": 39.5, "80 GB": 79.0}
CARDS = {ONE: "1", DDP: "8, DDP", FSDP2: "8, FSDP2"}  # layout -> the cards of the tables
MICRO_BATCH_TOKENS = tuple(Config.max_tokens_per_micro_batch // 2**i for i in range(5))  # the first is the default
LEAST_CACHE_GIB = 1.0  # of vLLM's share, for keys and values


def flags(need: Needs, card_gib: float, longest: int) -> str:
    """Return the flags that make a run fit, or why it does not. longest: tokens of a prompt and its response."""
    room = room_gib(card_gib)
    if need.start > room:
        return f"no: the start needs {need.start:.1f} GiB"
    share = min(Config.gpu_memory_utilization, largest_share(need, card_gib))
    if share * card_gib < need.engine + LEAST_CACHE_GIB:
        return f"no: {need.held():.1f} GiB stay during the rollouts, and vLLM needs {need.engine + LEAST_CACHE_GIB:.1f}"
    for tokens, checkpointing in sorted(need.update, key=lambda key: (key[1], -key[0])):
        if tokens >= longest and need.peak(tokens, checkpointing) <= room:
            found = [f"--gpu_memory_utilization {share:g}"] if share < Config.gpu_memory_utilization else []
            found += [f"--max_tokens_per_micro_batch {tokens}"] if tokens != MICRO_BATCH_TOKENS[0] else []
            return " ".join([*found, *["--gradient_checkpointing"] * checkpointing]) or "no flag needed"
    return f"no: an update needs {min(need.peak(*key) for key in need.update):.1f} GiB"


def counts_of(config: PretrainedConfig, lora_rank: int) -> dict[tuple[int, bool], Count]:
    """Return (tokens, checkpointing) -> the count of an update."""
    keys = [(tokens, on) for tokens in MICRO_BATCH_TOKENS for on in (False, True)]
    return {(tokens, on): count_update(config, tokens, checkpointing=on, lora_rank=lora_rank) for tokens, on in keys}


def check(folder: Path, card_gib: float | None = None) -> str:
    """Return the table of a run: GiB predicted in each phase, beside those of timing.jsonl. Raises Refusal.

    Micro-batches are predicted as long as the longest update of the run: a step with few short responses does not
    fill --max_tokens_per_micro_batch. Their prompts are left out.
    """
    with refusing("--check: "):
        began = json.loads((folder / "config.json").read_text())
        timing, metrics = (read_lines(folder / f"{name}.jsonl") for name in ("timing", "metrics"))
    measured = largest_peaks(timing)
    if not measured:
        raise Refusal(f"--check: {folder}/timing.jsonl has no memory: the run ended before its first step, or is older")
    c = Config(**{field.name: began[field.name] for field in dataclasses.fields(Config) if field.name in began})
    per_update = max((row.get("tokens", 0) for row in metrics), default=0) / (c.updates_per_step * began["processes"])
    c.max_tokens_per_micro_batch = max(64, min(c.max_tokens_per_micro_batch, int(per_update)))
    if any("process" in taken for taken in measured.values()):
        c.offload = False  # without a card, moments and reference stay in the memory of the process
    layout = layout_of(began["sharded"], began["processes"])
    with refusing("--check: "):
        model = AutoConfig.from_pretrained(c.model)

    def count(tokens: int, on: bool, lora_rank: int) -> Count:
        return count_update(model, tokens, c.precision == "bfloat16", on, lora_rank)

    need = needs_of_run(c, model, layout, began["processes"], count)
    names = [*dict.fromkeys(name for taken in measured.values() for name in taken if name != "vllm")]
    lines = [f"{folder}: GiB, micro-batches of {c.max_tokens_per_micro_batch:,} response tokens"]
    lines.append(f"{'phase':10}{'predicted':>11}" + "".join(f"{name:>11}" for name in names))
    for phase, taken in measured.items():
        predicted = need.in_phase(phase, c.max_tokens_per_micro_batch, c.gradient_checkpointing)
        lines.append(f"{phase:10}{predicted:11.3f}" + "".join(f"{taken[name]:11.3f}" for name in names))
    if "process" in names:
        lines.append("predicted: the trainer alone. process: with Python, its libraries and the engine, and never less")
        lines.append("than in an earlier phase, because the peak of a process is not reset")
    else:
        lines.append("predicted: the trainer alone; start, evaluate and roll_out also have the engine's working memory")
    if card_gib is None and torch.cuda.is_available():
        card_gib = torch.cuda.get_device_properties(0).total_memory / GIB
    if held := max(taken.get("vllm", 0.0) for taken in measured.values()):
        share = f"{c.gpu_memory_utilization * card_gib:.2f}" if card_gib else "unknown: name --gib"
        lines.append(f"vLLM's weights and cache: {held:.2f}; its share of the card: {share}")
    return "\n".join(lines)


def print_fit(models: dict[str, PretrainedConfig], cards_gib: dict[str, float], args: argparse.Namespace) -> None:
    """Print the memory of each model, and its flags on each card."""
    found = {
        (name, layout): need
        for name, config in models.items()
        for layout, need in needs_by_layout(config, counts_of(config, args.lora_rank), args.offload).items()
    }
    print("GiB on each card; activations for 1,000 tokens of a micro-batch, in brackets with --gradient_checkpointing")
    print(f"{'model':>20}    cards  weights  gradients  moments  reference    start   activations  vLLM's weights")
    for (name, layout), x in found.items():
        line = f"{x.weights:9.1f}{x.gradients:11.1f}{x.moments:9.1f}{x.reference:11.1f}{x.start:9.1f}"
        line += f"{x.activations:7.2f} ({x.checkpointed:.2f})"
        print(f"{name[:20]:>20}{CARDS[layout]:>9}{line}{x.engine:16.1f}")
    print(f"\nFlags for up to {args.longest:,} tokens of prompt and response. {RESERVE_GIB:g} GiB of a card stay free,")
    print(f"and {GRAPHS_GIB:g} GiB for the CUDA graphs of a sleeping vLLM")
    for (name, layout), need in found.items():
        for card, gib in cards_gib.items():
            print(f"{name[:20]:>20}{CARDS[layout]:>9} x {card:7} {flags(need, gib, args.longest)}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", help="a folder or a hub name; only its config is read [four of Qwen2.5]")
    parser.add_argument("--gib", type=float, help="memory of a card, as CUDA reports it [15.5, 22, 39.5 and 79]")
    parser.add_argument("--longest", type=int, default=2048, help="tokens of a prompt and its response [2048]")
    parser.add_argument("--lora_rank", type=int, default=0, help="as of train.py [0]")
    parser.add_argument("--offload", action="store_true", help="as of train.py")
    parser.add_argument("--check", type=Path, metavar="runs/NAME", help="a run that has ended; only --gib goes with it")
    args = parser.parse_args(argv)
    if args.check:
        flags_of_count = ("model", "longest", "lora_rank", "offload")
        if given := [f"--{x}" for x in flags_of_count if getattr(args, x) != parser.get_default(x)]:
            raise Refusal(f"--check reads the settings of its run: leave out {' and '.join(given)}")
        print(check(args.check, args.gib))
        return
    if args.offload and args.lora_rank:
        raise Refusal("--offload saves nothing with --lora_rank: leave one of them out")
    with refusing("--model: "):
        models = {Path(args.model).name: AutoConfig.from_pretrained(args.model)} if args.model else QWEN
    print_fit(models, {f"{args.gib:g} GiB": args.gib} if args.gib else CARDS_GIB, args)


if __name__ == "__main__":
    with explained(code=2):
        main()
