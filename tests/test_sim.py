"""sim.py, section 4.1: each part against its definition, the whole against the plain loop and the paper's figure."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import sim

SMALL = sim.Setting(vocabulary=300, correct_tokens=40, steps=60)


pytestmark = pytest.mark.usefixtures("one_thread")


def plain_loss(z, tokens, rewards, temperature=1.0):
    """L = -(1/N) Σ_j (R_j - b) p_j, draw by draw: section 4.1."""
    p = torch.softmax(z / temperature, -1)
    r = rewards[tokens]
    b = sum(r) / len(r)
    return -sum((r[j] - b) * p[token] for j, token in enumerate(tokens.tolist())) / len(tokens)


# --------------------------------------------------------------------------------------- the step's parts


def test_initial_logits_seed_the_correct_mass_of_the_paper():
    """An anchor outside the correct set, or a wrong seed logit, would start the mass away from 0.63."""
    z = sim.initial_logits(sim.Setting())
    assert z[0] == 5 and (z[1:10_000] == 3).all() and (z[10_000:] == 0).all()
    correct = np.exp(5.0) + 9_999 * np.exp(3.0)
    assert torch.softmax(z.double(), -1)[:10_000].sum().item() == pytest.approx(correct / (correct + 118_000), rel=1e-6)
    assert round(correct / (correct + 118_000), 2) == 0.63
    assert sim.rewards_of(sim.Setting()).sum() == 10_000 - 118_000


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_gradient_is_autograds(temperature):
    """A closed form that loses repeated draws, the baseline, 1/N or 1/τ would still look like learning."""
    torch.manual_seed(0)
    rewards = torch.tensor([1.0, 1, -1, -1, -1, 1], dtype=torch.float64)
    draws = [torch.tensor([0, 0, 0, 2, 3, 3, 5]), torch.tensor([4, 1]), torch.tensor([1, 1, 1]), torch.tensor([2])]
    z = torch.randn(len(draws), 6, dtype=torch.float64)
    centred = torch.zeros_like(z)
    for k, tokens in enumerate(draws):
        sim.add_centred_rewards(centred[k], tokens, rewards)
    for k, tokens in enumerate(draws):
        leaf = z[k].clone().requires_grad_()
        plain_loss(leaf, tokens, rewards, temperature).backward()
        ours = sim.surrogate_gradient(torch.softmax(z[k] / temperature, -1), centred[k], len(tokens), temperature)
        torch.testing.assert_close(ours, leaf.grad, rtol=1e-12, atol=1e-15)


def test_centred_rewards_by_hand():
    """Counting a token that was drawn twice once, or centring on another mean, would pass unseen otherwise."""
    out = torch.zeros(4)
    sim.add_centred_rewards(out, torch.tensor([0, 0, 3, 3, 3]), torch.tensor([1.0, 1, -1, -1]))
    # b = (1 + 1 - 1 - 1 - 1) / 5 = -0.2: twice 1.2 on token 0, three times -0.8 on token 3
    torch.testing.assert_close(out, torch.tensor([2.4, 0, 0, -2.4]))


def test_measure_by_hand():
    """A drop with the wrong sign, or `improved` counting the unchanged tokens, would turn the figure over."""
    p = torch.tensor([[0.2, 0.1, 0.3, 0.0], [0.2, 0.2, 0.2, 0.2]])
    panels = sim.measure(p, torch.tensor([0.1, 0.2, 0.2, 0.0]))
    torch.testing.assert_close(panels["correct_mass"], torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(panels["percent_improved"], torch.tensor([50.0, 50.0]))
    torch.testing.assert_close(panels["worst_drop"], torch.tensor([-0.1, 0.0]))
    torch.testing.assert_close(panels["anchor"], torch.tensor([0.2, 0.2]))


def test_measurements_do_not_hold_the_step_they_were_taken_at():
    """A view into p, kept for every recorded step, would hold 2.5 GB by the end of the default run."""
    p = torch.softmax(torch.zeros(2, 10), -1)
    bytes_held = [x.untyped_storage().nbytes() for x in sim.measure(p[:, :4], p[0, :4]).values()]
    assert max(bytes_held) <= 2 * 8


# --------------------------------------------------------------------------------------------- the draws


@pytest.mark.parametrize("n", [1, 7, 50_000])
def test_draws_have_the_distribution_p(n):
    """Sorted uniforms whose spacings are off, or that miss an end, would bias every curve (chi-square)."""
    p = torch.softmax(torch.linspace(-3, 2, 50), -1)
    generator = torch.Generator().manual_seed(n)
    repeats = max(1, 20_000 // n)
    counts = sum(torch.bincount(sim.draw(p, n, generator), minlength=50) for _ in range(repeats))
    expected = p.double() / p.double().sum() * counts.sum()
    assert counts.sum() == n * repeats and expected.min() > 5
    assert scipy.stats.chisquare(counts.numpy(), expected.numpy()).pvalue > 1e-3


def test_draws_resolve_tokens_of_tiny_probability():
    """A cdf or uniforms in float32 (steps of 6e-8 below 1) would never draw some rare tokens and overdraw others."""
    rare = 200_000
    p = torch.full((1 + rare,), 4e-8, dtype=torch.float64)
    p[0] = 1 - rare * 4e-8
    tokens = sim.draw(p.float(), 2_000_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(tokens, minlength=len(p))[1:].double()
    pairs, expected = (counts * (counts - 1) / 2).sum().item(), counts.sum().item() ** 2 / (2 * rare)
    # float32 leaves about two thirds of them within reach: half as many pairs again
    assert abs(pairs - expected) < 5 * expected**0.5


def test_draws_stay_inside_the_vocabulary(monkeypatch):
    """An index V, or a token of probability 0, from a uniform at an end of the cdf would crash or mislead."""
    p = torch.tensor([0.0, 0.0, 0.4, 0.0, 0.6, 0.0])
    drawn = torch.cat([sim.draw(p, 1 + s % 5, torch.Generator().manual_seed(s)) for s in range(2000)])
    assert set(drawn.tolist()) == {2, 4}
    last_gap_is_zero = torch.tensor([0.3, 0.3, 0.0], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *a, **k: last_gap_is_zero.clone())
    assert sim.draw(p, 2, torch.Generator()).tolist() == [4, 4]


# -------------------------------------------------------------------------------------------- the whole


@pytest.mark.parametrize(
    "setting", [SMALL, replace(SMALL, temperature=0.8, weight_decay=0.3, beta1=0.5, eps=1e-5, lr=0.03)]
)
def test_curves_are_those_of_the_loop_as_written(setting, monkeypatch):
    """Rows that leak into each other, a stale gradient, or an AdamW that is not torch's: same draws, same curves."""
    drawn = remembered(monkeypatch)
    rollouts = (3, 1, 200)
    curves = sim.simulate(setting, rollouts, seed=5)
    for k, n in enumerate(rollouts):
        again = iter(drawn[n])
        monkeypatch.setattr(sim, "draw", lambda p, n, generator, again=again: next(again))
        written = list(sim.as_written(setting, n, torch.Generator()))
        assert len(written) == setting.steps + 1
        for name, close in (("correct_mass", {"rel": 2e-6}), ("worst_drop", {"abs": 2e-7}), ("anchor", {"rel": 1e-4})):
            assert curves.values[name][k] == pytest.approx([x[name].item() for x in written], **close)


def remembered(monkeypatch) -> dict[int, list[torch.Tensor]]:
    """All that sim.draw will draw, by N."""
    drawn, draw = {}, sim.draw

    def remember(p, n, generator):
        drawn.setdefault(n, []).append(draw(p, n, generator))
        return drawn[n][-1]

    monkeypatch.setattr(sim, "draw", remember)
    return drawn


def test_the_loop_as_written_is_the_plain_one(monkeypatch):
    """An L_sur of another sign, centring or count in both of sim.py's loops: the paper's sum, draw by draw."""
    setting = replace(SMALL, temperature=0.8, steps=20)
    drawn = remembered(monkeypatch)
    written = list(sim.as_written(setting, 7, torch.Generator().manual_seed(0)))
    z = sim.initial_logits(setting).requires_grad_()
    p_start = torch.softmax(z.detach() / setting.temperature, -1)[: setting.correct_tokens]
    rewards = torch.cat([torch.ones(setting.correct_tokens), -torch.ones(setting.vocabulary - setting.correct_tokens)])
    adamw = torch.optim.AdamW([z])  # whose defaults are the figure's
    assert len(written) == setting.steps + 1
    for step, got in enumerate(written):
        p = torch.softmax(z.detach() / setting.temperature, -1)[: setting.correct_tokens]
        assert got["correct_mass"].item() == pytest.approx(p.sum().item(), rel=2e-6)
        assert got["worst_drop"].item() == pytest.approx((p - p_start).min().item(), abs=2e-7)
        if step < setting.steps:
            adamw.zero_grad()
            plain_loss(z, drawn[7][step], rewards, setting.temperature).backward()
            adamw.step()


def test_a_curve_does_not_depend_on_the_others():
    """One generator for all rows would change N = 16 when N = 8 is left out."""
    together = sim.simulate(SMALL, (8, 16), seed=1)
    alone = sim.simulate(SMALL, (16,), seed=1)
    other_seed = sim.simulate(SMALL, (16,), seed=2)
    np.testing.assert_array_equal(together.values["correct_mass"][1], alone.values["correct_mass"][0])
    assert (other_seed.values["correct_mass"][0] != alone.values["correct_mass"][0]).any()


def test_every_row_has_draws_of_its_own(monkeypatch):
    """Rows that share a generator's seed would draw the same uniforms, and the seeds' band would be too narrow."""
    seeds = []
    monkeypatch.setattr(sim, "draw", lambda p, n, generator: seeds.append(generator.initial_seed()) or torch.arange(n))
    for seed in range(3):
        sim.simulate(replace(SMALL, steps=1), (4, 5, 16), seed)
    assert len(set(seeds)) == 9


@pytest.mark.slow
def test_the_papers_figure():
    """A simulator that runs but is not the paper's: the values at step 1,000, one seed (the figure has three)."""
    values = sim.simulate(sim.Setting(), sim.FIGURE_3, record=np.array([0, 1000])).values
    np.testing.assert_allclose(values["correct_mass"][:, 0], 0.6301, atol=1e-4)
    np.testing.assert_allclose(values["correct_mass"][:, 1], [0.601, 0.603, 0.607, 0.634, 0.647], atol=0.003)
    np.testing.assert_allclose(values["percent_improved"][:, 1], [11, 22, 32, 63, 100], atol=3)
    assert values["worst_drop"][-1, 1] >= -1e-7
    assert (values["worst_drop"][:-1, 1] < -1e-6).all()
