"""Engines and whole steps of a model, beside the plain way, TRL, and what this machine can do at most.

`python -m evidence.smollm F` makes a chat model's folder F. Rollouts that begin alike are decoded together, so what is
decoded matters: prompts are chats, filled with worked sums up to their length, and responses are the model's own.

Matrix speed is that of torch's product of two 2,048 x 2,048 matrices, in the same process and precision. A fraction of
it counts the products that are needed: 2 x the weights of the layers for each token, and 2 x those of the head for each
token of a response. A prompt counts once for its N rollouts, every response whole. Equal beginnings that are computed
once lift the fraction. A prompt that is computed N times lowers it.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

import verify
from bench.common import ROOT, again, answer, machine, quiet, seconds
from rollout import Engine, Request, Sampling, TorchEngine, VLLMEngine, have_vllm

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def begin(args: argparse.Namespace) -> None:
    """Exits with a sentence where there is no chat model."""
    if not (Path(args.model) / "config.json").exists():
        sys.exit("name a folder with a chat model: --model F, as `python -m evidence.smollm F` makes one")
    quiet(args)


# ------------------------------------------------------------------------------------------- prompts


def sums(seed: int):
    """Pairs of digits without end, in an order of their own for each seed."""
    draw = random.Random(seed)
    while True:
        yield draw.randint(1, 9), draw.randint(1, 9)


def chat(tokenizer, length: int, number: int) -> list[dict]:
    """Problem `number` behind as many worked sums as make `length` tokens, to the token where there is room for it."""
    pairs = sums(number)
    a = number % 8 + 1
    last, system = {"role": "user", "content": f"{a} + {9 - a}?"}, "Answer."
    worked: list[list[dict]] = []

    def messages() -> list[dict]:
        return [{"role": "system", "content": system}, *itertools.chain(*worked), last]

    def room() -> int:
        return length - len(tokenizer.apply_chat_template(messages(), add_generation_prompt=True, return_dict=False))

    while room() > 0:
        a, b = next(pairs)
        answer = f"{a} + {b} = {a + b}, so the answer is \\boxed{{{a + b}}}."
        worked.append([{"role": "user", "content": f"{a} + {b}?"}, {"role": "assistant", "content": answer}])
    if worked and room() < 0:
        worked.pop()
    system += room() * " please"  # a token each
    return messages()


def write_problems(folder: Path, model: str, length: int, count: int) -> None:
    """Problems for both trainers. Of a chat model: every sum is 9, and the reward is for a 9 in the response. Of the
    embedded policy: countdown, or with `length` characters in front, which it cannot solve, an 8 in the response.
    So some rollouts of nearly every prompt are right, and both trainers train on all prompts."""
    tokenizer, draw = transformers.AutoTokenizer.from_pretrained(model), random.Random(0)
    if tokenizer.chat_template:
        rows = [{"prompt": chat(tokenizer, length, i)} | says("9") for i in range(count)]
    else:
        rows = [x._asdict() for x in verify.load_problems(ROOT / "tiny/train.jsonl")[:count]]
        for row in rows if length else []:
            front = "".join(draw.choice("123456789+-*/=:()") for _ in range(length - len(row["prompt"])))
            row |= {"prompt": front + row["prompt"]} | says("8")
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "data.jsonl").write_text("".join(lines))
    (folder / "few.jsonl").write_text("".join(lines[:2]))


def says(digit: str) -> dict:
    """A rule that a response follows if it has this digit."""
    rule = {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": [digit]}]}
    return {"kind": "ifeval", "reference": rule}


# ------------------------------------------------------------------------------------- matrix speed


def matrix_speed(dtype: torch.dtype, size: int = 2048, turns: int = 5) -> float:
    """GFLOP/s of torch's product of two square matrices, the best turn."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    a @ b
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(turns)) / 1e9


def weights(model) -> tuple[int, int]:
    """Numbers in the matrices of the layers, and in the head."""
    head = model.get_output_embeddings().weight
    inside = (p for p in model.base_model.layers.parameters() if p.dim() > 1)
    return sum(p.numel() for p in inside), head.numel()


# ------------------------------------------------------------------------------------------- engines

KEY = ("model", "engine", "dtype", "threads", "n", "prompt", "response")
COLUMNS = (
    *KEY, "samples", "seconds", "samples_per_s", "tokens_per_s", "distinct_responses", "distinct_tokens",
    "gflops", "matrix_gflops", "fraction", "load",
)  # fmt: skip


def cells(args: argparse.Namespace) -> list[tuple[str, int, int, int]]:
    """(dtype, N, prompt tokens, response tokens): the first of each, and from there one factor at a time."""
    factors = args.dtypes.split(","), args.rollouts, args.lengths, args.tokens
    base = tuple(values[0] for values in factors)
    found = [base]
    for i, values in enumerate(factors):
        found += [(*base[:i], value, *base[i + 1 :]) for value in values[1:]]
    return found


def engines(args: argparse.Namespace) -> None:
    """Both engines and model.generate, one factor at a time around the first value of each; a row is kept in --out.

    Turns of at least 512 samples, until --samples or --limit seconds are spent. model.generate, which copies a prompt
    for every rollout, gets --plain samples of one prompt. EOS does not end a response, so that all have one length.
    """
    begin(args)
    if args.way:
        measure_cells(args)
        return
    if not args.out:
        sys.exit("name the table to write: --out FILE.csv; rows that it has are not measured again")
    out, threads = Path(args.out), torch.get_num_threads()
    have = set()
    if out.exists():
        with out.open() as file:
            have = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    print(machine())
    for dtype in args.dtypes.split(","):
        for engine in args.engines.split(","):
            if engine == "vllm" and not have_vllm():
                print("vllm: not installed")
                continue
            wanted = [x for x in cells(args) if x[0] == dtype
                      and tuple(map(str, (args.model, engine, dtype, threads, *x[1:]))) not in have]  # fmt: skip
            if wanted:
                flags = ("model", "samples", "limit", "plain", "threads")
                process = again("engines", engine, args, flags, json.dumps(wanted))
                for line in process.stdout or ():
                    if line.startswith("{"):
                        keep(out, json.loads(line))
                if process.wait():
                    sys.exit(f"{engine} in {dtype} ended with status {process.returncode}")


def keep(out: Path, row: dict) -> None:
    new = not out.exists()
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    print(
        f"{row['engine']:>8} {row['dtype']:>8} N = {row['n']:3}, {row['prompt']:3} + {row['response']:2} tokens: "
        f"{row['samples_per_s']:8.2f} samples/s, {row['tokens_per_s']:8.1f} tokens/s, {row['fraction']:6.1%} of "
        f"{row['matrix_gflops']:.0f} GFLOP/s ({row['samples']} samples in {row['seconds']:.1f} s; distinct: "
        f"{row['distinct_responses']} responses, {row['distinct_tokens']:.0%} of their tokens)",
        flush=True,
    )


def measure_cells(args: argparse.Namespace) -> None:
    """One engine in one precision, in a process of its own: a line of JSON for each cell."""
    wanted = json.loads(args.file)
    dtype = wanted[0][0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=DTYPES[dtype]).eval()
    layers, head = weights(model)
    engine: Engine | None = None
    if args.way == "torch":
        engine = TorchEngine(model)
    if args.way == "vllm":
        engine = VLLMEngine(model, positions=max(p + r for _, _, p, r in wanted) + 16, dtype=dtype)
    for _, n, length, tokens in wanted:
        a_turn = max(1, min(512, args.samples) // n) if engine else 1
        prompts = [
            tokenizer.apply_chat_template(chat(tokenizer, length, i), add_generation_prompt=True, return_dict=False)
            for i in range(max(a_turn, args.samples // n))
        ]
        draw(engine, model, prompts[:1], 8, 4, 0)  # the first call of anything is slow
        speed, spent = matrix_speed(DTYPES[dtype]), 0.0
        groups: list[list[list[int]]] = []
        rows = n if engine else min(n, args.plain)
        while spent < args.limit and len(groups) < len(prompts) and not (groups and not engine):
            turn = prompts[len(groups) : len(groups) + a_turn]
            start = time.perf_counter()
            groups += draw(engine, model, turn, rows, tokens, len(groups))
            spent += time.perf_counter() - start
        asked, responses = prompts[: len(groups)], [tuple(r) for group in groups for r in group]
        prefixes = sum(len({tuple(r[:t]) for r in group}) for group in groups for t in range(1, tokens + 1))
        work = 2 * (layers * sum(map(len, asked)) + (layers + head) * tokens * len(responses)) / 1e9
        row = {
            "model": args.model, "engine": args.way, "dtype": dtype, "threads": torch.get_num_threads(), "n": n,
            "prompt": length, "response": tokens, "samples": len(responses), "seconds": round(spent, 2),
            "samples_per_s": round(len(responses) / spent, 4),
            "tokens_per_s": round(len(responses) * tokens / spent, 3),
            "distinct_responses": sum(len(set(map(tuple, group))) for group in groups),
            "distinct_tokens": round(prefixes / (tokens * len(responses)), 4), "gflops": round(work / spent, 3),
            "matrix_gflops": round(speed, 2), "fraction": round(work / spent / speed, 5),
            "load": round(os.getloadavg()[0], 2),
        }  # fmt: skip
        print("\n" + json.dumps(row), flush=True)
    if engine:
        engine.close()


def draw(engine, model, prompts, n, tokens, seed) -> list[list[list[int]]]:
    """`n` responses of so many tokens to each prompt."""
    if engine:
        requests = [Request(prompt, n, seed + i) for i, prompt in enumerate(prompts)]
        drawn = dict(engine.generate(requests, Sampling(tokens)))
        return [drawn[i].responses for i in range(len(prompts))]
    (prompt,) = torch.tensor(prompts)
    torch.manual_seed(seed)
    with torch.no_grad():
        out = model.generate(
            prompt[None], attention_mask=torch.ones_like(prompt)[None], do_sample=True, num_return_sequences=n,
            temperature=1.0, top_k=0, top_p=1.0, min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=0,
        )  # fmt: skip
    return [out[:, len(prompt) :].tolist()]


# ----------------------------------------------------------------------------------------------- trl


def ours(args: argparse.Namespace, folder: Path, name: str, **environment: str) -> tuple[list, list]:
    """Run train.py. Returns metrics and timing of its steps."""
    command = [
        sys.executable, str(ROOT / "train.py"), f"--output_dir={folder}", f"--name={name}",
        f"--model={args.model}", f"--data={folder / 'data.jsonl'}", f"--eval_data={folder / 'few.jsonl'}",
        f"--rollouts_per_prompt={args.rollouts}", f"--prompts_per_step={args.prompts}", "--engine=torch",
        f"--updates_per_step={args.updates}", "--learning_rate=1e-6", f"--max_steps={args.steps}", "--eval_every=0",
        "--eval_samples=1", "--eval_temperature=0", f"--max_response_tokens={args.tokens}",
        f"--eval_max_response_tokens={args.tokens}", "--refill=1", "--save_every=1000", "--kl_coef=1e-4",
    ]  # fmt: skip
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads | environment)
    if done.returncode:
        sys.exit(f"train.py ended with status {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    metrics, timing = (
        [json.loads(line) for line in (folder / name / f"{log}.jsonl").read_text().splitlines()]
        for log in ("metrics", "timing")
    )
    return metrics[1:], timing[1:]  # without the evaluation before the first step


def theirs(args: argparse.Namespace, folder: Path) -> dict:
    """The same steps by TRL's GRPOTrainer."""
    import datasets
    import trl as package

    n, b, ends = args.rollouts, args.prompts, list[float]()
    problems = verify.load_problems(folder / "data.jsonl")
    by_prompt = {json.dumps(problem.prompt): problem for problem in problems}

    def reward(prompts, completions, **_):
        texts = [x if isinstance(x, str) else x[0]["content"] for x in completions]
        asked = [by_prompt[json.dumps(prompt)] for prompt in prompts]
        items = [(x.kind, text, x.reference) for x, text in zip(asked, texts, strict=True)]
        return [verdict.reward for verdict in verify.verify_batch(items)]

    class Ends(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    config = package.GRPOConfig(
        output_dir=str(folder / "trl"), use_cpu=True, bf16=False, num_generations=n, max_completion_length=args.tokens,
        per_device_train_batch_size=n * b // args.updates, steps_per_generation=args.updates, num_iterations=1,
        beta=1e-4, learning_rate=1e-6, lr_scheduler_type="constant", temperature=1.0, top_k=0,
        max_steps=args.steps * args.updates, report_to="none", save_strategy="no", logging_strategy="steps",
        logging_steps=1, disable_tqdm=True, seed=0, epsilon_high=0.27, gradient_checkpointing=False,
        model_init_kwargs={"dtype": torch.float32},
    )  # fmt: skip
    trainer = package.GRPOTrainer(
        model=args.model, reward_funcs=reward, args=config, callbacks=[Ends()],
        train_dataset=datasets.Dataset.from_list([{"prompt": problem.prompt} for problem in problems]),
    )  # fmt: skip
    trainer.train()
    lengths = [x["completions/mean_length"] for x in trainer.state.log_history if "completions/mean_length" in x]
    spent = ends[-1] - ends[args.updates - 1]
    return {"rate": (args.steps - 1) * n * b / spent, "tokens": statistics.mean(lengths), "kept": 1.0}


def whole_steps(args: argparse.Namespace) -> None:
    """Steps of one trainer in a process of its own: samples/s of all but the first."""
    folder = Path(args.file)
    if args.way == "trl":
        print("\n" + json.dumps(theirs(args, folder)), flush=True)
        return
    metrics, timing = ours(args, folder, f"ours{len(list(folder.glob('ours*')))}")
    spent, counted = timing[-1]["seconds"] - timing[0]["seconds"], metrics[1:]
    row = {"rate": (args.steps - 1) * args.rollouts * args.prompts / spent}
    row |= {"tokens": statistics.mean(m["response_tokens"] for m in counted)}
    print(json.dumps(row | {"kept": statistics.mean(m["prompts"] for m in counted) / args.prompts}))


def trl(args: argparse.Namespace) -> None:
    """Generation, verification and update of both trainers in turns: same model, chats, N, batch, updates, KL term."""
    quiet(args)
    if args.way:
        args.rollouts = args.rollouts[0]
        whole_steps(args)
        return
    if not importlib.util.find_spec("trl") or not importlib.util.find_spec("datasets"):
        sys.exit("this compares with TRL, which is not installed: pip install trl==1.16.0")
    print(machine())
    print(
        f"{args.prompts} prompts of {args.length} tokens, {args.updates} updates a step, at most {args.tokens} "
        f"response tokens, float32, KL term; {args.steps} steps a turn, the first is not counted:"
    )
    widths = args.rollouts
    for n in widths:
        args.rollouts = n
        results: dict[str, list[dict]] = {"ours": [], "trl": []}
        with tempfile.TemporaryDirectory() as folder:
            write_problems(Path(folder), args.model, args.length, 512)
            flags = ("model", "rollouts", "prompts", "updates", "steps", "length", "tokens", "threads")
            for _ in range(args.turns):
                for way, done in results.items():
                    done.append(json.loads(answer(again("trl", way, args, flags, folder))))
        rates = {way: [x["rate"] for x in done] for way, done in results.items()}
        ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
        own, other = (done[-1] for done in results.values())
        print(
            f"  N = {n:3}: train.py {max(rates['ours']):8.2f} samples/s, TRL {max(rates['trl']):8.2f}: "
            f"{max(rates['ours']) / max(rates['trl']):.2f}x, bests; {statistics.median(ratios):.2f}x, median "
            f"({own['tokens']:.1f} and {other['tokens']:.1f} tokens a response, {own['kept']:.0%} of ours kept)",
            flush=True,
        )


# -------------------------------------------------------------------------------------------- stages

SEEN = ("engine_difference", "engine_difference_max", "engine_kl", "engine_ratio_min", "engine_ratio_max", "ratio_min",
        "ratio_max", "kl_old")  # fmt: skip


def stages(args: argparse.Namespace) -> None:
    """Whole steps of train.py by stage, in float32 and bfloat16; medians of all steps except the first."""
    begin(args)
    print(machine())
    print(
        f"{args.prompts} prompts of {args.length} tokens x N = {args.rollouts}, {args.updates} updates, at most "
        f"{args.tokens} response tokens, medians of {args.steps - 1} steps:"
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model)
    layers, head = weights(model)
    del model
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_problems(folder, args.model, args.length, 64)
        for title, precision in (("float32", "no"), ("bfloat16", "bf16")):
            speeds = {name: matrix_speed(dtype) for name, dtype in DTYPES.items()}
            metrics, timing = ours(args, folder, title, ACCELERATE_MIXED_PRECISION=precision)
            print(f"{title}: matrix speed " + ", ".join(f"{x:.0f} GFLOP/s in {name}" for name, x in speeds.items()))
            steps = zip(metrics, metrics[1:], timing[1:], strict=False)
            if not (trained := [x for x in steps if x[1]["prompts"]]):
                print("  no prompt was kept: raise --rollouts or --tokens")
                continue
            passes = {"roll_out": 1, "score": 2, "update": 3}  # score: policy and reference; update: there and back
            for stage, times in passes.items():
                rates, decodes = [], stage == "roll_out"
                for before, m, clock in trained:
                    drawn = m["samples"] - before["samples"]
                    groups = drawn // args.rollouts if decodes else m["prompts"]
                    tokens = m["response_tokens"] * drawn if decodes else m["tokens"]
                    work = 2 * times * (layers * groups * args.length + (layers + head) * tokens) / 1e9
                    rates.append((clock[stage], tokens / clock[stage], work / clock[stage] / speeds[title]))
                took, rate, fraction = (statistics.median(column) for column in zip(*rates, strict=True))
                print(f"  {stage:9}{took:8.2f} s {rate:9.1f} response tokens/s {fraction:7.1%} of the matrix speed")
            last = trained[-1][1]
            print("  " + ", ".join(f"{x} {last[x]:.2g}" for x in SEEN if x in last))
            kept, lengths = last["prompts"], last["response_tokens"]
            print(f"  {kept} of {args.prompts} prompts kept, {lengths:.1f} tokens a response", flush=True)
