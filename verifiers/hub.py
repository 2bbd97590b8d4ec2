"""verifiers/data.py, `hf:NAME`: rows of public data sets as problems.

HUB, at the end, is the table: a name, where its rows are, and the function that makes a `Problem` of one row, or None
of a row that is none. No row of a data set comes with this project: the mappings are tested on rows of the same shape.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from verifiers.math import last_box
from verifiers.verdict import Problem, Solved

MATH_SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."
PROGRAM_SUFFIX = "Write a Python program that reads standard input and prints to standard output, in a ```python block."
FUNCTION_SUFFIX = "Write it in Python, complete with its imports, in a ```python block."


def _is_filled(value: Any) -> bool:
    return value not in (None, []) and bool(str(value).strip())


def _text(row: dict, *names: str) -> str:
    """The first of these columns that is filled, as text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        if _is_filled(value):
            return str(value)
    raise ValueError(f"no {' or '.join(names)} in a row with {', '.join(map(str, row))}")


def _solved(problem: Problem, solution: Any) -> Problem:
    """The problem with its worked solution, if that is text whose last box holds the reference."""
    boxed = isinstance(solution, str) and last_box(solution) == problem.reference
    return Solved(*problem, solution=solution.strip()) if boxed else problem


def math_row(row: dict) -> Problem:
    """DeepScaleR, AIME, AMC, MATH, Minerva, OlympiadBench: `answer`, or the last box of the `solution`."""
    question = _text(row, "problem", "question")
    if any(_is_filled(row.get(name)) for name in ("answer", "final_answer")):
        gold = _text(row, "answer", "final_answer").strip()
        gold = gold[1:-1] if re.fullmatch(r"\$[^$]*\$", gold) else gold
    else:
        gold = last_box(_text(row, "solution")) or ""
    return _solved(Problem(f"{question}\n{MATH_SUFFIX}", "math", gold), row.get("solution"))


def gsm8k_row(row: dict) -> Problem:
    """GSM8K: the number behind the #### that ends `answer`, without the commas between its thousands.

    Before it stands the solution, with a calculator's notes in it: "48/2 = <<48/2=24>>24 clips".
    """
    worked, mark, gold = _text(row, "answer").rpartition("####")
    if not mark:
        raise ValueError("no #### with the result behind it in `answer`")
    gold = gold.strip().replace(",", "")
    worked = re.sub(r"<<.*?>>", "", worked).strip()
    return Solved(f"{_text(row, 'question')}\n{MATH_SUFFIX}", "math", gold, f"{worked}\n\\boxed{{{gold}}}".strip())


def science_row(row: dict) -> Problem | None:
    """SCP-116K: the last box of `matched_solution`, or all of it where it is short. None for the worked solutions,
    whose answer only a reader could find."""
    solution = _text(row, "answer", "extract_solution", "matched_solution").strip()
    gold = last_box(solution) or re.sub(
        r"^(?:the )?(?:final )?answer(?: is)?\s*:?\s*", "", solution, flags=re.IGNORECASE
    )
    if len(gold) > 100 or "\n" in gold:
        return None
    return _solved(Problem(f"{_text(row, 'problem')}\n{MATH_SUFFIX}", "science", gold), solution)


def ifeval_row(row: dict) -> Problem:
    """Llama-Nemotron: its messages in `input`, its instructions in `args`."""
    args = json.loads(row["args"]) if isinstance(row["args"], str) else row["args"]
    kwargs = [json.loads(item) if isinstance(item, str) else item for item in args.get("instruction_kwargs") or []]
    prompt = [{"role": message["role"], "content": message["content"]} for message in row["input"]]
    return Problem(prompt, "ifeval", {"instruction_id_list": args.get("instruction_id_list"), "kwargs": kwargs})


def tests_row(row: dict) -> Problem | None:
    """APPS and TACO: `question` and `input_output`. None for a problem without tests."""
    reference = json.loads(row["input_output"] or "{}")
    if not reference.get("inputs"):
        return None
    starter = row.get("starter_code") or ""
    function = reference.get("fn_name")
    suffix = f"{FUNCTION_SUFFIX}\n{starter}" if function else PROGRAM_SUFFIX
    reference = {name: reference[name] for name in ("inputs", "outputs", "fn_name") if reference.get(name)}
    return Problem(f"{_text(row, 'question')}\n{suffix}", "code", reference)


def eurus_row(row: dict) -> Problem | None:
    """Eurus-2-RL: `prompt` as messages, tests in `reward_model`. None for its mathematics.

    A function's arguments stand one on a line, each as JSON, so that "[1, 2]" is one argument here.
    """
    if row.get("ability") != "code":
        return None
    reference = json.loads(row["reward_model"]["ground_truth"])
    reference = {name: reference[name] for name in ("inputs", "outputs", "fn_name") if reference.get(name)}
    if "fn_name" in reference:
        reference["inputs"] = [
            [json.loads(line) for line in lines.split("\n")] if isinstance(lines, str) else lines
            for lines in reference["inputs"]
        ]
    messages = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
    return Problem(messages, "code", reference)


def contests_row(row: dict) -> Problem | None:
    """CodeContests: `description`, and the tests of three columns. None for a problem that reads from a file."""
    if row.get("input_file"):
        return None
    inputs: list[str] = []
    outputs: list[str] = []
    for name in ("public_tests", "private_tests", "generated_tests"):
        inputs += (row.get(name) or {}).get("input") or []
        outputs += (row.get(name) or {}).get("output") or []
    if not inputs:
        return None
    return Problem(f"{_text(row, 'description')}\n{PROGRAM_SUFFIX}", "code", {"inputs": inputs, "outputs": outputs})


def codeforces_row(row: dict) -> Problem | None:
    """open-r1/codeforces: the statement in parts, and `official_tests`. None where a checker, a dialogue or a file is
    asked for, or where no known solution passes."""
    if row.get("generated_checker") or row.get("interaction_format") or row.get("input_mode", "stdio") != "stdio":
        return None
    if row.get("executable") is False:
        return None
    tests = row.get("official_tests") or row.get("examples") or []
    if not tests:
        return None
    parts = {"title": "", "description": "", "input_format": "Input\n", "output_format": "Output\n", "note": "Note\n"}
    statement = "\n\n".join(head + row[name] for name, head in parts.items() if row.get(name))
    shown = "\n\n".join(f"Input:\n{test['input']}\nOutput:\n{test['output']}" for test in row.get("examples") or [])
    reference = {"inputs": [test["input"] for test in tests], "outputs": [test["output"] for test in tests]}
    return Problem(f"{statement}\n\n{shown}\n{PROGRAM_SUFFIX}", "code", reference)


# name -> (data set on the hub, its configuration, its split, row -> problem, or None for a row that is none). Where the
# data set is a loading script, which the package datasets no longer runs: the files of the split in place of its name.
# GSM8K is what a first run takes. The four behind it are ProRL v1's training sets, with `gym:` for Reasoning Gym; the
# rest are what the paper evaluates on.
HUB: dict[str, tuple[str, str | None, str, Callable[[dict], Problem | None]]] = {
    "gsm8k": ("openai/gsm8k", "main", "train", gsm8k_row),
    "gsm8k_test": ("openai/gsm8k", "main", "test", gsm8k_row),
    "deepscaler": ("agentica-org/DeepScaleR-Preview-Dataset", None, "train", math_row),
    "eurus_code": ("PRIME-RL/Eurus-2-RL-Data", None, "train", eurus_row),
    "scp_116k": ("EricLu/SCP-116K", None, "train", science_row),
    "nemotron_if": ("nvidia/Llama-Nemotron-Post-Training-Dataset", "RL", "instruction_following", ifeval_row),
    "aime24": ("HuggingFaceH4/aime_2024", None, "train", math_row),
    "aime25": ("math-ai/aime25", None, "test", math_row),
    "amc_validation": ("AI-MO/aimo-validation-amc", None, "train", math_row),
    "math": ("DigitalLearningGmbH/MATH-lighteval", None, "test", math_row),
    "minerva": ("math-ai/minervamath", None, "test", math_row),
    "olympiadbench": ("math-ai/olympiadbench", None, "test", math_row),
    "apps": ("hf://datasets/codeparrot/apps/test.jsonl", None, "test", tests_row),
    "taco": ("hf://datasets/BAAI/TACO/ALL/test-*.parquet", None, "test", tests_row),
    "code_contests": ("deepmind/code_contests", None, "test", contests_row),
    "codeforces": ("open-r1/codeforces", None, "test", codeforces_row),
}
