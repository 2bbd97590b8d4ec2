"""The README's comparison of the two recipes, and of the two engines, on the tiny policy, from finished runs.

    for seed in 0 1 2; do
      accelerate launch train.py --seed $seed
      accelerate launch train.py --recipe prorl --seed $seed
      accelerate launch train.py --engine vllm --eval_every 20 --name vllm-seed$seed --seed $seed    # where vLLM is
    done
    python -m evidence.collect runs/*-seed*
    python -m evidence.collect                  no runs: table and picture anew, from default_runs.csv

Writes default_runs.csv (a row per evaluation) and default_runs.png beside this file, and prints the README's table.
"""

import argparse
import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter

from evidence.report import COLOURS
from evidence.runs import by, load, write

HERE = Path(__file__).parent
SCORES = ("pass@1", "pass@4", "pass@16", "pass@64")


def read(folder: Path) -> list[dict]:
    """The run's evaluations: recipe, engine, seed, N, step, samples generated, scores."""
    config = json.loads((folder / "config.json").read_text())
    who = {name: config[name] for name in ("recipe", "engine", "seed")} | {"N": config["rollouts_per_prompt"]}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        who
        | {"step": r["step"], "samples": r["samples"]}
        | {s: round(r[f"eval/{s}"], 6) for s in (*SCORES, "pass@1_se", "response_tokens")}
        for r in rows
        if "eval/pass@1" in r
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="folders of finished runs; none: of the CSV")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write into (default: beside this file)")
    args = parser.parse_args()
    if missing := [str(x) for x in args.runs if not (x / "config.json").is_file()]:
        parser.exit(2, f"evidence.collect: no run at {', '.join(missing)}\n")
    if args.runs:
        write(args.out / "default_runs.csv", [row for folder in sorted(set(args.runs)) for row in read(folder)])
    runs = list(by(load(args.out / "default_runs.csv"), "recipe", "engine", "seed").values())
    if not runs:
        parser.exit(2, f"evidence.collect: no default_runs.csv in {args.out}: name the folders of runs\n")

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    print("| recipe | N | engine | steps | samples generated | pass@1 | pass@4 | pass@16 | pass@64 |\n|" + "---|" * 9)
    for n, engine in sorted({(run[0]["N"], run[0]["engine"]) for run in runs}):
        arm = [run for run in runs if (run[0]["N"], run[0]["engine"]) == (n, engine)]
        style = {"color": COLOURS.get(n), "ls": "-" if engine == "torch" else "--", "marker": "o", "ms": 3}
        for axis, score in zip(axes, ("pass@1", "pass@64"), strict=True):
            for i, run in enumerate(arm):
                label = f"N = {n} ({run[0]['recipe']}, {engine}), {len(arm)} seeds" if i == 0 else None
                axis.plot([r["samples"] for r in run], [r[score] for r in run], label=label, **style)
            axis.set(title=f"held-out {score}", xlabel="samples generated")
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.grid(alpha=0.3)
            axis.legend()
        for at, when in ((0, "start"), (-1, "end")):
            ends = [run[at] for run in arm]
            cells = [f"{statistics.mean(r[s] for r in ends):.3f} ± {spread([r[s] for r in ends]):.3f}" for s in SCORES]
            mean = statistics.mean(r["samples"] for r in ends)
            cells = [f"{ends[0]['recipe']}, {when}", str(n), engine, str(ends[0]["step"]), f"{mean:,.0f}", *cells]
            print("| " + " | ".join(cells) + " |")
    figure.suptitle("The tiny policy from its start, which is not saturated: each line is a run")
    figure.savefig(args.out / "default_runs.png", dpi=110)


def spread(x: list[float]) -> float:
    return (max(x) - min(x)) / 2


if __name__ == "__main__":
    main()
