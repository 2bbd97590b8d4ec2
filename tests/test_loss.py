"""Section 3.1 by literal numbers, loops, autograd, exact enumeration, and TRL as the referee."""

import math
import os
import types
from unittest.mock import MagicMock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import loss as L

torch.manual_seed(0)


def tensor(*x):
    return torch.tensor(x, dtype=torch.float64)


def random_tokens(t=60, seed=0):
    """Log-probs of five policies that differ enough for every clip to act, and advantages of both signs."""
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(t, generator=g, dtype=torch.float64) * 3 - 0.1
    noise = [torch.randn(t, generator=g, dtype=torch.float64) * 0.4 for _ in range(3)]
    return logp, logp + noise[0], logp + noise[0] + noise[1], logp + noise[2], torch.randn(t, generator=g).double()


CLIP = {"clip_low": 0.2, "clip_high": 0.27, "tis_cap": 2.0}

# ----------------------------------------------------------------------- dynamic sampling, advantages


def test_dynamic_sampling_keeps_mixed_groups_only():
    """Makes impossible: keeping a group without signal, or dropping one whose only correct rollout is rare."""
    correct = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
    assert L.informative(correct).tolist() == [False, True, True, False]


def test_dynamic_sampling_counts_verdicts_not_rewards():
    """Makes impossible: judging by std > 0 or 0 < mean < 1, which an all-0.5 group or shaped rewards fool."""
    with pytest.raises(ValueError, match="must be bool"):
        L.informative(torch.tensor([[0.5, 0.5]]))


def test_group_advantage_by_hand():
    """Makes impossible: centring over the batch, or dividing by the group's std, in the first half."""
    got = L.group_advantages(tensor([1, 0, 0, 0], [1, 1, 1, 0]))
    assert got.tolist() == [[0.75, -0.25, -0.25, -0.25], [0.25, 0.25, 0.25, -0.75]]


def test_whitening_by_hand():
    """Makes impossible: another ddof, a missing mean, std in place of variance.

    The two groups above: mean 0, mean square (9 + 1+1+1 + 1+1+1 + 9)/16/8 = 24/128, std = sqrt(3)/4.
    """
    a = tensor([0.75, -0.25, -0.25, -0.25], [0.25, 0.25, 0.25, -0.75])
    got = L.whiten(a, L.moments(a), eps=0)
    torch.testing.assert_close(got, a * 4 / math.sqrt(3), rtol=1e-14, atol=0)
    shifted = tensor(1, 2, 3, 6)  # mean 3, population variance (4 + 1 + 0 + 9)/4 = 3.5
    torch.testing.assert_close(L.whiten(shifted, L.moments(shifted), eps=0), (shifted - 3) / math.sqrt(3.5))


def test_whitening_is_over_all_processes():
    """Makes impossible: a process that whitens with its own mean and std (the moments must add up)."""
    a = torch.randn(6, 8, dtype=torch.float64)
    parts = [L.whiten(part, L.moments(a[:2]) + L.moments(a[2:])) for part in (a[:2], a[2:])]
    torch.testing.assert_close(torch.cat(parts), L.whiten(a, L.moments(a)), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(torch.cat(parts).mean(), tensor(0.0)[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.cat(parts).std(correction=0), tensor(1.0)[0], atol=1e-7, rtol=0)


def test_equal_rewards_give_zero_advantage_not_infinity():
    """Makes impossible: 0/0 when a whole step has one reward, in float32 too."""
    a = L.group_advantages(torch.full((3, 4), 0.1))
    assert L.whiten(a, L.moments(a)).abs().max() < 1e-6


def test_an_empty_process_adds_nothing():
    """Makes impossible: NaN moments from a process whose prompts were all filtered."""
    assert L.moments(torch.zeros(0, 4)).tolist() == [0, 0, 0]


# ------------------------------------------------------------------------------ the clipped objective


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


def test_importance_ratio_by_hand():
    """Makes impossible: the ratio upside down."""
    assert L.importance_ratio(tensor(math.log(0.6)), tensor(math.log(0.2))).item() == pytest.approx(3)


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


def test_loss_against_a_loop():
    """Makes impossible: TIS times the KL term, a sign, a sum over the wrong tokens; written out once more."""
    logp, old, engine, ref, adv = random_tokens()
    for kl in ("k1", "k2", "k3"):
        want = 0.0
        for t in range(len(logp)):
            r, w = math.exp(logp[t] - old[t]), min(math.exp(old[t] - engine[t]), 2.0)
            objective = min(r * adv[t], max(0.8, min(1.27, r)) * adv[t])
            d = float(logp[t] - ref[t])
            penalty = {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[kl]
            want += (-w * float(objective) + 0.3 * penalty) / 77
        got, _ = L.policy_loss(logp, old, engine, ref, adv, 77, **CLIP, kl=kl, kl_coef=0.3)
        assert got.item() == pytest.approx(want, rel=1e-12)


def test_loss_is_zero_on_policy_but_its_gradient_is_not():
    """Makes impossible: "the loss is 0, is it broken?", and a detached or constant objective."""
    logp = random_tokens(8)[0].requires_grad_()
    advantages = tensor(1, 1, -1, -1, 0.5, -0.5, 2, -2)
    value, _ = L.policy_loss(logp, logp.detach(), logp.detach(), None, advantages, 8, **CLIP)
    value.backward()
    assert value.item() == 0.0
    torch.testing.assert_close(logp.grad, -advantages / 8)  # -(1/T) Σ A ∇ log π


def test_loss_does_not_depend_on_the_split_into_micro_batches():
    """Makes impossible: normalising by a micro-batch's own tokens, the field's most repeated bug."""
    whole = random_tokens()
    value, _ = L.policy_loss(*whole, 60, **CLIP, kl_coef=0.1)
    parts = [[x[s] for x in whole] for s in (slice(0, 7), slice(7, 31), slice(31, 60))]
    split = sum(L.policy_loss(*part, 60, **CLIP, kl_coef=0.1)[0] for part in parts)
    torch.testing.assert_close(split, value, rtol=1e-13, atol=0)


def test_missing_reference_is_named():
    """Makes impossible: a KL term silently left out."""
    logp, old, engine, _, adv = random_tokens()
    with pytest.raises(ValueError, match=r"kl_coef=0\.1 needs a reference"):
        L.policy_loss(logp, old, engine, None, adv, 60, **CLIP, kl_coef=0.1)


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
    logp, old, engine, ref, _ = random_tokens(28)
    logp, old, engine, ref = (x.view(4, 7) for x in (logp, old, engine, ref))
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
    ours, _ = L.policy_loss(
        flat, old[inside], engine[inside], ref[inside], advantages.repeat_interleave(lengths), int(inside.sum()),
        **CLIP, kl="k3", kl_coef=0.3,
    )  # fmt: skip
    ours.backward()
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(flat.grad, leaf.grad[inside], rtol=1e-12, atol=1e-15)


def test_metrics_by_hand():
    """Makes impossible: the two clip fractions swapped or counted where the clip takes no gradient; NLL as entropy."""
    ratio = tensor(1.5, 1.5, 0.5, 0.5, 1.0)
    adv = tensor(1, -1, 1, -1, 1)
    logp = tensor(-1, -2, -3, -4, -5)
    old = logp - ratio.log()
    engine = old - tensor(3, 1, 1, 1, 0.5).log()
    m = L.token_metrics(logp, old, engine, logp + 1, adv, 0.2, 0.27, 2.0)
    assert m["clip_high_fraction"] == 1 and m["clip_low_fraction"] == 1 and m["tis_capped_fraction"] == 1
    assert m["ratio"].item() == pytest.approx(5.0)
    assert (m["ratio_max"].item(), m["ratio_min"].item()) == pytest.approx((1.5, 0.5))
    assert m["engine_ratio"].item() == pytest.approx(6.5)
    assert (m["engine_ratio_max"].item(), m["engine_ratio_min"].item()) == pytest.approx((3.0, 0.5))
    assert m["nll"].item() == pytest.approx(15)
    assert m["kl_ref"].item() == pytest.approx(5 * (math.e - 2))  # k3 at δ = -1
    # k3(log π_old, log π_θ) = r - 1 - log r
    want = sum(r - 1 - math.log(r) for r in ratio.tolist())
    assert m["kl_old"].item() == pytest.approx(want)
    want = sum(r - 1 - math.log(r) for r in (3, 1, 1, 1, 0.5))
    assert m["engine_kl"].item() == pytest.approx(want)


# ------------------------------------------------------------------------- which tokens, which log-probs


def test_an_eos_that_equals_pad_is_trained_on():
    """Makes impossible: masks from token values. Rows: prompt 2 + response 3, prompt 3 + response 1; EOS = PAD = 0."""
    tokens = torch.tensor([[5, 6, 7, 8, 0, 0], [5, 6, 7, 0, 0, 0]])
    at = L.response_positions(torch.tensor([2, 3]), torch.tensor([3, 1]), 6)
    assert at.tolist() == [[False, True, True, True, False, False], [False, False, True, False, False, False]]
    assert tokens.roll(-1, dims=1)[at].tolist() == [7, 8, 0, 0]  # both EOS are targets, no padding is


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("max_logits", [1, 50 * 8, 50 * 37, 2**26])
def test_token_logprobs_against_the_plain_way(dtype, with_bias, max_logits):
    """Makes impossible: a wrong sign or scale in the hand-written backward, at any chunk, temperature included."""
    h = torch.randn(37, 16, dtype=dtype, requires_grad=True)
    w = torch.randn(50, 16, dtype=dtype, requires_grad=True)
    b = torch.randn(50, dtype=dtype, requires_grad=True) if with_bias else None
    y, g, leaves = torch.randint(50, (37,)), torch.randn(37, dtype=dtype), [h, w] + [b] * with_bias
    logp, entropy = L.token_logprobs(h, w, y, 0.7, b, max_logits=max_logits)
    ours = torch.autograd.grad((logp * g).sum(), leaves)
    z = ((h @ w.T) + (b if with_bias else 0)) / 0.7
    plain = z.log_softmax(-1)
    theirs = torch.autograd.grad((plain.gather(-1, y[:, None]).squeeze(-1) * g).sum(), leaves)
    tight = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(logp, plain.gather(-1, y[:, None]).squeeze(-1), **tight)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1), **tight)
    assert not entropy.requires_grad
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, c, **tight)


def test_token_logprobs_passes_gradcheck():
    """Makes impossible: a backward that is only right for the sum it was tested with."""
    h, w = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 9))
    y = torch.randint(9, (5,))
    assert torch.autograd.gradcheck(lambda h, w: L.token_logprobs(h, w, y, 1.3, max_logits=18)[0], (h, w))


def test_token_logprobs_in_bfloat16_accumulates_in_float32():
    """Makes impossible: a log-sum-exp in half precision."""
    h, w, y = torch.randn(20, 32).bfloat16(), torch.randn(1000, 32).bfloat16(), torch.randint(1000, (20,))
    logp, _ = L.token_logprobs(h, w, y)
    want = (h @ w.T).float().log_softmax(-1).gather(-1, y[:, None]).squeeze(-1)
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, want, rtol=1e-5, atol=1e-5)


class Largest(TorchDispatchMode):
    """The most elements that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


def test_logits_never_exist_at_once():
    """Makes impossible: a [T, V] tensor in either pass: here T·V = 64,000 and 8,000 are allowed."""
    h = torch.randn(64, 4, requires_grad=True)
    w = torch.randn(1000, 4, requires_grad=True)
    with Largest() as largest:
        logp, _ = L.token_logprobs(h, w, torch.randint(1000, (64,)), max_logits=8000)
        logp.sum().backward()
    assert largest.numel == 8000


def test_no_tokens_is_not_an_error():
    """Makes impossible: a crash on a micro-batch without response tokens."""
    logp, entropy = L.token_logprobs(torch.zeros(0, 4), torch.zeros(9, 4), torch.zeros(0, dtype=torch.long))
    assert logp.shape == entropy.shape == (0,)


@pytest.mark.parametrize(
    ("hidden", "temperature", "says"),
    [(torch.zeros(2, 3, 4), 1.0, "hidden \\(T, H\\)"), (torch.zeros(3, 4), 0.0, "temperature=0.0")],
)
def test_wrong_shapes_and_temperatures_are_named(hidden, temperature, says):
    """Makes impossible: a broadcast that scores the wrong tokens, a division by zero."""
    with pytest.raises(ValueError, match=says):
        L.token_logprobs(hidden, torch.zeros(9, 4), torch.zeros(3, dtype=torch.long), temperature)
