"""Many processes: the same arithmetic as one, under data parallelism and FSDP2, in float32 and in bfloat16."""

import itertools
import json
import math
import signal

import pytest
import torch
from helpers import ONE_UPDATE, ROOT, Job, after_one_update, few, few_problems, gradient, lines, loaded, small, wait_for
from transformers import AutoModelForCausalLM

from trainer.policy import Policy
from trainer.processes import from_main, seed_of

SHARDED = """
import os, sys
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

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
import loss as L
import train
import trainer.start

def ratio(logp, old_logp, real=L.importance_ratio):
    assert logp.dtype == old_logp.dtype == torch.float32
    return real(logp, old_logp)

L.importance_ratio = ratio
trainer.start.Accelerator = Sharded
train.main()
"""
)


# Before every micro-batch: which share of the model's gradients this process holds, of its own parts and of whole ones.
HELD = (
    SHARDED
    + """
import torch
import train
held = []

def loss_of(policy, *given, real=train.loss_of):
    states = [m._get_fsdp_state() for m in policy.modules() if hasattr(m, "_get_fsdp_state")]
    groups = [group for state in states for group in state._fsdp_param_groups]
    params = {id(x): x for g in groups for x in g.fsdp_params}.values()
    own = [x.sharded_param.grad for x in params if x.sharded_param.grad is not None]
    whole = [x.unsharded_accumulated_grad for x in params]
    whole += [x._unsharded_param.grad for x in params if hasattr(x, "_unsharded_param")]
    sizes = sum(x.to_local().numel() for x in own), sum(x.numel() for x in whole if x is not None)
    held.append([size / sum(x._orig_size.numel() for x in params) for size in sizes])
    return real(policy, *given)

train.loss_of = loss_of
"""
    + ONE_UPDATE.replace("\nif ", "\ntorch.save(held, f'{sys.argv[2]}{accelerator.process_index}')\nif ")
)


# A sharded reference goes into a checkpoint and comes back; what each process has of it meanwhile.
CHECKPOINT = (
    SHARDED
    + """
import sys, weakref
import torch
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch.distributed.tensor import DTensor
from helpers import loaded
from trainer.policy import Policy
from trainer.checkpoint import Whole

gathered, at_once = [], []

def full_tensor(self, real=DTensor.full_tensor):
    at_once.append(sum(x() is not None for x in gathered))
    whole = real(self)
    gathered.append(weakref.ref(whole))
    return whole

DTensor.full_tensor = full_tensor
accelerator = Sharded()
reference = Whole(fsdp2_prepare_model(accelerator, Policy(loaded()[0]).requires_grad_(False)))
accelerator.register_for_checkpointing(reference)
accelerator.save_state(sys.argv[1])
before = reference.state_dict()
for x in reference.model.parameters():
    x.zero_()
accelerator.load_state(sys.argv[1])
torch.save((at_once, before, reference.state_dict()), f"{sys.argv[1]}/{accelerator.process_index}")
accelerator.wait_for_everyone()
accelerator.end_training()
os._exit(0)
"""
)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return after_one_update(tmp_path_factory.mktemp("alone"), [[0, 1, 2, 3, 4, 5]], 10**6)


@pytest.mark.parametrize(
    "split, budget, kind",
    [
        ([[5, 3, 1, 0, 2, 4]], 60, "ddp"),
        slow([[0, 1, 2], [3, 4, 5]], 100, "ddp"),
        slow([[4], [0, 5, 2, 1, 3]], 37, "ddp"),
        slow([[3, 0], [1], [], [5, 4, 2]], 60, "ddp"),
        slow([[0, 1, 2], [3, 4, 5]], 10**6, "fsdp"),
        ([[4], [0, 5, 2, 1, 3]], 37, "fsdp"),
        slow([[], [5, 0, 1, 4, 3, 2]], 60, "fsdp"),
        slow([[0, 1, 2, 3, 4, 5]], 100, "shared"),
        ([[0, 1, 2, 3], [4, 5]], 100, "shared"),
        slow([[0, 1, 2, 3, 4, 5], []], 100, "shared"),
    ],
)  # fmt: skip
def test_a_gradient_is_the_same_on_any_number_of_processes(tmp_path, alone, split, budget, kind):
    """Makes impossible: a gradient averaged over processes or micro-batches, a share that depends on its neighbours.

    One, two and four processes, even, uneven and empty shares, micro-batches of several sizes, other orders, data
    parallel and sharded: equal to 1e-6 of its norm in float32. With shared prompts, where data parallelism could reduce
    too early, twice, or without the prompts' part: to 1e-5.
    """
    script = SHARDED + ONE_UPDATE if kind == "fsdp" else ONE_UPDATE
    metrics, weights = after_one_update(tmp_path, split, budget, share=kind == "shared", script=script)
    ours, plain = (gradient(w) for w in (weights, alone[1]))
    norm = sum(g.square().sum() for g in plain.values()).sqrt()
    assert norm > 1e-3
    assert sum((ours[k] - plain[k]).square().sum() for k in plain).sqrt() <= (1e-5 if kind == "shared" else 1e-6) * norm
    assert metrics == {k: pytest.approx(v, rel=1e-4, abs=1e-6) for k, v in alone[0].items()}


def test_no_process_holds_whole_gradients_between_micro_batches(tmp_path):
    """Makes impossible: FSDP2's gradients added up after the last micro-batch, whole on every process until then.

    Two processes: each has half of every gradient, whatever the number of micro-batches.
    """
    after_one_update(tmp_path, [[0, 1, 2], [3, 4, 5]], 37, script=HELD)
    for rank in range(2):
        first, *later = torch.load(tmp_path / f"out{rank}")
        assert first == [0, 0] and len(later) > 2
        assert all(own == pytest.approx(0.5, abs=0.01) and whole == 0 for own, whole in later)


def test_a_sharded_reference_is_gathered_on_the_main_process_alone(tmp_path):
    """Mistake: a checkpoint that needs a whole reference on every GPU, where a part of it was what fitted.

    Of two processes the second has one whole tensor at a time, and none at the end. Saved and loaded, it is the same.
    """
    (tmp_path / "checkpoint.py").write_text(CHECKPOINT)
    Job(tmp_path / "checkpoint.py", [tmp_path / "saved"], processes=2).ended()
    (_, before, after), (at_once, *nothing) = (torch.load(tmp_path / f"saved/{rank}") for rank in range(2))
    assert set(at_once) == {0} and nothing == [{}, {}]
    start = Policy(loaded()[0]).state_dict()
    for state in (before, after, torch.load(tmp_path / "saved/custom_checkpoint_0.pkl")):
        assert state.keys() == start.keys() and all(torch.equal(state[name], start[name]) for name in start)


def test_two_processes_train_together(two_processes):
    """Makes impossible: a hang or crash when one process has no prompt, no informative one, or fewer micro-batches.

    Three prompts a step over two processes, N = 2: most groups are uninformative, so the shares differ every step.
    """
    done, folder = two_processes
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 process(es) on cpu" in done.stdout and "Traceback" not in done.stderr
    metrics = lines(folder / "two/metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2]
    assert all(m["prompts"] == 3 for m in metrics[1:])
    arguments = few(folder, "two", "--prompts_per_step=3")
    Job(ROOT / "train.py", [*arguments, "--max_steps=4", "--resume"], processes=2).ended()
    assert [m["step"] for m in lines(folder / "two/metrics.jsonl")] == [0, 1, 2, 3, 4]


HARD = ["--prompts_per_step=6", "--eval_every=2"]  # with N = 2: a round is often too few


def same(ours: list[dict], theirs: list[dict]) -> None:
    """Metrics up to the order of float sums: means to 4e-6; a gradient's norm and a single token's extreme to 2e-4.

    Adam moves a weight by up to the whole rate, even where its gradient is a rounding error: a token that hangs on such
    weights moves, and the mean over hundreds of tokens does not. Each bound is ten times the largest difference between
    1, 2 and 4 processes with AVX-512, AVX2 and neither.
    """
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        loose = {name for name in other if name.endswith(("_max", "_min")) or name == "grad_norm"}
        bound = {name: 2e-4 if name in loose else 4e-6 for name in other}
        assert mine == {n: pytest.approx(x, rel=bound[n], abs=bound[n]) for n, x in other.items()}


@pytest.fixture(scope="module")
def on_one(tmp_path_factory):
    """Five steps of few and hard rollouts on one process: their metrics, and where they lie."""
    folder = tmp_path_factory.mktemp("alone")
    Job(ROOT / "train.py", [*few(folder, "one", *HARD), "--max_steps=5"]).ended()
    return lines(folder / "one/metrics.jsonl"), folder / "one"


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_any_number_of_processes_writes_the_same_numbers(tmp_path, on_one, processes):
    """Mistake: a rollout, a kept prompt or a mini-batch that depends on who was free; metrics of one process alone."""
    metrics, folder = on_one
    assert sum(m["rounds"] for m in metrics[1:]) > 5 and any(m["surplus"] for m in metrics[1:])
    Job(ROOT / "train.py", [*few(tmp_path, "many", *HARD), "--max_steps=5"], processes=processes).ended()
    same(lines(tmp_path / "many/metrics.jsonl"), metrics)
    for log in ("samples.jsonl", "eval.jsonl"):
        assert (tmp_path / "many" / log).read_text() == (folder / log).read_text()


def test_a_run_of_two_processes_goes_on_with_one(tmp_path, on_one):
    """Mistake: a run that cannot leave a machine, or that goes on to other numbers on another one."""
    arguments = few(tmp_path, "run", *HARD)
    Job(ROOT / "train.py", [*arguments, "--max_steps=3"], processes=2).ended()
    Job(ROOT / "train.py", [*arguments, "--max_steps=5", "--resume"]).ended()
    rows = [{k: v for k, v in m.items() if not k.startswith("eval/")} for m in lines(tmp_path / "run/metrics.jsonl")]
    same(rows, [{k: v for k, v in m.items() if not k.startswith("eval/")} for m in on_one[0]])


@pytest.mark.slow
@pytest.mark.parametrize("state", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_a_sharded_run_equals_a_data_parallel_one_and_resumes(tmp_path, state):
    """Makes impossible: a shard taken for the whole: in a checkpoint, in the reference, in the engine, in model/.

    The run that resumes was killed.
    """
    (tmp_path / "sharded.py").write_text(WHOLE_RUN)
    arguments = [
        f"--output_dir={tmp_path}", f"--eval_data={few_problems()}", f"--data={few_problems('train', 256)}", "--seed=3",
        "--rollouts_per_prompt=16", "--prompts_per_step=3", "--updates_per_step=2", "--eval_samples=4",
        "--eval_every=0", "--max_tokens_per_micro_batch=100", "--kl_coef=0.1", "--reference_reset_steps=2",
    ]  # fmt: skip

    def train_for(steps, script, name, *more):
        Job(script, [*arguments, f"--name={name}", f"--max_steps={steps}", *more], processes=2, STATE=state).ended()
        return torch.load(tmp_path / name / "checkpoints" / f"step_{steps:08d}" / "custom_checkpoint_2.pkl")

    train_for(4, ROOT / "train.py", "ddp")
    train_for(4, tmp_path / "sharded.py", "whole")
    parts = [*arguments, "--name=parts", "--max_steps=4", "--save_every=1"]
    job = Job(tmp_path / "sharded.py", parts, processes=2, STATE=state)
    wait_for(job, (tmp_path / "parts/checkpoints/step_00000002").exists)
    for rank in range(2):
        job.signal(signal.SIGKILL, rank)
    job.ended(None)  # one was killed, the other too or missed it
    reference = train_for(4, tmp_path / "sharded.py", "parts", "--resume")
    logs = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    ours, plain = (lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "ddp"))
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine == {k: pytest.approx(v, rel=1e-3, abs=1e-4) for k, v in theirs.items()}
    whole, parts, ddp = (
        AutoModelForCausalLM.from_pretrained(tmp_path / x / "model").state_dict() for x in ("whole", "parts", "ddp")
    )
    for name in ddp:
        assert torch.equal(whole[name], parts[name]) and (whole[name] - ddp[name]).abs().max() < 1e-6
        assert reference[f"model.{name}"].shape == ddp[name].shape


@pytest.mark.slow
@pytest.mark.parametrize("script", [None, WHOLE_RUN], ids=["ddp", "fsdp"])
def test_a_run_in_bfloat16(tmp_path, script):
    """Makes impossible: mixed precision refused or ignored, or an engine refused for bfloat16's rounding."""
    if script:
        (tmp_path / "sharded.py").write_text(script)
    path = tmp_path / "sharded.py" if script else ROOT / "train.py"
    arguments = small(tmp_path, "--max_steps=2")
    Job(path, arguments, processes=2, ACCELERATE_MIXED_PRECISION="bf16").ended()
    for m in lines(tmp_path / "run/metrics.jsonl")[1:]:
        assert 1e-4 < m["engine_difference"] < 0.1 and m["updates_skipped"] == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run/model")
    assert {p.dtype for p in model.parameters()} == {torch.float32}


COMPARED = """
import json, os, sys
from pathlib import Path
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
from rollout import TorchEngine
from trainer.checks import resolve
from trainer.policy import Policy
from trainer.problems import describe
from trainer.settings import Config
from trainer.start import check_engine
from verify import load_data
accelerator = Accelerator(cpu=True)
rank, tokens = accelerator.process_index, []

class Off(TorchEngine):
    def generate(self, *given, max_new_tokens, **sampling):
        groups = super().generate(*given, max_new_tokens=1 if rank else max_new_tokens, **sampling)
        tokens.extend(len(logp) for g in groups for logp in g.logprobs)
        for g in groups:
            g.logprobs[:] = [[x - 0.3 * rank for x in logp] for logp in g.logprobs]
        return groups

resolve(c := Config(max_engine_difference=1.0, max_engine_kl=1.0))
model = AutoModelForCausalLM.from_pretrained(c.model, dtype=torch.float32)
tokenizer, _ = describe(c.model)
prompts = [tokenizer(p.prompt).input_ids for p in load_data(c.data, 0)[:8]]
said = check_engine(Off(model), Policy(model), [tokenizer.eos_token_id], prompts, c, accelerator)
Path(sys.argv[1], str(rank)).write_text(json.dumps([sum(tokens), " ".join(said.split())]))
accelerator.wait_for_everyone()
accelerator.end_training()
os._exit(0)
"""


def test_engine_and_trainer_are_compared_over_all_processes(tmp_path):
    """Makes impossible: a process that judges its engine by its own tokens, goes on, and waits for one that does not.

    The second process has one token a rollout, each off by 0.3, the first many that are right.
    """
    (tmp_path / "compared.py").write_text(COMPARED)
    Job(tmp_path / "compared.py", [tmp_path], processes=2).ended()
    (many, said), (few, repeated) = (json.loads((tmp_path / str(rank)).read_text()) for rank in range(2))
    mean, kl = (x * few / (many + few) for x in (0.3, math.exp(0.3) - 1 - 0.3))
    assert few == 32 and many > 100 and said == repeated
    assert f"is {mean:.1e} on average and 3.0e-01 at most, KL {kl:.1e}, over {many + few} tokens of 64" in said


def test_the_order_is_that_of_the_problems_on_any_number_of_processes(tmp_path):
    """Makes impossible: an instance paired with another one, because processes hand over their shares one by one.

    Greedy responses do not depend on who draws them: one process and two write the same line.
    """
    arguments = [
        "--eval_only", f"--output_dir={tmp_path}", "--eval_samples=1", f"--eval_data={few_problems()}",
        "--eval_temperature=0",
    ]  # fmt: skip
    for count in (1, 2):
        Job(ROOT / "train.py", [*arguments, f"--name=on{count}"], processes=count).ended()
    found = [(tmp_path / f"on{count}/eval.jsonl").read_text() for count in (1, 2)]
    correct = json.loads(found[0])["correct"]
    assert found[0] == found[1] and correct != correct[0::2] + correct[1::2]


def test_a_seed_differs_for_every_combination():
    """Makes impossible: processes, rounds or steps that draw the same rollouts; a seed that torch does not take."""
    seeds = {seed_of(*parts) for parts in itertools.product(range(6), repeat=3)} | {seed_of(1, 11), seed_of(11, 1)}
    assert len(seeds) == 6**3 + 2 and all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(0, 1, 2) == 8462395873746552714  # of every machine and version, or resumed runs draw others


def test_what_the_main_process_finds_is_found_by_all():
    """Makes impossible: a mistake that the main process alone hears of."""
    assert from_main(lambda: 7) == 7
    with pytest.raises(ValueError, match="no such file"):
        from_main(lambda: (_ for _ in ()).throw(ValueError("no such file")))
