"""simulator/: sim.py's command line, its CSV and its tables."""

import csv

import numpy as np
import pytest

import sim
from simulator.curves import Curves, steps_to_record, table_at_equal_samples, theorem_1

ARGUMENTS = ["--vocabulary", "300", "--correct_tokens", "40", "--steps", "23", "--rollouts", "4", "32", "--seeds", "2"]

pytestmark = pytest.mark.usefixtures("one_thread")


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_recorded_steps_end_where_the_run_does():
    """A thinned record that misses step 0, the paper's last step or the final one would compare other steps."""
    assert steps_to_record(30, 1000).tolist() == list(range(31))
    steps = steps_to_record(128_000, 1000)
    assert steps[:1001].tolist() == list(range(1001)) and steps[-1] == 128_000
    assert len(steps) < 1100 and (np.diff(steps) > 0).all()


def test_command_line_writes_the_figure_and_the_same_csv_twice(tmp_path):
    """A run that cannot be repeated from its seed, or a CSV whose rows miss the last step or miscount the samples."""
    for name in ("one", "two"):
        sim.main([*ARGUMENTS, "--out", str(tmp_path / name)])
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "figure3.csv").read_bytes() == (two / "figure3.csv").read_bytes()
    assert (one / "figure3.png").stat().st_size > 10_000
    rows = read_csv(one / "figure3.csv")
    assert list(rows[0]) == ["seed", "N", "step", "samples", "correct_mass", "percent_improved", "worst_drop", "anchor"]
    assert [int(row["step"]) for row in rows[:4]] == [0, 10, 20, 23]
    assert {(row["seed"], row["N"]) for row in rows} == {(s, n) for s in "01" for n in ("4", "32")}
    assert all(int(row["samples"]) == int(row["N"]) * int(row["step"]) for row in rows)


def test_sweep_draws_equal_samples(tmp_path):
    """Curves compared at equal samples of which one stops short, or a --mass_balance that does nothing."""
    sim.main([*ARGUMENTS, "--sweep", "--out", str(tmp_path)])
    rows = read_csv(tmp_path / "sweep.csv")
    assert {row["N"]: int(row["samples"]) for row in rows} == {"4": 32 * 23, "32": 32 * 23}
    sim.main([*ARGUMENTS, "--mass_balance", "--out", str(tmp_path)])
    assert read_csv(tmp_path / "figure3.csv")[0].keys() == rows[0].keys() > {"centred_coupling", "linear_step"}
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


def test_tables_by_hand():
    """An N read at another's samples, or a share of steps that lose mass counted the other way round."""
    steps, one = np.arange(5), np.array([[1.0, 1.0, 1.0, -5.0]])
    masses = {2: [0.0, 0.1, 0.2, 0.3, 0.4], 4: [0.0, 0.5, 0.6, 0.7, 0.8]}
    curves = [
        Curves(0, (n,), steps, dict.fromkeys(("correct_mass", "percent_improved", "worst_drop"), np.array([mass])))
        for n, mass in masses.items()
    ]
    at_8 = [line.split()[-4] for line in table_at_equal_samples(curves, 8).splitlines()[1:3]]
    assert at_8 == ["0.4000", "0.6000"]  # step 4 of N = 2, step 2 of N = 4
    terms = dict.fromkeys(("mood", "sampled_correct", "sampled_incorrect", "unsampled_coupling"), one)
    assert theorem_1([Curves(0, (4,), steps, terms)]).split()[-2:] == ["-1.5e+00", "25.0%"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--correct_tokens", "300"], "correct_tokens=300"),
        (["--correct_tokens", "0"], "correct_tokens=0"),
        (["--steps", "0"], "steps=0"),
        (["--rollouts", "4", "0"], "--rollouts"),
        (["--rollouts", "4", "4"], "--rollouts 4 4"),
        (["--seeds", "0"], "--seeds 0"),
        (["--temperature", "0"], "temperature=0"),
        (["--samples", "100"], "--sweep"),
        (["--out", "file"], "--out file"),
    ],
)
def test_wrong_flags_are_named_before_the_run(arguments, named, tmp_path, monkeypatch, capsys):
    """A traceback, a run on nonsense, or a result that cannot be saved, where one sentence says what to change."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sim, "simulate", lambda *a, **k: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as exit_:
        sim.main([*ARGUMENTS, *arguments])
    error = capsys.readouterr().err
    assert exit_.value.code == 2 and named in error and error.startswith("sim.py: ") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
