"""What a run prints before, while and after it trains, and the picture that it leaves."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import textwrap
import time
from pathlib import Path

from tqdm import tqdm

import brorl
from trainer.progress import Progress
from trainer.settings import Config

BAR = 16  # columns of the bar and the percentage in front of the live line
KINDS_OF_SCORE = ("pass@1", "pass@1_se")


def short(path: str) -> str:
    """A path as one would type it from here; a hub name stays."""
    return min(path, os.path.relpath(path), key=len) if os.path.exists(path) else path


def size(bytes: float) -> str:
    return f"{bytes / 2**30:.2f} GiB" if bytes >= 2**30 else f"{bytes / 2**20:.0f} MiB"


def columns() -> int:
    """Of the terminal; 120 where there is none."""
    return shutil.get_terminal_size((120, 24)).columns


def wrapped(line: str, indent: int) -> str:
    """A line that is broken between words where the terminal ends, and goes on under its `indent`-th column."""
    return textwrap.fill(
        line,
        max(columns() - 1, indent + 20),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def protocol(config: Config, held_out: list, cut: str = "") -> str:
    """What a score is a score of. cut: why the responses are no longer, if the recipe would have them longer."""
    style = f" {config.chat_style}" if config.chat_style else ""
    return (
        f"{len(held_out)} held-out problems{style}, {config.eval_samples} responses each, cut at "
        f"{config.eval_max_response_tokens:,} tokens{cut}, at temperature {config.eval_temperature}, "
        f"top-p {config.eval_top_p}, seed {config.eval_seed}"
    )


def table(rows: dict[str, dict[str, float]]) -> str:
    """Scores, a policy or a source a line: pass@1 ± standard error, pass@k, response length."""
    width = max(map(len, rows))
    return "\n".join([head(rows, width), *(score_line(name, row, width) for name, row in rows.items())])


def head(rows: dict[str, dict[str, float]], width: int) -> str:
    first = next(iter(rows.values()))
    line = " " * width + "  pass@1 ± s.e.    " + "".join(f"{k:>9}" for k in pass_at(first)) + "   tokens  truncated"
    return line + "  problems" * ("problems" in first)


def score_line(name: str, row: dict[str, float], width: int) -> str:
    scores = "".join(f"{row[k]:9.3f}" for k in pass_at(row))
    line = f"{name:{width}}  {row['pass@1']:.3f} ± {row['pass@1_se']:.3f}    {scores}   "
    line += f"{row['response_tokens']:6.1f}  {row['truncated']:9.1%}"
    return line + (f"  {row['problems']:8,}" if "problems" in row else "")


def pass_at(row: dict[str, float]) -> list[str]:
    return [name for name in row if name.startswith("pass@") and name not in KINDS_OF_SCORE]


def paired_t(before: dict, after: dict, m: int) -> float:
    """The change of pass@m between two lines of eval.jsonl, over the standard error of the paired difference."""
    first, last = ([brorl.pass_at_k_estimate(x["k"], c, m) for c in x["correct"]] for x in (before, after))
    change = [b - a for a, b in zip(first, last, strict=True)]
    error = statistics.stdev(change) / math.sqrt(len(change)) if len(change) > 1 else 0.0
    return statistics.fmean(change) / error if error else 0.0


def before_and_after(rows: dict[str, dict[str, float]], answers: list[dict]) -> str:
    """The first and the last evaluation, and a sentence where pass@1 rose and pass@k fell, by two standard errors each.

    answers: the lines of eval.jsonl.
    """
    first, last = (next(iter(rows)), list(rows)[-1])
    text = table({first: rows[first], last: rows[last]})
    largest = pass_at(rows[last])[-1] if pass_at(rows[last]) else "pass@1"
    rose, fell = (paired_t(answers[0], answers[-1], m) for m in (1, int(largest.removeprefix("pass@"))))
    if rose > 2 and fell < -2:
        text += "\n" + wrapped(
            f"pass@1 rose while {largest} fell: on some problems right answers became likelier, on others so rare "
            f"that {largest.removeprefix('pass@')} tries no longer find one.",
            0,
        )
    return text


def fit(parts: list[str], width: int) -> str:
    """As many of these parts, in this order, as a line of `width` columns holds; the first one in any case."""
    line = parts[0]
    for i, part in enumerate(parts[1:]):
        part = (", " if i else " ") + part
        if len(line) + len(part) > width:
            break
        line += part
    return line


class Screen:
    """The lines of one run. On all but the main process it says nothing."""

    def __init__(self, config: Config, progress: Progress, main: bool):
        self.config, self.progress, self.main = config, progress, main
        self.live = main and sys.stderr.isatty()
        self.what = self.pace = ""
        self.facts: list[str] = []
        self.headed = False
        shape = "{percentage:3.0f}%|{bar:8}| {desc}" if config.max_steps else "{desc}"
        self.bar = tqdm(
            total=config.max_steps, initial=progress.step, disable=not self.live, bar_format=shape, leave=False
        )

    def doing(self, what: str) -> None:
        """The stage that begins now."""
        self.what = what
        self.bar.set_description_str(self.line())

    def line(self) -> str:
        """Step, time, pace, stage, and of the last step's facts what the terminal has room for."""
        steps = f"step {self.progress.step}" + (f"/{self.config.max_steps}" if self.config.max_steps else "")
        clock = tqdm.format_interval(time.perf_counter() - self.progress.started)
        head = f"{steps} [{clock}{self.pace}]"
        room = columns() - 1 - (BAR if self.config.max_steps else 0)
        return fit([head, *filter(None, [self.what, *self.facts])], room)

    def say(self, step: int, sentence: str) -> None:
        """What should not be overlooked, and stays."""
        if self.main:
            line = f"step {step}: {sentence}"
            self.bar.write(wrapped(line, 2) if self.live else line)

    def evaluated(self, name: str, scores: dict[str, float]) -> None:
        """A row of scores; the first one with its head."""
        if not self.main:
            return
        width = len("step ") + len(str(max(self.config.max_steps or 0, 9999)))
        if not self.headed:
            self.bar.write(head({"": scores}, width))
            self.headed = True
        self.bar.write(score_line(name, scores, width))

    def stepped(self, metrics: dict[str, float], rate: float) -> None:
        """The facts of a step that is done, the more important first."""
        reasons = {name: int(metrics.get(f"reason/{name}", 0)) for name in ("timeout", "crashed")}
        self.facts = [f"reward {metrics['reward']:.3f}", f"kept {metrics['pass_rate']:.0%}"]
        self.facts += [f"{count:,} {name}" for name, count in reasons.items() if count]
        self.facts += [f"KL {metrics['kl_ref']:.2g}"] if "kl_ref" in metrics else []
        self.pace = f"<{self.progress.time_left(self.config)}, {rate:,.0f} samples/s"
        self.what = ""
        self.bar.update()
        self.bar.set_description_str(self.line())
        if self.main and not self.live:
            print(self.line(), flush=True)

    def close(self) -> None:
        self.bar.close()


def curves(rows: list[dict], out: Path, title: str) -> None:
    """Held-out pass@k, training reward, pass rate of dynamic sampling, entropy and KL, over the samples drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    steps, evals = [r for r in rows if "reward" in r], [r for r in rows if "eval/pass@1" in r]
    scores = [name for name in evals[0] if name.startswith("eval/pass@") and not name.endswith("_se")]
    panels = [
        ("held-out pass@k (band: two standard errors)", evals, scores),
        ("training reward; share of prompts kept", steps, ["reward", "pass_rate"]),
        ("entropy (nats a token)", steps, ["entropy"]),
        ("KL to the reference; KL(engine, trainer)", steps, ["kl_ref", "engine_kl"]),
        ("share of tokens clipped", steps, ["clip_high_fraction", "clip_low_fraction"]),
        ("gradient norm", steps, ["grad_norm"]),
    ]
    figure, axes = plt.subplots(2, 3, figsize=(13, 6.5), layout="constrained")
    for axis, (name, points, series) in zip(axes.flat, panels, strict=True):
        for key in series:
            here = [r for r in points if key in r]
            axis.plot([r["samples"] for r in here], [r[key] for r in here], label=key.removeprefix("eval/"), lw=1.5)
        if name.startswith("held-out"):
            x, y, se = ([r[k] for r in evals] for k in ("samples", "eval/pass@1", "eval/pass@1_se"))
            low, high = ([a + sign * s for a, s in zip(y, se, strict=True)] for sign in (-2, 2))
            axis.fill_between(x, low, high, alpha=0.2)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("samples generated")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
        if len(series) > 1:
            axis.legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(out, dpi=110)
    plt.close(figure)
