"""Kind "ifeval": the share of its instructions that a response follows, 25 kinds of them. (verify.py, section 4.2.1)

INSTRUCTIONS, at the end, is the table: an instruction's id, the function that says whether a text follows it, its
arguments. The rule is IFEval's strict one: the whole response after its thinking counts.

The source: google-research's instruction_following_eval and the paper IFEval; tests/test_kinds_ifeval.py lists where
that decides otherwise, and why. The functions run in the trainer's process: they use string methods, and patterns that
cannot backtrack.
"""

import itertools
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


Instruction = tuple[Callable[..., bool], dict[str, Any]]


def check_ifeval(reference: Any) -> list[Instruction]:
    """Return the functions and their arguments; ValueError unless every id is in INSTRUCTIONS and has its arguments.

    `kwargs` holds an object per id; arguments that are null count as missing, as in the public data sets.
    """
    if not isinstance(reference, dict) or reference.keys() != {"instruction_id_list", "kwargs"}:
        raise ValueError(
            f'an ifeval reference is {{"instruction_id_list": [...], "kwargs": [...]}}, got {shown(reference)}'
        )
    ids, kwargs = reference["instruction_id_list"], reference["kwargs"]
    if not isinstance(ids, list) or not isinstance(kwargs, list) or not 1 <= len(ids) == len(kwargs):
        raise ValueError(
            "ifeval needs as many `kwargs` as ids in `instruction_id_list`, as two lists, and at least one"
        )
    gold = []
    for name, arguments in zip(ids, kwargs, strict=True):
        if not isinstance(name, str) or name not in INSTRUCTIONS:
            raise ValueError(f"unknown instruction {shown(name)}: use one of {', '.join(INSTRUCTIONS)}")
        if not isinstance(arguments, dict | None):
            raise ValueError(f"the kwargs of {name} are an object, got {shown(arguments)}")
        # Tables with empty cells keep whole numbers as floats.
        arguments = {key: int(value) if isinstance(value, float) and value.is_integer() else value
                     for key, value in (arguments or {}).items() if value is not None}  # fmt: skip
        follows, *expected = INSTRUCTIONS[name]
        if arguments.keys() != set(expected):
            wanted = ", ".join(expected) or "no arguments"
            raise ValueError(f"{name} takes {wanted}, got {shown(arguments)}: missing ones are not filled in")
        for key, value in arguments.items():
            form, has_form = _ARGUMENT_FORMS[key]
            if not has_form(value):
                raise ValueError(f"`{key}` of {name} must be {form}, got {shown(value)}")
        if follows in (_is_language, _is_capital, _is_lowercase):
            _check_langdetect(arguments.get("language", "en"))
        gold.append((follows, arguments))
    return gold


def judge_ifeval(answer: str, reference: dict[str, Any]) -> float:
    """Return the share of the instructions that the answer follows."""
    followed = follow_instructions(answer, check_ifeval(reference))
    return sum(followed) / len(followed)


def follow_instructions(text: str, instructions: list[Instruction]) -> list[bool]:
    """Return whether the text follows each instruction."""
    if len(text) > MAX_FOLLOWED:
        return [False] * len(instructions)
    return [bool(text.strip()) and follows(text, **arguments) for follows, arguments in instructions]


def _compare(count: int, relation: str, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _literal(word: str, edge: str = "") -> re.Pattern[str]:
    return forward(f"{edge}{re.escape(word)}{edge}", re.IGNORECASE)


def _has_keywords(text: str, keywords: list[str]) -> bool:
    return all(_literal(word).search(text) for word in keywords)


def _has_keyword_often(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _compare(len(_literal(keyword.strip()).findall(text)), relation, frequency)


def _has_no_words(text: str, forbidden_words: list[str]) -> bool:
    return not any(_literal(word, r"\b").search(text) for word in forbidden_words)


def _has_letter_often(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compare(text.lower().count(letter.lower()), let_relation, let_frequency)


def _language_of(text: str) -> str | None:
    import langdetect

    langdetect.DetectorFactory.seed = 0
    try:
        return langdetect.detect(text[:MAX_DETECTED])
    except langdetect.LangDetectException:
        return None


def _check_langdetect(language: str) -> None:
    try:
        from langdetect import detector_factory
    except ImportError:
        raise ValueError(
            "instructions about the language need the package langdetect: pip install langdetect"
        ) from None
    detector_factory.init_factory()
    known = detector_factory._factory.get_lang_list()
    if language not in known:
        raise ValueError(f"`language` must be one of {', '.join(sorted(known))}, got {shown(language)}")


def _is_language(text: str, language: str) -> bool:
    return _language_of(text) == language


def _is_capital(text: str) -> bool:
    return text.isupper() and _language_of(text) == "en"


def _is_lowercase(text: str) -> bool:
    return text.islower() and _language_of(text) == "en"


# From punkt's English tables, without the words that only newspapers use. Some letters are in the tables too.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        "mr mrs ms dr prof st sr jr gen col lt sen rep reps adm maj messrs inc ltd co cos corp bros ave vs ok yr ft mg "
        "ct jan feb aug sep sept oct nov dec tues wed fri ala ariz calif colo conn fla ga ill kan ky mich minn nev "
        "okla ore pa tenn va vt wash wis ph.d a.m p.m a.d u.s u.k u.n u.s.a d.c l.a n.y n.j n.c "
        "c d e f g h j k l m n p r s t v w",
    )
)
_STARTERS = frozenset(
    re.findall(
        r"\S+",
        "the he it they i this these there if but however so since when while in both some many most even despite "
        "although though under among according yet nor thus moreover meanwhile nevertheless nonetheless instead indeed "
        "similarly here please your her whether therefore finally furthermore unfortunately thank yes",
    )
)
_ASIDE = r"""?!)";}\]*:@'({\["""
_BETWEEN_ASIDES = forward(rf"[{_ASIDE}]")
_NO_LETTER = forward(r"\W")


def _count_sentences(text: str) -> int:
    """Sentences, in the way of nltk's punkt, without its trained table of spellings. See the tests for the difference.

    A sentence ends with the last . ! or ? of a word that white space or a mark like * follows; what is left of the word
    begins the next one, unless it only closes quotes or brackets. "1." at the start of a list item is a sentence.
    """
    words, count, rest = text.split(), 0, ""
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        end = _last_end(word)
        rest = word[end:]
        if end and _ends_sentence(word[:end], rest or after):
            count, rest = count + 1, rest.lstrip("\"')]}")
    return count + bool(rest)


def _last_end(word: str) -> int:
    """Return the end of the last . ! or ? that ends the word or precedes one of _ASIDE, else 0."""
    end = len(word)
    while end and not (word[end - 1] in ".!?" and (end == len(word) or _BETWEEN_ASIDES.match(word, end))):
        end -= 1
    return end


def _ends_sentence(word: str, after: str) -> bool:
    """Does the last mark of a word end a sentence, given the word after it?"""
    if word[-1] != ".":
        return True
    stem, small, capital = _BETWEEN_ASIDES.split(word[:-1])[-1].lower(), after[:1].islower(), after[:1].isupper()
    if stem.endswith(".") or stem.rpartition("-")[2] in _ABBREVIATIONS:
        return capital and len(stem) > 1 and _NO_LETTER.split(after, maxsplit=1)[0].lower() in _STARTERS
    return not (small and (stem.isdigit() or (len(stem) == 1 and stem.isalpha())))


def _has_sentences(text: str, relation: str, num_sentences: int) -> bool:
    return _compare(_count_sentences(text), relation, num_sentences)


def _has_paragraphs(text: str, num_paragraphs: int) -> bool:
    parts = [part.strip() for part in text.split("***")]
    if not all(parts[1:-1]):
        return False
    return sum(map(bool, parts)) == num_paragraphs


_WORD = forward(r"\w++")


def _has_words(text: str, relation: str, num_words: int) -> bool:
    return _compare(sum(1 for _ in _WORD.finditer(text)), relation, num_words)


_WORD_END = forward(r"[.,?!'\"]")


def _has_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = text.split("\n\n")
    filled = sum(1 for paragraph in paragraphs if paragraph.strip())
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1) if nth_paragraph <= filled else []
    if not words:
        return False
    first = _WORD_END.split(words[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return filled == num_paragraphs and first.lower() == first_word.lower()


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


def _has_bullets(text: str, num_bullets: int) -> bool:
    count, taken = 0, False
    for line in [line.lstrip() for line in text.split("\n")]:
        if not taken:
            count += line.startswith("*") and line[1:2] != "*"
        count += line.startswith("-")
        # A lone asterisk is the mark of the line below it.
        taken = not taken and line == "*"
    return count - taken == num_bullets


def _has_choice(text: str) -> bool:
    return any(f"My answer is {choice}." in text for choice in ("yes", "no", "maybe"))


_HIGHLIGHT = forward(r"\*([^\n*]*+)\*")
_BOLD = forward(r"\*\*([^\n*]*+)\*\*")


def _has_highlights(text: str, num_highlights: int) -> bool:
    found = _HIGHLIGHT.findall(text) + _BOLD.findall(text)
    return sum(1 for inner in found if inner.strip()) >= num_highlights


def _has_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    found = forward(rf"{re.escape(section_spliter.strip())}\s?\d++").findall(text)
    return len(found) >= num_sections


def _is_json(text: str) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
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


def _repeats_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _ends_with(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


_BETWEEN_WORDS = forward(
    r"[\s;@#$%&?!()\[\]{}<>\"*–—“”‘’„«»`]++|\.{2,}+|--++|[:,](?![0-9])|''"
    r"|(?i:(?<=\w)(?='(?:s|m|d|ll|re|ve)\b)|(?<=\w)(?=n't\b)"
    r"|(?<=\bcan)(?=not\b)|(?<=\b(?:gon|wan))(?=na\b)|(?<=\bgot)(?=ta\b)|(?<=\b(?:gim|lem))(?=me\b))"
)


def _has_capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """Words as nltk's word_tokenize cuts them: DON'T and CANNOT are two, COVID-19 one, A*B two."""
    return _compare(sum(word.isupper() for word in _BETWEEN_WORDS.split(text)), capital_relation, capital_frequency)


def _has_no_comma(text: str) -> bool:
    return "," not in text


def _is_quoted(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


# id -> (is it followed?, its arguments)
INSTRUCTIONS: dict[str, tuple] = {
    "keywords:existence": (_has_keywords, "keywords"),
    "keywords:frequency": (_has_keyword_often, "keyword", "frequency", "relation"),
    "keywords:forbidden_words": (_has_no_words, "forbidden_words"),
    "keywords:letter_frequency": (_has_letter_often, "letter", "let_frequency", "let_relation"),
    "language:response_language": (_is_language, "language"),
    "length_constraints:number_sentences": (_has_sentences, "num_sentences", "relation"),
    "length_constraints:number_paragraphs": (_has_paragraphs, "num_paragraphs"),
    "length_constraints:number_words": (_has_words, "num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": (_has_first_word, "num_paragraphs", "nth_paragraph", "first_word"),
    "detectable_content:number_placeholders": (_has_placeholders, "num_placeholders"),
    "detectable_content:postscript": (_has_postscript, "postscript_marker"),
    "detectable_format:number_bullet_lists": (_has_bullets, "num_bullets"),
    "detectable_format:constrained_response": (_has_choice,),
    "detectable_format:number_highlighted_sections": (_has_highlights, "num_highlights"),
    "detectable_format:multiple_sections": (_has_sections, "section_spliter", "num_sections"),
    "detectable_format:json_format": (_is_json,),
    "detectable_format:title": (_has_title,),
    "combination:two_responses": (_is_two_responses,),
    "combination:repeat_prompt": (_repeats_prompt, "prompt_to_repeat"),
    "startend:end_checker": (_ends_with, "end_phrase"),
    "change_case:capital_word_frequency": (_has_capital_words, "capital_frequency", "capital_relation"),
    "change_case:english_capital": (_is_capital,),
    "change_case:english_lowercase": (_is_lowercase,),
    "punctuation:no_comma": (_has_no_comma,),
    "startend:quotation": (_is_quoted,),
}


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word.strip() for word in value)


_COUNT = ("a whole number from 0 on", lambda value: type(value) is int and value >= 0)
_PLACE = ("a whole number from 1 on", lambda value: type(value) is int and value >= 1)
_TEXT = ("text", lambda value: isinstance(value, str) and bool(value.strip()))
_RELATION = ('"less than" or "at least"', lambda value: value in ("less than", "at least"))
_WORDS = ("a list of words", _is_words)
_ARGUMENT_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(["frequency", "let_frequency", "capital_frequency", "num_sentences", "num_paragraphs"], _COUNT),
    **dict.fromkeys(["num_words", "num_placeholders", "num_bullets", "num_highlights", "num_sections"], _COUNT),
    **dict.fromkeys(["keyword", "language", "first_word", "postscript_marker", "section_spliter"], _TEXT),
    **dict.fromkeys(["prompt_to_repeat", "end_phrase"], _TEXT),
    **dict.fromkeys(["relation", "let_relation", "capital_relation"], _RELATION),
    **dict.fromkeys(["keywords", "forbidden_words"], _WORDS),
    "letter": ("one character", lambda value: isinstance(value, str) and len(value.strip()) == 1),
    "nth_paragraph": _PLACE,
}


KIND = Kind(judge_ifeval, check=check_ifeval)
