"""Problems as prompts in tokens, and the held-out ones by source."""

import json
import shutil
from pathlib import Path

import pytest
from accelerate import Accelerator
from helpers import TINY, config, few_problems, loaded, write_problem

import train
from trainer.checks import resolve
from trainer.problems import describe, load, load_held_out
from trainer.report import protocol
from verify import load_data


def test_a_prompt_that_the_tokenizer_cannot_write_is_refused(tmp_path):
    """Makes impossible: a policy asked another question than the problem's, characters having been left out."""
    with pytest.raises(ValueError, match=r"one\.jsonl, problem 1: the tokenizer has no token for a x"):
        load(loaded()[1], [write_problem(tmp_path, "ax=12")], 8, 1024)


def test_chat_prompts_use_the_models_template(tmp_path):
    """Makes impossible: a chat flattened by hand, or refused only when its step comes."""
    tokenizer, path = loaded()[1], write_problem(tmp_path, [{"role": "user", "content": "12"}])
    with pytest.raises(ValueError, match="problem 1 is a chat, and this tokenizer has no chat template"):
        load(tokenizer, [path], 8, 1024)
    loop = "{% for m in messages %}({{ m['content'] }}){% endfor %}"
    tokenizer.chat_template = loop + "{% if add_generation_prompt %}={% endif %}"
    _, (tokens,) = load(tokenizer, [path], 8, 1024)
    assert tokenizer.decode(tokens) == "(12)="


def test_held_out_problems_that_are_generated_are_not_those_of_training(tmp_path, monkeypatch):
    """Makes impossible: gym:NAME in --data and in --eval_data being the same problems, as with one seed for both."""
    seeds = []
    monkeypatch.setattr("trainer.problems.load_data", lambda specs, seed: seeds.append(seed) or load_data(specs, seed))
    train.set_up(config(tmp_path), Accelerator(cpu=True))
    training, held_out = seeds
    assert training == 0 and held_out - training > 10**8


@pytest.fixture
def bare(tmp_path) -> str:
    """The tiny policy without its recipe.json, as a model from elsewhere is: 1,024 positions."""
    shutil.copytree(TINY / "policy", tmp_path / "bare", ignore=shutil.ignore_patterns("recipe.json"))
    return str(tmp_path / "bare")


def test_an_evaluation_is_cut_to_a_models_positions_and_says_so(tmp_path, bare, capsys):
    """Makes impossible: a model of few positions refused for the paper's 32k, or cut in silence."""
    c = config(tmp_path, model=bare, eval_only=True, eval_samples=1, eval_temperature=1.0)
    setup = train.set_up(c, Accelerator(cpu=True))
    longest = max(map(len, setup.held_out_prompts))
    assert c.eval_max_response_tokens == 1024 - longest
    held_out = setup.run.held_out
    told = protocol(c, held_out.problems, held_out.cut)
    assert f"cut at {1024 - longest:,} tokens, all that the model's 1,024 positions leave, at temperature" in told
    resolve(c := config(tmp_path, model=bare, eval_max_response_tokens=50))
    assert load_held_out(c, loaded()[1], 1024, given=True).cut == "" and c.eval_max_response_tokens == 50
    with pytest.raises(ValueError, match="a response of at least 1 exceed the model's 8 positions"):
        load_held_out(c, loaded()[1], 8)


def test_the_digest_tells_problems_apart(tmp_path):
    """Makes impossible: two runs on other problems, or on the same in another order, compared pair by pair."""
    rows, found = Path(few_problems()).read_text().splitlines(keepends=True), []
    for i, part in enumerate((rows, rows, rows[::-1], rows[:-1])):
        (tmp_path / f"{i}.jsonl").write_text("".join(part))
        resolve(c := config(tmp_path, eval_data=[str(tmp_path / f"{i}.jsonl")]))
        held_out = load_held_out(c, loaded()[1], None)
        assert held_out.sources == {str(i): len(part)}
        found.append(held_out.digest)
    assert found[0] == found[1] and len({*found}) == 3


@pytest.mark.parametrize("kind", ["llama", "qwen2"])  # transformers: an error about sentencepiece; a tokenizer of none
def test_a_folder_without_tokenizer_files_is_told_so(tmp_path, kind):
    """Makes impossible: "this tokenizer has no chat template" where there is no tokenizer at all."""
    for name in ("config.json", "generation_config.json", "model.safetensors", "recipe.json"):
        shutil.copy(TINY / "policy" / name, tmp_path / name)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"model_type": kind}))
    with pytest.raises(ValueError, match=r"has no tokenizer files, such as tokenizer\.json: copy those of the model"):
        describe(str(tmp_path))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / "policy" / name, tmp_path / name)
    assert describe(str(tmp_path))[1] == 1024


def test_a_run_is_not_a_model(finished):
    """Makes impossible: a run's folder named for its policy's, and refused for a missing config.json or tokenizer."""
    with pytest.raises(ValueError, match=r"is a run: its policy is .*run/model"):
        describe(str(finished / "run"))
    assert describe(str(finished / "run/model"))[1] == 1024
