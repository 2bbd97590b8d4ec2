"""Workarounds for vLLM 0.32.0, each with its reason in vLLM.

mark_compiled_classes   classes of transformers that vLLM marks for all their instances
keep_threads            torch's number of threads, which vLLM's CPU build sets
config_folder           one path for equal configs, on which vLLM's cache of kernels depends
repack_tied_head        a tied output head that a CPU packs too early
has_head_bias           an output head whose bias vLLM loses

Like vllm.py, which uses them, this file imports vLLM only inside a function.
"""

import copy
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel


def mark_compiled_classes(model: PreTrainedModel) -> None:
    """Mark transformers' classes of this model's modules as not compiled.

    vLLM runs some architectures (OLMo 2, SmolLM3, StarCoder 2) by transformers' own class, and makes its calls read a
    mark that only vLLM's instances have. Policy and reference are instances of this class too.
    """
    for module in model.modules():
        if type(module).__module__.startswith("transformers."):
            type(module).do_not_compile = True  # type: ignore[attr-defined]


@contextmanager
def keep_threads() -> Iterator[None]:
    """Restore torch's threads. vLLM's CPU build sets one thread and disables `torch.set_num_threads`."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = setter
        setter(threads)


def config_folder(model: PreTrainedModel) -> str:
    """Write the model's config to a folder for vLLM, the same for equal configs, and return its path.

    vLLM's cache of compiled kernels depends on the path. The file appears complete, so no rank reads half of it.
    """
    import vllm.envs

    model_config = copy.deepcopy(model.config)
    model_config.architectures = [type(model).__name__]
    digest = hashlib.sha256(model_config.to_json_string().encode()).hexdigest()
    folder = f"{vllm.envs.VLLM_CACHE_ROOT}/brorl/{digest[:16]}"
    os.makedirs(folder, exist_ok=True)
    model_config.to_json_file(f"{folder}/{os.getpid()}")
    os.replace(f"{folder}/{os.getpid()}", f"{folder}/config.json")
    return folder


def repack_tied_head(model: Any) -> None:
    """Pack the weights of a tied output head again: vLLM on a CPU does not when the embedding is loaded."""
    head: Any = getattr(model, "lm_head", None)
    if getattr(model.config.get_text_config(), "tie_word_embeddings", False) and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


def has_head_bias(model: Any) -> bool:
    """Whether vLLM's output head adds a bias. vLLM 0.32.0 forgets the bias of Phi when weights are loaded again."""
    return getattr(getattr(model, "lm_head", None), "bias", None) is not None
