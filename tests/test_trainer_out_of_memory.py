"""trainer/out_of_memory.py: the advice after an out-of-memory error. A card is mocked."""

import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from helpers import arguments, settings

import train
import trainer.process as process
from trainer import out_of_memory
from trainer.clock import GIB
from trainer.out_of_memory import advising
from trainer.process import Refusal
from trainer.update_memory import Count

ON_A_CARD, ON_A_CPU = (SimpleNamespace(device=torch.device(x), num_processes=1) for x in ("cuda", "cpu"))
# vLLM 0.32.0: vllm/v1/core/kv_cache_utils.py, vllm/v1/worker/utils.py
NO_CACHE = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine"
)
SMALL_CACHE = (
    "To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed, which is larger "
    "than the available KV cache memory (2.0 GiB)."
)
NO_ROOM = (
    "Free memory on device cuda:0 (30.1/79.0 GiB) on startup is less than desired GPU memory utilization (0.5, 39.5 "
    "GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


def count(model, tokens, bfloat16=True, checkpointing=False, lora_rank=0):
    """A card of 80 GiB by hand: weights 8, moments 16, reference 8; an update takes 30, of which 20 are activations."""
    activations = (2 if checkpointing else 20) * tokens / 32768
    weights, trained, backward = (5, 1, 2 + activations) if lora_rank else (8, 8, 10 + activations)
    return Count(*(int(x * GIB) for x in (weights, trained, 1, 2 * trained, activations / 5, backward, 9)))


@pytest.fixture
def by_hand(monkeypatch):
    """The count above, a card of 80 GiB and a peak of 1.5 GiB."""
    monkeypatch.setattr(out_of_memory, "count_update", count)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: mock.Mock(total_memory=80 * GIB))
    taken = {"cuda": {"allocated": 70.0, "reserved": 75.5}, "cpu": {"process": 1.5}}
    monkeypatch.setattr(out_of_memory, "peak", lambda device: taken[device.type])


def advised(tmp_path, failure, accelerator=ON_A_CPU, phase=None, **changes) -> str:
    """The note that a run in this phase adds to its failure; "" without one."""
    config, _ = settings(tmp_path, **changes)
    clock = SimpleNamespace(phase=phase, step=3) if phase else None
    with pytest.raises(type(failure)), advising(config, accelerator, clock):
        raise failure
    return "\n".join(getattr(failure, "__notes__", []))


def test_an_update_without_memory_names_three_flags(by_hand, tmp_path, monkeypatch):
    """Makes impossible: an out-of-memory error of a run that says neither where nor what to change."""
    ends = []
    monkeypatch.setattr(process, "leave", lambda code, text: ends.append((code, text)) or sys.exit(code))
    monkeypatch.setattr(train, "update", mock.Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory.")))
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments(tmp_path, eval_samples=1)])
    with pytest.raises(SystemExit):
        train.main()
    ((code, text),) = ends
    assert (
        code == 1
        and text.startswith("Traceback")
        and text.rstrip().endswith(
            "torch.OutOfMemoryError: CUDA out of memory.\n"
            "Out of memory in phase update of step 1. The peak before it: 1.50 GiB process\n"
            "By our count, these flags save most here (docs/memory.md):\n"
            "  --lora_rank 16 (in a new run)              32.00 GiB\n"
            "  --gradient_checkpointing                   18.00 GiB\n"
            "  --max_tokens_per_micro_batch 16384         10.00 GiB"
        )
    )


LORA, OFFLOAD = "--lora_rank 16 (in a new run)", "--offload"


@pytest.mark.parametrize("phase, changes, saved", [
    ("update", {}, {LORA: 32, OFFLOAD: 24, "--gradient_checkpointing": 18}),
    ("update", {"offload": True}, {"--gradient_checkpointing": 18, "--max_tokens_per_micro_batch 16384": 10, LORA: 8}),
    ("update", {"lora_rank": 4}, {"--gradient_checkpointing": 13, "--max_tokens_per_micro_batch 16384": 10}),
    ("score", {}, {LORA: 24, OFFLOAD: 16, "--max_tokens_per_micro_batch 16384": 2}),
    ("roll_out", {"engine": "torch"}, {LORA: 12, OFFLOAD: 12, "--gpu_memory_utilization 0.4": 4.8}),
    ("update", {"kl_coef": 0}, {LORA: 25, "--gradient_checkpointing": 18, OFFLOAD: 16}),
])  # fmt: skip
def test_the_flags_that_save_most_on_a_card(phase, changes, saved, by_hand, tmp_path):
    """Makes impossible: a flag that is on already, one that does nothing in this phase, an order of chance."""
    said = advised(tmp_path, MemoryError(), ON_A_CARD, phase, **changes).splitlines()
    peak = "70.00 GiB allocated, 75.50 GiB reserved, of 80.0"
    assert said[0] == f"Out of memory in phase {phase} of step 3. The peak before it: {peak}"
    assert said[2:] == [f"  {flag:40}{gib:8.2f} GiB" for flag, gib in saved.items()]


@pytest.mark.parametrize("failure, first", [
    (Refusal(NO_CACHE), "--gpu_memory_utilization 0.55 "), (ValueError(SMALL_CACHE), "--gpu_memory_utilization 0.55 "),
    (Refusal(NO_ROOM), LORA), (RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:119"), LORA),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), LORA),
])  # fmt: skip
def test_the_errors_of_vllm_and_torch_are_known(failure, first, by_hand, tmp_path):
    """Makes impossible: a smaller share of vLLM for an error that needs a larger one."""
    said = advised(tmp_path, failure, ON_A_CARD)
    assert said.startswith("Out of memory in phase start. ") and said.splitlines()[2].startswith(f"  {first}")
    assert ("VLLM_CPU_KVCACHE_SPACE" in advised(tmp_path, failure, ON_A_CPU)) == ("utilization 0" in first)


def test_other_errors_stay_and_a_failed_count_hides_nothing(by_hand, tmp_path, monkeypatch):
    """Makes impossible: a bug that is called a lack of memory; the error of the count in place of the first error."""
    for failure in (RuntimeError("shapes do not match"), Refusal("--lora_rank 99: too large"), KeyError("x")):
        assert advised(tmp_path, failure, ON_A_CARD, "update") == ""
    monkeypatch.setattr(out_of_memory, "count_update", mock.Mock(side_effect=TypeError("a new model")))
    said = advised(tmp_path, MemoryError("first"), ON_A_CARD, "update")
    assert said.splitlines()[1] == (
        "docs/memory.md has the flags that save memory. They cannot be counted here: TypeError('a new model')"
    )
