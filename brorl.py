"""BroRL, sections 2 and 4.2.1: when one step grows the correct mass, and the two recipes.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
Setting of section 2: one softmax over V tokens, p = softmax(z). N tokens are drawn i.i.d.; a drawn
token has reward R_c if it is correct and R_w if not, with R_c >= 0 >= R_w. An undrawn token has reward 0.

    name here           paper         meaning
    p                   p             probabilities, (..., V)
    correct             P             which tokens are correct, bool, (..., V)
    sampled             A, B          which tokens were drawn at least once, bool, (..., V): A the correct ones, B the
                                      incorrect ones; U the undrawn tokens
    n                   N             number of draws
    p_pos, p_neg        P_pos, P_neg  probability of the drawn correct / drawn incorrect tokens
    q_pos, q_neg        Q_pos, Q_neg  probability of all correct / all incorrect tokens
    a2, b2              A_2, B_2      sum of p^2 over the drawn correct / drawn incorrect tokens
    u_pos2, u_neg2      U_pos2, ...   sum of p^2 over the undrawn correct / undrawn incorrect tokens
    r_c, r_w            R_c, R_w      reward of a drawn correct / drawn incorrect token. Defaults: 1 and -1, as in
                                      section 4.1. Training uses 1 and 0 (verify.py). Both give the same advantages by
                                      section 3.1: the group's mean is subtracted and the result whitened
    s_r                 S_R           the batch's mood: Σ p_i R_i over the drawn tokens. It is a sum and not a mean:
                                      P_pos = 0.1 with P_neg = 0 gives R_c / 10
    eta                 η             learning rate
    dz, dp              Δz, Δp        change of the logits / probabilities in one step

The file follows the paper: the masses, one gradient step on the surrogate, Theorem 1, Lemma 2, Corollary 3, pass@k, and
the recipes of section 4.2.1. The functions of section 2 take a batch of distributions, shape (..., V), in float32 or
float64 on any device. They sum over the last dimension. A, B and U are *sets*: a token drawn twice counts once. n may
be a tensor: (...) in `mass_balance` and `unsampled_coupling`, (..., 1) in the functions that take p.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# ------------------------------------------------------------------------- section 2: masses and moments


class Masses(NamedTuple):
    """The probability masses and second moments of section 2, each of shape (...)."""

    p_pos: Tensor
    p_neg: Tensor
    q_pos: Tensor
    q_neg: Tensor
    a2: Tensor
    b2: Tensor
    u_pos2: Tensor
    u_neg2: Tensor


def masses(p: Tensor, correct: Tensor, sampled: Tensor) -> Masses:
    """Split p and p² by correct / incorrect and by drawn / undrawn (section 2, definitions).

    p: (..., V), sums to 1 over the last dimension. correct, sampled: bool, broadcastable to p.
    q_neg is a sum over the incorrect tokens, because 1 - q_pos would lose small masses to rounding.
    Every mass is limited to 1: a sum that rounds to 1 + 1e-7 would make pass@k NaN and could make
    Theorem 1's first two terms negative.
    """
    _check_bool(correct=correct, sampled=sampled)

    def mass(x: Tensor, members: Tensor) -> Tensor:
        return torch.where(members, x, 0).sum(-1).clamp(max=1)

    p2 = p * p
    return Masses(
        p_pos=mass(p, correct & sampled),
        p_neg=mass(p, ~correct & sampled),
        q_pos=mass(p, correct),
        q_neg=mass(p, ~correct),
        a2=mass(p2, correct & sampled),
        b2=mass(p2, ~correct & sampled),
        u_pos2=mass(p2, correct & ~sampled),
        u_neg2=mass(p2, ~correct & ~sampled),
    )


def mood(m: Masses, r_c: float = 1.0, r_w: float = -1.0) -> Tensor:
    """Return S_R = R_c P_pos + R_w P_neg, in [R_w, R_c] (section 2).

    S_R > 0 means R_c P_pos > |R_w| P_neg. S_R is not divided by the drawn mass, so it is near 0 if the drawn tokens
    have little mass.
    """
    return r_c * m.p_pos + r_w * m.p_neg


# ---------------------------------------------------------- section 2, appendix C.1: one gradient step


def token_rewards(p: Tensor, correct: Tensor, sampled: Tensor, r_c: float = 1.0, r_w: float = -1.0) -> Tensor:
    """Return R_i = R_c on A, R_w on B, 0 on the undrawn tokens (section 2), as (..., V) in p's dtype."""
    _check_bool(correct=correct, sampled=sampled)
    _check_rewards(r_c, r_w)
    drawn = torch.where(correct, torch.full_like(p, r_c), torch.full_like(p, r_w))
    return torch.where(sampled, drawn, torch.zeros_like(p))


def surrogate(p: Tensor, rewards: Tensor, n: int) -> Tensor:
    """Return L = -(1/N) Σ_i R_i p_i, (...), the linear surrogate of section 2, as in TRPO."""
    return -(rewards * p).sum(-1) / n


def logit_step(p: Tensor, rewards: Tensor, eta: float, n: int | Tensor) -> Tensor:
    """Return Δz_j = (η/N) p_j (R_j - S_R), (..., V), one gradient step on L (appendix C.1, first step).

    With S_R = Σ_i R_i p_i this equals -η ∂L/∂z_j for any rewards, not only for the two values R_c and R_w.
    """
    s_r = (rewards * p).sum(-1, keepdim=True)
    return eta / n * p * (rewards - s_r)


def probability_step(p: Tensor, dz: Tensor) -> Tensor:
    """Return Δp_i = p_i (Δz_i - Σ_j p_j Δz_j), to first order in Δz (appendix C.1, second step)."""
    return p * (dz - (p * dz).sum(-1, keepdim=True))


# ----------------------------------------------------------------------------------------- Theorem 1


class MassBalance(NamedTuple):
    """The three terms of Theorem 1, each of shape (...). Each includes the factor η/N; their sum is ΔQ_pos."""

    sampled_correct: Tensor
    sampled_incorrect: Tensor
    unsampled_coupling: Tensor

    @property
    def total(self) -> Tensor:
        return self.sampled_correct + self.sampled_incorrect + self.unsampled_coupling


def mass_balance(m: Masses, eta: float, n: int | Tensor, r_c: float = 1.0, r_w: float = -1.0) -> MassBalance:
    """Compute Theorem 1: the first-order change of the correct mass in one step.

    ΔQ_pos = (η/N) [ (R_c - S_R) Q_neg A_2  +  (S_R - R_w) Q_pos B_2
                     + S_R (Q_pos U_neg2 - Q_neg U_pos2) ]

    The first two terms are never negative, because S_R lies in [R_w, R_c]. The third can have either sign. It is
    expected to vanish as N grows (Corollary 3), and then ΔQ_pos >= 0. At a small N it is small if S_R is near 0, or if
    little mass is undrawn. The paper concludes that a larger N raises Q_pos, and with it pass@k. The theorem alone does
    not say so: a positive third term vanishes too, and η/N falls. Raises ValueError unless R_c >= 0 >= R_w.
    """
    _check_rewards(r_c, r_w)
    s_r = mood(m, r_c, r_w)
    return MassBalance(
        # The logits of the drawn correct tokens rise, and those of the drawn incorrect tokens fall. Both raise Q_pos.
        sampled_correct=eta / n * (r_c - s_r) * m.q_neg * m.a2,
        sampled_incorrect=eta / n * (s_r - r_w) * m.q_pos * m.b2,
        unsampled_coupling=unsampled_coupling(m, s_r, eta, n),
    )


def unsampled_coupling(m: Masses, s_r: Tensor, eta: float, n: int | Tensor) -> Tensor:
    """Return (η/N) S_R (Q_pos U_neg2 - Q_neg U_pos2), Theorem 1's third term, for the S_R of any rewards.

    It is the change of Q_pos through the undrawn tokens. Their logits change by Δz_j = -(η/N) p_j S_R:
    S_R > 0: their logits fall, which lowers Q_pos if Q_neg U_pos2 > Q_pos U_neg2;
    S_R < 0: their logits rise, which lowers Q_pos if Q_neg U_pos2 < Q_pos U_neg2.
    This holds for any rewards of the drawn tokens, with S_R = Σ_i R_i p_i over the drawn tokens.
    """
    return eta / n * s_r * (m.q_pos * m.u_neg2 - m.q_neg * m.u_pos2)


# ------------------------------------------------------------------------------ Lemma 2, Corollary 3


def expected_unsampled_second_moment(p: Tensor, n: int | Tensor) -> Tensor:
    """Return Lemma 2: E[p² 1{not drawn}] = p² (1-p)^N for each token and N i.i.d. draws, (..., V)."""
    n = torch.as_tensor(n, dtype=p.dtype, device=p.device)
    return p * p * torch.exp(torch.special.xlog1py(n, -p))


def total_unsampled_second_moment(p: Tensor, n: int | Tensor, members: Tensor | None = None) -> Tensor:
    """Return Corollary 3: Σ_i p_i² (1-p_i)^N, (...), which never increases with N.

    members: sum over these tokens only; bool, broadcastable to p. With `correct` it is the expected U_pos2, with
    `~correct` the expected U_neg2.
    """
    moments = expected_unsampled_second_moment(p, n)
    if members is None:
        return moments.sum(-1)
    _check_bool(members=members)
    return torch.where(members, moments, 0).sum(-1)


# ------------------------------------------------------------------------------------------- pass@k


def pass_at_k(q_pos: Tensor, k: int | Tensor) -> Tensor:
    """Return pass@k = 1 - (1 - Q_pos)^k (section 2) for each problem. The paper averages it over problems.

    Raises ValueError unless k >= 1.
    """
    k = torch.as_tensor(k)
    if (k < 1).any():
        raise ValueError(f"pass@k needs k >= 1, got k={k.tolist()}")
    return -torch.expm1(torch.special.xlog1py(k.to(q_pos.dtype).to(q_pos.device), -q_pos))


def pass_at_k_estimate(n: int, c: int, k: int) -> float:
    """Return 1 - C(n-c, k) / C(n, k), the unbiased estimate of pass@k from n samples with c correct ones.

    Source: Chen et al. 2021 (2107.03374), equation 1. Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k from samples needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


# ------------------------------------------------------------------------ section 4.2.1: the recipes


def scaled_learning_rate(eta_0: float, b_new: float, b_0: float) -> float:
    """Return η_new = η_0 sqrt(B_new / B_0) (section 4.2.1).

    B_new and B_0 count samples, N times prompts_per_step: 65,536 / 8,192 = 8. This is our reading of the paper. This B
    is not the set B of section 2; in train.py B is prompts_per_step, 128 for BroRL and 512 for ProRL.
    """
    if b_new <= 0 or b_0 <= 0:
        raise ValueError(f"the batch sizes must be positive, got B_new={b_new}, B_0={b_0}")
    return eta_0 * math.sqrt(b_new / b_0)


class Setting(NamedTuple):
    """A value of a recipe and its source. `not in the paper: X`: ours is from X."""

    value: int | float | str
    source: str


# Appendix D evaluates every model with these settings, so both recipes have them.
EVALUATION = {
    "eval_samples": Setting(16, "appendix D"),
    "eval_temperature": Setting(0.6, "appendix D"),
    "eval_top_p": Setting(0.95, "appendix D"),
    "eval_max_response_tokens": Setting(32768, "appendix D, for the context; here for the response alone"),
}

PRORL = {
    "rollouts_per_prompt": Setting(16, "section 4.2.1; table 1"),
    "prompts_per_step": Setting(
        512, "table 1; we infer that it counts kept prompts: 19.5k samples per step x 41% kept (table 2) = 16 x 500"
    ),
    "learning_rate": Setting(1e-6, "not in the paper: η_0 of the ProRLv2 scripts (verl, OpenRLHF, NeMo-RL)"),
    "updates_per_step": Setting(8, "not in the paper: ProRLv2 scripts, 8 mini-batches, one pass"),
    "kl_coef": Setting(1e-4, "not in the paper: OpenRLHF, NeMo-RL (verl script: 5e-4)"),
    "temperature": Setting(1.0, "not in the paper: ProRLv2 scripts (ProRL v1: 1.2)"),
    # The paper gives no period; ProRLv2's scripts have 200 to 500. In 191 steps BroRL has no reset with 200 or 500. In
    # 535 steps ProRL has two resets with 200 and one with 500. We take 500: the two recipes then differ least.
    "reference_reset_steps": Setting(500, "section 3.1 (periodic reset); period not in the paper: ProRLv2, 200-500"),
    "max_response_tokens": Setting(
        16384, "not in the paper for N = 16: BroRL's 16,384 (section 4.2.1), so that the recipes differ less"
    ),
    "max_steps": Setting(535, "table 1, the longest run: 133.8 hours"),
    **EVALUATION,
    "eval_every": Setting(10, "not in the paper: our choice"),
}

BRORL = PRORL | {
    "rollouts_per_prompt": Setting(512, "section 4.2.1; table 1"),
    "prompts_per_step": Setting(
        128, "table 1; we infer that it counts kept prompts: 104.9k samples per step x 62% kept (table 2) = 512 x 127"
    ),
    "learning_rate": Setting(
        scaled_learning_rate(1e-6, b_new=128 * 512, b_0=512 * 16),
        "section 4.2.1: η_0 sqrt(B_new / B_0), with table 1's N x prompts 65,536 / 8,192: 2.83 η_0",
    ),
    "max_response_tokens": Setting(16384, "section 4.2.1, for the context; here for the response alone"),
    "updates_per_step": Setting(8, "section 4.2.1: unchanged from ProRL; number not in the paper: ProRLv2 scripts"),
    "max_steps": Setting(191, "table 1, the longest run: 173.8 hours; 134 steps take 122.8"),
}

RECIPES = {"brorl": BRORL, "prorl": PRORL}


# ------------------------------------------------------------------------------------ argument checks


def _check_bool(**masks: Tensor) -> None:
    for name, mask in masks.items():
        if mask.dtype != torch.bool:
            raise ValueError(f"`{name}` must be a bool mask over the tokens, got {mask.dtype}: compare or convert it")


def _check_rewards(r_c: float, r_w: float) -> None:
    if not r_c >= 0 >= r_w:
        raise ValueError(f"Theorem 1 needs R_c >= 0 >= R_w, got R_c={r_c}, R_w={r_w}")
