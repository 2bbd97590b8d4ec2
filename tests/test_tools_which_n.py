"""tools/which_n.py: estimators by enumeration, gradients by a loop, guesses by hand, whole reports."""

import itertools
import json
import math
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from helpers import ROOT, TINY, few_problems, flags, judged, loaded, sampled, trained
from scipy import stats

from tools import which_n
from tools.which_n import Cost, HalfGroups, Ratio, best_n, estimate, guess, kept_share, noise_at_equal_cost, ratio_of
from trainer import start
from trainer.policy import Policy
from trainer.problems import load_problems
from trainer.rollouts import Outcomes
from trainer.settings import Config

RIGHT = torch.tensor([1.0, 0, 0], dtype=torch.float64)


def prompt_case(p, seed):
    """A softmax over three answers, the first one right: probabilities, scores ∇log π(y), ∇p."""
    g = torch.Generator().manual_seed(seed)
    rest = torch.rand(2, generator=g, dtype=torch.float64)
    pi = torch.cat([torch.tensor([p], dtype=torch.float64), (1 - p) * rest / rest.sum()])
    scale = torch.rand(3, generator=g, dtype=torch.float64) + 0.5  # of each weight, another for each prompt
    score = (torch.eye(3, dtype=torch.float64) - pi) * scale
    return pi, score, pi[0] * score[0]


def expected_gram(cases, n):
    """E of the inner products of all half-groups, by enumeration of every half's 3^n draws."""
    halves = torch.cartesian_prod(*[torch.arange(3)] * n)
    first, second = [], []  # moments of h: E h, E|h|²
    for pi, score, _ in cases:
        chance, right = pi[halves].prod(-1), (halves == 0).double()
        h = torch.einsum("gi,gij->gj", right - right.mean(-1, keepdim=True), score[halves]) / (n - 1)
        first.append(chance @ h)
        second.append(chance @ h.square().sum(-1))
    mean = torch.stack(first).repeat_interleave(2, 0)
    gram = mean @ mean.T  # halves are independent of each other
    gram.diagonal()[:] = torch.stack(second).repeat_interleave(2)
    return gram


CASES = [prompt_case(p, seed) for seed, p in enumerate((0.5, 0.02, 0.8))]


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_estimates_are_unbiased_by_enumeration(n):
    """Makes impossible: halves with a biased baseline, a pair of one prompt among pairs of two, n for n - 1."""
    found = estimate(expected_gram(CASES, n), prompts=3, n=n)
    g = torch.stack([slope for *_, slope in CASES])
    mean2 = sum(float(g[x] @ g[y]) for x, y in itertools.permutations(range(3), 2)) / 6
    assert found.mean2 == pytest.approx(mean2, rel=1e-12)
    assert found.between == pytest.approx(float(g.square().sum(-1).mean()) - mean2, rel=1e-12)
    variance = []  # of a half-group's gradient, by the formula in the head of the file
    for pi, score, slope in CASES:
        centred, size, g2 = RIGHT - pi[0], score.square().sum(-1), slope.square().sum()
        within = (pi * centred.square() * size).sum() - g2
        variance.append(within / n + (g2 + pi[0] * (1 - pi[0]) * (pi * size).sum()) / (n * (n - 1)))
    assert found.within == pytest.approx(float((n - 1) * torch.stack(variance).mean()), rel=1e-12)


def test_dropped_groups_count_as_zero():
    """Makes impossible: means or a jackknife over kept prompts only, since a small N keeps few."""
    gram = simulated_groups(20, 10, 8, 0)
    padded = torch.zeros(30, 30, dtype=torch.float64)
    padded[:20, :20] = gram
    for f in (estimate, ratio_of):
        assert f(gram, 15, 8) == pytest.approx(f(padded, 15, 8), rel=1e-9)


@pytest.mark.parametrize(("ratio", "cost"), [(20, 0), (20, 16), (0.5, 3), (6000, 0)])
def test_best_n_has_the_least_noise(ratio, cost):
    """Makes impossible: a formula for N* that does not minimise the noise at equal cost."""
    best = best_n(ratio, cost)
    at = [noise_at_equal_cost(best * x, ratio, cost) for x in (0.98, 1, 1.02) if best * x > 1]
    assert at[1] == min(at)
    # 512 x (1 + 20/511) over 5.47 x (1 + 20/4.47): by hand
    assert noise_at_equal_cost(512, 20) / noise_at_equal_cost(best_n(20), 20) == pytest.approx(17.77, abs=0.02)


def simulated_groups(ratio, prompts, n, seed):
    """The inner products of half-groups with V_b = 6 and this V_w / V_b, of normal gradients."""
    g = torch.Generator().manual_seed(seed)
    own = torch.randn(prompts, 1, 6, generator=g) + 1
    h = own + math.sqrt(ratio / n) * torch.randn(prompts, 2, 6, generator=g)
    h = h.view(2 * prompts, 6).double()
    return h @ h.T


@pytest.mark.parametrize("ratio", [5.0, 200.0])
def test_the_interval_holds_the_known_ratio(ratio):
    """Makes impossible: an interval that is too narrow, or wider than twice and half: 100 simulated samples."""
    price = Cost({n: {"roll_out": float(n), "score": 0.0, "update": 0.0} for n in (4, 512)}, lambda n: 1.0)
    found = [guess(price, [4, 512], ratio_of(simulated_groups(ratio, 300, 32, seed), 300, 32)) for seed in range(100)]
    # V_w is (n - 1) / n of the simulated variance
    assert sum(x.ratio_low <= ratio * 31 / 32 <= x.ratio_high for x in found) >= 88
    assert np.median([x.ratio_high / x.ratio_low for x in found]) < 4


def test_without_a_measurement_the_usual_ratios_remain():
    """Makes impossible: certainty without a measurement; a bound of V_b that is taken for an estimate."""
    cost = Cost({n: {"roll_out": 9.0 + n, "score": 0.0, "update": 0.0} for n in (4, 512)}, lambda n: 1.0)
    sizes = [4, 8, 16, 32, 64, 128, 256, 512]
    usual = guess(cost, sizes, None)
    assert usual.ratio == pytest.approx(100, rel=0.05)
    assert usual.ratio_low == pytest.approx(4.3, rel=0.1) and usual.ratio_high == pytest.approx(2300, rel=0.1)
    assert 4 < usual.n < 512 and usual.sure < 0.95
    assert guess(cost, sizes, Ratio(-0.001, 0.002)).ratio_low > 150  # V_b may be 0: a bound of 333 and usual values
    assert ratio_of(torch.ones(20, 20, dtype=torch.float64), 10, 8) is None  # equal halves: no V_w
    assert ratio_of(simulated_groups(20, 7, 8, 0), 7, 8) is None  # few prompts


@pytest.mark.parametrize(("ratio", "price"), [(20.0, 10.0), (700.0, 0.0), (900.0, 40.0)])
def test_a_known_ratio_gives_the_n_of_the_formula(ratio, price):
    """Makes impossible: another law at equal time than `best_n`, when the price of a prompt is one number."""
    cost = Cost({n: {"roll_out": 0.01 * (price + n), "score": 0.0, "update": 0.0} for n in (2, 512)}, lambda n: 1.0)
    found = guess(cost, [round(4 * 1.02**k) for k in range(300)], Ratio(1 / ratio, 0.001 / ratio))
    assert found.n == pytest.approx(best_n(ratio, price), rel=0.05)
    assert found.sure > 0.99 and found.ratio == pytest.approx(ratio, rel=0.03)


# ------------------------------------------------------------------------------------------------------ its gradients


def kept_groups(m=3, n=13):
    """Rollouts of the embedded policy with verdicts of both kinds, and the policy."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:m]
    groups = sampled(model, [tokenizer(p.prompt).input_ids for p in problems], n)
    middle = [sorted(group.responses)[n // 2] for group in groups]  # an arbitrary rule
    rollouts = judged(groups, problems, lambda p, response: response >= middle[p])
    return Policy(model), rollouts, Outcomes.of(rollouts, 0, problems, n, Accelerator(cpu=True))


@pytest.mark.parametrize("budget", [32768, 40])
@pytest.mark.parametrize("share_prompts", [False, True])
def test_gradients_of_half_groups_are_those_of_a_loop(budget, share_prompts):
    """Makes impossible: a rollout in the wrong half, a lost one, an odd one that counts, a lost temperature."""
    policy, rollouts, outcomes = kept_groups()
    policy.share_prompts = share_prompts
    halves = HalfGroups(
        policy, policy, 13, Config(temperature=1.3, max_tokens_per_micro_batch=budget), Accelerator(cpu=True)
    )
    halves.add(rollouts, outcomes)
    want = []
    for p, half in itertools.product(range(3), (0, 1)):
        rows = [r for r in rollouts if r.prompt_index == p and r.number < 12 and r.number % 2 == half]
        mean, total = sum(r.verdict.reward for r in rows) / 6, 0
        for r in rows:
            tokens = torch.cat([r.prompt, r.response])[None].long()
            logits = policy.model(tokens).logits[0] / 1.3
            start = len(r.prompt)
            logp = logits[start - 1 : -1].log_softmax(-1).gather(-1, tokens[0, start:, None]).sum()
            total = total + (r.verdict.reward - mean) / 5 * logp
        slope = torch.autograd.grad(total, list(policy.parameters()), allow_unused=True)
        want.append(torch.cat([x.flatten() for x in slope if x is not None]))
    want = torch.stack(want)
    assert want.norm(dim=1).min() > 0.1
    torch.testing.assert_close(torch.stack(halves.gradients), want, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(halves.gram(), want.double() @ want.double().T, rtol=1e-3, atol=1e-2)
    assert all(p.grad is None for p in policy.parameters())


def test_some_coordinates_give_the_ratio_of_all():
    """Makes impossible: coordinates of a few layers only, or products that shrink with their number."""
    policy, rollouts, outcomes = kept_groups(8, 64)
    found = []
    for most in (which_n.MOST, 2**14):
        with mock.patch.object(which_n, "MOST", most):
            halves = HalfGroups(policy, policy, 64, Config(temperature=1.0), Accelerator(cpu=True))
        halves.add(rollouts, outcomes)
        found.append(estimate(halves.gram(), 8, 32))
    assert len(halves.gradients[0]) < 0.15 * sum(p.numel() for p in policy.parameters())
    assert found[1].within == pytest.approx(found[0].within, rel=0.15)
    assert found[1].between == pytest.approx(found[0].between, rel=0.15)


# ------------------------------------------------------------------------------------------ kept prompts and seconds


@pytest.mark.parametrize(("never", "always"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.2), (0.0, 1.0)])
def test_the_share_of_kept_prompts_is_near_the_truth(never, always):
    """Makes impossible: prompts that are never solved taken for rarely solved ones, or the reverse."""
    p = torch.tensor(stats.beta.rvs(0.8, 5, size=400, random_state=0))
    p[: int(400 * never)] = 0
    p[400 - int(400 * always) :] = 1
    correct = torch.binomial(torch.full_like(p, 64), p, generator=torch.Generator().manual_seed(0))
    for size in (16, 64, 128, 300, 512):
        assert kept_share(correct.long().tolist(), 64, size) == pytest.approx(
            float((1 - p**size - (1 - p) ** size).mean()), abs=0.05
        )


def test_seconds_by_hand():
    """Makes impossible: a time that includes scores and updates of dropped prompts, or another line."""
    cost = Cost({n: {"roll_out": 1.0 + n / 4, "score": 2.0, "update": n / 4} for n in (4, 16)}, lambda n: 0.5)
    assert cost.stages(10) == pytest.approx([3.5, 2.0, 2.5]) and cost.stages(32) == pytest.approx([9.0, 2.0, 8.0])
    assert cost.drawn(32) == pytest.approx([9.0, 1.0, 4.0])
    assert cost.noise(32, 62.0) == pytest.approx((1 + 2) * 14)


# ------------------------------------------------------------------------------------------------------- whole reports


def look(folder, name="look", prompts=12, more=(), **settings):
    """The report on the embedded policy, in this process. It must not change a weight."""
    models, set_up = [], start.set_up

    def remember(*arguments):
        models.append(set_up(*arguments))
        before.extend(x.clone() for x in models[-1].policy.parameters())
        return models[-1]

    before: list = []
    small = {"REPEATS": 1, "FEW": 5, "TIMED": (4, 16), "SAMPLED": (16, 4)}
    with mock.patch.multiple(which_n, **small), mock.patch.object(which_n, "set_up", remember):
        found = which_n.main([*flags(folder, name, **settings), f"--sample_prompts={prompts}", *more])
    assert all(torch.equal(x, y) for x, y in zip(before, models[-1].policy.parameters(), strict=True))
    return found


def test_expensive_prompts_are_timed_at_several_n():
    """Makes impossible: one timed N, so that a small N looks cheap where the prompt is expensive."""
    sample, clock = which_n.Sample.__new__(which_n.Sample), [0.0]
    sample.config = Config(prompts_per_step=8, rollouts_per_prompt=512)

    def seconds(n, count):
        each = 9 + n / 5  # of a prompt, of a rollout
        clock[0] += count * each
        return dict.fromkeys(which_n.STAGES, each / 3)

    sample.left, sample.seconds = lambda: 600 - clock[0], seconds
    assert [*sample.times()] == [4, 16, 64, 512] and clock[0] < 0.4 * 600


def test_a_report_keeps_the_weights_and_names_flags(tmp_path, capsys):
    """Makes impossible: a report that trains, that writes a checkpoint, or that changes from run to run; another B."""
    found = look(tmp_path)
    assert {x.name for x in (tmp_path / "look").iterdir()} == {"config.json", "lock", "which_n.json", "samples.jsonl"}
    said = capsys.readouterr().out
    assert found["prompts"] == 12 and sum(found["solved"].values()) == 12 and "--max_minutes" in said
    rate = 1e-4 * math.sqrt(found["best"]["n"] / 8)  # N of the configuration is 8
    assert f"--rollouts_per_prompt {found['best']['n']} --prompts_per_step 4 --learning_rate {rate:.2g}" in said
    assert [*found["table"]] == [4, 8, 16, 32, 64, 128, 256, 512]
    correct = found["correct"]
    assert (found["solved"]["never"], found["solved"]["always"]) == (correct.count(0), correct.count(16))
    assert sum(correct) == found["reasons"]["correct"] and found["ratio"]["error"] > 0
    for n, row in found["table"].items():  # B = 4 prompts are kept
        assert row["drawn"] == pytest.approx(4 / which_n.kept_share(correct, 16, n))
    assert found["table"][8]["noise"] == 1
    written = json.loads((tmp_path / "look/which_n.json").read_text())
    again = look(tmp_path, "again")
    assert written["correct"] == found["correct"] == again["correct"] and again["ratio"] == found["ratio"]


@pytest.mark.parametrize("wrong", ["--sample_prompts=0", "--max_minutes=0", "--eval_only", "--bogus", "--log_noise=0"])
def test_wrong_uses_are_refused(tmp_path, wrong):
    """Makes impossible: a setting that is silently ignored, or a traceback for a mistake of the user."""

    def refuse(refusal, code):
        raise SystemExit(str(refusal))

    with mock.patch.object(start, "refuse", refuse), pytest.raises(SystemExit) as stop:
        which_n.main([*flags(tmp_path, "look"), wrong])
    assert wrong.partition("=")[0] in str(stop.value) and not (tmp_path / "look").exists()


def test_a_slow_machine_and_unsolved_problems_still_give_a_guess(tmp_path, capsys):
    """Makes impossible: --max_minutes that is ignored, a division by 0, or no guess without a measured ratio."""
    rows = [json.loads(line) for line in (TINY / "train.jsonl").read_text().splitlines()[:16]]
    never = [json.dumps(row | {"kind": "math", "reference": "1"}) + "\n" for row in rows]  # no response has a box
    (tmp_path / "data.jsonl").write_text("".join(never))
    found = look(tmp_path, data=tmp_path / "data.jsonl", more=["--max_minutes=0.001"])
    assert (found["prompts"], found["rollouts"], found["ratio"], [*found["seconds"]]) == (1, 4, None, [0, 4])
    assert found["solved"]["never"] == 1 and found["best"]["ratio"] == pytest.approx(100, rel=0.05)
    said, _, advice = capsys.readouterr().out.partition("Advice")
    assert "--max_minutes" in said and "--rollouts_per_prompt" in advice


def test_noise_is_logged_along_a_run(tmp_path):
    """Makes impossible: a callback that changes the run, or that measures after the step's update."""
    which_n.main([*flags(tmp_path, "logged", max_steps=3), "--log_noise=2"])
    plain = trained(tmp_path, "plain", max_steps=3)
    assert (tmp_path / "logged/metrics.jsonl").read_text() == (plain / "metrics.jsonl").read_text()
    rows = [json.loads(line) for line in (tmp_path / "logged/noise.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 3] and all(row["informative"] >= 4 for row in rows)
    assert all(row["within"] > 0 for row in rows)


@pytest.mark.slow
def test_two_processes_find_the_numbers_of_one(tmp_path):
    """Makes impossible: a process that counts its own rollouts only, or gradients that are added up twice."""
    data = few_problems("train", 64)
    found = []
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}", "-m"]
        command += ["tools.which_n", *flags(tmp_path, f"on{count}", data=data, rollouts_per_prompt=32)]
        command += ["--sample_prompts=16"]
        environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads((tmp_path / f"on{count}/which_n.json").read_text()))
    alone, together = found
    for name in ("correct", "solved", "tokens_median", "reasons"):
        assert alone[name] == together[name], name
    for name, x in alone["ratio"].items():
        assert together["ratio"][name] == pytest.approx(x, rel=1e-3), name
