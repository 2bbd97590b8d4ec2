"""Section 4.2: the loop, its roll-out, update and evaluation, with the embedded policy and with stub engines."""

import dataclasses
import json
import math
import os
import tempfile
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from helpers import CPU, TINY, config, furthest, lines, loaded, rollouts, run
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

import loss as L
import train
from rollout import Group, TorchEngine
from trainer.batch import Batch
from trainer.checks import resolve
from trainer.metrics import SOLVED, score, troubles
from trainer.policy import Policy
from trainer.progress import Cursor, Progress
from trainer.rollouts import TrainingGroups, round_width
from trainer.settings import MEMORY_OF_NORMS, Config

# ------------------------------------------------------------------------------------------------------ whole runs


def test_the_same_seed_twice_gives_the_same_metrics_file(tmp_path, finished):
    """Makes impossible: an unseeded draw, a clock in the metrics, another seed that changes nothing."""
    run(tmp_path / "again")
    run(tmp_path / "other", seed=1)
    a, b, c = (
        (folder / "run/metrics.jsonl").read_bytes() for folder in (finished, tmp_path / "again", tmp_path / "other")
    )
    assert a == b != c


def test_what_a_run_writes(finished):
    """Makes impossible: a metric that is missing, a score that is not the saved model's, an unreadable model."""
    folder = finished / "run"
    metrics = lines(folder / "metrics.jsonl")
    assert [m["step"] for m in metrics] == [0, 1, 2]
    for m in metrics[1:]:
        assert m["prompts"] == 4 and 0 < m["pass_rate"] <= 1
        assert m["samples"] % 8 == 0 and sum(v for k, v in m.items() if k.startswith("reason/")) > 0
        for name in ("reward", "loss", "grad_norm", "entropy", "clip_high_fraction", "ratio_max", "kl_ref", "tokens"):
            assert math.isfinite(m[name])
        assert m["engine_ratio"] == pytest.approx(1, abs=1e-4) and m["engine_kl"] < 1e-8
        assert 0.3 < m["entropy"] < m["nll"] * 3
    assert metrics[2]["reference_reset"] == 1 and "reference_reset" not in metrics[1]
    timing = lines(folder / "timing.jsonl")
    assert [row["step"] for row in timing] == [1, 2]
    assert all(
        {"seconds", "samples_per_second", "roll_out", "score", "update", "evaluate"} <= set(row) for row in timing
    )

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    state = torch.load(folder / "checkpoints/step_00000002/pytorch_model.bin")
    assert all(torch.equal(v, state[f"model.{k}"]) for k, v in model.state_dict().items())
    c = config(finished, model=str(folder / "model"), eval_only=True, name="scored")
    setup = train.set_up(c, accelerator := Accelerator(cpu=True))
    answers, some = train.evaluate(c, accelerator, setup, show=False)
    assert {f"eval/{name}": x for name, x in score(answers).items()}.items() <= metrics[2].items()
    assert [one.problem for one in some] == setup.held_out and all(len(one.texts) == 4 for one in some)


@pytest.mark.slow
def test_the_learning_rule_learns(tmp_path):
    """Makes impossible: a sign error anywhere between verdict and weights. 15 small steps lift the training reward."""
    many = {"data": [str(TINY / "train.jsonl")], "rollouts_per_prompt": 64, "prompts_per_step": 16}
    metrics = run(tmp_path, max_steps=15, learning_rate=3e-4, eval_every=0, **many)
    rewards = [m["reward"] for m in metrics[1:]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.03


def test_one_step_makes_what_was_right_likelier(tmp_path, monkeypatch):
    """Makes impossible: a sign error anywhere between verdict and weights.

    One update of a whole step: on its own rollouts, the mean of advantage times change of log-prob is positive, and an
    advantage is positive where the rollout is right.
    """
    update, moved, batch_of = train.update, [], TrainingGroups.batch

    def checked(kept, advantages, *rest):
        assert torch.equal(advantages > 0, kept.outcomes.correct)
        return batch_of(kept, advantages, *rest)

    def watched(policy, optimizer, batch, *rest):
        metrics = update(policy, optimizer, batch, *rest)
        new, _ = batch.score(policy, 1.0, 10**6)
        moved.append(float((batch.advantages * (new - batch.old_logp).sum(-1)).mean()))
        return metrics

    monkeypatch.setattr(train, "update", watched)
    monkeypatch.setattr(TrainingGroups, "batch", checked)
    run(tmp_path, max_steps=2, updates_per_step=1, kl_coef=0.0, eval_every=0)
    assert min(moved) > 1e-3


def test_prorl_is_the_same_loop_with_sixteen_rollouts(tmp_path):
    """Makes impossible: a recipe that is only a name."""
    c = Config(recipe="prorl")
    resolve(c)
    assert c.rollouts_per_prompt == 16 and c.name == "prorl-seed0"
    metrics = run(tmp_path, recipe="prorl", rollouts_per_prompt=None, max_steps=1, eval_every=0)
    assert metrics[1]["samples"] % 16 == 0


def test_the_probe_changes_nothing_and_says_everything(finished, tmp_path):
    """Makes impossible: a probe that draws, trains or leaves something behind; a metric that some steps lack."""
    plain, watched = lines(finished / "run/metrics.jsonl"), run(tmp_path, log_mass_balance=True)
    names = {k for row in watched for k in row if k.startswith("mass_balance/")}
    assert len(names) == 9
    for before, after in zip(plain, watched, strict=True):
        assert before == {k: v for k, v in after.items() if k not in names}
        assert not before["step"] or names <= after.keys()
    for row in watched[1:]:
        parts = [row[f"solved/{part}"] for part in SOLVED]
        assert sum(parts) == pytest.approx(1) and 1 - parts[0] - parts[-1] == pytest.approx(row["pass_rate"])


class Sleeper(TorchEngine):
    """An engine that knows whether it sleeps."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        Sleeper.asleep, Sleeper.synced = False, 0

    def generate(self, *arguments, **sampling):
        assert not Sleeper.asleep
        return super().generate(*arguments, **sampling)

    def sleep(self):
        Sleeper.asleep = True

    def wake(self):
        Sleeper.asleep = False

    def sync(self, model):
        Sleeper.synced += 1


def test_the_engine_sleeps_while_the_trainer_works(tmp_path, monkeypatch):
    """Makes impossible: engine and trainer in the GPU's memory at once; rollouts from one that sleeps or is stale."""
    monkeypatch.setattr("rollout.TorchEngine", Sleeper)
    score, update, asleep = Batch.score, train.update, []
    monkeypatch.setattr(Batch, "score", lambda *a: asleep.append(Sleeper.asleep) or score(*a))
    monkeypatch.setattr(train, "update", lambda *a: asleep.append(Sleeper.asleep) or update(*a))
    run(tmp_path)
    assert len(asleep) == 1 + 2 * 3 and all(asleep)  # the first comparison; policy, reference, update in two steps
    assert Sleeper.asleep and Sleeper.synced == 2


@pytest.mark.slow
def test_reference_and_policy_are_scored_alike_in_bfloat16(tmp_path, bf16):
    """Makes impossible: a KL term of rounding, from a reference that is computed in another precision.

    Before the first update the policy is the reference: their KL is 0, every bit of it.
    """
    c = config(tmp_path, max_steps=1, updates_per_step=1, kl_coef=0.1)
    train.train(c, bf16, train.set_up(c, bf16))
    metrics = lines(tmp_path / "run/metrics.jsonl")[1]
    assert metrics["kl_ref"] == 0 and metrics["engine_difference"] > 1e-4


# ------------------------------------------------------------------------------------------------ dynamic sampling


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
    monkeypatch.setattr(
        "trainer.start.make_engine", lambda c, model, *a: engines.append(Scripted(model)) or engines[-1]
    )
    monkeypatch.setattr("trainer.start.check_engine", lambda *a: "its log-probs are made up")
    metrics = run(tmp_path, data=[str(path)], eval_data=[str(path)], eval_every=0, **changes)
    return metrics, engines[0].asked[problems:]


@pytest.mark.parametrize("every", [2, 5])
def test_a_step_takes_the_first_informative_prompts(tmp_path, monkeypatch, every):
    """Makes impossible: a step with fewer prompts than B while others are left, or with others than the first ones.

    Every second or fifth problem is informative. A round asks for as many as hold the missing ones every second time.
    """
    taken, batch_of = [], TrainingGroups.batch
    monkeypatch.setattr(TrainingGroups, "batch", lambda kept, *rest: taken.append(kept) or batch_of(kept, *rest))
    right = {True: 3, False: 0}
    metrics, asked = scripted(
        tmp_path,
        monkeypatch,
        lambda k, n: right[k % every == 0],
        problems=40,
        refill=20.0,
        max_steps=4,
        round_confidence=0.5,
    )
    order, start, progress, config = [f"{i}=" for i in Cursor(40, 0).take(400)], 0, Progress(), Config(recipe="brorl")
    for m, kept in zip(metrics[1:], taken, strict=True):
        good, tried, rounds = [], 0, 0
        while (missing := 4 - len(good)) > 0:
            width = round_width(missing, progress.pass_rate(config, tried, len(good)), 0.5)
            some = order[start + tried : start + tried + width]
            assert asked[:width] == some
            good += [x for x in some if int(x[:-1]) % every == 0]
            asked, tried, rounds = asked[width:], tried + width, rounds + 1
        progress.note_drawn(tried, len(good), 8 * tried)
        assert [loaded()[1].decode(prompt) for prompt in kept.prompts] == good[:4]
        used = order.index(good[3], start) + 1 - start
        assert (m["prompts"], m["rounds"], m["surplus"]) == (4, rounds, tried - used)
        assert m["pass_rate"] == len(good) / tried and m["samples"] == progress.samples
        start += used
    assert len(asked) == 40  # the final evaluation


def test_a_step_without_informative_prompts_goes_on(tmp_path, monkeypatch, capsys):
    """Makes impossible: a run ended by "generated too many", an endless refill, an update on no data."""
    metrics, asked = scripted(tmp_path, monkeypatch, lambda k, n: n, refill=2.0)
    assert [m["prompts"] for m in metrics[1:]] == [0, 0] and "loss" not in metrics[1]
    assert len(asked) == 2 * 8 + 12
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("nothing is trained in this step. Verdicts: 64 correct; samples.jsonl has some") == 2
    rows = [row for row in lines(tmp_path / "run/samples.jsonl") if "evaluation" not in row]
    assert [(row["step"], row["kept"], row["response"]) for row in rows] == 4 * [(1, False, "1+1")] + 4 * [
        (2, False, "1+1")
    ]


def test_a_step_with_too_few_prompts_goes_on_with_these(tmp_path, monkeypatch):
    """Makes impossible: a step skipped although one prompt had signal."""
    metrics, _ = scripted(tmp_path, monkeypatch, lambda k, n: 1 if k == 3 else 0, refill=3.0, max_steps=1)
    assert metrics[1]["prompts"] == 1 and metrics[1]["tokens"] == 8 * 4


# ---------------------------------------------------------------------------------------------- a mix of families


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


@pytest.mark.slow
def test_a_mix_of_families_survives_one_whose_every_answer_is_hostile(tmp_path, monkeypatch):
    """Makes impossible: a family that stops, slows or changes the rewards of another, or a reward without its kind."""
    monkeypatch.setattr("rollout.TorchEngine", Writer)
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
        max_response_tokens=128, prompts_per_step=8, verify_timeout=5.0, refill=3.0, allow_weak_sandbox=True,
    )  # fmt: skip
    assert [m["step"] for m in metrics] == [0, 1, 2]
    for m in metrics[1:]:
        assert m["reward/countdown"] == 0.25 and m["reward/math"] == 0.5 and m["reward/code"] == 0.0
        assert m["reason/countdown/correct"] == m["rollouts/countdown"] / 4
        assert m["reason/code/timeout"] >= 1 and m["reason/code/no_answer"] >= 1 and "reason/code/correct" not in m
        assert m["prompts"] == 8
    assert not LEFT_BEHIND.exists()


# ------------------------------------------------------------------------------------------------------- the update


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
        assert all(p.grad is None for p in policy.parameters())  # none is left for the next update
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
    batch.old_logp, batch.mini_batch = batch.engine_logp, torch.arange(len(batch)) + 2
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


@pytest.mark.parametrize("skip", [False, True])
def test_a_gradient_spike_is_counted_named_and_skipped_if_asked(skip):
    """Makes impossible: a spike that goes unseen, one left out unasked, or one that becomes the new usual at once."""
    groups, advantages = rollouts(4)
    policy = Policy(loaded()[0])
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp
    before = [p.detach().clone() for p in policy.parameters()]
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=1,
               skip_spikes=skip)  # fmt: skip
    optimizer, progress = (
        torch.optim.SGD(policy.parameters(), lr=1.0),
        Progress(step=1, norms=[1e-6] * MEMORY_OF_NORMS),
    )
    metrics = train.update(policy, optimizer, batch, c, Accelerator(cpu=True), progress)
    assert metrics["spikes"] == 1 and metrics["updates_skipped"] == skip and len(progress.norms) == MEMORY_OF_NORMS
    moved = any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert moved != skip
    (sentence,) = troubles(metrics, progress, c)
    assert "1 of 1 updates had a gradient norm over 10 times the recent median" in sentence
    assert sentence.endswith("left out" if skip else "clipped to 1")


def test_gradients_that_have_grown_for_good_are_trained_on_again(monkeypatch):
    """Makes impossible: --skip_spikes that leaves out every update of a run whose gradients have grown for good.

    A left-out norm is remembered like any other: 50 of them among the last 100 lift the median.
    """
    groups, advantages = rollouts(1)
    policy, accelerator, norms = Policy(loaded()[0]), Accelerator(cpu=True), [1.0] * MEMORY_OF_NORMS
    batch = Batch.of(groups, advantages, torch.device("cpu"))
    batch.old_logp = batch.engine_logp
    monkeypatch.setattr(accelerator, "clip_grad_norm_", lambda parameters, most: 1000.0)
    optimizer, progress = torch.optim.SGD(policy.parameters(), lr=0.0), Progress(norms=norms)
    c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=1,
               skip_spikes=True)  # fmt: skip
    done = [train.update(policy, optimizer, batch, c, accelerator, progress) for _ in range(60)]
    assert [metrics["updates_skipped"] for metrics in done] == 50 * [1] + 10 * [0]
    (said,) = (f.metadata["help"] for f in dataclasses.fields(Config) if f.name == "skip_spikes")
    assert "after 50" in said


def test_an_update_is_the_same_with_and_without():
    """Makes impossible: sharing that changes a metric of the update, or the order of its rollouts' advantages."""
    made, advantages = rollouts()

    def step(share):
        policy = Policy(loaded()[0])
        policy.share("on")
        batch = Batch.of(made, advantages, CPU)
        batch.share = share
        batch.old_logp, _ = batch.score(policy, 3.0, 500)
        c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=3,
                   max_tokens_per_micro_batch=200)  # fmt: skip
        accelerator = Accelerator(cpu=True)
        optimizer = accelerator.prepare(torch.optim.SGD(policy.parameters(), lr=0.1))
        return train.update(policy, optimizer, batch, c, accelerator, Progress()), list(policy.parameters())

    (plain, weights), (shared, theirs) = step(False), step(True)
    assert shared == {k: pytest.approx(v, rel=1e-3, abs=1e-5) for k, v in plain.items()}
    assert furthest(theirs, weights) < 1e-5


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


# --------------------------------------------------------------------------------------------------- the evaluation


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


def test_an_evaluations_responses_have_their_own_length(tmp_path, monkeypatch):
    """Makes impossible: the paper's 32k of the evaluation taken for training's, or training's for the evaluation's."""
    generate, asked = TorchEngine.generate, []

    def listen(self, prompts, n, *, max_new_tokens, **kwargs):
        asked.append((n, max_new_tokens))
        return generate(self, prompts, n, max_new_tokens=max_new_tokens, **kwargs)

    monkeypatch.setattr(TorchEngine, "generate", listen)
    metrics = run(tmp_path, max_response_tokens=12, eval_max_response_tokens=5, eval_samples=3, max_steps=1)
    assert {length for n, length in asked if n == 3} == {5} and {length for n, length in asked if n == 8} == {12}
    assert metrics[0]["eval/truncated"] > 0.9 and metrics[0]["eval/response_tokens"] <= 5


# ------------------------------------------------------------------------------------- the program from the outside


def test_a_mistake_is_one_sentence_and_exit_code_2(refused):
    """Makes impossible: a traceback, or two sentences of which one is senseless, for a typing error."""
    done, folder = refused
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "\n--rollouts_per_prompt -4: a group needs at least 2 for its mean to say anything\n"
    assert not folder.exists()


def lengths_of(p, n, seed=0):
    """Log-normal lengths, around another mean for each prompt."""
    g = torch.Generator().manual_seed(seed)
    means = 6 + 0.5 * torch.randn(p, 1, generator=g)
    return (means + 0.7 * torch.randn(p, n, generator=g)).exp().long().clamp(1, 3000)


def mini_batches(lengths, updates, of="rollouts", step=1):
    return train.mini_batch_of(lengths, Config(seed=0, updates_per_step=updates, mini_batches=of), step)


def test_mini_batches_of_rollouts():
    """Mistake: a rollout twice or never; a mini-batch with more of one group, of long responses, or always the same."""
    lengths = lengths_of(4, 512)
    numbers = mini_batches(lengths, 16)
    assert numbers.shape == (4, 512) and torch.bincount(numbers.flatten()).tolist() == [128] * 16
    assert all(torch.bincount(row).tolist() == [32] * 16 for row in numbers)
    tokens = torch.zeros(16).scatter_add_(0, numbers.flatten(), lengths.flatten().float())
    assert tokens.max() / tokens.mean() < 1.05
    assert torch.equal(numbers, mini_batches(lengths, 16)) and not torch.equal(
        numbers, mini_batches(lengths, 16, step=2)
    )


@pytest.mark.parametrize(("p", "n", "updates"), [(5, 6, 4), (3, 2, 16), (7, 16, 8), (1, 1, 3), (0, 4, 2)])
def test_mini_batches_where_nothing_divides(p, n, updates):
    """Mistake: an empty mini-batch beside a full one, where a group has fewer rollouts than there are mini-batches."""
    counts = torch.bincount(mini_batches(lengths_of(p, n), updates).flatten(), minlength=updates)
    assert counts.sum() == p * n and counts.max() - counts.min() <= 1


def test_equal_lengths_are_drawn_at_random():
    """Mistake: rollouts of equal length that always meet the same mini-batch, or the same companions."""
    seen = torch.stack([mini_batches(torch.full((1, 8), 5), 4, step=step)[0] for step in range(400)])
    share = (seen[:, :, None] == torch.arange(4)).float().mean(0)  # (8, 4)
    assert (share - 0.25).abs().max() < 0.08


def test_mini_batches_of_prompts():
    """Mistake: --mini_batches prompts that cuts one up, or takes the prompts in their order."""
    numbers = mini_batches(lengths_of(10, 6), 4, "prompts")
    assert torch.equal(numbers, numbers[:, :1].expand(10, 6))
    assert sorted(torch.bincount(numbers[:, 0]).tolist()) == [2, 2, 3, 3]
    assert not torch.equal(numbers, mini_batches(lengths_of(10, 6), 4, "prompts", step=2))
    assert sorted(mini_batches(lengths_of(3, 6), 4, "prompts")[:, 0].tolist()) == [0, 1, 2]


def test_a_step_trains_on_whitened_advantages_by_its_settings(tmp_path, monkeypatch):
    """Makes impossible: a loss called with other settings than the run has, or with advantages of another scale."""
    policy_loss, advantages, settings = L.policy_loss, [], []

    def recorded(*given, **keywords):
        advantages.append(given[4])
        settings.append(keywords)
        return policy_loss(*given, **keywords)

    monkeypatch.setattr(train.L, "policy_loss", recorded)
    by = {"clip_low": 0.11, "clip_high": 0.33, "tis_cap": 1.5, "kl": "k3", "kl_coef": 0.01}
    run(tmp_path, max_steps=1, eval_every=0, **by)
    assert settings and all(keywords == by for keywords in settings)
    whole = torch.cat(advantages)
    assert whole.mean().item() == pytest.approx(0, abs=1e-5) and whole.std(correction=0).item() == pytest.approx(1)
