"""The course: every exercise is graded by tests that a wrong answer fails; the loop in one file is train.py's."""

import ast
import json
import re
from pathlib import Path
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, judged, loaded, sampled

import loss as L
import train
from lab import loop
from lab.blank import blanked, write
from lab.exercises import EXERCISES, MODULES
from lab.grade import grade, main
from trainer.metrics import Sums
from trainer.micro_batches import micro_batches
from trainer.policy import Policy
from trainer.problems import load_problems
from trainer.settings import Config

ROOT = Path(__file__).resolve().parent.parent

# A function, a part of its body, and a mistake in its place. Functions with the same tests have one mistake.
WRONG = [
    ("brorl.masses", "a2=mass(p2, correct & sampled)", "a2=mass(p2, ~correct & sampled)"),
    ("brorl.mood", "+ r_w * m.p_neg", "- r_w * m.p_neg"),
    ("brorl.token_rewards", "torch.where(sampled, drawn, torch.zeros_like(p))", "drawn"),
    ("brorl.logit_step", "(rewards - s_r)", "(rewards + s_r)"),
    ("brorl.probability_step", "dz - (p * dz)", "dz - (dz)"),
    ("brorl.mass_balance", "(s_r - r_w)", "(r_w - s_r)"),
    ("brorl.pass_at_k_estimate", "math.comb(n - c, k) / math.comb(n, k)", "(1 - c / n) ** k"),
    ("brorl.expected_unsampled_second_moment", "torch.exp(torch.special.xlog1py(n, -p))", "(1 - p) ** n"),
    ("brorl.total_unsampled_second_moment", "moments, 0)", "0, moments)"),
    ("brorl.pass_at_k", "-torch.expm1(", "1 - torch.expm1("),
    ("loss.informative", "(number_correct < n)", "(number_correct < len(correct))"),
    ("loss.mean_centred", "rewards.nanmean(-1, keepdim=True)", "rewards.nanmean()"),
    ("loss.group_mean", "rewards.nanmean(-1, keepdim=True)", "rewards.nanmean()"),
    ("loss.whiten", "correction=0", "correction=1"),
    ("loss.clipped_objective", "torch.minimum", "torch.maximum"),
    ("loss.truncated_importance_weight", ".detach()", ""),
    ("loss.kl_k3", "torch.expm1(-delta) + delta", "torch.expm1(delta) - delta"),
    ("loss.token_mean", "per_token.sum() / tokens", "per_token.mean()"),
    ("loss.brorl", "return weight", "return -weight"),
    ("loss.policy_loss", "per_token = -objective", "per_token = objective"),
    ("sim.initial_logits", "z[0] = constants.anchor_logit", "z[-1] = constants.anchor_logit"),
    ("sim.measure", "gain > 0", "gain >= 0"),
    ("sim.add_centred_rewards", "out.index_add_(0, tokens, r - r.mean())", "out[tokens] = r - r.mean()"),
    ("sim.surrogate_gradient", ".neg_()", ""),
    ("sim.loop", "r - r.mean()", "r"),
    ("rollout.sampling_logprobs", "k:] = -torch.inf", "k + 1 :] = -torch.inf"),
    ("rollout.draw", "middle] >= ", "middle] > "),
    ("verify.judge_countdown", '== reference["target"]', '>= reference["target"]'),
    ("loop.train", "log_probs(ref_policy, batch)", "log_probs(model, batch)"),
]  # fmt: skip
EXERCISE = {exercise.function: exercise for exercise in EXERCISES}
ORIGINAL = {module: (ROOT / file).read_text(encoding="utf-8") for module, file in MODULES.items()}


def with_originals(folder: Path, **texts: str) -> Path:
    """A student's folder: the originals, but for the modules of `texts`."""
    for module, text in (ORIGINAL | texts).items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    return folder


def changed(function: str, part: str, wrong: str) -> dict[str, str]:
    """The source of the function's module with another part in the function's body."""
    module, _, name = function.partition(".")
    (node,) = [x for x in ast.parse(ORIGINAL[module]).body if isinstance(x, ast.FunctionDef) and x.name == name]
    lines = ORIGINAL[module].splitlines(keepends=True)
    start = node.body[0].end_lineno  # after the docstring
    body = "".join(lines[start : node.end_lineno])
    assert part in body, f"{function} has no {part!r} any more: change this list"
    return {module: "".join(lines[:start]) + body.replace(part, wrong) + "".join(lines[node.end_lineno :])}


def test_every_test_of_the_exercises_meets_a_wrong_answer():
    """Makes impossible: a test of an exercise that no wrong answer fails; a wrong answer whose line was rewritten."""
    tried = {test for function, _, _ in WRONG for test in EXERCISE[function].test_ids}
    assert tried == {test for exercise in EXERCISES for test in exercise.test_ids}
    assert all(changed(*wrong) for wrong in WRONG)


@pytest.mark.parametrize("hard", [False, True])
def test_a_blank_has_no_solution_in_it(hard):
    """Makes impossible: a body, or with --hard a formula, that stays in the student's file."""
    for module in MODULES:
        exercises = [exercise for exercise in EXERCISES if exercise.module == module]
        text = blanked(ORIGINAL[module], exercises, hard)
        functions = {x.name: x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef)}
        if module == "loop":
            stages = ast.unparse(functions.pop("train"))
            assert "raise NotImplementedError" in stages and not re.search(r"L\.|backward|log_probs|loss_of", stages)
            assert ("# 5: advantages" in text) != hard
            exercises = []
        for exercise in exercises:
            docstring, raises = functions[exercise.name].body
            assert isinstance(raises, ast.Raise)
            assert (ast.literal_eval(docstring.value) == exercise.hint) == hard
        rest = ast.dump(ast.Module([x for x in ast.parse(text).body if not isinstance(x, ast.FunctionDef)], []))
        assert len(rest) > 500, "imports, classes and constants stay"


def test_a_students_work_is_not_overwritten(tmp_path):
    """Makes impossible: an evening's work gone with a second `python -m lab.blank`."""
    (tmp_path / "loss.py").write_text("mine")
    with pytest.raises(FileExistsError, match=r"loss\.py"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["loss.py"]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "part", "wrong"), WRONG)
def test_a_wrong_answer_loses_points(tmp_path, function, part, wrong):
    """Makes impossible: points for a wrong answer, or the repository's file tested in place of the student's."""
    (row,) = grade(with_originals(tmp_path, **changed(function, part, wrong)), [EXERCISE[function]])
    assert row["points"] == 0 and row["still_possible"] and not row["blank"]


def test_the_grade_of_a_half_done_sheet(tmp_path, monkeypatch, capsys):
    """Makes impossible: points for a wrong answer; a blank or a broken file that costs other functions their points; an
    exit status of 0.
    """
    names = "brorl.token_rewards", "brorl.mood", "brorl.pass_at_k", "sim.measure", "loss.mean_centred"
    chosen = [EXERCISE[name] for name in names]
    (mood,) = [case for case in WRONG if case[0] == "brorl.mood"]
    raises = changed("loss.mean_centred", "keepdim=True", "keep=True")
    brorl = blanked(changed(*mood)["brorl"], chosen[2:3])
    folder = with_originals(tmp_path, brorl=brorl, sim="def measure(:\n", **raises)
    monkeypatch.setattr("lab.grade.EXERCISES", chosen)
    with pytest.raises(SystemExit) as status:
        main([str(folder), "--json"])
    right, wrong, blank, broken, failing = json.loads(capsys.readouterr().out)
    points = [row["points"] for row in (right, wrong, blank, broken, failing)]
    assert points == [1, 0, 0, 0, 0] and status.value.code is True
    assert wrong["still_possible"] and not wrong["blank"]
    assert blank["blank"] == ["brorl.pass_at_k"] and broken["errors"] == ["SyntaxError: invalid syntax"]
    assert len(failing["errors"]) == 1 and re.match(r"loss.py, line \d+: TypeError", failing["errors"][0])


def test_the_loops_gradient_is_trains():
    """Makes impossible: a course whose loop trains otherwise: temperature, tokens, clip, denominator, reference.

    A mini-batch of half the rollouts; train.py cuts it into micro-batches and computes prompts once.
    """
    model, tokenizer = loaded()
    model = model.double()
    problems = load_problems(TINY / "train.jsonl")[:4]
    prompts = [tokenizer(problem.prompt).input_ids for problem in problems]
    prompts[1] += prompts[0]  # prompts of several lengths
    groups = sampled(model, prompts, 6, temperature=3.0)
    rollouts = judged(groups, problems, lambda p, response: True)
    generator = torch.Generator().manual_seed(0)
    advantages, rows = torch.randn(24, generator=generator), torch.randperm(24, generator=generator)[:12]
    for r, advantage in zip(rollouts, advantages.tolist(), strict=True):
        r.advantage = advantage
    noise = [0.3 * torch.randn(2, len(r.response), generator=generator) for r in rollouts]
    old_and_ref = {id(r): r.engine_logp + x for r, x in zip(rollouts, noise, strict=True)}
    old, ref = torch.cat([*old_and_ref.values()], dim=1)
    loop.loss_of(model, loop.batch_of(groups), rows, old, ref, advantages)[0].backward()
    ours = [p.grad.clone() for p in model.parameters()]

    model.zero_grad()
    policy, accelerator = Policy(model), Accelerator(cpu=True)
    policy.share_prompts = True
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimizer.zero_grad = lambda: None  # the test compares the gradient
    half = [rollouts[i] for i in rows.tolist()]
    batches, sums = micro_batches(half, 60, True, accelerator), Sums(accelerator)
    for batch in batches:
        batch.old_logp, batch.ref_logp = torch.cat([old_and_ref[id(r)] for r in batch.rollouts], dim=1)
    config, tokens = Config(temperature=1.0, kl_coef=loop.KL_COEF), sum(len(r.response) for r in half)
    with mock.patch.object(train, "MAX_GRAD_NORM", 1e9):
        train.update(policy, optimizer, batches, tokens, 12, L.OBJECTIVES["brorl"], config, accelerator, sums)
    metrics = sums.result()
    assert len(batches) > 2 and metrics["clip_high_fraction"] > 0.01 and metrics["clip_low_fraction"] > 0.01
    theirs = [p.grad for p in model.parameters()]
    assert max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True)) < 1e-6
