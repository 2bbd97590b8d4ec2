"""trainer/card_memory.py: the count beside the memory of a real process, and what follows from it for a card."""

import subprocess
import sys

import pytest
import torch
from helpers import ON_CPU, ROOT
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from engines.rounding import dithered
from trainer.card_memory import DDP, FSDP2, ONE, needs_by_layout
from trainer.clock import GIB
from trainer.update_memory import count_update

SMALL = {
    "qwen": Qwen2Config(
        hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=32_000,
    ),
    "llama": LlamaConfig(
        hidden_size=384, intermediate_size=1024, num_hidden_layers=12, num_attention_heads=6, num_key_value_heads=6,
        vocab_size=16_000, tie_word_embeddings=True,
    ),
}  # fmt: skip
# One update of the trainer with AdamW and a reference, in a process of its own. Prints the growth of its memory.
PROGRAM = """
import resource, sys
import torch, trainer
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM
import loss as L
from trainer.adapters import add_adapters, copy_sharing_frozen, trainable
from trainer.micro_batches import MicroBatch
from trainer.policy import log_probs
from trainer.offload import allocate_moments
from trainer.policy import Policy
from trainer.outcomes import Rollout
from verify import Problem

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def update(config, n, lora_rank):
    # two micro-batches of n rows
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if lora_rank:
        add_adapters(model, lora_rank, 1.0, torch.float32)
    policy = Policy(model).eval()
    reference = copy_sharing_frozen(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(trainable(policy), foreach=False)
    allocate_moments(optimizer)
    rollouts = [
        Rollout(Problem("", "", None), 0, i, torch.zeros(1, dtype=torch.int32),
                torch.randint(1000, (1023,), dtype=torch.int32), torch.zeros(1023), False)
        for i in range(n)
    ]
    for _ in range(2):  # the gradients of the first micro-batch exist while the second is computed
        logp, _ = log_probs(policy, MicroBatch.of(rollouts, torch.device("cpu")), 1.0, Accelerator(cpu=True))
        old, lengths = logp.detach(), torch.full((n,), 1023)
        tokens = L.Tokens(logp, old, old, old, torch.ones(n), lengths)
        loss, _ = L.policy_loss(tokens, 2 * 1023 * n, 2 * n, kl_coef=1e-4)
        loss.backward()
        del logp, loss
    optimizer.step()

config, small = (AutoConfig.from_pretrained(sys.argv[1]) for _ in range(2))
small.num_hidden_layers, small.vocab_size, lora_rank = 1, 1000, int(sys.argv[3])
update(small, 1, lora_rank)  # what torch and transformers load at their first update
before = used()
update(config, int(sys.argv[2]) // 1024, lora_rank)
print(used() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lora_rank"), [("qwen", 0), ("llama", 0), ("qwen", 16)])
def test_the_count_is_the_memory_of_a_real_process(name, lora_rank, tmp_path):
    """Makes impossible: a table of cards that leaves out moments, the reference, the activations, or the gradients
    beside them; one that counts frozen weights as trained.
    """
    SMALL[name].save_pretrained(tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), "4096", str(lora_rank)]
    unfragmented = ON_CPU | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors go back to the system
    real = int(subprocess.run(command, cwd=ROOT, env=unfragmented, capture_output=True, text=True, check=True).stdout)
    count = count_update(SMALL[name], 4096, bfloat16=False, lora_rank=lora_rank)
    counted = count.weights + count.trained + count.moments + count.update  # the reference has as much as is trained
    print(f"{name}, rank {lora_rank}: counted {counted / GIB:.3f} GiB, real {real / GIB:.3f} GiB")
    # Beside a busy second process the peak was up to 10% lower than alone: 2.15 against 2.31 GiB. Cause not checked.
    assert 0.83 < real / counted < 1.1


def parameters(config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())


def test_adapters_and_offload_need_what_the_page_says():
    """Makes impossible: a count with gradients, moments or a reference of frozen weights, or with tensors in host
    memory; a dither table of fake numbers that a later run would use.
    """
    config = Qwen2Config(**SMALL["qwen"].to_diff_dict() | {"num_hidden_layers": 2, "layer_types": None})
    every = parameters(config)
    pairs = 2 * ((512 + 512) * 2 + (512 + 128) * 2 + (512 + 2048) * 3)  # in + out of q, o; k, v; gate, up, down
    count = count_update(config, 2048, lora_rank=16)
    assert count.trained == 4 * 16 * pairs and count.weights == 2 * every + count.trained
    assert count.moments == pytest.approx(2 * count.trained, rel=0.01)
    keys = [(tokens, on) for tokens in (4096, 2048) for on in (False, True)]
    counts = {(tokens, on): count_update(config, tokens, checkpointing=on) for tokens, on in keys}
    offload, alone = needs_by_layout(config, counts, offload=True), needs_by_layout(config, counts)
    full = counts[2048, False]
    assert full.weights == full.trained == 4 * every and count.update < full.update
    assert offload.keys() == {ONE, DDP} and alone.keys() == {ONE, DDP, FSDP2}
    assert offload[ONE].held() == pytest.approx(4 * every / GIB) and alone[ONE].held() > 3.9 * offload[ONE].held()
    assert offload[DDP].held() == 2 * offload[ONE].held()
    saved = alone[ONE].peak(2048, False) - offload[ONE].peak(2048, False)
    assert saved == pytest.approx(12 * every / GIB, rel=0.01)  # the update of this size hides the visits
    assert type(dithered(torch.ones(3), "w")) is torch.Tensor
