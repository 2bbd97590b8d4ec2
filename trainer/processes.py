"""train.py's processes: what several of them must agree on, and what they add up.

Without `accelerate launch` there is one process, and each of these does the plain local thing.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, broadcast_object_list, gather_object
from torch import Tensor

Found = TypeVar("Found")


def seed_of(*parts: int) -> int:
    """A 63-bit seed that differs for every combination of its parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def total(value: float, accelerator: Accelerator) -> float:
    """The sum of every process's number, on all of them."""
    return accelerator.reduce(torch.tensor(value, dtype=torch.float64, device=accelerator.device), "sum").item()


def summed(x: Tensor, accelerator: Accelerator) -> Tensor:
    """The sum of every process's tensor, on all of them; on the CPU."""
    return accelerator.reduce(x.to(accelerator.device), "sum").cpu()


def from_main(work: Callable[[], Found]) -> Found:
    """What `work` returns or raises on the main process, on all of them: processes must not disagree about a disk."""
    found: list = [None]
    if PartialState().is_main_process:
        try:
            found = [work()]
        except (ValueError, OSError) as mistake:
            found = [mistake]
    broadcast_object_list(found)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def passes(parts: int, accelerator: Accelerator) -> int:
    """How many forward passes a process makes for its parts. Under FSDP each one gathers weights: all make as many."""
    return max(gather_object([parts])) if accelerator.distributed_type == DistributedType.FSDP else parts


def reduced_later(policy, accelerator: Accelerator) -> AbstractContextManager:
    """The context of all micro-batches of an update but the last: DDP adds gradients up over processes after the last.

    FSDP2 adds them up after every micro-batch. A gradient that waits would be whole on every process, 28 GiB of a 7B
    model in float32; its part is 3.5 GiB on each of 8 processes.
    """
    sharded = accelerator.distributed_type == DistributedType.FSDP
    return nullcontext() if sharded else accelerator.no_sync(policy)


def idle(policy, device) -> Tensor:
    """A forward pass that adds nothing: 0, with a gradient of 0 for every weight."""
    one = torch.ones(1, dtype=torch.long, device=device)
    return policy(torch.zeros(1, 2, dtype=torch.long, device=device), one, one, 1.0)[0].sum() * 0
