"""A prompt computed once for its rollouts in training: the plain path's log-probs and gradients, for fewer tokens."""

import pytest
import torch
from accelerate import Accelerator
from test_loss import Largest
from test_train import after_one_update, gradient, loaded, rollouts
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
)

import train
from rollout import Group
from train import Batch, Config, Policy

CPU = torch.device("cpu")


def make(kind, vocabulary=50, **settings) -> Policy:
    """A random policy, with weights large enough that its attention looks somewhere."""
    small = {
        "vocab_size": vocabulary, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(kind(**small | settings), dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.3, generator=generator)
    return Policy(model)


def groups(sizes, longest=9, vocabulary=50) -> list[Group]:
    """(prompt tokens, rollouts) a group; responses of 0 to longest - 1 tokens, whatever wrote them."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length):
        return torch.randint(vocabulary, (length,), generator=generator).tolist()

    lengths = [torch.randint(longest, (n,), generator=generator).tolist() for _, n in sizes]
    return [
        Group(tokens(prompt), [tokens(x) for x in own], [[0.0] * x for x in own], ["stop"] * n)
        for (prompt, n), own in zip(sizes, lengths, strict=True)
    ]


UNEVEN = [(7, 6), (1, 3), (12, 1), (5, 20)]  # a prompt of one token, a group of one


def batch_of(made: list[Group]) -> Batch:
    return Batch.of(made, torch.zeros(sum(len(g.responses) for g in made)), CPU)


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


def furthest(ours, theirs) -> float:
    return max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))


def both_ways(policy: Policy, batch: Batch, budget: int) -> float:
    """How far the gradients with shared prompts are from the plain ones, whole."""
    plain = gradients(policy, batch, 10**6)
    policy.share("on")
    batch.share = True
    return furthest(gradients(policy, batch, budget), plain)


@pytest.mark.parametrize("short", [0, 16])
@pytest.mark.parametrize("budget", [10**6, 60, 1])
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config, Qwen3Config])
def test_gradients_and_scores_are_the_plain_ones(kind, budget, short, monkeypatch):
    """Makes impossible: a response that sees another, a position off by one, a gradient lost between micro-batches.

    Prompts and responses of unequal lengths, empty responses and groups of one among them; attention by sdpa, as for
    long responses, and by matrix products.
    """
    monkeypatch.setattr(train, "SHORT", short)
    policy, batch = make(kind), batch_of(groups(UNEVEN))
    assert {0, 1, 8} <= set(batch.response_lengths.tolist())
    plain, entropy = batch.score(policy, 0.8, budget)
    assert both_ways(policy, batch, budget) < 1e-5
    shared, entropy_shared = batch.score(policy, 0.8, budget)
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=1e-5)
    assert entropy_shared == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize("keys", [1, 50, 2**15])
def test_in_float64_nothing_is_left_of_the_difference(keys, monkeypatch):
    """Makes impossible: an approximation that hides in float32's rounding. (GPT-2: the others' norms are float32.)"""
    monkeypatch.setattr(train, "KEYS_AT_ONCE", keys)
    policy = make(GPT2Config, n_embd=32, n_layer=2, n_head=4, n_positions=64).double()
    assert both_ways(policy, batch_of(groups(UNEVEN)), 100) < 1e-12


@pytest.mark.parametrize("scaling", [0.3, None])
@pytest.mark.parametrize("short", [0, 16])
def test_attention_against_a_loop(short, scaling, monkeypatch):
    """Makes impossible: a scale, a head's group or an order that is another than the formula's.

    Two prompts of 3 and 2 tokens, responses of 2, 1 and none to the first and of 4 and 4 to the second.
    """
    monkeypatch.setattr(train, "SHORT", short)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, 16, 8, generator=generator, dtype=torch.float64) for heads in (6, 2, 2))
    opens, prompts, inner = torch.tensor([1, 0, 0, 1, 0]) > 0, torch.tensor([3, 3, 3, 2, 2]), [2, 1, 0, 4, 4]
    packed = train.packed_groups(opens, prompts, torch.tensor(inner))
    got, _ = train.packed_attention(None, q, k, v, None, scaling=scaling, packed=packed)
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
    packed = train.packed_groups(torch.tensor([True]), torch.tensor([3]), torch.tensor([1]))
    for asked in ({"sliding_window": 2}, {"softcap": 30.0}, {"dropout": 0.1}):
        with pytest.raises(ValueError, match=f"has no {next(iter(asked))}"):
            train.packed_attention(None, x, x, x, None, packed=packed, **asked)


def test_the_keys_of_long_prompts_are_not_kept(monkeypatch):
    """Makes impossible: 512 copies of a long prompt's keys held from the forward pass to the backward pass."""
    made, real = [], train.response_attention
    monkeypatch.setattr(train, "response_attention", lambda *a: made.append(1) or real(*a))
    for prompt, times in ((40, 2), (4, 1)):
        policy, batch = make(LlamaConfig, num_hidden_layers=1), batch_of(groups([(prompt, 6)]))
        policy.share("on")
        batch.share, made[:] = True, []
        gradients(policy, batch, 10**6)
        assert len(made) == times


def test_keys_stand_beside_each_other_in_bounded_numbers(monkeypatch):
    """Makes impossible: a copy of a long prompt for every one of its responses at the same time."""
    monkeypatch.setattr(train, "KEYS_AT_ONCE", 20)
    opens, inner = torch.tensor([1, 0, 0, 0, 1, 0, 1]) > 0, torch.tensor([3, 3, 2, 0, 5, 5, 0])
    made = train.packed_groups(opens, torch.tensor([4, 4, 4, 4, 10, 10, 7]), inner)
    shapes = [(prompt, [(rows.count, rows.width, rows.tokens) for rows in parts]) for prompt, parts in made]
    assert shapes == [(4, [(2, 3, 6), (1, 2, 2)]), (10, [(1, 5, 5), (1, 5, 5)]), (7, [])]


def test_a_prompt_is_computed_once():
    """Makes impossible: an option that shares nothing. P·L + S·(R - 1) tokens a micro-batch, not S·(L + R)."""
    policy, batch, counted = make(LlamaConfig), batch_of(groups([(40, 16), (30, 16)])), []
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
    policy, batch, calls = make(LlamaConfig), batch_of(groups(UNEVEN)), []
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
    few = train.L.token_logprobs
    monkeypatch.setattr(train.L, "token_logprobs", lambda *a: few(*a, max_logits=100_000))
    policy = make(LlamaConfig, vocabulary=2000)
    tokens = torch.randint(2000, (128, 73))
    tokens[:, :64] = tokens[0, :64]
    policy.share("on")
    lengths, one = (torch.full((128,), 64), torch.full((128,), 9)), torch.zeros(128, dtype=torch.long)
    with Largest() as largest:
        logp, _ = policy(tokens, *lengths, 1.0, one)
        logp.sum().backward()
    assert len(logp) == 128 * 9 and largest.numel <= 128 * 72 * 4 * 8  # the keys, once for every head


def test_micro_batches_count_a_prompt_once():
    """Makes impossible: a part beyond its budget, a rollout twice or not at all, a prompt in more parts than needed."""
    batch = batch_of(groups([(30, 40), (30, 40)]))
    batch.share = True
    rows = torch.randperm(80)[:70]
    parts = batch.micro_batches(rows, 100)
    assert sorted(torch.cat(parts).tolist()) == sorted(rows.tolist())
    for part in parts:
        assert 30 * len(batch.prompts[part].unique()) + batch.response_lengths[part].sum() <= 100
    assert sum(len(batch.prompts[part].unique()) for part in parts) == len(parts) + 1  # one of them has both
    assert len(batch.micro_batches(rows, 1)) == 70
    assert batch.micro_batches(rows[:0], 100) == []


def test_one_update_in_any_number_of_processes(tmp_path):
    """Makes impossible: a gradient that data parallelism reduces too early, twice, or without the prompts' part.

    A whole update with micro-batches, plain in one process; with shared prompts in one and in two: the same weights.
    """
    whole = [0, 1, 2, 3, 4, 5]
    metrics, weights = after_one_update(tmp_path, [whole])
    plain = list(gradient(weights).values())
    for split in ([whole], [[0, 1, 2, 3], [4, 5]], [whole, []]):
        theirs, weights = after_one_update(tmp_path, split, share=True)
        assert theirs == {k: pytest.approx(v, rel=1e-5, abs=1e-6) for k, v in metrics.items()}
        assert furthest(gradient(weights).values(), plain) < 1e-5


# --------------------------------------------------------------------------------------- when it is off


@pytest.mark.parametrize(
    "kind, settings, says",
    [
        (MistralConfig, {"sliding_window": 4}, "sliding_window"),
        (Gemma3TextConfig, {}, "sliding_attention"),
        (Qwen3NextConfig, {"num_experts": 4}, "linear_attention"),
        (BloomConfig, {"n_head": 4, "n_layer": 2}, "eager"),
        (FalconConfig, {}, "cannot be replaced"),
    ],
)
def test_models_that_cannot_share_train_as_before(kind, settings, says):
    """Makes impossible: a model that attends in another way, quietly given the attention of those that do not."""
    policy = make(kind, **settings)
    own = policy.model.config._attn_implementation
    line = policy.share("auto")
    assert line.startswith("every rollout with its own prompt (") and says in line
    assert not policy.shares and policy.model.config._attn_implementation == own
    with pytest.raises(ValueError, match=f"--share_prefix on: {type(policy.model).__name__} cannot: .*{says}"):
        policy.share("on")


@pytest.mark.parametrize("broken", ["positions", "keys", "arguments"])
def test_the_self_check_sees_a_wrong_computation(broken, monkeypatch):
    """Makes impossible: training on log-probs of another function, because transformers changed beneath this file."""
    policy = make(LlamaConfig)
    forward, attend = policy.model.base_model.forward, train.response_attention

    def other(position_ids=None, **kwargs):
        if broken == "arguments":
            kwargs.pop("packed", None)
        if broken == "positions" and position_ids is not None:
            position_ids = torch.arange(position_ids.shape[1])[None]
        return forward(position_ids=position_ids, **kwargs)

    monkeypatch.setattr(policy.model.base_model, "forward", other)
    if broken == "keys":
        monkeypatch.setattr(train, "response_attention", lambda *a: attend(*a[:3], a[3] * 0, *a[4:]))
    assert "differ by" in policy.share("auto") and not policy.shares
    assert policy.model.config._attn_implementation == "sdpa"


def test_sharing_leaves_the_other_forward_passes_alone():
    """Makes impossible: a policy that decodes or scores otherwise because it could share."""
    policy, tokens = make(LlamaConfig), torch.randint(50, (3, 12))
    mask = torch.tensor([[0] * 4 + [1] * 8, [1] * 12, [0] * 1 + [1] * 11])
    before = policy.model(input_ids=tokens, attention_mask=mask).logits
    assert policy.share("auto").startswith("each prompt computed once") and policy.shares
    assert torch.equal(policy.model(input_ids=tokens, attention_mask=mask).logits, before)


def test_how_much_sharing_saves_by_hand():
    """Makes impossible: sharing where it costs more than it saves. Two prompts of 4 tokens, 4 responses of 2 each.

    Plain: 8 · 6 = 48 tokens. Shared, in 2 mini-batches: 2 · 2 · 4 + 8 · 2 = 32, in 1: 24. In 8, nothing is saved.
    """
    batch = batch_of([Group([1, 2, 3, 4], [[5, 6]] * 4, [[0.0] * 2] * 4, ["stop"] * 4)] * 2)
    assert [batch.saving(u) for u in (1, 2, 8)] == [2.0, 1.5, 1.0]
    assert Batch.of([], torch.zeros(0), CPU).saving(1) == 0


def test_an_update_is_the_same_with_and_without():
    """Makes impossible: sharing that changes a metric of the update, or the order of its rollouts' advantages."""
    made, advantages = rollouts()

    def step(share):
        policy = Policy(loaded()[0])
        policy.share("on")
        batch = Batch.of(made, advantages, CPU)
        batch.share = share
        batch.old_logp, _ = batch.score(policy, 3.0, 500)
        c = Config(temperature=3.0, clip_low=0.2, clip_high=0.27, kl_coef=0.0, tis_cap=2.0, updates_per_step=3,
                   max_tokens_per_micro_batch=200)  # fmt: skip
        accelerator = Accelerator(cpu=True)
        optimizer = accelerator.prepare(torch.optim.SGD(policy.parameters(), lr=0.1))
        return train.update(policy, optimizer, batch, c, accelerator, train.Progress()), list(policy.parameters())

    (plain, weights), (shared, theirs) = step(False), step(True)
    assert shared == {k: pytest.approx(v, rel=1e-3, abs=1e-5) for k, v in plain.items()}
    assert furthest(theirs, weights) < 1e-5
