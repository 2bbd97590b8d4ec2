"""tools/which_n.py: gradients by a loop, whole reports."""

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
from helpers import ROOT, TINY, few_problems, flags, judged, loaded, sampled

from tools import noise_law, step_cost, which_n
from tools.noise_law import estimate, kept_share
from tools.which_n import HalfGroups
from trainer import start
from trainer.outcomes import Outcomes
from trainer.policy import Policy
from trainer.problems import load_problems
from trainer.settings import Config

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


# ------------------------------------------------------------------------------------------------------- whole reports


def look(folder, name="look", prompts=12, more=(), **settings):
    """The report on the embedded policy, in this process. It must not change a weight."""
    models, set_up = [], start.set_up

    def remember(*arguments):
        models.append(set_up(*arguments))
        before.extend(x.clone() for x in models[-1].policy.parameters())
        return models[-1]

    before: list = []
    small = {"ROUND": 5, "SAMPLED": (16, 4)}
    with (
        mock.patch.multiple(which_n, **small),
        mock.patch.object(which_n, "set_up", remember),
        mock.patch.object(step_cost, "REPEATS", 1),
        mock.patch.object(noise_law, "FEW", 5),
    ):
        found = which_n.main([*flags(folder, name, **settings), f"--sample_prompts={prompts}", *more])
    assert all(torch.equal(x, y) for x, y in zip(before, models[-1].policy.parameters(), strict=True))
    return found


def test_a_report_keeps_the_weights_and_names_flags(tmp_path, capsys):
    """Makes impossible: a report that trains, that writes a checkpoint, or that changes from run to run; another B."""
    found = look(tmp_path)
    assert {x.name for x in (tmp_path / "look").iterdir()} == {
        "config.json", "lock", "which_n.json", "which_n.png", "samples.jsonl",
    }  # fmt: skip
    said = capsys.readouterr().out
    assert found["prompts"] == 12 and sum(found["solved"].values()) == 12 and "--max_minutes" in said
    assert max(map(len, said.partition("\nwrote")[0].splitlines())) <= 80
    rate = 1e-4 * math.sqrt(found["best"]["n"] / 8)  # N of the configuration is 8
    assert f"--rollouts_per_prompt {found['best']['n']} --prompts_per_step 4 --learning_rate {rate:.2g}" in said
    assert [*found["table"]] == [4, 8, 16, 32, 64, 128, 256, 512]
    correct = found["correct"]
    assert (found["solved"]["never"], found["solved"]["always"]) == (correct.count(0), correct.count(16))
    assert sum(correct) == found["reasons"]["correct"] and found["ratio"]["error"] > 0
    for n, row in found["table"].items():  # B = 4 prompts are kept
        assert row["drawn"] == pytest.approx(4 / kept_share(correct, 16, n))
        assert row["seconds"] == pytest.approx(sum(row["stages"].values()))
        assert row["noise_low"] <= row["noise"] <= row["noise_high"]
    assert found["table"][found["best"]["n"]]["noise"] == 1
    near = [n for n, row in found["table"].items() if row["noise"] <= 1.2]
    assert (f"N = {near[0]} to {near[-1]} have at most 20% more noise" in said) == (len(near) > 1)
    written = json.loads((tmp_path / "look/which_n.json").read_text())
    again = look(tmp_path, "again")
    assert written["correct"] == found["correct"] == again["correct"] and again["ratio"] == found["ratio"]


@pytest.mark.parametrize("wrong", ["--sample_prompts=0", "--max_minutes=0", "--eval_only", "--bogus"])
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
    assert (found["prompts"], found["rollouts"], found["ratio"]) == (1, 4, None)
    assert found["solved"]["never"] == 1 and found["best"]["ratio"] == pytest.approx(100, rel=0.05)
    said = capsys.readouterr().out
    assert "usual values" in said and "--rollouts_per_prompt" in said


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
