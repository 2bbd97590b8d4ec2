"""The sources of problems that --data and --eval_data name, and their weights.

Each source has one of these forms (problems.py reads a file, public_data.py the others):

FILE.jsonl             a file of problems
hf:NAME                an entry of HUB, read by the package datasets; hf:NAME=FOLDER reads a copy from `save_to_disk`
gym:NAME, gym:NAME*N   N (1,000) entries of a data set of Reasoning Gym, generated with the run's seed to train on, and
                       with a fixed one to evaluate on
SOURCE:WEIGHT          a source and its share of the epoch, relative to the other weights; for all sources or for none
"""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

from trainer.problems import load_problems
from trainer.process import Refusal
from trainer.public_data import load_gym, load_hub
from verify import Problem


def load_sources(specs: list[str], seed: int = 0) -> list[Problem]:
    """Return the problems of one epoch. specs: sources, each with an optional :WEIGHT.

    The seed fixes the generated problems (gym:) and, with weights, the order of all.
    """
    pairs = [read_spec(spec) for spec in specs]
    found = []  # the problems of each source
    for source, _ in pairs:
        scheme, _, name = source.partition(":")
        if scheme == "gym":
            found.append(load_gym(name, seed))
        else:
            found.append(load_hub(name) if scheme == "hf" else load_problems(source))
    weights: list[Any] = [weight for _, weight in pairs]
    if all(weight is None for weight in weights):
        return [problem for problems in found for problem in problems]
    if None in weights:
        raise ValueError(f"give a weight to all sources or to none: {' '.join(specs)}")
    return mix(found, weights, seed)


def read_spec(spec: str) -> tuple[str, float | None]:
    """Split "SOURCE:WEIGHT" into ("SOURCE", weight), without a weight (spec, None). ValueError for a weight of 0."""
    source, colon, last = spec.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]*\.?[0-9]+", last):
        return spec, None
    if float(last) <= 0:
        raise ValueError(f"the weight in {spec} must be above 0")
    return source, float(last)


def mix(found: list[list[Problem]], weights: list[float], seed: int) -> list[Problem]:
    """Shuffle the problems of each source, and draw them in the shares of the weights in every stretch of the epoch."""
    total, rng = sum(weights), random.Random(seed)
    length = math.ceil(max(len(problems) * total / weight for problems, weight in zip(found, weights, strict=True)))
    drawn, epoch = [0] * len(found), []
    decks: list[list[Problem]] = [[] for _ in found]
    for position in range(1, length + 1):
        # The source whose share is furthest behind.
        due = max(range(len(found)), key=lambda i: position * weights[i] / total - drawn[i])
        decks[due] = decks[due] or rng.sample(found[due], len(found[due]))
        epoch.append(decks[due].pop())
        drawn[due] += 1
    return epoch


def source_names(specs: list[str]) -> dict[str, str]:
    """Name -> source. A file's name is without its folder and ending. Raises Refusal for two sources with one name."""
    sources = [read_spec(spec)[0] for spec in specs]
    names = {x if x.startswith(("hf:", "gym:")) else Path(x).stem: x for x in sources}
    if len(names) < len(specs):
        raise Refusal("--eval_data names two sources alike: rename a file, or name it once")
    return names
