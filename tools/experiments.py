"""Run and draw the experiments of docs/evidence/: NAME.toml is the plan, NAME.csv has the data, NAME.png the picture.

    python -m tools.experiments                             what there is, and how much of it has been run
    python -m tools.experiments run NAME [PATH=FOLDER ...]  make the missing runs; started again, it continues
    python -m tools.experiments show NAME                   the table, predictions and what was measured; NAME.png
    python -m tools.experiments try NAME [PATH=FOLDER ...]  the same plan, small: about ten minutes on two cores

    key of NAME.toml   meaning
    question           one sentence
    paths              names that the command line must give, such as policy; {policy} in a setting stands for it
    seeds              each arm is run with each; an arm can have its own
    tuning_seed        chooses the values of the arms that `choose`. It is in no mean
    settings           settings of train.py for all arms. max_samples: compare at equal samples
    arms.NAME          settings of one arm, and seeds, label, why. One setting of an arm can be
                         { choose = [1, 2] }: the tuning seed is run with each value, and the one with the highest
                         last `choose_by` is that of the arm
                         { of = "OTHER", times = 2.8 }: the value of another arm, times a number
    exact              true: tiny/exact.py scores the policy at each evaluation (columns q_pos, pass@k, fell, ...)
    rows               "evaluation" or "step": what a row of the CSV is
    columns            names of metrics.jsonl, exact.csv or config.json; trained: rollouts in informative groups so
                       far; processor_seconds: of stages 1 to 8 so far, as timing.jsonl counts them
    axis               column at which the table compares arms: where the shortest run ends, by linear interpolation
    scores             columns of the table
    panels             pairs (x, y) of the picture
    picture_arms       the arms of the picture; without it all
    predictions        claim; compare = [arm, other arm, score]; at = column, else `axis`; ratio = true: other arm / arm
                       is judged, not the difference; between = [low, high]
    try_fraction       the share of max_samples (or of max_steps) that `try` makes

`try` has the first seed only, takes the middle value in place of choosing, and scores each run about five times. It
writes to runs/experiments/try_NAME. `try NAME fraction=0.01` is smaller still.

A difference is undecided if its 95% Welch interval includes 0, or if an arm has one seed. Of a ratio the interval is
that of the logarithms. "x detects 0.02" says: with these seeds and their spread, a true difference of 0.02 is decided
with a probability of 80%.

Every row of a CSV names the plan, the files of the paths and the commit of its run. A plan or a path that has changed
does not continue a CSV. A CSV is replaced as a whole, so a kill or a full disk loses no row. The runs are in
runs/experiments/NAME, and only you delete them.
"""

from __future__ import annotations

import csv
import ctypes
import hashlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
RUNS = ROOT / "runs" / "experiments"
TRAIN: tuple[str, ...] = ("train.py",)  # words of the command that makes a run
JOBS = 2  # runs at the same time
# Their share of the processor; vLLM must not bind the runs to the same cores
ENVIRONMENT = {
    "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // JOBS)), "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip
BUDGETS = ("max_samples", "max_steps")  # the settings that `try` makes smaller
OF_ARM = ("seeds", "label", "why")  # keys of an arm that are no settings
STAMP = ("plan", "files", "commit")  # columns that name the source of a row
POWER, LEVEL = 0.8, 0.05
AXES = {"samples": "samples generated", "processor_seconds": "processor seconds of training", "step": "steps"}
EQUAL = {"samples": "samples", "processor_seconds": "processor time", "step": "steps"}
SCORES = {"q_pos": "pass@1", "eval/pass@1": "pass@1"}

Row = dict[str, Any]
Runs = dict[str, list[list[Row]]]  # arm -> its counted runs, each as its rows in the order of steps


class Mistake(Exception):
    """Of the user: a sentence without a traceback."""


# -------------------------------------------------------------------------------------------------------- the plans


def plan_of(name: str) -> dict[str, Any]:
    """Read and check NAME.toml. Raises Mistake."""
    path = EVIDENCE / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(x.stem for x in EVIDENCE.glob("*.toml")))
        raise Mistake(f"there is no experiment {name}: choose from {known or 'none'}")
    try:
        plan = {"settings": {}, "predictions": [], "exact": False} | tomllib.loads(path.read_text())
        plan |= {"name": name, "digest": digest_of(json.dumps(plan, sort_keys=True).encode())}
        check(plan)
    except (tomllib.TOMLDecodeError, KeyError) as mistake:
        raise Mistake(f"{path.name}: {type(mistake).__name__} {mistake}") from mistake
    return plan


def digest_of(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def check(plan: dict[str, Any]) -> None:
    """Raise Mistake if the plan names an arm or a column that it does not have."""
    for arm, own in plan["arms"].items():
        several = [name for name, x in own.items() if isinstance(x, dict)]
        if len(several) > 1:
            raise Mistake(f"arm {arm} varies {', '.join(several)}: it can vary one setting")
        source = own[several[0]] if several else {}
        if "of" in source and source["of"] not in plan["arms"]:
            raise Mistake(f"arm {arm} takes {several[0]} of arm {source['of']}, which the plan does not have")
        if "choose" in source and plan["tuning_seed"] in seeds_of(plan, arm):
            raise Mistake(f"seed {plan['tuning_seed']} chooses {several[0]} of arm {arm}: it cannot count too")
    for x in plan["predictions"]:
        for arm in x["compare"][:2]:
            if arm not in plan["arms"]:
                raise Mistake(f"a prediction compares arm {arm}, which the plan does not have")
    named = {plan["axis"], *plan["scores"], *(y for panel in plan["panels"] for y in panel)}
    named |= {x["compare"][2] for x in plan["predictions"]} | {x.get("at", plan["axis"]) for x in plan["predictions"]}
    if unknown := named - set(plan["columns"]):
        raise Mistake(f"the plan compares or draws {', '.join(sorted(unknown))}, which `columns` does not have")


def seeds_of(plan: dict, arm: str) -> list[int]:
    return plan["arms"][arm].get("seeds", plan["seeds"])


def varied(plan: dict, arm: str) -> tuple[str, dict[str, Any]]:
    """The setting that an arm chooses or takes from another arm, and how; ("", {}) if there is none."""
    return next(((name, x) for name, x in plan["arms"][arm].items() if isinstance(x, dict)), ("", {}))


def small(plan: dict, fraction: float) -> dict[str, Any]:
    """The plan of `try`: the first seed, the middle value of each list, a share of the samples."""
    arms: dict[str, Any] = {}
    for arm, own in plan["arms"].items():
        name, how = varied(plan, arm)
        middle = {name: sorted(how["choose"])[len(how["choose"]) // 2]} if "choose" in how else {}
        arms[arm] = own | middle | {"seeds": seeds_of(plan, arm)[:1]}
    for settings in (shared := dict(plan["settings"]), *arms.values()):
        for name in BUDGETS:
            if name in settings:
                settings[name] = max(1, round(settings[name] * fraction))
        if "eval_every" in settings:
            settings["eval_every"] = max(1, round(settings["eval_every"] * min(1.0, 3 * fraction)))
    found = plan | {"settings": shared, "arms": arms, "name": f"try_{plan['name']}"}
    return found | {"digest": digest_of(plan["digest"].encode(), str(fraction).encode())}


# --------------------------------------------------------------------------------------------------------- the data


def number(x: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(x)
        except ValueError:
            continue
    return x


def load(path: Path) -> list[Row]:
    """The rows of a CSV, with numbers; none if it does not exist yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        texts = {"arm", *STAMP}
        return [{name: x if name in texts else number(x) for name, x in row.items()} for row in csv.DictReader(file)]


def save(path: Path, columns: list[str], rows: list[Row]) -> None:
    """Replace a CSV: it has the old rows or the new ones, never a part."""
    text, aside = io.StringIO(), path.with_name(path.name + ".unfinished")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("w") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def runs_of(rows: list[Row]) -> dict[tuple[str, Any, int], list[Row]]:
    """(arm, value, seed) -> the rows of the run."""
    found = defaultdict(list)
    for row in rows:
        found[row["arm"], row["value"], row["seed"]].append(row)
    return dict(found)


def chosen(plan: dict, runs: dict, arm: str) -> Any:
    """The value of the setting that an arm varies: "" if it varies none, None if it is not known yet."""
    name, how = varied(plan, arm)
    if "of" in how:
        known = chosen(plan, runs, how["of"]) or plan["arms"][how["of"]][name]  # the other arm may vary nothing
        return None if isinstance(known, dict) else float(f"{how['times'] * known:.4g}")
    if not how:
        return ""
    trials = {value: runs.get((arm, value, plan["tuning_seed"])) for value in how["choose"]}
    if not all(trials.values()):
        return None
    return max(trials, key=lambda value: trials[value][-1][plan["choose_by"]])  # type: ignore[index]


def missing(plan: dict, runs: dict) -> list[tuple[str, Any, int]]:
    """(arm, value, seed) of the runs that can be made now and are not there: first those that choose, then by seed."""
    wanted: list[tuple[str, Any, int]] = []
    for arm in plan["arms"]:
        wanted += [(arm, value, plan["tuning_seed"]) for value in varied(plan, arm)[1].get("choose", [])]
        if (value := chosen(plan, runs, arm)) is not None:
            wanted += [(arm, value, seed) for seed in seeds_of(plan, arm)]
    first = plan.get("tuning_seed")
    return sorted((run for run in wanted if run not in runs), key=lambda run: (run[2] != first, run[2]))


def planned(plan: dict) -> int:
    """The number of runs of the whole plan."""
    return sum(len(seeds_of(plan, arm)) + len(varied(plan, arm)[1].get("choose", [])) for arm in plan["arms"])


def counted(plan: dict, rows: list[Row]) -> Runs:
    """The counted runs of each arm that has any, in the order of the plan."""
    runs, found = runs_of(rows), dict[str, list[list[Row]]]()
    for arm in plan["arms"]:
        value, seeds = chosen(plan, runs, arm), seeds_of(plan, arm)
        if its := [runs[arm, value, seed] for seed in seeds if (arm, value, seed) in runs]:
            found[arm] = its
    return found


# --------------------------------------------------------------------------------------------------------- the runs


def command(*words: object) -> None:
    """Run a command that ends with this program. Raises Mistake if it fails."""
    process = subprocess.Popen(
        [sys.executable, *map(str, words)], cwd=ROOT, env=os.environ | ENVIRONMENT, text=True, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=end_with_parent,
    )  # fmt: skip
    STARTED.add(process)
    _, error = process.communicate()
    STARTED.discard(process)
    if process.returncode:
        raise Mistake(f"this failed: {' '.join(map(str, words))}\n{error[-3000:]}")


STARTED: set[subprocess.Popen] = set()
LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Let the kernel kill this process when the program that started it ends, even by SIGKILL."""
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def stop(*_) -> None:
    """End the commands and this program. The next start continues."""
    for process in [*STARTED]:
        os.killpg(process.pid, signal.SIGTERM)
    os._exit(130)


def make(plan: dict, paths: dict[str, str], arm: str, value: Any, seed: int) -> list[Row]:
    """Make or continue a run. Returns its rows."""
    folder = RUNS / plan["name"] / f"{arm} {value} {seed}".replace("  ", " ")
    own = {name: x for name, x in plan["arms"][arm].items() if name not in OF_ARM}
    settings = plan["settings"] | own | {"seed": seed}
    if varied(plan, arm)[1]:
        settings[varied(plan, arm)[0]] = value
    if plan["exact"]:
        settings |= {"save_every": settings["eval_every"], "keep_checkpoints": 1_000_000}
    settings |= {"output_dir": folder.parent, "name": folder.name}
    flags: list[str] = []
    for name, x in settings.items():
        words = [str(word).format(**paths) for word in (x if isinstance(x, list) else [x])]
        flags += [f"--{name}={words[0]}"] if len(words) == 1 else [f"--{name}", *words]
    command(*TRAIN, *flags, *["--resume"] * (folder / "config.json").exists())  # a complete run ends at once
    if plan["exact"]:
        command("-m", "tiny.exact", folder)
    return rows_of(plan, folder, {"arm": arm, "value": value, "seed": seed})


def lines_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows_of(plan: dict, folder: Path, row: Row) -> list[Row]:
    """The rows of a run that has ended."""
    config, exact = json.loads((folder / "config.json").read_text()), {x["step"]: x for x in load(folder / "exact.csv")}
    rows, trained, seconds = [], 0, 0.0
    for step, timing in zip(lines_of(folder / "metrics.jsonl"), lines_of(folder / "timing.jsonl"), strict=True):
        trained += step.get("prompts", 0) * config["rollouts_per_prompt"]
        seconds += timing.get("processor", 0.0)
        known = config | step | exact.get(step["step"], {})
        known |= {"trained": trained, "processor_seconds": round(seconds, 2)}
        if plan["rows"] == "step" or "eval/pass@1" in step:
            rows.append(row | {column: known.get(column, "") for column in plan["columns"]})
    return rows


def files_of(plan: dict, paths: dict[str, str]) -> str:
    """The digest of all files of the paths. Raises Mistake if the plan needs another path."""
    needed = plan.get("paths", [])
    if lacking := [x for x in needed if x not in paths]:
        raise Mistake(f"{plan['name']} needs {', '.join(f'{x}=FOLDER' for x in lacking)}")
    if unknown := paths.keys() - {*needed}:
        raise Mistake(f"{plan['name']} has no path {', '.join(sorted(unknown))}: it has {', '.join(needed) or 'none'}")
    for name, path in paths.items():
        if not Path(path).exists():
            raise Mistake(f"{name}={path}: there is no such file or folder")
    found = [file for x in needed for file in sorted([Path(paths[x]), *Path(paths[x]).rglob("*")]) if file.is_file()]
    return digest_of(*(part for file in found for part in (file.name.encode(), file.read_bytes())))


def run(plan: dict, paths: dict[str, str], out: Path) -> list[Row]:
    """Make the missing runs, several at a time, and add the rows of each to the CSV as soon as it ends."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    stamp = dict(zip(STAMP, (plan["digest"], files_of(plan, paths), commit.stdout.strip()), strict=True))
    rows, columns = load(out), ["arm", "value", "seed", *plan["columns"], *STAMP]
    for name, what in (("plan", f"the plan {plan['name']}"), ("files", f"a file of {', '.join(paths)}")):
        if any(row.get(name) != stamp[name] for row in rows):
            raise Mistake(
                f"{what} has changed since {out} was begun: give the new plan another name, or delete the CSV"
            )
    paths = {name: str(Path(path).resolve()) for name, path in paths.items()}
    while some := missing(plan, runs_of(rows)):
        failures = []
        with ThreadPoolExecutor(JOBS) as pool:
            futures = [pool.submit(make, plan, paths, *one) for one in some]
            for future in tqdm(as_completed(futures), total=len(some), unit="run", disable=None):
                if future.cancelled():
                    continue
                if failure := future.exception():
                    failures.append(failure)
                    for other in futures:  # those that are being made end first, and their rows are kept
                        other.cancel()
                else:
                    rows = rows + [row | stamp for row in future.result()]
                    save(out, columns, rows)
        if failures:
            raise failures[0]
    return rows


# -------------------------------------------------------------------------------------------- table and picture


def at(run: list[Row], axis: str, where: float, score: str) -> float:
    """A score where the run had spent `where`, by linear interpolation; nan after its end."""
    some = [row for row in run if row[score] != "" and row[axis] != ""]
    return float(np.interp(where, [r[axis] for r in some], [r[score] for r in some], right=math.nan))


def end_of(groups: list[list[list[Row]]], axis: str) -> float:
    """Where the shortest run ends."""
    return min(run[-1][axis] for group in groups for run in group)


def with_interval(x: list[float]) -> str:
    """Mean ± half of the 95% t-interval; for one seed only its value."""
    half = stats.t.ppf(1 - LEVEL / 2, len(x) - 1) * np.std(x, ddof=1) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return f"{np.mean(x):.4f}" + (f" ± {half:.4f}" if len(x) > 1 else "")


class Welch(NamedTuple):
    """A difference of two means, its 95% interval, and the smallest true one that is detected; nan: one seed."""

    difference: float
    low: float
    high: float
    detects: float

    @property
    def undecided(self) -> bool:
        return not (self.low > 0 or self.high < 0)  # of one seed the interval is nan


def welch(a: list[float], b: list[float]) -> Welch:
    """Compare two means with Welch's test.

    The interval is d ± t s, with s² = s_a² / n_a + s_b² / n_b and t of the degrees of freedom of Welch. A true
    difference δ is decided with the probability P(|T| > t), where T has the noncentral t distribution of δ / s.
    """
    d = float(np.mean(a) - np.mean(b))
    if min(len(a), len(b)) < 2:
        return Welch(d, math.nan, math.nan, math.nan)
    parts = [float(np.var(x, ddof=1)) / len(x) for x in (a, b)]
    s = math.sqrt(sum(parts))
    if not s:
        return Welch(d, d, d, 0.0)
    degrees = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True))
    t = float(stats.t.ppf(1 - LEVEL / 2, degrees))

    spread = np.sqrt(stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, degrees) / degrees)  # of the estimate of s

    def power(shift: float) -> float:
        return float(np.mean(stats.norm.sf(t * spread - shift) + stats.norm.cdf(-t * spread - shift)))

    return Welch(d, d - t * s, d + t * s, s * optimize.brentq(lambda x: power(x) - POWER, 0.0, 20 * t))


def compared(plan: dict, runs: Runs, prediction: dict) -> tuple[str, Welch, float] | None:
    """(words, the comparison, where) of a prediction; None if an arm has no run. Of a ratio it is of logarithms."""
    a, b, score = prediction["compare"]
    if a not in runs or b not in runs:
        return None
    axis, ratio = prediction.get("at", plan["axis"]), prediction.get("ratio", False)
    where = end_of([runs[a], runs[b]], axis)
    x, y = ([at(one, axis, where, score) for one in runs[arm]] for arm in (a, b))
    if ratio:
        x, y = np.log(x).tolist(), np.log(y).tolist()
    return f"{a} {'/' if ratio else '-'} {b} in {score} at {where:,.0f} {AXES.get(axis, axis)}", welch(x, y), where


def verdict(w: Welch, ratio: bool) -> str:
    """The numbers of a comparison and the word: higher, lower or undecided."""

    def shown(x: float) -> str:
        return f"{math.exp(x):.3f}" if ratio else f"{x:+.4f}"

    word = "undecided" if w.undecided else "higher" if w.difference > 0 else "lower"
    if math.isnan(w.low):
        return f"{shown(w.difference)}, one seed: {word}"
    return f"{shown(w.difference)} (95%: {shown(w.low)} to {shown(w.high)}): {word}"


def table(plan: dict, rows: list[Row]) -> str:
    """Markdown: each arm at the end of the shortest run; the values that were tried; then the predictions."""
    runs, axis = counted(plan, rows), plan["axis"]
    text = f"{plan['question']}\n\n"
    if runs:
        limit, all_runs = end_of([*runs.values()], axis), runs_of(rows)
        lines = [["arm", "value", "seeds", f"at {axis}", *plan["scores"]]]
        for arm, group in runs.items():
            cells = [with_interval([at(run, axis, limit, score) for run in group]) for score in plan["scores"]]
            lines.append([arm, str(chosen(plan, all_runs, arm)), str(len(group)), f"{limit:,.0f}", *cells])
        text += "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])
    tried = [(arm, value, run[-1][plan["choose_by"]]) for (arm, value, seed), run in runs_of(rows).items()
             if "tuning_seed" in plan and seed == plan["tuning_seed"]]  # fmt: skip
    if tried:
        text += f"\nSeed {plan['tuning_seed']} chose by the last {plan['choose_by']}: "
        text += "; ".join(f"{arm} {value}: {score:.4f}" for arm, value, score in tried) + "\n"
        for arm in runs:
            values, value = sorted(varied(plan, arm)[1].get("choose", [])), chosen(plan, runs_of(rows), arm)
            if len(values) > 1 and value in (values[0], values[-1]):
                end = "lowest" if value == values[0] else "highest"
                text += f"{arm} has the {end} value that was tried: one beyond it may be better\n"
    for x in plan["predictions"]:
        between = f" Predicted: {x['between'][0]:g} to {x['between'][1]:g}." if "between" in x else ""
        text += f"\n{x['claim']}{between}\n"
        if (found := compared(plan, runs, x)) is None:
            text += "  not measured yet\n"
            continue
        words, w, _ = found
        a, b = (len(runs[arm]) for arm in x["compare"][:2])
        text += f"  {words}: {verdict(w, x.get('ratio', False))}"
        if "between" in x:
            middle = math.exp(w.difference) if x.get("ratio") else w.difference
            text += f"; {'inside' if x['between'][0] <= middle <= x['between'][1] else 'outside'} the prediction"
        if not math.isnan(w.detects):
            least = f"a ratio of {math.exp(w.detects):.3f}" if x.get("ratio") else f"{w.detects:.4f}"
            text += f"\n  {a} and {b} seeds detect {least} with {POWER:.0%} power"
        text += "\n"
    return text


def label_of(plan: dict, arm: str) -> str:
    return plan["arms"][arm].get("label", arm)


def sentence(plan: dict, runs: Runs) -> str:
    """The sentence of the picture: what the first prediction compares, as it was measured."""
    for x in plan["predictions"]:
        if (found := compared(plan, runs, x)) is not None and not x.get("ratio"):
            _, w, where = found
            a, b, score = x["compare"]
            axis = AXES.get(x.get("at", plan["axis"]), x.get("at", plan["axis"]))
            between = "one seed" if math.isnan(w.low) else f"95%: {w.low:+.3f} to {w.high:+.3f}"
            return (
                f"After {where:,.0f} {axis}, {SCORES.get(score, score)} of {label_of(plan, a)} is "
                f"{abs(w.difference):.3f} {'above' if w.difference > 0 else 'below'} that of {label_of(plan, b)} "
                f"({between}): {'undecided' if w.undecided else 'decided'}."
            )
    return ""


def draw(plan: dict, rows: list[Row], path: Path) -> None:
    """A panel for each pair (x, y), a curve for each arm: the mean over its seeds, and a band for their range."""
    from trainer.pictures import common_legend, finish, panels  # matplotlib takes a second to import

    runs = {arm: x for arm, x in counted(plan, rows).items() if arm in plan.get("picture_arms", plan["arms"])}
    said = sentence(plan, runs)
    figure, (axes,) = panels(1, len(plan["panels"]), plan["question"] + f"\n{said}" * bool(said))
    for axis, (x, y) in zip(axes, plan["panels"], strict=True):
        for arm, group in runs.items():
            grid = np.linspace(max(run[0][x] for run in group), end_of([group], x), 60)
            seeds = np.array([[at(run, x, point, y) for point in grid] for run in group])
            several = f"{len(group)} seeds, mean and range" if len(group) > 1 else "1 seed"
            (line,) = axis.plot(grid, seeds.mean(0), label=f"{label_of(plan, arm)}: {several}")
            axis.fill_between(grid, seeds.min(0), seeds.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
        axis.set(ylabel=f"held-out {SCORES.get(y, y)}")
        finish(axis, f"at equal {EQUAL.get(x, x)}", AXES.get(x, x))
    common_legend(figure)
    figure.savefig(path)


# ------------------------------------------------------------------------------------------------- the command line


def show(plan: dict, rows: list[Row], path: Path) -> None:
    """Print the table and write the picture."""
    print(table(plan, rows))
    if counted(plan, rows):
        draw(plan, rows, path)
        print(f"wrote {path}")


def fraction_of(x: str | float) -> float:
    """The share that `try` makes. Raises Mistake."""
    try:
        if 0 < float(x) <= 1:
            return float(x)
    except ValueError:
        pass
    raise Mistake(f"fraction={x} must be a number above 0, at most 1")


def names() -> None:
    """Print a line for each experiment."""
    for path in sorted(EVIDENCE.glob("*.toml")):
        plan = plan_of(path.stem)
        done = len(runs_of(load(EVIDENCE / f"{path.stem}.csv")))
        print(f"{path.stem:<18} {done:>3} of {planned(plan):>3} runs  {plan['question']}")


def main(argv: list[str]) -> None:
    """Run the command line."""
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, stop)
    match argv:
        case []:
            names()
        case ["show", name]:
            show(plan := plan_of(name), load(EVIDENCE / f"{name}.csv"), EVIDENCE / f"{plan['name']}.png")
        case ["run" | "try" as what, name, *words] if all("=" in word for word in words):
            plan, given = plan_of(name), dict(word.split("=", 1) for word in words)
            out = EVIDENCE / f"{name}.csv"
            if what == "try":
                plan = small(plan, fraction_of(given.pop("fraction", plan.get("try_fraction", 0.1))))
                out = RUNS / plan["name"] / "try.csv"
            show(plan, run(plan, given, out), out.with_suffix(".png"))
        case _:
            print(__doc__)
            raise Mistake("use one of the four commands above")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Mistake as mistake:
        sys.exit(f"experiments: {mistake}")
    except OSError as failure:  # a full disk, for one
        sys.exit(f"experiments: {failure}. What was measured is kept: the same command continues")
