"""A prompt computed once for its rollouts in training: the plain path's log-probs and gradients, for fewer tokens."""

import pytest
import torch
from helpers import Largest, batch_of, furthest, random_groups, random_policy
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

import loss as L
from trainer.batch import Batch
from trainer.packed import holders, packed_attention, packed_groups, response_attention
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
    batch.share = False
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
    """Makes impossible: a scale, a head's group or an order that is another than the formula's, a lost beginning.

    Two prompts of 3 and 2 tokens, responses of 2, 1 and none to the first and of 4 and 4 to the second, of which the
    last begins like the one before it.
    """
    monkeypatch.setattr("trainer.packed.SHORT", short)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 15, 8, generator=generator, dtype=torch.float64) for heads in (6, 2, 2))
    paths = ["01234.", "0125..", "012...", "6789AB", "678CDE"]
    place = torch.tensor([[0 if x == "." else int(x, 16) for x in path] for path in paths])
    computed = torch.tensor([[x == "1" for x in row] for row in ("111110", "000100", "000000", "111111", "000111")])
    packed = packed_groups(computed, place, torch.tensor([3, 3, 3, 2, 2]), torch.tensor([2, 1, 0, 4, 4]))
    got, _ = packed_attention(None, q, k, v, None, scaling=scaling, packed=packed)
    seen = {int(x, 16): [int(y, 16) for y in path[: i + 1]] for path in paths for i, x in enumerate(path) if x != "."}
    assert len(seen) == 15
    for t, keys in seen.items():
        for head in range(6):
            weights = torch.softmax((scaling or 8**-0.5) * k[0, head // 3, keys] @ q[0, head, t], 0)
            torch.testing.assert_close(got[0, t, head], weights @ v[0, head // 3, keys])


def test_attention_that_it_does_not_know_is_refused():
    """Makes impossible: a window or a cap that a model asks for and nobody applies."""
    x = torch.randn(1, 2, 4, 8)
    packed = [(3, 1, [])]
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
    first, prompts = torch.tensor([0, 0, 0, 0, 4, 4, 6]), torch.tensor([4, 4, 4, 4, 10, 10, 7])
    inner, column, row = torch.tensor([3, 3, 2, 0, 5, 5, 0]), torch.arange(15), torch.arange(7)[:, None]
    computed = (column < (prompts + inner)[:, None]) & ((column >= prompts[:, None]) | (row == first[:, None]))
    place = (computed.flatten().cumsum(0).view_as(computed) - 1)[
        torch.where(column < prompts[:, None], first[:, None], row), column
    ]
    made = packed_groups(computed, place, prompts, inner)
    shapes = [(p, tokens, [(*rows.paths.shape, len(rows.own)) for rows in parts]) for p, tokens, parts in made]
    assert shapes == [(4, 8, [(2, 3, 6), (1, 2, 2)]), (10, 10, [(1, 5, 5), (1, 5, 5)]), (7, 0, [])]


def distinct_prefixes(batch: Batch, inner: int) -> int:
    """Of the responses to a prompt, of all prompts, without the last `inner` tokens of each."""
    prefixes = set()
    for row, (prompt, start, length) in enumerate(
        zip(batch.prompts, batch.prompt_lengths, batch.response_lengths, strict=True)
    ):
        response = batch.tokens[row, start : start + length].tolist()
        prefixes |= {(int(prompt), *response[: t + 1]) for t in range(len(response) - inner)}
    return len(prefixes)


@pytest.mark.parametrize("vocabulary", [2, 50])
def test_a_distinct_prefix_is_computed_once(vocabulary, monkeypatch):
    """Makes impossible: an option that shares nothing. P·L + at most S·(R - 1) tokens a micro-batch, not S·(L + R).

    The tokens of the layers are counted, and the rows of the output head. Of two tokens, most responses begin alike.
    """
    policy, batch = random_policy(LlamaConfig), batch_of(random_groups([(40, 16), (30, 16)], vocabulary=vocabulary))
    layers, heads, head = [], [], L.token_logprobs
    policy.model.get_input_embeddings().register_forward_hook(lambda m, inputs, out: layers.append(inputs[0].numel()))
    monkeypatch.setattr(L, "token_logprobs", lambda hidden, *a: heads.append(len(hidden)) or head(hidden, *a))
    policy.share("on")
    layers.clear(), heads.clear()
    batch.share = True
    gradients(policy, batch, 10**6)
    assert layers == [40 + 30 + distinct_prefixes(batch, inner=1)]
    assert heads == [distinct_prefixes(batch, inner=0)]
    batch.share = False
    gradients(policy, batch, 10**6)
    assert layers[1] == 32 * 48 and heads[1] == batch.response_lengths.sum()


@pytest.mark.parametrize("kind", [LlamaConfig, GPT2Config])
@pytest.mark.parametrize("sizes", [[(7, 60)], [(1, 40), (5, 1), (5, 40)]])
def test_responses_that_begin_alike_have_the_plain_gradients(kind, sizes):
    """Makes impossible: a gradient that a shared beginning loses or counts twice, a row given another one's token.

    Responses of 0 to 8 of two tokens: equal ones, ones that begin another, ones that part at every length.
    """
    settings = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64} if kind is GPT2Config else {}
    policy, batch = random_policy(kind, **settings), batch_of(random_groups(sizes, vocabulary=2))
    if kind is GPT2Config:
        policy.double()
    plain, _ = batch.score(policy, 0.8, 10**6)
    assert both_ways(policy, batch, 10**6) < (1e-12 if kind is GPT2Config else 1e-5)
    assert both_ways(policy, batch, 50) < (1e-12 if kind is GPT2Config else 1e-5)
    torch.testing.assert_close(batch.score(policy, 0.8, 10**6)[0], plain, atol=1e-5, rtol=1e-5)


def test_who_computes_a_token():
    """Makes impossible: a token computed by a row that ends before it, or by one that begins otherwise.

    A prompt of two tokens with five responses, and another one with a response that begins like them.
    """
    rows = [[1, 2, 5, 6, 7], [1, 2, 5, 6, 7, 8], [1, 2, 9, 6, 7], [1, 2, 5, 6], [1, 2, 5, 6, 7, 8], [3, 5, 6]]
    tokens = torch.tensor([row + [0] * (6 - len(row)) for row in rows])
    lengths = torch.tensor([2, 2, 2, 2, 2, 1])
    got = holders(tokens, lengths, torch.tensor(list(map(len, rows))) - lengths, torch.tensor([4, 4, 4, 4, 4, 0]))
    want = [[0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 2, 2, 2], [0, 0, 1, 1], [0, 0, 1, 1, 1, 1], [5, 5, 5]]
    assert [x[: len(w)] for x, w in zip(got.tolist(), want, strict=True)] == want


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


def test_long_responses_take_a_fused_kernel():
    """Makes impossible: scores of all responses held at once, since the kernel cannot take five dimensions."""
    policy, batch = random_policy(LlamaConfig), batch_of(random_groups([(5, 4)], longest=80))
    policy.share("on")
    batch.share = True
    with torch.profiler.profile() as profile:
        gradients(policy, batch, 10**6)
    names = {event.name for event in profile.events()}
    assert any("flash" in name for name in names) and "aten::_scaled_dot_product_attention_math" not in names


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
