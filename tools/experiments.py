"""Run and draw the experiments of docs/evidence/: NAME.toml is the plan, NAME.csv has the data, NAME.png the picture.

    python -m tools.experiments run NAME [PATH=FILE ...]    make the missing runs; started again, it continues
    python -m tools.experiments show NAME                   the table, and each prediction beside its measurement
    python -m tools.experiments try NAME [PATH=FILE ...]    a small version of the plan: about ten minutes on two cores

Two runs are made at the same time, on one core each; `jobs=1` makes one at a time.

In the table "undecided" means that the 95% Welch interval of the difference includes 0 (of a ratio: the interval of the
logarithms), or that an arm has one seed.

A row of the CSV is an evaluation. `samples` counts dropped rollouts too, `trained` those of informative groups.
`processor_seconds` is the time of training, without evaluation. All three are sums since the start.

A changed plan, or a changed file of a path, does not continue a CSV. A CSV is replaced as a whole, so a kill or a full
disk loses no row. The folders of the runs stay in runs/experiments/ until you delete them.

key of NAME.toml   meaning
question           one sentence
paths              names that the command line must give, such as policy; {policy} in a setting stands for it
seeds              each arm is run with each of these; an arm can have its own
settings           settings of train.py for all arms
arms.NAME          settings of one arm. One of them can be
                     { choose = [1, 2] }: tuning makes a run with each value, and the best one is used
                     { of = "OTHER", times = 2.8 }: the value of another arm, times a number
tuning             seed: of the tuning runs, never counted; by: the column whose last value is highest in the best
                   run; other keys are settings of these runs only
exact              number of held-out problems that tiny/exact.py scores at each evaluation; without it, none
columns            what the CSV has beside BASE: names of metrics.jsonl or exact.csv
scores             columns of the table, which compares the arms where the run with the fewest samples ends
panels             pairs (x, y) of the picture
picture            question and panels: instead of the ones above; curves: the drawn arms, each with its label, without
                   it all
predictions        claim; compare = [arm, other arm, column]; at: samples, processor_seconds or step; between =
                   [low, high]; ratio = true: arm / other arm is judged, not the difference
try                other values of these keys for `try`. Only its arms are run
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from tqdm import tqdm

from tools.intervals import welch, with_interval
from tools.markdown import table
from trainer.files import read_csv, read_lines, write_csv
from trainer.pictures import label_axis, panels
from trainer.process import Refusal, explained, prepare

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
RUNS = ROOT / "runs" / "experiments"
TRAIN = "train.py"
# For each run, unless the user has set them: one core, which vLLM must not choose
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
BASE = ("rollouts_per_prompt", "prompts_per_step", "learning_rate", "step", "samples", "trained", "processor_seconds")
TEXTS = ("arm", "plan", "commit")  # columns of a CSV that are no numbers, even if they look like one
LIBC = ctypes.CDLL(None)  # for prctl, which is Linux only: elsewhere no run can start
WORDS = {"q_pos": "pass@1", "processor_seconds": "processor seconds", "step": "steps"}  # of columns, in a picture

Row = dict[str, Any]
Key = tuple[str, Any, int]  # of a run: its arm, the value of the setting that the arm varies ("" if none), its seed
Runs = dict[Key, list[Row]]
Arms = dict[str, list[list[Row]]]  # arm -> its counted runs


# The plan: which runs it wants, and which of them count.


def plan_of(name: str) -> dict[str, Any]:
    """Read NAME.toml. Raises Refusal if there is none."""
    path = EVIDENCE / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(x.stem for x in EVIDENCE.glob("*.toml")))
        raise Refusal(f"there is no experiment {name}: choose from {known or 'none'}")
    plan = {"name": name, "paths": [], "predictions": [], "tuning": {}, "exact": 0}
    return plan | tomllib.loads(path.read_text())


def small(plan: dict) -> dict[str, Any]:
    """Return the plan of `try`. An arm loses seeds of its own."""
    changes = plan["try"]
    arms = {arm: plan["arms"][arm] | {"seeds": changes["seeds"]} | own for arm, own in changes["arms"].items()}
    settings = plan["settings"] | changes.get("settings", {})
    return plan | changes | {"name": f"try_{plan['name']}", "arms": arms, "settings": settings}


def varied(plan: dict, arm: str) -> tuple[str, dict[str, Any]]:
    """Return the setting that an arm chooses or takes from another arm, and how; ("", {}) if there is none."""
    return next(((name, x) for name, x in plan["arms"][arm].items() if isinstance(x, dict)), ("", {}))


def tuning_runs(plan: dict, arm: str) -> list[Key]:
    """Return the runs that choose the value of an arm."""
    return [(arm, value, plan["tuning"]["seed"]) for value in varied(plan, arm)[1].get("choose", [])]


def value_of(plan: dict, runs: Runs, arm: str) -> Any:
    """Return the value of the setting that an arm varies, as it is in the CSV: "" if the arm varies none.

    None until `runs` has all runs that it depends on; the arm's counted runs wait for that.
    """
    name, how = varied(plan, arm)
    if "of" in how:
        other = value_of(plan, runs, how["of"])
        if other is None:
            return None
        known = plan["arms"][how["of"]][name] if other == "" else other
        return float(f"{how['times'] * known:.4g}")
    keys = tuning_runs(plan, arm)
    if not all(key in runs for key in keys):
        return None
    return max(keys, key=lambda key: runs[key][-1][plan["tuning"]["by"]])[1] if keys else ""


def wanted(plan: dict, runs: Runs) -> dict[Key, dict[str, Any]]:
    """Return the settings of all runs whose value is known: first the tuning runs, then by seed."""
    found: dict[Key, dict[str, Any]] = {}
    tuning = {name: x for name, x in plan["tuning"].items() if name != "by"}
    for arm in plan["arms"]:
        value, name = value_of(plan, runs, arm), varied(plan, arm)[0]
        own = {name: x for name, x in plan["arms"][arm].items() if name != "seeds"}
        for key in tuning_runs(plan, arm):
            found[key] = plan["settings"] | own | tuning | {name: key[1]}
        for seed in plan["arms"][arm].get("seeds", plan["seeds"]) if value is not None else []:
            found[arm, value, seed] = plan["settings"] | own | {"seed": seed} | ({name: value} if name else {})
    return {key: found[key] for key in sorted(found, key=lambda key: (key[2] != tuning.get("seed"), key[2]))}


def counted(plan: dict, rows: list[Row]) -> Arms:
    """Return the runs that count, for each arm that has any."""
    runs, found = runs_of(rows), Arms()
    for key in wanted(plan, runs):
        if key in runs and key not in tuning_runs(plan, key[0]):
            found.setdefault(key[0], []).append(runs[key])
    return found


def runs_of(rows: list[Row]) -> Runs:
    found: Runs = {}
    for row in rows:
        found.setdefault((row["arm"], row["value"], row["seed"]), []).append(row)
    return found


# The runs.


def folder_of(plan: dict, paths: dict[str, str]) -> Path:
    """Return the folder of the runs, whose name has a digest of the plan and of the files of its paths.

    The digest covers the whole plan, with its question and claims, but not its comments, `picture` and `try`, nor a
    path's .md files. Raises Refusal if a path is not given.
    """
    if {*paths} != {*plan["paths"]}:
        needed = " ".join(f"{x}=FILE" for x in plan["paths"])
        raise Refusal(f"the plan {plan['name']} needs exactly these paths: {needed or 'none'}")
    planned = {key: x for key, x in plan.items() if key != "picture"} | {"try": ""}
    digest = hashlib.sha256(json.dumps(planned, sort_keys=True).encode())
    for _, path in sorted(paths.items()):
        for file in sorted([Path(path), *Path(path).rglob("*")]):
            if file.is_file() and file.suffix != ".md":
                digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return RUNS / f"{plan['name']}-{digest.hexdigest()[:12]}"


def run_python(*words: object) -> None:
    """Run a Python command, which the kernel of Linux kills when this program ends. Raises Refusal if it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=ROOT, env=ENVIRONMENT | os.environ, text=True, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=lambda: LIBC.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
    )  # fmt: skip
    if done.returncode:
        raise Refusal(f"this failed: {' '.join(map(str, words))}\n{done.stderr[-3000:]}")


def make_run(folder: Path, settings: dict[str, Any], exact: int, paths: dict[str, str]) -> None:
    """Make or continue a run in `folder`. A complete run ends at once."""
    settings = settings | {"output_dir": folder.parent, "name": folder.name}
    if exact:
        settings |= {"save_every": settings["eval_every"], "keep_checkpoints": 1_000_000}
    flags: list[str] = []
    for name, x in settings.items():
        flags += [f"--{name}", *(str(word).format(**paths) for word in (x if isinstance(x, list) else [x]))]
    run_python(TRAIN, *flags, *["--resume"] * (folder / "config.json").exists())
    if exact:
        run_python("-m", "tiny.exact", folder, "--problems", exact)


def read_run(folder: Path, columns: list[str]) -> list[Row]:
    """Return a row for each evaluation of a run that has ended."""
    config = json.loads((folder / "config.json").read_text())
    exact = {x["step"]: x for x in read_csv(folder / "exact.csv")}
    rows, trained, seconds = [], 0, 0.0
    for step, timing in zip(read_lines(folder / "metrics.jsonl"), read_lines(folder / "timing.jsonl"), strict=True):
        trained += step.get("prompts", 0) * config["rollouts_per_prompt"]
        seconds += timing.get("processor", 0.0)
        known = config | step | exact.get(step["step"], {}) | {"trained": trained, "processor_seconds": seconds}
        if "eval/pass@1" in step:
            rows.append({column: known.get(column, "") for column in columns})
    return rows


def make_missing_runs(plan: dict, paths: dict[str, str], folder: Path, out: Path, jobs: int = 2) -> list[Row]:
    """Make the missing runs in `folder`, `jobs` at a time, and add the rows of each to the CSV when it ends.

    Raises Refusal if the CSV belongs to another plan.
    """
    rows, order = read_csv(out, TEXTS), [*plan["arms"]]
    if any(row["plan"] != folder.name for row in rows):
        raise Refusal(f"the plan {plan['name']} or a file of its paths has changed since {out} was begun: give the new "
                      "plan another name, or delete the CSV")  # fmt: skip
    commit = subprocess.getoutput(f"git -C '{ROOT}' describe --always --dirty")
    paths = {name: str(Path(path).resolve()) for name, path in paths.items()}

    def rows_of(key: Key, settings: dict[str, Any]) -> list[Row]:
        place = folder / " ".join(str(x) for x in key if x != "")
        make_run(place, settings, plan["exact"], paths)
        stamp = {"plan": folder.name, "commit": commit}
        head = dict(zip(("arm", "value", "seed"), key, strict=True))
        return [head | row | stamp for row in read_run(place, [*BASE, *plan["columns"]])]

    while todo := {key: x for key, x in wanted(plan, runs_of(rows)).items() if key not in runs_of(rows)}:
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(rows_of, *one) for one in todo.items()]
            try:
                for future in tqdm(as_completed(futures), total=len(todo), unit="run", disable=None):
                    rows = rows + future.result()
                    rows.sort(key=lambda row: (order.index(row["arm"]), str(row["value"]), row["seed"]))
                    write_csv(out, rows)
            except BaseException:
                pool.shutdown(cancel_futures=True)  # runs that have begun end; the next start adds their rows
                raise
    return rows


# The report. Two arms are compared at the end of the shorter one, by linear interpolation between evaluations.


def score_at(run: list[Row], column: str, where: float, score: str) -> float:
    """Interpolate a score linearly to the point where `column` is `where`; nan after the run's end."""
    scored = [row for row in run if row[score] != ""]
    return float(np.interp(where, [r[column] for r in scored], [r[score] for r in scored], right=math.nan))


def end_of(runs: list[list[Row]], column: str) -> float:
    """Return the value of `column` at the end of the shortest run."""
    return min(run[-1][column] for run in runs)


def measured(arms: Arms, prediction: dict) -> str:
    """Return the difference or ratio that a prediction is about, its interval, and what these seeds detect."""
    (a, b, score), column, ratio = prediction["compare"], prediction["at"], prediction.get("ratio", False)
    if a not in arms or b not in arms:
        return "not measured yet"
    where = end_of(arms[a] + arms[b], column)
    scores_a, scores_b = ([score_at(run, column, where, score) for run in arms[arm]] for arm in (a, b))
    test = welch(np.log(scores_a), np.log(scores_b)) if ratio else welch(scores_a, scores_b)
    difference, low, high, detects = (math.exp(x) if ratio else x for x in test)
    form = ".3f" if ratio else "+.4f"
    words = f"{a} {'/' if ratio else '-'} {b} in {score} at {where:,.0f} {column}: {difference:{form}}"
    inside = "inside" if prediction["between"][0] <= difference <= prediction["between"][1] else "outside"
    if math.isnan(low):
        return f"{words}, one seed, {test.word}, {inside} the prediction"
    least = f"{'a ratio' if ratio else 'a difference'} of {detects:{form}} is detected with 80% power"
    return f"{words} (95%: {low:{form}} to {high:{form}}), {test.word}, {inside} the prediction; {least}"


def report(plan: dict, rows: list[Row]) -> str:
    """Return Markdown: the arms at equal samples, the scores of tuning, each prediction beside its measurement."""
    every_run, arms = runs_of(rows), counted(plan, rows)
    text = f"{plan['question']}\n\n"
    if arms:
        limit = end_of([run for runs in arms.values() for run in runs], "samples")
        starts = [run[0] for runs in arms.values() for run in runs]
        lines = [["start", "", "", "0", *(f"{np.mean([row[x] for row in starts]):.4f}" for x in plan["scores"])]]
        for arm, runs in arms.items():
            cells = [with_interval([score_at(run, "samples", limit, x) for run in runs], ".4f") for x in plan["scores"]]
            lines.append([arm, str(value_of(plan, every_run, arm)), str(len(runs)), f"{limit:,.0f}", *cells])
        text += table(["arm", "value", "seeds", "samples", *plan["scores"]], lines) + "\n"
    for arm in plan["arms"]:
        ended = [key for key in tuning_runs(plan, arm) if key in every_run]
        tried = [f"{every_run[key][-1][plan['tuning']['by']]:.4f} with {key[1]}" for key in ended]
        if tried:
            text += f"\n{arm}: tuning gave {', '.join(tried)}"
    for x in plan["predictions"]:
        text += f"\n\n{x['claim']} Predicted: {x['between'][0]:g} to {x['between'][1]:g}.\n  {measured(arms, x)}"
    return text + "\n"


def common_legend(figure: Figure) -> None:
    """Put one legend below all panels. It has the label of every line once."""
    found: dict[str, Artist] = {}
    for axis in figure.axes:
        found |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend([*found.values()], [*found], loc="outside lower center", ncols=3, frameon=False)


def draw(plan: dict, rows: list[Row], path: Path) -> None:
    """Draw a panel for each pair (x, y), a curve for each arm: the mean over its seeds, and a band for their range.

    A panel ends where its shortest run ends.
    """
    plan = plan | plan.get("picture", {})
    labels = plan.get("curves", {arm: arm for arm in plan["arms"]})
    arms = {labels[arm]: runs for arm, runs in counted(plan, rows).items() if arm in labels}
    columns = 2 if len(plan["panels"]) == 4 else len(plan["panels"])
    figure, axes = panels(len(plan["panels"]) // columns, columns, plan["question"])
    for axis, (x, y) in zip(axes.flat, plan["panels"], strict=True):
        end = end_of([run for runs in arms.values() for run in runs], x)
        for label, runs in arms.items():
            grid = np.linspace(max(run[0][x] for run in runs), end, 60)
            curves = np.array([[score_at(run, x, point, y) for point in grid] for run in runs])  # (seeds, points)
            (line,) = axis.plot(grid, curves.mean(0), label=f"{label}, seeds: {len(runs)}")
            axis.fill_between(grid, curves.min(0), curves.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
        label_axis(axis, f"{WORDS.get(y, y)} at equal {WORDS.get(x, x)}", WORDS.get(x, x))
        axis.set_ylabel(WORDS.get(y, y))
    common_legend(figure)
    figure.savefig(path)


def show(plan: dict, rows: list[Row], path: Path) -> None:
    """Print the report and draw the picture."""
    print(report(plan, rows))
    if counted(plan, rows):
        draw(plan, rows, path)
        print(f"wrote {path}")


def main(argv: list[str]) -> None:
    """Run the command line. Raises Refusal."""
    match argv:
        case ["show", name]:
            show(plan_of(name), read_csv(EVIDENCE / f"{name}.csv", TEXTS), EVIDENCE / f"{name}.png")
        case ["run" | "try" as what, name, *words] if all("=" in word for word in words):
            given, plan = dict(word.split("=", 1) for word in words), plan_of(name)
            jobs = given.pop("jobs", "2")
            if not (jobs.isdecimal() and int(jobs)):
                raise Refusal(f"jobs={jobs} is no number of runs at a time: use jobs=1 or jobs=2")
            plan = plan if what == "run" else small(plan)
            folder = folder_of(plan, given)
            out = EVIDENCE / f"{name}.csv" if what == "run" else folder / "try.csv"
            show(plan, make_missing_runs(plan, given, folder, out, int(jobs)), out.with_suffix(".png"))
        case _:
            print(__doc__)
            raise Refusal("use one of the three commands above")


if __name__ == "__main__":
    prepare()  # a terminal that cannot show ± shows ? in its place
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this program at once, and the kernel its runs
    with explained(code=2, after_interrupt="what was measured is kept, and the same command continues"):
        main(sys.argv[1:])
