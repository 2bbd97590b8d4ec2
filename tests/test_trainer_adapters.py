"""trainer/adapters.py: low-rank adapters in the trainer, the engine, a checkpoint and the saved model."""

import json
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from helpers import contents, drawn, lines, loaded, random_policy, random_rollouts, run, set_up, settings
from ranks import LORA, UNEVEN
from test_trainer_processes import same
from torch.distributed.checkpoint import FileSystemReader
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3MoeConfig

from engines.model import whole_tensors
from rollout import TorchEngine
from trainer.adapters import Adapted, add_adapters, copy_sharing_frozen, trainable
from trainer.autocast import dither_under_autocast
from trainer.console import remarks_on_rate
from trainer.micro_batches import MicroBatch
from trainer.policy import Policy, log_probs, recompute_layers
from trainer.process import Refusal
from trainer.start import build_models
from trainer.trial import logits_fault

CPU = torch.device("cpu")


@torch.no_grad()
def moved(policy, size: float):
    """Give the B of all adapters random numbers of this size."""
    generator = torch.Generator().manual_seed(5)
    for layer in policy.modules():
        if isinstance(layer, Adapted):
            layer.B += size * torch.randn(layer.B.shape, generator=generator)
    return policy


def adapted(kind=LlamaConfig, dtype=torch.float32, move=0.0, **changes) -> Policy:
    """A random policy with adapters of rank 4, and α / R = 8."""
    policy = random_policy(kind, **changes)
    add_adapters(policy.model, 4, 32.0, dtype)
    return moved(policy, move)


def scores(policy, rollouts, accelerator=None) -> torch.Tensor:
    return log_probs(policy, MicroBatch.of(rollouts, CPU), 1.0, accelerator or Accelerator(cpu=True))[0].detach()


KINDS = pytest.mark.parametrize("kind, changes", [
    (LlamaConfig, {}), (Qwen2Config, {"tie_word_embeddings": True}), (Qwen2Config, {}),
], ids=["llama", "tied", "qwen2"])  # fmt: skip


@KINDS
def test_a_new_policy_is_the_model_and_a_merged_one_is_the_trained_policy(kind, changes):
    """Makes impossible: adapters that change the start; an engine or a model/ without them, with them twice, under
    other names, or with a head that is no longer the embedding.
    """
    rollouts = random_rollouts([(5, 6), (3, 5)])
    plain, policy = random_policy(kind, **changes), adapted(kind, **changes)
    names = [name for name, _ in whole_tensors(plain.model)]
    assert torch.equal(scores(policy, rollouts), scores(plain, rollouts))
    assert len([x for x in policy.modules() if isinstance(x, Adapted)]) == 7 * 3
    moved(policy, 0.1)
    before = scores(plain, rollouts)
    TorchEngine(plain.model).sync(policy.model)
    assert [name for name, _ in whole_tensors(policy.model)] == names
    torch.testing.assert_close(scores(plain, rollouts), scores(policy, rollouts), rtol=1e-5, atol=1e-5)
    assert (scores(plain, rollouts) - before).abs().max() > 0.1
    tied = policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
    assert tied == changes.get("tie_word_embeddings", False)
    assert [logits_fault(policy, share_prompts=share) for share in (False, True)] == ["", ""]


def test_the_reference_is_the_base_and_shares_its_weights():
    """Makes impossible: a second copy of the weights; a reference that moves with the policy, or that a reset does not
    copy.
    """
    rollouts = random_rollouts([(5, 6)])
    policy = adapted()
    base, reference = scores(policy, rollouts), copy_sharing_frozen(policy)
    addresses = [{p.data_ptr() for p in x.parameters()} for x in (policy, reference)]
    own = addresses[1] - addresses[0]
    assert len(own) == 2 * 7 * 3 == len([*trainable(policy)])
    moved(policy, 0.1)
    assert torch.equal(scores(reference, rollouts), base) and not torch.equal(scores(policy, rollouts), base)
    reference.load_state_dict(policy.state_dict())
    assert torch.equal(scores(reference, rollouts), scores(policy, rollouts))
    moved(policy, 0.1)
    assert not torch.equal(scores(reference, rollouts), scores(policy, rollouts))
    full = random_policy(LlamaConfig)
    own, copied = ({p.data_ptr() for p in x.parameters()} for x in (full, copy_sharing_frozen(full)))
    assert own.isdisjoint(copied)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_those_of_all_weights_times_the_adapters(checkpointing):
    """Makes impossible: a gradient of A or B that is wrong, or lost where activations are recomputed and no input has
    a gradient; a gradient of V x H numbers for a frozen head.
    """
    batch = MicroBatch.of(random_rollouts([(5, 6)]), CPU)
    policy, plain = adapted(move=0.1), random_policy(LlamaConfig)
    TorchEngine(plain.model).sync(policy.model)
    if checkpointing:
        recompute_layers(policy.model)
    for x in (policy.train(checkpointing), plain):
        log_probs(x, batch, 1.0, Accelerator(cpu=True))[0].sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in policy.parameters())
    weights = dict(plain.model.named_parameters())
    for name, layer in policy.model.named_modules():
        if isinstance(layer, Adapted):
            g = 8 * weights[f"{name}.weight"].grad  # α / R
            torch.testing.assert_close(layer.A.grad, layer.B.detach().T @ g, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(layer.B.grad, g @ layer.A.detach().T, rtol=1e-3, atol=1e-3)


def in_bfloat16(kind=LlamaConfig, move=0.0, **changes) -> Policy:
    policy = adapted(kind, torch.bfloat16, move, **changes)
    dither_under_autocast(policy.model)
    return policy


@pytest.mark.parametrize("checkpointing", [False, True])
@KINDS
def test_trainer_and_engine_compute_with_the_same_matrices_in_bfloat16(kind, changes, checkpointing, bf16):
    """Makes impossible: a trainer that does not see an update which its engine sees. The forward pass is that of a
    model with the engine's weights, bit for bit; an update of a tenth of an ulp changes it; gradients are those of W'.
    """
    batch = MicroBatch.of(random_rollouts([(4, 3), (4, 3)], longest=3), CPU)
    start, policy, copy = (
        in_bfloat16(kind, **changes),
        in_bfloat16(kind, 3e-5, **changes),
        random_policy(kind, **changes),
    )
    copy.model.to(torch.bfloat16)
    copy.model.model.rotary_emb.inv_freq = policy.model.model.rotary_emb.inv_freq
    own = copy.model.state_dict()
    for name, weight in whole_tensors(policy.model, torch.bfloat16):
        own[name].copy_(weight)
    if checkpointing:
        recompute_layers(policy.model)
        policy.train()
    found, want, old = (log_probs(x, batch, 1.0, bf16)[0] for x in (policy, copy, start))
    assert torch.equal(found, want) and not torch.equal(found, old)
    found.sum().backward()
    want.sum().backward()
    weights = dict(copy.model.named_parameters())
    for name, layer in policy.model.named_modules():
        if isinstance(layer, Adapted):
            g = 8 * weights[f"{name}.weight"].grad.float()
            for found, want in ((layer.A.grad, layer.B.T @ g), (layer.B.grad, g @ layer.A.T)):
                assert found.dtype == torch.float32
                assert (found - want).norm() <= 0.03 * want.norm(), name


def test_the_models_of_a_run_are_checked_before_they_are_rounded(tmp_path, bf16):
    """Makes impossible: a bfloat16 model that fails the check of its log-probs, or that silently computes each prompt
    once per response; a reference with weights of its own.
    """
    config, _ = settings(tmp_path, precision="bfloat16", **LORA)
    policy, reference, model = build_models(config, bf16, SimpleNamespace(prompt_lengths=[8]))
    assert policy.share_prompts and reference.share_prompts and model is policy.model
    frozen = {p.data_ptr() for p in policy.parameters() if p.dtype == torch.bfloat16}
    assert frozen == {p.data_ptr() for p in reference.parameters() if p.dtype == torch.bfloat16}
    assert len([*trainable(policy)]) == 2 * 7 * 2 and not [*trainable(reference)]


@pytest.mark.parametrize("kind, rank, changes, named", [
    (GPT2Config, 4, {"n_embd": 32, "n_head": 4}, "transformer.h.0.attn.c_attn.weight"),
    (Qwen3MoeConfig, 4, {"head_dim": 8, "moe_intermediate_size": 32, "num_experts": 4}, "experts"),
    (LlamaConfig, 17, {}, "--lora_rank 17 .*, 16"),
])  # fmt: skip
def test_a_model_or_a_rank_that_does_not_fit_is_refused(kind, rank, changes, named):
    """Makes impossible: a run that leaves most of its model untrained; an adapter larger than its weight."""
    with pytest.raises(Refusal, match=named):
        add_adapters(random_policy(kind, **changes).model, rank, 32.0, torch.float32)


def test_a_run_with_the_rate_of_all_weights_says_so(tmp_path):
    """Makes impossible: adapters that hardly learn without a word; a warning about a rate that the user chose."""
    [said] = remarks_on_rate(*settings(tmp_path, lora_rank=4, learning_rate=None))
    rate = settings(tmp_path, learning_rate=None)[0].learning_rate
    assert f"--learning_rate {10 * rate:.3g}" in said and f"rate {rate:.3g} is" in said
    assert not remarks_on_rate(*settings(tmp_path, **LORA)) and not remarks_on_rate(*settings(tmp_path))


# -------------------------------------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four steps with a reset of the reference after the second."""
    folder = tmp_path_factory.mktemp("lora")
    torch.set_num_threads(1)
    run(folder, max_steps=4, eval_every=2, **LORA)
    return folder


def test_a_run_learns_and_its_reference_is_reset(whole):
    """Makes impossible: adapters that are not trained; an engine that samples from the base; a reset that changes the
    policy or does nothing.
    """
    metrics = lines(whole / "run/metrics.jsonl")
    assert all(row["engine_difference_max"] < 1e-4 for row in metrics[1:])
    assert metrics[3]["kl_ref"] < metrics[2]["kl_ref"]  # the reset is after step 2
    assert metrics[2]["kl_ref"] > 0 and metrics[1]["grad_norm"] > 0


def test_a_resumed_run_writes_the_same_bytes_from_a_small_checkpoint(whole, tmp_path):
    """Makes impossible: a checkpoint with the frozen weights, or without the adapters of the reference."""
    run(tmp_path, max_steps=3, eval_every=2, **LORA)
    run(tmp_path, max_steps=4, eval_every=2, resume=True, **LORA)
    metrics = [lines(x / "run/metrics.jsonl") for x in (whole, tmp_path)]
    assert metrics[0][-1] == metrics[1][-1]
    assert contents(whole / "run")["model/model.safetensors"] == contents(tmp_path / "run")["model/model.safetensors"]
    saved = FileSystemReader(whole / "run/checkpoints/step_00000004").read_metadata().state_dict_metadata
    tensors = [name for name, x in saved.items() if hasattr(x, "size")]
    assert len(tensors) == 2 * 7 * 2 * (1 + 1 + 3)  # A and B of 14 layers: policy, reference, moments and their step
    assert all(name.rpartition(".")[2] in "AB" or "optimizer" in name for name in tensors)
    with pytest.raises(Refusal, match="lora_rank"):
        set_up(tmp_path, resume=True, max_steps=5, eval_every=2, **LORA | {"lora_rank": 8})


def test_the_saved_model_is_merged(whole, tmp_path):
    """Makes impossible: a model/ that only this project can load, or that is the base; the adapters' rate in its
    recipe; other scores under --eval_only.
    """
    path = whole / "run/model"
    model, info = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert model.dtype == torch.float32
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    _, _, setup = set_up(whole, resume=True, max_steps=5, eval_every=2, **LORA)
    rollouts, _ = drawn(4, 4)
    torch.testing.assert_close(scores(Policy(model), rollouts), scores(setup.policy, rollouts), rtol=1e-5, atol=1e-5)
    assert (scores(Policy(model), rollouts) - scores(Policy(loaded()[0]), rollouts)).abs().max() > 1e-2
    assert "learning_rate" not in json.loads((path / "recipe.json").read_text())["brorl"]
    config, accelerator, setup = set_up(tmp_path, name="scored", model=path, eval_only=True)
    import train

    setup.run.open()
    train.evaluate(config, accelerator, setup)
    last, again = lines(whole / "run/eval.jsonl")[-1], lines(tmp_path / "scored/eval.jsonl")[-1]
    assert {**again, "step": 4, "samples": last["samples"]} == last


def test_two_ranks_give_the_same_numbers_with_ddp_and_fsdp2(tmp_path, two_ranks):
    """Makes impossible: adapters that differ between ranks; shards of frozen weights that the engine does not get."""
    run(tmp_path, **UNEVEN | LORA)
    for name in ("lora_ddp", "lora_fsdp2"):
        same(lines(tmp_path / "run/metrics.jsonl"), lines(two_ranks / name / "metrics.jsonl"), rel=1e-3)
        assert lines(tmp_path / "run/eval.jsonl") == lines(two_ranks / name / "eval.jsonl")
    rows = lines(two_ranks / "lora_bf16/metrics.jsonl")
    assert len(rows) == 3 and all(row["engine_kl"] < 1e-3 for row in rows[1:])
    weight = AutoModelForCausalLM.from_pretrained(two_ranks / "lora_bf16/model").model.layers[0].mlp.up_proj.weight
    assert weight.dtype == torch.float32 and not torch.equal(weight, weight.bfloat16().float())
