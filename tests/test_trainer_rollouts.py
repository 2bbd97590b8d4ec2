"""trainer/rollouts.py: stages 2 and 3, the share of each rank, the judge beside decoding, the outcomes of all ranks."""

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, drawn, loaded

import trainer.rollouts as module
from rollout import Group, Sampling, TorchEngine
from trainer.outcomes import Outcomes, Rollout
from trainer.problems import load_problems
from trainer.process import Refusal
from trainer.rollouts import Judge, requests_of_rank, roll_out, rollouts_of
from trainer.settings import Config
from trainer.text import tokens_left_out
from verify import REASONS, Problem, verify


@pytest.mark.parametrize("n, world", [(8, 1), (8, 3), (512, 64), (2, 5), (1, 4), (3, 3)])
def test_every_rollout_is_drawn_by_exactly_one_rank(n, world):
    """Makes impossible: a rollout that two ranks draw, or none; a rank without work while others have much."""
    prompts = [[1], [2, 3], [4], [5], [6]]
    seeds = [10, 20, 30, 40, 50]
    shares = [requests_of_rank(prompts, n, seeds, rank, world) for rank in range(world)]
    found = sorted((p, r.first + k) for share in shares for p, r in share for k in range(r.n))
    assert found == [(p, k) for p in range(5) for k in range(n)]
    assert all(r.prompt == prompts[p] and r.seed == seeds[p] for share in shares for p, r in share)
    counts = [sum(r.n for _, r in share) for share in shares]
    assert max(counts) - min(counts) <= (1 if n < world else 5)


def test_a_group_becomes_rollouts_with_its_own_tokens():
    """Makes impossible: a response with the log-probs, the number or the end of another one."""
    responses, logprobs = [[1], [2, 3], [4, 4, 4]], [[-0.1], [-0.2, -0.3], [-0.4, -0.5, -0.6]]
    group = Group.of([5, 6], responses, logprobs, ["stop", "stop", "length"])
    made = list(rollouts_of(group, Problem("?", "math", "1"), prompt_index=7, first=4))
    assert [(r.prompt_index, r.number, r.truncated) for r in made] == [(7, 4, False), (7, 5, False), (7, 6, True)]
    for r, tokens, logp in zip(made, responses, logprobs, strict=True):
        assert r.prompt.tolist() == [5, 6] and r.response.tolist() == tokens
        assert r.engine_logp.tolist() == pytest.approx(logp)


def test_outcomes_hold_every_rollout_at_its_place():
    """Makes impossible: a reward at another prompt or number; a wrong correct flag, reason or length; a second round
    that overwrites the first.
    """
    rollouts, outcomes = drawn(4, 6, limit=8)
    assert outcomes.reward.shape == (4, 6) and outcomes.rounds == 1 and outcomes.kinds == ["countdown"] * 4
    for r in rollouts:
        at = r.prompt_index, r.number
        assert outcomes.reward[at] == r.verdict.reward and outcomes.correct[at] == r.verdict.correct
        assert REASONS[outcomes.reason[at]] == r.verdict.reason
        assert outcomes.length[at] == len(r.response) and outcomes.truncated[at] == r.truncated
        assert r.verdict == verify(r.problem.kind, r.text, r.problem.reference)
    assert outcomes.truncated.any() and not outcomes.truncated.all()
    _, more = drawn(2, 6, seed=1)
    both = Outcomes.empty(6).followed_by(outcomes).followed_by(more)
    assert len(both) == len(both.kinds) == 6 and both.rounds == 2
    assert torch.equal(both.reward, torch.cat([outcomes.reward, more.reward]))


@pytest.mark.parametrize("fault", ["missing", "twice"])
def test_a_rollout_that_is_missing_or_comes_twice_ends_the_run(fault):
    """Makes impossible: a missing rollout that counts as correct with reward 0, because 0 is the first reason."""
    rollouts, _ = drawn(2, 4)
    problems = [rollouts[0].problem, rollouts[-1].problem]
    rollouts = rollouts[:5] + rollouts[6:] if fault == "missing" else [*rollouts, rollouts[5]]
    with pytest.raises(Refusal, match=rf"rollout 1 of prompt 1 {0 if fault == 'missing' else 2} times.*1 of 8"):
        Outcomes.of(rollouts, 0, problems, 4, Accelerator(cpu=True))


def rollout_of(response, prompt) -> Rollout:
    tokens = torch.tensor(response, dtype=torch.int32)
    problem = Problem("", "countdown", {"numbers": [1, 2], "target": 3})
    return Rollout(problem, 0, 0, torch.tensor(prompt, dtype=torch.int32), tokens, torch.zeros(len(tokens)), False)


WORDS = [
    "<pad>",
    "<eos>",
    "<think>",
    "</think>",
    "1+2",
    "3",
    "user:",
    "<bos>",
    "<answer>",
    "</answer>",
    "<|user|>",
    "=",
]


class Words:
    """A tokenizer of words. All are special tokens except for 1+2, 3, user: and =."""

    bos_token_id, eos_token_id, pad_token_id = 7, 1, 0
    chat_template = "<|user|>{{ messages[0].content }}<|assistant|><think>"

    def __init__(self):
        special = {i: w for i, w in enumerate(WORDS) if w[0] == "<"}
        self.added_tokens_decoder = {i: SimpleNamespace(content=w, special=True) for i, w in special.items()}

    def decode(self, tokens):
        return " ".join(WORDS[int(i)] for i in tokens)

    def batch_decode(self, rows):
        return [self.decode(row) for row in rows]


@pytest.mark.parametrize("prompt, response, text, reason", [
    ("user:", "<think> 1+2 <eos>", "<think> 1+2", "no_answer"),
    ("user:", "<think> 3 </think> 1+2 <eos>", "<think> 3 </think> 1+2", "correct"),
    ("user: <think>", "1+2 <eos>", "<think>1+2", "no_answer"),  # the chat template opened the tag
    ("user: <think>", "3 </think> 1+2 <eos>", "<think>3 </think> 1+2", "correct"),
    ("user:", "<answer> 1+2 </answer> = 3 <eos>", "<answer> 1+2 </answer> = 3", "correct"),
    ("user:", "<bos> <pad> <|user|> 1+2 <eos>", "1+2", "correct"),
    ("user:", "1+2 3", "1+2", "correct"),  # 3 is the stop token that the model's generation config names
])  # fmt: skip
def test_the_text_that_a_judge_sees(prompt, response, text, reason):
    """Makes impossible: an <answer> that vanishes because it is a special token; a box of the thinking that counts; an
    end token inside an answer; unfinished thinking read as an answer because the prompt has the opening tag.
    """
    tokens = [WORDS.index(word) for word in response.split()]
    Judge(Words(), Config()).fill_in([r := rollout_of(tokens, [WORDS.index(word) for word in prompt.split()])])
    assert r.text == text and r.verdict.reason == reason


def test_a_cut_response_keeps_its_last_token():
    """Makes impossible: the last word of a truncated response taken for its stop token."""
    (r := rollout_of([4], [6])).truncated = True
    Judge(Words(), Config()).fill_in([r])
    assert r.text == "1+2" and tokens_left_out(Words()) == frozenset({0, 1, 7, 10})


@pytest.mark.parametrize("start, response, reason", [
    ("<think>", "3 <eos>", "no_answer"), ("<think>", "3 </think> 1+2 <eos>", "correct"), ("1+", "3 <eos>", "wrong"),
    ("1+2", "<eos>", "correct"),
])  # fmt: skip
def test_the_start_of_a_response_in_the_prompt_is_judged(start, response, reason):
    """Makes impossible: an answer that begins in the prompt, and is judged without its first half."""
    r = rollout_of([WORDS.index(word) for word in response.split()], [6])
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": start}]
    r.problem = r.problem._replace(prompt=chat)
    Judge(Words(), Config()).fill_in([r])
    assert r.text.startswith(start) and r.verdict.reason == reason


class Waiting(TorchEngine):
    """An engine whose third group waits until the judge has been called."""

    def __init__(self, model, judged):
        super().__init__(model)
        self.judged, self.groups = judged, 0

    def generate(self, requests, sampling, on_progress=None):
        for i, request in enumerate(requests):
            if i == 2:
                assert self.judged.wait(60), "nothing was judged before the last token"
            ((_, group),) = super().generate([request], sampling)
            time.sleep(0.02)
            self.groups += 1
            yield i, group


@pytest.mark.parametrize("fails", [False, True])
def test_groups_are_judged_while_others_decode(fails, monkeypatch):
    """Makes impossible: a judge that starts after the last token; an exception of its thread that is lost, or reported
    after hours of decoding.
    """
    called, own = threading.Event(), module.verify_batch

    def watched(*arguments, **options):
        called.set()
        return own(*arguments, **options) if not fails else 1 / 0

    monkeypatch.setattr(module, "verify_batch", watched)
    model, tokenizer = loaded()
    engine, problems = Waiting(model, called), load_problems(TINY / "train.jsonl")[:50]
    sampling = Sampling(2, stop_token_ids=(tokenizer.eos_token_id,))
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        roll_out(engine, problems, 4, [*range(50)], sampling, Judge(tokenizer, Config()), Accelerator(cpu=True))
    assert (engine.groups < 50) == fails
