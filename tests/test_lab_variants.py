"""Each variant of the objective with numbers worked out by hand, and through the loop."""

import pytest
import torch
from test_lab_loop import error, gradients

from lab import loop, variants
from lab.variants import ADVANTAGES, OBJECTIVES, VARIANTS

# A right response of two tokens and a wrong one of one token: r = 1.5, 0.5, 0.9
OLD, NEW = torch.tensor([0.2, 0.4, 0.5]).log(), torch.tensor([0.3, 0.2, 0.45]).log()
LENGTHS, A = torch.tensor([2, 1]), torch.tensor([1.0, -1.0])


def mean_and_gradient(name: str, engine: torch.Tensor = OLD) -> tuple[float, list[float]]:
    """The objective's mean over tokens, and its gradient by log π_θ times T = 3."""
    logp = NEW.clone().requires_grad_()
    objective = OBJECTIVES[name](logp, OLD, engine, A, LENGTHS).mean()
    return objective.item(), (3 * torch.autograd.grad(objective, logp)[0]).tolist()


def test_cispo_by_hand():
    """Makes impossible: a gradient through the weight, a token beyond the clip that is lost, the wrong side clipped."""
    assert mean_and_gradient("cispo")[1] == pytest.approx([1.27, 0.5, -0.9])


def test_gspo_by_hand():
    """Makes impossible: a ratio of each token, a sum for the mean of log r, a long response that counts more."""
    s = 0.75**0.5  # (1.5 x 0.5)^(1/2), not clipped; the wrong response has s = 0.9, clipped to 1 - 3e-4
    value, gradient = mean_and_gradient("gspo")
    assert value == pytest.approx((s - 0.9997) / 2) and gradient == pytest.approx([3 * s / 4, 3 * s / 4, 0])


def test_dr_grpo_by_hand():
    """Makes impossible: a division by a std or by the number of tokens."""
    assert mean_and_gradient("dr_grpo")[0] == pytest.approx((1.27 + 0.5 - 0.9) / (2 * 12))
    assert ADVANTAGES["dr_grpo"](torch.tensor([[True, False, False, False]])).tolist() == [[0.75, -0.25, -0.25, -0.25]]


def test_icepop_by_hand():
    """Makes impossible: a token that is capped where it should be dropped, only one side of the mask."""
    rho = torch.tensor([0.4, 1.2, 6.0])
    value, gradient = mean_and_gradient("icepop", OLD - rho.log())
    assert value == pytest.approx(1.2 * 0.5 / 3) and gradient == pytest.approx([0, 0.6, 0])


def test_the_entropy_bonus_is_the_gradient_of_the_entropy():
    """Makes impossible: a bonus that lowers the entropy. The sum is over all tokens, with their probabilities."""
    z = torch.tensor([1.5, 0.5, 0.0, -2.0], dtype=torch.float64, requires_grad=True)
    logp, p = z.log_softmax(-1), z.softmax(-1)
    fixed, nothing, ones = logp.detach(), torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.long)
    ours = torch.autograd.grad(
        p.detach() @ OBJECTIVES["entropy_bonus"](logp, fixed, fixed, nothing, ones), z, retain_graph=True
    )
    assert torch.allclose(ours[0], variants.ENTROPY_COEF * torch.autograd.grad(-(p * logp).sum(), z)[0])


def test_f_grpo_by_hand():
    """Makes impossible: a weight of the wrong share, p for 1 - p, a weight that whitening takes back."""
    got = ADVANTAGES["f_grpo"](torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]]) == 1)
    by_hand = torch.tensor([[0.5625, -0.1875, -0.1875, -0.1875], [0.0625, 0.0625, 0.0625, -0.1875]])
    assert torch.allclose(got, by_hand / 0.05859375**0.5)


def test_pods_by_hand():
    """Makes impossible: the baseline of all N rollouts, the rare class left out, other rollouts than the first."""
    correct = torch.arange(16) < torch.tensor([[1], [14], [8]])
    got = ADVANTAGES["pods"](correct) * 0.229167**0.5  # mean of A² over 12 rollouts: (0.75 + 1 + 1) / 12
    expected = torch.zeros(3, 16)
    expected[0, :4] = torch.tensor([0.75, -0.25, -0.25, -0.25])
    expected[1, [0, 1, 14, 15]] = expected[2, [0, 1, 8, 9]] = torch.tensor([0.5, 0.5, -0.5, -0.5])
    assert torch.allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_trains(name):
    """Makes impossible: a --variant that the loop does not reach. icepop differs where engine and trainer do."""
    got, plain = (torch.cat(gradients(loop.train, updates=2, learning_rate=3e-3, variant=x)) for x in (name, "brorl"))
    assert got.isfinite().all() and (error(got, plain) > 1e-3) == (name not in ("brorl", "icepop"))
