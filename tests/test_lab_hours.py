"""The hours of the course: questions come before numbers, and numbers are in their ranges; a class in one table."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lab import hours, notebooks, pool
from lab.blank import write

ROOT = Path(__file__).resolve().parent.parent


HOURS = ["1_mass", *(pytest.param(name, marks=pytest.mark.slow) for name in ("2_loss", "3_loop"))]


@pytest.mark.parametrize("name", HOURS)
def test_an_hour_asks_and_gives_the_expected_numbers(name, tmp_path, monkeypatch, capsys):
    """Makes impossible: a number outside its range that is not marked, results before the questions, a lost picture, a
    seedX.csv that pool refuses. Hour 3 takes 5 minutes of one core.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: print("ENTER"))
    runpy.run_module(f"lab.{name}")
    printed, script = capsys.readouterr().out, (ROOT / f"lab/{name}.py").read_text()
    ranges = (ROOT / "lab/expected.csv").read_text().count(f"\n{name[0]},")
    assert printed.count("   expected ") == ranges > 10 and "OUTSIDE" not in printed
    hours.compare("sets that lower Q_pos", 2)
    assert "OUTSIDE" in capsys.readouterr().out
    head, *parts = printed.split("ENTER\n")
    assert "expected" not in head and all("**W" in part for part in [head, *parts[:-1]]) and not parts[-1]
    assert printed.count("**W") == script.count("**W") - 1  # one is in the head of the script
    assert all(Path(picture).stat().st_size > 10_000 for picture in re.findall(r"picture: (.+)", printed))
    if name == "3_loop":
        seed, scores = pool.read(tmp_path / "runs/lab/seed0.csv")
        assert seed == 0 and len(scores) == 5


TWO_HOURS = """
import runpy, sys
path = [*sys.path]
for name in ("1_mass", "2_loss"):
    try:
        runpy.run_module(f"lab.{name}", run_name="__main__", alter_sys=True)
    except NotImplementedError as blank:
        print("blank:", blank)
    sys.path[:] = path
"""


def test_an_hour_stops_at_the_students_first_blank(tmp_path):
    """Makes impossible: an hour that runs the originals in place of the student's files; one that waits in a pipe."""
    write(tmp_path / "work")
    command = [sys.executable, "-c", TWO_HOURS, str(tmp_path / "work")]
    run = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert re.findall("^blank: (.+?):", run.stdout, re.M) == ["brorl.masses", "loss.informative"], run.stderr


def test_an_hour_as_a_notebook(tmp_path):
    """Makes impossible: a notebook that does not find the repository, or whose text became code."""
    jupytext = pytest.importorskip("jupytext")
    notebooks.main([str(tmp_path)])
    cells = jupytext.read(tmp_path / "1_mass.ipynb").cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    assert len(cells) > len(code) and "Write down" not in "".join(code)
    script = "\n".join([*code[:2], "print(brorl.__file__)"])
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(ROOT / "brorl.py")


def hand_in(path: Path, seed: int, scores: dict[int, float], steps: int = 20) -> None:
    rows = [f"{seed},{n},0.001,{steps},0.191,{score}\n" for n, score in scores.items()]
    path.write_text("seed,n,rate,steps,before,after\n" + "".join(rows))


def test_a_class_in_one_table(tmp_path, capsys):
    """Makes impossible: a seed that counts twice, a short run in the mean, an interval from the wrong t, an empty table
    for a wrong folder.
    """
    with pytest.raises(SystemExit, match=r"seedX\.csv"):
        pool.main([str(tmp_path)])
    for seed, score in enumerate((0.20, 0.22, 0.27)):
        hand_in(tmp_path / f"a{seed}.csv", seed, {4: 0.3, 512: score})
    hand_in(tmp_path / "again.csv", 2, {4: 0.9})
    hand_in(tmp_path / "short.csv", 7, {4: 0.9}, steps=3)
    (tmp_path / "notes.csv").write_text("my notes\n")
    pool.main([str(tmp_path)])
    printed = capsys.readouterr().out
    left_out = re.findall(r"left out: (\S+?):", printed)
    assert [Path(path).name for path in left_out] == ["again.csv", "notes.csv", "short.csv"]
    half = 4.302653 * np.std([0.20, 0.22, 0.27], ddof=1) / 3**0.5
    assert f"512    0.001      3  0.230 ± {half:.3f}" in printed
