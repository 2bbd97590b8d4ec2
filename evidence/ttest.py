"""Section 4.2.2: is the second of two runs better than the first, on the same held-out problems? A paired t-test.

    python figures/ttest.py runs/A runs/B                     the last evaluation of each
    python figures/ttest.py runs/A runs/B --step 100          that of a step
    python figures/ttest.py runs/A runs/A --step 0 40         one run, before and after

Reads eval.jsonl and config.json of both folders, which `train.py` writes with and without --eval_only. The problems,
their order, the responses to each and how these are sampled must be the same; the seeds need not be. The test takes
instances as independent, and knows nothing of what another seed of training would give.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from brorl import paired_t_test

SETTINGS = ("eval_samples", "eval_temperature", "eval_top_p", "eval_max_response_tokens", "verify_timeout")


def read(folder: Path, step: int | None) -> dict:
    """The run's evaluation after `step` (None: its last), and the settings that scores depend on. Raises ValueError."""
    score = f"score its model: train.py --eval_only --model {folder}/model"
    if (folder / "model.safetensors").is_file():
        raise ValueError(f"{folder} is a model: train.py --eval_only --model {folder} makes a folder to name here")
    for name, cure in (("config.json", "name a folder that train.py wrote"), ("eval.jsonl", score)):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: {cure}")
    try:
        config = dict(json.loads((folder / "config.json").read_text()))
        missing = [name for name in SETTINGS if name not in config and name != "eval_max_response_tokens"]
    except ValueError:
        missing = ["anything that can be read"]
    if missing:
        raise ValueError(f"{folder}/config.json is not the settings of a run, it lacks {', '.join(missing)}: {score}")
    if config.get("eval_max_response_tokens") is None:  # as in training
        config["eval_max_response_tokens"] = config["max_response_tokens"]
    whole = [line for line in (folder / "eval.jsonl").read_text().splitlines(keepends=True) if line.endswith("\n")]
    try:
        rows = {row["step"]: row for row in map(json.loads, whole)}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{folder}/eval.jsonl is damaged: {score}") from None
    if not rows:
        raise ValueError(f"{folder} was not evaluated yet: its eval.jsonl is empty")
    step = max(rows) if step is None else step
    if step not in rows:
        raise ValueError(f"{folder} was not evaluated at step {step}, but at {', '.join(map(str, sorted(rows)))}")
    return rows[step] | {"settings": {name: config[name] for name in SETTINGS}}


def check(a: dict, b: dict) -> None:
    """Raises ValueError unless both evaluations asked the same problems in the same way."""
    if a["problems"] != b["problems"]:
        asked = [", ".join(f"{name} ({count})" for name, count in x["sources"].items()) for x in (a, b)]
        raise ValueError(
            f"the runs were evaluated on different problems, {asked[0]} and {asked[1]}"
            f"{', which differ in content' if asked[0] == asked[1] else ''}: a paired test needs the same --eval_data"
        )
    if differs := [name for name in SETTINGS if a["settings"][name] != b["settings"][name]]:
        told = "; ".join(f"--{name}: {a['settings'][name]} and {b['settings'][name]}" for name in differs)
        raise ValueError(f"the runs were evaluated with different settings, {told}: evaluate one of them again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=Path, help="a run's folder")
    parser.add_argument("b", type=Path, help="that of the run which may be better")
    parser.add_argument("--step", type=int, nargs="+", help="of both, or one for each (default: the last evaluated)")
    args = parser.parse_args()
    steps = args.step or [None]
    if len(steps) > 2:
        parser.exit(2, "ttest.py: --step takes one step for both runs, or one for each\n")
    try:
        a, b = read(args.a, steps[0]), read(args.b, steps[-1])
        check(a, b)
        test = paired_t_test(*(torch.tensor(x["correct"], dtype=torch.float64) / x["k"] for x in (a, b)))
    except ValueError as mistake:
        parser.exit(2, f"ttest.py: {mistake}\n")

    print(f"{test.instances:,} instances, {a['k']} responses each: {', '.join(a['sources'])}")
    for name, folder, row, mean in (("A", args.a, a, test.mean_a), ("B", args.b, b, test.mean_b)):
        print(f"  {name}: {folder}, step {row['step']:<8} pass@1 {mean:.4f}")
    print(f"  Δ = B - A              {test.delta:+.4f}, standard error {test.standard_error:.4f}")
    print(f"  95% confidence         {test.low:+.4f} to {test.high:+.4f}")
    print(f"  t                      {test.t:.2f}, {test.degrees_of_freedom:,} degrees of freedom")
    print(f"  p, one-tailed (B > A)  {test.p_one_tailed:.2g}")
    print(f"  p, two-tailed          {test.p_two_tailed:.2g}")
    verdict = f"{'B' if test.delta > 0 else 'A'} is better" if test.p_two_tailed < 0.05 else "No difference is shown"
    print(f"{verdict} (5%, two-tailed) on these instances, taken as independent; other training seeds are not in it.")


if __name__ == "__main__":
    main()
