"""tiny/exact_gradient.py: the limit of many rollouts."""

import pytest
import torch

from tiny import exact_gradient
from tiny.exact import AnswerLogProbs
from trainer.files import read_csv

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_gradient_is_the_mean_over_all_responses():
    """Makes impossible: a wrong sign, a factor T or P, a response that is left out of the mean."""
    logits = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    right = torch.tensor([[True, False, True, False, False], [False, True, False, False, False]])
    logp, sigma = logits.log_softmax(-1), 0.3
    q = (logp.exp() * right).sum(-1, keepdim=True).detach()
    advantage = (right.double() - q) / sigma
    objective = (logp.exp().detach() * advantage * logp).sum() / (2 * exact_gradient.RESPONSE_TOKENS)  # P = 2
    [expected] = torch.autograd.grad(-objective, logits, retain_graph=True)
    logps = AnswerLogProbs.of([logp[0][right[0]], logp[1][right[1]]])
    [found] = torch.autograd.grad(exact_gradient.loss_of(logps, sigma), logits)
    torch.testing.assert_close(found, expected)


def test_informative_prompts_are_as_frequent_as_among_n_rollouts():
    """Makes impossible: prompts that are never or always solved, a share that is not 1 - q^N - (1 - q)^N."""
    q = torch.tensor([0.0, 1.0, 1 / 512, 0.5], dtype=torch.float64).repeat(4000, 1)
    generator = torch.Generator().manual_seed(0)
    share = exact_gradient.chosen(q, torch.rand(q.shape, generator=generator, dtype=torch.float64)).double().mean(0)
    assert share[:2].tolist() == [0, 0] and share[3] == 1
    assert share[2].item() == pytest.approx(1 - (511 / 512) ** 512, abs=0.03)


def test_a_run_learns_its_problems(tmp_path, capsys):
    """Makes impossible: weights that do not change, a row that is lost, steps on the held-out problems."""
    out = tmp_path / "OUT.csv"
    words = ["--problems", "6", "--prompts", "4", "--steps", "3", "--learning_rate", "3e-4", "--seeds", "1", "2"]
    exact_gradient.main([str(out), "--model", "tiny/policy", *words])
    rows = read_csv(out)
    assert [(row["seed"], row["step"]) for row in rows] == [(seed, step) for seed in (1, 2) for step in (0, 2, 3)]
    for first, last in ((rows[0], rows[2]), (rows[3], rows[5])):
        assert last["train_q_pos"] > first["train_q_pos"] + 0.05
        assert 3 * 4 <= last["found"] <= last["drawn"] == 3 * 4
    assert rows[2]["q_pos"] != rows[5]["q_pos"] and "after 3 steps" in capsys.readouterr().out
