"""Does a run fit a card? Its memory by part, from the model's config alone, and the flags to type.

    python -m tools.fit                         the tables of docs/memory.md; about three minutes
    python -m tools.fit --model MODEL --gib 24  a model on one card of 24 GiB, and on eight with DDP and with FSDP2
    python -m tools.fit --lora_rank 16          the same with train.py's settings --lora_rank R or --offload

An update of train.py runs on fake tensors, which have shapes and no memory. Every allocation is counted; each response
is computed with its prompt. tests/test_tools_fit.py compares the count with the memory of a real process, in float32.
A CPU makes a float32 copy of the output head, which a GPU does not need; the count has it. The optimizer takes one
weight at a time on a GPU too (trainer/start.py). `RESERVE_GIB` and `GRAPHS_GIB` are added for what is not counted. The
figures for DDP and FSDP2 follow from formulas (`needs`) and were not measured on GPUs; a test counts the start of
FSDP2 on two processes. With --lora_rank there is no figure for FSDP2, which --offload refuses.
"""

from __future__ import annotations

import trainer

if __name__ == "__main__":
    trainer.prepare()  # sets environment variables that torch reads when it is imported

import argparse
import weakref
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, Qwen2Config

from engines.rounding import dither_under_autocast
from trainer.adapters import add_adapters, trainable
from trainer.exits import Refusal, explained
from trainer.head import MAX_LOGITS, chunked_logprobs
from trainer.policy import Policy
from trainer.sharding import allocate_moments

GIB = 2**30
RESERVE_GIB = 3.0  # CUDA context, NCCL, fragmentation: an allowance, not measured
# CUDA graphs, which vLLM keeps while it sleeps: an allowance, not measured here. vLLM's developers report 0.9 GiB in
# use on a GPU of 80 GB while a model of 2.3 GiB sleeps, with the CUDA context.
GRAPHS_GIB = 1.0
ROW = 1024  # tokens of a row in the count: memory is proportional to the tokens, however long a row is
# Assumed memory as CUDA reports it. Cards of one size differ: an RTX 4090 has about 23.6
CARDS_GIB = {"16 GB": 15.5, "24 GB": 22.0, "40 GB": 39.5, "80 GB": 79.0}
SIZES = 32768, 16384, 8192, 4096, 2048  # of --max_tokens_per_micro_batch; the first is the default
LEAST_CACHE_GIB = 1.0  # of vLLM's share, for keys and values


def qwen(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocabulary: int, tied: bool):
    return Qwen2Config(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocabulary, tie_word_embeddings=tied,
    )  # fmt: skip


QWEN = {  # Qwen2.5-Instruct; the paper's 1.5B model has the architecture of the second
    "0.5B": qwen(896, 4864, 24, 14, 2, 151_936, True),
    "1.5B": qwen(1536, 8960, 28, 12, 2, 151_936, True),
    "3B": qwen(2048, 11_008, 36, 16, 2, 151_936, True),
    "7B": qwen(3584, 18_944, 28, 28, 4, 152_064, False),
}


# ------------------------------------------------------------------------------------------------------- the count


class Allocations(TorchDispatchMode):
    """Counts the bytes of all storages that exist, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.add, result)
        return result

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address not in self.seen:
            self.seen.add(address)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self.remove, address, size)

    def remove(self, address: int, size: int) -> None:
        self.seen.discard(address)
        self.live -= size


@dataclass
class Count:
    """Bytes in one process. The gradients take as much as the trained weights, and so does the reference."""

    weights: int
    trainable: int  # of the weights: all of them, or the adapters of --lora_rank
    largest: int  # the largest trained weight
    moments: int
    score: int  # peak of stage 6 beyond weights, moments and reference
    backward: int  # peak of an update beyond these three: gradients, activations, rounded weights
    step: int  # peak of the optimizer step beyond them: gradients, temporary tensors of one weight

    @property
    def update(self) -> int:
        return max(self.backward, self.step)


def count_update(
    config: PretrainedConfig, tokens: int, bfloat16: bool = True, checkpointing: bool = False, lora_rank: int = 0
) -> Count:
    """Count a step's stages 6 and 7 with micro-batches of `tokens` tokens, two for each update."""
    counted = Allocations()
    # transformers searches the position ids for packed rows. It cannot read fake ones, and these rows are not packed.
    not_packed = mock.patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None)
    # `dithered` works on pieces of 4 MiB, thousands for a large model, and leaves one tensor of this size.
    in_one_piece = mock.patch("engines.rounding.round_part", lambda weight, name, first: weight.bfloat16())
    with FakeTensorMode(), not_packed, in_one_piece, counted:
        dtype = torch.bfloat16 if lora_rank and bfloat16 else torch.float32
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        if lora_rank:
            add_adapters(model, lora_rank, 1.0, dtype)
        weights = sum(p.nbytes for p in model.parameters())
        sizes = [p.nbytes for p in trainable(model)]
        policy = Policy(model).train(checkpointing)
        if bfloat16:
            dither_under_autocast(model)
        if checkpointing:
            model.gradient_checkpointing_enable()
        before = counted.live
        optimizer = torch.optim.AdamW(trainable(policy), foreach=False)
        allocate_moments(optimizer)
        static = counted.peak = counted.live
        row = min(ROW, tokens)
        responses = torch.zeros(tokens // row, row - 1, dtype=torch.long)
        prompt, length, of = torch.zeros(1, 1).long(), torch.ones(1).long(), torch.zeros(len(responses)).long()

        def total() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                hidden = policy.in_whole_rows(prompt, length, of, responses).flatten(0, 1)
                head = model.get_output_embeddings()
                bias, name = getattr(head, "bias", None), getattr(head, "dithered_names", {}).get("weight")
                logp, _ = chunked_logprobs(hidden, head.weight, responses.flatten(), 1.0, bias, name=name)
                return logp.sum()

        with torch.no_grad():
            total()
        score, counted.peak = counted.peak - static, counted.live
        total().backward()
        counted.peak = counted.live
        total().backward()  # a later micro-batch of the update: all gradients exist beside its activations
        backward, counted.peak = counted.peak - static, counted.live
        optimizer.step()
    return Count(weights, sum(sizes), max(sizes), static - before, score, backward, counted.peak - static)


# --------------------------------------------------------------------------------------------------------- the fit


@dataclass
class Needs:
    """GiB of a run on each card: on one card, with DDP, or with FSDP2."""

    weights: float
    gradients: float
    moments: float  # that stay on the card: none with --offload
    reference: float  # the weights of its own that stay on the card: none with --offload
    start: float  # peak before the moments are allocated: weights, reference, and with FSDP2 a module that is whole
    activations: float  # per 1,000 tokens of a micro-batch
    checkpointed: float  # the same with --gradient_checkpointing
    engine: float  # vLLM's weights in bfloat16
    update: dict[tuple[int, bool], float]  # (tokens, checkpointing) -> peak of stages 6 and 7 beyond what stays
    keeps_gradients: bool = False  # DDP's buckets are the gradients, and stay

    def held(self) -> float:
        """What stays on the card during the rollouts."""
        return self.weights + self.moments + self.reference + self.keeps_gradients * self.gradients

    def peak(self, tokens: int, checkpointing: bool) -> float:
        """The most that the trainer takes, while it scores or updates."""
        return self.weights + self.moments + self.reference + self.update[tokens, checkpointing]


ONE, DDP, FSDP2 = "1", "8, DDP", "8, FSDP2"  # cards


def needs(config: PretrainedConfig, lora_rank: int = 0, offload: bool = False) -> dict[str, Needs]:
    """Count updates of several sizes. Returns cards -> memory.

    With `offload` moments and reference are on the card for a while: the moments of one weight in the optimizer step,
    the reference in stage 6, where DDP keeps the memory of the gradients too.

    FSDP2 divides weights, gradients, moments and reference. It gathers the embedding, the head and one layer at a time,
    and their gradients, in float32; one of them is rounded to bfloat16, and two chunks of logits exist at the same
    time. At the start, the embedding and the head, or one layer, are whole beside the parts.
    """
    counts = {
        (tokens, on): count_update(config, tokens, checkpointing=on, lora_rank=lora_rank)
        for tokens in SIZES
        for on in (False, True)
    }
    largest, half = SIZES[0], SIZES[1]
    slope = {on: (counts[largest, on].update - counts[half, on].update) / (largest - half) for on in (False, True)}
    one = counts[largest, False]
    text = config.get_text_config()
    ends = text.vocab_size * text.hidden_size * (1 if text.tie_word_embeddings else 2)
    layer = (one.weights // 4 - ends) / text.num_hidden_layers
    found = {}
    for cards, ranks in ((ONE, 1), (DDP, 1), (FSDP2, 8)):  # ranks that share the weights
        if cards == FSDP2 and (lora_rank or offload):
            continue
        head = text.vocab_size * text.hidden_size
        shared = one.weights / ranks + 8 * (ends + layer) + 2 * max(head, layer) + 8 * MAX_LOGITS
        update = {key: float(x.update) for key, x in counts.items()}
        if cards == FSDP2:
            update = {key: shared + slope[key[1]] * key[0] for key in counts}
        if offload:
            kept = one.trainable if cards == DDP else 0
            update = {
                key: max(x.backward, x.step + 2 * x.largest, x.score + x.trainable + kept) for key, x in counts.items()
            }
        whole = 4 * max(ends, layer) if cards == FSDP2 else 0
        stays = 0 if offload else 1 / ranks
        found[cards] = Needs(
            weights=one.weights / ranks / GIB, gradients=one.trainable / ranks / GIB, moments=stays * one.moments / GIB,
            reference=stays * one.trainable / GIB, start=((one.weights + one.trainable) / ranks + whole) / GIB,
            activations=1000 * slope[False] / GIB, checkpointed=1000 * slope[True] / GIB,
            engine=(one.weights - one.trainable if lora_rank else one.weights / 2) / GIB,
            update={key: x / GIB for key, x in update.items()},
            keeps_gradients=cards == DDP,
        )  # fmt: skip
    return found


def flags(n: Needs, card_gib: float, longest: int) -> str:
    """The flags that make a run fit, or why it does not. longest: tokens of a prompt and its response."""
    room = card_gib - RESERVE_GIB - GRAPHS_GIB
    if n.start > room:
        return f"no: the start needs {n.start:.1f} GiB"
    share = min(0.5, int(20 * (room - n.held()) / card_gib) / 20)
    if share * card_gib < n.engine + LEAST_CACHE_GIB:
        return f"no: {n.held():.1f} GiB stay during the rollouts, and vLLM needs {n.engine + LEAST_CACHE_GIB:.1f}"
    for tokens, checkpointing in sorted(n.update, key=lambda key: (key[1], -key[0])):
        if tokens >= longest and n.peak(tokens, checkpointing) <= room:
            found = [f"--gpu_memory_utilization {share:g}"] if share < 0.5 else []
            found += [f"--max_tokens_per_micro_batch {tokens}"] if tokens != SIZES[0] else []
            return " ".join([*found, *["--gradient_checkpointing"] * checkpointing]) or "no flag needed"
    return f"no: an update needs {min(n.peak(*key) for key in n.update):.1f} GiB"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", help="a folder or a hub name; only its config is read [four of Qwen2.5]")
    parser.add_argument("--gib", type=float, help="memory of a card, as CUDA reports it [15.5, 22, 39.5 and 79]")
    parser.add_argument("--longest", type=int, default=2048, help="tokens of a prompt and its response [2048]")
    parser.add_argument("--lora_rank", type=int, default=0, help="as of train.py [0]")
    parser.add_argument("--offload", action="store_true", help="as of train.py")
    args = parser.parse_args(argv)
    if args.offload and args.lora_rank:
        raise Refusal("--offload saves nothing with --lora_rank: leave one of them out")
    models = {Path(args.model).name: AutoConfig.from_pretrained(args.model)} if args.model else QWEN
    cards = {f"{args.gib:g} GiB": args.gib} if args.gib else CARDS_GIB
    found = {
        (name, w): n for name, config in models.items() for w, n in needs(config, args.lora_rank, args.offload).items()
    }

    print("GiB on each card; activations for 1,000 tokens of a micro-batch, in brackets with --gradient_checkpointing")
    print(f"{'model':>20}    cards  weights  gradients  moments  reference    start   activations  vLLM's weights")
    for (name, w), n in found.items():
        sizes = f"{n.weights:9.1f}{n.gradients:11.1f}{n.moments:9.1f}{n.reference:11.1f}{n.start:9.1f}"
        sizes += f"{n.activations:7.2f} ({n.checkpointed:.2f})"
        print(f"{name[:20]:>20}{w:>9}{sizes}{n.engine:16.1f}")
    print(f"\nFlags for up to {args.longest:,} tokens of prompt and response. {RESERVE_GIB:g} GiB of a card stay free,")
    print(f"and {GRAPHS_GIB:g} GiB for the CUDA graphs of a sleeping vLLM")
    for (name, w), n in found.items():
        for card, gib in cards.items():
            print(f"{name[:20]:>20}{w:>9} x {card:7} {flags(n, gib, args.longest)}")


if __name__ == "__main__":
    with explained(code=2):
        main()
