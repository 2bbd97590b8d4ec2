"""Theorem 1 and Corollary 3 on the draws of sim.py's steps (`--mass_balance`, `--sweep`): ours, beside Figure 3.

    name here                    meaning, over η
    linear_step                  Theorem 1's three terms on the gradient that AdamW gets: rewards centred, a token drawn
                                 twice counted twice
    centred_coupling             the third of them: (1/N) S_R (Q_pos U_neg2 - Q_neg U_pos2), S_R of the centred rewards
    mood                         S_R as the paper states it: rewards not centred, a token drawn twice counted once
    sampled_correct,             its three terms, with this S_R: what brorl.mass_balance returns. unsampled_coupling
    sampled_incorrect,           differs from centred_coupling by its S_R alone
    unsampled_coupling
    unsampled_second_moment      U_pos2 + U_neg2, measured
    predicted_second_moment      Corollary 3: Σ_i p_i² (1-p_i)^N

Theorem 1 has a token's reward count once and its step be plain gradient descent. Here a token drawn twice counts twice,
rewards are centred, and AdamW takes the step. The third term keeps its form, with S_R over the actual draws, but
describes the gradient and not the step that AdamW makes of it.
"""

import torch
from torch import Tensor

import brorl


def theorem_1_on_draws(
    p: Tensor, centred: Tensor, tokens: list[Tensor], correct: Tensor, r_c: float, r_w: float
) -> dict[str, Tensor]:
    """The names above, (K,) each, for the draws of one step from p, (K, V). The paper's where R_c >= 0 >= R_w.

    The drawn tokens are marked from `tokens`: where all draws agree, their centred rewards are all 0.
    """
    n = p.new_tensor([[len(drawn)] for drawn in tokens])
    sampled = torch.zeros_like(p, dtype=torch.bool)
    for row, drawn in zip(sampled, tokens, strict=True):
        row[drawn] = True
    m = brorl.masses(p, correct, sampled)
    dp = brorl.probability_step(p, brorl.logit_step(p, centred, 1.0, n))
    found = {
        "centred_coupling": brorl.unsampled_coupling(m, (centred * p).sum(-1), 1.0, n[:, 0]),
        "linear_step": torch.where(correct, dp, 0).sum(-1),
        "unsampled_second_moment": m.u_pos2 + m.u_neg2,
        "predicted_second_moment": brorl.total_unsampled_second_moment(p, n),
    }
    if r_c >= 0 >= r_w:
        found["mood"] = brorl.mood(m, r_c, r_w)
        found |= brorl.mass_balance(m, 1.0, n[:, 0], r_c, r_w)._asdict()
    return found
