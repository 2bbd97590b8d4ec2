"""The gradients of half-groups, from which noise_law.ratio_of estimates V_w / V_b.

The rollouts of a prompt with even numbers are one half-group, the others are the second. With the n rollouts of a half,

    h = Σ_i A_i ∇log π(y_i),   A_i = (R_i - R̄_h) / (n - 1)

is an unbiased estimate of ∇p. tools/noise_law.py explains why it takes two of them.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from torch import Tensor

from trainer.adapters import trainable
from trainer.micro_batches import micro_batches
from trainer.outcomes import Rollout
from trainer.policy import log_probs
from trainer.progress import seed_of
from trainer.settings import Config
from trainer.start import Setup

MOST_COORDINATES = 2**17  # coordinates of the gradient


class Gradients:
    """Gradients of half-groups, over the rollouts of all processes."""

    def __init__(self, config: Config, accelerator: Accelerator, setup: Setup):
        self.config, self.accelerator, self.policy, self.wrapped = config, accelerator, setup.policy, setup.wrapped
        self.every = max(1.0, sum(p.numel() for p in trainable(setup.policy)) / MOST_COORDINATES)

    def halves(self, rollouts: list[Rollout], rewards: Tensor) -> Tensor:
        """Compute h of both half-groups of a prompt, (2, coordinates).

        rollouts: of the prompt, on this process. rewards: (N,), of all processes.
        """
        n = len(rewards) // 2
        both = torch.stack([rewards[: 2 * n : 2], rewards[1 : 2 * n : 2]])  # (2, n)
        advantage = ((both - both.mean(-1, keepdim=True)) / (n - 1)).tolist()
        group = [r for r in rollouts if r.number < 2 * n]
        for r in group:
            r.advantage = advantage[r.number % 2][r.number // 2]
        return torch.stack([self.gradient([r for r in group if r.number % 2 == half]) for half in (0, 1)])

    def gradient(self, rollouts: list[Rollout]) -> Tensor:
        """Compute Σ_i A_i ∇log π(y_i) over a half-group on all processes. rollouts: of this process."""
        self.wrapped.train(self.config.gradient_checkpointing)
        budget = self.config.max_tokens_per_micro_batch
        batches = micro_batches(rollouts, budget, self.policy.share_prompts, self.accelerator)
        for i, micro_batch in enumerate(batches):
            with nullcontext() if i + 1 == len(batches) else self.accelerator.no_sync(self.wrapped):
                logp, _ = log_probs(self.wrapped, micro_batch, self.config.temperature, self.accelerator)
                loss = (micro_batch.advantages.repeat_interleave(micro_batch.lengths) * logp).sum()
                # The ranks' gradients are averaged, and we want their sum
                (loss * self.accelerator.num_processes).backward()
        drawn = [self.coordinates(i, p.grad) for i, p in enumerate(self.wrapped.parameters()) if p.grad is not None]
        self.wrapped.zero_grad()
        return torch.cat(drawn).cpu()

    def coordinates(self, index: int, gradient: Tensor) -> Tensor:
        """Draw coordinates of the gradient of parameter `index`, scaled so that inner products stay unbiased."""
        flat = gradient.flatten().float()
        count = math.ceil(len(flat) / self.every)
        if count == len(flat):
            return flat
        generator = torch.Generator().manual_seed(seed_of("coordinates", index))
        drawn = torch.randint(len(flat), (count,), generator=generator).to(flat.device)
        return flat[drawn] * math.sqrt(len(flat) / count)
