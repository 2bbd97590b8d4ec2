"""--offload: AdamW's moments and the reference stay in host memory, and visit the device when a stage uses them.

    bytes per parameter    on the device    on the device with --offload     over the bus with --offload
    weights                4                4                                0
    gradients              4                4, in stage 7; with DDP always   0
    two moments            8                8, for one matrix at a time      16 per optimizer step
    reference              4                4, in stage 6                    4 per step

The optimizer step of a parameter needs no other parameter, so the parameters take turns: their moments travel to the
device and back. Stage 6 only reads the reference, so its weights travel to the device and not back. The numbers are
those of a run without --offload, bit for bit: the same operations run on the same device.

`allocate_moments` gives AdamW its moments in every run, with --offload and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class OffloadedAdamW(torch.optim.AdamW):
    """AdamW with its moments in host memory. `step` updates one parameter at a time, with its moments on the device."""

    @torch.no_grad()
    def step(self, closure=None) -> None:  # type: ignore[override]
        groups = self.param_groups
        try:
            for group in groups:
                for p in [p for p in group["params"] if p.grad is not None]:
                    host = self.state[p]
                    self.state[p] = {name: copy_to_device(x, p) for name, x in host.items()}
                    self.param_groups = [group | {"params": [p]}]
                    super().step()
                    for name, x in host.items():
                        x.copy_(self.state[p][name])  # waits for the device: a checkpoint may read x next
                    self.state[p] = host
        finally:
            self.param_groups = groups


def copy_to_device(x: Tensor, p: Tensor) -> Tensor:
    """Copy a moment to the parameter's device. The count of steps stays on the CPU, where AdamW has it too."""
    return x.to(p.device if x.dim() else "cpu", non_blocking=True, copy=True)


def in_host_memory(x: Tensor, pinned: bool) -> Tensor:
    """x in host memory. Pinned memory, for a GPU, travels at the full speed of the bus."""
    return x.cpu().pin_memory() if pinned else x.cpu()


def zeros_in_host_memory(p: Tensor) -> Tensor:
    """Zeros of the parameter's shape and type."""
    return in_host_memory(torch.zeros(p.shape, dtype=p.dtype), pinned=p.is_cuda)


def allocate_moments(optimizer: torch.optim.Optimizer) -> None:
    """Give AdamW its moments now, as zeros: later the engine has the memory. With --offload they are on the host."""
    zeros = zeros_in_host_memory if isinstance(optimizer, OffloadedAdamW) else torch.zeros_like
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p] = {"step": torch.tensor(0.0), "exp_avg": zeros(p), "exp_avg_sq": zeros(p)}


def to_host(module: torch.nn.Module) -> None:
    """Move a module's weights to host memory."""
    swap_weights(module, lambda p: in_host_memory(p.detach(), pinned=p.is_cuda))


@contextmanager
def on_device(module: torch.nn.Module | None, device: torch.device) -> Iterator[None]:
    """Give a module copies of its weights on the device, and its own weights again afterwards.

    The weights must not be changed in between. Does nothing if all of them are on the device, and for None.
    """
    own = []
    if module is not None and any(p.device != device for p in module.parameters()):
        own = swap_weights(module, lambda p: p.to(device, non_blocking=True))
    try:
        yield
    finally:
        for part, name, p in own:
            part._parameters[name] = p


def swap_weights(module: torch.nn.Module, change: Callable[[Tensor], Tensor]) -> list[tuple[Any, str, Any]]:
    """Replace each weight by `change` of it; a tied weight stays one. Returns (module, name, weight) as they were."""
    own = [(part, name, p) for part in module.modules() for name, p in part._parameters.items() if p is not None]
    changed = {p: torch.nn.Parameter(change(p), requires_grad=p.requires_grad) for _, _, p in own}
    for part, name, p in own:
        part._parameters[name] = changed[p]
    return own
