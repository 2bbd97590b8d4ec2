"""The parts of a step, each beside the plain way of doing the same, measured in the same run."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time

import accelerate
import torch
import transformers

from bench.common import again, answer, machine, quiet, resident, seconds
from rollout import Request, Sampling, TorchEngine
from train import Sums, update
from trainer.policy import Policy, micro_batches, score, token_logprobs
from trainer.rollouts import Rollout
from trainer.settings import Config
from verify import Problem

# ----------------------------------------------------------------------------------------------- loss


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


def loss(args: argparse.Namespace) -> None:
    """Both ways in turns, each in a fresh process, so that a peak is its own."""
    if args.way:
        token_logprobs_once(args)
        return
    print(machine())
    print(f"{args.tokens:,} tokens, V = {args.vocabulary:,}, hidden {args.hidden}, float32, forward and backward:")
    results: dict[str, list[dict]] = {"ours": [], "plain": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.turns):
            for way in results:
                flags = ("tokens", "vocabulary", "hidden")
                results[way].append(json.loads(answer(again("loss", way, args, flags, f"{folder}/{way}.pt"))))
                print(f"  {way:6} {results[way][-1]['seconds']:6.1f} s  {results[way][-1]['peak'] / 2**30:6.2f} GiB")
        pairs = zip(torch.load(f"{folder}/ours.pt"), torch.load(f"{folder}/plain.pt"), strict=True)
        errors = [((a - b).norm() / b.norm()).item() for a, b in pairs]
    ours, plain = ({k: min(x[k] for x in results[way]) for k in ("seconds", "peak")} for way in ("ours", "plain"))
    print(f"  time    {ours['seconds'] / plain['seconds']:.2f} x the plain way's (bests)")
    print(f"  memory  1/{plain['peak'] / ours['peak']:.1f} of the plain way's above the inputs (bests)")
    print(f"  gradients differ by {errors[0]:.1e} (hidden) and {errors[1]:.1e} (head), relative norms")


# --------------------------------------------------------------------------------------------- prefix


def prefix_step(args: argparse.Namespace) -> None:
    """Scoring and an optimizer step one way, in a process of its own: prints seconds, tokens and peak bytes."""
    torch.manual_seed(0)
    quiet(args)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.Qwen2Config(
            vocab_size=args.vocabulary, hidden_size=args.hidden, intermediate_size=3 * args.hidden,
            num_hidden_layers=args.layers, num_attention_heads=args.hidden // 64,
            num_key_value_heads=max(1, args.hidden // 128), tie_word_embeddings=True,
        ),
        dtype=torch.float32,
    )  # fmt: skip
    policy, accelerator, counts = Policy(model), accelerate.Accelerator(cpu=True), [0]
    policy.share_prompts = args.way == "shared"
    model.get_input_embeddings().register_forward_pre_hook(lambda _, x: counts.append(counts.pop() + x[0].numel()))
    prompt = torch.randint(args.vocabulary, (args.prompt_tokens,), dtype=torch.int32)
    responses = torch.randint(args.vocabulary, (args.rollouts, args.tokens), dtype=torch.int32)
    rollouts = [
        Rollout(Problem("", "math", ""), 0, i, prompt, response, torch.zeros(args.tokens), False, advantage=advantage)
        for i, (response, advantage) in enumerate(zip(responses, torch.randn(args.rollouts).tolist(), strict=True))
    ]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    config = Config(temperature=1.0, clip_low=0.2, clip_high=0.27, tis_cap=2.0, kl="k2", kl_coef=0.0)
    score(policy, [rollouts[:2]], "old_logp", 1.0, accelerator)  # the first pass through anything is slow
    batches = micro_batches(rollouts, config.max_tokens_per_micro_batch, policy.share_prompts, accelerator)
    before = resident()
    scored = seconds(lambda: score(policy, batches, "old_logp", 1.0, accelerator))
    old = torch.cat([r.old_logp for r in rollouts if r.old_logp is not None])
    counts[0] = 0
    cpu = time.process_time()
    tokens = args.rollouts * args.tokens
    updated = seconds(lambda: update(policy, optimizer, batches, tokens, config, accelerator, Sums(accelerator)))
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    torch.save(old, args.file)
    print(json.dumps({"score": scored, "seconds": updated, "cpu": cpu, "tokens": counts[0], "peak": peak}))


def prefix(args: argparse.Namespace) -> None:
    """Both ways in turns, each in a fresh process, so that a peak is its own."""
    if args.way:
        prefix_step(args)
        return
    print(machine())
    names = ("rollouts", "prompt_tokens", "tokens", "hidden", "layers", "vocabulary", "threads")
    print(
        f"one prompt of {args.prompt_tokens} tokens, N = {args.rollouts} responses of {args.tokens}; a random Qwen2 of "
        f"{args.layers} layers, hidden {args.hidden}, V = {args.vocabulary:,}, float32:"
    )
    results: dict[str, list[dict]] = {"plain": [], "shared": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.turns):
            for way, done in results.items():
                done.append(json.loads(answer(again("prefix", way, args, names, f"{folder}/{way}.pt"))))
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


# -------------------------------------------------------------------------------------------- rollout


def rollout(args: argparse.Namespace) -> None:
    """Samples/s at equal numbers of samples, the ways in turns; the best turn of each counts."""
    quiet(args)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    engine = TorchEngine(model)

    def ours(n, length):
        prompts = torch.randint(2, model.config.vocab_size, (args.samples // n, length)).tolist()
        requests = [Request(prompt, n, seed) for seed, prompt in enumerate(prompts)]
        for _ in engine.generate(requests, Sampling(args.tokens)):
            pass
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
        best: dict = {}
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
