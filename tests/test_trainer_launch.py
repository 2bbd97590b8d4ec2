"""trainer/launch.py: launches that cannot work, and the precision of a run."""

from contextlib import nullcontext
from datetime import timedelta
from unittest import mock

import pytest
import torch

from trainer import launch
from trainer.process import Refusal
from trainer.settings import Config


@pytest.mark.parametrize("kind, asked, steps, named", [
    ("DEEPSPEED", "no", 1, "DEEPSPEED"), ("NO", "fp16", 1, "mixed_precision"), ("NO", "no", 4, "accumulation"),
    ("MULTI_GPU", "no", 1, None),
])  # fmt: skip
def test_launches_that_cannot_work_are_refused(kind, asked, steps, named, monkeypatch):
    """Makes impossible: a launcher's setting that is ignored; a rank that may not generate for as long as it needs;
    gradients that DDP holds twice; attention that depends on whether vLLM is installed.
    """
    launched = mock.Mock(gradient_accumulation_steps=steps, num_processes=1)
    launched.distributed_type.value = kind
    monkeypatch.setattr(launch, "Accelerator", accelerator := mock.Mock(return_value=launched))
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", asked)
    with pytest.raises(Refusal, match=named) if named else nullcontext():
        launch.start_accelerator(Config())
    if named is None:
        group, ddp = accelerator.call_args.kwargs["kwargs_handlers"]
        assert group.timeout >= timedelta(hours=3) and ddp.gradient_as_bucket_view
        assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_processes_that_do_not_find_each_other_are_refused(monkeypatch):
    """Makes impossible: torchrun on a CPU whose processes each train alone, in one folder."""
    monkeypatch.setattr(launch, "Accelerator", lambda **options: mock.Mock(num_processes=1))
    for name, value in {"LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Refusal, match="ACCELERATE_USE_CPU"):
        launch.start_accelerator(Config())


@pytest.mark.parametrize("given, asked, native, want", [
    (None, "no", False, "float32"), (None, "no", True, "bfloat16"), (None, "bf16", False, "bfloat16"),
    ("float32", "no", True, "float32"), ("bfloat16", "no", False, "bfloat16"), ("float32", "bf16", True, None),
])  # fmt: skip
def test_the_precision_of_a_run(given, asked, native, want, monkeypatch):
    """Makes impossible: a GPU that trains in float32 because `accelerate launch` always sets "no", bfloat16 that an old
    GPU emulates, a --precision that Accelerate overrides in silence.
    """
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", asked)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native or including_emulation)
    with pytest.raises(Refusal, match="--precision float32") if want is None else nullcontext():
        assert launch.choose_precision(Config(precision=given)) == want
