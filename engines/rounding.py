"""Round float32 weights to bfloat16 so that a step of the policy is not lost.

A bfloat16 number has 8 significant bits: near 0.02 the next one is 1.2e-4 away, so a weight must move by up to 6e-5
before rounding to the nearest gives another number. A step of AdamW moves it by about the learning rate, 1e-6. So a
copy that is rounded to the nearest hardly sees the steps. `dithered` adds a fraction of an ulp that is fixed for each
position of a weight, then cuts:

    dithered(w) = sign(w) · cut(|w| + u · ulp(w))      u in [0, 1), fixed      E_u[dithered(w)] = w

ulp(w): the distance between the two bfloat16 numbers around |w|. A weight that is a bfloat16 number stays as it is. A
step of a tenth of an ulp changes a tenth of the weights, each of them by one ulp, and they stay changed until the
policy moves on: the copy follows the policy in the mean, and it is the same at every sync and on every rank.

vLLM's copy of the weights is rounded this way, and so are the weights of the trainer's own forward pass in bfloat16.
Both must round alike: if only one of them sees the steps, the two are different policies.
Stochastic rounding, with a new u at each rounding, is known from optimizers with bfloat16 weights (llm.c, torchao).
"""

import functools
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.functional import linear

PERIOD = 2**20  # u repeats after so many positions


@functools.cache
def fractions(device: torch.device) -> Tensor:
    """The fractions u of two periods in units of 1 / 65,536, int32. A period has each of the 65,536 values 16 times."""
    order = torch.randperm(PERIOD, generator=torch.Generator().manual_seed(0))
    return (order * 2**16 // PERIOD).int().repeat(2).to(device)


@torch.no_grad()
def dithered(weight: Tensor, name: str) -> Tensor:
    """Round a weight to bfloat16 without bias; u depends on the weight's name and on the position in it.

    A float32 number has 32 bits, and its upper 16 are the bfloat16 number below it in magnitude. To add u · ulp is to
    add u · 65,536 to the lower 16 bits. A part of an FSDP2 weight is rounded as this part of the whole weight. A
    weight in bfloat16 is returned as it is.
    """
    if weight.dtype == torch.bfloat16:
        return weight
    if isinstance(weight, DTensor):
        part, parts = weight.device_mesh.get_local_rank(), weight.device_mesh.size()
        offset = part * math.ceil(len(weight) / parts) * weight[:1].numel() if len(weight) else 0
        local = round_part(weight.to_local(), name, offset)
        return DTensor.from_local(
            local, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
        )
    return round_part(weight, name, 0)


def round_part(weight: Tensor, name: str, offset: int) -> Tensor:
    """Round a weight, or the part of it that starts at position `offset` of the whole weight."""
    bits = weight.float().reshape(-1).view(torch.int32)
    rounded = torch.empty(weight.shape, dtype=torch.bfloat16, device=weight.device)
    start = (zlib.crc32(name.encode()) + offset) % PERIOD
    u = fractions(weight.device)[start : start + PERIOD]
    for part, out in zip(bits.split(PERIOD), rounded.view(-1).split(PERIOD), strict=True):
        out.copy_((part + u[: len(part)]).view(torch.bfloat16)[1::2])  # the upper halves: numbers are little-endian
    return rounded


def matrices_of(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, dict[str, str]]]:
    """Yield each module with a matrix that autocast rounds, and the names of its weights in the model.

    Under autocast embeddings and norms compute in float32. A tied output head has the name of the embedding, as in an
    engine. A layer with an adapter (trainer/adapters.py) rounds its merged weight itself.
    """
    names = {p: name for name, p in model.named_parameters()}
    for module in model.modules():
        own = {key: p for key, p in module._parameters.items() if p is not None}
        left_out = isinstance(module, torch.nn.Embedding) or hasattr(module, "merged")
        if any(p.dim() > 1 for p in own.values()) and not left_out:
            yield module, {key: names[p] for key, p in own.items()}


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
            module.register_forward_pre_hook(use_dithered)
            module.register_forward_hook(use_own, always_call=True)


def use_dithered(module: Any, _: tuple) -> None:
    """Before the forward pass of a module: give it rounded weights, unless it has them or autocast is off."""
    own = {key: module._parameters[key] for key in module.dithered_names}
    weight = next(iter(own.values()))
    if torch.is_autocast_enabled(weight.device.type) and weight.dtype == torch.float32:
        module.own_weights = own
        for key, name in module.dithered_names.items():
            module._parameters[key] = Dithered.apply(own[key], name)


def use_own(module: Any, *_: Any) -> None:
    """After the forward pass: give the module its own weights again."""
    module._parameters.update(vars(module).pop("own_weights", {}))


@contextmanager
def dithered_weights(model: torch.nn.Module) -> Iterator[None]:
    """Round the model's matrices once for many forward passes without gradients: 2 bytes per parameter more.

    A layer with an adapter gets its merged weight, rounded.
    """
    own: list[tuple[Any, dict[str, Tensor], dict[str, str]]] = []
    for module, names in matrices_of(model):
        own.append((module, {key: getattr(module, key) for key in names}, names))
    adapted: list[Any] = [module for module in model.modules() if hasattr(module, "merged")]
    try:
        for module in adapted:
            module.engine_weight = dithered(module.merged(), module.name)
        for module, weights, names in own:
            module._parameters.update({key: dithered(weights[key], name) for key, name in names.items()})
        yield
    finally:
        for module in adapted:
            module.engine_weight = None
        for module, weights, _ in own:
            module._parameters.update(weights)
