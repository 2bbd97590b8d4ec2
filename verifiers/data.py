"""verify.py's `load_problems` and `load_data`: where do problems come from?

    path.jsonl             a file of problems, one JSON object a line: {"prompt": ..., "kind": ..., "reference": ...},
                           with a "solution" where one is known
    hf:NAME                one of HUB (hub.py), through the package datasets; hf:NAME=FOLDER reads a local copy of it
    gym:NAME, gym:NAME*N   N (1,000) entries of a data set of Reasoning Gym, generated with the run's seed
    SOURCE:WEIGHT          its share of the epoch, in relation to the others' weights; for all sources or for none

`check` is verify.check_problems: (position -> what is broken) of a list of problems.
"""

import json
import logging
import math
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from verifiers.verdict import Problem, Solved, shown

LOG = logging.getLogger(__name__)
MAX_REPEATS = 100
ANSWER_SUFFIX = "Think it through step by step, and give your final answer between <answer> and </answer>."
Check = Callable[[list[Problem]], dict[int, str]]


def read_file(path: Path, check: Check) -> list[Problem]:
    """`verify.load_problems`: a file of JSON lines in UTF-8. Blank lines are skipped, but count."""
    if not path.is_file():
        raise FileNotFoundError(
            f"no problems at {path}: it must be a file of JSON lines, one problem a line; a weight is written behind "
            "it as a number, FILE.jsonl:0.5"
        )
    problems, numbers = [], []
    # Split as bytes: text lines would also end at U+2028, which JSON allows inside a string.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                problems.append(_read_problem(line))
                numbers.append(number)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    if not problems:
        raise ValueError(f"{path} holds no problem: write one JSON object a line")
    for position, sentence in check(problems).items():
        raise ValueError(f"{path}, line {numbers[position]}: {sentence}")
    return problems


def _read_problem(line: bytes) -> Problem:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a line of JSON ({error}): write one whole object a line") from None
    if not isinstance(record, dict):
        raise ValueError(f"a problem is a JSON object, got {shown(record)}")
    if not set(Problem._fields) <= record.keys() <= {*Problem._fields, "solution"}:
        keys = ", ".join(Problem._fields)
        raise ValueError(f"a problem has the keys {keys}, may have solution, and no other; got {shown(list(record))}")
    if "solution" in record and not (isinstance(record["solution"], str) and record["solution"].strip()):
        raise ValueError(
            f"`solution` is the text of a right response, got {shown(record['solution'])}: leave it out where there "
            "is none"
        )
    return Solved(**record) if "solution" in record else Problem(**record)


def check_prompt(prompt: Any) -> None:
    """ValueError unless it is text, or a list of chat messages {"role": ..., "content": ...}."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ValueError("`prompt` is empty")
        return
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"`prompt` must be text or a list of chat messages, got {shown(prompt)}")
    for message in prompt:
        if (
            not isinstance(message, dict)
            or message.keys() != {"role", "content"}
            or not all(isinstance(text, str) for text in message.values())
        ):
            raise ValueError(f'a chat message is {{"role": text, "content": text}}, got {shown(message)}')


def read_sources(specs: list[str], seed: int, check: Check) -> list[Problem]:
    """`verify.load_data`: the problems of one epoch over several sources."""
    sources: list[list[Problem]] = []
    weights: list[Any] = []
    for spec in specs:
        source, weight = read_spec(spec)
        sources.append(_load_source(source, seed, check))
        weights.append(weight)
    if len({weight is None for weight in weights}) > 1:
        raise ValueError(f"give a weight to all sources or to none: {' '.join(specs)}")
    if None in weights:
        return [problem for problems in sources for problem in problems]
    return _mix(sources, weights, seed)


def read_spec(spec: str) -> tuple[str, float | None]:
    """("SOURCE", weight), or None for the weight where "SOURCE:WEIGHT" has none."""
    source, colon, last = spec.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*\.?[0-9]+", last):
        return spec, None
    if float(last) <= 0:
        raise ValueError(f"the weight in {spec} must be above 0")
    return source, float(last)


def _mix(sources: list[list[Problem]], weights: list[float], seed: int) -> list[Problem]:
    """Every source shuffled, and drawn from such that every stretch of the epoch holds the sources as weighted."""
    total, rng = sum(weights), random.Random(seed)
    length = math.ceil(max(len(problems) * total / weight for problems, weight in zip(sources, weights, strict=True)))
    if length > MAX_REPEATS * sum(map(len, sources)):
        raise ValueError(
            f"an epoch with these weights has {length} problems: the weights are too far from the sources' sizes. Give "
            "more to the source that is large for its weight, or cut it down"
        )
    drawn, epoch = [0] * len(sources), []
    decks: list[list[Problem]] = [[] for _ in sources]
    for position in range(1, length + 1):
        # The source that is furthest behind its share.
        due = max(range(len(sources)), key=lambda i: position * weights[i] / total - drawn[i])
        if not decks[due]:
            decks[due] = rng.sample(sources[due], len(sources[due]))
        epoch.append(decks[due].pop())
        drawn[due] += 1
    return epoch


def _load_source(source: str, seed: int, check: Check) -> list[Problem]:
    kind, _, name = source.partition(":")
    if kind == "gym":
        return _load_gym(name, seed, check)
    if kind == "hf":
        return _load_hub(name, check)
    return read_file(Path(source), check)


def _load_gym(name: str, seed: int, check: Check) -> list[Problem]:
    try:
        import reasoning_gym
    except ImportError:
        raise ValueError(f"gym:{name} needs the package reasoning-gym: pip install reasoning-gym") from None
    from verifiers.logic import free_rewards

    name, _, size = name.partition("*")
    if name not in reasoning_gym.factory.DATASETS or not re.fullmatch(r"[1-9][0-9]*|", size):
        known = ", ".join(sorted(reasoning_gym.factory.DATASETS))
        raise ValueError(f"gym:{name} is no data set of Reasoning Gym, with an optional *NUMBER. There are {known}")
    try:
        entries = list(reasoning_gym.create_dataset(name, size=int(size or 1000), seed=seed))
    except Exception as error:
        raise ValueError(f"gym:{name} makes no entries with its default settings: {error}") from None
    problems = [gym_problem(name, json.loads(json.dumps(entry, default=str))) for entry in entries]
    broken = check(problems)
    for position, sentence in broken.items():
        LOG.warning("left out: gym:%s, entry %d: %s", name, position, sentence)
    if len(broken) == len(problems):
        raise ValueError(f"gym:{name}: the data set's scorer accepts no answer of its entries: {broken[0]}")
    problems = [problem for position, problem in enumerate(problems) if position not in broken]
    if free := free_rewards(problems):
        LOG.warning("gym:%s pays for nothing: %s; a policy that finds it learns nothing else", name, free)
    return problems


def gym_problem(dataset: str, entry: dict[str, Any]) -> Problem:
    return Problem(f"{entry['question']}\n{ANSWER_SUFFIX}", "logic", {"dataset": dataset, "entry": entry})


def _load_hub(name: str, check: Check) -> list[Problem]:
    from verifiers.hub import HUB

    name, _, copy = name.partition("=")
    if name not in HUB:
        raise ValueError(f"unknown data set hf:{name}: use one of {', '.join(HUB)}")
    path, config, split, mapping = HUB[name]
    try:
        import datasets
    except ImportError:
        raise ValueError(f"hf:{name} needs the package datasets: pip install datasets") from None
    if copy and not Path(copy).exists():
        raise FileNotFoundError(f"no local copy of hf:{name} at {copy}")
    try:
        if copy and (Path(copy) / "dataset_info.json").exists():
            rows = datasets.load_from_disk(copy)
        elif copy:
            rows = datasets.load_dataset(copy, split="train")
        elif path.startswith("hf://"):
            rows = datasets.load_dataset(
                Path(path).suffix[1:].replace("jsonl", "json"), data_files={split: path}, split=split
            )
        else:
            rows = datasets.load_dataset(path, config, split=split)
    except Exception as error:
        where = copy or f"{path}: hf:{name}=PATH reads a local copy, where there is no network or no right to it"
        raise ValueError(f"hf:{name} could not be read from {where} ({type(error).__name__}: {error})") from None
    return map_rows(f"hf:{name}", rows, mapping, check)


def map_rows(
    where: str, rows: Iterable[dict], mapping: Callable[[dict], Problem | None], check: Check
) -> list[Problem]:
    """The problems of a data set's rows, without those that are none for their mapping.

    A row that is broken, or whose gold answer the verifier would not accept, is reported with its number and left out:
    public data sets have some. ValueError if that is more than one row in ten: then it is the mapping that is wrong.
    """
    problems, numbers, refused, number = [], [], {}, -1
    for number, row in enumerate(rows):
        try:
            problem = mapping(row)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            refused[number] = f"{type(error).__name__}: {error}"
            continue
        if problem is not None:
            problems.append(problem)
            numbers.append(number)
    refused |= {numbers[position]: sentence for position, sentence in check(problems).items()}
    sentences = [f"{where}, row {number}: {sentence}" for number, sentence in sorted(refused.items())]
    problems = [problem for number, problem in zip(numbers, problems, strict=True) if number not in refused]
    if len(refused) * 10 > number + 1 or not problems:
        raise ValueError(sentences[0] if sentences else f"{where} holds no problem")
    for sentence in sentences:
        LOG.warning("left out: %s", sentence)
    return problems
