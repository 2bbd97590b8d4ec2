"""Section 4.2.4: the torch engine against full forward passes, exact enumeration and transformers' own generate."""

import doctest
from pathlib import Path

import pytest
import torch
from scipy import stats
from small_models import CONFIGS, PROMPTS, full_logprobs, make

import rollout
from engines import decoders
from rollout import TorchEngine, sampling_logprobs

# The protocol


def test_the_example_of_the_docstring_runs_as_it_stands(monkeypatch):
    """Makes impossible: an example that a reader copies and that fails, or prints something else."""
    monkeypatch.chdir(Path(__file__).resolve().parent.parent)
    (example,) = doctest.DocTestFinder(recurse=False).find(
        TorchEngine, "TorchEngine", globs={"TorchEngine": TorchEngine}
    )
    assert len(example.examples) == 5
    assert doctest.DocTestRunner().run(example) == doctest.TestResults(0, 5)


# Log-probs


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
    assert kept(top_k=3, top_p=0.55) == [0, 1, 0, 0]  # 0.55 of the 0.9 that top-k left is less than 0.5
    p = torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert kept(top_p=0.5) == [1, 0, 0, 0]  # 0.5 reaches 0.5: exact in binary


# Distribution


def test_drawing_reaches_the_rare_and_never_the_impossible(monkeypatch):
    """Makes impossible: a token of probability 0 drawn at the uniform's ends, or rare ones lost to rounding."""
    logp, line = torch.tensor([0.0, 0.5, 0.0, 0.5 - 3e-8, 3e-8, 0.0]).log(), torch.tensor([0])
    for rand, token in ((0.0, 4), (1e-8, 4), (1e-6, 3), (0.4999, 3), (0.5001, 1), (1 - 2**-53, 1)):
        uniform = 1 - torch.tensor([rand], dtype=torch.float64)
        assert rollout.sample_tokens(logp[None], False, uniform, line)[0].item() == token
    assert rollout.sample_tokens(logp[None], True, torch.ones(1), line)[0].item() == 1
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.zeros(shape))
    assert rollout.Uniforms([0], 1, 0, 1, torch.device("cpu")).of(0, line) == 1, "in (0, 1]"


def test_a_row_draws_from_its_own_line():
    """Makes impossible: a row that draws by another line's chances, or by its total, which rounding leaves beside 1."""
    logp, line = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.1, 0.0]]).log(), torch.tensor([1, 0, 1, 0])
    uniform = torch.tensor([0.4, 0.6, 0.6, 0.4], dtype=torch.float64)
    token, drawn = rollout.sample_tokens(logp, False, uniform, line)
    assert token.tolist() == [0, 1, 1, 0]
    assert drawn.exp().tolist() == pytest.approx([0.1, 0.5, 0.1, 0.5])


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


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.6, "top_p": 0.7},
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in ({"temperature": 0.6}, {"top_p": 0.7}, {"top_k": 3, "temperature": 1.5})
        ),
    ],
)
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


# Splitting


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
    rows, _ = engine._wave_size(100, 9, 5)
    assert 8 < rows < 100
    watch = Watch(model)
    groups = engine.generate(PROMPTS, 100, max_new_tokens=5, stop_token_ids=[], seed=4)
    assert watch.prompt_tokens == sum(map(len, PROMPTS))
    assert max(watch.rows) <= rows < 100
    for prompt, group in zip(PROMPTS, groups, strict=True):
        assert len(group.responses) == 100
        assert len({tuple(r) for r in group.responses}) > 80  # waves have noise of their own
        assert group.logprobs[-1] == pytest.approx(full_logprobs(model, prompt, group.responses[-1]), abs=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_a_distinct_prefix_is_computed_once(shared):
    """Makes impossible: 512 rows computed where all have drawn the same so far. As they part, so do the lines."""
    watch = Watch(model := make())
    engine = TorchEngine(model, shared_prefix=shared)
    watch.rows.clear()
    groups = engine.generate(PROMPTS, 200, max_new_tokens=6, top_k=2, stop_token_ids=[], seed=1)
    distinct = [sum(len({tuple(r[:t]) for r in g.responses}) for g in groups) for t in range(1, 6)]
    assert watch.rows == distinct
    assert distinct[0] == 2 * len(PROMPTS) and distinct[-1] < 200


def test_finished_rows_leave_the_batch():
    """Makes impossible: computing rows that ended long ago."""
    watch = Watch(model := make())
    (group,) = TorchEngine(model).generate([[3, 4]], 400, max_new_tokens=12, stop_token_ids=[0, 1, 2, 3], seed=0)
    alive = [sum(len(r) > t for r in group.responses) for t in range(1, 12)]
    decoding = watch.rows[-len([a for a in alive if a]) :]
    assert all(rows <= a / decoders.COMPACT_BELOW + 1 for rows, a in zip(decoding, alive, strict=False))
    assert decoding[-1] < 100


@pytest.mark.parametrize("rows", [4, 20])
def test_a_rollout_follows_from_its_seed_and_number(rows):
    """Makes impossible: a rollout that its wave or the others beside it change; a last wave of one row left out."""
    whole, part = TorchEngine(make()), TorchEngine(make())
    part.order_rows = rows
    (want,) = whole.generate([[3, 4]], 9, max_new_tokens=20, stop_token_ids=[], seed=[7])
    assert part.generate([[3, 4]], 9, max_new_tokens=20, stop_token_ids=[], seed=[7])[0].responses == want.responses
    (tail,) = part.generate([[3, 4]], 7, max_new_tokens=20, stop_token_ids=[], seed=[7], first=2, of=9)
    assert tail.responses == want.responses[2:]


# Weights and state


@pytest.mark.parametrize("fails", [False, True])
def test_generating_leaves_the_model_as_it_was(fails, monkeypatch):
    """Makes impossible: a trainer left in eval mode or with the engine's attention, also after an error."""
    model = make().train()
    engine, own = TorchEngine(model), model.config._attn_implementation
    assert model.training and own == model.config._attn_implementation != "shared_prefix"
    if fails:
        monkeypatch.setattr(rollout, "sample_tokens", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.generate([[3]], 4, max_new_tokens=3)
    else:
        engine.generate([[3]], 4, max_new_tokens=3)
    assert model.training and model.config._attn_implementation == own


def test_sampling_logprobs_of_half_precision_logits_are_float32():
    """Makes impossible: a softmax and a cumulative sum in bfloat16, off by up to 2^-9 a token."""
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    for sampling in ({}, {"top_p": 0.9}, {"temperature": 0.7, "top_k": 50}):
        got = sampling_logprobs(logits, **sampling)
        assert got.dtype == torch.float32
        assert torch.equal(got, sampling_logprobs(logits.float(), **sampling))


def test_progress_counts_rollouts_as_they_end():
    """Makes impossible: progress of one group only, or when all have ended; small groups decoded one by one."""
    ended_now = []
    groups = TorchEngine(make()).generate([[3], [4, 5], [6]], 40, max_new_tokens=3, on_progress=ended_now.append)
    ended = [len(r) for g in groups for r in g.responses]
    assert ended_now == [ended.count(1), ended.count(2), ended.count(3)] and min(ended_now) > 0
