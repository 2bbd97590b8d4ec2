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
from trainer.settings import Config

# Shared prompts need a mask of [D, R, L + R], and attention without a mask is faster: they pay for short responses.
SHARE_UP_TO_RATIO, SHARE_UP_TO_TOKENS = 4, 2048  # longest response: times the mean prompt, and in tokens
# Settings of transformers' models whose logits are not h Wᵀ + b, unless the value is None or 1.
LOGIT_SETTINGS = (
    "final_logit_softcapping", "logit_scale", "logits_scaling", "logits_soft_cap", "lm_head_multiplier",
)  # fmt: skip


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
        """log π and the entropy of every token of the distinct responses, (K,) each; shapes: this file's head."""
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


def shares_prompts(policy: Policy, prompt_lengths: list[int], config: Config) -> bool:
    """Whether stages 6 and 7 compute each prompt of a micro-batch once: the same answer for the whole run.

    Gradient checkpointing drops the key-value cache, so it excludes sharing.
    """
    mean = sum(prompt_lengths) / len(prompt_lengths)
    short = config.max_response_tokens <= min(SHARE_UP_TO_TOKENS, SHARE_UP_TO_RATIO * mean)
    return short and not config.gradient_checkpointing and agrees_with_logits(policy, share_prompts=True)


def agrees_with_logits(policy: Policy, share_prompts: bool = False) -> bool:
    """Whether the policy's log-probs agree with the model's own logits."""
    return not difference_from_logits(policy, share_prompts)


def example(vocabulary: int) -> tuple[Tensor, list[int], list[int], Tensor, list[int]]:
    """Arguments of `Policy.forward`: three rollouts of two prompts of random tokens."""
    random = torch.Generator().manual_seed(0)
    prompts, responses = (torch.randint(vocabulary, shape, generator=random) for shape in ((2, 5), (3, 4)))
    return prompts, [3, 5], [0, 1, 1], responses, [4, 2, 4]


def has_unused_parameters(policy: Policy) -> bool:
    """Whether there are parameters on which no log-prob depends, such as a vision tower's: DDP must look for them.

    An expert of a mixture that the example does not reach counts too.
    """
    device = policy.model.device
    arguments = example(policy.model.config.get_text_config().vocab_size)
    logp, _ = policy(*(torch.as_tensor(x, device=device) for x in arguments), 1.0)
    nodes, used = [logp.grad_fn], set()
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        used.add(id(getattr(node, "variable", None)))
        more = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= more
        nodes += more
    return any(p.requires_grad and id(p) not in used for p in policy.parameters())


@torch.no_grad()
def difference_from_logits(policy: Policy, share_prompts: bool = False) -> str:
    """Say why the policy's log-probs do not agree with the model's own logits; "" if they agree.

    Compares them on three rollouts of two prompts of random tokens. They differ if the model scales or caps its logits
    after the head, which `chunked_logprobs` does not see, or if train mode, which gradient checkpointing needs, is not
    the same function as eval mode.
    """
    model = policy.model
    text_config = model.config.get_text_config()
    policy.eval()
    for name in LOGIT_SETTINGS:
        if (value := getattr(text_config, name, None)) not in (None, 1):
            return f"it scales or caps its logits after the head ({name} {value})"
    arguments = example(text_config.vocab_size)
    prompts, prompt_lengths, prompt_of, responses, response_lengths = arguments
    found, want = {}, []
    try:
        for response, g, n in zip(responses, prompt_of, response_lengths, strict=True):
            row = torch.cat([prompts[g, 5 - prompt_lengths[g] :], response[:n]]).to(model.device)
            logp = model(input_ids=row[None]).logits[0].float().log_softmax(-1)
            want.append(logp[-n - 1 : -1].gather(-1, row[-n:, None]).squeeze(-1))
        policy.share_prompts = share_prompts
        for mode in (False, True):
            policy.train(mode)
            found[mode], _ = policy(*(torch.as_tensor(x, device=model.device) for x in arguments), 1.0)
    except torch.OutOfMemoryError:
        raise
    except Exception as failure:  # a model of another author can fail in any way
        return f"it cannot compute three short rollouts ({type(failure).__name__}: {failure})"[:300]
    finally:
        policy.share_prompts = False
        policy.eval()
    if not torch.cat([*want, found[False]]).isfinite().all():
        return "its log-probs are not finite: a weight is NaN or too large"
    if not (found[False] - torch.cat(want)).abs().max() < 1e-3:
        return "it scales or caps its logits after the head"
    if not (found[True] - found[False]).abs().max() < 1e-3:
        return "its log-probs in train mode are not those in eval mode: it may keep a dropout that cannot be set to 0"
    return ""
