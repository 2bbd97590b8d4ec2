"""Run and draw the experiments of docs/evidence/: NAME.toml is the plan, NAME.csv has the data, NAME.png the picture.

    python -m tools.experiments run NAME [PATH=FILE ...]    make the missing runs; started again, it continues
    python -m tools.experiments show NAME                   the table, and each prediction beside its measurement
    python -m tools.experiments try NAME [PATH=FILE ...]    a small version of the plan: about ten minutes on two cores

Two runs are made at the same time, on one core each; `jobs=1` makes one at a time.

tools/experiment_plan.py explains the keys of a plan, tools/experiment_report.py the table.

A row of the CSV is an evaluation. `samples` counts dropped rollouts too, `trained` those of informative groups.
`processor_seconds` is the time of training, without evaluation. All three are sums since the start.

A changed plan, or a changed file of a path, does not continue a CSV. A CSV is replaced as a whole, so a kill or a full
disk loses no row. The folders of the runs stay in runs/experiments/ until you delete them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tools.experiment_plan import EVIDENCE, Key, Row, counted, plan_of, runs_of, small, wanted
from tools.experiment_report import draw, report
from trainer.exits import Refusal, explained
from trainer.files import read_csv, read_lines, write_csv

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "experiments"
TRAIN = "train.py"
# For each run, unless the user has set them: one core, which vLLM must not choose
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
BASE = ("rollouts_per_prompt", "prompts_per_step", "learning_rate", "step", "samples", "trained", "processor_seconds")
TEXTS = ("arm", "plan", "commit")  # columns of a CSV that are no numbers, even if they look like one
LIBC = ctypes.CDLL(None)  # for prctl, which is Linux only: elsewhere no run can start


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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this program at once, and the kernel its runs
    with explained(code=2, after_interrupt="what was measured is kept, and the same command continues"):
        main(sys.argv[1:])
