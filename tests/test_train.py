"""Section 4.2: the loop, with the embedded policy, with stub engines, and with two processes."""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    Qwen2Tokenizer,
)
from transformers.convert_slow_tokenizer import bytes_to_unicode

import brorl
import loss as L
import train
from rollout import Group, TorchEngine
from train import Batch, Config, Cursor, Policy, Progress
from verify import load_problems

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tiny"


@pytest.fixture(scope="module", autouse=True)
def few_problems(tmp_path_factory):
    """Evaluations in these tests use 16 of the held-out problems."""
    path = tmp_path_factory.mktemp("data") / "test.jsonl"
    path.write_text("".join((TINY / "test.jsonl").read_text().splitlines(keepends=True)[:16]))
    few_problems.path = str(path)


def config(folder, **changes) -> Config:
    """A small run: 4 prompts x 8 rollouts, two steps."""
    small = {
        "model": str(TINY / "policy"),
        "data": [str(TINY / "train.jsonl")],
        "eval_data": [few_problems.path],
        "output_dir": str(folder),
        "name": "run",
        "rollouts_per_prompt": 8,
        "prompts_per_step": 4,
        "updates_per_step": 2,
        "learning_rate": 1e-4,
        "max_steps": 2,
        "eval_samples": 4,
        "eval_every": 1,
        "save_every": 1,
        "kl_coef": 1e-3,
        "reference_reset_steps": 2,
    }
    return Config(**small | changes)


def start(c: Config) -> None:
    accelerator = Accelerator(cpu=True)
    train.train(c, accelerator, train.set_up(c, accelerator))


def run(folder, **changes) -> list[dict]:
    start(config(folder, **changes))
    return lines(Path(folder) / changes.get("name", "run") / "metrics.jsonl")


def lines(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def launch(script, *arguments, processes=2, **kwargs):
    """Real processes: `accelerate launch --cpu` starts one, whatever it is told."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command += [str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, **kwargs)


def rollouts(count=12, seed=0) -> tuple[list[Group], torch.Tensor]:
    """Real rollouts of the tiny policy at temperature 3, so that lengths differ, with advantages of both signs."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:count]
    prompts = [tokenizer(p.prompt).input_ids for p in problems]
    groups = TorchEngine(model).generate(prompts, 6, max_new_tokens=12, temperature=3.0, seed=seed)
    return groups, torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def loaded():
    folder = str(TINY / "policy")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


# --------------------------------------------------------------------------------------- whole runs


def test_the_same_seed_twice_gives_the_same_metrics_file(tmp_path):
    """Makes impossible: an unseeded draw, a clock in the metrics, another seed that changes nothing."""
    run(tmp_path / "a")
    run(tmp_path / "b")
    run(tmp_path / "c", seed=1)
    a, b, c = ((tmp_path / x / "run/metrics.jsonl").read_bytes() for x in "abc")
    assert a == b != c


def test_a_resumed_run_equals_an_undisturbed_one(tmp_path):
    """Makes impossible: a batch replayed or skipped, an optimizer or reference forgotten, a repeated metrics line."""
    run(tmp_path / "whole", max_steps=4)
    run(tmp_path / "parts", max_steps=2)
    folder = tmp_path / "parts/run"
    for name in ("metrics.jsonl", "eval.jsonl"):  # a step that was logged and not checkpointed, and a torn line
        with (folder / name).open("a") as file:
            file.write('{"step": 3, "samples": 1}\n{"step": 4, "sam')
    (folder / "checkpoints/unfinished").mkdir()
    run(tmp_path / "parts", max_steps=4, resume=True)
    for name in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert (folder / name).read_bytes() == (tmp_path / "whole/run" / name).read_bytes()
    states = [torch.load(tmp_path / x / "run/checkpoints/step_00000004/pytorch_model.bin") for x in ("whole", "parts")]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["step_00000003", "step_00000004"]


def test_resuming_without_its_checkpoints_is_refused(tmp_path):
    """Makes impossible: a run's history emptied because somebody deleted its checkpoints."""
    run(tmp_path)
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "run/checkpoints")
    with pytest.raises(ValueError, match=r"the checkpoints of .* are gone"):
        run(tmp_path, resume=True, max_steps=3)
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before


def test_resuming_needs_no_setting_but_the_name(tmp_path):
    """Makes impossible: a run resumed with the recipe's settings in place of its own."""
    run(tmp_path, max_steps=1)
    start(Config(resume=True, name="run", output_dir=str(tmp_path), max_steps=2))
    assert [m["step"] for m in lines(tmp_path / "run/metrics.jsonl")] == [0, 1, 2]
    assert json.loads((tmp_path / "run/config.json").read_text())["rollouts_per_prompt"] == 8


def test_what_a_run_writes(tmp_path):
    """Makes impossible: a metric that is missing, a score that is not the saved model's, an unreadable model."""
    metrics = run(tmp_path)
    folder = tmp_path / "run"
    assert [m["step"] for m in metrics] == [0, 1, 2]
    for m in metrics[1:]:
        assert m["prompts"] == 4 and 0 < m["pass_rate"] <= 1
        assert m["samples"] % 8 == 0 and sum(v for k, v in m.items() if k.startswith("reason/")) > 0
        for name in ("reward", "loss", "grad_norm", "entropy", "clip_high_fraction", "ratio_max", "kl_ref", "tokens"):
            assert math.isfinite(m[name])
        assert m["engine_ratio"] == pytest.approx(1, abs=1e-4) and m["engine_kl"] < 1e-8
        assert 0.3 < m["entropy"] < m["nll"] * 3
    assert metrics[2]["reference_reset"] == 1 and "reference_reset" not in metrics[1]
    assert {"step", "prompt", "response", "reward", "reason"} == set(lines(folder / "samples.jsonl")[0])
    assert (folder / "curves.png").stat().st_size > 10_000
    assert len(lines(folder / "timing.jsonl")) == 2

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    state = torch.load(folder / "checkpoints/step_00000002/pytorch_model.bin")
    assert all(torch.equal(v, state[f"model.{k}"]) for k, v in model.state_dict().items())
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", "--eval_only", "--model", folder / "model", "--eval_data",
         few_problems.path, "--output_dir", tmp_path], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"{metrics[2]['eval/pass@1']:.3f} ± {metrics[2]['eval/pass@1_se']:.3f}" in done.stdout


def test_the_learning_rule_learns(tmp_path):
    """Makes impossible: a sign error anywhere between verdict and weights. 15 small steps lift the training reward."""
    metrics = run(tmp_path, max_steps=15, rollouts_per_prompt=64, prompts_per_step=16, learning_rate=3e-4, eval_every=0)
    rewards = [m["reward"] for m in metrics[1:]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.03


def test_prorl_is_the_same_loop_with_sixteen_rollouts(tmp_path):
    """Makes impossible: a recipe that is only a name."""
    c = Config(recipe="prorl")
    train.resolve(c)
    assert c.rollouts_per_prompt == 16 and c.name == "prorl-seed0"
    metrics = run(tmp_path, recipe="prorl", rollouts_per_prompt=None, max_steps=1)
    assert metrics[1]["samples"] % 16 == 0


def test_two_processes_train_together(tmp_path):
    """Makes impossible: a hang or crash when one process has no prompt, no informative one, or fewer micro-batches.

    Three prompts a step over two processes, N = 2: most groups are uninformative, so the shares differ every step.
    """
    arguments = [
        "--name=two", f"--output_dir={tmp_path}", f"--eval_data={few_problems.path}", f"--data={TINY / 'train.jsonl'}",
        "--rollouts_per_prompt=2", "--prompts_per_step=3", "--updates_per_step=2", "--eval_samples=4", "--refill=20",
        "--max_tokens_per_micro_batch=20", "--save_every=2",
    ]  # fmt: skip
    done = launch(ROOT / "train.py", *arguments, "--max_steps=4", timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 process(es) on cpu" in done.stdout
    metrics = lines(tmp_path / "two/metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2, 3, 4]
    assert all(m["prompts"] == 3 for m in metrics[1:])
    done = launch(ROOT / "train.py", *arguments, "--max_steps=6", "--resume", timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [m["step"] for m in lines(tmp_path / "two/metrics.jsonl")] == [0, 1, 2, 3, 4, 5, 6]
    alone = [sys.executable, ROOT / "train.py", *arguments, "--max_steps=7", "--resume"]
    done = subprocess.run(alone, capture_output=True, text=True)
    assert done.returncode == 2 and "processes: 2 -> 1" in done.stderr


# One optimizer step of every process on the groups that are its own, and the weights after it. A script that begins
# with a class Sharded (test_processes.py) makes it under FSDP2.
ONE_UPDATE = """
import os, sys, torch
from accelerate import Accelerator
import train
state = torch.load(sys.argv[1], weights_only=False)
accelerator = globals().get("Sharded", Accelerator)(cpu=True)
mine = state["split"][accelerator.process_index]
batch = train.Batch.of([state["groups"][i] for i in mine], state["advantages"][mine], accelerator.device)
batch.old_logp, batch.ref_logp = batch.engine_logp + 0.05, batch.engine_logp - 0.1
dtype = state["advantages"].dtype
policy = train.Policy(train.AutoModelForCausalLM.from_pretrained(state["model"], dtype=dtype))
if state["share"]:
    policy.share("on")
    batch.share = True
policy, optimizer = accelerator.prepare(policy, torch.optim.SGD(policy.parameters(), lr=1.0))
metrics = train.update(policy, optimizer, batch, state["config"], accelerator, train.Progress())
weights = train.Whole(accelerator.unwrap_model(policy)).state_dict()
if accelerator.is_main_process:
    torch.save((metrics, weights), sys.argv[2])
accelerator.wait_for_everyone()
accelerator.end_training()
os._exit(0)  # as train.py ends: torch's threads may abort a process that Python takes apart
"""


def after_one_update(folder, split, budget=100, dtype=torch.float64, share=False, script=ONE_UPDATE):
    """Metrics and weights after one step of rate 1 without clipping, from weights that it moves by the gradient.

    split: which of six groups each process has; budget: tokens of a micro-batch; share: the prompts.
    """
    groups, advantages = rollouts(6)
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl="k2", kl_coef=0.1, tis_cap=2.0, updates_per_step=1,
               max_tokens_per_micro_batch=budget, max_grad_norm=1e9)  # fmt: skip
    state = {"groups": groups, "advantages": advantages.to(dtype), "model": str(TINY / "policy"), "config": c}
    torch.save(state | {"split": split, "share": share}, folder / "state")
    (folder / "one_update.py").write_text(script)
    done = launch(folder / "one_update.py", folder / "state", folder / "out", processes=len(split), timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "out", weights_only=False)


def gradient(weights: dict, dtype=torch.float64) -> dict[str, torch.Tensor]:
    """What an update of rate 1 subtracted."""
    start = Policy(loaded()[0].to(dtype)).state_dict()
    return {name: start[name] - weights[name] for name in start}


def test_an_update_does_not_depend_on_the_number_of_processes(tmp_path):
    """Makes impossible: a gradient averaged instead of added up, a process's own token count as the denominator.

    Six groups in one process, and dealt 3 + 3, 5 + 1 and 6 + 0 to two: the same weights after the update, to 1e-12.
    """
    splits = [[0, 1, 2, 3, 4, 5]], [[0, 1, 2], [3, 4, 5]], [[0, 1, 2, 3, 4], [5]], [[0, 1, 2, 3, 4, 5], []]
    (metrics, weights), *others = [after_one_update(tmp_path, split) for split in splits]
    assert max(g.norm() for g in gradient(weights).values()) > 1e-3
    for other, theirs in others:
        assert other == {k: pytest.approx(v, rel=1e-5, abs=1e-6) for k, v in metrics.items()}
        for name, w in weights.items():
            assert (w - theirs[name]).norm() <= 1e-12 * w.norm()


# ----------------------------------------------------------------------------------------- a mix of families


LEFT_BEHIND = Path(tempfile.gettempdir()) / f"brorl-{os.getpid()}-was-here"  # where anybody may write
HOSTILE = [
    "```python\nwhile True: pass\n```",
    "```python\nimport os\nos._exit(0)\n```",
    "```python\nimport os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n```",
    "```python\nx = [0] * 10**12\n```",
    "```python\nwhile True: print('x' * 10**6)\n```",
    f"```python\nopen({str(LEFT_BEHIND)!r}, 'w').write('x')\n```",
    "no program at all",
    "```python\nimport socket; socket.socket().connect(('127.0.0.1', 80))\n```",
]
WRITTEN = {
    "countdown": ["1+1", "1+2", "1+", ""],
    "math": ["it is \\boxed{\\frac{1}{2}}", "\\boxed{\\frac{2}{4}}", "\\boxed{x^2+1}", "\\boxed{9^{9^{9^9}}}"],
    "code": HOSTILE,
}


def bytes_policy(folder):
    """A random policy of one token a byte, which can write anything, and its tokenizer."""
    characters = bytes_to_unicode()
    vocabulary = {"<eos>": 0} | {characters[byte]: byte + 1 for byte in range(256)}
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=[], eos_token="<eos>", pad_token="<eos>", unk_token="<eos>")
    config = LlamaConfig(
        vocab_size=257, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, eos_token_id=0, pad_token_id=0, bos_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


class Writer(TorchEngine):
    """Answers each prompt, which is the name of a kind, with what WRITTEN has for it, and the right log-probs."""

    def generate(self, prompts, n, *, max_new_tokens, on_progress=None, **sampling):
        groups, tokenizer = [], AutoTokenizer.from_pretrained(self.model.name_or_path)
        for prompt in prompts:
            texts = WRITTEN[tokenizer.decode(prompt)]
            texts = [texts[i % len(texts)] for i in range(n)]
            groups.append(Group(prompt, [[*tokenizer(t).input_ids, 0] for t in texts], [], ["stop"] * n))
            for response in groups[-1].responses:
                logits = self.model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
                logp = logits.detach().log_softmax(-1).gather(-1, torch.tensor(response)[:, None])
                groups[-1].logprobs.append(logp.squeeze(-1).tolist())
        return groups


def test_a_mix_of_families_survives_one_whose_every_answer_is_hostile(tmp_path, monkeypatch):
    """Makes impossible: a family that stops, slows or changes the rewards of another, or a reward without its kind."""
    monkeypatch.setattr(train, "TorchEngine", Writer)
    references = {
        "countdown": {"numbers": [1, 1], "target": 2},
        "math": "1/2",
        "code": {"inputs": ["1", "2"], "outputs": ["1", "2"]},
    }
    sources = []
    for kind, reference in references.items():
        path = tmp_path / f"{kind}.jsonl"
        path.write_text(3 * (json.dumps({"prompt": kind, "kind": kind, "reference": reference}) + "\n"))
        sources.append(f"{path}:{1 if kind == 'code' else 2}")
    model = bytes_policy(tmp_path / "policy")
    metrics = run(
        tmp_path, model=model, data=sources, eval_data=[s.rpartition(":")[0] for s in sources], eval_every=0,
        max_response_tokens=128, prompts_per_step=8, verify_timeout=2.0, refill=3.0, allow_weak_sandbox=True,
    )  # fmt: skip
    assert [m["step"] for m in metrics] == [0, 1, 2]
    for m in metrics[1:]:
        assert m["reward/countdown"] == 0.25 and m["reward/math"] == 0.5 and m["reward/code"] == 0.0
        assert m["reason/countdown/correct"] == m["rollouts/countdown"] / 4
        assert m["reason/code/timeout"] >= 1 and m["reason/code/no_answer"] >= 1 and "reason/code/correct" not in m
        assert m["prompts"] == 8
    assert not LEFT_BEHIND.exists()


# ------------------------------------------------------------------------------- engine and trainer, one model


class Off(TorchEngine):
    """An engine whose log-probs are a little off, some of the time."""

    shift = (0.0,)

    def generate(self, *arguments, **sampling):
        groups = super().generate(*arguments, **sampling)
        for group in groups:
            for j, logprobs in enumerate(group.logprobs):
                logprobs[:] = [x + self.shift[(i + j) % len(self.shift)] for i, x in enumerate(logprobs)]
        return groups


@pytest.mark.parametrize(
    ("shift", "limits", "refused"),
    [
        ([0.0], {}, False),
        ([-0.01], {}, True),
        ([float("nan")], {"max_engine_difference": 1.0, "max_engine_kl": 1.0}, True),
        ([0.02] + 39 * [0.0], {}, False),  # 5e-4 on average, 5e-6 of KL
        ([0.1] + 39 * [0.0], {}, True),  # 2.5e-3 on average
        ([-0.01], {"max_engine_difference": 0.1}, False),
        ([-0.3], {"max_engine_difference": 1.0}, True),  # KL 0.05
        ([-0.3], {"max_engine_difference": 1.0, "max_engine_kl": 0.1}, False),
    ],
)
def test_an_engine_that_samples_another_model_is_refused_at_the_start(tmp_path, monkeypatch, shift, limits, refused):
    """Makes impossible: a run on rollouts of another model; one refused for rounding; limits that cannot be moved."""
    monkeypatch.setattr(Off, "shift", shift)
    monkeypatch.setattr(train, "TorchEngine", Off)
    accelerator, c = Accelerator(cpu=True), config(tmp_path, **limits)
    if refused:
        with pytest.raises(ValueError, match=r"does not sample the model that is trained: .*--max_engine_kl"):
            train.set_up(c, accelerator)
    else:
        train.set_up(c, accelerator)


def test_the_comparison_of_the_engines_is_right(tmp_path, monkeypatch, capsys):
    """Makes impossible: the difference of the wrong tokens, or KL in the wrong direction."""
    monkeypatch.setattr(Off, "shift", [-0.3])
    monkeypatch.setattr(train, "TorchEngine", Off)
    train.set_up(config(tmp_path, max_engine_difference=1.0, max_engine_kl=1.0), Accelerator(cpu=True))
    kl = math.exp(0.3) - 1 - 0.3  # k3 of KL(engine, trainer) where the trainer's log-prob is larger by 0.3
    assert f"is 3.0e-01 on average and 3.0e-01 at most, KL {kl:.1e}" in capsys.readouterr().out


def test_the_engine_is_vllm_only_where_it_and_a_gpu_are(monkeypatch):
    """Makes impossible: a laptop's default run that asks for vLLM, or a GPU that is left to plain torch."""
    for gpu, installed, engine in (
        (False, False, "torch"),
        (False, True, "torch"),
        (True, False, "torch"),
        (True, True, "vllm"),
    ):
        monkeypatch.setattr(train, "have_vllm", lambda installed=installed: installed)
        train.resolve(c := Config(), on_gpu=gpu)
        assert c.engine == engine
        train.resolve(c := Config(engine="torch"), on_gpu=gpu)
        assert c.engine == "torch"


def test_vllm_gets_the_settings_of_the_run(tmp_path, monkeypatch):
    """Makes impossible: a group of 1,024 cut in two; a flag that goes nowhere; an engine too short to be evaluated."""
    asked = []
    monkeypatch.setattr(train, "VLLMEngine", lambda model, *rest: asked.append(rest) or TorchEngine(model))
    longer = tmp_path / "longer.jsonl"
    row = {"prompt": "1569:20=" * 4, "kind": "countdown", "reference": {"numbers": [1, 5, 6, 9], "target": 20}}
    longer.write_text(json.dumps(row) + "\n")
    flags = {"gpu_memory_utilization": 0.7, "engine_memory_gib": 3.0, "engine_dtype": "bfloat16", "engine": "vllm"}
    monkeypatch.setattr(train, "check_engine", lambda *a: "not compared")
    for n, limit, most in ((8, None, 512), (1024, None, 1024), (8, 64, 64)):
        flags |= {"rollouts_per_prompt": n, "max_num_seqs": limit}
        c = config(tmp_path, eval_data=[str(longer)], overwrite=True, **flags)
        train.set_up(c, Accelerator(cpu=True))
        assert asked[-1] == (32 + c.max_response_tokens, most, 3.0, 0.7, 1, "bfloat16")
    train.set_up(config(tmp_path, **flags | {"eval_max_response_tokens": 30}, overwrite=True), Accelerator(cpu=True))
    assert asked[-1][0] == 8 + 30  # the 32k of an evaluation, where training's responses are shorter
    train.set_up(config(tmp_path, **flags | {"eval_max_response_tokens": 3}, overwrite=True), Accelerator(cpu=True))
    assert asked[-1][0] == 8 + c.max_response_tokens


class Sleeper(TorchEngine):
    """An engine that knows whether it sleeps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        Sleeper.asleep = False

    def generate(self, *arguments, **sampling):
        assert not Sleeper.asleep
        return super().generate(*arguments, **sampling)

    def sleep(self):
        Sleeper.asleep = True

    def wake(self):
        Sleeper.asleep = False


def test_the_engine_sleeps_while_the_trainer_works(tmp_path, monkeypatch):
    """Makes impossible: engine and trainer in the GPU's memory at once; rollouts from an engine that sleeps."""
    monkeypatch.setattr(train, "TorchEngine", Sleeper)
    score, update, asleep = train.Batch.score, train.update, []
    monkeypatch.setattr(train.Batch, "score", lambda *a: asleep.append(Sleeper.asleep) or score(*a))
    monkeypatch.setattr(train, "update", lambda *a: asleep.append(Sleeper.asleep) or update(*a))
    run(tmp_path)
    assert len(asleep) == 1 + 2 * 3 and all(asleep)  # the first comparison; policy, reference, update in two steps
    assert Sleeper.asleep


def test_a_refused_engine_leaves_no_run_behind(tmp_path, monkeypatch):
    """Makes impossible: an old run deleted for one that does not start, or a folder that the next try trips over."""
    start(config(tmp_path))
    before = (tmp_path / "run/metrics.jsonl").read_text()
    monkeypatch.setattr(Off, "shift", [-0.3])
    monkeypatch.setattr(train, "TorchEngine", Off)
    for changes in ({"overwrite": True}, {"name": "other"}):
        with pytest.raises(ValueError, match="does not sample the model"):
            train.set_up(config(tmp_path, **changes), Accelerator(cpu=True))
    assert (tmp_path / "run/metrics.jsonl").read_text() == before
    assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="does not sample the model"):  # and scores are not believed either
        train.set_up(config(tmp_path, eval_only=True, name="scored"), Accelerator(cpu=True))


def test_without_vllm_the_message_says_what_to_install(tmp_path, monkeypatch):
    """Makes impossible: an ImportError from the middle of a start."""
    monkeypatch.setattr("rollout.have_vllm", lambda: False)
    with pytest.raises(ValueError, match=r"needs the package vllm: pip install -r requirements-gpu\.txt"):
        train.set_up(config(tmp_path, engine="vllm"), Accelerator(cpu=True))
    assert not (tmp_path / "run").exists()


# --------------------------------------------------------------------------- settings and their sources


def test_settings_come_from_flag_then_model_then_recipe(tmp_path):
    """Makes impossible: a flag overruled by a recipe, or a model's measured values ignored."""
    c = Config(model=str(tmp_path), clip_low=0.1)
    measured = {"learning_rate": {"value": 3e-5, "source": "measured"}, "clip_low": {"value": 0.3, "source": "no"}}
    (tmp_path / "recipe.json").write_text(json.dumps({"brorl": measured}))
    sources = train.resolve(c)
    assert (c.clip_low, c.learning_rate, c.rollouts_per_prompt) == (0.1, 3e-5, 512)
    assert sources["learning_rate"] == "recipe.json: measured" and "clip_low" not in sources
    assert sources["rollouts_per_prompt"].startswith("--recipe brorl: section 4.2.1")
    assert all(getattr(c, name) is not None for name in brorl.BRORL)


def test_a_changed_batch_takes_its_learning_rate_along():
    """Makes impossible: N halved and the rate of the whole batch kept, or a rate given by hand scaled."""
    c = Config(model="nowhere", rollouts_per_prompt=128)
    sources = train.resolve(c)
    assert c.learning_rate == pytest.approx(brorl.BRORL["learning_rate"].value / 2, rel=1e-12)
    assert sources["learning_rate"].startswith("2.82843e-06 x sqrt(16,384 / 65,536 samples), section 4.2.1")
    train.resolve(c := Config(model="nowhere", rollouts_per_prompt=128, learning_rate=1e-5))
    assert c.learning_rate == 1e-5
    train.resolve(c := Config(model="nowhere"))
    assert c.learning_rate == brorl.BRORL["learning_rate"].value


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"brorl": {"clip_low": 0.1}}', '{"brorl": [1]}', '{"brorl": {"clip_low": {}}}']
)
def test_a_broken_recipe_file_is_named(tmp_path, text):
    """Makes impossible: a traceback, or the file ignored."""
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(ValueError, match=r"recipe\.json is not of the form"):
        train.resolve(Config(model=str(tmp_path)))


def test_the_tiny_recipe_names_real_settings():
    """Makes impossible: a typing error in tiny/policy/recipe.json, or a value without a reason."""
    names = {f.name for f in dataclasses.fields(Config)}
    recipes = json.loads((TINY / "policy/recipe.json").read_text())
    assert set(recipes) == set(brorl.RECIPES)
    for recipe in recipes.values():
        assert set(recipe) <= names and all(len(x["source"]) > 10 for x in recipe.values())


def test_a_typing_error_in_a_models_recipe_is_named(tmp_path):
    """Makes impossible: a misspelt measured value silently replaced by the recipe's."""
    (tmp_path / "recipe.json").write_text('{"brorl": {"learning_rte": {"value": 1, "source": "x"}}}')
    with pytest.raises(ValueError, match="unknown settings \\['learning_rte'\\]"):
        train.resolve(Config(model=str(tmp_path)))
    (tmp_path / "recipe.json").write_text('{"brorl": {"learning_rate": {"value": "1e-4", "source": "x"}}}')
    with pytest.raises(ValueError, match="\\['learning_rate'\\] must be of the same type"):
        train.resolve(Config(model=str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recipe": "grpo"}, "--recipe grpo: choose one of brorl, prorl"),
        ({"rollouts_per_prompt": 1}, "at least 2"),
        ({"prompts_per_step": 0}, "--prompts_per_step 0"),
        ({"prompts_per_step": 5000}, "exceeds the 4096 training problems"),
        ({"updates_per_step": 33}, "32 rollouts do not fill --updates_per_step 33"),
        ({"updates_per_step": 0}, "--updates_per_step 0"),
        ({"learning_rate": 0.0}, "--learning_rate 0.0"),
        ({"learning_rate": math.inf}, "--learning_rate inf: must be a finite number"),
        ({"clip_low": 1.0}, "--clip_low 1.0"),
        ({"clip_high": 0.0}, "--clip_high 0.0"),
        ({"kl": "k4"}, "--kl k4: choose one of k1, k2, k3"),
        ({"kl_coef": -1.0}, "--kl_coef -1.0"),
        ({"tis_cap": 0.5}, "--tis_cap 0.5"),
        ({"temperature": 0.0}, "--temperature 0.0"),
        ({"top_p": 0.9}, "--top_p 0.9"),
        ({"refill": 0.5}, "--refill 0.5"),
        ({"reference_reset_steps": -1}, "--reference_reset_steps -1"),
        ({"max_response_tokens": 0}, "--max_response_tokens 0"),
        ({"max_response_tokens": 2000}, "train.jsonl, problem 1: .* exceed the model's 1024 positions"),
        ({"eval_temperature": 0.0}, "set --eval_samples 1"),
        ({"eval_top_p": 0.0}, "--eval_top_p 0.0"),
        ({"max_hours": -1.0}, "must be positive"),
        ({"max_steps": 0}, "must be positive; to score without training there is --eval_only"),
        ({"max_grad_norm": -1.0}, "--max_grad_norm -1.0"),
        ({"weight_decay": -1.0}, "--weight_decay -1.0"),
        ({"samples_per_step": -1}, "--samples_per_step -1"),
        ({"seed": -1}, "--seed -1"),
        ({"engine_memory_gib": 0.0}, "--engine_memory_gib 0.0"),
        ({"name": "../elsewhere"}, "must be the plain name of a folder"),
        ({"name": ".."}, "must be the plain name of a folder"),
        ({"eval_data": None}, "--data without --eval_data"),
        ({"model": "/nowhere"}, "--model /nowhere is no folder here"),
        ({"model": "."}, "has no config.json"),
        ({"output_dir": __file__}, "cannot be written to"),
        ({"save_every": 0}, "--save_every"),
        ({"max_skipped_updates": 0}, "--max_skipped_updates 0"),
        ({"spike": 0.5}, "--spike 0.5: must be 0"),
        ({"spike": 0.0, "skip_spikes": True}, "--skip_spikes has nothing to skip"),
        ({"report_to": "mlflow"}, "--report_to mlflow: choose one of tensorboard, wandb"),
        ({"verify_workers": 0}, "--verify_workers 0"),
        ({"verify_timeout": 0.0}, "--verify_timeout 0.0"),
        ({"share_prefix": "maybe"}, "--share_prefix maybe: choose auto, on or off"),
        ({"engine": "sglang"}, "--engine sglang"),
        (
            {"tensor_parallel_size": 2},
            "--tensor_parallel_size, --max_num_seqs and --engine_dtype belong to --engine vllm",
        ),
        ({"max_num_seqs": 256}, "belong to --engine vllm"),
        ({"engine_dtype": "bfloat16"}, "belong to --engine vllm"),
        ({"engine": "vllm", "tensor_parallel_size": 2}, "--tensor_parallel_size 2 does not divide 1 process"),
        ({"engine": "vllm", "tensor_parallel_size": 0}, "--tensor_parallel_size 0"),
        ({"engine": "vllm", "max_num_seqs": 0}, "--max_num_seqs 0"),
        ({"engine": "vllm", "temperature": 2.5}, "--temperature 2.5, .* vLLM takes 0, or 0.01 to 2"),
        ({"engine": "vllm", "eval_temperature": 0.001}, "--eval_temperature 0.001: vLLM takes"),
        ({"gpu_memory_utilization": 1.0}, "--gpu_memory_utilization 1.0"),
        ({"max_engine_difference": 0.0}, "--max_engine_difference and --max_engine_kl must be positive"),
        ({"max_engine_kl": -1.0}, "--max_engine_difference and --max_engine_kl must be positive"),
        ({"resume": True, "overwrite": True}, "choose one"),
        ({"resume": True}, "there is no run at"),
        ({"data": ["nowhere.jsonl"]}, "no problems at .*nowhere.jsonl"),
    ],
)
def test_contradictory_settings_are_refused_at_the_start(tmp_path, changes, says):
    """Makes impossible: a run that dies at step 900 for what step 0 could have known, or leaves a folder behind."""
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        run(tmp_path, **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "precision", "fsdp", "says"),
    [
        ("DEEPSPEED", "no", {}, "Accelerate is set to DEEPSPEED"),
        ("MULTI_GPU", "fp16", {}, "mixed precision fp16: .* start it with --mixed_precision bf16"),
        ("FSDP", "bf16", {"fsdp_version": 1}, "write fsdp_version: 2"),
        ("FSDP", "bf16", {"cpu_ram_efficient_loading": True}, "fsdp_cpu_ram_efficient_loading: false"),
        ("FSDP", "bf16", {}, None),
        ("MULTI_GPU", "bf16", {}, None),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(kind, precision, fsdp, says):
    """Makes impossible: weights on one process only, losses without their scale, or a sharding nobody tested."""
    plugin = SimpleNamespace(fsdp_version=2, cpu_ram_efficient_loading=False)
    plugin.__dict__.update(fsdp)
    accelerator = SimpleNamespace(
        num_processes=2, distributed_type=DistributedType(kind), device=torch.device("cuda"),
        mixed_precision=precision, is_fsdp2=plugin.fsdp_version == 2, gradient_accumulation_steps=1,
        state=SimpleNamespace(fsdp_plugin=plugin),
    )  # fmt: skip
    c = Config()
    train.resolve(c)
    with pytest.raises(ValueError, match=says) if says else nullcontext():
        train.check(c, 4096, accelerator)


def test_a_run_that_cannot_fit_is_refused_with_the_setting_to_change(tmp_path, monkeypatch):
    """Makes impossible: an out-of-memory error after an hour that the first second could have foreseen."""
    monkeypatch.setattr(train, "memory_now", lambda device: (2**30, 2**20))
    with pytest.raises(
        ValueError, match=r"beside what it has, and 1 MiB are free. The largest part is the \w+ .*: .*lower"
    ):
        run(tmp_path, max_tokens_per_micro_batch=10**9, rollouts_per_prompt=4096)
    assert not (tmp_path / "run").exists()


def test_the_memory_estimate_by_parts():
    """Makes impossible: a part forgotten, counted twice, or not divided among processes that share it."""
    policy, engine = Policy(loaded()[0]), TorchEngine(loaded()[0])
    alone = SimpleNamespace(num_processes=1, device=torch.device("cpu"), distributed_type=DistributedType.NO,
                            autocast=nullcontext)  # fmt: skip
    sharded = SimpleNamespace(**alone.__dict__ | {"num_processes": 4, "distributed_type": DistributedType.FSDP})

    def estimate(accelerator=alone, **changes):
        c = Config(**changes)
        train.resolve(c)
        return train.memory_estimate(c, policy, engine, 9, accelerator)

    weights = 4 * sum(p.numel() for p in policy.parameters()) / 2**30
    plain, four = estimate(), estimate(sharded)
    assert plain.always["optimizer"] == pytest.approx(2 * weights) and plain.always["reference"] == weights
    assert estimate(kl_coef=0.0).always["reference"] == 0
    assert four.always["optimizer"] == pytest.approx(weights / 2) and four.updating["gradients"] == weights / 4
    assert four.always["rollouts"] == pytest.approx(plain.always["rollouts"] / 4)
    two, one = (estimate(max_tokens_per_micro_batch=x).updating["activations"] for x in (16384, 8192))
    assert one == pytest.approx(two / 2)
    assert estimate(gradient_checkpointing=True).updating["activations"] < plain.updating["activations"]
    stages = [sum(plain.rolling_out.values()), sum(plain.updating.values())]
    assert plain.peak == sum(plain.always.values()) + sum(stages)
    assert plain._replace(keeps=False).peak == sum(plain.always.values()) + max(stages)


def test_a_way_back_holds_a_layers_gradients_too():
    """Makes impossible: activations without the gradients of the layer that is on its way back.

    The embedded policy has two layers of 64: a token's gradients take half of what its two layers keep.
    """
    alone = SimpleNamespace(num_processes=1, device=torch.device("cpu"), distributed_type=DistributedType.NO,
                            autocast=nullcontext)  # fmt: skip
    policy, engine = Policy(loaded()[0]), TorchEngine(loaded()[0])
    kept = train.activation_bytes(policy, alone)
    for checkpointing, bytes in ((False, kept + kept / 2), (True, kept / 2 + 4 * 2 * 64 + kept / 2)):
        c = Config(max_tokens_per_micro_batch=1000, gradient_checkpointing=checkpointing)
        train.resolve(c)
        estimate = train.memory_estimate(c, policy, engine, 9, alone)
        assert estimate.updating["activations"] == pytest.approx(1000 * bytes / 2**30, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "processes", "local", "gib"),
    [("cpu", 1, None, 8), ("cpu", 4, None, 2), ("cpu", 4, "2", 4), ("cuda", 4, "4", 8)],
)
def test_processes_of_one_machine_share_what_it_has_left(monkeypatch, kind, processes, local, gib):
    """Makes impossible: processes that each count on all of a machine's memory; a GPU divided among its neighbours."""
    monkeypatch.setattr(train, "memory_now", lambda device: (0, 8 * 2**30))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    accelerator = SimpleNamespace(num_processes=processes, device=torch.device(kind), autocast=nullcontext,
                                  distributed_type=DistributedType.NO)  # fmt: skip
    train.resolve(c := Config())
    estimate = train.memory_estimate(c, Policy(loaded()[0]), TorchEngine(loaded()[0]), 9, accelerator)
    assert estimate.left == gib


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path):
    """Makes impossible: a traceback for a typing error on the command line."""
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", "--rollouts_per_prompt", "1", "--output_dir", tmp_path],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "at least 2" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_flag_is_named_with_its_neighbour():
    """Makes impossible: a misspelt flag ignored, or answered by a traceback."""
    done = subprocess.run([sys.executable, ROOT / "train.py", "--learning_rte=1"], capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean --learning_rate?" in done.stderr and "Traceback" not in done.stderr


def test_overwrite_deletes_runs_only(tmp_path):
    """Makes impossible: somebody's thesis deleted because it had a run's name."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("mine")
    for changes in ({}, {"overwrite": True}):
        with pytest.raises(ValueError, match="is there and is no run"):
            run(tmp_path, **changes)
    assert (tmp_path / "run/thesis.txt").read_text() == "mine"


def test_a_resumed_run_keeps_what_was_not_given_and_refuses_what_differs(tmp_path):
    """Makes impossible: a flag given at its default value taken for one that was not given."""
    run(tmp_path, max_steps=1, max_grad_norm=0.5)
    again = {"resume": True, "name": "run", "output_dir": str(tmp_path)}
    train.resolve(c := Config(**again))
    assert c.max_grad_norm == 0.5
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ValueError, match=r"max_grad_norm: 0\.5 -> 1\.0"):
        train.set_up(Config(**again, max_grad_norm=1.0), accelerator, given={*again, "max_grad_norm"})


def test_another_budget_replaces_the_recipes_steps():
    """Makes impossible: --max_hours 100 ended by the recipe's 191 steps."""
    for changes in ({"max_hours": 100.0}, {"max_samples": 10**9}):
        train.resolve(c := Config(model="nowhere", **changes))
        assert c.max_steps is None
    train.resolve(c := Config(model="nowhere", max_hours=1.0, max_steps=7))
    assert c.max_steps == 7


def test_an_existing_run_is_not_overwritten_by_accident(tmp_path):
    """Makes impossible: losing a run to a second start, or resuming it under other settings."""
    run(tmp_path, max_steps=1)
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="--resume it, --overwrite it, or choose another --name"):
        run(tmp_path)
    with pytest.raises(ValueError, match=r"learning_rate: 0\.0001 -> 0\.5"):
        run(tmp_path, resume=True, learning_rate=0.5)
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before
    assert len(run(tmp_path, overwrite=True, max_steps=1)) == 2


# ---------------------------------------------------------------------------------- dynamic sampling


class Scripted(TorchEngine):
    """Answers problems from a script: per prompt, how many of the n responses are the given correct text."""

    def __init__(self, model, memory_gib=1.0):
        super().__init__(model, memory_gib)
        self.asked = []

    def generate(self, prompts, n, *, max_new_tokens, on_progress=None, **sampling):
        tokenizer, groups = loaded()[1], []
        for prompt in prompts:
            self.asked.append(tokenizer.decode(prompt))
            right = Scripted.correct(self.asked[-1], n)
            texts = ["1+1"] * right + ["1+2"] * (n - right)
            responses = [[*tokenizer(t).input_ids, tokenizer.eos_token_id] for t in texts]
            groups.append(Group(prompt, responses, [[-1.0] * 4] * n, ["stop"] * n))
        return groups


def scripted(tmp_path, monkeypatch, correct, problems=12, **changes):
    """A run over problems `k=`, of whose n responses `correct(k, n)` are right."""
    rest = {"kind": "countdown", "reference": {"numbers": [1, 1], "target": 2}}
    path = tmp_path / "scripted.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{k}="} | rest) + "\n" for k in range(problems)))
    engines = []
    monkeypatch.setattr(Scripted, "correct", staticmethod(lambda text, n: correct(int(text[:-1]), n)), raising=False)
    monkeypatch.setattr(train, "TorchEngine", lambda *a: engines.append(Scripted(*a)) or engines[-1])
    monkeypatch.setattr(train, "check_engine", lambda *a: "its log-probs are made up")
    metrics = run(tmp_path, data=[str(path)], eval_data=[str(path)], eval_every=0, **changes)
    return metrics, engines[0].asked[problems:]


def test_refilling_is_prompt_by_prompt(tmp_path, monkeypatch):
    """Makes impossible: a step with fewer prompts than B while others are left, or more generated than needed.

    Even problems are informative. Each round asks for as many prompts as are still missing.
    """
    metrics, asked = scripted(tmp_path, monkeypatch, lambda k, n: 3 if k % 2 == 0 else 0, max_steps=1)
    order = [f"{i}=" for i in Cursor(12, 0).take(12)]
    even, tried = 0, 0
    while (missing := 4 - even) > 0:
        even += sum(int(x[:-1]) % 2 == 0 for x in order[tried : tried + missing])
        tried += missing
    assert asked[:tried] == order[:tried] and len(asked) == tried + 12  # the last 12: the final evaluation
    assert metrics[1]["prompts"] == 4 and metrics[1]["pass_rate"] == 4 / tried and metrics[1]["samples"] == 8 * tried


def test_a_step_without_informative_prompts_goes_on(tmp_path, monkeypatch):
    """Makes impossible: a run ended by "generated too many", an endless refill, an update on no data."""
    metrics, asked = scripted(tmp_path, monkeypatch, lambda k, n: n, refill=2.0)
    assert [m["prompts"] for m in metrics[1:]] == [0, 0] and "loss" not in metrics[1]
    assert len(asked) == 2 * 8 + 12


def test_a_step_with_too_few_prompts_goes_on_with_these(tmp_path, monkeypatch):
    """Makes impossible: a step skipped although one prompt had signal."""
    metrics, _ = scripted(tmp_path, monkeypatch, lambda k, n: 1 if k == 3 else 0, refill=3.0, max_steps=1)
    assert metrics[1]["prompts"] == 1 and metrics[1]["tokens"] == 8 * 4


def test_cursor_visits_every_problem_once_an_epoch_and_resumes():
    """Makes impossible: a problem skipped or repeated at an epoch's end or after a resume."""
    a, b = Cursor(10, 3), Cursor(10, 3)
    taken = [a.take(k) for k in (7, 6, 7)]
    flat = [i for part in taken for i in part]
    assert sorted(flat[:10]) == sorted(flat[10:]) == list(range(10)) and flat[:10] != flat[10:]
    b.load_state_dict({"position": 7})
    assert [b.take(6), b.take(7)] == taken[1:]
    assert Cursor(10, 4).take(10) != flat[:10]


@pytest.mark.parametrize(
    ("limits", "spent"),
    [
        ({"max_steps": 5}, True),
        ({"max_steps": 6}, False),
        ({"max_samples": 100}, True),
        ({"max_samples": 101, "max_steps": 6}, False),
        ({"max_hours": 2.0}, True),
        ({"max_hours": 2.1}, False),
    ],
)
def test_the_first_spent_budget_ends_the_run(limits, spent):
    """Makes impossible: a budget in other units, or one that is off by one."""
    assert Progress(step=5, samples=100, seconds=7200.0).spent(Config(**limits)) is spent


# ---------------------------------------------------------------------------------- scoring and updating


def test_the_trainer_scores_what_the_engine_sampled():
    """Makes impossible: a temperature, mask or position in which trainer and engine differ; EOS = PAD included."""
    groups, advantages = rollouts()
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    logp, entropy = batch.score(Policy(loaded()[0]), 3.0, budget=500)
    inside = batch.inside(torch.arange(len(batch)))
    assert len(batch.response_lengths.unique()) > 2
    torch.testing.assert_close(logp[inside], batch.engine_logp[inside], atol=2e-5, rtol=0)
    assert entropy / inside.sum() == pytest.approx(-logp[inside].mean().item(), rel=0.2)


def test_micro_batches_keep_to_their_budget_and_lose_nothing():
    """Makes impossible: a micro-batch beyond its budget, a rollout trained on twice or not at all."""
    groups, advantages = rollouts()
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    rows = torch.randperm(len(batch))[:50]
    parts = batch.micro_batches(rows, 100)
    assert sorted(torch.cat(parts).tolist()) == sorted(rows.tolist())
    for part in parts:
        assert len(part) * (batch.prompt_lengths + batch.response_lengths)[part].max() <= 100
    assert [len(p) for p in batch.micro_batches(rows, 1)] == [1] * 50


@pytest.mark.parametrize("budget", [60, 500])
def test_the_gradient_does_not_depend_on_micro_batches(budget):
    """Makes impossible: normalising by a micro-batch's tokens, or padding that leaks into the gradient."""
    groups, advantages = rollouts()

    def step(budget):
        torch.manual_seed(0)
        policy = Policy(loaded()[0].double())
        batch = Batch.of(groups, advantages.double(), torch.device("cpu"))
        batch.old_logp, _ = batch.score(policy, 3.0, 10**6)
        batch.ref_logp = batch.old_logp - 0.1
        accelerator = Accelerator(cpu=True)
        optimizer = accelerator.prepare(torch.optim.SGD(policy.parameters(), lr=1.0))
        c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl="k2", kl_coef=0.1, tis_cap=2.0, updates_per_step=1,
                   max_tokens_per_micro_batch=budget, max_grad_norm=1e9)  # fmt: skip
        before = [p.detach().clone() for p in policy.parameters()]
        metrics = train.update(policy, optimizer, batch, c, accelerator, Progress())
        return [b - p.detach() for b, p in zip(before, policy.parameters(), strict=True)], metrics

    whole, m1 = step(10**6)
    split, m2 = step(budget)
    for a, b in zip(whole, split, strict=True):
        assert (a - b).norm() <= 1e-6 * a.norm()
    assert {k: pytest.approx(v, rel=1e-4, abs=1e-6) for k, v in m1.items()} == m2


def test_a_mini_batch_without_rollouts_takes_no_step():
    """Makes impossible: an optimizer step on no data, of momentum and weight decay alone."""
    groups, advantages = rollouts(1)
    policy, steps = Policy(loaded()[0]), []
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    optimizer.register_step_post_hook(lambda *a: steps.append(1))
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=9)
    train.update(policy, optimizer, batch, c, Accelerator(cpu=True), Progress())
    assert len(steps) == 6


def test_a_gradient_that_is_not_finite_changes_nothing():
    """Makes impossible: one NaN that destroys the weights."""
    groups, advantages = rollouts(4)
    policy = Policy(loaded()[0])
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp.clone()
    batch.old_logp[0, 0] = math.nan
    accelerator = Accelerator(cpu=True)
    optimizer = accelerator.prepare(torch.optim.SGD(policy.parameters(), lr=1.0))
    before = [p.detach().clone() for p in policy.parameters()]
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=1)
    assert train.update(policy, optimizer, batch, c, accelerator, Progress())["updates_skipped"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_the_largest_gradient_norm_is_the_largest(monkeypatch):
    """Makes impossible: grad_norm_max as the last norm of a step, or the smallest."""
    groups, advantages = rollouts(4)
    policy, accelerator, norms = Policy(loaded()[0]), Accelerator(cpu=True), iter([2.0, 5.0, 0.5, 2.5])
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp
    monkeypatch.setattr(accelerator, "clip_grad_norm_", lambda parameters, most: next(norms))
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=4)
    optimizer, progress = torch.optim.SGD(policy.parameters(), lr=0.0), Progress()
    metrics = train.update(policy, optimizer, batch, c, accelerator, progress)
    assert metrics["grad_norm_max"] == 5.0 and metrics["grad_norm"] == 2.5
    assert progress.norms == [2.0, 5.0, 0.5, 2.5]


def test_dropout_is_off():
    """Makes impossible: old, new and engine log-probs from differently thinned networks."""
    gpt2 = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=13, n_embd=32, n_layer=1, n_head=4, n_positions=32))
    llama = AutoModelForCausalLM.from_config(
        LlamaConfig(vocab_size=13, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
                    attention_dropout=0.5)
    )  # fmt: skip
    for model in (gpt2, llama):
        policy = Policy(model).train()
        tokens = torch.randint(13, (2, 10))
        two = torch.tensor([2, 2]), torch.tensor([8, 8])
        assert torch.equal(policy(tokens, *two, 1.0)[0], policy(tokens, *two, 1.0)[0])


def test_a_model_that_caps_its_logits_is_refused():
    """Makes impossible: training on log-probs that are not the model's."""
    capped = Gemma2Config(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, final_logit_softcapping=0.5, pad_token_id=0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(capped)
    torch.nn.init.normal_(model.get_output_embeddings().weight)
    with pytest.raises(ValueError, match="changes its logits after the output head"):
        Policy(model).check_head()
    Policy(loaded()[0]).check_head()


# ------------------------------------------------------------------------------------------- evaluation


def test_evaluation_by_hand(tmp_path, monkeypatch):
    """Makes impossible: "any of the first k" as pass@k, a standard error over responses, rewards of other problems.

    Three problems with 0, 1 and 4 of 4 correct: pass@1 = 5/12; pass@4 = 2/3; s.e. = std([0, 1/4, 1]) / sqrt(3).
    """
    metrics, _ = scripted(tmp_path, monkeypatch, lambda k, n: [0, 1, 4][k] if n == 4 else 1, problems=3,
                          prompts_per_step=2, max_steps=1)  # fmt: skip
    m = metrics[0]
    assert m["eval/pass@1"] == pytest.approx(5 / 12) and m["eval/pass@4"] == pytest.approx(2 / 3)
    assert m["eval/pass@1_se"] == pytest.approx(torch.tensor([0, 0.25, 1.0]).std().item() / 3**0.5)
    assert m["eval/response_tokens"] == 4 and m["eval/truncated"] == 0


def test_a_prompt_that_the_tokenizer_cannot_write_is_refused(tmp_path):
    """Makes impossible: a policy asked another question than the problem's, characters having been left out."""
    with pytest.raises(ValueError, match=r"one\.jsonl, problem 1: the tokenizer has no token for a x"):
        train.load(loaded()[1], [write_problem(tmp_path, "ax=12")], 8, 1024)


def write_problem(folder, prompt) -> str:
    path = folder / "one.jsonl"
    path.write_text(json.dumps({"prompt": prompt, "kind": "countdown", "reference": {"numbers": [1, 2], "target": 3}}))
    return str(path)


def test_chat_prompts_use_the_models_template(tmp_path):
    """Makes impossible: a chat flattened by hand, or refused only when its step comes."""
    tokenizer, path = loaded()[1], write_problem(tmp_path, [{"role": "user", "content": "12"}])
    with pytest.raises(ValueError, match="problem 1 is a chat, and this tokenizer has no chat template"):
        train.load(tokenizer, [path], 8, 1024)
    loop = "{% for m in messages %}({{ m['content'] }}){% endfor %}"
    tokenizer.chat_template = loop + "{% if add_generation_prompt %}={% endif %}"
    _, (tokens,) = train.load(tokenizer, [path], 8, 1024)
    assert tokenizer.decode(tokens) == "(12)="


def test_group_advantages_meet_their_own_tokens():
    """Makes impossible: rollouts paired with another group's advantage on the way into the batch."""
    groups, _ = rollouts(5)
    rewards = torch.rand(5, 6)
    batch = Batch.of(groups, L.group_advantages(rewards), torch.device("cpu"))
    for s, (i, j) in enumerate((i, j) for i in range(5) for j in range(6)):
        whole = groups[i].prompt + groups[i].responses[j]
        assert batch.tokens[s, : len(whole)].tolist() == whole
        assert batch.advantages[s] == rewards[i, j] - rewards[i].mean()
        assert batch.engine_logp[s, : len(groups[i].responses[j])].tolist() == pytest.approx(groups[i].logprobs[j])


# ------------------------------------------------------------------------------------- Theorem 1 on the policy


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("budget", [10_000, 30, 14])
def test_next_token_is_the_softmax_after_each_prefix(shares, budget):
    """Makes impossible: a softmax of another prefix, of another temperature, or one that padding got into."""
    model, tokenizer = loaded()
    policy = Policy(model)
    if shares:
        policy.share("on")
    prompt = tokenizer("1234:10=").input_ids
    prefixes = [(), (3,), (3, 12), (4,), (3, 12, 5, 13, 7)]
    got = policy.next_token(prompt, prefixes, 0.7, budget)
    for p, prefix in zip(got, prefixes, strict=True):
        logits = model(input_ids=torch.tensor([[*prompt, *prefix]])).logits[0, -1]
        torch.testing.assert_close(p, (logits / 0.7).softmax(-1), rtol=1e-4, atol=1e-6)


def test_the_learning_rate_warms_up_and_resumes(tmp_path):
    """Makes impossible: a warm-up by steps instead of updates, one that starts over on resuming, one by default."""
    plain = run(tmp_path, name="plain", max_steps=3)
    warm = run(tmp_path, name="warm", max_steps=3, warmup_updates=5)
    assert "learning_rate" not in plain[1]
    rates = [row["learning_rate"] for row in warm[1:]]  # two updates a step: after the 2nd, 4th and 6th
    assert rates == pytest.approx([1e-4 * x for x in (0.4, 0.8, 1.0)])
    assert warm[1]["grad_norm"] != plain[1]["grad_norm"]
    run(tmp_path, name="parts", max_steps=1, warmup_updates=5)
    parts = run(tmp_path, name="parts", max_steps=3, warmup_updates=5, resume=True)
    last = {k: v for k, v in parts[-1].items() if not k.startswith("eval/")}
    assert last == {k: v for k, v in warm[-1].items() if not k.startswith("eval/")}


def test_a_run_can_start_with_another_runs_moments(tmp_path):
    """Makes impossible: fresh moments in spite of --optimizer_from, or the other run's learning rate with them."""
    run(tmp_path, name="first", max_steps=2)
    model, checkpoint = str(tmp_path / "first/model"), tmp_path / "first/checkpoints/step_00000002"
    c = config(tmp_path, name="second", model=model, learning_rate=3e-4, optimizer_from=str(checkpoint), recipe="prorl")
    setup = train.set_up(c, Accelerator(cpu=True))
    saved = torch.load(checkpoint / "optimizer.bin", weights_only=True)
    own = setup.optimizer.state_dict()
    assert own["param_groups"][0]["lr"] == 3e-4 != saved["param_groups"][0]["lr"]
    assert len(own["state"]) == len(saved["state"]) > 10
    for i, moments in saved["state"].items():
        assert own["state"][i]["step"] == 4  # two steps of two updates
        assert torch.equal(own["state"][i]["exp_avg"], moments["exp_avg"]) and moments["exp_avg"].any()
        assert torch.equal(own["state"][i]["exp_avg_sq"], moments["exp_avg_sq"])
    again = {"name": "kept", "model": model, "optimizer_from": str(checkpoint), "max_steps": 3}
    whole = run(tmp_path, **again | {"name": "whole"})
    run(tmp_path, **again | {"max_steps": 1})
    checkpoint.rename(moved := tmp_path / "moved")
    assert run(tmp_path, **again, resume=True)[1:] == [r for r in whole[1:] if r["step"] <= 3]  # it has its own by now
    moved.rename(checkpoint)
    for folder, says in ((tmp_path, "has no optimizer.bin: name a checkpoint"), (checkpoint, "is damaged")):
        (checkpoint / "random_states_0.pkl").unlink(missing_ok=True)
        with pytest.raises(ValueError, match=says):
            train.set_up(config(tmp_path, name="third", model=model, optimizer_from=str(folder)), Accelerator(cpu=True))
    with pytest.raises(ValueError, match="has not the moments of these weights"):
        (checkpoint / "files.json").write_text("{}")
        train.load_moments(torch.optim.AdamW([torch.zeros(3, requires_grad=True)]), checkpoint)


def test_the_probe_changes_nothing_and_says_everything(tmp_path):
    """Makes impossible: a probe that draws, trains or leaves something behind; a metric that some steps lack."""
    plain, watched = run(tmp_path / "a"), run(tmp_path / "b", log_mass_balance=True)
    names = {k for row in watched for k in row if k.startswith("mass_balance/")}
    assert len(names) == 9
    for before, after in zip(plain, watched, strict=True):
        assert before == {k: v for k, v in after.items() if k not in names}
        assert not before["step"] or names <= after.keys()
    for row in watched[1:]:
        parts = [row[f"solved/{part}"] for part in train.SOLVED]
        assert sum(parts) == pytest.approx(1) and 1 - parts[0] - parts[-1] == pytest.approx(row["pass_rate"])


@pytest.mark.parametrize("of", ["rollouts", "prompts"])
def test_mini_batches(of):
    """Makes impossible: a rollout that is trained twice or never, or a prompt that --mini_batches prompts cuts up."""
    made = [Group([1, 2], [[3 + i]] * 6, [[0.0]] * 6, ["stop"] * 6) for i in range(10)]
    batch = Batch.of(made, torch.zeros(60), torch.device("cpu"))
    parts = batch.mini_batches(4, of, torch.Generator().manual_seed(0))
    assert sorted(torch.cat(parts).tolist()) == list(range(60)) and len(parts) == 4
    whole = [len(part) == 6 * len(batch.prompts[part].unique()) for part in parts]
    assert all(whole) if of == "prompts" else not any(whole)
    other = batch.mini_batches(4, of, torch.Generator().manual_seed(1))
    assert {*batch.prompts[parts[0]].tolist()} != {*batch.prompts[other[0]].tolist()} or of == "rollouts"
    few = Batch.of(made[:3], torch.zeros(18), torch.device("cpu"))
    assert [len(part) for part in few.mini_batches(4, "prompts", torch.Generator())] == [6, 6, 6, 0]
    assert [*map(len, Batch.of([], torch.zeros(0), torch.device("cpu")).mini_batches(3, of, torch.Generator()))] == [
        0,
        0,
        0,
    ]


def test_the_problems_are_held_out_and_solvable():
    """Makes impossible: a test problem in the training set, or a target that no expression reaches."""
    train_set, test_set = (load_problems(TINY / f"{x}.jsonl") for x in ("train", "test"))
    assert len(train_set) == 4096 and len(test_set) == 512
    key = lambda p: (tuple(sorted(p.reference["numbers"])), p.reference["target"])  # noqa: E731
    assert len({*map(key, train_set)}) == 4096 and not {*map(key, train_set)} & {*map(key, test_set)}
    sys.path.insert(0, str(TINY))
    from make import Universe

    universe = Universe()
    solvable = {(tuple(universe.multisets[m].tolist()), t) for m, t in universe.problems.tolist()}
    assert {*map(key, train_set), *map(key, test_set)} <= solvable


def test_the_maker_makes_a_policy_and_problems(tmp_path):
    """Makes impossible: a script that no longer makes what the project ships."""
    few = ["--steps", "3", "--batch", "8", "--train", "20", "--test", "5"]
    subprocess.run([sys.executable, TINY / "make.py", "--out", tmp_path, *few], check=True, capture_output=True)
    assert len(load_problems(tmp_path / "train.jsonl")) == 20 and len(load_problems(tmp_path / "test.jsonl")) == 5
    shipped, made = loaded()[0], AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert [p.shape for p in made.parameters()] == [p.shape for p in shipped.parameters()]
    whole = subprocess.run(
        [sys.executable, TINY / "make.py", "--out", tmp_path / "b", "--steps", "0"], capture_output=True, text=True
    )
    assert whole.returncode == 0, whole.stderr
    for name in ("train.jsonl", "test.jsonl"):
        assert (tmp_path / "b" / name).read_bytes() == (TINY / name).read_bytes()
