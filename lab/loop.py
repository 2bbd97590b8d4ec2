"""The training loop of section 4.2 in one file and one process: what train.py does, without what makes it sturdy.

    python -m lab.loop                          the embedded policy, N = 64, 20 steps; 75 s of one core
    python -m lab.loop --rollouts 512 --steps 40

    name        symbol      meaning
    P, N                    prompts of a step, rollouts per prompt; S = P·N rollouts, T response tokens in all
    groups                  what the engine returns: a prompt, its N responses, their log-probs under the engine
    tokens      (S, L)      prompt then response, padded on the right
    old         log π_old   (T,) of the policy before the step's first update
    ref         log π_ref   (T,) of the policy before the run's first step

What train.py has besides: refills until B prompts are informative, a reference that is reset, any number of processes,
micro-batches, gradient checkpointing, spikes, checkpoints, --resume. The gradient is the same (tests/test_lab.py).
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import brorl
import loss as L
from rollout import Group, TorchEngine
from verify import Problem, load_problems, verify_batch

TINY = Path(__file__).resolve().parent.parent / "tiny"
LOSS: dict[str, Any] = {name: brorl.BRORL[name].value for name in ("clip_low", "clip_high", "tis_cap", "kl", "kl_coef")}


def train(model, tokenizer, problems: list[Problem], held_out: list[Problem], args) -> list[float]:
    """Steps 1 to 9 of train.py's head. Returns pass@1 on the held-out problems before the first step and at the end."""
    engine, reference = TorchEngine(model), copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(args.seed)
    scores = [evaluate(engine, tokenizer, held_out)]
    for step in range(1, args.steps + 1):
        # 1-3: problems, rollouts, verdicts
        chosen = [problems[i] for i in torch.randperm(len(problems), generator=generator)[: args.prompts]]
        groups, correct = roll_out(engine, tokenizer, chosen, args.rollouts, seed=args.seed + 1_000_003 * step)
        # 4: dynamic sampling
        keep = L.informative(correct)
        pass_rate = correct.float().mean().item()
        if not keep.any():
            continue
        groups = [group for group, kept in zip(groups, keep, strict=True) if kept]
        # 5: advantages
        advantages = L.group_advantages(correct[keep].float())
        advantages = L.whiten(advantages, L.moments(advantages)).flatten()  # (S,)
        # 6: score before the first update
        batch = batch_of(groups)
        with torch.no_grad():
            old, ref = log_probs(model, batch), log_probs(reference, batch)
        # 7: update; each mini-batch is one optimizer step
        for rows in torch.randperm(len(advantages), generator=generator).chunk(args.updates):
            loss = loss_of(model, batch, rows, old, ref, advantages)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        # 8: the engine decodes with the very weights that were trained. 9: log
        print(f"step {step:3}  correct {pass_rate:.3f}  prompts kept {int(keep.sum()):3} of {len(keep)}", flush=True)
    return [*scores, evaluate(engine, tokenizer, held_out)]


def roll_out(engine, tokenizer, problems: list[Problem], n: int, seed: int) -> tuple[list[Group], Tensor]:
    """N responses to each problem, and which are correct: bool, (P, N)."""
    prompts = [tokenizer(problem.prompt).input_ids for problem in problems]
    groups = engine.generate(prompts, n, max_new_tokens=12, seed=seed)
    items = [
        (problem.kind, tokenizer.decode(response, skip_special_tokens=True), problem.reference)
        for problem, group in zip(problems, groups, strict=True)
        for response in group.responses
    ]
    return groups, torch.tensor([verdict.reason == "correct" for verdict in verify_batch(items)]).view(-1, n)


def batch_of(groups: list[Group]) -> dict[str, Tensor]:
    """tokens (S, L), prompt_lengths and lengths (S,), engine (T,): the log-probs of the engine, end to end."""
    rows = [(group.prompt, response) for group in groups for response in group.responses]
    whole = [torch.tensor(prompt + response) for prompt, response in rows]
    return {
        "tokens": torch.nn.utils.rnn.pad_sequence(whole, batch_first=True),
        "prompt_lengths": torch.tensor([len(prompt) for prompt, _ in rows]),
        "lengths": torch.tensor([len(response) for _, response in rows]),
        "engine": torch.tensor([x for group in groups for logprobs in group.logprobs for x in logprobs]),
    }


def log_probs(model, batch: dict[str, Tensor], temperature: float = 1.0) -> Tensor:
    """log π of every response token, (T,). A causal model sees nothing to the right, so padding needs no mask."""
    at = L.response_positions(batch["prompt_lengths"], batch["lengths"], batch["tokens"].shape[1])
    states = model.base_model(input_ids=batch["tokens"], use_cache=False).last_hidden_state[at]
    targets = batch["tokens"].roll(-1, dims=1)[at]
    return L.token_logprobs(states, model.get_output_embeddings().weight, targets, temperature)[0]


def loss_of(model, batch: dict[str, Tensor], rows: Tensor, old: Tensor, ref: Tensor, advantages: Tensor) -> Tensor:
    """Section 3.1's loss of these rollouts. old, ref: (T,) of all rollouts."""
    rows = rows.sort().values  # in the order of `old`
    mine = torch.isin(torch.arange(len(batch["lengths"])), rows).repeat_interleave(batch["lengths"])  # (T,) bool
    part = {name: x[rows] for name, x in batch.items() if name != "engine"}
    logp, engine, lengths = log_probs(model, part), batch["engine"][mine], part["lengths"]
    return L.policy_loss(logp, old[mine], engine, ref[mine], advantages[rows], lengths, int(lengths.sum()), **LOSS)[0]


def evaluate(engine, tokenizer, problems: list[Problem], k: int = 16) -> float:
    """pass@1 over the held-out problems, from k responses to each. Prints it, and pass@k."""
    _, correct = roll_out(engine, tokenizer, problems, k, seed=1234)
    counts = correct.sum(-1).tolist()
    first, all_of_them = (sum(brorl.pass_at_k_estimate(k, c, m) for c in counts) / len(counts) for m in (1, k))
    print(f"held out: pass@1 {first:.3f}, pass@{k} {all_of_them:.3f}", flush=True)
    return first


def main(argv: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(prog="python -m lab.loop", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=64, help="N, rollouts of each prompt")
    parser.add_argument("--prompts", type=int, default=64, help="P, prompts of a step")
    parser.add_argument("--updates", type=int, default=8, help="mini-batches of a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    model = AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    return train(model, tokenizer, load_problems(TINY / "train.jsonl"), load_problems(TINY / "test.jsonl"), args)


if __name__ == "__main__":
    main()
