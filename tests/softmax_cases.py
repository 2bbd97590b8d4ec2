"""Random softmaxes and the step on them by autograd, for test_brorl.py."""

import pytest
import torch

import brorl

SHAPES = [(), (3,), (2, 5)]
REWARDS = [(1.0, -1.0), (1.0, 0.0), (0.0, -1.0), (3.0, -1.0), (0.1, -2.5), (0.0, 0.0)]

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
rewards_pairs = pytest.mark.parametrize(("r_c", "r_w"), REWARDS)


def drawn_mask(draws: torch.Tensor, vocab: int) -> torch.Tensor:
    """The set of drawn tokens, (..., V), from the draws themselves, (..., N) with repeats."""
    return torch.zeros(*draws.shape[:-1], vocab, dtype=torch.bool).scatter_(-1, draws, True)


def random_case(shape: tuple[int, ...], vocab: int, n: int, seed: int, dtype=torch.float64, scale: float = 1.5):
    """Logits, p, the correct tokens and the set drawn in n i.i.d. draws from p."""
    g = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(*shape, vocab, generator=g, dtype=dtype)
    p = torch.softmax(z, -1)
    correct = torch.rand(*shape, vocab, generator=g) < 0.5
    draws = torch.multinomial(p.reshape(-1, vocab), n, replacement=True, generator=g).reshape(*shape, n)
    return z, p, correct, drawn_mask(draws, vocab)


def gradient_step(z, r, eta, n):
    """-η ∂L/∂z by autograd, through softmax and the surrogate."""
    z = z.clone().requires_grad_()
    (grad,) = torch.autograd.grad(brorl.surrogate(torch.softmax(z, -1), r, n).sum(), z)
    return -eta * grad
