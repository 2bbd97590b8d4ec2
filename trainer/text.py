"""Between text and tokens: a prompt in tokens, and the tokens that a response's text leaves out."""

from __future__ import annotations

from functools import lru_cache

from verify import Problem


def encode(tokenizer, problem: Problem) -> list[int]:
    """A prompt in tokens: text as it is, a chat by the model's chat template.

    A chat that ends with an assistant message is continued: the response starts in this message. A text that starts
    with the BOS token of a tokenizer that adds one has one BOS token, not two.
    """
    if isinstance(problem.prompt, str):
        tokens = tokenizer(problem.prompt).input_ids
        return tokens[1:] if starts_with_two_bos(tokenizer, tokens) else tokens
    started = ends_with_assistant(problem)
    return tokenizer.apply_chat_template(
        problem.prompt, add_generation_prompt=not started, continue_final_message=started, return_dict=False
    )


def ends_with_assistant(problem: Problem) -> bool:
    """Whether the prompt is a chat that has written the start of the response, such as "<think>"."""
    return not isinstance(problem.prompt, str) and problem.prompt[-1]["role"] == "assistant"


def starts_with_two_bos(tokenizer, tokens: list[int]) -> bool:
    return tokenizer.bos_token_id is not None and tokens[:2] == [tokenizer.bos_token_id] * 2


@lru_cache(maxsize=2)
def hidden_tokens(tokenizer) -> frozenset[int]:
    """The tokens that are left out of a response's text: BOS, EOS, PAD, and the marks of turns in the chat template.

    Other special tokens carry meaning and stay. So do tags such as <think> and </think>, also in the template.
    """
    special = {token.content: i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    tags = {tag for x in special if x.startswith("</") for tag in (x, f"<{x[2:]}")}
    marks = {i for x, i in special.items() if x in str(tokenizer.chat_template or "") and x not in tags}
    return frozenset({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, *marks} - {None})
