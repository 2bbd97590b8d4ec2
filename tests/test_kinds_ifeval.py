r"""kinds/ifeval.py: each of the 25 instructions followed and not followed, and hostile text.

Where ifeval differs from google-research's instruction_following_eval on purpose:

    missing or unknown arguments    an error at load; there, missing ones are drawn at random
    keywords, markers, splitters    taken literally; there they are regular expressions
    language not detectable         not followed; there it counts as followed ("!!!" would be any language)
    keywords:letter_frequency       any character, as the prompts ask (#, !); there, one that is no letter is redrawn
    number_words                    \w+, as there up to nltk 3.9
    number_sentences                white space, marks and a list of abbreviations, where punkt has a trained table
    capital_word_frequency          words of letters and digits, joined by - ' or . : DON'T is one word here
    nth_paragraph_first_word        the nth of the paragraphs that are not empty; there these are counted, but the nth
                                    is taken from all of them: "a", two empty lines, "so b" has no second paragraph
    length                          beyond a million characters nothing is followed
"""

import pytest
from judging import costs_at_most, instruction, needs

from kinds import ifeval as module
from kinds.ifeval import INSTRUCTIONS, check_ifeval, follow_instructions, instructions_of
from verify import verify

FOLLOWED = [
    ("keywords:existence", {"keywords": ["apple", "Pear"]}, "An APPLE and a pearl.", "An apple."),
    ("keywords:existence", {"keywords": ["c++"]}, "I like C++.", "I like cc."),
    ("keywords:frequency", {"keyword": "ha", "frequency": 3, "relation": "at least"}, "ha HA haha", "ha ha"),
    ("keywords:frequency", {"keyword": "ha", "frequency": 2, "relation": "less than"}, "ha", "haha"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "concatenate", "A Cat."),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": "at least"}, "eE", "e"),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"},
     "One two. One! Two?", "One. Two"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", "a\n***\n***\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "it's me", "it is"),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
     'a\n\n"So, b', "a\n\nb so"),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "so"},
     "a\n\n \n\nso b\n\nc", "a\n\n \n\nb\n\nso c"),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
     "a\n\n\n\nso b", "\n\nso a\n\nb"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a] [b\n]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. me", "PS me"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S me", "P.S. me"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n  - b", "* a\n** b"),
    ("detectable_format:constrained_response", {}, "Well: My answer is yes.", "My answer is Yes."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", "* * and *a"),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     "Section 1\na\nSection 2", "Section 1 SECTION 2"),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{'a': 1}"),
    ("detectable_format:title", {}, "<<a title>>\nb", "<< >>\n<<a"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say Hi."}, "  say hi. Hi!", "Hi! Say hi."),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So. "the end."', "The end. Bye"),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     "DON'T PANIC", "PANIC now"),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
    ("startend:quotation", {}, ' "a" ', '"a'),
]  # fmt: skip
IN_LANGUAGES = [
    ("language:response_language", {"language": "de"},
     "Das ist ein ganz gewöhnlicher deutscher Satz.", "This is plain English text."),
    ("language:response_language", {"language": "en"}, "This is plain English text, and more of it.", "!!! 123"),
    ("change_case:english_capital", {},
     "THIS IS ALL WRITTEN IN CAPITAL LETTERS.", "This is not all in capital letters."),
    ("change_case:english_lowercase", {},
     "this is all written in small letters.", "das ist alles klein geschrieben, auf deutsch."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs", "good", "bad"), FOLLOWED)
def test_instruction(name, kwargs, good, bad):
    """Makes impossible: an instruction that is followed by what it forbids, or not by what it asks for."""
    assert verify("ifeval", good, instruction(name, kwargs)).reason == "correct"
    assert verify("ifeval", bad, instruction(name, kwargs)).reason == "wrong"
    # Public data sets give every argument a place, null where it has none, and some keep numbers as floats then.
    given = {key: None for names in module.ARGUMENTS.values() for key in names}
    given |= {key: float(value) if isinstance(value, int) else value for key, value in kwargs.items()}
    check_ifeval(instruction(name, given))
    [(_, taken)] = instructions_of(instruction(name, given))
    assert taken == kwargs and all(type(taken[key]) is type(kwargs[key]) for key in kwargs)


@needs("langdetect")
@pytest.mark.parametrize(("name", "kwargs", "good", "bad"), IN_LANGUAGES)
def test_instruction_about_language(name, kwargs, good, bad):
    """Makes impossible: a language that changes from call to call, or that symbols without one count as."""
    for _ in range(3):
        assert verify("ifeval", good, instruction(name, kwargs)).reason == "correct"
        assert verify("ifeval", bad, instruction(name, kwargs)).reason == "wrong"


def test_every_instruction_is_tested():
    """Makes impossible: one of the 25 that nothing here ever runs."""
    assert {name for name, *_ in FOLLOWED + IN_LANGUAGES} == set(INSTRUCTIONS) and len(INSTRUCTIONS) == 25


def test_ifeval_reward_is_the_mean_over_instructions():
    """Makes impossible: all-or-nothing where the recipe's reward is the share, or thinking that is judged."""
    reference = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, None]}
    assert verify("ifeval", "a, b", reference) == (0.0, False, "wrong")
    assert verify("ifeval", "a b", reference) == (0.5, False, "partial")
    assert verify("ifeval", '"a b"', reference) == (1.0, True, "correct")
    assert verify("ifeval", '<think>a, b</think>\n\n"a b"', reference) == (1.0, True, "correct")
    assert verify("ifeval", "<think>a b</think>\n ", reference) == (0.0, False, "no_answer")


BROKEN = [
    {}, {"instruction_id_list": [], "kwargs": []}, {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []},
    instruction("punctuation:no_commas", {}), instruction("punctuation:no_comma", {"keyword": "a"}),
    instruction("punctuation:no_comma", []), instruction("keywords:existence", {"keywords": "apple"}),
    instruction("keywords:frequency", {"keyword": "a"}), instruction("keywords:existence", {"keywords": []}),
    instruction("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "at most"}),
    instruction("keywords:frequency", {"keyword": "a", "frequency": -1, "relation": "at least"}),
    instruction("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}),
    instruction("length_constraints:nth_paragraph_first_word",
                {"num_paragraphs": 2, "nth_paragraph": 0, "first_word": "a"}),
]  # fmt: skip


@pytest.mark.parametrize("reference", BROKEN)
def test_broken_ifeval_reference(reference):
    """Makes impossible: a missing argument filled in, which would judge a response by an instruction it never got."""
    with pytest.raises(ValueError):
        verify("ifeval", "a", reference)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two.", 2), ("One", 1), ("Mr. Smith met Dr. No.", 1), ("Wait... what?", 1), ("It is 3.5 cm. Yes!", 2),
        ('He said "Go." She went.', 2), ("At 5 p.m. we left.", 1), ("J. R. R. Tolkien wrote.", 1), ("What?! No!", 2),
        ("See www.a.com now. Bye", 2), ("1. One.\n2. Two.", 4), ("*One. Two.*", 2), ("a\n\nb", 1),
    ],
)  # fmt: skip
def test_sentences(text, count):
    """Makes impossible: abbreviations, initials, decimals and ellipses counted as the ends of sentences."""
    assert module._count_sentences(text) == count


HOSTILE = [
    "[" * 300_000, "<<" * 150_000, "*" * 300_000, "* \n" * 100_000, " . " * 100_000, "p." * 150_000,
    "Section" * 40_000, "\x00" * 10_000_000, "***" * 100_000, "{" * 300_000, "-" * 300_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_ifeval_is_linear(text):
    """Makes impossible: a pattern that takes the square of the response's length, in the trainer's own process."""
    golds = [instructions_of(instruction(name, kwargs)) for name, kwargs, *_ in FOLLOWED]
    # Turns for a character; the most is 23.
    assert costs_at_most(150e-6 * len(text), lambda: [follow_instructions(text, gold) for gold in golds])
