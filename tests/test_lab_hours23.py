"""Hours 2 and 3 of the course: the numbers that a student is told to expect, and the class's runs in one table."""

import csv
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lab import loop, pool
from lab.blank import write

ROOT = Path(__file__).resolve().parent.parent


def run_hour(name: str, folder: Path, monkeypatch, capsys) -> str:
    """What the hour prints. Its pictures are in `folder`."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_module(f"lab.{name}")
    printed = capsys.readouterr().out
    for picture in re.findall(r"picture: (.+)", printed):
        assert Path(picture).stat().st_size > 10_000, picture
    return printed


def test_hour_2_gives_what_it_expects(tmp_path, monkeypatch, capsys):
    """Makes impossible: an expected number that the code no longer gives, a picture that is not drawn."""
    printed = run_hour("2_loss", tmp_path, monkeypatch, capsys)
    assert printed.count("   expected ") == 15 and "OUTSIDE" not in printed


def test_hour_2_runs_the_students_loss(tmp_path):
    """Makes impossible: an hour that runs the original while a student believes that his functions are right."""
    write(tmp_path / "work")
    command = [sys.executable, "-m", "lab.2_loss", str(tmp_path / "work")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "NotImplementedError: loss.informative" in run.stderr


def hand_in(path: Path, seed: int, scores: dict[int, float], steps: int = 20) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "n", "rate", "steps", "before", "after"])
        writer.writerows([seed, n, 0.001, steps, 0.191, score] for n, score in scores.items())


def test_a_class_in_one_table(tmp_path, monkeypatch, capsys):
    """Makes impossible: a seed that counts twice, a short run in the mean, an interval from the wrong t."""
    monkeypatch.chdir(tmp_path)
    for seed, score in enumerate((0.20, 0.22, 0.27)):
        (tmp_path / f"student{seed}").mkdir()
        hand_in(tmp_path / f"student{seed}" / f"seed{seed}.csv", seed, {4: 0.3, 512: score})
    (tmp_path / "others").mkdir()
    hand_in(tmp_path / "others" / "seed2.csv", 2, {4: 0.9})
    hand_in(tmp_path / "others" / "seed7.csv", 7, {4: 0.9}, steps=3)
    (tmp_path / "others" / "notes.csv").write_text("my notes\n")
    pool.main([str(tmp_path / name) for name in ("student0", "student1", "student2", "others")])
    printed = capsys.readouterr().out
    left_out = re.findall(r"left out: (\S+?):", printed)
    assert [Path(path).name for path in left_out] == ["notes.csv", "seed2.csv", "seed7.csv"]
    half = 4.302653 * np.std([0.20, 0.22, 0.27], ddof=1) / 3**0.5
    assert f"512    0.001      3  0.230 ± {half:.3f}" in printed
    assert (tmp_path / "runs" / "lab" / "class.png").stat().st_size > 10_000


def test_no_file_to_pool_is_named(tmp_path):
    """Makes impossible: a traceback for a teacher who names the wrong folder."""
    with pytest.raises(SystemExit, match="no file can be used"):
        pool.main([str(tmp_path)])


@pytest.mark.slow
def test_hour_3_gives_what_it_expects(tmp_path, monkeypatch, capsys):
    """Makes impossible: a lab whose runs differ from what its text says; a file that pool cannot read.

    N = 16, N = 64 and the second learning rate take one step here, and their numbers are not compared.
    """
    whole = loop.main

    def shorter(argv):
        n, rate = argv[argv.index("--rollouts") + 1], argv[argv.index("--learning_rate") + 1]
        return whole([*argv, "--steps", "20" if n in ("4", "512") and rate == "0.001" else "1"])

    monkeypatch.setattr(loop, "main", shorter)
    printed = run_hour("3_loop", tmp_path, monkeypatch, capsys)
    expected = [line for line in printed.splitlines() if "   expected " in line]
    of_short_runs = [line for line in expected if re.match("pass@1, N = (16|64|512, learning)", line)]
    assert (len(expected), len(of_short_runs)) == (11, 3)
    assert [line for line in expected if "OUTSIDE" in line and line not in of_short_runs] == []
    seed, scores = pool.read(tmp_path / "runs" / "lab" / "seed0.csv")
    assert seed == 0 and len(scores) == 5
