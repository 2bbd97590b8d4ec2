"""brorl.py against numbers worked by hand, autograd and enumeration.

The order: literals, batches against loops, autograd, random cases, all V^N draws, pass@k, the recipes, wrong use.

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

import brorl

REWARDS = [(1.0, -1.0), (1.0, 0.0), (0.0, -1.0), (3.0, -1.0), (0.1, -2.5), (0.0, 0.0)]

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
shapes = pytest.mark.parametrize("shape", [(), (3,), (2, 5)], ids=str)
rewards_pairs = pytest.mark.parametrize(("r_c", "r_w"), REWARDS)


def drawn_mask(draws: torch.Tensor, vocab: int) -> torch.Tensor:
    """The set of drawn tokens, (..., V), from the draws themselves, (..., N) with repeats."""
    return torch.zeros(*draws.shape[:-1], vocab, dtype=torch.bool).scatter_(-1, draws, True)


def random_case(shape: tuple[int, ...], vocab: int, n: int, seed: int, dtype=torch.float64):
    """Logits, p, the correct tokens and the set drawn in n i.i.d. draws from p."""
    g = torch.Generator().manual_seed(seed)
    z = 1.5 * torch.randn(*shape, vocab, generator=g, dtype=dtype)
    p = torch.softmax(z, -1)
    correct = torch.rand(*shape, vocab, generator=g) < 0.5
    draws = torch.multinomial(p.reshape(-1, vocab), n, replacement=True, generator=g).reshape(*shape, n)
    return z, p, correct, drawn_mask(draws, vocab)


def gradient_step(z, r, eta, n):
    """-η ∂L/∂z by autograd, through softmax and the surrogate."""
    z = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(brorl.surrogate(torch.softmax(z, -1), r, n).sum(), z)
    return -eta * grad


def worked(dtype: torch.dtype = torch.float64):
    p = torch.tensor([8, 4, 3, 1], dtype=dtype) / 16
    correct = torch.tensor([False, True, False, True])
    sampled = torch.tensor([True, True, False, False])
    return p, correct, sampled


@dtypes
def test_masses_literal(dtype):
    """Makes impossible: a mass summed over the wrong one of the four sets, or over p where p² is meant."""
    m = brorl.masses(*worked(dtype))
    in_256ths = {"p_pos": 64, "p_neg": 128, "q_pos": 80, "q_neg": 176, "a2": 16, "b2": 64, "u_pos2": 1, "u_neg2": 9}
    assert {name: 256 * value.item() for name, value in m._asdict().items()} == in_256ths
    assert all(x.dtype == dtype and x.shape == () for x in m)


@dtypes
def test_mood_literal(dtype):
    """Makes impossible: a flipped sign in S_R, or the two rewards on each other's mass."""
    m = brorl.masses(*worked(dtype))
    assert brorl.mood(m).item() == -1 / 4  # 1 · 4/16 - 1 · 8/16
    assert brorl.mood(m, 3.0, -1.0).item() == 1 / 4  # 3 · 4/16 - 1 · 8/16
    assert brorl.mood(m, 1.0, 0.0).item() == 1 / 4
    assert brorl.mood(m, 0.0, -2.0).item() == -1.0


@dtypes
def test_token_rewards_literal(dtype):
    """Makes impossible: a reward on an undrawn token, R_c and R_w exchanged, rewards rounded to another dtype."""
    p, correct, sampled = worked(dtype)
    r = brorl.token_rewards(p, correct, sampled)
    assert r.tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert r.dtype == dtype
    assert brorl.token_rewards(p, correct, sampled, 3.0, -0.5).tolist() == [-0.5, 3.0, 0.0, 0.0]
    assert brorl.token_rewards(p.double(), correct, sampled, 0.7, -0.3).tolist() == [-0.3, 0.7, 0.0, 0.0]


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
    ],
)
def test_theorem_1_literal(dtype, r_c, r_w, terms):
    """Makes impossible: any flipped sign, exchanged moment or lost factor in a term of Theorem 1 (η/N = 1/8)."""
    m = brorl.masses(*worked(dtype))
    balance = brorl.mass_balance(m, eta=0.5, n=4, r_c=r_c, r_w=r_w)
    assert [term.item() for term in balance] == [term / 8 for term in terms]
    assert balance.total.item() == sum(terms) / 8
    assert brorl.unsampled_coupling(m, brorl.mood(m, r_c, r_w), 0.5, 4).item() == terms[2] / 8
    assert balance.total.dtype == dtype


def everything(p, correct, sampled) -> list[torch.Tensor]:
    """What the functions of section 2 return."""
    m = brorl.masses(p, correct, sampled)
    r = brorl.token_rewards(p, correct, sampled, 2.0, -0.5)
    dz = brorl.logit_step(p, r, 0.3, 5)
    return [
        *(r, dz, brorl.probability_step(p, dz), brorl.expected_unsampled_second_moment(p, 5)),  # (..., V)
        *m,
        *brorl.mass_balance(m, 0.3, 5, 2.0, -0.5),
        brorl.mood(m, 2.0, -0.5),
        brorl.surrogate(p, r, 5),
        brorl.total_unsampled_second_moment(p, 5),
        brorl.total_unsampled_second_moment(p, 5, correct),
        brorl.pass_at_k(m.q_pos, 4),
    ]


@dtypes
@shapes
def test_a_batch_is_a_loop_over_its_rows(shape, dtype):
    """Makes impossible: a sum over a batch dimension, a wrong output shape, or a silent change of dtype."""
    _, p, correct, sampled = random_case(shape, 7, n=5, seed=3, dtype=dtype)
    batch, tol = everything(p, correct, sampled), 1e-6 if dtype == torch.float32 else 1e-14
    assert all(x.shape in ((*shape, 7), shape) and x.dtype == dtype for x in batch)
    for index in itertools.product(*map(range, shape)):
        for got, want in zip(batch, everything(p[index], correct[index], sampled[index]), strict=True):
            torch.testing.assert_close(got[index], want, rtol=tol, atol=tol)


def test_every_function_stays_on_the_device_of_p():
    """Makes impossible: a tensor made on the CPU inside a function, which fails on any other device."""
    p, mask = torch.empty(3, 4, device="meta"), torch.empty(3, 4, dtype=torch.bool, device="meta")
    draws = torch.tensor([1, 2, 3])
    found = everything(p, mask[0], mask[:, :1])  # masks broadcast
    found += [brorl.total_unsampled_second_moment(p, draws[:, None]), brorl.pass_at_k(p[:, 0], draws)]
    assert all(x.device.type == "meta" for x in found)


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


@rewards_pairs
def test_each_term_is_the_part_of_its_own_tokens(r_c, r_w):
    """Makes impossible: a right total whose terms are shared out wrongly among A, B and U; a first term below 0.

    Token i moves Q_pos by Q_neg p_i Δz_i if it is correct and by -Q_pos p_i Δz_i if not.
    """
    _, p, correct, sampled = random_case((1000,), 12, n=5, seed=9)
    correct[:20], correct[20:40], sampled[40:60], sampled[60:80] = True, False, True, False
    m = brorl.masses(p, correct, sampled)

    def shares(rewards):
        dz = brorl.logit_step(p, rewards, 0.5, 4)
        return torch.where(correct, m.q_neg[:, None], -m.q_pos[:, None]) * p * dz

    share = shares(brorl.token_rewards(p, correct, sampled, r_c, r_w))
    b = brorl.mass_balance(m, 0.5, 4, r_c, r_w)
    for term, tokens in zip(b, (correct & sampled, ~correct & sampled, ~sampled), strict=True):
        torch.testing.assert_close(term, torch.where(tokens, share, 0).sum(-1), rtol=0, atol=1e-14)
    assert (b.sampled_correct >= 0).all() and (b.sampled_incorrect >= 0).all()

    # The third term is exact for any rewards of the drawn tokens, as where the simulator centres them.
    any_rewards = torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(2)) * sampled
    coupling = brorl.unsampled_coupling(m, (any_rewards * p).sum(-1), 0.5, 4)
    undrawn = torch.where(sampled, 0, shares(any_rewards)).sum(-1)
    torch.testing.assert_close(coupling, undrawn, rtol=0, atol=1e-14)


@dtypes
def test_masses_that_round_above_one_break_nothing(dtype):
    """Makes impossible: a sum of probabilities of 1 + 1e-7, which makes pass@k NaN and a first term negative."""
    p = torch.softmax(torch.randn(500, 1000, dtype=dtype, generator=torch.Generator().manual_seed(0)), -1)
    correct = torch.ones_like(p, dtype=torch.bool)
    assert (p.sum(-1) > 1).any()
    p = torch.cat([p, torch.full_like(p[:, :1], 1e-20)], -1)
    correct = torch.cat([correct, ~correct[:, :1]], -1)
    m = brorl.masses(p, correct, correct)
    got = brorl.pass_at_k(m.q_pos, 4)
    assert not got.isnan().any() and (got <= 1).all()
    for r_c, r_w in REWARDS:
        assert (brorl.mass_balance(m, 1.0, 1, r_c, r_w).sampled_correct >= 0).all()
        assert (brorl.mood(m, r_c, r_w) <= torch.tensor(r_c, dtype=dtype)).all()
    assert (m.q_neg == p[:, -1]).all(), "a small Q_neg is not 1 - Q_pos, which is 0 here"


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


@dtypes
def test_pass_at_k_literal(dtype):
    """Makes impossible: Q^k for 1 - (1-Q)^k, and a wrong end: Q = 0 is never passed, Q = 1 always."""
    q = torch.tensor([0, 1 / 4, 1 / 2, 1], dtype=dtype)
    for k, literal in ((1, [0, 1 / 4, 1 / 2, 1]), (2, [0, 7 / 16, 3 / 4, 1]), (3, [0, 37 / 64, 7 / 8, 1])):
        got = brorl.pass_at_k(q, k)
        torch.testing.assert_close(got, torch.tensor(literal, dtype=dtype))
        assert got[0] == 0 and got[3] == 1
    hard = torch.tensor([1e-9, 1e-12], dtype=dtype)  # 1 - (1-Q)^k as written is 0 for these in float32
    torch.testing.assert_close(brorl.pass_at_k(hard, 512), 512 * hard, rtol=1e-6, atol=0)


def test_pass_at_k_estimate_is_the_mean_over_all_subsets():
    """Makes impossible: an estimate that is not the share of k-subsets with a correct sample."""
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            solved = [any(i < c for i in subset) for subset in itertools.combinations(range(n), k)]
            want = Fraction(sum(solved), len(solved))
            assert brorl.pass_at_k_estimate(n, c, k) == pytest.approx(float(want), abs=1e-15), (n, c, k)


def test_recipe_values():
    """Makes impossible: a number of the paper changed by accident, a guess cited as the paper's.

    Written out from the paper: the value of BRORL, of PRORL, and where it stands.
    """
    table = {
        "rollouts_per_prompt": (512, 16, "section 4.2.1; table 1"), "prompts_per_step": (128, 512, "table 1"),
        "learning_rate": (pytest.approx(2.83e-6, rel=1e-3), 1e-6, "section 4.2.1"),
        "updates_per_step": (8, 8, "section 4.2.1"), "max_steps": (191, 535, "table 1"),
        "reference_reset_steps": (500, 500, "section 3.1"), "max_response_tokens": (16384, 16384, "section 4.2.1"),
        "eval_samples": (16, 16, "appendix D"), "eval_temperature": (0.6, 0.6, "appendix D"),
        "eval_top_p": (0.95, 0.95, "appendix D"), "eval_max_response_tokens": (32768, 32768, "appendix D"),
    }  # fmt: skip
    assert brorl.BRORL.keys() == brorl.PRORL.keys()
    for name, (wide, narrow, source) in table.items():
        assert (brorl.BRORL[name].value, brorl.PRORL[name].value) == (wide, narrow), name
        assert brorl.BRORL[name].source.startswith(source), name
    rest = [brorl.BRORL[name] for name in brorl.BRORL.keys() - table.keys()]
    assert all(setting.source.startswith("not in the paper") for setting in rest)


def test_learning_rate_follows_the_square_root_of_the_batch():
    """Makes impossible: linear scaling, the ratio upside down, or a recipe's rate of another batch than its own."""
    assert brorl.scaled_learning_rate(3.0, 400, 100) == 6.0 and brorl.scaled_learning_rate(3.0, 100, 400) == 1.5
    batch, narrow = (r["rollouts_per_prompt"].value * r["prompts_per_step"].value for r in (brorl.BRORL, brorl.PRORL))
    assert (batch, narrow) == (65_536, 8_192)
    assert brorl.BRORL["learning_rate"].value == pytest.approx(1e-6 * (batch / narrow) ** 0.5, rel=1e-14)


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
        (brorl.pass_at_k_estimate, (4, 5, 2), "c=5"),
        (brorl.scaled_learning_rate, (1e-6, 0, 8), "B_new=0"),
    ],
)
def test_wrong_use_is_named(function, arguments, named):
    """Makes impossible: counts used as a mask, Theorem 1 beyond its rewards, pass@k beyond its samples, a rate of 0."""
    with pytest.raises(ValueError, match=named):
        function(*arguments)
