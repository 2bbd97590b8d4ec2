"""What the tests do on two ranks: one pair of processes does all of it, since its start takes longer than the work.

The fixture `two_ranks` starts it:  torchrun --nproc_per_node 2 tests/ranks.py FOLDER runs start shards
"""

import gc
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from helpers import arguments, random_policy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig

import train
from engines.model import whole_tensors
from trainer.settings import Config
from trainer.start import build_models
from trainer.update_memory import Allocations

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
FSDP2 = {"ACCELERATE_USE_FSDP": "true"}
# A step whose ranks differ: few rollouts, small micro-batches, some ranks without an informative prompt.
UNEVEN = {
    "rollouts_per_prompt": 2, "prompts_per_step": 3, "refill": 20, "max_tokens_per_micro_batch": 40, "eval_samples": 1,
}  # fmt: skip
LORA = {"lora_rank": 4, "learning_rate": 1e-3}


def runs(folder: Path) -> None:
    """Runs of train.py. Two with FSDP2 end after a step and are resumed."""
    files = {"data": os.environ["PROBLEMS"], "eval_data": os.environ["EVAL_PROBLEMS"]}  # the same for both ranks
    for sharded, name, changes in (
        (False, "ddp", {}),
        (False, "offload", {"offload": True}),
        (False, "lora_ddp", LORA),
        (True, "fsdp2", {"max_steps": 1}),
        (True, "fsdp2", {"resume": True}),
        (True, "lora_fsdp2", LORA | {"max_steps": 1}),
        (True, "lora_fsdp2", LORA | {"resume": True}),
        (True, "lora_bf16", LORA | {"precision": "bfloat16"}),
    ):
        os.environ["ACCELERATE_USE_FSDP"] = str(sharded).lower()
        AcceleratorState._reset_state()
        config, origins = train.read_settings("", arguments(folder, **files | UNEVEN | {"name": name} | changes))
        accelerator = train.start_accelerator(config)
        with mock.patch("trainer.pictures.draw_curves"):
            train.train(config, accelerator, train.set_up(config, accelerator, origins))
        gc.collect()  # releases the lock of the folder


class Memory(Allocations):
    def add(self, tensor):
        if not isinstance(tensor, DTensor) and not tensor.is_meta:  # the part of a DTensor is a tensor of its own
            super().add(tensor)


def start(folder: Path) -> None:
    """Builds the models of a run with FSDP2, without a reference and with one. Writes shares of the whole policy: the
    peak of the tensors that exist meanwhile, and what stays.
    """
    os.environ |= FSDP2
    AcceleratorState._reset_state()
    accelerator, model = Accelerator(), folder / "wide"
    if accelerator.is_main_process:
        wide = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 8}
        random_policy(LlamaConfig, **wide).model.save_pretrained(model)
    accelerator.wait_for_everyone()
    found = []
    for kl_coef in (0.0, 1e-3):
        config = Config(model=str(model), engine="vllm", kl_coef=kl_coef, max_response_tokens=12, precision="float32")
        with Memory() as memory:
            kept = build_models(config, accelerator, SimpleNamespace(prompt_lengths=[8]))
            whole = 4 * sum(p.numel() for p in kept[0].parameters())
        found += [memory.peak / whole, memory.live / whole]
        del kept
    (folder / f"start{RANK}.json").write_text(json.dumps(found))


def shards(folder: Path) -> None:
    """Writes whether the engine gets the same weights, rounded to bfloat16, from shards as from whole tensors; and
    whether these are the nearest numbers.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 1))
    want = dict(whole_tensors(model, torch.bfloat16))
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    found = dict(whole_tensors(model, torch.bfloat16))
    equal = found.keys() == want.keys() and all(torch.equal(found[name], want[name]) for name in want)
    whole = [p.full_tensor().bfloat16() for p in model.parameters()]
    nearest = all(torch.equal(x, p) for x, p in zip(found.values(), whole, strict=True))
    (folder / f"shards{RANK}.json").write_text(json.dumps([equal, nearest]))


def main(folder: Path, *parts: str) -> None:
    for part in parts:
        {"runs": runs, "start": start, "shards": shards}[part](folder)
    (folder / f"end{RANK}").touch()
    while len([*folder.glob("end*")]) < RANKS:
        time.sleep(0.05)  # until no rank needs another one
    os._exit(0)  # on a busy machine gloo's threads can abort a process that takes its groups apart


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
