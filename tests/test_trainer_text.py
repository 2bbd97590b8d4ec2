"""trainer/text.py: the tokens that end a response."""

import pytest
from helpers import loaded

from trainer.process import Refusal
from trainer.text import stop_tokens, turn_end


def test_every_eos_token_ends_a_response():
    """Makes impossible: a chat model that runs on after its end-of-turn token."""
    model, tokenizer = loaded()
    for eos, others in (([0, 7], {0, 7}), (None, set())):
        model.generation_config.eos_token_id = eos
        assert stop_tokens(tokenizer, model) == tuple(sorted({tokenizer.eos_token_id} | others))


def test_the_end_of_a_turn_ends_a_response():
    """Makes impossible: a base model that goes on as the user after the token that ends a turn, and is judged on that;
    an EOS token outside of the vocabulary that ends in a traceback.
    """
    model, tokenizer = loaded()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<turn>{% endfor %}"
    end = tokenizer.convert_tokens_to_ids("<turn>")
    assert turn_end(tokenizer) == end and model.config.vocab_size == end
    with pytest.raises(Refusal, match=f"EOS token {end} is outside"):
        stop_tokens(tokenizer, model)
    model.config.vocab_size += 1
    assert end in stop_tokens(tokenizer, model)
