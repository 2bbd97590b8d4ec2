"""trainer/waves.py: what a prompt weighs under stopping, which rollouts a wave has, groups of several sizes trained."""

import itertools

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, Job, config, furthest, gradient, lines, loaded, run
from test_trainer_handout import ragged
from transformers import AutoModelForCausalLM

import loss as L
import train
from rollout import Group, TorchEngine
from trainer.answers import Rolled
from trainer.deal import Drawn, Judge, Outcomes, roll_out
from trainer.metrics import of_step
from trainer.progress import Preempted
from trainer.run import Run
from trainer.screen import Screen
from trainer.waves import Wave, in_waves, waves
from verify import Problem, Verdict, load_problems

ALONE = Accelerator(cpu=True)
WAVES = {"rollouts_per_prompt": 32, "first_rollouts": 4, "advantage": "group_mean"}


def sizes(plan: list[Wave]) -> list[tuple[int, int]]:
    return [(wave.first, wave.n) for wave in plan]


def test_waves_by_hand():
    """Mistake: a wave that does not begin where the one before it ended, more than the most, a fixed N in waves."""
    assert sizes(waves(16, 512)) == [(0, 16), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256)]
    assert sizes(waves(3, 16)) == [(0, 3), (3, 3), (6, 6), (12, 4)]
    assert sizes(waves(None, 512)) == [(0, 512)]
    assert [str(wave) for wave in waves(2, 4)] == [", wave 1 of 2", ", wave 2 of 2"] and str(waves(None, 4)[0]) == ""


# ------------------------------------------------------------------------------------------------------- the estimator


def weight(p: float, plan: list[Wave]) -> float:
    """w(p) of the head of trainer/waves.py, as a sum over the waves."""
    return sum((1 - p) ** wave.first * (1 - (1 - p) ** (wave.n - 1)) for wave in plan) / p


def stopped(correct: torch.Tensor, plan: list[Wave]) -> Outcomes:
    """What `in_waves` makes of prompts whose rollouts, had all been drawn, would be these: (P, M) bool."""

    def drawn(places, wave):
        right = correct[places, wave.first : wave.first + wave.n]
        nothing = torch.zeros_like(right)
        return [], Outcomes(right.double(), right, nothing.long(), nothing, torch.ones_like(right))

    return in_waves(drawn, len(correct), plan)[1]


@pytest.mark.parametrize("p", [0.03, 0.4, 0.9])
@pytest.mark.parametrize(("first", "most"), [(2, 8), (3, 8), (2, 7)])
def test_what_a_prompt_weighs_in_waves_by_enumeration(p, first, most):
    """Mistake: a wave's mean over what was drawn before it, a weight by the wave's width, a stop one wave too late.

    Three answers by a softmax, the first one right: all 3^M draws, stopped by in_waves. E[(1/M) Σ A ∇log π] over the M
    places is w(p) ∇p, by both formulas of waves.py, and the derivative of the series that it names.
    """
    plan = waves(first, most)
    z = torch.log(torch.tensor([p, 0.7 * (1 - p), 0.3 * (1 - p)], dtype=torch.float64)).requires_grad_()
    pi = z.softmax(-1)
    (slope,) = torch.autograd.grad(pi[0], z)
    pi = pi.detach()
    score = torch.eye(3, dtype=torch.float64) - pi  # row y: ∇log π(y)
    draws = torch.cartesian_prod(*[torch.arange(3)] * most)  # (3^M, M)
    outcomes = stopped(draws == 0, plan)

    def expected(kind):
        advantages = L.group_advantages(outcomes.rewards, kind, outcomes.group)
        return torch.einsum("g,gi,gij->j", pi[draws].prod(-1), advantages, score[draws]) / most

    torch.testing.assert_close(expected("group_mean"), weight(p, plan) * slope, rtol=1e-6, atol=1e-9)
    before = [wave.first for wave in plan[1:]]
    closed = (1 - (1 - p) ** (most - 1) - p * sum((1 - p) ** (m - 1) for m in before)) / p
    x = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    (series,) = torch.autograd.grad(-sum((1 - x) ** k / k for k in range(1, most) if k not in before), x)
    assert weight(p, plan) == pytest.approx(closed, rel=1e-12) == series.item()
    centred = sum((1 - p) ** wave.first * (1 - 1 / wave.n) for wave in plan)  # why mean_centred is refused
    torch.testing.assert_close(expected("mean_centred"), centred * slope, rtol=1e-6, atol=1e-9)


def test_the_weight_is_that_of_a_group_of_all():
    """Mistake: a rare prompt that weighs as in a group of 16; a claim of the head of waves.py that is not so."""
    plan = waves(16, 512)
    assert weight(1e-9, plan) == pytest.approx(512 - 6, rel=1e-5)
    for p in (0.001, 0.01, 0.1):
        assert 0.9 < weight(p, plan) / ((1 - (1 - p) ** 511) / p) < 1
    assert weight(0.3, waves(None, 8)) == pytest.approx((1 - 0.7**7) / 0.3, rel=1e-12)


# ------------------------------------------------------------------------------------------------------- the rollouts


@pytest.fixture(scope="module")
def world():
    """The embedded policy, its tokenizer, twelve problems and their prompts."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:12]
    return model, tokenizer, problems, [tokenizer(problem.prompt).input_ids for problem in problems]


SAMPLING = {"max_new_tokens": 12, "temperature": 1.0, "stop_token_ids": [1]}


def rolled_out(world, plan, engine) -> tuple[list[Rolled], Outcomes]:
    """Every wave by trainer/deal.py's `roll_out`; the prompt at place i has the seed 1000 i."""
    _, tokenizer, problems, prompts = world

    def wave(places, wave):
        judge = Judge(tokenizer, [problems[i] for i in places], {"workers": 1})
        seeds = [1000 * i + wave.first for i in places]
        return roll_out(engine, judge, [prompts[i] for i in places], wave.n, seeds, ALONE, show=False, **SAMPLING)

    return in_waves(wave, len(prompts), plan)


def test_a_wave_has_the_rollouts_of_a_part_of_a_fixed_group(world):
    """Mistake: a prompt's rollouts that depend on who else is open; a wave that draws the one before it again.

    A group of 8 in parts of 4 against the waves 4, 4: where a prompt was drawn, the same responses and verdicts.
    """
    engine = TorchEngine(world[0])
    engine.order_rows = 4
    fixed, all_of_it = rolled_out(world, waves(None, 8), engine)
    some, outcomes = rolled_out(world, waves(4, 8), engine)
    whole = {(one.place, one.first): one.group.responses for one in fixed}
    assert len(whole) == 24 > len(some) > 12
    for one in some:
        assert one.group.responses == whole[one.place, one.first]
    found = all_of_it.correct[:, :4].any(-1)
    assert {(one.place, one.first) for one in some} == {(i, 0) for i in range(12)} | {
        (i, 4) for i in range(12) if not found[i]
    }
    assert outcomes.group.tolist() == [[right] * 4 + [not right] * 4 for right in found.tolist()]
    for ours, theirs in zip(outcomes[:4], all_of_it[:4], strict=True):
        assert torch.equal(ours[outcomes.group], theirs[outcomes.group])


def made_up(stops: list[int], right: int = 1) -> tuple[Drawn, int]:
    """Prompts that were stopped by wave 1, 2 or 3 of 2, 2, 4, each by so many correct rollouts; 0: never."""
    problems = [Problem(f"{i}=", "math", "1") for i in range(len(stops))]
    drawn = Drawn(problems, [[i] for i in range(len(stops))])
    correct = torch.zeros(len(stops), 8, dtype=torch.bool)
    for own, stop in zip(correct, stops, strict=True):
        if stop:
            own[(0, 2, 4)[stop - 1] :][:right] = True

    def wave(places, wave):
        rolled = []
        for k, place in enumerate(places):
            own = correct[place, wave.first : wave.first + wave.n].tolist()
            said = [[place, wave.first + i] for i in range(wave.n)]
            group = Group([place], said, [[0.0, 0.0]] * wave.n, ["stop"] * wave.n)
            verdicts = [Verdict(1.0, "correct") if x else Verdict(0.0, "wrong") for x in own]
            rolled.append(Rolled(problems[place], group, [f"{place} {i}" for _, i in said], verdicts, k))
        return rolled, Outcomes.of(rolled, len(places), wave.n, ALONE)

    drawn.add(list(range(len(stops))), *in_waves(wave, len(stops), waves(2, 8)))
    return drawn


def test_metrics_of_waves_by_hand():
    """Mistake: samples that forget the waves before the last, or count places never drawn; shares over N places."""
    drawn = made_up([1, 2, 3, 0])
    assert drawn.outcomes.rollouts == 2 + 4 + 8 + 8 and drawn.informative == 3
    kept = drawn.first(3)
    metrics = of_step(drawn, len(kept))
    assert metrics["rollouts_per_prompt"] == 22 / 4 and metrics["found"] == 3 / 4
    assert metrics["correct"] == metrics["reward"] == 3 / 22 and metrics["reason/wrong"] == 19
    assert (metrics["solved/none"], metrics["solved/to_25%"], metrics["solved/to_50%"]) == (1 / 4, 1 / 4, 1 / 2)
    all_right = made_up([1, 1], right=2)
    assert all_right.informative == 0 and of_step(all_right, 0)["solved/all"] == 1


def test_only_the_last_wave_is_kept(monkeypatch):
    """Mistake: rollouts of an earlier wave in the batch, or shown in samples.jsonl as the group that was trained on."""
    drawn = made_up([3, 0, 2])
    kept = drawn.first(2)
    assert sorted((one.place, one.first) for one in kept.rolled) == [(0, 4), (1, 2)]
    shown = []
    one = Run.__new__(Run)
    one.config = config("runs", samples_per_step=8)
    one.accelerator = ALONE
    monkeypatch.setattr(one, "write_samples", shown.extend)
    one.sample(1, drawn)
    assert sorted(x["response"] for x in shown if x["kept"]) == ["0 4", "0 5", "0 6", "0 7"]
    assert sorted(x["response"] for x in shown if not x["kept"]) == ["1 4", "1 5", "1 6", "1 7"]


# ----------------------------------------------------------------------------------------- groups of several sizes

# What train.py does with a step's groups, from `Drawn.first` to the update, on any number of processes.
TRAINED = """
import os, sys, torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
import loss as L
import train
from trainer import handout
from trainer.deal import Drawn
from trainer.policy import Policy
from trainer.progress import Progress
state = torch.load(sys.argv[1], weights_only=False)
accelerator = Accelerator(cpu=True)
handout.LEAST = 8
config, rank, world = state["config"], accelerator.process_index, accelerator.num_processes
drawn = Drawn(state["problems"], state["prompts"])
drawn.add(list(range(len(state["prompts"]))), state["rolled"][rank::world], state["outcomes"])
kept = drawn.first(len(state["prompts"]))
group = kept.outcomes.group
advantages = L.group_advantages(kept.outcomes.rewards, config.advantage, group)
advantages = L.whiten(advantages, L.moments(advantages[group]))
batch = train.hand_out(kept, advantages, config, 1, accelerator)
policy = Policy(AutoModelForCausalLM.from_pretrained(state["model"], dtype=torch.float64))
batch.score_before_update(policy, None, config, accelerator)
batch.engine_logp = batch.old_logp  # both of one float32 rounding
plain = policy
policy, optimizer = accelerator.prepare(policy, torch.optim.SGD(policy.parameters(), lr=1.0))
metrics = train.update(policy, optimizer, batch, config, accelerator, Progress())
torch.save((metrics, plain.state_dict(), len(batch)), sys.argv[2] + str(rank))
accelerator.wait_for_everyone()
accelerator.end_training()
os._exit(0)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_the_gradient_is_that_of_a_loop_over_groups(tmp_path, world, processes):
    """Mistake: a wide group that counts for more; a rollout of an earlier wave, or none at all, in the batch; a group
    lost or doubled on its way to another process.

    Groups of 4, 4, 8, 16, 32 and 4 of 64 places, their waves spread over the processes; one update of rate 1.
    """
    model, _, problems, prompts = world
    group = ragged()
    p, n = group.shape
    groups = TorchEngine(model).generate(prompts[:p], n, max_new_tokens=12, temperature=3.0, stop_token_ids=[1], seed=5)
    correct = (torch.rand(p, n, generator=torch.Generator().manual_seed(0)) < 0.3) & group
    for own, places in zip(correct, group, strict=True):
        own[places.nonzero()[:2, 0]] = torch.tensor([True, False])
    assert L.informative(correct, group).all()
    rolled = []
    for place, own in enumerate(groups):
        last = int(group[place].nonzero()[-1]) + 1
        for first in range(0, last, 4):  # in parts of four, those of the waves before among them
            some = slice(first, first + 4)
            part = Group(own.prompt, own.responses[some], own.logprobs[some], own.finish_reasons[some])
            verdicts = [Verdict(float(x), "correct" if x else "wrong") for x in correct[place, some].tolist()]
            rolled.append(Rolled(problems[place], part, [""] * 4, verdicts, place, first))
    lengths = torch.tensor([[len(r) for r in own.responses] for own in groups])
    outcomes = Outcomes(correct.double(), correct, lengths, torch.zeros_like(correct), group)
    c = config(
        tmp_path, temperature=3.0, clip_low=0.2, clip_high=0.27, kl="k2", kl_coef=0.0, tis_cap=2.0, updates_per_step=1,
        max_tokens_per_micro_batch=300, max_grad_norm=1e9, advantage="group_mean",
    )  # fmt: skip
    state = {"config": c, "problems": problems[:p], "prompts": prompts[:p], "rolled": rolled, "outcomes": outcomes}
    torch.save(state | {"model": str(TINY / "policy")}, tmp_path / "state")
    (tmp_path / "trained.py").write_text(TRAINED)
    Job(tmp_path / "trained.py", [tmp_path / "state", tmp_path / "out"], processes=processes).ended()
    found = [torch.load(tmp_path / f"out{rank}", weights_only=False) for rank in range(processes)]
    assert sum(rows for _, _, rows in found) == group.sum() and all(rows for _, _, rows in found)

    plain = AutoModelForCausalLM.from_pretrained(TINY / "policy", dtype=torch.float64)
    scaled = []
    for place, own in enumerate(groups):
        rewards = correct[place, group[place]].double()
        advantages = (rewards - rewards.mean()) / (rewards.mean() + 1e-8)
        scaled.append(advantages * n / len(advantages))
        total = torch.zeros((), dtype=torch.float64)
        for a, i in zip(advantages, group[place].nonzero().squeeze(1).tolist(), strict=True):
            tokens = torch.tensor([own.prompt + own.responses[i]])
            logp = (plain(input_ids=tokens).logits[0, len(own.prompt) - 1 : -1] / 3.0).log_softmax(-1)
            total = total - a * logp.gather(-1, tokens[0, len(own.prompt) :, None]).sum()
        (total / len(advantages)).backward()
    tokens, std = lengths[group].sum(), torch.cat(scaled).std(correction=0)
    want = [x.grad * n / (std * tokens) for x in plain.parameters()]
    assert max(x.norm() for x in want) > 1e-3
    for metrics, weights, _ in found:
        assert metrics["tokens"] == tokens
        ours = gradient(weights)
        assert furthest([ours[f"model.{name}"] for name, _ in plain.named_parameters()], want) < 1e-5


# ----------------------------------------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory):
    """A run in waves of 4, 4, 8 and 16, of three steps, undisturbed."""
    folder = tmp_path_factory.mktemp("waves")
    return run(folder, max_steps=3, **WAVES), folder / "run"


def test_a_run_says_that_it_is_in_waves(tmp_path, monkeypatch, capsys):
    """Mistake: a start that announces 32 rollouts of each prompt; a live line without the wave, or without the cost."""
    said, doing = [], Screen.doing
    monkeypatch.setattr(Screen, "doing", lambda self, what: said.append(what) or doing(self, what))
    run(tmp_path, max_steps=1, eval_every=0, **WAVES)
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 prompts x the first wave of 4, 4, 8, 16 rollouts that has a correct one, in 2 updates" in printed
    assert "rollouts_per_prompt 4:32" in printed and " rollouts a prompt, " in printed
    waved = [what for what in said if "wave" in what]
    assert waved[0].endswith(" x 4, wave 1 of 4") and waved[1].endswith(" x 4, wave 2 of 4")


def test_what_a_run_asks_for_and_trains_on(tmp_path, monkeypatch):
    """Mistake: a wave with the seeds of the one before it, which draws the same wrong answers again; whitening over
    places where there is no rollout."""
    asked, trained, real, hand_out = [], [], train.roll_out, train.hand_out

    def listen(engine, judge, prompts, n, seeds, *rest, **sampling):
        asked.append((n, {tuple(prompt): seed for prompt, seed in zip(prompts, seeds, strict=True)}))
        return real(engine, judge, prompts, n, seeds, *rest, **sampling)

    monkeypatch.setattr(train, "roll_out", listen)
    monkeypatch.setattr(train, "hand_out", lambda *given: trained.append(given[:2]) or hand_out(*given))
    run(tmp_path, max_steps=1, **WAVES)
    asked = [one for one in asked if len(one[1]) < 16]  # without the evaluations
    first, seeds = 0, asked[0][1]
    for (n, own), planned in zip(asked, waves(4, 32), strict=False):
        assert (first, n) == (planned.first, planned.n)
        assert own == {prompt: seeds[prompt] + first for prompt in own}
        first += n
    assert len(asked) > 2
    ((kept, advantages),) = trained
    of_groups = advantages[kept.outcomes.group]
    assert len(of_groups) < advantages.numel() / 2
    assert of_groups.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert of_groups.mean().item() == pytest.approx(0, abs=1e-5)


def test_a_prompt_is_read_once_a_step_and_by_its_weights(tmp_path, monkeypatch):
    """Mistake: a prompt read for each of its waves; rollouts of a step from prompts that the step before read."""
    read, prefill = [], TorchEngine._prefill

    def listen(self, prompts):
        read.extend(map(tuple, prompts))
        return prefill(self, prompts)

    def step(config, accelerator, setup, screen, real=train.roll_out_until_informative):
        read.clear()
        kept, metrics = real(config, accelerator, setup, screen)
        assert metrics["rollouts_per_prompt"] > 4 and len(set(read)) == len(read) >= len(kept)
        return kept, metrics

    monkeypatch.setattr(TorchEngine, "_prefill", listen)
    monkeypatch.setattr(train, "roll_out_until_informative", step)
    run(tmp_path, max_steps=3, **WAVES | {"learning_rate": 1e-3})
    differences = [m["engine_difference_max"] for m in lines(tmp_path / "run/metrics.jsonl")[1:]]
    assert len(differences) == 3 and max(differences) < 1e-4


def same_logs(ours, theirs) -> None:
    for log in ("metrics", "samples", "eval"):
        assert (ours / f"{log}.jsonl").read_bytes() == (theirs / f"{log}.jsonl").read_bytes()


def test_a_run_in_waves_counts_what_it_drew(three_steps):
    """Mistake: a budget of samples that forgets waves, or counts 32 of each prompt; nothing trained."""
    metrics, _ = three_steps
    for before, m in itertools.pairwise(metrics):
        assert m["samples"] - before["samples"] == m["rollouts/countdown"]
        tried = round(m["rollouts/countdown"] / m["rollouts_per_prompt"])
        assert 4 < m["rollouts_per_prompt"] < 32 and m["rollouts_per_prompt"] * tried == m["rollouts/countdown"]
        assert m["found"] == 1 - m["solved/none"] >= m["pass_rate"] and m["prompts"] == 4 and m["grad_norm"] > 0


def test_a_run_in_waves_resumes_to_the_same_numbers(tmp_path, three_steps):
    """Mistake: the first wave forgotten by config.json, or a wave's seeds that depend on what was drawn before."""
    run(tmp_path, max_steps=2, **WAVES)
    run(tmp_path, max_steps=3, resume=True, **WAVES)
    same_logs(tmp_path / "run", three_steps[1])


def test_sigterm_between_waves_undoes_the_step(tmp_path, three_steps, monkeypatch):
    """Mistake: a step that goes on with the waves that it has, or a cursor that is ahead on resuming."""
    c, accelerator = config(tmp_path, max_steps=3, **WAVES), Accelerator(cpu=True)
    setup = train.set_up(c, accelerator)
    seen, real = [], train.roll_out_wave

    def told(*given):
        seen.append((setup.progress.step, given[-1].number))
        if seen[-1] == (2, 2):
            setup.run.preemption.note()
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(train, "roll_out_wave", told)
        with pytest.raises(Preempted):
            train.train(c, accelerator, setup)
    assert seen[-1] == (2, 2) and [m["step"] for m in lines(tmp_path / "run/metrics.jsonl")] == [0, 1]
    run(tmp_path, max_steps=3, resume=True, **WAVES)
    same_logs(tmp_path / "run", three_steps[1])
