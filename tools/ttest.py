"""Section 4.2.2: is the second of two runs better than the first, on the same held-out problems? A paired t-test.

    python -m tools.ttest runs/A runs/B                     the last evaluation of each
    python -m tools.ttest runs/A runs/B --step 100          that of a step
    python -m tools.ttest runs/A runs/A --step 0 40         one run, before and after

Reads eval.jsonl and config.json of both folders, which `train.py` writes with and without --eval_only. The problems,
their order, the number of responses and the sampling must be the same; the seeds need not be. The test takes
instances as independent. It does not know how much another seed of training would change.
"""

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from tools.intervals import interval
from trainer.files import read_lines
from trainer.process import Refusal, explained, prepare, refusing

SETTINGS = ("eval_samples", "eval_temperature", "eval_top_p", "eval_max_response_tokens", "verify_timeout")


class PairedTTest(NamedTuple):
    """The result of `paired_t_test`; `low` and `high` bound delta with a confidence of 95%."""

    instances: int
    delta: float
    standard_error: float
    t: float
    p_one_tailed: float
    p_two_tailed: float
    low: float
    high: float


def paired_t_test(a, b) -> PairedTTest:
    """Test if b is better than a on the same n instances: t = Δ / (s / √n), n - 1 degrees of freedom (section 4.2.2).

    a, b: (n,) the scores of two models, pass@1 of an instance, in the same order. d = b - a, Δ its mean, s its
    standard deviation (with n - 1). If all d are equal, s = 0 and t is infinite, or 0 if all d are 0.
    One-tailed p: the probability of such a t or a larger one if b is not better. Two-tailed: of a t as far from 0.
    The paper, on more than 10,000 instances: Δ = 0.0033, t = 4.84, one-tailed p = 6.5e-7 for BroRL over ProRL.
    """
    d = np.asarray(b, dtype=float) - np.asarray(a, dtype=float)
    n, (delta, half), error = len(d), interval(d), float(d.std(ddof=1)) / math.sqrt(len(d))
    t = delta / error if error else math.copysign(math.inf, delta) if delta else 0.0
    one, two = stats.t.sf(t, n - 1), 2 * stats.t.sf(abs(t), n - 1)
    return PairedTTest(n, delta, error, t, float(one), float(two), delta - half, delta + half)


def read_evaluation(folder: Path, step: int | None) -> dict:
    """Read the evaluation after `step` (None: the last) and the settings of its sampling. Raises Refusal."""
    for name in ("config.json", "eval.jsonl"):
        if not (folder / name).is_file():
            raise Refusal(f"{folder} has no {name}: name the folder of a run, or score a model with --eval_only")
    with refusing(f"{folder}: "):
        config = json.loads((folder / "config.json").read_text())
        rows = {row["step"]: row for row in read_lines(folder / "eval.jsonl")}
    if missing := [name for name in SETTINGS if name not in config]:
        raise Refusal(f"{folder}/config.json has no {', '.join(missing)}: older code made it; evaluate its model again")
    step = max(rows, default=0) if step is None else step
    if step not in rows:
        raise Refusal(f"{folder} was not evaluated at step {step}, but at {', '.join(map(str, sorted(rows)))}")
    return rows[step] | {"settings": {name: config[name] for name in SETTINGS}}


def compare_evaluations(a: dict, b: dict) -> PairedTTest:
    """Test two evaluations from `read_evaluation`. Raises Refusal if they do not pair."""
    if a["problems"] != b["problems"]:
        raise Refusal("the runs were evaluated on different problems: a paired test needs the same --eval_data")
    if differs := [name for name in SETTINGS if a["settings"][name] != b["settings"][name]]:
        values = "; ".join(f"--{name}: {a['settings'][name]} and {b['settings'][name]}" for name in differs)
        raise Refusal(f"the runs were evaluated with different settings, {values}: evaluate one of them again")
    return paired_t_test(*(np.array(x["correct"]) / x["k"] for x in (a, b)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=Path, help="a run's folder")
    parser.add_argument("b", type=Path, help="folder of the run that may be better")
    parser.add_argument("--step", type=int, nargs="+", help="one step, or one for each run (default: the last)")
    args = parser.parse_args()
    steps = args.step or [None]
    if len(steps) > 2:
        raise Refusal(f"--step takes one step, or one for each of the two runs, and not {len(steps)}")
    a, b = read_evaluation(args.a, steps[0]), read_evaluation(args.b, steps[-1])
    test = compare_evaluations(a, b)
    rows = [f"{name}: {folder}, step {x['step']:<8} pass@1 {np.mean(x['correct']) / x['k']:.4f}"
            for name, folder, x in (("A", args.a, a), ("B", args.b, b))]  # fmt: skip
    print(f"""\
{test.instances:,} instances, {a["k"]} responses each: {", ".join(a["sources"])}
  {rows[0]}
  {rows[1]}
  Δ = B - A              {test.delta:+.4f}, standard error {test.standard_error:.4f}
  95% confidence         {test.low:+.4f} to {test.high:+.4f}
  t                      {test.t:.2f}, {test.instances - 1:,} degrees of freedom
  p, one-tailed (B > A)  {test.p_one_tailed:.2g}
  p, two-tailed          {test.p_two_tailed:.2g}""")


if __name__ == "__main__":
    prepare()  # a terminal that cannot show Δ shows ? in its place
    with explained(code=2):
        main()
