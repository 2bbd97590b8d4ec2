"""The training loop of section 4.2 in one file and one process: the nine stages of train.py.

    python lab/loop.py                          the tiny policy, N = 64, 20 steps; 75 s of one core
    python -m lab.loop --objective cispo        another objective, or other advantages: lab/variants.py
    python -m lab.loop --log run.csv            a line of metrics for each step; docs/logs.md explains them

    name        symbol      meaning
    P, N                    prompts of a step, rollouts per prompt; S = P·N rollouts, T response tokens in all
    groups                  from the engine: a prompt, its N responses, their log-probs under the engine
    tokens      (S, X)      prompt then response, X columns, padded on the right
    old         log π_old   (T,) of the policy before the step's first update
    ref         log π_ref   (T,) of the policy before the run's first step

train.py adds refills, resets of the reference, processes, micro-batches and checkpoints. The gradient of a mini-batch
is the same. AdamW has no weight decay here, and 0.01 there.
"""

import argparse
import copy
import csv
import json
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # `python lab/loop.py` looks for modules in lab/ only

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import brorl
import loss as L
from lab import variants
from rollout import Group, Request, Sampling, TorchEngine
from verify import Problem, verify_batch

TINY = Path(__file__).resolve().parent.parent / "tiny"  # the tiny policy and its problems
OBJECTIVES = L.OBJECTIVES | variants.OBJECTIVES
KL_COEF = float(brorl.BRORL["kl_coef"].value)  # β
METRICS = ("clip_high_fraction", "clip_low_fraction", "kl_old", "kl_ref", "engine_difference", "nll")


def read_problems(name: str) -> list[Problem]:
    """The problems of tiny/train.jsonl or tiny/test.jsonl: {"prompt", "kind", "reference"} on each line."""
    return [Problem(**json.loads(line)) for line in (TINY / f"{name}.jsonl").read_text().splitlines()]


def seed_of(use: str, *parts: int) -> int:
    """A seed of 62 bits that differs for every use and every combination of its parts."""
    return random.Random(repr((use, *parts))).getrandbits(62)


def train(model, tokenizer, problems: list[Problem], held_out: list[Problem], args) -> list[float]:
    """The nine stages of train.py, step by step. Returns pass@1 on the held-out problems before and after training."""
    engine, ref_policy = TorchEngine(model), copy.deepcopy(model).eval()
    objective = OBJECTIVES[args.objective]
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(args.seed)
    scores, history = [evaluate(engine, tokenizer, held_out)], []
    for step in range(1, args.steps + 1):
        # 1-3: problems, rollouts, verdicts (P, N)
        chosen = [problems[i] for i in torch.randperm(len(problems), generator=generator)[: args.prompts]]
        groups, correct = roll_out(engine, tokenizer, chosen, args.rollouts, seed_of("rollouts", args.seed, step))
        tokens = sum(len(x) for group in groups for x in group.responses) / correct.numel()
        # 4: dynamic sampling; a step without an informative prompt ends here
        keep = L.informative(correct)  # (P,)
        if not keep.any():
            print(f"step {step}  no prompt is kept: each has only right or only wrong responses", flush=True)
            continue
        groups = [group for group, kept in zip(groups, keep, strict=True) if kept]
        # 5: advantages
        advantages = L.step_advantages(correct.float(), keep, objective=objective)[keep].flatten()  # (S,)
        # 6: log-probs before the first update
        batch = batch_of(groups)
        with torch.no_grad():
            old, ref = log_probs(model, batch), log_probs(ref_policy, batch)
        # 7: update; one optimizer step for each mini-batch. grad_norm is the norm before the gradient is clipped to 1
        updates = []
        trained = (~advantages.isnan()).nonzero().flatten()  # all of them, except for the variant pods
        for rows in trained[torch.randperm(len(trained), generator=generator)].chunk(args.updates):
            loss, metrics = loss_of(model, batch, rows, old, ref, advantages, objective)
            optimizer.zero_grad()
            loss.backward()
            metrics["grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            updates.append(metrics)
        # 8: nothing to do, since the engine samples with the trained weights. 9: log
        row = {"step": step} | scores_of(correct) | {"kept": len(groups), "response_tokens": tokens}
        history.append(row | {name: sum(float(x[name]) for x in updates) / len(updates) for name in updates[0]})
        print("  ".join(f"{name} {x:.4g}" for name, x in history[-1].items()), flush=True)
    if args.log and history:
        with open(args.log, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, history[0])
            writer.writeheader()
            writer.writerows(history)
    return [*scores, evaluate(engine, tokenizer, held_out)]


def roll_out(engine, tokenizer, problems: list[Problem], n: int, seed: int) -> tuple[list[Group], Tensor]:
    """N responses to each problem, and which are correct: bool, (P, N)."""
    requests = [Request(tokenizer(x.prompt).input_ids, n, seed_of("problem", seed, i)) for i, x in enumerate(problems)]
    sampling = Sampling(max_new_tokens=12, stop_token_ids=(tokenizer.eos_token_id,))
    groups = [group for _, group in sorted(engine.generate(requests, sampling))]  # in the order of the problems
    items = [
        (problem.kind, tokenizer.decode(response, skip_special_tokens=True), problem.reference)
        for problem, group in zip(problems, groups, strict=True)
        for response in group.responses
    ]
    return groups, torch.tensor([verdict.correct for verdict in verify_batch(items)]).view(-1, n)


def batch_of(groups: list[Group]) -> dict[str, Tensor]:
    """tokens (S, X), prompt_lengths and lengths (S,), engine (T,): the log-probs of the engine, end to end."""
    rows = [(group.prompt, response) for group in groups for response in group.responses]
    whole = [torch.tensor(prompt + response) for prompt, response in rows]
    return {
        "tokens": torch.nn.utils.rnn.pad_sequence(whole, batch_first=True),
        "prompt_lengths": torch.tensor([len(prompt) for prompt, _ in rows]),
        "lengths": torch.tensor([len(response) for _, response in rows]),
        "engine": torch.tensor([x for group in groups for logprobs in group.logprobs for x in logprobs]),
    }


def log_probs(model, batch: dict[str, Tensor], temperature: float = 1.0) -> Tensor:
    """log π of every response token, (T,). A causal model does not see padding on the right."""
    column, start = torch.arange(batch["tokens"].shape[1]), batch["prompt_lengths"][:, None] - 1
    at = (column >= start) & (column < start + batch["lengths"][:, None])  # (S, X): the state at i predicts token i + 1
    states = model.base_model(input_ids=batch["tokens"], use_cache=False).last_hidden_state[at]
    targets = batch["tokens"].roll(-1, dims=1)[at]
    return L.token_logprobs(model.get_output_embeddings()(states), targets, temperature)


def loss_of(
    model, batch, rows, old, ref, advantages, objective=OBJECTIVES["brorl"]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Section 3.1's loss of the rollouts `rows`, and means over their tokens. The other tensors are of all rollouts."""
    rows = rows.sort().values
    mine = torch.isin(torch.arange(len(batch["lengths"])), rows).repeat_interleave(batch["lengths"])  # (T,) bool
    part = {name: x[rows] for name, x in batch.items() if name != "engine"}
    logp, engine, lengths = log_probs(model, part), batch["engine"][mine], part["lengths"]
    tokens = int(lengths.sum())
    b = L.Tokens(logp, old[mine], engine, ref[mine], advantages[rows], lengths)
    loss, sums = L.policy_loss(b, tokens, len(rows), objective, KL_COEF)
    return loss, {name: sums[name] / tokens for name in METRICS}


def evaluate(engine, tokenizer, problems: list[Problem], k: int = 16) -> float:
    """pass@1 over the held-out problems, from k responses to each. Prints it, and pass@k."""
    _, correct = roll_out(engine, tokenizer, problems, k, seed_of("evaluation"))  # the same at every evaluation
    scores = scores_of(correct)
    print("held out: " + ", ".join(f"{name} {x:.3f}" for name, x in scores.items()), flush=True)
    return scores["pass@1"]


def scores_of(correct: Tensor) -> dict[str, float]:
    """pass@1 and pass@16 (pass@N if N < 16) of verdicts (P, N)."""
    counts, n = correct.sum(-1).tolist(), correct.shape[1]
    return {f"pass@{k}": sum(brorl.pass_at_k_estimate(n, c, k) for c in counts) / len(counts) for k in (1, min(16, n))}


def main(argv: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(prog="python lab/loop.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=64, help="N, rollouts of each prompt")
    parser.add_argument("--prompts", type=int, default=64, help="P, prompts of a step")
    parser.add_argument("--updates", type=int, default=8, help="mini-batches of a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--objective", default="brorl", choices=OBJECTIVES, help="of loss.py or lab/variants.py")
    parser.add_argument("--log", help="a CSV file for the metrics of each step")
    args = parser.parse_args(argv)
    model = AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    return train(model, tokenizer, read_problems("train"), read_problems("test"), args)


if __name__ == "__main__":
    main()
