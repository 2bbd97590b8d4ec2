"""A step's kept rollouts as tensors, cut into mini-batches and micro-batches (train.py, stages 5 to 7).

A mini-batch is what one optimizer step sees (section 4.2.1); a micro-batch is what one forward pass sees, and changes
no number but for the order of float sums.

    S         rollouts of this process
    L, R      tokens of the longest prompt + response, of the longest response
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from rollout import Group
from trainer.policy import SHARE_FROM, Policy
from trainer.processes import idle, passes
from trainer.settings import Config


@dataclass
class Batch:
    """One process's kept rollouts of a step. Rows are rollouts; `engine_logp` and the like are (S, R)."""

    tokens: Tensor  # (S, L) prompt then response, padded on the right
    prompt_lengths: Tensor  # (S,)
    response_lengths: Tensor  # (S,)
    engine_logp: Tensor  # (S, R), R the longest response
    advantages: Tensor  # (S,)
    prompts: Tensor  # (S,) the number of the row's prompt among this process's groups
    mini_batch: Tensor  # (S,) the number of the row's mini-batch
    old_logp: Tensor = None  # type: ignore[assignment]  # (S, R), of stage 6
    ref_logp: Tensor | None = None
    share: bool = False  # compute a prompt once for the rows of a micro-batch

    @staticmethod
    def of(groups: list[Group], advantages: Tensor, device, mini_batch: Tensor | None = None) -> Batch:
        """Of a process's groups, or of its parts of them. mini_batch: each row's number; None: all rows are in 0."""
        responses = [response for group in groups for response in group.responses]
        prompts = torch.tensor([i for i, group in enumerate(groups) for _ in group.responses], dtype=torch.long)
        prompt_lengths = torch.tensor([len(group.prompt) for group in groups], dtype=torch.long)[prompts]
        response_lengths = torch.tensor([len(response) for response in responses], dtype=torch.long)
        whole = prompt_lengths + response_lengths
        width, longest = (int(whole.max()), int(response_lengths.max())) if len(whole) else (0, 0)
        column = torch.arange(width)
        tokens = torch.zeros(len(whole), width, dtype=torch.long)
        tokens[column < whole[:, None]] = torch.tensor(
            [t for group in groups for response in group.responses for t in (*group.prompt, *response)],
            dtype=torch.long,
        )
        engine_logp = torch.zeros(len(whole), longest)
        engine_logp[torch.arange(longest) < response_lengths[:, None]] = torch.tensor(
            [x for group in groups for logprobs in group.logprobs for x in logprobs], dtype=torch.float32
        )
        mini_batch = torch.zeros_like(prompts) if mini_batch is None else mini_batch
        parts = (tokens, prompt_lengths, response_lengths, engine_logp, advantages.flatten(), prompts, mini_batch)
        return Batch(*[x.to(device) for x in parts])  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, rows: Tensor) -> Batch:
        """Some of its rows."""
        tensors = {f.name: x[rows] for f in fields(self) if isinstance(x := getattr(self, f.name), Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]

    def inputs(self, rows: Tensor, temperature: float) -> tuple:
        """What `Policy` takes for these rows, cut to the longest of them."""
        width = int((self.prompt_lengths[rows] + self.response_lengths[rows]).max())
        prompts = self.prompts[rows] if self.share else None
        return self.tokens[rows, :width], self.prompt_lengths[rows], self.response_lengths[rows], temperature, prompts

    def mini_batches(self, count: int) -> list[Tensor]:
        """This process's rows of each of the step's mini-batches; of one there may be none here."""
        return [(self.mini_batch == u).nonzero().squeeze(1) for u in range(count)]

    def inside(self, rows: Tensor) -> Tensor:
        """(rows, R) bool: which entries of an (S, R) tensor are tokens."""
        column = torch.arange(self.engine_logp.shape[1], device=self.tokens.device)
        return column < self.response_lengths[rows, None]

    def micro_batches(self, rows: Tensor, budget: int) -> list[Tensor]:
        """Split rows, longest first, so that rows x width stays within `budget` tokens (one row at least).

        With shared prompts: prompt by prompt. A part counts each of its prompts once.
        """
        lengths = (self.prompt_lengths + self.response_lengths)[rows]
        order = torch.argsort(lengths, descending=True, stable=True)
        if self.share:
            return self._grouped(rows[order], budget)
        rows, parts, longest = rows[order], [], lengths[order].tolist()
        while len(rows):
            count = max(1, budget // longest[0])
            parts.append(rows[:count])
            rows, longest = rows[count:], longest[count:]
        return parts

    def _grouped(self, rows: Tensor, budget: int) -> list[Tensor]:
        """`micro_batches` with shared prompts: the rows of a prompt together, in the order they come in."""
        rows = rows[torch.argsort(self.prompts[rows], stable=True)]
        sizes, used, last = [], budget, None
        lengths = (x[rows].tolist() for x in (self.prompts, self.prompt_lengths, self.response_lengths))
        for prompt, prompt_length, response_length in zip(*lengths, strict=True):
            if used + response_length + (prompt != last) * prompt_length > budget:
                sizes.append(0)
                used, last = 0, None
            used += response_length + (prompt != last) * prompt_length
            sizes[-1] += 1
            last = prompt
        return list(rows.split(sizes)) if sizes else []

    def share_prompts(self, policy: Policy, config: Config, parts: int) -> None:
        """Decide whether prompts are computed once for the rows of a micro-batch. parts: mini-batches of a prompt."""
        self.share = policy.shares and self.saving(parts) >= SHARE_FROM[config.share_prefix]

    def saving(self, updates: int) -> float:
        """Tokens without sharing over tokens with it, if a prompt is computed once in each of so many mini-batches.

        A lower bound: beginnings that responses have in common are computed once too, and not counted here.
        """
        rollouts = torch.bincount(self.prompts)[self.prompts]  # (S,) of the row's prompt
        prompts = self.prompt_lengths * (updates / rollouts).clamp(max=1)
        whole = self.prompt_lengths + self.response_lengths
        return float(whole.sum() / (prompts + self.response_lengths).sum().clamp(min=1))

    def score_before_update(self, policy: Policy, reference, config: Config, accelerator) -> float:
        """Stage 6: log π_old and log π_ref, all rollouts of a prompt together. Returns the sum of π_old's entropies."""
        self.share_prompts(policy, config, 1)
        budget = config.max_tokens_per_micro_batch
        self.old_logp, entropy = self.score(policy, config.temperature, budget, accelerator)
        if reference is not None:
            self.ref_logp, _ = self.score(reference, config.temperature, budget, accelerator)
            if hasattr(reference, "reshard"):  # FSDP2 keeps what it gathered last: a reference has no backward pass
                reference.reshard()
        return entropy

    @torch.no_grad()
    def score(self, policy, temperature: float, budget: int, accelerator=None) -> tuple[Tensor, float]:
        """Log-probs (S, R) of every response token under `policy`, and the sum of its entropies.

        accelerator: whose precision and whose other processes count; None: float32, this process alone.
        """
        logp, entropy = torch.zeros_like(self.engine_logp), 0.0
        parts = self.micro_batches(torch.arange(len(self), device=self.tokens.device), budget)
        rounds = passes(len(parts), accelerator) if accelerator else len(parts)
        for _ in range(rounds - len(parts)):
            idle(policy, self.tokens.device)
        for rows in parts:
            with accelerator.autocast() if accelerator else nullcontext():
                flat, h = policy(*self.inputs(rows, temperature))
            part = torch.zeros(len(rows), logp.shape[1], device=logp.device)
            part[self.inside(rows)] = flat.float()
            logp[rows] = part
            entropy += h.sum().item()
        return logp, entropy
