"""What a run prints before and after it trains, and its picture."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from helpers import ROOT, begin, small

from trainer.progress import Progress
from trainer.report import BAR, Screen, before_and_after, curves, fit, wrapped
from trainer.run import rows_of
from trainer.settings import Config

STEP = {"reward": 0.123, "pass_rate": 0.75, "kl_ref": 1e-4, "reason/timeout": 12}
SCORES = {"pass@1": 0.25, "pass@1_se": 0.01, "pass@4": 0.5, "response_tokens": 8.0, "truncated": 0.125}


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_line_is_broken_between_words(monkeypatch, columns):
    """Makes impossible: a word, a path or a flag broken where the terminal ends."""
    monkeypatch.setenv("COLUMNS", str(columns))
    line = "  settings    --max_tokens_per_micro_batch 32,768 and other-words of runs/a-name/model, " * 5
    rows = wrapped(line, 14).split("\n")
    assert " ".join(rows).split() == line.split() and len(rows) > 3
    assert all(len(row) < columns for row in rows) and all(row.startswith(" " * 14) for row in rows[1:])
    assert wrapped("short", 14) == "short"


def test_two_scores_that_part_have_a_sentence(monkeypatch):
    """Makes impossible: pass@4 called fallen for one problem of 32; a table without a word where it did fall."""
    monkeypatch.setenv("COLUMNS", "80")

    rows = {f"step {i}": SCORES | {"pass@1": float(i)} for i in (0, 5, 9)}

    def said(last: list[int]) -> bool:
        text = before_and_after(rows, [{"k": 4, "correct": [1] * 32}, {"k": 4, "correct": last}])
        assert "step 5" not in text and "step 9" in text
        return "pass@1 rose while pass@4 fell" in " ".join(text.split())

    assert said([4] * 20 + [0] * 12)
    assert not said([4] * 31 + [0])  # one problem
    assert not said([2] * 20 + [0] * 12)  # pass@1 rose by less than its error
    assert not said([2] * 32)  # pass@4 did not fall
    few = {k: v for k, v in SCORES.items() if k != "pass@4"}  # --eval_samples 1
    assert "rose" not in before_and_after({"step 0": few, "step 9": few}, [{"k": 1, "correct": [0, 1]}] * 2)


def test_the_curves_are_drawn_from_metrics_alone(finished, tmp_path):
    """Makes impossible: a picture that needs a metric which not every step has, or none at the end of a run."""
    metrics = tmp_path / "metrics.jsonl"
    rows = (finished / "run/metrics.jsonl").read_text().splitlines(keepends=True)
    metrics.write_text(rows[0] + '{"step": 1, "samples": 9, "reward": 0.0, "pass_rate": 0.0}\n' + rows[2] + '{"torn')
    curves(rows_of(metrics), tmp_path / "curves.png", "a title")
    assert os.stat(tmp_path / "curves.png").st_size > 10_000
    assert (finished / "run/curves.png").stat().st_size > 10_000


# ------------------------------------------------------------------------------------- while it trains


def test_what_does_not_fit_is_left_out_from_the_end():
    """Makes impossible: a part cut in two, a less important part in place of a more important one."""
    parts = ["one", "two", "three", "x"]
    assert [fit(parts, width) for width in (3, 6, 7, 13, 14, 17)] == [
        "one", "one", "one two", "one two", "one two, three", "one two, three, x",
    ]  # fmt: skip
    assert fit(["longer than the line"], 3) == "longer than the line"


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("budget", [{"max_steps": 5000}, {"max_hours": 100.0}])
def test_the_live_line_has_pace_and_time_left_on_a_narrow_terminal(monkeypatch, columns, budget):
    """Makes impossible: samples/s and the time left lost at 80 or 100 columns, or a line longer than the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = Progress(step=1234, samples=10**6, seconds=100_000.0)
    screen = Screen(Config(**budget), progress, main=True)
    screen.stepped(STEP, 12_345.6)
    for stage in ("", "rolling out 4,096 x 512", "updating on 65,536"):
        screen.doing(stage)
        line = screen.line()
        assert re.search(r"\[27:46:4\d<(\d+ days, )?[\d:]+, 12,346 samples/s\]", line), line
        assert line.startswith("step 1234") and (stage in line or columns == 80)
        assert len(line) + BAR * bool(budget.get("max_steps")) < columns


def test_the_more_important_facts_come_first(monkeypatch):
    """Makes impossible: a KL that displaces the reward; timeouts that nobody sees; a stage shown after its step."""
    monkeypatch.setenv("COLUMNS", "300")
    screen = Screen(Config(max_steps=10), Progress(step=1, seconds=1.0), main=True)
    screen.doing("updating on 32")
    screen.stepped(STEP, 10)
    assert screen.line().endswith("samples/s] reward 0.123, kept 75%, 12 timeout, KL 0.0001")


def test_each_evaluation_has_its_row_and_the_first_a_head(capsys):
    """Makes impossible: scores that only the end shows, a head above every row, another process that speaks too."""
    scores = {"pass@1": 0.25, "pass@1_se": 0.01, "pass@4": 0.5, "response_tokens": 8.0, "truncated": 0.125}
    for main in (True, False):
        screen = Screen(Config(max_steps=10), Progress(), main)
        for step in (0, 10):
            screen.evaluated(f"step {step}", scores)
        screen.say(10, "something happened")
        screen.stepped(STEP, 10)
    out = capsys.readouterr().out
    head, *rows, said, step = out.splitlines()
    assert head.split() == ["pass@1", "±", "s.e.", "pass@4", "tokens", "truncated"]
    assert [row.split() for row in rows] == [
        ["step", step, "0.250", "±", "0.010", "0.500", "8.0", "12.5%"] for step in ("0", "10")
    ]
    assert head.index("pass@4") + len("pass@4") == rows[0].index("0.500") + len("0.500")
    assert said == "step 10: something happened" and step.startswith("step 0/10 [")


def test_without_a_terminal_a_step_is_a_line(tmp_path):
    """Makes impossible: hundreds of lines of progress bars in a log file, or one without a word for hours."""
    said = begin(tmp_path, "--max_steps=3", "--eval_every=0").ended()
    trained = said.partition("engine and trainer agree")[2].partition("\n\n")[2].splitlines()
    steps = [line for line in trained if re.match(r"step \d/3 \[", line)]
    assert [line[:8] for line in steps] == ["step 1/3", "step 2/3", "step 3/3"]
    assert all("samples/s" in line and "reward" in line for line in steps)
    assert "\r" not in said and "%|" not in said and "it/s" not in said
    assert len(trained) <= 20  # beside them: two rows of scores with a head, the same at the end, what was written


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 100])
def test_a_run_on_a_terminal(tmp_path, columns):
    """Makes impossible: a word broken where the terminal ends, a live line that wraps or lacks pace and time left."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, ROOT / "train.py", *small(tmp_path, "--max_steps=12")]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    said = b""
    try:
        while part := os.read(main, 4096):
            said += part
    except OSError:  # the other end has closed
        pass
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    shown = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    assert max(map(len, shown)) <= columns, max(shown, key=len)
    live = [line for line in shown if re.search(r"\| step \d+/12 \[", line)]
    paced = [line for line in live if "samples/s" in line]
    assert {line.partition("| step ")[2].split("/")[0] for line in live} >= {str(step) for step in range(1, 12)}
    assert len(paced) > len(live) / 2 and all(re.search(r"<[\d:]+, [\d,]+ samples/s\]", line) for line in paced)
    rows = [line for line in shown if re.match(r"step (0|5|10|12) +\d\.\d{3} ± ", line)]
    assert len(rows) == 4 + 2  # each evaluation's, and the first and the last once more at the end
