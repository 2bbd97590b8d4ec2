"""trainer/data.py: problems as prompts, and the remarks on them."""

import json
import shutil
from unittest import mock

import pytest
from helpers import TINY, few_problems, set_up, settings, write_problems
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

import trainer.data as module
from trainer.console import remarks
from trainer.data import load_data, with_system_prompt
from trainer.process import Refusal
from trainer.settings import Config
from trainer.sources import load_sources
from trainer.text import encode
from verify import Problem


def loaded_data(folder, **changes):
    config, origins = settings(folder, **changes)
    return config, load_data(config, origins)


def test_problems_lengths_and_positions(tmp_path):
    """Makes impossible: an engine with too few positions for the longest prompt and its response."""
    _, data = loaded_data(tmp_path)
    assert len(data.problems) == 256 and len(data.held_out) == 16 and data.held_out_counts == {"test": 16}
    lengths = [len(data.tokenizer(p.prompt).input_ids) for p in data.problems + data.held_out]
    assert data.prompt_lengths == lengths[:256] and data.positions == max(lengths) + 12


def test_a_random_choice_of_held_out_problems_stays_the_same(tmp_path):
    """Makes impossible: evaluations of a run on different problems; the first problems of a sorted file only."""
    files = [few_problems(), few_problems("train", 64)]
    every, some, again = (
        loaded_data(tmp_path, eval_data=files, eval_problems=count, seed=seed)[1]
        for count, seed in ((None, 0), (20, 0), (20, 1))
    )
    assert (
        every.held_out_counts == {"test": 16, "train": 64}
        and sum(some.held_out_counts.values()) == len(some.held_out) == 20
    )
    places = [every.held_out.index(problem) for problem in some.held_out]
    assert places == sorted(places) and places != [*range(20)]
    assert some.held_out == again.held_out and some.held_out_counts == {"test": 4, "train": 16} and some.available == 80


def test_every_source_keeps_a_held_out_problem(tmp_path, capsys):
    """Makes impossible: a source of 1 problem beside one of 511 that vanishes from the scores without a word."""
    files = [write_problems(tmp_path / "one.jsonl", "12:3="), str(TINY / "test.jsonl")]
    _, _, setup = set_up(tmp_path, eval_data=files, eval_problems=8, eval_only=True, data=None)
    assert setup.data.held_out_counts == {"one": 1, "test": 8}
    assert "9 of 513 (one 1, test 8) held out" in capsys.readouterr().out


@pytest.mark.parametrize("name, value", [
    ("max_response_tokens", 10**6), ("eval_max_response_tokens", 10**6), ("prompts_per_step", 257),
])  # fmt: skip
def test_what_does_not_fit_the_problems_is_refused(tmp_path, name, value):
    """Makes impossible: a run that fails at the step that draws its longest prompt; a step that can never be filled."""
    with pytest.raises(Refusal, match=f"--{name}"):
        loaded_data(tmp_path, **{name: value})


def test_the_recipes_evaluation_length_is_lowered_to_the_model(tmp_path):
    """Makes impossible: a default evaluation that a model with fewer than 32k positions refuses."""
    shutil.copytree(TINY / "policy", tmp_path / "model", ignore=shutil.ignore_patterns("recipe.json"))
    config, data = loaded_data(tmp_path, model=str(tmp_path / "model"), max_response_tokens=12)
    positions = json.loads((tmp_path / "model/config.json").read_text())["max_position_embeddings"]
    longest = max(len(data.tokenizer(p.prompt).input_ids) for p in data.held_out)
    assert config.eval_max_response_tokens == positions - longest


CHAT_OF = [{"role": "user", "content": "1"}]
CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
ONLY_USERS = "{{ raise_exception('only users') if messages[0].role == 'system' }}" + CHAT


@pytest.mark.parametrize("prompt, template, system, named", [
    ("1+1 π", None, None, "π"), ("12:3=", None, "Be brief.", "--system_prompt"),
    ("12:3=", ONLY_USERS, "1+1 ", "only users"),
])  # fmt: skip
def test_prompts_that_the_tokenizer_cannot_write_are_refused(tmp_path, chat_model, prompt, template, system, named):
    """Makes impossible: a prompt in other tokens than its text has; a system prompt that is left out; a traceback of
    the template's language.
    """
    model = chat_model if template else str(TINY / "policy")
    if template:
        tokenizer = AutoTokenizer.from_pretrained(model)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(model)
    path = write_problems(tmp_path / "one.jsonl", *[prompt] * 4)
    with pytest.raises(Refusal, match=named):
        loaded_data(tmp_path, model=model, data=path, eval_data=path, system_prompt=system)


def test_a_system_prompt_makes_chats(chat_model, tmp_path):
    """Makes impossible: a system message that some prompts lack, or that replaces a chat's own."""
    config, data = loaded_data(tmp_path, model=chat_model, system_prompt="1+1 ")
    chat, question = data.problems[0], json.loads((TINY / "train.jsonl").read_text().splitlines()[0])["prompt"]
    assert chat.prompt == [{"role": "system", "content": "1+1 "}, {"role": "user", "content": question}]
    assert data.tokenizer.decode(encode(data.tokenizer, chat)).replace(" ", "") == f"1+1{question}"
    assert with_system_prompt(Problem("12:3=", "countdown", None), Config()).prompt == "12:3="
    assert with_system_prompt(Problem(CHAT_OF, "math", "1"), config).prompt[1:] == CHAT_OF
    own = [{"role": "system", "content": "9"}, *CHAT_OF]
    assert with_system_prompt(Problem(own, "math", "1"), config).prompt == own


THINKS = (  # as Qwen3's: an empty <think> before an assistant's text, and the text trimmed
    "{% for m in messages %}{{ '<' + m.role + '>' + ('<think></think>' if m.role == 'assistant' else '') }}"
    "{{ m.content | trim }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("template, start, rendered", [
    (THINKS, "<think>\n", "<user>q<end><assistant><think>\n"), (THINKS, " 1 + ", "<user>q<end><assistant> 1 + "),
    (THINKS.replace("<assistant>{%", "<assistant><think>\n{%"), "<think>", "<user>q<end><assistant><think>\n"),
    ("{{ messages[0].content }}", "1+", "q1+"), (THINKS, None, "<user>q<end><assistant>"),
])  # fmt: skip
def test_the_start_of_a_response_is_what_the_model_sees(template, start, rendered):
    """Makes impossible: <think></think> before a <think>; a start that the template trims, writes twice or leaves out,
    while the judge reads it as it is.
    """

    class Characters:
        """A tokenizer with a token for each character."""

        chat_template = template

        def apply_chat_template(self, chat, **options):
            options = {name: x for name, x in options.items() if name not in ("tokenize", "return_dict")}
            return render_jinja_template([chat], chat_template=template, **options)[0][0]

        def __call__(self, text, add_special_tokens):
            return mock.Mock(input_ids=[*text])

    chat = [{"role": "user", "content": "q"}] + [{"role": "assistant", "content": start}] * (start is not None)
    assert "".join(encode(Characters(), Problem(chat, "math", "1"))) == rendered


def test_a_rendered_prompt_has_one_bos(tmp_path):
    """Makes impossible: a model that starts with two BOS tokens, which it never saw in training."""
    shutil.copytree(TINY / "policy", tmp_path / "bos")
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    tokenizer.bos_token = "<unk>"
    tokenizer._tokenizer.post_processor = TemplateProcessing(single="<unk> $A", special_tokens=[("<unk>", 1)])
    tokenizer.save_pretrained(tmp_path / "bos")
    path = write_problems(tmp_path / "some.jsonl", *["<unk>12:3="] * 4, "12:3=")
    config, data = loaded_data(tmp_path, model=str(tmp_path / "bos"), data=path)
    starts = [encode(data.tokenizer, problem)[:3] for problem in data.problems]
    one, two = data.tokenizer.convert_tokens_to_ids(["1", "2"])
    assert starts == [[1, one, two]] * 5
    assert any("<unk>" in remark for remark in remarks(config, data))


def test_remarks_name_what_misleads(chat_model, tmp_path, monkeypatch):
    """Makes impossible: a chat model without its template, equal problems, a slow engine, unnoticed."""
    config, data = loaded_data(tmp_path)
    assert remarks(config, data) == []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "requirements-gpu.txt" in remarks(config, data)[0]
    monkeypatch.undo()
    problems = write_problems(tmp_path / "few.jsonl", *["12:3="] * 8)
    found = remarks(*loaded_data(tmp_path, model=chat_model, data=problems, eval_data=problems))
    for named, said in zip(("chat template", "repeat", "held-out"), found, strict=True):
        assert named in said


def test_generated_held_out_problems_have_seeds_of_their_own(tmp_path, monkeypatch):
    """Makes impossible: gym:NAME in --data and --eval_data with the same problems; a seed that changes nothing."""
    asked = []
    monkeypatch.setattr(module, "load_sources", lambda specs, seed: asked.append(seed) or load_sources(specs, seed))
    for seed in (0, 5):
        loaded_data(tmp_path, seed=seed)
    assert asked == [0, module.HELD_OUT_SEED, 5, module.HELD_OUT_SEED] and module.HELD_OUT_SEED >= 10**9


def test_an_eos_that_the_tokenizer_appends_is_left_out(tmp_path):
    """Makes impossible: prompts that end with EOS, after which a model writes something else."""
    shutil.copytree(TINY / "policy", tmp_path / "eos")
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    eos = tokenizer.eos_token
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single=f"$A {eos}", special_tokens=[(eos, tokenizer.eos_token_id)]
    )
    tokenizer.save_pretrained(tmp_path / "eos")
    path = write_problems(tmp_path / "some.jsonl", *["12:3="] * 4)
    config, data = loaded_data(tmp_path, model=str(tmp_path / "eos"), data=path)
    assert tokenizer("12:3=").input_ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(encode(data.tokenizer, data.problems[0])) == "12:3="
    assert any("appends" in remark for remark in remarks(config, data))


def test_a_token_that_the_model_does_not_have_is_refused_with_its_row(tmp_path):
    """Makes impossible: a run that ends in the step that draws this row, and again after each resume."""
    shutil.copytree(TINY / "policy", tmp_path / "wide")
    tokenizer = AutoTokenizer.from_pretrained(TINY / "policy")
    tokenizer.add_tokens(["@"])
    tokenizer.save_pretrained(tmp_path / "wide")
    path = write_problems(tmp_path / "some.jsonl", *["12:3="] * 6, "12@3=")
    with pytest.raises(Refusal, match="--data, problem 7: '@' is token 22, and the model has 22"):
        loaded_data(tmp_path, model=str(tmp_path / "wide"), data=path)
