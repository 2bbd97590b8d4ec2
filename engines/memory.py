"""The memory that a row takes while rollout.py's TorchEngine decodes it.

A wave is the rows that decode together. Beside the weights it holds for every row: keys and values of its response, the
scores of one layer's attention, the logits of one step, and its share of the prompt. All sizes are in bytes.
"""

import ctypes
import sys

from transformers import PreTrainedModel


def token_bytes(model: PreTrainedModel) -> int:
    """Keys and values of one token, in all layers."""
    c = model.config.get_text_config()
    heads = c.num_attention_heads
    width = getattr(c, "head_dim", None) or c.hidden_size // heads
    return 2 * c.num_hidden_layers * (getattr(c, "num_key_value_heads", None) or heads) * width * model.dtype.itemsize


def row_bytes(model: PreTrainedModel, copied: bool, n: int, prompt_tokens: int, max_new_tokens: int) -> float:
    """The most that one row holds; copied: with a copy of its prompt's cache, not only an n-th part of the one."""
    c = model.config.get_text_config()
    heads, item, token = c.num_attention_heads, model.dtype.itemsize, token_bytes(model)
    prompt = prompt_tokens * (token + 12 * c.hidden_size * item)  # its cache, and one layer's activations
    copy = prompt_tokens * token if copied else 0
    scores = 3 * heads * (prompt_tokens + max_new_tokens) * 4
    response = max_new_tokens * (token * (1 + 1 / c.num_hidden_layers) + 12)  # a layer's cache twice, while lines part
    return prompt / n + copy + response + scores + 6 * c.vocab_size * 4  # logits' log-probs, chances, and their cdf


def keep_freed_memory() -> None:
    """Ask glibc to keep what a decoding step frees, for the next step to use (Linux; elsewhere nothing happens).

    Left alone, it returns the few megabytes of scores to the kernel at every step, and page faults to get
    them again cost half of the time of a wave on a CPU. Blocks beyond 32 MiB still go back at once.
    """
    m_trim_threshold, m_mmap_threshold = -1, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(m_mmap_threshold, 32 * 2**20)
        mallopt(m_trim_threshold, 2**31 - 1)
