"""The tensors of a checkpoint: trained weights, AdamW's moments, the reference. run.py decides when and where."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict


def state_of(policy, optimizer, ref_policy) -> dict[str, Any]:
    """Return the tensors of a checkpoint: the run's own, not copies. Sharded ones stay sharded.

    The frozen weights of --lora_rank are left out: a resumed run reads them from --model again. A head that is tied to
    the embedding is left out too: filling the embedding fills it.
    """
    model, moments = get_state_dict(policy, optimizer)
    trained_names = {name for name, p in policy.named_parameters() if p.requires_grad}  # a tied weight once
    left_out = {name for name, _ in policy.named_parameters(remove_duplicate=False)} - trained_names
    parts = {"model": model} | ({} if ref_policy is None else {"reference": get_model_state_dict(ref_policy)})
    trained = {part: {name: x for name, x in state.items() if name not in left_out} for part, state in parts.items()}
    return trained | {"optimizer": moments}


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint. With FSDP2 every rank writes its own parts."""
    with raising_the_cause():
        dcp.save(state, checkpoint_id=folder, no_dist=not dist.is_initialized())


def read_state(folder: Path, state: dict[str, Any]) -> None:
    """Fill the tensors of `state` from a checkpoint, each on its own device."""
    with raising_the_cause():
        dcp.load(state, checkpoint_id=folder, no_dist=not dist.is_initialized())


@contextmanager
def raising_the_cause() -> Iterator[None]:
    """Raise the exception that torch wraps into its CheckpointException: Ctrl-C is a KeyboardInterrupt again.

    Without torch.distributed torch warns that it writes a checkpoint of one process, which is meant.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            yield
    except CheckpointException as failure:
        cause, _ = next(iter(failure.failures.values()))
        raise cause from failure
