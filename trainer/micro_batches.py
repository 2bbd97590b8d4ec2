"""Stages 6 and 7: rollouts cut into micro-batches, as tensors. loss.py has the layout (T,)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from loss import Tokens
from trainer.outcomes import Rollout
from verify import Problem

# With shared prompts a response gets a copy of its prompt's keys and values. A copied token counts as 1/8 of a computed
# one. Its memory was 0.01 to 0.11 of that in Llama, Qwen2 and GPT-2.
COPY = 1 / 8
NOTHING = torch.zeros(0, dtype=torch.int32)
EMPTY = Rollout(Problem("", "", None), 0, 0, torch.zeros(1, dtype=torch.int32), NOTHING, NOTHING, False)


@dataclass
class MicroBatch:
    """The rollouts of one forward pass, and their tensors on the accelerator's device; T tokens, laid end to end.

    Equal responses to one prompt are computed once: 512 short answers have many.
    """

    rollouts: list[Rollout]
    inputs: tuple[Tensor, ...]  # of Policy.forward: distinct prompts and responses
    computed: Tensor  # (T,) index into the K computed numbers, which equal responses share
    engine_logp: Tensor  # (T,) log π_engine
    advantages: Tensor  # (S,) stage 5, one for each rollout
    lengths: Tensor  # (S,) response tokens of each rollout
    old_logp: Tensor | None = None  # (T,) stage 6: log π_old
    ref_logp: Tensor | None = None  # (T,) stage 6: log π_ref

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], device: torch.device) -> MicroBatch:
        """Build the tensors on the device. Without rollouts they are one prompt without a response.

        A rank with fewer micro-batches than the others has such empty ones, so that all run the model equally often.
        """
        keys = [(r.prompt_index, r.response.numpy().tobytes()) for r in rollouts]
        distinct = list(dict(zip(keys, rollouts, strict=True)).values()) or [EMPTY]
        row = {key: i for i, key in enumerate(dict.fromkeys(keys))}  # row in `responses`
        prompts = {r.prompt_index: r.prompt for r in distinct}
        prompt_row = {index: g for g, index in enumerate(prompts)}
        lengths = [len(r.response) for r in distinct]
        responses = pad_sequence([r.response for r in distinct], batch_first=True).long()
        # At least two columns: then `after_shared_prompts` runs the model twice on every rank, and FSDP2 gathers twice.
        responses = pad(responses, (0, max(0, 2 - responses.shape[1])))
        inputs = (
            pad_sequence(list(prompts.values()), batch_first=True, padding_side="left").long(),
            torch.tensor([len(prompt) for prompt in prompts.values()]),
            torch.tensor([prompt_row[r.prompt_index] for r in distinct]),
            responses,
            torch.tensor(lengths),
        )
        tokens = torch.arange(sum(lengths)).split(lengths)  # of each distinct response
        return cls(
            list(rollouts),
            tuple(x.to(device) for x in inputs),
            torch.cat([tokens[row[key]] for key in keys] or [tokens[0]]).to(device),
            torch.cat([r.engine_logp for r in rollouts] or [NOTHING]).to(device),
            torch.tensor([r.advantage for r in rollouts], dtype=torch.float32, device=device),
            torch.tensor([len(r.response) for r in rollouts], dtype=torch.long, device=device),
        )

    def tokens(self, logp: Tensor) -> Tokens:
        """What the loss sees, after stage 6. logp: (T,) log π_θ."""
        assert self.old_logp is not None, "stage 6 comes first"
        return Tokens(logp, self.old_logp, self.engine_logp, self.ref_logp, self.advantages, self.lengths)


def cut(rollouts: Iterable[Any], budget: int, share_prompts: bool) -> list[list]:
    """Cut rollouts into lists of at most `budget` tokens with padding: the longest first, so padding is rare.

    With shared prompts the rollouts of a prompt stay together. A list then counts each of its prompts once, and for
    each rollout the copy of its prompt's keys and values. Equal responses count each time, though computed once.
    """
    lists: list[list] = [[]]
    prompts: set[int] = set()  # of the last list
    longest_prompt = longest_response = 0

    def order(r) -> tuple[int, int, int]:
        return r.prompt_index if share_prompts else 0, -len(r.prompt) - len(r.response), r.number

    for r in sorted(rollouts, key=order):
        longest_prompt, longest_response = max(longest_prompt, len(r.prompt)), max(longest_response, len(r.response))
        rows, groups = len(lists[-1]) + 1, len(prompts) + (r.prompt_index not in prompts)
        prompts_computed = groups + COPY * rows if share_prompts else rows
        size = prompts_computed * longest_prompt + rows * longest_response
        if size > budget and lists[-1]:
            lists.append([])
            prompts, longest_prompt, longest_response = set(), len(r.prompt), len(r.response)
        lists[-1].append(r)
        prompts.add(r.prompt_index)
    return lists


def micro_batches(
    rollouts: list[Rollout], budget: int, share_prompts: bool, accelerator: Accelerator
) -> list[MicroBatch]:
    """The micro-batches of this rank's rollouts, as `cut` makes them. Every rank gets as many; some are empty."""
    lists = cut(rollouts, budget, share_prompts)
    most = int(accelerator.gather(torch.tensor([len(lists)], device=accelerator.device)).max())
    lists += [[] for _ in range(most - len(lists))]
    return [MicroBatch.of(part, accelerator.device) for part in lists]
