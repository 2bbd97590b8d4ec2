"""trainer/templates.py: a chat template has limits."""

import shutil

import pytest
from helpers import TINY, settings, write_problems
from transformers import AutoTokenizer

import trainer.templates as module
from trainer.data import load_data
from trainer.process import Refusal
from trainer.templates import template_fault
from verify import Problem

TEMPLATES = {
    "{{ 'x' * 10**10 }}": "memory",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "seconds",
    "{% if messages[0]['content'] == 'b' %}{{ [0] * 10**11 }}{% endif %}": "memory",
    "{% for m in messages %}{{ m['content'] }}{% endfor %}": "",
    "{{ 1 + 'a' }}": "",  # `encode` reports it, with the row
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_template_has_limits(tmp_path, monkeypatch, template):
    """Makes impossible: a template of a stranger that hangs the start of a run, or fills the memory."""
    monkeypatch.setattr(module, "TEMPLATE_S", 1)
    shutil.copytree(TINY / "policy", tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "chat")
    tokenizer.chat_template = template
    problems = [Problem([{"role": "user", "content": text}], "countdown", None) for text in "ab"]
    assert (TEMPLATES[template] or "nothing") in (template_fault(tokenizer, problems) or "nothing")
    if TEMPLATES[template]:
        tokenizer.save_pretrained(tmp_path / "chat")
        problems = write_problems(tmp_path / "b.jsonl", [{"role": "user", "content": "b"}])
        with pytest.raises(Refusal, match=f"chat template took more than .*{TEMPLATES[template]}"):
            load_data(*settings(tmp_path, model=tmp_path / "chat", data=[problems], prompts_per_step=1))
