"""Kind "ifeval": the share of its instructions that a response follows. (verify.py, section 4.2.1)

INSTRUCTIONS, at the end, is the table: an instruction's id, and the function that says whether a text follows it. The
rule is IFEval's strict one: the whole response after its thinking counts.

The source: google-research's instruction_following_eval and the paper IFEval; tests/test_kinds_ifeval.py lists where
that decides otherwise, and why. The functions run in the trainer's process: they use string methods, and patterns that
cannot backtrack.
"""

import importlib.util
import inspect
import json
import re
from collections.abc import Callable
from typing import Any

from kinds.patterns import forward
from verify import Kind, shown

# The paper's longest response is below 100,000 characters. Longer text than this is a loop, and follows nothing.
MAX_FOLLOWED = 1_000_000
# langdetect reads at most 10,000 characters of a text, but first searches all of it for addresses.
MAX_DETECTED = 20_000
GivenInstruction = tuple[Callable[..., bool], dict[str, Any]]  # a function of INSTRUCTIONS, and its arguments


def check_ifeval(reference: Any) -> None:
    """Raise ValueError unless every id is in INSTRUCTIONS, and `kwargs` has an object with its arguments for each."""
    if not isinstance(reference, dict) or reference.keys() != {"instruction_id_list", "kwargs"}:
        raise ValueError(
            f'an ifeval reference is {{"instruction_id_list": [...], "kwargs": [...]}}, got {shown(reference)}'
        )
    ids, kwargs = reference["instruction_id_list"], reference["kwargs"]
    if not isinstance(ids, list) or not isinstance(kwargs, list) or not 1 <= len(ids) == len(kwargs):
        raise ValueError("ifeval needs two lists, one `kwargs` per id in `instruction_id_list`, and at least one")
    for name, given in zip(ids, kwargs, strict=True):
        if not isinstance(name, str) or name not in INSTRUCTIONS:
            raise ValueError(f"unknown instruction {shown(name)}: use one of {', '.join(INSTRUCTIONS)}")
        if not isinstance(given, dict | None):
            raise ValueError(f"the kwargs of {name} are an object, got {shown(given)}")
        arguments = _arguments_of(given)
        if arguments.keys() != {*ARGUMENTS[name]}:
            wanted = ", ".join(ARGUMENTS[name]) or "no arguments"
            raise ValueError(f"{name} takes {wanted}, got {shown(arguments)}: missing ones are not filled in")
        for key, value in arguments.items():
            _check_argument(name, key, value)
        if ("language" in name or "english" in name) and importlib.util.find_spec("langdetect") is None:
            raise ValueError(f"{name} needs the package langdetect: pip install langdetect")


def _arguments_of(given: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments that are not null. The public data sets give every argument a place in every object.

    Tables with empty cells keep whole numbers as floats, so these become whole numbers again.
    """
    return {
        key: int(value) if isinstance(value, float) and value.is_integer() else value
        for key, value in (given or {}).items()
        if value is not None
    }


def _check_argument(name: str, key: str, value: Any) -> None:
    """Raise ValueError unless the value has the form of its argument."""
    if "relation" in key:
        right, form = value in ("less than", "at least"), '"less than" or "at least"'
    elif key in ("keywords", "forbidden_words"):
        right, form = isinstance(value, list) and bool(value) and all(map(_is_text, value)), "a list of words"
    elif key.startswith(("num_", "nth_")) or key.endswith("frequency"):
        right, form = type(value) is int and value >= (key == "nth_paragraph"), "a whole number from 0 on (nth: 1)"
    else:
        right, form = _is_text(value) and (key != "letter" or len(value.strip()) == 1), "text (letter: one character)"
    if not right:
        raise ValueError(f"`{key}` of {name} must be {form}, got {shown(value)}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def instructions_of(reference: dict[str, Any]) -> list[GivenInstruction]:
    """Return the instructions of a reference that `check_ifeval` accepts."""
    given = zip(reference["instruction_id_list"], reference["kwargs"], strict=True)
    return [(INSTRUCTIONS[name], _arguments_of(arguments)) for name, arguments in given]


def judge_ifeval(answer: str, reference: dict[str, Any]) -> float:
    """Return the share of the instructions that the answer follows."""
    followed = follow_instructions(answer, instructions_of(reference))
    return sum(followed) / len(followed)


def follow_instructions(text: str, instructions: list[GivenInstruction]) -> list[bool]:
    """Return whether the text follows each instruction."""
    if len(text) > MAX_FOLLOWED:
        return [False] * len(instructions)
    return [bool(text.strip()) and follows(text, **arguments) for follows, arguments in instructions]


def _compare(count: int, relation: str, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _literal(word: str, edge: str = "") -> re.Pattern[str]:
    return forward(f"{edge}{re.escape(word)}{edge}", re.IGNORECASE)


def _language_of(text: str) -> str | None:
    import langdetect

    langdetect.DetectorFactory.seed = 0
    try:
        return langdetect.detect(text[:MAX_DETECTED])
    except langdetect.LangDetectException:
        return None


_WORD = forward(r"\w++")
_HYPHENATED = forward(r"[^\W_]++(?:[-'’.][^\W_]++)*+")
_ABBREVIATIONS = (
    " mr mrs ms dr prof st sr jr gen col lt sen rep inc ltd co corp vs etc fig no vol approx dept e.g i.e a.m p.m "
    "u.s u.k ph.d jan feb aug sept oct nov dec "
)


def _count_sentences(text: str) -> int:
    """Count the words that end a sentence, and a rest without an end.

    A word ends a sentence with ! or ?. With a full stop it does so too, except for abbreviations, initials and words
    before a small letter. Quotes, brackets and asterisks may follow the mark. "1." before a list item is a sentence.
    """
    words, count, ends = text.split(), 0, True
    for word, after in zip(words, [*words[1:], ""], strict=False):
        stem = word.rstrip("\"')]}*_”’")
        name = stem[:-1].lstrip("\"'([{*_“‘").lower()
        short = f" {name} " in _ABBREVIATIONS or (len(name) == 1 and name.isalpha()) or after[:1].islower()
        ends = stem.endswith(("!", "?")) or (stem.endswith(".") and not short)
        count += ends
    return count + (not ends)


def _has_paragraphs(text: str, num_paragraphs: int) -> bool:
    parts = [part.strip() for part in text.split("***")]
    return all(parts[1:-1]) and sum(map(bool, parts)) == num_paragraphs


_FENCE = forward(r"^```(?:json|Json|JSON)?")
_WORD_END = forward(r"[.,?!'\"]")


def _has_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    if len(paragraphs) != num_paragraphs or nth_paragraph > num_paragraphs:
        return False
    word = paragraphs[nth_paragraph - 1].split(maxsplit=1)[0].lstrip("'").lstrip('"')
    return _WORD_END.split(word, maxsplit=1)[0].lower() == first_word.lower()


def _has_placeholders(text: str, num_placeholders: int) -> bool:
    count = 0
    for line in text.split("\n"):
        start = line.find("[")
        while start >= 0 and (end := line.find("]", start)) >= 0:
            count += 1
            start = line.find("[", end)
    return count >= num_placeholders


def _has_postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    pattern = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker, re.escape(marker.lower()))
    return forward(pattern).search(text.lower()) is not None


_BULLET = forward(r"^[^\S\n]*+(?:-|\*(?!\*))", re.MULTILINE)
_HIGHLIGHT = forward(r"\*([^\n*]*+)\*")
_BOLD = forward(r"\*\*([^\n*]*+)\*\*")


def _is_json(text: str) -> bool:
    text = _FENCE.sub("", text.strip(), count=1)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str) -> bool:
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def _is_two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


# The parameters after `text` are the arguments of the instruction.
INSTRUCTIONS: dict[str, Callable[..., bool]] = {
    "keywords:existence": lambda text, keywords: all(_literal(word).search(text) for word in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation:
        _compare(len(_literal(keyword.strip()).findall(text)), relation, frequency),
    "keywords:forbidden_words": lambda text, forbidden_words:
        not any(_literal(word, r"\b").search(text) for word in forbidden_words),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation:
        _compare(text.lower().count(letter.lower()), let_relation, let_frequency),
    "language:response_language": lambda text, language: _language_of(text) == language,
    "length_constraints:number_sentences": lambda text, num_sentences, relation:
        _compare(_count_sentences(text), relation, num_sentences),
    "length_constraints:number_paragraphs": _has_paragraphs,
    "length_constraints:number_words": lambda text, num_words, relation:
        _compare(len(_WORD.findall(text)), relation, num_words),
    "length_constraints:nth_paragraph_first_word": _has_first_word,
    "detectable_content:number_placeholders": _has_placeholders,
    "detectable_content:postscript": _has_postscript,
    "detectable_format:number_bullet_lists": lambda text, num_bullets:
        len(_BULLET.findall(text)) == num_bullets,
    "detectable_format:constrained_response": lambda text:
        any(f"My answer is {choice}." in text for choice in ("yes", "no", "maybe")),
    "detectable_format:number_highlighted_sections": lambda text, num_highlights:
        sum(bool(inner.strip()) for inner in _HIGHLIGHT.findall(text) + _BOLD.findall(text)) >= num_highlights,
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections:
        len(forward(rf"{re.escape(section_spliter.strip())}\s?\d++").findall(text)) >= num_sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": _has_title,
    "combination:two_responses": _is_two_responses,
    "combination:repeat_prompt": lambda text, prompt_to_repeat:
        text.strip().lower().startswith(prompt_to_repeat.strip().lower()),
    "startend:end_checker": lambda text, end_phrase:
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower()),
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation:
        _compare(sum(word.isupper() for word in _HYPHENATED.findall(text)), capital_relation, capital_frequency),
    "change_case:english_capital": lambda text: text.isupper() and _language_of(text) == "en",
    "change_case:english_lowercase": lambda text: text.islower() and _language_of(text) == "en",
    "punctuation:no_comma": lambda text: "," not in text,
    "startend:quotation": lambda text: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
}  # fmt: skip
ARGUMENTS = {name: [*inspect.signature(follows).parameters][1:] for name, follows in INSTRUCTIONS.items()}
KIND = Kind(judge_ifeval, check=check_ifeval)
