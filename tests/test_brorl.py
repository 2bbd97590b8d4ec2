"""brorl.py against numbers worked by hand, autograd, a real finite step and enumeration.

The order: literals, batches against loops, autograd, the true softmax step, 10,000 random cases, all V^N draws,
pass@k, the recipes, wrong use. The first line of a test says which mistake it makes impossible.

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
from fractions import Fraction

import pytest
import torch
from softmax_cases import REWARDS, drawn_mask, gradient_step, random_case, rewards_pairs, shapes

import brorl

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
    assert brorl.unsampled_coupling(m, brorl.mood(m, r_c, r_w), 0.5, 4).item() == terms[2] / 8
    assert balance.total.dtype == dtype


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
def test_every_function_stays_on_the_device_of_p(dtype):
    """Makes impossible: a tensor made on the CPU inside a function, which fails on any other device."""
    p = torch.empty(3, 4, dtype=dtype, device="meta")
    mask = torch.empty(3, 4, dtype=torch.bool, device="meta")
    m = brorl.masses(p, mask, mask)
    r = brorl.token_rewards(p, mask, mask)
    dz = brorl.logit_step(p, r, 0.1, 4)
    draws = torch.tensor([[1], [2], [3]])
    assert brorl.masses(p, mask[0], mask[:, :1]).q_pos.shape == (3,)  # masks broadcast
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
    r = torch.randn(r.shape, dtype=r.dtype)  # not two-valued, as where the simulator centres rewards
    torch.testing.assert_close(brorl.logit_step(p, r, 0.7, 6), gradient_step(z, r, 0.7, 6), rtol=0, atol=1e-12)


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


def test_each_term_is_the_part_of_its_own_tokens():
    """Makes impossible: a right total whose terms are shared out wrongly among A, B and U; a first term below 0.

    Token i moves Q_pos by Q_neg p_i Δz_i if it is correct and by -Q_pos p_i Δz_i if not.
    """
    up = down = 0
    for r_c, r_w, p, correct, sampled in ten_thousand(torch.float64):
        m = brorl.masses(p, correct, sampled)
        dz = brorl.logit_step(p, brorl.token_rewards(p, correct, sampled, r_c, r_w), 0.5, 4)
        share = torch.where(correct, m.q_neg[:, None], -m.q_pos[:, None]) * p * dz
        b = brorl.mass_balance(m, 0.5, 4, r_c, r_w)
        atol = 1e-14 * max(r_c, -r_w)
        for term, tokens in zip(b, (correct & sampled, ~correct & sampled, ~sampled), strict=True):
            torch.testing.assert_close(term, torch.where(tokens, share, 0).sum(-1), rtol=0, atol=atol)
        assert (b.sampled_correct >= 0).all() and (b.sampled_incorrect >= 0).all(), (r_c, r_w)
        up += (b.unsampled_coupling > 1e-6).sum().item()
        down += (b.unsampled_coupling < -1e-6).sum().item()
    assert up > 1000 and down > 1000, "the third term takes both signs"


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
    torch.testing.assert_close(brorl.unsampled_coupling(m, s_r, 1.0, 1), left, rtol=0, atol=1e-14)


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
    assert (m.q_neg == p[:, -1]).all(), "a small Q_neg is not 1 - Q_pos, which is 0 here"


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


@dtypes
def test_corollary_3_at_its_ends(dtype):
    """Makes impossible: a moment that grows with N, 0 · log 0 = NaN, 1 - p rounded to 1, a curve of another N."""
    p, ns = torch.tensor([1.0, 0.0, 1e-9], dtype=dtype), torch.tensor([0, 1, 512, 10**9])
    moments = brorl.expected_unsampled_second_moment(p, ns[:, None])
    want = [[1, 0, 1e-18], [0, 0, 1e-18], [0, 0, 1e-18], [0, 0, 1e-18 * math.exp(-1)]]
    torch.testing.assert_close(moments, torch.tensor(want, dtype=dtype), rtol=1e-5, atol=0)
    _, p, _, _ = random_case((3,), 9, n=4, seed=13, dtype=dtype)
    sums = [brorl.total_unsampled_second_moment(p, n) for n in (0, 1, 2, 4, 8, 16, 512)]
    assert all((b < a).all() for a, b in itertools.pairwise(sums))


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
def test_pass_at_k_of_a_hard_problem(dtype):
    """Makes impossible: 1 - (1-Q)^k computed as written, which is 0 for a tiny Q in float32."""
    q = torch.tensor([1e-9, 1e-12], dtype=dtype)
    want = torch.tensor([512e-9, 512e-12], dtype=dtype)
    torch.testing.assert_close(brorl.pass_at_k(q, 512), want, rtol=1e-6, atol=0)


def test_pass_at_k_estimate_is_the_mean_over_all_subsets():
    """Makes impossible: an estimate that is not the share of k-subsets with a correct sample."""
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            solved = [any(i < c for i in subset) for subset in itertools.combinations(range(n), k)]
            want = Fraction(sum(solved), len(solved))
            assert brorl.pass_at_k_estimate(n, c, k) == pytest.approx(float(want), abs=1e-15), (n, c, k)


# ------------------------------------------------------------------------------------------ the recipes


def test_recipe_values():
    """Makes impossible: a number changed by accident, a citation of a page without it, a guess cited as the paper's.

    Written out from the paper: value of BRORL, of PRORL if it differs, where it stands (BRORL's, if it differs, last).
    """
    silent, appendix = "paper silent", "appendix D"
    table = {
        "rollouts_per_prompt": (512, 16, "section 4.2.1; table 1"), "prompts_per_step": (128, 512, "table 1"),
        "learning_rate": (pytest.approx(2.83e-6, rel=1e-3), 1e-6, silent, "section 4.2.1"),
        "updates_per_step": (8, 8, silent, "section 4.2.1"), "clip_low": (0.2, 0.2, silent),
        "clip_high": (0.27, 0.27, "section 3.1"), "kl": ("k2", "k2", silent), "kl_coef": (1e-4, 1e-4, silent),
        "tis_cap": (2.0, 2.0, "section 3.1"), "temperature": (1.0, 1.0, silent), "top_p": (1.0, 1.0, silent),
        "reference_reset_steps": (500, 500, "section 3.1"), "max_response_tokens": (16384, 16384, "section 4.2.1"),
        "max_steps": (191, 535, "table 1"), "eval_samples": (16, 16, appendix),
        "eval_temperature": (0.6, 0.6, appendix), "eval_top_p": (0.95, 0.95, appendix),
        "eval_max_response_tokens": (32768, 32768, appendix), "eval_every": (10, 10, silent),
    }  # fmt: skip
    assert brorl.RECIPES == {"brorl": brorl.BRORL, "prorl": brorl.PRORL}
    assert brorl.BRORL.keys() == brorl.PRORL.keys() == table.keys()
    for name, (wide, narrow, *where) in table.items():
        assert (brorl.BRORL[name].value, brorl.PRORL[name].value) == (wide, narrow), name
        assert brorl.PRORL[name].source.startswith(where[0]) and brorl.BRORL[name].source.startswith(where[-1]), name


def test_prompts_are_counted_after_dynamic_sampling():
    """Makes impossible: an inference whose numbers, of tables 1 and 2, do not give it."""
    for name, samples_k in (("prorl", 10_439), ("brorl", 20_039)):
        value = {setting: x.value for setting, x in brorl.RECIPES[name].items()}
        kept = value["rollouts_per_prompt"] * value["prompts_per_step"] / (samples_k * 1000 / value["max_steps"])
        assert kept == pytest.approx(brorl.PASS_RATE[name], abs=0.011)


def test_learning_rate_follows_the_square_root_of_the_batch():
    """Makes impossible: linear scaling, the ratio upside down, or a recipe's rate of another batch than its own."""
    assert brorl.scaled_learning_rate(3.0, 400, 100) == 6.0 and brorl.scaled_learning_rate(3.0, 100, 400) == 1.5
    batch, narrow = (r["rollouts_per_prompt"].value * r["prompts_per_step"].value for r in (brorl.BRORL, brorl.PRORL))
    assert (batch, narrow) == (65_536, 8_192)
    assert brorl.BRORL["learning_rate"].value == pytest.approx(1e-6 * (batch / narrow) ** 0.5, rel=1e-14)


# -------------------------------------------------------------------------------------------- wrong use


P, CORRECT, SAMPLED = worked()


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (brorl.masses, (P, CORRECT.int(), SAMPLED), "correct"),
        (brorl.token_rewards, (P, CORRECT, SAMPLED.byte()), "sampled"),
        (brorl.total_unsampled_second_moment, (P, 3, CORRECT.double()), "members"),
        (brorl.token_rewards, (P, CORRECT, SAMPLED, -0.1, -1.0), "R_c=-0.1"),
        (brorl.mass_balance, (brorl.masses(P, CORRECT, SAMPLED), 0.5, 4, 1.0, 0.1), "R_w=0.1"),
        (brorl.mass_balance, (brorl.masses(P, CORRECT, SAMPLED), 0.5, 4, math.nan, -1.0), "R_c=nan"),
        (brorl.pass_at_k, (P, 0), "k=0"),
        (brorl.pass_at_k_estimate, (4, 1, 0), "k=0"),
        (brorl.pass_at_k_estimate, (4, 1, 5), "k=5"),
        (brorl.pass_at_k_estimate, (4, -1, 2), "c=-1"),
        (brorl.pass_at_k_estimate, (4, 5, 2), "c=5"),
        (brorl.scaled_learning_rate, (1e-6, 0, 8), "B_new=0"),
        (brorl.scaled_learning_rate, (1e-6, -8, -8), "B_0=-8"),
    ],
)
def test_wrong_use_is_named(function, arguments, named):
    """Makes impossible: counts used as a mask, Theorem 1 beyond its rewards, pass@k beyond its samples, a rate of 0."""
    with pytest.raises(ValueError, match=named):
        function(*arguments)
