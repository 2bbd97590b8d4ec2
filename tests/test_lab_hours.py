"""The hours of the course: the numbers that a student is told to expect are those of a run."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from lab import notebooks
from lab.blank import write

ROOT = Path(__file__).resolve().parent.parent


def test_hour_1_gives_what_it_expects(tmp_path, monkeypatch, capsys):
    """Makes impossible: an expected number that the code no longer gives, a picture that is not drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["1_mass"])
    runpy.run_module("lab.1_mass")
    printed = capsys.readouterr().out
    assert printed.count("   expected ") == 22 and "OUTSIDE" not in printed
    for picture in re.findall(r"picture: (.+)", printed):
        assert Path(picture).stat().st_size > 20_000, picture


def test_hour_1_runs_the_students_functions(tmp_path):
    """Makes impossible: an hour that runs the originals while a student believes that his functions are right."""
    write(tmp_path / "work")
    command = [sys.executable, "-m", "lab.1_mass", str(tmp_path / "work")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "NotImplementedError: brorl.masses" in run.stderr


def test_a_number_outside_its_range_is_marked(capsys):
    """Makes impossible: a test of the hours that passes whatever they print."""
    notebooks.compare("a", 1.0, 0.5, 1.5)
    notebooks.compare("b", 2.0, 0.5, 1.5)
    assert ["OUTSIDE" in line for line in capsys.readouterr().out.splitlines()] == [False, True]


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


def test_a_missing_jupytext_is_named(tmp_path, monkeypatch):
    """Makes impossible: a traceback where one package is missing."""
    monkeypatch.setitem(sys.modules, "jupytext", None)
    with pytest.raises(SystemExit, match="pip install jupytext"):
        notebooks.main([str(tmp_path)])
