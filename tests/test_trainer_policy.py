"""The policy's log-probs: of the model's own function, or refused; when prompts are shared."""

import pytest
import torch
from helpers import loaded, random_policy
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen3NextConfig,
)

from trainer.packed import response_attention
from trainer.policy import Policy


def test_dropout_is_off():
    """Makes impossible: old, new and engine log-probs from differently thinned networks."""
    gpt2 = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=13, n_embd=32, n_layer=1, n_head=4, n_positions=32))
    llama = AutoModelForCausalLM.from_config(
        LlamaConfig(vocab_size=13, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
                    attention_dropout=0.5)
    )  # fmt: skip
    for model in (gpt2, llama):
        policy = Policy(model).train()
        tokens = torch.randint(13, (2, 10))
        two = torch.tensor([2, 2]), torch.tensor([8, 8])
        assert torch.equal(policy(tokens, *two, 1.0)[0], policy(tokens, *two, 1.0)[0])


def test_a_model_that_caps_its_logits_is_refused():
    """Makes impossible: training on log-probs that are not the model's."""
    capped = Gemma2Config(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, final_logit_softcapping=0.5, pad_token_id=0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(capped)
    torch.nn.init.normal_(model.get_output_embeddings().weight)
    with pytest.raises(ValueError, match="changes its logits after the output head"):
        Policy(model).check_head()
    Policy(loaded()[0]).check_head()
    scaled = Policy(loaded()[0])  # by no setting that has a name
    scaled.model.register_forward_hook(lambda module, inputs, out: setattr(out, "logits", 2 * out.logits))
    with pytest.raises(ValueError, match="changes its logits after the output head"):
        scaled.check_head()


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("budget", [10_000, 30, 14])
def test_next_token_is_the_softmax_after_each_prefix(shares, budget):
    """Makes impossible: a softmax of another prefix, of another temperature, or one that padding got into."""
    model, tokenizer = loaded()
    policy = Policy(model)
    if shares:
        policy.share("on")
    prompt = tokenizer("1234:10=").input_ids
    prefixes = [(), (3,), (3, 12), (4,), (3, 12, 5, 13, 7)]
    got = policy.next_token(prompt, prefixes, 0.7, budget)
    for p, prefix in zip(got, prefixes, strict=True):
        logits = model(input_ids=torch.tensor([[*prompt, *prefix]])).logits[0, -1]
        torch.testing.assert_close(p, (logits / 0.7).softmax(-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "kind, settings, says",
    [
        (MistralConfig, {"sliding_window": 4}, "sliding_window"),
        (Gemma3TextConfig, {}, "sliding_attention"),
        (Qwen3NextConfig, {"num_experts": 4}, "linear_attention"),
        (BloomConfig, {"n_head": 4, "n_layer": 2}, "eager"),
        (FalconConfig, {}, "cannot be replaced"),
    ],
)
def test_models_that_cannot_share_train_as_before(kind, settings, says):
    """Makes impossible: a model that attends in another way, quietly given the attention of those that do not."""
    policy = random_policy(kind, **settings)
    own = policy.model.config._attn_implementation
    line = policy.share("auto")
    assert line.startswith("every rollout with its own prompt (") and says in line
    assert not policy.shares and policy.model.config._attn_implementation == own
    with pytest.raises(ValueError, match=f"--share_prefix on: {type(policy.model).__name__} cannot: .*{says}"):
        policy.share("on")


@pytest.mark.parametrize("broken", ["positions", "keys", "arguments"])
def test_the_self_check_sees_a_wrong_computation(broken, monkeypatch):
    """Makes impossible: training on log-probs of another function, because transformers changed beneath this file."""
    policy = random_policy(LlamaConfig)
    forward, attend = policy.model.base_model.forward, response_attention

    def other(position_ids=None, **kwargs):
        if broken == "arguments":
            kwargs.pop("packed", None)
        if broken == "positions" and position_ids is not None:
            position_ids = torch.arange(position_ids.shape[1])[None]
        return forward(position_ids=position_ids, **kwargs)

    monkeypatch.setattr(policy.model.base_model, "forward", other)
    if broken == "keys":
        monkeypatch.setattr("trainer.packed.response_attention", lambda *a: attend(*a[:3], a[3] * 0, *a[4:]))
    assert "differ by" in policy.share("auto") and not policy.shares
    assert policy.model.config._attn_implementation == "sdpa"


def test_sharing_leaves_the_other_forward_passes_alone():
    """Makes impossible: a policy that decodes or scores otherwise because it could share."""
    policy, tokens = random_policy(LlamaConfig), torch.randint(50, (3, 12))
    mask = torch.tensor([[0] * 4 + [1] * 8, [1] * 12, [0] * 1 + [1] * 11])
    before = policy.model(input_ids=tokens, attention_mask=mask).logits
    assert policy.share("auto").startswith("each prompt computed once") and policy.shares
    assert torch.equal(policy.model(input_ids=tokens, attention_mask=mask).logits, before)
