"""Variants of section 3.1's objective from other papers, one function each. Each changes one thing in lab/loop.py.

    python -m lab.loop --variant cispo

    --variant       paper                 changes
    dr_grpo         2503.20783            no division by a std; a constant divisor for tokens
    f_grpo          2602.06717            prompts that are mostly solved weigh less
    pods            2504.13818            trains on the rollouts whose rewards differ most
    cispo           2506.13585            clips the weight of a token, whose gradient stays
    gspo            2507.18071            one ratio for a response
    icepop          2510.18855            drops the tokens on which engine and trainer disagree
    entropy_bonus   1602.01783            adds the entropy of the policy

A function in ADVANTAGES replaces stage 5. It takes the verdicts of the kept prompts, (P, N) bool, and returns
advantages, (P, N). A function in OBJECTIVES replaces the objective in stage 7, `w min(r A, clip(r) A)`. It takes

    logp, old, engine   log π_θ, log π_old, log π_engine, (T,)
    advantages          A, (S,)
    lengths             tokens of each response, (S,)

and returns the objective of each token, (T,), which the loop averages over tokens and maximises. These have no KL term.
The loop leaves out rollouts with A = 0, also in its metrics.
The clip fractions and the KL that the loop prints belong to the recipe's objective.
To add a variant, write its function and its line in one of the two dicts. tests/test_lab_variants.py has each formula
with numbers worked out by hand.
"""

from collections.abc import Callable

import torch
from torch import Tensor

import brorl
import loss as L

CLIP_LOW, CLIP_HIGH, TIS_CAP = (float(brorl.BRORL[name].value) for name in ("clip_low", "clip_high", "tis_cap"))
GAMMA = 1.0  # γ of F-GRPO; the value is ours
SHARE = 0.25  # of the N rollouts that PODS keeps; the value is ours
SEQUENCE_CLIP_LOW, SEQUENCE_CLIP_HIGH = 3e-4, 4e-4  # of GSPO's ratio: its paper, section 5.1
ICEPOP_LOW, ICEPOP_HIGH = 0.5, 5.0  # of π_old / π_engine: the ProRLv2 examples
ENTROPY_COEF = 0.01  # c of entropy_bonus: its paper
MAX_TOKENS = 12  # the response limit of lab/loop.py


def dr_grpo_advantages(correct: Tensor) -> Tensor:
    """A = R - mean_group(R). Nothing is divided by a standard deviation, of the group or of the batch."""
    return L.group_advantages(correct.float())


def f_grpo(correct: Tensor) -> Tensor:
    """(1 - p)^γ (R - mean_group(R)), then whitened; p is the group's share of correct rollouts."""
    p = correct.float().mean(-1, keepdim=True)
    return whiten((1 - p) ** GAMMA * L.group_advantages(correct.float()))


def pods(correct: Tensor) -> Tensor:
    """Keeps the m = N/4 rollouts of a group with the largest variance of R; A is R minus their mean, 0 for the others.

    For rewards 0 and 1 the variance is largest with m/2 correct rollouts, or as near to m/2 as the group has.
    """
    m = max(2, int(SHARE * correct.shape[1]))
    count = correct.sum(-1, keepdim=True)
    right = torch.minimum(count, (m - (correct.shape[1] - count)).clamp(min=m // 2))  # correct rollouts to keep
    kept = torch.where(correct, correct.cumsum(-1) <= right, (~correct).cumsum(-1) <= m - right)
    return whiten((correct.float() - right / m) * kept)


def whiten(advantages: Tensor) -> Tensor:
    """Divide by the standard deviation over the rollouts that are trained on. Their mean is 0 in each group."""
    return advantages / advantages[advantages != 0].std(correction=0)


def dr_grpo(logp: Tensor, old: Tensor, engine: Tensor, advantages: Tensor, lengths: Tensor) -> Tensor:
    """(1 / (S L_max)) Σ_t min(r A, clip(r) A): the divisor does not depend on the lengths of the responses."""
    clipped = clipped_objective(L.importance_ratio(logp, old), advantages.repeat_interleave(lengths))
    return clipped * len(logp) / (len(lengths) * MAX_TOKENS)  # the loop divides by T = len(logp)


def cispo(logp: Tensor, old: Tensor, engine: Tensor, advantages: Tensor, lengths: Tensor) -> Tensor:
    """sg(min(r, 1 + ε_high)) A log π_θ, where sg(x) has no gradient. ε_high is the recipe's."""
    weight = L.importance_ratio(logp, old).clamp(max=1 + CLIP_HIGH).detach()
    return weight * advantages.repeat_interleave(lengths) * logp


def gspo(logp: Tensor, old: Tensor, engine: Tensor, advantages: Tensor, lengths: Tensor) -> Tensor:
    """(1/S) Σ_i min(s A, clip(s) A), with s = (π_θ(y) / π_old(y))^(1/T_i) of a whole response y of T_i tokens."""
    response = torch.arange(len(lengths)).repeat_interleave(lengths)
    log_ratio = torch.zeros(len(lengths), dtype=logp.dtype).index_add(0, response, logp - old) / lengths
    clipped = L.clipped_objective(log_ratio.exp(), advantages, SEQUENCE_CLIP_LOW, SEQUENCE_CLIP_HIGH)  # (S,)
    of_token = clipped / lengths * len(logp) / len(lengths)  # (S,); the loop divides by T = len(logp)
    return of_token.repeat_interleave(lengths)


def icepop(logp: Tensor, old: Tensor, engine: Tensor, advantages: Tensor, lengths: Tensor) -> Tensor:
    """M(ρ) min(r A, clip(r) A), with ρ = π_old / π_engine and M(ρ) = ρ for 0.5 <= ρ <= 5, else 0."""
    rho = torch.exp(old - engine)
    weight = torch.where((rho >= ICEPOP_LOW) & (rho <= ICEPOP_HIGH), rho, 0.0)
    return weight * clipped_objective(L.importance_ratio(logp, old), advantages.repeat_interleave(lengths))


def entropy_bonus(logp: Tensor, old: Tensor, engine: Tensor, advantages: Tensor, lengths: Tensor) -> Tensor:
    """w min(r A, clip(r) A) - c ½ (log π_θ)². On samples of π_θ the mean gradient of ½ (log π_θ)² is -∇H.

    It is k2 with a uniform reference (primer, section 6): KL(π || uniform) = log V - H.
    """
    weight = L.truncated_importance_weight(old, engine, TIS_CAP)
    clipped = clipped_objective(L.importance_ratio(logp, old), advantages.repeat_interleave(lengths))
    return weight * clipped - ENTROPY_COEF * L.kl_k2(logp, torch.zeros_like(logp))


def clipped_objective(ratio: Tensor, advantages: Tensor) -> Tensor:
    """min(r A, clip(r, 1 - ε_low, 1 + ε_high) A) with the recipe's clip range."""
    return L.clipped_objective(ratio, advantages, CLIP_LOW, CLIP_HIGH)


ADVANTAGES: dict[str, Callable[[Tensor], Tensor]] = {"dr_grpo": dr_grpo_advantages, "f_grpo": f_grpo, "pods": pods}
OBJECTIVES: dict[str, Callable[..., Tensor]] = {
    "dr_grpo": dr_grpo, "cispo": cispo, "gspo": gspo, "icepop": icepop, "entropy_bonus": entropy_bonus,
}  # fmt: skip
VARIANTS = sorted({"brorl", *ADVANTAGES, *OBJECTIVES})
