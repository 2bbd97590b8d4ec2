"""What a run says while it trains: one live line on a terminal, one line a step where there is none.

Each evaluation's row, and each sentence about a step, stays above the live line.
"""

from __future__ import annotations

import sys
import time

from tqdm import tqdm

from trainer.progress import Progress
from trainer.report import columns, head, score_line, wrapped
from trainer.settings import Config

BAR = 16  # columns of the bar and the percentage in front of the live line


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
