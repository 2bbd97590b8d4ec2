"""Many processes: the same arithmetic as one, under data parallelism and FSDP2, in float32 and in bfloat16.

Real processes over gloo on one machine. Accelerate offers FSDP2 on accelerators only, so `Sharded` tells it that this
CPU is one: everything after that is Accelerate's and torch's own code.
"""

import json
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from test_train import (
    ONE_UPDATE,
    ROOT,
    TINY,
    after_one_update,
    config,
    few_problems,
    gradient,
    launch,
    lines,
    loaded,
    rollouts,
)

import loss as L
import train
from train import Batch, Config, Policy, Progress

SHARDED = """
import os, sys
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
import train

class Sharded(Accelerator):
    def __init__(self, **given):
        super().__init__(**{"cpu": True} | given)
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False,
            state_dict_type=os.environ.get("STATE", "SHARDED_STATE_DICT"),
        )
        if self.mixed_precision != "no":
            plugin.set_mixed_precision(self.mixed_precision)
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        AcceleratorState._shared_state |= {"distributed_type": DistributedType.FSDP, "fsdp_plugin": plugin}
"""

WHOLE_RUN = (
    SHARDED
    + """
import torch

def ratio(logp, old_logp, real=train.L.importance_ratio):
    assert logp.dtype == old_logp.dtype == torch.float32
    return real(logp, old_logp)

train.L.importance_ratio = ratio
train.Accelerator = Sharded
train.main()
"""
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return after_one_update(tmp_path_factory.mktemp("alone"), [[0, 1, 2, 3, 4, 5]], 10**6, torch.float32)


@pytest.mark.parametrize(
    "split, budget, kind",
    [
        ([[5, 3, 1, 0, 2, 4]], 60, "ddp"),
        ([[0, 1, 2], [3, 4, 5]], 100, "ddp"),
        ([[4], [0, 5, 2, 1, 3]], 37, "ddp"),
        ([[3, 0], [1], [], [5, 4, 2]], 60, "ddp"),
        ([[0, 1, 2], [3, 4, 5]], 10**6, "fsdp"),
        ([[4], [0, 5, 2, 1, 3]], 37, "fsdp"),
        ([[], [5, 0, 1, 4, 3, 2]], 60, "fsdp"),
    ],
)  # fmt: skip
def test_a_gradient_is_the_same_on_any_number_of_processes(tmp_path, alone, split, budget, kind):
    """Makes impossible: a gradient averaged over processes or micro-batches, a share that depends on its neighbours.

    One, two and four processes, even, uneven and empty shares, micro-batches of several sizes, other orders, data
    parallel and sharded: equal to 1e-6 of its norm in float32.
    """
    script = SHARDED + ONE_UPDATE if kind == "fsdp" else ONE_UPDATE
    metrics, weights = after_one_update(tmp_path, split, budget, torch.float32, script=script)
    ours, plain = (gradient(w, torch.float32) for w in (weights, alone[1]))
    norm = sum(g.square().sum() for g in plain.values()).sqrt()
    assert norm > 1e-3
    assert sum((ours[k] - plain[k]).square().sum() for k in plain).sqrt() <= 1e-6 * norm
    assert metrics == {k: pytest.approx(v, rel=1e-4, abs=1e-6) for k, v in alone[0].items()}


@pytest.mark.parametrize("state", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_a_sharded_run_equals_a_data_parallel_one_and_resumes(tmp_path, monkeypatch, state):
    """Makes impossible: a shard taken for the whole: in a checkpoint, in the reference, in the engine, in model/."""
    monkeypatch.setenv("STATE", state)
    (tmp_path / "sharded.py").write_text(WHOLE_RUN)
    arguments = [
        f"--output_dir={tmp_path}", f"--eval_data={few_problems.path}", f"--data={TINY / 'train.jsonl'}", "--seed=3",
        "--rollouts_per_prompt=16", "--prompts_per_step=3", "--updates_per_step=2", "--eval_samples=4",
        "--eval_every=0", "--max_tokens_per_micro_batch=100", "--kl_coef=0.1", "--reference_reset_steps=2",
    ]  # fmt: skip

    def train_for(steps, script, name, *more):
        done = launch(script, *arguments, f"--name={name}", f"--max_steps={steps}", *more, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return torch.load(tmp_path / name / "checkpoints" / f"step_{steps:08d}" / "custom_checkpoint_2.pkl")

    train_for(4, ROOT / "train.py", "ddp")
    train_for(4, tmp_path / "sharded.py", "whole")
    train_for(2, tmp_path / "sharded.py", "parts")
    reference = train_for(4, tmp_path / "sharded.py", "parts", "--resume")
    ours, plain = (lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "ddp"))
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine == {k: pytest.approx(v, rel=1e-3, abs=1e-4) for k, v in theirs.items()}
    whole, parts, ddp = (train.AutoModelForCausalLM.from_pretrained(tmp_path / x / "model").state_dict()
                         for x in ("whole", "parts", "ddp"))  # fmt: skip
    for name in ddp:
        assert torch.equal(whole[name], parts[name]) and (whole[name] - ddp[name]).abs().max() < 1e-6
        assert reference[f"model.{name}"].shape == ddp[name].shape


def test_four_processes_fill_a_step_together(tmp_path):
    """Makes impossible: a process that waits for prompts which another was to bring, or that leaves without it.

    Three prompts a step for four processes, N = 2: in every round some process has nothing to do.
    """
    done = launch(
        ROOT / "train.py", "--name=four", f"--output_dir={tmp_path}", f"--eval_data={few_problems.path}",
        f"--data={TINY / 'train.jsonl'}", "--rollouts_per_prompt=2", "--prompts_per_step=4", "--updates_per_step=2",
        "--eval_samples=4", "--refill=20", "--max_tokens_per_micro_batch=20", "--max_steps=2", processes=4, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(m["prompts"] == 4 for m in lines(tmp_path / "four/metrics.jsonl")[1:])


COMPARED = """
import json, os, sys
from pathlib import Path
from accelerate import Accelerator
import train
accelerator = Accelerator(cpu=True)
rank, tokens = accelerator.process_index, []

class Off(train.TorchEngine):
    def generate(self, *given, max_new_tokens, **sampling):
        groups = super().generate(*given, max_new_tokens=1 if rank else max_new_tokens, **sampling)
        tokens.extend(len(logp) for g in groups for logp in g.logprobs)
        for g in groups:
            g.logprobs[:] = [[x - 0.3 * rank for x in logp] for logp in g.logprobs]
        return groups

train.resolve(c := train.Config(max_engine_difference=1.0, max_engine_kl=1.0))
model = train.AutoModelForCausalLM.from_pretrained(c.model, dtype=train.torch.float32)
tokenizer, _ = train.describe(c.model)
prompts = [tokenizer(p.prompt).input_ids for p in train.load_data(c.data, 0)[:8]]
said = train.check_engine(Off(model), train.Policy(model), tokenizer, prompts, c, accelerator)
Path(sys.argv[1], str(rank)).write_text(json.dumps([sum(tokens), said]))
accelerator.wait_for_everyone()
accelerator.end_training()
os._exit(0)
"""


def test_engine_and_trainer_are_compared_over_all_processes(tmp_path):
    """Makes impossible: a process that judges its engine by its own tokens, goes on, and waits for one that does not.

    The second process has one token a rollout, each off by 0.3, the first many that are right.
    """
    (tmp_path / "compared.py").write_text(COMPARED)
    done = launch(tmp_path / "compared.py", tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (many, said), (few, repeated) = (json.loads((tmp_path / str(rank)).read_text()) for rank in range(2))
    mean, kl = (x * few / (many + few) for x in (0.3, math.exp(0.3) - 1 - 0.3))
    assert few == 32 and many > 100 and said == repeated
    assert f"is {mean:.1e} on average and 3.0e-01 at most, KL {kl:.1e}, over {many + few} tokens of 64" in said


# ------------------------------------------------------------------------------------------------- bfloat16


@pytest.fixture
def bf16():
    AcceleratorState._reset_state(True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(True)
    PartialState()


def test_bfloat16_computes_and_float32_remembers(bf16):
    """Makes impossible: master weights, optimizer moments or sums in bfloat16; old and new log-probs of two functions.

    A weight of 1 that moves by 1e-4 a step would stand still in bfloat16.
    """
    groups, advantages = rollouts(4)
    batch = Batch.of(groups, L.group_advantages(advantages), bf16.device)
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=1)
    policy = Policy(loaded()[0])
    policy, optimizer = bf16.prepare(policy, torch.optim.AdamW(policy.parameters(), lr=1e-4))
    exact, _ = batch.score(Policy(loaded()[0]), 3.0, 10**6)
    seen = []
    hook = policy.model.base_model.layers[0].mlp.up_proj.register_forward_hook(lambda m, x, y: seen.append(y.dtype))
    batch.old_logp, _ = batch.score(policy, 3.0, 10**6, bf16)
    hook.remove()
    assert set(seen) == {torch.bfloat16} and batch.old_logp.dtype == torch.float32
    assert 1e-5 < (batch.old_logp - exact).abs().max() < 0.1
    before = [p.detach().clone() for p in policy.parameters()]
    metrics = train.update(policy, optimizer, batch, c, bf16, Progress())
    assert metrics["ratio"] == pytest.approx(1, abs=1e-6) and metrics["ratio_max"] == pytest.approx(1, abs=1e-6)
    assert all(p.dtype == torch.float32 for p in policy.parameters())
    assert all(s["exp_avg"].dtype == torch.float32 for s in optimizer.state.values())
    moved = [((a - b).abs() > 0).float().mean() for a, b in zip(before, policy.parameters(), strict=True)]
    assert min(moved) > 0.5


def test_bfloat16_keeps_fewer_bytes(bf16):
    """Makes impossible: activations counted in another precision than they will have, and a run refused for it."""
    policy = Policy(loaded()[0])
    whole = train.activation_bytes(policy, SimpleNamespace(autocast=nullcontext))
    assert 0.4 * whole < train.activation_bytes(policy, bf16) < 0.8 * whole


def test_reference_and_policy_are_scored_alike_in_bfloat16(tmp_path, bf16):
    """Makes impossible: a KL term of rounding, from a reference that is computed in another precision.

    Before the first update the policy is the reference: their KL is 0, every bit of it.
    """
    c = config(tmp_path, max_steps=1, updates_per_step=1, kl_coef=0.1)
    train.train(c, bf16, train.set_up(c, bf16))
    metrics = lines(tmp_path / "run/metrics.jsonl")[1]
    assert metrics["kl_ref"] == 0 and metrics["engine_difference"] > 1e-4


def test_bfloat16_gradients_point_where_float32s_do():
    """Makes impossible: a head that loses its gradient, or sums it over chunks in bfloat16."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(2048, 32), torch.randn(50, 32) / 6
    targets, upstream, found = torch.randint(50, (2048,)), torch.randn(2048), []
    for autocast in (False, True):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logp, entropy = L.token_logprobs(h, w, targets, 1.0, max_logits=50 * 4)
        logp.backward(upstream)
        assert logp.dtype == entropy.dtype == h.grad.dtype == w.grad.dtype == torch.float32
        found.append((logp.detach(), h.grad, w.grad))
    for exact, ours in zip(*found, strict=True):
        assert (exact - ours).norm() < 0.01 * exact.norm() and not torch.equal(exact, ours)


@pytest.mark.parametrize("script", [None, WHOLE_RUN], ids=["ddp", "fsdp"])
def test_a_run_in_bfloat16(tmp_path, monkeypatch, script):
    """Makes impossible: mixed precision refused or ignored, or an engine refused for bfloat16's rounding."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    if script:
        (tmp_path / "sharded.py").write_text(script)
    done = launch(
        tmp_path / "sharded.py" if script else ROOT / "train.py", "--name=bf16", f"--output_dir={tmp_path}",
        f"--eval_data={few_problems.path}", f"--data={TINY / 'train.jsonl'}", "--rollouts_per_prompt=16",
        "--prompts_per_step=4", "--updates_per_step=2", "--eval_samples=4", "--max_steps=2", timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for m in lines(tmp_path / "bf16/metrics.jsonl")[1:]:
        assert 1e-4 < m["engine_difference"] < 0.1 and m["updates_skipped"] == 0
    model = train.AutoModelForCausalLM.from_pretrained(tmp_path / "bf16/model")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
