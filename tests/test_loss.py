"""Section 3.1 by literal numbers, loops, autograd, exact enumeration, and TRL as the referee."""

import inspect
import math
import os
import textwrap
import types
from unittest.mock import MagicMock

import pytest
import torch

import loss as L

torch.manual_seed(0)


def tensor(*x):
    return torch.tensor(x, dtype=torch.float64)


def random_tokens(t=60, seed=0):
    """Four policies' log-probs that differ enough for every clip to act; advantages of both signs; one token each."""
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(t, generator=g, dtype=torch.float64) * 3 - 0.1
    noise = [torch.randn(t, generator=g, dtype=torch.float64) * 0.4 for _ in range(3)]
    advantages = torch.randn(t, generator=g).double()
    return logp, logp + noise[0], logp + noise[0] + noise[1], logp + noise[2], advantages, torch.ones(t).long()


def policy_loss(logp, old, engine, ref, advantages, lengths, tokens, kl="k2", kl_coef=0.0, **parameters):
    objective = L.Objective(kl=L.KL[kl]).having(**parameters)
    return L.policy_loss(
        L.Tokens(logp, old, engine, ref, advantages, lengths), tokens, len(lengths), objective, kl_coef
    )


def test_dynamic_sampling_keeps_mixed_groups_only():
    """Makes impossible: a group without signal that is kept, N and P confused, rewards in place of verdicts."""
    correct = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
    assert L.informative(correct).tolist() == [False, True, True, False]
    assert L.informative(correct[:, :3]).tolist() == [False, True, True, False]
    with pytest.raises(ValueError, match="bool"):  # std > 0 or 0 < mean < 1 would keep a group of equal shaped rewards
        L.informative(torch.tensor([[0.5, 0.5]]))


def test_group_advantage_by_hand():
    """Makes impossible: centring over the batch, or dividing by the group's std, in the first half."""
    got = L.mean_centred(tensor([1, 0, 0, 0], [1, 1, 1, 0]))
    assert got.tolist() == [[0.75, -0.25, -0.25, -0.25], [0.25, 0.25, 0.25, -0.75]]


def test_whitening_cancels_a_factor_that_all_groups_share():
    """Makes impossible: a kind taken for the paper's that trains otherwise; a leave-one-out baseline that would differ.

    Rewards -1 and 1 train as 0 and 1 do.
    """
    rewards = (torch.rand(6, 8, generator=torch.Generator().manual_seed(0)) < 0.4).double()

    paper = L.whiten(L.mean_centred(rewards), eps=0)
    others = [L.whiten(kind(rewards), eps=0) for kind in (L.group_std, L.group_mean)]
    assert not any(torch.allclose(other, paper) for other in others)
    leave_one_out = rewards - (rewards.sum(-1, keepdim=True) - rewards) / 7
    torch.testing.assert_close(L.whiten(leave_one_out, eps=0), paper)
    torch.testing.assert_close(L.whiten(L.mean_centred(2 * rewards - 1), eps=0), paper)


@pytest.mark.parametrize("p", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("n", [2, 5, 8])
def test_what_a_prompt_weighs_by_enumeration(p, n):
    """Makes impossible: an advantage that follows another gradient than its docstring says.

    Three answers by a softmax, the first one right: all 3^N groups, E[(1/N) Σ A ∇log π] against w_N ∇p.
    """
    z = torch.log(tensor(p, 0.7 * (1 - p), 0.3 * (1 - p))).requires_grad_()
    pi = z.softmax(-1)
    (slope,) = torch.autograd.grad(pi[0], z)
    score = torch.eye(3, dtype=torch.float64) - pi.detach()  # row y: ∇log π(y)
    groups = torch.cartesian_prod(*[torch.arange(3)] * n)  # (3^N, N)
    chance = pi.detach()[groups].prod(-1)
    counts = range(n + 1)
    binomial = {k: math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in counts}
    weights = {
        "mean_centred": 1 - 1 / n,
        "group_std": sum(binomial[k] * math.sqrt(k / n * (1 - k / n)) for k in counts) / (p * (1 - p)),
        "group_mean": (1 - (1 - p) ** (n - 1)) / p,
    }
    for kind, weight in weights.items():
        advantages = getattr(L, kind)((groups == 0).double())
        got = torch.einsum("g,gi,gij->j", chance, advantages, score[groups]) / n
        torch.testing.assert_close(got, weight * slope, rtol=1e-6, atol=1e-9)


def test_masked_rollouts_are_in_no_mean():
    """Makes impossible: a baseline, a spread or a verdict of rollouts that are not trained on (--truncated mask).

    By hand: the first group counts rewards 1 and 0, mean ½; the second 1, 0, 0, mean ⅓; the third only right ones.
    """
    correct = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.bool)
    counted = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)
    assert L.informative(correct, counted).tolist() == [True, True, False]
    assert L.informative(correct).tolist() == [True, True, True]
    rewards, nan = correct.double(), float("nan")
    half, third = [0.5, -0.5, nan, nan], [2 / 3, -1 / 3, -1 / 3, nan]
    masked = rewards.masked_fill(~counted, nan)[:2]
    got = {kind: getattr(L, kind)(masked) for kind in ("mean_centred", "group_std", "group_mean")}
    want = torch.tensor([half, third], dtype=torch.float64)
    torch.testing.assert_close(got["mean_centred"], want, equal_nan=True)
    torch.testing.assert_close(
        got["group_mean"], want / torch.tensor([[1 / 2], [1 / 3]]), equal_nan=True, rtol=1e-6, atol=0
    )
    torch.testing.assert_close(
        got["group_std"], want / torch.tensor([[1 / 2], [2**0.5 / 3]]), equal_nan=True, rtol=1e-6, atol=0
    )
    kept = L.informative(correct, counted)
    advantages = L.step_advantages(rewards, kept, counted)
    assert torch.equal(~advantages.isnan(), kept[:, None] & counted)
    whitened = advantages[~advantages.isnan()]
    assert whitened.mean().item() == pytest.approx(0, abs=1e-12)
    assert whitened.std(correction=0).item() == pytest.approx(1, abs=1e-7)


def test_log_pi_of_a_token_by_hand():
    """Makes impossible: a token's log-prob at another temperature, of another token, or with the wrong sign.

    Logits log 1, log 2, log 5 at temperature 1: probabilities 1/8, 2/8, 5/8. At ½ they are squared: 1, 4, 25 of 30.
    """
    logits, tokens = torch.tensor([[1.0, 2.0, 5.0]] * 2, dtype=torch.float64).log(), torch.tensor([1, 2])
    assert L.token_logprobs(logits, tokens, 1.0).exp().tolist() == pytest.approx([2 / 8, 5 / 8])
    assert L.token_logprobs(logits, tokens, 0.5).exp().tolist() == pytest.approx([4 / 30, 25 / 30])
    assert L.token_logprobs(logits.bfloat16(), tokens, 1.0).dtype == torch.float32


def test_whitening_by_hand():
    """Makes impossible: another ddof, a missing mean, std in place of variance, dropped groups in the batch, a float32
    mean.

    The two groups above: mean 0, mean square (9 + 1+1+1 + 1+1+1 + 9)/16/8 = 24/128, std = sqrt(3)/4.
    """
    a = tensor([0.75, -0.25, -0.25, -0.25], [0.25, 0.25, 0.25, -0.75])
    torch.testing.assert_close(L.whiten(a, eps=0), a * 4 / math.sqrt(3), rtol=1e-14, atol=0)
    with_dropped = torch.cat([a, torch.full((2, 4), float("nan"))])
    torch.testing.assert_close(L.whiten(with_dropped, eps=0)[:2], a * 4 / math.sqrt(3))
    shifted = tensor([1, 2], [3, 6])  # mean 3, population variance (4 + 1 + 0 + 9)/4 = 3.5
    torch.testing.assert_close(L.whiten(shifted, eps=0), (shifted - 3) / math.sqrt(3.5))
    small, unit = tensor([1e-8], [-1e-8]), tensor([1], [-1])  # ε is added to the std; its default is 1e-8
    torch.testing.assert_close(L.whiten(small), tensor([0.5], [-0.5]))
    torch.testing.assert_close(L.whiten(unit, eps=1.0), tensor([0.5], [-0.5]))
    rounded = L.whiten(torch.tensor([[2.0**24], [2.0**24 + 2]]))  # the mean 2²⁴ + 1 is not a float32
    assert rounded.dtype == torch.float32 and rounded.flatten().tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.5, 2.0, 2.54, 0.0),  # above 1.27 and A > 0: clipped, no gradient
        (1.5, -2.0, -3.0, -2.0),  # above 1.27 and A < 0: the pessimistic branch is the unclipped one
        (0.5, 2.0, 1.0, 2.0),  # below 0.8 and A > 0: unclipped
        (0.5, -2.0, -1.6, 0.0),  # below 0.8 and A < 0: clipped, no gradient
        (1.25, 2.0, 2.5, 2.0),  # inside the upper range, beyond a symmetric 0.2
        (0.79, -1.0, -0.8, 0.0),
    ],
)
def test_clipped_objective_by_hand(ratio, advantage, value, slope):
    """Makes impossible: max for min, the two ranges swapped, a symmetric clip, gradient through the clip."""
    r = torch.tensor(ratio, dtype=torch.float64, requires_grad=True)
    got = L.clipped_objective(r, torch.tensor(advantage, dtype=torch.float64), 0.2, 0.27)
    got.backward()
    assert got.item() == pytest.approx(value, rel=1e-15) and r.grad.item() == pytest.approx(slope)


def test_truncated_importance_weight_by_hand():
    """Makes impossible: engine and trainer swapped, a cap from below, a gradient through the weight."""
    old = tensor(math.log(0.6), math.log(0.1), math.log(0.9)).requires_grad_()
    w = L.truncated_importance_weight(old, tensor(math.log(0.4), math.log(0.5), math.log(0.3)), 2.0)
    torch.testing.assert_close(w, tensor(1.5, 0.2, 2.0))
    assert not w.requires_grad


def test_kl_estimators_by_hand():
    """Makes impossible: δ with the wrong sign (k2 does not care, k1 and k3 do), a lost half in k2.

    π = 1/2, π_ref = 1/4: δ = ln 2; k1 = ln 2, k2 = ½ ln² 2, k3 = 1/2 - 1 + ln 2.
    """
    a, b, ln2 = tensor(math.log(0.5)), tensor(math.log(0.25)), math.log(2)
    assert L.kl_k1(a, b).item() == pytest.approx(ln2)
    assert L.kl_k2(a, b).item() == pytest.approx(0.5 * ln2**2)
    assert L.kl_k3(a, b).item() == pytest.approx(ln2 - 0.5)
    near = L.kl_k3(torch.tensor([1e-4, -1e-4]), torch.zeros(2))  # in float32 e^-δ - 1 + δ is noise of 6e-8 here
    assert near.tolist() == pytest.approx([5e-9, 5e-9], rel=1e-2)


def test_kl_estimators_by_exact_expectation():
    """Makes impossible: an estimator that is biased as a value (k1, k3), or a loss term that is (k2).

    Over a softmax of 7 tokens expectations are sums. As a value, E k1 = E k3 = KL. As a loss, the sample is
    fixed and only the estimator is differentiated: E ∇k2 = ∇KL, while E ∇k1 = 0 and E ∇k3 is another direction.
    """
    z, ref = torch.randn(7, dtype=torch.float64), torch.randn(7, dtype=torch.float64).log_softmax(-1)

    def gradient(f):
        x = z.clone().requires_grad_()
        f(x.log_softmax(-1)).backward()
        return x.grad

    p = z.softmax(-1)
    kl = (p * (p.log() - ref)).sum()
    for estimator in (L.kl_k1, L.kl_k3):
        torch.testing.assert_close((p * estimator(p.log(), ref)).sum(), kl)
    true = gradient(lambda logp: (logp.exp() * (logp - ref)).sum())
    torch.testing.assert_close(gradient(lambda logp: (p * L.kl_k2(logp, ref)).sum()), true)
    assert gradient(lambda logp: (p * L.kl_k1(logp, ref)).sum()).abs().max() < 1e-14
    assert (gradient(lambda logp: (p * L.kl_k3(logp, ref)).sum()) - true).abs().max() > 1e-2


@pytest.mark.parametrize("chosen", [{}, {"kl": "k1"}, {"kl": "k2"}, {"kl": "k3"}], ids=str)
def test_loss_against_a_loop(chosen):
    """Makes impossible: TIS times the KL term, a sign, another default than k2, a gradient through the weight or clip.

    ∂L/∂log π_t = [ -w r A 1[not clipped] + β {1, δ, 1 - e^-δ} ] / 77.
    """
    logp, old, engine, ref, adv, ones = random_tokens()
    kl, want, gradient = chosen.get("kl", "k2"), 0.0, []
    for t in range(len(logp)):
        r, w, a = math.exp(logp[t] - old[t]), min(math.exp(old[t] - engine[t]), 2.0), adv[t].item()
        d = (logp[t] - ref[t]).item()
        penalty = {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[kl]
        want += (-w * min(r * a, max(0.8, min(1.27, r)) * a) + 0.3 * penalty) / 77
        clipped = (r > 1.27 and a > 0) or (r < 0.8 and a < 0)
        slope = {"k1": 1.0, "k2": d, "k3": 1 - math.exp(-d)}[kl]
        gradient.append((-w * r * a * (not clipped) + 0.3 * slope) / 77)
    leaf = logp.clone().requires_grad_()
    got, _ = policy_loss(leaf, old, engine, ref, adv, ones, 77, **chosen, kl_coef=0.3)
    got.backward()
    assert got.item() == pytest.approx(want, rel=1e-12)
    torch.testing.assert_close(leaf.grad, tensor(*gradient), rtol=1e-12, atol=1e-15)


def test_loss_is_zero_on_policy_but_its_gradient_is_not():
    """Makes impossible: "the loss is 0, is it broken?", and a detached or constant objective."""
    logp = random_tokens(8)[0].requires_grad_()
    advantages = tensor(1, 1, -1, -1, 0.5, -0.5, 2, -2)
    value, _ = policy_loss(logp, logp.detach(), logp.detach(), None, advantages, torch.ones(8).long(), 8)
    value.backward()
    assert value.item() == 0.0
    torch.testing.assert_close(logp.grad, -advantages / 8)  # -(1/T) Σ A ∇ log π


def test_loss_does_not_depend_on_the_split_into_micro_batches():
    """Makes impossible: normalising by a micro-batch's own tokens, the field's most repeated bug."""
    whole = random_tokens()
    value, _ = policy_loss(*whole, 60, kl_coef=0.1)
    parts = [[x[s] for x in whole] for s in (slice(0, 7), slice(7, 31), slice(31, 60))]
    split = sum(policy_loss(*part, 60, kl_coef=0.1)[0] for part in parts)
    torch.testing.assert_close(split, value, rtol=1e-13, atol=0)


def test_the_example_of_the_docstring_runs():
    """Makes impossible: a docstring's example that fails, or whose gradient is not what its last comment says."""
    _, _, example = inspect.cleandoc(L.policy_loss.__doc__).rpartition("\n\n")
    exec(textwrap.dedent(example), found := {})
    torch.testing.assert_close(found["logp"].grad, -torch.tensor([0.5, 0.5, 0.5, -0.5, -0.5]) / 5)


def test_a_token_mean_has_the_direction_of_the_trajectory_mean():
    """Makes impossible: a loss that weighs a rollout by its length otherwise than the paper's E_τ does at r = 1.

    Lengths 1 to 120, a softmax of 7 tokens a place: ours is E_τ's gradient times S / ΣT, GRPO's has another direction.
    """
    g = torch.Generator().manual_seed(0)
    lengths = torch.arange(1, 121)
    advantages = torch.randn(120, generator=g, dtype=torch.float64)
    z = torch.randn(120, 7, generator=g, dtype=torch.float64).requires_grad_()
    place = torch.cat([torch.arange(n) for n in lengths])
    tokens = z.detach().softmax(-1)[place].multinomial(1, generator=g)
    logp = z.log_softmax(-1)[place].gather(-1, tokens).squeeze(-1)
    trajectory = torch.stack([x.sum() for x in logp.split(lengths.tolist())])  # log π(τ)

    def gradient(x):
        return torch.autograd.grad(x, z, retain_graph=True)[0].flatten()

    old = logp.detach()
    ours, _ = policy_loss(logp, old, old, None, advantages, lengths, len(logp))
    paper = gradient(-(advantages * (trajectory - trajectory.detach()).exp()).mean())  # r(τ) of whole trajectories
    torch.testing.assert_close(gradient(ours), paper * 120 / len(logp), rtol=1e-12, atol=1e-15)
    grpo = gradient(-(advantages * trajectory / lengths).mean())
    assert torch.cosine_similarity(gradient(ours), paper, 0) > 1 - 1e-12
    assert torch.cosine_similarity(gradient(ours), grpo, 0) < 0.8


def test_trl_agrees():
    """Makes impossible: a private reading of the formulas. TRL's own loss on the same tensors (DAPO, k3, TIS).

    TRL works on padded rows with a mask; ours gets the same tokens laid end to end.
    """
    if os.environ.get("BRORL_REFEREES"):  # set where TRL was installed: there it may not be skipped
        import trl.trainer.grpo_trainer as trl
    else:
        trl = pytest.importorskip("trl.trainer.grpo_trainer", reason="pip install trl==1.16.0 to let TRL referee")
    lengths = torch.tensor([5, 2, 7, 4])
    inside = torch.arange(7) < lengths[:, None]
    logp, old, engine, ref = (x.view(4, 7) for x in random_tokens(28)[:4])
    advantages = tensor(1.3, -0.4, 0.2, -1.1)
    leaf = logp.clone().requires_grad_()

    me = MagicMock()
    me._get_per_token_logps_and_entropies = lambda *a, **k: (leaf, torch.zeros_like(leaf), None)
    me.top_entropy_quantile, me.off_policy_mask_threshold, me.importance_sampling_level = 1.0, None, "token"
    me.loss_type, me.beta, me.epsilon_low, me.epsilon_high = "dapo", 0.3, 0.2, 0.27
    me.use_vllm = me.vllm_importance_sampling_correction = True
    me._entropy_bonus_enabled = me.aux_loss_enabled = False
    me.args = types.SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1)
    me.accelerator.gather = lambda x: x
    me.model.training, me.accelerator.num_processes, me.current_gradient_accumulation_steps = True, 1, 1
    inputs = {
        "prompt_ids": torch.zeros(4, 1, dtype=torch.long),
        "prompt_mask": torch.ones(4, 1, dtype=torch.long),
        "completion_ids": torch.zeros(4, 7, dtype=torch.long),
        "completion_mask": inside.long(),
        "advantages": advantages,
        "old_per_token_logps": old,
        "ref_per_token_logps": ref,
        "importance_sampling_ratio": torch.exp(old - engine).clamp(max=2.0),
        "num_items_in_batch": torch.tensor(float(inside.sum())),
    }
    theirs = trl.GRPOTrainer._compute_loss(me, me.model, inputs)
    theirs.backward()

    flat = logp[inside].clone().requires_grad_()
    ours, _ = policy_loss(
        flat, old[inside], engine[inside], ref[inside], advantages, lengths, int(inside.sum()),
        kl="k3", kl_coef=0.3,
    )  # fmt: skip
    ours.backward()
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(flat.grad, leaf.grad[inside], rtol=1e-12, atol=1e-15)


def test_metrics_by_hand():
    """Makes impossible: clip fractions swapped or counted where the clip takes no gradient, an extreme of ρ as r's."""
    ratio = tensor(1.5, 1.5, 1.5, 1.25, 0.4, 0.4, 0.4, 0.77, 1.0)  # clipped: the first, where A > 0, ...
    adv = tensor(1, -1, 0, 1, 1, -1, 0, -1, 1)  # ... and below 0.8 the two where A < 0
    logp = -torch.arange(1, 10, dtype=torch.float64)
    old = logp - ratio.log()
    engine_ratio = tensor(3, 1, 1, 1, 1, 1, 1, 1, 0.5)
    ones = torch.ones(9).long()
    m = L.token_metrics(L.Tokens(logp, old, old - engine_ratio.log(), logp + 1, adv, ones))
    assert (m["clip_high_fraction"], m["clip_low_fraction"], m["tis_capped_fraction"]) == (1, 2, 1)
    assert m["ratio"].item() == pytest.approx(8.72) and m["engine_ratio"].item() == pytest.approx(10.5)
    assert m.keys() > L.MAXIMA | L.MINIMA and not L.MAXIMA & L.MINIMA
    assert (m["ratio_max"].item(), m["ratio_min"].item()) == pytest.approx((1.5, 0.4))
    assert (m["engine_ratio_max"].item(), m["engine_ratio_min"].item()) == pytest.approx((3.0, 0.5))
    assert m["engine_difference"].item() == pytest.approx(math.log(3) + math.log(2))  # |log 0.5| counts up
    assert m["engine_difference_max"].item() == pytest.approx(math.log(3))
    assert m["nll"].item() == pytest.approx(45)
    assert m["kl_ref"].item() == pytest.approx(9 * (math.e - 2))  # k3 at δ = -1
    for name, ratios in (("kl_old", ratio), ("engine_kl", engine_ratio)):  # k3(log π_old, log π_θ) = r - 1 - log r
        assert m[name].item() == pytest.approx((ratios - 1 - ratios.log()).sum().item())
    zero = tensor(0, 0)  # with ε = 0 and C = 1, r = 1 and ρ = 1 lie on every bound: nothing is taken there
    strict = L.OBJECTIVES["brorl"].having(clip_low=0.0, clip_high=0.0, tis_cap=1.0)
    m = L.token_metrics(L.Tokens(zero, zero, zero, None, tensor(1, -1), ones[:2]), strict)
    assert (m["clip_high_fraction"], m["clip_low_fraction"], m["tis_capped_fraction"]) == (0, 0, 0)


def test_the_loss_reports_the_metrics_of_its_own_tokens():
    """Makes impossible: policies or clips swapped on the way to `token_metrics`, a lost kl_ref, a graph kept alive, a
    KL term that is left out for want of a reference.
    """
    logp, old, engine, ref, adv, ones = random_tokens()
    _, got = policy_loss(logp.clone().requires_grad_(), old, engine, ref, adv, ones, 60)
    assert got == L.token_metrics(L.Tokens(logp, old, engine, ref, adv, ones))
    assert not any(x.requires_grad for x in got.values())
    with pytest.raises(ValueError, match="kl_coef"):
        policy_loss(logp, old, engine, None, adv, ones, 60, kl_coef=0.1)
