"""Section 4.2.4: the torch engine against full forward passes, exact enumeration and transformers' own generate."""

import math
import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from scipy import stats
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

import rollout
from rollout import CopyDecoder, SharedDecoder, TorchEngine, sampling_logprobs

SMALL = {
    "vocab_size": 13,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
CONFIGS = {
    "qwen2, grouped heads, tied": Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen2, sliding window in one layer": Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "qwen3, head width of its own": Qwen3Config(**SMALL, head_dim=12),
    "llama, one key head": LlamaConfig(**SMALL | {"num_key_value_heads": 1}),
    "mistral, sliding window of 5": MistralConfig(**SMALL, sliding_window=5, head_dim=8),
    "gemma 2, soft caps, window of 4": Gemma2Config(**SMALL, sliding_window=4, head_dim=8, attn_logit_softcapping=2.0),
    "gpt 2, learned positions": GPT2Config(
        vocab_size=13, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=0
    ),
    "bloom, ALiBi": BloomConfig(vocab_size=13, hidden_size=32, n_layer=2, n_head=4, eos_token_id=0),
}
PROMPTS = [[3, 4, 5], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6]]


def make(name="qwen2, grouped heads, tied", seed=0, scale=0.25):
    """A random model whose next-token distributions are far from uniform, in float32."""
    torch.manual_seed(seed)
    eager = {"attn_implementation": "eager"} if "soft caps" in name else {}  # transformers' sdpa has no soft cap
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32, **eager).eval()
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=scale)
    return model


def full_logprobs(model, prompt, response, **sampling):
    """Log-probs of a response by one plain forward pass over prompt and response."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    logp = sampling_logprobs(logits, **sampling)
    return logp.gather(-1, torch.tensor(response)[:, None]).squeeze(-1).tolist()


# ------------------------------------------------------------------------------------------- log-probs


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shared", [None, False])
def test_logprobs_equal_a_full_forward_pass(name, shared):
    """Makes impossible: a wrong mask, position, window, scale, head or row, on either path, as rows finish early.

    Prompts of four lengths in one wave; EOS ends rows at every step, so the batch is compacted while it runs.
    """
    model = make(name)
    engine = TorchEngine(model, shared_prefix=shared)
    groups = engine.generate(PROMPTS, 40, max_new_tokens=12, temperature=1.3, stop_token_ids=[0, 1], seed=1)
    lengths = [len(r) for g in groups for r in g.responses]
    assert len(set(lengths)) > 4 and max(lengths) == 12
    for prompt, group in zip(PROMPTS, groups, strict=True):
        assert group.prompt == prompt and len(group.responses) == len(group.logprobs) == 40
        for response, logprobs in list(zip(group.responses, group.logprobs, strict=True))[:12]:
            want = full_logprobs(model, prompt, response, temperature=1.3)
            assert logprobs == pytest.approx(want, abs=1e-5)


def test_which_models_share_their_prefix():
    """Makes impossible: the fast path given up unnoticed where it works, or taken where it does not."""
    shared = {name: TorchEngine(make(name)).decoder is SharedDecoder for name in CONFIGS}
    assert shared == {name: name != "bloom, ALiBi" for name in CONFIGS}
    with pytest.raises(ValueError, match="cannot share its prefix"):
        TorchEngine(make("bloom, ALiBi"), shared_prefix=True)


def test_the_self_check_sees_a_wrong_attention(monkeypatch):
    """Makes impossible: a shared-prefix path that is wrong on some model and used all the same."""
    right = rollout.shared_prefix_attention

    def wrong(*args, **kwargs):
        out, weights = right(*args, **kwargs)
        return out * 1.05, weights

    monkeypatch.setitem(rollout.ALL_ATTENTION_FUNCTIONS._global_mapping, "shared_prefix", wrong)
    engine = TorchEngine(make())
    assert engine.decoder is CopyDecoder and "differ from a plain forward pass" in engine.why_copied


def test_logprobs_are_those_of_the_distribution_sampled_from():
    """Makes impossible: sampling under top-p, top-k and a temperature, and reporting the log-prob without them."""
    model, sampling = make(), {"temperature": 0.7, "top_p": 0.8, "top_k": 5}
    (group,) = TorchEngine(model).generate([[3, 4]], 50, max_new_tokens=6, stop_token_ids=[], seed=3, **sampling)
    for response, logprobs in zip(group.responses, group.logprobs, strict=True):
        assert logprobs == pytest.approx(full_logprobs(model, [3, 4], response, **sampling), abs=1e-5)
        assert all(math.isfinite(x) for x in logprobs)


def test_sampling_logprobs_by_hand():
    """Makes impossible: top-p that drops the token crossing the threshold, top-k off by one, no renormalisation."""
    p = torch.tensor([[0.1, 0.5, 0.15, 0.25]])

    def kept(**sampling):
        return [round(x, 6) for x in sampling_logprobs(p.log(), **sampling).exp()[0].tolist()]

    assert kept() == pytest.approx([0.1, 0.5, 0.15, 0.25])
    assert kept(top_k=1) == [0, 1, 0, 0]
    assert kept(top_k=2) == pytest.approx([0, 2 / 3, 0, 1 / 3], abs=1e-6)
    assert kept(top_k=4) == kept(top_k=9) == kept()
    assert kept(top_p=0.49) == [0, 1, 0, 0]
    assert kept(top_p=0.6) == pytest.approx([0, 2 / 3, 0, 1 / 3], abs=1e-6)
    assert kept(top_p=0.8) == pytest.approx([0, 5 / 9, 1 / 6, 5 / 18], abs=1e-6)
    assert kept(top_k=3, top_p=0.6) == pytest.approx([0, 2 / 3, 0, 1 / 3], abs=1e-6)  # mass within the top 3
    squares = [0.01, 0.25, 0.0225, 0.0625]
    assert kept(temperature=0.5) == pytest.approx([x / sum(squares) for x in squares], abs=1e-6)
    assert kept(temperature=0) == kept()  # greedy reports the model's own log-probs


# ----------------------------------------------------------------------------------------- distribution


def test_drawing_reaches_the_rare_and_never_the_impossible(monkeypatch):
    """Makes impossible: a token of probability 0 drawn at the uniform's ends, or rare ones lost to rounding."""
    logp = torch.tensor([0.0, 0.5, 0.0, 0.5 - 3e-8, 3e-8, 0.0]).log()
    for rand, token in ((0.0, 4), (1e-8, 4), (1e-6, 3), (0.4999, 3), (0.5001, 1), (1 - 2**-53, 1)):
        monkeypatch.setattr(torch, "rand", lambda r, c, rand=rand, **k: torch.full((r, c), rand, dtype=k["dtype"]))
        assert rollout.draw(logp[None], False, None)[0].item() == token
    assert rollout.draw(logp[None], True, None)[0].item() == 1


def exact_distribution(model, prompt, **sampling):
    """The probability of every response of up to three of 13 tokens, 0 ending it."""
    pairs = torch.cartesian_prod(torch.arange(13), torch.arange(13))  # all first two tokens
    with torch.no_grad():
        logits = model(input_ids=torch.cat([torch.tensor([prompt]).expand(169, -1), pairs], 1)).logits
    first, second, third = (
        sampling_logprobs(logits[:, len(prompt) - 1 + i], **sampling).exp().double().view(13, 13, 13) for i in range(3)
    )
    found = {(0,): float(first[0, 0, 0])}
    for a in range(1, 13):
        found[a, 0] = float(first[0, 0, a] * second[a, 0, 0])
        for b in range(1, 13):
            for c in range(13):
                found[a, b, c] = float(first[0, 0, a] * second[a, 0, b] * third[a, b, c])
    return found


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.6}, {"top_p": 0.7}, {"top_k": 3, "temperature": 1.5}])
def test_samples_follow_the_exact_distribution(shared, sampling):
    """Makes impossible: rows that share their noise, a biased draw, a stop token drawn too often or ignored.

    Every response of up to three tokens (0 ends it) is enumerated with its exact probability, for two prompts of
    different lengths; 20,000 rollouts of each are compared by chi-square, cells below 5 expected pooled.
    """
    model, n, prompts = make(), 20_000, [[3, 4, 5, 6], [7]]
    engine = TorchEngine(model, shared_prefix=shared)
    groups = engine.generate(prompts, n, max_new_tokens=3, stop_token_ids=[0], seed=5, **sampling)
    for prompt, group in zip(prompts, groups, strict=True):
        cells = {r: n * p for r, p in exact_distribution(model, prompt, **sampling).items()}
        assert sum(cells.values()) == pytest.approx(n, rel=1e-4)
        counts = dict.fromkeys(cells, 0)
        for r in group.responses:
            counts[tuple(r)] += 1
        large = [cell for cell, expected in cells.items() if expected >= 5]
        observed = [counts[c] for c in large] + [n - sum(counts[c] for c in large)]
        expected = [cells[c] for c in large] + [n - sum(cells[c] for c in large)]
        if expected[-1] < 1e-3:
            assert observed.pop() == 0
            expected.pop()
        expected = [x * sum(observed) / sum(expected) for x in expected]
        assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_greedy_equals_transformers_generate():
    """Makes impossible: an off-by-one between prefill and the first decoded token."""
    model = make()
    for prompt, group in zip(
        PROMPTS, TorchEngine(model).generate(PROMPTS, 2, max_new_tokens=10, temperature=0), strict=True
    ):
        want = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=10, pad_token_id=0,
        )[0, len(prompt) :].tolist()  # fmt: skip
        assert group.responses == [want, want]


# --------------------------------------------------------------------------------- stopping and splitting


def test_responses_end_with_their_stop_token_or_at_the_limit():
    """Makes impossible: a lost EOS, tokens after it, a finish reason that does not fit."""
    (group,) = TorchEngine(make()).generate([[3, 4]], 300, max_new_tokens=7, stop_token_ids=[0, 11], seed=2)
    assert set(group.finish_reasons) == {"stop", "length"}
    for response, logprobs, reason in zip(group.responses, group.logprobs, group.finish_reasons, strict=True):
        assert len(logprobs) == len(response)
        assert not {0, 11} & set(response[:-1])
        assert (response[-1] in (0, 11)) == (reason == "stop")
        assert len(response) == 7 or reason == "stop"


def test_a_stop_token_at_the_limit_is_a_stop():
    """Makes impossible: calling a response truncated that ended by itself at the last position."""
    (group,) = TorchEngine(make()).generate([[3]], 200, max_new_tokens=1, stop_token_ids=[0], seed=2)
    assert {"stop"} == {r for r, x in zip(group.finish_reasons, group.responses, strict=True) if x == [0]}
    assert {"length"} == {r for r, x in zip(group.finish_reasons, group.responses, strict=True) if x != [0]}


def test_stop_tokens_default_to_the_models_eos():
    """Makes impossible: a model's EOS ignored because nobody named it."""
    model = make()
    model.generation_config.eos_token_id = [0, 5]
    engine = TorchEngine(model)
    assert engine.generate([[3]], 50, max_new_tokens=6) == engine.generate(
        [[3]], 50, max_new_tokens=6, stop_token_ids=[0, 5]
    )


class Watch:
    """Counts what a model is asked to compute: prompt tokens, and the most rows of a decoding step."""

    def __init__(self, model):
        self.prompt_tokens, self.most_rows, self.rows = 0, 0, []
        model.register_forward_pre_hook(self.see, with_kwargs=True)

    def see(self, module, args, kwargs):
        rows, columns = kwargs["input_ids"].shape
        if kwargs.get("logits_to_keep"):
            self.prompt_tokens += rows * columns
        else:
            self.rows.append(rows)


@pytest.mark.parametrize("shared", [True, False])
def test_the_prompt_is_computed_once_however_the_group_is_split(shared):
    """Makes impossible: N prefills, a wave beyond the memory setting, groups mixed up by splitting."""
    model = make()
    engine = TorchEngine(model, memory_gib=120_000 / 2**30, shared_prefix=shared)
    rows = engine._rows(100, 9, 5)
    assert 8 < rows < 100
    watch = Watch(model)
    groups = engine.generate(PROMPTS, 100, max_new_tokens=5, stop_token_ids=[], seed=4)
    assert watch.prompt_tokens == sum(map(len, PROMPTS))
    assert max(watch.rows) <= rows < 100
    for prompt, group in zip(PROMPTS, groups, strict=True):
        assert len(group.responses) == 100
        assert len({tuple(r) for r in group.responses}) > 80  # waves have noise of their own
        assert group.logprobs[-1] == pytest.approx(full_logprobs(model, prompt, group.responses[-1]), abs=1e-5)


def test_several_groups_share_a_wave():
    """Makes impossible: small groups decoded one by one."""
    watch = Watch(model := make())
    TorchEngine(model).generate([[i % 12 + 1] * (i % 3 + 1) for i in range(20)], 4, max_new_tokens=3, stop_token_ids=[])
    assert watch.rows[-2:] == [80, 80]


def test_finished_rows_leave_the_batch():
    """Makes impossible: computing rows that ended long ago."""
    watch = Watch(model := make())
    (group,) = TorchEngine(model).generate([[3, 4]], 400, max_new_tokens=12, stop_token_ids=[0, 1, 2, 3], seed=0)
    alive = [sum(len(r) > t for r in group.responses) for t in range(1, 12)]
    decoding = watch.rows[-len([a for a in alive if a]) :]
    assert all(rows <= a / rollout.COMPACT_BELOW + 1 for rows, a in zip(decoding, alive, strict=False))
    assert decoding[-1] < 100


def test_a_seed_repeats_a_run_and_another_does_not():
    """Makes impossible: noise from the global generator, or the same noise for every call."""
    engine = TorchEngine(make())
    first = engine.generate(PROMPTS, 8, max_new_tokens=6, seed=1)
    torch.manual_seed(99)
    assert engine.generate(PROMPTS, 8, max_new_tokens=6, seed=1) == first
    assert engine.generate(PROMPTS, 8, max_new_tokens=6, seed=2) != first


# ------------------------------------------------------------------------------------ weights and state


def test_sync_takes_the_new_weights():
    """Makes impossible: an engine that goes on sampling from old weights."""
    engine, other = TorchEngine(make(seed=0)), make(seed=1)
    before = engine.generate([[3, 4]], 4, max_new_tokens=5, seed=1)[0]
    engine.sleep()
    engine.wake()
    engine.sync(other)
    after = engine.generate([[3, 4]], 4, max_new_tokens=5, seed=1)[0]
    assert after.logprobs[0] == pytest.approx(full_logprobs(other, [3, 4], after.responses[0]), abs=1e-5)
    assert before != after


@pytest.mark.parametrize("fails", [False, True])
def test_generating_leaves_the_model_as_it_was(fails, monkeypatch):
    """Makes impossible: a trainer left in eval mode or with the engine's attention, also after an error."""
    model = make().train()
    engine, own = TorchEngine(model), model.config._attn_implementation
    assert model.training and own == model.config._attn_implementation != "shared_prefix"
    if fails:
        monkeypatch.setattr(rollout, "draw", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.generate([[3]], 4, max_new_tokens=3)
    else:
        engine.generate([[3]], 4, max_new_tokens=3)
    assert model.training and model.config._attn_implementation == own


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0}, "n=0"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.1}, "top_p=1.1"),
        ({"top_k": -1}, "top_k=-1"),
        ({"stop_token_ids": [13]}, "stop_token_ids"),
        ({"prompts": [[3], []]}, "prompt 1 has no tokens"),
        ({"prompts": [[3], [13]]}, "prompt 1 has a token outside the vocabulary of 13"),
        ({"prompts": [[3] * 60]}, "60 tokens .* exceed the model's 64 positions"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_computed(arguments, says):
    """Makes impossible: a run that dies in the middle of a step for what its arguments already told."""
    model = make()
    engine, watch = TorchEngine(model), Watch(model)
    call = {"prompts": [[3]], "n": 2, "max_new_tokens": 5} | arguments
    with pytest.raises(ValueError, match=says):
        engine.generate(**call)
    assert watch.rows == [] and watch.prompt_tokens == 0


def test_memory_must_be_positive():
    """Makes impossible: an engine that can hold no row."""
    with pytest.raises(ValueError, match="memory_gib=0"):
        TorchEngine(make(), memory_gib=0)


def test_no_prompts_no_groups():
    """Makes impossible: a crash when every process but this one has prompts left."""
    assert TorchEngine(make()).generate([], 4, max_new_tokens=3) == []


# ------------------------------------------------------------- what a mutation of rollout.py would have survived


def truncated(p, **sampling):
    return [round(x, 6) for x in sampling_logprobs(torch.tensor([p]).log(), **sampling).exp()[0].tolist()]


def test_sampling_logprobs_at_the_edges():
    """Makes impossible: top-p of all the mass after a top-k, a token too many at an exact sum, greedy truncated."""
    p = [0.1, 0.5, 0.15, 0.25]
    assert truncated(p, top_k=3, top_p=0.55) == [0, 1, 0, 0]  # 0.55 of the 0.9 that top-k left is less than 0.5
    assert truncated([0.5, 0.25, 0.125, 0.125], top_p=0.5) == [1, 0, 0, 0]  # 0.5 reaches 0.5: exact in binary
    assert truncated(p, temperature=0, top_k=1) == truncated(p, temperature=0, top_p=0.3) == truncated(p)


def test_sampling_logprobs_of_half_precision_logits_are_float32():
    """Makes impossible: a softmax and a cumulative sum in bfloat16, off by up to 2^-9 a token."""
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    for sampling in ({}, {"top_p": 0.9}, {"temperature": 0.7, "top_k": 50}):
        got = sampling_logprobs(logits, **sampling)
        assert got.dtype == torch.float32
        assert torch.equal(got, sampling_logprobs(logits.float(), **sampling))


@pytest.mark.parametrize("name", ["s_aux", "position_bias"])
def test_attention_refuses_what_it_does_not_compute(name):
    """Makes impossible: attention sinks or position biases silently left out of the shared path."""
    x = torch.zeros(1, 1, 1, 4)
    prefix = rollout.Prefix([x], [x], None, torch.tensor([0]), None, 1)
    module = torch.nn.Module()
    module.layer_idx = 0
    rollout.shared_prefix_attention(module, x, x, x, None, shared_prefix=prefix)
    with pytest.raises(ValueError, match=name):
        rollout.shared_prefix_attention(module, x, x, x, None, shared_prefix=prefix, **{name: x})
    with pytest.raises(ValueError, match="keyword arguments"):
        rollout.shared_prefix_attention(module, x, x, x, None)


def test_attention_scales_by_the_head_width_unless_told():
    """Makes impossible: no scale at all for a model that leaves it to its attention."""
    torch.manual_seed(0)
    q, k, v, pk, pv = (torch.randn(1, 1, n, 4) for n in (1, 2, 2, 3, 3))
    prefix = rollout.Prefix([pk], [pv], None, torch.tensor([0]), None, 1)
    module = torch.nn.Module()
    module.layer_idx = 0
    for scaling in (None, 0.3):
        got, _ = rollout.shared_prefix_attention(module, q, k, v, None, scaling=scaling, shared_prefix=prefix)
        keys, values = torch.cat([pk, k], 2), torch.cat([pv, v], 2)
        want = torch.nn.functional.scaled_dot_product_attention(q, keys, values, scale=scaling)
        torch.testing.assert_close(got, want.transpose(1, 2))


def test_progress_counts_rollouts_by_wave():
    """Makes impossible: a progress that counts rows of one group of the wave only."""
    told = []
    TorchEngine(make()).generate([[3], [4, 5], [6]], 4, max_new_tokens=2, on_progress=told.append)
    assert told == [12]
    engine = TorchEngine(make(), memory_gib=120_000 / 2**30)
    rows, told = engine._rows(400, 1, 2), []
    engine.generate([[3]], 400, max_new_tokens=2, on_progress=told.append)
    assert len(told) > 1 and max(told) <= rows and sum(told) == 400


# ------------------------------------------------------------------------------- around vLLM, without it


def test_a_seed_sets_every_generator_and_gives_them_back():
    """Makes impossible: a run with vLLM that does not repeat itself, as its seeds come from any of the three."""

    def draw():
        return random.random(), numpy.random.rand(), torch.rand(1).item()

    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    with rollout.seeded(7):
        first = draw()
    after = draw()
    with rollout.seeded(7):
        assert draw() == first
    with rollout.seeded(2**62 + 8):
        assert all(a != b for a, b in zip(draw(), first, strict=True))
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    assert draw() == after


def test_threads_and_their_setter_come_back(monkeypatch):
    """Makes impossible: a trainer on one thread because an engine took the others, and the way back, away."""
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    setter(2)
    with pytest.raises(RuntimeError), rollout.own_threads():
        setter(1)
        monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
        raise RuntimeError
    assert torch.set_num_threads is setter and torch.get_num_threads() == 2
    setter(threads)


def test_only_whole_rollouts_of_vllm_are_taken():
    """Makes impossible: an aborted rollout, a group that lost some, or log-probs of other tokens, in a Group."""

    def answer(reason="stop", logprobs=(-1.0, -2.0), count=2):
        output = SimpleNamespace(token_ids=(5, 0), finish_reason=reason, logprobs=SimpleNamespace(logprobs=logprobs))
        return SimpleNamespace(outputs=[output] * count)

    group = rollout.Group([3], [[5, 0]] * 2, [[-1.0, -2.0]] * 2, ["stop"] * 2)
    assert rollout.VLLMEngine._group([3], answer(), 2) == group
    assert rollout.VLLMEngine._group([3], answer(count=1), 2) == group, "greedy: one stands for all"
    for broken in (answer("abort"), answer(None), answer(logprobs=(-1.0,)), answer(count=3)):
        with pytest.raises(rollout.EngineError):
            rollout.VLLMEngine._group([3], broken, 4)


def test_tensors_to_sync_come_once_under_their_names():
    """Makes impossible: a weight left out, a tied head under a name that vLLM's model may not have, DDP's prefix."""
    model = make()
    names = dict(rollout.whole_tensors(model))
    assert names.keys() == model.state_dict().keys() - {"lm_head.weight"}
    assert all(torch.equal(x, model.state_dict()[name]) for name, x in names.items())
    wrapped = torch.nn.Module()
    wrapped.module = model
    assert dict(rollout.whole_tensors(wrapped)).keys() == names.keys()
    untied = make("llama, one key head")
    assert dict(rollout.whole_tensors(untied)).keys() == untied.state_dict().keys()


def test_the_config_has_one_folder():
    """Makes impossible: compiling the same model again at every start; one folder for two models."""
    first, again, other = (rollout.config_folder(make(x).config) for x in (
        "qwen2, grouped heads, tied", "qwen2, grouped heads, tied", "llama, one key head"))  # fmt: skip
    assert first == again != other
