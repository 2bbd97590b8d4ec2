"""trainer/policy.py: log-probs of response tokens, micro-batches, shared prompts, and `chunked_logprobs`."""

import pytest
import torch
from accelerate import Accelerator
from helpers import drawn, loaded, random_policy, random_rollouts
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Qwen2Config,
    Qwen3Config,
    XGLMConfig,
)

import loss as L
from trainer.micro_batches import MicroBatch, micro_batches
from trainer.policy import Policy, chunked_logprobs, log_probs, write_log_probs
from trainer.trial import logits_fault

torch.manual_seed(0)
SIZES = [(5, 6), (3, 5), (1, 4), (7, 1)]  # (prompt tokens, rollouts)


def plain(policy, rollouts, temperature) -> tuple[torch.Tensor, torch.Tensor]:
    """log π and the entropy of every response token from the model's own logits, row by row: (T,) each."""
    found = []
    for r in rollouts:
        row, n = torch.cat([r.prompt, r.response]).long(), len(r.response)
        logp = (policy.model(input_ids=row[None]).logits[0, -n - 1 : -1] / temperature).log_softmax(-1)
        found.append((logp.gather(-1, row[-n:, None]).squeeze(-1), -(logp.exp() * logp).sum(-1)))
    logp, entropy = zip(*found, strict=True)
    return torch.cat(logp), torch.cat(entropy)


def gradients(policy, loss) -> list[torch.Tensor]:
    policy.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in policy.parameters() if p.grad is not None]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("kind, changes", [
    (LlamaConfig, {}), (Qwen2Config, {}), (Qwen3Config, {"head_dim": 8}), (MistralConfig, {"sliding_window": 4}),
    (Qwen2Config, {"tie_word_embeddings": True}), (GPT2Config, {"n_embd": 32, "n_head": 4, "n_layer": 2}),
], ids=["llama", "qwen2", "qwen3", "sliding window", "tied", "gpt2"])  # fmt: skip
def test_log_probs_and_gradients_equal_the_models_own(kind, changes, share):
    """Makes impossible: a wrong position, padding that is seen, a prompt of another row, a lost gradient."""
    policy, accelerator = random_policy(kind, **changes), Accelerator(cpu=True)
    policy.share_prompts = share
    rollouts = random_rollouts(SIZES)
    logp, entropy = log_probs(policy, MicroBatch.of(rollouts, accelerator.device), 0.7, accelerator)
    want, want_entropy = plain(policy, rollouts, 0.7)
    torch.testing.assert_close(logp, want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, want_entropy.detach(), rtol=1e-4, atol=1e-4)
    assert not entropy.requires_grad
    coefficient = torch.randn(len(want), generator=torch.Generator().manual_seed(3))
    ours = gradients(policy, (logp * coefficient).sum())
    theirs = gradients(policy, (want * coefficient).sum())
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-3 * b.norm() + 1e-5


@pytest.mark.parametrize("share", [False, True])
def test_equal_responses_to_a_prompt_are_computed_once(share, monkeypatch):
    """Makes impossible: the cost of 512 rows for 20 distinct answers; equal responses to different prompts merged."""
    policy = random_policy(LlamaConfig)
    policy.share_prompts = share
    rollouts = random_rollouts([(4, 3), (4, 3)], longest=1)
    for r in rollouts:
        r.response = torch.tensor([1, 2], dtype=torch.int32)
    seen, forward = [], policy.forward
    monkeypatch.setattr(policy, "forward", lambda *a: seen.append([x.shape for x in a[:4]]) or forward(*a))
    logp, _ = log_probs(policy, MicroBatch.of(rollouts, torch.device("cpu")), 1.0, Accelerator(cpu=True))
    assert [shape[0] for shape in seen[0]] == [2, 2, 2, 2]  # two prompts, two distinct rows
    assert torch.equal(logp[:2], logp[2:4]) and not torch.equal(logp[:2], logp[6:8])


@pytest.mark.parametrize("share", [False, True])
def test_the_backward_pass_adds_in_a_fixed_order(share):
    """Makes impossible: two equal runs with unequal logs. The gradient of x[index] adds rows in the order in which the
    threads of a CPU reach them; it made one run in five differ in the last digits.
    """
    policy = random_policy(LlamaConfig)
    policy.share_prompts = share
    micro_batch = MicroBatch.of(random_rollouts([(4, 3), (4, 3)], longest=3), torch.device("cpu"))
    logp, _ = log_probs(policy, micro_batch, 1.0, Accelerator(cpu=True))
    seen, functions = {logp.grad_fn}, [logp.grad_fn]
    while functions:  # each function once: there are millions of ways down
        below = {f for f, _ in functions.pop().next_functions if f is not None} - seen
        seen |= below
        functions += below
    names = {function.name() for function in seen}
    assert "EmbeddingBackward0" in names  # the walk reaches the bottom of the model
    assert not any(name.startswith("IndexBackward") or "IndexPut" in name for name in names)


@pytest.mark.parametrize("share", [False, True])
def test_the_ratio_before_the_first_update_is_exactly_one_in_bfloat16(bf16, share):
    """Makes impossible: two attention paths, or other chunks, for the old and the new log-probs; reference log-probs in
    place of the old ones, a gradient kept, an entropy of padding.
    """
    policy = Policy(loaded()[0])
    policy.share_prompts = share
    rollouts, _ = drawn(6, 8)
    batches = micro_batches(rollouts, 150, share, bf16)
    assert len(batches) > 2
    total = write_log_probs(policy, batches, "old_logp", 1.0, bf16)
    for batch in batches:
        logp, _ = log_probs(policy, batch, 1.0, bf16)
        assert torch.equal(logp, batch.old_logp)
    assert all(batch.ref_logp is None and not batch.old_logp.requires_grad for batch in batches)
    exact, entropy = plain(policy, [r for batch in batches for r in batch.rollouts], 1.0)
    ours = torch.cat([batch.old_logp for batch in batches])
    assert 1e-4 < (ours - exact).abs().max() < 0.5  # bfloat16 was used
    assert total == pytest.approx(float(entropy.detach().sum()), rel=1e-2)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("budget", [1, 20, 45, 10**6])
def test_micro_batches_stay_within_the_budget(budget, share):
    """Makes impossible: a forward pass above the budget, a rollout lost or trained on twice, a split prompt, copies of
    a prompt's keys and values that do not count.
    """
    rollouts = random_rollouts(SIZES)
    batches = [batch.rollouts for batch in micro_batches(rollouts, budget, share, Accelerator(cpu=True))]
    assert sorted(map(id, (r for batch in batches for r in batch))) == sorted(map(id, rollouts))
    for batch in batches:
        prompt, response = max(len(r.prompt) for r in batch), max(len(r.response) for r in batch)
        computed = len({r.prompt_index for r in batch}) * prompt if share else len(batch) * prompt
        copied = len(batch) * prompt if share else 0
        assert computed + copied / 8 + len(batch) * response <= budget or len(batch) == 1
    if share:  # the rollouts of a prompt are neighbours
        indices = [r.prompt_index for batch in batches for r in batch]
        assert indices == sorted(indices)
    (empty,) = micro_batches([], budget, share, Accelerator(cpu=True))
    assert not empty.rollouts


@pytest.mark.parametrize("kind", [OPTConfig, XGLMConfig, BloomConfig])
def test_dropout_that_is_a_plain_number_is_switched_off(kind):
    """Makes impossible: a ratio other than 1 before the first update, from dropout in float attributes of modules."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "bos_token_id": 0, "eos_token_id": 0}
    sizes |= {"ffn_dim": 48, "d_model": 32, "num_layers": 2, "num_hidden_layers": 2, "n_layer": 2, "n_head": 4}
    sizes |= {"attention_heads": 4, "word_embed_proj_dim": 32, "max_position_embeddings": 64, "pad_token_id": 1}
    rates = {"dropout": 0.5, "attention_dropout": 0.5, "activation_dropout": 0.5, "hidden_dropout": 0.5}
    torch.manual_seed(0)
    policy = Policy(AutoModelForCausalLM.from_config(kind(**sizes, **rates), dtype=torch.float32))
    assert not logits_fault(policy)
    micro_batch = MicroBatch.of(random_rollouts([(4, 6)]), torch.device("cpu"))
    calls = [log_probs(policy.train(mode), micro_batch, 1.0, Accelerator(cpu=True))[0] for mode in (True, False)]
    assert torch.equal(*calls)


# ------------------------------------------------------------------------------- log-probs without [T, V] logits


class Largest(TorchDispatchMode):
    """The most elements that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


@pytest.mark.filterwarnings("error")  # torch resizes a buffer that a shorter last chunk does not fit, and warns
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("max_logits", [1, 50 * 8, 50 * 37, 2**26])
def test_chunked_logprobs_against_the_plain_way(dtype, with_bias, max_logits):
    """Makes impossible: a wrong sign or scale in the hand-written backward, at any chunk, temperature included."""
    h = torch.randn(37, 16, dtype=dtype, requires_grad=True)
    w = torch.randn(50, 16, dtype=dtype, requires_grad=True)
    b = torch.randn(50, dtype=dtype, requires_grad=True) if with_bias else None
    y, g, leaves = torch.randint(50, (37,)), torch.randn(37, dtype=dtype), [h, w] + [b] * with_bias
    logp, entropy = chunked_logprobs(h, w, y, 0.7, b, max_logits=max_logits)
    ours = torch.autograd.grad((logp * g).sum(), leaves)
    logits = (h @ w.T) + (b if with_bias else 0)
    plain, of_target = (logits / 0.7).log_softmax(-1), L.token_logprobs(logits, y, 0.7)
    theirs = torch.autograd.grad((of_target * g).sum(), leaves)
    tight = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(logp, of_target, **tight)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1), **tight)
    assert not entropy.requires_grad
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, c, **tight)


@pytest.mark.parametrize(("tokens", "max_logits", "most"), [(64, 8000, 8000), (64, 8999, 8000), (3, 8000, 3000)])
def test_logits_never_exist_at_once(tokens, max_logits, most):
    """Makes impossible: a [T, V] tensor in either pass, a chunk rounded up, a full buffer for three tokens."""
    h, w = torch.randn(tokens, 2, requires_grad=True), torch.randn(1000, 2, requires_grad=True)
    with Largest() as largest:
        chunked_logprobs(h, w, torch.randint(1000, (tokens,)), max_logits=max_logits)[0].sum().backward()
    assert largest.numel == most


@pytest.mark.parametrize("max_logits", [1, 2**26])
def test_large_logits_do_not_overflow(max_logits):
    """Makes impossible: exp without the row's peak (inf), or with another row's (0, whose log is -inf)."""
    h, y = torch.tensor([[300.0], [-300.0], [1.0], [0.0]], requires_grad=True), torch.tensor([0, 2, 0, 0])
    w = torch.tensor([[1.0], [1.0], [0.0]])
    logp, entropy = chunked_logprobs(h, w, y, max_logits=max_logits)
    want = (h @ w.T).log_softmax(-1)
    torch.testing.assert_close(logp, want[torch.arange(4), y])
    torch.testing.assert_close(entropy, -(want.exp() * want).sum(-1), rtol=1e-5, atol=1e-6)
    logp.sum().backward()
    assert h.grad.isfinite().all()


@pytest.mark.parametrize("states, head, autocast", [
    ("float32", "float32", True), ("float32", "bfloat16", False), ("bfloat16", "bfloat16", False),
    ("bfloat16", "float32", False),
])  # fmt: skip
def test_bfloat16_gradients_point_where_float32s_do(states, head, autocast):
    """Makes impossible: a head that loses its gradient, or sums it over chunks in bfloat16; log-probs in bfloat16."""
    torch.manual_seed(0)
    exact = torch.randn(2048, 32), torch.randn(50, 32) / 6, torch.randn(50)
    targets, upstream = torch.randint(50, (2048,)), torch.randn(2048)

    def computed(h, w, b, autocast=False) -> list[torch.Tensor]:
        leaves = [x.requires_grad_() for x in (h, w, b)]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logp, entropy = chunked_logprobs(h, w, targets, 0.7, b, max_logits=50 * 4)
        logp.backward(upstream)
        assert logp.dtype == entropy.dtype == torch.float32 and all(x.grad.dtype == x.dtype for x in leaves)
        return [logp.detach(), *(x.grad.float() for x in leaves)]

    dtypes = [getattr(torch, name) for name in (states, head, head)]
    ours = computed(*(x.to(dtype, copy=True) for x, dtype in zip(exact, dtypes, strict=True)), autocast)
    for name, a, b in zip(("logp", "hidden", "weight", "bias"), computed(*exact), ours, strict=True):
        assert 0 < (a - b).norm() < 0.02 * a.norm(), name
