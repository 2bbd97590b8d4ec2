"""Our checks of puzzles of Reasoning Gym, where the package's scorer pays for wrong answers. (kinds/logic.py)

Each function takes the answer and an entry of its data set, and returns the reward. An answer on which it raises an
exception is unparsed.

The package's simulators of moves skip a move that is impossible: a car that stands in the way, a wall, a button that is
off, a box that is not there. Then a text with every possible move, or a random walk, solves many puzzles without
reasoning. Here each move must be possible when it is made, so one impossible move makes the answer wrong. `frees_car`
and `opens_lock` skip what is no move: for them, FORMS of kinds/logic.py refuses a text of another form before.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from kinds.patterns import forward
from verify import value_of

SIDE = 6  # squares of a rush_hour board, in a row and in a column


def is_probability(answer: str, entry: dict[str, Any]) -> bool:
    """coin_flip: within 0.1%. Its scorer takes 0 for 0.234375, of which 0 is a prefix, and for 0.00003."""
    value, *divisors = [float(part) for part in answer.split("/")]
    for divisor in divisors:
        value /= divisor
    return abs(value - float(entry["answer"])) <= float(entry["answer"]) / 1000


def is_number(answer: str, entry: dict[str, Any]) -> bool:
    """gsm_symbolic: the same number. Its scorer reads the first digits of a text, without a sign."""
    return float(answer) == float(entry["answer"])


def is_sorted(answer: str, entry: dict[str, Any]) -> bool:
    """number_sorting: the question's numbers in order. Its scorer takes numbers that differ by up to 1."""
    return [float(x) for x in json.loads(answer.replace("'", '"'))] == [
        float(x) for x in entry["metadata"]["sorted_numbers"]
    ]


def reaches_target(answer: str, entry: dict[str, Any]) -> bool:
    """countdown, puzzle24: each number of the question once, and exactly the target.

    The scorer of countdown rounds. The one of puzzle24 cuts 24.7 to 24, and takes any four numbers.
    """
    numbers, target = entry["metadata"]["numbers"], entry["metadata"].get("target", 24)
    written = re.sub(r"(^|\()\s*+-", r"\1 0 -", answer)  # value_of reads no sign before a term
    return sorted(map(int, re.findall("[0-9]++", answer))) == sorted(numbers) and value_of(written) == target


def boxes_at_targets(answer: str, entry: dict[str, Any]) -> float:
    """boxnet: the share of the boxes that reach a target of their colour.

    All agents of a step act on the squares as they are before it, so a box moves once in a step.
    """
    squares = {square: list(things) for square, things in entry["metadata"]["initial_state"].items()}
    boxes = _boxes(squares)
    for step in json.loads(answer, object_pairs_hook=_one_action_each):
        arrivals = []
        for agent, action in step.items():
            x, y = _square(_read(_AGENT, agent))
            box, to_square, target = _read(_ACTION, action).group("box", "square", "target")
            here = squares.get(f"{x}_{y}", [])
            if box not in here:
                return 0.0
            here.remove(box)
            if target:
                if target != box.replace("box_", "target_", 1) or target not in here:
                    return 0.0
                here.remove(target)
                continue
            to_x, to_y = _square(_read(_SQUARE, to_square))
            if f"{to_x}_{to_y}" not in squares or abs(x - to_x) + abs(y - to_y) != 1:
                return 0.0
            arrivals.append((f"{to_x}_{to_y}", box))
        for square, box in arrivals:
            squares[square].append(box)
    return 1 - _boxes(squares) / boxes


_PLACE = r"\[\s*+(?P<x>[0-9]++(?:\.[0-9]++)?),\s*+(?P<y>[0-9]++(?:\.[0-9]++)?)\s*+\]"
_AGENT = forward(rf"Agent{_PLACE}", re.ASCII)
_SQUARE = forward(rf"square{_PLACE}", re.ASCII)
_ACTION = forward(r"move\((?P<box>box_\w++),\s*+(?:(?P<square>square[^()]*+)|(?P<target>target_\w++))\)", re.ASCII)


def _read(form: re.Pattern[str], text: str) -> re.Match[str]:
    """Return the match of a whole text. Raises ValueError for a text of another form."""
    if not (match := form.fullmatch(text)):
        raise ValueError(f"no {form.pattern}")
    return match


def _square(match: re.Match[str]) -> tuple[float, float]:
    return float(match["x"]), float(match["y"])


def _one_action_each(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return a step's actions by agent. Raises ValueError for two actions of one agent, of which JSON keeps one."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("two actions of one agent")
    return dict(pairs)


def _boxes(squares: dict[str, list[str]]) -> int:
    return sum(thing.startswith("box_") for things in squares.values() for thing in things)


def opens_lock(answer: str, entry: dict[str, Any]) -> float:
    """quantum_lock: 0.5 for presses that reach the target, 1 if they are also as many as in the entry's answer.

    A button that the light switches off cannot be pressed.
    """
    lock = entry["metadata"]
    buttons = {button["name"]: button for button in lock["buttons"]}
    value, light = lock["initial_value"], lock["initial_state"]
    presses = re.findall("[A-C]", answer.upper())
    for name in presses:
        button = buttons[name]
        if button["active_state"] not in (light, "any"):
            return 0.0
        amount = button["value"]
        value = {"add": value + amount, "subtract": value - amount, "multiply": value * amount}[button["type"]]
        light = "green" if light == "red" else "red"
    if value != lock["target_value"]:
        return 0.0
    return 1.0 if len(presses) == len(lock["solution_path"]) else 0.5


def frees_car(answer: str, entry: dict[str, Any]) -> bool:
    """rush_hour: car A reaches the right end of its row.

    The question renames the cars: its letters are A, B, C ... in the order of the board's own letters.
    """
    board = entry["metadata"]["board_config"]
    labels = sorted(set(board) - {"o", "x"})
    cars = {chr(ord("A") + at): [i for i, label in enumerate(board) if label == own] for at, own in enumerate(labels)}
    taken = {i for i, label in enumerate(board) if label != "o"}
    for name, sign, squares in re.findall(r"([A-Z])([+-])([0-9])", answer):
        car = cars.get(name)
        if car is None:
            return False
        along = car[1] - car[0]  # 1 in a row, SIDE in a column
        for _ in range(int(squares)):
            front = car[-1] + along if sign == "+" else car[0] - along
            at_the_edge = front not in range(SIDE * SIDE) or (along == 1 and front // SIDE != car[0] // SIDE)
            if at_the_edge or front in taken:
                return False
            taken.difference_update(car)
            car[:] = [i + along if sign == "+" else i - along for i in car]
            taken.update(car)
    return cars["A"][-1] % SIDE == SIDE - 1


def stores_boxes(answer: str, entry: dict[str, Any]) -> bool:
    """sokoban: every box stands on a goal. The player cannot walk into a wall, nor push two boxes."""
    rows = entry["metadata"]["gamestr"].replace(" ", "").strip().split("\n")
    things = {(y, x): thing for y, row in enumerate(rows) for x, thing in enumerate(row)}
    boxes = {at for at, thing in things.items() if thing in "@$"}
    floor = {at for at, thing in things.items() if thing != "+"}
    [(y, x)] = [at for at, thing in things.items() if thing in "*%"]
    for move in answer:
        dy, dx = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}[move]
        y, x = y + dy, x + dx
        if (y, x) not in floor:
            return False
        if (y, x) in boxes:
            beyond = (y + dy, x + dx)
            if beyond not in floor or beyond in boxes:
                return False
            boxes = boxes - {(y, x)} | {beyond}
    return all(things[at] in "X$%" for at in boxes)


CHECKS: dict[str, Callable[[str, dict[str, Any]], float]] = {
    "boxnet": boxes_at_targets,
    "coin_flip": is_probability,
    "countdown": reaches_target,
    "gsm_symbolic": is_number,
    "number_sorting": is_sorted,
    "puzzle24": reaches_target,
    "quantum_lock": opens_lock,
    "rush_hour": frees_car,
    "sokoban": stores_boxes,
}
