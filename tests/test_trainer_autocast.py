"""trainer/autocast.py: the trainer's forward pass in bfloat16 computes with the engine's rounded weights."""

import pytest
import torch
from helpers import off_the_grid, random_policy, random_rollouts
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3MoeConfig

from engines.model import matrices_of, whole_tensors
from engines.rounding import dithered
from trainer.autocast import dither_under_autocast
from trainer.micro_batches import MicroBatch
from trainer.policy import log_probs, recompute_layers

KINDS = [
    (LlamaConfig, {}),
    (Qwen2Config, {"tie_word_embeddings": True}),
    (GPT2Config, {"n_embd": 32, "n_head": 4, "n_layer": 2}),
]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind, changes", KINDS)
def test_trainer_and_engine_round_alike(kind, changes, checkpointing, bf16):
    """Makes impossible: a trainer in bfloat16 that computes with weights that are not the engine's. Its forward pass is
    that of a model which has the engine's matrices; the gradient is that model's, and float32.
    """
    policy = off_the_grid(random_policy(kind, **changes))
    copy, nearest = random_policy(kind, **changes), random_policy(kind, **changes)
    nearest.load_state_dict(policy.state_dict())
    copy.load_state_dict(policy.state_dict())
    matrices = {name for _, names in matrices_of(policy.model) for name in names.values()}
    with torch.no_grad():
        own = dict(copy.model.named_parameters())
        for name, weight in whole_tensors(policy.model, torch.bfloat16):
            if name in matrices:
                own[name].copy_(weight)
    embedding = policy.model.get_input_embeddings().weight
    if policy.model.get_output_embeddings().weight is embedding:  # under autocast the embedding itself is float32
        copy.model.get_input_embeddings().weight = torch.nn.Parameter(embedding.detach().clone())
    dither_under_autocast(policy.model)
    if checkpointing:
        recompute_layers(policy.model)
        policy.train()
    micro_batch = MicroBatch.of(random_rollouts([(4, 3), (4, 3)], longest=3), torch.device("cpu"))
    found, want, other = (log_probs(x, micro_batch, 1.0, bf16)[0] for x in (policy, copy, nearest))
    assert torch.equal(found, want) and not torch.equal(found, other)
    found.sum().backward()
    want.sum().backward()
    for name, p in policy.model.named_parameters():
        assert p.grad.dtype == torch.float32
        if p is not embedding:  # a bias: Σ g has float32 here, bfloat16 in autocast's backward pass
            difference = (p.grad - dict(copy.model.named_parameters())[name].grad).abs().max()
            assert difference <= (0.02 * p.grad.abs().max() if p.dim() == 1 else 0), name


def test_experts_compute_with_dithered_weights(bf16):
    """Makes impossible: the three-dimensional weights of a mixture of experts left out."""
    sizes = {"head_dim": 8, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
    policy, seen = off_the_grid(random_policy(Qwen3MoeConfig, **sizes)), []
    dither_under_autocast(policy.model)
    experts = policy.model.model.layers[0].mlp.experts
    experts.register_forward_pre_hook(lambda module, _: seen.append(module.gate_up_proj))
    micro_batch = MicroBatch.of(random_rollouts([(4, 3)], longest=3), torch.device("cpu"))
    logp, _ = log_probs(policy, micro_batch, 1.0, bf16)
    logp.sum().backward()
    assert torch.equal(seen[0], dithered(experts.gate_up_proj, "model.layers.0.mlp.experts.gate_up_proj"))
    assert experts.gate_up_proj.grad.abs().sum() > 0
