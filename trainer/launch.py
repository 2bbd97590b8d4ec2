"""How a run is launched: Accelerate, the precision of forward passes, and whether FSDP is asked for."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs, parse_flag_from_env

from trainer.process import Refusal, refusing
from trainer.settings import Config


def start_accelerator(config: Config) -> Accelerator:
    """Start Accelerate in the run's precision, and fill in --precision.

    Collectives time out after 3 hours: a rank may generate or write a checkpoint that long.
    """
    config.precision = choose_precision(config)
    options: list[Any] = [
        InitProcessGroupKwargs(timeout=timedelta(hours=3)),
        DistributedDataParallelKwargs(gradient_as_bucket_view=True),  # else DDP holds the gradients twice
    ]
    mixed_precision = "bf16" if config.precision == "bfloat16" else "no"
    with refusing("Accelerate cannot start: "):
        accelerator = Accelerator(mixed_precision=mixed_precision, kwargs_handlers=options)
    started = int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1
    if started > 1 and accelerator.num_processes == 1:
        raise Refusal(
            f"{started} processes were started, and Accelerate does not join them: on a CPU set "
            "ACCELERATE_USE_CPU=true, or start with accelerate launch"
        )
    if accelerator.distributed_type.value not in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP"):
        raise Refusal(f"Accelerate is set to {accelerator.distributed_type.value}: use one process, DDP or FSDP2")
    if accelerator.gradient_accumulation_steps != 1:
        raise Refusal(
            "gradient accumulation is set in Accelerate: set it to 1, --max_tokens_per_micro_batch replaces it"
        )
    # vLLM does this when it is imported. Without it, the attention of a run would depend on whether vLLM is installed.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return accelerator


def choose_precision(config: Config) -> str:
    """--precision; else bfloat16 if Accelerate asks for it or a GPU has it natively, float32 elsewhere.

    Accelerate's "no" asks for nothing: `accelerate launch` sets it unless the user named a --mixed_precision.
    """
    asked = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if asked not in ("no", "bf16"):
        raise Refusal(f"--mixed_precision {asked}: this loop needs bf16 or no")
    if asked == "bf16" and config.precision == "float32":
        raise Refusal("Accelerate is set to --mixed_precision bf16, and the run to --precision float32: change one")
    on_a_gpu = torch.cuda.is_available() and not parse_flag_from_env("ACCELERATE_USE_CPU")
    native = on_a_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    return config.precision or ("bfloat16" if asked == "bf16" or native else "float32")


def fsdp_requested() -> bool:
    """Whether Accelerate's configuration asks for FSDP; every configured version means FSDP2 here."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")
