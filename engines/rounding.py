"""Round float32 weights to bfloat16 so that a step of the policy is not lost.

A bfloat16 number has 8 significant bits: near 0.02 the next one is 1.2e-4 away, so a weight must move by up to 6e-5
before rounding to the nearest gives another number. A step of AdamW moves it by about the learning rate, 1e-6. So a
copy that is rounded to the nearest hardly sees the steps. `dithered` adds a fraction of an ulp that is fixed for each
position of a weight, then cuts:

    dithered(w) = sign(w) · cut(|w| + u · ulp(w))      u in [0, 1), fixed      E_u[dithered(w)] = w

ulp(w): the distance between the two bfloat16 numbers around |w|. A weight that is a bfloat16 number stays as it is. A
step of a tenth of an ulp changes a tenth of the weights, each of them by one ulp, and they stay changed until the
policy moves on: the copy follows the policy in the mean, and it is the same at every sync and on every rank.

vLLM's copy of the weights is rounded this way, and so are the weights of the trainer's own forward pass in bfloat16
(trainer/autocast.py). Both must round alike: if only one of them sees the steps, the two are different policies.
Stochastic rounding, with a new u at each rounding, is known from optimizers with bfloat16 weights (llm.c, torchao).
"""

import functools
import math
import zlib

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

PERIOD = 2**20  # u repeats after so many positions


@functools.cache
def dither_fractions(device: torch.device) -> Tensor:
    """The fractions u of two periods in units of 1 / 65,536, int32. A period has each of the 65,536 values 16 times."""
    order = torch.randperm(PERIOD, generator=torch.Generator().manual_seed(0))
    return (order * 2**16 // PERIOD).int().repeat(2).to(device)


@torch.no_grad()
def dithered(weight: Tensor, name: str) -> Tensor:
    """Round a weight to bfloat16 without bias; u depends on the weight's name and on the position in it.

    A float32 number has 32 bits, and its upper 16 are the bfloat16 number below it in magnitude. To add u · ulp is to
    add u · 65,536 to the lower 16 bits. A part of an FSDP2 weight is rounded as this part of the whole weight. A
    weight in bfloat16 is returned as it is.
    """
    if weight.dtype == torch.bfloat16:
        return weight
    if isinstance(weight, DTensor):
        rank, ranks = weight.device_mesh.get_local_rank(), weight.device_mesh.size()
        offset = rank * math.ceil(len(weight) / ranks) * weight[:1].numel() if len(weight) else 0
        local = round_part(weight.to_local(), name, offset)
        return DTensor.from_local(
            local, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
        )
    return round_part(weight, name, 0)


def round_part(weight: Tensor, name: str, offset: int) -> Tensor:
    """Round a weight, or the part of it that starts at position `offset` of the whole weight."""
    bits = weight.float().reshape(-1).view(torch.int32)
    rounded = torch.empty(weight.shape, dtype=torch.bfloat16, device=weight.device)
    start = (zlib.crc32(name.encode()) + offset) % PERIOD
    u = dither_fractions(weight.device)[start : start + PERIOD]
    for chunk, out in zip(bits.split(PERIOD), rounded.view(-1).split(PERIOD), strict=True):
        out.copy_((chunk + u[: len(chunk)]).view(torch.bfloat16)[1::2])  # the upper halves: numbers are little-endian
    return rounded
