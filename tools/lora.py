"""Do adapters learn as much as all weights? SmolLM2 with --lora_rank 16 and 1 and without it, in equal steps.

    python -m tools.lora runs.csv smollm        all runs, two at a time; continues after a stop

    arm       settings           learning rates of seed 0
    full                         3e-6, 1e-5, 3e-5
    rank 16   --lora_rank 16     3e-5, 1e-4, 3e-4
    rank 1    --lora_rank 1      3e-5, 1e-4, 3e-4

The rate with the highest final pass@1 of seed 0 is then run with seeds 1 and 2, which did not choose it. The task is
that of docs/real_model.md (smollm is the folder of `python -m tools.smollm`). On a CPU the engine is torch in float32.
N = 64, B = 4, U = 4, 6 steps: 24 updates with 64 rollouts each. 64 held-out problems with 8 responses. A row is a step.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from tools.runs import make_missing, rows_of, train

ARMS = {"full": (0, (3e-6, 1e-5, 3e-5)), "rank 16": (16, (3e-5, 1e-4, 3e-4)), "rank 1": (1, (3e-5, 1e-4, 3e-4))}
SEEDS = (1, 2)  # besides seed 0, which chooses the rate
STEPS = 6
LOGGED = ("samples", "reward", "kl_ref", "entropy", "grad_norm", "eval/pass@1", "eval/pass@1_se")
COLUMNS = ("arm", "rate", "seed", "step", *LOGGED, "update_seconds")


def make(model: str, arm: str, rate: float, seed: int) -> list[dict]:
    """Train one run in a process of its own. Returns a row per step."""
    rank, _ = ARMS[arm]
    settings = {
        "model": model, "data": f"{model}/largest.jsonl", "eval_data": f"{model}/largest_test.jsonl",
        "eval_problems": 64, "rollouts_per_prompt": 64, "prompts_per_step": 4, "updates_per_step": 4,
        "learning_rate": rate, "max_steps": STEPS, "eval_every": STEPS // 2, "save_every": 100,
        "max_tokens_per_micro_batch": 4096, "seed": seed, "lora_rank": rank,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rows = train(settings, Path(folder))
    common = {"arm": arm, "rate": rate, "seed": seed}
    return [
        common | {key: row.get(key, "") for key in ("step", *LOGGED)} | {"update_seconds": row.get("update", "")}
        for row in rows
    ]


def best_rate(rows: list[dict[str, str]], arm: str) -> float:
    """The learning rate with the highest final pass@1 of seed 0; the lower one of two equal ones."""
    last = [row for row in rows if row["arm"] == arm and row["seed"] == "0" and int(row["step"]) == STEPS]
    return float(
        max(sorted(last, key=lambda row: float(row["rate"])), key=lambda row: float(row["eval/pass@1"]))["rate"]
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="where the rows go")
    parser.add_argument("model", help="folder of SmolLM2, written by tools.smollm")
    given = parser.parse_args()
    model = str(Path(given.model).resolve())
    first = [(arm, rate, 0) for i in range(3) for arm, (_, rates) in ARMS.items() for rate in [rates[i]]]
    make_missing(given.csv, first, COLUMNS, partial(make, model))
    chosen = {arm: best_rate(rows_of(given.csv), arm) for arm in ARMS}
    second = [(arm, chosen[arm], seed) for seed in SEEDS for arm in ARMS]
    make_missing(given.csv, second, COLUMNS, partial(make, model))


if __name__ == "__main__":
    main()
