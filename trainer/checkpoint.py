"""A run's checkpoints: weights, optimizer, reference, cursor, progress and random states. None is ever half there."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


class Checkpoints:
    """The folder runs/NAME/checkpoints: step_00000010, ..."""

    def __init__(self, run: Path, accelerator: Accelerator):
        self.folder, self.accelerator = run / "checkpoints", accelerator
        self.saved = run / "saved"  # there since the first checkpoint was

    def all(self) -> list[Path]:
        return sorted(self.folder.glob("step_" + "[0-9]" * 8))

    def newest(self) -> Path | None:
        """The newest checkpoint; None before the first. Raises ValueError where all of them are gone."""
        if not self.all() and self.saved.exists():
            raise ValueError(f"--resume: the checkpoints of {self.folder.parent} are gone; --overwrite starts it over")
        return next(reversed(self.all()), None)

    def load(self, checkpoint: Path) -> None:
        """Go back to a checkpoint. Raises ValueError where it cannot be read."""
        try:
            self.accelerator.load_state(checkpoint)
        except Exception as failure:  # torch, pickle and the disk have many kinds
            reason = " ".join(str(failure).split())[:300]
            raise ValueError(
                f"--resume: {checkpoint} cannot be read ({type(failure).__name__}: {reason}). Delete this folder, and "
                "the run goes on after the checkpoint before it"
            ) from failure

    def save(self, step: int, keep: int) -> None:
        """All of it, written aside, then renamed. The newest `keep` stay."""
        aside, final = self.folder / "unfinished", self.folder / f"step_{step:08d}"
        if self.accelerator.is_main_process:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        try:
            self.accelerator.save_state(str(aside), safe_serialization=False)
        except RuntimeError as failure:  # torch's writer has no OSError
            if not any(word in str(failure) for word in ("PytorchStreamWriter", "inline_container")):
                raise
            raise OSError(errno.EIO, "the disk took no more of it", str(aside)) from failure
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            onto_disk(aside)
            os.replace(aside, final)
            sync(final.parent)
            self.saved.touch()
            for old in self.all()[:-keep]:
                discard(old)


def onto_disk(folder: Path) -> None:
    """Have the disk hold all of a folder, before it gets its name."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def sync(path: Path) -> None:
    """Have the disk hold a file, or a folder's list of names. Windows can do neither from an open for reading."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def discard(folder: Path) -> None:
    """Delete a checkpoint, which loses its name first: killed half-way, there is no half of one."""
    nameless = folder.with_name("discarded")
    shutil.rmtree(nameless, ignore_errors=True)
    if folder.exists():
        os.replace(folder, nameless)
        shutil.rmtree(nameless)


class Whole:
    """A model's weights for a checkpoint, whole: under FSDP2 each process has only its part of them."""

    def __init__(self, model: torch.nn.Module):
        self.model = model

    def state_dict(self) -> dict[str, Tensor]:
        """Whole tensors, gathered one at a time: the main process has them, on the CPU, and the others have none.

        All processes must call it, since each of them has a part. A model that is not sharded is given as it is.
        """
        main, whole = PartialState().is_main_process, {}
        for name, x in self.model.state_dict().items():
            if isinstance(x, DTensor):
                x = x.full_tensor()
                x = x.cpu() if main else None
            if main:
                whole[name] = x
        return whole

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, x in self.model.state_dict().items():
            whole = state[name].to(x.device)
            x.copy_(distribute_tensor(whole, x.device_mesh, x.placements) if isinstance(x, DTensor) else whole)
