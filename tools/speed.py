"""Section 4.2: how fast are the parts of a step, each next to the plain way of doing the same?

    python -m tools.speed                             all parts, about 10 minutes on 2 cores
    python -m tools.speed rollout verify              some parts

    part            ours                                               plain
    log_probs       trainer/head.py: chunked_logprobs                  log_softmax of all logits
    rollout         rollout.py: TorchEngine                            model.generate
    verify          verify.py: verify_batch                            one answer after the other
    shared_prompt   trainer/policy.py: after_shared_prompts            every rollout computes its prompt
    whole_step      train.py                                           TRL's GRPOTrainer
    ranks           trainer/rollouts.py: requests_of_rank              whole prompts for each rank; simulated

Both ways take turns, so other programs on the machine slow both. Every number is the median over the turns, and the
ratio is the median of the ratios of the turns. A ratio above 1 is in favour of ours. verify_batch judges equal answers
once. P + N x T tokens are a prompt of P tokens and N responses of T tokens.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import importlib.util
import itertools
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from accelerate import Accelerator
from torch import Tensor

import brorl
import loss as L
import train
import verify as judge
from rollout import Request, Sampling, TorchEngine
from trainer.head import chunked_logprobs
from trainer.metrics import Sums
from trainer.micro_batches import micro_batches, score
from trainer.outcomes import Rollout
from trainer.policy import Policy
from trainer.problems import load_problems
from trainer.rollouts import requests_of_rank
from trainer.settings import TINY, Config, read_settings
from trainer.start import explained, set_up, start_accelerator
from trainer.text import encode


@dataclass(frozen=True)
class Sizes:
    """The work of a turn."""

    turns: int = 3
    tokens: int = 1024  # log_probs, with random weights of Qwen2 0.5B's sizes
    samples: int = 2048  # rollout, at N = 16 and 512
    response: int = 8  # tokens of a response, in rollout and whole_step
    rows: int = 512  # most rollouts that model.generate samples at the same time
    problems: int = 64  # verify, with 512 answers each
    rollouts: int = 128  # shared_prompt: N
    prompt: int = 256  # shared_prompt: tokens of the prompt; the responses have a quarter
    step: tuple[int, int, int] = (512, 16, 3)  # whole_step: N, B, steps; the first step is not counted


class Row(NamedTuple):
    """A line of the table."""

    what: str
    ours: float
    plain: float
    unit: str
    ratio: float


def rate(way: Callable[[], int]) -> float:
    """Call a function that returns how much it did. Returns that per second."""
    began = time.perf_counter()
    return way() / (time.perf_counter() - began)


def compare(what: str, unit: str, turns: int, ours: Callable[[], int], plain: Callable[[], int]) -> Row:
    """Let both ways take turns, and compare how much they do per second."""
    rates = [(rate(ours), rate(plain)) for _ in range(turns)]
    a, b = (statistics.median(way) for way in zip(*rates, strict=True))
    return Row(what, a, b, unit, statistics.median(x / y for x, y in rates))


# ---------------------------------------------------------------------------------------------------- log_probs


def plain_log_probs(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return (hidden @ weight.T).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)


def log_probs(size: Sizes) -> Iterator[Row]:
    weight = (torch.randn(151_936, 896) / 896**0.5).requires_grad_()
    vocabulary, width = weight.shape
    hidden = torch.randn(size.tokens, width, requires_grad=True)
    targets = torch.randint(vocabulary, (size.tokens,))

    def backward(logp: Tensor) -> int:
        logp.sum().backward()
        hidden.grad = weight.grad = None
        return size.tokens

    def ours() -> int:
        return backward(chunked_logprobs(hidden, weight, targets)[0])

    def plain() -> int:
        return backward(plain_log_probs(hidden, weight, targets))

    yield compare(f"log-probs, {size.tokens:,} x {vocabulary:,} logits", "tokens/s", size.turns, ours, plain)


# ------------------------------------------------------------------------------------------------------ rollout


def embedded():
    return transformers.AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float32).eval()


def rollout(size: Sizes) -> Iterator[Row]:
    model, tokenizer = embedded(), transformers.AutoTokenizer.from_pretrained(TINY / "policy")
    prompts = [encode(tokenizer, problem) for problem in load_problems(TINY / "train.jsonl")[:256]]
    engine, seeds = TorchEngine(model), itertools.count()
    for n in (16, 512):
        rows, some = min(n, size.rows), prompts[: max(1, size.samples // n)]

        def ours(n=n, some=some) -> int:
            requests = [Request(prompt, n, next(seeds)) for prompt in some]
            return sum(len(group.responses) for _, group in engine.generate(requests, Sampling(size.response)))

        def plain(rows=rows) -> int:
            prompt = torch.tensor([prompts[next(seeds) % len(prompts)]])
            model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=True, num_return_sequences=rows, top_k=0,
                top_p=1.0, temperature=1.0, min_new_tokens=size.response, max_new_tokens=size.response, pad_token_id=0,
            )  # fmt: skip
            return rows

        yield compare(f"rollout, N = {n}, {len(some[0])}-token prompts", "samples/s", size.turns, ours, plain)


# ------------------------------------------------------------------------------------------------------- verify


def math_answers(problems: int, n: int) -> list[tuple[str, str, str]]:
    """n answers to each problem, a fraction: half of them right, and 60 wrong ones by Zipf's law."""
    draw, items = random.Random(0), []
    for _ in range(problems):
        a, b = draw.randint(2, 400), draw.choice([3, 5, 7, 11])
        right = [f"\\frac{{{a}}}{{{b}}}", f"\\dfrac{{{a}}}{{{b}}}", f"{a}/{b}"]
        wrong = [f"\\frac{{{a + k}}}{{{b}}}" for k in range(1, 61)]
        for _ in range(n):
            answer = draw.choice(right + draw.choices(wrong, [1 / k for k in range(1, 61)], k=3))
            items.append(("math", f"<think>{draw.random()} so we try </think> It is \\boxed{{{answer}}}", right[0]))
    return items


def verify(size: Sizes) -> Iterator[Row]:
    items = math_answers(size.problems, 512)
    distinct = len({(gold, text.rpartition("</think>")[2]) for _, text, gold in items})
    sample = random.Random(0).sample(items, 256)
    judge.verify_batch(sample)  # starts the workers

    def batch() -> int:
        return len(judge.verify_batch(items))

    def one_by_one() -> int:
        return len([judge.verify(*item) for item in sample])

    yield compare(f"{len(items):,} math answers, {distinct:,} distinct", "answers/s", size.turns, batch, one_by_one)


# ------------------------------------------------------------------------------------------------ shared_prompt


def shared_prompt(size: Sizes) -> Iterator[Row]:
    model, n, length, accelerator = embedded(), size.rollouts, max(2, size.prompt // 4), Accelerator(cpu=True)
    prompt = torch.randint(model.config.vocab_size, (size.prompt,), dtype=torch.int32)
    responses = torch.randint(model.config.vocab_size, (n, length), dtype=torch.int32)
    rollouts = [
        Rollout(judge.Problem("", "math", ""), 0, i, prompt, response, torch.zeros(length), False, advantage=advantage)
        for i, (response, advantage) in enumerate(zip(responses, torch.randn(n).tolist(), strict=True))
    ]
    policy = Policy(model)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.0, foreach=False)
    config = Config(temperature=1.0)
    loss = partial(L.policy_loss, tokens=n * length, responses=n)

    def step(share_prompts: bool) -> int:
        policy.share_prompts = share_prompts
        mini_batch = micro_batches(rollouts, config.max_tokens_per_micro_batch, share_prompts, accelerator)
        score(policy, mini_batch, "old_logp", 1.0, accelerator)
        train.update(policy, optimizer, mini_batch, loss, config, accelerator, Sums(accelerator))
        return n

    what = f"score, update: {size.prompt} + {n} x {length} tokens"
    yield compare(what, "samples/s", size.turns, lambda: step(True), lambda: step(False))


# --------------------------------------------------------------------------------------------------- whole_step


def ours_step(size: Sizes, folder: Path, number: int) -> float:
    """Train on countdown. Returns samples/s after the first step."""
    n, b, steps = size.step
    flags = [
        f"--data={folder / 'data.jsonl'}", f"--eval_data={folder / 'few.jsonl'}", f"--output_dir={folder}",
        f"--name=ours{number}", f"--rollouts_per_prompt={n}", f"--prompts_per_step={b}", "--engine=torch",
        f"--max_steps={steps}", "--learning_rate=1e-6", "--refill=1", "--kl_coef=1e-4", "--eval_every=0",
        "--eval_samples=1", "--eval_temperature=0", "--save_every=1000", f"--max_response_tokens={size.response}",
    ]  # fmt: skip
    config, sources = read_settings("", flags)
    accelerator = start_accelerator(config)
    with redirect_stdout(StringIO()):
        train.train(config, accelerator, set_up(config, accelerator, sources))
    timing = [json.loads(line) for line in (folder / f"ours{number}/timing.jsonl").read_text().splitlines()]
    return (steps - 1) * n * b / (timing[-1]["seconds"] - timing[1]["seconds"])  # timing[0]: the first evaluation


def trl_step(size: Sizes, folder: Path, number: int) -> float:
    """The same steps by TRL's GRPOTrainer: same model, prompts, N, B, mini-batches, KL term and reward."""
    import datasets
    import trl

    n, b, steps = size.step
    updates, ends = int(brorl.BRORL["updates_per_step"].value), list[float]()
    problems = {p.prompt: p for p in load_problems(folder / "data.jsonl")}

    def reward(prompts, completions, **_):
        asked = [problems[prompt] for prompt in prompts]
        return [v.reward for v in judge.verify_batch(
            [(p.kind, text, p.reference) for p, text in zip(asked, completions, strict=True)]
        )]  # fmt: skip

    class Ends(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    config = trl.GRPOConfig(
        output_dir=str(folder / f"trl{number}"), use_cpu=True, bf16=False, num_generations=n, temperature=1.0, top_k=0,
        max_completion_length=size.response, per_device_train_batch_size=n * b // updates, num_iterations=1,
        steps_per_generation=updates, beta=1e-4, learning_rate=1e-6, lr_scheduler_type="constant", epsilon_high=0.27,
        max_steps=steps * updates, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        gradient_checkpointing=False, model_init_kwargs={"dtype": torch.float32},
    )  # fmt: skip
    rows = datasets.Dataset.from_list([{"prompt": prompt} for prompt in problems])
    trainer = trl.GRPOTrainer(str(TINY / "policy"), reward, config, rows, callbacks=[Ends()])
    with redirect_stdout(StringIO()):
        trainer.train()
    return (steps - 1) * n * b / (ends[-1] - ends[updates - 1])


def whole_step(size: Sizes) -> Iterator[Row]:
    if not importlib.util.find_spec("trl") or not importlib.util.find_spec("datasets"):
        print("whole_step is left out: it compares with TRL, pip install trl==1.16.0 datasets")
        return
    with tempfile.TemporaryDirectory() as name:
        folder, lines = Path(name), (TINY / "train.jsonl").read_text().splitlines(keepends=True)
        (folder / "data.jsonl").write_text("".join(lines[:512]))
        (folder / "few.jsonl").write_text("".join(lines[512:514]))
        rates = [(ours_step(size, folder, i), trl_step(size, folder, i)) for i in range(size.turns)]
    a, b = (statistics.median(way) for way in zip(*rates, strict=True))
    n, prompts, _ = size.step
    yield Row(f"whole step, N = {n}, B = {prompts}", a, b, "samples/s", statistics.median(x / y for x, y in rates))


# -------------------------------------------------------------------------------------------------------- ranks

# Assumed, not measured. Responses are log-normal around a median that is log-normal over prompts: 6,000 tokens on
# average, cut at 16,384. The share of informative prompts is that of table 2. A rank's time follows its tokens.
MEDIAN, SPREAD, LIMIT, RANKS = 4750.0, 0.5, 16384, 64


def owners(prompts: int, n: int, world: int) -> Tensor:
    """The rank of each rollout, (P, N), by the rule of train.py."""
    owner = torch.empty(prompts, n, dtype=torch.long)
    for rank in range(world):
        for p, (_, count, _, first) in requests_of_rank([[0]] * prompts, n, [0] * prompts, rank, world):
            owner[p, first : first + count] = rank
    return owner


def busiest(tokens: Tensor, owner: Tensor, world: int) -> float:
    """Tokens of the busiest rank over the mean of the ranks."""
    of_rank = torch.zeros(world).double().scatter_add_(0, owner.flatten(), tokens.flatten().double())
    return float(of_rank.max() / of_rank.mean())


def ranks(size: Sizes) -> Iterator[Row]:
    n, b = (int(brorl.BRORL[name].value) for name in ("rollouts_per_prompt", "prompts_per_step"))
    drawn = round(b / brorl.PASS_RATE["brorl"])
    whole = (torch.arange(drawn) % RANKS)[:, None].expand(-1, n)  # the ranks take prompts in turn
    pairs = []
    for _ in range(size.turns):
        medians = MEDIAN * (SPREAD * torch.randn(drawn, 1)).exp()
        tokens = (medians * (SPREAD * torch.randn(drawn, n)).exp()).ceil().clamp(max=LIMIT)  # (P, N)
        pairs.append((busiest(tokens, owners(drawn, n, RANKS), RANKS), busiest(tokens, whole, RANKS)))
    a, b = map(statistics.median, zip(*pairs, strict=True))
    yield Row(f"busiest of {RANKS} ranks", a, b, "x the mean", b / a)


# ------------------------------------------------------------------------------------------------------ the table

PARTS: dict[str, Callable[[Sizes], Iterator[Row]]] = {
    "log_probs": log_probs, "rollout": rollout, "verify": verify, "shared_prompt": shared_prompt,
    "whole_step": whole_step, "ranks": ranks,
}  # fmt: skip


def digits(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def line(row: Row) -> str:
    return f"{row.what:38} {digits(row.ours):>9} {digits(row.plain):>9} {row.unit:10} {row.ratio:6.2f}"


def main(argv: list[str] | None = None) -> list[Row]:
    """Run the parts and print the table. Returns its rows."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    args = parser.parse_args(argv)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"{torch.get_num_threads()} threads, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
          f"Python {platform.python_version()}, torch {torch.__version__}")  # fmt: skip
    print(f"{'':38} {'ours':>9} {'plain':>9} {'unit':10} {'ratio':>6}")
    rows = []
    for part in args.parts or PARTS:
        torch.manual_seed(0)
        for row in PARTS[part](Sizes()):
            print(line(row), flush=True)
            rows.append(row)
    return rows


if __name__ == "__main__":
    with explained(code=2):
        main()
