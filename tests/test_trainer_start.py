"""trainer/start.py: the objects of a run, the checks before it begins, the end by an exception."""

from unittest import mock

import pytest
import torch
from helpers import loaded, set_up

from sandbox import WeakSandbox
from trainer import start
from trainer.policy import Policy
from trainer.process import Refusal
from trainer.settings import Config
from verify import Verdict


@pytest.mark.parametrize("fault, named", [
    ("crashed", "countdown"), ("weak", "--allow_weak_sandbox"), ("logits", "logits"),
])  # fmt: skip
def test_a_judge_or_a_model_that_cannot_work_is_refused_at_the_start(fault, named, tmp_path, monkeypatch):
    """Makes impossible: a reward that fails at the first step of a long run; log-probs that are not the model's."""
    if fault == "logits":
        monkeypatch.setattr(start, "logits_fault", lambda policy: "its logits differ")
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


def test_a_gpu_without_a_compiler_is_refused_before_anything_loads(monkeypatch):
    """Makes impossible: minutes of loading before Triton finds no C compiler."""
    monkeypatch.setattr(start, "check_compiler", mock.Mock(side_effect=ValueError("a C compiler is missing")))
    monkeypatch.setattr(start, "load_data", mock.Mock(side_effect=AssertionError("too late")))
    card = mock.Mock(device=torch.device("cuda"), is_main_process=True, num_processes=1)
    with pytest.raises(Refusal, match="a C compiler"):
        start.set_up(Config(engine="vllm", name="run", model="M"), card, {})
