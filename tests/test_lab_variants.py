"""Each variant of the objective with numbers worked out by hand, through the loop and through --objective."""

import pytest
import torch
from test_lab_loop import error, gradients

import loss as L
from lab import loop, variants
from trainer.objectives import load_objective

# A right response of two tokens and a wrong one of one token: r = 1.5, 0.5, 0.9
OLD, NEW = torch.tensor([0.2, 0.4, 0.5]).log(), torch.tensor([0.3, 0.2, 0.45]).log()
LENGTHS, A = torch.tensor([2, 1]), torch.tensor([1.0, -1.0])


RHO = torch.tensor([0.4, 1.2, 6.0])  # π_old / π_engine
S = 0.75**0.5  # gspo's ratio of the right response, (1.5 x 0.5)^(1/2); the wrong one has 0.9, clipped to 1 - 3e-4


@pytest.mark.parametrize(("name", "objective", "gradient", "clipped"), [
    ("cispo", None, [1.27, 0.5, -0.9], 0),  # the weight has no gradient, and the token beyond the clip has one
    ("gspo", (S - 0.9997) / 2, [3 * S / 4, 3 * S / 4, 0], 1),  # a mean of log r, and a mean over responses
    ("dr_grpo", (1.27 + 0.5 - 0.9) / (2 * 12), [0, 0.5 / 8, -0.9 / 8], 1),  # T = 3 tokens, S L_max = 24
    ("icepop", 1.2 * 0.5 / 3, [0, 0.6, 0], 2),  # the first and the last token are dropped, not capped
])  # fmt: skip
def test_an_objective_by_hand(name, objective, gradient, clipped):
    """Makes impossible: a ratio of the wrong kind, a clip on the wrong side, another divisor, a cap for a mask."""
    logp = NEW.clone().requires_grad_()
    b = L.Tokens(logp, OLD, OLD - RHO.log() if name == "icepop" else OLD, None, A, LENGTHS)
    loss, metrics = L.policy_loss(b, 3, 2, variants.OBJECTIVES[name])
    assert objective is None or loss.item() == pytest.approx(-objective)
    assert (-3 * torch.autograd.grad(loss, logp)[0]).tolist() == pytest.approx(gradient)
    assert metrics["clip_high_fraction"] + metrics["clip_low_fraction"] == clipped


def test_the_entropy_bonus_is_the_gradient_of_the_entropy():
    """Makes impossible: a bonus that lowers the entropy. The sum is over all tokens, with their probabilities."""
    z = torch.tensor([1.5, 0.5, 0.0, -2.0], dtype=torch.float64, requires_grad=True)
    logp, p = z.log_softmax(-1), z.softmax(-1)
    fixed, nothing, ones = logp.detach(), torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.long)
    bonus = variants.entropy_bonus(L.Tokens(logp, fixed, fixed, None, nothing, ones))
    ours = torch.autograd.grad(p.detach() @ bonus, z, retain_graph=True)
    assert torch.allclose(ours[0], 0.01 * torch.autograd.grad(-(p * logp).sum(), z)[0])


def advantages(name, correct):
    return L.step_advantages(correct.float(), L.informative(correct), objective=variants.OBJECTIVES[name])


def test_f_grpo_and_dr_grpo_by_hand():
    """Makes impossible: p for 1 - p, a weight that whitening takes back; a std in dr_grpo."""
    correct = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0]]) == 1
    by_hand = torch.tensor([[0.5625, -0.1875, -0.1875, -0.1875], [0.0625, 0.0625, 0.0625, -0.1875]])
    assert torch.allclose(advantages("f_grpo", correct), by_hand / 0.05859375**0.5)
    assert advantages("dr_grpo", correct)[0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_pods_by_hand():
    """Makes impossible: the baseline of all N rollouts, the rare class left out, other rollouts than the first."""
    correct = torch.arange(16) < torch.tensor([[1], [14], [8]])
    got = advantages("pods", correct) * 0.229167**0.5  # mean of A² over 12 rollouts: (0.75 + 1 + 1) / 12
    expected = torch.full((3, 16), float("nan"))
    expected[0, :4] = torch.tensor([0.75, -0.25, -0.25, -0.25])
    expected[1, [0, 1, 14, 15]] = expected[2, [0, 1, 8, 9]] = torch.tensor([0.5, 0.5, -0.5, -0.5])
    assert torch.allclose(got, expected, atol=1e-5, equal_nan=True)


@pytest.fixture(scope="module")
def plain() -> torch.Tensor:
    """The gradients of the recipe's objective."""
    return torch.cat(gradients(loop.train, updates=2, learning_rate=3e-3))


@pytest.mark.parametrize("name", sorted(loop.OBJECTIVES))
def test_a_variant_trains(name, plain):
    """Makes impossible: an --objective that the loop does not reach. icepop differs where engine and trainer do."""
    got = torch.cat(gradients(loop.train, updates=2, learning_rate=3e-3, objective=name))
    assert got.isfinite().all() and (error(got, plain) > 1e-3) == (name not in ("brorl", "icepop", "mask_truncated"))
    assert load_objective([name]).parameters == loop.OBJECTIVES[name].parameters


def test_an_objective_of_a_users_file(tmp_path):
    """Makes impossible: a file, a parameter or a name that --objective does not read, or takes without a word; a wrong
    shape, a nan or a mistake of the file that a run meets in its first update.
    """
    path = tmp_path / "mine.py"
    path.write_text("import loss\ndef half(b, x=0.5): return x * loss.brorl(b)\n"
                    "OBJECTIVES = {'half': loss.Objective(maximise=half),\n"
                    "  'sum': loss.Objective(maximise=lambda b: b.summed(b.logp)),\n"
                    "  'mean': loss.Objective(advantages=lambda r: r.mean(-1)),\n"
                    "  'log': loss.Objective(maximise=lambda b: (b.logp - b.old_logp).sqrt()),\n"
                    "  'detached': loss.Objective(maximise=lambda b: loss.brorl(b).detach())}\n")  # fmt: skip
    assert load_objective([f"{path}:half", "x=0.25"]).parameters["x"] == 0.25
    (tmp_path / "broken.py").write_text("import losss\n")
    for words, message in ((["nope"], "gspo"), ([f"{path}:nope"], "half"), (["gspo", "x=1"], "clip_low"),
                           (["brorl", "clip_high"], "PARAMETER=NUMBER"), ([f"{path}:sum"], r"\(2,\) for 2 responses"),
                           ([f"{path}:mean"], "rewards of shape"), ([f"{path}:log"], "not finite"),
                           ([f"{path}:detached"], "not require grad"),
                           ([f"{tmp_path}/broken.py:x"], "cannot be run: ModuleNotFoundError")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            load_objective(words)
