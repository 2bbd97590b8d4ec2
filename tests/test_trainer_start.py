"""trainer/start.py: the objects of a run, the checks before it begins, the end by an exception."""

from contextlib import nullcontext
from datetime import timedelta
from unittest import mock

import pytest
import torch
from helpers import loaded, set_up

from sandbox import WeakSandbox
from trainer import start
from trainer.exits import Refusal
from trainer.policy import Policy
from trainer.settings import Config
from verify import Verdict


@pytest.mark.parametrize(
    "factor, limit, refused", [(1.05, None, True), (float("nan"), 100.0, True), (1.05, 100.0, False)]
)
def test_the_engine_is_compared_with_the_trainer(factor, limit, refused, tmp_path, monkeypatch):
    """Makes impossible: a run on rollouts of other weights than the trained ones, or with a difference of NaN."""
    own = start.write_log_probs

    def other(policy, *a):  # the trainer's log-probs are not those of the engine
        with torch.no_grad():
            policy.model.get_output_embeddings().weight.mul_(factor)
        return own(policy, *a)

    monkeypatch.setattr(start, "write_log_probs", other)
    # The advice is not the engine that runs.
    with pytest.raises(Refusal, match=r"^(?!.*--engine torch).*--max_engine_kl") if refused else nullcontext():
        set_up(tmp_path, max_engine_kl=limit)
    assert (tmp_path / "run").exists() == (not refused)


@pytest.mark.parametrize("fault, named", [
    ("crashed", "countdown"), ("weak", "--allow_weak_sandbox"), ("logits", "logits"),
])  # fmt: skip
def test_a_judge_or_a_model_that_cannot_work_is_refused_at_the_start(fault, named, tmp_path, monkeypatch):
    """Makes impossible: a reward that fails at the first step of a long run; log-probs that are not the model's."""
    if fault == "logits":
        monkeypatch.setattr(start, "difference_from_logits", lambda policy: "its logits differ")
    else:
        crashed = [Verdict(0.0, False, "crashed")]
        answer = {"side_effect": WeakSandbox("no isolation here")} if fault == "weak" else {"return_value": crashed}
        monkeypatch.setattr(start.Judge, "verdicts", mock.Mock(**answer))
    with pytest.raises(Refusal, match=named):
        set_up(tmp_path)


def test_moments_that_are_allocated_at_the_start_change_nothing(tmp_path):
    """Makes impossible: moments that the first update allocates, where the engine has the memory; a first update with
    the bias correction of the second.
    """
    _, _, setup = set_up(tmp_path, learning_rate=1e-3)
    assert len(setup.optimizer.state) == len(list(setup.policy.parameters()))
    policy = Policy(loaded()[0])
    fresh = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.01)
    for optimizer, model in ((setup.optimizer, setup.policy), (fresh, policy)):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(setup.policy.parameters(), policy.parameters(), strict=True))


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
    monkeypatch.setattr(start, "Accelerator", accelerator := mock.Mock(return_value=launched))
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", asked)
    with pytest.raises(Refusal, match=named) if named else nullcontext():
        start.start_accelerator(Config())
    if named is None:
        group, ddp = accelerator.call_args.kwargs["kwargs_handlers"]
        assert group.timeout >= timedelta(hours=3) and ddp.gradient_as_bucket_view
        assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_processes_that_do_not_find_each_other_are_refused(monkeypatch):
    """Makes impossible: torchrun on a CPU whose processes each train alone, in one folder."""
    monkeypatch.setattr(start, "Accelerator", lambda **options: mock.Mock(num_processes=1))
    for name, value in {"LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Refusal, match="ACCELERATE_USE_CPU"):
        start.start_accelerator(Config())


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
        assert start.precision(Config(precision=given)) == want


def test_a_gpu_without_a_compiler_is_refused_before_anything_loads(monkeypatch):
    """Makes impossible: minutes of loading before Triton finds no C compiler."""
    monkeypatch.setattr(start, "check_compiler", mock.Mock(side_effect=ValueError("a C compiler is missing")))
    monkeypatch.setattr(start, "load", mock.Mock(side_effect=AssertionError("too late")))
    card = mock.Mock(device=torch.device("cuda"), is_main_process=True, num_processes=1)
    with pytest.raises(Refusal, match="a C compiler"):
        start.set_up(Config(engine="vllm", name="run", model="M"), card, {})
