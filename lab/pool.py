"""A class's runs of hour 3 in one table: mean pass@1 by N, with its 95% interval over the students' seeds.

    python -m lab.pool FOLDER...

reads the files seedX.csv that `python -m lab.3_loop X` writes, and names each file that it leaves out.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from tools.intervals import with_interval
from trainer.files import read_csv

STEPS = 20  # of lab/3_loop.py


def read(path: Path) -> tuple[int, dict[tuple[int, float], float]]:
    """The seed, and pass@1 at the end by (N, learning rate). ValueError: not a file of hour 3 with all steps."""
    try:
        rows = [row for row in read_csv(path) if row["steps"] == STEPS]
        return int(rows[0]["seed"]), {(int(row["n"]), row["rate"]): row["after"] for row in rows}
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"it has no runs of {STEPS} steps, as lab/3_loop.py writes them") from None


def pooled(paths: list[Path]) -> dict[tuple[int, float], list[float]]:
    """pass@1 of all seeds by (N, learning rate). Each seed counts once."""
    scores: dict[tuple[int, float], list[float]] = defaultdict(list)
    file_of: dict[int, Path] = {}
    for path in paths:
        try:
            seed, of_student = read(path)
            if seed in file_of:
                raise ValueError(f"{file_of[seed]} has seed {seed} too")
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
        print(f"{n:5} {rate:8g} {len(x):6}  {with_interval(x)}  {min(x):.3f} to {max(x):.3f}")


if __name__ == "__main__":
    main()
