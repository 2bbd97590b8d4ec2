"""The trained model, for the trainer and both engines: its weights by name, and what differs between architectures.

whole_tensors           yields its weights, gathered from all ranks, also rounded to bfloat16
matrices_of             names the weights that the forward pass in bfloat16 rounds
is_adapted              has a layer an adapter?
dithered_weights        rounds these weights once for many forward passes
inference               prepares the model for the torch engine's forward passes
cache_argument          names the argument for keys and values
experts_in_one_weight   names the weights that vLLM cannot load
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import PreTrainedModel

from engines.rounding import dithered


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


def matrices_of(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, dict[str, str]]]:
    """Yield each module with a matrix that autocast rounds, and the names of its weights in the model.

    Under autocast embeddings and norms compute in float32. A tied output head has the name of the embedding, as in an
    engine. A layer with an adapter (trainer/adapters.py) rounds its merged weight itself.
    """
    names = {p: name for name, p in model.named_parameters()}
    for module in model.modules():
        weights = {key: p for key, p in module._parameters.items() if p is not None}
        left_out = isinstance(module, torch.nn.Embedding) or is_adapted(module)
        if any(p.dim() > 1 for p in weights.values()) and not left_out:
            yield module, {key: names[p] for key, p in weights.items()}


def is_adapted(module: torch.nn.Module) -> bool:
    """Whether a layer has an adapter (trainer/adapters.py): `merged` then computes its weight, with the name `name`."""
    return hasattr(module, "merged")


@contextmanager
def dithered_weights(model: torch.nn.Module) -> Iterator[None]:
    """Round the model's matrices once for many forward passes without gradients: 2 bytes per parameter more.

    A layer with an adapter gets its merged weight, rounded.
    """
    matrices: list[tuple[Any, dict[str, Tensor], dict[str, str]]] = []
    for module, names in matrices_of(model):
        matrices.append((module, {key: getattr(module, key) for key in names}, names))
    adapted: list[Any] = [module for module in model.modules() if is_adapted(module)]
    try:
        for module in adapted:
            module.engine_weight = dithered(module.merged(), module.name)
        for module, weights, names in matrices:
            module._parameters.update({key: dithered(weights[key], name) for key, name in names.items()})
        yield
    finally:
        for module in adapted:
            module.engine_weight = None
        for module, weights, _ in matrices:
            module._parameters.update(weights)


@contextmanager
def inference(model: PreTrainedModel, precision: str) -> Iterator[None]:
    """Compute without gradients, in evaluation mode and in this precision; restore the model afterwards.

    "bfloat16" runs the model under autocast, with weights that are rounded once by `dithered`. Its output head computes
    in float32: the trainer has logits in float32 too.
    """
    was_training, device, head = model.training, model.device.type, model.get_output_embeddings()
    autocast = precision == "bfloat16"
    if autocast:
        head.forward = torch.autocast(device, enabled=False)(
            lambda x: linear(x.float(), head.weight.float(), head.bias if head.bias is None else head.bias.float())
        )
    model.eval()
    try:
        with (
            torch.no_grad(),
            dithered_weights(model) if autocast else nullcontext(),
            torch.autocast(device, torch.bfloat16, enabled=autocast),
        ):
            yield
    finally:
        model.train(was_training)
        if autocast:
            del head.forward


def cache_argument(model: torch.nn.Module) -> str:
    """The name of the forward pass's argument for keys and values. transformers 5.24 has renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def experts_in_one_weight(model: PreTrainedModel) -> list[str]:
    """The weights that have all experts of a layer, a form of transformers that vLLM cannot load."""
    return [name for name, p in model.named_parameters() if p.dim() == 3 and "experts" in name]
