"""kinds/logic.py: Reasoning Gym's scorers, and answers that would score themselves."""

import math
import re
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from judging import REFEREES, costs_at_most, gym, needs

from kinds.logic import EVALUATED, FORMS, REFUSED, SAME_COUNT, judge_logic, score
from trainer.problems import broken_problems
from trainer.public_data import gym_problem
from verify import verify, verify_batch


@needs("reasoning_gym")
def test_logic_through_the_workers():
    """Makes impossible: an answer taken from outside of its tags, or a scorer that evaluates it in the trainer; half a
    solution paid in full, or not at all.
    """
    [chain], [word] = gym("chain_sum", 1), gym("spell_backward", 1)
    cases = [
        ("chain_sum", f"<answer> {chain['answer']} </answer>", "correct"),
        ("chain_sum", chain["answer"], "no_answer"),
        ("chain_sum", "<answer></answer>", "unparsed"),
        ("chain_sum", f"<answer>{chain['answer']}</answer></think>", "no_answer"),
        ("chain_sum", "<answer>" + "9" * 100_001 + "</answer>", "unparsed"),
        ("spell_backward", f"<answer>{word['answer']}</answer>", "correct"),
        ("spell_backward", f"<answer>{word['answer'][:-1]}?</answer>", "partial"),
    ]
    entries = {"chain_sum": chain, "spell_backward": word}
    items = [("logic", response, {"dataset": name, "entry": entries[name]}) for name, response, _ in cases]
    verdicts = verify_batch(items, workers=1, timeout_s=30.0)
    assert [verdict.reason for verdict in verdicts] == [reason for *_, reason in cases]
    assert verdicts[-2].reward == 1 and 0 < verdicts[-1].reward < 1


SELF_SCORING = [
    """__import__('os').write(3, b'{"value": [1.0, "correct"]}\\n') or __import__('os')._exit(0)""",
    "().__class__.__base__.__subclasses__()", "(exec)(input())", "sqrt('__import__(1)')", "'\\x5f\\x5fimport'",
    "ｅxec(1)", "__import__(chr(111))", "f'{exec(1)}'", "lambdify(x, x)", "2breakpoint()", "x2y(1)",
]  # fmt: skip


@pytest.mark.parametrize("dataset", EVALUATED)
def test_logic_answer_that_would_score_itself(dataset):
    """Makes impossible: an answer that is run where its score is computed, and writes down a score of its own."""
    for answer in SELF_SCORING:
        assert judge_logic(answer, {"dataset": dataset, "entry": {"answer": "1"}}) is None, answer
    # Those whose scorers only compare text are not restricted.
    assert judge_logic("exec(1)", {"dataset": "chain_sum", "entry": {"answer": "1"}}).evaluates


@needs("reasoning_gym")
def test_logic_every_scorer_that_evaluates_is_known():
    """Makes impossible: a later version of the package with a tenth scorer that evaluates answers."""
    import reasoning_gym

    folder = Path(reasoning_gym.__file__).parent
    calls = re.compile(r"(?<![\w.])(?:eval|exec)\(\s*answer|parse_expr\(\s*answer|sympify\(\s*answer")
    found = {path.stem for path in folder.rglob("*.py") if calls.search(path.read_text())}
    assert found <= set(EVALUATED), found - set(EVALUATED)


CONSTANTS = """
0  |  1  |  -1  |  2  |  3  |  24  |  0.5  |  1/2  |  1e9  |  0, 0  |  0 0  |  1 2 3  |  -  |  *  |  the  |  A  |  x
yes  |  no  |  True  |  False  |  None  |  hello  |  infeasible  |  I do not know.  |  []  |  {}  |  [[]]  |  [[0]]
""  |  ()  |  (P ∨ ¬P)
"""
AROUND = """
{}, other  |  other, {}  |  {} other  |  other {}  |  The answer is {}.  |  {} or 0  |  {}, 7  |  7, {}  |  {}, {}
{},7  |  -{}  |  !{}  |  ¬{}  |  not {}  |  {}!  |  1{}  |  {} {}  |  {}#7
"""


def cells(table):
    return [cell for row in table.strip().split("\n") for cell in row.split("  |  ")]


def equal(answer, gold):
    """The same text, or the same number: "0" and "0.0", "yes" and "Yes"."""
    try:
        return answer.lower() == gold.lower() or float(answer) == float(gold)
    except ValueError:
        return False


def right_otherwise(dataset, answer, entry):
    """An answer that differs from the entry's, and is right."""
    gold, metadata = entry["answer"].strip(), entry["metadata"]
    if dataset == "n_queens":  # a board with several solutions
        return answer in metadata["valid_answers"]
    if dataset in ("simple_integration", "intermediate_integration"):  # plus a constant
        return re.fullmatch(r"[17] ?-.*", answer)
    return equal(answer, gold)


@needs("reasoning_gym")
def test_logic_no_data_set_pays_for_anything():
    """Makes impossible: a scorer that pays a constant, or much of the reward for it, a text around the answer, the
    negated answer, a list with the answer in it, a premise, or the answer of another entry: a policy would learn that,
    and not to reason.
    """
    import reasoning_gym

    paid = []
    for name in sorted({*reasoning_gym.factory.DATASETS} - {"composite", *REFUSED}):
        entries = gym(name, 4 if REFEREES else 2)
        for entry, other in zip(entries, entries[1:] + entries[:1], strict=True):
            gold = (entry["answer"] or "").strip()
            # Entries without an answer have an example, and some of these say so in another way.
            gold = gold or str(entry["metadata"].get("example_correct_answer") or "")
            entry["answer"] = entry["answer"] and gold
            around = [form.replace("{}", gold) for form in cells(AROUND)] + [f"{gold}\nother", f"other\n{gold}"]
            lines = [line.strip() for line in entry["question"].split("\n") if len(line) < 200]
            lines = [*lines, *(line.partition(". ")[2] for line in lines)]  # a premise has a number before it
            fixed = [*cells(CONSTANTS), other["answer"] or ""]
            for answer in [*fixed, *around, *lines, entry["question"]]:
                reference = {"dataset": name, "entry": entry}
                if answer and judge_logic(answer, reference) is not None:
                    reward = score(answer, reference) or 0.0
                    correct = reward == 1 and not (entry["answer"] and right_otherwise(name, answer, entry))
                    part = 0.3 < reward < 1 and answer in fixed  # a letter of a word may be right by chance
                    part = part or (0.1 < reward < 1 and answer in around and gold in answer)
                    if correct or part:
                        paid.append((name, answer, gold, reward))
    assert paid == []


RIGHT = {
    "advanced_geometry": ["(7.765, 7.882)", "7.765, 7.882", "( 7.765,7.882 )"],
    "coin_flip": ["0.234375", "15/64", "0.2344"],
    "countdown": ["82 + 20 + 67 - 50", "(82+20)+(67-50)", "-50 + 82 + 20 + 67", "(-50 + 82) + 20 + 67"],
    "fraction_simplification": ["$244/607$", "244/607", "\\frac{244}{607}", "$\\dfrac{244}{607}$"],
    "game_of_life_halting": ["False", "false"],
    "gsm_symbolic": ["20", "20.0", "20."],
    "kakurasu": ["1 1 0 0\n0 1 0 1\n0 0 1 0\n1 0 0 0", "1100\n0101\n0010\n1000"],
    "knights_knaves": [
        "Joseph is an angel, and Zoey is an angel.", "Joseph is a angel and Zoey is a angel",
        "Zoey is an angel. Joseph is an angel.",
    ],
    "number_format": ["592641326.305", "592,641,326.305", "5.926413263049999e+08"],
    "number_sorting": ["['-87.0', '-48.0', '-26.01', '-5.19', '19.0', '81.8']", "[-87, -48, -26.01, -5.19, 19, 81.8]"],
    "polynomial_equations": ["-0.7757, 0.0, 1.9717", "1.9717,-0.7757,0"],
    "puzzle24": ["4*8 - 6 - 2", "(4)*8-(6+2)", "8*6/(4-2)"],
    "quantum_lock": ["C → A → C → A → C → A", "C -> A -> C -> A -> C -> A", "C, A, C, A, C, A", "C A C A C A"],
    "time_intervals": ["03:22:03", "3:22:03"],
    "word_sorting": ["strength, state, one, array, PUNITIVE, Again", "strength,state,one,array,PUNITIVE,Again"],
}  # fmt: skip
WRONG = {
    "advanced_geometry": ["(7.765, 7.882), (1, 2)", "(7.882, 7.765)", "x = 7.765, y = 7.882"],
    "coin_flip": ["0", "0.2", "0.23", "0.234375, 0.5", "15/64 or 1/2", "-15/64", "1/0", "1e999/1e999", "23.4375"],
    "countdown": ["82 + 20 + 67 - 50.0004", "82 + 20 + 67", "119", "82 + 20 + 67 - 50 + 0", "82 + 20 + 67 - 50, 1"],
    "fraction_simplification": ["$244/607$ or 1/2", "17080/42490", "\\frac{244}{607} \\frac{1}{2}", "-244/607"],
    "game_of_life_halting": ["True", "0", "anything", "False True", "not False", ""],
    "gsm_symbolic": ["-20", "20, 21", "20 or 21", "20 21", "x20", "2", "200"],
    "kakurasu": ["1 1 0 0\n0 1 0 1\n0 0 1 0\n1 0 0 0 or not", "x"],
    "knights_knaves": [
        "Joseph is an angel, and Zoey is a devil, and Zoey is an angel.",
        "Joseph is not an angel, and Zoey is an angel.", "I think that Joseph is an angel, and Zoey is an angel.",
    ],
    "number_format": ["592641326.305, 1", "5926413,26.305", "592641313"],
    "number_sorting": ["[-87, -48, -26, -5, 19, 82]", "[0, 0, 0, 0, 0, 0]"],
    "polynomial_equations": ["-0.7757, 0.0, 1.9717, x", "none", "", "0"],
    "puzzle24": ["4*7-10/3", "6*4", "6*4*1*1", "4*8-6-2+0", "8*6/2", "4*8 - 6 - 2.5", "24"],
    "quantum_lock": ["C → A → C → A → C → A or B", "press C A C A C A", "C"],
    "time_intervals": ["03:22:03 or 1", "03:22:03, 04:00:00", "-03:22:03"],
    "word_sorting": ["strength, state, one, array, PUNITIVE, Again, more", "Again, PUNITIVE, array, one, strength"],
}  # fmt: skip


@needs("reasoning_gym")
@pytest.mark.parametrize("dataset", RIGHT)
def test_logic_checks_of_our_own(dataset):
    """Makes impossible: a right answer in another form refused by a stricter check; a wrong one paid."""
    [entry] = gym(dataset, 1)
    reference = {"dataset": dataset, "entry": entry}
    if dataset == "advanced_geometry":
        assert entry["answer"] == RIGHT[dataset][0]
    for answers, right in ((RIGHT[dataset], True), (WRONG[dataset], False)):
        for answer in answers:
            job = judge_logic(answer, reference)
            assert (job is not None and score(answer, reference) == 1) == right, answer


CRAFTED = {  # an entry whose scorer has a gap that no generated entry shows: its answer, its metadata
    "countdown": (None, {"numbers": [1, 98, 99, 999], "target": 999}),
    "figlet_font": ("abcdefghij", {}),
    "game_of_life": ("[[1,0],[0,1]]", {}),
    "rush_hour": (None, {"board_config": "o" * 12 + "oAAooo" + "o" * 18}),
}


@needs("reasoning_gym")
@pytest.mark.parametrize(
    ("dataset", "right", "wrong"),
    [
        ("countdown", "999 * (99 - 98) * 1", "999 + 1/98/99"), ("countdown", "999*(99-98)/1", "999*(99-98)//1"),
        ("figlet_font", "ABCDEFGHIJ", "abcdefghijk"), ("game_of_life", "[[1, 0], [0, 1]]", "[[1,0],[0,1],[1,1]]"),
        ("rush_hour", "A+3", "A+3 and then B+1"), ("rush_hour", "A+3", "Move A+3"),
    ],
)  # fmt: skip
def test_logic_gaps_that_no_generated_entry_shows(dataset, right, wrong):
    """Makes impossible: a value near the target, or an answer with more behind it, paid on a rare entry."""
    gold, metadata = CRAFTED[dataset]
    reference = {"dataset": dataset, "entry": {"question": "", "answer": gold, "metadata": metadata}}
    assert judge_logic(right, reference) is not None and score(right, reference) == 1
    assert judge_logic(wrong, reference) is None or score(wrong, reference) == 0


PIECES = ["1", "1,", "1 ", "A=1,", "x is a y, and ", "Move disk 1 from Peg 1 to Peg 1\n", "U ", "A+1 ", " ", "A → ",
          "1:11:", "\\frac{1}", "LR", "1.", "(", "x", "1e1", ",", "is a "]  # fmt: skip


def test_logic_forms_are_read_in_linear_time():
    """Makes impossible: a form that takes the square of an answer's length, in the trainer's process."""
    texts = [piece * (99_000 // len(piece)) + "?" for piece in PIECES]

    def judge(dataset):
        for text in texts:
            judge_logic(text, {"dataset": dataset, "entry": {"answer": "1"}})

    for dataset in [*FORMS, *SAME_COUNT]:  # five turns for a character; the most is one
        assert costs_at_most(5e-6 * sum(map(len, texts)), partial(judge, dataset)), dataset


def test_logic_a_polynomial_without_a_solution():
    """Makes impossible: any text that holds no number paid where the right answer is that there is none."""
    reference = {"dataset": "polynomial_equations", "entry": {"question": "", "answer": "", "metadata": {}}}
    paid = [x for x in ("", '""', "x", "none", "()", "0") if judge_logic(x, reference) is not None]
    assert paid == ["", '""', "0"]


def test_logic_a_data_set_that_no_check_can_judge_is_refused():
    """Makes impossible: a run on problems that a repeated premise solves."""
    for name in REFUSED:
        with pytest.raises(ValueError, match=name):
            verify("logic", "<answer>P</answer>", {"dataset": name, "entry": ENTRY})


ENTRY = {"question": "", "answer": "2", "metadata": {}}


@pytest.mark.parametrize(
    "reference",
    [
        {}, {"dataset": 3, "entry": ENTRY}, {"dataset": "chain_sum", "entry": {}},
        {"dataset": "chain_sum", "entry": ENTRY | {"metadata": {"source_dataset": "x"}}},
        {"dataset": "chain_sum", "entry": ENTRY | {"answer": 2}},
    ],
)  # fmt: skip
def test_broken_logic_reference(reference):
    """Makes impossible: an entry without the metadata that its scorer needs, found in the middle of a run."""
    with pytest.raises(ValueError, match="logic"):
        verify("logic", "<answer>1</answer>", reference)


@pytest.mark.parametrize("dataset", ["complex_arithmetic", "chain_sum"])
@pytest.mark.parametrize("answer", ["nan", "nan+nanj", "-NaN j", "inf-infj"])
def test_logic_no_number_is_the_answer(dataset, answer):
    """Makes impossible: NaN is right on every entry, as no comparison with it is true; a gold of "" is never solved."""
    assert judge_logic(answer, {"dataset": dataset, "entry": {"answer": "1"}}) is None
    assert judge_logic("", {"dataset": "ab", "entry": {"answer": ""}}) is not None


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.5, 1j, "1", None])
def test_logic_a_score_that_is_no_reward_is_wrong(monkeypatch, value):
    """Makes impossible: a scorer's NaN, infinity or complex number cut to a reward of 1."""
    monkeypatch.setattr("kinds.logic._scorer", lambda dataset: lambda answer, entry: value)
    assert score("x", {"dataset": "chain_sum", "entry": {"answer": "1"}}) == 0.0


@pytest.mark.parametrize("error", [FileNotFoundError, ImportError])
def test_logic_an_error_of_the_environment_is_no_verdict(monkeypatch, error):
    """Makes impossible: a data file that the worker cannot open, and every answer of the data set called unparsed."""
    monkeypatch.setattr("kinds.logic._scorer", lambda dataset: Mock(side_effect=error))
    with pytest.raises(error):
        score("x", {"dataset": "chain_sum", "entry": {"answer": "1"}})


@needs("reasoning_gym")
def test_logic_every_data_set_accepts_its_own_answers():
    """Makes impossible: data sets whose files the workers cannot read: all their answers were unparsed; an entry that
    went through JSON and is scored as another one: grids of tuples became lists.
    """
    import reasoning_gym

    problems = []
    for name in sorted(reasoning_gym.factory.DATASETS):
        try:
            problems += [gym_problem(name, entry) for entry in gym(name, 5)]
        except Exception as error:
            assert name in ("composite",), (name, error)
    assert len({problem.reference["dataset"] for problem in problems}) >= 100
    refused = {problems[at].reference["dataset"]: why for at, why in broken_problems(problems).items()}
    assert refused.keys() <= {"intermediate_integration", *REFUSED}, refused
