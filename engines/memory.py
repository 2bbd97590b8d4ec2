"""Memory of an engine, in bytes.

cache_bytes_per_token          keys and values of one token, for both engines
decoding_bytes, bytes_per_row  the torch engine: its memory for decoding, and that of one row
keep_freed_memory              the torch engine on a CPU: keep what a step frees
cpu_cache_bytes, max_seqs      vLLM: its cache on a CPU, and how many rollouts decode at a time
vllm_bytes                     vLLM: its weights and cache on a GPU
"""

import ctypes
import os
import sys
from typing import Any

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


def decoding_bytes(device: torch.device, gpu_memory_utilization: float) -> float:
    """Return the bytes for decoding: this share of a GPU's free memory; 2 GiB on a CPU.

    The rest is for activations, and for all that the estimate of `bytes_per_row` leaves out.
    """
    return gpu_memory_utilization * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 2.0 * 2**30


def bytes_per_row(model: PreTrainedModel, n: int, prompt_tokens: int, max_new_tokens: int) -> float:
    """Estimate the memory of one row: an n-th of its prompt, its response, one layer's scores, one step's logits."""
    c, item = model.config.get_text_config(), model.dtype.itemsize
    token_bytes = cache_bytes_per_token(model, item)
    layer_bytes = 12 * c.hidden_size * item  # activations of one layer for one token
    prompt_bytes = prompt_tokens * (token_bytes + layer_bytes) / n
    # PrefixDecoder._select copies one layer more.
    response_bytes = max_new_tokens * (token_bytes * (1 + 1 / c.num_hidden_layers) + 12)
    score_bytes = 3 * c.num_attention_heads * (prompt_tokens + max_new_tokens) * 4
    logit_bytes = 6 * c.vocab_size * 4  # logits, log-probs, probabilities, and a cdf in float64
    return prompt_bytes + response_bytes + score_bytes + logit_bytes


def keep_freed_memory() -> None:
    """Tell glibc to keep the memory that a decoding step frees (Linux; does nothing elsewhere).

    By default glibc returns a few megabytes to the kernel at every step and gets them back through page faults, which
    takes up to a third of the decoding time on a CPU. Blocks of more than 32 MiB still return immediately.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def cpu_cache_bytes() -> int:
    """Return the size of vLLM's cache on a CPU: 2 GiB, or vLLM's own variable VLLM_CPU_KVCACHE_SPACE in GiB."""
    return int(float(os.environ.get("VLLM_CPU_KVCACHE_SPACE", 2)) * 2**30)


def max_seqs(model: PreTrainedModel, dtype: str, config: Any) -> int:
    """Return how many rollouts of half of the response limit vLLM's cache holds, 8 to max(512, N).

    Half is the mean length of a rollout that decodes up to the limit. The prompt is in the cache once per group, so it
    does not count. If too many rollouts run, vLLM drops keys and values and computes them again later. `config` has the
    settings of the run.
    """
    item = getattr(torch, dtype).itemsize
    cache_bytes = float(cpu_cache_bytes())
    if model.device.type == "cuda":
        total = torch.cuda.mem_get_info(model.device)[1]
        cache_bytes = config.gpu_memory_utilization * total - item * sum(p.numel() for p in model.parameters())
    rollout_bytes = cache_bytes_per_token(model, item) * config.max_response_tokens / 2
    return max(8, min(int(cache_bytes / rollout_bytes), max(512, config.rollouts_per_prompt)))


def vllm_bytes() -> int:
    """Return the size of vLLM's weights and cache on a GPU, also while they are off the card; 0 without vLLM."""
    module = sys.modules.get("vllm.device_allocator.cumem")
    return module.CuMemAllocator.instance.get_current_usage() if module and module.CuMemAllocator.instance else 0
