"""Section 4.2.4: the torch engine against full forward passes, exact enumeration and transformers' own generate.

The first tests hold for every engine; those of vLLM are in test_engines_vllm.py.
"""

import doctest
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from small_models import CONFIGS, PROMPTS, full_logprobs, make

import rollout
from engines.memory import bytes_per_row, decoding_bytes
from rollout import Engine, Request, Sampling, TorchEngine, draw, sampling_logprobs, splitmix64, uniforms

ROOT = Path(__file__).resolve().parent.parent


def groups_of(engine, requests, sampling, **more):
    """The groups in the order of the requests."""
    found = dict(engine.generate(requests, sampling, **more))
    return [found[i] for i in range(len(requests))]


def asked(n, prompts=PROMPTS, seed=0):
    return [Request(prompt, n, seed + i) for i, prompt in enumerate(prompts)]


def test_an_engine_without_a_method_is_refused_as_its_class_is_made():
    """Makes impossible: an engine of a user's own that fails at its first sync, after the first step."""
    methods = {"from_config": None, "description": "mine", "generate": None, "sync": None}
    type("Whole", (Engine,), methods)
    for name in methods:
        with pytest.raises(TypeError, match=f"the engine Mine lacks {name}: "):
            type("Mine", (Engine,), {other: x for other, x in methods.items() if other != name})
    with pytest.raises(TypeError, match="lacks from_config, sync: "):

        class Mine(Engine):
            description = "mine"

            def generate(self, requests, sampling, on_progress=None):
                yield from ()


def test_greedy_equals_transformers_generate():
    """Makes impossible: an off-by-one between the prompt and the first decoded token."""
    model = make()
    for prompt, group in zip(
        PROMPTS, groups_of(TorchEngine(model), asked(2), Sampling(10, 0.0, stop_token_ids=(0,))), strict=True
    ):
        want = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=10, pad_token_id=0,
        )[0, len(prompt) :].tolist()  # fmt: skip
        assert group.responses == [want, want] and group.prompt == prompt


@pytest.mark.parametrize("limit, stop", [(7, (0, 11)), (1, (0,)), (9, ())])
def test_responses_end_with_their_stop_token_or_at_the_limit(limit, stop):
    """Makes impossible: a lost stop token, tokens after it, a finish reason that does not fit, a stop at the limit that
    counts as truncated, the model's own EOS as a stop token.
    """
    (group,) = groups_of(TorchEngine(make()), asked(200, [[3]]), Sampling(limit, stop_token_ids=stop))
    assert {*group.truncated.tolist()} == ({True, False} if stop else {True})
    for response, logprobs, truncated in zip(group.responses, group.logprobs, group.truncated, strict=True):
        assert len(logprobs) == len(response) and not set(stop) & set(response[:-1])
        assert (response[-1] in stop) != truncated
        assert len(response) == limit or not truncated
    assert stop or any(0 in response for response in group.responses)


def test_two_requests_for_halves_equal_one_request():
    """Makes impossible: rollouts that depend on the number of ranks that share them, or on the global generator; a seed
    without effect.
    """
    engine, sampling = TorchEngine(make()), Sampling(20, stop_token_ids=(0,))
    (whole,) = groups_of(engine, [Request([3, 4], 9, 7)], sampling)
    parts = groups_of(engine, [Request([3, 4], 4, 7), Request([3, 4], 5, 7, first=4)], sampling)
    assert parts[0].responses + parts[1].responses == whole.responses
    assert list(chain(*parts[0].logprobs + parts[1].logprobs)) == pytest.approx(list(chain(*whole.logprobs)), abs=1e-5)
    (other,) = groups_of(engine, [Request([3, 4], 9, 8)], sampling)
    assert other.responses != whole.responses


def test_sync_takes_the_new_weights():
    """Makes impossible: an engine that still samples from old weights."""
    engine, other = TorchEngine(make(seed=0)), make(seed=1)
    (before,) = groups_of(engine, asked(4, [[3, 4]]), Sampling(5))
    engine.sleep()
    engine.sync(other)
    engine.wake()
    (after,) = groups_of(engine, asked(4, [[3, 4]]), Sampling(5))
    assert after.logprobs[0] == pytest.approx(full_logprobs(other, [3, 4], after.responses[0]), abs=1e-5)
    assert before.responses != after.responses


@pytest.mark.parametrize(
    "request_",
    [
        Request([3], 0, 0), Request([3], 2, -1), Request([3], 2, 2**62 + 1), Request([3], 2, 0, first=-1),
        Request([], 2, 0), Request([13], 2, 0), Request([-1], 2, 0), Request([3] * 60, 2, 0),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_before_anything_is_computed(request_):
    """Makes impossible: a run that dies in the middle of a step for a mistake in its arguments."""
    engine = TorchEngine(model := make())
    assert list(engine.generate([], Sampling(3))) == [], "a rank may have no prompts"
    model.register_forward_pre_hook(lambda *a: pytest.fail("the model was called"))
    with pytest.raises(ValueError, match="request 1"):
        next(engine.generate([Request([3], 2, 0), request_], Sampling(5)))
    with pytest.raises(ValueError, match="stop_token_ids"):
        next(engine.generate([Request([3], 2, 0)], Sampling(5, stop_token_ids=(13,))))


@pytest.mark.parametrize(
    "wrong", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}]
)
def test_wrong_sampling_is_refused(wrong):
    """Makes impossible: a distribution that no engine can sample from."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sampling(**{"max_new_tokens": 5} | wrong)


# Log-probs


@pytest.mark.parametrize("name", [name for name in CONFIGS if "bloom" not in name])
def test_logprobs_equal_a_full_forward_pass(name):
    """Makes impossible: a wrong mask, position, window, scale, head or row while rollouts end one after the other;
    log-probs before the temperature or the cut.

    Prompts of four lengths in one batch; two stop tokens end rollouts at every step.
    """
    model, settings = make(name), {"temperature": 1.3, "top_p": 0.95, "top_k": 9}
    groups = groups_of(TorchEngine(model), asked(40), Sampling(12, **settings, stop_token_ids=(0, 1)))
    lengths = [len(r) for g in groups for r in g.responses]
    assert len(set(lengths)) > 4 and max(lengths) == 12
    for prompt, group in zip(PROMPTS, groups, strict=True):
        assert group.prompt == prompt and len(group.responses) == len(group.logprobs) == 40
        for response, logprobs in list(zip(group.responses, group.logprobs, strict=True))[:12]:
            assert logprobs == pytest.approx(full_logprobs(model, prompt, response, **settings), abs=1e-5)


def test_models_whose_attention_cannot_be_replaced_are_refused():
    """Makes impossible: position biases left out in silence; a refusal that names no way out."""
    model = make("bloom, ALiBi")
    own = model.config._attn_implementation
    with pytest.raises(ValueError, match="--engine vllm"):
        TorchEngine(model)
    assert not model.training and model.config._attn_implementation == own


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
    assert kept(temperature=0, top_k=1) == kept(temperature=0, top_p=0.3) == kept()
    assert kept(top_k=3, top_p=0.55) == [0, 1, 0, 0]  # 0.55 of the 0.9 that top-k keeps is less than 0.5
    p = torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert kept(top_p=0.5) == [1, 0, 0, 0]  # 0.5 reaches 0.5: exact in binary


def test_sampling_logprobs_of_half_precision_logits_are_float32():
    """Makes impossible: a softmax and a cumulative sum in bfloat16, off by up to 2^-9 a token."""
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    for sampling in ({}, {"top_p": 0.9}, {"temperature": 0.7, "top_k": 50}):
        got = sampling_logprobs(logits, **sampling)
        assert got.dtype == torch.float32
        assert torch.equal(got, sampling_logprobs(logits.float(), **sampling))


# The distribution


def test_drawing_reaches_rare_tokens_and_never_impossible_ones():
    """Makes impossible: a token of probability 0 drawn at the ends of the uniform, or rare ones lost to rounding."""
    logp, row = torch.tensor([0.0, 0.5, 0.0, 0.5 - 3e-8, 3e-8, 0.0]).log(), torch.tensor([0])
    for u, token in ((1.0, 4), (1 - 1e-8, 4), (1 - 1e-6, 3), (0.5001, 3), (0.4999, 1), (2**-53, 1)):
        assert draw(logp[None], row, torch.tensor([u], dtype=torch.float64)).item() == token


def test_a_rollout_draws_from_its_own_row():
    """Makes impossible: a rollout that samples from another row, or by a total that rounding moved away from 1."""
    logp, row = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.1, 0.0]]).log(), torch.tensor([1, 0, 1, 0])
    uniform = torch.tensor([0.4, 0.6, 0.6, 0.4], dtype=torch.float64)
    assert draw(logp, row, uniform).tolist() == [0, 1, 1, 0]


def test_the_hash_is_splitmix64():
    """Makes impossible: a shift that copies the sign bit, which would leave some of the numbers out."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]  # seed 1234567
    for i, word in enumerate(published):
        state = (1234567 + i * 0x9E3779B97F4A7C15 + 2**63) % 2**64 - 2**63
        assert int(splitmix64(torch.tensor(state))) % 2**64 == word
        assert float(uniforms(torch.tensor([state - 7]), 7)) == ((word >> 11) + 1) / 2**53


def exact_distribution(model, prompt, **sampling):
    """The probability of every response of up to three of 13 tokens; token 0 ends a response."""
    pairs = torch.cartesian_prod(torch.arange(13), torch.arange(13))  # all first two tokens
    with torch.no_grad():
        logits = model(input_ids=torch.cat([torch.tensor([prompt]).expand(169, -1), pairs], 1)).logits
    one, two, three = (
        sampling_logprobs(logits[:, len(prompt) - 1 + i], **sampling).exp().double().view(13, 13, 13) for i in range(3)
    )
    found = {(0,): float(one[0, 0, 0])}
    for a in range(1, 13):
        found[a, 0] = float(one[0, 0, a] * two[a, 0, 0])
        for b in range(1, 13):
            for c in range(13):
                found[a, b, c] = float(one[0, 0, a] * two[a, 0, b] * three[a, b, c])
    return found


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.6, "top_p": 0.7}, {"temperature": 1.5, "top_k": 3}])
def test_samples_follow_the_exact_distribution(settings):
    """Makes impossible: rollouts that share their noise, a biased draw, a stop token drawn too often or ignored.

    Every response of up to three tokens (0 ends it) is enumerated with its exact probability, for two prompts of
    different lengths; 10,000 rollouts of each are compared by chi-square, cells below 5 expected pooled.
    """
    model, n, prompts = make(), 10_000, [[3, 4, 5, 6], [7]]
    groups = groups_of(TorchEngine(model), asked(n, prompts, seed=5), Sampling(3, **settings, stop_token_ids=(0,)))
    for prompt, group in zip(prompts, groups, strict=True):
        cells = {r: n * p for r, p in exact_distribution(model, prompt, **settings).items()}
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


# Batches and rows


class Watch:
    """Counts the work of a model: prompt tokens, and the rows of every decoding step."""

    def __init__(self, model):
        self.prompt_tokens, self.rows = 0, []
        model.register_forward_pre_hook(self.see, with_kwargs=True)

    def see(self, module, args, kwargs):
        rows, columns = kwargs["input_ids"].shape
        if kwargs.get("logits_to_keep"):
            self.prompt_tokens += rows * columns
        elif "decoder" in kwargs:
            self.rows.append(rows)


def test_a_distinct_prefix_is_computed_once():
    """Makes impossible: 512 rows computed although all have the same tokens so far, or rows of ended rollouts."""
    watch = Watch(model := make())
    engine = TorchEngine(model)
    for stop in ((), (0, 1, 2)):
        watch.rows, watch.prompt_tokens = [], 0
        groups = groups_of(engine, asked(200), Sampling(6, top_k=4, stop_token_ids=stop))
        distinct = [sum(len({tuple(r[:t]) for r in g.responses if len(r) > t}) for g in groups) for t in range(1, 6)]
        assert watch.rows == [x for x in distinct if x]
        assert watch.prompt_tokens == len(PROMPTS) * max(map(len, PROMPTS)), "each prompt once, with its padding"


@pytest.mark.parametrize("rows", [5.5, 37.2])
def test_a_rollout_does_not_depend_on_its_batch(rows):
    """Makes impossible: groups mixed up by small batches, or a rollout that its neighbours change."""
    model, sampling = make(), Sampling(5, stop_token_ids=(0,))
    want = groups_of(TorchEngine(model), asked(50), sampling)
    engine = TorchEngine(model)
    engine.decoding_bytes = rows * bytes_per_row(model, 50, 9, 5)
    watch = Watch(model)
    got = groups_of(engine, asked(50), sampling)
    assert max(watch.rows) <= rows and len(watch.rows) > 4 * 200 / rows
    for a, b in zip(want, got, strict=True):
        assert (a.prompt, a.responses, a.truncated.tolist()) == (b.prompt, b.responses, b.truncated.tolist())
        assert list(chain(*a.logprobs)) == pytest.approx(list(chain(*b.logprobs)), abs=1e-5)


def test_the_memory_for_decoding_is_a_share_of_what_a_gpu_has_free(monkeypatch):
    """Makes impossible: 33 rows of a 1.5B model at a time on a GPU that has 50 GiB free; a setting without effect."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (50 * 2**30, 80 * 2**30))
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert decoding_bytes(gpu, 0.5) == 25 * 2**30 and decoding_bytes(gpu, 0.2) == 10 * 2**30
    assert decoding_bytes(cpu, 0.5) == TorchEngine(make()).decoding_bytes == 2 * 2**30
    monkeypatch.setattr(rollout, "decoding_bytes", lambda device, share: 100 * share)
    config = SimpleNamespace(gpu_memory_utilization=0.3)
    assert TorchEngine.from_config(make(), 64, "float32", config).decoding_bytes == 30


def test_groups_come_before_later_batches_decode():
    """Makes impossible: a judge that waits for all groups; a closed iterator that decodes the rest."""
    engine, ended = TorchEngine(make()), []
    found = engine.generate(asked(1024, [[3, 4], [5], [6], [7, 8]]), Sampling(2), ended.append)
    assert next(found)[0] == 1 and sum(ended) == 2048, "short prompts first, and half of the work is still ahead"
    found.close()
    assert sum(ended) == 2048


def test_progress_counts_rollouts_as_they_end():
    """Makes impossible: progress of one group only, or when all have ended; small groups decoded one by one."""
    ended_now = []
    requests, sampling = asked(40, [[3], [4, 5], [6]]), Sampling(3, stop_token_ids=(0,))
    groups = groups_of(TorchEngine(make()), requests, sampling, on_progress=ended_now.append)
    ended = [len(r) for g in groups for r in g.responses]
    assert ended_now == [ended.count(1), ended.count(2), ended.count(3)] and min(ended_now) > 0


# Weights and state


def test_generating_leaves_the_model_as_it_was(monkeypatch):
    """Makes impossible: a trainer left in eval mode or with the engine's attention, also after an error."""
    model = make().train()
    engine, own = TorchEngine(model), model.config._attn_implementation
    assert model.training and own == model.config._attn_implementation != "shared_prompt"
    groups_of(engine, asked(4), Sampling(3))
    assert model.training and model.config._attn_implementation == own
    monkeypatch.setattr(rollout, "draw", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        groups_of(engine, asked(4), Sampling(3))
    assert model.training and model.config._attn_implementation == own


def test_the_example_of_the_docstring_runs_as_printed(monkeypatch):
    """Makes impossible: an example that a reader copies and that fails, or prints something else."""
    monkeypatch.chdir(ROOT)
    names = {"TorchEngine": TorchEngine, "Request": Request, "Sampling": Sampling}
    (example,) = doctest.DocTestFinder(recurse=False).find(TorchEngine, "TorchEngine", globs=names)
    assert len(example.examples) == 6
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(0, 6)
