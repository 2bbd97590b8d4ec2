"""The speed of vLLM: tokens/s with and without a seed for each rollout; seconds of sync, sleep and wake.

    python -m tools.vllm_speed FOLDER [--size tiny]     FOLDER and size: of tools/random_model.py

    seeded      a seed for each rollout, as rollout.VLLMEngine does
    unseeded    torch's generator, set once before `generate`

Both ways to repeat a call take turns. Rates are medians over the turns, and the ratio is the median of their ratios.
"repeats: yes" means that equal calls drew equal responses.
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rollout
from engines.vllm import sampling_params
from rollout import Engine, Request, Sampling, VLLMEngine
from tools.markdown import table
from tools.random_model import folder_and_size
from tools.speed import compare
from trainer.clock import GIB
from trainer.files import read_lines
from trainer.process import Refusal, explained


def unseeded(n: int, seed: int, sampling: Sampling) -> Any:
    """Return vLLM's sampling parameters without a seed: it draws with torch's generator."""
    found = sampling_params(n, seed, sampling)
    found.seed = None
    return found


class RepeatedCall:
    """A call of an engine with one of two ways to seed it, and the responses of each repetition."""

    def __init__(self, engine: Engine, requests: list[Request], sampling: Sampling, params: Callable):
        self.engine, self.requests, self.sampling, self.params = engine, requests, sampling, params
        self.drawn: list[list[list[list[int]]]] = []  # of each repetition: the responses to each prompt

    def __call__(self) -> int:
        """Make the call. Returns the number of tokens that it drew."""
        torch.manual_seed(0)
        with mock.patch.object(rollout, "sampling_params", self.params):
            groups = dict(self.engine.generate(self.requests, self.sampling))
        self.drawn.append([groups[i].responses for i in range(len(self.requests))])
        return sum(len(response) for group in self.drawn[-1] for response in group)

    def repeats(self) -> str:
        return "yes" if all(x == self.drawn[0] for x in self.drawn) else "no"


def compare_ways(engine: Engine, requests: list[Request], sampling: Sampling, turns: int) -> list[Any]:
    """Return a row of the table: N, tokens/s of both ways, their ratio, whether each repeats. All requests have N."""
    with_seeds, without = (RepeatedCall(engine, requests, sampling, way) for way in (sampling_params, unseeded))
    with_seeds()  # warms up
    found = compare("", "tokens/s", turns, with_seeds, without)
    return [requests[0].n, found.first, found.second, found.ratio, with_seeds.repeats(), without.repeats()]


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


# Size of the model -> every N of the table, rollouts of a call, tokens of a rollout, turns
CALLS = {"1.5B": ((16, 512), 1024, 256, 3), "tiny": ((8, 16), 16, 16, 2)}


def table_of_ways(engine: Engine, prompts: list[list[int]], size: str) -> str:
    """Return the table of both ways, with a row for each N. prompts: in tokens."""
    every_n, rollouts, length, turns = CALLS[size]
    rows = []
    for n in every_n:
        requests = [Request(x, n, i) for i, x in enumerate(prompts[: rollouts // n])]
        rows.append(compare_ways(engine, requests, Sampling(length), turns))
    return table(["N", "seeded, tokens/s", "unseeded, tokens/s", "ratio", "seeded repeats", "unseeded repeats"], rows)


def table_of_calls(engine: VLLMEngine, model: Any) -> str:
    """Return the table with the seconds of sync, sleep and wake, and the memory that sleep frees."""
    times = [["sync, s", seconds(lambda: engine.sync(model))]]
    if engine.can_sleep:
        before = torch.cuda.mem_get_info()[0]
        times.append(["sleep, s", seconds(engine.sleep)])
        freed = (torch.cuda.mem_get_info()[0] - before) / GIB
        times += [["wake with sync, s", seconds(engine.wake)], ["freed by sleep, GiB", freed]]
    return table(["vLLM", "value"], times)


def measure_vllm(folder: Path, size: str) -> None:
    """Print both tables of an engine with the folder's model. Raises Refusal for a folder without one."""
    if not (folder / "train.jsonl").is_file():
        raise Refusal(f"{folder} has no model with problems: `python -m tools.random_model {folder}` writes them")
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer(row["prompt"]).input_ids for row in read_lines(folder / "train.jsonl")]
    engine = VLLMEngine(model, positions=1024, max_num_seqs=512)
    print(engine.description)
    print(table_of_ways(engine, prompts, size))
    print("\n" + table_of_calls(engine, model))
    engine.close()


if __name__ == "__main__":
    with explained(code=2):
        measure_vllm(*folder_and_size(__doc__))
