"""The three hours as notebooks, and the functions that the hours share.

python -m lab.notebooks FOLDER     FOLDER/1_mass.ipynb, ...; needs `pip install jupytext notebook`
"""

import argparse
import csv
import sys
from itertools import takewhile
from pathlib import Path

LAB = Path(__file__).resolve().parent
FIRST_CELL = """# %%
import os, sys
os.chdir({root!r})  # pictures go to runs/lab/ there
sys.path.insert(0, "")
sys.argv[1:] = []  # ["work"]: the functions of your files in work/; in hour 3 ["17", "work"]
"""


def ask() -> None:
    """In a script, prints the text below the call. At a terminal, waits for Enter: the student predicts first."""
    call = sys._getframe(1)
    script = Path(call.f_code.co_filename)
    if not script.is_file():  # a notebook, which shows its text itself
        return
    below = script.read_text(encoding="utf-8").splitlines()[call.f_lineno :]
    text = takewhile(lambda line: line[:1] in ("", "#"), below)
    print("\n".join(line[2:] for line in text if not line.startswith("# %%")), flush=True)
    if sys.stdin.isatty():
        input("Write down your answers, then press Enter. ")


def compare(name: str, value: float) -> None:
    """Prints a number of this run and its range with other seeds, from expected.csv."""
    with (LAB / "expected.csv").open(newline="", encoding="utf-8") as file:
        (row,) = [row for row in csv.DictReader(file) if row["number"] == name]
    low, high = float(row["low"]), float(row["high"])
    outside = "" if low <= value <= high else "   OUTSIDE"
    print(f"{name:<52} {value:9.4g}   expected {low:.4g} to {high:.4g}{outside}")


def show(path: Path) -> None:
    """Prints where a picture is. In a notebook the picture appears as well."""
    print(f"picture: {path}")
    if "ipykernel" in sys.modules:
        from IPython.display import Image, display

        display(Image(path))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.notebooks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    folder = parser.parse_args(argv).folder
    try:
        import jupytext
    except ImportError:
        sys.exit("notebooks are made by jupytext: pip install jupytext notebook")
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(LAB.glob("[1-9]_*.py")):
        text = FIRST_CELL.format(root=str(LAB.parent)) + "\n" + script.read_text(encoding="utf-8")
        jupytext.write(jupytext.reads(text, fmt="py:percent"), folder / f"{script.stem}.ipynb")


if __name__ == "__main__":
    main()
