"""A class's runs in one table: mean pass@1 by N, with its 95% interval over the students' seeds.

    python -m lab.pool FOLDER...

reads the files seedX.csv that `python -m lab.3_loop X` writes, draws runs/lab/class.png, and names each file that it
leaves out.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt

from evidence.draw import interval, shown

STEPS = 20  # of lab/3_loop.py


def read(path: Path) -> tuple[int, dict[tuple[int, float], float]]:
    """The seed, and pass@1 at the end by (N, learning rate). ValueError says why a file cannot be used."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        scores = {(int(row["n"]), float(row["rate"])): float(row["after"]) for row in rows}
        (seed,) = {int(row["seed"]) for row in rows}
        steps = {int(row["steps"]) for row in rows}
    except (KeyError, TypeError, ValueError):
        raise ValueError("it is not what lab/3_loop.py writes") from None
    if steps != {STEPS}:
        raise ValueError(f"its runs have {min(steps)} steps, not {STEPS}")
    return seed, scores


def pooled(paths: list[Path]) -> dict[tuple[int, float], list[float]]:
    """pass@1 of all seeds by (N, learning rate)."""
    scores: dict[tuple[int, float], list[float]] = defaultdict(list)
    file_of: dict[int, Path] = {}
    for path in paths:
        try:
            seed, of_student = read(path)
            if seed in file_of:
                raise ValueError(f"{file_of[seed]} has seed {seed} too, and an equal seed is no second sample")
        except ValueError as error:
            print(f"left out: {path}: {error}")
            continue
        file_of[seed] = path
        for setting, score in of_student.items():
            scores[setting].append(score)
    return dict(sorted(scores.items()))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.pool", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args(argv)
    scores = pooled([path for folder in args.folders for path in sorted(folder.rglob("*.csv"))])
    if not scores:
        raise SystemExit("no file can be used: hand in runs/lab/seedX.csv, which python -m lab.3_loop X writes")
    print("    N     rate  seeds  pass@1: mean, 95% interval of the mean, least and greatest")
    for (n, rate), x in scores.items():
        print(f"{n:5} {rate:8g} {len(x):6}  {shown(x, '.3f')}  {min(x):.3f} to {max(x):.3f}")
    plt.switch_backend("Agg")
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="tight")
    for rate in sorted({rate for _, rate in scores}):
        of_rate = {n: x for (n, r), x in scores.items() if r == rate}
        means, halves = zip(*map(interval, of_rate.values()), strict=True)
        axis.errorbar(list(of_rate), means, halves, fmt="o", capsize=4, label=f"learning rate {rate:g}")
    axis.set(title=f"pass@1 after {STEPS} steps", xlabel="N", xscale="log")
    numbers = sorted({n for n, _ in scores})
    axis.set_xticks(numbers, [str(n) for n in numbers])
    axis.minorticks_off()
    axis.legend()
    out = Path("runs/lab/class.png")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)
    print(f"picture: {out}")


if __name__ == "__main__":
    main()
