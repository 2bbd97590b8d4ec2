"""docs/real_model.md's curve: a real chat model by two N, from runs that are finished or still going.

    python -m evidence.real_model runs/smollm-n512 runs/smollm-n16 ...

Writes real_model.csv (a row per step: what was drawn, trained and measured, and its time) and real_model.png beside
this file, and prints the page's table. The page has the commands of the runs.
"""

import argparse
import csv
import itertools
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter

from evidence.report import COLOURS

HERE = Path(__file__).parent
NAMES = ("step", "samples", "prompts", "pass_rate", "reward", "truncated", "response_tokens", "entropy", "kl_ref")
SCORES = ("eval/pass@1", "eval/pass@1_se", "eval/pass@4", "eval/truncated")
CLOCK = ("roll_out", "score", "update", "cpu_seconds", "peak_gib")


def read(folder: Path) -> list[dict]:
    """A row for the start and for every step; empty where a step has no such number."""
    config = json.loads((folder / "config.json").read_text())
    metrics, timing = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("metrics", "timing")
    )
    clock = {row["step"]: row for row in timing}
    who = {"N": config["rollouts_per_prompt"], "B": config["prompts_per_step"], "seed": config["seed"]}
    return [
        who
        | {name: rounded(m.get(name)) for name in (*NAMES, *SCORES)}
        | {name: rounded(clock.get(m["step"], {}).get(name)) for name in CLOCK}
        for m in metrics
    ]


def rounded(x: float | None) -> float | str:
    return "" if x is None else round(x, 6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write into (default: beside this file)")
    args = parser.parse_args()
    if missing := [str(x) for x in args.runs if not (x / "metrics.jsonl").is_file()]:
        parser.exit(2, f"evidence.real_model: no run at {', '.join(missing)}\n")
    runs = [read(folder) for folder in args.runs]
    with (args.out / "real_model.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, runs[0][0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for run in runs for row in run)

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
    print("| N | B | seed | step | samples drawn | pass@1 ± s.e. | pass@4 | processor seconds |\n|" + "---|" * 8)
    for run in runs:
        spent = list(itertools.accumulate(row["cpu_seconds"] or 0.0 for row in run))
        scored = [(row, seconds) for row, seconds in zip(run, spent, strict=True) if row["eval/pass@1"] != ""]
        y, errors = ([row[name] for row, _ in scored] for name in SCORES[:2])
        n, b, seed = (run[0][name] for name in ("N", "B", "seed"))
        style = {"color": COLOURS.get(n), "ls": "-" if seed == 0 else "--", "ms": 3, "capsize": 2, "marker": "o"}
        label = f"N = {n}, {b} prompts a step, seed {seed}"
        axes[0].errorbar([row["samples"] for row, _ in scored], y, errors, label=label, **style)
        axes[1].errorbar([seconds / 60 for _, seconds in scored], y, errors, **style)
        for row, seconds in scored:
            score = f"{row['eval/pass@1']:.3f} ± {row['eval/pass@1_se']:.3f}"
            cells = [
                n,
                b,
                seed,
                row["step"],
                f"{row['samples']:,}",
                score,
                f"{row['eval/pass@4']:.3f}",
                f"{seconds:,.0f}",
            ]
            print("| " + " | ".join(map(str, cells)) + " |")
    axes[0].set(title="held-out pass@1, ± s.e. over problems", xlabel="samples drawn", ylim=(0, None))
    axes[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    axes[1].set(title="the same over time", xlabel="processor minutes, evaluations not counted")
    axes[0].legend()
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.suptitle("SmolLM2-135M-Instruct, the largest of six numbers")
    figure.savefig(args.out / "real_model.png", dpi=110)


if __name__ == "__main__":
    main()
