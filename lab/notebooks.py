"""Write the three hours as notebooks.

python -m lab.notebooks FOLDER     FOLDER/1_mass.ipynb, ...; needs `pip install jupytext notebook`
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
