"""Stages 6 and 7: log-probs of responses under the trainer.

    name               shape     meaning
    prompts            (G, L)    distinct prompts of a micro-batch, padded on the left
    prompt_lengths     (G,)
    prompt_of          (D,)      each distinct response's row of `prompts`
    responses          (D, R)    distinct responses, padded on the right
    response_lengths   (D,)
    logp, entropy      (K,)      one number per token of the distinct responses, laid end to end

Stage 6 (no gradient) and stage 7 call the same `log_probs` on the same micro-batches, so the ratio of the first update
is exactly 1 in any precision. No [T, V] logits are held: `chunked_logprobs` computes a chunk of tokens at a time.

A GPU works while Python queues its next operations, unless Python waits for a number or copies a tensor. So a
micro-batch's tensors go to the device once, and its log-probs stay there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import DynamicCache, PreTrainedModel

from engines.model import cache_argument
from trainer.head import chunked_logprobs


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
        states = self.after_shared_prompts if self.share_prompts else self.in_whole_rows
        hidden = embedding(at, states(prompts, prompt_lengths, prompt_of, responses).flatten(0, 1))  # (K, H), x[at]
        head = self.model.get_output_embeddings()
        targets, name = responses.flatten()[at], getattr(head, "dithered_names", {}).get("weight")
        return chunked_logprobs(hidden, head.weight, targets, temperature, getattr(head, "bias", None), name=name)

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
