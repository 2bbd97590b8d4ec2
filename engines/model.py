"""The trained model, for both engines of rollout.py: its weights by name, and what differs between architectures."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engines.rounding import dithered, is_adapted


def whole_tensors(model: torch.nn.Module, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) under the names of `state_dict`. Gathers the FSDP2 shards of one tensor at a time.

    Yields tied weights once, under the embedding's name: some models of vLLM have no head of their own. With dtype
    bfloat16 the parameters are rounded by `dithered`, each shard on its rank; buffers stay as they are. A layer with an
    adapter (trainer/adapters.py) yields its merged weight, which is computed when its turn comes.
    """
    model = getattr(model, "module", model)  # DDP
    parameters, buffers = ({name for name, _ in x} for x in (model.named_parameters(), model.named_buffers()))
    adapted: dict[str, Any] = {name: x for name, x in model.named_modules() if is_adapted(x)}
    for name, tensor in model.state_dict().items():
        layer, _, key = name.rpartition(".")
        if layer in adapted and key in ("A", "B"):
            continue
        if layer in adapted and key == "weight":
            tensor = adapted[layer].merged()
        if name in parameters and dtype == torch.bfloat16:
            tensor = dithered(tensor, name)
        if name in parameters | buffers:
            yield name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def cache_argument(model: torch.nn.Module) -> str:
    """The name of the forward pass's argument for keys and values. transformers 5.24 has renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def experts_in_one_weight(model: PreTrainedModel) -> list[str]:
    """The weights that have all experts of a layer, a form of transformers that vLLM cannot load."""
    return [name for name, p in model.named_parameters() if p.dim() == 3 and "experts" in name]
