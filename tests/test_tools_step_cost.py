"""tools/step_cost.py: the work of a step against the engine and the trainer themselves, rates and seconds by hand."""

import random
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, judged, loaded, sampled

import train
from engines.prefix import PrefixDecoder
from rollout import Sampling, TorchEngine
from tools import step_cost
from tools.step_cost import WORK, Cost, Rates, Responses, fit, imagine, work_of_engine, work_of_judge, work_of_trainer
from trainer.problems import load_problems
from trainer.settings import Config

SAMPLING = Sampling(max_new_tokens=12, stop_token_ids=(0,))


def sampled_step(m=3, n=24, seed=None):
    """Groups of the embedded policy, their samples, and the step that drew just these."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:m]
    groups = sampled(model, [tokenizer(p.prompt).input_ids for p in problems], n)
    sample = [Responses(len(group.prompt), group.responses) for group in groups]
    return model, problems, groups, imagine(sample, m, n)


@pytest.mark.parametrize("memory", [2.0, 1e-4])
def test_the_rows_of_a_step_are_those_of_the_engine(memory):
    """Makes impossible: rows of equal prefixes counted twice, prompts without padding, steps of one chunk only."""
    model, _, groups, step = sampled_step()
    engine, counted = TorchEngine(model, memory), np.zeros(3)
    begin, advance = PrefixDecoder.__init__, PrefixDecoder._step

    def started(self, model, prompts, limit):
        counted[0] += len(prompts) * max(map(len, prompts))
        begin(self, model, prompts, limit)

    def stepped(self, token):
        counted[1:] += 1, len(token)
        return advance(self, token)

    requests = [group_request(group, i) for i, group in enumerate(groups)]
    with mock.patch.object(PrefixDecoder, "__init__", started), mock.patch.object(PrefixDecoder, "_step", stepped):
        found = dict(engine.generate(requests, SAMPLING))
    again = [(Responses(len(found[i].prompt), found[i].responses), found[i].responses) for i in range(len(found))]
    step = [(r, in_order_drawn(r, responses)) for r, responses in again]
    assert work_of_engine(engine, SAMPLING, step) == [*counted, sum(len(y) for _, x in again for y in x)]
    assert memory > 1 or engine.chunk_size(requests, SAMPLING) < 72  # several chunks


def group_request(group, seed):
    return step_cost.Request(group.prompt, len(group.responses), seed)


def in_order_drawn(responses, tokens):
    """The rollouts as `Responses` names them, in the order of their numbers."""
    distinct = sorted(set(map(tuple, tokens)))
    return [(distinct.index(tuple(x)), 0) for x in tokens]


@pytest.mark.parametrize("share_prompts", [False, True])
@pytest.mark.parametrize("budget", [32768, 300])
def test_the_work_of_training_is_that_of_its_micro_batches(share_prompts, budget):
    """Makes impossible: equal responses computed twice, a prompt once per step, padding that is left out."""
    _, problems, groups, _ = sampled_step()
    config, accelerator = Config(max_tokens_per_micro_batch=budget, updates_per_step=4), Accelerator(cpu=True)
    rollouts = judged(groups, problems, lambda p, response: True)
    step = [(r, in_order_drawn(r, g.responses)) for g in groups for r in [Responses(len(g.prompt), g.responses)]]
    in_mini_batch = train.deal(torch.ones(3, 24, dtype=torch.bool), 4, seed=0)
    mini_batches = train.split(rollouts, torch.zeros(3, 24), in_mini_batch, config, share_prompts, accelerator)
    want = np.zeros(4)
    for micro_batch in (x for mini_batch in mini_batches for x in mini_batch):
        (g, length), (s, r) = micro_batch.inputs[0].shape, micro_batch.inputs[3].shape
        want += [1, g * length, s * r, s * length] if share_prompts else [1, s * length, s * r, 0]
    assert work_of_trainer(step, config, share_prompts) == want.tolist()


def test_a_prompt_is_computed_once_in_each_mini_batch_with_a_rollout_of_it():
    """Makes impossible: another number of passes over a prompt than U (1 - (1 - 1/U)^N)."""
    sample = [Responses(100, [(1, 2, 3)] * 64)]
    for n in (4, 16, 256):
        step = imagine(sample, 400, n)
        config = Config(max_tokens_per_micro_batch=10**9, updates_per_step=8)
        _, prompt_tokens, *_ = work_of_trainer(step, config, share_prompts=True)
        assert prompt_tokens / 400 / 100 == pytest.approx(8 * (1 - (1 - 1 / 8) ** n), rel=0.02)


def test_responses_by_hand():
    """Makes impossible: a shared prefix that counts per response, or a new response that shares nothing."""
    responses = Responses(7, [(1, 2, 3, 0), (1, 2, 4, 0), (1, 2, 4, 0), (5, 0)])
    assert (responses.lengths, responses.counts, responses.shared) == ([4, 4, 2], (1, 2, 1), [0, 2, 0, 0])
    assert responses.rows([(0, 0)]) == 3  # 1, 1 2, 1 2 3: the stop token is never an input
    assert responses.rows([(0, 0), (1, 0), (1, 0), (2, 0)]) == 3 + 1 + 1
    assert responses.rows([(0, 0), (2, 0)]) == 3 + 1
    assert responses.rows([(0, 0), (0, 1), (0, 2)]) == 3 + 1 + 1  # new ones leave after 1 2
    drawn = responses.draw(100, random.Random(0))
    new = {x for x in drawn if x[1]}
    assert len(drawn) == 100 and {i for i, _ in new} == {0, 2} and 5 < len(new) < 66  # half of the first draws are new
    assert sorted(responses.draw(4, random.Random(0))) == [(0, 0), (1, 0), (1, 0), (2, 0)]
    assert work_of_judge([(responses, drawn)]) == [1, len(new) + 3, 100]


@pytest.mark.parametrize(("n", "most"), [(128, 1.15), (256, 1.25), (512, 1.5)])
def test_distinct_responses_beyond_the_sample(n, most):
    """Makes impossible: a step with 512 rollouts that has as few distinct responses as 64, or as many as rollouts."""
    model, tokenizer = loaded()
    problems = load_problems(TINY / "train.jsonl")[:8]
    groups = sampled(model, [tokenizer(p.prompt).input_ids for p in problems], n)
    imagined = imagine([Responses(len(g.prompt), g.responses[:64]) for g in groups], 8, n)
    real = imagine([Responses(len(g.prompt), g.responses) for g in groups], 8, n)
    rows, real_rows = (work_of_engine(TorchEngine(model), SAMPLING, step)[2] for step in (imagined, real))
    distinct, real_distinct = (work_of_judge(step)[1] for step in (imagined, real))
    assert 0.9 < rows / real_rows < most and 0.9 < distinct / real_distinct < most
    assert n < 512 or real_distinct < 0.5 * 8 * n  # else any rule would do


def test_vllm_computes_the_last_block_for_each_rollout():
    """Makes impossible: whole prompts once per rollout; decoder steps of one rollout where many wait."""
    config = SimpleNamespace(
        cache_config=SimpleNamespace(block_size=16), scheduler_config=SimpleNamespace(max_num_seqs=8)
    )
    engine = SimpleNamespace(llm=SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=config)))
    step = imagine([Responses(40, [(1, 2, 0)] * 4), Responses(32, [(1, 0)] * 4)], 2, 4)
    assert work_of_engine(engine, SAMPLING, step) == [40 + 3 * 8 + 32 + 3 * 16, 3, 20, 20]
    step = imagine([Responses(40, [(1, 2, 0)] * 64)], 1, 64)
    assert work_of_engine(engine, SAMPLING, step) == [40 + 63 * 8, 24, 192, 192]


def test_rates_of_known_work():
    """Makes impossible: a negative rate, or a long call that outweighs all short ones."""
    rng = np.random.default_rng(0)
    work = rng.uniform(1, 1000, (9, 4))
    rates = np.array([2e-3, 0.0, 5e-6, 1e-4])
    assert fit([(w.tolist(), float(w @ rates)) for w in work]) == pytest.approx(rates.tolist(), rel=1e-6, abs=1e-12)
    noisy = fit([([1, n, 0], (0.1 + 0.01 * n) * s) for n, s in ((1, 1.1), (4, 0.9), (64, 1.1), (256, 0.9))])
    assert noisy[0] == pytest.approx(0.1, rel=0.3) and noisy[1] == pytest.approx(0.01, rel=0.3) and noisy[2] == 0


def test_seconds_by_hand():
    """Makes impossible: scores without the reference, optimizer steps per prompt, training on dropped prompts."""
    model, _ = loaded()
    rates = Rates({stage: [1.0] + [0.0] * (len(names) - 1) for stage, names in WORK.items()}, 0.25, 3.0)
    policy = SimpleNamespace(share_prompts=True)
    setup = SimpleNamespace(engine=TorchEngine(model), sampling=SAMPLING, policy=policy, reference=None)
    config = Config(max_tokens_per_micro_batch=10**6, updates_per_step=2)
    sample = [Responses(10, [(1, 2, 0), (1, 0)] * 8)]
    cost = Cost(rates, sample, [], config, Accelerator(cpu=True), setup)
    assert cost.seconds(16, 5, 2) == {"roll_out": 5 * 10 + 3.0, "judge": 1.0, "score": 2.0, "update": 2 + 2 * 0.25}
    setup.reference = policy
    assert cost.seconds(16, 5, 2)["score"] == 4.0
    with mock.patch.object(step_cost, "IMAGINED", 32):  # two prompts stand for five
        assert cost.seconds(16, 5, 2)["roll_out"] == pytest.approx(5 * 10 + 3.0)
