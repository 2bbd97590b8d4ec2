# %% [markdown]
# # Hour 2: the objective (section 3.1 of the paper)
#
# `python -m lab.2_loss` prints the questions of a part and waits for Enter. Then it prints the results.
# `python -m lab.2_loss work` runs your work/loss.py, and stops at the next blank.
#
# **Write down** your answers before you see the results. "expected" is the range of ten seeds, widened a little. Most
# numbers do not depend on the seed.

# %%
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.hours import ask, compare
from rollout import TorchEngine

if sys.argv[1:]:
    sys.path.insert(0, sys.argv[1])  # from here on: loss.py is yours

import loss as L
from lab import loop

SEED = 0
ask()

# %% [markdown]
# ## 1. Dynamic sampling and advantages
#
# Four prompts, eight rollouts of each: 0, 1, 4 and 8 of them are right.
#
# **Write down:** Which prompts does dynamic sampling keep? What is the advantage of a right and of a wrong rollout in
# each kept prompt, before whitening? Has a right rollout of the hardest kept prompt a larger advantage than a right
# rollout of the easiest?

# %%
correct = torch.arange(8) < torch.tensor([0, 1, 4, 8])[:, None]  # (P, N)
keep = L.informative(correct)
advantages = L.mean_centred(correct.float())[keep]
whitened = L.whiten(advantages)
print("kept", keep.tolist(), "\nadvantages\n", advantages, "\nwhitened\n", whitened)
compare("advantage of the only right rollout", advantages[0, 0].item())
compare("advantage of the only right rollout, whitened", whitened[0, 0].item())
compare("sum of the hard prompt's advantages", whitened[0].sum().item())
ask()

# %% [markdown]
# **Why** does a dropped prompt not change the direction of the step? Which cost remains?

# %% [markdown]
# ## 2. The loss and its gradient
#
# The tiny policy draws 64 rollouts of each of 32 problems. They form one mini-batch, and no update came before.
#
# **Write down:** the loss, to one digit. The norm of its gradient: 0, or not? After eight updates on these rollouts: is
# the loss above 0, or below? Does log π of right rollouts rise, of wrong ones fall?

# %%
model = AutoModelForCausalLM.from_pretrained(loop.TINY / "policy", dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(loop.TINY / "policy")
problems = loop.read_problems("train")[SEED * 32 : SEED * 32 + 32]
groups, correct = loop.roll_out(TorchEngine(model), tokenizer, problems, 64, seed=SEED)
keep = L.informative(correct)
groups = [group for group, kept in zip(groups, keep, strict=True) if kept]
advantages = L.step_advantages(correct.float(), keep)[keep].flatten()  # (S,)
batch = loop.batch_of(groups)
with torch.no_grad():
    old = loop.log_probs(model, batch)
of_right = correct[keep].flatten().repeat_interleave(batch["lengths"])  # (T,)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
losses, norms = [], []
print("update     loss  gradient norm")
for update in range(9):
    logp = loop.log_probs(model, batch)
    b = L.Tokens(logp, old, batch["engine"], old, advantages, batch["lengths"])
    loss = L.policy_loss(b, tokens=len(old), responses=len(advantages), kl_coef=loop.KL_COEF)[0]
    optimizer.zero_grad()
    loss.backward()
    losses.append(loss.item())
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    print(f"{update:6} {losses[-1]:8.4f} {norms[-1]:14.3f}")
    if update < 8:
        optimizer.step()
moved = (logp - old).detach()
compare("loss before the first update", losses[0])
compare("norm of its gradient", norms[0])
compare("loss after eight updates", losses[8])
compare("change of log π, tokens of right rollouts", moved[of_right].mean().item())
compare("change of log π, tokens of wrong rollouts", moved[~of_right].mean().item())
share = of_right.float().mean().item()
print(f"change of log π, all tokens: {moved.mean().item():.4f}; {share:.0%} of them are of right rollouts")
ask()

# %% [markdown]
# **Why** is the first loss not exactly 0? (Are all responses equally long?) Why does log π of all these tokens fall on
# average? (They are samples of π_old: what is E_old[log π - log π_old]?)

# %% [markdown]
# ## 3. The clip
#
# **Write down:** a table with A = 1 and A = -1 as rows, the ratio r = 0.5, 0.9, 1.1, 1.5 as columns, and in each cell
# the derivative of min(r A, clip(r, 0.8, 1.27) A) with respect to r.

# %%
clip = {name: L.OBJECTIVES["brorl"].parameters[name] for name in ("clip_low", "clip_high")}
ratio = torch.tensor([0.5, 0.9, 1.1, 1.5], dtype=torch.float64, requires_grad=True)
for advantage in (1.0, -1.0):
    objective = L.clipped_objective(ratio, torch.full_like(ratio, advantage), **clip)
    (gradient,) = torch.autograd.grad(objective.sum(), ratio)
    print(f"A = {advantage:+.0f}, r = {ratio.tolist()}: derivative {gradient.tolist()}")
    compare(f"A = {advantage:+.0f}: derivatives that are 0", (gradient == 0).sum().item())
ask()

# %% [markdown]
# **Why** does a token with A = -1 and r = 1.5 still have a gradient? What would `max` in place of `min` do to it?

# %% [markdown]
# ## 4. Truncated importance sampling
#
# The engine draws tokens from e, the trainer differentiates p. We want E_p[R] and have samples of e, weighted by
# w = min(p / e, C). All five tokens are enumerated, so nothing is random.
#
# **Write down:** R ≥ 0. With C = 2, is E_e[w R] above or below E_p[R]? With C = 1? Is the variance of w R larger with
# C = 100, or with C = 1?

# %%
p = torch.tensor([0.40, 0.30, 0.20, 0.08, 0.02], dtype=torch.float64)
e = torch.tensor([0.45, 0.33, 0.20, 0.0195, 0.0005], dtype=torch.float64)
reward = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
print(f"E_p[R] = {p @ reward:.3f}\n    C  E_e[w R]  variance of w R")
means, variances = {}, {}
for cap in (100.0, 2.0, 1.0):
    weighted = L.truncated_importance_weight(p.log(), e.log(), cap) * reward
    means[cap] = (e @ weighted).item()
    variances[cap] = (e @ (weighted - means[cap]).square()).item()
    print(f"{cap:5g} {means[cap]:9.3f} {variances[cap]:16.3f}")
compare("C = 2: E_e[w R]", means[2.0])
compare("C = 100: variance over that of C = 2", variances[100.0] / variances[2.0])
ask()

# %% [markdown]
# **Why** does the last token, which the engine draws once in 2,000 times, decide the variance? Which token has the
# larger share of the bias?

# %% [markdown]
# ## 5. Three estimators of KL
#
# A softmax π over five tokens, and a reference. δ = log π - log π_ref; k1 = δ, k2 = δ²/2, k3 = exp(-δ) - 1 + δ. A loss
# is a mean over samples. The samples are fixed, so the gradient of the loss is E_π[∇k] on average. We enumerate it.
#
# **Write down:** Which of k1, k2, k3 has the mean KL(π || π_ref)? For which is E[∇k] the gradient of KL? Which of them,
# as a loss, leaves π where it is?

# %%
z = torch.tensor([1.5, 0.5, 0.0, -1.0, -2.0], dtype=torch.float64)
reference = torch.tensor([0.0, 1.0, 0.5, -0.5, 0.0], dtype=torch.float64).log_softmax(-1)


def kl_and_gradient(z):
    """KL(π || π_ref), and its gradient by the logits."""
    z = z.detach().requires_grad_()
    kl = (z.softmax(-1) * (z.log_softmax(-1) - reference)).sum()
    return kl.item(), torch.autograd.grad(kl, z)[0]


def mean_and_gradient(z, k):
    """E_π[k] and E_π[∇k]: the probabilities of the samples have no gradient."""
    z = z.detach().requires_grad_()
    mean = z.softmax(-1).detach() @ L.KL[k](z.log_softmax(-1), reference)
    return mean.item(), torch.autograd.grad(mean, z)[0]


kl, right = kl_and_gradient(z)
error = {}
print(f"KL = {kl:.3f}, its gradient {right.numpy().round(3)}\n     E[k]  E[∇k]")
for k in L.KL:
    mean, gradient = mean_and_gradient(z, k)
    print(f"{k} {mean:7.3f}  {gradient.numpy().round(3)}")
    error[k] = ((gradient - right).norm() / right.norm()).item()
for k in L.KL:
    compare(f"{k}: |E[∇k] - ∇KL| / |∇KL|", error[k])
    moving = z.clone()
    for _ in range(60):
        moving -= 0.5 * mean_and_gradient(moving, k)[1]
    print(f"{k}: KL after 60 steps of gradient descent {kl_and_gradient(moving)[0]:.4f}")
ask()

# %% [markdown]
# **Why** is E[∇k1] = 0 for every π? (Write the sum, then use that probabilities add up to 1.) k3 brings π to the
# reference too: the gradient of which KL is E[∇k3]?
