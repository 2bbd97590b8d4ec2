"""The trainer's weights as rollout.py's engines take them, however the trainer has wrapped or cut them up."""

from collections.abc import Iterator

import torch
from torch import Tensor


def whole_tensors(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights under the names of `state_dict`, one at a time: a shard of FSDP2 is gathered when its turn comes.

    Tied weights come once, under the embedding's name: not every model of vLLM's has a head of its own.
    """
    model = getattr(model, "module", model)  # DDP
    once = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
    for name, tensor in model.state_dict().items():
        if name in once:
            yield name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
