"""bench/which_n.py: estimators by enumeration, gradients by a loop, reports where nothing can be seen."""

import itertools
import json
import math
import os
import subprocess
import sys
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from rooms import ROOT, TINY, embedded, flags, judged, sampled, some_problems
from scipy import stats

import train
from bench import which_n
from bench.which_n import (
    Cost,
    HalfGroups,
    Kept,
    Ratio,
    Variances,
    advice,
    best_n,
    estimate,
    noise_at_equal_cost,
    ratio_of,
    standard_errors,
)
from rollout import Request, Sampling, TorchEngine
from tiny import exact
from trainer.data import stop_tokens
from trainer.policy import Policy
from trainer.rollouts import Outcomes
from trainer.settings import Config, read_settings
from verify import load_data, load_problems

RIGHT = torch.tensor([1.0, 0, 0], dtype=torch.float64)


def prompt_case(p, seed):
    """A softmax over three answers, the first one right: probabilities, scores ∇log π(y), ∇p."""
    g = torch.Generator().manual_seed(seed)
    rest = torch.rand(2, generator=g, dtype=torch.float64)
    pi = torch.cat([torch.tensor([p], dtype=torch.float64), (1 - p) * rest / rest.sum()])
    scale = torch.rand(3, generator=g, dtype=torch.float64) + 0.5  # weights that not all prompts move alike
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


def test_within_is_the_variance_of_a_rollout():
    """Makes impossible: V_w of another scale than one rollout's: where p = ½ it is V_w + 2 |g|² / n."""
    pi, score, slope = prompt_case(0.5, 0)
    centred = RIGHT - pi[0]
    want = float((pi * centred.square() * score.square().sum(-1)).sum() - slope.square().sum())
    found = estimate(expected_gram([(pi, score, slope)] * 2, 10), prompts=2, n=10).within
    assert found == pytest.approx(want + 2 * float(slope.square().sum()) / 10, rel=1e-9)


def test_dropped_groups_count_as_zero():
    """Makes impossible: means over kept prompts only, of which a small N keeps few."""
    gram = expected_gram(CASES, 3)
    padded = torch.zeros(10, 10, dtype=torch.float64)
    padded[:6, :6] = gram
    for f in (estimate, standard_errors):
        for got, want in zip(f(gram, 5, 3), f(padded, 5, 3), strict=True):
            assert got == pytest.approx(want, rel=1e-9)


def test_standard_errors_are_what_the_estimates_vary_by():
    """Makes impossible: a standard error that is another size: 300 samples of 40 prompts each."""
    g = torch.Generator().manual_seed(0)
    found, errors = [], []
    for _ in range(300):
        own = torch.randn(40, 1, 6, generator=g) + 1
        h = (own + 0.5 * torch.randn(40, 2, 6, generator=g)).view(80, 6).double()
        found.append(estimate(h @ h.T, 50, 4))
        errors.append(standard_errors(h @ h.T, 50, 4))
    spread, said = torch.tensor(found).std(0), torch.tensor(errors).mean(0)
    for got, want in zip(said.tolist()[:2], spread.tolist()[:2], strict=True):
        assert 0.8 * want < got < 1.4 * want  # the ten that were dropped are drawn anew in the one, not in the other


@pytest.mark.parametrize(("ratio", "cost"), [(20, 0), (20, 16), (0.5, 3), (6000, 0)])
def test_best_n_has_the_least_noise(ratio, cost):
    """Makes impossible: a formula for N* that is not where noise at equal cost is least."""
    best = best_n(ratio, cost)
    at = [noise_at_equal_cost(best * x, ratio, cost) for x in (0.98, 1, 1.02) if best * x > 1]
    assert at[1] == min(at)
    # 512 x (1 + 20/511) over 5.47 x (1 + 20/4.47): by hand
    assert noise_at_equal_cost(512, 20) / noise_at_equal_cost(best_n(20), 20) == pytest.approx(17.77, abs=0.02)


# ------------------------------------------------------------------------------------------------------ its gradients


def kept_groups(m=3, n=13):
    """Rollouts of the embedded policy with verdicts of both kinds, and the policy."""
    model, tokenizer = embedded()
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
    halves = HalfGroups(policy, 13, Config(temperature=1.3, max_tokens_per_micro_batch=budget), Accelerator(cpu=True))
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


def test_some_coordinates_tell_the_ratio_of_all():
    """Makes impossible: coordinates of a few layers only, or products that shrink with their number."""
    policy, rollouts, outcomes = kept_groups(8, 64)
    found = []
    for most in (which_n.MOST, 2**14):
        with mock.patch.object(which_n, "MOST", most):
            halves = HalfGroups(policy, 64, Config(temperature=1.0), Accelerator(cpu=True))
        halves.add(rollouts, outcomes)
        found.append(estimate(halves.gram(), 8, 32))
    assert len(halves.gradients[0]) < 0.15 * sum(p.numel() for p in policy.parameters())
    assert found[1].within == pytest.approx(found[0].within, rel=0.15)
    assert found[1].between == pytest.approx(found[0].between, rel=0.15)


# ---------------------------------------------------------------------------------------------------------- the parts


@pytest.mark.parametrize("p", [0.03, 0.5])
def test_the_counted_share_is_unbiased(p):
    """Makes impossible: a share of kept prompts that is wrong for a small p: by enumeration of c."""
    for size in (2, 4, 8):
        mean = sum(stats.binom.pmf(c, 8, p) * Kept([c], 8).counted(size) for c in range(9))
        assert mean == pytest.approx(1 - p**size - (1 - p) ** size, abs=1e-9)


@pytest.mark.parametrize(("never", "always"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.2)])
def test_the_fit_agrees_with_the_counts_and_with_the_truth_beyond(never, always):
    """Makes impossible: a fit that takes prompts which are never solved for rarely solved ones, or the reverse."""
    draw = torch.Generator().manual_seed(0)
    p = torch.tensor(stats.beta.rvs(0.8, 5, size=400, random_state=0))
    p[: int(400 * never)] = 0
    p[400 - int(400 * always) :] = 1
    correct = torch.binomial(torch.full_like(p, 64), p, generator=draw)
    kept = Kept(correct.long().tolist(), 64)
    for size in (4, 16, 64):
        assert kept.fitted(size) == pytest.approx(kept.counted(size), abs=0.015)
    for size in (128, 512):
        assert kept(size) == pytest.approx(float((1 - p**size - (1 - p) ** size).mean()), abs=0.03)


def test_what_a_prompt_costs_by_hand():
    """Makes impossible: a time that includes the update of dropped prompts; a price that is not the intercept."""
    measured = {n: {"roll_out": 1.0 + n / 4, "score": 2.0, "update": n / 4} for n in (4, 16)}
    cost = Cost(measured, lambda n: 0.5)
    assert cost.of_a_prompt() == pytest.approx(6)  # 3 + n / 2
    assert cost.stages(32) == pytest.approx({"roll_out": 9.0, "score": 2.0, "update": 8.0})
    assert cost.seconds(32) == pytest.approx(9 + 0.5 * 10)
    step = cost.step(Config(rollouts_per_prompt=16, prompts_per_step=8, refill=1.5))
    assert step == pytest.approx({"roll_out": 12 * 5, "score": 6 * 2, "update": 6 * 4})  # 12 drawn, the most allowed
    assert Cost({4: measured[4], 16: measured[4]}, None).of_a_prompt() > 1e6  # rollouts that cost nothing


@pytest.mark.parametrize(("ratio", "price"), [(20.0, 10.0), (700.0, 0.0), (900.0, 40.0)])
def test_the_best_n_is_where_the_formula_says(ratio, price):
    """Makes impossible: another law at equal time than that of `best_n`, where the price of a prompt is one number."""
    measured = {n: {"roll_out": 0.01 * (price + n), "score": 0.0, "update": 0.0} for n in (4, 16, 512)}
    cost = Cost(measured, lambda n: 1.0)
    assert cost.best(ratio) == pytest.approx(best_n(ratio, price), rel=0.08)
    table = cost.table(Ratio(ratio, ratio, ratio), Config(rollouts_per_prompt=512, prompts_per_step=32))
    assert next(row["b"] for row in table if row["n"] == 512) == 32 and min(row["time"] for row in table) == 1
    assert next(row["b"] for row in table if row["n"] == 16) == pytest.approx(32 * (price + 512) / (price + 16))


def test_an_interval_without_an_end_is_a_bound():
    """Makes impossible: a ratio with an upper end where V_b may be 0; a negative ratio."""
    gram = torch.eye(20, dtype=torch.float64) * 4  # halves that have nothing in common: V_b is 0
    found = ratio_of(gram, 20, 8)
    assert math.isinf(found.high) and 0 < found.low == found.used and math.isinf(found.value)
    assert ratio_of(torch.ones(20, 20, dtype=torch.float64), 10, 8) is None  # halves that are equal: no V_w
    g = torch.Generator().manual_seed(0)
    own = torch.randn(100, 1, 6, generator=g) + 1
    h = (own + 0.5 * torch.randn(100, 2, 6, generator=g)).view(200, 6).double()
    found = ratio_of(h @ h.T, 100, 5)  # V_w = 4 x 0.25 x 6, V_b = 6
    assert found.low < found.value < found.high < 3 * found.low and found.low < 1 < found.high


def test_the_advice_by_hand():
    """Makes impossible: flags of another step than the named one; certainty where the interval allows two."""
    c = Config(rollouts_per_prompt=512, prompts_per_step=8)
    cost = Cost({n: {"roll_out": 1.0 + n, "score": 0.0, "update": 0.0} for n in (4, 512)}, lambda n: 0.5)

    def said(ratio, problems=10_000):
        return advice({"prompts": 64, "table": cost.table(ratio, c)}, ratio, cost, c, problems)

    sure = said(Ratio(100.0, 90.0, 110.0))  # 513 / 17 x 8 = 241; noise (1 + 100/15) 17 over (1 + 100/511) 513
    assert "N = 16 with B = 241 takes as long as N = 512 with B = 8 and has 0.21 of its noise: " in sure
    assert "--rollouts_per_prompt 16 --prompts_per_step 241." in sure and "could be best" not in sure
    unsure = said(Ratio(100.0, 40.0, math.inf))
    assert (
        "from 8 to 512 could be best" in unsure and "--sample_prompts 400" in unsure
    )  # half 0.015, wanted 0.006: 64 x 6.25
    assert "--sample_prompts 1024 would make the intervals about 4.0 times" in said(Ratio(5000.0, 160.0, math.inf))
    # noise times time, at N = 64, 128, 512: 1.032, 1.016, 1.004 million. So 128 is the smallest within 2% of the least
    assert "--rollouts_per_prompt 128 --prompts_per_step 32." in said(Ratio(1e6, 9e5, 2e6))
    assert "--prompts_per_step 241" not in said(Ratio(100.0, 90.0, 110.0), problems=240)
    # 16 against 512 where V_b is 0, so noise falls with N - 1: 17 / 15 over 513 / 511
    bound = said(Ratio(math.inf, 100.0, math.inf))
    assert "has 0.21 of its noise (0.21 to 1.13 over the interval of V_w / V_b): --rollouts_per_prompt 16" in bound
    assert "16 to 512 could be best. --sample_prompts 256 would" in bound
    assert "--sample_prompts" not in said(Ratio(math.inf, 100.0, math.inf), problems=70), "there are no more"
    c = Config(rollouts_per_prompt=16, prompts_per_step=8)
    assert said(Ratio(100.0, 90.0, 110.0)).startswith("Keep N = 16 with B = 8: no other N")


# ------------------------------------------------------------------------------------------------------- a whole report


def look(folder, name="look", prompts=12, rollouts=16, **settings):
    """The report on the embedded policy, in this process. It must not change a weight."""
    own = [f"--sample_prompts={prompts}", f"--sample_rollouts={rollouts}"]
    models, set_up = [], train.set_up

    def remember(*arguments):
        models.append(set_up(*arguments))
        before.extend(x.clone() for x in models[-1].policy.parameters())
        return models[-1]

    before: list = []
    with mock.patch.multiple(which_n, SWEEPS=1, ROUND=5), mock.patch.object(train, "set_up", remember):
        found = which_n.main([*flags(folder, name, **settings), *own])
    assert all(torch.equal(x, y) for x, y in zip(before, models[-1].policy.parameters(), strict=True))
    return found


def test_a_report_leaves_its_folder_and_nothing_else(tmp_path, capsys):
    """Makes impossible: a report that trains, that writes a checkpoint, or that overwrites another one."""
    found = look(tmp_path)
    assert {x.name for x in (tmp_path / "look").iterdir()} == {"config.json", "lock", "which_n.json", "samples.jsonl"}
    said = capsys.readouterr().out
    assert found["prompts"] == 12 and sum(found["solved"].values()) == 12 and found["advice"].split()[0] in said
    assert [row["n"] for row in found["table"]] == [4, 8, 16, 32, 64, 128, 256, 512]
    assert found["reward"] == pytest.approx(sum(found["correct"]) / (12 * 16)) and max(found["correct"]) <= 16
    written = json.loads((tmp_path / "look/which_n.json").read_text())
    assert written["correct"] == found["correct"] and written["ratio"] == found["ratio"]
    again = look(tmp_path, "again")
    assert again["correct"] == found["correct"] and again["ratio"] == found["ratio"]


@pytest.mark.parametrize(
    "wrong", [["--sample_prompts=0"], ["--sample_rollouts=2"], ["--max_minutes=0"], ["--eval_only"], ["--bogus"]]
)
def test_wrong_uses_are_refused(tmp_path, wrong):
    """Makes impossible: a setting that is silently ignored, or a traceback for a mistake of the user."""

    def refuse(refusal, code):
        raise SystemExit(str(refusal))

    arguments = [x for x in flags(tmp_path, "look") if not x.startswith(tuple(wrong[0].split("=")[:1]))]
    with mock.patch.object(train, "refuse", refuse), pytest.raises(SystemExit) as stop:
        which_n.main([*arguments, *wrong])
    assert wrong[0].partition("=")[0] in str(stop.value) and not (tmp_path / "look").exists()


def test_an_update_is_timed_on_one_mini_batch_and_counted_whole(tmp_path, monkeypatch):
    """Makes impossible: the seconds of one mini-batch for those of a whole update: here a rollout takes one second."""
    clock, sizes = [0.0], []

    def update(policy, optimizer, batch, *rest):
        sizes.append(sum(map(len, batch)))
        clock[0] += sizes[-1]

    config, sources = read_settings("", flags(tmp_path, "look", updates_per_step=4))
    accelerator = Accelerator(cpu=True)
    setup = train.set_up(config, accelerator, sources)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(train, "update", update)
    sample = which_n.Sample(config, accelerator, setup, 12, 16)
    assert sample.seconds(16, 512) == {"roll_out": 0.0, "score": 0.0, "update": 16.0} and sizes == [8 * 16 // 4]


def test_as_many_prompts_as_the_minutes_allow(tmp_path, capsys):
    """Makes impossible: --max_minutes that is ignored, or that leaves nothing to look at."""
    config, sources = read_settings("", flags(tmp_path, "look"))
    setup = train.set_up(config, Accelerator(cpu=True), sources)
    with mock.patch.multiple(which_n, SWEEPS=1, ROUND=5):
        sample = which_n.Sample(config, Accelerator(cpu=True), setup, 12, 16)
        sample.measure(max_minutes=1e-3)
    assert len(sample.outcomes) == 5


REWARDS = """
KINDS = {
    "always": lambda response, reference: 1.0,
    "never": lambda response, reference: 0.0,
    "partly": lambda response, reference: 0.5,
    "by_prompt": lambda response, reference: float(reference),
    "one": lambda response, reference: float(response[:1] == reference),
}
"""


@pytest.mark.parametrize(
    ("kind", "references", "says"),
    [
        ("always", "1", "Every response is right"),
        ("never", "1", "None of 192 responses is right"),
        ("partly", "1", "the largest reward is 0.5"),
        ("by_prompt", "01", "Every prompt is always or never solved"),
        ("one", "1x", "prompts have right and wrong responses: set --sample_prompts"),
    ],
)
def test_where_there_is_nothing_to_see_it_says_why(tmp_path, capsys, forget_kinds, kind, references, says):
    """Makes impossible: a division by 0, or a number, where all rollouts are right, all wrong, or below 1."""
    (tmp_path / "rewards.py").write_text(REWARDS)
    rows = [json.loads(line) for line in (TINY / "train.jsonl").read_text().splitlines()[:16]]
    known = [row | {"kind": kind, "reference": references[i % len(references)]} for i, row in enumerate(rows)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in known))
    found = look(tmp_path, data=tmp_path / "data.jsonl", rewards=tmp_path / "rewards.py")
    assert says in found["advice"] and found["ratio"] is None
    assert says[:12] in capsys.readouterr().out


def test_one_problem(tmp_path):
    """Makes impossible: a variance between prompts that comes from one prompt."""
    found = look(tmp_path, data=some_problems(tmp_path / "one.jsonl", 1, "train"), prompts_per_step=1)
    assert found["prompts"] == 1 and "1 prompt(s) are too few" in found["advice"]


@pytest.mark.slow
def test_two_processes_find_the_numbers_of_one(tmp_path):
    """Makes impossible: a process that counts its own rollouts only, or gradients that are added up twice."""
    data = some_problems(tmp_path / "some.jsonl", 64, "train")
    found = []
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}", "-m"]
        command += ["bench.which_n", *flags(tmp_path, f"on{count}", data=data, rollouts_per_prompt=32)]
        command += ["--sample_prompts=16", "--sample_rollouts=32"]
        environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads((tmp_path / f"on{count}/which_n.json").read_text()))
    alone, together = found
    for name in ("correct", "solved", "fit", "tokens", "reasons", "reward"):
        assert alone[name] == together[name], name
    for name, x in alone["ratio"].items():
        assert together["ratio"][name] == (x if x is None else pytest.approx(x, rel=1e-3)), name


# ----------------------------------------------------------------------------------------------- against the tiny world


def score(policy, prompt: list[int], response: list[int]) -> tuple[torch.Tensor, float]:
    """∇log π(response) as one vector, and log π."""
    tokens = torch.tensor([prompt + response])
    logits = policy.model(tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    logp = logits.gather(-1, tokens[0, len(prompt) :, None]).sum()
    return torch.cat([x.flatten() for x in torch.autograd.grad(logp, list(policy.parameters()))]), float(logp.detach())


def enumerated(policy, tokenizer, problems, drawn: int = 64) -> Variances:
    """V_w, V_b and |ḡ|² from all correct answers of these problems and a sample of wrong responses.

    g_x = Σ_y π(y) ∇log π(y) over all correct answers, and V_w,x = (1 - p)² Σ_y π(y) |∇log π(y)|² + p² E|∇log π|² over
    wrong responses - |g_x|². The part of the wrong responses is small, because of p².
    """
    code, (stop,) = exact.alphabet(tokenizer), stop_tokens(tokenizer, policy.model)
    prompts = [tokenizer(problem.prompt).input_ids for problem in problems]
    slopes, within = [], 0.0
    for problem, prompt in zip(problems, prompts, strict=True):
        request = Request(prompt, drawn, seed=1)
        ((_, group),) = TorchEngine(policy.model).generate([request], Sampling(12, stop_token_ids=(stop,)))
        right = [[*(code[c] for c in text), stop] for text in exact.answers_of(problem)]
        slope, squares, p = torch.zeros(1), 0.0, 0.0
        for response in right:
            s, logp = score(policy, prompt, response)
            chance = math.exp(logp)
            slope, squares, p = slope + chance * s, squares + chance * float(s @ s), p + chance
        wrong = [r for r in group.responses if r not in right]
        sizes = {tuple(r): float(score(policy, prompt, r)[0].square().sum()) for r in wrong}
        of_wrong = sum(sizes[tuple(r)] for r in wrong) / max(1, len(wrong)) * (1 - p)
        within += (1 - p) ** 2 * squares + p**2 * of_wrong - float(slope @ slope)
        slopes.append(slope)
    g, count = torch.stack(slopes).double(), len(problems)
    mean2 = float(g.sum(0).square().sum() - g.square().sum()) / (count * (count - 1))
    return Variances(within / count, float(g.square().sum() / count) - mean2, mean2)


@pytest.mark.slow
def test_n_star_lies_in_its_interval(tmp_path):
    """Makes impossible: an interval that is too narrow: V_w / V_b of 128 problems by enumeration, 10 samples of 64."""
    data = some_problems(tmp_path / "some.jsonl", 128, "train")
    truth = enumerated(*exact.load_policy(str(TINY / "policy")), load_data([data]))
    ratio, inside = truth.within / truth.between, 0
    for seed in range(10):
        found = look(tmp_path, f"look{seed}", 64, 64, data=data, seed=seed)["ratio"]
        inside += found["low"] <= ratio <= (found["high"] or math.inf)
    assert inside >= 9


@pytest.mark.slow
def test_the_fitted_share_is_that_of_a_real_draw(tmp_path):
    """Makes impossible: a share at N = 512 that no draw of 512 rollouts shows, on problems that are rarely solved."""
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    data = some_problems(tmp_path / "all.jsonl", 1024, "train")
    q_pos = exact.Knowledge.of(exact.log_probs(policy, tokenizer, load_data([data]))).q_pos
    lines = (tmp_path / "all.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "hard.jsonl").write_text("".join(lines[i] for i in q_pos.argsort()[:128]))
    shares = {}
    for n in (64, 512):
        found = look(tmp_path, f"look{n}", 128, n, data=tmp_path / "hard.jsonl")
        shares[n] = {row["n"]: row["kept"] for row in found["table"]}
    assert shares[64][64] < 0.9 and shares[64][512] == pytest.approx(shares[512][512], abs=0.05)
    for a, b in itertools.pairwise(shares[64].values()):
        assert a < b
