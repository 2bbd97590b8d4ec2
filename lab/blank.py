"""Write the files of the paper, and the loop, without the bodies of the exercises' functions.

python -m lab.blank WORK                WORK/brorl.py, loss.py, ..., loop.py; each docstring has the formula
python -m lab.blank WORK --hard         the docstring is a hint, and the formula has to be derived
python -m lab.blank WORK --only loop    WORK/loop.py alone; the other files are the originals
"""

import argparse
import ast
import sys
from pathlib import Path

from lab.exercises import EXERCISES, MODULES, STAGES, Exercise

ROOT = Path(__file__).resolve().parent.parent


def blanked(text: str, exercises: list[Exercise], hard: bool = False) -> str:
    """A module's source. The body of each exercise's function raises NotImplementedError with the hint.

    In the loop only stages 4 to 7 are blank, and their comments stay. hard: the module's docstring keeps its first
    line, a function's docstring is the hint, and the comments of the loop's stages go.
    """
    lines, module = text.splitlines(), ast.parse(text)
    functions = {x.name: x for x in module.body if isinstance(x, ast.FunctionDef)}
    # From the last function to the first: line numbers above stay right.
    for exercise in sorted(exercises, key=lambda x: -functions[x.name].lineno):
        function = functions[exercise.name]
        docstring = function.body[0]
        blank = f'    raise NotImplementedError("{exercise.function}: {exercise.hint}")'
        start, end, new = docstring.end_lineno, function.end_lineno, [blank]
        if exercise.module == "loop":
            start, end = (next(i for i, line in enumerate(lines) if line.startswith(stage)) for stage in STAGES)
            comments = [line for line in lines[start:end] if line.lstrip().startswith("#") and not hard]
            new = [*comments, f"    {blank}"]
        elif hard:
            start, new = docstring.lineno - 1, [f'    """{exercise.hint}"""', blank]
        lines[start:end] = new
    if hard:
        head = module.body[0].end_lineno
        lines[:head] = [f'{lines[0]}"""']
    return "\n".join(lines) + "\n"


def write(work: Path, hard: bool = False, only: str | None = None) -> None:
    """Raises FileExistsError before anything is written if one of the files exists: it may be a student's work."""
    work.mkdir(parents=True, exist_ok=True)
    modules = [only] if only else [*MODULES]
    for path in (work / f"{module}.py" for module in modules):
        if path.exists():
            raise FileExistsError(f"{path} exists: name another folder, or move it away")
    for module in modules:
        text = (ROOT / MODULES[module]).read_text(encoding="utf-8")
        exercises = [x for x in EXERCISES if x.module == module]
        (work / f"{module}.py").write_text(blanked(text, exercises, hard), encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.blank", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("work", metavar="WORK", type=Path, help="a folder; it is made if it is not there")
    parser.add_argument("--hard", action="store_true", help="take the formulas out of the docstrings")
    parser.add_argument("--only", choices=MODULES, help="write this file alone")
    args = parser.parse_args(argv)
    try:
        write(args.work, args.hard, args.only)
    except FileExistsError as error:
        sys.exit(str(error))
    written = [exercise for exercise in EXERCISES if args.only in (None, exercise.module)]
    points = sum(exercise.points for exercise in written)
    print(f"{args.work}: {len(written)} to fill in, {points} points. Begin with {written[0].function}; then run")
    print(f"    python -m lab.grade {args.work}" + (f" --only {args.only}" if args.only else ""))


if __name__ == "__main__":
    main()
