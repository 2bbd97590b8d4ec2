"""What a policy answered, and what the verifiers say of it: a step's groups, an evaluation's answers, their scores.

`Rolled` is one prompt's N rollouts, or some of them (stages 2 and 3 of train.py). `Answers` is what an evaluation
keeps, a line of eval.jsonl, and `score` is what appendix D reports of it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import brorl
from rollout import Group
from verify import Problem, Verdict

SOLVED = ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all")  # how much of a group is correct
PASS_AT = (4, 16, 64, 256, 1024)  # k of pass@k, as far as an evaluation has samples


@dataclass
class Rolled:
    """A problem, its N rollouts or some of them, what they say, and what the verifier says of them."""

    problem: Problem
    group: Group
    texts: list[str]
    verdicts: list[Verdict]
    place: int = 0  # the problem's, in its round
    first: int = 0  # the number of the first of these rollouts

    def add(self, more: Rolled) -> None:
        """The rollouts of the same problem that follow these."""
        self.group.add(more.group.responses, more.group.logprobs, more.group.finish_reasons)
        self.texts += more.texts
        self.verdicts += more.verdicts

    @property
    def rewards(self) -> list[float]:
        return [v.reward for v in self.verdicts]

    @property
    def correct(self) -> Tensor:
        return torch.tensor([v.reason == "correct" for v in self.verdicts])

    def counts(self) -> Counter:
        """Numbers of rollouts and tokens, which add up over groups and processes."""
        kind, n = self.problem.kind, len(self.verdicts)
        reasons = Counter(v.reason for v in self.verdicts)
        counts: dict[str, Any] = {
            "rollouts": n,
            "correct": int(self.correct.sum()),
            "response_tokens": sum(map(len, self.group.responses)),
            "truncated": self.group.finish_reasons.count("length"),
            f"rollouts/{kind}": n,
        }
        counts |= {f"reason/{reason}": count for reason, count in reasons.items()}
        return Counter(counts | {f"reason/{kind}/{reason}": count for reason, count in reasons.items()})


class Answers(NamedTuple):
    """What k responses to each held-out problem came to, in the order of the problems: a line of eval.jsonl."""

    k: int
    correct: list[int]  # of k
    response_tokens: list[float]  # mean
    truncated: list[int]  # of k
    reward: list[float]  # mean

    @staticmethod
    def of(rewards: Tensor, correct: Tensor, lengths: Tensor, truncated: Tensor) -> Answers:
        """From what k responses to each problem came to, (problems, k)."""
        k, lengths, rewards = correct.shape[-1], lengths.double().mean(-1), rewards.double().mean(-1)
        correct, truncated = correct.sum(-1), truncated.sum(-1)
        return Answers(k, correct.tolist(), lengths.tolist(), truncated.tolist(), rewards.tolist())

    def part(self, start: int, stop: int) -> Answers:
        """Those to some of the problems."""
        some = slice(start, stop)
        return Answers(self.k, self.correct[some], self.response_tokens[some], self.truncated[some], self.reward[some])


def solved(correct: Tensor) -> Counter:
    """How many groups are correct to which share: a count for each of SOLVED. (P, N) bool."""
    n = correct.shape[-1]
    parts = [math.ceil(4 * count / n) + (count == n) for count in correct.sum(-1).tolist()]
    return Counter(f"solved/{SOLVED[part]}" for part in parts)


def score(answers: Answers) -> dict[str, float]:
    """pass@1 averaged over k responses, with its standard error over problems; unbiased pass@k; lengths."""
    k, n = answers.k, len(answers.correct)
    solved = torch.tensor(answers.correct, dtype=torch.float64) / k
    result = {
        "pass@1": solved.mean().item(),
        "pass@1_se": solved.std().item() / math.sqrt(n) if n > 1 else 0.0,
        "reward": math.fsum(answers.reward) / n,
        "response_tokens": math.fsum(answers.response_tokens) / n,
        "truncated": sum(answers.truncated) / (k * n),
    }
    for m in (x for x in PASS_AT if x <= k):
        result[f"pass@{m}"] = sum(brorl.pass_at_k_estimate(k, c, m) for c in answers.correct) / n
    return result


def score_sources(answers: Answers, sources: dict[str, int]) -> dict[str, dict[str, float]]:
    """A row of scores for each source of --eval_data, and their mean where there are several.

    sources: name -> number of problems, in order. In the mean each source counts the same, whatever its size, as the
    columns of table 3 do in table 1; its standard error is sqrt(Σ s.e.²) / number of sources.
    """
    rows, start = {}, 0
    for name, count in sources.items():
        rows[name] = score(answers.part(start, start + count)) | {"problems": count}
        start += count
    if len(rows) > 1:
        mean = {name: statistics.fmean(row[name] for row in rows.values()) for name in next(iter(rows.values()))}
        mean["pass@1_se"] = math.hypot(*(row["pass@1_se"] for row in rows.values())) / len(rows)
        rows[f"mean of {len(rows)}"] = mean | {"problems": start}
    return rows
