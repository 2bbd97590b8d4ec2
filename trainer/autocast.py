"""The trainer's forward pass in bfloat16 with `dithered` weights (engines/rounding.py), as the engines compute.

A layer with an adapter (adapters.py) rounds its merged weight itself.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from engines.model import matrices_of
from engines.rounding import dithered


class Dithered(torch.autograd.Function):
    """`dithered` with the gradient of a cast: ∂L/∂w = ∂L/∂dithered(w)."""

    @staticmethod
    def forward(ctx, weight, name):
        return dithered(weight, name)

    @staticmethod
    def backward(ctx, grad):
        return grad.float(), None


class DitheredProduct(torch.autograd.Function):
    """y = x Wᵀ + b in bfloat16 with dithered W and b. x: (..., in); W: (out, in); b: (out,) or None.

        ∂L/∂x = g W        ∂L/∂W = gᵀ x        ∂L/∂b = Σ g        g = ∂L/∂y

    The backward pass rounds W again. So no rounded copy of the weights waits for it, and FSDP2 can free W in between.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, names):
        ctx.save_for_backward(x.bfloat16(), weight)
        ctx.names, ctx.dtype, ctx.has_bias = names, x.dtype, bias is not None
        b = None if bias is None else dithered(bias, names["bias"])
        return linear(x.bfloat16(), dithered(weight, names["weight"]), b)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = (grad @ dithered(weight, ctx.names["weight"])).to(ctx.dtype)
        grad, x = grad.flatten(0, -2), x.flatten(0, -2)
        return grad_x, (grad.T @ x).float(), grad.sum(0, dtype=torch.float32) if ctx.has_bias else None, None


class DitheredLinear(torch.nn.Linear):
    """A linear layer that uses `dithered` weights under autocast, and its own otherwise."""

    dithered_names: dict[str, str]

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type) and self.weight.dtype == torch.float32:
            return DitheredProduct.apply(x, self.weight, self.bias, self.dithered_names)
        return super().forward(x)


def dither_under_autocast(model: torch.nn.Module) -> None:
    """Let the forward pass under autocast use `dithered` weights; autocast alone rounds them to the nearest.

    Linear layers get another class. Other modules with matrices (GPT-2's Conv1D, the experts of a mixture) get rounded
    weights for each of their forward passes, and their rounded copies wait for the backward pass, as autocast's do.
    """
    for module, names in matrices_of(model):
        module.dithered_names = names  # type: ignore[assignment]
        if type(module) is torch.nn.Linear:
            module.__class__ = DitheredLinear
        else:
            module.register_forward_pre_hook(swap_in_dithered)
            module.register_forward_hook(swap_back, always_call=True)


def swap_in_dithered(module: Any, _: tuple) -> None:
    """Before the forward pass of a module: give it rounded weights, unless it has them or autocast is off."""
    weights = {key: module._parameters[key] for key in module.dithered_names}
    weight = next(iter(weights.values()))
    if torch.is_autocast_enabled(weight.device.type) and weight.dtype == torch.float32:
        module.own_weights = weights
        for key, name in module.dithered_names.items():
            module._parameters[key] = Dithered.apply(weights[key], name)


def swap_back(module: Any, *_: Any) -> None:
    """After the forward pass: give the module its own weights again."""
    module._parameters.update(vars(module).pop("own_weights", {}))
