"""The three hours as notebooks, and the functions that the hours share.

python -m lab.notebooks FOLDER     FOLDER/1_mass.ipynb, ...; needs `pip install jupytext`
"""

import argparse
import sys
from pathlib import Path

LAB = Path(__file__).resolve().parent
FIRST_CELL = """# %%
import os, sys
os.chdir({root!r})  # pictures go to runs/lab/ there
sys.path.insert(0, "")
sys.argv[1:] = []  # ["work"]: the functions of your files in work/; in hour 3 ["17", "work"]
"""


def compare(name: str, value: float, low: float, high: float) -> None:
    """Prints a number of this run and its range with other seeds."""
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
        sys.exit("notebooks are made by jupytext: pip install jupytext")
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(LAB.glob("[1-9]_*.py")):
        text = FIRST_CELL.format(root=str(LAB.parent)) + "\n" + script.read_text(encoding="utf-8")
        jupytext.write(jupytext.reads(text, fmt="py:percent"), folder / f"{script.stem}.ipynb")


if __name__ == "__main__":
    main()
