"""sim.py, section 4.1: each function against its definition, the loop against a plain one, and Figure 3."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import brorl
import sim

SMALL = sim.Constants(vocabulary=300, correct_tokens=40, steps=60)
ARGUMENTS = ["--vocabulary", "300", "--correct_tokens", "40", "--steps", "23", "--rollouts", "4", "32", "--seeds", "2"]

pytestmark = pytest.mark.usefixtures("one_thread")


def plain_loss(z, tokens, rewards, temperature=1.0):
    """L = -(1/N) Σ_j (R_j - b) p_j, draw by draw: section 4.1."""
    p = torch.softmax(z / temperature, -1)
    r = rewards[tokens]
    b = sum(r) / len(r)
    return -sum((r[j] - b) * p[token] for j, token in enumerate(tokens.tolist())) / len(tokens)


# ------------------------------------------------------------------------------------- the functions of a step


def test_initial_logits_seed_the_correct_mass_of_the_paper():
    """Makes impossible: an anchor outside the correct set, or a wrong start logit: the mass would not start at 0.63."""
    z = sim.initial_logits(sim.Constants())
    assert z[0] == 5 and (z[1:10_000] == 3).all() and (z[10_000:] == 0).all()
    correct = np.exp(5.0) + 9_999 * np.exp(3.0)
    assert torch.softmax(z.double(), -1)[:10_000].sum().item() == pytest.approx(correct / (correct + 118_000), rel=1e-6)
    assert round(correct / (correct + 118_000), 2) == 0.63
    assert sim.rewards_of(sim.Constants()).sum() == 10_000 - 118_000


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_gradient_is_autograds(temperature):
    """Makes impossible: a closed form without the repeated draws, the baseline, 1/N or 1/τ."""
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
    """Makes impossible: a token drawn twice that counts once, or rewards centred on another mean."""
    out = torch.zeros(4)
    sim.add_centred_rewards(out, torch.tensor([0, 0, 3, 3, 3]), torch.tensor([1.0, 1, -1, -1]))
    # b = (1 + 1 - 1 - 1 - 1) / 5 = -0.2: twice 1.2 on token 0, three times -0.8 on token 3
    torch.testing.assert_close(out, torch.tensor([2.4, 0, 0, -2.4]))


def test_measure_by_hand():
    """Makes impossible: a drop with the wrong sign, unchanged tokens counted as improved, a view of p that is kept."""
    p = torch.tensor([[0.2, 0.1, 0.3, 0.0], [0.2, 0.2, 0.2, 0.2]])
    panels = sim.measure(p, torch.tensor([0.1, 0.2, 0.2, 0.0]))
    torch.testing.assert_close(panels["correct_mass"], torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(panels["percent_improved"], torch.tensor([50.0, 50.0]))
    torch.testing.assert_close(panels["worst_drop"], torch.tensor([-0.1, 0.0]))
    torch.testing.assert_close(panels["anchor"], torch.tensor([0.2, 0.2]))
    assert max(x.untyped_storage().nbytes() for x in panels.values()) <= 2 * 8  # all of p: 2.5 GB in Figure 3


# --------------------------------------------------------------------------------------------- the draws


@pytest.mark.parametrize("n", [1, 7, 50_000])
def test_draws_have_the_distribution_p(n):
    """Makes impossible: sorted uniforms with wrong spacings or without an end, which bias every curve (chi-square)."""
    p = torch.softmax(torch.linspace(-3, 2, 50), -1)
    generator = torch.Generator().manual_seed(n)
    repeats = max(1, 8_000 // n)
    counts = sum(torch.bincount(sim.draw(p, n, generator), minlength=50) for _ in range(repeats))
    expected = p.double() / p.double().sum() * counts.sum()
    assert counts.sum() == n * repeats and expected.min() > 5
    assert scipy.stats.chisquare(counts.numpy(), expected.numpy()).pvalue > 1e-3


def test_draws_resolve_tokens_of_tiny_probability():
    """Makes impossible: a cdf in float32 (steps of 6e-8 below 1), which never draws some rare tokens."""
    rare = 200_000
    p = torch.full((1 + rare,), 4e-8, dtype=torch.float64)
    p[0] = 1 - rare * 4e-8
    tokens = sim.draw(p.float(), 2_000_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(tokens, minlength=len(p))[1:].double()
    pairs, expected = (counts * (counts - 1) / 2).sum().item(), counts.sum().item() ** 2 / (2 * rare)
    # float32 could draw about two thirds of the rare tokens only, and 50% more pairs
    assert abs(pairs - expected) < 5 * expected**0.5


def test_draws_stay_inside_the_vocabulary(monkeypatch):
    """Makes impossible: index V, or a token of probability 0, for a uniform at an end of the cdf."""
    p = torch.tensor([0.0, 0.0, 0.4, 0.0, 0.5, 0.0])  # rounding moves the sum of a softmax away from 1, too
    drawn = torch.cat([sim.draw(p, 1 + s % 5, torch.Generator().manual_seed(s)) for s in range(2000)])
    assert set(drawn.tolist()) == {2, 4}
    last_gap_is_zero = torch.tensor([0.3, 0.3, 0.0], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *a, **k: last_gap_is_zero.clone())
    assert sim.draw(p, 2, torch.Generator()).tolist() == [4, 4]


# ------------------------------------------------------------------------------------------------- the loop


@pytest.fixture
def drawn(monkeypatch) -> list[torch.Tensor]:
    """A list to which sim.draw adds the tokens of every draw."""
    found, draw = [], sim.draw

    def remember(p, n, generator):
        found.append(draw(p, n, generator))
        return found[-1]

    monkeypatch.setattr(sim, "draw", remember)
    return found


@pytest.mark.parametrize(
    ("constants", "lr", "weight_decay"),
    [(SMALL, 1e-3, 0.01), (replace(SMALL, lr=0.03, weight_decay=0.3, steps=20), 0.03, 0.3)],
)
def test_the_loop_as_written_is_the_plain_one(constants, lr, weight_decay, drawn):
    """Makes impossible: an L_sur with another sign, centring or count: the loop against the paper's sum."""
    written = list(sim.loop(constants, 7, torch.Generator().manual_seed(0)))
    z = torch.tensor([5.0] + [3.0] * 39 + [0.0] * 260, requires_grad=True)
    p_start = torch.softmax(z.detach(), -1)[:40]
    rewards = torch.tensor([1.0] * 40 + [-1.0] * 260)
    adamw = torch.optim.AdamW([z], lr=lr, weight_decay=weight_decay)  # its other constants are the figure's
    assert len(written) == constants.steps + 1
    for step, got in enumerate(written):
        p = torch.softmax(z.detach(), -1)[:40]
        assert got["correct_mass"].item() == pytest.approx(p.sum().item(), rel=5e-6)
        assert got["worst_drop"].item() == pytest.approx((p - p_start).min().item(), abs=5e-7)
        adamw.zero_grad()
        plain_loss(z, drawn[step], rewards).backward()
        adamw.step()


def test_curves_are_those_of_the_loop():
    """Makes impossible: curves of the wrong step, N or seed, or a generator that several N or seeds share."""
    curves = sim.simulate(SMALL, (3, 200), seed=5, every=20)
    assert curves.steps.tolist() == [0, 20, 40, 60] and (curves.seed, curves.rollouts) == (5, (3, 200))
    for k, n in enumerate(curves.rollouts):
        written = list(sim.loop(SMALL, n, torch.Generator().manual_seed(5_000_015 + n)))[::20]
        for name, values in curves.values.items():
            assert values[k].tolist() == [measured[name].item() for measured in written]
    other_seed = sim.simulate(SMALL, (3, 200), seed=6, every=20)
    assert (other_seed.values["correct_mass"][:, 1:] != curves.values["correct_mass"][:, 1:]).all()


def test_theorem_1_along_the_run():
    """Makes impossible: a term of Theorem 1 with the wrong S_R, N or draws: all against autograd."""
    rewards = torch.tensor([1.0] * 40 + [-1.0] * 260, dtype=torch.float64)
    p = torch.softmax(sim.initial_logits(SMALL).double(), -1)
    tokens = sim.draw(p, 9, torch.Generator().manual_seed(0))
    found = sim.theorem_1_on_draws(p, tokens, SMALL)
    z = p.log().requires_grad_()
    (slope,) = torch.autograd.grad(torch.softmax(z, -1)[:40].sum(), z)
    (gradient,) = torch.autograd.grad(plain_loss(z, tokens, rewards), z)
    once = tokens.unique()  # Theorem 1 counts a token that is drawn twice once, and its rewards are not centred
    (of_once,) = torch.autograd.grad(-(rewards[once] * torch.softmax(z, -1)[once]).sum() / 9, z)
    undrawn = torch.ones(300).double().index_fill(0, once, 0)
    expected = {
        "linear_step": -(gradient @ slope),
        "unsampled_coupling": -(undrawn * of_once * slope).sum(),
        "s_r": rewards[once] @ p[once],
        "unsampled_second_moment": (undrawn * p * p).sum(),
        "predicted_second_moment": (p**2 * (1 - p) ** 9).sum(),
    }
    for name, want in expected.items():
        assert found[name].item() == pytest.approx(want.item(), rel=1e-9), name
    assert sum(found[name] for name in brorl.MassBalance._fields).item() == pytest.approx(-(of_once @ slope).item())
    along = sim.simulate(SMALL, (9,), every=20, mass_balance=True).values
    assert along.keys() == {*sim.PANELS, *found} and along["s_r"].shape == (1, 4)


@pytest.mark.slow
def test_the_papers_figure():
    """Makes impossible: a simulator that runs but differs from the paper's figure at step 1,000 (one seed)."""
    values = sim.simulate(sim.Constants(), sim.FIGURE_3, every=1000).values
    exact = torch.softmax(sim.initial_logits(sim.Constants()).double(), -1)[: sim.Constants().correct_tokens].sum()
    np.testing.assert_allclose(exact, 0.6301, atol=1e-4)
    # With AVX2, torch's float32 softmax of 128,000 tokens sums to 0.9996: the simulator's mass is then 0.6299.
    np.testing.assert_allclose(values["correct_mass"][:, 0], exact, atol=4e-4)
    np.testing.assert_allclose(values["correct_mass"][:, 1], [0.601, 0.603, 0.607, 0.634, 0.647], atol=0.003)
    np.testing.assert_allclose(values["percent_improved"][:, 1], [11, 22, 32, 63, 100], atol=3)
    assert values["worst_drop"][-1, 1] >= -1e-7 and (values["worst_drop"][:-1, 1] < -1e-6).all()


# --------------------------------------------------------------------------------------------- the command line


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_command_line_writes_the_figure_and_the_same_csv_twice(tmp_path):
    """Makes impossible: a run that its seed does not repeat, a CSV without the last step or with wrong samples."""
    for name in ("one", "two"):
        sim.main([*ARGUMENTS, "--out", str(tmp_path / name)])
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "figure3.csv").read_bytes() == (two / "figure3.csv").read_bytes()
    assert (one / "figure3.png").stat().st_size > 10_000
    rows = read_csv(one / "figure3.csv")
    assert list(rows[0]) == ["seed", "N", "step", "samples", "correct_mass", "percent_improved", "worst_drop", "anchor"]
    assert [int(row["step"]) for row in rows[:4]] == [0, 10, 20, 23]
    assert {(row["seed"], row["N"]) for row in rows} == {(s, n) for s in "01" for n in ("4", "32")}
    assert all(int(row["samples"]) == int(row["N"]) * int(row["step"]) for row in rows)


def test_sweep_draws_equal_samples(tmp_path, capsys):
    """Makes impossible: an N of the sweep that stops early, or rows of other samples in one table."""
    sim.main([*ARGUMENTS, "--sweep", "--mass_balance", "--out", str(tmp_path)])
    rows = read_csv(tmp_path / "sweep.csv")
    samples = {n: [row["samples"] for row in rows if row["N"] == n and row["seed"] == "0"] for n in ("4", "32")}
    assert samples["4"] == samples["32"] == ["0", "320", "640", "736"]
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    assert rows[0].keys() > {"linear_step", *brorl.MassBalance._fields}
    printed = [line.split()[:3] for line in capsys.readouterr().out.splitlines() if line.split()[0] in ("4", "32")]
    assert printed[2:4] == [["4", "8", "32"], ["32", "1", "32"]]


def test_table_of_theorem_1_by_hand():
    """Makes impossible: a mean over one seed or step, a ratio of the wrong terms."""
    names = (*sim.PANELS, *brorl.MassBalance._fields, "linear_step")
    values = {name: np.array([[1.0, 2.0, 4.0 + i]]) for i, name in enumerate(names)}
    values["linear_step"] = np.array([[1.0, -1.0, 1.0]])
    curves = [sim.Curves(seed, (8,), np.arange(3), {k: x + seed / 2 for k, x in values.items()}) for seed in (0, 1)]
    cells = {line[:25].strip(): line[25:].split() for line in sim.table_of_theorem_1(curves).splitlines()}
    # means over the steps 1, 2, 8 and 1, 2, 10, each with 0.25 from the second seed
    assert cells["sampled_correct"] == ["3.9"] and cells["unsampled_coupling"] == ["4.6"]
    assert cells["third term / first term"] == ["1.2"] and cells["share of linear_step < 0"] == ["0.33"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--correct_tokens", "300"], "--correct_tokens"),
        (["--steps", "0"], "--steps"),
        (["--rollouts", "4", "4"], "--rollouts"),
        (["--rollouts", "4", "6", "--sweep"], "--sweep"),
        (["--seeds", "0"], "--seeds"),
        (["--out", __file__], "--out"),
    ],
)
def test_wrong_flags_are_named_before_the_run(arguments, named, monkeypatch, capsys):
    """Makes impossible: a traceback, a run with nonsense, or a result that cannot be saved, for a wrong flag."""
    monkeypatch.setattr(sim, "simulate", lambda *a, **k: pytest.fail("it ran"))
    with pytest.raises(SystemExit) as exit_:
        sim.main([*ARGUMENTS, *arguments])
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and named in error and error.startswith("sim.py: ") and error.count("\n") == 1
