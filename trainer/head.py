"""Stages 6 and 7: log-probs from hidden states, without the logits [T, V] of all tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from engines.rounding import dithered

MAX_LOGITS = 2**26  # logits that exist at the same time


def chunked_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0, bias: Tensor | None = None,
    max_logits: int = MAX_LOGITS, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """log π_θ of each target as `loss.token_logprobs` defines it, and the entropy, without the logits of all tokens.

        log π(target) = z_target - logsumexp(z)      entropy = -Σ_v π_v log π_v      z = (h Wᵀ + b) / temperature

    hidden: (T, H); weight: (V, H); targets: (T,) int64. Returns (T,) each, in float32 or wider. At most `max_logits`
    logits exist at the same time; the backward pass computes them again. The entropy is a metric without a gradient.
    Under autocast h and W have the autocast dtype, and the sum over H, the softmax and the gradient of W are float32.
    W is then rounded by `dithered` as the weight of this name; without a name to the nearest.
    """
    chunk, device = max(1, max_logits // len(weight)), hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    return ChunkedLogprobs.apply(hidden, weight, bias, targets, temperature, chunk, dtype, name)


class ChunkedLogprobs(torch.autograd.Function):
    """∂ log π(y) / ∂z_v = (1[v = y] - π_v) / temperature: the backward pass needs the logits again."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, temperature, chunk, dtype, name):
        logp = torch.empty(len(hidden), dtype=wide(weight), device=hidden.device)
        lse, entropy = torch.empty_like(logp), torch.empty_like(logp)
        for rows, z in logits(hidden, rounded(weight, dtype, name), bias, temperature, chunk):
            target = z.gather(-1, targets[rows, None]).squeeze(-1)
            largest = z.amax(-1, keepdim=True)
            z -= largest
            e = z.exp()
            total = e.sum(-1)
            lse[rows] = total.log() + largest.squeeze(-1)
            logp[rows] = target - lse[rows]
            entropy[rows] = total.log() - e.mul_(z).sum(-1) / total
            del e  # before the next chunk makes its own
        ctx.save_for_backward(hidden, weight, bias, targets, lse)
        ctx.temperature, ctx.chunk, ctx.dtype, ctx.weight_name = temperature, chunk, dtype, name
        ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx, grad, _):
        hidden, weight, bias, targets, lse = ctx.saved_tensors
        grad, w = grad / ctx.temperature, rounded(weight, ctx.dtype, ctx.weight_name)
        grad_hidden, grad_weight, grad_bias = torch.empty_like(hidden), None, None
        if ctx.needs_input_grad[1]:  # with --lora_rank the head is frozen
            grad_weight = torch.zeros_like(weight, dtype=wide(weight))
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = torch.zeros_like(bias, dtype=wide(bias))
        for rows, z in logits(hidden, w, bias, ctx.temperature, ctx.chunk):
            z.sub_(lse[rows, None]).exp_().mul_(-grad[rows, None])  # -g π
            z.scatter_add_(-1, targets[rows, None], grad[rows, None])
            if grad_bias is not None:
                grad_bias += z.sum(0)
            z = z.to(w.dtype)
            grad_hidden[rows] = z @ w
            if grad_weight is None:
                continue
            if grad_weight.dtype == z.dtype:
                grad_weight.addmm_(z.T, hidden[rows].to(z.dtype))
            else:  # products in bfloat16, their sum over the chunks in float32
                grad_weight += z.T @ hidden[rows].to(z.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None, None


def rounded(weight: Tensor, dtype: torch.dtype, name: str | None) -> Tensor:
    """The weight in this type: rounded to bfloat16 by `dithered` if it has a name, else to the nearest."""
    return dithered(weight, name) if name and dtype == torch.bfloat16 else weight.to(dtype)


def logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, chunk: int):
    """Logits / temperature in float32 or wider, `chunk` rows at a time. The caller may overwrite them."""
    for first in range(0, len(hidden), chunk):
        rows = slice(first, min(first + chunk, len(hidden)))
        h = hidden[rows].to(weight.dtype)
        if weight.dtype == wide(weight):
            z = h @ weight.T
        elif h.device.type == "cuda":  # products in bfloat16, sums and result in float32
            z = torch.mm(h, weight.T, out_dtype=torch.float32)
        else:
            z = h.float() @ weight.float().T
        if bias is not None:
            z += bias
        yield rows, z.div_(temperature)


def wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
