"""Runs to CSVs: what evidence/tables.py and evidence/draw.py read.

    python -m evidence.collect                                    the finished runs of evidence/experiments.py

    for seed in 0 1 2; do
      accelerate launch train.py --seed $seed
      accelerate launch train.py --recipe prorl --seed $seed
      accelerate launch train.py --engine vllm --eval_every 20 --name vllm-seed$seed --seed $seed    # where vLLM is
    done
    python -m evidence.collect --default_runs runs/*-seed*        the two recipes and the two engines

    python -m evidence.collect --real_model runs/smollm-n512 runs/smollm-n16      docs/real_model.md has the commands

Processor seconds are those of the training process on one core, without evaluation.
"""

import argparse
import copy
import itertools
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from evidence import ttest
from evidence.experiments import scored
from evidence.rows import ARMS, EVIDENCE, HELD, PLACES, ROOT, TERMS, WORLDS, load, write
from evidence.statistics import spearman
from tiny import exact
from verify import load_data

SCORES = ("q_pos", "pass@4", "pass@16", "pass@64", "pass@256", "pass@1024", "below", "in_use", "fell", "improved",
          "worst_drop")  # fmt: skip
AMOUNTS = [1e-4 * 2 ** (i / 2) for i in range(14)]  # by which all weights move: 0.0001 to 0.009
SOLVED = ("none", "to_25%", "to_50%", "to_75%", "below_100%", "all")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def config_of(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def finished(folder: Path) -> bool:
    """Is the run at its end, with its last step scored?"""
    return (folder / "model").is_dir() and lines(folder / "metrics.jsonl")[-1]["step"] in scored(folder)


def checkpoints(folder: Path) -> list[dict]:
    """A run's exact scores, each with the processor seconds and the training metrics up to its step."""
    seconds, total = {0: 0.0}, 0.0
    for row in lines(folder / "timing.jsonl"):
        total += row.get("cpu_seconds", math.nan)
        seconds[row["step"]] = total
    metrics = {row["step"]: row for row in lines(folder / "metrics.jsonl")}
    rows = []
    for row in load(folder / "exact.csv"):
        now = {"step": row["step"], "samples": row["samples"], "cpu_seconds": round(seconds[row["step"]], 1)}
        now |= {name: float(row[name]) for name in SCORES}
        rows.append(now | {name: metrics[row["step"]].get(name, math.nan) for name in ("response_tokens", "correct")})
    return rows


def tables_of(name: str, config: dict) -> dict[str, dict]:
    """The CSVs that have a row for this run of experiments.py, and the columns that name the run."""
    kind, what, *_ = [*name.split("-"), ""]
    n, b, seed = config["rollouts_per_prompt"], config["prompts_per_step"], {"seed": config["seed"]}
    recipe = {"N": n, "B": b, "learning_rate": config["learning_rate"]} | seed
    advantage = {"advantage": config["advantage"], "N": n} | seed
    found: dict[str, dict] = {}
    if kind in (*ARMS, "saturate"):
        found["figure1"] = {"world": what, "arm": kind} | seed
    if what == "compact" and kind != "saturate":
        found["regimes"] = recipe
    if kind == "hard":
        found["hard"] = recipe
    if kind == "control":
        found["controls"] = {"arm": what} | seed
    if kind in HELD:
        found["sweep_n"] = {"held": kind, "N": n, "B": b} | seed
    if kind == "near":
        found["objective"] = {"where": "start"} | advantage
    if kind.startswith("objective"):
        found["objective"] = {"where": kind.removeprefix("objective").removeprefix("_") or "near"} | advantage
    return found


def experiments(folders: list[Path], csvs: Path) -> None:
    tables: dict[str, list[dict]] = defaultdict(list)
    for folder in folders:  # the six CSVs with a row per checkpoint
        for table, who in tables_of(folder.name, config_of(folder)).items():
            tables[table] += [who | row for row in checkpoints(folder)]
    tables["objective"].sort(key=lambda row: ("near", "start", "hard").index(row["where"]))
    problems = load_data([str(ROOT / "tiny" / "test.jsonl")])
    tables["null"] = [row for folder in folders if folder.name == "near" for row in null(folder, problems)]
    arms = [folder for folder in folders if folder.name.split("-")[0] in ARMS and folder.name.split("-")[1] in WORLDS]
    tables["table2"] = [row for folder in arms for row in steps(folder)]
    tables["ttest"] = [row for folder in arms for row in t_test(folder, arms)]
    for table, part in (("hard_elsewhere", "hard-"), ("objective_elsewhere", "objective_hard-")):
        tables[table] = [elsewhere(folder, problems) for folder in folders if folder.name.startswith(part)]
    probed = [folder for folder in folders if folder.name.startswith("theorem-")]
    tables["theorem1"] = [row for folder in probed for row in theorem1(folder)]
    tables["coupling"] = [row for folder in probed for row in coupling(folder)]
    runs = [law(folder) for folder in folders if folder.name.startswith("law-")]
    tables["law"] = sorted(runs, key=lambda row: (row["seed"], row["rate"], row["N"]))
    for table, rows in tables.items():
        if rows:
            write(csvs / f"{table}.csv", rows)


def displaced(model, amount: float, seed: int):
    """A copy with every weight moved by +amount or -amount, at random, as AdamW's first update moves it by its rate."""
    moved, rng = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in moved.parameters():
            weights.add_(amount * (2 * torch.randint(2, weights.shape, generator=rng) - 1))
    return moved


def null(folder: Path, problems: list, amounts=AMOUNTS) -> list[dict]:
    """Scores of the policy after its weights moved at random, in three directions."""
    model, tokenizer = exact.load_policy(str(folder / "model"))
    start = exact.Knowledge.of(exact.log_probs(model, tokenizer, problems))
    rows = []
    for amount, seed in itertools.product(amounts, range(3)):
        now = exact.Knowledge.of(exact.log_probs(displaced(model, amount, seed), tokenizer, problems))
        rows.append({"amount": amount, "seed": seed} | exact.metrics(now, start))
    return rows


def steps(folder: Path) -> list[dict]:
    """Table 2, a row a step: pass rate, samples a second, how many rollouts of a group are correct."""
    arm, world, _ = folder.name.split("-")
    seconds = {row["step"]: row.get("cpu_seconds", math.nan) for row in lines(folder / "timing.jsonl")}
    rows, before = [], 0
    for row in lines(folder / "metrics.jsonl")[1:]:
        drawn, before = row["samples"] - before, row["samples"]
        rows.append({"world": world, "arm": arm, "seed": config_of(folder)["seed"], "step": row["step"],
                     "samples": row["samples"], "pass_rate": row["pass_rate"],
                     "samples_per_cpu_second": drawn / seconds[row["step"]]}
                    | {f"solved_{part}": row[f"solved/{part}"] for part in SOLVED})  # fmt: skip
    return rows


def t_test(folder: Path, arms: list[Path]) -> list[dict]:
    """The arm `prorl` against this one with the same seed, by the sampled evaluation at the end of both."""
    arm, world, seed = folder.name.split("-")
    first = folder.parent / f"prorl-{world}-{seed}"
    if arm == "prorl" or first not in arms:
        return []
    a, b = ttest.read(first, None), ttest.read(folder, None)
    who = {"world": world, "a": "prorl", "b": arm, "seed": config_of(folder)["seed"], "responses": a["k"]}
    return [who | ttest.compare(a, b)._asdict()]


def elsewhere(folder: Path, problems: list) -> dict:
    """Scores on all 512 held-out problems after training on hard problems alone."""
    knows = exact.Knowledge.of(exact.log_probs(*exact.load_policy(str(folder / "model")), problems))
    scores = exact.metrics(knows, knows)
    who = {"arm": folder.name.split("-")[1], "seed": config_of(folder)["seed"]}
    who["samples"] = lines(folder / "metrics.jsonl")[-1]["samples"]
    return who | {name: scores[name] for name in ("q_pos", "pass@16", "pass@64", "pass@1024")}


def theorem1(folder: Path) -> list[dict]:
    """exact_probe.py's rows with Theorem 1's sum, and the null q(1-q): how much a prompt can change."""
    _, arm, where = folder.name.split("-")
    rows = []
    for row in load(folder / "mass_balance.csv"):
        totals = {f"{place}/total": sum(row[f"{place}/{x}"] for x in TERMS) for place in PLACES}
        kept = {name: float(x) for name, x in row.items() if "undrawn" not in name}
        rows.append({"arm": arm, "from": where} | kept | totals | {"q(1-q)": row["q_pos"] * (1 - row["q_pos"])})
    return rows


def coupling(folder: Path) -> list[dict]:
    """How far each guess at undrawn tokens takes the unsampled coupling from its exact value."""
    _, arm, where = folder.name.split("-")
    rows, table = load(folder / "mass_balance.csv"), []
    for name in [name for name in rows[0] if "/coupling_undrawn_" in name]:
        place, undrawn = name.split("/coupling_undrawn_")
        exactly, guessed = (np.array([r[x] for r in rows]) for x in (f"{place}/unsampled_coupling", name))
        table.append({"from": where, "arm": arm, "at": place, "undrawn": undrawn, "groups": len(rows),
                      "exact_mean": exactly.mean(), "guessed_mean": guessed.mean(),
                      "exact_size": np.abs(exactly).mean(), "error": np.abs(guessed - exactly).mean(),
                      "negative_exact": (exactly < 0).mean(), "negative_guessed": (guessed < 0).mean(),
                      "rank_correlation": spearman(guessed, exactly)})  # fmt: skip
    return table


def law(folder: Path) -> dict:
    """Exact Q_pos at the end, the noise that the run measured, the seconds it took."""
    config, metrics = config_of(folder), lines(folder / "metrics.jsonl")
    measured = [row for row in metrics if "noise/between" in row]
    noise = {name: float(np.mean([x[f"noise/{name}"] for x in measured])) if measured else ""
             for name in ("within", "between")}  # fmt: skip
    end = checkpoints(folder)[-1]
    who = {"N": config["rollouts_per_prompt"], "B": config["prompts_per_step"], "rate": config["learning_rate"]}
    spent = {"seed": config["seed"], "steps": end["step"]} | {name: end[name] for name in ("samples", "cpu_seconds")}
    return who | spent | noise | {"q_pos": end["q_pos"]}


def default_runs(folder: Path) -> list[dict]:
    config = config_of(folder)
    who = {name: config[name] for name in ("recipe", "engine", "seed")} | {"N": config["rollouts_per_prompt"]}
    names = ("pass@1", "pass@4", "pass@16", "pass@64", "pass@1_se", "response_tokens")
    return [who | {"step": r["step"], "samples": r["samples"]} | {x: r[f"eval/{x}"] for x in names}
            for r in lines(folder / "metrics.jsonl") if "eval/pass@1" in r]  # fmt: skip


def real_model(folder: Path) -> list[dict]:
    """Empty where a step has no such number."""
    config = config_of(folder)
    clock = {row["step"]: row for row in lines(folder / "timing.jsonl")}
    who = {"N": config["rollouts_per_prompt"], "B": config["prompts_per_step"], "seed": config["seed"]}
    names = ("step", "samples", "prompts", "pass_rate", "reward", "truncated", "response_tokens", "entropy", "kl_ref",
             "eval/pass@1", "eval/pass@1_se", "eval/pass@4", "eval/truncated")  # fmt: skip
    times = ("roll_out", "score", "update", "cpu_seconds", "peak_gib")
    return [who | {x: m.get(x, "") for x in names} | {x: clock.get(m["step"], {}).get(x, "") for x in times}
            for m in lines(folder / "metrics.jsonl")]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs/evidence", help="what experiments.py wrote")
    parser.add_argument("--default_runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--real_model", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--csvs", type=Path, default=EVIDENCE, help="where the CSVs go (default: evidence/)")
    args = parser.parse_args()
    if args.default_runs or args.real_model:
        for name, read in (("default_runs", default_runs), ("real_model", real_model)):
            if folders := getattr(args, name):
                write(args.csvs / f"{name}.csv", [row for folder in folders for row in read(folder)])
        return
    folders = sorted(path for path in args.runs.glob("*") if (path / "config.json").exists())
    if not folders:
        parser.exit(2, f"no runs at {args.runs}: make them with python -m evidence.experiments\n")
    done = [folder for folder in folders if finished(folder)]
    if left_out := [folder.name for folder in folders if folder not in done]:
        print(f"left out, not at their end or not scored yet: {', '.join(left_out)}")
    experiments(done, args.csvs)


if __name__ == "__main__":
    main()
