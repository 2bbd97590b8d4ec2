# %% [markdown]
# # Hour 1: mass balance (sections 2 and 4.1 of the paper)
#
# `python -m lab.1_mass` prints the questions of a part and waits for Enter. Then it prints the results.
# `python -m lab.1_mass work` runs your functions of work/, and stops at the next blank.
#
# **Write down** your answers before you see the results. "expected" is the range of 20 seeds, rounded outward.

# %%
import sys
from pathlib import Path

if sys.argv[1:]:
    sys.path.insert(0, sys.argv[1])

import numpy as np
import torch

import brorl
import sim
from lab.hours import ask, compare, show
from sim import Curves, plot_figure3

SEED = 0
OUT = Path("runs/lab")
OUT.mkdir(parents=True, exist_ok=True)
ask()

# %% [markdown]
# ## 1. Four tokens by hand
#
# Tokens a and b are correct, c and d are incorrect: p = (0.1, 0.5, 0.1, 0.3). One draw, N = 1, gives a. Its reward is
# +1, the others have 0. With η = 1 and S_R = Σ p_i R_i the step is Δz_j = (η/N) p_j (R_j - S_R), and to first order
# Δp_i = p_i (Δz_i - Σ_j p_j Δz_j).
#
# **Write down:** S_R. Which logits rise? Which probabilities rise? Does Q_pos = p_a + p_b rise?

# %%
p = torch.tensor([0.1, 0.5, 0.1, 0.3], dtype=torch.float64)
correct = torch.tensor([True, True, False, False])
only_a = torch.tensor([True, False, False, False])
s_r = brorl.mood(brorl.masses(p, correct, only_a))
dz = brorl.logit_step(p, brorl.token_rewards(p, correct, only_a), eta=1.0, n=1)
dp = brorl.probability_step(p, dz)
print(f"S_R {s_r:.2f}   Δz {dz.numpy().round(4)}   Δp {dp.numpy().round(4)}")
compare("1,000 x the change of Q_pos", 1000 * dp[correct].sum().item())
ask()

# %% [markdown]
# **Why** does the probability of c rise, although it was not drawn and its logit falls?

# %% [markdown]
# ## 2. Theorem 1
#
# ΔQ_pos = (η/N) [ (R_c - S_R) Q_neg A_2 + (S_R - R_w) Q_pos B_2 + S_R (Q_pos U_neg2 - Q_neg U_pos2) ]
#
# R_w is -1. The drawn tokens can be any of 15 sets.
#
# **Write down:** Which term can be negative? Is it negative for {a}, {b}, {a, b}, {d}? For how many of the 15 sets does
# Q_pos fall?

# %%
sets = torch.tensor([[bool(i >> j & 1) for j in range(4)] for i in range(1, 16)])
terms = brorl.mass_balance(brorl.masses(p, correct, sets), eta=1.0, n=1)
print("drawn    first   second    third    total   (each times N)")
for members, *row in zip(sets, *terms, terms.total, strict=True):
    name = "".join(letter for letter, member in zip("abcd", members, strict=True) if member)
    print(f"{name:<5}" + "".join(f"{x.item():9.4f}" for x in row))
compare("sets with a negative third term", (terms.unsampled_coupling < -1e-12).sum().item())
compare("sets that lower Q_pos", (terms.total < 0).sum().item())
ask()

# %% [markdown]
# **Why** is the third term of {a, b} positive, and that of {a} negative? How probable is {a} after N draws?
#
# Lemma 2: a token is undrawn with probability (1 - p)^N, so it adds p² (1 - p)^N to the expected sum of p² over undrawn
# tokens. Corollary 3 adds this up over all tokens.
#
# **Write down:** Does U_pos2 + U_neg2 fall by a factor of 4, 16 or 50 from N = 1 to N = 16?

# %%
generator = torch.Generator().manual_seed(SEED)
for n in (1, 4, 16):
    draws = torch.multinomial(p.expand(20_000, 4), n, replacement=True, generator=generator)
    drawn = torch.zeros(20_000, 4, dtype=torch.bool).scatter(1, draws, True)
    m = brorl.masses(p, correct, drawn)
    corollary_3 = brorl.total_unsampled_second_moment(p, n).item()
    measured = (m.u_pos2 + m.u_neg2).mean().item()
    print(f"N = {n}: mean of U_pos2 + U_neg2 {measured:.4f}")
    compare(f"N = {n}: U measured / Corollary 3", measured / corollary_3)
ask()

# %% [markdown]
# **Why** do a and c, which are small compared with b at N = 1, make up nearly all of the sum at N = 16?

# %% [markdown]
# ## 3. Figure 2 with numbers
#
# The first step of the simulator: 128,000 tokens. 10,000 are correct with p = 6e-5 each, the others have 3e-6 each.
# Q_pos is 0.63.
#
# **Write down**, for N from 4 to 51,200: How large must N be until the drawn tokens have half of Q_pos? What sign has
# the third term, and from what N on is it nearly 0? Does the total grow with N?

# %%
constants = sim.Constants()
p = torch.softmax(sim.initial_logits(constants).double(), -1)
correct = torch.arange(constants.vocabulary) < constants.correct_tokens
sampled = {n: torch.zeros(16, len(p), dtype=torch.bool) for n in (4, 32, 256, 2048, 16_384, 51_200)}
for n, masks in sampled.items():
    for mask in masks:
        mask[sim.draw(p, n, generator)] = True
print("      N    P_pos    P_neg    first   second    third    total   (means of 16 draws)")
for n, masks in sampled.items():
    m = brorl.masses(p, correct, masks)
    terms = brorl.mass_balance(m, 1.0, n)
    print(f"{n:7,}" + "".join(f"{x.mean().item():9.2g}" for x in (m.p_pos, m.p_neg, *terms, terms.total)))

drawn_share = brorl.masses(p, correct, sampled[16_384]).p_pos.mean() / p[correct].sum()
few, all_but_few = (brorl.mass_balance(brorl.masses(p, correct, sampled[n]), 1.0, n) for n in (2048, 51_200))
compare("N = 16,384: P_pos / Q_pos", drawn_share.item())
for n, balance in ((2048, few), (51_200, all_but_few)):
    third_over_first = balance.unsampled_coupling.mean() / balance.sampled_correct.mean()
    compare(f"N = {n:,}: third term / first term", third_over_first.item())
compare("total at N = 51,200 / total at N = 2,048", (all_but_few.total.mean() / few.total.mean()).item())
ask()

# %% [markdown]
# **Why** is the third term at N = 256 about as large as at N = 4? (Which factor grows with N, against 1/N?) And why is
# the total smallest where the third term is nearly 0? (A token that is drawn twice counts once.)

# %% [markdown]
# ## 4. Figure 3 with a smaller vocabulary
#
# The loop of section 4.1, as the paper writes it: centred rewards, AdamW; 32,000 tokens, 2,500 of them correct, 500
# steps. Q_pos starts at 0.63.
#
# **Write down**, for N = 4, 16, 128, 12,800: Which N ends with the greatest Q_pos? Which N end below their start? For
# which N does every correct token end above its start?

# %%
small = sim.Constants(vocabulary=32_000, correct_tokens=2_500, steps=500)
curves = []
for n in (4, 16, 128, 12_800):
    steps = list(sim.loop(small, n, torch.Generator().manual_seed(SEED)))
    values = {name: np.array([[step[name].item() for step in steps]]) for name in steps[0]}
    curves.append(Curves(SEED, (n,), np.arange(len(steps)), values))
    for name in ("correct_mass", "percent_improved", "worst_drop"):
        compare(f"N = {n:,}: {name} at the end", values[name][0, -1])
plot_figure3(OUT / "figure3.png", curves, "32,000 tokens, 2,500 of them correct")
show(OUT / "figure3.png")
ask()

# %% [markdown]
# **Why** does N = 4 lose mass, although Theorem 1's total is positive at N = 4? (Who takes the step here?
# docs/paper.md has the measurements.) N = 12,800 draws 3,200 times the tokens of N = 4: `python sim.py --sweep`
# compares at equal samples.
