"""Short runs and rollouts of the embedded policy, for the tests of bench/, evidence/, lab/ and tiny/."""

import itertools
from pathlib import Path

from helpers import ROOT, TINY, arguments  # noqa: F401
from helpers import loaded as embedded  # noqa: F401

import train
from rollout import Request, Sampling, TorchEngine
from trainer.rollouts import Rollout, rollouts_of
from trainer.settings import read_settings
from verify import Problem, Verdict


def some_problems(path: Path, count: int, of: str = "test") -> str:
    """Write the first held-out problems, or training problems, to a file."""
    with (TINY / f"{of}.jsonl").open() as file:
        path.write_text("".join(itertools.islice(file, count)))
    return str(path)


def flags(folder: Path, name: str, **settings) -> list[str]:
    """The command line of a run of two small steps that writes a checkpoint after each."""
    recipe = {"kl_coef": None, "reference_reset_steps": None}
    files = {"data": TINY / "train.jsonl", "eval_data": TINY / "test.jsonl"}
    return arguments(folder, **files | recipe | {"name": name, "eval_samples": 2, "eval_every": 0} | settings)


def trained(folder: Path, name: str, **settings) -> Path:
    """Run train.py in this process. Returns the folder of the run."""
    config, sources = read_settings("", flags(folder, name, **settings))
    accelerator = train.start_accelerator()
    train.train(config, accelerator, train.set_up(config, accelerator, sources))
    return folder / name


def sampled(model, prompts: list[list[int]], n: int, temperature: float = 1.0, seed: int = 0) -> list:
    """N responses to each prompt, as groups in the order of the prompts."""
    requests = [Request(prompt, n, seed + i) for i, prompt in enumerate(prompts)]
    drawn = dict(TorchEngine(model).generate(requests, Sampling(12, temperature, stop_token_ids=(0,))))
    return [drawn[i] for i in range(len(prompts))]


def judged(groups: list, problems: list[Problem], right) -> list[Rollout]:
    """The groups as rollouts. right: (prompt index, response) -> whether the response counts as correct."""
    found = []
    for p, (group, problem) in enumerate(zip(groups, problems, strict=True)):
        for r, response in zip(rollouts_of(group, problem, p, 0), group.responses, strict=True):
            correct = bool(right(p, response))
            r.verdict = Verdict(float(correct), correct, "correct" if correct else "wrong")
            found.append(r)
    return found
