"""Stages 7 and 9: sums of the metrics of a step's updates, over its tokens and over all ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor


class Sums:
    """Metrics of a step's updates: sums over the tokens of all ranks, and the largest or smallest value of some.

    A GPU's values stay there until `result` reads all of them at once: reading one would wait for the GPU.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.names: list[str] = []
        self.values: list[Tensor] = []  # float64; one tensor per call of `add`
        self.pick: dict[str, Callable[[Iterable[float]], float]] = {}  # max or min; the others are added up
        self.updates = self.tokens = 0  # of all ranks

    def add(self, metrics: dict[str, Any], maxima: Set[str] = frozenset(), minima: Set[str] = frozenset()) -> None:
        """Add numbers or tensors of one number. Of those named in `maxima` or `minima` only the extreme counts."""
        device = self.accelerator.device
        self.names += metrics
        self.values.append(torch.stack([torch.as_tensor(x, device=device).double() for x in metrics.values()]))
        self.pick |= dict.fromkeys(maxima, max) | dict.fromkeys(minima, min)

    def result(self) -> dict[str, float]:
        """Means over the step's tokens; over its updates for loss and grad_norm; counts and extremes unchanged."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for name, x in zip(self.names, torch.cat(self.values or [torch.zeros(0)]).tolist(), strict=True):
            found[name].append(x)
        ranks = gather_object([{name: self.pick.get(name, math.fsum)(xs) for name, xs in found.items()}])
        if not self.updates:
            return {}
        world, skipped = len(ranks), ranks[0]["updates_skipped"]
        # Ranks share the loss and the sums over tokens; each of them counts every update.
        divisor = {"loss": self.updates, "grad_norm": world * (self.updates - skipped or 1), "updates_skipped": world}
        result: dict[str, float] = {"tokens": self.tokens}
        for name in sorted(set().union(*ranks)):
            values = [rank[name] for rank in ranks if name in rank]
            extreme = self.pick.get(name)
            result[name] = extreme(values) if extreme else math.fsum(values) / divisor.get(name, self.tokens)
        return result
