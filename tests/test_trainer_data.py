"""trainer/data.py: problems as prompts, held-out sources, digests, and the remarks on them."""

import json
import shutil

import pytest
from helpers import TINY, few_problems, loaded, settings, write_problems
from transformers import AutoTokenizer

from trainer.data import load, load_model, source_names, stop_tokens, with_system_prompt
from trainer.report import remarks
from trainer.rollouts import encode
from trainer.settings import Config, Refusal
from verify import Problem

CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def loaded_data(folder, **changes):
    config, sources = settings(folder, **changes)
    return config, load(config, sources)


@pytest.fixture
def chat_model(tmp_path):
    """The embedded policy with a chat template: the contents of the messages, one after the other."""
    shutil.copytree(TINY / "policy", tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path / "chat")
    return str(tmp_path / "chat")


def test_problems_lengths_and_positions(tmp_path):
    """Makes impossible: an engine with too few positions for the longest prompt and its response."""
    _, data = loaded_data(tmp_path)
    assert len(data.problems) == 256 and len(data.held_out) == 16 and data.sources == {"test": 16}
    lengths = [len(data.tokenizer(p.prompt).input_ids) for p in data.problems]
    assert data.prompt_lengths == lengths
    longest = max(len(data.tokenizer(p.prompt).input_ids) for p in data.problems + data.held_out)
    assert data.positions == longest + 12


def test_a_random_choice_of_held_out_problems_stays_the_same(tmp_path):
    """Makes impossible: evaluations of a run on different problems; the first problems of a sorted file only."""
    files = [few_problems(), few_problems("train", 64)]
    every, some, again = (
        loaded_data(tmp_path, eval_data=files, eval_problems=count, seed=seed)[1]
        for count, seed in ((None, 0), (20, 0), (20, 1))
    )
    assert every.sources == {"test": 16, "train": 64} and sum(some.sources.values()) == len(some.held_out) == 20
    places = [every.held_out.index(problem) for problem in some.held_out]
    assert places == sorted(places) and places != [*range(20)]
    assert some.held_out == again.held_out and some.sources["test"] == sum(place < 16 for place in places)


def test_a_prompt_without_room_for_its_response_is_refused(tmp_path):
    """Makes impossible: a run that fails at the step that draws its longest prompt."""
    with pytest.raises(Refusal, match="--max_response_tokens"):
        loaded_data(tmp_path, max_response_tokens=10**6)
    with pytest.raises(Refusal, match="--eval_max_response_tokens"):
        loaded_data(tmp_path, eval_max_response_tokens=10**6)


def test_the_recipes_evaluation_length_is_lowered_to_the_model(tmp_path):
    """Makes impossible: a default evaluation that a model with fewer than 32k positions refuses."""
    shutil.copytree(TINY / "policy", tmp_path / "model")
    (tmp_path / "model/recipe.json").unlink()
    config, data = loaded_data(tmp_path, model=str(tmp_path / "model"), max_response_tokens=12)
    positions = json.loads((tmp_path / "model/config.json").read_text())["max_position_embeddings"]
    longest = max(len(data.tokenizer(p.prompt).input_ids) for p in data.held_out)
    assert config.eval_max_response_tokens == positions - longest


@pytest.mark.parametrize("prompt, named", [
    ("", "empty"), ("1+1 π", "π"), ([{"role": "user", "content": "1"}], "chat template"),
])  # fmt: skip
def test_prompts_that_the_tokenizer_cannot_write_are_refused(tmp_path, prompt, named):
    """Makes impossible: a policy that is asked something else than the problem says."""
    path = write_problems(tmp_path / "one.jsonl", "12:3=", prompt)
    with pytest.raises(Refusal, match=named):
        loaded_data(tmp_path, eval_data=path)


def test_a_system_prompt_makes_chats(chat_model, tmp_path):
    """Makes impossible: a system message that some prompts lack, or that replaces a chat's own."""
    config, data = loaded_data(tmp_path, model=chat_model, system_prompt="1+1 ")
    first = data.problems[0]
    assert [m["role"] for m in first.prompt] == ["system", "user"] and first.prompt[0]["content"] == "1+1 "
    plain = with_system_prompt(Problem("12:3=", "countdown", None), Config())
    assert plain.prompt == "12:3="
    own = [{"role": "system", "content": "9"}, {"role": "user", "content": "8"}]
    assert with_system_prompt(Problem(own, "math", "1"), config).prompt == own
    question = json.loads((TINY / "train.jsonl").read_text().splitlines()[0])["prompt"]
    tokens = encode(data.tokenizer, first)
    assert data.tokenizer.decode(tokens).replace(" ", "") == f"1+1{question}"


def test_a_system_prompt_needs_a_chat_template(tmp_path):
    """Makes impossible: a system prompt that is silently left out."""
    with pytest.raises(Refusal, match="--system_prompt"):
        loaded_data(tmp_path, system_prompt="Be brief.")


def test_remarks_name_what_misleads(chat_model, tmp_path):
    """Makes impossible: a chat model asked without its template, a problem drawn twice in a step, unnoticed."""
    config, data = loaded_data(tmp_path, prompts_per_step=4, refill=4)
    assert remarks(config, data) == []
    few = few_problems("train", 8)
    config, data = loaded_data(tmp_path, model=chat_model, data=few, eval_data=[few], prompts_per_step=4)
    said = " ".join(remarks(config, data))
    assert "chat template" in said and "--refill" in said and "held-out" in said
    twice = write_problems(tmp_path / "twice.jsonl", *["12:3="] * 8)
    assert "repeat" in " ".join(remarks(*loaded_data(tmp_path, data=twice)))


def test_torch_on_a_gpu_without_vllm_is_named(tmp_path, monkeypatch):
    """Makes impossible: a GPU user with the slow engine who does not learn why."""
    config, data = loaded_data(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("trainer.report.have_vllm", lambda: False)
    assert "requirements-gpu.txt" in " ".join(remarks(config, data))


def test_too_few_problems_are_refused(tmp_path):
    """Makes impossible: a step that can never be filled."""
    with pytest.raises(Refusal, match="--prompts_per_step"):
        loaded_data(tmp_path, data=few_problems("train", 3))


@pytest.mark.parametrize("specs, names", [
    (["hf:aime24", "hf:aime25"], ["hf:aime24", "hf:aime25"]), (["a/test.jsonl", "b/math.jsonl"], ["test", "math"]),
    (["a/test.jsonl", "b/test.jsonl"], ["a/test.jsonl", "b/test.jsonl"]), (["gym:chain_sum*5"], ["gym:chain_sum*5"]),
])  # fmt: skip
def test_sources_have_different_names(specs, names):
    """Makes impossible: two benchmarks in one row."""
    assert source_names(specs) == dict(zip(names, specs, strict=True))


def test_a_source_named_twice_is_refused():
    """Makes impossible: problems that count twice."""
    with pytest.raises(Refusal, match="--eval_data"):
        source_names(["a/test.jsonl", "a/test.jsonl"])


def test_digests_follow_problems_tokenizer_and_rewards(tmp_path, chat_model):
    """Makes impossible: a resumed run with other problems, another tokenizer or another template."""
    _, data = loaded_data(tmp_path)
    same, other = loaded_data(tmp_path)[1], loaded_data(tmp_path, data=few_problems("train", 255))[1]
    chat = loaded_data(tmp_path, model=chat_model)[1]
    assert data.digests == same.digests and set(data.digests) == set(other.digests)
    assert [k for k in data.digests if data.digests[k] != other.digests[k]] == ["the training problems"]
    assert [k for k in data.digests if data.digests[k] != chat.digests[k]] == ["the tokenizer"]


@pytest.mark.parametrize("make, named", [
    (lambda f: (f / "metrics.jsonl").write_text(""), "is a run"), (lambda f: None, "config.json"),
    (lambda f: shutil.copy(TINY / "policy/config.json", f), "tokenizer"),
    (lambda f: [(f / "config.json").write_text('{"model_type": "nonsense"}'), (f / "tokenizer.json").write_text("{}")],
     "--model"),
])  # fmt: skip
def test_folders_that_are_no_model_are_refused(tmp_path, make, named):
    """Makes impossible: a traceback of transformers for a wrong folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    with pytest.raises(Refusal, match=named):
        loaded_data(tmp_path, model=str(folder))


def test_every_eos_token_ends_a_response():
    """Makes impossible: a chat model that runs on after its end-of-turn token."""
    model, tokenizer = loaded()
    model.generation_config.eos_token_id = [0, 7]
    assert stop_tokens(tokenizer, model) == tuple(sorted({tokenizer.eos_token_id, 0, 7}))
    model.generation_config.eos_token_id = None
    assert stop_tokens(tokenizer, model) == (tokenizer.eos_token_id,)


def test_a_model_file_that_is_cut_off_is_refused(tmp_path):
    """Makes impossible: a traceback of safetensors for an interrupted download."""
    shutil.copytree(TINY / "policy", tmp_path / "model")
    weights = tmp_path / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(Refusal, match="--model"):
        load_model(str(tmp_path / "model"))
