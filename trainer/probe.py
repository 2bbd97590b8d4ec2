"""Theorem 1 along a policy's rollouts: what `--log_mass_balance` of train.py logs.

The paper proves Theorem 1 for one linear step on one softmax, and its readers asked whether it holds for the clipped
objective on a policy that writes many tokens. Here its three terms stand beside the change that a real step made.

    name here      symbol       meaning
    prefix, node   h            tokens that two or more rollouts of a prompt begin with, and the softmax after them
    reach          π(h)         probability of passing it
    passed, share  N_h / N      share of the group's rollouts that do
    value          v            probability of a correct answer after this token; the paper's tokens have 1 or 0
    rewards        R            of a token: share of its rollouts that are correct, minus the group's mean; 0 if undrawn
    log_weight     log w        log π_new(response) - log π_old(response)

Shapes: H nodes, V vocabulary, N rollouts of a prompt. Reading order: the theorem with values between 0 and 1, its sum
along the tree of prefixes, the tree, the change of Q_pos by importance weights, and `Probe`, which does all of it for
the first few groups of a step. All of it is ours; brorl.py has the paper's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor

from brorl import MassBalance
from trainer.batch import Batch
from trainer.policy import Policy
from trainer.rollouts import Rolled
from trainer.settings import Config

PROBED = 4  # groups of a step that are looked at, an eighth of its prompts at most
NODES = 256  # and the prefixes of each, those that most rollouts share
UNDRAWN = ("zero", "group", "prefix")  # guesses at the value of a token that nobody drew: Tree.values
GUESS = "group"  # the one that is logged


def graded_mass_balance(p: Tensor, value: Tensor, rewards: Tensor, sampled: Tensor, eta: float, n: int) -> MassBalance:
    """Theorem 1 where a token is not right or wrong, but leads to a correct answer with probability v.

    Q_pos = Σ_i p_i v_i, and a token counts as v correct and 1 - v incorrect. The step of section 2 changes it by

    ΔQ_pos = (η/N) Σ_i p_i² (R_i - S_R) (v_i - Q_pos)
           = (η/N) [ Q_neg Σ_{A∪B} v_i (R_i - S_R) p_i²  +  Q_pos Σ_{A∪B} (1 - v_i) (S_R - R_i) p_i²
                     + S_R (Q_pos U_neg2 - Q_neg U_pos2) ]

    which is `brorl.mass_balance` when every v is 0 or 1 and every R is R_c or R_w. Unlike there the first two terms
    can be negative: a token that is worse than the others may have been lucky. p, value, rewards (0 where not drawn):
    (..., V); sampled: bool, broadcastable to p.
    """
    if sampled.dtype != torch.bool:
        raise ValueError(f"`sampled` must be a bool mask over the tokens, got {sampled.dtype}: compare or convert it")
    q_pos, q_neg = (p * value).sum(-1), (p * (1 - value)).sum(-1)
    s_r = (rewards * p).sum(-1)
    step = torch.where(sampled, p * p * (rewards - s_r.unsqueeze(-1)), 0)
    unsampled = torch.where(sampled, 0, p * p)
    u_pos2, u_neg2 = (unsampled * value).sum(-1), (unsampled * (1 - value)).sum(-1)
    return MassBalance(
        sampled_correct=eta / n * q_neg * (step * value).sum(-1),
        sampled_incorrect=-eta / n * q_pos * (step * (1 - value)).sum(-1),
        unsampled_coupling=eta / n * s_r * (q_pos * u_neg2 - q_neg * u_pos2),
    )


def along_the_tree(terms: MassBalance, reach: Tensor, share: Tensor) -> MassBalance:
    """ΔQ_pos of a prompt from those of its nodes: Σ_h π(h) (N_h / N) terms_h, each term on its own. Returns scalars.

    A response is a path through softmaxes, one at each prefix h. To first order Q_pos changes by what every softmax
    changes, times the probability π(h) of passing it (the performance difference lemma, Kakade and Langford 2002);
    and of the group's N rollouts N_h pass h, which is its share of the loss -(1/N) Σ_h (N_h / N) Σ_i R_i p_i.
    terms, reach = π(h), share = N_h / N: (H,).
    """
    return MassBalance(*(((reach * share) * term).sum(-1) for term in terms))


class Node(NamedTuple):
    """A prefix that several rollouts of a prompt share, and which of them."""

    prefix: tuple[int, ...]
    rollouts: list[int]


def prefix_tree(responses: list[list[int]], limit: int | None = None) -> list[Node]:
    """Where the rollouts of one prompt part: every prefix that two or more of them go on from, the root first.

    limit: the most nodes to return, those that most rollouts share (a node never comes without those above it).
    """
    found: list[Node] = []
    open_nodes = [Node((), [i for i, response in enumerate(responses) if response])]
    while open_nodes:
        node = open_nodes.pop(0)
        if len(node.rollouts) < 2:
            continue
        found.append(node)
        depth = len(node.prefix)
        branches: dict[int, list[int]] = {}
        for i in node.rollouts:
            branches.setdefault(responses[i][depth], []).append(i)
        for token, members in branches.items():
            open_nodes.append(Node((*node.prefix, token), [i for i in members if len(responses[i]) > depth + 1]))
    found.sort(key=lambda node: (-len(node.rollouts), len(node.prefix)))
    return found[:limit]


def reached(prefixes: list[tuple[int, ...]], p: Tensor) -> dict[tuple[int, ...], float]:
    """π(prefix) of every node, the product of p along it; those above a node come before it. p: (H, V), on the CPU."""
    at = {prefix: h for h, prefix in enumerate(prefixes)}
    reach: dict[tuple[int, ...], float] = {(): 1.0}
    for *front, token in prefixes[1:]:
        reach[*front, token] = reach[*front,] * float(p[at[*front,], token])
    return reach


class Tree(NamedTuple):
    """The H prefixes at which a group's rollouts part, the root first, and the tokens that they go on with."""

    reach: dict[tuple[int, ...], float]  # prefix -> π(prefix)
    passed: Tensor  # (H,) share of the group's rollouts that pass it
    p: Tensor  # (H, V) the softmax there
    drawn: Tensor  # (H, V) how many rollouts go on with this token
    won: Tensor  # (H, V) and how many of them are correct
    mean: float  # share of the group that is correct

    @property
    def share(self) -> Tensor:
        """(H, V) of the rollouts that go on with a token, how many are correct; 0 where none does."""
        return self.won / self.drawn.clamp(min=1)

    def values(self, undrawn: str) -> Tensor:
        """(H, V) v of a token: the share of its rollouts that are correct, and for one that nobody drew, by `undrawn`:

        zero     0, as if it led nowhere. Then U_pos2 is 0, and the harm that an undrawn token can come to is not seen
        group    the share of the group that is correct. Then U_pos2 is not 0, but Σ_i p_i v_i is that share + S_R, and
                 the coupling S_R² (U_pos2 + U_neg2): never negative, whatever the tokens are worth
        prefix   the share of the rollouts through this prefix that are
        """
        at_prefix = self.won.sum(-1) / self.drawn.sum(-1).clamp(min=1)
        value = {"zero": at_prefix * 0, "group": torch.full_like(at_prefix, self.mean), "prefix": at_prefix}[undrawn]
        return torch.where(self.drawn > 0, self.share, value[:, None])

    def terms(self, value: Tensor) -> dict[str, MassBalance]:
        """Theorem 1 at the root, and along the tree, for these values (H, V); without η/N."""
        rewards = torch.where(self.drawn > 0, self.share - self.mean, 0)
        terms = graded_mass_balance(self.p, value, rewards, self.drawn > 0, eta=1.0, n=1)
        reach = torch.tensor(list(self.reach.values()), device=self.p.device)
        first = MassBalance(*(term[0] for term in terms))
        return {"first_token": first, "tree": along_the_tree(terms, reach, self.passed)}


def importance_change(correct: Tensor, log_weight: Tensor) -> Tensor:
    """ΔQ_pos of an update, from rollouts drawn before it: 1/(N-1) Σ_i (c_i - c̄) (w_i - 1), w = π_new(y) / π_old(y).

    E[w] = 1 and E[c w] is the new Q_pos; taking the mean c̄ off lowers the variance and costs the factor
    N / (N - 1). Unbiased for a π_new that does not depend on these draws. One that was trained on them favours the
    correct among them, and the estimate is too large. By evidence/exact_probe.py:

        policy       N     ΔQ_pos, exact   estimated
        start        16    +0.0051         +0.0084
        start        512   +0.0510         +0.0527
        saturated    16    +0.0113         +0.0130
        saturated    512   +0.0770         +0.0929

    correct: bool (..., N); log_weight: log w, (..., N); returns (...).
    """
    if correct.dtype != torch.bool:
        raise ValueError(f"`correct` must be the rollouts' verdicts, bool, got {correct.dtype}")
    c = correct.to(log_weight.dtype)
    n = c.shape[-1]
    return ((c - c.mean(-1, keepdim=True)) * torch.expm1(log_weight)).sum(-1) / (n - 1)


class Probe:
    """--log_mass_balance: Theorem 1 on this policy, for the first few kept groups of a step.

    Before the update, from the group's rollouts and the softmaxes that they passed: the three terms at the first
    response token, and along the tree of prefixes that rollouts share. Rewards are correct or not, centred on the
    group's mean as in section 3.1; a token's value v is the share of its rollouts that are correct, and the group's
    mean for one that nobody drew; the factor η/N is left out. After it: how Q_pos did change, from the same rollouts'
    importance weights, which is somewhat too large (importance_change). Logged are means over the groups.

    What the logs cannot show: with values and rewards from the same rollouts the terms' sum is nearly always positive,
    so that its sign foretells nothing; and the unsampled coupling, with the group's mean for undrawn tokens, is never
    negative, so that only its size is to be read. evidence/exact_probe.py asks both with exact values, and
    evidence/coupling.csv says how far off the size is.
    """

    def __init__(self, policy: Policy, config: Config, accelerator: Accelerator):
        self.policy, self.config, self.accelerator = policy, config, accelerator
        self.most = max(1, min(PROBED, config.prompts_per_step // 8))

    def predict(self, kept: list[Rolled]) -> None:
        """Before the update: the theorem's terms for the step's first `most` groups that have two responses to compare.

        kept: the step's groups, whole: with several processes each would have a part of them, which check() refuses.
        """
        first = [rolled for rolled in kept if rolled.place < self.most]
        self.groups = [rolled for rolled in first if sum(map(bool, rolled.group.responses)) > 1]
        with torch.no_grad(), self.accelerator.autocast():
            self.terms = [self.mass_balance(rolled) for rolled in self.groups]
        self.before = [self.q_pos(rolled) for rolled in self.groups]

    def mass_balance(self, rolled: Rolled) -> dict[str, MassBalance]:
        """Theorem 1's terms at the first token, and summed along the tree."""
        tree = self.tree(rolled)
        return tree.terms(self.values(rolled, tree))

    def tree(self, rolled: Rolled) -> Tree:
        """The softmaxes that two or more of the rollouts passed, and what was drawn from them."""
        config, responses, correct = self.config, rolled.group.responses, rolled.correct.float()
        nodes = prefix_tree(responses, NODES)
        prefixes = [node.prefix for node in nodes]
        p = self.policy.next_token(rolled.group.prompt, prefixes, config.temperature, config.max_tokens_per_micro_batch)
        drawn, won = torch.zeros(2, *p.shape, dtype=p.dtype, device=p.device)
        owner = torch.tensor([h for h, node in enumerate(nodes) for _ in node.rollouts])
        member = torch.tensor([i for node in nodes for i in node.rollouts])
        token = torch.tensor([responses[i][len(node.prefix)] for node in nodes for i in node.rollouts])
        drawn.index_put_((owner, token), torch.ones(len(owner), device=p.device), accumulate=True)
        won.index_put_((owner, token), correct[member].to(p.device), accumulate=True)
        passed = torch.tensor([len(node.rollouts) for node in nodes], device=p.device) / len(responses)
        return Tree(reached(prefixes, p.cpu()), passed, p, drawn, won, float(correct.mean()))

    def values(self, rolled: Rolled, tree: Tree) -> Tensor:
        """(H, V) the probability v of a correct answer after each prefix and token, as far as the rollouts tell."""
        return tree.values(GUESS)

    def q_pos(self, rolled: Rolled) -> float | None:
        """Q_pos of the problem by enumeration, where someone can; None: estimate its change."""
        return None

    def compare(self, batch: Batch, step: int) -> dict[str, float]:
        """After the update of this step: the means over all groups, for its metrics."""
        self.estimated = self.estimated_changes(batch)
        found = zip(self.groups, self.before, self.estimated, strict=True)
        self.changes = [self.change(rolled, before, guess) for rolled, before, guess in found]
        sums: defaultdict[str, float] = defaultdict(float)
        for change, terms in zip(self.changes, self.terms, strict=True):
            sums["q_pos_change"] += change
            sums["q_pos_rose"] += change > 0
            for where, balance in terms.items():
                for name, x in balance._asdict().items():
                    sums[f"{where}/{name}"] += float(x)
        groups = len(self.groups)
        names = ["q_pos_change", "q_pos_rose"]
        names += [f"{where}/{term}" for where in ("first_token", "tree") for term in MassBalance._fields]
        result = {f"mass_balance/{name}": sums[name] / max(groups, 1) for name in names}
        return {"mass_balance/groups": groups} | result

    def change(self, rolled: Rolled, before: float | None, estimated: float) -> float:
        """ΔQ_pos of the step: exact where Q_pos is known before and after it."""
        after = None if before is None else self.q_pos(rolled)
        return estimated if before is None or after is None else after - before

    def estimated_changes(self, batch: Batch) -> list[float]:
        """ΔQ_pos of each group from the importance weights of its rollouts, equal responses computed once."""
        n = self.config.rollouts_per_prompt
        first: dict[tuple[int, ...], tuple[int, int]] = {}  # (group, *response) -> its place here, its row in the batch
        members = []
        for rolled in self.groups:
            rows_here = (batch.prompts == rolled.place).nonzero().squeeze(1).tolist()
            for row, response in zip(rows_here, rolled.group.responses, strict=True):
                members.append(first.setdefault((rolled.place, *response), (len(first), row))[0])
        rows = torch.tensor([row for _, row in first.values()], dtype=torch.long, device=batch.tokens.device)
        some = batch.rows(rows)
        c = self.config
        logp, _ = some.score(self.policy, c.temperature, c.max_tokens_per_micro_batch, self.accelerator)
        weights = (logp - some.old_logp).sum(-1).cpu()[members].view(-1, n)
        return [float(importance_change(rolled.correct, w)) for rolled, w in zip(self.groups, weights, strict=True)]
