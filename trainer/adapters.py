"""--lora_rank: low-rank adapters (LoRA, arXiv 2106.09685) at the linear layers of attention and MLP; W is frozen.

    y = x W'ᵀ + b        W' = W + (α / R) B A

    name    shape        type                  meaning
    W, b    (out, in)    float32, or bfloat16  weights of the model; with --precision bfloat16 they are bfloat16 numbers
    A       (R, in)      float32               trained; at the start uniform in ±1/√in
    B       (out, R)     float32               trained; 0 at the start: a new policy is the model itself, exactly
    α / R                                      ALPHA over --lora_rank

The letters are those of the paper on LoRA: here A is no advantage, B no number of prompts, R no response length.

In float32 the trainer and the torch engine compute x Wᵀ + b + (α / R) (x Aᵀ) Bᵀ.

In bfloat16 they compute with `dithered(W')` (engines/rounding.py), the matrix that vLLM gets. A sum of two products
would be another function, also if the adapter's product δ is float32: x Wᵀ is then a bfloat16 number y, and y + δ is
rounded to y again if δ is less than half of the distance to the next bfloat16 number. If δ has 2e-4 of the size of y,
the sum keeps 13% of it, and `dithered(W')` keeps all of it in the mean (a test). So with the sum the trainer would
hardly see the first updates, and the engine would. A and B themselves are never rounded in the forward pass. It merges
one layer at a time; the backward pass merges the layer again, and needs no gradient of W'.

The reference shares W with the policy and has its own A and B, so it costs R (in + out) numbers per layer, and a reset
copies A and B. Embedding, output head, norms and biases are frozen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import linear

from engines.rounding import dithered
from trainer.process import Refusal

ALPHA = 32.0  # α


class Adapted(torch.nn.Module):
    """A linear layer with an adapter. W and b keep their names, so the weights of the model keep theirs.

    engine_weight   the rounded W', while the torch engine decodes in bfloat16 (engines/model.py: dithered_weights)
    """

    engine_weight: Tensor | None = None

    def __init__(self, layer: torch.nn.Linear, name: str, rank: int, alpha: float, generator: torch.Generator):
        """name: of W in the model, which the rounding of W' depends on."""
        super().__init__()
        self.weight, self.bias, self.name, self.scale = layer.weight, layer.bias, name, alpha / rank
        in_features, out_features = layer.in_features, layer.out_features
        start = 2 * torch.rand(rank, in_features, generator=generator) - 1
        self.A = torch.nn.Parameter(start / in_features**0.5)
        self.B = torch.nn.Parameter(torch.zeros(out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in). Returns (..., out), in the type of W."""
        x = x.to(self.weight.dtype)
        if self.engine_weight is not None:
            return linear(x, self.engine_weight, self.bias)
        if self.weight.dtype == torch.bfloat16:
            return MergedProduct.apply(x, self.weight, self.bias, self.A, self.B, self.scale, self.name)
        return linear(x, self.weight, self.bias) + self.scale * linear(linear(x, self.A), self.B)

    @torch.no_grad()
    def merged(self) -> Tensor:
        """W' in float32, (out, in). Under FSDP2 every rank calls it: it gathers this layer."""
        w, a, b = (x.full_tensor() if hasattr(x, "full_tensor") else x for x in (self.weight, self.A, self.B))
        return sum_of(w, a, b, self.scale)


def sum_of(w: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale B A in float32, also under autocast, which would round B and A."""
    with torch.autocast(w.device.type, enabled=False):
        return torch.addmm(w.float(), b, a, alpha=scale)


class MergedProduct(torch.autograd.Function):
    """y = x dithered(W')ᵀ + b in bfloat16. With G = ∂L/∂y, (T, out), x as (T, in) and s = α / R:

        ∂L/∂x = G dithered(W')      ∂L/∂A = s (G B)ᵀ x      ∂L/∂B = s Gᵀ (x Aᵀ)

    These are the gradients through ∂L/∂W' = Gᵀ x, which is not computed: it has as many numbers as W.
    """

    @staticmethod
    def forward(ctx, x, w, bias, a, b, scale, name):
        ctx.save_for_backward(x, w, a, b)
        ctx.scale, ctx.name = scale, name
        return linear(x, dithered(sum_of(w, a, b, scale), name), bias)

    @staticmethod
    def backward(ctx, grad):
        x, w, a, b = ctx.saved_tensors
        g, x_rows = grad.flatten(0, -2), x.flatten(0, -2)
        grad_x = grad @ dithered(sum_of(w, a, b, ctx.scale), ctx.name) if ctx.needs_input_grad[0] else None
        grad_a = (g @ b.to(g.dtype)).T @ x_rows
        grad_b = g.T @ (x_rows @ a.to(g.dtype).T)
        return grad_x, None, None, ctx.scale * grad_a.float(), ctx.scale * grad_b.float(), None, None


def add_adapters(model: torch.nn.Module, rank: int, alpha: float, dtype: torch.dtype) -> None:
    """Freeze the model's weights, cast them to `dtype` and put an adapter at each linear layer except the output head.

    Only weights are cast: positions in bfloat16 would change every rotary embedding. A is the same on all ranks and
    after a resume. Raises Refusal for a model with other matrices in its layers, and for a rank above their sides.
    """
    head, kind = model.get_output_embeddings(), type(model).__name__  # type: ignore[operator]
    layers = {name: x for name, x in model.named_modules() if isinstance(x, torch.nn.Linear) and x is not head}
    known = [x for x in model.modules() if isinstance(x, torch.nn.Linear | torch.nn.Embedding)]
    for name, p in model.named_parameters():
        if p.dim() > 1 and not any(p is x.weight for x in known):
            raise Refusal(f"--lora_rank: {kind} has a matrix outside of nn.Linear, {name}: train all its weights")
    most = min((side for x in layers.values() for side in x.weight.shape), default=0)
    if rank > most:
        raise Refusal(f"--lora_rank {rank} exceeds the smallest side of a linear layer of {kind}, {most}: lower it")
    for p in model.parameters():
        p.requires_grad_(False)
        p.data = p.data.to(dtype)
    generator = torch.Generator().manual_seed(0)
    for name, layer in layers.items():
        model.set_submodule(name, Adapted(layer, f"{name}.weight", rank, alpha, generator))


def copy_sharing_frozen(policy: torch.nn.Module):
    """A copy of the policy that shares its frozen parameters. Without adapters nothing is frozen, and all is copied."""
    return copy.deepcopy(policy, {id(p): p for p in policy.parameters() if not p.requires_grad})


def trainable(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """The parameters with a gradient: those of the adapters, or all."""
    return (p for p in module.parameters() if p.requires_grad)
