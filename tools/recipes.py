"""What do N = 512 and N = 16 learn with the recipes of this version? The default run and SmolLM2's, three seeds each.

    python -m tools.recipes OUT.csv                   the embedded policy, half an hour on 2 cores
    python -m tools.recipes OUT.csv --smollm smollm   SmolLM2 too (a folder of tools.smollm), 100 minutes more

Two runs at a time, with half of the cores each; a stopped experiment continues. A row is an evaluation. `samples`:
rollouts drawn so far. `trained`: those of them in informative groups. `seconds`: of stages 2 to 8 so far, without
evaluation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

from tools.runs import make_missing, train

RECIPES, SEEDS = ("prorl", "brorl"), (0, 1, 2)  # the long runs first
SCORES = ("eval/pass@1", "eval/pass@1_se", "eval/pass@4", "eval/pass@16", "eval/pass@64", "eval/response_tokens")
NAMES = tuple(score.removeprefix("eval/") for score in SCORES)
COLUMNS = ("model", "recipe", "seed", "N", "B", "step", "samples", "trained", "seconds", *NAMES, "kl_ref")


def make(smollm: str, model: str, recipe: str, seed: int) -> list[dict]:
    """Train with a recipe. Returns a row for each evaluation."""
    settings: dict[str, object] = {"recipe": recipe, "seed": seed}
    if model != "embedded":
        settings |= {"model": smollm, "data": f"{smollm}/largest.jsonl", "eval_data": f"{smollm}/largest_test.jsonl"}
        settings |= {"max_tokens_per_micro_batch": 4096}
    with tempfile.TemporaryDirectory() as folder:
        steps = train(settings, Path(folder))
        config = json.loads((Path(folder) / "run" / "config.json").read_text())
    n, b = config["rollouts_per_prompt"], config["prompts_per_step"]
    rows, trained, seconds = [], 0, 0.0
    for step in steps:
        trained += step.get("prompts", 0) * n
        seconds += sum(step.get(lap, 0.0) for lap in ("roll_out", "score", "update"))
        if "eval/pass@1" in step:
            scores = {name: step.get(score, "") for name, score in zip(NAMES, SCORES, strict=True)}
            row = {"model": model, "recipe": recipe, "seed": seed, "N": n, "B": b, "step": step["step"]}
            row |= {"samples": step["samples"], "trained": trained, "seconds": seconds}
            rows.append(row | scores | {"kl_ref": step.get("kl_ref", "")})
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="where the rows go")
    parser.add_argument("--smollm", metavar="FOLDER", help="SmolLM2, written by tools.smollm")
    given = parser.parse_args()
    models = ("embedded", "smollm") if given.smollm else ("embedded",)
    planned = [(model, recipe, seed) for model in models for recipe in RECIPES for seed in SEEDS]
    make_missing(given.csv, planned, COLUMNS, partial(make, str(Path(given.smollm or "").resolve())))


if __name__ == "__main__":
    main()
