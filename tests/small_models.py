"""Small random models of every kind that the engines' tests need, and their log-probs by one plain forward pass."""

import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from rollout import sampling_logprobs

SMALL = {
    "vocab_size": 13, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
CONFIGS = {
    "qwen2, grouped heads, tied": Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen3, head width of its own": Qwen3Config(**SMALL, head_dim=12),
    "llama, one key head": LlamaConfig(**SMALL | {"num_key_value_heads": 1}),
    "mistral, sliding window of 5": MistralConfig(**SMALL, sliding_window=5, head_dim=8),
    "gemma 2, soft caps, window of 4": Gemma2Config(**SMALL, sliding_window=4, head_dim=8, attn_logit_softcapping=2.0),
    "gpt 2, learned positions": GPT2Config(
        vocab_size=13, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=0
    ),
    "bloom, ALiBi": BloomConfig(vocab_size=13, hidden_size=32, n_layer=2, n_head=4, eos_token_id=0),
}
PROMPTS = [[3, 4, 5], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6]]


def make(name="qwen2, grouped heads, tied", seed=0):
    """A random model whose next-token distributions are far from uniform, in float32."""
    torch.manual_seed(seed)
    eager = {"attn_implementation": "eager"} if "soft caps" in name else {}  # transformers' sdpa has no soft cap
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32, **eager).eval()
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.25)
    return model


def full_logprobs(model, prompt, response, **sampling):
    """Log-probs of a response by one plain forward pass over prompt and response."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    logp = sampling_logprobs(logits, **sampling)
    return logp.gather(-1, torch.tensor(response)[:, None]).squeeze(-1).tolist()
