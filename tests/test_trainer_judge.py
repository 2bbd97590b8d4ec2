"""trainer/judge.py: the text that is judged, verdicts beside decoding."""

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from helpers import TINY, loaded

import trainer.judge as module
from rollout import Sampling, TorchEngine
from trainer.judge import Judge
from trainer.outcomes import Rollout
from trainer.problems import load_problems
from trainer.rollouts import roll_out
from trainer.settings import Config
from trainer.text import tokens_left_out
from verify import Problem


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
    Judge(Words(), Config()).judge([r := rollout_of(tokens, [WORDS.index(word) for word in prompt.split()])])
    assert r.text == text and r.verdict.reason == reason


def test_a_cut_response_keeps_its_last_token():
    """Makes impossible: the last word of a truncated response taken for its stop token."""
    (r := rollout_of([4], [6])).truncated = True
    Judge(Words(), Config()).judge([r])
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
    Judge(Words(), Config()).judge([r])
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
