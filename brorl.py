"""BroRL, sections 2 and 4.2.1: why wider exploration grows the correct mass, and the two recipes.

Paper: "BroRL: Scaling Reinforcement Learning via Broadened Exploration", arXiv 2510.01180.
Setting of section 2: one softmax over V tokens, p = softmax(z). N tokens are drawn i.i.d.; a drawn
token has reward R_c if it is correct and R_w if not, an undrawn token has reward 0, R_c >= 0 >= R_w.

    name here           paper         meaning
    p                   p             probabilities, (..., V)
    correct             P             which tokens are correct, bool, (..., V)
    sampled             A and B       which tokens were drawn at least once, bool, (..., V)
    n                   N             number of draws
    p_pos, p_neg        P_pos, P_neg  probability of the drawn correct / drawn incorrect tokens
    q_pos, q_neg        Q_pos, Q_neg  probability of all correct / all incorrect tokens
    a2, b2              A_2, B_2      sum of p^2 over the drawn correct / drawn incorrect tokens
    u_pos2, u_neg2      U_pos2, ...   sum of p^2 over the undrawn correct / undrawn incorrect tokens
    r_c, r_w            R_c, R_w      reward of a drawn correct / drawn incorrect token
    s_r                 S_R           the batch's mood: Σ p_i R_i over what was drawn. No mean, because these p_i
                                      do not add up to 1: P_pos = 0.1 and P_neg = 0 give R_c / 10
    eta                 η             learning rate
    dz, dp              Δz, Δp        change of the logits / probabilities in one step

Reading order: the masses, one gradient step, Theorem 1, the same along a policy's rollouts (ours, for the
question that the paper leaves open), Lemma 2 and Corollary 3, pass@k, the paired t-test of section 4.2.2, the
recipes. What is about section 2 takes a batch of distributions, shape (..., V), in float32 or float64 on any
device, and sums over the last dimension only. A, B and U are *sets*: a token drawn twice counts once.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# --------------------------------------------------------------------- section 2: masses and moments


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
    q_neg is summed over the incorrect tokens rather than taken as 1 - q_pos, which would lose the
    small masses to rounding. A mass is at most 1: a sum that rounds to 1 + 1e-7 would make pass@k NaN
    and Theorem 1's first terms negative.
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
    """S_R = R_c P_pos + R_w P_neg, in [R_w, R_c] (section 2). Positive: what was drawn is mostly right.

    A sum weighted by probability mass and not divided by it: where little mass was drawn it is near 0, whatever the
    rewards are.
    """
    return r_c * m.p_pos + r_w * m.p_neg


# ---------------------------------------------------------- section 2, appendix C.1: one gradient step


def token_rewards(p: Tensor, correct: Tensor, sampled: Tensor, r_c: float = 1.0, r_w: float = -1.0) -> Tensor:
    """R_i = R_c on A, R_w on B, 0 on the undrawn tokens (section 2). Returns (..., V) in p's dtype."""
    _check_bool(correct=correct, sampled=sampled)
    _check_rewards(r_c, r_w)
    drawn = torch.where(correct, torch.full_like(p, r_c), torch.full_like(p, r_w))
    return torch.where(sampled, drawn, torch.zeros_like(p))


def surrogate(p: Tensor, rewards: Tensor, n: int) -> Tensor:
    """L = -(1/N) Σ_i R_i p_i, the TRPO-style linear surrogate of section 2. Returns (...)."""
    return -(rewards * p).sum(-1) / n


def logit_step(p: Tensor, rewards: Tensor, eta: float, n: int) -> Tensor:
    """Δz_j = (η/N) p_j (R_j - S_R), one gradient step on L (appendix C.1, first step).

    S_R = Σ_i R_i p_i, so this is -η ∂L/∂z_j for any rewards, two-valued or not. Returns (..., V).
    """
    s_r = (rewards * p).sum(-1, keepdim=True)
    return eta / n * p * (rewards - s_r)


def probability_step(p: Tensor, dz: Tensor) -> Tensor:
    """Δp_i = p_i (Δz_i - Σ_j p_j Δz_j), to first order in Δz (appendix C.1, second step)."""
    return p * (dz - (p * dz).sum(-1, keepdim=True))


# ----------------------------------------------------------------------------------------- Theorem 1


class MassBalance(NamedTuple):
    """ΔQ_pos as the three terms of Theorem 1, each of shape (...) and each with the factor η/N in it."""

    sampled_correct: Tensor
    sampled_incorrect: Tensor
    unsampled_coupling: Tensor

    @property
    def total(self) -> Tensor:
        return self.sampled_correct + self.sampled_incorrect + self.unsampled_coupling


def mass_balance(m: Masses, eta: float, n: int, r_c: float = 1.0, r_w: float = -1.0) -> MassBalance:
    """Theorem 1: the first-order change of the correct mass in one step.

    ΔQ_pos = (η/N) [ (R_c - S_R) Q_neg A_2  +  (S_R - R_w) Q_pos B_2
                     + S_R (Q_pos U_neg2 - Q_neg U_pos2) ]

    Drawing a correct token lifts it, drawing an incorrect one sinks it: the first two terms are never
    negative. The third is what the step does to tokens nobody drew, by normalisation alone. It takes
    either sign: with S_R > 0 undrawn tokens sink, which hurts if the correct ones are the more concentrated.
    The paper's three implications are about it: (i) with N the undrawn second moments vanish, and so does it,
    which leaves ΔQ_pos >= 0; (ii) so it does at a small N, where the batch is balanced, S_R near 0, or little
    mass is undrawn; (iii) by (i), a larger N raises pass@k.
    Raises ValueError unless R_c >= 0 >= R_w, the theorem's condition.
    """
    _check_rewards(r_c, r_w)
    s_r = mood(m, r_c, r_w)
    return MassBalance(
        sampled_correct=eta / n * (r_c - s_r) * m.q_neg * m.a2,
        sampled_incorrect=eta / n * (s_r - r_w) * m.q_pos * m.b2,
        unsampled_coupling=eta / n * unsampled_coupling(m, s_r),
    )


def unsampled_coupling(m: Masses, s_r: Tensor) -> Tensor:
    """S_R (Q_pos U_neg2 - Q_neg U_pos2), Theorem 1's third term without its factor η/N.

    Exact for any rewards on the drawn tokens, if S_R = Σ_i R_i p_i is taken over them: the simulator
    hands in the S_R of its own centred, repeated draws.
    """
    return s_r * (m.q_pos * m.u_neg2 - m.q_neg * m.u_pos2)


# --------------------------------------------------------- Theorem 1 along the rollouts of a real policy


def graded_mass_balance(p: Tensor, value: Tensor, rewards: Tensor, sampled: Tensor, eta: float, n: int) -> MassBalance:
    """Theorem 1 where a token is not right or wrong, but leads to a correct answer with probability v.

    Q_pos = Σ_i p_i v_i, and a token counts as v correct and 1 - v incorrect. The step of section 2 changes it by

    ΔQ_pos = (η/N) Σ_i p_i² (R_i - S_R) (v_i - Q_pos)
           = (η/N) [ Q_neg Σ_{A∪B} v_i (R_i - S_R) p_i²  +  Q_pos Σ_{A∪B} (1 - v_i) (S_R - R_i) p_i²
                     + S_R (Q_pos U_neg2 - Q_neg U_pos2) ]

    which is `mass_balance` when every v is 0 or 1 and every R is R_c or R_w. Unlike there the first two terms can
    be negative: a token that is worse than the others may have been lucky. p, value, rewards (0 where not drawn):
    (..., V); sampled: bool, broadcastable to p.
    """
    _check_bool(sampled=sampled)
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
    found, open_nodes = [], [Node((), [i for i, response in enumerate(responses) if response])]
    while open_nodes:
        node = open_nodes.pop(0)
        if len(node.rollouts) < 2:
            continue
        found.append(node)
        depth, branches = len(node.prefix), {}
        for i in node.rollouts:
            branches.setdefault(responses[i][depth], []).append(i)
        for token, members in branches.items():
            open_nodes.append(Node((*node.prefix, token), [i for i in members if len(responses[i]) > depth + 1]))
    found.sort(key=lambda node: (-len(node.rollouts), len(node.prefix)))
    return found[:limit]


def importance_change(correct: Tensor, log_weight: Tensor) -> Tensor:
    """ΔQ_pos of an update, from rollouts drawn before it: 1/(N-1) Σ_i (c_i - c̄) (w_i - 1), w = π_new(y) / π_old(y).

    E[w] = 1 and E[c w] is the new Q_pos; taking the mean c̄ off lowers the variance and costs the factor
    N / (N - 1). Unbiased for a π_new that does not depend on these draws. One that was trained on them favours the
    correct among them, and the estimate is too large. figures/exact_probe.py found, estimated for exact: from the
    start +0.0084 for +0.0051 at N = 16 and +0.0527 for +0.0510 at N = 512, from the saturated policy +0.0130 for
    +0.0113 and +0.0929 for +0.0770. correct: bool (..., N); log_weight: log w, (..., N); returns (...).
    """
    _check_bool(correct=correct)
    c = correct.to(log_weight.dtype)
    n = c.shape[-1]
    return ((c - c.mean(-1, keepdim=True)) * torch.expm1(log_weight)).sum(-1) / (n - 1)


# ------------------------------------------------------------------------------ Lemma 2, Corollary 3


def expected_unsampled_second_moment(p: Tensor, n: int | Tensor) -> Tensor:
    """Lemma 2: E[p² 1{not drawn}] = p² (1-p)^N for one token and N i.i.d. draws. Elementwise, (..., V)."""
    n = torch.as_tensor(n, dtype=p.dtype, device=p.device)
    return p * p * torch.exp(torch.special.xlog1py(n, -p))


def total_unsampled_second_moment(p: Tensor, n: int | Tensor, members: Tensor | None = None) -> Tensor:
    """Corollary 3: Σ_i p_i² (1-p_i)^N, never increasing in N. Returns (...).

    `members` (bool, broadcastable to p) limits the sum: `correct` predicts U_pos2, `~correct` U_neg2.
    """
    moments = expected_unsampled_second_moment(p, n)
    if members is None:
        return moments.sum(-1)
    _check_bool(members=members)
    return torch.where(members, moments, 0).sum(-1)


# ------------------------------------------------------------------------------------------- pass@k


def pass_at_k(q_pos: Tensor, k: int | Tensor) -> Tensor:
    """pass@k = 1 - (1 - Q_pos)^k (section 2), elementwise over problems; average it over tasks.

    Raises ValueError unless k >= 1.
    """
    k = torch.as_tensor(k)
    if (k < 1).any():
        raise ValueError(f"pass@k needs k >= 1, got k={k.tolist()}")
    return -torch.expm1(torch.special.xlog1py(k.to(q_pos.dtype).to(q_pos.device), -q_pos))


def pass_at_k_estimate(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): the unbiased estimate of pass@k from n samples of which c are correct.

    Source: Chen et al. 2021 (2107.03374), equation 1. Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k from samples needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


# ----------------------------------------------------------------- section 4.2.2: the paired t-test


class PairedTTest(NamedTuple):
    """The result of `paired_t_test`; `low` and `high` bound delta with a confidence of 95%."""

    instances: int
    mean_a: float
    mean_b: float
    delta: float
    standard_error: float
    t: float
    degrees_of_freedom: int
    p_one_tailed: float
    p_two_tailed: float
    low: float
    high: float


def paired_t_test(a: Tensor, b: Tensor) -> PairedTTest:
    """Section 4.2.2: is b better than a on the same n instances?  t = Δ / (s / √n), with n - 1 degrees of freedom.

    a, b: (n,) the scores of two models, pass@1 of an instance, in the same order. d = b - a, Δ its mean, s its
    standard deviation (with n - 1). One-tailed: the chance of such a t or a larger one if b were not better (H1:
    b > a); two-tailed: of one as far from 0 on either side. If all d are equal, s = 0: t is then infinite, or 0
    where they are all 0, which is no evidence for anything (p = 1/2 and 1; SciPy says nan).
    The paper, on more than 10,000 instances: Δ = 0.0033, t = 4.84, one-tailed p = 6.5e-7 for BroRL over ProRL.
    It takes the instances as independent, which variants of one question are not, and it knows of the two models
    only: another seed of their training is another pair. Raises ValueError unless n >= 2 and the shapes agree.
    """
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise ValueError(f"a paired t-test needs two equally long lists of at least 2 scores, got {a.shape}, {b.shape}")
    a, b, n = a.double(), b.double(), len(a)
    delta, error = (b - a).mean().item(), (b - a).std().item() / math.sqrt(n)
    t = delta / error if error else math.copysign(math.inf, delta) if delta else 0.0
    margin = student_t_critical(n - 1) * error
    return PairedTTest(
        n, a.mean().item(), b.mean().item(), delta, error, t, n - 1, student_t_tail(t, n - 1),
        2 * student_t_tail(abs(t), n - 1), delta - margin, delta + margin,
    )  # fmt: skip


def student_t_tail(t: float, degrees_of_freedom: int) -> float:
    """P(T > t) of Student's t with ν degrees of freedom: I_x(ν/2, 1/2) / 2 at x = ν / (ν + t²), for t >= 0."""
    if t < 0:
        return 1.0 - student_t_tail(-t, degrees_of_freedom)
    if math.isinf(t):
        return 0.0
    return 0.5 * _incomplete_beta(degrees_of_freedom / 2, 0.5, t * t / degrees_of_freedom)


def student_t_critical(degrees_of_freedom: int, tail: float = 0.025) -> float:
    """The t that a share `tail` lies above, by bisection: 12.7 with 1 degree of freedom, 1.96 with very many."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t_tail(middle, degrees_of_freedom) > tail else (low, middle)
    return low


def _incomplete_beta(a: float, b: float, odds: float) -> float:
    """I_x(a, b), the regularised incomplete beta function, at x = 1 / (1 + odds): exact where x is close to 1.

    By its continued fraction (Abramowitz and Stegun, 26.5.8), evaluated from its inner end, for x on the side of the
    mean where it converges fast, else by I_x(a, b) = 1 - I_{1-x}(b, a).
    """
    if odds == 0:
        return 1.0
    x = 1 / (1 + odds)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 / odds)
    fraction = 1.0
    for m in range(500, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        fraction = 1.0 + even / (1.0 + odd / fraction)
    fraction = 1.0 - (a + b) * x / (a + 1) / fraction
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - a * math.log1p(odds) - b * math.log1p(1 / odds)
    return math.exp(logs) / (a * fraction)


# ------------------------------------------------------------------------ section 4.2.1: the recipes


def scaled_learning_rate(eta_0: float, b_new: float, b_0: float) -> float:
    """η_new = η_0 sqrt(B_new / B_0) (section 4.2.1).

    B is here the batch in samples, N times prompts_per_step, which is our reading of "batch size": 65,536 over 8,192
    is 8. Elsewhere in this project B alone is prompts_per_step, which BroRL has a quarter of.
    """
    if b_new <= 0 or b_0 <= 0:
        raise ValueError(f"the batch sizes must be positive, got B_new={b_new}, B_0={b_0}")
    return eta_0 * math.sqrt(b_new / b_0)


class Setting(NamedTuple):
    """One value of a recipe, and where it stands. `paper silent` names the peer that it comes from."""

    value: int | float | str
    source: str


# Appendix D scores every model alike, so this is a part of both recipes.
EVALUATION = {
    "eval_samples": Setting(16, "appendix D"),
    "eval_temperature": Setting(0.6, "appendix D"),
    "eval_top_p": Setting(0.95, "appendix D"),
    "eval_max_response_tokens": Setting(32768, "appendix D: the context; we count the response alone"),
}

PRORL = {
    "rollouts_per_prompt": Setting(16, "section 4.2.1; table 1"),
    "prompts_per_step": Setting(
        512, "table 1; counted after dynamic sampling, our inference: it has 19.5k samples a step, table 2 keeps 41%"
    ),
    "learning_rate": Setting(1e-6, "paper silent: η_0 of the ProRLv2 scripts (verl, OpenRLHF, NeMo-RL)"),
    "updates_per_step": Setting(8, "paper silent: ProRLv2 scripts, 8 mini-batches, one pass"),
    "clip_low": Setting(0.2, "paper silent: ProRL v1 and ProRLv2 scripts"),
    "clip_high": Setting(0.27, "section 3.1 (ε_high > ε_low); paper silent on the value: OpenRLHF, NeMo-RL"),
    "kl": Setting("k2", "paper silent: ProRLv2 scripts"),
    "kl_coef": Setting(1e-4, "paper silent: OpenRLHF, NeMo-RL (verl script: 5e-4)"),
    "tis_cap": Setting(2.0, "section 3.1 (truncated IS); paper silent on C: Yao et al. 2025"),
    "temperature": Setting(1.0, "paper silent: ProRLv2 scripts (ProRL v1: 1.2)"),
    "top_p": Setting(1.0, "paper silent: ProRLv2 scripts; sampling the policy itself while training"),
    # The paper gives no period and does not say whether a reset fell into its 191 steps. At any period of ProRLv2's
    # scripts none does, but for PRORL's 535 steps 200 gives two and 500 one, at step 500. The recipes are compared, so:
    # the period at which the fewest resets tell them apart.
    "reference_reset_steps": Setting(500, "section 3.1 (periodic reset); paper silent on the period: ProRLv2, 200-500"),
    "max_response_tokens": Setting(16384, "section 4.2.1: the context, of all phases; we count the response alone"),
    "max_steps": Setting(535, "table 1"),
    **EVALUATION,
    "eval_every": Setting(10, "paper silent: ours"),
}

BRORL = PRORL | {
    "rollouts_per_prompt": Setting(512, "section 4.2.1; table 1"),
    "prompts_per_step": Setting(
        128, "table 1; counted after dynamic sampling, our inference: it has 104.9k samples a step, table 2 keeps 62%"
    ),
    "learning_rate": Setting(
        scaled_learning_rate(1e-6, b_new=128 * 512, b_0=512 * 16),
        "section 4.2.1: η_0 sqrt(B_new / B_0), with table 1's N x prompts 65,536 / 8,192: 2.83 η_0",
    ),
    "updates_per_step": Setting(8, "section 4.2.1: unchanged from ProRL; paper silent on the number: ProRLv2 scripts"),
    "max_steps": Setting(191, "table 1"),
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
