"""How fast the parts are, each beside the plain way of doing the same, measured in the same run.

    python tests/benchmark.py sim       section 4.1: sim.py against one softmax, multinomial and AdamW per step and N
    python tests/benchmark.py loss      section 3.1: log-probs without [tokens, V] against log_softmax, time and memory
    python tests/benchmark.py prefix    section 4.2: an optimizer step that computes a prompt once for its rollouts
                                        against the plain one, time, tokens and memory
    python tests/benchmark.py padding   section 4.2: what of a micro-batch is padding, at several spreads of lengths
    python tests/benchmark.py memory    section 4.2: train.py's estimate for models of other sizes, by part;
                                        --measure: beside the peak of short runs on this CPU
    python tests/benchmark.py trl       section 4.2: whole steps of train.py against TRL's GRPOTrainer
    python tests/benchmark.py probe     section 2: what --log_mass_balance costs of a step, at N = 16 and 512
    python tests/benchmark.py rollout   section 4.2.4: the torch engine against model.generate, at N = 16 and 512
    python tests/benchmark.py verify    section 4.2: verify_batch against math-verify called on one answer after the
                                        other, tests of programs, and memory over batches
    python tests/benchmark.py engines   table 2: pass rate and samples/s of both engines at N = 16 and 512
    python tests/benchmark.py seeds     section 4.2: a seed for every rollout with vLLM: its price, and what it repeats
    python tests/benchmark.py verdicts  section 4.2: verdicts on programs while others decode, against one after the
                                        other

Ours and the other take turns, so that both meet the same machine; every number is from this run. What takes a real
model is in benchmark_model.py.
"""

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import accelerate
import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


import sim as simulator
import verify as verifiers
from engines.vllm import VLLMEngine
from loss import informative, token_logprobs
from rollout import Group, Order, TorchEngine, have_vllm
from train import own_parts, update
from trainer.batch import Batch
from trainer.memory import activation_bytes
from trainer.policy import Policy
from trainer.progress import Progress
from trainer.rollouts import Judge, orders_of, roll_out
from trainer.settings import Config


def machine() -> str:
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}, "
        f"python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} torch thread(s)"
    )


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def obvious_simulation(setting: simulator.Setting, rollouts, seed: int = 0) -> dict[int, list[dict]]:
    """Section 4.1 as one would first write it: autograd, torch.multinomial, and an AdamW for each N."""
    torch.manual_seed(seed)
    rewards = torch.full((setting.vocabulary,), setting.reward_incorrect)
    rewards[: setting.correct_tokens] = setting.reward_correct
    curves = {}
    for n in rollouts:
        z = simulator.initial_logits(setting).requires_grad_()
        p_start = torch.softmax(z.detach(), -1)[: setting.correct_tokens]
        adamw = torch.optim.AdamW([z], lr=setting.lr, weight_decay=setting.weight_decay)
        curves[n] = []
        for _ in range(setting.steps):
            p = torch.softmax(z, -1)
            curves[n].append(simulator.measure(p.detach()[: setting.correct_tokens], p_start))
            tokens = torch.multinomial(p.detach(), n, replacement=True)
            r = rewards[tokens]
            loss = -((r - r.mean()) * p[tokens]).mean()
            adamw.zero_grad()
            loss.backward()
            adamw.step()
    return curves


def sim(args: argparse.Namespace) -> None:
    """The default run of sim.py, and both ways in turns on a part of the steps."""
    torch.set_num_threads(args.threads)
    setting, rollouts = simulator.Setting(), simulator.FIGURE_3
    part = dataclasses.replace(setting, steps=args.steps)
    scale = setting.steps / part.steps
    simulator.simulate(part, rollouts)
    turns = [
        (seconds(lambda: simulator.simulate(part, rollouts)), seconds(lambda: obvious_simulation(part, rollouts)))
        for _ in range(args.turns)
    ]
    whole = seconds(lambda: simulator.simulate(setting, rollouts))
    best, best_obvious = (min(column) * scale for column in zip(*turns, strict=True))
    ratios = sorted(obvious / ours for ours, obvious in turns)
    print(machine())
    print(f"N = {rollouts}, {setting.steps} steps; {args.turns} turns of {part.steps} steps each, scaled up:")
    print(f"  ours           {best:6.2f} s at best; the whole run took {whole:.1f} s")
    print(f"  obvious loop   {best_obvious:6.2f} s at best")
    print(
        f"  ratio          {best_obvious / best:6.2f} of the bests; {statistics.median(ratios):.2f} median of the turns"
    )


# ---------------------------------------------------------------------------------------------- loss


def token_logprobs_once(args: argparse.Namespace) -> None:
    """One way, forward and backward, in a process of its own: prints seconds and peak bytes above the inputs."""
    torch.manual_seed(0)
    hidden = torch.randn(args.tokens, args.hidden, requires_grad=True)
    weight = (torch.randn(args.vocabulary, args.hidden) / args.hidden**0.5).requires_grad_()
    targets, upstream = torch.randint(args.vocabulary, (args.tokens,)), torch.randn(args.tokens)
    before = resident()

    def work():
        if args.way == "ours":
            logp, _ = token_logprobs(hidden, weight, targets, temperature=0.8)
        else:
            logp = ((hidden @ weight.T) / 0.8).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
        (logp * upstream).sum().backward()

    took = seconds(work)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    torch.save((hidden.grad, weight.grad), args.file)
    print(json.dumps({"seconds": took, "peak": peak}))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def loss(args: argparse.Namespace) -> None:
    """Both ways in turns, each in a fresh process, so that a peak is its own."""
    if args.way:
        return token_logprobs_once(args)
    print(machine())
    print(f"{args.tokens:,} tokens, V = {args.vocabulary:,}, hidden {args.hidden}, float32, forward and backward:")
    results = {"ours": [], "plain": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.turns):
            for way in results:
                command = [sys.executable, __file__, "loss", "--way", way, "--file", f"{folder}/{way}.pt"]
                command += [f"--{name}={getattr(args, name)}" for name in ("tokens", "vocabulary", "hidden")]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                results[way].append(json.loads(done.stdout))
                print(f"  {way:6} {results[way][-1]['seconds']:6.1f} s  {results[way][-1]['peak'] / 2**30:6.2f} GiB")
        pairs = zip(torch.load(f"{folder}/ours.pt"), torch.load(f"{folder}/plain.pt"), strict=True)
        errors = [((a - b).norm() / b.norm()).item() for a, b in pairs]
    ours, plain = ({k: min(x[k] for x in results[way]) for k in ("seconds", "peak")} for way in ("ours", "plain"))
    print(f"  time    {ours['seconds'] / plain['seconds']:.2f} x the plain way's (bests)")
    print(f"  memory  1/{plain['peak'] / ours['peak']:.1f} of the plain way's above the inputs (bests)")
    print(f"  gradients differ by {errors[0]:.1e} (hidden) and {errors[1]:.1e} (head), relative norms")


# -------------------------------------------------------------------------------------------- prefix


def prefix_step(args: argparse.Namespace) -> None:
    """Scoring and an optimizer step one way, in a process of its own: prints seconds, tokens and peak bytes."""
    torch.manual_seed(0)
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.Qwen2Config(
            vocab_size=args.vocabulary, hidden_size=args.hidden, intermediate_size=3 * args.hidden,
            num_hidden_layers=args.layers, num_attention_heads=args.hidden // 64,
            num_key_value_heads=max(1, args.hidden // 128), tie_word_embeddings=True,
        ),
        dtype=torch.float32,
    )  # fmt: skip
    policy, counts = Policy(model), [0]
    if args.way == "shared":
        policy.share("on")
    model.get_input_embeddings().register_forward_pre_hook(lambda _, x: counts.append(counts.pop() + x[0].numel()))
    prompt = torch.randint(args.vocabulary, (args.prompt_tokens,)).tolist()
    responses = torch.randint(args.vocabulary, (args.rollouts, args.tokens)).tolist()
    group = Group(prompt, responses, [[0.0] * args.tokens] * args.rollouts, ["stop"] * args.rollouts)
    batch = Batch.of([group], torch.randn(args.rollouts), "cpu")
    batch.share = args.way == "shared"
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = accelerator.prepare(torch.optim.AdamW(policy.parameters(), lr=1e-5))
    config = Config(temperature=1.0, updates_per_step=1, clip_low=0.2, clip_high=0.27, tis_cap=2.0, kl_coef=0.0)
    few = torch.arange(2)  # the first pass through anything is slow
    policy(*batch.inputs(few, 1.0))[0].sum().backward()
    policy.zero_grad()
    before, counts[0] = resident(), 0
    scored = seconds(lambda: setattr(batch, "old_logp", batch.score(policy, 1.0, config.max_tokens_per_micro_batch)[0]))
    counts[0] = 0
    cpu = time.process_time()
    updated = seconds(lambda: update(policy, optimizer, batch, config, accelerator, Progress()))
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    torch.save(batch.old_logp, args.file)
    print(json.dumps({"score": scored, "seconds": updated, "cpu": cpu, "tokens": counts[0], "peak": peak}))


def prefix(args: argparse.Namespace) -> None:
    """Both ways in turns, each in a fresh process, so that a peak is its own."""
    if args.way:
        return prefix_step(args)
    print(machine())
    names = ("rollouts", "prompt_tokens", "tokens", "hidden", "layers", "vocabulary")
    print(
        f"one prompt of {args.prompt_tokens} tokens, N = {args.rollouts} responses of {args.tokens}; a random Qwen2 of "
        f"{args.layers} layers, hidden {args.hidden}, V = {args.vocabulary:,}, float32:"
    )
    results = {"plain": [], "shared": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.turns):
            for way, done in results.items():
                command = [sys.executable, __file__, "prefix", "--way", way, "--file", f"{folder}/{way}.pt"]
                command += [f"--{name}={getattr(args, name)}" for name in names]
                command += [f"--threads={args.threads}"] if args.threads else []
                done.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
                x = done[-1]
                print(
                    f"  {way:6} {x['seconds']:6.1f} s a step ({x['cpu']:.1f} s of CPU), {x['score']:5.1f} s scoring, "
                    f"{x['tokens']:,} tokens, {x['peak'] / 2**30:5.2f} GiB",
                    flush=True,
                )
        logp, theirs = (torch.load(f"{folder}/{way}.pt") for way in results)
    plain, shared = ({k: min(x[k] for x in done) for k in done[0]} for done in results.values())
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(*results.values(), strict=True)]
    print(f"  tokens  {plain['tokens'] / shared['tokens']:.2f} times as many the plain way")
    best, cpu, score = (plain[k] / shared[k] for k in ("seconds", "cpu", "score"))
    print(f"  step    {best:.2f}x as fast, bests; {statistics.median(ratios):.2f}x, median; {cpu:.2f}x by CPU time")
    print(f"  scoring {score:.2f}x as fast, bests")
    print(f"  memory  {shared['peak'] / plain['peak']:.2f} of the plain way's above the weights")
    print(f"  log-probs differ by {(logp - theirs).abs().max():.1e} at most")


# ------------------------------------------------------------------------------------------- padding


def padding(args: argparse.Namespace) -> None:
    """Lengths of a step's rollouts, drawn log-normal and cut at the limit, in the micro-batches of the loop."""
    draw = random.Random(0)
    print(
        f"{args.rollouts:,} rollouts in {args.updates} updates, prompts of 100 to 400 tokens, responses log-normal "
        f"around {args.median:,} tokens, at most {args.limit:,}; micro-batches of {args.budget:,} tokens:"
    )
    for spread in (0.3, 0.6, 0.9, 1.2):
        lengths = [min(args.limit, max(1, round(draw.lognormvariate(math.log(args.median), spread))))
                   for _ in range(args.rollouts)]  # fmt: skip
        prompts = torch.tensor([draw.randint(100, 400) for _ in range(args.rollouts // 16)]).repeat_interleave(16)
        lengths = torch.tensor(lengths)
        batch = Batch(torch.empty(args.rollouts, 0), prompts, lengths, torch.empty(args.rollouts, 0),
                      torch.empty(args.rollouts), torch.arange(args.rollouts),
                      torch.zeros(args.rollouts, dtype=torch.long))  # fmt: skip
        whole, used, ours, plain = prompts + lengths, 0, 0, 0
        for rows in torch.randperm(args.rollouts).tensor_split(args.updates):
            parts = batch.micro_batches(rows, args.budget)
            used += int(whole[rows].sum())
            ours += sum(len(part) * int(whole[part].max()) for part in parts)
            plain += sum(len(part) * int(whole[part].max()) for part in rows.tensor_split(len(parts)))
        print(
            f"  sigma {spread:.1f}: {lengths.min():6,} to {lengths.max():6,} tokens, padding {1 - used / ours:5.1%}; "
            f"as many micro-batches in random order {1 - used / plain:5.1%}"
        )


# -------------------------------------------------------------------------------------------- memory

QWEN = {  # Qwen2.5, from its config files: hidden, layers, intermediate, heads, key-value heads, vocabulary, tied head
    "0.5B": (896, 24, 4864, 14, 2, 151_936, True),
    "1.5B": (1536, 28, 8960, 12, 2, 151_936, True),
    "7B": (3584, 28, 18_944, 28, 4, 152_064, False),
}


def memory(args: argparse.Namespace) -> None:
    """GiB a process by the formula of trainer/memory.py: a layer's activations counted, the rest multiplied."""
    if args.measure:
        return measured_memory()
    accelerator, gib = accelerate.Accelerator(cpu=True, mixed_precision="bf16"), 2**30
    print(
        f"bfloat16 beside float32 master weights, micro-batches of {args.tokens:,} tokens, gradient checkpointing, GiB:"
    )
    print("  model             weights, gradients, moments, reference   of 8 under FSDP2: parts   gathered", end="")
    print("   activations   logits")
    for name, (hidden, layers, inner, heads, kv, vocabulary, tied) in QWEN.items():
        config = transformers.Qwen2Config(
            vocab_size=64, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1, num_attention_heads=heads,
            num_key_value_heads=kv, tie_word_embeddings=True,
        )  # fmt: skip
        one = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        layer = activation_bytes(Policy(one), accelerator)
        one_layer = sum(p.numel() for p in one.model.layers.parameters())
        parameters = layers * one_layer + hidden + (1 if tied else 2) * hidden * vocabulary
        held = 4 * 5 * parameters / gib
        gathered = (2 * 2 * (parameters - layers * one_layer) + (2 * 3 + 4) * one_layer) / gib
        kept = args.tokens * (2 * layer + 4 * layers * hidden) / gib
        parts = f"{held:41.1f} {held / 8:25.1f} {gathered:10.1f} {kept:13.1f} {8 * 2**26 / gib:8.1f}"
        print(f"  {name:5} {parameters / 1e9:5.2f}B {parts}")


def measured_memory() -> None:
    """The estimate that train.py prints beside the peak of the process, whole and above what it held at that time.

    One step of at least two updates: the second has everything at once, the optimizer's moments too.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rule = {"instruction_id_list": ["length_constraints:number_words"]}  # which some random responses follow
        rule["kwargs"] = [{"relation": "at least", "num_words": 1}]
        problem = json.dumps({"prompt": "1357:24=1", "kind": "ifeval", "reference": rule})
        (folder / "data.jsonl").write_text(8 * (problem + "\n"))
        config = transformers.LlamaConfig(
            vocab_size=4096, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, eos_token_id=0, pad_token_id=0, bos_token_id=None, tie_word_embeddings=True,
        )  # fmt: skip
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "policy")
        transformers.AutoTokenizer.from_pretrained(POLICY).save_pretrained(folder / "policy")
        random_policy = [
            f"--model={folder / 'policy'}", f"--data={folder / 'data.jsonl'}", f"--eval_data={folder / 'data.jsonl'}",
            "--rollouts_per_prompt=64", "--prompts_per_step=4", "--max_response_tokens=56", "--learning_rate=1e-5",
            "--updates_per_step=2",
        ]  # fmt: skip
        runs = {
            "tiny/policy": [],
            "4 layers of 256, V = 4,096": random_policy,
            "  micro-batches of 2,048 tokens": [*random_policy, "--max_tokens_per_micro_batch=2048"],
            "  gradient checkpointing": [*random_policy, "--gradient_checkpointing"],
            "  no reference": [*random_policy, "--kl_coef=0"],
        }
        print(machine())
        print(f"{'':31}  estimate  measured          beside what was held")
        for title, flags in runs.items():
            command = [sys.executable, ROOT / "train.py", f"--output_dir={folder}", "--name=run", "--overwrite", *flags]
            command += ["--max_steps=1", "--eval_every=0", "--eval_samples=1"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            about, held = (gib_of(done.stdout, words) for words in ("memory about", "(held now"))
            peak = json.loads((folder / "run/timing.jsonl").read_text())["peak_gib"]
            beside = f"{about - held:8.2f} {peak - held:9.2f} {(about - held) / (peak - held):6.2f}x"
            print(f"{title:31} {about:9.2f} {peak:9.2f} {about / peak:6.2f}x  {beside}", flush=True)


def gib_of(text: str, words: str) -> float:
    """The size behind these words, as train.py prints it."""
    number, unit = " ".join(text.split()).split(words, 1)[1].split()[:2]
    return float(number) / (1 if unit.startswith("GiB") else 1024)


# ----------------------------------------------------------------------------------------------- trl


def examples(path: Path, tokens: int) -> None:
    """Problems for both trainers: countdown as it is, or with `tokens` characters of worked examples in front.

    The tiny policy solves no padded problem, and a step without a mixed group is no step: there the reward is for
    a response with an 8 in it, which some have.
    """
    problems = verifiers.load_problems(ROOT / "tiny/train.jsonl")
    draw, lines = random.Random(0), []
    for problem in problems[:512]:
        line = {"prompt": problem.prompt, "kind": problem.kind, "reference": problem.reference}
        if tokens:
            front = "".join(draw.choice("123456789+-*/=:()") for _ in range(tokens - len(problem.prompt)))
            rule = {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["8"]}]}
            line = {"prompt": front + problem.prompt, "kind": "ifeval", "reference": rule}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))


def whole_steps(args: argparse.Namespace) -> None:
    """A few steps of one trainer in a process of its own: prints samples/s of all but the first."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    n, b, updates, folder = args.rollouts, args.prompts, 8, Path(args.file)
    if args.way == "ours":
        command = [
            sys.executable, ROOT / "train.py", f"--output_dir={folder}", "--name=run", "--overwrite",
            f"--data={folder / 'data.jsonl'}", f"--eval_data={folder / 'few.jsonl'}", f"--rollouts_per_prompt={n}",
            f"--prompts_per_step={b}", f"--updates_per_step={updates}", "--learning_rate=1e-6",
            f"--max_steps={args.steps}", "--eval_every=0", "--eval_samples=1", "--eval_temperature=0",
            "--max_response_tokens=12", "--refill=1",
            "--save_every=1000", "--kl_coef=1e-4",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        rows = [json.loads(line) for line in (folder / "run/timing.jsonl").read_text().splitlines()]
        spent = rows[-1]["seconds"] - rows[0]["seconds"]
        metrics = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()][2:]
        lengths = statistics.mean(m["response_tokens"] for m in metrics)
        print(
            json.dumps({"rate": (args.steps - 1) * n * b / spent, "tokens": lengths, "kept": metrics[-1]["pass_rate"]})
        )
        return
    import datasets
    import trl as theirs

    problems, ends = verifiers.load_problems(folder / "data.jsonl"), []
    references = {problem.prompt: problem for problem in problems}

    def reward(prompts, completions, **_):
        asked = [references[prompt] for prompt in prompts]
        items = [(p.kind, text, p.reference) for p, text in zip(asked, completions, strict=True)]
        return [verdict.reward for verdict in verifiers.verify_batch(items)]

    class Ends(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    config = theirs.GRPOConfig(
        output_dir=str(folder / "trl"), use_cpu=True, bf16=False, num_generations=n, max_completion_length=12,
        per_device_train_batch_size=n * b // updates, steps_per_generation=updates, num_iterations=1, beta=1e-4,
        learning_rate=1e-6, lr_scheduler_type="constant", temperature=1.0, top_k=0, max_steps=args.steps * updates,
        report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=0, epsilon_high=0.27,
        gradient_checkpointing=False, model_init_kwargs={"dtype": torch.float32},
    )  # fmt: skip
    trainer = theirs.GRPOTrainer(
        model=str(ROOT / "tiny/policy"), reward_funcs=reward, args=config, callbacks=[Ends()],
        train_dataset=datasets.Dataset.from_list([{"prompt": problem.prompt} for problem in problems]),
    )  # fmt: skip
    trainer.train()
    spent = ends[-1] - ends[updates - 1]
    print(json.dumps({"rate": (args.steps - 1) * n * b / spent, "tokens": None, "kept": None}))


def trl(args: argparse.Namespace) -> None:
    """Generation, verification and update of both trainers in turns: same policy, problems, N, batch and updates."""
    if args.way:
        return whole_steps(args)
    if not importlib.util.find_spec("trl") or not importlib.util.find_spec("datasets"):
        sys.exit("this compares with TRL, which is not installed: pip install trl==1.16.0")
    print(machine())
    print(
        f"{args.prompts} prompts x N = {args.rollouts}, 8 updates a step, at most 12 response tokens, float32, KL term:"
    )
    for tokens in args.lengths:
        results = {"ours": [], "trl": []}
        with tempfile.TemporaryDirectory() as folder:
            examples(Path(folder) / "data.jsonl", tokens)
            few = (Path(folder) / "data.jsonl").read_text().splitlines(keepends=True)[:2]
            (Path(folder) / "few.jsonl").write_text("".join(few))
            for _ in range(args.turns):
                for way, done in results.items():
                    command = [sys.executable, __file__, "trl", "--way", way, "--file", folder]
                    command += [f"--{name}={getattr(args, name)}" for name in ("rollouts", "prompts", "steps")]
                    command += [f"--threads={args.threads}"] if args.threads else []
                    out = subprocess.run(command, capture_output=True, text=True)
                    if out.returncode:
                        sys.exit(f"{way} ended with:\n{out.stderr[-3000:]}")
                    done.append(json.loads(out.stdout.splitlines()[-1]))
        ours, theirs = (max(x["rate"] for x in done) for done in results.values())
        ratios = [a["rate"] / b["rate"] for a, b in zip(*results.values(), strict=True)]
        print(
            f"  prompts of {tokens or 'about 9'} tokens: train.py {ours:8,.0f} samples/s, TRL {theirs:8,.0f}: "
            f"{ours / theirs:.1f}x, bests; {statistics.median(ratios):.1f}x, median "
            f"(ours: {results['ours'][-1]['tokens']:.1f} tokens a response, {results['ours'][-1]['kept']:.0%} kept)",
            flush=True,
        )


# ------------------------------------------------------------------------------------------- rollout


def rollout(args: argparse.Namespace) -> None:
    """Samples/s at equal numbers of samples, the ways in turns; the best turn of each counts."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads or torch.get_num_threads())
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    engine = TorchEngine(model)

    def ours(n, length):
        prompts = torch.randint(2, model.config.vocab_size, (args.samples // n, length)).tolist()
        engine.generate(prompts, n, max_new_tokens=args.tokens, stop_token_ids=[], seed=0)
        return args.samples

    def generate(n, length):
        prompts = torch.randint(2, model.config.vocab_size, (max(1, args.samples // n // 8), length))
        model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, num_return_sequences=n, top_k=0,
            min_new_tokens=args.tokens, max_new_tokens=args.tokens, pad_token_id=0,
        )  # fmt: skip
        return len(prompts) * n

    print(machine())
    print(f"{args.model}: {args.samples:,} samples of {args.tokens} tokens; samples/s, best of {args.turns} turns")
    print(f"{'prompt tokens':>14} {'N':>5} {'ours':>9} {'generate':>9} {'ratio':>7}")
    for length in args.lengths:
        best = {}
        for _ in range(args.turns):
            for way in (ours, generate):
                for n in (16, 512):
                    start = time.perf_counter()
                    count = way(n, length)
                    rate = count / (time.perf_counter() - start)
                    best[way, n] = max(best.get((way, n), 0), rate)
        for n in (16, 512):
            a, b = best[ours, n], best[generate, n]
            print(f"{length:>14} {n:>5} {a:>9,.0f} {b:>9,.0f} {a / b:>6.1f}x")
        print(f"{'':>14} ours, N = 512 over N = 16: {best[ours, 512] / best[ours, 16]:.2f}x")


# ------------------------------------------------------------------------------------------- verify

# A right answer in the spellings that models use for it, by the kind of answer.
RIGHT = [
    lambda a, b: [f"{a}", f"{a}.0", f" {a} ", f"\\text{{{a}}}", f"+{a}"],
    lambda a, b: [f"\\frac{{{a}}}{{{b}}}", f"\\dfrac{{{a}}}{{{b}}}", f"{a}/{b}", f"\\frac{{{2 * a}}}{{{2 * b}}}"],
    lambda a, b: [f"{a}\\sqrt{{{b}}}", f"{a} \\sqrt {{{b}}}", f"\\sqrt{{{a * a * b}}}", f"{a}{b}^{{1/2}}"],
    lambda a, b: [f"({a}, {b})", f"({a},{b})", f"\\left({a}, {b}\\right)"],
    lambda a, b: [f"[{a}, {a + b})", f"\\left[{a}, {a + b}\\right)"],
    lambda a, b: [f"x^2+{a}x+{b}", f"x^2 + {a}x + {b}", f"{b} + {a}x + x^2", f"x(x+{a})+{b}"],
    lambda a, b: [f"\\{{{a}, {a + b}\\}}", f"\\{{{a + b}, {a}\\}}"],
]
SHARE_OF_KINDS = [50, 15, 12, 8, 4, 7, 4]
# How often a problem's k-th wrong answer comes, as in many samples of one model: some are common, most are rare.
WRONG_ANSWERS = 60
TRUNCATED = 0.05


def math_answers(seed: int, problems: int, n: int) -> list[tuple[str, str, str]]:
    """Per problem: a rate of right answers, evenly between 0 and 1, in a few spellings; wrong ones by Zipf's law."""
    rng, items = random.Random(seed), []
    for _ in range(problems):
        spell = rng.choices(RIGHT, SHARE_OF_KINDS)[0]
        a, b = rng.randint(2, 400), rng.choice([2, 3, 5, 7, 11, 13])
        right, rate = spell(a, b), rng.random()
        gold = right[0]
        wrong = [spell(max(1, a + rng.randint(-30, 30)), b + rng.choice([0, 1, 2])) for _ in range(WRONG_ANSWERS)]
        for _ in range(n):
            spellings = right if rng.random() < rate else rng.choices(wrong, [1 / k for k in range(1, 61)])[0]
            box = f"\\boxed{{{rng.choices(spellings, [1 / k for k in range(1, len(spellings) + 1)])[0]}}}"
            thought = f"<think>{rng.random()} {'so we try the next case, and then ' * 60}</think> The answer is "
            items.append(("math", thought + ("" if rng.random() < TRUNCATED else box), gold))
    return items


def plain_math_verify(items: list[tuple[str, str, str]]) -> int:
    import math_verify

    return sum(math_verify.verify(math_verify.parse(f"${gold}$"), math_verify.parse(text)) for _, text, gold in items)


def programs(count: int, tests: int) -> list[tuple[str, str, dict]]:
    """Distinct short programs, of which half are right."""
    reference = {"inputs": [f"{k}\n1 2 3\n" for k in range(tests)], "outputs": [f"{k + 6}\n" for k in range(tests)]}
    source = "import sys\nk, *xs = map(int, sys.stdin.read().split())\nprint(sum(xs) + k + {})"
    return [("code", f"```python\n{source.format(f'{k} * {k % 2}')}\n```", reference) for k in range(count)]


def worker_bytes() -> int:
    """Resident in the worker processes of this one."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_text().split("\0")
            if "verifiers.keeper" in " ".join(arguments) and str(os.getpid()) in arguments:
                total += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total


def verify(args: argparse.Namespace) -> None:
    """Math answers/s, with what math-verify alone does; tests of programs/s; memory after each batch."""
    print(machine())
    first = math_answers(0, args.problems, args.samples)
    verifiers.verify_batch([("math", "\\boxed{y+x}", "x+y")], workers=args.workers)
    sample = random.Random(0).sample(first, args.plain)
    rates, plain_rates, memory = [], [], []
    for number in range(args.batches):
        items, done = math_answers(number, args.problems, args.samples), []
        rates.append(len(items) / seconds(lambda items=items, done=done: done.extend(verifiers.verify_batch(items))))
        memory.append((resident(), worker_bytes()))
        if number < args.turns:
            plain_rates.append(len(sample) / seconds(lambda: plain_math_verify(sample)))
        reasons = {reason: sum(verdict.reason == reason for verdict in done) for reason in verifiers.REASONS}
        print(
            f"  batch {number + 1:2}: {rates[-1]:8,.0f} answers/s; memory {memory[-1][0] / 2**20:,.0f} MiB here, "
            f"{memory[-1][1] / 2**20:,.0f} MiB in workers; {', '.join(f'{n} {r}' for r, n in reasons.items() if n)}"
        )
    distinct = len({(gold, text.rpartition("</think>")[2]) for _, text, gold in first})
    print(f"math, {args.problems} problems x {args.samples} answers, {distinct:,} of them distinct:")
    print(f"  verify_batch           {statistics.median(rates):8,.0f} answers/s median, {max(rates):,.0f} best")
    print(f"  math-verify in a loop  {max(plain_rates):8,.1f} answers/s best of {len(plain_rates)} x {args.plain}")
    print(f"  ratio                  {statistics.median(rates) / max(plain_rates):8,.0f}x (our median, its best)")
    items = programs(args.programs, args.tests)
    runs = [seconds(lambda: verifiers.verify_batch(items, timeout_s=60)) for _ in range(args.turns)]
    tests = args.programs * args.tests
    print(
        f"code, {args.programs} programs x {args.tests} tests, best of {args.turns}: {tests / min(runs):,.0f} tests/s"
    )


# ------------------------------------------------------------------------------------------- engines


def engines(args: argparse.Namespace) -> None:
    """Table 2's two columns at equal numbers of samples: the share of prompts that dynamic sampling keeps, samples/s.

    The pass rate is of --model on its own problems. The throughput is of random prompts of the lengths asked for,
    every response --tokens long, so that both widths and both engines do the same work; the best turn counts.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads = args.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    made = {"torch": TorchEngine(model)}
    if have_vllm():
        made["vllm"] = VLLMEngine(model, positions=max(args.lengths) + args.tokens, disable_log_stats=False)
    print(machine())
    print(f"{args.model}, {', '.join(f'{name}: {x.decoding}' for name, x in made.items())}")

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    problems = verifiers.load_problems(ROOT / "tiny" / "train.jsonl")
    print(
        f"\npass rate of dynamic sampling, {args.samples:,} samples\n{'engine':>8} {'N':>5} {'prompts':>8} {'kept':>7}"
    )
    for name, engine in made.items():
        for n in (16, 512):
            asked = problems[: args.samples // n]
            prompts = [tokenizer(p.prompt).input_ids for p in asked]
            groups = engine.generate(prompts, n, max_new_tokens=12, stop_token_ids=[tokenizer.eos_token_id], seed=1)
            kept = 0
            for problem, group in zip(asked, groups, strict=True):
                texts = [tokenizer.decode(r, skip_special_tokens=True) for r in group.responses]
                verdicts = verifiers.verify_batch([(problem.kind, text, problem.reference) for text in texts])
                kept += informative(torch.tensor([v.reason == "correct" for v in verdicts]))
            print(f"{name:>8} {n:>5} {len(asked):>8} {kept / len(asked):>6.0%}")

    def seconds_for(engine, length, n, requests=1):
        """One turn; a group as so many requests of n / requests rollouts."""
        count = args.samples // n
        prompts = torch.randint(2, model.config.vocab_size, (count, length)).repeat_interleave(requests, 0).tolist()
        return seconds(lambda: engine.generate(prompts, n // requests, max_new_tokens=args.tokens, stop_token_ids=[]))

    def cached(engine) -> Counter:
        """Prompt tokens that vLLM asked of its prefix cache and those that were there, so far."""
        counters = (m for m in engine.llm.get_metrics() if m.name.startswith("vllm:prefix_cache"))
        return Counter({m.name.removeprefix("vllm:prefix_cache_"): m.value for m in counters})

    print(f"\nsamples/s, {args.samples:,} samples of {args.tokens} tokens, best of {args.turns} turns")
    print(f"{'prompt tokens':>14} {'engine':>8} {'N = 16':>9} {'N = 512':>9} {'512 / 16':>9}   prefix cache hits")
    for length in args.lengths:
        for name, engine in made.items():
            best, hit = {}, {}
            for n in (16, 512):
                before = cached(engine) if name == "vllm" else Counter()
                best[n] = args.samples / min(seconds_for(engine, length, n) for _ in range(args.turns))
                if name == "vllm":
                    counted = cached(engine) - before
                    hit[n] = f"{counted['hits'] / counted['queries']:.0%} at N = {n}"
            row = f"{length:>14} {name:>8} {best[16]:>9,.0f} {best[512]:>9,.0f} {best[512] / best[16]:>8.2f}x"
            print(f"{row}   {', '.join(hit.values())}", flush=True)
    if "vllm" in made:
        print("\none group of 512 as so many requests, samples/s")
        print(f"{'prompt tokens':>14}" + "".join(f"{k:>5} x {512 // k:<4}" for k in (1, 8, 512)))
        for length in args.lengths:
            rates = [
                args.samples / min(seconds_for(made["vllm"], length, 512, k) for _ in range(args.turns))
                for k in (1, 8, 512)
            ]
            print(f"{length:>14}" + "".join(f"{r:>12,.0f}" for r in rates), flush=True)
        made["vllm"].close()


def seeds(args: argparse.Namespace) -> None:
    """vLLM with a seed for every rollout against none, in turns, for two models; then the same prompts in company."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    width = {"hidden_size": args.hidden, "intermediate_size": 4 * args.hidden, "num_attention_heads": args.hidden // 64}
    large = transformers.LlamaConfig(vocab_size=args.vocabulary, num_hidden_layers=2, tie_word_embeddings=True, **width)
    models = {
        "tiny/policy": transformers.AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32).eval(),
        f"2 layers, V = {args.vocabulary:,}": transformers.AutoModelForCausalLM.from_config(large).float().eval(),
    }
    print(machine())
    engines = {name: VLLMEngine(model, positions=64) for name, model in models.items()}
    for name, engine in engines.items():
        prompts = torch.randint(2, models[name].config.vocab_size, (args.prompts, 16)).tolist()
        print(
            f"{name}: {engine.decoding}; {args.turns} turns of {512 * args.prompts:,} samples of {args.tokens} tokens"
        )
        price_of_seeds(engine, prompts, args)
        same_in_company(engine, prompts, args)
    for engine in engines.values():
        engine.close()


def groups_of(engine, orders, tokens, stop=()) -> list:
    settings = {"max_new_tokens": tokens, "temperature": 1.0, "stop_token_ids": list(stop)}
    return [groups for _, groups in sorted(engine.stream(orders, **settings))]


def price_of_seeds(engine, prompts, args) -> None:
    from engines.vllm_requests import Requests

    asked = Requests._parameters

    def unseeded(self, n, seed):
        sampling = asked(self, n, seed)
        sampling.seed = None
        return sampling

    orders = [Order([prompt], 512, [1000 * i]) for i, prompt in enumerate(prompts)]
    groups_of(engine, orders, args.tokens)
    rates: dict[str, list[float]] = {"a seed a rollout": [], "none": []}
    worked: dict[str, list[float]] = {way: [] for way in rates}  # CPU seconds, which others on the machine move less
    for _ in range(args.turns):
        for way, method in zip(rates, (asked, unseeded), strict=True):
            Requests._parameters = method
            before = time.process_time()
            rates[way].append(512 * len(prompts) / seconds(lambda: groups_of(engine, orders, args.tokens)))
            worked[way].append(time.process_time() - before)
    Requests._parameters = asked
    for way, found in rates.items():
        print(f"  {way:18}{statistics.median(found):8,.0f} samples/s, {min(found):,.0f} to {max(found):,.0f}")
    ratios = sorted(a / b for a, b in zip(*worked.values(), strict=True))
    print(
        f"  CPU time of seeds / of none {statistics.median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}",
        flush=True,
    )


def same_in_company(engine, prompts, args) -> None:
    """The share of the first prompt's 512 rollouts that have the same tokens, all of them, as when it was alone."""
    first, *others = prompts
    parts = [Order([first], 64, [64 * i]) for i in range(8)]
    company = [Order([others[i % len(others)]], 64, [1000 + 64 * i]) for i in range(8)]
    mixed = [order for pair in zip(parts, company, strict=True) for order in pair]
    whole = Order([first], 512, [0])
    alone = groups_of(engine, [whole], args.tokens)[0][0].responses
    ways = {"alone again": [whole], "between two others": [company[0], whole, company[1]], "in 8 parts, mixed": mixed}
    for way, orders in ways.items():
        found = groups_of(engine, orders, args.tokens)
        own = [r for (group,) in found if group.prompt == first for r in group.responses]
        print(f"  {way:20}{sum(a == b for a, b in zip(alone, own, strict=True)) / 512:8.1%} the same", flush=True)


class Programs:
    """A tokenizer that reads every response as a Python program of its own: right, wrong or slow."""

    def __init__(self, slow: float, tests: int):
        self.slow, self.tests = slow, tests

    def decode(self, response, skip_special_tokens=True) -> str:
        draw = random.Random(str(response))
        program = f"# {draw.random()}\nimport time\nk = int(input())\n"
        if draw.random() < self.slow:
            spent = draw.uniform(0.1, 0.3) / self.tests
            program += f"end = time.process_time() + {spent}\nwhile time.process_time() < end:\n    pass\n"
        return f"```python\n{program}print(k + {draw.randint(1, 2)})\n```"


def patient(mean: float) -> transformers.PreTrainedModel:
    """The embedded policy's shape: EOS comes with probability 1 / mean, all other tokens are equally likely."""
    model = transformers.AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.model.norm.weight.fill_(1.0)
        embedding = model.get_input_embeddings().weight  # the head, too
        embedding[:, 0] = 1.0
        others = (mean - 1) / (model.config.vocab_size - 1)  # times as likely as EOS, each
        embedding[0, 0] -= math.log(others) / math.sqrt(embedding.shape[1])  # the final state is sqrt(H) there
    return model


def verdicts(args: argparse.Namespace) -> None:
    """Code problems: generation, then verification, against `roll_out`, which judges while others decode; in turns.

    The programs are made up, everything else is real: the engine, the deal of a step, the sandbox.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    p, n, accelerator = args.prompts, args.rollouts, accelerate.Accelerator(cpu=True)
    model = patient(args.tokens / 3)
    engine = VLLMEngine(model, positions=16 + args.tokens) if have_vllm() else TorchEngine(model)
    inputs = [str(k) for k in range(args.tests)]
    problems = [
        verifiers.Problem("", "code", {"inputs": inputs, "outputs": [str(int(k) + 1) for k in inputs]})
        for _ in range(p)
    ]
    prompts, seeds = [[2 + i] * 8 for i in range(p)], [10**6 * i for i in range(p)]
    tokenizer, sampling = Programs(args.slow / 100, args.tests), {"max_new_tokens": args.tokens, "stop_token_ids": [0]}
    parts = own_parts(p, n, 0, 1)
    cut = orders_of(parts, engine.order_rows)
    orders = [Order([prompts[x.place] for x in o], o[0].n, [seeds[x.place] for x in o], o[0].first, n) for o in cut]
    said = [
        ("code", tokenizer.decode(tuple(response)), problems[part.place].reference)
        for o, groups in zip(cut, groups_of(engine, orders, args.tokens, [0]), strict=True)
        for part, group in zip(o, groups, strict=True)
        for response in group.responses
    ]
    reasons: list[Counter] = []  # of every verification

    def judge(workers: int) -> None:
        found = verifiers.verify_batch(said, workers, timeout_s=60)
        reasons.append(Counter(verdict.reason for verdict in found))

    def step(workers: int) -> None:
        judging = Judge(tokenizer, problems, {"workers": workers, "timeout_s": 60})
        rolled, _ = roll_out(
            engine, judging, prompts, n, seeds, parts, accelerator, show=False, temperature=1.0, **sampling
        )
        reasons.append(Counter(verdict.reason for one in rolled for verdict in one.verdicts))

    counts = sorted({1, len(os.sched_getaffinity(0))})
    taken: dict[str, list[float]] = {}

    def take(name: str, work: Callable[[], object]) -> None:
        taken.setdefault(name, []).append(seconds(work))
        print(f"  {name:22}{taken[name][-1]:7.1f} s", flush=True)

    print(machine())
    print(
        f"{type(engine).__name__}: {engine.decoding}\n{p} prompts x N = {n}, at most {args.tokens} tokens, "
        f"{len({text for _, text, _ in said}):,} distinct programs of {args.tests} tests, {args.slow}% of them slow"
    )
    for turn in range(args.turns):
        print(f"turn {turn + 1}, load {os.getloadavg()[0]:.1f}")
        take("generation", lambda: groups_of(engine, orders, args.tokens, [0]))
        for w in counts:
            verifiers.verify_batch(programs(8 * w, 1), w)  # the workers are there
            take(f"verify, {w} worker(s)", lambda w=w: judge(w))
            take(f"roll_out, {w} worker(s)", lambda w=w: step(w))
    print("medians, seconds:")
    for name, found in taken.items():
        print(f"  {name:22}{statistics.median(found):7.1f}, {min(found):.1f} to {max(found):.1f}")
    for before in counts:
        for beside in counts:
            names = "generation", f"verify, {before} worker(s)", f"roll_out, {beside} worker(s)"
            of = (taken[name] for name in names)
            ratios = sorted((g + v) / r for g, v, r in zip(*of, strict=True))
            print(
                f"  generation, then {before} worker(s) / roll_out with {beside}: {statistics.median(ratios):.2f}, "
                f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            )
    for reason in sorted(set().union(*reasons)):
        found = sorted(x[reason] for x in reasons)
        print(f"  {reason}: {found[0]:,} to {found[-1]:,} of {len(said):,}")
    if have_vllm():
        engine.close()


def probe(args: argparse.Namespace) -> None:
    """--log_mass_balance: its share of a step's seconds, from timing.jsonl of short runs of the embedded policy."""
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for recipe, n, b in (("prorl", 16, 128), ("brorl", 512, 32), ("brorl", 512, 4)):
            command = [sys.executable, ROOT / "train.py", f"--recipe={recipe}", f"--prompts_per_step={b}",
                       "--overwrite", "--name=run", f"--output_dir={folder}", f"--max_steps={args.steps + 1}",
                       "--log_mass_balance", "--eval_every=0", "--eval_samples=1"]  # fmt: skip
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            rows = [json.loads(line) for line in (Path(folder) / "run/timing.jsonl").read_text().splitlines()][1:]
            stages = {name: statistics.median(r[name] for r in rows) for name in ("roll_out", "score", "update")}
            own = statistics.median(r["mass_balance"] for r in rows)
            print(f"N = {n:3}, B = {b:3}: {own * 1e3:5.1f} ms of a step of {sum(stages.values()) + own:5.2f} s, "
                  f"{own / (sum(stages.values()) + own):5.1%} (medians of {len(rows)} steps)")  # fmt: skip


class Benchmark(NamedTuple):
    run: Callable[[argparse.Namespace], None]
    flags: dict[str, tuple]  # default and help; of the default's type, numbers where there is none
    ways: tuple[str, ...] = ()  # what `run` starts in processes of their own, by two flags that --help does not show


POLICY = str(ROOT / "tiny/policy")
ALL_CORES = (None, "torch threads; none: all cores")
BENCHMARKS = {
    "sim": Benchmark(sim, {
        "threads": (1, "torch threads, for both; 1 as sim.py"),
        "steps": (100, "steps of each turn"),
        "turns": (5, "turns"),
    }),
    "loss": Benchmark(loss, {
        "tokens": (4096, "T"),
        "vocabulary": (151_936, "V, Qwen2's"),
        "hidden": (896, "H, Qwen2 0.5B's"),
        "turns": (3, "turns"),
    }, ways=("ours", "plain")),
    "prefix": Benchmark(prefix, {
        "rollouts": (512, "N"),
        "prompt_tokens": (256, "of the prompt"),
        "tokens": (64, "of a response"),
        "hidden": (256, "H, a multiple of 64"),
        "layers": (4, "of the model"),
        "vocabulary": (4096, "V"),
        "threads": ALL_CORES,
        "turns": (3, "turns"),
    }, ways=("plain", "shared")),
    "padding": Benchmark(padding, {
        "rollouts": (16_384, "of a step"),
        "updates": (8, "mini-batches a step"),
        "median": (2_000, "tokens of a response"),
        "limit": (16_384, "tokens of a response"),
        "budget": (32_768, "tokens of a micro-batch"),
    }),
    "memory": Benchmark(memory, {
        "tokens": (32_768, "of a micro-batch"),
        "measure": (False, "the estimate against the peak of five short runs on this CPU, instead"),
    }),
    "trl": Benchmark(trl, {
        "rollouts": (512, "N"),
        "prompts": (16, "prompts a step"),
        "steps": (4, "steps of a turn, the first is not counted"),
        "lengths": ([0, 128], "of prompts; 0: as they are"),
        "turns": (3, "turns"),
        "threads": ALL_CORES,
    }, ways=("ours", "trl")),
    "probe": Benchmark(probe, {"steps": (8, "that are counted")}),
    "rollout": Benchmark(rollout, {
        "model": (POLICY, "model folder"),
        "lengths": ([9, 128], "of prompts"),
        "samples": (8192, "samples of a turn"),
        "tokens": (8, "tokens of a response"),
        "threads": (None, "torch threads; none: torch's choice"),
        "turns": (4, "turns"),
    }),
    "verify": Benchmark(verify, {
        "problems": (128, "P"),
        "samples": (512, "N"),
        "batches": (10, "batches of P x N answers"),
        "workers": (None, "worker processes; none: one per core"),
        "plain": (300, "answers math-verify alone gets"),
        "programs": (64, "programs"),
        "tests": (16, "tests of each"),
        "turns": (3, "turns"),
    }),
    "engines": Benchmark(engines, {
        "model": (POLICY, "model folder"),
        "lengths": ([16, 128, 512], "of prompts"),
        "samples": (8192, "samples of a turn"),
        "tokens": (8, "tokens of a response"),
        "threads": ALL_CORES,
        "turns": (3, "turns"),
    }),
    "seeds": Benchmark(seeds, {
        "vocabulary": (49_152, "V of the larger model, SmolLM2's"),
        "hidden": (256, "H of the larger model, a multiple of 64"),
        "prompts": (2, "prompts of a turn, each for 512 rollouts"),
        "tokens": (8, "tokens of a response"),
        "threads": ALL_CORES,
        "turns": (7, "turns"),
    }),
    "verdicts": Benchmark(verdicts, {
        "prompts": (3, "P"),
        "rollouts": (512, "N"),
        "tokens": (256, "of a response, at most; about a third as many on average"),
        "tests": (1, "of a program"),
        "slow": (2, "percent of the programs that take 0.1 to 0.3 s of a CPU"),
        "threads": (1, "torch threads"),
        "turns": (3, "turns"),
    }),
}  # fmt: skip


def main(benchmarks: dict[str, Benchmark], head: str) -> None:
    parser = argparse.ArgumentParser(description=head.split("\n\n")[0])
    names = parser.add_subparsers(dest="name", required=True)
    for name, (run, flags, ways) in benchmarks.items():
        command = names.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.set_defaults(run=run)
        for flag, (default, text) in flags.items():
            if default is False:
                command.add_argument(f"--{flag}", action="store_true", help=text)
                continue
            many = {"nargs": "+"} if isinstance(default, list) else {}
            kind = type(default) if isinstance(default, (str, float)) else int
            shown = "" if default is None else " (default: %(default)s)"
            command.add_argument(f"--{flag}", type=kind, default=default, help=text + shown, **many)
        if ways:
            command.add_argument("--way", choices=ways, help=argparse.SUPPRESS)
            command.add_argument("--file", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main(BENCHMARKS, __doc__)
