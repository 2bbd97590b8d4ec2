"""Problems of public data sets (hf:) and of generators (gym:): their rows as prompt, kind and reference."""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from kinds.boxes import last_box
from sandbox.messages import printable
from trainer.problems import broken_problems
from verify import Problem

LOG = logging.getLogger(__name__)
ANSWER_SUFFIX = "Think it through step by step, and give your final answer between <answer> and </answer>."
MATH_SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."


def load_gym(name: str, seed: int) -> list[Problem]:
    """The entries of a Reasoning Gym data set as problems. name: NAME or NAME*N. Raises ValueError."""
    try:
        import reasoning_gym
    except ImportError:
        raise ValueError(f"gym:{name} needs the package reasoning-gym: pip install reasoning-gym") from None
    name, _, size = name.partition("*")
    if not re.fullmatch(r"[1-9][0-9]*|", size):
        raise ValueError(f"gym:{name}*{size} has no number of problems behind the *: use gym:{name}*50")
    if name not in reasoning_gym.factory.DATASETS:
        raise ValueError(f"gym:{name} is no data set: use {', '.join(sorted(reasoning_gym.factory.DATASETS))}")
    try:
        entries = list(reasoning_gym.create_dataset(name, size=int(size or 1000), seed=seed))
    except Exception as error:
        raise ValueError(f"gym:{name} makes no entries with its default settings: {error}") from None
    return map_rows(f"gym:{name}", entries, lambda entry: gym_problem(name, entry), worst=1.0)


def gym_problem(dataset: str, entry: dict[str, Any]) -> Problem:
    reference = {"dataset": dataset, "entry": json.loads(json.dumps(entry, default=str))}
    return Problem(f"{entry['question']}\n{ANSWER_SUFFIX}", "logic", reference)


def load_hub(name: str) -> list[Problem]:
    """The rows of an entry of HUB as problems. name: NAME or NAME=FOLDER. Raises ValueError."""
    name, _, folder = name.partition("=")
    if name not in HUB:
        raise ValueError(f"unknown data set hf:{name}: use one of {', '.join(HUB)}")
    path, subset, split, mapping = HUB[name]
    try:
        import datasets

        rows = datasets.load_from_disk(folder) if folder else datasets.load_dataset(path, subset, split=split)
        if isinstance(rows, dict):  # a saved DatasetDict: take the split that is read from the hub
            if split not in rows:
                raise ValueError(f"it has no split {split}, only {', '.join(rows)}")
            rows = rows[split]
    except ImportError:
        raise ValueError(f"hf:{name} needs the package datasets: pip install datasets") from None
    except Exception as error:
        raise ValueError(
            f"hf:{name} could not be read from {folder or path} ({type(error).__name__}: {error}). Without the "
            f"network, hf:{name}=FOLDER reads a copy that the data set's save_to_disk wrote"
        ) from None
    return map_rows(f"hf:{name}", rows, mapping)


def map_rows(
    where: str, rows: Iterable[dict], mapping: Callable[[dict], Problem | None], worst: float = 0.1
) -> list[Problem]:
    """Return the problems of a data set's rows.

    Public data sets have broken rows, and golds that the rule of their kind refuses: they are reported and left out.
    ValueError if their share is above `worst`, since then the mapping is wrong, or if none is left.
    """
    problems, refused, row_number = {}, {}, -1
    for row_number, row in enumerate(rows):
        try:
            if (problem := mapping(row)) is not None:
                problems[row_number] = problem
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            refused[row_number] = f"{type(error).__name__}: {error}"
    row_numbers = list(problems)
    for position, sentence in broken_problems(list(problems.values())).items():
        refused[row_numbers[position]] = sentence
    sentences = [f"{where}, row {row_number}: {sentence}" for row_number, sentence in sorted(refused.items())]
    usable = [problem for row_number, problem in problems.items() if row_number not in refused]
    if len(refused) > worst * (row_number + 1) or not usable:
        raise ValueError(sentences[0] if sentences else f"{where} holds no problem")
    if os.environ.get("RANK", "0") == "0":  # every rank reads the rows
        for sentence in sentences:
            LOG.warning("left out: %s", printable(sentence))
    return usable


def first_text(row: dict, *names: str) -> str:
    """Return the first filled column of these, as text."""
    for name in names:
        value = row.get(name)
        text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
        if text.strip():
            return text.strip()
    raise ValueError(f"no {' or '.join(names)} in a row with {', '.join(map(str, row))}")


def messages_of(chat: list[dict]) -> list[dict[str, str]]:
    return [{"role": message["role"], "content": message["content"]} for message in chat]


def math_row(row: dict) -> Problem:
    """DeepScaleR, AIME, MATH, Minerva, OlympiadBench: `answer`, or the last box of the `solution`."""
    gold = first_text(row, "answer", "final_answer", "solution")
    gold = gold[1:-1] if re.fullmatch(r"\$[^$]*\$", gold) else last_box(gold) or gold
    return Problem(f"{first_text(row, 'problem', 'question')}\n{MATH_SUFFIX}", "math", gold)


# In the last sentence of a question: "What percentage of", "by what percent", "the percent increase".
ASKS_PERCENT = re.compile(r"(?i)\bpercentage\b|\b(?:what|which|how many|the|as a|in)\s+(?:[a-z]+\s+){0,2}percent\b")


def gsm8k_row(row: dict) -> Problem:
    """GSM8K: the number after the #### that ends `answer`, without the commas between its thousands.

    Where the question asks for a percentage, the gold 40 means 40%, so the row has both as golds.
    """
    question = first_text(row, "question").strip()
    _, mark, gold = first_text(row, "answer").rpartition("####")
    if not mark:
        raise ValueError("no #### with the result in `answer`")
    gold = gold.strip().replace(",", "")
    asks_percent = ASKS_PERCENT.search(re.split(r"(?<=[.?!])\s+", question)[-1])
    golds = [gold, gold + r"\%"] if asks_percent and "%" not in gold else gold
    return Problem(f"{question}\n{MATH_SUFFIX}", "math", golds)


def science_row(row: dict) -> Problem | None:
    """SCP-116K: the last box of `matched_solution`, or all of it if it is short. None for other worked solutions."""
    solution = first_text(row, "answer", "extract_solution", "matched_solution")
    gold = last_box(solution) or re.sub(r"(?i)^(?:the )?(?:final )?answer(?: is)?\s*:?\s*", "", solution)
    if len(gold) > 100 or "\n" in gold:
        return None
    return Problem(f"{first_text(row, 'problem')}\n{MATH_SUFFIX}", "science", gold)


def ifeval_row(row: dict) -> Problem:
    """Llama-Nemotron: its messages in `input`, its instructions in `args`."""
    args = json.loads(row["args"]) if isinstance(row["args"], str) else row["args"]
    kwargs = [json.loads(item) if isinstance(item, str) else item for item in args.get("instruction_kwargs") or []]
    reference = {"instruction_id_list": args.get("instruction_id_list"), "kwargs": kwargs}
    return Problem(messages_of(row["input"]), "ifeval", reference)


def eurus_row(row: dict) -> Problem | None:
    """Eurus-2-RL: `prompt` as messages, tests in `reward_model`, a function's arguments as one JSON value a line.

    None for its mathematics.
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
    return Problem(messages_of(row["prompt"]), "code", reference)


# Name -> (data set on the hub, its configuration, its split, row -> problem, None for a row to skip). gsm8k and
# gsm8k_test are for a first run. The next four are ProRL v1's training sets; gym: has the fifth. The rest are the
# paper's evaluations.
HUB: dict[str, tuple[str, str | None, str, Callable[[dict], Problem | None]]] = {
    "gsm8k": ("openai/gsm8k", "main", "train", gsm8k_row),
    "gsm8k_test": ("openai/gsm8k", "main", "test", gsm8k_row),
    "deepscaler": ("agentica-org/DeepScaleR-Preview-Dataset", None, "train", math_row),
    "eurus_code": ("PRIME-RL/Eurus-2-RL-Data", None, "train", eurus_row),
    "scp_116k": ("EricLu/SCP-116K", None, "train", science_row),
    "nemotron_if": ("nvidia/Llama-Nemotron-Post-Training-Dataset", "RL", "instruction_following", ifeval_row),
    "aime24": ("HuggingFaceH4/aime_2024", None, "train", math_row),
    "aime25": ("math-ai/aime25", None, "test", math_row),
    "math": ("DigitalLearningGmbH/MATH-lighteval", None, "test", math_row),
    "minerva": ("math-ai/minervamath", None, "test", math_row),
    "olympiadbench": ("math-ai/olympiadbench", None, "test", math_row),
}
