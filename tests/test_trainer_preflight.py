"""--preflight: its estimates against enumeration, its sentences where there is nothing to see, several processes."""

import itertools
import json
import math
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from helpers import ROOT, TINY, Job, config, few_problems, start
from scipy import stats

import train
from evidence.noise import enumerated
from tiny import exact
from trainer import preflight
from trainer.noise import best_n
from trainer.preflight import Cost, Kept, Ratio, advice, ratio_of
from verify import load_data

# ---------------------------------------------------------------------------------------------------------- the parts


@pytest.mark.parametrize("p", [0.03, 0.5])
def test_the_counted_share_is_unbiased(p):
    """Mistake: a share of prompts with right and wrong rollouts that is off where p is small: by enumeration of c."""
    for size in (2, 4, 8):
        mean = sum(stats.binom.pmf(c, 8, p) * Kept([c], 8).counted(size) for c in range(9))
        assert mean == pytest.approx(1 - p**size - (1 - p) ** size, abs=1e-9)


@pytest.mark.parametrize(("never", "always"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.2)])
def test_the_fit_agrees_with_the_counts_and_with_the_truth_beyond(never, always):
    """Mistake: a fit that takes prompts which are never solved for rarely solved ones, or the reverse."""
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
    """Mistake: scoring and updates that are paid for prompts which are dropped; a price that is not the intercept."""
    measured = {n: {"roll_out": 1.0 + n / 4, "score": 2.0, "update": n / 4} for n in (4, 16)}
    cost = Cost(measured, lambda n: 0.5)
    assert cost.of_a_prompt() == pytest.approx(6)  # 3 + n / 2
    assert cost.stages(32) == pytest.approx({"roll_out": 9.0, "score": 2.0, "update": 8.0})
    assert cost.seconds(32) == pytest.approx(9 + 0.5 * 10)
    step = cost.step(config("", rollouts_per_prompt=16, prompts_per_step=8, refill=1.5, round_confidence=0.5))
    assert step == pytest.approx({"roll_out": 12 * 5, "score": 6 * 2, "update": 6 * 4})  # 12 drawn, where 16 are wanted
    assert Cost({4: measured[4], 16: measured[4]}, None).of_a_prompt() > 1e6  # rollouts that cost nothing


@pytest.mark.parametrize(("ratio", "price"), [(20.0, 10.0), (700.0, 0.0), (900.0, 40.0)])
def test_the_best_n_is_where_the_formula_says(ratio, price):
    """Mistake: another law at equal time than that of trainer/noise.py, where the price of a prompt is one number."""
    measured = {n: {"roll_out": 0.01 * (price + n), "score": 0.0, "update": 0.0} for n in (4, 16, 512)}
    cost = Cost(measured, lambda n: 1.0)
    assert cost.best(ratio) == pytest.approx(best_n(ratio, price), rel=0.08)
    table = cost.table(Ratio(ratio, ratio, ratio), config("", rollouts_per_prompt=512, prompts_per_step=32))
    assert next(row["b"] for row in table if row["n"] == 512) == 32 and min(row["time"] for row in table) == 1
    assert next(row["b"] for row in table if row["n"] == 16) == pytest.approx(32 * (price + 512) / (price + 16))


def test_an_interval_without_an_end_is_a_bound():
    """Mistake: a ratio with an upper end where V_b may be 0; an estimate below 0 turned into a negative ratio."""
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
    """Mistake: flags of another step than the one that is praised; certainty where the interval admits two answers."""
    c = config("", rollouts_per_prompt=512, prompts_per_step=8)
    cost = Cost({n: {"roll_out": 1.0 + n, "score": 0.0, "update": 0.0} for n in (4, 512)}, lambda n: 0.5)

    def said(ratio, problems=10_000):
        return advice({"prompts": 64, "table": cost.table(ratio, c)}, ratio, cost, c, problems)

    sure = said(Ratio(100.0, 90.0, 110.0))  # 513 / 17 x 8 = 241; noise (1 + 100/15) 17 over (1 + 100/511) 513
    assert "N = 16 with B = 241 takes as long as N = 512 with B = 8 and has 0.21 of its noise: " in sure
    assert "--rollouts_per_prompt 16 --prompts_per_step 241." in sure and "could be best" not in sure
    unsure = said(Ratio(100.0, 40.0, math.inf))
    assert (
        "8 to 512 could be best" in unsure and "--preflight_prompts 400" in unsure
    )  # half 0.015, wanted 0.006: 64 x 6.25
    assert "--preflight_prompts 1024 would make the intervals about 4.0 times" in said(Ratio(5000.0, 160.0, math.inf))
    # noise times time, at N = 64, 128, 512: 1.032, 1.016, 1.004 million. So 128 is the smallest within 2% of the least
    assert "--rollouts_per_prompt 128 --prompts_per_step 32." in said(Ratio(1e6, 9e5, 2e6))
    assert "--prompts_per_step 241" not in said(Ratio(100.0, 90.0, 110.0), problems=240)
    # 16 against 512 where V_b is 0, so noise falls with N - 1: 17 / 15 over 513 / 511
    bound = said(Ratio(math.inf, 100.0, math.inf))
    assert "has 0.21 of its noise (0.21 to 1.13 over the interval of V_w / V_b): --rollouts_per_prompt 16" in bound
    assert "16 to 512 could be best. --preflight_prompts 256 would" in bound
    assert "--preflight_prompts" not in said(Ratio(math.inf, 100.0, math.inf), problems=70), "there are no more"
    c = config("", rollouts_per_prompt=16, prompts_per_step=8)
    assert said(Ratio(100.0, 90.0, 110.0)).startswith("Keep N = 16 with B = 8: no other N")


# ---------------------------------------------------------------------------------------------------- a whole preflight


def look(folder, **changes):
    """What `--preflight` finds with the embedded policy, in this process."""
    small = {"preflight": True, "name": "look", "preflight_prompts": 12, "preflight_rollouts": 16, "top_p": 1.0}
    c, accelerator = config(folder, **small | changes), Accelerator(cpu=True)
    setup = train.set_up(c, accelerator)
    before = [x.clone() for x in setup.policy.parameters()]
    with mock.patch.multiple(preflight, draw=mock.DEFAULT, SWEEPS=1, ROUND=5):
        preflight.preflight(c, accelerator, setup, train.parts_of_rank, train.mini_batch_of, train.update)
    assert all(torch.equal(x, y) for x, y in zip(before, setup.policy.parameters(), strict=True))
    return json.loads((folder / "look/preflight.json").read_text())


def test_a_preflight_leaves_its_folder_and_nothing_else(tmp_path, capsys):
    """Mistake: a preflight that trains, that leaves a checkpoint, or that goes over another one."""
    found = look(tmp_path)
    assert {x.name for x in (tmp_path / "look").iterdir()} == {"config.json", "lock", "preflight.json", "samples.jsonl"}
    said = capsys.readouterr().out
    assert found["prompts"] == 12 and sum(found["solved"].values()) == 12 and found["advice"].split()[0] in said
    assert [row["n"] for row in found["table"]] == [4, 8, 16, 32, 64, 128, 256, 512]
    assert found["reward"] == pytest.approx(sum(found["correct"]) / (12 * 16)) and max(found["correct"]) <= 16
    with pytest.raises(ValueError, match=r"preflight exists at .*--overwrite"):
        look(tmp_path)
    with pytest.raises(ValueError, match="is no training run, it starts over: --preflight --overwrite"):
        start(config(tmp_path, name="look", resume=True))
    again = look(tmp_path, overwrite=True)
    assert again["correct"] == found["correct"] and again["ratio"] == found["ratio"]


@pytest.mark.parametrize("mini_batches", ["rollouts", "prompts"])
def test_an_update_is_timed_on_one_mini_batch_and_counted_whole(tmp_path, monkeypatch, mini_batches):
    """Mistake: the seconds of one mini-batch for those of a whole update: here a rollout takes one second."""
    clock, sizes = [0.0], []

    def update(policy, optimizer, batch, *rest):
        sizes.append(len(batch))
        clock[0] += len(batch)

    changes = {"preflight": True, "name": "look", "top_p": 1.0, "updates_per_step": 4, "mini_batches": mini_batches}
    c, accelerator = config(tmp_path, **changes), Accelerator(cpu=True)
    setup = train.set_up(c, accelerator)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    sample = preflight.Sample(c, accelerator, setup, train.parts_of_rank, train.mini_batch_of, update)
    assert sample.seconds(16, 512) == {"roll_out": 0.0, "score": 0.0, "update": 16.0} and sizes == [8 * 16 // 4]


def test_as_many_prompts_as_the_minutes_admit(tmp_path, capsys):
    """Mistake: --max_minutes that is ignored, or that leaves nothing to look at."""
    assert look(tmp_path, max_minutes=1e-3)["prompts"] == 5
    assert "5 prompts of 12" in capsys.readouterr().out


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
        ("by_prompt", "01", "Every prompt is solved always or never"),
        ("one", "1x", "prompts have right and wrong responses: --preflight_prompts"),
    ],
)
def test_where_there_is_nothing_to_see_it_says_why(tmp_path, capsys, forget_kinds, kind, references, says):
    """Mistake: a division by 0, or a number, where all rollouts are right, all wrong, or none has the reward 1."""
    (tmp_path / "rewards.py").write_text(REWARDS)
    rows = [json.loads(line) for line in (TINY / "train.jsonl").read_text().splitlines()[:16]]
    known = [row | {"kind": kind, "reference": references[i % len(references)]} for i, row in enumerate(rows)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in known))
    found = look(tmp_path, data=[str(tmp_path / "data.jsonl")], rewards=[str(tmp_path / "rewards.py")])
    assert says in found["advice"] and found["ratio"] is None
    assert says[:12] in capsys.readouterr().out


def test_one_problem(tmp_path):
    """Mistake: a variance between prompts that comes from one prompt."""
    found = look(tmp_path, data=[few_problems("train", 1)], prompts_per_step=1)
    assert found["prompts"] == 1 and "1 prompt(s) cannot say" in found["advice"]


def test_two_processes_find_the_numbers_of_one(tmp_path):
    """Mistake: a process that counts its own rollouts only, or gradients that are added up twice."""
    arguments = [
        "--preflight", f"--output_dir={tmp_path}", f"--data={few_problems('train', 64)}", "--preflight_prompts=16",
        "--preflight_rollouts=32", "--rollouts_per_prompt=32", "--prompts_per_step=4",
    ]  # fmt: skip
    for count in (1, 2):
        Job(ROOT / "train.py", [*arguments, f"--name=on{count}"], processes=count).ended()
    alone, together = (json.loads((tmp_path / f"on{count}/preflight.json").read_text()) for count in (1, 2))
    for name in ("correct", "solved", "fit", "tokens", "reasons", "reward"):
        assert alone[name] == together[name], name
    for name, x in alone["ratio"].items():
        assert together["ratio"][name] == (x if x is None else pytest.approx(x, rel=1e-3)), name
    assert (tmp_path / "on1/preflight.png").stat().st_size > 10_000


# ----------------------------------------------------------------------------------------------- against the tiny world


@pytest.mark.slow
def test_n_star_lies_in_its_interval(tmp_path):
    """Mistake: an interval that is too narrow: V_w / V_b of 128 problems by enumeration, 10 samples of 64 of them."""
    data = few_problems("train", 128)
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    truth = enumerated(policy, tokenizer, load_data([data]))
    ratio, inside = truth.within / truth.between, 0
    for seed in range(10):
        found = look(tmp_path, data=[data], seed=seed, name="look", overwrite=True, temperature=1.0,
                     preflight_prompts=64, preflight_rollouts=64)["ratio"]  # fmt: skip
        inside += found["low"] <= ratio <= (found["high"] or math.inf)
    assert inside >= 9


@pytest.mark.slow
def test_the_fitted_share_is_that_of_a_real_draw(tmp_path):
    """Mistake: a share at N = 512 that no draw of 512 rollouts shows; problems that are hardly ever solved."""
    policy, tokenizer = exact.load_policy(str(TINY / "policy"))
    lines = (TINY / "train.jsonl").read_text().splitlines(keepends=True)[:1024]
    (tmp_path / "all.jsonl").write_text("".join(lines))
    logps = exact.log_probs(policy, tokenizer, load_data([str(tmp_path / "all.jsonl")]))
    q_pos = exact.Knowledge.of(logps).q_pos
    (tmp_path / "hard.jsonl").write_text("".join(lines[i] for i in q_pos.argsort()[:128]))
    shares = {}
    for n in (64, 512):
        found = look(tmp_path, data=[str(tmp_path / "hard.jsonl")], overwrite=True, temperature=1.0,
                     preflight_prompts=128, preflight_rollouts=n)  # fmt: skip
        shares[n] = {row["n"]: row["kept"] for row in found["table"]}
    assert shares[64][64] < 0.9 and shares[64][512] == pytest.approx(shares[512][512], abs=0.05)
    for a, b in itertools.pairwise(shares[64].values()):
        assert a < b
