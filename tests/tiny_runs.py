"""Short runs of the tiny policy in this process: what the tests of evidence/ and tiny/ look at."""

import itertools
from pathlib import Path

from accelerate import Accelerator

import train

TINY = Path(__file__).parent.parent / "tiny"


def some_problems(path: Path, count: int, of: str = "test") -> str:
    """The first held-out problems, as a file of their own."""
    with (TINY / f"{of}.jsonl").open() as file:
        path.write_text("".join(itertools.islice(file, count)))
    return str(path)


def trained(folder: Path, name: str, **settings) -> Path:
    """Two steps of train.py with every checkpoint kept; returns the run's folder."""
    small = {
        "data": [str(TINY / "train.jsonl")], "output_dir": str(folder), "name": name, "max_steps": 2,
        "rollouts_per_prompt": 8, "prompts_per_step": 4, "updates_per_step": 2, "learning_rate": 1e-4,
        "save_every": 1, "keep_checkpoints": 5, "eval_samples": 2, "eval_every": 0,
    }  # fmt: skip
    config, accelerator = train.Config(**small | settings), Accelerator(cpu=True)
    train.train(config, accelerator, train.set_up(config, accelerator))
    return folder / name
