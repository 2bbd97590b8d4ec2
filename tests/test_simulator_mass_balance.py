"""simulator/mass_balance.py: Theorem 1 and Corollary 3 on a step's draws, against autograd."""

import pytest
import torch

import brorl
import sim
from simulator.mass_balance import theorem_1_on_draws


def test_the_step_is_theorem_1_on_the_draws():
    """A third term with the wrong S_R or N: it must be what ∂L's step does to Q_pos through the undrawn tokens."""
    torch.manual_seed(0)
    p = torch.softmax(torch.randn(2, 12, dtype=torch.float64), -1)
    correct = torch.arange(12) < 5
    rewards = torch.where(correct, 1.0, -1.0).double()
    draws = [torch.tensor([0, 0, 3, 7]), torch.tensor([1, 2])]  # the second: all right, so nothing is learned
    centred = torch.zeros_like(p)
    for k, tokens in enumerate(draws):
        sim.add_centred_rewards(centred[k], tokens, rewards)
    found = theorem_1_on_draws(p, centred, draws, correct, 1.0, -1.0)

    z = p[0].log().requires_grad_()
    r = rewards[draws[0]]
    L_sur = -((r - r.mean()) * torch.softmax(z, -1)[draws[0]]).sum() / 4  # a token drawn twice counts twice
    (gradient,) = torch.autograd.grad(L_sur, z)
    jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1)[correct].sum(), p[0].log())
    undrawn = torch.ones(12).scatter(0, draws[0], 0).bool()
    assert found["linear_step"][0].item() == pytest.approx((jacobian * -gradient).sum().item(), rel=1e-10)
    assert found["centred_coupling"][0].item() == pytest.approx((jacobian * -gradient)[undrawn].sum().item(), rel=1e-10)
    assert found["centred_coupling"][1] == found["linear_step"][1] == 0
    # the second row's draws have centred rewards of 0 and yet were drawn
    expected = (p[1] ** 2).sum() - p[1, 1] ** 2 - p[1, 2] ** 2
    assert found["unsampled_second_moment"][1].item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(
        found["predicted_second_moment"][0], brorl.total_unsampled_second_moment(p[0], 4), rtol=1e-12, atol=0
    )


def test_theorem_1_as_stated():
    """The paper's own terms taken with centred rewards, with a token twice, or with R_c and R_w that it forbids."""
    p = torch.softmax(torch.randn(1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), -1)
    draws, correct = [torch.tensor([0, 0, 4])], torch.arange(6) < 2
    found = theorem_1_on_draws(p, torch.zeros_like(p), draws, correct, 2.0, -0.5)
    z = p[0].log().requires_grad_()
    now = torch.softmax(z, -1)
    L = -(2.0 * now[0] - 0.5 * now[4]) / 3  # each drawn token once
    (gradient,) = torch.autograd.grad(L, z, retain_graph=True)
    (slope,) = torch.autograd.grad(now[:2].sum(), z)
    terms = sum(found[name] for name in ("sampled_correct", "sampled_incorrect", "unsampled_coupling"))
    assert terms.item() == pytest.approx(-(gradient * slope).sum().item(), rel=1e-10)
    assert found["mood"].item() == pytest.approx((2 * now[0] - 0.5 * now[4]).item())
    assert "mood" not in theorem_1_on_draws(p, torch.zeros_like(p), draws, correct, 2.0, 0.5)
