"""Every distinct prefix computed once, in the trainer's forward and backward pass (train.py, stages 6 and 7).

The rows of a micro-batch, (S, W), become one sequence without padding,

    prompt 1, what its first response computes, what its second one does, ..., prompt 2, ...

each token at the position that it has in its rollout. A state depends on the tokens up to its own, so rollouts that
begin alike share the states of their beginning: of the prompt always, of responses as far as they agree, computed by
the longest of them. In attention a token sees its prompt and its response up to itself; everything else in a decoder
looks at one token at a time. So each state is the same function of the weights as in a row of its own, and autograd
adds up at a shared token what its rollouts send back: log-probs and gradients are those of plain rows, but for the
order of float sums. Of P prompts of L tokens and S responses of R this computes at most P·L + S·(R - 1) tokens instead
of S·(L + R): a response's last token predicts nothing.

    name        shape             meaning
    at          (S, W) bool       positions whose states predict response tokens (loss.response_positions)
    holder      (S, W)            the row that computes this token, its own or one that begins alike
    inner       (S,)              response tokens that are computed, all but the last
    packed      list              the sequence's layout: (prompt length, tokens of its responses, `Rows`) a prompt
    Hq, Hk, D, g                  query heads, key heads, head width, query heads for each key head
    C, R                          responses that are attended at once, the longest of them
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SHORT = 32  # tokens of a response, up to which a CPU computes attention by matrix products
KEYS_AT_ONCE = 2**15  # keys of prompt and response that responses attend to at once, each response's counted


def holders(tokens: Tensor, prompt_lengths: Tensor, response_lengths: Tensor, prompts: Tensor) -> Tensor:
    """(S, W): the row that computes each token. Of the rows that begin alike, the longest; of those, the first.

    Of a prompt it is the first row. Only rows that still agree with another one are looked at, token by token: where
    all have parted, it ends.
    """
    row, width = torch.arange(len(tokens), device=tokens.device), tokens.shape[1]
    opens = prompts.diff(prepend=prompts[:1] - 1) != 0
    first = opens.nonzero().squeeze(1)[opens.cumsum(0) - 1]  # (S,) the first row of the prompt
    of_prompt = torch.arange(width, device=tokens.device) < prompt_lengths[:, None]
    holder = torch.where(of_prompt, first[:, None], row[:, None])
    order = response_lengths.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = row
    alike, begins = row, first  # rows that agree with others so far, and with which of them
    size = int(tokens.max()) + 1
    for t in range(int(response_lengths.max())):
        going = response_lengths[alike] > t
        alike, begins = alike[going], begins[going]
        following = tokens[alike, prompt_lengths[alike] + t]
        _, group, count = (begins * size + following).unique(return_inverse=True, return_counts=True)
        best = torch.full_like(count, len(tokens)).scatter_reduce(0, group, rank[alike], "amin")
        begins = order[best][group]
        holder[alike, prompt_lengths[alike] + t] = begins
        together = count[group] > 1
        alike, begins = alike[together], begins[together]
        if not len(alike):
            break
    return holder


def distinct(at: Tensor, holder: Tensor) -> tuple[Tensor, Tensor]:
    """Where each distinct response token is predicted once, (S, W) bool; and for all of `at`, which of these it is."""
    row, column = (torch.arange(size, device=at.device) for size in at.shape)
    following = holder.roll(-1, dims=1)
    once = at & (following == row[:, None])
    number = once.flatten().cumsum(0).view_as(at) - 1
    return once, number[following, column][at]


def shared_states(
    model, tokens: Tensor, prompt_lengths: Tensor, response_lengths: Tensor, holder: Tensor, at: Tensor
) -> Tensor:
    """The states at some of these positions, (T, H), from one forward pass with every distinct prefix in it once."""
    row, column = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    inner = (response_lengths - 1).clamp(min=0)
    computed = (column < (prompt_lengths + inner)[:, None]) & (holder == row[:, None])
    place = computed.flatten().cumsum(0).view_as(computed) - 1  # (S, W) in the sequence, of a token that is computed
    place = place[holder, column]
    hidden = model(
        input_ids=tokens[computed][None],
        position_ids=column.expand_as(tokens)[computed][None],
        attention_mask=torch.ones(1, 1, 1, 1, device=tokens.device),  # of four dimensions: the model makes none itself
        use_cache=False,
        packed=packed_groups(computed, place, prompt_lengths, inner),
    ).last_hidden_state[0]
    return embedding(place[at], hidden)


class Rows(NamedTuple):
    """C responses to one prompt, of at most R tokens, in the sequence."""

    paths: Tensor  # (C, R) where each token is, among those of the prompt's responses; behind the end: anywhere
    own: Tensor  # (t',) which of the C·R these responses compute themselves


def packed_groups(
    computed: Tensor, place: Tensor, prompt_lengths: Tensor, inner: Tensor
) -> list[tuple[int, int, list[Rows]]]:
    """The sequence's layout: each prompt's length, the number of its responses' tokens, and the responses, as many
    together as `KEYS_AT_ONCE` admits. A response with no token of its own is in none of them."""
    column = torch.arange(computed.shape[1], device=computed.device)
    response = computed & (column >= prompt_lengths[:, None])
    groups: list[tuple[int, int, list[list[int]]]] = []
    width = 0
    per_row = (computed[:, 0].tolist(), prompt_lengths.tolist(), inner.tolist(), response.sum(1).tolist())
    for row, (first, prompt, length, tokens_of_row) in enumerate(zip(*per_row, strict=True)):
        if first:
            groups.append((prompt, 0, [[]]))
            width = 0
        if tokens_of_row:
            _, tokens, parts = groups[-1]
            width = max(width, length)
            if parts[-1] and (len(parts[-1]) + 1) * (prompt + width) > KEYS_AT_ONCE:
                parts.append([])
                width = length
            parts[-1].append(row)
            groups[-1] = prompt, tokens + tokens_of_row, parts

    def laid_out(rows: list[int], prompt: int, start: int) -> Rows:
        index = torch.tensor(rows, device=computed.device)
        longest = int(inner[index].max())
        columns = slice(prompt, prompt + longest)
        paths = (place[index, columns] - start).clamp(min=0)
        return Rows(paths, response[index, columns].flatten().nonzero().squeeze(1))

    start, out = 0, []
    for prompt, tokens, parts in groups:
        start += prompt
        out.append((prompt, tokens, [laid_out(rows, prompt, start) for rows in parts if rows]))
        start += tokens
    return out


def packed_attention(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, packed=None, **kwargs
) -> tuple[Tensor, None]:
    """transformers' sdpa attention, and for a `packed` sequence: prompts causally, responses after their prompt.

    query: [1, Hq, T, D]; key, value: [1, Hk, T, D]; packed: of `packed_groups`; returns [1, T, Hq, D].
    """
    if packed is None:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
    refused = ("sliding_window", "softcap", "s_aux", "position_bias")
    if asked := [name for name in refused if kwargs.get(name) is not None] + ["dropout"] * (dropout > 0):
        raise ValueError(f"attention to a shared prompt has no {', '.join(asked)}")
    lengths = [length for prompt, tokens, _ in packed for length in (prompt, tokens)]
    pieces = zip(*(x.squeeze(0).transpose(0, 1).split(lengths) for x in (query, key, value)), strict=True)
    out = []
    for _, _, parts in packed:
        q, *prompt = (x.transpose(0, 1) for x in next(pieces))  # [heads, L, D]
        k, v = (x[:, None].expand(-1, len(q) // len(x), -1, -1) for x in prompt)  # [Hk, g, L, D]
        q = q.unflatten(0, (len(k), -1))
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
        out.append(attended.flatten(0, 1).transpose(0, 1))
        responses = next(pieces)  # [t, heads, D] each
        for rows in parts:  # whose copies of a long prompt's keys are made again for the backward pass, not kept for it
            arguments = *responses, *prompt, rows, scaling
            if prompt[0].shape[1] <= 2 * rows.paths.shape[1]:
                out.append(response_attention(*arguments))
            else:
                out.append(checkpoint(response_attention, *arguments, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(out)[None], None


def response_attention(q, k, v, prompt_k, prompt_v, rows: Rows, scaling: float | None) -> Tensor:
    """softmax(q·[K_prompt, K_response] · scaling) [V_prompt; V_response], causal, for C responses to one prompt.

    q: [t, Hq, D]; k, v: [t, Hk, D], of all its responses; prompt_k, prompt_v: [Hk, L, D]. Returns [t', Hq, D], of the
    tokens that are these responses' own.
    """
    (c, r), (hk, length, d), g = rows.paths.shape, prompt_k.shape, q.shape[1] // k.shape[1]

    def apart(x: Tensor) -> Tensor:  # [t, Hk·g, D] -> [C, Hk, g, R, D]; gradients of what is shared add up in float32
        wide = x.flatten(1).to(torch.promote_types(x.dtype, torch.float32))
        return embedding(rows.paths, wide).to(x.dtype).view(c, r, hk, -1, x.shape[-1]).permute(0, 2, 3, 1, 4)

    q, k, v = apart(q), apart(k).squeeze(2), apart(v).squeeze(2)  # [C, Hk, g, R, D], [C, Hk, R, D]
    seen = torch.ones(r, length + r, dtype=torch.bool, device=q.device).tril(length)
    if r <= SHORT and q.device.type == "cpu":  # where sdpa's kernel takes twice as long as the formula
        q = q * (scaling if scaling is not None else d**-0.5)
        q_all, q = q.permute(1, 0, 2, 3, 4).reshape(hk, -1, d), q.flatten(2, 3)
        to_prompt = (q_all @ prompt_k.transpose(1, 2)).view(hk, c, g * r, length).transpose(0, 1)
        to_response = (q @ k.transpose(2, 3)).masked_fill(~seen[:, length:].repeat(g, 1), -torch.inf)
        weights = torch.cat([to_prompt, to_response], dim=-1).softmax(-1)  # [C, Hk, g·R, L + R]
        from_prompt = weights[..., :length].transpose(0, 1).reshape(hk, -1, length) @ prompt_v
        out = from_prompt.view(hk, c, g * r, -1).transpose(0, 1) + weights[..., length:] @ v
        out = out.reshape(c, hk * g, r, -1)
    else:
        k, v = (
            torch.cat([prompt[None].expand(c, -1, -1, -1), own], dim=2)[:, :, None].expand(-1, -1, g, -1, -1)
            for prompt, own in ((prompt_k, k), (prompt_v, v))
        )  # [C, Hk, g, L + R, D]; of four dimensions, which torch's fused kernels want
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling)
        out = out.unflatten(0, (c, hk)).flatten(1, 2)
    return embedding(rows.own, out.transpose(1, 2).reshape(c * r, -1)).unflatten(1, (hk * g, -1))


ALL_ATTENTION_FUNCTIONS.register("packed_sdpa", packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register("packed_sdpa", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
