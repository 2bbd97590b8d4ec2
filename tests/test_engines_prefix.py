"""engines/prefix.py: models that it refuses, the check at the start, and precision.

test_rollout.py compares the log-probs of whole responses with plain forward passes, on every kind of attention.
"""

import pytest
import torch
from small_models import PROMPTS, SMALL, full_logprobs, make
from transformers import AutoModelForCausalLM, DogeConfig, Gemma4TextConfig, GptOssConfig

from engines import prefix
from engines.memory import cache_bytes_per_token
from engines.model import inference
from engines.prefix import check_attention
from rollout import Request, Sampling, TorchEngine


def test_the_check_sees_a_wrong_decoder(monkeypatch):
    """Makes impossible: an attention that is wrong on some model and used there; a little, or with two prompts only."""
    right = prefix.shared_prompt_attention

    def attention(*args, decoder, **kwargs):
        decoder.prompt_keys = [x.lerp(x.flip(0), 0.02) for x in decoder.prompt_keys]  # of the other prompt
        return right(*args, decoder=decoder, **kwargs)

    monkeypatch.setitem(prefix.ALL_ATTENTION_FUNCTIONS._global_mapping, "shared_prompt", attention)
    with pytest.raises(ValueError, match="--engine vllm"):
        check_attention(make())


def test_a_model_with_attention_sinks_is_refused():
    """Makes impossible: an argument of the model's attention that `shared_prompt_attention` leaves out in silence, and
    advice to use vLLM, which refuses this model too.
    """
    config = GptOssConfig(**SMALL, head_dim=8, num_local_experts=2, num_experts_per_tok=1)
    with pytest.raises(ValueError, match="nor with vLLM"):
        check_attention(AutoModelForCausalLM.from_config(config, dtype=torch.float32))


def test_a_model_with_a_mask_of_its_own_is_refused():
    """Makes impossible: a mask that is zero at the start, so no check sees that the engine leaves it out, and grows in
    training.
    """
    model = AutoModelForCausalLM.from_config(DogeConfig(**SMALL), dtype=torch.float32)
    assert not any(layer.self_attn.A.any() for layer in model.model.layers)
    with pytest.raises(ValueError, match=r"--engine vllm: .*mask"):
        check_attention(model)


def test_layers_of_different_widths():
    """Makes impossible: a traceback about the width of Gemma 4's heads, or the memory of its wide layers left out."""
    shape = {"head_dim": 8, "global_head_dim": 16, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 13}
    config = Gemma4TextConfig(**SMALL, **shape, layer_types=["sliding_attention", "full_attention"])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    assert cache_bytes_per_token(model, 4) == 2 * 2 * (8 + 16) * 4  # keys and values, key heads, widths, bytes
    [(_, group)] = TorchEngine(model).generate([Request(PROMPTS[0], 3, 0)], Sampling(5))
    for i, end in enumerate(group.lengths.tolist()):
        response = group.tokens[i, :end].tolist()
        assert group.logp[i, :end].tolist() == pytest.approx(full_logprobs(model, PROMPTS[0], response), abs=1e-4)


def test_inference_computes_in_the_precision_that_it_is_given():
    """Makes impossible: rollouts in bfloat16 within a trainer's autocast although the engine says float32."""
    model, x = make(), torch.tensor([[3, 4]])
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).logits.dtype == torch.bfloat16
        with inference(model, "float32"):
            assert model(x).logits.dtype == torch.float32 and not model.training and not torch.is_grad_enabled()
    inner, head = [], model.get_output_embeddings()
    model.model.layers[0].mlp.register_forward_hook(lambda module, args, out: inner.append(out.dtype))
    with inference(model, "bfloat16"):
        assert model(x).logits.dtype == torch.float32, "as in the trainer"
    assert inner == [torch.bfloat16] and "forward" not in vars(head)
    assert model.training and torch.is_grad_enabled() and model(x).logits.dtype == torch.float32
