"""train.py: the nine stages, one update against a plain implementation, whole runs, the checks at the start."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, arguments, drawn, lines, loaded, run, set_up, settings, write_problems

import loss as L
import train
from rollout import ENGINES, TorchEngine
from trainer.policy import Policy, micro_batches, score
from trainer.rollouts import Outcomes
from trainer.run import Progress, Sums
from trainer.settings import Config, Refusal
from verify import Verdict

# ------------------------------------------------------------------------------------------------ stages 1 to 5


def outcomes_with(correct: list[list[int]], judged: bool = True) -> Outcomes:
    table = torch.tensor(correct, dtype=torch.bool)
    zeros = torch.zeros_like(table).long()
    return Outcomes(table.double(), table, zeros, zeros, zeros.bool(), ["math"] * len(table), 1, judged)


MIXED, ALL, NONE = [1, 0], [1, 1], [0, 0]


def wanted(correct, progress=None, judged=True, **changes) -> int:
    config = Config(**{"prompts_per_step": 8, "refill": 4.0} | changes)
    outcomes = outcomes_with(correct, judged) if correct else Outcomes.none(2)
    return train.prompts_wanted(outcomes, progress or Progress(), config)


def test_the_first_round_of_a_run_draws_b_prompts():
    """Makes impossible: a first round that is wider than B before anything is known."""
    assert wanted([]) == 8


def test_a_round_follows_the_measured_share():
    """Makes impossible: a width that ignores the last steps, or the rounds of this step.

    By hand: 4 missing, p = 12 / 24: mean 8, variance 4 · ½ / ¼ = 8, 8 + 1.2816 · sqrt(8) = 11.6.
    """
    assert wanted([MIXED] * 4 + [NONE] * 4, Progress(tried=16, informative=8)) == 12
    assert wanted([MIXED] * 7 + [NONE]) == math.ceil((1 + 1.2816 * math.sqrt(1 / 8)) / (7 / 8))
    assert wanted([MIXED] * 7 + [ALL] * 20, prompts_per_step=8, refill=3.5) == 1  # 28 prompts are the bound


@pytest.mark.parametrize("correct, judged, changes", [
    ([MIXED] * 8, True, {}), ([MIXED] * 9 + [NONE], True, {}), ([NONE] * 32, True, {}), ([NONE] * 8, False, {}),
    ([NONE] * 8, True, {"refill": 1.0}),
])  # fmt: skip
def test_no_round_follows(correct, judged, changes):
    """Makes impossible: draws beyond B, beyond the bound in prompts, or after a round without a verdict."""
    assert wanted(correct, None, judged, **changes) == 0


def test_mini_batches_split_what_is_trained_evenly():
    """Makes impossible: a rollout in two mini-batches, a masked one in any, sizes that differ by two."""
    trained = torch.rand(7, 9, generator=torch.Generator().manual_seed(0)) < 0.7
    number = train.mini_batches(trained, 4, seed=3)
    assert torch.equal(number >= 0, trained)
    sizes = number[trained].bincount(minlength=4)
    assert sizes.max() - sizes.min() <= 1
    assert torch.equal(number, train.mini_batches(trained, 4, seed=3))
    assert not torch.equal(number, train.mini_batches(trained, 4, seed=4))


def test_advantages_reach_their_rollouts():
    """Makes impossible: an advantage of another prompt or number; a dropped prompt that is trained on."""
    rollouts, outcomes = drawn(6, 8, temperature=1.0)
    kept = L.informative(outcomes.correct)
    assert kept.any()
    advantages = L.whiten(L.group_advantages(outcomes.reward), kept)
    number = train.mini_batches(kept[:, None].expand(6, 8), 3, 0)
    config = Config(updates_per_step=3, max_tokens_per_micro_batch=100)
    batches = train.with_advantages(rollouts, advantages, number, config, False, Accelerator(cpu=True))
    trained = [(u, r) for u, batch in enumerate(batches) for rows in batch for r in rows]
    assert len(trained) == 8 * int(kept.sum())
    for u, r in trained:
        at = r.prompt_index, r.number
        assert kept[r.prompt_index] and number[at] == u
        assert r.advantage == pytest.approx(float(advantages[at]))
        assert (r.advantage > 0) == r.verdict.correct


# ------------------------------------------------------------------------------------------------------ stage 7

LOSS = {"clip_low": 0.2, "clip_high": 0.27, "kl": "k2", "kl_coef": 0.1, "tis_cap": 2.0}


def prepared(share=False, **changes):
    """(config, policy, rollouts) with advantages and with old and reference log-probs that differ from the policy's."""
    config = Config(**LOSS | {"temperature": 1.5, "max_grad_norm": 1e9} | changes)
    policy = Policy(loaded()[0])
    policy.share_prompts = share
    rollouts, _ = drawn(4, 6)
    generator = torch.Generator().manual_seed(0)
    for r in rollouts:
        r.advantage = float(torch.randn((), generator=generator))
        noise = torch.randn(3, len(r.response), generator=generator) * 0.3
        r.old_logp, r.ref_logp, r.engine_logp = (r.engine_logp + x for x in noise)
    return config, policy, rollouts


def loss_by_loop(policy, rollouts, config) -> torch.Tensor:
    """Section 3.1's loss token by token, from the model's own logits."""
    tokens = sum(len(r.response) for r in rollouts)
    total = 0.0
    for r in rollouts:
        row = torch.cat([r.prompt, r.response]).long()
        logits = policy.model(input_ids=row[None]).logits[0] / config.temperature
        for i, token in enumerate(r.response.tolist()):
            z = logits[len(r.prompt) + i - 1]
            logp = z[token] - z.logsumexp(-1)
            ratio = torch.exp(logp - r.old_logp[i])
            clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
            weight = min(math.exp(r.old_logp[i] - r.engine_logp[i]), config.tis_cap)
            kl = 0.5 * (logp - r.ref_logp[i]) ** 2
            total = total - weight * torch.minimum(ratio * r.advantage, clipped * r.advantage) + config.kl_coef * kl
    return total / tokens


@pytest.mark.parametrize("share, budget", [(False, 10**6), (False, 60), (True, 60)])
def test_an_update_follows_the_gradient_of_section_3_1(share, budget):
    """Makes impossible: a wrong sign or scale anywhere between rollout and weights, at any micro-batch size."""
    config, policy, rollouts = prepared(share)
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    want = torch.autograd.grad(loss_by_loop(policy, rollouts, config), list(policy.parameters()))
    accelerator, optimizer = Accelerator(cpu=True), torch.optim.SGD(policy.parameters(), lr=1.0)
    sums, tokens = Sums(accelerator), sum(len(r.response) for r in rollouts)
    batch = micro_batches(rollouts, budget, share, accelerator)
    assert (len(batch) > 1) == (budget == 60)
    train.update(policy, optimizer, batch, tokens, config, accelerator, sums)
    for (name, p), g in zip(policy.named_parameters(), want, strict=True):
        assert (before[name] - p - g).norm() <= 1e-3 * g.norm() + 1e-7, name
    metrics = sums.result()
    norm = torch.stack([g.norm() for g in want]).norm()
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-3) and metrics["tokens"] == tokens
    assert metrics["updates_skipped"] == 0


def test_the_loss_settings_reach_the_loss():
    """Makes impossible: a setting of section 3.1 that changes nothing."""
    accelerator = Accelerator(cpu=True)
    base, policy, rollouts = prepared()

    def loss(**changes):
        config = dataclasses.replace(base, **changes)
        tokens = sum(len(r.response) for r in rollouts)
        return train.loss_of(policy, rollouts, tokens, config, accelerator, Sums(accelerator)).item()

    values = [loss(), loss(clip_low=0.01), loss(clip_high=0.01), loss(kl="k3"), loss(kl_coef=0.5), loss(tis_cap=1.0),
              loss(temperature=1.0)]  # fmt: skip
    assert len({round(x, 7) for x in values}) == len(values)


def test_an_update_without_a_finite_gradient_is_skipped():
    """Makes impossible: weights of NaN after one bad micro-batch; a bad update that nobody counts."""
    config, policy, rollouts = prepared()
    rollouts[0].old_logp[0] = float("nan")
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    accelerator = Accelerator(cpu=True)
    sums, optimizer = Sums(accelerator), torch.optim.SGD(policy.parameters(), lr=1.0)
    train.update(policy, optimizer, [rollouts], 100, config, accelerator, sums)
    assert all(torch.equal(before[name], p) for name, p in policy.named_parameters())
    assert sums.values["updates_skipped"] == [True] and sums.result()["updates_skipped"] == 1
    assert all(p.grad is None for p in policy.parameters())


def test_the_gradient_norm_is_clipped():
    """Makes impossible: --max_grad_norm without effect, or a logged norm after the clipping."""
    config, policy, rollouts = prepared(max_grad_norm=0.01)
    before = torch.cat([p.detach().flatten().clone() for p in policy.parameters()])
    accelerator = Accelerator(cpu=True)
    sums, optimizer = Sums(accelerator), torch.optim.SGD(policy.parameters(), lr=1.0)
    train.update(policy, optimizer, [rollouts], 100, config, accelerator, sums)
    after = torch.cat([p.detach().flatten() for p in policy.parameters()])
    assert float((before - after).norm()) == pytest.approx(0.01, rel=1e-2) and sums.result()["grad_norm"] > 0.02


def test_sums_of_ranks_become_means(monkeypatch):
    """Makes impossible: a mean of means, a metric of rank 0 alone, an extreme that is averaged."""
    ranks = [
        {"loss": 1.0, "nll": 30.0, "ratio_max": 2.0, "grad_norm": 6.0, "updates_skipped": 1.0},
        {"loss": 3.0, "nll": 10.0, "ratio_max": 5.0, "grad_norm": 6.0, "updates_skipped": 1.0},
        {"grad_norm": 6.0, "updates_skipped": 1.0},
    ]
    monkeypatch.setattr("trainer.run.gather_object", lambda mine: ranks)
    sums = Sums(Accelerator(cpu=True))
    sums.updates, sums.tokens = 4, 20
    assert sums.result() == {
        "tokens": 20, "loss": 1.0, "nll": 2.0, "ratio_max": 5.0, "grad_norm": 2.0, "updates_skipped": 1.0,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- whole runs


def test_the_same_seed_twice_gives_the_same_files(tmp_path, finished):
    """Makes impossible: an unseeded draw, a clock in the metrics, a seed that changes nothing."""
    run(tmp_path / "again")
    run(tmp_path / "other", seed=1)
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        a, b, c = (
            (folder / "run" / name).read_bytes() for folder in (finished, tmp_path / "again", tmp_path / "other")
        )
        assert a == b != c


def test_metrics_of_a_run(finished):
    """Makes impossible: a metric that is missing, or engine and trainer that differ."""
    rows = lines(finished / "run/metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows[1:]:
        assert row["prompts"] >= 4 and row["samples"] % 8 == 0 and row["reason/wrong"] > 0
        assert all(
            math.isfinite(row[name]) for name in ("reward", "loss", "grad_norm", "entropy", "kl_ref", "ratio_max")
        )
        assert row["engine_ratio"] == pytest.approx(1, abs=1e-4) and row["engine_kl"] < 1e-8
        assert row["correct"] == row["reward"] == row["reward/countdown"]
    assert rows[1]["kl_ref"] >= 0 and "eval/pass@1" in rows[2]


def test_all_informative_groups_are_trained_on(tmp_path, monkeypatch):
    """Makes impossible: a group of N rollouts that is informative and thrown away."""
    seen, own = [], train.with_advantages
    monkeypatch.setattr(train, "with_advantages", lambda *a: seen.append(a[2]) or own(*a))
    rows = run(tmp_path, prompts_per_step=3, refill=8, max_steps=3)
    trained = [int((number >= 0).all(-1).sum()) for number in seen]
    assert trained == [row["prompts"] for row in rows[1:]] and max(trained) > 3


def test_the_order_of_the_problems_only_moves_forward(tmp_path, monkeypatch):
    """Makes impossible: a problem that is redrawn before the epoch ends, or skipped."""
    taken, own = [], Progress.next_problems

    def watched(self, problems, count, seed):
        chosen, seeds = own(self, problems, count, seed)
        taken.extend(problem.prompt for problem in chosen)
        return chosen, seeds

    monkeypatch.setattr(Progress, "next_problems", watched)
    run(tmp_path, max_steps=3)
    assert len(taken) == len(set(taken)) < 256


@pytest.mark.slow
def test_the_policy_learns(tmp_path):
    """Makes impossible: a sign error anywhere between verdict and weights. 15 steps raise the training reward."""
    many = {"data": str(TINY / "train.jsonl"), "rollouts_per_prompt": 64, "prompts_per_step": 16}
    rewards = [row["reward"] for row in run(tmp_path, max_steps=15, learning_rate=3e-4, eval_every=0, **many)[1:]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.03


def test_truncated_responses_can_be_masked(tmp_path, monkeypatch):
    """Makes impossible: --truncated mask that drops whole groups, or that trains on a truncated response."""
    seen, own = [], train.with_advantages
    monkeypatch.setattr(train, "with_advantages", lambda *a: seen.append((a[0], a[2])) or own(*a))
    short = {"max_response_tokens": 8, "temperature": 1.6, "max_steps": 1, "rollouts_per_prompt": 32}
    run(tmp_path, truncated="mask", **short)
    run(tmp_path, name="judge", **short)
    (rollouts, masked), (_, judged) = seen
    cut = torch.zeros_like(masked, dtype=torch.bool)
    for r in rollouts:
        cut[r.prompt_index, r.number] = r.truncated
    kept = (judged >= 0).all(-1)
    assert cut[kept].any() and torch.equal(masked >= 0, kept[:, None] & ~cut)


def test_the_reference_is_reset_when_due(tmp_path, monkeypatch):
    """Makes impossible: a reference that never moves, or moves in every step."""
    distances, own = [], Progress.due

    def watched(self, every, config):
        return own(self, every, config)

    config, accelerator, setup = set_up(tmp_path, max_steps=3, reference_reset_steps=2, eval_every=0, save_every=9)

    def distance():
        pairs = zip(setup.policy.parameters(), setup.reference.parameters(), strict=True)
        return float(sum((a - b).abs().sum() for a, b in pairs))

    monkeypatch.setattr(Progress, "check", lambda self: distances.append(distance()))
    train.train(config, accelerator, setup)
    assert distances[0] > 0 and distances[1] == 0 and distances[2] > 0 and setup.progress.reference_step == 2


def test_without_a_kl_term_there_is_no_reference(tmp_path):
    """Makes impossible: memory for a model that no term uses."""
    config, accelerator, setup = set_up(tmp_path, kl_coef=0, max_steps=1)
    assert setup.reference is None
    train.train(config, accelerator, setup)
    assert "kl_ref" not in lines(tmp_path / "run/metrics.jsonl")[1]


class Sleeper(TorchEngine):
    """An engine that knows whether it sleeps, and which weights it had at each `sync`."""

    asleep, synced = False, 0

    def generate(self, *a, **k):
        assert not self.asleep
        return super().generate(*a, **k)

    def sleep(self):
        self.asleep = True

    def wake(self):
        self.asleep = False

    def sync(self, model):
        self.synced += 1


def test_the_engine_sleeps_while_the_trainer_works(tmp_path, monkeypatch):
    """Makes impossible: rollouts of a sleeping engine, an update beside a waking one, a step without a sync."""
    monkeypatch.setitem(ENGINES, "torch", Sleeper)
    config, accelerator, setup = set_up(tmp_path)
    own = train.update
    monkeypatch.setattr(train, "update", lambda *a: own(*a) if setup.engine.asleep else pytest.fail("awake"))
    train.train(config, accelerator, setup)
    assert setup.engine.synced == 2 and setup.engine.asleep


def test_a_run_with_all_three_advantages(tmp_path):
    """Makes impossible: --advantage without effect."""
    rows = [run(tmp_path, name=kind, advantage=kind, max_steps=1, temperature=1.3)[1] for kind in L.ADVANTAGES]
    assert len({row["reward"] for row in rows}) == 1 and len({row["grad_norm"] for row in rows}) == 3


# --------------------------------------------------------------------------------------- ends of a run, and its start


def test_max_hours_ends_with_an_evaluation_and_a_checkpoint(tmp_path, monkeypatch):
    """Makes impossible: a run that ends on time without its last score, or that loses its last steps."""
    config, accelerator, setup = set_up(
        tmp_path, max_steps=None, max_hours=1.0, eval_every=0, save_every=100, model=str(TINY / "policy")
    )
    assert config.max_steps is None
    clock = iter([600.0, 1200.0, 4000.0])
    monkeypatch.setattr(setup.run, "seconds", lambda: next(clock))
    train.train(config, accelerator, setup)
    rows = lines(tmp_path / "run/metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3] and "eval/pass@1" in rows[3]
    assert (tmp_path / "run/checkpoints/step_00000003").is_dir() and (tmp_path / "run/model").is_dir()


def test_three_steps_without_a_verdict_end_the_run(tmp_path, monkeypatch, capsys):
    """Makes impossible: a night of rollouts whose reward function hangs."""
    config, accelerator, setup = set_up(tmp_path, max_steps=9, eval_every=0)
    failed = Verdict(0.0, False, "timeout")
    monkeypatch.setattr(setup.judge, "verdicts", lambda items: [failed] * len(items))
    with pytest.raises(Refusal, match="--verify_timeout"):
        train.train(config, accelerator, setup)
    rows = lines(tmp_path / "run/metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3] and all(row["rounds"] == 1 for row in rows[1:])
    assert "could not be judged" in capsys.readouterr().out


def test_sixteen_updates_without_a_gradient_end_the_run(tmp_path, monkeypatch):
    """Makes impossible: days of a run whose weights do not change any more."""
    config, accelerator, setup = set_up(tmp_path, max_steps=99, updates_per_step=8, eval_every=0)
    own = train.loss_of
    monkeypatch.setattr(train, "loss_of", lambda *a: own(*a) * float("nan"))
    with pytest.raises(Refusal, match="--learning_rate"):
        train.train(config, accelerator, setup)
    assert lines(tmp_path / "run/metrics.jsonl")[-1]["step"] == 2


def test_eval_only_has_a_row_per_source(tmp_path, capsys):
    """Makes impossible: several benchmarks in one number; a benchmark that counts more because it is larger."""
    (tmp_path / "a").mkdir()
    easy = write_problems(tmp_path / "a/easy.jsonl", "12:3=", "12:3=")
    both = {"eval_data": [easy, str(TINY / "test.jsonl")], "data": None, "eval_only": True, "eval_samples": 2}
    config, accelerator, setup = set_up(tmp_path, **both)
    scores = train.evaluate(config, accelerator, setup)
    out = capsys.readouterr().out
    assert "easy" in out and "test" in out and "mean of 2" in out
    row = lines(tmp_path / "run/eval.jsonl")[0]
    assert row["sources"] == {"easy": 2, "test": 512} and row["k"] == 2
    first, second = (sum(x) / len(x) / 2 for x in (row["correct"][:2], row["correct"][2:]))
    assert scores["eval/pass@1"] == pytest.approx((first + second) / 2)
    assert setup.optimizer is None and not (tmp_path / "run/checkpoints").exists()


def test_the_engine_is_compared_with_the_trainer(tmp_path, monkeypatch):
    """Makes impossible: a run on rollouts of other weights than the trained ones."""

    class Other(TorchEngine):
        def __init__(self, model, *a, **k):
            other, _ = loaded()
            with torch.no_grad():
                other.get_input_embeddings().weight.mul_(1.5)
            super().__init__(other, *a, **k)

        def sync(self, model):
            pass

    monkeypatch.setitem(ENGINES, "torch", Other)
    with pytest.raises(Refusal, match="--max_engine_kl"):
        set_up(tmp_path)
    assert not (tmp_path / "run").exists()
    set_up(tmp_path, max_engine_kl=100.0)


def test_a_reward_that_fails_on_any_text_is_refused_at_the_start(tmp_path, monkeypatch):
    """Makes impossible: a reward function that fails at the first step of a long run."""
    monkeypatch.setattr(train.Judge, "verdicts", lambda self, items: [Verdict(0.0, False, "crashed")] * len(items))
    with pytest.raises(Refusal, match="countdown"):
        set_up(tmp_path)


def test_moments_are_allocated_before_the_engine_and_change_nothing(tmp_path, monkeypatch):
    """Makes impossible: an engine that takes the memory of AdamW's moments; a first step with another correction."""
    order = []
    monkeypatch.setattr(
        train, "allocate_moments", lambda *a, own=train.allocate_moments: order.append("moments") or own(*a)
    )
    monkeypatch.setattr(TorchEngine, "from_config", classmethod(
        lambda cls, model, positions, dtype, config: order.append("engine") or cls(model)
    ))  # fmt: skip
    _, _, setup = set_up(tmp_path, learning_rate=1e-3)
    assert order == ["moments", "engine"]
    policy = Policy(loaded()[0])
    fresh = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.01)
    for optimizer, model in ((setup.optimizer, setup.policy), (fresh, policy)):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(setup.policy.parameters(), policy.parameters(), strict=True))


def test_a_model_that_changes_its_logits_is_refused(tmp_path, monkeypatch):
    """Makes impossible: training on log-probs that are not the model's."""
    monkeypatch.setattr(train, "agrees_with_logits", lambda policy: False)
    with pytest.raises(Refusal, match="logits"):
        set_up(tmp_path)


@pytest.mark.parametrize("kind, precision, steps, named", [
    ("DEEPSPEED", "no", 1, "DEEPSPEED"), ("NO", "fp16", 1, "mixed_precision"), ("NO", "no", 4, "accumulation"),
])  # fmt: skip
def test_launches_that_cannot_work_are_refused(kind, precision, steps, named, monkeypatch):
    """Makes impossible: a launcher's setting that is ignored."""
    fake = SimpleNamespace(
        distributed_type=SimpleNamespace(value=kind), mixed_precision=precision, gradient_accumulation_steps=steps
    )
    monkeypatch.setattr(train, "Accelerator", lambda **options: fake)
    with pytest.raises(Refusal, match=named):
        train.start_accelerator()


def test_the_engine_setting_names_a_class_of_engines(tmp_path):
    """Makes impossible: an engine that the command line offers and the program does not have."""
    for name, engine in ENGINES.items():
        assert isinstance(engine.needs_whole_model, bool) and callable(engine.from_config), name
    config, _ = settings(tmp_path)
    assert config.engine == "torch" and "--engine" not in arguments(tmp_path)


def test_scoring_uses_the_engines_temperature():
    """Makes impossible: log-probs at temperature 1 of responses sampled at another one."""
    policy, accelerator = Policy(loaded()[0]), Accelerator(cpu=True)
    rollouts, _ = drawn(4, 6, temperature=2.0)
    score(policy, [rollouts], "old_logp", 2.0, accelerator)
    for r in rollouts:
        torch.testing.assert_close(r.old_logp, r.engine_logp, rtol=1e-4, atol=1e-4)
