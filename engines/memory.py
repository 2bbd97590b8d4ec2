"""Memory of an engine: the size of keys and values, what the torch engine may take, and what a row of it needs."""

import ctypes
import sys

import torch
from transformers import PreTrainedModel


def cache_bytes_per_token(model: PreTrainedModel, itemsize: int) -> int:
    """Return the size of one token's keys and values in all layers. itemsize: bytes of a number."""
    c = model.config.get_text_config()
    numbers = 0
    for i in range(c.num_hidden_layers):
        # Gemma 4's layers differ in width. Older versions of transformers have no config of a layer.
        layer = c.per_layer_config[i] if hasattr(c, "per_layer_config") else c
        heads = getattr(layer, "num_key_value_heads", None) or c.num_attention_heads
        numbers += 2 * heads * (getattr(layer, "head_dim", None) or c.hidden_size // c.num_attention_heads)
    return numbers * itemsize


def decoding_gib(device: torch.device, gpu_memory_utilization: float) -> float:
    """Return the GiB for decoding: this share of a GPU's free memory; 2 on a CPU.

    The rest is for activations, and for all that the estimate of `bytes_per_row` leaves out.
    """
    return gpu_memory_utilization * torch.cuda.mem_get_info(device)[0] / 2**30 if device.type == "cuda" else 2.0


def bytes_per_row(model: PreTrainedModel, n: int, prompt_tokens: int, max_new_tokens: int) -> float:
    """Estimate the memory of one row: an n-th of its prompt, its response, one layer's scores, one step's logits."""
    c, item = model.config.get_text_config(), model.dtype.itemsize
    token_bytes = cache_bytes_per_token(model, item)
    layer = 12 * c.hidden_size * item  # activations of one layer for one token
    prompt = prompt_tokens * (token_bytes + layer) / n
    # PrefixDecoder._select copies one layer more.
    response = max_new_tokens * (token_bytes * (1 + 1 / c.num_hidden_layers) + 12)
    scores = 3 * c.num_attention_heads * (prompt_tokens + max_new_tokens) * 4
    return prompt + response + scores + 6 * c.vocab_size * 4  # logits, log-probs, probabilities, and a cdf in float64


def keep_freed_memory() -> None:
    """Tell glibc to keep the memory that a decoding step frees (Linux; does nothing elsewhere).

    By default glibc returns a few megabytes to the kernel at every step and gets them back through page faults, which
    takes up to a third of the decoding time on a CPU. Blocks of more than 32 MiB still return immediately.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
