"""Between text and tokens: a prompt in tokens, the tokens that end a response, and those that its text leaves out."""

from __future__ import annotations

from functools import lru_cache

from trainer.process import Refusal
from verify import Problem


def encode(tokenizer, problem: Problem) -> list[int]:
    """A prompt in tokens: text as it is, a chat by the model's chat template.

    A chat that ends with an assistant message is continued: the response starts with this message. Templates trim or
    change such a message, so its text comes after the rendered messages before it; a <think> that the template has
    written already is not repeated. A text that starts with the BOS token of a tokenizer that adds one has one BOS
    token, not two; an EOS token that a tokenizer appends is left out.
    """
    if isinstance(problem.prompt, str):
        tokens = tokenizer(problem.prompt).input_ids
        if appends_eos(tokenizer, problem.prompt, tokens):
            tokens = tokens[:-1]
        return tokens[1:] if starts_with_two_bos(tokenizer, tokens) else tokens
    if not ends_with_assistant(problem):
        return tokenizer.apply_chat_template(problem.prompt, add_generation_prompt=True, return_dict=False)
    *before, last = problem.prompt
    text = tokenizer.apply_chat_template(before, add_generation_prompt=True, tokenize=False)
    if not (last["content"].strip() == "<think>" and text.rstrip().endswith("<think>")):
        text += last["content"]
    return tokenizer(text, add_special_tokens=False).input_ids


def appends_eos(tokenizer, text: str, tokens: list[int]) -> bool:
    """Whether the tokenizer has added an EOS token to a text that does not end with one."""
    eos = tokenizer.eos_token
    return eos is not None and tokens[-1:] == [tokenizer.eos_token_id] and not text.endswith(eos) and len(tokens) > 1


@lru_cache(maxsize=2)
def turn_end(tokenizer) -> int | None:
    """The special token with which the chat template ends an assistant's turn; None without one.

    A base model's EOS can be another token, and without this one it would go on as the user.
    """
    if tokenizer.chat_template is None:
        return None
    turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception:  # `encode` reports a template that fails
        return None
    tail = tokenizer(text.rpartition("2")[2], add_special_tokens=False).input_ids
    known = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special} | {*tokenizer.all_special_ids}
    special = [token for token in tail if token in known]
    return special[0] if special else None


def stop_tokens(tokenizer, model) -> tuple[int, ...]:
    """The tokens that end a response: EOS of the tokenizer and of the generation config, and the end of a chat's turn.

    Raises Refusal for a token outside of the model's vocabulary.
    """
    eos = model.generation_config.eos_token_id
    several = eos if isinstance(eos, list) else [eos]
    if not all(isinstance(token, int | None) for token in several):
        raise Refusal(
            f"--model: eos_token_id in generation_config.json is a number or a list of them, not {eos!r:.100}"
        )
    tokens = {tokenizer.eos_token_id, *several, turn_end(tokenizer)} - {None}
    vocabulary = model.config.get_text_config().vocab_size
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        raise Refusal(
            f"--model: the EOS token {outside[0]} is outside of the model's vocabulary of {vocabulary:,} tokens: "
            "correct eos_token_id in generation_config.json, or take the tokenizer of this model"
        )
    return tuple(sorted(tokens))


def ends_with_assistant(problem: Problem) -> bool:
    """Whether the prompt is a chat that has written the start of the response, such as "<think>"."""
    return not isinstance(problem.prompt, str) and problem.prompt[-1]["role"] == "assistant"


def starts_with_two_bos(tokenizer, tokens: list[int]) -> bool:
    return tokenizer.bos_token_id is not None and tokens[:2] == [tokenizer.bos_token_id] * 2


@lru_cache(maxsize=2)
def tokens_left_out(tokenizer) -> frozenset[int]:
    """The tokens that are left out of a response's text: BOS, EOS, PAD, and the marks of turns in the chat template.

    Other special tokens carry meaning and stay. So do tags such as <think> and </think>, also in the template.
    """
    special = {token.content: i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    tags = {tag for x in special if x.startswith("</") for tag in (x, f"<{x[2:]}")}
    marks = {i for x, i in special.items() if x in str(tokenizer.chat_template or "") and x not in tags}
    return frozenset({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, *marks} - {None})
