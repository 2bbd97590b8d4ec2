"""Draw recipes.png and hard_prompts.png of docs/evidence/ from their CSVs: python -m tools.redraw"""

from collections import defaultdict

import numpy as np

from tools.plans import EVIDENCE
from trainer.files import read_csv
from trainer.pictures import common_legend, finish, panels

COLOURS = {"16": "#0072B2", "64": "#009E73", "512": "#D55E00", "512:64": "#CC79A7"}
NAMES = {"16": "N = 16", "64": "N = 64", "512": "N = 512", "512:64": "N = 512, trained on 64"}


def by(rows, *names):
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def recipes():
    figure, axes = panels(2, 3, "The recipes of N = 512 and N = 16: mean over three seeds, and their range", (4.3, 3.9))
    models = {"embedded": "tiny policy, B = 32 and 128", "smollm": "SmolLM2-135M, B = 4 and 16"}
    for row, ((model,), rows) in zip(
        axes, by(read_csv(EVIDENCE / "recipes.csv", ("model", "recipe")), "model").items(), strict=True
    ):
        broad = "pass@64" if rows[0]["pass@64"] != "" else "pass@4"
        for axis, (x, y) in zip(row, (("samples", "pass@1"), ("seconds", "pass@1"), ("samples", broad)), strict=True):
            for n in ("512", "16"):
                runs = [*by([r for r in rows if r["N"] == float(n)], "seed").values()]
                grid = np.linspace(0, min(run[-1][x] for run in runs), 60)
                seeds = np.array([np.interp(grid, [r[x] for r in run], [r[y] for r in run]) for run in runs])
                axis.plot(grid, seeds.mean(0), color=COLOURS[n], label=NAMES[n])
                axis.fill_between(grid, seeds.min(0), seeds.max(0), color=COLOURS[n], alpha=0.2, linewidth=0)
            finish(axis, models[model], "samples generated" if x == "samples" else "seconds of training")
            axis.set_ylabel(f"held-out {y}")
    common_legend(figure)
    figure.savefig(EVIDENCE / "recipes.png")


def hard_prompts():
    rows = [row for row in read_csv(EVIDENCE / "hard_prompts.csv", ("arm",)) if not row["tuning"]]
    pairs = [(32, "16"), (32, "64"), (32, "512:64"), (128, "16")]
    title = "Hard problems, prompts of 124 tokens: each seed, and the mean of each N in bold"
    figure, axes = panels(2, 2, title, (5.2, 3.6))
    for axis, (b, other) in zip(axes.flat, pairs, strict=True):
        for arm in (other, "512"):
            runs = [*by([r for r in rows if r["B"] == b and r["arm"] == arm], "seed").values()]
            grid = np.geomspace(2, max(run[-1]["cpu_seconds"] for run in runs), 200)
            before = [np.searchsorted([r["cpu_seconds"] for r in run], grid, side="right") - 1 for run in runs]
            seeds = np.array([[run[i]["q_pos"] for i in some] for run, some in zip(runs, before, strict=True)])
            axis.plot(grid, seeds.T, color=COLOURS[arm], lw=0.7, alpha=0.5)
            axis.plot(grid, seeds.mean(0), color=COLOURS[arm], lw=2.5, label=NAMES[arm])
        axis.set(xscale="log", yscale="log", ylabel="Q_pos, held-out")
        axis.set_xticks((2, 5, 10, 20, 50, 100), map(str, (2, 5, 10, 20, 50, 100)))
        axis.minorticks_off()
        finish(axis, f"B = {b}: {NAMES[other]}, and N = 512", "processor seconds")
    common_legend(figure)
    figure.savefig(EVIDENCE / "hard_prompts.png")


recipes()
hard_prompts()
