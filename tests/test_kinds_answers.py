r"""kinds/answers/: its door, tables, words, numbers and units. The tables of answers are in test_kinds_maths.py."""

import re

from kinds import answers
from kinds.answers import algebra, grammar, units, unknowns
from kinds.answers.lexer import tokens
from kinds.answers.nouns import changes_value
from kinds.answers.tables import BRACKETS, FUNCTIONS, INEQUALITIES, ORDINALS, OTHER, PREFIXES, RELATIONS, SI
from kinds.answers.tree import NO_NAME
from kinds.answers.units import unit_of


def test_the_examples_of_the_door():
    """Makes impossible: an example in the docstring of kinds/answers/ that the code answers differently."""
    examples = re.findall(r"^    (\w+\(.*?\))  +(True|False|None|ALGEBRA)\b", answers.__doc__, re.M)
    assert len(examples) > 9
    for call, expected in examples:
        assert eval(call, vars(answers)) == eval(expected, vars(answers)), call
    assert answers.read("--5").tree is None and answers.read(r"x = 5 \text{ cm}").tree.kind == "chain"


def test_the_tables_agree():
    """Makes impossible: a function or bracket that is read and has no value, an inequality without an interval."""
    values = {*algebra._EXACT, *algebra._REAL}
    assert {*FUNCTIONS} - {"lg"} <= values  # \lg is read as \log
    assert {function for _, function in BRACKETS.values()} - {""} <= values
    for relation in INEQUALITIES:
        assert unknowns.interval(answers.read(f"x {relation} 5").tree)[0] != NO_NAME, relation
    assert not units.SYMBOLS.keys() & {*ORDINALS}  # 5 st would be refused
    assert {*INEQUALITIES} < RELATIONS.keys() and {*RELATIONS.values()} - {""} <= RELATIONS.keys()


def test_what_was_read_is_bounded():
    """Makes impossible: gigabytes of trees of long answers, or a short answer that is read as a long one."""
    assert answers.read("⅓" * 80).tree and answers.read("⅓" * 999) is None
    assert grammar._read.cache_info().maxsize * answers.MAX_LENGTH <= 100_000
    remembered = grammar._read.cache_info().currsize
    assert answers.read("9" * 1_000_000) is None and grammar._read.cache_info().currsize == remembered


def test_units():
    """Makes impossible: one unit read as two, or a variable, or a word that changes a number, read as a unit."""
    for text, same in (("m/s^2", "m s^{-2}"), ("\\text{km}/\\text{h}", "km per h"), ("square meters", "meter^2"),
                       ("J/(mol K)", "J mol^{-1} K^{-1}"), ("\\mu m", "μm"), ("dollars", "dollar")):  # fmt: skip
        assert unit_of(tokens(text)) is not None and unit_of(tokens(text)) == unit_of(tokens(same))
    for text in ("x", "ab", "sin x", "x^2", "", "+m", "=cm", "dozen", "more or less", "cm^2^2", "m//s", "flurbs"):
        assert unit_of(tokens(text)) is None, text


def test_no_two_units_have_one_name():
    """Makes impossible: a new unit whose name is another unit's: with d for debye, cd would be a centidebye."""
    written = [prefix + symbol for symbol in SI for prefix in PREFIXES]
    assert len({*written}) == len(written)
    assert {*written} & OTHER.keys() == {"km", "kΩ", "MΩ", "μm", "dB"}  # other names of four units. No unit is a dB
    named = [(name, symbol) for symbol, names in [*OTHER.items(), *SI.items()] for name in (symbol, *names.split())]
    assert [name for name, symbol in named if units.SYMBOLS[name] != symbol] == []
    assert len({name for name, _ in named}) == len(named)


def test_words_that_change_a_value():
    """Makes impossible: a word without an entry, since another entry covers it, that only names what is counted."""
    covered = """circa triple demi millions umpteen half-dozen cent-mille tusind hundred promille hundertstel
        millionstel persent cientos тысяч четверть بالمئة 미만 大约 パーセント non-zero eighteen tenfold"""
    assert [word for word in covered.split() if not changes_value(word)] == []
    assert [word for word in ("eggs", "яблок", "苹果", "cups", "tea-cups") if changes_value(word)] == []
