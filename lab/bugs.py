"""The bug hunt: eight mistakes that raise no error, each a patch of one line, and the curves of their runs.

    python -m lab.bugs                        what to do
    python -m lab.bugs C --rollouts 16        train with bug C and the settings of the curves, or flags of lab.loop
    python -m lab.bugs --draw lab/curves      draw A.png, ... from A.csv, ... and right_0.csv, ...
    python -m lab.bugs --answers              for the teacher: the bugs, and the metric that reveals each

No file is changed: Python gets the module with the patch in memory, under the name of the right module. C.csv was
written by the second command with --log, right_0.csv to right_2.csv by lab.loop with SETTINGS and the seeds 0 to 2.
"""

import argparse
import importlib
import sys
import types
from pathlib import Path
from typing import NamedTuple

from trainer.files import read_csv
from trainer.pictures import label_axis, panels

ROOT = Path(__file__).resolve().parent.parent
CURVES = ROOT / "lab" / "curves"
SETTINGS = ["--prompts", "32", "--steps", "20", "--learning_rate", "2e-4"]  # of the curves
SEEDS = (0, 1, 2)  # of the right loop; a bug runs with the first

HUNT = """\
lab/curves/A.png to H.png show eight runs of lab.loop, of 20 steps with 32 prompts and N = 64. Each has one bug (red).
The grey band is the range of the right loop over three seeds. A.csv to H.csv have the numbers. They
have the seed of right_0.csv: compare the first two steps line by line. docs/logs.md explains the metrics,
except these: pass@1 and pass@16 are over all rollouts of the step, so they jump; kept counts the prompts that dynamic
sampling keeps, out of 32; clipped is clip_high_fraction + clip_low_fraction. Gradients are clipped to a norm of 1.

1. For each letter, write down the bug, the metric that reveals it, and the function of lab/loop.py, loss.py or
   verify.py where you would look first. A peak outside the band in one step may be chance.
2. Find a setting that makes the bug harmless, or worse. Try it: `python -m lab.bugs D --updates 1`.
3. One letter looks healthy. Which bugs do these curves not show? What would show them?
"""


class Bug(NamedTuple):
    """A patch of one line, and the metric that leaves the band of the right loop."""

    module: str
    right: str  # is in the module once
    wrong: str
    mistake: str = ""
    metric: str = ""
    higher: bool | None = None  # than the right loop; None: no metric shows it
    why: str = ""

    @property
    def path(self) -> Path:
        return ROOT / f"{self.module.replace('.', '/')}.py"

    def patched(self) -> str:
        return self.path.read_text(encoding="utf-8").replace(self.right, self.wrong)


BUGS = {
    "F": Bug("lab.loop", "max_new_tokens=12, ", "max_new_tokens=12, temperature=0.7, ",
             "The engine samples at temperature 0.7, the loss scores at 1.", "engine_difference", True,
             "It is positive from step 1 and does not grow: engine and trainer have the same weights."),
    "C": Bug("lab.loop", "TorchEngine(model)", "TorchEngine(copy.deepcopy(model))",
             "The engine never gets the new weights.", "engine_difference", True,
             "It is 0 in step 1 and grows; pass@1 stays, because no rollout comes from the trained policy."),
    "H": Bug("lab.loop", "log_probs(ref_policy, batch)", "log_probs(model, batch)",
             "The reference is the policy of the same step.", "kl_ref", False,
             "It stays where step 1 leaves it: it only sees the updates of one step."),
    "A": Bug("lab.loop", "view(-1, n)", "view(n, -1).T",
             "The verdicts (P, N) are laid out as (N, P): rollouts get the verdicts of other prompts.", "kept", True,
             "pass@1 of step 1 is right, pass@16 is far too high: each row holds rollouts of all prompts."),
    "E": Bug("lab.loop", "            optimizer.zero_grad()\n", "",
             "Gradients are never set to zero: each update adds to the sum of all before.", "grad_norm", True,
             "It is above 1 from step 1: the old sum, which clipping cuts to 1, and the new gradient."),
    "D": Bug("loss", "ratio = importance_ratio(b.logp, b.old_logp)",
             "ratio = importance_ratio(b.logp, b.logp.detach())",
             "The ratio divides by the current policy; the logged old log-probs are right.", "clipped", False,
             "The ratio is always 1, so the clip never acts, and kl_old grows."),
    "G": Bug("loss", "repeat_interleave(self.lengths, output_size=len(self.logp))",
             "repeat_interleave(self.lengths).index_fill(0, self.lengths.cumsum(0) - 1, 0.0)",
             "The last token of each response, the EOS, is not trained on.", "nll", None,
             "No metric reveals it: the nll of an EOS is 3e-5. test_loss.py::test_loss_against_a_loop finds it."),
    "B": Bug("verify", '_evaluate(tree) == reference["target"]',
             'abs((_evaluate(tree) or 0) - reference["target"]) <= 1',
             "The verifier accepts a value that is off by 1, and the policy trains on such answers.", "pass@1", True,
             "pass@1 is too high in step 1, when the policy still equals the right loop's."),
}  # fmt: skip


LENIENT = Bug("verify", '== reference["target"]', '>= reference["target"]')  # for hour 3, not one of the eight


def load(bug: Bug) -> types.ModuleType:
    """The module with the patch. `import` still finds the right one."""
    module = types.ModuleType(bug.module)
    module.__file__ = str(bug.path)
    exec(compile(bug.patched(), str(bug.path), "exec"), module.__dict__)
    return module


def read(path: Path) -> dict[str, list[float]]:
    """A log of lab.loop by columns."""
    rows = read_csv(path)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["clipped"] = [sum(x) for x in zip(columns["clip_high_fraction"], columns["clip_low_fraction"], strict=True)]
    return columns


def runs_of(folder: Path, letter: str) -> tuple[dict[str, list[float]], list[dict[str, list[float]]]]:
    """The run with the bug, and the runs of the right loop."""
    return read(folder / f"{letter}.csv"), [read(folder / f"right_{seed}.csv") for seed in SEEDS]


def draw(folder: Path, letter: str) -> None:
    """A panel for each metric: the run with the bug, on the band of the right loop."""
    with_bug, right_runs = runs_of(folder, letter)
    names = "pass@1 pass@16 kept response_tokens nll clipped kl_old kl_ref engine_difference grad_norm"
    figure, axes = panels(
        2, 5, f"{letter}: the run with the bug (red), the right loop with three seeds (grey)", (2.2, 2.1)
    )
    for ax, name in zip(axes.flat, names.split(), strict=True):
        band = list(zip(*(run[name] for run in right_runs), strict=True))
        ax.fill_between(with_bug["step"], [min(x) for x in band], [max(x) for x in band], color="0.75")
        ax.plot(with_bug["step"], with_bug[name], color="tab:red")
        label_axis(ax, name, "step")
    axes[1, 3].set(yscale="log", ylim=(1e-7, 3))
    axes[0, 3].margins(y=0.5)
    axes[1, 4].axhline(1, color="black", linewidth=0.8, linestyle=":")  # clipped to this norm
    figure.savefig(folder / f"{letter}.png")


def revealing(letter: str) -> tuple[float, float, float]:
    """The metric that reveals a bug, a mean over the last five steps: with the bug, and its range over right runs."""
    with_bug, right_runs = runs_of(CURVES, letter)
    means = [sum(run[BUGS[letter].metric][-5:]) / 5 for run in [with_bug, *right_runs]]
    return means[0], min(means[1:]), max(means[1:])


def answers() -> str:
    lines = []
    for letter, bug in sorted(BUGS.items()):
        number, least, greatest = revealing(letter)
        line = bug.path.read_text(encoding="utf-8").partition(bug.right)[0].count("\n") + 1
        lines.append(f"{letter}  {bug.mistake}  {bug.path.relative_to(ROOT).as_posix()}:{line}")
        lines.append(f"   {bug.metric} {number:.3g}; the right loop has {least:.3g} to {greatest:.3g}. {bug.why}")
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    if argv and argv[0] in BUGS:
        sys.modules[BUGS[argv[0]].module] = load(BUGS[argv[0]])  # `import` finds the module with the patch
        importlib.import_module("lab.loop").main([*SETTINGS, *argv[1:]])
        return
    parser = argparse.ArgumentParser(prog="python -m lab.bugs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", metavar="FOLDER", type=Path, help="draw the curves of its CSV files")
    parser.add_argument("--answers", action="store_true", help="for the teacher")
    args = parser.parse_args(argv)
    if args.draw:
        for letter in BUGS:
            draw(args.draw, letter)
    else:
        print(answers() if args.answers else HUNT)


if __name__ == "__main__":
    main(sys.argv[1:])
