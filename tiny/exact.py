"""Figure 3 on a transformer: what a policy knows of the countdown problems, summed instead of sampled.

    python -m tiny.exact                                  the embedded policy on the held-out problems
    python -m tiny.exact --check                          the same, and a comparison with sampled responses
    python -m tiny.exact --model M --data D.jsonl         another policy, other problems
    python -m tiny.exact runs/A runs/B                    the checkpoints of these runs: exact.csv in each, a figure

Section 4.1 watches three numbers on one softmax: the correct mass, the share of correct tokens whose probability
rose, and the worst drop of one. A countdown problem has few answers. All of them can be listed and scored, so the same
three numbers exist for a policy, without sampling error. A run keeps its newest two checkpoints: call this command
again while the run continues. Steps that exact.csv has are not computed again.

    name here        symbol                        meaning
    answers          the correct set P             strings `a.b.c.d` with the target as value, a dot is one of + - * /
    logp             log p_i                       log π(answer, stop token | prompt), float32 model, summed in float64
    q_pos            Q_pos = Σ_i p_i               of one problem; its mean over problems is pass@1
    pass@k           mean of 1 - (1 - Q_pos)^k     `brorl.pass_at_k`
    below            share with Q_pos < 1/1024     problems that 1,024 rollouts mostly show no answer of
    in_use           mean of exp(H(p / Q_pos))     effective number of answers: 1 if all mass is on one, H in nats
    fell, improved   share with p_i < p_i,start, > of all answers of all problems, each counts once; a tie is neither
    worst_drop       min_i (p_i - p_i,start)       over all answers of all problems
    problems_fell    share with Q_pos < its start  of the problems
    log_ratio        mean of log p_i - log p_i,start, an answer weighted by p_i,start / Q_pos,start, problems equally
    log_ratio_median median of the same, each answer counts once

The sum leaves out other correct forms: the verifier also accepts parentheses and spaces, and a response that is cut
before its stop token, so the true Q_pos is a little larger. `--check` measures it with 512 held-out problems x 256
responses. Of the embedded policy's responses 0.19176 are enumerated answers, the sum is 0.19234 (z = -0.55), and 1 of
131,072 is correct in another form, `8-1+1 +4`. After the default run (`--model runs/brorl-seed0/model`) these numbers
are 0.37569, 0.37587 (z = -0.18) and 0. Check again with other policies.

Cost: the 512 problems have 11,995 answers, listed in 0.2 s and scored in 1.8 s on one thread.
"""

import argparse
import csv
import io
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

import brorl
from rollout import Request, Sampling, TorchEngine
from tiny.answers import OPERATORS, answers_of
from trainer.data import load_tokenizer, stop_tokens
from trainer.policy import Policy, agrees_with_logits
from trainer.report import short
from trainer.run import read_state, write
from trainer.settings import TINY
from verify import Problem, load_data, verify

CHARACTERS = "0123456789" + OPERATORS
KS = [2**i for i in range(1, 11)]
BELOW = 1 / 1024
BUDGET = 8192  # tokens of a forward pass: what stays in a CPU's caches is faster than what fills its memory


# ------------------------------------------------------------------------------------------ their probabilities


def log_probs(policy: Policy, tokenizer: PreTrainedTokenizerBase, problems: list[Problem], temperature: float = 1.0):
    """log π(answer and stop token | prompt) of every answer of every problem: a float64 tensor (answers,) a problem.

    In the order of `answers`. Exact only where a string is one sequence of tokens. Raises ValueError elsewhere.
    """
    code, (stop,) = alphabet(tokenizer), one_stop_token(tokenizer, policy.model)
    prompts = [encoded(tokenizer, p) for p in problems]
    responses = [[[*(code[c] for c in text), stop] for text in answers_of(p)] for p in problems]
    return response_log_probs(policy, prompts, responses, temperature)


@torch.no_grad()
def response_log_probs(policy: Policy, prompts: list[list[int]], responses: list[list[list[int]]], temperature: float):
    """Σ_t log π(token t | prompt, tokens before t) of each prompt's responses: a float64 tensor (responses,) a prompt.

    Each prompt is computed once per forward pass, if the model allows it.
    """
    device = next(policy.parameters()).device
    rows = [(i, torch.tensor(r)) for i, rs in enumerate(responses) for r in rs]
    found: list[list[Tensor]] = [[] for _ in prompts]
    longest = max([0, *map(len, prompts)]) + max([0, *(len(r) for _, r in rows)])
    size = max(1, BUDGET // max(1, longest))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        own = list(dict.fromkeys(i for i, _ in part))
        tensors = (
            pad_sequence([torch.tensor(prompts[i]) for i in own], batch_first=True, padding_side="left"),
            torch.tensor([len(prompts[i]) for i in own]),
            torch.tensor([own.index(i) for i, _ in part]),
            pad_sequence([r for _, r in part], batch_first=True),
            lengths := torch.tensor([len(r) for _, r in part]),
        )
        logp = policy(*(x.to(device) for x in tensors), temperature)[0].double().cpu()
        for (i, _), x in zip(part, logp.split(lengths.tolist()), strict=True):
            found[i].append(x.sum())
    return [torch.stack(x) if x else torch.zeros(0, dtype=torch.float64) for x in found]


def alphabet(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The token of each character of an answer. Raises ValueError if an answer could be written in several ways."""
    joined = sorted(t for t in tokenizer.get_vocab() if len(t) > 1 and set(t) <= set(CHARACTERS))
    code = {c: tokenizer(c, add_special_tokens=False).input_ids for c in CHARACTERS}
    if joined or any(len(ids) != 1 or tokenizer.decode(ids) != c for c, ids in code.items()):
        raise ValueError(
            "exact masses need a tokenizer that writes an answer in one way, a token per character"
            + (f"; this one also has {', '.join(map(repr, joined[:3]))}" if joined else "")
            + ": take a model made by tiny/make.py"
        )
    return {c: ids[0] for c, ids in code.items()}


def one_stop_token(tokenizer: PreTrainedTokenizerBase, model) -> tuple[int, ...]:
    stops = stop_tokens(tokenizer, model)
    if len(stops) != 1:
        raise ValueError(f"the model ends a response with any of {len(stops)} tokens: leave it one eos_token_id")
    return stops


def encoded(tokenizer: PreTrainedTokenizerBase, problem: Problem) -> list[int]:
    if not isinstance(problem.prompt, str):
        raise ValueError("a problem's prompt is a chat: write it as text")
    return tokenizer(problem.prompt).input_ids


# ------------------------------------------------------------------------------------------------ what is known


class Knowledge(NamedTuple):
    """The probabilities of all answers of all problems. A answers, P problems."""

    logp: Tensor  # (A,) float64
    problem: Tensor  # (A,) which problem it answers
    total: int  # P, those without any answer included

    @staticmethod
    def of(logps: list[Tensor]) -> "Knowledge":
        sizes = torch.tensor([len(x) for x in logps])
        return Knowledge(torch.cat(logps), torch.arange(len(logps)).repeat_interleave(sizes), len(logps))

    def per_problem(self, values: Tensor) -> Tensor:
        """Sums (P,) of the answers' values (A,)."""
        return torch.zeros(self.total, dtype=torch.float64).index_add(0, self.problem, values)

    @property
    def q_pos(self) -> Tensor:
        """Q_pos = Σ_i p_i, (P,). At most 1: a sum that rounds to more would make pass@k NaN."""
        return self.per_problem(self.logp.exp()).clamp(max=1)

    @property
    def share(self) -> Tensor:
        """p_i / Q_pos, (A,): of its problem's correct mass. By softmax, so that it stands where Q_pos underflows."""
        top = torch.full((self.total,), -torch.inf, dtype=torch.float64)
        top = top.scatter_reduce(0, self.problem, self.logp, "amax")
        weight = (self.logp - top[self.problem]).exp()
        return weight / self.per_problem(weight)[self.problem]

    @property
    def in_use(self) -> Tensor:
        """exp(H(p / Q_pos)), (P,): how many equally likely answers would be as spread. 1 for a problem without any."""
        return self.per_problem(torch.special.entr(self.share)).exp()


def metrics(now: Knowledge, start: Knowledge) -> dict[str, float]:
    """The columns of exact.csv, by the formulas at the top of this file, of two policies on the same problems."""
    q, q_start = now.q_pos, start.q_pos
    p, p_start = now.logp.exp(), start.logp.exp()
    ratio = now.logp - start.logp
    solvable = torch.bincount(now.problem, minlength=now.total) > 0
    return {
        "q_pos": q.mean().item(),
        **{f"pass@{k}": brorl.pass_at_k(q, k).mean().item() for k in KS},
        "below": (q < BELOW).double().mean().item(),
        "in_use": now.in_use[solvable].mean().item(),
        "fell": (now.logp < start.logp).double().mean().item(),
        "improved": (now.logp > start.logp).double().mean().item(),
        "worst_drop": (p - p_start).min().item(),
        "problems_fell": (q < q_start).double().mean().item(),
        "log_ratio": now.per_problem(start.share * ratio)[solvable].mean().item(),
        "log_ratio_median": ratio.median().item(),
    }


# --------------------------------------------------------------------------------------------- policies and runs


def load_policy(model: str) -> tuple[Policy, PreTrainedTokenizerBase]:
    """A policy as train.py holds it, on the CPU, and its tokenizer. Raises ValueError for what is no model."""
    tokenizer, _ = load_tokenizer(model)
    policy = Policy(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)).eval()
    if not agrees_with_logits(policy):
        raise ValueError(f"{model} scales or caps its logits after the head: take another model")
    policy.share_prompts = agrees_with_logits(policy, share_prompts=True)
    return policy, tokenizer


def read_rows(path: Path) -> dict[int, dict]:
    """The rows of an exact.csv by step."""
    if not path.exists():
        return {}
    rows = [{name: float(x) for name, x in row.items()} for row in csv.DictReader(io.StringIO(path.read_text()))]
    return {int(row["step"]): row for row in rows}


def write_rows(path: Path, rows: dict[int, dict]) -> None:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(next(iter(rows.values()))), lineterminator="\n")
    writer.writeheader()
    for _, row in sorted(rows.items()):
        writer.writerow({name: f"{x:.9g}" for name, x in row.items()})
    write(path, file.getvalue())


def follow(run: Path) -> dict[int, dict]:
    """Score a run's start and every checkpoint that exact.csv lacks, on its eval_data; returns all its rows by step."""
    settings = json.loads((run / "config.json").read_text())
    path = run / "exact.csv"
    rows = read_rows(path)
    todo: dict[int, Path | None] = {0: None} | {
        int(x.name.partition("_")[2]): x for x in (run / "checkpoints").glob("step_" + "[0-9]" * 8)
    }
    metrics_rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    samples = {0: 0} | {row["step"]: row["samples"] for row in metrics_rows}  # logged, then saved
    if len(todo) == 1 and (run / "model").is_dir():  # its checkpoints were deleted; otherwise the last one is model/
        todo[max(samples)] = run / "model"
    if not (todo := {step: x for step, x in todo.items() if step not in rows}):
        return rows

    problems = load_data(settings["eval_data"])
    policy, tokenizer = load_policy(settings["model"])
    start = Knowledge.of(log_probs(policy, tokenizer, problems))
    for step, folder in sorted(todo.items()):
        if folder and folder.name == "model":
            policy, tokenizer = load_policy(str(folder))
        elif folder:
            read_state(folder, {"model": policy.state_dict()})
        now = Knowledge.of(log_probs(policy, tokenizer, problems)) if folder else start
        rows[step] = {"step": float(step), "samples": float(samples[step])} | metrics(now, start)
        write_rows(path, rows)
    return dict(sorted(rows.items()))


# ------------------------------------------------------------------------------------------------ against samples


def check(policy: Policy, tokenizer, problems: list[Problem], now: Knowledge, temperature: float, n: int):
    """Sample n responses a problem: do answers come as often as the exact sum says, and what does it leave out?

    z = (share sampled - mean Q_pos) / sqrt(mean of Q_pos (1 - Q_pos) / (P n)), for the responses that the sum covers.
    """
    code, (stop,) = alphabet(tokenizer), one_stop_token(tokenizer, policy.model)
    known = [{(*(code[c] for c in text), stop) for text in answers_of(p)} for p in problems]
    longest = max(len(x) for some in known for x in some)
    most = policy.model.generation_config.max_new_tokens or longest
    requests = [Request(encoded(tokenizer, p), n, seed) for seed, p in enumerate(problems)]
    groups = dict(TorchEngine(policy.model).generate(requests, Sampling(most, temperature, stop_token_ids=(stop,))))
    inside, outside = 0, Counter[str]()
    for i, (problem, covered) in enumerate(zip(problems, known, strict=True)):
        for tokens, times in Counter(map(tuple, groups[i].responses)).items():
            text = tokenizer.decode(tokens, skip_special_tokens=True)  # as the loop reads it
            if tokens in covered:
                inside += times
            elif verify("countdown", text, problem.reference).reason == "correct":
                outside[tokenizer.decode(tokens)] += times
    q, total, left_out = now.q_pos, n * len(problems), outside.total()
    z = (inside / total - q.mean().item()) / math.sqrt(max((q * (1 - q)).mean().item(), 1e-12) / total)
    most = (left_out + 2 * math.sqrt(left_out) + 3) / total  # 95% of a Poisson count, one-sided, or a bit more
    return {"sampled": total, "inside": inside / total, "z": z, "left_out": left_out / total, "left_out_at_most": most,
            "examples": [f"{text!r} {times}x" for text, times in outside.most_common(5)]}  # fmt: skip


# ------------------------------------------------------------------------------------------------ what is shown


def table(rows: list[dict]) -> str:
    """A row a step: the correct mass, pass@k for some k, and the comparison with the start."""
    columns = {"step": "9.0f", "samples": "11,.0f", "q_pos": "8.4f", "pass@4": "8.4f", "pass@16": "8.4f",
               "pass@64": "8.4f", "pass@256": "9.4f", "pass@1024": "10.4f", "below": "7.3f", "in_use": "7.2f",
               "fell": "7.3f", "improved": "9.3f", "worst_drop": "11.2e", "problems_fell": "14.3f",
               "log_ratio": "10.3f", "log_ratio_median": "17.3f"}  # fmt: skip
    columns = {name: form for name, form in columns.items() if name in rows[0]}
    widths = {name: max(int(form.partition(".")[0].rstrip(",")), len(name) + 1) for name, form in columns.items()}
    lines = ["".join(f"{name:>{widths[name]}}" for name in columns)]
    for row in rows:
        shown = {name: format(row[name], form.lstrip("0123456789")) for name, form in columns.items()}
        lines.append("".join(f"{shown[name]:>{widths[name]}}" for name in columns))
    return "\n".join(lines)


def plot(path: Path, runs: dict[str, list[dict]]) -> None:
    """The three panels of Figure 3, one line a run, over the samples that it drew."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    panels = [
        ("Correct mass, mean over problems", "Q_pos", lambda r: r["q_pos"]),
        ("Correct answers above their start", "% of all answers", lambda r: 100 * r["improved"]),
        ("Worst drop among correct answers", "min (p - p at the start)", lambda r: r["worst_drop"]),
    ]
    for axis, (title, label, value) in zip(axes, panels, strict=True):
        for name, rows in runs.items():
            axis.plot([r["samples"] for r in rows], [value(r) for r in rows], ".-", label=name, lw=1.5, ms=4)
        axis.set(title=title, ylabel=label, xlabel="samples generated")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
    axes[1].set_ylim(-3, 103)
    axes[0].legend(fontsize=8)
    figure.suptitle("Figure 3's panels on a policy: all answers of all problems, summed exactly")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", type=Path, help="folders that train.py wrote")
    add("--model", help="score this policy instead (default without a RUN: tiny/policy)")
    add("--data", nargs="+", help="the model's problems (default: tiny/test.jsonl)")
    add("--temperature", type=float, default=1.0, help="of the model (default: 1, the policy itself)")
    add("--check", action="store_true", help="sample a model's responses too, and compare")
    add("--samples", type=int, default=256, help="with --check: responses a problem (default: 256)")
    add("--threads", type=int, default=1, help="torch's CPU threads: a run may be going on beside it (default: 1)")
    args = parser.parse_args(argv)
    model_only = args.model or args.data or args.check or args.temperature != 1
    rules = [
        (not (args.runs and model_only), "--model, --data, --temperature and --check are of one policy: name no RUN"),
        (args.temperature > 0, f"--temperature {args.temperature:g}: greedy decoding has no probabilities to sum"),
        (args.samples >= 1, f"--samples {args.samples}: must be at least 1"),
    ]
    if broken := [sentence for holds, sentence in rules if not holds]:
        parser.exit(2, "".join(f"exact.py: {sentence}\n" for sentence in broken))
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    try:
        score_runs(args) if args.runs else score_model(args)
    except (ValueError, OSError) as mistake:
        sys.exit(f"exact.py: {mistake}")


def score_runs(args: argparse.Namespace) -> None:
    runs = {run.resolve().name: list(follow(run).values()) for run in args.runs}
    for name, rows in runs.items():
        print(f"{name}\n{table(rows)}\n")
    figure = args.runs[0] / "exact.png"
    plot(figure, runs)
    print(f"wrote {', '.join(str(run / 'exact.csv') for run in args.runs)} and {figure}")


def score_model(args: argparse.Namespace) -> None:
    model, data = args.model or str(TINY / "policy"), args.data or [str(TINY / "test.jsonl")]
    problems = load_data(data)
    policy, tokenizer = load_policy(model)
    began = time.perf_counter()
    now = Knowledge.of(log_probs(policy, tokenizer, problems, args.temperature))
    seconds = time.perf_counter() - began
    row = metrics(now, now)
    row = {name: row[name] for name in ("q_pos", *(f"pass@{k}" for k in KS), "below", "in_use")}
    print(f"{short(model)}: {len(now.logp):,} answers to {now.total} problems, scored in {seconds:.1f} s")
    print(table([row]))
    if args.check:
        found = check(policy, tokenizer, problems, now, args.temperature, args.samples)
        print(
            f"{found['sampled']:,} sampled responses: {found['inside']:.5f} of them are such an answer, by the sum "
            f"{row['q_pos']:.5f} (z = {found['z']:+.2f}); {found['left_out']:.1e} are correct in another form, at most "
            f"{found['left_out_at_most']:.1e} at 95%: {', '.join(found['examples']) or 'none was seen'}"
        )


if __name__ == "__main__":
    main()
