"""Sum a policy's probabilities over all answers: Q_pos and Figure 3's panels of countdown problems, without sampling.

    python -m tiny.exact                                the tiny policy on the held-out problems
    python -m tiny.exact --model M --data D.jsonl       another policy, other problems
    python -m tiny.exact --data D.jsonl --split FOLDER  writes which problems it solves rarely, and which it solves
    python -m tiny.exact runs/A runs/B                  the checkpoints of these runs; writes exact.csv into each

Section 4.1 watches three numbers on one softmax: the correct mass, the share of correct tokens whose probability rose,
and the worst drop of one. A countdown problem has few answers, so the same three numbers exist for a policy. A run
keeps its newest checkpoints, two unless --keep_checkpoints says more. The command can be called again while the run
continues: it computes only the steps that exact.csv does not have.

    name here        symbol                        meaning
    answers          the correct set P             expressions `a.b.c.d` with the target as value, a dot is + - * or /
    logp             log p_i                       log π(answer, stop token | prompt), float32 model, summed in float64
    q_pos            Q_pos = Σ_i p_i               of one problem; its mean over the problems is pass@1
    pass@k           mean of 1 - (1 - Q_pos)^k     `brorl.pass_at_k`
    fell, improved   share with p_i < p_i,start, > of all answers of all problems
    worst_drop       min_i (p_i - p_i,start)       over all answers of all problems

The sum leaves out other correct responses: the verifier also accepts parentheses and spaces. So the true Q_pos is a
little larger. Of 131,072 responses of the tiny policy one was such an answer, and the share of the others, 0.19176,
agreed with the sum, 0.19234 (z = -0.55; measured at commit 8628101).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

import brorl
from tiny.answers import OPERATORS, answers_of
from trainer.checkpoints import read_state
from trainer.data import load_sources
from trainer.files import read_csv, read_lines, write, write_csv
from trainer.policy import Policy
from trainer.pretrained import load_tokenizer, stop_tokens
from trainer.report import short
from trainer.settings import TINY
from trainer.trial import logits_fault
from verify import Problem

CHARACTERS = "0123456789" + OPERATORS
RARE = 1 / 2000, 1 / 50  # probability that the policy solves a problem of rare.jsonl
KS = [2**i for i in range(1, 11)]
SHOWN = ("step", "samples", "q_pos", "pass@4", "pass@16", "pass@64", "pass@1024", "fell", "improved", "worst_drop")


class Knowledge(NamedTuple):
    """The probabilities of all answers of all problems. A answers, P problems."""

    logp: Tensor  # (A,) float64
    problem: Tensor  # (A,), the problem of each answer
    total: int  # P, with the problems that have no answer

    @staticmethod
    def of(logps: list[Tensor]) -> "Knowledge":
        """Join the log-probs of each problem's answers."""
        sizes = torch.tensor([len(x) for x in logps])
        return Knowledge(torch.cat(logps), torch.arange(len(logps)).repeat_interleave(sizes), len(logps))

    @property
    def q_pos(self) -> Tensor:
        """Q_pos = Σ_i p_i, (P,), at most 1: a sum that rounds to more would make pass@k NaN."""
        return torch.zeros(self.total, dtype=torch.float64).index_add(0, self.problem, self.logp.exp()).clamp(max=1)


def metrics(now: Knowledge, start: Knowledge) -> dict[str, float]:
    """Compute the numbers at the top of this file, of two policies on the same problems."""
    q, change = now.q_pos, now.logp.exp() - start.logp.exp()
    return {
        "q_pos": q.mean().item(),
        **{f"pass@{k}": brorl.pass_at_k(q, k).mean().item() for k in KS},
        "fell": (now.logp < start.logp).double().mean().item(),
        "improved": (now.logp > start.logp).double().mean().item(),
        "worst_drop": change.min().item(),
    }


@torch.no_grad()
def log_probs(policy: Policy, tokenizer: PreTrainedTokenizerBase, problems: list[Problem]) -> list[Tensor]:
    """Compute log π(answer and stop token | prompt) of every answer: (answers,) float64 for each problem.

    Raises ValueError if an answer is not exactly one sequence of tokens.
    """
    code, stops = alphabet(tokenizer), stop_tokens(tokenizer, policy.model)
    if len(stops) != 1:
        raise ValueError(f"the model has {len(stops)} tokens that end a response: leave it one eos_token_id")
    found = []
    for problem in problems:
        if not isinstance(problem.prompt, str):
            raise ValueError("a problem's prompt is a chat: write it as text")
        prompt = torch.tensor([tokenizer(problem.prompt).input_ids])  # (1, L)
        logps = [torch.zeros(0, dtype=torch.float64)]
        texts = answers_of(problem)
        for some in (texts[i : i + 1024] for i in range(0, len(texts), 1024)):
            responses = [torch.tensor([*(code[c] for c in text), *stops]) for text in some]
            lengths = torch.tensor([len(r) for r in responses])
            batch = prompt, torch.tensor([prompt.shape[1]]), torch.zeros(len(some), dtype=torch.long)
            logp, _ = policy(*batch, pad_sequence(responses, batch_first=True), lengths, 1.0)  # (tokens,)
            logps.append(torch.stack([x.sum() for x in logp.double().split(lengths.tolist())]))
        found.append(torch.cat(logps))
    return found


def alphabet(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the token of each character of an answer. Raises ValueError if an answer has several spellings."""
    joined = sorted(t for t in tokenizer.get_vocab() if len(t) > 1 and set(t) <= set(CHARACTERS))
    code = {c: tokenizer(c, add_special_tokens=False).input_ids for c in CHARACTERS}
    if joined or any(len(ids) != 1 or tokenizer.decode(ids) != c for c, ids in code.items()):
        raise ValueError(
            "exact sums need a tokenizer with one token per character of an answer"
            + (f"; this one also has {', '.join(map(repr, joined[:3]))}" if joined else "")
            + ": use a model of tiny/make.py"
        )
    return {c: ids[0] for c, ids in code.items()}


# --------------------------------------------------------------------------------------------- policies and runs


def load_policy(model: str) -> tuple[Policy, PreTrainedTokenizerBase]:
    """Load a policy as train.py holds it, on the CPU, and its tokenizer. Raises ValueError if it is no model."""
    tokenizer, _ = load_tokenizer(model)
    policy = Policy(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)).eval()
    if logits_fault(policy):
        raise ValueError(f"{model} scales or caps its logits after the head: take another model")
    policy.share_prompts = not logits_fault(policy, share_prompts=True)
    return policy, tokenizer


def follow(run: Path, first: int | None = None) -> list[dict[str, float]]:
    """Score a run's start and each checkpoint that exact.csv lacks, on the `first` problems of its eval_data.

    first: None for all. Returns all rows by step.
    """
    path, settings = run / "exact.csv", json.loads((run / "config.json").read_text())
    rows = {int(row["step"]): row for row in read_csv(path)}
    logged = read_lines(run / "metrics.jsonl")  # a step is logged before it is saved
    samples = {0: 0} | {row["step"]: row["samples"] for row in logged}
    folders = {int(x.name.removeprefix("step_")): x for x in (run / "checkpoints").glob("step_" + "[0-9]" * 8)}
    if settings.get("lora_rank"):
        raise ValueError(f"{run}: checkpoints of --lora_rank have no frozen weights: score {run / 'model'} by --model")
    if todo := sorted({0, *folders} - {*rows}):
        problems = load_sources(settings["eval_data"])[:first]
        policy, tokenizer = load_policy(settings["model"])
        start = Knowledge.of(log_probs(policy, tokenizer, problems))
        for step in todo:
            if step:
                read_state(folders[step], {"model": policy.state_dict()})
            now = Knowledge.of(log_probs(policy, tokenizer, problems)) if step else start
            rows[step] = {"step": float(step), "samples": float(samples[step])} | metrics(now, start)
        write_csv(path, [rows[step] for step in sorted(rows)])
    return [rows[step] for step in sorted(rows)]


def split(problems: list[Problem], q_pos: Tensor, folder: Path) -> None:
    """Write the problems that are solved rarely, with a probability within RARE, and those solved more often than not.

    The files are rare.jsonl and solved.jsonl. q_pos: (P,). Raises ValueError if one of them would be empty.
    """
    q = q_pos.tolist()
    kinds = {"rare": [RARE[0] <= x <= RARE[1] for x in q], "solved": [x > 0.5 for x in q]}
    for name, chosen in kinds.items():
        rows = [problem._asdict() for problem, it_is in zip(problems, chosen, strict=True) if it_is]
        if not rows:
            raise ValueError(f"no problem would be in {name}.jsonl: use other problems or another policy")
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        print(f"wrote {short(str(folder))}/{name}.jsonl: {len(rows):,} problems")


def table(rows: list[dict[str, float]]) -> str:
    """Format some columns, a row for each policy."""
    names = [name for name in SHOWN if name in rows[0]]
    forms = {name: ",.0f" if name in ("step", "samples") else ".4f" for name in names}
    lines = ["".join(f"{name:>11}" for name in names)]
    return "\n".join(lines + ["".join(f"{row[name]:>11{forms[name]}}" for name in names) for row in rows])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", type=Path, help="folders that train.py wrote")
    parser.add_argument("--model", help="score this policy instead (default without a RUN: tiny/policy)")
    parser.add_argument("--data", nargs="+", help="the model's problems (default: tiny/test.jsonl)")
    parser.add_argument("--problems", type=int, help="score the first ones only (default: all)")
    parser.add_argument("--split", type=Path, help="write the model's rarely solved problems and others to this folder")
    args = parser.parse_args(argv)
    if args.runs and (args.model or args.data or args.split):
        parser.exit(2, "exact.py: --model, --data and --split belong to one policy: name no RUN\n")
    torch.set_num_threads(1)
    try:
        for run in args.runs:
            print(f"{short(str(run))}\n{table(follow(run, args.problems))}\nwrote {short(str(run / 'exact.csv'))}")
        if not args.runs:
            model, problems = args.model or str(TINY / "policy"), load_sources(args.data or [str(TINY / "test.jsonl")])
            problems = problems[: args.problems]
            now = Knowledge.of(log_probs(*load_policy(model), problems))
            row = {x: y for x, y in metrics(now, now).items() if x not in ("fell", "improved", "worst_drop")}
            print(f"{short(model)}: {len(now.logp):,} answers to {now.total} problems\n{table([row])}")
            if args.split:
                split(problems, now.q_pos, args.split)
    except (ValueError, OSError) as mistake:
        sys.exit(f"exact.py: {mistake}")


if __name__ == "__main__":
    main()
