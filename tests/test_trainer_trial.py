"""trainer/trial.py: what the trials before a run find out about a model and an engine."""

from contextlib import nullcontext

import pytest
import torch
from helpers import random_policy, set_up
from transformers import Gemma2Config, LlamaConfig

from trainer import trial
from trainer.process import Refusal
from trainer.settings import Config
from trainer.trial import has_unused_parameters, logits_fault, shares_prompts


@pytest.mark.parametrize("fault, said", [
    ("tiny weights", "final_logit_softcapping"), ("scaled", "after the head"), ("nan", "not finite"),
    ("raises", "ZeroDivisionError"), ("dropout", "train mode"),
])  # fmt: skip
def test_the_reason_is_the_one_that_was_found(fault, said):
    """Makes impossible: a NaN weight or an exception that is reported as "scales its logits"; small logits whose cap no
    number shows; a dropout that survives where gradient checkpointing trains in train mode.
    """
    if fault == "tiny weights":
        policy = random_policy(Gemma2Config, head_dim=8, final_logit_softcapping=30.0)
        for p in policy.parameters():
            torch.nn.init.normal_(p, std=1e-3)
    else:
        policy = random_policy(LlamaConfig)
    head = policy.model.get_output_embeddings()
    if fault == "scaled":
        head.register_forward_hook(lambda module, inputs, output: 2 * output)
    if fault == "nan":
        torch.nn.init.constant_(head.weight, float("nan"))
    if fault == "raises":
        policy.model.get_input_embeddings().register_forward_hook(lambda *_: 1 // 0)
    if fault == "dropout":
        norm = policy.model.base_model.norm
        norm.register_forward_hook(lambda module, inputs, output: output * (2 if module.training else 1))
    assert said in logits_fault(policy) and not policy.training


def test_parameters_without_a_gradient_are_found():
    """Makes impossible: a DDP run of a model with a vision tower, whose ranks wait for gradients that never come."""
    policy = random_policy(LlamaConfig)
    assert not has_unused_parameters(policy)
    policy.model.vision_tower = torch.nn.Linear(2, 2)
    assert has_unused_parameters(policy)
    policy.model.vision_tower.requires_grad_(False)
    assert not has_unused_parameters(policy)


def test_prompts_are_shared_where_it_pays_and_works(monkeypatch):
    """Makes impossible: a mask of a gigabyte for long responses; sharing in a model that fails with a cache."""
    policy, short = random_policy(LlamaConfig), Config(max_response_tokens=12)
    assert shares_prompts(policy, [8, 8], short)
    assert not shares_prompts(policy, [8, 8], Config(max_response_tokens=100))
    assert not shares_prompts(policy, [2000, 2000], Config(max_response_tokens=4096))
    assert not shares_prompts(policy, [8, 8], Config(max_response_tokens=12, gradient_checkpointing=True))
    forward = policy.model.base_model.forward

    def without_cache(cache=None, past_key_values=None, **kwargs):  # a model that ignores the cache
        return forward(**kwargs)

    monkeypatch.setattr(policy.model.base_model, "forward", without_cache)
    assert not shares_prompts(policy, [8, 8], short) and not policy.share_prompts


@pytest.mark.parametrize(
    "factor, limit, refused", [(1.05, None, True), (float("nan"), 100.0, True), (1.05, 100.0, False)]
)
def test_the_engine_is_compared_with_the_trainer(factor, limit, refused, tmp_path, monkeypatch):
    """Makes impossible: a run on rollouts of other weights than the trained ones, or with a difference of NaN."""
    own = trial.write_log_probs

    def other(policy, *a):  # the trainer's log-probs are not those of the engine
        with torch.no_grad():
            policy.model.get_output_embeddings().weight.mul_(factor)
        return own(policy, *a)

    monkeypatch.setattr(trial, "write_log_probs", other)
    # The advice is not the engine that runs.
    with pytest.raises(Refusal, match=r"^(?!.*--engine torch).*--max_engine_kl") if refused else nullcontext():
        set_up(tmp_path, max_engine_kl=limit)
    assert (tmp_path / "run").exists() == (not refused)
