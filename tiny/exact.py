"""Sum a policy's probabilities over all answers: Q_pos and Figure 3's panels of countdown problems, without sampling.

    python -m tiny.exact                                the tiny policy on the held-out problems
    python -m tiny.exact --model M --data D.jsonl       another policy, other problems
    python -m tiny.exact --data D.jsonl --split FOLDER  writes which problems it solves rarely, and which it solves
    python -m tiny.exact runs/A runs/B                  the checkpoints of these runs; writes exact.csv into each

Section 4.1 plots three numbers of one softmax: the correct mass, the share of correct tokens whose probability rose,
and the largest drop of one. A countdown problem has few answers, so a policy has the same three numbers. A run keeps
its newest checkpoints, two unless --keep_checkpoints says more. Call the command again while the run continues: it
computes only the steps that exact.csv does not have.

    name here        symbol                        meaning
    answers          the correct set P             tiny/answers.py: expressions `a.b.c.d` whose value is the target
    logp             log p_i                       log π(answer, stop token | prompt), float32 model, summed in float64
    q_pos            Q_pos = Σ_i p_i               of one problem; its mean over the problems is pass@1
    pass@k           mean of 1 - (1 - Q_pos)^k     `brorl.pass_at_k`
    fell, improved   share with p_i < p_i,start, > of all answers of all problems
    worst_drop       min_i (p_i - p_i,start)       over all answers of all problems
    missed@N         Σ_i p_i (1 - p_i)^N           Q_pos of the answers that N draws miss, expected; the mean over the
                                                   problems is printed for one policy

The sum leaves out other correct responses, with parentheses or spaces, so the true Q_pos is a little larger: among
131,072 responses of the tiny policy one was of this kind.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

import brorl
from tiny.answers import OPERATORS, answers_of
from trainer.checkpoints import read_state
from trainer.console import short
from trainer.files import json_lines, read_csv, read_lines, write, write_csv
from trainer.policy import Policy
from trainer.pretrained import load_model, load_tokenizer
from trainer.process import Refusal, explained, refusing
from trainer.settings import TINY
from trainer.sources import load_sources
from trainer.text import stop_tokens
from trainer.trial import logits_fault
from verify import Problem

ANSWER_CHARACTERS = "0123456789" + OPERATORS
RARE = 1 / 2000, 1 / 50  # probability that the policy solves a problem of rare.jsonl
KS = [2**i for i in range(1, 11)]
MISSED = 16, 512  # draws
SHOWN = ("step", "samples", "q_pos", "pass@4", "pass@16", "pass@64", "pass@1024", "fell", "improved", "worst_drop",
         *(f"missed@{n}" for n in MISSED))  # fmt: skip


class AnswerLogProbs(NamedTuple):
    """A policy's log-probs of all answers of all problems. A answers, P problems."""

    logp: Tensor  # (A,) float64
    problem_index: Tensor  # (A,), the problem of each answer
    problem_count: int  # P, with the problems that have no answer

    @staticmethod
    def of(logps: list[Tensor]) -> "AnswerLogProbs":
        """Join the log-probs of each problem's answers."""
        counts = torch.tensor([len(x) for x in logps])
        return AnswerLogProbs(torch.cat(logps), torch.arange(len(logps)).repeat_interleave(counts), len(logps))

    @property
    def q_pos(self) -> Tensor:
        """Q_pos = Σ_i p_i, (P,), at most 1: a sum that rounds to more would make pass@k NaN."""
        return (
            torch.zeros(self.problem_count, dtype=torch.float64)
            .index_add(0, self.problem_index, self.logp.exp())
            .clamp(max=1)
        )

    def missed(self, n: int) -> float:
        """Return the mean over the problems of Σ_i p_i (1 - p_i)^n."""
        p = self.logp.exp()
        return (p * torch.exp(torch.special.xlog1py(n, -p))).sum().item() / self.problem_count


def measures(now: AnswerLogProbs, start: AnswerLogProbs) -> dict[str, float]:
    """Compute the numbers at the top of this file, from two policies on the same problems."""
    q, change = now.q_pos, now.logp.exp() - start.logp.exp()
    return {
        "q_pos": q.mean().item(),
        **{f"pass@{k}": brorl.pass_at_k(q, k).mean().item() for k in KS},
        "fell": (now.logp < start.logp).double().mean().item(),
        "improved": (now.logp > start.logp).double().mean().item(),
        "worst_drop": change.min().item(),
    }


@torch.no_grad()
def log_probs(policy: Policy, tokenizer: PreTrainedTokenizerBase, problems: list[Problem]) -> AnswerLogProbs:
    """Compute `answer_log_probs` without a gradient."""
    return answer_log_probs(policy, tokenizer, problems)


def answer_log_probs(policy: Policy, tokenizer: PreTrainedTokenizerBase, problems: list[Problem]) -> AnswerLogProbs:
    """Compute log π(answer and stop token | prompt) of every answer.

    Raises ValueError if an answer is not exactly one sequence of tokens.
    """
    token_of, stops = tokens_of_characters(tokenizer), stop_tokens(tokenizer, policy.model)
    if len(stops) != 1:
        raise ValueError(f"the model has {len(stops)} tokens that end a response: leave it one eos_token_id")
    prompts: list[Tensor] = []
    rows: list[tuple[int, Tensor]] = []  # index of a problem, tokens of one of its answers
    for i, problem in enumerate(problems):
        if not isinstance(problem.prompt, str):
            raise ValueError("a problem's prompt is a chat: write it as text")
        prompts.append(torch.tensor(tokenizer(problem.prompt).input_ids))
        rows += [(i, torch.tensor([*(token_of[c] for c in text), *stops])) for text in answers_of(problem)]
    logps = [torch.zeros(0, dtype=torch.float64)]
    for some in (rows[i : i + 1024] for i in range(0, len(rows), 1024)):
        index, of_row = torch.tensor([i for i, _ in some]).unique(return_inverse=True)
        own = [prompts[i] for i in index.tolist()]
        padded = pad_sequence(own, batch_first=True, padding_side="left"), torch.tensor([len(x) for x in own]), of_row
        lengths = torch.tensor([len(answer) for _, answer in some])
        answers = pad_sequence([answer for _, answer in some], batch_first=True)
        logp, _ = policy(*padded, answers, lengths, 1.0)  # (tokens,)
        logps.append(torch.stack([x.sum() for x in logp.double().split(lengths.tolist())]))
    return AnswerLogProbs(torch.cat(logps), torch.tensor([i for i, _ in rows], dtype=torch.long), len(problems))


def tokens_of_characters(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the token of each character of an answer. Raises ValueError if an answer has several spellings."""
    joined = sorted(t for t in tokenizer.get_vocab() if len(t) > 1 and set(t) <= set(ANSWER_CHARACTERS))
    ids_of = {c: tokenizer(c, add_special_tokens=False).input_ids for c in ANSWER_CHARACTERS}
    if joined or any(len(ids) != 1 or tokenizer.decode(ids) != c for c, ids in ids_of.items()):
        raise ValueError(
            "exact sums need a tokenizer with one token per character of an answer"
            + (f"; this one also has {', '.join(map(repr, joined[:3]))}" if joined else "")
            + ": use a model of tiny/make.py"
        )
    return {c: ids[0] for c, ids in ids_of.items()}


def load_policy(model: str) -> tuple[Policy, PreTrainedTokenizerBase]:
    """Load a policy of train.py's class, on the CPU, and its tokenizer. Raises ValueError if it is no model."""
    tokenizer, _ = load_tokenizer(model)
    policy = Policy(load_model(model)).eval()
    if fault := logits_fault(policy):
        raise ValueError(f"{model}: {fault}")
    policy.share_prompts = not logits_fault(policy, share_prompts=True)
    return policy, tokenizer


def score_run(run: Path, count: int | None = None) -> list[dict[str, float]]:
    """Score a run's start and each checkpoint that exact.csv lacks. Returns all rows by step.

    count: number of problems, the first ones of the run's eval_data; None for all.
    """
    path, settings = run / "exact.csv", json.loads((run / "config.json").read_text())
    rows = {int(row["step"]): row for row in read_csv(path)}
    logged = read_lines(run / "metrics.jsonl")  # a step is logged before it is saved
    samples = {0: 0} | {row["step"]: row["samples"] for row in logged}
    folders = {int(x.name.removeprefix("step_")): x for x in (run / "checkpoints").glob("step_" + "[0-9]" * 8)}
    if settings.get("lora_rank"):
        raise ValueError(f"{run}: checkpoints of --lora_rank have no frozen weights: score {run / 'model'} by --model")
    problems = load_sources(settings["eval_data"])[:count]
    if other := {row.get("problems", len(problems)) for row in rows.values()} - {len(problems)}:
        raise ValueError(f"{path} has scores of {other.pop():.0f} problems: delete it to score {len(problems)}")
    if todo := sorted({0, *folders} - {*rows}):
        policy, tokenizer = load_policy(settings["model"])
        start = log_probs(policy, tokenizer, problems)
        for step in todo:
            if step:
                read_state(folders[step], {"model": {name: p.detach() for name, p in policy.named_parameters()}})
            now = log_probs(policy, tokenizer, problems) if step else start
            position = {"step": float(step), "samples": float(samples[step]), "problems": float(len(problems))}
            rows[step] = position | measures(now, start)
        write_csv(path, [rows[step] for step in sorted(rows)])
    return [rows[step] for step in sorted(rows)]


def write_rare_and_solved(problems: list[Problem], q_pos: Tensor, folder: Path) -> None:
    """Write rare.jsonl, the problems with Q_pos within RARE, and solved.jsonl, those with Q_pos above 1/2.

    q_pos: (P,). Raises ValueError if one of the files would be empty.
    """
    q = q_pos.tolist()
    files = {"rare": [RARE[0] <= x <= RARE[1] for x in q], "solved": [x > 0.5 for x in q]}
    for name, chosen in files.items():
        rows = [problem._asdict() for problem, it_is in zip(problems, chosen, strict=True) if it_is]
        if not rows:
            raise ValueError(f"no problem would be in {name}.jsonl: use other problems or another policy")
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"{name}.jsonl", json_lines(rows))
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
    parser.add_argument(
        "--split", type=Path, help="write rare.jsonl and solved.jsonl, by the model's Q_pos, to this folder"
    )
    args = parser.parse_args(argv)
    if args.runs and (args.model or args.data or args.split):
        raise Refusal("--model, --data and --split belong to one policy: name no RUN")
    torch.set_num_threads(1)
    for run in args.runs:
        print(f"{short(str(run))}\n{table(score_run(run, args.problems))}\nwrote {short(str(run / 'exact.csv'))}")
    if not args.runs:
        model, problems = args.model or str(TINY / "policy"), load_sources(args.data or [str(TINY / "test.jsonl")])
        problems = problems[: args.problems]
        now = log_probs(*load_policy(model), problems)
        row = {x: y for x, y in measures(now, now).items() if x not in ("fell", "improved", "worst_drop")}
        row |= {f"missed@{n}": now.missed(n) for n in MISSED}
        print(f"{short(model)}: {len(now.logp):,} answers to {now.problem_count} problems\n{table([row])}")
        if args.split:
            write_rare_and_solved(problems, now.q_pos, args.split)


if __name__ == "__main__":
    with explained(code=2), refusing():
        main()
