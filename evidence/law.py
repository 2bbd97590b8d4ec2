"""Does the N with the least noise learn most? N = 2 to 512 at equal samples in the tiny world (docs/which_n.md).

    python -m evidence.law                      three seeds: hours on 2 cores; what is done already is left alone
    python -m evidence.law --seeds 0 --out runs/law

Every arm starts from the embedded policy and takes STEPS steps of 4,096 rollouts each, so B = 4,096 / N prompts are
rolled out, and what dynamic sampling keeps of them is trained on in one update. It ends with the exact held-out Q_pos
(tiny/exact.py). Each N has the same three learning rates. With one update a step the law speaks of the very direction
that is taken: its noise is (V_b + V_w / (N - 1)) / B.

Writes law.csv (a row a run, with V_w and V_b as the run measured them) and law.png beside this file.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from evidence.report import header, line, panels, save, shown
from evidence.runs import ROOT, by, lines, load, write
from tiny import exact
from trainer.checks import TINY
from trainer.noise import best_n, noise_at_equal_cost
from verify import load_data

HERE = Path(__file__).parent
NS, RATES, DRAWN, STEPS = (2, 4, 8, 16, 64, 512), (3e-4, 1e-3, 3e-3), 4096, 20


def train(folder: Path, n: int, rate: float, seed: int) -> None:
    """One arm to its end, from where it is. --refill 1: a step goes on with what is kept of the prompts it drew."""
    settings = {
        "output_dir": folder.parent, "name": folder.name, "rollouts_per_prompt": n, "prompts_per_step": DRAWN // n,
        "refill": 1, "updates_per_step": 1, "warmup_updates": 5, "learning_rate": rate, "seed": seed,
        "max_steps": STEPS, "eval_every": 0, "eval_samples": 1, "save_every": 10, "keep_checkpoints": 1,
        "log_noise": 5 if n >= 4 else 0,
    }  # fmt: skip
    command = [sys.executable, "train.py", *(f"--{name}={value}" for name, value in settings.items())]
    command += ["--resume"] if (folder / "config.json").exists() else []
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)


def scored(folder: Path, n: int, rate: float, seed: int) -> dict:
    """Exact Q_pos at the end, the noise that the run measured, the seconds it took."""
    policy, tokenizer = exact.load_policy(str(folder / "model"))
    logps = exact.log_probs(policy, tokenizer, load_data([str(TINY / "test.jsonl")]))
    q_pos = float(np.mean([x.exp().sum().item() for x in logps]))
    metrics, timing = lines(folder / "metrics.jsonl"), lines(folder / "timing.jsonl")
    noise = [row for row in metrics if "noise/between" in row]
    row = {"N": n, "B": DRAWN // n, "rate": rate, "seed": seed, "steps": metrics[-1]["step"]}
    row |= {"samples": metrics[-1]["samples"], "cpu_seconds": round(sum(x["cpu_seconds"] for x in timing), 1)}
    for name in ("within", "between"):
        row[name] = round(float(np.mean([x[f"noise/{name}"] for x in noise])), 4) if noise else ""
    return row | {"q_pos": round(q_pos, 5)}


def rows_of(out: Path, seeds: list[int]) -> list[dict]:
    """Run what is missing, one at a time; law.csv has what was there before."""
    path = HERE / "law.csv"
    done = {(row["N"], row["rate"], row["seed"]): row for row in load(path)} if path.exists() else {}
    for seed in seeds:
        for rate in RATES:
            for n in NS:
                if (n, rate, seed) not in done:
                    folder = out / f"n{n}-lr{rate:g}-seed{seed}"
                    if not (folder / "model").is_dir():
                        train(folder, n, rate, seed)
                    done[n, rate, seed] = scored(folder, n, rate, seed)
                    print(done[n, rate, seed], flush=True)
                    write(path, in_order(done))
    return in_order(done)


def in_order(done: dict[tuple, dict]) -> list[dict]:
    return sorted(done.values(), key=lambda r: (r["seed"], r["rate"], r["N"]))


def ratio_of(rows: list[dict]) -> float:
    """V_w / V_b over all looks of all runs."""
    measured = [row for row in rows if row["between"] != ""]
    return sum(row["within"] for row in measured) / sum(row["between"] for row in measured)


def draw(rows: list[dict]) -> None:
    """Q_pos by N, a line a rate; and the law's noise at equal samples with the V_w / V_b that the runs measured."""
    ratio = ratio_of(rows)
    figure, ((left, right),) = panels(1, 2, 11, 4.2)
    for (rate, group), color in zip(sorted(by(rows, "rate").items()), ("gray", "black", "tab:pink"), strict=False):
        at = {n: [row["q_pos"] for row in own] for (n,), own in by(group, "N").items()}
        left.plot(
            list(at), [np.mean(x) for x in at.values()], marker="o", color=color, label=f"learning rate {rate[0]:g}"
        )
        left.fill_between(
            list(at), [min(x) for x in at.values()], [max(x) for x in at.values()], color=color, alpha=0.2
        )
    left.set(title=f"held-out Q_pos after {STEPS * DRAWN:,} samples", xlabel="N", xscale="log")
    left.legend()
    n = np.geomspace(2, 512, 100)
    right.plot(n, [noise_at_equal_cost(x, ratio) / noise_at_equal_cost(16, ratio) for x in n], color="black")
    right.set(
        title=f"the law: noise over that of N = 16, V_w / V_b = {ratio:.2g}", xlabel="N", xscale="log", yscale="log"
    )
    for axis in (left, right):
        axis.set_xticks(NS, [str(x) for x in NS])
        axis.grid(alpha=0.3)
    save(figure, HERE / "law.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "law", help="where the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--from_csv", action="store_true", help="no runs: table and picture of law.csv")
    args = parser.parse_args()
    rows = load(HERE / "law.csv") if args.from_csv else rows_of(args.out, args.seeds)
    draw(rows)
    ratio = ratio_of(rows)
    print(f"V_w / V_b = {ratio:.1f}, N* = {best_n(ratio):.1f}")
    header("N", "B", *(f"Q_pos at {rate:g} (± 95%)" for rate in RATES), "the law's noise over N = 16's")
    for (n, b), group in by(rows, "N", "B").items():
        found = by(group, "rate")
        cells = [shown([r["q_pos"] for r in found[rate,]], ".3f") if (rate,) in found else "" for rate in RATES]
        line(n, b, *cells, f"{noise_at_equal_cost(n, ratio) / noise_at_equal_cost(16, ratio):.2g}")


if __name__ == "__main__":
    main()
