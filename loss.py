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
    tokens           ΣT                       tokens of the whole optimizer step, over all processes
    responses        #τ                       and its responses: the divisor of an objective per response

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
  * the variance of the advantages divides by the count, not count - 1: at 65,536 trajectories they agree to 1e-5;
  * in bfloat16, log π is that of weights rounded by a fixed dither, as in the engine (engines/rounding.py).
Advantages are whitened over trajectories, as in the paper; the scripts whiten over tokens.
Every rank has the advantages of the whole step, (P, N), and whitens them. train.py passes `tokens` and `responses`,
sums over all ranks.

Another objective is an `Objective` in `OBJECTIVES`: here, in lab/variants.py, or in a file of yours (--objective
my_file.py:name). It names what it changes; the rest is the paper's.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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


# An advantage is a function of the rewards of the kept prompts, (P, N). A reward of NaN is not counted, and is in no
# mean; an advantage of NaN is not trained on.


def mean_centred(rewards: Tensor) -> Tensor:
    """R_τ - mean_group(R) (section 3.1)."""
    return rewards - rewards.nanmean(-1, keepdim=True)


def group_std(rewards: Tensor, eps: float = 1e-8) -> Tensor:
    """(R_τ - mean_group(R)) / std_group(R), with N and not N - 1 (GRPO, 2402.03300)."""
    centred = mean_centred(rewards)
    return centred / (centred.square().nanmean(-1, keepdim=True).sqrt() + eps)


def group_mean(rewards: Tensor, eps: float = 1e-8) -> Tensor:
    """(R_τ - mean_group(R)) / mean_group(R) (MaxRL, 2602.02710). Raises ValueError for rewards below 0.

    With a negative mean it would train towards the lower rewards.
    """
    if (rewards < 0).any():
        raise ValueError("group_mean divides by the mean reward: it needs rewards of 0 or more")
    return mean_centred(rewards) / (rewards.nanmean(-1, keepdim=True) + eps)


def whiten(advantages: Tensor, eps: float = 1e-8) -> Tensor:
    """(A_τ - mean_batch(A)) / (std_batch(A) + eps) (section 3.1, second half). (P, N) -> (P, N).

    The batch: all advantages that are not NaN. After `mean_centred` the mean is 0 already; it is here because the paper
    has it. Whitening cancels a factor that all groups share: a leave-one-out baseline, N / (N - 1), trains as the
    paper's, and rewards of -1 and 1 as 0 and 1.
    """
    batch = advantages[~advantages.isnan()].double()
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


class Tokens(NamedTuple):
    """The T response tokens of a micro-batch, laid end to end, and its S responses: all that an objective may use."""

    logp: Tensor  # (T,) log π_θ
    old_logp: Tensor  # (T,) log π_old
    engine_logp: Tensor  # (T,) log π_engine
    ref_logp: Tensor | None  # (T,) log π_ref
    advantages: Tensor  # (S,) A
    lengths: Tensor  # (S,)

    def spread(self, x: Tensor) -> Tensor:
        """Repeat a response's number for each of its tokens, (S,) -> (T,)."""
        # output_size is T: without it, torch would wait for a GPU to compute the sum of the lengths.
        return x.repeat_interleave(self.lengths, output_size=len(self.logp))

    def summed(self, x: Tensor) -> Tensor:
        """Sum over the tokens of each response, (T,) -> (S,)."""
        response = self.spread(torch.arange(len(self.lengths), device=x.device))
        return x.new_zeros(len(self.lengths)).index_add(0, response, x)


def brorl(b: Tokens, clip_low: float = 0.2, clip_high: float = 0.27, tis_cap: float = 2.0) -> Tensor:
    """min(ρ, C) min( r A, clip(r, 1 - ε_low, 1 + ε_high) A ) of each token, to be maximised (section 3.1).

    The values are not in the paper: ε_low is ProRL v1's and the ProRLv2 scripts', ε_high that of OpenRLHF and NeMo-RL
    (section 3.1: ε_high > ε_low), C that of Yao et al. 2025.
    """
    ratio = importance_ratio(b.logp, b.old_logp)
    weight = truncated_importance_weight(b.old_logp, b.engine_logp, tis_cap)
    return weight * clipped_objective(ratio, b.spread(b.advantages), clip_low, clip_high)


class Objective(NamedTuple):
    """The choices of section 3.1. The defaults are BroRL's; a variant names what it changes.

    Keyword parameters of `advantages` and `maximise` are the objective's own: `--objective brorl clip_high=0.3`.
    """

    advantages: Callable[..., Tensor] = mean_centred  # rewards of the kept prompts (P, N) -> A (P, N)
    whitened: bool = True  # whiten these advantages
    maximise: Callable[..., Tensor] = brorl  # Tokens -> (T,); a mean over the step's tokens
    per_response: bool = False  # `maximise` returns (S,); a mean over the step's responses
    mask_truncated: bool = False  # leave truncated responses out of stages 4 to 7, as DAPO does
    kl: Callable[[Tensor, Tensor], Tensor] = kl_k2  # of the term β KL(π_θ || π_ref): ProRLv2 scripts

    @property
    def parameters(self) -> dict[str, Any]:
        """Name -> value of the parameters of `advantages` and `maximise`."""
        found: dict[str, Any] = {}
        for function in (self.advantages, self.maximise):
            found |= {x.name: x.default for x in inspect.signature(function).parameters.values()}
        return {name: value for name, value in found.items() if value is not inspect.Parameter.empty}

    def having(self, **parameters: float) -> "Objective":
        """The objective with other values of its parameters. Raises ValueError for a name that is none of them."""
        if unknown := parameters.keys() - self.parameters.keys():
            raise ValueError(f"has no parameter {', '.join(sorted(unknown))}: it has {', '.join(self.parameters)}")
        own = {name: inspect.signature(getattr(self, name)).parameters for name in ("advantages", "maximise")}
        chosen = {name: {x: v for x, v in parameters.items() if x in own[name]} for name in own}
        bound: dict[str, Any] = {name: partial(getattr(self, name), **x) for name, x in chosen.items() if x}
        return self._replace(**bound)


OBJECTIVES = {
    "brorl": Objective(),
    "group_std": Objective(advantages=group_std),
    "group_mean": Objective(advantages=group_mean),
    "mask_truncated": Objective(mask_truncated=True),
}


def step_advantages(
    rewards: Tensor, kept: Tensor, counted: Tensor | None = None, objective: Objective = OBJECTIVES["brorl"]
) -> Tensor:
    """A of a step's rollouts, (P, N); NaN for each that is not trained on. kept: (P,); counted: as `informative`."""
    if counted is not None:
        rewards = rewards.masked_fill(~counted, float("nan"))
    advantages = torch.full_like(rewards, float("nan"))
    a = objective.advantages(rewards[kept])
    advantages[kept] = whiten(a) if objective.whitened else a
    return advantages


def token_mean(per_token: Tensor, tokens: float | Tensor) -> Tensor:
    """Σ per_token / ΣT: a micro-batch's share of the token-level mean (DAPO).

    `tokens` counts the tokens of the optimizer step over all processes and micro-batches. If each micro-batch divided
    by its own tokens, a token's weight would depend on the other tokens of its micro-batch.
    """
    return per_token.sum() / tokens


def policy_loss(
    b: Tokens, tokens: float, responses: float, objective: Objective = OBJECTIVES["brorl"], kl_coef: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = (1/ΣT) Σ_t [ -min(ρ_t, C) min(r_t A_t, clip(r_t, 1-ε_low, 1+ε_high) A_t) + β KL_t ].

    The clipped objective and the weight min(ρ, C) are from section 3.1: `brorl`. The ratio per token, the mean over
    tokens and the KL term are from the ProRLv2 scripts (the head of this file). The weight multiplies the clipped
    objective only, not the KL term. Returns the scalar loss and `token_metrics`. At r = 1 without a KL term the loss is
    minus the token mean of min(ρ, C) A. It can be 0 while its gradient is not.

    Two rollouts of one prompt, a right one of three tokens and a wrong one of two:

        import torch, loss
        old = torch.tensor([-0.1, -2.0, -0.3, -0.9, -0.5])  # log π_old of the tokens; the engine agrees
        logp = old.clone().requires_grad_()  # log π_θ: a policy that has not moved yet
        a, lengths = loss.mean_centred(torch.tensor([[1.0, 0.0]]))[0], torch.tensor([3, 2])  # a is ½ and -½
        value, metrics = loss.policy_loss(loss.Tokens(logp, old, old, None, a, lengths), tokens=5, responses=2)
        value.backward()  # a token's gradient is -a / 5: the right rollout becomes likelier, the wrong one rarer
    """
    per_token = -objective.maximise(b)
    if objective.per_response:  # (1/#τ) Σ_τ x_τ as a mean over tokens
        per_token = b.spread(per_token / b.lengths) * (tokens / responses)
    if kl_coef:
        if b.ref_logp is None:
            raise ValueError(f"kl_coef={kl_coef} needs a reference: pass ref_logp, or set kl_coef=0")
        per_token = per_token + kl_coef * objective.kl(b.logp, b.ref_logp)
    return token_mean(per_token, tokens), token_metrics(b, objective)


# ------------------------------------------------------------------------------------------- metrics

MAXIMA = {"ratio_max", "engine_ratio_max", "engine_difference_max"}  # of `token_metrics`; all others are sums
MINIMA = {"ratio_min", "engine_ratio_min"}


def token_metrics(b: Tokens, objective: Objective = OBJECTIVES["brorl"]) -> dict[str, Tensor]:
    """Return sums over these tokens, and the extremes named in MAXIMA and MINIMA.

    trainer/metrics.py, `Sums.result`, divides the sums by ΣT, so that fractions are fractions in metrics.jsonl.

    clip_high_fraction   tokens with A > 0 whose gradient the objective removes: r > 1 + ε_high
    clip_low_fraction    tokens with A < 0 whose gradient the objective removes: r < 1 - ε_low
    ratio, _max, _min    Σ r, max r, min r            r = π_θ / π_old of the token
    kl_old               Σ k3(log π_old, log π_θ)     how far this step's updates moved, KL(π_old || π_θ)
    engine_ratio, ...    Σ ρ, max ρ, min ρ            ρ = π_old / π_engine; 1 when they are the same model
    engine_difference, _max   Σ |log ρ|, max |log ρ|
    engine_kl            Σ k3(log π_engine, log π_old)     KL(π_engine || π_old) on the engine's samples
    tis_capped_fraction  Σ 1[ρ > C]                   0 for an objective without a tis_cap
    kl_ref               Σ k3(log π_θ, log π_ref)     KL(π_θ || π_ref), if there is a reference
    nll                  -Σ log π_θ                   of the sampled tokens. It is not the entropy, which sums over the
                                                      vocabulary (trainer/policy.py: chunked_logprobs)
    """
    with torch.enable_grad():
        logp = b.logp.detach().requires_grad_()
        (slope,) = torch.autograd.grad(objective.maximise(b._replace(logp=logp)).sum(), logp)
    logp, advantages = logp.detach(), b.spread(b.advantages)
    ratio, engine_ratio = importance_ratio(logp, b.old_logp), importance_ratio(b.old_logp, b.engine_logp)
    difference = (b.old_logp - b.engine_logp).abs()
    metrics = {
        "clip_high_fraction": ((slope == 0) & (advantages > 0)).sum(),
        "clip_low_fraction": ((slope == 0) & (advantages < 0)).sum(),
        "ratio": ratio.sum(),
        "ratio_max": ratio.max(),
        "ratio_min": ratio.min(),
        "kl_old": kl_k3(b.old_logp, logp).sum(),
        "engine_ratio": engine_ratio.sum(),
        "engine_ratio_max": engine_ratio.max(),
        "engine_ratio_min": engine_ratio.min(),
        "engine_difference": difference.sum(),
        "engine_difference_max": difference.max(),
        "engine_kl": kl_k3(b.engine_logp, b.old_logp).sum(),
        "tis_capped_fraction": (engine_ratio > objective.parameters.get("tis_cap", float("inf"))).sum(),
        "nll": -logp.sum(),
    }
    if b.ref_logp is not None:
        metrics["kl_ref"] = kl_k3(logp, b.ref_logp).sum()
    return metrics
