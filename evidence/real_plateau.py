"""Does N = 512 lift a real model that N = 16 no longer lifts, and with shorter answers? docs/evidence.md.

    python -m evidence.real_plateau make --smollm FOLDER   the problems; FOLDER is of `python -m evidence.smollm`
    python -m evidence.real_plateau saturate               N = 16 until held-out pass@1 hardly moves
    python -m evidence.real_plateau predict                --preflight there: real_plateau_predicted.csv
    python -m evidence.real_plateau run                    the arms, each from there; a finished one is left alone
    python -m evidence.real_plateau collect                real_plateau.csv from the runs
    python -m evidence.real_plateau                        the tables and real_plateau.png from real_plateau.csv

SmolLM2-135M-Instruct adds, subtracts, multiplies and finds remainders. It is shown two solved problems, one with a line
of working before the box and one with the box alone, so that its answers differ in length.

The arms have the paper's proportions: `brorl` has a quarter of `prorl`'s prompts, 32 times its rollouts, sqrt(8) times
its learning rate; `brorl_cool` has the rate of prorl; `batch` is N = 16 with the rollouts and the rate of brorl. The
prediction names N = 16, so prorl is its arm too. Each step is one update, and each arm has about as much processor
time. No KL term. The committed rows differ in one point: `batch` has three steps, not four, with seeds 1 and 2.
"""

import argparse
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from evidence.draw import look, panels, save
from evidence.price import SAME, lines, run_alone, write_rows
from evidence.rows import EVIDENCE, ROOT, at, by, load, write
from evidence.statistics import shown
from evidence.tables import header, line

OUT = ROOT / "runs" / "real_plateau"
PREDICTED, FOUND, PICTURE = (
    EVIDENCE / name for name in ("real_plateau_predicted.csv", "real_plateau.csv", "real_plateau.png")
)
HELD_OUT, COUNT, SEEDS = 24, 512, 3  # problems of a kind: held out, trained on at most
RATE = 2e-5  # of N = 16
FLAGS: dict[str, Any] = SAME | {
    "examples": 2, "system_prompt": "Put the answer within \\boxed{}.", "recipe": "prorl", "refill": 8,
    "eval_samples": 16, "max_response_tokens": 24, "eval_max_response_tokens": 24, "max_tokens_per_micro_batch": 4096,
}  # fmt: skip
HOT = RATE * 8**0.5  # by the root of the batch, in rollouts
ARMS = {  # N, B, learning rate
    "prorl": (16, 8, RATE),
    "brorl": (512, 2, HOT),
    "brorl_cool": (512, 2, RATE),
    "batch": (16, 64, HOT),
}
STEPS = 80  # to the plateau
SECONDS = 480  # of an arm, without its evaluations, by the prediction


def kinds() -> list[list[tuple[str, int]]]:
    """Every problem of each kind, with its answer."""
    return [
        [(f"{a} + {b}", a + b) for a in range(10, 60) for b in range(10, 60)],
        [(f"{a} - {b}", a - b) for a in range(2, 60) for b in range(2, a + 1)],
        [(f"{a} x {b}", a * b) for a in range(2, 16) for b in range(2, 16)],
        [(f"{a} mod {b}", a % b) for a in range(10, 100) for b in range(3, 10)],
    ]


def make(smollm: Path) -> None:
    """Problems, always the same; the first sum and the first difference of training come with their solutions."""
    OUT.mkdir(parents=True, exist_ok=True)
    test, train = [], []
    for kind in kinds():
        random.Random(0).shuffle(kind)
        rows = [{"prompt": f"{asked} = ?", "kind": "math", "reference": str(answer)} for asked, answer in kind]
        test += rows[:HELD_OUT]
        train += rows[HELD_OUT : HELD_OUT + COUNT]
    total, difference = train[0], train[COUNT]
    for row in (total, difference):
        row["solution"] = f"\\boxed{{{row['reference']}}}"
    total["solution"] = f"{total['prompt'].removesuffix('?')}{total['reference']}, {total['solution']}"
    write_rows(OUT / "test.jsonl", test)
    write_rows(OUT / "train.jsonl", sorted(train, key=lambda row: "solution" not in row))
    (OUT / "model").unlink(missing_ok=True)
    (OUT / "model").symlink_to(smollm.resolve(), target_is_directory=True)


def train(name: str, start: Path, n: int, b: int, rate: float, **settings) -> Path:
    files = {"model": start, "data": OUT / "train.jsonl", "eval_data": OUT / "test.jsonl"}
    sizes = {"rollouts_per_prompt": n, "prompts_per_step": b, "learning_rate": rate}
    return run_alone(OUT, name, files | FLAGS | sizes | settings)


def saturate() -> Path:
    """N = 16 to its plateau; the policy there."""
    return train(f"saturate-lr{RATE:g}", OUT / "model", *ARMS["prorl"], eval_every=5, max_steps=STEPS) / "model"


def predict() -> None:
    """--preflight at the plateau; a row for each N, and in each the seconds of a prompt that is drawn."""
    folder = train("preflight", saturate(), *ARMS["brorl"], preflight=True, preflight_prompts=32)
    found = json.loads((folder / "preflight.json").read_text())
    ratio = {f"ratio_{name}": value or "" for name, value in found["ratio"].items()}
    write(PREDICTED, [row | ratio | {"prompt_cost": found["prompt_cost"]} for row in found["table"]])


def arms() -> dict[str, tuple[int, int, float, int]]:
    """N, B, learning rate and steps of each arm, after the prediction."""
    table = {row["n"]: row for row in load(PREDICTED)}
    step = {n: row["seconds"] / row["kept"] for n, row in table.items()}  # of one kept prompt
    return {name: (n, b, rate, max(4, round(SECONDS / (b * step[n])))) for name, (n, b, rate) in ARMS.items()}


def run() -> None:
    start = saturate()
    for seed, (name, (n, b, rate, steps)) in itertools.product(range(SEEDS), arms().items()):
        train(f"{name}-seed{seed}", start, n, b, rate, seed=seed, max_steps=steps, eval_every=steps // 2)


def collect() -> None:
    """A row for each evaluation of each run: scores, and the mean tokens of all, of right and of wrong answers."""
    rows, sizes = [], arms()
    for folder in sorted(path.parent for path in OUT.glob("*/model")):
        arm, _, which = folder.name.partition("-")
        if arm == "saturate":
            (n, b, rate), seed = ARMS["prorl"], 0
        else:
            (n, b, rate, _), seed = sizes[arm], int(which.removeprefix("seed"))
        seconds = [row["cpu_seconds"] for row in lines(folder / "timing.jsonl") if row["step"]]
        spent = np.cumsum([0.0, *seconds])
        scores = [row for row in lines(folder / "metrics.jsonl") if "eval/pass@1" in row]
        for row, answers in zip(scores, lines(folder / "eval.jsonl"), strict=True):
            correct, count = sum(answers["correct"]), answers["k"] * len(answers["correct"])
            tokens, right = answers["k"] * sum(answers["response_tokens"]), sum(answers["correct_tokens"])
            rows.append({
                "arm": arm, "seed": seed, "N": n, "B": b, "rate": rate, "step": row["step"],
                "samples": row["samples"], "cpu_seconds": float(spent[row["step"]]), "pass@1": row["eval/pass@1"],
                "pass@16": row["eval/pass@16"], "tokens": tokens / count, "right": right / correct if right else "",
                "wrong": (tokens - right) / (count - correct) if right else "",
            })  # fmt: skip
    write(FOUND, rows)


def tables(rows: list[dict]) -> None:
    print("\nN = 16 to its plateau: held-out pass@1 of a policy, and how much of it came last\n")
    header("learning rate", "samples", "pass@1", "the last half gained", "the last quarter", "pass@16", "tokens")
    way = [row for row in rows if row["arm"] == "saturate"]
    start, end = way[0], way[-1]
    before = [at(way, "samples", end["samples"] * share, "pass@1") for share in (1 / 2, 3 / 4)]
    line(f"{end['rate']:g}", f"{end['samples']:,}", f"{start['pass@1']:.3f} to {end['pass@1']:.3f}",
         *(f"{end['pass@1'] - x:+.3f}" for x in before), f"{start['pass@16']:.3f} to {end['pass@16']:.3f}",
         f"{start['tokens']:.1f} to {end['tokens']:.1f}")  # fmt: skip
    groups = {arm: list(by(own, "seed").values()) for (arm,), own in by(rows, "arm").items() if arm != "saturate"}
    least = min(run[-1]["cpu_seconds"] for group in groups.values() for run in group)
    print(f"\nThe arms from there, after {least:.0f} s each\n")
    header("arm", "N", "B", "seeds", "pass@1", "tokens of right answers", "of wrong ones", "pass@1 per token")
    names = ("pass@1", "right", "wrong", "tokens")
    for arm, group in ({"start": [[end]]} | groups).items():
        found = {name: [at(run, "cpu_seconds", least, name) for run in group] for name in names}
        each = [x / y for x, y in zip(found["pass@1"], found["tokens"], strict=True)]
        line(arm, group[0][0]["N"], group[0][0]["B"], len(group), shown(found["pass@1"], ".3f"),
             shown(found["right"], ".1f"), shown(found["wrong"], ".1f"), shown(each, ".4f"))  # fmt: skip


def picture(rows: list[dict]) -> None:
    """Score against time, and against the length of answers, of the run to the plateau and of the arms behind it."""
    figure, ((scores, lengths),) = panels(1, 2, 12, 4.6)
    way = [row for row in rows if row["arm"] == "saturate"]
    spent = way[-1]["cpu_seconds"]
    groups = {arm: list(by(own, "seed").values()) for (arm,), own in by(rows, "arm").items() if arm != "saturate"}
    styles = {"prorl": "-", "brorl": "-", "brorl_cool": "-.", "batch": "--"}
    for axis, what in ((scores, "pass@1"), (lengths, "tokens")):
        minutes = [row["cpu_seconds"] / 60 for row in way]
        axis.plot(minutes, [row[what] for row in way], "k.-", label="N = 16, to the plateau")
        for arm, group in groups.items():
            n, b = group[0][0]["N"], group[0][0]["B"]
            times = np.linspace(0, min(run[-1]["cpu_seconds"] for run in group), 9)
            values = np.array([[at(run, "cpu_seconds", x, what) for x in times] for run in group])
            style = look(n, 0) | {"ls": styles[arm]}
            label = f"{arm}: N = {n}, B = {b}, {len(group)} seed" + "s" * (len(group) > 1)
            axis.plot((spent + times) / 60, values.mean(0), label=label, **style)
            if len(group) > 1:
                axis.fill_between((spent + times) / 60, values.min(0), values.max(0), color=style["color"], alpha=0.12)
        axis.set(xlabel="processor minutes", ylabel=f"held-out {what}")
        axis.grid(alpha=0.3)
    lengths.set_ylabel("mean tokens of an answer")
    scores.legend(fontsize=8)
    save(figure, PICTURE, "SmolLM2-135M at the plateau of N = 16, and ways to go on. Band: range over seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = {"saturate": saturate, "predict": predict, "run": run, "collect": collect}
    parser.add_argument("what", nargs="?", choices=("make", *does, "draw"), default="draw")
    parser.add_argument("--smollm", type=Path, default=Path("smollm"), help="of make: the folder of the model")
    args = parser.parse_args()
    if args.what == "make":
        make(args.smollm)
    elif args.what in does:
        does[args.what]()
    elif not FOUND.exists():
        parser.error(f"{FOUND.name} is not there yet: the commands above, in their order, make it")
    else:
        rows = load(FOUND)
        tables(rows)
        picture(rows)


if __name__ == "__main__":
    main()
