"""A prompt computed once for its rollouts, in the trainer's forward and backward pass (train.py, stages 6 and 7).

The rows of a micro-batch, (S, W), become one sequence without padding,

    prompt 1, response 1.1, response 1.2, ..., prompt 2, response 2.1, ...

each token at the position that it has in its rollout. In attention a response sees its prompt and itself; everything
else in a decoder looks at one token at a time. So each state is the same function of the weights as in a row of its
own, and autograd adds up at the prompt what its responses send back: log-probs and gradients are those of plain rows,
but for the order of float sums. For P prompts of L tokens and S responses of R this computes P·L + S·(R - 1) tokens
instead of S·(L + R): a response's last token predicts nothing.

    name        shape             meaning
    at          (S, W) bool       positions whose states predict response tokens (loss.response_positions)
    opens       (S,) bool         the first row of each prompt, which computes it
    inner       (S,)              response tokens that are computed, all but the last
    packed      list              the sequence's layout: (prompt length, its responses as `Rows`) for each prompt
    Hq, Hk, D                     query heads, key heads, head width
    C, R                          responses that are attended at once, the longest of them
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SHORT = 16  # tokens of a response, up to which a CPU computes attention by matrix products
KEYS_AT_ONCE = 2**15  # keys that stand beside each other at once, a shared prompt's copied in front of each response


def shared_states(
    model, tokens: Tensor, prompt_lengths: Tensor, response_lengths: Tensor, prompts: Tensor, at: Tensor
) -> Tensor:
    """The states that predict the response tokens, (T, H), from one forward pass with every prompt in it once."""
    row, column = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    opens = prompts.diff(prepend=prompts[:1] - 1) != 0
    opener = opens.nonzero().squeeze(1)[opens.cumsum(0) - 1]  # (S,)
    inner = (response_lengths - 1).clamp(min=0)
    computed = (column < (prompt_lengths + inner)[:, None]) & (opens[:, None] | (column >= prompt_lengths[:, None]))
    place = computed.flatten().cumsum(0).view_as(computed) - 1  # (S, W) in the sequence, of a token that is computed
    place[row, prompt_lengths - 1] = place[opener, prompt_lengths - 1]  # one state predicts all first tokens
    hidden = model(
        input_ids=tokens[computed][None],
        position_ids=column.expand_as(tokens)[computed][None],
        attention_mask=torch.ones(1, 1, 1, 1, device=tokens.device),  # of four dimensions: the model makes none itself
        use_cache=False,
        packed=packed_groups(opens, prompt_lengths, inner),
    ).last_hidden_state[0]
    return hidden.index_select(0, place[at])


class Rows(NamedTuple):
    """Responses to one prompt, laid end to end, and how to set them apart as (rows, width), padded on the right."""

    tokens: int
    rows: int
    width: int
    slots: Tensor | None  # (tokens,) where each token goes; None: all responses are as long, and nothing moves

    @staticmethod
    def of(lengths: list[int], device) -> Rows:
        inside = torch.arange(max(lengths), device=device) < torch.tensor(lengths, device=device)[:, None]
        slots = None if min(lengths) == max(lengths) else inside.flatten().nonzero().squeeze(1)
        return Rows(sum(lengths), len(lengths), max(lengths), slots)


def packed_groups(opens: Tensor, prompt_lengths: Tensor, inner: Tensor) -> list[tuple[int, list[Rows]]]:
    """The sequence's layout: each prompt's length and its responses, as many together as `KEYS_AT_ONCE` admits."""
    groups: list[tuple[int, list[list[int]]]] = []
    part: list[int] = []
    width = 0
    for first, prompt, length in zip(opens.tolist(), prompt_lengths.tolist(), inner.tolist(), strict=True):
        if first:
            groups.append((prompt, []))
        if first or (len(part) + 1) * (prompt + max(width, length)) > KEYS_AT_ONCE:
            part, width = [], 0
            groups[-1][1].append(part)
        if length:
            part.append(length)
            width = max(width, length)
    return [(prompt, [Rows.of(part, opens.device) for part in parts if part]) for prompt, parts in groups]


def packed_attention(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, packed=None, **kwargs
) -> tuple[Tensor, None]:
    """transformers' sdpa attention, and for a `packed` sequence: prompts causally, responses after their prompt.

    query: [1, Hq, T, D]; key, value: [1, Hk, T, D]; returns [1, T, Hq, D].
    """
    if packed is None:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    refused = ("sliding_window", "softcap", "s_aux", "position_bias")
    if asked := [name for name in refused if kwargs.get(name) is not None] + ["dropout"] * (dropout > 0):
        raise ValueError(f"attention to a shared prompt has no {', '.join(asked)}")
    lengths = [length for prompt, parts in packed for length in (prompt, *(rows.tokens for rows in parts))]
    pieces = zip(*(x.squeeze(0).split(lengths, dim=1) for x in (query, key, value)), strict=True)  # [heads, t, D] each
    out = []
    for _, parts in packed:
        q, *prompt = next(pieces)
        k, v = (x[:, None].expand(-1, len(q) // len(x), -1, -1) for x in prompt)  # [Hk, Hq / Hk, L, D]
        q = q.unflatten(0, (len(k), -1))
        out.append(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling).flatten(0, 1))
        for rows in parts:  # whose copies of a long prompt's keys are made again for the backward pass, not kept for it
            arguments = *next(pieces), *prompt, rows, scaling
            if prompt[0].shape[1] <= 2 * rows.width:
                out.append(response_attention(*arguments))
            else:
                out.append(checkpoint(response_attention, *arguments, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(out, dim=1).transpose(0, 1)[None], None


def response_attention(q, k, v, prompt_k, prompt_v, rows: Rows, scaling: float | None) -> Tensor:
    """softmax(q·[K_prompt, K_response] · scaling) [V_prompt; V_response], causal, for C = rows.rows responses.

    q: [Hq, t, D]; k, v: [Hk, t, D]; prompt_k, prompt_v: [Hk, L, D]; returns [Hq, t, D].
    """
    hk, length, shape = len(k), prompt_k.shape[1], (rows.rows, rows.width)

    def apart(x: Tensor) -> Tensor:  # [heads, t, D] -> [heads, C, R, D], padded on the right
        if rows.slots is not None:
            x = x.new_zeros(len(x), rows.rows * rows.width, x.shape[-1]).index_copy(1, rows.slots, x)
        return x.unflatten(1, shape)

    q = apart(q).unflatten(0, (hk, -1)).transpose(1, 2).flatten(0, 1)  # [Hk·C, Hq / Hk, R, D]
    k, v = (
        torch.cat([prompt[:, None].expand(-1, rows.rows, -1, -1), apart(own)], dim=2).flatten(0, 1)
        for prompt, own in ((prompt_k, k), (prompt_v, v))
    )  # [Hk·C, L + R, D]
    seen = torch.ones(rows.width, length + rows.width, dtype=torch.bool, device=q.device).tril(length)
    if rows.width <= SHORT and q.device.type == "cpu":  # where sdpa's kernel takes twice as long as the formula
        heads, scale = q.shape[1], scaling if scaling is not None else q.shape[-1] ** -0.5
        bias = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, -torch.inf).repeat(heads, 1)
        scores = torch.baddbmm(bias.expand(len(q), -1, -1), q.flatten(1, 2), k.transpose(1, 2), alpha=scale)
        out = torch.bmm(scores.softmax(-1), v).unflatten(1, (heads, -1))  # [Hk·C, Hq / Hk, R, D]
    else:
        k, v = (x[:, None].expand(-1, q.shape[1], -1, -1) for x in (k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling)
    out = out.unflatten(0, (hk, -1)).transpose(1, 2).flatten(0, 1).flatten(1, 2)  # [Hq, C·R, D]
    return out if rows.slots is None else out.index_select(1, rows.slots)


ALL_ATTENTION_FUNCTIONS.register("packed_sdpa", packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register("packed_sdpa", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
