"""engines/rounding.py: weights rounded to bfloat16 with a fixed dither, in the engine's copy and under autocast."""

import json

import pytest
import torch
from helpers import ROOT, ended, loaded, random_policy, random_rollouts, start
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3MoeConfig

from engines.model import whole_tensors
from engines.prefix import inference
from engines.rounding import PERIOD, dither_under_autocast, dithered, dithered_weights, matrices_of
from trainer.micro_batches import MicroBatch, log_probs
from trainer.policy import Policy, recompute_layers


def ulp(weight):
    """The distance of a bfloat16 number to the next one further from 0."""
    return torch.exp2(weight.abs().log2().floor() - 7)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_a_step_of_a_tenth_of_an_ulp_changes_a_tenth_of_the_weights(fraction, sign):
    """Makes impossible: a rounding with a bias, towards 0 or to the nearest; a change by more than one ulp."""
    start = torch.empty(PERIOD).uniform_(1.1, 1.9, generator=torch.Generator().manual_seed(0)) / 64
    start = start.mul_(torch.tensor([1.0, -1.0]).repeat(PERIOD // 2)).bfloat16().float()  # ulp(start) is 2^-13
    moved = start + sign * fraction * ulp(start)
    rounded = dithered(moved, "w").float()
    changed = rounded != start
    assert changed.float().mean() == pytest.approx(fraction, abs=3e-3)
    assert torch.equal(rounded[changed], (start + sign * ulp(start))[changed])
    assert ((rounded - moved) / ulp(start)).mean().abs() < 3e-3
    assert (moved.bfloat16() != start).float().mean() in (0, 1) or fraction == 0.5  # the nearest: none or all


def test_bfloat16_numbers_stay_and_each_weight_changes_once():
    """Makes impossible: an engine that differs before the first step; a weight that flips back and forth on its way."""
    numbers = torch.tensor([0.0, -0.0, 1.0, -0.02, 3e-39, 1e38, float("inf"), -float("inf")]).bfloat16()
    assert torch.equal(dithered(numbers.float(), "w"), numbers) and dithered(torch.tensor([torch.nan]), "w").isnan()
    way = torch.linspace(0.5, 0.5 + 2**-8, 1000)  # one ulp of bfloat16
    steps = torch.stack([dithered(w.expand(64), "w").float() for w in way])
    assert ((steps.diff(dim=0) != 0).sum(0) == 1).all() and (steps.diff(dim=0) >= 0).all()


def test_the_dither_depends_on_name_and_position_only():
    """Makes impossible: equal dither in all weights, a draw of its own at each sync, a dither that depends on shape."""
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(dithered(weight, "a"), dithered(weight, "a"))
    assert torch.equal(dithered(weight, "a").flatten(), dithered(weight.flatten(), "a"))
    assert torch.equal(dithered(weight.T, "a"), dithered(weight.T.contiguous(), "a"))
    assert not torch.equal(dithered(weight, "a"), dithered(weight, "b"))
    long = torch.full((2 * PERIOD + 3,), 0.3)
    assert torch.equal(dithered(long, "a")[PERIOD:], dithered(long, "a")[: PERIOD + 3])  # it repeats


def test_shards_round_as_the_whole_weight(two_ranks):
    """Makes impossible: an engine whose weights depend on the number of ranks. The second one has no row of 1."""
    assert [json.loads((two_ranks / f"shards{i}.json").read_text()) for i in range(2)] == [[True, False]] * 2


@pytest.mark.slow
def test_shards_of_four_ranks_round_as_the_whole_weight(tmp_path):
    """Makes impossible: the same on more ranks: one of four has no row of 1, 5 or 7."""
    ended(start([tmp_path, "shards"], 4, train=ROOT / "tests/ranks.py"))
    assert [json.loads((tmp_path / f"shards{i}.json").read_text()) for i in range(4)] == [[True, False]] * 4


def off_the_grid(policy):
    """Move each weight off the bfloat16 numbers by a third of an ulp, which rounding to the nearest does not see."""
    with torch.no_grad():
        for p in policy.parameters():
            p.copy_(p.bfloat16().float())
            p.add_(ulp(p) / 3 * (p != 0))
    return policy


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


def test_the_torch_engine_in_bfloat16_decodes_with_dithered_weights_and_gives_the_own_back():
    """Makes impossible: an engine that does not see a step; float32 weights that are lost after an exception."""
    policy = off_the_grid(Policy(loaded()[0]))
    model, rounded = policy.model, dict(whole_tensors(policy.model, torch.bfloat16))
    own = dict(model.named_parameters())
    with pytest.raises(RuntimeError), inference(model, "bfloat16"):
        for module, names in matrices_of(model):
            assert all(torch.equal(getattr(module, key), rounded[name]) for key, name in names.items())
            break
        raise RuntimeError
    assert all(p is own[name] and p.dtype == torch.float32 for name, p in model.named_parameters())
    with dithered_weights(model):
        assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.lm_head.weight.dtype == torch.float32
