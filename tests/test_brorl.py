"""brorl.py against hand-worked numbers, autograd, a real finite step, enumeration and Monte Carlo.

The ladder: literals, batches against loops, autograd, the true softmax step, 10,000 random cases,
all V^N draws and Monte Carlo, pass@k, the recipes, wrong use. The first line of a test says which
mistake it makes impossible.

The hand-worked case, with p in sixteenths so that every number below is exact in float32:

    token     0          1         2           3
    p         8/16       4/16      3/16        1/16
    correct   no         yes       no          yes
    drawn     yes        yes       no          no

    P_pos = 4/16    P_neg = 8/16    Q_pos = (4+1)/16 = 5/16     Q_neg = (8+3)/16 = 11/16
    A_2 = 16/256    B_2 = 64/256    U_pos2 = 1/256              U_neg2 = 9/256
"""

import itertools
import math
import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from softmax_cases import REWARDS, drawn_mask, gradient_step, random_case, rewards_pairs, shapes

import brorl
from train import Config

DTYPES = [torch.float32, torch.float64]
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
devices = pytest.mark.parametrize("device", DEVICES)


def worked(dtype: torch.dtype = torch.float64, device: str = "cpu"):
    p = torch.tensor([8, 4, 3, 1], dtype=dtype, device=device) / 16
    correct = torch.tensor([False, True, False, True], device=device)
    sampled = torch.tensor([True, True, False, False], device=device)
    return p, correct, sampled


# ------------------------------------------------------------------------------------------ literals


@dtypes
@devices
def test_masses_literal(dtype, device):
    """Makes impossible: a mass summed over the wrong one of the four sets, or over p where p² is meant."""
    m = brorl.masses(*worked(dtype, device))
    literal = {
        "p_pos": 4 / 16,
        "p_neg": 8 / 16,
        "q_pos": 5 / 16,
        "q_neg": 11 / 16,
        "a2": 16 / 256,
        "b2": 64 / 256,
        "u_pos2": 1 / 256,
        "u_neg2": 9 / 256,
    }
    assert m._fields == tuple(literal)
    for name, value in literal.items():
        got = getattr(m, name)
        assert got.item() == value, name
        assert got.dtype == dtype and got.device.type == device and got.shape == ()


@dtypes
def test_mood_literal(dtype):
    """Makes impossible: a flipped sign in S_R, or the two rewards on each other's mass."""
    m = brorl.masses(*worked(dtype))
    assert brorl.mood(m).item() == -1 / 4  # 1 · 4/16 - 1 · 8/16
    assert brorl.mood(m, 3.0, -1.0).item() == 1 / 4  # 3 · 4/16 - 1 · 8/16
    assert brorl.mood(m, 1.0, 0.0).item() == 1 / 4
    assert brorl.mood(m, 0.0, -2.0).item() == -1.0


@dtypes
@devices
def test_token_rewards_literal(dtype, device):
    """Makes impossible: a reward on an undrawn token, or R_c and R_w exchanged."""
    p, correct, sampled = worked(dtype, device)
    r = brorl.token_rewards(p, correct, sampled)
    assert r.tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert r.dtype == dtype and r.device.type == device
    assert brorl.token_rewards(p, correct, sampled, 3.0, -0.5).tolist() == [-0.5, 3.0, 0.0, 0.0]


@dtypes
def test_one_step_literal(dtype):
    """Makes impossible: a wrong sign, a lost η or 1/N, or a lost factor p in L, Δz or Δp.

    R = (-1, 1, 0, 0), S_R = -1/4, η = 1/2, N = 4, so η/N = 1/8.
    L    = -(1/4)(-1/4) = 1/16
    Δz_j = (1/8) p_j (R_j + 1/4) = (1/8) (8·(-3), 4·5, 3·1, 1·1)/64 = (-24, 20, 3, 1)/512
    Σ_j p_j Δz_j = (-24·8 + 20·4 + 3·3 + 1·1)/8192 = -102/8192 = -51/4096
    Δp_i = p_i (Δz_i + 51/4096) = (8·(-141), 4·211, 3·75, 1·59)/65536 = (-1128, 844, 225, 59)/65536
    """
    p, correct, sampled = worked(dtype)
    r = brorl.token_rewards(p, correct, sampled)
    assert brorl.surrogate(p, r, n=4).item() == 1 / 16
    dz = brorl.logit_step(p, r, eta=0.5, n=4)
    assert dz.tolist() == [-24 / 512, 20 / 512, 3 / 512, 1 / 512]
    dp = brorl.probability_step(p, dz)
    assert dp.tolist() == [-1128 / 65536, 844 / 65536, 225 / 65536, 59 / 65536]
    assert dz.dtype == dp.dtype == dtype


@dtypes
@pytest.mark.parametrize(
    ("r_c", "r_w", "terms"),
    [
        # S_R = -1/4: (1 + 1/4)(11/16)(16/256), (-1/4 + 1)(5/16)(64/256), -1/4 (5·9 - 11·1)/4096
        (1.0, -1.0, (55 / 1024, 15 / 256, -17 / 8192)),
        # S_R = +1/4: (3 - 1/4)(11/16)(16/256), (1/4 + 1)(5/16)(64/256), +1/4 (5·9 - 11·1)/4096
        (3.0, -1.0, (121 / 1024, 25 / 256, 17 / 8192)),
        # S_R = +1/4: (1 - 1/4)(11/16)(16/256), (1/4 - 0)(5/16)(64/256), +1/4 (5·9 - 11·1)/4096
        (1.0, 0.0, (33 / 1024, 5 / 256, 17 / 8192)),
        # S_R = -1/2: (0 + 1/2)(11/16)(16/256), (-1/2 + 1)(5/16)(64/256), -1/2 (5·9 - 11·1)/4096
        (0.0, -1.0, (11 / 512, 5 / 128, -17 / 4096)),
    ],
)
def test_theorem_1_literal(dtype, r_c, r_w, terms):
    """Makes impossible: any flipped sign, exchanged moment or lost factor in a term of Theorem 1 (η/N = 1/8)."""
    m = brorl.masses(*worked(dtype))
    balance = brorl.mass_balance(m, eta=0.5, n=4, r_c=r_c, r_w=r_w)
    assert balance.sampled_correct.item() == terms[0] / 8
    assert balance.sampled_incorrect.item() == terms[1] / 8
    assert balance.unsampled_coupling.item() == terms[2] / 8
    assert balance.total.item() == sum(terms) / 8
    assert brorl.unsampled_coupling(m, brorl.mood(m, r_c, r_w)).item() == terms[2]
    assert balance.total.dtype == dtype


def test_theorem_1_is_the_worked_step():
    """Makes impossible: Theorem 1 and Δp agreeing with their own literals but not with each other."""
    balance = brorl.mass_balance(brorl.masses(*worked()), eta=0.5, n=4)
    assert balance.total.item() == (844 + 59) / 65536  # Δp of the correct tokens 1 and 3


@dtypes
def test_a_token_drawn_twice_counts_once(dtype):
    """Makes impossible: A, B and U read as multisets, with p² added once per draw."""
    p, correct, _ = worked(dtype)
    once, twice = torch.tensor([0, 1]), torch.tensor([1, 0, 1, 1, 0])
    m_once = brorl.masses(p, correct, drawn_mask(once, 4))
    m_twice = brorl.masses(p, correct, drawn_mask(twice, 4))
    assert m_once == m_twice
    assert m_twice.a2.item() == 16 / 256 and m_twice.b2.item() == 64 / 256
    assert brorl.token_rewards(p, correct, drawn_mask(twice, 4)).tolist() == [-1.0, 1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="sampled"):
        brorl.masses(p, correct, torch.bincount(twice, minlength=4))


# ------------------------------------------------------------------------------ batches, dtype, device


@dtypes
@shapes
def test_a_batch_is_a_loop_over_its_rows(shape, dtype):
    """Makes impossible: a sum over a batch dimension, a wrong output shape, or a silent change of dtype."""
    vocab = 7
    _, p, correct, sampled = random_case(shape, vocab, n=5, seed=3, dtype=dtype)

    def everything(p, correct, sampled):
        m = brorl.masses(p, correct, sampled)
        r = brorl.token_rewards(p, correct, sampled, 2.0, -0.5)
        dz = brorl.logit_step(p, r, 0.3, 5)
        balance = brorl.mass_balance(m, 0.3, 5, 2.0, -0.5)
        per_token = [r, dz, brorl.probability_step(p, dz), brorl.expected_unsampled_second_moment(p, 5)]
        per_row = [
            *m,
            *balance,
            balance.total,
            brorl.mood(m, 2.0, -0.5),
            brorl.surrogate(p, r, 5),
            brorl.total_unsampled_second_moment(p, 5),
            brorl.total_unsampled_second_moment(p, 5, correct),
            brorl.pass_at_k(m.q_pos, 4),
        ]
        return per_token, per_row

    per_token, per_row = everything(p, correct, sampled)
    assert all(x.shape == (*shape, vocab) and x.dtype == dtype for x in per_token)
    assert all(x.shape == shape and x.dtype == dtype for x in per_row)
    tol = 1e-6 if dtype == torch.float32 else 1e-14
    for index in itertools.product(*map(range, shape)):
        row_token, row = everything(p[index], correct[index], sampled[index])
        for got, want in zip([*per_token, *per_row], [*row_token, *row], strict=True):
            torch.testing.assert_close(got[index], want, rtol=tol, atol=tol)


@dtypes
def test_masks_broadcast_to_p(dtype):
    """Makes impossible: one mask shared by a batch giving other masses than the mask repeated."""
    _, p, correct, sampled = random_case((2, 5), 7, n=4, seed=4, dtype=dtype)
    shared_correct, shared_sampled = correct[0, 0], sampled[:, :1]
    got = brorl.masses(p, shared_correct, shared_sampled)
    want = brorl.masses(p, shared_correct.expand(2, 5, 7), shared_sampled.expand(2, 5, 7))
    assert all(torch.equal(a, b) and a.shape == (2, 5) for a, b in zip(got, want, strict=True))
    r = brorl.token_rewards(p, shared_correct, shared_sampled)
    assert torch.equal(r, brorl.token_rewards(p, shared_correct.expand(2, 5, 7), shared_sampled.expand(2, 5, 7)))
    m_correct = brorl.total_unsampled_second_moment(p, 3, shared_correct)
    assert torch.equal(m_correct, brorl.total_unsampled_second_moment(p, 3, shared_correct.expand(2, 5, 7)))


@dtypes
def test_every_function_stays_on_the_device_of_p(dtype):
    """Makes impossible: a tensor made on the CPU inside a function, which fails on any other device."""
    p = torch.empty(3, 4, dtype=dtype, device="meta")
    mask = torch.empty(3, 4, dtype=torch.bool, device="meta")
    m = brorl.masses(p, mask, mask)
    r = brorl.token_rewards(p, mask, mask)
    dz = brorl.logit_step(p, r, 0.1, 4)
    draws = torch.tensor([[1], [2], [3]])
    out = [
        *m,
        *brorl.mass_balance(m, 0.1, 4),
        brorl.mood(m),
        r,
        dz,
        brorl.surrogate(p, r, 4),
        brorl.probability_step(p, dz),
        brorl.expected_unsampled_second_moment(p, draws),
        brorl.total_unsampled_second_moment(p, 4, mask),
        brorl.pass_at_k(m.q_pos, 4),
        brorl.pass_at_k(m.q_pos, torch.tensor([1, 2, 3])),
    ]
    assert all(x.device.type == "meta" and x.dtype == dtype for x in out)


# ------------------------------------------------------------------------------------------- autograd


@shapes
@rewards_pairs
def test_logit_step_is_the_gradient_of_the_surrogate(shape, r_c, r_w):
    """Makes impossible: a Δz that is not -η ∂L/∂z, to 1e-12 in float64."""
    z, p, correct, sampled = random_case(shape, 11, n=6, seed=5)
    r = brorl.token_rewards(p, correct, sampled, r_c, r_w)
    want = gradient_step(z, r, 0.7, 6)
    torch.testing.assert_close(brorl.logit_step(p, r, 0.7, 6), want, rtol=0, atol=1e-12)
    assert want.any() == r.any()


def test_logit_step_holds_for_any_rewards():
    """Makes impossible: a Δz that is right for two-valued rewards only; the simulator centres its rewards."""
    z, p, _, _ = random_case((2, 5), 11, n=6, seed=6)
    r = torch.randn(2, 5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(brorl.logit_step(p, r, 0.7, 6), gradient_step(z, r, 0.7, 6), rtol=0, atol=1e-12)


def test_logit_step_in_float32():
    """Makes impossible: a step that needs float64 to agree with autograd."""
    z, p, correct, sampled = random_case((2, 5), 11, n=6, seed=5, dtype=torch.float32)
    r = brorl.token_rewards(p, correct, sampled)
    torch.testing.assert_close(brorl.logit_step(p, r, 0.7, 6), gradient_step(z, r, 0.7, 6), rtol=1e-5, atol=1e-7)


def test_probability_step_is_the_softmax_jacobian():
    """Makes impossible: a Δp that is not the derivative of softmax along Δz, or that creates mass."""
    z, p, _, _ = random_case((2, 5), 11, n=6, seed=7)
    dz = torch.randn(2, 5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    _, want = torch.autograd.functional.jvp(lambda z: torch.softmax(z, -1), z, dz)
    got = brorl.probability_step(p, dz)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-14)
    torch.testing.assert_close(got.sum(-1), torch.zeros(2, 5, dtype=torch.float64), rtol=0, atol=1e-15)


@rewards_pairs
def test_theorem_1_is_the_derivative_of_q_pos_along_the_step(r_c, r_w):
    """Makes impossible: a Theorem 1 that is not ∂Q_pos/∂z · (-η ∂L/∂z), both factors by autograd alone."""
    z, p, correct, sampled = random_case((2, 5), 11, n=6, seed=8)
    dz = gradient_step(z, brorl.token_rewards(p, correct, sampled, r_c, r_w), 0.7, 6)
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad((torch.softmax(z, -1) * correct).sum(), z)
    balance = brorl.mass_balance(brorl.masses(p, correct, sampled), 0.7, 6, r_c, r_w)
    torch.testing.assert_close(balance.total, (slope * dz).sum(-1), rtol=0, atol=1e-14)


# -------------------------------------------------------------------------------- the true finite step


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_true_change_converges_to_theorem_1_at_second_order(seed):
    """Makes impossible: a Theorem 1 that is not the first order of the true softmax step.

    One step of size η changes Q_pos by Theorem 1's value, which is linear in η, plus O(η²): the error
    falls fourfold when η halves, order 2. A theorem wrong in any factor leaves an error of order 1.
    """
    r_c, r_w, n = 1.5, -1.0, 4
    z, p, correct, sampled = random_case((), 8, n=n, seed=seed)
    m = brorl.masses(p, correct, sampled)
    r = brorl.token_rewards(p, correct, sampled, r_c, r_w)
    errors, ratios = [], []
    for eta in (2.0**-j for j in range(3, 11)):
        after = torch.softmax(z + brorl.logit_step(p, r, eta, n), -1)
        true = (after - p)[correct].sum()
        predicted = brorl.mass_balance(m, eta, n, r_c, r_w).total
        errors.append((true - predicted).abs().item())
        ratios.append((true / predicted).item())
    orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert all(abs(order - 2) < 0.1 for order in orders), orders
    assert abs(orders[-1] - 2) < 0.01
    assert abs(ratios[-1] - 1) < 1e-3 < abs(ratios[0] - 1)


# -------------------------------------------------------------------------------- 10,000 random cases


def ten_thousand(dtype):
    """1,000 cases for each of 10 reward pairs: p from flat to nearly one-hot, every kind of mask."""
    pairs = [*REWARDS, (1.0, -0.1), (1e-3, -1e3), (1 / 3, -1 / 3), (7.0, -0.7)]
    for seed, (r_c, r_w) in enumerate(pairs):
        g = torch.Generator().manual_seed(seed)
        scale = 10 ** (2 * torch.rand(1000, 1, generator=g, dtype=dtype) - 1)
        p = torch.softmax(scale * torch.randn(1000, 12, generator=g, dtype=dtype), -1)
        correct = torch.rand(1000, 12, generator=g) < torch.rand(1000, 1, generator=g)
        sampled = torch.rand(1000, 12, generator=g) < torch.rand(1000, 1, generator=g)
        correct[:20], correct[20:40], sampled[40:60], sampled[60:80] = True, False, True, False
        yield r_c, r_w, p, correct, sampled


@dtypes
def test_the_first_two_terms_are_never_negative_and_the_third_takes_both_signs(dtype):
    """Makes impossible: a sign flip in either of Theorem 1's first two terms that a few lucky cases would hide."""
    cases, up, down = 0, 0, 0
    for r_c, r_w, p, correct, sampled in ten_thousand(dtype):
        b = brorl.mass_balance(brorl.masses(p, correct, sampled), 0.5, 4, r_c, r_w)
        assert (b.sampled_correct >= 0).all() and (b.sampled_incorrect >= 0).all(), (r_c, r_w)
        assert r_c == 0 or (b.sampled_correct > 0).any()
        assert r_w == 0 or (b.sampled_incorrect > 0).any()
        cases += len(p)
        up += (b.unsampled_coupling > 1e-6).sum().item()
        down += (b.unsampled_coupling < -1e-6).sum().item()
    assert cases == 10_000
    assert up > 1000 and down > 1000


@dtypes
def test_theorem_1_is_the_sum_of_dp_over_the_correct_tokens(dtype):
    """Makes impossible: three terms that do not add up to what the step does, in any of 10,000 cases."""
    for r_c, r_w, p, correct, sampled in ten_thousand(dtype):
        r = brorl.token_rewards(p, correct, sampled, r_c, r_w)
        dp = brorl.probability_step(p, brorl.logit_step(p, r, 0.5, 4))
        b = brorl.mass_balance(brorl.masses(p, correct, sampled), 0.5, 4, r_c, r_w)
        atol = max(r_c, -r_w) * (1e-6 if dtype == torch.float32 else 1e-14)
        torch.testing.assert_close(b.total, torch.where(correct, dp, 0).sum(-1), rtol=0, atol=atol)


def test_each_term_is_the_part_of_its_own_tokens():
    """Makes impossible: a right total whose terms are shared out wrongly among A, B and U.

    Token i moves Q_pos by Q_neg p_i Δz_i if it is correct and by -Q_pos p_i Δz_i if not.
    """
    for r_c, r_w, p, correct, sampled in ten_thousand(torch.float64):
        m = brorl.masses(p, correct, sampled)
        dz = brorl.logit_step(p, brorl.token_rewards(p, correct, sampled, r_c, r_w), 0.5, 4)
        share = torch.where(correct, m.q_neg[:, None], -m.q_pos[:, None]) * p * dz
        b = brorl.mass_balance(m, 0.5, 4, r_c, r_w)
        atol = 1e-14 * max(r_c, -r_w)
        for term, tokens in zip(b, (correct & sampled, ~correct & sampled, ~sampled), strict=True):
            torch.testing.assert_close(term, torch.where(tokens, share, 0).sum(-1), rtol=0, atol=atol)


def test_unsampled_coupling_holds_for_any_rewards_on_the_drawn_tokens():
    """Makes impossible: a coupling that is exact for two rewards only, and wrong for the simulator's."""
    _, p, correct, sampled = random_case((500,), 12, n=5, seed=9)
    r = torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(2)) * sampled
    dp = brorl.probability_step(p, brorl.logit_step(p, r, 1.0, 1))
    m = brorl.masses(p, correct, sampled)
    s_r = (r * p).sum(-1)
    advantage = p * p * (r - s_r[:, None])
    of_the_drawn = m.q_neg * (advantage * (correct & sampled)).sum(-1)
    of_the_drawn -= m.q_pos * (advantage * (~correct & sampled)).sum(-1)
    left = (dp * correct).sum(-1) - of_the_drawn
    torch.testing.assert_close(brorl.unsampled_coupling(m, s_r), left, rtol=0, atol=1e-14)


@dtypes
def test_masses_add_up_and_the_mood_stays_in_range(dtype):
    """Makes impossible: a token in two sets or in none, and an S_R outside [R_w, R_c]."""
    tol = 1e-5 if dtype == torch.float32 else 1e-13
    for r_c, r_w, p, correct, sampled in ten_thousand(dtype):
        m = brorl.masses(p, correct, sampled)
        torch.testing.assert_close(m.q_pos + m.q_neg, p.sum(-1), rtol=tol, atol=0)
        torch.testing.assert_close(m.p_pos + m.p_neg, (p * sampled).sum(-1), rtol=tol, atol=0)
        torch.testing.assert_close(m.a2 + m.b2 + m.u_pos2 + m.u_neg2, (p * p).sum(-1), rtol=tol, atol=0)
        s_r = brorl.mood(m, r_c, r_w)
        slack = tol * (r_c - r_w)
        assert (s_r >= r_w - slack).all() and (s_r <= r_c + slack).all()


@dtypes
def test_masses_that_round_above_one_break_nothing(dtype):
    """Makes impossible: a sum of probabilities of 1 + 1e-7, which makes pass@k NaN and a first term negative."""
    p = torch.softmax(torch.randn(500, 1000, dtype=dtype, generator=torch.Generator().manual_seed(0)), -1)
    everything = torch.ones_like(p, dtype=torch.bool)
    assert (p.sum(-1) > 1).any()
    p = torch.cat([p, torch.full_like(p[:, :1], 1e-20)], -1)
    correct = torch.cat([everything, ~everything[:, :1]], -1)
    m = brorl.masses(p, correct, correct)
    got = brorl.pass_at_k(m.q_pos, 4)
    assert not got.isnan().any() and (got <= 1).all()
    for r_c, r_w in REWARDS:
        assert (brorl.mass_balance(m, 1.0, 1, r_c, r_w).sampled_correct >= 0).all()
        assert (brorl.mood(m, r_c, r_w) <= torch.tensor(r_c, dtype=dtype)).all()
    m = brorl.masses(p, ~correct, correct)
    for r_c, r_w in REWARDS:
        assert (brorl.mass_balance(m, 1.0, 1, r_c, r_w).sampled_incorrect >= 0).all()
        assert (brorl.mood(m, r_c, r_w) >= torch.tensor(r_w, dtype=dtype)).all()


@dtypes
def test_small_incorrect_mass_is_not_lost(dtype):
    """Makes impossible: Q_neg taken as 1 - Q_pos, which is 0 or noise where the policy is nearly right."""
    p = torch.tensor([1.0, 1e-20], dtype=dtype)
    m = brorl.masses(p, torch.tensor([True, False]), torch.tensor([True, False]))
    assert m.q_neg.item() == p[1].item()


@dtypes
def test_nothing_drawn_and_everything_drawn(dtype):
    """Makes impossible: a step without draws, or a coupling left when every token was drawn."""
    _, p, correct, _ = random_case((3,), 6, n=4, seed=10, dtype=dtype)
    none = brorl.mass_balance(brorl.masses(p, correct, torch.zeros_like(correct)), 0.5, 4)
    assert all((term == 0).all() for term in none)
    everything = brorl.mass_balance(brorl.masses(p, correct, torch.ones_like(correct)), 0.5, 4)
    assert (everything.unsampled_coupling == 0).all()
    assert (everything.sampled_correct > 0).any() and (everything.sampled_incorrect > 0).any()


# ------------------------------------------------------------------------------ Lemma 2, Corollary 3


@dtypes
@devices
def test_lemma_2_literal(dtype, device):
    """Makes impossible: p for p², N off by one, p^N for (1-p)^N, or members read the wrong way round.

    p = (8, 4, 3, 1)/16, N = 3, in units of 1/2^20:
    (64·8³, 16·12³, 9·13³, 1·15³) = (32768, 27648, 19773, 3375), together 83564.
    """
    p, correct, _ = worked(dtype, device)
    tol = 1e-6 if dtype == torch.float32 else 1e-14
    literal = torch.tensor([32768, 27648, 19773, 3375], dtype=dtype, device=device) / 2**20
    torch.testing.assert_close(brorl.expected_unsampled_second_moment(p, 3), literal, rtol=tol, atol=0)
    total = brorl.total_unsampled_second_moment
    assert total(p, 3).item() == pytest.approx(83564 / 2**20, rel=tol)
    assert total(p, 3, correct).item() == pytest.approx((27648 + 3375) / 2**20, rel=tol)
    assert total(p, 3, ~correct).item() == pytest.approx((32768 + 19773) / 2**20, rel=tol)


def test_lemma_2_by_enumeration_of_all_draws():
    """Makes impossible: an expectation other than that of U_pos2 and U_neg2 over all V^N sequences of draws."""
    p, correct, _ = worked()
    for n in (1, 2, 5):
        draws = torch.tensor(list(itertools.product(range(4), repeat=n)))
        weight = p[draws].prod(-1)
        m = brorl.masses(p.expand(len(draws), 4), correct, drawn_mask(draws, 4))
        assert weight.sum().item() == pytest.approx(1, abs=1e-14)
        for moment, members in ((m.u_pos2, correct), (m.u_neg2, ~correct), (m.u_pos2 + m.u_neg2, None)):
            want = brorl.total_unsampled_second_moment(p, n, members)
            torch.testing.assert_close((weight * moment).sum(), want, rtol=0, atol=1e-15)


def test_lemma_2_by_monte_carlo():
    """Makes impossible: Lemma 2 off by more than its Monte Carlo standard error allows (|z| < 4, fixed seed)."""
    trials, vocab, n = 100_000, 8, 6
    _, p, correct, _ = random_case((), vocab, n=n, seed=12, scale=0.5)
    g = torch.Generator().manual_seed(0)
    sampled = drawn_mask(torch.multinomial(p, trials * n, replacement=True, generator=g).reshape(trials, n), vocab)
    moments = torch.where(sampled, 0, p * p)
    m = brorl.masses(p.expand(trials, vocab), correct, sampled)
    drawn = [*moments.T, moments.sum(-1), m.u_pos2, m.u_neg2]
    total = brorl.total_unsampled_second_moment
    want = [*brorl.expected_unsampled_second_moment(p, n), total(p, n), total(p, n, correct), total(p, n, ~correct)]
    for x, mean in zip(drawn, want, strict=True):
        error = x.std() / math.sqrt(trials)
        assert 0 < error < 0.01 * mean
        assert abs(x.mean() - mean) < 4 * error


@dtypes
def test_corollary_3_falls_with_n(dtype):
    """Makes impossible: an expected unsampled moment that grows with N, or that does not start at Σ p²."""
    _, p, correct, _ = random_case((3,), 9, n=4, seed=13, dtype=dtype)
    assert torch.equal(brorl.expected_unsampled_second_moment(p, 0), p * p)
    assert torch.equal(brorl.total_unsampled_second_moment(p, 0), (p * p).sum(-1))
    for members in (None, correct, ~correct):
        sums = [brorl.total_unsampled_second_moment(p, n, members) for n in (0, 1, 2, 4, 8, 16, 512)]
        assert all((b < a).all() for a, b in itertools.pairwise(sums))
    assert brorl.total_unsampled_second_moment(p, 10**9).max() == 0


@dtypes
def test_certain_and_impossible_tokens(dtype):
    """Makes impossible: NaN from 0 · log 0, where a token has probability 1 or 0."""
    p = torch.tensor([1.0, 0.0], dtype=dtype)
    assert brorl.expected_unsampled_second_moment(p, 0).tolist() == [1.0, 0.0]
    assert brorl.expected_unsampled_second_moment(p, 1).tolist() == [0.0, 0.0]
    assert brorl.expected_unsampled_second_moment(p, 512).tolist() == [0.0, 0.0]
    assert brorl.total_unsampled_second_moment(p, 512).item() == 0


@dtypes
def test_rare_tokens_over_many_draws(dtype):
    """Makes impossible: 1 - p rounded to 1, which says that a rare token is never drawn."""
    p = torch.tensor([1e-9], dtype=dtype)
    got = brorl.expected_unsampled_second_moment(p, 10**9).item()
    assert got == pytest.approx(1e-18 * math.exp(-1), rel=1e-5, abs=0)


@dtypes
def test_n_may_be_a_tensor(dtype):
    """Makes impossible: a curve over N that differs from one call per N."""
    _, p, correct, _ = random_case((3,), 9, n=4, seed=14, dtype=dtype)
    ns = torch.tensor([0, 4, 512])
    curve = brorl.total_unsampled_second_moment(p[0], ns[:, None], correct[0])
    assert curve.dtype == dtype
    for n, got in zip(ns.tolist(), curve, strict=True):
        torch.testing.assert_close(got, brorl.total_unsampled_second_moment(p[0], n, correct[0]))


# ------------------------------------------------------------------------------------------- pass@k


@dtypes
@devices
def test_pass_at_k_literal(dtype, device):
    """Makes impossible: Q^k for 1 - (1-Q)^k, and a wrong end: Q = 0 is never passed, Q = 1 always."""
    q = torch.tensor([0, 1 / 4, 1 / 2, 1], dtype=dtype, device=device)
    for k, literal in ((1, [0, 1 / 4, 1 / 2, 1]), (2, [0, 7 / 16, 3 / 4, 1]), (3, [0, 37 / 64, 7 / 8, 1])):
        got = brorl.pass_at_k(q, k)
        torch.testing.assert_close(got, torch.tensor(literal, dtype=dtype, device=device))
        assert got[0] == 0 and got[3] == 1


@dtypes
def test_pass_at_k_is_its_formula(dtype):
    """Makes impossible: a rearranged pass@k that differs from 1 - (1-Q)^k somewhere in (0, 1), or falls with k."""
    q = torch.linspace(0, 1, 101, dtype=dtype)
    tol = 1e-6 if dtype == torch.float32 else 1e-14
    curves = [brorl.pass_at_k(q, k) for k in (1, 2, 8, 64, 512)]
    for k, curve in zip((1, 2, 8, 64, 512), curves, strict=True):
        torch.testing.assert_close(curve, 1 - (1 - q) ** k, rtol=0, atol=tol)
    assert all((b >= a).all() for a, b in itertools.pairwise(curves))


@dtypes
def test_pass_at_k_of_a_hard_problem(dtype):
    """Makes impossible: 1 - (1-Q)^k computed as written, which is 0 for a tiny Q in float32."""
    q = torch.tensor([1e-9, 1e-12], dtype=dtype)
    want = torch.tensor([512e-9, 512e-12], dtype=dtype)
    torch.testing.assert_close(brorl.pass_at_k(q, 512), want, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("n", "c", "k", "literal"),
    [
        (4, 1, 2, 3 / 6),  # 1 - C(3,2)/C(4,2)
        (4, 2, 2, 5 / 6),  # 1 - C(2,2)/C(4,2)
        (6, 2, 3, 16 / 20),  # 1 - C(4,3)/C(6,3)
        (16, 3, 1, 3 / 16),
        (512, 1, 16, 16 / 512),
        (5, 0, 3, 0.0),
        (5, 3, 3, 1.0),  # fewer incorrect samples than k
        (5, 5, 5, 1.0),
        (1, 0, 1, 0.0),
    ],
)
def test_pass_at_k_estimate_literal(n, c, k, literal):
    """Makes impossible: n, c and k exchanged in the binomials, and any answer from the first k samples only.

    One correct sample of four gives 1/2 at k = 2, wherever it stands; "any of the first two" is 0 or 1.
    """
    assert brorl.pass_at_k_estimate(n, c, k) == pytest.approx(literal, abs=1e-15)


def test_pass_at_k_estimate_is_the_mean_over_all_subsets():
    """Makes impossible: an estimate that is not the share of k-subsets with a correct sample."""
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            solved = [any(i < c for i in subset) for subset in itertools.combinations(range(n), k)]
            want = Fraction(sum(solved), len(solved))
            assert brorl.pass_at_k_estimate(n, c, k) == pytest.approx(float(want), abs=1e-15), (n, c, k)


@pytest.mark.parametrize("q", [0.0, 0.1, 0.37, 0.9, 1.0])
def test_pass_at_k_estimate_is_unbiased(q):
    """Makes impossible: an estimate whose mean over Binomial(n, Q) is not pass@k, as with 1 - (1 - c/n)^k."""
    for n, k in ((1, 1), (5, 2), (16, 4), (16, 16)):
        weights = [math.comb(n, c) * q**c * (1 - q) ** (n - c) for c in range(n + 1)]
        mean = sum(w * brorl.pass_at_k_estimate(n, c, k) for c, w in enumerate(weights))
        assert mean == pytest.approx(brorl.pass_at_k(torch.tensor(q, dtype=torch.float64), k).item(), abs=1e-14)


# ------------------------------------------------------------------------------------------ the recipes


def test_learning_rate_follows_the_square_root_of_the_batch():
    """Makes impossible: linear scaling, the ratio upside down, or the paper's 2.83e-6 missed."""
    assert brorl.scaled_learning_rate(1e-6, 65_536, 8_192) == pytest.approx(2.83e-6, rel=1e-3)
    assert brorl.scaled_learning_rate(1e-6, 65_536, 8_192) == pytest.approx(1e-6 * 8**0.5, rel=1e-15, abs=0)
    assert brorl.scaled_learning_rate(3.0, 400, 100) == 6.0
    assert brorl.scaled_learning_rate(3.0, 100, 400) == 1.5
    assert brorl.scaled_learning_rate(3.0, 7, 7) == 3.0


def test_recipe_values():
    """Makes impossible: a recipe's number changed by accident; the list is written out a second time."""
    shared = {
        "updates_per_step": 8,
        "clip_low": 0.2,
        "clip_high": 0.27,
        "kl": "k2",
        "kl_coef": 1e-4,
        "tis_cap": 2.0,
        "temperature": 1.0,
        "top_p": 1.0,
        "reference_reset_steps": 500,
        "eval_samples": 16,
        "eval_temperature": 0.6,
        "eval_top_p": 0.95,
        "eval_max_response_tokens": 32768,
        "max_response_tokens": 16384,
        "eval_every": 10,
    }
    prorl = {
        "rollouts_per_prompt": 16,
        "prompts_per_step": 512,
        "learning_rate": 1e-6,
        "max_steps": 535,
    }
    brorl_ = {
        "rollouts_per_prompt": 512,
        "prompts_per_step": 128,
        "learning_rate": pytest.approx(2.83e-6, rel=1e-3),
        "max_steps": 191,
    }
    assert set(brorl.RECIPES) == {"brorl", "prorl"}
    assert {name: s.value for name, s in brorl.RECIPES["prorl"].items()} == shared | prorl
    assert {name: s.value for name, s in brorl.RECIPES["brorl"].items()} == shared | brorl_


def test_every_setting_says_where_it_stands():
    """Makes impossible: a citation that sends a reader to a page without the value, or a guess cited as the paper's.

    The list is written out from the paper. Section 3.2 is prose without a number, and cited for none.
    """
    silent = "paper silent"
    stands = {
        "rollouts_per_prompt": "section 4.2.1; table 1", "prompts_per_step": "table 1", "updates_per_step": silent,
        "learning_rate": silent, "clip_low": silent, "clip_high": "section 3.1", "kl": silent, "kl_coef": silent,
        "tis_cap": "section 3.1", "temperature": silent, "top_p": silent, "reference_reset_steps": "section 3.1",
        "max_response_tokens": "section 4.2.1", "max_steps": "table 1", "eval_samples": "appendix D",
        "eval_temperature": "appendix D", "eval_top_p": "appendix D", "eval_max_response_tokens": "appendix D",
        "eval_every": silent,
    }  # fmt: skip
    changed = {"learning_rate": "section 4.2.1", "updates_per_step": "section 4.2.1"}
    for recipe, expected in ((brorl.PRORL, stands), (brorl.BRORL, stands | changed)):
        assert recipe.keys() == expected.keys()
        for name, setting in recipe.items():
            assert setting.value is not None and setting.value != "", name
            assert re.match(re.escape(expected[name]) + r"\b", setting.source), (name, setting.source)
    for name in ("clip_high", "tis_cap", "reference_reset_steps"):  # the section has the method, not the number
        assert "paper silent" in brorl.PRORL[name].source
    for recipe in brorl.RECIPES.values():
        assert "our inference" in recipe["prompts_per_step"].source
    assert brorl.RECIPES["brorl"] is brorl.BRORL and brorl.RECIPES["prorl"] is brorl.PRORL


def test_nothing_cites_section_3_2_for_a_number():
    """Makes impossible: the old citations, in any file that a reader opens; Δz and Δp looked for in section 2."""
    root = Path(__file__).parent.parent
    files = [
        x
        for folder in (".", "evidence", "tiny", "docs", "trainer", "simulator")
        for kind in ("*.py", "*.md")
        for x in (root / folder).glob(kind)
    ]
    for path in [*files, root / "tiny/policy/recipe.json"]:
        assert not re.findall(r"(?i)(?:\bsections? [^\n]{0,12}|§ ?|\| ?2, )\b3\.2\b", path.read_text()), path
    for name in brorl.EVALUATION:
        (setting,) = [f for f in fields(Config) if f.name == name]
        assert "appendix D" in setting.metadata["help"]
    for function in (brorl.logit_step, brorl.probability_step):
        assert "appendix C.1" in function.__doc__ and "section 2" not in function.__doc__


def test_brorl_is_prorl_but_for_the_paper_s_changes():
    """Makes impossible: a gain laid to N that comes from longer responses, say; PRORL changed by way of BRORL."""
    assert brorl.BRORL.keys() == brorl.PRORL.keys()
    changed = {name for name in brorl.PRORL if brorl.PRORL[name].value != brorl.BRORL[name].value}
    assert changed == {"rollouts_per_prompt", "prompts_per_step", "learning_rate", "max_steps"}


def test_table_1_and_2_support_that_prompts_are_counted_after_dynamic_sampling():
    """Makes impossible: the inference written down with numbers that do not give it."""
    for recipe, samples_k, steps, kept in ((brorl.PRORL, 10_439, 535, 0.41), (brorl.BRORL, 20_039, 191, 0.62)):
        generated = samples_k * 1000 / steps
        trained = recipe["rollouts_per_prompt"].value * recipe["prompts_per_step"].value
        assert recipe["max_steps"].value == steps and trained / generated == pytest.approx(kept, abs=0.011)
        told = re.search(r"([\d.]+)k samples a step, table 2 keeps (\d+)%", recipe["prompts_per_step"].source).groups()
        assert [float(x) for x in told] == [round(generated / 1000, 1), kept * 100]


def test_a_reset_tells_the_recipes_apart_as_little_as_it_can():
    """Makes impossible: a period chosen without its reason: within the scripts' 200 to 500, the fewest resets."""

    def resets(recipe, period):
        return recipe["max_steps"].value // period

    assert brorl.BRORL["reference_reset_steps"].value == brorl.PRORL["reference_reset_steps"].value == 500
    assert [resets(brorl.BRORL, x) for x in (200, 500)] == [0, 0]
    assert [resets(brorl.PRORL, x) for x in (200, 500)] == [2, 1]


def test_the_mood_is_a_sum_and_no_mean():
    """Makes impossible: S_R taken for an expected reward: with all draws correct it is their mass, not R_c."""
    p, correct = torch.tensor([0.1, 0.3, 0.6]), torch.tensor([True, True, False])
    m = brorl.masses(p, correct, torch.tensor([True, False, False]))
    assert brorl.mood(m).item() == pytest.approx(0.1)
    assert "expected reward" not in brorl.__doc__


def test_the_batch_grows_eightfold_and_the_rate_with_its_root():
    """Makes impossible: a rate that does not belong to the recipe's own batch, N times prompts."""

    def samples(recipe):
        return recipe["rollouts_per_prompt"].value * recipe["prompts_per_step"].value

    assert samples(brorl.BRORL) == 65_536 and samples(brorl.PRORL) == 8_192
    ratio = brorl.BRORL["learning_rate"].value / brorl.PRORL["learning_rate"].value
    assert ratio**2 == pytest.approx(samples(brorl.BRORL) / samples(brorl.PRORL), rel=1e-14)
    assert ratio**2 == pytest.approx(8, rel=1e-14)


# -------------------------------------------------------------------------------------------- wrong use


@pytest.mark.parametrize("wrong", [torch.int64, torch.uint8, torch.float64], ids=str)
def test_masks_must_be_bool(wrong):
    """Makes impossible: draw counts or 0/1 numbers used as a mask, where `~` and `&` mean something else."""
    p, correct, sampled = worked()
    for function in (brorl.masses, brorl.token_rewards):
        with pytest.raises(ValueError, match="`correct` must be a bool mask"):
            function(p, correct.to(wrong), sampled)
        with pytest.raises(ValueError, match="`sampled` must be a bool mask"):
            function(p, correct, sampled.to(wrong))
    with pytest.raises(ValueError, match="`members` must be a bool mask"):
        brorl.total_unsampled_second_moment(p, 3, correct.to(wrong))


@pytest.mark.parametrize(("r_c", "r_w"), [(-0.1, -1.0), (1.0, 0.1), (-1.0, 1.0), (math.nan, -1.0), (1.0, math.nan)])
def test_rewards_outside_the_theorem_are_refused(r_c, r_w):
    """Makes impossible: Theorem 1's signs read off rewards for which it does not hold."""
    p, correct, sampled = worked()
    with pytest.raises(ValueError, match="R_c >= 0 >= R_w"):
        brorl.mass_balance(brorl.masses(p, correct, sampled), 0.5, 4, r_c, r_w)
    with pytest.raises(ValueError, match="R_c >= 0 >= R_w"):
        brorl.token_rewards(p, correct, sampled, r_c, r_w)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 0), (4, 1, 5), (4, -1, 2), (4, 5, 2), (0, 0, 1), (4, 1, -1)])
def test_pass_at_k_estimate_refuses_impossible_counts(n, c, k):
    """Makes impossible: pass@k for a k that was never sampled, or with more correct samples than samples."""
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        brorl.pass_at_k_estimate(n, c, k)


@pytest.mark.parametrize(("b_new", "b_0"), [(0, 8), (8, 0), (-8, 8), (8, -8), (-8, -8)])
def test_learning_rate_refuses_an_empty_batch(b_new, b_0):
    """Makes impossible: a learning rate of 0, or of a negative ratio whose signs cancel."""
    with pytest.raises(ValueError, match=f"B_new={b_new}, B_0={b_0}"):
        brorl.scaled_learning_rate(1e-6, b_new, b_0)
