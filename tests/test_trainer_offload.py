"""trainer/offload.py: the same numbers with moments and reference in host memory."""

import copy

import pytest
import torch
from helpers import contents, random_policy, run, set_up
from ranks import FSDP2
from transformers import LlamaConfig

from trainer.offload import OffloadedAdamW, allocate_moments, on_device, to_host
from trainer.process import Refusal


def test_an_optimizer_step_is_adamws_bit_for_bit():
    """Makes impossible: a moment that is not written back, a count of steps that runs ahead, a parameter left out;
    moments that stay on the device.
    """
    torch.manual_seed(0)
    policies = [random_policy(LlamaConfig)]
    policies.append(copy.deepcopy(policies[0]))
    kinds = torch.optim.AdamW, OffloadedAdamW
    optimizers = [
        kind(x.parameters(), lr=1e-2, weight_decay=0.1, foreach=False) for kind, x in zip(kinds, policies, strict=True)
    ]
    for optimizer in optimizers:
        allocate_moments(optimizer)
    places = [x.data_ptr() for state in optimizers[1].state.values() for x in state.values()]
    for step in range(3):
        for i, (p, q) in enumerate(zip(*(x.parameters() for x in policies), strict=True)):
            p.grad = torch.randn_like(p) if i != step else None
            q.grad = None if p.grad is None else p.grad.clone()
        for optimizer, policy in zip(optimizers, policies, strict=True):
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
    for p, q in zip(*(x.parameters() for x in policies), strict=True):
        assert torch.equal(p, q)
        states = [optimizer.state[x] for optimizer, x in zip(optimizers, (p, q), strict=True)]
        assert all(torch.equal(states[0][name], states[1][name]) for name in ("step", "exp_avg", "exp_avg_sq"))
    assert places == [x.data_ptr() for state in optimizers[1].state.values() for x in state.values()]
    assert len(optimizers[1].param_groups[0]["params"]) == len(places) // 3


def test_the_reference_visits_the_device(monkeypatch):
    """Makes impossible: a copy of the reference that stays on the device; weights that are lost if scoring fails."""
    module = random_policy(LlamaConfig, tie_word_embeddings=True)
    to_host(module)
    before, own = [p.data_ptr() for p in module.parameters()], [*module.parameters()]
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *a, **k: x.detach().clone())  # a CPU has no other device
    with pytest.raises(ZeroDivisionError), on_device(module, torch.device("cuda")):
        assert not {p.data_ptr() for p in module.parameters()} & {*before}
        assert module.model.lm_head.weight is module.model.get_input_embeddings().weight
        raise ZeroDivisionError
    assert [p.data_ptr() for p in module.parameters()] == before
    assert all(p is q for p, q in zip(own, module.parameters(), strict=True))
    with on_device(None, torch.device("cuda")), on_device(module, torch.device("cpu")):
        assert all(p is q for p, q in zip(own, module.parameters(), strict=True))


def test_a_run_and_its_resumes_write_the_same_bytes(tmp_path, one_thread):
    """Makes impossible: other numbers with --offload; a checkpoint that only a run with the same setting can read.

    Four steps with clipped gradients and resets of the reference. Two of the four runs stop after the second step and
    continue with the other setting.
    """
    settings = {"reference_reset_steps": 2, "eval_every": 2, "save_every": 2}
    half, whole = settings | {"max_steps": 2}, settings | {"max_steps": 4}
    metrics = run(tmp_path / "off", **whole)
    run(tmp_path / "on", offload=True, **whole)
    run(tmp_path / "on_off", offload=True, **half)
    run(tmp_path / "on_off", resume=True, offload="False", **whole)
    run(tmp_path / "off_on", **half)
    run(tmp_path / "off_on", resume=True, offload=True, **whole)
    want = contents(tmp_path / "off/run")
    assert all(contents(tmp_path / name / "run") == want for name in ("on", "on_off", "off_on"))
    assert any(row.get("grad_norm", 0) > 0.1 for row in metrics) and len(metrics) == 5


def test_a_resume_fills_the_tensors_that_are_there(tmp_path, monkeypatch):
    """Makes impossible: a resumed run whose moments are on the device, where torch's own loading puts them."""
    places = []

    def recorded(optimizer):
        allocate_moments(optimizer)
        places.extend(x.data_ptr() for state in optimizer.state.values() for x in state.values())

    run(tmp_path, max_steps=1, offload=True)
    monkeypatch.setattr("trainer.start.allocate_moments", recorded)
    _, _, setup = set_up(tmp_path, resume=True, max_steps=2, offload=True)
    moments = [x for state in setup.optimizer.state.values() for x in state.values()]
    assert [x.data_ptr() for x in moments] == places and all(x.abs().sum() > 0 for x in moments)


def test_a_run_uses_offloaded_moments_and_reference(tmp_path, monkeypatch):
    """Makes impossible: a flag that is accepted and moves nothing."""
    moved, visits = [], []
    monkeypatch.setattr("trainer.start.to_host", moved.append)
    monkeypatch.setattr("train.on_device", lambda *a: visits.append(a) or on_device(*a))
    _, _, setup = set_up(tmp_path, offload=True)
    assert moved == [setup.ref_policy] and isinstance(setup.optimizer, OffloadedAdamW)
    run(tmp_path, name="other", offload=True, max_steps=1)
    assert len(visits) == 1 and visits[0][0] is moved[1]


def test_two_ranks_write_the_same_bytes(two_ranks):
    """Makes impossible: ranks whose moments drift apart."""
    assert contents(two_ranks / "ddp") == contents(two_ranks / "offload")


def test_fsdp2_refuses_it(tmp_path, monkeypatch):
    """Makes impossible: copies between pinned memory and shards, which no test covers."""
    for name, value in FSDP2.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Refusal, match="FSDP2"):
        set_up(tmp_path, offload=True)
