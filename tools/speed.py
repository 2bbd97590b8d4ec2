"""Section 4.2: how fast is each part of a step, next to the plain way to compute the same?

    python -m tools.speed                             all parts, a few minutes on 2 cores
    python -m tools.speed rollout log_probs           some parts

    part            ours                                               plain
    log_probs       trainer/policy.py: chunked_logprobs                log_softmax of all logits
    rollout         rollout.py: TorchEngine                            model.generate
    hand_over       rollout.py: Group, from engine to micro-batch      lists of Python's numbers between them
    shared_prompt   trainer/policy.py: after_shared_prompts            every rollout computes its prompt

Both ways take turns, so other programs on the machine slow both. Every number is the median over the turns, and the
ratio is the median of the ratios of the turns: above 1, ours is faster. P + N x T tokens are a prompt of P tokens and N
responses of T tokens.
"""

from __future__ import annotations

import trainer.process

if __name__ == "__main__":
    trainer.process.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import itertools
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import transformers
from accelerate import Accelerator
from torch import Tensor

import loss as L
import train
from rollout import Group, Request, Sampling, TorchEngine
from trainer.metrics import Sums
from trainer.micro_batches import micro_batches
from trainer.outcomes import Rollout
from trainer.policy import Policy, chunked_logprobs, write_log_probs
from trainer.problems import load_problems
from trainer.process import explained
from trainer.rollouts import rollouts_of
from trainer.settings import TINY, Config
from trainer.text import encode
from verify import Problem


class Speeds(NamedTuple):
    """A line of the table."""

    what: str
    first: float
    second: float
    unit: str
    ratio: float


def rate(way: Callable[[], int]) -> float:
    """Call a function that returns the number of units it computed. Returns this number per second."""
    began = time.perf_counter()
    return way() / (time.perf_counter() - began)


def compare(what: str, unit: str, turns: int, first: Callable[[], int], second: Callable[[], int]) -> Speeds:
    """Let two ways take turns, and compare their rates in units per second."""
    rates = [(rate(first), rate(second)) for _ in range(turns)]
    first_median, second_median = (statistics.median(way) for way in zip(*rates, strict=True))
    return Speeds(what, first_median, second_median, unit, statistics.median(x / y for x, y in rates))


def plain_log_probs(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return (hidden @ weight.T).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)


def measure_log_probs(turns: int = 3, tokens: int = 1024) -> Iterator[Speeds]:
    """With random weights of Qwen2 0.5B's vocabulary and width."""
    weight = (torch.randn(151_936, 896) / 896**0.5).requires_grad_()
    vocabulary, width = weight.shape
    hidden = torch.randn(tokens, width, requires_grad=True)
    targets = torch.randint(vocabulary, (tokens,))

    def backward(logp: Tensor) -> int:
        logp.sum().backward()
        hidden.grad = weight.grad = None
        return tokens

    def ours() -> int:
        return backward(chunked_logprobs(hidden, weight, targets)[0])

    def plain() -> int:
        return backward(plain_log_probs(hidden, weight, targets))

    yield compare(f"log-probs, {tokens:,} x {vocabulary:,} logits", "tokens/s", turns, ours, plain)


def tiny_model():
    return transformers.AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float32).eval()


def measure_rollout(turns: int = 3, samples: int = 2048, length: int = 8, most_at_once: int = 512) -> Iterator[Speeds]:
    """With the tiny policy and responses of `length` tokens. model.generate draws at most `most_at_once` in a call."""
    model, tokenizer = tiny_model(), transformers.AutoTokenizer.from_pretrained(TINY / "policy")
    prompts = [encode(tokenizer, problem) for problem in load_problems(TINY / "train.jsonl")[:256]]
    engine, seeds = TorchEngine(model), itertools.count()
    for n in (16, 512):
        at_once, drawn = min(n, most_at_once), prompts[: max(1, samples // n)]

        def ours(n=n, drawn=drawn) -> int:
            requests = [Request(prompt, n, next(seeds)) for prompt in drawn]
            return sum(len(group.responses) for _, group in engine.generate(requests, Sampling(length)))

        def plain(at_once=at_once) -> int:
            prompt = torch.tensor([prompts[next(seeds) % len(prompts)]])
            model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=True, num_return_sequences=at_once, top_k=0,
                top_p=1.0, temperature=1.0, min_new_tokens=length, max_new_tokens=length, pad_token_id=0,
            )  # fmt: skip
            return at_once

        yield compare(f"rollout, N = {n}, {len(drawn[0])}-token prompts", "samples/s", turns, ours, plain)


def measure_hand_over(turns: int = 3, n: int = 512, length: int = 1024) -> Iterator[Speeds]:
    """With random responses of `length` tokens."""
    accelerator = Accelerator(cpu=True)
    tokens = torch.randint(50_000, (n, length), dtype=torch.int32)
    full, false = torch.full((n,), length), torch.zeros(n, dtype=torch.bool)
    drawn = Group([1] * 32, tokens, torch.randn(n, length), full, false)

    def cut(group: Group) -> int:
        rollouts = list(rollouts_of(group, Problem("", "math", ""), 0, 0))
        micro_batches(rollouts, Config.max_tokens_per_micro_batch, True, accelerator)
        return n * length

    def plain() -> int:
        return cut(Group.of(drawn.prompt, drawn.responses, drawn.logprobs, ["stop"] * n))

    yield compare(f"hand-over, {n} x {length:,} tokens", "tokens/s", turns, lambda: cut(drawn), plain)


def measure_shared_prompt(turns: int = 3, n: int = 128, prompt_tokens: int = 256) -> Iterator[Speeds]:
    """With the tiny policy and random tokens. A response is a quarter as long as the prompt."""
    model, length, accelerator = tiny_model(), max(2, prompt_tokens // 4), Accelerator(cpu=True)
    prompt = torch.randint(model.config.vocab_size, (prompt_tokens,), dtype=torch.int32)
    responses = torch.randint(model.config.vocab_size, (n, length), dtype=torch.int32)
    rollouts = [
        Rollout(Problem("", "math", ""), 0, i, prompt, response, torch.zeros(length), False, advantage=advantage)
        for i, (response, advantage) in enumerate(zip(responses, torch.randn(n).tolist(), strict=True))
    ]
    policy = Policy(model)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.0, foreach=False)
    config, objective = Config(temperature=1.0), L.OBJECTIVES["brorl"]

    def step(share_prompts: bool) -> int:
        policy.share_prompts = share_prompts
        mini_batch = micro_batches(rollouts, config.max_tokens_per_micro_batch, share_prompts, accelerator)
        write_log_probs(policy, mini_batch, "old_logp", 1.0, accelerator)
        train.update(policy, optimizer, mini_batch, n * length, n, objective, config, accelerator, Sums(accelerator))
        return n

    what = f"score, update: {prompt_tokens} + {n} x {length} tokens"
    yield compare(what, "samples/s", turns, lambda: step(True), lambda: step(False))


PARTS: dict[str, Callable[..., Iterator[Speeds]]] = {
    "log_probs": measure_log_probs, "rollout": measure_rollout, "hand_over": measure_hand_over,
    "shared_prompt": measure_shared_prompt,
}  # fmt: skip


def rate_text(x: float) -> str:
    """Write a rate with three digits, or as a whole number from 100 on: 0.25, 18.2, 1,734."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def main(argv: list[str] | None = None) -> None:
    """Run the parts and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=PARTS, metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parts = parser.parse_args(argv).parts
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"{torch.get_num_threads()} threads, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
          f"Python {platform.python_version()}, torch {torch.__version__}")  # fmt: skip
    print(f"{'':38} {'ours':>10} {'plain':>10} {'unit':10} {'ratio':>6}")
    for part in parts or PARTS:
        torch.manual_seed(0)
        for what, ours, plain, unit, ratio in PARTS[part]():
            print(f"{what:38} {rate_text(ours):>10} {rate_text(plain):>10} {unit:10} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    with explained(code=2):
        main()
