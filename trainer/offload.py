"""--offload: AdamW's moments and the reference stay in host memory, and visit the device when a stage uses them.

    bytes per parameter       on the device        on the device with --offload        over the bus with --offload
    weights                   4                    4
    gradients (stage 7)       4                    4
    two moments               8                    8 for one parameter at a time       16 per optimizer step
    reference                 4                    4 in stage 6, before the gradients  4 per step

The optimizer step of a parameter needs no other parameter, so the parameters take turns: their moments travel to the
device and back. Stage 6 only reads the reference, so its weights travel to the device and not back. The numbers are
those of a run without --offload, bit for bit: the same operations run on the same device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
                    self.state[p] = {name: visitor(x, p) for name, x in host.items()}
                    self.param_groups = [group | {"params": [p]}]
                    super().step()
                    for name, x in host.items():
                        x.copy_(self.state[p][name])  # waits for the device: a checkpoint may read x next
                    self.state[p] = host
        finally:
            self.param_groups = groups


def visitor(x: Tensor, p: Tensor) -> Tensor:
    """Copy a moment to the parameter's device. The count of steps stays on the CPU, where AdamW has it too."""
    return x.to(p.device if x.dim() else "cpu", non_blocking=True, copy=True)


def zeros_in_host_memory(p: Tensor) -> Tensor:
    """Zeros of the parameter's shape and type. Pinned memory, for a GPU, travels at the full speed of the bus."""
    return torch.zeros_like(p, device="cpu", pin_memory=p.is_cuda, requires_grad=False)


def to_host(module: torch.nn.Module) -> None:
    """Move a module's weights to host memory, pinned if they come from a GPU."""
    for p in module.parameters():
        p.data = p.data.cpu().pin_memory() if p.is_cuda else p.data


@contextmanager
def on_device(module: torch.nn.Module | None, device: torch.device) -> Iterator[None]:
    """Bring a module's weights to the device, and give the module its own tensors again afterwards.

    The weights must not be changed in between. Does nothing for weights that are on the device, and for None.
    """
    own = {p: p.data for p in (module.parameters() if module is not None else ())}
    for p in own:
        p.data = p.data.to(device, non_blocking=True)
    try:
        yield
    finally:
        for p, data in own.items():
            p.data = data
