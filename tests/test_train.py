"""train.py: the nine stages, one update against a plain implementation, whole runs, the checks at the start."""

import math
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, drawn, few_problems, lines, loaded, outcomes, run, set_up, write_problems

import loss as L
import train
from trainer.metrics import Sums
from trainer.micro_batches import micro_batches
from trainer.outcomes import Outcomes
from trainer.policy import Policy
from trainer.process import Refusal
from trainer.progress import Progress
from trainer.settings import Config
from verify import Verdict

# ------------------------------------------------------------------------------------------------ stages 1 to 5


MIXED, ALL, NONE = [1, 0], [1, 1], [0, 0]


def wanted(correct, progress=None, judged=True, **changes) -> int:
    config = Config(**{"prompts_per_step": 8, "refill": 4.0} | changes)
    so_far = outcomes(correct, judged=judged) if correct else Outcomes.empty(2)
    return train.prompts_wanted(so_far, progress or Progress(), 1000, config)


def test_a_round_follows_the_measured_share():
    """Makes impossible: a first round wider than B; later ones that ignore the last steps, or the rounds of this step.

    By hand: 4 missing, p = 12 / 24: mean 8, variance 4 · ½ / ¼ = 8, 8 + 1.2816 · sqrt(8) = 11.6.
    """
    assert wanted([]) == 8
    assert wanted([MIXED] * 4 + [NONE] * 4, Progress(tried=16, informative=8)) == 12
    assert wanted([MIXED] * 7 + [NONE]) == math.ceil((1 + 1.2816 * math.sqrt(1 / 8)) / (7 / 8))
    assert wanted([MIXED] * 7 + [ALL] * 20, prompts_per_step=8, refill=3.5) == 1  # 28 prompts are the bound


def test_no_round_follows():
    """Makes impossible: draws beyond B, beyond the bound in prompts, or after a round without a verdict."""
    assert wanted([MIXED] * 8) == wanted([MIXED] * 9 + [NONE]) == wanted([NONE] * 32) == 0
    assert wanted([NONE] * 8, judged=False) == wanted([NONE] * 8, refill=1.0) == 0


def test_mini_batches_split_what_is_trained_evenly():
    """Makes impossible: a rollout in two mini-batches, a masked one in any, sizes that differ by two."""
    trained = torch.rand(7, 9, generator=torch.Generator().manual_seed(0)) < 0.7
    number = train.deal(trained, 4, seed=3)
    assert torch.equal(number >= 0, trained)
    sizes = number[trained].bincount(minlength=4)
    assert sizes.max() - sizes.min() <= 1
    assert torch.equal(number, train.deal(trained, 4, seed=3))
    assert not torch.equal(number, train.deal(trained, 4, seed=4))


# ------------------------------------------------------------------------------------------------------ stage 7

# Other values than the recipes have, so that none of them is written anywhere else.
CLIP = {"clip_low": 0.1, "clip_high": 0.33, "tis_cap": 1.2}
OBJECTIVE = L.Objective(kl=L.kl_k3).having(**CLIP)


def prepared(share=False, **changes):
    """(config, policy, rollouts) with random advantages."""
    config = Config(**{"kl_coef": 0.2, "temperature": 1.5} | changes)
    policy = Policy(loaded()[0])
    policy.share_prompts = share
    rollouts, _ = drawn(4, 6)
    generator = torch.Generator().manual_seed(0)
    for r in rollouts:
        r.advantage = float(torch.randn((), generator=generator))
    return config, policy, rollouts


def old_and_ref(r) -> torch.Tensor:
    """Old and reference log-probs of a rollout, (2, R), that differ from the policy's."""
    generator = torch.Generator().manual_seed(100 * r.prompt_index + r.number)
    return r.engine_logp + 0.3 * torch.randn(2, len(r.response), generator=generator)


def scored(rollouts, budget=10**6, share=False) -> list:
    """The micro-batches of these rollouts, as if stage 6 had found these log-probs."""
    batches = micro_batches(rollouts, budget, share, Accelerator(cpu=True))
    for batch in batches:
        batch.old_logp, batch.ref_logp = torch.cat([old_and_ref(r) for r in batch.rollouts], dim=1)
    return batches


def updated(policy, batch, tokens, config, max_norm=1e9) -> Sums:
    """One update with a rate of 1 and without momentum: the weights move by minus the gradient."""
    accelerator, optimizer = Accelerator(cpu=True), torch.optim.SGD(policy.parameters(), lr=1.0)
    sums = Sums(accelerator)
    with mock.patch.object(train, "MAX_GRAD_NORM", max_norm):
        train.update(policy, optimizer, batch, tokens, 24, OBJECTIVE, config, accelerator, sums)
    assert all(p.grad is None for p in policy.parameters())
    return sums


def loss_by_loop(policy, rollouts, config) -> torch.Tensor:
    """Section 3.1's loss token by token, from the model's own logits."""
    tokens = sum(len(r.response) for r in rollouts)
    total = 0.0
    for r in rollouts:
        row = torch.cat([r.prompt, r.response]).long()
        logits = policy.model(input_ids=row[None]).logits[0] / config.temperature
        old, ref = old_and_ref(r)
        for i, token in enumerate(r.response.tolist()):
            z = logits[len(r.prompt) + i - 1]
            logp = z[token] - z.logsumexp(-1)
            ratio = torch.exp(logp - old[i])
            clipped = ratio.clamp(1 - CLIP["clip_low"], 1 + CLIP["clip_high"])
            weight = min(math.exp(old[i] - r.engine_logp[i]), CLIP["tis_cap"])
            kl = torch.exp(ref[i] - logp) - 1 + logp - ref[i]
            total = total - weight * torch.minimum(ratio * r.advantage, clipped * r.advantage) + config.kl_coef * kl
    return total / tokens


@pytest.mark.parametrize("share, budget", [(False, 10**6), (False, 60), (True, 60)])
def test_an_update_follows_the_gradient_of_section_3_1(share, budget):
    """Makes impossible: a wrong sign or scale anywhere between rollout and weights, at any micro-batch size."""
    config, policy, rollouts = prepared(share)
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    want = torch.autograd.grad(loss_by_loop(policy, rollouts, config), list(policy.parameters()))
    batch = scored(rollouts, budget, share)
    tokens = sum(len(r.response) for r in rollouts)
    assert (len(batch) > 1) == (budget == 60)
    metrics = updated(policy, batch, tokens, config).result()
    for (name, p), g in zip(policy.named_parameters(), want, strict=True):
        assert (before[name] - p - g).norm() <= 1e-3 * g.norm() + 1e-7, name
    norm = torch.stack([g.norm() for g in want]).norm()
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-3) and metrics["tokens"] == tokens
    assert metrics["updates_skipped"] == 0


@pytest.mark.parametrize("tokens", [100, 0])
def test_an_update_without_a_finite_gradient_or_without_tokens_is_skipped(tokens):
    """Makes impossible: weights of NaN after one bad micro-batch, a bad update without a count, a step on no data."""
    config, policy, rollouts = prepared()
    batches = scored(rollouts)
    batches[0].old_logp[0] = float("nan")
    before = [p.detach().clone() for p in policy.parameters()]
    sums = updated(policy, batches, tokens, config)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert sums.result() == {} if not tokens else sums.result()["updates_skipped"] == 1 and sums.updates == 1


def test_the_gradient_norm_is_clipped():
    """Makes impossible: a gradient that is not clipped, or a logged norm after the clipping."""
    config, policy, rollouts = prepared()
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    norm = updated(policy, scored(rollouts), 100, config, max_norm=0.01).result()["grad_norm"]
    after = torch.nn.utils.parameters_to_vector(policy.parameters()).detach()
    assert float((before - after).norm()) == pytest.approx(0.01, rel=1e-2) and norm > 0.02


def test_sums_and_extremes():
    """Makes impossible: a sum that is taken for an extreme because of its name, an extreme that is added up, the mean
    over another number of updates or tokens.
    """
    sums = Sums(Accelerator(cpu=True))
    for x in (1.0, 3.0, 2.0):
        values = {"loss": x, "mean_max": torch.tensor(x), "largest": x, "smallest": torch.tensor(int(x))}
        sums.add(values, maxima={"largest"}, minima={"smallest"})
    sums.add({"updates_skipped": False})
    sums.updates, sums.tokens = 3, 4
    want = {"loss": 2, "mean_max": 1.5, "largest": 3, "smallest": 1, "updates_skipped": 0, "tokens": 4}
    assert sums.result() == want


# ---------------------------------------------------------------------------------------------------- whole runs


def trained(config, accelerator, setup) -> list[dict]:
    """Train; returns the lines of metrics.jsonl. The picture is left out."""
    with mock.patch("trainer.pictures.draw_curves"):
        train.train(config, accelerator, setup)
    return lines(setup.run.folder / "metrics.jsonl")


def test_all_informative_groups_of_all_rounds_are_trained_on(tmp_path, monkeypatch):
    """Makes impossible: an informative group that is thrown away, a dropped one in the batch that whitens the others,
    rollouts with the advantages of another prompt, number or round, the same mini-batches at every step, a problem that
    is skipped or drawn again.
    """
    seen, seeds, own, deal = [], [], train.split, train.deal

    def watched(rollouts, advantages, number, *more):
        batches = own(rollouts, advantages, number, *more)
        seen.append((rollouts, advantages, number, batches))
        return batches

    monkeypatch.setattr(train, "split", watched)
    monkeypatch.setattr(train, "deal", lambda trained, u, seed: seeds.append(seed) or deal(trained, u, seed))
    config, accelerator, setup = set_up(tmp_path, prompts_per_step=3, refill=8, max_steps=4, eval_every=0)
    _, *rows = trained(config, accelerator, setup)
    assert max(row["rounds"] for row in rows) > 1 and len(set(seeds)) == 4
    drawn_before, dropped = 0, 0
    for row, (rollouts, advantages, number, batches) in zip(rows, seen, strict=True):
        kept = (number >= 0).all(-1)
        assert int(kept.sum()) == row["prompts"] and torch.equal(number >= 0, kept[:, None].expand(number.shape))
        assert len(rollouts) == number.numel() == row["samples"] - drawn_before
        assert advantages[kept].std(correction=0) == pytest.approx(1, abs=1e-5)
        of_update = [(u, r) for u, batch in enumerate(batches) for part in batch for r in part.rollouts]
        assert len(of_update) == 8 * int(kept.sum()) and row["tokens"] == sum(len(r.response) for _, r in of_update)
        for u, r in of_update:
            at = r.prompt_index, r.number
            assert number[at] == u and r.advantage == pytest.approx(float(advantages[at]))
            assert (r.advantage > 0) == r.verdict.correct
        drawn_before, dropped = row["samples"], dropped + int((~kept).sum())
    assert dropped and max(row["prompts"] for row in rows) > 3
    assert setup.progress.position == rows[-1]["samples"] / 8


@pytest.mark.slow
def test_the_policy_learns(tmp_path):
    """Makes impossible: a sign error anywhere between verdict and weights. 15 steps raise the training reward."""
    many = {"data": str(TINY / "train.jsonl"), "rollouts_per_prompt": 64, "prompts_per_step": 16}
    rewards = [row["reward"] for row in run(tmp_path, max_steps=15, learning_rate=3e-4, eval_every=0, **many)[1:]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.03


def test_truncated_responses_can_be_masked(tmp_path, monkeypatch):
    """Makes impossible: --truncated mask that drops whole groups, or that trains on a truncated response."""
    seen, own = [], train.split
    monkeypatch.setattr(train, "split", lambda *a: seen.append((a[0], a[2])) or own(*a))
    short = {"max_response_tokens": 8, "temperature": 1.6, "max_steps": 1, "rollouts_per_prompt": 32}
    run(tmp_path, objective="mask_truncated", **short)
    run(tmp_path, name="judge", **short)
    (rollouts, masked), (_, judged) = seen
    cut = torch.zeros_like(masked, dtype=torch.bool)
    for r in rollouts:
        cut[r.prompt_index, r.number] = r.truncated
    kept = (judged >= 0).all(-1)
    assert cut[kept].any() and torch.equal(masked >= 0, kept[:, None] & ~cut)


def test_the_reference_is_reset_when_due(tmp_path, monkeypatch):
    """Makes impossible: a reference that never moves, or moves in every step."""
    distances = []
    config, accelerator, setup = set_up(tmp_path, max_steps=3, reference_reset_steps=2, eval_every=0, save_every=9)

    def distance():
        pairs = zip(setup.policy.parameters(), setup.ref_policy.parameters(), strict=True)
        return sum(float((a.detach() - b).abs().sum()) for a, b in pairs)

    monkeypatch.setattr(Progress, "check_judged", lambda self: distances.append(distance()))
    trained(config, accelerator, setup)
    assert distances[0] > 0 and distances[1] == 0 and distances[2] > 0
    assert not any(p.requires_grad for p in setup.ref_policy.parameters())


def test_the_engine_sleeps_while_the_trainer_works(tmp_path, monkeypatch):
    """Makes impossible: rollouts of a sleeping engine, an update beside a waking one, a step without a sync."""
    config, accelerator, setup = set_up(tmp_path, eval_every=0, refill=1)
    events, models = [], []

    def watch(owner, name):
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a: events.append(name) or own(*a))

    for name in ("wake", "generate", "sleep"):
        watch(setup.engine, name)
    watch(train, "update")
    monkeypatch.setattr(setup.engine, "sync", lambda model: events.append("sync") or models.append(model))
    trained(config, accelerator, setup)
    evaluation, step = "wake generate sleep ", "wake generate sleep update update sync "
    assert " ".join(events) + " " == evaluation + 2 * step + evaluation
    assert all(model is setup.policy.model for model in models)


def test_a_first_update_starts_from_engine_and_reference(tmp_path):
    """Makes impossible: --objective without effect; a stage that scores at another temperature than it samples.

    With one mini-batch the policy is still the engine's, the old and the reference policy.
    """
    one = {"max_steps": 1, "temperature": 1.3, "updates_per_step": 1, "eval_samples": 1}
    rows = [run(tmp_path, name=kind, objective=kind, **one)[1] for kind in L.OBJECTIVES]
    assert len({row["reward"] for row in rows}) == 1 and len({row["grad_norm"] for row in rows}) == 3
    for row in rows:
        assert row["ratio_min"] == row["ratio_max"] == 1 and row["kl_ref"] == 0 and row["engine_difference"] < 1e-4


def test_gradient_checkpointing_computes_layers_twice(tmp_path):
    """Makes impossible: --gradient_checkpointing without effect, or with a cache that it drops; an unused reference."""
    calls, norms = [0, 0], []
    for flag in (0, 1):
        changes = {"gradient_checkpointing": bool(flag), "kl_coef": 0, "updates_per_step": 1, "max_steps": 1}
        config, accelerator, setup = set_up(tmp_path, name=str(flag), eval_samples=1, **changes)
        assert setup.ref_policy is None and setup.policy.share_prompts == (not flag)
        setup.policy.share_prompts = False

        def count(*_, flag=flag):
            calls[flag] += torch.is_grad_enabled()

        setup.policy.model.base_model.layers[0].mlp.register_forward_pre_hook(count)
        norms.append(trained(config, accelerator, setup)[1]["grad_norm"])
    assert calls[1] == 2 * calls[0] > 0 and norms[1] == pytest.approx(norms[0], rel=1e-4)


# --------------------------------------------------------------------------------------- ends of a run, and its start


def test_max_hours_ends_with_an_evaluation_and_a_checkpoint(tmp_path, monkeypatch):
    """Makes impossible: a run that ends on time without its last score, or that loses its last steps."""
    config, accelerator, setup = set_up(tmp_path, max_steps=None, max_hours=1.0, eval_every=0, save_every=100)
    assert config.max_steps is None
    clock = iter([1200.0, 4000.0, 4100.0])  # after the two steps, and at the checkpoint
    monkeypatch.setattr(setup.run.clock, "seconds_of_slowest", lambda: next(clock))
    rows = trained(config, accelerator, setup)
    assert [row["step"] for row in rows] == [0, 1, 2] and "eval/pass@1" in rows[2]
    assert (tmp_path / "run/checkpoints/step_00000002").is_dir() and (tmp_path / "run/model").is_dir()


def test_three_steps_without_a_verdict_end_the_run(tmp_path, monkeypatch):
    """Makes impossible: a night of rollouts whose reward function hangs."""
    config, accelerator, setup = set_up(tmp_path, max_steps=9, eval_every=0, eval_samples=1)
    monkeypatch.setattr(setup.judge, "verdicts", lambda items: [Verdict(0.0, False, "timeout")] * len(items))
    with pytest.raises(Refusal, match="--verify_timeout"):
        train.train(config, accelerator, setup)
    rows = lines(tmp_path / "run/metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3] and all(row["rounds"] == 1 for row in rows[1:])


def test_eval_only_has_a_row_per_source(tmp_path, capsys):
    """Makes impossible: several benchmarks in one number; a benchmark that counts more because it is larger."""
    easy = write_problems(tmp_path / "easy.jsonl", "12:3=", "12:3=")
    both = {"eval_data": [easy, few_problems()], "data": None, "eval_only": True, "eval_samples": 2}
    config, accelerator, setup = set_up(tmp_path, **both)
    scores = train.evaluate(config, accelerator, setup)
    out = capsys.readouterr().out
    assert "easy" in out and "test" in out and "mean of 2" in out
    row = lines(tmp_path / "run/eval.jsonl")[0]
    assert row["sources"] == {"easy": 2, "test": 16} and row["k"] == 2
    first, second = (sum(x) / len(x) / 2 for x in (row["correct"][:2], row["correct"][2:]))
    assert scores["eval/pass@1"] == pytest.approx((first + second) / 2)
    assert setup.optimizer is None and not (tmp_path / "run/checkpoints").exists()


def test_an_evaluation_has_its_own_sampling(tmp_path, monkeypatch):
    """Makes impossible: settings of training in an evaluation, or the other way round; other draws at another step."""
    asked, own, responses = [], train.roll_out, []

    def watched(engine, problems, n, seeds, sampling, *more):
        found = own(engine, problems, n, seeds, sampling, *more)
        asked.append((n, sampling.max_new_tokens, sampling.temperature, sampling.top_p))
        responses.append([r.response.tolist() for r in found[0]])
        return found

    own_sampling = {"eval_samples": 3, "eval_max_response_tokens": 9, "eval_temperature": 0.7, "eval_top_p": 0.9}
    config, accelerator, setup = set_up(tmp_path, max_steps=1, temperature=1.2, **own_sampling)
    monkeypatch.setattr(train, "roll_out", watched)
    trained(config, accelerator, setup)
    assert set(asked) == {(3, 9, 0.7, 0.9), (8, 12, 1.2, 1.0)}
    setup.progress.step = 9  # with the weights of the last evaluation
    train.evaluate(config, accelerator, setup)
    first, *_, last, again = responses
    assert last == again != first and len(set(map(str, again))) > 16
