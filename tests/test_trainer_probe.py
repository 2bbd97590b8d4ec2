"""trainer/probe.py: the graded theorem and its sum along the tree against autograd, the probe against a loop."""

import dataclasses
import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from softmax_cases import gradient_step, random_case, rewards_pairs, shapes
from transformers import AutoModelForCausalLM, AutoTokenizer

import brorl
from rollout import Group, TorchEngine
from trainer.batch import Batch
from trainer.policy import Policy
from trainer.probe import Probe, Tree, along_the_tree, graded_mass_balance, importance_change, prefix_tree
from trainer.rollouts import Rolled
from trainer.settings import Config
from verify import load_problems

TINY = Path(__file__).parent.parent / "tiny"


def graded_case(shape, vocab=9, n=5, seed=0):
    """A random case whose tokens lead to correct answers a random share of the time, with random rewards if drawn."""
    z, p, _, sampled = random_case(shape, vocab, n, seed)
    g = torch.Generator().manual_seed(seed + 1)
    value, rewards = (torch.rand(*shape, vocab, generator=g, dtype=torch.float64) for _ in range(2))
    return z, p, value, torch.where(sampled, 2 * rewards - 1, 0), sampled


@shapes
@rewards_pairs
def test_graded_mass_balance_of_right_and_wrong_tokens_is_theorem_1(shape, r_c, r_w):
    """Makes impossible: a graded theorem whose terms are others, or of other signs, where every value is 0 or 1."""
    _, p, correct, sampled = random_case(shape, 9, n=5, seed=1)
    rewards = brorl.token_rewards(p, correct, sampled, r_c, r_w)
    graded = graded_mass_balance(p, correct.double(), rewards, sampled, 0.7, 5)
    plain = brorl.mass_balance(brorl.masses(p, correct, sampled), 0.7, 5, r_c, r_w)
    for got, want in zip(graded, plain, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-15)


@shapes
def test_graded_mass_balance_is_the_derivative_of_the_expected_value(shape):
    """Makes impossible: a graded theorem that is not ∂(Σ p v)/∂z · (-η ∂L/∂z), both factors by autograd alone."""
    z, p, value, rewards, sampled = graded_case(shape)
    dz = gradient_step(z, rewards, 0.7, 5)
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad((torch.softmax(z, -1) * value).sum(), z)
    balance = graded_mass_balance(p, value, rewards, sampled, 0.7, 5)
    torch.testing.assert_close(balance.total, (slope * dz).sum(-1), rtol=0, atol=1e-14)


def test_each_graded_term_is_the_part_of_its_own_tokens():
    """Makes impossible: a drawn token's share counted to the coupling, or right and wrong shares swapped."""
    _, p, value, rewards, sampled = graded_case((4,), seed=3)
    balance = graded_mass_balance(p, value, rewards, sampled, 1.0, 1)
    q, s_r = (p * value).sum(-1, keepdim=True), (p * rewards).sum(-1, keepdim=True)
    moved = p * p * (rewards - s_r)  # p_i Δz_i
    drawn, undrawn = moved * sampled, moved * ~sampled
    torch.testing.assert_close(balance.sampled_correct, (drawn * value * (1 - q)).sum(-1))
    torch.testing.assert_close(balance.sampled_incorrect, (drawn * (1 - value) * (0 - q)).sum(-1))
    torch.testing.assert_close(balance.unsampled_coupling, (undrawn * (value - q)).sum(-1))


def test_along_the_tree_is_the_derivative_of_q_pos_through_every_softmax():
    """Makes impossible: a node weighted by the wrong probability or share, or one whose change is left out.

    Responses of three tokens out of three, a softmax of its own at each of the 1 + 3 + 9 prefixes, rollouts drawn
    from it; Q_pos by enumeration; the loss -(1/N) Σ_h (N_h / N) Σ_i R_i p_i, all by autograd.
    """
    g = torch.Generator().manual_seed(0)
    inner = [(), *itertools.product(range(3), repeat=1), *itertools.product(range(3), repeat=2)]
    index = {h: i for i, h in enumerate(inner)}
    z = torch.randn(len(inner), 3, generator=g, dtype=torch.float64, requires_grad=True)
    right = {y: bool(torch.rand((), generator=g) < 0.4) for y in itertools.product(range(3), repeat=3)}

    def value(h, p):  # the probability of a correct response after h
        return float(right[h]) if len(h) == 3 else sum(p[index[h], i] * value((*h, i), p) for i in range(3))

    p = torch.softmax(z, -1)
    n, rollouts = 12, []
    for _ in range(n):
        h = ()
        while len(h) < 3:
            h = (*h, int(torch.multinomial(p[index[h]].detach(), 1, generator=g)))
        rollouts.append(h)
    mean = sum(right[y] for y in rollouts) / n
    rewards, counts = torch.zeros(2, len(inner), 3, dtype=torch.float64)
    for y in rollouts:
        for d in range(3):
            counts[index[y[:d]], y[d]] += 1
            rewards[index[y[:d]], y[d]] += right[y] - mean
    rewards = rewards / counts.clamp(min=1)
    share = counts.sum(-1) / n
    loss = -(share[:, None] * rewards * p).sum() / n
    (slope,) = torch.autograd.grad(value((), p), z, retain_graph=True)
    (gradient,) = torch.autograd.grad(loss, z)

    p = p.detach()
    reach = torch.stack(
        [math.prod([p[index[h[:d]], h[d]] for d in range(len(h))], start=torch.ones(())) for h in inner]
    )
    values = torch.tensor([[float(value((*h, i), p)) for i in range(3)] for h in inner], dtype=torch.float64)
    terms = graded_mass_balance(p, values, rewards, counts > 0, 0.3, n)
    tree = along_the_tree(terms, reach, share)
    assert abs(tree.total - (slope * -0.3 * gradient).sum()) < 1e-15 < abs(tree.total)


def test_prefix_tree_by_hand():
    """Makes impossible: a node of one rollout, a shared prefix missed, a response that goes on after its end."""
    tree = prefix_tree([[1, 2, 3], [1, 2, 4], [1, 5], [6], [1, 2]])
    assert tree == [((), [0, 1, 2, 3, 4]), ((1,), [0, 1, 2, 4]), ((1, 2), [0, 1])]
    assert prefix_tree([[1, 2, 3], [1, 2, 4], [1, 5]], limit=2) == [((), [0, 1, 2]), ((1,), [0, 1, 2])]
    assert prefix_tree([[1], [], [1]]) == [((), [0, 2])] and prefix_tree([[1, 2]]) == []


def test_importance_change_is_unbiased_over_all_draws():
    """Makes impossible: a change of Q_pos of the wrong sign or size, or one that its own mean biases."""
    old = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    new = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    correct = torch.tensor([False, True, True])
    for n in (2, 4):
        draws = torch.tensor(list(itertools.product(range(3), repeat=n)))
        estimate = importance_change(correct[draws], (new / old).log()[draws])
        expected = (old[draws].prod(-1) * estimate).sum()
        assert expected == pytest.approx(0.2, abs=1e-14)  # 0.7 - 0.5
    with pytest.raises(ValueError, match="bool"):
        importance_change(torch.ones(3), torch.zeros(3))


# ------------------------------------------------------------------------------------------ the probe


def loaded():
    folder = str(TINY / "policy")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def rollouts(count: int) -> list[Group]:
    """Real rollouts of the tiny policy at temperature 3, so that lengths differ."""
    model, tokenizer = loaded()
    prompts = [tokenizer(p.prompt).input_ids for p in load_problems(TINY / "train.jsonl")[:count]]
    return TorchEngine(model).generate(prompts, 6, max_new_tokens=12, temperature=3.0, seed=0)


def probed(groups, verdicts, **changes):
    """A probe of the tiny policy, and its rolled out groups with these verdicts."""
    model, _ = loaded()
    rolled = [
        Rolled(None, group, [], [SimpleNamespace(reason="correct" if x else "wrong") for x in correct], place)
        for place, (group, correct) in enumerate(zip(groups, verdicts, strict=True))
    ]
    settings = {"temperature": 1.0, "max_tokens_per_micro_batch": 32768, "rollouts_per_prompt": 6} | changes
    settings["prompts_per_step"] = 8 * len(groups)  # a probe looks at an eighth of them
    return Probe(Policy(model), Config(**settings), Accelerator(cpu=True)), rolled


def test_the_probe_is_theorem_1_on_the_policys_softmaxes():
    """Makes impossible: a probe that hands the theorem another p, value, reward, reach or share than it names.

    By a loop over the prefixes, with the softmaxes of plain forward passes.
    """
    model, tokenizer = loaded()
    prompt = tokenizer(load_problems(TINY / "train.jsonl")[0].prompt).input_ids
    responses = [[5, 12, 6, 0], [5, 12, 7, 0], [5, 13, 7, 0], [5, 12, 6, 0], [4, 12, 6, 0], [4, 13, 5, 0]]
    correct = [True, False, False, True, True, False]
    probe, (rolled,) = probed([Group(prompt, responses, [[0.0] * 4] * 6, ["stop"] * 6)], [correct])
    got = probe.mass_balance(rolled)

    def node(prefix):
        here = [i for i, r in enumerate(responses) if r[: len(prefix)] == list(prefix)]
        p = model(input_ids=torch.tensor([[*prompt, *prefix]])).logits[0, -1].softmax(-1).detach()
        value, rewards = torch.full((len(p),), 0.5), torch.zeros(len(p))  # undrawn: the group's mean
        for token in {responses[i][len(prefix)] for i in here}:
            through = [correct[i] for i in here if responses[i][len(prefix)] == token]
            value[token] = sum(through) / len(through)
            rewards[token] = value[token] - 0.5  # centred on the same
        drawn = torch.zeros(len(p), dtype=torch.bool)
        drawn[[responses[i][len(prefix)] for i in here]] = True
        return graded_mass_balance(p, value, rewards, drawn, 1.0, 1), p, len(here) / 6

    first, *_ = node(())
    for a, b in zip(got["first_token"], first, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-8)
    want = torch.zeros(3)
    for prefix in [(), (5,), (4,), (5, 12), (5, 12, 6)]:  # shared by two or more
        terms, _, share = node(prefix)
        reach = 1.0
        for d, token in enumerate(prefix):
            reach *= float(node(prefix[:d])[1][token])
        want += torch.stack([*terms]) * reach * share
    torch.testing.assert_close(torch.stack([*got["tree"]]), want, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(("undrawn", "value"), [("zero", 0.0), ("group", 0.4), ("prefix", 0.75)])
def test_a_token_that_nobody_drew_by_hand(undrawn, value):
    """Makes impossible: U_pos2 that is 0 by construction; a guess that takes other rollouts than it names.

    p = (.5, .2, .2, .1): the first was drawn three times, always right, the second once, wrong; the group's mean is .4.
    """
    drawn, won = torch.tensor([[3.0, 1.0, 0.0, 0.0]]), torch.tensor([[3.0, 0.0, 0.0, 0.0]])
    p = torch.tensor([[0.5, 0.2, 0.2, 0.1]])
    tree = Tree({(): 1.0}, torch.ones(1), p, drawn, won, 0.4)
    assert tree.values(undrawn)[0].tolist() == pytest.approx([1.0, 0.0, value, value])
    terms = tree.terms(tree.values(undrawn))["first_token"]
    q_pos, s_r = 0.5 + 0.3 * value, 0.5 * 0.6 - 0.2 * 0.4
    want = s_r * 0.05 * (q_pos * (1 - value) - (1 - q_pos) * value)
    assert float(terms.unsampled_coupling) == pytest.approx(want, rel=1e-5, abs=1e-9)
    if undrawn == "group":  # whose coupling cannot be negative: Probe says so
        assert want == pytest.approx(s_r**2 * 0.05)


def test_the_probe_sees_the_change_that_the_update_made():
    """Makes impossible: a change of the wrong sign, of another group, or from another policy than the updated one."""
    groups = rollouts(3)
    groups = [dataclasses.replace(g, responses=[*g.responses[:5], g.responses[0]]) for g in groups]  # one comes twice
    groups = [dataclasses.replace(g, logprobs=[*g.logprobs[:5], g.logprobs[0]]) for g in groups]
    verdicts = [[True, False, False, True, False, True], [False] * 5 + [True], [True] * 5 + [False]]
    probe, rolled = probed(groups, verdicts)
    batch = Batch.of(groups, torch.zeros(18), torch.device("cpu"))
    batch.old_logp, _ = batch.score(probe.policy, 1.0, 32768)
    probe.predict(rolled)
    still = probe.compare(batch, 1)
    assert still["mass_balance/groups"] == 3 and still["mass_balance/q_pos_change"] == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for weights in probe.policy.parameters():
            weights += 0.02 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    new, _ = batch.score(probe.policy, 1.0, 32768)
    log_weight = (new - batch.old_logp).sum(-1).view(3, 6)
    want = importance_change(torch.tensor(verdicts), log_weight)
    assert probe.estimated_changes(batch) == pytest.approx(want.tolist(), rel=1e-3, abs=1e-6)
    seen = probe.compare(batch, 2)
    assert seen["mass_balance/q_pos_change"] == pytest.approx(float(want.mean()), rel=1e-3)
    assert seen["mass_balance/q_pos_rose"] == pytest.approx(float((want > 0).float().mean()))
    assert seen["mass_balance/tree/sampled_correct"] == pytest.approx(
        sum(float(terms["tree"].sampled_correct) for terms in probe.terms) / 3
    )
