"""FSDP2: how weights are laid out over the ranks."""

from __future__ import annotations

import copy

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from trainer.policy import Policy


def copy_sharing_weights(module: torch.nn.Module):
    """Copy a module, but not its tensors."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(x): x for x in tensors})


def copy_from_rank_0(module: torch.nn.Module, device: torch.device) -> None:
    """Replace a module's tensors by copies of rank 0's on this rank's device. Sharded tensors stay as they are.

    Rank 0 has them on the CPU; other ranks have them on meta, that is, their shapes only.
    """
    copies: dict[Tensor, Tensor] = {}  # a tied weight stays one tensor
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, old in tensors.items():
                if old is None or isinstance(old, DTensor):
                    continue
                if old not in copies:
                    new = torch.empty_like(old, device=device) if old.is_meta else old.detach().to(device, copy=True)
                    torch.distributed.broadcast(new, src=0)
                    is_weight = isinstance(old, torch.nn.Parameter)
                    copies[old] = torch.nn.Parameter(new, old.requires_grad) if is_weight else new
                tensors[name] = copies[old]  # type: ignore[assignment]


def shard(policy: Policy, accelerator: Accelerator):
    """FSDP2: each rank holds a part of every weight, and gathers one layer at a time.

    It gathers float32, twice the bytes of bfloat16: FSDP2 itself would round to the nearest, where
    `dither_under_autocast` rounds otherwise. `copy_from_rank_0` and sharding go layer by layer too, so a card never
    holds more than its part and one layer, or the embedding and the head.
    """
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    layers = policy.model._no_split_modules or []
    for module in policy.model.modules():
        if type(module).__name__ in layers:
            copy_from_rank_0(module, accelerator.device)
            fully_shard(module, mesh=mesh)
    copy_from_rank_0(policy, accelerator.device)
    return fully_shard(policy, mesh=mesh)
