"""The trials before a run: does the policy compute what the model does, and does the engine sample the policy?

Three rollouts of random tokens answer the first question (`logits_fault`); `shares_prompts` and
`has_unused_parameters` use them too, to settle how stages 6 and 7 compute the model for the whole run. A few responses
of the engine answer the second one (`agreement`).
"""

from __future__ import annotations

import dataclasses

import torch
from accelerate import Accelerator
from torch import Tensor

import loss as L
from rollout import Engine, Sampling
from trainer.data import Data
from trainer.micro_batches import micro_batches
from trainer.policy import Policy, write_log_probs
from trainer.process import Refusal
from trainer.rollouts import Judge, roll_out
from trainer.settings import Config

# Shared prompts need a mask of [D, R, L + R], and attention without a mask is faster: they pay for short responses.
SHARE_UP_TO_RATIO, SHARE_UP_TO_TOKENS = 4, 2048  # longest response: times the mean prompt, and in tokens
# Settings of transformers' models whose logits are not h Wᵀ + b, unless the value is None or 1.
LOGIT_SETTINGS = (
    "final_logit_softcapping", "logit_scale", "logits_scaling", "logits_soft_cap", "lm_head_multiplier",
)  # fmt: skip
LONGEST_CHECKED = 256  # tokens of a response that `agreement` draws


@torch.no_grad()
def logits_fault(policy: Policy, share_prompts: bool = False) -> str:
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


def shares_prompts(policy: Policy, prompt_lengths: list[int], config: Config) -> bool:
    """Whether stages 6 and 7 compute each prompt of a micro-batch once: the same answer for the whole run.

    Gradient checkpointing drops the key-value cache, so it excludes sharing.
    """
    mean = sum(prompt_lengths) / len(prompt_lengths)
    short = config.max_response_tokens <= min(SHARE_UP_TO_TOKENS, SHARE_UP_TO_RATIO * mean)
    return short and not config.gradient_checkpointing and not logits_fault(policy, share_prompts=True)


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


def agreement(
    engine: Engine, policy: Policy, data: Data, sampling: Sampling, judge: Judge, config: Config,
    accelerator: Accelerator,
) -> str:  # fmt: skip
    """Make stages 2, 3 and 6 on a few responses, before the first step: does the engine sample the policy?

    Compares the log-probs of engine and trainer. Returns a sentence; raises Refusal. Small differences (bfloat16, other
    kernels) are what the truncated importance weight is for. Large ones mean that weights did not reach the engine, or
    that the two compute the architecture differently.
    """
    longest = config.eval_max_response_tokens if config.eval_only else config.max_response_tokens
    sampling = dataclasses.replace(sampling, max_new_tokens=min(LONGEST_CHECKED, longest))
    problems = (data.problems or data.held_out)[:4]
    engine.wake()
    n = max(8, accelerator.num_processes)
    rollouts, _ = roll_out(engine, problems, n, [*range(len(problems))], sampling, judge, accelerator)
    engine.sleep()
    batches = micro_batches(rollouts, config.max_tokens_per_micro_batch, policy.share_prompts, accelerator)
    write_log_probs(policy, batches, "old_logp", config.temperature, accelerator)
    old, sampled = (torch.cat([getattr(x, name) for x in batches]) for name in ("old_logp", "engine_logp"))
    total = torch.ones_like(old).sum(), (old - sampled).abs().sum(), L.kl_k3(sampled, old).double().sum()
    tokens, difference, kl = accelerator.reduce(torch.stack(total), "sum").tolist()
    limit = engine_kl_limit(config)
    if not kl / tokens <= limit:
        remedy = "Use --precision float32" if config.engine == "torch" else "Use --engine torch"
        raise Refusal(
            f"the engine does not sample the model that is trained: KL(engine, trainer) {kl / tokens:.1e} exceeds "
            f"{limit:g}, and |Δ log π| is {difference / tokens:.1e} on {tokens:.0f} tokens. "
            f"{remedy}, or raise --max_engine_kl if this much is expected"
        )
    return f"good: KL(engine, trainer) {kl / tokens:.1e} is below the limit of {limit:g}"


def example(vocabulary: int) -> tuple[Tensor, list[int], list[int], Tensor, list[int]]:
    """Arguments of `Policy.forward`: three rollouts of two prompts of random tokens."""
    generator = torch.Generator().manual_seed(0)
    prompts, responses = (torch.randint(vocabulary, shape, generator=generator) for shape in ((2, 5), (3, 4)))
    return prompts, [3, 5], [0, 1, 1], responses, [4, 2, 4]


def engine_kl_limit(config: Config) -> float:
    """The largest KL(engine, trainer) that is normal: --max_engine_kl, else by precision.

    float32: at most 6.7e-11 was measured, 1e-4 is allowed. bfloat16: 0.9e-3 to 2.6e-3 was measured with equal rounding,
    and 8e-3 to 5.9e-2 where engine and trainer rounded differently (docs/logs.md); 5e-3 is allowed.
    """
    return config.max_engine_kl or (5e-3 if config.precision == "bfloat16" else 1e-4)
