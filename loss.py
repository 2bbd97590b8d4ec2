"""BroRL, section 3.1: dynamic sampling, decoupled advantages, and the clipped objective.

Pure functions over tensors; nothing here knows a model, an engine or a process group. Three layouts:

    (P, N)   one number per rollout of a step: P prompts, N rollouts each
    (S,)     one number per rollout of a micro-batch
    (T,)     one number per response token of a micro-batch, the rollouts laid end to end. There is no padding and
             so no padding mask: an EOS token that equals PAD is trained on

    name here        paper / field            meaning
    correct          #correct                 bool, (P, N): the verifier's verdict
    rewards          R_τ                      (P, N), may be shaped or continuous
    (the row's mean) R̄ = mean_group(R)        mean reward of a prompt's N rollouts
    advantages       A                        (P, N); in a micro-batch (S,)
    lengths          T_τ                      (S,) response tokens of each rollout
    logp             log π_θ                  (T,) under the policy being updated: `token_logprobs`
    old_logp         log π_old                (T,) under the trainer before the step's first update
    engine_logp      log π_engine             (T,) under the inference engine that sampled the token
    ref_logp         log π_ref                (T,) under the reference policy
    ratio            r = π_θ / π_old          (T,)
    clip_low, high   ε_low, ε_high            the clip range is [1 - ε_low, 1 + ε_high]
    weight           min(ρ, C)                (T,) truncated importance weight, with ρ = π_old / π_engine
    tis_cap          C                        its cap
    denominator      ΣT                       tokens of the whole optimizer step, over all processes

τ is a trajectory, as in the paper: a rollout. The sampling temperature is written out.

The paper's formula is E_τ[ min( r_θ(τ) A_τ, clip(r_θ(τ), 1 - ε_low, 1 + ε_high) A_τ ) ]. Where this file differs:
  * the ratio is per token, π_θ / π_old, and each token is clipped separately. The paper writes r_θ(τ), one ratio per
    trajectory. The ProRLv2 scripts are per token too: a product over thousands of tokens can leave the clip range
    after one update;
  * the sum is divided by the tokens of the optimizer step, ΣT (DAPO). The paper's E_τ divides by the number of
    trajectories, #τ. Before the first update, r = 1, the two gradients have the same direction:
        paper (1/#τ) Σ_τ A_τ ∇log π(τ)        here (1/ΣT) Σ_τ A_τ ∇log π(τ)
    GRPO's mean over each response has another direction: (1/#τ) Σ_τ A_τ ∇log π(τ) / T_τ;
  * a term β KL(π_θ || π_ref) is added. The paper's formula has no such term, but the paper resets a reference policy.
    The term, its estimator and β come from the ProRLv2 scripts; kl_coef = 0 removes it;
  * the objective is multiplied by the truncated importance weight, which the paper names next to the formula;
  * after a step's first update the KL term is an average over samples of π_old, not of π_θ, without a weight;
  * mean_batch and std_batch are over the rollouts that dynamic sampling keeps. If the paper means all
    rollouts that were drawn, its A is larger by 1 / sqrt(share of prompts kept), for rewards 0 and 1;
  * the variance of the advantages divides by the count, not count - 1: at 65,536 trajectories they agree to 1e-5.
Advantages are whitened over trajectories, as in the paper; the scripts whiten over tokens.
Every rank has the advantages of the whole step, (P, N), and whitens them. train.py passes the denominator, a sum over
all ranks.
"""

import torch
from torch import Tensor

# ------------------------------------------------------------------------ dynamic sampling, advantages


def informative(correct: Tensor, counted: Tensor | None = None) -> Tensor:
    """Dynamic sampling keeps a prompt only if 0 < #correct < N (section 3.1). (P, N) bool -> (P,) bool.

    Uses verdicts, not rewards: an all-correct group is dropped even if its rewards differ. counted: (P, N) bool, the
    rollouts that may be trained on (None: all). #correct and N are numbers of counted rollouts.
    """
    if correct.dtype != torch.bool:
        raise ValueError(f"dynamic sampling counts verdicts: `correct` must be bool, got {correct.dtype}")
    counted = torch.ones_like(correct) if counted is None else counted
    number_correct, n = (correct & counted).sum(-1), counted.sum(-1)
    return (number_correct > 0) & (number_correct < n)


# The three advantages take means over a row's rewards that are not NaN: `group_advantages` writes NaN for a rollout
# that is not counted.


def mean_centred(rewards: Tensor) -> Tensor:
    """R_τ - mean_group(R) (section 3.1)."""
    return rewards - rewards.nanmean(-1, keepdim=True)


def group_std(rewards: Tensor, eps: float = 1e-8) -> Tensor:
    """(R_τ - mean_group(R)) / std_group(R), with N and not N - 1 (GRPO, 2402.03300)."""
    centred = mean_centred(rewards)
    return centred / (centred.square().nanmean(-1, keepdim=True).sqrt() + eps)


def group_mean(rewards: Tensor, eps: float = 1e-8) -> Tensor:
    """(R_τ - mean_group(R)) / mean_group(R) (MaxRL, 2602.02710).

    It needs rewards of 0 or more: with a negative mean it would train towards the lower rewards.
    """
    return mean_centred(rewards) / (rewards.nanmean(-1, keepdim=True) + eps)


ADVANTAGES = {"mean_centred": mean_centred, "group_std": group_std, "group_mean": group_mean}
# The kinds that `whiten` makes equal to the paper's: A_τ = c (R_τ - R̄) with one c for all groups. A leave-one-out
# baseline has c = N / (N - 1); rewards of -1 and 1 in place of 0 and 1 have c = 2.
SAME_WHEN_WHITENED = {"mean_centred"}


def group_advantages(rewards: Tensor, kind: str = "mean_centred", counted: Tensor | None = None) -> Tensor:
    """A_τ from a group's rewards alone (section 3.1, first half; the paper's kind is mean_centred). (P, N) -> (P, N).

    counted: (P, N) bool, as in `informative`. A rollout that is not counted is in no mean, and its advantage is NaN.

    The kind decides how much weight a prompt has in a step; docs/which_n.md derives that weight, w_N(p).
    """
    return ADVANTAGES[kind](rewards if counted is None else rewards.masked_fill(~counted, float("nan")))


def whiten(advantages: Tensor, trained: Tensor, eps: float = 1e-8) -> Tensor:
    """(A_τ - mean_batch(A)) / (std_batch(A) + eps) (section 3.1, second half). (P, N) -> (P, N).

    trained: (P, N) bool, the batch: the counted rollouts of the prompts that dynamic sampling keeps; or (P,) bool, the
    kept prompts. Other rollouts are not used. After `group_advantages` the mean is 0 already; it is here because the
    paper has it.
    """
    batch = advantages[trained].double()
    whitened = (advantages.double() - batch.mean()) / (batch.std(correction=0) + eps)
    return whitened.to(advantages.dtype)


# ----------------------------------------------------------------------------------- the clipped objective


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """log π_θ(τ_t | x, τ_<t) of each token: log softmax(logits / temperature) at the token. (T, V), (T,) -> (T,).

    In float32 or wider. train.py computes the same numbers and the same gradient without holding the logits of all
    tokens: `chunked_logprobs` in trainer/policy.py.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    logp = torch.log_softmax(logits.to(wide) / temperature, dim=-1)  # (T, V)
    return logp.gather(-1, tokens[:, None]).squeeze(-1)


def importance_ratio(logp: Tensor, old_logp: Tensor) -> Tensor:
    """r = π_θ / π_old, per token (section 3.1 writes it per trajectory). (T,), (T,) -> (T,)."""
    return torch.exp(logp - old_logp)


def clipped_objective(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """min( r A, clip(r, 1 - ε_low, 1 + ε_high) A ), to be maximised (section 3.1; per token here)."""
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.minimum(ratio * advantages, clipped * advantages)


def truncated_importance_weight(old_logp: Tensor, engine_logp: Tensor, cap: float) -> Tensor:
    """min( π_old / π_engine, C ), per token, without gradient (section 3.1; Yao et al. 2025).

    The engine sampled the token, the trainer differentiates it: the weight corrects for the difference.
    """
    return torch.exp(old_logp - engine_logp).clamp(max=cap).detach()


def kl_k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k1 = δ, δ = log π_θ - log π_ref, per token: unbiased for KL(π_θ || π_ref) on samples of π_θ.

    As a loss it has no effect on average: its expected gradient is 0.
    """
    return logp - ref_logp


def kl_k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k2 = ½ δ², per token. Its expected gradient on samples of π_θ is the gradient of the token's KL(π_θ || π_ref)."""
    return 0.5 * (logp - ref_logp).square()


def kl_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k3 = e^{-δ} - 1 + δ, per token: unbiased and never negative as a value; biased as a loss (2510.01555)."""
    delta = logp - ref_logp
    return torch.expm1(-delta) + delta


KL = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}


def token_mean(per_token: Tensor, denominator: float | Tensor) -> Tensor:
    """Σ per_token / denominator: a micro-batch's share of the token-level mean (DAPO).

    `denominator` counts the tokens of the optimizer step over all processes and micro-batches. If each
    micro-batch divided by its own tokens, a token's weight would depend on the other tokens of its micro-batch.
    """
    return per_token.sum() / denominator


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    engine_logp: Tensor,
    ref_logp: Tensor | None,
    advantages: Tensor,
    lengths: Tensor,
    denominator: float | Tensor,
    *,
    clip_low: float,
    clip_high: float,
    tis_cap: float,
    kl: str = "k2",
    kl_coef: float = 0.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = (1/ΣT) Σ_t [ -min(ρ_t, C) min(r_t A_t, clip(r_t, 1-ε_low, 1+ε_high) A_t) + β KL_t ].

    The clipped objective and the weight min(ρ, C) are from section 3.1. The ratio per token, the mean over tokens and
    the KL term are from the ProRLv2 scripts (the head of this file). Log-probs are per token, (T,). `advantages` and
    `lengths` are per rollout, (S,). The weight multiplies the clipped objective only, not the KL term. Returns the
    scalar loss and `token_metrics`. At r = 1 without a KL term the loss is minus the token mean of min(ρ, C) A. It can
    be 0 while its gradient is not.

    Two rollouts of one prompt, a right one of three tokens and a wrong one of two:

        import torch, loss
        old = torch.tensor([-0.1, -2.0, -0.3, -0.9, -0.5])  # log π_old of the tokens; the engine agrees
        logp = old.clone().requires_grad_()  # log π_θ: a policy that has not moved yet
        a, lengths = loss.group_advantages(torch.tensor([[1.0, 0.0]]))[0], torch.tensor([3, 2])  # a is ½ and -½
        clip = {"clip_low": 0.2, "clip_high": 0.27, "tis_cap": 2.0}
        value, metrics = loss.policy_loss(logp, old, old, None, a, lengths, denominator=5, **clip)
        value.backward()  # a token's gradient is -a / 5: the right rollout becomes likelier, the wrong one rarer
    """
    # output_size is T: without it, torch would wait for a GPU to compute the sum of the lengths.
    advantages = advantages.repeat_interleave(lengths, output_size=len(logp))  # (T,)
    ratio = importance_ratio(logp, old_logp)
    weight = truncated_importance_weight(old_logp, engine_logp, tis_cap)
    per_token = -weight * clipped_objective(ratio, advantages, clip_low, clip_high)
    if kl_coef:
        if ref_logp is None:
            raise ValueError(f"kl_coef={kl_coef} needs a reference: pass ref_logp, or set kl_coef=0")
        per_token = per_token + kl_coef * KL[kl](logp, ref_logp)
    with torch.no_grad():
        metrics = token_metrics(ratio, logp, old_logp, engine_logp, ref_logp, advantages, clip_low, clip_high, tis_cap)
    return token_mean(per_token, denominator), metrics


# ------------------------------------------------------------------------------------------- metrics

MAXIMA = {"ratio_max", "engine_ratio_max", "engine_difference_max"}  # of `token_metrics`; all others are sums
MINIMA = {"ratio_min", "engine_ratio_min"}


def token_metrics(
    ratio: Tensor,
    logp: Tensor,
    old_logp: Tensor,
    engine_logp: Tensor,
    ref_logp: Tensor | None,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    tis_cap: float,
) -> dict[str, Tensor]:
    """Return sums over these tokens, and the extremes named in MAXIMA and MINIMA. Inputs: (T,).

    trainer/metrics.py, `Sums.result`, divides the sums by ΣT, so that fractions are fractions in metrics.jsonl.

    clip_high_fraction   Σ 1[r > 1 + ε_high, A > 0]   the tokens whose gradient the upper clip removed
    clip_low_fraction    Σ 1[r < 1 - ε_low,  A < 0]   and the lower clip
    ratio, _max, _min    Σ r, max r, min r            r as the loss has it
    kl_old               Σ k3(log π_old, log π_θ)     how far this step's updates moved, KL(π_old || π_θ)
    engine_ratio, ...    Σ ρ, max ρ, min ρ            ρ = π_old / π_engine; 1 when they are the same model
    engine_difference, _max   Σ |log ρ|, max |log ρ|
    engine_kl            Σ k3(log π_engine, log π_old)     KL(π_engine || π_old) on the engine's samples
    tis_capped_fraction  Σ 1[ρ > C]
    kl_ref               Σ k3(log π_θ, log π_ref)     KL(π_θ || π_ref), if there is a reference
    nll                  -Σ log π_θ                   of the sampled tokens. It is not the entropy, which sums over the
                                                      vocabulary (trainer/policy.py: chunked_logprobs)
    """
    engine_ratio = torch.exp(old_logp - engine_logp)
    metrics = {
        "clip_high_fraction": ((ratio > 1 + clip_high) & (advantages > 0)).sum(),
        "clip_low_fraction": ((ratio < 1 - clip_low) & (advantages < 0)).sum(),
        "ratio": ratio.sum(),
        "ratio_max": ratio.max(),
        "ratio_min": ratio.min(),
        "kl_old": kl_k3(old_logp, logp).sum(),
        "engine_ratio": engine_ratio.sum(),
        "engine_ratio_max": engine_ratio.max(),
        "engine_ratio_min": engine_ratio.min(),
        "engine_difference": (old_logp - engine_logp).abs().sum(),
        "engine_difference_max": (old_logp - engine_logp).abs().max(),
        "engine_kl": kl_k3(engine_logp, old_logp).sum(),
        "tis_capped_fraction": (engine_ratio > tis_cap).sum(),
        "nll": -logp.sum(),
    }
    if ref_logp is not None:
        metrics["kl_ref"] = kl_k3(logp, ref_logp).sum()
    return metrics
