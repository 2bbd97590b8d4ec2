"""The plan of an experiment, docs/evidence/NAME.toml: which runs it wants, and which of them count.

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

import tomllib
from pathlib import Path
from typing import Any

from trainer.exits import Refusal

EVIDENCE = Path(__file__).resolve().parent.parent / "docs" / "evidence"

Row = dict[str, Any]
Key = tuple[str, Any, int]  # of a run: its arm, the value of the setting that the arm varies ("" if none), its seed
Runs = dict[Key, list[Row]]
Arms = dict[str, list[list[Row]]]  # arm -> its counted runs


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
