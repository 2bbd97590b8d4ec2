"""tools/which_n.py: the answer by hand, whole reports."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from helpers import ROOT, TINY, few_problems, flags

import brorl
from tools import which_n
from tools.which_n import Ratio, Step
from trainer import start


def made_step(n, correct, drawn_s, kept_s):
    """A step of these counts of correct rollouts."""
    table = torch.arange(n) < torch.tensor(correct)[:, None]
    kept = (table.sum(-1) > 0) & (table.sum(-1) < n)
    return Step(n, [], SimpleNamespace(correct=table), kept, drawn_s, kept_s)


def test_the_share_of_informative_prompts_uses_every_large_group():
    """Makes impossible: a share from groups that are too small, a biased one, one that drops unsolved prompts."""
    steps = [made_step(8, [0, 4, 8], 1, 1), made_step(32, [1, 31, 0, 32], 1, 1)]
    chance = 1 - brorl.pass_at_k_estimate(32, 31, 8)  # a group of 8 without the one other rollout: 24 / 32
    assert chance == 0 and brorl.pass_at_k_estimate(32, 1, 8) == pytest.approx(8 / 32)
    assert which_n.mean_kept_share(steps, 32) == pytest.approx(0.5)
    assert which_n.mean_kept_share(steps, 8) == pytest.approx((1 + 2 * 8 / 32) / 7)


def test_the_answer_has_the_smallest_worst_case_by_hand():
    """Makes impossible: an N that is best at one end of the interval and far from it at the other, a wrong t(N)."""
    steps = [made_step(n, [1, n - 1, 0, n], n / 8, n / 4) for n in (8, 32, 128)]
    found = which_n.answer(steps, Ratio(40, 50, 60, True, 10, 10), 32)
    assert [*found["table"]] == [8, 16, 32, 64, 128]
    row = found["table"][32]
    assert row["t"] == pytest.approx(4 + row["kept_share"] * 8) and row["seconds"] == pytest.approx(
        row["t"] * 32 / row["kept_share"]
    )
    sixteen = found["table"][16]  # a third of the way from 8 to 32
    assert sixteen["drawn_s"] == pytest.approx(2) and sixteen["kept_s"] == pytest.approx(4)
    noise = np.array([[(1 + r / (n - 1)) * x["t"] for r in (60, 50, 40)] for n, x in found["table"].items()])
    noise /= noise.min(0)
    np.testing.assert_allclose([x["noise"] for x in found["table"].values()], noise)
    assert found["best"] == [*found["table"]][int(noise.max(1).argmin())]
    said = which_n.in_words(found | {"model": "m", "minutes": 1.0}, 32)
    assert found["left_out"] == [512] and "prompts: N = 512.\nSo no N above 128 can be advised.\n" in said
    whole = which_n.answer([*steps, made_step(512, [1, 511], 64, 128)], Ratio(40, 50, 60, True, 10, 10), 32)
    assert whole["left_out"] == [] and "Not measured" not in which_n.in_words(
        whole | {"model": "m", "minutes": 1.0}, 32
    )


# ------------------------------------------------------------------------------------------------------- whole reports


def look(folder, name="look", more=(), **settings):
    """The report on the tiny policy, in this process. It must not change a weight."""
    models, set_up = [], start.set_up

    def remember(*arguments):
        models.append(set_up(*arguments))
        before.extend(x.clone() for x in models[-1].policy.parameters())
        return models[-1]

    before: list = []
    small = {"MEASURED": (8, 16), "TABLE": (8, 16), "REPEATS": 2}
    with mock.patch.multiple(which_n, **small), mock.patch.object(which_n, "set_up", remember):
        found = which_n.main([*flags(folder, name, **settings), *more])
    assert all(torch.equal(x, y) for x, y in zip(before, models[-1].policy.parameters(), strict=True))
    return found


def test_a_report_keeps_the_weights_and_names_flags(tmp_path, capsys):
    """Makes impossible: a report that trains or writes a checkpoint, another B, a line that is wider than a console."""
    found = look(tmp_path, prompts_per_step=12)
    assert {x.name for x in (tmp_path / "look").iterdir()} == {
        "config.json", "lock", "which_n.json", "samples.jsonl",
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "--max_minutes" in said and max(map(len, said.partition("\nwrote")[0].splitlines())) <= 120
    assert f"--rollouts_per_prompt {found['best']} --prompts_per_step 12\n" in said
    assert [*found["table"]] == [8, 16] and found["V_w / V_b"]["informative"] >= which_n.FEW
    for row in found["table"].values():
        assert row["seconds"] > 0 and 0 < row["kept_share"] <= 1 and row["measured_with"] >= 12
    assert min(row["noise"][1] for row in found["table"].values()) == 1
    written = json.loads((tmp_path / "look/which_n.json").read_text())
    again = look(tmp_path, "again", prompts_per_step=12)
    assert written["V_w / V_b"] == found["V_w / V_b"] == again["V_w / V_b"]


@pytest.mark.parametrize(
    "wrong", ["--max_minutes=0", "--eval_only", "--bogus", "--objective=group_std"], ids=lambda x: x[2:8]
)
def test_wrong_uses_are_refused(tmp_path, wrong):
    """Makes impossible: a setting that is silently ignored, or a traceback for a mistake of the user."""
    with pytest.raises(which_n.Refusal, match=wrong.partition("=")[0]):
        which_n.main([*flags(tmp_path, "look"), wrong])
    assert not (tmp_path / "look").exists()


def test_unsolved_problems_are_refused_with_the_reason(tmp_path):
    """Makes impossible: an advice from steps that would not train."""
    rows = [json.loads(line) for line in (TINY / "train.jsonl").read_text().splitlines()[:16]]
    never = [json.dumps(row | {"kind": "math", "reference": "1"}) + "\n" for row in rows]  # no response has a box
    (tmp_path / "data.jsonl").write_text("".join(never))
    with pytest.raises(which_n.Refusal, match="no step would train"):
        look(tmp_path, data=tmp_path / "data.jsonl")


@pytest.mark.slow
def test_two_processes_find_the_numbers_of_one(tmp_path):
    """Makes impossible: a process that counts its own rollouts only, or gradients that are added up twice."""
    data = few_problems("train", 64)
    found = []
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}", "-m"]
        command += ["tools.which_n", *flags(tmp_path, f"on{count}", data=data)]
        environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads((tmp_path / f"on{count}/which_n.json").read_text()))
    alone, together = found
    for n, row in alone["table"].items():
        assert together["table"][n]["kept_share"] == pytest.approx(row["kept_share"], abs=0.1), n
    assert together["V_w / V_b"]["middle"] == pytest.approx(alone["V_w / V_b"]["middle"], rel=0.05)
