"""kinds/checks.py: in puzzles of moves, an impossible move is wrong. test_kinds_logic.py has the other puzzles."""

import json

import pytest
from judging import gym, needs

from kinds.logic import judge_logic, score


def paid(dataset, metadata, answer, gold=None):
    """The reward of an answer, 0 for one that no scorer may see."""
    reference = {"dataset": dataset, "entry": {"question": "", "answer": gold, "metadata": metadata}}
    return (judge_logic(answer, reference) is not None and score(answer, reference)) or 0.0


def step(*actions):
    return {f"Agent[{x}, {y}]": f"move({box}, {to})" for x, y, box, to in actions}


BOXES = {"0.5_0.5": ["box_red", "box_red"], "0.5_1.5": ["target_red", "box_blue"], "1.5_0.5": ["target_blue"],
         "1.5_1.5": ["target_red"]}  # fmt: skip
RED = [step((0.5, 0.5, "box_red", "square[0.5, 1.5]")), step((0.5, 1.5, "box_red", "target_red"))]
BLUE = [step((0.5, 1.5, "box_blue", "square[1.5, 1.5]")), step((1.5, 1.5, "box_blue", "square[1.5, 0.5]")),
        step((1.5, 0.5, "box_blue", "target_blue"))]  # fmt: skip
RED_TOO = [step((0.5, 0.5, "box_red", "square[1.5,0.5]")), step((1.5, 0.5, "box_red", "square[1.5, 1.5]")),
           step((1.5, 1.5, "box_red", "target_red"))]  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "reward"),
    [
        (RED + BLUE + RED_TOO, 1.0),
        (RED + BLUE, 2 / 3),
        ([RED[0] | BLUE[0], RED[1] | BLUE[1], BLUE[2], *RED_TOO], 1.0),  # two agents at a time
        # The scorer of the package pays these in full, or a part.
        ([*RED, RED[1], *BLUE, *RED_TOO], 0.0),  # a box that is gone already
        ([step((0.5, 0.5, "box_green", "target_green")), *RED, *BLUE, *RED_TOO], 0.0),
        ([step((9.5, 0.5, "box_red", "target_red")), *RED], 0.0),  # no such agent
        ([step((0.5, 0.5, "box_red", "square[1.5, 1.5]"))], 0.0),  # not beside it
        ([step((0.5, 0.5, "box_red", "target_red"))], 0.0),  # the target is in another square
        ([step((0.5, 1.5, "box_blue", "target_red"))], 0.0),  # of another colour
        ([RED[0] | RED[1], *BLUE, *RED_TOO], 0.0),  # two moves of one box in one step
        ([], 0.0),
    ],
)  # fmt: skip
def test_boxnet_pays_no_impossible_move(plan, reward):
    """Makes impossible: one fixed text with every move, which the package's scorer pays on every entry."""
    assert paid("boxnet", {"initial_state": BOXES}, json.dumps(plan)) == pytest.approx(reward)


def test_boxnet_one_action_of_an_agent_in_a_step():
    """Makes impossible: the last of an agent's two actions read, and the other one ignored."""
    first = json.dumps(RED[0])
    twice = first.replace("{", '{"Agent[0.5, 0.5]": "move(box_green, target_green)", ')
    assert paid("boxnet", {"initial_state": BOXES}, f"[{first}]") == 0
    assert paid("boxnet", {"initial_state": BOXES}, f"[{twice}, {json.dumps(RED[1])}]") == 0
    assert paid("boxnet", {"initial_state": BOXES}, f"[{first}, {json.dumps(RED[1])}]") == pytest.approx(1 / 3)


# Car A in the third row, then a column of C (B in the question), which must go down by two, and an x.
BOARD = "oooooo" "oooCoo" "AAoCoo" "oooooo" "oooooo" "ooooox"  # fmt: skip


@pytest.mark.parametrize(
    ("moves", "right"),
    [
        ("B+2 A+4", True), ("B+1 B+1 A+2 A+2", True), ("B+3 B-1 A+1 A-1 A+4", True),
        ("B+2 B-2 B+2 A+4", True), ("B-1 B+3 A+4", True),
        ("A+4", False), ("A+9 B+2 A+4", False), ("B+9 A+4", False), ("B+2 A+5", False), ("A-1 B+2 A+4", False),
        ("Q+1 B+2 A+4", False), ("B+2 A+3", False), ("C+2 A+4", False),
    ],
)  # fmt: skip
def test_rush_hour_pays_no_impossible_move(moves, right):
    """Makes impossible: a random walk, of which the package's scorer skips what is impossible."""
    assert paid("rush_hour", {"board_config": BOARD}, moves) == right


ROOM = "+ + + + + + +\n+ * @ - X - +\n+ - @ - - - +\n+ - X - - - +\n+ + + + + + +\n"


@pytest.mark.parametrize(
    ("moves", "right"),
    [
        ("RRLD", True), ("RRLDU", True), ("URRLD", False), ("RRLLLD", False), ("RRLDD", False), ("RRRLLD", False),
        ("RR", False),
    ],
)  # fmt: skip
def test_sokoban_pays_no_impossible_move(moves, right):
    """Makes impossible: a random walk against walls; a push of a box into a wall."""
    assert paid("sokoban", {"gamestr": ROOM}, moves) == right


LOCK = {
    "initial_value": 0, "initial_state": "red", "target_value": 6, "solution_path": ["A", "B", "A", "A"],
    "buttons": [
        {"name": "A", "type": "add", "value": 2, "active_state": "any"},
        {"name": "B", "type": "multiply", "value": 1, "active_state": "green"},
        {"name": "C", "type": "subtract", "value": 2, "active_state": "red"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("presses", "reward"),
    [
        ("A → B → A → A", 1.0), ("A → A → A → B", 1.0), ("C → A → A → A → A → B", 0.5),
        ("A → C → A → A", 0.0), ("B → A → A → A", 0.0), ("A → A → B → A", 0.0), ("A → A", 0.0),
    ],
)  # fmt: skip
def test_quantum_lock_presses_no_button_that_is_off(presses, reward):
    """Makes impossible: a list with every button, of which the package's scorer skips those that are off."""
    assert paid("quantum_lock", LOCK, presses) == reward


@needs("reasoning_gym")
@pytest.mark.parametrize(
    ("dataset", "answers", "reward"),
    [
        ("prime_factorization", ["{number}", "1 × {number}", "-1 × -{number}"], 0.0),
        ("rubiks_cube", ["U U'", "X", "X Y Z", "{gold} U2'", "{gold} u", "{gold} U0"], 0.0),
        ("rubiks_cube", ["{gold}", "{gold} U4", "{gold} Uw Uw'"], 1.0),
        ("word_ladder", ["{gold}"], 1.0),
    ],
)
def test_answers_that_need_no_reasoning_earn_nothing(dataset, answers, reward):
    """Makes impossible: a part of the reward for the number itself, or for a cube as it was."""
    for entry in gym(dataset, 4):
        gold, number = entry["answer"] or entry["metadata"]["example_correct_answer"], entry["metadata"].get("number")
        for answer in answers:
            text = answer.format(gold=gold, number=number)
            if text != gold or reward:  # a prime is its own factorization
                assert paid(dataset, entry["metadata"], text, entry["answer"]) == reward, text


@needs("reasoning_gym")
def test_word_ladder_takes_words_only():
    """Makes impossible: half of the reward for each invented word, so a ladder without any word of a language."""
    for entry in gym("word_ladder", 4):
        start, end = entry["metadata"]["start_word"], entry["metadata"]["end_word"]
        steps = [end[:at] + start[at:] for at in range(len(start) + 1)]
        ladder = [word for at, word in enumerate(steps) if at == 0 or word != steps[at - 1]]
        if len(ladder) > 2:
            assert paid("word_ladder", entry["metadata"], ",".join(ladder), entry["answer"]) == 0, ladder
