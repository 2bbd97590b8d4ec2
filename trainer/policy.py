"""Stages 6 and 7: log-probs of response tokens under the trainer, and micro-batches of rollouts.

    name               shape     meaning
    prompts            (G, L)    distinct prompts of a micro-batch, padded on the left
    prompt_lengths     (G,)
    prompt_of          (S,)      each response's row of `prompts`
    responses          (S, R)    distinct responses, padded on the right
    response_lengths   (S,)
    logp, entropy      (T,)      one number per response token, the responses laid end to end (layout of loss.py)

Stage 6 (no gradient) and stage 7 call the same `log_probs` on the same micro-batches, so the ratio of the first update
is exactly 1 in any precision. No [T, V] logits are held: `chunked_logprobs` computes a chunk of tokens at a time.

A GPU works while Python queues its next operations, unless Python waits for a number or copies a tensor. So a
micro-batch's tensors go to the device once, and its log-probs stay there.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import embedding, pad
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from loss import Tokens
from rollout import dithered
from trainer.offload import OffloadedAdamW, zeros_in_host_memory
from trainer.rollouts import Rollout
from trainer.settings import Config
from verify import Problem

MAX_LOGITS = 2**26  # logits that exist at the same time
# Shared prompts need a mask of [S, R, L + R], and attention without a mask is faster: they pay for short responses.
SHARE_UP_TO_RATIO, SHARE_UP_TO_TOKENS = 4, 2048  # longest response: times the mean prompt, and in tokens
# Each response gets a copy of its prompt's keys and values. For each prompt token, this copy takes at most 1/8 of the
# memory that a computed token takes until the backward pass: 0.01 to 0.11 of it in Llama, Qwen2 and GPT-2.
COPY = 1 / 8
# Settings of transformers' models whose logits are not h Wᵀ + b, unless the value is None or 1.
LOGIT_SETTINGS = (
    "final_logit_softcapping", "logit_scale", "logits_scaling", "logits_soft_cap", "lm_head_multiplier",
)  # fmt: skip
NOTHING = torch.zeros(0, dtype=torch.int32)
EMPTY = Rollout(Problem("", "", None), 0, 0, torch.zeros(1, dtype=torch.int32), NOTHING, NOTHING, False)


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
        """log π and the entropy of every response token, (T,) each. The shapes of the arguments are in the head."""
        inside = torch.arange(responses.shape[1], device=responses.device) < response_lengths[:, None]  # (S, R)
        at = inside.flatten().nonzero().squeeze(-1)  # (T,) places of the tokens; the only wait for the device here
        states = self.after_shared_prompts if self.share_prompts else self.in_whole_rows
        hidden = embedding(at, states(prompts, prompt_lengths, prompt_of, responses).flatten(0, 1))  # (T, H), x[at]
        head = self.model.get_output_embeddings()
        targets, name = responses.flatten()[at], getattr(head, "dithered_names", {}).get("weight")
        return chunked_logprobs(hidden, head.weight, targets, temperature, getattr(head, "bias", None), name=name)

    def in_whole_rows(self, prompts: Tensor, prompt_lengths: Tensor, prompt_of: Tensor, responses: Tensor) -> Tensor:
        """The hidden states that predict the responses, (S, R, H); every row computes its own prompt.

        A row is prompt, response, padding. It needs no attention mask: a causal model never looks to the right.
        """
        rows = torch.cat([prompts[prompt_of], responses], dim=1)  # (S, L + R), padded on the left
        column = torch.arange(rows.shape[1], device=rows.device)
        length = prompt_lengths[prompt_of][:, None]  # (S, 1)
        rows = rows.gather(1, (column + prompts.shape[1] - length) % rows.shape[1])  # now padded on the right
        states = self.model.base_model(input_ids=rows, use_cache=False).last_hidden_state
        predicts = length - 1 + column[: responses.shape[1]]  # (S, R): the state at i predicts token i + 1
        return states.gather(1, predicts[..., None].expand(-1, -1, states.shape[-1]))

    def after_shared_prompts(self, prompts: Tensor, prompt_lengths: Tensor, prompt_of: Tensor, responses: Tensor):
        """The same states; each prompt is computed once, and its keys and values serve all of its responses."""
        real = torch.arange(prompts.shape[1], device=prompts.device) >= prompts.shape[1] - prompt_lengths[:, None]
        out = self.model.base_model(
            input_ids=prompts, attention_mask=real.long(), position_ids=(real.cumsum(-1) - 1).clamp(min=0),
            past_key_values=DynamicCache(), use_cache=True,
        )  # fmt: skip
        after_prompt = out.last_hidden_state[:, -1:].index_select(0, prompt_of)  # (S, 1, H), predicts the first token
        before = responses[:, :-1]  # the last token predicts nothing
        for layer in out.past_key_values.layers:
            layer.keys, layer.values = (x.index_select(0, prompt_of) for x in (layer.keys, layer.values))
        position = prompt_lengths[prompt_of][:, None] + torch.arange(before.shape[1], device=before.device)
        later = self.model.base_model(
            input_ids=before, attention_mask=torch.cat([real[prompt_of].long(), torch.ones_like(before)], dim=1),
            position_ids=position, past_key_values=out.past_key_values, use_cache=True,
        )  # fmt: skip
        return torch.cat([after_prompt, later.last_hidden_state], dim=1)


def switch_off_dropout(model: torch.nn.Module) -> None:
    """Set every dropout rate to 0: without dropout the old, the new and the engine's log-probs are one function.

    A rate is the `p` of a Dropout module, or a float attribute of another module: dropout, attn_dropout, layerdrop ...
    """
    for module in model.modules():
        for name, value in [*vars(module).items()]:
            if isinstance(value, float) and ("drop" in name or (name == "p" and "Dropout" in type(module).__name__)):
                setattr(module, name, 0.0)


@dataclass
class MicroBatch:
    """The rollouts of one forward pass, and their tensors on the accelerator's device; T tokens, laid end to end.

    Equal responses to one prompt are computed once: 512 short answers have many.
    """

    rollouts: list[Rollout]
    inputs: tuple[Tensor, ...]  # of Policy.forward: distinct prompts and responses
    computed: Tensor  # (T,) which token of the distinct responses each token is
    engine_logp: Tensor  # (T,) log π_engine
    advantages: Tensor  # (S,) stage 5, one for each rollout
    lengths: Tensor  # (S,) response tokens of each rollout
    old_logp: Tensor | None = None  # (T,) stage 6: log π_old
    ref_logp: Tensor | None = None  # (T,) stage 6: log π_ref

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], device: torch.device) -> MicroBatch:
        """Build the tensors on the device.

        A rank has an empty micro-batch while other ranks still compute: it becomes a prompt without a response.
        """
        keys = [(r.prompt_index, r.response.numpy().tobytes()) for r in rollouts]
        distinct = list(dict(zip(keys, rollouts, strict=True)).values()) or [EMPTY]
        row = {key: i for i, key in enumerate(dict.fromkeys(keys))}  # row in `responses`
        prompts = {r.prompt_index: r.prompt for r in distinct}
        prompt_row = {index: g for g, index in enumerate(prompts)}
        lengths = [len(r.response) for r in distinct]
        responses = pad_sequence([r.response for r in distinct], batch_first=True).long()
        # At least two columns: then `after_shared_prompts` runs the model twice on every rank, and FSDP2 gathers twice.
        responses = pad(responses, (0, max(0, 2 - responses.shape[1])))
        inputs = (
            pad_sequence(list(prompts.values()), batch_first=True, padding_side="left").long(),
            torch.tensor([len(prompt) for prompt in prompts.values()]),
            torch.tensor([prompt_row[r.prompt_index] for r in distinct]),
            responses,
            torch.tensor(lengths),
        )
        tokens = torch.arange(sum(lengths)).split(lengths)  # of each distinct response
        return cls(
            list(rollouts),
            tuple(x.to(device) for x in inputs),
            torch.cat([tokens[row[key]] for key in keys] or [tokens[0]]).to(device),
            torch.cat([r.engine_logp for r in rollouts] or [NOTHING]).to(device),
            torch.tensor([r.advantage for r in rollouts], dtype=torch.float32, device=device),
            torch.tensor([len(r.response) for r in rollouts], dtype=torch.long, device=device),
        )

    def tokens(self, logp: Tensor) -> Tokens:
        """What the loss sees, after stage 6. logp: (T,) log π_θ."""
        assert self.old_logp is not None, "stage 6 comes first"
        return Tokens(logp, self.old_logp, self.engine_logp, self.ref_logp, self.advantages, self.lengths)


def log_probs(policy: torch.nn.Module, micro_batch: MicroBatch, temperature: float, accelerator: Accelerator):
    """log π and the entropy of every response token of a micro-batch, (T,) each, on the accelerator's device."""
    with accelerator.autocast():
        found = policy(*micro_batch.inputs, temperature)
    return tuple(embedding(micro_batch.computed, x[:, None]).squeeze(-1) for x in found)  # x[...], with fast gradients


@torch.no_grad()
def score(
    policy: torch.nn.Module, micro_batches: list[MicroBatch], name: str, temperature: float, accelerator
) -> Tensor:
    """Stage 6: write log π of each micro-batch's tokens into its field `name`. Returns this rank's sum of entropies."""
    total = torch.zeros((), dtype=torch.float64, device=accelerator.device)
    for micro_batch in micro_batches:
        logp, entropy = log_probs(policy, micro_batch, temperature, accelerator)
        total += entropy.double().sum()
        setattr(micro_batch, name, logp.float())
    if hasattr(policy, "reshard"):  # FSDP2 keeps the weights of a forward pass until its backward pass
        policy.reshard()  # type: ignore[operator]
    return total


def cut(rollouts: Iterable[Any], budget: int, share_prompts: bool) -> list[list]:
    """Cut rollouts into lists of at most `budget` tokens with padding: the longest first, so padding is rare.

    With shared prompts the rollouts of a prompt stay together. A list then counts each of its prompts once, and for
    each rollout the copy of its prompt's keys and values.
    """
    lists: list[list] = [[]]
    prompts: set[int] = set()  # of the last list
    longest_prompt = longest_response = 0

    def order(r) -> tuple[int, int, int]:
        return r.prompt_index if share_prompts else 0, -len(r.prompt) - len(r.response), r.number

    for r in sorted(rollouts, key=order):
        longest_prompt, longest_response = max(longest_prompt, len(r.prompt)), max(longest_response, len(r.response))
        rows, groups = len(lists[-1]) + 1, len(prompts) + (r.prompt_index not in prompts)
        prompts_computed = groups + COPY * rows if share_prompts else rows
        size = prompts_computed * longest_prompt + rows * longest_response
        if size > budget and lists[-1]:
            lists.append([])
            prompts, longest_prompt, longest_response = set(), len(r.prompt), len(r.response)
        lists[-1].append(r)
        prompts.add(r.prompt_index)
    return lists


def micro_batches(
    rollouts: list[Rollout], budget: int, share_prompts: bool, accelerator: Accelerator
) -> list[MicroBatch]:
    """The micro-batches of this rank's rollouts, as `cut` makes them. Every rank gets as many; some are empty."""
    lists = cut(rollouts, budget, share_prompts)
    most = int(accelerator.gather(torch.tensor([len(lists)], device=accelerator.device)).max())
    lists += [[] for _ in range(most - len(lists))]
    return [MicroBatch.of(rollouts, accelerator.device) for rollouts in lists]


# -------------------------------------------------------------------------------------------- decided once per run


def fsdp_requested() -> bool:
    """Whether Accelerate's configuration asks for FSDP; every configured version means FSDP2 here."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")


def precision_of(accelerator: Accelerator) -> str:
    """The precision of forward passes: "bfloat16" or "float32"."""
    return "bfloat16" if accelerator.mixed_precision == "bf16" else "float32"


def sharing_weights(module: torch.nn.Module):
    """Copy a module, but not its tensors."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(x): x for x in tensors})


def bring(module: torch.nn.Module, device: torch.device) -> None:
    """Replace a module's tensors by copies of rank 0's on this rank's device. Sharded tensors stay as they are.

    Rank 0 has them on the CPU; other ranks have them on meta, that is, their shapes only.
    """
    copies: dict[Tensor, Tensor] = {}  # a tied weight stays one tensor
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, old in tensors.items():
                if old is None or isinstance(old, DTensor):
                    continue
                if old not in copies:
                    new = torch.empty_like(old, device=device) if old.is_meta else old.detach().to(device, copy=True)
                    torch.distributed.broadcast(new, src=0)
                    is_weight = isinstance(old, torch.nn.Parameter)
                    copies[old] = torch.nn.Parameter(new, old.requires_grad) if is_weight else new
                tensors[name] = copies[old]  # type: ignore[assignment]


def sharded(policy: Policy, accelerator: Accelerator):
    """FSDP2: each rank holds a part of every weight, and gathers one layer at a time.

    It gathers float32, twice the bytes of bfloat16: FSDP2 itself would round to the nearest, where
    `dither_under_autocast` rounds otherwise. `bring` and sharding go layer by layer too, so a card never holds more
    than its part and one layer, or the embedding and the head.
    """
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    layers = policy.model._no_split_modules or []
    for module in policy.model.modules():
        if type(module).__name__ in layers:
            bring(module, accelerator.device)
            fully_shard(module, mesh=mesh)
    bring(policy, accelerator.device)
    return fully_shard(policy, mesh=mesh)


def allocate_moments(optimizer: torch.optim.Optimizer) -> None:
    """Give AdamW its moments now, as zeros: later the engine has the memory. With --offload they are on the host."""
    zeros = zeros_in_host_memory if isinstance(optimizer, OffloadedAdamW) else torch.zeros_like
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p] = {"step": torch.tensor(0.0), "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}


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


@torch.no_grad()
def difference_from_logits(policy: Policy, share_prompts: bool = False) -> str:
    """Say why the policy's log-probs do not agree with the model's own logits; "" if they agree.

    Compares them on three rollouts of two prompts of random tokens. They differ if the model scales or caps its logits
    after the head, which `chunked_logprobs` does not see, or if train mode, which gradient checkpointing needs, is not
    the same function as eval mode.
    """
    model, random = policy.model, torch.Generator().manual_seed(0)
    text_config = model.config.get_text_config()
    policy.eval()
    for name in LOGIT_SETTINGS:
        if (value := getattr(text_config, name, None)) not in (None, 1):
            return f"it scales or caps its logits after the head ({name} {value})"
    prompts, responses = (torch.randint(text_config.vocab_size, shape, generator=random) for shape in ((2, 5), (3, 4)))
    prompt_lengths, prompt_of, response_lengths = [3, 5], [0, 1, 1], [4, 2, 4]
    arguments = prompts, prompt_lengths, prompt_of, responses, response_lengths
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


# -------------------------------------------------------------------------------------- log-probs without [T, V]


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
            peak = z.amax(-1, keepdim=True)
            z -= peak
            e = z.exp()
            total = e.sum(-1)
            lse[rows] = total.log() + peak.squeeze(-1)
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
    for start in range(0, len(hidden), chunk):
        rows = slice(start, min(start + chunk, len(hidden)))
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
