"""Variants of section 3.1's objective from other papers, one function each. The table names what each changes.

    python -m lab.loop --objective cispo
    python train.py --objective cispo
    python train.py --objective gspo clip_high=1e-3       another value of a parameter of the function

    name            paper                 changes
    dr_grpo         2503.20783            no whitening; a constant divisor for tokens
    f_grpo          2602.06717            prompts that are mostly solved weigh less
    pods            2504.13818            trains on the rollouts whose rewards differ most
    cispo           2506.13585            clips the ratio of a token, whose gradient stays; no weight min(ρ, C)
    gspo            2507.18071            one ratio for a response, a mean over responses; no weight min(ρ, C)
    icepop          2510.18855            drops the tokens on which engine and trainer disagree
    entropy_bonus   1602.01783            adds the entropy of the policy

loss.py has the two signatures, rewards (P, N) -> advantages (P, N) and Tokens -> objective, and the KL term, which all
of them keep. To add a variant, write its function and its line in OBJECTIVES, here or in a file of your own:
--objective my_file.py:name. tests/test_lab_variants.py has each formula with numbers worked out by hand.
"""

import torch
from torch import Tensor

import loss as L
from loss import Objective, Tokens


def f_grpo(rewards: Tensor, gamma: float = 1.0) -> Tensor:
    """(1 - p)^γ (R - mean_group(R)); p is the group's mean reward. The value of γ is ours."""
    return (1 - rewards.nanmean(-1, keepdim=True)) ** gamma * L.mean_centred(rewards)


def pods(rewards: Tensor, share: float = 0.25) -> Tensor:
    """Keeps the m = N/4 rollouts of a group with the largest variance of R; A is R minus their mean. The share is ours.

    For rewards 0 and 1 the variance is largest with m/2 correct rollouts, or as near to m/2 as the group has.
    """
    correct, m = rewards == 1, max(2, int(share * rewards.shape[1]))
    count = correct.sum(-1, keepdim=True)
    right = torch.minimum(count, (m - (correct.shape[1] - count)).clamp(min=m // 2))  # correct rollouts to keep
    kept = torch.where(correct, correct.cumsum(-1) <= right, (~correct).cumsum(-1) <= m - right)
    return L.mean_centred(rewards.masked_fill(~kept, float("nan")))


def dr_grpo(b: Tokens, longest: int = 12, **clip: float) -> Tensor:
    """(1/S) Σ_i Σ_t w min(r A, clip(r) A) / L_max: the divisor does not depend on the lengths of the responses."""
    return b.summed(L.brorl(b, **clip)) / longest


def cispo(b: Tokens, clip_high: float = 0.27) -> Tensor:
    """sg(min(r, 1 + ε_high)) A log π_θ, where sg(x) has no gradient."""
    weight = L.importance_ratio(b.logp, b.old_logp).clamp(max=1 + clip_high).detach()
    return weight * b.spread(b.advantages) * b.logp


def gspo(b: Tokens, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """min(s A, clip(s) A), with s = (π_θ(y) / π_old(y))^(1/T_i) of a whole response y of T_i tokens; section 5.1."""
    ratio = (b.summed(b.logp - b.old_logp) / b.lengths).exp()  # (S,)
    return L.clipped_objective(ratio, b.advantages, clip_low, clip_high)


def icepop(b: Tokens, low: float = 0.5, high: float = 5.0, clip_low: float = 0.2, clip_high: float = 0.27) -> Tensor:
    """M(ρ) min(r A, clip(r) A), with ρ = π_old / π_engine and M(ρ) = ρ for 0.5 <= ρ <= 5 (ProRLv2 examples), else 0."""
    rho = L.importance_ratio(b.old_logp, b.engine_logp)
    weight = torch.where((rho >= low) & (rho <= high), rho, 0.0)
    ratio = L.importance_ratio(b.logp, b.old_logp)
    return weight * L.clipped_objective(ratio, b.spread(b.advantages), clip_low, clip_high)


def entropy_bonus(b: Tokens, coef: float = 0.01) -> Tensor:
    """w min(r A, clip(r) A) - c ½ (log π_θ)². On samples of π_θ the mean gradient of ½ (log π_θ)² is -∇H.

    It is k2 with a uniform reference (primer, section 6): KL(π || uniform) = log V - H. c is the paper's.
    """
    return L.brorl(b) - coef * L.kl_k2(b.logp, torch.zeros_like(b.logp))


OBJECTIVES = {
    "dr_grpo": Objective(whitened=False, maximise=dr_grpo, per_response=True),
    "f_grpo": Objective(advantages=f_grpo),
    "pods": Objective(advantages=pods),
    "cispo": Objective(maximise=cispo),
    "gspo": Objective(maximise=gspo, per_response=True),
    "icepop": Objective(maximise=icepop),
    "entropy_bonus": Objective(maximise=entropy_bonus),
}
