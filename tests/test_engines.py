"""What holds for every engine of rollout.ENGINES, and for one around `model.generate`, an example of a whole engine."""

import inspect
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_models import PROMPTS, full_logprobs, make
from transformers import GenerationConfig

from engines.protocol import Engine, Group, prompt_seeds, resolve_sampling
from rollout import ENGINES, engine_class


class GenerateEngine(Engine):
    """Decodes with `model.generate`, a prompt at a time. `first` changes the seed, so rollouts depend on the order."""

    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def generate(
        self, prompts, n, *, max_new_tokens=None, temperature=1.0, top_p=1.0, top_k=0, stop_token_ids=None, seed=0,
        first=0, of=None, on_progress=None,
    ):  # fmt: skip
        max_new_tokens, stop = resolve_sampling(
            self.model, prompts, n, max_new_tokens, temperature, top_p, top_k, stop_token_ids
        )
        sampling = GenerationConfig(
            do_sample=temperature > 0, temperature=temperature or 1.0, top_p=top_p, top_k=top_k,
            num_return_sequences=n if temperature else 1, max_new_tokens=max_new_tokens, eos_token_id=stop or -1,
            pad_token_id=0, output_scores=True, return_dict_in_generate=True,
        )  # fmt: skip
        groups, was_training = [], self.model.training
        self.model.eval()
        for prompt, prompt_seed in zip(prompts, prompt_seeds(seed, len(prompts)), strict=True):
            tokens = torch.tensor([prompt], device=self.model.device)
            with torch.random.fork_rng():
                torch.manual_seed(prompt_seed + first)
                out = self.model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=sampling)
            responses = out.sequences[:, len(prompt) :]
            logp = torch.stack(out.scores, 1).float().log_softmax(-1).gather(-1, responses[:, :, None]).squeeze(-1)
            groups.append(Group(list(prompt), [], [], []))
            for response, logprobs in zip(responses.tolist(), logp.tolist(), strict=True):
                end = next((t for t, token in enumerate(response, 1) if token in stop), max_new_tokens)
                reason = "stop" if response[end - 1] in stop else "length"
                for _ in range(1 if temperature else n):  # greedy: one stands for all
                    groups[-1].add([response[:end]], [logprobs[:end]], [reason])
            if on_progress:
                on_progress(n)
        self.model.train(was_training)
        return groups


@pytest.fixture(params=[*(name for name in ENGINES if name != "vllm"), "generate"])  # vLLM: test_engines_vllm.py
def engine(request):
    """Makes an engine of a model."""
    return GenerateEngine if request.param == "generate" else engine_class(request.param)


def test_an_engine_is_imported_when_it_is_asked_for():
    """Makes impossible: a run with one engine that loads the files of the others, or needs their packages."""
    code = "import sys; import train; sys.exit('engines.vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parent.parent).returncode == 0


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_asked_in_the_same_words(name):
    """Makes impossible: a setting of sampling that one engine has under another name, default or order."""
    asked, wanted = (
        [(p.name, p.kind, p.default) for p in inspect.signature(x.generate).parameters.values()]
        for x in (engine_class(name), Engine)
    )
    assert asked == wanted


def test_logprobs_are_those_of_the_distribution_sampled_from(engine):
    """Makes impossible: sampling under top-p, top-k and a temperature, and reporting the log-prob without them."""
    model, sampling = make(), {"temperature": 0.7, "top_p": 0.8, "top_k": 5}
    (group,) = engine(model).generate([[3, 4]], 50, max_new_tokens=6, stop_token_ids=[], seed=3, **sampling)
    for response, logprobs in zip(group.responses, group.logprobs, strict=True):
        assert logprobs == pytest.approx(full_logprobs(model, [3, 4], response, **sampling), abs=1e-5)
        assert all(math.isfinite(x) for x in logprobs)


def test_greedy_equals_transformers_generate(engine):
    """Makes impossible: an off-by-one between prefill and the first decoded token."""
    model = make()
    for prompt, group in zip(
        PROMPTS, engine(model).generate(PROMPTS, 2, max_new_tokens=10, temperature=0), strict=True
    ):
        want = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=10, pad_token_id=0,
        )[0, len(prompt) :].tolist()  # fmt: skip
        assert group.responses == [want, want]


def test_responses_end_with_their_stop_token_or_at_the_limit(engine):
    """Makes impossible: a lost EOS, tokens after it, a finish reason that does not fit."""
    (group,) = engine(make()).generate([[3, 4]], 300, max_new_tokens=7, stop_token_ids=[0, 11], seed=2)
    assert set(group.finish_reasons) == {"stop", "length"}
    for response, logprobs, reason in zip(group.responses, group.logprobs, group.finish_reasons, strict=True):
        assert len(logprobs) == len(response)
        assert not {0, 11} & set(response[:-1])
        assert (response[-1] in (0, 11)) == (reason == "stop")
        assert len(response) == 7 or reason == "stop"


def test_a_stop_token_at_the_limit_is_a_stop(engine):
    """Makes impossible: calling a response truncated that ended by itself at the last position."""
    (group,) = engine(make()).generate([[3]], 200, max_new_tokens=1, stop_token_ids=[0], seed=2)
    assert {"stop"} == {r for r, x in zip(group.finish_reasons, group.responses, strict=True) if x == [0]}
    assert {"length"} == {r for r, x in zip(group.finish_reasons, group.responses, strict=True) if x != [0]}


def test_stop_tokens_default_to_the_models_eos(engine):
    """Makes impossible: a model's EOS ignored because nobody named it."""
    model = make()
    model.generation_config.eos_token_id = [0, 5]
    made = engine(model)
    assert made.generate([[3]], 50, max_new_tokens=6) == made.generate(
        [[3]], 50, max_new_tokens=6, stop_token_ids=[0, 5]
    )


def test_a_seed_repeats_a_run_and_another_does_not(engine):
    """Makes impossible: noise from the global generator, or the same noise for every call."""
    made = engine(make())
    first = made.generate(PROMPTS, 8, max_new_tokens=6, seed=1)
    torch.manual_seed(99)
    assert made.generate(PROMPTS, 8, max_new_tokens=6, seed=1) == first
    assert made.generate(PROMPTS, 8, max_new_tokens=6, seed=2) != first


def test_sync_takes_the_new_weights(engine):
    """Makes impossible: an engine that goes on sampling from old weights."""
    made, other = engine(make(seed=0)), make(seed=1)
    before = made.generate([[3, 4]], 4, max_new_tokens=5, seed=1)[0]
    made.sleep()
    made.wake()
    made.sync(other)
    after = made.generate([[3, 4]], 4, max_new_tokens=5, seed=1)[0]
    assert after.logprobs[0] == pytest.approx(full_logprobs(other, [3, 4], after.responses[0]), abs=1e-5)
    assert before != after


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
        ({"prompts": [[3], []]}, "prompt 1"),
        ({"prompts": [[3], [13]]}, "prompt 1"),
        ({"prompts": [[3] * 60]}, "60 tokens"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_computed(engine, arguments, says):
    """Makes impossible: a run that dies in the middle of a step for what its arguments show."""
    made = engine(model := make())
    assert made.generate([], 4, max_new_tokens=3) == [], "a process may have no prompts"
    model.register_forward_pre_hook(lambda *a: pytest.fail("the model was asked"))
    call = {"prompts": [[3]], "n": 2, "max_new_tokens": 5} | arguments
    with pytest.raises(ValueError, match=says):
        made.generate(**call)
