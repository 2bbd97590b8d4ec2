"""A prompt computed once for its rollouts in training: the plain path's log-probs and gradients, for fewer tokens."""

import pytest
import torch
from helpers import Largest, batch_of, furthest, random_groups, random_policy
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

import loss as L
from trainer.batch import Batch
from trainer.packed import packed_attention, packed_groups, response_attention
from trainer.policy import Policy

UNEVEN = [(7, 6), (1, 3), (12, 1), (5, 20)]  # a prompt of one token, a group of one


def gradients(policy: Policy, batch: Batch, budget: int) -> list[torch.Tensor]:
    """Of Σ w log π over all tokens, w random, with the rows shuffled and in micro-batches."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.randperm(len(batch), generator=generator)
    w = torch.randn(batch.engine_logp.shape, generator=generator)
    policy.zero_grad()
    for part in batch.micro_batches(rows, budget):
        logp, _ = policy(*batch.inputs(part, 0.8))
        (logp * w[part][batch.inside(part)]).sum().backward()
    return [p.grad.clone() for p in policy.parameters()]


def both_ways(policy: Policy, batch: Batch, budget: int) -> float:
    """How far the gradients with shared prompts are from the plain ones, whole."""
    plain = gradients(policy, batch, 10**6)
    policy.share("on")
    batch.share = True
    return furthest(gradients(policy, batch, budget), plain)


@pytest.mark.parametrize("short", [0, 16])
@pytest.mark.parametrize("budget", [10**6, 60, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config, Qwen3Config])
def test_gradients_and_scores_are_the_plain_ones(kind, budget, short, monkeypatch):
    """Makes impossible: a response that sees another, a position off by one, a gradient lost between micro-batches.

    Prompts and responses of unequal lengths, empty responses and groups of one among them; attention by sdpa, as for
    long responses, and by matrix products.
    """
    monkeypatch.setattr("trainer.packed.SHORT", short)
    policy, batch = random_policy(kind), batch_of(random_groups(UNEVEN))
    assert {0, 1, 8} <= set(batch.response_lengths.tolist())
    plain, entropy = batch.score(policy, 0.8, budget)
    assert both_ways(policy, batch, budget) < 1e-5
    shared, entropy_shared = batch.score(policy, 0.8, budget)
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=1e-5)
    assert entropy_shared == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize("keys", [1, 50, 2**15])
def test_in_float64_nothing_is_left_of_the_difference(keys, monkeypatch):
    """Makes impossible: an approximation that hides in float32's rounding. (GPT-2: the others' norms are float32.)"""
    monkeypatch.setattr("trainer.packed.KEYS_AT_ONCE", keys)
    policy = random_policy(GPT2Config, n_embd=32, n_layer=2, n_head=4, n_positions=64).double()
    assert both_ways(policy, batch_of(random_groups(UNEVEN)), 100) < 1e-12


@pytest.mark.parametrize("scaling", [0.3, None])
@pytest.mark.parametrize("short", [0, 16])
def test_attention_against_a_loop(short, scaling, monkeypatch):
    """Makes impossible: a scale, a head's group or an order that is another than the formula's.

    Two prompts of 3 and 2 tokens, responses of 2, 1 and none to the first and of 4 and 4 to the second.
    """
    monkeypatch.setattr("trainer.packed.SHORT", short)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 16, 8, generator=generator, dtype=torch.float64) for heads in (6, 2, 2))
    opens, prompts, inner = torch.tensor([1, 0, 0, 1, 0]) > 0, torch.tensor([3, 3, 3, 2, 2]), [2, 1, 0, 4, 4]
    packed = packed_groups(opens, prompts, torch.tensor(inner))
    got, _ = packed_attention(None, q, k, v, None, scaling=scaling, packed=packed)
    seen = {0: [0], 1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2, 3], 4: [0, 1, 2, 3, 4], 5: [0, 1, 2, 5]}
    seen |= {6: [6], 7: [6, 7]} | {t: [6, 7, *range(8, t + 1)] for t in range(8, 12)}
    seen |= {t: [6, 7, *range(12, t + 1)] for t in range(12, 16)}
    for t, keys in seen.items():
        for head in range(6):
            weights = torch.softmax((scaling or 8**-0.5) * k[0, head // 3, keys] @ q[0, head, t], 0)
            torch.testing.assert_close(got[0, t, head], weights @ v[0, head // 3, keys])


def test_attention_that_it_does_not_know_is_refused():
    """Makes impossible: a window or a cap that a model asks for and nobody applies."""
    x = torch.randn(1, 2, 4, 8)
    packed = packed_groups(torch.tensor([True]), torch.tensor([3]), torch.tensor([1]))
    for asked in ({"sliding_window": 2}, {"softcap": 30.0}, {"dropout": 0.1}):
        with pytest.raises(ValueError, match=f"has no {next(iter(asked))}"):
            packed_attention(None, x, x, x, None, packed=packed, **asked)


def test_the_keys_of_long_prompts_are_not_kept(monkeypatch):
    """Makes impossible: 512 copies of a long prompt's keys held from the forward pass to the backward pass."""
    made, real = [], response_attention
    monkeypatch.setattr("trainer.packed.response_attention", lambda *a: made.append(1) or real(*a))
    for prompt, times in ((40, 2), (4, 1)):
        policy, batch = random_policy(LlamaConfig, num_hidden_layers=1), batch_of(random_groups([(prompt, 6)]))
        policy.share("on")
        batch.share, made[:] = True, []
        gradients(policy, batch, 10**6)
        assert len(made) == times


def test_keys_stand_beside_each_other_in_bounded_numbers(monkeypatch):
    """Makes impossible: a copy of a long prompt for every one of its responses at the same time."""
    monkeypatch.setattr("trainer.packed.KEYS_AT_ONCE", 20)
    opens, inner = torch.tensor([1, 0, 0, 0, 1, 0, 1]) > 0, torch.tensor([3, 3, 2, 0, 5, 5, 0])
    made = packed_groups(opens, torch.tensor([4, 4, 4, 4, 10, 10, 7]), inner)
    shapes = [(prompt, [(rows.rows, rows.width, rows.tokens) for rows in parts]) for prompt, parts in made]
    assert shapes == [(4, [(2, 3, 6), (1, 2, 2)]), (10, [(1, 5, 5), (1, 5, 5)]), (7, [])]


def test_a_prompt_is_computed_once():
    """Makes impossible: an option that shares nothing. P·L + S·(R - 1) tokens a micro-batch, not S·(L + R)."""
    policy, batch, counted = random_policy(LlamaConfig), batch_of(random_groups([(40, 16), (30, 16)])), []
    embedding = policy.model.get_input_embeddings()
    policy.share("on")
    embedding.register_forward_hook(lambda module, inputs, out: counted.append(inputs[0].numel()))
    batch.share = True
    gradients(policy, batch, 10**6)
    assert counted == [40 + 30 + int((batch.response_lengths - 1).clamp(min=0).sum())]
    batch.share = False
    gradients(policy, batch, 10**6)
    assert counted[1] == 32 * 48


def test_gradient_checkpointing_recomputes_the_same():
    """Makes impossible: layers that are recomputed in the backward pass with another attention, or not at all."""
    policy, batch, calls = random_policy(LlamaConfig), batch_of(random_groups(UNEVEN)), []
    plain = gradients(policy, batch, 10**6)
    policy.share("on")
    batch.share = True
    policy.model.gradient_checkpointing_enable()
    policy.train()
    policy.model.model.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    assert furthest(gradients(policy, batch, 10**6), plain) < 1e-5
    assert len(calls) == 2


def test_neither_logits_nor_a_mask_of_the_whole_sequence_exist(monkeypatch):
    """Makes impossible: a [T, V] or [T, T] tensor, in either pass. Here T = 1,088 and V = 2,000."""
    few = L.token_logprobs
    monkeypatch.setattr(L, "token_logprobs", lambda *a: few(*a, max_logits=100_000))
    policy = random_policy(LlamaConfig, vocabulary=2000)
    tokens = torch.randint(2000, (128, 73))
    tokens[:, :64] = tokens[0, :64]
    policy.share("on")
    lengths, one = (torch.full((128,), 64), torch.full((128,), 9)), torch.zeros(128, dtype=torch.long)
    with Largest() as largest:
        logp, _ = policy(tokens, *lengths, 1.0, one)
        logp.sum().backward()
    assert len(logp) == 128 * 9 and largest.numel <= 128 * 72 * 4 * 8  # the keys, once for every head
