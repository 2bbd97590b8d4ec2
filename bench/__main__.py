"""How fast the parts are, each beside the plain way of doing the same, measured in the same run.

    python -m bench loss      section 3.1: log-probs without [tokens, V] against log_softmax, time and memory
    python -m bench prefix    section 4.2: an optimizer step that computes a prompt once for its rollouts, or for each
    python -m bench rollout   section 4.2.4: the torch engine against model.generate, at N = 16 and 512
    python -m bench verify    section 4.2: verify_batch against math-verify in a loop, and tests of programs
    python -m bench trl       section 4.2: whole steps of train.py against TRL's GRPOTrainer
    python -m bench engines   table 2: samples/s of both engines and of model.generate, for a chat model
    python -m bench stages    section 4.2: a step of a chat model by stage
    python -m bench which_n   section 4.2: seconds of a step as bench.which_n predicts them, and of real steps
    python -m bench.which_n           which N has the least noise for a model and its problems
    python -m bench.simulated_ranks   how even the ranks of a step are, computed

Both ways take turns, so other load on the machine slows both.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from bench import chat_model, parts, verifying, which_n
from bench.common import POLICY


class Benchmark(NamedTuple):
    run: Callable[[argparse.Namespace], None]
    flags: dict[str, tuple]  # default and help; None: a number without a default
    ways: tuple[str, ...] = ()  # `run` starts each in a process of its own, by two flags that --help does not show


THREADS = (None, "torch threads; none: all cores")
CHAT_MODEL = ("", "folder of a chat model")
BENCHMARKS = {
    "loss": Benchmark(parts.loss, {
        "tokens": (4096, "T"),
        "vocabulary": (151_936, "V, Qwen2's"),
        "hidden": (896, "H, Qwen2 0.5B's"),
        "turns": (3, "turns"),
    }, ways=("ours", "plain")),
    "prefix": Benchmark(parts.prefix, {
        "rollouts": (512, "N"),
        "prompt_tokens": (256, "of the prompt"),
        "tokens": (64, "of a response"),
        "hidden": (256, "H, a multiple of 64"),
        "layers": (4, "of the model"),
        "vocabulary": (4096, "V"),
        "threads": THREADS,
        "turns": (3, "turns"),
    }, ways=("plain", "shared")),
    "rollout": Benchmark(parts.rollout, {
        "model": (POLICY, "model folder"),
        "lengths": ([9, 128], "of prompts"),
        "samples": (8192, "samples of a turn"),
        "tokens": (8, "tokens of a response"),
        "threads": THREADS,
        "turns": (4, "turns"),
    }),
    "verify": Benchmark(verifying.verify, {
        "problems": (128, "P"),
        "samples": (512, "N"),
        "workers": (None, "worker processes; none: one per core"),
        "plain": (300, "answers math-verify alone gets"),
        "programs": (64, "programs"),
        "tests": (16, "tests of each"),
        "turns": (3, "turns, each with a batch of P x N answers"),
    }),
    "trl": Benchmark(chat_model.trl, {
        "model": (POLICY, "model folder"),
        "rollouts": ([512], "N"),
        "prompts": (16, "prompts a step"),
        "updates": (8, "mini-batches a step"),
        "length": (0, "tokens of a prompt; 0: as it is, of the embedded policy alone"),
        "tokens": (12, "tokens of a response, at most"),
        "steps": (4, "steps of a turn, the first is not counted"),
        "turns": (1, "turns"),
        "threads": THREADS,
    }, ways=("ours", "trl")),
    "engines": Benchmark(chat_model.engines, {
        "model": CHAT_MODEL,
        "out": ("", "the table, a CSV; rows that it has are not measured again"),
        "engines": ("torch,vllm,generate", "of these, with commas between"),
        "dtypes": ("float32,bfloat16", "with commas between; the first is the base"),
        "rollouts": ([512, 16, 64], "N, the first is the base"),
        "lengths": ([128, 32, 512], "of prompts, the first is the base"),
        "tokens": ([16, 64], "of a response, the first is the base"),
        "samples": (1024, "samples of a row, at most; at least 512 or N"),
        "limit": (300, "seconds of a row, after which no turn begins"),
        "plain": (32, "samples of a row of model.generate"),
        "threads": THREADS,
    }, ways=("torch", "vllm", "generate")),
    "stages": Benchmark(chat_model.stages, {
        "model": CHAT_MODEL,
        "rollouts": (64, "N"),
        "prompts": (2, "prompts a step"),
        "updates": (8, "mini-batches a step"),
        "length": (128, "tokens of a prompt"),
        "tokens": (32, "tokens of a response, at most"),
        "steps": (3, "steps of a turn, the first is not counted"),
        "threads": THREADS,
    }),
    "which_n": Benchmark(which_n.predicted_and_real, {
        "model": (POLICY, "model folder, of the embedded policy or by evidence.smollm"),
        "rollouts": ([16, 64, 512], "N"),
        "prompts": ([128, 64, 16], "B, for each N"),
        "sample": (64, "prompts of the sample"),
        "steps": (4, "real steps"),
        "threads": THREADS,
    }),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, (run, flags, ways) in BENCHMARKS.items():
        command = names.add_parser(name, description=run.__doc__)
        command.set_defaults(run=run)
        for flag, (default, text) in flags.items():
            kind = type(default) if isinstance(default, str) else int
            shown = "" if default is None else " (default: %(default)s)"
            nargs = "+" if isinstance(default, list) else None
            command.add_argument(f"--{flag}", type=kind, nargs=nargs, default=default, help=text + shown)
        if ways:
            command.add_argument("--way", choices=ways, help=argparse.SUPPRESS)
            command.add_argument("--file", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
