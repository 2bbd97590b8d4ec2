"""Stages 6 and 7: log-probs of responses under the trainer.

    name               shape     meaning
    prompts            (G, L)    distinct prompts of a micro-batch, padded on the left
    prompt_lengths     (G,)
    prompt_of          (D,)      each distinct response's row of `prompts`
    responses          (D, R)    distinct responses, padded on the right
    response_lengths   (D,)
    logp, entropy      (K,)      one number per token of the distinct responses, laid end to end

Stage 6 (no gradient) and stage 7 call the same `log_probs` on the same micro-batches, so the ratio of the first update
is exactly 1 in any precision. No [K, V] logits are held: `chunked_logprobs` computes a chunk of tokens at a time.

A GPU works while Python queues its next operations, unless Python waits for a number or copies a tensor. So a
micro-batch's tensors go to the device once, and its log-probs stay there.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn.functional import embedding
from transformers import DynamicCache, PreTrainedModel

from engines.model import cache_argument
from engines.rounding import dithered
from trainer.micro_batches import MicroBatch

MAX_LOGITS = 2**26  # logits that exist at the same time


def log_probs(policy: torch.nn.Module, micro_batch: MicroBatch, temperature: float, accelerator: Accelerator):
    """log π and the entropy of every response token of a micro-batch, (T,) each, on the accelerator's device."""
    with accelerator.autocast():
        found = policy(*micro_batch.inputs, temperature)
    return tuple(embedding(micro_batch.computed, x[:, None]).squeeze(-1) for x in found)  # x[computed], faster


@torch.no_grad()
def write_log_probs(
    policy: torch.nn.Module, mini_batch: list[MicroBatch], name: str, temperature: float, accelerator
) -> Tensor:
    """Stage 6: write log π of each micro-batch's tokens into its field `name`. Returns this rank's sum of entropies."""
    total = torch.zeros((), dtype=torch.float64, device=accelerator.device)
    for micro_batch in mini_batch:
        logp, entropy = log_probs(policy, micro_batch, temperature, accelerator)
        total += entropy.double().sum()
        setattr(micro_batch, name, logp.float())
    if hasattr(policy, "reshard"):  # FSDP2 keeps the weights of a forward pass until its backward pass
        policy.reshard()  # type: ignore[operator]
    return total


class Policy(torch.nn.Module):
    """A causal language model of transformers as the loss sees it: log-probs of responses."""

    def __init__(self, model):
        super().__init__()
        self.model, self.share_prompts = model, False
        switch_off_dropout(model)

    def forward(
        self, prompts: Tensor, prompt_lengths: Tensor, prompt_of: Tensor, responses: Tensor, response_lengths: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """log π and the entropy of every token of the distinct responses, (K,) each; shapes: the table above."""
        inside = torch.arange(responses.shape[1], device=responses.device) < response_lengths[:, None]  # (D, R)
        at = inside.flatten().nonzero().squeeze(-1)  # (K,) places of the tokens; the only wait for the device here
        # start.py sets share_prompts, as `shares_prompts` of trial.py answers; True for the tiny policy
        states = self.after_shared_prompts if self.share_prompts else self.in_whole_rows
        hidden = embedding(at, states(prompts, prompt_lengths, prompt_of, responses).flatten(0, 1))  # (K, H), x[at]
        return self.log_probs_of(hidden, responses.flatten()[at], temperature)

    def log_probs_of(self, hidden: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """log π and the entropy of targets after these hidden states, (K,) each."""
        head = self.model.get_output_embeddings()
        bias, name = getattr(head, "bias", None), getattr(head, "dithered_names", {}).get("weight")
        return chunked_logprobs(hidden, head.weight, targets, temperature, bias, name=name)

    def in_whole_rows(self, prompts: Tensor, prompt_lengths: Tensor, prompt_of: Tensor, responses: Tensor) -> Tensor:
        """The hidden states that predict the responses, (D, R, H); every row computes its own prompt.

        A row is prompt, response, padding. It needs no attention mask: a causal model never looks to the right.
        """
        rows = torch.cat([prompts[prompt_of], responses], dim=1)  # (D, L + R), padded on the left
        column = torch.arange(rows.shape[1], device=rows.device)
        length = prompt_lengths[prompt_of][:, None]  # (D, 1)
        rows = rows.gather(1, (column + prompts.shape[1] - length) % rows.shape[1])  # now padded on the right
        states = self.model.base_model(input_ids=rows, use_cache=False).last_hidden_state
        predicts = length - 1 + column[: responses.shape[1]]  # (D, R): the state at i predicts token i + 1
        return states.gather(1, predicts[..., None].expand(-1, -1, states.shape[-1]))

    def after_shared_prompts(self, prompts: Tensor, prompt_lengths: Tensor, prompt_of: Tensor, responses: Tensor):
        """The same states; each prompt is computed once, and its keys and values serve all of its responses."""
        real = torch.arange(prompts.shape[1], device=prompts.device) >= prompts.shape[1] - prompt_lengths[:, None]
        base = self.model.base_model
        cache: Any = DynamicCache()
        shared = {cache_argument(base): cache, "use_cache": True}
        out = base(
            input_ids=prompts, attention_mask=real.long(), position_ids=(real.cumsum(-1) - 1).clamp(min=0), **shared
        )
        after_prompt = out.last_hidden_state[:, -1:].index_select(0, prompt_of)  # (D, 1, H), predicts the first token
        before = responses[:, :-1]  # the last token predicts nothing
        for layer in cache.layers:
            layer.keys, layer.values = (x.index_select(0, prompt_of) for x in (layer.keys, layer.values))
        position = prompt_lengths[prompt_of][:, None] + torch.arange(before.shape[1], device=before.device)
        mask = torch.cat([real[prompt_of].long(), torch.ones_like(before)], dim=1)
        later = base(input_ids=before, attention_mask=mask, position_ids=position, **shared)
        return torch.cat([after_prompt, later.last_hidden_state], dim=1)


def recompute_layers(model: PreTrainedModel) -> None:
    """Switch on --gradient_checkpointing: the backward pass computes each layer again instead of keeping it in memory.

    transformers 5.24 has renamed the method.
    """
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()


def switch_off_dropout(model: torch.nn.Module) -> None:
    """Set every dropout rate to 0: without dropout the old, the new and the engine's log-probs are one function.

    A rate is the `p` of a Dropout module, or a float attribute of another module: dropout, attn_dropout, layerdrop ...
    """
    for module in model.modules():
        for name, value in [*vars(module).items()]:
            if isinstance(value, float) and ("drop" in name or (name == "p" and "Dropout" in type(module).__name__)):
                setattr(module, name, 0.0)


def chunked_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0, bias: Tensor | None = None,
    max_logits: int = MAX_LOGITS, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """log π_θ of each target as `loss.token_logprobs` defines it, and the entropy, without the logits of all tokens.

        log π(target) = z_target - logsumexp(z)      entropy = -Σ_v π_v log π_v      z = (h Wᵀ + b) / temperature

    hidden: (K, H); weight: (V, H); targets: (K,) int64. Returns (K,) each, in float32 or wider. At most `max_logits`
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
